//! ListenUDP: each datagram a FlowFile.

use std::sync::Arc;

use super::listen_socket::{Placed, Source, unheard};
use super::listen_tcp::{BATCH, QUEUE};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::net::streams::Sockets;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ListenUDP",
    description: "Takes UDP datagrams; those that come faster than the flow takes them are \
                  dropped, counted and told of.",
    properties: &[
        PropertyKind::new("Listening Port", "The port.")
            .required()
            .shape(Shape::Integer(1)),
        BATCH,
        QUEUE,
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "A FlowFile for each datagram.",
    }],
    writes: &[
        AttributeKind::new("udp.port", "The port that was listened on."),
        AttributeKind::new("udp.sender", "The peer's address."),
        AttributeKind::new("udp.sender.port", "The peer's port."),
    ],
    input: Input::Forbidden,
    make: |settings| ListenUdp::new(settings).map(|made| Box::new(made) as _),
};

struct ListenUdp {
    port: u16,
    batch: usize,
    queue: usize,
    source: Option<Source>,
}

impl ListenUdp {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(ListenUdp {
            port: settings.integer("Listening Port")?,
            batch: settings.integer("Max Batch Size")?,
            queue: settings.integer("Max Size of Message Queue")?,
            source: None,
        })
    }
}

impl Processor for ListenUdp {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let port = self.port;
        let source = match &mut self.source {
            Some(source) => source,
            none => none.insert(Source::open(context, self.queue, |inlet| {
                Sockets::listen_udp(context.runtime(), port, inlet)
                    .map_err(|error| unheard(port, &error))
            })?),
        };
        source.take(context, session, self.batch, "udp", |message| Placed {
            relationship: 0,
            attributes: Arc::new(Attributes::new([
                ("udp.port", port.to_string()),
                ("udp.sender", message.sender.ip().to_canonical().to_string()),
                ("udp.sender.port", message.sender.port().to_string()),
            ])),
        })
    }

    fn stop(&mut self) {
        self.source = None;
    }
}
