//! The workers: pull jobs, the fairest first, give them their turn, and put them back.
//!
//! A turn is a few slices of a job's file, and one alone while people are served at the counter: what
//! they wait for is the disk, and a commit of a few records keeps it busy for less long. Each slice's
//! records go to the topic as one batch, and then one transaction writes those of all to the sink
//! together with the job's progress. A crash between the two repeats the slices: they are the same
//! batches with the same producer sequences, which the store recognizes. A job's sequence is the
//! number of its records that went to the topic. The topic gets every intact record; what a profile's
//! policy leaves out is left out of the sink alone.
//!
//! While slices are committed those after them are read, as long as there is room for them.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::TenantId;
use bytes::Bytes;
use streams::{ProduceBatch, ProducerSequence, Record, StreamsError};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinHandle;

use crate::commit::{Committed, Lease, Sent, Writing};
use crate::error::ImportsError;
use crate::imports::{Core, Live};
use crate::job::{Class, Job, JobState};
use crate::keys::Selectors;
use crate::limits;
use crate::schedule::{Cost, JobNumber};
use crate::slice::{self, Reading, RemarkKind, Slice, SliceRecord, Start};

/// What is known of an unfinished job beside its row.
pub(crate) struct LiveJob {
    pub tenant: TenantId,
    class: Class,
    file: Option<Arc<File>>,
    /// The lease's token, once this process has it.
    token: Option<i64>,
    /// The tenant's selectors, once the job's own is among them.
    selectors: Option<Arc<Selectors>>,
    /// The next slices, read ahead of their turn.
    ahead: Option<Ahead>,
    running: bool,
    stopped: bool,
    /// Turns that failed one after the other.
    failures: u32,
    /// It waits to try a slice again that failed.
    waits: bool,
    turn_over: Arc<Notify>,
}

/// Slices that are read while those before them are committed.
struct Ahead {
    start: Start,
    /// Of the selectors that they are read for.
    revision: i64,
    slices: Slices,
    _room: OwnedSemaphorePermit,
}

/// Slices that follow each other.
enum Slices {
    Reading(JoinHandle<Result<Vec<Slice>, ImportsError>>),
    Read(Vec<Slice>),
}

/// What slices are read from.
#[derive(Clone)]
struct Source {
    file: Arc<File>,
    job: Arc<Job>,
    selectors: Arc<Selectors>,
}

/// What a worker takes with it.
struct Picked {
    number: JobNumber,
    class: Class,
    file: Option<Arc<File>>,
    token: Option<i64>,
    selectors: Option<Arc<Selectors>>,
    ahead: Option<Ahead>,
}

/// What came of a turn.
enum Outcome {
    /// The job's state after it.
    State(JobState),
    /// The job was stopped, or is another process' now.
    Lost,
    /// Its tenant is over its quotas, for so long.
    Held(Duration),
}

