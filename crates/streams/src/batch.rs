//! Record batches of Kafka's format 2, as they are sent, stored and served.
//!
//! A batch is checked once when it comes in and stays the bytes that it was, but for its base
//! offset and leader epoch, which the checksum leaves out on purpose:
//!
//! ```text
//! at  0  base offset     i64     at 27  base timestamp   i64
//! at  8  length          i32     at 35  max timestamp    i64     all numbers big-endian,
//! at 12  leader epoch    i32     at 43  producer id      i64     length counts from 12 on,
//! at 16  magic (2)       i8      at 51  producer epoch   i16     checksum is CRC-32C from
//! at 17  checksum        u32     at 53  first sequence   i32     attributes to the end
//! at 21  attributes      i16     at 57  record count     i32
//! at 23  last delta      i32     at 61  records (compressed when attributes say so)
//! ```
//!
//! Source: Kafka documentation, "Record Batch". Leaves out formats 0 and 1, which no current
//! client writes.

use base::UnixMillis;
use bytes::{BufMut, Bytes, BytesMut};

use crate::codec;
use crate::error::StreamsError;
use crate::event_store::ProducerSequence;
use crate::limits::RECORDS_PER_BATCH_MAX;
use crate::record::Record;

/// The fixed part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes of the whole batch.
    pub bytes: usize,
    /// Compression, time type, transaction and control bits.
    pub attributes: i16,
    /// Last offset less the base offset.
    pub last_offset_delta: i32,
    /// What the records' time deltas count from, in ms.
    pub base_timestamp: i64,
    /// The greatest record time, in ms; -1 when there is none.
    pub max_timestamp: i64,
    /// The idempotent producer, -1 for none.
    pub producer_id: i64,
    /// Its epoch, -1 for none.
    pub producer_epoch: i16,
    /// The sequence of the first record, -1 for none.
    pub base_sequence: i32,
    /// Records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header of the batch that `bytes` starts with; checks the format and that the
    /// length is within `bytes`, nothing else.
    pub fn read(bytes: &[u8]) -> Result<Self, StreamsError> {
        if bytes.len() > MAGIC_AT && bytes[MAGIC_AT] != MAGIC {
            return Err(StreamsError::UnsupportedFormat(
                "only record batches of format 2 are",
            ));
        }
        if bytes.len() < HEADER_BYTES {
            return Err(StreamsError::CorruptMessage("shorter than a batch header"));
        }
        let length = i32_at(bytes, LENGTH_AT);
        let whole = usize::try_from(length)
            .ok()
            .and_then(|length| length.checked_add(12));
        let whole = whole.filter(|whole| (HEADER_BYTES..=bytes.len()).contains(whole));
        let Some(whole) = whole else {
            return Err(StreamsError::CorruptMessage(
                "its length is not that of its bytes",
            ));
        };
        Ok(BatchHeader::of_head(bytes, whole))
    }

    /// The header of a batch that has so many bytes, of which `head` has the first at least.
    fn of_head(head: &[u8], bytes: usize) -> Self {
        BatchHeader {
            base_offset: i64_at(head, 0),
            bytes,
            attributes: i16_at(head, ATTRIBUTES_AT),
            last_offset_delta: i32_at(head, 23),
            base_timestamp: i64_at(head, 27),
            max_timestamp: i64_at(head, 35),
            producer_id: i64_at(head, 43),
            producer_epoch: i16_at(head, 51),
            base_sequence: i32_at(head, 53),
            record_count: i32_at(head, 57),
        }
    }

    /// The header of a batch that was stored with so many bytes, of which these are the first.
    pub(crate) fn of_stored(head: &[u8; HEADER_BYTES], bytes: u32) -> Self {
        BatchHeader::of_head(head, bytes as usize)
    }

    /// Checks a batch that a producer sent: exactly one, whole, undamaged and consistent.
    pub fn check(bytes: &[u8]) -> Result<Self, StreamsError> {
        let header = BatchHeader::read(bytes)?;
        if header.bytes != bytes.len() {
            return Err(StreamsError::InvalidRecord(
                "more than one batch for a partition",
            ));
        }
        if crc32c::crc32c(&bytes[ATTRIBUTES_AT..]) != u32_at(bytes, CRC_AT) {
            return Err(StreamsError::CorruptMessage("its checksum is wrong"));
        }
        header.check_consistency()?;
        Ok(header)
    }

    /// Checks a batch that is stored: as it came, or as compaction left it.
    pub fn check_stored(bytes: &[u8]) -> Result<Self, StreamsError> {
        let header = BatchHeader::read(bytes)?;
        if crc32c::crc32c(&bytes[ATTRIBUTES_AT..header.bytes]) != u32_at(bytes, CRC_AT) {
            return Err(StreamsError::CorruptMessage("its checksum is wrong"));
        }
        Ok(header)
    }

    /// The last record's offset less the first's, plus one: offsets that the batch takes.
    pub fn offsets(&self) -> i64 {
        i64::from(self.last_offset_delta) + 1
    }

    /// The offset of the last record; a stored batch may claim anything.
    pub fn last_offset(&self) -> i64 {
        let delta = i64::from(self.last_offset_delta);
        self.base_offset.saturating_add(delta)
    }

    /// The sequence of the last record; sequences go round from 2^31-1 to 0.
    pub fn last_sequence(&self) -> i32 {
        sequence_after(self.base_sequence, self.last_offset_delta)
    }

    /// The compression codec's number.
    pub fn codec(&self) -> i16 {
        self.attributes & CODEC_MASK
    }

    /// When the batch's tombstones may go, in ms; none while they are needed.
    pub fn delete_horizon(&self) -> Option<i64> {
        (self.attributes & DELETE_HORIZON_BIT != 0).then_some(self.base_timestamp)
    }

    /// Whether it carries markers of the broker instead of records.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Whether it belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTION_BIT != 0
    }

    /// Writes the header; the length and the checksum are left to [`seal`].
    pub(crate) fn put(&self, out: &mut BytesMut) {
        out.put_i64(self.base_offset);
        out.put_i32(0);
        out.put_i32(LEADER_EPOCH);
        out.put_u8(MAGIC);
        out.put_u32(0);
        out.put_i16(self.attributes);
        out.put_i32(self.last_offset_delta);
        out.put_i64(self.base_timestamp);
        out.put_i64(self.max_timestamp);
        out.put_i64(self.producer_id);
        out.put_i16(self.producer_epoch);
        out.put_i32(self.base_sequence);
        out.put_i32(self.record_count);
    }

    fn check_consistency(&self) -> Result<(), StreamsError> {
        let refuse = |reason| Err(StreamsError::InvalidRecord(reason));
        if self.record_count < 1 || self.record_count > RECORDS_PER_BATCH_MAX {
            return refuse("its record count is out of bounds");
        }
        if self.last_offset_delta != self.record_count - 1 {
            return refuse("its last offset does not fit its record count");
        }
        if self.codec() > CODEC_MAX {
            return Err(StreamsError::UnsupportedFormat(
                "the compression codec is not known",
            ));
        }
        if self.is_control() {
            return refuse("a producer sends no control batches");
        }
        let idempotent = self.producer_id >= 0;
        if self.is_transactional() && !idempotent {
            return refuse("a transaction needs a producer id");
        }
        if idempotent && (self.producer_epoch < 0 || self.base_sequence < 0) {
            return refuse("a producer id comes with an epoch and a sequence");
        }
        // Without a producer id the sequence says nothing: aiokafka writes 0 there, others -1.
        if !idempotent && self.producer_id != -1 {
            return refuse("a producer id is -1 or not negative");
        }
        Ok(())
    }
}

