//! MQTT server: takes messages from clients and hands them to in-process subscribers as borrowed
//! batches, and to other clients.
//!
//! A message is framed in the read buffer of its connection and never copied on the way to a
//! [`MessageSink`]; sinks run on the connection's own task. Where a subscriber has no room, its
//! publishers are held back by not reading from them. What must outlive the process (retained
//! messages, persistent sessions with their QoS 1 messages) stands in a journal.
//!
//! Knows nothing of Kafka, HTTP or statements.

mod codec;
mod config;
mod core;
mod deadlines;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod ingest;
pub mod limits;
mod link;
mod login;
mod message;
mod opening;
mod outbox;
mod packets;
mod reason;
mod records;
mod retained;
mod route;
mod scram;
mod server;
mod session;
mod share;
mod sink;
mod stats;
mod store;
mod stored;
mod topic;
mod trie;
mod upkeep;
mod will;
mod wire;
mod writer;

pub use codec::Properties;
pub use config::{MqttConfig, StoreDurability};
pub use error::MqttError;
pub use gate::{
    Admission, Exchange, Gate, Hello, OpenGate, OpenPass, Origin, Pass, Password, Progress,
};
pub use message::{Delivery, Message, MessageSink, Qos, Room};
pub use reason::ReasonCode;
pub use scram::{PassOf, scram};
pub use server::{Server, SubscriptionId};
pub use stats::{ClientStats, ServerStats};
pub use topic::{TopicError, TopicFilter, TopicName};
