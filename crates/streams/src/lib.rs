//! Event store that speaks Kafka's protocol.
//!
//! [`EventStore`] is the seam that every other crate uses; [`Streams`] is the store in this
//! process, on one journal for all partitions; [`kafka::serve`] lets Kafka clients at it.
//! [`Cluster`] is the store in a Kafka cluster of somebody else's.
//!
//! Invariant: a record is visible to a reader only when it has its topic's durability, so nobody
//! ever sees what a crash could take back.

// The cases of behaviour name the crate as its users do.
#[cfg(test)]
extern crate self as streams;

mod acl_names;
mod administration;
pub mod backup;
pub mod batch;
mod caller;
mod cluster;
mod codec;
mod compaction;
mod config;
mod consumer;
mod decode;
mod embedded;
mod error;
mod event_store;
mod fenced;
mod frames;
#[doc(hidden)]
pub mod fuzzing;
mod group_config;
mod group_view;
pub mod groups;
mod index;
mod inspect;
pub mod kafka;
mod keeper;
mod lag;
mod ledger;
pub mod limits;
mod marker;
mod mover;
mod observe;
mod offsets;
mod once;
mod partition;
mod partitioner;
mod producers;
mod record;
mod recovery;
mod replication;
mod setbacks;
mod share;
mod signal;
mod store;
mod telemetry;
mod tenants;
#[cfg(test)]
mod tests;
mod topic;
mod topic_config;
mod topics;
pub mod transactions;
mod unsettled;

pub use acl_names::{keep_acls, kept_acl, kept_filter};
pub use administration::{Administration, BrokerSetting, PartitionReplicas, SettingSource};
pub use caller::{Caller, as_caller};
pub use cluster::{Cluster, ClusterConfig, Properties, RetentionChange};
pub use config::{
    Authorization, Compression, CreationPolicy, Durability, SaslConfig, StreamDefaults,
    StreamPolicy, StreamsConfig,
};
pub use decode::{BatchRecord, BatchRecords};
pub use error::StreamsError;
pub use event_store::{
    BrokerInfo, ClusterInfo, CommittedOffset, Consumer, ConsumerConfig, EventStore, GroupDetail,
    GroupInfo, GroupInstance, GroupMember, HeldSetting, Isolation, OffsetRange, OffsetReset,
    Placed, ProduceBatch, ProducerSequence, SeekTo, TopicInfo, TopicSpec,
};
pub use fenced::FencedWriter;
pub use group_config::GroupConfig;
pub use inspect::{
    InspectedBatch, InspectedBytes, InspectedFrame, InspectedRecord, Inspection, inspect,
};
pub use lag::Lag;
pub use observe::MetricsConfig;
pub use offsets::{GroupOffset, OffsetCommit};
pub use once::{OnceKey, ProduceOnce, Run, StoredOnce};
pub use partition::{Ack, AckWait, Append, Partition, Watch};
pub use partitioner::partition_of_key;
pub use record::{ConsumedRecord, Record};
pub use recovery::Recovery;
pub use replication::Replication;
pub use signal::Signal;
pub use store::{DurableWait, Streams};
pub use tenants::{GroupBacklog, Purge, Run as TenantRun, TenantUse, TopicUse, stored_bytes};
pub use topic::{TopicName, TopicNameError};
pub use topic_config::{
    ConfigChange, ConfigError, SETTINGS, Setting, TopicConfig, TopicSettings, ValueKind,
};
pub use topics::Topic;