/// The first 16 bytes of a batch with its place filled in; what follows stays as it came.
pub fn placed_head(batch: &[u8], base_offset: i64) -> [u8; PLACED_HEAD_BYTES] {
    let mut head = [0; PLACED_HEAD_BYTES];
    head[..8].copy_from_slice(&base_offset.to_be_bytes());
    head[8..12].copy_from_slice(&batch[8..12]);
    head[12..].copy_from_slice(&LEADER_EPOCH.to_be_bytes());
    head
}

/// What follows a placed head: bytes to be counted for a checksum, and those behind them with the
/// batch's own, which is of the same kind.
pub(crate) fn known_part(rest: &[u8]) -> (&[u8], &[u8], u32) {
    let (counted, known) = rest.split_at(ATTRIBUTES_AT - PLACED_HEAD_BYTES);
    (counted, known, u32_at(rest, CRC_AT - PLACED_HEAD_BYTES))
}

/// The batch with the time of its storing for all its records, under a checksum of its own.
pub fn stamped(batch: &[u8], now: UnixMillis) -> Bytes {
    let mut stamped = BytesMut::from(batch);
    let attributes = i16_at(batch, ATTRIBUTES_AT) | APPEND_TIME_BIT;
    stamped[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.to_be_bytes());
    stamped[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&now.0.to_be_bytes());
    let crc = crc32c::crc32c(&stamped[ATTRIBUTES_AT..]);
    stamped[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    stamped.freeze()
}

/// Builds one uncompressed batch; `now` is the time of records without one.
pub fn build(
    records: &[Record],
    now: UnixMillis,
    sequence: Option<ProducerSequence>,
) -> Result<Bytes, StreamsError> {
    let count = i32::try_from(records.len())
        .ok()
        .filter(|n| (1..=RECORDS_PER_BATCH_MAX).contains(n));
    let count = count.ok_or(StreamsError::InvalidRecord(
        "its record count is out of bounds",
    ))?;
    let time_of = |record: &Record| record.timestamp.unwrap_or(now).0;
    let times = records.iter().map(time_of);
    let base_timestamp = records.first().map_or(now.0, time_of);
    let max_timestamp = times.max().unwrap_or(base_timestamp);
    let size: usize = records.iter().map(record_bytes_max).sum();
    let mut out = BytesMut::with_capacity(HEADER_BYTES + size);
    let header = BatchHeader {
        base_offset: 0,
        bytes: 0,
        attributes: 0,
        last_offset_delta: count - 1,
        base_timestamp,
        max_timestamp,
        producer_id: sequence.map_or(-1, |s| s.producer_id),
        producer_epoch: sequence.map_or(-1, |s| s.producer_epoch),
        base_sequence: sequence.map_or(-1, |s| s.first_sequence),
        record_count: count,
    };
    header.put(&mut out);
    for (delta, record) in records.iter().enumerate() {
        let time_delta = time_of(record).wrapping_sub(base_timestamp);
        put_record(&mut out, record, time_delta, delta);
    }
    if out.len() as u64 > MAX_BYTES {
        return Err(StreamsError::MessageTooLarge {
            bytes: out.len() as u64,
            max: MAX_BYTES,
        });
    }
    seal(&mut out);
    Ok(out.freeze())
}

/// As [`build`], for a batch of a transaction.
pub(crate) fn build_transactional(
    records: &[Record],
    now: UnixMillis,
    sequence: ProducerSequence,
) -> Result<Bytes, StreamsError> {
    let mut batch = BytesMut::from(build(records, now, Some(sequence))?);
    let attributes = i16_at(&batch, ATTRIBUTES_AT) | TRANSACTION_BIT;
    batch[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.to_be_bytes());
    seal(&mut batch);
    Ok(batch.freeze())
}

/// Fills in the length and the checksum of a batch that is complete but for them.
pub(crate) fn seal(batch: &mut [u8]) {
    let length = i32::try_from(batch.len() - 12).unwrap_or(i32::MAX);
    batch[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
}

/// Gives a batch whose records were rewritten the head that fits them.
pub(crate) fn rewrite_head(batch: &mut [u8], record_count: i32, delete_horizon: Option<i64>) {
    batch[57..61].copy_from_slice(&record_count.to_be_bytes());
    if let Some(horizon) = delete_horizon {
        let attributes = i16_at(batch, ATTRIBUTES_AT) | DELETE_HORIZON_BIT;
        batch[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.to_be_bytes());
        batch[27..35].copy_from_slice(&horizon.to_be_bytes());
    }
    seal(batch);
}

/// Makes the header alone a batch without records, which is packed by no codec.
pub(crate) fn rewrite_head_unpacked(batch: &mut [u8]) {
    let attributes = i16_at(batch, ATTRIBUTES_AT) & !CODEC_MASK;
    batch[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.to_be_bytes());
    rewrite_head(batch, 0, None);
}

/// The same batch by another producer.
pub(crate) fn of_producer(batch: &[u8], producer_id: i64) -> Bytes {
    let mut out = BytesMut::from(batch);
    out[PRODUCER_ID_AT..PRODUCER_ID_AT + 8].copy_from_slice(&producer_id.to_be_bytes());
    seal(&mut out);
    out.freeze()
}

/// A batch that is not packed, packed by a codec.
pub(crate) fn packed_as(plain: &[u8], codec: i16) -> Result<Bytes, StreamsError> {
    let (head, body) = plain.split_at(HEADER_BYTES);
    with_body(head, body.to_vec(), codec)
}

/// The same batch packed by another codec.
pub(crate) fn repacked(batch: &Bytes, codec: i16) -> Result<Bytes, StreamsError> {
    let header = BatchHeader::read(batch)?;
    let body = codec::unpacked(header.codec(), batch.slice(HEADER_BYTES..header.bytes))?;
    with_body(&batch[..HEADER_BYTES], body.into(), codec)
}

/// A batch of this head, with these records packed by a codec.
fn with_body(head: &[u8], body: Vec<u8>, codec: i16) -> Result<Bytes, StreamsError> {
    let body = codec::packed(codec, body)?;
    let mut out = BytesMut::with_capacity(HEADER_BYTES + body.len());
    out.put_slice(head);
    out.put_slice(&body);
    let attributes = i16_at(head, ATTRIBUTES_AT) & !CODEC_MASK | codec;
    out[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.to_be_bytes());
    seal(&mut out);
    Ok(out.freeze())
}

/// The sequence `delta` records after `first`; after 2^31-1 comes 0.
pub fn sequence_after(first: i32, delta: i32) -> i32 {
    i32::try_from((i64::from(first) + i64::from(delta)) & i64::from(i32::MAX)).unwrap_or(0)
}

/// Writes a record behind its length. The length is told by a dry run, so that a large value is
/// copied once.
fn put_record(out: &mut BytesMut, record: &Record, time_delta: i64, offset_delta: usize) {
    let mut length = Length(0);
    put_fields(&mut length, record, time_delta, offset_delta);
    put_varint(out, length.0 as i64);
    put_fields(out, record, time_delta, offset_delta);
}

fn put_fields(out: &mut impl Put, record: &Record, time_delta: i64, offset_delta: usize) {
    out.put(&[0]);
    out.put_varint(time_delta);
    out.put_varint(offset_delta as i64);
    out.put_optional(record.key.as_deref());
    out.put_optional(record.value.as_deref());
    out.put_varint(record.headers.len() as i64);
    for (name, value) in &record.headers {
        out.put_optional(Some(name.as_bytes()));
        out.put_optional(value.as_deref());
    }
}

/// Takes a record's fields.
trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_varint(&mut self, value: i64);

    fn put_optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.put_varint(-1),
            Some(bytes) => {
                self.put_varint(bytes.len() as i64);
                self.put(bytes);
            }
        }
    }
}

