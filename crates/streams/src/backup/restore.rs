//! Restores a topic from a backup's blocks: whole, or not at all.
//!
//! The batches go into a topic of a name that nobody else may use; only when everything is there
//! and durable does that topic get its own name and settings, by one frame. A crash before leaves
//! a topic that the next opening deletes.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::{BackupBlock, BackupGroup, BackupHead, TopicRestore};
use crate::error::StreamsError;
use crate::event_store::{TopicInfo, TopicSpec};
use crate::offsets::OffsetCommit;
use crate::replication::Replication;
use crate::store::{CHANGE_ROOM_BYTES, Streams};
use crate::topic::TopicName;
use crate::topic_config::TopicConfig;
use crate::topics::Topic;

/// A topic on its way in.
struct Restoring {
    streams: Arc<Streams>,
    head: BackupHead,
    name: TopicName,
    config: TopicConfig,
    /// The topic under its passing name.
    topic: Arc<Topic>,
    groups: Vec<BackupGroup>,
    is_whole: bool,
}

impl Streams {
    /// Begins to restore a topic under `name`, which nobody may have.
    pub async fn restore(
        self: &Arc<Self>,
        head: BackupHead,
        name: TopicName,
    ) -> Result<Box<dyn TopicRestore>, StreamsError> {
        let settings = head.config.iter().map(|(name, value)| (&**name, &**value));
        let config = TopicConfig::of(settings)?;
        let count = i32::try_from(head.partitions.len()).unwrap_or(i32::MAX);
        let wanted = TopicSpec {
            name: name.clone(),
            partitions: Some(count),
            durability: Some(head.durability),
            replication: Replication::Usual,
            config: config.clone(),
        };
        self.check_create(&wanted)?;
        let passing = TopicSpec {
            name: TopicName::restoring(),
            // Nothing goes while it is not whole: neither by age nor by size nor by key.
            config: TopicConfig::of([("retention.ms", "-1"), ("retention.bytes", "-1")])?,
            ..wanted
        };
        let (topic, durable) = self.begin_create_any_topic(passing).await?;
        durable.await?;
        Ok(Box::new(Restoring {
            streams: Arc::clone(self),
            head,
            name,
            config,
            topic,
            groups: Vec::new(),
            is_whole: false,
        }))
    }

    /// Deletes what restorings left that a crash broke off; at opening.
    pub(crate) fn delete_unfinished(&self) -> Result<(), StreamsError> {
        for topic in self.topics_snapshot() {
            if topic.name().is_restoring() {
                tracing::warn!("a restoring of a topic was broken off; what it left is deleted");
                self.until_not_busy(|| self.try_delete(topic.name()).map(drop))?;
            }
        }
        Ok(())
    }
}

impl Restoring {
    async fn place(&self, index: u32, batch: Bytes) -> Result<(), StreamsError> {
        let partition = usize::try_from(index).ok();
        let partition = partition.and_then(|index| self.topic.partitions().get(index));
        let partition = partition.ok_or_else(|| StreamsError::UnknownPartition {
            topic: self.name.clone(),
            partition: i32::try_from(index).unwrap_or(i32::MAX),
        })?;
        loop {
            match partition.place_restored(&batch) {
                Err(StreamsError::Busy) => self.streams.room(batch.len() as u64).await,
                outcome => return outcome,
            }
        }
    }

    /// Ends each partition where the original ended, and aborts what was open there.
    async fn end_partitions(&self) -> Result<(), StreamsError> {
        let now = self.streams.clock().now();
        let ranges = self.head.partitions.iter();
        for (partition, range) in self.topic.partitions().iter().zip(ranges) {
            loop {
                match partition.end_restored(now, *range) {
                    Err(StreamsError::Busy) => self.streams.room(CHANGE_ROOM_BYTES).await,
                    outcome => break outcome?,
                }
            }
        }
        loop {
            match self.streams.barrier() {
                Err(StreamsError::Busy) => self.streams.room(CHANGE_ROOM_BYTES).await,
                outcome => return outcome?.await,
            }
        }
    }

    async fn commit_groups(&self) -> Result<(), StreamsError> {
        let at = self.streams.clock().now();
        for group in &self.groups {
            let commits = group
                .offsets
                .iter()
                .map(|(partition, offset, metadata)| OffsetCommit {
                    topic: self.name.clone(),
                    partition: *partition,
                    offset: *offset,
                    leader_epoch: -1,
                    metadata: metadata.clone(),
                    at,
                });
            let commits: Vec<OffsetCommit> = commits.collect();
            loop {
                match self.streams.commit_offsets(&group.group, commits.clone()) {
                    Err(StreamsError::Busy) => self.streams.room(CHANGE_ROOM_BYTES).await,
                    outcome => break outcome?.await?,
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl TopicRestore for Restoring {
    async fn put(&mut self, block: BackupBlock) -> Result<(), StreamsError> {
        match block {
            BackupBlock::Head(_) => Ok(()),
            BackupBlock::Batch(partition, batch) => self.place(partition, batch).await,
            BackupBlock::Group(group) => {
                self.groups.push(group);
                Ok(())
            }
            BackupBlock::End(_) => {
                self.is_whole = true;
                Ok(())
            }
        }
    }

    async fn finish(self: Box<Self>) -> Result<TopicInfo, StreamsError> {
        if !self.is_whole {
            return Err(StreamsError::IllegalState("the backup is not whole"));
        }
        self.end_partitions().await?;
        let topic = loop {
            match self
                .streams
                .rename_restored(&self.topic, &self.name, &self.config)
            {
                Err(StreamsError::Busy) => self.streams.room(CHANGE_ROOM_BYTES).await,
                outcome => {
                    let (topic, durable) = outcome?;
                    durable.await?;
                    break topic;
                }
            }
        };
        self.commit_groups().await?;
        Ok(topic.info())
    }
}

impl Drop for Restoring {
    fn drop(&mut self) {
        // Renamed or undone: there is none of that name any more, or it goes now.
        match self.streams.try_delete(self.topic.name()) {
            Ok(_) | Err(StreamsError::UnknownTopic(_)) => {}
            Err(error) => tracing::warn!(
                error = base::report(&error),
                "what a restoring left goes with the next start"
            ),
        }
    }
}
