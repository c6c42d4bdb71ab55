//! A tenant's batch as a shared topic holds it: each record names its tenant, and the producer is
//! another one.
//!
//! A producer counts its batches for each partition that it writes to, and batches for several
//! partitions, of several tenants even, may lie in one shared partition. So the producer of each own
//! partition has an id there that is made of both:
//!
//! ```text
//! bit 61 is set, 62 and 63 are not
//! bit 60 clear: bits 28 to 59 the own partition's number, bits 0 to 27 the producer's id
//! bit 60 set:   bits 0 to 59 a hash of both, for ids that do not fit (clients may claim any)
//! ```
//!
//! It stands in the batch's header, so that recovery learns it as it learns every other.

use access::TENANT_HEADERS;
use base::{TenantId, UnixMillis};
use bytes::Bytes;

use crate::batch::{self, BatchHeader};
use crate::decode::BatchRecords;
use crate::error::StreamsError;
use crate::event_store::ProducerSequence;
use crate::record::Record;

/// The id in a shared partition of a producer that writes to the own partition of this number.
pub(super) fn shared_id(own: u32, producer_id: i64) -> i64 {
    if producer_id >> ID_BITS == 0 {
        return SHARED_BIT | i64::from(own) << ID_BITS | producer_id;
    }
    // The last steps of splitmix64: each bit of the result hangs on each of both.
    let mut mixed = (producer_id as u64) ^ u64::from(own).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    SHARED_BIT | HASHED_BIT | ((mixed ^ (mixed >> 31)) >> 4) as i64
}

/// The batch with a header in each record that names the tenant, by the producer `producer_id`, if
/// it has one. It stays packed as it was; what was not and grows beyond `packed_from` bytes is.
pub(super) fn named(
    batch: &Bytes,
    header: &BatchHeader,
    tenant: &TenantId,
    producer_id: i64,
    packed_from: u64,
) -> Result<Bytes, StreamsError> {
    let records: Result<Vec<_>, StreamsError> = BatchRecords::of(batch)?.collect();
    let mut records = records?;
    let is_named = |headers: &[(String, Option<Bytes>)]| {
        let mut names = headers.iter().map(|(name, _)| name.as_str());
        names.any(|name| TENANT_HEADERS.contains(&name))
    };
    if records.iter().all(|record| is_named(&record.headers)) {
        return Ok(match header.producer_id == producer_id {
            true => batch.clone(),
            false => batch::of_producer(batch, producer_id),
        });
    }
    let value = Bytes::copy_from_slice(tenant.as_str().as_bytes());
    for record in &mut records {
        if !is_named(&record.headers) {
            record.headers.push((OURS.to_owned(), Some(value.clone())));
        }
    }
    let records: Vec<Record> = records
        .into_iter()
        .map(|record| Record {
            key: record.key,
            value: record.value,
            headers: record.headers,
            timestamp: Some(record.timestamp),
        })
        .collect();
    let sequence = (producer_id >= 0).then_some(ProducerSequence {
        producer_id,
        producer_epoch: header.producer_epoch,
        first_sequence: header.base_sequence,
    });
    let plain = batch::build(&records, UnixMillis(header.max_timestamp), sequence)?;
    match header.codec() {
        0 if plain.len() as u64 <= packed_from => Ok(plain),
        0 => batch::packed_as(&plain, LZ4),
        codec => batch::packed_as(&plain, codec),
    }
}

/// The header that is added where there is none.
const OURS: &str = "thalweg.tenant";
/// No id that is given out, nor one of a producer that writes once, has this as its highest bit.
const SHARED_BIT: i64 = 1 << 61;
const HASHED_BIT: i64 = 1 << 60;
/// Bits of producer ids that stand in shared ones as they are.
const ID_BITS: u32 = 28;
/// A codec that every client unpacks.
const LZ4: i16 = 3;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::producers::ONE_SHOT_ID_MIN;

    #[test]
    fn producers_of_two_partitions_are_never_one_in_a_third() {
        let ids = [
            0,
            1,
            (1 << ID_BITS) - 1,
            1 << ID_BITS,
            ONE_SHOT_ID_MIN,
            i64::MAX,
        ];
        let numbers = [0, 1, 2, 1 << 28, u32::MAX];
        let mut seen = HashSet::new();
        for (number, id) in numbers.into_iter().flat_map(|n| ids.map(|id| (n, id))) {
            let shared = shared_id(number, id);
            assert!(
                (SHARED_BIT..ONE_SHOT_ID_MIN).contains(&shared),
                "{number} {id}"
            );
            assert!(seen.insert(shared), "{number} {id}");
        }
    }

    #[test]
    fn a_batch_stays_packed_as_it_came() {
        let tenant: TenantId = "diku".parse().unwrap();
        let record = |n: usize| Record::of_value(format!("{n}: {}", "one and the same ".repeat(9)));
        let records: Vec<Record> = (0..200).map(record).collect();
        let sequence = ProducerSequence {
            producer_id: 7,
            producer_epoch: 2,
            first_sequence: 40,
        };
        let plain = batch::build(&records, UnixMillis(5), Some(sequence)).unwrap();
        let name = |batch: &Bytes, packed_from| {
            let header = BatchHeader::check(batch).unwrap();
            let named = named(batch, &header, &tenant, shared_id(9, 7), packed_from).unwrap();
            let header = BatchHeader::check(&named).unwrap();
            assert_eq!(header.producer_id, shared_id(9, 7));
            assert_eq!((header.producer_epoch, header.base_sequence), (2, 40));
            let read: Vec<_> = BatchRecords::of(&named)
                .unwrap()
                .map(Result::unwrap)
                .collect();
            assert_eq!(read.len(), 200);
            assert!(read.iter().all(|record| record.headers[0].0 == OURS));
            (header.codec(), named)
        };
        for codec in 1..=4 {
            let packed = batch::packed_as(&plain, codec).unwrap();
            let (kept, named) = name(&packed, 0);
            assert_eq!(kept, codec);
            assert!(
                named.len() < plain.len() / 4,
                "codec {codec}: {}",
                named.len()
            );
        }
        assert_eq!(name(&plain, 1 << 20).0, 0);
        let (codec, small) = name(&plain, plain.len() as u64);
        assert!(
            codec == LZ4 && small.len() < plain.len(),
            "{codec} {}",
            small.len()
        );
        // Nothing is to be named in what is named already.
        let (_, again) = name(&small, 0);
        assert_eq!(again, small);
    }
}
