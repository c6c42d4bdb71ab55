//! What leaves a partition at its front, and what of its index leaves memory.

use base::UnixMillis;
use journal::{Durability, Frame, Position};

use super::lookup::is_reclaimed;
use super::{Partition, State, storage};
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

    /// Forgets the producers that have written nothing since `before` and have no transaction open;
    /// tells since when the longest silent of the others has been. `opened` is when the store was.
    pub(crate) fn expire_producers(
        &self,
        opened: UnixMillis,
        before: UnixMillis,
    ) -> Option<UnixMillis> {
        let mut state = self.state.lock();
        if state.producers.is_empty() {
            return None;
        }
        let State {
            producers,
            transactions,
            ..
        } = &mut *state;
        producers.expire(opened, before, |id| transactions.first_of(id).is_some())
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
                .append_vital_blocking(&[frame], Durability::Os)
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

    /// Takes a chunk of the index back into memory, unless somebody else did.
    pub(crate) fn bring_back(&self, away: Away) -> Result<(), StreamsError> {
        let fetched = self.fetch_chunk(away);
        let mut state = self.state.lock();
        let bytes = match fetched {
            Ok(bytes) => bytes,
            // Somebody else brought it back, or let go of it, before its place was freed.
            Err(StreamsError::Storage(error))
                if is_reclaimed(&*error) && !state.index.is_away(away) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        state.index.bring_back(away, &bytes);
        // The partition may have lost its front while the chunk could not be cut.
        let (start, next) = (state.start, state.next);
        state.index.forget_before(start, next);
        Ok(())
    }

    /// Shows `append` how the partition stands, index and all; nothing when there is nothing to
    /// tell. What one call shows, nothing can change meanwhile; calls go on at `from`, as long as
    /// the answer is a place to go on at.
    pub(crate) fn append_standing(
        &self,
        from: Option<IndexFrom>,
        append: &mut dyn FnMut(&Change) -> Result<(), StreamsError>,
    ) -> Result<Option<IndexFrom>, StreamsError> {
        let state = self.state.lock();
        if state.deleted || state.next == 0 {
            return Ok(None);
        }
        let number = self.number;
        if let Some(from) = from {
            return append_piece(&state, number, from, append);
        }
        append(&Change::Partition(state.standing(number)))?;
        let (chunks, next) = state.index.standing_from(i64::MIN, SNAPSHOT_FRAME_BYTES);
        if next.is_none() {
            append(&Change::Index { number, chunks })?;
        }
        if state.clean_end > 0 {
            let until = state.clean_end;
            append(&Change::Compacted { number, until })?;
        }
        // In pieces, so that no frame is large; replay puts them together again.
        let pieces = SNAPSHOT_FRAME_BYTES / ABORTED_BYTES;
        let transactions = state.transactions.standing().map(|t| t.pieces(pieces));
        for standing in transactions.into_iter().flatten() {
            append(&Change::PartitionTransactions { number, standing })?;
        }
        Ok(next.map(|_| IndexFrom::default()))
    }
}

/// Where the next piece of an index begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexFrom {
    nth: u32,
    offset: i64,
}

impl Default for IndexFrom {
    fn default() -> Self {
        IndexFrom {
            nth: 0,
            offset: i64::MIN,
        }
    }
}

fn append_piece(
    state: &State,
    number: u32,
    from: IndexFrom,
    append: &mut dyn FnMut(&Change) -> Result<(), StreamsError>,
) -> Result<Option<IndexFrom>, StreamsError> {
    let (chunks, next) = state.index.standing_from(from.offset, SNAPSHOT_FRAME_BYTES);
    append(&Change::IndexPiece {
        number,
        nth: from.nth,
        is_last: next.is_none(),
        chunks,
    })?;
    Ok(next.map(|offset| IndexFrom {
        nth: from.nth + 1,
        offset,
    }))
}

/// Bytes of an aborted transaction in its frame.
const ABORTED_BYTES: usize = 32;
