//! The clock seam: code that decides takes `now`; whoever calls it asks a [`Clock`].

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A wall-clock instant in milliseconds since 1970-01-01T00:00:00Z, as Kafka and C2 write it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// Milliseconds since `earlier`; zero when `earlier` lies in the future (clocks step back).
    pub fn since(self, earlier: UnixMillis) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for UnixMillis {
    type Output = UnixMillis;

    fn add(self, rhs: Duration) -> UnixMillis {
        UnixMillis(self.0.saturating_add(millis(rhs)))
    }
}

impl Sub<Duration> for UnixMillis {
    type Output = UnixMillis;

    fn sub(self, rhs: Duration) -> UnixMillis {
        UnixMillis(self.0.saturating_sub(millis(rhs)))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Tells the time; the process has one, tests have a [`ManualClock`].
pub trait Clock: Send + Sync + 'static {
    /// The wall-clock time now.
    fn now(&self) -> UnixMillis;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        // A clock before 1970 is a broken machine; zero keeps arithmetic defined.
        UnixMillis(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map(millis)
                .unwrap_or(0),
        )
    }
}

/// A clock that moves only when told to; clones share the hand.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: UnixMillis) -> Self {
        ManualClock(Arc::new(AtomicI64::new(now.0)))
    }

    /// Moves the hand forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(millis(by), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_stands_until_advanced() {
        let clock = ManualClock::at(UnixMillis(5));
        let twin = clock.clone();
        clock.advance(Duration::from_millis(7));
        assert_eq!(twin.now(), UnixMillis(12));
    }

    #[test]
    fn time_since_the_future_is_zero() {
        assert_eq!(UnixMillis(1).since(UnixMillis(9)), Duration::ZERO);
        assert_eq!(UnixMillis(9).since(UnixMillis(1)), Duration::from_millis(8));
    }
}
