//! Every Kafka client that people use, each by the same steps: all codecs byte for byte, a group
//! that commits and resumes, idempotence, transactions, admin; and what the clients compressed lies compressed on
//! the disk. The clients' programs stand in `tests/interop`.

use std::process::Command;

use serde_json::Value;

use crate::harness::{
    Up, add_offline, folder, go_client, interop, java, kafka_tool, python, succeed, test_env,
};

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

/// The client's own metrics say by how much the server held it back.
#[test]
fn a_java_producer_over_its_quota_is_held_back_and_another_is_not() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut command = java("-Xmx128m", "kafka", "ThrottledProducer.java");
    let told = succeed(command.arg(up.address("streams")));
    assert!(told.contains("producer_byte_rate=50000.0"), "{told}");
    let delay = |client: &str| -> u64 {
        let line = told.lines().find_map(|line| line.strip_prefix(client));
        line.unwrap().trim().parse().unwrap()
    };
    assert!(delay("greedy ") > 0, "{told}");
    assert_eq!(delay("modest "), 0, "{told}");
}

#[test]
fn kafka_streams_counts_words_exactly_once() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    count_words(&up, "classic", 1);
}

#[test]
fn kafka_streams_counts_words_with_the_protocol_of_its_own() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let streams = up.address("streams");
    let standbys = [
        "groups",
        "alter",
        "word-count",
        "--config",
        "streams.num.standby.replicas=1",
    ];
    assert!(up.cli(&standbys).status.success());
    count_words(&up, "streams", 2);
    let tool = |arguments: &str| {
        let mut command = kafka_tool("org.apache.kafka.tools.streams.StreamsGroupCommand");
        command.args(["--bootstrap-server", &streams]);
        succeed(command.args(arguments.split_whitespace()))
    };
    assert_eq!(tool("--list").trim(), "word-count");
    let state = tool("--describe --state --group word-count");
    assert!(state.contains("Empty"), "{state}");
    let reset = "--reset-offsets --to-earliest --all-input-topics --group word-count --dry-run";
    let reset = tool(reset);
    assert!(reset.contains("lines"), "{reset}");
    tool("--delete --group word-count");
    assert_eq!(tool("--list").trim(), "");
}

fn count_words(up: &Up, protocol: &str, instances: usize) {
    let mut command = java("-Xmx256m", "kafka", "WordCount.java");
    command.args([&up.address("streams"), protocol, &instances.to_string()]);
    succeed(&mut command);
}

/// With no more records than its own tests need; `tests/interop/kgo/run` runs it with many, or a part of it many times.
#[test]
fn franz_gos_own_integration_suite_passes() {
    let dir = folder();
    let data = dir.path().join("data");
    add_offline(&data, "kgo", "kgo-secret");
    let settings = [
        "streams.default_partitions=4",
        "streams.local_listen=127.0.0.1:0",
        "streams.sasl.mechanisms=[\"SCRAM-SHA-256\"]",
    ];
    let up = Up::start_with(&data, &settings.map(|setting| ["--set", setting]).concat());
    let suite = Command::new(test_env().join("kgo.test"))
        .args(["-test.v", "-test.timeout", "10m"])
        .current_dir(test_env().join("kgo-sources"))
        .envs([
            ("KGO_SEEDS", up.address("streams.local").as_str()),
            ("KGO_TEST_SCRAM_SEEDS", up.address("streams").as_str()),
            ("KGO_TEST_SCRAM", "kgo:kgo-secret"),
            ("KGO_TEST_RF", "1"),
            ("KGO_TEST_RECORDS", "2000"),
            ("KGO_LOG_LEVEL", "none"),
        ])
        .output()
        .unwrap();
    let log = dir.path().join("kgo.log");
    std::fs::write(&log, &suite.stdout).unwrap();
    let mut summary = Command::new("awk");
    summary.arg("-f").arg(interop("kgo/summary.awk")).arg(&log);
    let counted = succeed(&mut summary);
    assert!(suite.status.success(), "{}\n{counted}", suite.status);
    // With a listener that wants logins, these two have no reason to skip themselves.
    assert!(!counted.contains("TestSCRAM"), "{counted}");
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

fn java_client(libraries: &str) -> Command {
    java("-Xmx128m", libraries, "KafkaClient.java")
}
