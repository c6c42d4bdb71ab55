//! The server's side of raw connections: a thread greets each, then lends it to the port that it
//! is about for one transaction after the other.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::codec::{Code, invalid, read_text, read_u32, write_response, write_text, write_u32};
use super::wire::Wire;
use super::{
    CODEC, CODEC_VERSIONS, DIFFERENT_VERSION, MAGIC, PROTOCOL, PROTOCOL_VERSIONS, Request,
    VERSION_OK,
};
use crate::engine::Waker;
use crate::net::limits::{S2S_CONNECTIONS_MAX, S2S_PROPERTIES_MAX};
use crate::net::{STOP_LOOK, http_server};

/// The ports that can be reached; the same for all servers of an agent.
#[derive(Clone, Debug, Default)]
pub struct Ports(Arc<Mutex<HashMap<String, Port>>>);

/// A port as peers see it.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) is_input: bool,
    /// Whether an input port's flow has room, an output port something to give.
    pub(crate) is_ready: Ready,
    turns: SyncSender<Turn>,
    waker: Waker,
}

/// Whether a port can do something for a peer just now.
pub(crate) type Ready = Arc<dyn Fn() -> bool + Send + Sync>;

/// A connection that waits for its port to do one transaction over it.
pub(crate) struct Turn {
    pub(crate) wire: Wire<Stream>,
    pub(crate) is_packed: bool,
    /// FlowFiles and bytes that the peer would like in one transaction; 0 is any.
    pub(crate) batch: (u64, u64),
    pub(crate) peer: String,
    back: SyncSender<Wire<Stream>>,
}

/// A peer's socket.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
    /// Within the process: a peer that speaks HTTP.
    Local(UnixStream),
}

/// A raw listener; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ports {
    /// Makes a port known; what comes for it is to be taken from the receiver.
    pub(crate) fn open(
        &self,
        id: &str,
        name: &str,
        is_input: bool,
        is_ready: Ready,
        waker: Waker,
    ) -> Receiver<Turn> {
        let (turns, receiver) = sync_channel(TURNS_WAITING);
        let port = Port {
            id: id.to_owned(),
            name: name.to_owned(),
            is_input,
            is_ready,
            turns,
            waker,
        };
        self.0.lock().insert(id.to_owned(), port);
        receiver
    }

    /// Makes a port unknown.
    pub(crate) fn close(&self, id: &str) {
        self.0.lock().remove(id);
    }

    /// All of them, by their names.
    pub(crate) fn all(&self) -> Vec<Port> {
        let mut all: Vec<Port> = self.0.lock().values().cloned().collect();
        all.sort_by(|left, right| left.name.cmp(&right.name));
        all
    }

    /// The port of this id, or of this name.
    pub(crate) fn find(&self, id: &str) -> Option<Port> {
        let ports = self.0.lock();
        let by_name = || ports.values().find(|port| port.name == id);
        ports.get(id).or_else(by_name).cloned()
    }
}

impl Turn {
    /// Gives the connection back for the next request.
    pub(crate) fn give_back(mut self) {
        self.wire.heed(None);
        if self.back.send(self.wire).is_err() {
            tracing::debug!("a peer's connection is gone");
        }
    }
}

impl Server {
    /// Listens on `port` for the agent's ports; TLS when there is a configuration for it.
    pub fn start(port: u16, tls: Option<Arc<ServerConfig>>, ports: Ports) -> io::Result<Server> {
        let listener = http_server::bind(port)?;
        let address = listener.local_addr()?;
        let is_ended = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_ended);
        let thread = std::thread::Builder::new()
            .name("site-to-site".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || accept(&listener, tls.as_ref(), &ports, &of_thread))?;
        Ok(Server {
            address,
            is_ended,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Release);
        // A connection of our own wakes the thread out of its wait.
        let woken = TcpStream::connect(("localhost", self.address.port()));
        if let (Ok(_), Some(thread)) = (woken, self.thread.take())
            && thread.join().is_err()
        {
            tracing::debug!("the site-to-site listener ended by a panic");
        }
    }
}

fn accept(
    listener: &TcpListener,
    tls: Option<&Arc<ServerConfig>>,
    ports: &Ports,
    is_ended: &Arc<AtomicBool>,
) {
    let count = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if is_ended.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            std::thread::sleep(STOP_LOOK);
            continue;
        };
        if count.fetch_add(1, Ordering::AcqRel) >= S2S_CONNECTIONS_MAX {
            count.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!("a site-to-site peer was sent away: too many are here");
            continue;
        }
        let (tls, ports) = (tls.cloned(), ports.clone());
        let (of_thread, is_ended) = (Arc::clone(&count), Arc::clone(is_ended));
        let spawned = std::thread::Builder::new()
            .name("s2s-peer".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if let Err(error) = serve(stream, tls, &ports, is_ended) {
                    tracing::debug!(%error, "a site-to-site connection ended");
                }
                of_thread.fetch_sub(1, Ordering::AcqRel);
            });
        if spawned.is_err() {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn serve(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    ports: &Ports,
    is_ended: Arc<AtomicBool>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PEER_WAIT))?;
    stream.set_read_timeout(Some(if tls.is_some() { PEER_WAIT } else { STOP_LOOK }))?;
    let peer = format!("nifi://{}", stream.peer_addr()?);
    let stream = match tls {
        None => Stream::Plain(stream),
        Some(config) => {
            let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
            let mut stream = stream;
            while session.is_handshaking() {
                session.complete_io(&mut stream)?;
            }
            stream.set_read_timeout(Some(STOP_LOOK))?;
            Stream::Tls(Box::new(StreamOwned::new(session, stream)))
        }
    };
    let mut wire = Wire::new(stream, PEER_WAIT, move || is_ended.load(Ordering::Acquire));
    let mut magic = [0; 4];
    wire.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(invalid("the peer does not speak site-to-site"));
    }
    let version = negotiate(&mut wire, PROTOCOL, PROTOCOL_VERSIONS)?;
    read_text(&mut wire)?;
    if version >= 3 {
        read_text(&mut wire)?;
    }
    let Some((port, is_packed, batch)) = shake_hands(&mut wire, ports)? else {
        return wire.flush();
    };
    while wire.has_more()? {
        let request = Request::of(&read_text(&mut wire)?);
        match request {
            Some(Request::NegotiateCodec) => {
                negotiate(&mut wire, CODEC, CODEC_VERSIONS)?;
            }
            Some(Request::Send) if port.is_input => {
                wire = lend(&port, wire, is_packed, batch, &peer)?;
            }
            Some(Request::Receive) if !port.is_input && !(port.is_ready)() => {
                write_response(&mut wire, Code::NoMoreData, "")?;
            }
            Some(Request::Receive) if !port.is_input => {
                wire = lend(&port, wire, is_packed, batch, &peer)?;
            }
            Some(Request::PeerList) => {
                // Nobody but us; a client goes on with whom it knows.
                write_u32(&mut wire, 0)?;
            }
            Some(Request::Shutdown) => return Ok(()),
            _ => return Err(invalid("the peer's request is none for this port")),
        }
        wire.flush()?;
    }
    Ok(())
}

