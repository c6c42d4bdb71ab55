//! How far share groups have come (KIP-932): told, set anew while they have no members, and forgotten.

use access::Operation;
use bytes::BufMut;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_share_group_offsets_request::AlterShareGroupOffsetsRequestTopic;
use kafka_protocol::messages::alter_share_group_offsets_response::{
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use kafka_protocol::messages::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic;
use kafka_protocol::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
use kafka_protocol::messages::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse, DescribeShareGroupOffsetsRequest,
};
use uuid::Uuid;

use super::error::{
    coordinator_code_of, coordinator_error_code, group_error_code, streams_error_code,
};
use super::group_admin::NOT_ALLOWED;
use super::metadata;
use super::reply::{Answer, Call, Ending, Reply, begun_again, owned};
use super::writer::Writer;
use crate::groups::GroupError;
use crate::store::{CHANGE_ROOM_BYTES, DurableWait, ShareOffset};
use crate::{StreamsError, Topic};

/// Tells where share groups stand.
pub(super) fn describe(call: Call) -> Result<Reply, Ending> {
    // The second version asks as the first does, and is told more.
    let request: DescribeShareGroupOffsetsRequest =
        call.decode_in(0, "DescribeShareGroupOffsets")?;
    let groups = request.groups.iter().map(|group| described(&call, group));
    let groups: Vec<Described> = groups.collect();
    Ok(Reply::Now(encode(&call, &groups)))
}

/// Has share groups without members go on elsewhere.
pub(super) fn alter(call: Call) -> Result<Reply, Ending> {
    let request: AlterShareGroupOffsetsRequest = call.decode("AlterShareGroupOffsets")?;
    let group = request.group_id.to_string();
    let body = AlterShareGroupOffsetsResponse::default();
    if group.is_empty() {
        return call.now(&body.with_error_code(ResponseError::InvalidGroupId.code()));
    }
    if !call.may_group(Operation::Read, &group) {
        return call.now(&body.with_error_code(NOT_ALLOWED));
    }
    // Who sets where a group is to begin need not have had it before.
    match call.context.streams().make_share_group(&group) {
        Ok(()) => {}
        Err(StreamsError::Busy) => return Ok(begun_again(call, alter)),
        Err(error) => {
            let body = body.with_error_code(coordinator_error_code(&error));
            return call.now(&body.with_error_message(Some(owned(error.to_string()))));
        }
    }
    Reply::later(async move {
        let mut responses = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            responses.push(altered(&call, &group, topic).await);
        }
        call.answer(&AlterShareGroupOffsetsResponse::default().with_responses(responses))
    })
}

/// Has share groups without members begin anew with topics.
pub(super) fn delete(call: Call) -> Result<Reply, Ending> {
    let request: DeleteShareGroupOffsetsRequest = call.decode("DeleteShareGroupOffsets")?;
    let group = request.group_id.to_string();
    if let Some((code, reason)) = refusal(&call, &group) {
        let body = DeleteShareGroupOffsetsResponse::default().with_error_code(code);
        return call.now(&body.with_error_message(reason.map(owned)));
    }
    Reply::later(async move {
        let mut responses = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let told = DeleteShareGroupOffsetsResponseTopic::default();
            let found = metadata::find(&call, Operation::Read, &topic.topic_name);
            let (id, code) = match found {
                Err(code) => (Uuid::nil(), code),
                Ok(found) => {
                    let streams = call.context.streams();
                    let begin = || streams.delete_share_offsets(&group, found.partitions());
                    (found.id(), done(&call, begin).await)
                }
            };
            responses.push(
                told.with_topic_name(topic.topic_name)
                    .with_topic_id(id)
                    .with_error_code(code),
            );
        }
        call.answer(&DeleteShareGroupOffsetsResponse::default().with_responses(responses))
    })
}

/// A group as it is told.
struct Described {
    group: String,
    code: i16,
    reason: Option<String>,
    topics: Vec<DescribedTopic>,
}

struct DescribedTopic {
    name: String,
    id: Uuid,
    partitions: Vec<DescribedPartition>,
}

struct DescribedPartition {
    index: i32,
    code: i16,
    /// Where the group goes on, and how much is to come; -1 where it has not begun.
    start: i64,
    lag: i64,
}

impl DescribedPartition {
    /// One that the group has not begun to read, or that there is not.
    fn unknown(index: i32, code: i16) -> Self {
        DescribedPartition {
            index,
            code,
            start: -1,
            lag: -1,
        }
    }
}

/// Why a group's offsets are not to be changed: no such group, one with members, or a caller who may
/// not.
fn refusal(call: &Call, group: &str) -> Option<(i16, Option<String>)> {
    let streams = call.context.streams();
    if !call.may_group(Operation::Delete, group) {
        return Some((NOT_ALLOWED, None));
    }
    let refused = match streams.is_share_group(group) {
        true => streams.groups().check_delete(group).err(),
        false => Some(GroupError::NotFound),
    };
    refused.map(|error| (group_error_code(&error), Some(error.to_string())))
}

