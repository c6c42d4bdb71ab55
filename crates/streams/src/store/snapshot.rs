//! What a snapshot consists of, and where the newest lies.

use std::sync::atomic::Ordering;

use journal::Position;

use super::Streams;
use crate::error::StreamsError;
use crate::frames::Change;
use crate::limits::SNAPSHOT_FRAME_BYTES;

impl Streams {
    /// Where the newest complete snapshot began.
    pub(crate) fn snapshot_began(&self) -> Position {
        Position(self.snapshot_began.load(Ordering::Acquire))
    }

    /// The journal's end when batches were last moved; a segment goes only after a snapshot that
    /// began later.
    pub(crate) fn moved_until(&self) -> Position {
        Position(self.moved_until.load(Ordering::Acquire))
    }

    pub(crate) fn note_moved(&self, until: Position) {
        self.moved_until.store(until.0, Ordering::Release);
    }

    /// Bytes from the newest complete snapshot's begin to its end.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.snapshot_bytes.load(Ordering::Relaxed)
    }

    /// A snapshot that began and ended here is complete.
    pub(crate) fn set_snapshot(&self, began: Position, end: Position) {
        self.snapshot_bytes
            .store(end.0 - began.0, Ordering::Relaxed);
        self.snapshot_began.store(began.0, Ordering::Release);
    }

    /// Position of the oldest batch that a topic still holds.
    pub(crate) fn oldest_batch(&self) -> Option<Position> {
        let topics = self.topics_snapshot();
        let partitions = topics.iter().flat_map(|topic| topic.partitions());
        partitions
            .filter_map(|partition| partition.first_position())
            .min()
    }

    /// Shows `append` every change that a snapshot consists of, each while what it tells of
    /// cannot change; waits on this thread and shows it once more after `Busy`.
    pub(crate) fn snapshot_changes(
        &self,
        append: &mut dyn FnMut(&Change) -> Result<(), StreamsError>,
    ) -> Result<(), StreamsError> {
        self.until_not_busy(|| {
            let topics = self.topics.read();
            let ids = self.producer_ids.lock();
            append(&self.standing(topics.next_partition, ids.promised))
        })?;
        for topic in self.topics_snapshot() {
            self.until_not_busy(|| {
                let topics = self.topics.read();
                let topic = topics.by_id.get(&topic.id());
                topic.map_or(Ok(()), |topic| append(&topic.standing()))
            })?;
            for partition in topic.partitions() {
                let mut from = None;
                loop {
                    from = self.until_not_busy(|| partition.append_standing(from, append))?;
                    if from.is_none() {
                        break;
                    }
                }
            }
        }
        // Before the groups: a decision that stands before its transaction was told here counts
        // through the offsets of its groups, which are told after it.
        self.snapshot_transactions(append)?;
        let groups = self.offsets.lock().standing_groups();
        // A segment has to hold each.
        let piece_bytes = self.config.message_bytes_ceiling();
        let piece_bytes = usize::try_from(piece_bytes).unwrap_or(usize::MAX);
        let piece_bytes = piece_bytes.min(SNAPSHOT_FRAME_BYTES);
        for group in groups {
            let mut from = Some(0);
            while let Some(first) = from {
                from = self.until_not_busy(|| {
                    let standing = self.offsets.lock();
                    let (offsets, next) = standing.standing(&group, first, piece_bytes);
                    if !offsets.is_empty() {
                        append(&Change::GroupOffsets {
                            group: group.as_ref().to_owned(),
                            offsets,
                        })?;
                    }
                    Ok(next)
                })?;
            }
        }
        let noted = self.offsets.lock().noted_groups();
        for (group, _) in noted {
            self.until_not_busy(|| {
                let offsets = self.offsets.lock();
                let Some(noted) = offsets.noted(&group) else {
                    return Ok(());
                };
                append(&Change::Group {
                    group: group.as_ref().to_owned(),
                    noted: noted.clone(),
                })
            })?;
        }
        for shared in self.shares.all() {
            self.until_not_busy(|| match shared.hold().in_flight() {
                Some(in_flight) => append(&shared.standing(in_flight)),
                None => Ok(()),
            })?;
        }
        let kept = self.offsets.lock().kept_groups();
        for group in kept {
            self.until_not_busy(|| {
                let offsets = self.offsets.lock();
                let Some(roll) = offsets.roll(&group) else {
                    return Ok(());
                };
                append(&Change::GroupMembers {
                    group: group.as_ref().to_owned(),
                    roll: roll.to_vec(),
                })
            })?;
        }
        let configured = self.offsets.lock().groups_with_settings();
        for group in configured {
            self.until_not_busy(|| {
                let offsets = self.offsets.lock();
                append(&Change::GroupSettings {
                    group: group.as_ref().to_owned(),
                    config: offsets.settings(&group),
                })
            })?;
        }
        Ok(())
    }
}
