//! The HTTP API of statements, under `/api/v1/statements`.
//!
//! | call | answer |
//! | --- | --- |
//! | `GET /api/v1/statements` | 200 `{"statements": [statement, …]}` |
//! | `POST /api/v1/statements` statement form | 201 statement |
//! | `POST /api/v1/statements/explain` statement form | 200 what it would do |
//! | `POST /api/v1/statements/query` `{"text"}` | 200 `{"rows": […]}` of named windows and tables |
//! | `GET /api/v1/statements/{id or name}` | 200 statement |
//! | `PUT /api/v1/statements/{id or name}` statement form, `"state"?` | 200 statement with `"state_kept"` |
//! | `POST /api/v1/statements/{id or name}/pause` | 200 statement |
//! | `POST /api/v1/statements/{id or name}/resume` | 200 statement |
//! | `GET /api/v1/statements/{id or name}/rows?after=N&wait_ms=M` | 200 `{"rows": […], "next", "missed"}` |
//! | `DELETE /api/v1/statements/{id or name}` | 204 |
//! | `GET /api/v1/statement-types` | 200 `{"types": [{"alias", "filter", "format", "is_configured"}, …]}`, the first that fits counts |
//! | `PUT /api/v1/statement-types/{alias}` `{"filter", "format"}` | 204 |
//! | `DELETE /api/v1/statement-types/{alias}` | 204 |
//! | `GET /api/v1/statement-functions` | 200 `{"modules": [module, …]}` |
//! | `POST /api/v1/statement-functions` `{"name", "module", "signatures"?}`, the module in base64 | 201 module |
//! | `GET /api/v1/statement-functions/{name}` | 200 module |
//! | `DELETE /api/v1/statement-functions/{name}` | 204; 409 while statements call it |
//! | `GET /api/v1/statements/openapi.json` | 200 these calls as OpenAPI |
//!
//! A statement form is `{"text", "name"?, "language"?, "start"?, "lateness"?, "format"?, "output"?,
//! "targets"?, "policies"?}`: `language` is `"sql"` (the default) or `"epl"`; `start` is `"latest"` (the default) or `"earliest"`, for
//! Kafka sources; `lateness` is a duration such as `"5s"`; `format` is one of [`Format`]'s names, by
//! the table of types if absent; `output` is `"rows"` or `"observations"`; `targets` as in
//! [`crate::sinks`]. `state` is `"auto"`, `"keep"` or `"reset"`. A statement is a
//! [`StatementInfo`]. `rows` waits for the first row after number `after` (from now on, if absent),
//! 30 s at most. Errors are `{"error_code", "message"}`, the code being the HTTP status; a text that
//! does not compile also has `"line"` and `"column"`, both from 1.
//!
//! [`Format`]: crate::formats::Format
//! [`StatementInfo`]: crate::StatementInfo

mod functions;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinError;

use crate::error::FusionError;
use crate::formats::{EventType, Format};
use crate::fusion::Fusion;
use crate::limits::{HTTP_BODY_BYTES_MAX, TAIL_WAIT_MAX};
use crate::statement::{NewStatement, ReplacedState, Replacement, StatementInfo};

/// The routes, to be mounted at the root.
pub fn routes(fusion: Arc<Fusion>) -> Router {
    Router::new()
        .route("/api/v1/statements", get(list).post(add))
        .route("/api/v1/statements/openapi.json", get(document))
        .route("/api/v1/statements/explain", post(explain))
        .route("/api/v1/statements/query", post(query))
        .route(
            "/api/v1/statements/{id}",
            get(show).put(replace).delete(remove),
        )
        .route("/api/v1/statements/{id}/pause", post(pause))
        .route("/api/v1/statements/{id}/resume", post(resume))
        .route("/api/v1/statements/{id}/rows", get(rows))
        .route("/api/v1/statement-types", get(types))
        .route(
            "/api/v1/statement-types/{alias}",
            put(set_type).delete(remove_type),
        )
        .layer(DefaultBodyLimit::max(HTTP_BODY_BYTES_MAX))
        .with_state(fusion.clone())
        .merge(functions::routes(fusion))
}

