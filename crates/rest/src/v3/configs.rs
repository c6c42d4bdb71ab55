//! The form of settings, be it a topic's or a broker's, and of the bodies that change them.

use axum::body::Body;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use streams::ConfigChange;

use super::Here;
use super::refusal::Refusal;
use crate::answer::{self, JsonObject, or_default};
use crate::error::RestError;

/// A setting as it is told; `O` says whose it is.
#[derive(Serialize)]
pub(super) struct Config<O> {
    pub cluster_id: String,
    #[serde(flatten)]
    pub owner: O,
    pub name: String,
    pub value: Option<String>,
    pub is_default: bool,
    pub is_read_only: bool,
    pub is_sensitive: bool,
    pub source: &'static str,
    pub synonyms: Vec<Synonym>,
}

/// A place from which the value may come.
#[derive(Serialize)]
pub(super) struct Synonym {
    pub name: String,
    pub value: Option<String>,
    pub source: &'static str,
}

/// A change as it is sent: `{"name", "value", "operation"}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    name: String,
    value: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    operation: Operation,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Operation {
    #[default]
    Set,
    Delete,
    Append,
    Subtract,
}

/// What a body asks to be changed.
pub(super) struct Alteration {
    pub changes: Vec<ConfigChange>,
    /// Nothing is to be changed, only looked whether it could.
    pub is_check: bool,
}

impl Here {
    /// Reads `{"value"}`, the new value of the setting `name`; null brings the default back.
    pub(super) async fn new_value(
        &self,
        name: String,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Vec<ConfigChange>, Refusal> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct NewValue {
            value: Option<String>,
        }
        let held = self.entity(headers, body).await?;
        let NewValue { value } = answer::entity(&held.bytes)?;
        Ok(vec![match value {
            Some(value) => ConfigChange::Set(name, value),
            None => ConfigChange::Unset(name),
        }])
    }

    /// Reads `{"data": [{"name", "value", "operation"}], "validate_only"}`.
    pub(super) async fn alteration(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Alteration, Refusal> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Asked {
            data: Vec<JsonObject<Entry>>,
            #[serde(default, deserialize_with = "or_default")]
            validate_only: bool,
        }
        let held = self.entity(headers, body).await?;
        let asked: Asked = answer::entity(&held.bytes)?;
        Ok(Alteration {
            changes: changes(asked.data)?,
            is_check: asked.validate_only,
        })
    }
}

/// The changes that entries ask for.
pub(super) fn changes(entries: Vec<JsonObject<Entry>>) -> Result<Vec<ConfigChange>, RestError> {
    let change = |JsonObject(entry): JsonObject<Entry>| {
        let Entry { name, value, .. } = entry;
        match (entry.operation, value) {
            (Operation::Delete, _) | (Operation::Set, None) => Ok(ConfigChange::Unset(name)),
            (Operation::Set, Some(value)) => Ok(ConfigChange::Set(name, value)),
            (Operation::Append, Some(value)) => Ok(ConfigChange::Append(name, value)),
            (Operation::Subtract, Some(value)) => Ok(ConfigChange::Subtract(name, value)),
            (_, None) => Err(RestError::InvalidEntity(format!("'{name}' needs a value"))),
        }
    };
    entries.into_iter().map(change).collect()
}
