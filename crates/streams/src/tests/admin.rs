//! Topics that are changed while they are in use: settings, partitions, where records begin.

use std::sync::Arc;
use std::time::Duration;

use base::{Clock, ManualClock, UnixMillis};
use journal::SimDisk;

use super::{all_records, append, create, name, open, small, values};
use crate::config::StreamsConfig;
use crate::error::StreamsError;
use crate::event_store::TopicSpec;
use crate::store::Streams;
use crate::{Ack, ConfigChange, Durability, Isolation, Record, TopicConfig, batch};

fn set(name: &str, value: &str) -> ConfigChange {
    ConfigChange::Set(name.into(), value.into())
}

fn spec(topic: &str, config: &[(&str, &str)]) -> TopicSpec {
    TopicSpec {
        config: TopicConfig::of(config.iter().copied()).unwrap(),
        ..TopicSpec::of(name(topic)).with_partitions(1)
    }
}

async fn reopened(disk: &SimDisk, streams: Arc<Streams>) -> Arc<Streams> {
    streams.close().await;
    drop(streams);
    open(disk)
}

#[tokio::test]
async fn settings_hold_at_once_and_after_a_restart() {
    let disk = SimDisk::new(21);
    let streams = open(&disk);
    let topic = streams
        .create_topic(spec(
            "t",
            &[("retention.ms", "60000"), ("thalweg.durability", "os")],
        ))
        .await
        .unwrap();
    assert_eq!(topic.durability(), Durability::Os);
    assert_eq!(topic.settings().retention, Some(Duration::from_secs(60)));
    let changes = [
        set("max.message.bytes", "200"),
        ConfigChange::Append("cleanup.policy".into(), "compact".into()),
        ConfigChange::Unset("thalweg.durability".into()),
    ];
    streams.alter_topic(&name("t"), &changes).await.unwrap();
    let check = |streams: &Streams| {
        let topic = streams.topic_by_name(&name("t")).unwrap();
        let settings = topic.settings();
        assert_eq!(settings.durability, Durability::Disk);
        assert_eq!(settings.message_bytes_max, 200);
        assert!(settings.is_compacting && settings.is_deleting);
        assert_eq!(settings.retention, Some(Duration::from_secs(60)));
        let large = batch::build(&[Record::of_value("x".repeat(300))], UnixMillis(1), None);
        let refused = topic.partitions()[0].append(large.unwrap(), Ack::All);
        assert!(matches!(
            refused,
            Err(StreamsError::MessageTooLarge { max: 200, .. })
        ));
    };
    check(&streams);
    let streams = reopened(&disk, streams).await;
    check(&streams);
    streams.snapshot(1).unwrap();
    let streams = reopened(&disk, streams).await;
    check(&streams);
    // All or none.
    let changes = [set("retention.ms", "1"), set("retention.bytes", "-7")];
    let refused = streams.alter_topic(&name("t"), &changes).await;
    assert!(matches!(refused, Err(StreamsError::InvalidConfig(_))));
    check(&streams);
    let too_large = [set("max.message.bytes", "1000000000")];
    assert!(streams.check_alter(&name("t"), &too_large).is_err());
    let none = TopicConfig::default();
    streams
        .replace_topic_config(&name("t"), none)
        .await
        .unwrap();
    let topic = streams.topic_by_name(&name("t")).unwrap();
    assert_eq!(topic.config().all().count(), 0);
}

#[tokio::test]
async fn partitions_are_added_and_stay() {
    let disk = SimDisk::new(22);
    let streams = open(&disk);
    let topic = create(&streams, "t", 2).await;
    create(&streams, "other", 1).await;
    append(&topic.partitions()[1], "before").await;
    streams.create_partitions(&name("t"), 4).await.unwrap();
    for count in [4, 3, 0, -1] {
        let refused = streams.create_partitions(&name("t"), count).await;
        assert!(matches!(
            refused,
            Err(StreamsError::PartitionsOnlyGrow { now: 4, .. })
        ));
    }
    let grown = streams.topic_by_id(topic.id()).unwrap();
    append(&grown.partitions()[3], "after").await;
    // Whoever still holds the smaller topic writes into the same partitions.
    append(&topic.partitions()[1], "too").await;
    let streams = reopened(&disk, streams).await;
    let grown = streams.topic_by_name(&name("t")).unwrap();
    assert_eq!((grown.id(), grown.partitions().len()), (topic.id(), 4));
    assert_eq!(
        values(&all_records(&grown.partitions()[1])),
        ["before", "too"]
    );
    assert_eq!(values(&all_records(&grown.partitions()[3])), ["after"]);
    assert_eq!(streams.topics_snapshot().len(), 2);
}

