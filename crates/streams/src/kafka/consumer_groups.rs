//! The APIs of the newer group protocol (KIP-848), each a translation to the coordinator's calls.

use std::collections::HashMap;
use std::time::Duration;

use access::{Operation, ResourceType};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment as DescribedAssignment, DescribedGroup, Member, TopicPartitions as DescribedTopic,
};
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse, GroupId, TopicName as WireName,
};
use uuid::Uuid;

use super::error::group_error_code;
use super::group_admin::NOT_ALLOWED;
use super::reply::{Call, Ending, Reply, once, owned, text};
use crate::groups::{
    Beat, BeatAnswer, ConsumerMemberDescription, GroupKind, GroupState, Partitions,
};

/// Takes a member's heartbeat, by which it joins, lives and leaves.
pub(super) fn heartbeat(call: Call) -> Result<Reply, Ending> {
    let request: ConsumerGroupHeartbeatRequest = call.decode("ConsumerGroupHeartbeat")?;
    if let Some(code) = refusal(&call, &request) {
        return call.now(&ConsumerGroupHeartbeatResponse::default().with_error_code(code));
    }
    let beat = beat_of(&call, request);
    let member_id = beat.member_id.clone();
    let streams = call.context.streams();
    let body = ConsumerGroupHeartbeatResponse::default();
    let body = match streams.groups().consumer_heartbeat(beat, streams.as_ref()) {
        Ok(answer) => {
            let interval = answer.heartbeat_interval.as_millis();
            with_answer(body, answer)
                .with_member_id(Some(owned(member_id)))
                .with_heartbeat_interval_ms(i32::try_from(interval).unwrap_or(i32::MAX))
        }
        Err(error) => body
            .with_error_code(group_error_code(&error))
            .with_error_message(Some(owned(error.to_string()))),
    };
    call.now(&body)
}

/// Describes groups whose members speak the newer protocol.
pub(super) fn describe(call: Call) -> Result<Reply, Ending> {
    let request: ConsumerGroupDescribeRequest = call.decode("ConsumerGroupDescribe")?;
    let mut names = TopicNames::default();
    let mut groups = Vec::with_capacity(request.group_ids.len());
    for group in once(request.group_ids, Clone::clone) {
        if !call.may_group(Operation::Describe, &group) {
            let told = DescribedGroup::default().with_group_id(group);
            groups.push(told.with_error_code(NOT_ALLOWED));
            continue;
        }
        let operations = call.allowed(ResourceType::Group, &group);
        let told = without_unknown_topics(&call, described(&call, group, &mut names));
        groups.push(
            match request.include_authorized_operations && told.error_code == 0 {
                true => told.with_authorized_operations(operations),
                false => told,
            },
        );
    }
    call.now(&ConsumerGroupDescribeResponse::default().with_groups(groups))
}

/// The code for a caller who may not be a member of the group, or not know a topic that it names.
fn refusal(call: &Call, request: &ConsumerGroupHeartbeatRequest) -> Option<i16> {
    if !call.may_group(Operation::Read, &request.group_id) {
        return Some(NOT_ALLOWED);
    }
    let mut topics = request.subscribed_topic_names.iter().flatten();
    let may = topics.all(|name| call.may_topic_named(Operation::Describe, name));
    (!may).then_some(ResponseError::TopicAuthorizationFailed.code())
}

fn beat_of(call: &Call, request: ConsumerGroupHeartbeatRequest) -> Beat {
    let mut member_id = request.member_id.to_string();
    if member_id.is_empty() && call.version == 0 && request.member_epoch == 0 {
        // From version 1 on a member names itself; before it may leave that to the coordinator.
        member_id = Uuid::new_v4().to_string();
    }
    let timeout = u64::try_from(request.rebalance_timeout_ms).ok();
    let owned = request.topic_partitions.map(|topics| {
        let each = topics.into_iter().flat_map(|topic| {
            let id = topic.topic_id;
            topic
                .partitions
                .into_iter()
                .map(move |partition| (id, partition))
        });
        each.collect::<Partitions>()
    });
    let topics = request.subscribed_topic_names;
    Beat {
        group: request.group_id.to_string(),
        member_id,
        epoch: request.member_epoch,
        instance_id: request.instance_id.map(|id| id.to_string()),
        rack_id: request.rack_id.map(|id| id.to_string()),
        client_id: call.client_id.to_string(),
        client_host: call.context.client_host.clone(),
        rebalance_timeout: timeout.map(Duration::from_millis),
        topics: topics.map(|topics| topics.into_iter().map(|name| name.to_string()).collect()),
        topics_regex: request
            .subscribed_topic_regex
            .map(|regex| regex.to_string()),
        assignor: request.server_assignor.map(|name| name.to_string()),
        owned,
        sight: call.sight(),
    }
}

