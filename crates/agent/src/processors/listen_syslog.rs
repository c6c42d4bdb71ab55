//! ListenSyslog: syslog messages by UDP or TCP, read into attributes when that is wanted.

use std::sync::Arc;

use rustls::ServerConfig;

use super::listen_socket::{Placed, Source, unheard};
use super::listen_tcp::{BATCH, CLIENT_AUTH, QUEUE, SSL_CONTEXT, server_tls};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::net::frames::Framing;
use crate::net::limits::NET_MESSAGE_BYTES_MAX;
use crate::net::queue::Received;
use crate::net::streams::Sockets;
use crate::session::ProcessSession;
use crate::syslog;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ListenSyslog",
    description: "Takes syslog messages by UDP or TCP (lines, or counted as RFC 6587 says).",
    properties: &[
        PropertyKind::new("Listening Port", "The port.")
            .default("514")
            .required()
            .shape(Shape::Integer(1)),
        PropertyKind::new("Protocol", "How messages come.")
            .default("UDP")
            .allowed(&["UDP", "TCP"]),
        BATCH,
        PropertyKind::new(
            "Parse Messages",
            "Whether messages are read by RFC 5424 or RFC 3164 into attributes.",
        )
        .default("false")
        .shape(Shape::Flag),
        QUEUE,
        SSL_CONTEXT,
        CLIENT_AUTH,
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "Messages; those that could be read, when they are to be.",
        },
        RelationshipKind {
            name: "invalid",
            description: "Messages that are of neither kind, when they are to be read.",
        },
    ],
    writes: &[
        AttributeKind::new("syslog.protocol", "UDP or TCP."),
        AttributeKind::new("syslog.port", "The port that was listened on."),
        AttributeKind::new("syslog.sender", "The peer's address."),
        AttributeKind::new(
            "syslog.valid",
            "Whether it could be read, when it was to be.",
        ),
        AttributeKind::new("syslog.priority", "Facility times eight plus severity."),
        AttributeKind::new("syslog.facility", "Which part of the system it is about."),
        AttributeKind::new("syslog.severity", "How bad it is, 0 is the worst."),
        AttributeKind::new("syslog.version", "1, of RFC 5424."),
        AttributeKind::new("syslog.timestamp", "The message's time."),
        AttributeKind::new("syslog.hostname", "Where it is from."),
        AttributeKind::new("syslog.app_name", "The program, of RFC 5424."),
        AttributeKind::new("syslog.proc_id", "The process, of RFC 5424."),
        AttributeKind::new("syslog.msg_id", "The kind of message, of RFC 5424."),
        AttributeKind::new("syslog.structured_data", "Structured data, of RFC 5424."),
        AttributeKind::new("syslog.msg", "The message itself."),
    ],
    input: Input::Forbidden,
    make: |settings| ListenSyslog::new(settings).map(|made| Box::new(made) as _),
};

struct ListenSyslog {
    port: u16,
    is_tcp: bool,
    batch: usize,
    queue: usize,
    parses: bool,
    tls: Option<Arc<ServerConfig>>,
    source: Option<Source>,
}

impl ListenSyslog {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let is_tcp = settings.needed("Protocol")? == "TCP";
        let tls = server_tls(settings)?;
        if tls.is_some() && !is_tcp {
            return Err("SSL Context Service needs Protocol TCP".to_owned());
        }
        Ok(ListenSyslog {
            port: settings.integer("Listening Port")?,
            is_tcp,
            batch: settings.integer("Max Batch Size")?,
            queue: settings.integer("Max Size of Message Queue")?,
            parses: settings.flag("Parse Messages")?,
            tls,
            source: None,
        })
    }
}

impl Processor for ListenSyslog {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let (port, is_tcp, parses) = (self.port, self.is_tcp, self.parses);
        let source = match &mut self.source {
            Some(source) => source,
            none => {
                let tls = self.tls.clone();
                none.insert(Source::open(context, self.queue, |inlet| {
                    let runtime = context.runtime();
                    let opened = if is_tcp {
                        let frames = (Framing::Syslog, NET_MESSAGE_BYTES_MAX);
                        Sockets::listen_tcp(runtime, port, tls, frames, inlet)
                    } else {
                        Sockets::listen_udp(runtime, port, inlet)
                    };
                    opened.map_err(|error| unheard(port, &error))
                })?)
            }
        };
        source.take(context, session, self.batch, "syslog", |message| {
            place(message, port, is_tcp, parses)
        })
    }

    fn stop(&mut self) {
        self.source = None;
    }
}

fn place(message: &Received, port: u16, is_tcp: bool, parses: bool) -> Placed {
    let mut attributes = Attributes::new([
        (
            "syslog.protocol",
            if is_tcp { "TCP" } else { "UDP" }.to_owned(),
        ),
        ("syslog.port", port.to_string()),
        (
            "syslog.sender",
            message.sender.ip().to_canonical().to_string(),
        ),
    ]);
    let mut relationship = SUCCESS;
    if parses {
        let text = std::str::from_utf8(&message.bytes).ok();
        let parsed = text.and_then(|text| syslog::parse(text.trim_end_matches(['\n', '\0'])));
        attributes.set("syslog.valid", parsed.is_some().to_string());
        match parsed {
            None => relationship = INVALID,
            Some(parsed) => describe(&mut attributes, &parsed),
        }
    }
    Placed {
        relationship,
        attributes: Arc::new(attributes),
    }
}

fn describe(attributes: &mut Attributes, message: &syslog::Syslog<'_>) {
    attributes.set("syslog.priority", message.priority.to_string());
    attributes.set("syslog.facility", message.facility().to_string());
    attributes.set("syslog.severity", message.severity().to_string());
    if message.version > 0 {
        attributes.set("syslog.version", message.version.to_string());
    }
    for (name, value) in [
        ("syslog.timestamp", message.timestamp),
        ("syslog.hostname", message.hostname),
        ("syslog.app_name", message.app_name),
        ("syslog.proc_id", message.proc_id),
        ("syslog.msg_id", message.msg_id),
        ("syslog.structured_data", message.structured_data),
        ("syslog.msg", message.message),
    ] {
        if message.version > 0 || !value.is_empty() {
            attributes.set(name, value);
        }
    }
}

const SUCCESS: usize = 0;
const INVALID: usize = 1;
