//! The memory that a listener's connections share for what is not finished: requests that arrive
//! piece by piece, requests that wait, answers that nobody has read yet.
//!
//! A little is free to each connection, so that small requests pass whatever happens. For more, a
//! connection takes room here, in steps as bytes arrive; nothing is taken for what is only
//! announced. When there is none left, it is not read any further, and of the connections that have
//! held room for [`ROOM_GRACE`] without getting anything done, the one with the greatest product of
//! what it holds and how long it has is closed (of equals, the one that has for the longest): clients
//! that do their work take milliseconds, a small request that waits, as a long poll or a join of a
//! group does, is not what fills the room, and a large one that came just now is not what keeps it
//! full.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::limits::{ROOM_BYTES_MAX, ROOM_FREE_BYTES, ROOM_GRACE, ROOM_STEP_BYTES};

/// The room of one listener.
#[derive(Default)]
pub(super) struct Room {
    state: Mutex<State>,
    /// The bytes of the state, for those who only look.
    bytes: AtomicUsize,
    freed: Notify,
}

#[derive(Default)]
struct State {
    bytes: usize,
    /// By connection, those that hold anything.
    holders: HashMap<u64, Holder>,
    next_id: u64,
}

struct Holder {
    bytes: usize,
    /// When it last got something done.
    since: Instant,
    give_way: Arc<Notify>,
}

/// What one connection holds; given back when dropped.
pub(super) struct Held {
    room: Arc<Room>,
    id: u64,
    bytes: usize,
    /// How many requests have room of it that they give back by themselves.
    lent: Arc<AtomicUsize>,
    give_way: Arc<Notify>,
}

/// Room for a request that waits; given back when dropped.
pub(super) struct Lent {
    room: Arc<Room>,
    id: u64,
    bytes: usize,
    lent: Arc<AtomicUsize>,
}

impl Room {
    /// A connection that holds nothing yet.
    pub(super) fn enter(self: &Arc<Self>) -> Held {
        let mut state = self.state.lock();
        state.next_id += 1;
        Held {
            room: Arc::clone(self),
            id: state.next_id,
            bytes: 0,
            lent: Arc::default(),
            give_way: Arc::default(),
        }
    }

    /// Adds `more` to what a connection holds if there is room, or `anyway`.
    fn take(&self, now: Instant, held: &Held, more: usize, anyway: bool) -> bool {
        let mut state = self.state.lock();
        if !anyway && state.bytes + more > ROOM_BYTES_MAX {
            return false;
        }
        state.bytes += more;
        self.bytes.store(state.bytes, Ordering::Relaxed);
        let holder = state.holders.entry(held.id).or_insert_with(|| Holder {
            bytes: 0,
            since: now,
            give_way: Arc::clone(&held.give_way),
        });
        holder.bytes += more;
        true
    }

    fn give_back(&self, id: u64, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.bytes -= bytes;
        self.bytes.store(state.bytes, Ordering::Relaxed);
        if let Some(holder) = state.holders.get_mut(&id) {
            holder.bytes -= bytes;
            if holder.bytes == 0 {
                state.holders.remove(&id);
            }
        }
        drop(state);
        self.freed.notify_waiters();
    }

    /// Tells the one of the connections that have held room for long that weighs the most, by its
    /// bytes and for how long, to end; answers when to look again.
    fn clear_largest(&self, now: Instant) -> Instant {
        let mut state = self.state.lock();
        let is_due = |holder: &Holder| holder.since + ROOM_GRACE <= now;
        let due = state.holders.values_mut().filter(|holder| is_due(holder));
        let weight = |holder: &Holder| {
            let stalled = now.saturating_duration_since(holder.since);
            holder.bytes as u128 * stalled.as_millis()
        };
        let largest = due.max_by_key(|holder| (weight(holder), Reverse(holder.since)));
        if let Some(holder) = largest {
            holder.give_way.notify_one();
            // Its turn is over; while it ends, the next is looked at.
            holder.since = now;
            return now + CLEARING_PAUSE;
        }
        let oldest = state.holders.values().map(|holder| holder.since).min();
        oldest.map_or(now + CLEARING_PAUSE, |since| since + ROOM_GRACE)
    }
}

