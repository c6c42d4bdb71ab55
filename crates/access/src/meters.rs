//! How fast callers go against what they may: meters without IO, in memory only.
//!
//! A meter fills with what its callers use and drains at their rate. It holds what the rate gives
//! in a window, so short bursts pass; what is above has to be waited for. A meter that has run dry
//! knows nothing and is dropped.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use base::UnixMillis;

use crate::limits::{METERS_MAX, THROTTLE_MAX};

/// The meters of all callers who are bounded, each under a key that says whom and what it is for.
pub struct Meters<K> {
    window: Duration,
    /// The key that all share for whom there is no room.
    others: fn(K) -> K,
    meters: HashMap<K, Meter>,
    /// How many meters there may be before dry ones are looked for.
    sweep_at: usize,
}

struct Meter {
    /// What was used and has not drained, in the bound's unit.
    level: f64,
    at: UnixMillis,
    rate: f64,
}

impl<K: Eq + Hash> Meters<K> {
    /// Meters that each hold what their rate gives in `window`; `others` makes of a key the one
    /// that is shared when there are too many.
    pub fn new(window: Duration, others: fn(K) -> K) -> Self {
        Meters {
            window,
            others,
            meters: HashMap::new(),
            sweep_at: 0,
        }
    }

    /// Counts `amount`; answers how long to wait before more.
    pub fn charge(&mut self, now: UnixMillis, key: K, rate: f64, amount: f64) -> Duration {
        let window = self.window;
        let meter = self.meter(now, key, rate);
        meter.level += amount;
        meter.wait(window)
    }

    /// How long to wait before anything more may be used; nothing is counted.
    pub fn wait(&mut self, now: UnixMillis, key: K, rate: f64) -> Duration {
        let window = self.window;
        self.meter(now, key, rate).wait(window)
    }

    fn meter(&mut self, now: UnixMillis, mut key: K, rate: f64) -> &mut Meter {
        if !self.meters.contains_key(&key) && self.meters.len() >= self.sweep_at {
            self.meters.retain(|_, meter| {
                meter.drain(now);
                meter.level > 0.0
            });
            // So that looking through all of them costs each newcomer little.
            self.sweep_at = (2 * self.meters.len()).clamp(SWEEP_FROM, METERS_MAX);
            if self.meters.len() >= METERS_MAX {
                key = (self.others)(key);
            }
        }
        let fresh = Meter {
            level: 0.0,
            at: now,
            rate,
        };
        let meter = self.meters.entry(key).or_insert(fresh);
        meter.drain(now);
        meter.rate = rate;
        meter
    }
}

impl Meter {
    fn drain(&mut self, now: UnixMillis) {
        let drained = self.rate * now.since(self.at).as_secs_f64();
        self.level = (self.level - drained).max(0.0);
        self.at = now;
    }

    fn wait(&self, window: Duration) -> Duration {
        let over = self.level - self.rate * window.as_secs_f64();
        if over <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(over / self.rate).map_or(THROTTLE_MAX, |w| w.min(THROTTLE_MAX))
    }
}

/// Fewer meters than this are not worth looking through.
const SWEEP_FROM: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn meters() -> Meters<String> {
        Meters::new(WINDOW, |_| "others".to_owned())
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut meters = meters();
        let mut now = UnixMillis(1_000_000);
        // A client that waits as told, for a hundred seconds at a thousand bytes a second.
        let (begun, mut bytes) = (now, 0.0);
        while now.since(begun) < Duration::from_secs(100) {
            let wait = meters.charge(now, "ann".to_owned(), 1_000.0, 700.0);
            bytes += 700.0;
            now = now + wait.max(Duration::from_millis(1));
        }
        let most = 1_000.0 * (100.0 + WINDOW.as_secs_f64()) + 700.0;
        assert!((most - 2_000.0..=most).contains(&bytes), "{bytes}");
        // Somebody else is not held back.
        let wait = meters.charge(now, "bob".to_owned(), 1_000.0, 700.0);
        assert_eq!(wait, Duration::ZERO);
    }

    #[test]
    fn a_meter_counts_by_the_rate_of_the_moment() {
        let mut meters = meters();
        let (now, ann) = (UnixMillis(1_000_000), || "ann".to_owned());
        let amount = 10.0 * WINDOW.as_secs_f64() + 50.0;
        let wait = meters.charge(now, ann(), 10.0, amount);
        assert_eq!(wait, Duration::from_secs(5));
        assert_eq!(meters.wait(now, ann(), 10.0), wait);
        let wait = meters.charge(now, ann(), 1_000.0, 0.0);
        assert_eq!(wait, Duration::ZERO);
        // However far over, nobody waits for ever; and a clock that goes back harms nothing.
        let wait = meters.charge(UnixMillis(1), ann(), 1e-300, f64::MAX);
        assert_eq!(wait, THROTTLE_MAX);
    }

    #[test]
    fn meters_are_bounded_and_dry_ones_are_dropped() {
        let mut meters = meters();
        let now = UnixMillis(1_000_000);
        for user in 0..METERS_MAX + 100 {
            meters.charge(now, user.to_string(), 1.0, 5.0);
        }
        assert!(meters.meters.len() <= METERS_MAX + 1);
        // Those for whom there was no room shared one meter.
        let wait = meters.charge(now, "late".to_owned(), 1.0, 0.0);
        assert_ne!(wait, Duration::ZERO);
        let later = now + Duration::from_secs(1_000);
        meters.charge(later, "new".to_owned(), 1.0, 1.0);
        assert_eq!(meters.meters.len(), 1);
    }
}
