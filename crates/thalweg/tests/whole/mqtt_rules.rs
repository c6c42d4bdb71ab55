//! Topic rules between Mosquitto's clients and kcat.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Running, Up, curl, eventually, folder, succeed};

fn mosquitto_pub(up: &Up, topic: &str, payload: &str, more: &[&str]) -> Command {
    let mut command = Command::new("mosquitto_pub");
    let port = up.port("mqtt");
    command.args(["-p", &port, "-q", "1", "-t", topic, "-m", payload]);
    command.args(more);
    command
}

#[test]
fn the_management_api_is_described_as_it_is() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let document = up.get("/api/v1/mqtt/openapi.json");
    up.cli_json(&[
        "mqtt", "rules", "add", "r", "--from", "mqtt:a", "--to", "kafka:a",
    ]);
    let out = dir.path().join("received");
    let mut subscribe = Command::new("mosquitto_sub");
    subscribe.args(["-p", &up.port("mqtt"), "-t", "x"]);
    let _subscriber = Running::start(&mut subscribe, &out);
    succeed(&mut mosquitto_pub(&up, "kept", "1", &["-r"]));
    eventually("the subscriber is there", || {
        let clients = up.get("/api/v1/mqtt/clients");
        clients["clients"]
            .as_array()
            .filter(|all| all.len() == 1)
            .map(|_| ())
    });
    let described = |name: &str| {
        let schema = &document["components"]["schemas"][name];
        let parts = schema["allOf"].as_array().cloned();
        let parts = parts.unwrap_or_else(|| vec![schema.clone()]);
        let all: Vec<String> = parts
            .iter()
            .flat_map(|part| part["properties"].as_object().unwrap().keys().cloned())
            .collect();
        all
    };
    for (path, list, schema) in [
        ("/api/v1/mqtt", None, "Figures"),
        ("/api/v1/mqtt/clients", Some("clients"), "Client"),
        ("/api/v1/mqtt/rules", Some("rules"), "Rule"),
    ] {
        assert!(document["paths"][path]["get"].is_object(), "{path}");
        let answer = up.get(path);
        let shown = list.map_or(&answer, |list| &answer[list][0]);
        let described = described(schema);
        for key in shown.as_object().unwrap().keys() {
            assert!(described.contains(key), "{path}: {key} is not described");
        }
    }
    // Whatever path and method is described is there: what is unknown is said in the API's own words.
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let url = up.url(
                "management",
                &path.replace("{id}", "no").replace("{name}", "no"),
            );
            let method = method.to_uppercase();
            let answer = curl(&["-X", &method, "-H", "content-type: application/json", &url]);
            assert_ne!(answer.status, 405, "{method} {path}");
            if answer.status >= 400 {
                assert!(
                    answer.json()["message"].is_string(),
                    "{method} {path}: {}",
                    answer.body
                );
            }
        }
    }
}

#[test]
fn an_operator_sends_a_client_away_by_command() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let out = dir.path().join("received");
    let mut subscribe = Command::new("mosquitto_sub");
    // It goes on with a new session when it is sent away.
    subscribe.args(["-p", &up.port("mqtt"), "-i", "a/b c", "-t", "x", "-C", "1"]);
    let subscriber = Running::start(&mut subscribe, &out);
    let is_there = || {
        let clients = up.get("/api/v1/mqtt/clients");
        let connected = clients["clients"][0]["connected"] == true;
        connected.then_some(())
    };
    eventually("the subscriber is there", is_there);
    let gone = up.cli(&["mqtt", "clients", "disconnect", "a/b c", "--forget"]);
    assert!(
        gone.status.success(),
        "{}",
        String::from_utf8_lossy(&gone.stderr)
    );
    let unknown = up.cli(&["mqtt", "clients", "disconnect", "nobody"]);
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(
        !unknown.status.success() && said.contains("no client"),
        "{said}"
    );
    eventually("the subscriber is back", is_there);
    succeed(&mut mosquitto_pub(&up, "x", "after", &[]));
    subscriber.finish("the message comes");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "after\n");
}

