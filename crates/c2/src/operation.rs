//! The heartbeat's response: the operations that the fleet asks of an agent.
//!
//! Written with the operation in upper case (Java takes nothing else) and the operand in lower
//! case (both take it). `requestedOperations` is always there: an empty body makes both agents
//! report an error.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::error::C2Error;
use crate::wire::{self, Node, Scalar, message};

/// What a heartbeat is answered with.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeartbeatResponse {
    /// What to do, in order; usually nothing.
    #[serde(rename = "requestedOperations")]
    pub requested_operations: Vec<Operation>,
}

/// One operation asked of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Operation {
    /// What the acknowledge will name.
    pub identifier: String,
    /// What to do.
    #[serde(rename = "operation")]
    pub kind: OperationKind,
    /// To what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operand: Option<Operand>,
    /// With what. All values are strings for C++ agents and for Java agents before 2.0.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, Value>,
    /// Operations that should be done before; no shipped agent looks at it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
}

/// Declares an enum of words, read in any case, written in one; further words are kept.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$word_meta:meta])* $word:ident = $text:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $( $(#[$word_meta])* $word, )*
            /// A word that has no meaning here, as it came.
            Unknown(String),
        }

        impl $name {
            /// The word as the protocol writes it.
            pub fn as_str(&self) -> &str {
                match self {
                    $( $name::$word => $text, )*
                    $name::Unknown(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $( if text.eq_ignore_ascii_case($text) {
                    return $name::$word;
                } )*
                $name::Unknown(text.to_owned())
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::Unknown(String::new())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(<$name as Node>::read(deserializer)?.unwrap_or_default())
            }
        }

        impl Node for $name {
            fn read<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Option<Self>, D::Error> {
                Ok(match Scalar::read(deserializer)? {
                    Scalar::Text(text) if !text.is_empty() => Some($name::from(text.as_ref())),
                    _ => None,
                })
            }
        }
    };
}

words! {
    /// What an operation does.
    pub enum OperationKind {
        /// Forgets stored data of a connection, the repositories or a component.
        Clear = "CLEAR",
        /// Sends something about the agent with the acknowledge.
        Describe = "DESCRIBE",
        /// The word that an agent gives its own heartbeat; never asked for.
        Heartbeat = "HEARTBEAT",
        /// Holds the agent's own calls back.
        Pause = "PAUSE",
        /// Starts the agent's process again.
        Restart = "RESTART",
        /// Ends a pause.
        Resume = "RESUME",
        /// Starts the flow or a processor.
        Start = "START",
        /// Stops the flow or a processor.
        Stop = "STOP",
        /// Makes the agent's resources those of a list.
        Sync = "SYNC",
        /// Uploads a debug bundle.
        Transfer = "TRANSFER",
        /// Gives the agent a flow, properties or a file.
        Update = "UPDATE",
    }
}

words! {
    /// What an operation is done to.
    pub enum Operand {
        /// A file for flows to use.
        Asset = "asset",
        /// The flow.
        Configuration = "configuration",
        /// A queue.
        Connection = "connection",
        /// The state that processors keep (C++ only).
        CoreComponentState = "corecomponentstate",
        /// A debug bundle.
        Debug = "debug",
        /// The running flow.
        Flow = "flow",
        /// Stacks of the threads (C++ only).
        Jstack = "jstack",
        /// What the agent's build can do.
        Manifest = "manifest",
        /// Figures (C++ only).
        Metrics = "metrics",
        /// One processor.
        Processor = "processor",
        /// The agent's own settings.
        Properties = "properties",
        /// A repository (the word in Java's list).
        Repository = "repository",
        /// All repositories (C++ only).
        Repositories = "repositories",
        /// Assets and extensions.
        Resource = "resource",
    }
}

impl HeartbeatResponse {
    /// Reads a response's body, in every spelling that agents have been sent.
    pub fn parse(bytes: &[u8]) -> Result<HeartbeatResponse, C2Error> {
        let wire: WireResponse = wire::from_slice("response", bytes)?;
        Ok(HeartbeatResponse {
            requested_operations: wire.operations.into_iter().map(Operation::from).collect(),
        })
    }

    /// Writes the response's body.
    pub fn to_vec(&self) -> Result<Vec<u8>, C2Error> {
        wire::to_vec("response", self)
    }
}

impl Operation {
    /// The text of an argument; numbers and booleans are read as their text.
    pub fn arg(&self, name: &str) -> Option<String> {
        match self.args.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// The operation with one more string argument.
    pub fn with_arg(mut self, name: &str, value: impl Into<String>) -> Operation {
        self.args
            .insert(name.to_owned(), Value::String(value.into()));
        self
    }
}

message! {
    /// A response as it comes.
    pub struct WireResponse {
        /// The operations under either name.
        pub operations: Vec<WireOperation> = "requestedOperations" | "requested_operations",
    }
}

message! {
    /// An operation as it comes: what is missing is missing.
    pub struct WireOperation {
        /// The identifier under any of its names.
        pub identifier: Option<String> = "identifier" | "operationId" | "operationid",
        /// The operation in any case.
        pub kind: Option<OperationKind> = "operation",
        /// The operand in any case.
        pub operand: Option<Operand> = "operand" | "name",
        /// The arguments.
        pub args: BTreeMap<String, Value> = "args" | "content",
        /// The operations to wait for.
        pub dependencies: Vec<String> = "dependencies",
    }
}

impl From<WireOperation> for Operation {
    fn from(wire: WireOperation) -> Operation {
        Operation {
            identifier: wire.identifier.unwrap_or_default(),
            kind: wire.kind.unwrap_or_default(),
            operand: wire.operand,
            args: wire.args,
            dependencies: wire.dependencies,
        }
    }
}
