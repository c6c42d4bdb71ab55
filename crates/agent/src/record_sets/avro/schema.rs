//! Schemas: read from their JSON, names resolved, kept as an arena.

use std::collections::HashMap;

use crate::json::{Fields, Json};
use crate::limits::{AVRO_DEPTH_MAX, AVRO_NODES_MAX};

/// A schema that was read and checked; records are its outermost.
#[derive(Debug)]
pub(in crate::record_sets) struct AvroSchema {
    /// The schema's own text, which files carry.
    text: String,
    nodes: Vec<Node>,
    root: NodeId,
}

pub(super) type NodeId = usize;

/// A type.
#[derive(Debug)]
pub(super) enum Node {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    /// Bytes that are a whole number, so many digits of it behind the point; of so many bytes
    /// where it is a `fixed`.
    Decimal {
        scale: u32,
        size: Option<usize>,
    },
    Fixed(usize),
    Enum(Vec<String>),
    List(NodeId),
    Map(NodeId),
    Union(Vec<NodeId>),
    Record(Vec<Field>),
}

/// A field of a record.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// Other names that a record's field may have.
    pub(super) aliases: Vec<String>,
    pub(super) node: NodeId,
    /// What is written where a record has no such field.
    pub(super) default: Option<Json>,
}

impl AvroSchema {
    /// Reads a schema; the error says where it is wrong.
    pub(in crate::record_sets) fn parse(text: &str) -> Result<Self, String> {
        let tree = Json::parse(text).map_err(|why| format!("the Avro schema is {why}"))?;
        let mut reader = Reader::default();
        let root = reader
            .node(&tree, "", 0)
            .map_err(|why| format!("the Avro schema cannot be used: {why}"))?;
        if !matches!(reader.nodes[root], Node::Record(_)) {
            return Err("the Avro schema cannot be used: its outermost is no record".to_owned());
        }
        reader.has_end(root, &mut vec![Visit::New; reader.nodes.len()])?;
        Ok(AvroSchema {
            text: tree.to_text(),
            nodes: reader.nodes,
            root,
        })
    }

    /// Its JSON.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The outermost record.
    pub(super) fn root(&self) -> NodeId {
        self.root
    }

    /// What stands at `id`, which is of this schema.
    pub(super) fn node(&self, id: NodeId) -> &Node {
        // Ids are made by the reader of this arena alone.
        &self.nodes[id]
    }
}

#[derive(Default)]
struct Reader {
    nodes: Vec<Node>,
    /// By full name.
    named: HashMap<String, NodeId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    Open,
    Done,
}

