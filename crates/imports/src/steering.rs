//! Jobs steered from outside: paused, resumed, cancelled.
//!
//! What was begun is brought to its end when whoever asked for it is gone, and a job that could not
//! be changed goes on. One call steers a job at a time; `reconcile.rs` heals what broke off all the
//! same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::error::ImportsError;
use crate::imports::{Core, Imports, Live};
use crate::job::{Job, JobState};
use crate::live::gauge;
use crate::schedule::JobNumber;

/// The jobs that somebody steers at the moment, each with its queue.
#[derive(Default)]
pub(crate) struct Steered(Mutex<HashMap<JobNumber, Queue>>);

type Queue = Arc<tokio::sync::Mutex<()>>;

/// A job that nobody else steers meanwhile, and of which no slice begins. Dropped before it was
/// settled, it lets the job go on.
struct Held<'a> {
    core: &'a Core,
    number: JobNumber,
    turn: Option<OwnedMutexGuard<()>>,
}

impl Imports {
    /// Ends a job: when this returns, no record of it goes anywhere any more. What its committed
    /// slices brought stays, in topic and sink alike.
    pub async fn cancel(&self, id: &str) -> Result<Job, ImportsError> {
        let (core, id) = (self.core.clone(), id.to_owned());
        to_its_end(async move { core.cancel(&id).await }).await
    }

    /// Forgets a job that has ended, with its journal; its records stay. Answers what it was.
    ///
    /// # Errors
    /// When it has not ended.
    pub async fn forget(&self, id: &str) -> Result<Job, ImportsError> {
        let core = &self.core;
        let job = core.registry.job(id).await?;
        if !core.registry.forget_job(job.number).await? {
            return Err(job.cannot_be("forgotten: cancel it first"));
        }
        core.remove_file(id);
        Ok(job)
    }

    /// Stops a running job for a while: when this returns none of its slices runs.
    pub async fn pause(&self, id: &str) -> Result<Job, ImportsError> {
        let (core, id) = (self.core.clone(), id.to_owned());
        to_its_end(async move { core.pause(&id).await }).await
    }

    /// Lets a paused job go on where it stopped; a failed one too, as long as its file is kept.
    pub async fn resume(&self, id: &str) -> Result<Job, ImportsError> {
        let (core, id) = (self.core.clone(), id.to_owned());
        to_its_end(async move { core.resume(&id).await }).await
    }
}

impl Core {
    pub async fn cancel(&self, id: &str) -> Result<Job, ImportsError> {
        let job = self.registry.job(id).await?;
        if let Some(uploading) = self.live.lock().uploading.get(id) {
            uploading.cancelled.cancel();
        }
        let held = self.hold(job.number).await;
        self.stop_slices(&job).await;
        let (number, now) = (job.number, self.clock.now());
        let state = JobState::Cancelled;
        let ended = self.registry.end(number, state, None, now).await?;
        held.forget();
        let after = self.registry.job(id).await?;
        if !ended {
            return Err(after.cannot_be("cancelled"));
        }
        self.remove_file(id);
        Ok(after)
    }

    async fn pause(&self, id: &str) -> Result<Job, ImportsError> {
        let job = self.registry.job(id).await?;
        let held = self.hold(job.number).await;
        if job.state != JobState::Running {
            return Err(job.cannot_be("paused"));
        }
        self.stop_slices(&job).await;
        let now = self.clock.now();
        let (from, to) = ([JobState::Running], JobState::Paused);
        let paused = self
            .registry
            .change(job.number, &from, to, None, now)
            .await?;
        held.forget();
        let after = self.registry.job(id).await?;
        match paused {
            true => Ok(after),
            false => Err(after.cannot_be("paused")),
        }
    }

    async fn resume(&self, id: &str) -> Result<Job, ImportsError> {
        let job = self.registry.job(id).await?;
        let _held = self.hold(job.number).await;
        let file = std::fs::metadata(self.file_path(&job));
        let is_here = file.is_ok_and(|file| file.len() == job.bytes_total);
        // A failed job's file is where it failed, for a while; a paused one's may be anywhere.
        let from: &[JobState] = match is_here && job.bytes_total > 0 {
            true => &[JobState::Paused, JobState::Failed],
            false => &[JobState::Paused],
        };
        let (to, now) = (JobState::Running, self.clock.now());
        let resumed = self
            .registry
            .change(job.number, from, to, None, now)
            .await?;
        let after = self.registry.job(id).await?;
        if !resumed {
            return Err(after.cannot_be(match after.state {
                JobState::Failed => "resumed here: its file is not here any more; send it again",
                _ => "resumed",
            }));
        }
        if is_here || !self.registry.is_shared() {
            self.enqueue(&after);
        }
        Ok(after)
    }

    /// Does something to a job unless somebody steers it; nobody begins to meanwhile.
    pub fn unless_steered(&self, number: JobNumber, work: impl FnOnce()) {
        let steered = self.steered.0.lock();
        if !steered.contains_key(&number) {
            work();
        }
    }

    /// Waits for whoever steers the job.
    async fn hold(&self, number: JobNumber) -> Held<'_> {
        let queue = self.steered.0.lock().entry(number).or_default().clone();
        let turn = Some(queue.lock_owned().await);
        Held {
            core: self,
            number,
            turn,
        }
    }

    /// Takes the job out of the schedule and waits for the slice that is running.
    async fn stop_slices(&self, job: &Job) {
        loop {
            let over = {
                let mut live = self.live.lock();
                let Live { jobs, schedule, .. } = &mut *live;
                let Some(live_job) = jobs.get_mut(&job.number) else {
                    return;
                };
                schedule.remove(live_job.class, &job.tenant, job.number);
                match live_job.stop() {
                    Some(over) => over,
                    None => return,
                }
            };
            // Told under the lock that was just released, so look again after a while.
            let _ = tokio::time::timeout(Duration::from_millis(50), over.notified()).await;
        }
    }

    /// Lets a stopped job go on.
    pub fn go_on(&self, number: JobNumber) {
        if self.live.lock().go_on(number) {
            self.wake.notify_one();
        }
    }
}

impl Held<'_> {
    /// The job is not this process' any more.
    fn forget(self) {
        let mut live = self.core.live.lock();
        live.jobs.remove(&self.number);
        gauge(&live);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Of a job that was forgotten nothing is there.
        self.core.go_on(self.number);
        let mut steered = self.core.steered.0.lock();
        drop(self.turn.take());
        let is_last = |queue: &Queue| Arc::strong_count(queue) == 1;
        if steered.get(&self.number).is_some_and(is_last) {
            steered.remove(&self.number);
        }
    }
}

/// Does work that goes on when whoever asked for it is gone.
pub(crate) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ImportsError>> + Send + 'static,
) -> Result<T, ImportsError> {
    // At most one per request; it ends with its work or the process.
    match tokio::spawn(work).await {
        Ok(done) => done,
        // Only a panic or the end of the process gets here.
        Err(_) => Err(ImportsError::Closed),
    }
}
