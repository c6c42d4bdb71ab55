//! A group that stands still as it is kept for the next process, and as that process begins with it.

use std::sync::Arc;

use base::UnixMillis;

use super::super::roll::{self, ClassicMember, ClassicRoll, Stillness};
use super::super::{GroupState, GroupsConfig, Sight};
use super::{Group, Member};
use crate::consumer;

impl Group {
    /// Whether its members are to be kept now.
    pub(in crate::groups) fn stillness(&self) -> Stillness {
        if self.members.values().any(|m| !m.is_remote) {
            Stillness::Bound
        } else if self.state == GroupState::Stable {
            Stillness::Still((self.generation, self.renamed))
        } else {
            Stillness::Moving
        }
    }

    /// Its members, for the next process.
    pub(in crate::groups) fn roll(&self) -> ClassicRoll {
        let members = self.members.iter().map(|(id, m)| ClassicMember {
            id: id.clone(),
            instance_id: m.instance_id.clone(),
            client_id: m.client_id.clone(),
            client_host: m.client_host.clone(),
            session_timeout: m.session_timeout,
            rebalance_timeout: m.rebalance_timeout,
            protocols: m.protocols.clone(),
            assignment: m.assignment.clone(),
        });
        ClassicRoll {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            members: members.collect(),
        }
    }

    /// The group as it was kept: stable, with members that have a while to show that they live.
    pub(in crate::groups) fn of_roll(
        config: Arc<GroupsConfig>,
        floor: i32,
        roll: ClassicRoll,
        now: UnixMillis,
    ) -> Self {
        let mut group = Group::new(config, floor);
        group.state = GroupState::Stable;
        group.generation = roll.generation;
        group.protocol_type = roll.protocol_type;
        group.protocol = roll.protocol;
        group.leader = Some(roll.leader);
        for kept in roll.members {
            if let Some(instance_id) = &kept.instance_id {
                group.statics.insert(instance_id.clone(), kept.id.clone());
            }
            let share = consumer::read_assignment(&kept.assignment);
            let topics = share.map(|(share, _)| share.into_keys().collect());
            let member = Member {
                instance_id: kept.instance_id,
                client_id: kept.client_id,
                client_host: kept.client_host,
                session_timeout: kept.session_timeout,
                rebalance_timeout: kept.rebalance_timeout,
                protocols: kept.protocols,
                assignment: kept.assignment,
                // What it may be told of beside what it reads is known when it joins again.
                sight: Sight::kept(topics.unwrap_or_default()),
                is_remote: true,
                joining: None,
                syncing: None,
                synced: true,
                admitted: true,
                former_generation: None,
                session_until: now + roll::grace(kept.session_timeout),
            };
            group.members.insert(kept.id, member);
        }
        group
    }
}
