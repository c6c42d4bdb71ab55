//! Subjects and their versions over HTTP.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::form::{
    SubjectPath, Switched, Switches, Takes, Told, VersionPath, flag, flag_of, list as list_answer,
    page, raw, told,
};
use super::{Here, Served};
use crate::answer::{Parameters, Segments};
use crate::schemas::error::SchemaError;
use crate::schemas::parsed::SERIALIZED;
use crate::schemas::registering::Registered;
use crate::schemas::sight::Sight;
use crate::schemas::state::Version;
use crate::schemas::subject::{context_of, qualified, wanted};
use crate::schemas::{AskedVersion, found_version};

/// Parameters of the list of subjects.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Listing {
    subject_prefix: Option<String>,
    #[serde(deserialize_with = "flag")]
    deleted: bool,
    #[serde(deserialize_with = "flag")]
    deleted_only: bool,
    offset: Option<i64>,
    limit: Option<i64>,
}

/// Parameters of a subject's versions.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct VersionListing {
    #[serde(deserialize_with = "flag")]
    deleted: bool,
    #[serde(deserialize_with = "flag")]
    deleted_only: bool,
    offset: Option<i64>,
    limit: Option<i64>,
}

/// Parameters of the list of contexts.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ContextListing {
    context_prefix: Option<String>,
    offset: Option<i64>,
    limit: Option<i64>,
}

/// `GET /contexts`
pub(super) async fn contexts(
    State(served): Here,
    sight: Sight,
    Parameters(asked): Parameters<ContextListing>,
) -> Result<Response, SchemaError> {
    let prefix = asked.context_prefix.unwrap_or_default();
    let state = served.registry.log.state();
    let mut contexts = state.contexts();
    contexts.retain(|of| of.starts_with(&prefix) && sight.sees(&qualified(of, "")));
    list_answer(&page(contexts, asked.offset, asked.limit))
}

