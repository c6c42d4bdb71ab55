//! Whether a reader's schema can read what a writer's wrote, by the specification's rules of schema
//! resolution, and where it cannot, why.
//!
//! Recursive types are compared once per pair of nodes: a pair that is being compared counts as
//! fitting, as whatever speaks against it is found where it stands. When it does not fit, what was
//! concluded from it meanwhile is forgotten.

use std::collections::HashSet;
use std::fmt::Write;

use super::{AvroSchema, Enum, Named, NodeId, Record, Shape};
use crate::limits::{AVRO_DEPTH_MAX, AVRO_PAIRS_MAX, FINDINGS_MAX};

/// Why `reader` cannot read what `writer` wrote.
pub(in crate::schemas::format) fn incompatibilities(
    reader: &AvroSchema,
    writer: &AvroSchema,
) -> Vec<String> {
    let mut resolver = Resolver {
        reader,
        writer,
        fitting: HashSet::new(),
        trail: Vec::new(),
        steps: 0,
        path: String::new(),
    };
    let mut findings = resolver.compare(reader.root, writer.root, 0);
    findings.truncate(FINDINGS_MAX);
    findings.iter().map(Finding::text).collect()
}

/// One reason, with the name that Avro's library for Java has for its kind.
#[derive(Clone, Debug)]
struct Finding {
    kind: &'static str,
    path: String,
    description: String,
}

impl Finding {
    fn text(&self) -> String {
        let path = if self.path.is_empty() {
            "/"
        } else {
            &self.path
        };
        format!(
            "{{errorType:'{}', description:'{}', additionalInfo:'path {path}'}}",
            self.kind, self.description
        )
    }
}

struct Resolver<'a> {
    reader: &'a AvroSchema,
    writer: &'a AvroSchema,
    /// Pairs that fit, or are being compared.
    fitting: HashSet<(NodeId, NodeId)>,
    /// The same in the order in which they came.
    trail: Vec<(NodeId, NodeId)>,
    steps: usize,
    path: String,
}

