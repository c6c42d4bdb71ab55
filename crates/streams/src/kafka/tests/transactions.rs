//! Transactions on the wire: both protocol versions, the codes of refusals, and what people see.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

use super::client::{Client, RECORD_TIME_MS, Server, batch, fetch, metadata, produce, wire};

#[tokio::test]
async fn the_first_protocol_adds_partitions_and_keeps_the_epoch() {
    let server = Server::start().await;
    let mut client = started(&server).await;
    let (id, epoch) = init(&mut client, 4, 60_000).await;
    assert_eq!(epoch, 0);
    // Nothing was added yet: older clients hear of the state, newer ones that they may abort.
    assert_eq!(write(&mut client, 10, id, epoch, 0).await, 48);
    assert_eq!(write(&mut client, 11, id, epoch, 0).await, 120);
    assert_eq!(add(&mut client, 3, id, epoch).await, 0);
    assert_eq!(write(&mut client, 11, id, epoch, 0).await, 0);
    assert_eq!(read_committed(&mut client).await, (0, 0, false));
    assert_eq!(end(&mut client, 4, id, epoch, true).await, (0, -1, 0));
    assert_eq!(read_committed(&mut client).await, (0, 2, true));
    // The same end once more is the answer that was lost; the other way it is a mistake.
    assert_eq!(end(&mut client, 4, id, epoch, true).await.0, 0);
    assert_eq!(end(&mut client, 4, id, epoch, false).await.0, 48);
    server.stop().await;
}

#[tokio::test]
async fn the_second_protocol_adds_by_use_and_takes_the_next_epoch() {
    let server = Server::start().await;
    let mut client = started(&server).await;
    let (id, epoch) = init(&mut client, 5, 60_000).await;
    assert_eq!(write(&mut client, 12, id, epoch, 0).await, 0);
    assert_eq!(end(&mut client, 5, id, epoch, false).await, (0, id, 1));
    assert_eq!(end(&mut client, 5, id, epoch, false).await, (0, id, 1));
    let fetched = fetch_committed(&mut client).await;
    let aborted = fetched.aborted_transactions.unwrap();
    assert_eq!(aborted.len(), 1);
    assert_eq!((aborted[0].producer_id.0, aborted[0].first_offset), (id, 0));
    assert_eq!(
        write(&mut client, 12, id, epoch, 1).await,
        47,
        "the old epoch is fenced"
    );
    assert_eq!(write(&mut client, 12, id, 1, 0).await, 0);
    assert_eq!(end(&mut client, 5, id, 1, true).await, (0, id, 2));
    let asks = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("test"))
        .with_client_software_version(StrBytes::from_static_str("1"));
    let told = client.call(4, &asks).await;
    let mut finalized = told.finalized_features.iter();
    let feature = finalized.find(|f| f.name.as_str() == "transaction.version");
    assert_eq!(feature.unwrap().max_version_level, 2);
    server.stop().await;
}

#[tokio::test]
async fn refusals_have_kafkas_codes() {
    let server = Server::start().await;
    let mut client = started(&server).await;
    for timeout in [0, 900_001] {
        let refused = client.call(4, &init_request(timeout)).await;
        assert_eq!(refused.error_code, 50);
    }
    assert_eq!(end(&mut client, 4, 7, 0, true).await.0, 49);
    let (id, epoch) = init(&mut client, 4, 60_000).await;
    let (same, newer) = init(&mut client, 4, 60_000).await;
    assert_eq!((same, newer), (id, epoch + 1));
    assert_eq!(add(&mut client, 1, id, epoch).await, 47);
    assert_eq!(add(&mut client, 2, id, epoch).await, 90);
    assert_eq!(end(&mut client, 1, id, epoch, true).await.0, 47);
    assert_eq!(end(&mut client, 2, id, epoch, true).await.0, 90);
    assert_eq!(add(&mut client, 3, id + 1, epoch).await, 49);
    assert_eq!(end(&mut client, 4, id, newer, true).await.0, 48);
    // A transactional batch without its id is nobody's.
    let alone = produce("t", 0, -1, transactional(id, newer, 0));
    assert_eq!(code(&client.call(11, &alone).await), 87);
    server.stop().await;
}

