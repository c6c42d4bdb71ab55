//! Whether a reader's Protobuf schema can read what a writer's wrote: fields are the same by number,
//! types may change only within the sets that share a wire format, messages are the same by name.

use std::collections::HashSet;

use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};

use super::{ProtobufSchema, known};
use crate::limits::FINDINGS_MAX;

/// Why `reader` cannot read what `writer` wrote.
pub(in crate::schemas::format) fn incompatibilities(
    reader: &ProtobufSchema,
    writer: &ProtobufSchema,
) -> Vec<String> {
    let mut comparison = Comparison::default();
    let (to, from) = (reader.file.package_name(), writer.file.package_name());
    if to != from {
        let text = format!("the reader is of package '{to}', the writer of '{from}'");
        comparison.find("PACKAGE_CHANGED", "/", &text);
    }
    let mut waiting: Vec<MessageDescriptor> = writer.file.messages().collect();
    while let Some(written) = waiting.pop() {
        let is_new = comparison.seen.insert(written.full_name().to_owned());
        if !is_new || comparison.findings.len() >= FINDINGS_MAX {
            continue;
        }
        let name = written.full_name();
        let found = reader.file.parent_pool().get_message_by_name(name);
        match found {
            Some(read) => comparison.message(&read, &written),
            None => {
                let text = format!("message {name} of the writer is not in the reader");
                comparison.find("MESSAGE_REMOVED", name, &text);
            }
        }
        let children = written.child_messages();
        waiting.extend(children.filter(|it| !it.is_map_entry()));
        // Types of imports are compared where something is of them.
        waiting.extend(written.fields().filter_map(|field| named_message(&field)));
    }
    comparison.findings
}

/// The message that a field, or a map's values, are of, unless everybody has it.
fn named_message(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    let kind = match field.kind() {
        Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
        kind => kind,
    };
    let is_everybodys = |it: &MessageDescriptor| {
        it.full_name().starts_with("google.protobuf.")
            || known::text(it.parent_file().name()).is_some()
    };
    match kind {
        Kind::Message(it) if !is_everybodys(&it) => Some(it),
        _ => None,
    }
}

#[derive(Default)]
struct Comparison {
    seen: HashSet<String>,
    findings: Vec<String>,
}

impl Comparison {
    fn find(&mut self, kind: &str, path: &str, description: &str) {
        self.findings.push(format!(
            "{{errorType:'{kind}', description:'{description}', additionalInfo:'path {path}'}}"
        ));
    }

    fn message(&mut self, reader: &MessageDescriptor, writer: &MessageDescriptor) {
        let name = writer.full_name();
        for written in writer.fields() {
            let path = format!("{name}.{}", written.name());
            match reader.get_field(written.number()) {
                Some(read) => self.field(&path, &read, &written),
                None if written.cardinality() == Cardinality::Required => {
                    let text = format!("required field {} is not in the reader", written.number());
                    self.find("REQUIRED_FIELD_REMOVED", &path, &text);
                }
                None => {}
            }
        }
        for read in reader.fields() {
            let was_required = writer
                .get_field(read.number())
                .is_some_and(|it| it.cardinality() == Cardinality::Required);
            if read.cardinality() == Cardinality::Required && !was_required {
                let path = format!("{name}.{}", read.name());
                let text = format!("field {} is required by the reader only", read.number());
                self.find("REQUIRED_FIELD_ADDED", &path, &text);
            }
        }
        self.oneofs(reader, writer);
    }

