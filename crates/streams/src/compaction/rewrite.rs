//! Rewrites a batch with some of its records left out. No IO.
//!
//! What stays keeps its offset, its time, its key and its bytes; the batch keeps the offsets that
//! it spans, its producer and its sequences, so that neither readers nor producers see more than
//! a gap. Once it holds tombstones only for readers that are under way, it carries the time at
//! which those may go as Kafka writes it: in the base timestamp, with attribute bit 6.

use bytes::{BufMut, Bytes, BytesMut};

use crate::batch::{self, BatchHeader, HEADER_BYTES};
use crate::codec;
use crate::error::StreamsError;

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rewritten {
    /// It stays the bytes that it is.
    Unchanged,
    /// Nothing of it is left.
    Gone,
    /// It is this now.
    Batch(Bytes),
}

/// A record as far as compaction looks into it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) offset: i64,
    pub(super) key: Option<&'a [u8]>,
    pub(super) is_tombstone: bool,
    time_delta: i64,
    attributes: u8,
    /// All behind the time delta.
    rest: &'a [u8],
    /// All behind the value: the headers.
    headers: &'a [u8],
}

/// Calls `visit` with each record of a batch that carries records.
pub(super) fn visit(
    batch: &Bytes,
    mut visit: impl FnMut(Entry<'_>) -> Result<(), StreamsError>,
) -> Result<(), StreamsError> {
    let header = BatchHeader::read(batch)?;
    let body = codec::unpacked(header.codec(), batch.slice(HEADER_BYTES..header.bytes))?;
    let mut rest = &body[..];
    for _ in 0..header.record_count {
        let length = usize::try_from(take_varint(&mut rest)?).map_err(|_| DAMAGED)?;
        let (record, behind) = rest.split_at_checked(length).ok_or(DAMAGED)?;
        rest = behind;
        visit(Entry::read(&header, record)?)?;
    }
    Ok(())
}

/// Leaves out the records that `keep` does not want. With `horizon` a batch that keeps a tombstone
/// says that it may go then, unless the batch says so already.
pub(crate) fn rewrite(
    batch: &Bytes,
    horizon: Option<i64>,
    mut keep: impl FnMut(&Entry<'_>) -> bool,
) -> Result<Rewritten, StreamsError> {
    let header = BatchHeader::read(batch)?;
    let (mut kept, mut tombstones) = (0, 0);
    visit(batch, |entry| {
        if keep(&entry) {
            kept += 1;
            tombstones += i32::from(entry.is_tombstone);
        }
        Ok(())
    })?;
    if kept == 0 {
        return Ok(Rewritten::Gone);
    }
    let horizon = horizon.filter(|_| tombstones > 0 && header.delete_horizon().is_none());
    if kept == header.record_count && horizon.is_none() {
        return Ok(Rewritten::Unchanged);
    }
    rebuilt(batch, &header, kept, horizon, keep).map(Rewritten::Batch)
}

/// The same batch, which may go at `horizon`.
pub(super) fn with_horizon(batch: &Bytes, horizon: i64) -> Result<Bytes, StreamsError> {
    let header = BatchHeader::read(batch)?;
    rebuilt(batch, &header, header.record_count, Some(horizon), |_| true)
}

/// The same batch without any record, which tells readers where to go on.
pub(crate) fn emptied(batch: &Bytes) -> Result<Bytes, StreamsError> {
    BatchHeader::read(batch)?;
    let mut out = BytesMut::from(&batch[..HEADER_BYTES]);
    batch::rewrite_head_unpacked(&mut out);
    Ok(out.freeze())
}

fn rebuilt(
    batch: &Bytes,
    header: &BatchHeader,
    kept: i32,
    horizon: Option<i64>,
    mut keep: impl FnMut(&Entry<'_>) -> bool,
) -> Result<Bytes, StreamsError> {
    let base_timestamp = horizon.unwrap_or(header.base_timestamp);
    let mut body = Vec::with_capacity(header.bytes);
    let mut record = Vec::new();
    visit(batch, |entry| {
        if keep(&entry) {
            record.clear();
            entry.write(&mut record, header.base_timestamp, base_timestamp);
            batch::put_varint(&mut body, record.len() as i64);
            body.extend_from_slice(&record);
        }
        Ok(())
    })?;
    let body = codec::packed(header.codec(), body)?;
    let mut out = BytesMut::with_capacity(HEADER_BYTES + body.len());
    out.put_slice(&batch[..HEADER_BYTES]);
    out.put_slice(&body);
    batch::rewrite_head(&mut out, kept, horizon);
    Ok(out.freeze())
}

impl<'a> Entry<'a> {
    fn read(header: &BatchHeader, record: &'a [u8]) -> Result<Self, StreamsError> {
        let (attributes, mut rest) = record.split_first().ok_or(DAMAGED)?;
        let time_delta = take_varint(&mut rest)?;
        let behind_time = rest;
        let offset_delta = take_varint(&mut rest)?;
        let key = take_block(&mut rest)?;
        let value = take_block(&mut rest)?;
        Ok(Entry {
            offset: header.base_offset.saturating_add(offset_delta),
            key,
            is_tombstone: value.is_none(),
            time_delta,
            attributes: *attributes,
            rest: behind_time,
            headers: rest,
        })
    }

    /// Names and values of the headers, up to the first that is not of its shape.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let mut rest = self.headers;
        let count = take_varint(&mut rest).unwrap_or(0);
        (0..count).map_while(move |_| {
            let name = take_block(&mut rest).ok()??;
            Some((name, take_block(&mut rest).ok()?))
        })
    }

    fn write(&self, out: &mut Vec<u8>, counted_from: i64, count_from: i64) {
        out.push(self.attributes);
        let moved = counted_from.wrapping_sub(count_from);
        batch::put_varint(out, self.time_delta.wrapping_add(moved));
        out.extend_from_slice(self.rest);
    }
}

fn take_block<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, StreamsError> {
    match take_varint(rest)? {
        -1 => Ok(None),
        length => {
            let length = usize::try_from(length).map_err(|_| DAMAGED)?;
            let (block, behind) = rest.split_at_checked(length).ok_or(DAMAGED)?;
            *rest = behind;
            Ok(Some(block))
        }
    }
}

fn take_varint(rest: &mut &[u8]) -> Result<i64, StreamsError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first().ok_or(DAMAGED)?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err(DAMAGED)
}

const DAMAGED: StreamsError = StreamsError::InvalidRecord("a record is not of its shape");

#[cfg(test)]
mod tests {
    use base::UnixMillis;

    use super::*;
    use crate::record::Record;
    use crate::{BatchRecord, BatchRecords};

    fn keyed(key: &'static str, value: Option<&'static str>, time: i64) -> Record {
        Record {
            key: Some(Bytes::from_static(key.as_bytes())),
            value: value.map(|value| Bytes::from_static(value.as_bytes())),
            headers: vec![("h".to_owned(), Some(Bytes::from_static(b"x")))],
            timestamp: Some(UnixMillis(time)),
        }
    }

    fn records(batch: &Bytes) -> Vec<BatchRecord> {
        BatchRecords::of(batch)
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    fn sample(codec: i16) -> Bytes {
        let all = [
            keyed("a", Some("1"), 5_000),
            keyed("b", None, 7_000),
            keyed("c", Some("3"), 6_000),
        ];
        let plain = batch::build(&all, UnixMillis(0), None).unwrap();
        let mut out = BytesMut::from(&plain[..HEADER_BYTES]);
        out.extend_from_slice(&codec::packed(codec, plain[HEADER_BYTES..].to_vec()).unwrap());
        out[22] = u8::try_from(codec).unwrap();
        batch::rewrite_head(&mut out, 3, None);
        let out = out.freeze();
        BatchHeader::check(&out).unwrap();
        out
    }

    #[test]
    fn what_stays_is_what_it_was_with_every_codec() {
        for codec in 0..=4 {
            let batch = sample(codec);
            let before = records(&batch);
            let kept = rewrite(&batch, None, |entry| entry.key != Some(b"a")).unwrap();
            let Rewritten::Batch(kept) = kept else {
                panic!("codec {codec}: {kept:?}");
            };
            assert_eq!(records(&kept), before[1..], "codec {codec}");
            let (old, new) = (
                BatchHeader::read(&batch).unwrap(),
                BatchHeader::read(&kept).unwrap(),
            );
            assert_eq!((new.record_count, new.bytes), (2, kept.len()));
            assert_eq!(new.codec(), codec);
            assert_eq!(new.offsets(), old.offsets());
            assert!(BatchHeader::check_stored(&kept).is_ok(), "codec {codec}");
        }
    }

    #[test]
    fn a_tombstone_gets_its_time_once_and_keeps_its_own() {
        let batch = sample(3);
        let Rewritten::Batch(marked) = rewrite(&batch, Some(90_000), |_| true).unwrap() else {
            panic!("it was not marked");
        };
        assert_eq!(records(&marked), records(&batch));
        assert_eq!(
            BatchHeader::read(&marked).unwrap().delete_horizon(),
            Some(90_000)
        );
        let again = rewrite(&marked, Some(99_000), |_| true).unwrap();
        assert_eq!(again, Rewritten::Unchanged);
        let without = rewrite(&batch, Some(90_000), |entry| !entry.is_tombstone).unwrap();
        let Rewritten::Batch(without) = without else {
            panic!("nothing was left out");
        };
        assert_eq!(BatchHeader::read(&without).unwrap().delete_horizon(), None);
        assert_eq!(rewrite(&batch, None, |_| false).unwrap(), Rewritten::Gone);
    }

    #[test]
    fn damage_is_an_error_and_no_panic() {
        let batch = sample(0);
        for cut in HEADER_BYTES..batch.len() {
            let mut bytes = BytesMut::from(&batch[..cut]);
            bytes[8..12].copy_from_slice(&i32::try_from(cut - 12).unwrap().to_be_bytes());
            assert!(rewrite(&bytes.freeze(), None, |_| true).is_err());
        }
    }
}
