//! What consumers in this process do beside what consumers of every store do (see
//! `behavior/cases.rs`).

use std::time::Duration;

use journal::SimDisk;

use super::{append, batch_of, create, name, open};
use crate::error::StreamsError;
use crate::event_store::ConsumerConfig;
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
