//! The table: name, kind, default, what may be written, and what it means.

use super::ConfigError;
use crate::config::{Durability, StreamsConfig};
use crate::topic::TopicName;

/// A setting of topics.
pub struct Setting {
    /// Its name, Kafka's where Kafka has it.
    pub name: &'static str,
    /// Its kind of value.
    pub kind: ValueKind,
    /// What it does, in a sentence.
    pub doc: &'static str,
    /// The node's setting that gives the default, under Kafka's name.
    pub node_name: Option<&'static str>,
    default: Default,
    may_be: MayBe,
}

/// Kinds of values, as Kafka tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `true` or `false`.
    Boolean,
    /// A text.
    String,
    /// A whole number of 32 bits.
    Int,
    /// A whole number of 64 bits.
    Long,
    /// A number with a fraction.
    Double,
    /// Texts with commas in between.
    List,
}

enum Default {
    Text(&'static str),
    /// By the store's configuration; the topic is none when any plain one is meant.
    Of(fn(&StreamsConfig, Option<&TopicName>) -> String),
}

enum MayBe {
    Boolean,
    /// A whole number in these bounds.
    Number(i64, i64),
    Ratio,
    OneOf(&'static [&'static str]),
    /// Some of these, or none.
    ListOf(&'static [&'static str]),
    AnyText,
}

impl Setting {
    /// The setting of this name.
    pub fn named(name: &str) -> Result<&'static Setting, ConfigError> {
        let found = SETTINGS.iter().find(|setting| setting.name == name);
        found.ok_or_else(|| ConfigError::Unknown {
            of: "topics",
            name: name.to_owned(),
        })
    }

    /// What holds for `topic`, or any plain topic, when nothing is set.
    pub fn default(&self, config: &StreamsConfig, topic: Option<&TopicName>) -> String {
        match self.default {
            Default::Text(text) => text.to_owned(),
            Default::Of(default) => default(config, topic),
        }
    }

    /// Whether its default comes from the store's configuration.
    pub fn is_configured(&self) -> bool {
        matches!(self.default, Default::Of(_))
    }

    /// Whether `value` may be written.
    pub fn check(&self, value: &str) -> Result<(), ConfigError> {
        let is_good = match self.may_be {
            MayBe::Boolean => matches!(value, "true" | "false"),
            MayBe::Number(min, max) => value
                .parse::<i64>()
                .is_ok_and(|number| (min..=max).contains(&number)),
            MayBe::Ratio => value
                .parse::<f64>()
                .is_ok_and(|ratio| (0.0..=1.0).contains(&ratio)),
            MayBe::OneOf(texts) => texts.contains(&value),
            MayBe::ListOf(_) if value.is_empty() => true,
            MayBe::ListOf(texts) => value.split(',').all(|one| texts.contains(&one.trim())),
            MayBe::AnyText => true,
        };
        if is_good {
            return Ok(());
        }
        Err(ConfigError::Value {
            name: self.name,
            value: value.to_owned(),
            wanted: self.wanted(),
        })
    }

    fn wanted(&self) -> String {
        match self.may_be {
            MayBe::Boolean => "true or false".to_owned(),
            MayBe::Number(min, max) if min == max => min.to_string(),
            MayBe::Number(min, max) => format!("a whole number from {min} to {max}"),
            MayBe::Ratio => "a number from 0 to 1".to_owned(),
            MayBe::OneOf([only]) => format!("{only}, all that is supported"),
            MayBe::OneOf(texts) | MayBe::ListOf(texts) => texts.join(" or "),
            MayBe::AnyText => "a text".to_owned(),
        }
    }
}

pub(super) fn durability_of(value: &str) -> Option<Durability> {
    match value {
        "memory" => Some(Durability::Memory),
        "os" => Some(Durability::Os),
        "disk" => Some(Durability::Disk),
        _ => None,
    }
}

/// Our own setting; no Kafka setting says the same.
pub(crate) const DURABILITY: &str = "thalweg.durability";

pub(super) const DAY_MS: u64 = 86_400_000;
pub(super) const HOUR_MS: i64 = 3_600_000;

const INT_MAX: i64 = i32::MAX as i64;
const FOREVER: &str = "9223372036854775807";

