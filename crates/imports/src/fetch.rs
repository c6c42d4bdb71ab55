//! Files by their URL: fetched by the server itself, from addresses that the operator allows.
//!
//! Only what begins with one of `imports.urls` is asked for, also behind redirects, so that nobody
//! reaches through the server what only the server can reach. A download that breaks off goes on
//! where it stopped, by a range of what its server says is the same file still (an `ETag` or a
//! modification time); of a server that says neither it is given up. How much may come is the
//! upload's bound.
//!
//! An address may hold a secret in its query: neither answers nor traces show that part.

use std::time::Duration;

use base::TenantId;
use reqwest::header::{CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE};
use reqwest::{Client, Response, StatusCode, Url};

use crate::error::ImportsError;
use crate::limits;
use crate::pieces::{Pieces, Told};

/// The addresses that may be fetched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed(Vec<Url>);

impl Allowed {
    /// Reads the operator's list.
    ///
    /// # Errors
    /// When one of them is no address of HTTP that ends a path's step; the operator's fault.
    pub fn read(prefixes: &[String]) -> Result<Allowed, ImportsError> {
        let read = |text: &String| {
            let url = Url::parse(text).ok().filter(is_plain);
            url.filter(|url| url.path().ends_with('/') && url.query().is_none())
                .ok_or_else(|| {
                    ImportsError::Invalid(format!(
                        "'{text}' of imports.urls is no beginning of addresses; write it as \
                         https://library.example.org/exports/"
                    ))
                })
        };
        prefixes
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map(Allowed)
    }

    /// The address that a caller names, if it may be fetched; for who belongs to a tenant, if it is in
    /// the tenant's folder.
    ///
    /// # Errors
    /// When it may not; the caller's fault.
    pub fn check(&self, named: &str, of: Option<&TenantId>) -> Result<Url, ImportsError> {
        let url = Url::parse(named).ok().filter(|url| self.has(url, of));
        url.ok_or_else(|| {
            ImportsError::Invalid(
                "the url is none that may be fetched; the operator names these in imports.urls"
                    .to_owned(),
            )
        })
    }

    fn has(&self, url: &Url, of: Option<&TenantId>) -> bool {
        // A slash that only the other server sees could lead out of the folder.
        let path = url.path().to_ascii_lowercase();
        let is_hidden = ["%2f", "%5c", "%2e"].iter().any(|mark| path.contains(mark));
        let is_in_folder = |rest: &str| {
            let folder = rest.split_once('/').map(|(folder, _)| folder);
            of.is_none_or(|tenant| folder == Some(tenant.as_str()))
        };
        let is_within = |prefix: &Url| {
            url.scheme() == prefix.scheme()
                && url.host() == prefix.host()
                && url.port_or_known_default() == prefix.port_or_known_default()
                && url
                    .path()
                    .strip_prefix(prefix.path())
                    .is_some_and(is_in_folder)
        };
        is_plain(url) && !is_hidden && self.0.iter().any(is_within)
    }
}

/// Whether it is an address of HTTP without a name or password in it.
fn is_plain(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
}

/// Whether a job's source is an address; a file of the server's own begins with a slash.
pub(crate) fn is_url(source: &str) -> bool {
    source.starts_with("http://") || source.starts_with("https://")
}

