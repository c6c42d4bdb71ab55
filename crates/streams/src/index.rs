//! Where the batches of a partition lie in the journal.
//!
//! Batches are kept in chunks; a chunk holds one batch's full numbers and the others' distances
//! to it, and a batch that is too far away for that starts the next chunk. A chunk that is full
//! can be put away into the journal as a frame of its own: then only its outline stays in memory,
//! about a byte for ten batches, and a reader fetches the rest when it needs it.
//!
//! | a chunk's bytes, little-endian | |
//! | --- | --- |
//! | base offset, position, time, greatest time | `i64`, `u64`, `i64`, `i64` |
//! | batches | 16 bytes each: distances of offset `u32` and position `u32`, size `u32`, time `i32` |

use std::collections::VecDeque;

use journal::Position;

use crate::compaction::Edits;

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

/// Consecutive batches, at hand or to be fetched from the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// These.
    Here(Vec<Located>),
    /// Those of a chunk that was put away.
    Away(Away),
}

/// Where a chunk's bytes lie that was put away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Away {
    /// Position of its first byte.
    pub(crate) position: Position,
    /// Its bytes.
    pub(crate) bytes: u32,
}

/// A chunk as it stands, for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StandingChunk {
    /// Its bytes.
    Here(Vec<u8>),
    /// Its outline, and where its bytes lie.
    Away(Outline, Away),
}

/// What is known of a chunk without its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outline {
    /// Offset of its first batch.
    pub(crate) first_offset: i64,
    /// The lowest position of its batches.
    pub(crate) lowest: Position,
    /// The greatest time of its batches.
    pub(crate) max_timestamp: i64,
    /// Bytes of its batches.
    pub(crate) bytes: u64,
}

impl BatchIndex {
    /// Adds the batch that follows all others.
    pub(crate) fn push(&mut self, batch: Located) {
        self.bytes += u64::from(batch.bytes);
        if let Some(last) = self.chunks.back_mut()
            && last.push(batch)
        {
            return;
        }
        self.chunks.push_back(Chunk::of(batch));
    }

    /// Batches from the one that holds `offset`, or else the first after it, to the end of its
    /// chunk or to where they have more than `bytes_max` bytes together; `None` when there is no
    /// batch at all. With the offset at which the next chunk begins.
    pub(crate) fn run_at(&self, offset: i64, bytes_max: usize) -> Option<(Run, Option<i64>)> {
        let chunk = self.chunk_of(offset);
        let next = self.chunks.get(chunk + 1);
        let next = next.map(|chunk| chunk.outline.first_offset);
        Some((self.chunks.get(chunk)?.run(offset, bytes_max), next))
    }

    /// The first chunk at or after the one of `offset` that claims a batch with a record at or
    /// after `timestamp`, and the offset at which the next chunk begins.
    pub(crate) fn run_since_time(&self, offset: i64, timestamp: i64) -> Option<(Run, Option<i64>)> {
        let mut chunks = self.chunks.iter().skip(self.chunk_of(offset));
        let found = chunks.find(|chunk| chunk.outline.max_timestamp >= timestamp)?;
        let next = chunks.next().map(|chunk| chunk.outline.first_offset);
        Some((found.run(offset, usize::MAX), next))
    }

    /// The greatest time that a chunk claims for its batches before `end`, and an offset in the
    /// first such chunk.
    pub(crate) fn greatest_time(&self, end: i64) -> Option<(i64, i64)> {
        let visible = self
            .chunks
            .iter()
            .take_while(|c| c.outline.first_offset < end);
        let times = visible.map(|chunk| {
            // Only the chunk at the end may hold what is not visible yet, and it is at hand.
            let entries = chunk.entries.iter();
            let seen = entries.filter(|entry| chunk.base_offset_of(entry) < end);
            let time = seen
                .map(|entry| chunk.base_timestamp + i64::from(entry.timestamp))
                .max();
            (
                time.unwrap_or(chunk.outline.max_timestamp),
                chunk.outline.first_offset,
            )
        });
        // `max_by_key` takes the last of equals, hence the reversed tie-break.
        times.max_by_key(|(time, offset)| (*time, -offset))
    }

