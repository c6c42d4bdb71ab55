//! TCP and UDP sockets that bring messages into a queue, on tasks of their own.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::frames::{Frames, Framing};
use super::limits::TCP_CONNECTIONS_MAX;
use super::queue::Inlet;
use super::{http_server, tls};

/// Sockets at work; dropping it closes them.
#[derive(Debug)]
pub(crate) struct Sockets {
    tasks: Vec<JoinHandle<()>>,
}

/// Where a client connects to, and how.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) connect_wait: Duration,
    /// Rest between two connections.
    pub(crate) pause: Duration,
}

impl Sockets {
    /// Listens on a TCP port; a full queue holds the peers back.
    pub(crate) fn listen_tcp(
        runtime: &Handle,
        port: u16,
        tls: Option<Arc<ServerConfig>>,
        frames: (Framing, usize),
        inlet: Inlet,
    ) -> io::Result<Sockets> {
        let listener = http_server::bind(port)?;
        listener.set_nonblocking(true)?;
        let _entered = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let acceptor = tls.map(TlsAcceptor::from);
        let task = runtime.spawn(accept(listener, acceptor, frames, inlet));
        Ok(Sockets { tasks: vec![task] })
    }

    /// Listens on a UDP port; datagrams over a full queue are dropped and counted.
    pub(crate) fn listen_udp(runtime: &Handle, port: u16, inlet: Inlet) -> io::Result<Sockets> {
        let any = |_| UdpSocket::bind(("0.0.0.0", port));
        let socket = UdpSocket::bind(("::", port)).or_else(any)?;
        socket.set_nonblocking(true)?;
        let _entered = runtime.enter();
        let socket = tokio::net::UdpSocket::from_std(socket)?;
        let task = runtime.spawn(async move {
            let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
            loop {
                match socket.recv_from(&mut buffer).await {
                    Ok((len, sender)) => {
                        inlet.put_or_drop(Bytes::copy_from_slice(&buffer[..len]), sender);
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a datagram was not received");
                        tokio::time::sleep(FAILURE_REST).await;
                    }
                }
            }
        });
        Ok(Sockets { tasks: vec![task] })
    }

    /// Connects to each endpoint, again and again, and reads what comes.
    pub(crate) fn connect(
        runtime: &Handle,
        endpoints: Vec<Endpoint>,
        frames: &(Framing, usize),
        inlet: &Inlet,
    ) -> Sockets {
        let start = |endpoint: Endpoint| {
            runtime.spawn(stay_connected(endpoint, frames.clone(), inlet.clone()))
        };
        Sockets {
            tasks: endpoints.into_iter().map(start).collect(),
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    frames: (Framing, usize),
    inlet: Inlet,
) {
    let room = Arc::new(Semaphore::new(TCP_CONNECTIONS_MAX));
    // Ends with this task, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        let (stream, sender) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                tokio::time::sleep(FAILURE_REST).await;
                continue;
            }
        };
        let (acceptor, frames, inlet) = (acceptor.clone(), frames.clone(), inlet.clone());
        connections.spawn(async move {
            let _permit = permit;
            let ended = match acceptor {
                None => read(stream, sender, frames, &inlet).await,
                Some(acceptor) => {
                    let accepting = tokio::time::timeout(HANDSHAKE_WAIT, acceptor.accept(stream));
                    match accepting.await {
                        Ok(Ok(stream)) => read(stream, sender, frames, &inlet).await,
                        Ok(Err(error)) => Err(error),
                        Err(_) => Err(io::ErrorKind::TimedOut.into()),
                    }
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%sender, %error, "a connection broke");
            }
        });
    }
}

async fn stay_connected(endpoint: Endpoint, frames: (Framing, usize), inlet: Inlet) {
    loop {
        if let Err(error) = connect(&endpoint, &frames, &inlet).await {
            tracing::warn!(endpoint = endpoint.address, %error, "no connection; trying again");
        }
        tokio::time::sleep(endpoint.pause).await;
    }
}

async fn connect(endpoint: &Endpoint, frames: &(Framing, usize), inlet: &Inlet) -> io::Result<()> {
    let wait = endpoint.connect_wait;
    let stream = tokio::time::timeout(wait, TcpStream::connect(&endpoint.address)).await??;
    let sender = stream.peer_addr()?;
    let Some(config) = &endpoint.tls else {
        return read(stream, sender, frames.clone(), inlet).await;
    };
    let host = endpoint
        .address
        .rsplit_once(':')
        .map_or("", |(host, _)| host);
    let name = tls::server_name(host).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::clone(config));
    let stream = tokio::time::timeout(wait, connector.connect(name, stream)).await??;
    read(stream, sender, frames.clone(), inlet).await
}

/// Reads messages until the stream ends or nobody takes them.
async fn read(
    mut stream: impl AsyncRead + Unpin,
    sender: SocketAddr,
    (framing, message_bytes_max): (Framing, usize),
    inlet: &Inlet,
) -> io::Result<()> {
    let mut frames = Frames::new(framing, message_bytes_max);
    let outcome = loop {
        let buffer = frames.buffer();
        buffer.reserve(READ_BYTES);
        match stream.read_buf(buffer).await {
            Ok(0) => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
        while let Some(frame) = frames.next() {
            if !inlet.put(frame.bytes, sender, frame.is_partial).await {
                return Ok(());
            }
        }
    };
    if let Some(rest) = frames.rest() {
        inlet.put(rest.bytes, sender, true).await;
    }
    outcome
}

/// Bytes of one datagram; the protocol has no longer ones.
const DATAGRAM_BYTES_MAX: usize = 65_535;

/// Bytes read from a connection at once.
const READ_BYTES: usize = 16 << 10;

/// Longest TLS handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Rest after a failure of the socket itself (no handles left, mostly).
const FAILURE_REST: Duration = Duration::from_millis(100);
