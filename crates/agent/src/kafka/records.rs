//! Reads record batches of version 2 out of a fetch answer, without IO.
//!
//! Batches whose end is missing are left for the next fetch; every other damage is an error.
//! With committed reads, records of aborted transactions are left out.

use std::collections::HashSet;

use bytes::{Buf, Bytes};

use super::codec::Codec;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) offset: i64,
    /// Milliseconds since 1970.
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
    pub(crate) headers: Vec<(String, Option<Bytes>)>,
}

/// An aborted transaction, as fetch answers tell of it: producer id and first offset.
pub(crate) type Aborted = (i64, i64);

/// What one fetch answer brought of a partition.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) records: Vec<Record>,
    /// Where the next fetch goes on, if this one got anywhere.
    pub(crate) next: Option<i64>,
}

/// Reads the records from `from` on, up to `count_max` of them.
///
/// Errors: what does not fit the format; the peer's fault or the line's.
pub(crate) fn read(
    bytes: Bytes,
    from: i64,
    mut aborted: Vec<Aborted>,
    count_max: usize,
) -> Result<Fetched, String> {
    aborted.sort_unstable_by_key(|(_, first)| *first);
    let mut aborted = aborted.into_iter().peekable();
    let mut cut_off: HashSet<i64> = HashSet::new();
    let mut fetched = Fetched::default();
    let mut rest = bytes;
    while fetched.records.len() < count_max {
        let Some(batch) = next_batch(&mut rest)? else {
            break;
        };
        let head = Head::read(&batch)?;
        while let Some((producer, _)) = aborted.next_if(|(_, first)| *first <= head.last_offset) {
            cut_off.insert(producer);
        }
        if head.is_control() {
            // A marker of the end: whatever it says, the transaction is over.
            cut_off.remove(&head.producer);
        } else if !(head.is_transactional() && cut_off.contains(&head.producer)) {
            let all = head.records(batch)?;
            let wanted = all.into_iter().filter(|record| record.offset >= from);
            let room = count_max - fetched.records.len();
            let before = fetched.records.len();
            fetched.records.extend(wanted.take(room));
            if fetched.records.len() - before == room {
                fetched.next = fetched.records.last().map(|last| last.offset + 1);
                break;
            }
        }
        fetched.next = Some(head.last_offset + 1);
    }
    fetched.next = fetched.next.filter(|next| *next > from);
    Ok(fetched)
}

/// What stands before a batch's records.
struct Head {
    base_offset: i64,
    last_offset: i64,
    attributes: i16,
    base_timestamp: i64,
    max_timestamp: i64,
    producer: i64,
    count: i32,
}

impl Head {
    fn read(batch: &Bytes) -> Result<Head, String> {
        let mut head = batch.clone();
        let base_offset = head.get_i64();
        head.advance(8);
        if head.get_i8() != 2 {
            return Err("the records are of a format before Kafka 0.11".to_owned());
        }
        let checksum = head.get_u32();
        if checksum != crc32c::crc32c(&head) {
            return Err(format!("the batch at offset {base_offset} is damaged"));
        }
        let attributes = head.get_i16();
        let last_offset = base_offset.checked_add(i64::from(head.get_i32()));
        let (base_timestamp, max_timestamp) = (head.get_i64(), head.get_i64());
        let producer = head.get_i64();
        head.advance(6);
        Ok(Head {
            base_offset,
            last_offset: last_offset
                .filter(|last| *last >= base_offset && *last < i64::MAX)
                .ok_or_else(|| format!("the batch at offset {base_offset} ends nowhere"))?,
            attributes,
            base_timestamp,
            max_timestamp,
            producer,
            count: head.get_i32(),
        })
    }

    fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }

    fn records(&self, batch: Bytes) -> Result<Vec<Record>, String> {
        let codec = Codec::of_number(self.attributes & 0x7)
            .ok_or_else(|| "the records are packed in an unknown way".to_owned())?;
        let mut plain = codec
            .unpack(batch.slice(HEADER_BYTES..))
            .map_err(|error| error.to_string())?;
        let mut records = Vec::new();
        for _ in 0..self.count.max(0) {
            let record = self.record(&mut plain);
            let damaged = || format!("a record behind offset {} is damaged", self.base_offset);
            records.push(record.ok_or_else(damaged)?);
        }
        Ok(records)
    }

    fn record(&self, plain: &mut Bytes) -> Option<Record> {
        let len = usize::try_from(varint(plain)?).ok()?;
        let mut record = take(plain, len)?;
        take(&mut record, 1)?;
        let timestamp = self.base_timestamp.wrapping_add(varint(&mut record)?);
        let offset = self.base_offset.checked_add(varint(&mut record)?)?;
        if !(self.base_offset..=self.last_offset).contains(&offset) {
            return None;
        }
        let key = nullable(&mut record)?;
        let value = nullable(&mut record)?;
        let mut headers = Vec::new();
        for _ in 0..varint(&mut record)? {
            let name = nullable(&mut record)??;
            let name = String::from_utf8_lossy(&name).into_owned();
            headers.push((name, nullable(&mut record)?));
        }
        // By the broker's clock when the topic says so.
        let is_append_time = self.attributes & 0x8 != 0;
        Some(Record {
            offset,
            timestamp: if is_append_time {
                self.max_timestamp
            } else {
                timestamp
            },
            key,
            value,
            headers,
        })
    }
}

/// The next whole batch, if there is one.
fn next_batch(rest: &mut Bytes) -> Result<Option<Bytes>, String> {
    let mut head = rest.clone();
    if head.len() < LENGTH_FROM {
        return Ok(None);
    }
    head.advance(8);
    let len = head.get_i32();
    let len = usize::try_from(len)
        .ok()
        .filter(|len| LENGTH_FROM + len >= HEADER_BYTES);
    let len = LENGTH_FROM + len.ok_or("a batch is shorter than its header")?;
    Ok((rest.len() >= len).then(|| rest.split_to(len)))
}

fn take(bytes: &mut Bytes, len: usize) -> Option<Bytes> {
    (bytes.len() >= len).then(|| bytes.split_to(len))
}

/// Bytes behind their length; -1 stands for none.
fn nullable(bytes: &mut Bytes) -> Option<Option<Bytes>> {
    match varint(bytes)? {
        -1 => Some(None),
        len => take(bytes, usize::try_from(len).ok()?).map(Some),
    }
}

fn varint(bytes: &mut Bytes) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

/// Bytes before the first record.
const HEADER_BYTES: usize = 61;
/// A batch's length counts from here.
const LENGTH_FROM: usize = 12;

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
