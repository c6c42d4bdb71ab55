//! Avro: schemas, the binary encoding and the JSON encoding of the specification (version 1.12),
//! and schema resolution as a test of compatibility.
//!
//! A schema is an arena of nodes that refer to each other by index, so that recursive types cost no
//! reference counting and nothing that walks one needs names. A payload's top level `bytes` value
//! stands without its length, as Confluent's serializers for Java write it.
//!
//! Left out: files, aliases of symbols, protocols. Logical types are attributes that are kept; values
//! are written and read as their underlying types, as the JSON encoding says.

mod canonical;
mod decode;
mod encode;
mod parse;
mod resolve;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use super::SchemaFault;
use super::tree::Tree;

pub(super) use resolve::incompatibilities;

/// A parsed schema.
#[derive(Debug)]
pub(super) struct AvroSchema {
    nodes: Vec<Node>,
    root: NodeId,
    /// Nodes before this one came from references: the canonical text only names them.
    own_from: NodeId,
}

type NodeId = usize;

/// Attributes that Avro gives no meaning, in their order; logical types among them.
type Extras = Vec<(String, Tree<'static>)>;

#[derive(Debug)]
struct Node {
    shape: Shape,
    extras: Extras,
}

#[derive(Debug)]
enum Shape {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Array(NodeId),
    Map(NodeId),
    Union(Vec<NodeId>),
    Record(Record),
    Enum(Enum),
    Fixed(Fixed),
}

/// The name of a record, an enum or a fixed, and what else all of these have.
#[derive(Debug)]
struct Named {
    full: String,
    /// Full names.
    aliases: Vec<String>,
    doc: Option<String>,
}

#[derive(Debug)]
struct Record {
    named: Named,
    is_error: bool,
    fields: Vec<Field>,
    index_of: HashMap<String, usize>,
}

#[derive(Debug)]
struct Field {
    name: String,
    node: NodeId,
    doc: Option<String>,
    default: Option<Tree<'static>>,
    order: Option<String>,
    aliases: Vec<String>,
    extras: Extras,
}

#[derive(Debug)]
struct Enum {
    named: Named,
    symbols: Vec<String>,
    index_of: HashMap<String, usize>,
    default: Option<String>,
}

#[derive(Debug)]
struct Fixed {
    named: Named,
    size: usize,
}

impl AvroSchema {
    /// The full name of the record, enum or fixed that the schema is.
    pub fn record_name(&self) -> Option<&str> {
        self.named(self.root).map(|named| &*named.full)
    }

    /// The names of the fields of the record that the schema is.
    pub fn field_names(&self) -> Vec<&str> {
        match self.shape(self.root) {
            Shape::Record(record) => record.fields.iter().map(|field| &*field.name).collect(),
            _ => Vec::new(),
        }
    }

    fn shape(&self, id: NodeId) -> &Shape {
        &self.nodes[id].shape
    }

    fn named(&self, id: NodeId) -> Option<&Named> {
        match self.shape(id) {
            Shape::Record(it) => Some(&it.named),
            Shape::Enum(it) => Some(&it.named),
            Shape::Fixed(it) => Some(&it.named),
            _ => None,
        }
    }

    /// What stands for a branch in a union's JSON encoding.
    fn branch_name(&self, id: NodeId) -> &str {
        match self.shape(id) {
            Shape::Record(it) => &it.named.full,
            Shape::Enum(it) => &it.named.full,
            Shape::Fixed(it) => &it.named.full,
            shape => shape.type_name(),
        }
    }
}

impl Shape {
    fn type_name(&self) -> &'static str {
        match self {
            Shape::Null => "null",
            Shape::Boolean => "boolean",
            Shape::Int => "int",
            Shape::Long => "long",
            Shape::Float => "float",
            Shape::Double => "double",
            Shape::Bytes => "bytes",
            Shape::String => "string",
            Shape::Array(_) => "array",
            Shape::Map(_) => "map",
            Shape::Union(_) => "union",
            Shape::Record(it) if it.is_error => "error",
            Shape::Record(_) => "record",
            Shape::Enum(_) => "enum",
            Shape::Fixed(_) => "fixed",
        }
    }
}

impl Named {
    /// The name without its namespace.
    fn short(&self) -> &str {
        self.full.rsplit('.').next().unwrap_or(&self.full)
    }

    fn space(&self) -> &str {
        self.full.rsplit_once('.').map_or("", |(space, _)| space)
    }
}

/// The first reason against a schema, as far as a place in it is known.
fn schema_fault(reason: impl Into<String>) -> SchemaFault {
    SchemaFault::Schema(reason.into())
}
