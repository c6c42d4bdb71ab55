//! The Kafka listener: unmodified Kafka clients at the store in this process.
//!
//! Bytes come in through [`connection`], one task per connection: it cuts frames, has the table of
//! APIs ([`api`]) begin each request in the order of arrival, and sends the answers in the same
//! order, whatever waits. A request is walked by [`guard`] before the codec may allocate for it.
//! Record batches stay the bytes that they are, both ways.
//!
//! There is one node, so it leads every partition in leader epoch 0 and coordinates every group.
//!
//! Who a client is, is settled by [`sasl`] or by its certificate before anything else is served;
//! what it may do is asked by each API ([`security`], [`permissions`]). Who uses more than a quota
//! allows is held back ([`throttle`]).

mod acls;
mod api;
mod arrivals;
mod buffers;
mod cluster;
mod configs;
mod connection;
mod consumer_groups;
mod error;
mod fetch;
pub(crate) mod fuzzing;
mod group_admin;
mod groups;
mod guard;
mod lanes;
mod limits;
mod markers;
mod metadata;
mod offsets;
mod permissions;
mod produce;
mod quorum;
mod quotas;
mod reply;
mod room;
mod sasl;
mod seats;
mod security;
mod sessions;
mod shapes;
mod share_acknowledge;
mod share_fetch;
mod share_groups;
mod share_offsets;
mod share_sessions;
mod share_wire;
mod standby;
mod streams_groups;
mod streams_wire;
mod table;
mod tenancy;
#[cfg(test)]
mod tests;
mod throttle;
mod topics;
mod transaction_admin;
mod transactions;
mod unsent;
mod users;
mod versions;
mod writer;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use access::InFlight;
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Streams;
use crate::telemetry::{ListenerFigures, Telemetry};
use crate::tenants::Payer;
use arrivals::Refused;
use connection::Link;
use lanes::Lanes;
use seats::{Seat, Seats};
use security::Session;

pub use api::asked_permissions;
pub use permissions::{AskedPermissions, Permission};
pub use security::{SaslSettings, Security};
pub use throttle::Usage;

pub use error::{group_error_code, streams_error_code, transaction_error_code};

/// The APIs' names, in the order of their table.
pub(crate) fn api_names() -> impl Iterator<Item = &'static str> {
    table::APIS.iter().map(|api| api.name)
}

/// Serves Kafka clients on `listener` until `shutdown`; returns when all connections have ended,
/// at most a few seconds later.
///
/// Clients are told to connect to `advertised` of the configuration, or else to the address that
/// they came to.
pub async fn serve(listener: TcpListener, streams: Arc<Streams>, shutdown: CancellationToken) {
    let security = Security {
        advertised: streams.config().advertised.clone(),
        ..Security::default()
    };
    serve_secured(listener, streams, Arc::new(security), shutdown).await;
}

/// As [`serve`], asking clients who they are and what they may do.
pub async fn serve_secured(
    listener: TcpListener,
    streams: Arc<Streams>,
    security: Arc<Security>,
    shutdown: CancellationToken,
) {
    if let Some(access) = &security.access {
        streams.follow_tenants(access);
    }
    let figures = streams.telemetry().listener(match security.is_local {
        true => "streams.local",
        false => "streams",
    });
    let shared = Arc::new(Shared {
        streams,
        security,
        logins: Arc::new(Semaphore::new(limits::LOGINS_AT_ONCE_MAX)),
        lookups: Arc::new(Semaphore::new(limits::LOOKUPS_AT_ONCE_MAX)),
        figures,
        session_room: Arc::default(),
        buffers: Arc::default(),
        began: Instant::now(),
        room: Arc::default(),
        shutdown: shutdown.clone(),
    });
    match listener.local_addr() {
        Ok(local) if !shared.security.is_local => {
            let advertised = shared.security.advertised.as_deref();
            let address = advertised_address(advertised, local);
            shared.streams.note_listener(address);
        }
        _ => {}
    }
    let (seats, lanes) = (Seats::new(), Lanes::new());
    let connections_max = shared.streams.config().connections_max;
    let _ending = lanes.ending();
    shared.streams.groups().begin(Handle::current());
    let mut sweeps = tokio::time::interval(limits::IDLE_MAX / SWEEPS_PER_IDLE_MAX);
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
            _ = sweeps.tick() => {
                seats.sweep();
                continue;
            }
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: others must end before the next can come.
                tracing::warn!(%error, "cannot accept a Kafka connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let Some(seat) = seats.take(connections_max) else {
            if shared.logs_refusal() {
                tracing::warn!(%peer, "Kafka connection refused: {connections_max} are at work");
            }
            continue;
        };
        let own_place = match shared.arrive(peer.ip()) {
            Ok(own_place) => own_place,
            Err(refused) => {
                shared.telemetry().refused.increment(1);
                turn_away(&connections, &shutdown, socket, seat, refused);
                continue;
            }
        };
        match Context::new(&shared, &socket, peer) {
            Ok(context) => match socket.into_std() {
                Ok(socket) => {
                    let places = (seat, own_place, lanes.place());
                    let link = Link::new(context, places, connections.clone());
                    connection::serve(link, socket.into());
                }
                Err(error) => tracing::debug!(%peer, %error, "Kafka connection ended at once"),
            },
            Err(error) => tracing::debug!(%peer, %error, "Kafka connection ended at once"),
        }
    }
    connections.close();
    let ended = tokio::time::timeout(limits::SHUTDOWN_WAIT, connections.wait()).await;
    if ended.is_err() {
        tracing::warn!(
            "{} Kafka connections did not end in time",
            connections.len()
        );
    }
}

