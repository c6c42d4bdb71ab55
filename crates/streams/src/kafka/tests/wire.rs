//! Conversations over real sockets with a store in a temporary folder.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use tokio::io::AsyncWriteExt;

use super::client::{
    Client, RECORD_TIME_MS, Server, batch, fetch, fetched, metadata, produce, wire,
};

#[tokio::test]
async fn versions_from_the_future_are_answered_in_the_oldest_layout() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    for version in [6_i16, 99] {
        let mut frame = vec![0, 0, 0, 11, 0, 18];
        frame.extend(version.to_be_bytes());
        frame.extend([0, 0, 0, 7, 0xff, 0xff, 0]);
        client.socket.write_all(&frame).await.unwrap();
        let answer = client.frame().await;
        assert_eq!(
            answer[..],
            [0, 0, 0, 7, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 5]
        );
    }
    let named = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("test"))
        .with_client_software_version(StrBytes::from_static_str("1.0"));
    let told = client.call(3, &named).await;
    let produce = told.api_keys.iter().find(|api| api.api_key == 0).unwrap();
    assert_eq!((produce.min_version, produce.max_version), (0, 13));
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_api_closes_only_its_own_connection() {
    let server = Server::start().await;
    let mut good = Client::connect(&server).await;
    for (key, version) in [(500_i16, 0_i16), (0, 2), (0, 99), (1, 19), (18, -1)] {
        let mut bad = Client::connect(&server).await;
        let mut frame = vec![0, 0, 0, 10];
        frame.extend(key.to_be_bytes());
        frame.extend(version.to_be_bytes());
        frame.extend([0, 0, 0, 7, 0xff, 0xff]);
        bad.socket.write_all(&frame).await.unwrap();
        if key == 18 {
            assert_eq!(bad.frame().await[4..6], [0, 35]);
        } else {
            assert!(
                bad.is_closed().await,
                "API {key} version {version} was not refused"
            );
        }
    }
    good.call(0, &ApiVersionsRequest::default()).await;
    server.stop().await;
}

#[tokio::test]
async fn a_frame_of_impossible_length_closes_the_connection() {
    let server = Server::start().await;
    for length in [i32::MAX, -1] {
        let mut client = Client::connect(&server).await;
        client
            .socket
            .write_all(&length.to_be_bytes())
            .await
            .unwrap();
        assert!(client.is_closed().await);
    }
    server.stop().await;
}

