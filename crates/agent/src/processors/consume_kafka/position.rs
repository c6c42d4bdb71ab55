//! Where reading goes on, as the processor's state keeps it.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::kafka::Offsets;

/// Positions by topic and partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Positions {
    version: u8,
    topics: BTreeMap<String, BTreeMap<i32, Position>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    /// Behind the last record that is in the repository.
    next: i64,
    /// What the group is known to have.
    committed: i64,
}

impl Positions {
    /// What is on record; nothing where that is unreadable.
    pub(super) fn read(state: &Bytes) -> Self {
        serde_json::from_slice(state).unwrap_or_default()
    }

    /// As it goes on record.
    pub(super) fn to_bytes(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("plain numbers and texts are always JSON"))
    }

    /// Where to go on when the group has `committed`; nothing when nobody knows.
    pub(super) fn resume(
        &mut self,
        topic: &str,
        partition: i32,
        committed: Option<i64>,
    ) -> Option<i64> {
        let known = self
            .topics
            .get(topic)
            .and_then(|of| of.get(&partition))
            .copied();
        match (known, committed) {
            (None, committed) => committed,
            // The group never had one, or lost it: what is in the repository counts.
            (Some(known), None) => Some(known.next),
            (Some(known), Some(committed)) => {
                let is_own = (known.committed..=known.next).contains(&committed);
                if !is_own {
                    self.forget(topic, partition);
                }
                Some(if is_own { known.next } else { committed })
            }
        }
    }

    /// Reading got from `from` to `next`.
    pub(super) fn advance(&mut self, topic: &str, partition: i32, from: i64, next: i64) {
        let partitions = self.topics.entry(topic.to_owned()).or_default();
        let fresh = Position {
            next,
            committed: from,
        };
        partitions.entry(partition).or_insert(fresh).next = next;
    }

    /// The group has these now.
    pub(super) fn committed(&mut self, offsets: &Offsets) {
        for ((topic, partition), offset) in offsets {
            let partitions = self.topics.get_mut(topic);
            if let Some(known) = partitions.and_then(|of| of.get_mut(partition)) {
                known.committed = *offset;
            }
        }
    }

    /// Nothing is known of a partition any more.
    pub(super) fn forget(&mut self, topic: &str, partition: i32) {
        if let Some(partitions) = self.topics.get_mut(topic) {
            partitions.remove(&partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_lagging_commit_is_told_from_another_s() {
        let mut positions = Positions::default();
        positions.advance("t", 0, 100, 150);
        let at = |committed| positions.clone().resume("t", 0, committed);
        assert_eq!(at(Some(100)), Some(150), "the commit was lost");
        assert_eq!(
            at(Some(130)),
            Some(150),
            "an earlier commit was not heard of"
        );
        assert_eq!(at(Some(150)), Some(150));
        assert_eq!(at(Some(151)), Some(151), "another member read on");
        assert_eq!(at(Some(20)), Some(20), "somebody set it back");
        assert_eq!(at(None), Some(150));
        assert_eq!(positions.clone().resume("t", 1, None), None);
        positions.committed(&Offsets::from([(("t".to_owned(), 0), 150)]));
        assert_eq!(
            positions.clone().resume("t", 0, Some(100)),
            Some(100),
            "set back"
        );
        let read = Positions::read(&positions.to_bytes());
        assert_eq!(read, positions);
        assert_eq!(
            Positions::read(&Bytes::from_static(b"nonsense")),
            Positions::default()
        );
    }
}
