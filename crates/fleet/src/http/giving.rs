//! The class that an operator gives an agent, at `/api/v1/agents/{id}/class`.

use std::sync::Arc;

use access::Role;
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::put;
use serde::Deserialize;

use crate::fleet::Fleet;
use crate::http::audit::Details;
use crate::http::{Failure, body, json};
use crate::rights::Rights;

/// The route.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    Router::new()
        .route("/api/v1/agents/{id}/class", put(give).delete(take_back))
        .with_state(fleet)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    class: String,
}

/// Moves an agent: its caller has the role for the class that it leaves and for the one that it gets.
async fn give(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    rights: Rights,
    request: Request,
) -> Result<Response, Failure> {
    let wanted: Wanted = body::take(request).await?.json()?;
    rights.need(Role::Operator, Some(&wanted.class))?;
    fleet.give_class(&id, Some(&wanted.class), &rights).await?;
    shown(&fleet, &id, format!("class {}", wanted.class))
}

async fn take_back(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    rights: Rights,
) -> Result<Response, Failure> {
    fleet.give_class(&id, None, &rights).await?;
    shown(&fleet, &id, "no class".to_owned())
}

fn shown(fleet: &Fleet, id: &str, details: String) -> Result<Response, Failure> {
    let mut response = json(StatusCode::OK, &fleet.agent(id)?)?;
    response.extensions_mut().insert(Details(details));
    Ok(response)
}
