//! A full disk: whoever ends FlowFiles must be able to go on, or nothing would ever make room.
//!
//! What makes room takes the journal's reserve, all else is refused. The reserve grows with what
//! waits: it holds a frame for the end of each FlowFile, a swapped batch that comes back, and the
//! snapshots without which no frame can go. On a full disk
//!
//! - what nobody needs any more goes at once, by the snapshots that are there: nothing is written
//!   for it but what is pending. Spare files go too;
//! - snapshots are written, and what still lives in the oldest segment is moved, only where a whole
//!   segment goes for it, and where enough is left for the FlowFiles to end;
//! - a journal that is all in one segment begins another one, so that the first can go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use journal::{Journal, JournalError, Position};

use super::{Book, FlowFileKind, Repository};
use crate::content::Claim;
use crate::limits::SWAP_BATCH_BYTES;

/// A segment of content that could go, once this is done.
struct Winnable {
    /// What still lives in it and is moved first.
    living: Vec<Arc<Claim>>,
}

impl Repository {
    fn journals(&self) -> impl Iterator<Item = &Journal> {
        std::iter::once(&self.journal).chain(&self.content_journal)
    }

    /// Whether the disk had no room when a journal last wanted some.
    pub(super) fn is_full(&self) -> bool {
        self.journals().any(Journal::is_full)
    }

    /// On a full disk, gives back what can be given back now. What fails is tried again with the
    /// next commit, refused or not.
    pub(super) fn win_room(&self) {
        if self.is_snapshotting.swap(true, Ordering::AcqRel) {
            return;
        }
        let outcome = self.tidy_full_disk();
        self.is_snapshotting.store(false, Ordering::Release);
        if let Err(error) = outcome {
            tracing::debug!(error = base::report(&error), "no room was won");
        }
    }

    /// What [`Self::win_room`] does; nobody else tidies meanwhile.
    pub(super) fn tidy_full_disk(&self) -> Result<(), JournalError> {
        let mut has_room = self.reclaim_unneeded()?;
        if !has_room && self.is_snapshot_worth_it() {
            // Frames go once there are two snapshots behind them.
            for _ in 0..2 {
                self.move_first_segment()?;
                self.snapshot_and_reclaim(false, true)?;
            }
            has_room = true;
        }
        for journal in self.journals() {
            has_room |= journal.give_up_spares() > 0;
        }
        if has_room {
            self.journals().for_each(Journal::look_for_room);
        } else {
            self.seal_where_alone();
        }
        // It comes when it is worth it.
        self.postpone();
        Ok(())
    }

    /// Keeps so much room as it takes to end all that waits.
    pub(super) fn keep_reserve(&self) {
        let least = self.options.limits.reserve_bytes;
        self.journal.set_reserve(self.reserve_wanted().max(least));
    }

    /// Bytes that it takes to end all that waits, and for two snapshots meanwhile.
    fn reserve_wanted(&self) -> u64 {
        let book = self.book.lock();
        self.needed_to_end(&book) + 2 * self.snapshot_estimate(&book)
    }

    /// Bytes that it takes to end all that waits, one by one.
    pub(super) fn needed_to_end(&self, book: &Book) -> u64 {
        let limits = &self.options.limits;
        let swapped = match self.contents.lowest_frame() {
            Some(_) => (SWAP_BATCH_BYTES as u64).min(limits.segment_bytes / 8),
            None => 0,
        };
        let waiting = self.waiting(book);
        waiting * END_BYTES + swapped + limits.reserve_bytes / 8
    }

    /// Bytes of a snapshot that is written now, about.
    fn snapshot_estimate(&self, book: &Book) -> u64 {
        let mean = book.snapshot_bytes.checked_div(book.snapshot_flow_files);
        let states: usize = book.states.values().map(bytes::Bytes::len).sum();
        let each = mean.unwrap_or(0).clamp(PUT_BYTES / 4, PUT_BYTES);
        let others = states as u64 + 64 * (book.states.len() as u64 + 2);
        self.waiting(book) * each + others
    }

    /// FlowFiles that wait and are recorded.
    fn waiting(&self, book: &Book) -> u64 {
        if self.options.flow_files != FlowFileKind::Disk {
            return 0;
        }
        let active = book.active.iter().map(|connection| connection.count());
        let parked = book.parked.values().map(super::Stock::count);
        active.chain(parked).sum()
    }

