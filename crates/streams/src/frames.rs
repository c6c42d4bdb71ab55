//! What the store writes into the journal, byte for byte (integers little-endian, texts and lists
//! behind a `u32` length or count).
//!
//! | kind | payload of version 1, unless another is said |
//! | --- | --- |
//! | 1 batch | partition number `u32`, then the record batch as Kafka writes it |
//! | 2 store | cluster id text, next partition number `u32`, producer ids given up to `i64` |
//! | 3 topic | id 16 bytes, name text, durability `u8`, ranges of partition numbers (first, count); version 2 adds settings (name text, value text) |
//! | 4 topic deleted | id 16 bytes, ranges of partition numbers |
//! | 5 partition | number `u32`, start `i64`, next `i64`, records `u64`, bytes `u64`, producers |
//! | 6 group offsets | group text, entries (number `u32`, offset `i64`, epoch `i32`, time `i64`, text) |
//! | 7 group deleted | group text |
//! | 8 snapshot end | position `u64` |
//! | 9 partition's transactions | number `u32`, open, aborted |
//! | 10 to 14 transactions | see `transactions::frames` |
//! | 30 group | group text, kind `u8`, protocol type text, epoch `i32`, emptied `i64` or -1 |
//! | 31 group offsets deleted | group text, partition numbers `u32` |
//! | 40 index chunk | partition number `u32`, a chunk as `index` lays it out |
//! | 41 index | number `u32`, chunks: 0 and the bytes, or 1, outline and where the bytes lie |
//! | 42 batch moved | as 1: a batch that stands elsewhere already |
//! | 43 compacted | number `u32`, offset `i64` before which the partition is compacted |
//!
//! A partition's number is the store's own, given once and never again, so that frames of a
//! deleted topic can never be taken for another's. Frames 2, 3, 5, 6, 30 and 41 say how things
//! stand, so that writing them once more changes nothing; a snapshot is just that for everything, and
//! frame 8 then says that all before its position is needed no more but for what the indexes point
//! to: batches, and chunks of the indexes themselves. Opening begins at the newest snapshot.

use std::sync::Arc;

use base::UnixMillis;
use journal::Position;
use uuid::Uuid;

use crate::config::Durability;
use crate::error::StreamsError;
use crate::event_store::CommittedOffset;
use crate::groups::GroupKind;
use crate::index::{Away, Outline, StandingChunk};
use crate::limits::{PARTITIONS_PER_TOPIC_MAX, PRODUCER_BATCHES_REMEMBERED};
use crate::offsets::NotedGroup;
use crate::producers::{Producer, Sequenced};
use crate::topic::TopicName;
use crate::topic_config::TopicConfig;
use crate::transactions::frames::TransactionChange;
use crate::unsettled::{Aborted, TransactionsStanding};

/// Kinds of frames.
pub(crate) mod kind {
    pub(crate) const BATCH: u8 = 1;
    pub(crate) const STORE: u8 = 2;
    pub(crate) const TOPIC: u8 = 3;
    pub(crate) const TOPIC_DELETED: u8 = 4;
    pub(crate) const PARTITION: u8 = 5;
    pub(crate) const GROUP_OFFSETS: u8 = 6;
    pub(crate) const GROUP_DELETED: u8 = 7;
    pub(crate) const SNAPSHOT_END: u8 = 8;
    pub(crate) const PARTITION_TRANSACTIONS: u8 = 9;
    pub(crate) const TRANSACTION: u8 = 10;
    pub(crate) const TRANSACTION_JOINS: u8 = 11;
    pub(crate) const TRANSACTION_OFFSETS: u8 = 12;
    pub(crate) const TRANSACTION_DECIDED: u8 = 13;
    pub(crate) const TRANSACTION_COMPLETED: u8 = 14;
    pub(crate) const GROUP: u8 = 30;
    pub(crate) const GROUP_OFFSETS_DELETED: u8 = 31;
    pub(crate) const INDEX_CHUNK: u8 = 40;
    pub(crate) const INDEX: u8 = 41;
    pub(crate) const BATCH_MOVED: u8 = 42;
    pub(crate) const COMPACTED: u8 = 43;

