//! The writers on a cluster that librdkafka plays in the process, and the lanes without any.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Semaphore, oneshot};

use super::readers::Readers;
use super::round::Job;
use super::waiting::{self, Lane, Next, Queue};
use super::writer::Outcome;
use super::{Cluster, ClusterConfig};
use crate::config::StreamsConfig;
use crate::error::StreamsError;
use crate::event_store::{ConsumerConfig, EventStore, ProduceBatch};
use crate::limits::CLUSTER_ROUND_BESIDE_BYTES_MIN as BESIDE;
use crate::record::Record;
use crate::topic::TopicName;

/// A cluster of one broker with one topic, and who asks for it.
pub(super) struct World {
    mock: MockCluster<'static, DefaultProducerContext>,
    cluster: Arc<Cluster>,
    pub store: Arc<dyn EventStore>,
    pub topic: TopicName,
    _folder: tempfile::TempDir,
}

impl World {
    pub fn new(partitions: i32) -> World {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic("t", partitions, 1).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster::open(folder.path(), config(&mock)).unwrap();
        World {
            store: cluster.store(),
            mock,
            cluster,
            topic: "t".parse().unwrap(),
            _folder: folder,
        }
    }

    /// The readers that nobody holds.
    pub fn readers(&self) -> &Readers {
        &self.cluster.readers
    }

    pub async fn close(&self) {
        self.cluster.close().await;
    }

    /// Sends batches from `senders` at once, each one's in turns of an answer; answers what became of
    /// them, by sender and number.
    async fn crowd(&self, senders: Range<u32>, each: u32) -> BTreeMap<(u32, u32), Outcome> {
        let mut sending = tokio::task::JoinSet::new();
        for sender in senders {
            let (store, topic) = (self.store.clone(), self.topic.clone());
            sending.spawn(async move {
                let mut outcomes = Vec::new();
                for number in 0..each {
                    let values = (0..RECORDS).map(|nth| value(sender, number, nth));
                    let batch = ProduceBatch {
                        topic: topic.clone(),
                        partition: i32::try_from(sender % 2).unwrap(),
                        records: values.map(Record::of_value).collect(),
                        sequence: None,
                    };
                    outcomes.push(((sender, number), store.produce(batch).await));
                }
                outcomes
            });
        }
        let mut all = BTreeMap::new();
        while let Some(outcomes) = sending.join_next().await {
            all.extend(outcomes.unwrap());
        }
        all
    }

    /// All values stored, by partition and offset.
    async fn stored(&self, count: usize) -> BTreeMap<(i32, i64), Bytes> {
        let mut consumer = self
            .store
            .consumer(ConsumerConfig::alone("test"))
            .await
            .unwrap();
        let places = (0..2).map(|partition| (self.topic.clone(), partition));
        consumer.assign(places.collect()).await.unwrap();
        let mut found = BTreeMap::new();
        while found.len() < count {
            let records = consumer.poll(Duration::from_secs(10), 1 << 20).await;
            let records = records.unwrap();
            assert!(!records.is_empty(), "{} of {count} came", found.len());
            for record in records {
                let value = record.value.unwrap();
                found.insert((record.partition, record.offset), value);
            }
        }
        let more = consumer.poll(Duration::from_millis(200), 1 << 20).await;
        assert_eq!(more.unwrap().len(), 0, "more was stored than answered");
        found
    }
}

pub(super) fn config(mock: &MockCluster<'static, DefaultProducerContext>) -> StreamsConfig {
    StreamsConfig {
        kafka: ClusterConfig {
            bootstrap_servers: Some(mock.bootstrap_servers()),
            ..ClusterConfig::default()
        },
        ..StreamsConfig::default()
    }
}

/// Some are large enough that librdkafka reads them where they lie; the played cluster keeps no more
/// than 5 MiB of a partition.
fn value(sender: u32, number: u32, nth: u32) -> String {
    let more = match nth % 3 {
        1 => 1_100,
        _ => 100,
    };
    format!("{sender}-{number}-{nth}-{}", "x".repeat(more))
}

