//! How much bulk work may do while people are served: less when they wait longer than they would
//! without it.
//!
//! Latencies of the foreground are looked at in windows of a quarter of a second. Their 95th
//! percentile is compared with the floor, which windows without bulk work give, or else the best
//! window so far. Above 1.2 times the floor bulk's share of the time is halved, down to a tenth that
//! it always keeps; below 1.1 times it gets a tenth more. With nobody to serve it has all of it
//! again. A share below one is kept by a pause after each slice, and after what the search index
//! takes in at once.
//!
//! No clock, no IO: `now` is a time since any fixed moment.

use std::time::Duration;

use crate::limits;

/// The state of the guard.
#[derive(Debug)]
pub(crate) struct Guard {
    window: Window,
    floor: Option<Duration>,
    share: f64,
}

#[derive(Debug, Default)]
struct Window {
    from: Duration,
    latencies: Vec<Duration>,
    had_bulk: bool,
}

impl Default for Guard {
    fn default() -> Self {
        Guard {
            window: Window::default(),
            floor: None,
            share: 1.0,
        }
    }
}

impl Guard {
    /// Takes the latency of a foreground operation; `beside_bulk` says that bulk work ran or waited
    /// meanwhile.
    pub fn observe(&mut self, now: Duration, latency: Duration, beside_bulk: bool) {
        self.roll(now);
        self.window.had_bulk |= beside_bulk;
        if self.window.latencies.len() < limits::GUARD_SAMPLES_MAX {
            self.window.latencies.push(latency);
        }
    }

    /// How long bulk work rests after a slice that took `took`.
    pub fn pause_after(&mut self, now: Duration, took: Duration) -> Duration {
        self.roll(now);
        self.window.had_bulk = true;
        self.rest_after(took)
    }

    /// How long what follows from bulk work rests after it took `took`.
    pub fn rest_after(&self, took: Duration) -> Duration {
        took.mul_f64(1.0 / self.share - 1.0)
            .min(limits::GUARD_PAUSE_MAX)
    }

    /// Bulk's share of the time, from a tenth to one.
    pub fn share(&self) -> f64 {
        self.share
    }

    fn roll(&mut self, now: Duration) {
        let age = now.saturating_sub(self.window.from);
        if age < WINDOW {
            return;
        }
        let few = self.window.latencies.len() < SAMPLES_MIN;
        if few && !self.window.latencies.is_empty() && age < WINDOW_LONGEST {
            return;
        }
        let mut window = std::mem::take(&mut self.window);
        self.window.from = now;
        window.latencies.sort_unstable();
        let last = window.latencies.len().saturating_sub(1);
        let Some(p95) = window.latencies.get(last * 95 / 100).copied() else {
            self.share = 1.0;
            return;
        };
        let floor = match self.floor {
            None => p95,
            // Without bulk work the floor follows what it is now; beside it, only downwards.
            Some(floor) if !window.had_bulk => floor.mul_f64(0.8) + p95.mul_f64(0.2),
            Some(floor) => floor.min(p95),
        };
        self.floor = Some(floor.max(FLOOR_MIN));
        let ratio = p95.as_secs_f64() / floor.max(FLOOR_MIN).as_secs_f64();
        if ratio > 1.2 {
            self.share = (self.share * 0.5).max(SHARE_MIN);
        } else if ratio < 1.1 {
            self.share = (self.share + 0.1).min(1.0);
        }
    }
}

const WINDOW: Duration = Duration::from_millis(250);
/// A window with few operations waits for more up to this age.
const WINDOW_LONGEST: Duration = Duration::from_secs(1);
/// Operations of which a percentile says something.
const SAMPLES_MIN: usize = 5;
/// Below this a latency is noise.
const FLOOR_MIN: Duration = Duration::from_micros(200);
/// What bulk work keeps whatever the foreground does.
const SHARE_MIN: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves people for `seconds`; an operation takes 2 ms, and more the more bulk work there is.
    fn serve(guard: &mut Guard, from: u64, seconds: u64, harm: f64, bulk: bool) -> u64 {
        let end = from + seconds * 1_000;
        for now in (from..end).step_by(10) {
            let share = if bulk { guard.share() } else { 0.0 };
            let latency = Duration::from_millis(2).mul_f64(1.0 + harm * share);
            guard.observe(Duration::from_millis(now), latency, bulk);
        }
        end
    }

    #[test]
    fn bulk_is_slowed_until_people_wait_no_longer_than_they_should() {
        let mut guard = Guard::default();
        let now = serve(&mut guard, 0, 5, 2.0, false);
        assert!(guard.share() > 0.99);
        let now = serve(&mut guard, now, 20, 2.0, true);
        let share = guard.share();
        // At a share of 0.1 a latency is at 1.2 times the floor.
        assert!((0.09..=0.25).contains(&share), "{share}");
        let pause = guard.pause_after(Duration::from_millis(now), Duration::from_millis(20));
        assert!(pause >= Duration::from_millis(60), "{pause:?}");
        // Nobody comes any more: a second later bulk has all of the time again.
        let later = Duration::from_millis(now + 1_000);
        guard.pause_after(later, Duration::from_millis(20));
        let after = guard.pause_after(later + WINDOW, Duration::from_millis(20));
        assert_eq!(after, Duration::ZERO);
    }

    #[test]
    fn bulk_that_harms_nobody_is_not_slowed_and_harm_never_stops_it() {
        let mut guard = Guard::default();
        let now = serve(&mut guard, 0, 5, 0.05, false);
        let now = serve(&mut guard, now, 20, 0.05, true);
        assert!(guard.share() > 0.99, "{}", guard.share());
        serve(&mut guard, now, 20, 1_000.0, true);
        assert!(
            (guard.share() - SHARE_MIN).abs() < 1e-9,
            "{}",
            guard.share()
        );
    }

    #[test]
    fn bulk_that_was_there_first_is_measured_by_the_best_window() {
        let mut guard = Guard::default();
        let mut now = serve(&mut guard, 0, 3, 0.0, true);
        now = serve(&mut guard, now, 3, 3.0, true);
        assert!(guard.share() < 0.9, "{}", guard.share());
        assert!(now > 0);
    }
}
