//! Clients that do not keep up, ten thousand that say nothing, and statements killed among many keys.
//! Longer by hand: `THALWEG_TEST_SECONDS=600` and `THALWEG_TEST_KILLS=100`.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::Rng;
use serde_json::{Value, json};

use crate::harness::{Up, eventually, folder, post, succeed, whole_topic};

/// A client of 3.1.1 that is let in.
pub fn connect(up: &Up, id: &str) -> TcpStream {
    let mut link = TcpStream::connect(up.address("mqtt")).unwrap();
    let mut body = b"\0\x04MQTT\x04\x02\0\0".to_vec();
    text(&mut body, id);
    link.write_all(&packet(0x10, &body)).unwrap();
    let mut answer = [0; 4];
    link.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0x20, 2, 0, 0]);
    link
}

fn subscribe(link: &mut TcpStream, filter: &str) {
    let mut body = vec![0, 1];
    text(&mut body, filter);
    body.push(0);
    link.write_all(&packet(0x82, &body)).unwrap();
    let mut answer = [0; 5];
    link.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0x90, 3, 0, 1, 0]);
}

/// A PUBLISH of QoS 0.
pub fn publish(topic: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    text(&mut body, topic);
    body.extend_from_slice(payload);
    packet(0x30, &body)
}

/// A packet of fewer than 16,384 bytes.
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match body.len() {
        length if length < 128 => out.push(length as u8),
        length => out.extend_from_slice(&[(length % 128) as u8 | 0x80, (length / 128) as u8]),
    }
    out.extend_from_slice(body);
    out
}

/// Appends a text as packets hold it.
pub fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Bytes of memory that the process holds.
fn resident(up: &Up) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", up.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1_024
}

fn seconds(short: u64) -> Duration {
    let asked = std::env::var("THALWEG_TEST_SECONDS").ok();
    Duration::from_secs(asked.and_then(|n| n.parse().ok()).unwrap_or(short))
}

#[test]
fn ten_thousand_idle_clients_take_less_than_100_mb() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut crowd = vec![connect(&up, "first")];
    let before = resident(&up);
    for n in 0..10_000 {
        crowd.push(connect(&up, &format!("idle-{n}")));
    }
    let taken = resident(&up).saturating_sub(before);
    eprintln!("10,000 idle clients take {} KiB", taken / 1_024);
    assert!(taken < 100_000_000, "{taken} bytes");
    // They are not only there, they are served.
    for link in crowd.iter_mut().step_by(999) {
        link.write_all(&[0xc0, 0]).unwrap();
        let mut answer = [0; 2];
        link.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0xd0, 0]);
    }
}

