//! How much bulk work may do while people are served: less when they wait longer than they would
//! without it.
//!
//! Latencies of the foreground without bulk work give two bounds: a quarter more than their 95th
//! percentile, and twice as much. Twice a second it is counted how many operations beside bulk work
//! took longer. When these are more than the twentieth that there always is, and more than chance makes
//! of it, bulk's share of the time becomes nine tenths of what it was for the first bound, down to eight
//! tenths of all, and it comes back to them; for the second it becomes seven tenths of what it was, down
//! to the tenth that bulk work always keeps. When operations are none too long it gets a tenth more.
//! With nobody to serve it has all of it again. A share below one is kept by a pause after each turn,
//! and after what the search index takes in at once.
//! A job that is being entered makes others' turns short for a moment, and takes nothing of their share.
//! Nobody waits for the index, which has a smaller share while anybody is served.
//!
//! What a little longer is comes of cores and a disk that are shared at all: to have bulk work rest
//! for most of the time was measured to take next to nothing off it.
//!
//! Single operations are counted, since a percentile of the few that come in a second says next to
//! nothing where some take ten times as long as others, as those that wait for a disk do.
//!
//! No clock, no IO: `now` is a time since any fixed moment.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits;

/// The state of the guard.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Latencies without bulk work, the newest last; the first ones of all where there was no time
    /// without it.
    calm: VecDeque<Duration>,
    /// Latencies beside bulk work since its share is what it is, and when they were seen.
    beside: VecDeque<(Duration, Duration)>,
    looked: Duration,
    served: Option<Duration>,
    came: Option<Duration>,
    share: f64,
}

impl Default for Guard {
    fn default() -> Self {
        Guard {
            calm: VecDeque::new(),
            beside: VecDeque::new(),
            looked: Duration::ZERO,
            served: None,
            came: None,
            share: 1.0,
        }
    }
}

impl Guard {
    /// Takes the latency of a foreground operation; `beside_bulk` says that bulk work ran or waited
    /// meanwhile.
    pub fn observe(&mut self, now: Duration, latency: Duration, beside_bulk: bool) {
        self.look(now);
        self.served = Some(now);
        if beside_bulk && self.calm.len() >= CALM_MIN {
            push(&mut self.beside, (now, latency));
        } else {
            push(&mut self.calm, latency);
        }
    }

    /// How long bulk work rests after a turn that took `took`.
    pub fn pause_after(&mut self, now: Duration, took: Duration) -> Duration {
        self.look(now);
        rest(self.share, took)
    }

    /// How long the search index rests after it took in what took `took`; `beside_bulk` says that bulk
    /// work runs or waits.
    pub fn rest_of_index(&self, now: Duration, took: Duration, beside_bulk: bool) -> Duration {
        let most = match (self.is_serving(now), beside_bulk) {
            (false, _) => 1.0,
            (true, false) => INDEX_SHARE,
            (true, true) => INDEX_SHARE_BESIDE_BULK,
        };
        rest(self.share.min(most), took)
    }

    /// How many records the search index takes in at once.
    pub fn records_of_index(&self, now: Duration) -> usize {
        match self.is_serving(now) {
            true => limits::INDEX_ROWS,
            false => limits::INDEXED_AT_ONCE,
        }
    }

    /// Bulk's share of the time, from a tenth to one.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Whether somebody was served just now.
    pub fn is_serving(&self, now: Duration) -> bool {
        self.served
            .is_some_and(|served| now.saturating_sub(served) < NOBODY_AFTER)
    }

    /// Somebody sends a new job, which is to have its first turn soon.
    pub fn expect(&mut self, now: Duration) {
        self.came = Some(now);
    }

    /// Whether a new job is on its way, or came just now.
    pub fn is_expecting(&self, now: Duration) -> bool {
        self.came
            .is_some_and(|came| now.saturating_sub(came) < EXPECTED_FOR)
    }

    fn look(&mut self, now: Duration) {
        if now.saturating_sub(self.looked) < PERIOD {
            return;
        }
        self.looked = now;
        if !self.is_serving(now) {
            self.beside.clear();
            self.share = 1.0;
            return;
        }
        let old = |(at, _): &(Duration, Duration)| now.saturating_sub(*at) > EVIDENCE;
        while self.beside.front().is_some_and(old) {
            self.beside.pop_front();
        }
        if self.beside.len() < SAMPLES_MIN {
            return;
        }
        let p95 = p95(&self.calm);
        let longer = |times: f64| {
            let bound = p95.mul_f64(times);
            let longer = self.beside.iter().filter(|(_, latency)| *latency > bound);
            longer.count() as f64
        };
        let usual = self.beside.len() as f64 / 20.0;
        let too_many = usual + 2.0 * usual.sqrt();
        let share = if longer(MUCH) > too_many {
            (self.share * 0.7).max(SHARE_MIN)
        } else if longer(LITTLE) > too_many && self.share > SHARE_FOR_LITTLE {
            (self.share * 0.9).max(SHARE_FOR_LITTLE)
        } else if longer(NONE) <= usual {
            (self.share + 0.1).min(1.0)
        } else if self.share < SHARE_FOR_LITTLE {
            (self.share + 0.05).min(SHARE_FOR_LITTLE)
        } else {
            return;
        };
        if share != self.share {
            // What was seen was seen of another share.
            self.beside.clear();
        }
        self.share = share;
    }
}

/// How long somebody rests after `took` to have `share` of the time.
fn rest(share: f64, took: Duration) -> Duration {
    took.mul_f64(1.0 / share - 1.0).min(limits::GUARD_PAUSE_MAX)
}

fn push<T>(latest: &mut VecDeque<T>, one: T) {
    if latest.len() >= limits::GUARD_SAMPLES_MAX {
        latest.pop_front();
    }
    latest.push_back(one);
}

