//! A descriptor's text.
//!
//! Names of types stand without the package when they are of the same one. Options are printed as the
//! descriptor has them, extensions included.

use std::fmt::Write;

use prost_reflect::prost_types::FieldDescriptorProto;
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::{
    DynamicMessage, EnumDescriptor, ExtensionDescriptor, FieldDescriptor, FileDescriptor, Kind,
    MapKey, MessageDescriptor, Value,
};

/// The text of a file.
pub(super) fn text(file: &FileDescriptor) -> String {
    let proto = file.file_descriptor_proto();
    let mut printer = Printer {
        package: file.package_name().to_owned(),
        is_proto3: proto.syntax() == "proto3",
        out: String::new(),
        depth: 0,
    };
    if proto.syntax.is_some() {
        printer.line(&format!("syntax = \"{}\";", proto.syntax()));
    }
    if !proto.package().is_empty() {
        printer.line(&format!("package {};", proto.package()));
    }
    for (index, import) in proto.dependency.iter().enumerate() {
        let index = i32::try_from(index).unwrap_or(i32::MAX);
        let kind = match () {
            () if proto.public_dependency.contains(&index) => "public ",
            () if proto.weak_dependency.contains(&index) => "weak ",
            () => "",
        };
        printer.line(&format!("import {kind}{};", quoted(import.as_bytes())));
    }
    printer.options(&file.options());
    for message in file.messages() {
        printer.message(&message, &format!("message {}", message.name()));
    }
    for it in file.enums() {
        printer.enumeration(&it);
    }
    for extension in file.extensions().filter(|it| it.parent_message().is_none()) {
        printer.extension(&extension);
    }
    for service in file.services() {
        printer.open(&format!("service {}", service.name()));
        printer.options(&service.options());
        for method in service.methods() {
            let stream = |is_streaming: bool| if is_streaming { "stream " } else { "" };
            let head = format!(
                "rpc {} ({}{}) returns ({}{})",
                method.name(),
                stream(method.is_client_streaming()),
                printer.type_name(method.input().full_name()),
                stream(method.is_server_streaming()),
                printer.type_name(method.output().full_name()),
            );
            let options = options(&method.options());
            if options.is_empty() {
                printer.line(&format!("{head};"));
            } else {
                printer.open(&head);
                printer.options(&method.options());
                printer.close();
            }
        }
        printer.close();
    }
    printer.out
}

struct Printer {
    package: String,
    is_proto3: bool,
    out: String,
    depth: usize,
}

