//! What stands around MQTT: TLS, WebSocket, users, ACLs, bridges; with Mosquitto's own programs.

use std::path::Path;
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::harness::{
    Running, Up, add_offline, eventually, folder, free_port, succeed, thalweg_command,
};

/// `ca.pem`, `server.pem` and `server.key` for localhost.
fn certificates(dir: &Path) {
    let run = |text: &str| {
        let mut command = Command::new("openssl");
        succeed(command.current_dir(dir).args(text.split_whitespace()));
    };
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    run(&format!(
        "req -x509 {curve} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority \
         -addext basicConstraints=critical,CA:TRUE"
    ));
    std::fs::write(
        dir.join("names.ext"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\n",
    )
    .unwrap();
    run(&format!(
        "req {curve} -keyout server.key -out server.csr -subj /CN=localhost"
    ));
    run(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 \
         -extfile names.ext",
    );
}

fn publish(port: &str, topic: &str, payload: &str, more: &[&str]) -> Command {
    let mut command = Command::new("mosquitto_pub");
    command
        .args(["-p", port, "-t", topic, "-m", payload, "-q", "1"])
        .args(more);
    command
}

#[test]
fn users_come_by_tls_and_do_what_the_acls_say() {
    let dir = folder();
    certificates(dir.path());
    let data = dir.path().join("data");
    add_offline(&data, "ann", "pencil");
    let set = |key: &str, value: &str| format!("{key}={value}");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let settings = [
        set("mqtt.tls_listen", "127.0.0.1:0"),
        set("mqtt.tls.certificate", &path("server.pem")),
        set("mqtt.tls.key", &path("server.key")),
        set("mqtt.security.logins", "true"),
        set("mqtt.security.authorization", "acl"),
    ];
    let arguments: Vec<&str> = settings.iter().flat_map(|s| ["--set", s]).collect();
    let up = Up::start_with(&data, &arguments);
    let (port, ca) = (up.port("mqtt.tls"), path("ca.pem"));
    let tls = ["-h", "localhost", "--cafile", &ca];
    let ann = [&tls[..], &["-u", "ann", "-P", "pencil", "-i", "dev1"]].concat();
    let wrong = [&tls[..], &["-u", "ann", "-P", "pen"]].concat();
    assert!(
        !publish(&port, "t", "x", &wrong)
            .output()
            .unwrap()
            .status
            .success()
    );
    assert!(
        !publish(&port, "t", "x", &tls)
            .output()
            .unwrap()
            .status
            .success()
    );
    for (operation, filter) in [("write", "up/%c/#"), ("read", "up/#")] {
        let acl = [
            "acls",
            "add",
            "--user",
            "ann",
            "--operation",
            operation,
            "--mqtt-topic",
            filter,
        ];
        up.cli_json(&acl);
    }
    // Kept, so that what is heard later shows what was let through.
    succeed(&mut publish(
        &port,
        "up/dev1/t",
        "yes",
        &[&ann[..], &["-r"]].concat(),
    ));
    // Acknowledged with 0x87: the message goes to nobody.
    let _ = publish(
        &port,
        "up/dev2/t",
        "no",
        &[&ann[..], &["-r", "-V", "5"]].concat(),
    )
    .output();
    let mut subscribe = Command::new("mosquitto_sub");
    subscribe.args(["-p", &port, "-t", "up/#", "-v", "-W", "5", "-C", "2"]);
    let heard = subscribe.args(&ann).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&heard.stdout), "up/dev1/t yes\n");
    let refusals = up.get("/api/v1/mqtt/refusals");
    let told = refusals["refusals"].as_array().unwrap();
    let count = |what: &str| {
        told.iter()
            .filter(|refusal| refusal["what"] == what)
            .count()
    };
    assert_eq!((count("connect"), count("publish")), (2, 1), "{refusals}");
    assert!(!refusals.to_string().contains("pencil"));
    let retained = up.cli_json(&["mqtt", "retained"]);
    assert_eq!(retained["retained"][0]["text"], "yes");
    assert_eq!(retained["retained"].as_array().unwrap().len(), 1);
}