    /// The lowest position of a batch or of a chunk that was put away.
    pub(crate) fn lowest(&self) -> Option<Position> {
        let lowest = self.chunks.iter().map(|chunk| {
            let own = chunk.away.map_or(Position(u64::MAX), |away| away.position);
            own.min(chunk.outline.lowest)
        });
        lowest.min()
    }

    /// Bytes of all batches.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets the batches that end at or before `offset`; `end` is where the last one ends. The
    /// chunk that holds `offset` must be at hand.
    pub(crate) fn forget_before(&mut self, offset: i64, end: i64) {
        while !self.chunks.is_empty() {
            let next = self.chunks.get(1);
            if next.map_or(end, |next| next.outline.first_offset) > offset {
                break;
            }
            let Some(chunk) = self.chunks.pop_front() else {
                return;
            };
            self.bytes -= chunk.outline.bytes;
        }
        let Some(chunk) = self.chunks.front_mut() else {
            return;
        };
        self.bytes -= chunk.forget_before(offset);
    }

    /// Takes a chunk that was put away at `away` back into memory.
    pub(crate) fn bring_back(&mut self, away: Away, bytes: &[u8]) {
        let found = self
            .chunks
            .iter_mut()
            .find(|chunk| chunk.away == Some(away));
        if let (Some(chunk), Some(whole)) = (found, Chunk::decode(bytes)) {
            *chunk = whole;
        }
    }

    /// The next chunk at hand that begins at or after `offset` and has at least `batches` batches:
    /// the offset that it begins with, its bytes, and the offset at which the next chunk begins.
    pub(crate) fn full_chunk(
        &self,
        offset: i64,
        batches: usize,
    ) -> Option<(i64, Vec<u8>, Option<i64>)> {
        let mut chunks = self.chunks.iter().skip(self.chunk_of(offset));
        let full = chunks
            .find(|chunk| chunk.outline.first_offset >= offset && chunk.entries.len() >= batches)?;
        let next = chunks.next().map(|chunk| chunk.outline.first_offset);
        Some((full.outline.first_offset, full.encode(), next))
    }

    /// A chunk that was put away before `limit`, or that has batches before it.
    pub(crate) fn away_before(&self, limit: Position) -> Option<Away> {
        let mut chunks = self.chunks.iter();
        chunks.find_map(|chunk| {
            chunk
                .away
                .filter(|away| away.position < limit || chunk.outline.lowest < limit)
        })
    }

    /// Batches at hand that lie before `limit`, up to the first that make more than `bytes_max`
    /// bytes.
    pub(crate) fn before(&self, limit: Position, bytes_max: usize) -> Vec<Located> {
        let chunks = self.chunks.iter();
        let low = chunks.filter(|chunk| chunk.outline.lowest < limit);
        let batches = low.flat_map(|chunk| chunk.entries.iter().map(|entry| chunk.locate(entry)));
        let mut bytes = 0_usize;
        batches
            .filter(|batch| batch.position < limit)
            .take_while(|batch| {
                let fits = bytes <= bytes_max;
                bytes = bytes.saturating_add(batch.bytes as usize);
                fits
            })
            .collect()
    }

