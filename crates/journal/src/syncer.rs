//! The syncer: makes durable what the writer wrote while the writer writes on.
//!
//! A disk that is synced after each write stands still while the next one is copied. So the writer
//! hands a large round over and goes on; what gathers during one sync is the next round. Where
//! little is unsynced and no sync runs, the writer syncs by itself, which spares a lone append the
//! way to another thread; the syncer's thread starts with the first round that is handed over.
//!
//! Rounds are carried in the order in which they came, and their waiters are told in that order.
//! The journal is durable up to a position only when all that stands before it is.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::done::OnDone;
use crate::error::JournalError;
use crate::limits;
use crate::state::{Condition, Shared, Tail};
use crate::telemetry::Telemetry;

/// What is to be made durable together.
#[derive(Default)]
pub(crate) struct Round {
    /// Segments that were made or got space; that is to be durable too, but says nothing of what
    /// stands in them.
    pub grown: Vec<Tail>,
    /// Whether some of these are new in their folder.
    pub has_new: bool,
    /// Segments that got their seals, oldest first.
    pub sealed: Vec<Tail>,
    /// The segment last written to.
    pub dirty: Option<Tail>,
    /// Completions of what was written.
    pub waiters: Vec<OnDone>,
    /// Bytes that were written for them.
    pub bytes: u64,
}

/// What the writer and the syncer share.
#[derive(Default)]
pub(crate) struct Syncing {
    queue: Mutex<Queue>,
    /// Wakes the syncer.
    work: Condvar,
    /// Wakes the writer when a round has been carried.
    carried: Condvar,
}

#[derive(Default)]
struct Queue {
    next: Round,
    /// The bytes of the round that is being carried.
    busy: Option<u64>,
    ending: bool,
}

/// Makes rounds durable.
pub(crate) struct Syncer {
    pub shared: Arc<Shared>,
}

impl Round {
    fn is_empty(&self) -> bool {
        self.grown.is_empty()
            && self.sealed.is_empty()
            && self.dirty.is_none()
            && self.waiters.is_empty()
    }

    fn add(&mut self, mut round: Round) {
        self.grown.append(&mut round.grown);
        self.has_new |= round.has_new;
        self.sealed.append(&mut round.sealed);
        self.waiters.append(&mut round.waiters);
        self.bytes += round.bytes;
        if round.dirty.is_some() {
            self.dirty = round.dirty;
        }
    }
}

impl Syncing {
    /// Whether all that was handed over is durable, and its waiters were told.
    pub(crate) fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        queue.busy.is_none() && queue.next.is_empty()
    }

    /// Whether no more may be handed over for now.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.lock().is_full()
    }

    /// Adds to the round that is carried next.
    pub(crate) fn hand(&self, round: Round) {
        self.queue.lock().next.add(round);
        self.work.notify_one();
    }

    /// Waits until more may be handed over.
    pub(crate) fn wait_for_room(&self) {
        let mut queue = self.queue.lock();
        while queue.is_full() {
            self.carried.wait(&mut queue);
        }
    }

    /// Has the syncer end once it has carried all.
    pub(crate) fn end(&self) {
        self.queue.lock().ending = true;
        self.work.notify_one();
    }
}

impl Queue {
    fn is_full(&self) -> bool {
        self.next.bytes + self.busy.unwrap_or(0) > limits::SYNC_BEHIND_BYTES_MAX
            || self.next.waiters.len() > limits::DISK_WAITERS_MAX
            || self.next.sealed.len() > limits::SEALED_BEHIND_MAX
    }
}

