//! Where the batches of a partition lie in the journal: 16 bytes of memory each.
//!
//! Batches are kept in chunks; a chunk holds one batch's full numbers and the others' distances
//! to it, and a batch that is too far away for that starts the next chunk.

use std::collections::VecDeque;

use journal::Position;

/// The batches of one partition, by offset.
#[derive(Debug, Default)]
pub(crate) struct BatchIndex {
    chunks: VecDeque<Chunk>,
    bytes: u64,
}

/// One batch: what it holds and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// Offset of its first record.
    pub(crate) base_offset: i64,
    /// Position of its first byte.
    pub(crate) position: Position,
    /// Its size.
    pub(crate) bytes: u32,
    /// The greatest time of its records, in ms.
    pub(crate) max_timestamp: i64,
}

impl BatchIndex {
    /// Adds the batch that follows all others.
    pub(crate) fn push(&mut self, batch: Located) {
        self.bytes += u64::from(batch.bytes);
        if let Some(last) = self.chunks.back_mut() {
            if last.push(batch) {
                return;
            }
            last.entries.shrink_to_fit();
        }
        self.chunks.push_back(Chunk::of(batch));
    }

    /// The batch that holds `offset`, or else the first after it, and all that follow.
    pub(crate) fn since_offset(&self, offset: i64) -> impl Iterator<Item = Located> + '_ {
        let chunk = self
            .chunks
            .partition_point(|chunk| chunk.first_offset() <= offset);
        let chunk = chunk.saturating_sub(1);
        let entry = self.chunks.get(chunk).map_or(0, |found| found.find(offset));
        let tail = self.chunks.iter().skip(chunk);
        tail.enumerate().flat_map(move |(nth, chunk)| {
            let skip = if nth == 0 { entry } else { 0 };
            chunk.entries[skip..]
                .iter()
                .map(|entry| chunk.locate(entry))
        })
    }

    /// Batches with a record at or after `timestamp`, in order.
    pub(crate) fn since_time(&self, timestamp: i64) -> impl Iterator<Item = Located> + '_ {
        let chunks = self
            .chunks
            .iter()
            .filter(move |chunk| chunk.max_timestamp >= timestamp);
        chunks
            .flat_map(|chunk| chunk.entries.iter().map(|entry| chunk.locate(entry)))
            .filter(move |batch| batch.max_timestamp >= timestamp)
    }

    /// The first batch.
    pub(crate) fn first(&self) -> Option<Located> {
        let chunk = self.chunks.front()?;
        chunk.entries.first().map(|entry| chunk.locate(entry))
    }

    /// Bytes of all batches.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets the batches that end at or before `offset`; `end` is where the last one ends.
    pub(crate) fn forget_before(&mut self, offset: i64, end: i64) {
        while !self.chunks.is_empty() {
            let chunk_end = self.chunks.get(1).map_or(end, Chunk::first_offset);
            if chunk_end > offset {
                break;
            }
            let Some(chunk) = self.chunks.pop_front() else {
                return;
            };
            self.bytes -= chunk
                .entries
                .iter()
                .map(|entry| u64::from(entry.bytes))
                .sum::<u64>();
        }
        let Some(chunk) = self.chunks.front_mut() else {
            return;
        };
        let whole = chunk.find(offset);
        let gone = chunk.entries.drain(..whole);
        self.bytes -= gone.map(|entry| u64::from(entry.bytes)).sum::<u64>();
    }
}

#[derive(Debug)]
struct Chunk {
    base_offset: i64,
    base_position: u64,
    base_timestamp: i64,
    max_timestamp: i64,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: u32,
    position: u32,
    bytes: u32,
    timestamp: i32,
}

impl Chunk {
    fn of(batch: Located) -> Self {
        Chunk {
            base_offset: batch.base_offset,
            base_position: batch.position.0,
            base_timestamp: batch.max_timestamp,
            max_timestamp: batch.max_timestamp,
            entries: vec![Entry {
                offset: 0,
                position: 0,
                bytes: batch.bytes,
                timestamp: 0,
            }],
        }
    }

