//! The schema registry: subjects with versions of schemas, each schema with an id, kept in a
//! compacted topic of the event store and served by the API that the usual serializers speak.
//!
//! Invariants: what was answered is durable in the topic and was read back from it (`log.rs`); one
//! schema has one id in all subjects of a context, and an id is of one schema for ever, however many
//! processes write (`state.rs`); a schema that its subject's compatibility does not allow is never
//! registered; everything held has a bound in `limits.rs`.
//!
//! Left out: rules are kept and told, and followed by serializers; no forwarding between processes is
//! needed, as each of them writes for itself.

mod around;
mod compatibility;
mod config;
mod deleting;
mod error;
pub(crate) mod format;
mod guid;
mod http;
mod limits;
mod log;
mod parsed;
mod record;
mod registering;
mod retagging;
mod settings;
mod sight;
mod state;
#[cfg(test)]
mod state_tests;
mod subject;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use streams::{EventStore, TopicName, TopicNameError};
use tokio::sync::{Mutex, MutexGuard};

pub use compatibility::Level;
pub use config::SchemasConfig;
pub use error::SchemaError;
pub use http::{management, routes};
pub(crate) use sight::Sight;

use self::format::{ParsedSchema, SchemaSource, SchemaType};
use self::log::Log;
use self::parsed::Parsed;
use self::registering::NewSchema;
use self::state::{Schema, State, Version, last_live};
use self::subject::{DEFAULT_CONTEXT, checked};

/// A schema registry over an event store; one per process.
pub struct SchemaRegistry {
    log: Log,
    config: SchemasConfig,
    parsed: Parsed,
    /// Held by who writes, so that the calls of one process do not lose against each other.
    writing: Mutex<()>,
}

/// A version, as calls ask for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedVersion {
    Last,
    Number(i32),
}

impl SchemaRegistry {
    /// A registry whose schemas lie in a topic of `store`, which is opened when it is first needed.
    ///
    /// # Errors
    /// The topic's name is none.
    pub fn new(
        store: Arc<dyn EventStore>,
        config: SchemasConfig,
    ) -> Result<Arc<Self>, TopicNameError> {
        let topic: TopicName = config.topic.parse()?;
        Ok(Arc::new(SchemaRegistry {
            log: Log::new(store, topic),
            config,
            parsed: Parsed::default(),
            writing: Mutex::new(()),
        }))
    }

    /// Lets go of the topic; calls are answered an error from now on.
    pub fn close(&self) {
        self.log.close();
    }

    /// The topic that holds the schemas.
    pub(crate) fn topic(&self) -> &TopicName {
        self.log.topic()
    }

    /// The schema of an id, in the default context, of which `sight` sees a subject.
    pub(crate) async fn by_id(
        &self,
        sight: &Sight,
        id: i32,
    ) -> Result<Arc<ParsedSchema>, SchemaError> {
        if sight.sees_all()
            && let Some(known) = self.parsed.known(DEFAULT_CONTEXT, id)
        {
            return Ok(known);
        }
        let schema = self.schema_by_id(DEFAULT_CONTEXT, id).await?;
        let is_seen = sight.sees_id(&self.log.state(), DEFAULT_CONTEXT, id);
        if !is_seen {
            return Err(nothing_of(id));
        }
        self.parse(&schema).await
    }

    /// The schemas of ids, in the default context. Others than are known are looked for once, however
    /// many they are.
    pub(crate) async fn by_ids(
        &self,
        sight: &Sight,
        ids: impl IntoIterator<Item = i32>,
    ) -> Vec<(i32, Result<Arc<ParsedSchema>, SchemaError>)> {
        let mut has_looked = false;
        let mut found = Vec::new();
        for id in ids {
            let is_known = {
                let state = self.log.state();
                state.schema(DEFAULT_CONTEXT, id).is_some()
            };
            let schema = match has_looked && !is_known {
                true => Err(nothing_of(id)),
                false => self.by_id(sight, id).await,
            };
            has_looked |= !is_known;
            found.push((id, schema));
        }
        found
    }

    /// The last live version of a subject with this id: its number and text.
    pub(crate) fn version_of(
        &self,
        sight: &Sight,
        subject: &str,
        id: i32,
    ) -> Option<(i32, Arc<str>)> {
        let subject = self.meant(subject).ok().filter(|of| sight.sees(of))?;
        let state = self.log.state();
        let mut versions = state.versions(&subject)?.iter().rev();
        let (number, found) =
            versions.find(|(_, version)| !version.is_deleted && version.schema.id == id)?;
        Some((*number, found.schema.content.text.clone()))
    }

