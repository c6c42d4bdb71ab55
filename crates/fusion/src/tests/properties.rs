//! Batches never change an answer, and a checkpoint is the state.

use std::sync::Arc;

use base::{Rng, UnixMillis};
use bytes::Bytes;
use streams::ConsumedRecord;

use super::house;
use crate::codec::{Decoder, Encoder};
use crate::feed::Feed;
use crate::lane::{Lane, LaneState, Target};
use crate::machine::{Books, Machine, MachineOptions};
use crate::sql;
use crate::statement::{Definition, Language, Start};

#[test]
fn batch_sizes_change_no_answer() {
    for seed in 0..150 {
        let mut rng = Rng::from_seed(seed);
        let records = random_records(&mut rng, 400);
        let whole = run(&records, &mut |_| 400);
        let mut splits = Rng::from_seed(seed + 1_000_000);
        let split = run(&records, &mut |rest| {
            1 + splits.below(rest.min(40) as u64) as usize
        });
        assert_eq!(whole, split, "seed {seed}");
        assert!(
            whole.iter().any(|(rows, _)| !rows.is_empty()),
            "seed {seed} gives no row"
        );
    }
}

#[test]
fn a_machine_goes_on_from_its_checkpoint_as_if_nothing_had_happened() {
    for seed in 0..100 {
        let mut rng = Rng::from_seed(seed);
        let records = random_records(&mut rng, 200);
        let cut = rng.below(200) as usize;
        for text in STATEMENTS {
            let feed = Feed::new();
            let lane = lane(text);
            feed.join([lane.clone()]);
            apply(&feed, &records[..cut]);
            let mut out = Encoder::default();
            lane.state.lock().machine.encode((0, 0), &mut out);
            let mut from = Decoder::new(&out.0);
            let twin = self::lane(text);
            {
                let mut state = twin.state.lock();
                state.machine = fresh(text).decode(&mut from).unwrap();
                state.positions = lane.state.lock().positions.clone();
            }
            assert!(from.0.is_empty());
            let other = Feed::new();
            other.join([twin.clone()]);
            lane.state.lock().output = Default::default();
            apply(&feed, &records[cut..]);
            apply(&other, &records[cut..]);
            assert_eq!(outcome(&lane), outcome(&twin), "seed {seed}: {text}");
        }
    }
}

#[test]
fn damaged_checkpoints_are_refused_without_harm() {
    for text in [STATEMENTS[1], STATEMENTS[5]] {
        let feed = Feed::new();
        let lane = lane(text);
        feed.join([lane.clone()]);
        apply(&feed, &random_records(&mut Rng::from_seed(3), 50));
        let mut out = Encoder::default();
        lane.state.lock().machine.encode((0, 0), &mut out);
        for end in 0..out.0.len() {
            let cut = &out.0[..end];
            assert!(
                fresh(text).decode(&mut Decoder::new(cut)).is_none(),
                "{end}: {text}"
            );
        }
        let mut rng = Rng::from_seed(9);
        for _ in 0..2_000 {
            let mut bytes = out.0.clone();
            let place = rng.below(bytes.len() as u64) as usize;
            bytes[place] ^= 1 << rng.below(8);
            // Whatever it gives, it must not panic nor allocate beyond what is there.
            let _ = fresh(text).decode(&mut Decoder::new(&bytes));
        }
    }
}

#[test]
fn every_event_is_in_the_books_once() {
    for seed in 0..50 {
        let mut rng = Rng::from_seed(seed);
        let records = random_records(&mut rng, 300);
        for (_, books) in run(&records, &mut |_| 300) {
            assert_eq!(books.received, 300);
            let waiting = books.in_flight();
            let settled = books.filtered + books.errored + books.late + books.dropped;
            assert_eq!(settled + waiting, 300, "seed {seed}: {books:?}");
        }
    }
}

