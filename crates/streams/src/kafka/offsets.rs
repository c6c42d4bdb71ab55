//! OffsetCommit and OffsetFetch.

use std::collections::HashSet;
use std::sync::Arc;

use access::Operation;
use base::UnixMillis;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopics;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::txn_offset_commit_request::TxnOffsetCommitRequestPartition;
use kafka_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    TopicName as WireName,
};
use kafka_protocol::protocol::Decodable;
use uuid::Uuid;

use super::error::{commit_error_code, coordinator_code_of, group_code_of, group_error_code};
use super::reply::{Call, Ending, Reply, begun_again, once, owned};
use super::{guard, metadata, shapes};
use crate::groups::{GroupError, MemberRef};
use crate::limits::OFFSET_METADATA_BYTES_MAX;
use crate::{CommittedOffset, OffsetCommit, StreamsError, Topic, TopicName};

/// Commits offsets; they are durable when the answer says so.
pub(super) fn offset_commit(call: Call) -> Result<Reply, Ending> {
    let request: OffsetCommitRequest = decode(&call, "OffsetCommit", shapes::OFFSET_COMMIT)?;
    let streams = call.context.streams();
    let member = MemberRef {
        group: &request.group_id,
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: request.generation_id_or_member_epoch,
    };
    let checked = || match streams.groups().check_commit(member) {
        Err(GroupError::StaleMemberEpoch) => {
            let partitions = partitions_of(&call, &request);
            streams.groups().check_late_commit(member, &partitions)
        }
        checked => checked,
    };
    // First, as a commit keeps its member's session alive.
    let may = call.may_group(Operation::Read, &request.group_id);
    let refusal = if !may {
        ResponseError::GroupAuthorizationFailed.code()
    } else {
        match checked() {
            // From version 9 on a group that is not there is told apart.
            Err(GroupError::IllegalGeneration)
                if call.version >= MEMBER_EPOCHS_FROM && !streams.has_group(&request.group_id) =>
            {
                group_error_code(&GroupError::NotFound)
            }
            checked => group_code_of(&checked),
        }
    };
    let now = streams.clock().now();
    let mut commits = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for asked in request.topics {
        let (named, topic) = look_up(&call, Operation::Read, asked.name);
        let topic = if may { topic } else { Err(refusal) };
        let asked = asked.partitions.into_iter().map(AskedOffset::from);
        let codes = take_offsets(topic.as_deref(), now, asked, &mut commits);
        topics.push((named, codes));
    }
    // A topic that is not there is told as such, also to who is no member.
    if refusal != 0 || commits.is_empty() {
        return call.now(&commit_answer(topics, refusal));
    }
    match streams.commit_offsets(&request.group_id, commits) {
        Ok(durable) => Reply::later(async move {
            let code = coordinator_code_of(&durable.await);
            call.answer(&commit_answer(topics, code))
        }),
        Err(StreamsError::Busy) => Ok(begun_again(call, offset_commit)),
        Err(error) => {
            let code = commit_error_code(&error);
            call.now(&commit_answer(topics, code))
        }
    }
}

/// An offset that is to be committed, within a transaction or not.
pub(super) struct AskedOffset {
    index: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: String,
}

impl From<OffsetCommitRequestPartition> for AskedOffset {
    fn from(asked: OffsetCommitRequestPartition) -> Self {
        AskedOffset {
            index: asked.partition_index,
            offset: asked.committed_offset,
            leader_epoch: asked.committed_leader_epoch,
            metadata: asked.committed_metadata.unwrap_or_default().to_string(),
        }
    }
}

impl From<TxnOffsetCommitRequestPartition> for AskedOffset {
    fn from(asked: TxnOffsetCommitRequestPartition) -> Self {
        AskedOffset {
            index: asked.partition_index,
            offset: asked.committed_offset,
            leader_epoch: asked.committed_leader_epoch,
            metadata: asked.committed_metadata.unwrap_or_default().to_string(),
        }
    }
}

/// Adds the offsets of one topic that can be taken to `commits`; answers a code for each that was
/// asked, which is the topic's own where it has one.
pub(super) fn take_offsets(
    topic: Result<&Topic, &i16>,
    now: UnixMillis,
    asked: impl Iterator<Item = AskedOffset>,
    commits: &mut Vec<OffsetCommit>,
) -> Vec<(i32, i16)> {
    let codes = asked.map(|asked| {
        let code = match topic {
            Err(code) => *code,
            Ok(topic) if topic.partition(asked.index).is_none() => {
                ResponseError::UnknownTopicOrPartition.code()
            }
            Ok(_) if asked.metadata.len() > OFFSET_METADATA_BYTES_MAX => {
                ResponseError::OffsetMetadataTooLarge.code()
            }
            Ok(topic) => {
                commits.push(OffsetCommit {
                    topic: topic.name().clone(),
                    partition: asked.index,
                    offset: asked.offset,
                    leader_epoch: asked.leader_epoch,
                    metadata: asked.metadata,
                    at: now,
                });
                0
            }
        };
        (asked.index, code)
    });
    codes.collect()
}

