//! Who calls over HTTP, and what that lets them do.
//!
//! Where access control is on, a request brings a user's name and password (HTTP's Basic scheme) or
//! a token (Bearer): one of ours, or one that an issuer signed whose keys are configured. Without
//! either, the certificate of its connection says who calls. It acts as that user: in the proxy on topics and groups, by the same ACLs as over Kafka's
//! protocol; in the management API by roles (`rights.rs`). Where it is off, nobody is asked.
//!
//! Hashing a password costs tens of milliseconds and megabytes, so few are hashed at a time and of one
//! address one (`turns.rs`), who was wrong is answered late, and who was right is remembered for a
//! while.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

pub use ::access::Peer;
use ::access::{
    Access, Bearer, CLUSTER, Grant, Granted, Jwts, Operation, Passwords, Policy, Principal,
    ResourceType, Role, RoleTable, Roles, Shown as By, Token,
};
use axum::Router;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use base::{Clock, UnixMillis};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use streams::{Caller, as_caller};

use crate::bridge::PROBES;
use crate::error::RestError;
use crate::limits::{LOGIN_BYTES_MAX, LOGIN_REFUSED_WAIT, LOGINS_AT_ONCE_MAX, LOGINS_WAITING_MAX};
use crate::routes::Shared;
use crate::turns::Turns;

/// Finds out who calls.
pub struct Logins {
    access: Arc<Access>,
    policy: Arc<Policy>,
    follows_acls: bool,
    roles: RoleTable,
    passwords: Arc<Passwords>,
    jwts: Option<Arc<Jwts>>,
    clock: Arc<dyn Clock>,
    /// Of those whose password is hashed.
    turns: Turns,
}

impl Logins {
    /// By the users and ACLs of `access`, and what `policy` adds to them; `jwts` checks tokens that
    /// somebody else issued.
    pub fn new(
        access: Arc<Access>,
        policy: Policy,
        jwts: Option<Arc<Jwts>>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Logins::with_roles(access, Some(policy), RoleTable::default(), jwts, clock)
    }