    /// Has each of these batches be what stands for it now, or nothing; those that have gone or
    /// lie elsewhere already stay so. Their chunks must be at hand. The offsets of a batch that
    /// goes are covered by the next one, so that a reader finds that one there.
    pub(crate) fn edit(&mut self, edits: &Edits) {
        let offsets = || edits.keys().map(|(offset, _)| *offset);
        let (Some(low), Some(high)) = (offsets().min(), offsets().max()) else {
            return;
        };
        let mut behind = self.chunks.split_off(self.chunk_of(high) + 1);
        let mut touched = self.chunks.split_off(self.chunk_of(low));
        let mut uncovered: Option<i64> = None;
        let mut chunks: VecDeque<Chunk> = VecDeque::new();
        loop {
            let next = touched.pop_front();
            let Some(chunk) = next.or_else(|| uncovered.and_then(|_| behind.pop_front())) else {
                break;
            };
            if chunk.away.is_some() {
                chunks.push_back(chunk);
                continue;
            }
            for entry in &chunk.entries {
                let mut batch = chunk.locate(entry);
                match edits.get(&(batch.base_offset, batch.position)) {
                    None => {}
                    Some(None) => {
                        uncovered = uncovered.or(Some(batch.base_offset));
                        self.bytes -= u64::from(batch.bytes);
                        continue;
                    }
                    Some(Some(edited)) => {
                        self.bytes -= u64::from(batch.bytes);
                        self.bytes += u64::from(edited.bytes);
                        batch = *edited;
                    }
                }
                batch.base_offset = uncovered.take().unwrap_or(batch.base_offset);
                if !chunks.back_mut().is_some_and(|last| last.push(batch)) {
                    chunks.push_back(Chunk::of(batch));
                }
            }
        }
        self.chunks.append(&mut chunks);
        self.chunks.append(&mut behind);
    }

    /// Offset of the last batch.
    pub(crate) fn last_offset(&self) -> Option<i64> {
        let chunk = self.chunks.back()?;
        let last = chunk.entries.last();
        Some(last.map_or(chunk.outline.first_offset, |entry| {
            chunk.base_offset_of(entry)
        }))
    }

    /// Bytes of the batches at hand from `offset` on.
    pub(crate) fn bytes_from(&self, offset: i64) -> u64 {
        let chunks = self.chunks.iter().skip(self.chunk_of(offset));
        let entries = chunks.flat_map(|chunk| chunk.entries.iter().map(move |e| (chunk, e)));
        entries
            .filter(|(chunk, entry)| chunk.base_offset_of(entry) >= offset)
            .map(|(_, entry)| u64::from(entry.bytes))
            .sum()
    }

    /// The chunk that began at `first_offset` with these bytes lies at `away` now; unless it has
    /// changed meanwhile, its batches leave memory.
    pub(crate) fn put_away(&mut self, first_offset: i64, bytes: &[u8], away: Away) {
        let at = self.chunk_of(first_offset);
        let Some(chunk) = self.chunks.get_mut(at) else {
            return;
        };
        if chunk.away.is_none() && chunk.encode() == bytes {
            chunk.entries = Vec::new();
            chunk.away = Some(away);
        }
    }

    /// All chunks as they stand.
    pub(crate) fn standing(&self) -> Vec<StandingChunk> {
        let chunks = self.chunks.iter();
        chunks
            .map(|chunk| match chunk.away {
                Some(away) => StandingChunk::Away(chunk.outline, away),
                None => StandingChunk::Here(chunk.encode()),
            })
            .collect()
    }

    /// The index that stood so; none when a chunk is not of its shape.
    pub(crate) fn restored(chunks: Vec<StandingChunk>) -> Option<Self> {
        let mut index = BatchIndex::default();
        for chunk in chunks {
            let chunk = match chunk {
                StandingChunk::Here(bytes) => Chunk::decode(&bytes)?,
                StandingChunk::Away(outline, away) => Chunk::put_away(outline, away),
            };
            index.bytes += chunk.outline.bytes;
            index.chunks.push_back(chunk);
        }
        Some(index)
    }

    fn chunk_of(&self, offset: i64) -> usize {
        let after = self
            .chunks
            .partition_point(|chunk| chunk.outline.first_offset <= offset);
        after.saturating_sub(1)
    }
}

impl Run {
    /// The batches from `offset` on, whose chunk's bytes were fetched; none when those are not of
    /// a chunk's shape.
    pub(crate) fn fetched(bytes: &[u8], offset: i64) -> Option<Vec<Located>> {
        match Chunk::decode(bytes)?.run(offset, usize::MAX) {
            Run::Here(batches) => Some(batches),
            Run::Away(_) => None,
        }
    }
}

