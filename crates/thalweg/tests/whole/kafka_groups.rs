//! Consumer groups of Kafka's own clients, unchanged, with both group protocols.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{
    Running, Up, eventually, folder, interop, kafka_classpath, kafka_tool, python, succeed,
};

/// Members of the newer protocol ask the server how often to come and how long they may be
/// silent; short times keep the tests quick.
const QUICK: [&str; 4] = [
    "--set",
    "streams.groups.consumer_heartbeat_interval=300ms",
    "--set",
    "streams.groups.consumer_session_timeout=6s",
];

/// Members with Java's client, each with its output in a file of its own.
struct Members {
    streams: String,
    folder: PathBuf,
    group: &'static str,
    protocol: &'static str,
}

impl Members {
    fn start(&self, name: &str, instance: Option<&str>) -> Running {
        let mut command = Command::new("java");
        command
            .args(["-Xmx128m", "-cp", &kafka_classpath()])
            .arg(interop("GroupMember.java"))
            .args([&self.streams, "shared", self.group, "100000", self.protocol])
            .args(instance);
        Running::start(&mut command, &self.log(name))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}-{name}", self.group))
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.log(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn said(&self, name: &str, line: &str) -> usize {
        self.lines(name).iter().filter(|said| *said == line).count()
    }

    fn await_said(&self, name: &str, line: &str) {
        eventually(&format!("{name} says '{line}'"), || {
            (self.said(name, line) > 0).then_some(())
        });
    }

    fn records(&self, name: &str) -> usize {
        let lines = self.lines(name);
        lines.iter().filter(|l| l.starts_with("record ")).count()
    }
}

/// Puts 50 records into each of the four partitions.
fn fill(streams: &str, folder: &Path) {
    for partition in ["0", "1", "2", "3"] {
        let input = folder.join("input");
        let lines: String = (0..50).map(|n| format!("{partition}-{n}\n")).collect();
        std::fs::write(&input, lines).unwrap();
        let mut kcat = Command::new("kcat");
        kcat.args(["-b", streams, "-P", "-t", "shared", "-p", partition, "-l"]);
        succeed(kcat.arg(&input));
    }
}

#[test]
fn librdkafka_groups_share_rebalance_and_resume() {
    let dir = folder();
    let up = Up::start_with(&dir.path().join("data"), &QUICK);
    succeed(python("kafka_group.py").arg(up.address("streams")));
}

#[test]
fn java_group_members_share_and_one_takes_over_from_a_killed_one() {
    share_and_take_over("classic");
}

#[test]
fn java_members_of_the_newer_protocol_share_and_one_takes_over_from_a_killed_one() {
    share_and_take_over("consumer");
}

fn share_and_take_over(protocol: &'static str) {
    let dir = folder();
    let up = Up::start_with(&dir.path().join("data"), &QUICK);
    up.cli_json(&["topics", "create", "shared", "--partitions", "4"]);
    let members = Members {
        streams: up.address("streams"),
        folder: dir.path().to_owned(),
        group: "java-group",
        protocol,
    };
    let first = members.start("first", None);
    members.await_said("first", "assigned 4");
    let second = members.start("second", None);
    members.await_said("second", "assigned 2");
    fill(&members.streams, dir.path());
    eventually("both members together read all", || {
        (members.records("first") + members.records("second") >= 200).then_some(())
    });
    assert!(members.records("first") > 0 && members.records("second") > 0);
    first.kill();
    // The session of the killed member runs out, and the other gets its partitions.
    members.await_said("second", "assigned 4");
    second.kill();
}

/// A kill -9 of the server costs the members of both protocols nothing: they keep what they were
/// given, and read each record once.
#[test]
fn java_members_of_both_protocols_go_on_after_the_server_was_killed() {
    let dir = folder();
    let mut up = Up::start_with(&dir.path().join("data"), &QUICK);
    up.cli_json(&["topics", "create", "shared", "--partitions", "4"]);
    let groups = ["classic", "consumer"].map(|protocol| Members {
        streams: up.address("streams"),
        folder: dir.path().to_owned(),
        group: protocol,
        protocol,
    });
    let running: Vec<Running> = groups
        .iter()
        .map(|g| g.start("member", Some("one")))
        .collect();
    for members in &groups {
        members.await_said("member", "assigned 4");
    }
    fill(&up.address("streams"), dir.path());
    for members in &groups {
        eventually("the first records are read", || {
            (members.records("member") >= 200).then_some(())
        });
    }
    // A commit follows each poll; an empty one after the last says that it is through.
    let committed = |up: &Up, group: &str| {
        let mut tool = kafka_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand");
        let described = ["--describe", "--group", group, "--bootstrap-server"];
        let told = succeed(tool.args(described).arg(up.address("streams")));
        let rows = told.lines().filter(|l| l.contains(" shared "));
        rows.filter(|l| l.split_whitespace().nth(3) == Some("50"))
            .count()
    };
    for members in &groups {
        eventually("all is committed", || {
            (committed(&up, members.group) == 4).then_some(())
        });
    }
    up.kill();
    let up = up.start_again(&QUICK);
    fill(&up.address("streams"), dir.path());
    for members in &groups {
        let lines = eventually("all is read", || {
            let lines = members.lines("member");
            (members.records("member") >= 400).then_some(lines)
        });
        let records: Vec<&String> = lines.iter().filter(|l| l.starts_with("record ")).collect();
        let distinct: BTreeSet<&&String> = records.iter().collect();
        assert_eq!(
            (records.len(), distinct.len()),
            (400, 400),
            "{}",
            members.group
        );
        let assigned = lines.iter().filter(|line| line.starts_with("assigned "));
        assert_eq!(assigned.count(), 1, "{} was shared anew", members.group);
    }
    running.into_iter().for_each(Running::kill);
}

#[test]
fn kafkas_own_tool_shows_resets_and_deletes_groups() {
    let dir = folder();
    let up = Up::start_with(&dir.path().join("data"), &QUICK);
    up.cli_json(&["topics", "create", "shared", "--partitions", "4"]);
    let tool = |arguments: &[&str]| {
        let mut tool = kafka_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand");
        succeed(
            tool.args(["--bootstrap-server", &up.address("streams")])
                .args(arguments),
        )
    };
    let members = Members {
        streams: up.address("streams"),
        folder: dir.path().to_owned(),
        group: "java-group",
        protocol: "consumer",
    };
    fill(&members.streams, dir.path());
    let member = members.start("member", Some("one"));
    eventually("all is read", || {
        (members.records("member") >= 200).then_some(())
    });
    let described = tool(&[
        "--describe",
        "--group",
        "java-group",
        "--members",
        "--verbose",
    ]);
    assert!(described.contains("shared:0,1,2,3"), "{described}");
    assert!(tool(&["--list", "--state"]).contains("Stable"));
    // Killed, it cannot say good-bye: its session has to run out.
    member.kill();
    let reset = [
        "--reset-offsets",
        "--group",
        "java-group",
        "--topic",
        "shared",
        "--to-earliest",
        "--execute",
    ];
    eventually("the group has no members", || {
        let state = tool(&["--describe", "--group", "java-group", "--state"]);
        state.contains("Empty").then_some(())
    });
    tool(&reset);
    let offsets = tool(&["--describe", "--group", "java-group"]);
    let lags = offsets
        .lines()
        .filter(|l| l.split_whitespace().nth(5) == Some("50"));
    assert_eq!(lags.count(), 4, "{offsets}");
    let forget = [
        "--delete-offsets",
        "--group",
        "java-group",
        "--topic",
        "shared:2",
    ];
    assert!(tool(&forget).contains("Successful"));
    assert!(tool(&["--delete", "--group", "java-group"]).contains("successful"));
    assert!(!tool(&["--list"]).contains("java-group"));
}