#[test]
fn no_text_makes_the_compiler_panic() {
    let words: Vec<&str> = STATEMENTS
        .iter()
        .flat_map(|text| text.split_inclusive([' ', '(', ')', ',', '\'', '"']))
        .chain([
            "CASE ",
            "WHEN ",
            "END ",
            "NULL",
            "CAST(",
            "AS ",
            "INTERVAL ",
            "'",
            "\"",
            "((",
            "é",
        ])
        .collect();
    for seed in 0..3_000 {
        let mut rng = Rng::from_seed(seed);
        let mut text: Vec<&str> = STATEMENTS[rng.below(STATEMENTS.len() as u64) as usize]
            .split_inclusive([' ', '(', ','])
            .collect();
        for _ in 0..1 + rng.below(4) {
            let word = words[rng.below(words.len() as u64) as usize];
            let place = rng.below(text.len() as u64) as usize;
            match rng.below(3) {
                0 => text.insert(place, word),
                1 => text[place] = word,
                _ if text.len() > 1 => drop(text.remove(place)),
                _ => {}
            }
        }
        let text = text.concat();
        if let Err(error) = sql::compile(&text) {
            let lines = text.lines().count().max(1) as u64;
            assert!(
                (1..=lines).contains(&error.line) && error.column >= 1,
                "{text}: {error}"
            );
        }
    }
}

#[test]
fn texts_that_nest_for_ever_are_refused() {
    for text in [
        format!("SELECT {}1 FROM mqtt.t", "1 + ".repeat(990)),
        format!("SELECT {}1{} FROM mqtt.t", "(".repeat(900), ")".repeat(900)),
        format!("SELECT {}1 FROM mqtt.t", "- ".repeat(990)),
        format!("SELECT {}a FROM mqtt.t", "NOT ".repeat(990)),
        format!(
            "SELECT {}1{} FROM mqtt.t",
            "abs(".repeat(600),
            ")".repeat(600)
        ),
        format!(
            "SELECT {}1{} FROM mqtt.t",
            "CASE WHEN a THEN ".repeat(300),
            " END".repeat(300)
        ),
        "x ".repeat(10_000),
    ] {
        assert!(sql::compile(&text).is_err(), "{text}");
    }
    let chain = format!(
        "SELECT a FROM mqtt.t WHERE {}a = 1",
        "a = 2 OR ".repeat(300)
    );
    assert!(sql::compile(&chain).is_ok(), "a flat chain does not nest");
}

pub const STATEMENTS: [&str; 7] = [
    "SELECT k, v * 2 AS w, s || 'x' AS t FROM kafka.t WHERE v > 10",
    "SELECT k, count(*) AS n, sum(v) AS s, avg(f) AS a, min(s) AS lo, last(s) AS l, stddev(f) AS d, \
     window_start AS w FROM TUMBLE(kafka.t, INTERVAL '1 second') GROUP BY k",
    "SELECT count(v) AS n, max(f) AS m FROM TUMBLE(kafka.t, ts, INTERVAL '700 milliseconds')",
    "SELECT k, n.x AS x, first(v) AS f FROM TUMBLE(kafka.t, INTERVAL '3 seconds') WHERE v IS NOT \
     NULL GROUP BY k, n.x HAVING count(*) > 1",
    "SELECT a.v AS x, b.f AS y FROM kafka.t AS a JOIN kafka.t AS b ON a.k = b.k AND a.v < b.v AND b.ts \
     BETWEEN a.ts - INTERVAL '100' MILLISECOND AND a.ts + INTERVAL '200' MILLISECOND",
    "SELECT a.v AS x, b.v AS y, a.s || b.s AS s FROM kafka.t AS a FULL JOIN kafka.t AS b ON a.v = b.v AND \
     a._timestamp BETWEEN b._timestamp AND b._timestamp + INTERVAL '500' MILLISECOND WHERE b.v IS NULL OR \
     b.v > 20",
    "SELECT a.k, b.s, window_start AS w FROM TUMBLE(kafka.t, ts, INTERVAL '1 second') AS a LEFT JOIN \
     TUMBLE(kafka.t, ts, INTERVAL '1 second') AS b ON a.k = b.k AND b.v > a.v + 50",
];