/// Tells committed offsets: those asked for, or all of a group.
pub(super) fn offset_fetch(call: Call) -> Result<Reply, Ending> {
    let request: OffsetFetchRequest = decode(&call, "OffsetFetch", shapes::OFFSET_FETCH)?;
    if call.version >= 8 {
        let groups = once(request.groups, |group| group.group_id.clone());
        let groups = groups.into_iter().map(|group| {
            let member = MemberRef {
                group: &group.group_id,
                member_id: group.member_id.as_deref().unwrap_or_default(),
                instance_id: None,
                generation: group.member_epoch,
            };
            if !call.may_group(Operation::Describe, &group.group_id) {
                return OffsetFetchResponseGroup::default()
                    .with_group_id(group.group_id)
                    .with_error_code(ResponseError::GroupAuthorizationFailed.code());
            }
            let checked = call.context.streams().groups().check_fetch(member);
            if checked.is_err() {
                return OffsetFetchResponseGroup::default()
                    .with_group_id(group.group_id)
                    .with_error_code(group_code_of(&checked));
            }
            let topics = committed(&call, &group.group_id, group.topics, request.require_stable);
            OffsetFetchResponseGroup::default()
                .with_group_id(group.group_id)
                .with_topics(topics)
        });
        let groups = groups.collect();
        return call.now(&OffsetFetchResponse::default().with_groups(groups));
    }
    if !call.may_group(Operation::Describe, &request.group_id) {
        return call.now(&refused_fetch(&call, request));
    }
    let asked = request.topics.map(|topics| {
        let plain = topics.into_iter().map(|topic| {
            OffsetFetchRequestTopics::default()
                .with_name(topic.name)
                .with_partition_indexes(topic.partition_indexes)
        });
        plain.collect()
    });
    let topics = committed(&call, &request.group_id, asked, request.require_stable)
        .into_iter()
        .map(|topic| {
            let partitions = topic.partitions.into_iter().map(|partition| {
                let told = OffsetFetchResponsePartition::default()
                    .with_partition_index(partition.partition_index)
                    .with_committed_offset(partition.committed_offset)
                    .with_error_code(partition.error_code)
                    .with_metadata(partition.metadata);
                match call.version >= 5 {
                    true => told.with_committed_leader_epoch(partition.committed_leader_epoch),
                    false => told,
                }
            });
            OffsetFetchResponseTopic::default()
                .with_name(topic.name)
                .with_partitions(partitions.collect())
        });
    let topics = topics.collect();
    call.now(&OffsetFetchResponse::default().with_topics(topics))
}

/// Since version 2 a refusal stands for the whole; before, with each partition.
fn refused_fetch(call: &Call, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let code = ResponseError::GroupAuthorizationFailed.code();
    if call.version >= 2 {
        return OffsetFetchResponse::default().with_error_code(code);
    }
    let topics = request.topics.unwrap_or_default().into_iter().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(*index)
                .with_committed_offset(-1)
                .with_metadata(Some(owned("")))
                .with_error_code(code)
        });
        OffsetFetchResponseTopic::default()
            .with_partitions(partitions.collect())
            .with_name(topic.name)
    });
    OffsetFetchResponse::default().with_topics(topics.collect())
}

