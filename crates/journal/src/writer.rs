//! The writer: takes all that is pending, writes it, and has it answered and synced.
//!
//! Runs on its own thread and sleeps on a condition variable when there is nothing to do. While it
//! sleeps, who appends may do its work in its place (see [`carry`](crate::carry)). The disk is never
//! touched with the state locked.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use crate::commit::Commit;
use crate::error::JournalError;
use crate::limits;
use crate::options::Durability;
use crate::pace::{Pace, Taken};
use crate::pages::Buffer;
use crate::state::{Asleep, Batch, Condition, Parked, Shared, State};
use crate::syncer;

pub(crate) struct Writer {
    shared: Arc<Shared>,
    batch: Batch,
    pub commit: Commit,
    pace: Pace,
    /// Appends of the batch that came late in the rest before it.
    late: usize,
    /// When the last pass began that somebody carried.
    carried_at: Option<Instant>,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Writer {
            commit: Commit::new(shared.clone()),
            shared,
            batch: Batch::default(),
            pace: Pace::new(),
            late: 0,
            carried_at: None,
        }
    }

    /// Works until the journal is closed or poisoned.
    pub(crate) fn run(mut self: Box<Self>) {
        let _stopped = StopGuard(self.shared.clone());
        self.commit.may_start_thread();
        loop {
            let (writer, has_work) = self.wait_for_work();
            self = writer;
            if !has_work {
                break;
            }
            if let Some(began) = self.carried_at.take() {
                self.rest(began);
            }
            let began = Instant::now();
            self.pass();
            self.rest(began);
        }
        self.commit.finish();
    }

    /// Takes, writes and answers what is pending, once; true when one call wrote and synced it.
    pub(crate) fn pass(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        self.take(&mut shared.state.lock());
        let is_synced = self.commit.may_sync_at_once(&self.batch);
        self.write_out(is_synced);
        self.commit.allocate_ahead();
        is_synced
    }

    /// A pass on the thread of who appended what is pending; false where that is left to the
    /// writer's own. Space is.
    pub(crate) fn carry(&mut self) -> bool {
        // Who hands over waits for whoever has it.
        if self.commit.is_behind() {
            return false;
        }
        {
            let shared = Arc::clone(&self.shared);
            let mut state = shared.state.lock();
            if !state.may_be_carried() {
                return false;
            }
            self.take(&mut state);
        }
        self.carried_at = Some(Instant::now());
        let is_synced = self.commit.may_sync_at_once(&self.batch);
        self.write_out(is_synced);
        true
    }

    /// Whether a rest follows what was carried, which is for the thread.
    pub(crate) fn rests(&self) -> bool {
        !self.shared.options.sync_interval.is_zero() && self.pace.rests()
    }

    fn take(&mut self, state: &mut State) {
        std::mem::swap(&mut state.pending, &mut self.batch);
        state.in_flight = self.batch.bytes.len() as u64;
        if self.batch.need.0 == Durability::Disk {
            self.pace.note(Taken {
                appends: self.batch.done.len(),
                sent_on: self.shared.sent_on.swap(0, Ordering::Relaxed),
                late: std::mem::take(&mut self.late),
            });
        }
    }

    /// Writes the batch, by a call that syncs it if so asked, and answers it.
    fn write_out(&mut self, is_synced: bool) {
        let written = write(&self.shared, &self.batch, is_synced);
        self.commit.follow(&mut self.batch, written, is_synced);
        self.batch.clear();
    }

    /// Lets more gather before the next sync, where that is good for something.
    fn rest(&mut self, began: Instant) {
        if !self.rests() {
            return;
        }
        let (now, until) = (Instant::now(), began + self.shared.options.sync_interval);
        let mut state = self.shared.state.lock();
        state.parked = Parked::Resting {
            late_from: now + until.saturating_duration_since(now) / LATE_AFTER,
            late: 0,
        };
        while !state.is_pressing() && !self.shared.work.wait_until(&mut state, until).timed_out() {}
        if let Parked::Resting { late, .. } = std::mem::replace(&mut state.parked, Parked::No) {
            self.late = late;
        }
    }

    /// Waits until there is something to do; false when there will be nothing any more.
    fn wait_for_work(mut self: Box<Self>) -> (Box<Self>, bool) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        loop {
            // What the syncer could not make durable ends the writing too.
            if matches!(state.condition, Condition::Poisoned(_)) {
                return (self, false);
            }
            if state.has_work() {
                return (self, true);
            }
            if !matches!(state.condition, Condition::Open) {
                return (self, false);
            }
            let owed = self.commit.owed_until();
            // Once after a burst, the big buffers go back; then it sleeps without a clock.
            let buffers = owed.is_none() && self.held_bytes(&state) > limits::BUFFER_KEEP_BYTES;
            let until = owed.or_else(|| buffers.then(|| Instant::now() + BUFFER_REST));
            let is_over;
            (self, is_over) = self.sleep(&mut state, until);
            if is_over && owed.is_some() {
                return (self, true);
            }
            if is_over && state.pending.is_empty() {
                self.batch.bytes = Buffer::default();
                state.pending.bytes = Buffer::default();
            }
        }
    }

    fn held_bytes(&self, state: &State) -> usize {
        let own = self.batch.bytes.capacity();
        own.max(state.pending.bytes.capacity())
    }

    /// Sleeps until it is called or the time is over, which is answered; meanwhile whoever carries an
    /// append has the writer.
    fn sleep(
        self: Box<Self>,
        state: &mut MutexGuard<'_, State>,
        until: Option<Instant>,
    ) -> (Box<Self>, bool) {
        let shared = Arc::clone(&self.shared);
        let asleep = Asleep {
            writer: self,
            until,
        };
        state.parked = Parked::Asleep(asleep);
        let mut is_over = false;
        loop {
            match (&state.parked, until) {
                // Whoever has the writer calls when that is done.
                (Parked::Carried { .. }, _) | (_, None) => shared.work.wait(state),
                (_, Some(until)) => is_over = shared.work.wait_until(state, until).timed_out(),
            }
            match std::mem::replace(&mut state.parked, Parked::No) {
                Parked::Asleep(asleep) | Parked::Promised(asleep) | Parked::Called(asleep) => {
                    return (asleep.writer, is_over);
                }
                Parked::Carried { .. } => state.parked = Parked::Carried { is_called: true },
                Parked::No | Parked::Resting { .. } => unreachable!("only its thread wakes it"),
            }
        }
    }
}

