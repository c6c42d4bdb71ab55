//! The switch of a tenant from one home to another, while its producers and consumers go on.
//!
//! Kafka keeps no order between two topics. So the switch waits until every group has committed all
//! that the tenant has in its old home; only then do batches go to the new one. When groups are
//! nearly there, batches are held back for at most [`HOLD_MAX`]; if that does not do, they go on to
//! the old home and it is tried again. What was switched is durable before a batch goes there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::{Access, Collection, OfTopic, Snapshot};
use base::TenantId;
use tokio_util::sync::CancellationToken;

use super::collections::{Home, place_in, shared_name};
use super::names::around;
use crate::error::StreamsError;
use crate::event_store::Isolation;
use crate::groups::GroupState;
use crate::partition::Partition;
use crate::store::Streams;
use crate::topics::Topic;

/// A group that has not committed all that a tenant has in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    pub group: String,
    pub topic: String,
    pub records: i64,
}

/// What became of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Batches go to the new home; producers waited so long.
    Switched(Duration),
    /// Groups have to read on first.
    Waiting(Vec<Behind>),
}

/// The topics that the records of one event lie in, and what of them a group has to have read.
struct Family {
    /// The tenant's own topic.
    own: String,
    /// What stands in the name of each around a tenant or a collection.
    around: Option<(String, String)>,
    /// Where what the tenant has in its old home ends, by topic and partition.
    ends: BTreeMap<(String, i32), i64>,
}

impl Family {
    /// Whether a group that reads these topics, in order, reads whatever topic the event's records
    /// lie in, or will when it has heard of it.
    fn is_followed<'t>(&self, topics: impl Iterator<Item = &'t str>) -> bool {
        let part = |topic: &'t str| {
            let (before, behind) = self.around.as_ref()?;
            topic.strip_prefix(&**before)?.strip_suffix(&**behind)
        };
        let is_of = |topic: &&'t str| {
            part(topic).is_some_and(|part| !part.is_empty() && !part.contains('.'))
        };
        let read: BTreeSet<&str> = topics.filter(is_of).collect();
        // Who reads two reads by a pattern.
        read.contains(&*self.own) || read.len() > 1
    }
}

