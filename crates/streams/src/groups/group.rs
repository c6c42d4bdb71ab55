//! One group as a state machine: requests and the time go in, answers come out.
//!
//! The rules are those of Kafka's classic protocol (KIP-62, KIP-345 for static members, KIP-394
//! for the member id, KIP-134 for the initial delay). Nothing here waits: who must be answered
//! later is known by its [`Token`], and [`Group::tick`] does what has become due.
//!
//! Invariants: a member waits for at most one answer of each kind; an assignment belongs to the
//! generation it was made for; `rebalance` is set exactly in `PreparingRebalance`.

mod generation;
mod kept;
mod migrants;
mod rebalance;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;

use super::{
    CONSUMER_PROTOCOL_TYPE, GroupDescription, GroupError, GroupKind, GroupState, GroupsConfig,
    JoinRequest, Joined, Leaving, MEMBER_BYTES, MemberDescription, MemberRef, Protocol, Sight,
    SyncRequest, Synced,
};

/// Names one who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Token(pub(super) u64);

/// An answer for the one who waits under the token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Join(Token, Result<Joined, GroupError>),
    Sync(Token, Result<Synced, GroupError>),
}

/// The state of one group.
#[derive(Debug)]
pub(super) struct Group {
    config: Arc<GroupsConfig>,
    state: GroupState,
    /// The generation before its first.
    floor: i32,
    generation: i32,
    protocol_type: String,
    protocol: String,
    leader: Option<String>,
    members: BTreeMap<String, Member>,
    /// Instance id to member id.
    statics: HashMap<String, String>,
    /// Member ids that were given out and not yet used, with the time until which they hold.
    pending: HashMap<String, UnixMillis>,
    rebalance: Option<Rebalance>,
    /// Until when all members of the generation must have asked for their share.
    sync_until: Option<UnixMillis>,
    /// How often a member has gone on under another id.
    renamed: u32,
}

#[derive(Debug)]
struct Member {
    instance_id: Option<String>,
    client_id: String,
    client_host: String,
    session_timeout: Duration,
    rebalance_timeout: Duration,
    protocols: Vec<Protocol>,
    assignment: Bytes,
    /// Which topics it may be told of, should the coordinator share the partitions.
    sight: Sight,
    /// Whether it lives in another process, and may outlive this one.
    is_remote: bool,
    joining: Option<Token>,
    syncing: Option<Token>,
    synced: bool,
    /// Whether it ever was in a generation; one that was not cannot come back with its id.
    admitted: bool,
    /// The generation that it knows from when the group spoke the newer protocol, until the next one
    /// begins.
    former_generation: Option<i32>,
    /// The end of the session, unless the member waits for an answer.
    session_until: UnixMillis,
}

impl Member {
    /// Bytes of what it told and was given.
    fn bytes(&self) -> usize {
        let protocols = self.protocols.iter();
        let told: usize = protocols.map(|p| p.name.len() + p.metadata.len()).sum();
        told + self.assignment.len()
    }
}

#[derive(Debug)]
struct Rebalance {
    until: UnixMillis,
    /// In the first rebalance after emptiness: by how much `until` may still be moved.
    extension: Option<Duration>,
    /// Whether someone has joined since `until` was set.
    joined_since: bool,
}

impl Group {
    /// A group without members, whose generations go on from `floor`.
    pub(super) fn new(config: Arc<GroupsConfig>, floor: i32) -> Self {
        Group {
            config,
            state: GroupState::Empty,
            floor,
            generation: floor,
            protocol_type: String::new(),
            protocol: String::new(),
            leader: None,
            members: BTreeMap::new(),
            statics: HashMap::new(),
            pending: HashMap::new(),
            rebalance: None,
            sync_until: None,
            renamed: 0,
        }
    }

    /// True when nothing is left that the coordinator must remember.
    pub(super) fn is_forgettable(&self) -> bool {
        self.members.is_empty() && self.pending.is_empty()
    }

    /// What kind of group it is; empty while it never had members.
    pub(super) fn protocol_type(&self) -> &str {
        &self.protocol_type
    }