#[tokio::test]
async fn what_was_produced_is_fetched_in_whole_batches() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    let topics = client.call(9, &metadata("t")).await.topics;
    assert_eq!((topics[0].error_code, topics[0].partitions.len()), (0, 2));
    for (values, base_offset) in [(["a", "b"], 0), (["c", "d"], 2)] {
        let answer = client.call(9, &produce("t", 0, -1, batch(&values))).await;
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!(
            (partition.error_code, partition.base_offset),
            (0, base_offset)
        );
    }
    let whole = batch(&["a", "b"]).len();
    for version in [4, 7, 11, 12] {
        let all = client.call(version, &fetch("t", 0, 0, 1 << 20)).await;
        assert_eq!(fetched(&all).1.len(), 2 * whole);
        // From the middle of a batch the whole batch comes, even when it is over the limit.
        let (code, records) = fetched(&client.call(version, &fetch("t", 3, 0, 1)).await);
        assert_eq!((code, records.len()), (0, whole));
        assert_eq!(records[..8], 2_i64.to_be_bytes());
        assert_eq!(
            records[61..],
            batch(&["c", "d"])[61..],
            "the records were touched"
        );
        assert_eq!(
            fetched(&client.call(version, &fetch("t", 4, 0, 1)).await),
            (0, Bytes::new())
        );
        assert_eq!(
            fetched(&client.call(version, &fetch("t", 5, 0, 1)).await).0,
            1
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn answers_come_in_the_order_of_the_requests_and_acks_0_gets_none() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let mut expected = Vec::new();
    // A fetch that waits stands before everything else; then produce, unanswered and answered.
    expected.push((1, client.send(11, &fetch("t", 0, 10_000, 1 << 20)).await));
    for round in 0..20 {
        let acks = [-1, 0, 1][round % 3];
        let sent = client.send(7, &produce("t", 0, acks, batch(&["x"]))).await;
        if acks != 0 {
            expected.push((0, sent));
        }
        expected.push((18, client.send(0, &ApiVersionsRequest::default()).await));
    }
    let mut offsets = Vec::new();
    for (key, sent) in expected {
        let received = match key {
            0 => {
                let (received, answer) = client.receive::<ProduceRequest>(7).await;
                let partition = &answer.responses[0].partition_responses[0];
                assert_eq!(partition.error_code, 0);
                offsets.push(partition.base_offset);
                received
            }
            1 => client.receive::<FetchRequest>(11).await.0,
            _ => client.receive::<ApiVersionsRequest>(0).await.0,
        };
        assert_eq!(received, sent);
    }
    assert!(
        offsets.is_sorted(),
        "batches were stored in another order: {offsets:?}"
    );
    assert_eq!(offsets.last(), Some(&18));
    server.stop().await;
}

/// Commits that the threads of connections have done themselves.
fn carried(server: &Server) -> u64 {
    let journal = &server.streams.shared().journal;
    journal.telemetry().carried.load(Ordering::Relaxed)
}

#[tokio::test]
async fn who_waits_for_each_answer_is_served_by_one_thread() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let (began, mut count) = (Instant::now(), 0);
    while carried(&server) < 3 {
        assert!(began.elapsed() < Duration::from_secs(60), "none of {count}");
        let answer = client.call(7, &produce("t", 0, -1, batch(&["x"]))).await;
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (0, count));
        count += 1;
        // The journal's own thread had the last one, and takes a moment to fall asleep.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // It is there for others at once.
    let mut other = Client::connect(&server).await;
    let (code, records) = fetched(&other.call(11, &fetch("t", count - 1, 0, 1 << 20)).await);
    assert!(code == 0 && !records.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn who_sends_on_is_not_kept_waiting_by_its_first_request() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let before = carried(&server);
    for _ in 0..50 {
        let mut frames = BytesMut::new();
        for _ in 0..2 {
            frames.extend_from_slice(&client.encoded(7, &produce("t", 0, -1, batch(&["x"]))));
        }
        client.socket.write_all(&frames).await.unwrap();
        for _ in 0..2 {
            let (_, answer) = client.receive::<ProduceRequest>(7).await;
            assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
        }
    }
    assert_eq!(carried(&server), before);
    server.stop().await;
}

#[tokio::test]
async fn who_wants_no_answer_is_not_kept_waiting_for_a_sync() {
    let server = Server::start().await;
    let (mut client, mut reader) = (
        Client::connect(&server).await,
        Client::connect(&server).await,
    );
    client.call(9, &metadata("t")).await;
    let before = carried(&server);
    for count in 0..30 {
        client.send(7, &produce("t", 0, 0, batch(&["x"]))).await;
        // It was taken alone when the next one is sent.
        let asked = fetch("t", count, 60_000, 1 << 20);
        assert!(!fetched(&reader.call(11, &asked).await).1.is_empty());
    }
    assert_eq!(carried(&server), before);
    server.stop().await;
}

#[tokio::test]
async fn answers_that_are_ready_leave_together() {
    let server = Server::start().await;
    let (mut client, mut other) = (
        Client::connect(&server).await,
        Client::connect(&server).await,
    );
    for topic in ["t", "u"] {
        other.call(9, &metadata(topic)).await;
    }
    // In front of all a fetch that waits.
    let fetching = client.send(11, &fetch("t", 0, 60_000, 1 << 20)).await;
    let mut behind = Vec::new();
    for _ in 0..10 {
        client.send(0, &ApiVersionsRequest::default()).await;
        behind.push(client.send(9, &produce("u", 0, -1, batch(&["x"]))).await);
    }
    // What is behind it is all there when the last batch can be read.
    loop {
        let asked = fetch("u", 9, 60_000, 1 << 20);
        let (code, records) = fetched(&other.call(11, &asked).await);
        if code == 0 && !records.is_empty() {
            break;
        }
    }
    let before = client.data_segments();
    other.call(9, &produce("t", 0, -1, batch(&["news"]))).await;
    let (received, answer) = client.receive::<FetchRequest>(11).await;
    assert!(received == fetching && !fetched(&answer).1.is_empty());
    for sent in behind {
        let (received, _) = client.receive::<ApiVersionsRequest>(0).await;
        assert_eq!(received, sent - 1);
        assert_eq!(client.receive::<ProduceRequest>(9).await.0, sent);
    }
    assert_eq!(client.data_segments() - before, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_long_poll_is_woken_by_an_append_and_else_ends_in_time() {
    let server = Server::start().await;
    let (mut reader, mut writer) = (
        Client::connect(&server).await,
        Client::connect(&server).await,
    );
    writer.call(9, &metadata("t")).await;
    let began = Instant::now();
    let nothing = reader.call(11, &fetch("t", 0, 150, 1 << 20)).await;
    assert_eq!(fetched(&nothing), (0, Bytes::new()));
    // It may be answered a sixteenth earlier, together with others.
    assert!(began.elapsed() >= Duration::from_millis(140));
    reader.send(11, &fetch("t", 0, 20_000, 1 << 20)).await;
    let began = Instant::now();
    writer.call(9, &produce("t", 0, 1, batch(&["news"]))).await;
    let (_, answer) = reader.receive::<FetchRequest>(11).await;
    assert!(!fetched(&answer).1.is_empty());
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "the append woke nobody"
    );
    server.stop().await;
}

#[tokio::test]
async fn each_partition_gets_its_own_error() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let mut damaged = BytesMut::from(&batch(&["x"])[..]);
    damaged[65] ^= 1;
    let cases = [
        ("t", 0, batch(&["x"]), 0),
        ("t", 0, damaged.freeze(), 2),
        ("t", 7, batch(&["x"]), 3),
        ("nowhere", 0, batch(&["x"]), 3),
        ("not legal", 0, batch(&["x"]), 17),
    ];
    for (topic, partition, records, code) in cases {
        let answer = client.call(9, &produce(topic, partition, 1, records)).await;
        let got = answer.responses[0].partition_responses[0].error_code;
        assert_eq!(got, code, "{topic} {partition}");
    }
    let answer = client.call(9, &produce("t", 0, 5, batch(&["x"]))).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 21);
    let answer = client.call(11, &fetch("nowhere", 0, 5_000, 1)).await;
    assert_eq!(fetched(&answer).0, 3);
    let no_ack = client
        .send(9, &produce("nowhere", 0, 0, batch(&["x"])))
        .await;
    assert!(
        no_ack > 0 && client.is_closed().await,
        "a lost acks=0 batch went unnoticed"
    );
    server.stop().await;
}

