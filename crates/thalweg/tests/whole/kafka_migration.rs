//! Groups of Kafka's own clients, and of others, that are moved from one group protocol to the
//! other and back, one member after the other, while they read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{
    Running, Up, eventually, folder, go_client, interop, kafka_classpath, kafka_tool, python,
    succeed,
};

/// Short times keep the tests quick.
const QUICK: [&str; 4] = [
    "--set",
    "streams.groups.consumer_heartbeat_interval=300ms",
    "--set",
    "streams.groups.consumer_session_timeout=6s",
];

/// How these clients tell of what they cannot go on from.
const HARM: [&str; 3] = ["Exception in thread", " fatal error", "panic:"];

/// One group, whose members each have their output in a file of their own.
struct Rolling {
    up: Up,
    folder: PathBuf,
    group: String,
    /// The members that were started, in this order.
    started: Vec<PathBuf>,
    filled: usize,
}

struct Member {
    log: PathBuf,
    running: Running,
}

impl Rolling {
    fn new(folder: &Path, group: &str) -> Self {
        let up = Up::start_with(&folder.join(format!("data-{group}")), &QUICK);
        up.cli_json(&["topics", "create", "shared", "--partitions", "4"]);
        Rolling {
            up,
            folder: folder.to_owned(),
            group: group.to_owned(),
            started: Vec::new(),
            filled: 0,
        }
    }

    /// Starts a member of Java's client, or of one in Go by `go` and its kind.
    fn start(&mut self, protocol: &str, instance: Option<&str>) -> Member {
        let name = format!("{}-{}-{protocol}", self.group, self.started.len());
        let log = self.folder.join(name);
        let group = [&self.up.address("streams"), "shared", &self.group];
        let mut command;
        if let Some(protocol) = protocol.strip_prefix("go ") {
            command = go_client();
            command.arg("member").args(group).arg(protocol);
        } else {
            command = Command::new("java");
            command
                .args(["-Xmx128m", "-cp", &kafka_classpath()])
                .arg(interop("GroupMember.java"))
                .args(group)
                .args(["100000", protocol])
                .args(instance);
        }
        self.started.push(log.clone());
        Member {
            running: Running::start(&mut command, &log),
            log,
        }
    }

    /// Puts 50 more records into each partition, and waits until each has been read by somebody.
    fn fill(&mut self) {
        for partition in ["0", "1", "2", "3"] {
            let input = self.folder.join("input");
            let lines: String = (0..50).map(|n| format!("{partition}-{n}\n")).collect();
            std::fs::write(&input, lines).unwrap();
            let mut kcat = Command::new("kcat");
            kcat.args(["-b", &self.up.address("streams"), "-P", "-t", "shared"]);
            succeed(kcat.args(["-p", partition, "-l"]).arg(&input));
        }
        self.filled += 200;
        let what = format!("{} records are read", self.filled);
        eventually(&what, || (self.read() == self.filled).then_some(()));
    }

    /// How many different records the members have read together.
    fn read(&self) -> usize {
        let logs = self.started.iter().map(|log| text(log));
        let records = logs.flat_map(|log| {
            let records = log.lines().filter(|line| line.starts_with("record "));
            records.map(str::to_owned).collect::<Vec<_>>()
        });
        records.collect::<BTreeSet<String>>().len()
    }

    fn kind(&self) -> String {
        let group = self.up.cli_json(&["groups", "describe", &self.group]);
        group["kind"].as_str().unwrap().to_owned()
    }

    fn await_members(&self, count: usize) {
        // Before the first one has joined there is no such group.
        eventually(&format!("{count} members share all"), || {
            let list = self.up.cli_json(&["groups", "list"]);
            let mut groups = list["groups"].as_array()?.iter();
            groups.find(|g| g["group"] == self.group.as_str())?;
            let group = self.up.cli_json(&["groups", "describe", &self.group]);
            let members = group["members"].as_array()?.clone();
            let held = members
                .iter()
                .map(|m| m["partitions"].as_array().unwrap().len());
            let held: Vec<usize> = held.collect();
            let is_even = held.iter().all(|held| *held == 4 / count);
            (group["state"] == "Stable" && held.len() == count && is_even).then_some(())
        });
    }

