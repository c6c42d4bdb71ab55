//! What a partition remembers of idempotent producers: enough to store each batch once, in order.
//!
//! Per producer its epoch and its last five batches. All of it can be rebuilt by replaying the
//! batch headers in order, which is what recovery does; deciding takes no clock, so that a replay
//! decides the same.

use std::collections::{HashMap, VecDeque};

use base::UnixMillis;

use crate::batch::{BatchHeader, sequence_after};
use crate::error::StreamsError;
use crate::limits::{PRODUCER_BATCHES_REMEMBERED, PRODUCERS_PER_PARTITION_MAX};
use crate::marker::Marker;

/// The producers of one partition; allocates nothing while there are none.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    by_id: HashMap<i64, Producer>,
}

/// One producer's state, as it is kept and as a snapshot stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    /// Its epoch.
    pub(crate) epoch: i16,
    /// The greatest time of its last batch, or its last marker's, in ms; -1 when an older version
    /// did not write that down.
    pub(crate) last_timestamp: i64,
    /// When it last wrote since the store was opened, in ms, whatever its batches claim.
    pub(crate) heard_at: i64,
    /// Its last batches, oldest first; none after a marker of a newer epoch.
    pub(crate) batches: VecDeque<Sequenced>,
}

/// A stored batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequenced {
    /// Sequence of its first record.
    pub(crate) first: i32,
    /// Sequence of its last record.
    pub(crate) last: i32,
    /// Offset of its first record.
    pub(crate) base_offset: i64,
    /// Records less one.
    pub(crate) last_delta: i32,
}

/// What is to be done with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It continues what is stored (or has no sequence): store it.
    New,
    /// It was stored before.
    Duplicate(Sequenced),
}

impl Producers {
    /// Judges a batch that came in; changes nothing.
    pub(crate) fn judge(&self, header: &BatchHeader) -> Result<Verdict, StreamsError> {
        if header.producer_id < 0 {
            return Ok(Verdict::New);
        }
        let known = self.by_id.get(&header.producer_id);
        // A producer that nobody remembers may go on from any sequence: it may have been
        // forgotten after a long silence, and Kafka treats it so.
        let Some(known) = known else {
            return Ok(Verdict::New);
        };
        if header.producer_epoch < known.epoch {
            return Err(StreamsError::InvalidProducerEpoch {
                producer_id: header.producer_id,
                got: header.producer_epoch,
                current: known.epoch,
            });
        }
        let expected = if header.producer_epoch > known.epoch {
            0
        } else {
            if let Some(stored) = known.find(header) {
                return Ok(Verdict::Duplicate(stored));
            }
            known.expected()
        };
        if header.base_sequence != expected {
            return Err(StreamsError::OutOfOrderSequence {
                producer_id: header.producer_id,
                got: header.base_sequence,
                expected,
            });
        }
        Ok(Verdict::New)
    }

