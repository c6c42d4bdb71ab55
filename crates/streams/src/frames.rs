//! What the store writes into the journal, byte for byte (integers little-endian, texts and lists
//! behind a `u32` length or count).
//!
//! | kind | payload of version 1, unless another is said |
//! | --- | --- |
//! | 1 batch | partition number `u32`, then the record batch as Kafka writes it |
//! | 2 store | cluster id text, next partition number `u32`, producer ids given up to `i64` |
//! | 3 topic | id 16 bytes, name text, durability `u8`, ranges of partition numbers (first, count); version 2 adds settings (name text, value text) |
//! | 4 topic deleted | id 16 bytes, ranges of partition numbers |
//! | 5 partition | number `u32`, start `i64`, next `i64`, records `u64`, bytes `u64`, producers; version 2 adds the time of each producer's last batch `i64` |
//! | 6 group offsets | group text, entries (number `u32`, offset `i64`, epoch `i32`, time `i64`, text) |
//! | 7 group deleted | group text |
//! | 8 snapshot end | position `u64` |
//! | 9 partition's transactions | number `u32`, open, aborted |
//! | 10 to 14 transactions | see `transactions::frames` |
//! | 30 group | group text, kind `u8`, protocol type text, epoch `i32`, emptied `i64` or -1 |
//! | 31 group offsets deleted | group text, partition numbers `u32` |
//! | 32 group members | group text, bytes as `groups::roll` lays them out; none when no members are kept |
//! | 33 group settings | group text, settings (name text, value text); none when nothing is set |
//! | 34 share state | group text, partition number `u32`, start `i64`, runs (first `i64`, last `i64`, deliveries `u16`, 65,535 of what is finished) |
//! | 35 share state gone | group text, partition numbers `u32` |
//! | 40 index chunk | partition number `u32`, a chunk as `index` lays it out |
//! | 41 index | number `u32`, chunks: 0 and the bytes, or 1, outline and where the bytes lie |
//! | 42 batch moved | as 1: a batch that stands elsewhere already |
//! | 43 compacted | number `u32`, offset `i64` before which the partition is compacted |
//! | 50 index piece | number `u32`, which piece from zero `u32`, whether it is the last `u8`, chunks as in 41 |
//! | 51 transactional id forgotten | see `transactions::frames` |
//!
//! A partition's number is the store's own, given once and never again, so that frames of a
//! deleted topic can never be taken for another's. Frames 2, 3, 5, 6, 30, 32, 33, 34, 41 and 50 say how things
//! stand, so that writing them once more changes nothing (of 50 only all pieces together do, batches
//! before the last included); a snapshot is just that for everything, and
//! frame 8 then says that all before its position is needed no more but for what the indexes point
//! to: batches, and chunks of the indexes themselves. Opening begins at the newest snapshot.

mod read;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use uuid::Uuid;

use crate::config::Durability;
use crate::error::StreamsError;
use crate::event_store::CommittedOffset;
use crate::group_config::GroupConfig;
use crate::index::StandingChunk;
use crate::offsets::NotedGroup;
use crate::producers::Producer;
use crate::share::Standing;
use crate::topic::TopicName;
use crate::topic_config::TopicConfig;
use crate::transactions::frames::TransactionChange;
use crate::unsettled::TransactionsStanding;
use write::{
    durability_code, group_kind_code, put_chunk, put_numbers, put_ranges, put_standing,
    put_transactions, put_u64,
};

pub(crate) use read::{DAMAGED, Payload};
pub(crate) use write::{put_bytes, put_committed, put_count, put_i64, put_text, put_u32};

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
    pub(crate) const GROUP_MEMBERS: u8 = 32;
    pub(crate) const GROUP_SETTINGS: u8 = 33;
    pub(crate) const SHARE_STATE: u8 = 34;
    pub(crate) const SHARE_STATE_GONE: u8 = 35;
    pub(crate) const INDEX_CHUNK: u8 = 40;
    pub(crate) const INDEX: u8 = 41;
    pub(crate) const BATCH_MOVED: u8 = 42;
    pub(crate) const COMPACTED: u8 = 43;
    pub(crate) const INDEX_PIECE: u8 = 50;
    pub(crate) const TRANSACTION_FORGOTTEN: u8 = 51;

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
            PARTITION_TRANSACTIONS => "partition transactions",
            TRANSACTION => "transaction",
            TRANSACTION_JOINS => "transaction joins",
            TRANSACTION_OFFSETS => "transaction offsets",
            TRANSACTION_DECIDED => "transaction decided",
            TRANSACTION_COMPLETED => "transaction completed",
            GROUP => "group",
            GROUP_OFFSETS_DELETED => "group offsets deleted",
            GROUP_MEMBERS => "group members",
            GROUP_SETTINGS => "group settings",
            SHARE_STATE => "share state",
            SHARE_STATE_GONE => "share state gone",
            INDEX_CHUNK => "index chunk",
            INDEX => "index",
            BATCH_MOVED => "batch moved",
            COMPACTED => "compacted",
            INDEX_PIECE => "index piece",
            TRANSACTION_FORGOTTEN => "transactional id forgotten",
            _ => "unknown",
        }
    }
}

