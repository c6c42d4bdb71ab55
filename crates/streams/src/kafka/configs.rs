//! DescribeConfigs, IncrementalAlterConfigs, AlterConfigs and ListConfigResources: the tables of
//! topics' and groups' settings, and the node's settings under Kafka's names with the values that
//! really hold.
//!
//! The node's settings come from its configuration file and are changed there.

use std::collections::BTreeSet;

use access::{Operation, ResourceType};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse as Altered;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::incremental_alter_configs_request::AlterableConfig;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::list_config_resources_response::ConfigResource;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, ListConfigResourcesRequest,
    ListConfigResourcesResponse, TopicName as WireName,
};
use kafka_protocol::protocol::StrBytes;

use super::limits::DESCRIBED_RESOURCES_MAX;
use super::metadata;
use super::reply::{Call, Ending, Reply, once, owned, text};
use super::topics::Refusal;
use crate::administration::node_settings;
use crate::group_config::GROUP_SETTINGS;
use crate::groups::GroupsConfig;
use crate::{
    ConfigChange, Durability, GroupConfig, HeldSetting, SETTINGS, Setting, StreamsConfig,
    StreamsError, TopicConfig, TopicName, ValueKind,
};

/// A setting as Kafka's tools show it.
pub(super) struct Config {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) is_read_only: bool,
    /// Kafka's number for where the value comes from.
    pub(super) source: i8,
    kind: i8,
    doc: &'static str,
    /// The node's setting that would hold without the topic's: its name and value.
    behind: Option<(&'static str, String)>,
}

/// Describes topics, groups and the node.
pub(super) fn describe_configs(call: Call) -> Result<Reply, Ending> {
    let request: DescribeConfigsRequest = call.decode("DescribeConfigs")?;
    let resources = request.resources.clone();
    let resources = once(resources, |r| (r.resource_type, r.resource_name.clone()));
    let results = resources.iter().enumerate().map(|(at, resource)| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        if at >= DESCRIBED_RESOURCES_MAX {
            let reason = format!("ask for {DESCRIBED_RESOURCES_MAX} resources at a time");
            return result
                .with_error_code(ResponseError::InvalidRequest.code())
                .with_error_message(Some(owned(reason)));
        }
        match configs_of(&call, resource) {
            Ok(configs) => {
                let told = configs
                    .into_iter()
                    .filter(|config| is_asked(resource, config.name))
                    .map(|config| told(&call, config, &request));
                result.with_configs(told.collect())
            }
            Err(refusal) => result
                .with_error_code(refusal.code)
                .with_error_message(Some(owned(refusal.reason))),
        }
    });
    let body = DescribeConfigsResponse::default().with_results(results.collect());
    call.now(&body)
}

/// Changes single settings of topics and groups; each resource all or none, durable when answered.
pub(super) fn incremental_alter_configs(call: Call) -> Result<Reply, Ending> {
    let request: IncrementalAlterConfigsRequest = call.decode("IncrementalAlterConfigs")?;
    Reply::later(async move {
        let mut seen = BTreeSet::new();
        let mut responses = Vec::with_capacity(request.resources.len());
        for resource in request.resources {
            let (kind, name) = (resource.resource_type, resource.resource_name);
            let changed = match meant(&call, &mut seen, kind, &name) {
                Ok(meant) => alter(&call, &meant, &resource.configs, request.validate_only).await,
                Err(refusal) => Err(refusal),
            };
            let (code, reason) = Refusal::told(changed);
            responses.push(
                AlterConfigsResourceResponse::default()
                    .with_resource_type(kind)
                    .with_resource_name(name)
                    .with_error_code(code)
                    .with_error_message(reason),
            );
        }
        call.answer(&IncrementalAlterConfigsResponse::default().with_responses(responses))
    })
}

