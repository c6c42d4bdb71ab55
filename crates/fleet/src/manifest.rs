//! Manifests as the fleet keeps them: what agents of one build say alike, once; the head in memory.
//!
//! Agents write into their manifest what is their own: the values of their properties, their
//! identifier among them, and the components of the flow that they run. So the hash that they give is
//! one agent's alone, and another one after each change of its flow or properties. Here that is left
//! out, and a manifest's key is made from the rest, whatever the order of its lists. [`Mark`]s lead
//! from agents' hashes to it; see [`crate::registry::Names`].

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroU64;
use std::sync::Arc;

use c2::{AgentInfo, AgentManifest, OperationKind, RawJson};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::limits;
use crate::operation::truncate;

/// Stands for what an agent gives as the hash of its manifest, which may have a hundred bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark(NonZeroU64);

/// A manifest that came in a message.
#[derive(Clone, Debug)]
pub struct Brought {
    /// Of the hash that came with it, or of its text where none did.
    pub mark: Mark,
    /// Its key.
    pub key: Arc<str>,
    /// All of it, where it was not known.
    pub new: Option<NewManifest>,
}

/// A manifest that is ready to be stored.
#[derive(Clone, Debug)]
pub struct NewManifest {
    /// Made from what it says; manifests of former versions have their agent's hash instead.
    pub key: Arc<str>,
    /// What decides about operations; without the components.
    pub head: Arc<AgentManifest>,
    /// The whole text without what is one agent's own, gzip.
    pub content: Arc<[u8]>,
    /// Bytes of that text, unpacked.
    pub bytes: usize,
}

/// By what a manifest may be known already.
#[derive(Clone, Copy, Debug)]
pub enum Known<'a> {
    /// The agent's hash.
    Mark(Mark),
    /// The key.
    Key(&'a str),
}

impl Mark {
    /// The mark of a hash.
    pub fn of(hash: &str) -> Mark {
        let digest = Sha256::digest(hash);
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest[..8]);
        Mark(NonZeroU64::new(u64::from_be_bytes(bytes)).unwrap_or(NonZeroU64::MIN))
    }

    /// The mark that a row has; 0 for none.
    pub fn of_number(number: i64) -> Option<Mark> {
        NonZeroU64::new(number.cast_unsigned()).map(Mark)
    }

    /// As a row has it.
    pub fn number(self) -> i64 {
        self.0.get().cast_signed()
    }

    /// As an operation's goal has it: 16 digits.
    pub fn word(self) -> Arc<str> {
        Arc::from(format!("{:016x}", self.0))
    }

    /// The mark of such a word.
    pub fn of_word(word: &str) -> Option<Mark> {
        let number = u64::from_str_radix(word, 16).ok();
        number.and_then(NonZeroU64::new).map(Mark)
    }
}

/// The hash that the agent gives of its manifest.
pub fn hash_of(agent: &AgentInfo) -> Option<&str> {
    let hash = agent.agent_manifest_hash.as_deref();
    hash.filter(|hash| is_hash(hash))
}

/// The mark of that hash.
pub fn mark_of(agent: &AgentInfo) -> Option<Mark> {
    hash_of(agent).map(Mark::of)
}

/// Whether this names a manifest.
pub fn is_hash(hash: &str) -> bool {
    (1..=limits::HASH_BYTES_MAX).contains(&hash.len())
}

/// Whether a manifest's key is of a version before keys were made from what manifests say: it is
/// the hash of its agent.
pub fn is_former(key: &str) -> bool {
    !key.starts_with(KEY_PREFIX)
}

