//! The topics of a store: by name, by id, and by the numbers of their partitions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use crate::config::{Durability, StreamsConfig};
use crate::error::StreamsError;
use crate::event_store::{TopicInfo, TopicSpec};
use crate::frames::{Change, Range};
use crate::limits::{PARTITIONS_MAX, PARTITIONS_PER_TOPIC_MAX};
use crate::partition::{Partition, Shared, State};
use crate::recovery::Replay;
use crate::topic::TopicName;
use crate::topic_config::{Live, TopicConfig, TopicSettings};

/// A topic. Deleting it does not take it from those who hold it; its partitions refuse then.
pub struct Topic {
    name: TopicName,
    id: Uuid,
    pub(crate) live: Arc<Live>,
    pub(crate) ranges: Vec<Range>,
    partitions: Vec<Arc<Partition>>,
}

/// All topics.
#[derive(Default)]
pub(crate) struct Topics {
    pub(crate) by_name: BTreeMap<TopicName, Arc<Topic>>,
    pub(crate) by_id: HashMap<Uuid, Arc<Topic>>,
    /// By the first number of each range of partition numbers.
    by_number: BTreeMap<u32, (u32, Arc<Topic>)>,
    /// The number that the next partition gets; never given again.
    pub(crate) next_partition: u32,
    /// How many partitions there are.
    pub(crate) partitions: u32,
}

impl Topic {
    pub(crate) fn new(
        id: Uuid,
        name: TopicName,
        live: Arc<Live>,
        ranges: Vec<Range>,
        shared: &Arc<Shared>,
        mut state_of: impl FnMut(u32) -> State,
    ) -> Self {
        let numbers = ranges
            .iter()
            .flat_map(|(first, count)| *first..first.saturating_add(*count));
        let partitions = numbers.zip(0..).map(|(number, index)| {
            let (topic, shared) = (name.clone(), Arc::clone(shared));
            let state = state_of(number);
            let live = Arc::clone(&live);
            Arc::new(Partition::new(number, index, topic, live, shared, state))
        });
        let partitions = partitions.collect();
        Topic {
            name,
            id,
            live,
            partitions,
            ranges,
        }
    }

    /// The same topic with more partitions; those that it has are shared with this one.
    pub(crate) fn grown(&self, range: Range, shared: &Arc<Shared>) -> Self {
        let mut ranges = self.ranges.clone();
        ranges.push(range);
        let mut partitions = self.partitions.clone();
        for number in range.0..range.0.saturating_add(range.1) {
            let index = i32::try_from(partitions.len()).unwrap_or(i32::MAX);
            partitions.push(Arc::new(Partition::new(
                number,
                index,
                self.name.clone(),
                Arc::clone(&self.live),
                Arc::clone(shared),
                State::default(),
            )));
        }
        Topic {
            name: self.name.clone(),
            id: self.id,
            live: Arc::clone(&self.live),
            ranges,
            partitions,
        }
    }

    /// Its name.
    pub fn name(&self) -> &TopicName {
        &self.name
    }

    /// Its id.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// What acknowledgements promise.
    pub fn durability(&self) -> Durability {
        self.live.settings().durability
    }

    /// What was set for it.
    pub fn config(&self) -> Arc<TopicConfig> {
        self.live.config()
    }

    /// What holds for it.
    pub fn settings(&self) -> TopicSettings {
        self.live.settings()
    }

    /// Its partitions, by index.
    pub fn partitions(&self) -> &[Arc<Partition>] {
        &self.partitions
    }

