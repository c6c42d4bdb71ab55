//! What a schema says of the properties of an object and of the items of an array.

use regex::Regex;

use super::walk::At;
use crate::schemas::format::tree::Tree;

/// What an object may hold under a name.
pub(super) enum Held<'a> {
    Any,
    Nothing,
    Schema(At<'a>),
}

/// What an object's schema says of its properties.
pub(super) struct Model<'a>(At<'a>);

impl<'a> Model<'a> {
    pub fn of(at: At<'a>) -> Self {
        Model(at)
    }

    pub fn schema(&self, name: &str) -> Held<'a> {
        let at = self.0;
        if let Some(schema) = property(at, name) {
            return held(at, schema);
        }
        let patterns = at.tree.get("patternProperties").and_then(Tree::object);
        for (pattern, schema) in patterns.unwrap_or_default() {
            if Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(name)) {
                return held(at, schema);
            }
        }
        self.rest()
    }

    pub fn rest(&self) -> Held<'a> {
        match self.0.tree.get("additionalProperties") {
            Some(schema) => held(self.0, schema),
            None => Held::Any,
        }
    }
}

fn held<'a>(at: At<'a>, schema: &'a Tree<'static>) -> Held<'a> {
    match schema {
        Tree::Bool(false) => Held::Nothing,
        schema if takes_all(schema) => Held::Any,
        schema => Held::Schema(at.within(schema)),
    }
}

pub(super) fn property<'a>(at: At<'a>, name: &str) -> Option<&'a Tree<'static>> {
    at.tree.get("properties")?.get(name)
}

/// What an array may hold, by place and behind.
pub(super) struct Items<'a> {
    pub first: Vec<At<'a>>,
    pub rest: At<'a>,
}

impl<'a> Items<'a> {
    pub fn of(at: At<'a>) -> Self {
        let (prefix, items) = (at.tree.get("prefixItems"), at.tree.get("items"));
        let (first, rest) = match (prefix, items) {
            (Some(prefix), rest) => (prefix.array(), rest),
            (None, Some(Tree::Array(first))) => (Some(&**first), at.tree.get("additionalItems")),
            (None, rest) => (None, rest),
        };
        Items {
            first: first
                .unwrap_or_default()
                .iter()
                .map(|it| at.within(it))
                .collect(),
            rest: at.within(rest.unwrap_or(&ANYTHING)),
        }
    }

    pub fn at(&self, place: usize) -> At<'a> {
        self.first.get(place).copied().unwrap_or(self.rest)
    }
}

/// A schema that takes every value, as far as its own words tell.
pub(super) fn takes_all(schema: &Tree<'_>) -> bool {
    match schema {
        Tree::Bool(takes) => *takes,
        Tree::Object(entries) => entries.iter().all(|(name, _)| WORDS.contains(&&**name)),
        _ => false,
    }
}

/// Attributes that refuse no value.
const WORDS: [&str; 14] = [
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "$schema",
    "$id",
    "id",
    "definitions",
    "$defs",
    "$anchor",
    "readOnly",
    "writeOnly",
    "deprecated",
];

pub(super) static ANYTHING: Tree<'static> = Tree::Bool(true);
