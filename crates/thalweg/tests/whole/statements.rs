//! Statements by the command line and by the DFM's REST paths, against the whole system.

use serde_json::json;

use crate::harness::{Up, eventually, folder, text};

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
