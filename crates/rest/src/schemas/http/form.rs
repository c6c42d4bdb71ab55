//! The form of what the registry is sent and answers: parameters, bodies, versions.

use std::convert::Infallible;
use std::io::{ErrorKind, Write};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{JSON, Served, is_setting};
use crate::answer::{self, JsonObject, Parameters, Segments};
use crate::answers::{Answers, kept};
use crate::limits::ANSWER_BYTES_FREE;
use crate::schemas::AskedVersion;
use crate::schemas::around::check_metadata;
use crate::schemas::error::SchemaError;
use crate::schemas::format::{EntityKind, EntityTags, SchemaType};
use crate::schemas::limits::{ANSWER_BYTES_MAX, TAGS_MAX};
use crate::schemas::record::Reference;
use crate::schemas::registering::{NewSchema, Tags};
use crate::schemas::retagging::{Retagging, Rules};
use crate::schemas::sight::Sight;
use crate::schemas::state::{Content, Schema, Version, object, resolved};
use crate::schemas::subject::{GLOBAL_CONTEXT, checked, context_of};

/// A JSON answer; the type that the caller wants is written around the routes.
pub(super) fn told(body: &impl Serialize) -> Response {
    answer::json(StatusCode::OK, JSON, body)
}

/// A schema's text by itself.
pub(super) fn raw(text: &str) -> Response {
    answer::bytes(StatusCode::OK, JSON, text.as_bytes().to_vec())
}

/// A list's answer, unless it is too long to be built.
pub(super) fn list(body: &impl Serialize) -> Result<Response, SchemaError> {
    let mut text = Bounded(Vec::new());
    serde_json::to_writer(&mut text, body).map_err(|_| {
        SchemaError::Limit(format!(
            "the answer has more than {ANSWER_BYTES_MAX} bytes; ask with subjectPrefix, offset \
             and limit"
        ))
    })?;
    let text = text.0;
    if text.len() <= ANSWER_BYTES_FREE {
        return Ok(answer::bytes(StatusCode::OK, JSON, text));
    }
    let share = Answers::of_process().for_answer(text.len());
    let share = share.ok_or_else(|| {
        SchemaError::Limit("large answers fill their room; ask again, or with limit".to_owned())
    })?;
    let answer = answer::bytes(StatusCode::OK, JSON, text);
    Ok(kept(answer, Some(share)))
}

/// A part of a list.
pub(super) fn page<T>(
    all: impl IntoIterator<Item = T>,
    offset: Option<i64>,
    limit: Option<i64>,
) -> Vec<T> {
    let skipped = usize::try_from(offset.unwrap_or(0)).unwrap_or(0);
    let taken = limit.and_then(|limit| usize::try_from(limit).ok());
    let rest = all.into_iter().skip(skipped);
    rest.take(taken.unwrap_or(usize::MAX)).collect()
}

/// Takes as many bytes as an answer may have.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > ANSWER_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A subject of the path.
pub(super) struct SubjectPath(pub String);

/// A subject and a version of the path.
pub(super) struct VersionPath(pub String, pub AskedVersion);

/// A registered version as it is told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guid: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_type: Option<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    references: &'a [Reference],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_set: Option<Map<String, Value>>,
    schema: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_id: Option<i32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

impl<'a> Told<'a> {
    /// A version of a subject.
    pub(super) fn version(subject: &'a str, number: i32, version: &'a Version) -> Self {
        Told {
            subject: Some(subject),
            version: Some(number),
            id: Some(version.schema.id),
            deleted: version.is_deleted,
            ..Told::schema(&version.schema)
        }
    }

    /// The same for a caller that knows what schemas have had since lately, or does not.
    pub(super) fn to(self, takes: Takes) -> Self {
        Told {
            guid: self.guid.filter(|_| takes.guids),
            ..self
        }
    }

    /// The same in another format, where there is one.
    pub(super) fn with_text(self, text: Option<&'a str>) -> Self {
        Told {
            schema: text.unwrap_or(self.schema),
            ..self
        }
    }

    /// A version as it was registered, to who knows the subject.
    pub(super) fn registered(id: i32, version: i32, content: &'a Content) -> Self {
        Told {
            version: Some(version),
            id: Some(id),
            ..Told::content(content, content.guid())
        }
    }

    /// A schema by itself.
    pub(super) fn schema(schema: &'a Schema) -> Self {
        Told::content(&schema.content, schema.guid)
    }

    fn content(content: &'a Content, guid: Uuid) -> Self {
        Told {
            subject: None,
            version: None,
            id: None,
            guid: Some(guid),
            // The usual type goes without saying, as old clients want it.
            schema_type: Some(content.kind)
                .filter(|kind| *kind != SchemaType::Avro)
                .map(SchemaType::name),
            references: &content.references,
            metadata: object(content.metadata.as_deref()),
            rule_set: object(content.rule_set.as_deref()),
            schema: &content.text,
            max_id: None,
            deleted: false,
        }
    }
}

