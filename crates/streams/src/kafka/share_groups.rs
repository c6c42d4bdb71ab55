//! The members of share groups (KIP-932): their heartbeats, and who they are.

use access::{Operation, ResourceType};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::share_group_describe_response::{
    Assignment as DescribedAssignment, DescribedGroup, Member, TopicPartitions as DescribedTopic,
};
use kafka_protocol::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{
    GroupId, ShareGroupDescribeRequest, ShareGroupDescribeResponse, ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse, TopicName as WireName,
};

use super::consumer_groups::READS_UNKNOWN;
use super::error::group_error_code;
use super::group_admin::NOT_ALLOWED;
use super::reply::{Call, Ending, Reply, once, owned, text};
use crate::groups::{Beat, BeatAnswer, ConsumerMemberDescription, GroupKind, GroupState};

/// Takes a member's heartbeat, by which it joins, lives and leaves.
pub(super) fn heartbeat(call: Call) -> Result<Reply, Ending> {
    let request: ShareGroupHeartbeatRequest = call.decode("ShareGroupHeartbeat")?;
    let body = ShareGroupHeartbeatResponse::default();
    if let Some(code) = refusal(&call, &request) {
        return call.now(&body.with_error_code(code));
    }
    let topics = request.subscribed_topic_names;
    let beat = Beat {
        group: request.group_id.to_string(),
        member_id: request.member_id.to_string(),
        epoch: request.member_epoch,
        rack_id: request.rack_id.map(|id| id.to_string()),
        client_id: call.client_id.to_string(),
        client_host: call.context.client_host.clone(),
        topics: topics.map(|topics| topics.into_iter().map(|name| name.to_string()).collect()),
        ..Beat::default()
    };
    let streams = call.context.streams();
    let body = match streams.groups().share_heartbeat(beat, streams.as_ref()) {
        Ok(answer) => with_answer(body, answer).with_member_id(Some(request.member_id)),
        Err(error) => body
            .with_error_code(group_error_code(&error))
            .with_error_message(Some(owned(error.to_string()))),
    };
    call.now(&body)
}

/// Describes share groups.
pub(super) fn describe(call: Call) -> Result<Reply, Ending> {
    let request: ShareGroupDescribeRequest = call.decode("ShareGroupDescribe")?;
    let mut groups = Vec::with_capacity(request.group_ids.len());
    for group in once(request.group_ids, Clone::clone) {
        if !call.may_group(Operation::Describe, &group) {
            let told = DescribedGroup::default().with_group_id(group);
            groups.push(told.with_error_code(NOT_ALLOWED));
            continue;
        }
        let operations = call.allowed(ResourceType::Group, &group);
        let told = described(&call, group);
        groups.push(
            match request.include_authorized_operations && told.error_code == 0 {
                true => told.with_authorized_operations(operations),
                false => told,
            },
        );
    }
    call.now(&ShareGroupDescribeResponse::default().with_groups(groups))
}

/// The code for a caller who may not be a member of the group, or not know a topic that it names.
fn refusal(call: &Call, request: &ShareGroupHeartbeatRequest) -> Option<i16> {
    if !call.may_group(Operation::Read, &request.group_id) {
        return Some(NOT_ALLOWED);
    }
    let mut topics = request.subscribed_topic_names.iter().flatten();
    let may = topics.all(|name| call.may_topic_named(Operation::Describe, name));
    (!may).then_some(ResponseError::TopicAuthorizationFailed.code())
}

fn with_answer(
    body: ShareGroupHeartbeatResponse,
    answer: BeatAnswer,
) -> ShareGroupHeartbeatResponse {
    let assignment = answer.assignment.map(|partitions| {
        let topics = partitions.by_topic().map(|(id, partitions)| {
            TopicPartitions::default()
                .with_topic_id(*id)
                .with_partitions(partitions.iter().copied().collect())
        });
        Assignment::default().with_topic_partitions(topics.collect())
    });
    let interval = answer.heartbeat_interval.as_millis();
    body.with_member_epoch(answer.epoch)
        .with_heartbeat_interval_ms(i32::try_from(interval).unwrap_or(i32::MAX))
        .with_assignment(assignment)
}

fn described(call: &Call, group: GroupId) -> DescribedGroup {
    let streams = call.context.streams();
    let told = DescribedGroup::default().with_group_id(group.clone());
    if let Some(live) = streams.groups().describe_share(&group) {
        let mut members = Vec::with_capacity(live.members.len());
        for member in live.members {
            match described_member(call, member) {
                Some(member) => members.push(member),
                None => return with_unknown_topics(told),
            }
        }
        return told
            .with_group_state(text(live.state.name()))
            .with_group_epoch(live.epoch)
            .with_assignment_epoch(live.assignment_epoch)
            .with_assignor_name(owned(live.assignor))
            .with_members(members);
    }
    let standing = streams.group_standing(&group);
    match standing.filter(|standing| standing.kind == GroupKind::Share) {
        Some(standing) => told
            .with_group_state(text(GroupState::Empty.name()))
            .with_group_epoch(standing.epoch)
            .with_assignment_epoch(standing.epoch)
            .with_assignor_name(text("simple")),
        None => {
            let reason = match streams.has_group(&group) {
                true => format!("Group {} is not a share group.", group.as_str()),
                false => format!("Group {} not found.", group.as_str()),
            };
            told.with_error_code(ResponseError::GroupIdNotFound.code())
                .with_error_message(Some(owned(reason)))
                .with_group_state(text(GroupState::Dead.name()))
        }
    }
}

/// A group that reads a topic which the caller may not know of is not described at all.
fn with_unknown_topics(told: DescribedGroup) -> DescribedGroup {
    told.with_error_code(ResponseError::TopicAuthorizationFailed.code())
        .with_error_message(Some(text(READS_UNKNOWN)))
}

/// A member with the names of its topics; none when the caller may not know one of them.
fn described_member(call: &Call, member: ConsumerMemberDescription) -> Option<Member> {
    let mut topics = Vec::new();
    for (&id, partitions) in member.assigned.by_topic() {
        // One that was deleted since is left out.
        let Some(topic) = call.context.streams().topic_by_id(id) else {
            continue;
        };
        if !call.may_topic(Operation::Describe, topic.name()) {
            return None;
        }
        let name = WireName(owned(topic.name().wire_name()));
        let topic = DescribedTopic::default().with_topic_id(id);
        topics.push(
            topic
                .with_topic_name(name)
                .with_partitions(partitions.iter().copied().collect()),
        );
    }
    let names = member.topics.into_iter().map(|name| WireName(owned(name)));
    let told = Member::default()
        .with_member_id(owned(member.member_id))
        .with_rack_id(member.rack_id.map(owned))
        .with_member_epoch(member.epoch)
        .with_client_id(owned(member.client_id))
        .with_client_host(owned(member.client_host))
        .with_subscribed_topic_names(names.collect())
        .with_assignment(DescribedAssignment::default().with_topic_partitions(topics));
    Some(told)
}
