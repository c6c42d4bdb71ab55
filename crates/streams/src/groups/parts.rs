//! Sets of numbered parts: partitions of topics, tasks of subtopologies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

/// Partitions, by topic id.
pub type Partitions = Parts<Uuid>;

/// Tasks of a Kafka Streams application, by subtopology: each reads the partition of its number of
/// the subtopology's topics.
pub type Tasks = Parts<Arc<str>>;

/// A set of parts; a whole without parts is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts<K>(BTreeMap<K, BTreeSet<i32>>);

impl<K: Ord + Clone> Parts<K> {
    /// Puts a partition in; false when it was in before.
    pub fn insert(&mut self, topic: K, partition: i32) -> bool {
        self.0.entry(topic).or_default().insert(partition)
    }

    /// Takes a partition out; false when it was not in.
    pub fn remove(&mut self, topic: &K, partition: i32) -> bool {
        let Some(partitions) = self.0.get_mut(topic) else {
            return false;
        };
        let was_in = partitions.remove(&partition);
        if partitions.is_empty() {
            self.0.remove(topic);
        }
        was_in
    }

    /// Whether a partition is in.
    pub fn contains(&self, topic: &K, partition: i32) -> bool {
        self.0.get(topic).is_some_and(|p| p.contains(&partition))
    }

    /// Whether nothing is in.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many partitions are in.
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// Every partition, by topic and index.
    pub fn iter(&self) -> impl Iterator<Item = (K, i32)> + '_ {
        let each = |(topic, partitions): (&K, &BTreeSet<i32>)| {
            let topic = topic.clone();
            let partitions: Vec<i32> = partitions.iter().copied().collect();
            partitions.into_iter().map(move |p| (topic.clone(), p))
        };
        self.0.iter().flat_map(each)
    }

    /// The partitions of each topic.
    pub fn by_topic(&self) -> impl Iterator<Item = (&K, &BTreeSet<i32>)> + '_ {
        self.0.iter()
    }

    /// Whether every partition is in `other` too.
    pub fn is_within(&self, other: &Self) -> bool {
        self.iter().all(|(topic, p)| other.contains(&topic, p))
    }

    /// Whether a partition is in both.
    pub fn meets(&self, other: &Self) -> bool {
        self.iter().any(|(topic, p)| other.contains(&topic, p))
    }

    /// What is in both, and what is only in this one.
    pub fn split_by(&self, other: &Self) -> (Self, Self) {
        self.iter()
            .partition(|(topic, p)| other.contains(topic, *p))
    }
}

impl<K> Default for Parts<K> {
    fn default() -> Self {
        Parts(BTreeMap::new())
    }
}

impl<K: Ord + Clone> FromIterator<(K, i32)> for Parts<K> {
    fn from_iter<I: IntoIterator<Item = (K, i32)>>(parts: I) -> Self {
        let mut set = Parts::default();
        set.extend(parts);
        set
    }
}

impl<K: Ord + Clone> Extend<(K, i32)> for Parts<K> {
    fn extend<I: IntoIterator<Item = (K, i32)>>(&mut self, parts: I) {
        for (topic, partition) in parts {
            self.insert(topic, partition);
        }
    }
}
