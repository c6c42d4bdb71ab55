//! Transactions as librdkafka knows them, also while `up` is killed: each is there whole or not at
//! all.

use std::time::Duration;

use base::Rng;

use crate::harness::{Running, Up, eventually, folder, python, succeed};

/// How often the process is killed; more rounds by hand with `THALWEG_TEST_KILLS=200`.
const ROUNDS: u64 = 6;

#[test]
fn librdkafka_commits_aborts_fences_and_times_out() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    succeed(python("kafka_transactions.py").args([&up.address("streams"), "rules"]));
}

#[test]
fn transactions_survive_kills_whole_or_not_at_all() {
    let rounds = std::env::var("THALWEG_TEST_KILLS");
    let rounds = rounds.ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
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
        python("kafka_transactions.py")
            .args([&up.address("streams"), "work", "numbers"])
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
        .args([&committed, &aborted]);
    eprintln!("seed {seed}: {}", succeed(&mut check).trim());
}
