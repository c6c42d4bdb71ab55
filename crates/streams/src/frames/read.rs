//! Reads the parts of a frame back; whatever the bytes are, the worst answer is an error.

use base::UnixMillis;
use journal::Position;
use uuid::Uuid;

use super::{PartitionStanding, Range};
use crate::config::Durability;
use crate::error::StreamsError;
use crate::event_store::CommittedOffset;
use crate::group_config::GroupConfig;
use crate::groups::GroupKind;
use crate::index::{Away, Outline, StandingChunk};
use crate::limits::{PARTITIONS_PER_TOPIC_MAX, PRODUCER_BATCHES_REMEMBERED};
use crate::offsets::NotedGroup;
use crate::producers::{Producer, Sequenced};
use crate::share::Standing;
use crate::topic_config::TopicConfig;
use crate::unsettled::{Aborted, TransactionsStanding};

/// What is left to read of a frame.
pub(crate) struct Payload<'a>(pub(super) &'a [u8]);

impl<'a> Payload<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Payload(bytes)
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), StreamsError> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(DAMAGED),
        }
    }

    /// Bytes behind their count.
    pub(crate) fn list_of_bytes(&mut self) -> Result<&[u8], StreamsError> {
        let count = self.count()?;
        self.bytes(count)
    }

    fn bytes(&mut self, count: usize) -> Result<&[u8], StreamsError> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(DAMAGED)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], StreamsError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, StreamsError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, StreamsError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, StreamsError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn chunks(&mut self) -> Result<Vec<StandingChunk>, StreamsError> {
        let mut chunks = Vec::new();
        for _ in 0..self.count()? {
            chunks.push(self.chunk()?);
        }
        Ok(chunks)
    }

    fn chunk(&mut self) -> Result<StandingChunk, StreamsError> {
        match self.array()? {
            [0] => Ok(StandingChunk::Here(self.list_of_bytes()?.to_vec())),
            [1] => {
                let outline = Outline {
                    first_offset: self.i64()?,
                    lowest: Position(self.u64()?),
                    max_timestamp: self.i64()?,
                    bytes: self.u64()?,
                };
                let away = Away {
                    position: Position(self.u64()?),
                    bytes: self.u32()?,
                };
                Ok(StandingChunk::Away(outline, away))
            }
            _ => Err(DAMAGED),
        }
    }

    pub(crate) fn i64(&mut self) -> Result<i64, StreamsError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A count of entries; those are read one by one, so a wrong count takes no memory.
    pub(crate) fn count(&mut self) -> Result<usize, StreamsError> {
        usize::try_from(self.u32()?).map_err(|_| DAMAGED)
    }

    pub(crate) fn text(&mut self) -> Result<String, StreamsError> {
        let text = std::str::from_utf8(self.list_of_bytes()?).map_err(|_| DAMAGED)?;
        Ok(text.to_owned())
    }

    pub(crate) fn id(&mut self) -> Result<Uuid, StreamsError> {
        Ok(Uuid::from_bytes(self.array()?))
    }

    pub(super) fn durability(&mut self) -> Result<Durability, StreamsError> {
        match self.array()? {
            [0] => Ok(Durability::Memory),
            [1] => Ok(Durability::Os),
            [2] => Ok(Durability::Disk),
            _ => Err(DAMAGED),
        }
    }

    pub(super) fn ranges(&mut self) -> Result<Vec<Range>, StreamsError> {
        let mut ranges = Vec::new();
        let mut partitions = 0_u64;
        for _ in 0..self.count()? {
            let (first, count) = (self.u32()?, self.u32()?);
            // Whoever reads them goes through them one by one.
            partitions += u64::from(count);
            if partitions > PARTITIONS_PER_TOPIC_MAX as u64 || first.checked_add(count).is_none() {
                return Err(DAMAGED);
            }
            ranges.push((first, count));
        }
        Ok(ranges)
    }

    pub(super) fn noted_group(&mut self) -> Result<NotedGroup, StreamsError> {
        Ok(NotedGroup {
            kind: match self.array()? {
                [0] => GroupKind::Classic,
                [1] => GroupKind::Consumer,
                [2] => GroupKind::Share,
                [3] => GroupKind::Streams,
                _ => return Err(DAMAGED),
            },
            protocol_type: self.text()?,
            epoch: self.i32()?,
            emptied: Some(UnixMillis(self.i64()?)).filter(|at| at.0 >= 0),
        })
    }

    /// A group and numbers of partitions.
    pub(super) fn numbers(&mut self) -> Result<(String, Vec<u32>), StreamsError> {
        let group = self.text()?;
        let mut numbers = Vec::new();
        for _ in 0..self.count()? {
            numbers.push(self.u32()?);
        }
        Ok((group, numbers))
    }

    pub(super) fn share_standing(&mut self) -> Result<Standing, StreamsError> {
        let start = self.i64()?;
        let mut runs = Vec::new();
        for _ in 0..self.count()? {
            let (first, last) = (self.i64()?, self.i64()?);
            let deliveries = u16::from_le_bytes(self.array()?);
            runs.push((
                first,
                last,
                Some(deliveries).filter(|told| *told < u16::MAX),
            ));
        }
        Ok(Standing { start, runs })
    }

    pub(super) fn config(&mut self) -> Result<TopicConfig, StreamsError> {
        let set = self.settings()?;
        let set = set.iter().map(|(name, value)| (&**name, &**value));
        TopicConfig::of(set)
            .map_err(|_| StreamsError::Unreadable("a topic has a setting from a newer version"))
    }

    pub(super) fn group_config(&mut self) -> Result<GroupConfig, StreamsError> {
        let set = self.settings()?;
        let set = set.iter().map(|(name, value)| (&**name, &**value));
        GroupConfig::of(set)
            .map_err(|_| StreamsError::Unreadable("a group has a setting from a newer version"))
    }

    fn settings(&mut self) -> Result<Vec<(String, String)>, StreamsError> {
        let mut set = Vec::new();
        for _ in 0..self.count()? {
            set.push((self.text()?, self.text()?));
        }
        Ok(set)
    }

    pub(crate) fn committed(&mut self) -> Result<CommittedOffset, StreamsError> {
        Ok(CommittedOffset {
            offset: self.i64()?,
            leader_epoch: self.i32()?,
            at: UnixMillis(self.i64()?),
            metadata: self.text()?,
        })
    }

    pub(crate) fn flag(&mut self) -> Result<bool, StreamsError> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(DAMAGED),
        }
    }

    pub(super) fn transactions(&mut self) -> Result<TransactionsStanding, StreamsError> {
        let mut standing = TransactionsStanding::default();
        for _ in 0..self.count()? {
            standing.open.push((self.i64()?, self.i64()?));
        }
        for _ in 0..self.count()? {
            standing.aborted.push(Aborted {
                producer_id: self.i64()?,
                first: self.i64()?,
                last: self.i64()?,
                stable: self.i64()?,
            });
        }
        Ok(standing)
    }

    pub(super) fn standing(&mut self, version: u8) -> Result<PartitionStanding, StreamsError> {
        let mut standing = PartitionStanding {
            number: self.u32()?,
            start: self.i64()?,
            next: self.i64()?,
            records_in: self.u64()?,
            bytes_in: self.u64()?,
            producers: Vec::new(),
        };
        for _ in 0..self.count()? {
            let id = self.i64()?;
            let epoch = i16::from_le_bytes(self.array()?);
            let mut producer = Producer {
                epoch,
                last_timestamp: -1,
                heard_at: 0,
                batches: Default::default(),
            };
            let batches = self.count()?;
            if batches > PRODUCER_BATCHES_REMEMBERED {
                return Err(DAMAGED);
            }
            for _ in 0..batches {
                producer.batches.push_back(Sequenced {
                    first: self.i32()?,
                    last: self.i32()?,
                    base_offset: self.i64()?,
                    last_delta: self.i32()?,
                });
            }
            if version >= 2 {
                producer.last_timestamp = self.i64()?;
            }
            standing.producers.push((id, producer));
        }
        Ok(standing)
    }
}

pub(crate) const DAMAGED: StreamsError =
    StreamsError::Unreadable("a frame is not of its kind's shape");
