//! One group as a state machine: requests and the time go in, answers come out.
//!
//! The rules are those of Kafka's classic protocol (KIP-62, KIP-345 for static members, KIP-394
//! for the member id, KIP-134 for the initial delay). Nothing here waits: who must be answered
//! later is known by its [`Token`], and [`Group::tick`] does what has become due.
//!
//! Invariants: a member waits for at most one answer of each kind; an assignment belongs to the
//! generation it was made for; `rebalance` is set exactly in `PreparingRebalance`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;

use super::{
    GroupDescription, GroupError, GroupState, GroupsConfig, JoinRequest, Joined, JoinedMember,
    Leaving, MemberDescription, MemberRef, Protocol, SyncRequest, Synced,
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
    joining: Option<Token>,
    syncing: Option<Token>,
    synced: bool,
    /// Whether it ever was in a generation; one that was not cannot come back with its id.
    admitted: bool,
    /// The end of the session, unless the member waits for an answer.
    session_until: UnixMillis,
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
    pub(super) fn new(config: Arc<GroupsConfig>) -> Self {
        Group {
            config,
            state: GroupState::Empty,
            generation: 0,
            protocol_type: String::new(),
            protocol: String::new(),
            leader: None,
            members: BTreeMap::new(),
            statics: HashMap::new(),
            pending: HashMap::new(),
            rebalance: None,
            sync_until: None,
        }
    }

    /// True when nothing is left that the coordinator must remember.
    pub(super) fn is_forgettable(&self) -> bool {
        self.members.is_empty() && self.pending.is_empty()
    }

    pub(super) fn has_members(&self) -> bool {
        !self.members.is_empty()
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
        self.check_generation(member.generation)?;
        self.touch(now, member.member_id);
        match self.state {
            GroupState::Empty | GroupState::Dead => Err(GroupError::UnknownMember),
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
        self.check_generation(member.generation)?;
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
                let known = self.statics.get(instance_id).ok_or(GroupError::UnknownMember)?;
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
        let Some(rebalance) = &mut self.rebalance else { return };
        if rebalance.until > now {
            // An id that ran out may have been the last that the others waited for.
            self.finish_join_if_all_are_here(now, out);
            return;
        }
        match rebalance.extension {
            Some(left) if rebalance.joined_since && !left.is_zero() => {
                // The caller's next tick comes from the new `until`.
                let step = left.min(self.config.initial_rebalance_delay);
                rebalance.until = now + step;
                rebalance.extension = Some(left - step);
                rebalance.joined_since = false;
            }
            _ => self.finish_join(now, out),
        }
    }

    /// When [`Group::tick`] must be called next, if ever.
    pub(super) fn next_deadline(&self) -> Option<UnixMillis> {
        let sessions = self.members.values().filter(|m| !m.is_waiting()).map(|m| m.session_until);
        let ids = self.pending.values().copied();
        let rebalance = self.rebalance.as_ref().map(|r| r.until);
        sessions.chain(ids).chain(rebalance).chain(self.sync_until).min()
    }

    /// The group for people to look at.
    pub(super) fn describe(&self, group: &str, with_members: bool) -> GroupDescription {
        let members = self.members.iter().filter(|_| with_members).map(|(id, m)| {
            MemberDescription {
                member_id: id.clone(),
                instance_id: m.instance_id.clone(),
                client_id: m.client_id.clone(),
                client_host: m.client_host.clone(),
                metadata: m.metadata(&self.protocol),
                assignment: m.assignment.clone(),
            }
        });
        GroupDescription {
            group: group.to_owned(),
            state: self.state,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            generation: self.generation,
            members: members.collect(),
        }
    }

    fn join_unknown(
        &mut self,
        now: UnixMillis,
        request: JoinRequest,
        fresh_id: String,
        token: Token,
        out: &mut Vec<Answer>,
    ) -> Result<(), GroupError> {
        let replaced = request.instance_id.as_ref().and_then(|i| self.statics.get(i)).cloned();
        self.check_protocols(&request, replaced.as_deref())?;
        self.check_size(&request, replaced.as_deref())?;
        if let Some(old_id) = replaced {
            self.replace_static(now, &old_id, request, fresh_id, token, out);
            return Ok(());
        }
        if self.members.len() + self.pending.len() >= self.config.members_max {
            return Err(GroupError::GroupFull);
        }
        if request.member_id_required && request.instance_id.is_none() {
            self.pending.insert(fresh_id.clone(), now + request.session_timeout);
            return Err(GroupError::MemberIdRequired { member_id: fresh_id });
        }
        self.add(now, request, fresh_id, token, out);
        Ok(())
    }

    fn join_known(
        &mut self,
        now: UnixMillis,
        request: JoinRequest,
        token: Token,
        out: &mut Vec<Answer>,
    ) -> Result<(), GroupError> {
        let id = request.member_id.clone();
        if self.pending.contains_key(&id) {
            self.check_protocols(&request, None)?;
            self.check_size(&request, None)?;
            self.pending.remove(&id);
            self.add(now, request, id, token, out);
            return Ok(());
        }
        self.check_member(&id, request.instance_id.as_deref())?;
        self.check_protocols(&request, Some(&id))?;
        self.check_size(&request, Some(&id))?;
        let is_leader = self.leader.as_deref() == Some(id.as_str());
        let is_unchanged =
            self.members.get(&id).is_some_and(|m| m.protocols == request.protocols);
        // A follower that asks again, or anybody who lost the answer before the sync, gets the
        // same answer again; a leader that asks again wants a new assignment.
        let answer_again = match self.state {
            GroupState::CompletingRebalance => is_unchanged,
            GroupState::Stable => is_unchanged && !is_leader,
            _ => false,
        };
        self.update(now, &id, request, token, out);
        if answer_again {
            if let Some(member) = self.members.get_mut(&id) {
                member.joining = None;
            }
            out.push(Answer::Join(token, Ok(self.joined(&id))));
        } else if self.state == GroupState::PreparingRebalance {
            self.finish_join_if_all_are_here(now, out);
        } else {
            self.start_rebalance(now, out);
        }
        Ok(())
    }

    fn add(
        &mut self,
        now: UnixMillis,
        request: JoinRequest,
        id: String,
        token: Token,
        out: &mut Vec<Answer>,
    ) {
        if self.members.is_empty() {
            self.protocol_type.clone_from(&request.protocol_type);
        }
        if let Some(instance_id) = &request.instance_id {
            self.statics.insert(instance_id.clone(), id.clone());
        }
        self.members.insert(
            id.clone(),
            Member {
                session_until: now + request.session_timeout,
                instance_id: request.instance_id,
                client_id: request.client_id,
                client_host: request.client_host,
                session_timeout: request.session_timeout,
                rebalance_timeout: request.rebalance_timeout,
                protocols: request.protocols,
                assignment: Bytes::new(),
                joining: Some(token),
                syncing: None,
                synced: false,
                admitted: false,
            },
        );
        self.leader.get_or_insert(id);
        match &mut self.rebalance {
            Some(rebalance) => {
                rebalance.joined_since = true;
                self.finish_join_if_all_are_here(now, out);
            }
            None => self.start_rebalance(now, out),
        }
    }

    /// A static member came back without its member id: the new id takes over the old one's place.
    fn replace_static(
        &mut self,
        now: UnixMillis,
        old_id: &str,
        request: JoinRequest,
        fresh_id: String,
        token: Token,
        out: &mut Vec<Answer>,
    ) {
        let Some(mut member) = self.members.remove(old_id) else { return };
        member.refuse(&GroupError::FencedInstance, out);
        if let Some(instance_id) = &member.instance_id {
            self.statics.insert(instance_id.clone(), fresh_id.clone());
        }
        let was_leader = self.leader.as_deref() == Some(old_id);
        if was_leader {
            self.leader = Some(fresh_id.clone());
        }
        self.members.insert(fresh_id.clone(), member);
        self.update(now, &fresh_id, request, token, out);
        if self.state == GroupState::Stable && self.choose_protocol() == self.protocol {
            if let Some(member) = self.members.get_mut(&fresh_id) {
                member.joining = None;
            }
            let joined = Joined { skip_assignment: was_leader, ..self.joined(&fresh_id) };
            out.push(Answer::Join(token, Ok(joined)));
        } else if self.state == GroupState::PreparingRebalance {
            self.finish_join_if_all_are_here(now, out);
        } else {
            self.start_rebalance(now, out);
        }
    }

    /// Writes a known member's new wishes down; it waits under `token` from now on.
    fn update(
        &mut self,
        now: UnixMillis,
        id: &str,
        request: JoinRequest,
        token: Token,
        out: &mut Vec<Answer>,
    ) {
        let Some(member) = self.members.get_mut(id) else { return };
        if let Some(earlier) = member.joining.replace(token) {
            // Its link broke and it asks again; whoever still listens there must ask again too.
            out.push(Answer::Join(earlier, Err(GroupError::RebalanceInProgress)));
        }
        member.session_until = now + request.session_timeout;
        member.session_timeout = request.session_timeout;
        member.rebalance_timeout = request.rebalance_timeout;
        member.protocols = request.protocols;
        member.client_id = request.client_id;
        member.client_host = request.client_host;
    }

    fn start_rebalance(&mut self, now: UnixMillis, out: &mut Vec<Answer>) {
        for member in self.members.values_mut() {
            if let Some(token) = member.syncing.take() {
                member.session_until = now + member.session_timeout;
                out.push(Answer::Sync(token, Err(GroupError::RebalanceInProgress)));
            }
        }
        self.sync_until = None;
        let timeout = self.rebalance_timeout();
        self.rebalance = Some(if self.state == GroupState::Empty {
            let delay = self.config.initial_rebalance_delay.min(timeout);
            Rebalance {
                until: now + delay,
                extension: Some((timeout - delay).min(delay * INITIAL_EXTENSIONS_MAX)),
                joined_since: false,
            }
        } else {
            Rebalance { until: now + timeout, extension: None, joined_since: false }
        });
        self.state = GroupState::PreparingRebalance;
        self.finish_join_if_all_are_here(now, out);
        if self.rebalance.as_ref().is_some_and(|r| r.until <= now) {
            self.finish_join(now, out);
        }
    }

    fn finish_join_if_all_are_here(&mut self, now: UnixMillis, out: &mut Vec<Answer>) {
        // The initial delay runs its time: that all who are known are here means nothing yet.
        let may_finish = self.rebalance.as_ref().is_some_and(|r| r.extension.is_none());
        if may_finish
            && self.pending.is_empty()
            && self.members.values().all(|m| m.joining.is_some())
        {
            self.finish_join(now, out);
        }
    }

    /// Ends the wait: who is not here is out (static members keep their place until their session
    /// ends), the next generation begins, and all who are here are told.
    fn finish_join(&mut self, now: UnixMillis, out: &mut Vec<Answer>) {
        let late: Vec<String> = self
            .members
            .iter()
            .filter(|(_, m)| m.joining.is_none() && m.instance_id.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in &late {
            self.remove(id, &GroupError::UnknownMember, out);
        }
        if self.members.is_empty() {
            self.become_empty();
            return;
        }
        let leader_is_here =
            self.leader.as_ref().and_then(|l| self.members.get(l)).is_some_and(|m| m.joining.is_some());
        if !leader_is_here {
            let here = self.members.iter().find(|(_, m)| m.joining.is_some());
            let Some((id, _)) = here else {
                // Only static members that are all away: wait until they return or expire.
                let until = now + self.rebalance_timeout();
                self.rebalance = Some(Rebalance { until, extension: None, joined_since: false });
                return;
            };
            self.leader = Some(id.clone());
        }
        self.rebalance = None;
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.protocol = self.choose_protocol();
        self.state = GroupState::CompletingRebalance;
        self.sync_until = Some(now + self.rebalance_timeout());
        let mut told = Vec::new();
        for (id, member) in &mut self.members {
            member.assignment = Bytes::new();
            member.synced = false;
            member.admitted = true;
            if let Some(token) = member.joining.take() {
                member.session_until = now + member.session_timeout;
                told.push((id.clone(), token));
            }
        }
        for (id, token) in told {
            out.push(Answer::Join(token, Ok(self.joined(&id))));
        }
    }

    fn try_sync(
        &mut self,
        now: UnixMillis,
        request: SyncRequest,
        token: Token,
        out: &mut Vec<Answer>,
    ) -> Result<Option<Synced>, GroupError> {
        self.check_member(&request.member_id, request.instance_id.as_deref())?;
        self.check_generation(request.generation)?;
        let differs = |asked: &Option<String>, is: &str| asked.as_deref().is_some_and(|a| a != is);
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol, &self.protocol)
        {
            return Err(GroupError::InconsistentProtocol);
        }
        self.touch(now, &request.member_id);
        match self.state {
            GroupState::Empty | GroupState::Dead => Err(GroupError::UnknownMember),
            GroupState::PreparingRebalance => Err(GroupError::RebalanceInProgress),
            GroupState::Stable => {
                self.mark_synced(&request.member_id);
                Ok(Some(self.synced(&request.member_id)))
            }
            GroupState::CompletingRebalance => {
                let bytes: usize = request.assignments.iter().map(|(_, a)| a.len()).sum();
                if bytes > self.config.group_bytes_max {
                    return Err(GroupError::TooLarge);
                }
                if let Some(member) = self.members.get_mut(&request.member_id)
                    && let Some(earlier) = member.syncing.replace(token)
                {
                    out.push(Answer::Sync(earlier, Err(GroupError::RebalanceInProgress)));
                }
                self.mark_synced(&request.member_id);
                if self.leader.as_deref() == Some(request.member_id.as_str()) {
                    self.share_out(now, request.assignments, out);
                }
                Ok(None)
            }
        }
    }

    fn share_out(
        &mut self,
        now: UnixMillis,
        assignments: Vec<(String, Bytes)>,
        out: &mut Vec<Answer>,
    ) {
        for (id, assignment) in assignments {
            // A leader may name members that have left since; their shares wait for nobody.
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = assignment;
            }
        }
        self.state = GroupState::Stable;
        let mut told = Vec::new();
        for (id, member) in &mut self.members {
            if let Some(token) = member.syncing.take() {
                member.session_until = now + member.session_timeout;
                told.push((id.clone(), token));
            }
        }
        for (id, token) in told {
            out.push(Answer::Sync(token, Ok(self.synced(&id))));
        }
    }

    fn mark_synced(&mut self, id: &str) {
        if let Some(member) = self.members.get_mut(id) {
            member.synced = true;
        }
        if self.members.values().all(|m| m.synced) {
            self.sync_until = None;
        }
    }

    fn remove(&mut self, id: &str, reason: &GroupError, out: &mut Vec<Answer>) {
        let Some(mut member) = self.members.remove(id) else { return };
        member.refuse(reason, out);
        if let Some(instance_id) = &member.instance_id {
            self.statics.remove(instance_id);
        }
        if self.leader.as_deref() == Some(id) {
            let waiting = self.members.iter().find(|(_, m)| m.joining.is_some());
            self.leader = waiting.or(self.members.iter().next()).map(|(id, _)| id.clone());
        }
    }

    fn after_removal(&mut self, now: UnixMillis, out: &mut Vec<Answer>) {
        match self.state {
            GroupState::Stable | GroupState::CompletingRebalance => {
                if self.members.is_empty() {
                    self.become_empty();
                } else {
                    self.start_rebalance(now, out);
                }
            }
            GroupState::PreparingRebalance => {
                if self.members.is_empty() {
                    self.become_empty();
                } else {
                    self.finish_join_if_all_are_here(now, out);
                }
            }
            GroupState::Empty | GroupState::Dead => {}
        }
    }

    fn become_empty(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.state = GroupState::Empty;
        self.protocol.clear();
        self.leader = None;
        self.rebalance = None;
        self.sync_until = None;
    }

    fn touch(&mut self, now: UnixMillis, id: &str) {
        if let Some(member) = self.members.get_mut(id) {
            member.session_until = now + member.session_timeout;
        }
    }

    fn check_member(&self, id: &str, instance_id: Option<&str>) -> Result<(), GroupError> {
        if let Some(instance_id) = instance_id {
            let known = self.statics.get(instance_id).ok_or(GroupError::UnknownMember)?;
            if known != id {
                return Err(GroupError::FencedInstance);
            }
        }
        if self.members.contains_key(id) { Ok(()) } else { Err(GroupError::UnknownMember) }
    }

    fn check_generation(&self, generation: i32) -> Result<(), GroupError> {
        if generation == self.generation { Ok(()) } else { Err(GroupError::IllegalGeneration) }
    }

    /// The others (all but `except`) must know one of the offered protocols.
    fn check_protocols(
        &self,
        request: &JoinRequest,
        except: Option<&str>,
    ) -> Result<(), GroupError> {
        if request.protocols.is_empty() || request.protocol_type.is_empty() {
            return Err(GroupError::InconsistentProtocol);
        }
        let mut others =
            self.members.iter().filter(|(id, _)| Some(id.as_str()) != except).peekable();
        if others.peek().is_none() {
            return Ok(());
        }
        if request.protocol_type != self.protocol_type {
            return Err(GroupError::InconsistentProtocol);
        }
        let others: Vec<&Member> = others.map(|(_, m)| m).collect();
        let shared = request.protocols.iter().any(|p| others.iter().all(|m| m.knows(&p.name)));
        if shared { Ok(()) } else { Err(GroupError::InconsistentProtocol) }
    }

    fn check_size(
        &self,
        request: &JoinRequest,
        except: Option<&str>,
    ) -> Result<(), GroupError> {
        let size = |protocols: &[Protocol]| -> usize {
            protocols.iter().map(|p| p.name.len() + p.metadata.len()).sum()
        };
        let others = self.members.iter().filter(|(id, _)| Some(id.as_str()) != except);
        let taken: usize = others.map(|(_, m)| size(&m.protocols)).sum();
        if taken + size(&request.protocols) > self.config.group_bytes_max {
            return Err(GroupError::TooLarge);
        }
        Ok(())
    }

    /// The protocol that all members know and most members like best; on a tie the one that the
    /// first of the voters likes best.
    fn choose_protocol(&self) -> String {
        let mut votes: Vec<(&str, usize)> = Vec::new();
        for member in self.members.values() {
            let choice = member
                .protocols
                .iter()
                .find(|p| self.members.values().all(|other| other.knows(&p.name)));
            let Some(choice) = choice else { continue };
            match votes.iter_mut().find(|(name, _)| *name == choice.name) {
                Some((_, count)) => *count += 1,
                None => votes.push((&choice.name, 1)),
            }
        }
        let best = votes.iter().map(|(_, count)| *count).max().unwrap_or(0);
        votes.iter().find(|(_, count)| *count == best).map(|(n, _)| *n).unwrap_or("").to_owned()
    }

    fn rebalance_timeout(&self) -> Duration {
        self.members.values().map(|m| m.rebalance_timeout).max().unwrap_or(Duration::ZERO)
    }

    fn joined(&self, id: &str) -> Joined {
        let leader = self.leader.clone().unwrap_or_default();
        let members = if leader == id {
            let joined = self.members.iter().map(|(id, m)| JoinedMember {
                member_id: id.clone(),
                instance_id: m.instance_id.clone(),
                metadata: m.metadata(&self.protocol),
            });
            joined.collect()
        } else {
            Vec::new()
        };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader,
            member_id: id.to_owned(),
            members,
            skip_assignment: false,
        }
    }

    fn synced(&self, id: &str) -> Synced {
        Synced {
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment: self.members.get(id).map(|m| m.assignment.clone()).unwrap_or_default(),
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
