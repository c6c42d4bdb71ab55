//! Tolerant reading and exact writing of JSON objects, for the `message!` types.
//!
//! One pass over the text and no tree in between. A key that comes twice takes its last value. A
//! known key whose value has a wrong shape counts as absent: the rest of the message still holds.
//! Reading allocates in proportion to the text only.

mod message;
mod raw_json;
mod visitors;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, MapAccess};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::C2Error;

pub(crate) use message::message;
pub use raw_json::RawJson;
use visitors::{ListVisitor, MapVisitor, ObjectVisitor, ScalarVisitor};
pub(crate) use visitors::{TopVisitor, scalars_are};

/// A value that can stand under a key: reads what it understands, `None` for anything else.
pub(crate) trait Node: Sized {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error>;
}

/// A field of a message: knows when it has nothing to write.
pub(crate) trait Part: Sized + Default {
    fn take<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
    fn is_absent(&self) -> bool;
}

/// A JSON object with known keys.
pub(crate) trait Message: Sized {
    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error>;
}

/// Reads one message from `bytes`.
pub(crate) fn from_slice<'de, T: Deserialize<'de>>(
    message: &'static str,
    bytes: &'de [u8],
) -> Result<T, C2Error> {
    serde_json::from_slice(bytes).map_err(|source| C2Error::Malformed { message, source })
}

/// Writes one message, compact.
pub(crate) fn to_vec(message: &'static str, value: &impl Serialize) -> Result<Vec<u8>, C2Error> {
    serde_json::to_vec(value).map_err(|source| C2Error::Unwritable { message, source })
}

/// Any JSON value, reduced to what a scalar field can use.
pub(crate) enum Scalar<'de> {
    Nothing,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(Cow<'de, str>),
}

impl<'de> Scalar<'de> {
    pub(crate) fn read<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

impl Node for String {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        Ok(match Scalar::read(deserializer)? {
            Scalar::Nothing => None,
            Scalar::Bool(value) => Some(value.to_string()),
            Scalar::Integer(value) => Some(value.to_string()),
            Scalar::Float(value) => Some(value.to_string()),
            Scalar::Text(text) => Some(text.into_owned()),
        })
    }
}

impl Node for i64 {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        Ok(match Scalar::read(deserializer)? {
            Scalar::Integer(value) => Some(value),
            // A cast from float saturates, which is what a counter out of range should do.
            Scalar::Float(value) => Some(value as i64),
            Scalar::Text(text) => {
                let text = text.trim();
                text.parse()
                    .ok()
                    .or_else(|| text.parse::<f64>().ok().map(|value| value as i64))
            }
            Scalar::Nothing | Scalar::Bool(_) => None,
        })
    }
}

impl Node for f64 {
    /// Reads the digits itself: `serde_json` is one off in the last of some, and what is read and
    /// written again and again would wander.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let number = match raw.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str::<Cow<'_, str>>(raw.get())
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            _ => raw.get().parse().ok(),
        };
        // JSON has no word for others.
        Ok(number.filter(|number: &f64| number.is_finite()))
    }
}

impl Node for bool {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        Ok(match Scalar::read(deserializer)? {
            Scalar::Bool(value) => Some(value),
            Scalar::Integer(value) => Some(value != 0),
            Scalar::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Scalar::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
            Scalar::Nothing | Scalar::Float(_) | Scalar::Text(_) => None,
        })
    }
}

impl Node for RawJson {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        let raw = RawJson::deserialize(deserializer)?;
        Ok((!raw.is_null()).then_some(raw))
    }
}

impl Node for serde_json::Value {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok((!value.is_null()).then_some(value))
    }
}

impl<T: Message> Node for T {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        deserializer.deserialize_any(ObjectVisitor(PhantomData))
    }
}

impl<T: Node> Part for Option<T> {
    fn take<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer)
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T: Node> Part for Vec<T> {
    fn take<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Node> Part for BTreeMap<String, T> {
    fn take<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MapVisitor(PhantomData))
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

/// Reads a [`Node`] where serde wants a seed.
pub(crate) struct NodeSeed<T>(pub(crate) PhantomData<T>);

impl<'de, T: Node> DeserializeSeed<'de> for NodeSeed<T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        T::read(deserializer)
    }
}

/// Reads a [`Part`] where serde wants a seed.
pub(crate) struct PartSeed<T>(pub(crate) PhantomData<T>);

impl<'de, T: Part> DeserializeSeed<'de> for PartSeed<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::take(deserializer)
    }
}
