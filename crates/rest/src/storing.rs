//! A request's records to the store: which partition each goes to, and what became of it.
//!
//! Records for one partition are stored in the request's order. Every request awaits its own
//! records only; that requests of all connections share a sync is the store's group commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::UnixMillis;
use bytes::Bytes;
use streams::{EventStore, ProduceBatch, ProduceOnce, Record, StreamsError, TopicName};
use tokio::task::JoinSet;

use crate::error::{RestError, record_code};
use crate::idempotency::Once;
use crate::routes::Shared;
use crate::{limits, partitioner};

/// A record, and the partition that it is to go to; none lets its key decide.
#[derive(Clone)]
pub(crate) struct Asked {
    pub record: Record,
    pub partition: Option<i32>,
}

/// Where a record went, or why it did not.
#[derive(Clone)]
pub(crate) enum Outcome {
    Placed { partition: i32, offset: i64 },
    Refused { code: u32, reason: Arc<str> },
}

/// How many partitions a topic has, which its stream's or the store's policy may create.
pub(crate) async fn partitions_of(shared: &Shared, topic: &TopicName) -> Result<i32, RestError> {
    let found = shared.store.partitions_or_create(topic).await;
    found.map_err(|error| match error {
        StreamsError::AutoCreateOff(name) => RestError::TopicNotFound(name.display().to_owned()),
        error => RestError::Store(error),
    })
}

/// Stores records of one request in a topic of so many partitions; answers what became of each, in
/// their order.
pub(crate) async fn store(
    shared: &Shared,
    topic: &TopicName,
    partitions: i32,
    asked: Vec<Asked>,
) -> Vec<Outcome> {
    let (count, bytes) = (asked.len(), asked.iter().map(|it| record_bytes(&it.record)));
    let bytes = bytes.sum::<usize>() as u64;
    shared.bytes_in.increment(bytes);
    let broke_off = Outcome::Refused {
        // Its task panicked; whether the record was stored is not known.
        code: 50002,
        reason: "the store broke off".into(),
    };
    let mut outcomes = vec![broke_off; count];
    let turn = match shared.store.is_shared() {
        true => shared.turns.of_moment(shared.clock.now(), bytes),
        false => shared.turns.of_request(),
    };
    let parts = place(turn, partitions, asked, &mut outcomes);
    store_all(&shared.store, topic, parts, &mut outcomes).await;
    shared.records_in.increment(count as u64);
    outcomes
}

/// Stores records of one request under its key, all or none, or finds where they were stored under
/// it before; says which, and when the first request came.
///
/// # Errors
/// The store's, when the key was used for another request.
pub(crate) async fn store_once(
    shared: &Shared,
    topic: &TopicName,
    partitions: i32,
    asked: Vec<Asked>,
    once: &Once,
) -> Result<(Vec<Outcome>, Recalled), RestError> {
    let bytes = asked.iter().map(|it| record_bytes(&it.record));
    shared.bytes_in.increment(bytes.sum::<usize>() as u64);
    let (count, turn) = (asked.len(), once.turn());
    let nothing = Outcome::Refused {
        code: 50002,
        reason: "the key's answer does not tell of this record".into(),
    };
    let mut outcomes = vec![nothing; count];
    let parts = place(turn, partitions, asked.clone(), &mut outcomes);
    let fresh = Recalled {
        is_recalled: false,
        at: once.at,
    };
    if parts.is_empty() {
        return Ok((outcomes, fresh));
    }
    let mut batch_bytes = limits::BATCH_BYTES;
    let stored = loop {
        let request = once_of(topic, partitions, &parts, once, batch_bytes);
        let is_split = request.batches.iter().all(|batch| batch.records.len() == 1);
        match shared.store.produce_once(request).await {
            Err(StreamsError::MessageTooLarge { .. }) if !is_split => batch_bytes /= 2,
            outcome => break outcome,
        }
    };
    let stored = match stored {
        Err(StreamsError::KeyReused) => return Err(StreamsError::KeyReused.into()),
        Err(error) => {
            let (code, reason) = (record_code(&error), Arc::from(base::report(&error)));
            for (index, _) in parts.values().flatten() {
                outcomes[*index] = Outcome::Refused {
                    code,
                    reason: Arc::clone(&reason),
                };
            }
            return Ok((outcomes, fresh));
        }
        Ok(stored) => stored,
    };
    // The topic may have got more partitions since: the first request's places count.
    let then = i32::try_from(stored.partitions).unwrap_or(partitions);
    let parts = match then == partitions {
        true => parts,
        false => place(turn, then, asked, &mut outcomes),
    };
    for (partition, part) in &parts {
        let runs = stored.runs.iter().filter(|run| run.partition == *partition);
        let offsets = runs.flat_map(|run| (run.base_offset..).take(run.count as usize));
        for ((index, _), offset) in part.iter().zip(offsets) {
            outcomes[*index] = Outcome::Placed {
                partition: *partition,
                offset,
            };
        }
    }
    shared.records_in.increment(match stored.is_recalled {
        true => 0,
        false => count as u64,
    });
    let recalled = Recalled {
        is_recalled: stored.is_recalled,
        at: stored.at,
    };
    Ok((outcomes, recalled))
}

/// Whether an answer repeats an earlier one, and when that one's request came.
#[derive(Clone, Copy)]
pub(crate) struct Recalled {
    pub is_recalled: bool,
    pub at: UnixMillis,
}

