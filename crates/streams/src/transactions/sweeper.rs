//! Aborts transactions whose time is over and forgets ids that nobody uses, on a thread of its own
//! that sleeps until the first of them is due, and for ever when none is.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use base::UnixMillis;
use journal::Done;
use parking_lot::{Condvar, Mutex};

use super::coordinator::MARKERS_RETRY;
use super::frames::TransactionChange;
use super::transaction::Transaction;
use crate::error::StreamsError;
use crate::store::Streams;

/// Wakes the sweeper's thread.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    told: Mutex<Told>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Told {
    look: bool,
    stop: bool,
    /// When the thread wakes by itself. A transaction that is due later needs no bell, so a
    /// producer that opens one after the other wakes nobody.
    planned: Option<UnixMillis>,
}

impl Sweeper {
    /// Something is due at `at`.
    pub(crate) fn plan(&self, at: UnixMillis) {
        let mut told = self.told.lock();
        if told.planned.is_none_or(|planned| at < planned) {
            told.planned = Some(at);
            told.look = true;
            self.bell.notify_one();
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.told.lock().stop = true;
        self.bell.notify_one();
    }

    /// Waits to be told, or for `pause`; false when the thread is to end.
    fn wait(&self, next: Option<UnixMillis>, pause: Option<Duration>) -> bool {
        let mut told = self.told.lock();
        if !told.look {
            told.planned = next;
        }
        let deadline = pause.map(|pause| Instant::now() + pause);
        while !told.look && !told.stop {
            match deadline {
                None => self.bell.wait(&mut told),
                Some(deadline) if self.bell.wait_until(&mut told, deadline).timed_out() => break,
                Some(_) => {}
            }
        }
        // Whatever comes from here on is seen by the next look at the latest.
        told.look = false;
        told.planned = None;
        !told.stop
    }
}

/// Starts the thread; it ends with [`Sweeper::stop`], which dropping the store calls too.
pub(crate) fn start(streams: &Arc<Streams>) -> Result<(), StreamsError> {
    let sweeper = Arc::clone(&streams.transactions().sweeper);
    let clock = Arc::clone(streams.clock());
    // Not the store: that ends when its users let go of it.
    let streams: Weak<Streams> = Arc::downgrade(streams);
    let run = move || {
        let mut next = Some(clock.now());
        loop {
            // The clock may stand still in tests or step back: never spin on it.
            let pause = next.map(|next| next.since(clock.now()).max(PAUSE_MIN));
            if !sweeper.wait(next, pause) {
                return;
            }
            let Some(streams) = streams.upgrade() else {
                return;
            };
            next = match streams.sweep() {
                Ok(next) => next,
                Err(StreamsError::Closed) => return,
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(error, "cannot end transactions; trying again later");
                    Some(clock.now() + MARKERS_RETRY)
                }
            };
        }
    };
    let spawned = thread::Builder::new()
        .name("streams-sweeper".to_owned())
        .spawn(run);
    spawned
        .map(drop)
        .map_err(|error| StreamsError::Storage(Arc::new(error)))
}

impl Streams {
    /// Writes the markers that are missing, aborts what has timed out, and answers when the next
    /// open transaction will have. Blocks on the journal.
    pub(crate) fn sweep(&self) -> Result<Option<UnixMillis>, StreamsError> {
        let now = self.clock().now();
        let mut failed = None;
        let ending = self.transactions().table.lock().ending();
        for id in ending {
            // What fails for one must not keep the others open.
            let completed = self.until_not_busy(|| {
                let mut table = self.transactions().table.lock();
                self.complete(&mut table, &id, now)
            });
            failed = failed.or(completed.err());
        }
        let due = self.transactions().table.lock().due(now);
        for id in due {
            let aborted = self.until_not_busy(|| {
                let mut table = self.transactions().table.lock();
                let change = table
                    .find(&id)
                    .and_then(|transaction| transaction.expire(now));
                match change {
                    Some(change) => self.decide(&mut table, &id, change, now),
                    None => Ok(()),
                }
            });
            if let Err(error) = aborted {
                failed.get_or_insert(error);
                continue;
            }
            tracing::info!(
                transaction = id.as_ref(),
                "aborted a transaction whose time is over"
            );
        }
        let forgets = self.forget_idle(now);
        if let Some(error) = failed {
            return Err(error);
        }
        let forgets = forgets?;
        let deadline = self.transactions().table.lock().first_deadline();
        Ok(deadline.into_iter().chain(forgets).min())
    }

    /// Forgets the transactional ids that nobody has used for too long, as Kafka does; tells when
    /// the next may go.
    fn forget_idle(&self, now: UnixMillis) -> Result<Option<UnixMillis>, StreamsError> {
        let expiration = self.config().transactional_id_expiration.0;
        if expiration.is_zero() {
            return Ok(None);
        }
        loop {
            let Some((since, id)) = self.transactions().table.lock().longest_idle() else {
                return Ok(None);
            };
            let due = since + expiration;
            if due > now {
                // A little late, so that many that were used together wake the thread once.
                return Ok(Some(due + expiration / FORGET_LATE_SHARE));
            }
            self.until_not_busy(|| {
                let mut table = self.transactions().table.lock();
                // It may have been used meanwhile.
                let is_idle = |t: &Transaction| t.idle_since() == Some(since);
                if !table.find(&id).is_some_and(is_idle) {
                    return Ok(());
                }
                let change = TransactionChange::Forgotten;
                self.write(&id, &change, journal::Durability::Memory, Done::none())?;
                table.apply(&id, change);
                Ok(())
            })?;
            tracing::debug!(transaction = id.as_ref(), "forgot a transactional id");
        }
    }
}

/// Shortest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Transactional ids may stay longer by this share of the time after which they are forgotten.
const FORGET_LATE_SHARE: u32 = 100;
