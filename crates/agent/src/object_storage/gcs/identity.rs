//! Who the agent is to Google: where access tokens come from, and how long one is kept.
//!
//! A service account's key signs a statement (RS256, RFC 7523) that its server gives a token for;
//! a user's refresh token is exchanged likewise; a machine of Google's asks its metadata server.

use std::fmt;
use std::time::Duration;

use base::UnixMillis;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use reqwest::Method;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::{json_words, number, text};
use crate::net::http_client::{self, ClientSettings};
use crate::object_storage::{Refusal, Request, query, told};

/// Who the agent is, with the token that it has at present.
pub(crate) struct Identity {
    source: Source,
    /// The token and until when it is used.
    kept: Mutex<Option<(String, UnixMillis)>>,
}

/// Where tokens come from.
pub(crate) enum Source {
    /// There are none.
    Anonymous,
    /// A service account's key.
    Account(Box<ServiceAccount>),
    /// A user who once agreed: what a token is asked for with, and where.
    User { form: String, token_uri: String },
    /// The metadata server at this address.
    Machine(String),
}

/// A service account of Google's.
pub(crate) struct ServiceAccount {
    email: String,
    key_id: String,
    key: RsaKeyPair,
    token_uri: String,
}

impl Source {
    /// What a file of Google's says: a service account, or a user.
    pub(crate) fn parse(file: &str) -> Result<Self, String> {
        let file: Value = serde_json::from_str(file).map_err(|error| error.to_string())?;
        let field = |name: &str| text(&file, name).ok_or_else(|| format!("'{name}' is missing"));
        let token_uri = text(&file, "token_uri").unwrap_or_else(|| TOKEN_URI.to_owned());
        match text(&file, "type").as_deref() {
            Some("service_account") => Ok(Source::Account(Box::new(ServiceAccount {
                email: field("client_email")?,
                key_id: text(&file, "private_key_id").unwrap_or_default(),
                key: key(&field("private_key")?)?,
                token_uri,
            }))),
            Some("authorized_user") => Ok(Source::User {
                form: query(&[
                    ("client_id", field("client_id")?),
                    ("client_secret", field("client_secret")?),
                    ("grant_type", "refresh_token".to_owned()),
                    ("refresh_token", field("refresh_token")?),
                ]),
                token_uri,
            }),
            Some(other) => Err(format!(
                "credentials of the type '{other}' are not spoken for"
            )),
            None => Err("'type' is missing".to_owned()),
        }
    }
}

impl Identity {
    pub(crate) fn new(source: Source) -> Self {
        Identity {
            source,
            kept: Mutex::new(None),
        }
    }

    /// A token to ask with, a new one where the kept one is about to end; none where none is
    /// needed.
    pub(crate) async fn token(
        &self,
        client: &reqwest::Client,
        now: UnixMillis,
        wait: Duration,
    ) -> Result<Option<String>, Refusal> {
        if let Some((token, _)) = self.kept.lock().as_ref().filter(|(_, until)| now < *until) {
            return Ok(Some(token.clone()));
        }
        let told = match &self.source {
            Source::Anonymous => return Ok(None),
            Source::Account(account) => {
                let form = query(&[
                    ("assertion", account.assertion(now)?),
                    ("grant_type", GRANT.to_owned()),
                ]);
                exchange(client, &account.token_uri, form, wait).await
            }
            Source::User { form, token_uri } => {
                exchange(client, token_uri, form.clone(), wait).await
            }
            Source::Machine(address) => of_machine(address, wait).await,
        };
        let told = told.map_err(|mut refusal| {
            refusal.message = format!("{} (for an access token)", refusal.message);
            refusal
        })?;
        let told: Value =
            serde_json::from_str(&told).map_err(|_| "the answer is no JSON".to_owned())?;
        let token =
            text(&told, "access_token").ok_or("the answer has no access_token".to_owned())?;
        let seconds = number(&told, "expires_in").unwrap_or_default();
        let left = seconds
            .saturating_sub(SECONDS_BEFORE_END)
            .saturating_mul(1_000);
        let until = UnixMillis(now.0.saturating_add(left));
        *self.kept.lock() = Some((token.clone(), until));
        Ok(Some(token))
    }