    fn push(&mut self, batch: Located) -> bool {
        if self.entries.len() >= CHUNK_BATCHES {
            return false;
        }
        let offset = batch.base_offset.checked_sub(self.base_offset);
        let offset = offset.and_then(|delta| u32::try_from(delta).ok());
        let position = batch.position.0.checked_sub(self.base_position);
        let position = position.and_then(|delta| u32::try_from(delta).ok());
        let timestamp = batch.max_timestamp.checked_sub(self.base_timestamp);
        let timestamp = timestamp.and_then(|delta| i32::try_from(delta).ok());
        let (Some(offset), Some(position), Some(timestamp)) = (offset, position, timestamp) else {
            return false;
        };
        self.max_timestamp = self.max_timestamp.max(batch.max_timestamp);
        self.entries.push(Entry {
            offset,
            position,
            bytes: batch.bytes,
            timestamp,
        });
        true
    }

    fn first_offset(&self) -> i64 {
        self.entries
            .first()
            .map_or(self.base_offset, |entry| self.base_offset_of(entry))
    }

    fn find(&self, offset: i64) -> usize {
        let after = self
            .entries
            .partition_point(|entry| self.base_offset_of(entry) <= offset);
        after.saturating_sub(1)
    }

    fn base_offset_of(&self, entry: &Entry) -> i64 {
        self.base_offset + i64::from(entry.offset)
    }

    fn locate(&self, entry: &Entry) -> Located {
        Located {
            base_offset: self.base_offset_of(entry),
            position: Position(self.base_position + u64::from(entry.position)),
            bytes: entry.bytes,
            max_timestamp: self.base_timestamp + i64::from(entry.timestamp),
        }
    }
}

/// Batches per chunk: 8 KiB of entries, so that a lookup touches little.
const CHUNK_BATCHES: usize = 512;

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn batch(base_offset: i64, position: u64, max_timestamp: i64) -> Located {
        Located {
            base_offset,
            position: Position(position),
            bytes: 100,
            max_timestamp,
        }
    }

    /// An index and the plain list that it stands for.
    fn sample(seed: u64) -> (BatchIndex, Vec<Located>, i64) {
        let mut rng = Rng::from_seed(seed);
        let (mut index, mut list) = (BatchIndex::default(), Vec::new());
        let (mut offset, mut position, mut time) = (0, 64, 1_700_000_000_000);
        for _ in 0..2_000 {
            let next = batch(offset, position, time);
            index.push(next);
            list.push(next);
            offset += 1 + i64::try_from(rng.below(9)).unwrap();
            position += if rng.one_in(300) {
                5 << 32
            } else {
                100 + rng.below(10_000)
            };
            time += i64::try_from(rng.below(2_000)).unwrap() - 900;
            if rng.one_in(400) {
                time = if time < 0 { 1_700_000_000_000 } else { -1 };
            }
        }
        (index, list, offset)
    }

    #[test]
    fn lookups_are_those_of_a_plain_list() {
        for seed in 0..20 {
            let (index, list, end) = sample(seed);
            let mut rng = Rng::from_seed(seed);
            for _ in 0..50 {
                let offset = i64::try_from(rng.below(u64::try_from(end).unwrap())).unwrap();
                let at = list.partition_point(|b| b.base_offset <= offset) - 1;
                let found: Vec<Located> = index.since_offset(offset).take(600).collect();
                assert_eq!(found, list[at..list.len().min(at + 600)], "seed {seed}");
                let time = 1_700_000_000_000 + offset * 10;
                let found: Vec<Located> = index.since_time(time).collect();
                let wanted = list.iter().filter(|b| b.max_timestamp >= time);
                assert_eq!(found, wanted.copied().collect::<Vec<_>>(), "seed {seed}");
            }
        }
    }

    #[test]
    fn forgetting_leaves_the_batch_that_holds_the_offset() {
        for seed in 0..20 {
            let (mut index, list, end) = sample(seed);
            let mut rng = Rng::from_seed(seed);
            let mut offset = 0;
            while offset < end {
                offset += i64::try_from(rng.below(700)).unwrap();
                index.forget_before(offset, end);
                let at = list.partition_point(|b| b.base_offset <= offset) - 1;
                let rest = if offset >= end { &[] } else { &list[at..] };
                assert_eq!(
                    index.since_offset(0).collect::<Vec<_>>(),
                    rest,
                    "seed {seed}"
                );
                assert_eq!(index.bytes(), 100 * rest.len() as u64);
                assert_eq!(index.first(), rest.first().copied());
            }
        }
    }
}
