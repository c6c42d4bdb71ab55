//! Asks an issuer of tokens for its keys (OpenID Connect Discovery 1.0): the address of its key set
//! stands in `/.well-known/openid-configuration` under the issuer's own.
//!
//! They are asked for at the start, every ten minutes, and when a token was shown that no known key
//! has signed, which is how a change of keys is noticed; but never more than once in half a minute,
//! so that a crowd of wrong tokens is nothing to the issuer. While the issuer does not answer, the
//! keys that are known stay.

use std::sync::Arc;

use access::Jwts;
use access::limits::JWKS_BYTES_MAX;
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::limits::{ISSUER_ASKED_EVERY, ISSUER_PAUSE, ISSUER_WAIT};
use crate::cli::{Trust, http_client};

/// Keeps the keys fresh until `shutdown`; returns at once when no issuer is to be asked.
pub async fn keep_keys(jwts: Arc<Jwts>, shutdown: CancellationToken) {
    let Some(issuer) = jwts.asked_issuer().map(str::to_owned) else {
        return;
    };
    let http = match http_client(&Trust::default(), Some(&issuer)) {
        Ok(http) => http,
        Err(error) => {
            tracing::error!("the issuer cannot be asked for its keys: {error}");
            return;
        }
    };
    loop {
        let asked = tokio::select! {
            () = shutdown.cancelled() => return,
            asked = ask(&http, &issuer) => asked,
        };
        let taken = asked.and_then(|keys| jwts.take_keys(&keys));
        let has_keys = taken.is_ok();
        match taken {
            Ok(keys) => tracing::debug!(issuer, keys, "took the issuer's keys"),
            Err(error) => {
                tracing::warn!(issuer, error, "the issuer told no keys; the old ones stay")
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(ISSUER_PAUSE) => {}
        }
        if !has_keys {
            continue;
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = jwts.stale() => {}
            () = tokio::time::sleep(ISSUER_ASKED_EVERY) => {}
        }
    }
}

/// Whether nobody between can change what an address answers: by TLS, or on this machine.
pub fn is_private(url: &str) -> bool {
    let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    let is_local = |start: &&str| {
        let rest = url.strip_prefix(start);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
    };
    url.starts_with("https://") || local.iter().any(is_local)
}

/// What an issuer tells of itself.
#[derive(Clone, Deserialize)]
pub(super) struct Discovered {
    issuer: String,
    jwks_uri: String,
    /// Where it asks people who they are.
    pub authorization_endpoint: Option<String>,
    /// Where it gives tokens.
    pub token_endpoint: Option<String>,
    /// Where people sign out.
    pub end_session_endpoint: Option<String>,
}

/// The issuer's key set.
async fn ask(http: &reqwest::Client, issuer: &str) -> Result<Vec<u8>, String> {
    let told = discover(http, issuer).await?;
    if !is_private(&told.jwks_uri) {
        return Err(format!(
            "its keys lie at {}, which is not https",
            told.jwks_uri
        ));
    }
    fetch(http, &told.jwks_uri).await
}

/// Asks an issuer what it tells of itself.
pub(super) async fn discover(http: &reqwest::Client, issuer: &str) -> Result<Discovered, String> {
    let base = issuer.trim_end_matches('/');
    let told = fetch(http, &format!("{base}/.well-known/openid-configuration")).await?;
    let told: Discovered = serde_json::from_slice(&told)
        .map_err(|error| format!("its openid-configuration is not one: {error}"))?;
    if told.issuer.trim_end_matches('/') != base {
        return Err(format!("it says that it is '{}'", told.issuer));
    }
    Ok(told)
}

async fn fetch(http: &reqwest::Client, url: &str) -> Result<Vec<u8>, String> {
    let failed = |error: reqwest::Error| base::report(&error);
    let request = http.get(url).timeout(ISSUER_WAIT).send();
    let answer = request.await.and_then(reqwest::Response::error_for_status);
    read_bounded(answer.map_err(failed)?, url).await
}

/// Reads an issuer's answer, which has a bound in bytes and in time.
pub(super) async fn read_bounded(answer: reqwest::Response, url: &str) -> Result<Vec<u8>, String> {
    let body = reqwest::Body::from(answer);
    let max = usize::try_from(JWKS_BYTES_MAX).unwrap_or(usize::MAX);
    let read = Limited::new(body, max).collect();
    let read = tokio::time::timeout(ISSUER_WAIT, read).await;
    let read = read.map_err(|_| "it took too long".to_owned())?;
    let read = read.map_err(|error| format!("{url}: {error}"))?;
    Ok(read.to_bytes().to_vec())
}
