//! A chunk of an index: batches next to each other, small in memory and as bytes.

use journal::Position;

use super::{Away, Located, Outline, Run};

/// Consecutive batches, or where they are.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) outline: Outline,
    base_offset: i64,
    base_position: u64,
    pub(super) base_timestamp: i64,
    /// Where the entries are when they are not here.
    pub(super) away: Option<Away>,
    pub(super) entries: Vec<Entry>,
}

/// A batch, by its distances from its chunk's base.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    offset: u32,
    position: u32,
    pub(super) bytes: u32,
    pub(super) timestamp: i32,
}

impl Chunk {
    pub(super) fn of(batch: Located) -> Self {
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

    pub(super) fn put_away(outline: Outline, away: Away) -> Self {
        Chunk {
            outline,
            base_offset: outline.first_offset,
            base_position: outline.lowest.0,
            base_timestamp: outline.max_timestamp,
            away: Some(away),
            entries: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, batch: Located) -> bool {
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

    pub(super) fn run(&self, offset: i64, bytes_max: usize) -> Run {
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
    pub(super) fn forget_before(&mut self, offset: i64) -> u64 {
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

    pub(super) fn base_offset_of(&self, entry: &Entry) -> i64 {
        self.base_offset + i64::from(entry.offset)
    }

    pub(super) fn locate(&self, entry: &Entry) -> Located {
        Located {
            base_offset: self.base_offset_of(entry),
            position: Position(self.base_position + u64::from(entry.position)),
            bytes: entry.bytes,
            max_timestamp: self.base_timestamp + i64::from(entry.timestamp),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
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

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
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
const CHUNK_BATCHES: usize = 512;

const CHUNK_HEAD_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;
