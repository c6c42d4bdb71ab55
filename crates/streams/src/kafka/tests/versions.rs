//! What the newer versions of the APIs brought: topic ids, more offsets to ask for, and where a
//! client believes to be.

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::fetch_request::ForgottenTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::*;
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

use super::client::{Client, Server, batch, fetch, fetched, metadata, produce, wire};

#[tokio::test]
async fn topics_go_by_their_ids() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    let id = client.call(13, &metadata("t")).await.topics[0].topic_id;
    for (id, code) in [(id, 0), (Uuid::from_u128(7), 100)] {
        let topic = MetadataRequestTopic::default()
            .with_name(None)
            .with_topic_id(id);
        let by_id = MetadataRequest::default().with_topics(Some(vec![topic]));
        for version in [12, 13] {
            let told = client.call(version, &by_id).await;
            let topic = &told.topics[0];
            assert_eq!((topic.error_code, topic.topic_id), (code, id));
            let name = topic.name.as_ref().map(|name| name.as_str());
            assert_eq!(name, Some("t").filter(|_| code == 0));
        }
        let mut put = produce("t", 0, -1, batch(&["a"]));
        put.topic_data[0].topic_id = id;
        let answer = client.call(13, &put).await;
        assert_eq!(answer.responses[0].topic_id, id);
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, code);
        for version in 13..=18 {
            let mut get = fetch("t", 0, 0, 1 << 20);
            get.topics[0].topic_id = id;
            let answer = client.call(version, &get).await;
            assert_eq!(answer.responses[0].topic_id, id);
            let (got, records) = fetched(&answer);
            assert_eq!((got, records.is_empty()), (code, code != 0));
        }
    }
    // The name still serves in version 12.
    let answer = client.call(12, &produce("t", 1, 1, batch(&["b"]))).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    server.stop().await;
}

