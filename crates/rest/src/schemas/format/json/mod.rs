//! JSON Schema, drafts 4, 6, 7, 2019-09 and 2020-12; without `$schema` it is draft 7, as Confluent's
//! serializers take it.
//!
//! Values are validated when they are written and stored as the text that they came as; reading does
//! not validate them again. References are found by their names among those of the registry; nothing
//! is ever fetched. Patterns run in linear time; those that need looking around or back run with a
//! bound on their steps.

mod budget;
mod compare;
mod keywords;
mod model;
mod walk;

use std::collections::HashMap;
use std::sync::Arc;

use jsonschema::{Draft, PatternOptions, Retrieve, Uri, Validator};
use serde_json::Value;
use serde_json::value::RawValue;

use self::walk::Documents;
use super::tree::{Counted, Tree};
use super::{SchemaFault, SchemaSource, Work};
use crate::limits::{JSON_VALUES_MAX, PATTERN_BYTES_MAX, PATTERN_STEPS_MAX, VALIDATION_DEPTH_MAX};

pub(super) use compare::incompatibilities;

/// A parsed schema.
pub(super) struct JsonSchema {
    tree: Tree<'static>,
    /// What the schema refers to, by name.
    references: HashMap<String, Tree<'static>>,
    validator: Validator,
    title: Option<String>,
    /// Schemas that apply to one value one within another.
    depth_in_place: usize,
    /// Reasons can be told without bounds on looking for them.
    is_moderate: bool,
}

impl std::fmt::Debug for JsonSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonSchema")
            .field("tree", &self.tree)
            .finish_non_exhaustive()
    }
}

impl JsonSchema {
    pub fn parse(source: &SchemaSource) -> Result<JsonSchema, SchemaFault> {
        let read = |text: &str| -> Result<(Tree<'static>, Value), String> {
            let tree = Tree::read(text.as_bytes())?.into_owned();
            let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
            Ok((tree, value))
        };
        let (tree, value) = read(&source.text).map_err(SchemaFault::Schema)?;
        if !matches!(tree, Tree::Object(_) | Tree::Bool(_)) {
            let reason = "a JSON Schema is an object or a boolean".to_owned();
            return Err(SchemaFault::Schema(reason));
        }
        let mut references = HashMap::new();
        let mut texts = HashMap::new();
        for reference in &source.references {
            let name = &reference.name;
            let (tree, value) = read(&reference.text)
                .map_err(|reason| SchemaFault::Schema(format!("reference '{name}': {reason}")))?;
            references.insert(name.clone(), tree);
            texts.insert(name.clone(), value);
        }
        let documents = Documents {
            root: &tree,
            references: &references,
        };
        let depth_in_place = documents.depth_in_place()?;
        let is_moderate = documents.is_moderate();
        let validator = validator(&value, texts)?;
        let title = tree.get("title").and_then(Tree::text).map(str::to_owned);
        Ok(JsonSchema {
            tree,
            references,
            validator,
            title,
            depth_in_place,
            is_moderate,
        })
    }

    pub fn canonical(&self) -> String {
        self.tree.compact()
    }

    /// The canonical text with all attributes in the order of their names.
    pub fn normalized(&self) -> String {
        self.tree.sorted().compact()
    }

