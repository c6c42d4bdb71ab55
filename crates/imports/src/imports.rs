//! The service: takes files in, runs jobs slice by slice, and ends them.
//!
//! `worker.rs` says how a slice is run. All records of a tenant go to one partition of a topic, chosen by the tenant's name, so that
//! they keep the file's order.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Clock, TenantId};
use parking_lot::Mutex;
use sql::Place;
use streams::EventStore;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admission::Places;
use crate::behind::Behind;
use crate::config::ImportsConfig;
use crate::error::ImportsError;
use crate::fetch::{self, Allowed};
use crate::guard::Guard;
use crate::job::{Class, Job, JobState, JournalEntry, TenantUse};
use crate::limits;
use crate::live::{KnownJob, LiveJob, gauge};
use crate::reconcile::reconcile;
use crate::registry::Registry;
use crate::schedule::{JobNumber, Schedule};
use crate::search::Search;
use crate::steering::Steered;
use crate::worker::work;

/// The import service of one installation.
pub struct Imports {
    pub(crate) core: Arc<Core>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    _behind: Behind,
}

pub(crate) struct Core {
    pub dir: PathBuf,
    pub config: ImportsConfig,
    pub store: Arc<dyn EventStore>,
    pub clock: Arc<dyn Clock>,
    /// For whoever asks.
    pub registry: Registry,
    /// For slices and the index, on the threads behind.
    pub behind: Registry,
    pub live: Mutex<Live>,
    pub uploads: Arc<Places>,
    pub shutdown: CancellationToken,
    pub search: Search,
    /// The addresses whose files may be fetched.
    pub urls: Allowed,
    /// What this process is called in leases.
    pub node: String,
    pub wake: Notify,
    pub guard: Mutex<Guard>,
    pub steered: Steered,
    pub opened: Instant,
    /// Whether the database is a newer version's by now (`aside.rs`).
    pub is_aside: AtomicBool,
    /// Room for slices that are read ahead of their turn.
    pub ahead: Arc<Semaphore>,
}

/// What is known of unfinished jobs beside their rows.
#[derive(Default)]
pub(crate) struct Live {
    pub uploading: HashMap<String, Arc<Uploading>>,
    pub schedule: Schedule,
    pub jobs: HashMap<JobNumber, LiveJob>,
    /// Of tenants whose jobs are not bulk work unless they say so.
    pub classes: HashMap<TenantId, Class>,
}

