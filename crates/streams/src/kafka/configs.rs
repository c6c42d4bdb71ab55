//! DescribeConfigs: the settings under Kafka's names, with the values that really hold.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::metadata;
use super::reply::{Call, Ending, Reply, owned, text};
use crate::{Durability, StreamsConfig};

/// A setting as Kafka's tools show it.
pub(super) struct Config {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) is_read_only: bool,
    /// Kafka's number for where the value comes from.
    pub(super) source: i8,
    kind: i8,
}

/// Describes topics and the node.
pub(super) fn describe_configs(call: Call) -> Result<Reply, Ending> {
    let request: DescribeConfigsRequest = call.decode("DescribeConfigs")?;
    let results = request.resources.iter().map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match configs_of(&call, resource) {
            Ok(configs) => {
                let told = configs
                    .into_iter()
                    .filter(|config| is_asked(resource, config.name))
                    .map(|config| told(&call, config, request.include_synonyms));
                result.with_configs(told.collect())
            }
            Err((code, reason)) => result
                .with_error_code(code)
                .with_error_message(Some(owned(reason))),
        }
    });
    let body = DescribeConfigsResponse::default().with_results(results.collect());
    call.now(&body)
}

/// The settings of a topic.
pub(super) fn of_topic(config: &StreamsConfig, durability: Durability) -> Vec<Config> {
    vec![
        Config::of_topic("cleanup.policy", "delete".into(), LIST),
        Config::of_topic("compression.type", "producer".into(), STRING),
        Config {
            source: if durability == config.durability {
                DEFAULT
            } else {
                OF_TOPIC
            },
            ..Config::of_topic(DURABILITY, name_of(durability).into(), STRING)
        },
        Config::of_topic(
            "max.message.bytes",
            config.max_message_bytes.0.to_string(),
            INT,
        ),
        Config::of_topic("message.timestamp.type", "CreateTime".into(), STRING),
        Config::of_topic("min.insync.replicas", "1".into(), INT),
        Config::of_topic("retention.bytes", "-1".into(), LONG),
        Config::of_topic("retention.ms", "-1".into(), LONG),
        Config::of_topic("segment.bytes", config.segment_bytes.0.to_string(), INT),
    ]
}

/// The durability that a topic's creation asks for. Settings that say what holds anyway are taken;
/// any other is refused rather than forgotten.
pub(super) fn durability_asked<'a>(
    asked: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Option<Durability>, String> {
    let mut durability = None;
    for (name, value) in asked {
        match (name, value.unwrap_or_default()) {
            (DURABILITY, "memory") => durability = Some(Durability::Memory),
            (DURABILITY, "os") => durability = Some(Durability::Os),
            (DURABILITY, "disk") => durability = Some(Durability::Disk),
            (DURABILITY, other) => {
                return Err(format!(
                    "{DURABILITY} is '{other}': write memory, os or disk"
                ));
            }
            ("cleanup.policy", "delete")
            | ("compression.type", "producer")
            | ("message.timestamp.type", "CreateTime")
            | ("min.insync.replicas", "1")
            | ("retention.bytes" | "retention.ms", "-1") => {}
            (name, value) => return Err(format!("{name}={value} is not supported for a topic")),
        }
    }
    Ok(durability)
}

impl Config {
    fn of_topic(name: &'static str, value: String, kind: i8) -> Self {
        Config {
            name,
            value,
            is_read_only: true,
            source: DEFAULT,
            kind,
        }
    }

    fn of_node(name: &'static str, value: String, kind: i8) -> Self {
        Config {
            name,
            value,
            is_read_only: true,
            source: OF_NODE,
            kind,
        }
    }
}

fn configs_of(
    call: &Call,
    resource: &DescribeConfigsResource,
) -> Result<Vec<Config>, (i16, String)> {
    let streams = call.context.streams();
    let config = streams.config();
    match resource.resource_type {
        TOPIC => {
            let name = kafka_protocol::messages::TopicName(resource.resource_name.clone());
            let topic = metadata::find(&call.context, &name)
                .map_err(|code| (code, "there is no such topic".to_owned()))?;
            Ok(of_topic(config, topic.durability()))
        }
        NODE => {
            let own = streams.node_id().to_string();
            if !resource.resource_name.is_empty() && resource.resource_name.as_str() != own {
                let reason = format!("this is node {own}, there is no other");
                return Err((ResponseError::InvalidRequest.code(), reason));
            }
            Ok(vec![
                Config::of_node(
                    "auto.create.topics.enable",
                    config.auto_create_topics.to_string(),
                    BOOLEAN,
                ),
                Config::of_node("default.replication.factor", "1".into(), INT),
                Config::of_node(DURABILITY, name_of(config.durability).into(), STRING),
                Config::of_node("log.segment.bytes", config.segment_bytes.0.to_string(), INT),
                Config::of_node(
                    "message.max.bytes",
                    config.max_message_bytes.0.to_string(),
                    INT,
                ),
                Config::of_node("node.id", own, INT),
                Config::of_node("num.partitions", config.default_partitions.to_string(), INT),
            ])
        }
        other => {
            let reason = format!("resources of type {other} have no settings here");
            Err((ResponseError::InvalidRequest.code(), reason))
        }
    }
}

fn is_asked(resource: &DescribeConfigsResource, name: &str) -> bool {
    match &resource.configuration_keys {
        None => true,
        Some(keys) => keys.iter().any(|key| key.as_str() == name),
    }
}

fn told(call: &Call, config: Config, with_synonyms: bool) -> DescribeConfigsResourceResult {
    let value = owned(config.value);
    let synonyms = if with_synonyms {
        vec![
            DescribeConfigsSynonym::default()
                .with_name(text(config.name))
                .with_value(Some(value.clone()))
                .with_source(config.source),
        ]
    } else {
        Vec::new()
    };
    let told = DescribeConfigsResourceResult::default()
        .with_name(text(config.name))
        .with_value(Some(value))
        .with_read_only(config.is_read_only)
        .with_config_source(config.source)
        .with_synonyms(synonyms);
    if call.version >= 3 {
        told.with_config_type(config.kind)
    } else {
        told
    }
}

fn name_of(durability: Durability) -> &'static str {
    match durability {
        Durability::Memory => "memory",
        Durability::Os => "os",
        Durability::Disk => "disk",
    }
}

/// Our own setting; no Kafka setting says the same.
const DURABILITY: &str = "thalweg.durability";

/// Kafka's numbers for kinds of resources.
const TOPIC: i8 = 2;
const NODE: i8 = 4;

/// Kafka's numbers for where a value comes from.
const OF_TOPIC: i8 = 1;
const OF_NODE: i8 = 4;
const DEFAULT: i8 = 5;

/// Kafka's numbers for kinds of values.
const BOOLEAN: i8 = 1;
const STRING: i8 = 2;
const INT: i8 = 3;
const LONG: i8 = 5;
const LIST: i8 = 7;
