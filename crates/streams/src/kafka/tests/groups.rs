//! Groups over real sockets: the newer protocol, and what people ask and do about groups.

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

use super::client::{Client, Server, metadata, wire};

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

fn group(name: &'static str) -> GroupId {
    GroupId(text(name))
}

fn join(member: &'static str) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(member))
        .with_rebalance_timeout_ms(30_000)
        .with_subscribed_topic_names(Some(vec![wire("t")]))
        .with_topic_partitions(Some(Vec::new()))
}

fn beat(member: &'static str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_rebalance_timeout_ms(-1)
}

fn commit(member: &'static str, epoch: i32) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(7);
    OffsetCommitRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(member))
        .with_generation_id_or_member_epoch(epoch)
        .with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(wire("t"))
                .with_partitions(vec![partition]),
        ])
}

async fn committed_code(client: &mut Client, request: &OffsetCommitRequest) -> i16 {
    let answer = client.call(9, request).await;
    answer.topics[0].partitions[0].error_code
}

fn fetch_offsets(member: Option<&'static str>, epoch: i32) -> OffsetFetchRequest {
    let topic = OffsetFetchRequestTopics::default()
        .with_name(wire("t"))
        .with_partition_indexes(vec![0]);
    OffsetFetchRequest::default().with_groups(vec![
        OffsetFetchRequestGroup::default()
            .with_group_id(group("g"))
            .with_member_id(member.map(text))
            .with_member_epoch(epoch)
            .with_topics(Some(vec![topic])),
    ])
}

#[tokio::test]
async fn members_of_the_newer_protocol_join_commit_and_leave() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    let topic = client.call(12, &metadata("t")).await.topics[0].topic_id;
    let none = client.call(1, &beat("a", 4)).await;
    assert_eq!(none.error_code, 69, "{none:?}");
    let joined = client.call(1, &join("a")).await;
    assert_eq!((joined.error_code, joined.member_epoch), (0, 1));
    assert_eq!(joined.heartbeat_interval_ms, 5_000);
    let share = &joined.assignment.as_ref().unwrap().topic_partitions[0];
    assert_eq!(
        (share.topic_id, share.partitions.as_slice()),
        (topic, &[0, 1][..])
    );
    assert_eq!(committed_code(&mut client, &commit("a", 1)).await, 0);
    assert_eq!(committed_code(&mut client, &commit("a", 0)).await, 113);
    assert_eq!(committed_code(&mut client, &commit("b", 1)).await, 25);
    let mut nowhere = commit("b", 1);
    nowhere.topics[0].name = wire("nowhere");
    assert_eq!(committed_code(&mut client, &nowhere).await, 3);
    nowhere.topics[0].name = wire("t");
    nowhere.topics[0].partitions[0].partition_index = 9;
    assert_eq!(committed_code(&mut client, &nowhere).await, 3);
    assert_eq!(committed_code(&mut client, &commit("", -1)).await, 25);
    for (member, epoch, code) in [(None, -1, 0), (Some("a"), 1, 0), (Some("a"), 2, 113)] {
        let told = client.call(9, &fetch_offsets(member, epoch)).await;
        assert_eq!(told.groups[0].error_code, code);
    }
    // The second member gets its half when the first has given it back.
    let second = client.call(1, &join("b")).await;
    assert_eq!(second.assignment.unwrap().topic_partitions, []);
    let owned = |partitions: Vec<i32>| {
        let topic = TopicPartitions::default()
            .with_topic_id(topic)
            .with_partitions(partitions);
        Some(vec![topic])
    };
    let asked = beat("a", 1).with_topic_partitions(owned(vec![0, 1]));
    let asked = client.call(1, &asked).await;
    let kept = asked.assignment.unwrap().topic_partitions[0]
        .partitions
        .clone();
    assert_eq!((asked.member_epoch, kept.len()), (1, 1));
    let done = client
        .call(1, &beat("a", 1).with_topic_partitions(owned(kept)))
        .await;
    assert_eq!(done.member_epoch, 2);
    let got = client.call(1, &beat("b", 2)).await;
    assert_eq!(
        got.assignment.unwrap().topic_partitions[0].partitions.len(),
        1
    );
    let described = client.call(1, &describe("g")).await.groups.remove(0);
    assert_eq!(
        (described.error_code, described.group_state.as_str()),
        (0, "Stable")
    );
    assert_eq!((described.group_epoch, described.members.len()), (2, 2));
    assert_eq!(
        described.members[0].assignment.topic_partitions[0].topic_name,
        wire("t")
    );
    for member in ["a", "b"] {
        let left = client.call(1, &beat(member, -1)).await;
        assert_eq!((left.error_code, left.member_epoch), (0, -1));
    }
    let described = client.call(1, &describe("g")).await.groups.remove(0);
    assert_eq!(
        (described.group_state.as_str(), described.group_epoch),
        ("Empty", 4)
    );
    // The epochs of a group go on where they stood.
    assert_eq!(client.call(1, &join("c")).await.member_epoch, 5);
    server.stop().await;
}