/// What a job waits for after its turn.
enum After {
    /// Its turn.
    Next,
    /// Its tenant's quotas, for so long.
    Held(Duration),
    /// Another try, as there was this trouble.
    Failed(String),
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
    fn try_again(&mut self, number: JobNumber) -> bool {
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
                selectors: job.selectors.clone(),
                ahead: job.ahead.take(),
            });
        }
    }

    /// Runs the next slices of a job.
    async fn run_turn(&self, picked: Picked) -> Result<Outcome, ImportsError> {
        let number = picked.number;
        if self.is_aside() {
            return Ok(Outcome::Lost);
        }
        let job = self.behind.job_numbered(number).await?;
        if job.state != JobState::Running {
            return Ok(Outcome::Lost);
        }
        // Quotas are of topics.
        let wait = match job.sink.has_topic() {
            true => self.store.tenant_wait(&job.tenant)?,
            false => Duration::ZERO,
        };
        if !wait.is_zero() {
            return Ok(Outcome::Held(wait));
        }
        let file = match picked.file.map_or_else(|| self.open_file(&job), Ok) {
            Ok(file) => file,
            // Another's job is for that one, and nobody's for whoever has its file.
            Err(error) if self.registry.is_shared() && self.is_elsewhere(&job, &error) => {
                return Ok(Outcome::Lost);
            }
            Err(error) => return Err(error),
        };
        let token = match picked.token {
            Some(token) => token,
            None => match self.take_lease(number).await? {
                Some(token) => token,
                None => return Ok(Outcome::Lost),
            },
        };
        let selectors = match picked.selectors {
            Some(selectors) => selectors,
            None => match self.ready_selectors(&job).await? {
                Some(selectors) => selectors,
                None => return Ok(Outcome::State(JobState::Running)),
            },
        };
        let job = Arc::new(job);
        let start = Start {
            offset: job.bytes_done,
            ordinal: job.next_ordinal,
        };
        let is_serving = self.guard.lock().is_serving(self.opened.elapsed());
        let count = slices_of_turn(&job, is_serving);
        let source = Source {
            file,
            job: job.clone(),
            selectors: selectors.clone(),
        };
        let is_next = |ahead: &Ahead| (ahead.start, ahead.revision) == (start, selectors.revision);
        let mut slices = match picked.ahead.filter(is_next) {
            Some(ahead) => ahead.slices.read().await?,
            None => source.read(start, count).read().await?,
        };
        let rest = slices.split_off(count.min(slices.len()));
        let ahead = self.ahead_of(&slices, rest, count, source);
        let counts = Counts::of(&slices);
        let sent = self.send(&job, slices).await?;
        let lease = Lease {
            token,
            lasts: limits::LEASE,
        };
        let rows = match is_serving {
            true => limits::ROWS_WHILE_SERVED,
            false => usize::MAX,
        };
        let writing = Writing {
            lease,
            selectors: &selectors,
            rows,
        };
        let now = self.clock.now();
        let committed = self.behind.commit_slices(&job, sent, writing, now).await?;
        let state = match committed {
            Committed::State(state) => state,
            Committed::Fenced => return Ok(Outcome::Lost),
            Committed::Outdated => {
                if let Some(live) = self.live.lock().jobs.get_mut(&number) {
                    live.selectors = None;
                }
                return Ok(Outcome::State(JobState::Running));
            }
        };
        counts.count();
        self.search.wake();
        if let Some(live) = self.live.lock().jobs.get_mut(&number) {
            live.ahead = ahead;
        }
        Ok(Outcome::State(state))
    }

    /// The most records of a slice, of jobs that are created from now on.
    pub fn slice_records(&self) -> u32 {
        let usual = match self.store.is_shared() {
            true => limits::SLICE_RECORDS_MAX,
            false => limits::SLICE_RECORDS,
        };
        self.config.slice_records.unwrap_or(usual)
    }

    /// The selectors that a job's slices are read for; none while the tenant's records are not found
    /// by the job's own yet, for which some more is done.
    async fn ready_selectors(&self, job: &Job) -> Result<Option<Arc<Selectors>>, ImportsError> {
        if !job.sink.has_records() {
            return Ok(Some(Arc::default()));
        }
        let mut selectors = self.behind.selectors(&job.tenant).await?;
        if let Some(text) = job.profile.match_on.as_deref()
            && !selectors.are_ready_for(&job.profile)
        {
            let mut steps = 0..limits::FILLS_OF_TURN;
            while !self.behind.prepare_selector(&job.tenant, text).await? {
                if steps.next().is_none() {
                    return Ok(None);
                }
            }
            selectors = self.behind.selectors(&job.tenant).await?;
        }
        let selectors = Arc::new(selectors);
        if let Some(live) = self.live.lock().jobs.get_mut(&job.number) {
            live.selectors = Some(selectors.clone());
        }
        Ok(Some(selectors))
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

    /// What comes after `slices`: the `rest` of what was read with them, or else up to `count` that are
    /// begun to be read, if there are any and there is room for them.
    fn ahead_of(
        &self,
        slices: &[Slice],
        rest: Vec<Slice>,
        count: usize,
        source: Source,
    ) -> Option<Ahead> {
        let latest = slices.last().filter(|slice| !slice.last)?;
        let room = self.ahead.clone().try_acquire_owned().ok()?;
        let start = latest.next();
        let revision = source.selectors.revision;
        let slices = match rest.is_empty() {
            true => source.read(start, count),
            false => Slices::Read(rest),
        };
        Some(Ahead {
            start,
            revision,
            slices,
            _room: room,
        })
    }

    fn is_elsewhere(&self, job: &Job, error: &ImportsError) -> bool {
        let is_missing = matches!(error, ImportsError::File { source, .. }
            if source.kind() == std::io::ErrorKind::NotFound);
        match &job.owner {
            Some(owner) => *owner != self.node,
            None => is_missing,
        }
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

    /// Sends slices' records to the topic: one batch of each, durable when this returns.
    async fn send(&self, job: &Job, slices: Vec<Slice>) -> Result<Vec<Sent>, ImportsError> {
        let of = |slice: &Slice| job.sink.has_topic() && !slice.records.is_empty();
        let mut sequence = job.records_sent;
        let batch = |slice: &Slice| {
            let batch = batch(job, slice, sequence);
            sequence += slice.records.len() as u64;
            batch
        };
        let batches: Vec<_> = slices.iter().filter(|slice| of(slice)).map(batch).collect();
        let mut placed = match batches.is_empty() {
            true => Vec::new().into_iter(),
            false => self.store.produce_in_order(batches).await?.into_iter(),
        };
        let sent = |slice: Slice| Sent {
            placed: of(&slice).then(|| placed.next()).flatten(),
            slice,
        };
        Ok(slices.into_iter().map(sent).collect())
    }

    /// Puts a job back, or ends it, after its turn.
    async fn after_turn(
        self: &Arc<Self>,
        number: JobNumber,
        cost: Cost,
        outcome: Result<Outcome, ImportsError>,
    ) {
        if outcome.is_err() && self.stands_aside().await {
            return self.let_go(number, cost);
        }
        let after = match outcome {
            Ok(Outcome::State(JobState::Running)) => After::Next,
            Ok(Outcome::State(_)) => return self.end_job(number, cost, None).await,
            Ok(Outcome::Lost) => return self.let_go(number, cost),
            Ok(Outcome::Held(wait)) => After::Held(wait),
            Err(ImportsError::Store(StreamsError::TenantFull(tenant))) => {
                let full = StreamsError::TenantFull(tenant);
                return self.rest_job(number, cost, base::report(&full)).await;
            }
            Err(error) if error.may_retry() => After::Failed(base::report(&error)),
            Err(error) => return self.end_job(number, cost, Some(base::report(&error))).await,
        };
        if let After::Failed(trouble) = &after {
            tracing::warn!(
                job = number.0,
                error = trouble,
                "an import waits to try again"
            );
            let now = self.clock.now();
            let noted = self.behind.note(number, &self.node, trouble, now).await;
            if let Err(error) = noted {
                tracing::warn!(
                    error = base::report(&error),
                    "the trouble was not noted either"
                );
            }
        }
        let pause = {
            let mut live = self.live.lock();
            let waits = !matches!(after, After::Next);
            let stopped = live.jobs.get_mut(&number).is_none_or(|job| {
                job.failures = match after {
                    After::Failed(_) => job.failures + 1,
                    After::Next | After::Held(_) => 0,
                };
                job.running = false;
                job.waits = waits;
                job.turn_over.notify_waiters();
                job.stopped
            });
            match after {
                After::Held(_) => live.schedule.not_run(number),
                _ => live.schedule.done(number, cost, !waits && !stopped),
            }
            let waiting = live.jobs.get(&number).filter(|_| waits && !stopped);
            waiting.map(|job| match after {
                After::Held(wait) => wait.min(limits::RETRY_PAUSE_MAX),
                _ => RETRY_PAUSE_MIN
                    .saturating_mul(1 << job.failures.min(10))
                    .min(limits::RETRY_PAUSE_MAX),
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

    /// Pauses a job whose tenant has no room for its records.
    async fn rest_job(&self, number: JobNumber, cost: Cost, reason: String) {
        let now = self.clock.now();
        let (from, to) = ([JobState::Running], JobState::Paused);
        let paused = self.behind.change(number, &from, to, Some(&reason), now);
        if let Err(error) = paused.await {
            // Its row still says running, so that it is taken up again.
            tracing::warn!(
                job = number.0,
                error = base::report(&error),
                "an import was not paused"
            );
        }
        self.let_go(number, cost);
    }

    /// Works no more on a job that was stopped or that another process has.
    fn let_go(&self, number: JobNumber, cost: Cost) {
        let mut live = self.live.lock();
        live.schedule.done(number, cost, false);
        if let Some(job) = live.jobs.remove(&number) {
            job.turn_over.notify_waiters();
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
            let ended = self.behind.fail(number, &self.node, failure, now).await;
            if let Err(error) = ended {
                // Its row still says running, so that it is taken up again.
                tracing::error!(error = base::report(&error), "the failure was not recorded");
            }
        }
        {
            let mut live = self.live.lock();
            live.schedule.done(number, cost, false);
            if let Some(job) = live.jobs.remove(&number) {
                job.turn_over.notify_waiters();
            }
            gauge(&live);
        }
        if let Ok(job) = self.behind.job_numbered(number).await
            && job.state.has_ended()
            // A failed one may be resumed.
            && job.state != JobState::Failed
        {
            self.remove_file(&job.id);
        }
    }
}

impl Core {
    /// Rests between bulk turns, until somebody waits for interactive work.
    async fn rest(&self, rest: Duration) {
        let until = Instant::now() + rest;
        loop {
            let woken = self.wake.notified();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.live.lock().schedule.is_waiting(Class::Interactive) {
                return;
            }
            let _ = tokio::time::timeout(left, woken).await;
        }
    }
}

/// A worker: gives jobs their turn, the fairest first, until the service stops.
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
        let outcome = core.run_turn(picked).await;
        let took = started.elapsed();
        metrics::histogram!("thalweg_imports_slice_seconds").record(took.as_secs_f64());
        let cost = Cost(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        core.after_turn(number, cost, outcome).await;
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
                core.shutdown.run_until_cancelled(core.rest(rest)).await;
            }
        }
    }
}

impl Slices {
    async fn read(self) -> Result<Vec<Slice>, ImportsError> {
        let broke = |_| ImportsError::Read(std::io::Error::other("the reader broke off"));
        match self {
            Slices::Reading(reading) => reading.await.map_err(broke)?,
            Slices::Read(slices) => Ok(slices),
        }
    }
}

impl Source {
    /// Begins to read up to `count` slices.
    fn read(&self, start: Start, count: usize) -> Slices {
        let Source {
            file,
            job,
            selectors,
        } = self.clone();
        Slices::Reading(tokio::task::spawn_blocking(move || {
            let reading = Reading {
                format: job.format,
                profile: &job.profile,
                selectors: &selectors,
                job: &job.id,
                records_max: job.slice_records,
            };
            slice::read_some(&file, job.bytes_total, start, &reading, count)
        }))
    }
}

/// How many slices of a job are one turn.
fn slices_of_turn(job: &Job, is_serving: bool) -> usize {
    let records = usize::try_from(job.slice_records).unwrap_or(usize::MAX);
    match is_serving {
        true => 1,
        false => (limits::TURN_RECORDS / records.max(1)).clamp(1, limits::TURN_SLICES_MAX),
    }
}

/// A slice's records as they go to the topic, the first with this number.
fn batch(job: &Job, slice: &Slice, sequence: u64) -> ProduceBatch {
    // The sink needs the text too; the copy is of SLICE_BYTES_MAX bytes at most.
    let tenant = Bytes::copy_from_slice(job.tenant.as_str().as_bytes());
    let record = |record: &SliceRecord| Record {
        headers: vec![(TENANT_HEADER.to_owned(), Some(tenant.clone()))],
        ..Record::of_value(record.body.clone()).with_key(record.id.clone())
    };
    ProduceBatch {
        topic: job.topic.clone(),
        partition: job.producer.partition,
        records: slice.records.iter().map(record).collect(),
        sequence: Some(ProducerSequence {
            producer_id: job.producer.id,
            producer_epoch: 0,
            // Kafka's sequences wrap to zero after 2^31 - 1.
            first_sequence: i32::try_from(sequence & 0x7fff_ffff).unwrap_or(0),
        }),
    }
}

/// What of slices the metrics count.
struct Counts {
    done: u64,
    rejected: u64,
}

impl Counts {
    fn of(slices: &[Slice]) -> Self {
        let remarks = slices.iter().flat_map(|slice| &slice.remarks);
        let rejected = remarks.filter(|remark| remark.kind == RemarkKind::Rejected);
        Counts {
            done: slices.iter().map(|slice| slice.records.len() as u64).sum(),
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

/// The header by which a record names its tenant, as the event store reads it.
const TENANT_HEADER: &str = "thalweg.tenant";
/// The first pause after a failed turn.
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
