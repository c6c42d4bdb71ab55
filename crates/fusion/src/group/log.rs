//! The log of a group's state: a topic of the store with a partition for each of the source's.
//!
//! A record's value is, all integers little-endian:
//!
//! ```text
//! version 1, u8 | kind, u8 | part, u32 | parts, u32 | bytes
//! kind 0   a claim: its bytes are a number of whoever took the partition over
//! kind 1   part of a whole checkpoint: the statement's form (u32 length, JSON), then the lane's
//! kind 2   part of the changes since the checkpoint before
//! ```
//!
//! Only the holder of the partition's name appends (`streams::FencedWriter`), each checkpoint in one
//! transaction with the rows that it accounts for. So a reader of committed records finds a whole
//! checkpoint with all its parts, then changes in order, and at last its own claim, behind which
//! nobody but itself writes. What lies before the latest whole checkpoint is deleted now and then.

use std::collections::BTreeMap;
use std::time::Instant;

use streams::{
    ConsumedRecord, ConsumerConfig, EventStore, Isolation, ProduceBatch, Record, StreamsError,
    TopicConfig, TopicName, TopicSpec,
};

use crate::codec::{Decoder, Encoder};
use crate::lane::checkpoint::{Checkpoint, KeptState};
use crate::limits::{
    GROUP_FORM_LOOK, GROUP_LOAD_WAIT, GROUP_LOOK, POLL_BYTES_MAX, PRODUCE_BYTES_MAX,
};

/// What is known of a partition's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The form of the statement that wrote it, and what it wrote; none where nobody has.
    pub(super) kept: Option<(Vec<u8>, KeptState)>,
}

/// Reads a partition up to a claim.
#[derive(Debug, Default)]
struct Reading {
    found: Found,
    /// The parts of a checkpoint that are there.
    parts: Vec<u8>,
    next: u32,
    /// Whether there are changes, and the whole checkpoint that they are of is gone.
    is_cut: bool,
}

