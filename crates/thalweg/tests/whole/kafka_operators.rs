//! Kafka's own tools of operating, unchanged: configs, groups, offsets, transactions, and what one
//! node has no use for, refused in Kafka's words. That for ACLs is met in `access`.

use std::process::Command;

use crate::harness::{Up, folder, kafka_tool, post, succeed, text};

/// A process and Kafka's tools at its listener.
struct Operated {
    up: Up,
    dir: tempfile::TempDir,
}

impl Operated {
    fn start() -> Self {
        let dir = folder();
        let up = Up::start(&dir.path().join("data"));
        Operated { up, dir }
    }

    /// Sub-commands come before the options.
    fn command(&self, class: &str, arguments: &str) -> Command {
        let mut command = kafka_tool(class);
        command.args(arguments.split_whitespace());
        command.args(["--bootstrap-server", &self.up.address("streams")]);
        command
    }

    fn tool(&self, class: &str, arguments: &str) -> String {
        succeed(&mut self.command(&format!("org.apache.kafka.tools.{class}"), arguments))
    }

    fn configs(&self, arguments: &str) -> String {
        succeed(&mut self.command("kafka.admin.ConfigCommand", arguments))
    }

    /// What a tool says that must not succeed in what it was asked.
    fn refused(&self, class: &str, arguments: &str) -> String {
        let mut command = self.command(&format!("org.apache.kafka.tools.{class}"), arguments);
        let output = command.output().unwrap();
        text(&output.stdout) + &text(&output.stderr)
    }

    fn fill_and_create(&self, topic: &str, count: usize) {
        self.up.cli_json(&["topics", "create", topic]);
        self.fill(topic, count);
    }

