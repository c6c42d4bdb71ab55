//! What leaves a partition at its front, and what of its index leaves memory.

use base::UnixMillis;
use journal::{Done, Durability, Frame, Position};

use super::{Partition, storage};
use crate::error::StreamsError;
use crate::frames::{Change, PartitionStanding, VERSION, kind};
use crate::index::{Away, Located, Run};
use crate::limits::SNAPSHOT_FRAME_BYTES;

impl Partition {
    /// Hides the records that are older than `before`, oldest first up to the first batch that is
    /// not; `write` tells the journal where the partition starts then. Answers when the oldest
    /// batch that is left was made.
    pub(crate) fn expire(
        &self,
        before: UnixMillis,
        mut write: impl FnMut(PartitionStanding) -> Result<(), StreamsError>,
    ) -> Result<Option<UnixMillis>, StreamsError> {
        loop {
            let (start, made) = {
                let state = self.state.lock();
                let Some((run, next)) = state.index.run_at(state.start, usize::MAX) else {
                    return Ok(None);
                };
                match run {
                    Run::Here(batches) => state.old_until(&batches, before, next),
                    Run::Away(away) => {
                        drop(state);
                        self.bring_back(away)?;
                        continue;
                    }
                }
            };
            let moved = self.start_at(start, &mut write)?;
            if made.is_some() || !moved {
                return Ok(made);
            }
        }
    }

    /// Hides the oldest batches as long as at least `keep_bytes` stay.
    pub(crate) fn trim(
        &self,
        keep_bytes: u64,
        mut write: impl FnMut(PartitionStanding) -> Result<(), StreamsError>,
    ) -> Result<(), StreamsError> {
        loop {
            let start = {
                let mut state = self.state.lock();
                state.is_over = false;
                let Some((run, next)) = state.index.run_at(state.start, usize::MAX) else {
                    return Ok(());
                };
                match run {
                    Run::Here(batches) => state.surplus_until(&batches, keep_bytes, next),
                    Run::Away(away) => {
                        drop(state);
                        self.bring_back(away)?;
                        continue;
                    }
                }
            };
            if !self.start_at(start, &mut write)? {
                return Ok(());
            }
        }
    }

    /// Hides the records before `offset`, before the visible end when it is none. Answers where
    /// the partition starts then.
    pub(crate) fn delete_before(
        &self,
        offset: Option<i64>,
        mut write: impl FnMut(PartitionStanding) -> Result<(), StreamsError>,
    ) -> Result<i64, StreamsError> {
        let offset = {
            let state = self.state.lock();
            self.check_alive(&state)?;
            let offset = offset.unwrap_or(state.high);
            if !(0..=state.high).contains(&offset) {
                return Err(state.out_of_range(offset));
            }
            offset
        };
        loop {
            let away = {
                let state = self.state.lock();
                match state.index.run_at(offset, usize::MAX) {
                    Some((Run::Away(away), _)) => away,
                    _ => break,
                }
            };
            self.bring_back(away)?;
        }
        self.start_at(offset, &mut write)?;
        Ok(self.log_start_offset())
    }

    /// Has the partition start at `start`, unless it does already or is gone; answers whether it
    /// moved. The chunk that holds `start` must be at hand.
    fn start_at(
        &self,
        start: i64,
        write: &mut impl FnMut(PartitionStanding) -> Result<(), StreamsError>,
    ) -> Result<bool, StreamsError> {
        let mut state = self.state.lock();
        if start <= state.start || state.deleted {
            return Ok(false);
        }
        write(PartitionStanding {
            start,
            ..state.standing(self.number)
        })?;
        state.start = start;
        let next = state.next;
        state.index.forget_before(start, next);
        state.transactions.forget_before(start);
        state.tell_watchers();
        Ok(true)
    }

    /// Puts chunks of the index with at least `batches` batches into the journal and out of
    /// memory; answers how many. Blocks on the journal.
    pub(crate) fn put_chunks_away(&self, batches: usize) -> Result<usize, StreamsError> {
        let (mut from, mut count) = (0, 0);
        loop {
            let full = {
                let state = self.state.lock();
                let full = state.index.full_chunk(from, batches);
                // What is not visible yet stays at hand, where looking for it is cheap.
                full.filter(|(.., end)| !state.deleted && end.unwrap_or(state.next) <= state.high)
            };
            let Some((first_offset, bytes, _)) = full else {
                return Ok(count);
            };
            let frame = Frame {
                kind: kind::INDEX_CHUNK,
                version: VERSION,
                parts: &[&self.number.to_le_bytes(), &bytes],
            };
            let placed = self
                .shared
                .journal
                .append_blocking(&[frame], Durability::Os)
                .map_err(storage)?;
            let away = Away {
                position: placed.first,
                bytes: u32::try_from(bytes.len()).expect("a chunk has a bound"),
            };
            self.state.lock().index.put_away(first_offset, &bytes, away);
            from = first_offset + 1;
            count += 1;
        }
    }

    /// Brings back the chunks of the index that lie, or point, before `limit` in the journal.
    pub(crate) fn bring_chunks_back(&self, limit: Position) -> Result<(), StreamsError> {
        loop {
            let away = self.state.lock().index.away_before(limit);
            match away {
                Some(away) => self.bring_back(away)?,
                None => return Ok(()),
            }
        }
    }

    /// Batches that lie before `limit`, about `bytes_max` bytes of them; their chunks must be at
    /// hand.
    pub(crate) fn batches_before(&self, limit: Position, bytes_max: usize) -> Vec<Located> {
        let state = self.state.lock();
        // What is not visible yet is not on its way to anybody.
        let mut batches = state.index.before(limit, bytes_max);
        batches.retain(|batch| batch.base_offset < state.high);
        batches
    }

    pub(super) fn bring_back(&self, away: Away) -> Result<(), StreamsError> {
        let bytes = self.fetch_chunk(away)?;
        let mut state = self.state.lock();
        state.index.bring_back(away, &bytes);
        // The partition may have lost its front while the chunk could not be cut.
        let (start, next) = (state.start, state.next);
        state.index.forget_before(start, next);
        Ok(())
    }

    /// Appends how the partition stands, index and all, while nothing can change it; nothing when
    /// there is nothing to tell.
    pub(crate) fn append_standing(&self) -> Result<(), StreamsError> {
        let state = self.state.lock();
        if state.deleted || state.next == 0 {
            return Ok(());
        }
        let standing = Change::Partition(state.standing(self.number));
        let index = Change::Index {
            number: self.number,
            chunks: state.index.standing(),
        };
        let compacted = (state.clean_end > 0).then_some(Change::Compacted {
            number: self.number,
            until: state.clean_end,
        });
        // In pieces, so that no frame is large; replay puts them together again.
        let pieces = SNAPSHOT_FRAME_BYTES / ABORTED_BYTES;
        let transactions = state.transactions.standing().map(|t| t.pieces(pieces));
        let transactions = transactions.into_iter().flatten().map(|standing| {
            let number = self.number;
            Change::PartitionTransactions { number, standing }
        });
        let rest = compacted.into_iter().chain(transactions);
        for change in [standing, index].into_iter().chain(rest) {
            let (kind, payload) = change.encode();
            let frame = Frame {
                kind,
                version: VERSION,
                parts: &[&payload],
            };
            let journal = &self.shared.journal;
            journal
                .append(&[frame], Durability::Memory, Done::none())
                .map_err(storage)?;
        }
        Ok(())
    }
}

/// Bytes of an aborted transaction in its frame.
const ABORTED_BYTES: usize = 32;
