//! Keeps web pages of others away from ports that ask nobody who they are.
//!
//! A page that someone on this machine opens may send requests to 127.0.0.1. Two checks stop it:
//! a request that a browser marks with another page's `Origin` is refused, and so is one whose
//! `Host` is a name instead of this machine's address (DNS rebinding). Programs such as curl send
//! no `Origin` and reach the port by its address, so they notice nothing.

use axum::Json;
use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Refuses requests that come from another site's page.
pub async fn same_site_only(request: Request, next: Next) -> Response {
    match refusal(request.headers()) {
        None => next.run(request).await,
        Some(message) => {
            let body = Json(json!({"error_code": 403, "message": message}));
            (StatusCode::FORBIDDEN, body).into_response()
        }
    }
}

fn refusal(headers: &HeaderMap) -> Option<&'static str> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(HOST).unwrap_or_default();
    if !is_this_machine(host) {
        return Some("this port is reached by its address; use 127.0.0.1 or localhost as host");
    }
    match text(ORIGIN) {
        None => None,
        Some(origin)
            if origin
                .split_once("://")
                .is_some_and(|(_, site)| site == host) =>
        {
            None
        }
        Some(_) => Some("requests from pages of other sites are refused"),
    }
}

/// An address, or the one name that always means this machine. HTTP/1.0 sends no host at all.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.is_empty() || bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        refusal(&headers).is_none()
    }

    #[test]
    fn programs_and_the_own_page_pass() {
        assert!(check("127.0.0.1:10090", None));
        assert!(check("localhost:10090", Some("http://localhost:10090")));
        assert!(check("[::1]:10090", Some("http://[::1]:10090")));
        assert!(refusal(&HeaderMap::new()).is_none());
    }

    #[test]
    fn other_sites_pages_are_refused() {
        assert!(!check("127.0.0.1:10090", Some("https://example.org")));
        assert!(!check("127.0.0.1:10090", Some("http://127.0.0.1:3000")));
        assert!(!check("127.0.0.1:10090", Some("null")));
        assert!(!check("rebound.example.org:10090", None));
    }
}
