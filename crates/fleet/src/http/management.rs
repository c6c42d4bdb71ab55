//! What operators call, under `/api/v1/`.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};

use crate::fleet::{AgentFilter, Fleet, unknown_class};
use crate::http::{Failure, json};
use crate::limits;
use crate::views::ClassView;

/// The management routes.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    Router::new()
        .route("/api/v1/agents", get(agents))
        .route("/api/v1/agents/{id}", get(agent))
        .route("/api/v1/classes", get(classes))
        .route("/api/v1/classes/{name}", get(class))
        .route("/api/v1/manifests/{hash}", get(manifest))
        .with_state(fleet)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentsQuery {
    class: Option<String>,
    state: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Classes {
    classes: Vec<ClassView>,
}

async fn agents(
    State(fleet): State<Arc<Fleet>>,
    query: Result<Query<AgentsQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    if let Some(state) = query.state.as_deref()
        && !["online", "missing"].contains(&state)
    {
        let message = format!("state '{state}' is not known: use online or missing");
        return Err(Failure::new(StatusCode::BAD_REQUEST, message));
    }
    let filter = AgentFilter {
        class: query.class,
        state: query.state,
        after: query.after,
        limit: query.limit.unwrap_or(limits::PAGE_ITEMS_DEFAULT),
    };
    json(StatusCode::OK, &fleet.agents(&filter))
}

async fn agent(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.agent(&id)?)
}

async fn classes(State(fleet): State<Arc<Fleet>>) -> Result<Response, Failure> {
    json(
        StatusCode::OK,
        &Classes {
            classes: fleet.classes(),
        },
    )
}

async fn class(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    let found = fleet.classes().into_iter().find(|class| class.name == name);
    json(StatusCode::OK, &found.ok_or_else(|| unknown_class(&name))?)
}

async fn manifest(
    State(fleet): State<Arc<Fleet>>,
    Path(hash): Path<String>,
) -> Result<Response, Failure> {
    let mut response = fleet.manifest_text(&hash).await?.into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

/// The parameters of a request's address.
pub(super) fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Failure> {
    query
        .map(|Query(query)| query)
        .map_err(|rejection| Failure::new(StatusCode::BAD_REQUEST, rejection.body_text()))
}
