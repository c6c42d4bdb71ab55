//! Serves a router on a listener, with bounds on connections and on slow senders.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Serves until `shutdown`, then lets running requests end, for a bounded time.
///
/// At the bound of connections new ones wait in the kernel's queue: the sender is held back.
pub async fn serve(listener: TcpListener, routes: Router, shutdown: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTION_COUNT_MAX));
    let graceful = GracefulShutdown::new();
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_MAX)
        .pipeline_flush(true);
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
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let routes = TowerToHyperService::new(routes.clone());
        let peer = rest::Peer(peer.ip());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            routes.call(request)
        });
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = base::report(&error), "connection ended");
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

/// Open connections per HTTP port; each idle one costs a few KiB.
const CONNECTION_COUNT_MAX: usize = 10_000;
/// A request's head must be there within this time, or a slow sender holds a place for ever.
const HEADER_READ_MAX: Duration = Duration::from_secs(30);
/// How long running requests may take to end at a stop; long polls end by themselves before.
const DRAIN_MAX: Duration = Duration::from_secs(3);
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
