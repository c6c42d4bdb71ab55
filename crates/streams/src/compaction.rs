//! Compaction: of the records with one key the last stays.
//!
//! A pass reads the part of a partition that it has not seen, notes the last offset of each key
//! there, and then rewrites what is superseded from the partition's start on. A record without a
//! value, a tombstone, stays for its topic's `delete.retention.ms` after the pass that first met
//! it, so that whoever reads from the start learns of it. What is not yet old enough, not yet
//! decided by its transaction, or the partition's last batch, waits for a later pass.
//!
//! A pass changes no frame: rewritten batches are appended, the index follows, and the next
//! snapshot makes that durable. A crash before it loses the work and nothing else.

mod rewrite;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;
use journal::{Durability, Position};

use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::index::Located;
use crate::limits::{COMPACTION_BYTES_MIN, COMPACTION_KEYS_MAX};
use crate::partition::{Partition, storage};
use crate::store::Streams;
use rewrite::Rewritten;

/// How a topic is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompactionPolicy {
    /// Records younger than this are left alone.
    pub(crate) lag_min: Duration,
    /// How long tombstones stay once their keys' older records are gone.
    pub(crate) delete_retention: Duration,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// Bytes of batches before and after.
    pub(crate) bytes_before: u64,
    pub(crate) bytes_after: u64,
}

impl Streams {
    /// Compacts the partitions of compacted topics of which enough is not compacted yet.
    pub(crate) fn compact_due(&self) -> Result<(), StreamsError> {
        let now = self.clock().now();
        for topic in self.topics_snapshot() {
            let settings = topic.settings();
            if !settings.is_compacting {
                continue;
            }
            let policy = CompactionPolicy {
                lag_min: settings.compaction_lag_min,
                delete_retention: settings.tombstone_retention,
            };
            for partition in topic.partitions() {
                let (dirty, all) = partition.dirty_bytes();
                let is_enough = dirty as f64 >= settings.dirty_ratio_min * all as f64;
                if dirty < COMPACTION_BYTES_MIN || !is_enough {
                    continue;
                }
                let outcome = partition.compact(now, policy);
                // Also after a failure: some of the index may have followed before it.
                self.note_moved(self.shared().journal.end());
                let compacted = outcome?;
                tracing::debug!(?partition, ?compacted, "compacted a partition");
            }
        }
        Ok(())
    }
}

/// Refuses a batch with a record that no key stands for.
pub(crate) fn check_keyed(batch: &Bytes, header: &BatchHeader) -> Result<(), StreamsError> {
    if header.is_control() {
        return Ok(());
    }
    rewrite::visit(batch, |entry| match entry.key {
        Some(_) => Ok(()),
        None => Err(StreamsError::InvalidRecord(
            "records of a compacted topic need keys",
        )),
    })
}

