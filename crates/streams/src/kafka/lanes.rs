//! The lanes of a listener: threads that serve connections, each with a runtime of its own.
//!
//! A connection is served by one thread, so that a request wakes that thread and no other that
//! would only look whether there is something to help with (decision 27). The balance that such
//! help keeps is kept here by moving connections: one whose lane has no time left, and others
//! beside it, goes on upon a lane that has some.
//!
//! A lane waits for the disk itself where only one connection has anything to do (decision 36).
//!
//! Each lane keeps in its [`Pace`] for how much of the time it was awake. The threads start with
//! the first connection and end with the listener.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::limits::{LANE_BLOCKING_THREADS_MAX, LANES_MAX};

/// The lanes of one listener.
pub(super) struct Lanes {
    began: Instant,
    ending: CancellationToken,
    lanes: OnceLock<Vec<Lane>>,
}

#[derive(Clone)]
struct Lane {
    runtime: Handle,
    pace: Arc<Pace>,
}

/// The lane that a connection is on, as the connection sees it.
pub(super) struct LanePlace {
    lanes: Arc<Lanes>,
    lane: Lane,
    /// The window in which the connection last had something to do.
    window: u32,
    /// In tests connections move all the time.
    #[cfg(test)]
    turns: u32,
}

/// What a lane has had to do lately. Times are nanoseconds from the listener's beginning.
#[derive(Default)]
struct Pace {
    connections: AtomicU32,
    /// Time awake, without the present stretch of it.
    awake: AtomicU64,
    /// When the present stretch began; [`ASLEEP`] in none.
    awake_since: AtomicU64,
    /// The number of the present window.
    window: AtomicU32,
    window_began: AtomicU64,
    /// What `awake` came to when the window began.
    awake_before: AtomicU64,
    /// Connections that had something to do in the window.
    busy: AtomicU32,
    /// How busy the window before was.
    percent: AtomicU32,
    /// Connections that had something to do in it.
    crowd: AtomicU32,
    /// Whether a connection may leave in this window.
    may_leave: AtomicBool,
}

impl Lanes {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Lanes {
            began: Instant::now(),
            ending: CancellationToken::new(),
            lanes: OnceLock::new(),
        })
    }

    /// Ends the threads when it is dropped, with what is still on them.
    pub(super) fn ending(&self) -> DropGuard {
        self.ending.clone().drop_guard()
    }

    /// A place for a new connection on the lane that has most time.
    pub(super) fn place(self: &Arc<Self>) -> LanePlace {
        let now = self.now();
        let burden = |lane: &&Lane| {
            let connections = lane.pace.connections.load(Ordering::Relaxed);
            (lane.pace.percent_at(now) / PERCENT_STEP, connections)
        };
        let least = self.lanes().iter().min_by_key(burden);
        self.place_on(least.expect("there is always one"))
    }

    fn place_on(self: &Arc<Self>, lane: &Lane) -> LanePlace {
        lane.pace.connections.fetch_add(1, Ordering::Relaxed);
        LanePlace {
            lanes: Arc::clone(self),
            lane: lane.clone(),
            window: 0,
            #[cfg(test)]
            turns: 0,
        }
    }

    /// One or more.
    fn lanes(&self) -> &[Lane] {
        self.lanes.get_or_init(|| {
            let count = thread::available_parallelism().map_or(1, usize::from);
            let lanes = 0..count.min(LANES_MAX);
            lanes.map(|index| self.start(index)).collect()
        })
    }

    fn start(&self, index: usize) -> Lane {
        let pace = Arc::new(Pace::default());
        let runtime = self.try_start(index, &pace).unwrap_or_else(|error| {
            tracing::warn!(%error, "no thread for Kafka connections; others serve them");
            Handle::current()
        });
        Lane { runtime, pace }
    }

    fn try_start(&self, index: usize, pace: &Arc<Pace>) -> io::Result<Handle> {
        let began = self.began;
        let (resting, waking) = (Arc::clone(pace), Arc::clone(pace));
        let ending = self.ending.clone();
        let (tell, told) = sync_channel(1);
        // The runtime is made on its thread: none may be dropped here, where another one runs.
        let thread = thread::Builder::new().name(format!("kafka-{index}"));
        thread.spawn(move || {
            let built = Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(LANE_BLOCKING_THREADS_MAX)
                .on_thread_park(move || resting.rest(nanos(began.elapsed())))
                .on_thread_unpark(move || waking.wake(nanos(began.elapsed())))
                .build();
            let (runtime, answer) = match built {
                Ok(runtime) => {
                    let handle = runtime.handle().clone();
                    (Some(runtime), Ok(handle))
                }
                Err(error) => (None, Err(error)),
            };
            if let (Ok(()), Some(runtime)) = (tell.send(answer), runtime) {
                runtime.block_on(ending.cancelled());
                // What its connections left to threads that may block is not waited for.
                runtime.shutdown_background();
            }
        })?;
        told.recv().map_err(io::Error::other)?
    }

    fn now(&self) -> u64 {
        nanos(self.began.elapsed())
    }
}

