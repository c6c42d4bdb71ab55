//! One statement run by several engines on one event store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::SystemClock;
use serde_json::json;
use streams::{ConsumerConfig, EventStore, Isolation, ProduceBatch, Record, TopicName};
use tokio::runtime::Runtime;

use super::house::{DEADLINE, House, until};
use crate::{Fusion, FusionConfig, FusionError, NewStatement, ReplacedState, Replacement, Status};

const PARTITIONS: i32 = 4;

/// Sums by windows of ten seconds of the events' time.
const SUMS: &str = "INSERT INTO kafka.sums SELECT k, sum(v) AS s, count(*) AS n, window_start \
                    FROM TUMBLE(kafka.raw, ts, INTERVAL '10 seconds') GROUP BY k";

fn grouped(name: &str, text: &str, group: &str) -> NewStatement {
    let form = json!({"name": name, "text": text, "start": "earliest",
        "policies": {"group": group}});
    serde_json::from_value(form).unwrap()
}

async fn engine(dir: &Path, store: &Arc<dyn EventStore>) -> Arc<Fusion> {
    let config = FusionConfig::default();
    let fusion = Fusion::open(dir, config, store.clone(), None, Arc::new(SystemClock)).await;
    fusion.unwrap()
}

/// A house without statements, whose topics have several partitions.
async fn house() -> House {
    let house = House::open().await;
    for topic in ["raw", "sums", "alone"] {
        house.create(topic, PARTITIONS).await;
    }
    house
}

/// Events number `from..to` of each partition: three keys, an event a second.
async fn feed(store: &Arc<dyn EventStore>, from: i64, to: i64) {
    for partition in 0..PARTITIONS {
        let records = (from..to).map(|n| {
            let event = json!({"k": format!("{partition}-{}", n % 3), "v": n, "ts": n * 1_000});
            Record::of_value(event.to_string())
        });
        let batch = ProduceBatch {
            topic: "raw".parse().unwrap(),
            partition,
            records: records.collect(),
            sequence: None,
        };
        store.produce(batch).await.unwrap();
    }
}

/// The rows of all partitions of a topic that count, in order, once those are there that events
/// below `end` come to.
async fn committed(store: &Arc<dyn EventStore>, topic: &str, end: i64) -> Vec<String> {
    let count = expected(end).len();
    let topic: TopicName = topic.parse().unwrap();
    let config = ConsumerConfig {
        isolation: Isolation::Committed,
        ..ConsumerConfig::alone("test")
    };
    let mut consumer = store.consumer(config).await.unwrap();
    let partitions = (0..PARTITIONS).map(|partition| (topic.clone(), partition));
    consumer.assign(partitions.collect()).await.unwrap();
    let (mut rows, deadline) = (Vec::new(), Instant::now() + DEADLINE);
    loop {
        // Once all are there, nothing more may come.
        let wait = Duration::from_millis(200);
        let polled = consumer.poll(wait, 1 << 20).await.unwrap();
        if polled.is_empty() && rows.len() >= count {
            rows.sort();
            return rows;
        }
        assert!(Instant::now() < deadline, "{} of {count}", rows.len());
        rows.extend(
            polled
                .iter()
                .map(|record| String::from_utf8(record.value.as_ref().unwrap().to_vec()).unwrap()),
        );
    }
}

/// What the events below `end` come to in whole windows, in the order of [`committed`].
fn expected(end: i64) -> Vec<String> {
    let mut sums: BTreeMap<(i32, i64, i64), (i64, u64)> = BTreeMap::new();
    for partition in 0..PARTITIONS {
        for n in 0..end / 10 * 10 {
            let (sum, count) = sums.entry((partition, n / 10, n % 3)).or_default();
            *sum += n;
            *count += 1;
        }
    }
    let rows = sums.into_iter().map(|((partition, window, key), (s, n))| {
        let start = window * 10_000;
        format!("{{\"k\":\"{partition}-{key}\",\"s\":{s},\"n\":{n},\"window_start\":{start}}}")
    });
    let mut rows: Vec<String> = rows.collect();
    rows.sort();
    rows
}

fn held(fusion: &Fusion) -> Vec<i32> {
    let info = fusion.statement("m").unwrap();
    info.group.unwrap().partitions
}