/// Sets all settings of topics and groups; those not named get their defaults.
pub(super) fn alter_configs(call: Call) -> Result<Reply, Ending> {
    let request: AlterConfigsRequest = call.decode("AlterConfigs")?;
    Reply::later(async move {
        let mut seen = BTreeSet::new();
        let mut responses = Vec::with_capacity(request.resources.len());
        for resource in request.resources {
            let (kind, name) = (resource.resource_type, resource.resource_name);
            let set = resource.configs.iter();
            let set: Vec<_> = set.map(|c| (c.name.clone(), c.value.clone())).collect();
            let changed = match meant(&call, &mut seen, kind, &name) {
                Ok(meant) => replace(&call, &meant, &set, request.validate_only).await,
                Err(refusal) => Err(refusal),
            };
            let (code, reason) = Refusal::told(changed);
            responses.push(
                Altered::default()
                    .with_resource_type(kind)
                    .with_resource_name(name)
                    .with_error_code(code)
                    .with_error_message(reason),
            );
        }
        call.answer(&AlterConfigsResponse::default().with_responses(responses))
    })
}

/// Lists what there is whose settings can be told, and groups for which something is set.
pub(super) fn list_config_resources(call: Call) -> Result<Reply, Ending> {
    let request: ListConfigResourcesRequest = call.decode("ListConfigResources")?;
    let body = ListConfigResourcesResponse::default();
    if !call.may_cluster(Operation::DescribeConfigs) {
        let code = ResponseError::ClusterAuthorizationFailed.code();
        return call.now(&body.with_error_code(code));
    }
    // Before version 1 it asked for subscriptions to metrics, of which there are none.
    let asked = match request.resource_types.as_slice() {
        _ if call.version == 0 => &[METRICS],
        [] => LISTED,
        asked => asked,
    };
    if asked.iter().any(|kind| !LISTED.contains(kind)) {
        let code = ResponseError::UnsupportedVersion.code();
        return call.now(&body.with_error_code(code));
    }
    let streams = call.context.streams();
    let mut listed = Vec::new();
    let mut list = |kind: i8, name: String| {
        let resource = ConfigResource::default()
            .with_resource_name(owned(name))
            .with_resource_type(kind);
        listed.push(resource);
    };
    let is_foreign = |kind, name: &str| {
        let operation = Operation::DescribeConfigs;
        call.context.is_foreign(operation, kind, name)
    };
    if asked.contains(&TOPIC) {
        let mut topics = streams.topics_snapshot();
        topics.retain(|topic| !is_foreign(ResourceType::Topic, topic.name().wire_name()));
        for topic in topics {
            list(TOPIC, topic.name().wire_name().to_owned());
        }
    }
    if asked.contains(&NODE) {
        list(NODE, streams.node_id().to_string());
    }
    if asked.contains(&GROUP) {
        for group in streams.groups_with_settings() {
            if !is_foreign(ResourceType::Group, &group) {
                list(GROUP, group.as_ref().to_owned());
            }
        }
    }
    call.now(&body.with_config_resources(listed))
}

/// The settings of a topic, by name.
pub(super) fn of_topic(
    config: &StreamsConfig,
    topic: &TopicName,
    set: &TopicConfig,
    durability: Durability,
) -> Vec<Config> {
    let default_durability = config.durability;
    let of = |setting: &'static Setting| {
        let default = setting.default(config, Some(topic));
        let set = if setting.name == DURABILITY {
            Some(durability.name()).filter(|_| durability != default_durability)
        } else {
            set.value(setting.name)
        };
        Config {
            name: setting.name,
            value: set.map_or_else(|| default.clone(), str::to_owned),
            is_read_only: false,
            source: if set.is_some() { OF_TOPIC } else { DEFAULT },
            kind: number_of(setting.kind),
            doc: setting.doc,
            behind: setting.node_name.map(|name| (name, default)),
        }
    };
    SETTINGS.iter().map(of).collect()
}

