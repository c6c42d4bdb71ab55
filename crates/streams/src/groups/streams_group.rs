//! One group of a Kafka Streams application (KIP-1071) as a state machine: heartbeats and the time go
//! in, answers come out.
//!
//! Members tell what the application is made of ([`topology`]); the coordinator sees which topics there
//! are, says which are missing, and shares the tasks out ([`assign`]). As in a consumer group, the
//! *group epoch* counts changes of members, topology and topics, the *assignment epoch* is the one that
//! the shares were made for, and a *member's epoch* the one that it has come up to.
//!
//! Invariants: a task is done by one member at most, from when that is first told of it until it has
//! said that it does it no more or has been put out. A process never has two members with one task,
//! whether they do it or follow it, since they share the folder in which its state lies.
//!
//! Members are not kept for the next process: they are told that they are unknown, and join again.

mod assign;
#[cfg(test)]
mod tests;
mod topology;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use uuid::Uuid;

use assign::Taker;
use topology::Plan;
pub use topology::{GroupNotice, InternalTopic, NoticeKind, Subtopology, Topology};

use super::{
    Catalog, ConsumerGroupDescription, ConsumerMemberDescription, GroupError, GroupState,
    GroupsConfig, LEAVE_EPOCH, MEMBER_BYTES, MemberRef, Partitions, Tasks,
};

/// A heartbeat of a member: joins, keeps the session, tells what changed, or leaves. What is absent
/// has not changed since the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamsBeat {
    /// The group, not empty.
    pub group: String,
    /// The id that the member gave itself, not empty.
    pub member_id: String,
    /// The epoch that it was told last; 0 to join, [`LEAVE_EPOCH`] to leave.
    pub epoch: i32,
    /// The epoch of the endpoints that it was told last.
    pub endpoints_epoch: i32,
    /// Where the member sits.
    pub rack_id: Option<String>,
    /// The client's own name, for people.
    pub client_id: String,
    /// The client's address, for people.
    pub client_host: String,
    /// How long the member may take to give tasks back.
    pub rebalance_timeout: Option<Duration>,
    /// What the application is made of; from a member that joins.
    pub topology: Option<Topology>,
    /// The tasks that it has.
    pub owned: Option<TaskShare>,
    /// The process that it is a thread of.
    pub process_id: Option<String>,
    /// Where its process answers questions about its states.
    pub endpoint: Option<Endpoint>,
    /// What it tells of where it runs.
    pub tags: Option<Vec<(String, String)>>,
    /// How far it has read the changelogs of tasks.
    pub offsets: Option<Vec<TaskOffset>>,
    /// How far it could have.
    pub end_offsets: Option<Vec<TaskOffset>>,
    /// Whether the whole application is to end.
    pub shuts_down: bool,
}

/// The coordinator's answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsAnswer {
    /// The member's epoch from now on.
    pub epoch: i32,
    /// What the member is to do, when that changed or the member told everything.
    pub share: Option<TaskShare>,
    /// How long after this one the next heartbeat is to come.
    pub heartbeat_interval: Duration,
    /// What holds for the group, or for the member in it.
    pub notices: Vec<GroupNotice>,
    /// The epoch of the endpoints.
    pub endpoints_epoch: i32,
    /// Who answers for what, when the member knows an older state of that.
    pub endpoints: Option<Vec<EndpointShare>>,
    /// Internal topics that are to be made before tasks can be given out.
    pub missing: Vec<InternalTopic>,
}

/// What a member does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskShare {
    /// The tasks that it does.
    pub active: Tasks,
    /// Those whose states it follows, to take them over soon.
    pub standby: Tasks,
}

/// An address at which a process answers questions about its states.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// A host's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// What a process answers for: by topic, its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointShare {
    /// Where it answers.
    pub endpoint: Endpoint,
    /// What its tasks read.
    pub active: BTreeMap<String, BTreeSet<i32>>,
    /// What the tasks read that it follows.
    pub standby: BTreeMap<String, BTreeSet<i32>>,
}

