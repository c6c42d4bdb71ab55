//! From what the members read to what each is to hold, and from there to what each holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::UnixMillis;
use uuid::Uuid;

use super::assign::{self, ASSIGNORS, Taker};
use super::subscription::{Pattern, Subscription};
use super::{Beat, Catalog, ConsumerGroup, GroupError, Owner, Partitions};

impl ConsumerGroup {
    /// The subscription that the beat asks for; none when it says nothing about it.
    pub(super) fn subscription_of(&self, beat: &Beat) -> Result<Option<Subscription>, GroupError> {
        if beat.topics.is_none() && beat.topics_regex.is_none() {
            return Ok(None);
        }
        // A member that starts anew, or a static one that came back, keeps nothing of before.
        let known = self
            .members
            .get(&beat.member_id)
            .filter(|_| beat.epoch != 0);
        let known = known.map(|m| &m.subscription);
        let names: BTreeSet<String> = match &beat.topics {
            Some(names) => names.iter().cloned().collect(),
            None => known.map(|s| s.name_set().clone()).unwrap_or_default(),
        };
        let pattern = match beat.topics_regex.as_deref() {
            None => known.and_then(Subscription::pattern).cloned(),
            Some("") => None,
            Some(text) => match known.and_then(Subscription::pattern) {
                Some(pattern) if known.and_then(Subscription::regex) == Some(text) => {
                    Some(pattern.clone())
                }
                _ => Some(Pattern::new(text)?),
            },
        };
        Ok(Some(Subscription::new(names, pattern, beat.sight.clone())))
    }

    /// Writes down what the beat says of its member; true when it reads something else now.
    pub(super) fn update(
        &mut self,
        id: &str,
        beat: &Beat,
        subscription: Option<Subscription>,
    ) -> bool {
        let Some(member) = self.members.get_mut(id) else {
            return false;
        };
        member.classic = None;
        member.client_id.clone_from(&beat.client_id);
        member.client_host.clone_from(&beat.client_host);
        if let Some(timeout) = beat.rebalance_timeout {
            member.rebalance_timeout = timeout;
        }
        if beat.rack_id.is_some() {
            member.rack_id.clone_from(&beat.rack_id);
        }
        if beat.assignor.is_some() {
            member.assignor.clone_from(&beat.assignor);
        }
        if member.subscription.sight().is_kept() {
            // It may be told of others by now.
            self.topics_version = None;
        }
        let sees_otherwise = member.subscription.look_with(&beat.sight);
        let Some(subscription) = subscription else {
            return sees_otherwise;
        };
        let changed = !member.subscription.is_like(&subscription);
        member.subscription = subscription;
        changed || sees_otherwise
    }

    /// Sees to the epochs and shares after a member's request, and brings the member up to them as
    /// far as it can be. `changed` is whether members or what they read have changed.
    pub(super) fn catch_up(
        &mut self,
        now: UnixMillis,
        id: &str,
        owned: Option<&Partitions>,
        changed: bool,
        catalog: &dyn Catalog,
    ) {
        if self.look_at_topics(catalog, changed) || changed {
            self.raise_epoch();
        }
        if self.epoch_to_reach(now) > self.assignment_epoch {
            self.assign();
            self.assigned_at = Some(now);
        }
        self.reconcile(now, id, owned);
    }

    /// How long it is until shares may be made anew; nothing when they may be now.
    pub(super) fn assignable_in(&self, now: UnixMillis) -> Duration {
        let interval = self.config.consumer_assignment_interval.0;
        // A clock that has stepped back holds nobody up.
        let at = self.assigned_at.filter(|at| *at <= now);
        at.map_or(Duration::ZERO, |at| (at + interval).since(now))
    }

    /// The epoch that members can come up to by now: what has changed since counts once shares may
    /// be made for it.
    pub(super) fn epoch_to_reach(&self, now: UnixMillis) -> i32 {
        match self.assignable_in(now).is_zero() {
            true => self.epoch,
            false => self.assignment_epoch,
        }
    }

