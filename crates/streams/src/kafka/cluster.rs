//! What tools ask of a cluster, answered by a cluster of one: who is there, where partitions lie,
//! and moves of replicas that can never be needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use access::{Operation, ResourceType};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::*;

use super::limits::DESCRIBED_PARTITIONS_MAX;
use super::metadata::{existing, find};
use super::reply::{Call, Ending, Reply, owned};
use crate::Topic;
use crate::batch::LEADER_EPOCH;

/// Tells the node.
pub(super) fn describe_cluster(call: Call) -> Result<Reply, Ending> {
    let request: DescribeClusterRequest = call.decode("DescribeCluster")?;
    let streams = call.context.streams();
    let node = BrokerId(streams.node_id());
    let body = DescribeClusterResponse::default()
        .with_endpoint_type(request.endpoint_type)
        .with_cluster_id(owned(streams.cluster_id()))
        .with_controller_id(node);
    let code = match request.endpoint_type {
        _ if call.version == 0 => 0,
        BROKERS => 0,
        CONTROLLERS => ResponseError::MismatchedEndpointType.code(),
        _ => ResponseError::UnsupportedEndpointType.code(),
    };
    if code != 0 {
        let reason = "this listener tells of brokers only";
        let refused = DescribeClusterResponse::default()
            .with_error_code(code)
            .with_error_message(Some(owned(reason)));
        return call.now(&refused);
    }
    let broker = DescribeClusterBroker::default()
        .with_broker_id(node)
        .with_host(call.context.host.clone())
        .with_port(call.context.port);
    let body = body.with_brokers(vec![broker]);
    if !request.include_cluster_authorized_operations {
        return call.now(&body);
    }
    let operations = call.allowed_to_cluster();
    call.now(&body.with_cluster_authorized_operations(operations))
}

/// Tells partitions of topics in the order of names, a bounded number at a time.
pub(super) fn describe_topic_partitions(call: Call) -> Result<Reply, Ending> {
    let request: DescribeTopicPartitionsRequest = call.decode("DescribeTopicPartitions")?;
    let asks_all = request.topics.is_empty();
    let asked: BTreeSet<TopicName> = if asks_all {
        let all = call.context.streams().topics_snapshot();
        all.iter()
            .filter(|topic| call.may_topic(Operation::Describe, topic.name()))
            .map(|topic| TopicName(owned(topic.name().wire_name())))
            .collect()
    } else {
        request.topics.into_iter().map(|topic| topic.name).collect()
    };
    let (from, mut first) = match request.cursor {
        Some(cursor) => (cursor.topic_name, cursor.partition_index),
        None => (TopicName::default(), 0),
    };
    let is_asked = |name: &TopicName| asks_all || name.is_empty() || asked.contains(name);
    if first < 0 || !is_asked(&from) {
        // There is a place for the code only with what was asked for.
        let asked = asked.into_iter().filter(|_| !asks_all);
        let refused = asked.map(|name| {
            DescribeTopicPartitionsResponseTopic::default()
                .with_name(Some(name))
                .with_error_code(ResponseError::InvalidRequest.code())
        });
        let body = DescribeTopicPartitionsResponse::default().with_topics(refused.collect());
        return call.now(&body);
    }
    let mut left = usize::try_from(request.response_partition_limit).unwrap_or(0);
    left = left.clamp(1, DESCRIBED_PARTITIONS_MAX);
    let mut body = DescribeTopicPartitionsResponse::default();
    for name in asked.range(from.clone()..) {
        if *name != from {
            first = 0;
        }
        if left == 0 {
            body.next_cursor = Some(cursor(name, 0));
            break;
        }
        let told = DescribeTopicPartitionsResponseTopic::default().with_name(Some(name.clone()));
        let topic = match find(&call, Operation::Describe, name) {
            Ok(topic) => topic,
            Err(code) => {
                body.topics.push(told.with_error_code(code));
                continue;
            }
        };
        let first = usize::try_from(first).unwrap_or(0);
        let partitions = partitions_of(&call, &topic, first, left);
        left -= partitions.len();
        let next = first + partitions.len();
        let operations = call.allowed(ResourceType::Topic, topic.name().wire_name());
        let told = told
            .with_topic_id(topic.id())
            .with_is_internal(topic.name().is_internal())
            .with_partitions(partitions)
            .with_topic_authorized_operations(operations);
        body.topics.push(told);
        if next < topic.partitions().len() {
            let next = i32::try_from(next).unwrap_or(i32::MAX);
            body.next_cursor = Some(cursor(name, next));
            break;
        }
    }
    call.now(&body)
}

