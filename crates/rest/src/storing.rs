//! A request's records to the store: which partition each goes to, and what became of it.
//!
//! Records for one partition are stored in the request's order. Every request awaits its own
//! records only; that requests of all connections share a sync is the store's group commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::UnixMillis;
use bytes::Bytes;
use streams::{EventStore, Placed, ProduceBatch, ProduceOnce, Record, StreamsError, TopicName};
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

/// Refuses records for topics that the proxies keep their own books in: what stands there is believed.
pub(crate) fn check_topic(shared: &Shared, topic: &TopicName) -> Result<(), RestError> {
    let is_of_schemas = || shared.embedding.topic() == Some(topic);
    match topic.wire_name().starts_with(OWN_TOPICS) || is_of_schemas() {
        true => Err(StreamsError::InternalTopic(topic.clone()).into()),
        false => Ok(()),
    }
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
    let count = asked.len();
    let bytes = asked.iter().map(|it| record_bytes(&it.record));
    let bytes = bytes.sum::<usize>() as u64;
    shared.bytes_in.increment(bytes);
    let mut outcomes = vec![None; count];
    let parts = place(turn(shared, bytes), partitions, asked, &mut outcomes);
    store_all(&shared.store, topic, parts, &mut outcomes).await;
    shared.records_in.increment(count as u64);
    let broke_off: Arc<str> = "the store broke off".into();
    let outcomes = outcomes.into_iter().map(|outcome| {
        outcome.unwrap_or_else(|| Outcome::Refused {
            // Its task panicked; whether the record was stored is not known.
            code: 50002,
            reason: Arc::clone(&broke_off),
        })
    });
    outcomes.collect()
}

/// As [`store`], where all records go to one partition: the one that is named, or without keys any.
/// They stay where they lie, since a record of an array costs less than moving it around; `again`
/// makes the same records once more, should the store find them too many for one batch.
pub(crate) async fn store_together(
    shared: &Shared,
    topic: &TopicName,
    partitions: i32,
    records: Vec<Record>,
    again: &Again<'_>,
    partition: Option<i32>,
) -> Vec<Outcome> {
    let count = records.len();
    let bytes = records.iter().map(record_bytes).sum::<usize>() as u64;
    shared.bytes_in.increment(bytes);
    let any = || partitioner::of_turn(turn(shared, bytes), partitions);
    let partition = partition.unwrap_or_else(any);
    let outcomes = store_part(&*shared.store, topic.clone(), partition, records, again).await;
    shared.records_in.increment(count as u64);
    outcomes
}

