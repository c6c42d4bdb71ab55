//! JSON to Avro's binary encoding, by the JSON encoding of the specification: a union's value is
//! `null` or an object whose one name is the branch; bytes and fixed are text of ISO-8859-1.
//!
//! Beyond the specification, a field that is missing takes its default, and `NaN`, `Infinity` and
//! `-Infinity` in quotes are numbers, as Avro's library for Java writes them.

use super::{AvroSchema, NodeId, Record, Shape};
use crate::limits::{AVRO_DEPTH_MAX, JSON_VALUES_MAX, REQUEST_PAYLOADS_BYTES_MAX};
use crate::schemas::format::tree::Tree;
use crate::schemas::format::{SchemaFault, Work};

impl AvroSchema {
    pub fn encode(&self, json: &[u8], work: &mut Work) -> Result<Vec<u8>, SchemaFault> {
        let tree = Tree::read(json).map_err(SchemaFault::Value)?;
        let mut encoder = Encoder::of(self, json.len(), work.bytes_of_payload());
        if let (Shape::Bytes, Some(text)) = (self.shape(self.root), tree.text()) {
            // Alone, bytes stand without their length.
            return latin(text).ok_or_else(|| SchemaFault::Value(NOT_LATIN.to_owned()));
        }
        let written = encoder.value(self.root, &tree, Unions::Named, 0);
        if encoder.is_full() {
            work.spend();
        }
        let steps = 2 * JSON_VALUES_MAX - encoder.steps_left;
        work.step(steps as u64 / VALUES_A_STEP)?;
        written.map_err(SchemaFault::Value)?;
        Ok(encoder.out)
    }

    /// The encoding of a default, in which a union's value stands without its branch.
    pub(super) fn encode_default(
        &self,
        id: NodeId,
        tree: &Tree<'_>,
    ) -> Result<Vec<u8>, SchemaFault> {
        let mut encoder = Encoder::of(self, 0, REQUEST_PAYLOADS_BYTES_MAX);
        encoder
            .value(id, tree, Unions::Bare, 0)
            .map_err(SchemaFault::Schema)?;
        Ok(encoder.out)
    }
}

/// How the value of a union stands in the JSON.
#[derive(Clone, Copy, PartialEq)]
enum Unions {
    /// With the name of its branch.
    Named,
    /// As it is: in defaults.
    Bare,
}

struct Encoder<'a> {
    schema: &'a AvroSchema,
    out: Vec<u8>,
    bytes_max: usize,
    /// Defaults of defaults may multiply what the text says.
    steps_left: usize,
}

impl<'a> Encoder<'a> {
    fn of(schema: &'a AvroSchema, json_bytes: usize, bytes_max: usize) -> Self {
        Encoder {
            schema,
            out: Vec::with_capacity(json_bytes / 2),
            bytes_max,
            steps_left: 2 * JSON_VALUES_MAX,
        }
    }

    /// Whether more was written than may be.
    fn is_full(&self) -> bool {
        self.out.len() > self.bytes_max
    }

