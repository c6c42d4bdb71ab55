//! How far groups are behind. Counted only when somebody asks, so that it costs nothing at rest.

use crate::store::Streams;
use crate::topic::TopicName;

/// How many records of a partition a group has not yet committed, or a share group not yet dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The group.
    pub group: String,
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// The records.
    pub records: i64,
}

impl Streams {
    /// The lags of all groups, the first `metrics.lags_max` in the order of groups, topics and
    /// partitions, share groups last.
    pub fn lags(&self) -> Vec<Lag> {
        let max = self.config().metrics.lags_max;
        let mut lags = Vec::new();
        for group in self.groups_with_offsets() {
            for offset in self.committed_all(&group) {
                if lags.len() == max {
                    return lags;
                }
                let topic = self.topic_by_name(&offset.topic);
                let Some(partition) = topic.as_ref().and_then(|t| t.partition(offset.partition))
                else {
                    continue;
                };
                // What has expired cannot be read any more, so it is no lag.
                let from = offset.committed.offset.max(partition.log_start_offset());
                let records = partition.high_watermark().saturating_sub(from).max(0);
                lags.push(Lag {
                    group: group.clone(),
                    topic: offset.topic,
                    partition: offset.partition,
                    records,
                });
            }
        }
        for group in self.groups_that_share() {
            for of in self.share_offsets(&group) {
                if lags.len() == max {
                    return lags;
                }
                lags.push(Lag {
                    group: group.as_ref().to_owned(),
                    topic: of.partition.topic().clone(),
                    partition: of.partition.index(),
                    records: of.lag,
                });
            }
        }
        lags
    }
}
