//! One share group (KIP-932) as a state machine: heartbeats and the time go in, answers come out.
//!
//! Each partition of the topics that somebody reads is told to one member at least, and each member is
//! told of one at least where there is any: to several members of one partition where there are more
//! members than partitions. Nobody owns a partition, so that nobody has to give one back: a member is
//! told its partitions with the next heartbeat after they changed.
//!
//! The group epoch counts changes of members, subscriptions and topics; a member's epoch is the group
//! epoch that it was told last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::UnixMillis;
use uuid::Uuid;

use super::consumer_group::names_bytes;
use super::{
    Beat, BeatAnswer, Catalog, ConsumerGroupDescription, ConsumerMemberDescription, GroupError,
    GroupState, GroupsConfig, LEAVE_EPOCH, MEMBER_BYTES, Partitions,
};

/// The state of one group.
#[derive(Debug)]
pub(super) struct ShareGroup {
    config: Arc<GroupsConfig>,
    epoch: i32,
    members: BTreeMap<String, Member>,
    /// The topics that somebody reads, as they were when the epoch was last looked at.
    topics: BTreeMap<String, (Uuid, i32)>,
    topics_version: Option<u64>,
}

#[derive(Debug)]
struct Member {
    rack_id: Option<String>,
    client_id: String,
    client_host: String,
    names: BTreeSet<String>,
    epoch: i32,
    /// The epoch before: an answer that told of the new one may have been lost.
    previous_epoch: i32,
    session_until: UnixMillis,
    assigned: Partitions,
}

impl ShareGroup {
    /// A group without members, whose epochs go on from `epoch`.
    pub(super) fn new(config: Arc<GroupsConfig>, epoch: i32) -> Self {
        ShareGroup {
            config,
            epoch,
            members: BTreeMap::new(),
            topics: BTreeMap::new(),
            topics_version: None,
        }
    }

    /// Goes on by another configuration; each member does with its next heartbeat.
    pub(super) fn follow(&mut self, config: Arc<GroupsConfig>) {
        self.config = config;
    }

    pub(super) fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    pub(super) fn members_count(&self) -> usize {
        self.members.len()
    }