    /// The title, which serializers take for the name of the record.
    pub fn record_name(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// The names of the schema's own properties.
    pub fn property_names(&self) -> Vec<&str> {
        let properties = self.tree.get("properties").and_then(Tree::object);
        let names = properties.unwrap_or_default().iter();
        names.map(|(name, _)| &**name).collect()
    }

    pub fn encode(&self, json: &[u8], work: &mut Work) -> Result<Vec<u8>, SchemaFault> {
        let count = Counted::of(json);
        if count.values > JSON_VALUES_MAX {
            let reason = format!("more than {JSON_VALUES_MAX} values");
            return Err(SchemaFault::Value(reason));
        }
        let value: Value = serde_json::from_slice(json)
            .map_err(|error| SchemaFault::Value(format!("not JSON: {error}")))?;
        let too_complex = || {
            let reason = "the schema and the value together are too complex to be validated";
            SchemaFault::Value(reason.to_owned())
        };
        if (depth(&value) + 1).saturating_mul(self.depth_in_place) > VALIDATION_DEPTH_MAX {
            return Err(too_complex());
        }
        let is_valid = budget::bounded(work, || self.validator.is_valid(&value));
        match is_valid.ok_or_else(too_complex)? {
            true => Ok(json.to_vec()),
            false => Err(SchemaFault::Value(self.told(&value, work))),
        }
    }

    /// Where and why a value does not fit.
    fn told(&self, value: &Value, work: &mut Work) -> String {
        let unknown = || "the value does not fit the schema".to_owned();
        if !self.is_moderate {
            return unknown();
        }
        let Some(Err(error)) = budget::bounded(work, || self.validator.validate(value)) else {
            return unknown();
        };
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { "/" } else { &place };
        let told: String = error.to_string().chars().take(REASON_SHOWN).collect();
        format!("at {place}: {told}")
    }

    pub fn decode(&self, payload: &[u8]) -> Result<Vec<u8>, SchemaFault> {
        match serde_json::from_slice::<&RawValue>(payload) {
            Ok(raw) => Ok(raw.get().as_bytes().to_vec()),
            Err(error) => Err(SchemaFault::Payload(format!("not JSON: {error}"))),
        }
    }
}

fn validator(
    schema: &Value,
    mut references: HashMap<String, Value>,
) -> Result<Validator, SchemaFault> {
    let mut schema = schema.clone();
    budget::count_steps(&mut schema);
    references.values_mut().for_each(budget::count_steps);
    let schema = &schema;
    let named = schema.get("$schema").and_then(Value::as_str);
    let is_known = named.is_some_and(|uri| {
        // Whether it is one of the drafts that have a meaning here.
        KNOWN_DRAFTS.contains(&uri.trim_end_matches('#'))
    });
    let references = Known(Arc::new(references));
    let options = || {
        let options = jsonschema::options()
            .with_retriever(references.clone())
            .with_keyword(budget::KEYWORD, budget::keyword);
        match is_known {
            true => options,
            false => options.with_draft(Draft::Draft7),
        }
    };
    let linear = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX);
    let first = match options().with_pattern_options(linear).build(schema) {
        Ok(validator) => return Ok(validator),
        Err(error) => error,
    };
    let stepping = PatternOptions::fancy_regex()
        .backtrack_limit(PATTERN_STEPS_MAX)
        .size_limit(PATTERN_BYTES_MAX);
    let second = options().with_pattern_options(stepping).build(schema);
    second.map_err(|_| {
        let told: String = first.to_string().chars().take(REASON_SHOWN).collect();
        SchemaFault::Schema(format!("not a JSON Schema: {told}"))
    })
}

/// Levels of nesting; what reads JSON into values bounds them.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(entries) => 1 + entries.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Finds references among those that came with the schema.
#[derive(Clone)]
struct Known(Arc<HashMap<String, Value>>);

impl Retrieve for Known {
    fn retrieve(
        &self,
        uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let found = find(&self.0, uri.as_str());
        found.cloned().ok_or_else(|| {
            let shown: String = uri.as_str().chars().take(REASON_SHOWN).collect();
            format!("there is no reference named '{shown}'").into()
        })
    }
}

/// What a URI names: a reference of this very name, or of a name that the URI ends in, since names may
/// be relative to whatever refers to them.
fn find<'a, T>(references: &'a HashMap<String, T>, uri: &str) -> Option<&'a T> {
    let uri = uri.split('#').next().unwrap_or(uri);
    if let Some(found) = references.get(uri) {
        return Some(found);
    }
    let ends = uri.match_indices('/').map(|(at, _)| &uri[at + 1..]);
    ends.filter(|name| !name.is_empty())
        .find_map(|name| references.get(name))
}

const KNOWN_DRAFTS: [&str; 5] = [
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

/// Characters of a reason that are told: it may repeat the value.
const REASON_SHOWN: usize = 500;
