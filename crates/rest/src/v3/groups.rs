//! Consumer groups: who reads what, and how far behind they are.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use streams::{GroupDetail, GroupInstance, TopicInfo, TopicName};

use super::Here;
use super::clusters::broker_place;
use super::form::{Object, Place, Related, json};
use super::partitions::partition_place;
use super::refusal::{OrNothing, Refusal};
use crate::answer::Segments;
use crate::error::RestError;
use crate::groups::{Share, detail_of, shares, topics_of};

#[derive(Deserialize)]
pub(super) struct GroupPath {
    group: String,
}

#[derive(Deserialize)]
pub(super) struct ConsumerPath {
    group: String,
    consumer: String,
}

#[derive(Deserialize)]
pub(super) struct AssignmentPath {
    group: String,
    consumer: String,
    topic: String,
    partition: String,
}

#[derive(Deserialize)]
pub(super) struct LagPath {
    group: String,
    topic: String,
    partition: String,
}

/// `GET …/consumer-groups`
pub(super) async fn list(here: Here) -> Result<Response, Refusal> {
    let mut objects = Vec::new();
    for info in here.shared.store.groups().await? {
        // Gone meanwhile, if it is none. Share groups are no consumer groups.
        let detail = here.shared.store.group(&info.group).await?;
        if let Some(detail) = detail.filter(|detail| detail.kind != SHARE) {
            objects.push(here.group_object(&detail)?);
        }
    }
    Ok(here
        .place
        .list("consumer-groups", "KafkaConsumerGroup", objects))
}

/// `GET …/consumer-groups/{group}`
pub(super) async fn one(
    here: Here,
    Segments(GroupPath { group }): Segments<GroupPath>,
) -> Result<Response, Refusal> {
    let found = Found::group(&here, &group).await?;
    Ok(json(StatusCode::OK, &here.group_object(&found.detail)?))
}

/// `GET …/consumer-groups/{group}/consumers`
pub(super) async fn consumers(
    here: Here,
    Segments(GroupPath { group }): Segments<GroupPath>,
) -> Result<Response, Refusal> {
    let found = Found::group(&here, &group).await?;
    let members = found.detail.members.iter();
    let objects = members.map(|member| here.consumer_object(&found, member));
    let at = &found.place;
    Ok(at.list("consumers", "KafkaConsumer", objects.collect()))
}

/// `GET …/consumers/{consumer}`
pub(super) async fn consumer(
    here: Here,
    Segments(path): Segments<ConsumerPath>,
) -> Result<Response, Refusal> {
    let found = Found::group(&here, &path.group).await?;
    let member = found.member(&path.consumer)?;
    Ok(json(StatusCode::OK, &here.consumer_object(&found, member)))
}

/// `GET …/consumers/{consumer}/assignments`
pub(super) async fn assignments(
    here: Here,
    Segments(path): Segments<ConsumerPath>,
) -> Result<Response, Refusal> {
    let found = Found::group(&here, &path.group).await?;
    let member = found.member(&path.consumer)?;
    let assigned = member.assigned.iter();
    let objects = assigned.map(|(topic, index)| here.assignment(&found, member, topic, *index));
    let at = found.consumer_place(member);
    Ok(at.list("assignments", "KafkaConsumerAssignment", objects.collect()))
}

/// `GET …/consumers/{consumer}/assignments/{topic}/partitions/{partition}`
pub(super) async fn assignment(
    here: Here,
    Segments(path): Segments<AssignmentPath>,
) -> Result<Response, Refusal> {
    let found = Found::group(&here, &path.group).await?;
    let member = found.member(&path.consumer)?;
    let topic = here.shared.config.topic_name(&path.topic)?;
    let mut assigned = member.assigned.iter();
    let index = assigned.find(|(name, at)| *name == topic && at.to_string() == path.partition);
    let (_, index) = index.or_nothing("assigned partition", &path.partition)?;
    let object = here.assignment(&found, member, &topic, *index);
    Ok(json(StatusCode::OK, &object))
}