#[derive(Debug)]
struct Chunk {
    outline: Outline,
    base_offset: i64,
    base_position: u64,
    base_timestamp: i64,
    /// Where the entries are when they are not here.
    away: Option<Away>,
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
            outline: Outline {
                first_offset: batch.base_offset,
                lowest: batch.position,
                max_timestamp: batch.max_timestamp,
                bytes: u64::from(batch.bytes),
            },
            base_offset: batch.base_offset,
            base_position: batch.position.0,
            base_timestamp: batch.max_timestamp,
            away: None,
            entries: vec![Entry {
                offset: 0,
                position: 0,
                bytes: batch.bytes,
                timestamp: 0,
            }],
        }
    }

    fn put_away(outline: Outline, away: Away) -> Self {
        Chunk {
            outline,
            base_offset: outline.first_offset,
            base_position: outline.lowest.0,
            base_timestamp: outline.max_timestamp,
            away: Some(away),
            entries: Vec::new(),
        }
    }

    fn push(&mut self, batch: Located) -> bool {
        if self.away.is_some() || self.entries.len() >= CHUNK_BATCHES {
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
        self.outline.max_timestamp = self.outline.max_timestamp.max(batch.max_timestamp);
        self.outline.bytes += u64::from(batch.bytes);
        self.entries.push(Entry {
            offset,
            position,
            bytes: batch.bytes,
            timestamp,
        });
        true
    }

    fn run(&self, offset: i64, bytes_max: usize) -> Run {
        if let Some(away) = self.away {
            return Run::Away(away);
        }
        let mut batches = Vec::new();
        let mut bytes = 0_usize;
        for entry in &self.entries[self.find(offset)..] {
            batches.push(self.locate(entry));
            bytes = bytes.saturating_add(entry.bytes as usize);
            if bytes > bytes_max {
                break;
            }
        }
        Run::Here(batches)
    }

    /// Forgets whole batches before `offset`; answers their bytes.
    fn forget_before(&mut self, offset: i64) -> u64 {
        let whole = self.find(offset);
        let gone: u64 = self
            .entries
            .drain(..whole)
            .map(|entry| u64::from(entry.bytes))
            .sum();
        if let Some(first) = self.entries.first() {
            self.outline.first_offset = self.base_offset + i64::from(first.offset);
            self.outline.lowest = self.lowest();
        }
        self.outline.bytes -= gone;
        gone
    }

    fn find(&self, offset: i64) -> usize {
        let after = self
            .entries
            .partition_point(|entry| self.base_offset_of(entry) <= offset);
        after.saturating_sub(1)
    }

    /// Batches that were moved stand in no order, so all are looked at.
    fn lowest(&self) -> Position {
        let lowest = self.entries.iter().map(|entry| entry.position).min();
        Position(self.base_position + u64::from(lowest.unwrap_or(0)))
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

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(CHUNK_HEAD_BYTES + ENTRY_BYTES * self.entries.len());
        bytes.extend_from_slice(&self.base_offset.to_le_bytes());
        bytes.extend_from_slice(&self.base_position.to_le_bytes());
        bytes.extend_from_slice(&self.base_timestamp.to_le_bytes());
        bytes.extend_from_slice(&self.outline.max_timestamp.to_le_bytes());
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.offset.to_le_bytes());
            bytes.extend_from_slice(&entry.position.to_le_bytes());
            bytes.extend_from_slice(&entry.bytes.to_le_bytes());
            bytes.extend_from_slice(&entry.timestamp.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, entries) = bytes.split_at_checked(CHUNK_HEAD_BYTES)?;
        let (head, _) = head.as_chunks::<8>();
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if entries.is_empty() || !rest.is_empty() {
            return None;
        }
        let entries: Vec<Entry> = entries.iter().map(Entry::decode).collect();
        let mut chunk = Chunk {
            outline: Outline {
                first_offset: 0,
                lowest: Position(0),
                max_timestamp: i64::from_le_bytes(head[3]),
                bytes: entries.iter().map(|entry| u64::from(entry.bytes)).sum(),
            },
            base_offset: i64::from_le_bytes(head[0]),
            base_position: u64::from_le_bytes(head[1]),
            base_timestamp: i64::from_le_bytes(head[2]),
            away: None,
            entries,
        };
        chunk.outline.first_offset = chunk.base_offset_of(chunk.entries.first()?);
        chunk.outline.lowest = chunk.lowest();
        Some(chunk)
    }
}

