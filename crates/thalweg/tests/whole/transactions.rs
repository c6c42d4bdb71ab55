//! Transactions as librdkafka knows them, also while `up` is killed: each is there whole or not at
//! all.

use std::process::Command;
use std::time::Duration;

use base::Rng;
use serde_json::{Value, json};

use crate::harness::{Running, Up, curl, eventually, folder, java, number_of, python, succeed};

/// How often the process is killed; more rounds by hand with `THALWEG_TEST_KILLS=200`.
const ROUNDS: u64 = 6;

#[test]
fn librdkafka_commits_aborts_fences_and_times_out() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    succeed(python("kafka_transactions.py").args([&up.address("streams"), "rules"]));
    // It has committed every other one of six; readers over HTTP are shown that as well.
    let clusters = curl(&[&up.url("rest", "/v3/clusters")]).json();
    let cluster = clusters["data"][0]["cluster_id"].as_str().unwrap();
    let (version_3, version_1) = (
        format!("/v3/clusters/{cluster}/topics/ends/records?format=json"),
        "/topics/ends/partitions/0/messages?offset=0&count=100",
    );
    for (isolation, expected) in [
        ("", json!([0, 1, 2, 3, 4, 5])),
        ("&isolation=read_uncommitted", json!([0, 1, 2, 3, 4, 5])),
        ("&isolation=read_committed", json!([0, 2, 4])),
    ] {
        let read = curl(&[&up.url("rest", &format!("{version_3}{isolation}"))]).json();
        let records = read["data"].as_array().unwrap().iter();
        let values: Vec<&Value> = records.map(|it| &it["value"]["data"]).collect();
        assert_eq!(json!(values), expected, "{isolation}: {read}");
        let accept = "Accept: application/vnd.kafka.json.v1+json";
        let url = up.url("rest", &format!("{version_1}{isolation}"));
        let read = curl(&["--header", accept, &url]).json();
        let records = read.as_array().unwrap().iter();
        let values: Vec<&Value> = records.map(|it| &it["value"]).collect();
        assert_eq!(json!(values), expected, "{isolation}: {read}");
    }
}

#[test]
fn transactions_survive_kills_whole_or_not_at_all() {
    let mut worker = python("kafka_transactions.py");
    survive_kills(&mut worker, &["work"], &[]);
}

/// Of protocol version 2: partitions join by their first record, and each end gives a new epoch.
#[test]
fn transactions_of_version_2_survive_kills_whole_or_not_at_all() {
    let mut workers = java("-Xmx128m", "kafka", "TransactionsUnderKills.java");
    survive_kills(&mut workers, &[], &["group-0", "group-1"]);
}

/// Kills `up` while a program commits and aborts, and then looks at what is to be seen. `task`
/// stands before the topic among the program's arguments.
fn survive_kills(program: &mut Command, task: &[&str], groups: &[&str]) {
    let rounds = number_of("THALWEG_TEST_KILLS", ROUNDS);
    let seed = Rng::from_entropy().next_u64();
    eprintln!("seed {seed}, {rounds} rounds");
    let mut rng = Rng::from_seed(seed);
    let dir = folder();
    let mut up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "numbers", "--partitions", "2"]);
    let [committed, aborted, stop] = ["committed", "aborted", "stop"].map(|n| dir.path().join(n));
    std::fs::write(&committed, "").unwrap();
    std::fs::write(&aborted, "").unwrap();
    let worker = Running::start(
        program
            .arg(up.address("streams"))
            .args(task)
            .arg("numbers")
            .args([&committed, &aborted, &stop]),
        &dir.path().join("worker.log"),
    );
    let ended = || std::fs::read_to_string(&committed).unwrap().lines().count();
    for _ in 0..rounds {
        let before = ended();
        eventually("transactions commit again", || {
            (ended() > before + 5).then_some(())
        });
        // The kill comes at any moment of a transaction.
        std::thread::sleep(Duration::from_millis(rng.below(300)));
        up.kill();
        up = up.start_again(&[]);
    }
    std::fs::write(&stop, "").unwrap();
    worker.finish("the worker ends its last transaction");
    let mut check = python("kafka_transactions.py");
    check
        .args([&up.address("streams"), "check", "numbers"])
        .args([&committed, &aborted])
        .args(groups);
    eprintln!("seed {seed}: {}", succeed(&mut check).trim());
}
