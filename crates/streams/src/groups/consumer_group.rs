//! One group of the newer protocol (KIP-848) as a state machine: heartbeats and the time go in,
//! answers come out.
//!
//! The coordinator shares the partitions itself, no sooner than an interval after it did last
//! ([`GroupsConfig::consumer_assignment_interval`]). Three epochs order what happens: the *group
//! epoch* counts changes of members, subscriptions and topics; the *assignment epoch* is the group
//! epoch that the shares were made for; a *member's epoch* is the assignment epoch that the member
//! has come up to. A member comes up to it by giving back what it is to lose first; what it is to
//! get waits until whoever holds it has given it back.
//!
//! While a group moves from one protocol to the other, some of its members still speak the classic
//! one ([`classic`]); they share in all this, with the generation for their epoch.
//!
//! Invariant: a partition belongs to one member at most, from when it is first told of it until it
//! has said that it holds it no more or has been put out ([`ConsumerGroup::owners`]).

mod assign;
mod classic;
mod kept;
mod migrants;
mod reconcile;
mod subscription;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use uuid::Uuid;

pub(crate) use assign::ASSIGNORS;
use classic::Classic;
use subscription::Subscription;
pub(super) use subscription::names_bytes;

use super::{
    Beat, BeatAnswer, Catalog, ConsumerGroupDescription, ConsumerMemberDescription, GroupError,
    GroupState, GroupsConfig, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, MEMBER_BYTES, MemberRef, Partitions,
};

/// The state of one group.
#[derive(Debug)]
pub(super) struct ConsumerGroup {
    config: Arc<GroupsConfig>,
    epoch: i32,
    assignment_epoch: i32,
    /// When the shares were made last, if they were in this process.
    assigned_at: Option<UnixMillis>,
    members: BTreeMap<String, Member>,
    /// Instance id to member id.
    statics: HashMap<String, String>,
    /// Ids that were given to classic members to come back with, and until when they hold.
    pending: HashMap<String, UnixMillis>,
    /// What each member is to hold in the end.
    target: BTreeMap<String, Partitions>,
    /// Who holds a partition or has not yet given it back.
    owners: HashMap<(Uuid, i32), Owner>,
    /// The topics that somebody reads, as they were when the epoch was last looked at.
    topics: BTreeMap<String, (Uuid, i32)>,
    topics_version: Option<u64>,
    /// How often a member has gone on under another id, or left for a while and come back.
    renamed: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    id: String,
    /// The epoch of the member when it was given the partition.
    since: i32,
}

#[derive(Clone, Debug)]
struct Member {
    instance_id: Option<String>,
    rack_id: Option<String>,
    client_id: String,
    client_host: String,
    subscription: Subscription,
    assignor: Option<String>,
    rebalance_timeout: Duration,
    epoch: i32,
    /// The epoch before: an answer that told of the new one may have been lost.
    previous_epoch: i32,
    /// What the member may hold.
    assigned: Partitions,
    /// What it was asked to give back and has not.
    revoking: Partitions,
    /// Until when it must have.
    revoke_until: Option<UnixMillis>,
    /// Whether something it is to get is still held by somebody else.
    awaits: bool,
    session_until: UnixMillis,
    /// What is kept of a member that speaks the classic protocol.
    classic: Option<Classic>,
}

