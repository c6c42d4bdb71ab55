//! Whether a schema could be registered, without registering it.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Here;
use super::form::{SubjectPath, Switched, Switches, VersionPath, told};
use crate::answer::Parameters;
use crate::schemas::AskedVersion;
use crate::schemas::sight::Sight;
use crate::schemas::subject::context_of;

/// `POST /compatibility/subjects/{subject}/versions`: by the versions that its level is about.
pub(super) async fn against_all(
    here: Here,
    sight: Sight,
    SubjectPath(subject): SubjectPath,
    switches: Switched,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    compare(here, &sight, &subject, None, switches, &headers, body).await
}

/// `POST /compatibility/subjects/{subject}/versions/{version}`
pub(super) async fn against_one(
    here: Here,
    sight: Sight,
    VersionPath(subject, version): VersionPath,
    switches: Switched,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let against = Some(version);
    compare(here, &sight, &subject, against, switches, &headers, body).await
}

async fn compare(
    State(served): Here,
    sight: &Sight,
    subject: &str,
    against: Option<AskedVersion>,
    Parameters(switches): Switched,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let Switches {
        normalize, verbose, ..
    } = switches;
    let new = served
        .schema(sight, context_of(subject), headers, body)
        .await?;
    let compared = served.registry.compare(subject, new, against, normalize);
    let reasons = compared.await.map_err(IntoResponse::into_response)?;
    Ok(match verbose {
        true => told(&json!({"is_compatible": reasons.is_empty(), "messages": reasons})),
        false => told(&json!({"is_compatible": reasons.is_empty()})),
    })
}
