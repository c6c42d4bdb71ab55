//! What callers and the writer thread share: where the journal ends, how far there is space,
//! and what is pending. No IO happens here.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::carry::{self, Trust};
use crate::checksum::Checksum;
use crate::disk::{Disk, DiskLock, File};
use crate::done::Done;
use crate::error::JournalError;
use crate::format::{
    FLAG_SEAL, FRAME_OVERHEAD_BYTES, Frame, FrameHeader, SEGMENT_HEADER_BYTES, unsynced,
};
use crate::limits;
use crate::mark::Marks;
use crate::options::{Durability, JournalOptions};
use crate::pages::Buffer;
use crate::segment::{Segment, SegmentTable};
use crate::spares::Spares;
use crate::syncer::Syncing;
use crate::telemetry::Telemetry;
use crate::writer::Writer;

/// What callers and the writer share.
pub(crate) struct Shared {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    pub options: JournalOptions,
    pub table: SegmentTable,
    pub state: Mutex<State>,
    /// Wakes the writer.
    pub work: Condvar,
    /// Wakes whoever waits for room or for the end.
    pub room: Condvar,
    pub room_async: Notify,
    pub reclaiming: Mutex<()>,
    pub marks: Mutex<Marks>,
    /// Files of reclaimed segments, for new ones.
    pub spares: Spares,
    pub syncing: Syncing,
    /// Appends of callers who waited for an answer already, since the last sync.
    pub sent_on: AtomicUsize,
    /// The journal's own, where nobody may wait for it.
    pub threads: Mutex<Vec<ThreadId>>,
    pub telemetry: Telemetry,
}

impl Shared {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: JournalOptions,
        table: SegmentTable,
        marks: Marks,
        state: State,
    ) -> Self {
        Shared {
            disk,
            dir: dir.to_owned(),
            options,
            table,
            state: Mutex::new(state),
            work: Condvar::new(),
            room: Condvar::new(),
            room_async: Notify::new(),
            reclaiming: Mutex::new(()),
            marks: Mutex::new(marks),
            spares: Spares::new(options.spares_max),
            syncing: Syncing::default(),
            sent_on: AtomicUsize::new(0),
            threads: Mutex::default(),
            telemetry: Telemetry::default(),
        }
    }

    pub(crate) fn notify_room(&self) {
        self.room.notify_all();
        self.room_async.notify_waiters();
    }

    /// Refuses all further calls after a failed sync outside the writer, which then stops.
    pub(crate) fn poison(&self, error: JournalError) -> JournalError {
        let source = self.state.lock().poison(error, &self.dir);
        self.work.notify_one();
        self.notify_room();
        JournalError::Poisoned { source }
    }

    /// Tells the writer of something to do, where it sleeps and this thread does not do it itself.
    pub(crate) fn wake_writer(&self, mut state: MutexGuard<'_, State>) {
        let parked = std::mem::replace(&mut state.parked, Parked::No);
        state.parked = match parked {
            Parked::Asleep(asleep)
                if !asleep.writer.rests() && carry::promises(self, &mut state) =>
            {
                Parked::Promised(asleep)
            }
            Parked::Promised(asleep) if carry::has_promised(self) && state.may_be_carried() => {
                Parked::Promised(asleep)
            }
            Parked::Asleep(asleep) | Parked::Promised(asleep) => return self.call(state, asleep),
            Parked::Resting { .. } if state.is_pressing() => {
                drop(state);
                self.work.notify_one();
                return;
            }
            parked => parked,
        };
    }

    /// Has a writer that sleeps come.
    pub(crate) fn call(&self, mut state: MutexGuard<'_, State>, asleep: Asleep) {
        state.parked = Parked::Called(asleep);
        drop(state);
        self.work.notify_one();
    }

    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let bytes = bytes.min(self.options.append_bytes_max());
        let room = state.ask_room(bytes, self.options.pending_bytes_max);
        self.wake_writer(state);
        room
    }
}

