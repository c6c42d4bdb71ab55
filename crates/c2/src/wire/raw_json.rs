//! JSON that is kept and handed on, not understood.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::C2Error;

/// A piece of JSON kept as the text that came: validated, not understood. Cheap to clone.
#[derive(Clone)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    /// The JSON text of `value`.
    pub fn of(value: &impl Serialize) -> Result<RawJson, C2Error> {
        let raw = serde_json::value::to_raw_value(value).map_err(|source| C2Error::Unwritable {
            message: "value",
            source,
        })?;
        Ok(RawJson(Arc::from(raw)))
    }

    /// Checks that `text` is one JSON value and keeps it.
    pub fn parse(text: String) -> Result<RawJson, C2Error> {
        let raw = RawValue::from_string(text).map_err(|source| C2Error::Malformed {
            message: "value",
            source,
        })?;
        Ok(RawJson(Arc::from(raw)))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The elements of a list; a lone object is a list of one, since the C++ agent writes a list
    /// of one element as the element. Anything else is an empty list.
    pub fn items(&self) -> Vec<RawJson> {
        match self.as_str().as_bytes().first() {
            Some(b'[') => serde_json::from_str::<Vec<Arc<RawValue>>>(self.as_str())
                .map(|items| items.into_iter().map(RawJson).collect())
                .unwrap_or_default(),
            Some(b'{') => vec![self.clone()],
            _ => Vec::new(),
        }
    }

    pub(super) fn is_null(&self) -> bool {
        self.as_str() == "null"
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &RawJson) -> bool {
        self.as_str() == other.as_str()
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if is_deep(raw.get().as_bytes()) {
            let message = format!("nested deeper than {DEPTH_MAX} levels");
            return Err(serde::de::Error::custom(message));
        }
        Ok(RawJson(Arc::from(raw)))
    }
}

/// Whether whole JSON has more levels than anybody should have to read: what is kept as text is
/// handed on to others, whose readers may have no bound.
fn is_deep(json: &[u8]) -> bool {
    let (mut depth, mut is_text) = (0_usize, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            // What stands behind it is no end of the text.
            b'\\' if is_text => _ = bytes.next(),
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return true;
                }
            }
            b']' | b'}' if !is_text => depth -= 1,
            _ => {}
        }
    }
    false
}

/// Levels of lists and objects in what is kept as text: as many as `serde_json` reads of the rest.
const DEPTH_MAX: usize = 127;
