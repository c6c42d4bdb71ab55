//! Statements by the command line and by the DFM's REST paths, against the whole system.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Running, Up, eventually, folder, text};

#[test]
fn statements_are_added_paused_resumed_replaced_tailed_and_removed_by_command() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let sql = "INSERT INTO kafka.out SELECT v FROM kafka.raw";
    let added = up.cli_json(&[
        "statements",
        "add",
        "--name",
        "s",
        "--start",
        "earliest",
        sql,
    ]);
    assert_eq!(
        (&added["name"], &added["status"]),
        (&json!("s"), &json!("running"))
    );
    assert_eq!(
        up.cli_json(&["statements", "pause", "s"])["status"],
        "paused"
    );
    assert_eq!(
        up.cli_json(&["statements", "list"])["statements"][0]["status"],
        "paused"
    );
    assert_eq!(
        up.cli_json(&["statements", "resume", "s"])["status"],
        "running"
    );
    let explained = up.cli_json(&["statements", "explain", "SELECT a.b FROM mqtt.\"t\""]);
    assert_eq!(explained["fields"], json!(["a.b"]));
    let other = "INSERT INTO kafka.out SELECT v + 1 AS v FROM kafka.raw";
    let replaced = up.cli_json(&["statements", "replace", "s", other, "--state", "keep"]);
    assert_eq!(
        (&replaced["state_kept"], &replaced["generation"]),
        (&json!(true), &json!(1))
    );
    assert_eq!(replaced["start"], "earliest", "what is not given stays");

    let wrong = up.cli(&["statements", "explain", "SELECT a\nFORM mqtt.\"x\""]);
    assert!(!wrong.status.success());
    assert!(
        text(&wrong.stderr).contains("\n  FORM mqtt.\"x\"\n  "),
        "{}",
        text(&wrong.stderr)
    );

    let timed = "select sum(v) as s from \"in\"#time_batch(1 sec)";
    up.cli_json(&[
        "statements",
        "add",
        "--name",
        "t",
        "--language",
        "epl",
        "--lateness",
        "5s",
        "--policy",
        "time=ts",
        "--policy",
        "backpressure=drop_oldest",
        timed,
    ]);
    for (n, ts) in [(1, 10_900), (2, 10_000), (4, 20_000)] {
        let body = json!({"topic": "in", "text": format!("{{\"v\":{n},\"ts\":{ts}}}")});
        let url = up.url("management", "/api/v1/mqtt/publish");
        let published = crate::harness::post(&url, "application/json", &body.to_string());
        assert!(published.status < 300, "{}", published.body);
    }
    // The batch that begins at its first event's own time is told, whatever came first.
    eventually("the first batch leaves", || {
        (up.get("/api/v1/statements/t")["emitted_total"].as_u64()? >= 1).then_some(())
    });
    let unknown = up.cli(&["statements", "add", "--policy", "color=red", timed]);
    assert!(
        text(&unknown.stderr).contains("color"),
        "{}",
        text(&unknown.stderr)
    );
    assert!(up.cli(&["statements", "remove", "t"]).status.success());

    let window = "create window W#keepall as (k string)";
    up.cli_json(&[
        "statements",
        "add",
        "--name",
        "w",
        "--language",
        "epl",
        window,
    ]);
    let insert = "insert into W (k) values ('x')";
    assert!(up.cli(&["statements", "query", insert]).status.success());
    let rows = up.cli(&["statements", "query", "select k from W"]);
    assert_eq!(
        text(&rows.stdout),
        "{\"k\":\"x\"}\n",
        "{}",
        text(&rows.stderr)
    );
    assert!(up.cli(&["statements", "remove", "w"]).status.success());

    let form = json!({"id": "d", "name": "n", "statement": "SELECT v FROM mqtt.\"in\""});
    let url = up.url("fleet", "/statement/");
    let answer = crate::harness::post(&url, "application/json", &form.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    assert_eq!(up.get("/statement/d")["resources"]["d"]["name"], "n");
    assert!(up.cli(&["statements", "remove", "d"]).status.success());
    assert!(up.cli(&["statements", "remove", "s"]).status.success());
    eventually("no statement is left", || {
        (up.get("/api/v1/statements") == json!({"statements": []})).then_some(())
    });
}

#[test]
fn a_dfm_statement_gets_events_from_a_server_and_others_tell_them_over_mqtt() {
    let dir = folder();
    let shop = format!("fusion.control.servers.shop={}", counting_server());
    let settings = ["--set", &shop, "--set", "fusion.polls.interval=50ms"];
    let up = Up::start_with(&dir.path().join("data"), &settings);
    let out = dir.path().join("rows");
    let mut subscribe = Command::new("mosquitto_sub");
    subscribe.args(["-p", &up.port("mqtt"), "-t", "hot", "-C", "2"]);
    let subscriber = Running::start(&mut subscribe, &out);
    eventually("the subscriber is there", || {
        let status = up.get("/api/v1/status");
        (status["mqtt"]["clients_connected"].as_u64() >= Some(1)).then_some(())
    });
    let add = |form: Value| {
        let url = up.url("management", "/statement/");
        let answer = crate::harness::post(&url, "application/json", &form.to_string());
        assert_eq!(answer.status, 201, "{}", answer.body);
    };
    add(json!({"id": "hot", "name": "hot", "output": ["hot"],
        "statement": "select result from Observation(attributeId = 'temp' and result > 3)"}));
    add(json!({"id": "temp", "name": "temp",
        "statement": "select result from Observation(attributeId = 'temp')",
        "publisher": "HTTP_GET", "scope": ["shop"], "output": ["/temp"]}));
    subscriber.finish("two rows come");
    let rows = std::fs::read_to_string(&out).unwrap();
    let results = rows.lines().map(|row| {
        let row: Value = serde_json::from_str(row).unwrap();
        row["result"].clone()
    });
    assert_eq!(results.collect::<Vec<_>>(), [json!(4), json!(5)]);
    let shown = up.get("/api/v1/statements/temp");
    assert!(
        shown["polls"]["answered_total"].as_u64() >= Some(5),
        "{shown}"
    );
    assert_eq!(shown["error"], Value::Null);
    let metrics = crate::harness::curl(&[&up.url("management", "/metrics")]).body;
    assert!(
        metrics.contains("thalweg_fusion_polls_total{outcome=\"answered\"}"),
        "{metrics}"
    );
    assert!(up.cli(&["statements", "remove", "temp"]).status.success());
}

/// The address of a server that answers `/temp` with 1, 2, and so on, and nothing else.
fn counting_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut result = 0;
        for link in listener.incoming() {
            let mut link = link.unwrap();
            let mut head = [0; 4096];
            let read = link.read(&mut head).unwrap_or(0);
            let (status, body) = match head[..read].starts_with(b"GET /temp ") {
                true => {
                    result += 1;
                    ("200 OK", json!({"result": result}).to_string())
                }
                false => ("404 Not Found", String::new()),
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let _ = link.write_all(answer.as_bytes());
        }
    });
    url
}
