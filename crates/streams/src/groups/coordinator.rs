//! The thin shell around the groups: looks them up, answers who waits, drives the timers.
//!
//! One lock covers all groups: what happens under it takes microseconds, and a group's members are
//! few next to the records they read. One task drives the timers of all groups; it sleeps until
//! the first deadline and exists only while some group has members, so an idle process wakes for
//! nothing. A heartbeat moves a deadline without waking the task.

mod pending;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base::{Clock, UnixMillis};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

pub use pending::Pending;

use super::consumer_group::ConsumerGroup;
use super::entry::{Entry, Members};
use super::group::{Answer, Group, Token};
use super::share_group::ShareGroup;
use super::streams_group::StreamsGroup;
use super::{
    Beat, BeatAnswer, CONSUMER_PROTOCOL_TYPE, Catalog, ConsumerGroupDescription,
    GROUP_ID_BYTES_MAX, GROUPS_BYTES_MAX, GroupDescription, GroupError, GroupKind, GroupStanding,
    GroupsConfig, JoinRequest, Joined, Leaving, Ledger, MEMBER_ID_BYTES_MAX, MemberRef,
    StreamsAnswer, StreamsBeat, StreamsGroupDescription, SyncRequest, Synced,
};

/// The one coordinator of the process. Joins and syncs must be called within a tokio runtime,
/// which then drives the timers.
pub struct Coordinator {
    config: Arc<GroupsConfig>,
    clock: Arc<dyn Clock>,
    ledger: Arc<dyn Ledger>,
    groups: Mutex<Groups>,
    sooner: Arc<Notify>,
    /// Where the timer runs, unless where it is first needed.
    runtime: OnceLock<Handle>,
}

#[derive(Default)]
struct Groups {
    by_name: HashMap<Arc<str>, Entry>,
    /// What all groups take together, in bytes.
    bytes: usize,
    deadlines: BTreeSet<(UnixMillis, Arc<str>)>,
    waiting: HashMap<Token, Waiting>,
    tokens: u64,
    timer: Option<JoinHandle<()>>,
    /// Whether the timer is at work; it looks for the next deadline by itself when it is done.
    is_ticking: bool,
}

/// What the coordinator asks of a heartbeat, whatever the kind of group.
struct Called {
    group: Arc<str>,
    /// Whether the member joins.
    joins: bool,
    /// Whether the group may be larger afterwards.
    grows: bool,
}

enum Waiting {
    Join(oneshot::Sender<Result<Joined, GroupError>>),
    Sync(oneshot::Sender<Result<Synced, GroupError>>),
}

impl Coordinator {
    /// A coordinator without groups.
    pub fn new(config: GroupsConfig, clock: Arc<dyn Clock>, ledger: Arc<dyn Ledger>) -> Arc<Self> {
        Arc::new(Coordinator {
            config: Arc::new(config),
            clock,
            ledger,
            groups: Mutex::new(Groups::default()),
            sooner: Arc::new(Notify::new()),
            runtime: OnceLock::new(),
        })
    }

    /// Joins the group's next generation; answers when all members have joined or timed out, or at
    /// once when the coordinator shares the partitions.
    pub fn join_group(
        self: &Arc<Self>,
        request: JoinRequest,
        catalog: &dyn Catalog,
    ) -> Pending<Joined> {
        let (sender, answer) = oneshot::channel();
        if let Err(error) = self.check_join(&request) {
            return Pending::refused(sender, answer, error);
        }
        let now = self.clock.now();
        let fresh_id = fresh_member_id(&request);
        let mut groups = self.groups.lock();
        let is_new = !groups.by_name.contains_key(request.group.as_str());
        if is_new && !request.member_id.is_empty() {
            return Pending::refused(sender, answer, GroupError::UnknownMember);
        }
        let told = request.protocols.iter().map(|p| p.metadata.len()).sum();
        if is_new && self.kind_of_standing(&request.group) == Some(GroupKind::Share) {
            return Pending::refused(sender, answer, GroupError::InconsistentProtocol);
        }
        let is_full = is_new && groups.by_name.len() >= self.config.groups_max;
        if is_full || !groups.has_room(told) {
            return Pending::refused(sender, answer, GroupError::TooManyGroups);
        }
        let name: Arc<str> = Arc::from(request.group.as_str());
        let token = groups.wait(Waiting::Join(sender));
        let entry = groups.by_name.entry(Arc::clone(&name)).or_insert_with(|| {
            let floor = self.ledger.standing(&name).map_or(0, |s| s.epoch);
            let config = self.config_of(&name);
            let group = Group::new(Arc::clone(&config), floor);
            Entry::new(&config, Members::Classic(group))
        });
        let mut out = Vec::new();
        entry.join(now, request, fresh_id, token, catalog, &mut out);
        self.settle(&mut groups, &name, out);
        Pending::new(answer, self, name, token)
    }

