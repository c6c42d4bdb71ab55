//! Members that go into a consumer group, and come back from one.

use std::collections::HashMap;

use base::UnixMillis;
use bytes::Bytes;

use super::super::migration::Migrant;
use super::super::{CONSUMER_PROTOCOL_TYPE, GroupError, GroupState};
use super::{Answer, Group, Member};

impl Group {
    /// The members that another kind of group takes over: all but those that were never told a
    /// generation, as they may not know their ids; they join again as new ones.
    pub(in crate::groups) fn migrants(&self, now: UnixMillis) -> Vec<Migrant> {
        let members = self.members.iter();
        let members = members.filter(|(_, m)| m.admitted || m.instance_id.is_some());
        let members = members.map(|(id, m)| Migrant {
            id: id.clone(),
            instance_id: m.instance_id.clone(),
            client_id: m.client_id.clone(),
            client_host: m.client_host.clone(),
            session_timeout: m.session_timeout,
            rebalance_timeout: m.rebalance_timeout,
            session_until: match m.is_waiting() {
                true => now + m.session_timeout,
                false => m.session_until,
            },
            metadata: m.subscription(&self.protocol),
            protocols: m.protocols.clone(),
            epoch: m.former_generation.unwrap_or(self.generation),
            assignment: m.assignment.clone(),
            assignor: self.protocol.clone(),
            sight: m.sight.clone(),
            is_remote: m.is_remote,
        });
        members.collect()
    }

    /// Ids that were given out and not yet used, with the time until which they hold.
    pub(in crate::groups) fn pending(&self) -> HashMap<String, UnixMillis> {
        self.pending.clone()
    }

    /// Tells all who wait to join again; the group is no more.
    pub(in crate::groups) fn dissolve(&mut self, out: &mut Vec<Answer>) {
        for member in self.members.values_mut() {
            member.refuse(&GroupError::RebalanceInProgress, out);
        }
        self.members.clear();
    }

    /// The group with members that come from another kind of group, about to join anew. Each is
    /// still known by the generation that it was told there.
    pub(in crate::groups) fn of_migrants(
        mut self,
        now: UnixMillis,
        migrants: Vec<Migrant>,
        pending: HashMap<String, UnixMillis>,
        out: &mut Vec<Answer>,
    ) -> Self {
        self.pending = pending;
        if migrants.is_empty() {
            return self;
        }
        CONSUMER_PROTOCOL_TYPE.clone_into(&mut self.protocol_type);
        for migrant in migrants {
            if let Some(instance_id) = &migrant.instance_id {
                self.statics.insert(instance_id.clone(), migrant.id.clone());
            }
            self.leader.get_or_insert_with(|| migrant.id.clone());
            let member = Member {
                instance_id: migrant.instance_id,
                client_id: migrant.client_id,
                client_host: migrant.client_host,
                session_timeout: migrant.session_timeout,
                rebalance_timeout: migrant.rebalance_timeout,
                protocols: migrant.protocols,
                assignment: migrant.assignment,
                sight: migrant.sight,
                is_remote: migrant.is_remote,
                joining: None,
                syncing: None,
                synced: true,
                admitted: true,
                former_generation: Some(migrant.epoch),
                session_until: migrant.session_until,
            };
            self.members.insert(migrant.id, member);
        }
        self.protocol = self.choose_protocol();
        self.state = GroupState::Stable;
        self.start_rebalance(now, out);
        self
    }
}

impl Member {
    /// Its metadata for the generation's protocol; for the one it likes best, when it has not been
    /// in a generation or offers others by now.
    fn subscription(&self, protocol: &str) -> Bytes {
        let chosen = self.protocols.iter().find(|p| p.name == protocol);
        let chosen = chosen.or(self.protocols.first());
        chosen.map(|p| p.metadata.clone()).unwrap_or_default()
    }
}