fn with_answer(
    body: ConsumerGroupHeartbeatResponse,
    answer: BeatAnswer,
) -> ConsumerGroupHeartbeatResponse {
    let assignment = answer.assignment.map(|partitions| {
        let topics = partitions.by_topic().map(|(id, partitions)| {
            TopicPartitions::default()
                .with_topic_id(*id)
                .with_partitions(partitions.iter().copied().collect())
        });
        Assignment::default().with_topic_partitions(topics.collect())
    });
    body.with_member_epoch(answer.epoch)
        .with_assignment(assignment)
}

fn described(call: &Call, group: GroupId, names: &mut TopicNames) -> DescribedGroup {
    let streams = call.context.streams();
    let told = DescribedGroup::default().with_group_id(group.clone());
    if let Some(live) = streams.groups().describe_consumer(&group) {
        let members = live.members.into_iter().map(|m| member(call, m, names));
        let members = members.collect();
        return told
            .with_group_state(text(live.state.name()))
            .with_group_epoch(live.epoch)
            .with_assignment_epoch(live.assignment_epoch)
            .with_assignor_name(owned(live.assignor))
            .with_members(members);
    }
    let standing = streams.group_standing(&group);
    match standing.filter(|s| s.kind == GroupKind::Consumer) {
        Some(standing) if streams.groups().describe(&group).is_none() => told
            .with_group_state(text(GroupState::Empty.name()))
            .with_group_epoch(standing.epoch)
            .with_assignment_epoch(standing.epoch)
            .with_assignor_name(text("uniform")),
        _ => {
            let known = streams.knows_group(&group) || streams.groups().describe(&group).is_some();
            let reason = match known {
                true => format!("Group {} is not a consumer group.", group.as_str()),
                false => format!("Group {} not found.", group.as_str()),
            };
            told.with_error_code(ResponseError::GroupIdNotFound.code())
                .with_error_message(Some(owned(reason)))
                .with_group_state(text(GroupState::Dead.name()))
        }
    }
}

/// A group that reads a topic which the caller may not know of is not described at all.
fn without_unknown_topics(call: &Call, told: DescribedGroup) -> DescribedGroup {
    let is_known = |assignment: &DescribedAssignment| {
        let mut topics = assignment.topic_partitions.iter();
        topics.all(|topic| call.may_topic_named(Operation::Describe, &topic.topic_name))
    };
    let mut members = told.members.iter();
    if members.all(|m| is_known(&m.assignment) && is_known(&m.target_assignment)) {
        return told;
    }
    told.with_error_code(ResponseError::TopicAuthorizationFailed.code())
        .with_error_message(Some(text(READS_UNKNOWN)))
        .with_members(Vec::new())
}

fn member(call: &Call, member: ConsumerMemberDescription, names: &mut TopicNames) -> Member {
    let topics = member.topics.into_iter().map(|name| WireName(owned(name)));
    let is_classic = member.is_classic;
    let told = Member::default()
        .with_member_id(owned(member.member_id))
        .with_instance_id(member.instance_id.map(owned))
        .with_rack_id(member.rack_id.map(owned))
        .with_member_epoch(member.epoch)
        .with_client_id(owned(member.client_id))
        .with_client_host(owned(member.client_host))
        .with_subscribed_topic_names(topics.collect())
        .with_subscribed_topic_regex(member.topics_regex.map(owned))
        .with_assignment(names.assignment(call, &member.assigned))
        .with_target_assignment(names.assignment(call, &member.target));
    match (call.version >= 1, is_classic) {
        (true, true) => told.with_member_type(CLASSIC_MEMBER),
        (true, false) => told.with_member_type(CONSUMER_MEMBER),
        (false, _) => told,
    }
}

/// Names of topics by id, looked up once per answer.
#[derive(Default)]
struct TopicNames(HashMap<Uuid, Option<WireName>>);

impl TopicNames {
    fn of(&mut self, call: &Call, id: Uuid) -> Option<WireName> {
        let look_up = || {
            let topic = call.context.streams().topic_by_id(id)?;
            Some(WireName(owned(topic.name().wire_name())))
        };
        self.0.entry(id).or_insert_with(look_up).clone()
    }

    /// An assignment with names; topics that were deleted since are left out.
    fn assignment(&mut self, call: &Call, partitions: &Partitions) -> DescribedAssignment {
        let mut topics = Vec::new();
        for (&id, partitions) in partitions.by_topic() {
            let Some(name) = self.of(call, id) else {
                continue;
            };
            topics.push(
                DescribedTopic::default()
                    .with_topic_id(id)
                    .with_topic_name(name)
                    .with_partitions(partitions.iter().copied().collect()),
            );
        }
        DescribedAssignment::default().with_topic_partitions(topics)
    }
}

/// Why a group is not described that reads what the caller may not know of.
pub(super) const READS_UNKNOWN: &str =
    "The group has described topic(s) that the client is not authorized to describe.";

/// A member that speaks the classic protocol.
const CLASSIC_MEMBER: i8 = 0;

/// A member of the newer protocol, as opposed to a classic one in the same group.
const CONSUMER_MEMBER: i8 = 1;
