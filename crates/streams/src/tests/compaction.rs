//! Compaction against the plain meaning of it: a reader ends with the last value of each key.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Clock, Rng, SystemClock, UnixMillis};
use bytes::Bytes;
use journal::SimDisk;

use super::{all_records, create, name, open, seeds};
use crate::batch::{self, BatchHeader};
use crate::compaction::CompactionPolicy;
use crate::event_store::{ProducerSequence, TopicSpec};
use crate::marker::Marker;
use crate::partition::Partition;
use crate::record::Record;
use crate::topic_config::TopicConfig;
use crate::{Ack, BatchRecords, Isolation};

const POLICY: CompactionPolicy = CompactionPolicy {
    lag_min: Duration::ZERO,
    delete_retention: Duration::from_secs(60),
    is_shared: false,
};

type Table = BTreeMap<Bytes, Bytes>;

/// What a reader from the start ends with.
fn table(partition: &Partition) -> Table {
    let mut table = Table::new();
    let mut last = -1;
    for record in all_records(partition) {
        assert!(record.offset > last, "offsets must grow");
        last = record.offset;
        let key = record.key.unwrap();
        match record.value {
            Some(value) => table.insert(key, value),
            None => table.remove(&key),
        };
    }
    table
}

/// From every offset a client finds the first record that is at or after it, going on behind each
/// batch as clients do.
pub(super) fn check_every_offset(partition: &Partition) {
    let offsets: Vec<i64> = all_records(partition).iter().map(|r| r.offset).collect();
    for offset in partition.log_start_offset()..partition.high_watermark() {
        let wanted = offsets.iter().find(|at| **at >= offset).copied();
        assert_eq!(first_since(partition, offset), wanted, "from {offset}");
    }
}

fn first_since(partition: &Partition, offset: i64) -> Option<i64> {
    let mut at = offset;
    loop {
        let batch = partition
            .read(Isolation::Uncommitted, at, 1, true)
            .unwrap()
            .into_iter()
            .next()?;
        let records = BatchRecords::of(&batch).unwrap();
        let found = records
            .map(|record| record.unwrap().offset)
            .find(|at| *at >= offset);
        if found.is_some() {
            return found;
        }
        let header = BatchHeader::read(&batch).unwrap();
        let next = header.base_offset + header.offsets();
        assert!(next > at, "a client at {at} would stand still");
        at = next;
    }
}

#[tokio::test]
async fn the_last_value_of_each_key_stays_and_the_rest_goes() {
    for seed in 0..seeds::count_of_costly(15) {
        let (mut rng, disk) = (Rng::from_seed(seed), SimDisk::new(seed));
        let mut streams = open(&disk);
        create(&streams, "t", 1).await;
        // Not so old that the topic deletes it.
        let (mut model, mut now) = (Table::new(), SystemClock.now().0);
        for round in 0..6 {
            let topic = streams.topic_by_name(&name("t")).unwrap();
            let partition = &topic.partitions()[0];
            for _ in 0..60 {
                now += 10;
                let records: Vec<Record> = (0..=rng.below(4))
                    .map(|_| record(&mut rng, now, &mut model))
                    .collect();
                let batch = batch::build(&records, UnixMillis(now), None).unwrap();
                let appended = partition.append(batch, Ack::All).unwrap();
                appended.ack.await.unwrap();
            }
            let before = partition.figures().bytes_stored;
            let compacted = partition.compact(UnixMillis(now + 1), POLICY).unwrap();
            assert_eq!(table(partition), model, "seed {seed} round {round}");
            check_every_offset(partition);
            let after = partition.figures().bytes_stored;
            assert!(
                after < before && compacted.bytes_after < compacted.bytes_before,
                "seed {seed}: {before} bytes became {after}, {compacted:?}"
            );
            if rng.one_in(2) {
                streams.snapshot(1).unwrap();
                streams.move_living(0).unwrap();
                streams.reclaim().unwrap();
            }
            if rng.one_in(2) {
                if rng.one_in(2) {
                    streams.close().await;
                } else {
                    disk.crash_after(rng.below(3));
                }
                seeds::closed(streams);
                drop(topic);
                disk.crash();
                streams = open(&disk);
                let topic = streams.topic_by_name(&name("t")).unwrap();
                assert_eq!(
                    table(&topic.partitions()[0]),
                    model,
                    "seed {seed}, reopened"
                );
                check_every_offset(&topic.partitions()[0]);
            }
        }
    }
}

#[tokio::test]
async fn tombstones_stay_for_their_time() {
    let streams = open(&SimDisk::new(1));
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    let began = SystemClock.now().0;
    let store = async |key: &'static str, value: Option<&'static str>, at: i64| {
        let record = Record {
            key: Some(Bytes::from_static(key.as_bytes())),
            value: value.map(|value| Bytes::from_static(value.as_bytes())),
            timestamp: Some(UnixMillis(began + at)),
            ..Record::default()
        };
        let batch = batch::build(&[record], UnixMillis(began), None).unwrap();
        partition
            .append(batch, Ack::All)
            .unwrap()
            .ack
            .await
            .unwrap();
    };
    let keys = || -> Vec<Bytes> {
        let records = all_records(partition).into_iter();
        records.map(|record| record.key.unwrap()).collect()
    };
    store("a", Some("1"), 1_000).await;
    store("a", None, 2_000).await;
    store("b", Some("1"), 3_000).await;
    partition
        .compact(UnixMillis(began + 10_000), POLICY)
        .unwrap();
    assert_eq!(keys(), ["a", "b"]);
    store("c", Some("1"), 11_000).await;
    partition
        .compact(UnixMillis(began + 69_000), POLICY)
        .unwrap();
    assert_eq!(keys(), ["a", "b", "c"]);
    store("d", Some("1"), 69_500).await;
    partition
        .compact(UnixMillis(began + 70_000), POLICY)
        .unwrap();
    assert_eq!(keys(), ["b", "c", "d"]);
}

