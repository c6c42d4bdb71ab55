//! Manifests, and which of them stands for a class, under `/api/v1/`.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::http::management::{aside, asked, need_class};
use crate::http::{Failure, body, json};
use crate::manifests::ManifestView;
use crate::registry::Resolution;
use crate::rights::Rights;

/// The routes of manifests and of classes' manifests.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    let path = "/api/v1/classes/{name}/manifest";
    Router::new()
        .route(path, get(read).put(set).delete(reset))
        .route("/api/v1/manifests", get(list))
        .route("/api/v1/manifests/{hash}", get(manifest).delete(remove))
        .route("/api/v1/manifests/{hash}/diff", get(diff))
        .with_state(fleet)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    resolution: String,
    hash: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ManifestsQuery {
    class: Option<String>,
}

#[derive(Serialize)]
struct Manifests {
    manifests: Vec<ManifestView>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiffQuery {
    against: String,
}

async fn list(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    query: Result<Query<ManifestsQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let manifests = listed(fleet, rights, query).await?;
    json(StatusCode::OK, &Manifests { manifests })
}

/// The manifests that a request asks for; the same for EFM's path.
pub(super) async fn listed(
    fleet: Arc<Fleet>,
    rights: Rights,
    query: Result<Query<ManifestsQuery>, QueryRejection>,
) -> Result<Vec<ManifestView>, Failure> {
    let query = asked(query)?;
    need_class(&rights, query.class.as_deref())?;
    aside(move || fleet.manifests(&rights, query.class.as_deref())).await
}

/// Removes a manifest that no agent has; the same for EFM's path.
pub(super) async fn remove(
    State(fleet): State<Arc<Fleet>>,
    Path(hash): Path<String>,
) -> Result<Response, Failure> {
    fleet.remove_manifest(&hash).await?;
    json(StatusCode::OK, &serde_json::Map::new())
}

/// A manifest, without what is one agent's own; the same for EFM's path.
pub(super) async fn manifest(
    State(fleet): State<Arc<Fleet>>,
    Path(hash): Path<String>,
) -> Result<Response, Failure> {
    let mut response = fleet.manifest_text(&hash).await?.into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

async fn diff(
    State(fleet): State<Arc<Fleet>>,
    Path(hash): Path<String>,
    rights: Rights,
    query: Result<Query<DiffQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let against = asked(query)?.against;
    fleet.check_manifest_seen(&rights, &against)?;
    let told = fleet.manifest_differences(&hash, &against).await?;
    json(StatusCode::OK, &told)
}

async fn read(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.class_manifest(&name)?)
}

async fn set(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
    rights: Rights,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let wanted: Wanted = taken.json()?;
    let resolution = Resolution::of_parts(&wanted.resolution, wanted.hash.as_deref());
    let resolution = resolution.ok_or_else(|| {
        let reason = "use first, last or most, or pinned or named with the hash of a manifest";
        FleetError::BadField {
            field: "resolution".to_owned(),
            reason: reason.to_owned(),
        }
    })?;
    if let Some(hash) = &wanted.hash {
        fleet.check_manifest_seen(&rights, hash)?;
    }
    let set = fleet.set_resolution(&name, Some(resolution)).await?;
    json(StatusCode::OK, &set)
}

async fn reset(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.set_resolution(&name, None).await?)
}