#[tokio::test]
async fn an_older_instance_that_comes_back_is_fenced_off() {
    let server = Server::start().await;
    let mut client = started(&server).await;
    let (id, epoch) = init(&mut client, 4, 60_000).await;
    let come_back = |epoch: i16| {
        init_request(60_000)
            .with_producer_id(ProducerId(id))
            .with_producer_epoch(epoch)
    };
    // Alone it goes on, and hears the same once more when the answer was lost.
    for _ in 0..2 {
        let told = client.call(4, &come_back(epoch)).await;
        assert_eq!((told.error_code, told.producer_epoch), (0, epoch + 1));
    }
    let (_, newer) = init(&mut client, 4, 60_000).await;
    for older in epoch..newer {
        let told = client.call(4, &come_back(older)).await;
        assert_eq!((told.error_code, told.producer_epoch), (90, -1), "{older}");
        assert_eq!(client.call(3, &come_back(older)).await.error_code, 47);
    }
    assert_eq!(client.call(4, &come_back(newer)).await.error_code, 0);
    server.stop().await;
}

#[tokio::test]
async fn offsets_wait_for_the_end_and_are_unstable_until_then() {
    let server = Server::start().await;
    let mut client = started(&server).await;
    let (id, epoch) = init(&mut client, 4, 60_000).await;
    let commit = TxnOffsetCommitRequest::default()
        .with_transactional_id(tx())
        .with_group_id(group())
        .with_producer_id(ProducerId(id))
        .with_producer_epoch(epoch)
        .with_generation_id(-1)
        .with_topics(vec![
            TxnOffsetCommitRequestTopic::default()
                .with_name(wire("t"))
                .with_partitions(vec![
                    TxnOffsetCommitRequestPartition::default().with_committed_offset(5),
                ]),
        ]);
    let answer = client.call(3, &commit).await;
    assert_eq!(
        answer.topics[0].partitions[0].error_code, 48,
        "the group was not added"
    );
    let adds = AddOffsetsToTxnRequest::default()
        .with_transactional_id(tx())
        .with_group_id(group())
        .with_producer_id(ProducerId(id))
        .with_producer_epoch(epoch);
    assert_eq!(client.call(3, &adds).await.error_code, 0);
    let answer = client.call(3, &commit).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    assert_eq!(committed(&mut client, true).await, (88, -1));
    assert_eq!(committed(&mut client, false).await, (0, -1));
    assert_eq!(end(&mut client, 4, id, epoch, true).await.0, 0);
    assert_eq!(committed(&mut client, true).await, (0, 5));
    server.stop().await;
}

#[tokio::test]
async fn people_see_transactions_and_producers() {
    let server = Server::start().await;
    let mut client = started(&server).await;
    let (id, epoch) = init(&mut client, 4, 60_000).await;
    assert_eq!(write(&mut client, 12, id, epoch, 0).await, 0);
    let describe = DescribeTransactionsRequest::default()
        .with_transactional_ids(vec![tx(), TransactionalId(StrBytes::from_static_str("no"))]);
    let told = client.call(0, &describe).await.transaction_states;
    assert_eq!(told[0].transaction_state.as_str(), "Ongoing");
    assert_eq!(told[0].producer_id.0, id);
    assert_eq!(told[0].topics[0].partitions, [0]);
    assert_eq!(told[1].error_code, 105);
    for (pattern, count) in [("t.", 1), ("t", 0), ("", 1)] {
        let list = ListTransactionsRequest::default()
            .with_state_filters(vec![StrBytes::from_static_str("Ongoing")])
            .with_transactional_id_pattern(Some(StrBytes::from_static_str(pattern)));
        let listed = client.call(2, &list).await;
        assert_eq!(listed.transaction_states.len(), count, "{pattern}");
    }
    let producers = DescribeProducersRequest::default().with_topics(vec![
        TopicRequest::default()
            .with_name(wire("t"))
            .with_partition_indexes(vec![0, 9]),
    ]);
    let told = client.call(0, &producers).await;
    let [first, missing] = &told.topics[0].partitions[..] else {
        panic!("two partitions were asked for");
    };
    assert_eq!(missing.error_code, 3);
    let active = &first.active_producers[0];
    assert_eq!(
        (active.producer_id.0, active.current_txn_start_offset),
        (id, 0)
    );
    assert_eq!(active.last_timestamp, *RECORD_TIME_MS);
    // What hangs is ended by hand, as often as one likes.
    let topics = WritableTxnMarkerTopic::default()
        .with_name(wire("t"))
        .with_partition_indexes(vec![0, 9]);
    let marker = WritableTxnMarker::default()
        .with_producer_id(ProducerId(id))
        .with_producer_epoch(epoch)
        .with_topics(vec![topics]);
    let markers = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
    for _ in 0..2 {
        let written = client.call(1, &markers).await;
        let partitions = &written.markers[0].topics[0].partitions;
        let codes: Vec<i16> = partitions.iter().map(|p| p.error_code).collect();
        assert_eq!(codes, [0, 3]);
    }
    let told = client.call(0, &producers).await;
    let active = &told.topics[0].partitions[0].active_producers[0];
    assert_eq!(active.current_txn_start_offset, -1);
    server.stop().await;
}