    /// Reads a schema's text, without registering it.
    pub(crate) async fn read(
        kind: SchemaType,
        text: &str,
    ) -> Result<Arc<ParsedSchema>, SchemaError> {
        let source = SchemaSource {
            kind,
            text: Arc::from(text),
            references: Vec::new(),
        };
        parsed::parse(source).await
    }

    /// The last version of a subject, with its id.
    pub(crate) async fn latest(
        &self,
        sight: &Sight,
        subject: &str,
    ) -> Result<(i32, Arc<ParsedSchema>), SchemaError> {
        self.parsed_version(sight, subject, AskedVersion::Last)
            .await
    }

    /// A version of a subject, with its id.
    pub(crate) async fn version(
        &self,
        sight: &Sight,
        subject: &str,
        version: i32,
    ) -> Result<(i32, Arc<ParsedSchema>), SchemaError> {
        self.parsed_version(sight, subject, AskedVersion::Number(version))
            .await
    }

    /// Registers a schema unless it is there; answers its id.
    pub(crate) async fn register(
        &self,
        sight: &Sight,
        subject: &str,
        kind: SchemaType,
        text: &str,
    ) -> Result<(i32, Arc<ParsedSchema>), SchemaError> {
        self.log.ready().await?;
        let new = NewSchema::of(kind, text);
        let subject = self.meant_by(sight, subject)?;
        let registered = self.register_new(&subject, new, false).await?;
        Ok((registered.id, registered.schema))
    }

    async fn parsed_version(
        &self,
        sight: &Sight,
        subject: &str,
        asked: AskedVersion,
    ) -> Result<(i32, Arc<ParsedSchema>), SchemaError> {
        self.log.ready().await?;
        let subject = self.meant_by(sight, subject)?;
        let found = |state: &State| found_version(state, &subject, asked, false).map(|(_, v)| v);
        let mut version = found(&self.log.state());
        if version.is_err() {
            self.log.catch_up().await?;
            version = found(&self.log.state());
        }
        let schema = version?.schema;
        Ok((schema.id, self.parse(&schema).await?))
    }

    /// Takes the turn of who writes, once all was read that the topic holds now: what another process
    /// or client wrote just before is neither overwritten nor passed over.
    async fn turn(&self) -> Result<MutexGuard<'_, ()>, SchemaError> {
        let turn = self.writing.lock().await;
        self.log.catch_up().await?;
        Ok(turn)
    }

    /// The subject that a name stands for.
    fn meant(&self, name: &str) -> Result<String, SchemaError> {
        let subject = checked(name)?;
        Ok(self.log.state().meant(subject))
    }

    /// As [`SchemaRegistry::meant`], to whom neither may be another tenant's.
    fn meant_by(&self, sight: &Sight, name: &str) -> Result<String, SchemaError> {
        sight.check(&checked(name)?)?;
        let subject = self.meant(name)?;
        sight.check(&subject)?;
        Ok(subject)
    }

    /// The schema of an id; what is not known may have been written by another process just now.
    async fn schema_by_id(&self, context: &str, id: i32) -> Result<Arc<Schema>, SchemaError> {
        self.log.ready().await?;
        if let Some(schema) = self.log.state().schema(context, id) {
            return Ok(schema.clone());
        }
        self.log.catch_up().await?;
        let state = self.log.state();
        let found = state.schema(context, id).cloned();
        found.ok_or_else(|| nothing_of(id))
    }
}

fn nothing_of(id: i32) -> SchemaError {
    SchemaError::SchemaNotFound(format!("nothing has the id {id}"))
}

/// A version of a subject with its number; deleted ones too when asked.
fn found_version(
    state: &State,
    subject: &str,
    asked: AskedVersion,
    with_deleted: bool,
) -> Result<(i32, Version), SchemaError> {
    let versions = state.versions(subject);
    let versions = versions.filter(|versions| with_deleted || last_live(versions).is_some());
    let versions = versions.ok_or_else(|| SchemaError::SubjectNotFound(subject.to_owned()))?;
    let found = match asked {
        AskedVersion::Last if with_deleted => versions.last_key_value().map(|(n, of)| (*n, of)),
        AskedVersion::Last => last_live(versions),
        AskedVersion::Number(number) => versions
            .get(&number)
            .filter(|version| with_deleted || !version.is_deleted)
            .map(|version| (number, version)),
    };
    let (number, version) = found.ok_or_else(|| not_found(subject, asked))?;
    Ok((number, version.clone()))
}

fn not_found(subject: &str, asked: AskedVersion) -> SchemaError {
    SchemaError::VersionNotFound {
        subject: subject.to_owned(),
        version: match asked {
            AskedVersion::Last => "latest".to_owned(),
            AskedVersion::Number(number) => number.to_string(),
        },
    }
}
