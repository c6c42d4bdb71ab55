//! Request bodies, read within bounds; whoever serves the port has unpacked them.
//!
//! Small bodies, which are nearly all, are read freely; a large one needs one of a few places, so
//! that a crowd of manifests, or of liars, takes a fixed amount of memory.

use axum::BoxError;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::FleetError;
use crate::http::Failure;
use crate::limits;

/// A body with the place that it holds, if it is large.
pub struct Taken {
    /// The bytes.
    pub bytes: Bytes,
    _place: Option<SemaphorePermit<'static>>,
}

impl Taken {
    /// What the body says, in JSON.
    ///
    /// # Errors
    /// [`FleetError::BadField`], which names the place; the caller's fault.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, FleetError> {
        serde_json::from_slice(&self.bytes).map_err(FleetError::of_body)
    }
}

/// Reads the request's body.
pub async fn take(request: Request) -> Result<Taken, Failure> {
    let (parts, body) = request.into_parts();
    take_of(&parts.headers, body).await
}

/// Reads the body of a request that had these headers.
pub async fn take_of<B>(headers: &HeaderMap, body: B) -> Result<Taken, Failure>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    if declared_length(headers).is_some_and(|length| length > limits::BODY_BYTES_MAX) {
        return Err(too_large());
    }
    let read = tokio::time::timeout(limits::BODY_WAIT, read(body)).await;
    let (bytes, place) = read.map_err(|_| {
        let message = format!("the body did not come within {:?}", limits::BODY_WAIT);
        Failure::new(StatusCode::REQUEST_TIMEOUT, message)
    })??;
    Ok(Taken {
        bytes,
        _place: place,
    })
}

async fn read<B>(mut body: B) -> Result<(Bytes, Option<SemaphorePermit<'static>>), Failure>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    let mut buffer = BytesMut::new();
    let mut place = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let error: BoxError = error.into();
            Failure::new(
                StatusCode::BAD_REQUEST,
                format!("the body broke off: {}", base::report(&*error)),
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
        if buffer.is_empty() && body.is_end_stream() {
            // All of it in one piece, as nearly every heartbeat comes.
            return Ok((data, place));
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

static PLACES: Semaphore = Semaphore::const_new(limits::LARGE_BODIES_MAX);
