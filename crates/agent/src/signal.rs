//! How processors' threads sleep, and how they are woken: by input, by room, by a stop.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// A bell for any number of sleepers. A ring that comes before a sleep is not lost: each sleeper
/// keeps count of the rings that it has heard.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    rings: Mutex<u64>,
    bell: Condvar,
}

/// The rings that one sleeper has heard.
#[derive(Debug, Default)]
pub(crate) struct Heard(u64);

impl Signal {
    /// Wakes all sleepers, or spares them the next sleep.
    pub(crate) fn ring(&self) {
        *self.rings.lock() += 1;
        self.bell.notify_all();
    }

    /// Sleeps until it is rung or `deadline`; without one, until it is rung.
    pub(crate) fn sleep(&self, heard: &mut Heard, deadline: Option<Instant>) {
        let mut rings = self.rings.lock();
        while *rings == heard.0 {
            match deadline {
                Some(deadline) => {
                    if self.bell.wait_until(&mut rings, deadline).timed_out() {
                        break;
                    }
                }
                None => self.bell.wait(&mut rings),
            }
        }
        heard.0 = *rings;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_sleeper_hears_every_ring_even_one_that_came_before() {
        let signal = Arc::new(Signal::default());
        signal.ring();
        let sleepers: Vec<_> = (0..3)
            .map(|_| {
                let signal = Arc::clone(&signal);
                std::thread::spawn(move || {
                    let mut heard = Heard::default();
                    signal.sleep(&mut heard, None);
                    signal.sleep(&mut heard, None);
                })
            })
            .collect();
        while !sleepers.iter().all(|sleeper| sleeper.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
            signal.ring();
        }
        let mut heard = Heard::default();
        signal.sleep(&mut heard, None);
        let start = Instant::now();
        signal.sleep(&mut heard, Some(start + Duration::from_millis(20)));
        assert!(
            start.elapsed() >= Duration::from_millis(20),
            "it did not sleep"
        );
    }
}