/// Lends the connection to the port, and waits for it to come back.
fn lend(
    port: &Port,
    wire: Wire<Stream>,
    is_packed: bool,
    batch: (u64, u64),
    peer: &str,
) -> io::Result<Wire<Stream>> {
    let returned = port.lend(wire, is_packed, batch, peer)?;
    match returned.recv_timeout(TURN_WAIT) {
        Ok(wire) => Ok(wire),
        // Dropped with the turn: the transaction broke.
        Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {
            Err(invalid("the transaction did not come to its end"))
        }
    }
}

impl Port {
    /// Lends a connection to the port for one transaction; what is returned gets it back.
    pub(crate) fn lend(
        &self,
        wire: Wire<Stream>,
        is_packed: bool,
        batch: (u64, u64),
        peer: &str,
    ) -> io::Result<Receiver<Wire<Stream>>> {
        let (back, returned) = sync_channel(1);
        let turn = Turn {
            wire,
            is_packed,
            batch,
            peer: peer.to_owned(),
            back,
        };
        match self.turns.try_send(turn) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(invalid("too many peers wait for the port")),
            Err(TrySendError::Disconnected(_)) => return Err(invalid("the port is gone")),
        }
        self.waker.wake();
        Ok(returned)
    }
}

type Shaken = Option<(Port, bool, (u64, u64))>;

/// Reads what the peer wants; nothing when the answer was a refusal.
fn shake_hands(wire: &mut Wire<Stream>, ports: &Ports) -> io::Result<Shaken> {
    let count = read_u32(wire)?;
    if count > S2S_PROPERTIES_MAX {
        return Err(invalid("the peer has too many properties"));
    }
    let mut properties = BTreeMap::new();
    for _ in 0..count {
        let name = read_text(wire)?;
        properties.insert(name, read_text(wire)?);
    }
    let number = |name: &str| {
        properties
            .get(name)
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let is_packed = properties.get("GZIP").is_some_and(|text| text == "true");
    let Some(id) = properties.get("PORT_IDENTIFIER") else {
        write_response(wire, Code::MissingProperty, "PORT_IDENTIFIER")?;
        return Ok(None);
    };
    let Some(port) = ports.find(id) else {
        write_response(wire, Code::UnknownPort, "")?;
        return Ok(None);
    };
    if port.is_input && !(port.is_ready)() {
        write_response(wire, Code::PortsFull, "")?;
        return Ok(None);
    }
    write_response(wire, Code::PropertiesOk, "")?;
    let batch = (number("BATCH_COUNT"), number("BATCH_SIZE"));
    Ok(Some((port, is_packed, batch)))
}

/// Agrees on a version of `resource`.
fn negotiate(wire: &mut Wire<Stream>, resource: &str, versions: &[u32]) -> io::Result<u32> {
    for _ in 0..NEGOTIATIONS_MAX {
        let name = read_text(wire)?;
        let version = read_u32(wire)?;
        if name != resource {
            wire.write_all(&[super::ABORT])?;
            write_text(wire, &format!("'{name}' is not known here"))?;
            wire.flush()?;
            return Err(invalid("the peer wants something unknown"));
        }
        if versions.contains(&version) {
            wire.write_all(&[VERSION_OK])?;
            return Ok(version);
        }
        // The next lower one, else our lowest.
        let lower = versions.iter().find(|own| **own < version);
        let best = lower.or(versions.last()).copied().unwrap_or(1);
        wire.write_all(&[DIFFERENT_VERSION])?;
        write_u32(wire, best)?;
    }
    Err(invalid("the peer does not agree on a version"))
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
            Stream::Local(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
            Stream::Local(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
            Stream::Local(stream) => stream.flush(),
        }
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Port({}, {})", self.id, self.name)
    }
}

/// Peers that wait for one port.
const TURNS_WAITING: usize = 16;

/// Longest silence of a peer.
const PEER_WAIT: Duration = Duration::from_secs(30);

/// Longest wait for a port to take a connection and do its transaction.
const TURN_WAIT: Duration = Duration::from_secs(600);

/// How often a peer may try another version.
const NEGOTIATIONS_MAX: usize = 8;

/// Stack of a thread; TLS needs some.
const STACK_BYTES: usize = 256 << 10;
