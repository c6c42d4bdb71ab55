//! Resources, under `/api/v1/`.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};

use crate::error::FleetError;
use crate::files::Upload;
use crate::fleet::Fleet;
use crate::http::files::{self, Outgoing};
use crate::http::management::asked;
use crate::http::{Failure, body, json};
use crate::resource::{NewResource, ResourceKind};
use crate::rights::Rights;
use crate::views::ResourceView;

/// The routes of resources.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    Router::new()
        .route("/api/v1/resources", get(resources).post(upload))
        .route("/api/v1/resources/{id}", get(resource).delete(remove))
        .route("/api/v1/resources/{id}/content", get(content))
        .route(
            "/api/v1/classes/{name}/resources",
            get(assigned).put(assign),
        )
        .with_state(fleet)
}

/// A resource's content; agents fetch it by the same words.
pub async fn content(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let found = fleet.resource(&id)?.resource;
    let file = Outgoing {
        id: &found.id,
        name: &found.name,
        bytes: found.bytes,
        sha512: &found.sha512,
    };
    files::send(&fleet, &headers, file).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UploadQuery {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    path: String,
    #[serde(default)]
    notes: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Assignment {
    #[serde(default)]
    assign: Vec<String>,
    #[serde(default)]
    unassign: Vec<String>,
    #[serde(default)]
    at_once: Option<u32>,
}

#[derive(Serialize)]
struct Resources {
    resources: Vec<ResourceView>,
}

async fn resources(State(fleet): State<Arc<Fleet>>, rights: Rights) -> Result<Response, Failure> {
    let mut resources = fleet.resources();
    resources.retain(|resource| rights.sees_all() || rights.sees_resource(&resource.classes));
    resources
        .iter_mut()
        .for_each(|resource| hide(&rights, resource));
    json(StatusCode::OK, &Resources { resources })
}

async fn resource(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    rights: Rights,
) -> Result<Response, Failure> {
    let mut found = fleet.resource(&id)?;
    hide(&rights, &mut found);
    json(StatusCode::OK, &found)
}

/// Leaves out the classes that are not the caller's to see.
fn hide(rights: &Rights, resource: &mut ResourceView) {
    resource.classes.retain(|class| rights.sees(Some(class)));
}

async fn remove(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    fleet.remove_resource(&id).await?;
    json(StatusCode::OK, &serde_json::Map::new())
}

async fn upload(
    State(fleet): State<Arc<Fleet>>,
    query: Result<Query<UploadQuery>, QueryRejection>,
    request: Request,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    let kind = query.kind.as_deref().unwrap_or("ASSET");
    let new = NewResource {
        name: query.name,
        kind: kind
            .parse::<ResourceKind>()
            .map_err(|()| FleetError::BadField {
                field: "type".to_owned(),
                reason: format!("'{kind}' is not known: use ASSET or EXTENSION"),
            })?,
        path: query.path,
        notes: query.notes,
    };
    let (id, mut upload) = fleet.begin_resource(&new).await?;
    match receive(request.into_body(), &mut upload).await {
        Ok(()) => {
            let made = fleet.finish_resource(id, new, upload).await?;
            json(StatusCode::CREATED, &made)
        }
        Err(error) => {
            upload.give_up().await;
            Err(error.into())
        }
    }
}

async fn receive(mut body: Body, upload: &mut Upload<'_>) -> Result<(), FleetError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| FleetError::Broken(base::report(&error)))?;
        if let Ok(data) = frame.into_data() {
            upload.take(data).await?;
        }
    }
    Ok(())
}

async fn assigned(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.class_resources(&name)?)
}

async fn assign(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
    rights: Rights,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let wanted: Assignment = taken.json()?;
    for id in wanted.assign.iter().chain(&wanted.unassign) {
        fleet.check_resource_seen(&rights, id)?;
    }
    let assigned = fleet
        .assign_resources(&name, &wanted.assign, &wanted.unassign, wanted.at_once)
        .await?;
    json(StatusCode::OK, &assigned)
}