/// Makes the log, with at least as many partitions as asked.
pub(super) async fn ready(
    store: &dyn EventStore,
    topic: &TopicName,
    partitions: i32,
) -> Result<(), StreamsError> {
    let mut spec = TopicSpec::of(topic.clone()).with_partitions(partitions);
    spec.config = TopicConfig::of([
        ("cleanup.policy", "delete"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
    ])?;
    let there = match store.topic(topic).await {
        Err(StreamsError::UnknownTopic(_)) => match store.create_topic(spec).await {
            Err(StreamsError::TopicExists(_)) => store.topic(topic).await?,
            created => created?,
        },
        found => found?,
    };
    match there.partitions < partitions {
        true => store.create_partitions(topic, partitions).await,
        false => Ok(()),
    }
}

/// The claim of whoever has just taken a partition over.
pub(super) fn claim(topic: &TopicName, partition: i32, number: u64) -> ProduceBatch {
    batch(topic, partition, (CLAIM, 0, 1), &number.to_le_bytes())
}

/// A checkpoint of a statement of that form, as the batches that hold it.
pub(super) fn batches(
    topic: &TopicName,
    partition: i32,
    form: &[u8],
    checkpoint: &Checkpoint,
) -> Vec<ProduceBatch> {
    let mut bytes = Encoder::default();
    let kind = match checkpoint.is_whole {
        true => {
            bytes.bytes(form);
            WHOLE
        }
        false => CHANGES,
    };
    bytes.0.extend_from_slice(&checkpoint.bytes);
    let parts: Vec<&[u8]> = bytes.0.chunks(PRODUCE_BYTES_MAX).collect();
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    (0..)
        .zip(parts)
        .map(|(part, bytes)| batch(topic, partition, (kind, part, count), bytes))
        .collect()
}

/// Reads what is kept of partitions, each up to the claim with that number.
pub(super) async fn load(
    store: &dyn EventStore,
    topic: &TopicName,
    claims: &BTreeMap<i32, u64>,
) -> Result<BTreeMap<i32, Found>, StreamsError> {
    let config = ConsumerConfig {
        isolation: Isolation::Committed,
        ..ConsumerConfig::alone(super::CLIENT_ID)
    };
    let mut reader = store.consumer(config).await?;
    let partitions = claims.keys().map(|partition| (topic.clone(), *partition));
    reader.assign(partitions.collect()).await?;
    let mut open: BTreeMap<i32, Reading> = claims
        .keys()
        .map(|partition| (*partition, Reading::default()))
        .collect();
    let mut found = BTreeMap::new();
    let deadline = Instant::now() + GROUP_LOAD_WAIT;
    while !open.is_empty() {
        if Instant::now() > deadline {
            let late = "the state of the statement's partitions could not be read in time";
            return Err(StreamsError::Unavailable(late.to_owned()));
        }
        for record in reader.poll(GROUP_LOOK, POLL_BYTES_MAX).await? {
            let partition = record.partition;
            let Some(reading) = open.get_mut(&partition) else {
                continue;
            };
            let claim = claims.get(&partition).copied();
            if reading.take(&record, claim)?
                && let Some(reading) = open.remove(&partition)
            {
                found.insert(partition, reading.found);
            }
        }
    }
    reader.close().await?;
    Ok(found)
}

/// The form of the statement that wrote last, by the shortest partition that holds one: a partition
/// that is new, or was only claimed, holds none. Takes nothing from anybody.
///
/// # Errors
/// The store's own; `Unavailable` when it is not read in time, which does not say that there is none.
pub(super) async fn form(
    store: &dyn EventStore,
    topic: &TopicName,
) -> Result<Option<Vec<u8>>, StreamsError> {
    let info = match store.topic(topic).await {
        Err(StreamsError::UnknownTopic(_)) => return Ok(None),
        found => found?,
    };
    let offsets = (0..).zip(&info.partition_offsets);
    let written = offsets.filter(|(_, range)| range.end > range.start);
    let mut written: Vec<(i32, i64, i64)> = written
        .map(|(partition, range)| (partition, range.start, range.end))
        .collect();
    written.sort_by_key(|(_, start, end)| end - start);
    let config = ConsumerConfig {
        isolation: Isolation::Committed,
        ..ConsumerConfig::alone(super::CLIENT_ID)
    };
    let mut reader = store.consumer(config).await?;
    let deadline = Instant::now() + GROUP_LOAD_WAIT;
    let mut form = None;
    for (partition, mut next, end) in written {
        reader.assign(vec![(topic.clone(), partition)]).await?;
        let mut reading = Reading::default();
        while next < end {
            if Instant::now() > deadline {
                let late = "the form of the group's state could not be read in time";
                return Err(StreamsError::Unavailable(late.to_owned()));
            }
            let records = reader.poll(GROUP_FORM_LOOK, POLL_BYTES_MAX).await?;
            match records.last() {
                Some(last) => next = last.offset + 1,
                // What lies before the end is no record: marks of transactions are none.
                None if reader.is_at_end(topic, partition) => break,
                // A cluster has not answered yet.
                None => {}
            }
            for record in &records {
                reading.take(record, None)?;
            }
        }
        if let Some((kept, _)) = reading.found.kept {
            form = Some(kept);
            break;
        }
    }
    reader.close().await?;
    Ok(form)
}

impl Reading {
    /// Takes a record in; true when it is the claim.
    fn take(&mut self, record: &ConsumedRecord, claim: Option<u64>) -> Result<bool, StreamsError> {
        let unreadable = || StreamsError::Unreadable("the state of a statement's group");
        let value = record.value.as_deref().ok_or_else(unreadable)?;
        let mut from = Decoder::new(value);
        let head = (from.u8(), from.u8(), from.u32(), from.u32());
        let (Some(VERSION), Some(kind), Some(part), Some(parts)) = head else {
            return Err(unreadable());
        };
        if kind == CLAIM {
            let is_own = claim.is_some_and(|claim| from.0 == claim.to_le_bytes());
            // To start over would count everything twice.
            return match is_own && self.is_cut {
                true => Err(unreadable()),
                false => Ok(is_own),
            };
        }
        if part == 0 {
            self.parts.clear();
            self.next = 0;
        }
        // The front of what was deleted up to here may be missing.
        if part != self.next {
            self.is_cut |= self.found.kept.is_none();
            return Ok(false);
        }
        self.parts.extend_from_slice(from.0);
        self.next += 1;
        if self.next < parts {
            return Ok(false);
        }
        let bytes = std::mem::take(&mut self.parts);
        match kind {
            WHOLE => {
                let mut from = Decoder::new(&bytes);
                let form = from.bytes().ok_or_else(unreadable)?.to_vec();
                let kept = KeptState {
                    whole: from.0.to_vec(),
                    changes: Vec::new(),
                };
                self.found.kept = Some((form, kept));
                self.is_cut = false;
            }
            CHANGES => {
                // Without the whole one before them they were on their way to being deleted.
                match &mut self.found.kept {
                    Some((_, kept)) => kept.changes.push(bytes),
                    None => self.is_cut = true,
                }
            }
            _ => return Err(unreadable()),
        }
        Ok(false)
    }
}

fn batch(
    topic: &TopicName,
    partition: i32,
    (kind, part, parts): (u8, u32, u32),
    bytes: &[u8],
) -> ProduceBatch {
    let mut value = Encoder::default();
    value.u8(VERSION);
    value.u8(kind);
    value.u32(part);
    value.u32(parts);
    value.0.extend_from_slice(bytes);
    ProduceBatch {
        topic: topic.clone(),
        partition,
        records: vec![Record::of_value(value.0)],
        sequence: None,
    }
}

const VERSION: u8 = 1;
const CLAIM: u8 = 0;
const WHOLE: u8 = 1;
const CHANGES: u8 = 2;

#[cfg(test)]
mod tests {
    use base::UnixMillis;

    use super::*;
    use crate::tests::house::stores;

    fn whole(bytes: Vec<u8>) -> Checkpoint {
        Checkpoint {
            bytes,
            is_whole: true,
        }
    }

    fn changes(bytes: &[u8]) -> Checkpoint {
        Checkpoint {
            bytes: bytes.to_vec(),
            is_whole: false,
        }
    }

    fn read(batches: &[ProduceBatch], claim: u64) -> (Found, bool) {
        try_read(batches, claim).unwrap()
    }

    fn try_read(batches: &[ProduceBatch], claim: u64) -> Result<(Found, bool), StreamsError> {
        let mut reading = Reading::default();
        let mut is_claimed = false;
        for (offset, batch) in (0..).zip(batches) {
            let record = ConsumedRecord {
                topic: batch.topic.clone(),
                partition: batch.partition,
                offset,
                timestamp: UnixMillis(0),
                key: None,
                value: batch.records[0].value.clone(),
                headers: Vec::new(),
            };
            is_claimed |= reading.take(&record, Some(claim))?;
        }
        Ok((reading.found, is_claimed))
    }

    #[test]
    fn the_latest_whole_checkpoint_counts_with_the_changes_behind_it() {
        let topic: TopicName = "log".parse().unwrap();
        let large: Vec<u8> = (0..PRODUCE_BYTES_MAX * 2 + 7).map(|n| n as u8).collect();
        let mut all = vec![claim(&topic, 3, 1)];
        all.extend(batches(&topic, 3, b"form", &whole(b"old".to_vec())));
        all.extend(batches(&topic, 3, b"form", &changes(b"lost with it")));
        let from = all.len();
        all.extend(batches(&topic, 3, b"newer", &whole(large.clone())));
        assert_eq!(all.len() - from, 3);
        all.extend(batches(&topic, 3, b"newer", &changes(b"first")));
        all.push(claim(&topic, 3, 2));
        all.extend(batches(&topic, 3, b"newer", &changes(&large)));
        all.push(claim(&topic, 3, 7));
        let kept = KeptState {
            whole: large.clone(),
            changes: vec![b"first".to_vec(), large],
        };
        let expected = Found {
            kept: Some((b"newer".to_vec(), kept)),
        };
        assert_eq!(read(&all, 7), (expected.clone(), true));
        assert_eq!(read(&all, 8), (expected.clone(), false));
        // What lies before the whole one may be deleted, in the middle of others too.
        for from in 1..=from {
            assert_eq!(read(&all[from..], 7), (expected.clone(), true));
        }
    }

    #[test]
    fn changes_without_the_whole_checkpoint_before_them_are_no_new_beginning() {
        let topic: TopicName = "log".parse().unwrap();
        let large = vec![7; PRODUCE_BYTES_MAX + 1];
        let mut all = batches(&topic, 0, b"form", &whole(large));
        all.extend(batches(&topic, 0, b"form", &changes(b"more")));
        all.push(claim(&topic, 0, 1));
        assert!(try_read(&all, 1).unwrap().0.kept.is_some());
        for from in 1..=all.len() - 2 {
            assert!(try_read(&all[from..], 1).is_err(), "{from}");
        }
        let claimed = try_read(&all[all.len() - 1..], 1).unwrap();
        assert_eq!(claimed, (Found::default(), true));
    }
    #[tokio::test]
    async fn the_form_is_found_where_partitions_are_only_claimed() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _mqtt) = stores(folder.path());
        let topic: TopicName = "log".parse().unwrap();
        assert_eq!(form(&*store, &topic).await.unwrap(), None);
        ready(&*store, &topic, 4).await.unwrap();
        for partition in 0..3 {
            let writer = store.fenced_writer(&format!("w{partition}")).await;
            let claimed = vec![claim(&topic, partition, 7)];
            writer.unwrap().store(claimed).await.unwrap();
        }
        assert_eq!(form(&*store, &topic).await.unwrap(), None);
        let mut writer = store.fenced_writer("w1").await.unwrap();
        for checkpoint in [whole(b"state".to_vec()), changes(b"more")] {
            let written = batches(&topic, 1, b"form", &checkpoint);
            writer.store(written).await.unwrap();
        }
        let found = form(&*store, &topic).await.unwrap();
        assert_eq!(found.as_deref(), Some(&b"form"[..]));
    }
}
