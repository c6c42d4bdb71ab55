//! The workers: pull slices, the fairest first, run them, and put their jobs back.
//!
//! A slice is read from the file, its records go to the topic as one batch, and then one
//! transaction writes them to the sink together with the job's progress. A crash between the two
//! repeats the slice: it is the same batch with the same producer sequence, which the store
//! recognizes. A job's sequence is the number of its records that went to the topic. The topic gets
//! every intact record; what a profile's policy leaves out is left out of the sink alone.
//!
//! While a slice is committed the one after it is read, as long as there is room for it.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::TenantId;
use streams::{Placed, ProduceBatch, ProducerSequence, Record};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinHandle;

use crate::commit::{Committed, Lease, Writing};
use crate::error::ImportsError;
use crate::imports::{Core, Live};
use crate::job::{Class, Job, JobState};
use crate::limits;
use crate::schedule::{Cost, JobNumber};
use crate::slice::{self, Reading, RemarkKind, Slice, SliceRecord, Start};

/// What is known of an unfinished job beside its row.
pub(crate) struct LiveJob {
    tenant: TenantId,
    class: Class,
    file: Option<Arc<File>>,
    /// The lease's token, once this process has it.
    token: Option<i64>,
    /// The next slice, read ahead of its turn.
    ahead: Option<Ahead>,
    running: bool,
    stopped: bool,
    /// Slices that failed one after the other.
    failures: u32,
    /// It waits to try a slice again that failed.
    waits: bool,
    slice_over: Arc<Notify>,
}

/// A slice that is read while the one before it is committed.
struct Ahead {
    start: Start,
    slice: JoinHandle<Result<Slice, ImportsError>>,
    _room: OwnedSemaphorePermit,
}

/// What a worker takes with it.
struct Picked {
    number: JobNumber,
    class: Class,
    file: Option<Arc<File>>,
    token: Option<i64>,
    ahead: Option<Ahead>,
}

/// What came of a slice.
enum Outcome {
    /// The job's state after it.
    State(JobState),
    /// The job was stopped, or is another process' now.
    Lost,
}

impl LiveJob {
    /// A job that waits for its first slice.
    pub fn of(job: &Job) -> Self {
        LiveJob::new(job.tenant.clone(), job.class)
    }

    fn new(tenant: TenantId, class: Class) -> Self {
        LiveJob {
            tenant,
            class,
            file: None,
            token: None,
            ahead: None,
            running: false,
            stopped: false,
            failures: 0,
            waits: false,
            slice_over: Arc::new(Notify::new()),
        }
    }

    /// Lets no further slice of it run; what tells the end of the one that runs, if one does.
    pub fn stop(&mut self) -> Option<Arc<Notify>> {
        self.stopped = true;
        self.ahead = None;
        self.running.then(|| self.slice_over.clone())
    }
}

impl Live {
    /// Lets a job run again that waits after a failure. One that was paused and resumed meanwhile
    /// waits no more: it runs already, or is about to.
    fn try_again(&mut self, number: JobNumber) -> bool {
        let is_due = |job: &&mut LiveJob| job.waits && !job.stopped;
        let Some(job) = self.jobs.get_mut(&number).filter(is_due) else {
            return false;
        };
        job.waits = false;
        self.schedule.add(job.class, &job.tenant, number);
        true
    }
}

impl Core {
    fn pick(&self) -> Option<Picked> {
        let mut live = self.live.lock();
        loop {
            let number = live.schedule.next()?;
            let Some(job) = live.jobs.get_mut(&number).filter(|job| !job.stopped) else {
                live.schedule.done(number, Cost::default(), false);
                continue;
            };
            job.running = true;
            return Some(Picked {
                number,
                class: job.class,
                file: job.file.clone(),
                token: job.token,
                ahead: job.ahead.take(),
            });
        }
    }

    /// Runs the next slice of a job.
    async fn run_slice(&self, picked: Picked) -> Result<Outcome, ImportsError> {
        let number = picked.number;
        let job = self.behind.job_numbered(number).await?;
        if job.state != JobState::Running {
            return Ok(Outcome::Lost);
        }
        let file = match picked.file {
            Some(file) => file,
            None => self.open_file(&job)?,
        };
        let token = match picked.token {
            Some(token) => token,
            None => match self.take_lease(number).await? {
                Some(token) => token,
                None => return Ok(Outcome::Lost),
            },
        };
        let job = Arc::new(job);
        let start = Start {
            offset: job.bytes_done,
            ordinal: job.next_ordinal,
        };
        let slice = match picked.ahead.filter(|ahead| ahead.start == start) {
            Some(ahead) => joined(ahead.slice).await?,
            None => joined(read_slice(file.clone(), job.clone(), start)).await?,
        };
        let ahead = self.read_ahead(&slice, file, &job);
        let placed = self.send(&job, &slice).await?;
        let counts = Counts::of(&slice);
        let lease = Lease {
            token,
            lasts: limits::LEASE,
        };
        let is_serving = self.guard.lock().is_serving(self.opened.elapsed());
        let rows = match is_serving {
            true => limits::ROWS_WHILE_SERVED,
            false => slice.records.len(),
        };
        let writing = Writing { lease, rows };
        let now = self.clock.now();
        let committed = self
            .behind
            .commit_slice(&job, slice, placed, writing, now)
            .await?;
        let Committed::State(state) = committed else {
            return Ok(Outcome::Lost);
        };
        counts.count();
        self.search.wake();
        if let Some(live) = self.live.lock().jobs.get_mut(&number) {
            live.ahead = ahead;
        }
        Ok(Outcome::State(state))
    }