#[test]
fn those_who_do_not_keep_up_disturb_nobody_and_what_they_lose_is_counted() {
    let (dir, length) = (folder(), seconds(12));
    let settings = [
        "--set",
        "mqtt.slow_subscriber_grace=100ms",
        "--set",
        "mqtt.stalled_subscriber_timeout=1h",
    ];
    let up = Up::start_with(&dir.path().join("data"), &settings);
    // A server that takes connections and answers nothing.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let form = json!({
        "name": "deaf", "text": "SELECT n, pad FROM mqtt.\"load\"",
        "targets": [format!("http://{}/in", deaf.local_addr().unwrap())],
        "policies": {"backpressure": "drop_oldest"},
    });
    let added = post(
        &up.url("management", "/api/v1/statements"),
        "application/json",
        &form.to_string(),
    );
    assert_eq!(added.status, 201, "{}", added.body);
    up.cli_json(&[
        "statements",
        "add",
        "--name",
        "rows",
        "INSERT INTO mqtt.\"rows\" SELECT n FROM mqtt.\"load\"",
    ]);
    let stop = Arc::new(AtomicBool::new(false));
    let mut stuck = connect(&up, "stuck");
    subscribe(&mut stuck, "load");
    let mut slow = connect(&up, "slow");
    subscribe(&mut slow, "load");
    let reader = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let (mut piece, mut got) = ([0; 100], Vec::new());
            // A thousand bytes a second.
            while !stop.load(Ordering::Relaxed) {
                slow.read_exact(&mut piece).unwrap();
                got.extend_from_slice(&piece);
                std::thread::sleep(Duration::from_millis(100));
            }
            (slow, got)
        })
    };
    let heard: Vec<Arc<AtomicU64>> = ["load", "rows"]
        .into_iter()
        .map(|topic| {
            let (count, mut link) = (
                Arc::new(AtomicU64::new(0)),
                connect(&up, &format!("good-{topic}")),
            );
            subscribe(&mut link, topic);
            let (stop, told) = (Arc::clone(&stop), Arc::clone(&count));
            std::thread::spawn(move || count_numbers(link, &stop, &told));
            count
        })
        .collect();
    let (mut publisher, mut sent, began) = (connect(&up, "publisher"), 0_u64, Instant::now());
    let pad = "x".repeat(400);
    let mut most = 0;
    while began.elapsed() < length {
        let mut out = Vec::new();
        for _ in 0..100 {
            let payload = format!("{{\"n\":{},\"pad\":\"{pad}\"}}", 1_000_000_000 + sent);
            out.extend(publish("load", payload.as_bytes()));
            sent += 1;
        }
        publisher.write_all(&out).unwrap();
        most = most.max(resident(&up));
        std::thread::sleep(Duration::from_millis(10));
    }
    for count in &heard {
        eventually("the good subscribers have everything", || {
            (count.load(Ordering::SeqCst) == sent).then_some(())
        });
    }
    eprintln!("{sent} messages, {} MiB at most", most >> 20);
    // Two queues of 8 MiB, an output of 2 MiB, and what the process is.
    assert!(most < 300 << 20, "{most} bytes");
    let dropped = |id: &str| {
        let clients = up.get("/api/v1/mqtt/clients");
        let mut all = clients["clients"].as_array().unwrap().iter();
        let client = all.find(|client| client["client_id"] == id).unwrap();
        client["dropped_total"].as_u64().unwrap()
    };
    assert!(dropped("stuck") > 0 && dropped("slow") > 0);
    for good in ["good-load", "good-rows"] {
        assert_eq!(dropped(good), 0);
    }
    let statement = up.get("/api/v1/statements/deaf");
    let count = |key: &str| statement[key].as_u64().unwrap();
    assert_eq!(count("received_total"), sent);
    assert!(count("dropped_total") > 0, "{statement}");
    let kept = count("dropped_total") + count("in_flight") + count("emitted_from_total");
    assert_eq!(kept, sent, "{statement}");
    // What was sent to them came, waits for them, or was counted as dropped: once they read, the
    // messages that come and those that were dropped are all that there were.
    stop.store(true, Ordering::Relaxed);
    let (slow, got) = reader.join().unwrap();
    for (id, mut link, mut got) in [("stuck", stuck, Vec::new()), ("slow", slow, got)] {
        link.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let (mut piece, mut came) = (vec![0; 64 << 10], count_publishes(&mut got));
        while came + dropped(id) < sent {
            match link.read(&mut piece) {
                Ok(read) if read > 0 => got.extend_from_slice(&piece[..read]),
                _ => break,
            }
            came += count_publishes(&mut got);
        }
        let dropped = dropped(id);
        eprintln!("{id}: {came} came, {dropped} were dropped");
        assert_eq!(came + dropped, sent, "{id}");
    }
}

/// Takes whole packets off the front, all of which are PUBLISHes of QoS 0; how many there were.
fn count_publishes(bytes: &mut Vec<u8>) -> u64 {
    let (mut at, mut count) = (0, 0);
    while let Some([first, low, high]) = bytes.get(at..at + 3) {
        assert_eq!(*first, 0x30);
        let length = match low & 0x80 {
            0 => 2 + usize::from(*low),
            _ => 3 + usize::from(low & 0x7f) + (usize::from(*high) << 7),
        };
        if bytes.len() < at + length {
            break;
        }
        (at, count) = (at + length, count + 1);
    }
    bytes.drain(..at);
    count
}

