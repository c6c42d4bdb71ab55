//! Many topics in one process: what one costs at rest, what it costs to write to any of them, and
//! what waiting for all of them costs.
//!
//! Three servers after one another: an empty one, for what the process takes anyway; one with all
//! topics, created, written to, restarted; one with fewer topics and many consumers that wait.

use std::time::{Duration, Instant};

use base::{Clock, Rng, SystemClock};
use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{BrokerId, FetchRequest};
use tokio::task::JoinSet;

use crate::experiment::{Experiment, LabError, Measure, Outcome, Series, Setting, runtime};
use crate::host::Host;
use crate::process::raise_handles;
use crate::store::Store;
use crate::wire::{NewTopic, Wire, batch_of_one, topic_name};

/// `thalweg lab run store-topics`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "store-topics",
    about: "100,000 topics in one process: memory, handles, writing to any of them, restart, idle",
    method: "Thalweg (up --role streams, embedded defaults). Topics of one partition are created \
        through CreateTopics, 1,000 a request (quick: 10,000 topics in all, else 100,000). Then 16 \
        connections send acks=all (which waits for the sync) with eight requests of one record of \
        100 B in flight each: first all to one topic, then each to a topic drawn at random from all; \
        then requests with a record for each of 100 topics drawn at random. CPU is user and system \
        time of the server's process. Memory per topic is what the process holds above an empty \
        server of the same run, at rest after the creation and again after the restart. Restart is \
        from the start of the process until it named itself as a node in an answer. Waiting: another \
        server with 10,000 topics and 1,000 consumers of ten topics each (quick: 1,000 and 100), with \
        fetch sessions where the server grants them, nothing to read, each fetch waiting for the 500 \
        ms that clients ask for by default, then for 30 s.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    vec![
        Measure::new(CREATED, "topics/s"),
        Measure::new(AT_REST, "KiB").at_most(2.0),
        Measure::new(AT_REST_AGAIN, "KiB").at_most(2.0),
        Measure::new(EMPTY, "MiB").detail(),
        Measure::new(HANDLES, "files and sockets").at_most(256.0),
        Measure::new(RESTART, "s").at_most(5.0),
        Measure::new(ONE_RATE, "records/s"),
        Measure::new(ANY_RATE, "records/s"),
        Measure::new(MANY_RATE, "records/s"),
        Measure::new(ONE_CPU, "µs"),
        Measure::new(ANY_CPU, "µs"),
        Measure::new(MANY_CPU, "µs"),
        Measure::new(ANY_TO_ONE, "×"),
        Measure::new(IDLE, "% of a core").at_most(0.1),
        Measure::new(WAITING, "% of a core").at_most(1.0),
        Measure::new(WAITING_LONG, "% of a core").at_most(1.0),
        Measure::new(WAITING_MEMORY, "KiB"),
        Measure::new(DISK_SYNC, "ms").detail(),
    ]
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    raise_handles()?;
    let runtime = runtime()?;
    let size = if setting.quick { QUICK } else { FULL };
    let mut outcome = Outcome::default();
    let host = Host::measure(setting.folder())?;
    add(&mut outcome, DISK_SYNC, host.disk_sync_us / 1e3);
    let empty = start(setting, "empty")?;
    let empty_bytes = at_rest(&empty, &size)?;
    add(&mut outcome, EMPTY, empty_bytes as f64 / MIB);
    empty.process.stop()?;
    runtime.block_on(many_topics(setting, &size, empty_bytes, &mut outcome))?;
    runtime.block_on(many_consumers(setting, &size, &mut outcome))?;
    Ok(outcome)
}

/// How much of everything.
struct Size {
    topics: usize,
    /// Topics that are waited for, and consumers that wait, each for as many of them.
    waited_for: usize,
    consumers: usize,
    load: Duration,
    rest: Duration,
}

const FULL: Size = Size {
    topics: 100_000,
    waited_for: 10_000,
    consumers: 1_000,
    load: Duration::from_secs(10),
    rest: Duration::from_secs(20),
};

const QUICK: Size = Size {
    topics: 10_000,
    waited_for: 1_000,
    consumers: 100,
    load: Duration::from_millis(1_000),
    rest: Duration::from_millis(2_000),
};

