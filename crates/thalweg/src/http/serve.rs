//! Serves a router on a listener, by HTTP/1.1 and HTTP/2, with TLS or without, with bounds on
//! connections and on slow peers.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use access::Tls;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::door::{Door, Manners, Routes};
use super::limits::{
    CONNECTION_COUNT_MAX, DRAIN_MAX, HEADER_BYTES_MAX, HTTP2_CONNECTION_WINDOW_BYTES,
    HTTP2_LOCAL_RESETS_MAX, HTTP2_LOOK, HTTP2_PENDING_RESETS_MAX, HTTP2_STREAM_WINDOW_BYTES,
    HTTP2_STREAMS_MAX,
};
use super::link::Link;
use super::watch::{Found, Watch};

/// How one port is served.
pub struct Transport {
    /// TLS, when the port speaks it; made with [`super::PROTOCOLS`].
    pub tls: Option<Arc<Tls>>,
    /// What is done to its requests.
    pub manners: Arc<Manners>,
    /// A connection on which no whole head of a request comes for so long is closed.
    pub idle_timeout: Duration,
}

/// Serves until `shutdown`, then lets running requests end, for a bounded time.
///
/// At the bound of connections new ones wait in the kernel's queue: the sender is held back.
pub async fn serve(
    listener: TcpListener,
    routes: impl Into<Routes>,
    transport: Transport,
    shutdown: CancellationToken,
) {
    let routes = routes.into();
    let places = Arc::new(Semaphore::new(CONNECTION_COUNT_MAX));
    let graceful = GracefulShutdown::new();
    let port = Arc::new(Port {
        http1: http1_builder(transport.idle_timeout),
        http2: http2_builder(),
        routes,
        transport,
    });
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            break;
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
        let (port, watcher) = (port.clone(), graceful.watcher());
        let shutdown = shutdown.clone();
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
            drop(place);
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

/// What the connections of a port share.
struct Port {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    routes: Routes,
    transport: Transport,
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
