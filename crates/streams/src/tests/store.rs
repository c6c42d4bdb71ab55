//! The store on a simulated disk: what clients can rely on, call by call.

use std::sync::Arc;
use std::time::Duration;

use base::{ByteSize, HumanDuration, UnixMillis};
use journal::{JournalError, SimDisk};

use super::{all_records, append, batch_of, create, name, open, seeds, small, try_open, values};
use crate::error::StreamsError;
use crate::event_store::{EventStore, ProduceBatch, ProducerSequence, TopicSpec};
use crate::frames::Change;
use crate::partition::{Partition, storage};
use crate::{Ack, Durability, Isolation, OffsetCommit, Record, Signal, StreamsConfig};

fn commit(topic: &str, partition: i32, offset: i64) -> OffsetCommit {
    OffsetCommit {
        topic: name(topic),
        partition,
        offset,
        leader_epoch: -1,
        metadata: "why".into(),
        at: UnixMillis(3),
    }
}

#[tokio::test]
async fn a_restart_is_exact() {
    let disk = SimDisk::new(1);
    let streams = open(&disk);
    let topic = create(&streams, "/s/a:t", 3).await;
    for n in 0..5 {
        append(&topic.partitions()[1], &format!("v{n}")).await;
    }
    streams
        .commit_offsets("g", vec![commit("/s/a:t", 1, 4)])
        .unwrap()
        .await
        .unwrap();
    let producer_id = streams.next_producer_id().await.unwrap();
    let (id, cluster_id) = (topic.id(), streams.cluster_id().to_owned());
    let info = topic.info();
    streams.close().await;
    drop((streams, topic));

    let (streams, recovery) = try_open(&disk, small()).unwrap();
    assert_eq!(
        (recovery.topics, recovery.partitions, recovery.records),
        (1, 3, 5)
    );
    assert_eq!((recovery.cut_bytes, recovery.damaged_bytes), (0, 0));
    assert_eq!(streams.cluster_id(), cluster_id);
    let topic = streams.topic_by_id(id).unwrap();
    assert_eq!(topic.name().display(), "/s/a:t");
    assert_eq!(topic.info().partition_offsets, info.partition_offsets);
    assert_eq!(topic.info().bytes_in_total, info.bytes_in_total);
    assert_eq!(
        values(&all_records(&topic.partitions()[1])),
        ["v0", "v1", "v2", "v3", "v4"]
    );
    let committed = streams.committed_offset("g", &name(".s.a..t"), 1).unwrap();
    assert_eq!((committed.offset, committed.metadata.as_str()), (4, "why"));
    assert!(streams.next_producer_id().await.unwrap() > producer_id);
}

#[tokio::test]
async fn records_show_only_once_they_are_on_the_disk() {
    let disk = SimDisk::new(2);
    let streams = open(&disk);
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    append(partition, "safe").await;
    disk.fail_next_sync();
    let lost = partition
        .append(batch_of(&["lost".into()], None), Ack::All)
        .unwrap();
    assert!(lost.ack.await.is_err());
    assert_eq!(partition.high_watermark(), 1);
    assert!(matches!(
        partition.append(batch_of(&["more".into()], None), Ack::All),
        Err(StreamsError::Storage(_))
    ));
    disk.kill();
    drop((streams, topic));
    let streams = open(&disk);
    let topic = streams.topic_by_name(&name("t")).unwrap();
    assert_eq!(values(&all_records(&topic.partitions()[0]))[0], "safe");
}

