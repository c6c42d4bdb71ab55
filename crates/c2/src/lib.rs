//! The C2 messages that agents and fleet exchange: heartbeat, its response, acknowledge.
//!
//! Tolerant where it reads: Java and C++ agents of ten years spell the same thing in several ways
//! (one element in place of a list, numbers as strings, sections left out, keys twice), and a
//! message is worth more than its form. Exact where it writes: Java agents throw a whole response
//! away for one word that they do not know, so spellings come from closed types.
//!
//! An absent section means "unchanged since the last message", never "gone". Subtrees that have
//! no type here are kept as the JSON text that came, under `other`.
//!
//! Leaves out HTTP, storage and the rules of which agent may get which operation.

mod acknowledge;
mod error;
pub mod fuzzing;
mod glance;
mod heartbeat;
mod manifest;
mod operation;
mod wire;

pub use acknowledge::{AckState, Acknowledge, FailureCause, OperationState};
pub use error::C2Error;
pub use glance::{AgentGlance, DeviceGlance, Glance};
pub use heartbeat::{
    AgentInfo, AgentStatus, ComponentStatus, DeviceInfo, FlowInfo, Heartbeat, NetworkInfo,
    ProcessorBulletin, ProcessorStatus, QueueStatus, RepositoryStatus, ResourceConsumption,
    ResourceInfo, SystemInfo,
};
pub use manifest::{AgentManifest, BuildInfo, SupportedOperation};
pub use operation::{HeartbeatResponse, Operand, Operation, OperationKind};
pub use wire::RawJson;

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod glance_tests;
#[cfg(test)]
mod message_tests;
