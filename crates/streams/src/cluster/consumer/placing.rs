//! Where an assigned consumer begins to read.

use std::collections::BTreeMap;

use rdkafka::consumer::Consumer as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::super::error::About;
use super::super::topics;
use super::{ClusterConsumer, Mode, Place};
use crate::error::StreamsError;
use crate::event_store::{OffsetReset, SeekTo};

impl ClusterConsumer {
    /// Has the client read from our positions, which are worked out first where they are not known.
    pub(super) async fn place(&mut self) -> Result<(), StreamsError> {
        if self.mode != (Mode::Assigned { is_placed: false }) || self.goes_on() {
            return Ok(());
        }
        let client = self.ready().await?;
        let ranges = self.ranges().await?;
        let committed = self.committed().await?;
        let reset = self.config.auto_offset_reset;
        let (mut first, mut behind) = (TopicPartitionList::new(), TopicPartitionList::new());
        let mut settled = BTreeMap::new();
        for (place, position) in &self.positions {
            let (start, end) = ranges.get(place).copied().unwrap_or((0, 0));
            let fallen_back = match reset {
                OffsetReset::Earliest => start,
                OffsetReset::Latest => end,
            };
            let wanted = match (position.moved, position.next, committed.get(place)) {
                (Some(SeekTo::Beginning), ..) => start,
                (Some(SeekTo::End), ..) => end,
                (Some(SeekTo::Offset(offset)), ..) => offset,
                (None, Some(next), _) => next,
                (None, None, Some(committed)) => *committed,
                (None, None, None) => fallen_back,
            };
            let next = match (start..=end).contains(&wanted) {
                true => wanted,
                false => fallen_back,
            };
            let (topic, partition) = place;
            let at = Offset::Offset(next);
            let list = match next < end {
                true => &mut first,
                false => &mut behind,
            };
            let added = list.add_partition_offset(topic.wire_name(), *partition, at);
            self.calls.judged(About::Cluster, added)?;
            settled.insert(place.clone(), next);
        }
        let assigned = self.calls.blocking(About::Cluster, move |_, _| {
            // What the client read ahead from the old positions must be gone before the new ones.
            client.unassign()?;
            // A request for partitions that have nothing waits for records; none is to be sent
            // before those that have some are asked for too.
            match (first.count(), behind.count()) {
                (0, _) => client.assign(&behind),
                (_, 0) => client.assign(&first),
                _ => {
                    client.assign(&first)?;
                    client.incremental_assign(&behind)
                }
            }
        });
        assigned.await?;
        for (place, next) in settled {
            let position = self.positions.entry(place).or_default();
            position.next = Some(next);
            position.moved = None;
            position.is_at_end = false;
        }
        self.mode = Mode::Assigned { is_placed: true };
        Ok(())
    }

    /// What each assigned partition holds for this consumer.
    async fn ranges(&self) -> Result<BTreeMap<Place, (i64, i64)>, StreamsError> {
        let places: Vec<Place> = self.positions.keys().cloned().collect();
        let client = self.client()?;
        let found = self.calls.blocking(About::Cluster, move |_, timeout| {
            topics::ranges(&*client, &places, timeout)
        });
        let mut ranges = BTreeMap::new();
        for (place, outcome) in found.await? {
            let about = About::Partition(&place.0, place.1);
            let range = self.calls.judged(about, outcome)?;
            ranges.insert(place, range);
        }
        Ok(ranges)
    }

    /// The group's offsets of those assigned partitions whose place is not known.
    async fn committed(&self) -> Result<BTreeMap<Place, i64>, StreamsError> {
        let unknown = self
            .positions
            .iter()
            .filter(|(_, position)| position.moved.is_none() && position.next.is_none());
        let places: Vec<Place> = unknown.map(|(place, _)| place.clone()).collect();
        let Some(group) = self.config.group.clone().filter(|_| !places.is_empty()) else {
            return Ok(BTreeMap::new());
        };
        let client = self.client()?;
        let found = self
            .calls
            .blocking(About::Group(&group), move |_, timeout| {
                topics::committed(&*client, &places, timeout)
            });
        let found = found.await?.into_iter();
        Ok(found
            .filter_map(|(place, committed)| Some((place, committed?.0)))
            .collect())
    }
}