async fn list(State(fusion): State<Arc<Fusion>>) -> Response {
    let mut statements = fusion.statements();
    fusion.tell_lags(&mut statements).await;
    Json(json!({ "statements": statements })).into_response()
}

async fn show(State(fusion): State<Arc<Fusion>>, Path(id): Path<String>) -> Response {
    match fusion.statement(&id) {
        Ok(statement) => {
            let mut told = [statement];
            fusion.tell_lags(&mut told).await;
            let [statement] = told;
            Json(statement).into_response()
        }
        Err(error) => of_error(&error),
    }
}

async fn add(State(fusion): State<Arc<Fusion>>, body: Result<Bytes, BytesRejection>) -> Response {
    let new: NewStatement = match read(body) {
        Ok(new) => new,
        Err(response) => return *response,
    };
    match whole(async move { fusion.add(new).await }).await {
        Ok(statement) => (StatusCode::CREATED, Json(statement)).into_response(),
        Err(error) => of_error(&error),
    }
}

async fn explain(
    State(fusion): State<Arc<Fusion>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let new: NewStatement = match read(body) {
        Ok(new) => new,
        Err(response) => return *response,
    };
    match fusion.explain(new) {
        Ok(explained) => Json(explained).into_response(),
        Err(error) => of_error(&error),
    }
}

/// What runs once over named windows and tables.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    text: String,
}

async fn query(State(fusion): State<Arc<Fusion>>, body: Result<Bytes, BytesRejection>) -> Response {
    let question: Question = match read(body) {
        Ok(question) => question,
        Err(response) => return *response,
    };
    match whole(async move { fusion.query(&question.text).await }).await {
        Ok(rows) => Json(json!({ "rows": rows })).into_response(),
        Err(error) => of_error(&error),
    }
}

async fn replace(
    State(fusion): State<Arc<Fusion>>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let replacement = match read::<Value>(body).and_then(replacement) {
        Ok(replacement) => replacement,
        Err(response) => return *response,
    };
    match whole(async move { fusion.replace(&id, replacement).await }).await {
        Ok((statement, state_kept)) => {
            let mut answer = json!(statement);
            answer["state_kept"] = state_kept.into();
            Json(answer).into_response()
        }
        Err(error) => of_error(&error),
    }
}

async fn pause(State(fusion): State<Arc<Fusion>>, Path(id): Path<String>) -> Response {
    shown(whole(async move { fusion.pause(&id).await }).await)
}

async fn resume(State(fusion): State<Arc<Fusion>>, Path(id): Path<String>) -> Response {
    shown(whole(async move { fusion.resume(&id).await }).await)
}

/// The query of a look at rows.
#[derive(Deserialize)]
struct Look {
    after: Option<u64>,
    wait_ms: Option<u64>,
}

async fn rows(
    State(fusion): State<Arc<Fusion>>,
    Path(id): Path<String>,
    Query(look): Query<Look>,
) -> Response {
    let wait = look.wait_ms.map_or(TAIL_WAIT_MAX, Duration::from_millis);
    match fusion.tail(&id, look.after, wait).await {
        Ok(tail) => Json(tail).into_response(),
        Err(error) => of_error(&error),
    }
}

async fn remove(State(fusion): State<Arc<Fusion>>, Path(id): Path<String>) -> Response {
    done(whole(async move { fusion.remove(&id).await }).await)
}

async fn types(State(fusion): State<Arc<Fusion>>) -> Response {
    Json(json!({ "types": fusion.types() })).into_response()
}

/// A row of the table of types, without its name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeForm {
    filter: String,
    format: Format,
}

async fn set_type(
    State(fusion): State<Arc<Fusion>>,
    Path(alias): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let TypeForm { filter, format } = match read(body) {
        Ok(form) => form,
        Err(response) => return *response,
    };
    let row = EventType {
        alias,
        filter,
        format,
    };
    done(whole(async move { fusion.set_type(row).await }).await)
}

