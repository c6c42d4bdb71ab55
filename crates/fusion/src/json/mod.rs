//! Picks the fields that statements use out of a JSON payload.
//!
//! One pass over the payload fills one slot per wanted field; nothing else is built. The fast pass
//! ([`fast`]) takes plain JSON and declines what needs care: escapes in texts, control characters,
//! deep nesting and everything that looks wrong. What it declines goes through serde_json
//! ([`full`]), which also words the error for a payload that is no JSON. Both give the same
//! values; of a key that stands twice in one object the last counts.
//!
//! A number is an integer where it is written as one and fits 64 bits, else a double.

mod fast;
mod full;
mod tree;

pub use tree::{FieldPath, FieldTree};

use crate::formats::Format;
use crate::value::Value;

/// Why a payload could not be read; the sender's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("payload is no {0}")]
pub struct BadPayload(String);

impl BadPayload {
    /// Says that a payload is not of a format.
    pub fn of(format: Format, why: &str) -> Self {
        BadPayload(match format {
            Format::Json => format!("JSON: {why}"),
            other => format!("{}: {why}", other.name()),
        })
    }
}

/// Fills the slots of a set of wanted fields from payloads.
#[derive(Clone, Debug)]
pub struct Scanner {
    tree: FieldTree,
}

impl Scanner {
    /// A scanner whose slot `i` is `paths[i]`.
    pub fn new<'p>(paths: impl IntoIterator<Item = &'p FieldPath>) -> Self {
        Scanner {
            tree: FieldTree::new(paths),
        }
    }

    /// Fills `values` with one value per path; a missing field is null.
    ///
    /// # Errors
    /// The payload is not one JSON document in UTF-8. `values` is then all null.
    pub fn scan<'a>(
        &self,
        payload: &'a [u8],
        values: &mut Vec<Value<'a>>,
    ) -> Result<(), BadPayload> {
        self.clear(values);
        let text = std::str::from_utf8(payload)
            .map_err(|error| BadPayload::of(Format::Json, &format!("not UTF-8 ({error})")))?;
        if fast::scan(&self.tree, text, values).is_some() {
            return Ok(());
        }
        self.scan_fully(text, values)
    }

    /// Sets every slot to null: an event without a payload.
    pub fn clear(&self, values: &mut Vec<Value<'_>>) {
        values.clear();
        values.resize(self.tree.slots(), Value::Null);
    }

    fn scan_fully<'a>(&self, text: &'a str, values: &mut Vec<Value<'a>>) -> Result<(), BadPayload> {
        self.clear(values);
        full::scan(&self.tree, text, values).map_err(|error| {
            self.clear(values);
            BadPayload::of(Format::Json, &error.to_string())
        })
    }
}

#[cfg(test)]
mod tests;
