//! kill -9 of `up` while messages of QoS 1 come to durable statements: what was acknowledged counts,
//! and nothing counts twice.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use base::Rng;
use serde_json::{Value, json};

use crate::crash::{rounds, values};
use crate::harness::{Up, eventually, folder, post};
use crate::mqtt_load::{connect, packet, text};

#[test]
fn what_was_acknowledged_counts_once_in_durable_statements_over_kills() {
    let rounds = rounds();
    let seed = Rng::from_entropy().next_u64();
    eprintln!("seed {seed}, {rounds} rounds");
    let mut rng = Rng::from_seed(seed);
    let dir = folder();
    let mut up = Up::start(&dir.path().join("data"));
    for (name, sql) in [
        (
            "counts",
            "INSERT INTO kafka.\"counts\" SELECT n, count(*) AS times \
             FROM TUMBLE(mqtt.\"numbers\", ts, INTERVAL '1 hour') GROUP BY n",
        ),
        (
            "each",
            "INSERT INTO kafka.\"each\" SELECT n FROM mqtt.\"numbers\"",
        ),
    ] {
        let durable = ["--policy", "input=durable", sql];
        up.cli_json(&[&["statements", "add", "--name", name][..], &durable].concat());
    }
    let (mut acknowledged, mut sent) = (HashSet::new(), 0);
    for _ in 0..rounds {
        let link = connect(&up, "publisher");
        let length = Duration::from_millis(50 + rng.below(1_500));
        let first = sent;
        let publisher = std::thread::spawn(move || publish_until_cut(link, first));
        std::thread::sleep(length);
        up.kill();
        let (next, answered) = publisher.join().unwrap();
        // What was not acknowledged is not sent again: it counts once or not at all.
        sent = next;
        acknowledged.extend(answered);
        up = up.start_again(&[]);
    }
    assert!(
        acknowledged.len() as u64 > rounds,
        "{} of {sent}",
        acknowledged.len()
    );
    let last = json!({"n": -1, "ts": TIME + 7_200_000}).to_string();
    let message = json!({"topic": "numbers", "text": last, "qos": 1}).to_string();
    let url = up.url("management", "/api/v1/mqtt/publish");
    let published = post(&url, "application/json", &message);
    assert!(published.status < 300, "{}", published.body);
    let books = eventually("the window is told", || {
        let books = up.get("/api/v1/statements/counts");
        (books["in_flight"] == 1).then_some(books)
    });
    let rows: Vec<Value> = values(&up, "counts")
        .iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    let mut times: HashMap<i64, i64> = HashMap::new();
    for row in &rows {
        *times.entry(row["n"].as_i64().unwrap()).or_default() += row["times"].as_i64().unwrap();
    }
    check(&times, &acknowledged, &format!("seed {seed}: counted"));
    assert_eq!(books["received_total"], rows.len() as u64 + 1, "{books}");
    eventually("each message has its row", || {
        (up.get("/api/v1/statements/each")["in_flight"] == 0).then_some(())
    });
    let mut times: HashMap<i64, i64> = HashMap::new();
    for row in values(&up, "each") {
        let row: Value = serde_json::from_str(&row).unwrap();
        *times.entry(row["n"].as_i64().unwrap()).or_default() += 1;
    }
    check(&times, &acknowledged, &format!("seed {seed}: rows"));
    eprintln!(
        "{sent} sent, {} acknowledged, {} counted",
        acknowledged.len(),
        rows.len()
    );
}

/// Each of those that were acknowledged is there, and nothing twice.
fn check(times: &HashMap<i64, i64>, acknowledged: &HashSet<i64>, what: &str) {
    let mut twice = times.iter().filter(|(_, times)| **times != 1);
    assert_eq!(twice.next(), None, "{what} more than once");
    let mut lost = acknowledged.iter().filter(|n| !times.contains_key(*n));
    assert_eq!(lost.next(), None, "{what}, and this was lost");
}

/// Publishes numbers from `first` on, some of them under way at any time, until the link ends; the
/// number behind the last, and those that were acknowledged.
fn publish_until_cut(mut link: TcpStream, first: i64) -> (i64, Vec<i64>) {
    let (mut next, mut acknowledged, mut answers) = (first, Vec::new(), Vec::new());
    let mut piece = [0; 4_096];
    loop {
        let mut out = Vec::new();
        while next - first - (acknowledged.len() as i64) < UNDER_WAY {
            let mut body = Vec::new();
            text(&mut body, "numbers");
            let id = u16::try_from((next - first) % 60_000 + 1).unwrap();
            body.extend_from_slice(&id.to_be_bytes());
            body.extend_from_slice(json!({"n": next, "ts": TIME}).to_string().as_bytes());
            out.extend(packet(0x32, &body));
            next += 1;
        }
        let read = match link.write_all(&out).and_then(|()| link.read(&mut piece)) {
            Ok(read) if read > 0 => read,
            _ => return (next, acknowledged),
        };
        answers.extend_from_slice(&piece[..read]);
        let whole = answers.len() / 4 * 4;
        for answer in answers.drain(..whole).collect::<Vec<u8>>().chunks(4) {
            assert_eq!(answer[..2], [0x40, 2]);
            // The server answers in order.
            acknowledged.push(first + acknowledged.len() as i64);
        }
    }
}

/// Messages that a publisher has under way.
const UNDER_WAY: i64 = 200;

/// The messages' time: long from now, so that no clock closes their window.
const TIME: i64 = 4_000_000_000_000;
