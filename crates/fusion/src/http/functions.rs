//! The calls about functions of one's own, under `/api/v1/statement-functions`.

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

use super::{answer, done, of_error, whole, within};
use crate::fusion::{Fusion, NewFunctions};
use crate::limits::FUNCTION_BODY_BYTES_MAX;

/// The routes: they take larger bodies than the others.
pub(super) fn routes(fusion: Arc<Fusion>) -> Router {
    Router::new()
        .route("/api/v1/statement-functions", get(list).post(add))
        .route(
            "/api/v1/statement-functions/{name}",
            get(show).delete(remove),
        )
        .layer(DefaultBodyLimit::max(FUNCTION_BODY_BYTES_MAX))
        .with_state(fusion)
}

async fn list(State(fusion): State<Arc<Fusion>>) -> Response {
    Json(json!({ "modules": fusion.functions() })).into_response()
}

async fn show(State(fusion): State<Arc<Fusion>>, Path(name): Path<String>) -> Response {
    match fusion.functions_of(&name) {
        Ok(shown) => Json(shown).into_response(),
        Err(error) => of_error(&error),
    }
}

async fn add(State(fusion): State<Arc<Fusion>>, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match within(body, FUNCTION_BODY_BYTES_MAX) {
        Ok(body) => body,
        Err(response) => return *response,
    };
    let new: NewFunctions = match serde_json::from_slice(&body) {
        Ok(new) => new,
        Err(error) => {
            let message = format!(
                "the body cannot be used: {error}; a module is {{\"name\": \"geo\", \"module\": its \
                 bytes in base64, \"signatures\": [\"f(string) -> long\"]}}"
            );
            return answer(StatusCode::BAD_REQUEST, &message);
        }
    };
    match whole(async move { fusion.add_functions(new).await }).await {
        Ok(shown) => (StatusCode::CREATED, Json(shown)).into_response(),
        Err(error) => of_error(&error),
    }
}

async fn remove(State(fusion): State<Arc<Fusion>>, Path(name): Path<String>) -> Response {
    done(whole(async move { fusion.remove_functions(&name).await }).await)
}
