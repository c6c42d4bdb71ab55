//! Which manifest stands for a class, under `/api/v1/`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::http::{Failure, body, json};
use crate::registry::Resolution;

/// The routes of classes' manifests.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    let path = "/api/v1/classes/{name}/manifest";
    Router::new()
        .route(path, get(read).put(set).delete(reset))
        .with_state(fleet)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    resolution: String,
    hash: Option<String>,
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
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let bad = |field: &str, reason: String| FleetError::BadField {
        field: field.to_owned(),
        reason,
    };
    let wanted: Wanted =
        serde_json::from_slice(&taken.bytes).map_err(|e| bad("the body", e.to_string()))?;
    let resolution = Resolution::of_parts(&wanted.resolution, wanted.hash.as_deref());
    let resolution = resolution.ok_or_else(|| {
        let reason = "use first, last or most, or pinned with the hash of a manifest";
        bad("resolution", reason.to_owned())
    })?;
    let set = fleet.set_resolution(&name, Some(resolution)).await?;
    json(StatusCode::OK, &set)
}

async fn reset(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.set_resolution(&name, None).await?)
}
