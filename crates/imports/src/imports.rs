//! The service: takes files in, runs jobs slice by slice, and ends them.
//!
//! A slice is read from the file, its records go to the topic as one batch, and then one
//! transaction writes them to the sink together with the job's progress. A crash between the two
//! repeats the slice: it is the same batch with the same producer sequence, which the store
//! recognizes. A job's sequence is the number of its records that are in the sink.
//!
//! All records of a tenant go to one partition of a topic, chosen by the tenant's name, so that
//! they keep the file's order.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Clock, TenantId};
use parking_lot::Mutex;
use streams::{EventStore, Placed, ProduceBatch, ProducerSequence, Record};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::ImportsConfig;
use crate::error::ImportsError;
use crate::job::{Job, JobState, JournalEntry, TenantUse};
use crate::limits;
use crate::registry::Registry;
use crate::schedule::{Cost, JobNumber, Schedule};
use crate::slice::{self, Reading, Slice, SliceRecord, Start};

/// The import service of one installation.
pub struct Imports {
    pub(crate) core: Arc<Core>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) struct Core {
    pub dir: PathBuf,
    pub config: ImportsConfig,
    pub store: Arc<dyn EventStore>,
    pub clock: Arc<dyn Clock>,
    pub registry: Registry,
    pub live: Mutex<Live>,
    pub uploads: Arc<Semaphore>,
    pub shutdown: CancellationToken,
    wake: Notify,
}

/// What is known of unfinished jobs beside their rows.
#[derive(Default)]
pub(crate) struct Live {
    pub uploading: HashMap<String, Arc<Uploading>>,
    schedule: Schedule,
    jobs: HashMap<JobNumber, LiveJob>,
}

/// An upload under way.
pub(crate) struct Uploading {
    pub bytes: AtomicU64,
    pub cancelled: CancellationToken,
}

struct LiveJob {
    tenant: TenantId,
    file: Option<Arc<File>>,
    running: bool,
    cancelled: bool,
    /// Slices that failed one after the other.
    failures: u32,
    slice_over: Arc<Notify>,
}

impl Imports {
    /// Opens the registry in `dir`, takes up the jobs that were running, and starts the workers.
    ///
    /// # Errors
    /// When the folder or the database cannot be opened.
    pub async fn open(
        dir: &Path,
        config: ImportsConfig,
        store: Arc<dyn EventStore>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Imports>, ImportsError> {
        let uploads = dir.join(UPLOADS);
        std::fs::create_dir_all(&uploads)
            .map_err(ImportsError::file("make the folder", &uploads))?;
        let registry = Registry::open(&dir.join(DATABASE)).await?;
        let core = Arc::new(Core {
            dir: dir.to_owned(),
            store,
            clock,
            registry,
            live: Mutex::default(),
            uploads: Arc::new(Semaphore::new(limits::UPLOADS_MAX)),
            shutdown: CancellationToken::new(),
            wake: Notify::new(),
            config,
        });
        core.resume().await?;
        let workers = (0..core.config.workers.clamp(1, limits::WORKERS_MAX))
            .map(|_| tokio::spawn(work(core.clone())))
            .collect();
        Ok(Arc::new(Imports {
            core,
            workers: Mutex::new(workers),
        }))
    }

    /// The jobs of one tenant or of all, newest first.
    pub async fn jobs(
        &self,
        tenant: Option<&TenantId>,
        count: u32,
    ) -> Result<Vec<Job>, ImportsError> {
        let count = count.min(limits::LISTED_JOBS_MAX);
        let mut jobs = self.core.registry.jobs(tenant, count).await?;
        jobs.iter_mut().for_each(|job| self.core.add_upload(job));
        Ok(jobs)
    }

    /// What each tenant has imported, by name after `after`, at most
    /// [`limits::LISTED_TENANTS_MAX`] of them.
    pub async fn tenants(&self, after: &str, count: u32) -> Result<Vec<TenantUse>, ImportsError> {
        let count = count.min(limits::LISTED_TENANTS_MAX);
        self.core.registry.tenants(after, count).await
    }

    /// One job.
    pub async fn job(&self, id: &str) -> Result<Job, ImportsError> {
        let mut job = self.core.registry.job(id).await?;
        self.core.add_upload(&mut job);
        Ok(job)
    }

    /// What was wrong with a job's records, by ordinal, after the ordinal `after`.
    pub async fn journal(
        &self,
        id: &str,
        after: i64,
        count: u32,
    ) -> Result<Vec<JournalEntry>, ImportsError> {
        let job = self.core.registry.job(id).await?;
        self.core
            .registry
            .journal(job.number, after, count.min(limits::LISTED_ENTRIES_MAX))
            .await
    }

    /// Ends a job: when this returns, no record of it goes anywhere any more. What its committed
    /// slices brought stays, in topic and sink alike.
    pub async fn cancel(&self, id: &str) -> Result<Job, ImportsError> {
        let core = &self.core;
        let job = core.registry.job(id).await?;
        if let Some(uploading) = core.live.lock().uploading.get(id) {
            uploading.cancelled.cancel();
        }
        core.stop_slices(&job).await;
        let ended = core
            .registry
            .end(job.number, JobState::Cancelled, None, core.clock.now())
            .await?;
        let after = core.registry.job(id).await?;
        if !ended {
            let (id, state) = (after.id, after.state.name());
            return Err(ImportsError::State {
                id,
                state,
                wanted: "cancelled",
            });
        }
        core.forget(job.number, id);
        Ok(after)
    }

    /// Stops the workers after their slices and closes the database; jobs go on at the next open.
    pub async fn close(&self) {
        self.core.shutdown.cancel();
        let workers = std::mem::take(&mut *self.workers.lock());
        for worker in workers {
            if let Err(error) = worker.await {
                tracing::error!(error = base::report(&error), "an import worker broke off");
            }
        }
        self.core.registry.close().await;
    }
}

impl Drop for Imports {
    fn drop(&mut self) {
        self.core.shutdown.cancel();
    }
}

impl Core {
    /// Lets a job run whose file is on disk.
    pub fn enqueue(&self, number: JobNumber, tenant: &TenantId) {
        let mut live = self.live.lock();
        live.jobs.insert(
            number,
            LiveJob {
                tenant: tenant.clone(),
                file: None,
                running: false,
                cancelled: false,
                failures: 0,
                slice_over: Arc::new(Notify::new()),
            },
        );
        live.schedule.add(tenant, number);
        gauge(&live);
        drop(live);
        self.wake.notify_one();
    }

