//! Agents' messages in topics: of the store in the process and of a real Kafka, which is ended and
//! started again meanwhile.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Up, curl, eventually, folder, post, succeed, whole_topic};
use crate::kafka_broker::{Broker, PLAIN};

const FORWARD: [&str; 4] = [
    "--set",
    "fleet.forward.heartbeats=fleet.heartbeats",
    "--set",
    "fleet.forward.acknowledges=fleet.acknowledges",
];

/// One heartbeat of an agent, the `number`th.
fn beat(up: &Up, agent: &str, number: usize) -> Value {
    let body = json!({"agentInfo": {"identifier": agent, "agentClass": "edge"}, "number": number});
    let path = up.url("fleet", "/c2/heartbeat");
    let answer = post(&path, "application/json", &body.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// What a topic holds: keys with values, in each partition's order.
fn read(servers: &str, topic: &str) -> Vec<(String, Value)> {
    let mut kcat = Command::new("kcat");
    kcat.args(["-b", servers]).args(whole_topic(topic));
    kcat.args(["-f", "%k %s\n"]);
    let output = kcat.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let pair = |line: &str| {
        let (key, value) = line.split_once(' ').unwrap();
        (key.to_owned(), serde_json::from_str(value).unwrap())
    };
    text.lines().map(pair).collect()
}

/// The numbers of each agent's heartbeats, as they stand in the topic.
fn numbers(servers: &str) -> BTreeMap<String, Vec<u64>> {
    let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (key, value) in read(servers, "fleet.heartbeats") {
        assert_eq!(value["agentInfo"]["identifier"], key, "keyed by its agent");
        let of_agent = numbers.entry(key).or_default();
        of_agent.push(value["number"].as_u64().unwrap());
    }
    numbers
}

/// The value of a counter.
fn counted(up: &Up, series: &str) -> f64 {
    let metrics = curl(&[&up.url("management", "/metrics")]).body;
    let line = metrics.lines().find(|line| line.starts_with(series));
    line.map_or(0.0, |line| {
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    })
}

#[test]
fn heartbeats_and_acknowledges_are_forwarded_to_the_store_in_the_process() {
    let dir = folder();
    let up = Up::start_with(&dir.path().join("data"), &FORWARD);
    let mut asked = Vec::new();
    for number in 0..6 {
        let answer = beat(&up, "one", number);
        asked.extend(answer["requestedOperations"].as_array().cloned().unwrap());
    }
    for number in 0..5 {
        beat(&up, "two", number);
    }
    // An acknowledge with a manifest of more than a megabyte comes whole.
    let operation = asked[0]["identifier"].as_str().unwrap();
    let filler = "x".repeat(1_200_000);
    let manifest = json!({"agentType": "cpp", "filler": filler});
    let ack = json!({"operationId": operation, "operationState": {"state": "FULLY_APPLIED"},
        "agentInfo": {"identifier": "one", "agentManifestHash": "h", "agentManifest": manifest}});
    let file = dir.path().join("ack.json");
    std::fs::write(&file, ack.to_string()).unwrap();
    let body = format!("@{}", file.display());
    let path = up.url("fleet", "/c2/acknowledge");
    assert_eq!(curl(&["--data-binary", &body, &path]).status, 200);

    let servers = up.address("streams");
    eventually("everything is forwarded", || {
        (counted(&up, "thalweg_fleet_forwarded_total{result=\"stored\"}") >= 12.0).then_some(())
    });
    let numbers = numbers(&servers);
    assert_eq!(numbers["one"], [0, 1, 2, 3, 4, 5]);
    assert_eq!(numbers["two"], [0, 1, 2, 3, 4]);
    let acks = read(&servers, "fleet.acknowledges");
    assert_eq!(acks.len(), 1);
    assert_eq!(acks[0].0, "one");
    let told = acks[0].1["agentInfo"]["agentManifest"]["filler"].as_str();
    assert_eq!(told.map(str::len), Some(filler.len()));
    assert_eq!(
        counted(&up, "thalweg_fleet_forwarded_total{result=\"refused\"}"),
        0.0
    );
}

#[test]
fn a_broker_that_is_away_holds_no_heartbeat_up_and_gets_them_in_order_when_it_is_back() {
    let dir = folder();
    let mut broker = Broker::start(PLAIN, &[]);
    let servers = format!("streams.kafka.bootstrap_servers={}", broker.address);
    let settings = [&FORWARD[..], &["--set", &servers]].concat();
    let up = Up::start_with(&dir.path().join("data"), &settings);
    for number in 0..5 {
        beat(&up, "one", number);
    }
    eventually("the broker has the first ones", || {
        let numbers = numbers(&broker.address);
        (numbers.get("one").is_some_and(|of| of.len() == 5)).then_some(())
    });
    broker.kill();
    for number in 5..50 {
        let began = Instant::now();
        beat(&up, "one", number);
        // Agents give up after ten seconds, and the cluster's time-out is longer than that.
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "it waited for the broker"
        );
    }
    assert!(counted(&up, "thalweg_fleet_forward_waiting_bytes") > 0.0);
    broker.start_again();
    eventually("the broker has them all", || {
        let numbers = numbers(&broker.address);
        let last = numbers.get("one").and_then(|of| of.last().copied());
        (last == Some(49)).then_some(())
    });
    let mut all = numbers(&broker.address).remove("one").unwrap();
    // A batch whose answer was lost may be there twice, in order all the same.
    all.dedup();
    let mut seen: Vec<u64> = Vec::new();
    for number in all {
        if !seen.contains(&number) {
            seen.push(number);
        }
    }
    assert_eq!(seen, (0..50).collect::<Vec<u64>>());
    assert_eq!(
        counted(&up, "thalweg_fleet_forwarded_total{result=\"dropped\"}"),
        0.0
    );
}

#[test]
fn forwarding_without_an_event_store_is_told_at_the_start() {
    let dir = folder();
    let mut thalweg = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    let data = dir.path().join("data");
    thalweg.args(["up", "--role", "fleet", "--data", data.to_str().unwrap()]);
    thalweg
        .args(["--set", "fleet.listen=127.0.0.1:0"])
        .args(FORWARD);
    let output = thalweg.output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("add the role streams"), "{said}");
    // The tool that the other tests read topics with is there.
    succeed(Command::new("kcat").arg("-V"));
}
