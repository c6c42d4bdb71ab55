//! The HTTP API of bulk imports under `/api/v1/`: jobs, profiles, tenants, records and search.
//!
//! Errors are `{"error_code": int, "message": text}`. `openapi.json` beside this file describes it
//! all.

mod jobs;
mod others;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, patch, post};
use base::TenantId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ImportsError;
use crate::imports::Imports;

/// The routes over `imports`; the caller mounts them beside those of other roles.
///
/// - `POST /api/v1/imports?tenant=&format=&topic=&sink=&class=&profile=&key=&encoding=&name=&resumable=
///   &path=&url=&idempotency_key=` with the file as the body (the key also as header `Idempotency-Key`): 201
///   and the job, or 200 and the earlier job of that key
/// - `GET /api/v1/imports?tenant=&limit=`: `{"jobs": […]}`, newest first
/// - `GET`, `DELETE /api/v1/imports/{id}`: the job; cancels it
/// - `PATCH /api/v1/imports/{id}/file?offset=&last=`: the next piece of an upload in pieces
/// - `POST /api/v1/imports/{id}/pause`, `/resume`
/// - `GET /api/v1/imports/{id}/journal?after=&limit=`: `{"entries": [{ordinal, offset, kind,
///   reason}], "next": ordinal|null}`
/// - `GET /api/v1/imports/{id}/rejects`: the rejected records' file
/// - `POST /api/v1/imports/{id}/retry?idempotency_key=`: a job of these, or of the body
/// - `GET /api/v1/profiles?tenant=&after=&limit=`, `GET`, `PUT`, `DELETE /api/v1/profiles/{name}?tenant=`
/// - `GET /api/v1/imports/tenants?after=&limit=`: `{"tenants": […], "next": tenant|null}`, what each
///   has imported, by name
/// - `GET /api/v1/records/{tenant}/{id}`, `…/history?after=&limit=`, `POST …/check-out` (`{"holder": text}`),
///   `POST …/check-in`
/// - `GET /api/v1/search?tenant=&q=&limit=&offset=`: `{"total", "records": [{id, title}], "next": offset|null}`
/// - `POST /api/v1/search/rebuild`: fills the index from the sink again
pub fn routes(imports: Arc<Imports>) -> Router {
    table()
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| {
            router.route(path, methods)
        })
        .route("/api/v1/imports/openapi.json", get(openapi))
        .with_state(imports)
}

fn table() -> Vec<(&'static str, MethodRouter<Arc<Imports>>)> {
    vec![
        ("/api/v1/imports", get(jobs::list).post(jobs::create)),
        ("/api/v1/imports/{id}", get(jobs::job).delete(jobs::cancel)),
        ("/api/v1/imports/{id}/file", patch(jobs::append)),
        ("/api/v1/imports/{id}/pause", post(jobs::pause)),
        ("/api/v1/imports/{id}/resume", post(jobs::resume)),
        ("/api/v1/imports/{id}/journal", get(jobs::journal)),
        ("/api/v1/imports/{id}/rejects", get(jobs::rejects)),
        ("/api/v1/imports/{id}/retry", post(jobs::retry)),
        ("/api/v1/profiles", get(others::profiles)),
        (
            "/api/v1/profiles/{name}",
            get(others::profile)
                .put(others::set_profile)
                .delete(others::remove_profile),
        ),
        ("/api/v1/imports/tenants", get(others::tenants)),
        ("/api/v1/records/{tenant}/{id}", get(others::record)),
        (
            "/api/v1/records/{tenant}/{id}/history",
            get(others::history),
        ),
        (
            "/api/v1/records/{tenant}/{id}/check-out",
            post(others::check_out),
        ),
        (
            "/api/v1/records/{tenant}/{id}/check-in",
            post(others::check_in),
        ),
        ("/api/v1/search", get(others::search)),
        ("/api/v1/search/rebuild", post(others::rebuild)),
    ]
}

/// `GET /api/v1/imports/openapi.json`: the document about these routes.
async fn openapi() -> impl IntoResponse {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], OPENAPI)
}

const OPENAPI: &str = include_str!("openapi.json");

type Parameters<T> = Result<Query<T>, QueryRejection>;

/// The path's segments, percent-decoded.
struct Segments<T>(T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = ImportsError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ImportsError> {
        let found: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        found
            .map(|Path(segments)| Segments(segments))
            .map_err(|rejection| ImportsError::Invalid(rejection.body_text()))
    }
}

/// What a body of JSON says.
struct Entity<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Entity<T> {
    type Rejection = ImportsError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ImportsError> {
        let unread =
            |reason: String| ImportsError::Invalid(format!("the body cannot be read: {reason}"));
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|rejection| unread(rejection.body_text()))?;
        let entity = serde_json::from_slice(&body).map_err(|error| unread(error.to_string()))?;
        Ok(Entity(entity))
    }
}

fn tenant(name: &str) -> Result<TenantId, ImportsError> {
    name.parse()
        .map_err(|error| ImportsError::Invalid(base::report(&error)))
}

fn tenant_or_default(name: Option<&str>) -> Result<TenantId, ImportsError> {
    name.map_or_else(|| Ok(TenantId::default_tenant()), tenant)
}

fn parameters<T>(asked: Parameters<T>) -> Result<T, ImportsError> {
    asked
        .map(|Query(parameters)| parameters)
        .map_err(|rejection| ImportsError::Invalid(rejection.body_text()))
}

/// An answer of JSON; what is raw JSON in `body` stays as it is.
fn answer(status: StatusCode, body: &impl Serialize) -> Response {
    let json = HeaderValue::from_static("application/json");
    // Texts, numbers and lists of these always have a JSON form.
    let body = serde_json::to_string(body).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, json)], body).into_response()
}

/// Where the page behind this one begins: there may be one where `page` has as many as were asked for.
fn next<'p, T, N>(page: &'p [T], count: u32, mark: impl FnOnce(&'p T) -> N) -> Option<N> {
    let is_full = page.len() >= usize::try_from(count).unwrap_or(usize::MAX);
    page.last().filter(|_| is_full).map(mark)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_openapi_part_names_every_route_and_no_other() {
        let document: Value = serde_json::from_str(OPENAPI).unwrap();
        let described: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
        let mut routes: Vec<&str> = table().into_iter().map(|(path, _)| path).collect();
        routes.sort_unstable();
        assert_eq!(described, routes);
    }
}
