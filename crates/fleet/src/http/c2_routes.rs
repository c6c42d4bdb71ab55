//! What agents call: heartbeat, acknowledge and the flow's text. They never log in; a certificate says
//! who they are, where one is asked for.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::{self, HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{BoxError, Router};
use bytes::Bytes;
use c2::{Acknowledge, Glance, Heartbeat};
use http_body::Body as HttpBody;
use metrics::counter;
use serde::Deserialize;

use crate::error::FleetError;
use crate::fleet::{Fleet, Reached};
use crate::http::{Certificate, Failure, body, json, resources};
use crate::limits;
use crate::parameter::Fetched;

/// EFM's paths and plain ones.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    let mut router = Router::new();
    for prefix in PREFIXES {
        router = router
            .route(&format!("{prefix}/heartbeat"), post(heartbeat))
            .route(&format!("{prefix}/acknowledge"), post(acknowledge));
    }
    for prefix in RELATIVE_TO {
        router = router
            .route(&format!("{prefix}/flows/{{id}}"), get(flow))
            .route(&format!("{prefix}/flows/{{id}}/"), get(flow))
            .route(&format!("{prefix}/resources/{{id}}"), get(resource));
    }
    router.with_state(fleet)
}

#[derive(Deserialize)]
struct FlowQuery {
    /// The agent that asks.
    aid: Option<String>,
}

/// A flow's text as its agent gets it.
async fn flow(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    Query(query): Query<FlowQuery>,
    certificate: Option<Extension<Certificate>>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let certificate = certificate
        .as_ref()
        .map(|Extension(certificate)| certificate);
    check_caller(&fleet, certificate, query.aid.as_deref(), None)?;
    let binding = fleet.config().certificate_binding;
    let shown = certificate.and_then(|certificate| certificate.agent(binding));
    if let Some(agent) = shown
        && !fleet.may_fetch_flow(agent, &id).await?
    {
        counter!("thalweg_fleet_wrong_certificates_total").increment(1);
        return Err(FleetError::NotItsFlow {
            agent: agent.to_owned(),
            flow: id,
        }
        .into());
    }
    let agent = query.aid.as_deref().or(shown);
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let fetched = fleet.flow_for(&id, agent, accept).await?;
    Ok(flow_response(fetched))
}

/// A resource's content, for agents that are to have it.
async fn resource(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    certificate: Option<Extension<Certificate>>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let certificate = certificate.map(|Extension(certificate)| certificate);
    let binding = fleet.config().certificate_binding;
    if let Some(agent) = certificate.as_ref().and_then(|shown| shown.agent(binding))
        && !fleet.may_fetch(agent, &id).await?
    {
        counter!("thalweg_fleet_wrong_certificates_total").increment(1);
        return Err(FleetError::NotItsResource {
            agent: agent.to_owned(),
            resource: id,
        }
        .into());
    }
    resources::content(State(fleet), Path(id), headers).await
}

/// A flow's text, with the content type of its shape.
pub(super) fn flow_response(fetched: Fetched) -> Response {
    let mut response = fetched.text.into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(fetched.shape.content_type()),
    );
    if let Ok(digest) = HeaderValue::from_str(&fetched.sha256) {
        headers.insert("x-content-sha-256", digest);
    }
    response
}

/// Checks that whoever has the connection's certificate may speak for an agent.
fn check_caller(
    fleet: &Fleet,
    certificate: Option<&Certificate>,
    agent: Option<&str>,
    class: Option<&str>,
) -> Result<(), Failure> {
    let Some(certificate) = certificate else {
        return Ok(());
    };
    let Some(agent) = agent else {
        return Ok(());
    };
    let checked = certificate.check(fleet.config().certificate_binding, agent, class);
    checked.map_err(|error| {
        counter!("thalweg_fleet_wrong_certificates_total").increment(1);
        tracing::warn!(error = base::report(&error), "an agent was refused");
        error.into()
    })
}

async fn heartbeat(State(fleet): State<Arc<Fleet>>, request: Request) -> Response {
    let certificate = request.extensions().get::<Certificate>().cloned();
    take_heartbeat(&fleet, certificate.as_ref(), request).await
}

/// Answers a heartbeat, whoever found out that it is one.
pub(super) async fn take_heartbeat<B>(
    fleet: &Fleet,
    certificate: Option<&Certificate>,
    request: http::Request<B>,
) -> Response
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    let started = Instant::now();
    let answer = answer_heartbeat(fleet, certificate, request).await;
    let took = started.elapsed();
    fleet.inner.counters.answered(answer.is_ok(), took);
    answer.into_response()
}