/// Counts messages whose numbers follow each other; one that does not is counted for nothing.
fn count_numbers(mut link: TcpStream, stop: &AtomicBool, count: &AtomicU64) {
    let (mut buffer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    let mut next = 1_000_000_000_u64;
    while !stop.load(Ordering::Relaxed) {
        let read = link.read(&mut piece).unwrap();
        buffer.extend_from_slice(&piece[..read]);
        let mut at = 0;
        while let Some(end) = buffer[at..].iter().position(|byte| *byte == b'}') {
            let message = &buffer[at..at + end];
            let name = b"\"n\":";
            let found = message
                .windows(name.len())
                .position(|window| window == name);
            let digits = &message[found.unwrap() + name.len()..][..10];
            let number: u64 = std::str::from_utf8(digits).unwrap().parse().unwrap();
            if number == next {
                count.fetch_add(1, Ordering::SeqCst);
                next += 1;
            }
            at += end + 1;
        }
        buffer.drain(..at);
    }
}

#[test]
fn windows_over_many_keys_add_up_however_often_the_process_is_killed() {
    let rounds = std::env::var("THALWEG_TEST_KILLS")
        .ok()
        .and_then(|n| n.parse().ok());
    let rounds: u64 = rounds.unwrap_or(6);
    let seed = Rng::from_entropy().next_u64();
    eprintln!("seed {seed}, {rounds} rounds");
    let mut rng = Rng::from_seed(seed);
    let dir = folder();
    let mut up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "in"]);
    // Rows carry the time of their window, which is long past here.
    up.cli_json(&["topics", "create", "out", "--config", "retention.ms=-1"]);
    // Ten windows of keys of their own, each key some times in its window.
    let records = 20_000 * rounds;
    let (mut lines, mut sums) = (String::new(), HashMap::new());
    for n in 0..records {
        let (window, key) = (n * 10 / records, rng.below(10_000));
        let ts = window * 60_000 + rng.below(60_000);
        lines.push_str(&format!(
            "{{\"k\":\"{window}-{key}\",\"ts\":{ts},\"v\":{n}}}\n"
        ));
        let sum: &mut (u64, u64) = sums.entry(format!("{window}-{key}")).or_default();
        *sum = (sum.0 + 1, sum.1 + n);
    }
    // The end of time for the last window.
    lines.push_str("{\"k\":\"end\",\"ts\":9000000000,\"v\":0}\n");
    let file = dir.path().join("records");
    std::fs::write(&file, lines).unwrap();
    succeed(
        Command::new("kcat")
            .args(["-b", &up.address("streams"), "-P", "-t", "in", "-l"])
            .arg(&file),
    );
    up.cli_json(&[
        "statements",
        "add",
        "--name",
        "keyed",
        "--start",
        "earliest",
        "--lateness",
        "1m",
        "INSERT INTO kafka.\"out\" SELECT k, count(*) AS n, sum(v) AS s, window_start \
         FROM TUMBLE(kafka.\"in\", ts, INTERVAL '1 minute') GROUP BY k",
    ]);
    let received = |up: &Up| {
        up.get("/api/v1/statements/keyed")["received_total"]
            .as_u64()
            .unwrap()
    };
    let mut kills = 0;
    while kills < rounds && received(&up) < records {
        std::thread::sleep(Duration::from_millis(rng.below(150)));
        up.kill();
        up = up.start_again(&[]);
        kills += 1;
    }
    assert!(kills > 1, "the statement was done before it was killed");
    let rows = eventually("every key has its row", || {
        let rows = rows(&up, "out");
        (rows.len() >= sums.len()).then_some(rows)
    });
    assert_eq!(rows.len(), sums.len(), "seed {seed}: a row came twice");
    for row in rows {
        let key = row["k"].as_str().unwrap();
        let got = (row["n"].as_u64().unwrap(), row["s"].as_u64().unwrap());
        assert_eq!(Some(&got), sums.get(key), "seed {seed}: {row}");
    }
    let books = up.get("/api/v1/statements/keyed");
    assert_eq!(books["received_total"], records + 1, "{books}");
    assert_eq!(books["late_total"], 0, "{books}");
}

fn rows(up: &Up, topic: &str) -> Vec<Value> {
    let mut kcat = Command::new("kcat");
    kcat.args(["-b", &up.address("streams")])
        .args(whole_topic(topic));
    // The topic may not be there yet.
    let output = kcat.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
