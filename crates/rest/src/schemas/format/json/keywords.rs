//! Keywords whose demands are numbers or lists of values: which types and values a schema names, and
//! which bounds of a reader are narrower than a writer's.

use std::collections::BTreeSet;

use crate::schemas::format::tree::Tree;

/// The types that a schema lets through: whole numbers stand beside other numbers.
pub(super) fn types_of(schema: &Tree<'_>) -> BTreeSet<&'static str> {
    let named: Vec<&str> = match schema.get("type") {
        Some(Tree::Text(name)) => vec![name],
        Some(Tree::Array(names)) => names.iter().filter_map(Tree::text).collect(),
        _ => match values_of(schema) {
            Some(values) => values.iter().map(type_of).collect(),
            None => TYPES.to_vec(),
        },
    };
    let mut types: BTreeSet<&'static str> =
        TYPES.into_iter().filter(|it| named.contains(it)).collect();
    if types.contains("number") {
        types.insert("integer");
    }
    types
}

fn type_of(value: &Tree<'_>) -> &'static str {
    match value {
        Tree::Null => "null",
        Tree::Bool(_) => "boolean",
        Tree::Number(text) if text.contains(['.', 'e', 'E']) => "number",
        Tree::Number(_) => "integer",
        Tree::Text(_) => "string",
        Tree::Array(_) => "array",
        Tree::Object(_) => "object",
    }
}

/// The values that a schema names, when it takes no others.
pub(super) fn values_of(schema: &Tree<'_>) -> Option<Vec<Tree<'static>>> {
    let plain = |it: &Tree<'_>| it.clone().into_owned().sorted();
    if let Some(value) = schema.get("const") {
        return Some(vec![plain(value)]);
    }
    let values = schema.get("enum").and_then(Tree::array)?;
    Some(values.iter().map(plain).collect())
}

/// The bounds in which a reader is narrower than a writer who writes these types.
pub(super) fn bounds(
    reader: &Tree<'_>,
    writer: &Tree<'_>,
    written: &BTreeSet<&'static str>,
) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if let Some(values) = values_of(writer) {
        // Single values stand for themselves; the reader's enum was compared already.
        if values_of(reader).is_some() || values.is_empty() {
            return found;
        }
    }
    for bound in &BOUNDS {
        if !written.contains(bound.kind) {
            continue;
        }
        let Some(read) = bound.of(reader) else {
            continue;
        };
        let name = bound.name;
        match bound.of(writer) {
            None => {
                let text = format!("the reader has {name} {read}, the writer has none");
                found.push((bound.added, text));
            }
            Some(known) if bound.is_narrower(read, known) => {
                let text = format!("the reader has {name} {read}, the writer {known}");
                found.push((bound.changed, text));
            }
            Some(_) => {}
        }
    }
    if written.contains("string")
        && let Some(pattern) = reader.get("pattern").and_then(Tree::text)
        && writer.get("pattern").and_then(Tree::text) != Some(pattern)
    {
        let kind = match writer.get("pattern") {
            None => "PATTERN_ADDED",
            Some(_) => "PATTERN_CHANGED",
        };
        found.push((kind, "the reader has another pattern".to_owned()));
    }
    found
}

struct Bound {
    name: &'static str,
    /// The type that it is for.
    kind: &'static str,
    side: Side,
    added: &'static str,
    changed: &'static str,
}

enum Side {
    Least,
    Most,
    /// Multiples.
    Step,
}

impl Bound {
    fn of(&self, schema: &Tree<'_>) -> Option<f64> {
        let number = |name: &str| match schema.get(name) {
            Some(Tree::Number(text)) => text.parse::<f64>().ok(),
            _ => None,
        };
        let is_true = |name: &str| schema.get(name) == Some(&Tree::Bool(true));
        match self.name {
            // In draft 4 a word beside the bound makes it exclusive.
            "exclusiveMaximum" if is_true(self.name) => number("maximum"),
            "exclusiveMinimum" if is_true(self.name) => number("minimum"),
            name => number(name),
        }
    }

    fn is_narrower(&self, read: f64, written: f64) -> bool {
        match self.side {
            Side::Most => read < written,
            Side::Least => read > written,
            Side::Step => read == 0.0 || written % read != 0.0,
        }
    }
}

const fn bound(
    name: &'static str,
    kind: &'static str,
    side: Side,
    added: &'static str,
    changed: &'static str,
) -> Bound {
    Bound {
        name,
        kind,
        side,
        added,
        changed,
    }
}

const BOUNDS: [Bound; 11] = [
    bound(
        "maxLength",
        "string",
        Side::Most,
        "MAX_LENGTH_ADDED",
        "MAX_LENGTH_DECREASED",
    ),
    bound(
        "minLength",
        "string",
        Side::Least,
        "MIN_LENGTH_ADDED",
        "MIN_LENGTH_INCREASED",
    ),
    bound(
        "maximum",
        "integer",
        Side::Most,
        "MAXIMUM_ADDED",
        "MAXIMUM_DECREASED",
    ),
    bound(
        "minimum",
        "integer",
        Side::Least,
        "MINIMUM_ADDED",
        "MINIMUM_INCREASED",
    ),
    bound(
        "exclusiveMaximum",
        "integer",
        Side::Most,
        "EXCLUSIVE_MAXIMUM_ADDED",
        "EXCLUSIVE_MAXIMUM_DECREASED",
    ),
    bound(
        "exclusiveMinimum",
        "integer",
        Side::Least,
        "EXCLUSIVE_MINIMUM_ADDED",
        "EXCLUSIVE_MINIMUM_INCREASED",
    ),
    bound(
        "multipleOf",
        "integer",
        Side::Step,
        "MULTIPLE_OF_ADDED",
        "MULTIPLE_OF_CHANGED",
    ),
    bound(
        "maxItems",
        "array",
        Side::Most,
        "MAX_ITEMS_ADDED",
        "MAX_ITEMS_DECREASED",
    ),
    bound(
        "minItems",
        "array",
        Side::Least,
        "MIN_ITEMS_ADDED",
        "MIN_ITEMS_INCREASED",
    ),
    bound(
        "maxProperties",
        "object",
        Side::Most,
        "MAX_PROPERTIES_ADDED",
        "MAX_PROPERTIES_DECREASED",
    ),
    bound(
        "minProperties",
        "object",
        Side::Least,
        "MIN_PROPERTIES_ADDED",
        "MIN_PROPERTIES_INCREASED",
    ),
];

/// All types, whole numbers apart.
const TYPES: [&str; 7] = [
    "null", "boolean", "integer", "number", "string", "array", "object",
];
