//! Compaction: of the records with one key the last stays.
//!
//! A pass reads the part of a partition that it has not seen, notes the last offset of each key
//! there, and then rewrites what is superseded from the partition's start on. A record without a
//! value, a tombstone, stays for its topic's `delete.retention.ms` after the pass that first met
//! it, so that whoever reads from the start learns of it; so does the marker of a committed
//! transaction of which no record is left. (An aborted one's marker stays: readers match it with
//! the list of aborted transactions.) What is not yet old enough or not yet decided by its
//! transaction waits for a later pass; the partition's last batch is read and stays as it is.
//!
//! A pass is due when enough has come in, by its share of the partition and by bytes; or when the
//! oldest of it reaches the topic's `max.compaction.lag.ms`, however little it is.
//!
//! A pass changes no frame: rewritten batches are appended, the index follows, and the next
//! snapshot makes that durable. A crash before it loses the work and nothing else.

mod purge;
mod rewrite;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;
use journal::{Durability, Position};

use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::index::Located;
use crate::limits::{COMPACTION_BYTES_MIN, COMPACTION_KEYS_MAX};
use crate::marker;
use crate::partition::{Partition, storage};
use crate::setbacks::Setbacks;
use crate::store::Streams;
use crate::tenants::named_by;
use crate::topic_config::TopicSettings;
use rewrite::Entry;
pub(crate) use rewrite::{Rewritten, emptied, rewrite as rewritten};

/// How a topic is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompactionPolicy {
    /// Records younger than this are left alone.
    pub(crate) lag_min: Duration,
    /// How long tombstones stay once their keys' older records are gone.
    pub(crate) delete_retention: Duration,
    /// Whether several tenants share the topic: each has keys of its own then.
    pub(crate) is_shared: bool,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// Bytes of batches before and after.
    pub(crate) bytes_before: u64,
    pub(crate) bytes_after: u64,
}

impl Streams {
    /// Compacts the partitions of compacted topics that are due; tells how long from now the next
    /// will be, if time alone makes one so.
    pub(crate) fn compact_due(&self) -> Result<Option<Duration>, StreamsError> {
        let now = self.clock().now();
        let mut next: Option<Duration> = None;
        let mut setbacks = Setbacks::default();
        for topic in self.topics_snapshot() {
            let settings = topic.settings();
            if !settings.is_compacting {
                continue;
            }
            let policy = CompactionPolicy {
                lag_min: settings.compaction_lag_min,
                delete_retention: settings.tombstone_retention,
                is_shared: self.collections().is_shared(topic.name()),
            };
            for partition in topic.partitions() {
                let due = partition.compaction_due(now, &settings);
                match setbacks
                    .pass(partition, due)?
                    .unwrap_or(Due::OnceMoreComesIn)
                {
                    Due::Now => {}
                    Due::In(pause) => {
                        next = Some(next.map_or(pause, |next| next.min(pause)));
                        continue;
                    }
                    Due::OnceMoreComesIn => continue,
                }
                // What is rewritten stands in no index for a while, so that nothing may be freed.
                let _alone = self.reclaiming().lock();
                tracing::debug!(?partition, "compacting a partition");
                let outcome = partition.compact(now, policy);
                // Also after a failure: some of the index may have followed before it.
                self.note_moved(self.shared().journal.end());
                let Some(compacted) = setbacks.pass(partition, outcome)? else {
                    continue;
                };
                tracing::debug!(?partition, ?compacted, "compacted a partition");
                // What was too young, or undecided, is looked at again.
                if let Some(lag) = settings.lag_bound()
                    && partition.dirty_bytes().0 > 0
                {
                    let pause = (lag / LATE_SHARE).max(RETRY_MIN);
                    next = Some(next.map_or(pause, |next| next.min(pause)));
                }
            }
        }
        setbacks.result()?;
        Ok(next)
    }
}