/// Whether each batch that was acknowledged lies whole where its answer says.
fn assert_whole(
    outcomes: &BTreeMap<(u32, u32), Outcome>,
    stored: &mut BTreeMap<(i32, i64), Bytes>,
) {
    for ((sender, number), outcome) in outcomes {
        let Ok(placed) = outcome else { continue };
        for (nth, offset) in (0..RECORDS).zip(placed.base_offset..) {
            let found = stored.remove(&(placed.partition, offset));
            assert_eq!(found.unwrap(), value(*sender, *number, nth));
        }
    }
    assert!(stored.is_empty(), "{} records of nobody", stored.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crowd_sends_is_stored_whole_and_in_each_ones_order() {
    let world = World::new(2);
    // So that many wait while a round is under way, and the first lane is not the only one.
    world
        .mock
        .broker_round_trip_time(1, Duration::from_millis(20))
        .unwrap();
    let outcomes = world.crowd(0..32, 6).await;
    let count = outcomes.len() * RECORDS as usize;
    for sender in 0..32 {
        let mut of_sender = outcomes.range((sender, 0)..(sender + 1, 0));
        let offsets: Vec<i64> = of_sender
            .by_ref()
            .map(|(_, outcome)| outcome.as_ref().unwrap().base_offset)
            .collect();
        assert!(offsets.is_sorted(), "{sender}: {offsets:?}");
    }
    assert_whole(&outcomes, &mut world.stored(count).await);
    world.cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cluster_refuses_costs_the_other_rounds_nothing() {
    let world = World::new(2);
    world
        .mock
        .broker_round_trip_time(1, Duration::from_millis(20))
        .unwrap();
    world.crowd(0..1, 1).await;
    world.mock.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 2],
    );
    let outcomes = world.crowd(1..33, 4).await;
    let is_refused = |outcome: &&Outcome| matches!(outcome, Err(StreamsError::Denied(_)));
    let refused = outcomes.values().filter(is_refused).count();
    let stored = outcomes.values().filter(|outcome| outcome.is_ok()).count();
    assert!(refused > 0, "nothing was refused");
    assert_eq!(refused + stored, outcomes.len(), "{outcomes:?}");
    let mut found = world.stored((stored + 1) * RECORDS as usize).await;
    let first = |value: &Bytes| value.starts_with(b"0-0-");
    found.retain(|_, value| !first(value));
    assert_whole(&outcomes, &mut found);
    world.cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_not_there_fails_its_batch_alone() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("t", 1, 1).unwrap();
    let (queue, mut lanes) = waiting::queue(1, Duration::from_secs(10));
    let calls = super::Calls::new(config(&mock).kafka, super::Trouble::default()).unwrap();
    let writer = super::Writer::new(calls, 1 << 20, lanes.remove(0));
    let running = std::thread::spawn(move || writer.run());
    let answers = ["t", "gone"].map(|topic| {
        let (job, answer) = job(topic, 1_000);
        queue.send(job).unwrap();
        answer
    });
    let [stored, refused] = answers;
    assert_eq!(stored.await.unwrap().unwrap().base_offset, 0);
    let refused = refused.await.unwrap().unwrap_err();
    assert!(
        matches!(refused, StreamsError::UnknownTopic(_)),
        "{refused:?}"
    );
    drop(queue);
    running.join().unwrap();
}

#[test]
fn a_lone_job_goes_at_once_and_small_ones_wait_for_a_round_under_way() {
    let (queue, mut lanes) = waiting::queue(2, SOON);
    let (first, second) = two(&mut lanes);
    connect(first);
    send(&queue, "a", 1_000);
    assert_eq!(round(first), 1);
    send(&queue, "b", 1_000);
    send(&queue, "c", 1_000);
    // The first lane writes still, and two small batches are not worth connecting another.
    drop(queue);
    assert!(matches!(second.next(MAX), Next::Over));
    assert_eq!(round(first), 2);
    assert!(matches!(first.next(MAX), Next::Over));
}

#[test]
fn another_lane_connects_when_there_is_enough_for_it_and_rests_when_there_is_not() {
    let (queue, mut lanes) = waiting::queue(2, SOON);
    let (first, second) = two(&mut lanes);
    connect(first);
    send(&queue, "a", BESIDE);
    assert_eq!(round(first), 1);
    send(&queue, "b", BESIDE);
    connect(second);
    assert_eq!(round(second), 1);
    // As much as is under way has to wait before another begins.
    send(&queue, "c", BESIDE - 1);
    assert!(matches!(second.next(MAX), Next::Idle));
    assert_eq!(round(first), 1);
    // Nothing waits, so the second lane rests; the first only says that it has nothing to do.
    assert!(matches!(first.next(MAX), Next::Idle));
    send(&queue, "d", 1_000);
    assert_eq!(round(first), 1);
    send(&queue, "e", 2 * BESIDE);
    connect(second);
    drop(queue);
    assert_eq!(round(second), 1);
    assert!(matches!(second.next(MAX), Next::Over));
    assert!(matches!(first.next(MAX), Next::Over));
}

#[test]
fn a_round_holds_one_record_batch_of_a_partition_and_leaves_the_rest_in_its_order() {
    let (queue, mut lanes) = waiting::queue(1, SOON);
    let lane = &mut lanes[0];
    connect(lane);
    for (topic, bytes) in [
        ("a", 400),
        ("b", 700),
        ("a", 500),
        ("a", 200),
        ("a", 50),
        ("b", 100),
    ] {
        send(&queue, topic, bytes);
    }
    // The small one waits behind the one that has no room.
    assert_eq!(topics(lane, 1_000), ["a", "b", "a", "b"]);
    assert_eq!(bytes(lane, 1_000), [200, 50]);
    // One that is larger than a batch may be goes all the same: the cluster is asked.
    send(&queue, "a", 5_000);
    send(&queue, "b", 1);
    assert_eq!(topics(lane, 1_000), ["a", "b"]);
}

#[test]
fn a_lane_that_breaks_leaves_the_work_to_the_others_and_the_last_tells_who_waits() {
    let (queue, mut lanes) = waiting::queue(2, SOON);
    let (mut second, mut first) = (lanes.pop().unwrap(), lanes.pop().unwrap());
    connect(&mut first);
    send(&queue, "a", BESIDE);
    assert_eq!(round(&mut first), 1);
    drop(first);
    let mut answer = send(&queue, "b", 1);
    connect(&mut second);
    drop(second);
    assert_eq!(answer.try_recv().unwrap_err(), TryRecvError::Closed);
    let (late, _answer) = job("c", 1);
    assert!(matches!(queue.send(late), Err(StreamsError::Closed)));
}

/// A job that says it has so many bytes, and where its answer comes.
pub(super) fn job(topic: &str, bytes: u64) -> (Job, oneshot::Receiver<Outcome>) {
    let records = vec![Record::of_value("v")];
    let (answer, answered) = oneshot::channel();
    let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let batch = ProduceBatch {
        topic: topic.parse().unwrap(),
        partition: 0,
        records,
        sequence: None,
    };
    let job = Job {
        batch,
        bytes,
        answer,
        room,
    };
    (job, answered)
}

fn send(queue: &Queue, topic: &str, bytes: u64) -> oneshot::Receiver<Outcome> {
    let (job, answer) = job(topic, bytes);
    queue.send(job).unwrap();
    answer
}

fn two(lanes: &mut [Lane]) -> (&mut Lane, &mut Lane) {
    let [first, second] = lanes else {
        panic!("there are two lanes")
    };
    (first, second)
}

fn connect(lane: &mut Lane) {
    assert!(matches!(lane.next(MAX), Next::Connect));
}

/// How many jobs the lane's next round has.
fn round(lane: &mut Lane) -> usize {
    topics(lane, MAX).len()
}

fn topics(lane: &mut Lane, partition_bytes_max: u64) -> Vec<String> {
    let jobs = jobs(lane, partition_bytes_max).into_iter();
    jobs.map(|job| job.batch.topic.wire_name().to_owned())
        .collect()
}

fn bytes(lane: &mut Lane, partition_bytes_max: u64) -> Vec<u64> {
    let jobs = jobs(lane, partition_bytes_max).into_iter();
    jobs.map(|job| job.bytes).collect()
}

fn jobs(lane: &mut Lane, partition_bytes_max: u64) -> Vec<Job> {
    match lane.next(partition_bytes_max) {
        Next::Round(round) => round.jobs,
        _ => panic!("there is a round"),
    }
}

const RECORDS: u32 = 100;
const MAX: u64 = 64 << 20;
const SOON: Duration = Duration::from_millis(1);