/// What a caller takes in answers beyond what the first clients did: those before 5.5 fail on fields
/// that they do not know.
#[derive(Clone, Copy)]
pub(super) struct Takes {
    /// GUIDs, and what was registered as it is kept.
    pub guids: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for Takes {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let says = |name: &str| answer::text(&parts.headers, name);
        let is_true = says(TAKES_UNKNOWN).is_some_and(|text| text.eq_ignore_ascii_case("true"));
        // Some clients leave the one out where they send no body.
        Ok(Takes {
            guids: is_true || says(CLIENT_VERSION).is_some(),
        })
    }
}

/// A schema as it is sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchemaBody {
    schema: Option<String>,
    schema_type: Option<String>,
    references: Option<Vec<Reference>>,
    metadata: Option<Map<String, Value>>,
    rule_set: Option<Map<String, Value>>,
    id: Option<i32>,
    version: Option<i32>,
    schema_tags_to_add: Option<Vec<SchemaTags>>,
    schema_tags_to_remove: Option<Vec<SchemaTags>>,
    propagate_schema_tags: Option<bool>,
}

/// The tags of a record or a field as they are sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchemaTags {
    schema_entity: SchemaEntity,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchemaEntity {
    entity_path: String,
    entity_type: EntityType,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum EntityType {
    #[serde(alias = "SR_RECORD")]
    SrRecord,
    #[serde(alias = "SR_FIELD")]
    SrField,
}

fn entity_tags(sent: Option<Vec<SchemaTags>>) -> Result<Vec<EntityTags>, SchemaError> {
    let sent = sent.unwrap_or_default();
    if sent.iter().map(|of| 1 + of.tags.len()).sum::<usize>() > TAGS_MAX {
        let text = format!("more than {TAGS_MAX} records, fields and tags at once");
        return Err(SchemaError::InvalidEntity(text));
    }
    let tags = sent.into_iter().map(|of| EntityTags {
        path: of.schema_entity.entity_path,
        kind: match of.schema_entity.entity_type {
            EntityType::SrRecord => EntityKind::Record,
            EntityType::SrField => EntityKind::Field,
        },
        tags: of.tags,
    });
    Ok(tags.collect())
}

/// A change of a version's tags, metadata and rules as it is sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TagsBody {
    new_version: Option<i32>,
    tags_to_add: Option<Vec<SchemaTags>>,
    tags_to_remove: Option<Vec<SchemaTags>>,
    metadata: Option<Map<String, Value>>,
    rule_set: Option<Map<String, Value>>,
    rules_to_merge: Option<Map<String, Value>>,
    rules_to_remove: Option<Vec<String>>,
}

impl TagsBody {
    fn retagging(self) -> Result<Retagging, SchemaError> {
        let rules = match (self.rule_set, self.rules_to_merge, self.rules_to_remove) {
            (None, None, None) => Rules::Same,
            (Some(rules), None, None) => Rules::Set(rules),
            (None, merged, removed) => {
                Rules::Changed(merged.unwrap_or_default(), removed.unwrap_or_default())
            }
            (Some(_), _, _) => {
                let text = "send ruleSet, or rulesToMerge and rulesToRemove".to_owned();
                return Err(SchemaError::InvalidRules(text));
            }
        };
        if let Some(metadata) = &self.metadata {
            check_metadata(metadata)?;
        }
        Ok(Retagging {
            version: self.new_version.filter(|version| *version > 0),
            tags: Tags {
                are_taken_over: false,
                added: entity_tags(self.tags_to_add)?,
                removed: entity_tags(self.tags_to_remove)?,
            },
            metadata: self.metadata,
            rules,
        })
    }
}

impl SchemaBody {
    fn new_schema(self) -> Result<NewSchema, SchemaError> {
        let kind = match self.schema_type.as_deref() {
            None | Some("") => SchemaType::Avro,
            Some(name) => SchemaType::of_name(name).ok_or_else(|| {
                let known = "AVRO, JSON or PROTOBUF";
                SchemaError::InvalidSchema(format!("'{name}' is no schema type: write {known}"))
            })?,
        };
        Ok(NewSchema {
            kind,
            text: self.schema.filter(|text| !text.trim().is_empty()),
            references: self.references.unwrap_or_default(),
            metadata: self.metadata,
            rule_set: self.rule_set,
            tags: Tags {
                are_taken_over: self.propagate_schema_tags == Some(true),
                added: entity_tags(self.schema_tags_to_add)?,
                removed: entity_tags(self.schema_tags_to_remove)?,
            },
            id: self.id.filter(|id| *id >= 0),
            version: self.version.filter(|version| *version > 0),
        })
    }
}