impl Printer {
    fn line(&mut self, text: &str) {
        for _ in 0..self.depth {
            self.out.push_str("  ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn open(&mut self, head: &str) {
        self.line(&format!("{head} {{"));
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// A type's name as it stands in this file.
    fn type_name(&self, full: &str) -> String {
        let within = full.strip_prefix(&*self.package);
        match within.and_then(|rest| rest.strip_prefix('.')) {
            Some(rest) if !self.package.is_empty() => rest.to_owned(),
            _ => full.to_owned(),
        }
    }

    fn options(&mut self, message: &DynamicMessage) {
        for (name, value) in options(message) {
            self.line(&format!("option {name} = {value};"));
        }
    }

    /// A message or a group.
    fn message(&mut self, message: &MessageDescriptor, head: &str) {
        let proto = message.descriptor_proto();
        self.open(head);
        self.options(&message.options());
        for name in &proto.reserved_name {
            self.line(&format!("reserved {};", quoted(name.as_bytes())));
        }
        for range in &proto.reserved_range {
            // The end is not part of the range.
            let text = span(range.start(), range.end() - 1, MAX_FIELD);
            self.line(&format!("reserved {text};"));
        }
        for range in &proto.extension_range {
            let text = span(range.start(), range.end() - 1, MAX_FIELD);
            self.line(&format!("extensions {text};"));
        }
        let mut groups = Vec::new();
        let mut told = Vec::new();
        for number in fields_in_order(message) {
            let Some(field) = message.get_field(number) else {
                continue;
            };
            match field.containing_oneof().filter(|it| !it.is_synthetic()) {
                None => self.field(&field, true, &mut groups),
                Some(oneof) if told.contains(&oneof.name().to_owned()) => {}
                Some(oneof) => {
                    told.push(oneof.name().to_owned());
                    self.open(&format!("oneof {}", oneof.name()));
                    self.options(&oneof.options());
                    for field in fields_of(message, oneof.name()) {
                        self.field(&field, false, &mut groups);
                    }
                    self.close();
                }
            }
        }
        for extension in message.child_extensions() {
            self.extension(&extension);
        }
        for child in message.child_messages() {
            if !child.is_map_entry() && !groups.contains(&child.full_name().to_owned()) {
                self.message(&child, &format!("message {}", child.name()));
            }
        }
        for child in message.child_enums() {
            self.enumeration(&child);
        }
        self.close();
    }

    fn field(&mut self, field: &FieldDescriptor, has_label: bool, groups: &mut Vec<String>) {
        let proto = field.field_descriptor_proto();
        let mut settings = options(&field.options());
        settings.extend(settings_of(proto, field.json_name()));
        let settings = bracketed(&settings);
        let number = field.number();
        if field.is_map()
            && let Kind::Message(entry) = field.kind()
        {
            let key = self.kind_name(&entry.map_entry_key_field().kind());
            let value = self.kind_name(&entry.map_entry_value_field().kind());
            let name = field.name();
            self.line(&format!("map<{key}, {value}> {name} = {number}{settings};"));
            return;
        }
        let label = if has_label { self.label(proto) } else { "" };
        if field.is_group()
            && let Kind::Message(group) = field.kind()
        {
            groups.push(group.full_name().to_owned());
            let head = format!("{label}group {} = {number}{settings}", group.name());
            self.message(&group, &head);
            return;
        }
        let kind = self.kind_name(&field.kind());
        self.line(&format!(
            "{label}{kind} {} = {number}{settings};",
            field.name()
        ));
    }

    fn extension(&mut self, extension: &ExtensionDescriptor) {
        let proto = extension.field_descriptor_proto();
        let extended = self.type_name(extension.containing_message().full_name());
        self.open(&format!("extend {extended}"));
        let settings = options(&extension.options());
        let settings: Vec<_> = settings.into_iter().chain(default_of(proto)).collect();
        let settings = bracketed(&settings);
        let label = self.label(proto);
        let kind = self.kind_name(&extension.kind());
        let number = extension.number();
        let name = extension.name();
        self.line(&format!("{label}{kind} {name} = {number}{settings};"));
        self.close();
    }

    fn enumeration(&mut self, it: &EnumDescriptor) {
        let proto = it.enum_descriptor_proto();
        self.open(&format!("enum {}", it.name()));
        self.options(&it.options());
        for name in &proto.reserved_name {
            self.line(&format!("reserved {};", quoted(name.as_bytes())));
        }
        for range in &proto.reserved_range {
            let text = span(range.start(), range.end(), i32::MAX);
            self.line(&format!("reserved {text};"));
        }
        // By the descriptor's order: it tells the default of proto2.
        for value in &proto.value {
            let settings = it.values().find(|found| found.name() == value.name());
            let settings = settings.map(|found| options(&found.options()));
            let settings = bracketed(&settings.unwrap_or_default());
            self.line(&format!("{} = {}{settings};", value.name(), value.number()));
        }
        self.close();
    }

    fn label(&self, proto: &FieldDescriptorProto) -> &'static str {
        match proto.label() {
            Label::Repeated => "repeated ",
            Label::Required => "required ",
            Label::Optional if self.is_proto3 && !proto.proto3_optional() => "",
            Label::Optional => "optional ",
        }
    }

    fn kind_name(&self, kind: &Kind) -> String {
        let name = match kind {
            Kind::Double => "double",
            Kind::Float => "float",
            Kind::Int32 => "int32",
            Kind::Int64 => "int64",
            Kind::Uint32 => "uint32",
            Kind::Uint64 => "uint64",
            Kind::Sint32 => "sint32",
            Kind::Sint64 => "sint64",
            Kind::Fixed32 => "fixed32",
            Kind::Fixed64 => "fixed64",
            Kind::Sfixed32 => "sfixed32",
            Kind::Sfixed64 => "sfixed64",
            Kind::Bool => "bool",
            Kind::String => "string",
            Kind::Bytes => "bytes",
            Kind::Message(it) => return self.type_name(it.full_name()),
            Kind::Enum(it) => return self.type_name(it.full_name()),
        };
        name.to_owned()
    }
}

/// The numbers of a message's fields in the order of its text.
fn fields_in_order(message: &MessageDescriptor) -> Vec<u32> {
    let fields = message.descriptor_proto().field.iter();
    fields
        .filter_map(|field| u32::try_from(field.number()).ok())
        .collect()
}

/// The fields of a oneof in the order of the text.
fn fields_of(message: &MessageDescriptor, oneof: &str) -> Vec<FieldDescriptor> {
    let fields = fields_in_order(message).into_iter();
    let fields = fields.filter_map(|number| message.get_field(number));
    fields
        .filter(|field| {
            field
                .containing_oneof()
                .is_some_and(|it| it.name() == oneof)
        })
        .collect()
}

type Setting = (String, String);

fn bracketed(settings: &[Setting]) -> String {
    if settings.is_empty() {
        return String::new();
    }
    let settings: Vec<_> = settings
        .iter()
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    format!(" [{}]", settings.join(", "))
}

/// What stands among a field's options and is none.
fn settings_of(proto: &FieldDescriptorProto, json_name: &str) -> Vec<Setting> {
    let mut settings: Vec<Setting> = default_of(proto).into_iter().collect();
    if json_name != usual_json_name(proto.name()) {
        settings.push(("json_name".to_owned(), quoted(json_name.as_bytes())));
    }
    settings
}

fn default_of(proto: &FieldDescriptorProto) -> Option<Setting> {
    let default = proto.default_value.as_deref()?;
    let text = match proto.r#type() {
        Type::String => quoted(default.as_bytes()),
        // Its bytes are escaped already.
        Type::Bytes => format!("\"{default}\""),
        _ => default.to_owned(),
    };
    Some(("default".to_owned(), text))
}

pub(super) fn usual_json_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut is_upper = false;
    for it in name.chars() {
        match it {
            '_' => is_upper = true,
            it if std::mem::take(&mut is_upper) => out.push(it.to_ascii_uppercase()),
            it => out.push(it),
        }
    }
    out
}

