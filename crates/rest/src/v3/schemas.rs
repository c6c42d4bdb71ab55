//! Keys and values with schemas in produced records: which schema a record names, and its bytes.
//!
//! A record names its schema by its text, its id, or a version of a subject; with nothing but its
//! type, the last version counts. The subject is named, or follows from a strategy: the topic's name
//! (the default), the record's, or both.

use bytes::Bytes;
use serde::Deserialize;
use streams::TopicName;

use super::Here;
use super::datum::{Form, Told};
use super::records::{Failed, Ready};
use crate::embedded::{NoWriter, Writer};
use crate::schemas::format::SchemaType;
use crate::working::Worked;

/// What a key or a value says of its schema.
#[derive(Default)]
pub(super) struct Named {
    pub subject: Option<String>,
    pub subject_name_strategy: Option<Strategy>,
    pub schema_id: Option<i32>,
    pub schema_version: Option<i32>,
    pub schema: Option<String>,
}

/// How a subject follows from a topic and a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) enum Strategy {
    #[default]
    #[serde(rename = "TOPIC_NAME")]
    Topic,
    #[serde(rename = "RECORD_NAME")]
    Record,
    #[serde(rename = "TOPIC_RECORD_NAME")]
    TopicAndRecord,
}

/// A key or a value that waits for its schema.
pub(super) struct Waiting {
    name: &'static str,
    kind: Option<SchemaType>,
    named: Named,
    /// Nothing is a key that is not there, or a tombstone.
    data: Option<Bytes>,
}

impl Here {
    /// Writes the keys and values that wait for their schemas, as work of this request or stream.
    pub(super) async fn with_schemas(
        &self,
        topic: &TopicName,
        mut read: Vec<Result<Ready, Failed>>,
        mut worked: Worked,
    ) -> Vec<Result<Ready, Failed>> {
        for entry in &mut read {
            let Ok(ready) = entry else { continue };
            if let Some(waiting) = ready.key_schema.take() {
                match waiting.write(self, topic, &mut worked).await {
                    Ok((bytes, told)) => {
                        (ready.asked.record.key, ready.key) = (bytes, Some(told));
                    }
                    Err(failed) => {
                        *entry = Err(failed);
                        continue;
                    }
                }
            }
            if let Some(waiting) = ready.value_schema.take() {
                match waiting.write(self, topic, &mut worked).await {
                    Ok((bytes, told)) => {
                        (ready.asked.record.value, ready.value) = (bytes, Some(told));
                    }
                    Err(failed) => *entry = Err(failed),
                }
            }
        }
        read
    }
}

impl Named {
    pub fn is_nothing(&self) -> bool {
        let Named {
            subject,
            subject_name_strategy,
            schema_id,
            schema_version,
            schema,
        } = self;
        subject.is_none()
            && subject_name_strategy.is_none()
            && schema_id.is_none()
            && schema_version.is_none()
            && schema.is_none()
    }
}

impl Waiting {
    /// A key or a value, `name` says which, of a type of schemas or of that of its schema.
    ///
    /// # Errors
    /// 400: what it says of its schema contradicts itself.
    pub fn of(
        name: &'static str,
        kind: Option<SchemaType>,
        named: Named,
        data: Option<Bytes>,
    ) -> Result<Self, Failed> {
        let ways = [
            named.schema.is_some(),
            named.schema_id.is_some(),
            named.schema_version.is_some(),
        ];
        let refused = |reason: &str| Err(Failed::of(400, &format!("{name} {reason}")));
        if ways.into_iter().filter(|is_given| *is_given).count() > 1 {
            return refused("names its schema twice: schema, schema_id or schema_version");
        }
        if named.subject.is_some() && named.subject_name_strategy.is_some() {
            return refused("has a subject and a strategy for one");
        }
        if named.schema.is_some() && kind.is_none() {
            return refused("has a schema and no type: AVRO, JSONSCHEMA or PROTOBUF");
        }
        let strategy = named.subject_name_strategy.unwrap_or_default();
        if strategy != Strategy::Topic && named.schema.is_none() && named.schema_id.is_none() {
            return refused("has no schema whose name could tell the subject");
        }
        Ok(Waiting {
            name,
            kind,
            named,
            data,
        })
    }

    /// The bytes, and what the receipt says of them.
    pub async fn write(
        self,
        here: &Here,
        topic: &TopicName,
        worked: &mut Worked,
    ) -> Result<(Option<Bytes>, Told), Failed> {
        let (writer, subject) = self.writer(here, topic).await.map_err(|no| {
            let code = match &no {
                NoWriter::Invalid(_) | NoWriter::Nameless => 42205,
                NoWriter::Access(_) => 40301,
                NoWriter::Registry(error) if error.status().is_server_error() => 40801,
                NoWriter::NoRegistry => 40801,
                NoWriter::Registry(_) | NoWriter::OtherType { .. } => 42207,
            };
            Failed::of(code, &format!("{}: {no}", self.name))
        })?;
        let bytes = match &self.data {
            None => None,
            Some(json) => {
                let written = worked.run(|work| writer.write(json, work)).await;
                let written =
                    written.map_err(|error| Failed::of(error.code(), &error.message()))?;
                let misfit = |fault| Failed::of(42207, &format!("{}: {fault}", self.name));
                Some(written.map_err(misfit)?)
            }
        };
        let told = Told {
            r#type: Form::of_schema(writer.schema.kind()),
            subject,
            schema_id: Some(writer.id),
            size: bytes.as_ref().map_or(0, Bytes::len),
        };
        Ok((bytes, told))
    }

    async fn writer(
        &self,
        here: &Here,
        topic: &TopicName,
    ) -> Result<(Writer, Option<String>), NoWriter> {
        let embedding = &here.shared.embedding;
        if let Some(id) = self.named.schema_id {
            let writer = embedding.by_id(id, self.kind).await?;
            return Ok((writer, self.named.subject.clone()));
        }
        let subject = self.subject(here, topic).await?;
        let writer = match (&self.named.schema, self.kind) {
            (Some(text), Some(kind)) => {
                let caller = here.shared.caller.as_ref();
                embedding.by_text(caller, &subject, kind, text).await?
            }
            _ => {
                let version = self.named.schema_version;
                embedding.by_version(&subject, version, self.kind).await?
            }
        };
        Ok((writer, Some(subject)))
    }

    async fn subject(&self, here: &Here, topic: &TopicName) -> Result<String, NoWriter> {
        if let Some(subject) = &self.named.subject {
            return Ok(subject.clone());
        }
        let topic = topic.display();
        let strategy = self.named.subject_name_strategy.unwrap_or_default();
        if strategy == Strategy::Topic {
            return Ok(format!("{topic}-{}", self.name));
        }
        let (Some(text), Some(kind)) = (&self.named.schema, self.kind) else {
            return Err(NoWriter::Nameless);
        };
        let record = here.shared.embedding.record_name(kind, text).await?;
        Ok(match strategy {
            Strategy::TopicAndRecord => format!("{topic}-{record}"),
            _ => record.to_string(),
        })
    }
}
