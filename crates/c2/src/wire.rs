//! Tolerant reading and exact writing of JSON objects, for the `message!` types.
//!
//! One pass over the text and no tree in between. A key that comes twice takes its last value. A
//! known key whose value has a wrong shape counts as absent: the rest of the message still holds.
//! Reading allocates in proportion to the text only.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
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

    fn is_null(&self) -> bool {
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

/// Lets a visitor take any scalar as "wrong shape"; the shapes it wants it visits itself.
macro_rules! scalars_are {
    ($value:expr) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($value)
        }
    };
}

pub(crate) use scalars_are;

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Scalar::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Scalar::Integer(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Scalar::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Scalar::Nothing)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        skip_seq(seq)?;
        Ok(Scalar::Nothing)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        skip_map(map)?;
        Ok(Scalar::Nothing)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Message> Visitor<'de> for ObjectVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    scalars_are!(None);

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        skip_seq(seq)?;
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::from_map(map).map(Some)
    }
}

/// The visitor of a whole message: there, anything but an object is an error.
pub(crate) struct TopVisitor<T>(pub(crate) PhantomData<T>);

impl<'de, T: Message> Visitor<'de> for TopVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::from_map(map)
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<T: Node> ListVisitor<T> {
    fn one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
        Ok(T::read(deserializer)?.into_iter().collect())
    }
}

impl<'de, T: Node> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list, or its only element")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Self::one(value.into_deserializer())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Self::one(value.into_deserializer())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Self::one(value.into_deserializer())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Self::one(value.into_deserializer())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Self::one(text.into_deserializer())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(NodeSeed(PhantomData))? {
            items.extend(item);
        }
        Ok(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Self::one(MapAccessDeserializer::new(map))
    }
}

struct MapVisitor<T>(PhantomData<T>);

impl<'de, T: Node> Visitor<'de> for MapVisitor<T> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object with any keys")
    }

    scalars_are!(BTreeMap::new());

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        skip_seq(seq)?;
        Ok(BTreeMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if let Some(value) = map.next_value_seed(NodeSeed(PhantomData))? {
                entries.insert(key, value);
            }
        }
        Ok(entries)
    }
}

fn skip_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<(), A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

fn skip_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

/// Declares a JSON object: its fields with their keys (further keys after `|` are read, never
/// written), and after `drops` the keys that carry nothing. Keys of neither kind go to `other`.
macro_rules! message {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* pub $field:ident: $type:ty = $key:literal $(| $alias:literal)*, )*
        }
        $(drops $($dropped:literal),+)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
            /// What came under keys that have no field here.
            pub other: std::collections::BTreeMap<String, $crate::wire::RawJson>,
        }

        const _: () = {
            use serde::ser::SerializeMap;
            use $crate::wire::{Message, Part, PartSeed, RawJson, TopVisitor};

            #[allow(non_camel_case_types)]
            enum Key {
                $( $field, )*
                #[allow(dead_code, reason = "most messages drop no key")]
                Dropped,
                Other(String),
            }

            impl Key {
                fn named(text: &str) -> Option<Key> {
                    match text {
                        $( $key $(| $alias)* => Some(Key::$field), )*
                        $( $($dropped)|+ => Some(Key::Dropped), )?
                        _ => None,
                    }
                }
            }

            impl<'de> serde::Deserialize<'de> for Key {
                fn deserialize<D: serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<Self, D::Error> {
                    struct KeyVisitor;

                    impl serde::de::Visitor<'_> for KeyVisitor {
                        type Value = Key;

                        fn expecting(
                            &self,
                            f: &mut std::fmt::Formatter<'_>,
                        ) -> std::fmt::Result {
                            f.write_str("a key")
                        }

                        fn visit_str<E>(self, text: &str) -> Result<Key, E> {
                            Ok(Key::named(text).unwrap_or_else(|| Key::Other(text.to_owned())))
                        }
                    }

                    deserializer.deserialize_identifier(KeyVisitor)
                }
            }

            impl Message for $name {
                fn from_map<'de, A: serde::de::MapAccess<'de>>(
                    mut map: A,
                ) -> Result<Self, A::Error> {
                    let mut this = $name::default();
                    while let Some(key) = map.next_key::<Key>()? {
                        match key {
                            $( Key::$field => {
                                this.$field =
                                    map.next_value_seed(PartSeed(std::marker::PhantomData))?;
                            } )*
                            Key::Dropped => {
                                map.next_value::<serde::de::IgnoredAny>()?;
                            }
                            Key::Other(name) => {
                                this.other.insert(name, map.next_value::<RawJson>()?);
                            }
                        }
                    }
                    Ok(this)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<Self, D::Error> {
                    deserializer.deserialize_map(TopVisitor(std::marker::PhantomData))
                }
            }

            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(
                    &self,
                    serializer: S,
                ) -> Result<S::Ok, S::Error> {
                    let mut map = serializer.serialize_map(None)?;
                    $( if !Part::is_absent(&self.$field) {
                        map.serialize_entry($key, &self.$field)?;
                    } )*
                    for (key, value) in &self.other {
                        map.serialize_entry(key, value)?;
                    }
                    map.end()
                }
            }
        };
    };
}

pub(crate) use message;