#[tokio::test]
async fn offsets_are_listed_by_place_and_by_time() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    client
        .call(9, &produce("t", 0, -1, batch(&["a", "b", "c"])))
        .await;
    let time = *RECORD_TIME_MS;
    for (asked, offset, at) in [
        (-1, 3, -1),
        (-2, 0, -1),
        (-3, 0, time),
        (0, 0, time),
        (time, 0, time),
        (time + 1, -1, -1),
    ] {
        let request = ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_topics(vec![
                ListOffsetsTopic::default()
                    .with_name(wire("t"))
                    .with_partitions(vec![
                        ListOffsetsPartition::default()
                            .with_partition_index(0)
                            .with_timestamp(asked),
                    ]),
            ]);
        let answer = client.call(7, &request).await;
        let partition = &answer.topics[0].partitions[0];
        assert_eq!(
            (partition.error_code, partition.offset, partition.timestamp),
            (0, offset, at)
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn topics_are_created_described_and_deleted() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    let topic = |name, partitions, factor| {
        CreatableTopic::default()
            .with_name(wire(name))
            .with_num_partitions(partitions)
            .with_replication_factor(factor)
    };
    let request = CreateTopicsRequest::default()
        .with_timeout_ms(1_000)
        .with_topics(vec![
            topic("good", 3, 1),
            topic("wide", -1, -1),
            topic("none", 0, 1),
            topic("far", 1, 3),
            topic("not legal", 1, 1),
        ]);
    let answer = client.call(7, &request).await;
    let codes: Vec<i16> = answer.topics.iter().map(|t| t.error_code).collect();
    assert_eq!(codes, [0, 0, 37, 38, 17]);
    let again = client.call(7, &request).await;
    assert_eq!(again.topics[0].error_code, 36);
    let told = client.call(12, &metadata("good")).await;
    assert_eq!(told.topics[0].partitions.len(), 3);
    assert_eq!(told.topics[0].topic_id, answer.topics[0].topic_id);
    assert_eq!(told.brokers[0].port, i32::from(server.address.port()));
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![
        wire("good"),
        wire("good"),
        wire("gone"),
    ]);
    let answer = client.call(5, &delete).await;
    let codes: Vec<i16> = answer.responses.iter().map(|t| t.error_code).collect();
    assert_eq!(codes, [0, 3, 3]);
    let absent = metadata("good").with_allow_auto_topic_creation(false);
    assert_eq!(client.call(12, &absent).await.topics[0].error_code, 3);
    server.stop().await;
}