    /// Sees which topics the members read now; true when those are others, or have grown.
    pub(super) fn look_at_topics(&mut self, catalog: &dyn Catalog, changed: bool) -> bool {
        let version = catalog.version();
        if self.topics_version == Some(version) && !changed {
            return false;
        }
        self.topics_version = Some(version);
        let mut topics = BTreeMap::new();
        let subscriptions = || self.members.values().map(|m| &m.subscription);
        for name in subscriptions().flat_map(Subscription::names) {
            if !topics.contains_key(name)
                && let Some(found) = catalog.topic(name)
            {
                topics.insert(name.to_owned(), found);
            }
        }
        let mut patterns: Vec<&Pattern> = Vec::new();
        let mut texts = BTreeSet::new();
        for subscription in subscriptions() {
            if let (Some(text), Some(pattern)) = (subscription.regex(), subscription.pattern())
                && texts.insert(text)
            {
                patterns.push(pattern);
            }
        }
        if !patterns.is_empty() {
            catalog.each(&mut |name, id, count| {
                // Members with one pattern need not be allowed to know of the same topics.
                let fits = patterns.iter().any(|pattern| pattern.fits(name));
                if fits && subscriptions().any(|subscription| subscription.wants(name)) {
                    topics.insert(name.to_owned(), (id, count));
                }
            });
        }
        let are_others = topics != self.topics;
        self.topics = topics;
        are_others
    }

    /// The assignor that most members ask for; the default when nobody asks.
    pub(in crate::groups) fn assignor(&self) -> &'static str {
        let votes = |name: &str| {
            let wishes = self.members.values().filter_map(|m| m.assignor.as_deref());
            wishes.filter(|wish| *wish == name).count()
        };
        let mut best = ASSIGNORS[0];
        for name in ASSIGNORS {
            if votes(name) > votes(best) {
                best = name;
            }
        }
        best
    }

    /// Makes the shares anew for the group epoch.
    pub(super) fn assign(&mut self) {
        let takers: Vec<Taker<'_>> = self
            .members
            .iter()
            .map(|(id, m)| {
                let wanted = self
                    .topics
                    .iter()
                    .filter(|(name, _)| m.subscription.wants(name));
                Taker {
                    id,
                    name: m.instance_id.as_deref().unwrap_or(id),
                    topics: wanted.map(|(_, (topic, _))| *topic).collect(),
                    before: self.target.get(id),
                }
            })
            .collect();
        let counts: BTreeMap<Uuid, i32> = self.topics.values().copied().collect();
        let shares = assign::assign(self.assignor(), &takers, &counts);
        let target = takers.iter().map(|taker| taker.id.to_owned()).zip(shares);
        self.target = target.collect();
        self.assignment_epoch = self.epoch;
    }

    /// Brings a member as near to its share as the others allow. `owned` is what it says that it
    /// holds; when it does not say, it may hold all that it ever was given.
    pub(super) fn reconcile(&mut self, now: UnixMillis, id: &str, owned: Option<&Partitions>) {
        let still_holds =
            |partitions: &Partitions| owned.is_none_or(|owned| owned.meets(partitions));
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        if !member.revoking.is_empty() {
            if still_holds(&member.revoking) {
                return;
            }
            let given_back = std::mem::take(&mut member.revoking);
            member.revoke_until = None;
            self.release(id, &given_back);
        } else if !member.awaits && member.epoch == self.assignment_epoch {
            return;
        }
        let target = self.target.get(id).cloned().unwrap_or_default();
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        let (kept, surplus) = member.assigned.split_by(&target);
        member.assigned = kept;
        if !surplus.is_empty() && still_holds(&surplus) {
            member.revoking = surplus;
            // A classic member is called to join instead.
            let until = now + member.rebalance_timeout;
            member.revoke_until = member.classic.is_none().then_some(until);
            member.awaits = false;
            return;
        }
        let (_, wanted) = target.split_by(&member.assigned);
        member.awaits = false;
        for (topic, partition) in wanted.iter() {
            let owner = self.owners.get(&(topic, partition));
            // What was surplus a moment ago is not in the target, so it cannot be meant here.
            if owner.is_none_or(|owner| owner.id == id) {
                let owner = Owner {
                    id: id.to_owned(),
                    since: self.assignment_epoch,
                };
                self.owners.insert((topic, partition), owner);
                member.assigned.insert(topic, partition);
            } else {
                member.awaits = true;
            }
        }
        if member.epoch != self.assignment_epoch {
            member.previous_epoch = member.epoch.max(0);
            member.epoch = self.assignment_epoch;
        }
        self.release(id, &surplus);
    }

    /// The member holds these no more.
    pub(super) fn release(&mut self, id: &str, partitions: &Partitions) {
        for partition in partitions.iter() {
            if self.owners.get(&partition).is_some_and(|o| o.id == id) {
                self.owners.remove(&partition);
            }
        }
    }
}
