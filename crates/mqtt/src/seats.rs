//! How many connections are open, over all listeners.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::reason::ReasonCode;

/// Counts the connections of one server.
#[derive(Default)]
pub(crate) struct Seats {
    taken: Arc<AtomicUsize>,
    most: AtomicUsize,
    total: AtomicU64,
}

/// One connection's place; given back when it is dropped.
pub(crate) struct Seat {
    taken: Arc<AtomicUsize>,
    /// How many were taken, this one included.
    number: usize,
}

impl Seats {
    /// A seat, also for some who will only be told that there is none; none at all when those are
    /// too many as well.
    pub(crate) fn take(&self, seats_max: usize) -> Option<Seat> {
        let number = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        self.most
            .fetch_max(number.min(seats_max), Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
        let seat = Seat {
            taken: self.taken.clone(),
            number,
        };
        (number <= seats_max.saturating_mul(2)).then_some(seat)
    }

    /// The most that were taken at one time, as far as they were allowed.
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed) as u64
    }

    /// Connections that came.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

impl Seat {
    /// Whether its holder may stay.
    pub(crate) fn allowed(&self, seats_max: usize) -> Result<(), ReasonCode> {
        if self.number > seats_max {
            return Err(ReasonCode::ServerUnavailable);
        }
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_come_back_and_the_ones_beyond_are_refused() {
        let seats = Seats::default();
        let held: Vec<Seat> = (0..4).map_while(|_| seats.take(2)).collect();
        let allowed: Vec<bool> = held.iter().map(|seat| seat.allowed(2).is_ok()).collect();
        assert_eq!(allowed, [true, true, false, false]);
        assert!(seats.take(2).is_none());
        assert_eq!((seats.most(), seats.total()), (2, 5));
        drop(held);
        assert!(seats.take(2).unwrap().allowed(2).is_ok());
    }
}
