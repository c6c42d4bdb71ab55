//! Members of groups that nobody polls, and readers that go on where another was let go, on a cluster
//! that librdkafka plays in the process.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::tests::World;
use crate::event_store::{Consumer, ConsumerConfig, OffsetReset, ProduceBatch, SeekTo};
use crate::limits::CLUSTER_READERS_KEPT_MAX;
use crate::record::Record;

/// Its records are numbers.
impl World {
    async fn put(&self, partition: i32, values: std::ops::Range<i64>) {
        let values = values.map(|value| value.to_string());
        let batch = ProduceBatch {
            topic: self.topic.clone(),
            partition,
            records: values.map(Record::of_value).collect(),
            sequence: None,
        };
        self.store.produce(batch).await.unwrap();
    }

    async fn member(&self, name: &str) -> Box<dyn Consumer> {
        let config = ConsumerConfig {
            auto_offset_reset: OffsetReset::Earliest,
            session_timeout: Duration::from_secs(10),
            ..ConsumerConfig::in_group("g", name)
        };
        let mut member = self.store.consumer(config).await.unwrap();
        member.subscribe(vec![self.topic.clone()]).await.unwrap();
        member
    }

    /// A reader that begins at these offsets of the first partitions.
    async fn reader(&self, offsets: &[i64]) -> Box<dyn Consumer> {
        let config = ConsumerConfig::alone("reader");
        let mut reader = self.store.consumer(config).await.unwrap();
        let places = (0..).zip(offsets).map(|(nth, _)| (self.topic.clone(), nth));
        reader.assign(places.collect()).await.unwrap();
        for (nth, offset) in (0..).zip(offsets) {
            let to = SeekTo::Offset(*offset);
            reader.seek(&self.topic, nth, to).await.unwrap();
        }
        reader
    }