    /// Lets go of a token that a server did not take.
    pub(crate) fn forget(&self) {
        *self.kept.lock() = None;
    }
}

impl ServiceAccount {
    /// The signed statement that a token is given for.
    fn assertion(&self, now: UnixMillis) -> Result<String, String> {
        let now = now.0 / 1_000;
        let head = json!({ "alg": "RS256", "typ": "JWT", "kid": self.key_id });
        let claims = json!({
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": now,
            "exp": now + STATEMENT_SECONDS,
        });
        let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        let said = format!(
            "{}.{}",
            encode(head.to_string().as_bytes()),
            encode(claims.to_string().as_bytes())
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                said.as_bytes(),
                &mut signature,
            )
            .map_err(|_| "the account's key does not sign".to_owned())?;
        Ok(format!("{said}.{}", encode(&signature)))
    }
}

async fn exchange(
    client: &reqwest::Client,
    token_uri: &str,
    form: String,
    wait: Duration,
) -> Result<String, Refusal> {
    let kind = "application/x-www-form-urlencoded".to_owned();
    let request = Request {
        method: Method::POST,
        url: token_uri.to_owned(),
        headers: vec![("content-type".to_owned(), kind)],
        body: Some(form.into()),
    };
    told(client, request, json_words, wait).await
}

/// The metadata server is beside the machine, never behind a proxy.
async fn of_machine(address: &str, wait: Duration) -> Result<String, Refusal> {
    let client = http_client::client(&ClientSettings {
        connect_wait: wait,
        ..ClientSettings::default()
    })?;
    let request = Request {
        method: Method::GET,
        url: format!("{address}/computeMetadata/v1/instance/service-accounts/default/token"),
        headers: vec![("metadata-flavor".to_owned(), "Google".to_owned())],
        body: None,
    };
    told(&client, request, json_words, wait).await
}

fn key(pem: &str) -> Result<RsaKeyPair, String> {
    let broken = || "'private_key' is no RSA key in PEM".to_owned();
    match PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| broken())? {
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        _ => return Err(broken()),
    }
    .map_err(|_| broken())
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never keys or tokens: this goes into logs.
        f.write_str(match &self.source {
            Source::Anonymous => "anonymous",
            Source::Account(account) => &account.email,
            Source::User { .. } => "a user",
            Source::Machine(address) => address,
        })
    }
}

/// What is asked for: objects, and who may read them.
const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.full_control";

const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";

/// How long a statement is good; the longest that Google takes.
const STATEMENT_SECONDS: i64 = 3_600;

/// A token is not used any more so long before it ends.
const SECONDS_BEFORE_END: i64 = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Answer, HttpPeer, Seen, runtime};

    #[test]
    fn machines_and_users_get_tokens_too() {
        let peer = HttpPeer::start(None, |seen: &Seen| {
            let body = String::from_utf8_lossy(&seen.body).into_owned();
            let is_machine = seen.header("metadata-flavor") == Some("Google")
                && seen.target == "/computeMetadata/v1/instance/service-accounts/default/token";
            let is_user =
                body == "client_id=id&client_secret=s%201&grant_type=refresh_token&refresh_token=r";
            match (is_machine, is_user) {
                (false, false) => Answer::new(404, "who?"),
                _ => Answer::new(200, r#"{"access_token": "t", "expires_in": 100}"#),
            }
        });
        let address = format!("http://{}", peer.address());
        let user = json!({
            "type": "authorized_user",
            "client_id": "id",
            "client_secret": "s 1",
            "refresh_token": "r",
            "token_uri": format!("{address}/token"),
        });
        let client = http_client::client(&ClientSettings::default()).unwrap();
        let wait = Duration::from_secs(10);
        for source in [
            Source::Machine(address),
            Source::parse(&user.to_string()).unwrap(),
        ] {
            let before = peer.seen().len();
            let identity = Identity::new(source);
            for (now, asked) in [(0, 1), (39_999, 1), (40_000, 2)] {
                let asking = identity.token(&client, UnixMillis(now), wait);
                let token = runtime().block_on(asking).unwrap();
                assert_eq!(token.as_deref(), Some("t"));
                assert_eq!(peer.seen().len() - before, asked);
            }
        }
    }
}
