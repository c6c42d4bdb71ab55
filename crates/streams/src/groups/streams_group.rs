//! One group of a Kafka Streams application (KIP-1071) as a state machine: heartbeats and the time go
//! in, answers come out.
//!
//! Members tell what the application is made of ([`topology`]); the coordinator sees which topics there
//! are, says which are missing, and shares the tasks out ([`assign`], [`reconcile`]). As in a consumer group, the
//! *group epoch* counts changes of members, topology and topics, the *assignment epoch* is the one that
//! the shares were made for, and a *member's epoch* the one that it has come up to.
//!
//! Invariants: a task is done by one member at most, from when that is first told of it until it has
//! said that it does it no more or has been put out. A process never has two members with one task,
//! whether they do it or follow it, since they share the folder in which its state lies.
//!
//! Members are not kept for the next process: they are told that they are unknown, and join again.

mod assign;
mod beat;
mod member;
mod reconcile;
mod sight;
#[cfg(test)]
mod tests;
mod topology;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use uuid::Uuid;

pub use beat::{Endpoint, EndpointShare, StreamsAnswer, StreamsBeat, TaskOffset, TaskShare};
use member::Member;
use sight::ASSIGNOR;
pub use sight::{StreamsGroupDescription, StreamsMemberDescription};
use topology::Plan;
pub use topology::{GroupNotice, InternalTopic, NoticeKind, Subtopology, Topology};

use super::{
    Catalog, ConsumerGroupDescription, ConsumerMemberDescription, GroupError, GroupState,
    GroupsConfig, LEAVE_EPOCH, MEMBER_BYTES, MemberRef, Partitions, Tasks,
};

/// The state of one group.
#[derive(Debug)]
pub(super) struct StreamsGroup {
    config: Arc<GroupsConfig>,
    epoch: i32,
    assignment_epoch: i32,
    members: BTreeMap<String, Member>,
    topology: Option<Topology>,
    plan: Plan,
    /// The topics that the plan was made with.
    topics_version: Option<u64>,
    /// What each member is to do in the end.
    target: BTreeMap<String, TaskShare>,
    /// Who has a task, in whatever role, or has not yet given it back.
    holders: HashMap<(Arc<str>, i32), Vec<String>>,
    /// How many stand-bys the shares were made with.
    standbys: u32,
    /// When the first member came; the first shares wait a little for others.
    began_at: Option<UnixMillis>,
    /// Whether tasks were ever given out.
    has_shared: bool,
    /// Who asked all to end.
    shut_down_by: Option<String>,
    endpoints_epoch: i32,
}

