//! A schema for records that have none: what the first of them have, all of it nullable.

use crate::json::{Fields, Json};
use crate::limits::AVRO_DEPTH_MAX;

/// What was seen of one field, or of a list's items.
#[derive(Debug, Default)]
struct Seen {
    flags: bool,
    wholes: bool,
    fractions: bool,
    texts: bool,
    items: Option<Box<Seen>>,
    fields: Option<Vec<(String, Seen)>>,
}

/// A schema's JSON by which all of `records` can be written; the error names what cannot.
pub(super) fn schema(records: &[Fields]) -> Result<String, String> {
    let mut seen = Vec::new();
    for record in records {
        note(&mut seen, record, 0)?;
    }
    Ok(described("nifiRecord", "org.apache.nifi", &seen).to_text())
}

fn note(seen: &mut Vec<(String, Seen)>, record: &Fields, depth: usize) -> Result<(), String> {
    for (name, value) in record.iter() {
        let place = match seen.iter().position(|(known, _)| known == name) {
            Some(place) => place,
            None => {
                if !is_name(name) {
                    return Err(format!(
                        "the field '{name}' is no name of Avro (letters, digits and _): rename it \
                         or set Schema Text"
                    ));
                }
                seen.push((name.to_owned(), Seen::default()));
                seen.len() - 1
            }
        };
        seen[place].1.note(value, depth + 1)?;
    }
    Ok(())
}

impl Seen {
    fn note(&mut self, value: &Json, depth: usize) -> Result<(), String> {
        if depth > AVRO_DEPTH_MAX / 2 {
            return Err("a record is nested too deep for Avro".to_owned());
        }
        match value {
            Json::Null => {}
            Json::Flag(_) => self.flags = true,
            Json::Whole(_) => self.wholes = true,
            Json::Large(_) | Json::Fraction(_) => self.fractions = true,
            Json::Text(_) => self.texts = true,
            Json::List(items) => {
                let seen = self.items.get_or_insert_default();
                for item in items {
                    seen.note(item, depth + 1)?;
                }
            }
            Json::Object(fields) => {
                note(self.fields.get_or_insert_default(), fields, depth + 1)?;
            }
        }
        Ok(())
    }

    /// The type; records are named `name` in `space`.
    fn described(&self, name: &str, space: &str) -> Json {
        let word = |name: &str| Json::Text(name.to_owned());
        let mut branches = vec![word("null")];
        if self.flags {
            branches.push(word("boolean"));
        }
        // A number with a fraction takes the whole ones too.
        match (self.wholes, self.fractions) {
            (true, false) => branches.push(word("long")),
            (_, true) => branches.push(word("double")),
            _ => {}
        }
        if let Some(items) = &self.items {
            let list = [
                ("type".to_owned(), word("array")),
                ("items".to_owned(), items.described(name, space)),
            ];
            branches.push(Json::Object(list.into_iter().collect()));
        }
        if let Some(fields) = &self.fields {
            branches.push(described(name, space, fields));
        }
        if self.texts || branches.len() == 1 {
            branches.push(word("string"));
        }
        Json::List(branches)
    }
}

/// A record's schema; records within it are named within its name, so that none meets another.
fn described(name: &str, space: &str, seen: &[(String, Seen)]) -> Json {
    let text = |text: &str| Json::Text(text.to_owned());
    let inner = format!("{space}.{name}");
    let fields = seen.iter().map(|(name, seen)| {
        let field = [
            ("name".to_owned(), text(name)),
            ("type".to_owned(), seen.described(name, &inner)),
        ];
        Json::Object(field.into_iter().collect())
    });
    let record = [
        ("type".to_owned(), text("record")),
        ("name".to_owned(), text(name)),
        ("namespace".to_owned(), text(space)),
        ("fields".to_owned(), Json::List(fields.collect())),
    ];
    Json::Object(record.into_iter().collect())
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    first && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
