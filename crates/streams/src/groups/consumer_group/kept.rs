//! A group that stands still as it is kept for the next process, and as that process begins with it.

use std::sync::Arc;

use base::UnixMillis;

use super::super::roll::{self, ConsumerMember, ConsumerRoll, Stillness};
use super::super::{GroupsConfig, LEAVE_STATIC_EPOCH, Sight};
use super::subscription::{Pattern, Subscription};
use super::{ConsumerGroup, Member};

impl ConsumerGroup {
    /// The mark of how it stands, if it stands still.
    pub(in crate::groups) fn mark(&self) -> roll::Mark {
        (self.epoch, self.renamed)
    }

    /// Whether its members are to be kept now.
    pub(in crate::groups) fn stillness(&self) -> Stillness {
        // One that moves between the protocols is not kept: its leader would have to be asked.
        if self.members.values().any(|m| m.classic.is_some()) {
            return Stillness::Bound;
        }
        // Whoever has left for a while, and said so, is not told anew to come back.
        let is_settled = |m: &Member| {
            let is_there = m.epoch == self.assignment_epoch || m.epoch == LEAVE_STATIC_EPOCH;
            is_there && m.revoking.is_empty() && !m.awaits
        };
        let is_assigned = self.epoch == self.assignment_epoch && !self.members.is_empty();
        if is_assigned && self.members.values().all(is_settled) {
            Stillness::Still(self.mark())
        } else {
            Stillness::Moving
        }
    }

    /// Its members, for the next process.
    pub(in crate::groups) fn roll(&self) -> ConsumerRoll {
        let members = self.members.iter().map(|(id, m)| ConsumerMember {
            id: id.clone(),
            instance_id: m.instance_id.clone(),
            rack_id: m.rack_id.clone(),
            client_id: m.client_id.clone(),
            client_host: m.client_host.clone(),
            rebalance_timeout: m.rebalance_timeout,
            names: m.subscription.names().map(str::to_owned).collect(),
            regex: m.subscription.regex().map(str::to_owned),
            assignor: m.assignor.clone(),
            partitions: m.assigned.clone(),
            has_left: m.epoch == LEAVE_STATIC_EPOCH,
        });
        let topics = self.topics.iter();
        ConsumerRoll {
            epoch: self.epoch,
            topics: topics
                .map(|(name, (id, count))| (name.clone(), *id, *count))
                .collect(),
            members: members.collect(),
        }
    }

    /// The group as it was kept, with members that have a while to show that they live; its epochs
    /// go on from `floor`.
    pub(in crate::groups) fn of_roll(
        config: Arc<GroupsConfig>,
        floor: i32,
        roll: ConsumerRoll,
        now: UnixMillis,
    ) -> Self {
        let mut group = ConsumerGroup::new(config, roll.epoch.max(floor));
        group.assignment_epoch = roll.epoch;
        let names = || roll.topics.iter().map(|(name, ..)| name.clone()).collect();
        for kept in roll.members {
            group.insert(&kept.id, kept.instance_id.as_ref());
            // An expression that was taken once is taken again.
            let pattern = kept.regex.and_then(|text| Pattern::new(&text).ok());
            let names_read = kept.names.into_iter().collect();
            let Some(member) = group.members.get_mut(&kept.id) else {
                continue;
            };
            member.rack_id = kept.rack_id;
            member.client_id = kept.client_id;
            member.client_host = kept.client_host;
            member.rebalance_timeout = kept.rebalance_timeout;
            member.subscription = Subscription::new(names_read, pattern, Sight::kept(names()));
            member.assignor = kept.assignor;
            let session = group.config.consumer_session_timeout.0;
            // Who has said that it goes is not missed sooner than if nothing had been.
            let (epoch, wait) = match kept.has_left {
                true => (LEAVE_STATIC_EPOCH, session),
                false => (roll.epoch, roll::grace(session)),
            };
            member.epoch = epoch;
            member.previous_epoch = epoch;
            member.session_until = now + wait;
            group.give(&kept.id, &kept.partitions);
            group.target.insert(kept.id, kept.partitions);
        }
        group.topics = roll
            .topics
            .into_iter()
            .map(|(name, id, count)| (name, (id, count)))
            .collect();
        group
    }
}