impl Entry {
    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        Entry {
            offset: u32::from_le_bytes(words[0]),
            position: u32::from_le_bytes(words[1]),
            bytes: u32::from_le_bytes(words[2]),
            timestamp: i32::from_le_bytes(words[3]),
        }
    }
}

/// Batches per chunk: 8 KiB of entries, so that a lookup touches little.
pub(crate) const CHUNK_BATCHES: usize = 512;

const CHUNK_HEAD_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

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

    fn all_from(index: &BatchIndex, offset: i64) -> Vec<Located> {
        let (mut all, mut from) = (Vec::new(), Some(offset));
        while let Some(offset) = from {
            let Some((run, next)) = index.run_at(offset, usize::MAX) else {
                break;
            };
            let Run::Here(batches) = run else {
                panic!("a chunk is away");
            };
            all.extend(batches);
            from = next;
        }
        all
    }

    fn all_since(index: &BatchIndex, time: i64) -> Vec<Located> {
        let (mut all, mut from) = (Vec::new(), Some(i64::MIN));
        while let Some((run, next)) = from.and_then(|from| index.run_since_time(from, time)) {
            let Run::Here(batches) = run else {
                panic!("a chunk is away");
            };
            all.extend(batches.iter().filter(|b| b.max_timestamp >= time));
            from = next;
        }
        all
    }

    #[test]
    fn a_chunk_goes_away_and_comes_back_and_an_index_stands_as_it_stood() {
        let (mut index, list, end) = sample(3);
        let mut kept = HashMap::new();
        let mut from = 0;
        while let Some((first, bytes, next)) = index.full_chunk(from, 64) {
            let away = Away {
                position: Position(9_000_000 + kept.len() as u64),
                bytes: u32::try_from(bytes.len()).unwrap(),
            };
            index.put_away(first, &bytes, away);
            kept.insert(away.position, bytes);
            from = next.unwrap_or(end);
        }
        assert!(kept.len() > 3 && kept.len() < list.len() / 64);
        let mut index = BatchIndex::restored(index.standing()).unwrap();
        assert_eq!(index.bytes(), 100 * list.len() as u64);
        let middle = list[list.len() / 2].base_offset;
        let Some((Run::Away(away), _)) = index.run_at(middle, 0) else {
            panic!("the chunk in the middle is at hand");
        };
        let found = Run::fetched(&kept[&away.position], middle).unwrap();
        assert_eq!(found[0], list[list.len() / 2]);
        while let Some(away) = index.away_before(Position(u64::MAX)) {
            index.bring_back(away, &kept[&away.position]);
        }
        assert_eq!(all_from(&index, 0), list);
    }

    #[test]
    fn lookups_are_those_of_a_plain_list() {
        for seed in 0..20 {
            let (index, list, end) = sample(seed);
            let mut rng = Rng::from_seed(seed);
            for _ in 0..50 {
                let offset = i64::try_from(rng.below(u64::try_from(end).unwrap())).unwrap();
                let at = list.partition_point(|b| b.base_offset <= offset) - 1;
                let found = all_from(&index, offset);
                assert_eq!(found, list[at..], "seed {seed}");
                let time = 1_700_000_000_000 + offset * 10;
                let wanted: Vec<Located> = list
                    .iter()
                    .filter(|b| b.max_timestamp >= time)
                    .copied()
                    .collect();
                assert_eq!(all_since(&index, time), wanted, "seed {seed}");
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
                assert_eq!(all_from(&index, 0), rest, "seed {seed}");
                assert_eq!(index.bytes(), 100 * rest.len() as u64);
                assert_eq!(index.lowest(), rest.first().map(|batch| batch.position));
            }
        }
    }
}
