//! Serves a router on a listener, by HTTP/1.1 and HTTP/2, with TLS or without, with bounds on
//! connections and on slow peers.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use access::{Addresses, Tls};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::door::{Door, Manners, Routes};
use super::limits::{
    DRAIN_MAX, HEADER_BYTES_MAX, HTTP2_CONNECTION_WINDOW_BYTES, HTTP2_LOCAL_RESETS_MAX, HTTP2_LOOK,
    HTTP2_PENDING_RESETS_MAX, HTTP2_STREAM_WINDOW_BYTES, HTTP2_STREAMS_MAX,
};
use super::link::Link;
use super::watch::{Found, Watch};

/// How one port is served.
pub struct Transport {
    /// What the metrics call the port.
    pub name: &'static str,
    /// TLS, when the port speaks it; made with [`super::PROTOCOLS`].
    pub tls: Option<Arc<Tls>>,
    /// What is done to its requests.
    pub manners: Arc<Manners>,
    /// A connection on which no whole head of a request comes for so long is closed.
    pub idle_timeout: Duration,
    /// Connections open at a time.
    pub connections_max: usize,
    /// Connections of one address at a time; 0 is no bound.
    pub max_connections_per_ip: usize,
}

/// Serves until `shutdown`, then lets running requests end, for a bounded time.
///
/// At the bound of connections new ones wait in the kernel's queue: the sender is held back. Before
/// it is reached, connections by HTTP/1.1 are closed after the next answer, so that those who keep
/// theirs do not keep others out.
pub async fn serve(
    listener: TcpListener,
    routes: impl Into<Routes>,
    transport: Transport,
    shutdown: CancellationToken,
) {
    let routes = routes.into();
    let places = Arc::new(Places::new(transport.connections_max));
    let (addresses, most) = (Addresses::default(), transport.max_connections_per_ip);
    let counts = Counts::of(transport.name);
    let graceful = GracefulShutdown::new();
    let port = Arc::new(Port {
        http1: http1_builder(transport.idle_timeout),
        http2: http2_builder(),
        routes,
        transport,
        places: places.clone(),
    });
    loop {
        let place = tokio::select! {
            place = places.take() => place,
            () = shutdown.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file handles, mostly: wait for some to be freed instead of spinning.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        counts.accepted.increment(1);
        let Some(of_address) = addresses.place(peer.ip(), most) else {
            counts.refused.increment(1);
            tracing::debug!(%peer, "connection refused: its address has as many as it may");
            continue;
        };
        let (port, watcher) = (port.clone(), graceful.watcher());
        let (shutdown, open) = (shutdown.clone(), counts.open());
        tokio::spawn(async move {
            // Who has not said anything at a stop is not waited for.
            let link = tokio::select! {
                link = port.establish(stream) => link,
                () = shutdown.cancelled() => return,
            };
            match link {
                Ok(link) => port.converse(link, peer.ip(), watcher, &shutdown).await,
                Err(error) => tracing::debug!(%error, "a connection came to nothing"),
            }
            drop((place, of_address, open));
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_MAX, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::info!("closing connections with requests that did not end in time");
    }
}

/// The connections of a port, for the metrics.
struct Counts {
    accepted: metrics::Counter,
    refused: metrics::Counter,
    open: metrics::Gauge,
}

impl Counts {
    fn of(port: &'static str) -> Self {
        let (accepted, refused) = (
            "thalweg_http_connections_total",
            "thalweg_http_connections_refused_total",
        );
        let open = "thalweg_http_connections";
        metrics::describe_counter!(accepted, "connections that came");
        metrics::describe_counter!(refused, "of these, those whose address had its most");
        metrics::describe_gauge!(open, "open connections");
        let counts = Counts {
            accepted: metrics::counter!(accepted, "port" => port),
            refused: metrics::counter!(refused, "port" => port),
            open: metrics::gauge!(open, "port" => port),
        };
        counts.refused.increment(0);
        counts
    }

    /// One more is open, until what is returned is dropped.
    fn open(&self) -> Open {
        self.open.increment(1);
        Open(self.open.clone())
    }
}

struct Open(metrics::Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// What the connections of a port share.
struct Port {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    routes: Routes,
    transport: Transport,
    places: Arc<Places>,
}

/// The connections that a port may have.
pub(super) struct Places {
    free: Arc<Semaphore>,
    all: usize,
    /// That none was left.
    is_told: AtomicBool,
}

impl Places {
    fn new(all: usize) -> Self {
        Places {
            free: Arc::new(Semaphore::new(all)),
            all,
            is_told: AtomicBool::new(false),
        }
    }

    /// Waits for a place; it is free again when what is returned is dropped.
    async fn take(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes it.
        let place = self.free.clone().acquire_owned().await.ok();
        if self.free.available_permits() == 0 && !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                connections_max = self.all,
                "all connections of a port were taken: others wait; raise its connections_max"
            );
        }
        place
    }

    /// True when few are left, a fifth of all.
    pub fn are_scarce(&self) -> bool {
        self.free.available_permits() <= self.all / 5
    }
}

impl Port {
    async fn establish(&self, stream: TcpStream) -> std::io::Result<Link> {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let Transport {
            tls, idle_timeout, ..
        } = &self.transport;
        Link::establish(stream, tls.as_deref(), *idle_timeout).await
    }

    /// Serves a connection to its end.
    async fn converse(
        &self,
        mut link: Link,
        ip: IpAddr,
        watcher: Watcher,
        shutdown: &CancellationToken,
    ) {
        let watch = link.is_http2.then(Arc::<Watch>::default);
        let door = Door {
            routes: self.routes.clone(),
            manners: self.transport.manners.clone(),
            peer: rest::Peer {
                ip,
                certificate: link.principal.take(),
            },
            certificate: link.certificate,
            watch: watch.clone(),
            places: self.places.clone(),
        };
        let service = service_fn(move |request| door.take(request));
        let ended = match watch {
            None => {
                let connection = self.http1.serve_connection(TokioIo::new(link), service);
                watcher.watch(connection).await
            }
            Some(watch) => {
                let connection = self.http2.serve_connection(TokioIo::new(link), service);
                let mut connection = pin!(connection);
                let ended = tokio::select! {
                    ended = &mut connection => ended,
                    why = watched(&watch, self.transport.idle_timeout) => match why {
                        // The client is told first, so that no request gets lost.
                        Found::Idle => {
                            connection.as_mut().graceful_shutdown();
                            let ending = tokio::time::timeout(HTTP2_LOOK, connection);
                            ending.await.unwrap_or(Ok(()))
                        }
                        // Dropping the connection closes it.
                        Found::Stalled | Found::Busy => {
                            tracing::debug!("a peer does not read an answer");
                            Ok(())
                        }
                    },
                    () = shutdown.cancelled() => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                };
                // Held until here, as the stop waits for those who watch.
                drop(watcher);
                ended
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error = base::report(&error), "connection ended");
        }
    }
}

/// Looks at an HTTP/2 connection now and then; answers when it is not worth going on with. An idle
/// one is let go up to two looks after its time.
async fn watched(watch: &Watch, idle_timeout: Duration) -> Found {
    let (mut seen, mut idle_since) = (0, None);
    loop {
        tokio::time::sleep(HTTP2_LOOK.min(idle_timeout)).await;
        let now = Instant::now();
        match watch.look(now, &mut seen) {
            Found::Busy => idle_since = None,
            Found::Idle => {
                let since = *idle_since.get_or_insert(now);
                if now.duration_since(since) >= idle_timeout {
                    return Found::Idle;
                }
            }
            Found::Stalled => return Found::Stalled,
        }
    }
}

fn http1_builder(idle_timeout: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(idle_timeout)
        .max_header_size(HEADER_BYTES_MAX)
        .pipeline_flush(true);
    builder
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX as u32)
        .max_pending_accept_reset_streams(HTTP2_PENDING_RESETS_MAX)
        .max_local_error_reset_streams(HTTP2_LOCAL_RESETS_MAX)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES);
    builder
}