fn describe(name: &'static str) -> ConsumerGroupDescribeRequest {
    ConsumerGroupDescribeRequest::default().with_group_ids(vec![group(name)])
}

fn classic_join(member: StrBytes) -> JoinGroupRequest {
    JoinGroupRequest::default()
        .with_group_id(group("g"))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_member_id(member)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![
            join_group_request::JoinGroupRequestProtocol::default().with_name(text("range")),
        ])
}

#[tokio::test]
async fn a_group_whose_members_told_nothing_readable_speaks_one_protocol_at_a_time() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(12, &metadata("t")).await;
    client.call(1, &join("a")).await;
    let refused = client.call(9, &classic_join(StrBytes::new())).await;
    assert_eq!(refused.error_code, 23, "{refused:?}");
    client.call(1, &beat("a", -1)).await;
    let asked = client.call(9, &classic_join(StrBytes::new())).await;
    let joined = client.call(9, &classic_join(asked.member_id)).await;
    assert_eq!((joined.error_code, joined.generation_id), (0, 3));
    assert_eq!(client.call(1, &join("a")).await.error_code, 69);
    let listed = ListGroupsRequest::default();
    let listed = client.call(5, &listed).await.groups.remove(0);
    assert_eq!(listed.group_type.as_str(), "Classic");
    assert_eq!(
        client.call(1, &describe("g")).await.groups[0].error_code,
        69
    );
    let leave = LeaveGroupRequest::default()
        .with_group_id(group("g"))
        .with_members(vec![
            leave_group_request::MemberIdentity::default().with_member_id(joined.member_id),
        ]);
    client.call(5, &leave).await;
    assert_eq!(client.call(1, &join("a")).await.error_code, 0);
    server.stop().await;
}

#[tokio::test]
async fn groups_are_listed_described_and_done_away_with() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(12, &metadata("t")).await;
    assert_eq!(committed_code(&mut client, &commit("", -1)).await, 0);
    let alone = join("a").with_group_id(group("new"));
    client.call(1, &alone).await;
    let listed = |states: Vec<StrBytes>, types: Vec<StrBytes>| {
        ListGroupsRequest::default()
            .with_states_filter(states)
            .with_types_filter(types)
    };
    for (states, types, names) in [
        (vec![], vec![], vec!["g", "new"]),
        (vec![text("Empty")], vec![], vec!["g"]),
        (vec![], vec![text("consumer")], vec!["new"]),
        (vec![text("Stable")], vec![text("classic")], vec![]),
    ] {
        let told = client.call(5, &listed(states, types)).await;
        let found: Vec<&str> = told.groups.iter().map(|g| g.group_id.as_str()).collect();
        assert_eq!(found, names);
    }
    let asked = DescribeGroupsRequest::default()
        .with_groups(vec![group("g"), group("new"), group("none")])
        .with_include_authorized_operations(true);
    let told = client.call(6, &asked).await.groups;
    let codes: Vec<i16> = told.iter().map(|g| g.error_code).collect();
    assert_eq!(codes, [0, 69, 69]);
    assert_eq!(told[0].authorized_operations, 3_400);
    let told = client.call(5, &asked).await.groups;
    assert!(
        told[1..]
            .iter()
            .all(|g| g.error_code == 0 && g.group_state.as_str() == "Dead")
    );
    let forget = |name, topic| {
        OffsetDeleteRequest::default()
            .with_group_id(group(name))
            .with_topics(vec![
                OffsetDeleteRequestTopic::default()
                    .with_name(wire(topic))
                    .with_partitions(vec![OffsetDeleteRequestPartition::default()]),
            ])
    };
    let read = client.call(0, &forget("new", "t")).await;
    assert_eq!(read.topics[0].partitions[0].error_code, 86);
    assert_eq!(client.call(0, &forget("none", "t")).await.error_code, 69);
    let gone = client.call(0, &forget("g", "t")).await;
    assert_eq!(
        (gone.error_code, gone.topics[0].partitions[0].error_code),
        (0, 0)
    );
    let told = client.call(9, &fetch_offsets(None, -1)).await;
    assert_eq!(told.groups[0].topics[0].partitions[0].committed_offset, -1);
    let delete = DeleteGroupsRequest::default().with_groups_names(vec![
        group("new"),
        group("g"),
        group("none"),
    ]);
    let deleted = client.call(2, &delete).await;
    let codes: Vec<i16> = deleted.results.iter().map(|r| r.error_code).collect();
    assert_eq!(codes, [68, 0, 69]);
    server.stop().await;
}
