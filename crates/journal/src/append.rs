//! Appending: assigning positions, queueing bytes for the writer, and waiting for room.
//!
//! An append copies into a pending buffer under a short lock and makes no system call but, when
//! the writer thread sleeps, the one that wakes it.

use std::pin::pin;
use std::sync::atomic::Ordering;

use crate::checksum::Checksum;
use crate::done::Done;
use crate::error::JournalError;
use crate::format::{Frame, Position};
use crate::journal::Journal;
use crate::options::Durability;
use crate::state::{Admit, PayloadCrcs};

/// Where an append's frames stand: one after another from `first` to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Position of the first frame.
    pub first: Position,
    /// Where the last frame ends.
    pub end: Position,
}

impl Placed {
    /// The position of each of the `frames` that were placed here.
    pub fn each<'a>(self, frames: &'a [Frame<'a>]) -> impl Iterator<Item = Position> + 'a {
        frames.iter().scan(self.first.0, |next, frame| {
            let position = Position(*next);
            *next += frame.framed_len();
            Some(position)
        })
    }
}

impl Journal {
    /// Assigns the next positions to `frames` and queues their bytes; never waits for the disk.
    ///
    /// The order of calls is the order in the journal. The frames of one call stand together in
    /// one segment. `need` is how far the writer carries them without being asked again; `done`
    /// is told when a level is reached, and dropped unrun when this call fails. No frames at all
    /// make a barrier: `done` is told when everything before has reached the level.
    ///
    /// Errors: `Busy` (wait for [`Journal::room`]), `Full` (the disk has no room; a later call
    /// tries again), `TooLarge`, `Poisoned`, `Closed`. Nothing was assigned then.
    pub fn append(
        &self,
        frames: &[Frame<'_>],
        need: Durability,
        done: Done,
    ) -> Result<Placed, JournalError> {
        self.append_as(false, frames, need, done)
    }

    /// As [`Journal::append`], and may take the reserve: for what is needed to free space on a full
    /// disk, and for nothing else.
    pub fn append_vital(
        &self,
        frames: &[Frame<'_>],
        need: Durability,
        done: Done,
    ) -> Result<Placed, JournalError> {
        self.append_as(true, frames, need, done)
    }

    /// As [`Journal::append`], of one frame whose payload has this checksum: who knows those of its
    /// parts spares counting them again, and once more after `Busy`.
    pub fn append_summed(
        &self,
        frame: Frame<'_>,
        checksum: Checksum,
        need: Durability,
        done: Done,
    ) -> Result<Placed, JournalError> {
        debug_assert_eq!(
            PayloadCrcs::of(&[frame]).as_slice(),
            [checksum.value()],
            "a frame whose checksum is wrong would be lost"
        );
        self.shared().options.check_append(frame.framed_len())?;
        self.append_with(false, &[frame], &checksum.into(), need, done)
    }

    fn append_as(
        &self,
        is_vital: bool,
        frames: &[Frame<'_>],
        need: Durability,
        done: Done,
    ) -> Result<Placed, JournalError> {
        let bytes = frames.iter().map(Frame::framed_len).sum();
        self.shared().options.check_append(bytes)?;
        let crcs = PayloadCrcs::of(frames);
        self.append_with(is_vital, frames, &crcs, need, done)
    }

    /// Appends frames whose checksums are known and whose size was checked.
    fn append_with(
        &self,
        is_vital: bool,
        frames: &[Frame<'_>],
        crcs: &PayloadCrcs,
        need: Durability,
        done: Done,
    ) -> Result<Placed, JournalError> {
        let shared = self.shared();
        let bytes: u64 = frames.iter().map(Frame::framed_len).sum();
        let mut state = shared.state.lock();
        state.check_open()?;
        let reserve = if is_vital { 0 } else { state.reserve };
        match state.admit(bytes, reserve, shared.options.pending_bytes_max) {
            Admit::Here => {}
            Admit::Next => state.roll_over(),
            Admit::Busy => return Err(JournalError::Busy),
            Admit::Lacking => {
                state.want = state.want.max(bytes);
                state.want_is_vital |= is_vital;
                let answer = match state.full.clone() {
                    Some(source) => JournalError::Full { source },
                    None => JournalError::Busy,
                };
                shared.wake_writer(state);
                return Err(answer);
            }
        }
        let first = Position(state.end);
        state.place(frames, crcs, bytes);
        let end = Position(state.end);
        state.pending.need = state.pending.need.max(need);
        state.pending.is_pressing |= need < Durability::Disk && done.os.is_some();
        if done.os.is_some() || done.disk.is_some() {
            state.pending.done.push(done);
        }
        state.note_append();
        shared.wake_writer(state);
        Ok(Placed { first, end })
    }

    /// Appends and waits until `need` is reached, for room too; `Full` is answered at once.
    pub async fn append_wait(
        &self,
        frames: &[Frame<'_>],
        need: Durability,
    ) -> Result<Placed, JournalError> {
        let bytes = frames.iter().map(Frame::framed_len).sum();
        loop {
            let (done, wait) = Done::channel(need);
            match self.append(frames, need, done) {
                Ok(placed) => return wait.await.map(|()| placed),
                Err(JournalError::Busy) => self.room(bytes).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`Journal::append_wait`], on a thread that may block.
    pub fn append_blocking(
        &self,
        frames: &[Frame<'_>],
        need: Durability,
    ) -> Result<Placed, JournalError> {
        self.append_blocking_as(false, frames, need)
    }

    /// As [`Journal::append_vital`], on a thread that may block, until `need` is reached.
    pub fn append_vital_blocking(
        &self,
        frames: &[Frame<'_>],
        need: Durability,
    ) -> Result<Placed, JournalError> {
        self.append_blocking_as(true, frames, need)
    }

    fn append_blocking_as(
        &self,
        is_vital: bool,
        frames: &[Frame<'_>],
        need: Durability,
    ) -> Result<Placed, JournalError> {
        let bytes = frames.iter().map(Frame::framed_len).sum();
        loop {
            let (done, wait) = Done::channel(need);
            match self.append_as(is_vital, frames, need, done) {
                Ok(placed) => return wait.wait_blocking().map(|()| placed),
                Err(JournalError::Busy) => self.room_blocking(bytes),
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells that the caller of an append had no answer yet to one before: it sends at its own pace,
    /// and loses nothing when it is answered together with others (see
    /// [`sync_interval`](crate::JournalOptions::sync_interval)).
    pub fn note_sent_on(&self) {
        self.shared().sent_on.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps `bytes` on the disk for [`Journal::append_vital`] from now on, as far as half a
    /// segment holds them.
    pub fn set_reserve(&self, bytes: u64) {
        let shared = self.shared();
        shared.state.lock().reserve = bytes.min(shared.options.segment_bytes / 2);
    }

    /// On a full disk, ends the segment that is appended to and goes on in the next, or where there
    /// is none in a small one, which takes the room that was left in it: for when only the freeing
    /// of that segment can make room, since there is no other. Does not wait; nothing happens when
    /// the disk is not full.
    pub fn seal_early(&self) {
        let shared = self.shared();
        let mut state = shared.state.lock();
        if state.full.is_some() && state.check_open().is_ok() {
            match state.next {
                Some(_) => state.roll_over(),
                None => state.seals_early = true,
            }
            shared.wake_writer(state);
        }
    }

    /// Whether the disk had no room when the journal last wanted some.
    pub fn is_full(&self) -> bool {
        self.shared().state.lock().full.is_some()
    }

    /// Bytes that appends find on the disk however full it is; those of the reserve among them.
    pub fn room_ahead(&self) -> u64 {
        self.shared().state.lock().room()
    }

    /// Waits until an append of `bytes` (frame headers included, see [`Frame::framed_len`]) would
    /// not be answered `Busy`; also returns when it would fail for good.
    pub async fn room(&self, bytes: u64) {
        loop {
            let mut notified = pin!(self.shared().room_async.notified());
            notified.as_mut().enable();
            if self.shared().has_room(bytes) {
                return;
            }
            notified.await;
        }
    }

    /// As [`Journal::room`], on a thread that may block.
    pub fn room_blocking(&self, bytes: u64) {
        let shared = self.shared();
        let bytes = bytes.min(shared.options.append_bytes_max());
        let mut state = shared.state.lock();
        while !state.ask_room(bytes, shared.options.pending_bytes_max) {
            shared.work.notify_one();
            shared.room.wait(&mut state);
        }
    }
}
