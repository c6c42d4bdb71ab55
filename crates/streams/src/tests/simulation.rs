//! Random work, crashes and recoveries against a model, from a seed.
//!
//! The model remembers what was sent in which order and what was acknowledged. After each crash
//! the store must hold a prefix of what was sent to each partition that covers all that was
//! acknowledged, at the same offsets, and go on from there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Rng, UnixMillis};
use journal::SimDisk;
use uuid::Uuid;

use super::{all_records, batch_of, name, seeds, small, try_open, values};
use crate::error::StreamsError;
use crate::event_store::{ProducerSequence, TopicSpec};
use crate::offsets::OffsetCommit;
use crate::partition::AckWait;
use crate::store::Streams;
use crate::{Ack, Durability, TopicName};

#[test]
fn what_was_acknowledged_is_there_once_and_in_order() {
    let mut totals = Totals::default();
    let seeds = seeds::each(async |seed| {
        let mut world = World::new(seed);
        world.run().await;
        totals.add(&world.totals);
    });
    eprintln!("{seeds} seeds: {totals:?}");
    // A simulation that never gets to the hard parts proves nothing; how often it gets there
    // hangs on the threads' timing, so the bounds are far below what is usual.
    assert!(totals.crashes > seeds, "{totals:?}");
    assert!(totals.acknowledged > 20 * seeds, "{totals:?}");
    assert!(
        totals.duplicates > seeds / 4 && totals.reclaimed > 0,
        "{totals:?}"
    );
    assert!(totals.moved > 1_000 * seeds, "{totals:?}");
    assert!(
        totals.lost_tails > 0 && totals.commits > seeds && totals.full_disks > seeds,
        "{totals:?}"
    );
}

#[derive(Debug, Default)]
struct Totals {
    crashes: u64,
    acknowledged: u64,
    duplicates: u64,
    reclaimed: u64,
    moved: u64,
    lost_tails: u64,
    commits: u64,
    full_disks: u64,
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.crashes += other.crashes;
        self.acknowledged += other.acknowledged;
        self.duplicates += other.duplicates;
        self.reclaimed += other.reclaimed;
        self.moved += other.moved;
        self.lost_tails += other.lost_tails;
        self.commits += other.commits;
        self.full_disks += other.full_disks;
    }
}

/// A batch that was sent.
#[derive(Clone, Debug)]
struct Sent {
    base_offset: i64,
    values: Vec<String>,
    sequence: Option<ProducerSequence>,
    /// Acknowledged at the topic's durability.
    acknowledged: bool,
}

#[derive(Debug)]
struct ModelTopic {
    id: Uuid,
    durability: Durability,
    deleting: bool,
    partitions: Vec<Vec<Sent>>,
}

struct World {
    rng: Rng,
    disk: SimDisk,
    topics: BTreeMap<TopicName, ModelTopic>,
    /// Names that may or may not be there: asked for, never answered.
    doubtful: BTreeSet<TopicName>,
    /// What a commit may read as: the last acknowledged one, then those in doubt.
    commits: BTreeMap<(String, TopicName, usize), Vec<i64>>,
    producer: ProducerSequence,
    producer_ids: BTreeSet<i64>,
    written: u64,
    cluster_id: Option<String>,
    disk_is_small: bool,
    totals: Totals,
}

impl World {
    fn new(seed: u64) -> Self {
        World {
            rng: Rng::from_seed(seed ^ 0x5eed),
            disk: SimDisk::new(seed),
            topics: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            commits: BTreeMap::new(),
            producer: ProducerSequence {
                producer_id: -1,
                producer_epoch: 0,
                first_sequence: 0,
            },
            producer_ids: BTreeSet::new(),
            written: 0,
            cluster_id: None,
            disk_is_small: false,
            totals: Totals::default(),
        }
    }