/// The manifest that a message brings, read and made ready where `known` finds no key for it: tens of
/// milliseconds for a large one, so not under a lock. One that cannot be kept is none.
pub fn brought(
    agent: Option<&AgentInfo>,
    known: impl Fn(Known<'_>) -> Option<Arc<str>>,
) -> Option<Brought> {
    let agent = agent?;
    let text = agent.agent_manifest.as_ref()?;
    let mark = Mark::of(hash_of(agent).unwrap_or(text.as_str()));
    if let Some(key) = known(Known::Mark(mark)) {
        return Some(Brought {
            mark,
            key,
            new: None,
        });
    }
    let brought = read(mark, text, known);
    if brought.is_none() {
        metrics::counter!("thalweg_fleet_manifests_not_kept_total").increment(1);
        tracing::debug!(
            agent = agent.identifier,
            bytes = text.as_str().len(),
            "a manifest cannot be kept"
        );
    }
    brought
}

fn read(
    mark: Mark,
    text: &RawJson,
    known: impl Fn(Known<'_>) -> Option<Arc<str>>,
) -> Option<Brought> {
    let mut manifest: Value = serde_json::from_str(text.as_str()).ok()?;
    leave_own_out(manifest.as_object_mut()?);
    let key = key_of(&manifest);
    if let Some(key) = known(Known::Key(&key)) {
        return Some(Brought {
            mark,
            key,
            new: None,
        });
    }
    let key: Arc<str> = Arc::from(key);
    let head = Arc::new(head_of(&manifest)?);
    let text = serde_json::to_vec(&manifest).ok()?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&text).ok()?;
    let content: Arc<[u8]> = Arc::from(encoder.finish().ok()?);
    let new = NewManifest {
        key: key.clone(),
        head,
        content,
        bytes: text.len(),
    };
    let fits = new.content.len() <= limits::MANIFEST_BYTES_MAX;
    fits.then_some(Brought {
        mark,
        key,
        new: Some(new),
    })
}

/// Takes out of a manifest what is its agent's own.
fn leave_own_out(manifest: &mut Map<String, Value>) {
    for operation in each_mut(manifest.get_mut("supportedOperations")) {
        let kind = operation["type"].as_str().map(OperationKind::from);
        let starts = matches!(kind, Some(OperationKind::Start | OperationKind::Stop));
        let Some(operands) = operation
            .get_mut("properties")
            .and_then(Value::as_object_mut)
        else {
            continue;
        };
        if starts {
            // C++ agents list the components of their flow.
            operands.retain(|operand, _| Uuid::parse_str(operand).is_err());
        }
        for told in operands.values_mut() {
            for property in each_mut(told.get_mut("availableProperties")) {
                if let Some(property) = property.as_object_mut() {
                    property.remove("propertyValue");
                }
            }
        }
    }
}

/// The elements of a list; the C++ agent writes a list of one element as that element.
fn each_mut(list: Option<&mut Value>) -> std::slice::IterMut<'_, Value> {
    match list {
        Some(Value::Array(items)) => items.iter_mut(),
        Some(one) if one.is_object() => std::slice::from_mut(one).iter_mut(),
        _ => [].iter_mut(),
    }
}

/// A manifest's key: equal for two that say the same. Java agents write some lists in an order that
/// is another one after each start.
fn key_of(manifest: &Value) -> String {
    let mut said = String::new();
    write_sorted(manifest, &mut said);
    format!("{KEY_PREFIX}{}", hex(&Sha256::digest(said)))
}

fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            let sorted = |item: &Value| {
                let mut said = String::new();
                write_sorted(item, &mut said);
                said
            };
            let mut items: Vec<String> = items.iter().map(sorted).collect();
            items.sort_unstable();
            out.push('[');
            out.push_str(&items.join(","));
            out.push(']');
        }
        Value::Object(fields) => {
            let fields: BTreeMap<&String, &Value> = fields.iter().collect();
            out.push('{');
            for (name, value) in fields {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write_sorted(value, out);
                out.push(',');
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// A manifest's head as it is kept and stored: of the components nothing, of properties their names.
fn head_of(manifest: &Value) -> Option<AgentManifest> {
    let mut head = Map::new();
    for field in ["identifier", "agentType", "version", "buildInfo"] {
        head.insert(field.to_owned(), manifest[field].clone());
    }
    let mut operations = manifest["supportedOperations"].clone();
    for operation in each_mut(Some(&mut operations)) {
        let mut short = json!({"type": operation["type"], "properties": operation["properties"]});
        let operands = short["properties"].as_object_mut();
        for told in operands.into_iter().flat_map(Map::values_mut) {
            let mut named = Vec::new();
            for property in each_mut(told.get_mut("availableProperties")) {
                if let Some(name) = property["propertyName"].as_str() {
                    named.push(json!({"propertyName": name}));
                }
            }
            *told = match named.is_empty() {
                true => json!({}),
                false => json!({"availableProperties": named}),
            };
        }
        *operation = short;
    }
    head.insert("supportedOperations".to_owned(), operations);
    let raw = RawJson::of(&head).ok()?;
    let mut head = AgentManifest::parse(&raw).ok()?;
    if let Some(build) = &mut head.build_info {
        build.other.clear();
        build.version.iter_mut().for_each(cut);
    }
    head.agent_type.iter_mut().for_each(cut);
    head.version.iter_mut().for_each(cut);
    (raw.as_str().len() <= limits::MANIFEST_HEAD_BYTES_MAX).then_some(head)
}

fn cut(name: &mut String) {
    truncate(name, limits::NAME_BYTES_MAX);
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The version of the way in which keys are made.
const KEY_PREFIX: &str = "m1-";

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
