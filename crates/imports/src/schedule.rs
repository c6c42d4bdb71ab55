//! Whose slice is next: start-time fair queueing over classes, over tenants within a class, oldest
//! job first within a tenant.
//!
//! Each member of a queue has a virtual time that grows by the cost of its slices over its weight;
//! the one with the least is served first. A member that was idle joins at the least virtual time of
//! those that are busy, so nobody saves up credit. A slice is charged by an estimate when it starts,
//! so that running work counts, and corrected by its measured cost when it ends. For two tenants of
//! a class that stay busy, service over weight differs by the cost of one slice of each at most.
//! A slice that took more than twice what the tenant's usually take counts as twice that: a disk or
//! a database that stands still for a moment is the fault of nobody, and its moments hit a few at
//! random. What a tenant's slices usually take follows them.
//! Classes are such members too: interactive work has nine parts of ten, and bulk work the tenth
//! that nobody takes from it. What one does not use goes to the others.
//!
//! No clock, no IO: costs come from the caller. A job has at most one slice running, because a slice
//! starts where the one before ended; so with several workers a tenant with one job has at most the
//! service of one of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use base::TenantId;

use crate::job::Class;
use crate::limits;

/// Identifies a job: jobs made later have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobNumber(pub i64);

/// What a slice cost, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost(pub u64);

impl Cost {
    /// A moving average: slices of one file resemble each other.
    fn followed_by(self, cost: Cost) -> Cost {
        Cost((self.0.saturating_mul(7).saturating_add(cost.0)) / 8)
    }
}

/// The jobs that wait for their next slice, fairly ordered.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    classes: Queue<Class>,
    lanes: BTreeMap<Class, Lane>,
    running: HashMap<JobNumber, Running>,
    /// Of tenants whose weight is not one.
    weights: HashMap<TenantId, u32>,
}

/// The tenants of one class.
#[derive(Debug, Default)]
struct Lane {
    tenants: Queue<TenantId>,
    waiting: HashMap<TenantId, BTreeSet<JobNumber>>,
    estimate: Cost,
    /// What slices of tenants usually cost; of those that are busy.
    usual: HashMap<TenantId, Cost>,
}

impl Lane {
    /// What a slice is charged that took `cost`.
    fn charged(&mut self, tenant: &TenantId, cost: Cost) -> Cost {
        let usual = self.usual.entry(tenant.clone()).or_insert(cost);
        let charged = Cost(cost.0.min(usual.0.saturating_mul(2)));
        *usual = usual.followed_by(charged);
        self.estimate = self.estimate.followed_by(charged);
        charged
    }

    fn forget_idle(&mut self, tenant: &TenantId) {
        if !self.tenants.members.contains_key(tenant) {
            self.usual.remove(tenant);
        }
    }
}

#[derive(Debug)]
struct Running {
    class: Class,
    tenant: TenantId,
    charged: Cost,
}

impl Schedule {
    /// Lets a job wait for its next slice.
    pub fn add(&mut self, class: Class, tenant: &TenantId, job: JobNumber) {
        let weight = self.weights.get(tenant).copied().unwrap_or(1);
        let lane = self.lanes.entry(class).or_default();
        lane.waiting.entry(tenant.clone()).or_default().insert(job);
        lane.tenants.wait(tenant, weight);
        self.classes.wait(&class, share(class));
    }

    /// Picks the next job to run a slice of.
    pub fn next(&mut self) -> Option<JobNumber> {
        let class = self.classes.take()?;
        let lane = self.lanes.get_mut(&class)?;
        let tenant = lane.tenants.take()?;
        let waiting = lane.waiting.get_mut(&tenant)?;
        let job = waiting.pop_first()?;
        let tenant_has_more = !waiting.is_empty();
        if !tenant_has_more {
            lane.waiting.remove(&tenant);
        }
        // Before anything was measured a running slice still counts for something.
        let charged = Cost(lane.estimate.0.max(1));
        lane.tenants.charge(&tenant, charged, Cost(0));
        self.classes.charge(&class, charged, Cost(0));
        if tenant_has_more {
            let weight = self.weights.get(&tenant).copied().unwrap_or(1);
            lane.tenants.wait(&tenant, weight);
        }
        if !lane.waiting.is_empty() {
            self.classes.wait(&class, share(class));
        }
        let running = Running {
            class,
            tenant,
            charged,
        };
        self.running.insert(job, running);
        Some(job)
    }

    /// Takes a slice's measured cost; `again` says that the job has more.
    pub fn done(&mut self, job: JobNumber, cost: Cost, again: bool) {
        self.ended(job, Some(Cost(cost.0.max(1))), again);
    }

    /// A job that was picked ran no slice: it is charged nothing, and waits no more.
    pub fn not_run(&mut self, job: JobNumber) {
        self.ended(job, None, false);
    }

