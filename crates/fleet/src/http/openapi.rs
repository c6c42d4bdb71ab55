//! The OpenAPI document of the fleet's management API: one file, which tests compare with the
//! routes and schemathesis with the behaviour.

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// `GET /api/v1/openapi.json`
pub fn routes() -> Router {
    Router::new().route("/api/v1/openapi.json", get(document))
}

async fn document() -> Response {
    let mut response = DOCUMENT.into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The document.
pub(crate) const DOCUMENT: &str = include_str!("../../openapi.json");
