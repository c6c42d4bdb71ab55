//! Aborts transactions whose time is over, on a thread of its own that sleeps until the first of
//! them is due, and for ever when none is open.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use base::UnixMillis;
use parking_lot::{Condvar, Mutex};

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
                    Some(clock.now() + RETRY)
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

/// Shortest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Pause after a look that failed.
const RETRY: Duration = Duration::from_secs(60);
