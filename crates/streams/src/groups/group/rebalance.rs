//! How a group comes to its next generation: joining, the wait for the others, leaving.

use base::UnixMillis;
use bytes::Bytes;

use super::super::{GroupError, GroupState, JoinRequest, Joined};
use super::{Answer, Group, INITIAL_EXTENSIONS_MAX, Member, Rebalance, Token};

impl Group {
    pub(super) fn join_unknown(
        &mut self,
        now: UnixMillis,
        request: JoinRequest,
        fresh_id: String,
        token: Token,
        out: &mut Vec<Answer>,
    ) -> Result<(), GroupError> {
        let replaced = request
            .instance_id
            .as_ref()
            .and_then(|i| self.statics.get(i))
            .cloned();
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
            self.pending
                .insert(fresh_id.clone(), now + request.session_timeout);
            return Err(GroupError::MemberIdRequired {
                member_id: fresh_id,
            });
        }
        self.add(now, request, fresh_id, token, out);
        Ok(())
    }

    pub(super) fn join_known(
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
        let is_unchanged = self
            .members
            .get(&id)
            .is_some_and(|m| m.protocols == request.protocols);
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

    pub(super) fn add(
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
                sight: request.sight,
                is_remote: request.is_remote,
                joining: Some(token),
                syncing: None,
                synced: false,
                admitted: false,
                former_generation: None,
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
    pub(super) fn replace_static(
        &mut self,
        now: UnixMillis,
        old_id: &str,
        request: JoinRequest,
        fresh_id: String,
        token: Token,
        out: &mut Vec<Answer>,
    ) {
        let Some(mut member) = self.members.remove(old_id) else {
            return;
        };
        self.renamed = self.renamed.wrapping_add(1);
        member.refuse(&GroupError::FencedInstance, out);
        member.former_generation = None;
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
            let joined = Joined {
                skip_assignment: was_leader,
                ..self.joined(&fresh_id)
            };
            out.push(Answer::Join(token, Ok(joined)));
        } else if self.state == GroupState::PreparingRebalance {
            self.finish_join_if_all_are_here(now, out);
        } else {
            self.start_rebalance(now, out);
        }
    }

    /// Writes a known member's new wishes down; it waits under `token` from now on.
    pub(super) fn update(
        &mut self,
        now: UnixMillis,
        id: &str,
        request: JoinRequest,
        token: Token,
        out: &mut Vec<Answer>,
    ) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        if let Some(earlier) = member.joining.replace(token) {
            // Its link broke and it asks again; whoever still listens there must ask again too.
            out.push(Answer::Join(earlier, Err(GroupError::RebalanceInProgress)));
        }
        member.session_until = now + request.session_timeout;
        member.session_timeout = request.session_timeout;
        member.rebalance_timeout = request.rebalance_timeout;
        member.protocols = request.protocols;
        member.sight = request.sight;
        member.is_remote = request.is_remote;
        member.client_id = request.client_id;
        member.client_host = request.client_host;
    }

    pub(super) fn start_rebalance(&mut self, now: UnixMillis, out: &mut Vec<Answer>) {
        for member in self.members.values_mut() {
            if let Some(token) = member.syncing.take() {
                member.session_until = now + member.session_timeout;
                out.push(Answer::Sync(token, Err(GroupError::RebalanceInProgress)));
            }
        }
        self.sync_until = None;
        let timeout = self.rebalance_timeout();
        self.rebalance = Some(if self.state == GroupState::Empty {
            let delay = self.config.initial_rebalance_delay.0.min(timeout);
            Rebalance {
                until: now + delay,
                extension: Some((timeout - delay).min(delay * INITIAL_EXTENSIONS_MAX)),
                joined_since: false,
            }
        } else {
            Rebalance {
                until: now + timeout,
                extension: None,
                joined_since: false,
            }
        });
        self.state = GroupState::PreparingRebalance;
        self.finish_join_if_all_are_here(now, out);
        if self.rebalance.as_ref().is_some_and(|r| r.until <= now) {
            self.finish_join(now, out);
        }
    }

    pub(super) fn finish_join_if_all_are_here(&mut self, now: UnixMillis, out: &mut Vec<Answer>) {
        // The initial delay runs its time: that all who are known are here means nothing yet.
        let may_finish = self
            .rebalance
            .as_ref()
            .is_some_and(|r| r.extension.is_none());
        if may_finish
            && self.pending.is_empty()
            && self.members.values().all(|m| m.joining.is_some())
        {
            self.finish_join(now, out);
        }
    }

    /// Ends the wait: who is not here is out (static members keep their place until their session
    /// ends), the next generation begins, and all who are here are told.
    pub(super) fn finish_join(&mut self, now: UnixMillis, out: &mut Vec<Answer>) {
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
        let leader_is_here = self
            .leader
            .as_ref()
            .and_then(|l| self.members.get(l))
            .is_some_and(|m| m.joining.is_some());
        if !leader_is_here {
            let here = self.members.iter().find(|(_, m)| m.joining.is_some());
            let Some((id, _)) = here else {
                // Only static members that are all away: wait until they return or expire. Who
                // asks for no wait at all is not to be looked after all the time.
                let pause = self.config.session_timeout_min.0;
                let until = now + self.rebalance_timeout().max(pause);
                self.rebalance = Some(Rebalance {
                    until,
                    extension: None,
                    joined_since: false,
                });
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
            member.former_generation = None;
            if let Some(token) = member.joining.take() {
                member.session_until = now + member.session_timeout;
                told.push((id.clone(), token));
            }
        }
        for (id, token) in told {
            out.push(Answer::Join(token, Ok(self.joined(&id))));
        }
    }

    pub(super) fn remove(&mut self, id: &str, reason: &GroupError, out: &mut Vec<Answer>) {
        let Some(mut member) = self.members.remove(id) else {
            return;
        };
        member.refuse(reason, out);
        if let Some(instance_id) = &member.instance_id {
            self.statics.remove(instance_id);
        }
        if self.leader.as_deref() == Some(id) {
            let waiting = self.members.iter().find(|(_, m)| m.joining.is_some());
            self.leader = waiting
                .or(self.members.iter().next())
                .map(|(id, _)| id.clone());
        }
    }

    pub(super) fn after_removal(&mut self, now: UnixMillis, out: &mut Vec<Answer>) {
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
            GroupState::Empty
            | GroupState::Dead
            | GroupState::NotReady
            | GroupState::Assigning
            | GroupState::Reconciling => {}
        }
    }

    pub(super) fn become_empty(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.state = GroupState::Empty;
        self.protocol.clear();
        self.leader = None;
        self.rebalance = None;
        self.sync_until = None;
    }
}
