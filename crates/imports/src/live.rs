//! What a worker and those who steer know of a job that has not ended, beside its row.

use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use base::TenantId;
use tokio::sync::Notify;

use crate::ahead::Ahead;
use crate::imports::Live;
use crate::job::{Class, Job};
use crate::keys::Selectors;
use crate::limits;
use crate::schedule::{Cost, JobNumber};

/// What is known of an unfinished job beside its row.
pub(crate) struct LiveJob {
    pub tenant: TenantId,
    /// Of its next turn.
    pub class: Class,
    pub file: Option<Arc<File>>,
    /// As its start or its latest turn left it.
    pub known: Option<KnownJob>,
    /// The lease's token, once this process has it.
    pub token: Option<i64>,
    /// The tenant's selectors, once the job's own is among them.
    pub selectors: Option<Arc<Selectors>>,
    /// The next slices, read ahead of their turn.
    pub ahead: Option<Ahead>,
    pub running: bool,
    pub stopped: bool,
    /// Turns that failed one after the other.
    pub failures: u32,
    /// It waits to try a slice again that failed.
    pub waits: bool,
    pub turn_over: Arc<Notify>,
}

/// A job's row as this process wrote it. Others may have changed it since: who commits by it asks for
/// the state, the place in the file and the lease that it had.
pub(crate) struct KnownJob {
    pub job: Arc<Job>,
    since: Instant,
}

impl KnownJob {
    pub fn now(job: Arc<Job>) -> Self {
        let since = Instant::now();
        KnownJob { job, since }
    }

    pub fn is_fresh(&self) -> bool {
        self.since.elapsed() < limits::JOB_KNOWN
    }
}

impl LiveJob {
    /// A job that waits for its first turn.
    pub fn new(tenant: TenantId, class: Class) -> Self {
        LiveJob {
            tenant,
            class,
            file: None,
            known: None,
            token: None,
            selectors: None,
            ahead: None,
            running: false,
            stopped: false,
            failures: 0,
            waits: false,
            turn_over: Arc::new(Notify::new()),
        }
    }

    /// Gives it no further turn; what tells the end of the one that runs, if one does.
    pub fn stop(&mut self) -> Option<Arc<Notify>> {
        self.stopped = true;
        self.ahead = None;
        self.running.then(|| self.turn_over.clone())
    }
}

impl Live {
    /// The class of a job's next turn: what somebody waits for is a few records, and a job that was named
    /// so and has more goes on as bulk work, beside which nobody starves. A tenant whose work is
    /// interactive keeps that.
    pub fn class_of(&self, job: &Job) -> Class {
        let seen = job.records_done + job.records_rejected;
        match self.classes.contains_key(&job.tenant) {
            false if seen >= limits::INTERACTIVE_RECORDS => Class::Bulk,
            _ => job.class,
        }
    }

    /// Takes a turn's cost, and lets the job wait for its next one if there is any.
    pub fn turn_ended(&mut self, number: JobNumber, cost: Cost, again: bool) {
        let known = self.jobs.get(&number).and_then(|job| job.known.as_ref());
        let class = known.map(|known| self.class_of(&known.job));
        let changed = match (self.jobs.get_mut(&number), class) {
            (Some(job), Some(class)) if again && class != job.class => {
                job.class = class;
                Some((class, job.tenant.clone()))
            }
            _ => None,
        };
        self.schedule.done(number, cost, again && changed.is_none());
        if let Some((class, tenant)) = changed {
            self.schedule.add(class, &tenant, number);
        }
    }

    /// Lets a job run again that waits after a failure. One that was paused and resumed meanwhile
    /// waits no more: it runs already, or is about to.
    pub fn try_again(&mut self, number: JobNumber) -> bool {
        let is_due = |job: &&mut LiveJob| job.waits && !job.stopped;
        let Some(job) = self.jobs.get_mut(&number).filter(is_due) else {
            return false;
        };
        job.waits = false;
        self.schedule.add(job.class, &job.tenant, number);
        true
    }

    /// Lets a stopped job go on; true when a worker is to look.
    pub fn go_on(&mut self, number: JobNumber) -> bool {
        let is_stopped = |job: &&mut LiveJob| job.stopped;
        let Some(job) = self.jobs.get_mut(&number).filter(is_stopped) else {
            return false;
        };
        job.stopped = false;
        if job.running {
            // Its turn's end puts it back.
            return false;
        }
        job.waits = false;
        self.schedule.add(job.class, &job.tenant, number);
        true
    }
}

/// Tells the metrics how many jobs have not ended.
pub(crate) fn gauge(live: &Live) {
    // Far below 2^52, so exact.
    metrics::gauge!("thalweg_imports_unfinished_jobs").set(live.jobs.len() as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_was_resumed_while_it_waited_does_not_run_twice() {
        let mut live = Live::default();
        let (number, tenant) = (JobNumber(1), "north".parse::<TenantId>().unwrap());
        let failed = LiveJob {
            waits: true,
            ..LiveJob::new(tenant.clone(), Class::Bulk)
        };
        live.jobs.insert(number, failed);
        // Paused, resumed, and picked by a worker before the wait was over.
        let resumed = LiveJob::new(tenant.clone(), Class::Bulk);
        live.jobs.insert(number, resumed);
        live.schedule.add(Class::Bulk, &tenant, number);
        assert_eq!(live.schedule.next(), Some(number));
        assert!(!live.try_again(number));
        assert_eq!(live.schedule.next(), None);
        // One that does wait runs, once.
        live.schedule.done(number, Cost(1), false);
        live.jobs.get_mut(&number).unwrap().waits = true;
        assert!(live.try_again(number));
        assert!(!live.try_again(number));
        assert_eq!(live.schedule.next(), Some(number));
    }
}