/// The settings that a topic's creation asks for.
pub(super) fn asked<'a>(
    asked: impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone,
) -> Result<TopicConfig, Refusal> {
    // Kafka has another code for it here than where settings are altered.
    if let Some((name, _)) = asked.clone().find(|(_, value)| value.is_none()) {
        let reason = format!("{name} has no value: leave it out to have its default");
        return Err(Refusal::of(ResponseError::InvalidConfig, reason));
    }
    let set = asked.filter_map(|(name, value)| Some((name, value?)));
    Ok(TopicConfig::of(set).map_err(StreamsError::from)?)
}

/// What has settings.
enum Meant {
    Topic(TopicName),
    Group(String),
    /// Has none that can be changed here.
    Node,
}

/// What a resource means.
fn meant(
    call: &Call,
    seen: &mut BTreeSet<(i8, StrBytes)>,
    kind: i8,
    name: &StrBytes,
) -> Result<Meant, Refusal> {
    let refuse = |reason: &str| Err(Refusal::of(ResponseError::InvalidRequest, reason));
    if !seen.insert((kind, name.clone())) {
        return refuse("the request names it twice");
    }
    match kind {
        TOPIC => {
            let topic: TopicName = name.parse().map_err(StreamsError::from)?;
            if !call.may_topic(Operation::AlterConfigs, &topic) {
                return Err(not_allowed(ResponseError::TopicAuthorizationFailed));
            }
            Ok(Meant::Topic(topic))
        }
        GROUP => {
            check_group(call, Operation::AlterConfigs, name)?;
            Ok(Meant::Group(name.to_string()))
        }
        NODE if !call.may_cluster(Operation::AlterConfigs) => {
            Err(not_allowed(ResponseError::ClusterAuthorizationFailed))
        }
        NODE => check_node(call, name).map(|()| Meant::Node),
        other => refuse(&format!("resources of type {other} have no settings here")),
    }
}

fn not_allowed(code: ResponseError) -> Refusal {
    Refusal::of(code, "not allowed")
}

/// Whether the caller may do this to a group, and it can be one.
fn check_group(call: &Call, operation: Operation, name: &str) -> Result<(), Refusal> {
    if !call.may_group(operation, name) {
        return Err(not_allowed(ResponseError::GroupAuthorizationFailed));
    }
    if name.is_empty() {
        let reason = "the name of a group must not be empty";
        return Err(Refusal::of(ResponseError::InvalidRequest, reason));
    }
    Ok(())
}

/// Whether this is the node; no name stands for all of them.
fn check_node(call: &Call, name: &str) -> Result<(), Refusal> {
    let own = call.context.streams().node_id().to_string();
    if name.is_empty() || name == own {
        return Ok(());
    }
    let reason = format!("this is node {own}, there is no other");
    Err(Refusal::of(ResponseError::InvalidRequest, reason))
}

/// Takes what Kafka's tools set, and take back, of a node for moves of replicas: there are none, so
/// that any bound of theirs holds. All else stands in the node's file.
fn alter_node<'a>(mut set: impl Iterator<Item = &'a str>) -> Result<(), Refusal> {
    if set.all(|name| MOVE_BOUNDS.contains(&name)) {
        return Ok(());
    }
    let reason = "the node's settings are in its configuration file: change them there";
    Err(Refusal::of(ResponseError::InvalidRequest, reason))
}

async fn alter(
    call: &Call,
    meant: &Meant,
    configs: &[AlterableConfig],
    validate_only: bool,
) -> Result<(), Refusal> {
    let changes = changes_of(configs)?;
    let streams = call.context.streams();
    let changed = match meant {
        Meant::Topic(topic) if validate_only => streams.check_alter(topic, &changes),
        Meant::Topic(topic) => streams.alter_topic(topic, &changes).await,
        Meant::Group(group) if validate_only => streams.check_alter_group(group, &changes),
        Meant::Group(group) => streams.alter_group(group, &changes).await,
        Meant::Node => {
            let is_set = |change: &&ConfigChange| !matches!(change, ConfigChange::Unset(_));
            return alter_node(changes.iter().filter(is_set).map(ConfigChange::name));
        }
    };
    changed.map_err(Refusal::from)
}