/// An address as it may be shown: without its query.
pub(crate) fn shown(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

/// Fetches a file; ends when nobody reads it any more.
pub(crate) fn fetch(url: Url, allowed: Allowed, bytes_max: u64) -> Pieces {
    let (told, fetched) = Pieces::new();
    tokio::spawn(async move {
        let mut download = Download {
            url,
            allowed,
            bytes_max,
            bytes: 0,
            mark: None,
            told,
        };
        if let Err(error) = download.run().await {
            // Whoever is gone needs no reason.
            let _ = download.told.send(Err(error)).await;
        }
    });
    fetched
}

struct Download {
    url: Url,
    allowed: Allowed,
    bytes_max: u64,
    /// What has come so far.
    bytes: u64,
    /// What tells whether the file is the same still.
    mark: Option<String>,
    told: Told,
}

/// What came of one request.
enum Step {
    /// The file is here, or nobody wants it.
    Done,
    /// It broke off, for this reason.
    Broken(String),
}

impl Download {
    async fn run(&mut self) -> Result<(), ImportsError> {
        let client = client()?;
        let mut failures = 0;
        loop {
            let before = self.bytes;
            let reason = match self.step(&client).await? {
                Step::Done => return Ok(()),
                Step::Broken(reason) => reason,
            };
            failures = if self.bytes > before { 1 } else { failures + 1 };
            if failures > limits::FETCH_FAILURES_MAX {
                return Err(ImportsError::Fetch(reason));
            }
            if self.bytes > 0 && self.mark.is_none() {
                return Err(ImportsError::Fetch(format!(
                    "it broke off after {} bytes ({reason}), and its server does not say by ETag or \
                     Last-Modified whether it is the same file still",
                    self.bytes
                )));
            }
            tracing::debug!(url = shown(self.url.as_str()), reason, "a download goes on");
            tokio::time::sleep(limits::FETCH_PAUSE * failures).await;
        }
    }

    /// One request for what is missing.
    async fn step(&mut self, client: &Client) -> Result<Step, ImportsError> {
        let response = match self.ask(client).await? {
            Ok(response) => response,
            Err(reason) => return Ok(Step::Broken(reason)),
        };
        let status = response.status();
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Ok(Step::Broken(format!("its server answered {status}")));
        }
        let is_rest = status == StatusCode::PARTIAL_CONTENT;
        let from = if is_rest {
            range_start(response.headers())
        } else {
            Some(0)
        };
        if !status.is_success() {
            return Err(ImportsError::Fetch(format!("its server answered {status}")));
        }
        if from != Some(self.bytes) {
            let reason = "it changed while it was fetched, or its server sends no ranges; import \
                it again";
            return Err(ImportsError::Fetch(reason.to_owned()));
        }
        if self.bytes == 0 {
            self.mark = mark(response.headers());
        }
        let wanted = response.content_length().map(|length| self.bytes + length);
        if wanted.is_some_and(|bytes| bytes > self.bytes_max) {
            return Err(ImportsError::TooLarge(self.bytes_max));
        }
        self.take(response, wanted).await
    }

    /// Asks for the file from where it stopped, behind redirects; a reason where there is no answer.
    async fn ask(&self, client: &Client) -> Result<Result<Response, String>, ImportsError> {
        let mut url = self.url.clone();
        for _ in 0..=limits::FETCH_REDIRECTS_MAX {
            let mut request = client.get(url.clone());
            if let Some(mark) = self.mark.as_ref().filter(|_| self.bytes > 0) {
                let range = format!("bytes={}-", self.bytes);
                request = request.header(RANGE, range).header(IF_RANGE, mark);
            }
            let response = match request.send().await {
                Ok(response) => response,
                Err(error) => return Ok(Err(base::report(&error.without_url()))),
            };
            if !response.status().is_redirection() {
                return Ok(Ok(response));
            }
            let to = response
                .headers()
                .get(LOCATION)
                .and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| url.join(to).ok());
            url = to.filter(|to| self.allowed.has(to, None)).ok_or_else(|| {
                ImportsError::Fetch(
                    "its server sends on to an address that imports.urls does not allow".to_owned(),
                )
            })?;
        }
        let most = limits::FETCH_REDIRECTS_MAX;
        Err(ImportsError::Fetch(format!(
            "it is sent on more than {most} times"
        )))
    }

    async fn take(
        &mut self,
        mut response: Response,
        wanted: Option<u64>,
    ) -> Result<Step, ImportsError> {
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    self.bytes += chunk.len() as u64;
                    if self.told.send(Ok(chunk)).await.is_err() {
                        return Ok(Step::Done);
                    }
                }
                Ok(None) if wanted.is_none_or(|wanted| self.bytes >= wanted) => {
                    return Ok(Step::Done);
                }
                Ok(None) => return Ok(Step::Broken("it ended early".to_owned())),
                Err(error) => return Ok(Step::Broken(base::report(&error.without_url()))),
            }
        }
    }
}

