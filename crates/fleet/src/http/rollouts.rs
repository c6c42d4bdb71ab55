//! Roll-outs over HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use base::HumanDuration;
use serde::{Deserialize, Serialize};

use crate::fleet::Fleet;
use crate::http::management::aside;
use crate::http::{Failure, body, json};
use crate::limits;
use crate::rollout::{Plan, RolloutView, Wish};

/// The routes of roll-outs.
pub fn routes() -> Router<Arc<Fleet>> {
    Router::new()
        .route("/api/v1/classes/{name}/rollouts", get(list).post(begin))
        .route("/api/v1/rollouts/{id}", get(one))
        .route("/api/v1/rollouts/{id}/{wish}", post(steer))
}

/// What a roll-out may be asked to be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    flow_id: String,
    batch_agents: Option<u32>,
    batch_interval: Option<HumanDuration>,
    canary_percent: Option<u8>,
    failures_percent: Option<u8>,
}

#[derive(Serialize)]
struct Rollouts {
    rollouts: Vec<RolloutView>,
}

async fn list(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    let rollouts = aside(move || fleet.rollouts(&name)).await??;
    json(StatusCode::OK, &Rollouts { rollouts })
}

async fn begin(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let asked: Asked = serde_json::from_slice(&taken.bytes)
        .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, format!("the body: {error}")))?;
    let interval = asked.batch_interval.map(|interval| interval.0);
    let plan = Plan {
        batch_agents: asked.batch_agents.unwrap_or(limits::BATCH_AGENTS_DEFAULT),
        batch_interval: interval
            .unwrap_or(limits::BATCH_INTERVAL_DEFAULT)
            .min(INTERVAL_MAX),
        canary_percent: asked.canary_percent.unwrap_or(0),
        failures_percent: asked
            .failures_percent
            .unwrap_or(limits::FAILURES_PERCENT_DEFAULT),
    };
    let begun = fleet.begin_rollout(&name, &asked.flow_id, plan).await?;
    json(StatusCode::CREATED, &begun)
}

async fn one(State(fleet): State<Arc<Fleet>>, Path(id): Path<String>) -> Result<Response, Failure> {
    json(StatusCode::OK, &aside(move || fleet.rollout(&id)).await??)
}

async fn steer(
    State(fleet): State<Arc<Fleet>>,
    Path((id, wish)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let Some(wish) = Wish::named(&wish) else {
        let message = format!("'{wish}' is not known: use pause, resume, abort or rollback");
        return Err(Failure::new(StatusCode::NOT_FOUND, message));
    };
    json(StatusCode::OK, &fleet.steer_rollout(&id, wish).await?)
}

/// A month: what is longer is a mistake.
const INTERVAL_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
