//! Transactions in a partition: what readers of each isolation see, also after a restart.

use std::time::Duration;

use base::{Clock, SystemClock};
use bytes::Bytes;
use journal::SimDisk;

use super::{all_records, batch_of, create, name, open, values};
use crate::batch;
use crate::error::StreamsError;
use crate::event_store::{ConsumerConfig, ProducerSequence};
use crate::marker::Marker;
use crate::partition::Partition;
use crate::{Ack, Isolation};

/// A batch of a transaction.
fn transactional(producer_id: i64, first_sequence: i32, value: &str) -> Bytes {
    let sequence = ProducerSequence {
        producer_id,
        producer_epoch: 0,
        first_sequence,
    };
    let mut bytes = batch_of(&[value.to_owned()], Some(sequence)).to_vec();
    bytes[22] |= 0x10;
    batch::seal(&mut bytes);
    bytes.into()
}

async fn write(partition: &std::sync::Arc<Partition>, batch: Bytes) -> i64 {
    let appended = partition.append_any(batch, Ack::All).unwrap();
    appended.ack.await.unwrap();
    appended.base_offset
}

async fn end(partition: &std::sync::Arc<Partition>, producer_id: i64, is_commit: bool) {
    let marker = Marker {
        producer_id,
        producer_epoch: 0,
        is_commit,
    };
    partition.append_marker(SystemClock.now(), marker).unwrap();
    // A marker has no acknowledgement of its own: what stands behind it has.
    write(partition, batch_of(&["between".to_owned()], None)).await;
}

#[tokio::test]
async fn a_reader_of_committed_records_sees_neither_open_nor_aborted_ones() {
    let disk = SimDisk::new(71);
    let streams = open(&disk);
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    write(partition, transactional(1, 0, "kept")).await; // 0
    write(partition, transactional(2, 0, "dropped")).await; // 1
    assert_eq!(partition.end_offset(Isolation::Committed), 0);
    end(partition, 1, true).await; // 2, 3
    assert_eq!(partition.end_offset(Isolation::Committed), 1);
    end(partition, 2, false).await; // 4, 5
    write(partition, transactional(1, 1, "open")).await; // 6
    assert_eq!(partition.end_offset(Isolation::Committed), 6);
    assert_eq!(partition.end_offset(Isolation::Uncommitted), 7);
    assert_eq!(partition.aborted_transactions(0, 6), vec![(2, 1)]);
    assert_eq!(partition.aborted_transactions(5, 6), vec![]);
    streams.snapshot(1).unwrap();
    streams.close().await;
    drop((topic, streams));

    let streams = open(&disk);
    let partition = streams.topic_by_name(&name("t")).unwrap();
    let partition = &partition.partitions()[0];
    assert_eq!(partition.end_offset(Isolation::Committed), 6);
    assert_eq!(partition.aborted_transactions(0, 6), vec![(2, 1)]);
    let all = values(&all_records(partition));
    assert_eq!(all, ["kept", "dropped", "between", "between", "open"]);

    for (isolation, expected) in [
        (Isolation::Committed, &["kept", "between", "between"][..]),
        (
            Isolation::Uncommitted,
            &["kept", "dropped", "between", "between", "open"][..],
        ),
    ] {
        let config = ConsumerConfig {
            isolation,
            ..ConsumerConfig::alone("c")
        };
        let mut consumer = streams.store().consumer(config).await.unwrap();
        consumer.assign(vec![(name("t"), 0)]).await.unwrap();
        let records = consumer.poll(Duration::ZERO, 100_000).await.unwrap();
        let read: Vec<&[u8]> = records
            .iter()
            .map(|r| r.value.as_deref().unwrap())
            .collect();
        let expected: Vec<&[u8]> = expected.iter().map(|v| v.as_bytes()).collect();
        assert_eq!(read, expected, "{isolation:?}");
    }
}

#[tokio::test]
async fn a_batch_of_a_transaction_needs_its_coordinator() {
    let streams = open(&SimDisk::new(72));
    let topic = create(&streams, "t", 1).await;
    let refused = topic.partitions()[0].append(transactional(1, 0, "v"), Ack::All);
    assert!(matches!(refused, Err(StreamsError::InvalidRecord(_))));
}

#[tokio::test]
async fn a_marker_wakes_who_waits_for_committed_records() {
    let streams = open(&SimDisk::new(73));
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    write(partition, transactional(1, 0, "v")).await;
    let config = ConsumerConfig {
        isolation: Isolation::Committed,
        ..ConsumerConfig::alone("c")
    };
    let mut consumer = streams.store().consumer(config).await.unwrap();
    consumer.assign(vec![(name("t"), 0)]).await.unwrap();
    let waiting = tokio::spawn(async move {
        let records = consumer.poll(Duration::from_secs(60), 100_000).await;
        records.unwrap().len()
    });
    tokio::task::yield_now().await;
    let marker = Marker {
        producer_id: 1,
        producer_epoch: 0,
        is_commit: true,
    };
    partition.append_marker(SystemClock.now(), marker).unwrap();
    assert_eq!(waiting.await.unwrap(), 1);
}
