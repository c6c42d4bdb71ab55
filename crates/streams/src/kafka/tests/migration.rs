//! A group with members of both protocols, over real sockets.

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
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

fn group() -> GroupId {
    GroupId(text("g"))
}

fn join(member: &StrBytes) -> JoinGroupRequest {
    let protocol = join_group_request::JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(crate::consumer::subscription(["t"].into_iter()));
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_member_id(member.clone())
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

/// Asks for the share of a generation, or with a share hands it in for the member itself.
fn sync(joined: &JoinGroupResponse, share: Option<&[i32]>) -> SyncGroupRequest {
    let share = share.map(|partitions| {
        let share = [("t".to_owned(), partitions.to_vec())].into();
        sync_group_request::SyncGroupRequestAssignment::default()
            .with_member_id(joined.member_id.clone())
            .with_assignment(crate::consumer::assignment(&share))
    });
    SyncGroupRequest::default()
        .with_group_id(group())
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id)
        .with_protocol_type(joined.protocol_type.clone())
        .with_protocol_name(joined.protocol_name.clone())
        .with_assignments(share.into_iter().collect())
}

fn beat(epoch: i32) -> ConsumerGroupHeartbeatRequest {
    let beat = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group())
        .with_member_id(text("newer"))
        .with_member_epoch(epoch);
    match epoch {
        0 => beat
            .with_rebalance_timeout_ms(30_000)
            .with_subscribed_topic_names(Some(vec![wire("t")]))
            .with_topic_partitions(Some(Vec::new())),
        _ => beat.with_rebalance_timeout_ms(-1),
    }
}

async fn heartbeat(client: &mut Client, joined: &JoinGroupResponse) -> i16 {
    let beat = HeartbeatRequest::default()
        .with_group_id(group())
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id);
    client.call(4, &beat).await.error_code
}

async fn commit(client: &mut Client, joined: &JoinGroupResponse, offset: i64) -> i16 {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset);
    let request = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_member_id(joined.member_id.clone())
        .with_generation_id_or_member_epoch(joined.generation_id)
        .with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(wire("t"))
                .with_partitions(vec![partition]),
        ]);
    let answer = client.call(8, &request).await;
    answer.topics[0].partitions[0].error_code
}

async fn committed(client: &mut Client) -> i64 {
    let topic = OffsetFetchRequestTopics::default()
        .with_name(wire("t"))
        .with_partition_indexes(vec![0]);
    let request = OffsetFetchRequest::default().with_groups(vec![
        OffsetFetchRequestGroup::default()
            .with_group_id(group())
            .with_member_epoch(-1)
            .with_topics(Some(vec![topic])),
    ]);
    let told = client.call(9, &request).await;
    told.groups[0].topics[0].partitions[0].committed_offset
}

async fn listed_type(client: &mut Client) -> String {
    let listed = client.call(5, &ListGroupsRequest::default()).await;
    listed.groups[0].group_type.to_string()
}

async fn classic_description(client: &mut Client) -> (i16, String, usize) {
    let asked = DescribeGroupsRequest::default().with_groups(vec![group()]);
    let told = client.call(6, &asked).await.groups.remove(0);
    let state = told.group_state.to_string();
    (told.error_code, state, told.members.len())
}

#[tokio::test]
async fn a_group_moves_to_the_newer_protocol_and_back_under_its_members() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(12, &metadata("t")).await;
    let asked = client.call(9, &join(&StrBytes::new())).await;
    let first = client.call(9, &join(&asked.member_id)).await;
    assert_eq!((first.error_code, first.generation_id), (0, 1));
    client.call(5, &sync(&first, Some(&[0, 1]))).await;
    assert_eq!(commit(&mut client, &first, 5).await, 0);
    assert_eq!(listed_type(&mut client).await, "Classic");

    // The newer member joins; the classic one is called to join, and commits before it does.
    let newer = client.call(1, &beat(0)).await;
    assert_eq!((newer.error_code, newer.member_epoch), (0, 2), "{newer:?}");
    assert_eq!(newer.assignment.unwrap().topic_partitions, []);
    assert_eq!(listed_type(&mut client).await, "Consumer");
    let (code, state, members) = classic_description(&mut client).await;
    assert_eq!((code, state.as_str(), members), (69, "Dead", 0));
    assert_eq!(commit(&mut client, &first, 6).await, 0);
    assert_eq!(heartbeat(&mut client, &first).await, 27);
    let second = client.call(9, &join(&first.member_id)).await;
    assert_eq!((second.error_code, second.generation_id), (0, 2));
    assert_eq!(second.member_id, first.member_id);
    assert!(
        second.leader.is_empty() && second.members.is_empty(),
        "{second:?}"
    );
    assert_eq!(client.call(5, &sync(&first, None)).await.error_code, 22);
    let synced = client.call(5, &sync(&second, None)).await;
    assert_eq!(synced.error_code, 0);
    assert_eq!(synced.protocol_name, second.protocol_name);
    let share = crate::consumer::assigned(&synced.assignment);
    assert_eq!(share["t"].len(), 1, "{share:?}");
    assert_eq!(heartbeat(&mut client, &second).await, 0);
    let got = client.call(1, &beat(2)).await;
    assert_eq!(
        got.assignment.unwrap().topic_partitions[0].partitions.len(),
        1
    );
    assert_eq!(commit(&mut client, &first, 7).await, 22);
    assert_eq!(commit(&mut client, &second, 7).await, 0);

    let described = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group()]);
    let told = client.call(1, &described).await.groups.remove(0);
    assert_eq!((told.error_code, told.group_state.as_str()), (0, "Stable"));
    let types = told
        .members
        .iter()
        .map(|m| (m.member_id == first.member_id, m.member_type));
    let mut types: Vec<(bool, i8)> = types.collect();
    types.sort_unstable();
    assert_eq!(types, [(false, 1), (true, 0)]);
    let told = client.call(0, &described).await.groups.remove(0);
    assert_eq!((told.error_code, told.members.len()), (0, 2));

    // The newer member leaves: the other one has the group for itself again.
    assert_eq!(client.call(1, &beat(-1)).await.error_code, 0);
    assert_eq!(listed_type(&mut client).await, "Classic");
    assert_eq!(heartbeat(&mut client, &second).await, 27);
    let third = client.call(9, &join(&second.member_id)).await;
    assert_eq!((third.error_code, &third.leader), (0, &third.member_id));
    assert!(third.generation_id > second.generation_id);
    client.call(5, &sync(&third, Some(&[0, 1]))).await;
    assert_eq!(heartbeat(&mut client, &third).await, 0);
    let (code, state, members) = classic_description(&mut client).await;
    assert_eq!((code, state.as_str(), members), (0, "Stable", 1));
    assert_eq!(committed(&mut client).await, 7);
    server.stop().await;
}
