//! The connections of a listener, by how long each has asked for nothing.
//!
//! A client that vanished without a word leaves a connection that only the other side can end: one
//! that asks for nothing for [`IDLE_MAX`] is ended. When all seats are taken, the connection that
//! has been idle for the longest gives its seat to a newcomer, once that is [`IDLE_GRACE`] ago; so
//! a crowd that only sits there keeps nobody out. Nor does one that only waits: where nobody is
//! idle, the seat goes whose last request began longest ago, once that is [`WAITING_GRACE`] ago.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use super::limits::{IDLE_GRACE, IDLE_MAX, WAITING_GRACE};

/// The seats of one listener.
pub(super) struct Seats {
    began: Instant,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    seats: HashMap<u64, Arc<Sitter>>,
    next_id: u64,
}

struct Sitter {
    /// Milliseconds from the listener's beginning to when it last wanted something; [`BUSY`] while
    /// something is under way.
    idle_since: AtomicU64,
    /// Likewise, to when it began its last request.
    asked_at: AtomicU64,
    leave: Notify,
}

/// A connection's seat; free again when dropped.
pub(super) struct Seat {
    seats: Arc<Seats>,
    sitter: Arc<Sitter>,
    id: u64,
}

impl Seats {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Seats {
            began: Instant::now(),
            taken: Mutex::default(),
        })
    }

    /// Takes one of so many seats; none when all are taken by connections that are at work.
    pub(super) fn take(self: &Arc<Self>, max: usize) -> Option<Seat> {
        self.take_of(max, self.now())
    }

    fn take_of(self: &Arc<Self>, max: usize, now: u64) -> Option<Seat> {
        let mut taken = self.taken.lock();
        if taken.seats.len() >= max {
            let id = taken.who_gives_way(now)?;
            taken.send_away(id);
        }
        let id = taken.next_id;
        taken.next_id += 1;
        let sitter = Arc::new(Sitter {
            idle_since: AtomicU64::new(now),
            asked_at: AtomicU64::new(now),
            leave: Notify::new(),
        });
        taken.seats.insert(id, Arc::clone(&sitter));
        drop(taken);
        Some(Seat {
            seats: Arc::clone(self),
            sitter,
            id,
        })
    }

    /// Ends the connections that have been idle for [`IDLE_MAX`].
    pub(super) fn sweep(&self) {
        self.sweep_at(self.now());
    }

    fn sweep_at(&self, now: u64) {
        let Some(before) = now.checked_sub(ms(IDLE_MAX)) else {
            return;
        };
        let mut taken = self.taken.lock();
        let idle = taken.seats.iter();
        let idle = idle.filter(|(_, sitter)| sitter.idle_since.load(Ordering::Relaxed) <= before);
        let idle: Vec<u64> = idle.map(|(id, _)| *id).collect();
        for id in idle {
            taken.send_away(id);
        }
    }

    fn now(&self) -> u64 {
        ms(self.began.elapsed())
    }
}

impl Taken {
    /// Whose seat a newcomer gets.
    fn who_gives_way(&self, now: u64) -> Option<u64> {
        let longest = |since: fn(&Sitter) -> u64, grace| {
            let all = self.seats.iter().map(|(id, sitter)| (since(sitter), *id));
            let (since, id) = all.min()?;
            let is_long = since != BUSY && now.saturating_sub(since) >= ms(grace);
            is_long.then_some(id)
        };
        longest(
            |sitter| sitter.idle_since.load(Ordering::Relaxed),
            IDLE_GRACE,
        )
        .or_else(|| {
            longest(
                // Who is idle is none that waits.
                |sitter| match sitter.idle_since.load(Ordering::Relaxed) {
                    BUSY => sitter.asked_at.load(Ordering::Relaxed),
                    _ => BUSY,
                },
                WAITING_GRACE,
            )
        })
    }

    fn send_away(&mut self, id: u64) {
        if let Some(sitter) = self.seats.remove(&id) {
            sitter.leave.notify_one();
        }
    }
}

