//! A consumer in this process: reads stored batches without a socket, in the same groups as Kafka
//! clients.

mod assignor;
mod held;
mod member;

pub(crate) use assignor::{
    Share, Told, assigned, assignment, read_assignment, read_subscription, subscribed, subscription,
};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::consumer::held::Held;
use crate::consumer::member::{Membership, Standing};
use crate::error::StreamsError;
use crate::event_store::{Consumer, ConsumerConfig, OffsetReset, SeekTo};
use crate::groups::GroupError;
use crate::limits::CONSUMER_PARTITIONS_MAX;
use crate::offsets::OffsetCommit;
use crate::record::ConsumedRecord;
use crate::signal::Signal;
use crate::store::Streams;
use crate::topic::TopicName;

/// The embedded store's consumer.
pub(crate) struct EmbeddedConsumer {
    streams: Arc<Streams>,
    config: ConsumerConfig,
    membership: Option<Membership>,
    /// The standing that `held` was made from.
    adopted: Adopted,
    held: Vec<Held>,
    /// Where the next poll begins, so that a busy partition does not starve the others.
    turn: usize,
    notify: Arc<Signal>,
    /// Found while records were already in hand; the next poll answers it.
    failed: Option<StreamsError>,
}

#[derive(Debug, Default)]
struct Adopted {
    version: u64,
    member_id: String,
    generation: i32,
}

impl EmbeddedConsumer {
    pub(crate) fn new(streams: Arc<Streams>, config: ConsumerConfig) -> Self {
        EmbeddedConsumer {
            streams,
            config,
            membership: None,
            adopted: Adopted::default(),
            held: Vec::new(),
            turn: 0,
            notify: Arc::new(Signal::new()),
            failed: None,
        }
    }

    /// Takes over what the membership has got since the last time; answers what it gave up.
    fn adopt(&mut self) -> Result<Vec<Held>, StreamsError> {
        let Some(membership) = &self.membership else {
            return Ok(Vec::new());
        };
        let Some(standing) = membership.changed_since(self.adopted.version) else {
            return Ok(Vec::new());
        };
        if let Some(reason) = standing.failed {
            let group = membership.group().to_owned();
            self.membership = None;
            self.held.clear();
            return Err(StreamsError::Group { group, reason });
        }
        self.adopted.version = standing.version;
        match standing.generation {
            Some(generation) => self.hold(standing, generation),
            None => Ok(Vec::new()),
        }
    }

    fn hold(&mut self, standing: Standing, generation: i32) -> Result<Vec<Held>, StreamsError> {
        // Nobody else can have had a partition between two generations that follow each other,
        // so its position goes on; otherwise it starts again from what the group has committed.
        let follows = standing.member_id == self.adopted.member_id
            && (generation == self.adopted.generation + 1 || generation == self.adopted.generation);
        let mut before = std::mem::take(&mut self.held);
        for (topic, partitions) in &standing.share {
            // A foreign leader may name a topic that is gone; the next rebalance drops it.
            let Ok(topic) = topic.parse::<TopicName>() else {
                continue;
            };
            for partition in partitions {
                let mut kept = before.iter();
                let kept = kept.position(|held| follows && held.is(&topic, *partition));
                match kept {
                    Some(at) => self.held.push(before.swap_remove(at)),
                    None => match self.held_of(&topic, *partition) {
                        Ok(held) => self.held.push(held),
                        Err(
                            StreamsError::UnknownTopic(_) | StreamsError::UnknownPartition { .. },
                        ) => {}
                        Err(error) => return Err(error),
                    },
                }
            }
        }
        self.adopted.member_id = standing.member_id;
        self.adopted.generation = generation;
        Ok(before)
    }

    /// Records that are there now.
    fn collect(&mut self, max_bytes: usize) -> Result<Vec<ConsumedRecord>, StreamsError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut records = Vec::new();
        if !self.config.reads {
            return Ok(records);
        }
        let mut left = max_bytes.max(1);
        for nth in 0..self.held.len() {
            let at = (self.turn + nth) % self.held.len();
            let held = &mut self.held[at];
            if held.position().is_none() {
                held.start(
                    &self.streams,
                    self.config.group.as_deref(),
                    self.config.auto_offset_reset,
                );
            }
            match held.take(self.config.auto_offset_reset, &mut left, &mut records) {
                Ok(()) => {}
                // The group shares anew when a topic goes; only an assigned one is an error.
                Err(StreamsError::UnknownTopic(_)) if self.membership.is_some() => {}
                Err(error) if records.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
            if left == 0 {
                self.turn = at;
                return Ok(records);
            }
        }
        self.turn = self.turn.wrapping_add(1) % self.held.len().max(1);
        Ok(records)
    }

    /// Where it is in what it has read, of topics that are still there.
    fn polled(&self) -> Vec<(TopicName, i32, i64, String)> {
        let polled = self.held.iter().filter_map(|held| {
            let position = held.polled_position()?;
            let is_there = held.is_in(&self.streams);
            is_there.then(|| (held.topic().clone(), held.index(), position, String::new()))
        });
        polled.collect()
    }

    fn held_of(&self, topic: &TopicName, partition: i32) -> Result<Held, StreamsError> {
        let isolation = self.config.isolation;
        Held::new(&self.streams, topic, partition, isolation, &self.notify)
    }

    fn find(&mut self, topic: &TopicName, partition: i32) -> Result<&mut Held, StreamsError> {
        let found = self.held.iter_mut().find(|held| held.is(topic, partition));
        found.ok_or_else(|| StreamsError::NotAssigned {
            topic: topic.clone(),
            partition,
        })
    }

    fn group(&self) -> Result<&str, StreamsError> {
        let group = self.config.group.as_deref();
        group.ok_or(StreamsError::IllegalState("it was made without a group"))
    }
}