    async fn run(&mut self) {
        for _ in 0..4 {
            let Ok((streams, recovery)) = try_open(&self.disk, small()) else {
                // The power went while the store was opening.
                self.disk.power_on();
                continue;
            };
            assert_eq!(recovery.damaged_bytes, 0);
            self.check(&streams);
            if !self.rng.one_in(4) {
                self.disk.crash_after(40 + self.rng.below(400));
            }
            let steps = 30 + self.rng.below(120);
            for _ in 0..steps {
                if self.disk.is_down() {
                    break;
                }
                self.step(&streams).await;
            }
            self.totals.crashes += 1;
            seeds::end_life(&mut self.rng, &self.disk, streams).await;
            self.disk.set_capacity(None);
            self.disk_is_small = false;
        }
        self.disk.power_on();
        let (streams, _) = try_open(&self.disk, small()).unwrap();
        self.check(&streams);
    }

    async fn step(&mut self, streams: &Arc<Streams>) {
        match self.rng.below(40) {
            0..3 => self.create(streams).await,
            3 => self.delete(streams).await,
            4 | 5 => self.commit(streams).await,
            6 => self.producer_id(streams).await,
            7 => self.reclaim(streams),
            8 if self.rng.one_in(8) => self.disk.fail_next_sync(),
            9..12 => self.send_again(streams).await,
            14 => self.fill_or_free_the_disk(),
            // What fails here, fails for everybody soon.
            13 => self.totals.moved += streams.move_living(0).unwrap_or(0),
            12 => drop(streams.snapshot(1 + self.rng.below(3) as usize)),
            _ => self.send(streams).await,
        }
    }

    /// The disk has little room from now on, or as much as it wants again.
    fn fill_or_free_the_disk(&mut self) {
        let capacity = (!self.disk_is_small).then(|| self.disk.used() + self.rng.below(30_000));
        self.disk_is_small = capacity.is_some();
        self.disk.set_capacity(capacity);
        self.totals.full_disks += u64::from(self.disk_is_small);
    }

    async fn create(&mut self, streams: &Streams) {
        let topic = name(&format!("t{}", self.rng.below(4)));
        let partitions = 1 + self.rng.below(3);
        let durability = if self.rng.one_in(3) {
            Durability::Os
        } else {
            Durability::Disk
        };
        let mut spec = TopicSpec::of(topic.clone());
        spec = spec.with_partitions(i32::try_from(partitions).unwrap());
        spec.durability = Some(durability);
        match streams.create_topic(spec).await {
            Ok(created) => {
                let partitions = (0..partitions).map(|_| Vec::new()).collect();
                let model = ModelTopic {
                    id: created.id(),
                    durability,
                    deleting: false,
                    partitions,
                };
                assert!(self.topics.insert(topic, model).is_none());
            }
            Err(StreamsError::TopicExists(_)) => {
                assert!(self.topics.contains_key(&topic) || self.doubtful.contains(&topic));
            }
            Err(_) => drop(self.doubtful.insert(topic)),
        }
    }

    async fn delete(&mut self, streams: &Streams) {
        let Some(topic) = self.pick_topic() else {
            return;
        };
        match streams.delete_topic(&topic).await {
            Ok(()) => {
                self.topics.remove(&topic);
                self.commits.retain(|(_, of, _), _| *of != topic);
                self.reclaim(streams);
            }
            Err(_) => {
                if let Some(model) = self.topics.get_mut(&topic) {
                    model.deleting = true;
                }
            }
        }
    }

    /// Counts only what the keeper's thread has not freed before.
    fn reclaim(&mut self, streams: &Streams) {
        if let Ok(segments) = streams.reclaim() {
            self.totals.reclaimed += u64::from(segments);
        }
    }

    async fn producer_id(&mut self, streams: &Streams) {
        if let Ok(id) = streams.next_producer_id().await {
            assert!(
                self.producer_ids.insert(id),
                "producer id {id} was given twice"
            );
            self.producer = ProducerSequence {
                producer_id: id,
                producer_epoch: 0,
                first_sequence: 0,
            };
        }
    }

