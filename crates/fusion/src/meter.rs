//! What a statement costs and how long its rows wait, over the last one to two minutes.

use std::time::{Duration, Instant};

/// The figures of one statement.
#[derive(Clone, Debug)]
pub struct Meter {
    recent: Span,
    before: Span,
    since: Instant,
    spent: Duration,
}

/// The figures of one period.
#[derive(Clone, Debug, Default)]
struct Span {
    /// Rows by the bucket of their waiting time; none before the first row.
    waits: Option<Box<[u32; BUCKETS]>>,
    spent: Duration,
    length: Duration,
}

impl Meter {
    /// A meter that starts now.
    pub fn new(now: Instant) -> Self {
        Meter {
            recent: Span::default(),
            before: Span::default(),
            since: now,
            spent: Duration::ZERO,
        }
    }

    /// So many rows waited so long from their computing until the sink had them.
    pub fn waited(&mut self, now: Instant, wait: Duration, rows: u64) {
        self.roll(now);
        let waits = self
            .recent
            .waits
            .get_or_insert_with(|| Box::new([0; BUCKETS]));
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let count = &mut waits[bucket(wait)];
        *count = count.saturating_add(rows);
    }

    /// Computing took so long.
    pub fn spent(&mut self, now: Instant, time: Duration) {
        self.roll(now);
        self.spent += time;
        self.recent.spent += time;
    }

    /// All time that computing took.
    pub fn spent_total(&self) -> Duration {
        self.spent
    }

    /// The share of one core that computing took of late.
    pub fn share(&mut self, now: Instant) -> f64 {
        self.roll(now);
        let length = now.saturating_duration_since(self.since) + self.before.length;
        let spent = self.recent.spent + self.before.spent;
        spent.as_secs_f64() / length.as_secs_f64().max(1.0)
    }

    /// The waiting time, microseconds, that such a share of the rows did not pass; none without
    /// rows. It is at most a quarter above the true one.
    pub fn percentile(&mut self, now: Instant, share: f64) -> Option<u64> {
        self.roll(now);
        let spans = [&self.recent, &self.before];
        let count_of = |index: usize| -> u64 {
            let waits = spans.iter().filter_map(|span| span.waits.as_ref());
            waits.map(|waits| u64::from(waits[index])).sum()
        };
        let total: u64 = (0..BUCKETS).map(count_of).sum();
        if total == 0 {
            return None;
        }
        let wanted = (total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for index in 0..BUCKETS {
            seen += count_of(index);
            if seen >= wanted {
                return Some(bound(index));
            }
        }
        Some(bound(BUCKETS - 1))
    }

    fn roll(&mut self, now: Instant) {
        let length = now.saturating_duration_since(self.since);
        if length < PERIOD {
            return;
        }
        self.before = Span {
            length,
            ..std::mem::take(&mut self.recent)
        };
        if length >= 2 * PERIOD {
            self.before = Span::default();
        }
        self.since = now;
    }
}

/// The bucket of a time: four to each power of two of microseconds.
fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    if micros < 4 {
        return micros as usize;
    }
    let power = 63 - micros.leading_zeros();
    let quarter = (micros >> (power - 2)) & 3;
    ((power as usize - 1) * 4 + quarter as usize).min(BUCKETS - 1)
}

/// The greatest time of a bucket, microseconds.
fn bound(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (power, quarter) = (bucket / 4 + 1, bucket % 4);
    ((5 + quarter as u64) << (power - 2)) - 1
}

/// Times up to 2^28 microseconds, over four minutes.
const BUCKETS: usize = 108;

/// How long a period is.
const PERIOD: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_within_its_buckets_bound() {
        for micros in (0..5_000).chain([1 << 20, (1 << 27) + 5]) {
            let index = bucket(Duration::from_micros(micros));
            assert!(bound(index) >= micros, "{micros}");
            assert!(
                bound(index) <= micros + micros / 4,
                "{micros}: {}",
                bound(index)
            );
        }
        assert_eq!(bucket(Duration::from_secs(3_600)), BUCKETS - 1);
    }

    #[test]
    fn percentiles_and_share_are_of_the_last_minutes() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut meter = Meter::new(start);
        assert_eq!(meter.percentile(at(1), 0.5), None);
        meter.waited(at(1), Duration::from_micros(100), 98);
        meter.waited(at(1), Duration::from_millis(10), 2);
        meter.spent(at(10), Duration::from_secs(5));
        assert_eq!(meter.percentile(at(10), 0.5), Some(111));
        assert!(meter.percentile(at(10), 0.99) >= Some(10_000));
        assert!((meter.share(at(10)) - 0.5).abs() < 0.01);
        meter.waited(at(61), Duration::from_micros(1), 300);
        assert_eq!(meter.percentile(at(70), 0.5), Some(1));
        assert_eq!(meter.percentile(at(130), 0.5), Some(1));
        assert_eq!(meter.percentile(at(400), 0.5), None);
        assert_eq!(meter.spent_total(), Duration::from_secs(5));
    }
}