#[tokio::test]
async fn however_little_came_in_it_waits_no_longer_than_the_greatest_lag() {
    let streams = open(&SimDisk::new(1));
    let mut spec = TopicSpec::of(name("t"));
    spec.config = TopicConfig::of([
        ("cleanup.policy", "compact"),
        ("max.compaction.lag.ms", "3600000"),
    ])
    .unwrap();
    let topic = streams.create_topic(spec).await.unwrap();
    let partition = &topic.partitions()[0];
    let now = SystemClock.now().0;
    let store = async |value: &'static str, age: i64| {
        let record = Record {
            key: Some(Bytes::from_static(b"k")),
            value: Some(Bytes::from_static(value.as_bytes())),
            timestamp: Some(UnixMillis(now - age)),
            ..Record::default()
        };
        let batch = batch::build(&[record], UnixMillis(now), None).unwrap();
        let appended = partition.append(batch, Ack::All).unwrap();
        appended.ack.await.unwrap();
    };
    store("young", 600_000).await;
    store("younger", 0).await;
    let pause = streams.compact_due().unwrap().unwrap();
    assert!((2_900..=3_000).contains(&pause.as_secs()), "{pause:?}");
    assert_eq!(all_records(partition).len(), 2);
    // The partition's last batch speaks for its keys, too.
    partition.delete_before(None, |_| Ok(())).unwrap();
    store("old", 3_700_000).await;
    store("new", 3_650_000).await;
    streams.compact_due().unwrap();
    let left = all_records(partition);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].value.as_deref(), Some(&b"new"[..]));
    assert_eq!(streams.compact_due().unwrap(), None);
}

#[tokio::test]
async fn times_ahead_hold_compaction_up_only_where_a_lag_is_wanted() {
    let streams = open(&SimDisk::new(3));
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    let now = SystemClock.now();
    for value in ["a", "b", "c"] {
        let record = Record::of_value(value).with_key("k");
        let batch = batch::build(&[record], now + Duration::from_secs(1_800), None).unwrap();
        partition
            .append(batch, Ack::All)
            .unwrap()
            .ack
            .await
            .unwrap();
    }
    let lagging = CompactionPolicy {
        lag_min: Duration::from_secs(1),
        ..POLICY
    };
    for (policy, left) in [(lagging, 3), (POLICY, 1)] {
        partition.compact(now, policy).unwrap();
        assert_eq!(all_records(partition).len(), left);
    }
    streams.close().await;
}

#[tokio::test]
async fn a_commits_marker_goes_after_its_records() {
    let disk = SimDisk::new(1);
    let streams = open(&disk);
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    let now = SystemClock.now();
    let keyed = |key: &'static str, producer_id: Option<i64>| {
        let record = Record {
            key: Some(Bytes::from_static(key.as_bytes())),
            value: Some(Bytes::from_static(b"v")),
            timestamp: Some(now),
            ..Record::default()
        };
        let sequence = producer_id.map(|producer_id| ProducerSequence {
            producer_id,
            producer_epoch: 0,
            first_sequence: 0,
        });
        let mut batch = batch::build(&[record], now, sequence).unwrap().to_vec();
        batch[22] |= if producer_id.is_some() { 0x10 } else { 0 };
        batch::seal(&mut batch);
        Bytes::from(batch)
    };
    let store = async |batch: Bytes| {
        let appended = partition.append_any(batch, Ack::All).unwrap();
        appended.ack.await.unwrap();
    };
    // One of 1 that stays, one of 2 that is superseded; both commit.
    for (producer_id, key) in [(1, "a"), (2, "b")] {
        store(keyed(key, Some(producer_id))).await;
        let marker = Marker {
            producer_id,
            producer_epoch: 0,
            is_commit: true,
        };
        partition.append_marker(now, marker).unwrap();
    }
    store(keyed("b", None)).await;
    let markers = || -> Vec<i64> {
        let batches = partition.read(Isolation::Uncommitted, 0, 1 << 20, true);
        let headers = batches.unwrap().into_iter();
        let headers = headers.map(|batch| BatchHeader::check_stored(&batch).unwrap());
        let controls = headers.filter(BatchHeader::is_control);
        controls.map(|header| header.producer_id).collect()
    };
    let pass = |after: u64| {
        let at = now + Duration::from_secs(after);
        partition.compact(at, POLICY).unwrap();
    };
    pass(1);
    assert_eq!(markers(), [1, 2], "readers may be under way");
    store(keyed("c", None)).await;
    pass(60);
    assert_eq!(markers(), [1, 2]);
    store(keyed("d", None)).await;
    pass(62);
    assert_eq!(markers(), [1]);
    assert_eq!(first_since(partition, 2), Some(4));
    // The same after a restart.
    streams.snapshot(1).unwrap();
    streams.close().await;
    drop((streams, topic));
    let streams = open(&disk);
    let topic = streams.topic_by_name(&name("t")).unwrap();
    let end = topic.partitions()[0].end_offset(Isolation::Committed);
    assert_eq!(end, topic.partitions()[0].high_watermark());
}

fn record(rng: &mut Rng, now: i64, model: &mut Table) -> Record {
    let key = Bytes::from(format!("k{}", rng.below(20)));
    let value = (!rng.one_in(5)).then(|| Bytes::from(format!("{now}:{}", rng.next_u64())));
    match &value {
        Some(value) => model.insert(key.clone(), value.clone()),
        None => model.remove(&key),
    };
    Record {
        key: Some(key),
        value,
        timestamp: Some(UnixMillis(now)),
        ..Record::default()
    }
}
