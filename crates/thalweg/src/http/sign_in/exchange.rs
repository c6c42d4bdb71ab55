//! What is said to an issuer itself: where it asks people who they are, what a code is good for, a new
//! token for an older one, and where people sign out.

use std::path::Path;

use access::LoginSecrets;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use crate::cli::{Trust, http_client};
use crate::http::issuer::{Discovered, discover, is_private, read_bounded};
use crate::http::limits::{ISSUER_ASKED_EVERY, ISSUER_WAIT, SIGN_INS_AT_ONCE_MAX};

/// What an issuer gave for a code, or for a refresh token.
pub struct Given {
    /// Who signed in.
    pub id_token: String,
    /// Good for another ID token, where the issuer gives one. A secret.
    pub refresh_token: Option<String>,
}

/// Why an issuer gave nothing.
#[derive(Debug)]
pub enum NotGiven {
    /// It says no, and will go on saying so.
    Refused(String),
    /// It could not be asked, or not now.
    Away(String),
}

/// An issuer, as the client that it knows.
pub struct Exchange {
    issuer: String,
    client: String,
    secret: Option<String>,
    http: reqwest::Client,
    known: Mutex<Option<(Instant, Discovered)>>,
    places: Semaphore,
}

impl Exchange {
    /// Reads the client's secret where there is a file with one.
    pub fn new(issuer: &str, client: &str, secret: Option<&Path>) -> Result<Exchange, String> {
        let secret = secret.map(|path| {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<_, String>(text.trim_end().to_owned())
        });
        Ok(Exchange {
            issuer: issuer.to_owned(),
            client: client.to_owned(),
            secret: secret.transpose()?,
            http: http_client(&Trust::default(), Some(issuer))
                .map_err(|error| error.to_string())?,
            known: Mutex::default(),
            places: Semaphore::new(SIGN_INS_AT_ONCE_MAX),
        })
    }

    /// Who it is.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Where the browser is sent; `back` is where it comes back.
    pub async fn address(
        &self,
        secrets: &LoginSecrets,
        back: &str,
        scope: &str,
    ) -> Result<String, String> {
        let known = self.known().await?;
        let address = known.authorization_endpoint;
        let address = address.ok_or("the issuer tells no authorization_endpoint")?;
        if !is_private(&address) {
            return Err(format!("the issuer asks at {address}, which is not https"));
        }
        let mut address = reqwest::Url::parse(&address).map_err(|error| error.to_string())?;
        address
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client)
            .append_pair("redirect_uri", back)
            .append_pair("scope", scope)
            .append_pair("state", &secrets.state)
            .append_pair("nonce", &secrets.nonce)
            .append_pair("code_challenge", &secrets.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(address.into())
    }

    /// What a code is good for (RFC 6749, section 4.1.3).
    pub async fn redeem(
        &self,
        code: &str,
        secrets: &LoginSecrets,
        back: &str,
    ) -> Result<Given, NotGiven> {
        self.ask(&[
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", back),
            ("client_id", &self.client),
            ("code_verifier", &secrets.verifier),
        ])
        .await
    }

