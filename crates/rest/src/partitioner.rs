//! Which partition records without a key go to: those of one request go to one together (the sticky
//! choice: one batch, one sync), which differs from request to request. A key chooses by
//! [`streams::partition_of_key`].

use base::Rng;

/// The partition of a request's keyless records; `turn` counts requests.
pub(crate) fn of_turn(turn: u64, partitions: i32) -> i32 {
    // A plain count would give two topics that are written in turns half of their partitions each.
    let bound = u64::try_from(partitions.max(1)).unwrap_or(1);
    i32::try_from(Rng::from_seed(turn).below(bound)).unwrap_or(0)
}

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
}
