//! How a processor's thread sleeps, and how it is woken: by input, by room, by a stop.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// A sleeper's bell. A ring that comes before the sleep is not lost.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Signal {
    /// Wakes the sleeper, or spares it the next sleep.
    pub(crate) fn ring(&self) {
        let mut rung = self.rung.lock();
        if !*rung {
            *rung = true;
            self.bell.notify_one();
        }
    }

    /// Sleeps until it is rung or `deadline`; without one, until it is rung.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) {
        let mut rung = self.rung.lock();
        while !*rung {
            match deadline {
                Some(deadline) => {
                    if self.bell.wait_until(&mut rung, deadline).timed_out() {
                        break;
                    }
                }
                None => self.bell.wait(&mut rung),
            }
        }
        *rung = false;
    }
}
