//! Sets of partitions, by topic id.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

/// A set of partitions; a topic without partitions is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions(BTreeMap<Uuid, BTreeSet<i32>>);

impl Partitions {
    /// Puts a partition in; false when it was in before.
    pub fn insert(&mut self, topic: Uuid, partition: i32) -> bool {
        self.0.entry(topic).or_default().insert(partition)
    }

    /// Takes a partition out; false when it was not in.
    pub fn remove(&mut self, topic: Uuid, partition: i32) -> bool {
        let Some(partitions) = self.0.get_mut(&topic) else {
            return false;
        };
        let was_in = partitions.remove(&partition);
        if partitions.is_empty() {
            self.0.remove(&topic);
        }
        was_in
    }

    /// Whether a partition is in.
    pub fn contains(&self, topic: Uuid, partition: i32) -> bool {
        self.0.get(&topic).is_some_and(|p| p.contains(&partition))
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
    pub fn iter(&self) -> impl Iterator<Item = (Uuid, i32)> + '_ {
        let each = |(topic, partitions): (&Uuid, &BTreeSet<i32>)| {
            let topic = *topic;
            let partitions: Vec<i32> = partitions.iter().copied().collect();
            partitions.into_iter().map(move |p| (topic, p))
        };
        self.0.iter().flat_map(each)
    }

    /// The partitions of each topic.
    pub fn by_topic(&self) -> impl Iterator<Item = (Uuid, &BTreeSet<i32>)> + '_ {
        self.0
            .iter()
            .map(|(topic, partitions)| (*topic, partitions))
    }

    /// Whether every partition is in `other` too.
    pub fn is_within(&self, other: &Partitions) -> bool {
        self.iter().all(|(topic, p)| other.contains(topic, p))
    }

    /// Whether a partition is in both.
    pub fn meets(&self, other: &Partitions) -> bool {
        self.iter().any(|(topic, p)| other.contains(topic, p))
    }

    /// What is in both, and what is only in this one.
    pub fn split_by(&self, other: &Partitions) -> (Partitions, Partitions) {
        self.iter()
            .partition(|(topic, p)| other.contains(*topic, *p))
    }
}

impl FromIterator<(Uuid, i32)> for Partitions {
    fn from_iter<I: IntoIterator<Item = (Uuid, i32)>>(partitions: I) -> Self {
        let mut set = Partitions::default();
        set.extend(partitions);
        set
    }
}

impl Extend<(Uuid, i32)> for Partitions {
    fn extend<I: IntoIterator<Item = (Uuid, i32)>>(&mut self, partitions: I) {
        for (topic, partition) in partitions {
            self.insert(topic, partition);
        }
    }
}