impl LanePlace {
    /// What serves connections on this lane.
    pub(super) fn runtime(&self) -> Handle {
        self.lane.runtime.clone()
    }

    /// Notes that the connection has something to do; answers where it is to go on, where its lane
    /// has no time left and another has.
    pub(super) fn turn(&mut self) -> Option<LanePlace> {
        let lanes = self.lanes.lanes();
        let now = self.lanes.now();
        let pace = &self.lane.pace;
        let is_full = pace.turn(now, &mut self.window);
        if lanes.len() == 1 {
            return None;
        }
        #[cfg(test)]
        {
            self.turns += 1;
            if self.turns == TEST_TURNS {
                let is_other = |lane: &&Lane| !Arc::ptr_eq(&lane.pace, &self.lane.pace);
                return lanes
                    .iter()
                    .find(is_other)
                    .map(|lane| self.lanes.place_on(lane));
            }
        }
        if !is_full {
            return None;
        }
        let others = lanes.iter().map(|lane| (lane.pace.percent_at(now), lane));
        let (least, lane) = others.min_by_key(|(percent, _)| *percent)?;
        let own = pace.percent.load(Ordering::Relaxed);
        let goes = least + RELIEF_PERCENT_MIN <= own && pace.lets_one_go();
        goes.then(|| self.lanes.place_on(lane))
    }

    /// Whether the lane may wait for the disk on behalf of this connection: nobody else has anything
    /// to do, or hardly ever. Where several have, their records are better synced together.
    pub(super) fn may_wait(&self) -> bool {
        self.lane.pace.is_calm()
    }
}

