//! What InvokeHTTP is: its properties and relationships.

use super::super::{
    AttributeKind, Dynamic, Expressions, Input, ProcessorKind, PropertyKind, RelationshipKind,
    Shape,
};
use super::InvokeHttp;

/// The processor's definition.
pub(in super::super) const KIND: ProcessorKind = ProcessorKind {
    name: "InvokeHTTP",
    description: "Makes an HTTP request for each FlowFile, or by its schedule when nothing leads \
                  to it.",
    properties: &[
        PropertyKind::new(
            "HTTP Method",
            "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS or any.",
        )
        .default("GET")
        .required()
        .expressions(Expressions::FlowFile),
        PropertyKind::new("Remote URL", "Where the request goes.")
            .required()
            .expressions(Expressions::FlowFile),
        PropertyKind::new("Connection Timeout", "Longest wait for a connection.")
            .default("5 s")
            .shape(Shape::Duration),
        PropertyKind::new(
            "Read Timeout",
            "Longest time in which nothing goes over the connection, either way.",
        )
        .default("15 s")
        .shape(Shape::Duration),
        PropertyKind::new(
            "Include Date Header",
            "Whether the request says when it was made.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Attributes to Send",
            "Regular expression over whole names of attributes that become headers.",
        ),
        PropertyKind::new(
            "Invalid HTTP Header Field Handling Strategy",
            "What becomes of such an attribute whose name no header can have: fail, transform \
             (other characters become dashes) or drop.",
        )
        .default("transform")
        .allowed(&["fail", "transform", "drop"]),
        PropertyKind::new(
            "SSL Context Service",
            "The client's certificate and authorities.",
        )
        .shape(Shape::Service("SSLContextService")),
        PropertyKind::new(
            "Disable Peer Verification",
            "Whether any server is believed.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Proxy Configuration Service",
            "The proxy, instead of the next four.",
        )
        .shape(Shape::Service("ProxyConfigurationService")),
        PropertyKind::new(
            "Proxy Host",
            "The proxy's host, https:// before it when it speaks TLS.",
        )
        .expressions(Expressions::Once),
        PropertyKind::new("Proxy Port", "The proxy's port.").expressions(Expressions::Once),
        PropertyKind::new(
            "invokehttp-proxy-username",
            "Who the agent is to the proxy.",
        )
        .expressions(Expressions::Once),
        PropertyKind::new("invokehttp-proxy-password", "That user's password.")
            .expressions(Expressions::Once)
            .sensitive(),
        PropertyKind::new(
            "Request Username",
            "Who the agent is to the server (basic).",
        )
        .expressions(Expressions::Once),
        PropertyKind::new("Request Password", "That user's password.")
            .expressions(Expressions::Once)
            .sensitive(),
        PropertyKind::new("Content-type", "What a request's body is.")
            .default("application/octet-stream")
            .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Send Message Body",
            "Whether POST, PUT and PATCH carry the content.",
        )
        .also(&"send-message-body")
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Use Chunked Encoding",
            "Whether a body goes without its length.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Put Response Body in Attribute",
            "Name of an attribute of the original that takes the answer, up to 64 KiB, instead \
             of a FlowFile of its own.",
        )
        .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Always Output Response",
            "Whether every answer becomes a FlowFile, not only a good one.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Penalize on \"No Retry\"",
            "Whether FlowFiles for 'no retry' wait.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Follow Redirects",
            "Whether the client goes where it is sent.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Upload Speed Limit",
            "Bytes a second up at most, as `100 KB/s`.",
        )
        .shape(Shape::Speed),
        PropertyKind::new("Download Speed Limit", "Bytes a second down at most.")
            .shape(Shape::Speed),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "Originals whose request was answered by 2xx.",
        },
        RelationshipKind {
            name: "response",
            description: "Answers, of 2xx or of any when Always Output Response is set.",
        },
        RelationshipKind {
            name: "retry",
            description: "Originals answered by 5xx: the server may do it another time.",
        },
        RelationshipKind {
            name: "no retry",
            description: "Originals answered by 1xx, 3xx or 4xx: it will not help to try again.",
        },
        RelationshipKind {
            name: "failure",
            description: "Originals that were not answered: no connection, no time, no URL.",
        },
    ],
    writes: &[
        AttributeKind::new("invokehttp.status.code", "The answer's status."),
        AttributeKind::new("invokehttp.status.message", "What the status means."),
        AttributeKind::new("invokehttp.request.url", "Where the request went."),
        AttributeKind::new(
            "invokehttp.tx.id",
            "The same on the original and its answer.",
        ),
        AttributeKind::new(
            "mime.type",
            "What an answer is, by its Content-Type, else application/octet-stream.",
        ),
        AttributeKind::new("<header>", "On an answer: its headers, in small letters."),
    ],
    input: Input::Allowed,
    make: |settings| InvokeHttp::new(settings).map(|made| Box::new(made) as _),
};