    /// The generation that holds, or held last.
    pub(super) fn generation(&self) -> i32 {
        self.generation
    }

    /// The generation before its first.
    pub(super) fn floor(&self) -> i32 {
        self.floor
    }

    /// Whether a member's subscription names this topic, in Kafka's own encoding.
    pub(super) fn reads(&self, topic: &str) -> bool {
        self.protocol_type == CONSUMER_PROTOCOL_TYPE
            && self.members.values().any(|m| {
                let subscription = m.metadata(&self.protocol);
                crate::consumer::subscribed(&subscription).contains(topic)
            })
    }

    pub(super) fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    pub(super) fn members_count(&self) -> usize {
        self.members.len()
    }

    /// About the memory that the members take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let told: usize = self.members.values().map(Member::bytes).sum();
        told + (self.members.len() + self.pending.len()) * MEMBER_BYTES
    }

    /// Takes a join. `fresh_id` becomes the member's id if it has none yet.
    pub(super) fn join(
        &mut self,
        now: UnixMillis,
        request: JoinRequest,
        fresh_id: String,
        token: Token,
        out: &mut Vec<Answer>,
    ) {
        let joined = if request.member_id.is_empty() {
            self.join_unknown(now, request, fresh_id, token, out)
        } else {
            self.join_known(now, request, token, out)
        };
        if let Err(error) = joined {
            out.push(Answer::Join(token, Err(error)));
        }
    }

    /// Takes a member's request for its share.
    pub(super) fn sync(
        &mut self,
        now: UnixMillis,
        request: SyncRequest,
        token: Token,
        out: &mut Vec<Answer>,
    ) {
        match self.try_sync(now, request, token, out) {
            Ok(None) => {}
            Ok(Some(synced)) => out.push(Answer::Sync(token, Ok(synced))),
            Err(error) => out.push(Answer::Sync(token, Err(error))),
        }
    }

    /// Keeps a session alive.
    pub(super) fn heartbeat(
        &mut self,
        now: UnixMillis,
        member: MemberRef<'_>,
    ) -> Result<(), GroupError> {
        self.check_member(member.member_id, member.instance_id)?;
        self.check_generation(member.member_id, member.generation)?;
        self.touch(now, member.member_id);
        match self.state {
            GroupState::Empty
            | GroupState::Dead
            | GroupState::NotReady
            | GroupState::Assigning
            | GroupState::Reconciling => Err(GroupError::UnknownMember),
            GroupState::PreparingRebalance => Err(GroupError::RebalanceInProgress),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
        }
    }

    /// Says whether a commit is to be taken; a member's commit is a heartbeat too.
    pub(super) fn check_commit(
        &mut self,
        now: UnixMillis,
        member: MemberRef<'_>,
    ) -> Result<(), GroupError> {
        if member.generation < 0 && self.members.is_empty() {
            return Ok(());
        }
        self.check_member(member.member_id, member.instance_id)?;
        self.check_generation(member.member_id, member.generation)?;
        if self.state == GroupState::CompletingRebalance {
            return Err(GroupError::RebalanceInProgress);
        }
        self.touch(now, member.member_id);
        Ok(())
    }

    /// Takes a member out.
    pub(super) fn leave(
        &mut self,
        now: UnixMillis,
        leaving: &Leaving,
        out: &mut Vec<Answer>,
    ) -> Result<(), GroupError> {
        if self.pending.remove(&leaving.member_id).is_some() {
            self.finish_join_if_all_are_here(now, out);
            return Ok(());
        }
        let member_id = match &leaving.instance_id {
            None => leaving.member_id.clone(),
            Some(instance_id) => {
                let known = self
                    .statics
                    .get(instance_id)
                    .ok_or(GroupError::UnknownMember)?;
                if !leaving.member_id.is_empty() && leaving.member_id != *known {
                    return Err(GroupError::FencedInstance);
                }
                known.clone()
            }
        };
        if !self.members.contains_key(&member_id) {
            return Err(GroupError::UnknownMember);
        }
        self.remove(&member_id, &GroupError::UnknownMember, out);
        self.after_removal(now, out);
        Ok(())
    }

    /// The one who waited under `token` has gone away; its session decides about the rest.
    pub(super) fn withdraw(&mut self, now: UnixMillis, token: Token, out: &mut Vec<Answer>) {
        let found = self
            .members
            .iter_mut()
            .find(|(_, m)| m.joining == Some(token) || m.syncing == Some(token));
        let Some((id, member)) = found else { return };
        member.session_until = now + member.session_timeout;
        if member.syncing == Some(token) {
            member.syncing = None;
            return;
        }
        member.joining = None;
        if !member.admitted && member.instance_id.is_none() {
            let id = id.clone();
            self.remove(&id, &GroupError::UnknownMember, out);
            self.after_removal(now, out);
        }
    }

    /// Does what is due at `now`.
    pub(super) fn tick(&mut self, now: UnixMillis, out: &mut Vec<Answer>) {
        self.pending.retain(|_, until| *until > now);
        let sync_is_over = self.sync_until.is_some_and(|until| until <= now);
        if sync_is_over {
            self.sync_until = None;
        }
        let gone: Vec<String> = self
            .members
            .iter()
            .filter(|(_, m)| m.is_gone(now) || (sync_is_over && !m.synced))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &gone {
            self.remove(id, &GroupError::UnknownMember, out);
        }
        if !gone.is_empty() {
            self.after_removal(now, out);
        }
        let Some(rebalance) = &mut self.rebalance else {
            return;
        };
        if rebalance.until > now {
            // An id that ran out may have been the last that the others waited for.
            self.finish_join_if_all_are_here(now, out);
            return;
        }
        match rebalance.extension {
            Some(left) if rebalance.joined_since && !left.is_zero() => {
                // The caller's next tick comes from the new `until`.
                let step = left.min(self.config.initial_rebalance_delay.0);
                rebalance.until = now + step;
                rebalance.extension = Some(left - step);
                rebalance.joined_since = false;
            }
            _ => self.finish_join(now, out),
        }
    }

    /// When [`Group::tick`] must be called next, if ever.
    pub(super) fn next_deadline(&self) -> Option<UnixMillis> {
        let sessions = self
            .members
            .values()
            .filter(|m| !m.is_waiting())
            .map(|m| m.session_until);
        let ids = self.pending.values().copied();
        let rebalance = self.rebalance.as_ref().map(|r| r.until);
        sessions
            .chain(ids)
            .chain(rebalance)
            .chain(self.sync_until)
            .min()
    }

    /// The group for people to look at.
    pub(super) fn describe(&self, group: &str, with_members: bool) -> GroupDescription {
        let members =
            self.members
                .iter()
                .filter(|_| with_members)
                .map(|(id, m)| MemberDescription {
                    member_id: id.clone(),
                    instance_id: m.instance_id.clone(),
                    client_id: m.client_id.clone(),
                    client_host: m.client_host.clone(),
                    metadata: m.metadata(&self.protocol),
                    assignment: m.assignment.clone(),
                });
        GroupDescription {
            group: group.to_owned(),
            kind: GroupKind::Classic,
            state: self.state,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            generation: self.generation,
            members: members.collect(),
        }
    }
}

impl Member {
    fn knows(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|p| p.name == protocol)
    }

    fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|p| p.name == protocol);
        found.map(|p| p.metadata.clone()).unwrap_or_default()
    }

    fn is_waiting(&self) -> bool {
        self.joining.is_some() || self.syncing.is_some()
    }

    fn is_gone(&self, now: UnixMillis) -> bool {
        !self.is_waiting() && self.session_until <= now
    }

    fn refuse(&mut self, reason: &GroupError, out: &mut Vec<Answer>) {
        if let Some(token) = self.joining.take() {
            out.push(Answer::Join(token, Err(reason.clone())));
        }
        if let Some(token) = self.syncing.take() {
            out.push(Answer::Sync(token, Err(reason.clone())));
        }
    }
}

/// By how many initial delays the first rebalance may grow while members keep arriving.
const INITIAL_EXTENSIONS_MAX: u32 = 30;