impl Seat {
    /// Notes that a request is under way for the client.
    pub(super) fn note_busy(&self) {
        self.note_busy_at(self.seats.now());
    }

    fn note_busy_at(&self, now: u64) {
        self.sitter.asked_at.store(now, Ordering::Relaxed);
        self.sitter.idle_since.store(BUSY, Ordering::Relaxed);
    }

    /// Notes that nothing is. Time counts from the last request, whatever pieces of one arrive.
    pub(super) fn note_idle(&self) {
        self.note_idle_at(self.seats.now());
    }

    fn note_idle_at(&self, now: u64) {
        let idle_since = &self.sitter.idle_since;
        if idle_since.load(Ordering::Relaxed) == BUSY {
            idle_since.store(now, Ordering::Relaxed);
        }
    }

    /// Resolves when the connection is to end.
    pub(super) async fn lost(&self) {
        self.sitter.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken.lock().seats.remove(&self.id);
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Later than every time.
const BUSY: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_lost(seat: &Seat) -> bool {
        tokio::select! {
            biased;
            () = seat.lost() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn a_newcomer_gets_the_seat_of_whoever_has_been_idle_for_the_longest() {
        let seats = Seats::new();
        let grace = ms(IDLE_GRACE);
        let take_at = |now| seats.take_of(3, now);
        let busy = take_at(0).unwrap();
        busy.note_busy();
        let idle = take_at(0).unwrap();
        let idle_later = take_at(10).unwrap();
        assert!(take_at(grace - 1).is_none(), "nobody was idle for long");
        let newcomer = take_at(grace).unwrap();
        assert!(is_lost(&idle).await);
        assert!(!is_lost(&idle_later).await && !is_lost(&busy).await);
        // Who was sent away does not free a second seat when it goes.
        drop(idle);
        assert!(take_at(grace).is_none());
        drop(newcomer);
        assert!(take_at(grace).is_some());
    }

    #[tokio::test]
    async fn a_crowd_that_only_waits_keeps_nobody_out() {
        let seats = Seats::new();
        let grace = ms(WAITING_GRACE);
        let take_at = |now| seats.take_of(2, now);
        let waiting = take_at(0).unwrap();
        waiting.note_busy_at(0);
        let working = take_at(0).unwrap();
        working.note_busy_at(grace - 1);
        assert!(take_at(grace - 1).is_none(), "nobody has waited for long");
        let newcomer = take_at(grace).unwrap();
        assert!(is_lost(&waiting).await);
        assert!(!is_lost(&working).await);
        // Who is idle goes before those who wait.
        working.note_busy_at(grace);
        assert!(take_at(2 * grace).is_some());
        assert!(is_lost(&newcomer).await && !is_lost(&working).await);
    }

    #[tokio::test]
    async fn who_has_just_been_answered_is_none_that_waits() {
        let seats = Seats::new();
        let grace = ms(WAITING_GRACE);
        let answered = seats.take_of(1, 0).unwrap();
        answered.note_busy_at(0);
        answered.note_idle_at(grace);
        assert!(seats.take_of(1, grace).is_none());
        assert!(!is_lost(&answered).await);
    }

    #[tokio::test]
    async fn whoever_asks_for_nothing_for_long_is_ended() {
        let seats = Seats::new();
        let [idle, waiting, alive] = [(); 3].map(|()| seats.take_of(3, 0).unwrap());
        waiting.note_busy();
        let half = ms(IDLE_MAX) / 2;
        alive.note_busy();
        alive.note_idle_at(half);
        // A piece of a request is no request.
        idle.note_idle_at(half);
        seats.sweep_at(half);
        assert!(!is_lost(&idle).await);
        seats.sweep_at(2 * half);
        assert!(is_lost(&idle).await);
        assert!(!is_lost(&waiting).await && !is_lost(&alive).await);
    }
}
