//! Keys and values with schemas in produced records: which schema a record names, and its bytes.
//!
//! A record names its schema by its text, its id, or a version of a subject; with nothing but its
//! type, or without that, the last version counts. The subject is named, or follows from a
//! strategy: the topic's name (the default), the record's, or both.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use streams::TopicName;

use super::Here;
use super::datum::{Form, Told};
use super::records::{Failed, Ready};
use crate::embedded::{NoWriter, Writer};
use crate::error::NOT_ALLOWED;
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
                NoWriter::Registry(error) if error.code() == NOT_ALLOWED => NOT_ALLOWED,
                NoWriter::Registry(error) if error.status().is_server_error() => 40801,
                NoWriter::NoRegistry => 40801,
                NoWriter::Registry(_) | NoWriter::OtherType { .. } => 42207,
            };
            // Who forgot the type reads so why a schema is looked for.
            let lacks = match self.kind.is_none() && self.named.is_nothing() {
                true => " has no type and no schema",
                false => "",
            };
            Failed::of(code, &format!("{}{lacks}: {no}", self.name))
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
        let embedding = &here.shared.embedding;
        let schema_version = subject.as_deref();
        let caller = here.shared.caller.as_ref();
        let version_of = |of| embedding.version_of(caller, of, writer.id);
        let schema_version = schema_version.and_then(version_of);
        let told = Told {
            r#type: Form::of_schema(writer.schema.kind()),
            subject,
            schema_id: Some(writer.id),
            schema_version,
            size: bytes.as_ref().map_or(0, Bytes::len),
        };
        Ok((bytes, told))
    }

    async fn writer(
        &self,
        here: &Here,
        topic: &TopicName,
    ) -> Result<(Writer, Option<String>), NoWriter> {
        let (embedding, caller) = (&here.shared.embedding, here.shared.caller.as_ref());
        if let Some(id) = self.named.schema_id {
            let writer = embedding.by_id(caller, id, self.kind).await?;
            let subject = self.subject(topic, || writer.schema.record_name());
            return Ok((writer, subject));
        }
        let record = self.record_name(here).await?;
        let subject = self.subject(topic, || record.as_deref());
        let subject = subject.ok_or(NoWriter::Nameless)?;
        let writer = match (&self.named.schema, self.kind) {
            (Some(text), Some(kind)) => embedding.by_text(caller, &subject, kind, text).await?,
            _ => {
                let version = self.named.schema_version;
                let by_version = embedding.by_version(caller, &subject, version, self.kind);
                by_version.await?
            }
        };
        Ok((writer, Some(subject)))
    }

    /// What a schema that came as a text calls its records, where the subject follows from that.
    async fn record_name(&self, here: &Here) -> Result<Option<Arc<str>>, NoWriter> {
        match (&self.named.schema, self.kind, self.strategy()) {
            (_, _, Strategy::Topic) => Ok(None),
            (Some(text), Some(kind), _) => {
                let name = here.shared.embedding.record_name(kind, text).await?;
                Ok(Some(name))
            }
            _ => Err(NoWriter::Nameless),
        }
    }

    /// The subject, as it is named or follows; none where the records that it follows from have no
    /// name.
    fn subject<'a>(
        &self,
        topic: &TopicName,
        record: impl Fn() -> Option<&'a str>,
    ) -> Option<String> {
        if let Some(subject) = &self.named.subject {
            return Some(subject.clone());
        }
        let topic = topic.display();
        match self.strategy() {
            Strategy::Topic => Some(format!("{topic}-{}", self.name)),
            Strategy::TopicAndRecord => record().map(|record| format!("{topic}-{record}")),
            Strategy::Record => record().map(str::to_owned),
        }
    }

    fn strategy(&self) -> Strategy {
        self.named.subject_name_strategy.unwrap_or_default()
    }
}
