//! The writer: takes all that is pending, writes it, answers, syncs once for all who need it.
//!
//! Runs on its own thread and sleeps on a condition variable when there is nothing to do. The
//! disk is never touched with the state locked. While much is unsynced it leaves the syncing to the
//! `syncer` and writes on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use base::{Clock, SystemClock};

use crate::done::OnDone;
use crate::error::JournalError;
use crate::format::{FRAME_OVERHEAD_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::journal::Durability;
use crate::limits;
use crate::segment::Segment;
use crate::state::{Batch, Condition, Shared, State, Tail};
use crate::syncer::{self, Round, Syncer};

pub(crate) struct Writer {
    shared: Arc<Shared>,
    batch: Batch,
    /// Completions that were written and wait for the next sync.
    disk_waiters: Vec<OnDone>,
    /// The segment last written to, while it has bytes that no sync covers.
    dirty: Option<Tail>,
    poisoned: bool,
    /// Unsynced bytes from which on the syncing is left to the syncer.
    handed_bytes_min: u64,
    syncer: Hands,
}

/// Who the syncer is.
enum Hands {
    /// Whoever steps the writer steps it too.
    Stepped,
    /// Nobody yet.
    Resting,
    Thread(JoinHandle<()>),
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Writer {
            shared,
            batch: Batch::default(),
            disk_waiters: Vec::new(),
            dirty: None,
            poisoned: false,
            handed_bytes_min: limits::HANDED_BYTES_MIN,
            syncer: Hands::Stepped,
        }
    }

    /// For simulations, whose appends are small.
    #[cfg(test)]
    pub(crate) fn hands_over_from(&mut self, bytes: u64) {
        self.handed_bytes_min = bytes;
    }

    /// The syncer's part, when both are stepped; false when it had nothing to do.
    #[cfg(test)]
    pub(crate) fn sync_pass(&self) -> bool {
        self.step_syncer()
    }

    /// Works until the journal is closed or poisoned.
    pub(crate) fn run(mut self) {
        let _stopped = StopGuard(self.shared.clone());
        self.syncer = Hands::Resting;
        while !self.poisoned && self.wait_for_work() {
            self.pass();
        }
        self.finish();
    }

    /// Takes, writes and answers what is pending, once.
    pub(crate) fn pass(&mut self) {
        {
            let mut state = self.shared.state.lock();
            std::mem::swap(&mut state.pending, &mut self.batch);
            state.in_flight = self.batch.bytes.len() as u64;
        }
        if let Err(error) = self.carry() {
            self.poison(error);
            return;
        }
        self.batch.clear();
        if let Err(error) = self.seal_early() {
            self.poison(error);
            return;
        }
        self.allocate_ahead();
    }

    /// Ends the journal cleanly: all synced, no space held beyond the last frame.
    pub(crate) fn finish(&mut self) {
        self.end_syncer();
        let outcome = match self.poison_cause() {
            Some(source) => Err(JournalError::Poisoned { source }),
            None => self.finish_open(),
        };
        if let Err(error) = &outcome
            && !self.poisoned
        {
            self.poison(error.clone());
        }
        let mut state = self.shared.state.lock();
        state.closed = Some(outcome);
    }

    /// Makes space ahead of the appends: extends the active segment, then readies the next.
    pub(crate) fn allocate_ahead(&mut self) {
        while !self.poisoned {
            let plan = {
                let mut state = self.shared.state.lock();
                let plan = self.plan(&state);
                if plan.is_none() {
                    state.want = 0;
                    state.want_is_vital = false;
                }
                plan
            };
            let Some(plan) = plan else { break };
            match self.allocate(plan) {
                Ok(()) => {}
                Err(AllocateError::NoRoom(error)) => {
                    let mut state = self.shared.state.lock();
                    if state.full.is_none() {
                        tracing::warn!(
                            dir = %self.shared.dir.display(),
                            error = %error,
                            "the journal found no room on the disk; appends are refused until \
                             there is"
                        );
                    }
                    state.full = Some(Arc::new(error));
                    state.want = 0;
                    state.want_is_vital = false;
                    break;
                }
                Err(AllocateError::Broken(error)) => {
                    self.poison(error);
                    return;
                }
            }
        }
        self.shared.notify_room();
    }

    fn wait_for_work(&mut self) -> bool {
        let mut state = self.shared.state.lock();
        loop {
            // What the syncer could not make durable ends the writing too.
            if matches!(state.condition, Condition::Poisoned(_)) {
                return false;
            }
            if !state.pending.is_empty() || state.want > 0 || state.seals_early {
                return true;
            }
            if !matches!(state.condition, Condition::Open) {
                return false;
            }
            let held = self
                .batch
                .bytes
                .capacity()
                .max(state.pending.bytes.capacity());
            state.parked = true;
            if held > limits::BUFFER_KEEP_BYTES {
                // Once after a burst, the big buffers go back; then sleep without a clock.
                let rest = self.shared.work.wait_for(&mut state, BUFFER_REST);
                if rest.timed_out() && state.pending.is_empty() {
                    self.batch.bytes = Vec::new();
                    state.pending.bytes = Vec::new();
                }
            } else {
                self.shared.work.wait(&mut state);
            }
            state.parked = false;
        }
    }

    /// Brings the batch in hand to the levels that it needs, answering on the way.
    fn carry(&mut self) -> Result<(), JournalError> {
        let bytes = self.batch.bytes.len() as u64;
        if bytes > 0 {
            self.shared.telemetry.commit_bytes.record(bytes);
        }
        self.write_runs()?;
        for done in &mut self.batch.done {
            if let Some(os) = done.os.take() {
                os(Ok(()));
            }
        }
        self.disk_waiters
            .extend(self.batch.done.drain(..).filter_map(|done| done.disk));
        let crowd = self.disk_waiters.len() > limits::DISK_WAITERS_MAX;
        let needs_sync = self.batch.need.0 == Durability::Disk || crowd;
        let sealed = self.batch.runs.iter().filter(|run| run.seals);
        let sealed: Vec<Tail> = sealed.map(|run| run.tail.clone()).collect();
        if (needs_sync || !sealed.is_empty()) && self.is_behind() {
            self.hand_over(sealed, needs_sync);
            return Ok(());
        }
        // Each before anything in the segment after it can be answered as durable.
        for tail in &sealed {
            syncer::seal(&self.shared, tail)?;
        }
        if needs_sync {
            self.sync_active()?;
        }
        Ok(())
    }

    /// Whether so much is unsynced that the syncing is left to the syncer. It always is while that
    /// is at work, so that waiters are told in order.
    fn is_behind(&self) -> bool {
        if !self.shared.syncing.is_idle() {
            return true;
        }
        let written = self.dirty.as_ref();
        let written = written.map_or(0, |tail| tail.segment.written.load(Ordering::Acquire));
        written.saturating_sub(self.shared.state.lock().durable) >= self.handed_bytes_min
    }

    /// Leaves it to the syncer to make durable what was written; `needs_sync` where somebody waits.
    fn hand_over(&mut self, sealed: Vec<Tail>, needs_sync: bool) {
        let mut round = Round {
            sealed,
            ..Round::default()
        };
        if needs_sync {
            round.dirty = self.dirty.take();
            round.waiters = std::mem::take(&mut self.disk_waiters);
            round.bytes = self.batch.bytes.len() as u64;
        }
        self.hand(round);
    }

    fn hand(&mut self, round: Round) {
        let shared = &self.shared;
        if let Hands::Resting = self.syncer {
            match Syncer::start(shared) {
                Ok(thread) => self.syncer = Hands::Thread(thread),
                Err(error) => tracing::debug!(%error, "no thread for syncing, the writer does it"),
            }
        }
        shared.syncing.hand(round);
        match &self.syncer {
            Hands::Thread(_) => shared.syncing.wait_for_room(),
            Hands::Stepped if !shared.syncing.is_full() => {}
            Hands::Stepped | Hands::Resting => {
                self.step_syncer();
            }
        }
    }

    fn step_syncer(&self) -> bool {
        let shared = self.shared.clone();
        Syncer { shared }.pass(false)
    }

    /// Waits until all that was handed over is durable.
    fn end_syncer(&mut self) {
        self.shared.syncing.end();
        match std::mem::replace(&mut self.syncer, Hands::Stepped) {
            Hands::Thread(thread) => {
                // A panic of a waiter has been told of by its thread.
                let _ = thread.join();
            }
            Hands::Stepped | Hands::Resting => {
                self.step_syncer();
            }
        }
    }

    fn write_runs(&mut self) -> Result<(), JournalError> {
        let Batch {
            bytes, runs, need, ..
        } = &self.batch;
        let is_synced_next = need.0 == Durability::Disk;
        for (index, run) in runs.iter().enumerate() {
            let next = runs.get(index + 1);
            let end = next.map_or(bytes.len(), |next| next.start - next.skipped);
            let piece = &bytes[run.start..end];
            let segment = &run.tail.segment;
            let file = &run.tail.file;
            let mut offset = run.position - segment.base;
            for portion in portions(piece, offset) {
                let written = if is_synced_next {
                    file.write_through(portion, offset)
                } else {
                    file.write_at(portion, offset)
                };
                written.map_err(|error| {
                    JournalError::io("write", &self.shared.table.path(segment.base), error)
                })?;
                offset += portion.len() as u64;
                // Others come after it while the rest is on its way, so that the disk has no rest.
                self.shared.state.lock().in_flight -= portion.len() as u64;
                self.shared.notify_room();
            }
            segment
                .written
                .store(run.position + piece.len() as u64, Ordering::Release);
            self.dirty = Some(run.tail.clone());
        }
        self.shared.state.lock().in_flight = 0;
        self.shared.notify_room();
        Ok(())
    }

    fn sync_active(&mut self) -> Result<(), JournalError> {
        if let Some(tail) = &self.dirty {
            syncer::sync(&self.shared, tail, self.disk_waiters.len())?;
        }
        self.dirty = None;
        for disk in self.disk_waiters.drain(..) {
            disk(Ok(()));
        }
        Ok(())
    }

    /// Gives the room that the active segment has left to a next one and goes on there, if that
    /// was asked for.
    fn seal_early(&mut self) -> Result<(), JournalError> {
        let (mut tail, kept) = {
            let mut state = self.shared.state.lock();
            if !std::mem::take(&mut state.seals_early) || state.next.is_some() {
                return Ok(());
            }
            let kept = state.end + FRAME_OVERHEAD_BYTES;
            let tail = state.active.clone();
            if tail.admitted < kept + limits::SEALED_EARLY_LEFT_MIN {
                return Ok(());
            }
            // Nothing is placed in it from here on.
            state.active.admitted = kept;
            (tail, kept)
        };
        let left = tail.admitted - kept;
        let segment = &tail.segment;
        let len = kept - segment.base;
        tail.file
            .truncate(len)
            .and_then(|()| tail.file.sync())
            .map_err(|error| {
                JournalError::io("shorten", &self.shared.table.path(segment.base), error)
            })?;
        segment.len.store(len, Ordering::Relaxed);
        let size = self.shared.options.segment_bytes;
        // A disk gives back whole blocks only, and may need one to tell of a new file.
        for blocks in [0, 1, 3] {
            let len = left - blocks * limits::DISK_BLOCK_BYTES;
            match create_segment(&self.shared, segment.limit(), size, len) {
                Ok(made) => {
                    let table = &self.shared.table;
                    table.insert(made.segment.clone(), Some(made.file.clone()));
                    let mut state = self.shared.state.lock();
                    state.next = Some(made);
                    state.roll_over();
                    return Ok(());
                }
                Err(AllocateError::NoRoom(_)) => {}
                Err(AllocateError::Broken(error)) => return Err(error),
            }
        }
        // Somebody else was faster; what there is still is taken back.
        let admitted = tail.admitted;
        tail.admitted = kept;
        match self.extend(&tail, admitted) {
            Ok(admitted) => self.shared.state.lock().active.admitted = admitted,
            Err(AllocateError::NoRoom(_)) => {}
            Err(AllocateError::Broken(error)) => return Err(error),
        }
        Ok(())
    }

    /// The next allocation that is due.
    fn plan(&self, state: &State) -> Option<Plan> {
        let options = &self.shared.options;
        let want = state.want;
        let reserve = if state.want_is_vital {
            0
        } else {
            state.reserve
        };
        let step = options.preallocate_bytes;
        let active = &state.active;
        let limit = active.segment.limit();
        let fits_here = state.end + want + FRAME_OVERHEAD_BYTES <= limit;
        // A little less with a reserve, which is room ahead too while the disk has some.
        let lead = want.max((step / 2).saturating_sub(reserve / 4)) + reserve;
        let ahead = state.end + lead + FRAME_OVERHEAD_BYTES;
        let seal_end = state.end + FRAME_OVERHEAD_BYTES;
        if active.admitted < seal_end || (fits_here && active.admitted < limit.min(ahead)) {
            let needed = if fits_here {
                seal_end + want + reserve
            } else {
                seal_end
            };
            return Some(Plan::Extend {
                tail: active.clone(),
                to: limit.min(needed.max(active.admitted + step)),
                at_least: limit.min(needed.max(active.admitted)),
            });
        }
        if ahead <= limit {
            return None;
        }
        let first_want = if fits_here { 0 } else { want };
        let size = options.segment_bytes;
        let needed = SEGMENT_HEADER_BYTES + first_want + reserve + FRAME_OVERHEAD_BYTES;
        let needed = needed.min(size);
        match &state.next {
            None => {
                let len = size.min(needed.max(step));
                Some(Plan::Create {
                    base: limit,
                    size,
                    len,
                    at_least: needed,
                })
            }
            Some(next) if next.admitted < next.segment.base + needed => Some(Plan::Extend {
                tail: next.clone(),
                to: next
                    .segment
                    .limit()
                    .min(next.segment.base + needed.max(step)),
                at_least: next.segment.base + needed,
            }),
            Some(_) => None,
        }
    }

    fn allocate(&mut self, plan: Plan) -> Result<(), AllocateError> {
        match plan {
            Plan::Extend { tail, to, at_least } => {
                let admitted = match self.extend(&tail, to) {
                    Err(AllocateError::NoRoom(_)) if tail.admitted < at_least && at_least < to => {
                        self.extend(&tail, at_least)
                    }
                    other => other,
                }?;
                let mut state = self.shared.state.lock();
                let base = tail.segment.base;
                if state.active.segment.base == base {
                    state.active.admitted = admitted;
                } else if let Some(next) = state.next.as_mut().filter(|n| n.segment.base == base) {
                    next.admitted = admitted;
                }
                state.full = None;
            }
            Plan::Create {
                base,
                size,
                len,
                at_least,
            } => {
                let made = match make_segment(&self.shared, base, size, len) {
                    Err(AllocateError::NoRoom(_)) if at_least < len => {
                        make_segment(&self.shared, base, size, at_least)
                    }
                    other => other,
                }?;
                if self.is_behind() {
                    self.hand(Round {
                        grown: vec![made.clone()],
                        has_new: true,
                        ..Round::default()
                    });
                } else {
                    settle_segment(
                        &*self.shared.disk,
                        &self.shared.dir,
                        &self.shared.table,
                        &made,
                    )?;
                }
                self.shared
                    .table
                    .insert(made.segment.clone(), Some(made.file.clone()));
                let mut state = self.shared.state.lock();
                state.next = Some(made);
                state.full = None;
            }
        }
        Ok(())
    }

    /// Reserves the segment's space up to position `to`.
    fn extend(&mut self, tail: &Tail, to: u64) -> Result<u64, AllocateError> {
        let segment = &tail.segment;
        let from = tail.admitted - segment.base;
        let len = to - segment.base;
        if let Err(error) = tail.file.allocate(from, len - from) {
            // What was reserved before the disk ran out is given back; if not, it is only space.
            let _ = tail.file.truncate(from);
            return Err(AllocateError::NoRoom(error));
        }
        segment.len.store(len, Ordering::Relaxed);
        if self.is_behind() {
            // Nobody waits for the space to be durable.
            self.hand(Round {
                grown: vec![tail.clone()],
                ..Round::default()
            });
            return Ok(to);
        }
        tail.file.sync().map_err(|error| {
            let path = self.shared.table.path(segment.base);
            AllocateError::Broken(JournalError::io("sync", &path, error))
        })?;
        Ok(to)
    }

    fn finish_open(&mut self) -> Result<(), JournalError> {
        self.batch.clear();
        self.sync_active()?;
        let (active, next) = {
            let mut state = self.shared.state.lock();
            (state.active.clone(), state.next.take())
        };
        if let Some(next) = next {
            let base = next.segment.base;
            let path = self.shared.table.path(base);
            self.shared.table.remove(base);
            self.shared
                .disk
                .remove(&path)
                .and_then(|()| self.shared.disk.sync_dir(&self.shared.dir))
                .map_err(|error| JournalError::io("remove", &path, error))?;
        }
        let segment = &active.segment;
        let len = segment.written.load(Ordering::Acquire) - segment.base;
        let path = self.shared.table.path(segment.base);
        active
            .file
            .truncate(len)
            .and_then(|()| active.file.sync())
            .map_err(|error| JournalError::io("sync", &path, error))?;
        segment.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn poison_cause(&self) -> Option<Arc<JournalError>> {
        match &self.shared.state.lock().condition {
            Condition::Poisoned(source) => Some(source.clone()),
            _ => None,
        }
    }

    /// Refuses all further calls and tells everybody who waits.
    fn poison(&mut self, error: JournalError) {
        self.poisoned = true;
        tracing::error!(
            dir = %self.shared.dir.display(),
            error = base::report(&error),
            "the journal stops; it must be opened again"
        );
        let source = Arc::new(error);
        let pending = {
            let mut state = self.shared.state.lock();
            state.condition = Condition::Poisoned(source.clone());
            state.in_flight = 0;
            std::mem::take(&mut state.pending)
        };
        let failed = JournalError::Poisoned { source };
        for waiter in self.disk_waiters.drain(..) {
            waiter(Err(failed.clone()));
        }
        let batch = std::mem::take(&mut self.batch);
        for done in batch.done.into_iter().chain(pending.done) {
            for waiter in [done.os, done.disk].into_iter().flatten() {
                waiter(Err(failed.clone()));
            }
        }
        self.shared.notify_room();
    }
}

/// A piece that goes to `offset` of a file, cut where blocks of the disk end; none of the cuts is
/// too small to pass the cache.
fn portions(mut piece: &[u8], mut offset: u64) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let mut len = piece.len();
        if len > 2 * limits::DIRECT_WRITE_BYTES {
            let over = (offset % limits::DIRECT_BLOCK_BYTES as u64) as usize;
            len = limits::DIRECT_WRITE_BYTES - over;
        }
        let (portion, rest) = piece.split_at(len);
        (piece, offset) = (rest, offset + len as u64);
        (!portion.is_empty()).then_some(portion)
    })
}