async fn many_topics(
    setting: &Setting,
    size: &Size,
    empty_bytes: u64,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    let store = start(setting, "many")?;
    let began = Instant::now();
    let growth = create(&store, size.topics).await?;
    let seconds = began.elapsed().as_secs_f64();
    add(outcome, CREATED, size.topics as f64 / seconds);
    outcome.series.push(Series::new(
        "Resident memory while topics are created",
        "topics",
        "MiB",
        "thalweg up",
        growth,
    ));
    let per_topic =
        |bytes: u64| bytes.saturating_sub(empty_bytes) as f64 / size.topics as f64 / 1024.0;
    add(outcome, AT_REST, per_topic(at_rest(&store, size)?));
    add(outcome, IDLE, store.idle_percent(size.rest)?);

    let mut costs = Vec::new();
    for (topics, at_once, rate_row, cpu_row) in [
        (1, 1, ONE_RATE, ONE_CPU),
        (size.topics, 1, ANY_RATE, ANY_CPU),
        (size.topics, 100, MANY_RATE, MANY_CPU),
    ] {
        let (began, before) = (Instant::now(), store.process.usage()?.cpu);
        let records = produce(&store, topics, at_once, size.load).await?;
        let used = store.process.usage()?.cpu.saturating_sub(before);
        let cost = used.as_secs_f64() * 1e6 / records as f64;
        add(
            outcome,
            rate_row,
            records as f64 / began.elapsed().as_secs_f64(),
        );
        add(outcome, cpu_row, cost);
        costs.push(cost);
    }
    add(outcome, ANY_TO_ONE, costs[1] / costs[0]);
    add(outcome, HANDLES, store.process.handles()? as f64);

    store.process.stop()?;
    let again = start(setting, "many")?;
    add(outcome, RESTART, again.ready.as_secs_f64());
    add(outcome, AT_REST_AGAIN, per_topic(at_rest(&again, size)?));
    again.process.stop()
}

async fn many_consumers(
    setting: &Setting,
    size: &Size,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    let store = start(setting, "waiting")?;
    create(&store, size.waited_for).await?;
    let before = at_rest(&store, size)?;
    for (wait, row) in [(CLIENTS_WAIT, WAITING), (LONG_WAIT, WAITING_LONG)] {
        let each = size.waited_for / size.consumers;
        let mut consumers = JoinSet::new();
        for index in 0..size.consumers {
            let wire = Wire::connect(&store.address).await?;
            consumers.spawn(wait_for_records(
                wire,
                index * each..(index + 1) * each,
                wait,
            ));
        }
        tokio::time::sleep(size.rest / 2).await;
        let (began, used) = (Instant::now(), store.process.cpu_of_threads()?);
        tokio::time::sleep(size.rest).await;
        let used = store.process.cpu_of_threads()?.saturating_sub(used);
        add(
            outcome,
            row,
            used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0,
        );
        if row == WAITING {
            let held = store.process.usage()?.resident_bytes.saturating_sub(before);
            add(
                outcome,
                WAITING_MEMORY,
                held as f64 / size.consumers as f64 / 1024.0,
            );
        }
        // A consumer ends by itself only when its server failed it.
        if let Some(ended) = consumers.try_join_next() {
            ended.unwrap_or_else(|error| Err(LabError::Failed(error.to_string())))?;
        }
        consumers.shutdown().await;
    }
    store.process.stop()
}

fn start(setting: &Setting, data: &str) -> Result<Store, LabError> {
    Store::thalweg(&setting.thalweg, &setting.path(data), setting.folder())
}

/// Creates so many topics; returns the resident memory in MiB by topics that there are.
async fn create(store: &Store, topics: usize) -> Result<Vec<(f64, f64)>, LabError> {
    let mut wire = Wire::connect(&store.address).await?;
    let mut growth = vec![(0.0, store.process.usage()?.resident_bytes as f64 / MIB)];
    for first in (0..topics).step_by(TOPICS_PER_REQUEST) {
        let last = topics.min(first + TOPICS_PER_REQUEST);
        let batch: Vec<NewTopic> = (first..last)
            .map(|index| NewTopic {
                name: name(index),
                partitions: 1,
                configs: Vec::new(),
            })
            .collect();
        wire.create_topics(&batch).await?;
        growth.push((
            last as f64,
            store.process.usage()?.resident_bytes as f64 / MIB,
        ));
    }
    Ok(growth)
}

/// Sends records to topics drawn from the first so many, `at_once` of them in a request; returns
/// how many were acknowledged.
async fn produce(
    store: &Store,
    topics: usize,
    at_once: usize,
    length: Duration,
) -> Result<u64, LabError> {
    let batch = batch_of_one(SystemClock.now(), RECORD_BYTES)?;
    let until = Instant::now() + length;
    let mut connections = JoinSet::new();
    for index in 0..CONNECTIONS {
        let wire = Wire::connect(&store.address).await?;
        let rng = Rng::from_seed(index);
        connections.spawn(send_at_random(
            wire,
            rng,
            topics,
            at_once,
            batch.clone(),
            until,
        ));
    }
    let mut records = 0;
    while let Some(sent) = connections.join_next().await {
        records += sent.unwrap_or_else(|error| Err(LabError::Failed(error.to_string())))?;
    }
    Ok(records)
}

