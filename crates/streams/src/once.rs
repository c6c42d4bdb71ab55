//! Producing once by a key of the caller's choice: who sends the same request again, to whichever
//! process, is told where the first one was stored.
//!
//! What became of a key is a record of the topic [`TOPIC`], written with the key's records:
//!
//! ```text
//! record key    the key's hash, 32 bytes
//! record value  version 1, u8 | fingerprint, 32 bytes | partitions, u32 | at, i64 ms
//!               then for each run of records: partition i32, base offset i64, count u32
//! ```
//!
//! All numbers little-endian. A key's partition there follows from its hash. This file decides and
//! encodes; `embedded` and `cluster::keyed` store. Keys are forgotten after [`ONCE_KEY_AGE_MAX`],
//! and the oldest first when there are more than [`ONCE_KEYS_MAX`].

pub(crate) mod embedded;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use base::UnixMillis;
use bytes::Bytes;

use crate::config::Durability;
use crate::error::StreamsError;
use crate::event_store::{ProduceBatch, TopicSpec};
use crate::limits::{ONCE_KEY_AGE_MAX, ONCE_KEYS_MAX, ONCE_PARTITIONS, ONCE_RUNS_MAX};
use crate::record::Record;
use crate::topic::TopicName;
use crate::topic_config::TopicConfig;

/// A hash that stands for a key: of who sends it, what it is sent to, and its text.
pub type OnceKey = [u8; 32];

/// Records that are stored at most once under a key.
#[derive(Clone, Debug)]
pub struct ProduceOnce {
    /// The key.
    pub key: OnceKey,
    /// The hash of the request, which is the same whenever the key is.
    pub fingerprint: [u8; 32],
    /// How many partitions the records were placed by; told again when the key is.
    pub partitions: u32,
    /// When the request came; told again when the key is.
    pub at: UnixMillis,
    /// The records, all of one topic; a partition's batches in their order.
    pub batches: Vec<ProduceBatch>,
}

/// What became of a key's records, now or when it came first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOnce {
    /// As in the first request.
    pub partitions: u32,
    /// When the first request came.
    pub at: UnixMillis,
    /// Where the records are, in the order of the batches.
    pub runs: Vec<Run>,
    /// Whether the key was known and nothing was stored now.
    pub is_recalled: bool,
}

/// Records that lie one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The partition.
    pub partition: i32,
    /// The first one's offset.
    pub base_offset: i64,
    /// How many.
    pub count: u32,
}

/// What a key came to, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    fingerprint: [u8; 32],
    partitions: u32,
    at: UnixMillis,
    runs: Vec<Run>,
}

/// The keys that are remembered, by age.
#[derive(Default)]
pub(crate) struct KeyBook {
    by_key: HashMap<OnceKey, Arc<Outcome>>,
    by_age: VecDeque<(UnixMillis, OnceKey)>,
}

impl Outcome {
    pub(crate) fn of(asked: &ProduceOnce, runs: Vec<Run>) -> Self {
        Outcome {
            fingerprint: asked.fingerprint,
            partitions: asked.partitions,
            at: asked.at,
            runs,
        }
    }

    /// The record that tells of it.
    pub(crate) fn record(&self, key: &OnceKey) -> Record {
        let mut value = Vec::with_capacity(HEAD_BYTES + self.runs.len() * RUN_BYTES);
        value.push(VERSION);
        value.extend_from_slice(&self.fingerprint);
        value.extend_from_slice(&self.partitions.to_le_bytes());
        value.extend_from_slice(&self.at.0.to_le_bytes());
        for run in &self.runs {
            value.extend_from_slice(&run.partition.to_le_bytes());
            value.extend_from_slice(&run.base_offset.to_le_bytes());
            value.extend_from_slice(&run.count.to_le_bytes());
        }
        Record::of_value(value).with_key(key.to_vec())
    }

    /// Reads a record; none when it is not one of ours.
    pub(crate) fn of_record(
        key: Option<&Bytes>,
        value: Option<&Bytes>,
    ) -> Option<(OnceKey, Outcome)> {
        let key: OnceKey = key?.as_ref().try_into().ok()?;
        let value = value?;
        if *value.first()? != VERSION || value.len() < HEAD_BYTES {
            return None;
        }
        let runs = value.get(HEAD_BYTES..)?;
        if !runs.len().is_multiple_of(RUN_BYTES) || runs.len() / RUN_BYTES > ONCE_RUNS_MAX {
            return None;
        }
        let run = |bytes: &[u8]| {
            Some(Run {
                partition: i32::from_le_bytes(bytes.get(0..4)?.try_into().ok()?),
                base_offset: i64::from_le_bytes(bytes.get(4..12)?.try_into().ok()?),
                count: u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?),
            })
        };
        let outcome = Outcome {
            fingerprint: value.get(1..33)?.try_into().ok()?,
            partitions: u32::from_le_bytes(value.get(33..37)?.try_into().ok()?),
            at: UnixMillis(i64::from_le_bytes(value.get(37..45)?.try_into().ok()?)),
            runs: runs
                .chunks_exact(RUN_BYTES)
                .map(run)
                .collect::<Option<_>>()?,
        };
        Some((key, outcome))
    }

    /// What the same key is told; an error when another request came with it.
    pub(crate) fn recalled(&self, asked: &ProduceOnce) -> Result<StoredOnce, StreamsError> {
        if self.fingerprint != asked.fingerprint {
            return Err(StreamsError::KeyReused);
        }
        Ok(StoredOnce {
            is_recalled: true,
            ..self.stored()
        })
    }

    /// What the first request is told.
    pub(crate) fn stored(&self) -> StoredOnce {
        StoredOnce {
            partitions: self.partitions,
            at: self.at,
            runs: self.runs.clone(),
            is_recalled: false,
        }
    }
}

