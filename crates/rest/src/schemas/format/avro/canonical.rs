//! A schema's text as registries store it: compact JSON, a type's attributes in the order in which
//! Avro's own library for Java writes them, everything kept, names as short as they can be.

use std::borrow::Cow;

use super::{AvroSchema, Extras, Named, NodeId, Shape};
use crate::schemas::format::tree::{Tree, quote};

impl AvroSchema {
    pub fn canonical(&self) -> String {
        self.print(false)
    }

    /// The canonical text with attributes of no meaning in the order of their names.
    pub fn normalized(&self) -> String {
        self.print(true)
    }

    fn print(&self, is_sorted: bool) -> String {
        let mut printer = Printer {
            schema: self,
            is_sorted,
            is_printed: vec![false; self.nodes.len()],
            out: String::new(),
        };
        printer.node(self.root, "");
        printer.out
    }
}

struct Printer<'a> {
    schema: &'a AvroSchema,
    is_sorted: bool,
    is_printed: Vec<bool>,
    out: String,
}

impl Printer<'_> {
    /// Writes a type that stands within a namespace. Depth is that of the text it was read from.
    fn node(&mut self, id: NodeId, space: &str) {
        let schema = self.schema;
        if let Some(named) = schema.named(id) {
            let is_known =
                id < schema.own_from || std::mem::replace(&mut self.is_printed[id], true);
            if is_known {
                let is_near = named.space() == space;
                quote(
                    &mut self.out,
                    if is_near { named.short() } else { &named.full },
                );
                return;
            }
        }
        let node = &schema.nodes[id];
        let kind = node.shape.type_name();
        match &node.shape {
            Shape::Union(branches) => {
                self.out.push('[');
                for (index, branch) in branches.iter().enumerate() {
                    if index > 0 {
                        self.out.push(',');
                    }
                    self.node(*branch, space);
                }
                self.out.push(']');
                return;
            }
            Shape::Array(child) | Shape::Map(child) => {
                self.open(kind);
                let name = if kind == "array" { "items" } else { "values" };
                self.name(name);
                self.node(*child, space);
            }
            Shape::Record(record) => {
                self.open(kind);
                self.named(&record.named, space);
                self.name("fields");
                self.fields(id);
            }
            Shape::Enum(it) => {
                self.open(kind);
                self.named(&it.named, space);
                self.attribute("symbols", &texts(it.symbols.iter().map(|it| &**it)));
                if let Some(default) = &it.default {
                    self.attribute("default", &Tree::Text(Cow::Borrowed(default)));
                }
            }
            Shape::Fixed(it) => {
                self.open(kind);
                self.named(&it.named, space);
                self.attribute("size", &Tree::Number(it.size.to_string().into()));
            }
            _ if node.extras.is_empty() => {
                quote(&mut self.out, kind);
                return;
            }
            _ => self.open(kind),
        }
        self.extras(&node.extras);
        if let Some(named) = schema.named(id) {
            self.aliases(named);
        }
        self.out.push('}');
    }

    fn fields(&mut self, id: NodeId) {
        let Shape::Record(record) = &self.schema.nodes[id].shape else {
            return;
        };
        self.out.push('[');
        for (index, field) in record.fields.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.out.push_str("{\"name\":");
            quote(&mut self.out, &field.name);
            self.name("type");
            self.node(field.node, record.named.space());
            if let Some(doc) = &field.doc {
                self.attribute("doc", &Tree::Text(Cow::Borrowed(doc)));
            }
            if let Some(default) = &field.default {
                self.attribute("default", default);
            }
            if let Some(order) = field.order.as_deref().filter(|it| *it != "ascending") {
                self.attribute("order", &Tree::Text(Cow::Borrowed(order)));
            }
            if !field.aliases.is_empty() {
                self.attribute("aliases", &texts(field.aliases.iter().map(|it| &**it)));
            }
            self.extras(&field.extras);
            self.out.push('}');
        }
        self.out.push(']');
    }

    fn open(&mut self, kind: &str) {
        self.out.push_str("{\"type\":");
        quote(&mut self.out, kind);
    }

    fn name(&mut self, name: &str) {
        self.out.push(',');
        quote(&mut self.out, name);
        self.out.push(':');
    }

    fn attribute(&mut self, name: &str, value: &Tree<'_>) {
        self.name(name);
        match self.is_sorted {
            true => value.sorted().write(&mut self.out),
            false => value.write(&mut self.out),
        }
    }

    fn named(&mut self, named: &Named, space: &str) {
        self.attribute("name", &Tree::Text(Cow::Borrowed(named.short())));
        if named.space() != space {
            self.attribute("namespace", &Tree::Text(Cow::Borrowed(named.space())));
        }
        if let Some(doc) = &named.doc {
            self.attribute("doc", &Tree::Text(Cow::Borrowed(doc)));
        }
    }

    fn aliases(&mut self, named: &Named) {
        if named.aliases.is_empty() {
            return;
        }
        let aliases = named
            .aliases
            .iter()
            .map(|alias| match alias.rsplit_once('.') {
                Some((space, short)) if space == named.space() => short,
                _ => alias,
            });
        self.attribute("aliases", &texts(aliases));
    }

    fn extras(&mut self, extras: &Extras) {
        let mut extras: Vec<_> = extras.iter().collect();
        if self.is_sorted {
            extras.sort_by(|a, b| a.0.cmp(&b.0));
        }
        for (name, value) in extras {
            self.attribute(name, value);
        }
    }
}

fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> Tree<'a> {
    Tree::Array(texts.map(|text| Tree::Text(Cow::Borrowed(text))).collect())
}
