//! PutTCP: content over TCP connections, of any size.
//!
//! TCP knows no acknowledgement of a receiver: a FlowFile is sent when its bytes are with the
//! operating system.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::tail_file::unescape;
use super::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::net::limits::PUT_TCP_CONNECTIONS_MAX;
use crate::net::socket::Socket;
use crate::net::{STOP_LOOK, tls};
use crate::provenance::EventKind;
use crate::services::SslContext;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "PutTCP",
    description: "Sends content over TCP, by connections that it keeps or one for each FlowFile.",
    properties: &[
        PropertyKind::new("Hostname", "The receiver's host.")
            .default("localhost")
            .required()
            .expressions(Expressions::FlowFile),
        PropertyKind::new("Port", "The receiver's port.")
            .required()
            .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Idle Connection Expiration",
            "A connection that nothing went over for so long is closed; 0 keeps it.",
        )
        .default("15 seconds")
        .shape(Shape::Duration)
        .expressions(Expressions::Once),
        PropertyKind::new(
            "Timeout",
            "Longest wait for a connection or for bytes to be taken.",
        )
        .default("15 seconds")
        .shape(Shape::Duration)
        .expressions(Expressions::Once),
        PropertyKind::new(
            "Connection Per FlowFile",
            "Whether each has a connection of its own.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Outgoing Message Delimiter",
            "What is sent behind each content.",
        )
        .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "SSL Context Service",
            "The agent's certificate and authorities.",
        )
        .shape(Shape::Service("SSLContextService")),
        PropertyKind::new(
            "Max Size of Socket Send Buffer",
            "Bytes that the system buffers.",
        )
        .shape(Shape::Size),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles whose bytes are with the operating system.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that could not be sent, or only in part.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| PutTcp::new(settings).map(|made| Box::new(made) as _),
};

struct PutTcp {
    host: Expression,
    port: Expression,
    delimiter: Option<Expression>,
    idle: Duration,
    wait: Duration,
    is_single_use: bool,
    tls: Option<Arc<ClientConfig>>,
    send_buffer: Option<usize>,
    open: HashMap<String, Open>,
}

struct Open {
    socket: Socket,
    used: Instant,
}

impl PutTcp {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let context = settings.service::<SslContext>("SSL Context Service")?;
        let send_buffer = match settings.text("Max Size of Socket Send Buffer")? {
            Some(_) => Some(settings.size("Max Size of Socket Send Buffer")?),
            None => None,
        };
        Ok(PutTcp {
            host: settings
                .expression("Hostname")?
                .ok_or("Hostname is empty")?,
            port: settings.expression("Port")?.ok_or("Port is empty")?,
            delimiter: settings.expression("Outgoing Message Delimiter")?,
            idle: settings.duration("Idle Connection Expiration")?,
            wait: settings.duration("Timeout")?.max(Duration::from_millis(1)),
            is_single_use: settings.flag("Connection Per FlowFile")?,
            tls: context
                .map(|context| tls::client(Some(&context), true))
                .transpose()?,
            send_buffer: send_buffer.map(|size| size.min(SEND_BUFFER_MAX) as usize),
            open: HashMap::new(),
        })
    }

    fn send(
        &mut self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<String, String> {
        let (address, delimiter) = {
            let scope = session.scope(flow_file);
            let text = |expression: &Expression| {
                let text = expression
                    .evaluate(scope)
                    .map_err(|error| error.to_string())?;
                Ok::<String, String>(text.into_owned())
            };
            let port = text(&self.port)?;
            let number = port.trim().parse::<u16>();
            let number = number.map_err(|_| format!("'{port}' is no port"))?;
            let delimiter = self.delimiter.as_ref().map(text).transpose()?;
            (format!("{}:{number}", text(&self.host)?), delimiter)
        };
        let now = Instant::now();
        let idle = self.idle;
        self.open
            .retain(|_, open| idle.is_zero() || now.duration_since(open.used) < idle);
        let mut socket = match self.open.remove(&address) {
            Some(open) if !open.socket.is_closed() => open.socket,
            _ => self
                .connect(&address)
                .map_err(|error| format!("{address}: {error}"))?,
        };
        let mut reader = session.reader(flow_file);
        let mut write = || -> io::Result<()> {
            io::copy(&mut reader, &mut socket)?;
            if let Some(delimiter) = &delimiter {
                socket.write_all(unescape(delimiter).as_bytes())?;
            }
            socket.flush()
        };
        write().map_err(|error| format!("{address}: {error}"))?;
        if self.is_single_use {
            close(socket);
        } else if self.open.len() < PUT_TCP_CONNECTIONS_MAX {
            let used = Instant::now();
            self.open.insert(address.clone(), Open { socket, used });
        }
        Ok(address)
    }

    fn connect(&self, address: &str) -> io::Result<Socket> {
        let tls = self.tls.as_ref();
        let socket = Socket::connect(address, tls, self.wait, STOP_LOOK, self.wait)?;
        if let Some(bytes) = self.send_buffer {
            rustix::net::sockopt::set_socket_send_buffer_size(socket.tcp(), bytes)?;
        }
        Ok(socket)
    }
}

impl Processor for PutTcp {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for flow_file in session.take(BATCH, u64::MAX) {
            if context.is_stopping() {
                return Err(ProcessorError::Failed(
                    "stopped before all was sent".to_owned(),
                ));
            }
            match self.send(session, &flow_file) {
                Ok(address) => {
                    session.note(&flow_file, EventKind::Send, &format!("tcp://{address}"));
                    session.transfer(flow_file, SUCCESS);
                }
                Err(reason) => {
                    context.post(Level::Error, &format!("not sent to {reason}"));
                    session.transfer_penalized(flow_file, FAILURE);
                }
            }
        }
        session.commit_lazily()?;
        Ok(Next::Scheduled)
    }

    fn stop(&mut self) {
        for (_, open) in self.open.drain() {
            close(open.socket);
        }
    }
}

/// Says goodbye in TLS's words too.
fn close(socket: Socket) {
    if let Socket::Tls(mut stream) = socket {
        stream.conn.send_close_notify();
        if let Err(error) = stream.flush() {
            tracing::debug!(%error, "no goodbye");
        }
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// FlowFiles of one session: what is sent once more when the agent is killed meanwhile.
const BATCH: usize = 100;

/// No system gives more.
const SEND_BUFFER_MAX: u64 = 1 << 30;
