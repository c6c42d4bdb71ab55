//! Offsets that groups commit, and what is known of groups beside them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use journal::{Done, JournalError};

use super::{DurableWait, Streams};
use crate::error::StreamsError;
use crate::event_store::CommittedOffset;
use crate::frames::Change;
use crate::groups::{GroupDescription, GroupKind, GroupStanding, GroupState};
use crate::offsets::{GroupOffset, NotedGroup, OffsetChange, OffsetCommit};
use crate::topic::TopicName;

impl Streams {
    /// Stores offsets of a group together; await the answer for durability, from when on they
    /// count. Fails as a whole when a topic or partition is unknown. After `Busy` wait for
    /// [`Streams::room`].
    pub fn commit_offsets(
        &self,
        group: &str,
        offsets: Vec<OffsetCommit>,
    ) -> Result<DurableWait, StreamsError> {
        if offsets.is_empty() {
            return Ok(DurableWait(None));
        }
        let mut stored = Vec::with_capacity(offsets.len());
        // Holding the topics keeps a deletion from slipping between the check and the append.
        let topics = self.topics.read();
        let mut standing = self.offsets.lock();
        standing.check(group, &offsets)?;
        for commit in offsets {
            let number = topics.partition(&commit.topic, commit.partition)?.number();
            stored.push((
                number,
                CommittedOffset {
                    offset: commit.offset,
                    leader_epoch: commit.leader_epoch,
                    metadata: commit.metadata,
                    at: commit.at,
                },
            ));
        }
        standing.check_room(group, &stored)?;
        let change = Change::GroupOffsets {
            group: group.to_owned(),
            offsets: stored.clone(),
        };
        let wait = self.append_offsets(&change)?;
        let group: Arc<str> = Arc::from(group);
        standing.note_commit(&group, self.clock.now());
        standing.queue(OffsetChange::Commit(group, stored));
        drop(standing);
        self.shared.keeper.note_groups();
        Ok(wait)
    }

    /// What a group has committed for a partition.
    pub fn committed_offset(
        &self,
        group: &str,
        topic: &TopicName,
        partition: i32,
    ) -> Option<CommittedOffset> {
        let number = self
            .topics
            .read()
            .partition(topic, partition)
            .ok()?
            .number();
        self.offsets.lock().of(group, number).cloned()
    }

    /// All that a group has committed.
    pub fn committed_all(&self, group: &str) -> Vec<GroupOffset> {
        let topics = self.topics.read();
        let offsets = self.offsets.lock();
        let known = offsets.of_group(group).filter_map(|(number, committed)| {
            let partition = topics.partition_by_number(number)?;
            Some(GroupOffset {
                topic: partition.topic().clone(),
                partition: partition.index(),
                committed: committed.clone(),
            })
        });
        known.collect()
    }

    /// Names of groups with committed offsets, in order.
    pub fn groups_with_offsets(&self) -> Vec<String> {
        self.offsets
            .lock()
            .groups()
            .iter()
            .map(|group| group.as_ref().to_owned())
            .collect()
    }

    /// Forgets a group's offsets; false when it had none. Await the answer for durability.
    pub fn delete_group(&self, group: &str) -> Result<(bool, DurableWait), StreamsError> {
        let mut offsets = self.offsets.lock();
        if !offsets.knows(group) && offsets.noted(group).is_none() {
            return Ok((false, DurableWait(None)));
        }
        // What a share group has come to goes with it, and is not written once more behind this.
        let wait = self.shares.forget_when(&self.shares.of_group(group), || {
            self.append_offsets(&Change::GroupDeleted {
                group: group.to_owned(),
            })
        })?;
        offsets.unnote(group);
        offsets.queue(OffsetChange::DeleteGroup(Arc::from(group)));
        Ok((true, wait))
    }

    /// Forgets what a group has committed for these partitions; await the answer for durability.
    pub fn delete_offsets(
        &self,
        group: &str,
        partitions: &[(TopicName, i32)],
    ) -> Result<DurableWait, StreamsError> {
        let topics = self.topics.read();
        let mut numbers = Vec::with_capacity(partitions.len());
        for (topic, partition) in partitions {
            numbers.push(topics.partition(topic, *partition)?.number());
        }
        self.forget_offsets(group, numbers)
    }