    /// One partition, when it exists.
    pub fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.partitions.get(index))
    }

    /// The topic as it stands.
    pub fn info(&self) -> TopicInfo {
        let mut info = TopicInfo {
            name: self.name.clone(),
            id: Some(self.id),
            partitions: i32::try_from(self.partitions.len()).unwrap_or(i32::MAX),
            records_in_total: 0,
            bytes_in_total: None,
            bytes_stored: None,
            durability: self.durability(),
            partition_offsets: Vec::with_capacity(self.partitions.len()),
        };
        let (mut bytes_in, mut bytes_stored) = (0, 0);
        for partition in &self.partitions {
            let figures = partition.figures();
            info.records_in_total += figures.records_in;
            bytes_in += figures.bytes_in;
            bytes_stored += figures.bytes_stored;
            info.partition_offsets.push(figures.offsets);
        }
        info.bytes_in_total = Some(bytes_in);
        info.bytes_stored = Some(bytes_stored);
        info
    }

    pub(crate) fn standing(&self) -> Change {
        self.standing_with((*self.config()).clone(), self.durability())
    }

    /// How it will stand with these settings.
    pub(crate) fn standing_with(&self, config: TopicConfig, durability: Durability) -> Change {
        Change::Topic {
            id: self.id,
            name: self.name.clone(),
            durability,
            ranges: self.ranges.clone(),
            config,
        }
    }
}

impl Topics {
    pub(crate) fn replayed(
        replay: &mut Replay,
        config: &StreamsConfig,
        shared: &Arc<Shared>,
    ) -> Self {
        let mut topics = Topics {
            next_partition: replay.next_partition,
            ..Topics::default()
        };
        for (id, topic) in std::mem::take(&mut replay.topics) {
            let state_of = |number| replay.take_partition(number);
            let settings = topic.config.settings(config, &topic.name, topic.durability);
            topics.insert(Arc::new(Topic::new(
                id,
                topic.name,
                Live::new(topic.config, settings),
                topic.ranges,
                shared,
                state_of,
            )));
        }
        topics
    }

    pub(crate) fn check_create(
        &self,
        config: &StreamsConfig,
        spec: &TopicSpec,
    ) -> Result<i32, StreamsError> {
        if self.by_name.contains_key(&spec.name) {
            return Err(StreamsError::TopicExists(spec.name.clone()));
        }
        let policy = config.creation_policy(&spec.name);
        let partitions = spec.partitions.unwrap_or(policy.partitions);
        let left = PARTITIONS_MAX.saturating_sub(self.partitions);
        let max = i32::try_from(left)
            .unwrap_or(i32::MAX)
            .min(PARTITIONS_PER_TOPIC_MAX);
        if !(1..=max).contains(&partitions) {
            return Err(StreamsError::InvalidPartitions { partitions, max });
        }
        Ok(partitions)
    }

    pub(crate) fn insert(&mut self, topic: Arc<Topic>) {
        for (first, count) in &topic.ranges {
            self.by_number.insert(*first, (*count, Arc::clone(&topic)));
            self.partitions = self.partitions.saturating_add(*count);
            self.next_partition = self.next_partition.max(first.saturating_add(*count));
        }
        self.by_id.insert(topic.id, Arc::clone(&topic));
        self.by_name.insert(topic.name.clone(), topic);
    }

    pub(crate) fn remove(&mut self, topic: &Topic) {
        for (first, count) in &topic.ranges {
            self.by_number.remove(first);
            self.partitions = self.partitions.saturating_sub(*count);
        }
        self.by_id.remove(&topic.id);
        self.by_name.remove(&topic.name);
    }

    pub(crate) fn partition(
        &self,
        topic: &TopicName,
        index: i32,
    ) -> Result<&Arc<Partition>, StreamsError> {
        let Some(found) = self.by_name.get(topic) else {
            return Err(StreamsError::UnknownTopic(topic.clone()));
        };
        let unknown = || StreamsError::UnknownPartition {
            topic: topic.clone(),
            partition: index,
        };
        found.partition(index).ok_or_else(unknown)
    }

    pub(crate) fn partition_by_number(&self, number: u32) -> Option<&Arc<Partition>> {
        let (_, (_, topic)) = self.by_number.range(..=number).next_back()?;
        let mut before = 0_usize;
        for (first, count) in &topic.ranges {
            let nth = number.wrapping_sub(*first);
            if nth < *count {
                return topic.partitions.get(before + nth as usize);
            }
            before += *count as usize;
        }
        None
    }

    pub(crate) fn count(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn records(&self) -> u64 {
        let partitions = self.by_name.values().flat_map(|topic| &topic.partitions);
        let held = partitions.map(|partition| partition.figures().offsets);
        held.map(|offsets| (offsets.end - offsets.start).unsigned_abs())
            .sum()
    }
}

impl std::fmt::Debug for Topic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.id)
    }
}
