//! One tenant's records in a topic that several share: they go, grow too old and are shown alone.

use std::sync::Arc;
use std::time::Duration;

use access::{Policy, Principal};
use base::{Clock, ManualClock, SystemClock, UnixMillis};
use bytes::Bytes;
use journal::SimDisk;
use serde_json::json;

use super::collections::{ALL, BETA, DIKU, House};
use super::{append, committed, create, name, open, small, try_open};
use crate::caller::{Caller, as_caller};
use crate::error::StreamsError;
use crate::event_store::{ConsumerConfig, EventStore, ProduceBatch, ProducerSequence, TopicSpec};
use crate::record::Record;
use crate::store::Streams;
use crate::tenants::Purge;
use crate::topic_config::TopicConfig;

/// Two tenants that share a topic of one partition.
async fn two(streams: Arc<Streams>) -> House {
    let house = House::of(streams);
    for (tenant, topic) in [("diku", DIKU), ("beta", BETA)] {
        house.set(tenant, json!({}));
        create(&house.streams, topic, 1).await;
        house.switch(tenant, json!("ALL")).await;
    }
    house
}

async fn purge(house: &House, tenant: &str, before: Option<UnixMillis>) -> Purge {
    let snapshot = house.access.snapshot();
    let tenant = tenant.parse().unwrap();
    let purged = Purge::of(&*house.store, &snapshot, &tenant, before).await;
    purged.unwrap()
}

fn gone(records: u64) -> Purge {
    Purge {
        records,
        kept: Vec::new(),
    }
}

async fn told(house: &House, tenant: &str) -> (u64, u64) {
    let used = house.usage(tenant).await;
    let topics = used["topics"].as_array().unwrap();
    let shared = topics.iter().find(|topic| topic["topic"] == ALL);
    shared.map_or((0, 0), |topic| {
        let number = |name: &str| topic[name].as_u64().unwrap();
        (number("records"), number("bytes"))
    })
}

