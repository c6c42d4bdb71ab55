//! The records of the registry's topic, laid out as other registries lay them out, so that a topic
//! of theirs can be taken over and ours handed back.
//!
//! ```text
//! key                                                              value
//! {"keytype":"SCHEMA","subject":S,"version":V,"magic":1}           {"subject","version","id",
//!                                                                   "schemaType"?, "references"?,
//!                                                                   "metadata"?, "ruleSet"?,
//!                                                                   "schema","deleted"}; none: gone
//! {"keytype":"CONFIG","subject":S or null,"magic":0}               {"compatibilityLevel"?,
//!                                                                   "normalize"?, "alias"?,
//!                                                                   "compatibilityGroup"?,
//!                                                                   "compatibilityPolicy"?,
//!                                                                   "validateFields"?,
//!                                                                   "validateNewSchemas"?,
//!                                                                   "defaultMetadata"?, "overrideMetadata"?,
//!                                                                   "defaultRuleSet"?, "overrideRuleSet"?},
//!                                                                   and what others set; none: not set
//! {"keytype":"MODE","subject":S or null,"magic":0}                 {"mode"}; none: not set
//! {"keytype":"DELETE_SUBJECT","subject":S,"magic":0}               {"subject","version"}: versions
//!                                                                   up to this one are soft-deleted
//! {"keytype":"CLEAR_SUBJECT","subject":S,"magic":0}                {"subject"}: nothing is left of it;
//!                                                                   only others write it
//! {"keytype":"NOOP","magic":0}                                     {"idMax"}, ours; nothing else
//! ```
//!
//! Keys that others wrote with their fields in another order mean the same; the state keeps their
//! bytes, as compaction goes by bytes. Unknown key types, and fields elsewhere, are passed over.
//!
//! A SCHEMA record of ours has the header [`EXPECTS`]: the id that its writer found under the key,
//! or `-` when it found nothing. It counts only when that is still so in the order of the log, see
//! `state.rs`.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use streams::Record;

use super::compatibility::Level;
use super::format::SchemaType;
use crate::answer::or_default;

/// What a record is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "keytype", rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Key {
    Schema {
        subject: String,
        version: i32,
        #[serde(default)]
        magic: i32,
    },
    Config {
        subject: Option<String>,
        #[serde(default)]
        magic: i32,
    },
    Mode {
        subject: Option<String>,
        #[serde(default)]
        magic: i32,
    },
    DeleteSubject {
        subject: String,
        #[serde(default)]
        magic: i32,
    },
    ClearSubject {
        subject: String,
        #[serde(default)]
        magic: i32,
    },
    Noop {
        #[serde(default)]
        magic: i32,
    },
    #[serde(other)]
    Unknown,
}

/// What a SCHEMA record says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SchemaValue {
    pub subject: String,
    pub version: i32,
    pub id: i32,
    #[serde(default, with = "type_name", skip_serializing_if = "is_avro")]
    pub schema_type: SchemaType,
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub references: Vec<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_set: Option<Map<String, Value>>,
    pub schema: Arc<str>,
    #[serde(default)]
    pub deleted: bool,
}

/// Another schema that a schema names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// The name by which the schema's text calls it.
    pub name: String,
    /// The subject that it lies under.
    pub subject: String,
    /// Its version there.
    pub version: i32,
}

/// What is set for a subject, or for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigValue {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compatibility_level: Option<Level>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalize: Option<bool>,
    /// The subject that it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// A property of metadata: only versions that have it alike are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compatibility_group: Option<String>,
    /// How JSON Schemas are compared; others may have set more policies than are followed here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compatibility_policy: Option<String>,
    /// Whether fields are held against those that metadata reserve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate_fields: Option<bool>,
    /// Whether a new schema's defaults must fit, which they must unless somebody said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate_new_schemas: Option<bool>,
    /// What new schemas have where they bring nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_metadata: Option<Map<String, Value>>,
    /// What new schemas have whatever they bring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_metadata: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_rule_set: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_rule_set: Option<Map<String, Value>>,
    /// What others set, which is kept and not followed.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What may be written under a subject, or under all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Mode {
    Readwrite,
    Readonly,
    ReadonlyOverride,
    Import,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ModeValue {
    pub mode: Mode,
}

