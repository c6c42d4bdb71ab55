//! The management API of the MQTT server, under `/api/v1/mqtt`.
//!
//! | call | answer |
//! | --- | --- |
//! | `GET /api/v1/mqtt` | 200 the server's figures |
//! | `GET /api/v1/mqtt/clients?limit=&after=` | 200 `{"clients": [client, …], "next": id or null}`, in the order of ids |
//! | `DELETE /api/v1/mqtt/clients/{id}?session=keep\|end` | 204: its connection is ended, and with `end` its session |
//! | `GET /api/v1/mqtt/retained?filter=&limit=` | 200 `{"retained": [{topic, qos, received_ms, bytes, text?, payload_base64?}], "more": bool}` |
//! | `POST /api/v1/mqtt/publish` `{"topic", "text" or "payload_base64", "qos"?, "retain"?}` | 204; an empty payload that is retained clears the topic |
//! | `GET /api/v1/mqtt/refusals?limit=` | 200 `{"refusals": [{at_ms, client_id, user, host, what, topic, code, reason}]}`, the newest first |
//! | `GET /api/v1/mqtt/bridges` | 200 `{"bridges": [bridge, …]}` |
//! | `POST /api/v1/mqtt/bridges` with a bridge's settings | 201 bridge |
//! | `DELETE /api/v1/mqtt/bridges/{name}` | 204 |
//! | `GET /api/v1/mqtt/openapi.json` | 200 these calls, and those of topic rules, as OpenAPI |
//!
//! Errors are `{"error_code", "message"}`, the code being the HTTP status. No answer holds a
//! password: a bridge names the file of its own.

use std::sync::Arc;
use std::time::Duration;

use ::mqtt::{
    BridgeConfig, BridgeError, Bridges, Guard, MqttError, Qos, Server, TopicFilter, TopicName,
};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What the routes answer from.
pub struct MqttParts {
    /// The server.
    pub server: Server,
    /// Who decides about clients, where somebody does.
    pub guard: Option<Arc<Guard>>,
    /// Its bridges.
    pub bridges: Arc<Bridges>,
}

/// The routes, to be mounted at the root.
pub fn mqtt_routes(parts: MqttParts) -> Router {
    Router::new()
        .route("/api/v1/mqtt", get(figures))
        .route("/api/v1/mqtt/openapi.json", get(document))
        .route("/api/v1/mqtt/clients", get(clients))
        .route("/api/v1/mqtt/clients/{id}", delete(disconnect))
        .route("/api/v1/mqtt/retained", get(retained))
        .route("/api/v1/mqtt/publish", post(publish))
        .route("/api/v1/mqtt/refusals", get(refusals))
        .route("/api/v1/mqtt/bridges", get(bridges).post(add_bridge))
        .route("/api/v1/mqtt/bridges/{name}", delete(remove_bridge))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::new(parts))
}

async fn document() -> Response {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

async fn figures(State(parts): State<Arc<MqttParts>>) -> Response {
    Json(parts.server.stats()).into_response()
}

#[derive(Deserialize)]
struct Page {
    limit: Option<usize>,
    after: Option<String>,
}

impl Page {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(LIST_DEFAULT).min(LIST_MAX)
    }
}

async fn clients(State(parts): State<Arc<MqttParts>>, Query(page): Query<Page>) -> Response {
    let all = parts.server.clients();
    let after = page.after.as_deref().unwrap_or_default();
    let mut shown = all;
    shown.retain(|client| client.client_id.as_str() > after);
    let is_end = shown.len() <= page.limit();
    shown.truncate(page.limit());
    let next = shown.last().filter(|_| !is_end);
    let next = next.map(|client| client.client_id.clone());
    Json(json!({ "clients": shown, "next": next })).into_response()
}

