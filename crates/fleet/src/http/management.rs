//! What operators call, under `/api/v1/`.

use std::sync::Arc;

use access::Role;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::{Deserialize, Serialize};

use crate::agent::FlowState;
use crate::error::FleetError;
use crate::events::{EventFilter, EventView, Kind, Level};
use crate::fleet::{AgentFilter, Fleet};
use crate::http::{Failure, json, rollouts};
use crate::limits;
use crate::registry::ResourceState;
use crate::rights::Rights;

/// The management routes.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    Router::new()
        .route("/api/v1/fleet", get(summary))
        .route("/api/v1/agents", get(agents))
        .route("/api/v1/agents/{id}", get(agent).delete(remove_agent))
        .route("/api/v1/events", get(events))
        .merge(rollouts::routes())
        .with_state(fleet)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentsQuery {
    class: Option<String>,
    parked: Option<bool>,
    state: Option<String>,
    flow_state: Option<String>,
    resource_state: Option<String>,
    manifest: Option<String>,
    search: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

async fn summary(State(fleet): State<Arc<Fleet>>, rights: Rights) -> Result<Response, Failure> {
    json(
        StatusCode::OK,
        &aside(move || fleet.summary(&rights)).await?,
    )
}

async fn agents(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    query: Result<Query<AgentsQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    need_class(&rights, query.class.as_deref())?;
    need_one_of("state", query.state.as_deref(), &["online", "missing"])?;
    let flow_states = FlowState::ALL.map(FlowState::as_str);
    need_one_of("flow_state", query.flow_state.as_deref(), &flow_states)?;
    let resource_states = ResourceState::ALL.map(ResourceState::as_str);
    let resource_state = query.resource_state.as_deref();
    need_one_of("resource_state", resource_state, &resource_states)?;
    let filter = AgentFilter {
        class: query.class,
        parked: query.parked,
        state: query.state,
        flow_state: query.flow_state,
        resource_state: query.resource_state,
        manifest: query.manifest,
        search: query.search,
        after: query.after,
        limit: query.limit.unwrap_or(limits::PAGE_ITEMS_DEFAULT),
        rights,
    };
    json(StatusCode::OK, &aside(move || fleet.agents(&filter)).await?)
}

fn need_one_of(name: &str, given: Option<&str>, known: &[&str]) -> Result<(), Failure> {
    match given {
        Some(given) if !known.contains(&given) => {
            let known = known.join(", ");
            let message = format!("{name} '{given}' is not known: use one of {known}");
            Err(Failure::new(StatusCode::BAD_REQUEST, message))
        }
        _ => Ok(()),
    }
}

async fn agent(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.agent(&id)?)
}

/// Removes an agent; the same for EFM's path.
pub(super) async fn remove_agent(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    fleet.remove_agent(&id).await?;
    json(StatusCode::OK, &serde_json::Map::new())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    level: Option<String>,
    kind: Option<String>,
    class: Option<String>,
    agent: Option<String>,
    /// What the page before gave as `next`.
    before: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct EventsPage {
    events: Vec<EventView>,
    /// What to give as `before` for the next page; null on the last one.
    next: Option<String>,
}

async fn events(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    need_class(&rights, query.class.as_deref())?;
    let bad = |message: String| Failure::new(StatusCode::BAD_REQUEST, message);
    let level = query.level.as_deref().map(|level| {
        level.parse::<Level>().map_err(|()| {
            bad(format!(
                "level '{level}' is not known: use debug, info, warn or error"
            ))
        })
    });
    if let Some(kind) = query
        .kind
        .as_deref()
        .filter(|kind| Kind::named(kind).is_none())
    {
        return Err(bad(format!("kind '{kind}' is not known")));
    }
    let limit = query.limit.unwrap_or(limits::PAGE_ITEMS_DEFAULT);
    let limit = limit.clamp(1, limits::PAGE_ITEMS_MAX);
    let filter = EventFilter {
        level: level.transpose()?,
        kind: query.kind,
        class: query.class,
        agent: query.agent,
        only_classes: rights.only_classes(),
        before: place_before(query.before.as_deref())?,
        limit,
    };
    let events = fleet.events(&filter).await?;
    let last = events.last().filter(|_| events.len() == limit);
    let next = last.map(|last| format!("{}.{}", last.at_ms, last.id));
    json(StatusCode::OK, &EventsPage { events, next })
}

/// Refuses who asks for a class that is not theirs.
pub(super) fn need_class(rights: &Rights, class: Option<&str>) -> Result<(), Failure> {
    match class {
        Some(class) => Ok(rights.need(Role::Viewer, Some(class))?),
        None => Ok(()),
    }
}

/// Where the page before ended, of what it gave as `next`: a time and an id.
pub(super) fn place_before(before: Option<&str>) -> Result<Option<(i64, String)>, Failure> {
    let Some(before) = before else {
        return Ok(None);
    };
    let place = before.split_once('.');
    let place = place.and_then(|(at, id)| Some((at.parse().ok()?, id.to_owned())));
    let message = "before: give what the page before gave as next";
    let place = place.ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, message))?;
    Ok(Some(place))
}

/// Does on another thread what looks through a whole class or fleet: that is not for the threads that
/// answer agents.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|error| FleetError::Broken(error.to_string()))?)
}

/// The parameters of a request's address.
pub(super) fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Failure> {
    query
        .map(|Query(query)| query)
        .map_err(|rejection| Failure::new(StatusCode::BAD_REQUEST, rejection.body_text()))
}