/// Tells where leader epochs end. There is one epoch, and it goes on.
pub(super) fn offset_for_leader_epoch(call: Call) -> Result<Reply, Ending> {
    let request: OffsetForLeaderEpochRequest = call.decode("OffsetForLeaderEpoch")?;
    let mut topics = Vec::with_capacity(request.topics.len());
    for asked in request.topics {
        let topic = find(&call, Operation::Describe, &asked.topic);
        let partitions = asked.partitions.iter().map(|asked| {
            let told = EpochEndOffset::default().with_partition(asked.partition);
            let end = match &topic {
                Err(code) => Err(*code),
                Ok(_) if asked.current_leader_epoch > LEADER_EPOCH => {
                    Err(ResponseError::UnknownLeaderEpoch.code())
                }
                Ok(topic) => topic
                    .partition(asked.partition)
                    .map(|partition| partition.high_watermark())
                    .ok_or(ResponseError::UnknownTopicOrPartition.code()),
            };
            match end {
                Err(code) => told.with_error_code(code),
                Ok(end) if asked.leader_epoch == LEADER_EPOCH => {
                    told.with_leader_epoch(LEADER_EPOCH).with_end_offset(end)
                }
                // An epoch that never was has no end.
                Ok(_) => told,
            }
        });
        let partitions = partitions.collect();
        topics.push(
            OffsetForLeaderTopicResult::default()
                .with_topic(asked.topic)
                .with_partitions(partitions),
        );
    }
    call.now(&OffsetForLeaderEpochResponse::default().with_topics(topics))
}

/// Tells how much each partition holds. All lie in one journal, so there is one folder.
pub(super) fn describe_log_dirs(call: Call) -> Result<Reply, Ending> {
    let request: DescribeLogDirsRequest = call.decode("DescribeLogDirs")?;
    let asked: Option<BTreeMap<TopicName, BTreeSet<i32>>> = request.topics.map(|topics| {
        let topics = topics.into_iter();
        topics
            .map(|t| (t.topic, t.partitions.into_iter().collect()))
            .collect()
    });
    if !call.may_cluster(Operation::Describe) {
        // Before version 3 there is no place for the code.
        let code = if call.version >= 3 { NOT_ALLOWED } else { 0 };
        return call.now(&DescribeLogDirsResponse::default().with_error_code(code));
    }
    let streams = call.context.streams();
    let mut topics = Vec::new();
    for topic in streams.topics_snapshot() {
        let name = TopicName(owned(topic.name().wire_name()));
        let (describe, kind) = (Operation::Describe, ResourceType::Topic);
        if call.context.is_foreign(describe, kind, &name) {
            continue;
        }
        let wanted = match &asked {
            None => None,
            Some(asked) => match asked.get(&name) {
                None => continue,
                Some(indexes) => Some(indexes),
            },
        };
        let partitions = topic.partitions().iter().filter_map(|partition| {
            if wanted.is_some_and(|wanted| !wanted.contains(&partition.index())) {
                return None;
            }
            let bytes = i64::try_from(partition.bytes_stored()).unwrap_or(i64::MAX);
            let told = DescribeLogDirsPartition::default()
                .with_partition_index(partition.index())
                .with_partition_size(bytes);
            Some(told)
        });
        let partitions = partitions.collect();
        topics.push(
            DescribeLogDirsTopic::default()
                .with_name(name)
                .with_partitions(partitions),
        );
    }
    let dir = streams.dir().display().to_string();
    let mut result = DescribeLogDirsResult::default()
        .with_log_dir(owned(dir))
        .with_topics(topics);
    if call.version >= DISK_ROOM_FROM
        && let Ok((bytes, free)) = streams.shared().journal.disk_room()
    {
        result.total_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        result.usable_bytes = i64::try_from(free).unwrap_or(i64::MAX);
    }
    call.now(&DescribeLogDirsResponse::default().with_results(vec![result]))
}

/// Elects nobody: the only node leads.
pub(super) fn elect_leaders(call: Call) -> Result<Reply, Ending> {
    let request: ElectLeadersRequest = call.decode("ElectLeaders")?;
    if !call.may_of_all(Operation::Alter) {
        return call.now(&refused_election(&call, request));
    }
    let mut results = Vec::new();
    for asked in request.topic_partitions.unwrap_or_default() {
        let topic = existing(&call, &asked.topic);
        let partitions = asked.partitions.iter().map(|index| {
            let (code, reason) = match partition_code(&topic, *index) {
                0 => (
                    ResponseError::ElectionNotNeeded.code(),
                    "the only node leads",
                ),
                code => (code, "there is no such partition"),
            };
            PartitionResult::default()
                .with_partition_id(*index)
                .with_error_code(code)
                .with_error_message(Some(owned(reason)))
        });
        let partitions = partitions.collect();
        results.push(
            ReplicaElectionResult::default()
                .with_topic(asked.topic)
                .with_partition_result(partitions),
        );
    }
    call.now(&ElectLeadersResponse::default().with_replica_election_results(results))
}

