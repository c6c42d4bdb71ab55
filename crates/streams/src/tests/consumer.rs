//! What consumers in this process do beside what consumers of every store do (see
//! `behavior/cases.rs`).

use std::time::{Duration, Instant};

use journal::SimDisk;

use super::{append, batch_of, create, name, open};
use crate::error::StreamsError;
use crate::event_store::{ConsumerConfig, OffsetReset};
use crate::groups::GroupError;
use crate::{Ack, ConsumedRecord};

fn texts(records: &[ConsumedRecord]) -> Vec<String> {
    let text = |record: &ConsumedRecord| {
        String::from_utf8(record.value.clone().unwrap().to_vec()).unwrap()
    };
    records.iter().map(text).collect()
}

#[tokio::test]
async fn a_topic_created_later_reaches_its_subscribers() {
    let config = crate::StreamsConfig {
        auto_create_topics: false,
        ..super::small()
    };
    let (streams, _) = super::try_open(&SimDisk::new(5), config).unwrap();
    let config = ConsumerConfig::in_group("g", "test");
    let mut consumer = streams.store().consumer(config).await.unwrap();
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
    let records = consumer.poll(Duration::from_secs(60), 1_000).await.unwrap();
    assert_eq!(texts(&records), ["v"]);
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

#[tokio::test]
async fn a_commit_without_a_poll_is_that_of_the_newest_generation() {
    let streams = open(&SimDisk::new(9));
    let topic = create(&streams, "t", 2).await;
    for partition in topic.partitions() {
        append(partition, "v").await;
    }
    let config = ConsumerConfig {
        auto_offset_reset: OffsetReset::Earliest,
        ..ConsumerConfig::in_group("g", "test")
    };
    let mut first = streams.store().consumer(config.clone()).await.unwrap();
    let mut second = streams.store().consumer(config).await.unwrap();
    first.subscribe(vec![name("t")]).await.unwrap();
    let mut read = 0;
    while read < 2 {
        let records = first.poll(Duration::from_secs(60), 1_000).await.unwrap();
        assert!(!records.is_empty(), "{read} records came");
        read += records.len();
    }
    second.subscribe(vec![name("t")]).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while second.assignment().len() != 1 {
        assert!(Instant::now() < deadline, "the second gets nothing");
        let wait = Duration::from_millis(20);
        second.poll(wait, 1_000).await.unwrap();
    }
    let given_up = second.assignment()[0].1;
    // What the other has by now is not the first one's to commit.
    let deadline = Instant::now() + Duration::from_secs(60);
    while first.assignment().len() == 2 {
        assert!(Instant::now() < deadline, "the first knows of nothing");
        let offsets = vec![(name("t"), given_up, 1, String::new())];
        let refused = first.commit(Some(offsets)).await;
        assert!(
            matches!(
                refused,
                Err(StreamsError::Group {
                    reason: GroupError::IllegalGeneration | GroupError::RebalanceInProgress,
                    ..
                })
            ),
            "{refused:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let committed = first.commit(None).await.unwrap();
    assert_eq!(committed, [(name("t"), 1 - given_up, 1)]);
}

#[tokio::test]
async fn what_was_read_of_a_topic_that_is_gone_keeps_no_other_offset_from_being_committed() {
    let streams = open(&SimDisk::new(11));
    for topic in ["gone", "new", "stays"] {
        append(&create(&streams, topic, 1).await.partitions()[0], "v").await;
    }
    let config = ConsumerConfig {
        auto_offset_reset: OffsetReset::Earliest,
        ..ConsumerConfig::in_group("g", "test")
    };
    let mut consumer = streams.store().consumer(config).await.unwrap();
    let all = ["gone", "new", "stays"].map(|topic| (name(topic), 0));
    consumer.assign(all.to_vec()).await.unwrap();
    let records = consumer.poll(Duration::from_secs(60), 1_000).await.unwrap();
    assert_eq!(records.len(), 3);
    for topic in ["gone", "new"] {
        streams.store().delete_topic(&name(topic)).await.unwrap();
    }
    // Another topic of the same name was not read.
    create(&streams, "new", 1).await;
    let committed = consumer.commit(None).await.unwrap();
    assert_eq!(committed, [(name("stays"), 0, 1)]);
    assert_eq!(streams.committed_offset("g", &name("new"), 0), None);
    // Who asks for one by name hears that it is gone.
    let gone = vec![(name("gone"), 0, 1, String::new())];
    let refused = consumer.commit(Some(gone)).await;
    assert!(matches!(refused, Err(StreamsError::UnknownTopic(_))));
}