/// What becomes of the session of a client that is sent away.
#[derive(Deserialize)]
struct Farewell {
    #[serde(default)]
    session: Remains,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Remains {
    #[default]
    Keep,
    End,
}

async fn disconnect(
    State(parts): State<Arc<MqttParts>>,
    Path(id): Path<String>,
    Query(farewell): Query<Farewell>,
) -> Response {
    let forget = matches!(farewell.session, Remains::End);
    match parts.server.disconnect(&id, forget) {
        Ok(Some(was_connected)) if was_connected || forget => {
            tracing::info!(client = id, forget, "a client was sent away");
            StatusCode::NO_CONTENT.into_response()
        }
        Ok(Some(_)) => {
            let message = format!("client '{id}' is not connected: ?session=end ends its session");
            answer(StatusCode::CONFLICT, &message)
        }
        Ok(None) => {
            let shown: String = id.chars().take(80).collect();
            answer(
                StatusCode::NOT_FOUND,
                &format!("there is no client '{shown}'"),
            )
        }
        Err(error) => answer(StatusCode::SERVICE_UNAVAILABLE, &base::report(&error)),
    }
}

#[derive(Deserialize)]
struct RetainedQuery {
    filter: Option<String>,
    limit: Option<usize>,
}

async fn retained(
    State(parts): State<Arc<MqttParts>>,
    Query(query): Query<RetainedQuery>,
) -> Response {
    let text = query.filter.as_deref().unwrap_or("#");
    let filter = match text.parse::<TopicFilter>() {
        Ok(filter) => filter,
        Err(error) => {
            let message = format!("'{text}' is no filter: {error}");
            return answer(StatusCode::BAD_REQUEST, &message);
        }
    };
    let limit = query.limit.unwrap_or(LIST_DEFAULT).min(LIST_MAX);
    let mut found = parts.server.retained(&filter, limit + 1);
    let more = found.len() > limit;
    found.truncate(limit);
    let shown: Vec<Value> = found
        .into_iter()
        .map(|message| {
            let mut shown = json!({
                "topic": message.topic,
                "qos": message.qos as u8,
                "received_ms": message.received,
                "bytes": message.payload.len(),
            });
            // Large ones are named only: subscribing shows them.
            if message.payload.len() <= PAYLOAD_SHOWN_BYTES_MAX {
                match std::str::from_utf8(&message.payload) {
                    Ok(text) => shown["text"] = text.into(),
                    Err(_) => shown["payload_base64"] = STANDARD.encode(&message.payload).into(),
                }
            }
            shown
        })
        .collect();
    Json(json!({ "retained": shown, "more": more })).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewMessage {
    topic: String,
    text: Option<String>,
    payload_base64: Option<String>,
    #[serde(default)]
    qos: u8,
    #[serde(default)]
    retain: bool,
}

async fn publish(
    State(parts): State<Arc<MqttParts>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let usage = "send {\"topic\": \"a/b\", \"text\": \"…\", \"qos\": 0, \"retain\": false}";
    let new: NewMessage = match entity(body, usage) {
        Ok(new) => new,
        Err(refused) => return *refused,
    };
    let wrong = |message: &str| answer(StatusCode::BAD_REQUEST, message);
    let topic: TopicName = match new.topic.parse() {
        Ok(topic) => topic,
        Err(error) => return wrong(&format!("'{}' is no topic: {error}", new.topic)),
    };
    if new.topic.starts_with("$SYS") {
        return wrong("$SYS topics are the server's own");
    }
    let payload = match (new.text, new.payload_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => match STANDARD.decode(text) {
            Ok(payload) => payload,
            Err(error) => return wrong(&format!("payload_base64 is no base64: {error}")),
        },
        (None, None) => Vec::new(),
        (Some(_), Some(_)) => return wrong("write text or payload_base64, not both"),
    };
    let qos = match new.qos {
        0 => Qos::AtMostOnce,
        1 => Qos::AtLeastOnce,
        2 => Qos::ExactlyOnce,
        _ => return wrong("qos is 0, 1 or 2"),
    };
    let publishing = async {
        loop {
            match parts.server.publish(&topic, &payload, qos, new.retain) {
                Err(MqttError::Busy) => parts.server.room(&topic).await,
                published => return published,
            }
        }
    };
    match tokio::time::timeout(PUBLISH_WAIT, publishing).await {
        Ok(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(error)) => {
            let status = match error {
                MqttError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
                MqttError::RetainedFull { .. } => StatusCode::INSUFFICIENT_STORAGE,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            answer(status, &base::report(&error))
        }
        Err(_) => answer(
            StatusCode::SERVICE_UNAVAILABLE,
            "a subscriber of the topic is behind: try again later",
        ),
    }
}

async fn refusals(State(parts): State<Arc<MqttParts>>, Query(page): Query<Page>) -> Response {
    let guard = parts.guard.as_ref();
    let found = guard.map_or_else(Vec::new, |guard| guard.refusals(page.limit()));
    Json(json!({ "refusals": found })).into_response()
}

async fn bridges(State(parts): State<Arc<MqttParts>>) -> Response {
    Json(json!({ "bridges": parts.bridges.list() })).into_response()
}

async fn add_bridge(
    State(parts): State<Arc<MqttParts>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let usage = "send {\"name\": \"…\", \"address\": \"mqtt://host:1883\", \"topics\": \
                 [{\"filter\": \"a/#\", \"direction\": \"out\"}]}";
    let config: BridgeConfig = match entity(body, usage) {
        Ok(config) => config,
        Err(refused) => return *refused,
    };
    match parts.bridges.add(config).await {
        Ok(status) => (StatusCode::CREATED, Json(status)).into_response(),
        Err(error) => of_error(&error),
    }
}

async fn remove_bridge(State(parts): State<Arc<MqttParts>>, Path(name): Path<String>) -> Response {
    match parts.bridges.remove(&name).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => of_error(&error),
    }
}

fn of_error(error: &BridgeError) -> Response {
    let status = match error {
        BridgeError::Invalid { .. } | BridgeError::TooMany => StatusCode::BAD_REQUEST,
        BridgeError::Exists(_) | BridgeError::Configured(_) => StatusCode::CONFLICT,
        BridgeError::Unknown(_) => StatusCode::NOT_FOUND,
        BridgeError::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    answer(status, &base::report(error))
}

/// Reads a body as JSON. Errors are boxed, since answers are large.
fn entity<T: DeserializeOwned>(
    body: Result<Bytes, BytesRejection>,
    usage: &str,
) -> Result<T, Box<Response>> {
    let body = body.map_err(|rejection| {
        let status = rejection.status();
        Box::new(answer(status, &rejection.body_text()))
    })?;
    serde_json::from_slice(&body).map_err(|error| {
        let message = format!("the body does not fit: {error}; {usage}");
        Box::new(answer(StatusCode::BAD_REQUEST, &message))
    })
}

fn answer(status: StatusCode, message: &str) -> Response {
    let body = json!({ "error_code": status.as_u16(), "message": message });
    (status, Json(body)).into_response()
}

/// The document.
const DOCUMENT: &str = include_str!("mqtt-openapi.json");
/// Bytes of a request's body: a message of the default packet size in base64 fits.
const BODY_BYTES_MAX: usize = 2 << 20;
/// Entries of a list that says no limit, and of any.
const LIST_DEFAULT: usize = 1_000;
const LIST_MAX: usize = 10_000;
/// Bytes of a payload that a list shows.
const PAYLOAD_SHOWN_BYTES_MAX: usize = 4 << 10;
/// How long a message waits for subscribers that are behind.
const PUBLISH_WAIT: Duration = Duration::from_secs(10);
