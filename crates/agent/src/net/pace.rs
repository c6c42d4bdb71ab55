//! Speed limits: how long to rest after so many bytes.

use std::time::{Duration, Instant};

/// Keeps a transfer at so many bytes a second, seen over its whole length.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: Option<u64>,
    started: Instant,
    bytes: u64,
}

impl Pace {
    /// At most so many bytes a second; no bound, when there is none.
    pub(crate) fn new(now: Instant, bytes_per_second: Option<u64>) -> Self {
        Pace {
            bytes_per_second: bytes_per_second.filter(|speed| *speed > 0),
            started: now,
            bytes: 0,
        }
    }

    /// Counts `bytes` and says how long to rest before the next.
    pub(crate) fn rest(&mut self, now: Instant, bytes: usize) -> Duration {
        let Some(speed) = self.bytes_per_second else {
            return Duration::ZERO;
        };
        self.bytes += bytes as u64;
        let due = Duration::from_secs_f64(self.bytes as f64 / speed as f64);
        due.saturating_sub(now.saturating_duration_since(self.started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_takes_as_long_as_its_speed_says() {
        let start = Instant::now();
        let mut pace = Pace::new(start, Some(1_000));
        assert_eq!(pace.rest(start, 500), Duration::from_millis(500));
        let later = start + Duration::from_millis(700);
        assert_eq!(pace.rest(later, 500), Duration::from_millis(300));
        assert_eq!(pace.rest(start + Duration::from_secs(9), 1), Duration::ZERO);
        assert_eq!(Pace::new(start, None).rest(start, 1 << 30), Duration::ZERO);
    }
}