/// The version of every kind but those of [`version_of`].
pub(crate) const VERSION: u8 = 1;

/// The version in which frames of a kind are written; older ones are read too.
pub(crate) fn version_of(kind: u8) -> u8 {
    match kind {
        kind::TOPIC | kind::PARTITION => 2,
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
    /// The members that the next process begins with; empty when it begins without.
    GroupMembers { group: String, roll: Vec<u8> },
    /// What is set for a group.
    GroupSettings { group: String, config: GroupConfig },
    /// How far a share group has come with a partition.
    ShareState {
        group: String,
        number: u32,
        standing: Standing,
    },
    /// A share group begins anew with these partitions.
    ShareStateGone { group: String, numbers: Vec<u32> },
    /// A snapshot that began at this position is complete.
    SnapshotEnd { began: u64 },
    /// How far a partition is compacted.
    Compacted { number: u32, until: i64 },
    /// Where a partition's batches lie.
    Index {
        number: u32,
        chunks: Vec<StandingChunk>,
    },
    /// The same in pieces, for a frame that would be too large.
    IndexPiece {
        number: u32,
        nth: u32,
        is_last: bool,
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
                put_numbers(&mut out, group, numbers);
                kind::GROUP_OFFSETS_DELETED
            }
            Change::GroupMembers { group, roll } => {
                put_text(&mut out, group);
                put_bytes(&mut out, roll);
                kind::GROUP_MEMBERS
            }
            Change::GroupSettings { group, config } => {
                put_text(&mut out, group);
                put_count(&mut out, config.all().len());
                for (name, value) in config.all() {
                    put_text(&mut out, name);
                    put_text(&mut out, &value);
                }
                kind::GROUP_SETTINGS
            }
            Change::ShareState {
                group,
                number,
                standing,
            } => {
                put_text(&mut out, group);
                put_u32(&mut out, *number);
                put_i64(&mut out, standing.start);
                put_count(&mut out, standing.runs.len());
                for (first, last, deliveries) in &standing.runs {
                    put_i64(&mut out, *first);
                    put_i64(&mut out, *last);
                    out.extend_from_slice(&deliveries.unwrap_or(u16::MAX).to_le_bytes());
                }
                kind::SHARE_STATE
            }
            Change::ShareStateGone { group, numbers } => {
                put_numbers(&mut out, group, numbers);
                kind::SHARE_STATE_GONE
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
            Change::IndexPiece {
                number,
                nth,
                is_last,
                chunks,
            } => {
                put_u32(&mut out, *number);
                put_u32(&mut out, *nth);
                out.push(u8::from(*is_last));
                put_count(&mut out, chunks.len());
                chunks.iter().for_each(|chunk| put_chunk(&mut out, chunk));
                kind::INDEX_PIECE
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
            kind::PARTITION => Change::Partition(from.standing(version)?),
            kind::PARTITION_TRANSACTIONS => Change::PartitionTransactions {
                number: from.u32()?,
                standing: from.transactions()?,
            },
            kind::TRANSACTION..=kind::TRANSACTION_COMPLETED | kind::TRANSACTION_FORGOTTEN => {
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
                let (group, numbers) = from.numbers()?;
                Change::GroupOffsetsDeleted { group, numbers }
            }
            kind::GROUP_MEMBERS => Change::GroupMembers {
                group: from.text()?,
                roll: from.list_of_bytes()?.to_vec(),
            },
            kind::GROUP_SETTINGS => Change::GroupSettings {
                group: from.text()?,
                config: from.group_config()?,
            },
            kind::SHARE_STATE => Change::ShareState {
                group: from.text()?,
                number: from.u32()?,
                standing: from.share_standing()?,
            },
            kind::SHARE_STATE_GONE => {
                let (group, numbers) = from.numbers()?;
                Change::ShareStateGone { group, numbers }
            }
            kind::SNAPSHOT_END => Change::SnapshotEnd { began: from.u64()? },
            kind::COMPACTED => Change::Compacted {
                number: from.u32()?,
                until: from.i64()?,
            },
            kind::INDEX => Change::Index {
                number: from.u32()?,
                chunks: from.chunks()?,
            },
            kind::INDEX_PIECE => Change::IndexPiece {
                number: from.u32()?,
                nth: from.u32()?,
                is_last: from.flag()?,
                chunks: from.chunks()?,
            },
            _ => {
                return Err(StreamsError::Unreadable(
                    "a frame is of a kind from a newer version",
                ));
            }
        };
        from.end()?;
        Ok(change)
    }
}
