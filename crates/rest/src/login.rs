//! Who calls over HTTP, and what that lets them do.
//!
//! Where access control is on, a request brings a user's name and password (HTTP's Basic scheme)
//! and acts as that user: in the proxy on topics and groups, by the same ACLs as over Kafka's
//! protocol; in the management API by rights on the cluster, `DESCRIBE` to read and `ALTER` to
//! change. Where it is off, nobody is asked.
//!
//! Hashing a password costs milliseconds, so there are places for few at a time, who was wrong is
//! answered late, and who was right is remembered for a while.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ::access::{Access, CLUSTER, Operation, Passwords, Policy, Principal, ResourceType};
use axum::Router;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use base::Clock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use streams::{Caller, as_caller};
use tokio::sync::Semaphore;

use crate::error::RestError;
use crate::limits::{LOGIN_BYTES_MAX, LOGIN_REFUSED_WAIT, LOGINS_AT_ONCE_MAX};
use crate::routes::Shared;

/// The address that a request comes from; whoever serves connections puts it into their requests.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Finds out who calls.
pub struct Logins {
    access: Arc<Access>,
    policy: Arc<Policy>,
    passwords: Arc<Passwords>,
    clock: Arc<dyn Clock>,
    /// Places for those who hash a password.
    places: Semaphore,
}

impl Logins {
    /// By the users and ACLs of `access`, and what `policy` adds to them.
    pub fn new(access: Arc<Access>, policy: Policy, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Logins {
            passwords: Arc::new(Passwords::new(Arc::clone(&access))),
            access,
            policy: Arc::new(policy),
            clock,
            places: Semaphore::new(LOGINS_AT_ONCE_MAX),
        })
    }

    /// A part of this process as a caller, see [`Caller::service`].
    pub fn service(&self, name: &str) -> Caller {
        Caller::service(Arc::clone(&self.access), Arc::clone(&self.policy), name)
    }

    async fn caller(&self, headers: &HeaderMap, peer: Option<Peer>) -> Result<Caller, RestError> {
        let principal = self.principal(headers).await?;
        // One host, whichever way its address is written.
        let ip = peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| {
            peer.0.to_canonical()
        });
        let (access, policy) = (Arc::clone(&self.access), Arc::clone(&self.policy));
        Ok(Caller::new(access, policy, principal, ip.to_string()))
    }

    async fn principal(&self, headers: &HeaderMap) -> Result<Principal, RestError> {
        let refused = RestError::Unauthenticated;
        let credentials = headers
            .get(header::AUTHORIZATION)
            .ok_or(RestError::Unauthenticated(
                "log in: send a user's name and password (HTTP Basic)",
            ))?;
        let (name, password) = basic(credentials.as_bytes())
            .ok_or(refused("the Authorization header is not one of HTTP Basic"))?;
        let now = self.clock.now();
        if let Some(principal) = self.passwords.known(now, &name, &password) {
            return Ok(principal);
        }
        let place = self.places.acquire().await;
        // Others with the same password may have waited for the same answer.
        if let Some(principal) = self.passwords.known(now, &name, &password) {
            return Ok(principal);
        }
        let passwords = Arc::clone(&self.passwords);
        let checked =
            tokio::task::spawn_blocking(move || passwords.check(now, &name, &password)).await;
        drop(place);
        if let Ok(Some(principal)) = checked {
            return Ok(principal);
        }
        metrics::counter!("thalweg_rest_logins_refused_total").increment(1);
        tokio::time::sleep(LOGIN_REFUSED_WAIT).await;
        Err(refused("user or password is wrong"))
    }
}

/// Name and password of an `Authorization: Basic` header.
fn basic(header: &[u8]) -> Option<(String, String)> {
    if header.len() > LOGIN_BYTES_MAX {
        return None;
    }
    let (scheme, credentials) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("Basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(credentials.trim()).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// Has every request to `routes` say who calls; handlers find the [`Caller`] in the request.
pub(crate) fn identified(routes: Router, logins: Arc<Logins>) -> Router {
    routes.layer(middleware::from_fn_with_state(logins, identify))
}

async fn identify(State(logins): State<Arc<Logins>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().copied();
    match logins.caller(&parts.headers, peer).await {
        Ok(caller) => {
            parts.extensions.insert(caller);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(refused) => refused.into_response(),
    }
}

/// What of a management port needs no login.
pub struct Openings {
    /// Paths, whole.
    pub paths: Vec<&'static str>,
    /// Beginnings of paths.
    pub prefixes: Vec<&'static str>,
}

struct Gatekeeper {
    logins: Arc<Logins>,
    openings: Openings,
}

/// Has every request to `routes` but for the openings come from somebody with rights on the
/// cluster: `DESCRIBE` to read, `ALTER` for everything else.
pub fn cluster_rights_asked(routes: Router, logins: Arc<Logins>, openings: Openings) -> Router {
    let gatekeeper = Arc::new(Gatekeeper { logins, openings });
    routes.layer(middleware::from_fn_with_state(
        gatekeeper,
        ask_cluster_rights,
    ))
}

async fn ask_cluster_rights(
    State(gatekeeper): State<Arc<Gatekeeper>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let Openings { paths, prefixes } = &gatekeeper.openings;
    if paths.contains(&path) || prefixes.iter().any(|prefix| path.starts_with(prefix)) {
        return next.run(request).await;
    }
    let operation = match *request.method() {
        Method::GET | Method::HEAD => Operation::Describe,
        _ => Operation::Alter,
    };
    let (parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().copied();
    let caller = gatekeeper.logins.caller(&parts.headers, peer).await;
    let allowed = caller.and_then(|caller| {
        let checked = caller.check(operation, ResourceType::Cluster, CLUSTER);
        checked.map_err(RestError::from)
    });
    match allowed {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refused) => refused.into_response(),
    }
}

/// What handlers share, with the store as the request's caller may use it.
pub(crate) struct Asked(pub Arc<Shared>);

impl FromRequestParts<Arc<Shared>> for Asked {
    type Rejection = RestError;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, RestError> {
        let Some(caller) = parts.extensions.get::<Caller>() else {
            return Ok(Asked(Arc::clone(shared)));
        };
        Ok(Asked(Arc::new(Shared {
            store: as_caller(Arc::clone(&shared.store), caller.clone()),
            caller: Some(caller.clone()),
            ..Shared::clone(shared)
        })))
    }
}

/// Who the request's caller is, for what they make.
pub(crate) struct Owner(pub Option<Principal>);

impl<S: Sync> FromRequestParts<S> for Owner {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Owner(principal_of(parts)))
    }
}

/// Who the request's caller is, where callers are asked.
pub(crate) fn principal_of(parts: &Parts) -> Option<Principal> {
    let caller = parts.extensions.get::<Caller>();
    caller.map(|caller| caller.principal().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_basic_scheme_is_read() {
        let good = [
            ("Basic YW5uOnB3", ("ann", "pw")),
            ("basic YW5uOnA6dw==", ("ann", "p:w")),
            ("BASIC  Og==", ("", "")),
        ];
        for (text, (name, password)) in good {
            let expected = Some((name.to_owned(), password.to_owned()));
            assert_eq!(basic(text.as_bytes()), expected, "{text}");
        }
        for bad in [
            "",
            "Basic",
            "Basic !",
            "Bearer YW5uOnB3",
            "Basic YW5u",
            "Basic /w==",
        ] {
            assert_eq!(basic(bad.as_bytes()), None, "{bad}");
        }
        let long = format!("Basic {}", "A".repeat(LOGIN_BYTES_MAX));
        assert_eq!(basic(long.as_bytes()), None);
    }
}
