//! Record batches of version 2, as Kafka's protocol guide lays them out.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};

use super::codec::Codec;

/// A finished batch for one partition.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) bytes: Bytes,
}

/// Builds one batch.
#[derive(Debug)]
pub(crate) struct BatchBuilder {
    out: BytesMut,
    base_timestamp: i64,
    max_timestamp: i64,
    count: i32,
}

impl BatchBuilder {
    /// An empty batch whose timestamps count from `base_timestamp`, in milliseconds.
    pub(crate) fn new(base_timestamp: i64, bytes: usize) -> Self {
        let mut out = BytesMut::with_capacity(HEADER_BYTES + bytes);
        out.put_bytes(0, HEADER_BYTES);
        BatchBuilder {
            out,
            base_timestamp,
            max_timestamp: base_timestamp,
            count: 0,
        }
    }

    /// Adds a record.
    pub(crate) fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(String, Bytes)],
    ) {
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp);
        let key_len = key.map_or(-1, |key| key.len() as i64);
        let value_len = value.map_or(-1, |value| value.len() as i64);
        let body = 1
            + varint_len(timestamp_delta)
            + varint_len(i64::from(self.count))
            + varint_len(key_len)
            + key.map_or(0, <[u8]>::len)
            + varint_len(value_len)
            + value.map_or(0, <[u8]>::len)
            + varint_len(headers.len() as i64)
            + headers
                .iter()
                .map(|(name, value)| {
                    let (name, value) = (name.len(), value.len());
                    varint_len(name as i64) + name + varint_len(value as i64) + value
                })
                .sum::<usize>();
        let out = &mut self.out;
        varint(out, body as i64);
        out.put_u8(0);
        varint(out, timestamp_delta);
        varint(out, i64::from(self.count));
        varint(out, key_len);
        out.put_slice(key.unwrap_or_default());
        varint(out, value_len);
        out.put_slice(value.unwrap_or_default());
        varint(out, headers.len() as i64);
        for (name, value) in headers {
            varint(out, name.len() as i64);
            out.put_slice(name.as_bytes());
            varint(out, value.len() as i64);
            out.put_slice(value);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.count += 1;
    }

    /// The batch, with its producer's id, epoch and first sequence (-1 each for none).
    pub(crate) fn finish(
        mut self,
        id: i64,
        epoch: i16,
        first_sequence: i32,
        codec: Codec,
    ) -> io::Result<Batch> {
        if codec != Codec::None {
            let packed = codec.pack(&self.out[HEADER_BYTES..])?;
            self.out.truncate(HEADER_BYTES);
            self.out.put_slice(&packed);
        }
        let batch_length = (self.out.len() - LENGTH_FROM) as i32;
        let mut head = Vec::with_capacity(HEADER_BYTES);
        head.put_i64(0);
        head.put_i32(batch_length);
        head.put_i32(-1);
        head.put_i8(2);
        head.put_u32(0);
        head.put_i16(codec.number());
        head.put_i32(self.count - 1);
        head.put_i64(self.base_timestamp);
        head.put_i64(self.max_timestamp);
        head.put_i64(id);
        head.put_i16(epoch);
        head.put_i32(first_sequence);
        head.put_i32(self.count);
        self.out[..HEADER_BYTES].copy_from_slice(&head);
        let checksum = crc32c::crc32c(&self.out[CHECKSUM_FROM..]);
        self.out[CHECKSUM_AT..CHECKSUM_FROM].copy_from_slice(&checksum.to_be_bytes());
        Ok(Batch {
            bytes: self.out.freeze(),
        })
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn varint(out: &mut BytesMut, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

fn varint_len(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Bytes before the first record.
const HEADER_BYTES: usize = 61;
/// The batch's length counts from here.
const LENGTH_FROM: usize = 12;
/// Where the checksum stands.
const CHECKSUM_AT: usize = 17;
/// The checksum covers everything from here.
const CHECKSUM_FROM: usize = 21;

#[cfg(test)]
mod tests {
    use kafka_protocol::records::RecordBatchDecoder;

    use super::*;

    #[test]
    fn a_batch_reads_back_by_another_decoder() {
        let mut builder = BatchBuilder::new(1_000, 0);
        for index in 0..300u32 {
            let value = vec![b'x'; index as usize];
            let key = (index % 2 == 0).then(|| index.to_be_bytes());
            builder.push(
                1_000 + i64::from(index),
                key.as_ref().map(|key| &key[..]),
                Some(&value),
                &[],
            );
        }
        builder.push(999, None, None, &[]);
        let mut bytes = builder.finish(77, 3, 41, Codec::None).unwrap().bytes;
        let set = RecordBatchDecoder::decode(&mut bytes).unwrap();
        assert_eq!(set.records.len(), 301);
        for (index, record) in set.records[..300].iter().enumerate() {
            assert_eq!(record.value.as_ref().unwrap().len(), index);
            assert_eq!(record.key.is_some(), index % 2 == 0);
            assert_eq!(record.timestamp, 1_000 + index as i64);
            assert_eq!((record.producer_id, record.producer_epoch), (77, 3));
            assert_eq!(record.sequence, 41 + index as i32);
        }
        assert_eq!(
            (set.records[300].value.as_ref(), set.records[300].timestamp),
            (None, 999)
        );
    }
}