impl Served {
    /// Reads a JSON body.
    pub(super) async fn entity<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<T, Response> {
        let held = self.gate.read(headers, body).await;
        let held = held.map_err(IntoResponse::into_response)?;
        let read = serde_json::from_slice(&held.bytes).map(|JsonObject(entity)| entity);
        read.map_err(|error| {
            let text = format!("the body does not fit: {error}");
            match error.classify() {
                serde_json::error::Category::Data => SchemaError::InvalidEntity(text),
                _ => SchemaError::BadRequest(text),
            }
            .into_response()
        })
    }

    /// Reads a change of a version's tags, metadata and rules.
    pub(super) async fn retagging(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Retagging, Response> {
        let body: TagsBody = self.entity(headers, body).await?;
        body.retagging().map_err(IntoResponse::into_response)
    }

    /// Reads a schema, which rests on none that its sender may not know of.
    pub(super) async fn schema(
        &self,
        sight: &Sight,
        context: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<NewSchema, Response> {
        let body: SchemaBody = self.entity(headers, body).await?;
        let read = || {
            let new = body.new_schema()?;
            let mut subjects = new.references.iter();
            subjects.try_for_each(|of| sight.check(&resolved(context, &of.subject)))?;
            Ok(new)
        };
        read().map_err(|error: SchemaError| error.into_response())
    }
}

/// A version as a path or a parameter writes it.
fn asked_version(text: &str) -> Result<AskedVersion, SchemaError> {
    if ["latest", "-1"].contains(&text) {
        return Ok(AskedVersion::Last);
    }
    let number = text.parse().ok().filter(|number| *number > 0);
    let invalid = || SchemaError::InvalidVersion(text.chars().take(VERSION_SHOWN).collect());
    number.map(AskedVersion::Number).ok_or_else(invalid)
}

/// A parameter that is `true`, `false` or there without a value, which is false as well. Others are
/// refused: a typing error in `permanent` or `deleted` is better told than taken for one of both.
pub(super) fn flag<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    let text = String::deserialize(value)?;
    flag_of(&text).map_err(D::Error::custom)
}

/// As [`flag`], of a value by itself.
pub(super) fn flag_of(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" | "" => Ok(false),
        _ => Err("write true or false"),
    }
}

impl FromRequestParts<Arc<Served>> for SubjectPath {
    type Rejection = SchemaError;

    async fn from_request_parts(
        parts: &mut Parts,
        served: &Arc<Served>,
    ) -> Result<Self, SchemaError> {
        let Segments(subject) = Segments::<String>::from_request_parts(parts, served).await?;
        meant(parts, served, &subject).await.map(SubjectPath)
    }
}

impl FromRequestParts<Arc<Served>> for VersionPath {
    type Rejection = SchemaError;

    async fn from_request_parts(
        parts: &mut Parts,
        served: &Arc<Served>,
    ) -> Result<Self, SchemaError> {
        let found = Segments::<(String, String)>::from_request_parts(parts, served).await;
        let Segments((subject, version)) = found?;
        let subject = meant(parts, served, &subject).await?;
        Ok(VersionPath(subject, asked_version(&version)?))
    }
}

/// The subject that a path's stands for; settings and deletions are of the one that is named.
async fn meant(
    parts: &mut Parts,
    served: &Arc<Served>,
    subject: &str,
) -> Result<String, SchemaError> {
    let subject = checked(subject)?;
    let Ok(sight) = Sight::from_request_parts(parts, served).await;
    sight.check(&subject)?;
    let path = parts.extensions.get::<MatchedPath>();
    let path = path.map_or("", MatchedPath::as_str);
    if is_setting(path) || parts.method == Method::DELETE {
        return Ok(subject);
    }
    if context_of(&subject) == GLOBAL_CONTEXT {
        return Err(SchemaError::InvalidSubject(subject));
    }
    let meant = served.registry.log.state().meant(subject);
    sight.check(&meant)?;
    Ok(meant)
}

/// Parameters that many calls take.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Switches {
    #[serde(deserialize_with = "flag")]
    pub deleted: bool,
    #[serde(deserialize_with = "flag")]
    pub permanent: bool,
    #[serde(deserialize_with = "flag")]
    pub normalize: bool,
    #[serde(deserialize_with = "flag")]
    pub verbose: bool,
    #[serde(deserialize_with = "flag")]
    pub force: bool,
    #[serde(deserialize_with = "flag")]
    pub recursive: bool,
    #[serde(rename = "defaultToGlobal", deserialize_with = "flag")]
    pub default_to_global: bool,
    /// `serialized` asks for a Protobuf schema's descriptor in base64.
    pub format: Option<String>,
    pub offset: Option<i64>,
    pub limit: Option<i64>,
}

pub(super) type Switched = Parameters<Switches>;

/// By which clients say that they pass over fields that they do not know.
const TAKES_UNKNOWN: &str = "confluent-accept-unknown-properties";

/// Which clients have sent since they know GUIDs.
const CLIENT_VERSION: &str = "confluent-client-version";

/// How much of a refused version is repeated, in characters.
const VERSION_SHOWN: usize = 100;
