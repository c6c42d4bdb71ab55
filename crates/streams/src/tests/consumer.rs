//! Consumers in this process, alone and in groups.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use journal::SimDisk;

use super::{append, batch_of, create, name, open};
use crate::error::StreamsError;
use crate::event_store::{Consumer, ConsumerConfig, OffsetReset, SeekTo};
use crate::store::Streams;
use crate::{Ack, ConsumedRecord};

fn texts(records: &[ConsumedRecord]) -> Vec<String> {
    let text = |record: &ConsumedRecord| {
        String::from_utf8(record.value.clone().unwrap().to_vec()).unwrap()
    };
    records.iter().map(text).collect()
}

async fn consumer(streams: &Arc<Streams>, group: &str) -> Box<dyn Consumer> {
    streams
        .store()
        .consumer(ConsumerConfig::in_group(group, "test"))
        .await
        .unwrap()
}

/// Polls until `count` records came.
async fn poll_many(consumer: &mut Box<dyn Consumer>, count: usize) -> Vec<ConsumedRecord> {
    let mut records = Vec::new();
    while records.len() < count {
        let more = consumer
            .poll(Duration::from_secs(10), 1 << 20)
            .await
            .unwrap();
        assert!(
            !more.is_empty(),
            "only {} of {count} records came",
            records.len()
        );
        records.extend(more);
    }
    records
}

#[tokio::test]
async fn an_assigned_consumer_reads_everything_within_max_bytes() {
    let streams = open(&SimDisk::new(1));
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    for n in 0..100 {
        let values: Vec<String> = (0..3)
            .map(|k| format!("{}-{}", n * 3 + k, "x".repeat(90)))
            .collect();
        partition
            .append(batch_of(&values, None), Ack::All)
            .unwrap()
            .ack
            .await
            .unwrap();
    }
    append(partition, "last").await;
    let mut consumer = streams
        .store()
        .consumer(ConsumerConfig::alone("c"))
        .await
        .unwrap();
    consumer.assign(vec![(name("t"), 0)]).await.unwrap();
    let mut read = Vec::new();
    while read.len() < 301 {
        // Less than one record: one at a time all the same; else as many as fit.
        let max_bytes = if read.len() < 10 { 1 } else { 1_000 };
        let records = consumer
            .poll(Duration::from_secs(5), max_bytes)
            .await
            .unwrap();
        assert!(!records.is_empty());
        assert!(records.len() == 1 || max_bytes == 1_000 && records.len() <= 10);
        read.extend(records);
    }
    let offsets: Vec<i64> = read.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, (0..301).collect::<Vec<_>>());
    assert_eq!(consumer.position(&name("t"), 0), Some(301));
    assert!(matches!(
        consumer.commit(None).await,
        Err(StreamsError::IllegalState(_))
    ));
}

#[tokio::test]
async fn a_poll_is_answered_by_an_append_and_else_ends_in_time() {
    let streams = open(&SimDisk::new(2));
    let topic = create(&streams, "t", 2).await;
    let mut consumer = streams
        .store()
        .consumer(ConsumerConfig::alone("c"))
        .await
        .unwrap();
    consumer
        .assign(vec![(name("t"), 0), (name("t"), 1)])
        .await
        .unwrap();
    assert!(
        consumer
            .poll(Duration::from_millis(20), 1_000)
            .await
            .unwrap()
            .is_empty()
    );
    let partition = topic.partitions()[1].clone();
    let poll = tokio::spawn(async move {
        let records = consumer.poll(Duration::from_secs(30), 1_000).await.unwrap();
        texts(&records)
    });
    tokio::task::yield_now().await;
    append(&partition, "now").await;
    assert_eq!(poll.await.unwrap(), ["now"]);
}

#[tokio::test]
async fn a_group_goes_on_from_what_it_committed() {
    let streams = open(&SimDisk::new(3));
    let topic = create(&streams, "t", 1).await;
    for n in 0..4 {
        append(&topic.partitions()[0], &format!("v{n}")).await;
    }
    let mut first = consumer(&streams, "g").await;
    first.subscribe(vec![name("t")]).await.unwrap();
    assert_eq!(
        texts(&poll_many(&mut first, 4).await),
        ["v0", "v1", "v2", "v3"]
    );
    let offsets = Some(vec![(name("t"), 0, 2, "half".to_owned())]);
    assert_eq!(first.commit(offsets).await.unwrap(), [(name("t"), 0, 2)]);
    first.close().await.unwrap();

    let mut second = consumer(&streams, "g").await;
    second.subscribe(vec![name("t")]).await.unwrap();
    assert_eq!(texts(&poll_many(&mut second, 2).await), ["v2", "v3"]);
    assert_eq!(second.commit(None).await.unwrap(), [(name("t"), 0, 4)]);
    let committed = streams
        .store()
        .committed("g", &[(name("t"), 0)])
        .await
        .unwrap();
    assert_eq!(committed[0].as_ref().unwrap().offset, 4);
    let groups = streams.store().groups().await.unwrap();
    assert_eq!(
        (groups[0].group.as_str(), groups[0].members.len()),
        ("g", 1)
    );
}