async fn started(server: &Server) -> Client {
    let mut client = Client::connect(server).await;
    client.call(9, &metadata("t")).await;
    client
}

fn tx() -> TransactionalId {
    TransactionalId(StrBytes::from_static_str("tx"))
}

fn group() -> GroupId {
    GroupId(StrBytes::from_static_str("g"))
}

fn init_request(timeout_ms: i32) -> InitProducerIdRequest {
    InitProducerIdRequest::default()
        .with_transactional_id(Some(tx()))
        .with_transaction_timeout_ms(timeout_ms)
}

async fn init(client: &mut Client, version: i16, timeout_ms: i32) -> (i64, i16) {
    let answer = client.call(version, &init_request(timeout_ms)).await;
    assert_eq!(answer.error_code, 0);
    (answer.producer_id.0, answer.producer_epoch)
}

async fn add(client: &mut Client, version: i16, id: i64, epoch: i16) -> i16 {
    let topic = AddPartitionsToTxnTopic::default()
        .with_name(wire("t"))
        .with_partitions(vec![0]);
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(tx())
        .with_v3_and_below_producer_id(ProducerId(id))
        .with_v3_and_below_producer_epoch(epoch)
        .with_v3_and_below_topics(vec![topic]);
    let answer = client.call(version, &request).await;
    answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
}

async fn write(client: &mut Client, version: i16, id: i64, epoch: i16, sequence: i32) -> i16 {
    let request = produce("t", 0, -1, transactional(id, epoch, sequence));
    let request = request.with_transactional_id(Some(tx()));
    code(&client.call(version, &request).await)
}

fn code(answer: &ProduceResponse) -> i16 {
    answer.responses[0].partition_responses[0].error_code
}

async fn end(
    client: &mut Client,
    version: i16,
    id: i64,
    epoch: i16,
    committed: bool,
) -> (i16, i64, i16) {
    let request = EndTxnRequest::default()
        .with_transactional_id(tx())
        .with_producer_id(ProducerId(id))
        .with_producer_epoch(epoch)
        .with_committed(committed);
    let answer = client.call(version, &request).await;
    let producer = (answer.producer_id.0, answer.producer_epoch);
    if version < 5 {
        return (answer.error_code, -1, 0);
    }
    (answer.error_code, producer.0, producer.1)
}

async fn fetch_committed(client: &mut Client) -> fetch_response::PartitionData {
    let request = fetch("t", 0, 0, 1 << 20).with_isolation_level(1);
    let answer = client.call(11, &request).await;
    answer.responses[0].partitions[0].clone()
}

/// Code, last stable offset, and whether there are records.
async fn read_committed(client: &mut Client) -> (i16, i64, bool) {
    let read = fetch_committed(client).await;
    let has_records = read.records.is_some_and(|records| !records.is_empty());
    (read.error_code, read.last_stable_offset, has_records)
}

async fn committed(client: &mut Client, require_stable: bool) -> (i16, i64) {
    let topic = OffsetFetchRequestTopics::default()
        .with_name(wire("t"))
        .with_partition_indexes(vec![0]);
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(group())
        .with_topics(Some(vec![topic]));
    let request = OffsetFetchRequest::default()
        .with_groups(vec![group])
        .with_require_stable(require_stable);
    let answer = client.call(8, &request).await;
    let partition = &answer.groups[0].topics[0].partitions[0];
    (partition.error_code, partition.committed_offset)
}

/// A batch of one record in a transaction.
fn transactional(id: i64, epoch: i16, sequence: i32) -> Bytes {
    let plain = batch(&["v"]);
    let mut tail = BytesMut::from(&plain[21..]);
    tail[1] |= 0x10;
    tail[22..30].copy_from_slice(&id.to_be_bytes());
    tail[30..32].copy_from_slice(&epoch.to_be_bytes());
    tail[32..36].copy_from_slice(&sequence.to_be_bytes());
    let mut whole = BytesMut::from(&plain[..17]);
    whole.put_u32(crc32c::crc32c(&tail));
    whole.put_slice(&tail);
    whole.freeze()
}