    /// About the memory that the members take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let names = self
            .members
            .values()
            .map(|member| names_bytes(&member.names));
        names.sum::<usize>() + self.members.len() * MEMBER_BYTES
    }

    /// The group epoch.
    pub(super) fn epoch(&self) -> i32 {
        self.epoch
    }

    /// Takes a heartbeat, whatever it says.
    pub(super) fn beat(
        &mut self,
        now: UnixMillis,
        beat: Beat,
        catalog: &dyn Catalog,
    ) -> Result<BeatAnswer, GroupError> {
        check_shape(&beat)?;
        if beat.epoch == LEAVE_EPOCH {
            return self.leave(&beat);
        }
        self.check_size(&beat)?;
        let is_new = self.admit(now, &beat)?;
        let member = self.members.get_mut(&beat.member_id);
        let member = member.ok_or(GroupError::UnknownMember)?;
        member.rack_id = beat.rack_id.or(member.rack_id.take());
        member.client_id = beat.client_id;
        member.client_host = beat.client_host;
        let names = beat.topics.map(BTreeSet::from_iter);
        let is_told_anew = beat.epoch == 0 || names.is_some();
        let reads_others = names.is_some_and(|names| {
            let are_others = names != member.names;
            member.names = names;
            are_others
        });
        self.catch_up(is_new || reads_others, catalog);
        let (epoch, config) = (self.epoch, &self.config);
        let member = self.members.get_mut(&beat.member_id);
        let member = member.ok_or(GroupError::UnknownMember)?;
        if member.epoch != epoch {
            member.previous_epoch = std::mem::replace(&mut member.epoch, epoch);
        }
        member.session_until = now + config.share_session_timeout.0;
        let is_told = is_told_anew || beat.epoch != epoch;
        Ok(BeatAnswer {
            epoch,
            assignment: is_told.then(|| member.assigned.clone()),
            heartbeat_interval: config.share_heartbeat_interval.0,
        })
    }

    /// Puts out who has been silent for too long.
    pub(super) fn tick(&mut self, now: UnixMillis) {
        let before = self.members.len();
        self.members.retain(|_, member| member.session_until > now);
        if self.members.len() < before {
            self.share();
        }
    }

    /// When [`ShareGroup::tick`] must be called next, if ever.
    pub(super) fn next_deadline(&self) -> Option<UnixMillis> {
        self.members
            .values()
            .map(|member| member.session_until)
            .min()
    }

    pub(super) fn state(&self) -> GroupState {
        match self.members.is_empty() {
            true => GroupState::Empty,
            false => GroupState::Stable,
        }
    }

    pub(super) fn assignor(&self) -> &'static str {
        ASSIGNOR
    }

    /// The group for people to look at.
    pub(super) fn describe(&self) -> ConsumerGroupDescription {
        let members = self
            .members
            .iter()
            .map(|(id, member)| ConsumerMemberDescription {
                member_id: id.clone(),
                instance_id: None,
                rack_id: member.rack_id.clone(),
                is_classic: false,
                epoch: member.epoch,
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                topics: member.names.iter().cloned().collect(),
                topics_regex: None,
                assigned: member.assigned.clone(),
                target: member.assigned.clone(),
            });
        ConsumerGroupDescription {
            state: self.state(),
            epoch: self.epoch,
            assignment_epoch: self.epoch,
            assignor: ASSIGNOR.to_owned(),
            members: members.collect(),
        }
    }

    /// Takes in a member that joins; whether it is a new one.
    fn admit(&mut self, now: UnixMillis, beat: &Beat) -> Result<bool, GroupError> {
        if let Some(member) = self.members.get(&beat.member_id) {
            let epochs = [0, member.epoch, member.previous_epoch];
            return match epochs.contains(&beat.epoch) {
                true => Ok(false),
                false => Err(GroupError::FencedMemberEpoch),
            };
        }
        if beat.epoch != 0 {
            return Err(GroupError::UnknownMember);
        }
        if self.members.len() >= self.config.members_max {
            return Err(GroupError::GroupFull);
        }
        let member = Member {
            rack_id: None,
            client_id: String::new(),
            client_host: String::new(),
            names: BTreeSet::new(),
            epoch: 0,
            previous_epoch: 0,
            session_until: now,
            assigned: Partitions::default(),
        };
        self.members.insert(beat.member_id.clone(), member);
        Ok(true)
    }

    fn leave(&mut self, beat: &Beat) -> Result<BeatAnswer, GroupError> {
        let member = self.members.remove(&beat.member_id);
        member.ok_or(GroupError::UnknownMember)?;
        self.share();
        Ok(BeatAnswer {
            epoch: LEAVE_EPOCH,
            assignment: None,
            heartbeat_interval: self.config.share_heartbeat_interval.0,
        })
    }

    /// Shares the partitions anew when members, what they read or the topics have changed.
    fn catch_up(&mut self, has_changed: bool, catalog: &dyn Catalog) {
        let version = catalog.version();
        if !has_changed && self.topics_version == Some(version) {
            return;
        }
        let names: BTreeSet<&String> = self.members.values().flat_map(|m| &m.names).collect();
        let found = names.into_iter().filter_map(|name| {
            let topic = catalog.topic(name)?;
            Some((name.clone(), topic))
        });
        let topics: BTreeMap<String, (Uuid, i32)> = found.collect();
        let are_others = topics != self.topics;
        self.topics = topics;
        self.topics_version = Some(version);
        if has_changed || are_others {
            self.share();
        }
    }

    /// Makes another epoch of it, in which the members have these partitions.
    fn share(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
        let mut shares: BTreeMap<&String, Partitions> = BTreeMap::new();
        // Topics with fewer partitions than readers do not all begin with the same reader.
        let mut turn = 0;
        for (name, (id, partitions)) in &self.topics {
            let readers = self
                .members
                .iter()
                .filter(|(_, member)| member.names.contains(name));
            let readers: Vec<&String> = readers.map(|(id, _)| id).collect();
            let Ok(count) = usize::try_from(*partitions) else {
                continue;
            };
            if readers.is_empty() || count == 0 {
                continue;
            }
            for nth in 0..count.max(readers.len()) {
                let reader = readers[(turn + nth) % readers.len()];
                let partition = i32::try_from(nth % count).unwrap_or(0);
                shares.entry(reader).or_default().insert(*id, partition);
            }
            turn += count;
        }
        let mut shares: BTreeMap<String, Partitions> = shares
            .into_iter()
            .map(|(id, share)| (id.clone(), share))
            .collect();
        for (id, member) in &mut self.members {
            member.assigned = shares.remove(id).unwrap_or_default();
        }
    }

    fn check_size(&self, beat: &Beat) -> Result<(), GroupError> {
        let told = names_bytes(beat.topics.iter().flatten());
        let others = self.members.iter().filter(|(id, _)| **id != beat.member_id);
        let taken: usize = others.map(|(_, member)| names_bytes(&member.names)).sum();
        match told + taken > self.config.group_bytes_max {
            true => Err(GroupError::TooLarge),
            false => Ok(()),
        }
    }
}

/// What a heartbeat must say to be one, whatever the group.
fn check_shape(beat: &Beat) -> Result<(), GroupError> {
    let is_blank = |text: &Option<String>| text.as_ref().is_some_and(|t| t.trim().is_empty());
    let names_some = beat.topics.as_ref().is_some_and(|names| !names.is_empty());
    let is_sane = !beat.member_id.is_empty()
        && !is_blank(&beat.rack_id)
        && beat.epoch >= LEAVE_EPOCH
        && (beat.epoch != 0 || names_some);
    match is_sane {
        true => Ok(()),
        false => Err(GroupError::InvalidRequest),
    }
}

/// What Kafka calls its own way of sharing.
const ASSIGNOR: &str = "simple";
