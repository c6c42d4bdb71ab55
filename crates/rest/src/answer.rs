//! What the handlers share: path segments, parameters, JSON in and out.

use std::fmt;
use std::marker::PhantomData;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::header::AsHeaderName;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use streams::TopicName;
use tokio::io::DuplexStream;
use tokio_util::io::ReaderStream;

use crate::config::RestConfig;
use crate::error::RestError;
use crate::media::{self, ApiVersion};

/// The path's segments, percent-decoded, so that `%2Fstreams%2Ftest%3Atopic1` is one of them.
pub(crate) struct Segments<T>(pub T);

/// The query's parameters.
pub(crate) struct Parameters<T>(pub T);

/// The media type to answer in.
pub(crate) struct AnswerType(pub &'static str);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, RestError> {
        let found: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        found
            .map(|Path(segments)| Segments(segments))
            .map_err(|_| not_utf8())
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, RestError> {
        let found: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        found
            .map(|Query(parameters)| Parameters(parameters))
            .map_err(|error| RestError::BadRequest(error.body_text()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for AnswerType {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, RestError> {
        let accept = joined(&parts.headers, header::ACCEPT);
        media::answer_type(accept.as_deref(), spoken(&parts.headers)).map(AnswerType)
    }
}

/// The values of a header that may come several times, as one list.
pub(crate) fn joined(headers: &HeaderMap, name: impl AsHeaderName) -> Option<String> {
    let values: Vec<&str> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// A header's text; a value that is not ASCII reads as one that nothing matches.
pub(crate) fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// The API version of the request's content type; what nobody understands is answered as v2.
pub(crate) fn spoken(headers: &HeaderMap) -> ApiVersion {
    media::body_type(text(headers, header::CONTENT_TYPE))
        .map_or(ApiVersion::V2, |body| body.version)
}

/// The API version that a request names, if it names one.
pub(crate) fn named(headers: &HeaderMap) -> Option<ApiVersion> {
    let accept = joined(headers, header::ACCEPT);
    media::named_version(text(headers, header::CONTENT_TYPE), accept.as_deref())
}

/// The refusal of a path that cannot be read.
pub(crate) fn not_utf8() -> RestError {
    RestError::BadRequest("the path is not UTF-8 when decoded".to_owned())
}

/// Scheme, host and port under which the caller finds the proxy.
pub(crate) fn authority(config: &RestConfig, headers: &HeaderMap) -> String {
    let host = || text(headers, header::HOST).unwrap_or(&config.listen);
    let advertised = config.advertised.clone();
    let scheme = if config.is_tls { "https" } else { "http" };
    advertised.unwrap_or_else(|| format!("{scheme}://{}", host()))
}

/// Percent-encodes a path segment.
pub(crate) fn segment(text: &str) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// A topic's name out of the path; a name that no topic can have is a topic that is not there.
pub(crate) fn topic_name(name: &str) -> Result<TopicName, RestError> {
    name.parse().map_err(|_| no_topic(name))
}

/// The refusal of a topic that is not there.
pub(crate) fn no_topic(name: &str) -> RestError {
    RestError::TopicNotFound(name.chars().take(NAME_SHOWN).collect())
}

/// A value that is read from a JSON object only; left to itself serde takes an array of the fields in
/// their order too, which nobody means.
pub(crate) struct JsonObject<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }
        let fields = deserializer.deserialize_map(Fields(PhantomData));
        fields.map(JsonObject)
    }
}

/// A field that may be `null`, which is as good as missing.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    value: D,
) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// Reads a JSON body, which is an object.
pub(crate) fn entity<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, RestError> {
    serde_json::from_slice(body)
        .map(|JsonObject(entity)| entity)
        .map_err(|error| RestError::InvalidEntity(format!("the body does not fit: {error}")))
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, media: &'static str, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(text) => bytes(status, media, text),
        // Only a map with keys that are no text fails, and none of ours is.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// An answer of JSON text.
pub(crate) fn bytes(status: StatusCode, media: &'static str, body: impl Into<Body>) -> Response {
    let content_type = (header::CONTENT_TYPE, HeaderValue::from_static(media));
    (status, [content_type], body.into()).into_response()
}

/// A body that a task of its own writes, as fast as its reader takes it; `bytes` may wait between.
pub(crate) fn piped<F>(bytes: usize, write: impl FnOnce(DuplexStream) -> F) -> Body
where
    F: Future<Output = ()> + Send + 'static,
{
    let (out, read) = tokio::io::duplex(bytes);
    tokio::spawn(write(out));
    Body::from_stream(ReaderStream::with_capacity(read, bytes))
}

/// How much of a refused name is repeated to the caller, in characters.
const NAME_SHOWN: usize = 300;