#[derive(Serialize, Deserialize)]
pub(super) struct DeletedSubject {
    pub subject: String,
    pub version: i32,
}

/// The highest id that a context ever gave; ours alone, in the value of a NOOP.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NoopValue {
    pub id_max: std::collections::BTreeMap<String, i32>,
}

/// What its writer found under a SCHEMA record's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Nothing,
    Id(i32),
}

/// A record to be written.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: Key,
    pub value: Option<Vec<u8>>,
    pub expected: Option<Expected>,
}

impl Key {
    pub fn schema(subject: &str, version: i32) -> Key {
        Key::Schema {
            subject: subject.to_owned(),
            version,
            magic: 1,
        }
    }

    /// The key's bytes, with the fields in the usual order.
    pub fn bytes(&self) -> Bytes {
        to_json(self).into()
    }

    /// The same key whatever magic it was written with.
    pub fn usual(mut self) -> Key {
        match &mut self {
            Key::Schema { magic, .. } => *magic = 1,
            Key::Config { magic, .. }
            | Key::Mode { magic, .. }
            | Key::DeleteSubject { magic, .. }
            | Key::ClearSubject { magic, .. }
            | Key::Noop { magic } => *magic = 0,
            Key::Unknown => {}
        }
        self
    }
}

impl ConfigValue {
    /// Without what is not set, as others write it.
    pub fn set(mut self) -> Self {
        self.other.retain(|_, value| !value.is_null());
        self
    }

    /// As it is told: others repeat the subject in it.
    pub fn told(&self) -> Self {
        let mut told = self.clone();
        told.other.remove("subject");
        told
    }
}

impl Mode {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Readwrite => "READWRITE",
            Mode::Readonly => "READONLY",
            Mode::ReadonlyOverride => "READONLY_OVERRIDE",
            Mode::Import => "IMPORT",
        }
    }

    /// The mode of this name, in whatever case.
    pub fn named(name: &str) -> Option<Mode> {
        let all = [
            Mode::Readwrite,
            Mode::Readonly,
            Mode::ReadonlyOverride,
            Mode::Import,
        ];
        all.into_iter()
            .find(|mode| mode.name().eq_ignore_ascii_case(name))
    }
}

impl Expected {
    /// Reads the header of a record of ours; none for a record of somebody else's.
    pub fn of(headers: &[(String, Option<Bytes>)]) -> Option<Expected> {
        let (_, value) = headers.iter().find(|(name, _)| name == EXPECTS)?;
        match value.as_deref()? {
            b"-" => Some(Expected::Nothing),
            digits => {
                let id = std::str::from_utf8(digits).ok()?.parse().ok()?;
                Some(Expected::Id(id))
            }
        }
    }

    fn text(self) -> String {
        match self {
            Expected::Nothing => "-".to_owned(),
            Expected::Id(id) => id.to_string(),
        }
    }
}

impl Entry {
    /// A version of a subject; `expected` is what is there now.
    pub fn schema(value: &SchemaValue, expected: Expected) -> Entry {
        Entry {
            key: Key::schema(&value.subject, value.version),
            value: Some(to_json(value)),
            expected: Some(expected),
        }
    }

    /// The end of a version that has this id.
    pub fn no_schema(subject: &str, version: i32, id: i32) -> Entry {
        Entry {
            key: Key::schema(subject, version),
            value: None,
            expected: Some(Expected::Id(id)),
        }
    }

    /// What is set for a subject or for all; none unsets it.
    pub fn config(subject: Option<&str>, value: Option<&ConfigValue>) -> Entry {
        let subject = subject.map(str::to_owned);
        Entry {
            key: Key::Config { subject, magic: 0 },
            value: value.map(to_json),
            expected: None,
        }
    }

    /// The mode of a subject or of all; none unsets it.
    pub fn mode(subject: Option<&str>, mode: Option<Mode>) -> Entry {
        let subject = subject.map(str::to_owned);
        Entry {
            key: Key::Mode { subject, magic: 0 },
            value: mode.map(|mode| to_json(&ModeValue { mode })),
            expected: None,
        }
    }

