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

mod chunk;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use journal::Position;

use crate::compaction::Edits;
use chunk::Chunk;

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

impl StandingChunk {
    /// Bytes that it takes in a frame.
    fn frame_bytes(&self) -> usize {
        match self {
            StandingChunk::Here(bytes) => 5 + bytes.len(),
            StandingChunk::Away(..) => 45,
        }
    }
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

    /// Bytes of the chunks that begin at `offset` or follow it and end at or before `end`, until they
    /// are `enough`, and the offset at which the next chunk begins; nothing when none begins there.
    pub(crate) fn whole_chunks(&self, offset: i64, end: i64, enough: usize) -> (usize, i64) {
        let (mut bytes, mut at) = (0_usize, offset);
        let chunks = self.chunks.iter().skip(self.chunk_of(offset));
        for (chunk, next) in chunks.clone().zip(chunks.skip(1)) {
            let next = next.outline.first_offset;
            if chunk.outline.first_offset != at || next > end || bytes >= enough {
                break;
            }
            bytes =
                bytes.saturating_add(usize::try_from(chunk.outline.bytes).unwrap_or(usize::MAX));
            at = next;
        }
        (bytes, at)
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

    /// Whether a chunk lies away there.
    pub(crate) fn is_away(&self, away: Away) -> bool {
        self.chunks.iter().any(|chunk| chunk.away == Some(away))
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
        // The topic may have been deleted, or all of it have expired, since they were made.
        if self.chunks.is_empty() {
            return;
        }
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

    /// Chunks as they stand, from the one of `offset` on until they make more than `bytes_max`
    /// bytes in a frame; and the offset at which the next chunk begins, if there is one.
    pub(crate) fn standing_from(
        &self,
        offset: i64,
        bytes_max: usize,
    ) -> (Vec<StandingChunk>, Option<i64>) {
        let (mut standing, mut bytes) = (Vec::new(), 0);
        for chunk in self.chunks.iter().skip(self.chunk_of(offset)) {
            if bytes > bytes_max {
                return (standing, Some(chunk.outline.first_offset));
            }
            let chunk = match chunk.away {
                Some(away) => StandingChunk::Away(chunk.outline, away),
                None => StandingChunk::Here(chunk.encode()),
            };
            bytes += chunk.frame_bytes();
            standing.push(chunk);
        }
        (standing, None)
    }

    /// The index that stood so; none when a chunk is not of its shape, or they tell of more bytes
    /// than there can be.
    pub(crate) fn restored(chunks: Vec<StandingChunk>) -> Option<Self> {
        let mut index = BatchIndex::default();
        for chunk in chunks {
            let chunk = match chunk {
                StandingChunk::Here(bytes) => Chunk::decode(&bytes)?,
                StandingChunk::Away(outline, away) => Chunk::put_away(outline, away),
            };
            index.bytes = index.bytes.checked_add(chunk.outline.bytes)?;
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