/// What counts for the quotas of both.
async fn stored_bytes(house: &House) -> [(&'static str, u64); 2] {
    let snapshot = house.access.snapshot();
    let stored = crate::tenants::stored_bytes(&*house.store, &snapshot).await;
    let stored = stored.unwrap();
    ["beta", "diku"].map(|name| (name, stored[&name.parse().unwrap()]))
}

/// A record of this time, written to the shared topic in a tenant's name.
async fn at(house: &House, of: &[(&str, &str, i64)]) {
    let record = |(tenant, value, time): &(&str, &str, i64)| Record {
        headers: vec![(
            "thalweg.tenant".to_owned(),
            Some(Bytes::from((*tenant).to_owned())),
        )],
        timestamp: Some(UnixMillis(*time)),
        ..Record::of_value((*value).to_owned())
    };
    let batch = ProduceBatch {
        topic: name(ALL),
        partition: 0,
        records: of.iter().map(record).collect(),
        sequence: None,
    };
    house.store.produce(batch).await.unwrap();
}

#[tokio::test]
async fn a_tenants_records_go_and_others_stay_where_they_are() {
    let disk = SimDisk::new(11);
    let house = two(open(&disk)).await;
    let id = house.store.producer_id().await.unwrap();
    let sequence = |first_sequence| {
        Some(ProducerSequence {
            producer_id: id,
            producer_epoch: 0,
            first_sequence,
        })
    };
    for (topic, values) in [(DIKU, &["1", "2"][..]), (BETA, &["3"]), (DIKU, &["4"])] {
        house.produce(topic, 0, values, None).await.unwrap();
    }
    // Of both in one batch, as a service writes.
    at(
        &house,
        &[("beta", "5", 9), ("diku", "6", 9), ("beta", "7", 9)],
    )
    .await;
    house.produce(DIKU, 0, &["8"], sequence(0)).await.unwrap();
    assert_eq!(told(&house, "diku").await, (5, 5));
    assert_eq!(stored_bytes(&house).await, [("beta", 3), ("diku", 5)]);
    let purged = purge(&house, "diku", None).await;
    assert_eq!(house.stored(ALL), ["3beta", "5beta", "7beta"]);
    assert_eq!(purged, gone(5));
    assert_eq!(told(&house, "diku").await, (0, 0));
    assert_eq!(told(&house, "beta").await, (3, 3));
    assert_eq!(stored_bytes(&house).await, [("beta", 3), ("diku", 0)]);
    assert_eq!(purge(&house, "diku", None).await, gone(0));
    // Offsets go on, and a batch that comes again is still known.
    let again = house.produce(DIKU, 0, &["8"], sequence(0)).await.unwrap();
    assert_eq!(again, 7);
    let next = house.produce(DIKU, 0, &["9"], sequence(1)).await.unwrap();
    assert_eq!(next, 8);
    assert_eq!(house.stored(ALL), ["3beta", "5beta", "7beta", "9diku"]);
    assert_eq!(told(&house, "diku").await, (1, 1));
    // What was purged does not come back, whatever crashes.
    let House { access, _dir, .. } = house;
    disk.crash();
    let (streams, _) = try_open(&disk, small()).unwrap();
    streams.follow_tenants(&access);
    let house = House {
        store: streams.store(),
        streams,
        access,
        _dir,
    };
    let stored = house.stored(ALL);
    assert_eq!(stored[..3], ["3beta", "5beta", "7beta"], "{stored:?}");
    assert!(stored.len() <= 4, "{stored:?}");
    assert_eq!(told(&house, "beta").await, (3, 3));
}

#[tokio::test]
async fn own_topics_are_emptied_too() {
    let house = House::of(open(&SimDisk::new(12)));
    house.set("diku", json!({}));
    house.set("beta", json!({}));
    for topic in [DIKU, BETA] {
        create(&house.streams, topic, 1).await;
        house.produce(topic, 0, &["a", "b"], None).await.unwrap();
    }
    let mut compacted = TopicSpec::of(name("env.ns.diku.STATE"));
    compacted.config = TopicConfig::of([("cleanup.policy", "compact")]).unwrap();
    house.streams.create_topic(compacted).await.unwrap();
    let purged = purge(&house, "diku", None).await;
    assert_eq!(
        (purged.records, purged.kept),
        (2, vec!["env.ns.diku.STATE".to_owned()])
    );
    assert_eq!(house.stored(DIKU), Vec::<String>::new());
    assert_eq!(house.stored(BETA), ["a", "b"]);
}

#[tokio::test]
async fn what_is_too_old_goes_by_the_tenants_own_time() {
    let clock = Arc::new(ManualClock::at(UnixMillis(1_000_000)));
    let disk = Arc::new(SimDisk::new(13));
    let path = std::path::Path::new("/streams");
    let (streams, _) = Streams::open_on(disk, path, small(), clock.clone()).unwrap();
    let house = two(streams).await;
    at(&house, &[("diku", "a", 900_000), ("beta", "b", 900_000)]).await;
    at(&house, &[("diku", "c", 999_000), ("beta", "d", 999_000)]).await;
    at(&house, &[("beta", "e", 999_000)]).await;
    assert_eq!(house.streams.expire_tenants().unwrap(), None);
    house.set("diku", json!({"retention_ms": 50_000}));
    let next = house.streams.expire_tenants().unwrap();
    assert_eq!(next, Some(Duration::from_millis(2_500)));
    assert_eq!(house.stored(ALL), ["bbeta", "cdiku", "dbeta", "ebeta"]);
    assert_eq!(told(&house, "diku").await, (1, 1));
    clock.advance(Duration::from_secs(60));
    house.streams.expire_tenants().unwrap();
    assert_eq!(house.stored(ALL), ["bbeta", "dbeta", "ebeta"]);
    assert_eq!(told(&house, "diku").await, (0, 0));
    assert_eq!(clock.now(), UnixMillis(1_060_000));
}

#[tokio::test]
async fn a_member_reads_its_own_tenants_records_alone() {
    let house = two(open(&SimDisk::new(14))).await;
    let (theirs, ours) = (Principal::user("beta/bob"), Principal::user("diku/ann"));
    house.produce(BETA, 0, &["theirs"], None).await.unwrap();
    at(
        &house,
        &[("beta", "x", 1), ("diku", "ours", 1), ("", "nobody's", 1)],
    )
    .await;
    house.produce(BETA, 0, &["theirs"], None).await.unwrap();
    let policy = Arc::new(Policy {
        allow_if_no_acl: true,
        super_users: Vec::new(),
    });
    let store_of = |principal: Principal| {
        let caller = Caller::new(house.access.clone(), policy.clone(), principal, "::1");
        as_caller(house.store.clone(), caller)
    };
    let read = async |store: Arc<dyn EventStore>| {
        let alone = ConsumerConfig::alone("reader");
        let mut consumer = store.consumer(alone).await.unwrap();
        consumer.assign(vec![(name(ALL), 0)]).await.unwrap();
        let mut values = Vec::new();
        while consumer.position(&name(ALL), 0).is_none_or(|at| at < 5) {
            let wait = Duration::from_millis(10);
            let records = consumer.poll(wait, 1 << 20).await.unwrap();
            let text = |value: &Bytes| String::from_utf8(value.to_vec()).unwrap();
            values.extend(records.iter().map(|of| text(of.value.as_ref().unwrap())));
        }
        values
    };
    assert_eq!(read(store_of(ours.clone())).await, ["ours"]);
    assert_eq!(read(store_of(theirs)).await, ["theirs", "x", "theirs"]);
    assert_eq!(read(store_of(Principal::user("service"))).await.len(), 5);
    // Nor does a backup show more.
    let backup = store_of(ours.clone()).back_up(&name(ALL), false).await;
    assert!(
        matches!(backup, Err(StreamsError::NotAllowed { .. })),
        "a member backs up everybody's records"
    );
    let deleted = store_of(ours).delete_records(&name(ALL), 0, None).await;
    assert!(matches!(deleted, Err(StreamsError::NotAllowed { .. })));
}

#[tokio::test]
async fn what_is_young_stays_behind_the_markers_of_many_transactions() {
    let house = House::of(open(&SimDisk::new(16)));
    house.set("diku", json!({}));
    let topic = create(&house.streams, DIKU, 1).await;
    let partition = &topic.partitions()[0];
    let ago = |seconds| SystemClock.now() - Duration::from_secs(seconds);
    committed(partition, 300, ago(3_000), ago(2_000)).await;
    append(partition, "young").await;
    let purged = purge(&house, "diku", Some(ago(2_500))).await;
    assert_eq!((purged, partition.log_start_offset()), (gone(1), 1));
}
