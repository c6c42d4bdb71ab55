//! A histogram that many threads count into at the cost of two additions.
//!
//! Its bounds are fixed, so that it takes the same memory whatever is recorded and whether
//! anybody ever reads it, and so that those of several processes can be added up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts values by the first bound that they do not exceed.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// How many of the values' units make one of the unit that is told.
    per_unit: f64,
    /// One more than there are bounds: the last is for what exceeds them all.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a histogram held at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramReading {
    /// Each bound in the told unit, with how many values did not exceed it.
    pub cumulative: Vec<(f64, u64)>,
    /// All values.
    pub count: u64,
    /// Their sum in the told unit.
    pub sum: f64,
}

impl Histogram {
    /// A histogram of durations, from 100 µs to 30 s, told in seconds.
    pub fn of_durations() -> Self {
        Histogram::new(&DURATION_BOUNDS_US, 1e6)
    }

    /// A histogram of sizes, from 64 bytes to 64 MiB, told in bytes.
    pub fn of_sizes() -> Self {
        Histogram::new(&SIZE_BOUNDS_BYTES, 1.0)
    }

    /// A histogram of how many, from one to 65,536.
    pub fn of_counts() -> Self {
        Histogram::new(&COUNT_BOUNDS, 1.0)
    }

    fn new(bounds: &'static [u64], per_unit: f64) -> Self {
        Histogram {
            bounds,
            per_unit,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts a value.
    pub fn record(&self, value: u64) {
        // Most values are small, and the bounds lie in two cache lines.
        let slot = self.bounds.iter().position(|bound| value <= *bound);
        let slot = slot.unwrap_or(self.bounds.len());
        self.counts[slot].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts a duration.
    pub fn record_duration(&self, duration: Duration) {
        self.record(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// What it holds now.
    pub fn read(&self) -> HistogramReading {
        let mut count = 0;
        let mut cumulative = Vec::with_capacity(self.bounds.len());
        for (slot, bound) in self.counts.iter().zip(self.bounds) {
            count += slot.load(Ordering::Relaxed);
            cumulative.push((*bound as f64 / self.per_unit, count));
        }
        count += self.counts[self.bounds.len()].load(Ordering::Relaxed);
        HistogramReading {
            cumulative,
            count,
            sum: self.sum.load(Ordering::Relaxed) as f64 / self.per_unit,
        }
    }
}

const DURATION_BOUNDS_US: [u64; 17] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000,
];

const SIZE_BOUNDS_BYTES: [u64; 11] = [
    64,
    256,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
];

const COUNT_BOUNDS: [u64; 9] = [1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_up_to_their_bound() {
        let histogram = Histogram::of_durations();
        for us in [0, 100, 101, 1_000_000, 60_000_000] {
            histogram.record_duration(Duration::from_micros(us));
        }
        let read = histogram.read();
        assert_eq!(read.cumulative[0], (0.0001, 2));
        assert_eq!(read.cumulative[1], (0.00025, 3));
        assert_eq!(read.cumulative.last(), Some(&(30.0, 4)));
        assert_eq!(read.count, 5);
        assert!((read.sum - 61.000_201).abs() < 1e-9, "{}", read.sum);
    }

    #[test]
    fn sizes_and_counts_are_told_as_they_are() {
        let histogram = Histogram::of_sizes();
        histogram.record(65);
        assert_eq!(histogram.read().cumulative[1], (256.0, 1));
        let histogram = Histogram::of_counts();
        histogram.record(1);
        assert_eq!(histogram.read().cumulative[0], (1.0, 1));
    }
}
