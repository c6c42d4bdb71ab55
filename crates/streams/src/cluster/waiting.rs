//! What waits to be written, and the lanes that write it.
//!
//! All batches wait in one queue; each lane is a thread that takes a round of them ([`Round`]), writes
//! it and comes for the next. A lone batch never waits for another: where no round is under way, one
//! begins at once. Beside one that is under way another begins only when what waits is worth it
//! ([`State::may_begin`]): so a crowd is sent in few large requests, and while one lane waits for the
//! cluster another fills the next round.
//!
//! Order: a round takes a partition's batches in their order, but two rounds that are under way together
//! may be stored in either order. So the order that holds is that of waiting: a
//! batch that is sent after another was acknowledged is stored behind it.
//!
//! The first lane is there from the beginning. The others begin cold: each connects when the lanes
//! before it are busy and there is enough for one more, and rests again, without its producer, after
//! a while with nothing to do.
//!
//! The queue is bounded by the room that each job holds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::round::{Job, Round};
use crate::error::StreamsError;
use crate::limits::CLUSTER_ROUND_BESIDE_BYTES_MIN;

/// The end at which jobs come in; when it goes, nothing comes any more.
pub(super) struct Queue(Arc<Waiting>);

/// The place of one thread that writes; when it goes, by a panic too, the others go on.
pub(super) struct Lane {
    waiting: Arc<Waiting>,
    index: usize,
}

/// What a lane is to do.
pub(super) enum Next {
    /// Make its producer: there will be something to write.
    Connect,
    /// Write this.
    Round(Round),
    /// Nothing came for a while. But for the first lane: rest without a producer.
    Idle,
    /// Nothing will come any more.
    Over,
}

/// Makes a queue with its lanes, at least one; `idle` is how long a lane waits before it rests.
pub(super) fn queue(lanes: usize, idle: Duration) -> (Queue, Vec<Lane>) {
    let lanes = lanes.max(1);
    let waiting = Arc::new(Waiting {
        idle,
        state: Mutex::new(State {
            jobs: VecDeque::new(),
            bytes: 0,
            bytes_under_way: 0,
            seats: vec![Seat::Cold; lanes],
            is_closed: false,
        }),
        wakes: (0..lanes).map(|_| Condvar::new()).collect(),
    });
    let lanes = (0..lanes).map(|index| Lane {
        waiting: Arc::clone(&waiting),
        index,
    });
    let lanes = lanes.collect();
    (Queue(waiting), lanes)
}

struct Waiting {
    idle: Duration,
    state: Mutex<State>,
    /// One for each lane.
    wakes: Vec<Condvar>,
}

struct State {
    jobs: VecDeque<Job>,
    /// Of the jobs that wait.
    bytes: u64,
    /// Of the jobs in rounds that are being written.
    bytes_under_way: u64,
    seats: Vec<Seat>,
    is_closed: bool,
}

/// What a lane does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seat {
    /// Rests, without a producer.
    Cold,
    Connecting,
    /// Waits for a round.
    Ready,
    /// Writes a round of so many bytes.
    Writing(u64),
    Gone,
}

impl Queue {
    /// Lets a job wait to be written; it is dropped where nobody writes any more.
    pub(super) fn send(&self, job: Job) -> Result<(), StreamsError> {
        let mut state = self.0.state.lock();
        if state.is_closed {
            return Err(StreamsError::Closed);
        }
        state.bytes += job.bytes;
        state.jobs.push_back(job);
        self.0.call(&state);
        Ok(())
    }

    /// Takes nothing more; what waits is still written.
    pub(super) fn close(&self) {
        self.0.state.lock().is_closed = true;
        for wake in &self.0.wakes {
            wake.notify_one();
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.close();
    }
}

impl Lane {
    /// Whether this is the lane that never rests.
    pub(super) fn is_first(&self) -> bool {
        self.index == 0
    }

