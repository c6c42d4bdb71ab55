//! Avro, JSON Schema and Protobuf through the REST proxy, with Confluent's serializers on the other
//! side.

use crate::harness::{Up, folder, python, succeed};
use crate::kafka_broker::kafka;

#[test]
fn what_the_proxy_writes_python_reads_and_the_other_way() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    both_ways(&up, &up.address("streams"));
}

#[test]
fn on_a_kafka_cluster_too() {
    let dir = folder();
    let servers = format!("streams.kafka.bootstrap_servers={}", kafka());
    let arguments = ["--set", &servers, "--set", "schemas.topic=whole-formats"];
    let up = Up::start_with(&dir.path().join("data"), &arguments);
    both_ways(&up, kafka());
}

fn both_ways(up: &Up, streams: &str) {
    let mut script = python("rest_formats.py");
    script.args([&up.url("rest", ""), &up.url("schemas", ""), streams]);
    assert_eq!(succeed(&mut script), "ok\n");
}
