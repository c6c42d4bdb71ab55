//! What goes on on one HTTP/2 connection, where a peer that does not read an answer does not show at
//! the socket: answers that nobody reads, and connections without requests.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::limits::{WRITE_STALL_MAX, WRITTEN_BYTES_MIN};

/// The requests and answers of one connection.
#[derive(Default)]
pub(super) struct Watch {
    /// Held by each request until its answer is out.
    open: Mutex<Vec<Weak<Progress>>>,
    /// Requests since the connection began.
    begun: AtomicU64,
}

/// How far one answer is.
pub(super) struct Progress(Mutex<Turn>);

/// Whose turn it is to do something.
#[derive(Clone, Copy)]
enum Turn {
    /// Ours: the handler works, or its answer has no more bytes yet.
    Server,
    /// The peer's, since then: it has bytes to read.
    Peer(Instant),
}

/// What a look at a connection finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Requests are under way, or some came since the last look.
    Busy,
    /// Nothing has happened since the last look.
    Idle,
    /// An answer is not read.
    Stalled,
}

impl Watch {
    /// Notes a request.
    pub fn begin(&self) -> Arc<Progress> {
        let progress = Arc::new(Progress(Mutex::new(Turn::Server)));
        self.begun.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock();
        if open.len() == open.capacity() {
            open.retain(|progress| progress.strong_count() > 0);
        }
        open.push(Arc::downgrade(&progress));
        progress
    }

    /// Looks at what is open; `seen` is how many requests the last look knew of.
    pub fn look(&self, now: Instant, seen: &mut u64) -> Found {
        let begun = self.begun.load(Ordering::Relaxed);
        let has_news = std::mem::replace(seen, begun) != begun;
        let mut open = self.open.lock();
        open.retain(|progress| progress.strong_count() > 0);
        let mut all = open.iter().filter_map(Weak::upgrade);
        let is_stalled = |progress: Arc<Progress>| match *progress.0.lock() {
            Turn::Server => false,
            Turn::Peer(since) => now.duration_since(since) > WRITE_STALL_MAX,
        };
        if all.any(is_stalled) {
            Found::Stalled
        } else if open.is_empty() && !has_news {
            Found::Idle
        } else {
            Found::Busy
        }
    }
}

/// An answer's body that tells how far it is read. It goes out in small pieces, as a piece counts as
/// read when the next one is asked for.
pub(super) struct Watched {
    body: Body,
    /// What of the last piece is still to go.
    rest: Bytes,
    progress: Arc<Progress>,
}

impl Watched {
    pub fn new(body: Body, progress: Arc<Progress>) -> Self {
        *progress.0.lock() = Turn::Peer(Instant::now());
        Watched {
            body,
            rest: Bytes::new(),
            progress,
        }
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return other,
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(WRITTEN_BYTES_MIN));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let piece = self.poll_piece(cx);
        *self.progress.0.lock() = match piece {
            Poll::Ready(_) => Turn::Peer(Instant::now()),
            Poll::Pending => Turn::Server,
        };
        piece
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.rest.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper().and_then(|upper| upper.checked_add(held)) {
            hint.set_upper(upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_stalls_and_one_that_waits_for_us_does_not() {
        let (watch, mut seen) = (Watch::default(), 0);
        assert_eq!(watch.look(Instant::now(), &mut seen), Found::Idle);
        let working = watch.begin();
        let whole = vec![7; 3 * WRITTEN_BYTES_MIN + 1];
        let mut body = Watched::new(Body::from(whole.clone()), watch.begin());
        let later = || Instant::now() + WRITE_STALL_MAX + Duration::from_secs(1);
        assert_eq!(watch.look(Instant::now(), &mut seen), Found::Busy);
        assert_eq!(watch.look(later(), &mut seen), Found::Stalled);
        let mut read = Vec::new();
        for _ in 0..4 {
            tokio::time::advance(WRITE_STALL_MAX / 2).await;
            assert_eq!(watch.look(Instant::now(), &mut seen), Found::Busy);
            assert_eq!(
                body.size_hint().exact(),
                Some((whole.len() - read.len()) as u64)
            );
            let frame = body.frame().await.unwrap().unwrap();
            read.extend_from_slice(frame.data_ref().unwrap());
        }
        assert!(body.is_end_stream() && body.frame().await.is_none());
        assert_eq!(read, whole);
        assert_eq!(watch.look(later(), &mut seen), Found::Stalled);
        drop(body);
        // The handler of the other one may take as long as it likes.
        assert_eq!(watch.look(later(), &mut seen), Found::Busy);
        drop(working);
        assert_eq!(watch.look(later(), &mut seen), Found::Idle);
        drop(watch.begin());
        assert_eq!(watch.look(later(), &mut seen), Found::Busy);
        assert_eq!(watch.look(later(), &mut seen), Found::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_more_bytes_yet_waits_for_us() {
        let (watch, mut seen) = (Watch::default(), 0);
        let (_open, read) = tokio::io::duplex(10);
        let stream = tokio_util::io::ReaderStream::new(read);
        let mut body = Watched::new(Body::from_stream(stream), watch.begin());
        let waiting = tokio::time::timeout(Duration::from_secs(1), body.frame());
        assert!(waiting.await.is_err());
        let later = Instant::now() + 2 * WRITE_STALL_MAX;
        assert_eq!(watch.look(later, &mut seen), Found::Busy);
    }
}
