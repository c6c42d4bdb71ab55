//! What a client asks for beyond reason, on the wire.

use std::time::Duration;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

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
async fn what_describes_much_keeps_its_place_among_the_answers() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    // So long that it is begun aside; what comes behind it is not, and one of them waits.
    let names: Vec<String> = (0..3_000)
        .map(|number| format!("absent-{number}"))
        .collect();
    let topics = names.iter().map(|name| {
        let name = TopicName(StrBytes::from_string(name.clone()));
        MetadataRequestTopic::default().with_name(Some(name))
    });
    let long = MetadataRequest::default()
        .with_topics(Some(topics.collect()))
        .with_allow_auto_topic_creation(false);
    for _ in 0..3 {
        let sent = [
            client.send(9, &long).await,
            client.send(9, &produce("t", 0, -1, batch(&["v"]))).await,
            client.send(9, &metadata("t")).await,
        ];
        let (described, answer) = client.receive::<MetadataRequest>(9).await;
        let (produced, _) = client.receive::<ProduceRequest>(9).await;
        let (last, _) = client.receive::<MetadataRequest>(9).await;
        assert_eq!([described, produced, last], sent);
        assert_eq!(answer.topics.len(), names.len());
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
    for (timestamp, expected) in [(-3, (0, *RECORD_TIME_MS)), (0, (0, *RECORD_TIME_MS))] {
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