async fn shared(engines: &[&Arc<Fusion>]) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let shares: Vec<Vec<i32>> = engines.iter().map(|engine| held(engine)).collect();
        let all: BTreeSet<i32> = shares.iter().flatten().copied().collect();
        let count: usize = shares.iter().map(Vec::len).sum();
        let each = shares.iter().all(|share| !share.is_empty());
        if each && count == all.len() && all.len() == PARTITIONS as usize {
            return;
        }
        assert!(Instant::now() < deadline, "never shared: {shares:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_joins_and_who_leaves_takes_its_partitions_state_along() {
    let house = house().await;
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let others = [
        engine(dirs[0].path(), &house.store).await,
        engine(dirs[1].path(), &house.store).await,
    ];
    feed(&house.store, 0, 25).await;
    house.fusion.add(grouped("m", SUMS, "g")).await.unwrap();
    house.until("m", |info| info.received_total == 100).await;
    others[0].add(grouped("m", SUMS, "g")).await.unwrap();
    shared(&[&house.fusion, &others[0]]).await;
    feed(&house.store, 25, 47).await;
    others[1].add(grouped("m", SUMS, "g")).await.unwrap();
    shared(&[&house.fusion, &others[0], &others[1]]).await;
    feed(&house.store, 47, 68).await;
    others[0].close().await;
    shared(&[&house.fusion, &others[1]]).await;
    feed(&house.store, 68, 90).await;
    house.fusion.pause("m").await.unwrap();
    until(&others[1], "m", |info| info.received_total == 360).await;
    let all: Vec<i32> = (0..PARTITIONS).collect();
    assert_eq!(held(&others[1]), all);
    feed(&house.store, 90, 101).await;
    house.fusion.resume("m").await.unwrap();
    shared(&[&house.fusion, &others[1]]).await;
    let rows = committed(&house.store, "sums", 100).await;
    assert_eq!(rows, expected(100));
    // The books go with the partitions.
    let mut received = 0;
    for engine in [&house.fusion, &others[1]] {
        let mut infos = [engine.statement("m").unwrap()];
        engine.tell_lags(&mut infos).await;
        let [info] = infos;
        assert_eq!(info.lag_records, Some(0), "{info:?}");
        assert_eq!(
            info.received_total,
            info.emitted_from_total + info.in_flight,
            "{info:?}"
        );
        received += info.received_total;
    }
    assert_eq!(received, 404);
    // One that runs it alone says the same.
    let alone = SUMS.replace("kafka.sums", "kafka.alone");
    let mut alone = grouped("alone", &alone, "g");
    alone.policies = None;
    house.fusion.add(alone).await.unwrap();
    assert_eq!(committed(&house.store, "alone", 100).await, expected(100));
    others[1].close().await;
    house.close().await;
}

