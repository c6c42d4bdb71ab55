//! The accept loop of a listener: connections come in through its door, and each gets a link.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::AddressPlace;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::core::Core;
use crate::door::{Arrival, Door};
use crate::link::serve_link;
use crate::seats::Seat;

/// Serves those who come to `listener` until `shutdown` or the end of the server; returns when
/// the last of its links is closed.
pub(crate) async fn serve(
    core: &Arc<Core>,
    door: Door,
    listener: TcpListener,
    shutdown: CancellationToken,
) {
    let links = core.closed.child_token();
    let tracker = TaskTracker::new();
    let door = Arc::new(door);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
            () = core.closed.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(seat) = core.seats.take(core.config.clients_max) else {
                    // So many that not even a refusal is affordable.
                    core.counters.handshakes_failed.add(1);
                    continue;
                };
                let most = core.config.max_connections_per_ip;
                let Some(place) = core.addresses.place(peer.ip(), most) else {
                    core.counters.handshakes_failed.add(1);
                    tracing::debug!(%peer, "MQTT connection refused: its address has as many as it may");
                    continue;
                };
                let (core, door, links) = (core.clone(), door.clone(), links.clone());
                tracker.spawn(come_in(core, door, stream, peer, (seat, place), links));
            }
            Err(error) => {
                // Out of descriptors, most likely: give links the time to end.
                tracing::warn!(%error, "cannot accept an MQTT connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    links.cancel();
    tracker.close();
    tracker.wait().await;
}

/// Takes a connection through the door and serves it to its end.
async fn come_in(
    core: Arc<Core>,
    door: Arc<Door>,
    stream: TcpStream,
    peer: SocketAddr,
    (seat, _place): (Seat, AddressPlace),
    links: CancellationToken,
) {
    let packet_bytes_max = usize::try_from(core.config.packet_bytes_max.0).unwrap_or(usize::MAX);
    let patience = core.config.connect_timeout.0;
    // A handshake takes 11 KB, which a link that is through has no use for: a task is as large as its
    // largest wait.
    let entering = Box::pin(door.enter(stream, peer, packet_bytes_max));
    let entered = tokio::select! {
        entered = timeout(patience, entering) => entered,
        () = links.cancelled() => return,
    };
    let problem = match entered {
        Ok(Ok(Arrival { halves, origin })) => {
            let allowed = seat.allowed(core.config.clients_max);
            return serve_link(core, halves, origin, allowed, links).await;
        }
        Ok(Err(error)) => base::report(&error),
        Err(_) => "it took longer than mqtt.connect_timeout".to_owned(),
    };
    core.counters.handshakes_failed.add(1);
    tracing::debug!(%peer, door = door.name(), problem, "a handshake failed");
}

/// Between two tries to accept when the system refuses.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
