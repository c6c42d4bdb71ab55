//! An HTTP/1.1 listener: bounded connections, TLS by files, requests handed to one function.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::http_bounds::{BoundedBody, HttpBounds, Patient, Place, Queue};
use super::http_client::PieceBody;
use super::tls;
use crate::net::limits::HTTP_HEADER_BYTES_MAX;

/// A running listener; dropping it breaks off every connection.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The subject of its certificate, where it showed one.
    pub(crate) subject: Option<String>,
}

/// Answers one request.
pub(crate) trait Handler: Send + Sync + 'static {
    /// The answer; the request's body may be read as far as need be.
    fn answer(&self, request: Request<Incoming>, peer: Peer) -> Answering<'_>;
}

/// An answer on its way. Behind a pointer, as streams are, so that the program has one server and not one
/// for each handler, in the clear and in TLS.
pub(crate) type Answering<'h> = Pin<Box<dyn Future<Output = Response<PieceBody>> + Send + 'h>>;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Server {
    /// Listens on `port` of all addresses; port 0 picks a free one.
    pub(crate) fn start(
        runtime: &tokio::runtime::Handle,
        port: u16,
        tls: Option<Arc<ServerConfig>>,
        bounds: HttpBounds,
        handler: Arc<dyn Handler>,
    ) -> io::Result<Server> {
        let listener = bind(port)?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let _entered = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let acceptor = tls.map(TlsAcceptor::from);
        let task = runtime.spawn(accept(listener, acceptor, bounds, handler));
        Ok(Server { address, task })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Binds all addresses of both families, or those of version 4 where the machine has no other.
pub(crate) fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)))
}

/// An answer of a status and a short text.
pub(crate) fn answer(status: u16, text: impl Into<bytes::Bytes>) -> Response<PieceBody> {
    let mut answer = Response::new(PieceBody::full(text));
    *answer.status_mut() =
        hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    answer
}

/// Hands on a body until it ends or nobody takes it; an empty piece is the end.
pub(crate) async fn pump(mut body: BoundedBody, feed: mpsc::Sender<io::Result<Bytes>>) {
    while let Some(read) = body.piece().await {
        let read = read.map_err(|unread| io::Error::other(unread.reason));
        let is_last = read.is_err();
        if feed.send(read).await.is_err() || is_last {
            return;
        }
    }
    if feed.send(Ok(Bytes::new())).await.is_err() {
        tracing::debug!("a body was not waited for");
    }
}

/// What [`pump`] hands on, to be read outside of the runtime.
pub(crate) struct PieceReader {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
    is_over: bool,
}

impl PieceReader {
    pub(crate) fn new(pieces: mpsc::Receiver<io::Result<Bytes>>) -> Self {
        PieceReader {
            pieces,
            piece: Bytes::new(),
            is_over: false,
        }
    }

    /// Waits for what comes next; false at the end.
    pub(crate) fn has_more(&mut self) -> io::Result<bool> {
        if self.piece.is_empty() && !self.is_over {
            // A feed that only stops is a connection that broke.
            let next = self.pieces.blocking_recv();
            self.piece = next.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))?;
            self.is_over = self.piece.is_empty();
        }
        Ok(!self.is_over)
    }
}

impl io::Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || !self.has_more()? {
            return Ok(0);
        }
        let len = buffer.len().min(self.piece.len());
        buffer[..len].copy_from_slice(&self.piece.split_to(len));
        Ok(len)
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    acceptor: Option<TlsAcceptor>,
    bounds: HttpBounds,
    handler: Arc<dyn Handler>,
) {
    let room = Arc::new(Semaphore::new(bounds.connections_max));
    let queue = Arc::<Queue>::default();
    // Ends with this task, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_REST).await;
                continue;
            }
        };
        // Where nobody gives way the kernel holds the next ones back.
        let permit = permit(&room, &queue).await;
        let (acceptor, handler) = (acceptor.clone(), Arc::clone(&handler));
        let place = Arc::new(Place::new(&queue));
        connections.spawn(async move {
            let _permit = permit;
            if let Err(error) = serve(stream, address, acceptor, bounds, place, handler).await {
                tracing::debug!(%address, error, "an HTTP connection ended");
            }
        });
    }
}

/// Waits for a place among the connections; who waits for a request gives way.
async fn permit(room: &Arc<Semaphore>, queue: &Queue) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
        return Some(permit);
    }
    loop {
        queue.displace();
        let freed = Arc::clone(room).acquire_owned();
        if let Ok(permit) = tokio::time::timeout(ACCEPT_REST, freed).await {
            return permit.ok();
        }
    }
}

async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    bounds: HttpBounds,
    place: Arc<Place>,
    handler: Arc<dyn Handler>,
) -> Result<(), String> {
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let Some(acceptor) = acceptor else {
        let peer = Peer {
            address,
            subject: None,
        };
        return converse(Box::new(stream), peer, bounds, place, handler).await;
    };
    let accepting = tokio::time::timeout(HANDSHAKE_WAIT, acceptor.accept(stream));
    let accepted = tokio::select! {
        accepted = accepting => accepted.map_err(|_| "no TLS handshake".to_owned())?,
        () = place.is_needed() => return Err(GAVE_WAY.to_owned()),
    };
    let stream = accepted.map_err(|e| e.to_string())?;
    let subject = tls::subject(stream.get_ref().1.peer_certificates());
    let peer = Peer { address, subject };
    converse(Box::new(stream), peer, bounds, place, handler).await
}

async fn converse(
    stream: Box<dyn Stream>,
    peer: Peer,
    bounds: HttpBounds,
    place: Arc<Place>,
    handler: Arc<dyn Handler>,
) -> Result<(), String> {
    let own = Arc::clone(&place);
    let service = service_fn(move |request| {
        let (handler, peer, place) = (Arc::clone(&handler), peer.clone(), Arc::clone(&own));
        async move {
            place.begins();
            let answer = handler.answer(request, peer).await;
            place.waits_again();
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let stream = Patient::new(stream, bounds.answer_wait);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_wait)
        .max_buf_size(HTTP_HEADER_BYTES_MAX)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = place.is_needed() => {
            if !place.has_begun() {
                return Err(GAVE_WAY.to_owned());
            }
            // What is being answered still is.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    ended.map_err(|error| base::report(&error))
}

/// Why a connection that waited ended.
const GAVE_WAY: &str = "it waited for a request, and others need its place";

/// Longest TLS handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Rest after a connection that could not be accepted (no handles left, mostly), and between two
/// looks for one that gives way.
const ACCEPT_REST: Duration = Duration::from_millis(100);
