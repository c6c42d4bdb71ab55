//! Reads a backup from its bytes as they come, and checks everything on the way.

use bytes::{Buf, Bytes, BytesMut};

use super::{
    BLOCK_HEAD_BYTES, BackupBlock, BackupEnd, BackupGroup, BackupHead, CRC_BYTES, MAGIC, VERSION,
    kind,
};
use crate::batch::BatchHeader;
use crate::limits::{BACKUP_BLOCK_BYTES_MAX, PARTITIONS_PER_TOPIC_MAX};

/// Why bytes are no backup, or none that is whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// Something else altogether.
    #[error("this is no backup of a topic: it does not begin as one")]
    NotABackup,
    /// Written by a newer version.
    #[error("the backup has format {0}, which this version cannot read: use a newer one")]
    NewerFormat(u32),
    /// Bytes are not those that were written.
    #[error("the backup is damaged at byte {position}{place}: {what}")]
    Damaged {
        /// Where the damaged block begins.
        position: u64,
        /// The partition and offset there, as far as they are known.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// The end is missing.
    #[error("the backup is cut short at byte {0}: its end is missing")]
    CutShort(u64),
    /// Whoever wrote it gave up.
    #[error("the backup was given up by who took it: {0}")]
    GivenUp(String),
}

/// Turns bytes into blocks that are whole and in order.
#[derive(Debug, Default)]
pub struct BackupReader {
    buffer: BytesMut,
    /// Bytes of the file before the buffer.
    position: u64,
    began: bool,
    head: Option<BackupHead>,
    /// By partition: the offset before which no batch may begin any more.
    next: Vec<i64>,
    last: Option<(u32, i64)>,
    seen: BackupEnd,
    ended: bool,
}