fn run(records: &[ConsumedRecord], next: &mut dyn FnMut(usize) -> usize) -> Vec<(String, Books)> {
    let feed = Feed::new();
    let lanes: Vec<Arc<Lane>> = STATEMENTS.iter().map(|text| lane(text)).collect();
    feed.join(lanes.iter().cloned());
    let mut at = 0;
    while at < records.len() {
        let end = (at + next(records.len() - at)).min(records.len());
        apply(&feed, &records[at..end]);
        at = end;
    }
    lanes.iter().map(|lane| outcome(lane)).collect()
}

pub fn apply(feed: &Feed, records: &[ConsumedRecord]) {
    let (generation, _) = feed.positions();
    let mut at = 0;
    while at < records.len() {
        at += feed.apply_records(generation, &records[at..]).unwrap();
    }
}

pub fn outcome(lane: &Lane) -> (String, Books) {
    let state = lane.state.lock();
    let rows: Vec<&str> = state
        .output
        .texts()
        .map(|text| std::str::from_utf8(text).unwrap())
        .collect();
    (rows.join("\n"), state.machine.books())
}

pub fn options() -> MachineOptions {
    MachineOptions {
        lateness_ms: 50,
        ..house::options()
    }
}

pub fn fresh(text: &str) -> Machine {
    Machine::new(Arc::new(sql::compile(text).unwrap()), options())
}

pub fn lane(text: &str) -> Arc<Lane> {
    let definition = Definition {
        id: text.to_owned(),
        name: text.to_owned(),
        text: text.to_owned(),
        language: Language::Sql,
        start: Start::Earliest,
        lateness_ms: 50,
        created_ms: UnixMillis(0),
        format: None,
        output: crate::sinks::OutputForm::Rows,
        targets: Vec::new(),
        policies: None,
        generation: 0,
        is_paused: false,
        origin: crate::statement::Origin::Api,
    };
    Arc::new(Lane {
        definition,
        plan: Arc::new(sql::compile(text).unwrap()),
        targets: vec![Target::Mqtt("out".parse().unwrap())],
        changes: None,
        letters: None,
        tap: std::sync::OnceLock::new(),
        state: parking_lot::Mutex::new(LaneState::new(fresh(text), vec![0], false)),
        wake: tokio::sync::Notify::new(),
        idle: tokio::sync::Notify::new(),
        turn: tokio::sync::Mutex::default(),
        removed: tokio_util::sync::CancellationToken::new(),
    })
}

pub fn random_records(rng: &mut Rng, count: i64) -> Vec<ConsumedRecord> {
    let topic: streams::TopicName = "t".parse().unwrap();
    let mut time = 0;
    (0..count)
        .map(|offset| {
            time += rng.below(60) as i64;
            let timestamp = time - rng.below(100) as i64;
            let value = match rng.below(20) {
                0 => "{\"broken".to_owned(),
                1 => "{}".to_owned(),
                _ => format!(
                    "{{\"k\":\"k{}\",\"v\":{},\"f\":{},\"s\":\"{}\",\"ts\":{},\"n\":{{\"x\":{}}}}}",
                    rng.below(5),
                    rng.below(100),
                    rng.below(1000) as f64 / 7.0,
                    ["a", "b\\n", "ccc"][rng.below(3) as usize],
                    timestamp,
                    rng.below(2)
                ),
            };
            ConsumedRecord {
                topic: topic.clone(),
                partition: 0,
                offset,
                timestamp: UnixMillis(timestamp),
                key: None,
                value: Some(Bytes::from(value)),
                headers: Vec::new(),
            }
        })
        .collect()
}
