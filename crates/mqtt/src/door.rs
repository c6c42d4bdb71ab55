//! How clients come in: each listener has a door, which does what comes before MQTT.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use access::Tls;
use base::{Clock, SystemClock};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::gate::Origin;
use crate::limits::WEBSOCKET_FRAME_SLACK_BYTES;
use crate::websocket::{self, Pages};
use crate::wire::{ReadHalf, WriteHalf, of_stream, of_tcp};

/// What a listener's clients speak below MQTT: TCP alone by default.
#[derive(Clone, Default)]
pub struct Door {
    /// TLS, when the listener speaks it.
    pub tls: Option<Arc<Tls>>,
    /// WebSocket, when the listener speaks it, with the pages that may connect.
    pub websocket: Option<Pages>,
}

/// A client that has come through.
pub(crate) struct Arrival {
    pub(crate) halves: (ReadHalf, WriteHalf),
    pub(crate) origin: Origin,
}

impl Door {
    /// Does the handshakes that come before MQTT. Whoever calls bounds the time.
    ///
    /// # Errors
    /// What the client did wrong, or what its socket reports.
    pub(crate) async fn enter(
        &self,
        tcp: TcpStream,
        peer: SocketAddr,
        packet_bytes_max: usize,
    ) -> io::Result<Arrival> {
        let mut origin = Origin {
            peer,
            certificate: None,
            is_encrypted: self.tls.is_some(),
        };
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let frame_bytes_max = packet_bytes_max.saturating_add(WEBSOCKET_FRAME_SLACK_BYTES);
        let halves = match (&self.tls, &self.websocket) {
            (Some(tls), pages) => {
                let stream = TlsAcceptor::from(tls.server_config()).accept(tcp).await?;
                let (_, session) = stream.get_ref();
                tls.check_resumed(session, SystemClock.now())?;
                let shown = tls.principal_of(session.peer_certificates());
                origin.certificate = shown.map(|principal| principal.name().to_owned());
                match pages {
                    None => of_stream(stream),
                    Some(pages) => {
                        of_stream(websocket::accept(stream, pages, frame_bytes_max).await?)
                    }
                }
            }
            (None, Some(pages)) => of_stream(websocket::accept(tcp, pages, frame_bytes_max).await?),
            (None, None) => of_tcp(tcp),
        };
        Ok(Arrival { halves, origin })
    }

    /// How the door is called in logs.
    pub(crate) fn name(&self) -> &'static str {
        match (&self.tls, &self.websocket) {
            (None, None) => "tcp",
            (Some(_), None) => "tls",
            (None, Some(_)) => "ws",
            (Some(_), Some(_)) => "wss",
        }
    }
}
