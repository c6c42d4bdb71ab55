//! What tools ask of the cluster.

use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::*;

use super::client::{Client, Server, batch, metadata, produce, wire};

async fn create(client: &mut Client, name: &'static str, partitions: i32) {
    let topic = CreatableTopic::default()
        .with_name(wire(name))
        .with_num_partitions(partitions)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_topics(vec![topic]);
    assert_eq!(client.call(7, &request).await.topics[0].error_code, 0);
}

#[tokio::test]
async fn the_cluster_is_one_node() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    for (version, kind, code) in [(0, 1, 0), (1, 1, 0), (2, 1, 0), (2, 2, 114), (2, 3, 115)] {
        let request = DescribeClusterRequest::default().with_endpoint_type(kind);
        let told = client.call(version, &request).await;
        assert_eq!(told.error_code, code);
        if code == 0 {
            assert_eq!(told.cluster_id.as_str(), server.streams.cluster_id());
            assert_eq!(told.brokers[0].port, i32::from(server.address.port()));
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn the_node_decides_alone() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    let topic = |name, index| {
        let partition =
            describe_quorum_request::PartitionData::default().with_partition_index(index);
        describe_quorum_request::TopicData::default()
            .with_topic_name(wire(name))
            .with_partitions(vec![partition])
    };
    let request = DescribeQuorumRequest::default().with_topics(vec![
        topic("__cluster_metadata", 0),
        topic("__cluster_metadata", 1),
        topic("t", 0),
    ]);
    for version in 0..=2 {
        let told = client.call(version, &request).await;
        let partitions = told.topics.iter().map(|topic| &topic.partitions[0]);
        let codes: Vec<i16> = partitions.map(|partition| partition.error_code).collect();
        assert_eq!(codes, [0, 3, 3]);
        let metadata = &told.topics[0].partitions[0];
        let voter = &metadata.current_voters[0];
        assert_eq!(
            (metadata.leader_id, voter.replica_id),
            (BrokerId(1), BrokerId(1))
        );
        assert_eq!(metadata.high_watermark, voter.log_end_offset);
        assert_eq!(voter.last_fetch_timestamp > 0, version >= 1);
        let port = told.nodes.first().map(|node| node.listeners[0].port);
        assert_eq!(port, Some(server.address.port()).filter(|_| version >= 2));
    }
    server.stop().await;
}

#[tokio::test]
async fn partitions_are_told_page_by_page() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    for (name, partitions) in [("a", 3), ("b", 1), ("c", 4)] {
        create(&mut client, name, partitions).await;
    }
    let mut request = DescribeTopicPartitionsRequest::default().with_response_partition_limit(3);
    let mut pages = Vec::new();
    loop {
        let told = client.call(0, &request).await;
        let page = told.topics.iter().map(|topic| {
            let name = topic.name.as_ref().unwrap().to_string();
            (
                name,
                topic
                    .partitions
                    .iter()
                    .map(|p| p.partition_index)
                    .collect::<Vec<_>>(),
            )
        });
        pages.push(page.collect::<Vec<_>>());
        let Some(next) = told.next_cursor else { break };
        let cursor = Cursor::default()
            .with_topic_name(next.topic_name)
            .with_partition_index(next.partition_index);
        request = request.with_cursor(Some(cursor));
    }
    let page = |topics: &[(&str, &[i32])]| -> Vec<(String, Vec<i32>)> {
        topics
            .iter()
            .map(|(name, p)| ((*name).to_owned(), p.to_vec()))
            .collect()
    };
    assert_eq!(
        pages,
        [
            page(&[("a", &[0, 1, 2])]),
            page(&[("b", &[0]), ("c", &[0, 1])]),
            page(&[("c", &[2, 3])]),
        ]
    );
    let named = DescribeTopicPartitionsRequest::default()
        .with_response_partition_limit(9)
        .with_topics(vec![
            TopicRequest::default().with_name(wire("nowhere")),
            TopicRequest::default().with_name(wire("b")),
        ]);
    let told = client.call(0, &named).await;
    let codes: Vec<i16> = told.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [0, 3]);
    // A page begins at a topic that is asked for, and at a partition.
    for (topic, partition, wanted) in [
        ("b", 0, vec![0, 3]),
        ("c", 0, vec![42, 42]),
        ("b", -1, vec![42, 42]),
    ] {
        let cursor = Cursor::default()
            .with_topic_name(wire(topic))
            .with_partition_index(partition);
        let told = client
            .call(0, &named.clone().with_cursor(Some(cursor)))
            .await;
        let codes: Vec<i16> = told.topics.iter().map(|topic| topic.error_code).collect();
        assert_eq!(codes, wanted, "{topic} {partition}");
    }
    let coordinator = FindCoordinatorRequest::default().with_coordinator_keys(vec![
        kafka_protocol::protocol::StrBytes::from_static_str("g"),
    ]);
    client.call(4, &coordinator).await;
    let all = DescribeTopicPartitionsRequest::default().with_response_partition_limit(2_000);
    let told = client.call(0, &all).await.topics;
    let internal = told.iter().filter(|topic| topic.is_internal);
    let internal: Vec<&str> = internal
        .map(|t| t.name.as_ref().unwrap().as_str())
        .collect();
    assert_eq!(internal, ["__consumer_offsets"]);
    server.stop().await;
}