impl Streams {
    /// Switches tenants to the collections that they are wanted in, until `shutdown`.
    pub async fn keep_collections(
        self: Arc<Self>,
        access: Arc<Access>,
        shutdown: CancellationToken,
    ) {
        self.follow_tenants(&access);
        let mut looked = None;
        let mut failing: BTreeMap<TenantId, (Instant, String)> = BTreeMap::new();
        loop {
            let seen = access.revision();
            let snapshot = access.snapshot();
            let mut tenants = snapshot.tenants().values();
            if tenants.any(|tenant| tenant.retention_ms.is_some()) && looked != Some(seen) {
                looked = Some(seen);
                self.shared().keeper.look();
            }
            let due = snapshot.tenants().iter();
            let due = due.filter(|(_, tenant)| tenant.switching_to.is_some());
            let due: Vec<TenantId> = due.map(|(name, _)| name.clone()).collect();
            failing.retain(|name, _| due.contains(name));
            for name in &due {
                if failing
                    .get(name)
                    .is_some_and(|(again, _)| Instant::now() < *again)
                {
                    continue;
                }
                let failed = failing.remove(name);
                match self.switch(&access, name).await {
                    Ok(Attempt::Switched(stall)) => {
                        let stall_ms = u64::try_from(stall.as_millis()).unwrap_or(u64::MAX);
                        tracing::info!(tenant = %name, stall_ms, "a tenant's records have a new home");
                    }
                    Ok(Attempt::Waiting(behind)) => {
                        tracing::debug!(tenant = %name, ?behind, "a switch waits for groups");
                    }
                    Err(error) => {
                        let error = base::report(&error);
                        if failed.is_none_or(|(_, told)| told != error) {
                            tracing::warn!(tenant = %name, error, "a switch failed; trying again");
                        }
                        failing.insert(name.clone(), (Instant::now() + PAUSE_FAILED, error));
                    }
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = access.changed_since(seen) => {}
                () = tokio::time::sleep(PAUSE), if !due.is_empty() => {}
            }
        }
    }

    /// Tries to switch a tenant to where it is wanted.
    pub(crate) async fn switch(
        self: &Arc<Self>,
        access: &Arc<Access>,
        name: &TenantId,
    ) -> Result<Attempt, StreamsError> {
        self.follow_tenants(access);
        let snapshot = access.snapshot();
        let Some(tenant) = snapshot.tenants().get(name) else {
            return Ok(Attempt::Waiting(Vec::new()));
        };
        let Some(wanted) = &tenant.switching_to else {
            return Ok(Attempt::Waiting(Vec::new()));
        };
        let wanted = wanted.clone().into_collection();
        let home = self.collections().home(name, tenant);
        home.follow(access, name);
        let from = home.gate.read().collection.clone();
        // The new home has to stand before anybody waits for it.
        for own in self.own_topics(&snapshot, name) {
            if let Some(wanted) = &wanted {
                self.shared_or_create(&own, name, wanted).await?;
            }
        }
        // The first look may read much; those below read what came since.
        let look = || {
            let (streams, seen) = (Arc::clone(self), Arc::clone(&snapshot));
            let (whose, old) = (name.clone(), from.clone());
            let look = move || streams.behind(&seen, &whose, old.as_ref());
            let looked = tokio::task::spawn_blocking(look);
            async { looked.await.map_err(|_| StreamsError::Closed)? }
        };
        let mut behind = look().await?;
        if behind.iter().map(|it| it.records).sum::<i64>() > HOLD_BEHIND_MAX {
            return Ok(Attempt::Waiting(behind));
        }
        let held = Instant::now();
        let holding = Holding::of(&home);
        let own = self.own_topics(&snapshot, name).into_iter();
        let places: Vec<Arc<Partition>> = own
            .flat_map(|own| self.home_of(&own, name, from.as_ref()))
            .collect();
        let ends: Vec<i64> = places.iter().map(|place| place.next_offset()).collect();
        let is_seen = || {
            let mut each = places.iter().zip(&ends);
            each.all(|(place, end)| place.end_offset(Isolation::Uncommitted) >= *end)
        };
        loop {
            // Whose a record is is told when it can be read.
            let is_seen = is_seen();
            if is_seen {
                // Somebody may be reading all of a partition meanwhile.
                let left = HOLD_MAX.saturating_sub(held.elapsed());
                let Ok(looked) = tokio::time::timeout(left, look()).await else {
                    // As the last look has it that was not cut off.
                    return Ok(Attempt::Waiting(behind));
                };
                behind = looked?;
            }
            if is_seen && behind.is_empty() {
                break;
            }
            if held.elapsed() >= HOLD_MAX {
                return Ok(Attempt::Waiting(behind));
            }
            tokio::time::sleep(LOOK).await;
        }
        let (kept, whose, to) = (Arc::clone(access), name.clone(), wanted.clone());
        let settled = tokio::task::spawn_blocking(move || kept.settle_tenant(&whose, to)).await;
        let settled = settled.map_err(|_| StreamsError::Closed)?;
        settled.map_err(|error| StreamsError::Access(Arc::new(error)))?;
        home.forget_adopted();
        home.gate.write().collection = wanted;
        drop(holding);
        Ok(Attempt::Switched(held.elapsed()))
    }

    /// Groups that have not committed all that a tenant has in its home.
    pub(crate) fn behind(
        &self,
        snapshot: &Snapshot,
        name: &TenantId,
        from: Option<&Collection>,
    ) -> Result<Vec<Behind>, StreamsError> {
        let mut families = Vec::new();
        for own in self.own_topics(snapshot, name) {
            let mut ends: BTreeMap<(String, i32), i64> = BTreeMap::new();
            for place in self.home_of(&own, name, from) {
                let end = match from {
                    None => Some(place.next_offset()).filter(|end| *end > place.log_start_offset()),
                    Some(_) => self.ask_census(&place, |census| census.end_of(name))?,
                };
                if let Some(end) = end {
                    ends.insert((place.topic().wire_name().to_owned(), place.index()), end);
                }
            }
            if !ends.is_empty() {
                let around = around(own.name().wire_name(), name.as_str());
                let around = around.map(|(before, behind)| (before.to_owned(), behind.to_owned()));
                let own = own.name().wire_name().to_owned();
                families.push(Family { own, around, ends });
            }
        }
        if families.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.groups_behind(&families))
    }