#[tokio::test]
async fn two_members_share_the_partitions_and_one_takes_over() {
    let streams = open(&SimDisk::new(4));
    let topic = create(&streams, "t", 4).await;
    let mut members = [consumer(&streams, "g").await, consumer(&streams, "g").await];
    for member in &mut members {
        member.subscribe(vec![name("t")]).await.unwrap();
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while members.iter().any(|member| member.assignment().len() != 2) {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the group did not settle"
        );
        for member in &mut members {
            member.poll(Duration::from_millis(20), 1_000).await.unwrap();
        }
    }
    let held: BTreeSet<i32> = members
        .iter()
        .flat_map(|member| member.assignment())
        .map(|(_, p)| p)
        .collect();
    assert_eq!(held, (0..4).collect());
    let [leaver, mut stayer] = members;
    leaver.close().await.unwrap();
    for partition in topic.partitions() {
        append(partition, "v").await;
    }
    // The stayer's next heartbeat finds out.
    let records = poll_many(&mut stayer, 4).await;
    let read: BTreeSet<i32> = records.iter().map(|record| record.partition).collect();
    assert_eq!((read.len(), stayer.assignment().len()), (4, 4));
}

#[tokio::test]
async fn a_topic_created_later_reaches_its_subscribers() {
    let config = crate::StreamsConfig {
        auto_create_topics: false,
        ..super::small()
    };
    let (streams, _) = super::try_open(&SimDisk::new(5), config).unwrap();
    let mut consumer = consumer(&streams, "g").await;
    consumer.subscribe(vec![name("late")]).await.unwrap();
    assert!(
        consumer
            .poll(Duration::from_millis(300), 1_000)
            .await
            .unwrap()
            .is_empty()
    );
    let topic = create(&streams, "late", 1).await;
    append(&topic.partitions()[0], "v").await;
    assert_eq!(texts(&poll_many(&mut consumer, 1).await), ["v"]);
}

#[tokio::test]
async fn positions_can_be_moved() {
    let streams = open(&SimDisk::new(6));
    let topic = create(&streams, "t", 1).await;
    for n in 0..3 {
        append(&topic.partitions()[0], &format!("v{n}")).await;
    }
    let config = ConsumerConfig {
        auto_offset_reset: OffsetReset::Latest,
        ..ConsumerConfig::alone("c")
    };
    let mut consumer = streams.store().consumer(config).await.unwrap();
    consumer.assign(vec![(name("t"), 0)]).await.unwrap();
    assert!(
        consumer
            .poll(Duration::ZERO, 1_000)
            .await
            .unwrap()
            .is_empty()
    );
    for (to, first) in [
        (SeekTo::Beginning, "v0"),
        (SeekTo::Offset(1), "v1"),
        (SeekTo::Offset(2), "v2"),
    ] {
        consumer.seek(&name("t"), 0, to).await.unwrap();
        let records = consumer.poll(Duration::from_secs(1), 1_000).await.unwrap();
        assert_eq!(texts(&records)[0], first);
    }
    // Out of range falls back to the reset, which is the end here.
    consumer
        .seek(&name("t"), 0, SeekTo::Offset(99))
        .await
        .unwrap();
    assert!(
        consumer
            .poll(Duration::ZERO, 1_000)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(consumer.position(&name("t"), 0), Some(3));
    let refused = consumer.seek(&name("u"), 0, SeekTo::End).await;
    assert!(matches!(refused, Err(StreamsError::NotAssigned { .. })));
}

#[tokio::test]
async fn a_record_that_does_not_decode_is_told_once_and_blocks_nothing() {
    let streams = open(&SimDisk::new(7));
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    append(partition, "before").await;
    // Claims gzip for bytes that are none; checksum and header are right, so it is stored.
    let mut broken = batch_of(&["broken".into()], None).to_vec();
    broken[22] = 1;
    let crc = crc32c::crc32c(&broken[21..]);
    broken[17..21].copy_from_slice(&crc.to_be_bytes());
    partition
        .append(broken.into(), Ack::All)
        .unwrap()
        .ack
        .await
        .unwrap();
    append(partition, "after").await;
    let mut consumer = streams
        .store()
        .consumer(ConsumerConfig::alone("c"))
        .await
        .unwrap();
    consumer.assign(vec![(name("t"), 0)]).await.unwrap();
    let wait = Duration::from_secs(1);
    assert_eq!(
        texts(&consumer.poll(wait, 1_000).await.unwrap()),
        ["before"]
    );
    assert!(matches!(
        consumer.poll(wait, 1_000).await,
        Err(StreamsError::InvalidRecord(_))
    ));
    assert_eq!(texts(&consumer.poll(wait, 1_000).await.unwrap()), ["after"]);
}
