//! Changing topics that are there: their settings, their partitions, where their records begin.

use std::sync::Arc;

use journal::{Done, DurableWait as JournalWait};

use super::{CHANGE_ROOM_BYTES, DurableWait, Streams};
use crate::config::Durability;
use crate::error::StreamsError;
use crate::event_store::HeldSetting;
use crate::frames::Change;
use crate::limits::{PARTITIONS_MAX, PARTITIONS_PER_TOPIC_MAX};
use crate::topic::TopicName;
use crate::topic_config::{
    ConfigChange, ConfigError, DURABILITY, Live, SETTINGS, Setting, TopicConfig,
};
use crate::topics::Topic;

impl Streams {
    /// Changes settings of a topic, all or none, durable on return. The topic follows at once.
    pub async fn alter_topic(
        &self,
        name: &TopicName,
        changes: &[ConfigChange],
    ) -> Result<(), StreamsError> {
        self.set_config(name, |topic| self.config_changed(topic, changes))
            .await
    }

    /// Says what [`Streams::alter_topic`] would, and changes nothing.
    pub fn check_alter(
        &self,
        name: &TopicName,
        changes: &[ConfigChange],
    ) -> Result<(), StreamsError> {
        let topic = self.existing(name)?;
        let config = self.config_changed(&topic, changes)?;
        self.split_config(config, None).map(drop)
    }

    /// Sets exactly these settings of a topic, durable on return; all others get their defaults.
    pub async fn replace_topic_config(
        &self,
        name: &TopicName,
        config: TopicConfig,
    ) -> Result<(), StreamsError> {
        self.set_config(name, |_| Ok(config.clone())).await
    }

    /// Says what [`Streams::replace_topic_config`] would, and changes nothing.
    pub fn check_replace(
        &self,
        name: &TopicName,
        config: &TopicConfig,
    ) -> Result<(), StreamsError> {
        self.existing(name)?;
        self.split_config(config.clone(), None).map(drop)
    }

    /// Has the topic have `count` partitions, more than now; durable on return.
    pub async fn create_partitions(
        &self,
        name: &TopicName,
        count: i32,
    ) -> Result<(), StreamsError> {
        self.begin_create_partitions(name, count).await?.await
    }

    /// As [`Streams::create_partitions`], and returns before it is durable.
    pub(crate) async fn begin_create_partitions(
        &self,
        name: &TopicName,
        count: i32,
    ) -> Result<DurableWait, StreamsError> {
        loop {
            match self.try_grow(name, count) {
                Err(StreamsError::Busy) => self.room(CHANGE_ROOM_BYTES).await,
                outcome => return outcome,
            }
        }
    }

    /// Says what [`Streams::create_partitions`] would, and changes nothing.
    pub fn check_create_partitions(
        &self,
        name: &TopicName,
        count: i32,
    ) -> Result<(), StreamsError> {
        let topic = self.existing(name)?;
        self.partitions_missing(&topic, count).map(drop)
    }

    /// Deletes the records before `offset`, before the end when it is none; durable on return.
    /// Answers where the partition begins then.
    pub async fn delete_records(
        &self,
        name: &TopicName,
        partition: i32,
        offset: Option<i64>,
    ) -> Result<i64, StreamsError> {
        let (start, wait) = self.begin_delete_records(name, partition, offset).await?;
        self.end_delete_records(wait).await?;
        Ok(start)
    }

    /// As [`Streams::delete_records`], and returns before it is durable.
    pub(crate) async fn begin_delete_records(
        &self,
        name: &TopicName,
        partition: i32,
        offset: Option<i64>,
    ) -> Result<(i64, DurableWait), StreamsError> {
        let topic = self.existing(name)?;
        if !topic.settings().is_deleting {
            return Err(StreamsError::NotDeletable(name.clone()));
        }
        let unknown = || StreamsError::UnknownPartition {
            topic: name.clone(),
            partition,
        };
        let partition = topic.partition(partition).ok_or_else(unknown)?;
        let mut wait: Option<JournalWait> = None;
        let start = loop {
            let deleted = partition.delete_before(offset, |standing| {
                let (done, appended) = Done::channel(journal::Durability::Disk);
                self.append_change(&Change::Partition(standing), done)?;
                wait = Some(appended);
                Ok(())
            });
            match deleted {
                Err(StreamsError::Busy) => self.room(CHANGE_ROOM_BYTES).await,
                outcome => break outcome?,
            }
        };
        Ok((start, DurableWait(wait)))
    }

