//! Cross-origin requests (the Fetch standard's CORS protocol): which other sites' pages may call a
//! port, and how browsers are told.
//!
//! It stands around everything else: a browser asks before it sends credentials, and its page is to
//! see errors too.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::refused;

/// Which pages may call a port; none of other sites by default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CorsConfig {
    /// Scheme, host and port of the sites, such as `https://app.example.org`; `*` is every site.
    pub allowed_origins: Vec<String>,
    /// Methods that their pages may use.
    pub allowed_methods: Vec<String>,
    /// Headers that their pages may send; `*` is every header.
    pub allowed_headers: Vec<String>,
}

impl Default for CorsConfig {
    fn default() -> Self {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        CorsConfig {
            allowed_origins: Vec::new(),
            allowed_methods: list(&["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]),
            allowed_headers: list(&[
                "Accept",
                "Authorization",
                "Content-Type",
                "Content-Encoding",
            ]),
        }
    }
}

impl CorsConfig {
    /// All that is wrong with the settings, one line each, in the keys' names.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for origin in &self.allowed_origins {
            let site = origin.split_once("://").map_or("", |(_, site)| site);
            let is_origin = !site.is_empty() && !site.contains('/');
            if origin != ANY && !is_origin {
                problems.push(format!(
                    "cors.allowed_origins: '{origin}' is no origin; write https://app.example.org, \
                     or * for every site"
                ));
            }
        }
        for (key, names) in [
            ("cors.allowed_methods", &self.allowed_methods),
            ("cors.allowed_headers", &self.allowed_headers),
        ] {
            if names
                .iter()
                .any(|name| Method::from_bytes(name.as_bytes()).is_err())
            {
                problems.push(format!("{key} holds something that is no name"));
            }
        }
        problems
    }
}

/// What browsers are told.
pub struct Cors {
    origins: Vec<String>,
    is_open: bool,
    methods: HeaderValue,
    /// None lets pages send whatever they ask for.
    headers: Option<HeaderValue>,
}

impl Cors {
    /// None when no other site's page may call.
    pub fn of(config: &CorsConfig) -> Option<Cors> {
        if config.allowed_origins.is_empty() {
            return None;
        }
        let list = |names: &[String]| HeaderValue::from_str(&names.join(", ")).ok();
        let is_any = config.allowed_headers.iter().any(|name| name == ANY);
        Some(Cors {
            origins: config.allowed_origins.clone(),
            is_open: config.allowed_origins.iter().any(|origin| origin == ANY),
            methods: list(&config.allowed_methods)?,
            headers: list(&config.allowed_headers).filter(|_| !is_any),
        })
    }

    /// Whether pages of this origin may call.
    pub fn allows(&self, origin: &str) -> bool {
        let is_listed = |known: &String| known.eq_ignore_ascii_case(origin);
        self.is_open || self.origins.iter().any(is_listed)
    }

    /// The answer to a browser that asks before its page's request; none when it does not.
    pub fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        let is_asked = method == Method::OPTIONS && headers.contains_key(ORIGIN);
        if !is_asked || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let origin = headers.get(ORIGIN)?;
        if !origin.to_str().is_ok_and(|origin| self.allows(origin)) {
            let message = "pages of this site may not call; see cors.allowed_origins";
            return Some(refused(StatusCode::FORBIDDEN, message));
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let told = response.headers_mut();
        told.insert(ACCESS_CONTROL_ALLOW_METHODS, self.methods.clone());
        let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS);
        if let Some(allowed) = self.headers.as_ref().or(asked) {
            told.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed.clone());
        }
        let max_age = HeaderValue::from_static(MAX_AGE_SECONDS);
        told.insert(ACCESS_CONTROL_MAX_AGE, max_age);
        Some(response)
    }

    /// Tells the browser that its page may see the answer, if it may.
    pub fn mark(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        headers.append(VARY, HeaderValue::from_static("origin"));
        let Some(origin) = origin else { return };
        if origin.to_str().is_ok_and(|origin| self.allows(origin)) {
            let told = match self.is_open {
                true => HeaderValue::from_static(ANY),
                false => origin.clone(),
            };
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, told);
            let exposed = HeaderValue::from_static("Retry-After, WWW-Authenticate");
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
    }
}

const ANY: &str = "*";
/// How long a browser need not ask again.
const MAX_AGE_SECONDS: &str = "3600";

#[cfg(test)]
mod tests {
    use super::*;

    fn config(origins: &[&str]) -> CorsConfig {
        CorsConfig {
            allowed_origins: origins.iter().map(|origin| (*origin).to_owned()).collect(),
            ..CorsConfig::default()
        }
    }

    fn asked(origin: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, origin.parse().unwrap());
        headers.insert(ACCESS_CONTROL_REQUEST_METHOD, "POST".parse().unwrap());
        headers.insert(ACCESS_CONTROL_REQUEST_HEADERS, "x-own".parse().unwrap());
        headers
    }

    #[test]
    fn listed_sites_are_told_what_they_may() {
        assert!(Cors::of(&CorsConfig::default()).is_none());
        let cors = Cors::of(&config(&["https://app.example.org"])).unwrap();
        let headers = asked("https://app.example.org");
        let told = cors.preflight(&Method::OPTIONS, &headers).unwrap();
        assert_eq!(told.status(), 204);
        let methods = &told.headers()[ACCESS_CONTROL_ALLOW_METHODS];
        assert!(methods.to_str().unwrap().contains("DELETE"));
        let names = &told.headers()[ACCESS_CONTROL_ALLOW_HEADERS];
        assert!(names.to_str().unwrap().contains("Authorization"));
        for origin in [
            "https://evil.org",
            "null",
            "https://app.example.org.evil.org",
        ] {
            let refused = cors.preflight(&Method::OPTIONS, &asked(origin)).unwrap();
            assert_eq!(refused.status(), 403, "{origin}");
            let mut answer = HeaderMap::new();
            cors.mark(asked(origin).get(ORIGIN), &mut answer);
            assert!(!answer.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN));
        }
        assert!(cors.preflight(&Method::POST, &headers).is_none());
        assert!(
            cors.preflight(&Method::OPTIONS, &HeaderMap::new())
                .is_none()
        );
        let mut answer = HeaderMap::new();
        cors.mark(headers.get(ORIGIN), &mut answer);
        assert_eq!(
            answer[ACCESS_CONTROL_ALLOW_ORIGIN],
            "https://app.example.org"
        );
        assert_eq!(answer[VARY], "origin");
    }

    #[test]
    fn every_site_and_every_header_when_the_stars_say_so() {
        let mut open = config(&["*"]);
        open.allowed_headers = vec!["*".to_owned()];
        let cors = Cors::of(&open).unwrap();
        let headers = asked("https://anything.org");
        let told = cors.preflight(&Method::OPTIONS, &headers).unwrap();
        assert_eq!(told.headers()[ACCESS_CONTROL_ALLOW_HEADERS], "x-own");
        let mut answer = HeaderMap::new();
        cors.mark(headers.get(ORIGIN), &mut answer);
        assert_eq!(answer[ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    }

    #[test]
    fn settings_that_are_no_origins_are_told() {
        assert_eq!(config(&["*", "http://localhost:3000"]).problems(), [""; 0]);
        for origin in ["app.example.org", "https://app.example.org/", "https://"] {
            assert_eq!(config(&[origin]).problems().len(), 1, "{origin}");
        }
        let methods = CorsConfig {
            allowed_methods: vec!["GET,POST".to_owned()],
            ..CorsConfig::default()
        };
        assert_eq!(methods.problems().len(), 1);
    }
}