impl StreamsGroup {
    /// A group without members, whose epochs go on from `epoch`.
    pub(super) fn new(config: Arc<GroupsConfig>, epoch: i32) -> Self {
        StreamsGroup {
            config,
            epoch,
            assignment_epoch: epoch,
            members: BTreeMap::new(),
            topology: None,
            plan: Plan::default(),
            topics_version: None,
            target: BTreeMap::new(),
            holders: HashMap::new(),
            standbys: 0,
            began_at: None,
            has_shared: false,
            shut_down_by: None,
            endpoints_epoch: 0,
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
        let told = self.members.values().map(Member::bytes).sum::<usize>();
        let topology = self.topology.as_ref().map_or(0, Topology::bytes);
        let tasks = self.holders.len() * TASK_BYTES;
        told + topology + tasks + self.members.len() * MEMBER_BYTES
    }

    /// The group epoch.
    pub(super) fn epoch(&self) -> i32 {
        self.epoch
    }

    /// Takes a heartbeat, whatever it says.
    pub(super) fn beat(
        &mut self,
        now: UnixMillis,
        mut beat: StreamsBeat,
        catalog: &dyn Catalog,
    ) -> Result<StreamsAnswer, GroupError> {
        beat.check_shape()?;
        if beat.epoch == 0 {
            // Who joins has nothing, even if it had once.
            beat.owned.get_or_insert_default();
        }
        if beat.epoch == LEAVE_EPOCH {
            return self.leave(&beat);
        }
        self.check_size(&beat)?;
        let is_new = self.check_epoch(&beat)?;
        let told = beat.topology.take();
        let topology_epoch = told.as_ref().map(|topology| topology.epoch);
        let is_other = self.look_at(told, catalog)?;
        let is_changed = self.update(&beat, topology_epoch, is_new);
        if beat.shuts_down {
            self.shut_down_by.get_or_insert(beat.member_id.clone());
        }
        self.began_at.get_or_insert(now);
        let standbys = self.config.streams_standby_replicas;
        if is_new || is_other || is_changed || standbys != self.standbys {
            self.raise_epoch();
            self.standbys = standbys;
        }
        self.see_to_shares(now);
        let id = &beat.member_id;
        let before = self.members.get(id).map(|member| member.assigned.clone());
        self.reconcile(now, id, beat.owned.as_ref());
        let session = self.config.streams_session_timeout.0;
        let member = self.members.get_mut(id).ok_or(GroupError::UnknownMember)?;
        member.session_until = now + session;
        let is_moved = before.as_ref() != Some(&member.assigned);
        if is_moved && member.endpoint.is_some() {
            self.endpoints_epoch = self.endpoints_epoch.saturating_add(1);
        }
        let is_told = is_moved
            || beat.epoch == 0
            || beat.epoch != member.epoch
            || beat.owned.is_some_and(|owned| owned != member.assigned);
        let member = self.members.get(id).ok_or(GroupError::UnknownMember)?;
        Ok(StreamsAnswer {
            epoch: member.epoch,
            share: is_told.then(|| member.assigned.clone()),
            heartbeat_interval: self.next_beat_in(now, member),
            notices: self.notices(member),
            endpoints_epoch: self.endpoints_epoch,
            endpoints: (beat.endpoints_epoch != self.endpoints_epoch).then(|| self.endpoints()),
            missing: self.plan.missing.clone(),
        })
    }

    /// Says whether a commit is to be taken; in `member` the generation is the member's epoch.
    pub(super) fn check_commit(&self, member: MemberRef<'_>) -> Result<(), GroupError> {
        if member.generation < 0 && self.members.is_empty() {
            return Ok(());
        }
        let found = self.members.get(member.member_id);
        let found = found.ok_or(GroupError::UnknownMember)?;
        match found.epoch == member.generation {
            true => Ok(()),
            false => Err(GroupError::StaleMemberEpoch),
        }
    }

    /// Says whether a commit from before the member's last epoch is to be taken all the same: it
    /// was on its way while the epoch rose, and the member has had the tasks since then that read
    /// all of `partitions`.
    pub(super) fn check_late_commit(
        &self,
        member: MemberRef<'_>,
        partitions: &[(Uuid, i32)],
    ) -> Result<(), GroupError> {
        let found = self.members.get(member.member_id);
        let found = found.ok_or(GroupError::UnknownMember)?;
        let is_held = |(topic, partition): &(Uuid, i32)| {
            let reader = self.plan.readers.get(topic);
            let since = reader.and_then(|of| found.since.get(&(Arc::clone(of), *partition)));
            since.is_some_and(|since| *since <= member.generation)
        };
        match member.generation < found.epoch && partitions.iter().all(is_held) {
            true => Ok(()),
            false => Err(GroupError::StaleMemberEpoch),
        }
    }

    /// Puts out who has been silent for too long, or keeps what it was to give back.
    pub(super) fn tick(&mut self, now: UnixMillis) {
        let is_over = |member: &Member| member.deadline() <= now;
        let gone = self.members.iter().filter(|(_, member)| is_over(member));
        let gone: Vec<String> = gone.map(|(id, _)| id.clone()).collect();
        for id in &gone {
            self.remove(id);
        }
    }

    /// When [`StreamsGroup::tick`] must be called next, if ever.
    pub(super) fn next_deadline(&self) -> Option<UnixMillis> {
        self.members.values().map(Member::deadline).min()
    }

    pub(super) fn state(&self) -> GroupState {
        let is_behind = |member: &Member| {
            !member.revoking.is_empty() || member.awaits || member.epoch != self.assignment_epoch
        };
        if self.members.is_empty() {
            GroupState::Empty
        } else if self.plan.problem.is_some() {
            GroupState::NotReady
        } else if self.epoch > self.assignment_epoch || !self.has_shared {
            GroupState::Assigning
        } else if self.members.values().any(is_behind) {
            GroupState::Reconciling
        } else {
            GroupState::Stable
        }
    }

    pub(super) fn assignor(&self) -> &'static str {
        ASSIGNOR
    }

    /// Whether the application reads this topic.
    pub(super) fn reads(&self, topic: &str) -> bool {
        let topology = self.topology.iter();
        let mut parts = topology.flat_map(|topology| &topology.subtopologies);
        parts.any(|of| of.inputs().any(|input| input == topic))
    }

    /// Whether the heartbeat is a new member's. A known one must be at its epoch, or one behind when
    /// it has no more than it may: then it has not heard the last answer.
    fn check_epoch(&self, beat: &StreamsBeat) -> Result<bool, GroupError> {
        let Some(member) = self.members.get(&beat.member_id) else {
            return match beat.epoch {
                0 if self.members.len() >= self.config.members_max => Err(GroupError::GroupFull),
                0 => Ok(true),
                _ => Err(GroupError::UnknownMember),
            };
        };
        let has_missed_one = beat.epoch == member.previous_epoch
            && beat.owned.as_ref().is_some_and(|owned| {
                owned.active.is_within(&member.assigned.active)
                    && owned.standby.is_within(&member.assigned.standby)
            });
        match beat.epoch == 0 || beat.epoch == member.epoch || has_missed_one {
            true => Ok(false),
            false => Err(GroupError::FencedMemberEpoch),
        }
    }

