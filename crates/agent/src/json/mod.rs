//! JSON as data in flows: fields keep their order, and paths select in it.
//!
//! A tree of its own rather than `serde_json::Value`, which sorts fields: records keep the order
//! in which they came, and so do the columns that are written of them. Reading goes through
//! serde_json, which bounds the depth.

mod path;
mod select;
mod shift;

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

pub(crate) use path::Path;
pub(crate) use select::order;
pub(crate) use shift::Shift;

/// A JSON value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Json {
    /// Nothing.
    #[default]
    Null,
    /// True or false.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A whole number that is too large for [`Json::Whole`].
    Large(u64),
    /// A number with a fraction or an exponent.
    Fraction(f64),
    /// A text.
    Text(String),
    /// Values in order.
    List(Vec<Json>),
    /// Named values in order.
    Object(Fields),
}

/// Named values in the order in which they came; of equal names the last value stands at the
/// first place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(Vec<(String, Json)>);

impl Json {
    /// Reads one document.
    pub(crate) fn parse(text: &str) -> Result<Json, String> {
        Json::from_bytes(text.as_bytes())
    }

    /// Reads one document in UTF-8.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Json, String> {
        serde_json::from_slice(bytes).map_err(|error| format!("no JSON: {error}"))
    }

    /// Writes it without blanks.
    pub(crate) fn to_text(&self) -> String {
        // Names are texts and there is no I/O, so nothing can fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// A text as it stands, nothing as the empty text, and the rest as JSON.
    pub(crate) fn to_plain(&self) -> String {
        match self {
            Json::Text(text) => text.clone(),
            Json::Null => String::new(),
            other => other.to_text(),
        }
    }

    /// A number as one with a fraction, none where it is no number.
    pub(crate) fn fraction(&self) -> Option<f64> {
        match self {
            Json::Whole(number) => Some(*number as f64),
            Json::Large(number) => Some(*number as f64),
            Json::Fraction(number) => Some(*number),
            _ => None,
        }
    }

    /// Whether it is neither a list nor an object.
    pub(crate) fn is_scalar(&self) -> bool {
        !matches!(self, Json::List(_) | Json::Object(_))
    }
}

impl Fields {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The value of `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    /// The value of `name`, to change.
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Json> {
        self.0
            .iter_mut()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    /// Sets `name`, at the end where it is new.
    pub(crate) fn set(&mut self, name: &str, value: Json) {
        match self.get_mut(name) {
            Some(place) => *place = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Adds a field that is known to be new.
    pub(crate) fn push(&mut self, name: String, value: Json) {
        self.0.push((name, value));
    }

    /// Keeps the fields that `keeps` accepts.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&str) -> bool) {
        self.0.retain(|(name, _)| keeps(name));
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Json)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl FromIterator<(String, Json)> for Fields {
    /// From fields whose names differ.
    fn from_iter<T: IntoIterator<Item = (String, Json)>>(fields: T) -> Self {
        Fields(fields.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Flag(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Whole(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(i64::try_from(value).map_or(Json::Large(value), Json::Whole))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Fraction(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut fields = Fields::default();
        // Small objects are searched, large ones need an index to stay linear.
        let mut index: HashMap<String, usize> = HashMap::new();
        while let Some((name, value)) = entries.next_entry::<String, Json>()? {
            if fields.len() < SEARCHED_MAX {
                fields.set(&name, value);
                continue;
            }
            if index.is_empty() {
                let known = fields.0.iter().enumerate();
                index.extend(known.map(|(at, (name, _))| (name.clone(), at)));
            }
            match index.get(&name) {
                Some(at) => fields.0[*at].1 = value,
                None => {
                    index.insert(name.clone(), fields.len());
                    fields.push(name, value);
                }
            }
        }
        Ok(Json::Object(fields))
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Flag(value) => serializer.serialize_bool(*value),
            Json::Whole(value) => serializer.serialize_i64(*value),
            Json::Large(value) => serializer.serialize_u64(*value),
            Json::Fraction(value) => serializer.serialize_f64(*value),
            Json::Text(value) => serializer.serialize_str(value),
            Json::List(items) => serializer.collect_seq(items),
            Json::Object(fields) => fields.serialize(serializer),
        }
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Fields of an object that are searched one by one while it is read.
const SEARCHED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_keep_their_order_and_their_numbers() {
        for text in [
            r#"{"b":1,"a":[true,null,-2,1.5,"x\"y"],"":{}}"#,
            "18446744073709551615",
            "1.0",
            "[]",
        ] {
            assert_eq!(Json::parse(text).unwrap().to_text(), text);
        }
        let twice = Json::parse(r#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!(twice.to_text(), r#"{"a":3,"b":2}"#);
    }

    #[test]
    fn many_fields_and_deep_documents_are_bounded() {
        let many: String = (0..50_000).map(|n| format!("\"{n}\":{n},")).collect();
        let text = format!("{{{many}\"7\":0}}");
        let Json::Object(fields) = Json::parse(&text).unwrap() else {
            panic!("no object");
        };
        assert_eq!(fields.len(), 50_000);
        assert_eq!(fields.get("7"), Some(&Json::Whole(0)));
        let deep = "[".repeat(100_000);
        assert!(Json::parse(&deep).unwrap_err().contains("recursion limit"));
    }
}
