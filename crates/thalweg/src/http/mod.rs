//! How the HTTP ports are served, and what the management port serves beside the roles' own APIs:
//! health, metrics, status, console.
//!
//! Transport in the order of a request's way: `serve` (connections), `link` (bytes, TLS), `watch`
//! (slow peers of HTTP/2), `door` (one request), `cors`, `gzip`, `guard`.

mod certificate;
mod config;
mod cors;
mod door;
mod guard;
mod gzip;
mod issuer;
mod limits;
mod link;
mod mqtt;
mod ports;
mod serve;
mod sign_in;
mod watch;

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use base::{Clock, SystemClock};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};

use crate::endpoints::Endpoints;
use crate::telemetry;

pub use self::mqtt::{MqttParts, mqtt_routes};
pub use certificate::with_certificates;
pub use config::{HttpConfig, Section};
pub use door::{Routes, Straight};
pub use issuer::{is_private, keep_keys};
pub use ports::Ports;
pub use serve::serve;
pub use sign_in::{SignIn, SignInConfig};

/// What the status answers are made of.
pub struct Process {
    /// What listens where.
    pub endpoints: Endpoints,
    /// When the process began to serve.
    pub started: Instant,
    /// Renders the metrics.
    pub metrics: PrometheusHandle,
    /// The MQTT server, if that role runs here.
    pub mqtt: Option<::mqtt::Server>,
    /// Its bridges.
    pub bridges: Option<Arc<::mqtt::Bridges>>,
    /// The fleet, if that role runs here.
    pub fleet: Option<Arc<fleet::Fleet>>,
    /// The statements, if that role runs here.
    pub fusion: Option<Arc<fusion::Fusion>>,
    /// The topic rules, where MQTT and the store are here.
    pub rules: Option<Arc<fusion::rules::Rules>>,
    /// The event store, if that role runs here.
    pub streams: Option<Arc<streams::Streams>>,
    /// Users, ACLs and tenants, if a role here keeps them.
    pub access: Option<Arc<access::Access>>,
    /// The HTTP ports that speak TLS, by the names of their endpoints.
    pub tls: Vec<&'static str>,
}

impl Process {
    /// The roles whose stores a failed write or sync has stopped.
    fn failed(&self) -> Vec<&'static str> {
        let streams = self.streams.as_ref().is_some_and(|of| of.is_poisoned());
        let server = self.mqtt.as_ref().is_some_and(::mqtt::Server::is_poisoned);
        let bridges = self.bridges.as_ref().is_some_and(|of| of.is_poisoned());
        let fusion = self.fusion.as_ref().is_some_and(|of| of.is_poisoned());
        let roles = [
            ("streams", streams),
            ("mqtt", server || bridges),
            ("fusion", fusion),
        ];
        let failed = roles.into_iter().filter(|(_, has_failed)| *has_failed);
        failed.map(|(role, _)| role).collect()
    }
}

/// Routes of the process itself.
pub fn routes(process: Arc<Process>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route(EFM_HEALTH, get(health))
        .route("/metrics", get(metrics))
        .route(EFM_METRICS, get(metrics))
        .route("/api/v1/status", get(status))
        .with_state(process)
        .merge(crate::console::routes())
}

/// Where probes that were set up for EFM ask.
pub const EFM_HEALTH: &str = "/efm/actuator/health";

/// Where collectors that were set up for EFM look.
pub const EFM_METRICS: &str = "/efm/actuator/prometheus";

/// An answer to what never gets to the routes.
fn refused(status: StatusCode, message: &str) -> Response<Body> {
    let body = Json(json!({"error_code": status.as_u16(), "message": message}));
    (status, body).into_response()
}

/// 503 once a role's store takes nothing any more. Everybody may ask, so that it tells no paths and no
/// reasons; the log does.
async fn health(State(process): State<Arc<Process>>) -> Response<Body> {
    // The listener opens only after every store of this process was recovered.
    let failed = process.failed();
    if failed.is_empty() {
        return Json(json!({"status": "UP"})).into_response();
    }
    let message = format!(
        "a write or sync failed in the store of {}, which takes nothing more until it is opened \
         again: see what the log says of the disk, then restart this process",
        failed.join(", ")
    );
    let down = json!({"status": "DOWN", "failed": failed, "message": message});
    (StatusCode::SERVICE_UNAVAILABLE, Json(down)).into_response()
}

async fn metrics(State(process): State<Arc<Process>>) -> impl IntoResponse {
    process.metrics.run_upkeep();
    let mut text = process.metrics.render() + &telemetry::process_metrics();
    let (streams, fleet) = (process.streams.clone(), process.fleet.clone());
    let (mqtt, bridges) = (process.mqtt.clone(), process.bridges.clone());
    let (fusion, access) = (process.fusion.clone(), process.access.clone());
    let rules = process.rules.clone();
    // A hundred thousand topics, or agents, take a moment to look through.
    let observed = tokio::task::spawn_blocking(move || {
        let mut out = base::Exposition::default();
        if let Some(streams) = streams {
            streams.observe(&mut out);
        }
        if let Some(access) = access {
            access.tenants().observe(&mut out);
        }
        if let Some(fleet) = fleet {
            fleet.observe(&mut out);
        }
        if let Some(mqtt) = mqtt {
            mqtt.observe(&mut out);
        }
        if let Some(bridges) = bridges {
            bridges.observe(&mut out);
        }
        if let Some(fusion) = fusion {
            fusion.observe(&mut out);
        }
        if let Some(rules) = rules {
            rules.observe(&mut out);
        }
        out.into_text()
    });
    match observed.await {
        Ok(observed) => text += &observed,
        Err(error) => tracing::error!(%error, "the roles' metrics broke off"),
    }
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
}

async fn status(State(process): State<Arc<Process>>) -> Json<Value> {
    let mqtt = process.mqtt.as_ref().map(|server| {
        let stats = server.stats();
        json!({
            "clients_connected": stats.clients_connected,
            "messages_received_total": stats.messages_received_total,
            "messages_sent_total": stats.messages_sent_total,
            "messages_dropped_total": stats.dropped_total,
            "subscriptions": stats.subscriptions,
            "retained": stats.retained,
        })
    });
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_ms": u64::try_from(process.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        "now_ms": SystemClock.now(),
        "endpoints": process.endpoints,
        "tls": process.tls,
        "mqtt": mqtt,
    }))
}
