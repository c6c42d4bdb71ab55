//! PutUDP: each FlowFile a datagram.

use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};

use super::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "PutUDP",
    description: "Sends each FlowFile's content as a UDP datagram; nobody knows whether it came.",
    properties: &[
        PropertyKind::new("Hostname", "The receiver's host.")
            .default("localhost")
            .required()
            .expressions(Expressions::FlowFile),
        PropertyKind::new("Port", "The receiver's port.")
            .required()
            .expressions(Expressions::FlowFile),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles whose datagram is with the operating system.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that no datagram can carry, or without a receiver.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| PutUdp::new(settings).map(|made| Box::new(made) as _),
};

struct PutUdp {
    host: Expression,
    port: Expression,
    sockets: [Option<UdpSocket>; 2],
}

impl PutUdp {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(PutUdp {
            host: settings
                .expression("Hostname")?
                .ok_or("Hostname is empty")?,
            port: settings.expression("Port")?.ok_or("Port is empty")?,
            sockets: [None, None],
        })
    }

    fn send(
        &mut self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<SocketAddr, String> {
        if flow_file.size() > DATAGRAM_BYTES_MAX {
            return Err(format!(
                "{} bytes are more than a datagram carries ({DATAGRAM_BYTES_MAX})",
                flow_file.size()
            ));
        }
        let scope = session.scope(flow_file);
        let host = self
            .host
            .evaluate(scope)
            .map_err(|error| error.to_string())?;
        let port = self
            .port
            .evaluate(scope)
            .map_err(|error| error.to_string())?;
        let number = port
            .trim()
            .parse::<u16>()
            .map_err(|_| format!("'{port}' is no port"))?;
        let receiver = (host.as_ref(), number).to_socket_addrs();
        let receiver = receiver.map_err(|error| format!("{host}: {error}"))?.next();
        let receiver = receiver.ok_or_else(|| format!("'{host}' has no address"))?;
        let (slot, any) = match receiver {
            SocketAddr::V4(_) => (0, "0.0.0.0:0"),
            SocketAddr::V6(_) => (1, "[::]:0"),
        };
        let socket = match &mut self.sockets[slot] {
            Some(socket) => socket,
            none => none.insert(UdpSocket::bind(any).map_err(|error| error.to_string())?),
        };
        let content = session.read(flow_file).map_err(|error| error.to_string())?;
        let sent = socket.send_to(&content, receiver);
        sent.map_err(|error| format!("{receiver}: {error}"))?;
        Ok(receiver)
    }
}

impl Processor for PutUdp {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for flow_file in session.take(BATCH, u64::MAX) {
            match self.send(session, &flow_file) {
                Ok(receiver) => {
                    session.note(&flow_file, EventKind::Send, &format!("udp://{receiver}"));
                    session.transfer(flow_file, SUCCESS);
                }
                Err(reason) => {
                    context.post(Level::Error, &format!("not sent: {reason}"));
                    session.transfer_penalized(flow_file, FAILURE);
                }
            }
        }
        session.commit_lazily()?;
        Ok(Next::Scheduled)
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// Bytes that a datagram carries over IPv4.
const DATAGRAM_BYTES_MAX: u64 = 65_507;

/// FlowFiles of one session.
const BATCH: usize = 1_000;