    /// What people call a kind.
    pub(crate) fn name(kind: u8) -> &'static str {
        match kind {
            BATCH => "batch",
            STORE => "store",
            TOPIC => "topic",
            TOPIC_DELETED => "topic deleted",
            PARTITION => "partition",
            GROUP_OFFSETS => "group offsets",
            GROUP_DELETED => "group deleted",
            SNAPSHOT_END => "snapshot end",
            INDEX_CHUNK => "index chunk",
            INDEX => "index",
            BATCH_MOVED => "batch moved",
            COMPACTED => "compacted",
            _ => "unknown",
        }
    }
}

/// The version of every kind but those of [`version_of`].
pub(crate) const VERSION: u8 = 1;

/// The version in which frames of a kind are written; older ones are read too.
pub(crate) fn version_of(kind: u8) -> u8 {
    match kind {
        kind::TOPIC => 2,
        _ => VERSION,
    }
}

/// Consecutive partition numbers: first and count.
pub(crate) type Range = (u32, u32);

/// A frame that is no batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The store itself.
    Store {
        cluster_id: String,
        next_partition: u32,
        producer_ids: i64,
    },
    /// A topic as it stands.
    Topic {
        id: Uuid,
        name: TopicName,
        durability: Durability,
        ranges: Vec<Range>,
        config: TopicConfig,
    },
    /// A topic is gone.
    TopicDeleted { id: Uuid, ranges: Vec<Range> },
    /// A partition as it stands, but for its batches.
    Partition(PartitionStanding),
    /// A partition's transactions as they stand, or a part of them.
    PartitionTransactions {
        number: u32,
        standing: TransactionsStanding,
    },
    /// A change of a transactional id.
    Transaction {
        id: Arc<str>,
        change: TransactionChange,
    },
    /// Offsets of a group; those not named stay.
    GroupOffsets {
        group: String,
        offsets: Vec<(u32, CommittedOffset)>,
    },
    /// A group is gone with its offsets.
    GroupDeleted { group: String },
    /// A group as it stands, but for its offsets.
    Group { group: String, noted: NotedGroup },
    /// These offsets of a group are gone.
    GroupOffsetsDeleted { group: String, numbers: Vec<u32> },
    /// A snapshot that began at this position is complete.
    SnapshotEnd { began: u64 },
    /// How far a partition is compacted.
    Compacted { number: u32, until: i64 },
    /// Where a partition's batches lie.
    Index {
        number: u32,
        chunks: Vec<StandingChunk>,
    },
}

/// A partition but for its batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionStanding {
    pub(crate) number: u32,
    pub(crate) start: i64,
    pub(crate) next: i64,
    pub(crate) records_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) producers: Vec<(i64, Producer)>,
}

impl Change {
    /// The frame's kind and payload.
    pub(crate) fn encode(&self) -> (u8, Vec<u8>) {
        let mut out = Vec::new();
        let kind = match self {
            Change::Store {
                cluster_id,
                next_partition,
                producer_ids,
            } => {
                put_text(&mut out, cluster_id);
                put_u32(&mut out, *next_partition);
                put_i64(&mut out, *producer_ids);
                kind::STORE
            }
            Change::Topic {
                id,
                name,
                durability,
                ranges,
                config,
            } => {
                out.extend_from_slice(id.as_bytes());
                put_text(&mut out, name.wire_name());
                out.push(durability_code(*durability));
                put_ranges(&mut out, ranges);
                put_count(&mut out, config.all().count());
                for (name, value) in config.all() {
                    put_text(&mut out, name);
                    put_text(&mut out, value);
                }
                kind::TOPIC
            }
            Change::TopicDeleted { id, ranges } => {
                out.extend_from_slice(id.as_bytes());
                put_ranges(&mut out, ranges);
                kind::TOPIC_DELETED
            }
            Change::Partition(standing) => {
                put_standing(&mut out, standing);
                kind::PARTITION
            }
            Change::PartitionTransactions { number, standing } => {
                put_u32(&mut out, *number);
                put_transactions(&mut out, standing);
                kind::PARTITION_TRANSACTIONS
            }
            Change::Transaction { id, change } => change.encode(id, &mut out),
            Change::GroupOffsets { group, offsets } => {
                put_text(&mut out, group);
                put_count(&mut out, offsets.len());
                for (number, committed) in offsets {
                    put_u32(&mut out, *number);
                    put_committed(&mut out, committed);
                }
                kind::GROUP_OFFSETS
            }
            Change::GroupDeleted { group } => {
                put_text(&mut out, group);
                kind::GROUP_DELETED
            }
            Change::Group { group, noted } => {
                put_text(&mut out, group);
                out.push(group_kind_code(noted.kind));
                put_text(&mut out, &noted.protocol_type);
                put_u32(&mut out, noted.epoch as u32);
                put_i64(&mut out, noted.emptied.map_or(-1, |at| at.0));
                kind::GROUP
            }
            Change::GroupOffsetsDeleted { group, numbers } => {
                put_text(&mut out, group);
                put_count(&mut out, numbers.len());
                numbers.iter().for_each(|number| put_u32(&mut out, *number));
                kind::GROUP_OFFSETS_DELETED
            }
            Change::SnapshotEnd { began } => {
                put_u64(&mut out, *began);
                kind::SNAPSHOT_END
            }
            Change::Compacted { number, until } => {
                put_u32(&mut out, *number);
                put_i64(&mut out, *until);
                kind::COMPACTED
            }
            Change::Index { number, chunks } => {
                put_u32(&mut out, *number);
                put_count(&mut out, chunks.len());
                chunks.iter().for_each(|chunk| put_chunk(&mut out, chunk));
                kind::INDEX
            }
        };
        (kind, out)
    }

