//! Callers whose calls another proxy sends on.
//!
//! A password or a token goes along with the call. A certificate cannot, and the address that ACLs may
//! speak of is that of the caller and not of the proxy between. So a proxy that shows a certificate says
//! for whom it calls, in two headers. They count from those alone whose certificates name a proxy; from
//! everybody else they are nothing, and where nothing else says who calls they are refused, so that
//! proxies that do not believe each other are found by what they answer.

use std::net::IpAddr;
use std::sync::Arc;

use ::access::Principal;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use streams::Caller;

use crate::error::RestError;
use crate::login::Peer;

/// Says in a call's headers for whom it is sent on.
pub(crate) fn speak_for(caller: &Caller, headers: &mut HeaderMap) {
    if let Ok(principal) = HeaderValue::from_bytes(caller.principal().as_str().as_bytes())
        && let Ok(host) = HeaderValue::from_str(caller.host())
    {
        headers.insert(CALLER, principal);
        headers.insert(CALLER_HOST, host);
    }
}

/// Takes what a client says of others off its headers.
pub(crate) fn speak_for_nobody(headers: &mut HeaderMap) {
    headers.remove(CALLER);
    headers.remove(CALLER_HOST);
}

/// Has requests to `routes` be those of whom `proxies` speak for. What asks who calls stands within.
pub(crate) fn believed(routes: Router, proxies: Vec<Principal>) -> Router {
    let proxies: Arc<[Principal]> = proxies.into();
    routes.layer(middleware::from_fn_with_state(proxies, believe))
}

async fn believe(
    State(proxies): State<Arc<[Principal]>>,
    mut request: Request,
    next: Next,
) -> Response {
    if !request.headers().contains_key(CALLER) {
        return next.run(request).await;
    }
    let peer = request.extensions().get::<Peer>();
    let shown = peer.and_then(|peer| peer.certificate.as_ref());
    if !shown.is_some_and(|shown| proxies.contains(shown)) {
        if request.headers().contains_key(header::AUTHORIZATION) {
            return next.run(request).await;
        }
        let text = "only proxies that rest.peer_names names may speak for others";
        return RestError::Unauthenticated(text).into_response();
    }
    let Some(caller) = spoken_for(request.headers()) else {
        let text = "the proxy between says nobody's name and address";
        return RestError::Unauthenticated(text).into_response();
    };
    // The proxy between has asked for it.
    request.headers_mut().remove(header::AUTHORIZATION);
    request.extensions_mut().insert(caller);
    next.run(request).await
}

fn spoken_for(headers: &HeaderMap) -> Option<Peer> {
    let principal = std::str::from_utf8(headers.get(CALLER)?.as_bytes()).ok()?;
    let ip: IpAddr = headers.get(CALLER_HOST)?.to_str().ok()?.parse().ok()?;
    Some(Peer {
        ip,
        certificate: Some(principal.parse().ok()?),
    })
}

/// For whom a proxy sends a call on: `User:NAME`.
const CALLER: HeaderName = HeaderName::from_static("thalweg-caller");
/// The address that they call from.
const CALLER_HOST: HeaderName = HeaderName::from_static("thalweg-caller-host");

#[cfg(test)]
mod tests {
    use ::access::{Access, Policy};
    use axum::body::Body;
    use axum::routing::get;
    use axum::{Extension, Router};
    use base::SystemClock;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;
    use crate::login::{Logins, identified};

    struct Port {
        routes: Router,
        _folder: tempfile::TempDir,
    }

    impl Port {
        /// Answers whoever calls with what their name and address are taken to be.
        fn open(proxies: &[&str]) -> Port {
            let folder = tempfile::tempdir().unwrap();
            let access = Arc::new(Access::open(folder.path()).unwrap());
            let logins = Logins::new(access, Policy::default(), None, Arc::new(SystemClock));
            let told = async |Extension(caller): Extension<Caller>| {
                format!("{} {}", caller.principal(), caller.host())
            };
            let routes = identified(Router::new().route("/", get(told)), logins);
            let proxies = proxies.iter().map(|name| Principal::user(name));
            Port {
                routes: believed(routes, proxies.collect()),
                _folder: folder,
            }
        }

        async fn call(&self, certificate: Option<&str>, headers: &[(&str, &str)]) -> (u16, String) {
            let peer = Peer {
                ip: IpAddr::from([10, 0, 0, 9]),
                certificate: certificate.map(Principal::user),
            };
            let mut request = Request::get("/").extension(peer);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(Body::empty()).unwrap();
            let answer = self.routes.clone().oneshot(request).await.unwrap();
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8_lossy(&body).into_owned())
        }
    }

    #[tokio::test]
    async fn a_proxy_speaks_for_its_caller_and_nobody_else_does() {
        let port = Port::open(&["CN=proxy"]);
        let access = Arc::new(Access::open(port._folder.path()).unwrap());
        let policy = Arc::new(Policy::default());
        let ann = Caller::new(access, policy, Principal::user("CN=änn"), "10.1.1.1");
        let mut headers = HeaderMap::new();
        speak_for(&ann, &mut headers);
        let sent: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| {
                let value = String::from_utf8(value.as_bytes().to_vec()).unwrap();
                (name.to_string(), value)
            })
            .collect();
        let sent: Vec<(&str, &str)> = sent.iter().map(|(n, v)| (&**n, &**v)).collect();

        let told = port.call(Some("CN=proxy"), &sent).await;
        assert_eq!(told, (200, "User:CN=änn 10.1.1.1".to_owned()));
        // It acts as itself where it speaks for nobody.
        let told = port.call(Some("CN=proxy"), &[]).await;
        assert_eq!(told, (200, "User:CN=proxy 10.0.0.9".to_owned()));
        let told = port.call(Some("CN=eve"), &sent).await;
        assert_eq!(told.0, 401, "{}", told.1);
        assert!(told.1.contains("rest.peer_names"), "{}", told.1);
        assert_eq!(port.call(None, &sent).await.0, 401);
        // Half of it is nothing.
        assert_eq!(port.call(Some("CN=proxy"), &sent[..1]).await.0, 401);
        let nobody = [("thalweg-caller", "User:"), ("thalweg-caller-host", "::1")];
        assert_eq!(port.call(Some("CN=proxy"), &nobody).await.0, 401);

        speak_for_nobody(&mut headers);
        assert!(headers.is_empty());
    }

    #[tokio::test]
    async fn a_login_counts_where_the_proxy_is_not_believed() {
        let port = Port::open(&[]);
        let sent = [
            ("thalweg-caller", "User:root"),
            ("thalweg-caller-host", "::1"),
            ("authorization", "Bearer nothing"),
        ];
        let (status, told) = port.call(Some("CN=eve"), &sent).await;
        assert_eq!(status, 401);
        assert!(told.contains("token"), "{told}");
    }
}