    async fn take_lease(&self, number: JobNumber) -> Result<Option<i64>, ImportsError> {
        let now = self.clock.now();
        let token = self
            .behind
            .lease(number, &self.node, limits::LEASE, now)
            .await?;
        if let Some(live) = self.live.lock().jobs.get_mut(&number) {
            live.token = token;
        }
        Ok(token)
    }

    /// Begins to read the slice after `slice`, if there is one and room for it.
    fn read_ahead(&self, slice: &Slice, file: Arc<File>, job: &Arc<Job>) -> Option<Ahead> {
        if slice.last {
            return None;
        }
        let room = self.ahead.clone().try_acquire_owned().ok()?;
        let start = Start {
            offset: slice.end,
            ordinal: slice.next_ordinal,
        };
        Some(Ahead {
            start,
            slice: read_slice(file, job.clone(), start),
            _room: room,
        })
    }

    fn open_file(&self, job: &Job) -> Result<Arc<File>, ImportsError> {
        let path = self.file_path(job);
        let file = File::open(&path).map_err(ImportsError::file("open", &path))?;
        let found = file
            .metadata()
            .map_err(ImportsError::file("look at", &path))?
            .len();
        if found != job.bytes_total {
            return Err(ImportsError::FileChanged {
                found,
                expected: job.bytes_total,
            });
        }
        let file = Arc::new(file);
        if let Some(live) = self.live.lock().jobs.get_mut(&job.number) {
            live.file = Some(file.clone());
        }
        Ok(file)
    }

    /// Sends a slice's records to the topic: one batch, durable when this returns.
    async fn send(&self, job: &Job, slice: &Slice) -> Result<Option<Placed>, ImportsError> {
        if slice.records.is_empty() || !job.sink.has_topic() {
            return Ok(None);
        }
        // The sink needs the text too; the copy is of SLICE_BYTES_MAX bytes at most.
        let record = |record: &SliceRecord| {
            Record::of_value(record.body.clone()).with_key(record.id.clone())
        };
        let records = slice.records.iter().map(record).collect();
        let batch = ProduceBatch {
            topic: job.topic.clone(),
            partition: job.producer.partition,
            records,
            sequence: Some(ProducerSequence {
                producer_id: job.producer.id,
                producer_epoch: 0,
                // Kafka's sequences wrap to zero after 2^31 - 1.
                first_sequence: i32::try_from(job.records_sent & 0x7fff_ffff).unwrap_or(0),
            }),
        };
        Ok(Some(self.store.produce(batch).await?))
    }

    /// Puts a job back, or ends it, after a slice.
    async fn after_slice(
        self: &Arc<Self>,
        number: JobNumber,
        cost: Cost,
        outcome: Result<Outcome, ImportsError>,
    ) {
        let trouble = match outcome {
            Ok(Outcome::State(JobState::Running)) => None,
            Ok(Outcome::State(_)) => return self.end_job(number, cost, None).await,
            Ok(Outcome::Lost) => return self.let_go(number, cost),
            Err(error) if error.may_retry() => Some(base::report(&error)),
            Err(error) => return self.end_job(number, cost, Some(base::report(&error))).await,
        };
        if let Some(trouble) = &trouble {
            tracing::warn!(
                job = number.0,
                error = trouble,
                "an import waits to try again"
            );
            let noted = self.behind.note(number, trouble, self.clock.now()).await;
            if let Err(error) = noted {
                tracing::warn!(
                    error = base::report(&error),
                    "the trouble was not noted either"
                );
            }
        }
        let pause = {
            let mut live = self.live.lock();
            let stopped = live.jobs.get_mut(&number).is_none_or(|job| {
                job.failures = if trouble.is_some() {
                    job.failures + 1
                } else {
                    0
                };
                job.running = false;
                job.waits = trouble.is_some();
                job.slice_over.notify_waiters();
                job.stopped
            });
            let again = trouble.is_none() && !stopped;
            live.schedule.done(number, cost, again);
            live.jobs
                .get(&number)
                .filter(|_| trouble.is_some() && !stopped)
                .map(|job| {
                    RETRY_PAUSE_MIN
                        .saturating_mul(1 << job.failures.min(10))
                        .min(limits::RETRY_PAUSE_MAX)
                })
        };
        if let Some(pause) = pause {
            let core = self.clone();
            // At most one per unfinished job; it ends with the pause or the process.
            tokio::spawn(async move {
                let sleep = tokio::time::sleep(pause);
                if core.shutdown.run_until_cancelled(sleep).await.is_some() {
                    core.try_again(number);
                }
            });
        }
    }

