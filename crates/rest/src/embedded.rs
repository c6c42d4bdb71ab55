//! Keys and values with schemas in requests and answers: which schema they have, and the bytes that
//! stand for them in records: a zero, the schema's id in four bytes, and the payload of its format.
//!
//! A schema is looked up once and then kept, by its id in the registry and by its text here, so that
//! producing with either costs no lookup. Who may register a schema by producing is who may write to
//! the topic that holds the schemas. Whoever belongs to a tenant neither registers nor uses schemas of
//! another one's subjects, nor is shown records by them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use access::{Operation, ResourceType};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use streams::{Caller, ConsumedRecord, StreamsError, TopicName};

use crate::error::RestError;
use crate::limits::{ANSWER_SCHEMAS_MAX, TEXTS_KEPT_BYTES_MAX, TEXTS_KEPT_MAX};
use crate::schemas::format::{ParsedSchema, SchemaFault, SchemaType, Work};
use crate::schemas::{SchemaError, SchemaRegistry, Sight};

/// A schema that keys or values are written with.
#[derive(Clone)]
pub(crate) struct Writer {
    pub id: i32,
    pub schema: Arc<ParsedSchema>,
}

/// The registry as the proxy uses it.
#[derive(Default)]
pub(crate) struct Embedding {
    registry: Option<Arc<SchemaRegistry>>,
    /// Writers, each with the text that the registry keeps.
    texts: Mutex<Texts<(Writer, Arc<str>)>>,
    /// What schemas of texts call their records.
    names: Mutex<Texts<Option<Arc<str>>>>,
}

/// What is known of schemas that came as texts; all is forgotten when there is too much.
struct Texts<T> {
    kept: HashMap<TextKey, T>,
    bytes: usize,
}

#[derive(PartialEq, Eq, Hash)]
struct TextKey {
    /// Nothing for what is known of the text alone.
    subject: String,
    kind: SchemaType,
    text: String,
}

impl<T: Clone> Texts<T> {
    fn get(&self, key: &TextKey) -> Option<T> {
        self.kept.get(key).cloned()
    }

    fn keep(&mut self, key: TextKey, known: T) {
        let bytes = key.text.len() + key.subject.len();
        if self.kept.len() >= TEXTS_KEPT_MAX || self.bytes + bytes > TEXTS_KEPT_BYTES_MAX {
            *self = Texts::default();
        }
        if self.kept.insert(key, known).is_none() {
            self.bytes += bytes;
        }
    }
}

impl<T> Default for Texts<T> {
    fn default() -> Self {
        Texts {
            kept: HashMap::new(),
            bytes: 0,
        }
    }
}

