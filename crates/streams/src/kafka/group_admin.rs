//! The APIs by which people look at groups and do away with what they left.

use access::{Operation, ResourceType};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::offset_delete_request::OffsetDeleteRequestTopic;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    GroupId, ListGroupsRequest, ListGroupsResponse, OffsetDeleteRequest, OffsetDeleteResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::error::{coordinator_code_of, coordinator_error_code, group_error_code};
use super::metadata;
use super::reply::{Call, Ending, Reply, begun_again, once, owned, text};
use crate::StreamsError;
use crate::groups::{GroupDescription, GroupKind, GroupState};
use crate::store::CHANGE_ROOM_BYTES;

/// Describes classic groups with their members.
pub(super) fn describe_groups(call: Call) -> Result<Reply, Ending> {
    let request: DescribeGroupsRequest = call.decode("DescribeGroups")?;
    let with_operations = request.include_authorized_operations;
    let groups = once(request.groups, Clone::clone);
    let groups = groups.into_iter().map(|group| {
        if !call.may_group(Operation::Describe, &group) {
            return DescribedGroup::default()
                .with_group_id(group)
                .with_error_code(NOT_ALLOWED);
        }
        let operations = call.allowed(ResourceType::Group, &group);
        let told = described(&call, group);
        match with_operations && told.error_code == 0 {
            true => told.with_authorized_operations(operations),
            false => told,
        }
    });
    let groups = groups.collect();
    call.now(&DescribeGroupsResponse::default().with_groups(groups))
}

fn described(call: &Call, group: GroupId) -> DescribedGroup {
    let streams = call.context.streams();
    let told = DescribedGroup::default().with_group_id(group.clone());
    let in_state = |state: GroupState| told.clone().with_group_state(text(state.name()));
    let live = streams.groups().describe(&group);
    let standing = streams.group_standing(&group);
    let kind = live.as_ref().map(|live| live.kind);
    let kind = kind.or(standing.as_ref().map(|standing| standing.kind));
    match (live, kind) {
        (Some(live), Some(GroupKind::Classic)) => with_members(in_state(live.state), live),
        (None, Some(GroupKind::Classic)) => in_state(GroupState::Empty)
            .with_protocol_type(standing.map(|s| owned(s.protocol_type)).unwrap_or_default()),
        (_, None) if streams.knows_group(&group) => in_state(GroupState::Empty),
        // Before version 6 a group that is not there is a dead one.
        (_, kind) if call.version >= NOT_FOUND_FROM => in_state(GroupState::Dead)
            .with_error_code(ResponseError::GroupIdNotFound.code())
            .with_error_message(Some(match kind {
                None => owned(format!("Group {} not found.", group.as_str())),
                Some(_) => owned(format!("Group {} is not a classic group.", group.as_str())),
            })),
        _ => in_state(GroupState::Dead),
    }
}

/// Lists the groups that have members or offsets, or had members that may come back.
pub(super) fn list_groups(call: Call) -> Result<Reply, Ending> {
    let request: ListGroupsRequest = call.decode("ListGroups")?;
    let fits = |wanted: &[StrBytes], is: &str| {
        wanted.is_empty() || wanted.iter().any(|w| w.eq_ignore_ascii_case(is))
    };
    let listed = call.context.streams().list_groups().into_iter();
    let all = call.may_cluster(Operation::Describe);
    let (describe, kind) = (Operation::Describe, ResourceType::Group);
    let is_foreign = |group: &str| call.context.is_foreign(describe, kind, group);
    let listed = listed.filter(|group| {
        (all && !is_foreign(&group.group) || call.may(describe, kind, &group.group))
            && fits(&request.states_filter, group.state.name())
            && fits(&request.types_filter, group.kind.name())
    });
    let groups = listed.map(|listed| {
        let mut group = ListedGroup::default()
            .with_group_id(GroupId(owned(listed.group)))
            .with_protocol_type(owned(listed.protocol_type));
        if call.version >= 4 {
            group.group_state = text(listed.state.name());
        }
        if call.version >= 5 {
            group.group_type = text(listed.kind.name());
        }
        group
    });
    let groups = groups.collect();
    call.now(&ListGroupsResponse::default().with_groups(groups))
}

/// Deletes groups without members: their offsets are forgotten.
pub(super) fn delete_groups(call: Call) -> Result<Reply, Ending> {
    let request: DeleteGroupsRequest = call.decode("DeleteGroups")?;
    Reply::later(async move {
        let mut results = Vec::with_capacity(request.groups_names.len());
        for group in request.groups_names {
            let code = delete_group(&call, &group).await;
            results.push(
                DeletableGroupResult::default()
                    .with_group_id(group)
                    .with_error_code(code),
            );
        }
        call.answer(&DeleteGroupsResponse::default().with_results(results))
    })
}