fn changes_of(configs: &[AlterableConfig]) -> Result<Vec<ConfigChange>, Refusal> {
    let mut changes = Vec::with_capacity(configs.len());
    let mut seen = BTreeSet::new();
    for config in configs {
        let name = config.name.to_string();
        let refuse = |reason: String| Err(Refusal::of(ResponseError::InvalidConfig, reason));
        if !seen.insert(name.clone()) {
            return refuse(format!("the request changes {name} twice"));
        }
        let change = match (config.config_operation, &config.value) {
            (1, _) => ConfigChange::Unset(name),
            (_, None) => return Err(without_value(&name)),
            (0, Some(value)) => ConfigChange::Set(name, value.to_string()),
            (2, Some(value)) => ConfigChange::Append(name, value.to_string()),
            (3, Some(value)) => ConfigChange::Subtract(name, value.to_string()),
            (other, _) => {
                let reason = format!("operation {other} is not known");
                return Err(Refusal::of(ResponseError::InvalidRequest, reason));
            }
        };
        changes.push(change);
    }
    Ok(changes)
}

/// As Kafka refuses a setting that is to become nothing.
fn without_value(name: &str) -> Refusal {
    let reason = format!("{name} has no value: delete it to have its default");
    Refusal::of(ResponseError::InvalidRequest, reason)
}

async fn replace(
    call: &Call,
    meant: &Meant,
    set: &[(StrBytes, Option<StrBytes>)],
    validate_only: bool,
) -> Result<(), Refusal> {
    if let Some((name, _)) = set.iter().find(|(_, value)| value.is_none()) {
        return Err(without_value(name));
    }
    let set = set.iter();
    let set = set.filter_map(|(name, value)| Some((&**name, value.as_deref()?)));
    let streams = call.context.streams();
    let changed = match meant {
        Meant::Topic(topic) => {
            let config = TopicConfig::of(set).map_err(StreamsError::from)?;
            match validate_only {
                true => streams.check_replace(topic, &config),
                false => streams.replace_topic_config(topic, config).await,
            }
        }
        Meant::Group(group) => {
            let config = GroupConfig::of(set).map_err(StreamsError::from)?;
            match validate_only {
                true => streams.check_replace_group(group, &config),
                false => streams.replace_group_config(group, &config).await,
            }
        }
        Meant::Node => return alter_node(set.map(|(name, _)| name)),
    };
    changed.map_err(Refusal::from)
}

fn configs_of(call: &Call, resource: &DescribeConfigsResource) -> Result<Vec<Config>, Refusal> {
    let streams = call.context.streams();
    let config = streams.config();
    match resource.resource_type {
        TOPIC => {
            let name = WireName(resource.resource_name.clone());
            let topic =
                metadata::find(call, Operation::DescribeConfigs, &name).map_err(|code| {
                    match code == ResponseError::TopicAuthorizationFailed.code() {
                        true => not_allowed(ResponseError::TopicAuthorizationFailed),
                        false => Refusal {
                            code,
                            reason: "there is no such topic".to_owned(),
                        },
                    }
                })?;
            let set = topic.config();
            Ok(of_topic(config, topic.name(), &set, topic.durability()))
        }
        GROUP => {
            let group = &resource.resource_name;
            check_group(call, Operation::DescribeConfigs, group)?;
            Ok(of_group(&config.groups, streams.group_settings(group)))
        }
        NODE | LOGGERS if !call.may_cluster(Operation::DescribeConfigs) => {
            Err(not_allowed(ResponseError::ClusterAuthorizationFailed))
        }
        // There are none: what is logged is said when the node starts.
        LOGGERS => check_node(call, &resource.resource_name).map(|()| Vec::new()),
        NODE => {
            check_node(call, &resource.resource_name)?;
            Ok(of_node(config))
        }
        other => {
            let reason = format!("resources of type {other} have no settings here");
            Err(Refusal::of(ResponseError::InvalidRequest, reason))
        }
    }
}