impl KeyBook {
    /// What became of a key, if it is remembered at `now`.
    pub(crate) fn find(&mut self, now: UnixMillis, key: &OnceKey) -> Option<Arc<Outcome>> {
        self.forget(now);
        self.by_key.get(key).cloned()
    }

    /// Remembers a key that came to an outcome at `at`; the first outcome stays.
    pub(crate) fn insert(&mut self, at: UnixMillis, key: OnceKey, outcome: Outcome) {
        if self.by_key.contains_key(&key) {
            return;
        }
        self.by_key.insert(key, Arc::new(outcome));
        self.by_age.push_back((at, key));
        if self.by_age.len() > ONCE_KEYS_MAX
            && let Some((_, oldest)) = self.by_age.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }

    fn forget(&mut self, now: UnixMillis) {
        while let Some((at, key)) = self.by_age.front().copied() {
            if now.since(at) < ONCE_KEY_AGE_MAX {
                return;
            }
            self.by_age.pop_front();
            self.by_key.remove(&key);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
}

/// The partition of [`TOPIC`] that a key's outcome goes to.
pub(crate) fn slot_of(key: &OnceKey) -> i32 {
    i32::from(key[0]) % ONCE_PARTITIONS
}

/// The topic that remembers keys.
pub(crate) fn topic() -> Result<TopicName, StreamsError> {
    Ok(TOPIC.parse()?)
}

/// The topic that remembers keys, as it is created.
pub(crate) fn topic_spec() -> Result<TopicSpec, StreamsError> {
    let retention = ONCE_KEY_AGE_MAX.as_millis().to_string();
    let mut spec = TopicSpec::of(topic()?).with_partitions(ONCE_PARTITIONS);
    spec.config = TopicConfig::of([
        ("retention.ms", retention.as_str()),
        // Kafka lets go of whole files only, and of none that it still writes.
        ("segment.ms", "3600000"),
    ])?;
    // It must outlive the process, as what it tells of does; a lost machine is seen to by the
    // records' own numbers.
    spec.durability = Some(Durability::Os);
    Ok(spec)
}

/// Refuses what no key's outcome can tell of.
pub(crate) fn check(asked: &ProduceOnce) -> Result<(), StreamsError> {
    if asked.batches.is_empty() || asked.batches.iter().any(|batch| batch.records.is_empty()) {
        return Err(StreamsError::InvalidRecord("it has no records"));
    }
    if asked.batches.len() > ONCE_RUNS_MAX {
        return Err(StreamsError::Limit {
            what: "batches under one key",
            max: ONCE_RUNS_MAX as u64,
        });
    }
    Ok(())
}

/// Where keys' outcomes are kept.
const TOPIC: &str = "__rest_idempotency";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 1 + 32 + 4 + 8;
const RUN_BYTES: usize = 4 + 8 + 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn asked(fingerprint: u8) -> ProduceOnce {
        ProduceOnce {
            key: [7; 32],
            fingerprint: [fingerprint; 32],
            partitions: 3,
            at: UnixMillis(5),
            batches: Vec::new(),
        }
    }

    fn outcome() -> Outcome {
        let run = |partition, base_offset| Run {
            partition,
            base_offset,
            count: 2,
        };
        Outcome::of(&asked(1), vec![run(0, 9), run(2, i64::MAX)])
    }

    #[test]
    fn an_outcome_survives_its_record_and_nothing_else_passes_for_one() {
        let outcome = outcome();
        let record = outcome.record(&[7; 32]);
        let read = Outcome::of_record(record.key.as_ref(), record.value.as_ref());
        assert_eq!(read, Some(([7; 32], outcome)));
        let (key, value) = (record.key.unwrap(), record.value.unwrap());
        for cut in 0..value.len() {
            let part = value.slice(..cut);
            let read = Outcome::of_record(Some(&key), Some(&part));
            assert_eq!(
                read.is_some(),
                cut >= HEAD_BYTES && (cut - HEAD_BYTES).is_multiple_of(RUN_BYTES)
            );
        }
        assert_eq!(Outcome::of_record(None, Some(&value)), None);
        assert_eq!(
            Outcome::of_record(Some(&key.slice(1..)), Some(&value)),
            None
        );
        let mut newer = value.to_vec();
        newer[0] = 2;
        assert_eq!(Outcome::of_record(Some(&key), Some(&newer.into())), None);
    }

    #[test]
    fn the_same_request_is_recalled_and_another_is_refused() {
        let outcome = outcome();
        assert!(outcome.recalled(&asked(1)).unwrap().is_recalled);
        let refused = outcome.recalled(&asked(2));
        assert!(
            matches!(refused, Err(StreamsError::KeyReused)),
            "{refused:?}"
        );
    }

    #[test]
    fn keys_are_forgotten_by_age_and_by_number() {
        let mut book = KeyBook::default();
        let at = |ms| UnixMillis(ms);
        book.insert(at(0), [1; 32], outcome());
        let late = at(0) + (ONCE_KEY_AGE_MAX - Duration::from_millis(1));
        assert!(book.find(late, &[1; 32]).is_some());
        assert!(book.find(at(0) + ONCE_KEY_AGE_MAX, &[1; 32]).is_none());
        assert_eq!(book.len(), 0);
        let key = |n: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&n.to_le_bytes());
            key
        };
        for n in 0..=ONCE_KEYS_MAX {
            book.insert(at(1), key(n), outcome());
        }
        assert_eq!(book.len(), ONCE_KEYS_MAX);
        assert!(book.find(at(1), &key(0)).is_none());
        assert!(book.find(at(1), &key(ONCE_KEYS_MAX)).is_some());
    }
}
