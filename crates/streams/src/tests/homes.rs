//! What may go wrong where several partitions, tenants and groups meet in one shared topic.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use base::{Clock, ManualClock, SystemClock, TenantId, UnixMillis};
use bytes::Bytes;
use journal::SimDisk;
use serde_json::{Value, json};

use super::collections::{ALL, BETA, DIKU, House};
use super::{create, name, open, small, try_open};
use crate::batch::{self, BatchHeader};
use crate::config::StreamsConfig;
use crate::error::StreamsError;
use crate::event_store::{ProduceBatch, ProducerSequence};
use crate::record::Record;
use crate::store::Streams;
use crate::tenants::{Attempt, Census};
use crate::{Ack, Isolation};

/// Two tenants with these numbers of partitions of their own, who share one.
async fn two(streams: Arc<Streams>, partitions: [i32; 2]) -> House {
    let house = House::of(streams);
    create(&house.streams, ALL, 1).await;
    for (topic, partitions) in [DIKU, BETA].into_iter().zip(partitions) {
        create(&house.streams, topic, partitions).await;
    }
    house.set("diku", json!({}));
    house.set("beta", json!({}));
    house
}

/// Tries once to switch a tenant to where it is wanted.
async fn attempt(house: &House, tenant: &str, collection: Value) -> Attempt {
    house.set(tenant, json!({"collection": collection}));
    let tenant: TenantId = tenant.parse().unwrap();
    let switching = house.streams.switch(&house.access, &tenant);
    let switched = tokio::time::timeout(Duration::from_secs(30), switching).await;
    switched.expect("the switch hangs").unwrap()
}

