//! Whose slice is next: start-time fair queueing over tenants, oldest job first within a tenant.
//!
//! Each tenant has a virtual time that grows by the cost of its slices; the tenant with the least is
//! served first. A tenant that was idle joins at the least virtual time of those that are busy, so
//! nobody saves up credit. A slice is charged by an estimate when it starts, so that running work
//! counts, and corrected by its measured cost when it ends. For two tenants that stay busy the
//! difference of service is at most the cost of one slice of each.
//!
//! No clock, no IO: costs come from the caller. A job has at most one slice running, because a slice
//! starts where the one before ended.

#[cfg(test)]
use std::collections::BTreeMap;
use std::collections::{BTreeSet, HashMap};

use base::TenantId;

/// Identifies a job: jobs made later have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobNumber(pub i64);

/// What a slice cost, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost(pub u64);

/// The jobs that wait for their next slice, fairly ordered.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    tenants: HashMap<TenantId, Tenant>,
    /// Tenants with a waiting job, least served first.
    ready: BTreeSet<(u64, TenantId)>,
    /// Whose running slices were charged what.
    running: HashMap<JobNumber, (TenantId, Cost)>,
    /// The least virtual time of the last pick: where newcomers join.
    now: u64,
    estimate: Cost,
}

#[derive(Debug, Default)]
struct Tenant {
    virtual_time: u64,
    waiting: BTreeSet<JobNumber>,
    running: usize,
}

impl Schedule {
    /// Lets a job wait for its next slice.
    pub fn add(&mut self, tenant: &TenantId, job: JobNumber) {
        let now = self.now;
        let entry = self
            .tenants
            .entry(tenant.clone())
            .or_insert_with(|| Tenant {
                virtual_time: now,
                ..Tenant::default()
            });
        if entry.waiting.is_empty() {
            if entry.running == 0 {
                entry.virtual_time = entry.virtual_time.max(now);
            }
            self.ready.insert((entry.virtual_time, tenant.clone()));
        }
        entry.waiting.insert(job);
    }

    /// Picks the next job to run a slice of.
    pub fn next(&mut self) -> Option<JobNumber> {
        let (virtual_time, tenant) = self.ready.pop_first()?;
        self.now = self.now.max(virtual_time);
        let entry = self.tenants.get_mut(&tenant)?;
        let job = entry.waiting.pop_first()?;
        entry.running += 1;
        // Before anything was measured a running slice still counts for something.
        let charge = Cost(self.estimate.0.max(1));
        entry.virtual_time += charge.0;
        if !entry.waiting.is_empty() {
            self.ready.insert((entry.virtual_time, tenant.clone()));
        }
        self.running.insert(job, (tenant, charge));
        Some(job)
    }

    /// Takes a slice's measured cost; `again` says that the job has more.
    pub fn done(&mut self, job: JobNumber, cost: Cost, again: bool) {
        let Some((tenant, charged)) = self.running.remove(&job) else {
            return;
        };
        // A moving average: slices of one file resemble each other.
        self.estimate = Cost((self.estimate.0 * 7 + cost.0) / 8);
        if let Some(entry) = self.tenants.get_mut(&tenant) {
            let was_ready = self.ready.remove(&(entry.virtual_time, tenant.clone()));
            entry.virtual_time = (entry.virtual_time + cost.0.max(1)).saturating_sub(charged.0);
            entry.running -= 1;
            if was_ready {
                self.ready.insert((entry.virtual_time, tenant.clone()));
            }
        }
        if again {
            // Still busy, so it keeps its virtual time, which `add` must not raise.
            if let Some(entry) = self.tenants.get_mut(&tenant) {
                if entry.waiting.is_empty() {
                    self.ready.insert((entry.virtual_time, tenant.clone()));
                }
                entry.waiting.insert(job);
            }
        } else {
            self.forget_idle(&tenant);
        }
    }

    /// Takes a waiting job out; a running one ends with its slice.
    pub fn remove(&mut self, tenant: &TenantId, job: JobNumber) {
        if let Some(entry) = self.tenants.get_mut(tenant)
            && entry.waiting.remove(&job)
            && entry.waiting.is_empty()
        {
            self.ready.remove(&(entry.virtual_time, tenant.clone()));
        }
        self.forget_idle(tenant);
    }

