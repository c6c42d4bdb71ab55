//! Signing in to the console by an issuer: OpenID Connect's authorization code flow (Core 1.0, section
//! 3.1) with PKCE (RFC 7636).
//!
//! ```text
//! GET /api/v1/sign-in          302 to the issuer, which asks who it is
//! GET /api/v1/sign-in/back     the browser comes back with a code, which is redeemed for an ID token
//! GET /api/v1/sign-in/offer    {"issuer": address, or null}: what the console's button says
//! POST /api/v1/sign-in/renew   {"again_ms": n, or null}: a new token where the old one is near its end
//! POST /api/v1/sign-out        {"address": where to sign out at the issuer, or null}; the browser
//!                              forgets the token
//! ```
//! The ID token, checked as every token of the issuer is, lies in the browser as a cookie that no
//! script reads, and stands for `Authorization: Bearer` from then on, until it expires; the page has it
//! replaced before that where the issuer gives refresh tokens (`renewal.rs`). Nothing is
//! kept here: the secrets of a login travel in a cookie of their own for ten minutes, so that any
//! process ends what another one began.

mod cookie;
mod exchange;
mod renewal;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::{Jwts, LoginSecrets, SignedIn, limits::JWT_BYTES_MAX};
use axum::extract::{Query, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, LOCATION, ORIGIN, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base::{Clock, HumanDuration, UnixMillis};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::limits::{RENEWAL_PAUSE, SIGN_IN_WAIT, SIGN_OUT_WAIT};
use cookie::Cookie;
use exchange::{Exchange, Given, NotGiven};
use renewal::{Renewal, Renewals};

/// Keys under `access.sign_in`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SignInConfig {
    /// What the issuer knows this console as; nobody signs in without.
    pub client_id: Option<String>,
    /// File with the secret that the issuer gave for it, if it gave one.
    pub client_secret_file: Option<PathBuf>,
    /// What is asked for, with spaces between.
    pub scope: String,
    /// How long a login may be renewed by the issuer's refresh tokens; not at all with `0s`.
    pub renew_for: HumanDuration,
    /// Where browsers reach this port, such as `https://fleet.example.org`; by default what they
    /// called.
    pub address: Option<String>,
}

impl Default for SignInConfig {
    fn default() -> Self {
        SignInConfig {
            client_id: None,
            client_secret_file: None,
            scope: "openid".to_owned(),
            renew_for: HumanDuration(Duration::from_secs(12 * 3_600)),
            address: None,
        }
    }
}

/// Has people sign in by an issuer.
pub struct SignIn {
    config: SignInConfig,
    is_tls: bool,
    jwts: Arc<Jwts>,
    exchange: Exchange,
    renewals: Renewals,
    clock: Arc<dyn Clock>,
}

impl SignInConfig {
    /// The origin of pages that are reached at the set address.
    pub(super) fn origin(&self) -> Option<String> {
        let (scheme, rest) = self.address.as_deref()?.split_once("://")?;
        let host = rest.split('/').next()?;
        Some(format!("{scheme}://{host}"))
    }
}

