//! The journal as its callers see it: opening, reading, reclaiming, closing; `append` has the rest.
//!
//! All that touches the disk is the writer's (see `writer`), but for reads and reclamation.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::carry;
use crate::disk::{Disk, DiskLock, LockError};
use crate::error::JournalError;
use crate::format::{FRAME_OVERHEAD_BYTES, FrameHeader, FrameRef, Position};
use crate::mark::Marks;
use crate::options::{Durability, JournalOptions};
use crate::recovery::{self, Recovery};
use crate::segment::{SegmentInfo, SegmentTable, Stretch};
use crate::spares::Spares;
use crate::state::{Condition, Shared, State};
use crate::telemetry::Telemetry;
use crate::writer::Writer;

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
            .spawn(move || Box::new(writer).run())
            .map_err(|error| JournalError::io("start the writer thread of", dir, error))?;
        let threads = &journal.shared().threads;
        threads.lock().push(thread.thread().id());
        *journal.handle.thread.lock() = Some(thread);
        Ok((journal, recovery))
    }

    /// As [`Journal::open`], for a file system that is read-only: shows what stands and changes
    /// nothing. It can be read; appends are answered `Poisoned` from the outset.
    ///
    /// Errors: as there, and `Io` where no journal stands.
    pub fn open_to_read(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: JournalOptions,
        visit: &mut dyn FnMut(FrameRef<'_>) -> Result<(), JournalError>,
    ) -> Result<(Journal, Recovery), JournalError> {
        options.check()?;
        let read_only = || io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        let path = dir.join(LOCK_NAME);
        let lock = match disk.lock_to_read(&path) {
            Err(LockError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Err(JournalError::io("create", &path, read_only()));
            }
            taken => taken.map_err(|error| not_locked(dir, error))?,
        };
        let table = SegmentTable::new(disk.clone(), dir);
        let marks = Marks::read(&*disk, dir);
        let mark = marks.newest();
        let (tail, recovery) =
            recovery::recover_to_read(&disk, dir, &table, &options, mark, visit)?;
        let mut state = State::new(tail, &options, lock);
        let source = state.poison(JournalError::io("write to", dir, read_only()), dir);
        // There is no writer.
        state.stopped = true;
        state.closed = Some(Err(JournalError::Poisoned { source }));
        let shared = Shared::new(disk, dir, options, table, marks, state);
        Ok((Journal::on(Arc::new(shared)), recovery))
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
        let state = State::new(tail, &options, lock);
        let shared = Arc::new(Shared::new(disk, dir, options, table, marks, state));
        let mut writer = Writer::new(shared.clone());
        writer.commit.allocate_ahead();
        Ok((Journal::on(shared), writer, recovery))
    }

    fn on(shared: Arc<Shared>) -> Journal {
        let handle = Handle {
            shared,
            thread: Mutex::new(None),
        };
        Journal {
            handle: Arc::new(handle),
        }
    }

    /// Reads `len` bytes at `position`, a range within one frame that reached `os`.
    ///
    /// The bytes come as the disk has them, unchecked; [`Journal::read_frame`] checks. Errors:
    /// `OutOfRange` when they are not written yet, `Reclaimed`, `Io`.
    pub fn read(&self, position: Position, len: usize) -> Result<Bytes, JournalError> {
        let table = &self.shared().table;
        // Checked before the buffer is made, so that no wrong length allocates.
        if table.readable(position.0)? < len as u64 {
            return Err(JournalError::OutOfRange { position, len });
        }
        table.read_new(position.0, len).map(Bytes::from)
    }

    /// As [`Journal::read`], into a buffer of the caller's, all of which is filled.
    pub fn read_into(&self, position: Position, into: &mut [u8]) -> Result<(), JournalError> {
        self.shared().table.read(position.0, into)
    }

    /// Tells that `len` bytes at `position`, a range within one frame, are going to be read soon:
    /// the disk may begin now. Does nothing where they are not to be had.
    pub fn read_ahead(&self, position: Position, len: usize) {
        self.shared().table.read_ahead(position.0, len);
    }

    /// Where the bytes that [`Journal::read`] would answer lie, for who has the operating system
    /// move them. Errors as there.
    pub fn stretch(&self, position: Position, len: usize) -> Result<Stretch, JournalError> {
        self.shared().table.stretch(position.0, len)
    }

    /// Reads the payload of the frame at `position` and checks it. Errors as [`Journal::read`],
    /// and `Damaged` when no whole frame stands there.
    pub fn read_frame(&self, position: Position) -> Result<Bytes, JournalError> {
        let mut header = [0; FRAME_OVERHEAD_BYTES as usize];
        self.shared().table.read(position.0, &mut header)?;
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

    /// As [`Journal::read_frame`], of a frame that was appended and may still be on its way to the
    /// file: blocks until it is there.
    pub fn read_appended(&self, position: Position) -> Result<Bytes, JournalError> {
        match self.read_frame(position) {
            Err(JournalError::OutOfRange { .. }) if position < self.end() => {
                self.append_blocking(&[], Durability::Os)?;
                self.read_frame(position)
            }
            read => read,
        }
    }

    /// The position that the next frame gets, or one in a later segment.
    pub fn end(&self) -> Position {
        Position(self.shared().state.lock().end)
    }

    /// The position up to which everything is on the disk.
    pub fn durable_end(&self) -> Position {
        Position(self.shared().state.lock().durable)
    }

    /// The first position that the journal holds.
    pub fn start(&self) -> Position {
        Position(self.shared().table.start())
    }

    /// Whether what a read failed on is lost for good: the disk cannot read it, and still reads
    /// what stands first in the journal. Where it reads nothing, it may only be away.
    pub fn has_lost(&self, error: &JournalError) -> bool {
        let reads = || self.read(self.start(), FRAME_OVERHEAD_BYTES as usize);
        error.is_unreadable() && !reads().is_err_and(|error| error.is_unreadable())
    }

    /// Removes whole sealed segments that end at or below `low_water`; says how many.
    ///
    /// A crash may bring the last one removed back: who keeps a low-water mark skips what lies
    /// below it. Blocks on the disk.
    pub fn reclaim(&self, low_water: Position) -> Result<u32, JournalError> {
        let shared = self.shared();
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
            self.look_for_room();
        }
        Ok(removed)
    }

    /// Removes the files of reclaimed segments that are kept for new ones, to have their room for
    /// others on the disk; says how many there were.
    pub fn give_up_spares(&self) -> u32 {
        let shared = self.shared();
        let mut removed = 0;
        while shared.spares.give_up_one(&*shared.disk) {
            removed += 1;
        }
        removed
    }

    /// Room came on the disk: a journal that found none tries its allocation again.
    pub fn look_for_room(&self) {
        let shared = self.shared();
        let mut state = shared.state.lock();
        if state.full.is_some() {
            state.want = state.want.max(FRAME_OVERHEAD_BYTES);
            shared.wake_writer(state);
        }
    }

    /// Has later openings begin at `position`, where a frame begins and from where on the caller
    /// can rebuild its state; everything before it must be on the disk. Blocks on the disk.
    ///
    /// Errors: `OutOfRange` when the position is not durable, `Io`, after which the mark before
    /// holds, `Poisoned`, `Closed`.
    pub fn mark(&self, position: Position) -> Result<(), JournalError> {
        let shared = self.shared();
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
        self.shared().table.infos()
    }

    /// Bytes that the segments take on the disk, preallocated and spare ones included.
    pub fn bytes_on_disk(&self) -> u64 {
        self.shared().table.bytes_on_disk() + self.shared().spares.bytes()
    }

    /// Whether a failed write or sync has poisoned it.
    pub fn is_poisoned(&self) -> bool {
        let state = self.shared().state.lock();
        matches!(state.condition, Condition::Poisoned(_))
    }

    /// Whether it takes writes. Errors: `Poisoned` after a failed write or sync.
    pub fn health(&self) -> Result<(), JournalError> {
        match &self.shared().state.lock().condition {
            Condition::Poisoned(source) => Err(JournalError::Poisoned {
                source: source.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// What its group commits were like.
    pub fn telemetry(&self) -> &Telemetry {
        &self.shared().telemetry
    }

    /// Bytes that the file system of the folder has, and of those the ones that are free to this
    /// process.
    pub fn disk_room(&self) -> std::io::Result<(u64, u64)> {
        let room = rustix::fs::statvfs(&self.shared().dir)?;
        let block = room.f_frsize;
        Ok((room.f_blocks * block, room.f_bavail * block))
    }

    /// Writes and syncs what is pending, stops the writer and releases the folder. Blocks; a
    /// second call answers as the first did. Errors: `Poisoned`, `Io`; the folder is released
    /// all the same.
    pub fn close(&self) -> Result<(), JournalError> {
        self.handle.close()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }
}

#[cfg(test)]
impl Journal {
    /// The writer's view, for a failing simulation's message.
    pub(crate) fn state_text(&self) -> String {
        let state = self.shared().state.lock();
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
            self.shared().options,
        )
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("dir", &self.shared().dir)
            .finish_non_exhaustive()
    }
}

/// Takes the folder for this process.
fn lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DiskLock>, JournalError> {
    let path = dir.join(LOCK_NAME);
    disk.lock(&path).map_err(|error| not_locked(dir, error))
}

fn not_locked(dir: &Path, error: LockError) -> JournalError {
    match error {
        LockError::Taken(pid) => JournalError::Locked {
            dir: dir.to_owned(),
            pid,
        },
        LockError::Io(error) => JournalError::io("lock", &dir.join(LOCK_NAME), error),
    }
}

/// What the clones of a journal share beside the writer; its end closes the journal.
struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    fn close(&self) -> Result<(), JournalError> {
        let here = thread::current().id();
        let on_writer =
            self.shared.threads.lock().contains(&here) || carry::is_carrying(&self.shared);
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
