//! Tags of records and fields within a schema's text: `confluent:tags`, a list of texts in the object
//! that a record or a field is.
//!
//! A path names a record or a field as Confluent's registry does. Avro: `[namespace.]record` and
//! `[namespace.]record.field`. JSON Schema: the kinds of what is gone through and the names in it, such as
//! `object.items.array.object.price`; of several schemas (`anyof`, `allof`, `oneof`) a number from 0 on
//! says which, in the order of the text. Those of Protobuf are in `proto/tags.rs`.

use std::borrow::Cow;

use super::tree::Tree;
use super::{SchemaFault, SchemaType};

/// What may have tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::schemas) enum EntityKind {
    Record,
    Field,
}

/// The tags of a record or a field.
#[derive(Clone, Debug)]
pub(in crate::schemas) struct EntityTags {
    pub path: String,
    pub kind: EntityKind,
    pub tags: Vec<String>,
}

/// A canonical text with tags added and then others removed.
///
/// # Errors
/// [`SchemaFault::Schema`]: a path leads nowhere.
pub(super) fn tagged(
    kind: SchemaType,
    text: &str,
    added: &[EntityTags],
    removed: &[EntityTags],
) -> Result<String, SchemaFault> {
    let mut tree = read(text)?;
    for (entities, is_added) in [(added, true), (removed, false)] {
        for entity in entities {
            let found = match kind {
                SchemaType::Avro => avro(&mut tree, entity),
                _ => json(&mut tree, entity),
            };
            let found = found.filter(|found| matches!(found, Tree::Object(_)));
            let found = found.ok_or_else(|| nothing_at(&entity.path))?;
            change(found, |tags| match is_added {
                true => add(tags, &entity.tags),
                false => tags.retain(|tag| !entity.tags.contains(tag)),
            });
        }
    }
    Ok(tree.compact())
}

/// A canonical text with the tags that an earlier one has at the same places; others stay.
///
/// # Errors
/// As [`tagged`].
pub(super) fn propagated(
    kind: SchemaType,
    text: &str,
    earlier: &str,
) -> Result<String, SchemaFault> {
    if !earlier.contains(TAGS) {
        return Ok(text.to_owned());
    }
    let earlier = read(earlier)?;
    if kind == SchemaType::Json {
        let mut tree = read(text)?;
        overlay(&mut tree, &earlier);
        return Ok(tree.compact());
    }
    let mut found = Vec::new();
    collect(&earlier, "", &mut found);
    let mut tree = read(text)?;
    for entity in found {
        // What is no longer there has no tags.
        if let Some(object) = avro(&mut tree, &entity) {
            change(object, |tags| add(tags, &entity.tags));
        }
    }
    Ok(tree.compact())
}

fn read(text: &str) -> Result<Tree<'static>, SchemaFault> {
    let tree = Tree::read(text.as_bytes()).map_err(SchemaFault::Schema)?;
    Ok(tree.into_owned())
}

/// Adds tags, each once.
pub(super) fn add(tags: &mut Vec<String>, more: &[String]) {
    for tag in more {
        if !tags.contains(tag) {
            tags.push(tag.clone());
        }
    }
}

/// The fault that a path leads nowhere.
pub(super) fn nothing_at(path: &str) -> SchemaFault {
    let path: String = path.chars().take(PATH_SHOWN).collect();
    SchemaFault::Schema(format!("nothing in the schema has the path '{path}'"))
}

fn tags_of(object: &Tree<'_>) -> Vec<String> {
    let tags = object.get(TAGS).and_then(Tree::array).unwrap_or_default();
    tags.iter()
        .filter_map(Tree::text)
        .map(str::to_owned)
        .collect()
}