    /// Puts `count` records into partition 0 of a topic.
    fn fill(&self, topic: &str, count: usize) {
        let records: Vec<_> = (0..count)
            .map(|n| serde_json::json!({"partition": 0, "value": n}))
            .collect();
        let body = serde_json::json!({"records": records}).to_string();
        let json = "application/vnd.kafka.json.v2+json";
        let answer = post(
            &self.up.url("rest", &format!("/topics/{topic}")),
            json,
            &body,
        );
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

fn check(printed: &str, says: &[&str]) {
    for word in says {
        assert!(printed.contains(word), "no '{word}' in:\n{printed}");
    }
}

#[test]
fn kafka_configs_shows_and_changes_topics_brokers_and_users() {
    let on = Operated::start();
    on.up.cli_json(&["topics", "create", "kept"]);
    let altered = on.configs(
        "--alter --entity-type topics --entity-name kept --add-config \
         retention.ms=60000,cleanup.policy=[compact,delete],compression.type=zstd",
    );
    check(&altered, &["Completed updating config for topic kept"]);
    let described = on.configs("--describe --entity-type topics --entity-name kept");
    check(
        &described,
        &[
            "retention.ms=60000",
            "cleanup.policy=compact,delete",
            "compression.type=zstd",
        ],
    );
    on.configs("--alter --entity-type topics --entity-name kept --delete-config retention.ms");
    let described = on.configs("--describe --entity-type topics --entity-name kept");
    assert!(!described.contains("retention.ms=60000"), "{described}");
    let broker = on.configs("--describe --entity-type brokers --entity-name 1 --all");
    check(
        &broker,
        &[
            "default.replication.factor=1",
            "max.connections=10000",
            "transaction.max.timeout.ms=900000",
        ],
    );
    let user = "--entity-type users --entity-name ann";
    on.configs(&format!(
        "--alter {user} --add-config SCRAM-SHA-256=[iterations=4096,password=pw]"
    ));
    let described = on.configs(&format!("--describe {user}"));
    check(&described, &["SCRAM-SHA-256", "iterations=4096"]);
}

#[test]
fn kafka_configs_shows_and_changes_groups() {
    let on = Operated::start();
    let group = "--entity-type groups --entity-name billing";
    let altered = on.configs(&format!(
        "--alter {group} --add-config consumer.session.timeout.ms=50000,\
         consumer.heartbeat.interval.ms=6000,consumer.assignment.interval.ms=2000"
    ));
    check(&altered, &["Completed updating config for group billing"]);
    // The group need not be there yet.
    let described = on.configs(&format!("--describe {group}"));
    check(
        &described,
        &[
            "consumer.session.timeout.ms=50000",
            "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000",
            "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000",
            "consumer.heartbeat.interval.ms=6000",
            "consumer.assignment.interval.ms=2000",
            "DEFAULT_CONFIG:group.consumer.assignment.interval.ms=0",
        ],
    );
    let every = on.configs("--describe --entity-type groups");
    check(&every, &["Dynamic configs for group billing are:"]);
    let ours = on.up.cli_json(&["groups", "describe", "billing"]);
    assert_eq!(ours["config"][3]["value"], "50000");
    on.configs(&format!(
        "--alter {group} --delete-config consumer.session.timeout.ms"
    ));
    let interval = "consumer.heartbeat.interval.ms=7000";
    let ours = on
        .up
        .cli_json(&["groups", "alter", "billing", "--config", interval]);
    assert_eq!(ours["config"][3]["is_set"], false);
    let described = on.configs(&format!("--describe {group} --all"));
    check(&described, &[interval, "consumer.session.timeout.ms=45000"]);
    let mut beyond = on.command(
        "kafka.admin.ConfigCommand",
        &format!("--alter {group} --add-config consumer.heartbeat.interval.ms=1"),
    );
    let refused = beyond.output().unwrap();
    let refused = text(&refused.stdout) + &text(&refused.stderr);
    check(
        &refused,
        &["InvalidConfigurationException", "from 5000 to 15000"],
    );
}

#[test]
fn kafka_consumer_groups_lists_resets_and_deletes() {
    let on = Operated::start();
    on.up
        .cli_json(&["topics", "create", "orders", "--partitions", "2"]);
    on.fill("orders", 20);
    let class = "consumer.group.ConsumerGroupCommand";
    let reset = |how: &str| {
        on.tool(
            class,
            &format!("--group billing --reset-offsets --topic orders:0 {how}"),
        )
    };
    check(
        &reset("--to-offset 5 --execute"),
        &["billing", "orders", "5"],
    );
    check(&reset("--shift-by 3 --dry-run"), &["8"]);
    check(&on.tool(class, "--list"), &["billing"]);
    check(&on.tool(class, "--list --state"), &["billing", "Empty"]);
    let described = on.tool(class, "--describe --group billing");
    let row = described
        .lines()
        .find(|line| line.starts_with("billing"))
        .unwrap();
    let row: Vec<&str> = row.split_whitespace().take(6).collect();
    assert_eq!(row, ["billing", "orders", "0", "5", "20", "15"]);
    // Both tools tell the same.
    let ours = on.up.cli_json(&["groups", "describe", "billing"]);
    assert_eq!(ours["offsets"][0]["lag"], 15);
    check(
        &on.tool(class, "--describe --group billing --state"),
        &["Empty"],
    );
    check(&on.tool("GroupsCommand", "--list"), &["billing", "Classic"]);
    on.tool(class, "--delete-offsets --group billing --topic orders");
    let ours = on.up.cli_json(&["groups", "describe", "billing"]);
    assert!(
        ours["offsets"]
            .as_array()
            .is_none_or(|offsets| offsets.is_empty()),
        "{ours}"
    );
}

#[test]
fn offsets_performance_and_versions_are_told() {
    let on = Operated::start();
    on.fill_and_create("measured", 1_000);
    let ends = |time: &str| on.tool("GetOffsetShell", &format!("--topic measured --time {time}"));
    assert_eq!(ends("latest").trim(), "measured:0:1000");
    assert_eq!(ends("earliest").trim(), "measured:0:0");
    check(&ends("max-timestamp"), &["measured:0:"]);
    assert_eq!(ends("0").trim(), "measured:0:0");
    let consumed = on.tool("ConsumerPerformance", "--topic measured --num-records 1000");
    let figures = consumed.lines().last().unwrap();
    assert_eq!(
        figures.split(',').nth(4).unwrap().trim(),
        "1000",
        "{consumed}"
    );
    let versions = on.tool("BrokerApiVersionsCommand", "");
    check(&versions, &["Produce(0): 0 to 13", "Fetch(1): 4 to 18"]);
}

#[test]
fn transactions_are_listed_described_and_found_when_they_hang() {
    let on = Operated::start();
    on.tool(
        "ProducerPerformance",
        "--topic perf --num-records 100 --record-size 10 --throughput -1 --transactional-id perf \
         --transaction-duration-ms 50",
    );
    let class = "TransactionsCommand";
    let command = |arguments: &str| {
        // Its options come before its sub-command.
        let mut command = kafka_tool(&format!("org.apache.kafka.tools.{class}"));
        command.args(["--bootstrap-server", &on.up.address("streams")]);
        succeed(command.args(arguments.split_whitespace()))
    };
    check(&command("list"), &["perf", "CompleteCommit"]);
    let described = command("describe --transactional-id perf");
    check(&described, &["perf", "CompleteCommit"]);
    let producers = command("describe-producers --topic perf --partition 0");
    assert_eq!(producers.lines().count(), 2, "{producers}");
    let hanging = command("find-hanging --broker-id 1");
    assert_eq!(hanging.lines().count(), 1, "{hanging}");
}

#[test]
fn what_one_node_has_no_use_for_is_refused_in_kafkas_words() {
    let on = Operated::start();
    on.up.cli_json(&["topics", "create", "kept"]);
    let election = "--election-type preferred --topic kept --partition 0";
    let elected = on.refused("LeaderElectionCommand", election);
    check(&elected, &["Valid replica already elected"]);
    let plan = on.dir.path().join("plan.json");
    let moved = r#"{"version":1,"partitions":[{"topic":"kept","partition":0,"replicas":[1,2]}]}"#;
    std::fs::write(&plan, moved).unwrap();
    let execute = format!("--execute --reassignment-json-file {}", plan.display());
    let refused = on.refused("reassign.ReassignPartitionsCommand", &execute);
    assert!(!refused.contains("Successfully started"), "{refused}");
    let absent = on.refused("TopicCommand", "--describe --topic absent");
    check(&absent, &["does not exist"]);
    let twice = on.refused("TopicCommand", "--create --topic kept");
    check(&twice, &["TopicExistsException"]);
    let replicas = "--create --topic replicated --replication-factor 3";
    let replicated = on.refused("TopicCommand", replicas);
    check(&replicated, &["InvalidReplicationFactorException"]);
}
