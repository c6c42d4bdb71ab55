//! Rebuilds the store from the journal's frames, in their order.
//!
//! The journal has checked every byte, so a frame that makes no sense was written by a newer
//! version and ends the opening. A batch may come before the frame that names its topic (whose
//! older twin was reclaimed, and which a snapshot wrote again), so partitions are collected by
//! number and find their topics at the end; those that nobody claims belonged to deleted topics.

use std::collections::HashMap;
use std::sync::Arc;

use journal::{FrameRef, Position};
use uuid::Uuid;

use crate::batch::BatchHeader;
use crate::config::Durability;
use crate::error::StreamsError;
use crate::frames::{Change, Range, VERSION, kind};
use crate::index::{BatchIndex, StandingChunk};
use crate::offsets::{OffsetChange, Offsets};
use crate::partition::State;
use crate::share::Standing;
use crate::topic::TopicName;
use crate::topic_config::TopicConfig;
use crate::transactions::table::Table;

/// What opening the store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Frames read from the journal.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Topics.
    pub topics: usize,
    /// Partitions.
    pub partitions: usize,
    /// Records that can be read.
    pub records: u64,
    /// Groups with committed offsets.
    pub groups: usize,
    /// Bytes cut from the journal's end since they were not whole; nobody was told that they are
    /// on the disk.
    pub cut_bytes: u64,
    /// Bytes in the journal's middle that have gone bad; what lay there is lost.
    pub damaged_bytes: u64,
}

/// The store as far as the frames go that were seen.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) cluster_id: Option<String>,
    pub(crate) next_partition: u32,
    pub(crate) producer_ids: i64,
    pub(crate) topics: HashMap<Uuid, ReplayedTopic>,
    pub(crate) partitions: HashMap<u32, State>,
    pub(crate) offsets: Offsets,
    /// How far share groups have come, by partition number.
    pub(crate) shares: HashMap<String, HashMap<u32, Standing>>,
    pub(crate) transactions: Table,
    /// Where the newest complete snapshot began.
    pub(crate) snapshot_began: u64,
    /// The index that is told in pieces: of which partition, how many so far, their chunks.
    index_pieces: (u32, u32, Vec<StandingChunk>),
}

/// A topic that is there.
#[derive(Clone, Debug)]
pub(crate) struct ReplayedTopic {
    pub(crate) name: TopicName,
    pub(crate) durability: Durability,
    pub(crate) ranges: Vec<Range>,
    pub(crate) config: TopicConfig,
}