#[tokio::test]
async fn each_version_of_list_offsets_knows_its_own_questions() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(13, &metadata("t")).await;
    client
        .call(9, &produce("t", 0, -1, batch(&["a", "b"])))
        .await;
    for (asked, from, offset, epoch) in [
        (-3, 7, 0, 0),
        (-4, 8, 0, 0),
        (-5, 9, -1, -1),
        (-6, 11, -1, -1),
    ] {
        let partition = ListOffsetsPartition::default().with_timestamp(asked);
        let topic = ListOffsetsTopic::default()
            .with_name(wire("t"))
            .with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        for version in 6..=11 {
            let mut answer = client.list_offsets(version, &request).await;
            let told = answer.topics.remove(0).partitions.remove(0);
            let got = (told.error_code, told.offset, told.leader_epoch);
            if version < from {
                assert_eq!(got.0, 35, "{asked} in version {version}");
            } else {
                assert_eq!(got, (0, offset, epoch), "{asked} in version {version}");
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_came_to_the_wrong_node_is_told() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    let here = server.streams.cluster_id().to_owned();
    for (cluster, node, code) in [
        (here.as_str(), 1, 0),
        ("elsewhere", 1, 129),
        (here.as_str(), 9, 129),
        (here.as_str(), -1, 42),
    ] {
        let mut frame = BytesMut::new();
        frame.put_i16(18);
        frame.put_i16(5);
        frame.put_i32(7);
        frame.put_i16(-1);
        frame.put_u8(0);
        for text in ["client", "1.0", cluster] {
            frame.put_u8(u8::try_from(text.len() + 1).unwrap());
            frame.put_slice(text.as_bytes());
        }
        frame.put_i32(node);
        frame.put_u8(0);
        let length = u32::try_from(frame.len()).unwrap();
        client.socket.write_u32(length).await.unwrap();
        client.socket.write_all(&frame).await.unwrap();
        // The answer's header stays the oldest, without tagged fields.
        let answer = client.frame().await;
        assert_eq!(answer[..4], [0, 0, 0, 7]);
        assert_eq!(i16::from_be_bytes([answer[4], answer[5]]), code);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_fetch_session_answers_only_what_is_new() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(13, &metadata("t")).await;
    let mut begin = fetch("t", 0, 0, 1 << 20).with_session_epoch(0);
    let other = begin.topics[0].partitions[0].clone().with_partition(1);
    begin.topics[0].partitions.push(other);
    let begun = client.call(12, &begin).await;
    assert!(begun.session_id > 0);
    assert_eq!(begun.responses[0].partitions.len(), 2);
    let next = |epoch| {
        FetchRequest::default()
            .with_max_wait_ms(20)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_session_id(begun.session_id)
            .with_session_epoch(epoch)
    };
    let nothing = client.call(12, &next(1)).await;
    assert_eq!((nothing.error_code, nothing.responses.len()), (0, 0));
    client.call(9, &produce("t", 1, -1, batch(&["a"]))).await;
    let news = client.call(12, &next(2)).await;
    let told = &news.responses[0].partitions;
    assert_eq!((told.len(), told[0].partition_index), (1, 1));
    assert_eq!(told[0].high_watermark, 1);
    let forget = ForgottenTopic::default()
        .with_topic(wire("t"))
        .with_partitions(vec![1]);
    let without = next(3).with_forgotten_topics_data(vec![forget]);
    assert_eq!(client.call(12, &without).await.responses.len(), 0);
    assert_eq!(client.call(12, &next(3)).await.error_code, 71);
    assert_eq!(client.call(13, &next(4)).await.error_code, 106);
    // Another connection has no part in it.
    let mut stranger = Client::connect(&server).await;
    assert_eq!(stranger.call(12, &next(4)).await.error_code, 70);
    server.stop().await;
}

#[tokio::test]
async fn a_session_that_waits_again_hears_of_all_that_happens() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    let mut other = Client::connect(&server).await;
    client.call(13, &metadata("t")).await;
    let begin = fetch("t", 0, 0, 1 << 20).with_session_epoch(0);
    let session_id = client.call(12, &begin).await.session_id;
    let next = |epoch, wait_ms| {
        FetchRequest::default()
            .with_max_wait_ms(wait_ms)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_session_id(session_id)
            .with_session_epoch(epoch)
    };
    for epoch in 1..4 {
        let nothing = client.call(12, &next(epoch, 5)).await;
        assert_eq!((nothing.error_code, nothing.responses.len()), (0, 0));
        assert_eq!(nothing.session_id, session_id);
    }
    // While it waits, and between two requests, also when the client asks again for the same.
    client.send(12, &next(4, 60_000)).await;
    other.call(9, &produce("t", 0, -1, batch(&["a"]))).await;
    let (_, news) = client.receive::<FetchRequest>(12).await;
    assert_eq!(fetched(&news).1.len(), batch(&["a"]).len());
    let again = client.call(12, &next(5, 60_000)).await;
    assert_eq!(fetched(&again).1.len(), batch(&["a"]).len());
    let mut read = fetch("t", 1, 5, 1 << 20);
    read.session_id = session_id;
    read.session_epoch = 6;
    assert_eq!(client.call(12, &read).await.responses.len(), 0);
    assert_eq!(client.call(12, &next(7, 5)).await.responses.len(), 0);
    other.call(9, &produce("t", 0, -1, batch(&["b"]))).await;
    let more = client.call(12, &next(8, 60_000)).await;
    assert_eq!(fetched(&more).1.len(), batch(&["b"]).len());
    // A topic that goes is told at once.
    read.topics[0].partitions[0].fetch_offset = 2;
    read.session_epoch = 9;
    assert_eq!(client.call(12, &read).await.responses.len(), 0);
    client.send(12, &next(10, 60_000)).await;
    let name = "t".parse().unwrap();
    server.streams.delete_topic(&name).await.unwrap();
    let (_, gone) = client.receive::<FetchRequest>(12).await;
    assert_eq!(fetched(&gone).0, 3);
    server.stop().await;
}