#[tokio::test]
async fn deleted_records_stay_deleted() {
    let disk = SimDisk::new(23);
    let streams = open(&disk);
    let topic = create(&streams, "t", 1).await;
    for n in 0..6 {
        append(&topic.partitions()[0], &n.to_string()).await;
    }
    let delete =
        async |streams: &Streams, offset| streams.delete_records(&name("t"), 0, offset).await;
    assert_eq!(delete(&streams, Some(2)).await.unwrap(), 2);
    assert_eq!(delete(&streams, Some(1)).await.unwrap(), 2);
    for offset in [7, -2] {
        let refused = delete(&streams, Some(offset)).await;
        assert!(matches!(
            refused,
            Err(StreamsError::OffsetOutOfRange { .. })
        ));
    }
    let streams = reopened(&disk, streams).await;
    let topic = streams.topic_by_name(&name("t")).unwrap();
    assert_eq!(
        values(&all_records(&topic.partitions()[0])),
        ["2", "3", "4", "5"]
    );
    assert_eq!(delete(&streams, None).await.unwrap(), 6);
    assert_eq!(append(&topic.partitions()[0], "next").await, 6);
    let changes = [set("cleanup.policy", "compact")];
    streams.alter_topic(&name("t"), &changes).await.unwrap();
    let refused = delete(&streams, Some(7)).await;
    assert!(matches!(refused, Err(StreamsError::NotDeletable(_))));
}

#[tokio::test]
async fn old_records_of_plain_topics_expire_and_large_partitions_are_trimmed() {
    let disk = SimDisk::new(24);
    let clock = ManualClock::at(UnixMillis(1_000_000));
    let (streams, _) = Streams::open_on(
        Arc::new(disk.clone()),
        std::path::Path::new("/streams"),
        StreamsConfig { ..small() },
        Arc::new(clock.clone()),
    )
    .unwrap();
    let mut topics = Vec::new();
    for (topic, config) in [
        ("kept", &[("retention.ms", "-1")][..]),
        (
            "compacted",
            &[("cleanup.policy", "compact"), ("retention.ms", "1")],
        ),
        ("short", &[("retention.ms", "1000")]),
        ("weekly", &[]),
        (
            "small",
            &[("retention.bytes", "300"), ("retention.ms", "-1")],
        ),
    ] {
        let topic = streams.create_topic(spec(topic, config)).await.unwrap();
        for n in 0..6 {
            let records = [Record::of_value(n.to_string()).with_key("k")];
            let batch = batch::build(&records, clock.now(), None).unwrap();
            assert!((60..80).contains(&batch.len()));
            let appended = topic.partitions()[0].append(batch, Ack::All).unwrap();
            appended.ack.await.unwrap();
        }
        topics.push(topic);
    }
    let held = || -> Vec<i64> {
        let partitions = topics.iter().map(|topic| &topic.partitions()[0]);
        partitions
            .map(|p| p.high_watermark() - p.log_start_offset())
            .collect()
    };
    streams.expire().unwrap();
    // 300 bytes are five batches of nearly 70 but not four.
    assert_eq!(held(), [6, 6, 6, 6, 5]);
    clock.advance(Duration::from_millis(1_001));
    streams.expire().unwrap();
    assert_eq!(held(), [6, 6, 0, 6, 5]);
    clock.advance(Duration::from_secs(7 * 24 * 3_600));
    streams.expire().unwrap();
    assert_eq!(held(), [6, 6, 0, 0, 5]);
}

#[tokio::test]
async fn a_topic_may_want_the_time_of_storing() {
    let disk = SimDisk::new(25);
    let streams = open(&disk);
    let topic = streams
        .create_topic(spec("t", &[("message.timestamp.type", "LogAppendTime")]))
        .await
        .unwrap();
    let partition = &topic.partitions()[0];
    let old = batch::build(&[Record::of_value("v")], UnixMillis(5), None).unwrap();
    let appended = partition.append(old, Ack::All).unwrap();
    let at = appended.log_append_time;
    appended.ack.await.unwrap();
    assert!(at > 1_700_000_000_000);
    assert_eq!(all_records(partition)[0].timestamp, UnixMillis(at));
    assert_eq!(
        partition
            .offset_for_time(Isolation::Uncommitted, UnixMillis(at))
            .unwrap(),
        Some((0, UnixMillis(at)))
    );
    assert_eq!(
        partition
            .offset_for_time(Isolation::Uncommitted, UnixMillis(at + 1))
            .unwrap(),
        None
    );
}
