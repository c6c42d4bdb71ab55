//! Partitions, what they hold, and where they lie.

use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use streams::{OffsetRange, PartitionReplicas, TopicInfo, TopicName};

use super::Here;
use super::clusters::{BrokerPath, broker_place};
use super::form::{Object, Place, Related, json};
use super::refusal::{OrNothing, Refusal};
use super::topics::TopicPath;
use crate::answer::{Parameters, Segments};

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

/// `GET …/topics/{topic}/partitions`
pub(super) async fn list(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
) -> Result<Response, Refusal> {
    let info = here.topic(&topic).await?;
    let lying = here.replicas_of(&info.name).await?;
    let objects = lying.iter().zip(0..).map(|(lies, index)| {
        let at = Partition::at(&info.name, index);
        here.partition_object(&at, lies)
    });
    let at = here.topic_place(&info.name);
    Ok(at.list("partitions", "KafkaPartition", objects.collect()))
}

/// `GET …/topics/{topic}/partitions/{partition}`
pub(super) async fn one(
    here: Here,
    Segments(path): Segments<PartitionPath>,
) -> Result<Response, Refusal> {
    let info = here.topic(&path.topic).await?;
    let (at, lies) = here.found(&info, &path.partition).await?;
    Ok(json(StatusCode::OK, &here.partition_object(&at, &lies)))
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
    Segments(path): Segments<PartitionPath>,
) -> Result<Response, Refusal> {
    let info = here.topic(&path.topic).await?;
    let (at, lies) = here.found(&info, &path.partition).await?;
    let objects = lies.replicas.iter();
    let objects = objects.map(|broker| here.replica_object(&at, &lies, *broker));
    let at = partition_place(&here.topic_place(at.topic), at.index);
    Ok(at.list("replicas", "KafkaReplica", objects.collect()))
}

/// `GET …/topics/{topic}/partitions/{partition}/replicas/{broker}`
pub(super) async fn replica(
    here: Here,
    Segments(path): Segments<ReplicaPath>,
) -> Result<Response, Refusal> {
    let info = here.topic(&path.topic).await?;
    let (at, lies) = here.found(&info, &path.partition).await?;
    let mut replicas = lies.replicas.iter();
    let found = replicas.find(|broker| broker.to_string() == path.broker);
    let broker = found.or_nothing("replica", &path.broker)?;
    let object = here.replica_object(&at, &lies, *broker);
    Ok(json(StatusCode::OK, &object))
}

/// `GET …/brokers/{broker}/partition-replicas`
pub(super) async fn replicas_of_broker(
    here: Here,
    Segments(BrokerPath { broker }): Segments<BrokerPath>,
) -> Result<Response, Refusal> {
    let id = here.broker_named(&broker)?.id;
    let mut objects = Vec::new();
    for (topic, lying) in here.shared.store.replicas(None).await? {
        for (lies, index) in lying.iter().zip(0..) {
            if lies.replicas.contains(&id) {
                let at = Partition::at(&topic, index);
                objects.push(here.replica_object(&at, lies, id));
            }
        }
    }
    let at = broker_place(&here.place, id);
    Ok(at.list("partition-replicas", "KafkaReplica", objects))
}

/// `GET …/topics/-/partitions/-/reassignment`: no replica ever moves
pub(super) async fn reassignments(here: Here) -> Result<Response, Refusal> {
    here.shared.store.expect_settled().await?;
    let none: Vec<Object<()>> = Vec::new();
    let path = "topics/-/partitions/-/reassignment";
    Ok(here.place.list(path, "KafkaReassignment", none))
}

/// `GET …/topics/{topic}/partitions/-/reassignment`
pub(super) async fn reassignments_of_topic(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
) -> Result<Response, Refusal> {
    here.shared.store.expect_settled().await?;
    let info = here.topic(&topic).await?;
    let none: Vec<Object<()>> = Vec::new();
    let at = here.topic_place(&info.name);
    Ok(at.list("partitions/-/reassignment", "KafkaReassignment", none))
}

/// `GET …/topics/{topic}/partitions/{partition}/reassignment`
pub(super) async fn reassignment(
    here: Here,
    Segments(PartitionPath { topic, partition }): Segments<PartitionPath>,
) -> Result<Response, Refusal> {
    here.shared.store.expect_settled().await?;
    let info = here.topic(&topic).await?;
    in_topic(&info, &partition)?;
    Err(Refusal::nothing("reassignment of partition", &partition))
}

/// A partition by its name.
struct Partition<'a> {
    topic: &'a TopicName,
    index: i32,
}

impl<'a> Partition<'a> {
    fn at(topic: &'a TopicName, index: i32) -> Self {
        Partition { topic, index }
    }
}

#[derive(Serialize)]
struct PartitionObject {
    cluster_id: String,
    topic_name: String,
    partition_id: i32,
    leader: Option<Related>,
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
    /// Where a topic's partitions lie.
    async fn replicas_of(&self, topic: &TopicName) -> Result<Vec<PartitionReplicas>, Refusal> {
        let mut found = self.shared.store.replicas(Some(topic)).await?;
        Ok(found.remove(topic).unwrap_or_default())
    }

    /// The partition that a path names, and where it lies.
    async fn found<'a>(
        &self,
        info: &'a TopicInfo,
        partition: &str,
    ) -> Result<(Partition<'a>, PartitionReplicas), Refusal> {
        let (index, _) = in_topic(info, partition)?;
        let lying = self.replicas_of(&info.name).await?;
        let lies = lying.into_iter().zip(0..).find(|(_, at)| *at == index);
        let (lies, _) = lies.or_nothing("partition", partition)?;
        Ok((Partition::at(&info.name, index), lies))
    }

    fn partition_object(
        &self,
        at: &Partition<'_>,
        lies: &PartitionReplicas,
    ) -> Object<PartitionObject> {
        let place = partition_place(&self.topic_place(at.topic), at.index);
        let fields = PartitionObject {
            cluster_id: self.cluster.id.clone(),
            topic_name: at.topic.display().to_owned(),
            partition_id: at.index,
            leader: lies.leader.map(|id| replica_place(&place, id).related()),
            replicas: place.related_under("replicas"),
            reassignment: place.related_under("reassignment"),
        };
        place.object("KafkaPartition", fields)
    }

    fn replica_object(
        &self,
        at: &Partition<'_>,
        lies: &PartitionReplicas,
        broker: i32,
    ) -> Object<Replica> {
        let place = partition_place(&self.topic_place(at.topic), at.index);
        let fields = Replica {
            cluster_id: self.cluster.id.clone(),
            topic_name: at.topic.display().to_owned(),
            partition_id: at.index,
            broker_id: broker,
            is_leader: lies.leader == Some(broker),
            is_in_sync: lies.in_sync.contains(&broker),
            broker: broker_place(&self.place, broker).related(),
        };
        replica_place(&place, broker).object("KafkaReplica", fields)
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
    let ranges = info.partition_offsets.iter().zip(0..);
    let mut named = ranges.map(|(range, index)| (index, *range));
    let found = named.find(|(index, _)| index.to_string() == partition);
    found.or_nothing("partition", partition)
}
