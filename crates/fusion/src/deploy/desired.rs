//! Desired state: what should run, whoever is there to hear it said.
//!
//! A signed message (see [`super::Sealed`]), retained on `thalweg/desired/NAME`, whose payload is a
//! [`Desired`]. A node applies it when its generation is above the last that it saw of that name,
//! and keeps that number: an older message cannot come back. Without a statement, and on nodes that
//! the selector does not choose, what an earlier generation put there is removed. Each node answers
//! each generation once, on `thalweg/answers/NAME/NODE`:
//! `{"node", "name", "generation", "status", "message"}`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What should run under one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Desired {
    /// The name, as in the topic.
    pub name: String,
    /// Grows with every change.
    pub generation: u64,
    /// Which nodes are meant.
    #[serde(default)]
    pub selector: Selector,
    /// The statement form (see [`crate::http`]), without a name and an id; none to remove it.
    pub statement: Option<Value>,
}

/// Which nodes are meant: those that all given parts fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Selector {
    /// Nodes by id; all when empty.
    pub ids: Vec<String>,
    /// Labels that a node must have.
    pub labels: BTreeMap<String, String>,
}

impl Selector {
    /// Whether a node is meant.
    pub fn selects(&self, id: &str, labels: &BTreeMap<String, String>) -> bool {
        let is_listed = self.ids.is_empty() || self.ids.iter().any(|listed| listed == id);
        let mut wanted = self.labels.iter();
        is_listed && wanted.all(|(name, value)| labels.get(name) == Some(value))
    }
}

/// The topic of a name.
pub fn topic(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// The name of a topic of desired state.
pub fn name(topic: &str) -> Option<&str> {
    topic
        .strip_prefix(PREFIX)
        .filter(|name| !name.contains('/'))
}

/// What desired state is heard on.
pub const FILTER: &str = "thalweg/desired/+";

const PREFIX: &str = "thalweg/desired/";
