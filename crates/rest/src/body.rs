//! Bodies in bounds: one request's, and those of all requests together.
//!
//! A body's length is charged before it is read, so a crowd of senders waits on its sockets
//! instead of filling memory. The charge is held until the records are stored.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::RestError;
use crate::limits;

/// Lets bodies in, as many bytes at a time as the process may hold.
#[derive(Clone)]
pub(crate) struct Gate {
    /// Permits of one KiB.
    room: Arc<Semaphore>,
    body_bytes_max: u64,
    /// How long a body may take.
    read_max: Duration,
}

/// A body that is in memory, and its share of the gate's room.
pub(crate) struct HeldBody {
    pub bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

impl Gate {
    pub fn new(body_bytes_max: u64) -> Self {
        let all = limits::BODIES_BYTES_MAX.max(body_bytes_max);
        Gate {
            room: Arc::new(Semaphore::new(kib(all) as usize)),
            body_bytes_max,
            read_max: limits::BODY_READ_MAX,
        }
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// 413 as soon as the body is known to be too large, 408 when it comes too slowly, 400 when
    /// the connection breaks.
    pub async fn read<B>(&self, headers: &HeaderMap, body: B) -> Result<HeldBody, RestError>
    where
        B: HttpBody<Data = Bytes, Error: fmt::Display> + Unpin,
    {
        let too_large = || RestError::BodyTooLarge(self.body_bytes_max);
        let length = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.body_bytes_max) {
            return Err(too_large());
        }
        let mut share = match length {
            Some(length) if length > limits::BODY_BYTES_FREE => Some(self.share(length).await?),
            _ => None,
        };
        let reading = async {
            let mut body = body;
            let mut first: Option<Bytes> = None;
            let mut rest = BytesMut::new();
            let mut seen = 0_u64;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| {
                    RestError::BadRequest(format!("the body broke off: {error}"))
                })?;
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                seen += data.len() as u64;
                if seen > self.body_bytes_max {
                    return Err(too_large());
                }
                if seen > limits::BODY_BYTES_FREE && share.is_none() {
                    share = Some(self.share(self.body_bytes_max).await?);
                }
                // Most bodies come in one piece, which is then used where it lies.
                match first.take() {
                    None if rest.is_empty() => first = Some(data),
                    None => rest.extend_from_slice(&data),
                    Some(piece) => {
                        let expected = length.unwrap_or(seen).min(self.body_bytes_max);
                        rest.reserve(usize::try_from(expected).unwrap_or(0));
                        rest.extend_from_slice(&piece);
                        rest.extend_from_slice(&data);
                    }
                }
            }
            Ok(first.unwrap_or_else(|| rest.freeze()))
        };
        let bytes = tokio::time::timeout(self.read_max, reading)
            .await
            .map_err(|_| RestError::BodyTimeout)??;
        Ok(HeldBody {
            bytes,
            _share: share,
        })
    }

    async fn share(&self, bytes: u64) -> Result<OwnedSemaphorePermit, RestError> {
        let waiting = self.room.clone().acquire_many_owned(kib(bytes));
        match tokio::time::timeout(self.read_max, waiting).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(RestError::BodyTimeout),
        }
    }
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[tokio::test]
    async fn a_body_that_does_not_come_is_408() {
        let gate = Gate {
            read_max: Duration::from_millis(20),
            ..Gate::new(1_000)
        };
        let (_sender, silent) = tokio::io::duplex(1);
        let body = Body::from_stream(tokio_util::io::ReaderStream::new(silent));
        let read = gate.read(&HeaderMap::new(), body).await;
        assert_eq!(read.err().unwrap().code(), 408);
    }
}
