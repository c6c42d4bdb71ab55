//! How long the event store takes to answer again when it was killed with a full log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Clock, SystemClock};
use bytes::Bytes;
use tokio::task::JoinSet;

use crate::experiment::{Experiment, LabError, Measure, Outcome, Setting, runtime};
use crate::process::raise_handles;
use crate::store::{Store, forget};
use crate::wire::{NewTopic, Wire, batch_of_one};

/// `thalweg lab run store-restart`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "store-restart",
    about: "restart after kill -9 with 10 GB of log: until the first answer, warm and cold",
    method: "Thalweg (up --role streams, embedded defaults) with 100 topics of one partition. Eight \
        connections send acks=all with eight requests in flight, each with a record of 10 KB for each of \
        20 topics, until 10 GB (quick: 256 MB) are acknowledged; the process is killed (SIGKILL) while \
        they go on sending, so that the log ends anywhere. Restart is from the start of the process \
        until it named itself as a node in an answer: first with the files as the page cache has them, \
        then, after another kill, with the files dropped from it.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    vec![
        Measure::new(WARM, "s").at_most(2.0),
        Measure::new(COLD, "s").at_most(2.0),
        Measure::new(MEMORY, "MiB"),
        Measure::new(WRITTEN, "MB").detail(),
    ]
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    raise_handles()?;
    let runtime = runtime()?;
    let bytes = if setting.quick { QUICK } else { FULL };
    let mut outcome = Outcome::default();
    let mut add = |name: &str, value: f64| outcome.values.push((name.to_owned(), value));
    let store = start(setting)?;
    runtime.block_on(create(&store))?;
    let written = runtime.block_on(fill_and_kill(store, bytes))?;
    add(WRITTEN, written as f64 / 1e6);
    let store = start(setting)?;
    add(WARM, store.ready.as_secs_f64());
    add(MEMORY, store.process.usage()?.resident_bytes as f64 / MIB);
    // A little more, so that this end is as sudden as the first.
    runtime.block_on(fill_and_kill(store, bytes / 100))?;
    forget(&setting.path(DATA))
        .map_err(LabError::system("cannot drop files from the page cache"))?;
    let store = start(setting)?;
    add(COLD, store.ready.as_secs_f64());
    store.process.stop()?;
    Ok(outcome)
}

/// Sends until so many bytes are acknowledged and kills the server meanwhile; answers how many.
async fn fill_and_kill(store: Store, bytes: u64) -> Result<u64, LabError> {
    let batch = batch_of_one(SystemClock.now(), RECORD_BYTES)?;
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut senders = JoinSet::new();
    for index in 0..CONNECTIONS {
        let wire = Wire::connect(&store.address).await?;
        senders.spawn(send(wire, index, batch.clone(), Arc::clone(&acknowledged)));
    }
    while acknowledged.load(Ordering::Relaxed) < bytes {
        if let Some(ended) = senders.try_join_next() {
            ended.unwrap_or_else(|error| Err(LabError::Failed(error.to_string())))?;
        }
        tokio::time::sleep(LOOK).await;
    }
    store.process.kill();
    // They fail now, as they must.
    senders.shutdown().await;
    Ok(acknowledged.load(Ordering::Relaxed))
}

async fn create(store: &Store) -> Result<(), LabError> {
    let topics: Vec<NewTopic> = (0..TOPICS)
        .map(|index| NewTopic {
            name: name(index),
            partitions: 1,
            configs: Vec::new(),
        })
        .collect();
    let mut wire = Wire::connect(&store.address).await?;
    wire.create_topics(&topics).await
}

/// Sends for ever, to twenty topics after one another in each request.
async fn send(
    mut wire: Wire,
    mut first: usize,
    batch: Bytes,
    acknowledged: Arc<AtomicU64>,
) -> Result<(), LabError> {
    loop {
        first = (first + TOPICS_AT_ONCE) % TOPICS;
        let names: Vec<String> = (first..first + TOPICS_AT_ONCE)
            .map(|index| name(index % TOPICS))
            .collect();
        wire.send_batches(names.iter().map(String::as_str), &batch)
            .await?;
        if wire.in_flight() >= IN_FLIGHT {
            wire.acknowledged().await?;
            let bytes = TOPICS_AT_ONCE * RECORD_BYTES;
            acknowledged.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

fn start(setting: &Setting) -> Result<Store, LabError> {
    Store::thalweg(&setting.thalweg, &setting.path(DATA), setting.folder())
}

fn name(index: usize) -> String {
    format!("log-{index:03}")
}

const WARM: &str = "restart after kill -9, files in the page cache";
const COLD: &str = "restart after kill -9, files on the disk";
const MEMORY: &str = "resident memory after the restart";
const WRITTEN: &str = "log written";

const FULL: u64 = 10_000_000_000;
const QUICK: u64 = 256_000_000;
const TOPICS: usize = 100;
const TOPICS_AT_ONCE: usize = 20;
const RECORD_BYTES: usize = 10_000;
const CONNECTIONS: usize = 8;
const IN_FLIGHT: i32 = 8;
const LOOK: Duration = Duration::from_millis(20);
const DATA: &str = "full";
const MIB: f64 = (1 << 20) as f64;
