//! The formats of schemas: Avro, JSON Schema and Protobuf, as a library without IO.
//!
//! A schema is parsed once ([`ParsedSchema::parse`]) and then serves any number of values: JSON to
//! the payload that stands behind the magic byte and the id on the wire, and back; and comparisons
//! of two schemas. Texts and payloads may come from anybody: depth, size and growth are bounded, and
//! nothing panics.
//!
//! Left out: the wire's magic byte and id, and where schemas come from (the registry).

mod avro;
#[cfg(test)]
mod compare_tests;
pub mod fuzzing;
mod json;
mod proto;
mod tags;
#[cfg(test)]
mod tests;
mod tree;
mod work;

use std::sync::Arc;

pub(super) use tags::{EntityKind, EntityTags};
pub(crate) use work::Work;

/// Which language a schema is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum SchemaType {
    #[default]
    Avro,
    Json,
    Protobuf,
}

/// What a comparison makes of properties that only one of two JSON Schemas names; the other formats
/// have one answer to that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    /// What a schema does not name may be there, and anything.
    #[default]
    Strict,
    /// What a writer's schema does not name is not written, and what a reader's does not name is
    /// passed over.
    Lenient,
}

/// A schema that others refer to by name: an Avro full name, a JSON Schema's URI, a Protobuf import.
#[derive(Clone, Debug)]
pub(crate) struct NamedSource {
    pub name: String,
    pub text: Arc<str>,
}

/// A schema's text and what it refers to.
#[derive(Clone, Debug)]
pub(crate) struct SchemaSource {
    pub kind: SchemaType,
    pub text: Arc<str>,
    /// All that are referred to over any number of steps; what one depends on stands before it.
    pub references: Vec<NamedSource>,
}

/// Why a schema cannot be used, or a value not be read or written with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SchemaFault {
    /// The schema's text is none.
    #[error("{0}")]
    Schema(String),
    /// The JSON does not fit the schema.
    #[error("{0}")]
    Value(String),
    /// The payload was not written with the schema.
    #[error("{0}")]
    Payload(String),
}

/// A schema that can be used. Cheap to share behind an [`Arc`].
#[derive(Debug)]
pub(crate) struct ParsedSchema {
    canonical: String,
    format: Format,
}

#[derive(Debug)]
enum Format {
    Avro(avro::AvroSchema),
    Json(Box<json::JsonSchema>),
    Protobuf(proto::ProtobufSchema),
}

