//! Keeps web pages of others away from ports that open nothing to them.
//!
//! A page that someone on this machine opens may send requests to 127.0.0.1, and with a password
//! that the browser remembers. Two checks stop it: a request that a browser marks with another page's
//! `Origin` is refused, and, where nobody is asked who they are, so is one whose `Host` is a name
//! instead of this machine's address (DNS rebinding). Programs such as curl send no `Origin` and
//! reach the port by its address, so they notice nothing.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName};

use super::cors::Cors;

/// What is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Guard {
    /// Whose page it is.
    #[default]
    Origin,
    /// That, and by which name the port is called.
    OriginAndHost,
}

/// Why a request is refused, if it is.
pub(super) fn refusal(
    guard: Guard,
    headers: &HeaderMap,
    cors: Option<&Cors>,
    own: Option<&str>,
) -> Option<&'static str> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(HOST).unwrap_or_default();
    // HTTP/1.0 sends no host at all.
    let is_own = host.is_empty() || access::is_this_machine(host);
    if guard == Guard::OriginAndHost && !is_own {
        return Some("this port is reached by its address; use 127.0.0.1 or localhost as host");
    }
    let origin = text(ORIGIN)?;
    let site = origin.split_once("://").map(|(_, site)| site);
    let is_let_in = || cors.is_some_and(|cors| cors.allows(origin));
    // Of another site even where a proxy before the port has made its name that of the port.
    let is_foreign = text(HeaderName::from_static("sec-fetch-site")) == Some("cross-site");
    match (site == Some(host) && !is_foreign) || own == Some(origin) || is_let_in() {
        true => None,
        false => Some(
            "requests from pages of other sites are refused; is a proxy before this port, have it \
             pass the Host header on, or list the page's origin in cors.allowed_origins",
        ),
    }
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
        refusal(Guard::OriginAndHost, &headers, None, None).is_none()
    }

    #[test]
    fn programs_and_the_own_page_pass() {
        assert!(check("127.0.0.1:10090", None));
        assert!(check("localhost:10090", Some("http://localhost:10090")));
        assert!(check("[::1]:10090", Some("http://[::1]:10090")));
        assert!(refusal(Guard::OriginAndHost, &HeaderMap::new(), None, None).is_none());
    }

    #[test]
    fn sites_that_are_let_in_pass() {
        let config = super::super::cors::CorsConfig {
            allowed_origins: vec!["https://app.example.org".to_owned()],
            ..Default::default()
        };
        let cors = Cors::of(&config);
        for (origin, passes) in [
            ("https://app.example.org", true),
            ("https://evil.org", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "127.0.0.1:8082".parse().unwrap());
            headers.insert(ORIGIN, origin.parse().unwrap());
            assert_eq!(
                refusal(Guard::OriginAndHost, &headers, cors.as_ref(), None).is_none(),
                passes,
                "{origin}"
            );
        }
    }

    #[test]
    fn other_sites_pages_are_refused() {
        assert!(!check("127.0.0.1:10090", Some("https://example.org")));
        assert!(!check("127.0.0.1:10090", Some("http://127.0.0.1:3000")));
        assert!(!check("127.0.0.1:10090", Some("null")));
        assert!(!check("rebound.example.org:10090", None));
        // Where callers log in, the port may have a name; pages of others stay out.
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "proxy.example.org".parse().unwrap());
        assert_eq!(refusal(Guard::Origin, &headers, None, None), None);
        headers.insert(ORIGIN, "https://proxy.example.org".parse().unwrap());
        assert_eq!(refusal(Guard::Origin, &headers, None, None), None);
        headers.insert(ORIGIN, "https://example.org".parse().unwrap());
        assert!(refusal(Guard::Origin, &headers, None, None).is_some());
    }

    #[test]
    fn pages_behind_a_proxy_are_known_by_the_set_address() {
        let own = Some("https://fleet.example.org");
        for (host, origin, site, passes) in [
            (
                "upstream:10090",
                "https://fleet.example.org",
                "same-origin",
                true,
            ),
            ("upstream:10090", "https://evil.org", "cross-site", false),
            // A proxy that makes up the host from what the page says.
            ("evil.org", "https://evil.org", "cross-site", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            headers.insert(ORIGIN, origin.parse().unwrap());
            headers.insert("sec-fetch-site", site.parse().unwrap());
            let refused = refusal(Guard::Origin, &headers, None, own);
            assert_eq!(refused.is_none(), passes, "{origin}");
        }
    }
}
