//! The offsets that groups have committed.
//!
//! A commit is queued in journal order and takes effect when it is on the disk, so that nobody
//! reads an offset that a crash could take back. A snapshot has to say how things will stand once
//! the queue is through, hence [`Offsets::standing`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use crate::error::StreamsError;
use crate::event_store::CommittedOffset;
use crate::group_config::GroupConfig;
use crate::groups::GroupKind;
use crate::limits::{
    GROUP_NAME_BYTES_MAX, GROUPS_MAX, OFFSET_METADATA_BYTES_MAX, OFFSETS_BYTES_MAX,
    OFFSETS_PER_COMMIT_MAX,
};
use crate::topic::TopicName;

/// One offset to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch, -1 for none.
    pub leader_epoch: i32,
    /// Any text of the client.
    pub metadata: String,
    /// When it was committed.
    pub at: UnixMillis,
}

/// One committed offset of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOffset {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// What was committed.
    pub committed: CommittedOffset,
}

/// Offsets by group and partition number, and what else is known of groups without members.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    by_group: HashMap<Arc<str>, BTreeMap<u32, CommittedOffset>>,
    /// What they take, in bytes.
    bytes: usize,
    queue: VecDeque<OffsetChange>,
    noted: HashMap<Arc<str>, NotedGroup>,
    /// The members that the next process begins with, as `groups::roll` lays them out.
    rolls: HashMap<Arc<str>, Vec<u8>>,
    /// What was set for groups, be they there or not.
    settings: HashMap<Arc<str>, GroupConfig>,
}

/// What is known of a group beside its offsets and members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotedGroup {
    pub(crate) kind: GroupKind,
    pub(crate) protocol_type: String,
    pub(crate) epoch: i32,
    /// Since when it has no members; none while it has.
    pub(crate) emptied: Option<UnixMillis>,
}

impl NotedGroup {
    /// Whether it is of a kind with epochs or once was a consumer group: members from then may still
    /// come.
    fn has_epochs(&self) -> bool {
        self.kind != GroupKind::Classic || self.epoch > 0
    }
}

/// A group and the numbers of the partitions whose offsets have expired; none of a group that is
/// to go as a whole.
pub(crate) type Expired = (Arc<str>, Vec<u32>);

/// A group and the offsets committed for it, by partition number.
type GroupCommit = (Arc<str>, Vec<(u32, CommittedOffset)>);

/// A change of the offsets, in the order of the journal.
#[derive(Clone, Debug)]
pub(crate) enum OffsetChange {
    /// These offsets of the group; its others stay.
    Commit(Arc<str>, Vec<(u32, CommittedOffset)>),
    /// Offsets of several groups, as a transaction commits them.
    CommitAll(Vec<GroupCommit>),
    /// All offsets of the group are gone.
    DeleteGroup(Arc<str>),
    /// These offsets of the group are gone.
    Delete(Arc<str>, Vec<u32>),
    /// All offsets of these partitions are gone, in whatever group.
    DeletePartitions(Vec<(u32, u32)>),
}

impl Offsets {
    /// Checks a commit against the bounds.
    pub(crate) fn check(&self, group: &str, offsets: &[OffsetCommit]) -> Result<(), StreamsError> {
        check_name(group)?;
        if offsets.len() > OFFSETS_PER_COMMIT_MAX {
            return Err(limit("offsets in one commit", OFFSETS_PER_COMMIT_MAX));
        }
        if offsets
            .iter()
            .any(|commit| commit.metadata.len() > OFFSET_METADATA_BYTES_MAX)
        {
            let what = "bytes of an offset's metadata";
            return Err(limit(what, OFFSET_METADATA_BYTES_MAX));
        }
        if !self.by_group.contains_key(group) && self.by_group.len() >= GROUPS_MAX {
            return Err(limit("groups with offsets", GROUPS_MAX));
        }
        Ok(())
    }

    /// Checks that there is room for these offsets; those that take no more than their forerunners
    /// always have it.
    pub(crate) fn check_room(
        &self,
        group: &str,
        offsets: &[(u32, CommittedOffset)],
    ) -> Result<(), StreamsError> {
        let known = self.by_group.get(group);
        let before = |number: &u32| {
            known
                .and_then(|known| known.get(number))
                .map_or(0, bytes_of)
        };
        let coming: usize = offsets.iter().map(|(_, offset)| bytes_of(offset)).sum();
        let going: usize = offsets.iter().map(|(number, _)| before(number)).sum();
        if coming > going && self.bytes + (coming - going) > OFFSETS_BYTES_MAX {
            return Err(limit("bytes of committed offsets", OFFSETS_BYTES_MAX));
        }
        Ok(())
    }

