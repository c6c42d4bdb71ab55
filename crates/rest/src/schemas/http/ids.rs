//! Schemas by their ids, and all of them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::form::{Switched, Takes, Told, flag, list as list_answer, page, raw, told};
use super::{Here, Served};
use crate::answer::{Parameters, Segments};
use crate::schemas::error::SchemaError;
use crate::schemas::nothing_of;
use crate::schemas::sight::Sight;
use crate::schemas::state::{Schema, Version, last_live};
use crate::schemas::subject::{DEFAULT_CONTEXT, context_of, parts, wanted};

/// Parameters of the calls by id.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ById {
    /// Its context is where the id counts; without one, that in which a subject of the name has it.
    subject: Option<String>,
    /// `serialized` asks for a Protobuf schema's descriptor in base64.
    format: Option<String>,
    #[serde(deserialize_with = "flag")]
    fetch_max_id: bool,
    #[serde(deserialize_with = "flag")]
    deleted: bool,
    offset: Option<i64>,
    limit: Option<i64>,
}

/// Parameters of lists.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Listing {
    subject_prefix: Option<String>,
    #[serde(deserialize_with = "flag")]
    deleted: bool,
    #[serde(deserialize_with = "flag")]
    latest_only: bool,
    offset: Option<i64>,
    limit: Option<i64>,
}

/// `GET /schemas/types`
pub(super) async fn types() -> Response {
    told(&["JSON", "PROTOBUF", "AVRO"])
}

/// `GET /schemas/ids/{id}`
pub(super) async fn one(
    State(served): Here,
    sight: Sight,
    takes: Takes,
    Segments(id): Segments<String>,
    Parameters(asked): Parameters<ById>,
) -> Result<Response, SchemaError> {
    let schema = found(&served, &sight, &asked, &id).await?;
    let text = served.registry.formatted(&schema, asked.format.as_deref());
    let text = text.await?;
    let mut found = Told::schema(&schema).with_text(text.as_deref()).to(takes);
    if asked.fetch_max_id {
        found.max_id = Some(served.registry.log.state().id_max(&schema.context));
    }
    Ok(told(&found))
}

/// `GET /schemas/ids/{id}/schema`
pub(super) async fn text(
    State(served): Here,
    sight: Sight,
    Segments(id): Segments<String>,
    Parameters(asked): Parameters<ById>,
) -> Result<Response, SchemaError> {
    let schema = found(&served, &sight, &asked, &id).await?;
    let text = served.registry.formatted(&schema, asked.format.as_deref());
    Ok(raw(text.await?.as_deref().unwrap_or(&schema.content.text)))
}

/// `GET /schemas/ids/{id}/subjects`
pub(super) async fn subjects(
    State(served): Here,
    sight: Sight,
    Segments(id): Segments<String>,
    Parameters(asked): Parameters<ById>,
) -> Result<Response, SchemaError> {
    let uses = uses(&served, &sight, &asked, &id).await?.into_iter();
    let mut names: Vec<String> = uses.map(|(subject, _)| subject).collect();
    names.dedup();
    list_answer(&page(names, asked.offset, asked.limit))
}

/// `GET /schemas/ids/{id}/versions`
pub(super) async fn versions(
    State(served): Here,
    sight: Sight,
    Segments(id): Segments<String>,
    Parameters(asked): Parameters<ById>,
) -> Result<Response, SchemaError> {
    let uses = uses(&served, &sight, &asked, &id).await?.into_iter();
    let told = uses.map(|(subject, version)| json!({"subject": subject, "version": version}));
    list_answer(&page(told, asked.offset, asked.limit))
}

/// `GET /schemas/guids/{guid}`
pub(super) async fn by_guid(
    State(served): Here,
    sight: Sight,
    Segments(guid): Segments<String>,
    Parameters(switches): Switched,
) -> Result<Response, SchemaError> {
    let schemas = of_guid(&served, &sight, &guid).await?;
    let schema = schemas.first().ok_or_else(|| nothing_of_guid(&guid))?;
    let text = served
        .registry
        .formatted(schema, switches.format.as_deref());
    let text = text.await?;
    Ok(told(&Told::schema(schema).with_text(text.as_deref())))
}

/// `GET /schemas/guids/{guid}/ids`: the id in each context that has the schema.
pub(super) async fn ids_of_guid(
    State(served): Here,
    sight: Sight,
    Segments(guid): Segments<String>,
) -> Result<Response, SchemaError> {
    let schemas = of_guid(&served, &sight, &guid).await?.into_iter();
    let told = schemas.map(|schema| json!({"context": &*schema.context, "id": schema.id}));
    list_answer(&told.collect::<Vec<_>>())
}

