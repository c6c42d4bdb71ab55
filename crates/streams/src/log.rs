//! The embedded store as the Kafka listener sees it. (Signatures first; bodies follow.)

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::{Clock, UnixMillis};
use bytes::Bytes;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::config::{Durability, StreamsConfig};
use crate::error::StreamsError;
use crate::event_store::{CommittedOffset, EventStore, TopicSpec};
use crate::groups::Coordinator;
use crate::topic::TopicName;

/// The store in this process.
pub struct Streams {
    config: StreamsConfig,
    clock: Arc<dyn Clock>,
    groups: Arc<Coordinator>,
}

/// A topic; deleting it does not take it from those who hold it, its partitions then refuse.
pub struct Topic {
    name: TopicName,
    id: Uuid,
    durability: Durability,
    partitions: Vec<Arc<Partition>>,
}

/// A partition of a topic.
pub struct Partition {}

/// What an append's acknowledgement waits for, as Kafka's `acks`: 0, 1 and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// Nothing.
    None,
    /// The operating system has it (or the topic's durability, where that is weaker).
    Leader,
    /// The topic's durability.
    All,
}

/// A batch that has its place; await it (or [`Append::ack`]) for the acknowledgement.
#[derive(Debug)]
pub struct Append {
    /// The offset of its first record.
    pub base_offset: i64,
    /// The first offset that can be read.
    pub log_start_offset: i64,
    /// Kafka's LogAppendTime; -1 since batches keep the producer's time.
    pub log_append_time: i64,
    /// Whether the batch was stored before and this is its old offset.
    pub duplicate: bool,
    /// Resolves when the acknowledgement may leave.
    pub ack: AckWait,
}

/// Resolves when an append may be acknowledged.
#[derive(Debug)]
pub struct AckWait {}

/// Resolves when what was stored survives the machine.
#[derive(Debug)]
pub struct DurableWait {}

/// One offset to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch, -1 for none.
    pub leader_epoch: i32,
    /// Any text of the client.
    pub metadata: String,
    /// When it was committed.
    pub at: UnixMillis,
}

/// One committed offset of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOffset {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// What was committed.
    pub committed: CommittedOffset,
}

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
    /// Records.
    pub records: u64,
    /// Groups with committed offsets.
    pub groups: usize,
    /// What was cut from the end since it was not whole: bytes and why.
    pub cut: Option<String>,
}

/// Registers `notify` with a partition until dropped.
#[derive(Debug)]
pub struct Watch {}

impl Streams {
    /// Opens or creates the store in `dir`.
    pub fn open(
        dir: &Path,
        config: StreamsConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Streams>, Recovery), StreamsError> {
        let _ = (dir, config, clock);
        Err(StreamsError::Closed)
    }

    /// The store behind its trait.
    pub fn store(self: &Arc<Self>) -> Arc<dyn EventStore> {
        todo!()
    }

    /// Finishes what is written and closes the journal.
    pub async fn close(&self) {}

    /// All topics, by wire name.
    pub fn topics_snapshot(&self) -> Vec<Arc<Topic>> {
        Vec::new()
    }