/// When a partition is to be compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    In(Duration),
    OnceMoreComesIn,
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
    fn compaction_due(
        &self,
        now: UnixMillis,
        settings: &TopicSettings,
    ) -> Result<Due, StreamsError> {
        let (dirty, all) = self.dirty_bytes();
        let is_enough = dirty as f64 >= settings.dirty_ratio_min * all as f64;
        if dirty >= COMPACTION_BYTES_MIN && is_enough {
            return Ok(Due::Now);
        }
        let (Some(lag), true) = (settings.lag_bound(), dirty > 0) else {
            return Ok(Due::OnceMoreComesIn);
        };
        let Some(since) = self.dirty_since()? else {
            // An open transaction holds all of it back.
            return Ok(Due::In((lag / LATE_SHARE).max(RETRY_MIN)));
        };
        let due = since + lag;
        Ok(if due <= now {
            Due::Now
        } else {
            Due::In(due.since(now).max(RETRY_MIN))
        })
    }

    /// Runs one pass. Blocks on the journal.
    pub(crate) fn compact(
        &self,
        now: UnixMillis,
        policy: CompactionPolicy,
    ) -> Result<Compacted, StreamsError> {
        self.bring_chunks_back(Position(u64::MAX))?;
        let (start, clean_end, last, end) = self.compactable();
        let mut keys = Keys {
            is_shared: policy.is_shared,
            ..Keys::default()
        };
        // Without a lag records are compacted whatever time they claim.
        let young = (!policy.lag_min.is_zero()).then(|| now - policy.lag_min);
        let until = self.note_keys(&mut keys, clean_end, end, young)?;
        let mut compacted = Compacted::default();
        if until <= clean_end {
            return Ok(compacted);
        }
        let horizon = now.0.saturating_add(millis(policy.delete_retention));
        let (mut from, rewritten_until) = (start, until.min(last));
        let mut writing = HashSet::new();
        while from < rewritten_until {
            let (batches, next) = self.batches_between(from, rewritten_until);
            let mut edits = HashMap::new();
            for batch in batches {
                compacted.bytes_before += u64::from(batch.bytes);
                compacted.bytes_after += u64::from(batch.bytes);
                if let Some(edit) = self.edit_of(batch, &keys, &mut writing, now, horizon)? {
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

    /// Notes the last offset of each key from `from` on, up to the first batch that is not older
    /// than `young`; answers up to where it has looked.
    fn note_keys(
        &self,
        keys: &mut Keys,
        from: i64,
        end: i64,
        young: Option<UnixMillis>,
    ) -> Result<i64, StreamsError> {
        let mut at = from;
        while at < end {
            let (batches, next) = self.batches_between(at, end);
            for batch in batches {
                let is_young = young.is_some_and(|young| batch.max_timestamp >= young.0);
                if is_young || keys.is_full() {
                    return Ok(at);
                }
                let bytes = self.fetch(batch)?;
                let header = BatchHeader::read(&bytes)?;
                if !header.is_control() && !self.is_aborted(&header) {
                    let noted = rewrite::visit(&bytes, |entry| {
                        keys.note(&entry);
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

    /// What is to become of a batch: nothing, another, or none. `writing` are the producers of
    /// which a record was met since their last marker.
    fn edit_of(
        &self,
        batch: Located,
        keys: &Keys,
        writing: &mut HashSet<i64>,
        now: UnixMillis,
        horizon: i64,
    ) -> Result<Option<Option<Located>>, StreamsError> {
        let bytes = self.fetch(batch)?;
        let header = BatchHeader::read(&bytes)?;
        let may_go = header
            .delete_horizon()
            .is_some_and(|horizon| horizon <= now.0);
        if header.is_control() {
            // Readers that are under way need a transaction's marker as long as its records.
            let has_records = writing.remove(&header.producer_id);
            let mut is_commit = false;
            rewrite::visit(&bytes, |entry| {
                is_commit = entry.key == Some(marker::COMMIT_KEY);
                Ok(())
            })?;
            return match header.delete_horizon() {
                _ if has_records || !is_commit => Ok(None),
                None => self.moved(batch, &rewrite::with_horizon(&bytes, horizon)?),
                Some(_) if may_go => Ok(Some(None)),
                Some(_) => Ok(None),
            };
        }
        if self.is_aborted(&header) {
            return Ok(Some(None));
        }
        let rewritten = unless_malformed(rewrite::rewrite(&bytes, Some(horizon), |entry| {
            !(keys.supersede(entry) || entry.is_tombstone && may_go)
        }))?;
        if header.is_transactional() && rewritten != Some(Rewritten::Gone) {
            writing.insert(header.producer_id);
        }
        match rewritten {
            None | Some(Rewritten::Unchanged) => Ok(None),
            Some(Rewritten::Gone) => Ok(Some(None)),
            Some(Rewritten::Batch(bytes)) => self.moved(batch, &bytes),
        }
    }

    /// Appends what a batch has become; answers the edit that this is.
    fn moved(&self, batch: Located, bytes: &[u8]) -> Result<Option<Option<Located>>, StreamsError> {
        Ok(Some(Some(Located {
            position: self.append_moved(bytes)?,
            bytes: u32::try_from(bytes.len()).map_err(|_| {
                StreamsError::InvalidRecord("a rewritten batch is larger than any may be")
            })?,
            ..batch
        })))
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

/// The last offset of each key, or of each tenant's keys, by a hash that nobody outside can predict.
#[derive(Default)]
struct Keys {
    is_shared: bool,
    hashers: (RandomState, RandomState),
    last: HashMap<(u64, u64), i64>,
}

impl Keys {
    fn note(&mut self, entry: &Entry<'_>) {
        if let Some(hash) = self.hash(entry) {
            self.last.insert(hash, entry.offset);
        }
    }

    fn is_full(&self) -> bool {
        self.last.len() >= COMPACTION_KEYS_MAX
    }

    /// Whether a record of the same key behind this one was noted.
    fn supersede(&self, entry: &Entry<'_>) -> bool {
        let last = self.hash(entry).and_then(|hash| self.last.get(&hash));
        last.is_some_and(|last| *last > entry.offset)
    }

    fn hash(&self, entry: &Entry<'_>) -> Option<(u64, u64)> {
        let whose = self.is_shared.then(|| named_by(entry.headers())).flatten();
        let key = (whose, entry.key?);
        Some((self.hashers.0.hash_one(&key), self.hashers.1.hash_one(&key)))
    }
}

/// None for a batch whose records do not read: it came before the topic was compacted, and stays
/// what it is.
pub(crate) fn unless_malformed<T>(
    read: Result<T, StreamsError>,
) -> Result<Option<T>, StreamsError> {
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

/// What cannot be compacted yet is looked at again after this share of the greatest lag.
const LATE_SHARE: u32 = 10;

/// Shortest pause until then.
const RETRY_MIN: Duration = Duration::from_secs(1);
