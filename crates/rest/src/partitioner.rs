//! Which partition a record goes to: the choice that Kafka's Java client makes.
//!
//! A key chooses by murmur2, so that REST and native producers agree on where a key lives. Records
//! without a key of one request go to one partition together (the sticky choice: one batch, one
//! sync), which differs from request to request.

use base::Rng;

/// The partition of `key` among `partitions` (at least one).
pub fn of_key(key: &[u8], partitions: i32) -> i32 {
    // Java masks the sign bit away instead of taking the absolute value.
    let hash = i32::from_ne_bytes((murmur2(key) & 0x7fff_ffff).to_ne_bytes());
    hash % partitions.max(1)
}

/// The partition of a request's keyless records; `turn` counts requests.
pub(crate) fn of_turn(turn: u64, partitions: i32) -> i32 {
    // A plain count would give two topics that are written in turns half of their partitions each.
    let bound = u64::try_from(partitions.max(1)).unwrap_or(1);
    i32::try_from(Rng::from_seed(turn).below(bound)).unwrap_or(0)
}

/// Murmur2 of 32 bits with the seed that Kafka's clients share
/// (`org.apache.kafka.common.utils.Utils.murmur2`; the hash is Austin Appleby's, public domain).
fn murmur2(data: &[u8]) -> u32 {
    let mut h = SEED ^ u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = word
            .iter()
            .rev()
            .fold(0_u32, |k, byte| (k << 8) | u32::from(*byte));
        k = k.wrapping_mul(MULTIPLIER);
        k ^= k >> 24;
        h = h.wrapping_mul(MULTIPLIER) ^ k.wrapping_mul(MULTIPLIER);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        h ^= rest
            .iter()
            .rev()
            .fold(0_u32, |k, byte| (k << 8) | u32::from(*byte));
        h = h.wrapping_mul(MULTIPLIER);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(MULTIPLIER);
    h ^ (h >> 15)
}

const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_those_of_the_java_client() {
        // Values of the Java client's own test of Utils.murmur2.
        let cases: [(&str, i32); 7] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
            ("", 275_646_681),
        ];
        for (key, hash) in cases {
            assert_eq!(
                i32::from_ne_bytes(murmur2(key.as_bytes()).to_ne_bytes()),
                hash,
                "{key}"
            );
        }
    }

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
        assert_eq!(of_key(b"abc", 0), 0);
    }
}
