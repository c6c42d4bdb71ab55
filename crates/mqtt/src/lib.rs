//! MQTT server: takes messages from clients and hands them to in-process subscribers as borrowed
//! batches, and to other clients.
//!
//! A message is framed in the read buffer of its connection and never copied on the way to a
//! [`MessageSink`]; sinks run on the connection's own task. Where a subscriber has no room, its
//! publishers are held back by not reading from them. What must outlive the process (retained
//! messages, persistent sessions with their QoS 1 messages) stands in a journal.
//!
//! Knows nothing of Kafka, HTTP or statements.

mod accept;
mod bridge;
mod codec;
mod config;
mod core;
mod deadlines;
mod door;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod gatekeeping;
mod guard;
mod ingest;
pub mod limits;
mod link;
mod login;
mod message;
mod mount;
mod observe;
mod opening;
mod outbox;
mod packets;
mod reason;
mod records;
mod retained;
mod route;
mod scram;
mod seats;
mod server;
mod session;
mod share;
mod sink;
mod stats;
mod store;
mod stored;
mod sys;
mod topic;
mod trie;
mod upkeep;
mod websocket;
mod will;
mod wire;
mod writer;

pub use bridge::{BridgeConfig, BridgeError, BridgeStatus, BridgeTopic, Bridges, Direction, PATH};
pub use codec::{Properties, PropertyBlock};
pub use config::{MqttConfig, StoreDurability};
pub use door::Door;
pub use error::MqttError;
pub use gate::{
    Admission, Exchange, Gate, Hello, OpenGate, OpenPass, Origin, Owner, Pass, Password, Progress,
};
pub use gatekeeping::{Authorization, RatesConfig, SecurityConfig, TenantsConfig, WebSocketConfig};
pub use guard::{Guard, GuardSettings, Refusal, Refused};
pub use message::{Delivery, Message, MessageSink, Qos, RetainedMessage, Room, Settled};
pub use mount::Mount;
pub use reason::ReasonCode;
pub use scram::{PassOf, scram};
pub use server::{Server, SubscriptionId};
pub use stats::{ClientStats, ServerStats};
pub use topic::{TopicError, TopicFilter, TopicName};
pub use websocket::Pages;
