//! Azure's Blob Storage: requests by Shared Key, or by a shared access signature.

mod sign;

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use base::UnixMillis;
use reqwest::{Method, Response};

use super::{Refusal, Request, bounded_text, path_of, xml, xml_words};

#[cfg(test)]
pub(crate) use sign::{Signed, authorization};

/// A storage account, and by what right it is used.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    /// Where its blobs are, without a slash behind it.
    pub(crate) endpoint: String,
    pub(crate) right: Right,
}

/// By what right an account is used.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Right {
    /// Its key.
    Key(Vec<u8>),
    /// A signature that somebody with the key made: a query, encoded.
    Signature(String),
}

/// A request that is to be signed.
#[derive(Debug)]
pub(crate) struct Ask<'r> {
    pub(crate) method: Method,
    pub(crate) container: &'r str,
    /// Empty for the container itself.
    pub(crate) blob: &'r str,
    pub(crate) query: Vec<(&'static str, String)>,
    /// Names in small letters.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<reqwest::Body>,
    /// Bytes of the body.
    pub(crate) len: u64,
}

/// A blob of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) name: String,
    pub(crate) etag: String,
    /// Milliseconds since 1970.
    pub(crate) last_modified: u64,
    pub(crate) len: u64,
    pub(crate) content_type: String,
    pub(crate) language: String,
    pub(crate) kind: String,
}

/// Blobs, and what the next page is asked for with, if there is one.
pub(crate) type Page = (Vec<Blob>, Option<String>);

impl<'r> Ask<'r> {
    /// A request without a body.
    pub(crate) fn new(method: Method, container: &'r str, blob: &'r str) -> Self {
        Ask {
            method,
            container,
            blob,
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
            len: 0,
        }
    }
}

impl Account {
    /// Signs a request and sends it; the answer's head is waited for so long.
    ///
    /// Errors: no answer, or one that is not 2xx, in the server's own words.
    pub(crate) async fn ask(
        &self,
        client: &reqwest::Client,
        now: UnixMillis,
        ask: Ask<'_>,
        wait: Duration,
    ) -> Result<Response, Refusal> {
        let mut url = self.address(ask.container)?;
        if !ask.blob.is_empty() {
            url = format!("{url}/{}", path_of(ask.blob, true)?);
        }
        let now = UNIX_EPOCH + Duration::from_millis(u64::try_from(now.0).unwrap_or_default());
        let mut headers: Vec<(String, String)> = ask
            .headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        headers.push(("x-ms-date".to_owned(), httpdate::fmt_http_date(now)));
        headers.push(("x-ms-version".to_owned(), VERSION.to_owned()));
        let mut query = super::query(&ask.query);
        match &self.right {
            Right::Key(key) => {
                let parsed: reqwest::Url = url
                    .parse()
                    .map_err(|error| format!("'{url}' is no address: {error}"))?;
                let signed = sign::Signed {
                    method: ask.method.as_str(),
                    headers: &headers,
                    len: ask.len,
                    path: parsed.path(),
                    query: &ask.query,
                };
                let value = sign::authorization(&self.name, key, &signed);
                headers.push(("authorization".to_owned(), value));
            }
            Right::Signature(signature) => {
                if !query.is_empty() {
                    query.push('&');
                }
                query.push_str(signature);
            }
        }
        if !query.is_empty() {
            url = format!("{url}?{query}");
        }
        let request = Request {
            method: ask.method,
            url,
            headers,
            body: ask.body,
        };
        let answer = super::answer(client, request, wait).await?;
        super::good(answer, xml_words).await
    }

    /// A page of a container's blobs.
    pub(crate) async fn list(
        &self,
        client: &reqwest::Client,
        now: UnixMillis,
        container: &str,
        prefix: &str,
        next: Option<String>,
        wait: Duration,
    ) -> Result<Page, String> {
        let mut ask = Ask::new(Method::GET, container, "");
        ask.query.push(("restype", "container".to_owned()));
        ask.query.push(("comp", "list".to_owned()));
        if !prefix.is_empty() {
            ask.query.push(("prefix", prefix.to_owned()));
        }
        ask.query.extend(next.map(|next| ("marker", next)));
        let answer = self.ask(client, now, ask, wait).await?;
        let text = bounded_text(answer).await?;
        let blobs: Option<Vec<Blob>> = xml::elements(&text, "Blob").into_iter().map(blob).collect();
        let blobs = blobs.ok_or("the listing names no size or time")?;
        let next = xml::text(&text, "NextMarker").filter(|next| !next.is_empty());
        Ok((blobs, next))
    }

    /// The address of a container.
    pub(crate) fn address(&self, container: &str) -> Result<String, String> {
        Ok(format!("{}/{}", self.endpoint, path_of(container, false)?))
    }
}

/// What makes a blob of blocks.
pub(crate) fn block_list(ids: &[String]) -> String {
    let blocks: String = ids
        .iter()
        .map(|id| format!("<Latest>{id}</Latest>"))
        .collect();
    format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{blocks}</BlockList>")
}

fn blob(text: &str) -> Option<Blob> {
    let field = |name: &str| xml::text(text, name).unwrap_or_default();
    let changed = httpdate::parse_http_date(&field("Last-Modified")).ok()?;
    let changed = changed.duration_since(UNIX_EPOCH).ok()?;
    Some(Blob {
        name: field("Name"),
        etag: field("Etag").trim_matches('"').to_owned(),
        last_modified: u64::try_from(changed.as_millis()).ok()?,
        len: field("Content-Length").parse().ok()?,
        content_type: field("Content-Type"),
        language: field("Content-Language"),
        kind: field("BlobType"),
    })
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never key or signature: this goes into logs.
        write!(f, "Account({} at {})", self.name, self.endpoint)
    }
}

/// The newest version of the protocol that writes names as they are.
const VERSION: &str = "2020-10-02";