    /// Hands in the leader's assignment and answers with the caller's share, once it is there.
    pub fn sync_group(self: &Arc<Self>, request: SyncRequest) -> Pending<Synced> {
        let (sender, answer) = oneshot::channel();
        let now = self.clock.now();
        let mut groups = self.groups.lock();
        let Some((name, _)) = groups.by_name.get_key_value(request.group.as_str()) else {
            return Pending::refused(sender, answer, GroupError::UnknownMember);
        };
        let name = Arc::clone(name);
        let given = request.assignments.iter().map(|(_, a)| a.len()).sum();
        if given > 0 && !groups.has_room(given) {
            return Pending::refused(sender, answer, GroupError::TooManyGroups);
        }
        let token = groups.wait(Waiting::Sync(sender));
        let mut out = Vec::new();
        match groups.by_name.get_mut(&name) {
            Some(entry) => entry.sync(now, request, token, &mut out),
            None => out.push(Answer::Sync(token, Err(GroupError::UnknownMember))),
        }
        self.settle(&mut groups, &name, out);
        Pending::new(answer, self, name, token)
    }

    /// Keeps a member's session alive; tells it when it must join again.
    pub fn heartbeat(self: &Arc<Self>, member: MemberRef<'_>) -> Result<(), GroupError> {
        let now = self.clock.now();
        let mut groups = self.groups.lock();
        let Some(entry) = groups.by_name.get_mut(member.group) else {
            return Err(GroupError::UnknownMember);
        };
        let kept = entry.heartbeat(now, member);
        if kept == Err(GroupError::RebalanceInProgress) {
            // A member that is called to join has until then.
            self.settle(&mut groups, &Arc::from(member.group), Vec::new());
        }
        kept
    }

    /// Takes members out at once; one answer for each of `leaving`, in order.
    pub fn leave_group(
        self: &Arc<Self>,
        group: &str,
        leaving: &[Leaving],
    ) -> Vec<Result<(), GroupError>> {
        let now = self.clock.now();
        let mut groups = self.groups.lock();
        let Some(entry) = groups.by_name.get_mut(group) else {
            return leaving
                .iter()
                .map(|_| Err(GroupError::UnknownMember))
                .collect();
        };
        let mut out = Vec::new();
        let left = leaving
            .iter()
            .map(|l| entry.leave(now, l, &mut out))
            .collect();
        self.settle(&mut groups, &Arc::from(group), out);
        left
    }

    /// Takes a heartbeat of the newer protocol: joins, keeps the session, or leaves.
    pub fn consumer_heartbeat(
        self: &Arc<Self>,
        beat: Beat,
        catalog: &dyn Catalog,
    ) -> Result<BeatAnswer, GroupError> {
        check_names(&beat.group, names_of(&beat))?;
        let now = self.clock.now();
        let mut groups = self.groups.lock();
        let name: Arc<str> = Arc::from(beat.group.as_str());
        if !groups.by_name.contains_key(&name) {
            let epoch = self.epoch_of_standing(&beat)?;
            self.begin_group(&mut groups, &name, |config| {
                Members::Consumer(ConsumerGroup::new(config, epoch))
            })?;
        }
        if beat.topics.is_some() && !groups.has_room(0) {
            return Err(GroupError::TooManyGroups);
        }
        let mut out = Vec::new();
        let answer = match groups.by_name.get_mut(&name) {
            Some(entry) => entry.beat(now, beat, catalog, &mut out),
            None => Err(GroupError::NotFound),
        };
        self.settle(&mut groups, &name, out);
        answer
    }

    /// Takes a heartbeat of a member of a share group: joins, keeps the session, or leaves.
    pub fn share_heartbeat(
        self: &Arc<Self>,
        beat: Beat,
        catalog: &dyn Catalog,
    ) -> Result<BeatAnswer, GroupError> {
        check_names(&beat.group, names_of(&beat))?;
        let called = Called {
            group: Arc::from(beat.group.as_str()),
            joins: beat.epoch == 0,
            grows: beat.topics.is_some(),
        };
        self.take_beat(
            &called,
            |standing| standing.kind == GroupKind::Share,
            |config, epoch| Members::Share(ShareGroup::new(config, epoch)),
            |entry, now| entry.share_beat(now, beat, catalog),
        )
    }