const ACCEPT_RETRY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A port of few connections, and what ends it.
    async fn port(connections_max: usize) -> (SocketAddr, CancellationToken, impl Future) {
        port_for(connections_max, 0).await
    }

    /// The same with a bound for each address.
    async fn port_for(
        connections_max: usize,
        max_connections_per_ip: usize,
    ) -> (SocketAddr, CancellationToken, impl Future) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().route("/", get(|| async { "here" }));
        let transport = Transport {
            name: "rest",
            tls: None,
            manners: Arc::default(),
            idle_timeout: Duration::from_secs(600),
            connections_max,
            max_connections_per_ip,
        };
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, routes, transport, shutdown.clone()));
        (address, shutdown, serving)
    }

    /// Asks once on a connection; the answer's head.
    async fn ask(stream: &mut TcpStream) -> String {
        let call = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        stream.write_all(call).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"here") {
            let mut piece = [0; 512];
            let count = stream.read(&mut piece).await.unwrap();
            assert!(count > 0, "closed without an answer");
            answer.extend_from_slice(&piece[..count]);
        }
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn those_who_keep_their_connections_keep_nobody_out() {
        let (address, shutdown, serving) = port(10).await;
        let mut kept = Vec::new();
        for _ in 0..6 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            assert!(!ask(&mut stream).await.contains("connection: close"));
            kept.push(stream);
        }
        // Where few are left each answer ends its connection, so that there is room again.
        for _ in 0..20 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            assert!(ask(&mut stream).await.contains("connection: close"));
            assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
        }
        shutdown.cancel();
        serving.await;
    }

    #[tokio::test]
    async fn an_address_has_no_more_connections_than_it_may() {
        let (address, shutdown, serving) = port_for(10, 2).await;
        let mut kept = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            ask(&mut stream).await;
            kept.push(stream);
        }
        let mut one_more = TcpStream::connect(address).await.unwrap();
        let closed = one_more.read(&mut [0; 1]).await;
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
        drop(kept.pop());
        // The server sees that it is gone a little later.
        loop {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let call = b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n";
            let mut answer = Vec::new();
            if stream.write_all(call).await.is_ok()
                && stream.read_to_end(&mut answer).await.is_ok()
                && answer.ends_with(b"here")
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        shutdown.cancel();
        serving.await;
    }

    #[tokio::test]
    async fn a_port_whose_connections_are_all_taken_can_be_stopped() {
        let (address, shutdown, serving) = port(2).await;
        let mut silent = Vec::new();
        for _ in 0..4 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        shutdown.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(60), serving).await;
        assert!(ended.is_ok());
    }
}