impl Held {
    /// Sets what the connection holds, waiting for room when it is more than before.
    pub(super) async fn grow_to(&mut self, bytes: usize) {
        let wanted = rounded(bytes);
        while wanted > self.bytes && !self.take(wanted - self.bytes, false) {
            self.wait().await;
        }
        self.bytes = self.bytes.max(wanted);
        self.shrink_to(bytes);
    }

    /// Sets what the connection holds; more than there is room for when it is there already.
    pub(super) fn set(&mut self, bytes: usize) {
        let wanted = rounded(bytes);
        if wanted > self.bytes {
            self.take(wanted - self.bytes, true);
            self.bytes = wanted;
        }
        self.shrink_to(bytes);
    }

    /// Room for a request of the connection that waits.
    pub(super) fn lend(&self, bytes: usize) -> Option<Lent> {
        let bytes = rounded(bytes);
        if bytes == 0 {
            return None;
        }
        self.take(bytes, true);
        self.lent.fetch_add(1, Ordering::Relaxed);
        Some(Lent {
            room: Arc::clone(&self.room),
            id: self.id,
            bytes,
            lent: Arc::clone(&self.lent),
        })
    }

    /// Waits while more is held than there is room for.
    pub(super) async fn settled(&self) {
        while self.is_overfull() {
            self.wait().await;
        }
    }

    /// Whether more is held, by all connections, than there is room for.
    pub(super) fn is_overfull(&self) -> bool {
        self.room.bytes.load(Ordering::Relaxed) > ROOM_BYTES_MAX
    }

    /// Something was got done.
    pub(super) fn renew(&self) {
        // Whoever holds nothing, by itself or lent, is not listed.
        let is_listed = self.bytes > 0 || self.lent.load(Ordering::Relaxed) > 0;
        if is_listed && let Some(holder) = self.room.state.lock().holders.get_mut(&self.id) {
            holder.since = Instant::now();
        }
    }

    /// Resolves when the connection is to end for others.
    pub(super) fn give_way(&self) -> Arc<Notify> {
        Arc::clone(&self.give_way)
    }

    async fn wait(&self) {
        let freed = self.room.freed.notified();
        let again = self.room.clear_largest(Instant::now());
        tokio::select! {
            () = freed => {}
            () = tokio::time::sleep_until(again) => {}
        }
    }

    fn take(&self, more: usize, anyway: bool) -> bool {
        self.room.take(Instant::now(), self, more, anyway)
    }

    fn shrink_to(&mut self, bytes: usize) {
        let wanted = rounded(bytes);
        if wanted < self.bytes {
            self.room.give_back(self.id, self.bytes - wanted);
            self.bytes = wanted;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.lent.fetch_sub(1, Ordering::Relaxed);
        self.room.give_back(self.id, self.bytes);
    }
}

/// What is counted of so many bytes.
fn rounded(bytes: usize) -> usize {
    match bytes {
        0..=ROOM_FREE_BYTES => 0,
        _ => bytes.next_multiple_of(ROOM_STEP_BYTES),
    }
}

/// How long one that was told to end has before the next is told.
const CLEARING_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_held(room: &Room) -> usize {
        room.state.lock().bytes
    }

    fn is_told(held: &Held) -> bool {
        let told = held.give_way.notified();
        let mut told = std::pin::pin!(told);
        told.as_mut().enable()
    }