    /// Takes a heartbeat of a member of a Kafka Streams application: joins, keeps the session, or leaves.
    pub fn streams_heartbeat(
        self: &Arc<Self>,
        beat: StreamsBeat,
        catalog: &dyn Catalog,
    ) -> Result<StreamsAnswer, GroupError> {
        let names = [
            Some(&beat.member_id),
            beat.rack_id.as_ref(),
            beat.process_id.as_ref(),
        ];
        check_names(&beat.group, names)?;
        let called = Called {
            group: Arc::from(beat.group.as_str()),
            joins: beat.epoch == 0,
            grows: beat.topology.is_some(),
        };
        self.take_beat(
            &called,
            // An application may change its protocol while it does not run.
            |standing| standing.kind == GroupKind::Streams || is_of_consumers(standing),
            |config, epoch| Members::Streams(StreamsGroup::new(config, epoch)),
            |entry, now| entry.streams_beat(now, beat, catalog),
        )
    }

    /// Has a group take a heartbeat; the first that joins begins it, unless a group stands there that
    /// cannot go on as such a one.
    fn take_beat<A>(
        self: &Arc<Self>,
        called: &Called,
        may_go_on: impl FnOnce(&GroupStanding) -> bool,
        begin: impl FnOnce(Arc<GroupsConfig>, i32) -> Members,
        take: impl FnOnce(&mut Entry, UnixMillis) -> Result<A, GroupError>,
    ) -> Result<A, GroupError> {
        let now = self.clock.now();
        let mut groups = self.groups.lock();
        if !groups.by_name.contains_key(&called.group) {
            let epoch = match self.ledger.standing(&called.group) {
                Some(standing) if may_go_on(&standing) => standing.epoch,
                Some(_) => return Err(GroupError::NotFound),
                None => 0,
            };
            if !called.joins {
                return Err(GroupError::UnknownMember);
            }
            self.begin_group(&mut groups, &called.group, |config| begin(config, epoch))?;
        }
        let has_room = !called.grows || groups.has_room(0);
        let answer = match groups.by_name.get_mut(&called.group) {
            Some(entry) if has_room => take(entry, now),
            Some(_) => Err(GroupError::TooManyGroups),
            None => Err(GroupError::NotFound),
        };
        self.settle(&mut groups, &called.group, Vec::new());
        answer
    }

    /// Begins a group of the kind whose members these are, if there is room for one more.
    fn begin_group(
        &self,
        groups: &mut Groups,
        name: &Arc<str>,
        members: impl FnOnce(Arc<GroupsConfig>) -> Members,
    ) -> Result<(), GroupError> {
        if groups.by_name.len() >= self.config.groups_max || !groups.has_room(0) {
            return Err(GroupError::TooManyGroups);
        }
        let config = self.config_of(name);
        let entry = Entry::new(&config, members(Arc::clone(&config)));
        groups.by_name.insert(Arc::clone(name), entry);
        Ok(())
    }

    /// Whether the group has members that share each partition.
    pub(crate) fn is_shared(&self, group: &str) -> bool {
        let groups = self.groups.lock();
        let entry = groups.by_name.get(group);
        entry.is_some_and(|entry| matches!(entry.members, Members::Share(_)))
    }

    /// Has a group go on by what is set for it now.
    pub(crate) fn follow_settings(&self, group: &str) {
        let mut groups = self.groups.lock();
        if let Some(entry) = groups.by_name.get_mut(group) {
            entry.follow(&self.config_of(group));
        }
    }

    /// The configuration that holds for a group.
    fn config_of(&self, group: &str) -> Arc<GroupsConfig> {
        let set = self.ledger.settings(group);
        match set.is_empty() {
            true => Arc::clone(&self.config),
            false => Arc::new(set.held(&self.config)),
        }
    }

    fn kind_of_standing(&self, group: &str) -> Option<GroupKind> {
        self.ledger.standing(group).map(|standing| standing.kind)
    }