    /// Reads a frame back; a kind or version of a later Thalweg is an error, not a guess.
    pub(crate) fn decode(kind: u8, version: u8, payload: &[u8]) -> Result<Self, StreamsError> {
        if !(VERSION..=version_of(kind)).contains(&version) {
            return Err(StreamsError::Unreadable(
                "a frame was written by a newer version",
            ));
        }
        let mut from = Payload(payload);
        let change = match kind {
            kind::STORE => Change::Store {
                cluster_id: from.text()?,
                next_partition: from.u32()?,
                producer_ids: from.i64()?,
            },
            kind::TOPIC => Change::Topic {
                id: from.id()?,
                name: from.text()?.parse()?,
                durability: from.durability()?,
                ranges: from.ranges()?,
                config: if version >= 2 {
                    from.config()?
                } else {
                    TopicConfig::default()
                },
            },
            kind::TOPIC_DELETED => Change::TopicDeleted {
                id: from.id()?,
                ranges: from.ranges()?,
            },
            kind::PARTITION => Change::Partition(from.standing()?),
            kind::PARTITION_TRANSACTIONS => Change::PartitionTransactions {
                number: from.u32()?,
                standing: from.transactions()?,
            },
            kind::TRANSACTION..=kind::TRANSACTION_COMPLETED => {
                let (id, change) = TransactionChange::decode(kind, &mut from)?;
                Change::Transaction { id, change }
            }
            kind::GROUP_OFFSETS => {
                let group = from.text()?;
                let mut offsets = Vec::new();
                for _ in 0..from.count()? {
                    offsets.push((from.u32()?, from.committed()?));
                }
                Change::GroupOffsets { group, offsets }
            }
            kind::GROUP_DELETED => Change::GroupDeleted {
                group: from.text()?,
            },
            kind::GROUP => Change::Group {
                group: from.text()?,
                noted: from.noted_group()?,
            },
            kind::GROUP_OFFSETS_DELETED => {
                let group = from.text()?;
                let mut numbers = Vec::new();
                for _ in 0..from.count()? {
                    numbers.push(from.u32()?);
                }
                Change::GroupOffsetsDeleted { group, numbers }
            }
            kind::SNAPSHOT_END => Change::SnapshotEnd { began: from.u64()? },
            kind::COMPACTED => Change::Compacted {
                number: from.u32()?,
                until: from.i64()?,
            },
            kind::INDEX => {
                let number = from.u32()?;
                let mut chunks = Vec::new();
                for _ in 0..from.count()? {
                    chunks.push(from.chunk()?);
                }
                Change::Index { number, chunks }
            }
            _ => {
                return Err(StreamsError::Unreadable(
                    "a frame is of a kind from a newer version",
                ));
            }
        };
        if from.0.is_empty() {
            Ok(change)
        } else {
            Err(DAMAGED)
        }
    }
}

pub(crate) struct Payload<'a>(&'a [u8]);