impl Syncer {
    /// Starts the thread.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
        let syncer = Syncer {
            shared: shared.clone(),
        };
        let builder = thread::Builder::new().name("journal-sync".to_owned());
        builder.spawn(move || syncer.run())
    }

    fn run(self) {
        self.shared.threads.lock().push(thread::current().id());
        loop {
            let pass = AssertUnwindSafe(|| self.pass(true));
            match catch_unwind(pass) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    let cause = io::Error::other("a completion panicked");
                    let error = JournalError::io("sync", &self.shared.dir, cause);
                    self.shared.poison(error);
                }
            }
        }
    }

    /// Carries what was handed over, once; waits for it if so asked. False when there is nothing
    /// more to come.
    pub(crate) fn pass(&self, waits: bool) -> bool {
        let syncing = &self.shared.syncing;
        let round = {
            let mut queue = syncing.queue.lock();
            while queue.next.is_empty() && !queue.ending && waits {
                syncing.work.wait(&mut queue);
            }
            if queue.next.is_empty() {
                return false;
            }
            let round = std::mem::take(&mut queue.next);
            queue.busy = Some(round.bytes);
            round
        };
        // However this ends, the writer does not wait for it for ever.
        let _carried = Carried(syncing);
        self.carry(round);
        true
    }

    fn carry(&self, mut round: Round) {
        let waiters = std::mem::take(&mut round.waiters);
        let outcome = self.make_durable(&round, waiters.len()).map_err(|error| {
            if let JournalError::Poisoned { .. } = error {
                // Told of when it happened.
                return error;
            }
            self.shared.poison(error)
        });
        for waiter in waiters {
            waiter(outcome.clone());
        }
    }

    fn make_durable(&self, round: &Round, calls: usize) -> Result<(), JournalError> {
        let shared = &self.shared;
        if let Condition::Poisoned(source) = &shared.state.lock().condition {
            let source = source.clone();
            return Err(JournalError::Poisoned { source });
        }
        for tail in &round.grown {
            let path = shared.table.path(tail.segment.base);
            let synced = tail.file.sync();
            synced.map_err(|error| JournalError::io("sync", &path, error))?;
        }
        if round.has_new {
            let synced = shared.disk.sync_dir(&shared.dir);
            synced.map_err(|error| JournalError::io("sync", &shared.dir, error))?;
        }
        for tail in &round.sealed {
            seal(shared, tail)?;
        }
        if let Some(tail) = &round.dirty {
            sync(shared, tail, calls)?;
        }
        Ok(())
    }
}

/// Cuts a segment that got its seal to its end and syncs it. All before it is durable already.
pub(crate) fn seal(shared: &Shared, tail: &Tail) -> Result<(), JournalError> {
    let segment = &tail.segment;
    let path = shared.table.path(segment.base);
    let len = segment.written.load(Ordering::Acquire) - segment.base;
    let cut = tail.file.truncate(len);
    cut.map_err(|error| JournalError::io("seal", &path, error))?;
    let synced = tail.file.sync();
    synced.map_err(|error| JournalError::io("sync", &path, error))?;
    segment.len.store(len, Ordering::Relaxed);
    shared.table.sealed(segment.base);
    let mut state = shared.state.lock();
    state.durable = state.durable.max(segment.limit());
    Ok(())
}

/// Syncs what was written to the last segment, for so many calls.
pub(crate) fn sync(shared: &Shared, tail: &Tail, calls: usize) -> Result<(), JournalError> {
    let segment = &tail.segment;
    let written = segment.written.load(Ordering::Acquire);
    let synced = timed(&shared.telemetry, || tail.file.sync());
    synced.map_err(|error| JournalError::io("sync", &shared.table.path(segment.base), error))?;
    note_durable(shared, written, calls)
}

/// Has the disk make something durable, and keeps how long it took.
pub(crate) fn timed(
    telemetry: &Telemetry,
    sync: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let began = Instant::now();
    sync()?;
    telemetry.sync_seconds.record_duration(began.elapsed());
    Ok(())
}

/// Notes that all before a position is durable, by one sync for so many calls. It is not when another
/// sync failed meanwhile: this one may have been told nothing of that.
pub(crate) fn note_durable(shared: &Shared, until: u64, calls: usize) -> Result<(), JournalError> {
    shared.telemetry.commit_calls.record(calls as u64);
    let mut state = shared.state.lock();
    if let Condition::Poisoned(source) = &state.condition {
        let source = source.clone();
        return Err(JournalError::Poisoned { source });
    }
    state.durable = state.durable.max(until);
    Ok(())
}

/// Ends the carrying of a round.
struct Carried<'a>(&'a Syncing);

impl Drop for Carried<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().busy = None;
        self.0.carried.notify_all();
    }
}