    /// The soft end of a subject's versions up to one.
    pub fn delete_subject(subject: &str, version: i32) -> Entry {
        let subject = subject.to_owned();
        let value = DeletedSubject {
            subject: subject.clone(),
            version,
        };
        Entry {
            key: Key::DeleteSubject { subject, magic: 0 },
            value: Some(to_json(&value)),
            expected: None,
        }
    }

    /// A record that changes nothing and keeps the highest ids.
    pub fn noop(value: &NoopValue) -> Entry {
        Entry {
            key: Key::Noop { magic: 0 },
            value: Some(to_json(value)),
            expected: None,
        }
    }

    /// As a record of the topic, under the key's bytes as they are there already.
    pub fn record(self, key: Bytes) -> Record {
        let expected = self.expected.map(|expected| {
            let value = Bytes::from(expected.text());
            (EXPECTS.to_owned(), Some(value))
        });
        Record {
            key: Some(key),
            value: self.value.map(Bytes::from),
            headers: expected.into_iter().collect(),
            timestamp: None,
        }
    }
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("structures with named fields and text keys are JSON")
}

fn is_avro(kind: &SchemaType) -> bool {
    *kind == SchemaType::Avro
}

/// A schema's type as records write it.
mod type_name {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use crate::schemas::format::SchemaType;

    pub(super) fn serialize<S: Serializer>(kind: &SchemaType, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(kind.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SchemaType, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        let Some(name) = name else {
            return Ok(SchemaType::default());
        };
        SchemaType::of_name(&name).ok_or_else(|| D::Error::custom("no known type of schemas"))
    }
}

/// The header of what a SCHEMA record's writer found.
const EXPECTS: &str = "thalweg-expects";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_as_other_registries_write_them() {
        let keys = [
            (
                Key::schema("orders-value", 1),
                r#"{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}"#,
            ),
            (
                Entry::config(None, None).key,
                r#"{"keytype":"CONFIG","subject":null,"magic":0}"#,
            ),
            (
                Entry::mode(Some("s"), None).key,
                r#"{"keytype":"MODE","subject":"s","magic":0}"#,
            ),
            (
                Entry::delete_subject("s", 2).key,
                r#"{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}"#,
            ),
            (Key::Noop { magic: 0 }, r#"{"keytype":"NOOP","magic":0}"#),
        ];
        for (key, text) in keys {
            assert_eq!(key.bytes(), text.as_bytes());
            assert_eq!(serde_json::from_str::<Key>(text).unwrap(), key);
        }
        let odd = r#"{"magic":1,"version":1,"subject":"s","keytype":"SCHEMA"}"#;
        assert_eq!(
            serde_json::from_str::<Key>(odd).unwrap(),
            Key::schema("s", 1)
        );
        let unknown = r#"{"keytype":"CONTEXT","tenant":"default","context":".","magic":0}"#;
        assert_eq!(serde_json::from_str::<Key>(unknown).unwrap(), Key::Unknown);
    }

    #[test]
    fn values_of_other_registries_are_read() {
        let text = r#"{"subject":"s","version":2,"id":7,"md5":"x","schemaType":"PROTOBUF",
            "references":null,"schema":"syntax = \"proto3\";","deleted":true}"#;
        let value: SchemaValue = serde_json::from_str(text).unwrap();
        assert_eq!((value.id, value.version, value.deleted), (7, 2, true));
        assert_eq!(value.schema_type, SchemaType::Protobuf);
        let plain = r#"{"subject":"s","version":1,"id":1,"schema":"\"int\"","deleted":false}"#;
        let value: SchemaValue = serde_json::from_str(plain).unwrap();
        assert_eq!(value.schema_type, SchemaType::Avro);
        assert_eq!(serde_json::to_string(&value).unwrap(), plain);
    }

    #[test]
    fn a_writer_tells_what_it_found() {
        for expected in [Expected::Nothing, Expected::Id(12)] {
            let value = SchemaValue {
                subject: "s".to_owned(),
                version: 1,
                id: 1,
                schema_type: SchemaType::Avro,
                references: Vec::new(),
                metadata: None,
                rule_set: None,
                schema: "\"int\"".into(),
                deleted: false,
            };
            let record = Entry::schema(&value, expected).record(Bytes::new());
            assert_eq!(Expected::of(&record.headers), Some(expected));
        }
        assert_eq!(Expected::of(&[("x".to_owned(), None)]), None);
    }
}