    /// The epoch that a group without members goes on from, when the beat may begin it.
    fn epoch_of_standing(&self, beat: &Beat) -> Result<i32, GroupError> {
        let standing = self.ledger.standing(&beat.group);
        let may_join_again = |s: &GroupStanding| {
            s.kind == GroupKind::Consumer || s.protocol_type == CONSUMER_PROTOCOL_TYPE
        };
        match standing {
            Some(standing) if standing.kind == GroupKind::Share => Err(GroupError::NotFound),
            Some(standing) if beat.epoch == 0 || may_join_again(&standing) => Ok(standing.epoch),
            None if beat.epoch == 0 => Ok(0),
            _ => Err(GroupError::NotFound),
        }
    }

    /// Says whether a commit by `member` is to be taken; counts as a heartbeat. A commit from
    /// outside (generation below zero) is taken while the group has no members.
    pub fn check_commit(&self, member: MemberRef<'_>) -> Result<(), GroupError> {
        check_group_id(member.group)?;
        let now = self.clock.now();
        let mut groups = self.groups.lock();
        match groups.by_name.get_mut(member.group).map(|e| &mut e.members) {
            Some(Members::Classic(group)) => group.check_commit(now, member),
            Some(Members::Consumer(group)) => group.check_commit(now, member),
            Some(Members::Streams(group)) => group.check_commit(member),
            Some(Members::Share(_)) => Err(GroupError::NotFound),
            None if self.kind_of_standing(member.group) == Some(GroupKind::Share) => {
                Err(GroupError::NotFound)
            }
            None if member.generation < 0 => Ok(()),
            // Its members have all gone, whoever they were.
            None if self.ledger.standing(member.group).is_some() => Err(GroupError::UnknownMember),
            None => Err(GroupError::IllegalGeneration),
        }
    }

    /// Says whether a commit that was refused as [`GroupError::StaleMemberEpoch`] is to be taken
    /// for these partitions (topic id, index) all the same.
    pub fn check_late_commit(
        &self,
        member: MemberRef<'_>,
        partitions: &[(Uuid, i32)],
    ) -> Result<(), GroupError> {
        let groups = self.groups.lock();
        match groups.by_name.get(member.group).map(|e| &e.members) {
            Some(Members::Consumer(group)) => group.check_late_commit(member, partitions),
            Some(Members::Streams(group)) => group.check_late_commit(member, partitions),
            _ => Err(GroupError::UnknownMember),
        }
    }

    /// Says whether a member may be told its group's offsets; only members of the newer protocol
    /// say who they are.
    pub fn check_fetch(&self, member: MemberRef<'_>) -> Result<(), GroupError> {
        let groups = self.groups.lock();
        match groups.by_name.get(member.group).map(|e| &e.members) {
            _ if member.member_id.is_empty() && member.generation < 0 => Ok(()),
            Some(Members::Consumer(group)) => group.check_fetch(member),
            Some(Members::Streams(group)) => group.check_commit(member),
            _ => Ok(()),
        }
    }

    /// The group, when it has members (joined or about to join).
    pub fn describe(&self, group: &str) -> Option<GroupDescription> {
        let groups = self.groups.lock();
        let entry = groups.by_name.get(group)?;
        Some(entry.describe(group, true))
    }

    /// The group with its epochs and shares, when it has members of the newer protocol.
    pub fn describe_consumer(&self, group: &str) -> Option<ConsumerGroupDescription> {
        self.described(group, GroupKind::Consumer)
    }

    /// The share group with its epochs and shares, when it has members.
    pub fn describe_share(&self, group: &str) -> Option<ConsumerGroupDescription> {
        self.described(group, GroupKind::Share)
    }

    /// The application's group with its topology, epochs and shares, when it has members.
    pub fn describe_streams(&self, group: &str) -> Option<StreamsGroupDescription> {
        let groups = self.groups.lock();
        match groups.by_name.get(group).map(|entry| &entry.members) {
            Some(Members::Streams(group)) => Some(group.describe()),
            _ => None,
        }
    }

    /// The same as if its members were consumers, with the partitions that their tasks read.
    pub fn describe_streams_members(&self, group: &str) -> Option<ConsumerGroupDescription> {
        self.described(group, GroupKind::Streams)
    }

    fn described(&self, group: &str, kind: GroupKind) -> Option<ConsumerGroupDescription> {
        let groups = self.groups.lock();
        let entry = groups.by_name.get(group)?;
        match entry.kind() == kind {
            true => entry.described(),
            false => None,
        }
    }

