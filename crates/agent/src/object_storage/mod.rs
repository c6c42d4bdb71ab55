//! Object storages: S3's, Google's and Azure's REST interfaces over the agent's HTTP client.
//!
//! What they have in common stands here: how a request goes out, how an answer is read within
//! bounds, and why one failed. No secret is part of what is told: neither addresses, which may
//! bear signatures, nor headers.

pub(crate) mod azure;
pub(crate) mod gcs;
pub(crate) mod s3;
mod xml;

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body::Body;
use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response};

use crate::net::limits::STORAGE_ANSWER_BYTES_MAX;

/// A request as it goes out.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<reqwest::Body>,
}

/// Why a server did not do what it was asked to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// None where there was no answer.
    pub(crate) status: Option<u16>,
    /// The server's short word for it.
    pub(crate) code: String,
    /// The server's sentence; ours where there was no answer.
    pub(crate) message: String,
    /// What the word belongs to, where the server says so.
    pub(crate) domain: String,
}

/// Finds a server's words in the text of its error.
pub(crate) type Words = fn(&str) -> Refusal;

/// Sends a request; the answer's head is waited for so long. Whatever the server says is fine.
///
/// Errors: no answer.
pub(crate) async fn answer(
    client: &reqwest::Client,
    request: Request,
    wait: Duration,
) -> Result<Response, Refusal> {
    let mut headers = header_map(&request.headers)?;
    let len = request.body.as_ref().map(|body| body.size_hint().exact());
    // Servers want to be told that nothing comes; the client says it only of what comes.
    if matches!(request.method, Method::PUT | Method::POST) && len.is_none_or(|len| len == Some(0))
    {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let mut builder = client.request(request.method, request.url).headers(headers);
    if let Some(body) = request.body {
        builder = builder.body(body);
    }
    let answer = tokio::time::timeout(wait, builder.send()).await;
    let answer = answer.map_err(|_| format!("no answer within {} s", wait.as_secs()))?;
    Ok(answer.map_err(|error| base::report(&error.without_url()))?)
}

/// An answer that is 2xx; another one is an error in the server's own words.
pub(crate) async fn good(answer: Response, words: Words) -> Result<Response, Refusal> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let code = header(&answer, "x-ms-error-code");
    let mut refusal = words(&bounded_text(answer).await.unwrap_or_default());
    if refusal.code.is_empty() {
        refusal.code = code.unwrap_or_default();
    }
    if refusal.code.is_empty() && refusal.message.is_empty() {
        refusal.message = status.canonical_reason().unwrap_or_default().to_owned();
    }
    refusal.status = Some(status.as_u16());
    Err(refusal)
}

/// The text of an answer that is 2xx.
pub(crate) async fn told(
    client: &reqwest::Client,
    request: Request,
    words: Words,
    wait: Duration,
) -> Result<String, Refusal> {
    let answer = good(answer(client, request, wait).await?, words).await?;
    Ok(bounded_text(answer).await?)
}

/// The text of an answer, if it is not too long.
pub(crate) async fn bounded_text(mut answer: Response) -> Result<String, String> {
    let mut bytes = Vec::new();
    loop {
        let piece = answer
            .chunk()
            .await
            .map_err(|error| base::report(&error.without_url()))?;
        let Some(piece) = piece else {
            break;
        };
        bytes.extend_from_slice(&piece);
        if bytes.len() > STORAGE_ANSWER_BYTES_MAX {
            return Err(format!(
                "the answer is longer than {STORAGE_ANSWER_BYTES_MAX} bytes"
            ));
        }
    }
    String::from_utf8(bytes).map_err(|_| "the answer is no text".to_owned())
}

/// The value of an answer's header, without quotation marks around it.
pub(crate) fn header(answer: &Response, name: &str) -> Option<String> {
    let value = answer.headers().get(name)?.to_str().ok()?;
    Some(value.trim_matches('"').to_owned())
}

/// Percent-encodes all but letters, digits and `-._~`; slashes stay where `keeps_slash`.
pub(crate) fn encode(text: &str, keeps_slash: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            b'/' if keeps_slash => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The path of a name, percent-encoded.
///
/// Errors: a name with a part that is `.` or `..`, which no address can have: it would lead to
/// another place.
pub(crate) fn path_of(name: &str, keeps_slash: bool) -> Result<String, String> {
    let is_way = |part: &str| part == "." || part == "..";
    let leads_away = match keeps_slash {
        true => name.split('/').any(is_way),
        false => is_way(name),
    };
    match leads_away {
        true => Err(format!("'{name}' is no name that an address can have")),
        false => Ok(encode(name, keeps_slash)),
    }
}

/// A query, encoded, in order of its names.
pub(crate) fn query(pairs: &[(&str, String)]) -> String {
    let mut pairs: Vec<(String, String)> = pairs
        .iter()
        .map(|(name, value)| (encode(name, false), encode(value, false)))
        .collect();
    pairs.sort();
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("&")
}

/// Bytes in Base64, as all three write hashes and keys.
pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of a text in Base64.
pub(crate) fn base64_bytes(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text.trim()).ok()
}

/// Code and message of an error in XML.
fn xml_words(text: &str) -> Refusal {
    let field = |name: &str| xml::text(text, name).unwrap_or_default();
    Refusal {
        code: field("Code"),
        message: field("Message"),
        ..Refusal::default()
    }
}

fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("'{name}' has a value that no header takes"))?;
        value.set_sensitive(true);
        let name = HeaderName::from_bytes(name.as_bytes());
        map.insert(name.map_err(|error| error.to_string())?, value);
    }
    Ok(map)
}

impl Refusal {
    /// Whether the same may work a little later.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.status, None | Some(408 | 429 | 500..=599))
    }
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Refusal {
            message,
            ..Refusal::default()
        }
    }
}

impl From<Refusal> for String {
    fn from(refusal: Refusal) -> Self {
        refusal.to_string()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(status) = self.status {
            write!(f, "the server answers {status}: ")?;
        }
        let words = format!("{} {}", self.code, self.message);
        // Lines of a server's are no lines of our log's.
        let words: Vec<&str> = words.split_whitespace().collect();
        let words: String = words.join(" ").chars().take(ERROR_CHARS_MAX).collect();
        f.write_str(&words)
    }
}

/// Characters of a server's error that are shown.
const ERROR_CHARS_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_and_queries_are_in_order() {
        assert_eq!(encode("a b/c~ü+", true), "a%20b/c~%C3%BC%2B");
        assert_eq!(encode("a/b", false), "a%2Fb");
        assert_eq!(path_of("..a/b", true).as_deref(), Ok("..a/b"));
        assert_eq!(path_of("../b", false).as_deref(), Ok("..%2Fb"));
        assert!(path_of("a/../b", true).is_err() && path_of("..", false).is_err());
        let pairs = [("b", "1 &".to_owned()), ("a", String::new())];
        assert_eq!(query(&pairs), "a=&b=1%20%26");
    }

    #[test]
    fn a_refusal_is_told_in_one_line_of_bounded_length() {
        let xml = "<Error><Code>No</Code><Message>not\nnow</Message></Error>";
        let refusal = Refusal {
            status: Some(503),
            ..xml_words(xml)
        };
        assert_eq!(refusal.to_string(), "the server answers 503: No not now");
        assert!(refusal.is_passing());
        let long = Refusal::from("x".repeat(10_000));
        assert_eq!(long.to_string().len(), ERROR_CHARS_MAX);
    }
}