    /// Queues what was appended to the journal.
    pub(crate) fn queue(&mut self, change: OffsetChange) {
        self.queue.push_back(change);
    }

    /// The oldest queued change is on the disk.
    pub(crate) fn apply_next(&mut self) {
        if let Some(change) = self.queue.pop_front() {
            self.apply(change);
        }
    }

    /// Applies a change at once.
    pub(crate) fn apply(&mut self, change: OffsetChange) {
        let (coming, going) = apply(&mut self.by_group, change);
        self.bytes = self.bytes + coming - going;
    }

    /// What a group has committed for a partition.
    pub(crate) fn of(&self, group: &str, number: u32) -> Option<&CommittedOffset> {
        self.by_group.get(group)?.get(&number)
    }

    /// All that a group has committed, by partition number.
    pub(crate) fn of_group(
        &self,
        group: &str,
    ) -> impl Iterator<Item = (u32, &CommittedOffset)> + '_ {
        let offsets = self.by_group.get(group).into_iter().flatten();
        offsets.map(|(number, committed)| (*number, committed))
    }

    /// Whether the group has offsets now or once the queue is through.
    pub(crate) fn knows(&self, group: &str) -> bool {
        let mut queued = self.queue.iter().flat_map(OffsetChange::commits);
        let queued = queued.any(|(name, _)| name.as_ref() == group);
        queued || self.by_group.contains_key(group)
    }

    /// Whether an offset of the group for this partition is on its way to the disk.
    pub(crate) fn is_queued(&self, group: &str, number: u32) -> bool {
        let mut queued = self.queue.iter().flat_map(OffsetChange::commits);
        queued.any(|(name, offsets)| {
            name.as_ref() == group && offsets.iter().any(|(of, _)| *of == number)
        })
    }

    /// Names of all groups with offsets.
    pub(crate) fn groups(&self) -> Vec<Arc<str>> {
        let mut groups: Vec<Arc<str>> = self.by_group.keys().cloned().collect();
        groups.sort();
        groups
    }

    /// What was noted of a group last.
    pub(crate) fn noted(&self, group: &str) -> Option<&NotedGroup> {
        self.noted.get(group)
    }

    /// Notes how a group stands. A classic group without members and offsets is as if it had
    /// never been, unless it once was a consumer group; and at the bound a new name is not noted,
    /// which costs its epoch.
    pub(crate) fn note(&mut self, group: &Arc<str>, noted: NotedGroup) {
        if noted.emptied.is_some() {
            self.rolls.remove(group);
        }
        let is_over = !noted.has_epochs() && noted.emptied.is_some();
        if is_over && !self.knows(group) {
            self.noted.remove(group);
        } else if self.noted.len() < GROUPS_MAX || self.noted.contains_key(group) {
            self.noted.insert(Arc::clone(group), noted);
        }
    }

    /// Takes in what was noted once; for recovery.
    pub(crate) fn restore(&mut self, group: Arc<str>, noted: NotedGroup) {
        if noted.emptied.is_some() {
            self.rolls.remove(&group);
        }
        self.noted.insert(group, noted);
    }

    /// Forgets what was noted of a group.
    pub(crate) fn unnote(&mut self, group: &str) {
        self.noted.remove(group);
        self.rolls.remove(group);
    }

    /// Keeps a group's members for the next process, or none of them. At the bound those of a new
    /// name are not kept.
    pub(crate) fn keep(&mut self, group: &Arc<str>, roll: Vec<u8>) {
        if roll.is_empty() {
            self.rolls.remove(group);
        } else if self.rolls.len() < GROUPS_MAX || self.rolls.contains_key(group) {
            self.rolls.insert(Arc::clone(group), roll);
        }
    }

    /// The members of a group that are kept.
    pub(crate) fn roll(&self, group: &str) -> Option<&[u8]> {
        self.rolls.get(group).map(Vec::as_slice)
    }

    /// All groups whose members are kept.
    pub(crate) fn kept_groups(&self) -> Vec<Arc<str>> {
        self.rolls.keys().cloned().collect()
    }

    /// What is set for a group.
    pub(crate) fn settings(&self, group: &str) -> GroupConfig {
        self.settings.get(group).cloned().unwrap_or_default()
    }

    /// Checks that a group may have settings.
    pub(crate) fn check_settings(&self, group: &str) -> Result<(), StreamsError> {
        check_name(group)?;
        if !self.settings.contains_key(group) && self.settings.len() >= GROUPS_MAX {
            return Err(limit("groups with settings", GROUPS_MAX));
        }
        Ok(())
    }

    /// Sets exactly this for a group.
    pub(crate) fn set(&mut self, group: Arc<str>, config: GroupConfig) {
        match config.is_empty() {
            true => drop(self.settings.remove(&group)),
            false => drop(self.settings.insert(group, config)),
        }
    }

    /// All groups that have settings, in order.
    pub(crate) fn groups_with_settings(&self) -> Vec<Arc<str>> {
        let mut groups: Vec<Arc<str>> = self.settings.keys().cloned().collect();
        groups.sort();
        groups
    }

    /// All groups of which something was noted.
    pub(crate) fn noted_groups(&self) -> Vec<(Arc<str>, NotedGroup)> {
        let noted = self.noted.iter();
        noted
            .map(|(name, noted)| (Arc::clone(name), noted.clone()))
            .collect()
    }

    /// After recovery: nobody is a member any more, from `now` on, until those who were kept are taken
    /// in again. Nor was anybody of a group of
    /// which nothing was noted, as older versions did not.
    pub(crate) fn begin_empty(&mut self, now: UnixMillis) {
        for noted in self.noted.values_mut() {
            noted.emptied.get_or_insert(now);
        }
        let by_group = &self.by_group;
        self.noted
            .retain(|name, noted| noted.has_epochs() || by_group.contains_key(name));
        for group in by_group.keys() {
            note_commit(&mut self.noted, group, now);
        }
    }

    /// A commit came in for the group, with or without members.
    pub(crate) fn note_commit(&mut self, group: &Arc<str>, now: UnixMillis) {
        note_commit(&mut self.noted, group, now);
    }

    /// What of groups without members has expired, and when the next may, if ever.
    pub(crate) fn expired(
        &self,
        now: UnixMillis,
        retention: Duration,
    ) -> (Vec<Expired>, Option<UnixMillis>) {
        let mut expired = Vec::new();
        let mut next: Option<UnixMillis> = None;
        let mut wait_until = |at: UnixMillis| next = Some(next.map_or(at, |next| next.min(at)));
        if !self.queue.is_empty() {
            wait_until(now + retention);
        }
        for (group, offsets) in &self.by_group {
            let emptied = match self.noted.get(group).map(|noted| noted.emptied) {
                // Nothing of it can expire sooner than if its last member left now.
                Some(None) => {
                    wait_until(now + retention);
                    continue;
                }
                Some(Some(at)) => at,
                None => now,
            };
            let mut numbers = Vec::new();
            for (number, committed) in offsets {
                let until = committed.at.max(emptied) + retention;
                if until <= now {
                    numbers.push(*number);
                } else {
                    wait_until(until);
                }
            }
            if !numbers.is_empty() {
                expired.push((Arc::clone(group), numbers));
            }
        }
        for (group, noted) in &self.noted {
            // How far a share group has come goes only when somebody deletes it.
            let expires = noted.kind != GroupKind::Share && !self.by_group.contains_key(group);
            let Some(emptied) = noted.emptied.filter(|_| expires) else {
                continue;
            };
            if emptied + retention <= now {
                expired.push((Arc::clone(group), Vec::new()));
            } else {
                wait_until(emptied + retention);
            }
        }
        (expired, next)
    }

    /// How many groups have offsets.
    pub(crate) fn len(&self) -> usize {
        self.by_group.len()
    }

    /// Names of all groups with offsets once the queue is through.
    pub(crate) fn standing_groups(&self) -> Vec<Arc<str>> {
        let queued = self.queue.iter().flat_map(OffsetChange::commits);
        let queued = queued.map(|(group, _)| group);
        let mut groups: Vec<Arc<str>> = self.by_group.keys().chain(queued).cloned().collect();
        groups.sort();
        groups.dedup();
        groups
    }

    /// What a group will have committed once the queue is through, from a partition's number on as
    /// much as takes about so many bytes, and the number to go on from when that was not all.
    pub(crate) fn standing(
        &self,
        group: &Arc<str>,
        first: u32,
        bytes_max: usize,
    ) -> (Vec<(u32, CommittedOffset)>, Option<u32>) {
        let (mut here, mut bytes, mut next) = (BTreeMap::new(), 0, None);
        let offsets = self.by_group.get(group).into_iter();
        for (number, committed) in offsets.flat_map(|offsets| offsets.range(first..)) {
            bytes += bytes_of(committed);
            if bytes > bytes_max && !here.is_empty() {
                next = Some(*number);
                break;
            }
            here.insert(*number, committed.clone());
        }
        let mut alone = HashMap::from([(Arc::clone(group), here)]);
        for change in &self.queue {
            let concerns = match change {
                OffsetChange::Commit(name, _)
                | OffsetChange::DeleteGroup(name)
                | OffsetChange::Delete(name, _) => name == group,
                OffsetChange::CommitAll(groups) => groups.iter().any(|(name, _)| name == group),
                OffsetChange::DeletePartitions(_) => true,
            };
            if concerns {
                apply(&mut alone, change.clone());
            }
        }
        let standing = alone.remove(group).into_iter().flatten();
        let is_here = |number: u32| number >= first && next.is_none_or(|next| number < next);
        let standing = standing.filter(|(number, _)| is_here(*number));
        (standing.collect(), next)
    }
}