/// The schemas of a GUID that its caller may know of, one in each context.
async fn of_guid(
    served: &Served,
    sight: &Sight,
    text: &str,
) -> Result<Vec<Arc<Schema>>, SchemaError> {
    let guid: Uuid = text.parse().map_err(|_| nothing_of_guid(text))?;
    let log = &served.registry.log;
    let found = || -> Vec<Arc<Schema>> {
        let state = log.state();
        let seen = state.by_guid(guid);
        let seen = seen.filter(|schema| sight.sees_id(&state, &schema.context, schema.id));
        seen.cloned().collect()
    };
    let mut schemas = found();
    if schemas.is_empty() {
        // Another process may have registered it just now.
        log.catch_up().await?;
        schemas = found();
    }
    match schemas.is_empty() {
        true => Err(nothing_of_guid(text)),
        false => Ok(schemas),
    }
}

fn nothing_of_guid(text: &str) -> SchemaError {
    let shown: String = text.chars().take(GUID_SHOWN).collect();
    SchemaError::SchemaNotFound(format!("nothing has the GUID {shown}"))
}

/// The subjects that have a schema, with their versions of it.
async fn uses(
    served: &Served,
    sight: &Sight,
    asked: &ById,
    id: &str,
) -> Result<Vec<(String, i32)>, SchemaError> {
    let schema = found(served, sight, asked, id).await?;
    let state = served.registry.log.state();
    // A subject beside its context narrows the answer.
    let only = asked.subject.as_deref().map(|subject| parts(subject).1);
    let uses = state.uses(&schema.context, schema.id);
    let uses = uses.filter(|(name, version)| {
        let is_named = only.is_none_or(|only| only.is_empty() || parts(name).1 == only);
        let is_live = || {
            state
                .version(name, *version)
                .is_some_and(|of| !of.is_deleted)
        };
        is_named && (asked.deleted || is_live()) && sight.sees(name)
    });
    Ok(uses
        .map(|(name, version)| (name.to_owned(), version))
        .collect())
}

/// `GET /schemas`
pub(super) async fn list(
    State(served): Here,
    sight: Sight,
    takes: Takes,
    Parameters(asked): Parameters<Listing>,
) -> Result<Response, SchemaError> {
    let wanted = wanted(asked.subject_prefix.as_deref());
    let state = served.registry.log.state();
    let mut found: Vec<(&str, i32, &Version)> = Vec::new();
    let is_shown = |name: &str| wanted.has(name) && sight.sees(name);
    for (name, versions) in state.subjects().filter(|(name, _)| is_shown(name)) {
        if asked.latest_only {
            let last = match asked.deleted {
                true => versions.last_key_value().map(|(number, of)| (*number, of)),
                false => last_live(versions),
            };
            found.extend(last.map(|(number, version)| (name, number, version)));
            continue;
        }
        let shown = versions.iter();
        let shown = shown.filter(|(_, version)| asked.deleted || !version.is_deleted);
        found.extend(shown.map(|(number, version)| (name, *number, version)));
    }
    let page = page(found, asked.offset, asked.limit).into_iter();
    let told = page.map(|(name, number, version)| Told::version(name, number, version).to(takes));
    list_answer(&told.collect::<Vec<_>>())
}

/// The schema of an id, unless its caller may know of none that has it.
async fn found(
    served: &Served,
    sight: &Sight,
    asked: &ById,
    id: &str,
) -> Result<Arc<Schema>, SchemaError> {
    let id = number(id)?;
    let context = context(served, sight, asked, id).await?;
    let found = served.registry.schema_by_id(&context, id).await?;
    match sight.sees_id(&served.registry.log.state(), &context, id) {
        true => Ok(found),
        false => Err(nothing_of(id)),
    }
}

/// The context whose id is meant: the subject's, and for one that names none the first in which a
/// subject of its name has the id.
async fn context(
    served: &Served,
    sight: &Sight,
    asked: &ById,
    id: i32,
) -> Result<Arc<str>, SchemaError> {
    let subject = asked.subject.as_deref().unwrap_or_default();
    let context = context_of(subject);
    if subject.is_empty() || parts(subject).1 != subject {
        return Ok(context.into());
    }
    let log = &served.registry.log;
    let found = || {
        let state = log.state();
        state.context_with(subject, id, |name| sight.sees(name))
    };
    let mut with = found();
    if with.is_none() {
        // Another process may have registered it just now.
        log.catch_up().await?;
        with = found();
    }
    Ok(with.unwrap_or_else(|| DEFAULT_CONTEXT.into()))
}

fn number(text: &str) -> Result<i32, SchemaError> {
    text.parse()
        .map_err(|_| SchemaError::SchemaNotFound("an id is a number".to_owned()))
}

/// How much of a GUID that is none is repeated, in characters.
const GUID_SHOWN: usize = 100;
