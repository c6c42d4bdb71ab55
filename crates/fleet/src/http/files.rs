//! Files over HTTP: out by pieces with ranges, in by pieces from bodies and from forms.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::http::Failure;

/// A file to be sent.
pub struct Outgoing<'a> {
    pub id: &'a str,
    pub name: &'a str,
    pub bytes: i64,
    pub sha512: &'a str,
}

/// Sends a file, or the range of it that is asked for.
pub async fn send(
    fleet: &Arc<Fleet>,
    headers: &HeaderMap,
    file: Outgoing<'_>,
) -> Result<Response, Failure> {
    let total = file.bytes.cast_unsigned();
    let tag = format!("\"{}\"", file.sha512);
    let asked = match is_current(headers, &tag) {
        true => range(headers, total),
        false => Asked::All,
    };
    let (status, start, end) = match asked {
        Asked::All => (StatusCode::OK, 0, total),
        Asked::Part(start, end) => (StatusCode::PARTIAL_CONTENT, start, end),
        Asked::Nothing => {
            let message = format!("the file has {total} bytes");
            let mut refused =
                Failure::new(StatusCode::RANGE_NOT_SATISFIABLE, message).into_response();
            set(
                &mut refused,
                header::CONTENT_RANGE,
                &format!("bytes */{total}"),
            );
            return Ok(refused);
        }
    };
    let body = Pieces {
        place: fleet.inner.files.download_place().await?,
        fleet: fleet.clone(),
        id: Arc::from(file.id),
        offset: start,
        end,
        reading: None,
    };
    let mut response = (status, Body::new(body)).into_response();
    set(
        &mut response,
        header::CONTENT_TYPE,
        "application/octet-stream",
    );
    set(&mut response, header::ACCEPT_RANGES, "bytes");
    set(&mut response, header::ETAG, &tag);
    set(&mut response, DIGEST, file.sha512);
    let name: String = file.name.chars().filter(|c| is_plain(*c)).collect();
    let disposition = format!("attachment; filename=\"{name}\"");
    set(&mut response, header::CONTENT_DISPOSITION, &disposition);
    if status == StatusCode::PARTIAL_CONTENT {
        let place = format!("bytes {start}-{}/{total}", end - 1);
        set(&mut response, header::CONTENT_RANGE, &place);
    }
    Ok(response)
}

/// What of a file is asked for; the end is the byte after the last one.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    All,
    Part(u64, u64),
    Nothing,
}

/// Whether a range is asked of this very content (`If-Range`).
fn is_current(headers: &HeaderMap, tag: &str) -> bool {
    headers
        .get(header::IF_RANGE)
        .is_none_or(|wanted| wanted.as_bytes() == tag.as_bytes())
}

/// Reads `Range`; what is no single range of bytes asks for everything, as RFC 9110 allows.
fn range(headers: &HeaderMap, total: u64) -> Asked {
    let text = headers
        .get(header::RANGE)
        .and_then(|range| range.to_str().ok());
    let Some((start, end)) = text
        .and_then(|text| text.trim().strip_prefix("bytes="))
        .and_then(|range| range.trim().split_once('-'))
    else {
        return Asked::All;
    };
    let (start, end) = (start.trim(), end.trim());
    let (start, end) = match (start.parse::<u64>(), end.parse::<u64>()) {
        (Ok(start), Ok(last)) if start <= last => (start, total.min(last.saturating_add(1))),
        (Ok(start), Err(_)) if end.is_empty() => (start, total),
        (Err(_), Ok(0)) if start.is_empty() => return Asked::Nothing,
        (Err(_), Ok(count)) if start.is_empty() => (total.saturating_sub(count), total),
        _ => return Asked::All,
    };
    match start < end {
        true => Asked::Part(start, end),
        false => Asked::Nothing,
    }
}

fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_graphic() && c != '"' && c != '\\' && c != '/' || c == ' '
}

/// A file's bytes as a body: one piece in memory at a time.
struct Pieces {
    fleet: Arc<Fleet>,
    id: Arc<str>,
    offset: u64,
    end: u64,
    reading: Option<Reading>,
    #[expect(dead_code, reason = "held until the file is out")]
    place: OwnedSemaphorePermit,
}

type Reading = Pin<Box<dyn Future<Output = Result<Option<Bytes>, FleetError>> + Send>>;

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if self.offset >= self.end {
            return Poll::Ready(None);
        }
        let (fleet, id, offset) = (self.fleet.clone(), self.id.clone(), self.offset);
        let reading = self.reading.get_or_insert_with(|| {
            Box::pin(async move { fleet.inner.files.read(&id, offset).await })
        });
        let read = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        let left = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX);
        Poll::Ready(Some(match read {
            Ok(Some(mut bytes)) => {
                bytes.truncate(left);
                self.offset += bytes.len() as u64;
                Ok(Frame::data(bytes))
            }
            // It was removed meanwhile: the receiver sees that bytes are missing.
            Ok(None) => Err("the file is gone".into()),
            Err(error) => {
                tracing::error!(error = base::report(&error), "cannot read a file");
                Err("the file cannot be read".into())
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.offset >= self.end
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end.saturating_sub(self.offset))
    }
}

/// The digest of a file's whole content, as agents compare it.
const DIGEST: HeaderName = HeaderName::from_static("x-content-sha-512");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_they_are_written() {
        for (text, expected) in [
            ("bytes=0-0", Asked::Part(0, 1)),
            ("bytes=2-", Asked::Part(2, 10)),
            ("bytes=2-100", Asked::Part(2, 10)),
            ("bytes=-3", Asked::Part(7, 10)),
            ("bytes=-30", Asked::Part(0, 10)),
            ("bytes=10-", Asked::Nothing),
            ("bytes=-0", Asked::Nothing),
            ("bytes=3-2", Asked::All),
            ("bytes=0-1,3-4", Asked::All),
            ("lines=0-1", Asked::All),
            ("bytes=x-", Asked::All),
            ("bytes=0-18446744073709551615", Asked::Part(0, 10)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, text.parse().unwrap());
            assert_eq!(range(&headers, 10), expected, "{text}");
        }
        assert_eq!(range(&HeaderMap::new(), 10), Asked::All);
    }
}