impl SignIn {
    /// By the issuer of `jwts`; none where nobody is to sign in.
    ///
    /// # Errors
    /// A secret that cannot be read.
    pub fn open(
        config: SignInConfig,
        is_tls: bool,
        jwts: Option<&Arc<Jwts>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<Arc<SignIn>>, String> {
        let (Some(client), Some(jwts)) = (&config.client_id, jwts) else {
            return Ok(None);
        };
        let Some(issuer) = jwts.asked_issuer() else {
            return Ok(None);
        };
        let exchange = Exchange::new(issuer, client, config.client_secret_file.as_deref())?;
        let renewals = Renewals::new(exchange.secret(), config.renew_for.0);
        let renewals = renewals.map_err(|error| base::report(&error))?;
        Ok(Some(Arc::new(SignIn {
            config,
            is_tls,
            jwts: jwts.clone(),
            exchange,
            renewals,
            clock,
        })))
    }

    /// Adds what people sign in by to `routes`, which ask for logins: what the cookie says, stands for
    /// a login.
    pub fn surround(self: &Arc<Self>, routes: Router) -> Router {
        let own = Router::new()
            .route(SIGN_IN, get(begin))
            .route(BACK, get(end))
            .route(OFFER, get(offer))
            .route(RENEW, post(renew))
            .route(SIGN_OUT, post(sign_out))
            .with_state(self.clone());
        let stands = middleware::from_fn_with_state(self.clone(), stand_for_login);
        routes.layer(stands).merge(own)
    }

    /// What stands in the place of all that where nobody signs in: an offer of nothing.
    pub fn none() -> Router {
        let offer = || async { Json(json!({"issuer": null})) };
        Router::new().route(OFFER, get(offer))
    }

    /// The paths that need no login then: the page itself, which has nothing of anybody.
    pub const OPEN: [&str; 3] = ["/", "/console.js", "/console.css"];

    /// Where a browser reaches this path.
    fn address(&self, headers: &HeaderMap, path: &str) -> String {
        let address = self
            .config
            .address
            .as_deref()
            .map(|a| a.trim_end_matches('/'));
        match address {
            Some(address) => format!("{address}{path}"),
            None => {
                let scheme = if self.is_tls { "https" } else { "http" };
                format!("{scheme}://{}{path}", host_of(headers))
            }
        }
    }

    /// The cookie of a login by this token.
    ///
    /// # Errors
    /// The token is too large for one.
    fn login(&self, token: &str, until: UnixMillis) -> Result<HeaderValue, &'static str> {
        if token.len() > cookie::VALUE_BYTES_MAX.min(JWT_BYTES_MAX) {
            return Err("the issuer's token is too large for a cookie: have it name fewer groups");
        }
        let seconds = until.since(self.clock.now()).as_secs();
        Ok(self.cookie(Cookie::login(token, seconds)))
    }

    /// The cookie of what a login is renewed by; one that forgets it where it can be renewed no more.
    fn renewal(&self, renewal: Option<&Renewal>) -> HeaderValue {
        let now = self.clock.now();
        let left = renewal.map(|renewal| self.renewals.left(renewal, now).as_secs());
        let sealed = renewal.and_then(|renewal| self.renewals.seal(renewal).ok());
        match (sealed, left) {
            (Some(sealed), Some(left)) if left > 0 && sealed.len() <= cookie::VALUE_BYTES_MAX => {
                self.cookie(Cookie::renewal(&sealed, left))
            }
            _ => self.cookie(Cookie::renewal("", 0)),
        }
    }

    fn cookie(&self, cookie: Cookie<'_>) -> HeaderValue {
        let address = self.config.address.as_deref();
        let is_secure = self.is_tls || address.is_some_and(|a| a.starts_with("https://"));
        // Names, tokens of base64url and numbers are always fit for a header.
        HeaderValue::from_str(&cookie.set(is_secure)).unwrap_or(HeaderValue::from_static(""))
    }
}

async fn begin(State(sign_in): State<Arc<SignIn>>, headers: HeaderMap) -> Response {
    let secrets = match LoginSecrets::draw() {
        Ok(secrets) => secrets,
        Err(error) => return failed(StatusCode::INTERNAL_SERVER_ERROR, &base::report(&error)),
    };
    let back = sign_in.address(&headers, BACK);
    let address = sign_in
        .exchange
        .address(&secrets, &back, &sign_in.config.scope);
    let address = match address.await {
        Ok(address) => address,
        Err(error) => return failed(StatusCode::BAD_GATEWAY, &error),
    };
    let Ok(location) = HeaderValue::from_str(&address) else {
        return failed(StatusCode::BAD_GATEWAY, "the issuer's address is none");
    };
    let text = secrets.to_text();
    let kept = sign_in.cookie(Cookie::signing_in(&text, SIGN_IN_WAIT.as_secs()));
    (
        StatusCode::FOUND,
        [(LOCATION, location), (SET_COOKIE, kept)],
    )
        .into_response()
}

/// What the issuer has the browser bring.
#[derive(Deserialize)]
struct Brought {
    code: Option<String>,
    state: Option<String>,
    error: Option<String>,
}