/// Changes an object's tags; the last one takes the attribute along.
fn change(object: &mut Tree<'static>, change: impl FnOnce(&mut Vec<String>)) {
    let mut tags = tags_of(object);
    change(&mut tags);
    let Tree::Object(entries) = object else {
        return;
    };
    let place = entries.iter().rposition(|(name, _)| name == TAGS);
    let value = tags.into_iter().map(|tag| Tree::Text(Cow::Owned(tag)));
    let value = Tree::Array(value.collect());
    match (place, value.array().is_some_and(<[_]>::is_empty)) {
        (Some(place), true) => {
            entries.remove(place);
        }
        (None, true) => {}
        (Some(place), false) => entries[place].1 = value,
        (None, false) => entries.push((Cow::Borrowed(TAGS), value)),
    }
}

/// The attribute of an object that counts.
fn attribute<'t>(object: &'t mut Tree<'static>, name: &str) -> Option<&'t mut Tree<'static>> {
    let Tree::Object(entries) = object else {
        return None;
    };
    let mut entries = entries.iter_mut().rev();
    entries.find(|(key, _)| key == name).map(|(_, it)| it)
}

/// The record or field of an Avro schema that a path names; a path without a namespace is of whatever
/// namespace.
fn avro<'t>(tree: &'t mut Tree<'static>, entity: &EntityTags) -> Option<&'t mut Tree<'static>> {
    let (record, field) = match entity.kind {
        EntityKind::Record => (&*entity.path, None),
        EntityKind::Field => {
            let (record, field) = entity.path.rsplit_once('.')?;
            (record, Some(field))
        }
    };
    let record = record.strip_prefix('.').unwrap_or(record);
    let wanted = |full: &str| match record.contains('.') {
        true => full == record,
        false => full.rsplit('.').next() == Some(record),
    };
    let found = record_mut(tree, "", &wanted)?;
    let Some(field) = field else {
        return Some(found);
    };
    let Some(Tree::Array(fields)) = attribute(found, "fields") else {
        return None;
    };
    fields
        .iter_mut()
        .find(|it| it.get("name").and_then(Tree::text) == Some(field))
}

/// The full name of an Avro record, and the namespace within it.
fn full_name(record: &Tree<'_>, space: &str) -> Option<(String, String)> {
    let name = record.get("name").and_then(Tree::text)?;
    let own = record.get("namespace").and_then(Tree::text);
    let full = match (name.contains('.'), own.unwrap_or(space)) {
        (true, _) | (_, "") => name.to_owned(),
        (false, space) => format!("{space}.{name}"),
    };
    let space = full.rsplit_once('.').map_or("", |(space, _)| space);
    let space = space.to_owned();
    Some((full, space))
}

fn is_record(tree: &Tree<'_>) -> bool {
    let kind = tree.get("type").and_then(Tree::text);
    matches!(kind, Some("record" | "error"))
}

/// The first record that is as wanted. Depth is that of the text.
fn record_mut<'t>(
    tree: &'t mut Tree<'static>,
    space: &str,
    wanted: &dyn Fn(&str) -> bool,
) -> Option<&'t mut Tree<'static>> {
    let names = is_record(tree).then(|| full_name(tree, space)).flatten();
    if names.as_ref().is_some_and(|(full, _)| wanted(full)) {
        return Some(tree);
    }
    let space = names.as_ref().map_or(space, |(_, within)| within);
    let within: Vec<&mut Tree<'static>> = match tree {
        Tree::Array(branches) => branches.iter_mut().collect(),
        Tree::Object(entries) => {
            let types = entries.iter_mut().filter(|(name, _)| holds_types(name));
            types.map(|(_, it)| it).collect()
        }
        _ => return None,
    };
    within
        .into_iter()
        .find_map(|it| record_mut(it, space, wanted))
}

/// The tags of all records and fields of an Avro schema.
fn collect(tree: &Tree<'_>, space: &str, found: &mut Vec<EntityTags>) {
    let mut note = |path: String, kind, object: &Tree<'_>| {
        let tags = tags_of(object);
        if !tags.is_empty() {
            found.push(EntityTags { path, kind, tags });
        }
    };
    let names = is_record(tree).then(|| full_name(tree, space)).flatten();
    if let Some((full, _)) = &names {
        note(full.clone(), EntityKind::Record, tree);
        let fields = tree.get("fields").and_then(Tree::array);
        for field in fields.unwrap_or_default() {
            if let Some(name) = field.get("name").and_then(Tree::text) {
                note(format!("{full}.{name}"), EntityKind::Field, field);
            }
        }
    }
    let space = names.as_ref().map_or(space, |(_, within)| within);
    match tree {
        Tree::Array(branches) => branches.iter().for_each(|it| collect(it, space, found)),
        Tree::Object(entries) => {
            let types = entries.iter().filter(|(name, _)| holds_types(name));
            types.for_each(|(_, it)| collect(it, space, found));
        }
        _ => {}
    }
}

