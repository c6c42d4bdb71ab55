//! What a generation consists of: who may speak, which protocol holds, who gets which share.

use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;

use super::super::{
    GroupError, GroupState, JoinRequest, Joined, JoinedMember, Protocol, SyncRequest, Synced,
};
use super::{Answer, Group, Member, Token};

impl Group {
    pub(super) fn try_sync(
        &mut self,
        now: UnixMillis,
        request: SyncRequest,
        token: Token,
        out: &mut Vec<Answer>,
    ) -> Result<Option<Synced>, GroupError> {
        self.check_member(&request.member_id, request.instance_id.as_deref())?;
        self.check_generation(&request.member_id, request.generation)?;
        let differs = |asked: &Option<String>, is: &str| asked.as_deref().is_some_and(|a| a != is);
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol, &self.protocol)
        {
            return Err(GroupError::InconsistentProtocol);
        }
        self.touch(now, &request.member_id);
        match self.state {
            GroupState::Empty
            | GroupState::Dead
            | GroupState::NotReady
            | GroupState::Assigning
            | GroupState::Reconciling => Err(GroupError::UnknownMember),
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

    pub(super) fn share_out(
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

    pub(super) fn mark_synced(&mut self, id: &str) {
        if let Some(member) = self.members.get_mut(id) {
            member.synced = true;
        }
        if self.members.values().all(|m| m.synced) {
            self.sync_until = None;
        }
    }

    pub(super) fn touch(&mut self, now: UnixMillis, id: &str) {
        if let Some(member) = self.members.get_mut(id) {
            member.session_until = now + member.session_timeout;
        }
    }

    pub(super) fn check_member(
        &self,
        id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), GroupError> {
        if let Some(instance_id) = instance_id {
            let known = self
                .statics
                .get(instance_id)
                .ok_or(GroupError::UnknownMember)?;
            if known != id {
                return Err(GroupError::FencedInstance);
            }
        }
        if self.members.contains_key(id) {
            Ok(())
        } else {
            Err(GroupError::UnknownMember)
        }
    }

    /// A member that is yet to join again after the group spoke the newer protocol is known by the
    /// generation that it was told then.
    pub(super) fn check_generation(&self, id: &str, generation: i32) -> Result<(), GroupError> {
        let is_former = self.state == GroupState::PreparingRebalance
            && self
                .members
                .get(id)
                .is_some_and(|m| m.former_generation == Some(generation));
        if generation == self.generation || is_former {
            Ok(())
        } else {
            Err(GroupError::IllegalGeneration)
        }
    }

    /// The others (all but `except`) must know one of the offered protocols.
    pub(super) fn check_protocols(
        &self,
        request: &JoinRequest,
        except: Option<&str>,
    ) -> Result<(), GroupError> {
        if request.protocols.is_empty() || request.protocol_type.is_empty() {
            return Err(GroupError::InconsistentProtocol);
        }
        let mut others = self
            .members
            .iter()
            .filter(|(id, _)| Some(id.as_str()) != except)
            .peekable();
        if others.peek().is_none() {
            return Ok(());
        }
        if request.protocol_type != self.protocol_type {
            return Err(GroupError::InconsistentProtocol);
        }
        let others: Vec<&Member> = others.map(|(_, m)| m).collect();
        let shared = request
            .protocols
            .iter()
            .any(|p| others.iter().all(|m| m.knows(&p.name)));
        if shared {
            Ok(())
        } else {
            Err(GroupError::InconsistentProtocol)
        }
    }

    pub(super) fn check_size(
        &self,
        request: &JoinRequest,
        except: Option<&str>,
    ) -> Result<(), GroupError> {
        let size = |protocols: &[Protocol]| -> usize {
            protocols
                .iter()
                .map(|p| p.name.len() + p.metadata.len())
                .sum()
        };
        let others = self
            .members
            .iter()
            .filter(|(id, _)| Some(id.as_str()) != except);
        let taken: usize = others.map(|(_, m)| size(&m.protocols)).sum();
        if taken + size(&request.protocols) > self.config.group_bytes_max {
            return Err(GroupError::TooLarge);
        }
        Ok(())
    }

    /// The protocol that all members know and most members like best; on a tie the one that the
    /// first of the voters likes best.
    pub(super) fn choose_protocol(&self) -> String {
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
        votes
            .iter()
            .find(|(_, count)| *count == best)
            .map(|(n, _)| *n)
            .unwrap_or("")
            .to_owned()
    }

    pub(super) fn rebalance_timeout(&self) -> Duration {
        self.members
            .values()
            .map(|m| m.rebalance_timeout)
            .max()
            .unwrap_or(Duration::ZERO)
    }

    pub(super) fn joined(&self, id: &str) -> Joined {
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

    pub(super) fn synced(&self, id: &str) -> Synced {
        Synced {
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment: self
                .members
                .get(id)
                .map(|m| m.assignment.clone())
                .unwrap_or_default(),
        }
    }
}