async fn end(
    State(sign_in): State<Arc<SignIn>>,
    headers: HeaderMap,
    Query(brought): Query<Brought>,
) -> Response {
    let forget = sign_in.cookie(Cookie::signing_in("", 0));
    let mut response = match redeemed(&sign_in, &headers, brought).await {
        Ok([login, renewal]) => {
            let home = (StatusCode::SEE_OTHER, [(LOCATION, "/")]);
            let mut response = home.into_response();
            response.headers_mut().append(SET_COOKIE, login);
            response.headers_mut().append(SET_COOKIE, renewal);
            response
        }
        Err((status, reason)) => {
            tracing::warn!(reason, "a sign-in came to nothing");
            failed(status, &reason)
        }
    };
    response.headers_mut().append(SET_COOKIE, forget);
    response
}

/// The cookies that a code is good for: of the login, and of what it is renewed by.
async fn redeemed(
    sign_in: &SignIn,
    headers: &HeaderMap,
    brought: Brought,
) -> Result<[HeaderValue; 2], (StatusCode, String)> {
    let wrong = |reason: &str| (StatusCode::BAD_REQUEST, reason.to_owned());
    let kept = cookie::value_of(headers, cookie::SIGNING_IN);
    let secrets = kept.as_deref().and_then(LoginSecrets::parse);
    let secrets = secrets.ok_or_else(|| {
        wrong("this browser began no sign-in within the last ten minutes: begin again")
    })?;
    if brought.state.as_deref() != Some(&secrets.state) {
        return Err(wrong("the answer is to another sign-in: begin again"));
    }
    if let Some(error) = brought.error {
        let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
        let word = error
            .chars()
            .filter(|c| is_word(*c))
            .take(64)
            .collect::<String>();
        return Err(wrong(&format!("the issuer answered: {word}")));
    }
    let code = brought
        .code
        .ok_or_else(|| wrong("the issuer gave no code"))?;
    let back = sign_in.address(headers, BACK);
    let given = sign_in.exchange.redeem(&code, &secrets, &back).await;
    let given = given.map_err(|error| (StatusCode::BAD_GATEWAY, error.reason()))?;
    let now = sign_in.clock.now();
    let refused = |reason: &str| (StatusCode::FORBIDDEN, reason.to_owned());
    let (jwts, nonce) = (&sign_in.jwts, &secrets.nonce);
    let signed_in = jwts.check_login(now, &given.id_token, nonce);
    let signed_in = signed_in.map_err(refused)?;
    let login = sign_in.login(&given.id_token, signed_in.until);
    let renewal = given
        .refresh_token
        .map(|token| Renewal::begin(token, &signed_in, nonce, now));
    Ok([login.map_err(refused)?, sign_in.renewal(renewal.as_ref())])
}

/// Replaces a login's token by a new one, when it is time; tells when to ask again.
async fn renew(State(sign_in): State<Arc<SignIn>>, headers: HeaderMap) -> Response {
    let own = sign_in.config.origin();
    if !may_use_cookie(&Method::POST, &headers, own.as_deref()) {
        return failed(StatusCode::FORBIDDEN, "this is for the console's own page");
    }
    let kept = cookie::value_of(&headers, cookie::RENEWAL);
    let Some(renewal) = kept.and_then(|kept| sign_in.renewals.open(&kept)) else {
        return told_again(None);
    };
    let now = sign_in.clock.now();
    let due_in = renewal.due_in(now);
    if sign_in.renewals.left(&renewal, now).is_zero() {
        return ended(&sign_in, "it was renewed for as long as it may be");
    }
    if !due_in.is_zero() {
        return told_again(Some(due_in));
    }
    let given = match sign_in.exchange.renew(&renewal.refresh_token).await {
        Ok(given) => given,
        Err(NotGiven::Refused(reason)) => return ended(&sign_in, &reason),
        Err(NotGiven::Away(reason)) => {
            tracing::warn!(reason, "a login could not be renewed now");
            return told_again(Some(RENEWAL_PAUSE));
        }
    };
    match renewed(&sign_in, renewal, given, now) {
        Ok(response) => response,
        Err(reason) => ended(&sign_in, reason),
    }
}

fn renewed(
    sign_in: &SignIn,
    renewal: Renewal,
    given: Given,
    now: UnixMillis,
) -> Result<Response, &'static str> {
    let (nonce, subject) = (&renewal.nonce, &renewal.subject);
    let token = &given.id_token;
    let signed_in: SignedIn = sign_in.jwts.check_renewed(now, token, nonce, subject)?;
    let login = sign_in.login(token, signed_in.until)?;
    let renewal = renewal.renewed(given.refresh_token, &signed_in, now);
    let kept = sign_in.renewal(Some(&renewal));
    let mut response = told_again(Some(renewal.due_in(now)));
    response.headers_mut().append(SET_COOKIE, login);
    response.headers_mut().append(SET_COOKIE, kept);
    Ok(response)
}