#[async_trait]
impl Consumer for EmbeddedConsumer {
    async fn subscribe(&mut self, topics: Vec<TopicName>) -> Result<(), StreamsError> {
        let group = self.group()?.to_owned();
        if group.is_empty() {
            return Err(StreamsError::Group {
                group,
                reason: GroupError::InvalidGroupId,
            });
        }
        if topics.is_empty() {
            return Err(StreamsError::IllegalState(
                "it subscribes to at least one topic",
            ));
        }
        for topic in &topics {
            match self.streams.topic_or_create(topic).await {
                // Its partitions come with a rebalance once somebody creates it.
                Ok(_) | Err(StreamsError::AutoCreateOff(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.held.clear();
        self.adopted = Adopted::default();
        // The old membership leaves before the new one joins.
        self.membership = None;
        self.membership = Some(Membership::start(
            Arc::clone(&self.streams),
            group,
            self.config.client_id.clone(),
            topics,
            self.config.session_timeout,
            Arc::clone(&self.notify),
        ));
        Ok(())
    }

    async fn assign(&mut self, partitions: Vec<(TopicName, i32)>) -> Result<(), StreamsError> {
        if partitions.len() > CONSUMER_PARTITIONS_MAX {
            return Err(StreamsError::Limit {
                what: "partitions of one consumer",
                max: CONSUMER_PARTITIONS_MAX as u64,
            });
        }
        let mut held: Vec<Held> = Vec::with_capacity(partitions.len());
        for (topic, partition) in &partitions {
            if !held.iter().any(|held| held.is(topic, *partition)) {
                held.push(self.held_of(topic, *partition)?);
            }
        }
        self.membership = None;
        self.held = held;
        Ok(())
    }

    fn assignment(&self) -> Vec<(TopicName, i32)> {
        self.held
            .iter()
            .map(|held| (held.topic().clone(), held.index()))
            .collect()
    }

    async fn poll(
        &mut self,
        max_wait: Duration,
        max_bytes: usize,
    ) -> Result<Vec<ConsumedRecord>, StreamsError> {
        let deadline = Instant::now() + max_wait;
        loop {
            self.adopt()?;
            let records = self.collect(max_bytes)?;
            if !records.is_empty() {
                return Ok(records);
            }
            let told = self.notify.told();
            if tokio::time::timeout_at(deadline, told).await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    async fn commit(
        &mut self,
        offsets: Option<Vec<(TopicName, i32, i64, String)>>,
    ) -> Result<Vec<(TopicName, i32, i64)>, StreamsError> {
        let group = self.group()?.to_owned();
        // What it still holds is its own to commit, in whatever generation the group is by now.
        let given_up = self.adopt()?;
        let is_given_up = |(topic, index, ..): &(TopicName, i32, i64, String)| {
            given_up.iter().any(|held| held.is(topic, *index))
        };
        if offsets.iter().flatten().any(is_given_up) {
            return Err(StreamsError::Group {
                group,
                reason: GroupError::IllegalGeneration,
            });
        }
        let is_asked = offsets.is_some();
        let mut offsets = offsets.unwrap_or_else(|| self.polled());
        if offsets.is_empty() {
            return Ok(Vec::new());
        }
        match &self.membership {
            Some(membership) => {
                membership.check_commit(&self.adopted.member_id, self.adopted.generation)?;
            }
            None => {
                let outside = crate::groups::MemberRef {
                    group: &group,
                    member_id: "",
                    instance_id: None,
                    generation: -1,
                };
                let checked = self.streams.groups().check_commit(outside);
                checked.map_err(|reason| StreamsError::Group {
                    group: group.clone(),
                    reason,
                })?;
            }
        }
        let at = self.streams.clock().now();
        let wait = loop {
            let commits = offsets
                .iter()
                .map(|(topic, partition, offset, metadata)| OffsetCommit {
                    topic: topic.clone(),
                    partition: *partition,
                    offset: *offset,
                    leader_epoch: -1,
                    metadata: metadata.clone(),
                    at,
                });
            match self.streams.commit_offsets(&group, commits.collect()) {
                Err(StreamsError::Busy) => self.streams.room(COMMIT_ROOM_BYTES).await,
                // It went after it was looked for.
                Err(StreamsError::UnknownTopic(_) | StreamsError::UnknownPartition { .. })
                    if !is_asked =>
                {
                    offsets = self.polled();
                }
                outcome => break outcome?,
            }
        };
        wait.await?;
        Ok(offsets
            .into_iter()
            .map(|(topic, index, offset, _)| (topic, index, offset))
            .collect())
    }

    fn position(&self, topic: &TopicName, partition: i32) -> Option<i64> {
        self.held
            .iter()
            .find(|held| held.is(topic, partition))?
            .position()
    }

    fn is_at_end(&self, topic: &TopicName, partition: i32) -> bool {
        let mut held = self.held.iter();
        held.any(|held| held.is(topic, partition) && held.is_at_end())
    }

    async fn seek(
        &mut self,
        topic: &TopicName,
        partition: i32,
        to: SeekTo,
    ) -> Result<(), StreamsError> {
        self.adopt()?;
        self.find(topic, partition)?.seek(to);
        self.notify.tell();
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<(), StreamsError> {
        // Dropping the membership leaves the group.
        drop(self);
        Ok(())
    }
}

impl OffsetReset {
    fn seek(self) -> SeekTo {
        match self {
            OffsetReset::Earliest => SeekTo::Beginning,
            OffsetReset::Latest => SeekTo::End,
        }
    }
}

/// Room to wait for before a commit, in bytes.
const COMMIT_ROOM_BYTES: u64 = 64 << 10;