impl Drop for LanePlace {
    fn drop(&mut self) {
        self.lane.pace.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pace {
    fn wake(&self, now: u64) {
        self.awake_since.store(now.max(1), Ordering::Relaxed);
    }

    fn rest(&self, now: u64) {
        let since = self.awake_since.swap(ASLEEP, Ordering::Relaxed);
        if since != ASLEEP {
            self.awake
                .fetch_add(now.saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// Time awake up to now.
    fn awake_at(&self, now: u64) -> u64 {
        let awake = self.awake.load(Ordering::Relaxed);
        match self.awake_since.load(Ordering::Relaxed) {
            ASLEEP => awake,
            since => awake + now.saturating_sub(since),
        }
    }

    /// Notes that a connection of this lane has something to do, which it last had in `window`;
    /// true when the lane has no time left and others beside it.
    fn turn(&self, now: u64, window: &mut u32) -> bool {
        if now.saturating_sub(self.window_began.load(Ordering::Relaxed)) >= nanos(WINDOW) {
            self.end_window(now);
        }
        let current = self.window.load(Ordering::Relaxed);
        if *window != current {
            *window = current;
            self.busy.fetch_add(1, Ordering::Relaxed);
        }
        self.may_leave.load(Ordering::Relaxed)
            && self.percent.load(Ordering::Relaxed) >= FULL_PERCENT
            && self.crowd.load(Ordering::Relaxed) > 1
    }

    fn end_window(&self, now: u64) {
        let length = now - self.window_began.swap(now, Ordering::Relaxed);
        let awake = self.awake_at(now);
        let awake = awake.saturating_sub(self.awake_before.swap(awake, Ordering::Relaxed));
        let percent = (awake * 100).checked_div(length).unwrap_or(0).min(100) as u32;
        self.percent.store(percent, Ordering::Relaxed);
        let busy = self.busy.swap(0, Ordering::Relaxed);
        self.crowd.store(busy, Ordering::Relaxed);
        self.window.fetch_add(1, Ordering::Relaxed);
        self.may_leave.store(true, Ordering::Relaxed);
    }

    /// Whether one connection at most has something to do, or the lane has most of its time left.
    fn is_calm(&self) -> bool {
        let crowd = self.crowd.load(Ordering::Relaxed);
        let crowd = crowd.max(self.busy.load(Ordering::Relaxed));
        crowd <= 1 || self.percent.load(Ordering::Relaxed) <= CALM_PERCENT_MAX
    }

    /// True once in each window.
    fn lets_one_go(&self) -> bool {
        self.may_leave.swap(false, Ordering::Relaxed)
    }

    /// How busy the lane is, for others.
    fn percent_at(&self, now: u64) -> u32 {
        let since = self.window_began.load(Ordering::Relaxed);
        let length = now.saturating_sub(since);
        if length < 2 * nanos(WINDOW) {
            return self.percent.load(Ordering::Relaxed);
        }
        // Its window is long over: whatever it does, it is not asked for much.
        let awake = self.awake_at(now);
        let awake = awake.saturating_sub(self.awake_before.load(Ordering::Relaxed));
        (awake * 100 / length).min(100) as u32
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// No stretch of time awake.
const ASLEEP: u64 = 0;

/// Over which it is looked how busy a lane is: long beside a request, short beside what people see.
const WINDOW: Duration = Duration::from_millis(50);

/// From here on a lane has no time left.
const FULL_PERCENT: u32 = 80;

/// Up to here what comes to a lane hardly ever comes while it is at something else.
const CALM_PERCENT_MAX: u32 = 25;

/// How much less another one must have to do for a connection to move there.
const RELIEF_PERCENT_MIN: u32 = 30;

/// A connection moves with its third turn.
#[cfg(test)]
const TEST_TURNS: u32 = 3;

/// Lanes that differ by less have as much time for a new connection.
const PERCENT_STEP: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a lane be awake for `percent` of the time, in steps of a millisecond, while a
    /// connection has something to do in each; answers whether one was to leave at the end.
    fn spend(pace: &Pace, clock: &mut u64, percent: u64, windows: &mut [u32]) -> bool {
        const STEP: u64 = 1_000_000;
        let mut is_full = false;
        for _ in 0..200 {
            pace.wake(*clock);
            for window in &mut *windows {
                is_full = pace.turn(*clock, window);
            }
            pace.rest(*clock + STEP * percent / 100);
            *clock += STEP;
        }
        is_full
    }

    #[test]
    fn a_full_lane_lets_one_of_several_connections_go_in_each_window() {
        let (pace, mut clock, mut windows) = (Pace::default(), 1, [0; 3]);
        assert!(!spend(&pace, &mut clock, 40, &mut windows));
        assert_eq!(pace.percent_at(clock), 40);
        assert!(spend(&pace, &mut clock, 95, &mut windows));
        assert!(pace.lets_one_go());
        assert!(!pace.lets_one_go(), "one in a window");
        assert!(spend(&pace, &mut clock, 95, &mut windows), "the next one");
    }

    #[test]
    fn who_is_alone_on_a_lane_stays() {
        let (pace, mut clock) = (Pace::default(), 1);
        assert!(!spend(&pace, &mut clock, 100, &mut [0]));
        assert_eq!(pace.percent_at(clock), 100);
    }

    #[test]
    fn a_lane_may_wait_for_one_connection_or_for_several_that_are_seldom_there() {
        let (pace, mut clock) = (Pace::default(), 1);
        spend(&pace, &mut clock, 100, &mut [0]);
        assert!(pace.is_calm(), "one alone");
        spend(&pace, &mut clock, 20, &mut [0; 3]);
        assert!(pace.is_calm(), "three, and most of the time is left");
        spend(&pace, &mut clock, 60, &mut [0; 3]);
        assert!(!pace.is_calm(), "three who are there much of the time");
    }

    #[test]
    fn a_lane_that_nobody_asks_for_anything_has_time() {
        let (pace, mut clock) = (Pace::default(), 1);
        spend(&pace, &mut clock, 90, &mut [0, 0]);
        let minute = nanos(Duration::from_secs(60));
        assert!(pace.percent_at(clock + minute) < 5);
        // But not while it is at something long.
        pace.wake(clock);
        assert!(pace.percent_at(clock + minute) > 90);
    }

    #[tokio::test]
    async fn connections_are_spread_and_give_their_places_back() {
        let lanes = Lanes::new();
        let count = lanes.lanes().len();
        let places: Vec<LanePlace> = (0..4 * count).map(|_| lanes.place()).collect();
        for lane in lanes.lanes() {
            assert_eq!(lane.pace.connections.load(Ordering::Relaxed), 4);
        }
        let served = places[0].runtime().spawn(async { thread::current().id() });
        assert_ne!(served.await.unwrap(), thread::current().id());
        drop(places);
        for lane in lanes.lanes() {
            assert_eq!(lane.pace.connections.load(Ordering::Relaxed), 0);
        }
        let runtime = lanes.place().runtime();
        drop(lanes.ending());
        // Whatever comes later is dropped, not kept for ever.
        let late = tokio::time::timeout(Duration::from_secs(30), async {
            while runtime.spawn(std::future::ready(())).await.is_ok() {
                tokio::task::yield_now().await;
            }
        });
        late.await.unwrap();
    }
}