/// How far a member has come with a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskOffset {
    /// The task's subtopology.
    pub subtopology: String,
    /// The task's number.
    pub partition: i32,
    /// The sum of the offsets of its changelogs.
    pub offset: i64,
}

/// A group for people to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsGroupDescription {
    /// Where it stands.
    pub state: GroupState,
    /// Counts the changes of members, topology and topics.
    pub epoch: i32,
    /// The epoch that the shares were made for.
    pub assignment_epoch: i32,
    /// What the application is made of.
    pub topology: Option<Topology>,
    /// Its members in the order of their ids.
    pub members: Vec<StreamsMemberDescription>,
}

/// A member for people to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsMemberDescription {
    /// The member's id.
    pub member_id: String,
    /// The epoch that it was told last.
    pub epoch: i32,
    /// Where it sits.
    pub rack_id: Option<String>,
    /// The client's own name.
    pub client_id: String,
    /// The client's address.
    pub client_host: String,
    /// The epoch of the topology that it came with.
    pub topology_epoch: i32,
    /// The process that it is a thread of.
    pub process_id: String,
    /// Where its process answers questions.
    pub endpoint: Option<Endpoint>,
    /// What it tells of where it runs.
    pub tags: Vec<(String, String)>,
    /// How far it has read the changelogs of tasks.
    pub offsets: Vec<TaskOffset>,
    /// How far it could have.
    pub end_offsets: Vec<TaskOffset>,
    /// What it may do now.
    pub assigned: TaskShare,
    /// What it is to do in the end.
    pub target: TaskShare,
}

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

#[derive(Debug)]
struct Member {
    rack_id: Option<String>,
    client_id: String,
    client_host: String,
    rebalance_timeout: Duration,
    topology_epoch: i32,
    process_id: String,
    endpoint: Option<Endpoint>,
    tags: Vec<(String, String)>,
    offsets: Vec<TaskOffset>,
    end_offsets: Vec<TaskOffset>,
    epoch: i32,
    /// The epoch before: an answer that told of the new one may have been lost.
    previous_epoch: i32,
    /// What the member may do.
    assigned: TaskShare,
    /// What it was asked to give back and has not.
    revoking: TaskShare,
    /// Until when it must have.
    revoke_until: Option<UnixMillis>,
    /// Whether something it is to get is still with somebody else.
    awaits: bool,
    /// The epoch of the member when it was given a task to do.
    since: HashMap<(Arc<str>, i32), i32>,
    session_until: UnixMillis,
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
        check_shape(&beat)?;
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

    /// The group for people to look at.
    pub(super) fn describe(&self) -> StreamsGroupDescription {
        let members = self.members.iter();
        let members = members.map(|(id, member)| StreamsMemberDescription {
            member_id: id.clone(),
            epoch: member.epoch,
            rack_id: member.rack_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            topology_epoch: member.topology_epoch,
            process_id: member.process_id.clone(),
            endpoint: member.endpoint.clone(),
            tags: member.tags.clone(),
            offsets: member.offsets.clone(),
            end_offsets: member.end_offsets.clone(),
            assigned: member.assigned.clone(),
            target: self.target.get(id).cloned().unwrap_or_default(),
        });
        StreamsGroupDescription {
            state: self.state(),
            epoch: self.epoch,
            assignment_epoch: self.assignment_epoch,
            topology: self.topology.clone(),
            members: members.collect(),
        }
    }

