//! How a journal is laid out and bounded, and what an append may ask of it.

use std::time::Duration;

use crate::error::JournalError;
use crate::format::{FRAME_OVERHEAD_BYTES, SEGMENT_HEADER_BYTES};
use crate::limits;

/// What a completion promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Nothing: a crash of the process may take it back.
    Memory,
    /// The process may die: the bytes are with the operating system.
    Os,
    /// The machine may die: the bytes are synced to the disk.
    #[default]
    Disk,
}

/// How a journal is laid out and bounded.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// Positions that a new segment spans, in bytes.
    pub segment_bytes: u64,
    /// Bytes reserved on the disk at a time, ahead of writing.
    pub preallocate_bytes: u64,
    /// Bytes that may wait for the writer. An append of more than half of them passes as soon as
    /// no more than half are waiting, whatever its size.
    pub pending_bytes_max: u64,
    /// Bytes on the disk that only [`Journal::append_vital`] may take; at most half a segment.
    pub reserve_bytes: u64,
    /// Reclaimed segments whose files are kept for new ones, which a disk overwrites faster than it
    /// takes new space. Only for journals of which no [`Stretch`] is held: it would show new bytes.
    pub spares_max: u32,
    /// What nobody waits for is synced no sooner than so long after the sync before it, which leaves
    /// the disk and the processor to others; zero syncs at once. What is waited for never rests.
    pub unasked_rest: Duration,
    /// Bytes that nobody waits for after which they are synced all the same.
    pub unasked_bytes: u64,
    /// While most appends come from callers who wait for no answer before they send the next (see
    /// [`Journal::note_sent_on`](crate::Journal::note_sent_on)), a sync begins no sooner than so long
    /// after the one before, nor the writing of what is to be synced; zero lets none rest. An append
    /// that needs no sync, and of which somebody waits to hear, ends a rest.
    pub sync_interval: Duration,
    /// How long the disk may keep a caller that carries its append (see
    /// [`Carrier`](crate::Carrier)): once it took longer, the writer has those that follow, for ever
    /// more of them each time.
    pub carried_time_max: Duration,
}

impl Default for JournalOptions {
    fn default() -> Self {
        JournalOptions {
            segment_bytes: limits::SEGMENT_BYTES,
            preallocate_bytes: limits::PREALLOCATE_BYTES,
            pending_bytes_max: limits::PENDING_BYTES_MAX,
            reserve_bytes: 0,
            spares_max: 0,
            unasked_rest: Duration::ZERO,
            unasked_bytes: limits::UNASKED_BYTES,
            sync_interval: Duration::ZERO,
            carried_time_max: limits::CARRIED_TIME_MAX,
        }
    }
}

impl JournalOptions {
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        let refuse = |name, value, rule| Err(JournalError::Options { name, value, rule });
        if !(limits::SEGMENT_BYTES_MIN..=limits::SEGMENT_BYTES_MAX).contains(&self.segment_bytes) {
            return refuse("segment_bytes", self.segment_bytes, "from 4 KiB to 2 GiB");
        }
        if self.preallocate_bytes == 0 {
            return refuse("preallocate_bytes", self.preallocate_bytes, "above zero");
        }
        if self.pending_bytes_max == 0 {
            return refuse("pending_bytes_max", self.pending_bytes_max, "above zero");
        }
        if self.reserve_bytes > self.segment_bytes / 2 {
            let rule = "at most half of segment_bytes";
            return refuse("reserve_bytes", self.reserve_bytes, rule);
        }
        Ok(())
    }

    /// The most bytes, frame headers included, that one append may have.
    pub fn append_bytes_max(&self) -> u64 {
        self.segment_bytes - SEGMENT_HEADER_BYTES - FRAME_OVERHEAD_BYTES
    }

    pub(crate) fn check_append(&self, bytes: u64) -> Result<(), JournalError> {
        let bytes_max = self.append_bytes_max();
        if bytes > bytes_max {
            return Err(JournalError::TooLarge { bytes, bytes_max });
        }
        Ok(())
    }
}
