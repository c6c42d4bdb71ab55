//! Protobuf, syntax 2 and 3: schemas as text or as a base64 `FileDescriptorProto` (Confluent's
//! serializer for Python sends these), payloads with message indexes, and the JSON mapping.
//!
//! The text that the registry keeps is printed from the descriptor, so that one schema has one text
//! however it came; comments are not kept. What is printed must parse to the same descriptor again,
//! else the text is kept as it came.
//!
//! JSON is written with the names of the JSON mapping, 64-bit integers as text and fields that have
//! their defaults; a value is read as the first message of the schema. Left out: editions.

mod compare;
mod known;
mod print;
mod tags;
mod weight;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::prost::Message;
use prost_reflect::prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, FileDescriptor, MessageDescriptor,
    SerializeOptions,
};

use super::tree::Counted;
use super::{SchemaFault, SchemaSource};
use crate::limits::{DECODED_BYTES_FREE, DECODED_GROWTH_MAX, PROTOBUF_BYTES_MAX};

pub(super) use compare::incompatibilities;

/// A parsed schema.
#[derive(Debug)]
pub(super) struct ProtobufSchema {
    file: FileDescriptor,
    canonical: String,
    record_name: Option<String>,
}

impl ProtobufSchema {
    pub fn parse(source: &SchemaSource) -> Result<ProtobufSchema, SchemaFault> {
        let mut pool = DescriptorPool::global();
        for reference in &source.references {
            // Google's own types are there already, and what one before has imported.
            if pool.get_file_by_name(&reference.name).is_some() {
                continue;
            }
            add(&mut pool, &reference.name, &reference.text).map_err(|reason| {
                SchemaFault::Schema(format!("reference '{}': {reason}", reference.name))
            })?;
        }
        let text = source.text.trim();
        let mut again = pool.clone();
        let file = add(&mut pool, ROOT, text).map_err(SchemaFault::Schema)?;
        let record_name = file.messages().next();
        let record_name = record_name.map(|message| message.full_name().to_owned());
        let canonical = print::text(&file);
        let again = add(&mut again, ROOT, &canonical);
        let is_faithful = again
            .is_ok_and(|again| bare(&again) == bare(&file) && print::text(&again) == canonical);
        Ok(ProtobufSchema {
            canonical: if is_faithful {
                canonical
            } else {
                text.to_owned()
            },
            file,
            record_name,
        })
    }

    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The full name of the first message.
    pub fn record_name(&self) -> Option<&str> {
        self.record_name.as_deref()
    }

    /// The names of the fields of all outermost messages.
    pub fn field_names(&self) -> Vec<&str> {
        let messages = self.file.file_descriptor_proto().message_type.iter();
        let fields = messages.flat_map(|message| &message.field);
        fields.map(FieldDescriptorProto::name).collect()
    }

    /// The descriptor as base64, as the registry answers `format=serialized`.
    pub fn serialized(&self) -> String {
        STANDARD.encode(self.file.encode_to_vec())
    }

    pub fn encode(&self, json: &[u8]) -> Result<Vec<u8>, SchemaFault> {
        let Some(descriptor) = self.file.messages().next() else {
            return Err(SchemaFault::Value("the schema has no message".to_owned()));
        };
        if json.len() > PROTOBUF_BYTES_MAX {
            let reason = format!("Protobuf's JSON has at most {PROTOBUF_BYTES_MAX} bytes");
            return Err(SchemaFault::Value(reason));
        }
        if !weight::is_light(Counted::of(json), json.len()) {
            return Err(SchemaFault::Value(weight::TOO_HEAVY.to_owned()));
        }
        let options = DeserializeOptions::new().deny_unknown_fields(true);
        let mut reader = serde_json::Deserializer::from_slice(json);
        let message = DynamicMessage::deserialize_with_options(descriptor, &mut reader, &options)
            .and_then(|message| reader.end().map(|()| message))
            .map_err(|error| SchemaFault::Value(error.to_string()))?;
        // The first message's indexes are written as one zero.
        let mut payload = Vec::with_capacity(1 + message.encoded_len());
        payload.push(0);
        message
            .encode(&mut payload)
            .map_err(|error| SchemaFault::Value(error.to_string()))?;
        Ok(payload)
    }

    pub fn decode(&self, payload: &[u8]) -> Result<Vec<u8>, SchemaFault> {
        self.decode_message(payload).map_err(|reason| {
            SchemaFault::Payload(format!("not Protobuf of this schema: {reason}"))
        })
    }

