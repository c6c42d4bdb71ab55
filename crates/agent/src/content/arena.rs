//! The room of volatile content: bounded exactly by bytes and by claims, free at once.
//!
//! Room is reserved before a claim is made and given back by the claim's end; no timer has a part
//! in it. Whoever finds none waits: back pressure, not a failed session. Sources stop at
//! three quarters, so that what is on its way always finds room to come to its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The room that volatile content may take.
#[derive(Debug)]
pub(crate) struct Arena {
    bytes_max: u64,
    count_max: u64,
    bytes: AtomicU64,
    count: AtomicU64,
    waiting: AtomicU64,
    lock: Mutex<()>,
    freed: Condvar,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Not now.
    Yet,
    /// Never: it is larger than the whole.
    Ever,
}

impl Arena {
    pub(crate) fn new(bytes_max: u64, count_max: u64) -> Self {
        Arena {
            bytes_max,
            count_max,
            bytes: AtomicU64::new(0),
            count: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            lock: Mutex::new(()),
            freed: Condvar::new(),
        }
    }

    /// Bytes that are taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// The most bytes that may be taken.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Takes room for one claim, waiting for so long at most while there is none.
    pub(crate) fn reserve(
        &self,
        bytes: u64,
        is_source: bool,
        patience: Duration,
    ) -> Result<(), NoRoom> {
        if bytes > self.bytes_max || self.count_max == 0 {
            return Err(NoRoom::Ever);
        }
        if self.try_reserve(bytes, is_source) {
            return Ok(());
        }
        let deadline = Instant::now() + patience;
        let mut lock = self.lock.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let outcome = loop {
            if self.try_reserve(bytes, is_source) {
                break Ok(());
            }
            if self.freed.wait_until(&mut lock, deadline).timed_out() {
                break Err(NoRoom::Yet);
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Gives back the room of one claim.
    pub(crate) fn release(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.count.fetch_sub(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            // Under the lock, or it could fall between a waiter's try and its sleep.
            let _lock = self.lock.lock();
            self.freed.notify_all();
        }
    }

    fn try_reserve(&self, bytes: u64, is_source: bool) -> bool {
        let share = |max: u64| if is_source { max - max / 4 } else { max };
        // A source's single large claim may have the whole when it is empty.
        let bytes_max = share(self.bytes_max).max(bytes);
        if !add_within(&self.count, 1, share(self.count_max)) {
            return false;
        }
        if !add_within(&self.bytes, bytes, bytes_max) {
            self.count.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        true
    }
}

fn add_within(counter: &AtomicU64, by: u64, max: u64) -> bool {
    let add = |value: u64| value.checked_add(by).filter(|sum| *sum <= max);
    counter
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, add)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn room_is_never_exceeded_and_free_at_once() {
        let arena = Arena::new(100, 4);
        assert_eq!(arena.reserve(101, false, Duration::ZERO), Err(NoRoom::Ever));
        assert_eq!(arena.reserve(60, false, Duration::ZERO), Ok(()));
        assert_eq!(arena.reserve(41, false, Duration::ZERO), Err(NoRoom::Yet));
        assert_eq!(arena.reserve(40, false, Duration::ZERO), Ok(()));
        arena.release(60);
        for _ in 0..3 {
            assert_eq!(arena.reserve(1, false, Duration::ZERO), Ok(()));
        }
        let fifth = arena.reserve(1, false, Duration::ZERO);
        assert_eq!((fifth, arena.bytes()), (Err(NoRoom::Yet), 43));
    }

    #[test]
    fn sources_leave_a_quarter_to_what_is_on_its_way() {
        let arena = Arena::new(100, 100);
        assert_eq!(arena.reserve(75, true, Duration::ZERO), Ok(()));
        assert_eq!(arena.reserve(1, true, Duration::ZERO), Err(NoRoom::Yet));
        assert_eq!(arena.reserve(25, false, Duration::ZERO), Ok(()));
        arena.release(25);
        arena.release(75);
        assert_eq!(arena.reserve(100, true, Duration::ZERO), Ok(()));
    }

    #[test]
    fn who_waits_goes_on_as_soon_as_there_is_room() {
        let arena = Arc::new(Arena::new(10, 10));
        arena.reserve(10, false, Duration::ZERO).unwrap();
        let other = Arc::clone(&arena);
        let waiter = std::thread::spawn(move || other.reserve(4, false, Duration::from_secs(60)));
        while arena.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        arena.release(10);
        assert_eq!(waiter.join().unwrap(), Ok(()));
        assert_eq!(arena.bytes(), 4);
    }
}