/// `GET …/consumer-groups/{group}/lag-summary`
pub(super) async fn lag_summary(
    here: Here,
    Segments(GroupPath { group }): Segments<GroupPath>,
) -> Result<Response, Refusal> {
    let found = Found::group(&here, &group).await?;
    let shares = found.shares();
    let lags = || {
        shares
            .iter()
            .filter_map(|share| Some((share, share.lag()?)))
    };
    let most = lags().max_by_key(|(_, lag)| *lag);
    let (most, max_lag) = most.or_nothing("committed offset of group", &group)?;
    let holder = most.holder;
    let partition = partition_place(&here.topic_place(most.topic), most.partition);
    let fields = LagSummary {
        cluster_id: here.cluster.id.clone(),
        consumer_group_id: group,
        max_lag_consumer_id: holder.map(|member| member.member_id.clone()),
        max_lag_instance_id: holder.and_then(|member| member.instance_id.clone()),
        max_lag_client_id: holder.map(|member| member.client_id.clone()),
        max_lag_topic_name: most.topic.display().to_owned(),
        max_lag_partition_id: most.partition,
        max_lag,
        total_lag: lags().map(|(_, lag)| lag).sum(),
        max_lag_consumer: holder.map(|member| found.consumer_place(member).related()),
        max_lag_partition: partition.related(),
    };
    let at = found.place.singleton("lag-summary");
    let object = at.object("KafkaConsumerGroupLagSummary", fields);
    Ok(json(StatusCode::OK, &object))
}

/// `GET …/consumer-groups/{group}/lags`
pub(super) async fn lags(
    here: Here,
    Segments(GroupPath { group }): Segments<GroupPath>,
) -> Result<Response, Refusal> {
    let found = Found::group(&here, &group).await?;
    let shares = found.shares();
    let objects = shares
        .iter()
        .filter_map(|share| here.lag_object(&found, share));
    let at = &found.place;
    Ok(at.list("lags", "KafkaConsumerLag", objects.collect()))
}

/// `GET …/consumer-groups/{group}/lags/{topic}/partitions/{partition}`
pub(super) async fn lag(
    here: Here,
    Segments(path): Segments<LagPath>,
) -> Result<Response, Refusal> {
    let found = Found::group(&here, &path.group).await?;
    let topic = here.shared.config.topic_name(&path.topic)?;
    let shares = found.shares();
    let share = shares
        .iter()
        .find(|share| *share.topic == topic && share.partition.to_string() == path.partition);
    let object = share.and_then(|share| here.lag_object(&found, share));
    let object = object.or_nothing("lag of partition", &path.partition)?;
    Ok(json(StatusCode::OK, &object))
}

/// A group with what its partitions hold.
struct Found {
    detail: GroupDetail,
    topics: BTreeMap<TopicName, TopicInfo>,
    place: Place,
}

impl Found {
    async fn group(here: &Here, group: &str) -> Result<Found, Refusal> {
        let store = &*here.shared.store;
        let detail = detail_of(store, group).await?;
        if detail.state == NEVER_WAS || detail.kind == SHARE {
            return Err(RestError::GroupNotFound(group.to_owned()).into());
        }
        Ok(Found {
            topics: topics_of(store, &detail).await?,
            place: group_place(&here.place, group),
            detail,
        })
    }

    fn shares(&self) -> Vec<Share<'_>> {
        shares(&self.detail, &self.topics)
    }

    fn member(&self, id: &str) -> Result<&GroupInstance, Refusal> {
        let mut members = self.detail.members.iter();
        let found = members.find(|member| member.member_id == id);
        found.or_nothing("consumer", id)
    }

    fn consumer_place(&self, member: &GroupInstance) -> Place {
        self.place.under("consumers", "consumer", &member.member_id)
    }

    fn lag_place(&self, topic: &TopicName, partition: i32) -> Place {
        let at = self.place.under("lags", "lag", topic.display());
        partition_place(&at, partition)
    }
}

fn group_place(cluster: &Place, group: &str) -> Place {
    cluster.under("consumer-groups", "consumer-group", group)
}

#[derive(Serialize)]
struct Group {
    cluster_id: String,
    consumer_group_id: String,
    is_simple: bool,
    partition_assignor: String,
    state: String,
    r#type: String,
    is_mixed_consumer_group: bool,
    coordinator: Related,
    consumers: Related,
    lag_summary: Related,
}

#[derive(Serialize)]
struct Consumer {
    cluster_id: String,
    consumer_group_id: String,
    consumer_id: String,
    instance_id: Option<String>,
    client_id: String,
    assignments: Related,
}