    /// All groups that have members, in the order of their names, without their members.
    pub fn list(&self) -> Vec<GroupDescription> {
        let groups = self.groups.lock();
        let mut list: Vec<GroupDescription> = groups
            .by_name
            .iter()
            .map(|(name, entry)| entry.describe(name, false))
            .collect();
        list.sort_by(|a, b| a.group.cmp(&b.group));
        list
    }

    /// How many members all groups have together.
    pub fn members_count(&self) -> usize {
        let groups = self.groups.lock();
        groups.by_name.values().map(Entry::members_count).sum()
    }

    /// Fails with [`GroupError::NotEmpty`] when the group has members.
    pub fn check_delete(&self, group: &str) -> Result<(), GroupError> {
        let groups = self.groups.lock();
        match groups.by_name.get(group) {
            Some(entry) if entry.has_members() => Err(GroupError::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Whether a member of the group reads the topic of this wire name.
    pub fn reads(&self, group: &str, topic: &str) -> bool {
        let groups = self.groups.lock();
        match groups.by_name.get(group).map(|e| &e.members) {
            Some(Members::Classic(group)) => group.reads(topic),
            Some(Members::Consumer(group)) => group.reads(topic),
            Some(Members::Streams(group)) => group.reads(topic),
            Some(Members::Share(_)) | None => false,
        }
    }

    /// Does what is due; says how long from now the next deadline is away, if there is one.
    fn tick(self: &Arc<Self>) -> Option<Duration> {
        let now = self.clock.now();
        let mut groups = self.groups.lock();
        groups.is_ticking = true;
        // Each group has one turn, also one that is due again at once: the others get the lock.
        let deadlines = groups.deadlines.iter();
        let due = deadlines.take_while(|(at, _)| *at <= now).cloned();
        let due: Vec<(UnixMillis, Arc<str>)> = due.collect();
        for deadline in due {
            groups.deadlines.remove(&deadline);
            let (_, name) = deadline;
            let mut out = Vec::new();
            if let Some(entry) = groups.by_name.get_mut(&name) {
                entry.armed = None;
                entry.tick(now, &mut out);
            }
            self.settle(&mut groups, &name, out);
        }
        groups.is_ticking = false;
        let next = groups.deadlines.first().map(|(at, _)| at.since(now));
        if next.is_none() {
            // The task ends; whoever sets the next deadline starts another.
            groups.timer = None;
        }
        next
    }

    /// After a change of the group: answers, forgets what is empty and sees to the timer.
    fn settle(self: &Arc<Self>, groups: &mut Groups, name: &Arc<str>, mut out: Vec<Answer>) {
        if let Some(entry) = groups.by_name.get_mut(name) {
            entry.see_to_kind(self.clock.now(), &mut out);
        }
        for answer in out {
            groups.answer(answer);
        }
        let Some(entry) = groups.by_name.get_mut(name) else {
            return;
        };
        if let Some(standing) = entry.changed_standing() {
            self.ledger.note(name, &standing);
        }
        if let Some(roll) = entry.changed_roll() {
            self.ledger.keep(name, roll);
        }
        let (before, bytes) = entry.count();
        groups.bytes = groups.bytes - before + bytes;
        let armed = entry.armed;
        let next = entry.next_deadline();
        if entry.is_forgettable() {
            groups.bytes -= bytes;
            groups.by_name.remove(name);
            if let Some(at) = armed {
                groups.deadlines.remove(&(at, Arc::clone(name)));
            }
            return;
        }
        let Some(next) = next.filter(|next| armed.is_none_or(|at| *next < at)) else {
            return;
        };
        entry.armed = Some(next);
        if let Some(at) = armed {
            groups.deadlines.remove(&(at, Arc::clone(name)));
        }
        groups.deadlines.insert((next, Arc::clone(name)));
        self.see_to_timer(groups, next);
    }

    /// Takes in the members that were kept when the last process ended. The timer runs on this
    /// runtime from its next start on, whoever calls: some who do have one that ends before the
    /// groups.
    pub(crate) fn begin(self: &Arc<Self>, runtime: Handle) {
        // The first one is as good as any that comes later.
        let _ = self.runtime.set(runtime);
        let now = self.clock.now();
        for (name, kept) in self.ledger.kept() {
            let mut groups = self.groups.lock();
            if let Some(entry) = groups.by_name.get(&name) {
                if !entry.is_kept() {
                    // Its members of this process were sooner.
                    self.ledger.keep(&name, Vec::new());
                }
                continue;
            }
            let floor = self.ledger.standing(&name).map_or(0, |s| s.epoch);
            match Entry::of_kept(&self.config_of(&name), floor, &kept, now) {
                Ok(entry) => {
                    groups.by_name.insert(Arc::clone(&name), entry);
                    self.settle(&mut groups, &name, Vec::new());
                }
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(group = &*name, error, "a group begins without its members");
                    self.ledger.keep(&name, Vec::new());
                }
            }
        }
    }

    fn see_to_timer(self: &Arc<Self>, groups: &mut Groups, next: UnixMillis) {
        if groups.is_ticking {
            return;
        }
        if groups.timer.as_ref().is_none_or(JoinHandle::is_finished) {
            let runtime = self.runtime.get().cloned();
            match runtime.map_or_else(Handle::try_current, Ok) {
                Ok(runtime) => {
                    let timer = drive(Arc::downgrade(self), Arc::clone(&self.sooner));
                    groups.timer = Some(runtime.spawn(timer));
                }
                Err(_) => tracing::warn!("group timers stand still outside of a tokio runtime"),
            }
        } else if groups.deadlines.first().is_some_and(|(at, _)| *at == next) {
            self.sooner.notify_one();
        }
    }

    fn check_join(&self, request: &JoinRequest) -> Result<(), GroupError> {
        check_group_id(&request.group)?;
        let bounds = self.config.session_timeout_min.0..=self.config.session_timeout_max.0;
        if !bounds.contains(&request.session_timeout) {
            return Err(GroupError::InvalidSessionTimeout);
        }
        if request.protocols.is_empty() {
            return Err(GroupError::InconsistentProtocol);
        }
        Ok(())
    }
}

impl Groups {
    /// Whether members may tell or be given so much more.
    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= GROUPS_BYTES_MAX
    }

    fn wait(&mut self, waiting: Waiting) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        self.waiting.insert(token, waiting);
        token
    }

