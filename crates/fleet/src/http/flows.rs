//! Flows and their parameters, under `/api/v1/`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::flow::diff::Difference;
use crate::http::audit::Details;
use crate::http::c2_routes::flow_response;
use crate::http::management::asked;
use crate::http::{Failure, body, json};
use crate::parameter::{Fetched, Level, NewParameter, ParameterView};
use crate::rights::Rights;
use crate::views::{FlowView, Published};

/// The routes of flows and parameters.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    let mut router = Router::new()
        .route("/api/v1/classes/{name}/flows", get(flows).post(publish))
        .route("/api/v1/classes/{name}/flows/check", post(check))
        .route("/api/v1/flows/{id}", get(flow))
        .route("/api/v1/flows/{id}/publish", post(publish_again))
        .route("/api/v1/flows/{id}/diff", get(diff));
    for (path, level) in [
        ("/api/v1/flows/{id}/parameters", Level::Flow),
        ("/api/v1/classes/{id}/parameters", Level::Class),
        ("/api/v1/agents/{id}/parameters", Level::Agent),
    ] {
        let read = move |State(fleet): State<Arc<Fleet>>, Path(owner): Path<String>| async move {
            parameters(fleet.parameters(level, &owner).await?)
        };
        let write = move |State(fleet): State<Arc<Fleet>>,
                          Path(owner): Path<String>,
                          request: Request| async move {
            let wanted = wanted(request).await?;
            parameters(fleet.set_parameters(level, &owner, wanted).await?)
        };
        router = router.route(path, get(read).patch(write));
    }
    router.with_state(fleet)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishQuery {
    #[serde(default)]
    force: bool,
    deploy: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiffQuery {
    against: Option<String>,
}

#[derive(Serialize)]
struct Flows {
    flows: Vec<FlowView>,
}

#[derive(Serialize)]
struct Differences {
    flow_id: String,
    against: Option<String>,
    differences: Vec<Difference>,
}

#[derive(Serialize)]
struct Parameters {
    parameters: Vec<ParameterView>,
}

async fn flows(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    let flows = fleet.flows(&name)?;
    json(StatusCode::OK, &Flows { flows })
}

async fn publish(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
    query: Result<Query<PublishQuery>, QueryRejection>,
    request: Request,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    let taken = body::take(request).await?;
    let text = taken.bytes.clone();
    let published = fleet
        .publish_checked(&name, text, query.force, query.deploy.unwrap_or(true))
        .await?;
    told(&published)
}

/// What was published, for the audit too.
fn told(published: &Published) -> Result<Response, Failure> {
    let mut response = json(StatusCode::CREATED, published)?;
    let details = format!("flow {}, version {}", published.flow_id, published.version);
    response.extensions_mut().insert(Details(details));
    Ok(response)
}

async fn check(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    json(
        StatusCode::OK,
        &fleet.check_flow(&name, &taken.bytes).await?,
    )
}

/// The text as it was published, without values of parameters.
async fn flow(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let (text, shape, sha256) = fleet.flow_text(&id).await?;
    Ok(flow_response(Fetched {
        text,
        shape,
        sha256,
    }))
}

async fn publish_again(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    told(&fleet.publish_again(&id).await?)
}

async fn diff(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    rights: Rights,
    query: Result<Query<DiffQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    if let Some(against) = &query.against {
        fleet.check_flow_seen(&rights, against)?;
    }
    let against = query.against.as_deref();
    let (against, differences) = fleet.flow_differences(&id, against).await?;
    let answer = Differences {
        flow_id: id,
        against,
        differences,
    };
    json(StatusCode::OK, &answer)
}

async fn wanted(request: Request) -> Result<BTreeMap<String, Option<NewParameter>>, Failure> {
    let taken = body::take(request).await?;
    // What is wrong is told without the values: one of them may be a secret.
    serde_json::from_slice(&taken.bytes).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        let reason =
            "write {\"name\": {\"value\": text, \"sensitive\": true or false}}; null removes one";
        Failure::from(FleetError::BadField {
            field: place,
            reason: reason.to_owned(),
        })
    })
}

fn parameters(parameters: Vec<ParameterView>) -> Result<Response, Failure> {
    json(StatusCode::OK, &Parameters { parameters })
}
