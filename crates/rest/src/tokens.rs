//! The management API of API tokens, `/api/v1/tokens`.
//!
//! A token's text is told once, in the answer to the request that issues it: nothing here can tell
//! it again, and no log holds it.

use std::sync::Arc;
use std::time::Duration;

use access::{Token, limits};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use base::{Clock, HumanDuration, SystemClock};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{JSON, Management, blocking};
use crate::acl_words::refusal;
use crate::answer::{self, Parameters, Segments};
use crate::error::RestError;

/// The routes of tokens.
///
/// - `GET /api/v1/tokens`, of one user with `?user=…`: `{"tokens": [{id, user, description,
///   created_ms, expires_ms}]}`
/// - `POST /api/v1/tokens` with `{"user", "description"?, "expires_in"?}`: 201 and the token's
///   object with its text as `token`; good for 90 days unless said, `"0s"` for ever
/// - `DELETE /api/v1/tokens/{id}`: 204
pub(crate) fn routes() -> Router<Arc<Management>> {
    Router::new()
        .route("/api/v1/tokens", get(list).post(issue))
        .route("/api/v1/tokens/{id}", delete(remove))
}

async fn list(
    State(management): State<Arc<Management>>,
    Parameters(asked): Parameters<Of>,
) -> Response {
    let snapshot = management.access.snapshot();
    let is_meant = |token: &&Token| asked.user.as_ref().is_none_or(|user| token.user == *user);
    let tokens: Vec<Value> = snapshot.tokens().filter(is_meant).map(told).collect();
    answer::json(StatusCode::OK, JSON, &json!({"tokens": tokens}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Of {
    user: Option<String>,
}

async fn issue(
    State(management): State<Arc<Management>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        user: String,
        #[serde(default)]
        description: String,
        expires_in: Option<HumanDuration>,
    }
    let held = management.gate.read(&headers, body).await?;
    let asked: Asked = answer::entity(&held.bytes)?;
    let good_for = good_for(asked.expires_in);
    let now = SystemClock.now();
    let issued = Token::issue(&asked.user, &asked.description, now, good_for);
    let (token, text) = issued.map_err(refusal)?;
    let mut answer = told(&token);
    answer["token"] = Value::String(text);
    let access = Arc::clone(&management.access);
    blocking(move || access.add_token(token)).await?;
    let mut response = answer::json(StatusCode::CREATED, JSON, &answer);
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    Ok(response)
}

async fn remove(
    State(management): State<Arc<Management>>,
    Segments(id): Segments<String>,
) -> Result<Response, RestError> {
    let access = Arc::clone(&management.access);
    blocking(move || access.remove_token(&id)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// How long a token is good for that was asked for like this.
fn good_for(asked: Option<HumanDuration>) -> Option<Duration> {
    let time = asked.map_or(limits::TOKEN_GOOD_FOR, |asked| asked.0);
    (!time.is_zero()).then_some(time)
}

fn told(token: &Token) -> Value {
    json!({
        "id": token.id,
        "user": token.user,
        "description": token.description,
        "created_ms": token.created,
        "expires_ms": token.expires,
    })
}