impl Reader {
    fn add(&mut self, node: Node) -> Result<NodeId, String> {
        if self.nodes.len() >= AVRO_NODES_MAX {
            return Err(format!("it has more than {AVRO_NODES_MAX} types"));
        }
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    fn node(&mut self, tree: &Json, space: &str, depth: usize) -> Result<NodeId, String> {
        if depth > AVRO_DEPTH_MAX {
            return Err(format!("it is nested deeper than {AVRO_DEPTH_MAX} levels"));
        }
        match tree {
            Json::Text(name) => match primitive(name) {
                Some(node) => self.add(node),
                None => {
                    let full = full_name(name, space);
                    let known = self.named.get(&full).or_else(|| self.named.get(name));
                    known
                        .copied()
                        .ok_or_else(|| format!("there is no type '{name}'"))
                }
            },
            Json::List(branches) => {
                let mut ids = Vec::with_capacity(branches.len());
                for branch in branches {
                    let id = self.node(branch, space, depth + 1)?;
                    if matches!(self.nodes[id], Node::Union(_)) {
                        return Err("a union stands in a union".to_owned());
                    }
                    ids.push(id);
                }
                if ids.is_empty() {
                    return Err("a union has no branches".to_owned());
                }
                self.add(Node::Union(ids))
            }
            Json::Object(fields) => self.object(fields, space, depth),
            other => Err(format!("{} is no type", other.to_text())),
        }
    }

    fn object(&mut self, fields: &Fields, space: &str, depth: usize) -> Result<NodeId, String> {
        let kind = match fields.get("type") {
            Some(Json::Text(kind)) => kind.as_str(),
            Some(nested) => return self.node(nested, space, depth + 1),
            None => return Err("a type has no 'type'".to_owned()),
        };
        let inner = |name| {
            fields
                .get(name)
                .ok_or_else(|| format!("{kind} has no '{name}'"))
        };
        match kind {
            "array" => {
                let items = self.node(inner("items")?, space, depth + 1)?;
                self.add(Node::List(items))
            }
            "map" => {
                let values = self.node(inner("values")?, space, depth + 1)?;
                self.add(Node::Map(values))
            }
            "enum" => {
                let symbols = texts(inner("symbols")?).ok_or("an enum's symbols are no texts")?;
                if symbols.is_empty() {
                    return Err("an enum has no symbols".to_owned());
                }
                let id = self.add(Node::Enum(symbols))?;
                self.name(fields, space, id)?;
                Ok(id)
            }
            "fixed" => {
                let size = match inner("size")? {
                    Json::Whole(size) => usize::try_from(*size).map_err(|_| "a negative size")?,
                    _ => return Err("the size of a fixed is no number".to_owned()),
                };
                let node = match decimal_scale(fields) {
                    Some(scale) => Node::Decimal {
                        scale,
                        size: Some(size),
                    },
                    None => Node::Fixed(size),
                };
                let id = self.add(node)?;
                self.name(fields, space, id)?;
                Ok(id)
            }
            "record" | "error" => self.record(fields, space, depth),
            "bytes" if decimal_scale(fields).is_some() => {
                let scale = decimal_scale(fields).unwrap_or_default();
                self.add(Node::Decimal { scale, size: None })
            }
            name => self.node(&Json::Text(name.to_owned()), space, depth + 1),
        }
    }

    fn record(&mut self, fields: &Fields, space: &str, depth: usize) -> Result<NodeId, String> {
        let id = self.add(Node::Record(Vec::new()))?;
        let full = self.name(fields, space, id)?;
        let space = full
            .rsplit_once('.')
            .map_or("", |(space, _)| space)
            .to_owned();
        let Some(Json::List(described)) = fields.get("fields") else {
            return Err(format!("record '{full}' has no list of fields"));
        };
        let mut made: Vec<Field> = Vec::with_capacity(described.len());
        let mut known = HashMap::new();
        for field in described {
            let Json::Object(field) = field else {
                return Err(format!("a field of record '{full}' is no object"));
            };
            let Some(Json::Text(name)) = field.get("name") else {
                return Err(format!("a field of record '{full}' has no name"));
            };
            if known.insert(name.clone(), ()).is_some() {
                return Err(format!("record '{full}' has the field '{name}' twice"));
            }
            let of = field
                .get("type")
                .ok_or_else(|| format!("field '{name}' of record '{full}' has no type"))?;
            made.push(Field {
                name: name.clone(),
                aliases: field.get("aliases").and_then(texts).unwrap_or_default(),
                node: self.node(of, &space, depth + 1)?,
                default: field.get("default").cloned(),
            });
        }
        self.nodes[id] = Node::Record(made);
        Ok(id)
    }

    /// Takes the full name of a record, an enum or a fixed.
    fn name(&mut self, fields: &Fields, space: &str, id: NodeId) -> Result<String, String> {
        let Some(Json::Text(name)) = fields.get("name") else {
            return Err("a record, an enum or a fixed has no name".to_owned());
        };
        let space = match fields.get("namespace") {
            Some(Json::Text(own)) => own.as_str(),
            _ => space,
        };
        let full = full_name(name, space);
        if self.named.insert(full.clone(), id).is_some() {
            return Err(format!("the name '{full}' is used twice"));
        }
        Ok(full)
    }

    /// Whether a value of `id` has an end: a record that holds itself by no union and no list has
    /// none.
    fn has_end(&self, id: NodeId, visits: &mut Vec<Visit>) -> Result<(), String> {
        match visits[id] {
            Visit::Done => return Ok(()),
            Visit::Open => {
                return Err("the Avro schema cannot be used: a record holds itself".to_owned());
            }
            Visit::New => {}
        }
        visits[id] = Visit::Open;
        if let Node::Record(fields) = &self.nodes[id] {
            for field in fields {
                self.has_end(field.node, visits)?;
            }
        }
        visits[id] = Visit::Done;
        Ok(())
    }
}

fn primitive(name: &str) -> Option<Node> {
    Some(match name {
        "null" => Node::Null,
        "boolean" => Node::Boolean,
        "int" => Node::Int,
        "long" => Node::Long,
        "float" => Node::Float,
        "double" => Node::Double,
        "bytes" => Node::Bytes,
        "string" => Node::Text,
        _ => return None,
    })
}

fn full_name(name: &str, space: &str) -> String {
    match space.is_empty() || name.contains('.') {
        true => name.to_owned(),
        false => format!("{space}.{name}"),
    }
}

/// Digits behind the point, where the type is a decimal that can be one.
fn decimal_scale(fields: &Fields) -> Option<u32> {
    let Some(Json::Text(logical)) = fields.get("logicalType") else {
        return None;
    };
    if logical != "decimal" {
        return None;
    }
    match fields.get("scale") {
        None => Some(0),
        // What no number of ours has is read as the bytes that it is, as the specification says.
        Some(Json::Whole(scale)) => u32::try_from(*scale).ok().filter(|scale| *scale <= 38),
        Some(_) => None,
    }
}

fn texts(list: &Json) -> Option<Vec<String>> {
    let Json::List(items) = list else {
        return None;
    };
    let texts = items.iter().map(|item| match item {
        Json::Text(text) => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}
