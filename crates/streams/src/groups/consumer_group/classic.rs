//! Members of a consumer group that speak the classic protocol: they join, sync and send plain
//! heartbeats while the coordinator shares the partitions.
//!
//! What such a member is told is what Kafka tells it (`group.consumer.migration.policy`): a join is
//! answered at once, nobody leads, and the generation is the member's epoch; its share is the sync's
//! answer; a heartbeat says when to join again. What it holds it tells with its subscription when
//! it joins: nothing, when it gives all back before (eager), or what it goes on holding.
//!
//! Such a member has three deadlines: the end of its session, until when it must have joined after
//! it was told to, and until when it must have synced after it joined.

use std::collections::HashMap;
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;
use uuid::Uuid;

use super::super::{
    CONSUMER_PROTOCOL_TYPE, Catalog, GroupError, JoinRequest, Joined, Leaving, MemberRef, Protocol,
    SyncRequest, Synced,
};
use super::subscription::{Subscription, names_bytes};
use super::{ConsumerGroup, Member, Partitions};
use crate::consumer::{self, Share, Told};

/// What the group knows of a member beside what it knows of all, when it speaks the classic
/// protocol.
#[derive(Clone, Debug)]
pub(super) struct Classic {
    pub(super) session_timeout: Duration,
    /// The protocols that it offers, best first, with its subscription.
    pub(super) protocols: Vec<Protocol>,
    /// Until when it must have joined again.
    pub(super) join_until: Option<UnixMillis>,
    /// Until when it must have asked for its share.
    pub(super) sync_until: Option<UnixMillis>,
    /// Whether it lives in another process.
    pub(super) is_remote: bool,
}

impl ConsumerGroup {
    /// Whether nobody speaks the newer protocol any more.
    pub(in crate::groups) fn is_classic(&self) -> bool {
        self.has_members() && self.members.values().all(|m| m.classic.is_some())
    }

    /// The member of the newer protocol whose place the join takes, when all others are classic.
    pub(in crate::groups) fn last_replaced_by(&self, request: &JoinRequest) -> Option<String> {
        let instance_id = request.instance_id.as_ref()?;
        let former = self.statics.get(instance_id)?;
        let is_last = |(id, m): (&String, &Member)| m.classic.is_some() != (id == former);
        let is_replaced = request.member_id.is_empty() && self.members.iter().all(is_last);
        is_replaced.then(|| former.clone())
    }

    /// Takes a classic member's join; it has its answer at once.
    pub(in crate::groups) fn join_classic(
        &mut self,
        now: UnixMillis,
        request: JoinRequest,
        fresh_id: String,
        catalog: &dyn Catalog,
    ) -> Result<Joined, GroupError> {
        let told = self.check_join(&request)?;
        let is_unknown = request.member_id.is_empty();
        let id = match is_unknown {
            true => fresh_id,
            false => request.member_id.clone(),
        };
        if is_unknown && request.member_id_required && request.instance_id.is_none() {
            let until = now + request.session_timeout;
            self.pending.insert(id.clone(), until);
            return Err(GroupError::MemberIdRequired { member_id: id });
        }
        let is_expected = is_unknown || self.pending.contains_key(&id);
        if !is_expected && !self.members.contains_key(&id) && !told.owned.is_empty() {
            // It was put out and has not heard of it: what it still holds it has lost.
            return Err(GroupError::UnknownMember);
        }
        let is_new = self.admit_classic(&id, is_unknown, &request)?;
        // What a new member believes to hold from before is not its own any more: its share tells
        // it what to give up.
        let owned = match is_new {
            true => Partitions::default(),
            false => partitions_of(&told.owned, catalog),
        };
        let subscription = Subscription::of_classic(told.topics, request.sight);
        let member = self.members.get_mut(&id).ok_or(GroupError::UnknownMember)?;
        let changed = is_new || !member.subscription.is_like(&subscription);
        let protocol = request.protocols.first().map(|p| p.name.clone());
        member.subscription = subscription;
        member.client_id = request.client_id;
        member.client_host = request.client_host;
        member.rebalance_timeout = request.rebalance_timeout;
        member.assignor = None;
        if told.rack_id.is_some() {
            member.rack_id = told.rack_id;
        }
        member.session_until = now + request.session_timeout;
        member.classic = Some(Classic {
            session_timeout: request.session_timeout,
            protocols: request.protocols,
            join_until: None,
            sync_until: Some(now + request.rebalance_timeout),
            is_remote: request.is_remote,
        });
        self.catch_up(now, &id, Some(&owned), changed, catalog);
        Ok(Joined {
            generation: self.members.get(&id).map_or(0, |m| m.epoch),
            protocol_type: CONSUMER_PROTOCOL_TYPE.to_owned(),
            protocol: protocol.unwrap_or_default(),
            leader: String::new(),
            member_id: id,
            members: Vec::new(),
            skip_assignment: false,
        })
    }

