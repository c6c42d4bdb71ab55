//! What the coordinator of groups and transactions answers while the store cannot write.

use std::time::Duration;

use journal::SimDisk;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

use super::client::{Client, Server, batch, metadata, produce, wire};

#[tokio::test]
async fn while_the_disk_is_full_the_coordinator_is_to_be_asked_again() {
    let disk = SimDisk::new(3);
    let server = Server::start_on(&disk).await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let group = GroupId(StrBytes::from_static_str("g"));
    assert_eq!(commit(&mut client, 1, "").await, 0);
    disk.set_capacity(Some(disk.used()));
    let record = batch(&["x".repeat(1_000).as_str()]);
    let mut code = 0;
    while code == 0 {
        let written = client.call(9, &produce("t", 0, -1, record.clone())).await;
        code = written.responses[0].partition_responses[0].error_code;
    }
    assert_eq!(code, 56, "producers hear of the disk");
    // Offsets are smaller than records, and the last may still fit.
    let mut offset = 2;
    let mut code = 0;
    while code == 0 {
        code = commit(&mut client, offset, &"m".repeat(1_000)).await;
        offset += 1;
    }
    assert_eq!(code, 16);
    let id = TransactionalId(StrBytes::from_static_str("tx"));
    let with_id = InitProducerIdRequest::default()
        .with_transaction_timeout_ms(1_000)
        .with_transactional_id(Some(id));
    let mut code = 0;
    while code == 0 {
        // The first may still fit.
        code = client.call(4, &with_id).await.error_code;
    }
    assert_eq!(code, 16);
    let deletes = DeleteGroupsRequest::default().with_groups_names(vec![group]);
    let deleted = client.call(2, &deletes).await;
    assert!([0, 16].contains(&deleted.results[0].error_code));
    // It gets well by itself once there is room.
    disk.set_capacity(None);
    let freed = async { while commit(&mut client, 9, "").await != 0 {} };
    let freed = tokio::time::timeout(Duration::from_secs(100), freed).await;
    freed.expect("nothing can be committed although there is room");
    server.stop().await;
}

#[tokio::test]
async fn commits_wait_for_room_in_their_order() {
    let disk = SimDisk::new(4);
    let server = Server::start_on(&disk).await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    // Many at once, which together are more than the journal takes up at a time.
    let metadata = "m".repeat(4_000);
    for offset in 1..=200 {
        client.send(8, &commit_of(offset, &metadata)).await;
    }
    for offset in 1..=200 {
        let (_, answer) = client.receive::<OffsetCommitRequest>(8).await;
        let code = answer.topics[0].partitions[0].error_code;
        assert_eq!(code, 0, "offset {offset}");
    }
    let topic = OffsetFetchRequestTopic::default()
        .with_name(wire("t"))
        .with_partition_indexes(vec![0]);
    let asks = OffsetFetchRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_topics(Some(vec![topic]));
    let answer = client.call(7, &asks).await;
    assert_eq!(answer.topics[0].partitions[0].committed_offset, 200);
    server.stop().await;
}

async fn commit(client: &mut Client, offset: i64, metadata: &str) -> i16 {
    let answer = client.call(8, &commit_of(offset, metadata)).await;
    answer.topics[0].partitions[0].error_code
}

fn commit_of(offset: i64, metadata: &str) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(StrBytes::from_string(metadata.to_owned())));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(wire("t"))
        .with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic])
}
