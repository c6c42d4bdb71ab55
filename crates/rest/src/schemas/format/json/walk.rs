//! Finding one's way in a schema: what a `$ref` names, and which schemas stand within a schema.

use std::collections::{HashMap, HashSet};

use super::find;
use crate::limits::{JSON_EXPANDED_MAX, JSON_REFERENCES_DEEP_MAX};
use crate::schemas::format::SchemaFault;
use crate::schemas::format::tree::Tree;

/// A schema and what it may refer to.
#[derive(Clone, Copy)]
pub(super) struct Documents<'a> {
    pub root: &'a Tree<'static>,
    pub references: &'a HashMap<String, Tree<'static>>,
}

/// A schema, and the document that its local references are in.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub tree: &'a Tree<'static>,
    pub document: &'a Tree<'static>,
}

impl<'a> At<'a> {
    pub fn within(self, tree: &'a Tree<'static>) -> At<'a> {
        At { tree, ..self }
    }

    /// Tells schemas apart.
    pub fn identity(self) -> usize {
        std::ptr::from_ref(self.tree).addr()
    }
}

impl<'a> Documents<'a> {
    pub fn root(self) -> At<'a> {
        At {
            tree: self.root,
            document: self.root,
        }
    }

    /// What a reference names.
    pub fn resolve(self, from: At<'a>, reference: &str) -> Option<At<'a>> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let documents = || std::iter::once(self.root).chain(self.references.values());
        let document = match uri {
            "" => Some(from.document),
            uri => find(self.references, uri)
                .or_else(|| documents().find(|it| is_named(it, uri)))
                .or_else(|| documents().find_map(|it| inner(it, &|it| is_named(it, uri)))),
        }?;
        let tree = match fragment {
            "" => Some(document),
            pointer if pointer.starts_with('/') => pointed(document, pointer),
            anchor => inner(document, &|it| {
                let is = |name: &str, text: &str| it.get(name).and_then(Tree::text) == Some(text);
                is("$anchor", anchor)
                    || is("$dynamicAnchor", anchor)
                    || is("$id", &format!("#{anchor}"))
                    || is("id", &format!("#{anchor}"))
            }),
        }?;
        Some(At { tree, document })
    }

    /// The most schemas that apply to one and the same value one within another: validating recurses
    /// as deep. What refers to itself does not count again.
    pub fn depth_in_place(self) -> Result<usize, SchemaFault> {
        let mut measure = Measure {
            documents: self,
            depths: HashMap::new(),
            under_way: HashSet::new(),
        };
        let mut waiting = vec![self.root()];
        waiting.extend(self.references.values().map(|tree| At {
            tree,
            document: tree,
        }));
        let mut most = 1;
        let mut seen = HashSet::new();
        while let Some(at) = waiting.pop() {
            if seen.insert(at.identity()) {
                most = most.max(measure.depth(at, 0)?);
                waiting.extend(children(at));
            }
        }
        Ok(most)
    }
}

impl<'a> Documents<'a> {
    /// Whether the schema, with all references written out, is of a moderate size: then all that is
    /// wrong with a value can be looked for.
    pub fn is_moderate(self) -> bool {
        let mut left = JSON_EXPANDED_MAX;
        self.expand(self.root(), &mut left, JSON_REFERENCES_DEEP_MAX)
    }

    fn expand(self, at: At<'a>, left: &mut usize, steps_left: usize) -> bool {
        if *left == 0 || steps_left == 0 {
            return false;
        }
        *left -= 1;
        let named = at.tree.object().unwrap_or_default().iter();
        let named = named.filter(|(name, _)| name.ends_with("Ref") || name == "$ref");
        let named = named.filter_map(|(_, it)| self.resolve(at, it.text()?));
        let mut all = named.chain(children(at));
        all.all(|it| self.expand(it, left, steps_left - 1))
    }
}

struct Measure<'a> {
    documents: Documents<'a>,
    depths: HashMap<usize, usize>,
    under_way: HashSet<usize>,
}

impl<'a> Measure<'a> {
    fn depth(&mut self, at: At<'a>, steps: usize) -> Result<usize, SchemaFault> {
        if let Some(known) = self.depths.get(&at.identity()) {
            return Ok(*known);
        }
        if steps > JSON_REFERENCES_DEEP_MAX {
            let reason = format!("more than {JSON_REFERENCES_DEEP_MAX} schemas for one value");
            return Err(SchemaFault::Schema(reason));
        }
        if !self.under_way.insert(at.identity()) {
            return Ok(0);
        }
        let mut most = 0;
        for next in in_place(self.documents, at) {
            most = most.max(self.depth(next, steps + 1)?);
        }
        self.under_way.remove(&at.identity());
        self.depths.insert(at.identity(), most + 1);
        Ok(most + 1)
    }
}

/// The schemas that apply to the very value that this one applies to.
fn in_place<'a>(documents: Documents<'a>, at: At<'a>) -> Vec<At<'a>> {
    let mut found = Vec::new();
    for (name, value) in at.tree.object().unwrap_or_default() {
        match &**name {
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                found.extend(value.text().and_then(|it| documents.resolve(at, it)));
            }
            "allOf" | "anyOf" | "oneOf" => {
                found.extend(
                    value
                        .array()
                        .unwrap_or_default()
                        .iter()
                        .map(|it| at.within(it)),
                );
            }
            "not" | "if" | "then" | "else" => found.push(at.within(value)),
            "dependencies" | "dependentSchemas" => {
                let schemas = value.object().unwrap_or_default().iter();
                found.extend(schemas.map(|(_, it)| at.within(it)));
            }
            _ => {}
        }
    }
    found
}

/// All that stands within, schemas among them.
fn children<'a>(at: At<'a>) -> Vec<At<'a>> {
    match at.tree {
        Tree::Object(entries) => entries.iter().map(|(_, it)| at.within(it)).collect(),
        Tree::Array(items) => items.iter().map(|it| at.within(it)).collect(),
        _ => Vec::new(),
    }
}

fn is_named(tree: &Tree<'_>, uri: &str) -> bool {
    let id = tree
        .get("$id")
        .or_else(|| tree.get("id"))
        .and_then(Tree::text);
    id.is_some_and(|id| {
        let id = id.trim_end_matches('#');
        id == uri || id.ends_with(&format!("/{uri}")) || uri.ends_with(&format!("/{id}"))
    })
}

/// The first within a tree that is as wanted. Depth is that of the text.
fn inner<'a>(
    tree: &'a Tree<'static>,
    is_wanted: &dyn Fn(&Tree<'static>) -> bool,
) -> Option<&'a Tree<'static>> {
    if is_wanted(tree) {
        return Some(tree);
    }
    match tree {
        Tree::Object(entries) => entries.iter().find_map(|(_, it)| inner(it, is_wanted)),
        Tree::Array(items) => items.iter().find_map(|it| inner(it, is_wanted)),
        _ => None,
    }
}

/// What a JSON pointer names.
fn pointed<'a>(tree: &'a Tree<'static>, pointer: &str) -> Option<&'a Tree<'static>> {
    let mut at = tree;
    for step in pointer.split('/').skip(1) {
        let step = unescaped(step)?.replace("~1", "/").replace("~0", "~");
        at = match at {
            Tree::Array(items) => items.get(step.parse::<usize>().ok()?)?,
            other => other.get(&step)?,
        };
    }
    Some(at)
}

/// The text of a part of a URI.
fn unescaped(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}
