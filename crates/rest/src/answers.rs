//! Answers in bounds: what the answers of reads hold together in memory, in the whole process.
//!
//! A read takes little without asking. What it takes beyond, it has room for first, and keeps until
//! the last byte has gone to its socket, so that a crowd of readers, or of slow ones, gets smaller
//! answers instead of filling memory. Nobody waits for room while holding none.

use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{ANSWER_GROWTH, ANSWER_ROOM_WAIT, ANSWERS_BYTES_MAX};

/// Room for answers.
pub(crate) struct Answers {
    /// Permits of one KiB.
    room: Arc<Semaphore>,
    bytes: usize,
}

/// An answer's part of the room; it is free again when this goes.
pub(crate) struct Share(OwnedSemaphorePermit);

impl Answers {
    fn of(bytes: usize) -> Self {
        let room = Arc::new(Semaphore::new(kib(bytes) as usize));
        Answers { room, bytes }
    }

    /// That of this process, whatever number of ports it has.
    pub fn of_process() -> &'static Answers {
        static OF_PROCESS: LazyLock<Answers> = LazyLock::new(|| Answers::of(ANSWERS_BYTES_MAX));
        &OF_PROCESS
    }

    /// Room for so many bytes of records with the answer that is made of them; none when there is
    /// none in time.
    pub async fn for_records(&self, bytes: usize) -> Option<Share> {
        let wanted = self.with_answer(bytes);
        let waiting = Arc::clone(&self.room).acquire_many_owned(kib(wanted));
        match tokio::time::timeout(ANSWER_ROOM_WAIT, waiting).await {
            Ok(Ok(permit)) => Some(Share(permit)),
            _ => None,
        }
    }

    /// As [`Answers::for_records`], without waiting.
    pub fn for_records_now(&self, bytes: usize) -> Option<Share> {
        self.for_answer(self.with_answer(bytes))
    }

    /// What records of so many bytes and their answer take.
    fn with_answer(&self, bytes: usize) -> usize {
        bytes.saturating_mul(ANSWER_GROWTH).min(self.bytes)
    }

    /// Room for an answer of so many bytes, if there is some now.
    pub fn for_answer(&self, bytes: usize) -> Option<Share> {
        let wanted = kib(bytes.min(self.bytes));
        let permit = Arc::clone(&self.room).try_acquire_many_owned(wanted);
        permit.ok().map(Share)
    }
}

impl Share {
    /// Gives back what an answer of so many bytes does not need.
    pub fn shrink(&mut self, bytes: usize) {
        let spare = self.0.num_permits().saturating_sub(kib(bytes) as usize);
        drop(self.0.split(spare));
    }
}

/// The same answer, which keeps its share until its bytes have gone.
pub(crate) fn kept(answer: Response, share: Option<Share>) -> Response {
    match share {
        None => answer,
        Some(share) => answer.map(|body| {
            let share = Arc::new(share);
            Body::new(Kept { body, share })
        }),
    }
}

struct Kept {
    body: Body,
    share: Arc<Share>,
}

/// Bytes that wait for their socket, long after their body has ended.
struct Waiting {
    bytes: Bytes,
    _share: Arc<Share>,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl http_body::Body for Kept {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Kept { body, share } = self.get_mut();
        let kept = |bytes| {
            let _share = Arc::clone(share);
            Bytes::from_owner(Waiting { bytes, _share })
        };
        match Pin::new(body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(frame.map_data(kept)))),
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn room_is_taken_until_the_bytes_have_gone() {
        let answers = Answers::of(64 << 10);
        let mut share = answers.for_records(30 << 10).await.unwrap();
        assert!(answers.for_records(1 << 10).await.is_none());
        share.shrink(40 << 10);
        let answer = kept(vec![b'x'; 40 << 10].into_response(), Some(share));
        assert!(answers.for_answer(25 << 10).is_none());
        drop(answers.for_answer(24 << 10).unwrap());
        let body = answer.into_body();
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(40 << 10));
        let bytes = body.collect().await.unwrap().to_bytes();
        assert!(answers.for_answer(25 << 10).is_none());
        drop(bytes);
        assert!(answers.for_answer(64 << 10).is_some());
    }
}
