//! EFM's paths of flows: summaries, validation, publication, export and import.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json as object};

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::flow::{self, FlowShape};
use crate::http::audit::Details;
use crate::http::{Failure, body, json};
use crate::rights::Rights;
use crate::views::FlowView;

pub fn routes() -> Router<Arc<Fleet>> {
    Router::new()
        .route("/efm/api/designer/flows/summaries", get(summaries))
        .route("/efm/api/designer/flows/{id}", get(flow))
        .route("/efm/api/designer/flows/{id}/validate", get(validate))
        .route("/efm/api/designer/flows/{id}/publish", post(publish))
        .route("/efm/api/designer/{class}/flows/export", get(export))
        .route("/efm/api/designer/{class}/flows/import", post(import))
}

/// The newest flow of each class.
async fn summaries(State(fleet): State<Arc<Fleet>>, rights: Rights) -> Result<Response, Failure> {
    let mut elements = Vec::new();
    for class in fleet.classes() {
        if !rights.sees(Some(&class.name)) {
            continue;
        }
        let newest = fleet.flows(&class.name)?.into_iter().next();
        elements.extend(newest.map(|newest| metadata(&newest)));
    }
    json(StatusCode::OK, &object!({"elements": elements}))
}

async fn flow(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let (text, _, _) = fleet.flow_text(&id).await?;
    let (_, content) = flow::read(&text)?;
    let told = object!({"flowMetadata": metadata(&fleet.flow_view(&id)?), "flowContent": content});
    json(StatusCode::OK, &told)
}

async fn validate(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let (text, _, _) = fleet.flow_text(&id).await?;
    let class = fleet.flow_view(&id)?.class;
    let checked = fleet.check_flow(&class, &text).await?;
    let errors: Vec<Value> = checked
        .problems
        .iter()
        .map(|problem| {
            object!({
                "componentId": problem.component_id,
                "componentName": problem.component,
                "property": problem.property,
                "message": problem.reason,
            })
        })
        .collect();
    json(StatusCode::OK, &object!({"validationErrors": errors}))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Publication {
    #[serde(default)]
    comments: String,
}

/// Publishes a version of its class again, as the newest.
async fn publish(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let asked: Publication = match taken.bytes.is_empty() {
        true => Publication::default(),
        false => taken.json()?,
    };
    let published = fleet.publish_again(&id).await?;
    let told = metadata(&fleet.flow_view(&published.flow_id)?);
    let mut response = json(StatusCode::OK, &told)?;
    let details = format!("flow {}: {}", published.flow_id, asked.comments);
    response.extensions_mut().insert(Details(details));
    Ok(response)
}

/// The newest flow of a class with what its agents have, as [`import`] takes it.
async fn export(
    State(fleet): State<Arc<Fleet>>,
    Path(class): Path<String>,
) -> Result<Response, Failure> {
    let newest = fleet.flows(&class)?.into_iter().next();
    let newest = newest.ok_or_else(|| FleetError::Unknown {
        what: "flow of the class",
        name: class.clone(),
        list: "/efm/api/designer/flows/summaries",
    })?;
    let (text, _, _) = fleet.flow_text(&newest.flow_id).await?;
    let (shape, content) = flow::read(&text)?;
    let told = object!({
        "exportableFlowFormat": shape.as_str(),
        "flowContent": content,
        "parameterContexts": [],
        "agentManifest": fleet.resolved_manifest(&class),
    });
    json(StatusCode::OK, &told)
}

/// What [`export`] gives, or what EFM's does; the agents' manifest is not looked at.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Exported {
    exportable_flow_format: Option<String>,
    flow_content: Value,
    parameter_contexts: Option<Value>,
    #[serde(rename = "agentManifest")]
    _agent_manifest: Option<Value>,
}

impl Exported {
    /// The flow's text, with the parameter contexts that stood beside it.
    fn text(mut self) -> Result<Bytes, FleetError> {
        let contexts = self
            .parameter_contexts
            .filter(|all| all.as_array().is_some_and(|a| !a.is_empty()));
        let flow = self.flow_content.as_object_mut();
        if let (Some(contexts), Some(flow)) = (contexts, flow) {
            flow.entry("parameterContexts").or_insert(contexts);
        }
        let is_yaml = self.exportable_flow_format.as_deref() == Some("yaml");
        let shape = if is_yaml {
            FlowShape::Yaml
        } else {
            FlowShape::Json
        };
        flow::write(shape, &self.flow_content)
    }
}

/// Stores a flow as the newest version of a class; nothing reaches agents until it is published.
async fn import(
    State(fleet): State<Arc<Fleet>>,
    Path(class): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let exported: Exported = taken.json()?;
    let published = fleet
        .publish_checked(&class, exported.text()?, false, false)
        .await?;
    let mut response = json(
        StatusCode::CREATED,
        &metadata(&fleet.flow_view(&published.flow_id)?),
    )?;
    let details = format!("flow {}, version {}", published.flow_id, published.version);
    response.extensions_mut().insert(Details(details));
    Ok(response)
}

fn metadata(flow: &FlowView) -> Value {
    object!({
        "identifier": flow.flow_id,
        "agentClass": flow.class,
        "version": flow.version,
        "flowFormat": flow.shape,
        "created": flow.created_ms,
        "published": flow.current,
    })
}