#[tokio::test]
async fn commits_come_back_with_their_metadata() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let commit = OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(wire("t"))
                .with_partitions(vec![
                    OffsetCommitRequestPartition::default()
                        .with_partition_index(1)
                        .with_committed_offset(42)
                        .with_committed_metadata(Some(StrBytes::from_static_str("note"))),
                    OffsetCommitRequestPartition::default().with_partition_index(9),
                ]),
        ]);
    let answer = client.call(8, &commit).await;
    let codes: Vec<i16> = answer.topics[0]
        .partitions
        .iter()
        .map(|p| p.error_code)
        .collect();
    assert_eq!(codes, [0, 3]);
    let all = OffsetFetchRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_topics(None);
    let told = client.call(7, &all).await;
    let partition = &told.topics[0].partitions[0];
    assert_eq!(
        (partition.partition_index, partition.committed_offset),
        (1, 42)
    );
    assert_eq!(partition.metadata.as_deref(), Some("note"));
    let alien = commit.with_generation_id_or_member_epoch(3);
    let answer = client.call(8, &alien).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 25);
    let nowhere = alien.with_group_id(GroupId(StrBytes::from_static_str("none")));
    let answer = client.call(8, &nowhere).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 22);
    server.stop().await;
}

#[tokio::test]
async fn every_producer_gets_an_id_of_its_own() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    let plain = InitProducerIdRequest::default().with_transactional_id(None);
    let first = client.call(4, &plain).await;
    let second = client.call(0, &plain).await;
    assert_eq!((first.error_code, first.producer_epoch), (0, 0));
    assert_ne!(first.producer_id, second.producer_id);
    server.stop().await;
}

#[tokio::test]
async fn stopping_ends_waiting_fetches_and_connections() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    client.send(11, &fetch("t", 0, 100_000, 1 << 20)).await;
    // The request is in when a later connection is served.
    Client::connect(&server)
        .await
        .call(0, &ApiVersionsRequest::default())
        .await;
    let began = Instant::now();
    server.stop().await;
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn asking_for_a_coordinator_brings_an_internal_topic_that_clients_cannot_write() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    let all = MetadataRequest::default().with_topics(None);
    assert!(client.call(9, &all).await.topics.is_empty());
    for (key_type, name) in [(0, "__consumer_offsets"), (1, "__transaction_state")] {
        let request = FindCoordinatorRequest::default()
            .with_key_type(key_type)
            .with_coordinator_keys(vec![StrBytes::from_static_str("g")]);
        let found = client.call(4, &request).await;
        assert_eq!(found.coordinators[0].error_code, 0);
        let told = client.call(9, &metadata(name)).await;
        assert!(told.topics[0].is_internal, "{told:?}");
        assert_eq!(told.topics[0].partitions.len(), 1);
        let written = client.call(7, &produce(name, 0, -1, batch(&["x"]))).await;
        assert_eq!(written.responses[0].partition_responses[0].error_code, 17);
    }
    assert!(server.streams.store().topics().await.unwrap().is_empty());
    server.stop().await;
}