    fn decode_message(&self, payload: &[u8]) -> Result<Vec<u8>, String> {
        if payload.len() > PROTOBUF_BYTES_MAX {
            return Err(format!("larger than {PROTOBUF_BYTES_MAX} bytes"));
        }
        let mut rest = payload;
        let descriptor = self.named_by(&mut rest)?;
        weight::check(&descriptor, rest)?;
        let message =
            DynamicMessage::decode(descriptor, rest).map_err(|error| error.to_string())?;
        let growth = payload.len().saturating_mul(DECODED_GROWTH_MAX);
        let mut out = Bounded {
            bytes: Vec::with_capacity(2 * payload.len()),
            bytes_max: growth.saturating_add(DECODED_BYTES_FREE),
        };
        let options = SerializeOptions::new().skip_default_fields(false);
        message
            .serialize_with_options(&mut serde_json::Serializer::new(&mut out), &options)
            .map_err(|error| error.to_string())?;
        Ok(out.bytes)
    }

    /// The message that a payload's first bytes name: a count of indexes, then an index for each level
    /// of nesting; no indexes mean the first message.
    fn named_by(&self, rest: &mut &[u8]) -> Result<MessageDescriptor, String> {
        let missing = || "it names a message that is not there".to_owned();
        let count = varint(rest)?;
        if count == 0 {
            return self.file.messages().next().ok_or_else(missing);
        }
        if !(1..=NESTING_MAX).contains(&count) {
            return Err(missing());
        }
        let mut found: Option<MessageDescriptor> = None;
        for _ in 0..count {
            let index = usize::try_from(varint(rest)?).map_err(|_| missing())?;
            found = match found {
                None => self.file.messages().nth(index),
                Some(message) => message.child_messages().nth(index),
            };
            if found.is_none() {
                return Err(missing());
            }
        }
        found.ok_or_else(missing)
    }
}

/// Adds a schema's text, or its base64 descriptor, under a name.
fn add(pool: &mut DescriptorPool, name: &str, text: &str) -> Result<FileDescriptor, String> {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_base64) {
        let mut bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
        // The bytes stay, as options of extensions would be lost otherwise; of a field that comes
        // twice the last counts, so this is its name.
        bytes.push(NAME_TAG);
        prost_reflect::prost::encode_length_delimiter(name.len(), &mut bytes)
            .map_err(|error| error.to_string())?;
        bytes.extend_from_slice(name.as_bytes());
        let proto = FileDescriptorProto::decode(&*bytes).map_err(|error| error.to_string())?;
        add_known(pool, &proto)?;
        pool.decode_file_descriptor_proto(&*bytes)
            .map_err(|error| error.to_string())?;
    } else {
        let mut proto = protox_parse::parse(name, text).map_err(|error| {
            let place = error.span().and_then(|span| text.get(..span.start));
            match place {
                Some(before) => format!("line {}: {error}", before.matches('\n').count() + 1),
                None => error.to_string(),
            }
        })?;
        proto.name = Some(name.to_owned());
        proto.source_code_info = None;
        add_known(pool, &proto)?;
        pool.add_file_descriptor_proto(proto)
            .map_err(|error| error.to_string())?;
    }
    let file = pool.get_file_by_name(name);
    file.ok_or_else(|| "the schema has no file".to_owned())
}

/// Adds what a file imports and everybody has, unless it came as a reference.
fn add_known(pool: &mut DescriptorPool, proto: &FileDescriptorProto) -> Result<(), String> {
    for name in &proto.dependency {
        if let Some(text) = known::text(name).filter(|_| pool.get_file_by_name(name).is_none()) {
            add(pool, name, text)?;
        }
    }
    Ok(())
}

/// The descriptor without what says nothing about payloads and without names that follow from others.
fn bare(file: &FileDescriptor) -> FileDescriptorProto {
    fn fields(all: &mut [FieldDescriptorProto]) {
        for field in all {
            let usual = print::usual_json_name(field.name());
            field.json_name.take_if(|name| *name == usual);
        }
    }
    fn message(it: &mut DescriptorProto) {
        fields(&mut it.field);
        fields(&mut it.extension);
        it.nested_type.iter_mut().for_each(message);
    }
    let mut proto = file.file_descriptor_proto().clone();
    proto.source_code_info = None;
    fields(&mut proto.extension);
    proto.message_type.iter_mut().for_each(message);
    proto
}

/// A signed number, as Kafka's own format writes it.
fn varint(rest: &mut &[u8]) -> Result<i64, String> {
    let mut zigzag = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest
            .split_first()
            .ok_or("it ends within its message indexes")?;
        *rest = after;
        zigzag |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed());
        }
    }
    Err("a message index beyond 64 bits".to_owned())
}

/// Text that ends with an error when it grows beyond its bound.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            return Err(std::io::Error::other("its JSON would be too large"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The schema's own name among its imports.
const ROOT: &str = "default";
/// The tag of a file's name in its descriptor.
const NAME_TAG: u8 = 0x0a;
/// Levels of messages within messages (protoc's own bound).
const NESTING_MAX: i64 = 32;