    /// State is kept for busy tenants only. What an idle tenant had used beyond the others is
    /// forgotten with it; that is at most one slice.
    fn forget_idle(&mut self, tenant: &TenantId) {
        if self
            .tenants
            .get(tenant)
            .is_some_and(|t| t.waiting.is_empty() && t.running == 0)
        {
            self.tenants.remove(tenant);
        }
    }

    #[cfg(test)]
    /// How many jobs each busy tenant has, running ones included.
    pub fn busy(&self) -> BTreeMap<TenantId, usize> {
        let jobs = |entry: &Tenant| entry.waiting.len() + entry.running;
        self.tenants
            .iter()
            .map(|(tenant, entry)| (tenant.clone(), jobs(entry)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    /// Runs slices on one worker; `cost` and `slices` are per job. Answers the order of jobs.
    fn run(schedule: &mut Schedule, jobs: &[(u64, usize)], picks: usize) -> Vec<i64> {
        let mut left: Vec<usize> = jobs.iter().map(|(_, slices)| *slices).collect();
        let mut order = Vec::new();
        while let Some(job) = schedule.next() {
            let index = usize::try_from(job.0).unwrap();
            left[index] -= 1;
            order.push(job.0);
            schedule.done(job, Cost(jobs[index].0), left[index] > 0);
            if order.len() == picks {
                break;
            }
        }
        order
    }

    #[test]
    fn tenants_take_turns_whatever_number_of_jobs_they_have() {
        let mut schedule = Schedule::default();
        for job in 0..3 {
            schedule.add(&tenant("a"), JobNumber(job));
        }
        schedule.add(&tenant("b"), JobNumber(3));
        let order = run(&mut schedule, &[(10, 50); 4], 40);
        let of_b = order.iter().filter(|job| **job == 3).count();
        assert_eq!(of_b, 20);
        // Oldest job first within the tenant.
        assert!(order.iter().all(|job| *job == 0 || *job == 3));
    }

    #[test]
    fn service_is_shared_by_cost_and_not_by_slices() {
        let mut schedule = Schedule::default();
        schedule.add(&tenant("slow"), JobNumber(0));
        schedule.add(&tenant("fast"), JobNumber(1));
        let jobs = [(50, 1_000), (10, 1_000)];
        let (mut slow, mut fast) = (0_i64, 0_i64);
        for job in run(&mut schedule, &jobs, 600) {
            match job {
                0 => slow += 50,
                _ => fast += 10,
            }
            assert!((slow - fast).abs() <= 110, "{slow} against {fast}");
        }
    }

    #[test]
    fn a_newcomer_is_served_at_once_and_gets_no_credit_for_its_absence() {
        let mut schedule = Schedule::default();
        schedule.add(&tenant("old"), JobNumber(0));
        let jobs = [(10, 10_000), (10, 10_000)];
        run(&mut schedule, &jobs, 1_000);
        schedule.add(&tenant("new"), JobNumber(1));
        let order = run(&mut schedule, &jobs, 100);
        assert!(order[..2].contains(&1), "{:?}", &order[..2]);
        let of_new = order.iter().filter(|job| **job == 1).count();
        assert!((49..=52).contains(&of_new), "{of_new}");
    }

    #[test]
    fn running_slices_count_so_that_two_workers_serve_two_tenants() {
        let mut schedule = Schedule::default();
        for job in 0..2 {
            schedule.add(&tenant("a"), JobNumber(job));
            schedule.add(&tenant("b"), JobNumber(job + 10));
        }
        // A slice of each teaches the estimate.
        for job in [schedule.next().unwrap(), schedule.next().unwrap()] {
            schedule.done(job, Cost(800), true);
        }
        let (one, two) = (schedule.next().unwrap(), schedule.next().unwrap());
        assert_ne!(
            one.0 < 10,
            two.0 < 10,
            "{one:?} and {two:?} are one tenant's"
        );
    }

    #[test]
    fn removed_jobs_are_not_picked_and_idle_tenants_are_forgotten() {
        let mut schedule = Schedule::default();
        schedule.add(&tenant("a"), JobNumber(0));
        schedule.add(&tenant("a"), JobNumber(1));
        schedule.remove(&tenant("a"), JobNumber(0));
        assert_eq!(schedule.next(), Some(JobNumber(1)));
        schedule.done(JobNumber(1), Cost(5), false);
        assert_eq!(schedule.next(), None);
        assert!(schedule.busy().is_empty() && schedule.ready.is_empty());
    }
}
