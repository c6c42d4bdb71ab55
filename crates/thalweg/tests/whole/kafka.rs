//! Kafka's own clients, unchanged, against the Kafka listener.

use std::process::Command;

use crate::harness::{Up, folder, kafka_tool, python, succeed, whole_topic};

#[test]
fn kcat_lists_produces_and_consumes_with_every_codec() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let streams = up.address("streams");
    let kcat = |arguments: &[&str]| {
        let mut command = Command::new("kcat");
        command.args(["-b", &streams]).args(arguments);
        succeed(&mut command)
    };
    let lines: String = (0..1000)
        .map(|n| format!("line {n} {}\n", "x".repeat(100)))
        .collect();
    let input = dir.path().join("lines");
    std::fs::write(&input, &lines).unwrap();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("kcat-{codec}");
        kcat(&[
            "-P",
            "-t",
            &topic,
            "-z",
            codec,
            "-l",
            input.to_str().unwrap(),
        ]);
        let back = kcat(&whole_topic(&topic));
        assert_eq!(back, lines, "{codec}");
        let stored = up.get(&format!("/api/v1/topics/{topic}"))["bytes_stored"]
            .as_u64()
            .unwrap();
        // The batches lie on the disk as the client compressed them.
        let compressed = stored < lines.len() as u64 / 2;
        assert_eq!(compressed, codec != "none", "{codec} stored {stored} bytes");
    }
    let listing = kcat(&["-L"]);
    assert!(
        listing.contains("topic \"kcat-zstd\" with 1 partitions"),
        "{listing}"
    );
    assert_eq!(
        kcat(&["-Q", "-t", "kcat-gzip:0:-1"]).trim(),
        "kcat-gzip [0] offset 1000"
    );
}

#[test]
fn librdkafka_produces_with_every_guarantee_and_reads_back_the_same_bytes() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    succeed(python("kafka_roundtrip.py").arg(up.address("streams")));
}

#[test]
fn kafkas_own_tools_create_produce_and_consume() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let streams = up.address("streams");
    let create = [
        "--create",
        "--topic",
        "perf",
        "--partitions",
        "3",
        "--bootstrap-server",
        &streams,
    ];
    succeed(kafka_tool("org.apache.kafka.tools.TopicCommand").args(create));
    let describe = [
        "--describe",
        "--topic",
        "perf",
        "--bootstrap-server",
        &streams,
    ];
    let described = succeed(kafka_tool("org.apache.kafka.tools.TopicCommand").args(describe));
    assert!(described.contains("PartitionCount: 3"), "{described}");
    let server = format!("bootstrap.servers={streams}");
    let produce = [
        "--topic",
        "perf",
        "--num-records",
        "20000",
        "--record-size",
        "200",
        "--throughput",
        "-1",
        "--producer-props",
        &server,
        "acks=all",
        "compression.type=lz4",
    ];
    let produced = succeed(kafka_tool("org.apache.kafka.tools.ProducerPerformance").args(produce));
    assert!(produced.contains("20000 records sent"), "{produced}");
    let consume = [
        "--topic",
        "perf",
        "--bootstrap-server",
        &streams,
        "--num-records",
        "20000",
        "--timeout",
        "30000",
    ];
    let consumed = succeed(kafka_tool("org.apache.kafka.tools.ConsumerPerformance").args(consume));
    assert!(consumed.contains("20000"), "{consumed}");
    assert_eq!(up.records_in("perf"), 20_000);
}