#[tokio::test]
async fn a_full_disk_is_told_and_harms_nothing() {
    let disk = SimDisk::new(3);
    let streams = open(&disk);
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    disk.set_capacity(Some(disk.used() + 20_000));
    let mut stored = 0;
    let refused = loop {
        match partition.append(batch_of(&["x".repeat(1_000)], None), Ack::All) {
            Ok(append) => {
                append.ack.await.unwrap();
                stored += 1;
            }
            Err(StreamsError::Busy) => streams.room(1_100).await,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StreamsError::Full), "{refused:?}");
    assert_eq!(all_records(partition).len(), stored);
    disk.set_capacity(None);
    loop {
        match partition.append(batch_of(&["y".into()], None), Ack::All) {
            Ok(append) => break append.ack.await.unwrap(),
            Err(StreamsError::Busy) => streams.room(1_100).await,
            Err(StreamsError::Full) => tokio::task::yield_now().await,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(all_records(partition).len(), stored + 1);
}

#[tokio::test]
async fn reads_give_whole_batches_and_at_least_one() {
    let streams = open(&SimDisk::new(4));
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    let three: Vec<String> = (0..3).map(|n| format!("r{n}")).collect();
    for _ in 0..3 {
        partition
            .append(batch_of(&three, None), Ack::All)
            .unwrap()
            .ack
            .await
            .unwrap();
    }
    let one = batch_of(&three, None).len();
    // From the middle of a batch it is the whole batch; clients skip what they have.
    assert_eq!(
        partition
            .read(Isolation::Uncommitted, 4, 1_000_000, false)
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        partition
            .read(Isolation::Uncommitted, 0, 2 * one, false)
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        partition
            .read(Isolation::Uncommitted, 0, one - 1, false)
            .unwrap()
            .len(),
        0
    );
    assert_eq!(
        partition
            .read(Isolation::Uncommitted, 0, one - 1, true)
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        partition
            .read(Isolation::Uncommitted, 9, 1_000_000, true)
            .unwrap()
            .len(),
        0
    );
    assert_eq!(
        partition
            .readable_bytes(Isolation::Uncommitted, 4, usize::MAX)
            .unwrap(),
        2 * one
    );
    for offset in [-1, 10] {
        let refused = partition.read(Isolation::Uncommitted, offset, 100, true);
        assert!(matches!(
            refused,
            Err(StreamsError::OffsetOutOfRange {
                start: 0,
                end: 9,
                ..
            })
        ));
    }
}

#[tokio::test]
async fn a_damaged_or_large_batch_is_refused_and_takes_no_offset() {
    let streams = open(&SimDisk::new(5));
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    let mut damaged = batch_of(&["v".into()], None).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let refused = partition.append(damaged.into(), Ack::All);
    assert!(matches!(refused, Err(StreamsError::CorruptMessage(_))));
    let large = batch_of(&["x".repeat(3_000)], None);
    let refused = partition.append(large, Ack::All);
    assert!(matches!(
        refused,
        Err(StreamsError::MessageTooLarge { max: 2_048, .. })
    ));
    assert_eq!(append(partition, "v").await, 0);
}

#[tokio::test]
async fn offsets_are_found_by_time() {
    // Its records are as old as time itself, and stay.
    let config = StreamsConfig {
        retention: HumanDuration(Duration::ZERO),
        ..small()
    };
    let (streams, _) = try_open(&SimDisk::new(6), config).unwrap();
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    for times in [[10, 30], [20, 25], [50, 40]] {
        let records = times.map(|time| Record {
            timestamp: Some(UnixMillis(time)),
            ..Record::of_value("v")
        });
        let batch = crate::batch::build(&records, UnixMillis(0), None).unwrap();
        partition
            .append(batch, Ack::All)
            .unwrap()
            .ack
            .await
            .unwrap();
    }
    let at = |time| {
        partition
            .offset_for_time(Isolation::Uncommitted, UnixMillis(time))
            .unwrap()
    };
    assert_eq!(at(0), Some((0, UnixMillis(10))));
    assert_eq!(at(11), Some((1, UnixMillis(30))));
    assert_eq!(at(31), Some((4, UnixMillis(50))));
    assert_eq!(at(51), None);
    assert_eq!(
        partition
            .offset_of_max_time(Isolation::Uncommitted)
            .unwrap(),
        Some((4, UnixMillis(50)))
    );
}

#[tokio::test]
async fn watchers_are_woken_and_unregistered() {
    let streams = open(&SimDisk::new(7));
    let topic = create(&streams, "t", 2).await;
    let notify = Arc::new(Signal::new());
    let watches: Vec<_> = topic
        .partitions()
        .iter()
        .map(|p| p.watch(&notify).unwrap())
        .collect();
    append(&topic.partitions()[1], "v").await;
    notify.told().await;
    drop(watches);
    append(&topic.partitions()[1], "v").await;
    let told = tokio::time::timeout(Duration::from_millis(20), notify.told());
    assert!(told.await.is_err(), "a dropped watch was told");
    let _watch = topic.partitions()[0].watch(&notify).unwrap();
    streams.delete_topic(&name("t")).await.unwrap();
    notify.told().await;
    let refused = topic.partitions()[0].read(Isolation::Uncommitted, 0, 10, true);
    assert!(matches!(refused, Err(StreamsError::UnknownTopic(_))));
}

#[tokio::test]
async fn deleting_a_topic_frees_its_segments_and_keeps_the_rest() {
    let disk = SimDisk::new(8);
    let streams = open(&disk);
    let kept = create(&streams, "kept", 1).await;
    let bulk = create(&streams, "bulk", 2).await;
    let sequence = ProducerSequence {
        producer_id: 5,
        producer_epoch: 0,
        first_sequence: 0,
    };
    // The first batch of `kept` stands at the front, so its segment must stay; later ones go.
    for n in 0..60 {
        append(&bulk.partitions()[n % 2], &"x".repeat(1_000)).await;
    }
    let first = kept.partitions()[0].append(batch_of(&["a".into()], Some(sequence)), Ack::All);
    first.unwrap().ack.await.unwrap();
    let commits = vec![commit("kept", 0, 1), commit("bulk", 0, 9)];
    streams.commit_offsets("g", commits).unwrap().await.unwrap();
    let before = streams.shared().journal.segments().len();
    streams.delete_topic(&name("bulk")).await.unwrap();
    streams.reclaim().unwrap();
    let after = streams.shared().journal.segments().len();
    assert!(
        before >= 4 && after <= 2,
        "{before} segments became {after}"
    );

    streams.close().await;
    drop((streams, kept, bulk));
    let streams = open(&disk);
    assert!(streams.topic_by_name(&name("bulk")).is_none());
    let kept = streams.topic_by_name(&name("kept")).unwrap();
    let partition = &kept.partitions()[0];
    assert_eq!(values(&all_records(partition)), ["a"]);
    let again = partition
        .append(batch_of(&["a".into()], Some(sequence)), Ack::All)
        .unwrap();
    assert!(again.duplicate && again.base_offset == 0);
    let committed = streams.committed_all("g");
    assert_eq!(committed.len(), 1);
    assert_eq!(
        (committed[0].topic.display(), committed[0].committed.offset),
        ("kept", 1)
    );
    // A topic of the old name is another topic, with other numbers.
    let bulk = create(&streams, "bulk", 2).await;
    assert_eq!(bulk.partitions()[0].high_watermark(), 0);
    assert_eq!(streams.committed_all("g").len(), 1);
}

#[tokio::test]
async fn what_is_kept_for_ever_moves_on_and_does_not_hold_the_dead() {
    let disk = SimDisk::new(1);
    let streams = open(&disk);
    let kept = create(&streams, "kept", 1).await;
    append(&kept.partitions()[0], "for ever").await;
    for round in 0..6 {
        let bulk = create(&streams, &format!("bulk{round}"), 1).await;
        for _ in 0..30 {
            append(&bulk.partitions()[0], &"x".repeat(1_000)).await;
        }
        streams.delete_topic(bulk.name()).await.unwrap();
    }
    streams.move_living(0).unwrap();
    streams.reclaim().unwrap();
    let taken = streams.shared().journal.segments().len();
    assert!(taken <= 3, "{taken} segments for one record");
    assert_eq!(values(&all_records(&kept.partitions()[0])), ["for ever"]);
    streams.close().await;
    drop((streams, kept));
    disk.crash();
    let streams = open(&disk);
    let kept = streams.topic_by_name(&name("kept")).unwrap();
    assert_eq!(values(&all_records(&kept.partitions()[0])), ["for ever"]);
}

#[tokio::test]
async fn segments_go_only_when_the_disk_knows_that_nobody_needs_them() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let streams = open(&disk);
        let topic = create(&streams, "t", 1).await;
        let partition = &topic.partitions()[0];
        for _ in 0..60 {
            append(partition, &"x".repeat(1_000)).await;
        }
        // So that none has to be written before segments go.
        streams.snapshot(1).unwrap();
        let forgotten = partition.delete_before(Some(55), |standing| {
            streams.append_once(&Change::Partition(standing), journal::Durability::Memory)
        });
        assert_eq!(forgotten.unwrap(), 55);
        assert!(streams.reclaim().unwrap() > 0, "seed {seed}");
        disk.crash_after(0);
        seeds::closed(streams);
        drop(topic);
        disk.crash();
        let streams = open(&disk);
        let topic = streams.topic_by_name(&name("t")).unwrap();
        let partition = &topic.partitions()[0];
        assert_eq!(partition.log_start_offset(), 55, "seed {seed}");
        assert_eq!(all_records(partition).len(), 5);
    }
}