    /// Ends what the lane did, and waits for what it is to do next.
    pub(super) fn next(&mut self, partition_bytes_max: u64) -> Next {
        let waiting = &*self.waiting;
        let mut state = waiting.state.lock();
        let seat = match state.seats[self.index] {
            Seat::Cold if !self.is_first() => Seat::Cold,
            Seat::Cold => {
                state.seats[self.index] = Seat::Connecting;
                return Next::Connect;
            }
            Seat::Writing(bytes) => {
                state.bytes_under_way -= bytes;
                Seat::Ready
            }
            _ => Seat::Ready,
        };
        state.seats[self.index] = seat;
        let wake = &waiting.wakes[self.index];
        loop {
            match seat {
                Seat::Cold if state.may_begin() && state.lacks_a_lane() => {
                    state.seats[self.index] = Seat::Connecting;
                    return Next::Connect;
                }
                Seat::Ready if state.may_begin() => {
                    let round = state.take(partition_bytes_max);
                    state.seats[self.index] = Seat::Writing(round.bytes);
                    state.bytes_under_way += round.bytes;
                    waiting.call(&state);
                    return Next::Round(round);
                }
                // What still waits is taken by the lane that writes now.
                _ if state.is_closed => return Next::Over,
                Seat::Ready => {
                    let waited = wake.wait_for(&mut state, waiting.idle);
                    if waited.timed_out() && !state.may_begin() && !state.is_closed {
                        if !self.is_first() {
                            state.seats[self.index] = Seat::Cold;
                        }
                        return Next::Idle;
                    }
                }
                _ => wake.wait(&mut state),
            }
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut state = self.waiting.state.lock();
        if let Seat::Writing(bytes) = state.seats[self.index] {
            state.bytes_under_way -= bytes;
        }
        state.seats[self.index] = Seat::Gone;
        if state.seats.iter().all(|seat| *seat == Seat::Gone) {
            // Nobody is left to write: who waits is told so.
            state.is_closed = true;
            state.jobs.clear();
            state.bytes = 0;
        }
        self.waiting.call(&state);
    }
}

impl Waiting {
    /// Wakes a lane when there is something for it: one that is ready, or else one that rests.
    fn call(&self, state: &State) {
        if !state.may_begin() {
            return;
        }
        let at = |wanted: Seat| state.seats.iter().position(|seat| *seat == wanted);
        let called = at(Seat::Ready).or_else(|| match state.lacks_a_lane() {
            true => at(Seat::Cold),
            false => None,
        });
        if let Some(wake) = called.and_then(|index| self.wakes.get(index)) {
            wake.notify_one();
        }
    }
}

impl State {
    /// Whether a round may begin now: if none is under way, or as much waits as is under way, so that
    /// a crowd is halved and not crumbled.
    fn may_begin(&self) -> bool {
        let worth = CLUSTER_ROUND_BESIDE_BYTES_MIN.max(self.bytes_under_way);
        !self.jobs.is_empty() && (self.bytes_under_way == 0 || self.bytes >= worth)
    }

    /// Whether no lane is there, or comes, for a round that may begin.
    fn lacks_a_lane(&self) -> bool {
        let is_there = |seat: &Seat| matches!(seat, Seat::Ready | Seat::Connecting);
        !self.seats.iter().any(is_there)
    }

    /// Takes the next round. What it has no room for keeps its place in front, and every partition
    /// its order.
    fn take(&mut self, partition_bytes_max: u64) -> Round {
        let mut round = Round::default();
        let mut passed = Vec::new();
        while passed.len() < PASSED_MAX
            && let Some(job) = self.jobs.pop_front()
        {
            passed.extend(round.take(job, partition_bytes_max));
        }
        for job in passed.into_iter().rev() {
            self.jobs.push_front(job);
        }
        self.bytes -= round.bytes;
        round
    }
}

/// Jobs that a round passes over before it is complete as it is: more than what fills a round of the
/// usual sizes, few enough that looking at them again costs nothing.
const PASSED_MAX: usize = 64;