impl BackupReader {
    /// A reader at the beginning of a file.
    pub fn new() -> Self {
        BackupReader::default()
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next block, once all of its bytes are there.
    pub fn next_block(&mut self) -> Result<Option<BackupBlock>, BackupError> {
        if !self.began {
            if !self.read_preamble()? {
                return Ok(None);
            }
            self.began = true;
        }
        if self.ended {
            return match self.buffer.is_empty() {
                true => Ok(None),
                false => Err(self.damaged("something follows its end")),
            };
        }
        let Some((kind, length)) = self.announced()? else {
            return Ok(None);
        };
        let whole = BLOCK_HEAD_BYTES + length + CRC_BYTES;
        if self.buffer.len() < whole {
            return Ok(None);
        }
        let checked = BLOCK_HEAD_BYTES + length;
        let crc = (&self.buffer[checked..whole]).get_u32_le();
        if crc != crc32c::crc32c(&self.buffer[..checked]) {
            return Err(self.damaged("the block's checksum is wrong"));
        }
        let payload = self.buffer.split_to(whole).freeze();
        let payload = payload.slice(BLOCK_HEAD_BYTES..checked);
        let block = self.block(kind, payload)?;
        self.position += whole as u64;
        Ok(Some(block))
    }

    /// To be asked when there are no more bytes: what the backup holds, if it is whole.
    pub fn finish(&self) -> Result<BackupEnd, BackupError> {
        match self.ended && self.buffer.is_empty() {
            true => Ok(self.seen),
            false => Err(BackupError::CutShort(
                self.position + self.buffer.len() as u64,
            )),
        }
    }

    /// What the backup is of, once that was read.
    pub fn head(&self) -> Option<&BackupHead> {
        self.head.as_ref()
    }

    fn read_preamble(&mut self) -> Result<bool, BackupError> {
        let known = self.buffer.len().min(MAGIC.len());
        if self.buffer[..known] != MAGIC[..known] {
            return Err(BackupError::NotABackup);
        }
        if self.buffer.len() < PREAMBLE_BYTES {
            return Ok(false);
        }
        let preamble = self.buffer.split_to(PREAMBLE_BYTES);
        self.position += PREAMBLE_BYTES as u64;
        match (&preamble[MAGIC.len()..]).get_u32_le() {
            VERSION => Ok(true),
            version => Err(BackupError::NewerFormat(version)),
        }
    }

    /// Kind and length of the next block. A length that no block has is damage, and never room.
    fn announced(&self) -> Result<Option<(u8, usize)>, BackupError> {
        let Some(mut head) = self.buffer.get(..BLOCK_HEAD_BYTES) else {
            return Ok(None);
        };
        let (kind, length) = (head.get_u8(), head.get_u32_le() as usize);
        match length <= BACKUP_BLOCK_BYTES_MAX {
            true => Ok(Some((kind, length))),
            false => Err(self.damaged("a block cannot be that long")),
        }
    }

    fn block(&mut self, kind: u8, payload: Bytes) -> Result<BackupBlock, BackupError> {
        if (kind == kind::HEAD) != self.head.is_none() {
            return Err(self.damaged("the head is not where it belongs"));
        }
        match kind {
            kind::HEAD => {
                let head: BackupHead = self.json(&payload)?;
                let is_sane = |range: &super::BackupRange| (0..=range.end).contains(&range.start);
                let count = head.partitions.len();
                if !(1..=PARTITIONS_PER_TOPIC_MAX as usize).contains(&count)
                    || !head.partitions.iter().all(is_sane)
                {
                    return Err(self.damaged("its partitions are not possible"));
                }
                self.next = vec![0; count];
                self.head = Some(head.clone());
                Ok(BackupBlock::Head(head))
            }
            kind::BATCH => self.batch(payload),
            kind::GROUP => {
                let group: BackupGroup = self.json(&payload)?;
                self.seen.groups += 1;
                Ok(BackupBlock::Group(group))
            }
            kind::FAILED => {
                let reason = String::from_utf8_lossy(&payload).into_owned();
                Err(BackupError::GivenUp(reason))
            }
            kind::END => {
                let end: BackupEnd = self.json(&payload)?;
                if end != self.seen {
                    return Err(self.damaged("it does not hold what its end says"));
                }
                self.ended = true;
                Ok(BackupBlock::End(end))
            }
            _ => Err(self.damaged("a block is of no known kind")),
        }
    }

    fn batch(&mut self, payload: Bytes) -> Result<BackupBlock, BackupError> {
        let Some(partition) = payload.first_chunk::<4>() else {
            return Err(self.damaged("a batch is cut off"));
        };
        let partition = u32::from_le_bytes(*partition);
        let batch = payload.slice(4..);
        let header = BatchHeader::check_stored(&batch);
        let header = header.map_err(|error| self.damaged(&base::report(&error)))?;
        self.last = Some((partition, header.base_offset));
        let range = self
            .head
            .as_ref()
            .and_then(|h| h.partitions.get(partition as usize).copied());
        let (Some(range), Some(next)) = (range, self.next.get(partition as usize).copied()) else {
            return Err(self.damaged("a batch is of a partition that is not there"));
        };
        let end = header.base_offset.checked_add(header.offsets());
        let end = end.filter(|end| header.base_offset >= next && *end <= range.end);
        let Some(end) = end.filter(|_| header.bytes == batch.len()) else {
            return Err(self.damaged("a batch is not where its offset belongs"));
        };
        self.next[partition as usize] = end;
        self.seen.batches += 1;
        self.seen.records += u64::from(header.record_count.unsigned_abs());
        self.seen.bytes += batch.len() as u64;
        Ok(BackupBlock::Batch(partition, batch))
    }

    fn json<'a, T: serde::Deserialize<'a>>(&self, payload: &'a [u8]) -> Result<T, BackupError> {
        serde_json::from_slice(payload).map_err(|error| self.damaged(&error.to_string()))
    }

    fn damaged(&self, what: &str) -> BackupError {
        let place = self.last.map_or_else(String::new, |(partition, offset)| {
            format!(" (at or after partition {partition}, offset {offset})")
        });
        BackupError::Damaged {
            position: self.position,
            place,
            what: what.to_owned(),
        }
    }
}

const PREAMBLE_BYTES: usize = 12;