async fn answer_heartbeat<B>(
    fleet: &Fleet,
    certificate: Option<&Certificate>,
    request: http::Request<B>,
) -> Result<Response, Failure>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    let (parts, body) = request.into_parts();
    let taken = body::take_of(&parts.headers, body).await?;
    let inner = &fleet.inner;
    let text = &taken.bytes;
    inner.counters.heartbeat(text.len());
    let shown = certificate.and_then(Certificate::shown);
    let forwards = inner.config.forward.heartbeats.is_some();
    if text.len() <= limits::SMALL_BODY_BYTES_MAX
        && let Some(glance) = Glance::at(text)
    {
        check_caller(fleet, certificate, glance.sender(), glance.class())?;
        if let Some(beaten) = fleet.beat(&glance, text, shown) {
            if forwards {
                let now = inner.clock.now();
                inner.forward.heartbeat(&beaten.agent, text, now);
            }
            return Ok(nothing_to_do());
        }
    }
    let reached = Reached {
        origin: origin(fleet, &parts.headers),
        prefix: parts.uri.path().trim_end_matches("/heartbeat").to_owned(),
        certificate: shown,
    };
    let heartbeat = parse(text.clone(), Heartbeat::parse).await?;
    let (agent, class) = (heartbeat.sender(), heartbeat.class());
    check_caller(fleet, certificate, agent, class)?;
    let forwarded = agent.filter(|_| forwards).map(Arc::from);
    let response = fleet.heartbeat(heartbeat, text, &reached).await?;
    if let Some(agent) = forwarded {
        inner.forward.heartbeat(&agent, text, inner.clock.now());
    }
    json(StatusCode::OK, &response)
}

/// The answer to nearly every heartbeat.
fn nothing_to_do() -> Response {
    let mut response = Response::new(Body::from(NOTHING_TO_DO));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

async fn acknowledge(
    State(fleet): State<Arc<Fleet>>,
    request: Request,
) -> Result<Response, Failure> {
    let certificate = request.extensions().get::<Certificate>().cloned();
    let (parts, body) = request.into_parts();
    let taken = body::take_of(&parts.headers, body).await?;
    let ack = parse(taken.bytes.clone(), Acknowledge::parse).await?;
    if certificate.is_some() {
        // Whoever it says it is, the operation is its owner's.
        let owner = match ack.operation() {
            Some(id) => fleet.owner_heard_of(id).await?,
            None => None,
        };
        let says = ack.agent_info.as_ref();
        let says = says.and_then(|agent| agent.identifier.as_deref());
        check_caller(
            &fleet,
            certificate.as_ref(),
            owner.as_deref().or(says),
            None,
        )?;
    }
    let inner = &fleet.inner;
    let forwarded = match inner.config.forward.acknowledges {
        Some(_) => sender_of(&fleet, &ack),
        None => None,
    };
    fleet.acknowledge(ack).await?;
    if let Some(agent) = forwarded {
        let now = inner.clock.now();
        inner.forward.acknowledge(&agent, &taken.bytes, now);
    }
    // Agents look at the status only, but an empty body has confused some.
    json(StatusCode::OK, &serde_json::Map::new())
}

/// Whose acknowledge it is: the operation's owner's, or whose it says it is.
fn sender_of(fleet: &Fleet, ack: &Acknowledge) -> Option<Arc<str>> {
    let owner = ack.operation().and_then(|id| fleet.owner_of(id));
    let says = ack.agent_info.as_ref();
    let says = says.and_then(|agent| agent.identifier.as_deref());
    owner.map(Arc::from).or_else(|| says.map(Arc::from))
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

/// As [`c2::HeartbeatResponse`] writes it; a test compares.
const NOTHING_TO_DO: &str = r#"{"requestedOperations":[]}"#;

/// What the paths that agents call begin with.
pub const AGENT_PREFIXES: [&str; 5] = [
    "/efm/api/c2-protocol/",
    "/efm/api/flows/",
    "/efm/api/resources/",
    "/efm/api/bundles/",
    "/c2/",
];

/// Before the paths of heartbeats and acknowledges.
pub(super) const PREFIXES: [&str; 2] = ["/efm/api/c2-protocol", "/c2"];

/// What agents take relative addresses in operations to be relative to: the folder of the heartbeats, or
/// the base that EFM's documentation has Java agents set.
pub(super) const RELATIVE_TO: [&str; 3] = ["/efm/api/c2-protocol", "/c2", "/efm/api"];