/// Tells that no replica is on the move.
pub(super) fn list_partition_reassignments(call: Call) -> Result<Reply, Ending> {
    let _: ListPartitionReassignmentsRequest = call.decode("ListPartitionReassignments")?;
    let code = if call.may_cluster(Operation::Describe) {
        0
    } else {
        NOT_ALLOWED
    };
    call.now(&ListPartitionReassignmentsResponse::default().with_error_code(code))
}

/// Takes assignments to this node, which change nothing, and refuses all others.
pub(super) fn alter_partition_reassignments(call: Call) -> Result<Reply, Ending> {
    let request: AlterPartitionReassignmentsRequest = call.decode("AlterPartitionReassignments")?;
    if !call.may_of_all(Operation::Alter) {
        let body = AlterPartitionReassignmentsResponse::default().with_error_code(NOT_ALLOWED);
        return call.now(&body);
    }
    let node = BrokerId(call.context.streams().node_id());
    let mut responses = Vec::with_capacity(request.topics.len());
    for asked in request.topics {
        let topic = existing(&call, &asked.name);
        let partitions = asked.partitions.iter().map(|asked| {
            let refused = match (
                &asked.replicas,
                partition_code(&topic, asked.partition_index),
            ) {
                (_, code) if code != 0 => Some((code, "there is no such partition")),
                (None, _) => Some((
                    ResponseError::NoReassignmentInProgress.code(),
                    "no replica is on the move",
                )),
                (Some(replicas), _) if *replicas == [node] => None,
                _ => Some((
                    ResponseError::InvalidReplicaAssignment.code(),
                    "there is one node, and it has every replica",
                )),
            };
            let told = ReassignablePartitionResponse::default()
                .with_partition_index(asked.partition_index);
            match refused {
                None => told,
                Some((code, reason)) => told
                    .with_error_code(code)
                    .with_error_message(Some(owned(reason))),
            }
        });
        let partitions = partitions.collect();
        responses.push(
            ReassignableTopicResponse::default()
                .with_name(asked.name)
                .with_partitions(partitions),
        );
    }
    let body = AlterPartitionReassignmentsResponse::default()
        .with_allow_replication_factor_change(request.allow_replication_factor_change)
        .with_responses(responses);
    call.now(&body)
}

fn partitions_of(
    call: &Call,
    topic: &Arc<Topic>,
    first: usize,
    count: usize,
) -> Vec<DescribeTopicPartitionsResponsePartition> {
    let node = BrokerId(call.context.streams().node_id());
    let partitions = topic.partitions().iter().skip(first).take(count);
    let told = partitions.map(|partition| {
        DescribeTopicPartitionsResponsePartition::default()
            .with_partition_index(partition.index())
            .with_leader_id(node)
            .with_leader_epoch(LEADER_EPOCH)
            .with_replica_nodes(vec![node])
            .with_isr_nodes(vec![node])
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
    });
    told.collect()
}

/// A refusal stands for the whole and with each partition; version 0 has only the latter place.
fn refused_election(call: &Call, request: ElectLeadersRequest) -> ElectLeadersResponse {
    let code = if call.version >= 1 { NOT_ALLOWED } else { 0 };
    let asked = request.topic_partitions.unwrap_or_default().into_iter();
    let results = asked.map(|asked| {
        let partitions = asked.partitions.iter().map(|index| {
            PartitionResult::default()
                .with_partition_id(*index)
                .with_error_code(NOT_ALLOWED)
        });
        let partitions = partitions.collect();
        ReplicaElectionResult::default()
            .with_topic(asked.topic)
            .with_partition_result(partitions)
    });
    ElectLeadersResponse::default()
        .with_error_code(code)
        .with_replica_election_results(results.collect())
}

fn cursor(name: &TopicName, partition: i32) -> Cursor {
    Cursor::default()
        .with_topic_name(name.clone())
        .with_partition_index(partition)
}

fn partition_code(topic: &Result<Arc<Topic>, i16>, index: i32) -> i16 {
    match topic {
        Err(code) => *code,
        Ok(topic) if topic.partition(index).is_some() => 0,
        Ok(_) => ResponseError::UnknownTopicOrPartition.code(),
    }
}

/// CLUSTER_AUTHORIZATION_FAILED.
const NOT_ALLOWED: i16 = 31;

/// The first version of DescribeLogDirs that tells the room on the disk.
const DISK_ROOM_FROM: i16 = 4;

/// Kafka's numbers for kinds of endpoints.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;
