//! What follows the writing: brings batches to the levels that they need, in the order in which they
//! were taken, and answers on the way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::done::{Done, OnDone};
use crate::error::JournalError;
use crate::limits;
use crate::options::Durability;
use crate::state::{Batch, Condition, Shared, Tail};
use crate::syncer::{self, Round, Syncer};

/// The levels that a journal has reached, and who waits for them.
pub(crate) struct Commit {
    pub shared: Arc<Shared>,
    /// Completions that were written and wait for the next sync.
    disk_waiters: Vec<OnDone>,
    /// The segment last written to, while it has bytes that no sync covers.
    dirty: Option<Tail>,
    pub poisoned: bool,
    /// Unsynced bytes from which on the syncing is left to the syncer.
    handed_bytes_min: u64,
    /// Something is to be synced that nobody waits for.
    is_owed: bool,
    /// Bytes that were written since something was last synced, or handed over for it.
    owed_bytes: u64,
    /// When something was last synced, or handed over for it.
    synced_at: Option<Instant>,
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

impl Commit {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Commit {
            shared,
            disk_waiters: Vec::new(),
            dirty: None,
            poisoned: false,
            handed_bytes_min: limits::HANDED_BYTES_MIN,
            is_owed: false,
            owed_bytes: 0,
            synced_at: None,
            syncer: Hands::Stepped,
        }
    }

    /// Syncing gets a thread of its own, once there is enough of it.
    pub(crate) fn may_start_thread(&mut self) {
        self.syncer = Hands::Resting;
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

    /// Whether a batch may be written and synced in one: it is small and all of it waits for the
    /// disk, and all that stands before it is durable.
    pub(crate) fn may_sync_at_once(&self, batch: &Batch) -> bool {
        let is_asked = |done: &Done| done.os.is_none() && done.disk.is_some();
        batch.need.0 == Durability::Disk
            && (batch.bytes.len() as u64) < self.handed_bytes_min
            && !batch.done.is_empty()
            && batch.done.iter().all(is_asked)
            && matches!(&batch.runs[..], [run] if !run.seals)
            && self.dirty.is_none()
            && self.disk_waiters.is_empty()
            && !self.poisoned
            && self.shared.syncing.is_idle()
    }

    /// Answers a batch that was written, or could not be; `is_synced` says that it is durable
    /// already.
    pub(crate) fn follow(
        &mut self,
        batch: &mut Batch,
        written: Result<(), JournalError>,
        is_synced: bool,
    ) {
        if !self.poisoned {
            let carried = written.and_then(|()| self.carry(batch, is_synced));
            match carried.and_then(|()| self.seal_early()) {
                Ok(()) => return,
                Err(error) => self.poison(error),
            }
        }
        if let Some(source) = self.poison_cause() {
            let failed = JournalError::Poisoned { source };
            fail(batch.done.drain(..), &failed);
        }
    }

    /// Brings a written batch to the levels that it needs, answering on the way.
    fn carry(&mut self, batch: &mut Batch, is_synced: bool) -> Result<(), JournalError> {
        let bytes = batch.bytes.len() as u64;
        if bytes > 0 {
            self.shared.telemetry.commit_bytes.record(bytes);
        }
        for (run, piece) in batch.pieces() {
            let end = run.position + piece.len() as u64;
            run.tail.segment.written.store(end, Ordering::Release);
            self.dirty = Some(run.tail.clone());
        }
        for done in &mut batch.done {
            if let Some(os) = done.os.take() {
                os(Ok(()));
            }
        }
        self.disk_waiters
            .extend(batch.done.drain(..).filter_map(|done| done.disk));
        let crowd = self.disk_waiters.len() > limits::DISK_WAITERS_MAX;
        self.owed_bytes += bytes;
        let is_wanted = batch.need.0 == Durability::Disk || self.is_owed;
        let is_asked = crowd || !self.disk_waiters.is_empty();
        let needs_sync = crowd || (is_wanted && (is_asked || self.is_rested()));
        self.is_owed = is_wanted && !needs_sync;
        if needs_sync {
            self.synced_at = Some(Instant::now());
            self.owed_bytes = 0;
        }
        if is_synced {
            if let Some(tail) = self.dirty.take() {
                let until = tail.segment.written.load(Ordering::Acquire);
                syncer::note_durable(&self.shared, until, self.disk_waiters.len())?;
            }
            self.tell_waiters();
            return Ok(());
        }
        let sealed = batch.runs.iter().filter(|run| run.seals);
        let sealed: Vec<Tail> = sealed.map(|run| run.tail.clone()).collect();
        if (needs_sync || !sealed.is_empty()) && self.is_behind() {
            self.hand_over(sealed, needs_sync, bytes);
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
    pub(crate) fn is_behind(&self) -> bool {
        if !self.shared.syncing.is_idle() {
            return true;
        }
        let written = self.dirty.as_ref();
        let written = written.map_or(0, |tail| tail.segment.written.load(Ordering::Acquire));
        written.saturating_sub(self.shared.state.lock().durable) >= self.handed_bytes_min
    }

    /// When what is owed is to be synced, if anything is.
    pub(crate) fn owed_until(&self) -> Option<Instant> {
        let synced_at = self.synced_at.filter(|_| self.is_owed);
        synced_at.map(|at| at + self.shared.options.unasked_rest)
    }

    /// Whether what nobody waits for is to be synced now.
    fn is_rested(&self) -> bool {
        let rest = self.shared.options.unasked_rest;
        let until = self.synced_at.map(|at| at + rest);
        rest.is_zero()
            || until.is_none_or(|until| Instant::now() >= until)
            || self.owed_bytes >= self.shared.options.unasked_bytes
    }

    /// Leaves it to the syncer to make durable what was written; `needs_sync` where somebody waits.
    fn hand_over(&mut self, sealed: Vec<Tail>, needs_sync: bool, bytes: u64) {
        let mut round = Round {
            sealed,
            ..Round::default()
        };
        if needs_sync {
            round.dirty = self.dirty.take();
            round.waiters = std::mem::take(&mut self.disk_waiters);
            round.bytes = bytes;
        }
        self.hand(round);
    }

    pub(crate) fn hand(&mut self, round: Round) {
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

    fn sync_active(&mut self) -> Result<(), JournalError> {
        if let Some(tail) = &self.dirty {
            syncer::sync(&self.shared, tail, self.disk_waiters.len())?;
        }
        self.dirty = None;
        self.tell_waiters();
        Ok(())
    }

    /// All that was written is durable.
    fn tell_waiters(&mut self) {
        for disk in self.disk_waiters.drain(..) {
            disk(Ok(()));
        }
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

    fn finish_open(&mut self) -> Result<(), JournalError> {
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
    pub(crate) fn poison(&mut self, error: JournalError) {
        self.poisoned = true;
        let (source, pending) = {
            let mut state = self.shared.state.lock();
            state.in_flight = 0;
            let source = state.poison(error, &self.shared.dir);
            (source, std::mem::take(&mut state.pending))
        };
        let failed = JournalError::Poisoned { source };
        for waiter in self.disk_waiters.drain(..) {
            waiter(Err(failed.clone()));
        }
        fail(pending.done, &failed);
        self.shared.notify_room();
    }
}

/// Tells everybody who waits for these that it failed.
fn fail(waiting: impl IntoIterator<Item = Done>, failed: &JournalError) {
    for done in waiting {
        for waiter in [done.os, done.disk].into_iter().flatten() {
            waiter(Err(failed.clone()));
        }
    }
}
