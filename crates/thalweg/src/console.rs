//! The web console's files, carried in the binary. Sources and build: `console/`.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;
use axum::routing::get;

/// Serves the page at `/`.
pub fn routes() -> Router {
    Router::new()
        .route("/", get(|| file("text/html; charset=utf-8", INDEX)))
        .route(
            "/console.js",
            get(|| file("text/javascript; charset=utf-8", SCRIPT)),
        )
        .route(
            "/console.css",
            get(|| file("text/css; charset=utf-8", STYLE)),
        )
}

async fn file(kind: &'static str, bytes: &'static [u8]) -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, kind),
        // A new binary must not be shown through an old page.
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, bytes)
}

const INDEX: &[u8] = include_bytes!("../../../console/dist/index.html");
const SCRIPT: &[u8] = include_bytes!("../../../console/dist/console.js");
const STYLE: &[u8] = include_bytes!("../../../console/dist/console.css");
/// Only the page's own files and API; the plotting library sets element styles.
/// Nobody shows it within a page of their own.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
