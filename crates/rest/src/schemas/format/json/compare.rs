//! Whether everything that a writer's JSON Schema lets through, a reader's takes too.
//!
//! The rules are those of inclusion, keyword by keyword: what the reader demands, the writer must have
//! promised. So a property may join an object only where the writer's content model says what it
//! holds (closed, or by `additionalProperties` and `patternProperties`), and may leave it only where
//! the reader's model takes it. A required property may be added when it has a default. Where a
//! combination cannot be told apart, the answer is that it does not fit.
//!
//! By the lenient policy a writer writes the properties that its schema names and no others, and a
//! reader passes over those that its own does not name: then only properties that both name are
//! compared, and whether a model is open or closed does not count. What is required does.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;

use super::JsonSchema;
use super::keywords::{bounds, types_of, values_of};
use super::model::{ANYTHING, Held, Items, Model, property, takes_all};
use super::walk::{At, Documents};
use crate::limits::{FINDINGS_MAX, JSON_PAIRS_MAX, JSON_REFERENCES_DEEP_MAX};
use crate::schemas::format::Policy;
use crate::schemas::format::tree::Tree;

/// Why `reader` would refuse what `writer` lets through.
pub(in crate::schemas::format) fn incompatibilities(
    reader: &JsonSchema,
    writer: &JsonSchema,
    policy: Policy,
) -> Vec<String> {
    let mut comparison = Comparison {
        reader: reader.documents(),
        writer: writer.documents(),
        is_lenient: policy == Policy::Lenient,
        fitting: HashSet::new(),
        trail: Vec::new(),
        steps: 0,
        path: "#".to_owned(),
    };
    let (to, from) = (comparison.reader.root(), comparison.writer.root());
    let mut findings = comparison.compare(to, from, 0);
    findings.truncate(FINDINGS_MAX);
    findings
}

struct Comparison<'a> {
    reader: Documents<'a>,
    writer: Documents<'a>,
    is_lenient: bool,
    /// Pairs that fit, or are being compared.
    fitting: HashSet<(usize, usize)>,
    trail: Vec<(usize, usize)>,
    steps: usize,
    path: String,
}

impl<'a> Comparison<'a> {
    fn finding(&self, kind: &str, description: &str) -> String {
        let path = &self.path;
        format!("{{errorType:'{kind}', description:'{description}', additionalInfo:'path {path}'}}")
    }

    fn one(&self, kind: &str, description: &str) -> Vec<String> {
        vec![self.finding(kind, description)]
    }

    /// Compares what stands under a name.
    fn under(&mut self, step: &str, to: At<'a>, from: At<'a>, depth: usize) -> Vec<String> {
        let length = self.path.len();
        // Writing to a String does not fail.
        let _ = write!(self.path, "/{}", step.chars().take(100).collect::<String>());
        let findings = self.compare(to, from, depth + 1);
        self.path.truncate(length);
        findings
    }

    fn compare(&mut self, to: At<'a>, from: At<'a>, depth: usize) -> Vec<String> {
        if takes_all(to.tree) || *from.tree == Tree::Bool(false) {
            return Vec::new();
        }
        if *to.tree == Tree::Bool(false) {
            return self.one("SCHEMA_REMOVED", "the reader takes nothing here");
        }
        let pair = (to.identity(), from.identity());
        if self.fitting.contains(&pair) {
            return Vec::new();
        }
        self.steps += 1;
        if self.steps > JSON_PAIRS_MAX || depth > JSON_REFERENCES_DEEP_MAX {
            return self.one("TOO_LARGE", "the schemas are too large to compare");
        }
        let before = self.trail.len();
        self.fitting.insert(pair);
        self.trail.push(pair);
        let findings = self.compare_new(to, from, depth);
        if !findings.is_empty() {
            for pair in self.trail.drain(before..) {
                self.fitting.remove(&pair);
            }
        }
        findings
    }

    fn compare_new(&mut self, to: At<'a>, from: At<'a>, depth: usize) -> Vec<String> {
        // What a reference names counts like a part of all that must hold.
        let to_parts = match self.parts(self.reader, to) {
            Ok(parts) => parts,
            Err(reference) => {
                let text = format!("the reader's reference {reference} is not known");
                return self.one("REFERENCE_UNKNOWN", &text);
            }
        };
        let from_parts = self.parts(self.writer, from).unwrap_or_default();
        let mut findings = self.own(to, from, &from_parts, depth);
        if self.is_lenient {
            findings.extend(self.named(to, &[from], depth));
        }
        for part in to_parts {
            findings.extend(self.compare(part, from, depth + 1));
        }
        for name in ["anyOf", "oneOf"] {
            if let Some(branches) = to.tree.get(name).and_then(Tree::array) {
                findings.extend(self.sum(name, to, branches, from, depth));
            }
        }
        findings
    }