fn p95(latencies: &VecDeque<Duration>) -> Duration {
    let mut sorted: Vec<Duration> = latencies.iter().copied().collect();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    let p95 = sorted.get(last * 95 / 100).copied();
    p95.unwrap_or_default().max(FLOOR_MIN)
}

const PERIOD: Duration = Duration::from_millis(500);
/// So long a new job takes to be entered, beside others' turns: its own is next then.
const EXPECTED_FOR: Duration = Duration::from_millis(20);
/// Operations count for so long, unless bulk's share changes.
const EVIDENCE: Duration = Duration::from_secs(2);
/// After this long without an operation there is nobody to serve.
const NOBODY_AFTER: Duration = Duration::from_secs(1);
/// Operations of which it is said how long they usually take.
const CALM_MIN: usize = 40;
/// Operations of which it is said that they take longer.
const SAMPLES_MIN: usize = 20;
/// Below this a latency is noise.
const FLOOR_MIN: Duration = Duration::from_micros(200);
/// Times the usual 95th percentile up to which an operation is none too long.
const NONE: f64 = 1.15;
/// Times that from which it is a little too long.
const LITTLE: f64 = 1.25;
/// Times that from which it is much too long.
const MUCH: f64 = 2.0;
/// What bulk work keeps as long as nobody waits much too long.
const SHARE_FOR_LITTLE: f64 = 0.8;
/// What of the time the search index takes while somebody is served.
const INDEX_SHARE: f64 = 0.25;
/// The same while there is bulk work too, which was measured to harm those who are served about as much
/// as the index does.
const INDEX_SHARE_BESIDE_BULK: f64 = 0.05;
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
    fn a_new_job_is_expected_for_a_moment() {
        let (mut guard, at) = (Guard::default(), Duration::from_millis);
        assert!(!guard.is_expecting(at(0)));
        guard.expect(at(100));
        assert!(guard.is_expecting(at(119)) && !guard.is_expecting(at(120)));
        // Nobody is served by that.
        assert!(!guard.is_serving(at(110)));
    }

    #[test]
    fn bulk_is_slowed_until_nobody_waits_much_longer() {
        let mut guard = Guard::default();
        let now = serve(&mut guard, 0, 5, 4.0, false);
        assert!(guard.share() > 0.99);
        let now = serve(&mut guard, now, 20, 4.0, true);
        let share = guard.share();
        // At a share of 0.25 a latency is at twice the floor.
        assert!((0.17..=0.30).contains(&share), "{share}");
        let pause = guard.pause_after(Duration::from_millis(now), Duration::from_millis(20));
        assert!(pause >= Duration::from_millis(40), "{pause:?}");
        // Nobody comes any more: a second later bulk has all of the time again.
        let later = Duration::from_millis(now + 1_000);
        guard.pause_after(later, Duration::from_millis(20));
        let after = guard.pause_after(later + PERIOD, Duration::from_millis(20));
        assert_eq!(after, Duration::ZERO);
    }

    #[test]
    fn bulk_that_harms_a_little_keeps_most_of_its_time() {
        let mut guard = Guard::default();
        let now = serve(&mut guard, 0, 5, 0.6, false);
        let now = serve(&mut guard, now, 20, 0.6, true);
        assert!((guard.share() - 0.8).abs() < 1e-9, "{}", guard.share());
        // Slowed for much harm, it comes back to that when it harms little.
        let now = serve(&mut guard, now, 20, 40.0, true);
        assert!(guard.share() < 0.2, "{}", guard.share());
        serve(&mut guard, now, 30, 0.6, true);
        assert!((guard.share() - 0.8).abs() < 0.11, "{}", guard.share());
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
    fn a_disk_that_is_slow_now_and_then_is_not_held_against_bulk() {
        let mut guard = Guard::default();
        let mut rng = base::Rng::from_seed(7);
        let mut least: f64 = 1.0;
        for number in 0..8_000_u64 {
            // One of fifteen takes five times as long, and of these one a quarter more.
            let latency = match rng.below(60) {
                0 => 13,
                1..4 => 10,
                _ => 2,
            };
            let latency = Duration::from_millis(latency);
            guard.observe(Duration::from_millis(number * 12), latency, number > 400);
            least = least.min(guard.share());
        }
        assert!(least > 0.6, "{least}");
        assert!(guard.share() > 0.9, "{}", guard.share());
    }

    #[test]
    fn the_index_steps_back_while_somebody_is_served() {
        let mut guard = Guard::default();
        let took = Duration::from_millis(20);
        assert!(!guard.is_serving(Duration::ZERO));
        let later = Duration::from_secs(10);
        assert_eq!(guard.rest_of_index(later, took, true), Duration::ZERO);
        assert_eq!(guard.records_of_index(later), limits::INDEXED_AT_ONCE);
        guard.observe(later, Duration::from_millis(2), true);
        assert_eq!(guard.rest_of_index(later, took, false), took * 3);
        let beside_bulk = guard.rest_of_index(later, took, true);
        assert!(beside_bulk.abs_diff(took * 19) < took, "{beside_bulk:?}");
        assert!(guard.records_of_index(later) < limits::INDEXED_AT_ONCE);
        // However long it took, the next one's edits are not far.
        let long = guard.rest_of_index(later, Duration::from_secs(3), true);
        assert_eq!(long, limits::GUARD_PAUSE_MAX);
    }

    #[test]
    fn bulk_that_was_there_first_is_measured_by_the_first_windows() {
        let mut guard = Guard::default();
        let mut now = serve(&mut guard, 0, 3, 0.0, true);
        now = serve(&mut guard, now, 3, 3.0, true);
        assert!(guard.share() < 0.9, "{}", guard.share());
        assert!(now > 0);
    }
}
