//! HTTP clients as processors set them up, and bodies of any size that go out piece by piece.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::sync::mpsc;

use super::pace::Pace;
use super::tls;
use crate::services::ProxyConfiguration;

/// What a client is set up with.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientSettings {
    pub(crate) connect_wait: Duration,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) proxy: Option<Arc<ProxyConfiguration>>,
    pub(crate) follows_redirects: bool,
}

/// When something last went over a body; what tells a slow transfer from a dead one.
#[derive(Clone, Debug)]
pub(crate) struct Progress(Arc<Mutex<Instant>>);

/// A body of which one piece after the other comes over a channel.
#[derive(Debug)]
pub(crate) struct PieceBody {
    first: Option<Bytes>,
    pieces: Option<mpsc::Receiver<io::Result<Bytes>>>,
    /// Bytes still to come, where that is known.
    left: Option<u64>,
    progress: Progress,
}

/// A client with these settings.
pub(crate) fn client(settings: &ClientSettings) -> Result<reqwest::Client, String> {
    // Whoever did it before did the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = match &settings.tls {
        Some(tls) => Some(Arc::clone(tls)),
        // A machine that believes nobody can still call a peer without TLS.
        None => tls::client(None, true).ok(),
    };
    let mut builder = reqwest::Client::builder()
        .connect_timeout(settings.connect_wait)
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(1)
        .user_agent(concat!("thalweg-agent/", env!("CARGO_PKG_VERSION")));
    builder = match tls {
        Some(tls) => builder.tls_backend_preconfigured(ClientConfig::clone(&tls)),
        None => builder.tls_certs_only([]),
    };
    if !settings.follows_redirects {
        builder = builder.redirect(reqwest::redirect::Policy::none());
    }
    let proxy = settings.proxy.as_deref().map(proxy).transpose()?;
    builder = match proxy.flatten() {
        Some(proxy) => builder.proxy(proxy),
        None => builder.no_proxy(),
    };
    builder.build().map_err(|error| base::report(&error))
}

/// A body of what `reader` has, read on a thread of its own while it is sent; with a length it
/// goes out under `Content-Length`, without one in chunks.
pub(crate) fn body(
    runtime: &tokio::runtime::Handle,
    reader: impl Read + Send + 'static,
    len: Option<u64>,
    bytes_per_second: Option<u64>,
    progress: &Progress,
) -> reqwest::Body {
    let mut body = PieceBody::reading(runtime, reader, len, bytes_per_second);
    body.progress = progress.clone();
    reqwest::Body::wrap(body)
}

impl PieceBody {
    /// A body that is there already.
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        PieceBody {
            left: Some(bytes.len() as u64),
            first: Some(bytes).filter(|bytes| !bytes.is_empty()),
            pieces: None,
            progress: Progress::new(),
        }
    }

    /// A body whose pieces come over a channel; an error breaks it off.
    pub(crate) fn channel(pieces: mpsc::Receiver<io::Result<Bytes>>, len: Option<u64>) -> Self {
        PieceBody {
            first: None,
            pieces: Some(pieces),
            left: len,
            progress: Progress::new(),
        }
    }

    /// A body of what `reader` has, read on a thread of its own.
    pub(crate) fn reading(
        runtime: &tokio::runtime::Handle,
        mut reader: impl Read + Send + 'static,
        len: Option<u64>,
        bytes_per_second: Option<u64>,
    ) -> Self {
        let (tell, pieces) = mpsc::channel(PIECES_AHEAD);
        let mut left = len;
        runtime.spawn_blocking(move || {
            let mut pace = Pace::new(Instant::now(), bytes_per_second);
            loop {
                let want = left.map_or(PIECE_BYTES as u64, |left| left.min(PIECE_BYTES as u64));
                let mut piece = vec![0; want as usize];
                let read = match reader.read(&mut piece) {
                    Ok(0) => return,
                    Ok(read) => read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => {
                        // Nobody listens any more when this fails.
                        let _ = tell.blocking_send(Err(error));
                        return;
                    }
                };
                piece.truncate(read);
                left = left.map(|left| left - read as u64);
                if tell.blocking_send(Ok(Bytes::from(piece))).is_err() {
                    return;
                }
                let rest = pace.rest(Instant::now(), read);
                if !rest.is_zero() {
                    std::thread::sleep(rest);
                }
            }
        });
        PieceBody::channel(pieces, len)
    }
}

impl http_body::Body for PieceBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let body = &mut *self;
        body.progress.moves();
        let piece = match (body.first.take(), &mut body.pieces) {
            (Some(first), _) => Some(Ok(first)),
            (None, None) => None,
            (None, Some(pieces)) => match pieces.poll_recv(cx) {
                Poll::Ready(piece) => piece,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(match piece {
            None if body.left.is_some_and(|left| left > 0) => {
                body.left = Some(0);
                Some(Err(io::ErrorKind::UnexpectedEof.into()))
            }
            None => None,
            Some(Ok(bytes)) => {
                body.left = body
                    .left
                    .map(|left| left.saturating_sub(bytes.len() as u64));
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(error)) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0) || (self.first.is_none() && self.pieces.is_none())
    }

    fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Progress {
    /// Something went over it now.
    pub(crate) fn new() -> Self {
        Progress(Arc::new(Mutex::new(Instant::now())))
    }

    /// Waits until nothing has gone over it for `wait`.
    pub(crate) async fn stands_still(&self, wait: Duration) {
        loop {
            let deadline = *self.0.lock() + wait;
            if Instant::now() >= deadline {
                return;
            }
            tokio::time::sleep_until(deadline.into()).await;
        }
    }

    fn moves(&self) {
        *self.0.lock() = Instant::now();
    }
}

/// Writes a body of [`PieceBody::channel`] from outside of the runtime.
pub(crate) struct PieceWriter {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl PieceWriter {
    pub(crate) fn new(pieces: mpsc::Sender<io::Result<Bytes>>) -> Self {
        PieceWriter {
            pieces,
            buffer: Vec::new(),
        }
    }

    /// Breaks the body off; whether that was heard.
    pub(crate) fn break_off(&mut self) -> bool {
        let broken = Err(io::ErrorKind::BrokenPipe.into());
        self.pieces.try_send(broken).is_ok()
    }
}

impl io::Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.buffer));
        let sent = self.pieces.blocking_send(Ok(piece));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

fn proxy(settings: &ProxyConfiguration) -> Result<Option<reqwest::Proxy>, String> {
    let Some(url) = settings.url() else {
        return Ok(None);
    };
    let proxy =
        reqwest::Proxy::all(&url).map_err(|error| format!("'{url}' is no proxy: {error}"))?;
    Ok(Some(match &settings.user {
        Some((user, password)) => proxy.basic_auth(user, password),
        None => proxy,
    }))
}

/// Bytes of one piece of a body on its way.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Pieces read ahead of the socket.
const PIECES_AHEAD: usize = 4;

/// How long a connection that nothing goes over is kept.
const POOL_IDLE: Duration = Duration::from_secs(60);