    /// What must hold beside a schema's own keywords.
    fn parts(&self, documents: Documents<'a>, at: At<'a>) -> Result<Vec<At<'a>>, String> {
        let all = at.tree.get("allOf").and_then(Tree::array);
        let mut parts: Vec<_> = all
            .unwrap_or_default()
            .iter()
            .map(|it| at.within(it))
            .collect();
        for name in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(reference) = at.tree.get(name).and_then(Tree::text) {
                let found = documents.resolve(at, reference);
                parts.push(found.ok_or_else(|| reference.chars().take(100).collect::<String>())?);
            }
        }
        Ok(parts)
    }

    /// The writer's branches, when it is one of several schemas.
    fn branches(from: At<'a>) -> Option<Vec<At<'a>>> {
        let branches = from.tree.get("oneOf").or_else(|| from.tree.get("anyOf"))?;
        Some(branches.array()?.iter().map(|it| from.within(it)).collect())
    }

    /// The reader's own keywords, against the writer's, or one of its parts, or all of its branches.
    fn own(&mut self, to: At<'a>, from: At<'a>, parts: &[At<'a>], depth: usize) -> Vec<String> {
        let findings = self.keywords(to, from, depth);
        if findings.is_empty() {
            return findings;
        }
        for part in parts {
            if depth >= JSON_REFERENCES_DEEP_MAX || !self.counts() {
                return findings;
            }
            // With all that the part has of its own.
            let inner = self.parts(self.writer, *part).unwrap_or_default();
            let of_part = self.own(to, *part, &inner, depth + 1);
            // What only refers to another schema is told of as that.
            if of_part.is_empty() || parts.len() == 1 {
                return of_part;
            }
        }
        if let Some(branches) = Self::branches(from) {
            let mut all = Vec::new();
            for branch in branches {
                let inner = self.parts(self.writer, branch).unwrap_or_default();
                if depth >= JSON_REFERENCES_DEEP_MAX || !self.counts() {
                    return findings;
                }
                all.extend(self.own(to, branch, &inner, depth + 1));
            }
            return all;
        }
        findings
    }

    fn counts(&mut self) -> bool {
        self.steps += 1;
        self.steps <= JSON_PAIRS_MAX
    }

    /// One of several: the writer fits a branch, or each of its branches fits one.
    fn sum(
        &mut self,
        name: &str,
        to: At<'a>,
        branches: &'a [Tree<'static>],
        from: At<'a>,
        depth: usize,
    ) -> Vec<String> {
        let fits_one = |this: &mut Self, from: At<'a>| {
            let mut branches = branches.iter();
            branches.any(|it| this.compare(to.within(it), from, depth + 1).is_empty())
        };
        let parts = self.parts(self.writer, from).unwrap_or_default();
        if fits_one(self, from) || parts.iter().any(|part| fits_one(self, *part)) {
            return Vec::new();
        }
        let mut findings = Vec::new();
        for (index, branch) in Self::branches(from).unwrap_or_default().iter().enumerate() {
            if !fits_one(self, *branch) {
                let text = format!("the writer's branch {index} fits no branch of the reader");
                findings.push(self.finding("SUM_TYPE_NARROWED", &text));
            }
        }
        if Self::branches(from).is_none() {
            let text = format!("what the writer writes fits no branch of the reader's {name}");
            findings.push(self.finding("COMBINED_TYPE_SUBSCHEMAS_CHANGED", &text));
        }
        findings
    }

    fn keywords(&mut self, to: At<'a>, from: At<'a>, depth: usize) -> Vec<String> {
        let mut findings = Vec::new();
        let read = types_of(to.tree);
        let written = types_of(from.tree);
        let missing: Vec<&str> = written.difference(&read).copied().collect();
        if !missing.is_empty() {
            let text = format!("the reader does not take type {}", missing.join(", "));
            findings.push(self.finding("TYPE_NARROWED", &text));
            return findings;
        }
        if let Some(values) = values_of(to.tree) {
            let known = values_of(from.tree);
            let is_within = known.is_some_and(|known| known.iter().all(|it| values.contains(it)));
            if !is_within {
                let text = "the reader takes fewer values";
                findings.push(self.finding("ENUM_ARRAY_NARROWED", text));
            }
        }
        for (kind, description) in bounds(to.tree, from.tree, &written) {
            findings.push(self.finding(kind, &description));
        }
        if written.contains("object") {
            findings.extend(self.objects(to, from, depth));
        }
        if written.contains("array") {
            findings.extend(self.arrays(to, from, depth));
        }
        if let Some(refused) = to.tree.get("not") {
            let known = from.tree.get("not").map(|known| {
                // What the reader refuses, the writer must refuse too: the sides are exchanged.
                known.sorted() == refused.sorted()
            });
            if known != Some(true) && !takes_all_but_nothing(refused) {
                findings.push(self.finding("NOT_TYPE_NARROWED", "the reader refuses more"));
            }
        }
        for name in [
            "if",
            "unevaluatedProperties",
            "unevaluatedItems",
            "contains",
        ] {
            let demand = to.tree.get(name).filter(|it| !takes_all(it));
            if self.is_lenient && name == "unevaluatedProperties" {
                continue;
            }
            if let Some(demand) = demand
                && from.tree.get(name).map(Tree::sorted) != Some(demand.sorted())
            {
                let text = format!("the reader has another {name}");
                findings.push(self.finding("CONDITION_CHANGED", &text));
            }
        }
        findings
    }

    fn objects(&mut self, to: At<'a>, from: At<'a>, depth: usize) -> Vec<String> {
        let mut findings = match self.is_lenient {
            // They are compared once, with all parts of the writer's schema.
            true => Vec::new(),
            false => self.properties(to, from, depth),
        };
        match (Model::of(to).rest(), Model::of(from).rest()) {
            (Held::Any, _) | (_, Held::Nothing) => {}
            (Held::Nothing, _) | (_, Held::Any) if self.is_lenient => {}
            (Held::Nothing, _) => findings.push(self.finding(
                "ADDITIONAL_PROPERTIES_REMOVED",
                "the reader takes no further properties",
            )),
            (Held::Schema(read), Held::Any) => {
                let any = from.within(&ANYTHING);
                if !self
                    .under("additionalProperties", read, any, depth)
                    .is_empty()
                {
                    let text = "the reader narrows further properties";
                    findings.push(self.finding("ADDITIONAL_PROPERTIES_NARROWED", text));
                }
            }
            (Held::Schema(read), Held::Schema(written)) => {
                findings.extend(self.under("additionalProperties", read, written, depth));
            }
        }
        findings.extend(self.patterns(to, from, depth));
        findings.extend(self.required(to, from));
        findings
    }

    /// What each side says of every property that either names.
    fn properties(&mut self, to: At<'a>, from: At<'a>, depth: usize) -> Vec<String> {
        let mut findings = Vec::new();
        let mut names: Vec<&'a str> = Vec::new();
        let mut seen = HashSet::new();
        for side in [from, to] {
            let properties = side.tree.get("properties").and_then(Tree::object);
            for (name, _) in properties.unwrap_or_default() {
                if seen.insert(&**name) {
                    names.push(name);
                }
            }
        }
        for name in names {
            let read = Model::of(to).schema(name);
            let written = Model::of(from).schema(name);
            let has = |side: At<'a>| property(side, name).is_some();
            let findings_here = match (read, written) {
                (Held::Any, _) | (_, Held::Nothing) => Vec::new(),
                (Held::Nothing, _) => {
                    let text = format!("the reader's closed model has no property {name}");
                    self.one("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", &text)
                }
                (Held::Schema(read), Held::Any) => {
                    let any = from.within(&ANYTHING);
                    match has(to) {
                        true if self.compare(read, any, depth + 1).is_empty() => Vec::new(),
                        true => {
                            let text = format!("the writer's open model may hold any {name}");
                            self.one("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", &text)
                        }
                        false => self.under(&format!("properties/{name}"), read, any, depth),
                    }
                }
                (Held::Schema(read), Held::Schema(written)) => {
                    self.under(&format!("properties/{name}"), read, written, depth)
                }
            };
            findings.extend(findings_here);
        }
        findings
    }

    /// The reader's properties against what a lenient writer says of the same ones, in all the parts
    /// that hold at once, and in each of the schemas that the last of them is one of.
    fn named(&mut self, to: At<'a>, whole: &[At<'a>], depth: usize) -> Vec<String> {
        let Some(properties) = to.tree.get("properties").and_then(Tree::object) else {
            return Vec::new();
        };
        let too_large = |this: &Self| this.one("TOO_LARGE", "the schemas are too large to compare");
        let last = whole.last().copied().into_iter().collect::<Vec<_>>();
        let (Some(parts), Some(last)) = (self.whole(whole), self.whole(&last)) else {
            return too_large(self);
        };
        let mut findings = Vec::new();
        for (name, read) in properties {
            let step = format!("properties/{name}");
            let mut against = None;
            for part in &parts {
                let Some(written) = property(*part, name) else {
                    continue;
                };
                let found = self.under(&step, to.within(read), part.within(written), depth);
                if found.is_empty() {
                    against = None;
                    break;
                }
                against.get_or_insert(found);
            }
            findings.extend(against.unwrap_or_default());
        }
        let branches = last.into_iter().filter_map(Self::branches).flatten();
        for branch in branches {
            if !findings.is_empty() {
                break;
            }
            if depth >= JSON_REFERENCES_DEEP_MAX || !self.counts() {
                return too_large(self);
            }
            let mut whole = whole.to_vec();
            whole.push(branch);
            findings = self.named(to, &whole, depth + 1);
        }
        findings
    }

    /// The writer's schemas with all that must hold beside each; none when they are too many.
    fn whole(&self, of: &[At<'a>]) -> Option<Vec<At<'a>>> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut waiting = of.to_vec();
        while let Some(at) = waiting.pop() {
            if seen.insert(at.identity()) {
                found.push(at);
                waiting.extend(self.parts(self.writer, at).unwrap_or_default());
            }
            if found.len() > JSON_REFERENCES_DEEP_MAX {
                return None;
            }
        }
        Some(found)
    }

    /// The reader's rules for names of a pattern must be the writer's too.
    fn patterns(&mut self, to: At<'a>, from: At<'a>, depth: usize) -> Vec<String> {
        let mut findings = Vec::new();
        let patterns = to.tree.get("patternProperties").and_then(Tree::object);
        for (pattern, read) in patterns.unwrap_or_default() {
            let same = from
                .tree
                .get("patternProperties")
                .and_then(|it| it.get(pattern));
            let step = format!("patternProperties/{pattern}");
            let rest = Model::of(from).rest();
            let written = match (same, rest) {
                (Some(same), _) => Some(from.within(same)),
                (None, _) if self.is_lenient => None,
                (None, Held::Nothing) => None,
                (None, Held::Schema(schema)) => Some(schema),
                (None, Held::Any) => Some(from.within(&ANYTHING)),
            };
            if let Some(written) = written {
                findings.extend(self.under(&step, to.within(read), written, depth));
            }
        }
        if let Some(names) = to.tree.get("propertyNames").filter(|it| !takes_all(it)) {
            let known = from.tree.get("propertyNames").unwrap_or(&ANYTHING);
            let (to, from) = (to.within(names), from.within(known));
            findings.extend(self.under("propertyNames", to, from, depth));
        }
        for name in ["dependencies", "dependentRequired", "dependentSchemas"] {
            let demands = to.tree.get(name).and_then(Tree::object);
            for (property, demand) in demands.unwrap_or_default() {
                let known = from.tree.get(name).and_then(|it| it.get(property));
                if known.map(Tree::sorted) != Some(demand.sorted()) {
                    let text = format!("the reader has another {name} of {property}");
                    findings.push(self.finding("DEPENDENCY_CHANGED", &text));
                }
            }
        }
        findings
    }

    fn required(&self, to: At<'a>, from: At<'a>) -> Vec<String> {
        let names = |at: At<'a>| -> BTreeSet<&'a str> {
            let names = at.tree.get("required").and_then(Tree::array);
            names
                .unwrap_or_default()
                .iter()
                .filter_map(Tree::text)
                .collect()
        };
        let (read, written) = (names(to), names(from));
        let added = read.difference(&written);
        let added = added.filter(|name| {
            let schema = property(to, name);
            schema.is_none_or(|schema| schema.get("default").is_none())
        });
        added
            .map(|name| {
                let text = format!("the reader requires {name}, the writer does not");
                self.finding("REQUIRED_ATTRIBUTE_ADDED", &text)
            })
            .collect()
    }

    fn arrays(&mut self, to: At<'a>, from: At<'a>, depth: usize) -> Vec<String> {
        let mut findings = Vec::new();
        let (read, written) = (Items::of(to), Items::of(from));
        let places = read.first.len().max(written.first.len());
        for place in 0..places {
            let (to, from) = (read.at(place), written.at(place));
            findings.extend(self.under(&format!("items/{place}"), to, from, depth));
        }
        findings.extend(self.under("items", read.rest, written.rest, depth));
        let is_unique = |at: At<'a>| at.tree.get("uniqueItems") == Some(&Tree::Bool(true));
        if is_unique(to) && !is_unique(from) {
            let text = "the reader wants items of which none comes twice";
            findings.push(self.finding("UNIQUE_ITEMS_ADDED", text));
        }
        findings
    }
}

impl JsonSchema {
    fn documents(&self) -> Documents<'_> {
        Documents {
            root: &self.tree,
            references: &self.references,
        }
    }
}

/// `not` of a schema that takes nothing refuses nothing.
fn takes_all_but_nothing(refused: &Tree<'_>) -> bool {
    *refused == Tree::Bool(false)
}