    /// Gives back what nothing needs, by the snapshots that are there; whether anything was.
    fn reclaim_unneeded(&self) -> Result<bool, JournalError> {
        let needed = || {
            let before = self.book.lock().snapshot_before;
            let before = before.unwrap_or(self.journal.start());
            (before, self.needed_from(before))
        };
        let (_, (keep, content_keep)) = needed();
        let is_before = |journal: &Journal, keep: Position| {
            first_limit(journal).is_some_and(|limit| limit <= keep)
        };
        let content = self.content_journal.as_ref().zip(content_keep);
        if !is_before(&self.journal, keep)
            && !content.is_some_and(|(journal, keep)| is_before(journal, keep))
        {
            return Ok(false);
        }
        let gate = self.gate.write();
        let (snapshot, keeps) = needed();
        // What ended it must be on the disk before it goes.
        let durable = self.begin_to_sync()?;
        drop(gate);
        for wait in durable {
            wait.wait_blocking()?;
        }
        self.reclaim(snapshot, keeps)?;
        Ok(true)
    }

    /// Whether a segment goes after two more snapshots, and there is room for them beside what ends
    /// FlowFiles.
    fn is_snapshot_worth_it(&self) -> bool {
        let Some(room) = self.journal.room_ahead().checked_sub(self.reserve_wanted()) else {
            return false;
        };
        let has_frames = first_limit(&self.journal).is_some_and(|limit| {
            let swapped = self.contents.lowest_frame();
            swapped.is_none_or(|swapped| swapped >= limit)
        });
        match &self.content_journal {
            // What is moved there is told here.
            Some(_) => {
                let has_living = |winnable: Winnable| !winnable.living.is_empty();
                has_frames || self.winnable(room).is_some_and(has_living)
            }
            None => has_frames && self.winnable(room).is_some(),
        }
    }

    /// What of the first segment with content still lives, where that is little enough to be moved:
    /// `room` bytes are left in the records' journal.
    fn winnable(&self, room: u64) -> Option<Winnable> {
        let content_journal = self.content_journal.as_ref();
        let journal = content_journal.unwrap_or(&self.journal);
        let limit = first_limit(journal)?;
        let living = self.contents.below(limit);
        let is_pinned = self.contents.lowest() < self.contents.lowest_claim()
            && self.contents.lowest().is_some_and(|lowest| lowest < limit);
        let moved = |claim: &Arc<Claim>| claim.disk_len() + MOVE_BYTES;
        let bytes: u64 = living.iter().map(moved).sum();
        let told = living.len() as u64 * MOVE_BYTES;
        let fits = match content_journal {
            Some(journal) => told <= room && bytes <= journal.room_ahead(),
            None => bytes <= room,
        };
        // Else as much room goes as is won.
        let pays = bytes * 2 <= limit.0 - journal.start().0;
        (!is_pinned && fits && pays).then_some(Winnable { living })
    }

    /// What is dead in the only segment goes with the whole of it only, and only when it is sealed.
    fn seal_where_alone(&self) {
        let snapshot = self.snapshot_estimate(&self.book.lock());
        let content = self.contents.live_bytes();
        let (records, others) = match &self.content_journal {
            Some(_) => (snapshot, content),
            None => (snapshot + content, 0),
        };
        for (journal, living) in self.journals().zip([records, others]) {
            if let [only] = journal.segments().as_slice()
                && !only.sealed
                && only.end.0 - only.base.0 > 2 * living
            {
                journal.seal_early();
            }
        }
    }

    fn move_first_segment(&self) -> Result<(), JournalError> {
        let _gate = self.gate.write();
        let room = self.journal.room_ahead();
        let room = room.saturating_sub(self.reserve_wanted());
        if let Some(winnable) = self.winnable(room) {
            for claim in &winnable.living {
                self.move_forward(claim)?;
            }
        }
        Ok(())
    }
}

/// Where the first segment ends, if nothing more is appended to it.
fn first_limit(journal: &Journal) -> Option<Position> {
    let segments = journal.segments();
    match segments.as_slice() {
        [first, second, ..] if first.sealed => Some(second.base),
        _ => None,
    }
}

/// Bytes that the end of one FlowFile takes, in a commit of its own.
const END_BYTES: u64 = 96;

/// Bytes that a FlowFile takes in a snapshot, where that is not known.
const PUT_BYTES: u64 = 256;

/// Bytes that a moved claim takes beside its own.
const MOVE_BYTES: u64 = 96;