    /// Answers a classic member's share.
    pub(in crate::groups) fn sync_classic(
        &mut self,
        now: UnixMillis,
        request: &SyncRequest,
    ) -> Result<Synced, GroupError> {
        let instance_id = request.instance_id.as_deref();
        self.check_classic(&request.member_id, instance_id, Some(request.generation))?;
        let epoch = self.epoch_to_reach(now);
        let member = self.members.get_mut(&request.member_id);
        let member = member.ok_or(GroupError::UnknownMember)?;
        let protocol = member.classic.as_ref().map_or("", Classic::protocol);
        let differs = |asked: &Option<String>, is: &str| asked.as_deref().is_some_and(|a| a != is);
        if differs(&request.protocol_type, CONSUMER_PROTOCOL_TYPE)
            || differs(&request.protocol, protocol)
        {
            return Err(GroupError::InconsistentProtocol);
        }
        let protocol = protocol.to_owned();
        member.touch(now);
        // Who is to give something back hears of that first, and joins again afterwards anyhow.
        if epoch > member.epoch && member.revoking.is_empty() {
            return Err(member.call_to_join(now));
        }
        if let Some(classic) = &mut member.classic {
            classic.sync_until = None;
        }
        let assigned: Vec<(Uuid, i32)> = member.assigned.iter().collect();
        Ok(Synced {
            protocol_type: CONSUMER_PROTOCOL_TYPE.to_owned(),
            protocol,
            assignment: consumer::assignment(&named(&self.names(), assigned)),
        })
    }

    /// Keeps a classic member's session alive; tells it when it must join again.
    pub(in crate::groups) fn heartbeat_classic(
        &mut self,
        now: UnixMillis,
        member: MemberRef<'_>,
    ) -> Result<(), GroupError> {
        self.check_classic(
            member.member_id,
            member.instance_id,
            Some(member.generation),
        )?;
        let may_get_the_rest = self.may_get_the_rest(member.member_id);
        let epoch = self.epoch_to_reach(now);
        let member = self.members.get_mut(member.member_id);
        let member = member.ok_or(GroupError::UnknownMember)?;
        member.touch(now);
        if member.epoch < epoch || !member.revoking.is_empty() || may_get_the_rest {
            return Err(member.call_to_join(now));
        }
        Ok(())
    }

    /// Takes a classic member out.
    pub(in crate::groups) fn leave_classic(&mut self, leaving: &Leaving) -> Result<(), GroupError> {
        if self.pending.remove(&leaving.member_id).is_some() {
            return Ok(());
        }
        let id = match &leaving.instance_id {
            None => leaving.member_id.clone(),
            Some(instance_id) => {
                let known = self.statics.get(instance_id);
                let known = known.ok_or(GroupError::UnknownMember)?;
                if !leaving.member_id.is_empty() && leaving.member_id != *known {
                    return Err(GroupError::FencedInstance);
                }
                known.clone()
            }
        };
        self.check_classic(&id, None, None)?;
        self.remove(&id);
        Ok(())
    }

    /// Whether a classic member's join is to be taken; answers what it told.
    pub(in crate::groups) fn check_join(&self, request: &JoinRequest) -> Result<Told, GroupError> {
        let replaced = request.instance_id.as_ref();
        let replaced = replaced.and_then(|i| self.statics.get(i));
        let known = replaced.unwrap_or(&request.member_id);
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE {
            return Err(GroupError::InconsistentProtocol);
        }
        let others = || {
            let others = self.members.iter().filter(|(id, _)| *id != known);
            others.filter_map(|(_, m)| m.classic.as_ref())
        };
        let is_shared =
            |p: &Protocol| others().all(|m| m.protocols.iter().any(|o| o.name == p.name));
        if !request.protocols.iter().any(is_shared) {
            return Err(GroupError::InconsistentProtocol);
        }
        let others = self.members.iter().filter(|(id, _)| *id != known);
        let taken: usize = others.map(|(_, m)| m.bytes()).sum();
        let bytes = taken + protocols_bytes(&request.protocols);
        if bytes > self.config.group_bytes_max {
            return Err(GroupError::TooLarge);
        }
        let first = first_metadata(&request.protocols);
        let told = consumer::read_subscription(&first);
        let told = told.ok_or(GroupError::InconsistentProtocol)?;
        // Read, many short names take more than they did on the wire.
        if bytes + names_bytes(&told.topics) > self.config.group_bytes_max {
            return Err(GroupError::TooLarge);
        }
        let promised = match self.pending.contains_key(known) {
            true => 0,
            false => self.pending.len(),
        };
        let taken = self.members.len() + promised;
        if !self.members.contains_key(known) && taken >= self.config.members_max {
            return Err(GroupError::GroupFull);
        }
        Ok(told)
    }

