//! Share sessions and acknowledgements as clients ask for them, in the version that the codec knows.

use kafka_protocol::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use kafka_protocol::messages::share_fetch_request::{
    AcknowledgementBatch as Piggybacked, FetchPartition, FetchTopic, ForgottenTopic,
};
use kafka_protocol::messages::share_fetch_response::PartitionData;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::client::{Client, Server, batch, metadata, produce, wire};

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

fn beat(
    member: &'static str,
    epoch: i32,
    topics: Option<&[&'static str]>,
) -> ShareGroupHeartbeatRequest {
    let topics = topics.map(|topics| topics.iter().map(|topic| wire(topic)).collect());
    ShareGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_subscribed_topic_names(topics)
}

fn share_fetch(
    member: &'static str,
    epoch: i32,
    topic: Option<Uuid>,
    said: &[(i64, i64, i8)],
) -> ShareFetchRequest {
    let said = said.iter().map(|(first, last, fate)| {
        Piggybacked::default()
            .with_first_offset(*first)
            .with_last_offset(*last)
            .with_acknowledge_types(vec![*fate])
    });
    let partition = FetchPartition::default().with_acknowledgement_batches(said.collect());
    let topics = topic.map(|id| {
        FetchTopic::default()
            .with_topic_id(id)
            .with_partitions(vec![partition])
    });
    ShareFetchRequest::default()
        .with_group_id(Some(GroupId(text("g"))))
        .with_member_id(Some(text(member)))
        .with_share_session_epoch(epoch)
        .with_max_wait_ms(200)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_max_records(2)
        .with_topics(topics.into_iter().collect())
}

fn acknowledge(
    member: &'static str,
    epoch: i32,
    topic: Uuid,
    said: &[(i64, i64, &[i8])],
) -> ShareAcknowledgeRequest {
    let said = said.iter().map(|(first, last, fates)| {
        AcknowledgementBatch::default()
            .with_first_offset(*first)
            .with_last_offset(*last)
            .with_acknowledge_types(fates.to_vec())
    });
    let partition = AcknowledgePartition::default().with_acknowledgement_batches(said.collect());
    let topic = AcknowledgeTopic::default()
        .with_topic_id(topic)
        .with_partitions(vec![partition]);
    ShareAcknowledgeRequest::default()
        .with_group_id(Some(GroupId(text("g"))))
        .with_member_id(Some(text(member)))
        .with_share_session_epoch(epoch)
        .with_topics(vec![topic])
}

/// What was acquired: first and last offset and deliveries.
fn runs(of: &PartitionData) -> Vec<(i64, i64, i16)> {
    let acquired = of.acquired_records.iter();
    acquired
        .map(|run| (run.first_offset, run.last_offset, run.delivery_count))
        .collect()
}

async fn fetched(client: &mut Client, request: &ShareFetchRequest) -> (i16, Vec<PartitionData>) {
    let told = client.call(1, request).await;
    let partitions = told
        .responses
        .into_iter()
        .flat_map(|topic| topic.partitions);
    (told.error_code, partitions.collect())
}

/// A server with a topic of six batches of a record each, and two members of a group.
async fn shared() -> (Server, Client, Uuid) {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    for member in ["a", "b"] {
        let told = client.call(1, &beat(member, 0, Some(&["t"]))).await;
        assert_eq!(told.error_code, 0);
        let topics = told.assignment.unwrap().topic_partitions;
        assert_eq!(topics.len(), 1);
    }
    let id = server
        .streams
        .topic_by_name(&"t".parse().unwrap())
        .unwrap()
        .id();
    // A group begins with what comes after it.
    fetched(&mut client, &share_fetch("b", 0, Some(id), &[])).await;
    for value in ["0", "1", "2", "3", "4", "5"] {
        client.call(9, &produce("t", 0, -1, batch(&[value]))).await;
    }
    (server, client, id)
}

#[tokio::test]
async fn members_share_a_partition_record_by_record() {
    let (server, mut a, id) = shared().await;
    let mut b = Client::connect(&server).await;
    let (code, told) = fetched(&mut a, &share_fetch("a", 0, Some(id), &[])).await;
    assert_eq!((code, told.len(), runs(&told[0])), (0, 1, vec![(0, 1, 1)]));
    assert!(!told[0].records.as_ref().unwrap().is_empty());
    let (_, told) = fetched(&mut b, &share_fetch("b", 0, Some(id), &[])).await;
    assert_eq!(runs(&told[0]), [(2, 3, 1)]);
    // What a gives back goes to b, with what b has left.
    let release = share_fetch("a", 1, Some(id), &[(0, 0, 2), (1, 1, 1)]);
    let (_, told) = fetched(&mut a, &release).await;
    assert_eq!(told[0].acknowledge_error_code, 0);
    assert_eq!(runs(&told[0]), [(0, 0, 2), (4, 4, 1)]);
    let told = a
        .call(1, &acknowledge("a", 2, id, &[(0, 0, &[1]), (4, 4, &[3])]))
        .await;
    assert_eq!(told.responses[0].partitions[0].error_code, 0);
    let (_, told) = fetched(&mut b, &share_fetch("b", 1, None, &[])).await;
    assert_eq!(runs(&told[0]), [(5, 5, 1)]);
    // Nothing is left: b waits its time out. Then a connection breaks, and its records come back.
    let (_, told) = fetched(&mut a, &share_fetch("a", 3, None, &[])).await;
    assert!(told.is_empty());
    drop(b);
    let (_, told) = loop {
        let next = fetched(&mut a, &share_fetch("a", 0, Some(id), &[])).await;
        if !next.1.is_empty() {
            break next;
        }
    };
    assert_eq!(runs(&told[0]), [(2, 3, 2)]);
    server.stop().await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_changes_nothing() {
    const SESSION_NOT_FOUND: i16 = 122;
    const SESSION_EPOCH: i16 = 123;
    const RECORD_STATE: i16 = 121;
    const INVALID_REQUEST: i16 = 42;
    let (server, mut a, id) = shared().await;
    for (epoch, said, code) in [
        (1, &[][..], SESSION_NOT_FOUND),
        (-1, &[][..], SESSION_NOT_FOUND),
        (0, &[(0, 0, 1)][..], INVALID_REQUEST),
    ] {
        let (told, _) = fetched(&mut a, &share_fetch("a", epoch, Some(id), said)).await;
        assert_eq!(told, code, "epoch {epoch}");
    }
    let (_, told) = fetched(&mut a, &share_fetch("a", 0, Some(id), &[])).await;
    assert_eq!(runs(&told[0]), [(0, 1, 1)]);
    let (told, _) = fetched(&mut a, &share_fetch("a", 2, None, &[])).await;
    assert_eq!(told, SESSION_EPOCH);
    for (nth, (said, code)) in [
        (&[(1, 2, &[1][..])][..], RECORD_STATE),
        (&[(0, 1, &[1, 1, 1][..])][..], INVALID_REQUEST),
        (&[(1, 0, &[1][..])][..], INVALID_REQUEST),
        (&[(0, 0, &[7][..])][..], INVALID_REQUEST),
        // To hold records for longer is of the second version.
        (&[(0, 0, &[4][..])][..], INVALID_REQUEST),
        (&[(1, 1, &[1][..]), (0, 0, &[1][..])][..], INVALID_REQUEST),
        (&[(0, i64::MAX, &[1][..])][..], RECORD_STATE),
        (&[(0, 1, &[][..])][..], INVALID_REQUEST),
    ]
    .into_iter()
    .enumerate()
    {
        let epoch = 1 + i32::try_from(nth).unwrap();
        let told = a.call(1, &acknowledge("a", epoch, id, said)).await;
        assert_eq!(told.error_code, 0, "{said:?}");
        assert_eq!(told.responses[0].partitions[0].error_code, code, "{said:?}");
    }
    let told = a
        .call(1, &acknowledge("a", 9, Uuid::from_u128(1), &[(0, 0, &[1])]))
        .await;
    assert_eq!(told.responses[0].partitions[0].error_code, 100);
    // A session that ends gives back what its member has; one partition that is forgotten is not read.
    let (code, told) = fetched(&mut a, &share_fetch("a", -1, None, &[])).await;
    assert_eq!((code, told.len()), (0, 0));
    let (_, told) = fetched(&mut a, &share_fetch("a", 0, Some(id), &[])).await;
    assert_eq!(runs(&told[0]), [(0, 1, 2)]);
    let forgotten = ForgottenTopic::default()
        .with_topic_id(id)
        .with_partitions(vec![0]);
    let forget = share_fetch("a", 1, None, &[]).with_forgotten_topics_data(vec![forgotten]);
    assert_eq!(fetched(&mut a, &forget).await, (0, Vec::new()));
    server.stop().await;
}

#[tokio::test]
async fn a_group_is_of_one_kind() {
    let (server, mut client, _) = shared().await;
    let consumer = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_member_id(text("c"))
        .with_rebalance_timeout_ms(1_000)
        .with_subscribed_topic_names(Some(vec![wire("t")]))
        .with_topic_partitions(Some(Vec::new()));
    assert_eq!(client.call(0, &consumer).await.error_code, 69);
    let stale = client.call(1, &beat("a", 9, None)).await;
    assert_eq!(stale.error_code, 110);
    for member in ["a", "b"] {
        assert_eq!(client.call(1, &beat(member, -1, None)).await.error_code, 0);
    }
    let unknown = client.call(1, &beat("a", 1, None)).await;
    assert_eq!(unknown.error_code, 25);
    // Its members may come back: it is a share group until somebody deletes it.
    assert_eq!(client.call(0, &consumer).await.error_code, 69);
    let groups = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text("g"))]);
    let deleted = client.call(2, &groups).await;
    assert_eq!(deleted.results[0].error_code, 0);
    assert_eq!(client.call(0, &consumer).await.error_code, 0);
    assert_eq!(
        client.call(1, &beat("a", 0, Some(&["t"]))).await.error_code,
        69
    );
    server.stop().await;
}
