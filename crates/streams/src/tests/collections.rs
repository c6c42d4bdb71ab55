//! Tenants whose records move between their own topics and shared ones while everything goes on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use access::{Access, TenantChange};
use base::{Clock, SystemClock, TenantId};
use journal::SimDisk;
use serde_json::{Value, json};

use super::{all_records, create, name, open, try_open};
use crate::compaction::CompactionPolicy;
use crate::error::StreamsError;
use crate::event_store::{
    ConsumerConfig, EventStore, OffsetReset, ProduceBatch, ProducerSequence, TopicSpec,
};
use crate::record::Record;
use crate::store::Streams;
use crate::tenants::{Attempt, TenantUse};
use crate::topic_config::{ConfigChange, TopicConfig};
use crate::topics::Topic;

pub(super) struct House {
    pub(super) streams: Arc<Streams>,
    pub(super) store: Arc<dyn EventStore>,
    pub(super) access: Arc<Access>,
    pub(super) _dir: tempfile::TempDir,
}

impl House {
    pub(super) fn of(streams: Arc<Streams>) -> House {
        let dir = tempfile::tempdir().unwrap();
        let access = Arc::new(Access::open(dir.path()).unwrap());
        streams.follow_tenants(&access);
        House {
            store: streams.store(),
            streams,
            access,
            _dir: dir,
        }
    }

    pub(super) fn set(&self, tenant: &str, change: Value) {
        let change: TenantChange = serde_json::from_value(change).unwrap();
        let tenant = tenant.parse().unwrap();
        self.access.set_tenant(&tenant, &change).unwrap();
    }