/// Where the bytes of a partial answer begin.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    range
        .strip_prefix("bytes ")?
        .split('-')
        .next()?
        .parse()
        .ok()
}

/// What a later request names as the file that it wants the rest of: RFC 9110, 13.1.5 takes strong
/// entity tags and modification times.
fn mark(headers: &HeaderMap) -> Option<String> {
    let tag = headers.get(ETAG).and_then(|tag| tag.to_str().ok());
    let tag = tag.filter(|tag| !tag.starts_with("W/"));
    let mark = tag.or_else(|| {
        headers
            .get(LAST_MODIFIED)
            .and_then(|time| time.to_str().ok())
    });
    mark.map(str::to_owned)
}

/// A client that follows no redirects by itself and uses no proxy.
pub(crate) fn client() -> Result<Client, ImportsError> {
    // Whoever did it before did the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = || {
        Client::builder()
            .connect_timeout(CONNECT_WAIT)
            .read_timeout(limits::FETCH_IDLE_MAX)
            // Each step is looked at first.
            .redirect(reqwest::redirect::Policy::none())
            // A proxy of the environment would be a way around the list.
            .no_proxy()
    };
    // A machine that believes nobody can still call a server without TLS.
    let made = settings().build();
    made.or_else(|_| settings().tls_certs_only(Vec::new()).build())
        .map_err(|error| ImportsError::Fetch(base::report(&error)))
}

const CONNECT_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_begins_with_an_allowed_address_is_fetched() {
        let allowed = ["https://lib.example.org/exports/".to_owned()];
        let allowed = Allowed::read(&allowed).unwrap();
        for url in [
            "https://lib.example.org/exports/a.mrc",
            "https://lib.example.org:443/exports/2024/a.mrc?token=x",
        ] {
            assert!(allowed.check(url, None).is_ok(), "{url}");
        }
        for url in [
            "http://lib.example.org/exports/a.mrc",
            "https://lib.example.org/exports",
            "https://lib.example.org/exports/../private/a.mrc",
            "https://lib.example.org/exports/%2e%2e/private/a.mrc",
            "https://lib.example.org/exports/..%2fprivate/a.mrc",
            "https://lib.example.org:8443/exports/a.mrc",
            "https://lib.example.org.evil.org/exports/a.mrc",
            "https://lib.example.org@evil.org/exports/a.mrc",
            "https://ann:secret@lib.example.org/exports/a.mrc",
            "file:///etc/passwd",
            "http://169.254.169.254/latest/meta-data/",
            "no address",
        ] {
            assert!(allowed.check(url, None).is_err(), "{url}");
            assert!(Allowed::default().check(url, None).is_err(), "{url}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_meant_is_refused() {
        for bad in [
            "lib.example.org",
            "https://lib.example.org/exports",
            "ftp://x/",
            "https://u@x/",
        ] {
            assert!(Allowed::read(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_shown_of_an_address_has_no_query() {
        assert_eq!(shown("https://x/a.mrc?signature=s#f"), "https://x/a.mrc");
    }

    #[test]
    fn ranges_and_marks_are_read_as_servers_write_them() {
        let mut headers = HeaderMap::new();
        assert_eq!((range_start(&headers), mark(&headers)), (None, None));
        headers.insert(CONTENT_RANGE, "bytes 17-99/100".parse().unwrap());
        headers.insert(
            LAST_MODIFIED,
            "Tue, 15 Nov 1994 12:45:26 GMT".parse().unwrap(),
        );
        headers.insert(ETAG, "W/\"weak\"".parse().unwrap());
        assert_eq!(range_start(&headers), Some(17));
        assert!(mark(&headers).unwrap().starts_with("Tue"));
        headers.insert(ETAG, "\"strong\"".parse().unwrap());
        assert_eq!(mark(&headers).as_deref(), Some("\"strong\""));
    }
}
