//! What PublishKafka has on record.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::flowfile::{FlowFile, FlowFileId};

/// What must be remembered over a crash.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ProducerState {
    pub(super) version: u8,
    pub(super) producer: Option<(i64, i16)>,
    /// The next sequence of each partition.
    pub(super) next: BTreeMap<String, BTreeMap<i32, i32>>,
    /// Batches that may or may not have been stored.
    pub(super) doubt: Vec<Doubt>,
    /// FlowFiles that the broker has under an earlier producer id and that still wait for their
    /// commit: not to be sent again.
    #[serde(default)]
    pub(super) stored: Vec<(u64, u64)>,
}

/// A batch that may or may not have been stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Doubt {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) first_sequence: i32,
    /// FlowFiles in their order, as runs: first id and count.
    pub(super) runs: Vec<(u64, u64)>,
}

/// A topic's partition.
pub(super) type Place = (String, i32);

impl ProducerState {
    /// A partition's next record gets this sequence.
    pub(super) fn advance(&mut self, (topic, partition): &Place, next: i32) {
        let partitions = self.next.entry(topic.clone()).or_default();
        partitions.insert(*partition, next);
    }
}

/// The sequence `count` records after `first`; they wrap from the largest to zero.
pub(super) fn next_sequence(first: i32, count: usize) -> i32 {
    let next = (i64::from(first) + count as i64) % (1 << 31);
    i32::try_from(next).unwrap_or(0)
}

/// The ids of runs: first id and count.
pub(super) fn ids(runs: &[(u64, u64)]) -> impl Iterator<Item = FlowFileId> {
    runs.iter()
        .flat_map(|(first, count)| (*first..first + count).map(FlowFileId))
}

/// FlowFiles in their order as runs.
pub(super) fn runs(flow_files: &[FlowFile]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for flow_file in flow_files {
        let id = flow_file.id().0;
        match runs.last_mut() {
            Some((first, count)) if *first + *count == id => *count += 1,
            _ => runs.push((id, 1)),
        }
    }
    runs
}

/// As it goes on record.
pub(super) fn to_bytes(state: &ProducerState) -> Bytes {
    Bytes::from(serde_json::to_vec(state).expect("plain numbers and texts are always JSON"))
}
