//! What can go wrong in the event store, in its own words.
//!
//! Each protocol has one conversion to its own codes: Kafka's beside the listener, REST's in the
//! REST proxy.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use access::{AccessError, Operation, Principal, ResourceType};
use base::TenantId;
use uuid::Uuid;

use crate::groups::GroupError;
use crate::topic::{TopicName, TopicNameError};
use crate::topic_config::ConfigError;
use crate::transactions::TransactionError;

/// An error of the event store.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamsError {
    /// No such topic; the caller's fault, or a race with its creation: worth one retry.
    #[error("topic '{0}' does not exist")]
    UnknownTopic(TopicName),
    /// No topic has this id; the caller's metadata is old.
    #[error("no topic has the id {0}")]
    UnknownTopicId(Uuid),
    /// The topic has no such partition.
    #[error("topic '{topic}' has no partition {partition}")]
    UnknownPartition {
        /// The topic, which exists.
        topic: TopicName,
        /// The partition that does not.
        partition: i32,
    },
    /// The store has no such broker.
    #[error("there is no broker {0}")]
    UnknownBroker(i32),
    /// The topic exists already.
    #[error("topic '{0}' exists already")]
    TopicExists(TopicName),
    /// The name is not legal.
    #[error(transparent)]
    InvalidTopic(#[from] TopicNameError),
    /// The topic is one of Kafka's own, which clients only read.
    #[error("topic '{0}' is internal: nobody but the node writes to it")]
    InternalTopic(TopicName),
    /// The stream or the store does not create topics by themselves.
    #[error("topic '{0}' does not exist and is not created by itself: create it first")]
    AutoCreateOff(TopicName),
    /// A number of partitions that cannot be had.
    #[error("{partitions} partitions cannot be had: ask for 1 to {max}")]
    InvalidPartitions {
        /// What was asked.
        partitions: i32,
        /// The most that may be asked now.
        max: i32,
    },
    /// Partitions are never taken away.
    #[error("topic '{topic}' has {now} partitions already: ask for more than that")]
    PartitionsOnlyGrow {
        /// The topic.
        topic: TopicName,
        /// How many it has.
        now: i32,
    },
    /// A setting of a topic that cannot be as asked.
    #[error(transparent)]
    InvalidConfig(#[from] ConfigError),
    /// Records of a compacted topic go only with their keys.
    #[error("topic '{0}' is compacted and not deleted from: its records cannot be deleted")]
    NotDeletable(TopicName),
    /// The offset lies outside of what the partition holds; the reader decides where to go on.
    #[error("offset {offset} is outside of {start}..={end}")]
    OffsetOutOfRange {
        /// The offset asked for.
        offset: i64,
        /// The first offset that can be read.
        start: i64,
        /// The end: the offset that the next visible record will have.
        end: i64,
    },
    /// The batch is damaged: its checksum or its lengths are wrong.
    #[error("record batch is damaged: {0}")]
    CorruptMessage(&'static str),
    /// The batch is whole but says what cannot be.
    #[error("record batch is not valid: {0}")]
    InvalidRecord(&'static str),
    /// A record's time is one that its topic does not take; the caller's fault.
    #[error("record time is not valid: {0}")]
    InvalidTimestamp(String),
    /// A caller of a tenant speaks for another one; its fault.
    #[error("a caller of tenant '{tenant}' may not speak for '{claimed}'")]
    ForeignTenant {
        /// The caller's tenant.
        tenant: TenantId,
        /// Whom it named.
        claimed: String,
    },
    /// A tenant has used up what its quotas give; worth a retry after the time.
    #[error("tenant '{tenant}' is over its quota: send again in {} ms", wait.as_millis())]
    Throttled {
        /// The tenant.
        tenant: TenantId,
        /// How long to wait.
        wait: Duration,
    },
    /// A tenant's records are about to go elsewhere; worth a retry at once.
    #[error("the records of tenant '{0}' are about to go elsewhere: send again")]
    Switching(TenantId),
    /// A tenant's records would be kept for less in the topic that they are to go to; whoever runs the
    /// store changes its settings.
    #[error("topic '{shared}' keeps less than '{own}': change its {setting}")]
    KeepsLess {
        /// The topic that tenants share.
        shared: TopicName,
        /// The tenant's own.
        own: TopicName,
        /// By which setting.
        setting: &'static str,
    },
    /// A tenant keeps as many bytes as its quota allows.
    #[error(
        "tenant '{0}' keeps as many bytes as its quota stored_bytes allows: have records expire or \
         deleted, or raise it"
    )]
    TenantFull(TenantId),
    /// A setting of a broker that cannot be changed while it runs.
    #[error("{0} cannot be changed while the broker runs: it stands in its configuration file")]
    ReadOnlySetting(String),
    /// Something that this store does not do.
    #[error("{0} is not supported by this store")]
    Unsupported(&'static str),
    /// A format of records that this store does not hold.
    #[error("record format is not supported: {0}")]
    UnsupportedFormat(&'static str),
    /// Larger than the store takes.
    #[error("record batch of {bytes} bytes is too large: at most {max}")]
    MessageTooLarge {
        /// Its size in bytes.
        bytes: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// A batch of the producer is missing before this one.
    #[error("producer {producer_id} sent sequence {got} where {expected} was expected")]
    OutOfOrderSequence {
        /// The producer.
        producer_id: i64,
        /// The batch's first sequence.
        got: i32,
        /// The sequence that continues what is stored.
        expected: i32,
    },
    /// A key under which something else was stored; the caller's fault, no retry helps.
    #[error("the key was used for another request: a key belongs to one request and its retries")]
    KeyReused,
    /// A newer instance of the producer has taken over.
    #[error("producer {producer_id} of epoch {got} was replaced by epoch {current}")]
    InvalidProducerEpoch {
        /// The producer.
        producer_id: i64,
        /// The batch's epoch.
        got: i16,
        /// The epoch that the partition knows.
        current: i16,
    },
    /// The producer is not known here.
    #[error("producer {0} is not known")]
    UnknownProducerId(i64),
    /// A bound of the store is reached; nothing was stored.
    #[error("{what} would exceed {max}")]
    Limit {
        /// What is bounded.
        what: &'static str,
        /// The bound.
        max: u64,
    },
    /// The store has no room in memory for the moment; retry after waiting for room.
    #[error("store is busy writing: retry in a moment")]
    Busy,
    /// The disk has no room; nothing was stored and nothing is harmed.
    #[error("disk is full: free room and retry")]
    Full,
    /// The Kafka cluster that holds the records cannot be had; whether the call was done may be
    /// unknown. Retry later.
    #[error("the Kafka cluster cannot be reached: {0}")]
    Unavailable(String),
    /// The Kafka cluster does not let this installation do it; the operator's fault.
    #[error("the Kafka cluster does not allow this: {0}")]
    Denied(String),
    /// The Kafka cluster refused the call for a reason that only it knows.
    #[error("the Kafka cluster refused: {0}")]
    Refused(String),
    /// The store is being closed.
    #[error("store is closed")]
    Closed,
    /// The journal failed; a failed sync poisons the store until it is opened again.
    #[error("storage failed")]
    Storage(#[source] Arc<dyn Error + Send + Sync>),
    /// A stored frame cannot be understood: written by a newer version, or damaged.
    #[error("stored data cannot be read: {0}")]
    Unreadable(&'static str),
    /// Users or ACLs could not be changed: what was asked cannot be, or the disk failed.
    #[error(transparent)]
    Access(#[from] Arc<AccessError>),
    /// The caller may not do this; an administrator can change that.
    #[error("{principal} may not {operation} {kind} '{name}': an ACL has to allow it")]
    NotAllowed {
        /// Who asked.
        principal: Principal,
        /// What was asked.
        operation: Operation,
        /// The kind of what it was asked for.
        kind: ResourceType,
        /// The name of that.
        name: String,
    },
    /// The group's coordinator refused; most refusals mean that the member joins again.
    #[error("group '{group}' refused the call")]
    Group {
        /// The group.
        group: String,
        /// Why it refused.
        #[source]
        reason: GroupError,
    },
    /// The transaction's coordinator refused.
    #[error("transaction '{id}' refused the call")]
    Transaction {
        /// The transactional id.
        id: String,
        /// Why it refused.
        #[source]
        reason: TransactionError,
    },
    /// The call does not fit what the consumer is doing.
    #[error("consumer cannot do this now: {0}")]
    IllegalState(&'static str),
    /// The consumer does not hold the partition.
    #[error("partition {partition} of '{topic}' is not assigned to this consumer")]
    NotAssigned {
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: i32,
    },
}

impl From<AccessError> for StreamsError {
    fn from(error: AccessError) -> Self {
        StreamsError::Access(Arc::new(error))
    }
}