/// The settings of a group, in the order of the table.
fn of_group(node: &GroupsConfig, held: Vec<HeldSetting>) -> Vec<Config> {
    let told = GROUP_SETTINGS
        .iter()
        .zip(held)
        .map(|(setting, held)| Config {
            name: setting.name,
            value: held.value,
            is_read_only: false,
            source: if held.is_set { OF_GROUP } else { DEFAULT },
            kind: number_of(setting.kind()),
            doc: setting.doc,
            behind: setting.node_name.map(|name| (name, setting.default(node))),
        });
    told.collect()
}

/// The node's settings.
fn of_node(config: &StreamsConfig) -> Vec<Config> {
    let settings = node_settings(config).into_iter();
    let told = settings.map(|setting| Config {
        name: setting.name,
        value: setting.value,
        is_read_only: true,
        source: match setting.is_configured {
            true => OF_NODE,
            false => DEFAULT,
        },
        kind: number_of(setting.kind),
        doc: setting.doc,
        behind: None,
    });
    told.collect()
}

fn is_asked(resource: &DescribeConfigsResource, name: &str) -> bool {
    match &resource.configuration_keys {
        None => true,
        Some(keys) => keys.iter().any(|key| key.as_str() == name),
    }
}

fn told(
    call: &Call,
    config: Config,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResourceResult {
    let synonym = |name, value: String, source| {
        DescribeConfigsSynonym::default()
            .with_name(text(name))
            .with_value(Some(owned(value)))
            .with_source(source)
    };
    let mut synonyms = Vec::new();
    if request.include_synonyms {
        if config.behind.is_none() || config.source != DEFAULT {
            synonyms.push(synonym(config.name, config.value.clone(), config.source));
        }
        if let Some((name, value)) = config.behind {
            synonyms.push(synonym(name, value, DEFAULT));
        }
    }
    let told = DescribeConfigsResourceResult::default()
        .with_name(text(config.name))
        .with_value(Some(owned(config.value)))
        .with_read_only(config.is_read_only)
        .with_config_source(config.source)
        .with_synonyms(synonyms);
    if call.version < 3 {
        return told;
    }
    let doc = request.include_documentation.then(|| text(config.doc));
    told.with_config_type(config.kind).with_documentation(doc)
}

/// Kafka's numbers for kinds of values.
fn number_of(kind: ValueKind) -> i8 {
    match kind {
        ValueKind::Boolean => 1,
        ValueKind::String => 2,
        ValueKind::Int => 3,
        ValueKind::Long => 5,
        ValueKind::Double => 6,
        ValueKind::List => 7,
    }
}

/// Our own setting; topics keep it apart from the others.
const DURABILITY: &str = crate::topic_config::DURABILITY;

/// Kafka's numbers for kinds of resources.
const TOPIC: i8 = 2;
const NODE: i8 = 4;
const LOGGERS: i8 = 8;
const METRICS: i8 = 16;
const GROUP: i8 = 32;

/// Kinds of resources that may be listed: nodes' loggers and subscriptions to metrics too, of which
/// there are none.
const LISTED: &[i8] = &[TOPIC, NODE, LOGGERS, METRICS, GROUP];

/// Bounds of moves of replicas, which kafka-reassign-partitions sets and takes back.
const MOVE_BOUNDS: &[&str] = &[
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
];

/// Kafka's numbers for where a value comes from.
const OF_TOPIC: i8 = 1;
const OF_NODE: i8 = 4;
const DEFAULT: i8 = 5;
const OF_GROUP: i8 = 8;