    fn described(&self) -> String {
        let mut tool = kafka_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand");
        tool.args(["--bootstrap-server", &self.up.address("streams")]);
        succeed(tool.args([
            "--describe",
            "--members",
            "--verbose",
            "--group",
            &self.group,
        ]))
    }

    /// No member, gone or not, was told anything that it could not go on from.
    fn check_unharmed(&self) {
        for log in &self.started {
            let said = text(log);
            let is_harm = |line: &&str| HARM.iter().any(|harm| line.contains(harm));
            let harm = said.lines().find(is_harm);
            assert_eq!(harm, None, "{}:\n{said}", log.display());
        }
    }
}

impl Member {
    fn await_assigned(&self, count: usize) {
        let line = format!("assigned {count}");
        eventually(&format!("{} says '{line}'", self.log.display()), || {
            text(&self.log)
                .lines()
                .any(|said| said == line)
                .then_some(())
        });
    }

    /// Has it leave, as a rolling restart does.
    fn leave(self) {
        self.running.stop();
        assert!(text(&self.log).contains("done"), "{}", text(&self.log));
    }
}

fn text(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

#[test]
fn javas_eager_members_are_moved_to_the_newer_protocol_and_back() {
    roll(["classic", "consumer"], false);
}

#[test]
fn javas_cooperative_members_are_moved_to_the_newer_protocol_and_back() {
    roll(["cooperative", "consumer"], false);
}

#[test]
fn javas_static_members_are_moved_to_the_newer_protocol_and_back() {
    roll(["classic", "consumer"], true);
}

#[test]
fn franz_gos_members_are_moved_to_the_newer_protocol_and_back() {
    roll(["go franz-classic", "go franz-consumer"], false);
}

#[test]
fn a_group_of_franz_go_is_moved_to_javas_newer_protocol_and_back() {
    roll(["go franz-classic", "consumer"], false);
}

#[test]
fn a_group_of_sarama_is_moved_to_javas_newer_protocol_and_back() {
    roll(["go sarama", "consumer"], false);
}

#[test]
fn a_group_of_kafka_go_is_moved_to_franz_gos_newer_protocol_and_back() {
    roll(["go segmentio", "go franz-consumer"], false);
}

fn roll([classic, newer]: [&str; 2], is_static: bool) {
    let dir = folder();
    let name = format!("rolled-{classic}-{newer}-{is_static}").replace(' ', "-");
    let mut group = Rolling::new(dir.path(), &name);
    let instance = |at: usize| is_static.then_some(["one", "two"][at]);
    let mut members: Vec<Member> = (0..2)
        .map(|at| group.start(classic, instance(at)))
        .collect();
    group.await_members(2);
    group.fill();
    assert_eq!(group.kind(), "Classic");
    for to in [newer, classic] {
        for at in 0..2 {
            members.remove(0).leave();
            let next = group.start(to, instance(at));
            next.await_assigned(2);
            members.push(next);
            group.await_members(2);
            group.fill();
            if at == 0 {
                assert_eq!(group.kind(), "Consumer");
                let described = group.described();
                let upgraded = described.lines().filter(|line| line.contains(" shared:"));
                assert_eq!(upgraded.count(), 2, "{described}");
            }
        }
        let kind = if to == newer { "Consumer" } else { "Classic" };
        assert_eq!(group.kind(), kind);
    }
    members.into_iter().for_each(Member::leave);
    group.check_unharmed();
}

/// A kill -9 of the server while the group has members of both protocols: they join again by
/// themselves, in whatever order, and go on.
#[test]
fn java_members_of_both_protocols_in_one_group_go_on_after_the_server_was_killed() {
    let dir = folder();
    let mut group = Rolling::new(dir.path(), "killed");
    let members = ["classic", "consumer"].map(|protocol| group.start(protocol, None));
    group.await_members(2);
    group.fill();
    for _ in 0..2 {
        group.up.kill();
        group.up = group.up.start_again(&QUICK);
        group.await_members(2);
        assert_eq!(group.kind(), "Consumer");
        group.fill();
    }
    members.into_iter().for_each(Member::leave);
    group.check_unharmed();
}

#[test]
fn librdkafkas_and_kafka_pythons_members_are_moved_to_the_newer_protocol_and_back() {
    let dir = folder();
    let up = Up::start_with(&dir.path().join("data"), &QUICK);
    succeed(python("kafka_migration.py").arg(up.address("streams")));
}
