//! DescribeQuorum: who decides on topics and settings. The one node does, alone.
//!
//! Tools look here for whether a cluster's metadata is well. Where they expect offsets of a log of
//! changes, there stands how often topics were created, deleted or grown since the node started.

use access::Operation;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_quorum_request::TopicData as Asked;
use kafka_protocol::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use kafka_protocol::messages::{BrokerId, DescribeQuorumRequest, DescribeQuorumResponse};

use super::reply::{Call, Ending, Reply, text};
use crate::batch::LEADER_EPOCH;
use crate::groups::Catalog;

/// Tells the node as the leader and only voter.
pub(super) fn describe_quorum(call: Call) -> Result<Reply, Ending> {
    let request: DescribeQuorumRequest = call.decode("DescribeQuorum")?;
    if !call.may_cluster(Operation::Describe) {
        let code = ResponseError::ClusterAuthorizationFailed.code();
        return call.now(&DescribeQuorumResponse::default().with_error_code(code));
    }
    let topics = request
        .topics
        .into_iter()
        .map(|asked| described(&call, asked));
    let body = DescribeQuorumResponse::default().with_topics(topics.collect());
    if call.version < NODES_FROM {
        return call.now(&body);
    }
    let listener = Listener::default()
        .with_name(text("KAFKA"))
        .with_host(call.context.host.clone())
        .with_port(u16::try_from(call.context.port).unwrap_or(0));
    let node = Node::default()
        .with_node_id(BrokerId(call.context.streams().node_id()))
        .with_listeners(vec![listener]);
    call.now(&body.with_nodes(vec![node]))
}

fn described(call: &Call, asked: Asked) -> TopicData {
    let streams = call.context.streams();
    let node = BrokerId(streams.node_id());
    let changes = i64::try_from(streams.version()).unwrap_or(i64::MAX);
    let partitions = asked.partitions.iter().map(|partition| {
        let index = partition.partition_index;
        let told = PartitionData::default().with_partition_index(index);
        if asked.topic_name.as_str() != METADATA || index != 0 {
            return told.with_error_code(ResponseError::UnknownTopicOrPartition.code());
        }
        let voter = ReplicaState::default()
            .with_replica_id(node)
            .with_log_end_offset(changes);
        let voter = match call.version >= TIMES_FROM {
            true => {
                let now = streams.clock().now().0;
                voter
                    .with_last_fetch_timestamp(now)
                    .with_last_caught_up_timestamp(now)
            }
            false => voter,
        };
        told.with_leader_id(node)
            .with_leader_epoch(LEADER_EPOCH)
            .with_high_watermark(changes)
            .with_current_voters(vec![voter])
    });
    let partitions = partitions.collect();
    TopicData::default()
        .with_topic_name(asked.topic_name)
        .with_partitions(partitions)
}

/// Kafka's name for the log of its metadata.
const METADATA: &str = "__cluster_metadata";

/// The first version that tells when replicas were heard of last.
const TIMES_FROM: i16 = 1;

/// The first version that tells where the voters are.
const NODES_FROM: i16 = 2;
