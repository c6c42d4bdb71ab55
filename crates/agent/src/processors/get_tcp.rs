//! GetTCP: connects to servers and takes the messages that they send.

use std::sync::Arc;

use super::listen_socket::{Placed, Source};
use super::listen_tcp::{BATCH, QUEUE};
use super::tail_file::unescape;
use super::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, Shape,
};
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::net::frames::Framing;
use crate::net::limits::NET_MESSAGE_BYTES_MAX;
use crate::net::streams::{Endpoint, Sockets};
use crate::net::tls;
use crate::services::SslContext;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "GetTCP",
    description: "Connects to TCP servers, again when they are lost, and takes what they send.",
    properties: &[
        PropertyKind::new("Endpoint List", "Addresses host:port, separated by commas.")
            .required()
            .expressions(Expressions::Once),
        PropertyKind::new(
            "SSL Context Service",
            "The agent's certificate and authorities.",
        )
        .shape(Shape::Service("SSLContextService")),
        PropertyKind::new(
            "Message Delimiter",
            "What stands behind each message; \\n is a line.",
        )
        .default("\\n"),
        QUEUE,
        BATCH,
        PropertyKind::new(
            "Maximum Message Size",
            "Bytes of one message; what is longer comes in pieces, as partial.",
        )
        .shape(Shape::Size),
        PropertyKind::new("Timeout", "Longest wait for a connection.")
            .default("1s")
            .shape(Shape::Duration)
            .expressions(Expressions::Once),
        PropertyKind::new("Reconnection Interval", "Rest before it connects again.")
            .default("1 min")
            .shape(Shape::Duration)
            .expressions(Expressions::Once),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "Messages with their delimiter left out.",
        },
        RelationshipKind {
            name: "partial",
            description: "Pieces of messages that are too long or that broke off.",
        },
    ],
    writes: &[AttributeKind::new(
        "source.endpoint",
        "The server's address and port.",
    )],
    input: Input::Forbidden,
    make: |settings| GetTcp::new(settings).map(|made| Box::new(made) as _),
};

struct GetTcp {
    endpoints: Vec<Endpoint>,
    frames: (Framing, usize),
    batch: usize,
    queue: usize,
    source: Option<Source>,
}

impl GetTcp {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let context = settings.service::<SslContext>("SSL Context Service")?;
        let tls = context
            .map(|context| tls::client(Some(&context), true))
            .transpose()?;
        let connect_wait = settings.duration("Timeout")?;
        let pause = settings.duration("Reconnection Interval")?;
        let list = settings.needed("Endpoint List")?;
        let mut endpoints = Vec::new();
        for address in list.split(',').map(str::trim) {
            let port = address
                .rsplit_once(':')
                .map(|(_, port)| port.parse::<u16>());
            if !matches!(port, Some(Ok(_))) {
                return Err(format!("Endpoint List: '{address}' is no host:port"));
            }
            endpoints.push(Endpoint {
                address: address.to_owned(),
                tls: tls.clone(),
                connect_wait,
                pause,
            });
        }
        let message_bytes_max = match settings.text("Maximum Message Size")? {
            Some(_) => settings
                .size("Maximum Message Size")?
                .min(NET_MESSAGE_BYTES_MAX as u64),
            None => NET_MESSAGE_BYTES_MAX as u64,
        };
        let framing = Framing::Delimiter {
            delimiter: unescape(&settings.needed("Message Delimiter")?).into_bytes(),
            is_consumed: true,
        };
        Ok(GetTcp {
            endpoints,
            frames: (framing, message_bytes_max as usize),
            batch: settings.integer("Max Batch Size")?,
            queue: settings.integer("Max Size of Message Queue")?,
            source: None,
        })
    }
}

impl Processor for GetTcp {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let source = match &mut self.source {
            Some(source) => source,
            none => {
                let (endpoints, frames) = (self.endpoints.clone(), &self.frames);
                none.insert(Source::open(context, self.queue, |inlet| {
                    Ok(Sockets::connect(
                        context.runtime(),
                        endpoints,
                        frames,
                        &inlet,
                    ))
                })?)
            }
        };
        source.take(context, session, self.batch, "tcp", |message| Placed {
            relationship: usize::from(message.is_partial),
            attributes: Arc::new(Attributes::new([(
                "source.endpoint",
                message.sender.to_string(),
            )])),
        })
    }

    fn stop(&mut self) {
        self.source = None;
    }
}