fn described(call: &Call, asked: &DescribeShareGroupOffsetsRequestGroup) -> Described {
    let group = asked.group_id.to_string();
    let streams = call.context.streams();
    let refused = |code: i16, reason: Option<String>| Described {
        group: group.clone(),
        code,
        reason,
        topics: Vec::new(),
    };
    if !call.may_group(Operation::Describe, &group) {
        return refused(NOT_ALLOWED, None);
    }
    if !streams.is_share_group(&group) {
        let reason = format!("Group {group} not found, or is not a share group.");
        return refused(ResponseError::GroupIdNotFound.code(), Some(reason));
    }
    let known = streams.share_offsets(&group);
    let mut topics: Vec<DescribedTopic> = Vec::new();
    match &asked.topics {
        Some(wanted) => {
            for topic in wanted {
                let found = metadata::find(call, Operation::Describe, &topic.topic_name);
                let partitions = topic.partitions.iter().map(|index| match &found {
                    Err(code) => DescribedPartition::unknown(*index, *code),
                    Ok(found) if found.partition(*index).is_none() => {
                        let code = ResponseError::UnknownTopicOrPartition.code();
                        DescribedPartition::unknown(*index, code)
                    }
                    Ok(found) => {
                        let of = of_topic(&known, found).find(|of| of.partition.index() == *index);
                        of.map_or_else(|| DescribedPartition::unknown(*index, 0), stands)
                    }
                });
                topics.push(DescribedTopic {
                    name: topic.topic_name.to_string(),
                    id: found.as_ref().map_or(Uuid::nil(), |found| found.id()),
                    partitions: partitions.collect(),
                });
            }
        }
        None => {
            for topic in streams.topics_snapshot() {
                let partitions: Vec<_> = of_topic(&known, &topic).map(stands).collect();
                if !partitions.is_empty() && call.may_topic(Operation::Describe, topic.name()) {
                    topics.push(DescribedTopic {
                        name: topic.name().wire_name().to_owned(),
                        id: topic.id(),
                        partitions,
                    });
                }
            }
        }
    }
    Described {
        topics,
        ..refused(0, None)
    }
}

fn of_topic<'a>(
    known: &'a [ShareOffset],
    topic: &'a Topic,
) -> impl Iterator<Item = &'a ShareOffset> {
    known
        .iter()
        .filter(|of| of.partition.topic() == topic.name())
}

fn stands(of: &ShareOffset) -> DescribedPartition {
    DescribedPartition {
        index: of.partition.index(),
        code: 0,
        start: of.start,
        lag: of.lag,
    }
}

async fn altered(
    call: &Call,
    group: &str,
    topic: AlterShareGroupOffsetsRequestTopic,
) -> AlterShareGroupOffsetsResponseTopic {
    let streams = call.context.streams();
    let found = metadata::find(call, Operation::Read, &topic.topic_name);
    let mut partitions = Vec::with_capacity(topic.partitions.len());
    for asked in topic.partitions {
        let partition = match &found {
            Err(code) => Err(*code),
            Ok(found) => found
                .partition(asked.partition_index)
                .ok_or(ResponseError::UnknownTopicOrPartition.code()),
        };
        let code = match partition {
            Err(code) => code,
            Ok(_) if asked.start_offset < 0 => ResponseError::InvalidRequest.code(),
            Ok(partition) => {
                // Beyond what there is lies what is yet to come.
                let range = partition.log_start_offset()..=partition.high_watermark();
                let start = asked.start_offset.clamp(*range.start(), *range.end());
                done(call, || streams.set_share_offset(group, partition, start)).await
            }
        };
        partitions.push(
            AlterShareGroupOffsetsResponsePartition::default()
                .with_partition_index(asked.partition_index)
                .with_error_code(code),
        );
    }
    AlterShareGroupOffsetsResponseTopic::default()
        .with_topic_name(topic.topic_name)
        .with_topic_id(found.map_or(Uuid::nil(), |found| found.id()))
        .with_partitions(partitions)
}

/// Does it once there is room, and waits until it is on the disk; answers the code.
async fn done(call: &Call, begin: impl Fn() -> Result<DurableWait, StreamsError>) -> i16 {
    loop {
        match begin() {
            Err(StreamsError::Busy) => call.context.streams().room(CHANGE_ROOM_BYTES).await,
            Err(error @ StreamsError::Limit { .. }) => return streams_error_code(&error),
            Err(error) => return coordinator_error_code(&error),
            Ok(wait) => return coordinator_code_of(&wait.await),
        }
    }
}

/// Encodes versions 0 and 1; source: Kafka's `DescribeShareGroupOffsetsResponse.json`.
fn encode(call: &Call, groups: &[Described]) -> Answer {
    let mut writer = Writer::new(call, true);
    writer.head.put_i32(0); // throttle time
    writer.count(groups.len());
    for group in groups {
        writer.text(&group.group);
        writer.count(group.topics.len());
        for topic in &group.topics {
            writer.text(&topic.name);
            writer.head.put_slice(topic.id.as_bytes());
            writer.count(topic.partitions.len());
            for partition in &topic.partitions {
                writer.head.put_i32(partition.index);
                writer.head.put_i64(partition.start);
                writer.head.put_i32(crate::batch::LEADER_EPOCH);
                if call.version >= 1 {
                    writer.head.put_i64(partition.lag);
                }
                writer.head.put_i16(partition.code);
                writer.optional_text(None);
                writer.no_tags();
            }
            writer.no_tags();
        }
        writer.head.put_i16(group.code);
        writer.optional_text(group.reason.as_deref());
        writer.no_tags();
    }
    writer.no_tags();
    writer.finish()
}
