//! The server over real sockets, with a client that knows no more than bytes.

mod client;
mod conformance;
mod disk;
mod doors;
mod five;
mod flood;
mod full_disk;
mod guarded;
mod held;
mod kept;
mod mounted;
mod rumqttc_client;
mod sinks;
mod talk;
mod three;

use std::sync::Arc;
use std::time::Duration;

use base::SystemClock;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Server;
use crate::config::MqttConfig;
use crate::door::Door;
use crate::gate::Gate;
use client::Client;

/// A server on a folder of its own, or on one that a server before it left.
struct Running {
    server: Server,
    port: u16,
    dir: Arc<TempDir>,
    serving: JoinHandle<()>,
    shutdown: CancellationToken,
}

impl Running {
    async fn start(config: MqttConfig) -> Running {
        let dir = tempfile::tempdir().unwrap();
        Running::start_on(Arc::new(dir), config).await
    }

    /// A server whose clients a gate decides about.
    async fn start_guarded(gate: Arc<dyn Gate>) -> Running {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let (config, clock) = (MqttConfig::default(), Arc::new(SystemClock));
        let server = Server::open_guarded(dir.path(), config, clock, gate).unwrap();
        Running::of(dir, server).await
    }

    async fn start_on(dir: Arc<TempDir>, config: MqttConfig) -> Running {
        let server = Server::open(dir.path(), config, Arc::new(SystemClock)).unwrap();
        Running::of(dir, server).await
    }

    async fn of(dir: Arc<TempDir>, server: Server) -> Running {
        Running::serve(dir, server, Door::default()).await
    }

    /// Serves `server` behind a door.
    async fn serve(dir: Arc<TempDir>, server: Server, door: Door) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn({
            let (server, shutdown) = (server.clone(), shutdown.clone());
            async move { server.serve_behind(door, listener, shutdown).await }
        });
        Running {
            server,
            port,
            dir,
            serving,
            shutdown,
        }
    }

    async fn client(&self, id: &str) -> Client {
        Client::connect(self.port, id, true).await
    }

    async fn stop(self) -> Arc<TempDir> {
        self.shutdown.cancel();
        self.serving.await.unwrap();
        self.server.close().await;
        self.dir
    }

    async fn restart(self, config: MqttConfig) -> Running {
        let dir = self.stop().await;
        Running::start_on(dir, config).await
    }
}

/// Waits until `what` holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !holds() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited in vain until {what}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// How long a test waits for what must come.
const DEADLINE: Duration = Duration::from_secs(120);
