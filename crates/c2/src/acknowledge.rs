//! The acknowledge: what became of an operation, with what was asked for on a DESCRIBE.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::C2Error;
use crate::heartbeat::{AgentInfo, DeviceInfo, FlowInfo, ResourceInfo, filled};
use crate::wire::{self, Node, RawJson, Scalar, message};

message! {
    /// An acknowledge as either agent sends it.
    pub struct Acknowledge {
        /// The operation's identifier; see [`Acknowledge::operation`].
        pub operation_id: Option<String> = "operationId" | "operationid",
        /// What became of it.
        pub operation_state: Option<OperationState> = "operationState",
        /// `acknowledge` (C++ only).
        pub message: Option<String> = "operation",
        /// The operation's identifier once more (C++ only).
        pub identifier: Option<String> = "identifier",
        /// The machine, on a DESCRIBE.
        pub device_info: Option<DeviceInfo> = "deviceInfo",
        /// The agent, on a DESCRIBE with its manifest.
        pub agent_info: Option<AgentInfo> = "agentInfo",
        /// The flow, on a DESCRIBE.
        pub flow_info: Option<FlowInfo> = "flowInfo",
        /// The resources, on a DESCRIBE.
        pub resource_info: Option<ResourceInfo> = "resourceInfo",
        /// The agent's settings, on a DESCRIBE (C++ only).
        pub configuration_options: Option<RawJson> = "configuration_options",
    }
}

message! {
    /// What became of an operation.
    pub struct OperationState {
        /// In a word.
        pub state: Option<AckState> = "state",
        /// In the agent's own words.
        pub details: Option<String> = "details",
        /// Why it failed.
        pub failure_cause: Option<FailureCause> = "failureCause",
    }
}

message! {
    /// Why an operation failed (Java only).
    pub struct FailureCause {
        /// What validation found.
        pub validation_results: Option<RawJson> = "validationResults",
        /// The exception's message.
        pub exception_message: Option<String> = "exceptionMessage",
        /// The messages of its causes.
        pub caused_by_messages: Vec<String> = "causedByMessages",
    }
}

/// What became of an operation, in a word (or as its number in Java's list).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AckState {
    /// Done.
    FullyApplied,
    /// Done in part.
    PartiallyApplied,
    /// The agent does not know the operation.
    OperationNotUnderstood,
    /// There was nothing to do.
    NoOperation,
    /// Not done.
    NotApplied,
    /// A word that has no meaning here, as it came.
    Unknown(String),
}

impl Acknowledge {
    /// The acknowledge of an operation without more to tell.
    pub fn new(operation: &str, state: AckState) -> Acknowledge {
        Acknowledge {
            operation_id: Some(operation.to_owned()),
            operation_state: Some(OperationState {
                state: Some(state),
                ..OperationState::default()
            }),
            ..Acknowledge::default()
        }
    }

    /// Reads an acknowledge from a request's body.
    pub fn parse(bytes: &[u8]) -> Result<Acknowledge, C2Error> {
        wire::from_slice("acknowledge", bytes)
    }

    /// Writes the acknowledge as a request's body.
    pub fn to_vec(&self) -> Result<Vec<u8>, C2Error> {
        wire::to_vec("acknowledge", self)
    }

    /// The identifier of the operation that this is about.
    pub fn operation(&self) -> Option<&str> {
        filled(&self.operation_id).or_else(|| filled(&self.identifier))
    }

    /// What became of the operation; an acknowledge that does not say counts as unknown.
    pub fn state(&self) -> AckState {
        self.operation_state
            .as_ref()
            .and_then(|state| state.state.clone())
            .unwrap_or_else(|| AckState::Unknown(String::new()))
    }

    /// Everything that the agent says about the outcome, in one line; empty when it says nothing.
    pub fn details(&self) -> String {
        let Some(state) = &self.operation_state else {
            return String::new();
        };
        let mut parts: Vec<&str> = filled(&state.details).into_iter().collect();
        if let Some(cause) = &state.failure_cause {
            parts.extend(filled(&cause.exception_message));
            parts.extend(cause.caused_by_messages.iter().map(String::as_str));
            parts.extend(cause.validation_results.as_ref().map(RawJson::as_str));
        }
        parts.join("; ")
    }
}

impl AckState {
    /// The word as the protocol writes it.
    pub fn as_str(&self) -> &str {
        match self {
            AckState::Unknown(text) => text,
            known => STATES
                .iter()
                .find(|(state, _)| state == known)
                .map_or("", |(_, word)| *word),
        }
    }
}

impl From<&str> for AckState {
    fn from(text: &str) -> AckState {
        let word = STATES
            .iter()
            .find(|(_, word)| text.eq_ignore_ascii_case(word));
        let number = || text.parse().ok().and_then(|index: usize| STATES.get(index));
        word.or_else(number).map_or_else(
            || AckState::Unknown(text.to_owned()),
            |(state, _)| state.clone(),
        )
    }
}

impl fmt::Display for AckState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for AckState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for AckState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let state = <AckState as Node>::read(deserializer)?;
        Ok(state.unwrap_or_else(|| AckState::Unknown(String::new())))
    }
}

impl Node for AckState {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        Ok(match Scalar::read(deserializer)? {
            Scalar::Text(text) => Some(AckState::from(text.as_ref())),
            Scalar::Integer(number) => Some(AckState::from(number.to_string().as_str())),
            Scalar::Nothing | Scalar::Bool(_) | Scalar::Float(_) => None,
        })
    }
}

/// In the order of Java's list, which some agents send as the number.
const STATES: [(AckState, &str); 5] = [
    (AckState::FullyApplied, "FULLY_APPLIED"),
    (AckState::PartiallyApplied, "PARTIALLY_APPLIED"),
    (AckState::OperationNotUnderstood, "OPERATION_NOT_UNDERSTOOD"),
    (AckState::NoOperation, "NO_OPERATION"),
    (AckState::NotApplied, "NOT_APPLIED"),
];