    /// Finds the member that joins or takes it in; true when the members changed by that.
    fn admit_classic(
        &mut self,
        id: &str,
        is_unknown: bool,
        request: &JoinRequest,
    ) -> Result<bool, GroupError> {
        if let Some(instance_id) = &request.instance_id {
            let known = self.statics.get(instance_id).cloned();
            match known {
                Some(known) if known == id => {
                    return self.check_classic(id, None, None).map(|()| false);
                }
                Some(former) if is_unknown => {
                    self.rename(&former, id);
                    return Ok(false);
                }
                Some(_) => return Err(GroupError::FencedInstance),
                None if is_unknown => {}
                None => return Err(GroupError::UnknownMember),
            }
        }
        if self.members.contains_key(id) {
            return self.check_classic(id, None, None).map(|()| false);
        }
        self.insert(id, request.instance_id.as_ref());
        Ok(true)
    }

    fn check_classic(
        &self,
        id: &str,
        instance_id: Option<&str>,
        generation: Option<i32>,
    ) -> Result<(), GroupError> {
        if let Some(instance_id) = instance_id {
            let known = self.statics.get(instance_id);
            if known.ok_or(GroupError::UnknownMember)? != id {
                return Err(GroupError::FencedInstance);
            }
        }
        let member = self.members.get(id).filter(|m| m.classic.is_some());
        let member = member.ok_or(GroupError::UnknownMember)?;
        match generation {
            Some(generation) if generation != member.epoch => Err(GroupError::IllegalGeneration),
            _ => Ok(()),
        }
    }

    /// Whether the member waits for partitions all of which have been given back by now.
    fn may_get_the_rest(&self, id: &str) -> bool {
        let (Some(member), Some(target)) = (self.members.get(id), self.target.get(id)) else {
            return false;
        };
        if !member.awaits {
            return false;
        }
        // What it has already is its own.
        target.iter().all(|partition| {
            let owner = self.owners.get(&partition);
            owner.is_none_or(|owner| owner.id == id)
        })
    }

    /// The names of the topics that somebody reads.
    pub(super) fn names(&self) -> HashMap<Uuid, &str> {
        let topics = self.topics.iter();
        topics.map(|(name, (id, _))| (*id, name.as_str())).collect()
    }
}

impl Member {
    /// A classic member has given a sign of life.
    pub(super) fn touch(&mut self, now: UnixMillis) {
        if let Some(classic) = &self.classic {
            self.session_until = now + classic.session_timeout;
        }
    }

    /// From the first time that it is told, a classic member has so long to join again.
    fn call_to_join(&mut self, now: UnixMillis) -> GroupError {
        let until = now + self.rebalance_timeout;
        if let Some(classic) = &mut self.classic {
            classic.join_until.get_or_insert(until);
        }
        GroupError::RebalanceInProgress
    }
}

impl Classic {
    /// When the member must be put out unless it comes.
    pub(super) fn deadline(&self) -> Option<UnixMillis> {
        self.join_until.into_iter().chain(self.sync_until).min()
    }

    /// Bytes of what it told.
    pub(super) fn bytes(&self) -> usize {
        protocols_bytes(&self.protocols)
    }

    /// The protocol that it likes best; what is shared out by whom is the same under each.
    fn protocol(&self) -> &str {
        self.protocols.first().map_or("", |p| p.name.as_str())
    }
}

/// The partitions by their topics' names; those of topics without one are left out.
pub(super) fn named(
    names: &HashMap<Uuid, &str>,
    partitions: impl IntoIterator<Item = (Uuid, i32)>,
) -> Share {
    let mut share = Share::new();
    for (id, partition) in partitions {
        if let Some(name) = names.get(&id) {
            let of_topic = share.entry((*name).to_owned()).or_default();
            of_topic.push(partition);
        }
    }
    share
}

/// The partitions of a share by their topics' ids; those that are not there are left out.
pub(super) fn partitions_of(share: &Share, catalog: &dyn Catalog) -> Partitions {
    let topics = share.iter().filter_map(|(name, partitions)| {
        let (id, count) = catalog.topic(name)?;
        let partitions = partitions.iter().filter(move |p| (0..count).contains(*p));
        Some(partitions.map(move |partition| (id, *partition)))
    });
    topics.flatten().collect()
}

pub(super) fn first_metadata(protocols: &[Protocol]) -> Bytes {
    let first = protocols.first().map(|p| p.metadata.clone());
    first.unwrap_or_default()
}

fn protocols_bytes(protocols: &[Protocol]) -> usize {
    let told = protocols.iter().map(|p| p.name.len() + p.metadata.len());
    told.sum()
}
