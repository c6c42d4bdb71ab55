//! What a worker and those who steer know of a job that has not ended, beside its row.

use std::fs::File;
use std::sync::Arc;

use base::TenantId;
use tokio::sync::Notify;

use crate::ahead::Ahead;
use crate::imports::Live;
use crate::job::{Class, Job};
use crate::keys::Selectors;
use crate::schedule::JobNumber;

/// What is known of an unfinished job beside its row.
pub(crate) struct LiveJob {
    pub tenant: TenantId,
    pub class: Class,
    pub file: Option<Arc<File>>,
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

impl LiveJob {
    /// A job that waits for its first turn.
    pub fn of(job: &Job) -> Self {
        LiveJob::new(job.tenant.clone(), job.class)
    }

    fn new(tenant: TenantId, class: Class) -> Self {
        LiveJob {
            tenant,
            class,
            file: None,
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
    use crate::schedule::Cost;

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