    pub fn upload_path(&self, id: &str) -> PathBuf {
        self.dir.join(UPLOADS).join(id)
    }

    /// Refuses more unfinished jobs than the process takes.
    pub fn check_room(&self) -> Result<(), ImportsError> {
        let live = self.live.lock();
        if live.jobs.len() + live.uploading.len() < limits::JOBS_ACTIVE_MAX {
            return Ok(());
        }
        Err(ImportsError::Busy {
            what: "unfinished imports",
            max: limits::JOBS_ACTIVE_MAX,
        })
    }

    pub fn remove_file(&self, id: &str) {
        let path = self.upload_path(id);
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "an upload's file was not removed");
        }
    }

    async fn resume(&self) -> Result<(), ImportsError> {
        let mut kept = Vec::new();
        for job in self.registry.unfinished().await? {
            if job.state == JobState::Uploading {
                let reason = "the upload was cut by a restart; send the file again";
                let now = self.clock.now();
                self.registry
                    .end(job.number, JobState::Failed, Some(reason), now)
                    .await?;
            } else {
                self.enqueue(job.number, &job.tenant);
                kept.push(job.id);
            }
        }
        let folder = self.dir.join(UPLOADS);
        let entries =
            std::fs::read_dir(&folder).map_err(ImportsError::file("read the folder", &folder))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            if let Some(id) = name
                .to_str()
                .filter(|id| !kept.iter().any(|kept| kept == id))
            {
                self.remove_file(id);
            }
        }
        Ok(())
    }

    fn add_upload(&self, job: &mut Job) {
        if let Some(uploading) = self.live.lock().uploading.get(&job.id) {
            job.bytes_total = uploading.bytes.load(Ordering::Relaxed);
        }
    }

    /// Takes the job out of the schedule and waits for the slice that is running.
    async fn stop_slices(&self, job: &Job) {
        loop {
            let over = {
                let mut live = self.live.lock();
                live.schedule.remove(&job.tenant, job.number);
                let Some(live_job) = live.jobs.get_mut(&job.number) else {
                    return;
                };
                live_job.cancelled = true;
                if !live_job.running {
                    return;
                }
                live_job.slice_over.clone()
            };
            // Told under the lock that was just released, so look again after a while.
            let _ = tokio::time::timeout(Duration::from_millis(50), over.notified()).await;
        }
    }

    fn forget(&self, number: JobNumber, id: &str) {
        let mut live = self.live.lock();
        live.jobs.remove(&number);
        gauge(&live);
        drop(live);
        self.remove_file(id);
    }

    fn pick(&self) -> Option<(JobNumber, Option<Arc<File>>)> {
        let mut live = self.live.lock();
        loop {
            let number = live.schedule.next()?;
            let Some(job) = live.jobs.get_mut(&number).filter(|job| !job.cancelled) else {
                live.schedule.done(number, Cost::default(), false);
                continue;
            };
            job.running = true;
            return Some((number, job.file.clone()));
        }
    }

    /// Runs the next slice of a job; answers its state after it.
    async fn run_slice(
        &self,
        number: JobNumber,
        file: Option<Arc<File>>,
    ) -> Result<JobState, ImportsError> {
        let job = self.registry.job_numbered(number).await?;
        if job.state.has_ended() {
            return Ok(job.state);
        }
        let file = match file {
            Some(file) => file,
            None => self.open_file(&job)?,
        };
        let job = Arc::new(job);
        let slice = {
            let job = job.clone();
            let path = self.upload_path(&job.id);
            tokio::task::spawn_blocking(move || read_slice(&file, &job))
                .await
                .map_err(|_| std::io::Error::other("the reader broke off"))
                .flatten()
                .map_err(ImportsError::file("read", &path))?
        };
        let placed = self.send(&job, &slice).await?;
        let state = self
            .registry
            .commit_slice(&job, &slice, placed, self.clock.now())
            .await?;
        count(&slice);
        // A job that was ended while its slice ran has its end in its row.
        Ok(match state {
            Some(state) => state,
            None => self.registry.job_numbered(number).await?.state,
        })
    }

    fn open_file(&self, job: &Job) -> Result<Arc<File>, ImportsError> {
        let path = self.upload_path(&job.id);
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
        if slice.records.is_empty() {
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
                first_sequence: i32::try_from(job.records_done & 0x7fff_ffff).unwrap_or(0),
            }),
        };
        Ok(Some(self.store.produce(batch).await?))
    }

    /// Puts a job back, or ends it, after a slice.
    async fn after_slice(
        self: &Arc<Self>,
        number: JobNumber,
        cost: Cost,
        outcome: Result<JobState, ImportsError>,
    ) {
        let trouble = match outcome {
            Ok(JobState::Running) => None,
            Ok(_) => return self.end_job(number, cost, None).await,
            Err(error) if error.may_retry() => Some(base::report(&error)),
            Err(error) => return self.end_job(number, cost, Some(base::report(&error))).await,
        };
        if let Some(trouble) = &trouble {
            tracing::warn!(
                job = number.0,
                error = trouble,
                "an import waits to try again"
            );
            let noted = self.registry.note(number, trouble, self.clock.now()).await;
            if let Err(error) = noted {
                tracing::warn!(
                    error = base::report(&error),
                    "the trouble was not noted either"
                );
            }
        }
        let pause = {
            let mut live = self.live.lock();
            let cancelled = live.jobs.get_mut(&number).is_none_or(|job| {
                job.failures = if trouble.is_some() {
                    job.failures + 1
                } else {
                    0
                };
                job.running = false;
                job.slice_over.notify_waiters();
                job.cancelled
            });
            let again = trouble.is_none() && !cancelled;
            live.schedule.done(number, cost, again);
            live.jobs
                .get(&number)
                .filter(|_| trouble.is_some() && !cancelled)
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

    fn try_again(&self, number: JobNumber) {
        let mut live = self.live.lock();
        let Some(job) = live.jobs.get(&number).filter(|job| !job.cancelled) else {
            return;
        };
        let tenant = job.tenant.clone();
        live.schedule.add(&tenant, number);
        drop(live);
        self.wake.notify_one();
    }

    /// Ends a job whose last slice is committed, or that cannot go on because of `failure`.
    async fn end_job(&self, number: JobNumber, cost: Cost, failure: Option<String>) {
        if let Some(failure) = &failure {
            tracing::error!(job = number.0, error = failure, "an import failed");
            let now = self.clock.now();
            let ended = self
                .registry
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
        if let Ok(job) = self.registry.job_numbered(number).await
            && job.state.has_ended()
        {
            self.remove_file(&job.id);
        }
    }
}

/// A worker: pulls slices, the fairest first, until the service stops.
async fn work(core: Arc<Core>) {
    loop {
        let woken = core.wake.notified();
        if core.shutdown.is_cancelled() {
            return;
        }
        let Some((number, file)) = core.pick() else {
            if core.shutdown.run_until_cancelled(woken).await.is_none() {
                return;
            }
            continue;
        };
        // Where one job waits there may be more: another worker looks.
        core.wake.notify_one();
        let started = Instant::now();
        let outcome = core.run_slice(number, file).await;
        let took = started.elapsed();
        metrics::histogram!("thalweg_imports_slice_seconds").record(took.as_secs_f64());
        let cost = Cost(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        core.after_slice(number, cost, outcome).await;
    }
}

fn read_slice(file: &File, job: &Job) -> std::io::Result<Slice> {
    let reading = Reading {
        format: job.format,
        key_field: job.key_field.as_deref(),
        job: &job.id,
        records_max: job.slice_records,
    };
    let start = Start {
        offset: job.bytes_done,
        ordinal: job.next_ordinal,
    };
    slice::read(file, job.bytes_total, start, &reading)
}

/// The partition of a tenant's records (FNV-1a of its name).
pub(crate) fn partition_of(tenant: &TenantId, partitions: i32) -> i32 {
    let hash = tenant
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    let partitions = u64::try_from(partitions.max(1)).unwrap_or(1);
    i32::try_from(hash % partitions).unwrap_or(0)
}

fn count(slice: &Slice) {
    let rejected = slice.rejected() as u64;
    metrics::counter!("thalweg_imports_records_total", "outcome" => "done")
        .increment(slice.records.len() as u64);
    metrics::counter!("thalweg_imports_records_total", "outcome" => "rejected").increment(rejected);
}

fn gauge(live: &Live) {
    // Far below 2^52, so exact.
    metrics::gauge!("thalweg_imports_unfinished_jobs").set(live.jobs.len() as f64);
}

/// The folder of files that are being imported, under the service's own.
const UPLOADS: &str = "uploads";
/// The registry and sink.
const DATABASE: &str = "imports.db";
/// The first pause after a failed slice.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(100);
