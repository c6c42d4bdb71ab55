//! Which partition a key lives in: the choice that Kafka's Java client makes, so that all who produce
//! agree on it.

/// The partition of `key` among `partitions` (at least one).
pub fn partition_of_key(key: &[u8], partitions: i32) -> i32 {
    // Java masks the sign bit away instead of taking the absolute value.
    let hash = i32::from_ne_bytes((murmur2(key) & 0x7fff_ffff).to_ne_bytes());
    hash % partitions.max(1)
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
    fn a_topic_without_partitions_counts_as_one_of_one() {
        assert_eq!(partition_of_key(b"abc", 0), 0);
    }
}