impl ConsumerGroup {
    /// A group without members, whose epochs go on from `epoch`.
    pub(super) fn new(config: Arc<GroupsConfig>, epoch: i32) -> Self {
        ConsumerGroup {
            config,
            epoch,
            assignment_epoch: epoch,
            assigned_at: None,
            members: BTreeMap::new(),
            statics: HashMap::new(),
            pending: HashMap::new(),
            target: BTreeMap::new(),
            owners: HashMap::new(),
            topics: BTreeMap::new(),
            topics_version: None,
            renamed: 0,
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
        let told = self.members.values().map(Member::bytes);
        told.sum::<usize>() + (self.members.len() + self.pending.len()) * MEMBER_BYTES
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
        if beat.epoch < 0 {
            return self.leave(now, &beat);
        }
        let subscription = self.subscription_of(&beat)?;
        self.check_size(&beat)?;
        let is_new = self.admit(&beat)?;
        let id = beat.member_id.clone();
        let changed = self.update(&id, &beat, subscription) || is_new;
        let tells_all = beat.epoch == 0
            || (beat.rebalance_timeout.is_some()
                && (beat.topics.is_some() || beat.topics_regex.is_some())
                && beat.owned.is_some());
        let before = self.members.get(&id).map(|m| m.assigned.clone());
        self.catch_up(now, &id, beat.owned.as_ref(), changed, catalog);
        let member = self.members.get_mut(&id).ok_or(GroupError::UnknownMember)?;
        member.session_until = now + self.config.consumer_session_timeout.0;
        let is_told = tells_all || before.as_ref() != Some(&member.assigned);
        Ok(BeatAnswer {
            epoch: member.epoch,
            assignment: is_told.then(|| member.assigned.clone()),
            heartbeat_interval: self.next_beat_in(now),
        })
    }

    /// Says whether a commit is to be taken; in `member` the generation is the member's epoch. For
    /// a classic member it is a heartbeat too.
    pub(super) fn check_commit(
        &mut self,
        now: UnixMillis,
        member: MemberRef<'_>,
    ) -> Result<(), GroupError> {
        self.check_fetch(member)?;
        if let Some(found) = self.members.get_mut(member.member_id) {
            found.touch(now);
        }
        Ok(())
    }

    /// Says whether a member may be told what was committed.
    pub(super) fn check_fetch(&self, member: MemberRef<'_>) -> Result<(), GroupError> {
        if member.generation < 0 && self.members.is_empty() {
            return Ok(());
        }
        let found = self.members.get(member.member_id);
        let found = found.ok_or(GroupError::UnknownMember)?;
        match found.classic {
            _ if found.epoch == member.generation => Ok(()),
            Some(_) => Err(GroupError::IllegalGeneration),
            None => Err(GroupError::StaleMemberEpoch),
        }
    }

    /// Says whether a commit from before the member's last epoch is to be taken all the same: it
    /// was on its way while the epoch rose, and the member has held all of `partitions` since
    /// then (KIP-1251).
    pub(super) fn check_late_commit(
        &self,
        member: MemberRef<'_>,
        partitions: &[(Uuid, i32)],
    ) -> Result<(), GroupError> {
        let found = self.members.get(member.member_id);
        let found = found.ok_or(GroupError::UnknownMember)?;
        let is_held = |partition: &(Uuid, i32)| {
            let owner = self.owners.get(partition);
            owner.is_some_and(|o| o.id == member.member_id && o.since <= member.generation)
        };
        if member.generation < found.epoch && partitions.iter().all(is_held) {
            Ok(())
        } else {
            Err(GroupError::StaleMemberEpoch)
        }
    }

    /// Does what is due at `now`: puts out who is silent or keeps what it was to give back.
    pub(super) fn tick(&mut self, now: UnixMillis) {
        self.pending.retain(|_, until| *until > now);
        let is_over = |m: &Member| m.deadline() <= now;
        let gone: Vec<String> = self
            .members
            .iter()
            .filter(|(_, m)| is_over(m))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &gone {
            self.remove(id);
        }
    }

    /// When [`ConsumerGroup::tick`] must be called next, if ever.
    pub(super) fn next_deadline(&self) -> Option<UnixMillis> {
        let ids = self.pending.values().copied();
        self.members.values().map(Member::deadline).chain(ids).min()
    }

    pub(super) fn state(&self) -> GroupState {
        let is_behind =
            |m: &Member| !m.revoking.is_empty() || m.awaits || m.epoch != self.assignment_epoch;
        if self.members.is_empty() {
            GroupState::Empty
        } else if self.epoch > self.assignment_epoch {
            GroupState::Assigning
        } else if self.members.values().any(is_behind) {
            GroupState::Reconciling
        } else {
            GroupState::Stable
        }
    }

    /// The group for people to look at.
    pub(super) fn describe(&self) -> ConsumerGroupDescription {
        let members = self
            .members
            .iter()
            .map(|(id, m)| ConsumerMemberDescription {
                member_id: id.clone(),
                instance_id: m.instance_id.clone(),
                rack_id: m.rack_id.clone(),
                is_classic: m.classic.is_some(),
                epoch: m.epoch,
                client_id: m.client_id.clone(),
                client_host: m.client_host.clone(),
                topics: m.subscription.names().map(str::to_owned).collect(),
                topics_regex: m.subscription.regex().map(str::to_owned),
                assigned: m.assigned.clone(),
                target: self.target.get(id).cloned().unwrap_or_default(),
            });
        ConsumerGroupDescription {
            state: self.state(),
            epoch: self.epoch,
            assignment_epoch: self.assignment_epoch,
            assignor: self.assignor().to_owned(),
            members: members.collect(),
        }
    }

    /// Whether a member reads this topic.
    pub(super) fn reads(&self, topic: &str) -> bool {
        let mut subscriptions = self.members.values().map(|m| &m.subscription);
        subscriptions.any(|s| s.wants(topic))
    }

    /// Finds the beat's member or takes it in; true when the members changed by that.
    fn admit(&mut self, beat: &Beat) -> Result<bool, GroupError> {
        let id = &beat.member_id;
        let holder = beat.instance_id.as_ref().and_then(|i| self.statics.get(i));
        if let Some(former) = holder.filter(|holder| *holder != id).cloned() {
            return self.replace_static(&former, beat).map(|()| false);
        }
        if self.members.contains_key(id) {
            return self.check_epoch(beat).map(|()| false);
        }
        if beat.epoch > 0 {
            return Err(GroupError::UnknownMember);
        }
        if self.members.len() >= self.config.members_max {
            return Err(GroupError::GroupFull);
        }
        self.insert(id, beat.instance_id.as_ref());
        Ok(true)
    }

    /// A static member came back under another id: it takes the place that was kept for it.
    fn replace_static(&mut self, former: &str, beat: &Beat) -> Result<(), GroupError> {
        if beat.epoch != 0 {
            return Err(GroupError::FencedInstance);
        }
        // One that restarts with the newer protocol does not say good-bye with the classic one.
        let has_left = |m: &Member| m.epoch == LEAVE_STATIC_EPOCH || m.classic.is_some();
        if !self.members.get(former).is_some_and(has_left) {
            return Err(GroupError::UnreleasedInstance);
        }
        self.rename(former, &beat.member_id);
        Ok(())
    }

    /// A member that nothing is known of yet.
    fn insert(&mut self, id: &str, instance_id: Option<&String>) {
        self.pending.remove(id);
        if let Some(instance_id) = instance_id {
            self.statics.insert(instance_id.clone(), id.to_owned());
        }
        self.members.insert(
            id.to_owned(),
            Member {
                instance_id: instance_id.cloned(),
                rack_id: None,
                client_id: String::new(),
                client_host: String::new(),
                subscription: Subscription::default(),
                assignor: None,
                rebalance_timeout: Duration::ZERO,
                epoch: 0,
                previous_epoch: 0,
                assigned: Partitions::default(),
                revoking: Partitions::default(),
                revoke_until: None,
                awaits: false,
                // Whoever takes it in sets it.
                session_until: UnixMillis(i64::MAX),
                classic: None,
            },
        );
    }

    /// A static member goes on under another id, from epoch 0: it holds nothing by itself, and
    /// finds what was kept for it.
    fn rename(&mut self, former: &str, id: &str) {
        let Some(mut member) = self.members.remove(former) else {
            return;
        };
        self.renamed = self.renamed.wrapping_add(1);
        member.epoch = 0;
        member.previous_epoch = 0;
        member.revoke_until = None;
        let revoked = std::mem::take(&mut member.revoking);
        self.release(former, &revoked);
        for partition in member.assigned.iter() {
            if let Some(owner) = self.owners.get_mut(&partition) {
                id.clone_into(&mut owner.id);
            }
        }
        if let Some(target) = self.target.remove(former) {
            self.target.insert(id.to_owned(), target);
        }
        if let Some(instance_id) = &member.instance_id {
            self.statics.insert(instance_id.clone(), id.to_owned());
        }
        self.members.insert(id.to_owned(), member);
    }

    /// A known member must be at its epoch. It may be one behind when it holds no more than it
    /// may: then it has not heard the last answer. With epoch 0 it says that it starts anew and
    /// holds nothing.
    fn check_epoch(&mut self, beat: &Beat) -> Result<(), GroupError> {
        let Some(member) = self.members.get_mut(&beat.member_id) else {
            return Err(GroupError::UnknownMember);
        };
        if beat.epoch != 0 && member.classic.is_some() {
            return Err(GroupError::FencedMemberEpoch);
        }
        if beat.epoch == member.epoch {
            return Ok(());
        }
        if beat.epoch == 0 {
            if member.epoch == LEAVE_STATIC_EPOCH {
                self.renamed = self.renamed.wrapping_add(1);
            }
            member.epoch = 0;
            member.previous_epoch = 0;
            let held = std::mem::take(&mut member.assigned);
            let revoked = std::mem::take(&mut member.revoking);
            member.revoke_until = None;
            self.release(&beat.member_id, &held);
            self.release(&beat.member_id, &revoked);
            return Ok(());
        }
        let holds_no_more = beat
            .owned
            .as_ref()
            .is_some_and(|o| o.is_within(&member.assigned));
        if beat.epoch == member.previous_epoch && holds_no_more {
            Ok(())
        } else {
            Err(GroupError::FencedMemberEpoch)
        }
    }

    fn leave(&mut self, now: UnixMillis, beat: &Beat) -> Result<BeatAnswer, GroupError> {
        let id = &beat.member_id;
        if let Some(instance_id) = &beat.instance_id {
            let known = self.statics.get(instance_id);
            if known.ok_or(GroupError::UnknownMember)? != id {
                return Err(GroupError::FencedInstance);
            }
        }
        let member = self.members.get_mut(id).ok_or(GroupError::UnknownMember)?;
        if beat.epoch == LEAVE_STATIC_EPOCH {
            // What it was to give back it has given back by going; the rest waits for it.
            member.epoch = LEAVE_STATIC_EPOCH;
            self.renamed = self.renamed.wrapping_add(1);
            member.session_until = now + self.config.consumer_session_timeout.0;
            member.revoke_until = None;
            let revoked = std::mem::take(&mut member.revoking);
            self.release(id, &revoked);
        } else {
            self.remove(id);
        }
        Ok(BeatAnswer {
            epoch: beat.epoch,
            assignment: None,
            heartbeat_interval: self.config.consumer_heartbeat_interval.0,
        })
    }

    pub(super) fn remove(&mut self, id: &str) {
        let Some(member) = self.members.remove(id) else {
            return;
        };
        if let Some(instance_id) = &member.instance_id {
            self.statics.remove(instance_id);
        }
        self.target.remove(id);
        self.release(id, &member.assigned);
        self.release(id, &member.revoking);
        self.raise_epoch();
    }

    /// How long a member may wait with its next heartbeat: no longer than until the next shares,
    /// when some are due that could not be made yet.
    fn next_beat_in(&self, now: UnixMillis) -> Duration {
        let interval = self.config.consumer_heartbeat_interval.0;
        match self.epoch > self.assignment_epoch {
            true => interval.min(self.assignable_in(now)),
            false => interval,
        }
    }

    fn raise_epoch(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
    }

    fn check_size(&self, beat: &Beat) -> Result<(), GroupError> {
        let names = names_bytes(beat.topics.iter().flatten());
        let told = names + beat.topics_regex.as_ref().map_or(0, String::len);
        let others = self.members.iter().filter(|(id, _)| **id != beat.member_id);
        let taken: usize = others.map(|(_, m)| m.bytes()).sum();
        if told + taken > self.config.group_bytes_max {
            return Err(GroupError::TooLarge);
        }
        Ok(())
    }
}

impl Member {
    /// Bytes of what it told.
    fn bytes(&self) -> usize {
        self.subscription.bytes() + self.classic.as_ref().map_or(0, Classic::bytes)
    }

