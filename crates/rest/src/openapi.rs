//! The OpenAPI document of the proxy's port: one file, which tests compare with the routes and
//! schemathesis with the behaviour.

use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;

use crate::answer;

/// `GET /openapi.json`
pub(crate) async fn document() -> Response {
    let text = Bytes::from_static(DOCUMENT.as_bytes());
    answer::bytes(StatusCode::OK, "application/json", text)
}

/// The document.
pub(crate) const DOCUMENT: &str = include_str!("../openapi.json");
