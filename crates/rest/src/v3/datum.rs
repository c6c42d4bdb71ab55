//! A key or a value of a produced record: how it stands in the body, its bytes, and what its receipt
//! says of it.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::records::Failed;
use super::schemas::{Named, Strategy, Waiting};
use crate::answer::JsonObject;
use crate::produce::from_base64;
use crate::schemas::format::SchemaType;

/// A key or a value.
#[derive(Deserialize)]
pub(super) struct Datum<'a> {
    r#type: Option<Form>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    // What names a schema, see `Named`; a flattened struct would lose the borrowing of `data`.
    subject: Option<String>,
    subject_name_strategy: Option<Strategy>,
    schema_id: Option<i32>,
    schema_version: Option<i32>,
    schema: Option<String>,
}

/// How a key or a value stands in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Form {
    Binary,
    Json,
    String,
    Avro,
    Jsonschema,
    Protobuf,
}

/// What a receipt says of a key or a value.
#[derive(Serialize)]
pub(super) struct Told {
    pub r#type: Form,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_id: Option<i32>,
    /// None where the subject does not have the schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<i32>,
    pub size: usize,
}

/// A key or a value as far as it is known without schemas.
#[derive(Default)]
pub(super) struct Part {
    pub bytes: Option<Bytes>,
    pub told: Option<Told>,
    pub waiting: Option<Waiting>,
}

impl Datum<'_> {
    /// The bytes of a key or a value, and what the receipt says of it.
    pub fn decode(
        datum: Option<JsonObject<Datum<'_>>>,
        name: &'static str,
        text: &Bytes,
    ) -> Result<Part, Failed> {
        let Some(JsonObject(datum)) = datum else {
            return Ok(Part::default());
        };
        let named = Named {
            subject: datum.subject,
            subject_name_strategy: datum.subject_name_strategy,
            schema_id: datum.schema_id,
            schema_version: datum.schema_version,
            schema: datum.schema,
        };
        let form = match (datum.r#type, named.is_nothing()) {
            (Some(form @ (Form::Binary | Form::Json | Form::String)), true) => form,
            (Some(Form::Binary | Form::Json | Form::String), false) => {
                let reason = format!("{name} has a schema, which its type does not have");
                return Err(Failed::of(400, &reason));
            }
            (form, _) => {
                let kind = form.and_then(Form::schema_type);
                let data = datum.data.map(|raw| text.slice_ref(raw.get().as_bytes()));
                return Ok(Part {
                    waiting: Some(Waiting::of(name, kind, named, data)?),
                    ..Part::default()
                });
            }
        };
        let bytes = match (datum.data, form) {
            (None, _) => None,
            (Some(raw), Form::Json) => Some(text.slice_ref(raw.get().as_bytes())),
            (Some(raw), Form::Binary) => {
                let bytes = from_base64(raw.get());
                let failed = |reason| Failed::of(400, &format!("{name} {reason}"));
                Some(bytes.map_err(failed)?)
            }
            (Some(raw), _) => {
                let text: Cow<'_, str> = serde_json::from_str(raw.get())
                    .map_err(|_| Failed::of(400, &format!("{name} is no text")))?;
                Some(Bytes::from(text.into_owned()))
            }
        };
        let told = Told {
            r#type: form,
            subject: None,
            schema_id: None,
            schema_version: None,
            size: bytes.as_ref().map_or(0, Bytes::len),
        };
        Ok(Part {
            bytes,
            told: Some(told),
            waiting: None,
        })
    }
}

impl Form {
    /// The type of schemas whose values stand in this form.
    pub fn schema_type(self) -> Option<SchemaType> {
        match self {
            Form::Binary | Form::Json | Form::String => None,
            Form::Avro => Some(SchemaType::Avro),
            Form::Jsonschema => Some(SchemaType::Json),
            Form::Protobuf => Some(SchemaType::Protobuf),
        }
    }

    /// The form of values of a type of schemas.
    pub fn of_schema(kind: SchemaType) -> Form {
        match kind {
            SchemaType::Avro => Form::Avro,
            SchemaType::Json => Form::Jsonschema,
            SchemaType::Protobuf => Form::Protobuf,
        }
    }
}