fn once_of(
    topic: &TopicName,
    partitions: i32,
    parts: &BTreeMap<i32, Part>,
    once: &Once,
    batch_bytes: usize,
) -> ProduceOnce {
    let of_part = |(partition, part): (&i32, &Part)| {
        let (topic, partition) = (topic.clone(), *partition);
        let batches = batches(part.clone(), batch_bytes).into_iter();
        batches.map(move |batch| ProduceBatch {
            topic: topic.clone(),
            partition,
            records: batch.into_iter().map(|(_, record)| record).collect(),
            sequence: None,
        })
    };
    ProduceOnce {
        key: once.key,
        fingerprint: once.fingerprint,
        partitions: u32::try_from(partitions).unwrap_or(0),
        at: once.at,
        batches: parts.iter().flat_map(of_part).collect(),
    }
}

type Part = Vec<(usize, Record)>;

/// Chooses each record's partition; what names a partition that is not there gets its outcome.
fn place(
    turn: u64,
    partitions: i32,
    asked: Vec<Asked>,
    outcomes: &mut [Outcome],
) -> BTreeMap<i32, Part> {
    let sticky = partitioner::of_turn(turn, partitions);
    let mut parts: BTreeMap<i32, Part> = BTreeMap::new();
    for (index, Asked { record, partition }) in asked.into_iter().enumerate() {
        let partition = match (partition, &record.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => streams::partition_of_key(key, partitions),
            (None, None) => sticky,
        };
        if (0..partitions).contains(&partition) {
            parts.entry(partition).or_default().push((index, record));
        } else {
            let reason = format!("partition {partition} not found; there are {partitions}");
            outcomes[index] = Outcome::Refused {
                code: 40402,
                reason: reason.into(),
            };
        }
    }
    parts
}

async fn store_all(
    store: &Arc<dyn EventStore>,
    topic: &TopicName,
    mut parts: BTreeMap<i32, Part>,
    outcomes: &mut [Outcome],
) {
    if parts.len() == 1
        && let Some((partition, part)) = parts.pop_first()
    {
        for (index, outcome) in store_part(&**store, topic.clone(), partition, part).await {
            outcomes[index] = outcome;
        }
        return;
    }
    // Tasks, so that the partitions' records meet in one sync. They end with the request.
    let mut tasks = JoinSet::new();
    for (partition, part) in parts {
        let (store, topic) = (store.clone(), topic.clone());
        tasks.spawn(async move { store_part(&*store, topic, partition, part).await });
    }
    while let Some(done) = tasks.join_next().await {
        for (index, outcome) in done.unwrap_or_default() {
            outcomes[index] = outcome;
        }
    }
}

/// Stores one partition's records in order, in batches that the store takes.
async fn store_part(
    store: &dyn EventStore,
    topic: TopicName,
    partition: i32,
    part: Part,
) -> Vec<(usize, Outcome)> {
    let mut outcomes = Vec::with_capacity(part.len());
    let mut waiting: Vec<Part> = batches(part, limits::BATCH_BYTES);
    waiting.reverse();
    let mut failure: Option<(u32, Arc<str>)> = None;
    while let Some(mut batch) = waiting.pop() {
        if let Some((code, reason)) = &failure {
            let refused = Outcome::Refused {
                code: *code,
                reason: reason.clone(),
            };
            outcomes.extend(batch.iter().map(|(index, _)| (*index, refused.clone())));
            continue;
        }
        let indices: Vec<usize> = batch.iter().map(|(index, _)| *index).collect();
        let records: Vec<Record> = batch.iter_mut().map(|(_, record)| record.clone()).collect();
        let request = ProduceBatch {
            topic: topic.clone(),
            partition,
            records,
            sequence: None,
        };
        match store.produce(request).await {
            Ok(placed) => {
                let offsets = placed.base_offset..;
                outcomes.extend(indices.into_iter().zip(offsets).map(|(index, offset)| {
                    (
                        index,
                        Outcome::Placed {
                            partition: placed.partition,
                            offset,
                        },
                    )
                }));
            }
            Err(StreamsError::MessageTooLarge { .. }) if batch.len() > 1 => {
                let back = batch.split_off(batch.len() / 2);
                waiting.push(back);
                waiting.push(batch);
            }
            Err(error) => {
                let (code, reason) = (record_code(&error), Arc::from(base::report(&error)));
                let refused = Outcome::Refused {
                    code,
                    reason: Arc::clone(&reason),
                };
                outcomes.extend(indices.into_iter().map(|index| (index, refused.clone())));
                // One record that is too large says nothing about those after it; any other
                // failure does, and storing them now would tear the request's order.
                if !matches!(error, StreamsError::MessageTooLarge { .. }) {
                    failure = Some((code, reason));
                }
            }
        }
    }
    outcomes
}

fn batches(part: Part, bytes_max: usize) -> Vec<Part> {
    let mut batches = Vec::new();
    let (mut batch, mut bytes) = (Part::new(), 0);
    for (index, record) in part {
        let more = record_bytes(&record);
        if !batch.is_empty() && bytes + more > bytes_max {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += more;
        batch.push((index, record));
    }
    batches.push(batch);
    batches
}

fn record_bytes(record: &Record) -> usize {
    let part = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    part(&record.key) + part(&record.value)
}