impl SchemaType {
    /// The name in the registry's API.
    pub fn name(self) -> &'static str {
        match self {
            SchemaType::Avro => "AVRO",
            SchemaType::Json => "JSON",
            SchemaType::Protobuf => "PROTOBUF",
        }
    }

    /// The type of a name in the registry's API.
    pub fn of_name(name: &str) -> Option<SchemaType> {
        let all = [SchemaType::Avro, SchemaType::Json, SchemaType::Protobuf];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

impl ParsedSchema {
    /// Parses a schema.
    ///
    /// # Errors
    /// [`SchemaFault::Schema`]: the text is no schema of its type, refers to what is not there, or is
    /// beyond a bound.
    pub fn parse(source: &SchemaSource) -> Result<ParsedSchema, SchemaFault> {
        let too_large = |text: &str| text.len() > SCHEMA_BYTES_MAX;
        if too_large(&source.text) || source.references.iter().any(|it| too_large(&it.text)) {
            let reason = format!("a schema has at most {SCHEMA_BYTES_MAX} bytes");
            return Err(SchemaFault::Schema(reason));
        }
        if source.references.len() > SCHEMA_REFERENCES_MAX {
            let reason = format!("a schema refers to at most {SCHEMA_REFERENCES_MAX} others");
            return Err(SchemaFault::Schema(reason));
        }
        match source.kind {
            SchemaType::Avro => {
                let schema = avro::AvroSchema::parse(source)?;
                Ok(ParsedSchema {
                    canonical: schema.canonical(),
                    format: Format::Avro(schema),
                })
            }
            SchemaType::Json => {
                let schema = json::JsonSchema::parse(source)?;
                Ok(ParsedSchema {
                    canonical: schema.canonical(),
                    format: Format::Json(Box::new(schema)),
                })
            }
            SchemaType::Protobuf => {
                let schema = proto::ProtobufSchema::parse(source)?;
                Ok(ParsedSchema {
                    canonical: schema.canonical().to_owned(),
                    format: Format::Protobuf(schema),
                })
            }
        }
    }

    pub fn kind(&self) -> SchemaType {
        match &self.format {
            Format::Avro(_) => SchemaType::Avro,
            Format::Json(_) => SchemaType::Json,
            Format::Protobuf(_) => SchemaType::Protobuf,
        }
    }

    /// Whether the defaults of an Avro schema fit, as they must in a new one.
    ///
    /// # Errors
    /// [`SchemaFault::Schema`]: one does not.
    pub fn check_defaults(&self) -> Result<(), SchemaFault> {
        match &self.format {
            Format::Avro(schema) => schema.check_defaults(),
            Format::Json(_) | Format::Protobuf(_) => Ok(()),
        }
    }

    /// The text that the registry stores, and compares where nobody asks for more.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The text that schemas of one meaning have in common, as far as it can be told.
    pub fn normalized(&self) -> String {
        match &self.format {
            Format::Avro(schema) => schema.normalized(),
            Format::Json(schema) => schema.normalized(),
            // It is printed from the descriptor, which has one form.
            Format::Protobuf(_) => self.canonical.clone(),
        }
    }

    /// The full name of what the schema describes, where it has one.
    pub fn record_name(&self) -> Option<&str> {
        match &self.format {
            Format::Avro(schema) => schema.record_name(),
            Format::Json(schema) => schema.record_name(),
            Format::Protobuf(schema) => schema.record_name(),
        }
    }

    /// The text with tags of records and fields added, and others removed; a Protobuf schema's is its
    /// descriptor in base64.
    ///
    /// # Errors
    /// [`SchemaFault::Schema`]: a path leads nowhere.
    pub(super) fn tagged(
        &self,
        added: &[EntityTags],
        removed: &[EntityTags],
    ) -> Result<String, SchemaFault> {
        match &self.format {
            Format::Protobuf(schema) => schema.tagged(added, removed),
            _ => tags::tagged(self.kind(), &self.canonical, added, removed),
        }
    }

    /// The text with the tags that an earlier schema of the same type has at the same places.
    ///
    /// # Errors
    /// As [`ParsedSchema::tagged`].
    pub(super) fn with_tags_of(&self, earlier: &ParsedSchema) -> Result<String, SchemaFault> {
        match (&self.format, &earlier.format) {
            (Format::Protobuf(schema), Format::Protobuf(earlier)) => schema.with_tags_of(earlier),
            _ => tags::propagated(self.kind(), &self.canonical, &earlier.canonical),
        }
    }

    /// The names of its outermost fields or properties: of a Protobuf schema those of all its messages.
    pub fn field_names(&self) -> Vec<&str> {
        match &self.format {
            Format::Avro(schema) => schema.field_names(),
            Format::Json(schema) => schema.property_names(),
            Format::Protobuf(schema) => schema.field_names(),
        }
    }

    /// The base64 descriptor of a Protobuf schema, as the registry answers `format=serialized`.
    pub fn serialized(&self) -> Option<String> {
        match &self.format {
            Format::Protobuf(schema) => Some(schema.serialized()),
            _ => None,
        }
    }

    /// Why `reader` cannot read everything that `writer` wrote; empty when it can.
    pub fn incompatibilities(
        reader: &ParsedSchema,
        writer: &ParsedSchema,
        policy: Policy,
    ) -> Vec<String> {
        match (&reader.format, &writer.format) {
            (Format::Avro(reader), Format::Avro(writer)) => avro::incompatibilities(reader, writer),
            (Format::Json(reader), Format::Json(writer)) => {
                json::incompatibilities(reader, writer, policy)
            }
            (Format::Protobuf(reader), Format::Protobuf(writer)) => {
                proto::incompatibilities(reader, writer)
            }
            _ => vec![format!(
                "{{errorType:'TYPE_MISMATCH', description:'reader is {}, writer is {}'}}",
                reader.kind().name(),
                writer.kind().name()
            )],
        }
    }

    /// The payload of a value: what stands on the wire behind the magic byte and the id.
    ///
    /// # Errors
    /// [`SchemaFault::Value`]: `json` is no JSON or does not fit, or it is more than `work` is left.
    pub fn encode(&self, json: &[u8], work: &mut Work) -> Result<Vec<u8>, SchemaFault> {
        work.walk(json.len())?;
        let payload = match &self.format {
            Format::Avro(schema) => schema.encode(json, work),
            Format::Json(schema) => schema.encode(json, work),
            Format::Protobuf(schema) => schema.encode(json),
        }?;
        work.write(payload.len())?;
        Ok(payload)
    }

    /// As [`ParsedSchema::encode`], of one value by itself.
    pub(super) fn encode_alone(&self, json: &[u8]) -> Result<Vec<u8>, SchemaFault> {
        let mut work = Work::of(2 * VALIDATION_STEPS_MAX, REQUEST_PAYLOADS_BYTES_MAX);
        self.encode(json, &mut work)
    }

    /// The JSON of a payload.
    ///
    /// # Errors
    /// [`SchemaFault::Payload`]: it was not written with this schema, or would grow beyond bounds.
    pub fn decode(&self, payload: &[u8]) -> Result<Vec<u8>, SchemaFault> {
        match &self.format {
            Format::Avro(schema) => schema.decode(payload),
            Format::Json(schema) => schema.decode(payload),
            Format::Protobuf(schema) => schema.decode(payload),
        }
    }
}

use crate::limits::{
    REQUEST_PAYLOADS_BYTES_MAX, SCHEMA_BYTES_MAX, SCHEMA_REFERENCES_MAX, VALIDATION_STEPS_MAX,
};