    /// Works no more on a job that was stopped or that another process has.
    fn let_go(&self, number: JobNumber, cost: Cost) {
        let mut live = self.live.lock();
        live.schedule.done(number, cost, false);
        if let Some(job) = live.jobs.remove(&number) {
            job.slice_over.notify_waiters();
        }
        gauge(&live);
    }

    fn try_again(&self, number: JobNumber) {
        if self.live.lock().try_again(number) {
            self.wake.notify_one();
        }
    }

    /// Ends a job whose last slice is committed, or that cannot go on because of `failure`.
    async fn end_job(&self, number: JobNumber, cost: Cost, failure: Option<String>) {
        if let Some(failure) = &failure {
            tracing::error!(job = number.0, error = failure, "an import failed");
            let now = self.clock.now();
            let ended = self
                .behind
                .end(number, JobState::Failed, Some(failure), now)
                .await;
            if let Err(error) = ended {
                // Its row still says running, so the next start takes it up again.
                tracing::error!(error = base::report(&error), "the failure was not recorded");
            }
        }
        {
            let mut live = self.live.lock();
            live.schedule.done(number, cost, false);
            if let Some(job) = live.jobs.remove(&number) {
                job.slice_over.notify_waiters();
            }
            gauge(&live);
        }
        if let Ok(job) = self.behind.job_numbered(number).await
            && job.state.has_ended()
        {
            self.remove_file(&job.id);
        }
    }
}

/// A worker: pulls slices, the fairest first, until the service stops.
pub(crate) async fn work(core: Arc<Core>) {
    loop {
        let woken = core.wake.notified();
        if core.shutdown.is_cancelled() {
            return;
        }
        let Some(picked) = core.pick() else {
            if core.shutdown.run_until_cancelled(woken).await.is_none() {
                return;
            }
            continue;
        };
        // Where one job waits there may be more: another worker looks.
        core.wake.notify_one();
        let started = Instant::now();
        let (number, class) = (picked.number, picked.class);
        let outcome = core.run_slice(picked).await;
        let took = started.elapsed();
        metrics::histogram!("thalweg_imports_slice_seconds").record(took.as_secs_f64());
        let cost = Cost(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        core.after_slice(number, cost, outcome).await;
        if class == Class::Bulk {
            let (rest, share) = {
                let mut guard = core.guard.lock();
                (
                    guard.pause_after(core.opened.elapsed(), took),
                    guard.share(),
                )
            };
            metrics::gauge!("thalweg_imports_bulk_share").set(share);
            if !rest.is_zero() {
                core.shutdown
                    .run_until_cancelled(tokio::time::sleep(rest))
                    .await;
            }
        }
    }
}

/// On a shared database: lengthens this process' leases, and takes over the jobs of processes that
/// are gone, where their files are at hand.
pub(crate) async fn keep_leases(core: Arc<Core>) {
    loop {
        let sleep = tokio::time::sleep(limits::LEASE / 3);
        if core.shutdown.run_until_cancelled(sleep).await.is_none() {
            return;
        }
        let now = core.clock.now();
        let kept = core
            .registry
            .keep_leases(&core.node, limits::LEASE, now)
            .await;
        let orphans = core.registry.orphans(now).await;
        match (kept, orphans) {
            (Ok(()), Ok(orphans)) => {
                for job in orphans.iter().filter(|job| core.file_path(job).exists()) {
                    core.enqueue(job);
                }
            }
            (Err(error), _) | (_, Err(error)) => tracing::warn!(
                error = base::report(&error),
                "leases of imports were not renewed; it is tried again"
            ),
        }
    }
}

async fn joined(reading: JoinHandle<Result<Slice, ImportsError>>) -> Result<Slice, ImportsError> {
    match reading.await {
        Ok(read) => read,
        Err(_) => Err(ImportsError::Read(std::io::Error::other(
            "the reader broke off",
        ))),
    }
}

fn read_slice(
    file: Arc<File>,
    job: Arc<Job>,
    start: Start,
) -> JoinHandle<Result<Slice, ImportsError>> {
    tokio::task::spawn_blocking(move || {
        let reading = Reading {
            format: job.format,
            profile: &job.profile,
            job: &job.id,
            records_max: job.slice_records,
        };
        slice::read(&file, job.bytes_total, start, &reading)
    })
}

/// What of a slice the metrics count.
struct Counts {
    done: u64,
    rejected: u64,
}

impl Counts {
    fn of(slice: &Slice) -> Self {
        let is_rejected = |kind| kind == RemarkKind::Rejected;
        let rejected = slice
            .remarks
            .iter()
            .filter(|remark| is_rejected(remark.kind));
        Counts {
            done: slice.records.len() as u64,
            rejected: rejected.count() as u64,
        }
    }

    fn count(&self) {
        let total = "thalweg_imports_records_total";
        metrics::counter!(total, "outcome" => "done").increment(self.done);
        metrics::counter!(total, "outcome" => "rejected").increment(self.rejected);
    }
}

pub(crate) fn gauge(live: &Live) {
    // Far below 2^52, so exact.
    metrics::gauge!("thalweg_imports_unfinished_jobs").set(live.jobs.len() as f64);
}

/// The first pause after a failed slice.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(100);

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