    fn answer(&mut self, answer: Answer) {
        let token = match &answer {
            Answer::Join(token, _) | Answer::Sync(token, _) => *token,
        };
        // A failed send means that the other side has just gone away; its withdrawal follows.
        match (self.waiting.remove(&token), answer) {
            (Some(Waiting::Join(sender)), Answer::Join(_, joined)) => drop(sender.send(joined)),
            (Some(Waiting::Sync(sender)), Answer::Sync(_, synced)) => drop(sender.send(synced)),
            _ => {}
        }
    }
}

/// Drives the timers until no deadline is left or the coordinator is gone.
async fn drive(coordinator: Weak<Coordinator>, sooner: Arc<Notify>) {
    loop {
        let Some(strong) = coordinator.upgrade() else {
            return;
        };
        let next = strong.tick();
        drop(strong);
        let Some(wait) = next else { return };
        // The clock may stand still in tests or step back: never spin on it.
        let wait = wait.max(Duration::from_millis(1));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = sooner.notified() => {}
        }
    }
}

fn check_group_id(group: &str) -> Result<(), GroupError> {
    if group.is_empty() || group.len() > GROUP_ID_BYTES_MAX {
        return Err(GroupError::InvalidGroupId);
    }
    Ok(())
}

/// Whether consumers of the classic protocol were the group's last members.
fn is_of_consumers(standing: &GroupStanding) -> bool {
    standing.kind == GroupKind::Classic && standing.protocol_type == CONSUMER_PROTOCOL_TYPE
}

/// The names of a heartbeat of the newer protocol.
fn names_of(beat: &Beat) -> [Option<&String>; 3] {
    let member = Some(&beat.member_id);
    [member, beat.instance_id.as_ref(), beat.rack_id.as_ref()]
}

/// A heartbeat's names, which are kept for each member.
fn check_names(group: &str, names: [Option<&String>; 3]) -> Result<(), GroupError> {
    check_group_id(group).map_err(|_| GroupError::InvalidRequest)?;
    match names
        .into_iter()
        .flatten()
        .all(|name| name.len() <= MEMBER_ID_BYTES_MAX)
    {
        true => Ok(()),
        false => Err(GroupError::InvalidRequest),
    }
}

/// An id that nobody else has and that tells people whose it is.
fn fresh_member_id(request: &JoinRequest) -> String {
    let name = request.instance_id.as_deref().unwrap_or(&request.client_id);
    let name: String = name.chars().take(MEMBER_NAME_CHARS_MAX).collect();
    format!("{name}-{}", Uuid::new_v4())
}

/// How much of a client's own name goes into its member id.
const MEMBER_NAME_CHARS_MAX: usize = 128;
