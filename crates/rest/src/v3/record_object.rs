//! Records as answers tell them, each key and value in the form asked for or the best that it has.

use base::format_rfc3339;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use streams::{Caller, ConsumedRecord};

use super::datum::Form;
use crate::embedded::{Embedding, Readers};
use crate::schemas::format::SchemaType;

/// How keys and values stand in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Binary,
    String,
    Json,
    Avro,
    Jsonschema,
    Protobuf,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Format::Binary => "binary",
            Format::String => "string",
            Format::Json => "json",
            Format::Avro => "avro",
            Format::Jsonschema => "jsonschema",
            Format::Protobuf => "protobuf",
        }
    }

    /// The readers of keys and values by which the caller is shown them, where they may be answered with
    /// their schemas.
    pub async fn readers(
        format: Option<Format>,
        embedding: &Embedding,
        caller: Option<&Caller>,
        records: &[ConsumedRecord],
    ) -> Readers {
        match Format::may_have_schemas(format) {
            false => Readers::default(),
            true => embedding.readers(caller, records).await,
        }
    }

    /// Whether keys and values may be answered with their schemas.
    pub fn may_have_schemas(format: Option<Format>) -> bool {
        format.is_none_or(|format| format.schema_type().is_some())
    }

    /// The type of schemas that is asked for.
    fn schema_type(self) -> Option<SchemaType> {
        match self {
            Format::Binary | Format::String | Format::Json => None,
            Format::Avro => Some(SchemaType::Avro),
            Format::Jsonschema => Some(SchemaType::Json),
            Format::Protobuf => Some(SchemaType::Protobuf),
        }
    }
}

/// A record as an answer tells it.
#[derive(Serialize)]
pub(super) struct RecordObject<'r> {
    kind: &'static str,
    topic_name: &'r str,
    partition_id: i32,
    offset: i64,
    timestamp: String,
    headers: Vec<HeaderObject<'r>>,
    key: Option<DatumObject<'r>>,
    value: Option<DatumObject<'r>>,
}

#[derive(Serialize)]
struct HeaderObject<'r> {
    name: &'r str,
    value: Option<String>,
}

/// A key or a value as an answer tells it.
#[derive(Serialize)]
pub(crate) struct DatumObject<'r> {
    r#type: Form,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_id: Option<i32>,
    data: Data<'r>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data<'r> {
    Json(&'r RawValue),
    Embedded(Box<RawValue>),
    String(&'r str),
    Binary(String),
}

impl<'r> RecordObject<'r> {
    /// A record with its key and value in a format.
    pub fn of(record: &'r ConsumedRecord, format: Option<Format>, readers: &Readers) -> Self {
        let headers = record.headers.iter().map(|(name, value)| HeaderObject {
            name,
            value: value.as_ref().map(|value| STANDARD.encode(value)),
        });
        let part = |bytes: &'r Option<Bytes>| {
            let bytes = bytes.as_ref();
            bytes.map(|bytes| DatumObject::of(bytes, format, readers))
        };
        RecordObject {
            kind: "KafkaRecord",
            topic_name: record.topic.display(),
            partition_id: record.partition,
            offset: record.offset,
            timestamp: format_rfc3339(record.timestamp),
            headers: headers.collect(),
            key: part(&record.key),
            value: part(&record.value),
        }
    }

    /// About as many as it takes in an answer.
    pub fn bytes(&self) -> usize {
        let parts = [&self.key, &self.value].into_iter().flatten();
        let bytes = parts.map(|it| match &it.data {
            Data::Json(raw) => raw.get().len(),
            Data::Embedded(raw) => raw.get().len(),
            Data::String(text) => text.len(),
            Data::Binary(text) => text.len(),
        });
        bytes.sum()
    }
}

impl<'r> DatumObject<'r> {
    /// A key or a value in the form asked for, or else in the first of its schema's, JSON, text and
    /// base64 that it can have; what cannot have the form asked for is base64, as its type says.
    pub fn of(bytes: &'r Bytes, format: Option<Format>, readers: &Readers) -> Self {
        let is = |wanted: Format| format.is_none_or(|format| format == wanted);
        let kind = format.and_then(Format::schema_type);
        if Format::may_have_schemas(format)
            && let Ok(decoded) = readers.read(bytes, kind)
            && let Some(json) = decoded.raw()
        {
            return DatumObject {
                r#type: Form::of_schema(decoded.kind),
                schema_id: Some(decoded.id),
                data: Data::Embedded(json),
            };
        }
        if is(Format::Json)
            && let Ok(raw) = serde_json::from_slice::<&RawValue>(bytes)
        {
            return DatumObject {
                r#type: Form::Json,
                schema_id: None,
                data: Data::Json(raw),
            };
        }
        if is(Format::String)
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            return DatumObject {
                r#type: Form::String,
                schema_id: None,
                data: Data::String(text),
            };
        }
        DatumObject {
            r#type: Form::Binary,
            schema_id: None,
            data: Data::Binary(STANDARD.encode(bytes)),
        }
    }

    /// Its form, its schema's id, and its text: JSON as it stands, or base64 of what is no text.
    pub fn into_text(self) -> (Form, Option<i32>, String) {
        let text = match self.data {
            Data::Json(raw) => raw.get().to_owned(),
            Data::Embedded(raw) => raw.get().to_owned(),
            Data::String(text) => text.to_owned(),
            Data::Binary(text) => text,
        };
        (self.r#type, self.schema_id, text)
    }
}
