//! A partition that takes the batches of a backup, at the offsets that they had.

use std::sync::Arc;

use base::UnixMillis;
use journal::{Done, Durability, Frame};

use super::{Ack, Partition, State, storage};
use crate::backup::BackupRange;
use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::frames::{Change, VERSION};
use crate::marker::Marker;
use crate::producers::Producers;

impl Partition {
    /// Its offsets, those of what is about to become visible too.
    pub(crate) fn whole_range(&self) -> BackupRange {
        let state = self.state.lock();
        BackupRange {
            start: state.start,
            end: state.next,
        }
    }

    /// Fails when the topic was deleted.
    pub(crate) fn check_there(&self) -> Result<(), StreamsError> {
        self.check_alive(&self.state.lock())
    }

    /// Takes a batch of a backup, marker or not, at its own offset: nobody else appends here, and
    /// what its producer did before is not looked at.
    pub(crate) fn place_restored(self: &Arc<Self>, batch: &[u8]) -> Result<(), StreamsError> {
        let header = BatchHeader::check_stored(batch)?;
        let durability = self.live.settings().durability;
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        if header.base_offset < state.next || header.bytes != batch.len() {
            return Err(StreamsError::InvalidRecord("its offset was there before"));
        }
        let before = std::mem::replace(&mut state.next, header.base_offset);
        if let Err(error) = self.place(&mut state, batch, &header, Ack::None, durability) {
            state.next = before;
            return Err(error);
        }
        if header.is_control() {
            if let Some(marker) = Marker::read(&header, batch)? {
                state.transactions.note_marker(marker, header.base_offset);
            }
            return Ok(());
        }
        state.transactions.note_batch(&header, header.base_offset);
        state.records_in += u64::from(header.record_count.unsigned_abs());
        Ok(())
    }

    /// Ends a restored partition at its range, with abort markers behind it for what is open; may
    /// be called again after `Busy`.
    pub(crate) fn end_restored(
        self: &Arc<Self>,
        now: UnixMillis,
        range: BackupRange,
    ) -> Result<(), StreamsError> {
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        let durability = self.live.settings().durability;
        state.next = state.next.max(range.end);
        while let Some(producer_id) = state.transactions.any_open() {
            let marker = Marker {
                producer_id,
                producer_epoch: 0,
                is_commit: false,
            };
            let batch = marker.build(now);
            let header = BatchHeader::read(&batch)?;
            let offset = state.next;
            self.place(&mut state, &batch, &header, Ack::None, durability)?;
            state.transactions.note_marker(marker, offset);
        }
        state.start = range.start;
        // Replay noted the batches' producers; this frame has it forget them.
        state.producers = Producers::default();
        let standing = Change::Partition(state.standing(self.number));
        let (kind, payload) = standing.encode();
        let frame = Frame {
            kind,
            version: VERSION,
            parts: &[&payload],
        };
        let journal = &self.shared.journal;
        journal
            .append(&[frame], Durability::Memory, Done::none())
            .map_err(storage)?;
        Ok(())
    }

    /// Gives its state away, all of which is on the disk, and refuses from now on.
    pub(crate) fn take_restored(&self) -> State {
        let mut state = self.state.lock();
        let mut taken = std::mem::take(&mut *state);
        state.deleted = true;
        taken.show_all();
        taken
    }
}
