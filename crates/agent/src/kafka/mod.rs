//! A small Kafka client's parts: record batches both ways, links to brokers with TLS and SASL,
//! where partitions are, and consumer groups.

mod assign;
mod batch;
mod cluster;
mod codec;
mod fetch;
mod group;
mod heart;
mod link;
mod produce;
mod records;
mod scram;
mod security;

pub(crate) use assign::Assignment;
pub(crate) use batch::BatchBuilder;
pub(crate) use cluster::Cluster;
pub(crate) use codec::Codec;
pub(crate) use fetch::{End, ReadOutcome, Reading, end_of, read};
pub(crate) use group::{Committed, Group, GroupSettings, Offsets};
pub(crate) use link::KafkaError;
pub(crate) use produce::{Outcome, Sent, UnderWay};
pub(crate) use records::Record;
pub(crate) use records::read as read_records;
pub(crate) use scram::ScramHash;
pub(crate) use security::{Mechanism, Sasl, Security};

/// The partition of a key, as Kafka's own clients choose it (murmur2, sign bit off).
pub(crate) fn partition_of(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

/// MurmurHash2 with Kafka's seed.
fn murmur2(bytes: &[u8]) -> i32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c_u32 ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    for (index, byte) in rest.iter().enumerate() {
        hash ^= u32::from(*byte) << (8 * index);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Kafka's own test of its hash.
    #[test]
    fn keys_land_where_kafka_puts_them() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }
}