#[test]
fn the_command_line_publishes_subscribes_and_looks() {
    let dir = folder();
    let up = Up::start_with(
        &dir.path().join("data"),
        &["--set", "mqtt.websocket.listen=127.0.0.1:0"],
    );
    let cli = |arguments: &[&str]| {
        let out = up.cli(arguments);
        assert!(
            out.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8(out.stdout).unwrap()
    };
    cli(&[
        "mqtt", "publish", "a/kept", "-m", "first", "--retain", "--qos", "1",
    ]);
    let out = dir.path().join("heard");
    let mut subscribe = thalweg_command();
    subscribe.args(["--server", &up.url("management", ""), "--output", "json"]);
    subscribe.args(["mqtt", "subscribe", "a/#", "--qos", "2", "--max", "2"]);
    let subscriber = Running::start(&mut subscribe, &out);
    eventually("the retained message comes", || {
        std::fs::read_to_string(&out)
            .unwrap()
            .contains("first")
            .then_some(())
    });
    let clients = up.cli_json(&["mqtt", "clients"]);
    assert_eq!(clients["clients"][0]["subscriptions"], 1, "{clients}");
    cli(&[
        "mqtt",
        "publish",
        "a/b",
        "-m",
        "second",
        "--qos",
        "2",
        "--property",
        "k=v",
    ]);
    subscriber.finish("two messages come");
    let heard = std::fs::read_to_string(&out).unwrap();
    let second: Value = serde_json::from_str(heard.lines().nth(1).unwrap()).unwrap();
    let expected = json!({"topic": "a/b", "qos": 2, "retain": false, "text": "second",
        "user_properties": [["k", "v"]]});
    assert_eq!(second, expected);
    cli(&["mqtt", "retained", "a/#", "--clear"]);
    let retained = up.cli_json(&["mqtt", "retained"]);
    assert_eq!(retained["retained"], json!([]));
    assert!(!up.address("mqtt.ws").is_empty());
}

/// Mosquitto on a port of its own.
struct Mosquitto {
    child: Child,
    port: u16,
}

impl Mosquitto {
    fn start(dir: &Path, port: u16, more: &str) -> Mosquitto {
        let config = dir.join("mosquitto.conf");
        let text =
            format!("listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n{more}\n");
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("/usr/sbin/mosquitto");
        let child = command.arg("-c").arg(&config).spawn().unwrap();
        eventually("mosquitto listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        });
        Mosquitto { child, port }
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_bridge_to_mosquitto_stores_while_it_is_away_and_survives_a_kill() {
    let dir = folder();
    let data = dir.path().join("data");
    let mut up = Up::start(&data);
    let port = free_port();
    let bridge = json!({
        "name": "cloud",
        "address": format!("mqtt://127.0.0.1:{port}"),
        "topics": [
            {"filter": "t/#", "local_prefix": "plant/", "remote_prefix": "site1/"},
            {"filter": "commands/#", "direction": "in"},
        ],
    });
    let file = dir.path().join("bridge.json");
    std::fs::write(&file, bridge.to_string()).unwrap();
    up.cli_json(&["mqtt", "bridges", "add", &file.display().to_string()]);
    for n in 0..200 {
        let topic = format!("plant/t/{n}");
        succeed(&mut publish(&up.port("mqtt"), &topic, &n.to_string(), &[]));
    }
    let state = |up: &Up| up.get("/api/v1/mqtt/bridges")["bridges"][0].clone();
    assert_eq!(state(&up)["queued"], 200);
    assert_eq!(state(&up)["connected"], false);
    // What was acknowledged is there again after a kill.
    up.kill();
    let up = up.start_again(&[]);
    assert_eq!(state(&up)["queued"], 200);
    let mosquitto = Mosquitto::start(dir.path(), port, "");
    let there = mosquitto.port.to_string();
    let out = dir.path().join("heard");
    let mut subscribe = Command::new("mosquitto_sub");
    subscribe.args(["-p", &there, "-t", "site1/t/#", "-q", "1", "-C", "1"]);
    subscribe.args(["-v", "-F", "%t %p"]);
    let subscriber = Running::start(&mut subscribe, &out);
    eventually("everything has gone", || {
        let state = state(&up);
        (state["queued"] == 0 && state["connected"] == true).then_some(())
    });
    assert!(state(&up)["sent_total"].as_u64() >= Some(200));
    succeed(&mut publish(&up.port("mqtt"), "plant/t/now", "live", &[]));
    subscriber.finish("a message comes over the bridge");
    let first = std::fs::read_to_string(&out).unwrap();
    assert!(first.starts_with("site1/t/"), "{first}");
    // And back.
    let back = dir.path().join("commands");
    let mut subscribe = Command::new("mosquitto_sub");
    let own = up.port("mqtt");
    subscribe.args(["-p", &own, "-t", "commands/#", "-q", "1", "-v", "-C", "1"]);
    let subscriber = Running::start(&mut subscribe, &back);
    eventually("the subscriber is there", || {
        let status = up.get("/api/v1/status");
        (status["mqtt"]["clients_connected"].as_u64() >= Some(1)).then_some(())
    });
    succeed(&mut publish(&there, "commands/stop", "now", &[]));
    subscriber.finish("the command comes");
    assert_eq!(
        std::fs::read_to_string(&back).unwrap(),
        "commands/stop now\n"
    );
    let status = state(&up);
    assert_eq!(status["dropped_total"], 0, "{status}");
    assert!(
        up.cli(&["mqtt", "bridges", "remove", "cloud"])
            .status
            .success()
    );
    assert_eq!(up.get("/api/v1/mqtt/bridges"), json!({"bridges": []}));
}

#[test]
fn a_bridge_goes_on_behind_what_mosquitto_refuses_for_its_size_without_having_said_so() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let port = free_port();
    let mosquitto = Mosquitto::start(dir.path(), port, "message_size_limit 1000");
    let bridge = json!({
        "name": "cloud",
        "address": format!("mqtt://127.0.0.1:{}", mosquitto.port),
        "topics": [{"filter": "t/#"}],
    });
    let file = dir.path().join("bridge.json");
    std::fs::write(&file, bridge.to_string()).unwrap();
    up.cli_json(&["mqtt", "bridges", "add", &file.display().to_string()]);
    let out = dir.path().join("heard");
    let mut subscribe = Command::new("mosquitto_sub");
    let there = port.to_string();
    subscribe.args(["-p", &there, "-t", "t/last", "-q", "1", "-C", "1"]);
    let subscriber = Running::start(&mut subscribe, &out);
    for (topic, payload) in [
        ("x", "before"),
        ("x", &"7".repeat(5_000)),
        ("last", "after"),
    ] {
        let topic = format!("t/{topic}");
        // Retained, for a subscriber that comes later.
        succeed(&mut publish(&up.port("mqtt"), &topic, payload, &["-r"]));
    }
    eventually("nothing waits", || {
        let state = up.get("/api/v1/mqtt/bridges")["bridges"][0].clone();
        (state["queued"] == 0).then(|| assert_eq!(state["set_aside_total"], 1, "{state}"))
    });
    subscriber.finish("the last one comes");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "after\n");
}