    #[tokio::test]
    async fn small_things_take_no_room_and_everything_is_given_back() {
        let room = Arc::new(Room::default());
        let mut small = room.enter();
        small.grow_to(ROOM_FREE_BYTES).await;
        assert_eq!(bytes_held(&room), 0);
        let mut large = room.enter();
        large.grow_to(ROOM_FREE_BYTES + 1).await;
        assert_eq!(bytes_held(&room), ROOM_STEP_BYTES);
        let lent = large.lend(3 * ROOM_STEP_BYTES);
        large.set(0);
        assert_eq!(bytes_held(&room), 3 * ROOM_STEP_BYTES);
        drop((lent, large));
        assert_eq!(bytes_held(&room), 0);
        assert!(room.state.lock().holders.is_empty());
    }

    #[test]
    fn whoever_has_held_room_for_the_longest_gives_way() {
        let room = Arc::new(Room::default());
        let began = Instant::now();
        let [first, second, third] = [room.enter(), room.enter(), room.enter()];
        let half = ROOM_BYTES_MAX / 2;
        assert!(room.take(began, &first, half, false));
        let later = began + ROOM_GRACE / 2;
        assert!(room.take(later, &second, half, false));
        assert!(!room.take(later, &third, 1, false), "there is no room");
        assert_eq!(room.clear_largest(later), began + ROOM_GRACE);
        assert!(!is_told(&first), "it has not held room for long");
        room.clear_largest(began + ROOM_GRACE);
        assert!(is_told(&first) && !is_told(&second) && !is_told(&third));
        room.give_back(first.id, half);
        assert!(room.take(later, &third, half, false));
    }

    #[test]
    fn who_has_stalled_for_very_long_gives_way_before_a_larger_one() {
        let room = Arc::new(Room::default());
        let began = Instant::now();
        let [stalled, larger] = [room.enter(), room.enter()];
        assert!(room.take(began, &stalled, ROOM_BYTES_MAX / 4, false));
        let later = began + 9 * ROOM_GRACE;
        assert!(room.take(later, &larger, ROOM_BYTES_MAX / 2, false));
        room.clear_largest(later + ROOM_GRACE);
        assert!(is_told(&stalled) && !is_told(&larger));
    }

    #[test]
    fn a_small_request_that_waits_does_not_give_way_to_large_ones() {
        let room = Arc::new(Room::default());
        let began = Instant::now();
        let waiting: Vec<Held> = (0..9).map(|_| room.enter()).collect();
        let lent: Vec<Option<Lent>> = waiting.iter().map(|w| w.lend(ROOM_STEP_BYTES)).collect();
        // It comes last and takes the rest.
        let [greedy, other] = [room.enter(), room.enter()];
        let later = Instant::now() + ROOM_GRACE;
        let rest = ROOM_BYTES_MAX - bytes_held(&room);
        assert!(room.take(later, &greedy, rest, false));
        assert!(!room.take(later, &other, 1, false), "there is no room");
        let long_after = later + ROOM_GRACE;
        room.clear_largest(long_after);
        assert!(is_told(&greedy));
        assert!(!waiting.iter().any(is_told));
        // What is lent is renewed like what is held.
        let since = |held: &Held| room.state.lock().holders[&held.id].since;
        let before = since(&waiting[0]);
        assert!(before >= began);
        while Instant::now() == before {}
        waiting[0].renew();
        assert!(since(&waiting[0]) > before);
        drop(lent);
        assert_eq!(room.state.lock().holders.len(), 1);
        room.give_back(greedy.id, rest);
    }

    #[tokio::test]
    async fn what_is_there_already_is_counted_beyond_the_bound() {
        let room = Arc::new(Room::default());
        let mut answers = room.enter();
        answers.set(2 * ROOM_BYTES_MAX);
        let other = room.enter();
        let mut waiting = std::pin::pin!(other.settled());
        let poll = polled_once(waiting.as_mut());
        assert!(poll.await.is_pending(), "the room is overfull");
        answers.set(0);
        waiting.await;
    }

    /// Looks once whether `future` is ready.
    async fn polled_once<F: Future<Output = ()>>(
        mut future: std::pin::Pin<&mut F>,
    ) -> std::task::Poll<()> {
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx))).await
    }
}