fn commit_answer(topics: Vec<(Named, Vec<(i32, i16)>)>, failed: i16) -> OffsetCommitResponse {
    let topics = topics.into_iter().map(|(named, codes)| {
        let partitions = codes.into_iter().map(|(index, code)| {
            // What could not be made durable failed for all that were to be committed together.
            OffsetCommitResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(if code == 0 { failed } else { code })
        });
        OffsetCommitResponseTopic::default()
            .with_name(named.name)
            .with_topic_id(named.id)
            .with_partitions(partitions.collect())
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

fn committed(
    call: &Call,
    group: &str,
    asked: Option<Vec<OffsetFetchRequestTopics>>,
    require_stable: bool,
) -> Vec<OffsetFetchResponseTopics> {
    let streams = call.context.streams();
    // Looked at before the offset is read: what becomes stable in between is read as it is then.
    let is_unstable = |topic: &TopicName, index: i32| {
        require_stable && streams.is_offset_unstable(group, topic, index)
    };
    let Some(asked) = asked else {
        return all_committed(call, group, is_unstable);
    };
    let mut topics = Vec::with_capacity(asked.len());
    let mut seen = HashSet::new();
    for topic in asked {
        let wire_name = topic.name.clone();
        let (named, found) = look_up(call, Operation::Describe, topic.name);
        // A name that is not there has no offset; an id that is not there is an error.
        let refused = match &found {
            Err(code) if call.version >= IDS_FROM || *code == NOT_ALLOWED => *code,
            _ => 0,
        };
        let name = found.ok().map(|topic| topic.name().clone());
        let indexes = topic.partition_indexes.iter();
        let indexes = indexes.filter(|index| seen.insert((wire_name.clone(), **index)));
        let partitions = indexes.map(|index| {
            if name.as_ref().is_some_and(|name| is_unstable(name, *index)) {
                return unstable(*index);
            }
            let offset = name
                .as_ref()
                .and_then(|n| streams.committed_offset(group, n, *index));
            told(*index, offset).with_error_code(refused)
        });
        let partitions = partitions.collect();
        topics.push(
            OffsetFetchResponseTopics::default()
                .with_name(named.name)
                .with_topic_id(named.id)
                .with_partitions(partitions),
        );
    }
    topics
}

fn all_committed(
    call: &Call,
    group: &str,
    is_unstable: impl Fn(&TopicName, i32) -> bool,
) -> Vec<OffsetFetchResponseTopics> {
    let streams = call.context.streams();
    let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
    let mut last: Option<TopicName> = None;
    for offset in streams.committed_all(group) {
        if !call.may_topic(Operation::Describe, &offset.topic) {
            continue;
        }
        let partition = if is_unstable(&offset.topic, offset.partition) {
            unstable(offset.partition)
        } else {
            told(offset.partition, Some(offset.committed))
        };
        if last.as_ref() != Some(&offset.topic) {
            let found = streams.topic_by_name(&offset.topic);
            let Some(found) = found else { continue };
            let topic = OffsetFetchResponseTopics::default();
            topics.push(match call.version >= IDS_FROM {
                true => topic.with_topic_id(found.id()),
                false => topic.with_name(WireName(owned(offset.topic.wire_name()))),
            });
            last = Some(offset.topic);
        }
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(partition);
        }
    }
    topics
}

/// How a topic is named in an answer: by name, and from version 10 on by id.
struct Named {
    name: WireName,
    id: Uuid,
}

/// The topic that a request names by name or id, if the caller may do `operation` to it, and how
/// the answer names it.
fn look_up(call: &Call, operation: Operation, name: WireName) -> (Named, Result<Arc<Topic>, i16>) {
    if call.version < IDS_FROM {
        let found = metadata::find(call, operation, &name);
        return (
            Named {
                name,
                id: Uuid::nil(),
            },
            found,
        );
    }
    let id = Uuid::parse_str(&name).unwrap_or_default();
    let found = call.context.streams().topic_by_id(id);
    let named = Named {
        name: WireName::default(),
        id,
    };
    let found = match found {
        None => Err(ResponseError::UnknownTopicId.code()),
        Some(topic) if !call.may_topic(operation, topic.name()) => Err(NOT_ALLOWED),
        Some(topic) => Ok(topic),
    };
    (named, found)
}

/// The partitions that a commit names, by topic id; those of unknown topics are of no concern.
fn partitions_of(call: &Call, request: &OffsetCommitRequest) -> Vec<(Uuid, i32)> {
    let mut partitions = Vec::new();
    for asked in &request.topics {
        if let (_, Ok(topic)) = look_up(call, Operation::Read, asked.name.clone()) {
            let indexes = asked.partitions.iter().map(|p| p.partition_index);
            partitions.extend(indexes.map(|index| (topic.id(), index)));
        }
    }
    partitions
}

/// Decodes the request; the ids of version 10 stand as texts where the names stood before.
fn decode<T: Decodable>(
    call: &Call,
    api: &'static str,
    shape: &'static [guard::Field],
) -> Result<T, Ending> {
    if call.version < IDS_FROM {
        return call.decode(api);
    }
    let mut by_name = call.clone();
    by_name.body = guard::ids_as_names(shape, call.version, &call.body)?.into();
    by_name.decode_in(IDS_FROM - 1, api)
}

/// An offset that a transaction may be about to replace: the client asks again.
fn unstable(index: i32) -> OffsetFetchResponsePartitions {
    told(index, None).with_error_code(ResponseError::UnstableOffsetCommit.code())
}

fn told(index: i32, committed: Option<CommittedOffset>) -> OffsetFetchResponsePartitions {
    let told = OffsetFetchResponsePartitions::default().with_partition_index(index);
    match committed {
        Some(committed) => told
            .with_committed_offset(committed.offset)
            .with_committed_leader_epoch(committed.leader_epoch)
            .with_metadata(Some(owned(committed.metadata))),
        None => told
            .with_committed_offset(-1)
            .with_committed_leader_epoch(-1)
            .with_metadata(Some(owned(""))),
    }
}

/// Kafka's code for a topic that the caller may not use.
const NOT_ALLOWED: i16 = 29;

/// The first version in which members of the newer group protocol say their epochs.
const MEMBER_EPOCHS_FROM: i16 = 9;

/// The first version in which topics go by their ids.
const IDS_FROM: i16 = 10;