/// Whether an attribute of an Avro schema, or of a field, holds schemas.
fn holds_types(name: &str) -> bool {
    ["type", "fields", "items", "values"].contains(&name)
}

/// The schema within a JSON Schema that a path names.
fn json<'t>(tree: &'t mut Tree<'static>, entity: &EntityTags) -> Option<&'t mut Tree<'static>> {
    let steps: Vec<&str> = entity.path.split('.').collect();
    let (mut at, mut steps) = (tree, &steps[..]);
    loop {
        let (step, rest) = steps.split_first()?;
        steps = rest;
        match *step {
            "object" if rest.is_empty() => {
                return (entity.kind == EntityKind::Record).then_some(at);
            }
            "object" => {
                let under = rest[0];
                let group = match under {
                    "definitions" | "$defs" => {
                        steps = &rest[1..];
                        under
                    }
                    _ => "properties",
                };
                at = named(attribute(at, group)?, &mut steps)?;
                if steps.is_empty() {
                    return Some(at);
                }
            }
            "array" => at = attribute(at, "items")?,
            "not" => at = attribute(at, "not")?,
            "anyof" | "allof" | "oneof" => {
                let (which, rest) = steps.split_first()?;
                steps = rest;
                let group = match *step {
                    "anyof" => "anyOf",
                    "allof" => "allOf",
                    _ => "oneOf",
                };
                match (at.get(group).is_some(), rest.split_first()) {
                    (true, _) => {
                        let Tree::Array(schemas) = attribute(at, group)? else {
                            return None;
                        };
                        at = schemas.get_mut(which.parse::<usize>().ok()?)?;
                    }
                    // `if`, `then` and `else` are told as parts of which all hold.
                    (false, Some((&"conditional", rest))) if group == "allOf" => {
                        let (branch, rest) = rest.split_first()?;
                        steps = rest;
                        at = attribute(at, branch)?;
                    }
                    // Several types of one schema are told as schemas of which one holds.
                    (false, _) if group == "oneOf" => return None,
                    (false, _) => {}
                }
            }
            _ => return None,
        }
    }
}

/// The schema under the name that the next steps are: a name may have dots.
fn named<'t>(group: &'t mut Tree<'static>, steps: &mut &[&str]) -> Option<&'t mut Tree<'static>> {
    let count = (1..=steps.len()).find(|count| group.get(&steps[..*count].join(".")).is_some())?;
    let name = steps[..count].join(".");
    *steps = &steps[count..];
    attribute(group, &name)
}

/// Adds the tags that objects of another tree have at the same places. Depth is that of the texts.
fn overlay(tree: &mut Tree<'static>, earlier: &Tree<'_>) {
    let tags = tags_of(earlier);
    if !tags.is_empty() {
        change(tree, |own| add(own, &tags));
    }
    match (tree, earlier) {
        (Tree::Object(entries), earlier @ Tree::Object(_)) => {
            for (name, it) in entries.iter_mut() {
                if let Some(earlier) = earlier.get(name) {
                    overlay(it, earlier);
                }
            }
        }
        (Tree::Array(items), Tree::Array(earlier)) => {
            for (it, earlier) in items.iter_mut().zip(earlier) {
                overlay(it, earlier);
            }
        }
        _ => {}
    }
}

const TAGS: &str = "confluent:tags";