    /// The same with the roles that the configuration gives; without a policy ACLs are not
    /// followed, and roles alone decide.
    pub fn with_roles(
        access: Arc<Access>,
        policy: Option<Policy>,
        roles: RoleTable,
        jwts: Option<Arc<Jwts>>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Logins {
            passwords: Arc::new(Passwords::new(Arc::clone(&access))),
            access,
            follows_acls: policy.is_some(),
            policy: Arc::new(policy.unwrap_or_default()),
            roles,
            jwts,
            clock,
            turns: Turns::new(LOGINS_AT_ONCE_MAX, LOGINS_WAITING_MAX),
        })
    }

    /// A part of this process as a caller, see [`Caller::service`].
    pub fn service(&self, name: &str) -> Caller {
        Caller::service(Arc::clone(&self.access), Arc::clone(&self.policy), name)
    }

    /// Whether ACLs decide, beside roles.
    pub(crate) fn follows_acls(&self) -> bool {
        self.follows_acls
    }

    /// Who calls, with their roles at the management API.
    pub(crate) async fn granted(
        &self,
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<(Caller, Granted), RestError> {
        let (known, host) = self.known(headers, peer).await?;
        let bearer = known.bearer;
        let (access, policy) = (Arc::clone(&self.access), Arc::clone(&self.policy));
        let caller = Caller::new(access, policy, bearer.principal.clone(), host.clone());
        let mut roles = Roles::default();
        if self.follows_acls {
            let may = |operation| caller.may(operation, ResourceType::Cluster, CLUSTER);
            let role = match (may(Operation::Alter), may(Operation::Describe)) {
                (true, _) => Some(Role::Administrator),
                (false, true) => Some(Role::Viewer),
                (false, false) => None,
            };
            let everywhere = role.map(Grant::everywhere);
            everywhere.iter().for_each(|grant| roles.add(grant));
        }
        let snapshot = self.access.snapshot();
        let own = snapshot.grants_of(&bearer.principal);
        let configured = self.roles.of(&bearer.principal, &bearer.groups);
        own.chain(configured).for_each(|grant| roles.add(grant));
        let granted = Granted {
            principal: bearer.principal,
            host,
            roles,
        };
        Ok((caller, granted))
    }

    async fn caller(&self, headers: &HeaderMap, peer: Option<Peer>) -> Result<Caller, RestError> {
        let (Known { bearer, by, until }, host) = self.known(headers, peer).await?;
        let (access, policy) = (Arc::clone(&self.access), Arc::clone(&self.policy));
        Ok(Caller::new(access, policy, bearer.principal, host).let_in_by(by, until))
    }

    /// Who calls, and from where.
    async fn known(
        &self,
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<(Known, String), RestError> {
        let (ip, certificate) = match peer {
            // One host, whichever way its address is written.
            Some(peer) => (peer.ip.to_canonical(), peer.certificate),
            None => (IpAddr::V4(Ipv4Addr::LOCALHOST), None),
        };
        let known = self.shown(headers, ip, certificate).await?;
        Ok((known, ip.to_string()))
    }

    async fn shown(
        &self,
        headers: &HeaderMap,
        ip: IpAddr,
        certificate: Option<Principal>,
    ) -> Result<Known, RestError> {
        let refused = RestError::Unauthenticated;
        match (headers.get(header::AUTHORIZATION), certificate) {
            (Some(shown), _) => match shown_by(shown.as_bytes()) {
                Some(Shown::Password(name, password)) => self.user(ip, name, password).await,
                Some(Shown::Token(token)) => self.holder(token).await,
                None => Err(refused(
                    "the Authorization header is neither one of HTTP Basic nor a Bearer token",
                )),
            },
            (None, Some(principal)) => Ok(Known::of(principal, By::lasting(), None)),
            (None, None) => Err(refused(
                "log in: send a user's name and password (HTTP Basic), or a token (Bearer)",
            )),
        }
    }

    /// Whom a token stands for.
    async fn holder(&self, token: &str) -> Result<Known, RestError> {
        let now = self.clock.now();
        let refusal = if Token::looks_like(token) {
            let snapshot = self.access.snapshot();
            let found = snapshot.token_of(token);
            let found = found.and_then(|token| {
                let principal = token.principal(now)?;
                Some(Known::of(principal, By::token(token), token.expires))
            });
            match found {
                Some(known) => return Ok(known),
                None => "the token is not known, or has expired",
            }
        } else if let Some(jwts) = &self.jwts {
            match jwts.check(now, token) {
                Ok((bearer, until)) => {
                    return Ok(Known {
                        bearer,
                        by: By::lasting(),
                        until: Some(until),
                    });
                }
                Err(refusal) => refusal,
            }
        } else {
            "the token is not one of this server"
        };
        Err(self.refuse(refusal).await)
    }

    /// Refuses late, so that nobody tries many.
    async fn refuse(&self, reason: &'static str) -> RestError {
        metrics::counter!("thalweg_rest_logins_refused_total").increment(1);
        tokio::time::sleep(LOGIN_REFUSED_WAIT).await;
        RestError::Unauthenticated(reason)
    }

    async fn user(&self, ip: IpAddr, name: String, password: String) -> Result<Known, RestError> {
        let now = self.clock.now();
        let by_password = || By::password(&self.access.snapshot(), &name);
        let by = by_password();
        if let Some(principal) = self.passwords.known(now, &name, &password) {
            return Ok(Known::of(principal, by, None));
        }
        let Some(turn) = self.turns.wait(ip).await else {
            metrics::counter!("thalweg_rest_logins_refused_total").increment(1);
            return Err(RestError::TooManyLogins);
        };
        // Others may have changed the users meanwhile, or waited for the same answer.
        let by = by_password();
        if let Some(principal) = self.passwords.known(now, &name, &password) {
            return Ok(Known::of(principal, by, None));
        }
        let passwords = Arc::clone(&self.passwords);
        let checked =
            tokio::task::spawn_blocking(move || passwords.check(now, &name, &password)).await;
        drop(turn);
        if let Ok(Some(principal)) = checked {
            return Ok(Known::of(principal, by, None));
        }
        Err(self.refuse("user or password is wrong").await)
    }
}

/// Who somebody is, by what they have shown, and until when that is good.
struct Known {
    bearer: Bearer,
    by: By,
    until: Option<UnixMillis>,
}

impl Known {
    /// Somebody of whom no issuer tells groups.
    fn of(principal: Principal, by: By, until: Option<UnixMillis>) -> Self {
        let bearer = Bearer {
            principal,
            groups: Arc::default(),
        };
        Known { bearer, by, until }
    }
}

/// What an `Authorization` header shows.
#[derive(Debug, PartialEq, Eq)]
enum Shown<'a> {
    /// A name and a password.
    Password(String, String),
    Token(&'a str),
}

/// Reads `Authorization: Basic …` or `Authorization: Bearer …`.
fn shown_by(header: &[u8]) -> Option<Shown<'_>> {
    if header.len() > LOGIN_BYTES_MAX {
        return None;
    }
    let (scheme, credentials) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    let credentials = credentials.trim();
    if scheme.eq_ignore_ascii_case("Bearer") {
        return (!credentials.is_empty()).then_some(Shown::Token(credentials));
    }
    if !scheme.eq_ignore_ascii_case("Basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(credentials).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some(Shown::Password(name.to_owned(), password.to_owned()))
}

/// Has every request to `routes` but for probes say who calls; handlers find the [`Caller`] in the request.
pub(crate) fn identified(routes: Router, logins: Arc<Logins>) -> Router {
    routes.layer(middleware::from_fn_with_state(logins, identify))
}

async fn identify(State(logins): State<Arc<Logins>>, request: Request, next: Next) -> Response {
    if PROBES.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().cloned();
    match logins.caller(&parts.headers, peer).await {
        Ok(caller) => {
            parts.extensions.insert(caller);
            next.run(Request::from_parts(parts, body)).await
        }
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
    fn only_the_basic_and_the_bearer_scheme_are_read() {
        let good = [
            ("Basic YW5uOnB3", ("ann", "pw")),
            ("basic YW5uOnA6dw==", ("ann", "p:w")),
            ("BASIC  Og==", ("", "")),
        ];
        for (text, (name, password)) in good {
            let expected = Shown::Password(name.to_owned(), password.to_owned());
            assert_eq!(shown_by(text.as_bytes()), Some(expected), "{text}");
        }
        for text in ["Bearer a.b-c", "bearer  a.b-c "] {
            assert_eq!(shown_by(text.as_bytes()), Some(Shown::Token("a.b-c")));
        }
        for bad in [
            "",
            "Basic",
            "Basic !",
            "Bearer",
            "Bearer ",
            "Digest YW5uOnB3",
            "Basic YW5u",
            "Basic /w==",
        ] {
            assert_eq!(shown_by(bad.as_bytes()), None, "{bad}");
        }
        for scheme in ["Basic", "Bearer"] {
            let long = format!("{scheme} {}", "A".repeat(LOGIN_BYTES_MAX));
            assert_eq!(shown_by(long.as_bytes()), None);
        }
    }
}
