//! What the other crates rely on, call by call, whatever store is behind the trait.
//!
//! The module that includes this file says which one, by its function `world`.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base::{Clock, SystemClock, UnixMillis};
use streams::{
    ConfigChange, ConsumedRecord, Consumer, ConsumerConfig, EventStore, Isolation, OffsetReset,
    Placed, ProduceBatch, ProducerSequence, Record, SeekTo, StreamsError, TopicConfig, TopicName,
    TopicSpec,
};
use tokio::time::Instant;

use super::world;

#[path = "cases/consumers.rs"]
mod consumers;
#[path = "cases/once.rs"]
mod once;
#[path = "cases/tenants.rs"]
mod tenants;

/// A store, and names in it that no other test uses.
pub struct World {
    store: Arc<dyn EventStore>,
    run: String,
    /// What has to outlive the store.
    _kept: Box<dyn Any + Send + Sync>,
}

impl World {
    /// A world on `store`.
    pub fn new(store: Arc<dyn EventStore>, kept: Box<dyn Any + Send + Sync>) -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        World {
            store,
            run: format!("b{}-{nth}", std::process::id()),
            _kept: kept,
        }
    }

    fn topic(&self, name: &str) -> TopicName {
        format!("{name}-{}", self.run).parse().unwrap()
    }

    fn group(&self) -> String {
        format!("g-{}", self.run)
    }

    async fn created(&self, name: &str, partitions: i32) -> TopicName {
        let topic = self.topic(name);
        let spec = TopicSpec::of(topic.clone()).with_partitions(partitions);
        let info = self.store.create_topic(spec).await.unwrap();
        assert_eq!((&info.name, info.partitions), (&topic, partitions));
        topic
    }

    async fn produce(&self, topic: &TopicName, partition: i32, values: &[&str]) -> i64 {
        let records = values
            .iter()
            .map(|value| Record::of_value(value.to_string()));
        let batch = ProduceBatch {
            topic: topic.clone(),
            partition,
            records: records.collect(),
            sequence: None,
        };
        let placed = self.store.produce(batch).await.unwrap();
        assert_eq!(placed.partition, partition);
        placed.base_offset
    }

    /// Stores a numbered batch, and again as long as the store is not there: a young cluster may
    /// not know yet who coordinates.
    async fn numbered(&self, batch: impl Fn() -> ProduceBatch) -> Placed {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.store.produce(batch()).await {
                Err(StreamsError::Unavailable(reason)) => {
                    assert!(Instant::now() < deadline, "still unavailable: {reason}");
                }
                outcome => return outcome.unwrap(),
            }
        }
    }

    async fn assigned(&self, topic: &TopicName) -> Box<dyn Consumer> {
        let config = ConsumerConfig {
            isolation: Isolation::Committed,
            ..ConsumerConfig::alone("test")
        };
        let mut consumer = self.store.consumer(config).await.unwrap();
        consumer.assign(vec![(topic.clone(), 0)]).await.unwrap();
        consumer
    }

    async fn member(&self) -> Box<dyn Consumer> {
        let config = ConsumerConfig::in_group(self.group(), "test");
        self.store.consumer(config).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_made_told_and_deleted() {
    let world = world().await;
    let topic = world.created("t", 3).await;
    let spec = TopicSpec::of(topic.clone());
    let refused = world.store.create_topic(spec).await;
    assert!(
        matches!(refused, Err(StreamsError::TopicExists(_))),
        "{refused:?}"
    );
    for partitions in [0, -1] {
        let spec = TopicSpec::of(world.topic("none")).with_partitions(partitions);
        let refused = world.store.create_topic(spec).await;
        assert!(
            matches!(refused, Err(StreamsError::InvalidPartitions { .. })),
            "{refused:?}"
        );
    }
    let all = world.store.topics().await.unwrap();
    assert!(
        all.iter()
            .any(|info| info.name == topic && info.partitions == 3)
    );
    assert!(!all.iter().any(|info| info.name.is_internal()));
    world.store.create_partitions(&topic, 5).await.unwrap();
    assert_eq!(world.store.topic(&topic).await.unwrap().partitions, 5);
    let refused = world.store.create_partitions(&topic, 4).await;
    assert!(matches!(
        refused,
        Err(StreamsError::PartitionsOnlyGrow { now: 5, .. })
    ));
    world.produce(&topic, 4, &["in a new partition"]).await;
    world.store.delete_topic(&topic).await.unwrap();
    for refused in [
        world.store.topic(&topic).await.map(drop),
        world.store.delete_topic(&topic).await,
        world.store.create_partitions(&topic, 9).await,
    ] {
        assert!(
            matches!(refused, Err(StreamsError::UnknownTopic(_))),
            "{refused:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streams_topic_is_one_under_both_its_names() {
    let world = world().await;
    let path: TopicName = format!("/streams/{}:t_1", world.run).parse().unwrap();
    let info = world.store.topic_or_create(&path).await.unwrap();
    assert_eq!(info.name.display(), path.display());
    assert_eq!(world.store.partitions_or_create(&path).await.unwrap(), 1);
    world.produce(&path, 0, &["v"]).await;
    let alias: TopicName = path.wire_name().parse().unwrap();
    let again = world.store.topic_or_create(&alias).await.unwrap();
    assert_eq!(
        (again.name.display(), again.records_in_total),
        (path.display(), 1)
    );
    let settings = world.store.topic_settings(&alias).await.unwrap();
    let retention = settings
        .iter()
        .find(|setting| setting.name == "retention.ms");
    assert_eq!(retention.unwrap().value, "604800000");
    let mut consumer = world.assigned(&alias).await;
    let records = poll_many(&mut consumer, 1).await;
    assert_eq!(records[0].topic.display(), path.display());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_and_what_lies_on_them_are_told() {
    let world = world().await;
    let store = &world.store;
    let topic = world.created("t", 2).await;
    let id = store.cluster().await.unwrap().brokers[0].id;
    let lying = &store.replicas(Some(&topic)).await.unwrap()[&topic];
    assert_eq!(lying.len(), 2);
    for lies in lying {
        assert_eq!(lies.leader, Some(id));
        assert_eq!((&lies.replicas, &lies.in_sync), (&vec![id], &vec![id]));
    }
    assert_eq!(store.replicas(None).await.unwrap()[&topic], *lying);
    let gone = store.replicas(Some(&world.topic("gone"))).await;
    assert!(
        matches!(gone, Err(StreamsError::UnknownTopic(_))),
        "{gone:?}"
    );

    let settings = store.broker_settings(Some(id)).await.unwrap();
    let own = settings.iter().find(|setting| setting.name == "node.id");
    let own = own.unwrap();
    assert_eq!(own.value.as_deref(), Some(&*id.to_string()));
    assert!(own.is_read_only && !own.is_sensitive, "{own:?}");
    let change = ConfigChange::Set("node.id".to_owned(), "9".to_owned());
    let refused = store.alter_broker(Some(id), vec![change], false).await;
    assert!(
        matches!(&refused, Err(StreamsError::ReadOnlySetting(name)) if name == "node.id"),
        "{refused:?}"
    );
    let nobody = store.broker_settings(Some(id + 1)).await;
    assert!(
        matches!(nobody, Err(StreamsError::UnknownBroker(_))),
        "{nobody:?}"
    );
    let nobody = store.alter_broker(Some(id + 1), Vec::new(), true).await;
    assert!(
        matches!(nobody, Err(StreamsError::UnknownBroker(_))),
        "{nobody:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_changed_all_or_none() {
    let world = world().await;
    let topic = world.topic("t");
    let asked = [("retention.ms", "100000"), ("thalweg.durability", "disk")];
    let spec = TopicSpec {
        config: TopicConfig::of(asked).unwrap(),
        ..TopicSpec::of(topic.clone())
    };
    world.store.create_topic(spec).await.unwrap();
    let value = |name: &'static str| {
        let (store, topic) = (world.store.clone(), topic.clone());
        async move {
            let settings = store.topic_settings(&topic).await.unwrap();
            let found = settings.into_iter().find(|setting| setting.name == name);
            found
                .map(|setting| (setting.value, setting.is_set))
                .unwrap()
        }
    };
    assert_eq!(value("retention.ms").await, ("100000".to_owned(), true));
    assert_eq!(value("thalweg.durability").await.0, "disk");
    let set = |name: &str, value: &str| ConfigChange::Set(name.to_owned(), value.to_owned());
    let append = ConfigChange::Append("cleanup.policy".to_owned(), "compact".to_owned());
    let changes = vec![set("delete.retention.ms", "7"), append];
    world.store.alter_topic(&topic, changes).await.unwrap();
    let unset = ConfigChange::Unset("retention.ms".to_owned());
    let refused = world
        .store
        .alter_topic(&topic, vec![unset.clone(), set("no.such", "1")])
        .await;
    assert!(
        matches!(refused, Err(StreamsError::InvalidConfig(_))),
        "{refused:?}"
    );
    eventually("the change is seen", || async {
        value("delete.retention.ms").await == ("7".to_owned(), true)
            && value("retention.ms").await == ("100000".to_owned(), true)
    })
    .await;
    assert!(value("cleanup.policy").await.0.contains("compact"));
    world.store.alter_topic(&topic, vec![unset]).await.unwrap();
    eventually("the default holds again", || async {
        value("retention.ms").await == ("604800000".to_owned(), false)
    })
    .await;
    assert_eq!(value("thalweg.durability").await.0, "disk");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_come_back_as_they_were_produced() {
    let world = world().await;
    let topic = world.created("t", 1).await;
    let now = SystemClock.now();
    let records = vec![
        Record::default(),
        Record::of_value("").with_key(""),
        Record {
            key: Some(vec![0, 255].into()),
            value: Some(vec![7; 100_000].into()),
            headers: vec![
                ("h".to_owned(), Some("1".into())),
                ("h".to_owned(), None),
                ("e".to_owned(), Some("".into())),
            ],
            timestamp: Some(UnixMillis(now.0 - 5_000)),
        },
    ];
    let batch = ProduceBatch {
        topic: topic.clone(),
        partition: 0,
        records: records.clone(),
        sequence: None,
    };
    assert_eq!(world.store.produce(batch).await.unwrap().base_offset, 0);
    assert_eq!(world.produce(&topic, 0, &["a", "b"]).await, 3);
    let mut consumer = world.assigned(&topic).await;
    let read = poll_many(&mut consumer, 5).await;
    for (offset, (read, sent)) in read.iter().zip(&records).enumerate() {
        assert_eq!((read.offset, read.partition), (offset as i64, 0));
        assert_eq!((&read.key, &read.value), (&sent.key, &sent.value));
        assert_eq!(read.headers, sent.headers);
        let at = sent.timestamp.unwrap_or(now);
        assert!((read.timestamp.0 - at.0).abs() < 120_000);
        assert!(sent.timestamp.is_none() || read.timestamp == at);
    }
    assert_eq!(texts(&read[3..]), ["a", "b"]);
    let info = world.store.topic(&topic).await.unwrap();
    assert_eq!(
        (
            info.partition_offsets[0].start,
            info.partition_offsets[0].end
        ),
        (0, 5)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_stored_is_told_in_the_stores_words() {
    let world = world().await;
    let topic = world.created("t", 1).await;
    let batch = |topic: &TopicName, partition, value: String| ProduceBatch {
        topic: topic.clone(),
        partition,
        records: vec![Record::of_value(value)],
        sequence: None,
    };
    let nowhere = world.topic("nowhere");
    let refused = world.store.produce(batch(&nowhere, 0, "v".into())).await;
    assert!(
        matches!(refused, Err(StreamsError::UnknownTopic(_))),
        "{refused:?}"
    );
    let refused = world.store.produce(batch(&topic, 1, "v".into())).await;
    assert!(
        matches!(
            refused,
            Err(StreamsError::UnknownPartition { partition: 1, .. })
        ),
        "{refused:?}"
    );
    let refused = world
        .store
        .produce(batch(&topic, 0, "x".repeat(2 << 20)))
        .await;
    assert!(
        matches!(refused, Err(StreamsError::MessageTooLarge { .. })),
        "{refused:?}"
    );
    assert_eq!(world.produce(&topic, 0, &["v"]).await, 0);
    let mut consumer = world
        .store
        .consumer(ConsumerConfig::alone("c"))
        .await
        .unwrap();
    let refused = consumer.assign(vec![(nowhere, 0)]).await;
    assert!(
        matches!(refused, Err(StreamsError::UnknownTopic(_))),
        "{refused:?}"
    );
    let refused = consumer.subscribe(vec![topic.clone()]).await;
    assert!(
        matches!(refused, Err(StreamsError::IllegalState(_))),
        "{refused:?}"
    );
    consumer.assign(vec![(topic, 0)]).await.unwrap();
    let refused = consumer.commit(None).await;
    assert!(
        matches!(refused, Err(StreamsError::IllegalState(_))),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_producers_at_once_get_each_its_own_offsets() {
    let batches = (0..50).map(|producer| {
        let texts = (0..3).map(|nth| format!("{producer}-{nth}"));
        (producer % 2, texts.collect())
    });
    all_at_once(batches.collect()).await;
}

/// Of more than one batch of Kafka's takes: lone records, and where batches of several stand among
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_records_at_once_get_each_its_own_offsets() {
    let large = |name: String| format!("{name} {}", "x".repeat(60_000));
    let batches = (0..60).map(|producer| {
        let count = if producer % 20 == 1 { 3 } else { 1 };
        let texts = (0..count).map(|nth| large(format!("{producer}-{nth}")));
        (producer % 2, texts.collect())
    });
    all_at_once(batches.collect()).await;
}

/// Many at once, so that a store that writes several batches at a time does; each producer waits for
/// its answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_after_an_answer_is_stored_behind_it() {
    let world = world().await;
    let topic = world.created("t", 1).await;
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let (store, topic) = (world.store.clone(), topic.clone());
        producers.spawn(async move {
            let mut offsets = Vec::new();
            for _ in 0..6 {
                let records = vec![Record::of_value("x".repeat(100)); 300];
                let batch = ProduceBatch {
                    topic: topic.clone(),
                    partition: 0,
                    records,
                    sequence: None,
                };
                offsets.push(store.produce(batch).await.unwrap().base_offset);
            }
            offsets
        });
    }
    let mut all = Vec::new();
    for offsets in producers.join_all().await {
        assert!(offsets.is_sorted(), "{offsets:?}");
        all.extend(offsets);
    }
    all.sort_unstable();
    let expected: Vec<i64> = (0..24 * 6).map(|nth| nth * 300).collect();
    assert_eq!(all, expected, "each batch has offsets of its own");
}

/// Produces batches of texts, each for a partition of two, and reads each where it was said to be.
async fn all_at_once(batches: Vec<(i32, Vec<String>)>) {
    let world = world().await;
    let topic = world.created("t", 2).await;
    let records: usize = batches.iter().map(|(_, texts)| texts.len()).sum();
    let mut producers = tokio::task::JoinSet::new();
    for (partition, texts) in batches {
        let (store, topic) = (world.store.clone(), topic.clone());
        producers.spawn(async move {
            let records = texts.iter().map(|text| Record::of_value(text.clone()));
            let batch = ProduceBatch {
                topic,
                partition,
                records: records.collect(),
                sequence: None,
            };
            (store.produce(batch).await.unwrap(), texts)
        });
    }
    let placed = producers.join_all().await;
    let mut consumer = world
        .store
        .consumer(ConsumerConfig::alone("c"))
        .await
        .unwrap();
    let both = vec![(topic.clone(), 0), (topic.clone(), 1)];
    consumer.assign(both).await.unwrap();
    let read = poll_many(&mut consumer, records).await;
    for (placed, texts) in placed {
        for (nth, text) in texts.iter().enumerate() {
            let at = (placed.partition, placed.base_offset + nth as i64);
            let found = read
                .iter()
                .find(|record| (record.partition, record.offset) == at);
            assert_eq!(found.unwrap().value.as_ref().unwrap(), text.as_bytes());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_numbered_batch_is_stored_once_whatever_is_retried() {
    let world = world().await;
    let topic = world.created("t", 2).await;
    let producer_id = world.store.producer_id().await.unwrap();
    assert_ne!(world.store.producer_id().await.unwrap(), producer_id);
    let numbered = |partition, epoch, first: i32, values: &[&str]| ProduceBatch {
        topic: topic.clone(),
        partition,
        records: values
            .iter()
            .map(|value| Record::of_value(value.to_string()))
            .collect(),
        sequence: Some(ProducerSequence {
            producer_id,
            producer_epoch: epoch,
            first_sequence: first,
        }),
    };
    let first = world.numbered(|| numbered(0, 0, 0, &["a", "b"])).await;
    let second = world.numbered(|| numbered(0, 0, 2, &["c"])).await;
    assert!(second.base_offset > first.base_offset + 1);
    for _ in 0..2 {
        let again = world.numbered(|| numbered(0, 0, 0, &["a", "b"])).await;
        assert_eq!(again, first);
        let again = world.numbered(|| numbered(0, 0, 2, &["c"])).await;
        assert_eq!(again, second);
    }
    let refused = world.store.produce(numbered(0, 0, 9, &["z"])).await;
    assert!(
        matches!(
            refused,
            Err(StreamsError::OutOfOrderSequence {
                got: 9,
                expected: 3,
                ..
            })
        ),
        "{refused:?}"
    );
    // Each partition counts for itself, and a newer epoch fences the older.
    world.numbered(|| numbered(1, 0, 0, &["p"])).await;
    world.numbered(|| numbered(0, 1, 0, &["d"])).await;
    let refused = world.store.produce(numbered(0, 0, 3, &["z"])).await;
    assert!(
        matches!(
            refused,
            Err(StreamsError::InvalidProducerEpoch { current: 1, .. })
        ),
        "{refused:?}"
    );
    let mut consumer = world.assigned(&topic).await;
    assert_eq!(
        texts(&poll_many(&mut consumer, 4).await),
        ["a", "b", "c", "d"]
    );
    assert!(
        consumer
            .poll(Duration::from_millis(300), 1_000)
            .await
            .unwrap()
            .is_empty()
    );
    let groups = world.store.groups().await.unwrap();
    assert!(
        !groups.iter().any(|group| group.group.contains("thalweg.")),
        "{groups:?}"
    );
}

/// Polls until `count` records came.
async fn poll_many(consumer: &mut Box<dyn Consumer>, count: usize) -> Vec<ConsumedRecord> {
    let mut records = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while records.len() < count {
        assert!(
            Instant::now() < deadline,
            "only {} of {count} records came",
            records.len()
        );
        records.extend(
            consumer
                .poll(Duration::from_secs(1), 1 << 20)
                .await
                .unwrap(),
        );
    }
    records
}

/// Looks at a condition until it holds.
async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn texts(records: &[ConsumedRecord]) -> Vec<String> {
    let text = |record: &ConsumedRecord| {
        String::from_utf8(record.value.clone().unwrap_or_default().to_vec()).unwrap()
    };
    records.iter().map(text).collect()
}

/// Generous, as the machine may be slow and a cluster's first group takes seconds.
const PATIENCE: Duration = Duration::from_secs(90);