/// Ends a connection that its address may not have, at once or when the address may have another.
fn turn_away(
    connections: &TaskTracker,
    shutdown: &CancellationToken,
    socket: TcpStream,
    seat: Seat,
    refused: Refused,
) {
    let wait = match refused {
        Refused::TooMany => {
            tracing::debug!("Kafka connection refused: its address has as many as it may");
            return;
        }
        Refused::TooFast(wait) => wait,
    };
    let shutdown = shutdown.clone();
    connections.spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shutdown.cancelled() => {}
        }
        drop((socket, seat));
    });
}

/// What all connections of a listener share.
struct Shared {
    streams: Arc<Streams>,
    security: Arc<Security>,
    /// Places for those who look for offsets by time.
    lookups: Arc<Semaphore>,
    /// Places for those who hash a password.
    logins: Arc<Semaphore>,
    /// What this listener counts.
    figures: Arc<ListenerFigures>,
    session_room: Arc<sessions::Room>,
    buffers: Arc<buffers::Buffers>,
    /// When the listener began: what waits is woken in steps from here.
    began: Instant,
    room: Arc<room::Room>,
    shutdown: CancellationToken,
}

impl Shared {
    fn telemetry(&self) -> &Telemetry {
        self.streams.telemetry()
    }

    /// Whether one more refusal is logged.
    fn logs_refusal(&self) -> bool {
        self.telemetry().logs_refusal(self.streams.clock().now())
    }
}

/// What a connection's requests need to know.
struct Context {
    shared: Arc<Shared>,
    /// What this client is told to connect to.
    host: StrBytes,
    port: i32,
    /// Where the client sits, as Kafka writes it: `/127.0.0.1`, also where it came to an IPv6
    /// listener.
    client_host: String,
    sessions: Mutex<sessions::Sessions>,
    share_sessions: Mutex<share_sessions::ShareSessions>,
    session: Session,
    /// How long the client is to be held back for what it created, deleted and wrote.
    wait_ms: AtomicU64,
    /// The request that passed the gate of its client's tenant and is not begun yet.
    flight: Mutex<Option<(Payer, InFlight)>>,
}

impl Context {
    fn new(shared: &Arc<Shared>, socket: &TcpStream, peer: SocketAddr) -> io::Result<Arc<Self>> {
        socket.set_nodelay(true)?;
        let local = socket.local_addr()?;
        let advertised = shared.security.advertised.as_deref();
        let (host, port) = advertised_address(advertised, local);
        Ok(Arc::new(Context {
            shared: Arc::clone(shared),
            host: StrBytes::from_string(host),
            port: i32::from(port),
            client_host: format!("/{}", peer.ip().to_canonical()),
            sessions: Mutex::new(sessions::Sessions::new(Arc::clone(&shared.session_room))),
            share_sessions: {
                let room = Arc::clone(&shared.session_room);
                Mutex::new(share_sessions::ShareSessions::new(room))
            },
            session: Session::new(&shared.security),
            wait_ms: AtomicU64::new(0),
            flight: Mutex::default(),
        }))
    }

    fn streams(&self) -> &Arc<Streams> {
        &self.shared.streams
    }
}

/// `advertised` may be a host, or host and port; what it leaves out comes from `local`.
fn advertised_address(advertised: Option<&str>, local: SocketAddr) -> (String, u16) {
    let port = local.port();
    let Some(advertised) = advertised else {
        return (local.ip().to_canonical().to_string(), port);
    };
    match advertised.rsplit_once(':') {
        // More than one colon without brackets is a bare IPv6 address.
        Some((host, text)) if !host.contains(':') || host.ends_with(']') => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            match text.parse::<u16>() {
                Ok(port) => (host.to_owned(), port),
                Err(_) => (advertised.to_owned(), port),
            }
        }
        _ => (advertised.to_owned(), port),
    }
}

/// Pause after a failed accept: long enough not to spin, short enough not to be noticed.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Idle connections may stay longer by one part of so many.
const SWEEPS_PER_IDLE_MAX: u32 = 10;
