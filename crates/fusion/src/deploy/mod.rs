//! How statements reach this node beside its own API: the DFM's API by REST and MQTT, and desired
//! state that a node which was away finds when it is back.
//!
//! | way | where | who may |
//! | --- | --- | --- |
//! | the DFM's REST API | `/statement/…`, `/execute/`, `/event/…` on the management port | who may change what the management port serves |
//! | the DFM's control topics | `/statement/add` and others, see [`dfm`] | who signs with a key of `fusion.control.keys`; everybody, where `fusion.control.allow_unsigned` says so |
//! | desired state | `thalweg/desired/NAME`, retained, see [`desired`] | who signs with such a key |
//!
//! Desired state that cannot be followed at the moment waits in `later.rs`.
//! What is refused is written to the log, counted, and told on `thalweg/audit/NODE`. A node answers
//! each request once. Control messages are worked off one after another; a full queue holds their
//! publishers back.

pub mod desired;
pub mod dfm;
mod fresh;
mod http;
mod later;
mod marks;
mod node;
mod seal;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use base::HumanDuration;
use serde::{Deserialize, Serialize};

pub use http::routes;
pub use node::Node;
pub use seal::{Keys, Refused, Sealed, seal};

/// Who this node is (`fusion.node.…`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeConfig {
    /// Its id, by which others name it.
    pub id: String,
    /// Its labels, by which others select it.
    pub labels: BTreeMap<String, String>,
    /// The first part of topics after `LS/`, where the DFM's statements name none.
    pub code: String,
    /// How often each statement's books are published on `thalweg/books/NODE/ID`; never at 0.
    pub books_interval: HumanDuration,
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig {
            id: "thalweg".to_owned(),
            labels: BTreeMap::new(),
            code: "thalweg".to_owned(),
            books_interval: HumanDuration(std::time::Duration::ZERO),
        }
    }
}

/// Whose control messages count (`fusion.control.…`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControlConfig {
    /// Whether the DFM's control topics are followed without a signature.
    pub allow_unsigned: bool,
    /// How long a signed control message counts, once, from the `issued_ms` on that it has to have; at 0
    /// it need not have one.
    pub max_age: HumanDuration,
    /// Ed25519 public keys by name, 32 bytes in base64.
    pub keys: BTreeMap<String, String>,
    /// HTTP servers by the alias that a DFM statement's `scope` names, as base URLs.
    pub servers: BTreeMap<String, String>,
}

impl Default for ControlConfig {
    fn default() -> Self {
        ControlConfig {
            allow_unsigned: false,
            max_age: HumanDuration(std::time::Duration::ZERO),
            keys: BTreeMap::new(),
            servers: BTreeMap::new(),
        }
    }
}

/// All that is wrong with the values, one line each, in the keys' names.
pub fn problems(node: &NodeConfig, control: &ControlConfig) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, level) in [("node.id", &node.id), ("node.code", &node.code)] {
        let is_level = !level.is_empty() && !level.contains(['/', '+', '#', '\0']);
        if !is_level || level.len() > crate::limits::NAME_BYTES_MAX {
            problems.push(format!("fusion.{key}: one level of an MQTT topic"));
        }
    }
    if let Err(why) = Keys::new(&control.keys) {
        problems.push(format!("fusion.control.keys: {why}"));
    }
    for (alias, url) in &control.servers {
        if let Err(error) = crate::sinks::target(url) {
            problems.push(format!("fusion.control.servers.{alias}: {error}"));
        }
    }
    problems
}
