//! Bodies in bounds: one request's, and those of all requests together.
//!
//! A body's length is charged before it is read, so a crowd of senders waits on its sockets
//! instead of filling memory. The charge is held until the records are stored. Records take more than
//! the bytes that they came as: what many of them take is charged beside ([`Gate::for_records`]). A
//! stream of records is charged as it grows ([`Growing`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answer;
use crate::error::RestError;
use crate::limits;

/// Lets bodies in, as many bytes at a time as the process may hold.
#[derive(Clone)]
pub(crate) struct Gate {
    /// Permits of one KiB.
    room: Arc<Semaphore>,
    /// The same for what records take beside their bodies: who holds a body and waits here waits for
    /// those who have both.
    records: Arc<Semaphore>,
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
            records: Arc::new(Semaphore::new(kib(limits::RECORDS_BYTES_MAX) as usize)),
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

    /// Reads a JSON body, an object, of which nothing is held beyond what it is read as.
    pub async fn entity<B, T>(&self, headers: &HeaderMap, body: B) -> Result<T, RestError>
    where
        B: HttpBody<Data = Bytes, Error: fmt::Display> + Unpin,
        T: DeserializeOwned,
    {
        answer::entity(&self.read(headers, body).await?.bytes)
    }

    async fn share(&self, bytes: u64) -> Result<OwnedSemaphorePermit, RestError> {
        let waiting = self.room.clone().acquire_many_owned(kib(bytes));
        match tokio::time::timeout(self.read_max, waiting).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(RestError::BodyTimeout),
        }
    }

    /// Reads a body's records, with room for what they take until they are stored. `read` answers
    /// them, `count` how many they are; where there is no room they are let go of until there is, and
    /// read again.
    ///
    /// # Errors
    /// What `read` answers; 429 when there is no room in time.
    pub async fn for_records<T>(
        &self,
        read: impl Fn() -> Result<T, RestError>,
        count: impl Fn(&T) -> usize,
    ) -> Result<(T, Option<Room>), RestError> {
        let records = read()?;
        let count = count(&records);
        if count <= limits::RECORDS_FREE {
            return Ok((records, None));
        }
        let wanted = kib((count as u64).saturating_mul(limits::RECORD_HELD_BYTES));
        if let Ok(permit) = self.records.clone().try_acquire_many_owned(wanted) {
            return Ok((records, Some(Room(permit))));
        }
        drop(records);
        let waiting = self.records.clone().acquire_many_owned(wanted);
        match tokio::time::timeout(limits::RECORDS_ROOM_WAIT, waiting).await {
            Ok(Ok(permit)) => Ok((read()?, Some(Room(permit)))),
            _ => Err(RestError::NoRoom),
        }
    }

    /// Room for what grows, of which so many bytes are free.
    pub fn growing(&self, free: usize) -> Growing {
        Growing {
            room: self.room.clone(),
            held: None,
            free,
        }
    }

    /// Bytes of bodies that may still come.
    #[cfg(test)]
    pub fn left(&self) -> usize {
        self.room.available_permits() << 10
    }

    /// Takes all room for bodies.
    #[cfg(test)]
    pub fn fill(&self) -> Option<Room> {
        let all = u32::try_from(self.room.available_permits()).ok()?;
        let permit = self.room.clone().try_acquire_many_owned(all);
        permit.ok().map(Room)
    }
}

/// A part of the room; it is free again when this goes.
pub(crate) struct Room(#[expect(dead_code, reason = "held, not looked at")] OwnedSemaphorePermit);

/// Room for what grows and shrinks; it is free again when this goes.
pub(crate) struct Growing {
    room: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    free: usize,
}

impl Growing {
    /// Whether there is room for so many bytes in all; takes it.
    pub fn try_hold(&mut self, bytes: usize) -> bool {
        let missing = self.missing(bytes);
        if missing == 0 {
            return true;
        }
        let more = self.room.clone().try_acquire_many_owned(missing);
        more.map(|more| self.take(more)).is_ok()
    }

    /// As [`Growing::try_hold`], but waits a moment for others to give room back.
    pub async fn hold(&mut self, bytes: usize) -> bool {
        let missing = self.missing(bytes);
        if missing == 0 {
            return true;
        }
        let waiting = self.room.clone().acquire_many_owned(missing);
        match tokio::time::timeout(limits::STREAM_ROOM_WAIT, waiting).await {
            Ok(Ok(more)) => {
                self.take(more);
                true
            }
            _ => false,
        }
    }

    /// Gives back what so many bytes do not need.
    pub fn shrink(&mut self, bytes: usize) {
        let needed = self.needed(bytes);
        if let Some(held) = &mut self.held {
            drop(held.split(held.num_permits().saturating_sub(needed)));
        }
    }

    /// Whether more is held than is free.
    pub fn exceeds(&self, bytes: usize) -> bool {
        bytes > self.free
    }

    fn take(&mut self, more: OwnedSemaphorePermit) {
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
    }

    /// Permits for so many bytes, in steps, so that few bytes more do not ask again.
    fn needed(&self, bytes: usize) -> usize {
        bytes.saturating_sub(self.free).div_ceil(GROWN_BY) * (GROWN_BY >> 10)
    }

    fn missing(&self, bytes: usize) -> u32 {
        let held = self.held.as_ref().map_or(0, |held| held.num_permits());
        u32::try_from(self.needed(bytes).saturating_sub(held)).unwrap_or(u32::MAX)
    }
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX)
}

/// Bytes by which growing room grows.
const GROWN_BY: usize = 64 << 10;

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

    #[tokio::test(start_paused = true)]
    async fn many_records_are_charged_until_they_are_stored() {
        let gate = Gate::new(1_000);
        let left = || gate.records.available_permits() << 10;
        let all = left();
        let few = gate.for_records(|| Ok(limits::RECORDS_FREE), |count| *count);
        assert!(few.await.unwrap().1.is_none());
        let reads = std::cell::Cell::new(0);
        let read = || {
            reads.set(reads.get() + 1);
            Ok(limits::RECORDS_MAX)
        };
        let first = gate.for_records(read, |count| *count).await.unwrap();
        assert!(all - left() >= limits::RECORDS_MAX * 200, "{}", left());
        assert_eq!(reads.get(), 1);
        // Who waits holds no records; they are read again when there is room.
        let waiting = gate.for_records(read, |count| *count);
        let freeing = async {
            tokio::time::sleep(limits::RECORDS_ROOM_WAIT / 2).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(waiting, freeing);
        assert!(second.is_ok());
        assert_eq!(reads.get(), 3);
        let refused = gate.for_records(read, |count| *count).await;
        assert_eq!(refused.err().unwrap().code(), 429);
        drop(second);
        assert_eq!(left(), all);
    }

    #[tokio::test(start_paused = true)]
    async fn what_grows_has_room_beyond_what_is_free() {
        let gate = Gate::new(1_000);
        let all = gate.left();
        let mut growing = gate.growing(1_000);
        assert!(growing.try_hold(1_000));
        assert_eq!(gate.left(), all);
        assert!(growing.try_hold(1_000_000));
        assert!(all - gate.left() >= 999_000);
        growing.shrink(200_000);
        let left = gate.left();
        assert!((199_000..300_000).contains(&(all - left)), "{left}");
        let others = gate.fill();
        assert!(!growing.try_hold(400_000) && !growing.hold(400_000).await);
        drop(others);
        assert!(growing.hold(400_000).await);
        drop(growing);
        assert_eq!(gate.left(), all);
    }
}
