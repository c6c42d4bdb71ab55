//! The HTTP API of statements, under `/api/v1/statements`.
//!
//! | call | answer |
//! | --- | --- |
//! | `GET /api/v1/statements` | 200 `{"statements": [statement, …]}` |
//! | `POST /api/v1/statements` `{"text", "name"?, "language"?, "start"?, "lateness"?}` | 201 statement |
//! | `GET /api/v1/statements/{id or name}` | 200 statement |
//! | `DELETE /api/v1/statements/{id or name}` | 204 |
//!
//! `language` is `"sql"`; `start` is `"latest"` (the default) or `"earliest"`, for Kafka sources;
//! `lateness` is a duration such as `"5s"`. A statement is a [`StatementInfo`]. Errors are
//! `{"error_code", "message"}`, the code being the HTTP status; a text that does not compile also
//! has `"line"` and `"column"`, both from 1.
//!
//! [`StatementInfo`]: crate::StatementInfo

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::error::FusionError;
use crate::fusion::Fusion;
use crate::limits::HTTP_BODY_BYTES_MAX;
use crate::statement::NewStatement;

/// The routes, to be mounted at the root.
pub fn routes(fusion: Arc<Fusion>) -> Router {
    Router::new()
        .route("/api/v1/statements", get(list).post(add))
        .route("/api/v1/statements/{id}", get(show).delete(remove))
        .layer(DefaultBodyLimit::max(HTTP_BODY_BYTES_MAX))
        .with_state(fusion)
}

async fn list(State(fusion): State<Arc<Fusion>>) -> Response {
    Json(json!({ "statements": fusion.statements() })).into_response()
}

async fn show(State(fusion): State<Arc<Fusion>>, Path(id): Path<String>) -> Response {
    match fusion.statement(&id) {
        Ok(statement) => Json(statement).into_response(),
        Err(error) => of_error(&error),
    }
}

async fn add(State(fusion): State<Arc<Fusion>>, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let message =
                format!("the body has more than {HTTP_BODY_BYTES_MAX} bytes: send a shorter one");
            return answer(StatusCode::PAYLOAD_TOO_LARGE, &message);
        }
        Err(rejection) => return answer(rejection.status(), &rejection.body_text()),
    };
    let new: NewStatement = match serde_json::from_slice(&body) {
        Ok(new) => new,
        Err(error) => {
            let message = format!(
                "the body is no statement: {error}; send {{\"text\": \"SELECT …\", \"name\": \
                 \"optional\"}}"
            );
            return answer(StatusCode::BAD_REQUEST, &message);
        }
    };
    match fusion.add(new).await {
        Ok(statement) => (StatusCode::CREATED, Json(statement)).into_response(),
        Err(error) => of_error(&error),
    }
}

async fn remove(State(fusion): State<Arc<Fusion>>, Path(id): Path<String>) -> Response {
    match fusion.remove(&id).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => of_error(&error),
    }
}

/// The one conversion of errors to HTTP.
fn of_error(error: &FusionError) -> Response {
    let status = match error {
        FusionError::Text(text) => {
            let body = json!({
                "error_code": StatusCode::BAD_REQUEST.as_u16(),
                "message": text.to_string(),
                "line": text.line,
                "column": text.column,
            });
            return (StatusCode::BAD_REQUEST, Json(body)).into_response();
        }
        FusionError::Refused(_) | FusionError::Limit(_) => StatusCode::BAD_REQUEST,
        FusionError::Unknown(_) => StatusCode::NOT_FOUND,
        FusionError::NameTaken(_) => StatusCode::CONFLICT,
        FusionError::Streams { source, .. } => match source.as_ref() {
            streams::StreamsError::AutoCreateOff(_) | streams::StreamsError::UnknownTopic(_) => {
                StatusCode::BAD_REQUEST
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        },
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    answer(status, &base::report(error))
}

fn answer(status: StatusCode, message: &str) -> Response {
    let body = json!({ "error_code": status.as_u16(), "message": message });
    (status, Json(body)).into_response()
}
