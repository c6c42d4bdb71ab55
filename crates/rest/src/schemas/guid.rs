//! GUIDs of schemas: what a schema is, whatever registry and context it lies in.
//!
//! A GUID is the MD5 of the schema's text, its references, and its metadata and rules, put behind
//! each other as Confluent's registry puts them, so that records that name their schema by one in a
//! header are read with either registry. Rules and metadata count with their keys in order and with
//! what goes without saying; texts of lists that have no order are put in order.

use md5::{Digest, Md5};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::state::{Content, object};

impl Content {
    /// The GUID.
    pub fn guid(&self) -> Uuid {
        let mut parts = Parts(self.text.as_bytes().to_vec());
        for reference in &self.references {
            parts.text(&reference.name);
            parts.text(&reference.subject);
            parts.0.extend(reference.version.to_be_bytes());
        }
        if let Some(metadata) = object(self.metadata.as_deref()) {
            parts.0.push(IS_THERE);
            parts.metadata(&metadata);
        }
        if let Some(rule_set) = object(self.rule_set.as_deref()) {
            parts.0.push(IS_THERE);
            let lists = ["migrationRules", "domainRules", "encodingRules"];
            let rules = lists
                .iter()
                .filter_map(|list| rule_set.get(*list)?.as_array());
            rules.flatten().for_each(|rule| parts.rule(rule));
        }
        of(&parts.0)
    }
}

/// The GUID of what is digested, which says nothing of a UUID's version.
fn of(digested: &[u8]) -> Uuid {
    Uuid::from_bytes(Md5::digest(digested).into())
}

/// What is digested.
struct Parts(Vec<u8>);

impl Parts {
    fn text(&mut self, text: &str) {
        self.0.extend(text.as_bytes());
    }

    fn metadata(&mut self, metadata: &Map<String, Value>) {
        for (path, tags) in entries(metadata.get("tags")) {
            self.text(path);
            self.set(Some(tags));
        }
        self.pairs(metadata.get("properties"));
        self.set(metadata.get("sensitive"));
    }

    fn rule(&mut self, rule: &Value) {
        let text = |name: &str| rule.get(name).and_then(Value::as_str);
        for part in [
            text("name"),
            text("doc"),
            text("kind").or(Some("TRANSFORM")),
            text("mode").or(Some("WRITEREAD")),
            text("type"),
        ] {
            self.text(part.unwrap_or_default());
        }
        self.set(rule.get("tags"));
        self.pairs(rule.get("params"));
        for part in ["expr", "onSuccess", "onFailure"] {
            self.text(text(part).unwrap_or_default());
        }
        if rule.get("disabled") == Some(&Value::Bool(true)) {
            self.0.push(IS_THERE);
        }
    }

    /// Keys with their texts.
    fn pairs(&mut self, object: Option<&Value>) {
        for (key, value) in entries(object) {
            self.text(key);
            match value {
                Value::String(text) => self.text(text),
                other => self.text(&other.to_string()),
            }
        }
    }

    /// Texts in their order, each once.
    fn set(&mut self, list: Option<&Value>) {
        let list = list.and_then(Value::as_array).into_iter().flatten();
        let mut texts: Vec<&str> = list.filter_map(Value::as_str).collect();
        texts.sort_unstable();
        texts.dedup();
        texts.into_iter().for_each(|text| self.text(text));
    }
}

fn entries(object: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    object.and_then(Value::as_object).into_iter().flatten()
}

/// Tells something empty from nothing.
const IS_THERE: u8 = 1;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::format::SchemaType;
    use super::super::record::Reference;
    use super::super::state::object_text;
    use super::*;

    fn content(text: &str) -> Content {
        Content {
            kind: SchemaType::Avro,
            text: text.into(),
            references: Vec::new(),
            metadata: None,
            rule_set: None,
        }
    }

    #[test]
    fn guids_are_those_that_confluents_registry_gives() {
        let plain = content(r#""string""#).guid();
        assert_eq!(plain.to_string(), "095d71cf-1255-6b9d-5e33-0ad575b3df5d");
        let naming = Content {
            references: vec![Reference {
                name: "example.Common".to_owned(),
                subject: "common".to_owned(),
                version: 1,
            }],
            ..content(r#""example.Common""#)
        };
        let naming = naming.guid();
        assert_eq!(naming.to_string(), "7d9c3148-064e-8899-1975-db468e59ad53");
    }

    #[test]
    fn what_is_around_a_schema_is_part_of_its_guid_in_order() {
        let around = |metadata: Value, rule_set: Value| {
            let text = |value: Value| object_text(value.as_object().cloned());
            let content = Content {
                metadata: text(metadata),
                rule_set: text(rule_set),
                ..content("S")
            };
            content.guid()
        };
        let expected = |parts: &str| of(parts.as_bytes());
        let metadata = json!({"sensitive": ["z", "y", "z"], "properties": {"b": "2", "a": "1"},
            "tags": {"S.f": ["PII", "AD"]}});
        assert_eq!(
            around(metadata, Value::Null),
            expected("S\u{1}S.fADPIIa1b2yz")
        );
        let rules = json!({"domainRules": [{"name": "d", "type": "CEL", "disabled": true}],
            "migrationRules": [{"name": "m", "doc": "why", "kind": "CONDITION", "mode": "UPGRADE",
                "type": "JSONATA", "tags": ["t"], "params": {"p": "v"}, "expr": "e",
                "onSuccess": "s", "onFailure": "f", "disabled": false}]});
        assert_eq!(
            around(Value::Null, rules),
            expected("S\u{1}mwhyCONDITIONUPGRADEJSONATAtpvesfdTRANSFORMWRITEREADCEL\u{1}")
        );
        assert_eq!(
            around(Value::Null, json!({"domainRules": []})),
            expected("S\u{1}")
        );
    }
}