    /// Sends a few batches, some without waiting between them, and waits for their acks.
    async fn send(&mut self, streams: &Streams) {
        let Some((topic, at)) = self.pick_partition() else {
            return;
        };
        let Some(found) = streams.topic_by_name(&topic) else {
            return;
        };
        let partition = found.partition(i32::try_from(at).unwrap()).unwrap();
        let mut waits: Vec<(usize, AckWait)> = Vec::new();
        for _ in 0..=self.rng.below(4) {
            let values: Vec<String> = (0..=self.rng.below(3))
                .map(|_| {
                    self.written += 1;
                    let padding = usize::try_from(self.rng.below(300)).unwrap();
                    format!("{}:{}", self.written, "x".repeat(padding))
                })
                .collect();
            let sequence = self.next_sequence(&topic, at);
            let ack = [Ack::All, Ack::All, Ack::Leader, Ack::None][self.rng.below(4) as usize];
            let Ok(append) = partition.append(batch_of(&values, sequence), ack) else {
                break;
            };
            let sent = &mut self.topics.get_mut(&topic).unwrap().partitions[at];
            let base_offset = append.base_offset;
            let next = sent
                .last()
                .map_or(0, |s| s.base_offset + s.values.len() as i64);
            assert_eq!(base_offset, next, "offsets have a gap");
            sent.push(Sent {
                base_offset,
                values,
                sequence,
                acknowledged: false,
            });
            if ack == Ack::All {
                waits.push((sent.len() - 1, append.ack));
            }
        }
        for (nth, wait) in waits {
            if wait.await.is_ok() {
                self.topics.get_mut(&topic).unwrap().partitions[at][nth].acknowledged = true;
                self.totals.acknowledged += 1;
            }
        }
    }

    /// Sends one of the last batches of a producer once more.
    async fn send_again(&mut self, streams: &Streams) {
        let Some((topic, at)) = self.pick_partition() else {
            return;
        };
        let Some(found) = streams.topic_by_name(&topic) else {
            return;
        };
        let partition = found.partition(i32::try_from(at).unwrap()).unwrap();
        let sent = &self.topics[&topic].partitions[at];
        let Some(last) = sent.iter().rev().find(|s| s.sequence.is_some()).cloned() else {
            return;
        };
        let again = partition.append(batch_of(&last.values, last.sequence), Ack::All);
        let Ok(append) = again else { return };
        assert!(append.duplicate, "a batch sent again was stored twice");
        assert_eq!(append.base_offset, last.base_offset);
        self.totals.duplicates += 1;
        if append.ack.await.is_ok() {
            let sent = &mut self.topics.get_mut(&topic).unwrap().partitions[at];
            let of_last = |s: &&mut Sent| s.base_offset == last.base_offset;
            sent.iter_mut().find(of_last).unwrap().acknowledged = true;
            assert!(partition.high_watermark() > last.base_offset);
        }
        let gap = last.sequence.map(|s| ProducerSequence {
            first_sequence: s.first_sequence + last.values.len() as i32 + 1,
            ..s
        });
        let refused = partition.append(batch_of(&["gap".into()], gap), Ack::All);
        assert!(matches!(
            refused,
            Err(StreamsError::OutOfOrderSequence { .. } | StreamsError::Closed)
        ));
    }

    async fn commit(&mut self, streams: &Streams) {
        let Some((topic, at)) = self.pick_partition() else {
            return;
        };
        let group = format!("g{}", self.rng.below(3));
        let offset = i64::try_from(self.rng.below(1_000)).unwrap();
        let commit = OffsetCommit {
            topic: topic.clone(),
            partition: i32::try_from(at).unwrap(),
            offset,
            leader_epoch: 0,
            metadata: format!("m{offset}"),
            at: UnixMillis(offset),
        };
        let Ok(wait) = streams.commit_offsets(&group, vec![commit]) else {
            return;
        };
        let key = (group.clone(), topic.clone(), at);
        let possible = self.commits.entry(key).or_default();
        possible.push(offset);
        if wait.await.is_ok() {
            *possible = vec![offset];
            self.totals.commits += 1;
            let read = streams.committed_offset(&group, &topic, i32::try_from(at).unwrap());
            assert_eq!(read.map(|c| c.offset), Some(offset));
        } else if possible.len() == 1 {
            // Nothing was acknowledged before, so nothing at all is possible too.
            possible.insert(0, NONE);
        }
    }