async fn send_at_random(
    mut wire: Wire,
    mut rng: Rng,
    topics: usize,
    at_once: usize,
    batch: Bytes,
    until: Instant,
) -> Result<u64, LabError> {
    let mut requests = 0;
    while Instant::now() < until {
        let mut drawn: Vec<usize> = (0..at_once)
            .map(|_| rng.below(topics as u64) as usize)
            .collect();
        // A request may name a topic once.
        drawn.sort_unstable();
        drawn.dedup();
        let names: Vec<String> = drawn.into_iter().map(name).collect();
        wire.send_batches(names.iter().map(String::as_str), &batch)
            .await?;
        requests += names.len() as u64;
        if wire.in_flight() >= IN_FLIGHT {
            wire.acknowledged().await?;
        }
    }
    while wire.in_flight() > 0 {
        wire.acknowledged().await?;
    }
    Ok(requests)
}

/// Fetches for ever from topics in which nothing is, as clients do: all of them once, and then,
/// where the server has opened a session, none, since nothing about them changes.
async fn wait_for_records(
    mut wire: Wire,
    topics: std::ops::Range<usize>,
    wait: Duration,
) -> Result<(), LabError> {
    let all: Vec<FetchTopic> = topics
        .map(|index| {
            FetchTopic::default()
                .with_topic(topic_name(&name(index)))
                .with_partitions(vec![
                    FetchPartition::default()
                        .with_fetch_offset(0)
                        .with_current_leader_epoch(-1)
                        .with_partition_max_bytes(1 << 20),
                ])
        })
        .collect();
    let (mut session, mut epoch) = (0, 0);
    loop {
        let named = if session == 0 {
            all.clone()
        } else {
            Vec::new()
        };
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(i32::try_from(wait.as_millis()).unwrap_or(i32::MAX))
            .with_min_bytes(1)
            .with_max_bytes(50 << 20)
            .with_session_id(session)
            .with_session_epoch(epoch)
            .with_topics(named);
        let answer = wire.ask(&request, FETCH_VERSION).await?;
        if answer.error_code != 0 {
            return Err(LabError::Failed(format!(
                "a fetch was refused with error {}",
                answer.error_code
            )));
        }
        session = answer.session_id;
        epoch = if session == 0 { 0 } else { epoch + 1 };
    }
}

/// Resident memory once it no longer moves by itself.
fn at_rest(store: &Store, size: &Size) -> Result<u64, LabError> {
    std::thread::sleep(size.rest / 2);
    Ok(store.process.usage()?.resident_bytes)
}

fn name(index: usize) -> String {
    format!("plant.line-{}.sensor-{index:06}", index % 97)
}

fn add(outcome: &mut Outcome, name: &str, value: f64) {
    outcome.values.push((name.to_owned(), value));
}

const CREATED: &str = "topics created";
const AT_REST: &str = "memory per topic, after creation";
const AT_REST_AGAIN: &str = "memory per topic, after writing and restart";
const EMPTY: &str = "memory of an empty server";
const HANDLES: &str = "open handles";
const RESTART: &str = "restart";
const ONE_RATE: &str = "one topic: rate";
const ANY_RATE: &str = "any topic: rate";
const MANY_RATE: &str = "100 topics a request: rate";
const ONE_CPU: &str = "one topic: server CPU per record";
const ANY_CPU: &str = "any topic: server CPU per record";
const MANY_CPU: &str = "100 topics a request: server CPU per record";
const ANY_TO_ONE: &str = "any topic to one topic: server CPU";
const IDLE: &str = "idle with all topics";
const WAITING: &str = "consumers waiting 500 ms";
const WAITING_LONG: &str = "consumers waiting 30 s";
const WAITING_MEMORY: &str = "memory per waiting consumer";
const DISK_SYNC: &str = "the disk: 4 KiB appended and synced";

const TOPICS_PER_REQUEST: usize = 1_000;
const RECORD_BYTES: usize = 100;
const CONNECTIONS: u64 = 16;
const IN_FLIGHT: i32 = 8;
/// The default of librdkafka and of Kafka's own client.
const CLIENTS_WAIT: Duration = Duration::from_millis(500);
const LONG_WAIT: Duration = Duration::from_secs(30);
/// The last version that names topics rather than their ids.
const FETCH_VERSION: i16 = 12;
const MIB: f64 = (1 << 20) as f64;