async fn remove_type(State(fusion): State<Arc<Fusion>>, Path(alias): Path<String>) -> Response {
    done(whole(async move { fusion.remove_type(&alias).await }).await)
}

/// Brings a change to its end, also when its client goes away: what answers it is dropped half-way
/// then, and nobody would end what it began.
pub(crate) async fn whole<T: Send + 'static>(
    change: impl Future<Output = T> + Send + 'static,
) -> T {
    match tokio::spawn(change)
        .await
        .map_err(JoinError::try_into_panic)
    {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime goes down, and this with it.
        Err(Err(_)) => std::future::pending().await,
    }
}

fn done(outcome: Result<(), FusionError>) -> Response {
    match outcome {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => of_error(&error),
    }
}

async fn document() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], DOCUMENT).into_response()
}

fn shown(statement: Result<StatementInfo, FusionError>) -> Response {
    match statement {
        Ok(statement) => Json(statement).into_response(),
        Err(error) => of_error(&error),
    }
}

/// The body as JSON of a shape, or what to answer.
fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, Box<Response>> {
    serde_json::from_slice(&within(body, HTTP_BODY_BYTES_MAX)?).map_err(no_statement)
}

/// The body, or what to answer; `most` is what the route takes.
fn within(body: Result<Bytes, BytesRejection>, most: usize) -> Result<Bytes, Box<Response>> {
    match body {
        Ok(body) => Ok(body),
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!("the body has more than {most} bytes: send a shorter one");
            Err(Box::new(answer(StatusCode::PAYLOAD_TOO_LARGE, &message)))
        }
        Err(rejection) => Err(Box::new(answer(rejection.status(), &rejection.body_text()))),
    }
}

/// A replacement: a statement form that may say what becomes of the state.
fn replacement(mut body: Value) -> Result<Replacement, Box<Response>> {
    let state = body
        .as_object_mut()
        .and_then(|members| members.remove("state"));
    let state: ReplacedState = match state {
        Some(state) => serde_json::from_value(state).map_err(no_statement)?,
        None => ReplacedState::Auto,
    };
    let new: NewStatement = serde_json::from_value(body).map_err(no_statement)?;
    Ok(Replacement {
        new,
        state,
        origin: None,
    })
}

fn no_statement(error: serde_json::Error) -> Box<Response> {
    let message = format!(
        "the body cannot be used: {error}; a statement is {{\"text\": \"SELECT …\", \"name\": \
         \"optional\"}}"
    );
    Box::new(answer(StatusCode::BAD_REQUEST, &message))
}

/// The one conversion of errors to HTTP.
fn of_error(error: &FusionError) -> Response {
    if let FusionError::Text(text) = error {
        let body = json!({
            "error_code": StatusCode::BAD_REQUEST.as_u16(),
            "message": text.to_string(),
            "line": text.line,
            "column": text.column,
        });
        return (StatusCode::BAD_REQUEST, Json(body)).into_response();
    }
    answer(status_of(error), &base::report(error))
}

/// The HTTP status that says whose fault an error is.
pub(crate) fn status_of(error: &FusionError) -> StatusCode {
    match error {
        FusionError::Text(_) | FusionError::Refused(_) | FusionError::Limit(_) => {
            StatusCode::BAD_REQUEST
        }
        FusionError::Unknown(_) | FusionError::UnknownModule(_) => StatusCode::NOT_FOUND,
        FusionError::NameTaken(_)
        | FusionError::ModuleTaken(_)
        | FusionError::ModuleUsed { .. } => StatusCode::CONFLICT,
        FusionError::Streams { source, .. } => match source.as_ref() {
            streams::StreamsError::AutoCreateOff(_) | streams::StreamsError::UnknownTopic(_) => {
                StatusCode::BAD_REQUEST
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        },
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// An error as it is told.
pub(crate) fn answer(status: StatusCode, message: &str) -> Response {
    let body = json!({ "error_code": status.as_u16(), "message": message });
    (status, Json(body)).into_response()
}

/// The document.
pub(crate) const DOCUMENT: &str = include_str!("../openapi.json");