    /// The same as if its members were consumers: with the partitions that their tasks read.
    pub(super) fn describe_as_consumers(&self) -> ConsumerGroupDescription {
        let partitions_of = |tasks: &Tasks| -> Partitions {
            let each = tasks.iter().flat_map(|(of, n)| {
                let work = self.plan.work.get(&of).into_iter();
                let topics = work.flat_map(|work| &work.topics);
                let topics = topics.filter(move |(_, _, count)| n < *count);
                topics.map(move |(_, id, _)| (*id, n))
            });
            each.collect()
        };
        let described = self.describe();
        let topics = described.topology.iter();
        let topics = topics.flat_map(|topology| &topology.subtopologies);
        let topics: BTreeSet<&str> = topics.flat_map(Subtopology::inputs).collect();
        let members = described.members.into_iter();
        let members = members.map(|member| ConsumerMemberDescription {
            member_id: member.member_id,
            instance_id: None,
            rack_id: member.rack_id,
            is_classic: false,
            epoch: member.epoch,
            client_id: member.client_id,
            client_host: member.client_host,
            topics: topics.iter().map(|&name| name.to_owned()).collect(),
            topics_regex: None,
            assigned: partitions_of(&member.assigned.active),
            target: partitions_of(&member.target.active),
        });
        ConsumerGroupDescription {
            state: described.state,
            epoch: described.epoch,
            assignment_epoch: described.assignment_epoch,
            assignor: ASSIGNOR.to_owned(),
            members: members.collect(),
        }
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

    /// Sees to it that there are shares for the group epoch: of nothing as long as the first ones wait.
    fn see_to_shares(&mut self, now: UnixMillis) {
        if !self.delay_left(now).is_zero() {
            self.target.clear();
            self.assignment_epoch = self.epoch;
            return;
        }
        if !self.has_shared && self.epoch == self.assignment_epoch {
            self.raise_epoch();
        }
        self.has_shared = true;
        if self.epoch > self.assignment_epoch {
            self.assign();
        }
    }

    /// Makes the shares anew for the group epoch.
    fn assign(&mut self) {
        let epoch = self.topology.as_ref().map_or(0, |topology| topology.epoch);
        // Who has an older topology knows other tasks.
        let members = self.members.iter();
        let members = members.filter(|(_, member)| member.topology_epoch == epoch);
        let members: Vec<(&String, &Member)> = members.collect();
        let takers = members.iter().map(|(id, member)| Taker {
            process: &member.process_id,
            before: self.target.get(*id),
        });
        let takers: Vec<Taker<'_>> = takers.collect();
        let standbys = usize::try_from(self.standbys).unwrap_or(0);
        let shares = assign::assign(&takers, &self.plan.work, standbys);
        let target = members.iter().map(|(id, _)| (*id).clone()).zip(shares);
        self.target = target.collect();
        self.assignment_epoch = self.epoch;
    }

    /// Brings a member as near to its share as the others allow. `owned` is what it says that it
    /// has; when it does not say, it may have all that it ever was given.
    fn reconcile(&mut self, now: UnixMillis, id: &str, owned: Option<&TaskShare>) {
        let still_has = |share: &TaskShare| owned.is_none_or(|owned| owned.meets(share));
        let assignment_epoch = self.assignment_epoch;
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        if !member.revoking.is_empty() {
            if still_has(&member.revoking) {
                return;
            }
            let given_back = std::mem::take(&mut member.revoking);
            member.revoke_until = None;
            self.let_go(id, &given_back);
        } else if !member.awaits && member.epoch == assignment_epoch {
            return;
        }
        let target = self.target.get(id).cloned().unwrap_or_default();
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        let (kept, surplus) = member.assigned.split_by(&target);
        member.assigned = kept;
        let active = &member.assigned.active;
        member.since.retain(|(of, n), _| active.contains(of, *n));
        if !surplus.is_empty() && still_has(&surplus) {
            member.revoking = surplus;
            member.revoke_until = Some(now + member.rebalance_timeout);
            member.awaits = false;
            return;
        }
        let (_, wanted) = target.split_by(&member.assigned);
        self.let_go(id, &surplus);
        let free = self.free_of(id, &wanted);
        let is_left = free != wanted;
        for task in free.active.iter().chain(free.standby.iter()) {
            self.holders.entry(task).or_default().push(id.to_owned());
        }
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        member.awaits = is_left;
        let since = free.active.iter().map(|task| (task, assignment_epoch));
        member.since.extend(since);
        member.assigned.active.extend(free.active.iter());
        member.assigned.standby.extend(free.standby.iter());
        if member.epoch != assignment_epoch {
            member.previous_epoch = member.epoch;
            member.epoch = assignment_epoch;
        }
    }

    /// What of `wanted` nobody stands in the way of.
    fn free_of(&self, id: &str, wanted: &TaskShare) -> TaskShare {
        let Some(member) = self.members.get(id) else {
            return TaskShare::default();
        };
        let others = |task: &(Arc<str>, i32)| {
            let holders = self.holders.get(task).into_iter().flatten();
            let others = holders.filter(|holder| holder.as_str() != id);
            others.filter_map(|holder| self.members.get(holder))
        };
        let is_elsewhere =
            |task: &(Arc<str>, i32)| others(task).all(|o| o.process_id != member.process_id);
        let is_undone = |task: &(Arc<str>, i32)| !others(task).any(|other| other.does(task));
        let active = wanted.active.iter().filter(is_elsewhere);
        TaskShare {
            active: active.filter(is_undone).collect(),
            standby: wanted.standby.iter().filter(is_elsewhere).collect(),
        }
    }

    /// The member has these no more.
    fn let_go(&mut self, id: &str, share: &TaskShare) {
        for task in share.active.iter().chain(share.standby.iter()) {
            if let Some(holders) = self.holders.get_mut(&task) {
                holders.retain(|holder| holder != id);
                if holders.is_empty() {
                    self.holders.remove(&task);
                }
            }
        }
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

    fn notices(&self, member: &Member) -> Vec<GroupNotice> {
        let mut notices = Vec::new();
        let mut note = |kind, detail: String| notices.push(GroupNotice { kind, detail });
        let epoch = self.topology.as_ref().map_or(0, |topology| topology.epoch);
        if member.topology_epoch < epoch {
            let told = member.topology_epoch;
            let detail = format!("The member's topology has epoch {told}, the group's {epoch}.");
            note(NoticeKind::StaleTopology, detail);
        }
        if let Some(problem) = &self.plan.problem {
            note(problem.kind, problem.detail.clone());
        } else if !self.has_shared {
            let detail = "The first tasks are given out a little later, as more members may come.";
            note(NoticeKind::AssignmentDelayed, detail.to_owned());
        }
        if let Some(by) = &self.shut_down_by {
            let detail = format!("Member {by} has asked the whole application to end.");
            note(NoticeKind::ShutdownApplication, detail);
        }
        notices
    }

    /// Who answers for which partitions; what several threads of a process have is told together.
    fn endpoints(&self) -> Vec<EndpointShare> {
        let mut by_endpoint: BTreeMap<&Endpoint, EndpointShare> = BTreeMap::new();
        for member in self.members.values() {
            let Some(endpoint) = &member.endpoint else {
                continue;
            };
            let share = by_endpoint
                .entry(endpoint)
                .or_insert_with(|| EndpointShare {
                    endpoint: endpoint.clone(),
                    active: BTreeMap::new(),
                    standby: BTreeMap::new(),
                });
            for (tasks, told) in [
                (&member.assigned.active, &mut share.active),
                (&member.assigned.standby, &mut share.standby),
            ] {
                for (of, n) in tasks.iter() {
                    let work = self.plan.work.get(&of).into_iter();
                    for (topic, _, count) in work.flat_map(|work| &work.topics) {
                        if n < *count {
                            told.entry(topic.clone()).or_default().insert(n);
                        }
                    }
                }
            }
        }
        by_endpoint.into_values().collect()
    }

    fn check_size(&self, beat: &StreamsBeat) -> Result<(), GroupError> {
        let told = beat_bytes(beat);
        match told > 0 && self.bytes() + told > self.config.group_bytes_max {
            true => Err(GroupError::TooLarge),
            false => Ok(()),
        }
    }
}

impl TaskShare {
    fn is_empty(&self) -> bool {
        self.active.is_empty() && self.standby.is_empty()
    }

    fn meets(&self, other: &TaskShare) -> bool {
        self.active.meets(&other.active) || self.standby.meets(&other.standby)
    }

    /// What is in both, and what is only in this one.
    fn split_by(&self, other: &TaskShare) -> (TaskShare, TaskShare) {
        let (active, lost_active) = self.active.split_by(&other.active);
        let (standby, lost_standby) = self.standby.split_by(&other.standby);
        let lost = TaskShare {
            active: lost_active,
            standby: lost_standby,
        };
        (TaskShare { active, standby }, lost)
    }
}

impl Member {
    /// A member that nothing is known of yet.
    fn new() -> Self {
        Member {
            rack_id: None,
            client_id: String::new(),
            client_host: String::new(),
            rebalance_timeout: Duration::ZERO,
            topology_epoch: 0,
            process_id: String::new(),
            endpoint: None,
            tags: Vec::new(),
            offsets: Vec::new(),
            end_offsets: Vec::new(),
            epoch: 0,
            previous_epoch: 0,
            assigned: TaskShare::default(),
            revoking: TaskShare::default(),
            revoke_until: None,
            awaits: false,
            since: HashMap::new(),
            // Whoever takes it in sets it.
            session_until: UnixMillis(i64::MAX),
        }
    }

    /// Whether it does a task, or has not yet given it back.
    fn does(&self, (of, n): &(Arc<str>, i32)) -> bool {
        self.assigned.active.contains(of, *n) || self.revoking.active.contains(of, *n)
    }

    fn deadline(&self) -> UnixMillis {
        let revoke_until = self.revoke_until.unwrap_or(self.session_until);
        self.session_until.min(revoke_until)
    }

    fn bytes(&self) -> usize {
        tags_bytes(&self.tags)
            + offsets_bytes(&self.offsets)
            + offsets_bytes(&self.end_offsets)
            + self.endpoint.as_ref().map_or(0, |at| at.host.len())
            + self.process_id.len()
    }
}

/// What a heartbeat must say to be one, whatever the group.
fn check_shape(beat: &StreamsBeat) -> Result<(), GroupError> {
    let is_full = beat.rebalance_timeout.is_some()
        && beat.process_id.is_some()
        && beat.topology.as_ref().is_some_and(|topology| {
            let mut parts = topology.subtopologies.iter();
            !topology.subtopologies.is_empty() && parts.all(|of| of.inputs().next().is_some())
        })
        && beat.owned.as_ref().is_none_or(TaskShare::is_empty);
    let is_sane = !beat.member_id.is_empty()
        && beat.epoch >= LEAVE_EPOCH
        && (beat.epoch != 0 || is_full)
        && (beat.epoch == 0 || beat.topology.is_none());
    match is_sane {
        true => Ok(()),
        false => Err(GroupError::InvalidRequest),
    }
}

/// What of a heartbeat would be kept, in bytes.
fn beat_bytes(beat: &StreamsBeat) -> usize {
    let offsets = |told: &Option<Vec<TaskOffset>>| told.as_deref().map_or(0, offsets_bytes);
    beat.topology.as_ref().map_or(0, Topology::bytes)
        + beat.tags.as_deref().map_or(0, tags_bytes)
        + offsets(&beat.offsets)
        + offsets(&beat.end_offsets)
}

fn tags_bytes(tags: &[(String, String)]) -> usize {
    tags.iter()
        .map(|(name, value)| name.len() + value.len() + TWO_TEXTS_BYTES)
        .sum()
}

fn offsets_bytes(offsets: &[TaskOffset]) -> usize {
    let each = offsets.iter();
    each.map(|of| of.subtopology.len() + size_of::<TaskOffset>())
        .sum()
}

/// What Kafka calls its own way of sharing.
const ASSIGNOR: &str = "sticky";

/// How soon a member is to call again that waits for others to give tasks back.
const SOON: Duration = Duration::from_millis(500);

/// The soonest that a member is to call again.
const SOON_MIN: Duration = Duration::from_millis(50);

/// About what a task takes with whoever has it, in bytes: in shares, and under who holds it.
const TASK_BYTES: usize = 256;

/// What two texts take beside their bytes.
const TWO_TEXTS_BYTES: usize = 48;