    /// Takes in what a member tells of the application, and sees what that comes to with the topics
    /// that there are; true when that is other work than before.
    fn look_at(
        &mut self,
        told: Option<Topology>,
        catalog: &dyn Catalog,
    ) -> Result<bool, GroupError> {
        let newer = match (told, &self.topology) {
            (None, _) => None,
            (Some(told), Some(known)) if told.epoch < known.epoch => None,
            (Some(told), Some(known)) if told.epoch == known.epoch => match told == *known {
                true => None,
                false => {
                    let reason = "another member has told another topology of the same epoch";
                    return Err(GroupError::InvalidTopology(reason.to_owned()));
                }
            },
            (Some(told), _) => Some(told),
        };
        let version = catalog.version();
        if newer.is_none() && self.topics_version == Some(version) {
            return Ok(false);
        }
        let topology = newer.as_ref().or(self.topology.as_ref());
        let plan = match topology {
            Some(topology) => topology.plan(catalog)?,
            None => Plan::default(),
        };
        let is_other = newer.is_some() || plan.work != self.plan.work;
        self.topics_version = Some(version);
        self.plan = plan;
        if newer.is_some() {
            self.topology = newer;
        }
        Ok(is_other)
    }

    /// Writes down what the heartbeat says of its member, who is taken in if it is new; true when the
    /// shares depend on what changed.
    fn update(&mut self, beat: &StreamsBeat, topology_epoch: Option<i32>, is_new: bool) -> bool {
        let member = match is_new {
            true => self
                .members
                .entry(beat.member_id.clone())
                .or_insert_with(Member::new),
            false => match self.members.get_mut(&beat.member_id) {
                Some(member) => member,
                None => return false,
            },
        };
        member.client_id.clone_from(&beat.client_id);
        member.client_host.clone_from(&beat.client_host);
        if beat.rack_id.is_some() {
            member.rack_id.clone_from(&beat.rack_id);
        }
        if let Some(timeout) = beat.rebalance_timeout {
            member.rebalance_timeout = timeout;
        }
        for (told, place) in [
            (&beat.offsets, &mut member.offsets),
            (&beat.end_offsets, &mut member.end_offsets),
        ] {
            if let Some(told) = told {
                place.clone_from(told);
            }
        }
        if let Some(tags) = &beat.tags {
            member.tags.clone_from(tags);
        }
        if beat.endpoint.is_some() && member.endpoint != beat.endpoint {
            member.endpoint.clone_from(&beat.endpoint);
            self.endpoints_epoch = self.endpoints_epoch.saturating_add(1);
        }
        let mut is_changed = false;
        if let Some(epoch) = topology_epoch {
            is_changed |= member.topology_epoch != epoch;
            member.topology_epoch = epoch;
        }
        if let Some(process) = &beat.process_id {
            is_changed |= member.process_id != *process;
            member.process_id.clone_from(process);
        }
        is_changed
    }

    fn leave(&mut self, beat: &StreamsBeat) -> Result<StreamsAnswer, GroupError> {
        if !self.members.contains_key(&beat.member_id) {
            return Err(GroupError::UnknownMember);
        }
        self.remove(&beat.member_id);
        Ok(StreamsAnswer {
            epoch: LEAVE_EPOCH,
            share: None,
            heartbeat_interval: self.config.streams_heartbeat_interval.0,
            notices: Vec::new(),
            endpoints_epoch: self.endpoints_epoch,
            endpoints: None,
            missing: Vec::new(),
        })
    }

    fn remove(&mut self, id: &str) {
        let Some(member) = self.members.remove(id) else {
            return;
        };
        self.target.remove(id);
        self.let_go(id, &member.assigned);
        self.let_go(id, &member.revoking);
        if member.endpoint.is_some() {
            self.endpoints_epoch = self.endpoints_epoch.saturating_add(1);
        }
        self.raise_epoch();
    }

    fn raise_epoch(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
    }

    /// How long the first shares still wait for more members.
    fn delay_left(&self, now: UnixMillis) -> Duration {
        // A clock that has stepped back holds nobody up.
        let began = self.began_at.filter(|at| !self.has_shared && *at <= now);
        let delay = self.config.streams_initial_rebalance_delay.0;
        began.map_or(Duration::ZERO, |at| (at + delay).since(now))
    }

    /// When the member is to call next: sooner than usual when something is about to change.
    fn next_beat_in(&self, now: UnixMillis, member: &Member) -> Duration {
        let usual = self.config.streams_heartbeat_interval.0;
        let soon = match (self.has_shared, member.awaits) {
            (false, _) => self.delay_left(now).max(SOON_MIN),
            (true, true) => SOON,
            (true, false) => usual,
        };
        soon.min(usual)
    }

    fn check_size(&self, beat: &StreamsBeat) -> Result<(), GroupError> {
        let told = beat.kept_bytes();
        match told > 0 && self.bytes() + told > self.config.group_bytes_max {
            true => Err(GroupError::TooLarge),
            false => Ok(()),
        }
    }
}

/// How soon a member is to call again that waits for others to give tasks back.
const SOON: Duration = Duration::from_millis(500);

/// The soonest that a member is to call again.
const SOON_MIN: Duration = Duration::from_millis(50);

/// About what a task takes with whoever has it, in bytes: in shares, and under who holds it.
const TASK_BYTES: usize = 256;
