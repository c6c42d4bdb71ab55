//! From a schema's JSON text to its nodes.
//!
//! Names are checked and resolved as the specification says: primitive names first, then full names,
//! then names in the enclosing namespace. Whether defaults fit their fields is asked of new schemas
//! alone, as there are older ones whose defaults nobody looked at.

use std::collections::{HashMap, HashSet};

use super::{
    AvroSchema, Enum, Extras, Field, Fixed, Named, Node, NodeId, Record, Shape, schema_fault,
};
use crate::limits::AVRO_NODES_MAX;
use crate::schemas::format::tree::Tree;
use crate::schemas::format::{SchemaFault, SchemaSource};

impl AvroSchema {
    pub fn parse(source: &SchemaSource) -> Result<AvroSchema, SchemaFault> {
        let mut parser = Parser::default();
        for reference in &source.references {
            parser.text(&reference.text).map_err(|fault| {
                schema_fault(format!("reference '{}': {fault}", reference.name))
            })?;
        }
        let own_from = parser.nodes.len();
        let root = parser.text(&source.text)?;
        Ok(AvroSchema {
            nodes: parser.nodes,
            root,
            own_from,
        })
    }

    /// Whether every default of the schema's own fields fits.
    pub fn check_defaults(&self) -> Result<(), SchemaFault> {
        for node in &self.nodes[self.own_from..] {
            let Shape::Record(record) = &node.shape else {
                continue;
            };
            for field in &record.fields {
                if let Some(default) = &field.default {
                    self.encode_default(field.node, default).map_err(|fault| {
                        let (name, record) = (&field.name, &record.named.full);
                        schema_fault(format!(
                            "the default of field '{name}' of '{record}' does not fit: {fault}"
                        ))
                    })?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Parser {
    nodes: Vec<Node>,
    named: HashMap<String, NodeId>,
    /// One node for each primitive type without attributes.
    plain: HashMap<&'static str, NodeId>,
}

impl Parser {
    fn text(&mut self, text: &str) -> Result<NodeId, SchemaFault> {
        let tree = Tree::read(text.as_bytes()).map_err(schema_fault)?;
        self.schema(&tree, "")
    }

    fn add(&mut self, shape: Shape, extras: Extras) -> Result<NodeId, SchemaFault> {
        if self.nodes.len() >= AVRO_NODES_MAX {
            let reason = format!("more than {AVRO_NODES_MAX} types in one schema");
            return Err(schema_fault(reason));
        }
        self.nodes.push(Node { shape, extras });
        Ok(self.nodes.len() - 1)
    }

    fn schema(&mut self, tree: &Tree<'_>, space: &str) -> Result<NodeId, SchemaFault> {
        match tree {
            Tree::Text(name) => self.by_name(name, space),
            Tree::Array(branches) => self.union(branches, space),
            Tree::Object(_) => match tree.get("type") {
                Some(Tree::Text(kind)) => self.complex(kind, tree, space),
                // A type in a type, as some generators write it.
                Some(inner @ (Tree::Object(_) | Tree::Array(_))) => self.schema(inner, space),
                _ => Err(schema_fault("an object without a type is no Avro schema")),
            },
            other => Err(schema_fault(format!(
                "an Avro schema is a text, an object or an array, not {}",
                other.kind()
            ))),
        }
    }

    fn by_name(&mut self, name: &str, space: &str) -> Result<NodeId, SchemaFault> {
        if let Some((kind, shape)) = primitive(name) {
            if let Some(id) = self.plain.get(kind) {
                return Ok(*id);
            }
            let id = self.add(shape, Vec::new())?;
            self.plain.insert(kind, id);
            return Ok(id);
        }
        let in_space = match name.contains('.') || space.is_empty() {
            true => None,
            false => self.named.get(&format!("{space}.{name}")),
        };
        let found = in_space.or_else(|| self.named.get(name));
        found.copied().ok_or_else(|| {
            let shown: String = name.chars().take(200).collect();
            schema_fault(format!("undefined name: '{shown}'"))
        })
    }

    fn union(&mut self, branches: &[Tree<'_>], space: &str) -> Result<NodeId, SchemaFault> {
        let mut ids = Vec::with_capacity(branches.len());
        let mut seen = HashSet::new();
        for branch in branches {
            let id = self.schema(branch, space)?;
            let name = match &self.nodes[id].shape {
                Shape::Union(_) => {
                    return Err(schema_fault("a union may not stand in a union directly"));
                }
                Shape::Record(Record { named, .. })
                | Shape::Enum(Enum { named, .. })
                | Shape::Fixed(Fixed { named, .. }) => named.full.clone(),
                shape => shape.type_name().to_owned(),
            };
            if !seen.insert(name.clone()) {
                return Err(schema_fault(format!("a union has '{name}' twice")));
            }
            ids.push(id);
        }
        self.add(Shape::Union(ids), Vec::new())
    }

    fn complex(&mut self, kind: &str, tree: &Tree<'_>, space: &str) -> Result<NodeId, SchemaFault> {
        let child = |name: &str| {
            tree.get(name)
                .ok_or_else(|| schema_fault(format!("a type '{kind}' without '{name}'")))
        };
        match kind {
            "record" | "error" => self.record(tree, kind == "error", space),
            "enum" => {
                let named = named(tree, space)?;
                let shape = enumeration(tree, named)?;
                self.define(shape, extras(tree, &ENUM_ATTRIBUTES))
            }
            "fixed" => {
                let named = named(tree, space)?;
                let size = match child("size")? {
                    Tree::Number(text) => text.parse::<u32>().ok(),
                    _ => None,
                };
                let size = size.filter(|size| *size <= i32::MAX as u32);
                let size = size.ok_or_else(|| schema_fault("the size of a fixed is no size"))?;
                let size = size as usize;
                self.define(
                    Shape::Fixed(Fixed { named, size }),
                    extras(tree, &FIXED_ATTRIBUTES),
                )
            }
            "array" => {
                let items = self.schema(child("items")?, space)?;
                self.add(Shape::Array(items), extras(tree, &["type", "items"]))
            }
            "map" => {
                let values = self.schema(child("values")?, space)?;
                self.add(Shape::Map(values), extras(tree, &["type", "values"]))
            }
            name => {
                let extras = extras(tree, &["type"]);
                match primitive(name) {
                    Some((_, shape)) if !extras.is_empty() => self.add(shape, extras),
                    _ => self.by_name(name, space),
                }
            }
        }
    }

    fn record(
        &mut self,
        tree: &Tree<'_>,
        is_error: bool,
        space: &str,
    ) -> Result<NodeId, SchemaFault> {
        let named = named(tree, space)?;
        let (full, space) = (named.full.clone(), named.space().to_owned());
        // The name is known before its fields are, which may refer to it.
        let pending = Record {
            named,
            is_error,
            fields: Vec::new(),
            index_of: HashMap::new(),
        };
        let id = self.define(Shape::Record(pending), extras(tree, &RECORD_ATTRIBUTES))?;
        let entries = tree.get("fields").and_then(Tree::array);
        let entries = entries
            .ok_or_else(|| schema_fault(format!("record '{full}' has no array of fields")))?;
        let mut fields = Vec::with_capacity(entries.len());
        let mut index_of = HashMap::with_capacity(entries.len());
        for entry in entries {
            let field = self.field(entry, &full, &space)?;
            if index_of.insert(field.name.clone(), fields.len()).is_some() {
                let reason = format!("record '{full}' has field '{}' twice", field.name);
                return Err(schema_fault(reason));
            }
            fields.push(field);
        }
        if let Shape::Record(record) = &mut self.nodes[id].shape {
            record.fields = fields;
            record.index_of = index_of;
        }
        Ok(id)
    }

    fn field(&mut self, tree: &Tree<'_>, full: &str, space: &str) -> Result<Field, SchemaFault> {
        let name = tree.get("name").and_then(Tree::text);
        let name =
            name.ok_or_else(|| schema_fault(format!("record '{full}' has a field without name")))?;
        check_name(name)?;
        let kind = tree.get("type").ok_or_else(|| {
            schema_fault(format!("field '{name}' of record '{full}' has no type"))
        })?;
        let node = self.schema(kind, space)?;
        let order = tree.get("order").and_then(Tree::text);
        if let Some(order) = order
            && !["ascending", "descending", "ignore"].contains(&order)
        {
            return Err(schema_fault(format!("field '{name}' has an unknown order")));
        }
        Ok(Field {
            name: name.to_owned(),
            node,
            doc: owned(tree.get("doc")),
            default: tree.get("default").map(|it| it.clone().into_owned()),
            order: order.map(str::to_owned),
            aliases: texts(tree.get("aliases"), "aliases")?,
            extras: extras(tree, &FIELD_ATTRIBUTES),
        })
    }

    fn define(&mut self, shape: Shape, extras: Extras) -> Result<NodeId, SchemaFault> {
        let id = self.add(shape, extras)?;
        let (Shape::Record(Record { named, .. })
        | Shape::Enum(Enum { named, .. })
        | Shape::Fixed(Fixed { named, .. })) = &self.nodes[id].shape
        else {
            return Ok(id);
        };
        if self.named.insert(named.full.clone(), id).is_some() {
            return Err(schema_fault(format!("'{}' is defined twice", named.full)));
        }
        Ok(id)
    }
}

fn primitive(name: &str) -> Option<(&'static str, Shape)> {
    Some(match name {
        "null" => ("null", Shape::Null),
        "boolean" => ("boolean", Shape::Boolean),
        "int" => ("int", Shape::Int),
        "long" => ("long", Shape::Long),
        "float" => ("float", Shape::Float),
        "double" => ("double", Shape::Double),
        "bytes" => ("bytes", Shape::Bytes),
        "string" => ("string", Shape::String),
        _ => return None,
    })
}

fn named(tree: &Tree<'_>, space: &str) -> Result<Named, SchemaFault> {
    let name = tree.get("name").and_then(Tree::text);
    let name = name.ok_or_else(|| schema_fault("a record, enum or fixed without a name"))?;
    let given = tree.get("namespace").and_then(Tree::text);
    let full = match (name.contains('.'), given.unwrap_or(space)) {
        (true, _) | (false, "") => name.to_owned(),
        (false, space) => format!("{space}.{name}"),
    };
    for part in full.split('.') {
        check_name(part)?;
    }
    if primitive(&full).is_some() {
        return Err(schema_fault(format!(
            "'{full}' is the name of a type of Avro's own"
        )));
    }
    let own_space = full.rsplit_once('.').map_or("", |(space, _)| space);
    let aliases = texts(tree.get("aliases"), "aliases")?.into_iter();
    let aliases = aliases.map(|alias| match alias.contains('.') || own_space.is_empty() {
        true => alias,
        false => format!("{own_space}.{alias}"),
    });
    Ok(Named {
        aliases: aliases.collect(),
        full,
        doc: owned(tree.get("doc")),
    })
}

fn enumeration(tree: &Tree<'_>, named: Named) -> Result<Shape, SchemaFault> {
    let symbols = tree
        .get("symbols")
        .ok_or_else(|| schema_fault(format!("enum '{}' has no symbols", named.full)))?;
    let symbols = texts(Some(symbols), "symbols")?;
    let mut index_of = HashMap::with_capacity(symbols.len());
    for (index, symbol) in symbols.iter().enumerate() {
        check_name(symbol)?;
        if index_of.insert(symbol.clone(), index).is_some() {
            let reason = format!("enum '{}' has symbol '{symbol}' twice", named.full);
            return Err(schema_fault(reason));
        }
    }
    let default = owned(tree.get("default"));
    if let Some(default) = &default
        && !index_of.contains_key(default)
    {
        let reason = format!(
            "the default of enum '{}' is none of its symbols",
            named.full
        );
        return Err(schema_fault(reason));
    }
    Ok(Shape::Enum(Enum {
        named,
        symbols,
        index_of,
        default,
    }))
}

fn owned(tree: Option<&Tree<'_>>) -> Option<String> {
    tree.and_then(Tree::text).map(str::to_owned)
}

fn texts(tree: Option<&Tree<'_>>, what: &str) -> Result<Vec<String>, SchemaFault> {
    let Some(tree) = tree else {
        return Ok(Vec::new());
    };
    let texts: Option<Vec<String>> = tree.array().and_then(|items| {
        items
            .iter()
            .map(|it| it.text().map(str::to_owned))
            .collect()
    });
    texts.ok_or_else(|| schema_fault(format!("{what} are an array of texts")))
}

fn extras(tree: &Tree<'_>, known: &[&str]) -> Extras {
    let entries = tree.object().unwrap_or_default().iter();
    let entries = entries.filter(|(name, _)| !known.contains(&&**name));
    entries
        .map(|(name, value)| (name.clone().into_owned(), value.clone().into_owned()))
        .collect()
}

/// Letters, digits and underscores, not beginning with a digit; those of any script, as Avro for
/// Java takes them.
fn check_name(name: &str) -> Result<(), SchemaFault> {
    let mut chars = name.chars();
    let is_name = chars
        .next()
        .is_some_and(|first| first.is_alphabetic() || first == '_')
        && chars.all(|next| next.is_alphanumeric() || next == '_');
    match is_name {
        true => Ok(()),
        false => {
            let shown: String = name.chars().take(200).collect();
            Err(schema_fault(format!("'{shown}' is no Avro name")))
        }
    }
}

const RECORD_ATTRIBUTES: [&str; 6] = ["type", "name", "namespace", "doc", "fields", "aliases"];
const ENUM_ATTRIBUTES: [&str; 7] = [
    "type",
    "name",
    "namespace",
    "doc",
    "symbols",
    "default",
    "aliases",
];
const FIXED_ATTRIBUTES: [&str; 6] = ["type", "name", "namespace", "doc", "size", "aliases"];
const FIELD_ATTRIBUTES: [&str; 6] = ["name", "type", "doc", "default", "order", "aliases"];