#[cfg(test)]
impl Writer {
    /// Sleeps while `act` runs, for simulations.
    pub(crate) fn while_asleep<T>(&mut self, act: impl FnOnce() -> T) -> T {
        let shared = Arc::clone(&self.shared);
        let writer = Box::new(std::mem::replace(self, Writer::new(Arc::clone(&shared))));
        let asleep = Asleep {
            writer,
            until: None,
        };
        shared.state.lock().parked = Parked::Asleep(asleep);
        let answer = act();
        match std::mem::replace(&mut shared.state.lock().parked, Parked::No) {
            Parked::Asleep(asleep) | Parked::Promised(asleep) | Parked::Called(asleep) => {
                *self = *asleep.writer;
            }
            Parked::No | Parked::Carried { .. } | Parked::Resting { .. } => {
                unreachable!("nobody else has it")
            }
        }
        answer
    }
}

/// Writes a batch, and has it durable at once if so asked.
fn write(shared: &Shared, batch: &Batch, is_synced: bool) -> Result<(), JournalError> {
    let is_synced_next = batch.need.0 == Durability::Disk;
    for (run, piece) in batch.pieces() {
        let segment = &run.tail.segment;
        let file = &run.tail.file;
        let mut offset = run.position - segment.base;
        for portion in portions(piece, offset) {
            let written = if is_synced {
                syncer::timed(&shared.telemetry, || file.write_synced(portion, offset))
            } else if is_synced_next {
                file.write_through(portion, offset)
            } else {
                file.write_at(portion, offset)
            };
            written.map_err(|error| {
                JournalError::io("write", &shared.table.path(segment.base), error)
            })?;
            offset += portion.len() as u64;
            // Others come after it while the rest is on its way, so that the disk has no rest.
            shared.state.lock().in_flight -= portion.len() as u64;
            shared.notify_room();
        }
    }
    shared.state.lock().in_flight = 0;
    shared.notify_room();
    Ok(())
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

/// What did not come in the first part, of so many, of a rest did not come at once.
const LATE_AFTER: u32 = 3;

/// How long a burst's big buffers are kept for the next one.
const BUFFER_REST: Duration = Duration::from_secs(2);