pub(crate) struct State {
    /// Where the next frame goes, if it fits in the active segment.
    pub end: u64,
    /// Everything before this position is synced.
    pub durable: u64,
    pub active: Tail,
    /// The segment after the active one, made ready ahead of need.
    pub next: Option<Tail>,
    pub pending: Batch,
    /// Bytes that the writer has taken and not written yet.
    pub in_flight: u64,
    /// Framed bytes that somebody could not place for want of allocated space.
    pub want: u64,
    /// Who wants them may take the reserve.
    pub want_is_vital: bool,
    /// The active segment is to end where it is, and the next to take the room that it has left.
    pub seals_early: bool,
    /// Allocated bytes that only vital appends may take.
    pub reserve: u64,
    /// Why the last allocation failed, until one succeeds.
    pub full: Option<Arc<io::Error>>,
    pub condition: Condition,
    pub parked: Parked,
    /// Whether the callers of appends may carry them.
    pub trust: Trust,
    pub stopped: bool,
    pub closed: Option<Result<(), JournalError>>,
    pub lock: Option<Box<dyn DiskLock>>,
}

/// Whether the writer's thread sleeps.
pub(crate) enum Parked {
    /// It does not.
    No,
    /// Until anything at all comes.
    Asleep(Asleep),
    /// As well; somebody has promised to carry what is pending (see [`carry`]).
    Promised(Asleep),
    /// Somebody does its work, and has it: it sleeps until that is done, and was called meanwhile or
    /// not.
    Carried { is_called: bool },
    /// It was called, and has not come yet.
    Called(Asleep),
    /// Until what presses comes, see [`State::is_pressing`]; counts the appends since some instant.
    Resting { late_from: Instant, late: usize },
}

/// The writer, for the one who does its work while its thread sleeps.
pub(crate) struct Asleep {
    pub writer: Box<Writer>,
    /// When the thread wakes by itself.
    pub until: Option<Instant>,
}

pub(crate) enum Condition {
    Open,
    Closed,
    Poisoned(Arc<JournalError>),
}

/// A segment that can be appended to, and how far it has space.
#[derive(Clone)]
pub(crate) struct Tail {
    pub segment: Arc<Segment>,
    pub file: Arc<dyn File>,
    /// Positions below this have space on the disk.
    pub admitted: u64,
}

impl Tail {
    pub(crate) fn first(&self) -> u64 {
        self.segment.base + SEGMENT_HEADER_BYTES
    }

    /// Whether `bytes` and a seal fit from its first frame on.
    fn holds(&self, bytes: u64) -> bool {
        self.first() + bytes + FRAME_OVERHEAD_BYTES <= self.admitted
    }
}

pub(crate) enum Admit {
    Here,
    Next,
    Busy,
    Lacking,
}

impl State {
    /// Of a journal that ends with this tail.
    pub(crate) fn new(tail: Tail, options: &JournalOptions, lock: Box<dyn DiskLock>) -> Self {
        let end = tail.segment.written.load(Ordering::Acquire);
        State {
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
            parked: Parked::No,
            trust: Trust::new(),
            stopped: false,
            closed: None,
            lock: Some(lock),
        }
    }

    /// Refuses all further calls for this reason, which the log is told, or for the one before it.
    pub(crate) fn poison(&mut self, error: JournalError, dir: &Path) -> Arc<JournalError> {
        if let Condition::Poisoned(source) = &self.condition {
            return source.clone();
        }
        tracing::error!(
            dir = %dir.display(),
            error = base::report(&error),
            "the journal stops; it must be opened again"
        );
        let source = Arc::new(error);
        self.condition = Condition::Poisoned(source.clone());
        source
    }

    pub(crate) fn check_open(&self) -> Result<(), JournalError> {
        match &self.condition {
            Condition::Open => Ok(()),
            Condition::Closed => Err(JournalError::Closed),
            Condition::Poisoned(source) => Err(JournalError::Poisoned {
                source: source.clone(),
            }),
        }
    }

    /// Where an append of `bytes` goes that leaves `reserve` allocated bytes behind it.
    pub(crate) fn admit(&self, bytes: u64, reserve: u64, pending_bytes_max: u64) -> Admit {
        let waiting = self.pending.bytes.len() as u64 + self.in_flight;
        if self.pending.done.len() >= limits::PENDING_DONE_MAX {
            return Admit::Busy;
        }
        if bytes == 0 {
            return Admit::Here;
        }
        // A large one has its turn when the others leave half, or it might never have.
        let half = pending_bytes_max / 2;
        let may_wait = if bytes > half { half } else { 0 };
        if waiting > may_wait && waiting + bytes > pending_bytes_max {
            return Admit::Busy;
        }
        // Room for the seal is kept free, so that rolling over never needs space.
        let need = self.end + bytes + FRAME_OVERHEAD_BYTES;
        if need <= self.active.admitted
            && (need + reserve <= self.active.admitted
                || self.next.as_ref().is_some_and(|next| next.holds(reserve)))
        {
            return Admit::Here;
        }
        // On a full disk the next segment may have room that this one cannot get.
        if need <= self.active.segment.limit() && self.full.is_none() {
            return Admit::Lacking;
        }
        match &self.next {
            Some(next)
                if next.holds(bytes)
                    && (next.holds(bytes + reserve) || next.admitted == next.segment.limit())
                    && self.end + FRAME_OVERHEAD_BYTES <= self.active.admitted =>
            {
                Admit::Next
            }
            _ => Admit::Lacking,
        }
    }

