//! kill -9 of `up` at random moments under load: what was acknowledged is there, once, in order;
//! group offsets and statement state go on.

use std::process::Command;
use std::time::Duration;

use base::Rng;
use serde_json::Value;

use crate::harness::{Running, Up, eventually, folder, python, succeed, whole_topic};

/// How often the process is killed; more rounds by hand with `THALWEG_TEST_KILLS=200`.
const ROUNDS: u64 = 20;

#[test]
fn acknowledged_records_survive_kills_once_and_in_order() {
    let rounds = rounds();
    let seed = Rng::from_entropy().next_u64();
    eprintln!("seed {seed}, {rounds} rounds");
    let mut rng = Rng::from_seed(seed);
    let dir = folder();
    // A producer's records wait out the restart: windows stay open longer than that, or what
    // comes after would rightly count as late.
    let patience = ["--set", "fusion.close_delay=10s"];
    let mut up = Up::start_with(&dir.path().join("data"), &patience);
    up.cli_json(&["topics", "create", "numbers"]);
    up.cli_json(&[
        "statements",
        "add",
        "--name",
        "per-second",
        "--start",
        "earliest",
        "INSERT INTO kafka.\"counts\" SELECT count(*) AS n, window_start \
         FROM TUMBLE(kafka.\"numbers\", INTERVAL '1 second')",
    ]);
    let (acked, stop) = (dir.path().join("acked"), dir.path().join("stop"));
    let producer = Running::start(
        python("kafka_under_kills.py")
            .arg(up.address("streams"))
            .arg("numbers")
            .arg(&acked)
            .arg(&stop),
        &dir.path().join("producer.log"),
    );
    let acknowledged = || {
        std::fs::read_to_string(&acked)
            .unwrap_or_default()
            .lines()
            .count()
    };
    let mut committed = 0;
    for _ in 0..rounds {
        let before = acknowledged();
        eventually("records are acknowledged again", || {
            (acknowledged() > before + 50).then_some(())
        });
        let now_committed = consume_some(&up);
        assert!(
            now_committed >= committed,
            "a committed offset went back: {now_committed}"
        );
        committed = now_committed;
        std::thread::sleep(Duration::from_millis(rng.below(400)));
        up.kill();
        up = up.start_again(&patience);
    }
    std::fs::write(&stop, "").unwrap();
    producer.finish("the producer gets everything acknowledged");
    let numbers: Vec<u64> = acked_numbers(&std::fs::read_to_string(&acked).unwrap());
    let stored: Vec<u64> = values(&up, "numbers")
        .iter()
        .map(|value| value.split(' ').next().unwrap().parse().unwrap())
        .collect();
    let expected: Vec<u64> = (0..stored.len() as u64).collect();
    assert_eq!(
        stored, expected,
        "seed {seed}: a record is missing, doubled or out of order"
    );
    assert_eq!(
        numbers, expected,
        "seed {seed}: acknowledged and stored differ"
    );
    every_record_is_in_one_window(&up, stored.len() as u64, seed);
}

/// The statement's windows hold each record exactly once, however often its process died.
fn every_record_is_in_one_window(up: &Up, records: u64, seed: u64) {
    // The last window closes by itself; its result says that the statement has caught up.
    let counted = eventually("the statement counts every record", || {
        let windows: Vec<Value> = values(up, "counts")
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
        let total: u64 = windows
            .iter()
            .map(|window| window["n"].as_u64().unwrap())
            .sum();
        (total >= records).then_some((total, windows))
    });
    let (total, windows) = counted;
    let mut starts: Vec<i64> = windows
        .iter()
        .map(|w| w["window_start"].as_i64().unwrap())
        .collect();
    let count = starts.len();
    starts.dedup();
    assert_eq!(
        starts.len(),
        count,
        "seed {seed}: a window came out twice: {windows:?}"
    );
    assert_eq!(total, records, "seed {seed}: the windows do not add up");
}

/// Reads some records in a group and commits; returns the committed offset.
fn consume_some(up: &Up) -> u64 {
    let mut kcat = Command::new("kcat");
    kcat.args([
        "-b",
        &up.address("streams"),
        "-G",
        "crash-group",
        "-q",
        "-c",
        "20",
    ]);
    kcat.args(["-X", "auto.offset.reset=earliest", "-f", "%o\n", "numbers"]);
    let offsets: Vec<u64> = succeed(&mut kcat)
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    offsets.last().map_or(0, |offset| offset + 1)
}

/// The values of a topic, a line each.
pub fn values(up: &Up, topic: &str) -> Vec<String> {
    let mut kcat = Command::new("kcat");
    kcat.args(["-b", &up.address("streams")])
        .args(whole_topic(topic));
    succeed(&mut kcat).lines().map(str::to_owned).collect()
}

fn acked_numbers(text: &str) -> Vec<u64> {
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// The number of rounds asked for.
pub fn rounds() -> u64 {
    std::env::var("THALWEG_TEST_KILLS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(ROUNDS)
}