#[derive(Serialize)]
struct Assignment {
    cluster_id: String,
    consumer_group_id: String,
    consumer_id: String,
    topic_name: String,
    partition_id: i32,
    partition: Related,
    lag: Related,
}

#[derive(Serialize)]
struct LagSummary {
    cluster_id: String,
    consumer_group_id: String,
    max_lag_consumer_id: Option<String>,
    max_lag_instance_id: Option<String>,
    max_lag_client_id: Option<String>,
    max_lag_topic_name: String,
    max_lag_partition_id: i32,
    max_lag: i64,
    total_lag: i64,
    max_lag_consumer: Option<Related>,
    max_lag_partition: Related,
}

#[derive(Serialize)]
struct Lag {
    cluster_id: String,
    consumer_group_id: String,
    topic_name: String,
    partition_id: i32,
    current_offset: i64,
    log_end_offset: i64,
    lag: i64,
    consumer_id: Option<String>,
    instance_id: Option<String>,
    client_id: Option<String>,
}

impl Here {
    fn group_object(&self, detail: &GroupDetail) -> Result<Object<Group>, Refusal> {
        let at = group_place(&self.place, &detail.group);
        let fields = Group {
            cluster_id: self.cluster.id.clone(),
            consumer_group_id: detail.group.clone(),
            // One that only keeps offsets.
            is_simple: detail.protocol_type.is_empty(),
            partition_assignor: detail.assignor.clone(),
            state: snake_upper(&detail.state),
            r#type: detail.kind.to_uppercase(),
            // While its members are moved from one protocol to the other.
            is_mixed_consumer_group: detail.kind == "Consumer"
                && detail.members.iter().any(|member| member.is_classic),
            coordinator: broker_place(&self.place, self.leader()?).related(),
            consumers: at.related_under("consumers"),
            lag_summary: at.related_under("lag-summary"),
        };
        Ok(at.object("KafkaConsumerGroup", fields))
    }

    fn consumer_object(&self, found: &Found, member: &GroupInstance) -> Object<Consumer> {
        let at = found.consumer_place(member);
        let fields = Consumer {
            cluster_id: self.cluster.id.clone(),
            consumer_group_id: found.detail.group.clone(),
            consumer_id: member.member_id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            assignments: at.related_under("assignments"),
        };
        at.object("KafkaConsumer", fields)
    }

    fn assignment(
        &self,
        found: &Found,
        member: &GroupInstance,
        topic: &TopicName,
        index: i32,
    ) -> Object<Assignment> {
        let at = found.consumer_place(member);
        let at = at.under("assignments", "assignment", topic.display());
        let at = partition_place(&at, index);
        let fields = Assignment {
            cluster_id: self.cluster.id.clone(),
            consumer_group_id: found.detail.group.clone(),
            consumer_id: member.member_id.clone(),
            topic_name: topic.display().to_owned(),
            partition_id: index,
            partition: partition_place(&self.topic_place(topic), index).related(),
            lag: found.lag_place(topic, index).related(),
        };
        at.object("KafkaConsumerAssignment", fields)
    }

    /// None where nothing is committed.
    fn lag_object(&self, found: &Found, share: &Share<'_>) -> Option<Object<Lag>> {
        let holder = share.holder;
        let fields = Lag {
            cluster_id: self.cluster.id.clone(),
            consumer_group_id: found.detail.group.clone(),
            topic_name: share.topic.display().to_owned(),
            partition_id: share.partition,
            current_offset: share.committed?.offset,
            log_end_offset: share.range.end,
            lag: share.lag()?,
            consumer_id: holder.map(|member| member.member_id.clone()),
            instance_id: holder.and_then(|member| member.instance_id.clone()),
            client_id: holder.map(|member| member.client_id.clone()),
        };
        let at = found.lag_place(share.topic, share.partition);
        Some(at.object("KafkaConsumerLag", fields))
    }
}

/// `PreparingRebalance` as `PREPARING_REBALANCE`.
fn snake_upper(state: &str) -> String {
    let mut out = String::with_capacity(state.len() + 4);
    for (index, letter) in state.char_indices() {
        if letter.is_uppercase() && index > 0 {
            out.push('_');
        }
        out.extend(letter.to_uppercase());
    }
    out
}

/// The state of what has settings and is no group yet.
const NEVER_WAS: &str = "Dead";

/// The kind of groups whose members share each partition.
const SHARE: &str = "Share";
