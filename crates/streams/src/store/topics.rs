//! Topics: found, created, deleted.

use std::sync::Arc;

use tokio::sync::watch;
use uuid::Uuid;

use super::{CHANGE_ROOM_BYTES, DurableWait, Streams};
use crate::error::StreamsError;
use crate::event_store::TopicSpec;
use crate::frames::Change;
use crate::offsets::OffsetChange;
use crate::partition::State;
use crate::topic::TopicName;
use crate::topic_config::Live;
use crate::topics::Topic;

impl Streams {
    /// All topics, by wire name.
    pub fn topics_snapshot(&self) -> Vec<Arc<Topic>> {
        self.topics.read().by_name.values().cloned().collect()
    }

    /// The topic of this name.
    pub fn topic_by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.topics.read().by_name.get(name).cloned()
    }

    /// The topic of this id.
    pub fn topic_by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        self.topics.read().by_id.get(&id).cloned()
    }

    /// Creates a topic, durable on return; calls that run together share a sync.
    pub async fn create_topic(&self, spec: TopicSpec) -> Result<Arc<Topic>, StreamsError> {
        let (topic, wait) = self.begin_create_topic(spec).await?;
        wait.await?;
        Ok(topic)
    }

    /// Creates a topic and returns before it is durable, so that many share one sync; await the
    /// answer before telling anybody.
    pub(crate) async fn begin_create_topic(
        &self,
        spec: TopicSpec,
    ) -> Result<(Arc<Topic>, DurableWait), StreamsError> {
        if spec.name.is_restoring() {
            return Err(StreamsError::InternalTopic(spec.name));
        }
        self.begin_create_any_topic(spec).await
    }

    /// As [`Streams::begin_create_topic`], whatever the name.
    pub(crate) async fn begin_create_any_topic(
        &self,
        spec: TopicSpec,
    ) -> Result<(Arc<Topic>, DurableWait), StreamsError> {
        loop {
            match self.try_create(&spec) {
                Err(StreamsError::Busy) => self.room(CHANGE_ROOM_BYTES).await,
                outcome => return outcome,
            }
        }
    }

    /// Says what [`Streams::create_topic`] would: the number of partitions, or its error.
    pub fn check_create(&self, spec: &TopicSpec) -> Result<i32, StreamsError> {
        self.split_config(spec.config.clone(), spec.durability)?;
        let topics = self.topics.read();
        topics.check_create(&self.config, spec)
    }

    /// Deletes a topic, durable on return.
    pub async fn delete_topic(&self, name: &TopicName) -> Result<(), StreamsError> {
        let deleted = self.begin_delete_topic(name).await?;
        self.end_delete_topic(deleted).await
    }

    /// As [`Streams::begin_create_topic`]: [`Streams::end_delete_topic`] waits.
    pub(crate) async fn begin_delete_topic(
        &self,
        name: &TopicName,
    ) -> Result<DurableWait, StreamsError> {
        loop {
            match self.try_delete(name) {
                Err(StreamsError::Busy) => self.room(CHANGE_ROOM_BYTES).await,
                outcome => return outcome,
            }
        }
    }

    /// Waits for a deletion, and has the space looked after that it frees.
    pub(crate) async fn end_delete_topic(&self, deleted: DurableWait) -> Result<(), StreamsError> {
        deleted.await?;
        self.shared.keeper.look();
        Ok(())
    }

    /// The topic, created by the store's or its stream's policy when it is not there.
    pub async fn topic_or_create(&self, name: &TopicName) -> Result<Arc<Topic>, StreamsError> {
        loop {
            if let Some(topic) = self.topic_by_name(name) {
                return Ok(topic);
            }
            if !self.config.creation_policy(name).autocreate {
                return Err(StreamsError::AutoCreateOff(name.clone()));
            }
            match self.create_topic(TopicSpec::of(name.clone())).await {
                // Somebody else was faster: theirs will do.
                Err(StreamsError::TopicExists(_)) => {}
                outcome => return outcome,
            }
        }
    }

    /// One of Kafka's internal topics, created whatever the policy when it is not there.
    pub async fn internal_or_create(&self, name: TopicName) -> Result<Arc<Topic>, StreamsError> {
        self.needed_or_create(TopicSpec::of(name).with_partitions(1))
            .await
    }

    /// A topic that the store cannot do without, created whatever the policy when it is not there.
    pub(crate) async fn needed_or_create(
        &self,
        spec: TopicSpec,
    ) -> Result<Arc<Topic>, StreamsError> {
        loop {
            if let Some(topic) = self.topic_by_name(&spec.name) {
                return Ok(topic);
            }
            match self.create_topic(spec.clone()).await {
                // Somebody else was faster: theirs will do.
                Err(StreamsError::TopicExists(_)) => {}
                outcome => return outcome,
            }
        }
    }

    /// Changes whenever a topic is created or deleted.
    pub fn topics_changed(&self) -> watch::Receiver<u64> {
        self.topics_version.subscribe()
    }

    fn try_create(&self, spec: &TopicSpec) -> Result<(Arc<Topic>, DurableWait), StreamsError> {
        let mut topics = self.topics.write();
        let count = topics.check_create(&self.config, spec)?;
        let count = u32::try_from(count).expect("checked to be above zero");
        let ranges = vec![(topics.next_partition, count)];
        let id = Uuid::new_v4();
        let (config, durability) = self.split_config(spec.config.clone(), spec.durability)?;
        let settings = config.settings(&self.config, &spec.name, durability);
        let topic = Topic::new(
            id,
            spec.name.clone(),
            Live::new(config, settings),
            ranges,
            &self.shared,
            |_| State::default(),
        );
        let wait = self.append_durably(&topic.standing())?;
        let topic = Arc::new(topic);
        topics.insert(Arc::clone(&topic));
        drop(topics);
        if settings.deletion_age().is_some() {
            self.shared.keeper.look();
        }
        self.topics_version.send_modify(|version| *version += 1);
        Ok((topic, wait))
    }

    pub(crate) fn try_delete(&self, name: &TopicName) -> Result<DurableWait, StreamsError> {
        let mut transactions = self.transactions.table.lock();
        let mut topics = self.topics.write();
        let topic = topics.by_name.get(name).cloned();
        let topic = topic.ok_or_else(|| StreamsError::UnknownTopic(name.clone()))?;
        let mut offsets = self.offsets.lock();
        let change = Change::TopicDeleted {
            id: topic.id(),
            ranges: topic.ranges.clone(),
        };
        let wait = self.append_offsets(&change)?;
        offsets.queue(OffsetChange::DeletePartitions(topic.ranges.clone()));
        drop(offsets);
        transactions.forget_partitions(&topic.ranges);
        drop(transactions);
        topics.remove(&topic);
        drop(topics);
        topic
            .partitions()
            .iter()
            .for_each(|partition| partition.delete());
        let is_of = |number: u32| {
            let mut ranges = topic.ranges.iter();
            ranges.any(|(first, count)| number.wrapping_sub(*first) < *count)
        };
        self.censuses().lock().retain(|number, _| !is_of(*number));
        self.shares.forget_numbers(is_of);
        self.topics_version.send_modify(|version| *version += 1);
        Ok(wait)
    }
}
