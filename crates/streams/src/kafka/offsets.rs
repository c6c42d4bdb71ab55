//! OffsetCommit and OffsetFetch.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopics;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    TopicName as WireName,
};

use super::error::{code_of, group_code_of, streams_error_code};
use super::metadata;
use super::reply::{Call, Ending, Reply, owned};
use crate::limits::OFFSET_METADATA_BYTES_MAX;
use crate::{CommittedOffset, OffsetCommit, TopicName};

/// Commits offsets; they are durable when the answer says so.
pub(super) fn offset_commit(call: Call) -> Result<Reply, Ending> {
    let request: OffsetCommitRequest = call.decode("OffsetCommit")?;
    let streams = call.context.streams();
    let checked = streams.groups().check_commit(crate::groups::MemberRef {
        group: &request.group_id,
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: request.generation_id_or_member_epoch,
    });
    let refusal = group_code_of(&checked);
    let now = streams.clock().now();
    let mut commits = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for asked in request.topics {
        let topic = metadata::find(&call.context, &asked.name);
        let mut codes = Vec::with_capacity(asked.partitions.len());
        for partition in asked.partitions {
            let metadata = partition.committed_metadata.unwrap_or_default();
            let code = match &topic {
                _ if refusal != 0 => refusal,
                Err(code) => *code,
                Ok(topic) if topic.partition(partition.partition_index).is_none() => {
                    ResponseError::UnknownTopicOrPartition.code()
                }
                Ok(_) if metadata.len() > OFFSET_METADATA_BYTES_MAX => {
                    ResponseError::OffsetMetadataTooLarge.code()
                }
                Ok(topic) => {
                    commits.push(OffsetCommit {
                        topic: topic.name().clone(),
                        partition: partition.partition_index,
                        offset: partition.committed_offset,
                        leader_epoch: partition.committed_leader_epoch,
                        metadata: metadata.to_string(),
                        at: now,
                    });
                    0
                }
            };
            codes.push((partition.partition_index, code));
        }
        topics.push((asked.name, codes));
    }
    if commits.is_empty() {
        return call.now(&commit_answer(topics, 0));
    }
    match streams.commit_offsets(&request.group_id, commits) {
        Ok(durable) => Reply::later(async move {
            let code = code_of(&durable.await);
            call.answer(&commit_answer(topics, code))
        }),
        Err(error) => {
            let code = streams_error_code(&error);
            call.now(&commit_answer(topics, code))
        }
    }
}

/// Tells committed offsets: those asked for, or all of a group.
pub(super) fn offset_fetch(call: Call) -> Result<Reply, Ending> {
    let request: OffsetFetchRequest = call.decode("OffsetFetch")?;
    if call.version >= 8 {
        let groups = request.groups.into_iter().map(|group| {
            let topics = committed(&call, &group.group_id, group.topics);
            OffsetFetchResponseGroup::default()
                .with_group_id(group.group_id)
                .with_topics(topics)
        });
        let groups = groups.collect();
        return call.now(&OffsetFetchResponse::default().with_groups(groups));
    }
    let asked = request.topics.map(|topics| {
        let plain = topics.into_iter().map(|topic| {
            OffsetFetchRequestTopics::default()
                .with_name(topic.name)
                .with_partition_indexes(topic.partition_indexes)
        });
        plain.collect()
    });
    let topics = committed(&call, &request.group_id, asked)
        .into_iter()
        .map(|topic| {
            let partitions = topic.partitions.into_iter().map(|partition| {
                let told = OffsetFetchResponsePartition::default()
                    .with_partition_index(partition.partition_index)
                    .with_committed_offset(partition.committed_offset)
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

fn commit_answer(topics: Vec<(WireName, Vec<(i32, i16)>)>, failed: i16) -> OffsetCommitResponse {
    let topics = topics.into_iter().map(|(name, codes)| {
        let partitions = codes.into_iter().map(|(index, code)| {
            // What could not be made durable failed for all that were to be committed together.
            OffsetCommitResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(if code == 0 { failed } else { code })
        });
        OffsetCommitResponseTopic::default()
            .with_name(name)
            .with_partitions(partitions.collect())
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

fn committed(
    call: &Call,
    group: &str,
    asked: Option<Vec<OffsetFetchRequestTopics>>,
) -> Vec<OffsetFetchResponseTopics> {
    let streams = call.context.streams();
    let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
    let Some(asked) = asked else {
        for offset in streams.committed_all(group) {
            let name = WireName(owned(offset.topic.wire_name()));
            let partition = told(offset.partition, Some(offset.committed));
            match topics.last_mut() {
                Some(topic) if topic.name == name => topic.partitions.push(partition),
                _ => topics.push(
                    OffsetFetchResponseTopics::default()
                        .with_name(name)
                        .with_partitions(vec![partition]),
                ),
            }
        }
        return topics;
    };
    for topic in asked {
        let name: Option<TopicName> = topic.name.parse().ok();
        let partitions = topic.partition_indexes.iter().map(|index| {
            let found = name
                .as_ref()
                .and_then(|n| streams.committed_offset(group, n, *index));
            told(*index, found)
        });
        let partitions = partitions.collect();
        topics.push(
            OffsetFetchResponseTopics::default()
                .with_name(topic.name)
                .with_partitions(partitions),
        );
    }
    topics
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