    /// Whether the writer has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.pending.is_empty() || self.want > 0 || self.seals_early
    }

    /// Whether the writer has something to do that is not better done together with more.
    pub(crate) fn is_pressing(&self) -> bool {
        self.pending.is_pressing
            || self.pending.bytes.len() >= limits::RESTING_BYTES_MAX
            || self.pending.done.len() >= limits::RESTING_APPENDS_MAX
            || self.want > 0
            || self.seals_early
            || !matches!(self.condition, Condition::Open)
    }

    /// Whether what is pending is so little that who appended it may write it, and who is to hear of
    /// it before it is synced does not have to wait for the sync.
    pub(crate) fn may_be_carried(&self) -> bool {
        let is_synced = self.pending.need.0 == Durability::Disk;
        let hears_early = is_synced && self.pending.done.iter().any(|done| done.os.is_some());
        !hears_early
            && matches!(&self.pending.runs[..], [run] if !run.seals)
            && self.pending.bytes.len() <= limits::CARRIED_BYTES_MAX
            && self.pending.done.len() <= limits::CARRIED_APPENDS_MAX
            && self.want == 0
            && !self.seals_early
            && matches!(self.condition, Condition::Open)
    }

    /// Allocated bytes that nothing stands in.
    pub(crate) fn room(&self) -> u64 {
        let here = self.active.admitted.saturating_sub(self.end);
        let next = self.next.as_ref();
        let next = next.map_or(0, |next| next.admitted.saturating_sub(next.first()));
        here.saturating_sub(FRAME_OVERHEAD_BYTES) + next.saturating_sub(FRAME_OVERHEAD_BYTES)
    }

    /// True when an append of `bytes` gets an answer other than `Busy`; asks for space if not.
    pub(crate) fn ask_room(&mut self, bytes: u64, pending_bytes_max: u64) -> bool {
        if self.check_open().is_err() {
            return true;
        }
        match self.admit(bytes, self.reserve, pending_bytes_max) {
            Admit::Here | Admit::Next => true,
            Admit::Busy => false,
            Admit::Lacking => {
                self.want = self.want.max(bytes);
                self.full.is_some()
            }
        }
    }

    /// Seals the active segment and goes on in the next one.
    pub(crate) fn roll_over(&mut self) {
        let Some(next) = self.next.take() else { return };
        let seal = FrameHeader {
            length: 0,
            crc: 0,
            position: self.end,
            unsynced: unsynced(self.end, self.durable),
            kind: 0,
            version: 0,
            flags: FLAG_SEAL,
        };
        self.pending.run(&self.active, self.end).seals = true;
        self.pending.bytes.extend_from_slice(&seal.seal(0));
        self.end = next.first();
        self.active = next;
    }

    /// Counts an append that came late in a rest.
    pub(crate) fn note_append(&mut self) {
        if let Parked::Resting { late_from, late } = &mut self.parked {
            *late += usize::from(Instant::now() >= *late_from);
        }
    }

    pub(crate) fn place(&mut self, frames: &[Frame<'_>], crcs: &PayloadCrcs, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.pending.run(&self.active, self.end);
        self.pending.bytes.reserve(bytes as usize);
        for (frame, crc) in frames.iter().zip(crcs.as_slice()) {
            let header = FrameHeader {
                // Bounded by the segment's size, which is below 2^32.
                length: frame.payload_len() as u32,
                crc: 0,
                position: self.end,
                unsynced: unsynced(self.end, self.durable),
                kind: frame.kind,
                version: frame.version,
                flags: 0,
            };
            self.pending.bytes.extend_from_slice(&header.seal(*crc));
            for part in frame.parts {
                self.pending.bytes.extend_from_slice(part);
            }
            self.end += frame.framed_len();
        }
    }
}