impl Partition {
    /// Runs one pass. Blocks on the journal.
    pub(crate) fn compact(
        &self,
        now: UnixMillis,
        policy: CompactionPolicy,
    ) -> Result<Compacted, StreamsError> {
        self.bring_chunks_back(Position(u64::MAX))?;
        let (start, clean_end, end) = self.compactable();
        let mut keys = Keys::default();
        let until = self.note_keys(&mut keys, clean_end, end, now - policy.lag_min)?;
        let mut compacted = Compacted::default();
        if until <= clean_end {
            return Ok(compacted);
        }
        let horizon = now.0.saturating_add(millis(policy.delete_retention));
        let mut from = start;
        while from < until {
            let (batches, next) = self.batches_between(from, until);
            let mut edits = HashMap::new();
            for batch in batches {
                compacted.bytes_before += u64::from(batch.bytes);
                compacted.bytes_after += u64::from(batch.bytes);
                if let Some(edit) = self.edit_of(batch, &keys, now, horizon)? {
                    compacted.bytes_after -= u64::from(batch.bytes);
                    compacted.bytes_after += edit.map_or(0, |new| u64::from(new.bytes));
                    edits.insert((batch.base_offset, batch.position), edit);
                }
            }
            self.settle(&edits)?;
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        self.note_clean(until);
        Ok(compacted)
    }

    /// Notes the last offset of each key from `from` on; answers up to where it has looked.
    fn note_keys(
        &self,
        keys: &mut Keys,
        from: i64,
        end: i64,
        young: UnixMillis,
    ) -> Result<i64, StreamsError> {
        let mut at = from;
        while at < end {
            let (batches, next) = self.batches_between(at, end);
            for batch in batches {
                if batch.max_timestamp >= young.0 || keys.is_full() {
                    return Ok(at);
                }
                let bytes = self.fetch(batch)?;
                let header = BatchHeader::read(&bytes)?;
                if !header.is_control() && !self.is_aborted(&header) {
                    let noted = rewrite::visit(&bytes, |entry| {
                        if let Some(key) = entry.key {
                            keys.note(key, entry.offset);
                        }
                        Ok(())
                    });
                    unless_malformed(noted)?;
                }
                at = header.base_offset + header.offsets();
            }
            match next {
                Some(next) => at = at.max(next),
                None => break,
            }
        }
        Ok(at)
    }

    /// What is to become of a batch: nothing, another, or none.
    fn edit_of(
        &self,
        batch: Located,
        keys: &Keys,
        now: UnixMillis,
        horizon: i64,
    ) -> Result<Option<Option<Located>>, StreamsError> {
        let bytes = self.fetch(batch)?;
        let header = BatchHeader::read(&bytes)?;
        // Readers that are under way need a transaction's marker as long as its records.
        if header.is_control() {
            return Ok(None);
        }
        if self.is_aborted(&header) {
            return Ok(Some(None));
        }
        let may_go = header
            .delete_horizon()
            .is_some_and(|horizon| horizon <= now.0);
        let rewritten = unless_malformed(rewrite::rewrite(&bytes, Some(horizon), |entry| {
            let superseded = entry
                .key
                .is_some_and(|key| keys.supersede(key, entry.offset));
            !(superseded || entry.is_tombstone && may_go)
        }))?;
        match rewritten {
            None | Some(Rewritten::Unchanged) => Ok(None),
            Some(Rewritten::Gone) => Ok(Some(None)),
            Some(Rewritten::Batch(bytes)) => Ok(Some(Some(Located {
                position: self.append_moved(&bytes)?,
                bytes: u32::try_from(bytes.len()).map_err(|_| {
                    StreamsError::InvalidRecord("a rewritten batch is larger than any may be")
                })?,
                ..batch
            }))),
        }
    }

    /// Has the index follow once the new batches can be read.
    fn settle(&self, edits: &Edits) -> Result<(), StreamsError> {
        if edits.is_empty() {
            return Ok(());
        }
        self.journal()
            .append_blocking(&[], Durability::Os)
            .map_err(storage)?;
        self.edit_index(edits);
        Ok(())
    }
}

/// Batches by offset and place, and what stands for each from now on.
pub(crate) type Edits = HashMap<(i64, Position), Option<Located>>;

/// The last offset of each key, by a hash of it that nobody outside can predict.
#[derive(Default)]
struct Keys {
    hashers: (RandomState, RandomState),
    last: HashMap<(u64, u64), i64>,
}

impl Keys {
    fn note(&mut self, key: &[u8], offset: i64) {
        self.last.insert(self.hash(key), offset);
    }

    fn is_full(&self) -> bool {
        self.last.len() >= COMPACTION_KEYS_MAX
    }

    /// Whether a record of this key behind `offset` was noted.
    fn supersede(&self, key: &[u8], offset: i64) -> bool {
        let last = self.last.get(&self.hash(key));
        last.is_some_and(|last| *last > offset)
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        (self.hashers.0.hash_one(key), self.hashers.1.hash_one(key))
    }
}

/// None for a batch whose records do not read: it came before the topic was compacted, and stays
/// what it is.
fn unless_malformed<T>(read: Result<T, StreamsError>) -> Result<Option<T>, StreamsError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(StreamsError::InvalidRecord(_) | StreamsError::UnsupportedFormat(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
/// What is left of a batch whose records are kept by the bits of `kept`, eight in turn; for the
/// fuzz target of batches.
pub(crate) fn left_of(batch: &Bytes, horizon: Option<i64>, kept: u8) -> Option<Bytes> {
    let outcome = rewrite::rewrite(batch, horizon, |entry| {
        kept >> (entry.offset.rem_euclid(8)) & 1 == 1
    });
    match outcome {
        Ok(Rewritten::Batch(left)) => Some(left),
        Ok(Rewritten::Gone | Rewritten::Unchanged) | Err(_) => None,
    }
}