    /// Remembers a batch that got its place at the time `at`, in ms.
    pub(crate) fn remember(&mut self, header: &BatchHeader, base_offset: i64, at: i64) {
        if header.producer_id < 0 {
            return;
        }
        let by_id = &mut self.by_id;
        if by_id.len() >= PRODUCERS_PER_PARTITION_MAX && !by_id.contains_key(&header.producer_id) {
            forget_silent(by_id);
        }
        let producer = by_id.entry(header.producer_id).or_insert_with(|| Producer {
            epoch: header.producer_epoch,
            last_timestamp: header.max_timestamp,
            heard_at: at,
            batches: VecDeque::with_capacity(1),
        });
        producer.last_timestamp = header.max_timestamp;
        producer.heard_at = at;
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
        }
        if producer.batches.len() == PRODUCER_BATCHES_REMEMBERED {
            producer.batches.pop_front();
        }
        producer.batches.push_back(Sequenced {
            first: header.base_sequence,
            last: header.last_sequence(),
            base_offset,
            last_delta: header.last_offset_delta,
        });
    }

    /// What is remembered of a producer.
    pub(crate) fn of(&self, id: i64) -> Option<&Producer> {
        self.by_id.get(&id)
    }

    /// Takes in what another partition remembers of a producer, as if all had been written here.
    pub(crate) fn adopt(&mut self, id: i64, other: Producer) {
        let by_id = &mut self.by_id;
        if by_id.len() >= PRODUCERS_PER_PARTITION_MAX && !by_id.contains_key(&id) {
            forget_silent(by_id);
        }
        match by_id.get_mut(&id) {
            Some(known) => known.merge(other),
            None => drop(by_id.insert(id, other)),
        }
    }

    /// Takes in a marker: it may carry a newer epoch, which fences the older.
    pub(crate) fn note_marker(&mut self, marker: Marker, timestamp: i64) {
        let Some(producer) = self.by_id.get_mut(&marker.producer_id) else {
            return;
        };
        producer.last_timestamp = timestamp;
        producer.heard_at = timestamp;
        if marker.producer_epoch > producer.epoch {
            producer.epoch = marker.producer_epoch;
            producer.batches.clear();
        }
    }

    /// Forgets who wrote nothing since `before` and is not `held`; tells since when the longest
    /// silent of those that are left has been. Everybody counts as having written at `opened`: what
    /// batches claim of their time may be far off.
    pub(crate) fn expire(
        &mut self,
        opened: UnixMillis,
        before: UnixMillis,
        held: impl Fn(i64) -> bool,
    ) -> Option<UnixMillis> {
        let mut oldest: Option<i64> = None;
        self.by_id.retain(|id, producer| {
            if held(*id) {
                return true;
            }
            let wrote = producer.heard_at.max(opened.0);
            if wrote <= before.0 {
                return false;
            }
            oldest = Some(oldest.map_or(wrote, |oldest| oldest.min(wrote)));
            true
        });
        if self.by_id.is_empty() {
            self.by_id = HashMap::new();
        }
        oldest.map(UnixMillis)
    }

    /// Whether nobody is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// All producers, by id.
    pub(crate) fn all(&self) -> Vec<(i64, &Producer)> {
        let by_id = self.by_id.iter();
        let mut all: Vec<(i64, &Producer)> = by_id.map(|(id, producer)| (*id, producer)).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// The producers of a snapshot.
    pub(crate) fn restored(producers: Vec<(i64, Producer)>) -> Self {
        let by_id = producers.into_iter().collect();
        Producers { by_id }
    }
}

impl Producer {
    /// Whether a batch is one of those remembered, or the next.
    pub(crate) fn goes_on_with(&self, header: &BatchHeader) -> bool {
        let is_known = || self.find(header).is_some() || header.base_sequence == self.expected();
        header.producer_epoch == self.epoch && is_known()
    }

    fn find(&self, header: &BatchHeader) -> Option<Sequenced> {
        let (first, last) = (header.base_sequence, header.last_sequence());
        self.batches
            .iter()
            .find(|batch| batch.first == first && batch.last == last)
            .copied()
    }

    fn expected(&self) -> i32 {
        self.batches
            .back()
            .map_or(0, |batch| sequence_after(batch.last, 1))
    }

    /// Takes in what is remembered of the same producer elsewhere. Sequences go round from 2^31-1 to
    /// 0, so the newest batch is the one that all others are less than half of that behind.
    fn merge(&mut self, other: Producer) {
        if other.epoch != self.epoch {
            if other.epoch > self.epoch {
                *self = other;
            }
            return;
        }
        self.last_timestamp = self.last_timestamp.max(other.last_timestamp);
        self.heard_at = self.heard_at.max(other.heard_at);
        let behind = |from: i32, to: i32| from.wrapping_sub(to) & i32::MAX;
        let ends = [self.batches.back(), other.batches.back()];
        let newest = ends.into_iter().flatten().map(|batch| batch.last);
        let newest = newest.reduce(|a, b| if behind(a, b) < i32::MAX / 2 { a } else { b });
        let Some(newest) = newest else {
            return;
        };
        for batch in other.batches {
            if !self.batches.iter().any(|known| known.last == batch.last) {
                self.batches.push_back(batch);
            }
        }
        let batches = self.batches.make_contiguous();
        batches.sort_by_key(|batch| std::cmp::Reverse(behind(newest, batch.last)));
        while self.batches.len() > PRODUCER_BATCHES_REMEMBERED {
            self.batches.pop_front();
        }
    }

