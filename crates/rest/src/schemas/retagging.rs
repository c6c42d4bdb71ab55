//! New versions that differ from a registered one in tags, metadata or rules.

use serde_json::{Map, Value};

use super::around::{RULE_LISTS, lay_rules};
use super::error::SchemaError;
use super::registering::{NewSchema, Registered, Tags};
use super::state::{State, VERSION, last_live, next_version, object};
use super::{AskedVersion, SchemaRegistry, found_version};

/// What a version is registered anew with.
#[derive(Debug, Default)]
pub(super) struct Retagging {
    /// The number that it is to have; none is the next.
    pub version: Option<i32>,
    pub tags: Tags,
    /// None is the version's own.
    pub metadata: Option<Map<String, Value>>,
    pub rules: Rules,
}

/// What is done with rules.
#[derive(Debug, Default)]
pub(super) enum Rules {
    /// The version's own stay.
    #[default]
    Same,
    Set(Map<String, Value>),
    /// Those of the last version are taken, with these laid over them and without those of names.
    Changed(Map<String, Value>, Vec<String>),
}

impl SchemaRegistry {
    /// Registers a version of a subject with other tags, metadata or rules.
    pub(super) async fn retag(
        &self,
        subject: &str,
        asked: AskedVersion,
        change: Retagging,
    ) -> Result<Registered, SchemaError> {
        self.log.catch_up().await?;
        let new = change.of(&self.log.state(), subject, asked)?;
        let mut registered = self.register_new(subject, new, false).await?;
        registered.is_completed = true;
        Ok(registered)
    }
}

impl Retagging {
    /// The new schema.
    fn of(
        self,
        state: &State,
        subject: &str,
        asked: AskedVersion,
    ) -> Result<NewSchema, SchemaError> {
        let (_, version) = found_version(state, subject, asked, false)?;
        let content = &version.schema.content;
        let versions = state.versions(subject);
        let mut metadata = match self.metadata {
            Some(metadata) => metadata,
            None => object(content.metadata.as_deref()).unwrap_or_default(),
        };
        let number = self.version.unwrap_or_else(|| next_version(versions));
        tell(&mut metadata, number);
        let rule_set = match self.rules {
            Rules::Same => object(content.rule_set.as_deref()).unwrap_or_default(),
            Rules::Set(rules) => rules,
            Rules::Changed(merged, removed) => {
                let last = versions.and_then(last_live);
                let last = last.and_then(|(_, of)| object(of.schema.content.rule_set.as_deref()));
                changed(last.unwrap_or_default(), merged, &removed)
            }
        };
        Ok(NewSchema {
            kind: content.kind,
            text: Some(content.text.to_string()),
            references: content.references.clone(),
            metadata: Some(metadata),
            rule_set: Some(rule_set),
            tags: self.tags,
            id: None,
            version: self.version,
        })
    }
}

/// Writes a version's number into metadata, by which the version is another one than before.
fn tell(metadata: &mut Map<String, Value>, version: i32) {
    let properties = metadata.entry("properties").or_insert(Value::Null);
    if !properties.is_object() {
        *properties = Map::new().into();
    }
    if let Value::Object(properties) = properties {
        properties.insert(VERSION.to_owned(), version.to_string().into());
    }
}

/// Rules with others laid over them, and without those that are called so.
fn changed(
    mut rules: Map<String, Value>,
    merged: Map<String, Value>,
    removed: &[String],
) -> Map<String, Value> {
    lay_rules(&mut rules, merged);
    for (list, _) in RULE_LISTS {
        let Some(Value::Array(rules)) = rules.get_mut(list) else {
            continue;
        };
        rules.retain(|rule| {
            let name = rule.get("name").and_then(Value::as_str);
            !removed.iter().any(|removed| Some(&**removed) == name)
        });
    }
    rules.retain(|_, rules| rules.as_array().is_none_or(|rules| !rules.is_empty()));
    rules
}
