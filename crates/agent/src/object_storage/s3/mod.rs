//! Object storage by S3's REST interface: signed requests over the agent's HTTP client.

mod identity;
mod sign;

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use reqwest::{Method, Response};
use ring::digest;

use super::{Request, bounded_text, path_of, xml, xml_words};

pub(crate) use identity::{Identity, Source};
pub(crate) use sign::{Credentials, hash, hexadecimal};
#[cfg(test)]
pub(crate) use sign::{Signed, authorization};

/// A bucket and who asks for it.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) name: String,
    pub(crate) region: String,
    /// Address of a server other than AWS's.
    pub(crate) endpoint: Option<String>,
    /// Whether the bucket stands in the host's name.
    pub(crate) is_virtual: bool,
    /// Nobody, where it is none.
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) requester_pays: bool,
}

/// A request that is to be signed.
#[derive(Debug)]
pub(crate) struct Ask<'r> {
    pub(crate) method: Method,
    /// Empty for the bucket itself.
    pub(crate) key: &'r str,
    pub(crate) query: Vec<(&'r str, String)>,
    pub(crate) headers: Vec<(&'r str, String)>,
    pub(crate) body: Option<reqwest::Body>,
    /// SHA-256 of the body in hexadecimal.
    pub(crate) payload: String,
}

/// An object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) key: String,
    pub(crate) etag: String,
    /// As the server writes it, `2026-01-02T03:04:05.000Z`: in order of time as texts.
    pub(crate) last_modified: String,
    pub(crate) size: u64,
    pub(crate) storage_class: String,
}

/// A page of a listing.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Object>,
    /// What the next page is asked for with, if there is one.
    pub(crate) next: Option<String>,
}

impl<'r> Ask<'r> {
    /// A request without a body.
    pub(crate) fn new(method: Method, key: &'r str) -> Self {
        Ask {
            method,
            key,
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
            payload: hash(b""),
        }
    }
}

impl Bucket {
    /// Signs a request and sends it; the answer's head is waited for so long.
    ///
    /// Errors: no answer, or one that is not 2xx, in the server's own words.
    pub(crate) async fn ask(
        &self,
        client: &reqwest::Client,
        now: UnixMillis,
        ask: Ask<'_>,
        wait: Duration,
    ) -> Result<Response, String> {
        let (origin, host, path) = self.place(ask.key)?;
        let query = super::query(&ask.query);
        let time = time(now);
        let mut headers: Vec<(String, String)> = ask
            .headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        headers.push(("x-amz-date".to_owned(), time.clone()));
        headers.push(("x-amz-content-sha256".to_owned(), ask.payload.clone()));
        if self.requester_pays {
            headers.push(("x-amz-request-payer".to_owned(), "requester".to_owned()));
        }
        let credentials = match &self.identity {
            Some(identity) => Some(identity.credentials(client, now, wait).await?),
            None => None,
        };
        let token = credentials.as_ref();
        let token = token.and_then(|found| found.session_token.clone());
        headers.extend(token.map(|token| ("x-amz-security-token".to_owned(), token)));
        headers.push(("host".to_owned(), host));
        headers.sort();
        let authorization = credentials.as_ref().map(|credentials| {
            let signed = sign::Signed {
                method: ask.method.as_str(),
                path: &path,
                query: &query,
                headers: &headers,
                payload: &ask.payload,
                time: &time,
                region: &self.region,
            };
            sign::authorization(credentials, &signed)
        });
        let url = match query.is_empty() {
            true => format!("{origin}{path}"),
            false => format!("{origin}{path}?{query}"),
        };
        headers.extend(authorization.map(|value| ("authorization".to_owned(), value)));
        let request = Request {
            method: ask.method,
            url,
            headers,
            body: ask.body,
        };
        let answer = super::answer(client, request, wait).await?;
        Ok(super::good(answer, xml_words).await?)
    }