/// `DELETE /contexts/{context}`: takes back what was set for a context that has no subjects.
pub(super) async fn delete_context(
    State(served): Here,
    sight: Sight,
    Segments(context): Segments<String>,
) -> Result<Response, SchemaError> {
    let context = context.strip_prefix(':').unwrap_or(&context);
    let context = context.strip_suffix(':').unwrap_or(context);
    let context = match context.starts_with('.') {
        true => context.to_owned(),
        false => format!(".{context}"),
    };
    sight.check(&qualified(&context, ""))?;
    served.registry.delete_context(&context).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET /subjects`
pub(super) async fn list(
    State(served): Here,
    sight: Sight,
    Parameters(asked): Parameters<Listing>,
) -> Result<Response, SchemaError> {
    let wanted = wanted(asked.subject_prefix.as_deref());
    let state = served.registry.log.state();
    let found = state.subjects().filter(|(name, versions)| {
        let is_deleted = versions.values().all(|version| version.is_deleted);
        let is_shown = match (asked.deleted_only, asked.deleted) {
            (true, _) => is_deleted,
            (false, true) => true,
            (false, false) => !is_deleted,
        };
        is_shown && wanted.has(name) && sight.sees(name)
    });
    list_answer(&page(
        found.map(|(name, _)| name),
        asked.offset,
        asked.limit,
    ))
}

/// `POST /subjects/{subject}`: whether a subject has a schema, and as which version.
pub(super) async fn look_up(
    State(served): Here,
    asking: (Sight, Takes),
    SubjectPath(subject): SubjectPath,
    Parameters(switches): Switched,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let (sight, takes) = asking;
    let registry = &served.registry;
    let context = context_of(&subject);
    let new = served.schema(&sight, context, &headers, body).await?;
    let (normalize, deleted) = (switches.normalize, switches.deleted);
    let found = async {
        let found = registry.look_up(&subject, new, normalize, deleted).await?;
        let text = registry.formatted(&found.1.schema, switches.format.as_deref());
        let text = text.await?;
        Ok((found, text))
    };
    let found = found.await;
    let ((number, version), text) = found.map_err(|error: SchemaError| error.into_response())?;
    let found = Told::version(&subject, number, &version).to(takes);
    Ok(told(&found.with_text(text.as_deref())))
}

/// `DELETE /subjects/{subject}`
pub(super) async fn delete(
    State(served): Here,
    SubjectPath(subject): SubjectPath,
    Parameters(switches): Switched,
) -> Result<Response, SchemaError> {
    let deleted = served.registry.delete_subject(&subject, switches.permanent);
    Ok(told(&deleted.await?))
}

/// `GET /subjects/{subject}/versions`
pub(super) async fn versions(
    State(served): Here,
    SubjectPath(subject): SubjectPath,
    Parameters(asked): Parameters<VersionListing>,
) -> Result<Response, SchemaError> {
    let state = served.registry.log.state();
    let found = state.versions(&subject).into_iter().flatten();
    let shown = found.filter(|(_, version)| match (asked.deleted_only, asked.deleted) {
        (true, _) => version.is_deleted,
        (false, true) => true,
        (false, false) => !version.is_deleted,
    });
    let mut numbers = shown.map(|(number, _)| *number).peekable();
    if numbers.peek().is_none() {
        return Err(SchemaError::SubjectNotFound(subject));
    }
    list_answer(&page(numbers, asked.offset, asked.limit))
}

/// `POST /subjects/{subject}/versions`
pub(super) async fn register(
    State(served): Here,
    asking: (Sight, Takes),
    SubjectPath(subject): SubjectPath,
    Parameters(switches): Switched,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let (sight, takes) = asking;
    let context = context_of(&subject);
    let new = served.schema(&sight, context, &headers, body).await?;
    let registered = served
        .registry
        .register_new(&subject, new, switches.normalize);
    let registered = registered.await.map_err(IntoResponse::into_response)?;
    Ok(told_registered(&registered, takes, &switches))
}

/// `POST /subjects/{subject}/versions/{version}/tags`: registers a version with other tags, metadata
/// or rules.
pub(super) async fn retag(
    State(served): Here,
    takes: Takes,
    VersionPath(subject, asked): VersionPath,
    Parameters(switches): Switched,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let change = served.retagging(&headers, body).await?;
    let registered = served.registry.retag(&subject, asked, change);
    let registered = registered.await.map_err(IntoResponse::into_response)?;
    Ok(told_registered(&registered, takes, &switches))
}

/// The id of what was registered, and all of it where it is not as it came or its caller takes it.
fn told_registered(registered: &Registered, takes: Takes, switches: &Switches) -> Response {
    if !registered.is_completed && !takes.guids {
        return told(&json!({"id": registered.id}));
    }
    let whole = Told::registered(registered.id, registered.version, &registered.content);
    let is_serialized = switches.format.as_deref() == Some(SERIALIZED);
    let text = is_serialized.then(|| registered.schema.serialized());
    told(&whole.to(takes).with_text(text.flatten().as_deref()))
}

/// `GET /subjects/{subject}/versions/{version}`
pub(super) async fn version(
    State(served): Here,
    takes: Takes,
    VersionPath(subject, asked): VersionPath,
    Parameters(switches): Switched,
) -> Result<Response, SchemaError> {
    let (number, version, text) = one(&served, &subject, asked, &switches).await?;
    let found = Told::version(&subject, number, &version).to(takes);
    Ok(told(&found.with_text(text.as_deref())))
}

/// `GET /subjects/{subject}/versions/{version}/schema`
pub(super) async fn text(
    State(served): Here,
    VersionPath(subject, asked): VersionPath,
    Parameters(switches): Switched,
) -> Result<Response, SchemaError> {
    let (_, version, text) = one(&served, &subject, asked, &switches).await?;
    let text = text.as_deref().unwrap_or(&version.schema.content.text);
    Ok(raw(text))
}

async fn one(
    served: &Served,
    subject: &str,
    asked: AskedVersion,
    switches: &Switches,
) -> Result<(i32, Version, Option<String>), SchemaError> {
    let registry = &served.registry;
    let found = found_version(&registry.log.state(), subject, asked, switches.deleted);
    let (number, version) = found?;
    let text = registry.formatted(&version.schema, switches.format.as_deref());
    let text = text.await?;
    Ok((number, version, text))
}

/// `GET /subjects/{subject}/versions/{version}/referencedby`: the ids of schemas that name it.
pub(super) async fn referrers(
    State(served): Here,
    VersionPath(subject, asked): VersionPath,
    Parameters(switches): Switched,
) -> Result<Response, SchemaError> {
    let state = served.registry.log.state();
    let (number, _) = found_version(&state, &subject, asked, switches.deleted)?;
    let referrers = state.referrers(&subject, number).into_iter();
    let mut ids: Vec<i32> = referrers.map(|schema| schema.id).collect();
    ids.sort_unstable();
    ids.dedup();
    list_answer(&page(ids, switches.offset, switches.limit))
}

/// `DELETE /subjects/{subject}/versions/{version}`
pub(super) async fn delete_version(
    State(served): Here,
    VersionPath(subject, asked): VersionPath,
    Parameters(switches): Switched,
) -> Result<Response, SchemaError> {
    let registry = &served.registry;
    let deleted = registry.delete_version(&subject, asked, switches.permanent);
    Ok(told(&deleted.await?))
}

/// `GET /subjects/{subject}/metadata?key=…&value=…`: the last version whose properties have these.
pub(super) async fn by_metadata(
    State(served): Here,
    takes: Takes,
    SubjectPath(subject): SubjectPath,
    Parameters(asked): Parameters<Vec<(String, String)>>,
) -> Result<Response, SchemaError> {
    let all = |name: &str| -> Vec<&str> {
        let named = asked.iter().filter(|(key, _)| key == name);
        named.map(|(_, value)| value.as_str()).collect()
    };
    let (keys, values) = (all("key"), all("value"));
    let with_deleted = all("deleted").first().copied().unwrap_or_default();
    let with_deleted = flag_of(with_deleted)
        .map_err(|reason| SchemaError::BadRequest(format!("deleted: {reason}")))?;
    let registry = &served.registry;
    let found = {
        let state = registry.log.state();
        let versions = state.versions(&subject);
        let versions = versions.ok_or_else(|| SchemaError::SubjectNotFound(subject.clone()))?;
        let mut shown = versions.iter().rev();
        let found = shown.find(|(_, version)| {
            let content = &version.schema.content;
            let has =
                |(key, value): (&&str, &&str)| content.property(key).as_deref() == Some(*value);
            (with_deleted || !version.is_deleted) && keys.iter().zip(&values).all(has)
        });
        found.map(|(number, version)| (*number, version.clone()))
    };
    let (number, version) = found.ok_or_else(|| {
        SchemaError::SchemaNotFound(format!("no version of '{subject}' has these properties"))
    })?;
    let format = all("format").first().copied();
    let text = registry.formatted(&version.schema, format).await?;
    let found = Told::version(&subject, number, &version).to(takes);
    Ok(told(&found.with_text(text.as_deref())))
}