    /// Wants the tenant elsewhere, and tries until it is there; answers the stalls of the attempts.
    pub(super) async fn switch(&self, tenant: &str, collection: Value) -> Duration {
        self.set(tenant, json!({"collection": collection}));
        let tenant: TenantId = tenant.parse().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match self.streams.switch(&self.access, &tenant).await.unwrap() {
                Attempt::Switched(stall) => return stall,
                Attempt::Waiting(behind) => assert!(Instant::now() < until, "{behind:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn produce(
        &self,
        topic: &str,
        partition: i32,
        values: &[&str],
        sequence: Option<ProducerSequence>,
    ) -> Result<i64, StreamsError> {
        let batch = ProduceBatch {
            topic: name(topic),
            partition,
            records: values
                .iter()
                .map(|v| Record::of_value((*v).to_owned()))
                .collect(),
            sequence,
        };
        self.store
            .produce(batch)
            .await
            .map(|placed| placed.base_offset)
    }

    /// Values and the tenants that their headers name, by topic.
    pub(super) fn stored(&self, topic: &str) -> Vec<String> {
        let topic = self.streams.topic_by_name(&name(topic)).unwrap();
        let partitions = topic.partitions().iter();
        let records = partitions.flat_map(|partition| all_records(partition));
        let text = |bytes: &bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let told = records.map(|record| {
            let of = record
                .headers
                .iter()
                .filter_map(|(_, value)| value.as_ref());
            let of: Vec<String> = of.map(text).collect();
            format!("{}{}", text(record.value.as_ref().unwrap()), of.join("+"))
        });
        told.collect()
    }

    pub(super) async fn usage(&self, tenant: &str) -> Value {
        let tenant = tenant.parse().unwrap();
        let snapshot = self.access.snapshot();
        let used = TenantUse::of(&*self.store, &snapshot, &tenant)
            .await
            .unwrap();
        json!(used)
    }
}

pub(super) const DIKU: &str = "env.ns.diku.E";
pub(super) const BETA: &str = "env.ns.beta.E";
pub(super) const ALL: &str = "env.ns.ALL.E";

#[tokio::test]
async fn records_go_where_their_tenant_has_them_and_say_whose_they_are() {
    let house = House::of(open(&SimDisk::new(1)));
    for (tenant, topic) in [("diku", DIKU), ("beta", BETA)] {
        house.set(tenant, json!({}));
        create(&house.streams, topic, 1).await;
    }
    house.produce(DIKU, 0, &["a"], None).await.unwrap();
    house.switch("diku", json!("ALL")).await;
    house.produce(DIKU, 0, &["b", "c"], None).await.unwrap();
    house.produce(BETA, 0, &["x"], None).await.unwrap();
    house.switch("beta", json!("ALL")).await;
    house.produce(BETA, 0, &["y"], None).await.unwrap();
    house.switch("diku", Value::Null).await;
    house.produce(DIKU, 0, &["d"], None).await.unwrap();
    assert_eq!(house.stored(DIKU), ["a", "d"]);
    assert_eq!(house.stored(BETA), ["x"]);
    assert_eq!(house.stored(ALL), ["bdiku", "cdiku", "ybeta"]);
    // A record that names its tenant is left as it is.
    let mut record = Record::of_value("z");
    record.headers = vec![("folio.tenantId".to_owned(), Some("beta".into()))];
    let batch = ProduceBatch {
        topic: name(BETA),
        partition: 0,
        records: vec![record],
        sequence: None,
    };
    house.store.produce(batch).await.unwrap();
    assert_eq!(house.stored(ALL)[3], "zbeta");
    // What would be stored in an own topic past the shared one is refused.
    let refused = house.streams.check_own_home(&name(BETA));
    assert!(
        matches!(refused, Err(StreamsError::Unsupported(_))),
        "{refused:?}"
    );
    house.streams.check_own_home(&name(DIKU)).unwrap();
}

#[tokio::test]
async fn what_a_tenant_has_and_how_far_groups_are_is_exact_in_a_shared_topic() {
    let house = House::of(open(&SimDisk::new(2)));
    for (tenant, topic) in [("diku", DIKU), ("beta", BETA)] {
        house.set(tenant, json!({}));
        create(&house.streams, topic, 1).await;
        house.switch(tenant, json!("ALL")).await;
    }
    for (topic, values) in [
        (DIKU, &["1", "2"][..]),
        (BETA, &["3"]),
        (DIKU, &["4"]),
        (BETA, &["5", "6", "7"]),
    ] {
        house.produce(topic, 0, values, None).await.unwrap();
    }
    // One partition, whose first three records the group has read.
    let offsets = vec![(name(ALL), 0, 3)];
    house.store.set_group_offsets("g", offsets).await.unwrap();
    let figures = |used: &Value| {
        let topic = &used["topics"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["topic"] == ALL)
            .unwrap()
            .clone();
        let behind = used["backlog"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["topic"] == ALL)
            .cloned();
        let oldest = behind.as_ref().is_some_and(|of| of["oldest_ms"].is_i64());
        let behind = behind.map(|of| of["records"].clone());
        assert_eq!(
            (&topic["is_shared"], topic["oldest_ms"].is_i64()),
            (&json!(true), true)
        );
        (
            topic["records"].clone(),
            topic["bytes"].clone(),
            behind,
            oldest,
        )
    };
    let diku = figures(&house.usage("diku").await);
    assert_eq!(diku, (json!(3), json!(3), Some(json!(1)), true));
    let beta = figures(&house.usage("beta").await);
    assert_eq!(beta, (json!(4), json!(4), Some(json!(3)), true));
    let offsets = vec![(name(ALL), 0, 7)];
    house.store.set_group_offsets("g", offsets).await.unwrap();
    let diku = figures(&house.usage("diku").await);
    assert_eq!((diku.2, diku.3), (Some(json!(0)), false));
    // What is deleted is counted no more.
    house
        .store
        .delete_records(&name(ALL), 0, Some(2))
        .await
        .unwrap();
    assert_eq!(figures(&house.usage("diku").await).0, json!(1));
}

#[tokio::test]
async fn a_switch_waits_for_groups_and_is_taken_back() {
    let house = House::of(open(&SimDisk::new(3)));
    house.set("diku", json!({}));
    create(&house.streams, DIKU, 1).await;
    house.produce(DIKU, 0, &["a", "b"], None).await.unwrap();
    house
        .store
        .set_group_offsets("slow", vec![(name(DIKU), 0, 1)])
        .await
        .unwrap();
    house.set("diku", json!({"collection": "ALL"}));
    let diku: TenantId = "diku".parse().unwrap();
    // One that takes too long to look is given up, and says nothing of groups.
    let behind = loop {
        match house.streams.switch(&house.access, &diku).await.unwrap() {
            Attempt::Waiting(behind) if behind.is_empty() => tokio::task::yield_now().await,
            Attempt::Waiting(behind) => break behind,
            other => panic!("it did not wait: {other:?}"),
        }
    };
    assert_eq!((behind[0].group.as_str(), behind[0].records), ("slow", 1));
    // Meanwhile records go where they went.
    house.produce(DIKU, 0, &["c"], None).await.unwrap();
    assert_eq!(house.stored(DIKU), ["a", "b", "c"]);
    house.set("diku", json!({"collection": null}));
    assert_eq!(house.access.snapshot().tenants()[&diku].switching_to, None);
    house
        .store
        .set_group_offsets("slow", vec![(name(DIKU), 0, 3)])
        .await
        .unwrap();
    house.switch("diku", json!("ALL")).await;
    assert_eq!(
        house.access.snapshot().tenants()[&diku]
            .collection
            .as_ref()
            .unwrap()
            .as_str(),
        "ALL"
    );
}

#[tokio::test]
async fn a_batch_that_is_sent_again_after_a_switch_is_stored_once() {
    let disk = SimDisk::new(4);
    let house = House::of(open(&disk));
    house.set("diku", json!({}));
    create(&house.streams, DIKU, 1).await;
    let id = house.store.producer_id().await.unwrap();
    let at = |first_sequence| {
        Some(ProducerSequence {
            producer_id: id,
            producer_epoch: 0,
            first_sequence,
        })
    };
    house.produce(DIKU, 0, &["a", "b"], at(0)).await.unwrap();
    house.switch("diku", json!("ALL")).await;
    // Its answer was lost: it comes again, and then the next.
    house.produce(DIKU, 0, &["a", "b"], at(0)).await.unwrap();
    house.produce(DIKU, 0, &["c"], at(2)).await.unwrap();
    house.switch("diku", Value::Null).await;
    house.produce(DIKU, 0, &["c"], at(2)).await.unwrap();
    house.produce(DIKU, 0, &["d"], at(3)).await.unwrap();
    let gap = house.produce(DIKU, 0, &["f"], at(5)).await;
    assert!(
        matches!(gap, Err(StreamsError::OutOfOrderSequence { .. })),
        "{gap:?}"
    );
    house.switch("diku", json!("ALL")).await;
    house.produce(DIKU, 0, &["d"], at(3)).await.unwrap();
    house.produce(DIKU, 0, &["e"], at(4)).await.unwrap();
    assert_eq!(house.stored(DIKU), ["a", "b", "d"]);
    assert_eq!(house.stored(ALL), ["cdiku", "ediku"]);
    // Nor is one doubled by a restart in between.
    let House {
        streams,
        access,
        _dir,
        ..
    } = house;
    streams.close().await;
    drop(streams);
    let (streams, _) = try_open(&disk, super::small()).unwrap();
    streams.follow_tenants(&access);
    let house = House {
        store: streams.store(),
        streams,
        access,
        _dir,
    };
    house.produce(DIKU, 0, &["d"], at(3)).await.unwrap();
    house.produce(DIKU, 0, &["e"], at(4)).await.unwrap();
    house.produce(DIKU, 0, &["f"], at(5)).await.unwrap();
    assert_eq!(house.stored(DIKU), ["a", "b", "d"]);
    assert_eq!(house.stored(ALL), ["cdiku", "ediku", "fdiku"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_switches_under_load_lose_double_and_reorder_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = crate::StreamsConfig::default();
    let clock = Arc::new(base::SystemClock);
    let (streams, _) = Streams::open(&dir.path().join("streams"), config, clock).unwrap();
    let house = Arc::new(House::of(streams));
    for (tenant, topic) in [("diku", DIKU), ("beta", BETA)] {
        house.set(tenant, json!({}));
        create(&house.streams, topic, 2).await;
    }
    create(&house.streams, ALL, 3).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut producers = Vec::new();
    for (topic, keys) in [(DIKU, 0..4_u64), (BETA, 10..12)] {
        let (house, is_over) = (Arc::clone(&house), Arc::clone(&is_over));
        producers.push(tokio::spawn(async move {
            let id = house.store.producer_id().await.unwrap();
            let mut next: HashMap<u64, u64> = HashMap::new();
            let mut sequences = [0_i32; 2];
            let mut slowest = Duration::ZERO;
            for turn in 0_u64.. {
                if is_over.load(Ordering::Acquire) {
                    break;
                }
                let key = keys.start + turn % (keys.end - keys.start);
                let partition = usize::try_from(key % 2).unwrap();
                let number = next.entry(key).or_default();
                let values: Vec<String> =
                    (0..3).map(|n| format!("{key}:{}", *number + n)).collect();
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                let sequence = ProducerSequence {
                    producer_id: id,
                    producer_epoch: 0,
                    first_sequence: sequences[partition],
                };
                let asked = Instant::now();
                let at = i32::try_from(partition).unwrap();
                house
                    .produce(topic, at, &values, Some(sequence))
                    .await
                    .unwrap();
                slowest = slowest.max(asked.elapsed());
                *number += 3;
                sequences[partition] += 3;
            }
            (next, slowest)
        }));
    }
    let is_reading = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let is_reading = Arc::clone(&is_reading);
        let (house, is_over) = (Arc::clone(&house), Arc::clone(&is_over));
        async move {
            let config = ConsumerConfig {
                auto_offset_reset: OffsetReset::Earliest,
                ..ConsumerConfig::in_group("readers", "test")
            };
            let mut consumer = house.store.consumer(config).await.unwrap();
            let topics = [DIKU, BETA, ALL].map(name).to_vec();
            consumer.subscribe(topics).await.unwrap();
            let mut next: HashMap<u64, u64> = HashMap::new();
            loop {
                let records = consumer
                    .poll(Duration::from_millis(500), 1 << 20)
                    .await
                    .unwrap();
                if records.is_empty() && is_over.load(Ordering::Acquire) {
                    return next;
                }
                for record in records {
                    let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                    let (key, number) = value.split_once(':').unwrap();
                    let expected = next.entry(key.parse().unwrap()).or_default();
                    assert_eq!(
                        number.parse::<u64>().unwrap(),
                        *expected,
                        "key {key} in {}",
                        record.topic
                    );
                    *expected += 1;
                }
                consumer.commit(None).await.unwrap();
                is_reading.store(true, Ordering::Release);
            }
        }
    });
    // A group that nobody knows of yet cannot be waited for.
    while !is_reading.load(Ordering::Acquire) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut stalls = Vec::new();
    for turn in 0..20 {
        let to = if turn % 2 == 0 {
            json!("ALL")
        } else {
            Value::Null
        };
        stalls.push(house.switch("diku", to).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    is_over.store(true, Ordering::Release);
    let mut sent: HashMap<u64, u64> = HashMap::new();
    for producer in producers {
        let (next, slowest) = producer.await.unwrap();
        println!("the slowest batch took {slowest:?}");
        sent.extend(next);
    }
    let read = reader.await.unwrap();
    assert_eq!(read, sent);
    let records: u64 = sent.values().sum();
    let longest = stalls.iter().max().unwrap();
    println!("{records} records; 20 switches; the longest stall was {longest:?}; all: {stalls:?}");
    assert!(*longest < Duration::from_millis(200), "{stalls:?}");
    assert!(!house.stored(ALL).is_empty() && !house.stored(DIKU).is_empty());
    house.streams.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tenants_of_ten_topics_share_few_files() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("streams");
    let config = crate::StreamsConfig {
        durability: crate::Durability::Os,
        ..crate::StreamsConfig::default()
    };
    // As a thousand changes would have left it.
    let tenants = (0..1_000).map(|n| (format!("t{n}"), json!({"collection": "ALL"})));
    let tenants: serde_json::Map<String, Value> = tenants.collect();
    let kept = json!({
        "version": 1, "users": {}, "acls": [], "quotas": [], "tenants": tenants, "collections": ["ALL"],
    });
    let folder = dir.path().join("access");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("access.json"), kept.to_string()).unwrap();
    let access = Arc::new(Access::open(&folder).unwrap());
    let clock = Arc::new(base::SystemClock);
    let (streams, _) = Streams::open(&place, config, clock).unwrap();
    streams.follow_tenants(&access);
    let house = Arc::new(House {
        store: streams.store(),
        streams,
        access,
        _dir: dir,
    });
    for event in 0..10 {
        create(&house.streams, &format!("env.ns.ALL.E{event}"), 3).await;
    }
    let mut at_work = tokio::task::JoinSet::new();
    for tenant in 0..1_000 {
        let house = Arc::clone(&house);
        at_work.spawn(async move {
            for event in 0..10 {
                let topic = format!("env.ns.t{tenant}.E{event}");
                create(&house.streams, &topic, 1).await;
                house.produce(&topic, 0, &["v"], None).await.unwrap();
            }
        });
    }
    while let Some(done) = at_work.join_next().await {
        done.unwrap();
    }
    let handles = std::fs::read_dir("/proc/self/fd").unwrap();
    let handles = handles.filter_map(|of| std::fs::read_link(of.ok()?.path()).ok());
    let opened = handles.filter(|file| file.starts_with(&place)).count();
    let files = std::fs::read_dir(&place).unwrap().count();
    println!("10,000 topics of 1,000 tenants: {files} files, {opened} handles");
    assert!(opened > 0, "handles are not to be seen");
    assert!(
        files <= 32 && opened <= 200,
        "{files} files, {opened} handles"
    );
    let shared = (0..10).flat_map(|event| house.stored(&format!("env.ns.ALL.E{event}")));
    let shared: Vec<String> = shared.collect();
    assert_eq!(shared.iter().filter(|value| *value == "vt777").count(), 10);
    assert_eq!(shared.len(), 10_000);
    assert!(house.stored("env.ns.t777.E3").is_empty());
    house.streams.close().await;
}

/// Creates a topic of one partition with these settings.
async fn with(streams: &Streams, topic: &str, set: &[(&str, &str)]) -> Arc<Topic> {
    let spec = TopicSpec {
        config: TopicConfig::of(set.iter().copied()).unwrap(),
        ..TopicSpec::of(name(topic)).with_partitions(1)
    };
    streams.create_topic(spec).await.unwrap()
}

#[tokio::test]
async fn a_key_of_one_tenant_is_not_anothers_where_a_shared_topic_is_compacted() {
    let house = House::of(open(&SimDisk::new(31)));
    for (tenant, topic) in [("diku", DIKU), ("beta", BETA)] {
        house.set(tenant, json!({}));
        with(&house.streams, topic, &[("cleanup.policy", "compact")]).await;
        house.switch(tenant, json!("ALL")).await;
    }
    for (topic, value) in [
        (DIKU, "a"),
        (DIKU, "b"),
        (BETA, "x"),
        (BETA, "y"),
        (DIKU, "c"),
    ] {
        let batch = ProduceBatch {
            topic: name(topic),
            partition: 0,
            records: vec![Record::of_value(value).with_key("k1")],
            sequence: None,
        };
        house.store.produce(batch).await.unwrap();
    }
    let shared = house.streams.topic_by_name(&name(ALL)).unwrap();
    assert!(shared.settings().is_compacting && !shared.settings().is_deleting);
    let collections = house.streams.collections();
    assert!(!collections.is_shared(&name(DIKU)));
    let policy = CompactionPolicy {
        lag_min: Duration::ZERO,
        delete_retention: Duration::ZERO,
        is_shared: collections.is_shared(&name(ALL)),
    };
    let partition = &shared.partitions()[0];
    partition.compact(SystemClock.now(), policy).unwrap();
    assert_eq!(house.stored(ALL), ["ybeta", "cdiku"]);
}

#[tokio::test]
async fn a_shared_topic_keeps_no_less_than_what_comes_to_it() {
    let house = House::of(open(&SimDisk::new(32)));
    house.set("diku", json!({}));
    let two_weeks = [("retention.ms", "1209600000")];
    with(&house.streams, DIKU, &two_weeks).await;
    let own = with(&house.streams, "env.ns.diku.F", &[("retention.ms", "-1")]).await;
    let short = with(&house.streams, ALL, &[]).await;
    house.set("diku", json!({"collection": "ALL"}));
    let diku = "diku".parse().unwrap();
    match house.streams.switch(&house.access, &diku).await {
        Err(StreamsError::KeepsLess {
            shared, setting, ..
        }) => {
            assert_eq!((&shared, setting), (short.name(), "retention.ms"));
        }
        other => panic!("{other:?}"),
    }
    let longer = [ConfigChange::Set(
        "retention.ms".to_owned(),
        "1209600000".to_owned(),
    )];
    let altered = house.streams.alter_topic(short.name(), &longer);
    altered.await.unwrap();
    house.switch("diku", json!("ALL")).await;
    let made = house.streams.topic_by_name(&name("env.ns.ALL.F")).unwrap();
    assert_eq!(made.settings().retention, own.settings().retention);
}
