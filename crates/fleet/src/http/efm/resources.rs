//! EFM's paths of resources: upload by form, assignment to classes.

use std::sync::Arc;

use axum::Router;
use axum::extract::multipart::MultipartRejection;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Multipart, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post, put};
use serde::Deserialize;
use serde_json::{Value, json as object};

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::http::management::asked;
use crate::http::{Failure, body, json};
use crate::resource::{NewResource, Resource, ResourceKind};
use crate::rights::Rights;

pub fn routes() -> Router<Arc<Fleet>> {
    // Its bytes are counted as they are written.
    let upload = post(upload).layer(DefaultBodyLimit::disable());
    Router::new()
        .route("/efm/api/resource-manager/resources", get(resources))
        .route("/efm/api/resource-manager/resources/file", upload)
        .route(
            "/efm/api/agent-class-resource-manager/{class}/save",
            put(save),
        )
        .route(
            "/efm/api/agent-class-resource-manager/{class}/assigned",
            get(assigned),
        )
}

async fn resources(State(fleet): State<Arc<Fleet>>, rights: Rights) -> Result<Response, Failure> {
    let mut resources = fleet.resources();
    resources.retain(|resource| rights.sees_all() || rights.sees_resource(&resource.classes));
    let told: Vec<Value> = resources
        .iter()
        .map(|r| resource_object(&r.resource))
        .collect();
    json(StatusCode::OK, &told)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct UploadQuery {
    name: String,
    resource_type: Option<String>,
    #[serde(default)]
    relative_path_on_agent: String,
    #[serde(default)]
    notes: String,
}

async fn upload(
    State(fleet): State<Arc<Fleet>>,
    query: Result<Query<UploadQuery>, QueryRejection>,
    form: Result<Multipart, MultipartRejection>,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    let refused = |rejection: MultipartRejection| {
        Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, rejection.body_text())
    };
    let mut form = form.map_err(refused)?;
    let kind = query.resource_type.as_deref().unwrap_or("ASSET");
    let new = NewResource {
        name: query.name,
        kind: kind
            .parse::<ResourceKind>()
            .map_err(|()| FleetError::BadField {
                field: "resourceType".to_owned(),
                reason: format!("'{kind}' is not known: use ASSET or EXTENSION"),
            })?,
        path: query.relative_path_on_agent,
        notes: query.notes,
    };
    let broken =
        |error: axum::extract::multipart::MultipartError| FleetError::Broken(error.body_text());
    while let Some(mut field) = form.next_field().await.map_err(broken)? {
        if field.name() != Some("file") {
            continue;
        }
        let (id, mut upload) = fleet.begin_resource(&new).await?;
        let received: Result<(), FleetError> = async {
            while let Some(bytes) = field.chunk().await.map_err(broken)? {
                upload.take(bytes).await?;
            }
            Ok(())
        }
        .await;
        if let Err(error) = received {
            upload.give_up().await;
            return Err(error.into());
        }
        let made = fleet.finish_resource(id, new, upload).await?;
        return json(StatusCode::CREATED, &resource_object(&made.resource));
    }
    let message = "the form has no field 'file'";
    Err(Failure::new(StatusCode::BAD_REQUEST, message))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Assignment {
    #[serde(default)]
    resource_ids_to_be_assigned: Vec<String>,
    #[serde(default)]
    resource_ids_to_be_unassigned: Vec<String>,
}

async fn save(
    State(fleet): State<Arc<Fleet>>,
    Path(class): Path<String>,
    rights: Rights,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let wanted: Assignment = taken.json()?;
    let (assign, unassign) = (
        &wanted.resource_ids_to_be_assigned,
        &wanted.resource_ids_to_be_unassigned,
    );
    for id in assign.iter().chain(unassign) {
        fleet.check_resource_seen(&rights, id)?;
    }
    let assigned = fleet
        .assign_resources(&class, assign, unassign, None)
        .await?;
    let told: Vec<Value> = assigned
        .resources
        .iter()
        .map(|r| resource_object(r))
        .collect();
    json(StatusCode::OK, &told)
}

async fn assigned(
    State(fleet): State<Arc<Fleet>>,
    Path(class): Path<String>,
) -> Result<Response, Failure> {
    let assigned = fleet.class_resources(&class)?;
    let told: Vec<Value> = assigned
        .resources
        .iter()
        .map(|r| resource_object(r))
        .collect();
    json(StatusCode::OK, &told)
}

fn resource_object(resource: &Resource) -> Value {
    object!({
        "id": resource.id,
        "name": resource.name,
        "resourceType": resource.kind,
        "relativePathOnAgent": resource.path,
        "notes": resource.notes,
        "size": resource.bytes,
        "digest": resource.sha512,
        "hashType": "SHA-512",
        "created": resource.created,
    })
}
