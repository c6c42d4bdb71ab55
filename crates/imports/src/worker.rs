//! The workers: pull jobs, the fairest first, give them their turn, and put them back.
//!
//! A turn is a few slices of a job's file, and fewer while people are served at the counter or a new
//! job is on its way: what they wait for are the disk and the processors, and a commit of a few records
//! keeps them busy for less long. Each slice's
//! records go to the topic as one batch, and one transaction writes those of all to the sink together
//! with the job's progress. It is written while the topic syncs, and committed when that is done. A
//! crash between the two repeats the slices: they are the same batches with the same producer
//! sequences, which the store recognizes. A job's sequence is the
//! number of its records that went to the topic. The topic gets every intact record; what a profile's
//! policy leaves out is left out of the sink alone.
//!
//! While slices are committed those after them are read, as long as there is room for them (`ahead.rs`).
//! What becomes of a job after its turn stands in `after.rs`.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use streams::{Placed, ProduceBatch, ProducerSequence, Record};

use crate::ahead::{Ahead, Source};
use crate::commit::{Committed, Lease, Writing};
use crate::error::ImportsError;
use crate::imports::Core;
use crate::job::{Class, Job, JobState};
use crate::keys::Selectors;
use crate::limits;
use crate::live::KnownJob;
use crate::schedule::{Cost, JobNumber};
use crate::slice::{RemarkKind, Slice, SliceRecord, Start};

/// What a worker takes with it.
struct Picked {
    number: JobNumber,
    class: Class,
    file: Option<Arc<File>>,
    known: Option<KnownJob>,
    token: Option<i64>,
    selectors: Option<Arc<Selectors>>,
    ahead: Option<Ahead>,
}

/// What came of a turn.
pub(crate) enum Outcome {
    /// The job's state after it.
    State(JobState),
    /// The job was stopped, or is another process' now.
    Lost,
    /// Its tenant is over its quotas, for so long.
    Held(Duration),
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
                known: job.known.take(),
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
        let job = match picked.known.filter(KnownJob::is_fresh) {
            Some(known) => known.job,
            None => Arc::new(self.behind.job_numbered(number).await?),
        };
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
        let start = Start {
            offset: job.bytes_done,
            ordinal: job.next_ordinal,
        };
        let is_short = self.is_short(&job);
        let count = slices_of_turn(&job, is_short);
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
        let sending = self.send(&job, &slices);
        let lease = Lease {
            token,
            lasts: limits::LEASE,
        };
        let rows = match is_short {
            true => limits::ROWS_WHILE_SERVED,
            false => usize::MAX,
        };
        let writing = Writing {
            lease,
            selectors: &selectors,
            rows,
        };
        let now = self.clock.now();
        let behind = &self.behind;
        let committed = match self.store.is_shared() {
            // A cluster takes its time, and no database is held up for that.
            true => {
                let placed = std::future::ready(Ok(sending.await?));
                behind
                    .commit_slices(&job, slices, placed, writing, now)
                    .await
            }
            false => {
                behind
                    .commit_slices(&job, slices, sending, writing, now)
                    .await
            }
        };
        let job = match committed? {
            Committed::Job(job) => job,
            Committed::Fenced => return Ok(Outcome::Lost),
            Committed::Late => return Ok(Outcome::State(JobState::Running)),
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
            live.known = Some(KnownJob::now(job.clone()));
        }
        Ok(Outcome::State(job.state))
    }

    /// Whether a turn is a short one: while people are served, and while a new job is on its way, which
    /// has its own first turn whole.
    fn is_short(&self, job: &Job) -> bool {
        let (guard, now) = (self.guard.lock(), self.opened.elapsed());
        guard.is_serving(now) || job.slices_done > 0 && guard.is_expecting(now)
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

    /// Sends slices' records to the topic, one batch of each; where each went, durable when this
    /// returns.
    fn send(
        &self,
        job: &Job,
        slices: &[Slice],
    ) -> impl Future<Output = Result<Vec<Option<Placed>>, ImportsError>> + use<'_> {
        let mut sequence = job.records_sent;
        let is_sent = |slice: &Slice| job.sink.has_topic() && !slice.records.is_empty();
        let batch = |slice: &Slice| {
            let batch = batch(job, slice, sequence);
            sequence += slice.records.len() as u64;
            batch
        };
        let are_sent: Vec<bool> = slices.iter().map(is_sent).collect();
        let batches: Vec<_> = slices
            .iter()
            .filter(|slice| is_sent(slice))
            .map(batch)
            .collect();
        async move {
            let mut placed = match batches.is_empty() {
                true => Vec::new().into_iter(),
                false => self.store.produce_in_order(batches).await?.into_iter(),
            };
            let of = |is_sent: bool| is_sent.then(|| placed.next()).flatten();
            Ok(are_sent.into_iter().map(of).collect())
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

/// How many slices of a job are one turn.
fn slices_of_turn(job: &Job, is_short: bool) -> usize {
    let records = usize::try_from(job.slice_records).unwrap_or(usize::MAX);
    let turn = match is_short {
        true => limits::TURN_RECORDS_WHILE_SERVED,
        false => limits::TURN_RECORDS,
    };
    (turn / records.max(1)).clamp(1, limits::TURN_SLICES_MAX)
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

/// The header by which a record names its tenant, as the event store reads it.
const TENANT_HEADER: &str = "thalweg.tenant";