    /// Waits for a deletion of records, and has the space looked after that it frees.
    pub(crate) async fn end_delete_records(&self, wait: DurableWait) -> Result<(), StreamsError> {
        if wait.0.is_some() {
            wait.await?;
            self.shared.keeper.look();
        }
        Ok(())
    }

    /// The settings that hold for a topic, by name.
    pub(crate) fn settings_of(&self, topic: &Topic) -> Vec<HeldSetting> {
        let (set, durability) = (topic.config(), topic.durability());
        let of = |setting: &'static Setting| {
            let set = if setting.name == DURABILITY {
                Some(durability.name()).filter(|_| durability != self.config.durability)
            } else {
                set.value(setting.name)
            };
            HeldSetting {
                name: setting.name,
                is_set: set.is_some(),
                value: set.map_or_else(
                    || setting.default(&self.config, Some(topic.name())),
                    str::to_owned,
                ),
            }
        };
        SETTINGS.iter().map(of).collect()
    }

    /// The settings that a new topic of this name would have, by name.
    pub(crate) fn default_settings(&self, name: &TopicName) -> Vec<HeldSetting> {
        let of = |setting: &'static Setting| HeldSetting {
            name: setting.name,
            is_set: false,
            value: setting.default(&self.config, Some(name)),
        };
        SETTINGS.iter().map(of).collect()
    }

    /// Parts the durability, which topics keep apart, from their other settings; checks what
    /// depends on how the store was opened.
    /// Gives a restored topic its own name and settings, which shows it; what it holds is on the
    /// disk. Await the answer for durability.
    pub(crate) fn rename_restored(
        &self,
        topic: &Topic,
        name: &TopicName,
        config: &TopicConfig,
    ) -> Result<(Arc<Topic>, DurableWait), StreamsError> {
        let (config, durability) = self.split_config(config.clone(), Some(topic.durability()))?;
        let settings = config.settings(&self.config, name, durability);
        let mut topics = self.topics.write();
        if topics.by_name.contains_key(name) {
            return Err(StreamsError::TopicExists(name.clone()));
        }
        if !topics.by_id.contains_key(&topic.id()) {
            return Err(StreamsError::UnknownTopic(topic.name().clone()));
        }
        let wait = self.append_durably(&Change::Topic {
            id: topic.id(),
            name: name.clone(),
            durability,
            ranges: topic.ranges.clone(),
            config: config.clone(),
        })?;
        let mut states = topic
            .partitions()
            .iter()
            .map(|partition| partition.take_restored());
        let renamed = Arc::new(Topic::new(
            topic.id(),
            name.clone(),
            Live::new(config, settings),
            topic.ranges.clone(),
            &self.shared,
            |_| states.next().unwrap_or_default(),
        ));
        topics.remove(topic);
        topics.insert(Arc::clone(&renamed));
        drop(topics);
        self.shared.keeper.look();
        self.topics_version.send_modify(|version| *version += 1);
        Ok((renamed, wait))
    }

    pub(crate) fn split_config(
        &self,
        mut config: TopicConfig,
        durability: Option<Durability>,
    ) -> Result<(TopicConfig, Durability), StreamsError> {
        let set = config.take_durability();
        let durability = durability.or(set).unwrap_or(self.config.durability);
        let ceiling = self.config.message_bytes_ceiling();
        let asked = config.value(MAX_MESSAGE_BYTES);
        if let Some(asked) = asked.filter(|text| text.parse::<u64>().is_ok_and(|n| n > ceiling)) {
            return Err(StreamsError::InvalidConfig(ConfigError::Value {
                name: MAX_MESSAGE_BYTES,
                value: asked.to_owned(),
                wanted: format!("at most {ceiling}, which this store's segments hold"),
            }));
        }
        Ok((config, durability))
    }

    fn existing(&self, name: &TopicName) -> Result<std::sync::Arc<Topic>, StreamsError> {
        let topic = self.topic_by_name(name);
        topic.ok_or_else(|| StreamsError::UnknownTopic(name.clone()))
    }

    /// The topic's settings, durability and all, with these changes.
    fn config_changed(
        &self,
        topic: &Topic,
        changes: &[ConfigChange],
    ) -> Result<TopicConfig, StreamsError> {
        let mut now = (*topic.config()).clone();
        if topic.durability() != self.config.durability {
            now = now.with_durability(topic.durability());
        }
        let changed = now.changed(changes, |setting| {
            setting.default(&self.config, Some(topic.name()))
        });
        changed.map_err(StreamsError::from)
    }

    async fn set_config(
        &self,
        name: &TopicName,
        config_of: impl Fn(&Topic) -> Result<TopicConfig, StreamsError>,
    ) -> Result<(), StreamsError> {
        let wait = loop {
            match self.try_set_config(name, &config_of) {
                Err(StreamsError::Busy) => self.room(CHANGE_ROOM_BYTES).await,
                outcome => break outcome?,
            }
        };
        wait.await?;
        self.shared.keeper.look();
        Ok(())
    }

    fn try_set_config(
        &self,
        name: &TopicName,
        config_of: impl Fn(&Topic) -> Result<TopicConfig, StreamsError>,
    ) -> Result<DurableWait, StreamsError> {
        // Nobody else changes a topic meanwhile, so that memory and journal agree on the order.
        let topics = self.topics.write();
        let topic = topics.by_name.get(name);
        let topic = topic.ok_or_else(|| StreamsError::UnknownTopic(name.clone()))?;
        let (config, durability) = self.split_config(config_of(topic)?, None)?;
        let (done, wait) = Done::channel(journal::Durability::Disk);
        let change = topic.standing_with(config.clone(), durability);
        // Also when the disk is full: a shorter retention may be the way out.
        self.append_vital_change(&change, done)?;
        let wait = DurableWait(Some(wait));
        let settings = config.settings(&self.config, name, durability);
        topic.live.replace(config, settings);
        Ok(wait)
    }

    fn try_grow(&self, name: &TopicName, count: i32) -> Result<DurableWait, StreamsError> {
        let mut topics = self.topics.write();
        let topic = topics.by_name.get(name).cloned();
        let topic = topic.ok_or_else(|| StreamsError::UnknownTopic(name.clone()))?;
        let missing = self.partitions_missing(&topic, count)?;
        let left = PARTITIONS_MAX.saturating_sub(topics.partitions);
        if missing > left {
            return Err(StreamsError::Limit {
                what: "partitions of the store",
                max: u64::from(PARTITIONS_MAX),
            });
        }
        let grown = topic.grown((topics.next_partition, missing), &self.shared);
        let wait = self.append_durably(&grown.standing())?;
        topics.remove(&topic);
        topics.insert(std::sync::Arc::new(grown));
        drop(topics);
        self.topics_version.send_modify(|version| *version += 1);
        Ok(wait)
    }

    fn partitions_missing(&self, topic: &Topic, count: i32) -> Result<u32, StreamsError> {
        let now = i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX);
        if count > PARTITIONS_PER_TOPIC_MAX {
            return Err(StreamsError::InvalidPartitions {
                partitions: count,
                max: PARTITIONS_PER_TOPIC_MAX,
            });
        }
        match u32::try_from(i64::from(count) - i64::from(now)) {
            Ok(missing) if missing > 0 => Ok(missing),
            _ => Err(StreamsError::PartitionsOnlyGrow {
                topic: topic.name().clone(),
                now,
            }),
        }
    }
}

const MAX_MESSAGE_BYTES: &str = "max.message.bytes";