    /// The partitions that the records of one of a tenant's topics go to while it is in `from`, or
    /// has its own topics.
    fn home_of(
        &self,
        own: &Arc<Topic>,
        name: &TenantId,
        from: Option<&Collection>,
    ) -> Vec<Arc<Partition>> {
        let Some(collection) = from else {
            return own.partitions().to_vec();
        };
        let shared = shared_name(own.name(), name, collection).ok();
        let shared = shared.and_then(|shared| self.topic_by_name(&shared));
        shared.map_or(Vec::new(), |shared| places(own, &shared, name))
    }

    fn groups_behind(&self, families: &[Family]) -> Vec<Behind> {
        let mut groups: BTreeSet<String> = self.groups_with_offsets().into_iter().collect();
        groups.extend(self.groups().list().into_iter().map(|listed| listed.group));
        let mut behind = Vec::new();
        for group in groups {
            let Some(detail) = self.group_detail(&group) else {
                continue;
            };
            let settled = [GroupState::Empty, GroupState::Stable, GroupState::Dead];
            if !settled.iter().any(|state| state.name() == detail.state) {
                // Who reads what is told in a moment.
                behind.push(Behind {
                    group,
                    topic: String::new(),
                    records: 0,
                });
                continue;
            }
            let mut reads: BTreeMap<(&str, i32), i64> = BTreeMap::new();
            let assigned = detail.members.iter().flat_map(|member| &member.assigned);
            for (topic, partition) in assigned {
                reads.insert((topic.wire_name(), *partition), 0);
            }
            for of in &detail.committed {
                reads.insert((of.topic.wire_name(), of.partition), of.committed.offset);
            }
            for family in families {
                let is_follower = family.is_followed(reads.keys().map(|(topic, _)| *topic));
                for ((topic, partition), end) in &family.ends {
                    let at = reads.get(&(topic.as_str(), *partition)).copied();
                    let Some(at) = at.or(is_follower.then_some(0)) else {
                        continue;
                    };
                    if at < *end {
                        behind.push(Behind {
                            group: group.clone(),
                            topic: topic.clone(),
                            records: end - at,
                        });
                    }
                }
            }
        }
        behind
    }

    /// The topics that are a tenant's own.
    fn own_topics(&self, snapshot: &Snapshot, name: &TenantId) -> Vec<Arc<Topic>> {
        let mut topics = self.topics_snapshot();
        topics.retain(|topic| {
            snapshot.owner_of_topic(topic.name().wire_name()) == Some(OfTopic::Tenant(name))
        });
        topics
    }
}

/// The shared partitions that a tenant's own topic goes to.
fn places(own: &Arc<Topic>, shared: &Arc<Topic>, name: &TenantId) -> Vec<Arc<Partition>> {
    let indexes = own.partitions().iter().map(|partition| partition.index());
    let mut places: Vec<Arc<Partition>> = Vec::new();
    for place in indexes.filter_map(|index| place_in(shared, name, index)) {
        if !places.iter().any(|known| Arc::ptr_eq(known, &place)) {
            places.push(place);
        }
    }
    places
}

/// Holds a tenant's batches back until it is dropped.
struct Holding<'h>(&'h Home);

impl<'h> Holding<'h> {
    fn of(home: &'h Home) -> Self {
        home.gate.write().is_held = true;
        Holding(home)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.gate.write().is_held = false;
        self.0.opened.notify_waiters();
    }
}

/// Longest time for which a switch holds batches back while groups read on; what makes it durable
/// comes on top.
const HOLD_MAX: Duration = Duration::from_millis(100);
/// A switch does not hold batches back while groups are further behind than they read meanwhile.
const HOLD_BEHIND_MAX: i64 = 5_000;
/// How often it is looked how far groups are.
const LOOK: Duration = Duration::from_millis(1);
/// Between two attempts when one has failed.
const PAUSE_FAILED: Duration = Duration::from_secs(1);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
