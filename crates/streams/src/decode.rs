//! Reads the records out of a batch, for consumers in this process.
//!
//! Keys, values and headers are slices of the batch, or of its unpacked form when it is
//! compressed; nothing is copied per record. No length is believed before it is checked against
//! the bytes that are there.

use base::UnixMillis;
use bytes::Bytes;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::codec;
use crate::error::StreamsError;
use crate::limits::HEADERS_PER_RECORD_MAX;
use crate::record::ConsumedRecord;
use crate::topic::TopicName;

/// A record within its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// Its offset.
    pub offset: i64,
    /// Its time in ms.
    pub timestamp: UnixMillis,
    /// The key.
    pub key: Option<Bytes>,
    /// The value.
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// The records of one batch, in order.
#[derive(Debug)]
pub struct BatchRecords {
    header: BatchHeader,
    cursor: Cursor,
    left: i32,
}

impl BatchRecords {
    /// The records of a stored batch; a control batch has none.
    pub fn of(batch: &Bytes) -> Result<Self, StreamsError> {
        let header = BatchHeader::read(batch)?;
        let packed = batch.slice(HEADER_BYTES..header.bytes);
        let left = if header.is_control() {
            0
        } else {
            // Only a producer's batch was asked how many it claims.
            header.record_count.max(0)
        };
        let bytes = if left == 0 {
            Bytes::new()
        } else {
            codec::unpacked(header.codec(), packed)?
        };
        Ok(BatchRecords {
            header,
            cursor: Cursor { bytes, at: 0 },
            left,
        })
    }

    /// Nothing of a batch that its reader is not to see.
    pub(crate) fn none(header: BatchHeader) -> Self {
        let bytes = Bytes::new();
        BatchRecords {
            header,
            cursor: Cursor { bytes, at: 0 },
            left: 0,
        }
    }

    fn read(&mut self) -> Result<BatchRecord, StreamsError> {
        let mut cursor = Cursor {
            bytes: self.cursor.block()?.ok_or(CUT)?,
            at: 0,
        };
        cursor.byte()?;
        let time_delta = cursor.varint()?;
        let offset_delta = cursor.varint()?;
        if !(0..=i64::from(self.header.last_offset_delta)).contains(&offset_delta) {
            return Err(StreamsError::InvalidRecord(
                "a record's offset is outside of its batch",
            ));
        }
        let key = cursor.block()?;
        let value = cursor.block()?;
        let count = cursor.varint()?;
        if !(0..=HEADERS_PER_RECORD_MAX).contains(&count) {
            return Err(StreamsError::InvalidRecord(
                "a record's header count is out of bounds",
            ));
        }
        let mut headers = Vec::new();
        for _ in 0..count {
            let name = cursor.block()?.ok_or(CUT)?;
            headers.push((String::from_utf8_lossy(&name).into_owned(), cursor.block()?));
        }
        let timestamp = if self.header.attributes & LOG_APPEND_TIME_BIT != 0 {
            self.header.max_timestamp
        } else {
            self.header.base_timestamp.saturating_add(time_delta)
        };
        let offset = self.header.base_offset.saturating_add(offset_delta);
        Ok(BatchRecord {
            offset,
            timestamp: UnixMillis(timestamp),
            key,
            value,
            headers,
        })
    }
}

impl Iterator for BatchRecords {
    type Item = Result<BatchRecord, StreamsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let record = self.read();
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }
}

impl BatchRecord {
    /// The record under its topic's name.
    pub fn consumed(self, topic: &TopicName, partition: i32) -> ConsumedRecord {
        ConsumedRecord {
            topic: topic.clone(),
            partition,
            offset: self.offset,
            timestamp: self.timestamp,
            key: self.key,
            value: self.value,
            headers: self.headers,
        }
    }
}

#[derive(Debug)]
struct Cursor {
    bytes: Bytes,
    at: usize,
}

impl Cursor {
    fn byte(&mut self) -> Result<u8, StreamsError> {
        let byte = *self.bytes.get(self.at).ok_or(CUT)?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<i64, StreamsError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(StreamsError::InvalidRecord("a number in it has no end"))
    }

    /// Bytes behind their length; none for the length -1.
    fn block(&mut self) -> Result<Option<Bytes>, StreamsError> {
        let length = self.varint()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= self.bytes.len() - self.at);
        let end = self.at + length.ok_or(CUT)?;
        let block = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(Some(block))
    }
}

const CUT: StreamsError = StreamsError::InvalidRecord("a record ends beyond its batch");
const LOG_APPEND_TIME_BIT: i16 = 1 << 3;

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;
    use crate::batch;
    use crate::record::Record;

    fn records() -> Vec<Record> {
        let headers = vec![
            ("h".to_owned(), Some(Bytes::from("x"))),
            ("n".to_owned(), None),
        ];
        vec![
            Record {
                headers,
                timestamp: Some(UnixMillis(9)),
                ..Record::of_value("one")
            },
            Record {
                key: Some(Bytes::new()),
                ..Record::default()
            },
            Record::of_value("z".repeat(300)).with_key("k".repeat(70)),
        ]
    }

    fn decoded(batch: &Bytes) -> Result<Vec<BatchRecord>, StreamsError> {
        BatchRecords::of(batch)?.collect()
    }

    #[test]
    fn what_was_built_is_read_back() {
        let batch = batch::build(&records(), UnixMillis(5), None).unwrap();
        let read = decoded(&batch).unwrap();
        assert_eq!(read.len(), 3);
        for (at, (read, wrote)) in read.iter().zip(records()).enumerate() {
            assert_eq!(read.offset, i64::try_from(at).unwrap());
            assert_eq!(read.timestamp, wrote.timestamp.unwrap_or(UnixMillis(5)));
            assert_eq!((&read.key, &read.value), (&wrote.key, &wrote.value));
            assert_eq!(read.headers, wrote.headers);
        }
    }

    #[test]
    fn a_batch_that_claims_fewer_records_than_none_has_none() {
        let mut bytes = batch::build(&records(), UnixMillis(5), None)
            .unwrap()
            .to_vec();
        for count in [-1, i32::MIN] {
            bytes[57..61].copy_from_slice(&i32::to_be_bytes(count));
            assert_eq!(decoded(&Bytes::from(bytes.clone())).unwrap(), vec![]);
        }
    }

    #[test]
    fn damaged_bytes_are_errors_and_never_panic() {
        let whole = batch::build(&records(), UnixMillis(5), None).unwrap();
        let mut rng = Rng::from_seed(3);
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut bytes = whole.to_vec();
            for _ in 0..=rng.below(4) {
                let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                bytes[at] = rng.next_u64() as u8;
            }
            refused += usize::from(decoded(&Bytes::from(bytes)).is_err());
        }
        assert!(refused > 1_000, "{refused} were refused");
    }
}
