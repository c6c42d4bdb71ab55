//! Jolt's shift: values of one document go to places of another, by a specification that has the
//! shape of the first.
//!
//! Keys of a specification match keys, or indexes of lists: as they are, one of several (`a|b`), or
//! with `*`. What stands for a matched value is a path, several, or a further specification; `$` is
//! the key itself, `@` the value, `@(1,x)` one beside it, `#text` a text. In paths `&(1,2)` is the
//! second part that `*` matched one level up, `[]` goes on with a list, `[#2]` at the place that
//! the match has two levels up. Values that meet in one place become a list.

mod read;

use std::cell::Cell;

use super::{Fields, Json};
use crate::limits::SHIFT_INDEX_MAX;

/// A specification that was read.
#[derive(Clone, Debug)]
pub(crate) struct Shift(Node);

#[derive(Clone, Debug, Default)]
struct Node {
    /// In the order in which they are tried.
    rules: Vec<(Match, Then)>,
    own: Vec<(Own, Then)>,
}

/// Which keys a rule is for.
#[derive(Clone, Debug)]
enum Match {
    Literal(Vec<String>),
    Computed(Vec<Piece>),
    /// What stands between the asterisks.
    Pattern(Vec<String>),
}

#[derive(Clone, Debug)]
enum Then {
    Paths(Vec<Vec<Segment>>),
    Node(Node),
}

/// What is written beside what was matched.
#[derive(Clone, Debug)]
enum Own {
    Key(Reference),
    Value(usize, Vec<String>),
    Text(String),
}

/// One step of a path in the result.
#[derive(Clone, Debug)]
struct Segment {
    name: Vec<Piece>,
    index: Option<Index>,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Reference(Reference),
    /// The text of a value so many levels up, by a path.
    Value(usize, Vec<String>),
}

#[derive(Clone, Debug)]
enum Index {
    Append,
    At(Vec<Piece>),
    /// How many matches there were so many levels up.
    Count(usize),
}

/// Levels up, and which part of what was matched there.
#[derive(Clone, Copy, Debug)]
struct Reference {
    level: usize,
    part: usize,
}

/// A level of the walk.
struct Level<'d> {
    /// The key, then what its asterisks matched.
    parts: Vec<String>,
    value: &'d Json,
    matches: Cell<usize>,
}

impl Shift {
    /// Reads a specification; the error names the key or path that is none.
    pub(crate) fn parse(text: &str) -> Result<Shift, String> {
        match Json::parse(text)? {
            Json::Object(fields) => read::node(&fields, 0).map(Shift),
            _ => Err("the specification is no JSON object".to_owned()),
        }
    }

    /// The document that comes of `input`; nothing where nothing was matched.
    pub(crate) fn apply(&self, input: &Json) -> Result<Json, String> {
        let mut output = Json::Null;
        let mut levels = vec![Level {
            parts: vec!["root".to_owned()],
            value: input,
            matches: Cell::new(0),
        }];
        walk(&self.0, &mut levels, &mut output)?;
        Ok(output)
    }
}

fn walk<'d>(node: &Node, levels: &mut Vec<Level<'d>>, output: &mut Json) -> Result<(), String> {
    for (own, then) in &node.own {
        let written = match own {
            Own::Key(reference) => Some(Json::Text(part(levels, *reference)?)),
            Own::Value(level, path) => value_at(levels, *level, path)?.cloned(),
            Own::Text(text) => Some(Json::Text(text.clone())),
        };
        let (Some(written), Then::Paths(paths)) = (written, then) else {
            continue;
        };
        // The sign is a level of its own for what its paths refer to.
        levels.push(Level {
            parts: vec![String::new()],
            value: &NOTHING,
            matches: Cell::new(0),
        });
        let put = put_all(paths, levels, &written, output);
        levels.pop();
        put?;
    }
    let Some(value) = levels.last().map(|level| level.value) else {
        return Ok(());
    };
    match value {
        Json::Object(fields) => {
            for (key, child) in fields.iter() {
                step(node, key.to_owned(), child, levels, output)?;
            }
        }
        Json::List(items) => {
            for (index, child) in items.iter().enumerate() {
                step(node, index.to_string(), child, levels, output)?;
            }
        }
        Json::Null => {}
        // A plain value is matched by its text.
        scalar => step(node, scalar.to_plain(), &NOTHING, levels, output)?,
    }
    Ok(())
}

fn step<'d>(
    node: &Node,
    key: String,
    child: &'d Json,
    levels: &mut Vec<Level<'d>>,
    output: &mut Json,
) -> Result<(), String> {
    for (matching, then) in &node.rules {
        let Some(captured) = matching.captures(&key, levels)? else {
            continue;
        };
        if let Some(level) = levels.last() {
            level.matches.set(level.matches.get() + 1);
        }
        levels.push(Level {
            parts: [key].into_iter().chain(captured).collect(),
            value: child,
            matches: Cell::new(0),
        });
        let done = match then {
            Then::Paths(paths) => put_all(paths, levels, child, output),
            Then::Node(inner) => walk(inner, levels, output),
        };
        levels.pop();
        return done;
    }
    Ok(())
}

