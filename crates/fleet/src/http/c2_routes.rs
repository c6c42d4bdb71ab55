//! What agents call: heartbeat, acknowledge and the flow's text, without login for now.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use c2::{Acknowledge, Heartbeat};
use metrics::{counter, histogram};

use crate::error::FleetError;
use crate::fleet::{Fleet, Reached};
use crate::http::{Failure, body, json};
use crate::limits;

/// EFM's paths and plain ones.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    let mut router = Router::new();
    for prefix in PREFIXES {
        router = router
            .route(&format!("{prefix}/heartbeat"), post(heartbeat))
            .route(&format!("{prefix}/acknowledge"), post(acknowledge))
            .route(&format!("{prefix}/flows/{{id}}"), get(flow))
            .route(&format!("{prefix}/flows/{{id}}/"), get(flow));
    }
    // The address that EFM's documentation gives.
    router
        .route("/efm/api/flows/{id}", get(flow))
        .with_state(fleet)
}

/// A flow's text, with the content type of its shape.
pub async fn flow(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let (text, shape, sha256) = fleet.flow_text(&id).await?;
    counter!("thalweg_fleet_flows_fetched_total").increment(1);
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(shape.content_type()),
    );
    if let Ok(digest) = HeaderValue::from_str(&sha256) {
        headers.insert("x-content-sha-256", digest);
    }
    Ok(response)
}

async fn heartbeat(State(fleet): State<Arc<Fleet>>, request: Request) -> Response {
    let started = Instant::now();
    let reached = Reached {
        origin: origin(&fleet, request.headers()),
        prefix: request
            .uri()
            .path()
            .trim_end_matches("/heartbeat")
            .to_owned(),
    };
    let answer = answer_heartbeat(&fleet, &reached, request).await;
    let result = if answer.is_ok() { "ok" } else { "error" };
    counter!("thalweg_fleet_heartbeats_total", "result" => result).increment(1);
    histogram!("thalweg_fleet_heartbeat_seconds").record(started.elapsed());
    answer.into_response()
}

async fn answer_heartbeat(
    fleet: &Fleet,
    reached: &Reached,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let bytes = taken.bytes.len();
    counter!("thalweg_fleet_heartbeat_bytes_total").increment(bytes as u64);
    let heartbeat = parse(taken.bytes.clone(), Heartbeat::parse).await?;
    let response = fleet.heartbeat(heartbeat, bytes, reached).await?;
    json(StatusCode::OK, &response)
}

async fn acknowledge(
    State(fleet): State<Arc<Fleet>>,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let ack = parse(taken.bytes.clone(), Acknowledge::parse).await?;
    fleet.acknowledge(ack).await?;
    // Agents look at the status only, but an empty body has confused some.
    json(StatusCode::OK, &serde_json::Map::new())
}

/// Parses a message, a large one off the threads that serve the others.
async fn parse<T: Send + 'static>(
    bytes: Bytes,
    parse: fn(&[u8]) -> Result<T, c2::C2Error>,
) -> Result<T, Failure> {
    if bytes.len() <= limits::SMALL_BODY_BYTES_MAX {
        return Ok(parse(&bytes).map_err(FleetError::from)?);
    }
    let parsed = tokio::task::spawn_blocking(move || parse(&bytes))
        .await
        .map_err(|error| {
            Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("cannot parse: {error}"),
            )
        })?;
    Ok(parsed.map_err(FleetError::from)?)
}

/// Scheme and host under which the agent reached the fleet.
fn origin(fleet: &Fleet, headers: &HeaderMap) -> String {
    if let Some(url) = &fleet.config().public_url {
        return url.trim_end_matches('/').to_owned();
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    // Nothing but a host and a port may get into an address that agents will call.
    let clean = |host: &&str| {
        !host.is_empty()
            && host
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b))
    };
    let scheme = match fleet.config().is_tls {
        true => "https",
        false => "http",
    };
    let host = host.filter(clean).unwrap_or(&fleet.config().listen);
    format!("{scheme}://{host}")
}

/// What the paths that agents call begin with.
pub const AGENT_PREFIXES: [&str; 3] = ["/efm/api/c2-protocol/", "/efm/api/flows/", "/c2/"];

const PREFIXES: [&str; 2] = ["/efm/api/c2-protocol", "/c2"];