/// Why there is no writer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoWriter {
    #[error("no schema registry is here; use the formats binary or json")]
    NoRegistry,
    #[error("schema {id} is of type {found}, not {asked}")]
    OtherType {
        id: i32,
        found: &'static str,
        asked: &'static str,
    },
    #[error("the schema is not valid: {0}")]
    Invalid(String),
    #[error("the schema has no name for the subject; name the subject or send another strategy")]
    Nameless,
    #[error("the schema registry refuses: {0}")]
    Registry(#[source] Box<SchemaError>),
    #[error(transparent)]
    Access(#[from] StreamsError),
}

impl Writer {
    /// The bytes of a value.
    pub fn write(&self, json: &[u8], work: &mut Work) -> Result<Bytes, SchemaFault> {
        let payload = self.schema.encode(json, work)?;
        let mut bytes = Vec::with_capacity(FRAME_BYTES + payload.len());
        bytes.push(MAGIC);
        bytes.extend_from_slice(&self.id.to_be_bytes());
        bytes.extend_from_slice(&payload);
        Ok(bytes.into())
    }
}

impl Embedding {
    pub fn new(registry: Option<Arc<SchemaRegistry>>) -> Self {
        Embedding {
            registry,
            ..Embedding::default()
        }
    }

    /// The topic that holds the schemas, where there is a registry.
    pub fn topic(&self) -> Option<&TopicName> {
        self.registry.as_deref().map(SchemaRegistry::topic)
    }

    fn registry(&self) -> Result<&SchemaRegistry, NoWriter> {
        self.registry.as_deref().ok_or(NoWriter::NoRegistry)
    }

    /// The writer of a schema that is there.
    pub async fn by_id(
        &self,
        caller: Option<&Caller>,
        id: i32,
        kind: Option<SchemaType>,
    ) -> Result<Writer, NoWriter> {
        let sight = Sight::of(caller, Operation::Read);
        let schema = self.registry()?.by_id(&sight, id).await;
        of_type(id, schema.map_err(NoWriter::from)?, kind)
    }

    /// The writer of a version of a subject; without a number of its last one.
    pub async fn by_version(
        &self,
        caller: Option<&Caller>,
        subject: &str,
        version: Option<i32>,
        kind: Option<SchemaType>,
    ) -> Result<Writer, NoWriter> {
        let registry = self.registry()?;
        let sight = Sight::of(caller, Operation::Read);
        let found = match version {
            Some(version) => registry.version(&sight, subject, version).await,
            None => registry.latest(&sight, subject).await,
        };
        let (id, schema) = found.map_err(NoWriter::from)?;
        of_type(id, schema, kind)
    }

    /// The writer of a schema that is registered in the subject when it is not there yet.
    pub async fn by_text(
        &self,
        caller: Option<&Caller>,
        subject: &str,
        kind: SchemaType,
        text: &str,
    ) -> Result<Writer, NoWriter> {
        let registry = self.registry()?;
        if let Some(caller) = caller {
            let topic = registry.topic().wire_name();
            caller.check_right(Operation::Write, ResourceType::Topic, topic)?;
        }
        let sight = Sight::of(caller, Operation::Write);
        let key = TextKey {
            subject: subject.to_owned(),
            kind,
            text: text.to_owned(),
        };
        let known = self.texts.lock().get(&key);
        if let Some((writer, registered)) = known
            // It may have been deleted since, by whichever process.
            && registry
                .version_of(&sight, subject, writer.id)
                .is_some_and(|(_, text)| text == registered)
        {
            return Ok(writer);
        }
        let (id, schema) = registry
            .register(&sight, subject, kind, text)
            .await
            .map_err(NoWriter::from)?;
        let writer = Writer { id, schema };
        if let Some((_, registered)) = registry.version_of(&sight, subject, id) {
            self.texts.lock().keep(key, (writer.clone(), registered));
        }
        Ok(writer)
    }

    /// The last version of a subject that has a schema, where there is one.
    pub fn version_of(&self, caller: Option<&Caller>, subject: &str, id: i32) -> Option<i32> {
        let sight = Sight::of(caller, Operation::Read);
        let (version, _) = self.registry.as_deref()?.version_of(&sight, subject, id)?;
        Some(version)
    }

    /// The name that a schema of a text gives its records, without registering it.
    pub async fn record_name(&self, kind: SchemaType, text: &str) -> Result<Arc<str>, NoWriter> {
        let key = TextKey {
            subject: String::new(),
            kind,
            text: text.to_owned(),
        };
        let known = self.names.lock().get(&key);
        let name = match known {
            Some(name) => name,
            None => {
                let schema = SchemaRegistry::read(kind, text).await?;
                let name = schema.record_name().map(Arc::from);
                self.names.lock().keep(key, name.clone());
                name
            }
        };
        name.ok_or(NoWriter::Nameless)
    }

    /// The readers of keys and values that begin with a schema's id, by which the caller is shown them.
    pub async fn readers(&self, caller: Option<&Caller>, records: &[ConsumedRecord]) -> Readers {
        let mut readers = Readers::default();
        let Some(registry) = &self.registry else {
            return readers;
        };
        let sight = Sight::of(caller, Operation::Read);
        for (id, found) in registry.by_ids(&sight, ids(records)).await {
            readers
                .0
                .insert(id, found.map_err(|error| error.to_string()));
        }
        readers
    }
}

/// Schemas by id, and why those that are not there are not.
#[derive(Default)]
pub(crate) struct Readers(HashMap<i32, Result<Arc<ParsedSchema>, String>>);

/// A key or value that was read.
pub(crate) struct Decoded {
    pub kind: SchemaType,
    pub id: i32,
    /// A text that is JSON.
    pub json: Vec<u8>,
}

impl Decoded {
    /// The JSON, to stand within other JSON.
    pub fn raw(&self) -> Option<Box<RawValue>> {
        serde_json::from_slice(&self.json).ok()
    }
}

impl Readers {
    /// Reads a key or value with its schema, which must be of a type when one is asked for.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(&self, bytes: &[u8], kind: Option<SchemaType>) -> Result<Decoded, String> {
        let (id, payload) = framed(bytes).ok_or("does not begin with a zero and a schema's id")?;
        let schema = match self.0.get(&id) {
            Some(Ok(schema)) => schema,
            Some(Err(reason)) => return Err(format!("has a schema that is not there: {reason}")),
            None => return Err(format!("has schema {id}, which was not looked up")),
        };
        if let Some(asked) = kind
            && asked != schema.kind()
        {
            let (found, asked) = (schema.kind().name(), asked.name());
            return Err(format!("has schema {id} of type {found}, not {asked}"));
        }
        let json = schema
            .decode(payload)
            .map_err(|fault| format!("is {fault}"))?;
        Ok(Decoded {
            kind: schema.kind(),
            id,
            json,
        })
    }
}