impl Resolver<'_> {
    fn compare(&mut self, reader: NodeId, writer: NodeId, depth: usize) -> Vec<Finding> {
        let pair = (reader, writer);
        if self.fitting.contains(&pair) {
            return Vec::new();
        }
        self.steps += 1;
        if depth > AVRO_DEPTH_MAX || self.steps > AVRO_PAIRS_MAX {
            return vec![self.finding("TOO_LARGE", "the schemas are too large to compare".into())];
        }
        let before = self.trail.len();
        self.fitting.insert(pair);
        self.trail.push(pair);
        let findings = self.compare_new(reader, writer, depth);
        if !findings.is_empty() {
            for pair in self.trail.drain(before..) {
                self.fitting.remove(&pair);
            }
        }
        findings
    }

    fn compare_new(&mut self, reader: NodeId, writer: NodeId, depth: usize) -> Vec<Finding> {
        let (from, to) = (self.writer.shape(writer), self.reader.shape(reader));
        match (to, from) {
            // A writer's branches must all be readable, whatever the reader is.
            (_, Shape::Union(branches)) => self.writer_union(reader, branches, depth),
            (Shape::Union(branches), _) => self.reader_union(branches, writer, depth),
            (Shape::Array(to), Shape::Array(from)) => self.within("items", *to, *from, depth),
            (Shape::Map(to), Shape::Map(from)) => self.within("values", *to, *from, depth),
            (Shape::Record(to), Shape::Record(from)) => {
                let findings = self.names(&to.named, &from.named);
                // Others are not looked into: a union may try many.
                match findings.is_empty() {
                    true => self.fields(to, from, depth),
                    false => findings,
                }
            }
            (Shape::Enum(to), Shape::Enum(from)) => {
                let mut findings = self.names(&to.named, &from.named);
                findings.extend(self.symbols(to, from));
                findings
            }
            (Shape::Fixed(to), Shape::Fixed(from)) => {
                let mut findings = self.names(&to.named, &from.named);
                if to.size != from.size {
                    let text = format!("reader has size {}, writer {}", to.size, from.size);
                    findings.push(self.finding("FIXED_SIZE_MISMATCH", text));
                }
                findings
            }
            (to, from) if to.type_name() == from.type_name() || is_promoted(to, from) => Vec::new(),
            (to, from) => {
                let (to, from) = (to.type_name(), from.type_name());
                let text = format!("reader type {to} cannot read writer type {from}");
                vec![self.finding("TYPE_MISMATCH", text)]
            }
        }
    }

    fn writer_union(&mut self, reader: NodeId, branches: &[NodeId], depth: usize) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (index, branch) in branches.iter().enumerate() {
            let found = self.compare(reader, *branch, depth + 1);
            if found.is_empty() {
                continue;
            }
            match self.reader.shape(reader) {
                Shape::Union(_) => {
                    let name = self.writer.branch_name(*branch);
                    let text = format!("the reader's union has no branch for the writer's {name}");
                    let from = self.path.len();
                    let _ = write!(self.path, "/{index}");
                    findings.push(self.finding("MISSING_UNION_BRANCH", text));
                    self.path.truncate(from);
                }
                _ => findings.extend(found),
            }
        }
        findings
    }

    fn reader_union(&mut self, branches: &[NodeId], writer: NodeId, depth: usize) -> Vec<Finding> {
        let name = self.writer.branch_name(writer);
        // The branch of the same name mostly fits, and a union may have many others.
        let (named, others): (Vec<NodeId>, Vec<NodeId>) = branches
            .iter()
            .partition(|branch| self.reader.branch_name(**branch) == name);
        for branch in named.into_iter().chain(others) {
            if self.compare(branch, writer, depth + 1).is_empty() {
                return Vec::new();
            }
        }
        let text = format!("the reader's union has no branch for the writer's {name}");
        vec![self.finding("MISSING_UNION_BRANCH", text)]
    }

    fn within(&mut self, step: &str, to: NodeId, from: NodeId, depth: usize) -> Vec<Finding> {
        let length = self.path.len();
        // Writing to a String does not fail.
        let _ = write!(self.path, "/{step}");
        let findings = self.compare(to, from, depth + 1);
        self.path.truncate(length);
        findings
    }

    fn names(&self, reader: &Named, writer: &Named) -> Vec<Finding> {
        if reader.short() == writer.short() || reader.aliases.contains(&writer.full) {
            return Vec::new();
        }
        let text = format!("reader is named {}, writer {}", reader.full, writer.full);
        vec![self.finding("NAME_MISMATCH", text)]
    }

    fn fields(&mut self, reader: &Record, writer: &Record, depth: usize) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (index, field) in reader.fields.iter().enumerate() {
            let names = std::iter::once(&field.name).chain(&field.aliases);
            let written = names.filter_map(|name| writer.index_of.get(name)).next();
            match written {
                Some(written) => {
                    let step = format!("fields/{index}/type");
                    let from = writer.fields[*written].node;
                    findings.extend(self.within(&step, field.node, from, depth));
                }
                None if field.default.is_none() => {
                    let name = &field.name;
                    let text = format!(
                        "field {name} is not in the writer and has no default in the reader"
                    );
                    let length = self.path.len();
                    let _ = write!(self.path, "/fields/{index}");
                    findings.push(self.finding("READER_FIELD_MISSING_DEFAULT_VALUE", text));
                    self.path.truncate(length);
                }
                None => {}
            }
        }
        findings
    }

    fn symbols(&self, reader: &Enum, writer: &Enum) -> Vec<Finding> {
        let missing = writer.symbols.iter();
        let missing = missing.filter(|symbol| !reader.index_of.contains_key(*symbol));
        let missing: Vec<&str> = missing.map(|it| &**it).take(FINDINGS_MAX).collect();
        if missing.is_empty() || reader.default.is_some() {
            return Vec::new();
        }
        let text = format!("the reader's enum lacks {}", missing.join(", "));
        vec![self.finding("MISSING_ENUM_SYMBOLS", text)]
    }

    fn finding(&self, kind: &'static str, description: String) -> Finding {
        Finding {
            kind,
            path: self.path.clone(),
            description,
        }
    }
}

fn is_promoted(reader: &Shape, writer: &Shape) -> bool {
    matches!(
        (writer, reader),
        (Shape::Int, Shape::Long | Shape::Float | Shape::Double)
            | (Shape::Long, Shape::Float | Shape::Double)
            | (Shape::Float, Shape::Double)
            | (Shape::String, Shape::Bytes)
            | (Shape::Bytes, Shape::String)
    )
}