    /// A page of the bucket's objects.
    pub(crate) async fn list(
        &self,
        client: &reqwest::Client,
        now: UnixMillis,
        prefix: &str,
        delimiter: Option<&str>,
        next: Option<String>,
        wait: Duration,
    ) -> Result<Page, String> {
        let mut ask = Ask::new(Method::GET, "");
        ask.query.push(("list-type", "2".to_owned()));
        if !prefix.is_empty() {
            ask.query.push(("prefix", prefix.to_owned()));
        }
        if let Some(delimiter) = delimiter {
            ask.query.push(("delimiter", delimiter.to_owned()));
        }
        if let Some(next) = next {
            ask.query.push(("continuation-token", next));
        }
        let answer = self.ask(client, now, ask, wait).await?;
        let text = bounded_text(answer).await?;
        let mut objects = Vec::new();
        for object in xml::elements(&text, "Contents") {
            let field = |name: &str| xml::text(object, name).unwrap_or_default();
            objects.push(Object {
                key: field("Key"),
                etag: field("ETag").trim_matches('"').to_owned(),
                last_modified: field("LastModified"),
                size: field("Size")
                    .parse()
                    .map_err(|_| "the listing names no size".to_owned())?,
                storage_class: field("StorageClass"),
            });
        }
        let is_cut = xml::text(&text, "IsTruncated").as_deref() == Some("true");
        let next = xml::text(&text, "NextContinuationToken").filter(|_| is_cut);
        Ok(Page { objects, next })
    }

    /// Scheme and host, the host alone, and the encoded path of `key`.
    fn place(&self, key: &str) -> Result<(String, String, String), String> {
        let base = match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => format!("https://s3.{}.amazonaws.com", self.region),
        };
        let url: reqwest::Url = base
            .parse()
            .map_err(|error| format!("'{base}' is no endpoint: {error}"))?;
        let name = url
            .host_str()
            .ok_or_else(|| format!("'{base}' names no host"))?;
        let is_virtual = self.is_virtual
            && name != "localhost"
            && name
                .trim_matches(['[', ']'])
                .parse::<std::net::IpAddr>()
                .is_err();
        let name = match is_virtual {
            true => format!("{}.{name}", self.name),
            false => name.to_owned(),
        };
        let host = match url.port() {
            Some(port) => format!("{name}:{port}"),
            None => name,
        };
        let bucket = match is_virtual {
            true => String::new(),
            false => format!("/{}", path_of(&self.name, false)?),
        };
        let folder = url.path().trim_end_matches('/');
        let path = format!("{folder}{bucket}/{}", path_of(key, true)?);
        Ok((format!("{}://{host}", url.scheme()), host, path))
    }
}

/// SHA-256 of all that `reader` has, in hexadecimal.
pub(crate) fn hash_of(reader: &mut impl Read) -> std::io::Result<String> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hexadecimal(context.finish().as_ref())),
            read => context.update(&buffer[..read]),
        }
    }
}

/// The id in the answer that begins an upload in parts.
pub(crate) async fn upload_id(answer: Response) -> Result<String, String> {
    let text = bounded_text(answer).await?;
    xml::text(&text, "UploadId").ok_or_else(|| "the server names no upload".to_owned())
}

/// What completes an upload in parts.
pub(crate) fn parts(etags: &[String]) -> String {
    let part = |(index, etag): (usize, &String)| {
        format!(
            "<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>",
            index + 1,
            xml::escape(etag)
        )
    };
    let parts: String = etags.iter().enumerate().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

/// The answer to a completed upload, which may be an error in spite of its status.
pub(crate) async fn completed(answer: Response) -> Result<String, String> {
    let text = bounded_text(answer).await?;
    match xml::elements(&text, "Error").first() {
        Some(error) => Err(xml_words(error).to_string()),
        None => Ok(xml::text(&text, "ETag")
            .unwrap_or_default()
            .trim_matches('"')
            .to_owned()),
    }
}

/// The time as signatures write it.
fn time(now: UnixMillis) -> String {
    match jiff::Timestamp::from_millisecond(now.0) {
        Ok(now) => now.strftime("%Y%m%dT%H%M%SZ").to_string(),
        Err(_) => String::new(),
    }
}
