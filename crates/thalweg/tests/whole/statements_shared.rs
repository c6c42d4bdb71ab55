//! One statement run by several processes in one group: on a Kafka cluster, and on one Thalweg that
//! keeps the records of another. One of the processes is killed in the middle and comes back, and
//! later stands still for longer than the others wait.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use base::{Clock, SystemClock};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Up, eventually, folder, post, signal, succeed};
use crate::kafka_broker::kafka;

const PARTITIONS: i64 = 6;

#[test]
fn processes_on_a_kafka_cluster_share_a_statement_and_take_over_from_one_that_is_killed() {
    let dir = folder();
    let first = Up::start_with(&dir.path().join("first"), &on(kafka()));
    share_a_statement(dir.path(), first, kafka(), "shared-far");
}

#[test]
fn a_process_on_anothers_store_shares_its_statement() {
    let dir = folder();
    let first = Up::start(&dir.path().join("first"));
    let address = first.address("streams");
    share_a_statement(dir.path(), first, &address, "shared-near");
}

/// The arguments of a process whose records are there.
fn on(address: &str) -> [&'static str; 2] {
    let setting = format!("streams.kafka.bootstrap_servers={address}");
    ["--set", setting.leak()]
}

fn share_a_statement(dir: &Path, first: Up, address: &str, name: &str) {
    // Rows carry their windows' time, and those about an old past are soon retired.
    let base = SystemClock.now().0 / 10_000 * 10_000 - 1_000_000;
    let (raw, sums) = (format!("{name}-raw"), format!("{name}-sums"));
    for topic in [&raw, &sums] {
        let partitions = PARTITIONS.to_string();
        first.cli_json(&["topics", "create", topic, "--partitions", &partitions]);
    }
    let mut second = Up::start_with(&dir.join("second"), &on(address));
    let text = format!(
        "INSERT INTO kafka.\"{sums}\" SELECT k, sum(v) AS s, count(*) AS n, window_start FROM \
         TUMBLE(kafka.\"{raw}\", ts, INTERVAL '10 seconds') GROUP BY k"
    );
    let form = json!({"name": "m", "text": text, "start": "earliest", "policies": {"group": name}});
    for node in [&first, &second] {
        let url = node.url("management", "/api/v1/statements");
        let added = post(&url, "application/json", &form.to_string());
        assert_eq!(added.status, 201, "{}", added.body);
    }
    shared(&[&first, &second]);
    let mut fed = 0;
    let mut feed = |count: i64| {
        for n in fed..fed + count {
            let records = (0..PARTITIONS).map(|partition| {
                json!({"partition": partition,
                    "value": {"k": format!("{partition}-{}", n % 3), "v": n, "ts": base + n * 1_000}})
            });
            let body = json!({"records": records.collect::<Vec<_>>()}).to_string();
            let url = first.url("rest", &format!("/topics/{raw}"));
            let answer = post(&url, "application/vnd.kafka.json.v2+json", &body);
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
        fed += count;
    };
    feed(33);
    // It dies with more in its machines than it has written.
    eventually("the second takes part", || {
        let received = statement(&second)["received_total"].as_u64();
        (received > Some(0)).then_some(())
    });
    second.kill();
    feed(28);
    shared(&[&first]);
    feed(4);
    let second = Up::start_with(&dir.join("second"), &on(address));
    shared(&[&first, &second]);
    // One that stands still is as good as dead, and believes to have what others have by then.
    signal(second.pid(), Signal::STOP);
    feed(12);
    shared(&[&first]);
    feed(8);
    signal(second.pid(), Signal::CONT);
    feed(16);
    shared(&[&first, &second]);
    let expected = expected(base, 100);
    let rows = eventually("every row is there", || {
        let rows = read(address, &sums);
        (rows.len() >= expected.len()).then_some(rows)
    });
    assert_eq!(rows, expected);
    // What both tell together is each record once.
    let received = [&first, &second].map(|node| statement(node)["received_total"].clone());
    let received: i64 = received.iter().filter_map(Value::as_i64).sum();
    assert_eq!(received, 101 * PARTITIONS);
    // One that stops leaves at once.
    assert!(second.stop().success());
    shared(&[&first]);
    assert!(first.stop().success());
}

fn statement(node: &Up) -> Value {
    node.get("/api/v1/statements/m")
}

/// Waits until each of these has partitions, and all together each partition once.
fn shared(nodes: &[&Up]) {
    eventually("the partitions are shared", || {
        let shares = nodes.iter().map(|node| {
            let partitions = &statement(node)["group"]["partitions"];
            let partitions = partitions.as_array().unwrap().iter();
            partitions.filter_map(Value::as_i64).collect::<Vec<i64>>()
        });
        let shares: Vec<Vec<i64>> = shares.collect();
        let mut all = shares.concat();
        all.sort_unstable();
        let each = shares.iter().all(|share| !share.is_empty());
        (each && all == (0..PARTITIONS).collect::<Vec<_>>()).then_some(())
    });
}

/// What the events below `end` come to, in order; the first is at `base`.
fn expected(base: i64, end: i64) -> Vec<String> {
    let mut sums: BTreeMap<(i64, i64, i64), (i64, u64)> = BTreeMap::new();
    for partition in 0..PARTITIONS {
        for n in 0..end {
            let (sum, count) = sums.entry((partition, n / 10, n % 3)).or_default();
            *sum += n;
            *count += 1;
        }
    }
    let rows = sums.into_iter().map(|((partition, window, key), (s, n))| {
        let start = base + window * 10_000;
        format!("{{\"k\":\"{partition}-{key}\",\"s\":{s},\"n\":{n},\"window_start\":{start}}}")
    });
    let mut rows: Vec<String> = rows.collect();
    rows.sort();
    rows
}

/// What a Kafka client reads of a topic, committed records only, in order.
fn read(address: &str, topic: &str) -> Vec<String> {
    let mut kcat = Command::new("kcat");
    kcat.args(["-b", address, "-C", "-e", "-q", "-t", topic]);
    kcat.args(["-X", "isolation.level=read_committed"]);
    let rows = succeed(&mut kcat);
    let mut rows: Vec<String> = rows.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}
