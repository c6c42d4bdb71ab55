//! Every Kafka client that people use, each by the same steps: all codecs byte for byte, a group
//! that commits and resumes, idempotence, admin; and what the clients compressed lies compressed on
//! the disk. The clients' programs stand in `tests/interop`.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Up, folder, interop, python, succeed, test_env};

#[test]
fn kafka_python_does_all_its_steps() {
    check(&mut python("kafka_python.py"));
}

#[test]
fn aiokafka_does_all_its_steps() {
    check(&mut python("aiokafka_client.py"));
}

#[test]
fn franz_go_does_all_its_steps() {
    check(go_client().arg("franz"));
}

#[test]
fn sarama_does_all_its_steps() {
    check(go_client().arg("sarama"));
}

#[test]
fn segmentios_kafka_go_does_all_its_steps() {
    check(go_client().arg("segmentio"));
}

#[test]
fn kafkas_java_client_3_does_all_its_steps() {
    check(java_client("kafka-3.9").arg("java3"));
}

#[test]
fn kafkas_java_client_4_does_all_its_steps() {
    check(java_client("kafka").arg("java4"));
}

/// Runs a client's program, which tells the topic of each codec and the bytes that it sent.
fn check(client: &mut Command) {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let printed = succeed(client.arg(up.address("streams")));
    let told: Value = serde_json::from_str(&printed).unwrap();
    let bytes = told["bytes"].as_u64().unwrap();
    let topics = told["topics"].as_object().unwrap();
    assert_eq!(topics.len(), 5, "{told}");
    for (codec, topic) in topics {
        let topic = up.get(&format!("/api/v1/topics/{}", topic.as_str().unwrap()));
        let stored = topic["bytes_stored"].as_u64().unwrap();
        let is_compressed = stored < bytes / 2;
        assert_eq!(
            is_compressed,
            codec != "none",
            "{codec}: {stored} of {bytes} bytes"
        );
    }
}

fn go_client() -> Command {
    Command::new(test_env().join("go-clients"))
}

fn java_client(libraries: &str) -> Command {
    let classpath = format!("{}/*", test_env().join(libraries).display());
    let mut command = Command::new("java");
    command
        .args([
            "-Xmx128m",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            &classpath,
        ])
        .arg(interop("KafkaClient.java"));
    command
}
