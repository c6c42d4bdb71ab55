//! The schema registry with the serializers that people use, over restarts and kills, on the
//! embedded store and on a Kafka cluster, from one process and from two.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{
    Up, curl, eventually, folder, interop, post, python, signal, succeed, test_env, text,
    thalweg_command,
};
use crate::kafka_broker::kafka;

#[test]
fn python_serializers_write_and_read_every_format_over_a_restart() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let script = |up: &Up, what: &str| {
        let mut python = python("schemas_python.py");
        let streams = up.address("streams");
        succeed(python.args([&up.url("schemas", ""), &streams, "python", what]))
    };
    assert_eq!(script(&up, "write"), "ok\n");
    let before = all(&up);
    let data = up.data().to_owned();
    assert!(up.stop().success());
    let up = Up::start(&data);
    assert_eq!(all(&up), before);
    assert_eq!(script(&up, "read"), "ok\n");
}

#[test]
fn javascript_serializers_write_and_read_every_format() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    assert_eq!(javascript(&up, &up.address("streams"), "js"), "ok\n");
}

#[test]
fn the_registry_works_on_a_kafka_cluster_and_from_two_processes() {
    let dir = folder();
    let servers = format!("streams.kafka.bootstrap_servers={}", kafka());
    let arguments = ["--set", &servers, "--set", "schemas.topic=whole-schemas"];
    let one = Up::start_with(&dir.path().join("one"), &arguments);
    let other = Up::start_with(&dir.path().join("other"), &arguments);
    for what in ["write", "read"] {
        // What one process registered the other tells.
        let up = if what == "write" { &one } else { &other };
        let mut python = python("schemas_python.py");
        python.args([&up.url("schemas", ""), kafka(), "cluster", what]);
        assert_eq!(succeed(&mut python), "ok\n");
    }
    // Both register at once: schemas of their own, and the same ones.
    let ids = std::thread::scope(|scope| {
        let both = [(&one, 0), (&other, 10)].map(|(up, offset)| {
            scope.spawn(move || {
                let sizes = (1..=20).map(|n| (n, format!("at-once-{}", (n + offset) % 5)));
                let id = |(size, subject): (u32, String)| (size, register(up, &subject, size));
                sizes.map(id).collect::<Vec<_>>()
            })
        });
        both.map(|thread| thread.join().unwrap())
    });
    assert_eq!(ids[0], ids[1], "one schema has one id");
    let by_id: BTreeMap<i64, u32> = ids[0].iter().map(|(size, id)| (*id, *size)).collect();
    assert_eq!(by_id.len(), 20, "an id is of one schema");
    eventually("both tell the same", || {
        (all(&one) == all(&other)).then_some(())
    });
}

#[test]
fn what_was_registered_survives_kills() {
    let dir = folder();
    let free = ["--set", "schemas.compatibility=NONE"];
    let mut up = Up::start_with(&dir.path().join("data"), &free);
    let mut acknowledged: Vec<(u32, i64)> = Vec::new();
    for round in 0..5 {
        let stop = AtomicBool::new(false);
        let registered = std::thread::scope(|scope| {
            let (up, stop) = (&up, &stop);
            let clients = [0, 1, 2].map(|client| {
                scope.spawn(move || {
                    let mut registered = Vec::new();
                    for n in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let size = 1 + round * 30_000 + client * 10_000 + n;
                        match try_register(up, &format!("killed-{client}"), size) {
                            Some(id) => registered.push((size, id)),
                            None => break,
                        }
                    }
                    registered
                })
            });
            eventually("some schemas are registered", || {
                let listed = curl(&[&up.url("schemas", "/schemas?latestOnly=true")]).json();
                let killed = listed.as_array()?.iter();
                let last = killed.filter_map(|of| of["version"].as_i64()).max()?;
                (last > i64::from(round + 1) * 10).then_some(())
            });
            signal(up.pid(), Signal::KILL);
            stop.store(true, Ordering::Relaxed);
            clients.map(|client| client.join().unwrap())
        });
        acknowledged.extend(registered.into_iter().flatten());
        up.kill();
        up = up.start_again(&free);
        let ids: BTreeMap<i64, String> = all(&up)
            .iter()
            .map(|of| {
                let text = of["schema"].as_str().unwrap().to_owned();
                (of["id"].as_i64().unwrap(), text)
            })
            .collect();
        for (size, id) in &acknowledged {
            assert_eq!(ids.get(id), Some(&fixed(*size)), "round {round}: id {id}");
        }
    }
    assert!(acknowledged.len() > 50, "{}", acknowledged.len());
}

#[test]
fn a_process_of_the_registry_alone_needs_a_store() {
    let dir = folder();
    let mut command = thalweg_command();
    command.args(["up", "--role", "schemas", "--data"]);
    let output = command.arg(dir.path().join("data")).output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success());
    assert!(
        told.contains("the role schemas needs an event store"),
        "{told}"
    );
}

/// Confluent's serializers in JavaScript.
fn javascript(up: &Up, streams: &str, prefix: &str) -> String {
    let mut node = Command::new("node");
    node.env("NODE_PATH", test_env().join("schema-clients/node_modules"));
    node.arg(interop("schemas/client.cjs"));
    succeed(node.args([&up.url("schemas", ""), streams, prefix]))
}

/// Every version, as the registry tells it.
fn all(up: &Up) -> Vec<Value> {
    let answer = curl(&[&up.url("schemas", "/schemas?deleted=true")]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json().as_array().unwrap().clone()
}

/// A schema that differs by a number.
fn fixed(size: u32) -> String {
    format!("{{\"type\":\"fixed\",\"name\":\"F\",\"size\":{size}}}")
}

fn register(up: &Up, subject: &str, size: u32) -> i64 {
    // Nothing of it is compatible; who asks first sets that nothing has to be.
    let set = curl(&[
        "--request",
        "PUT",
        "--header",
        "Content-Type: application/json",
        "--data-binary",
        r#"{"compatibility": "NONE"}"#,
        &up.url("schemas", &format!("/config/{subject}")),
    ]);
    assert_eq!(set.status, 200, "{}", set.body);
    let url = up.url("schemas", &format!("/subjects/{subject}/versions"));
    let body = json!({"schema": fixed(size)}).to_string();
    let answer = post(&url, "application/vnd.schemaregistry.v1+json", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["id"].as_i64().unwrap()
}

/// Registers unless the process goes away meanwhile.
fn try_register(up: &Up, subject: &str, size: u32) -> Option<i64> {
    let url = up.url("schemas", &format!("/subjects/{subject}/versions"));
    let body = json!({"schema": fixed(size)}).to_string();
    let output = Command::new("curl")
        .args([
            "--silent",
            "--fail",
            "--max-time",
            "30",
            "--data-binary",
            &body,
        ])
        .args(["--header", "Content-Type: application/json", &url])
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).ok()?;
    answer["id"].as_i64()
}