    /// Compares the store with the model and takes over what the crash decided.
    fn check(&mut self, streams: &Streams) {
        let cluster_id = self
            .cluster_id
            .get_or_insert_with(|| streams.cluster_id().to_owned());
        assert_eq!(cluster_id, streams.cluster_id());
        self.check_topics(streams);
        let mut lost = 0;
        for (topic, model) in &mut self.topics {
            let found = streams.topic_by_name(topic).unwrap();
            assert_eq!(found.id(), model.id);
            assert_eq!(found.partitions().len(), model.partitions.len());
            for (partition, sent) in found.partitions().iter().zip(&mut model.partitions) {
                let records = all_records(partition);
                let offsets: Vec<i64> = records.iter().map(|record| record.offset).collect();
                assert_eq!(offsets, (0..partition.high_watermark()).collect::<Vec<_>>());
                let held = sent.partition_point(|s| s.base_offset < partition.high_watermark());
                let expected: Vec<String> = sent[..held]
                    .iter()
                    .flat_map(|s| s.values.iter().cloned())
                    .collect();
                assert_eq!(values(&records), expected, "{topic} holds something else");
                if model.durability == Durability::Disk {
                    let missing = sent[held..].iter().find(|s| s.acknowledged);
                    assert!(missing.is_none(), "{topic} lost {missing:?}");
                }
                lost += sent.len() - held;
                sent.truncate(held);
            }
        }
        self.totals.lost_tails += lost as u64;
        for ((group, topic, at), possible) in &mut self.commits {
            let at = i32::try_from(*at).unwrap();
            let read = streams.committed_offset(group, topic, at);
            if let Some(committed) = &read {
                assert_eq!(committed.metadata, format!("m{}", committed.offset));
            }
            let read = read.map_or(NONE, |committed| committed.offset);
            assert!(
                possible.contains(&read),
                "{group} of {topic} reads {read}: {possible:?}"
            );
            *possible = vec![read];
        }
    }

    fn check_topics(&mut self, streams: &Streams) {
        let found: BTreeSet<TopicName> = streams
            .topics_snapshot()
            .iter()
            .map(|topic| topic.name().clone())
            .collect();
        let gone = |model: &ModelTopic, name: &TopicName| {
            model.deleting
                && streams
                    .topic_by_name(name)
                    .is_none_or(|topic| topic.id() != model.id)
        };
        self.topics.retain(|name, model| !gone(model, name));
        let topics = &self.topics;
        self.commits
            .retain(|(_, topic, _), _| topics.contains_key(topic));
        for topic in self.topics.keys() {
            assert!(found.contains(topic), "{topic} is lost");
        }
        for topic in &found {
            if self.topics.contains_key(topic) {
                continue;
            }
            assert!(self.doubtful.contains(topic), "{topic} came back");
            let kept = streams.topic_by_name(topic).unwrap();
            let partitions = kept.partitions().iter().map(|_| Vec::new()).collect();
            let (id, durability) = (kept.id(), kept.durability());
            let model = ModelTopic {
                id,
                durability,
                deleting: false,
                partitions,
            };
            self.topics.insert(topic.clone(), model);
        }
        for model in self.topics.values_mut() {
            model.deleting = false;
        }
        self.doubtful.clear();
    }

    fn next_sequence(&mut self, topic: &TopicName, at: usize) -> Option<ProducerSequence> {
        if self.producer.producer_id < 0 || self.rng.one_in(3) {
            return None;
        }
        let sent = &self.topics[topic].partitions[at];
        let of_producer = |s: &&Sent| {
            s.sequence
                .is_some_and(|q| q.producer_id == self.producer.producer_id)
        };
        let last = sent.iter().rev().find(of_producer);
        let first_sequence = last.map_or(0, |s| {
            s.sequence.unwrap().first_sequence + i32::try_from(s.values.len()).unwrap()
        });
        Some(ProducerSequence {
            first_sequence,
            ..self.producer
        })
    }

    fn pick_topic(&mut self) -> Option<TopicName> {
        let names: Vec<&TopicName> = self.topics.keys().collect();
        if names.is_empty() {
            return None;
        }
        Some(names[self.rng.below(names.len() as u64) as usize].clone())
    }

    fn pick_partition(&mut self) -> Option<(TopicName, usize)> {
        let topic = self.pick_topic()?;
        let count = self.topics[&topic].partitions.len() as u64;
        Some((topic, self.rng.below(count) as usize))
    }
}

/// Stands for no committed offset.
const NONE: i64 = -1;