/// A schema as a request gives it, for keys or for values of all its records.
#[derive(Clone, Copy, Default)]
pub(crate) struct Given<'a> {
    /// Its text, as JSON text.
    pub text: Option<&'a RawValue>,
    pub id: Option<&'a RawValue>,
}

impl Given<'_> {
    /// Whether the request gives none.
    pub fn is_nothing(self) -> bool {
        self.text.is_none() && self.id.is_none()
    }

    /// The writer, which is missing without an id and without a text.
    pub async fn writer(
        self,
        embedding: &Embedding,
        caller: Option<&Caller>,
        subject: &str,
        kind: SchemaType,
    ) -> Result<Option<Writer>, RestError> {
        if let Some(id) = self.id {
            let id: i32 = id.get().parse().map_err(|_| {
                RestError::InvalidEntity("the id of a schema is a whole number".to_owned())
            })?;
            return Ok(Some(embedding.by_id(caller, id, Some(kind)).await?));
        }
        let Some(text) = self.text else {
            return Ok(None);
        };
        let text = plain(text);
        let writer = embedding.by_text(caller, subject, kind, &text).await;
        Ok(Some(writer?))
    }
}

/// A schema's text: in quotes as the API has it, or as the JSON that it is.
pub(crate) fn plain(text: &RawValue) -> String {
    serde_json::from_str(text.get()).unwrap_or_else(|_| text.get().to_owned())
}

fn of_type(
    id: i32,
    schema: Arc<ParsedSchema>,
    kind: Option<SchemaType>,
) -> Result<Writer, NoWriter> {
    match kind.filter(|kind| *kind != schema.kind()) {
        None => Ok(Writer { id, schema }),
        Some(asked) => Err(NoWriter::OtherType {
            id,
            found: schema.kind().name(),
            asked: asked.name(),
        }),
    }
}

/// The ids that keys and values begin with, each once.
fn ids(records: &[ConsumedRecord]) -> HashSet<i32> {
    let mut ids = HashSet::new();
    for record in records {
        for bytes in [&record.key, &record.value].into_iter().flatten() {
            if let Some((id, _)) = framed(bytes)
                && ids.len() < ANSWER_SCHEMAS_MAX
            {
                ids.insert(id);
            }
        }
    }
    ids
}

/// The id of a payload's schema, and what stands behind it.
fn framed(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (frame, payload) = bytes.split_first_chunk::<FRAME_BYTES>()?;
    let [MAGIC, id @ ..] = frame else {
        return None;
    };
    Some((i32::from_be_bytes(*id), payload))
}

impl From<SchemaError> for NoWriter {
    fn from(error: SchemaError) -> Self {
        match error {
            SchemaError::InvalidSchema(reason) => NoWriter::Invalid(reason),
            error => NoWriter::Registry(Box::new(error)),
        }
    }
}

impl From<NoWriter> for RestError {
    fn from(error: NoWriter) -> Self {
        match error {
            NoWriter::Invalid(_) => RestError::InvalidSchema(error.to_string()),
            NoWriter::Access(error) => RestError::Store(error),
            error => RestError::SchemaRegistry(error.to_string()),
        }
    }
}

/// What a framed payload begins with.
const MAGIC: u8 = 0;
const FRAME_BYTES: usize = 5;
