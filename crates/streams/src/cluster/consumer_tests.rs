//! Members of groups that nobody polls, on a cluster that librdkafka plays in the process.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::tests::World;
use crate::event_store::{Consumer, ConsumerConfig, OffsetReset, ProduceBatch, SeekTo};
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
