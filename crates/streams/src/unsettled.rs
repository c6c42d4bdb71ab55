//! What a partition knows of transactions: which are open in it, and which were aborted.
//!
//! All of it follows from the batches and markers in their order, which is what recovery replays;
//! a snapshot stores it for the batches that are gone by then. Open transactions hold back the
//! last stable offset, up to which a `read_committed` reader may go. A transaction that has its
//! marker holds it back too until the marker is visible, so that nobody reads a decision that a
//! crash could take back.

use std::collections::{HashMap, VecDeque};

use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::marker::Marker;

/// The transactions of one partition; allocates nothing while there are none.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    some: Option<Box<Known>>,
}

/// An aborted transaction as it lies in the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aborted {
    /// Its producer.
    pub(crate) producer_id: i64,
    /// Offset of its first record.
    pub(crate) first: i64,
    /// Offset of its marker.
    pub(crate) last: i64,
    /// The last stable offset after it: no later entry begins before it.
    pub(crate) stable: i64,
}

/// Transactions as a snapshot stores them, in as many frames as it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TransactionsStanding {
    /// Producer and first offset of what is open, by producer.
    pub(crate) open: Vec<(i64, i64)>,
    /// What was aborted, by the marker's offset.
    pub(crate) aborted: Vec<Aborted>,
}

#[derive(Debug, Default)]
struct Known {
    /// First offset by producer.
    open: HashMap<i64, i64>,
    /// First offset and marker's offset of those whose marker is not visible yet.
    ending: VecDeque<(i64, i64)>,
    aborted: VecDeque<Aborted>,
}

impl Transactions {
    /// Takes in what a snapshot says, perhaps a part of it: where that knows better, since replay
    /// began behind a transaction's first batch, it is believed; the rest stays.
    pub(crate) fn restore(&mut self, standing: TransactionsStanding) {
        if standing == TransactionsStanding::default() {
            return;
        }
        let known = self.some.get_or_insert_default();
        known.open.extend(standing.open);
        for aborted in standing.aborted {
            let at = known.aborted.partition_point(|a| a.last < aborted.last);
            match known.aborted.get_mut(at) {
                Some(same) if same.last == aborted.last => *same = aborted,
                _ => known.aborted.insert(at, aborted),
            }
        }
    }

    /// A producer with an open transaction writes nothing outside of it.
    pub(crate) fn check(&self, header: &BatchHeader) -> Result<(), StreamsError> {
        if !header.is_transactional() && self.first_of(header.producer_id).is_some() {
            return Err(StreamsError::InvalidRecord(
                "its producer has a transaction open and the batch is outside of it",
            ));
        }
        Ok(())
    }

    /// Takes in a batch that has its place.
    pub(crate) fn note_batch(&mut self, header: &BatchHeader, base_offset: i64) {
        if header.is_transactional() && !header.is_control() {
            let known = self.some.get_or_insert_default();
            known.open.entry(header.producer_id).or_insert(base_offset);
        }
    }

    /// Takes in a marker at `offset`; the partition ends after it.
    pub(crate) fn note_marker(&mut self, marker: Marker, offset: i64) {
        let Some(known) = &mut self.some else { return };
        let Some(first) = known.open.remove(&marker.producer_id) else {
            return;
        };
        known.ending.push_back((first, offset));
        if !marker.is_commit {
            let stable = known.open.values().copied().min().unwrap_or(offset + 1);
            known.aborted.push_back(Aborted {
                producer_id: marker.producer_id,
                first,
                last: offset,
                stable,
            });
        }
    }

    /// Everything before `high` is visible.
    pub(crate) fn settle(&mut self, high: i64) {
        let Some(known) = &mut self.some else { return };
        while known.ending.front().is_some_and(|(_, last)| *last < high) {
            known.ending.pop_front();
        }
        self.shrink();
    }

    /// The last stable offset when everything before `high` is visible.
    pub(crate) fn stable(&self, high: i64) -> i64 {
        let Some(known) = &self.some else { return high };
        let open = known.open.values().copied();
        let unseen = known.ending.iter().filter(|(_, last)| *last >= high);
        open.chain(unseen.map(|(first, _)| *first))
            .min()
            .map_or(high, |first| first.min(high))
    }

    /// Producer and first offset of the aborted transactions that may have records within
    /// `from..to`, by the marker's offset.
    pub(crate) fn aborted(&self, from: i64, to: i64) -> Vec<(i64, i64)> {
        let Some(known) = &self.some else {
            return Vec::new();
        };
        let skip = known.aborted.partition_point(|aborted| aborted.last < from);
        let mut found = Vec::new();
        for aborted in known.aborted.range(skip..) {
            if aborted.first < to {
                found.push((aborted.producer_id, aborted.first));
            }
            if aborted.stable >= to {
                break;
            }
        }
        found
    }

    /// Whether the producer's transactional batch at `offset` was aborted.
    pub(crate) fn is_aborted(&self, producer_id: i64, offset: i64) -> bool {
        let Some(known) = &self.some else {
            return false;
        };
        let skip = known
            .aborted
            .partition_point(|aborted| aborted.last < offset);
        // The producer's first marker after the batch decides; only aborts are listed, and a
        // committed transaction of it in between begins after the batch.
        let mut later = known.aborted.range(skip..);
        later
            .find(|aborted| aborted.producer_id == producer_id || aborted.stable > offset)
            .is_some_and(|a| a.producer_id == producer_id && a.first <= offset)
    }

