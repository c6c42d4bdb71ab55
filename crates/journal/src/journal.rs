//! The journal as its callers see it: opening, appending, reading, reclaiming, closing.
//!
//! Appending copies into a pending buffer under a short lock and makes no system call but, when
//! the writer thread sleeps, the one that wakes it. All else that touches the disk is the
//! writer's (see `writer`), but for reads and reclamation.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::checksum::Checksum;
use crate::disk::{Disk, DiskLock, LockError};
use crate::done::Done;
use crate::error::JournalError;
use crate::format::{
    FRAME_OVERHEAD_BYTES, Frame, FrameHeader, FrameRef, Position, SEGMENT_HEADER_BYTES,
};
use crate::limits;
use crate::mark::Marks;
use crate::recovery::{self, Recovery};
use crate::segment::{SegmentInfo, SegmentTable, Stretch};
use crate::spares::Spares;
use crate::state::{Admit, Batch, Condition, PayloadCrcs, Shared, State};
use crate::syncer::Syncing;
use crate::telemetry::Telemetry;
use crate::writer::Writer;

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
        }
    }
}

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

/// A journal on one folder; clones share it, and the last one dropped closes it.
#[derive(Clone)]
pub struct Journal {
    handle: Arc<Handle>,
}

impl Journal {
    /// Opens the journal in `dir`, making it if need be, and shows every whole frame to `visit`.
    ///
    /// `visit` runs before anything is changed on the disk; an error of its ends the opening.
    /// Errors: `Locked` when another journal has the folder open, `Format` for a newer version's
    /// segments, `Io`.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: JournalOptions,
        visit: &mut dyn FnMut(FrameRef<'_>) -> Result<(), JournalError>,
    ) -> Result<(Journal, Recovery), JournalError> {
        let (journal, writer, recovery) = Journal::open_stepped(disk, dir, options, visit)?;
        let thread = thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| JournalError::io("start the writer thread of", dir, error))?;
        let threads = &journal.handle.shared.threads;
        threads.lock().push(thread.thread().id());
        *journal.handle.thread.lock() = Some(thread);
        Ok((journal, recovery))
    }

    /// Shows every whole frame in `dir` to `visit`, whatever is marked, and changes nothing: what an
    /// opening would report and cut is reported only. Errors as [`Journal::open`].
    pub fn inspect(
        disk: Arc<dyn Disk>,
        dir: &Path,
        visit: &mut dyn FnMut(FrameRef<'_>) -> Result<(), JournalError>,
    ) -> Result<Recovery, JournalError> {
        let _lock = lock(&*disk, dir)?;
        recovery::inspect(&disk, dir, &JournalOptions::default(), visit)
    }

    /// Opens without a thread: whoever holds the writer steps it. For simulations.
    pub(crate) fn open_stepped(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: JournalOptions,
        visit: &mut dyn FnMut(FrameRef<'_>) -> Result<(), JournalError>,
    ) -> Result<(Journal, Writer, Recovery), JournalError> {
        options.check()?;
        disk.create_dir(dir)
            .map_err(|error| JournalError::io("create", dir, error))?;
        let lock = lock(&*disk, dir)?;
        let table = SegmentTable::new(disk.clone(), dir);
        let marks = Marks::read(&*disk, dir);
        let mark = marks.newest();
        if options.reserve_bytes > 0 {
            marks.make_room(&*disk, dir);
        }
        Spares::clear(&*disk, dir)?;
        let (tail, recovery) = recovery::recover(&disk, dir, &table, &options, mark, visit)?;
        let end = tail
            .segment
            .written
            .load(std::sync::atomic::Ordering::Acquire);
        let shared = Arc::new(Shared {
            disk,
            dir: dir.to_owned(),
            options,
            table,
            state: Mutex::new(State {
                end,
                durable: end,
                active: tail,
                next: None,
                pending: Batch::default(),
                in_flight: 0,
                want: 0,
                want_is_vital: false,
                seals_early: false,
                reserve: options.reserve_bytes,
                full: None,
                condition: Condition::Open,
                parked: false,
                stopped: false,
                closed: None,
                lock: Some(lock),
            }),
            work: Condvar::new(),
            room: Condvar::new(),
            room_async: Notify::new(),
            reclaiming: Mutex::new(()),
            marks: Mutex::new(marks),
            spares: Spares::new(options.spares_max),
            syncing: Syncing::default(),
            threads: Mutex::default(),
            telemetry: Telemetry::default(),
        });
        let mut writer = Writer::new(shared.clone());
        writer.commit.allocate_ahead();
        let handle = Handle {
            shared,
            thread: Mutex::new(None),
        };
        Ok((
            Journal {
                handle: Arc::new(handle),
            },
            writer,
            recovery,
        ))
    }

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
        self.handle
            .shared
            .options
            .check_append(frame.framed_len())?;
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
        self.handle.shared.options.check_append(bytes)?;
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
        let shared = &self.handle.shared;
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
        if done.os.is_some() || done.disk.is_some() {
            state.pending.done.push(done);
        }
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

    /// Keeps `bytes` on the disk for [`Journal::append_vital`] from now on, as far as half a
    /// segment holds them.
    pub fn set_reserve(&self, bytes: u64) {
        let shared = &self.handle.shared;
        shared.state.lock().reserve = bytes.min(shared.options.segment_bytes / 2);
    }

    /// On a full disk, ends the segment that is appended to and goes on in the next, or where there
    /// is none in a small one, which takes the room that was left in it: for when only the freeing
    /// of that segment can make room, since there is no other. Does not wait; nothing happens when
    /// the disk is not full.
    pub fn seal_early(&self) {
        let shared = &self.handle.shared;
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
        self.handle.shared.state.lock().full.is_some()
    }

    /// Bytes that appends find on the disk however full it is; those of the reserve among them.
    pub fn room_ahead(&self) -> u64 {
        self.handle.shared.state.lock().room()
    }

    /// Waits until an append of `bytes` (frame headers included, see [`Frame::framed_len`]) would
    /// not be answered `Busy`; also returns when it would fail for good.
    pub async fn room(&self, bytes: u64) {
        loop {
            let mut notified = pin!(self.handle.shared.room_async.notified());
            notified.as_mut().enable();
            if self.handle.shared.has_room(bytes) {
                return;
            }
            notified.await;
        }
    }

    /// As [`Journal::room`], on a thread that may block.
    pub fn room_blocking(&self, bytes: u64) {
        let shared = &self.handle.shared;
        let bytes = bytes.min(shared.options.append_bytes_max());
        let mut state = shared.state.lock();
        while !state.ask_room(bytes, shared.options.pending_bytes_max) {
            shared.work.notify_one();
            shared.room.wait(&mut state);
        }
    }

    /// Reads `len` bytes at `position`, a range within one frame that reached `os`.
    ///
    /// The bytes come as the disk has them, unchecked; [`Journal::read_frame`] checks. Errors:
    /// `OutOfRange` when they are not written yet, `Reclaimed`, `Io`.
    pub fn read(&self, position: Position, len: usize) -> Result<Bytes, JournalError> {
        let table = &self.handle.shared.table;
        // Checked before the buffer is made, so that no wrong length allocates.
        if table.readable(position.0)? < len as u64 {
            return Err(JournalError::OutOfRange { position, len });
        }
        table.read_new(position.0, len).map(Bytes::from)
    }

    /// As [`Journal::read`], into a buffer of the caller's, all of which is filled.
    pub fn read_into(&self, position: Position, into: &mut [u8]) -> Result<(), JournalError> {
        self.handle.shared.table.read(position.0, into)
    }

    /// Where the bytes that [`Journal::read`] would answer lie, for who has the operating system
    /// move them. Errors as there.
    pub fn stretch(&self, position: Position, len: usize) -> Result<Stretch, JournalError> {
        self.handle.shared.table.stretch(position.0, len)
    }

    /// Reads the payload of the frame at `position` and checks it. Errors as [`Journal::read`],
    /// and `Damaged` when no whole frame stands there.
    pub fn read_frame(&self, position: Position) -> Result<Bytes, JournalError> {
        let mut header = [0; FRAME_OVERHEAD_BYTES as usize];
        self.handle.shared.table.read(position.0, &mut header)?;
        let header = FrameHeader::decode(&header);
        let damaged = JournalError::Damaged { position };
        let payload = match self.read(position.payload(), header.length as usize) {
            Err(JournalError::OutOfRange { .. }) => return Err(damaged),
            other => other?,
        };
        if header.position != position.0 || !header.matches(&payload) {
            return Err(damaged);
        }
        Ok(payload)
    }

    /// The position that the next frame gets, or one in a later segment.
    pub fn end(&self) -> Position {
        Position(self.handle.shared.state.lock().end)
    }

    /// The position up to which everything is on the disk.
    pub fn durable_end(&self) -> Position {
        Position(self.handle.shared.state.lock().durable)
    }

    /// The first position that the journal holds.
    pub fn start(&self) -> Position {
        Position(self.handle.shared.table.start())
    }

    /// Removes whole sealed segments that end at or below `low_water`; says how many.
    ///
    /// A crash may bring the last one removed back: who keeps a low-water mark skips what lies
    /// below it. Blocks on the disk.
    pub fn reclaim(&self, low_water: Position) -> Result<u32, JournalError> {
        let shared = &self.handle.shared;
        shared.state.lock().check_open()?;
        let _alone = shared.reclaiming.lock();
        let mut removed = 0;
        while let Some(segment) = shared.table.take_below(low_water.0) {
            let path = shared.table.path(segment.base);
            // Positions behind what is durable may be given out again, and old frames would count.
            let is_past = segment.limit() < shared.state.lock().durable;
            let gone = if is_past {
                shared.spares.keep_or_remove(&*shared.disk, &path)
            } else {
                shared.disk.remove(&path)
            };
            if let Err(error) = gone {
                // It stays the oldest, or the next call would leave a hole behind it.
                shared.table.insert(segment, None);
                return Err(JournalError::io("remove", &path, error));
            }
            // One at a time, so that a crash can bring back only the newest of them: a hole in
            // the chain would be taken for damage.
            if let Err(error) = shared.disk.sync_dir(&shared.dir) {
                return Err(shared.poison(JournalError::io("sync", &shared.dir, error)));
            }
            removed += 1;
        }
        if removed > 0 {
            // Room on the disk: let the writer try its allocation again.
            let mut state = shared.state.lock();
            if state.full.is_some() {
                state.want = state.want.max(FRAME_OVERHEAD_BYTES);
                shared.wake_writer(state);
            }
        }
        Ok(removed)
    }

    /// Has later openings begin at `position`, where a frame begins and from where on the caller
    /// can rebuild its state; everything before it must be on the disk. Blocks on the disk.
    ///
    /// Errors: `OutOfRange` when the position is not durable, `Io`, after which the mark before
    /// holds, `Poisoned`, `Closed`.
    pub fn mark(&self, position: Position) -> Result<(), JournalError> {
        let shared = &self.handle.shared;
        {
            let state = shared.state.lock();
            state.check_open()?;
            if position.0 > state.durable {
                return Err(JournalError::OutOfRange { position, len: 0 });
            }
        }
        let mut marks = shared.marks.lock();
        marks.write(&*shared.disk, &shared.dir, position.0)
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.handle.shared.table.infos()
    }

    /// Bytes that the segments take on the disk, preallocated and spare ones included.
    pub fn bytes_on_disk(&self) -> u64 {
        self.handle.shared.table.bytes_on_disk() + self.handle.shared.spares.bytes()
    }

    /// Whether a failed write or sync has poisoned it.
    pub fn is_poisoned(&self) -> bool {
        let state = self.handle.shared.state.lock();
        matches!(state.condition, Condition::Poisoned(_))
    }

    /// Whether it takes writes. Errors: `Poisoned` after a failed write or sync.
    pub fn health(&self) -> Result<(), JournalError> {
        match &self.handle.shared.state.lock().condition {
            Condition::Poisoned(source) => Err(JournalError::Poisoned {
                source: source.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// What its group commits were like.
    pub fn telemetry(&self) -> &Telemetry {
        &self.handle.shared.telemetry
    }

    /// Bytes that the file system of the folder has, and of those the ones that are free to this
    /// process.
    pub fn disk_room(&self) -> std::io::Result<(u64, u64)> {
        let room = rustix::fs::statvfs(&self.handle.shared.dir)?;
        let block = room.f_frsize;
        Ok((room.f_blocks * block, room.f_bavail * block))
    }

    /// Writes and syncs what is pending, stops the writer and releases the folder. Blocks; a
    /// second call answers as the first did. Errors: `Poisoned`, `Io`; the folder is released
    /// all the same.
    pub fn close(&self) -> Result<(), JournalError> {
        self.handle.close()
    }
}

#[cfg(test)]
impl Journal {
    /// The writer's view, for a failing simulation's message.
    pub(crate) fn state_text(&self) -> String {
        let state = self.handle.shared.state.lock();
        format!(
            "end {} active {}..{} admitted {} next admitted {:?} pending {} want {} full {:?} {:?}",
            state.end,
            state.active.segment.base,
            state.active.segment.limit(),
            state.active.admitted,
            state
                .next
                .as_ref()
                .map(|next| (next.segment.base, next.admitted)),
            state.pending.bytes.len() as u64 + state.in_flight,
            state.want,
            state.full,
            self.handle.shared.options,
        )
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("dir", &self.handle.shared.dir)
            .finish_non_exhaustive()
    }
}

impl JournalOptions {
    fn check(&self) -> Result<(), JournalError> {
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

    fn check_append(&self, bytes: u64) -> Result<(), JournalError> {
        let bytes_max = self.append_bytes_max();
        if bytes > bytes_max {
            return Err(JournalError::TooLarge { bytes, bytes_max });
        }
        Ok(())
    }
}

/// Takes the folder for this process.
fn lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DiskLock>, JournalError> {
    let path = dir.join(LOCK_NAME);
    disk.lock(&path).map_err(|error| match error {
        LockError::Taken(pid) => JournalError::Locked {
            dir: dir.to_owned(),
            pid,
        },
        LockError::Io(error) => JournalError::io("lock", &path, error),
    })
}

/// What the clones of a journal share beside the writer; its end closes the journal.
struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    fn close(&self) -> Result<(), JournalError> {
        let here = thread::current().id();
        let on_writer = self.shared.threads.lock().contains(&here);
        let thread = self.thread.lock().take();
        let mut state = self.shared.state.lock();
        if matches!(state.condition, Condition::Open) {
            state.condition = Condition::Closed;
        }
        self.shared.work.notify_one();
        if thread.is_none() && !state.stopped {
            // Stepped, or another call joins the thread: the lock goes when the writer has.
            if self.shared.threads.lock().is_empty() {
                state.lock = None;
                state.stopped = true;
            }
        }
        if on_writer {
            // A callback closes its own journal: the writer finishes when the callback returns.
            return Ok(());
        }
        while !state.stopped {
            self.shared.room.wait(&mut state);
        }
        let outcome = state.closed.clone().unwrap_or(Ok(()));
        drop(state);
        if let Some(thread) = thread {
            // A panic of the thread has poisoned the journal already.
            let _ = thread.join();
        }
        outcome
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(
                dir = %self.shared.dir.display(),
                error = base::report(&error),
                "the journal was not closed cleanly; it recovers when it is opened again"
            );
        }
    }
}

const LOCK_NAME: &str = "journal.lock";
