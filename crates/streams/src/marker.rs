//! Markers: the control batches that end a transaction in a partition, as Kafka writes them.
//!
//! A marker is a batch of one record with the control and transaction bits set. Its key is
//! version `i16` and type `i16` (0 abort, 1 commit), its value version `i16` and the
//! coordinator's epoch `i32`, all big-endian. It takes an offset, has no sequence, and never
//! reaches an application.
//!
//! Source: Kafka's `ControlRecordType` and `EndTxnMarker` message definitions. Leaves out the
//! other kinds of control batches, which only Kafka's own nodes write.

use base::UnixMillis;
use bytes::{BufMut, Bytes, BytesMut};

use crate::batch::{self, BatchHeader, HEADER_BYTES};
use crate::error::StreamsError;

/// How a transaction ended, for one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) producer_id: i64,
    /// From this epoch on the producer may write again.
    pub(crate) producer_epoch: i16,
    pub(crate) is_commit: bool,
}

impl Marker {
    /// The marker as a batch without a place.
    pub(crate) fn build(self, now: UnixMillis) -> Bytes {
        let mut body = [0; BODY_BYTES];
        body.copy_from_slice(BODY);
        body[TYPE_IN_BODY] = u8::from(self.is_commit);
        let mut out = BytesMut::with_capacity(HEADER_BYTES + BODY_BYTES);
        let header = BatchHeader {
            base_offset: 0,
            bytes: HEADER_BYTES + BODY_BYTES,
            attributes: batch::TRANSACTION_BIT | batch::CONTROL_BIT,
            last_offset_delta: 0,
            base_timestamp: now.0,
            max_timestamp: now.0,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: -1,
            record_count: 1,
        };
        header.put(&mut out);
        out.put_slice(&body);
        batch::seal(&mut out);
        out.freeze()
    }

    /// Reads a control batch back; none for other kinds than these markers.
    pub(crate) fn read(header: &BatchHeader, batch: &[u8]) -> Result<Option<Self>, StreamsError> {
        let body = batch
            .get(HEADER_BYTES..header.bytes)
            .ok_or(StreamsError::CorruptMessage("a control batch is cut off"))?;
        let kind = body
            .get(TYPE_IN_BODY - 1..=TYPE_IN_BODY)
            .ok_or(StreamsError::CorruptMessage("a control batch is cut off"))?;
        let is_commit = match kind {
            [0, 0] => false,
            [0, 1] => true,
            _ => return Ok(None),
        };
        Ok(Some(Marker {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            is_commit,
        }))
    }
}

/// The record of an abort marker: length 16, attributes, time and offset +0, a key of 4 bytes, a
/// value of 6, no headers (lengths are zigzag, hence doubled). The coordinator's epoch is 0: one
/// node coordinates for ever.
const BODY: &[u8; BODY_BYTES] = &[32, 0, 0, 0, 8, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0];
const BODY_BYTES: usize = 17;
/// The key of the record of a commit's marker.
pub(crate) const COMMIT_KEY: &[u8] = &[0, 0, 0, 1];
/// The low byte of the marker's type.
const TYPE_IN_BODY: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(is_commit: bool) -> Marker {
        Marker {
            producer_id: 9,
            producer_epoch: 3,
            is_commit,
        }
    }

    #[test]
    fn a_marker_reads_back_and_has_a_right_checksum() {
        for is_commit in [false, true] {
            let bytes = marker(is_commit).build(UnixMillis(77));
            let header = BatchHeader::read(&bytes).unwrap();
            assert_eq!(header.bytes, bytes.len());
            assert!(header.is_control() && header.is_transactional());
            assert_eq!((header.record_count, header.base_sequence), (1, -1));
            assert_eq!(
                crc32c::crc32c(&bytes[21..]).to_be_bytes(),
                bytes[17..21],
                "its checksum is wrong"
            );
            let read = Marker::read(&header, &bytes).unwrap();
            assert_eq!(read, Some(marker(is_commit)));
        }
    }

    #[test]
    fn the_record_is_laid_out_as_kafka_writes_it() {
        let bytes = marker(true).build(UnixMillis(77));
        let record = &bytes[HEADER_BYTES..];
        // Length 16 follows, then attributes and two zero deltas.
        assert_eq!(record[..4], [32, 0, 0, 0]);
        // A key of four bytes: version 0, type 1.
        assert_eq!(record[4..9], [8, 0, 0, 0, 1]);
        // A value of six bytes: version 0, coordinator epoch 0; no headers.
        assert_eq!(record[9..], [12, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn other_control_batches_and_cuts_are_told_apart() {
        let mut bytes = marker(true).build(UnixMillis(77)).to_vec();
        let header = BatchHeader::read(&bytes).unwrap();
        bytes[HEADER_BYTES + TYPE_IN_BODY] = 5;
        assert_eq!(Marker::read(&header, &bytes).unwrap(), None);
        assert!(Marker::read(&header, &bytes[..HEADER_BYTES + 3]).is_err());
    }
}
