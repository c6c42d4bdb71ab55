//! From the members and their work to what each is to do, and from there to what each does.

use std::sync::Arc;

use base::UnixMillis;

use super::StreamsGroup;
use super::assign::{self, Taker};
use super::beat::TaskShare;
use super::member::Member;

impl StreamsGroup {
    /// Sees to it that there are shares for the group epoch: of nothing as long as the first ones wait.
    pub(super) fn see_to_shares(&mut self, now: UnixMillis) {
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
    pub(super) fn reconcile(&mut self, now: UnixMillis, id: &str, owned: Option<&TaskShare>) {
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
    pub(super) fn let_go(&mut self, id: &str, share: &TaskShare) {
        for task in share.active.iter().chain(share.standby.iter()) {
            if let Some(holders) = self.holders.get_mut(&task) {
                holders.retain(|holder| holder != id);
                if holders.is_empty() {
                    self.holders.remove(&task);
                }
            }
        }
    }
}