impl Payload<'_> {
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

    fn i32(&mut self) -> Result<i32, StreamsError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, StreamsError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn chunk(&mut self) -> Result<StandingChunk, StreamsError> {
        match self.array()? {
            [0] => {
                let count = self.count()?;
                Ok(StandingChunk::Here(self.bytes(count)?.to_vec()))
            }
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
        let count = self.count()?;
        let text = std::str::from_utf8(self.bytes(count)?).map_err(|_| DAMAGED)?;
        Ok(text.to_owned())
    }

    fn id(&mut self) -> Result<Uuid, StreamsError> {
        Ok(Uuid::from_bytes(self.array()?))
    }

    fn durability(&mut self) -> Result<Durability, StreamsError> {
        match self.array()? {
            [0] => Ok(Durability::Memory),
            [1] => Ok(Durability::Os),
            [2] => Ok(Durability::Disk),
            _ => Err(DAMAGED),
        }
    }

    fn ranges(&mut self) -> Result<Vec<Range>, StreamsError> {
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

    fn noted_group(&mut self) -> Result<NotedGroup, StreamsError> {
        Ok(NotedGroup {
            kind: match self.array()? {
                [0] => GroupKind::Classic,
                [1] => GroupKind::Consumer,
                _ => return Err(DAMAGED),
            },
            protocol_type: self.text()?,
            epoch: self.i32()?,
            emptied: Some(UnixMillis(self.i64()?)).filter(|at| at.0 >= 0),
        })
    }

    fn config(&mut self) -> Result<TopicConfig, StreamsError> {
        let mut set = Vec::new();
        for _ in 0..self.count()? {
            set.push((self.text()?, self.text()?));
        }
        let set = set.iter().map(|(name, value)| (&**name, &**value));
        TopicConfig::of(set)
            .map_err(|_| StreamsError::Unreadable("a topic has a setting from a newer version"))
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

    fn transactions(&mut self) -> Result<TransactionsStanding, StreamsError> {
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

    fn standing(&mut self) -> Result<PartitionStanding, StreamsError> {
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
            standing.producers.push((id, producer));
        }
        Ok(standing)
    }
}

fn put_standing(out: &mut Vec<u8>, standing: &PartitionStanding) {
    put_u32(out, standing.number);
    put_i64(out, standing.start);
    put_i64(out, standing.next);
    put_u64(out, standing.records_in);
    put_u64(out, standing.bytes_in);
    put_count(out, standing.producers.len());
    for (id, producer) in &standing.producers {
        put_i64(out, *id);
        out.extend_from_slice(&producer.epoch.to_le_bytes());
        put_count(out, producer.batches.len());
        for batch in &producer.batches {
            out.extend_from_slice(&batch.first.to_le_bytes());
            out.extend_from_slice(&batch.last.to_le_bytes());
            put_i64(out, batch.base_offset);
            out.extend_from_slice(&batch.last_delta.to_le_bytes());
        }
    }
}

fn put_chunk(out: &mut Vec<u8>, chunk: &StandingChunk) {
    match chunk {
        StandingChunk::Here(bytes) => {
            out.push(0);
            put_count(out, bytes.len());
            out.extend_from_slice(bytes);
        }
        StandingChunk::Away(outline, away) => {
            out.push(1);
            put_i64(out, outline.first_offset);
            put_u64(out, outline.lowest.0);
            put_i64(out, outline.max_timestamp);
            put_u64(out, outline.bytes);
            put_u64(out, away.position.0);
            put_u32(out, away.bytes);
        }
    }
}

pub(crate) fn put_committed(out: &mut Vec<u8>, committed: &CommittedOffset) {
    put_i64(out, committed.offset);
    put_u32(out, committed.leader_epoch as u32);
    put_i64(out, committed.at.0);
    put_text(out, &committed.metadata);
}

fn put_transactions(out: &mut Vec<u8>, standing: &TransactionsStanding) {
    put_count(out, standing.open.len());
    for (producer_id, first) in &standing.open {
        put_i64(out, *producer_id);
        put_i64(out, *first);
    }
    put_count(out, standing.aborted.len());
    for aborted in &standing.aborted {
        put_i64(out, aborted.producer_id);
        put_i64(out, aborted.first);
        put_i64(out, aborted.last);
        put_i64(out, aborted.stable);
    }
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[Range]) {
    put_count(out, ranges.len());
    for (first, count) in ranges {
        put_u32(out, *first);
        put_u32(out, *count);
    }
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) {
    put_u32(
        out,
        u32::try_from(count).expect("limits keep every list below 2^32"),
    );
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn durability_code(durability: Durability) -> u8 {
    match durability {
        Durability::Memory => 0,
        Durability::Os => 1,
        Durability::Disk => 2,
    }
}

fn group_kind_code(kind: GroupKind) -> u8 {
    match kind {
        GroupKind::Classic => 0,
        GroupKind::Consumer => 1,
    }
}

pub(crate) const DAMAGED: StreamsError =
    StreamsError::Unreadable("a frame is not of its kind's shape");

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<Change> {
        let committed = CommittedOffset {
            offset: 5,
            leader_epoch: -1,
            metadata: "m".into(),
            at: UnixMillis(9),
        };
        let batch = Sequenced {
            first: 1,
            last: 2,
            base_offset: 3,
            last_delta: 1,
        };
        let producer = Producer {
            epoch: 4,
            batches: [batch].into(),
        };
        let id = Uuid::from_u128(77);
        vec![
            Change::Store {
                cluster_id: "c".into(),
                next_partition: 3,
                producer_ids: 1_000,
            },
            Change::Topic {
                id,
                name: "/s:t".parse().unwrap(),
                durability: Durability::Os,
                ranges: vec![(0, 3), (9, 1)],
                config: TopicConfig::of([("retention.ms", "5")]).unwrap(),
            },
            Change::TopicDeleted {
                id,
                ranges: vec![(0, 3)],
            },
            Change::Partition(PartitionStanding {
                number: 2,
                start: 1,
                next: 9,
                records_in: 8,
                bytes_in: 800,
                producers: vec![(6, producer)],
            }),
            Change::GroupOffsets {
                group: "g".into(),
                offsets: vec![(2, committed)],
            },
            Change::PartitionTransactions {
                number: 2,
                standing: TransactionsStanding {
                    open: vec![(6, 4)],
                    aborted: vec![Aborted {
                        producer_id: 7,
                        first: 1,
                        last: 3,
                        stable: 4,
                    }],
                },
            },
            Change::GroupDeleted { group: "g".into() },
            Change::Group {
                group: "g".into(),
                noted: NotedGroup {
                    kind: GroupKind::Consumer,
                    protocol_type: "consumer".into(),
                    epoch: 7,
                    emptied: None,
                },
            },
            Change::GroupOffsetsDeleted {
                group: "g".into(),
                numbers: vec![1, 5],
            },
            Change::SnapshotEnd { began: 4_096 },
            Change::Compacted {
                number: 5,
                until: 77,
            },
            Change::Index {
                number: 5,
                chunks: vec![
                    StandingChunk::Here(vec![1, 2, 3]),
                    StandingChunk::Away(
                        Outline {
                            first_offset: 1,
                            lowest: Position(2),
                            max_timestamp: -1,
                            bytes: 4,
                        },
                        Away {
                            position: Position(7),
                            bytes: 48,
                        },
                    ),
                ],
            },
        ]
    }

    #[test]
    fn every_change_reads_back() {
        for change in changes() {
            let (kind, payload) = change.encode();
            let version = version_of(kind);
            assert_eq!(Change::decode(kind, version, &payload).unwrap(), change);
        }
    }

    #[test]
    fn a_topic_of_version_1_has_no_settings() {
        let mut payload = vec![7; 16];
        put_text(&mut payload, "t");
        payload.push(2);
        put_ranges(&mut payload, &[(0, 3)]);
        let change = Change::decode(kind::TOPIC, 1, &payload).unwrap();
        let wanted = Change::Topic {
            id: Uuid::from_bytes([7; 16]),
            name: "t".parse().unwrap(),
            durability: Durability::Disk,
            ranges: vec![(0, 3)],
            config: TopicConfig::default(),
        };
        assert_eq!(change, wanted);
    }

    #[test]
    fn cuts_and_newer_versions_are_errors() {
        for change in changes() {
            let (kind, payload) = change.encode();
            for len in 0..payload.len() {
                assert!(
                    Change::decode(kind, version_of(kind), &payload[..len]).is_err(),
                    "{change:?}"
                );
            }
            assert!(Change::decode(kind, version_of(kind) + 1, &payload).is_err());
            assert!(Change::decode(kind, 0, &payload).is_err());
        }
        assert!(Change::decode(99, VERSION, &[]).is_err());
    }
}
