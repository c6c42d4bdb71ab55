//! Values into bytes.
//!
//! A value goes to the branch of a union that it fits best: one of its own kind, then one that
//! takes it with a change (a whole number as a double, a number as a text), in the order of the
//! branches.

use super::schema::{AvroSchema, Field, Node, NodeId};
use crate::json::{Fields, Json};
use crate::limits::AVRO_DEPTH_MAX;

/// Writes one record behind `out`; the error names the field. Fields that the schema has not are
/// left out, or refused where it `is_strict`.
pub(super) fn record(
    schema: &AvroSchema,
    record: &Fields,
    is_strict: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let mut encoder = Encoder {
        schema,
        is_strict,
        out,
        path: Vec::new(),
    };
    let start = encoder.out.len();
    let Node::Record(fields) = schema.node(schema.root()) else {
        return Err("the schema is no record".to_owned());
    };
    encoder.fields(fields, record).map_err(|why| {
        encoder.out.truncate(start);
        match encoder.path.is_empty() {
            true => why,
            false => format!("field '{}' {why}", encoder.path.join(".")),
        }
    })
}

/// Writes a number of variable length, in zigzag.
pub(super) fn long(number: i64, out: &mut Vec<u8>) {
    let mut zigzag = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while zigzag >= 0x80 {
        out.push((zigzag & 0x7f) as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

/// Writes bytes behind their length.
pub(super) fn sized(bytes: &[u8], out: &mut Vec<u8>) {
    long(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

/// How well a value fits a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// It is of the type.
    Same,
    /// It is a number of the type when that is a wider one.
    Wider,
    /// Its text is written, or its text writes one.
    AsText,
}

struct Encoder<'s, 'o> {
    schema: &'s AvroSchema,
    is_strict: bool,
    out: &'o mut Vec<u8>,
    path: Vec<String>,
}

impl Encoder<'_, '_> {
    fn fields(&mut self, fields: &[Field], record: &Fields) -> Result<(), String> {
        let mut names = record.iter().map(|(name, _)| name);
        if self.is_strict
            && let Some(name) = names.find(|name| !has(fields, name))
        {
            self.path.push(name.to_owned());
            return Err(
                "is not in the schema that was found from the first records: set \
                        Schema Text"
                    .to_owned(),
            );
        }
        for field in fields {
            self.path.push(field.name.clone());
            self.value(field.node, field_value(field, record))?;
            self.path.pop();
        }
        Ok(())
    }

    fn value(&mut self, id: NodeId, value: &Json) -> Result<(), String> {
        if self.path.len() > AVRO_DEPTH_MAX {
            return Err(format!("is nested deeper than {AVRO_DEPTH_MAX} levels"));
        }
        let schema = self.schema;
        match (schema.node(id), value) {
            (Node::Null, Json::Null) => {}
            (node, Json::Null) if !matches!(node, Node::Union(_)) => {
                return Err(format!(
                    "is missing or null, and the schema wants a {}",
                    name(node)
                ));
            }
            (Node::Boolean, _) => match flag(value) {
                Some(flag) => self.out.push(u8::from(flag)),
                None => return Err(refused(value, "boolean")),
            },
            (Node::Int, _) => match whole(value).filter(|n| i32::try_from(*n).is_ok()) {
                Some(number) => long(number, self.out),
                None => return Err(refused(value, "int")),
            },
            (Node::Long, _) => match whole(value) {
                Some(number) => long(number, self.out),
                None => return Err(refused(value, "long")),
            },
            (Node::Float, _) => match fraction(value) {
                Some(number) => self.out.extend_from_slice(&(number as f32).to_le_bytes()),
                None => return Err(refused(value, "float")),
            },
            (Node::Double, _) => match fraction(value) {
                Some(number) => self.out.extend_from_slice(&number.to_le_bytes()),
                None => return Err(refused(value, "double")),
            },
            (Node::Text, value) if value.is_scalar() && *value != Json::Null => {
                sized(value.to_plain().as_bytes(), self.out);
            }
            (Node::Bytes, Json::Text(text)) => match bytes(text) {
                Some(bytes) => sized(&bytes, self.out),
                None => return Err(refused(value, "bytes")),
            },
            (Node::Fixed(size), Json::Text(text)) => match bytes(text) {
                Some(bytes) if bytes.len() == *size => self.out.extend_from_slice(&bytes),
                _ => return Err(refused(value, "fixed")),
            },
            (Node::Decimal { scale, size }, _) => {
                let unscaled = decimal(value, *scale).ok_or_else(|| refused(value, "decimal"))?;
                match size {
                    None => sized(shortest(&unscaled.to_be_bytes()), self.out),
                    Some(size) => {
                        let own = unscaled.to_be_bytes();
                        let own = shortest(&own);
                        let fill = size.checked_sub(own.len());
                        let fill = fill.ok_or_else(|| refused(value, "decimal"))?;
                        let sign = if unscaled < 0 { 0xff } else { 0 };
                        self.out.extend(std::iter::repeat_n(sign, fill));
                        self.out.extend_from_slice(own);
                    }
                }
            }
            (Node::Enum(symbols), Json::Text(text)) => {
                let index = symbols.iter().position(|symbol| symbol == text);
                match index {
                    Some(index) => long(index as i64, self.out),
                    None => return Err(refused(value, "enum")),
                }
            }
            (Node::List(items), Json::List(values)) => {
                self.blocks(values.len());
                for (index, value) in values.iter().enumerate() {
                    self.path.push(index.to_string());
                    self.value(*items, value)?;
                    self.path.pop();
                }
                self.end_blocks();
            }
            (Node::Map(of), Json::Object(fields)) => {
                self.blocks(fields.len());
                for (name, value) in fields.iter() {
                    self.path.push(name.to_owned());
                    sized(name.as_bytes(), self.out);
                    self.value(*of, value)?;
                    self.path.pop();
                }
                self.end_blocks();
            }
            (Node::Record(fields), Json::Object(record)) => self.fields(fields, record)?,
            (Node::Union(branches), _) => {
                let fits = branches.iter().enumerate().filter_map(|(index, branch)| {
                    let fit = self.fit(*branch, value, 0)?;
                    Some((fit, index))
                });
                let Some((_, index)) = fits.min() else {
                    return Err(refused(value, "branch of its union"));
                };
                long(index as i64, self.out);
                self.value(branches[index], value)?;
            }
            (node, _) => return Err(refused(value, name(node))),
        }
        Ok(())
    }

    /// An array's or a map's one block begins.
    fn blocks(&mut self, count: usize) {
        if count > 0 {
            long(count as i64, self.out);
        }
    }

    fn end_blocks(&mut self) {
        long(0, self.out);
    }

    /// Whether and how well `value` fits `id`, looked at as deep as a union's branches differ.
    fn fit(&self, id: NodeId, value: &Json, depth: usize) -> Option<Fit> {
        if depth > FIT_DEPTH_MAX {
            // What lies deeper is for the writing to refuse.
            return Some(Fit::AsText);
        }
        let same = |fits: bool| fits.then_some(Fit::Same);
        match (self.schema.node(id), value) {
            (Node::Union(branches), _) => {
                let fits = branches
                    .iter()
                    .filter_map(|b| self.fit(*b, value, depth + 1));
                fits.min()
            }
            (Node::Null, Json::Null) => Some(Fit::Same),
            (_, Json::Null) => None,
            (Node::Boolean, Json::Flag(_)) => Some(Fit::Same),
            (Node::Boolean, Json::Text(_)) => flag(value).map(|_| Fit::AsText),
            (Node::Int, Json::Whole(number)) => same(i32::try_from(*number).is_ok()),
            (Node::Long, Json::Whole(_)) => Some(Fit::Same),
            (Node::Int, Json::Text(_)) => {
                let number = whole(value)?;
                i32::try_from(number).ok().map(|_| Fit::AsText)
            }
            (Node::Long, Json::Text(_)) => whole(value).map(|_| Fit::AsText),
            (Node::Float | Node::Double, Json::Fraction(_)) => Some(Fit::Same),
            (Node::Float | Node::Double, Json::Whole(_) | Json::Large(_)) => Some(Fit::Wider),
            (Node::Float | Node::Double, Json::Text(_)) => fraction(value).map(|_| Fit::AsText),
            (Node::Decimal { scale, .. }, _) => decimal(value, *scale).map(|_| Fit::Wider),
            (Node::Text, Json::Text(_)) => Some(Fit::Same),
            (Node::Text, value) => value.is_scalar().then_some(Fit::AsText),
            (Node::Enum(symbols), Json::Text(text)) => same(symbols.contains(text)),
            (Node::Bytes, Json::Text(text)) => bytes(text).map(|_| Fit::Wider),
            (Node::Fixed(size), Json::Text(text)) => {
                let bytes = bytes(text)?;
                (bytes.len() == *size).then_some(Fit::Wider)
            }
            (Node::List(items), Json::List(values)) => {
                let fits = values
                    .iter()
                    .map(|value| self.fit(*items, value, depth + 1));
                worst(fits)
            }
            (Node::Map(of), Json::Object(fields)) => {
                let fits = fields
                    .iter()
                    .map(|(_, value)| self.fit(*of, value, depth + 1));
                // A record with the same fields is better.
                worst(fits).map(|fit| fit.max(Fit::Wider))
            }
            (Node::Record(fields), Json::Object(record)) => {
                let fits = fields
                    .iter()
                    .map(|field| self.fit(field.node, field_value(field, record), depth + 1));
                let has_others = record.iter().any(|(name, _)| !has(fields, name));
                let least = if has_others { Fit::AsText } else { Fit::Same };
                worst(fits).map(|fit| fit.max(least))
            }
            _ => None,
        }
    }
}

fn worst(mut fits: impl Iterator<Item = Option<Fit>>) -> Option<Fit> {
    fits.try_fold(Fit::Same, |so_far, fit| Some(so_far.max(fit?)))
}

fn has(fields: &[Field], name: &str) -> bool {
    fields
        .iter()
        .any(|field| field.name == name || field.aliases.iter().any(|alias| alias == name))
}

/// What a record says of a field, by its name, its aliases, its default, or nothing.
fn field_value<'v>(field: &'v Field, record: &'v Fields) -> &'v Json {
    let by_alias = || field.aliases.iter().find_map(|alias| record.get(alias));
    let found = record.get(&field.name).or_else(by_alias);
    found.or(field.default.as_ref()).unwrap_or(&Json::Null)
}

fn flag(value: &Json) -> Option<bool> {
    match value {
        Json::Flag(flag) => Some(*flag),
        Json::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn whole(value: &Json) -> Option<i64> {
    match value {
        Json::Whole(number) => Some(*number),
        Json::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn fraction(value: &Json) -> Option<f64> {
    match value {
        Json::Text(text) => text.trim().parse().ok(),
        number => number.fraction(),
    }
}

/// One byte for each character.
fn bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(c).ok()).collect()
}

/// The number times ten to the power of `scale`, where nothing of it is lost.
fn decimal(value: &Json, scale: u32) -> Option<i128> {
    let text = match value {
        Json::Text(text) => text.trim().to_owned(),
        Json::Whole(_) | Json::Large(_) => value.to_text(),
        Json::Fraction(number) if number.is_finite() => number.to_string(),
        _ => return None,
    };
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.as_str()),
    };
    let (before, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let behind = behind.trim_end_matches('0');
    let fill = (scale as usize).checked_sub(behind.len())?;
    let all = format!("{before}{behind}{}", "0".repeat(fill));
    if before.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i128 = all.parse().ok()?;
    Some(sign * number)
}

/// A number's bytes without those at the front that only repeat its sign.
fn shortest(bytes: &[u8; 16]) -> &[u8] {
    let is_needed = |at: usize| {
        let sign = if bytes[at + 1] >= 0x80 { 0xff } else { 0 };
        bytes[at] != sign
    };
    let first = (0..15).find(|at| is_needed(*at)).unwrap_or(15);
    &bytes[first..]
}

fn refused(value: &Json, kind: &str) -> String {
    let shown: String = value.to_text().chars().take(SHOWN_CHARS).collect();
    format!("is no {kind} of the schema: {shown}")
}

fn name(node: &Node) -> &'static str {
    match node {
        Node::Null => "null",
        Node::Boolean => "boolean",
        Node::Int => "int",
        Node::Long => "long",
        Node::Float => "float",
        Node::Double => "double",
        Node::Bytes => "bytes",
        Node::Text => "string",
        Node::Decimal { .. } => "decimal",
        Node::Fixed(_) => "fixed",
        Node::Enum(_) => "enum",
        Node::List(_) => "array",
        Node::Map(_) => "map",
        Node::Union(_) => "union",
        Node::Record(_) => "record",
    }
}

/// Levels that are looked at to tell a union's branches apart.
const FIT_DEPTH_MAX: usize = 8;

/// Characters of a value that an error shows.
const SHOWN_CHARS: usize = 60;