/// A login that is not renewed any more ends with its token.
fn ended(sign_in: &SignIn, reason: &str) -> Response {
    tracing::info!(reason, "a login is not renewed any more");
    let mut response = told_again(None);
    let forget = sign_in.renewal(None);
    response.headers_mut().append(SET_COOKIE, forget);
    response
}

fn told_again(wait: Option<Duration>) -> Response {
    let wait = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    Json(json!({"again_ms": wait})).into_response()
}

async fn offer(State(sign_in): State<Arc<SignIn>>) -> impl IntoResponse {
    Json(json!({"issuer": sign_in.exchange.issuer()}))
}

async fn sign_out(State(sign_in): State<Arc<SignIn>>, headers: HeaderMap) -> Response {
    let back = sign_in.address(&headers, "/");
    // Who signs out here is out, whatever the issuer does.
    let address = sign_in.exchange.sign_out_address(&back);
    let address = tokio::time::timeout(SIGN_OUT_WAIT, address)
        .await
        .ok()
        .flatten();
    let mut response = Json(json!({"address": address})).into_response();
    let login = sign_in.cookie(Cookie::login("", 0));
    for forget in [login, sign_in.renewal(None)] {
        response.headers_mut().append(SET_COOKIE, forget);
    }
    response
}

/// Has the cookie of a login be one.
async fn stand_for_login(
    State(sign_in): State<Arc<SignIn>>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let by_script = headers
        .get("sec-fetch-mode")
        .is_some_and(|mode| mode != "navigate");
    let own = sign_in.config.origin();
    let mut by_cookie = false;
    if !headers.contains_key(AUTHORIZATION)
        && may_use_cookie(request.method(), headers, own.as_deref())
        && let Some(token) = cookie::value_of(headers, cookie::LOGIN)
        && let Ok(mut bearer) = HeaderValue::from_str(&format!("Bearer {token}"))
    {
        bearer.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, bearer);
        by_cookie = true;
    }
    let mut response = next.run(request).await;
    if response.status() == StatusCode::UNAUTHORIZED {
        let headers = response.headers_mut();
        if by_cookie {
            headers.append(SET_COOKIE, sign_in.cookie(Cookie::login("", 0)));
        }
        if by_script {
            // The page has its own way to ask: the browser must not ask for a password.
            let others: Vec<HeaderValue> = headers
                .get_all(WWW_AUTHENTICATE)
                .iter()
                .filter(|challenge| !challenge.as_bytes().starts_with(b"Basic"))
                .cloned()
                .collect();
            headers.remove(WWW_AUTHENTICATE);
            for other in others {
                headers.append(WWW_AUTHENTICATE, other);
            }
        }
    }
    response
}

/// Whether a request may go by the cookie: another site's page must change nothing by it, not even
/// in a browser that heeds no `SameSite`. `own` is the origin that browsers know this port by where
/// a proxy stands before it.
fn may_use_cookie(method: &Method, headers: &HeaderMap, own: Option<&str>) -> bool {
    if matches!(*method, Method::GET | Method::HEAD) {
        return true;
    }
    let site = headers.get("sec-fetch-site");
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let host = origin
        .and_then(|origin| origin.split_once("://"))
        .map(|(_, host)| host);
    site.is_none_or(|site| site == "same-origin" || site == "none")
        && (origin.is_none() || origin == own || host == Some(&host_of(headers)))
}

fn host_of(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let clean = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    host.unwrap_or_default()
        .chars()
        .filter(|c| clean(*c))
        .collect()
}

fn failed(status: StatusCode, reason: &str) -> Response {
    let body = Json(json!({"error_code": status.as_u16(), "message": reason}));
    (status, body).into_response()
}

const SIGN_IN: &str = "/api/v1/sign-in";
const BACK: &str = "/api/v1/sign-in/back";
const RENEW: &str = "/api/v1/sign-in/renew";
const OFFER: &str = "/api/v1/sign-in/offer";
const SIGN_OUT: &str = "/api/v1/sign-out";