fn check_name(group: &str) -> Result<(), StreamsError> {
    if group.len() > GROUP_NAME_BYTES_MAX {
        return Err(limit("bytes of the group's name", GROUP_NAME_BYTES_MAX));
    }
    Ok(())
}

fn limit(what: &'static str, max: usize) -> StreamsError {
    StreamsError::Limit {
        what,
        max: max as u64,
    }
}

/// A group of which nothing is known has never had members: that it has none counts from its
/// first commit.
fn note_commit(noted: &mut HashMap<Arc<str>, NotedGroup>, group: &Arc<str>, now: UnixMillis) {
    if noted.len() < GROUPS_MAX && !noted.contains_key(group) {
        let simple = NotedGroup {
            kind: GroupKind::Classic,
            protocol_type: String::new(),
            epoch: 0,
            emptied: Some(now),
        };
        noted.insert(Arc::clone(group), simple);
    }
}

impl OffsetChange {
    /// Groups and the offsets committed for them.
    fn commits(&self) -> impl Iterator<Item = (&Arc<str>, &Vec<(u32, CommittedOffset)>)> {
        let (one, many) = match self {
            OffsetChange::Commit(group, offsets) => (Some((group, offsets)), &[][..]),
            OffsetChange::CommitAll(groups) => (None, &groups[..]),
            OffsetChange::DeleteGroup(_)
            | OffsetChange::Delete(..)
            | OffsetChange::DeletePartitions(_) => (None, &[][..]),
        };
        one.into_iter()
            .chain(many.iter().map(|(group, offsets)| (group, offsets)))
    }
}