    /// The topic of this name.
    pub fn topic_by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        let _ = name;
        None
    }

    /// The topic of this id.
    pub fn topic_by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        let _ = id;
        None
    }

    /// Creates a topic, durable on return.
    pub async fn create_topic(&self, spec: TopicSpec) -> Result<Arc<Topic>, StreamsError> {
        let _ = spec;
        Err(StreamsError::Closed)
    }

    /// Checks whether [`Streams::create_topic`] would take it now, and tells its partitions.
    pub fn check_create(&self, spec: &TopicSpec) -> Result<i32, StreamsError> {
        let _ = spec;
        Err(StreamsError::Closed)
    }

    /// Deletes a topic.
    pub async fn delete_topic(&self, name: &TopicName) -> Result<(), StreamsError> {
        let _ = name;
        Err(StreamsError::Closed)
    }

    /// The topic, created by policy when it is not there.
    pub async fn topic_or_create(&self, name: &TopicName) -> Result<Arc<Topic>, StreamsError> {
        let _ = name;
        Err(StreamsError::Closed)
    }

    /// The configuration.
    pub fn config(&self) -> &StreamsConfig {
        &self.config
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The cluster's id, made when the store was created.
    pub fn cluster_id(&self) -> &str {
        ""
    }

    /// This node's id.
    pub fn node_id(&self) -> i32 {
        self.config.node_id
    }

    /// A fresh producer id.
    pub async fn next_producer_id(&self) -> Result<i64, StreamsError> {
        Err(StreamsError::Closed)
    }

    /// Waits until an append of `bytes` has a chance after [`StreamsError::Busy`].
    pub async fn room(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Stores offsets of a group together; await the answer for durability. Fails as a whole when
    /// a topic or partition is unknown.
    pub fn commit_offsets(
        &self,
        group: &str,
        offsets: Vec<OffsetCommit>,
    ) -> Result<DurableWait, StreamsError> {
        let _ = (group, offsets);
        Err(StreamsError::Closed)
    }

    /// What a group has committed for a partition.
    pub fn committed_offset(
        &self,
        group: &str,
        topic: &TopicName,
        partition: i32,
    ) -> Option<CommittedOffset> {
        let _ = (group, topic, partition);
        None
    }

    /// All that a group has committed.
    pub fn committed_all(&self, group: &str) -> Vec<GroupOffset> {
        let _ = group;
        Vec::new()
    }

    /// Names of groups with committed offsets.
    pub fn groups_with_offsets(&self) -> Vec<String> {
        Vec::new()
    }

    /// Forgets a group's offsets; true when it had any.
    pub fn delete_group(&self, group: &str) -> Result<(bool, DurableWait), StreamsError> {
        let _ = group;
        Err(StreamsError::Closed)
    }

    /// The coordinator that all members of groups share.
    pub fn groups(&self) -> &Arc<Coordinator> {
        &self.groups
    }
}

impl Topic {
    /// Its name.
    pub fn name(&self) -> &TopicName {
        &self.name
    }

    /// Its id.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// What acknowledgements promise.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Its partitions, by number.
    pub fn partitions(&self) -> &[Arc<Partition>] {
        &self.partitions
    }

    /// One partition, when it exists.
    pub fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        usize::try_from(index).ok().and_then(|index| self.partitions.get(index))
    }
}

impl Partition {
    /// Takes one record batch v2: checks size, checksum and sequence, gives it its offsets and
    /// queues it, in the order of calls. `Busy` means wait for [`Streams::room`] and call again.
    pub fn append(&self, batch: Bytes, ack: Ack) -> Result<Append, StreamsError> {
        let _ = (batch, ack);
        Err(StreamsError::Closed)
    }

    /// Whole batches from the one that holds `offset`, visible ones only, up to `max_bytes`; with
    /// `at_least_one` the first comes even when it is larger.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Vec<Bytes>, StreamsError> {
        let _ = (offset, max_bytes, at_least_one);
        Err(StreamsError::Closed)
    }

    /// Visible bytes from the batch that holds `offset` on, counted up to about `enough`.
    pub fn readable_bytes(&self, offset: i64, enough: usize) -> Result<usize, StreamsError> {
        let _ = (offset, enough);
        Err(StreamsError::Closed)
    }

    /// The offset that the next visible record will have.
    pub fn high_watermark(&self) -> i64 {
        0
    }

    /// The first offset that can be read.
    pub fn log_start_offset(&self) -> i64 {
        0
    }

    /// The first visible record at or after `at`: its offset and time.
    pub fn offset_for_time(
        &self,
        at: UnixMillis,
    ) -> Result<Option<(i64, UnixMillis)>, StreamsError> {
        let _ = at;
        Err(StreamsError::Closed)
    }

    /// Has `notify.notify_one()` called whenever more becomes visible (or the topic is deleted),
    /// until the watch is dropped. Watch first, then read, then wait: nothing is missed.
    pub fn watch(self: &Arc<Self>, notify: &Arc<Notify>) -> Result<Watch, StreamsError> {
        let _ = notify;
        Err(StreamsError::Closed)
    }
}

impl Future for AckWait {
    type Output = Result<(), StreamsError>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(()))
    }
}

impl Future for DurableWait {
    type Output = Result<(), StreamsError>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(()))
    }
}
