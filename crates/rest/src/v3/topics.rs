//! Topics, their settings, partitions and replicas.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use streams::{
    ConfigChange, OffsetRange, StreamsError, TopicConfig, TopicInfo, TopicName, TopicSetting,
    TopicSpec,
};

use super::Here;
use super::clusters::broker_place;
use super::form::{Object, Place, Related, json};
use super::refusal::Refusal;
use crate::answer::{self, Parameters, Segments};
use crate::body::HeldBody;
use crate::error::RestError;
use crate::media;

#[derive(Deserialize)]
pub(super) struct TopicPath {
    pub topic: String,
}

#[derive(Deserialize)]
pub(super) struct ConfigPath {
    topic: String,
    name: String,
}

#[derive(Deserialize)]
pub(super) struct PartitionPath {
    pub topic: String,
    pub partition: String,
}

#[derive(Deserialize)]
pub(super) struct ReplicaPath {
    topic: String,
    partition: String,
    broker: String,
}

/// `GET …/topics`
pub(super) async fn list(here: Here) -> Result<Response, Refusal> {
    let topics = here.shared.store.topics().await?;
    let topics = topics.iter().map(|info| here.topic_object(info)).collect();
    Ok(here.place.list("topics", "KafkaTopic", topics))
}

/// `POST …/topics`: 201, or 200 when it is only to be checked
pub(super) async fn create(
    here: Here,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NewTopic {
        topic_name: String,
        partitions_count: Option<i32>,
        replication_factor: Option<i16>,
        #[serde(default)]
        replicas_assignments: BTreeMap<String, Vec<i32>>,
        #[serde(default)]
        configs: Vec<Setting>,
        #[serde(default)]
        validate_only: bool,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Setting {
        name: String,
        value: Option<String>,
    }
    let held = here.entity(&headers, body).await?;
    let asked: NewTopic = answer::entity(&held.bytes)?;
    let name: TopicName = asked
        .topic_name
        .parse()
        .map_err(StreamsError::InvalidTopic)?;
    let leader = here.leader()?;
    let assigned = &asked.replicas_assignments;
    let on_leader = assigned.values().all(|replicas| replicas[..] == [leader]);
    if asked.replication_factor.is_some_and(|factor| factor > 1) || !on_leader {
        let reason = "there is one broker: one replica of each partition, on that broker";
        return Err(StreamsError::Unsupported(reason).into());
    }
    let partitions = match assigned.len() {
        0 => asked.partitions_count,
        count => i32::try_from(count).ok(),
    };
    let set = asked.configs.iter();
    let set = set.filter_map(|setting| Some((&*setting.name, setting.value.as_deref()?)));
    let spec = TopicSpec {
        name: name.clone(),
        partitions,
        durability: None,
        config: TopicConfig::of(set).map_err(StreamsError::InvalidConfig)?,
    };
    if !asked.validate_only {
        let info = here.shared.store.create_topic(spec).await?;
        return Ok(json(StatusCode::CREATED, &here.topic_object(&info)));
    }
    if here.shared.store.topic(&name).await.is_ok() {
        return Err(StreamsError::TopicExists(name).into());
    }
    let partitions = spec.partitions.unwrap_or(1);
    Ok(json(StatusCode::OK, &here.topic_of(&name, partitions)))
}

/// `GET …/topics/{topic}`
pub(super) async fn one(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
) -> Result<Response, Refusal> {
    let info = here.topic(&topic).await?;
    Ok(json(StatusCode::OK, &here.topic_object(&info)))
}

/// `PATCH …/topics/{topic}` with `{"partitions_count"}`
pub(super) async fn grow(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Growth {
        partitions_count: i32,
    }
    let held = here.entity(&headers, body).await?;
    let Growth { partitions_count } = answer::entity(&held.bytes)?;
    let info = here.topic(&topic).await?;
    let store = &here.shared.store;
    store
        .create_partitions(&info.name, partitions_count)
        .await?;
    let info = here.topic(&topic).await?;
    Ok(json(StatusCode::OK, &here.topic_object(&info)))
}

/// `DELETE …/topics/{topic}`
pub(super) async fn delete(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
) -> Result<Response, Refusal> {
    let name = answer::topic_name(&topic)?;
    here.shared.store.delete_topic(&name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET …/topics/-/configs`
pub(super) async fn all_configs(here: Here) -> Result<Response, Refusal> {
    let mut objects = Vec::new();
    for info in here.shared.store.topics().await? {
        let settings = here.shared.store.topic_settings(&info.name).await?;
        objects.extend(settings.iter().map(|it| here.config_object(&info.name, it)));
    }
    Ok(here
        .place
        .list("topics/-/configs", "KafkaTopicConfig", objects))
}

/// `GET …/topics/{topic}/configs`
pub(super) async fn configs(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
) -> Result<Response, Refusal> {
    let name = answer::topic_name(&topic)?;
    let settings = here.shared.store.topic_settings(&name).await?;
    let objects = settings.iter().map(|it| here.config_object(&name, it));
    let at = here.topic_place(&name);
    Ok(at.list("configs", "KafkaTopicConfig", objects.collect()))
}

/// `GET …/topics/{topic}/configs/{name}`
pub(super) async fn config(
    here: Here,
    Segments(path): Segments<ConfigPath>,
) -> Result<Response, Refusal> {
    let topic = answer::topic_name(&path.topic)?;
    let settings = here.shared.store.topic_settings(&topic).await?;
    let found = settings.iter().find(|setting| setting.name == path.name);
    let found = found.ok_or_else(|| Refusal::nothing("setting", &path.name))?;
    Ok(json(StatusCode::OK, &here.config_object(&topic, found)))
}

/// `PUT …/topics/{topic}/configs/{name}` with `{"value"}`
pub(super) async fn set_config(
    here: Here,
    Segments(path): Segments<ConfigPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NewValue {
        value: Option<String>,
    }
    let held = here.entity(&headers, body).await?;
    let NewValue { value } = answer::entity(&held.bytes)?;
    let change = match value {
        Some(value) => ConfigChange::Set(path.name, value),
        None => ConfigChange::Unset(path.name),
    };
    here.alter(&path.topic, vec![change]).await
}

/// `DELETE …/topics/{topic}/configs/{name}`: the default holds again
pub(super) async fn unset_config(
    here: Here,
    Segments(path): Segments<ConfigPath>,
) -> Result<Response, Refusal> {
    let change = ConfigChange::Unset(path.name);
    here.alter(&path.topic, vec![change]).await
}

/// `POST …/topics/{topic}/configs:alter`: all or none
pub(super) async fn alter_configs(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Alteration {
        data: Vec<Entry>,
        #[serde(default)]
        validate_only: bool,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Entry {
        name: String,
        value: Option<String>,
        #[serde(default)]
        operation: Operation,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "UPPERCASE")]
    enum Operation {
        #[default]
        Set,
        Delete,
        Append,
        Subtract,
    }
    let held = here.entity(&headers, body).await?;
    let asked: Alteration = answer::entity(&held.bytes)?;
    let changes = asked.data.into_iter().map(|entry| {
        let Entry { name, value, .. } = entry;
        match (entry.operation, value) {
            (Operation::Delete, _) | (Operation::Set, None) => Ok(ConfigChange::Unset(name)),
            (Operation::Set, Some(value)) => Ok(ConfigChange::Set(name, value)),
            (Operation::Append, Some(value)) => Ok(ConfigChange::Append(name, value)),
            (Operation::Subtract, Some(value)) => Ok(ConfigChange::Subtract(name, value)),
            (_, None) => Err(RestError::InvalidEntity(format!("'{name}' needs a value"))),
        }
    });
    let changes = changes.collect::<Result<Vec<_>, _>>()?;
    if asked.validate_only {
        here.topic(&topic).await?;
        let none = TopicConfig::default();
        let changed = none.changed(&changes, |_| String::new());
        changed.map_err(StreamsError::InvalidConfig)?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    here.alter(&topic, changes).await
}

/// `GET …/topics/{topic}/partitions`
pub(super) async fn partitions(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
) -> Result<Response, Refusal> {
    let (info, leader) = (here.topic(&topic).await?, here.leader()?);
    let objects = (0..info.partitions).map(|index| here.partition_object(&info, index, leader));
    let at = here.topic_place(&info.name);
    Ok(at.list("partitions", "KafkaPartition", objects.collect()))
}

/// `GET …/topics/{topic}/partitions/{partition}`
pub(super) async fn partition(
    here: Here,
    Segments(PartitionPath { topic, partition }): Segments<PartitionPath>,
) -> Result<Response, Refusal> {
    let (info, leader) = (here.topic(&topic).await?, here.leader()?);
    let (index, _) = in_topic(&info, &partition)?;
    let object = here.partition_object(&info, index, leader);
    Ok(json(StatusCode::OK, &object))
}

/// `GET …/topics/{topic}/partitions/{partition}/offset?offset_type=`
pub(super) async fn offset(
    here: Here,
    Segments(PartitionPath { topic, partition }): Segments<PartitionPath>,
    Parameters(asked): Parameters<OffsetParameters>,
) -> Result<Response, Refusal> {
    let info = here.topic(&topic).await?;
    let (index, range) = in_topic(&info, &partition)?;
    let (earliest, latest) = match asked.offset_type {
        None => (Some(range.start), Some(range.end)),
        Some(OffsetType::Earliest) => (Some(range.start), None),
        Some(OffsetType::Latest) => (None, Some(range.end)),
    };
    let fields = Offsets {
        cluster_id: here.cluster.id.clone(),
        topic_name: info.name.display().to_owned(),
        partition_id: index,
        earliest_offset: earliest,
        latest_offset: latest,
    };
    let at = partition_place(&here.topic_place(&info.name), index);
    Ok(json(
        StatusCode::OK,
        &at.object("KafkaPartitionOffset", fields),
    ))
}

#[derive(Deserialize)]
pub(super) struct OffsetParameters {
    offset_type: Option<OffsetType>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OffsetType {
    Earliest,
    Latest,
}

/// `GET …/topics/{topic}/partitions/{partition}/replicas`
pub(super) async fn replicas(
    here: Here,
    Segments(PartitionPath { topic, partition }): Segments<PartitionPath>,
) -> Result<Response, Refusal> {
    let (info, leader) = (here.topic(&topic).await?, here.leader()?);
    let (index, _) = in_topic(&info, &partition)?;
    let at = partition_place(&here.topic_place(&info.name), index);
    let only = here.replica_object(&info, index, leader);
    Ok(at.list("replicas", "KafkaReplica", vec![only]))
}

/// `GET …/topics/{topic}/partitions/{partition}/replicas/{broker}`
pub(super) async fn replica(
    here: Here,
    Segments(path): Segments<ReplicaPath>,
) -> Result<Response, Refusal> {
    let (info, leader) = (here.topic(&path.topic).await?, here.leader()?);
    let (index, _) = in_topic(&info, &path.partition)?;
    if path.broker != leader.to_string() {
        return Err(Refusal::nothing("replica", &path.broker));
    }
    let only = here.replica_object(&info, index, leader);
    Ok(json(StatusCode::OK, &only))
}

#[derive(Serialize)]
struct Topic {
    cluster_id: String,
    topic_name: String,
    is_internal: bool,
    replication_factor: i16,
    partitions_count: i32,
    partitions: Related,
    configs: Related,
    partition_reassignments: Related,
}

#[derive(Serialize)]
struct Config {
    cluster_id: String,
    topic_name: String,
    name: &'static str,
    value: String,
    is_default: bool,
    is_read_only: bool,
    is_sensitive: bool,
    source: &'static str,
    synonyms: Vec<Synonym>,
}

#[derive(Serialize)]
struct Synonym {
    name: &'static str,
    value: String,
    source: &'static str,
}

#[derive(Serialize)]
struct Partition {
    cluster_id: String,
    topic_name: String,
    partition_id: i32,
    leader: Related,
    replicas: Related,
    reassignment: Related,
}

#[derive(Serialize)]
struct Offsets {
    cluster_id: String,
    topic_name: String,
    partition_id: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    earliest_offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latest_offset: Option<i64>,
}

#[derive(Serialize)]
struct Replica {
    cluster_id: String,
    topic_name: String,
    partition_id: i32,
    broker_id: i32,
    is_leader: bool,
    is_in_sync: bool,
    broker: Related,
}

impl Here {
    /// Reads a body of JSON.
    pub(super) async fn entity(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<HeldBody, RestError> {
        media::check_json(answer::text(headers, axum::http::header::CONTENT_TYPE))?;
        self.shared.gate.read(headers, body).await
    }

    pub(super) async fn topic(&self, name: &str) -> Result<TopicInfo, RestError> {
        let name = answer::topic_name(name)?;
        Ok(self.shared.store.topic(&name).await?)
    }

    async fn alter(&self, topic: &str, changes: Vec<ConfigChange>) -> Result<Response, Refusal> {
        let topic = answer::topic_name(topic)?;
        self.shared.store.alter_topic(&topic, changes).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    pub(super) fn topic_place(&self, name: &TopicName) -> Place {
        self.place.under("topics", "topic", name.display())
    }

    fn topic_object(&self, info: &TopicInfo) -> Object<Topic> {
        self.topic_of(&info.name, info.partitions)
    }

    fn topic_of(&self, name: &TopicName, partitions: i32) -> Object<Topic> {
        let at = self.topic_place(name);
        let fields = Topic {
            cluster_id: self.cluster.id.clone(),
            topic_name: name.display().to_owned(),
            is_internal: name.is_internal(),
            replication_factor: 1,
            partitions_count: partitions,
            partitions: at.related_under("partitions"),
            configs: at.related_under("configs"),
            partition_reassignments: at.related_under("partitions/-/reassignment"),
        };
        at.object("KafkaTopic", fields)
    }

    fn config_object(&self, topic: &TopicName, setting: &TopicSetting) -> Object<Config> {
        let source = match setting.is_set {
            true => "DYNAMIC_TOPIC_CONFIG",
            false => "DEFAULT_CONFIG",
        };
        let synonym = Synonym {
            name: setting.name,
            value: setting.value.clone(),
            source,
        };
        let at = self.topic_place(topic);
        let at = at.under("configs", "config", setting.name);
        let fields = Config {
            cluster_id: self.cluster.id.clone(),
            topic_name: topic.display().to_owned(),
            name: setting.name,
            value: setting.value.clone(),
            is_default: !setting.is_set,
            is_read_only: false,
            is_sensitive: false,
            source,
            synonyms: vec![synonym],
        };
        at.object("KafkaTopicConfig", fields)
    }

    fn partition_object(&self, info: &TopicInfo, index: i32, leader: i32) -> Object<Partition> {
        let at = partition_place(&self.topic_place(&info.name), index);
        let fields = Partition {
            cluster_id: self.cluster.id.clone(),
            topic_name: info.name.display().to_owned(),
            partition_id: index,
            leader: replica_place(&at, leader).related(),
            replicas: at.related_under("replicas"),
            reassignment: at.related_under("reassignment"),
        };
        at.object("KafkaPartition", fields)
    }

    fn replica_object(&self, info: &TopicInfo, index: i32, broker: i32) -> Object<Replica> {
        let at = partition_place(&self.topic_place(&info.name), index);
        let fields = Replica {
            cluster_id: self.cluster.id.clone(),
            topic_name: info.name.display().to_owned(),
            partition_id: index,
            broker_id: broker,
            is_leader: true,
            is_in_sync: true,
            broker: broker_place(&self.place, broker).related(),
        };
        replica_place(&at, broker).object("KafkaReplica", fields)
    }
}

pub(super) fn partition_place(topic: &Place, index: i32) -> Place {
    topic.under("partitions", "partition", index)
}

fn replica_place(partition: &Place, broker: i32) -> Place {
    partition.under("replicas", "replica", broker)
}

/// The partition that a path names, with what it holds.
pub(super) fn in_topic(info: &TopicInfo, partition: &str) -> Result<(i32, OffsetRange), Refusal> {
    let nothing = || Refusal::nothing("partition", partition);
    let index: i32 = partition.parse().map_err(|_| nothing())?;
    let at = usize::try_from(index).map_err(|_| nothing())?;
    let range = info.partition_offsets.get(at).ok_or_else(nothing)?;
    Ok((index, *range))
}
