//! Takes a backup of a topic, a piece at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    BackupEnd, BackupGroup, BackupHead, BackupRange, TopicBackup, kind, preamble, put_block,
    put_json,
};
use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::event_store::Isolation;
use crate::limits::BACKUP_PIECE_BYTES;
use crate::signal::Signal;
use crate::store::Streams;
use crate::topic::TopicName;
use crate::topics::Topic;

/// A backup on its way out.
struct Taking {
    topic: Arc<Topic>,
    head: BackupHead,
    groups: Vec<BackupGroup>,
    seen: BackupEnd,
    stage: Stage,
}

/// What comes next.
enum Stage {
    Head,
    /// The partition's batches from this offset on.
    Batches(usize, i64),
    Groups,
    Done,
}

impl Streams {
    /// Begins a backup of a topic as it is now, with what groups have committed if wanted.
    pub async fn back_up(
        &self,
        name: &TopicName,
        with_groups: bool,
    ) -> Result<Box<dyn TopicBackup>, StreamsError> {
        let topic = self
            .topic_by_name(name)
            .filter(|topic| !topic.name().is_internal());
        let topic = topic.ok_or_else(|| StreamsError::UnknownTopic(name.clone()))?;
        let ranges = self.ends_of(&topic)?;
        for (partition, range) in topic.partitions().iter().zip(&ranges) {
            let signal = Arc::new(Signal::new());
            let watch = partition.watch(&signal)?;
            // What is about to become visible belongs to the moment.
            while partition.high_watermark() < range.end {
                partition.check_there()?;
                signal.told().await;
            }
            drop(watch);
        }
        let groups = match with_groups {
            true => self.groups_of(&topic),
            false => Vec::new(),
        };
        let config = topic.config();
        let config = config
            .all()
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let head = BackupHead {
            topic: topic.name().display().to_owned(),
            taken_ms: self.clock().now().0,
            durability: topic.durability(),
            config: config.collect(),
            bytes: topic.info().bytes_stored.unwrap_or_default(),
            partitions: ranges,
        };
        Ok(Box::new(Taking {
            topic,
            head,
            groups,
            seen: BackupEnd::default(),
            stage: Stage::Head,
        }))
    }

    /// Where each partition begins and ends at one moment, between whose decision and markers no
    /// transaction is: these are appended while the table is locked.
    fn ends_of(&self, topic: &Topic) -> Result<Vec<BackupRange>, StreamsError> {
        loop {
            let table = self.transactions().table.lock();
            if table.ending().is_empty() {
                let partitions = topic.partitions().iter();
                return Ok(partitions
                    .map(|partition| partition.whole_range())
                    .collect());
            }
            drop(table);
            self.sweep()?;
        }
    }

    fn groups_of(&self, topic: &Topic) -> Vec<BackupGroup> {
        let mut groups = Vec::new();
        for group in self.groups_with_offsets() {
            let committed = self.committed_all(&group).into_iter();
            let of_topic = committed.filter(|offset| offset.topic == *topic.name());
            let offsets: BTreeMap<i32, _> = of_topic
                .map(|offset| (offset.partition, offset.committed))
                .collect();
            if offsets.is_empty() {
                continue;
            }
            let offsets = offsets
                .into_iter()
                .map(|(at, of)| (at, of.offset, of.metadata));
            groups.push(BackupGroup {
                group,
                offsets: offsets.collect(),
            });
        }
        groups
    }
}

impl Taking {
    /// The next batches of a partition, checked; none when there are no more.
    fn batches(&self, index: usize, from: i64) -> Result<Vec<Bytes>, StreamsError> {
        let end = self.head.partitions[index].end;
        let partition = &self.topic.partitions()[index];
        // What expired meanwhile is gone from the backup as from the topic.
        let from = from.max(partition.log_start_offset());
        if from >= end {
            return Ok(Vec::new());
        }
        let mut batches = partition.read(Isolation::Uncommitted, from, BACKUP_PIECE_BYTES, true)?;
        let is_before_end =
            |batch: &Bytes| BatchHeader::read(batch).is_ok_and(|header| header.base_offset < end);
        batches.retain(is_before_end);
        Ok(batches)
    }

    fn put_batches(&mut self, index: usize, from: i64) -> Result<Vec<u8>, StreamsError> {
        let batches = self.batches(index, from)?;
        let mut out = Vec::new();
        let mut next = from;
        for batch in &batches {
            let header = BatchHeader::check_stored(batch)?;
            let partition = u32::try_from(index).expect("a partition's index is an i32");
            put_block(&mut out, kind::BATCH, &[&partition.to_le_bytes(), batch]);
            next = header.base_offset + header.offsets();
            self.seen.batches += 1;
            self.seen.records += u64::from(header.record_count.unsigned_abs());
            self.seen.bytes += batch.len() as u64;
        }
        self.stage = match batches.is_empty() {
            false => Stage::Batches(index, next),
            true if index + 1 < self.head.partitions.len() => {
                Stage::Batches(index + 1, self.head.partitions[index + 1].start)
            }
            true => Stage::Groups,
        };
        Ok(out)
    }
}

#[async_trait]
impl TopicBackup for Taking {
    async fn next(&mut self) -> Result<Option<Bytes>, StreamsError> {
        loop {
            let mut out = Vec::new();
            match self.stage {
                Stage::Head => {
                    out = preamble();
                    put_json(&mut out, kind::HEAD, &self.head);
                    self.stage = Stage::Batches(0, self.head.partitions[0].start);
                }
                Stage::Batches(index, from) => out = self.put_batches(index, from)?,
                Stage::Groups => {
                    self.seen.groups = self.groups.len() as u64;
                    for group in &self.groups {
                        put_json(&mut out, kind::GROUP, group);
                    }
                    put_json(&mut out, kind::END, &self.seen);
                    self.stage = Stage::Done;
                }
                Stage::Done => return Ok(None),
            }
            if !out.is_empty() {
                return Ok(Some(out.into()));
            }
        }
    }
}
