//! What one client of an HTTP listener may take of it: time, bytes, and a place among the others.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Sleep;

use super::limits::{
    HTTP_ANSWER_WAIT, HTTP_BODY_BYTES_MAX, HTTP_BODY_BYTES_PER_SECOND_MIN, HTTP_BODY_WAIT,
    HTTP_CONNECTIONS_MAX, HTTP_HEADER_WAIT,
};

/// The bounds of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpBounds {
    pub(crate) connections_max: usize,
    pub(crate) header_wait: Duration,
    pub(crate) body_wait: Duration,
    pub(crate) body_bytes_per_second_min: u64,
    pub(crate) body_bytes_max: u64,
    pub(crate) answer_wait: Duration,
}

impl Default for HttpBounds {
    fn default() -> Self {
        HttpBounds {
            connections_max: HTTP_CONNECTIONS_MAX,
            header_wait: HTTP_HEADER_WAIT,
            body_wait: HTTP_BODY_WAIT,
            body_bytes_per_second_min: HTTP_BODY_BYTES_PER_SECOND_MIN,
            body_bytes_max: HTTP_BODY_BYTES_MAX,
            answer_wait: HTTP_ANSWER_WAIT,
        }
    }
}

/// Why a request is not taken: a status for its sender, and words.
#[derive(Debug)]
pub(crate) struct Unread {
    pub(crate) status: u16,
    pub(crate) reason: String,
}

impl Unread {
    /// It may be sent again.
    pub(crate) fn later(reason: &str) -> Unread {
        Unread {
            status: 503,
            reason: reason.to_owned(),
        }
    }
}

/// A request's body, read within the bounds. Time that its reader takes does not count.
pub(crate) struct BoundedBody {
    body: Incoming,
    bounds: HttpBounds,
    bytes: u64,
    waited: Duration,
}

impl BoundedBody {
    pub(crate) fn new(body: Incoming, bounds: HttpBounds) -> Self {
        BoundedBody {
            body,
            bounds,
            bytes: 0,
            waited: Duration::ZERO,
        }
    }

    /// The next piece, never an empty one; none at the end. Trailers are left out.
    pub(crate) async fn piece(&mut self) -> Option<Result<Bytes, Unread>> {
        let began = Instant::now();
        let next = tokio::time::timeout(self.patience(), next(&mut self.body)).await;
        self.waited += began.elapsed();
        let refused = |status, reason: String| Some(Err(Unread { status, reason }));
        let bytes = match next {
            Err(_) => return refused(408, "the body does not go on\n".to_owned()),
            Ok(None) => return None,
            Ok(Some(Err(error))) => return refused(400, base::report(&error)),
            Ok(Some(Ok(bytes))) => bytes,
        };
        self.bytes += bytes.len() as u64;
        if self.bytes > self.bounds.body_bytes_max {
            let most = self.bounds.body_bytes_max;
            return refused(413, format!("more than {most} bytes\n"));
        }
        Some(Ok(bytes))
    }

    /// How long the next piece may take.
    fn patience(&self) -> Duration {
        let wait = self.bounds.body_wait;
        let earned = self.bytes / self.bounds.body_bytes_per_second_min.max(1);
        let left = (wait + Duration::from_secs(earned)).saturating_sub(self.waited);
        left.min(wait)
    }
}

async fn next(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
        match frame.await?.map(|frame| frame.into_data()) {
            Ok(Ok(bytes)) if !bytes.is_empty() => return Some(Ok(bytes)),
            Ok(_) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

/// Connections that wait for a request, the longest first: these may go for others.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    next: u64,
    places: BTreeMap<u64, Arc<Notify>>,
}

/// One connection's place.
#[derive(Debug)]
pub(crate) struct Place {
    queue: Arc<Queue>,
    leave: Arc<Notify>,
    at: Mutex<u64>,
    has_begun: AtomicBool,
}

impl Queue {
    /// Tells the connection that has waited longest to leave, if one waits.
    pub(crate) fn displace(&self) {
        if let Some((_, leave)) = self.waiting.lock().places.pop_first() {
            leave.notify_one();
        }
    }

    fn join(&self, leave: &Arc<Notify>) -> u64 {
        let mut line = self.waiting.lock();
        line.next += 1;
        let at = line.next;
        line.places.insert(at, Arc::clone(leave));
        at
    }

    fn quit(&self, at: u64) {
        self.waiting.lock().places.remove(&at);
    }
}

impl Place {
    /// A new connection waits for its first request.
    pub(crate) fn new(queue: &Arc<Queue>) -> Place {
        let leave = Arc::<Notify>::default();
        let at = Mutex::new(queue.join(&leave));
        Place {
            queue: Arc::clone(queue),
            leave,
            at,
            has_begun: AtomicBool::new(false),
        }
    }

    /// A request has come: the connection stays.
    pub(crate) fn begins(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
        self.queue.quit(*self.at.lock());
    }

    /// The request has its answer, and the next one is waited for.
    pub(crate) fn waits_again(&self) {
        *self.at.lock() = self.queue.join(&self.leave);
    }

    /// Waits until somebody else needs the place.
    pub(crate) async fn is_needed(&self) {
        self.leave.notified().await;
    }

    /// Whether there was a request, whose answer may be on its way.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.quit(*self.at.lock());
    }
}

/// A stream whose writing fails when the other end takes nothing for too long.
pub(crate) struct Patient<S> {
    stream: S,
    wait: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, wait: Duration) -> Self {
        Patient {
            stream,
            wait,
            deadline: None,
        }
    }

    /// What a write came to, or that it has waited for too long.
    fn bound<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let wait = self.wait;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bound(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.bound(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bound(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_breaks_off_and_one_that_is_taken_slowly_does_not() {
        let wait = Duration::from_secs(30);
        let (near, mut far) = tokio::io::duplex(8);
        let reading = tokio::spawn(async move {
            let mut byte = [0];
            while far.read_exact(&mut byte).await.is_ok() {
                tokio::time::sleep(wait * 9 / 10).await;
            }
        });
        let mut slow = Patient::new(near, wait);
        slow.write_all(&[7; 40]).await.unwrap();
        drop(slow);
        reading.await.unwrap();
        let (near, _far) = tokio::io::duplex(8);
        let left = Patient::new(near, wait).write_all(&[7; 40]).await;
        assert_eq!(left.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
