//! `Idempotency-Key`: a POST that is sent again is stored once and told what the first was told.
//!
//! The header is that of the IETF's draft: a text of the client's choice, in quotes or without. A key
//! belongs to its caller and its topic. With it a request is stored whole or not at all; the same key
//! with another request is refused, one whose first request is under way waits for that. What
//! stores, and remembers, is the event store ([`streams::ProduceOnce`]); a request without the
//! header goes past all this.

use ::access::Principal;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use base::UnixMillis;
use sha2::{Digest, Sha256};
use streams::{OnceKey, TopicName};

use crate::answer;
use crate::error::RestError;
use crate::limits::IDEMPOTENCY_KEY_BYTES_MAX;
use crate::login::principal_of;

/// What the request's header asks for; none without the header.
pub(crate) struct Wanted(pub Option<WantedKey>);

/// A key, and what its hash is made of beside the topic.
pub(crate) struct WantedKey {
    text: String,
    principal: Option<Principal>,
    /// What the request is but for its body: its method, path and content type.
    request: Sha256,
}

/// A request under a key.
#[derive(Clone)]
pub(crate) struct Once {
    pub key: OnceKey,
    pub fingerprint: [u8; 32],
    /// When it came.
    pub at: UnixMillis,
}

impl<S: Sync> FromRequestParts<S> for Wanted {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, RestError> {
        let Some(header) = parts.headers.get(IDEMPOTENCY_KEY) else {
            return Ok(Wanted(None));
        };
        // What is not ASCII is no key, and not one key for all such texts.
        let header = header.to_str().unwrap_or_default();
        let text = header
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
            .unwrap_or(header);
        let is_key = (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !is_key || parts.headers.get_all(IDEMPOTENCY_KEY).iter().count() > 1 {
            return Err(RestError::BadRequest(format!(
                "an Idempotency-Key is one text of 1 to {IDEMPOTENCY_KEY_BYTES_MAX} visible ASCII \
                 characters"
            )));
        }
        let mut request = Sha256::new();
        put(&mut request, parts.method.as_str());
        put(&mut request, parts.uri.path());
        let content_type = answer::text(&parts.headers, axum::http::header::CONTENT_TYPE);
        put(&mut request, content_type.unwrap_or_default());
        Ok(Wanted(Some(WantedKey {
            text: text.to_owned(),
            principal: principal_of(parts),
            request,
        })))
    }
}

impl WantedKey {
    /// The key of a request on `topic` whose body is `body`.
    pub(crate) fn of(&self, topic: &TopicName, body: &[u8], at: UnixMillis) -> Once {
        self.nth(topic, body, None, at)
    }

    /// The key of one record of many, each of which is stored by itself.
    pub(crate) fn nth(
        &self,
        topic: &TopicName,
        body: &[u8],
        index: Option<u64>,
        at: UnixMillis,
    ) -> Once {
        let mut key = Sha256::new();
        let principal = self.principal.as_ref().map(ToString::to_string);
        put(&mut key, principal.as_deref().unwrap_or_default());
        put(&mut key, topic.wire_name());
        put(&mut key, &self.text);
        let mut hash: OnceKey = key.clone().finalize().into();
        if let Some(index) = index {
            let first = hash[0];
            key.update(index.to_le_bytes());
            hash = key.finalize().into();
            // The first byte chooses who stores: one for all of a stream, so that it is in order.
            hash[0] = first;
        }
        let mut fingerprint = self.request.clone();
        fingerprint.update(body);
        Once {
            key: hash,
            fingerprint: fingerprint.finalize().into(),
            at,
        }
    }
}

impl Once {
    /// What chooses the partition of records without a key, so that a retry finds the same.
    pub(crate) fn turn(&self) -> u64 {
        let [_, a, b, c, d, ..] = self.key;
        u64::from(u32::from_le_bytes([a, b, c, d]))
    }
}

/// Says of an answer that it repeats an earlier one.
pub(crate) fn marked(mut response: Response, is_recalled: bool) -> Response {
    if is_recalled {
        let headers = response.headers_mut();
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// Adds a text so that no two lists of texts look alike.
fn put(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