    /// Forgets the offsets of groups that have had no members for too long; tells how long from
    /// now the next may go, if there are any.
    pub(crate) fn expire_offsets(&self) -> Result<Option<Duration>, StreamsError> {
        let retention = self.config.groups.offsets_retention.0;
        if retention.is_zero() {
            return Ok(None);
        }
        let now = self.clock.now();
        // First, so that a commit from here on asks for another look.
        self.shared.keeper.sleeps_without_groups(true);
        let (expired, next) = self.offsets.lock().expired(now, retention);
        for (group, numbers) in expired {
            tracing::info!(
                group = &*group,
                offsets = numbers.len(),
                "offsets have expired"
            );
            self.until_not_busy(|| {
                if numbers.is_empty() {
                    self.delete_group(&group).map(drop)
                } else {
                    self.forget_offsets(&group, numbers.clone()).map(drop)
                }
            })?;
        }
        let next = next.map(|next| next.since(now));
        if next.is_some() {
            self.shared.keeper.sleeps_without_groups(false);
        }
        Ok(next)
    }

    /// All groups that have members or offsets, or had members that may come back, by name.
    pub fn list_groups(&self) -> Vec<GroupDescription> {
        let mut groups: BTreeMap<String, GroupDescription> = BTreeMap::new();
        for live in self.groups.list() {
            groups.insert(live.group.clone(), live);
        }
        let (with_offsets, noted) = {
            let offsets = self.offsets.lock();
            (offsets.groups(), offsets.noted_groups())
        };
        let noted = noted
            .into_iter()
            .map(|(name, noted)| (name, noted.kind, noted.protocol_type, noted.epoch));
        let unnoted = with_offsets
            .into_iter()
            .map(|name| (name, GroupKind::Classic, String::new(), 0));
        for (name, kind, protocol_type, epoch) in noted.chain(unnoted) {
            groups
                .entry(name.as_ref().to_owned())
                .or_insert_with(|| GroupDescription {
                    group: name.as_ref().to_owned(),
                    kind,
                    state: GroupState::Empty,
                    protocol_type,
                    protocol: String::new(),
                    generation: epoch,
                    members: Vec::new(),
                });
        }
        groups.into_values().collect()
    }

    /// What was noted of a group beside its offsets, as long as there is something.
    pub fn group_standing(&self, group: &str) -> Option<GroupStanding> {
        self.offsets.lock().noted(group).map(NotedGroup::standing)
    }

    /// Whether there is such a group, with or without members.
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.describe(group).is_some() || self.knows_group(group)
    }

    /// Whether the group has offsets, or had members that may come back.
    pub fn knows_group(&self, group: &str) -> bool {
        let offsets = self.offsets.lock();
        offsets.knows(group) || offsets.noted(group).is_some()
    }

    fn forget_offsets(&self, group: &str, numbers: Vec<u32>) -> Result<DurableWait, StreamsError> {
        if numbers.is_empty() {
            return Ok(DurableWait(None));
        }
        let mut offsets = self.offsets.lock();
        let wait = self.append_offsets(&Change::GroupOffsetsDeleted {
            group: group.to_owned(),
            numbers: numbers.clone(),
        })?;
        offsets.queue(OffsetChange::Delete(Arc::from(group), numbers));
        Ok(wait)
    }

    /// Appends a change of the offsets; the caller holds their lock and queues it.
    pub(super) fn append_offsets(&self, change: &Change) -> Result<DurableWait, StreamsError> {
        let (done, wait) = Done::channel(journal::Durability::Disk);
        let offsets = Arc::clone(&self.offsets);
        let disk = done.disk.map(|answer| -> journal::OnDone {
            Box::new(move |outcome: Result<(), JournalError>| {
                if outcome.is_ok() {
                    offsets.lock().apply_next();
                }
                answer(outcome);
            })
        });
        self.append_change(change, Done { os: None, disk })?;
        Ok(DurableWait(Some(wait)))
    }
}
