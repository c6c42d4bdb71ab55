//! Which partition records without a key go to: those of one request go to one together (the sticky
//! choice: one batch, one sync), which differs from request to request. A key chooses by
//! [`streams::partition_of_key`].
//!
//! Where the store lies behind a network, requests that come close to each other go to one together
//! too, as with Kafka's own producers: a record batch of many requests costs a cluster little more
//! than that of one.

use std::sync::atomic::{AtomicU64, Ordering};

use base::{Rng, UnixMillis};

/// Gives each request the turn by which the partition of its keyless records is chosen.
#[derive(Debug, Default)]
pub(crate) struct KeylessTurns {
    requests: AtomicU64,
    /// The moment of the last request, in steps of [`TOGETHER_MS`]; 0 before the first.
    moment: AtomicU64,
    /// How often a request came in another moment than the one before it.
    moments: AtomicU64,
    bytes: AtomicU64,
}

impl KeylessTurns {
    /// The turn of a request that has it alone.
    pub(crate) fn of_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// The turn of a request of so many bytes, shared with those that come within [`TOGETHER_MS`] and
    /// [`TOGETHER_BYTES`].
    pub(crate) fn of_moment(&self, now: UnixMillis, bytes: u64) -> u64 {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let moment = now.0.max(0).unsigned_abs() / TOGETHER_MS;
        let last = self.moment.swap(moment, Ordering::Relaxed);
        let is_new = last != moment && last != 0;
        let moments = self.moments.fetch_add(u64::from(is_new), Ordering::Relaxed);
        // Both only grow, so each step of either gives a turn that was not there before.
        moments + u64::from(is_new) + before / TOGETHER_BYTES
    }
}

/// The partition of a request's keyless records, by its turn.
pub(crate) fn of_turn(turn: u64, partitions: i32) -> i32 {
    // A plain count would give two topics that are written in turns half of their partitions each.
    let bound = u64::try_from(partitions.max(1)).unwrap_or(1);
    i32::try_from(Rng::from_seed(turn).below(bound)).unwrap_or(0)
}

/// As long as librdkafka's producers stay with a partition.
const TOGETHER_MS: u64 = 10;

/// Three quarters of what a record batch takes by default, so that it is well filled, and what keys
/// and lengths take beside the values fits in.
const TOGETHER_BYTES: u64 = 768 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyless_requests_reach_every_partition_evenly() {
        let mut counts = [0_u32; 7];
        for turn in 0..7_000 {
            counts[usize::try_from(of_turn(turn, 7)).unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|n| (800..1_200).contains(n)),
            "{counts:?}"
        );
    }

    #[test]
    fn requests_share_a_turn_for_a_moment_and_so_many_bytes() {
        let turns = KeylessTurns::default();
        let at = |ms: i64, bytes: u64| turns.of_moment(UnixMillis(ms), bytes);
        let first = at(1_000, TOGETHER_BYTES / 2);
        assert_eq!(first, 0);
        assert_eq!(at(1_009, TOGETHER_BYTES / 2), first);
        let second = at(1_009, 1);
        assert_ne!(second, first, "there are enough");
        let third = at(1_010, 1);
        assert!(![first, second].contains(&third), "the moment is over");
        assert_ne!(turns.of_request(), turns.of_request());
    }
}