/// Tries until the tenant is switched to where it is wanted: how long a switch waits for others is
/// counted in real time.
async fn switched(house: &House, tenant: &str, collection: Value) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match attempt(house, tenant, collection.clone()).await {
            Attempt::Switched(_) => return,
            other => assert!(Instant::now() < until, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn commit(house: &House, group: &str, offsets: &[(&str, i64)]) {
    let offsets = offsets.iter().map(|(topic, at)| (name(topic), 0, *at));
    let offsets = offsets.collect();
    house.store.set_group_offsets(group, offsets).await.unwrap();
}

#[tokio::test]
async fn one_producers_batches_for_several_partitions_are_all_stored_once() {
    let disk = SimDisk::new(21);
    let house = two(open(&disk), [3, 1]).await;
    let id = house.store.producer_id().await.unwrap();
    let at = |first_sequence| {
        Some(ProducerSequence {
            producer_id: id,
            producer_epoch: 0,
            first_sequence,
        })
    };
    let places = [(DIKU, 0), (DIKU, 1), (DIKU, 2), (BETA, 0)];
    // Each partition's batches are counted by themselves, and one partition is ahead.
    for first in 0..3 {
        house.produce(DIKU, 1, &["ahead"], at(first)).await.unwrap();
    }
    let mut sent = vec!["ahead".to_owned(); 3];
    let mut next = [0, 3, 0, 0];
    for round in 0..5 {
        for (at_place, (topic, partition)) in places.into_iter().enumerate() {
            let value = format!("{round}/{topic}/{partition}");
            for _ in 0..2 {
                // The second time as after a lost answer.
                let sequence = at(next[at_place]);
                let sent = house.produce(topic, partition, &[&value], sequence).await;
                sent.unwrap();
            }
            next[at_place] += 1;
            sent.push(value);
        }
        let to = if round % 2 == 0 {
            json!("ALL")
        } else {
            Value::Null
        };
        house.switch("diku", to.clone()).await;
        house.switch("beta", to).await;
        for (at_place, (topic, partition)) in places.into_iter().enumerate() {
            let value = format!("{round}/{topic}/{partition}");
            let again = at(next[at_place] - 1);
            house
                .produce(topic, partition, &[&value], again)
                .await
                .unwrap();
            let gap = house
                .produce(topic, partition, &["gap"], at(next[at_place] + 1))
                .await;
            assert!(
                matches!(gap, Err(StreamsError::OutOfOrderSequence { .. })),
                "{gap:?}"
            );
        }
    }
    let all = [DIKU, BETA, ALL]
        .into_iter()
        .flat_map(|topic| house.stored(topic));
    let value = |of: String| {
        of.trim_end_matches("diku")
            .trim_end_matches("beta")
            .to_owned()
    };
    let mut stored: Vec<String> = all.map(value).collect();
    stored.sort();
    sent.sort();
    assert_eq!(stored, sent);
    // Recovery knows them all.
    let House {
        streams,
        access,
        _dir,
        ..
    } = house;
    streams.close().await;
    drop(streams);
    let (streams, _) = try_open(&disk, small()).unwrap();
    streams.follow_tenants(&access);
    let before = sent.len();
    let house = House {
        store: streams.store(),
        streams,
        access,
        _dir,
    };
    for (at_place, (topic, partition)) in places.into_iter().enumerate() {
        let value = format!("4/{topic}/{partition}");
        let again = at(next[at_place] - 1);
        house
            .produce(topic, partition, &[&value], again)
            .await
            .unwrap();
    }
    let stored = [DIKU, BETA, ALL]
        .into_iter()
        .flat_map(|topic| house.stored(topic));
    assert_eq!(stored.count(), before);
}

#[tokio::test]
async fn batches_stay_packed_and_what_fits_its_own_topic_fits_the_shared_one() {
    let house = two(open(&SimDisk::new(22)), [1, 1]).await;
    house.switch("diku", json!("ALL")).await;
    let own = house.streams.topic_by_name(&name(DIKU)).unwrap();
    let own = own.partition(0).unwrap();
    let records: Vec<Record> = (0..100).map(|n| Record::of_value(format!("{n}"))).collect();
    let plain = batch::build(&records, SystemClock.now(), None).unwrap();
    let max = small().max_message_bytes.0;
    assert!(plain.len() < 1_800 && plain.len() as u64 + 100 * 24 > max);
    let mut sent = Vec::new();
    for codec in [0, 1, 2, 3, 4] {
        let batch = match codec {
            0 => plain.clone(),
            codec => batch::packed_as(&plain, codec).unwrap(),
        };
        let appended = house.streams.append_at_home(own, batch, Ack::All).unwrap();
        appended.ack.await.unwrap();
        sent.push(codec);
    }
    let shared = house.streams.topic_by_name(&name(ALL)).unwrap();
    let shared = shared.partition(0).unwrap();
    let stored = shared
        .read(Isolation::Uncommitted, 0, 1 << 20, true)
        .unwrap();
    let codec = |batch: &Bytes| BatchHeader::check_stored(batch).unwrap().codec();
    let stored: Vec<i16> = stored.iter().map(codec).collect();
    // What would have grown too large is packed.
    assert_eq!(stored, [3, 1, 2, 3, 4]);
    assert_eq!(house.stored(ALL).len(), 500);
    // What is too large for its own topic stays so.
    let large = vec![Record::of_value("x".repeat(2_100))];
    let large = batch::build(&large, SystemClock.now(), None).unwrap();
    let refused = house.streams.append_at_home(own, large, Ack::All);
    assert!(matches!(refused, Err(StreamsError::MessageTooLarge { .. })));
}

#[tokio::test]
async fn shared_topics_are_made_where_topics_are_not_made_by_themselves() {
    let config = StreamsConfig {
        auto_create_topics: false,
        ..small()
    };
    let house = House::of(try_open(&SimDisk::new(23), config).unwrap().0);
    house.set("diku", json!({}));
    create(&house.streams, DIKU, 2).await;
    switched(&house, "diku", json!("ALLTOGETHER")).await;
    let shared = house.streams.topic_by_name(&name("env.ns.ALLTOGETHER.E"));
    assert_eq!(shared.unwrap().partitions().len(), 2);
    // An event that the tenant has from now on.
    create(&house.streams, "env.ns.diku.LATE", 3).await;
    let sending = house.produce("env.ns.diku.LATE", 2, &["a"], None);
    let sent = tokio::time::timeout(Duration::from_secs(30), sending).await;
    sent.expect("a producer is held for ever").unwrap();
    assert_eq!(house.stored("env.ns.ALLTOGETHER.LATE"), ["adiku"]);
    // One whose shared topic can have no name.
    let long = format!("env.ns.diku.{}", "E".repeat(237));
    create(&house.streams, &long, 1).await;
    let sending = house.produce(&long, 0, &["a"], None);
    let sent = tokio::time::timeout(Duration::from_secs(30), sending).await;
    let sent = sent.expect("a producer is held for ever");
    assert!(
        matches!(sent, Err(StreamsError::InvalidTopic(_))),
        "{sent:?}"
    );
    // A namespace may be called as the tenant is.
    house.set("ns", json!({}));
    create(&house.streams, "env.ns.ns.E", 1).await;
    house.switch("ns", json!("ALLTOGETHER")).await;
    house.produce("env.ns.ns.E", 0, &["b"], None).await.unwrap();
    assert_eq!(house.stored("env.ns.ALLTOGETHER.E"), ["bns"]);
}

#[tokio::test]
async fn kafkas_internal_topics_are_nobodys_to_write_to() {
    let streams = open(&SimDisk::new(24));
    let internal = name("__consumer_offsets");
    streams.internal_or_create(internal.clone()).await.unwrap();
    let batch = ProduceBatch {
        topic: internal,
        partition: 0,
        records: vec![Record::of_value("x")],
        sequence: None,
    };
    let refused = streams.store().produce(batch).await;
    assert!(
        matches!(refused, Err(StreamsError::InternalTopic(_))),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_does_not_wait_for_who_reads_another_partition() {
    let house = two(open(&SimDisk::new(25)), [1, 1]).await;
    house.switch("diku", json!("ALL")).await;
    house.produce(DIKU, 0, &["a"], None).await.unwrap();
    let other = create(&house.streams, "env.ns.ALL.OTHER", 1).await;
    let census = house.streams.census_of(&other.partitions()[0]);
    let (told, is_held) = mpsc::sync_channel(1);
    let (end, until) = mpsc::sync_channel::<()>(1);
    let reading = std::thread::spawn(move || {
        let census = census.lock();
        told.send(()).unwrap();
        // Until the sender is gone.
        let _ = until.recv();
        drop(census);
    });
    is_held.recv().unwrap();
    switched(&house, "diku", Value::Null).await;
    house.produce(DIKU, 0, &["b"], None).await.unwrap();
    drop(end);
    reading.join().unwrap();
    assert_eq!(house.stored(DIKU), ["b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_whose_look_is_cut_off_tells_whom_it_waits_for() {
    let house = two(open(&SimDisk::new(31)), [1, 1]).await;
    house.switch("diku", json!("ALL")).await;
    house.produce(DIKU, 0, &["a"], None).await.unwrap();
    commit(&house, "late", &[(DIKU, 0), (ALL, 0)]).await;
    let shared = house.streams.topic_by_name(&name(ALL)).unwrap();
    let census = house.streams.census_of(&shared.partitions()[0]);
    let tenant: TenantId = "diku".parse().unwrap();
    let home = {
        let snapshot = house.access.snapshot();
        let kept = snapshot.tenants().get(&tenant).unwrap().clone();
        house.streams.collections().home(&tenant, &kept)
    };
    let (end, until) = mpsc::sync_channel::<()>(1);
    // From when batches are held on, somebody reads all of the partition.
    let reading = std::thread::spawn(move || {
        while !home.gate.read().is_held {
            std::thread::yield_now();
        }
        let census = census.lock();
        let _ = until.recv();
        drop(census);
    });
    let waiting = attempt(&house, "diku", Value::Null).await;
    drop(end);
    reading.join().unwrap();
    let Attempt::Waiting(behind) = waiting else {
        panic!("nobody was waited for");
    };
    let groups: Vec<(&str, i64)> = behind.iter().map(|it| (&*it.group, it.records)).collect();
    assert_eq!(groups, [("late", 1)]);
}

#[tokio::test]
async fn groups_that_have_not_heard_of_a_home_are_waited_for() {
    let house = two(open(&SimDisk::new(26)), [1, 1]).await;
    house.produce(DIKU, 0, &["a"], None).await.unwrap();
    house.produce(BETA, 0, &["x"], None).await.unwrap();
    house.switch("beta", json!("ALL")).await;
    house.produce(BETA, 0, &["y"], None).await.unwrap();
    // One reads the shared topic alone, one by a pattern, and has not heard of diku's own yet.
    commit(&house, "shared", &[(ALL, 1)]).await;
    commit(&house, "pattern", &[(BETA, 1), (ALL, 1)]).await;
    let waiting = attempt(&house, "diku", json!("ALL")).await;
    let Attempt::Waiting(behind) = waiting else {
        panic!("nobody was waited for");
    };
    let groups: Vec<(&str, i64)> = behind.iter().map(|it| (&*it.group, it.records)).collect();
    assert_eq!(groups, [("pattern", 1)]);
    commit(&house, "pattern", &[(DIKU, 1)]).await;
    house.switch("diku", json!("ALL")).await;
    house.produce(DIKU, 0, &["b"], None).await.unwrap();
    // Back: one of them knows the own topic alone as yet.
    commit(&house, "late", &[(DIKU, 1)]).await;
    let waiting = attempt(&house, "diku", Value::Null).await;
    let Attempt::Waiting(behind) = waiting else {
        panic!("nobody was waited for");
    };
    let groups: BTreeSet<&str> = behind.iter().map(|it| &*it.group).collect();
    assert_eq!(groups, BTreeSet::from(["late", "pattern", "shared"]));
    for group in ["late", "pattern", "shared"] {
        commit(&house, group, &[(ALL, 2)]).await;
    }
    switched(&house, "diku", Value::Null).await;
}

#[tokio::test]
async fn a_tenant_that_comes_back_begins_in_its_own_topics() {
    let house = two(open(&SimDisk::new(27)), [1, 1]).await;
    house.switch("diku", json!("ALL")).await;
    house.produce(DIKU, 0, &["a"], None).await.unwrap();
    house
        .access
        .remove_tenant(&"diku".parse().unwrap())
        .unwrap();
    house.produce(DIKU, 0, &["b"], None).await.unwrap();
    house.set("diku", json!({}));
    house.produce(DIKU, 0, &["c"], None).await.unwrap();
    house.streams.check_own_home(&name(DIKU)).unwrap();
    assert_eq!(house.stored(ALL), ["adiku"]);
    assert_eq!(house.stored(DIKU), ["b", "c"]);
    // And it may go there again.
    house.switch("diku", json!("ALL")).await;
    house.produce(DIKU, 0, &["d"], None).await.unwrap();
    assert_eq!(house.stored(ALL), ["adiku", "ddiku"]);
}

/// A record of this time, written to a shared topic in a tenant's name.
fn of(tenant: &str, value: String, time: i64) -> Record {
    let tenant = Bytes::from(tenant.to_owned());
    Record {
        headers: vec![("thalweg.tenant".to_owned(), Some(tenant))],
        timestamp: Some(UnixMillis(time)),
        ..Record::of_value(value)
    }
}

async fn write(house: &House, topic: &str, records: Vec<Record>) {
    let batch = ProduceBatch {
        topic: name(topic),
        partition: 0,
        records,
        sequence: None,
    };
    house.store.produce(batch).await.unwrap();
}

/// What is told of a tenant in the shared topic: records, bytes, the oldest's time, and the records
/// that the group is behind with the oldest's time.
async fn told(house: &House, tenant: &str) -> [Value; 5] {
    let used = house.usage(tenant).await;
    let of = |list: &str| {
        let list = used[list].as_array().unwrap();
        list.iter()
            .find(|of| of["topic"] == ALL)
            .cloned()
            .unwrap_or_default()
    };
    let (topic, behind) = (of("topics"), of("backlog"));
    let topic = ["records", "bytes", "oldest_ms"].map(|field| topic[field].clone());
    let [records, bytes, oldest] = topic;
    [
        records,
        bytes,
        oldest,
        behind["records"].clone(),
        behind["oldest_ms"].clone(),
    ]
}

#[tokio::test]
async fn figures_are_exact_when_more_tenants_take_turns_than_can_be_kept() {
    let house = two(open(&SimDisk::new(28)), [1, 1]).await;
    for tenant in ["diku", "beta"] {
        house.switch(tenant, json!("ALL")).await;
    }
    let shared = house.streams.topic_by_name(&name(ALL)).unwrap();
    let shared = &shared.partitions()[0];
    *house.streams.census_of(shared).lock() = Census::within(8);
    // Offset n is of time n from here on; diku has the even ones.
    let now = SystemClock.now().0;
    for first in (0..400).step_by(10) {
        let records = (first..first + 10).map(|at| {
            let tenant = if at % 2 == 0 { "diku" } else { "beta" };
            of(tenant, format!("{at:03}"), now + at)
        });
        write(&house, ALL, records.collect()).await;
    }
    commit(&house, "g", &[(ALL, 101)]).await;
    let figures = |[records, bytes, oldest, behind, oldest_behind]: [i64; 5]| {
        let times = [oldest, oldest_behind].map(|at| now + at);
        [records, bytes, times[0], behind, times[1]].map(|of| json!(of))
    };
    assert_eq!(told(&house, "diku").await, figures([200, 600, 0, 149, 102]));
    assert_eq!(told(&house, "beta").await, figures([200, 600, 1, 150, 101]));
    // The first 60 go by the topic's own bounds, and all of beta's up to 300 by its own.
    let deleted = house.store.delete_records(&name(ALL), 0, Some(60)).await;
    deleted.unwrap();
    assert_eq!(
        told(&house, "diku").await,
        figures([170, 510, 60, 149, 102])
    );
    let (all, beta) = (name(ALL), "beta".parse().unwrap());
    let purged = house
        .store
        .purge_tenant(&all, &beta, Some(UnixMillis(now + 300)));
    assert_eq!(purged.await.unwrap(), Some(120));
    assert_eq!(told(&house, "beta").await, figures([50, 150, 301, 50, 301]));
    assert_eq!(
        told(&house, "diku").await,
        figures([170, 510, 60, 149, 102])
    );
    write(&house, ALL, vec![of("beta", "new".to_owned(), now + 500)]).await;
    assert_eq!(told(&house, "beta").await, figures([51, 153, 301, 51, 301]));
    // Counted anew it is the same.
    *house.streams.census_of(shared).lock() = Census::default();
    assert_eq!(told(&house, "beta").await, figures([51, 153, 301, 51, 301]));
    assert_eq!(
        told(&house, "diku").await,
        figures([170, 510, 60, 149, 102])
    );
}

#[tokio::test]
async fn a_batch_that_cannot_be_read_is_nobodys_and_stops_no_count() {
    let house = two(open(&SimDisk::new(29)), [1, 1]).await;
    house.switch("diku", json!("ALL")).await;
    house.produce(DIKU, 0, &["abc"], None).await.unwrap();
    let shared = house.streams.topic_by_name(&name(ALL)).unwrap();
    let shared = &shared.partitions()[0];
    // Whole by its checksum, while its record claims to be longer than it is.
    let now = SystemClock.now();
    let records = [of("diku", "x".repeat(9), now.0)];
    let mut broken = batch::build(&records, now, None).unwrap().to_vec();
    broken[batch::HEADER_BYTES] = 0x7e;
    batch::seal(&mut broken);
    let appended = shared.append(broken.into(), Ack::All).unwrap();
    appended.ack.await.unwrap();
    house.produce(DIKU, 0, &["def"], None).await.unwrap();
    assert_eq!(told(&house, "diku").await[..2], [json!(2), json!(6)]);
    let diku = "diku".parse().unwrap();
    let purged = house.store.purge_tenant(&name(ALL), &diku, None).await;
    assert_eq!(purged.unwrap(), Some(2));
    assert_eq!(told(&house, "diku").await[0], Value::Null);
}

#[tokio::test]
async fn many_tenants_records_grow_too_old_in_one_pass() {
    let clock = Arc::new(ManualClock::at(UnixMillis(1_000_000)));
    let disk = Arc::new(SimDisk::new(30));
    let path = std::path::Path::new("/streams");
    let (streams, _) = Streams::open_on(disk, path, small(), clock).unwrap();
    let house = two(streams, [1, 1]).await;
    for tenant in ["diku", "beta"] {
        house.switch(tenant, json!("ALL")).await;
    }
    let tenants: Vec<String> = (0..20).map(|n| format!("t{n}")).collect();
    for tenant in &tenants {
        house.set(tenant, json!({"retention_ms": 50_000}));
    }
    create(&house.streams, "env.ns.ALL.A", 1).await;
    let times = [900_000, 900_000, 999_000];
    for time in times {
        let mut records: Vec<Record> = tenants
            .iter()
            .map(|tenant| of(tenant, "v".to_owned(), time))
            .collect();
        records.push(of("diku", "stays".to_owned(), time));
        write(&house, ALL, records).await;
    }
    write(&house, "env.ns.ALL.A", vec![of("t1", "v".to_owned(), 1)]).await;
    // The first of the topics cannot be looked at: the others can.
    let refused = house.streams.topic_by_name(&name("env.ns.ALL.A")).unwrap();
    *house.streams.census_of(&refused.partitions()[0]).lock() = Census::within(0);
    let (stored, before) = (
        house.streams.topic_by_name(&name(ALL)).unwrap(),
        house.streams.shared().journal.end(),
    );
    let bytes = stored.partitions()[0].bytes_stored();
    let failed = house.streams.expire_tenants();
    assert!(
        matches!(failed, Err(StreamsError::Limit { .. })),
        "{failed:?}"
    );
    let written = house.streams.shared().journal.end().0 - before.0;
    let stays = house.stored(ALL).into_iter().filter(|of| of == "staysdiku");
    assert_eq!(stays.count(), 3);
    assert_eq!(house.stored(ALL).len(), 2 + 21);
    // Batches are written anew once and not for each tenant, and so is what the store knows.
    let most = 2 * (bytes + house.streams.snapshot_bytes()) + 4_096;
    assert!(written < most, "{written} bytes were written for {bytes}");
}