    /// When it must be put out unless it comes, or gives back what it is to.
    fn deadline(&self) -> UnixMillis {
        let classic = self.classic.as_ref().and_then(Classic::deadline);
        let others = self.revoke_until.into_iter().chain(classic);
        others.fold(self.session_until, UnixMillis::min)
    }
}

/// What a heartbeat must say to be one, whatever the group.
fn check_shape(beat: &Beat) -> Result<(), GroupError> {
    let is_blank = |text: &Option<String>| text.as_ref().is_some_and(|t| t.trim().is_empty());
    let subscribes = beat.topics.is_some() || beat.topics_regex.is_some();
    let holds_nothing = beat.owned.as_ref().is_some_and(Partitions::is_empty);
    let first_is_whole = beat.rebalance_timeout.is_some() && subscribes && holds_nothing;
    let is_sane = !beat.member_id.is_empty()
        && !is_blank(&beat.instance_id)
        && !is_blank(&beat.rack_id)
        && match beat.epoch {
            0 => first_is_whole,
            LEAVE_STATIC_EPOCH => beat.instance_id.is_some(),
            epoch => epoch >= LEAVE_EPOCH,
        };
    if !is_sane {
        return Err(GroupError::InvalidRequest);
    }
    let knows = |wanted: &String| assign::ASSIGNORS.contains(&wanted.as_str());
    if beat.assignor.as_ref().is_some_and(|wanted| !knows(wanted)) {
        return Err(GroupError::UnsupportedAssignor);
    }
    Ok(())
}
