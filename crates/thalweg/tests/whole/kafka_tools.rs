//! Kafka's own tools of testing and of operating, unchanged, against the Kafka listener.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::{Up, folder, kafka_tool, succeed};

#[test]
fn the_verifiable_producer_and_consumer_agree_and_the_group_has_no_lag() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let streams = up.address("streams");
    let produced = tool(
        "VerifiableProducer",
        &format!("--bootstrap-server {streams} --topic verified --max-messages 500 --acks -1"),
    );
    let sent = events(&produced, "tool_data");
    assert_eq!(sent[0]["sent"], 500);
    assert_eq!(sent[0]["acked"], 500);
    let consumed = tool(
        "VerifiableConsumer",
        &format!(
            "--bootstrap-server {streams} --topic verified --group-id verifier \
             --max-messages 500 --reset-policy earliest"
        ),
    );
    let polls = events(&consumed, "records_consumed");
    let read: u64 = polls.iter().filter_map(|e| e["count"].as_u64()).sum();
    assert_eq!(read, 500);
    let committed = events(&consumed, "offsets_committed");
    assert_eq!(committed.last().unwrap()["offsets"][0]["offset"], 500);
    let described = tool(
        "consumer.group.ConsumerGroupCommand",
        &format!("--bootstrap-server {streams} --describe --group verifier"),
    );
    let fields = described.lines().last().unwrap().split_whitespace();
    let fields: Vec<&str> = fields.take(6).collect();
    assert_eq!(fields, ["verifier", "verified", "0", "500", "500", "0"]);
    let ends = tool(
        "GetOffsetShell",
        &format!("--bootstrap-server {streams} --topic verified"),
    );
    assert_eq!(ends.trim(), "verified:0:500");
}

#[test]
fn operators_tools_change_topics_and_see_what_they_changed() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let streams = up.address("streams");
    let tool = |class: &str, arguments: &str| {
        // Sub-commands come before the options.
        tool(class, &format!("{arguments} --bootstrap-server {streams}"))
    };
    tool(
        "TopicCommand",
        "--create --topic kept --partitions 2 --config retention.ms=60000",
    );
    tool("TopicCommand", "--alter --topic kept --partitions 5");
    let described = tool("TopicCommand", "--describe --topic kept");
    assert!(described.contains("PartitionCount: 5"), "{described}");
    assert!(described.contains("retention.ms=60000"), "{described}");
    let altered = up.cli(&[
        "topics",
        "alter",
        "kept",
        "--config",
        "max.message.bytes=2000",
        "--unset",
        "retention.ms",
    ]);
    assert!(altered.status.success());
    let described = tool("TopicCommand", "--describe --topic kept");
    assert!(described.contains("max.message.bytes=2000"), "{described}");
    assert!(!described.contains("retention.ms=60000"), "{described}");
    let records = dir.path().join("delete.json");
    let before = r#"{"version":1,"partitions":[{"topic":"kept","partition":0,"offset":-1}]}"#;
    std::fs::write(&records, before).unwrap();
    let deleted = tool(
        "DeleteRecordsCommand",
        &format!("--offset-json-file {}", records.display()),
    );
    assert!(deleted.contains("low_watermark: 0"), "{deleted}");
    let folders = tool("LogDirsCommand", "--describe --topic-list kept");
    assert!(folders.contains(r#""partition":"kept-4""#), "{folders}");
    let cluster = tool("ClusterTool", "cluster-id");
    assert!(cluster.contains("Cluster ID: "), "{cluster}");
}

#[test]
fn tools_of_larger_clusters_find_one_node_that_has_every_replica_and_decides_alone() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let streams = up.address("streams");
    let tool = |class: &str, arguments: &str| {
        tool(class, &format!("--bootstrap-server {streams} {arguments}"))
    };
    tool("TopicCommand", "--create --topic moved --partitions 1");
    let plan = dir.path().join("plan.json");
    let text = r#"{"version":1,"partitions":[{"topic":"moved","partition":0,"replicas":[1]}]}"#;
    std::fs::write(&plan, text).unwrap();
    let plan = plan.display();
    let reassign = "reassign.ReassignPartitionsCommand";
    let begun = tool(
        reassign,
        &format!("--execute --throttle 1000000 --reassignment-json-file {plan}"),
    );
    assert!(begun.contains("Successfully started"), "{begun}");
    let ended = tool(
        reassign,
        &format!("--verify --reassignment-json-file {plan}"),
    );
    assert!(ended.contains("moved-0 is completed"), "{ended}");
    assert!(ended.contains("Clearing topic-level throttles"), "{ended}");
    let quorum = tool("MetadataQuorumCommand", "describe --status");
    assert!(
        quorum.contains("CurrentVoters:          [{\"id\": 1"),
        "{quorum}"
    );
    let replicas = tool("MetadataQuorumCommand", "describe --replication");
    assert!(replicas.contains("Leader"), "{replicas}");
    let arguments = format!(
        "--bootstrap-server {streams} --describe --entity-type broker-loggers --entity-name 1"
    );
    let mut loggers = kafka_tool("kafka.admin.ConfigCommand");
    let loggers = succeed(loggers.args(arguments.split(' ')));
    assert!(loggers.starts_with("Dynamic configs for"), "{loggers}");
}

