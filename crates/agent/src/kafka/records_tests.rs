//! Batches of our own builder and of another encoder, read back; damage; transactions.

use bytes::BytesMut;
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, Record as Theirs, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};

use super::*;
use crate::kafka::batch::BatchBuilder;

fn theirs(offset: i64, value: &str, transactional: bool, control: bool) -> Theirs {
    let mut headers = IndexMap::new();
    headers.insert(
        StrBytes::from_static_str("kind"),
        Some(Bytes::from_static(b"x")),
    );
    headers.insert(StrBytes::from_static_str("none"), None);
    Theirs {
        transactional,
        control,
        partition_leader_epoch: 0,
        producer_id: if transactional { 9 } else { -1 },
        producer_epoch: 0,
        timestamp_type: TimestampType::Creation,
        delete_horizon: false,
        offset,
        sequence: if transactional { offset as i32 } else { -1 },
        timestamp: 1_000 + offset,
        key: Some(Bytes::from(format!("key{offset}"))),
        value: Some(Bytes::from(value.to_owned())),
        headers,
    }
}

fn encode(records: &[Theirs]) -> Bytes {
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    let mut out = BytesMut::new();
    RecordBatchEncoder::encode(&mut out, records, &options).unwrap();
    out.freeze()
}

#[test]
fn another_encoder_s_records_are_read_with_keys_and_headers() {
    let records: Vec<Theirs> = (5..8)
        .map(|at| theirs(at, &format!("v{at}"), false, false))
        .collect();
    let fetched = read(encode(&records), 6, Vec::new(), 100).unwrap();
    assert_eq!(fetched.next, Some(8));
    assert_eq!(
        fetched.records.len(),
        2,
        "a record before the wanted offset came too"
    );
    let first = &fetched.records[0];
    assert_eq!((first.offset, first.timestamp), (6, 1_006));
    assert_eq!(first.key.as_deref(), Some(&b"key6"[..]));
    assert_eq!(first.value.as_deref(), Some(&b"v6"[..]));
    let kind = ("kind".to_owned(), Some(Bytes::from_static(b"x")));
    assert_eq!(first.headers, [kind, ("none".to_owned(), None)]);
}

#[test]
fn our_own_batches_are_read_in_every_codec_and_by_count() {
    for codec in [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ] {
        let mut builder = BatchBuilder::new(50, 0);
        for index in 0..100 {
            let headers = [("h".to_owned(), Bytes::from(vec![index]))];
            builder.push(50 + i64::from(index), None, Some(&[index; 30]), &headers);
        }
        let bytes = builder.finish(-1, -1, -1, codec).unwrap().bytes;
        let fetched = read(bytes.clone(), 0, Vec::new(), 40).unwrap();
        assert_eq!(
            (fetched.records.len(), fetched.next),
            (40, Some(40)),
            "{codec:?}"
        );
        let rest = read(bytes, 40, Vec::new(), 1_000).unwrap();
        assert_eq!(
            (rest.records.len(), rest.next),
            (60, Some(100)),
            "{codec:?}"
        );
        assert_eq!(rest.records[0].value.as_deref(), Some(&[40; 30][..]));
        assert_eq!(rest.records[0].headers[0].1.as_deref(), Some(&[40][..]));
    }
}

#[test]
fn an_end_that_is_missing_is_left_and_damage_is_an_error() {
    let whole = encode(&[theirs(0, "a", false, false), theirs(1, "b", false, false)]);
    let next = encode(&[theirs(2, "c", false, false)]);
    let mut both = BytesMut::from(whole.as_ref());
    both.extend_from_slice(&next[..next.len() - 1]);
    let fetched = read(both.freeze(), 0, Vec::new(), 10).unwrap();
    assert_eq!((fetched.records.len(), fetched.next), (2, Some(2)));
    let half = read(whole.slice(..30), 0, Vec::new(), 10).unwrap();
    assert_eq!(half, Fetched::default());
    for at in 16..next.len() {
        let mut damaged = BytesMut::from(next.as_ref());
        damaged[at] ^= 1;
        assert!(
            read(damaged.freeze(), 0, Vec::new(), 10).is_err(),
            "byte {at} may flip"
        );
    }
}

#[test]
fn aborted_records_are_left_out_and_the_offset_goes_past_them() {
    let mut all = BytesMut::new();
    all.extend_from_slice(&encode(&[theirs(0, "aborted", true, false)]));
    all.extend_from_slice(&encode(&[theirs(1, "plain", false, false)]));
    all.extend_from_slice(&encode(&[theirs(2, "abort marker", true, true)]));
    all.extend_from_slice(&encode(&[theirs(3, "kept", true, false)]));
    all.extend_from_slice(&encode(&[theirs(4, "commit marker", true, true)]));
    let all = all.freeze();
    let values = |aborted: Vec<Aborted>| {
        let fetched = read(all.clone(), 0, aborted, 10).unwrap();
        assert_eq!(fetched.next, Some(5));
        let values = fetched
            .records
            .iter()
            .map(|record| record.value.clone().unwrap());
        values.collect::<Vec<_>>()
    };
    assert_eq!(values(vec![(9, 0)]), ["plain", "kept"]);
    assert_eq!(values(Vec::new()), ["aborted", "plain", "kept"]);
}

#[test]
fn no_bytes_break_the_reader() {
    let whole = encode(&[theirs(0, "a", false, false)]);
    let mut random = base::Rng::from_entropy();
    for _ in 0..20_000 {
        let mut bytes = BytesMut::from(whole.as_ref());
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        // The checksum made good, so that what lies behind it is reached.
        let sum = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&sum.to_be_bytes());
        let _ = read(bytes.freeze(), 0, vec![(9, 0)], 10);
    }
}