impl Replay {
    /// Takes in the next frame.
    pub(crate) fn visit(&mut self, frame: &FrameRef<'_>) -> Result<(), StreamsError> {
        match frame.kind {
            kind::BATCH => return self.batch(frame),
            // Only what the indexes say of them counts; a batch still lies where it lay before.
            kind::INDEX_CHUNK | kind::BATCH_MOVED => return Ok(()),
            _ => {}
        }
        match Change::decode(frame.kind, frame.version, frame.payload)? {
            Change::Store {
                cluster_id,
                next_partition,
                producer_ids,
            } => {
                self.cluster_id = Some(cluster_id);
                self.next_partition = self.next_partition.max(next_partition);
                self.producer_ids = self.producer_ids.max(producer_ids);
            }
            Change::Topic {
                id,
                name,
                durability,
                ranges,
                config,
            } => {
                self.note_numbers(&ranges);
                self.topics.insert(
                    id,
                    ReplayedTopic {
                        name,
                        durability,
                        ranges,
                        config,
                    },
                );
            }
            Change::TopicDeleted { id, ranges } => {
                self.note_numbers(&ranges);
                self.topics.remove(&id);
                for (first, count) in &ranges {
                    let numbers = *first..first.saturating_add(*count);
                    numbers.for_each(|number| drop(self.partitions.remove(&number)));
                }
                self.transactions.forget_partitions(&ranges);
                let is_gone = |number: u32| {
                    let mut ranges = ranges.iter();
                    ranges.any(|(first, count)| number.wrapping_sub(*first) < *count)
                };
                for shares in self.shares.values_mut() {
                    shares.retain(|number, _| !is_gone(*number));
                }
                self.offsets.apply(OffsetChange::DeletePartitions(ranges));
            }
            Change::Partition(standing) => {
                self.note_numbers(&[(standing.number, 1)]);
                self.partitions
                    .entry(standing.number)
                    .or_default()
                    .restore(standing);
            }
            Change::PartitionTransactions { number, standing } => {
                let state = self.partitions.entry(number).or_default();
                state.transactions.restore(standing);
            }
            Change::Transaction { id, change } => {
                for (group, offsets) in self.transactions.apply(&id, change) {
                    let offsets = offsets.into_iter().collect();
                    self.offsets.apply(OffsetChange::Commit(group, offsets));
                }
            }
            Change::GroupOffsets { group, offsets } => {
                self.offsets
                    .apply(OffsetChange::Commit(Arc::from(group), offsets));
            }
            Change::GroupDeleted { group } => {
                self.offsets.unnote(&group);
                self.shares.remove(&group);
                self.offsets
                    .apply(OffsetChange::DeleteGroup(Arc::from(group)));
            }
            Change::Group { group, noted } => self.offsets.restore(Arc::from(group), noted),
            Change::GroupMembers { group, roll } => self.offsets.keep(&Arc::from(group), roll),
            Change::GroupSettings { group, config } => self.offsets.set(Arc::from(group), config),
            Change::GroupOffsetsDeleted { group, numbers } => {
                self.offsets
                    .apply(OffsetChange::Delete(Arc::from(group), numbers));
            }
            Change::ShareState {
                group,
                number,
                standing,
            } => {
                let shares = self.shares.entry(group).or_default();
                shares.insert(number, standing);
            }
            Change::ShareStateGone { group, numbers } => {
                let shares = self.shares.entry(group).or_default();
                shares.retain(|number, _| !numbers.contains(number));
            }
            Change::SnapshotEnd { began } => self.snapshot_began = began,
            Change::Compacted { number, until } => {
                self.note_numbers(&[(number, 1)]);
                let state = self.partitions.entry(number).or_default();
                state.clean_end = until;
            }
            Change::Index { number, chunks } => {
                self.note_numbers(&[(number, 1)]);
                self.set_index(number, chunks)?;
            }
            Change::IndexPiece {
                number,
                nth,
                is_last,
                chunks,
            } => {
                self.note_numbers(&[(number, 1)]);
                // A crash may have cut the last ones off, and reclaiming the first ones; a whole
                // snapshot follows then.
                if nth == 0 {
                    self.index_pieces = (number, 0, Vec::new());
                }
                if (self.index_pieces.0, self.index_pieces.1) != (number, nth) {
                    return Ok(());
                }
                self.index_pieces.1 += 1;
                self.index_pieces.2.extend(chunks);
                if is_last {
                    let chunks = std::mem::take(&mut self.index_pieces.2);
                    self.set_index(number, chunks)?;
                }
            }
        }
        Ok(())
    }

    /// The state of a partition, visible as far as it goes: what was found has been synced.
    pub(crate) fn take_partition(&mut self, number: u32) -> State {
        let mut state = self.partitions.remove(&number).unwrap_or_default();
        state.show_all();
        state
    }

    fn batch(&mut self, frame: &FrameRef<'_>) -> Result<(), StreamsError> {
        if frame.version != VERSION {
            return Err(StreamsError::Unreadable(
                "a frame was written by a newer version",
            ));
        }
        let Some((number, batch)) = frame.payload.split_first_chunk::<4>() else {
            return Err(StreamsError::Unreadable(
                "a batch's frame is not of its shape",
            ));
        };
        let number = u32::from_le_bytes(*number);
        let header = BatchHeader::read(batch)?;
        self.note_numbers(&[(number, 1)]);
        let state = self.partitions.entry(number).or_default();
        if header.base_offset < state.next {
            return Err(StreamsError::Unreadable(
                "a batch's offset is before its forerunner's end",
            ));
        }
        state.replay(Position(frame.position.0), &header, batch)
    }

    fn set_index(&mut self, number: u32, chunks: Vec<StandingChunk>) -> Result<(), StreamsError> {
        let index = BatchIndex::restored(chunks);
        let index = index.ok_or(StreamsError::Unreadable(
            "a partition's index is not of its shape",
        ))?;
        self.partitions.entry(number).or_default().set_index(index);
        Ok(())
    }

    fn note_numbers(&mut self, ranges: &[Range]) {
        for (first, count) in ranges {
            self.next_partition = self.next_partition.max(first.saturating_add(*count));
        }
    }
}
