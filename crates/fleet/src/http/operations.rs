//! What operators ask of agents, under `/api/v1/`.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use crate::fleet::Fleet;
use crate::history::{OperationFilter, Place};
use crate::http::audit::Details;
use crate::http::management::{aside, asked, need_class};
use crate::http::{Failure, body, json};
use crate::limits;
use crate::operation::OperationStatus;
use crate::progress::{RequestFilter, RequestView};
use crate::request::Target;
use crate::rights::Rights;
use crate::views::OperationsPage;

/// The routes of operations.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    Router::new()
        .route("/api/v1/agents/{id}/operations", post(ask_agent))
        .route("/api/v1/classes/{name}/operations", post(ask_class))
        .route("/api/v1/operations", get(operations))
        .route("/api/v1/operations/{id}", get(operation))
        .route("/api/v1/operations/{id}/result", get(result))
        .route("/api/v1/operations/{id}/cancel", post(cancel))
        .route("/api/v1/requests", get(requests))
        .route("/api/v1/requests/{id}", get(request_of).patch(pace))
        .route("/api/v1/requests/{id}/cancel", post(cancel_request))
        .with_state(fleet)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OperationsQuery {
    agent: Option<String>,
    class: Option<String>,
    state: Option<String>,
    request: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestsQuery {
    class: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pace {
    at_once: u32,
}

#[derive(Serialize)]
struct Requests {
    requests: Vec<RequestView>,
}

#[derive(Serialize)]
struct Cancelled {
    cancelled: usize,
}

async fn ask_agent(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    rights: Rights,
    request: Request,
) -> Result<Response, Failure> {
    ask(&fleet, &rights, Target::Agent(id), request).await
}

async fn ask_class(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
    rights: Rights,
    request: Request,
) -> Result<Response, Failure> {
    ask(&fleet, &rights, Target::Class(name), request).await
}

async fn ask(
    fleet: &Fleet,
    rights: &Rights,
    target: Target,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let asked = fleet.ask(rights, target, &taken.bytes).await?;
    let mut response = json(StatusCode::CREATED, &asked)?;
    let details = format!("{}, request {}", asked.operation, asked.request_id);
    response.extensions_mut().insert(Details(details));
    Ok(response)
}

async fn operations(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    query: Result<Query<OperationsQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    need_class(&rights, query.class.as_deref())?;
    if let Some(state) = &query.state
        && state.parse::<OperationStatus>().is_err()
    {
        let message = format!(
            "state '{state}' is not known: use queued, deployed, done, failed, timed_out or cancelled"
        );
        return Err(Failure::new(StatusCode::BAD_REQUEST, message));
    }
    let filter = OperationFilter {
        agent: query.agent,
        class: query.class,
        state: query.state,
        request: query.request,
        after: query.after.as_deref().map(Place::read).transpose()?,
        limit: query.limit.unwrap_or(limits::PAGE_ITEMS_DEFAULT),
        rights,
    };
    json(StatusCode::OK, &listed(fleet, filter).await?)
}

/// A page of operations; the same for EFM's path.
pub(super) async fn listed(
    fleet: Arc<Fleet>,
    filter: OperationFilter,
) -> Result<OperationsPage, Failure> {
    Ok(aside(move || fleet.operations(&filter)).await??)
}

async fn operation(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.operation(&id)?)
}

async fn result(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    fleet.operation(&id)?;
    let Some(content) = fleet.operation_result(&id).await? else {
        let message = format!("the operation '{id}' brought no description");
        return Err(Failure::new(StatusCode::NOT_FOUND, message));
    };
    let mut response = content.into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

async fn cancel(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.cancel(&id).await?)
}

async fn requests(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    query: Result<Query<RequestsQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    need_class(&rights, query.class.as_deref())?;
    let filter = RequestFilter {
        class: query.class,
        limit: query.limit.unwrap_or(limits::PAGE_ITEMS_DEFAULT),
        rights,
    };
    let requests = aside(move || fleet.requests(&filter)).await?;
    json(StatusCode::OK, &Requests { requests })
}

async fn request_of(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.request(&id).await?)
}

async fn pace(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let wanted: Pace = taken.json()?;
    json(
        StatusCode::OK,
        &fleet.pace_request(&id, wanted.at_once).await?,
    )
}

async fn cancel_request(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let cancelled = fleet.cancel_request(&id).await?;
    json(StatusCode::OK, &Cancelled { cancelled })
}