    fn value(
        &mut self,
        id: NodeId,
        tree: &Tree<'_>,
        unions: Unions,
        depth: usize,
    ) -> Result<(), String> {
        if self.is_full() {
            return Err("the defaults make too large a value".to_owned());
        }
        if depth > AVRO_DEPTH_MAX {
            return Err(format!("nested deeper than {AVRO_DEPTH_MAX} levels"));
        }
        let steps_left = self.steps_left.checked_sub(1);
        self.steps_left = steps_left.ok_or("the defaults make too large a value")?;
        let schema = self.schema;
        let shape = schema.shape(id);
        match (shape, tree) {
            (Shape::Null, Tree::Null) => {}
            (Shape::Boolean, Tree::Bool(it)) => self.out.push(u8::from(*it)),
            (Shape::Int, Tree::Number(text)) => {
                let number: i32 = text.parse().map_err(|_| out_of_range(text, "int"))?;
                self.long(i64::from(number));
            }
            (Shape::Long, Tree::Number(text)) => {
                let number = text.parse().map_err(|_| out_of_range(text, "long"))?;
                self.long(number);
            }
            (Shape::Float, Tree::Number(_) | Tree::Text(_)) => {
                let number = f32::from_str_or_word(tree).ok_or_else(|| misfit(shape, tree))?;
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            (Shape::Double, Tree::Number(_) | Tree::Text(_)) => {
                let number = f64::from_str_or_word(tree).ok_or_else(|| misfit(shape, tree))?;
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            (Shape::Bytes, Tree::Text(text)) => {
                let bytes = latin(text).ok_or(NOT_LATIN)?;
                self.sized(&bytes);
            }
            (Shape::String, Tree::Text(text)) => self.sized(text.as_bytes()),
            (Shape::Fixed(fixed), Tree::Text(text)) => {
                let bytes = latin(text).ok_or(NOT_LATIN)?;
                if bytes.len() != fixed.size {
                    let (name, size) = (&fixed.named.full, fixed.size);
                    return Err(format!("{} bytes for '{name}' of {size}", bytes.len()));
                }
                self.out.extend_from_slice(&bytes);
            }
            (Shape::Enum(it), Tree::Text(text)) => {
                let index = it.index_of.get(&**text).ok_or_else(|| {
                    format!("{} is no symbol of enum '{}'", shown(text), it.named.full)
                })?;
                self.index(*index);
            }
            (Shape::Array(items), Tree::Array(values)) => {
                self.count(values.len());
                for (index, value) in values.iter().enumerate() {
                    self.value(*items, value, unions, depth + 1)
                        .map_err(|reason| within(&format!("[{index}]"), &reason))?;
                }
                self.out.push(0);
            }
            (Shape::Map(child), Tree::Object(entries)) => {
                self.count(entries.len());
                for (name, value) in entries {
                    self.sized(name.as_bytes());
                    self.value(*child, value, unions, depth + 1)
                        .map_err(|reason| within(&format!(".{name}"), &reason))?;
                }
                self.out.push(0);
            }
            (Shape::Record(record), Tree::Object(_)) => {
                self.record(record, tree, unions, depth)?;
            }
            (Shape::Union(branches), _) => self.union(branches, tree, unions, depth)?,
            _ => return Err(misfit(shape, tree)),
        }
        Ok(())
    }

    fn record(
        &mut self,
        record: &Record,
        tree: &Tree<'_>,
        unions: Unions,
        depth: usize,
    ) -> Result<(), String> {
        let entries = tree.object().unwrap_or_default();
        // Where each field's value stands; the last of a name counts.
        let mut found: Vec<Option<&Tree<'_>>> = vec![None; record.fields.len()];
        for (position, (name, value)) in entries.iter().enumerate() {
            let is_next = record
                .fields
                .get(position)
                .is_some_and(|it| it.name == *name);
            let index = match is_next {
                true => Some(&position),
                false => record.index_of.get(&**name),
            };
            let index = index.ok_or_else(|| {
                format!(
                    "record '{}' has no field {}",
                    record.named.full,
                    shown(name)
                )
            })?;
            found[*index] = Some(value);
        }
        for (field, value) in record.fields.iter().zip(found) {
            let written = match (value, &field.default) {
                (Some(value), _) => self.value(field.node, value, unions, depth + 1),
                (None, Some(default)) => self.value(field.node, default, Unions::Bare, depth + 1),
                (None, None) => {
                    let (name, full) = (&field.name, &record.named.full);
                    return Err(format!("field '{name}' of record '{full}' is missing"));
                }
            };
            written.map_err(|reason| within(&format!(".{}", field.name), &reason))?;
        }
        Ok(())
    }

    fn union(
        &mut self,
        branches: &[NodeId],
        tree: &Tree<'_>,
        unions: Unions,
        depth: usize,
    ) -> Result<(), String> {
        let schema = self.schema;
        if unions == Unions::Bare {
            // The first branch that fits; what a failed try wrote is taken back.
            let from = self.out.len();
            for (index, branch) in branches.iter().enumerate() {
                self.index(index);
                if self.value(*branch, tree, unions, depth + 1).is_ok() {
                    return Ok(());
                }
                self.out.truncate(from);
            }
            return Err(format!("{} fits no branch of the union", tree.kind()));
        }
        let names = || {
            let names: Vec<_> = branches.iter().map(|it| schema.branch_name(*it)).collect();
            names.join(", ")
        };
        let (name, value) = match tree {
            Tree::Null => ("null", tree),
            Tree::Object(entries) if entries.len() == 1 => (&*entries[0].0, &entries[0].1),
            _ => {
                return Err(format!(
                    "the value of a union is null or an object that names its branch, one of {}, \
                     such as {{\"string\": \"a\"}}; here is {}",
                    names(),
                    tree.kind()
                ));
            }
        };
        let index = branches
            .iter()
            .position(|it| schema.branch_name(*it) == name);
        let index = index
            .ok_or_else(|| format!("{} is no branch of the union of {}", shown(name), names()))?;
        self.index(index);
        self.value(branches[index], value, unions, depth + 1)
    }

    fn long(&mut self, number: i64) {
        let mut zigzag = ((number << 1) ^ (number >> 63)).cast_unsigned();
        while zigzag >= 0x80 {
            // The low seven bits.
            self.out.push((zigzag & 0x7f) as u8 | 0x80);
            zigzag >>= 7;
        }
        self.out.push(zigzag as u8);
    }

    fn index(&mut self, index: usize) {
        self.long(i64::try_from(index).unwrap_or(i64::MAX));
    }

    fn sized(&mut self, bytes: &[u8]) {
        self.index(bytes.len());
        self.out.extend_from_slice(bytes);
    }

    /// Begins the one block of an array or a map; an empty one has none. A zero ends both.
    fn count(&mut self, count: usize) {
        if count > 0 {
            self.index(count);
        }
    }
}

/// Numbers from JSON numbers, and from the words for those that JSON lacks.
trait FromWord: Sized + std::str::FromStr {
    const NAN: Self;
    const INFINITY: Self;
    const NEGATIVE: Self;

    fn from_str_or_word(tree: &Tree<'_>) -> Option<Self> {
        match tree {
            Tree::Number(text) => text.parse().ok(),
            Tree::Text(word) => match &**word {
                "NaN" => Some(Self::NAN),
                "Infinity" => Some(Self::INFINITY),
                "-Infinity" => Some(Self::NEGATIVE),
                _ => None,
            },
            _ => None,
        }
    }
}

impl FromWord for f32 {
    const NAN: f32 = f32::NAN;
    const INFINITY: f32 = f32::INFINITY;
    const NEGATIVE: f32 = f32::NEG_INFINITY;
}

impl FromWord for f64 {
    const NAN: f64 = f64::NAN;
    const INFINITY: f64 = f64::INFINITY;
    const NEGATIVE: f64 = f64::NEG_INFINITY;
}

/// The bytes whose ISO-8859-1 text this is.
fn latin(text: &str) -> Option<Vec<u8>> {
    text.chars()
        .map(|it| u8::try_from(u32::from(it)).ok())
        .collect()
}

fn misfit(shape: &Shape, tree: &Tree<'_>) -> String {
    format!("{} where '{}' is expected", tree.kind(), shape.type_name())
}

fn out_of_range(text: &str, kind: &str) -> String {
    format!("{} is no {kind}", shown(text))
}

/// Puts a step of the path before a reason that has one, or none yet.
fn within(step: &str, reason: &str) -> String {
    let step: String = step.chars().take(100).collect();
    match reason.starts_with(['.', '[']) {
        // A hostile path is told in part only.
        true if reason.len() > PATH_SHOWN => reason.to_owned(),
        true => format!("{step}{reason}"),
        false => format!("{step}: {reason}"),
    }
}

fn shown(text: &str) -> String {
    format!("'{}'", text.chars().take(100).collect::<String>())
}

/// Values that are written in about the time of a step of work.
const VALUES_A_STEP: u64 = 4;
/// Bytes of a reason to which no further steps are added.
const PATH_SHOWN: usize = 2_000;
const NOT_LATIN: &str = "bytes are text of the characters U+0000 to U+00FF";