/// Makes the segment at `base` with `len` bytes reserved, durable before anyone relies on it.
pub(crate) fn create_segment(
    shared: &Shared,
    base: u64,
    size: u64,
    len: u64,
) -> Result<Tail, AllocateError> {
    create_segment_on(&*shared.disk, &shared.dir, &shared.table, base, size, len)
}

pub(crate) fn create_segment_on(
    disk: &dyn crate::disk::Disk,
    dir: &std::path::Path,
    table: &crate::segment::SegmentTable,
    base: u64,
    size: u64,
    len: u64,
) -> Result<Tail, AllocateError> {
    let made = make_segment_on(disk, table, base, size, len)?;
    settle_segment(disk, dir, table, &made)?;
    Ok(made)
}

fn make_segment(shared: &Shared, base: u64, size: u64, len: u64) -> Result<Tail, AllocateError> {
    make_segment_on(&*shared.disk, &shared.table, base, size, len)
}

fn make_segment_on(
    disk: &dyn crate::disk::Disk,
    table: &crate::segment::SegmentTable,
    base: u64,
    size: u64,
    len: u64,
) -> Result<Tail, AllocateError> {
    let path = table.path(base);
    let created = SystemClock.now();
    let header = SegmentHeader {
        base,
        size,
        created,
    };
    let file = disk.create(&path).map_err(AllocateError::NoRoom)?;
    if let Err(error) = file
        .allocate(0, len)
        .and_then(|()| file.write_at(&header.encode(), 0))
    {
        // A file without a whole header is nothing to recovery; removing it only frees space.
        let _ = disk.remove(&path);
        return Err(AllocateError::NoRoom(error));
    }
    let segment = Arc::new(Segment::new(base, size, created, len));
    Ok(Tail {
        segment,
        file,
        admitted: base + len,
    })
}