/// The options that a descriptor has, in the order of their numbers.
fn options(message: &DynamicMessage) -> Vec<Setting> {
    let mut all = Vec::new();
    for (field, value) in message.fields() {
        if !["map_entry", "uninterpreted_option"].contains(&field.name()) {
            several(&mut all, field.name().to_owned(), value, &field.kind());
        }
    }
    for (extension, value) in message.extensions() {
        let name = format!("({})", extension.full_name());
        several(&mut all, name, value, &extension.kind());
    }
    all
}

/// A list stands as one option for each of its items.
fn several(all: &mut Vec<Setting>, name: String, value: &Value, kind: &Kind) {
    match value {
        Value::List(items) => {
            all.extend(items.iter().map(|item| (name.clone(), literal(item, kind))));
        }
        value => all.push((name, literal(value, kind))),
    }
}

fn literal(value: &Value, kind: &Kind) -> String {
    match value {
        Value::Bool(it) => it.to_string(),
        Value::I32(it) => it.to_string(),
        Value::I64(it) => it.to_string(),
        Value::U32(it) => it.to_string(),
        Value::U64(it) => it.to_string(),
        Value::F32(it) => float(f64::from(*it)),
        Value::F64(it) => float(*it),
        Value::String(it) => quoted(it.as_bytes()),
        Value::Bytes(it) => quoted(it),
        Value::EnumNumber(number) => match kind {
            Kind::Enum(it) => it
                .get_value(*number)
                .map_or_else(|| number.to_string(), |value| value.name().to_owned()),
            _ => number.to_string(),
        },
        Value::Message(message) => aggregate(message),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(|item| literal(item, kind)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(_) => String::new(),
    }
}

/// A message as an option's value.
fn aggregate(message: &DynamicMessage) -> String {
    let mut out = String::from("{");
    for (field, value) in message.fields() {
        if let (Value::Map(entries), Kind::Message(entry)) = (value, field.kind()) {
            let kind = entry.map_entry_value_field().kind();
            for (key, value) in entries {
                let (name, value) = (field.name(), literal(value, &kind));
                // Writing to a String does not fail.
                let _ = write!(out, " {name}: {{ key: {} value: {value} }}", map_key(key));
            }
            continue;
        }
        let _ = write!(out, " {}: {}", field.name(), literal(value, &field.kind()));
    }
    for (extension, value) in message.extensions() {
        let (name, value) = (extension.full_name(), literal(value, &extension.kind()));
        let _ = write!(out, " [{name}]: {value}");
    }
    out.push_str(" }");
    out
}

fn map_key(key: &MapKey) -> String {
    match key {
        MapKey::Bool(it) => it.to_string(),
        MapKey::I32(it) => it.to_string(),
        MapKey::I64(it) => it.to_string(),
        MapKey::U32(it) => it.to_string(),
        MapKey::U64(it) => it.to_string(),
        MapKey::String(it) => quoted(it.as_bytes()),
    }
}

fn float(number: f64) -> String {
    match number {
        it if it.is_nan() => "nan".to_owned(),
        it if it.is_infinite() && it > 0.0 => "inf".to_owned(),
        it if it.is_infinite() => "-inf".to_owned(),
        it => format!("{it:?}"),
    }
}

/// `3`, `3 to 5` or `3 to max`.
fn span(start: i32, end: i32, max: i32) -> String {
    match end {
        end if end == start => start.to_string(),
        end if end >= max => format!("{start} to max"),
        end => format!("{start} to {end}"),
    }
}

fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            0x20..0x7f => out.push(char::from(*byte)),
            other => drop(write!(out, "\\{other:03o}")),
        }
    }
    out.push('"');
    out
}

/// The largest field number.
const MAX_FIELD: i32 = 536_870_911;
