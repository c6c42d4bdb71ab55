//! The full pass, by serde_json: everything the fast pass declines, and the errors' words.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::tree::{FieldTree, Node, ROOT};
use crate::value::{Value, parse_number};

/// Fills the slots from `text`, which must be one JSON document.
pub fn scan<'a>(
    tree: &FieldTree,
    text: &'a str,
    values: &mut [Value<'a>],
) -> Result<(), serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(text);
    Wanted {
        tree,
        node: ROOT,
        values,
    }
    .deserialize(&mut parser)?;
    parser.end()
}

/// Reads the value of a wanted node.
struct Wanted<'s, 'a> {
    tree: &'s FieldTree,
    node: Node,
    values: &'s mut [Value<'a>],
}

impl<'a> DeserializeSeed<'a> for Wanted<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        self.tree.clear_below(self.node, self.values);
        let Some(slot) = self.tree.slot(self.node) else {
            return deserializer.deserialize_any(self);
        };
        let raw: &'a RawValue = serde::Deserialize::deserialize(deserializer)?;
        self.values[slot] = of_raw(raw.get()).map_err(serde::de::Error::custom)?;
        if self.tree.has_children(self.node) {
            let mut inner = serde_json::Deserializer::from_str(raw.get());
            inner
                .deserialize_any(self)
                .map_err(serde::de::Error::custom)?;
        }
        Ok(())
    }
}

impl<'a> Visitor<'a> for Wanted<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) = map.next_key_seed(Key {
            tree: self.tree,
            node: self.node,
        })? {
            match child {
                Some(node) => {
                    map.next_value_seed(Wanted {
                        tree: self.tree,
                        node,
                        values: self.values,
                    })?;
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    // What is no object has no fields: every wanted one stays null.

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Looks a key up without keeping it.
struct Key<'s> {
    tree: &'s FieldTree,
    node: Node,
}

impl<'a> DeserializeSeed<'a> for Key<'_> {
    type Value = Option<Node>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Option<Node>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<Node>, E> {
        Ok(self.tree.child(self.node, name.as_bytes()))
    }
}

fn of_raw(raw: &str) -> Result<Value<'_>, serde_json::Error> {
    Ok(match raw.as_bytes().first() {
        Some(b'{' | b'[') => Value::Json(Cow::Borrowed(raw)),
        Some(b'"') if !raw.contains('\\') => Value::text(&raw[1..raw.len() - 1]),
        Some(b'"') => Value::Text(Cow::Owned(serde_json::from_str(raw)?)),
        Some(b't') => Value::Bool(true),
        Some(b'f') => Value::Bool(false),
        Some(b'n') => Value::Null,
        _ => parse_number(raw),
    })
}
