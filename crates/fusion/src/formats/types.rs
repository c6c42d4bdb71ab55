//! Event types: a name that statements may use in FROM, the MQTT topics it stands for, and how
//! their payloads are read.

use mqtt::TopicFilter;
use serde::{Deserialize, Serialize};

use super::Format;
use crate::limits::EVENT_TYPES_MAX;

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventType {
    /// The name.
    pub alias: String,
    /// The MQTT topic filter.
    pub filter: String,
    /// How payloads are read.
    pub format: Format,
}

/// The table; the first row that fits counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventTypes(pub Vec<EventType>);

impl Default for EventTypes {
    /// What the DFM knows without being told.
    fn default() -> Self {
        let rows = [
            (
                "Observation",
                "LS/+/+/OGC/1.0/Datastreams/#",
                Format::Observation,
            ),
            ("Observation11", "v1.1/#", Format::Observation),
            ("Observation097", "/incoming/#", Format::Observation097),
            ("SenML", "LS/+/+/SenML/10/Event/#", Format::Senml),
            ("Raw", "/raw/#", Format::Raw),
        ];
        let rows = rows.map(|(alias, filter, format)| EventType {
            alias: alias.to_owned(),
            filter: filter.to_owned(),
            format,
        });
        EventTypes(rows.to_vec())
    }
}

impl EventTypes {
    /// The row of a name.
    pub fn named(&self, alias: &str) -> Option<&EventType> {
        self.0.iter().find(|row| row.alias == alias)
    }

    /// How payloads are read that come on `filter`: by the first row whose filter covers it.
    pub fn format_of(&self, filter: &str) -> Format {
        let row = self.0.iter().find(|row| covers(&row.filter, filter));
        row.map_or(Format::Json, |row| row.format)
    }

    /// Adds a row, or puts it in the place of the one with its name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn set(&mut self, row: EventType) -> Result<(), String> {
        check(&row)?;
        if let Some(known) = self.0.iter_mut().find(|known| known.alias == row.alias) {
            *known = row;
            return Ok(());
        }
        if self.0.len() >= EVENT_TYPES_MAX {
            return Err(format!(
                "there are {EVENT_TYPES_MAX} types already: remove one"
            ));
        }
        self.0.push(row);
        Ok(())
    }

    /// Removes the row of a name; false when there is none.
    pub fn remove(&mut self, alias: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|row| row.alias != alias);
        self.0.len() < before
    }

    /// All that is wrong with the table, a line each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.0.len() > EVENT_TYPES_MAX {
            problems.push(format!("at most {EVENT_TYPES_MAX} rows"));
        }
        for (index, row) in self.0.iter().enumerate() {
            problems.extend(check(row).err());
            if self.0[..index].iter().any(|known| known.alias == row.alias) {
                problems.push(format!("the alias {} stands twice", row.alias));
            }
        }
        problems
    }
}

fn check(row: &EventType) -> Result<(), String> {
    let mut characters = row.alias.chars();
    let starts_well = characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic());
    if !starts_well || !characters.all(|rest| rest.is_ascii_alphanumeric() || rest == '_') {
        return Err(format!(
            "the alias '{}' is no name: a letter, then letters, digits and _",
            row.alias
        ));
    }
    match row.filter.parse::<TopicFilter>() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the filter of {}: {error}", row.alias)),
    }
}

/// Whether every topic that `narrow` matches is one that `wide` matches.
fn covers(wide: &str, narrow: &str) -> bool {
    let (mut wide, mut narrow) = (wide.split('/'), narrow.split('/'));
    loop {
        match (wide.next(), narrow.next()) {
            (Some("#"), _) => return true,
            (Some("+"), Some(level)) if level != "#" => {}
            (Some(one), Some(other)) if one == other => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}