/// A setting that tells Kafka how to lay out its files, or its replicas: taken, without effect.
const fn without_effect(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    may_be: MayBe,
) -> Setting {
    Setting {
        name,
        kind,
        doc: "Taken for Kafka's sake and without effect here.",
        node_name: None,
        default: Default::Text(default),
        may_be,
    }
}

/// A setting of records that lie elsewhere.
const fn kept_here(name: &'static str) -> Setting {
    Setting {
        name,
        kind: ValueKind::Boolean,
        doc: "All records are kept here.",
        node_name: None,
        default: Default::Text("false"),
        may_be: MayBe::OneOf(&["false"]),
    }
}

/// Every setting of topics, in the order of their names.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "cleanup.policy",
        kind: ValueKind::List,
        doc: "What becomes of old records: deleted by age and size, compacted to the newest of \
              each key, both, or neither.",
        node_name: Some("log.cleanup.policy"),
        default: Default::Text("delete"),
        may_be: MayBe::ListOf(&["delete", "compact"]),
    },
    without_effect(
        "compression.gzip.level",
        ValueKind::Int,
        "-1",
        MayBe::Number(-1, 9),
    ),
    without_effect(
        "compression.lz4.level",
        ValueKind::Int,
        "9",
        MayBe::Number(1, 17),
    ),
    Setting {
        name: "compression.type",
        kind: ValueKind::String,
        doc: "How record batches are compressed; producer keeps each as it came.",
        node_name: Some("compression.type"),
        default: Default::Of(|config, topic| {
            let compression = topic.map(|topic| config.compression(topic));
            compression.unwrap_or_default().name().to_owned()
        }),
        may_be: MayBe::OneOf(&["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    },
    without_effect(
        "compression.zstd.level",
        ValueKind::Int,
        "3",
        MayBe::Number(-131_072, 22),
    ),
    Setting {
        name: "delete.retention.ms",
        kind: ValueKind::Long,
        doc: "How long a compacted topic keeps a tombstone, in ms.",
        node_name: Some("log.cleaner.delete.retention.ms"),
        default: Default::Text("86400000"),
        may_be: MayBe::Number(0, i64::MAX),
    },
    without_effect(
        "file.delete.delay.ms",
        ValueKind::Long,
        "60000",
        MayBe::Number(0, i64::MAX),
    ),
    without_effect(
        "flush.messages",
        ValueKind::Long,
        FOREVER,
        MayBe::Number(1, i64::MAX),
    ),
    without_effect(
        "flush.ms",
        ValueKind::Long,
        FOREVER,
        MayBe::Number(0, i64::MAX),
    ),
    without_effect(
        "follower.replication.throttled.replicas",
        ValueKind::List,
        "",
        MayBe::AnyText,
    ),
    without_effect(
        "index.interval.bytes",
        ValueKind::Int,
        "4096",
        MayBe::Number(0, INT_MAX),
    ),
    without_effect(
        "leader.replication.throttled.replicas",
        ValueKind::List,
        "",
        MayBe::AnyText,
    ),
    without_effect(
        "local.retention.bytes",
        ValueKind::Long,
        "-2",
        MayBe::Number(-2, i64::MAX),
    ),
    without_effect(
        "local.retention.ms",
        ValueKind::Long,
        "-2",
        MayBe::Number(-2, i64::MAX),
    ),
    Setting {
        name: "max.compaction.lag.ms",
        kind: ValueKind::Long,
        doc: "Age at which a record of a compacted topic is compacted at the latest, in ms.",
        node_name: Some("log.cleaner.max.compaction.lag.ms"),
        default: Default::Text(FOREVER),
        may_be: MayBe::Number(1, i64::MAX),
    },
    Setting {
        name: "max.message.bytes",
        kind: ValueKind::Int,
        doc: "Largest record batch taken, in bytes; never above a quarter of a journal segment.",
        node_name: Some("message.max.bytes"),
        default: Default::Of(|config, _| config.max_message_bytes.0.to_string()),
        may_be: MayBe::Number(0, INT_MAX),
    },
    without_effect(
        "message.downconversion.enable",
        ValueKind::Boolean,
        "true",
        MayBe::Boolean,
    ),
    Setting {
        name: "message.timestamp.after.max.ms",
        kind: ValueKind::Long,
        doc: "How far a record's time may lie after that of its storing, in ms.",
        node_name: Some("log.message.timestamp.after.max.ms"),
        default: Default::Text("3600000"),
        may_be: MayBe::Number(0, i64::MAX),
    },
    Setting {
        name: "message.timestamp.before.max.ms",
        kind: ValueKind::Long,
        doc: "How far a record's time may lie before that of its storing, in ms.",
        node_name: Some("log.message.timestamp.before.max.ms"),
        default: Default::Text(FOREVER),
        may_be: MayBe::Number(0, i64::MAX),
    },
    Setting {
        name: "message.timestamp.type",
        kind: ValueKind::String,
        doc: "Whether a record's time is its producer's or that of its storing.",
        node_name: Some("log.message.timestamp.type"),
        default: Default::Text("CreateTime"),
        may_be: MayBe::OneOf(&["CreateTime", "LogAppendTime"]),
    },
    Setting {
        name: "min.cleanable.dirty.ratio",
        kind: ValueKind::Double,
        doc: "Share of records not yet compacted at which compaction begins.",
        node_name: Some("log.cleaner.min.cleanable.ratio"),
        default: Default::Text("0.5"),
        may_be: MayBe::Ratio,
    },
    Setting {
        name: "min.compaction.lag.ms",
        kind: ValueKind::Long,
        doc: "Age below which a record is not compacted away, in ms.",
        node_name: Some("log.cleaner.min.compaction.lag.ms"),
        default: Default::Text("0"),
        may_be: MayBe::Number(0, i64::MAX),
    },
    Setting {
        name: "min.insync.replicas",
        kind: ValueKind::Int,
        doc: "One node keeps one replica.",
        node_name: Some("min.insync.replicas"),
        default: Default::Text("1"),
        may_be: MayBe::Number(1, 1),
    },
    without_effect("preallocate", ValueKind::Boolean, "false", MayBe::Boolean),
    kept_here("remote.log.copy.disable"),
    kept_here("remote.log.delete.on.disable"),
    kept_here("remote.storage.enable"),
    Setting {
        name: "retention.bytes",
        kind: ValueKind::Long,
        doc: "Bytes that a partition keeps at least before its oldest batches go; -1 keeps all.",
        node_name: Some("log.retention.bytes"),
        default: Default::Text("-1"),
        may_be: MayBe::Number(-1, i64::MAX),
    },
    Setting {
        name: "retention.ms",
        kind: ValueKind::Long,
        doc: "Age at which records expire, in ms; -1 keeps them.",
        node_name: Some("log.retention.ms"),
        default: Default::Of(|config, topic| {
            let retention = match topic {
                Some(topic) => config.ttl(topic),
                None => config.plain_retention(),
            };
            retention.map_or("-1".to_owned(), |age| age.as_millis().to_string())
        }),
        may_be: MayBe::Number(-1, i64::MAX),
    },
    without_effect(
        "segment.bytes",
        ValueKind::Int,
        "1073741824",
        MayBe::Number(14, INT_MAX),
    ),
    without_effect(
        "segment.index.bytes",
        ValueKind::Int,
        "10485760",
        MayBe::Number(4, INT_MAX),
    ),
    without_effect(
        "segment.jitter.ms",
        ValueKind::Long,
        "0",
        MayBe::Number(0, i64::MAX),
    ),
    without_effect(
        "segment.ms",
        ValueKind::Long,
        "604800000",
        MayBe::Number(1, i64::MAX),
    ),
    Setting {
        name: DURABILITY,
        kind: ValueKind::String,
        doc: "What an acknowledgement with acks=all survives: nothing, the process' end, the \
              machine's.",
        node_name: Some(DURABILITY),
        default: Default::Of(|config, _| config.durability.name().to_owned()),
        may_be: MayBe::OneOf(&["memory", "os", "disk"]),
    },
    without_effect(
        "unclean.leader.election.enable",
        ValueKind::Boolean,
        "false",
        MayBe::Boolean,
    ),
];