/// The records of a topic as kcat prints them: key, value, headers, a line each.
fn kcat_all(up: &Up, topic: &str) -> Vec<String> {
    let server = up.address("streams");
    let mut command = Command::new("kcat");
    command.args([
        "-b",
        &server,
        "-C",
        "-t",
        topic,
        "-e",
        "-q",
        "-f",
        "%k|%s|%h\n",
    ]);
    let mut lines: Vec<String> = succeed(&mut command).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn rule(up: &Up, name: &str) -> Value {
    let answer = up.get("/api/v1/mqtt/rules");
    let mut rules = answer["rules"].as_array().unwrap().iter();
    rules.find(|rule| rule["name"] == name).unwrap().clone()
}

#[test]
fn mosquitto_and_kcat_meet_by_rules() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let add = |arguments: &[&str]| {
        let all: Vec<&str> = ["mqtt", "rules", "add"]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        up.cli_json(&all)
    };
    add(&[
        "in",
        "--from",
        "mqtt:plant/+/t",
        "--to",
        "kafka:temps",
        "--key",
        "{2}",
    ]);
    add(&[
        "out",
        "--from",
        "kafka:commands",
        "--to",
        "mqtt:down/{key}",
        "--retain",
    ]);
    let user = ["-V", "5", "-D", "publish", "user-property", "unit", "C"];
    succeed(&mut mosquitto_pub(&up, "plant/a/t", "21", &user));
    succeed(&mut mosquitto_pub(&up, "plant/b/t", "22", &[]));
    // Both were acknowledged, so both are there.
    let records = kcat_all(&up, "temps");
    assert_eq!(records.len(), 2, "{records:?}");
    assert!(
        records[0].starts_with("a|21|mqtt-topic=plant/a/t,unit=C,thalweg-path="),
        "{records:?}"
    );
    assert!(
        records[1].starts_with("b|22|mqtt-topic=plant/b/t,thalweg-path="),
        "{records:?}"
    );
    let out = dir.path().join("commands");
    let mut subscribe = Command::new("mosquitto_sub");
    subscribe.args([
        "-p",
        &up.port("mqtt"),
        "-t",
        "down/#",
        "-v",
        "-C",
        "2",
        "-q",
        "1",
    ]);
    let subscriber = Running::start(&mut subscribe, &out);
    for (key, value) in [("x", "on"), ("y", "off")] {
        let command = format!(
            "printf '{key}:{value}' | kcat -b {} -P -t commands -K :",
            up.address("streams")
        );
        succeed(Command::new("sh").args(["-c", &command]));
    }
    subscriber.finish("two commands come");
    let mut heard: Vec<String> = std::fs::read_to_string(&out)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    heard.sort();
    assert_eq!(heard, ["down/x on", "down/y off"]);
    assert_eq!(rule(&up, "in")["passed_total"], 2);
    let wrong = up.cli(&[
        "mqtt", "rules", "add", "bad", "--from", "mqtt:a", "--to", "mqtt:b",
    ]);
    assert!(!wrong.status.success());
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("kafka:TOPIC"), "{said}");
    assert!(up.cli(&["mqtt", "rules", "remove", "out"]).status.success());
    let listed = up.cli_json(&["mqtt", "rules", "list"]);
    assert_eq!(
        listed["rules"].as_array().map(Vec::len),
        Some(1),
        "{listed}"
    );
}

#[test]
fn what_was_acknowledged_is_in_the_topic_after_a_kill() {
    let dir = folder();
    let mut up = Up::start(&dir.path().join("data"));
    up.cli_json(&[
        "mqtt", "rules", "add", "in", "--from", "mqtt:n", "--to", "kafka:n", "--key", "",
    ]);
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        for n in 0..12 {
            let payload = format!("{round}-{n}");
            // In the last ones the process is killed while messages are on their way.
            if n == 10 {
                let mut late: Vec<_> = (0..4)
                    .map(|k| {
                        let payload = format!("{round}-late{k}");
                        (
                            payload.clone(),
                            mosquitto_pub(&up, "n", &payload, &[]).spawn().unwrap(),
                        )
                    })
                    .collect();
                up.kill();
                for (payload, child) in &mut late {
                    // One that waits for a server that is gone tries for ever.
                    let _ = child.kill();
                    if child.wait().unwrap().success() {
                        acknowledged.push(payload.clone());
                    }
                }
                up = up.start_again(&[]);
                // The rule is at work before its clients are served.
                assert_eq!(rule(&up, "in")["problem"], "");
                continue;
            }
            succeed(&mut mosquitto_pub(&up, "n", &payload, &[]));
            acknowledged.push(payload);
        }
    }
    let stored: Vec<String> = kcat_all(&up, "n")
        .iter()
        .map(|line| line.split('|').nth(1).unwrap().to_owned())
        .collect();
    for payload in &acknowledged {
        assert!(
            stored.contains(payload),
            "{payload} is missing in {stored:?}"
        );
    }
    assert!(acknowledged.len() >= 44);
    // Out of the store, over a kill too: at least once, and on from the position.
    up.cli_json(&[
        "mqtt", "rules", "add", "out", "--from", "kafka:m", "--to", "mqtt:m", "--retain",
    ]);
    up.kill();
    up = up.start_again(&[]);
    let command = format!("printf 'after' | kcat -b {} -P -t m", up.address("streams"));
    succeed(Command::new("sh").args(["-c", &command]));
    eventually("the record is retained as a message", || {
        let retained = up.get("/api/v1/mqtt/retained?filter=m");
        (retained["retained"][0]["text"] == "after").then_some(())
    });
}