#[tokio::test]
async fn epochs_and_sizes_are_those_of_what_is_stored() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    client
        .call(9, &produce("t", 0, -1, batch(&["a", "b"])))
        .await;
    for (partition, current, epoch, wanted) in [
        (0, -1, 0, (0, 0, 2)),
        (0, 0, 1, (0, -1, -1)),
        (0, 1, 0, (75, -1, -1)),
        (9, -1, 0, (3, -1, -1)),
    ] {
        let asked = OffsetForLeaderPartition::default()
            .with_partition(partition)
            .with_current_leader_epoch(current)
            .with_leader_epoch(epoch);
        let topic = OffsetForLeaderTopic::default()
            .with_topic(wire("t"))
            .with_partitions(vec![asked]);
        let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
        for version in 2..=4 {
            let told = client.call(version, &request).await.topics.remove(0);
            let told = &told.partitions[0];
            assert_eq!(
                (told.error_code, told.leader_epoch, told.end_offset),
                wanted
            );
        }
    }
    let topic = DescribableLogDirTopic::default()
        .with_topic(wire("t"))
        .with_partitions(vec![0]);
    let request = DescribeLogDirsRequest::default().with_topics(Some(vec![topic]));
    let told = client.call(4, &request).await.results.remove(0);
    assert_eq!(told.topics[0].partitions.len(), 1);
    assert!(told.usable_bytes > 0 && told.total_bytes > told.usable_bytes);
    let size = told.topics[0].partitions[0].partition_size;
    assert_eq!(size, i64::try_from(batch(&["a", "b"]).len()).unwrap());
    let all = DescribeLogDirsRequest::default().with_topics(None);
    let told = client.call(1, &all).await.results.remove(0);
    assert_eq!(told.topics[0].partitions.len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn replicas_stay_where_they_are() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let elect = TopicPartitions::default()
        .with_topic(wire("t"))
        .with_partitions(vec![0, 9]);
    let request = ElectLeadersRequest::default().with_topic_partitions(Some(vec![elect]));
    let told = client
        .call(2, &request)
        .await
        .replica_election_results
        .remove(0);
    let codes: Vec<i16> = told.partition_result.iter().map(|p| p.error_code).collect();
    assert_eq!(codes, [84, 3]);
    let none = ListPartitionReassignmentsRequest::default().with_topics(None);
    assert_eq!(client.call(0, &none).await.topics.len(), 0);
    for (replicas, code) in [
        (Some(vec![BrokerId(1)]), 0),
        (Some(vec![BrokerId(2)]), 39),
        (None, 85),
    ] {
        let partition = ReassignablePartition::default().with_replicas(replicas);
        let topic = ReassignableTopic::default()
            .with_name(wire("t"))
            .with_partitions(vec![partition]);
        let request = AlterPartitionReassignmentsRequest::default().with_topics(vec![topic]);
        let told = client.call(0, &request).await;
        assert_eq!(told.responses[0].partitions[0].error_code, code);
    }
    server.stop().await;
}
