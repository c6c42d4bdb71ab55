//! Request bodies, read and decompressed within bounds.
//!
//! Small bodies, which are nearly all, are read freely; a large one needs one of a few places, so
//! that a crowd of manifests, or of liars, takes a fixed amount of memory.

use std::io::Read;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::http::Failure;
use crate::limits;

/// A body with the place that it holds, if it is large.
pub struct Taken {
    /// The bytes, decompressed.
    pub bytes: Bytes,
    _place: Option<SemaphorePermit<'static>>,
}

/// Reads and decompresses the request's body.
pub async fn take(request: Request) -> Result<Taken, Failure> {
    let (parts, body) = request.into_parts();
    let gzip = is_gzip(&parts.headers)?;
    if declared_length(&parts.headers).is_some_and(|length| length > limits::BODY_BYTES_MAX) {
        return Err(too_large());
    }
    let read = tokio::time::timeout(limits::BODY_WAIT, read(body)).await;
    let (bytes, place) = read.map_err(|_| {
        let message = format!("the body did not come within {:?}", limits::BODY_WAIT);
        Failure::new(StatusCode::REQUEST_TIMEOUT, message)
    })??;
    if !gzip {
        return Ok(Taken {
            bytes,
            _place: place,
        });
    }
    // A small body may become a large one.
    let place = match place {
        None if bytes.len() > limits::SMALL_BODY_BYTES_MAX / GZIP_RATIO_USUAL => {
            Some(a_place().await?)
        }
        place => place,
    };
    let bytes = if place.is_some() {
        tokio::task::spawn_blocking(move || gunzip(&bytes, limits::DECOMPRESSED_BYTES_MAX))
            .await
            .map_err(|error| {
                Failure::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format!("cannot unpack: {error}"),
                )
            })??
    } else {
        // At gzip's best ratio of about 1,000 to 1 this is a few MiB at most.
        gunzip(&bytes, limits::DECOMPRESSED_BYTES_MAX)?
    };
    Ok(Taken {
        bytes,
        _place: place,
    })
}

async fn read(mut body: Body) -> Result<(Bytes, Option<SemaphorePermit<'static>>), Failure> {
    let mut buffer = BytesMut::new();
    let mut place = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Failure::new(
                StatusCode::BAD_REQUEST,
                format!("the body broke off: {error}"),
            )
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if buffer.len() + data.len() > limits::BODY_BYTES_MAX {
            return Err(too_large());
        }
        if place.is_none() && buffer.len() + data.len() > limits::SMALL_BODY_BYTES_MAX {
            place = Some(a_place().await?);
        }
        buffer.extend_from_slice(&data);
    }
    Ok((buffer.freeze(), place))
}

async fn a_place() -> Result<SemaphorePermit<'static>, Failure> {
    let message = "the server is stopping";
    PLACES
        .acquire()
        .await
        .map_err(|_| Failure::new(StatusCode::SERVICE_UNAVAILABLE, message))
}

fn gunzip(packed: &[u8], bytes_max: usize) -> Result<Bytes, Failure> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    MultiGzDecoder::new(packed)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| {
            let message = format!("the body is not the gzip that its header says: {error}");
            Failure::new(StatusCode::BAD_REQUEST, message)
        })?;
    if bytes.len() > bytes_max {
        let message = format!("the body unpacks to more than {bytes_max} bytes");
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    Ok(Bytes::from(bytes))
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, Failure> {
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else {
        return Ok(false);
    };
    match encoding.to_str().map(str::trim).unwrap_or_default() {
        text if text.eq_ignore_ascii_case("gzip") => Ok(true),
        text if text.is_empty() || text.eq_ignore_ascii_case("identity") => Ok(false),
        _ => {
            let message = "this Content-Encoding is not known: send gzip or none";
            Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
        }
    }
}

fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

fn too_large() -> Failure {
    let message = format!("the body has more than {} bytes", limits::BODY_BYTES_MAX);
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// What heartbeats and manifests pack to, about.
const GZIP_RATIO_USUAL: usize = 8;

static PLACES: Semaphore = Semaphore::const_new(limits::LARGE_BODIES_MAX);

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_bomb_stops_at_the_bound() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&vec![b' '; 1 << 20]).unwrap();
        let packed = encoder.finish().unwrap();
        assert_eq!(gunzip(&packed, 1 << 20).unwrap().len(), 1 << 20);
        let failure = gunzip(&packed, (1 << 20) - 1).unwrap_err();
        assert_eq!(failure.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(
            gunzip(b"no gzip", 10).unwrap_err().status,
            StatusCode::BAD_REQUEST
        );
        assert_eq!(
            gunzip(&packed[..50], 1 << 20).unwrap_err().status,
            StatusCode::BAD_REQUEST
        );
    }
}
