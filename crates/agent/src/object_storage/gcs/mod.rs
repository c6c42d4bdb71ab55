//! Google Cloud Storage by its JSON interface.

mod identity;

use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use reqwest::{Method, Response};
use ring::digest;
use serde_json::Value;

use super::{Refusal, Request, base64, base64_bytes, bounded_text, path_of};

pub(crate) use identity::{Identity, Source};

/// Google's storage, and who asks for what is there.
pub(crate) struct Storage {
    pub(crate) client: reqwest::Client,
    /// Its address, without a slash behind it.
    pub(crate) endpoint: String,
    pub(crate) identity: Arc<Identity>,
    /// How often what failed in passing is tried again.
    pub(crate) retries: u32,
    pub(crate) wait: Duration,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// Encoded, with its slash before it; what stands behind the address.
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// Objects, and what the next page is asked for with, if there is one.
pub(crate) type Page = (Vec<Value>, Option<String>);

impl Ask {
    pub(crate) fn new(method: Method, path: String) -> Self {
        Ask {
            method,
            path,
            query: Vec::new(),
            headers: Vec::new(),
        }
    }
}

impl Storage {
    /// Asks, as often as the retries allow where it fails in passing.
    ///
    /// Errors: no answer, or one that is not 2xx, in the server's own words.
    pub(crate) async fn ask(&self, now: UnixMillis, ask: &Ask) -> Result<Response, Refusal> {
        let mut tries = 0;
        loop {
            let answer = match self.once(now, ask.clone(), None).await {
                Ok(answer) => super::good(answer, json_words).await,
                Err(refusal) => Err(refusal),
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(refusal) => self.rest(&mut tries, refusal).await?,
            }
        }
    }

    /// Asks once; whatever the server says is fine.
    pub(crate) async fn once(
        &self,
        now: UnixMillis,
        ask: Ask,
        body: Option<reqwest::Body>,
    ) -> Result<Response, Refusal> {
        let token = self.identity.token(&self.client, now, self.wait).await?;
        let headers = ask.headers.into_iter();
        let headers = headers.map(|(name, value)| (name.to_owned(), value));
        let bearer = token.map(|token| ("authorization".to_owned(), format!("Bearer {token}")));
        let query = match ask.query.is_empty() {
            true => String::new(),
            false => format!("?{}", super::query(&ask.query)),
        };
        let request = Request {
            method: ask.method,
            url: format!("{}{}{query}", self.endpoint, ask.path),
            headers: headers.chain(bearer).collect(),
            // Its time is bounded by whoever sends it.
            body,
        };
        let wait = match request.body {
            Some(_) => Duration::MAX,
            None => self.wait,
        };
        let answer = super::answer(&self.client, request, wait).await?;
        if answer.status().as_u16() == 401 {
            self.identity.forget();
        }
        Ok(answer)
    }

    /// Rests before another try; an error is the refusal that there is none for.
    pub(crate) async fn rest(&self, tries: &mut u32, refusal: Refusal) -> Result<(), Refusal> {
        if *tries >= self.retries || !refusal.is_passing() {
            return Err(refusal);
        }
        let rest = REST_MIN.saturating_mul(1 << (*tries).min(16)).min(REST_MAX);
        *tries += 1;
        tokio::time::sleep(rest).await;
        Ok(())
    }

    /// A page of a bucket's objects.
    pub(crate) async fn list(
        &self,
        now: UnixMillis,
        bucket: &str,
        all_versions: bool,
        next: Option<String>,
    ) -> Result<Page, String> {
        let path = format!("/storage/v1/b/{}/o", path_of(bucket, false)?);
        let mut ask = Ask::new(Method::GET, path);
        ask.query.push(("maxResults", PAGE_OBJECTS.to_owned()));
        if all_versions {
            ask.query.push(("versions", "true".to_owned()));
        }
        ask.query.extend(next.map(|next| ("pageToken", next)));
        let mut told = json_of(self.ask(now, &ask).await?).await?;
        let objects = match told.get_mut("items").map(Value::take) {
            Some(Value::Array(objects)) => objects,
            _ => Vec::new(),
        };
        Ok((objects, text(&told, "nextPageToken")))
    }
}

/// The path of an object.
pub(crate) fn object_path(bucket: &str, key: &str) -> Result<String, String> {
    let (bucket, key) = (path_of(bucket, false)?, path_of(key, false)?);
    Ok(format!("/storage/v1/b/{bucket}/o/{key}"))
}

/// The headers by which a server encrypts and decrypts with a key of ours, in Base64.
pub(crate) fn encryption(key: &str) -> Result<Vec<(&'static str, String)>, String> {
    let bytes = base64_bytes(key).filter(|bytes| bytes.len() == 32);
    let bytes = bytes.ok_or("Server Side Encryption Key is no 32 bytes in Base64")?;
    Ok(vec![
        ("x-goog-encryption-algorithm", "AES256".to_owned()),
        ("x-goog-encryption-key", base64(&bytes)),
        (
            "x-goog-encryption-key-sha256",
            base64(digest::digest(&digest::SHA256, &bytes)),
        ),
    ])
}

/// An answer in JSON.
pub(crate) async fn json_of(answer: Response) -> Result<Value, String> {
    let text = bounded_text(answer).await?;
    serde_json::from_str(&text).map_err(|_| "the answer is no JSON".to_owned())
}

/// A member that is a text, or a number as text.
pub(crate) fn text(value: &Value, name: &str) -> Option<String> {
    match value.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn number(value: &Value, name: &str) -> Option<i64> {
    text(value, name)?.parse().ok()
}

/// What an error says: Google's form, OAuth's, or plain text.
pub(crate) fn json_words(words: &str) -> Refusal {
    let Ok(told) = serde_json::from_str::<Value>(words) else {
        return words.trim().to_owned().into();
    };
    let error = &told["error"];
    let first = &error["errors"][0];
    let of = |value: &Value, name: &str| text(value, name).unwrap_or_default();
    match error.is_object() {
        true => Refusal {
            status: None,
            code: of(first, "reason"),
            message: of(error, "message"),
            domain: of(first, "domain"),
        },
        false => Refusal {
            code: of(&told, "error"),
            message: of(&told, "error_description"),
            ..Refusal::default()
        },
    }
}

/// Objects of one page: with eight KiB of metadata each, an answer of them has its bound.
const PAGE_OBJECTS: &str = "500";

/// The rest before the first further try; it doubles with each.
const REST_MIN: Duration = Duration::from_millis(500);
const REST_MAX: Duration = Duration::from_secs(8);