/// Makes a new segment durable, with its name.
fn settle_segment(
    disk: &dyn crate::disk::Disk,
    dir: &std::path::Path,
    table: &crate::segment::SegmentTable,
    made: &Tail,
) -> Result<(), AllocateError> {
    let path = table.path(made.segment.base);
    let broken = |what, error| AllocateError::Broken(JournalError::io("sync", what, error));
    made.file.sync().map_err(|error| broken(&path, error))?;
    disk.sync_dir(dir).map_err(|error| broken(dir, error))
}

enum Plan {
    Extend {
        tail: Tail,
        to: u64,
        at_least: u64,
    },
    Create {
        base: u64,
        size: u64,
        len: u64,
        at_least: u64,
    },
}

pub(crate) enum AllocateError {
    /// Nothing was harmed; worth another try later.
    NoRoom(io::Error),
    /// A sync failed.
    Broken(JournalError),
}

/// Ends the journal for its callers however the thread ends.
struct StopGuard(Arc<Shared>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.syncing.end();
        let mut state = self.0.state.lock();
        if std::thread::panicking() {
            let cause = io::Error::other("the writer thread panicked");
            let error = JournalError::io("write", &self.0.dir, cause);
            state.condition = Condition::Poisoned(Arc::new(error));
        }
        state.stopped = true;
        state.lock = None;
        // Dropped unrun, which tells the waits.
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        drop(pending);
        self.0.notify_room();
    }
}

/// How long a burst's big buffers are kept for the next one.
const BUFFER_REST: Duration = Duration::from_secs(2);