    /// First offset of the producer's open transaction.
    pub(crate) fn first_of(&self, producer_id: i64) -> Option<i64> {
        self.some.as_ref()?.open.get(&producer_id).copied()
    }

    /// The producer of an open transaction, the lowest first.
    pub(crate) fn any_open(&self) -> Option<i64> {
        self.some.as_ref()?.open.keys().min().copied()
    }

    /// Forgets what lies before `start` altogether.
    pub(crate) fn forget_before(&mut self, start: i64) {
        let Some(known) = &mut self.some else { return };
        while known.aborted.front().is_some_and(|a| a.last < start) {
            known.aborted.pop_front();
        }
        self.shrink();
    }

    /// What a snapshot stores; none when there is nothing.
    pub(crate) fn standing(&self) -> Option<TransactionsStanding> {
        let known = self.some.as_ref()?;
        let mut open: Vec<(i64, i64)> = known.open.iter().map(|(id, at)| (*id, *at)).collect();
        open.sort_unstable();
        Some(TransactionsStanding {
            open,
            aborted: known.aborted.iter().copied().collect(),
        })
    }

    fn shrink(&mut self) {
        let is_empty = |known: &Known| {
            known.open.is_empty() && known.ending.is_empty() && known.aborted.is_empty()
        };
        if self.some.as_deref().is_some_and(is_empty) {
            self.some = None;
        }
    }
}

impl TransactionsStanding {
    /// The same in pieces with at most `count` entries each.
    pub(crate) fn pieces(mut self, count: usize) -> Vec<Self> {
        let mut pieces = vec![TransactionsStanding {
            open: std::mem::take(&mut self.open),
            aborted: Vec::new(),
        }];
        pieces.extend(self.aborted.chunks(count).map(|aborted| {
            let aborted = aborted.to_vec();
            let open = Vec::new();
            TransactionsStanding { open, aborted }
        }));
        pieces
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn batch(producer_id: i64) -> BatchHeader {
        BatchHeader {
            base_offset: 0,
            bytes: 0,
            attributes: crate::batch::TRANSACTION_BIT,
            last_offset_delta: 0,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            record_count: 1,
        }
    }

    fn marker(producer_id: i64, is_commit: bool) -> Marker {
        Marker {
            producer_id,
            producer_epoch: 0,
            is_commit,
        }
    }

    #[test]
    fn the_oldest_open_transaction_holds_the_stable_offset_until_its_marker_is_visible() {
        let mut known = Transactions::default();
        known.note_batch(&batch(1), 5);
        known.note_batch(&batch(2), 7);
        assert_eq!((known.stable(4), known.stable(9)), (4, 5));
        known.note_marker(marker(1, true), 9);
        assert_eq!(known.stable(9), 5, "its marker is not visible yet");
        known.settle(10);
        assert_eq!(known.stable(10), 7);
        known.note_marker(marker(2, true), 10);
        known.settle(11);
        assert_eq!(known.stable(11), 11);
        assert!(known.some.is_none(), "nothing is left to know");
    }

    #[test]
    fn a_batch_outside_of_the_open_transaction_is_refused() {
        let mut known = Transactions::default();
        known.note_batch(&batch(1), 5);
        let outside = BatchHeader {
            attributes: 0,
            ..batch(1)
        };
        assert!(known.check(&outside).is_err());
        assert!(known.check(&batch(1)).is_ok());
        assert!(
            known
                .check(&BatchHeader {
                    producer_id: 2,
                    ..outside
                })
                .is_ok()
        );
    }

    /// Plays random transactions and compares every answer with a plain list.
    #[test]
    fn aborted_lookups_are_those_of_a_plain_list() {
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let mut known = Transactions::default();
            let mut open: Vec<(i64, i64)> = Vec::new();
            let mut batches: Vec<(i64, i64)> = Vec::new();
            let mut aborted: Vec<(i64, i64, i64)> = Vec::new();
            for offset in 0..120 {
                let id = i64::try_from(rng.below(4)).unwrap();
                let at = open.iter().position(|(of, _)| *of == id);
                match at {
                    Some(at) if rng.one_in(3) => {
                        let (_, first) = open.swap_remove(at);
                        let is_commit = rng.one_in(2);
                        known.note_marker(marker(id, is_commit), offset);
                        if !is_commit {
                            aborted.push((id, first, offset));
                        }
                    }
                    _ => {
                        known.note_batch(&batch(id), offset);
                        batches.push((id, offset));
                        if at.is_none() {
                            open.push((id, offset));
                        }
                    }
                }
                known.settle(offset + 1);
            }
            let standing = known.standing().unwrap_or_default();
            let mut known = Transactions::default();
            known.restore(standing);
            for from in 0..120 {
                let to = from + i64::try_from(rng.below(30)).unwrap();
                let overlapping = aborted
                    .iter()
                    .filter(|(_, first, last)| *last >= from && *first < to);
                let expected: Vec<(i64, i64)> =
                    overlapping.map(|(id, first, _)| (*id, *first)).collect();
                assert_eq!(
                    known.aborted(from, to),
                    expected,
                    "seed {seed} {from}..{to}"
                );
            }
            for (id, offset) in batches {
                let expected = aborted
                    .iter()
                    .any(|(of, first, last)| *of == id && (*first..=*last).contains(&offset));
                assert_eq!(
                    known.is_aborted(id, offset),
                    expected,
                    "seed {seed} at {offset}"
                );
            }
        }
    }
}