/// How much of a path that leads nowhere is repeated, in characters.
const PATH_SHOWN: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(path: &str, kind: EntityKind, tags: &[&str]) -> EntityTags {
        EntityTags {
            path: path.to_owned(),
            kind,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        }
    }

    const AVRO: &str = concat!(
        r#"{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int","#,
        r#""confluent:tags":["X"]},{"name":"b","type":["null",{"type":"array","items":"#,
        r#"{"type":"record","name":"S","fields":[{"name":"c","type":"int"}]}}]}]}"#
    );

    #[test]
    fn records_and_fields_of_avro_are_found_by_their_names() {
        let added = [
            entity("R", EntityKind::Record, &["A"]),
            entity("n.R.a", EntityKind::Field, &["Y"]),
            entity(".S.c", EntityKind::Field, &["Z"]),
        ];
        let removed = [entity("n.R.a", EntityKind::Field, &["X"])];
        let text = tagged(SchemaType::Avro, AVRO, &added, &removed).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int","#,
                r#""confluent:tags":["Y"]},{"name":"b","type":["null",{"type":"array","items":"#,
                r#"{"type":"record","name":"S","fields":[{"name":"c","type":"int","#,
                r#""confluent:tags":["Z"]}]}}]}],"confluent:tags":["A"]}"#
            )
        );
        for path in ["m.R.a", "n.R.z", "c", ""] {
            let wanted = [entity(path, EntityKind::Field, &["A"])];
            assert!(
                tagged(SchemaType::Avro, AVRO, &wanted, &[]).is_err(),
                "{path}"
            );
        }
    }

    #[test]
    fn tags_of_avro_are_taken_over_where_the_names_are_still_there() {
        let later = concat!(
            r#"{"type":"record","name":"R","namespace":"n","fields":[{"name":"b","type":"int"},"#,
            r#"{"name":"a","type":"long","confluent:tags":["Y"]}]}"#
        );
        let text = propagated(SchemaType::Avro, later, AVRO).unwrap();
        assert_eq!(text, later.replace(r#"["Y"]"#, r#"["Y","X"]"#));
        assert_eq!(propagated(SchemaType::Avro, later, later).unwrap(), later);
    }

    #[test]
    fn schemas_within_json_schemas_are_found_by_their_paths() {
        let text = concat!(
            r#"{"type":"object","properties":{"a.b":{"type":"integer"},"l":{"type":"array","items":"#,
            r#"{"type":"object","properties":{"c":{}}}},"u":{"oneOf":[{"type":"null"},"#,
            r#"{"properties":{"d":{}}}]},"n":{"not":{"properties":{"e":{}}}},"#,
            r#""t":{"type":["null","object"],"properties":{"f":{}}}},"#,
            r#""definitions":{"D":{"properties":{"g":{}}}},"then":{"properties":{"h":{}}}}"#
        );
        let paths = [
            "object.a.b",
            "object.l.array.object.c",
            "object.u.oneof.1.object.d",
            "object.n.not.object.e",
            "object.t.anyof.1.object.f",
            "object.definitions.D.object.g",
            "allof.0.conditional.then.object.h",
        ];
        for path in paths {
            let added = [entity(path, EntityKind::Field, &["A"])];
            let with = tagged(SchemaType::Json, text, &added, &[]).unwrap();
            assert_eq!(with.matches(TAGS).count(), 1, "{path}");
            let without = tagged(SchemaType::Json, &with, &[], &added).unwrap();
            assert_eq!(without, text, "{path}");
            assert_eq!(
                propagated(SchemaType::Json, text, &with).unwrap(),
                with,
                "{path}"
            );
        }
        let whole = [entity("object", EntityKind::Record, &["A"])];
        let with = tagged(SchemaType::Json, text, &whole, &[]).unwrap();
        assert!(with.ends_with(r#","confluent:tags":["A"]}"#), "{with}");
        for path in [
            "object.z",
            "object",
            "array.object.c",
            "object.u.oneof.7.object.d",
            "",
        ] {
            let added = [entity(path, EntityKind::Field, &["A"])];
            assert!(
                tagged(SchemaType::Json, text, &added, &[]).is_err(),
                "{path}"
            );
        }
    }
}
