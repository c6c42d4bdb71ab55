//! Event store that speaks Kafka's protocol.
//!
//! [`EventStore`] is the seam that every other crate uses; [`Streams`] is the store in this
//! process, on one journal for all partitions; [`kafka::serve`] lets Kafka clients at it.
//!
//! Invariant: a record is visible to a reader only when it has its topic's durability, so nobody
//! ever sees what a crash could take back.

mod config;
mod error;
mod event_store;
pub mod groups;
pub mod kafka;
pub mod limits;
mod log;
mod record;
mod topic;

pub use config::{CreationPolicy, Durability, StreamDefaults, StreamPolicy, StreamsConfig};
pub use error::StreamsError;
pub use event_store::{
    CommittedOffset, Consumer, ConsumerConfig, EventStore, GroupInfo, GroupMember, OffsetRange,
    OffsetReset, Placed, ProduceBatch, ProducerSequence, SeekTo, TopicInfo, TopicSpec,
};
pub use log::{
    Ack, AckWait, Append, DurableWait, GroupOffset, OffsetCommit, Partition, Recovery, Streams,
    Topic, Watch,
};
pub use record::{ConsumedRecord, Record};
pub use topic::{TopicName, TopicNameError};