#[test]
fn what_an_engine_that_dies_had_not_written_counts_once_elsewhere() {
    let runtime = Runtime::new().unwrap();
    let house = runtime.block_on(house());
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut end = 0;
    for dir in &dirs {
        let mortal = Runtime::new().unwrap();
        let dying = mortal.block_on(async {
            let dying = engine(dir.path(), &house.store).await;
            dying.add(grouped("m", SUMS, "g")).await.unwrap();
            dying
        });
        runtime.block_on(async {
            if end == 0 {
                house.fusion.add(grouped("m", SUMS, "g")).await.unwrap();
            }
            shared(&[&house.fusion, &dying]).await;
            feed(&house.store, end, end + 27).await;
            end += 27;
            // In the middle of its work, with more in its machines than it has written.
            let before = dying.statement("m").unwrap().received_total;
            feed(&house.store, end, end + 6).await;
            end += 6;
            until(&dying, "m", |info| info.received_total > before).await;
        });
        mortal.shutdown_background();
        runtime.block_on(shared(&[&house.fusion]));
    }
    runtime.block_on(async {
        let rows = committed(&house.store, "sums", end - 1).await;
        assert_eq!(rows, expected(end - 1));
        house.close().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn who_loses_the_name_of_a_partition_goes_on_from_what_is_written() {
    let house = house().await;
    house.fusion.add(grouped("m", SUMS, "g")).await.unwrap();
    for from in [0, 23, 46, 69] {
        feed(&house.store, from, from + 20).await;
        shared(&[&house.fusion]).await;
        // What is in its machines meanwhile is not written any more, and is computed again.
        for partition in 0..PARTITIONS {
            let name = format!("thalweg.statement.g.{partition}");
            house.store.fenced_writer(&name).await.unwrap();
        }
        feed(&house.store, from + 20, from + 23).await;
    }
    assert_eq!(committed(&house.store, "sums", 91).await, expected(91));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_another_form_stays_out_of_the_group_and_says_why() {
    let house = house().await;
    let dir = tempfile::tempdir().unwrap();
    let other = engine(dir.path(), &house.store).await;
    house.fusion.add(grouped("m", SUMS, "g")).await.unwrap();
    shared(&[&house.fusion]).await;
    let text = SUMS.replace("sum(v)", "max(v)");
    other.add(grouped("m", &text, "g")).await.unwrap();
    let info = until(&other, "m", |info| info.error.is_some()).await;
    assert_eq!(info.status, Status::Retrying);
    let told = info.error.unwrap();
    assert!(told.contains("sum(v)") && told.contains("'g'"), "{told}");
    shared(&[&house.fusion]).await;
    feed(&house.store, 0, 21).await;
    assert_eq!(committed(&house.store, "sums", 20).await, expected(20));
    // It takes part once nobody's state is in its way.
    house.fusion.remove("m").await.unwrap();
    let log = "__thalweg_statement.g".parse().unwrap();
    let deadline = Instant::now() + DEADLINE;
    let there = async || {
        let group = house.store.group("thalweg.statement.g").await.unwrap();
        group.is_some_and(|group| !group.members.is_empty())
    };
    while there().await {
        assert!(Instant::now() < deadline, "it never left its group");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    house.store.delete_topic(&log).await.unwrap();
    shared(&[&other]).await;
    let info = other.statement("m").unwrap();
    assert_eq!((info.status, info.error), (Status::Running, None));
    other.close().await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_other_content_are_another_form() {
    let house = house().await;
    let dir = tempfile::tempdir().unwrap();
    let other = engine(dir.path(), &house.store).await;
    for (fusion, factor) in [(&house.fusion, 1), (&other, 2)] {
        let module = super::functions::module("f", factor);
        fusion.add_functions(module).await.unwrap();
    }
    let text = SUMS.replace("sum(v)", "sum(f.times(v))");
    house.fusion.add(grouped("m", &text, "g")).await.unwrap();
    shared(&[&house.fusion]).await;
    other.add(grouped("m", &text, "g")).await.unwrap();
    let told = until(&other, "m", |info| info.error.is_some()).await.error;
    let told = told.unwrap();
    assert!(
        told.contains("modules of functions") && told.contains("'g'"),
        "{told}"
    );
    feed(&house.store, 0, 21).await;
    assert_eq!(committed(&house.store, "sums", 20).await, expected(20));
    other.close().await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_group_cannot_run_is_refused_with_the_reason() {
    let house = house().await;
    let refused = async |new: NewStatement| match house.fusion.add(new).await {
        Err(FusionError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    for (text, why) in [
        (
            "INSERT INTO kafka.sums SELECT v FROM mqtt.\"a\"",
            "one topic of the event store",
        ),
        (
            "INSERT INTO mqtt.\"a\" SELECT v FROM kafka.raw",
            "topics of the event store",
        ),
        ("SELECT v FROM kafka.raw", "topics of the event store"),
    ] {
        let told = refused(grouped("m", text, "g")).await;
        assert!(told.contains(why), "{told}");
    }
    let told = refused(grouped("m", SUMS, "a b")).await;
    assert!(told.contains("letters, digits"), "{told}");
    let mut drops = grouped("m", SUMS, "g");
    drops.policies.as_mut().unwrap().backpressure = crate::plan::Backpressure::DropOldest;
    assert!(refused(drops).await.contains("backpressure"));
    house.fusion.add(grouped("m", SUMS, "g")).await.unwrap();
    let replacement = Replacement {
        new: grouped("m", SUMS, "other"),
        state: ReplacedState::Auto,
        origin: None,
    };
    let replaced = house.fusion.replace("m", replacement).await;
    assert!(
        matches!(&replaced, Err(FusionError::Refused(why)) if why.contains("not replaced")),
        "{replaced:?}"
    );
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_goes_on_after_all_its_processes_were_away() {
    let mut house = house().await;
    house.fusion.add(grouped("m", SUMS, "g")).await.unwrap();
    feed(&house.store, 0, 15).await;
    house.until("m", |info| info.received_total == 60).await;
    house.fusion.close().await;
    feed(&house.store, 15, 25).await;
    house.reopen().await;
    let info = house.until("m", |info| info.received_total == 100).await;
    let group = info.group.unwrap();
    assert_eq!(
        (group.name.as_str(), group.partitions),
        ("g", vec![0, 1, 2, 3])
    );
    feed(&house.store, 25, 31).await;
    assert_eq!(committed(&house.store, "sums", 30).await, expected(30));
    // Its lag stands among the groups'.
    let group = "thalweg.statement.g";
    let deadline = Instant::now() + DEADLINE;
    loop {
        let asked = [("raw".parse().unwrap(), 0)];
        let told = house.store.committed(group, &asked).await.unwrap();
        if told[0].as_ref().is_some_and(|told| told.offset == 31) {
            break;
        }
        assert!(Instant::now() < deadline, "{told:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    house.close().await;
}