impl Match {
    /// What the asterisks matched, none where the key is another.
    fn captures(&self, key: &str, levels: &[Level<'_>]) -> Result<Option<Vec<String>>, String> {
        Ok(match self {
            Match::Literal(all) => all.iter().any(|own| own == key).then(Vec::new),
            Match::Computed(pieces) => (text(pieces, levels)? == key).then(Vec::new),
            Match::Pattern(parts) => captures(parts, key),
        })
    }
}

/// What stands between `parts` in `key`; every asterisk takes one character at least.
fn captures(parts: &[String], key: &str) -> Option<Vec<String>> {
    let (first, rest) = parts.split_first()?;
    let mut key = key.strip_prefix(first.as_str())?;
    let mut captured = Vec::new();
    for (index, part) in rest.iter().enumerate() {
        let least = key.chars().next()?.len_utf8();
        let end = if index + 1 == rest.len() {
            key.strip_suffix(part.as_str())?.len()
        } else {
            least + key[least..].find(part.as_str())?
        };
        if end < least {
            return None;
        }
        captured.push(key[..end].to_owned());
        key = &key[end + part.len()..];
    }
    Some(captured)
}

fn level_at<'l, 'd>(levels: &'l [Level<'d>], up: usize) -> Result<&'l Level<'d>, String> {
    let at = levels.len().checked_sub(up + 1);
    at.and_then(|at| levels.get(at))
        .ok_or_else(|| format!("there are no {up} levels above"))
}

fn part(levels: &[Level<'_>], reference: Reference) -> Result<String, String> {
    let level = level_at(levels, reference.level)?;
    let part = level.parts.get(reference.part).cloned();
    part.ok_or_else(|| format!("nothing matched as part {}", reference.part))
}

fn value_at<'d>(
    levels: &[Level<'d>],
    level: usize,
    path: &[String],
) -> Result<Option<&'d Json>, String> {
    let mut value = Some(level_at(levels, level)?.value);
    for name in path {
        value = match value {
            Some(Json::Object(fields)) => fields.get(name),
            Some(Json::List(items)) => name.parse().ok().and_then(|at: usize| items.get(at)),
            _ => None,
        };
    }
    Ok(value)
}

fn text(pieces: &[Piece], levels: &[Level<'_>]) -> Result<String, String> {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Reference(reference) => out.push_str(&part(levels, *reference)?),
            Piece::Value(level, path) => {
                let value = value_at(levels, *level, path)?;
                out.push_str(&value.map(Json::to_plain).unwrap_or_default());
            }
        }
    }
    Ok(out)
}

fn put_all(
    paths: &[Vec<Segment>],
    levels: &[Level<'_>],
    value: &Json,
    output: &mut Json,
) -> Result<(), String> {
    paths
        .iter()
        .try_for_each(|path| put(path, levels, value, output))
}

fn put(
    path: &[Segment],
    levels: &[Level<'_>],
    value: &Json,
    output: &mut Json,
) -> Result<(), String> {
    let mut place = output;
    for segment in path {
        let name = text(&segment.name, levels)?;
        // A path that begins with a list has no name before it.
        if !segment.name.is_empty() {
            if !matches!(place, Json::Object(_)) {
                *place = Json::Object(Fields::default());
            }
            let Json::Object(fields) = place else {
                return Ok(());
            };
            if fields.get(&name).is_none() {
                fields.set(&name, Json::Null);
            }
            let Some(inner) = fields.get_mut(&name) else {
                return Ok(());
            };
            place = inner;
        }
        let Some(index) = &segment.index else {
            continue;
        };
        let at = match index {
            Index::Append => None,
            Index::At(pieces) => {
                let text = text(pieces, levels)?;
                let at: usize = text
                    .parse()
                    .map_err(|_| format!("'{text}' is no place in a list"))?;
                Some(at)
            }
            Index::Count(level) => {
                let count = level_at(levels, *level)?.matches.get();
                Some(count.saturating_sub(1))
            }
        };
        place = item(place, at)?;
    }
    match place {
        Json::Null => *place = value.clone(),
        Json::List(items) => items.push(value.clone()),
        known => {
            let first = std::mem::take(known);
            *known = Json::List(vec![first, value.clone()]);
        }
    }
    Ok(())
}

/// The item at a place of a list, which is made where there is none; the next one without a place.
fn item(place: &mut Json, at: Option<usize>) -> Result<&mut Json, String> {
    if !matches!(place, Json::List(_)) {
        let items = match std::mem::take(place) {
            Json::Null => Vec::new(),
            first => vec![first],
        };
        *place = Json::List(items);
    }
    let Json::List(items) = place else {
        return Err("a list is no list".to_owned());
    };
    let at = at.unwrap_or(items.len());
    if at > SHIFT_INDEX_MAX {
        return Err(format!(
            "{at} is more than a list takes ({SHIFT_INDEX_MAX})"
        ));
    }
    if items.len() <= at {
        items.resize(at + 1, Json::Null);
    }
    Ok(&mut items[at])
}

static NOTHING: Json = Json::Null;

#[cfg(test)]
mod tests;