/// Applies a change; answers how many bytes came and went.
fn apply(
    by_group: &mut HashMap<Arc<str>, BTreeMap<u32, CommittedOffset>>,
    change: OffsetChange,
) -> (usize, usize) {
    let (mut coming, mut going) = (0, 0);
    let mut commit = |group: Arc<str>, offsets: Vec<(u32, CommittedOffset)>| {
        let known = by_group.entry(group).or_default();
        for (number, offset) in offsets {
            coming += bytes_of(&offset);
            going += known.insert(number, offset).as_ref().map_or(0, bytes_of);
        }
    };
    match change {
        OffsetChange::Commit(group, offsets) => commit(group, offsets),
        OffsetChange::CommitAll(groups) => {
            for (group, offsets) in groups {
                commit(group, offsets);
            }
        }
        OffsetChange::DeleteGroup(group) => {
            let gone = by_group.remove(&group).unwrap_or_default();
            going += gone.values().map(bytes_of).sum::<usize>();
        }
        OffsetChange::Delete(group, numbers) => {
            if let Some(offsets) = by_group.get_mut(&group) {
                let gone = numbers.iter().filter_map(|number| offsets.remove(number));
                going += gone.map(|offset| bytes_of(&offset)).sum::<usize>();
                if offsets.is_empty() {
                    by_group.remove(&group);
                }
            }
        }
        OffsetChange::DeletePartitions(ranges) => by_group.retain(|_, offsets| {
            let gone = |number: u32| {
                ranges
                    .iter()
                    .any(|(first, n)| number.wrapping_sub(*first) < *n)
            };
            offsets.retain(|number, offset| {
                let is_gone = gone(*number);
                going += if is_gone { bytes_of(offset) } else { 0 };
                !is_gone
            });
            !offsets.is_empty()
        }),
    }
    (coming, going)
}

