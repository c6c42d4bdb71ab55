//! The HTTP API of topic rules, under `/api/v1/mqtt/rules`.
//!
//! | call | answer |
//! | --- | --- |
//! | `GET /api/v1/mqtt/rules` | 200 `{"rules": [rule, …]}`, in the order of names |
//! | `POST /api/v1/mqtt/rules` with a rule's settings | 201 rule |
//! | `DELETE /api/v1/mqtt/rules/{name}` | 204 |
//!
//! A rule is a [`RuleStatus`], its settings are a [`TopicRule`]. Errors are
//! `{"error_code", "message"}`, the code being the HTTP status.
//!
//! [`RuleStatus`]: crate::rules::RuleStatus

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use serde_json::json;

use crate::http::{answer, whole};
use crate::limits::HTTP_BODY_BYTES_MAX;
use crate::rules::{RuleError, Rules, TopicRule};

/// The routes, to be mounted at the root.
pub fn routes(rules: Arc<Rules>) -> Router {
    Router::new()
        .route("/api/v1/mqtt/rules", get(list).post(add))
        .route("/api/v1/mqtt/rules/{name}", delete(remove))
        .layer(DefaultBodyLimit::max(HTTP_BODY_BYTES_MAX))
        .with_state(rules)
}

async fn list(State(rules): State<Arc<Rules>>) -> Response {
    Json(json!({ "rules": rules.list() })).into_response()
}

async fn add(State(rules): State<Arc<Rules>>, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return answer(rejection.status(), &rejection.body_text()),
    };
    let rule: TopicRule = match serde_json::from_slice(&body) {
        Ok(rule) => rule,
        Err(error) => {
            let message = format!(
                "the body cannot be used: {error}; a rule is {{\"name\": \"…\", \
                 \"from\": \"mqtt:a/#\", \"to\": \"kafka:t\"}}"
            );
            return answer(StatusCode::BAD_REQUEST, &message);
        }
    };
    match whole(async move { rules.add(rule).await }).await {
        Ok(status) => (StatusCode::CREATED, Json(status)).into_response(),
        Err(error) => of_error(&error),
    }
}

async fn remove(State(rules): State<Arc<Rules>>, Path(name): Path<String>) -> Response {
    match whole(async move { rules.remove(&name).await }).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => of_error(&error),
    }
}

/// The one conversion of errors to HTTP.
fn of_error(error: &RuleError) -> Response {
    let status = match error {
        RuleError::Invalid { .. } | RuleError::TooMany => StatusCode::BAD_REQUEST,
        RuleError::Exists(_) | RuleError::Configured(_) => StatusCode::CONFLICT,
        RuleError::Unknown(_) => StatusCode::NOT_FOUND,
        RuleError::Store { source, .. } => match source {
            streams::StreamsError::AutoCreateOff(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        },
        RuleError::File { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    answer(status, &base::report(error))
}
