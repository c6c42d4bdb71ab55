//! PublishKafka's definition.

use super::PublishKafka;
use crate::processors::kafka_properties::{
    PASSWORD, SASL_MECHANISM, SECURITY_PROTOCOL, SSL_CONTEXT, USERNAME,
};
use crate::processors::tls_files::{
    SECURITY_CA, SECURITY_CERT, SECURITY_KEY, SECURITY_PASS_PHRASE,
};
use crate::processors::{
    Dynamic, Expressions, Input, ProcessorKind, PropertyKind, RelationshipKind, Shape,
};

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "PublishKafka",
    description: "Sends each FlowFile as a record, exactly once with a broker that knows \
                  idempotent producers (Kafka, Thalweg).",
    properties: &[
        PropertyKind::new("Known Brokers", "Addresses host:port, separated by commas.")
            .required()
            .expressions(Expressions::Once),
        PropertyKind::new("Topic Name", "Where records go.")
            .required()
            .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Client Name",
            "As what the agent shows itself to the broker.",
        )
        .required()
        .expressions(Expressions::Once),
        PropertyKind::new(
            "Kafka Key",
            "The record's key; without one records go in turn, where MiNiFi's key is the FlowFile's \
             uuid.",
        )
        .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Delivery Guarantee",
            "How many replicas have a record when it counts as sent: all (or -1, or as in MiNiFi \
             DELIVERY_ONE_NODE), 1, or 0, which waits for no answer and may lose records.",
        )
        .default("1")
        .allowed(&[
            "all",
            "-1",
            "1",
            "0",
            "DELIVERY_REPLICATED",
            "DELIVERY_ONE_NODE",
            "DELIVERY_BEST_EFFORT",
        ])
        .expressions(Expressions::Once),
        PropertyKind::new(
            "Batch Size",
            "FlowFiles sent together at most. MiNiFi's default is 10; here what waits goes \
             together up to Target Batch Payload Size.",
        )
        .default("10000")
        .shape(Shape::Integer(1)),
        PropertyKind::new(
            "Target Batch Payload Size",
            "Content bytes sent together at most; 0 B stands for 512 KB. Where more waits, two \
             such batches of a partition are under way.",
        )
        .default("512 KB")
        .shape(Shape::Size),
        PropertyKind::new(
            "Queue Buffering Max Time",
            "How long a batch that is not full waits for more.",
        )
        .default("5 millis")
        .shape(Shape::Duration),
        PropertyKind::new(
            "Message Timeout",
            "Longest wait for a broker's answer to one try.",
        )
        .default("30 sec")
        .shape(Shape::Duration),
        PropertyKind::new(
            "Request Timeout",
            "Longest time that a broker may wait for its replicas; Message Timeout bounds it.",
        )
        .default("10 sec")
        .shape(Shape::Duration),
        PropertyKind::new("Queue Max Message", "A further bound of Batch Size.")
            .shape(Shape::Integer(1)),
        PropertyKind::new(
            "Queue Max Buffer Size",
            "A further bound of Target Batch Payload Size.",
        )
        .shape(Shape::Size),
        PropertyKind::new(
            "Max Flow Segment Size",
            "Content bytes of a record at most; 0 B: a FlowFile is always one record.",
        )
        .default("0 B")
        .allowed(&["0 B"]),
        PropertyKind::new("Compress Codec", "How the records of a batch are packed.")
            .default("none")
            .allowed(&["none", "gzip", "snappy", "lz4", "zstd"]),
        PropertyKind::new(
            "Attributes to Send as Headers",
            "Regular expression over whole names of attributes that become headers.",
        ),
        PropertyKind::new(
            "Fail empty flow files",
            "Whether a FlowFile without content fails, such as an empty line of a file; \
             otherwise it is an empty record.",
        )
        .default("true")
        .shape(Shape::Flag),
        SECURITY_PROTOCOL,
        SASL_MECHANISM,
        USERNAME,
        PASSWORD,
        SSL_CONTEXT,
        SECURITY_CA,
        SECURITY_CERT,
        SECURITY_KEY,
        SECURITY_PASS_PHRASE,
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles that the broker has.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that the broker will never take: too large, no such topic.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| PublishKafka::new(settings).map(|made| Box::new(made) as _),
};
