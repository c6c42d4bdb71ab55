//! The DFM's REST API.
//!
//! | call | answer |
//! | --- | --- |
//! | `GET /statement/`, `GET /statement/{id}` (or `?id=`) | 200 the answer body with statements under `resources` |
//! | `POST /statement/`, `POST /statement/{engine}/` | 201, `Location: /statement/{id}` |
//! | `PUT /statement/{id}`, `PUT /statement/{engine}/{id}`, `PUT /statement/` (`?id=`) | 200, 201 or 304 |
//! | `DELETE /statement/{id}` (or `?id=`) | 200 |
//! | `GET /statement/{id}/output`, `GET /statement/output?id=` | 200 the latest row, 204 without one |
//! | `POST /execute/` | runs a statement once over named windows and tables; the rows are its resource |
//! | `POST /event/{topic}` | 200: published on that topic |
//!
//! The body of every other answer is that of [`Outcome::body`].

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use mqtt::{MqttError, Qos};
use serde::Deserialize;

use super::dfm::{self, Operation, Outcome};
use super::node::Node;
use crate::http::whole;
use crate::limits::{HTTP_BODY_BYTES_MAX, INJECT_BYTES_MAX, TAIL_WAIT_MAX};

/// The routes, to be mounted at the root.
pub fn routes(node: Arc<Node>) -> Router {
    let statements = Router::new()
        .route(
            "/statement/",
            get(get_any).post(add).put(put_any).delete(delete_any),
        )
        .route("/statement/output", get(output_any))
        .route(
            "/statement/{id}",
            get(get_one).put(put_one).delete(delete_one),
        )
        .route("/statement/{engine}/", post(add))
        .route("/statement/{id}/output", get(output_one))
        .route(
            "/statement/{engine}/{id}",
            axum::routing::put(put_of_engine),
        )
        .route("/execute/", post(execute))
        .layer(DefaultBodyLimit::max(HTTP_BODY_BYTES_MAX));
    let events = Router::new()
        .route("/event/{*topic}", post(event))
        .layer(DefaultBodyLimit::max(INJECT_BYTES_MAX));
    statements.merge(events).with_state(node)
}

/// An id that a path cannot hold.
#[derive(Deserialize)]
struct Named {
    id: Option<String>,
}

type Shared = State<Arc<Node>>;

async fn get_any(node: Shared, Query(named): Query<Named>) -> Response {
    run(&node, Operation::Get(named.id), None).await
}

async fn get_one(node: Shared, Path(id): Path<String>) -> Response {
    run(&node, Operation::Get(Some(id)), None).await
}

async fn add(node: Shared, body: Bytes) -> Response {
    run(&node, Operation::Add(None), Some(body)).await
}

async fn put_any(node: Shared, Query(named): Query<Named>, body: Bytes) -> Response {
    match named.id {
        Some(id) => run(&node, Operation::Update(id), Some(body)).await,
        None => answer(&node, &Outcome::new(None, 400, "name the statement: ?id=")),
    }
}

async fn put_one(node: Shared, Path(id): Path<String>, body: Bytes) -> Response {
    run(&node, Operation::Update(id), Some(body)).await
}

async fn put_of_engine(
    node: Shared,
    Path((_, id)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    run(&node, Operation::Update(id), Some(body)).await
}

async fn delete_any(node: Shared, Query(named): Query<Named>) -> Response {
    match named.id {
        Some(id) => run(&node, Operation::Delete(id), None).await,
        None => answer(&node, &Outcome::new(None, 400, "name the statement: ?id=")),
    }
}

async fn delete_one(node: Shared, Path(id): Path<String>) -> Response {
    run(&node, Operation::Delete(id), None).await
}

async fn output_any(node: Shared, Query(named): Query<Named>) -> Response {
    match named.id {
        Some(id) => output(&node, &id).await,
        None => answer(&node, &Outcome::new(None, 400, "name the statement: ?id=")),
    }
}

async fn output_one(node: Shared, Path(id): Path<String>) -> Response {
    output(&node, &id).await
}

/// The latest row since somebody looks; the first look waits for one.
async fn output(node: &Node, id: &str) -> Response {
    let waited = match node.fusion().tail(id, Some(0), Duration::ZERO).await {
        Ok(tail) if tail.rows.is_empty() => node.fusion().tail(id, None, TAIL_WAIT_MAX).await,
        other => other,
    };
    match waited {
        Ok(mut tail) => match tail.rows.pop() {
            Some(row) => Json(row).into_response(),
            None => StatusCode::NO_CONTENT.into_response(),
        },
        Err(error) => {
            let status = crate::http::status_of(&error).as_u16();
            let message = base::report(&error);
            answer(node, &Outcome::new(Some(id.to_owned()), status, message))
        }
    }
}

async fn execute(node: Shared, body: Bytes) -> Response {
    let mut resource = match dfm::resource(&body) {
        Ok(resource) => resource,
        Err(why) => return answer(&node, &Outcome::new(None, 400, why)),
    };
    resource.insert("statelifecycle".to_owned(), "SYNCHRONOUS".into());
    let working = node.0.clone();
    let work = async move { working.execute(Operation::Add(None), Some(&resource)).await };
    let outcome = whole(work).await;
    answer(&node, &outcome)
}

async fn event(node: Shared, Path(topic): Path<String>, body: Bytes) -> Response {
    let refuse = |status, why: String| answer(&node, &Outcome::new(None, status, why));
    let Some(server) = node.server() else {
        return refuse(503, "no MQTT server runs in this process".to_owned());
    };
    let topic: mqtt::TopicName = match topic.parse() {
        Ok(topic) => topic,
        Err(error) => return refuse(400, format!("the topic: {error}")),
    };
    match server.publish(&topic, &body, Qos::AtLeastOnce, false) {
        Ok(()) => answer(&node, &Outcome::new(None, 200, "the event was published")),
        Err(error @ MqttError::TooLarge { .. }) => refuse(400, base::report(&error)),
        Err(error) => refuse(503, base::report(&error)),
    }
}

async fn run(node: &Arc<Node>, operation: Operation, body: Option<Bytes>) -> Response {
    let resource = match body.as_deref().map(dfm::resource) {
        None => None,
        Some(Ok(resource)) => Some(resource),
        Some(Err(why)) => return answer(node, &Outcome::new(None, 400, why)),
    };
    let is_add = matches!(operation, Operation::Add(_));
    let working = node.clone();
    let work = async move { working.execute(operation, resource.as_ref()).await };
    let outcome = whole(work).await;
    let mut response = answer(node, &outcome);
    if is_add
        && outcome.is_good()
        && let Some(id) = &outcome.statement
        && let Ok(location) = HeaderValue::from_str(&format!("/statement/{id}"))
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn answer(node: &Node, outcome: &Outcome) -> Response {
    let status = StatusCode::from_u16(outcome.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = outcome.body(&node.fusion().config().node.id);
    if status == StatusCode::NOT_MODIFIED {
        return status.into_response();
    }
    (status, Json(body)).into_response()
}
