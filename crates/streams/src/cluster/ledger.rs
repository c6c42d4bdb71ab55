//! What is remembered of producers that number their batches, so that each batch is stored once.
//!
//! librdkafka numbers batches by itself and forgets the numbers with the process; ours outlive it.
//! So they are kept in the cluster, as committed offsets of a group per producer
//! (`thalweg.producer.<id>`), committed in the same transaction as the records:
//!
//! ```text
//! offset     the next sequence
//! metadata   1;<epoch>;<first>:<count>:<base offset>,…    the last five batches, oldest first
//! ```
//!
//! This file decides and does no IO.

use std::collections::VecDeque;
use std::fmt::Write;

use crate::batch::sequence_after;
use crate::error::StreamsError;
use crate::event_store::ProducerSequence;
use crate::limits::PRODUCER_BATCHES_REMEMBERED;

/// A producer's numbers in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    epoch: i16,
    batches: VecDeque<Stored>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stored {
    first: i32,
    count: i32,
    base_offset: i64,
}

/// What is to be done with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It continues what is stored: store it.
    New,
    /// It was stored before, at this offset.
    Stored(i64),
}

/// The group that keeps a producer's numbers.
pub(super) fn group_of(producer_id: i64) -> String {
    format!("{GROUP_PREFIX}{producer_id}")
}

/// Whether a group is one of ours, which nobody reads by.
pub(super) fn is_ledger(group: &str) -> bool {
    group.starts_with(GROUP_PREFIX)
}

impl Entry {
    /// Judges a batch of `count` records; changes nothing. Any batch is the first one of a producer
    /// that nobody remembers.
    pub(super) fn judge(
        &self,
        sequence: ProducerSequence,
        count: i32,
    ) -> Result<Verdict, StreamsError> {
        let Some(last) = self.batches.back() else {
            return Ok(Verdict::New);
        };
        if sequence.producer_epoch < self.epoch {
            return Err(StreamsError::InvalidProducerEpoch {
                producer_id: sequence.producer_id,
                got: sequence.producer_epoch,
                current: self.epoch,
            });
        }
        let expected = if sequence.producer_epoch > self.epoch {
            0
        } else {
            let same =
                |stored: &&Stored| stored.first == sequence.first_sequence && stored.count == count;
            if let Some(stored) = self.batches.iter().find(same) {
                return Ok(Verdict::Stored(stored.base_offset));
            }
            sequence_after(last.first, last.count)
        };
        if sequence.first_sequence != expected {
            return Err(StreamsError::OutOfOrderSequence {
                producer_id: sequence.producer_id,
                got: sequence.first_sequence,
                expected,
            });
        }
        Ok(Verdict::New)
    }

    /// Remembers a batch that was judged new.
    pub(super) fn remember(&mut self, sequence: ProducerSequence, count: i32, base_offset: i64) {
        if sequence.producer_epoch != self.epoch {
            self.epoch = sequence.producer_epoch;
            self.batches.clear();
        }
        if self.batches.len() == PRODUCER_BATCHES_REMEMBERED {
            self.batches.pop_front();
        }
        self.batches.push_back(Stored {
            first: sequence.first_sequence,
            count,
            base_offset,
        });
    }

    /// The offset to be committed for it.
    pub(super) fn offset(&self) -> i64 {
        let next = |last: &Stored| sequence_after(last.first, last.count);
        self.batches.back().map_or(0, next).into()
    }

    /// The metadata to be committed for it.
    pub(super) fn encoded(&self) -> String {
        let mut text = format!("{VERSION};{};", self.epoch);
        for (nth, stored) in self.batches.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "{comma}{}:{}:{}",
                stored.first, stored.count, stored.base_offset
            );
        }
        text
    }

    /// Reads what was committed.
    pub(super) fn decoded(text: &str) -> Result<Self, StreamsError> {
        Entry::read(text).ok_or(StreamsError::Unreadable(
            "a producer's numbers in the cluster, which a newer version or another program wrote",
        ))
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ';');
        if parts.next()? != VERSION {
            return None;
        }
        let epoch = parts.next()?.parse().ok()?;
        let batches = parts.next()?;
        let mut entry = Entry {
            epoch,
            batches: VecDeque::new(),
        };
        for stored in batches.split(',').take(PRODUCER_BATCHES_REMEMBERED) {
            let mut numbers = stored.splitn(3, ':');
            entry.batches.push_back(Stored {
                first: numbers.next()?.parse().ok()?,
                count: numbers.next()?.parse().ok()?,
                base_offset: numbers.next()?.parse().ok()?,
            });
        }
        Some(entry)
    }
}

const GROUP_PREFIX: &str = "thalweg.producer.";
const VERSION: &str = "1";

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(epoch: i16, first: i32) -> ProducerSequence {
        ProducerSequence {
            producer_id: 7,
            producer_epoch: epoch,
            first_sequence: first,
        }
    }

    #[test]
    fn each_batch_is_new_once_and_in_order() {
        let mut entry = Entry::default();
        assert_eq!(entry.judge(sequence(0, 40), 2).unwrap(), Verdict::New);
        for nth in 0..7 {
            let sequence = sequence(0, 40 + 2 * nth);
            assert_eq!(entry.judge(sequence, 2).unwrap(), Verdict::New);
            entry.remember(sequence, 2, 100 + i64::from(nth));
            assert_eq!(
                entry.judge(sequence, 2).unwrap(),
                Verdict::Stored(100 + i64::from(nth))
            );
        }
        // The first two are forgotten, and are out of order rather than new.
        for first in [40, 42, 56] {
            assert!(matches!(
                entry.judge(sequence(0, first), 2),
                Err(StreamsError::OutOfOrderSequence { expected: 54, .. })
            ));
        }
        assert_eq!(entry.offset(), 54);
        assert_eq!(entry.judge(sequence(1, 0), 1).unwrap(), Verdict::New);
        entry.remember(sequence(1, 0), 1, 200);
        assert!(matches!(
            entry.judge(sequence(0, 54), 1),
            Err(StreamsError::InvalidProducerEpoch { current: 1, .. })
        ));
    }

    #[test]
    fn what_is_committed_is_read_again() {
        let mut entry = Entry::default();
        for first in [i32::MAX - 1, 1, 3] {
            entry.remember(sequence(3, first), 3, i64::from(first));
            assert_eq!(Entry::decoded(&entry.encoded()).unwrap(), entry);
        }
        assert!(entry.encoded().len() < 200);
        for bad in ["", "2;0;1:1:1", "1;0;", "1;0;1:2", "1;x;1:1:1", "hello"] {
            assert!(Entry::decoded(bad).is_err(), "{bad} was read");
        }
    }
}