    /// A new ID token for the same login (RFC 6749, section 6).
    pub async fn renew(&self, refresh_token: &str) -> Result<Given, NotGiven> {
        self.ask(&[
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token),
            ("client_id", &self.client),
        ])
        .await
    }

    /// Where people sign out (OpenID Connect RP-Initiated Logout 1.0); none where the issuer tells no
    /// such place. The ID token does not go along as a hint: it is a login here, and addresses are
    /// kept in histories and logs. So the issuer may ask whether they mean it.
    pub async fn sign_out_address(&self, back: &str) -> Option<String> {
        let address = self.known().await.ok()?.end_session_endpoint?;
        if !is_private(&address) {
            return None;
        }
        let mut address = reqwest::Url::parse(&address).ok()?;
        address
            .query_pairs_mut()
            .append_pair("client_id", &self.client)
            .append_pair("post_logout_redirect_uri", back);
        Some(address.into())
    }

    /// The client's secret, if it has one.
    pub fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    /// Asks the issuer for tokens; what it answers is bounded in bytes and in time.
    async fn ask(&self, fields: &[(&str, &str)]) -> Result<Given, NotGiven> {
        // Whoever likes may come with a code: the issuer is asked about a few at a time.
        let _place = self
            .places
            .try_acquire()
            .map_err(|_| NotGiven::Away("too many sign in at once: begin again".to_owned()))?;
        let known = self.known().await.map_err(NotGiven::Away)?;
        let address = known.token_endpoint;
        let address = address
            .ok_or_else(|| NotGiven::Refused("the issuer tells no token_endpoint".to_owned()))?;
        if !is_private(&address) {
            let reason = format!("the issuer gives tokens at {address}, which is not https");
            return Err(NotGiven::Refused(reason));
        }
        let mut form = reqwest::Url::parse("form:").map_err(|e| NotGiven::Away(e.to_string()))?;
        form.query_pairs_mut().extend_pairs(fields);
        let mut request = self
            .http
            .post(&address)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json")
            .body(form.query().unwrap_or_default().to_owned())
            .timeout(ISSUER_WAIT);
        if let Some(secret) = &self.secret {
            // Both parts as in a form (RFC 6749, section 2.3.1).
            let login = format!("{}:{}", encoded(&self.client), encoded(secret));
            let login = format!("Basic {}", STANDARD.encode(login));
            request = request.header("authorization", login);
        }
        let answer = request.send().await;
        let answer = answer.map_err(|error| NotGiven::Away(base::report(&error)))?;
        let status = answer.status();
        let body = read_bounded(answer, &address).await;
        let body = body.map_err(NotGiven::Away)?;
        let told: Told = serde_json::from_slice(&body).unwrap_or_default();
        if !status.is_success() {
            let word: String = told.error.unwrap_or_default();
            let word: String = word
                .chars()
                .filter(|c| c.is_ascii_lowercase() || *c == '_')
                .collect();
            let reason = format!("the issuer takes no {}: {status} {word}", kind_of(fields));
            return Err(match status.is_client_error() && status.as_u16() != 429 {
                true => NotGiven::Refused(reason),
                false => NotGiven::Away(reason),
            });
        }
        let id_token = told.id_token.ok_or_else(|| {
            let reason = "the issuer gave no id_token: access.sign_in.scope needs openid";
            NotGiven::Refused(reason.to_owned())
        })?;
        Ok(Given {
            id_token,
            refresh_token: told.refresh_token,
        })
    }

    /// What the issuer tells of itself, asked for at most every few minutes.
    async fn known(&self) -> Result<Discovered, String> {
        let mut known = self.known.lock().await;
        if let Some((at, told)) = &*known
            && at.elapsed() < ISSUER_ASKED_EVERY
        {
            return Ok(told.clone());
        }
        let told = discover(&self.http, &self.issuer).await?;
        *known = Some((Instant::now(), told.clone()));
        Ok(told)
    }
}

/// A text as a form has it.
fn encoded(text: &str) -> String {
    let mut form = reqwest::Url::parse("form:").ok();
    let pair = form.as_mut().map(|form| {
        form.query_pairs_mut().append_pair("", text);
        form.query()
            .unwrap_or_default()
            .trim_start_matches('=')
            .to_owned()
    });
    pair.unwrap_or_default()
}

/// What a question for tokens is about, for people.
fn kind_of(fields: &[(&str, &str)]) -> &'static str {
    match fields.iter().any(|(name, _)| *name == "code") {
        true => "code",
        false => "refresh token",
    }
}

#[derive(Default, Deserialize)]
struct Told {
    id_token: Option<String>,
    refresh_token: Option<String>,
    error: Option<String>,
}

impl NotGiven {
    /// Why, for people.
    pub fn reason(self) -> String {
        match self {
            NotGiven::Refused(reason) | NotGiven::Away(reason) => reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_encoded_as_in_forms() {
        assert_eq!(encoded("a b:c=ü"), "a+b%3Ac%3D%C3%BC");
    }
}