    async fn until_kept(&self, count: usize) {
        let until = deadline();
        while self.readers().len() != count {
            assert!(Instant::now() < until, "{} are kept", self.readers().len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Polls until there is something.
async fn poll_some(reader: &mut Box<dyn Consumer>, max_bytes: usize) -> Vec<i64> {
    let until = deadline();
    loop {
        let some = poll(reader, max_bytes).await;
        if !some.is_empty() {
            return some;
        }
        assert!(Instant::now() < until, "nothing came");
    }
}

/// The numbers of one poll.
async fn poll(member: &mut Box<dyn Consumer>, max_bytes: usize) -> Vec<i64> {
    let wait = Duration::from_millis(100);
    let records = member.poll(wait, max_bytes).await.unwrap();
    let values = records.into_iter().map(|record| record.value.unwrap());
    let texts = values.map(|value| String::from_utf8(value.to_vec()).unwrap());
    texts.map(|text| text.parse().unwrap()).collect()
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(90)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_tended_gives_its_share_up_without_a_poll() {
    let world = World::new(4);
    for partition in 0..4 {
        world.put(partition, 0..1).await;
    }
    let mut first = world.member("first").await;
    let until = deadline();
    while first.assignment().len() < 4 {
        assert!(Instant::now() < until, "nothing was given to the first");
        poll(&mut first, 1 << 20).await;
    }
    let mut second = world.member("second").await;
    let until = deadline();
    while second.assignment().len() != 2 || first.assignment().len() != 2 {
        let held = (first.assignment(), second.assignment());
        assert!(
            Instant::now() < until,
            "the group waits for the first: {held:?}"
        );
        poll(&mut second, 1 << 20).await;
        first.tend().await.unwrap();
    }
    // Between them they read all that comes.
    for partition in 0..4 {
        let value = 10 + i64::from(partition);
        world.put(partition, value..value + 1).await;
    }
    let mut seen = BTreeSet::new();
    let until = deadline();
    while !(10..14).all(|value| seen.contains(&value)) {
        assert!(Instant::now() < until, "they have read {seen:?}");
        seen.extend(poll(&mut first, 1 << 20).await);
        seen.extend(poll(&mut second, 1 << 20).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_goes_on_after_its_rest_where_it_was() {
    let world = World::new(1);
    world.put(0, 0..20).await;
    let mut member = world.member("only").await;
    let (mut seen, mut is_sent_back) = (Vec::new(), false);
    let until = deadline();
    while seen.len() < 20 {
        assert!(Instant::now() < until, "it has read {seen:?}");
        // A poll has a few of them, and what does not fit is kept over the rest.
        seen.extend(poll(&mut member, 60).await);
        if seen.len() > 10 && !is_sent_back {
            // Where it is sent holds over a rest, too.
            let back = SeekTo::Offset(5);
            member.seek(&world.topic, 0, back).await.unwrap();
            seen.truncate(5);
            is_sent_back = true;
        }
        for _ in 0..3 {
            member.tend().await.unwrap();
        }
    }
    assert_eq!(seen, (0..20).collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_with_the_client_of_one_that_was_let_go_there() {
    let world = World::new(1);
    world.put(0, 0..100).await;
    let (mut next, mut seen) = (0, Vec::new());
    for round in 0..10 {
        let mut reader = world.reader(&[next]).await;
        let some = poll_some(&mut reader, 100).await;
        assert_eq!(world.readers().len(), 0, "round {round} has it");
        next += i64::try_from(some.len()).unwrap();
        assert_eq!(reader.position(&world.topic, 0), Some(next));
        seen.extend(some);
        drop(reader);
        assert_eq!(world.readers().len(), 1, "round {round} left it");
    }
    assert_eq!(seen, (0..next).collect::<Vec<i64>>());
    // Who begins elsewhere does not get it.
    let mut other = world.reader(&[99]).await;
    assert_eq!(poll_some(&mut other, 1).await, [99]);
    assert_eq!(world.readers().len(), 1);
    other.close().await.unwrap();
    assert_eq!(world.readers().len(), 2);
    // And nobody after a while.
    world.until_kept(0).await;
    let mut late = world.reader(&[next]).await;
    assert_eq!(poll_some(&mut late, 1).await, [next]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_on_knows_what_has_no_more() {
    let world = World::new(1);
    world.put(0, 0..3).await;
    let mut first = world.reader(&[0]).await;
    let (mut seen, until) = (0, deadline());
    while seen < 3 || !first.is_at_end(&world.topic, 0) {
        assert!(Instant::now() < until, "it has read {seen}");
        seen += poll(&mut first, 1 << 20).await.len();
    }
    drop(first);
    let mut second = world.reader(&[3]).await;
    assert!(poll(&mut second, 1 << 20).await.is_empty());
    assert!(second.is_at_end(&world.topic, 0));
    world.put(0, 3..4).await;
    assert_eq!(poll_some(&mut second, 1 << 20).await, [3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_readers_are_kept_than_there_may_be_and_none_behind_the_end() {
    let world = World::new(1);
    world.put(0, 0..20).await;
    // None begins where one before it ended.
    for offset in (0..12).rev() {
        let mut reader = world.reader(&[offset]).await;
        assert_eq!(poll_some(&mut reader, 1).await, [offset]);
    }
    assert_eq!(world.readers().len(), CLUSTER_READERS_KEPT_MAX);
    world.close().await;
    assert_eq!(world.readers().len(), 0);
    drop(world.reader(&[0]).await);
    assert_eq!(world.readers().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_nobody_went_on_with_goes_to_who_begins_elsewhere() {
    let world = World::new(2);
    for partition in 0..2 {
        world.put(partition, 0..20).await;
    }
    // At the end, where a request of its waits for records.
    let mut first = world.reader(&[19]).await;
    let (mut seen, until) = (0, deadline());
    while seen < 1 || !first.is_at_end(&world.topic, 0) {
        assert!(Instant::now() < until, "it has read {seen}");
        seen += poll(&mut first, 1 << 20).await.len();
    }
    let mut second = world.reader(&[2]).await;
    assert_eq!(poll_some(&mut second, 1).await, [2]);
    drop((first, second));
    let until = deadline();
    while world.readers().spare_len() < 2 {
        assert!(Instant::now() < until, "no two clients are spare");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut other = world.reader(&[7, 3]).await;
    let mut seen = poll_some(&mut other, 1 << 20).await;
    assert_eq!(
        world.readers().spare_len(),
        1,
        "it did not take one of them"
    );
    while seen.len() < 13 + 17 {
        seen.extend(poll_some(&mut other, 1 << 20).await);
    }
    seen.sort_unstable();
    let mut expected: Vec<i64> = (7..20).chain(3..20).collect();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    // Any may remember a topic that is gone.
    world.readers().forget(&world.topic);
    assert_eq!(world.readers().spare_len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_goes_takes_its_readers_along() {
    let world = World::new(1);
    world.put(0, 0..3).await;
    let mut reader = world.reader(&[0]).await;
    assert_eq!(poll_some(&mut reader, 1).await, [0]);
    drop(reader);
    world.readers().forget(&"other".parse().unwrap());
    assert_eq!(world.readers().len(), 1);
    world.readers().forget(&world.topic);
    assert_eq!(world.readers().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_have_nothing_yet_are_read_like_those_that_have() {
    let world = World::new(3);
    world.put(1, 10..12).await;
    let mut reader = world.reader(&[0, 0, 0]).await;
    let mut seen = BTreeSet::new();
    let until = deadline();
    while seen.len() < 2 {
        assert!(Instant::now() < until, "it has read {seen:?}");
        seen.extend(poll(&mut reader, 1 << 20).await);
    }
    for partition in [0, 2] {
        let value = 100 + i64::from(partition);
        world.put(partition, value..value + 1).await;
    }
    while seen.len() < 4 {
        assert!(Instant::now() < until, "it has read {seen:?}");
        seen.extend(poll(&mut reader, 1 << 20).await);
    }
    assert_eq!(seen, BTreeSet::from([10, 11, 100, 102]));
}
