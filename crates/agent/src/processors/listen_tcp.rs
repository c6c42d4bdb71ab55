//! ListenTCP: messages of TCP connections, cut by a delimiter.

use std::sync::Arc;

use rustls::ServerConfig;

use super::listen_socket::{Placed, Source, unheard};
use super::tail_file::unescape;
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::net::frames::Framing;
use crate::net::limits::NET_MESSAGE_BYTES_MAX;
use crate::net::streams::Sockets;
use crate::services::{ClientAuthentication, SslContext};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ListenTCP",
    description: "Takes messages from TCP connections; a flow that is held back holds the peers \
                  back.",
    properties: &[
        PropertyKind::new("Listening Port", "The port.")
            .required()
            .shape(Shape::Integer(1)),
        BATCH,
        QUEUE,
        PropertyKind::new(
            "Message Delimiter",
            "What stands behind each message; \\n is a line.",
        )
        .default("\\n"),
        PropertyKind::new(
            "Consume Delimiter",
            "Whether it is left out of the message.",
        )
        .default("true")
        .shape(Shape::Flag),
        SSL_CONTEXT,
        CLIENT_AUTH,
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "A FlowFile for each message.",
    }],
    writes: &[
        AttributeKind::new("tcp.port", "The port that was listened on."),
        AttributeKind::new("tcp.sender", "The peer's address."),
    ],
    input: Input::Forbidden,
    make: |settings| ListenTcp::new(settings).map(|made| Box::new(made) as _),
};

pub(super) const BATCH: PropertyKind =
    PropertyKind::new("Max Batch Size", "Messages committed together at most.")
        .default("500")
        .shape(Shape::Integer(1));

pub(super) const QUEUE: PropertyKind = PropertyKind::new(
    "Max Size of Message Queue",
    "Messages that wait at most, 16 MiB in all; 0 means that their bytes alone bound them.",
)
.default("10000")
.shape(Shape::Integer(0));

pub(super) const SSL_CONTEXT: PropertyKind = PropertyKind::new(
    "SSL Context Service",
    "The certificate; with it the port speaks TLS.",
)
.shape(Shape::Service("SSLContextService"));

pub(super) const CLIENT_AUTH: PropertyKind = PropertyKind::new(
    "Client Auth",
    "Whether clients must show a certificate of a known authority.",
)
.default("NONE")
.allowed(&["NONE", "WANT", "REQUIRED"]);

struct ListenTcp {
    port: u16,
    batch: usize,
    queue: usize,
    framing: Framing,
    tls: Option<Arc<ServerConfig>>,
    source: Option<Source>,
}

impl ListenTcp {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let delimiter = unescape(&settings.needed("Message Delimiter")?).into_bytes();
        Ok(ListenTcp {
            port: settings.integer("Listening Port")?,
            batch: settings.integer("Max Batch Size")?,
            queue: settings.integer("Max Size of Message Queue")?,
            framing: Framing::Delimiter {
                delimiter,
                is_consumed: settings.flag("Consume Delimiter")?,
            },
            tls: server_tls(settings)?,
            source: None,
        })
    }
}

impl Processor for ListenTcp {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let port = self.port;
        let source = match &mut self.source {
            Some(source) => source,
            none => {
                let (tls, framing) = (self.tls.clone(), self.framing.clone());
                none.insert(Source::open(context, self.queue, |inlet| {
                    let frames = (framing, NET_MESSAGE_BYTES_MAX);
                    Sockets::listen_tcp(context.runtime(), port, tls, frames, inlet)
                        .map_err(|error| unheard(port, &error))
                })?)
            }
        };
        source.take(context, session, self.batch, "tcp", |message| Placed {
            relationship: 0,
            attributes: Arc::new(Attributes::new([
                ("tcp.port", port.to_string()),
                ("tcp.sender", message.sender.ip().to_canonical().to_string()),
            ])),
        })
    }

    fn stop(&mut self) {
        self.source = None;
    }
}

/// Reads SSL Context Service and Client Auth.
pub(super) fn server_tls(settings: &Settings<'_>) -> Result<Option<Arc<ServerConfig>>, String> {
    let Some(context) = settings.service::<SslContext>("SSL Context Service")? else {
        return Ok(None);
    };
    let authentication = match settings.needed("Client Auth")?.as_str() {
        "REQUIRED" => ClientAuthentication::Required,
        "WANT" => ClientAuthentication::Wanted,
        _ => ClientAuthentication::None,
    };
    context
        .server(authentication, rustls::ALL_VERSIONS)
        .map(Some)
}