/// Bytes that would be written.
struct Length(usize);

impl Put for Length {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn put_varint(&mut self, value: i64) {
        let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
        self.0 += bits.div_ceil(7);
    }
}

impl Put for BytesMut {
    fn put(&mut self, bytes: &[u8]) {
        self.put_slice(bytes);
    }

    fn put_varint(&mut self, value: i64) {
        put_varint(self, value);
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Zigzag, then seven bits a byte, low ones first.
pub(crate) fn put_varint(out: &mut impl BufMut, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

fn record_bytes_max(record: &Record) -> usize {
    let headers = record.headers.iter();
    let headers: usize = headers
        .map(|(name, value)| name.len() + value.as_ref().map_or(0, Bytes::len) + 10)
        .sum();
    let (key, value) = (record.key.as_ref(), record.value.as_ref());
    key.map_or(0, Bytes::len) + value.map_or(0, Bytes::len) + headers + 40
}

fn i16_at(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes(array_at(bytes, at))
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(array_at(bytes, at))
}

/// The `N` bytes at `at`; callers have checked that the header is there.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Bytes before the records.
pub const HEADER_BYTES: usize = 61;

/// Where in a batch the distance from its first to its last offset stands.
pub(crate) const LAST_DELTA_AT: u64 = 23;

/// Bytes that [`placed_head`] rewrites.
pub const PLACED_HEAD_BYTES: usize = 16;
/// The leader epoch in every answer: one node leads for ever, and a constant keeps clients from
/// asking for metadata again and again.
pub const LEADER_EPOCH: i32 = 0;

const MAGIC: u8 = 2;
const LENGTH_AT: usize = 8;
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;
const PRODUCER_ID_AT: usize = 43;
const APPEND_TIME_BIT: i16 = 1 << 3;
const CODEC_MASK: i16 = 0b111;
const CODEC_MAX: i16 = 4;
/// Set in batches that belong to a transaction.
pub(crate) const TRANSACTION_BIT: i16 = 1 << 4;
/// Set in batches that carry markers instead of records.
pub(crate) const CONTROL_BIT: i16 = 1 << 5;
/// Set in batches whose base timestamp says when their tombstones may go.
const DELETE_HORIZON_BIT: i16 = 1 << 6;
const MAX_BYTES: u64 = i32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Bytes {
        let records = [Record::of_value("v").with_key("k"), Record::of_value("w")];
        build(&records, UnixMillis(1_000), None).unwrap()
    }

    /// Written by hand from the format's description; not by this code.
    fn golden() -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(0_i64.to_be_bytes());
        bytes.extend(67_i32.to_be_bytes());
        bytes.extend(0_i32.to_be_bytes());
        bytes.push(2);
        bytes.extend([0; 4]);
        bytes.extend(0_i16.to_be_bytes());
        bytes.extend(1_i32.to_be_bytes());
        bytes.extend(1_000_i64.to_be_bytes());
        bytes.extend(1_000_i64.to_be_bytes());
        bytes.extend((-1_i64).to_be_bytes());
        bytes.extend((-1_i16).to_be_bytes());
        bytes.extend((-1_i32).to_be_bytes());
        bytes.extend(2_i32.to_be_bytes());
        // length 8, attributes, time +0, offset +0, key of 1, value of 1, no headers
        bytes.extend([16, 0, 0, 0, 2, b'k', 2, b'v', 0]);
        // length 7, attributes, time +0, offset +1, no key, value of 1, no headers
        bytes.extend([14, 0, 0, 2, 1, 2, b'w', 0]);
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let length = i32::try_from(bytes.len() - 12).unwrap();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    #[test]
    fn a_built_batch_is_the_one_written_by_hand() {
        assert_eq!(sample(), golden());
        let header = BatchHeader::check(&sample()).unwrap();
        assert_eq!(
            (header.record_count, header.offsets(), header.max_timestamp),
            (2, 2, 1_000)
        );
    }

    #[test]
    fn the_place_is_filled_in_without_touching_the_checksum() {
        let batch = sample();
        let mut placed = batch.to_vec();
        placed[..16].copy_from_slice(&placed_head(&batch, 77));
        assert_eq!(BatchHeader::check(&placed).unwrap().base_offset, 77);
    }

    #[test]
    fn a_stamped_batch_is_whole_and_has_the_time_of_its_storing() {
        let stamped = stamped(&sample(), UnixMillis(7_777));
        let header = BatchHeader::check(&stamped).unwrap();
        assert_eq!((header.max_timestamp, header.attributes), (7_777, 8));
        let records = crate::BatchRecords::of(&stamped).unwrap();
        for record in records {
            assert_eq!(record.unwrap().timestamp, UnixMillis(7_777));
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let batch = sample();
        for at in 8..batch.len() {
            if (12..16).contains(&at) {
                continue;
            }
            for bit in 0..8 {
                let mut bytes = batch.to_vec();
                bytes[at] ^= 1 << bit;
                assert!(BatchHeader::check(&bytes).is_err(), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn every_cut_is_refused() {
        let batch = sample();
        for len in 0..batch.len() {
            assert!(
                BatchHeader::check(&batch[..len]).is_err(),
                "{len} bytes were taken"
            );
        }
        let two = [batch.as_ref(), batch.as_ref()].concat();
        assert!(matches!(
            BatchHeader::check(&two),
            Err(StreamsError::InvalidRecord(_))
        ));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let change = |at: usize, with: &[u8]| {
            let mut bytes = golden();
            bytes[at..at + with.len()].copy_from_slice(with);
            BatchHeader::check(&resealed(bytes)).unwrap_err()
        };
        assert!(matches!(
            change(57, &3_i32.to_be_bytes()),
            StreamsError::InvalidRecord(_)
        ));
        assert!(matches!(
            change(57, &0_i32.to_be_bytes()),
            StreamsError::InvalidRecord(_)
        ));
        assert!(matches!(
            change(21, &[0, 5]),
            StreamsError::UnsupportedFormat(_)
        ));
        assert!(matches!(
            change(21, &[0, 0x20]),
            StreamsError::InvalidRecord(_)
        ));
        assert!(matches!(
            change(43, &7_i64.to_be_bytes()),
            StreamsError::InvalidRecord(_)
        ));
        assert!(matches!(
            change(16, &[1]),
            StreamsError::UnsupportedFormat(_)
        ));
    }

    #[test]
    fn sequences_go_round() {
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(i32::MAX - 1, 3), 1);
        assert_eq!(sequence_after(5, 0), 5);
    }
}