async fn delete_group(call: &Call, group: &str) -> i16 {
    if !call.may_group(Operation::Delete, group) {
        return NOT_ALLOWED;
    }
    let streams = call.context.streams();
    loop {
        if let Err(error) = streams.groups().check_delete(group) {
            return group_error_code(&error);
        }
        match streams.delete_group(group) {
            Ok((true, durable)) => return coordinator_code_of(&durable.await),
            Ok((false, _)) => return ResponseError::GroupIdNotFound.code(),
            Err(StreamsError::Busy) => streams.room(CHANGE_ROOM_BYTES).await,
            Err(error) => return coordinator_error_code(&error),
        }
    }
}

/// Forgets single offsets of a group, but for topics that a member reads.
pub(super) fn offset_delete(call: Call) -> Result<Reply, Ending> {
    let request: OffsetDeleteRequest = call.decode("OffsetDelete")?;
    let streams = call.context.streams();
    let group = &request.group_id;
    let live = streams.groups().describe(group);
    let refused =
        |code: ResponseError| OffsetDeleteResponse::default().with_error_code(code.code());
    if !call.may_group(Operation::Delete, group) {
        return call.now(&refused(ResponseError::GroupAuthorizationFailed));
    }
    if live.is_none() && !streams.knows_group(group) {
        return call.now(&refused(ResponseError::GroupIdNotFound));
    }
    // Who shares partitions by other rules than consumers reads one knows not what.
    let is_opaque = |live: &GroupDescription| {
        !live.members.is_empty() && live.protocol_type != crate::groups::CONSUMER_PROTOCOL_TYPE
    };
    if live.as_ref().is_some_and(is_opaque) {
        return call.now(&refused(ResponseError::NonEmptyGroup));
    }
    let mut forgotten = Vec::new();
    let topics: Vec<OffsetDeleteResponseTopic> = request
        .topics
        .into_iter()
        .map(|asked| deletable(&call, group, asked, &mut forgotten))
        .collect();
    let deleted = match streams.delete_offsets(group, &forgotten) {
        Err(StreamsError::Busy) => return Ok(begun_again(call, offset_delete)),
        deleted => deleted,
    };
    Reply::later(async move {
        let code = match deleted {
            Ok(durable) => coordinator_code_of(&durable.await),
            Err(error) => coordinator_error_code(&error),
        };
        let body = OffsetDeleteResponse::default().with_error_code(code);
        call.answer(&match code {
            0 => body.with_topics(topics),
            _ => body,
        })
    })
}

/// The answer for one topic; what may be forgotten goes into `forgotten`.
fn deletable(
    call: &Call,
    group: &str,
    asked: OffsetDeleteRequestTopic,
    forgotten: &mut Vec<(crate::TopicName, i32)>,
) -> OffsetDeleteResponseTopic {
    let topic = metadata::find(call, Operation::Read, &asked.name);
    let is_read = topic.is_ok() && call.context.streams().groups().reads(group, &asked.name);
    let partitions = asked.partitions.iter().map(|partition| {
        let index = partition.partition_index;
        let code = match &topic {
            _ if is_read => ResponseError::GroupSubscribedToTopic.code(),
            Err(code) => *code,
            Ok(topic) if topic.partition(index).is_none() => {
                ResponseError::UnknownTopicOrPartition.code()
            }
            Ok(topic) => {
                forgotten.push((topic.name().clone(), index));
                0
            }
        };
        OffsetDeleteResponsePartition::default()
            .with_partition_index(index)
            .with_error_code(code)
    });
    let partitions = partitions.collect();
    OffsetDeleteResponseTopic::default()
        .with_name(asked.name)
        .with_partitions(partitions)
}

fn with_members(told: DescribedGroup, described: GroupDescription) -> DescribedGroup {
    let members = described.members.into_iter().map(|member| {
        DescribedGroupMember::default()
            .with_member_id(owned(member.member_id))
            .with_group_instance_id(member.instance_id.map(owned))
            .with_client_id(owned(member.client_id))
            .with_client_host(owned(member.client_host))
            .with_member_metadata(member.metadata)
            .with_member_assignment(member.assignment)
    });
    told.with_protocol_type(owned(described.protocol_type))
        .with_protocol_data(owned(described.protocol))
        .with_members(members.collect())
}

/// From this version on a group that is not there is an error.
const NOT_FOUND_FROM: i16 = 6;

/// Kafka's code for a group that the caller may not use.
pub(super) const NOT_ALLOWED: i16 = 30;
