//! What a client asks for beyond reason, on the wire.

use std::time::Duration;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::*;

use super::client::{
    Client, RECORD_TIME_MS, Server, batch, fetch, fetched, metadata, produce, wire,
};

#[tokio::test]
async fn a_fetch_waits_for_no_more_than_its_answer_may_have() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    for _ in 0..3 {
        client
            .call(9, &produce("t", 0, -1, batch(&["value"])))
            .await;
    }
    let one = i32::try_from(batch(&["value"]).len()).unwrap();
    // More than there can be, and a little more than the first batch has.
    for (min_bytes, max_bytes) in [(i32::MAX, one), (i32::MAX, 2 * one), (one + 1, 1 << 20)] {
        let asked = fetch("t", 0, 200_000, max_bytes).with_min_bytes(min_bytes);
        let answer = client.call(11, &asked);
        let answer = tokio::time::timeout(Duration::from_secs(100), answer).await;
        let (code, records) = fetched(&answer.expect("the fetch waits for what cannot come"));
        assert_eq!(code, 0);
        assert!(!records.is_empty());
    }
    server.stop().await;
}

#[tokio::test]
async fn a_partition_that_is_named_twice_is_not_looked_at() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    client.call(9, &produce("t", 0, -1, batch(&["v"]))).await;
    let asked = |index, timestamp| {
        ListOffsetsPartition::default()
            .with_partition_index(index)
            .with_timestamp(timestamp)
    };
    let topic = |partitions| {
        ListOffsetsTopic::default()
            .with_name(wire("t"))
            .with_partitions(partitions)
    };
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(vec![
            topic(vec![asked(0, -3), asked(1, -3)]),
            topic(vec![asked(0, 0)]),
        ]);
    let answer = client.call(7, &request).await;
    let told = answer.topics.iter().flat_map(|topic| &topic.partitions);
    let told: Vec<(i32, i16, i64)> = told
        .map(|told| (told.partition_index, told.error_code, told.offset))
        .collect();
    assert_eq!(told, [(0, 42, -1), (1, 0, -1), (0, 42, -1)]);
    // Each by itself is found.
    for (timestamp, expected) in [(-3, (0, RECORD_TIME_MS)), (0, (0, RECORD_TIME_MS))] {
        let request = ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_topics(vec![topic(vec![asked(1, -1), asked(0, timestamp)])]);
        let answer = client.call(7, &request).await;
        let told = &answer.topics[0].partitions;
        assert_eq!((told[1].offset, told[1].timestamp), expected);
        assert_eq!((told[0].offset, told[0].timestamp), (0, -1));
    }
    server.stop().await;
}
