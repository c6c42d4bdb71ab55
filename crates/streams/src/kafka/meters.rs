//! How fast clients go against what they may: meters without IO, in memory only.
//!
//! A meter fills with what its clients use and drains at their rate. It holds what the rate gives
//! in [`QUOTA_WINDOW`], as Kafka's ten windows of a second do, so short bursts pass; what is above
//! has to be waited for. A meter that has run dry knows nothing and is dropped.

use std::collections::HashMap;
use std::time::Duration;

use access::{Bound, Sharing};
use base::UnixMillis;

use super::limits::{METERS_MAX, QUOTA_WINDOW, THROTTLE_MAX};

/// The meters of all clients with a quota.
#[derive(Default)]
pub(super) struct Meters {
    meters: HashMap<(Bound, Who), Meter>,
    /// How many meters there may be before dry ones are looked for.
    sweep_at: usize,
}

/// Whom a meter is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Who {
    /// Clients of a user, of a client id, or of both.
    Client(Option<Box<str>>, Option<Box<str>>),
    /// An address.
    Address(Box<str>),
    /// All for whom there is no room: they share.
    Others,
}

struct Meter {
    /// What was used and has not drained, in the bound's unit.
    level: f64,
    at: UnixMillis,
    rate: f64,
}

impl Who {
    /// Whom a bound is for that is shared like this.
    pub(super) fn sharing(sharing: Sharing, user: &str, client: &str) -> Self {
        let user = sharing.by_user.then(|| user.into());
        Who::Client(user, sharing.by_client.then(|| client.into()))
    }
}

impl Meters {
    /// Counts `amount`; answers how long to wait before more.
    pub(super) fn charge(
        &mut self,
        now: UnixMillis,
        bound: Bound,
        who: Who,
        rate: f64,
        amount: f64,
    ) -> Duration {
        let meter = self.meter(now, bound, who, rate);
        meter.level += amount;
        meter.wait()
    }

    /// How long to wait before anything more may be used; nothing is counted.
    pub(super) fn wait(&mut self, now: UnixMillis, bound: Bound, who: Who, rate: f64) -> Duration {
        self.meter(now, bound, who, rate).wait()
    }

    fn meter(&mut self, now: UnixMillis, bound: Bound, who: Who, rate: f64) -> &mut Meter {
        let mut key = (bound, who);
        if !self.meters.contains_key(&key) && self.meters.len() >= self.sweep_at {
            self.meters.retain(|_, meter| {
                meter.drain(now);
                meter.level > 0.0
            });
            // So that looking through all of them costs each newcomer little.
            self.sweep_at = (2 * self.meters.len()).clamp(SWEEP_FROM, METERS_MAX);
            if self.meters.len() >= METERS_MAX {
                key.1 = Who::Others;
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

    fn wait(&self) -> Duration {
        let over = self.level - self.rate * QUOTA_WINDOW.as_secs_f64();
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

    const RATE: Bound = Bound::ProducerByteRate;

    fn of(user: &str) -> Who {
        Who::Client(Some(user.into()), None)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut meters = Meters::default();
        let mut now = UnixMillis(1_000_000);
        // A client that waits as told, for a hundred seconds at a thousand bytes a second.
        let (begun, mut bytes) = (now, 0.0);
        while now.since(begun) < Duration::from_secs(100) {
            let wait = meters.charge(now, RATE, of("ann"), 1_000.0, 700.0);
            bytes += 700.0;
            now = now + wait.max(Duration::from_millis(1));
        }
        let most = 1_000.0 * (100.0 + QUOTA_WINDOW.as_secs_f64()) + 700.0;
        assert!((most - 2_000.0..=most).contains(&bytes), "{bytes}");
        // Somebody else is not held back.
        let wait = meters.charge(now, RATE, of("bob"), 1_000.0, 700.0);
        assert_eq!(wait, Duration::ZERO);
    }

    #[test]
    fn a_meter_counts_by_the_rate_of_the_moment() {
        let mut meters = Meters::default();
        let now = UnixMillis(1_000_000);
        let window = QUOTA_WINDOW.as_secs_f64();
        let wait = meters.charge(now, RATE, of("ann"), 10.0, 10.0 * window + 50.0);
        assert_eq!(wait, Duration::from_secs(5));
        assert_eq!(meters.wait(now, RATE, of("ann"), 10.0), wait);
        let wait = meters.charge(now, RATE, of("ann"), 1_000.0, 0.0);
        assert_eq!(wait, Duration::ZERO);
        // However far over, nobody waits for ever; and a clock that goes back harms nothing.
        let wait = meters.charge(UnixMillis(1), RATE, of("ann"), 1e-300, f64::MAX);
        assert_eq!(wait, THROTTLE_MAX);
    }

    #[test]
    fn meters_are_bounded_and_dry_ones_are_dropped() {
        let mut meters = Meters::default();
        let now = UnixMillis(1_000_000);
        for user in 0..METERS_MAX + 100 {
            meters.charge(now, RATE, of(&user.to_string()), 1.0, 5.0);
        }
        assert!(meters.meters.len() <= METERS_MAX + 1);
        // Those for whom there was no room shared one meter.
        let wait = meters.charge(now, RATE, of("late"), 1.0, 0.0);
        assert_ne!(wait, Duration::ZERO);
        let later = now + Duration::from_secs(1_000);
        meters.charge(later, RATE, of("new"), 1.0, 1.0);
        assert_eq!(meters.meters.len(), 1);
    }
}