#[test]
fn records_are_copied_exactly_once_while_transactions_abort_at_random() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let streams = up.address("streams");
    tool(
        "VerifiableProducer",
        &format!("--bootstrap-server {streams} --topic original --max-messages 1000 --acks -1"),
    );
    let copied = tool(
        "TransactionalMessageCopier",
        &format!(
            "--broker-list {streams} --input-topic original --input-partition 0 \
             --output-topic copy --consumer-group copier --transactional-id copier \
             --transaction-size 50 --enable-random-aborts --use-group-metadata"
        ),
    );
    let last = events_of(&copied, "stage", "ShutdownComplete");
    assert_eq!(last[0]["totalProcessed"], 1000);
    assert_eq!(last[0]["remaining"], 0);
    let read = tool(
        "consumer.ConsoleConsumer",
        &format!(
            "--bootstrap-server {streams} --topic copy --from-beginning --max-messages 1000 \
             --isolation-level read_committed"
        ),
    );
    let read: Vec<&str> = read.lines().collect();
    let sent: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    assert_eq!(read, sent);
}

#[test]
fn the_performance_tool_produces_in_transactions() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let streams = up.address("streams");
    let produced = tool(
        "ProducerPerformance",
        &format!(
            "--bootstrap-server {streams} --topic perf --num-records 5000 --record-size 100 \
             --throughput -1 --transactional-id perf --transaction-duration-ms 50"
        ),
    );
    assert!(produced.contains("5000 records sent"), "{produced}");
    let read = tool(
        "consumer.ConsoleConsumer",
        &format!(
            "--bootstrap-server {streams} --topic perf --from-beginning --max-messages 5000 \
             --isolation-level read_committed"
        ),
    );
    assert_eq!(read.lines().count(), 5000);
}

#[test]
fn a_share_group_is_given_the_rest_after_the_server_was_killed_and_tools_see_how_far_it_is() {
    let dir = folder();
    let data = dir.path().join("data");
    let mut up = Up::start(&data);
    up.cli_json(&["topics", "create", "shared", "--partitions", "2"]);
    let begin = "share.auto.offset.reset=earliest";
    up.cli(&["groups", "alter", "sharers", "--config", begin]);
    let streams = up.address("streams");
    tool(
        "VerifiableProducer",
        &format!("--bootstrap-server {streams} --topic shared --max-messages 500 --acks -1"),
    );
    // What it took beyond its number it gives back.
    let some = shared(&streams, 200);
    assert_eq!(some.len(), 200);
    up.kill();
    let up = Up::start(&data);
    let streams = up.address("streams");
    let rest = shared(&streams, 300);
    assert_eq!((rest.len(), some.intersection(&rest).count()), (300, 0));

    let group = |arguments: &str| {
        let arguments = format!("--bootstrap-server {streams} --group sharers {arguments}");
        tool("consumer.group.ShareGroupCommand", &arguments)
    };
    let described = group("--describe");
    let lags = described.lines().filter(|line| line.starts_with("sharers"));
    let lags: Vec<&str> = lags
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(lags, ["0", "0"], "{described}");
    let told = up.cli_json(&["groups", "describe", "sharers"]);
    assert_eq!(
        (&told["kind"], &told["lag_total"]),
        (&"Share".into(), &0.into())
    );
    group("--reset-offsets --topic shared --to-earliest --execute");
    assert_eq!(shared(&streams, 500).len(), 500);
    let deleted = group("--delete");
    assert!(deleted.contains("successful"), "{deleted}");
    let listed = up.cli_json(&["groups", "list"]);
    assert!(!listed.to_string().contains("sharers"), "{listed}");
}

/// The values of so many records that a member of the group takes.
fn shared(streams: &str, count: usize) -> BTreeSet<String> {
    let printed = tool(
        "consumer.ConsoleShareConsumer",
        &format!(
            "--bootstrap-server {streams} --topic shared --group sharers --max-messages {count} \
             --timeout-ms 60000"
        ),
    );
    printed.lines().map(str::to_owned).collect()
}

fn tool(class: &str, arguments: &str) -> String {
    let mut command = kafka_tool(&format!("org.apache.kafka.tools.{class}"));
    succeed(command.args(arguments.split_whitespace()))
}

/// What a verifiable client printed of an event.
fn events(printed: &str, name: &str) -> Vec<Value> {
    events_of(printed, "name", name)
}

fn events_of(printed: &str, key: &str, name: &str) -> Vec<Value> {
    let lines = printed.lines();
    let events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found: Vec<Value> = events.filter(|event| event[key] == name).collect();
    assert!(!found.is_empty(), "no {name} in {printed}");
    found
}