    fn field(&mut self, path: &str, reader: &FieldDescriptor, writer: &FieldDescriptor) {
        let is_same_shape = reader.is_map() == writer.is_map();
        let is_same_list = reader.is_list() == writer.is_list();
        if let (true, Kind::Message(to), Kind::Message(from)) = (
            reader.is_map() && writer.is_map(),
            reader.kind(),
            writer.kind(),
        ) {
            let key = (to.map_entry_key_field(), from.map_entry_key_field());
            let value = (to.map_entry_value_field(), from.map_entry_value_field());
            self.kinds(path, &key.0.kind(), &key.1.kind());
            self.kinds(path, &value.0.kind(), &value.1.kind());
            return;
        }
        if !is_same_shape {
            let text = "a map on one side only";
            self.find("FIELD_KIND_CHANGED", path, text);
            return;
        }
        self.kinds(path, &reader.kind(), &writer.kind());
        // A list of numbers may be packed, which a single number never is.
        let is_sized = matches!(writer.kind(), Kind::String | Kind::Bytes | Kind::Message(_));
        if !is_same_list && !is_sized {
            let text = "a number is repeated on one side only";
            self.find("FIELD_NUMERIC_LABEL_CHANGED", path, text);
        }
    }

    fn kinds(&mut self, path: &str, reader: &Kind, writer: &Kind) {
        let (to, from) = (kind_name(reader), kind_name(writer));
        match (reader, writer) {
            (Kind::Message(_), Kind::Message(_)) | (Kind::Enum(_), Kind::Enum(_)) => {
                if to != from {
                    let text = format!("the reader has type {to}, the writer {from}");
                    self.find("FIELD_NAMED_TYPE_CHANGED", path, &text);
                }
            }
            (to_kind, from_kind) if wire_set(to_kind) == wire_set(from_kind) => {}
            (Kind::Message(_) | Kind::Enum(_), _) | (_, Kind::Message(_) | Kind::Enum(_)) => {
                let text = format!("the reader has type {to}, the writer {from}");
                self.find("FIELD_KIND_CHANGED", path, &text);
            }
            _ => {
                let text = format!("the reader has type {to}, the writer {from}");
                self.find("FIELD_SCALAR_KIND_CHANGED", path, &text);
            }
        }
    }

    fn oneofs(&mut self, reader: &MessageDescriptor, writer: &MessageDescriptor) {
        let name = writer.full_name();
        for read in reader.oneofs().filter(|it| !it.is_synthetic()) {
            let path = format!("{name}.{}", read.name());
            let mut oneofs = writer.oneofs();
            let old = oneofs.find(|it| !it.is_synthetic() && it.name() == read.name());
            let moved: Vec<u32> = read
                .fields()
                .map(|field| field.number())
                .filter(|number| {
                    let field = writer.get_field(*number);
                    field.is_some_and(|field| !is_in_oneof(&field))
                })
                .collect();
            match old {
                Some(old) => {
                    if let Some(number) = moved.first() {
                        let text = format!("field {number} moved into a oneof that was there");
                        self.find("FIELD_MOVED_TO_EXISTING_ONEOF", &path, &text);
                    }
                    for field in old.fields() {
                        if !read.fields().any(|it| it.number() == field.number()) {
                            let number = field.number();
                            let text = format!("field {number} is no longer in the oneof");
                            self.find("ONEOF_FIELD_REMOVED", &path, &text);
                        }
                    }
                }
                None if moved.len() > 1 => {
                    let text = format!("{} fields moved into one oneof", moved.len());
                    self.find("MULTIPLE_FIELDS_MOVED_TO_ONEOF", &path, &text);
                }
                None => {}
            }
        }
    }
}

fn is_in_oneof(field: &FieldDescriptor) -> bool {
    field
        .containing_oneof()
        .is_some_and(|it| !it.is_synthetic())
}

/// Types of one set read what the others write, as far as the value's range goes.
fn wire_set(kind: &Kind) -> u8 {
    match kind {
        Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 | Kind::Bool | Kind::Enum(_) => 0,
        Kind::Sint32 | Kind::Sint64 => 1,
        Kind::Fixed32 | Kind::Sfixed32 => 2,
        Kind::Fixed64 | Kind::Sfixed64 => 3,
        Kind::String | Kind::Bytes => 4,
        Kind::Float => 5,
        Kind::Double => 6,
        Kind::Message(_) => 7,
    }
}

fn kind_name(kind: &Kind) -> String {
    match kind {
        Kind::Message(it) => it.full_name().to_owned(),
        Kind::Enum(it) => it.full_name().to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}