    fn last_offset(&self) -> i64 {
        self.batches.back().map_or(-1, |batch| batch.base_offset)
    }
}

/// Forgets the tenth of the producers that wrote longest ago, so that room is made seldom. Those
/// that write once make room before anybody who goes on.
fn forget_silent(by_id: &mut HashMap<i64, Producer>) {
    let nth = by_id.len() / 10;
    let offsets = |by_id: &HashMap<i64, Producer>, is_open: fn(i64) -> bool| -> Vec<i64> {
        let open = by_id.iter().filter(|(id, _)| is_open(**id));
        open.map(|(_, producer)| producer.last_offset()).collect()
    };
    let once = |id| id >= ONE_SHOT_ID_MIN;
    let mut open = offsets(by_id, once);
    let is_open: fn(i64) -> bool = if open.len() > nth {
        once
    } else {
        open = offsets(by_id, |_| true);
        |_| true
    };
    let (_, oldest_kept, _) = open.select_nth_unstable(nth);
    let oldest_kept = *oldest_kept;
    by_id.retain(|id, producer| !is_open(*id) || producer.last_offset() >= oldest_kept);
}

/// Producers from this id on write once and never again: their ids follow from what they write, and
/// ids that are given out in turn never come this far.
pub(crate) const ONE_SHOT_ID_MIN: i64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    fn header(epoch: i16, first: i32, count: i32) -> BatchHeader {
        BatchHeader {
            base_offset: 0,
            bytes: 0,
            attributes: 0,
            last_offset_delta: count - 1,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: 7,
            producer_epoch: epoch,
            base_sequence: first,
            record_count: count,
        }
    }

    fn stored(batches: &[(i16, i32, i32)]) -> Producers {
        let (mut producers, mut offset) = (Producers::default(), 100);
        for (epoch, first, count) in batches {
            let header = header(*epoch, *first, *count);
            assert_eq!(producers.judge(&header).unwrap(), Verdict::New);
            producers.remember(&header, offset, 1);
            offset += i64::from(*count);
        }
        producers
    }

    #[test]
    fn a_producer_goes_on_with_what_it_stored_and_what_is_next() {
        let producers = stored(&[(1, 0, 2), (1, 2, 3)]);
        let producer = producers.of(7).unwrap();
        for (epoch, first, count, expected) in [
            (1, 5, 1, true),
            (1, 2, 3, true),
            (1, 2, 2, false),
            (1, 6, 1, false),
            (2, 5, 1, false),
        ] {
            let header = header(epoch, first, count);
            assert_eq!(producer.goes_on_with(&header), expected, "{header:?}");
        }
    }

    #[test]
    fn what_two_partitions_remember_of_a_producer_is_one_history() {
        let of = |epoch, firsts: &[i32]| Producer {
            epoch,
            last_timestamp: 1,
            heard_at: 1,
            batches: firsts
                .iter()
                .map(|first| Sequenced {
                    first: *first,
                    last: *first,
                    base_offset: 0,
                    last_delta: 0,
                })
                .collect(),
        };
        for (here, there, expected) in [
            (of(0, &[0, 2]), of(0, &[1, 3]), vec![0, 1, 2, 3]),
            (of(0, &[4]), of(0, &[1, 2, 3, 4]), vec![1, 2, 3, 4]),
            (of(0, &[5, 6, 7]), of(0, &[1, 2, 3, 4]), vec![3, 4, 5, 6, 7]),
            (
                of(0, &[i32::MAX]),
                of(0, &[i32::MAX - 1, 0]),
                vec![i32::MAX - 1, i32::MAX, 0],
            ),
            (of(1, &[0]), of(0, &[7]), vec![0]),
            (of(0, &[7]), of(1, &[0]), vec![0]),
        ] {
            let mut producers = Producers::restored(vec![(9, here)]);
            producers.adopt(9, there);
            let merged = producers.of(9).unwrap();
            let firsts: Vec<i32> = merged.batches.iter().map(|batch| batch.first).collect();
            assert_eq!(firsts, expected);
        }
    }

    #[test]
    fn a_batch_sent_again_is_found_at_its_old_offset() {
        let producers = stored(&[(0, 0, 3), (0, 3, 2), (0, 5, 1)]);
        let Verdict::Duplicate(found) = producers.judge(&header(0, 3, 2)).unwrap() else {
            panic!("it was taken as new");
        };
        assert_eq!((found.base_offset, found.last_delta), (103, 1));
    }

    #[test]
    fn a_gap_is_out_of_order_and_so_is_what_was_forgotten() {
        let batches: Vec<(i16, i32, i32)> = (0..6).map(|n| (0, n * 2, 2)).collect();
        let producers = stored(&batches);
        for (first, count) in [(13, 1), (0, 2), (11, 1), (10, 3)] {
            let refused = producers.judge(&header(0, first, count));
            assert!(
                matches!(
                    refused,
                    Err(StreamsError::OutOfOrderSequence { expected: 12, .. })
                ),
                "sequence {first} gave {refused:?}"
            );
        }
    }

    #[test]
    fn a_newer_epoch_starts_at_zero_and_fences_the_older() {
        let mut producers = stored(&[(0, 0, 3)]);
        assert!(matches!(
            producers.judge(&header(1, 3, 1)),
            Err(StreamsError::OutOfOrderSequence { expected: 0, .. })
        ));
        assert_eq!(producers.judge(&header(1, 0, 1)).unwrap(), Verdict::New);
        producers.remember(&header(1, 0, 1), 200, 1);
        assert!(matches!(
            producers.judge(&header(0, 3, 1)),
            Err(StreamsError::InvalidProducerEpoch {
                got: 0,
                current: 1,
                ..
            })
        ));
    }

    #[test]
    fn sequences_go_round_after_the_largest() {
        let producers = stored(&[(0, i32::MAX - 1, 4)]);
        assert_eq!(producers.judge(&header(0, 2, 1)).unwrap(), Verdict::New);
    }

    #[test]
    fn who_is_silent_for_too_long_may_begin_anew() {
        let mut producers = Producers::default();
        for (id, at) in [(7, 1_000), (8, 2_000), (9, 500)] {
            let header = BatchHeader {
                producer_id: id,
                ..header(0, 0, 1)
            };
            producers.remember(&header, at, at);
        }
        let nobody = producers.expire(UnixMillis(1_500), UnixMillis(1_000), |_| false);
        assert_eq!(nobody, Some(UnixMillis(1_500)));
        // The one of 9 has a transaction open.
        let next = producers.expire(UnixMillis(0), UnixMillis(1_000), |id| id == 9);
        assert_eq!(next, Some(UnixMillis(2_000)));
        let left: Vec<i64> = producers.all().iter().map(|(id, _)| *id).collect();
        assert_eq!(left, [8, 9]);
        assert_eq!(producers.judge(&header(0, 50, 1)).unwrap(), Verdict::New);
    }

    #[test]
    fn the_longest_silent_are_forgotten_at_the_bound() {
        let mut producers = Producers::default();
        for n in 0..PRODUCERS_PER_PARTITION_MAX + 1 {
            let n = i64::try_from(n).unwrap();
            producers.remember(
                &BatchHeader {
                    producer_id: n,
                    ..header(0, 0, 1)
                },
                n,
                n,
            );
        }
        let kept = producers.all();
        assert!(kept.len() <= PRODUCERS_PER_PARTITION_MAX);
        assert_eq!(kept[0].0, 1_000);
    }
}