    fn ended(&mut self, job: JobNumber, cost: Option<Cost>, again: bool) {
        let Some(Running {
            class,
            tenant,
            charged,
        }) = self.running.remove(&job)
        else {
            return;
        };
        if let Some(lane) = self.lanes.get_mut(&class) {
            let cost = cost.map_or(Cost(0), |cost| lane.charged(&tenant, cost));
            lane.tenants.charge(&tenant, cost, charged);
            self.classes.charge(&class, cost, charged);
        }
        // Before it is released, so that it counts as busy all the time and keeps what it has used.
        if again {
            self.add(class, &tenant, job);
        }
        if let Some(lane) = self.lanes.get_mut(&class) {
            lane.tenants.release(&tenant);
            lane.forget_idle(&tenant);
            self.classes.release(&class);
        }
    }

    /// Takes a waiting job out; a running one ends with its slice.
    pub fn remove(&mut self, class: Class, tenant: &TenantId, job: JobNumber) {
        let Some(lane) = self.lanes.get_mut(&class) else {
            return;
        };
        if let Some(waiting) = lane.waiting.get_mut(tenant)
            && waiting.remove(&job)
            && waiting.is_empty()
        {
            lane.waiting.remove(tenant);
            lane.tenants.withdraw(tenant);
            lane.forget_idle(tenant);
        }
        if lane.waiting.is_empty() {
            self.classes.withdraw(&class);
        }
    }

    /// Sets a tenant's weight; it counts from the next pick on.
    pub fn set_weight(&mut self, tenant: &TenantId, weight: u32) {
        let weight = weight.clamp(1, limits::WEIGHT_MAX);
        if weight == 1 {
            self.weights.remove(tenant);
        } else {
            self.weights.insert(tenant.clone(), weight);
        }
        for lane in self.lanes.values_mut() {
            if let Some(member) = lane.tenants.members.get_mut(tenant) {
                member.weight = weight;
            }
        }
    }

    /// Whether a slice of the class runs or waits.
    pub fn is_busy(&self, class: Class) -> bool {
        self.classes.members.contains_key(&class)
    }

    /// Whether a slice of the class waits.
    pub fn is_waiting(&self, class: Class) -> bool {
        let lane = self.lanes.get(&class);
        lane.is_some_and(|lane| !lane.waiting.is_empty())
    }

    #[cfg(test)]
    /// How many tenants wait or run, in all classes.
    pub fn busy_tenants(&self) -> usize {
        self.lanes
            .values()
            .map(|lane| lane.tenants.members.len())
            .sum()
    }
}

/// A class' part of the sink while all have work.
fn share(class: Class) -> u32 {
    match class {
        Class::Interactive => 9,
        Class::Bulk => 1,
    }
}

/// A start-time fair queue. State is kept for busy members only: what an idle one had used beyond
/// the others is forgotten with it; that is at most one slice.
#[derive(Debug)]
struct Queue<K> {
    members: HashMap<K, Member>,
    /// Those that wait, least served first.
    ready: BTreeSet<(u64, K)>,
    /// The least virtual time of the last pick: where newcomers join.
    now: u64,
}

#[derive(Debug)]
struct Member {
    virtual_time: u64,
    weight: u32,
    is_ready: bool,
    running: usize,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Queue {
            members: HashMap::new(),
            ready: BTreeSet::new(),
            now: 0,
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    fn wait(&mut self, key: &K, weight: u32) {
        let now = self.now;
        let member = self.members.entry(key.clone()).or_insert(Member {
            virtual_time: now,
            weight,
            is_ready: false,
            running: 0,
        });
        if !member.is_ready {
            member.is_ready = true;
            self.ready.insert((member.virtual_time, key.clone()));
        }
    }

    /// Takes the least served member out of those that wait; it runs from now on.
    fn take(&mut self) -> Option<K> {
        let (virtual_time, key) = self.ready.pop_first()?;
        self.now = self.now.max(virtual_time);
        let member = self.members.get_mut(&key)?;
        member.is_ready = false;
        member.running += 1;
        Some(key)
    }

    /// Charges `cost` in the place of what was charged `before`.
    fn charge(&mut self, key: &K, cost: Cost, before: Cost) {
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        let was = (member.virtual_time, key.clone());
        let over_weight = |cost: Cost| cost.0.saturating_mul(SCALE) / u64::from(member.weight);
        let (more, less) = (over_weight(cost), over_weight(before));
        member.virtual_time = (member.virtual_time.saturating_add(more)).saturating_sub(less);
        if member.is_ready {
            self.ready.remove(&was);
            self.ready.insert((member.virtual_time, key.clone()));
        }
    }

    /// One of its slices is over.
    fn release(&mut self, key: &K) {
        if let Some(member) = self.members.get_mut(key) {
            member.running = member.running.saturating_sub(1);
        }
        self.forget_idle(key);
    }

    /// It waits no more.
    fn withdraw(&mut self, key: &K) {
        if let Some(member) = self.members.get_mut(key)
            && member.is_ready
        {
            member.is_ready = false;
            self.ready.remove(&(member.virtual_time, key.clone()));
        }
        self.forget_idle(key);
    }

    fn forget_idle(&mut self, key: &K) {
        let is_idle = |member: &Member| !member.is_ready && member.running == 0;
        if self.members.get(key).is_some_and(is_idle) {
            self.members.remove(key);
        }
    }
}

/// Parts of a microsecond, so that large weights divide exactly enough.
const SCALE: u64 = 1_000;

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