/// What the writer takes at one go; its buffers are used again.
#[derive(Default)]
pub(crate) struct Batch {
    pub bytes: Buffer,
    pub runs: Vec<Run>,
    pub done: Vec<Done>,
    pub need: NeedLevel,
    /// Somebody waits for what needs no sync.
    pub is_pressing: bool,
}

/// The level that a batch must reach; starts at the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NeedLevel(pub Durability);

impl Default for NeedLevel {
    fn default() -> Self {
        NeedLevel(Durability::Memory)
    }
}

impl NeedLevel {
    pub(crate) fn max(self, need: Durability) -> Self {
        NeedLevel(self.0.max(need))
    }
}

/// Bytes of a batch that stand together in one file.
pub(crate) struct Run {
    pub tail: Tail,
    /// Where the run begins in the batch's bytes.
    pub start: usize,
    /// Bytes before it that belong to no run.
    pub skipped: usize,
    pub position: u64,
    /// True when the run ends with the seal of its segment.
    pub seals: bool,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.done.is_empty() && self.need.0 == Durability::Memory
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        self.done.clear();
        self.need = NeedLevel::default();
        self.is_pressing = false;
    }

    /// Each run with its bytes.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (&Run, &[u8])> {
        self.runs.iter().enumerate().map(|(index, run)| {
            let next = self.runs.get(index + 1);
            let end = next.map_or(self.bytes.len(), |next| next.start - next.skipped);
            (run, &self.bytes[run.start..end])
        })
    }

    /// The run that `position` of `tail` belongs to, begun if need be.
    fn run(&mut self, tail: &Tail, position: u64) -> &mut Run {
        let goes_on = self
            .runs
            .last()
            .is_some_and(|run| run.tail.segment.base == tail.segment.base);
        if !goes_on {
            let skipped = self.align(position - tail.segment.base);
            self.runs.push(Run {
                tail: tail.clone(),
                start: self.bytes.len(),
                skipped,
                position,
                seals: false,
            });
        }
        let last = self.runs.len() - 1;
        &mut self.runs[last]
    }

    /// Skips bytes until what is `offset` in a file lies in a block of memory as it will in a block
    /// of the disk, so that whole blocks can go there from here; tells how many. Larger buffers keep
    /// that when they grow; where one does not, its blocks are copied once more.
    fn align(&mut self, offset: u64) -> usize {
        if self.bytes.capacity() < limits::DIRECT_BYTES_MIN {
            return 0;
        }
        let block = limits::DIRECT_BLOCK_BYTES;
        let at = self.bytes.as_ptr().addr() + self.bytes.len();
        let skipped = (offset as usize).wrapping_sub(at) % block;
        self.bytes.extend_from_slice(&NOTHING[..skipped]);
        skipped
    }
}

/// CRCs of the payloads of one append, taken before the lock.
pub(crate) enum PayloadCrcs {
    Few([u32; CRCS_INLINE], usize),
    Many(Vec<u32>),
}

impl PayloadCrcs {
    pub(crate) fn of(frames: &[Frame<'_>]) -> Self {
        let crc = |frame: &Frame<'_>| {
            frame
                .parts
                .iter()
                .fold(0, |crc, part| crc32c::crc32c_append(crc, part))
        };
        if frames.len() > CRCS_INLINE {
            return PayloadCrcs::Many(frames.iter().map(crc).collect());
        }
        let mut crcs = [0; CRCS_INLINE];
        for (slot, frame) in crcs.iter_mut().zip(frames) {
            *slot = crc(frame);
        }
        PayloadCrcs::Few(crcs, frames.len())
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        match self {
            PayloadCrcs::Few(crcs, count) => &crcs[..*count],
            PayloadCrcs::Many(crcs) => crcs,
        }
    }
}

impl From<Checksum> for PayloadCrcs {
    fn from(checksum: Checksum) -> Self {
        let mut crcs = [0; CRCS_INLINE];
        crcs[0] = checksum.value();
        PayloadCrcs::Few(crcs, 1)
    }
}

/// What is skipped, at most.
const NOTHING: [u8; limits::DIRECT_BLOCK_BYTES] = [0; limits::DIRECT_BLOCK_BYTES];

/// Frames of one append whose CRCs need no allocation.
const CRCS_INLINE: usize = 8;
