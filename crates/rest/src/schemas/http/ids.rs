//! Schemas by their ids, and all of them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::form::{Told, flag, list as list_answer, raw, told};
use super::sight::Sight;
use super::{Here, Served};
use crate::answer::{Parameters, Segments};
use crate::schemas::error::SchemaError;
use crate::schemas::nothing_of;
use crate::schemas::state::{Schema, Version, last_live};
use crate::schemas::subject::{DEFAULT_CONTEXT, context_of, parts, wanted};

/// Parameters of the calls by id.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ById {
    /// Its context is where the id counts.
    subject: Option<String>,
    /// `serialized` asks for a Protobuf schema's descriptor in base64.
    format: Option<String>,
    #[serde(deserialize_with = "flag")]
    fetch_max_id: bool,
    #[serde(deserialize_with = "flag")]
    deleted: bool,
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
    Segments(id): Segments<String>,
    Parameters(asked): Parameters<ById>,
) -> Result<Response, SchemaError> {
    let context = context(&asked);
    let schema = found(&served, &sight, context, &id).await?;
    let text = served.registry.formatted(&schema, asked.format.as_deref());
    let text = text.await?;
    let mut found = Told::schema(&schema).with_text(text.as_deref());
    if asked.fetch_max_id {
        found.max_id = Some(served.registry.log.state().id_max(context));
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
    let schema = found(&served, &sight, context(&asked), &id).await?;
    let text = served.registry.formatted(&schema, asked.format.as_deref());
    Ok(raw(text.await?.as_deref().unwrap_or(&schema.content.text)))
}

/// `GET /schemas/ids/{id}/subjects`
pub(super) async fn subjects(
    here: Here,
    sight: Sight,
    id: Segments<String>,
    asked: Parameters<ById>,
) -> Result<Response, SchemaError> {
    let mut names: Vec<String> = uses(here, sight, id, asked)
        .await?
        .into_iter()
        .map(|(subject, _)| subject)
        .collect();
    names.dedup();
    list_answer(&names)
}

/// `GET /schemas/ids/{id}/versions`
pub(super) async fn versions(
    here: Here,
    sight: Sight,
    id: Segments<String>,
    asked: Parameters<ById>,
) -> Result<Response, SchemaError> {
    let uses = uses(here, sight, id, asked).await?.into_iter();
    let told: Vec<_> = uses
        .map(|(subject, version)| serde_json::json!({"subject": subject, "version": version}))
        .collect();
    list_answer(&told)
}

/// The subjects that have a schema, with their versions of it.
async fn uses(
    State(served): Here,
    sight: Sight,
    Segments(id): Segments<String>,
    Parameters(asked): Parameters<ById>,
) -> Result<Vec<(String, i32)>, SchemaError> {
    let context = context(&asked);
    let schema = found(&served, &sight, context, &id).await?;
    let state = served.registry.log.state();
    // A subject beside its context narrows the answer.
    let only = asked.subject.as_deref().map(|subject| parts(subject).1);
    let uses = state.uses(context, schema.id).filter(|(name, version)| {
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
    let skipped = usize::try_from(asked.offset.unwrap_or(0)).unwrap_or(0);
    let taken = asked.limit.and_then(|limit| usize::try_from(limit).ok());
    let page = found.iter().skip(skipped).take(taken.unwrap_or(usize::MAX));
    let told: Vec<Told> = page
        .map(|(name, number, version)| Told::version(name, *number, version))
        .collect();
    list_answer(&told)
}

/// The schema of an id, unless its caller may know of none that has it.
async fn found(
    served: &Served,
    sight: &Sight,
    context: &str,
    id: &str,
) -> Result<Arc<Schema>, SchemaError> {
    let id = number(id)?;
    let found = served.registry.schema_by_id(context, id).await?;
    match sight.sees_id(&served.registry.log.state(), context, id) {
        true => Ok(found),
        false => Err(nothing_of(id)),
    }
}

fn context(asked: &ById) -> &str {
    asked.subject.as_deref().map_or(DEFAULT_CONTEXT, context_of)
}

fn number(text: &str) -> Result<i32, SchemaError> {
    text.parse()
        .map_err(|_| SchemaError::SchemaNotFound("an id is a number".to_owned()))
}