#[tokio::test]
async fn a_reader_finds_what_moves_however_often() {
    let streams = open(&SimDisk::new(1));
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    append(partition, "moving").await;
    let mut looks = 0;
    let read = partition.while_moving(|| {
        looks += 1;
        // As long as somebody may free segments, it does so between looking up and reading.
        if streams.shared().freeing.try_lock().is_some() {
            let position = journal::Position(1);
            return Err(storage(JournalError::Reclaimed { position }));
        }
        partition.read(Isolation::Uncommitted, 0, 100, true)
    });
    assert_eq!((read.unwrap().len(), looks), (1, 4));
}

#[tokio::test]
async fn records_of_a_stream_expire_and_their_segments_go() {
    let disk = SimDisk::new(13);
    let config = || StreamsConfig {
        streams: vec![serde_json::from_str(r#"{"path":"/s","ttl":"1h"}"#).unwrap()],
        ..small()
    };
    let (streams, _) = try_open(&disk, config()).unwrap();
    let first = streams.shared().journal.start();
    let topic = create(&streams, "/s:t", 1).await;
    let partition = &topic.partitions()[0];
    let now = streams.clock().now();
    let made = |age: u64| {
        let timestamp = Some(now - Duration::from_secs(age * 60));
        let record = Record {
            timestamp,
            ..Record::of_value("x".repeat(1_000))
        };
        crate::batch::build(&[record], now, None).unwrap()
    };
    for age in (30..90).rev() {
        partition
            .append(made(age), Ack::All)
            .unwrap()
            .ack
            .await
            .unwrap();
    }
    let next = streams.expire().unwrap().unwrap();
    assert!(next <= Duration::from_secs(60), "{next:?}");
    // Those of 61 to 89 minutes are gone; the one of 60 may be, a moment later.
    let start = partition.log_start_offset();
    assert!((29..=30).contains(&start), "{start}");
    assert!(matches!(
        partition.read(Isolation::Uncommitted, 0, 100, true),
        Err(StreamsError::OffsetOutOfRange { end: 60, .. })
    ));
    streams.reclaim().unwrap();
    // The keeper may have been faster.
    let start_now = streams.shared().journal.start();
    assert!(start_now > first, "the journal still starts at {first}");
    streams.close().await;
    drop((streams, topic));
    let (streams, _) = try_open(&disk, config()).unwrap();
    let topic = streams.topic_by_name(&name("/s:t")).unwrap();
    let offsets = topic.info().partition_offsets[0];
    assert_eq!((offsets.start, offsets.end), (start, 60));
    assert_eq!(all_records(&topic.partitions()[0]).len() as i64, 60 - start);
    assert_eq!(topic.info().records_in_total, 60);
}

#[tokio::test]
async fn topics_follow_their_policy() {
    let config: StreamsConfig = serde_json::from_str(
        r#"{"auto_create_topics":false,"streams":[{"path":"/s","default_partitions":4}]}"#,
    )
    .unwrap();
    let (streams, _) = try_open(&SimDisk::new(9), config).unwrap();
    let made = streams.topic_or_create(&name("/s:t")).await.unwrap();
    assert_eq!(made.partitions().len(), 4);
    assert_eq!(
        made.id(),
        streams.topic_or_create(&name(".s..t")).await.unwrap().id()
    );
    let refused = streams.topic_or_create(&name("plain")).await;
    assert!(matches!(refused, Err(StreamsError::AutoCreateOff(_))));
    let refused = streams.create_topic(TopicSpec::of(name("/s:t"))).await;
    assert!(matches!(refused, Err(StreamsError::TopicExists(_))));
    let refused = streams
        .create_topic(TopicSpec::of(name("u")).with_partitions(0))
        .await;
    assert!(matches!(
        refused,
        Err(StreamsError::InvalidPartitions { partitions: 0, .. })
    ));
}

#[tokio::test]
async fn weaker_durabilities_are_acknowledged_and_read_too() {
    let streams = open(&SimDisk::new(10));
    for durability in [Durability::Memory, Durability::Os] {
        let mut spec = TopicSpec::of(name(&format!("{durability:?}")));
        spec.durability = Some(durability);
        let topic = streams.create_topic(spec).await.unwrap();
        let partition = &topic.partitions()[0];
        let notify = Arc::new(Signal::new());
        let _watch = partition.watch(&notify).unwrap();
        for ack in [Ack::None, Ack::Leader, Ack::All] {
            partition
                .append(batch_of(&["v".into()], None), ack)
                .unwrap()
                .ack
                .await
                .unwrap();
        }
        while partition.high_watermark() < 3 {
            notify.told().await;
        }
        assert_eq!(all_records(partition).len(), 3);
    }
}

#[tokio::test]
async fn the_trait_stores_once_whatever_is_retried() {
    let streams = open(&SimDisk::new(11));
    let store: Arc<dyn EventStore> = streams.store();
    store.create_topic(TopicSpec::of(name("t"))).await.unwrap();
    let producer_id = store.producer_id().await.unwrap();
    let produced = ProduceBatch {
        topic: name("t"),
        partition: 0,
        records: vec![Record::of_value("v")],
        sequence: Some(ProducerSequence {
            producer_id,
            producer_epoch: 0,
            first_sequence: 0,
        }),
    };
    let first = store.produce(produced.clone()).await.unwrap();
    assert_eq!(store.produce(produced.clone()).await.unwrap(), first);
    let info = store.topic(&name("t")).await.unwrap();
    assert_eq!(
        (info.records_in_total, info.partition_offsets[0].end),
        (1, 1)
    );
    let nowhere = ProduceBatch {
        partition: 1,
        ..produced
    };
    assert!(matches!(
        store.produce(nowhere).await,
        Err(StreamsError::UnknownPartition { partition: 1, .. })
    ));
}

#[tokio::test]
async fn a_partition_at_rest_is_small() {
    let config = StreamsConfig {
        segment_bytes: ByteSize::mib(16),
        ..StreamsConfig::default()
    };
    let (streams, _) = try_open(&SimDisk::new(12), config).unwrap();
    create(&streams, "wide", 1_000).await;
    // The rest of a partition is its entry in the topic's list and, once written to, one chunk
    // of its index (under 400 bytes).
    assert!(
        std::mem::size_of::<Partition>() <= 384,
        "{}",
        std::mem::size_of::<Partition>()
    );
}
