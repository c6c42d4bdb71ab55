//! What ConsumeKafka is: its properties and relationships.

use super::super::kafka_properties::{
    PASSWORD, SASL_MECHANISM, SECURITY_PROTOCOL, SSL_CONTEXT, USERNAME,
};
use super::super::{
    AttributeKind, Dynamic, Expressions, Input, ProcessorKind, PropertyKind, RelationshipKind,
    Shape,
};
use super::ConsumeKafka;

/// The processor's definition.
pub(in super::super) const KIND: ProcessorKind = ProcessorKind {
    name: "ConsumeKafka",
    description: "Reads topics as a member of a consumer group; each record comes once over \
                  crashes of the agent, and offsets are committed when FlowFiles are durable.",
    properties: &[
        PropertyKind::new("Kafka Brokers", "Addresses host:port, separated by commas.")
            .default("localhost:9092")
            .required()
            .expressions(Expressions::Once),
        PropertyKind::new(
            "Topic Names",
            "Topics, separated by commas, or one pattern.",
        )
        .required()
        .expressions(Expressions::Once),
        PropertyKind::new(
            "Topic Name Format",
            "Names, or Patterns for one regular expression over whole names.",
        )
        .default("Names")
        .allowed(&["Names", "Patterns"]),
        PropertyKind::new("Group ID", "The group whose members share the partitions.")
            .required()
            .expressions(Expressions::Once),
        PropertyKind::new(
            "Client Name",
            "As what the agent shows itself to the broker.",
        )
        .expressions(Expressions::Once),
        PropertyKind::new(
            "Offset Reset",
            "Where reading starts when the group has no offset or a lost one; with none that is \
             an error.",
        )
        .default("latest")
        .allowed(&["earliest", "latest", "none"]),
        PropertyKind::new("Max Poll Records", "Records committed together at most.")
            .default("10000")
            .shape(Shape::Integer(1)),
        PropertyKind::new("Max Poll Time", "Longest wait for records in one trigger.")
            .default("4 seconds")
            .shape(Shape::Duration),
        PropertyKind::new(
            "Session Timeout",
            "Silence after which the group gives the agent's partitions to others.",
        )
        .default("60 seconds")
        .shape(Shape::Duration),
        PropertyKind::new(
            "Honor Transactions",
            "Whether records of a transaction come only when it is committed.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Message Demarcator",
            "When set, consecutive records of a partition share a FlowFile, with this between \
             them.",
        )
        .expressions(Expressions::Once),
        PropertyKind::new(
            "Headers To Add As Attributes",
            "Regular expressions over whole names of headers, separated by commas.",
        ),
        PropertyKind::new(
            "Duplicate Header Handling",
            "What becomes of a header that a record has several times.",
        )
        .default("Keep Latest")
        .allowed(&["Keep First", "Keep Latest", "Comma-separated Merge"]),
        PropertyKind::new("Message Header Encoding", "How header values become text.")
            .default("UTF-8")
            .allowed(&["UTF-8", "Hex"]),
        PropertyKind::new("Key Attribute Encoding", "How keys become text.")
            .default("UTF-8")
            .allowed(&["UTF-8", "Hex"]),
        SECURITY_PROTOCOL,
        SASL_MECHANISM,
        USERNAME,
        PASSWORD,
        SSL_CONTEXT,
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "Records as FlowFiles.",
    }],
    writes: &[
        AttributeKind::new("kafka.topic", "The topic."),
        AttributeKind::new("kafka.partition", "The partition."),
        AttributeKind::new("kafka.offset", "The offset of the (first) record."),
        AttributeKind::new("kafka.count", "Records in the FlowFile."),
        AttributeKind::new("kafka.key", "The key of a lone record that has one."),
        AttributeKind::new(
            "kafka.timestamp",
            "The time of a lone record, in milliseconds.",
        ),
        AttributeKind::new(
            "<header>",
            "Headers that Headers To Add As Attributes names.",
        ),
    ],
    input: Input::Forbidden,
    make: |settings| ConsumeKafka::new(settings).map(|made| Box::new(made) as _),
};