/// An upload under way.
pub(crate) struct Uploading {
    pub tenant: TenantId,
    pub bytes: AtomicU64,
    pub cancelled: CancellationToken,
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
        let urls = Allowed::read(&config.urls)?;
        let address = config.database.as_ref().map(sql::SecretUrl::reveal);
        let place = Place::read(address, &dir.join(DATABASE))?;
        let threads = Behind::start()?;
        let (registry, behind) = open_registry(&threads, place).await?;
        let node = node(dir, registry.is_shared())?;
        let (folder, settings) = (dir.to_owned(), config.clone());
        let search = async move { Search::open(&folder, &settings).await };
        let search = threads.run(search).await?;
        if config.opensearch.is_none() {
            // A server that is away must not keep the imports from starting; a file is here.
            search.prepare(&registry).await?;
        }
        let mut live = Live::default();
        for (tenant, weight) in registry.weights().await? {
            live.schedule.set_weight(&tenant, weight);
        }
        let core = Arc::new(Core {
            dir: dir.to_owned(),
            store,
            clock,
            registry,
            behind,
            search,
            urls,
            node,
            guard: Mutex::default(),
            steered: Steered::default(),
            opened: Instant::now(),
            is_aside: AtomicBool::new(false),
            ahead: Arc::new(Semaphore::new(limits::SLICES_AHEAD_MAX)),
            live: Mutex::new(live),
            uploads: Arc::default(),
            shutdown: CancellationToken::new(),
            wake: Notify::new(),
            config,
        });
        core.take_up().await?;
        let mut workers: Vec<JoinHandle<()>> =
            (0..core.config.workers.clamp(1, limits::WORKERS_MAX))
                .filter_map(|_| threads.spawn(work(core.clone())))
                .collect();
        workers.extend(threads.spawn(crate::indexer::index(core.clone())));
        workers.push(tokio::spawn(reconcile(core.clone())));
        Ok(Arc::new(Imports {
            core,
            workers: Mutex::new(workers),
            _behind: threads,
        }))
    }

    /// The jobs of one tenant or of all, newest first; those that are older than the job `after`.
    pub async fn jobs(
        &self,
        tenant: Option<&TenantId>,
        after: Option<&str>,
        count: u32,
    ) -> Result<Vec<Job>, ImportsError> {
        let count = count.min(limits::LISTED_JOBS_MAX);
        let registry = &self.core.registry;
        let after = match after {
            Some(id) => match registry.job(id).await {
                Err(ImportsError::NotFound(_)) => {
                    let reason = format!("after: there is no import '{id}' (any more)");
                    return Err(ImportsError::Invalid(reason));
                }
                job => Some(job?.number),
            },
            None => None,
        };
        let mut jobs = registry.jobs(tenant, after, count).await?;
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

    /// Sets how much of the sink a tenant gets beside others, from 1 to 1000.
    pub async fn set_weight(&self, tenant: &TenantId, weight: u32) -> Result<(), ImportsError> {
        let core = &self.core;
        core.registry
            .set_weight(tenant, weight, core.clock.now())
            .await?;
        core.live.lock().schedule.set_weight(tenant, weight);
        Ok(())
    }

    /// Sets the class of a tenant's jobs that name none.
    pub fn set_class(&self, tenant: &TenantId, class: Class) {
        let mut live = self.core.live.lock();
        match class == Class::default() {
            true => live.classes.remove(tenant),
            false => live.classes.insert(tenant.clone(), class),
        };
    }

    /// The class of a tenant's jobs that name none.
    pub(crate) fn class_of(&self, tenant: &TenantId) -> Class {
        let live = self.core.live.lock();
        live.classes.get(tenant).copied().unwrap_or_default()
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
        self.core.search.close().await;
        self.core.behind.close().await;
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
    pub fn enqueue(&self, job: &Job) {
        self.add(job, |_| {});
    }

    /// The same with a job that has just been started, by a lease of this token.
    pub fn enqueue_leased(&self, job: &Job, token: i64) {
        self.add(job, |waiting| {
            waiting.known = Some(KnownJob::now(Arc::new(job.clone())));
            waiting.token = Some(token);
        });
    }

    fn add(&self, job: &Job, knowing: impl FnOnce(&mut LiveJob)) {
        let mut live = self.live.lock();
        if live.jobs.contains_key(&job.number) {
            return;
        }
        let class = live.class_of(job);
        let mut waiting = LiveJob::new(job.tenant.clone(), class);
        knowing(&mut waiting);
        live.jobs.insert(job.number, waiting);
        live.schedule.add(class, &job.tenant, job.number);
        gauge(&live);
        drop(live);
        self.wake.notify_one();
    }

    /// Takes the latency of an operation of the record service.
    pub fn observe_foreground(&self, latency: Duration) {
        let beside_bulk = self.live.lock().schedule.is_busy(Class::Bulk);
        let now = self.opened.elapsed();
        self.guard.lock().observe(now, latency, beside_bulk);
    }

    /// How long the search index rests after it took in what took `took`.
    pub fn rest_of_index(&self, took: Duration) -> Duration {
        let beside_bulk = self.live.lock().schedule.is_busy(Class::Bulk);
        let now = self.opened.elapsed();
        self.guard.lock().rest_of_index(now, took, beside_bulk)
    }

    pub fn upload_path(&self, id: &str) -> PathBuf {
        self.dir.join(UPLOADS).join(id)
    }

    /// Where a job's file is.
    pub fn file_path(&self, job: &Job) -> PathBuf {
        match &job.source {
            Some(path) if !fetch::is_url(path) => PathBuf::from(path),
            _ => self.upload_path(&job.id),
        }
    }

    /// The file of the server's own that a caller names, if it lies in a folder that may be read; for
    /// who belongs to a tenant, in the tenant's folder of it.
    ///
    /// # Errors
    /// When it does not, or cannot be looked at: one answer for both, so that nobody learns what
    /// else there is.
    pub fn allowed_path(
        &self,
        named: &str,
        of: Option<&TenantId>,
    ) -> Result<PathBuf, ImportsError> {
        // Links are followed first, so that none leads out of the folder.
        let path = std::fs::canonicalize(named).ok();
        let is_within = |path: &PathBuf| {
            let folders = self.config.paths.iter();
            folders
                .filter_map(|folder| match of {
                    // The tenant's folder itself is no link into another one's.
                    Some(tenant) => Some(std::fs::canonicalize(folder).ok()?.join(tenant.as_str())),
                    None => std::fs::canonicalize(folder).ok(),
                })
                .any(|folder| path.starts_with(folder))
        };
        path.filter(|path| path.is_file() && is_within(path))
            .ok_or_else(|| {
                ImportsError::Invalid(format!(
                    "'{named}' is no file of a folder that may be imported from; the operator \
                     names these in imports.paths"
                ))
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

    /// Takes up what this process left unfinished.
    async fn take_up(self: &Arc<Self>) -> Result<(), ImportsError> {
        let now = self.clock.now();
        for job in self.registry.unfinished().await? {
            let is_own = job.owner.as_deref() == Some(&self.node) || !self.registry.is_shared();
            match job.state {
                JobState::Uploading if is_own && self.may_be_resumed(&job) => {}
                JobState::Uploading if is_own && job.is_fetched() => {
                    // From its beginning: what the file's server said of it is not known any more.
                    self.remove_file(&job.id);
                    self.fetch(&job, None);
                }
                JobState::Uploading if is_own => {
                    let reason = "the upload was cut by a restart; send the file again";
                    self.registry
                        .end(job.number, JobState::Failed, Some(reason), now)
                        .await?;
                }
                JobState::Running if is_own => self.enqueue(&job),
                _ => {}
            }
        }
        self.remove_old_files(now).await?;
        Ok(())
    }

    /// The ids of the jobs whose files are in the folder of uploads.
    pub fn files(&self) -> Result<Vec<String>, ImportsError> {
        let folder = self.dir.join(UPLOADS);
        let entries =
            std::fs::read_dir(&folder).map_err(ImportsError::file("read the folder", &folder))?;
        let names = entries.flatten().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| name.into_string().ok()).collect())
    }

    /// Whether the upload may go on where it stopped.
    fn may_be_resumed(&self, job: &Job) -> bool {
        let idle = self.clock.now().since(job.updated);
        job.is_resumable && idle < limits::UPLOAD_RESUMED_WITHIN
    }

    pub fn add_upload(&self, job: &mut Job) {
        if job.state != JobState::Uploading {
            return;
        }
        job.bytes_total = match self.live.lock().uploading.get(&job.id) {
            Some(uploading) => uploading.bytes.load(Ordering::Relaxed),
            None => std::fs::metadata(self.upload_path(&job.id)).map_or(0, |file| file.len()),
        };
    }
}

/// Opens the registry for whoever asks, and for the threads behind: on a server each has connections
/// of its own, so that nobody waits for an answer that a thread of the others has to take in. A file
/// has one connection that writes, which belongs to the threads behind.
async fn open_registry(
    threads: &Behind,
    place: Place,
) -> Result<(Registry, Registry), ImportsError> {
    if !place.dialect().is_shared() {
        let at = place.clone();
        let records = async move { Registry::open_records(&at).await };
        let registry = Registry::of(&place, threads.run(records).await?).await?;
        return Ok((registry.clone(), registry));
    }
    let registry = Registry::open(&place).await?;
    let behind = threads
        .run(async move { Registry::open(&place).await })
        .await?;
    Ok((registry, behind))
}

/// What this process is called in leases: the same after a restart on the same folder.
fn node(dir: &Path, is_shared: bool) -> Result<String, ImportsError> {
    if !is_shared {
        return Ok("local".to_owned());
    }
    let path = dir.join(NODE);
    match std::fs::read_to_string(&path) {
        Ok(name) if !name.trim().is_empty() => Ok(name.trim().to_owned()),
        _ => {
            let name = uuid::Uuid::new_v4().to_string();
            std::fs::write(&path, &name).map_err(ImportsError::file("write", &path))?;
            Ok(name)
        }
    }
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

/// The folder of files that are being imported, under the service's own.
const UPLOADS: &str = "uploads";
/// The name of this process on a shared database.
const NODE: &str = "node";
/// The registry and sink.
const DATABASE: &str = "imports.db";