/// About what an offset takes in memory.
pub(crate) fn bytes_of(offset: &CommittedOffset) -> usize {
    OFFSET_BYTES + offset.metadata.len()
}

/// What an offset takes beside its metadata, in bytes: itself and its place in a map.
const OFFSET_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64) -> CommittedOffset {
        CommittedOffset {
            offset,
            leader_epoch: -1,
            metadata: String::new(),
            at: UnixMillis(0),
        }
    }

    #[test]
    fn a_commit_counts_once_it_is_applied_and_stands_before() {
        let group: Arc<str> = Arc::from("g");
        let mut offsets = Offsets::default();
        offsets.queue(OffsetChange::Commit(
            group.clone(),
            vec![(1, at(10)), (2, at(20))],
        ));
        offsets.queue(OffsetChange::DeletePartitions(vec![(2, 1)]));
        assert_eq!(offsets.of("g", 1), None);
        assert!(offsets.knows("g"));
        let all = |offsets: &Offsets| offsets.standing(&group, 0, usize::MAX);
        assert_eq!(all(&offsets), (vec![(1, at(10))], None));
        offsets.apply_next();
        assert_eq!(offsets.of("g", 2), Some(&at(20)));
        offsets.apply_next();
        assert_eq!(
            offsets.of_group("g").collect::<Vec<_>>(),
            vec![(1, &at(10))]
        );
        offsets.queue(OffsetChange::DeleteGroup(group.clone()));
        assert_eq!(all(&offsets), (vec![], None));
        offsets.apply_next();
        assert_eq!(offsets.groups(), Vec::<Arc<str>>::new());
        assert_eq!(offsets.bytes, 0);
    }

    #[test]
    fn what_stands_is_told_in_pieces_with_what_is_queued() {
        let group: Arc<str> = Arc::from("g");
        let mut offsets = Offsets::default();
        let commit = |numbers: [u32; 4]| {
            let committed = numbers.map(|number| (number, at(i64::from(number))));
            OffsetChange::Commit(group.clone(), committed.to_vec())
        };
        offsets.apply(commit([1, 3, 5, 7]));
        offsets.queue(commit([2, 4, 6, 8]));
        offsets.queue(OffsetChange::Delete(group.clone(), vec![3]));
        let (mut from, mut pieces) = (Some(0), Vec::new());
        while let Some(first) = from {
            let (piece, next) = offsets.standing(&group, first, 2 * OFFSET_BYTES);
            pieces.push(piece.iter().map(|(number, _)| *number).collect::<Vec<_>>());
            from = next;
        }
        assert_eq!(pieces, [vec![1, 2, 4], vec![5, 6, 7, 8]]);
    }

    #[test]
    fn offsets_have_room_up_to_a_bound_and_replacing_takes_none() {
        let of_bytes = |bytes: usize| CommittedOffset {
            metadata: "m".repeat(bytes),
            ..at(1)
        };
        let mut offsets = Offsets::default();
        let group: Arc<str> = Arc::from("g");
        offsets.apply(OffsetChange::Commit(
            Arc::clone(&group),
            vec![(1, of_bytes(9))],
        ));
        offsets.bytes += OFFSETS_BYTES_MAX - 2 * OFFSET_BYTES;
        let check = |number, bytes| offsets.check_room("g", &[(number, of_bytes(bytes))]);
        assert!(check(1, 9).is_ok() && check(1, 10).is_ok());
        assert!(check(2, 0).is_err() && check(1, OFFSET_BYTES + 1).is_err());
        assert!(matches!(check(2, 0), Err(StreamsError::Limit { .. })));
    }
}