/// The turn of a request of so many bytes, by which its records without a key find their partition.
fn turn(shared: &Shared, bytes: u64) -> u64 {
    match shared.store.is_shared() {
        true => shared.turns.of_moment(shared.clock.now(), bytes),
        false => shared.turns.of_request(),
    }
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
    let bytes = bytes.sum::<usize>() as u64;
    shared.bytes_in.increment(bytes);
    let (count, turn) = (asked.len(), once.turn());
    let mut outcomes = vec![None; count];
    let parts = place(turn, partitions, asked.clone(), &mut outcomes);
    let fresh = Recalled {
        is_recalled: false,
        at: once.at,
    };
    if parts.is_empty() {
        return Ok((told(outcomes), fresh));
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
            for index in parts.values().flat_map(|part| &part.indices) {
                outcomes[*index] = Some(Outcome::Refused {
                    code,
                    reason: Arc::clone(&reason),
                });
            }
            return Ok((told(outcomes), fresh));
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
        for (index, offset) in part.indices.iter().zip(offsets) {
            outcomes[*index] = Some(Outcome::Placed {
                partition: *partition,
                offset,
            });
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
    Ok((told(outcomes), recalled))
}

/// The outcomes of a request under a key, of which the key's answer may not tell all.
fn told(outcomes: Vec<Option<Outcome>>) -> Vec<Outcome> {
    let outcomes = outcomes.into_iter().map(|outcome| {
        outcome.unwrap_or_else(|| Outcome::Refused {
            code: 50002,
            reason: "the key's answer does not tell of this record".into(),
        })
    });
    outcomes.collect()
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
        let batches = batches(part.records.clone(), batch_bytes).into_iter();
        batches.map(move |records| ProduceBatch {
            topic: topic.clone(),
            partition,
            records,
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

/// What of a request goes to one partition, in its order.
#[derive(Clone, Default)]
struct Part {
    /// Where each record stands in the request.
    indices: Vec<usize>,
    records: Vec<Record>,
}

/// Chooses each record's partition; what names a partition that is not there gets its outcome.
fn place(
    turn: u64,
    partitions: i32,
    asked: Vec<Asked>,
    outcomes: &mut [Option<Outcome>],
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
            let part = parts.entry(partition).or_default();
            part.indices.push(index);
            part.records.push(record);
        } else {
            let reason = format!("partition {partition} not found; there are {partitions}");
            outcomes[index] = Some(Outcome::Refused {
                code: 40402,
                reason: reason.into(),
            });
        }
    }
    parts
}

async fn store_all(
    store: &Arc<dyn EventStore>,
    topic: &TopicName,
    mut parts: BTreeMap<i32, Part>,
    outcomes: &mut [Option<Outcome>],
) {
    let mut note = |indices: Vec<usize>, stored: Vec<Outcome>| {
        for (index, outcome) in indices.into_iter().zip(stored) {
            outcomes[index] = Some(outcome);
        }
    };
    if parts.len() == 1
        && let Some((partition, Part { indices, records })) = parts.pop_first()
    {
        let stored = store_kept(&**store, topic.clone(), partition, records).await;
        note(indices, stored);
        return;
    }
    // Tasks, so that the partitions' records meet in one sync. They end with the request.
    let mut tasks = JoinSet::new();
    for (partition, Part { indices, records }) in parts {
        let (store, topic) = (store.clone(), topic.clone());
        tasks.spawn(async move {
            let stored = store_kept(&*store, topic, partition, records).await;
            (indices, stored)
        });
    }
    while let Some(done) = tasks.join_next().await {
        let (indices, stored) = done.unwrap_or_default();
        note(indices, stored);
    }
}

/// As [`store_part`], of records that nothing makes once more.
async fn store_kept(
    store: &dyn EventStore,
    topic: TopicName,
    partition: i32,
    records: Vec<Record>,
) -> Vec<Outcome> {
    let kept = records.clone();
    store_part(store, topic, partition, records, &|| kept.clone()).await
}

/// What makes the records of a request, or of one of its parts, once more.
pub(crate) type Again<'a> = dyn Fn() -> Vec<Record> + Sync + 'a;

/// Stores one partition's records in order, in batches that the store takes; answers what became of
/// each.
async fn store_part(
    store: &dyn EventStore,
    topic: TopicName,
    partition: i32,
    records: Vec<Record>,
    again: &Again<'_>,
) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(records.len());
    // Made when the first batch is found too large.
    let mut kept: Option<Vec<Record>> = None;
    let mut waiting = batches(records, limits::BATCH_BYTES);
    waiting.reverse();
    let mut failure: Option<Outcome> = None;
    while let Some(records) = waiting.pop() {
        let count = records.len();
        if let Some(refused) = &failure {
            outcomes.extend(std::iter::repeat_n(refused.clone(), count));
            continue;
        }
        let request = ProduceBatch {
            topic: topic.clone(),
            partition,
            records,
            sequence: None,
        };
        match store.produce(request).await {
            Ok(Placed {
                partition,
                base_offset,
            }) => {
                let offsets = (base_offset..).take(count);
                outcomes.extend(offsets.map(|offset| Outcome::Placed { partition, offset }));
            }
            Err(error) if is_of_a_record(&error) && count > 1 => {
                let kept = kept.get_or_insert_with(again);
                let first = outcomes.len();
                let Some(whole) = kept.get(first..first + count) else {
                    // Others' places would be answered for them.
                    let refused = Outcome::Refused {
                        code: 50002,
                        reason: "the records could not be made once more in smaller batches".into(),
                    };
                    outcomes.extend(std::iter::repeat_n(refused.clone(), count));
                    failure = Some(refused);
                    continue;
                };
                let (front, back) = whole.split_at(whole.len() / 2);
                waiting.push(back.to_vec());
                waiting.push(front.to_vec());
            }
            Err(error) => {
                let refused = Outcome::Refused {
                    code: record_code(&error),
                    reason: Arc::from(base::report(&error)),
                };
                outcomes.extend(std::iter::repeat_n(refused.clone(), count));
                // What is wrong with one record says nothing about those after it; any other
                // failure does, and storing them now would tear the request's order.
                if !is_of_a_record(&error) {
                    failure = Some(refused);
                }
            }
        }
    }
    outcomes
}

/// Whether some of a batch's records may be taken without the others.
fn is_of_a_record(error: &StreamsError) -> bool {
    matches!(
        error,
        StreamsError::MessageTooLarge { .. } | StreamsError::InvalidTimestamp(_)
    )
}

/// Records in batches of at most so many bytes, or of one record; most requests are one batch, which
/// stays where it lies.
fn batches(mut records: Vec<Record>, bytes_max: usize) -> Vec<Vec<Record>> {
    let (mut starts, mut bytes) = (Vec::new(), 0);
    for (index, record) in records.iter().enumerate() {
        let more = record_bytes(record);
        let start = starts.last().copied().unwrap_or(0);
        if index > start && bytes + more > bytes_max {
            starts.push(index);
            bytes = 0;
        }
        bytes += more;
    }
    let later = starts.into_iter().rev();
    let mut batches: Vec<Vec<Record>> = later.map(|start| records.split_off(start)).collect();
    batches.push(records);
    batches.reverse();
    batches
}

fn record_bytes(record: &Record) -> usize {
    let part = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    part(&record.key) + part(&record.value)
}

/// How the names of topics begin that hold the proxies' books.
const OWN_TOPICS: &str = "__rest_";

#[cfg(test)]
mod tests {
    use streams::{Streams, StreamsConfig, TopicConfig, TopicSpec};

    use super::*;

    /// The bytes of the records of each batch, of at most 10 bytes.
    fn cut(of: &[usize]) -> Vec<Vec<usize>> {
        let records = of.iter().map(|bytes| Record::of_value(vec![0_u8; *bytes]));
        let batches = batches(records.collect(), 10).into_iter();
        let sizes = batches.map(|batch| batch.iter().map(record_bytes).collect());
        sizes.collect()
    }

    #[tokio::test]
    async fn records_that_are_not_made_again_are_refused_at_their_places() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(base::SystemClock);
        let (streams, _) = Streams::open(folder.path(), StreamsConfig::default(), clock).unwrap();
        let store = streams.store();
        let topic: TopicName = "t".parse().unwrap();
        let spec = TopicSpec {
            config: TopicConfig::of([("max.message.bytes", "500")]).unwrap(),
            ..TopicSpec::of(topic.clone()).with_partitions(1)
        };
        store.create_topic(spec).await.unwrap();
        let records = |count: usize| vec![Record::of_value(vec![b'x'; 100]); count];
        let stored = async |again: usize| {
            let again = move || records(again);
            let outcomes = store_part(&*store, topic.clone(), 0, records(8), &again).await;
            let told = outcomes.iter().map(|outcome| match outcome {
                Outcome::Placed { offset, .. } => Ok(*offset),
                Outcome::Refused { code, .. } => Err(*code),
            });
            told.collect::<Vec<_>>()
        };
        assert_eq!(stored(7).await, vec![Err(50002); 8]);
        assert_eq!(stored(8).await, (0..8).map(Ok).collect::<Vec<_>>());
    }

    #[test]
    fn batches_are_cut_where_one_would_be_too_large() {
        assert_eq!(cut(&[10]), [vec![10]]);
        assert_eq!(cut(&[4, 6, 1]), [vec![4, 6], vec![1]]);
        assert_eq!(cut(&[11, 12, 0, 10]), [vec![11], vec![12], vec![0, 10]]);
        assert_eq!(cut(&[0, 11, 5, 5]), [vec![0], vec![11], vec![5, 5]]);
    }
}
