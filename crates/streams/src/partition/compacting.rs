//! What compaction and the mover need of a partition.

use base::UnixMillis;
use journal::{Done, Durability, Frame, JournalError, Position};

use super::{BATCH_IN_FRAME, Partition, storage};
use crate::compaction::Edits;
use crate::error::StreamsError;
use crate::event_store::Isolation;
use crate::frames::{VERSION, kind};
use crate::index::{Located, Run};

impl Partition {
    /// The partition's start, up to where it is compacted, where its last batch begins, which stays
    /// as it is, and where that begins which is undecided.
    pub(crate) fn compactable(&self) -> (i64, i64, i64, i64) {
        let state = self.state.lock();
        let last = state.index.last_offset().unwrap_or(state.start);
        let end = state.end(Isolation::Committed);
        (state.start, state.clean_end.max(state.start), last, end)
    }

    /// The time of the first batch that is not compacted and could be; none when all are.
    pub(crate) fn dirty_since(&self) -> Result<Option<UnixMillis>, StreamsError> {
        let batches = self.while_moving(|| {
            let from = {
                let state = self.state.lock();
                state.clean_end.max(state.start)
            };
            self.locate(Isolation::Committed, from, 1, true)
        })?;
        Ok(batches.first().map(|batch| UnixMillis(batch.max_timestamp)))
    }

    /// Batches at hand that begin in `from..until`, up to the end of a chunk, and where the next
    /// chunk begins.
    pub(crate) fn batches_between(&self, from: i64, until: i64) -> (Vec<Located>, Option<i64>) {
        let state = self.state.lock();
        match state.index.run_at(from, usize::MAX) {
            Some((Run::Here(mut batches), next)) => {
                batches.retain(|batch| (from..until).contains(&batch.base_offset));
                (batches, next)
            }
            Some((Run::Away(_), next)) => (Vec::new(), next),
            None => (Vec::new(), None),
        }
    }

    /// Appends a batch that stands elsewhere already; answers where it lies then. Blocks while
    /// the journal is busy.
    pub(crate) fn append_moved(&self, batch: &[u8]) -> Result<Position, StreamsError> {
        self.append_moved_as(false, batch)
    }

    /// The same, if need be into the room that is kept for what frees segments on a full disk.
    pub(crate) fn append_moved_as(
        &self,
        is_vital: bool,
        batch: &[u8],
    ) -> Result<Position, StreamsError> {
        let number = self.number.to_le_bytes();
        let parts: [&[u8]; 2] = [&number, batch];
        let frame = Frame {
            kind: kind::BATCH_MOVED,
            version: VERSION,
            parts: &parts,
        };
        let journal = &self.shared.journal;
        loop {
            let placed = if is_vital {
                journal.append_vital(&[frame], Durability::Memory, Done::none())
            } else {
                journal.append(&[frame], Durability::Memory, Done::none())
            };
            match placed {
                Ok(placed) => return Ok(Position(placed.first.0 + BATCH_IN_FRAME)),
                Err(JournalError::Busy) => journal.room_blocking(frame.framed_len()),
                Err(error) => return Err(storage(error)),
            }
        }
    }

    /// Has the index say what stands for these batches now, where it still has them.
    pub(crate) fn edit_index(&self, edits: &Edits) {
        self.state.lock().index.edit(edits);
    }

    /// Everything before `until` is compacted.
    pub(crate) fn note_clean(&self, until: i64) {
        let mut state = self.state.lock();
        state.clean_end = until;
        state.dirty_bytes = state.index.bytes_from(until);
        state.compact_at_bytes = 0;
    }

    /// Bytes that came in since they were last compacted, and all bytes.
    pub(crate) fn dirty_bytes(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.dirty_bytes, state.index.bytes())
    }
}
