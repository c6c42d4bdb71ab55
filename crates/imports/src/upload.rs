//! Taking a file in: from the request's body to the disk, in bounded memory.
//!
//! The job's row is there before the first byte, so that a second request with the same
//! idempotency key finds it. The file is synced before the row says that the job can run.
//!
//! An upload in pieces keeps what arrived, over restarts too: the caller asks how much that is and
//! goes on from there.

use std::collections::hash_map::Entry;
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use base::TenantId;
use http_body_util::BodyExt;
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use crate::admission::Place;
use crate::error::ImportsError;
use crate::fetch;
use crate::format::Estimate;
use crate::imports::{Core, Imports, Uploading, partition_of};
use crate::job::{Format, Job, JobProducer, JobState, NewJob};
use crate::limits;
use crate::registry::{Created, Started};
use crate::schedule::JobNumber;
use crate::slice;
use crate::steering::to_its_end;

impl Imports {
    /// Takes the file of a new job in and lets the job run. Answers the job, and whether it is new:
    /// with an idempotency key that the tenant used before, the answer is that earlier job.
    ///
    /// # Errors
    /// When the topic is not there and is not created by itself, when the upload breaks off or is
    /// too large (the job is then `failed`), or when the disk has no room.
    pub async fn create(&self, new: NewJob, body: Body) -> Result<(Job, bool), ImportsError> {
        let core = self.core.clone();
        to_its_end(async move { core.create(new, body).await }).await
    }

    /// Takes the next piece of an upload in pieces: the file's bytes from `offset` on. With the last
    /// one the job runs. What arrives is kept, also when the piece breaks off.
    ///
    /// # Errors
    /// When `offset` is not where the upload stopped, another piece is under way, or the job takes
    /// no file any more.
    pub async fn append(
        &self,
        id: &str,
        offset: u64,
        is_last: bool,
        body: Body,
    ) -> Result<Job, ImportsError> {
        let (core, id) = (self.core.clone(), id.to_owned());
        to_its_end(async move { core.append(&id, offset, is_last, body).await }).await
    }
}

impl Core {
    async fn create(
        self: &Arc<Self>,
        new: NewJob,
        body: Body,
    ) -> Result<(Job, bool), ImportsError> {
        let place = self.uploads.take(&new.tenant)?;
        self.guard.lock().expect(self.opened.elapsed());
        self.check_room(&new.tenant).await?;
        let max = limits::UPLOADS_BEGUN_MAX;
        if new.is_resumable && self.registry.uploads_of(&new.tenant).await? >= max as u64 {
            let what = "uploads in pieces of a tenant";
            return Err(ImportsError::Busy { what, max });
        }
        let made = self.store.topic_or_create(&new.topic);
        if new.sink.has_topic() {
            made.await?;
        }
        let now = self.clock.now();
        let number = match self.registry.create(&new, &self.node, now).await? {
            Created::New(number) => number,
            Created::Before(job) => {
                drain(body).await;
                let mut job = *job;
                self.add_upload(&mut job);
                return Ok((job, false));
            }
        };
        if new.source.as_deref().is_some_and(fetch::is_url) {
            let job = self.registry.job(&new.id).await?;
            self.fetch(&job, Some(place));
            return Ok((job, true));
        }
        // From here on whatever breaks off fails the job.
        let mut upload = Upload::begin(self.clone(), number, &new.id, &new.tenant, 0)?;
        if new.is_resumable {
            let path = self.upload_path(&new.id);
            let made = File::create(&path).await;
            made.map_err(ImportsError::file("make", &path))?;
            upload.is_kept = true;
            return Ok((self.registry.job(&new.id).await?, true));
        }
        if let Some(source) = &new.source {
            return self.take_file(upload, &new, PathBuf::from(source)).await;
        }
        let mut estimate = Estimate::new(new.format);
        let (written, job) = tokio::join!(
            upload.write(&mut estimate, body),
            self.registry.job(&new.id)
        );
        if let Err(error) = written {
            upload.reason = base::report(&error);
            upload.give_up().await;
            return Err(error);
        }
        let job = job?;
        let job = upload.finish(&job, estimate.records()).await?;
        Ok((job, true))
    }

    /// Lets a job run on a file that is there already.
    async fn take_file(
        &self,
        mut upload: Upload,
        new: &NewJob,
        path: PathBuf,
    ) -> Result<(Job, bool), ImportsError> {
        let looked = tokio::fs::metadata(&path).await;
        let bytes = looked.map_err(ImportsError::file("look at", &path))?.len();
        upload.state.bytes.store(bytes, Ordering::Relaxed);
        upload.path.clone_from(&path);
        let records = counted(path, new.format).await?;
        let job = self.registry.job(&new.id).await?;
        Ok((upload.finish(&job, records).await?, true))
    }

    async fn append(
        self: &Arc<Self>,
        id: &str,
        offset: u64,
        is_last: bool,
        body: Body,
    ) -> Result<Job, ImportsError> {
        let job = self.registry.job(id).await?;
        if job.state != JobState::Uploading || !job.is_resumable {
            return Err(job.cannot_be("added to"));
        }
        // Whoever has the upload has its file until all of the piece is on the disk.
        let mut upload = Upload::begin(self.clone(), job.number, id, &job.tenant, offset)?;
        upload.is_kept = true;
        // What was read before may be over.
        let job = self.registry.job(id).await?;
        if job.state != JobState::Uploading {
            return Err(job.cannot_be("added to"));
        }
        let path = self.upload_path(id);
        let found = tokio::fs::metadata(&path).await;
        let expected = match found {
            Ok(found) => found.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(job.cannot_be("added to here: its file is at another process"));
            }
            Err(error) => return Err(ImportsError::file("look at", &path)(error)),
        };
        if offset != expected {
            return Err(ImportsError::Offset {
                expected,
                found: offset,
            });
        }
        let written = upload.write(&mut Estimate::new(job.format), body).await;
        self.registry.touch(job.number, self.clock.now()).await?;
        written?;
        if is_last {
            let records = counted(path, job.format).await?;
            return upload.finish(&job, records).await;
        }
        drop(upload);
        let mut job = self.registry.job(id).await?;
        self.add_upload(&mut job);
        Ok(job)
    }
}

/// An upload under way; dropped before its end (the caller is gone) it fails its job.
struct Upload {
    core: Arc<Core>,
    number: JobNumber,
    id: String,
    state: Arc<Uploading>,
    path: PathBuf,
    reason: String,
    /// What arrived is kept when it breaks off.
    is_kept: bool,
    over: bool,
}

impl Upload {
    /// Begins an upload; nobody else takes in anything of the job until it is dropped.
    fn begin(
        core: Arc<Core>,
        number: JobNumber,
        id: &str,
        tenant: &TenantId,
        bytes: u64,
    ) -> Result<Self, ImportsError> {
        let state = Arc::new(Uploading {
            tenant: tenant.clone(),
            bytes: AtomicU64::new(bytes),
            cancelled: core.shutdown.child_token(),
        });
        match core.live.lock().uploading.entry(id.to_owned()) {
            Entry::Vacant(free) => drop(free.insert(state.clone())),
            Entry::Occupied(_) => {
                return Err(ImportsError::Busy {
                    what: "pieces of one upload",
                    max: 1,
                });
            }
        }
        let path = core.upload_path(id);
        let reason = "the upload broke off; send the file again".to_owned();
        Ok(Upload {
            core,
            number,
            id: id.to_owned(),
            state,
            path,
            reason,
            is_kept: false,
            over: false,
        })
    }

    /// Writes the body where the upload stopped and syncs it.
    async fn write(&self, estimate: &mut Estimate, body: Body) -> Result<(), ImportsError> {
        let on_write = || ImportsError::file("write", &self.path);
        let mut options = tokio::fs::OpenOptions::new();
        let opened = options.create(true).truncate(false).write(true);
        let mut file = opened.open(&self.path).await.map_err(on_write())?;
        let bytes = self.state.bytes.load(Ordering::Relaxed);
        file.set_len(bytes).await.map_err(on_write())?;
        let found = file.seek(SeekFrom::Start(bytes)).await;
        found.map_err(on_write())?;
        let mut file = tokio::io::BufWriter::with_capacity(limits::UPLOAD_BUFFER_BYTES, file);
        let cancelled = self.state.cancelled.clone();
        let receiving = self.receive(estimate, body, &mut file);
        let received = cancelled.run_until_cancelled(receiving).await;
        file.flush().await.map_err(on_write())?;
        file.get_ref().sync_all().await.map_err(on_write())?;
        match received {
            Some(received) => received?,
            None if self.core.shutdown.is_cancelled() => return Err(ImportsError::Closed),
            None => {
                let id = self.id.clone();
                return Err(ImportsError::State {
                    id,
                    state: "cancelled",
                    wanted: "uploaded",
                });
            }
        }
        sync_folder(&self.path).await
    }

    async fn receive(
        &self,
        estimate: &mut Estimate,
        mut body: Body,
        file: &mut (impl AsyncWriteExt + Unpin),
    ) -> Result<(), ImportsError> {
        let max = self.core.config.upload_bytes_max.0;
        let mut bytes = self.state.bytes.load(Ordering::Relaxed);
        loop {
            let frame = match tokio::time::timeout(limits::UPLOAD_IDLE_MAX, body.frame()).await {
                Ok(None) => return Ok(()),
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(broken(error, bytes)),
                Err(_) => return Err(ImportsError::Broken(bytes)),
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            bytes += data.len() as u64;
            if bytes > max {
                return Err(ImportsError::TooLarge(max));
            }
            estimate.add(&data);
            file.write_all(&data)
                .await
                .map_err(ImportsError::file("write", &self.path))?;
            self.state.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// The file is in: the job can run, and whatever happens now is the job's. One that cannot be read
    /// at all fails it; after other trouble the last piece of an upload in pieces may come again.
    async fn finish(mut self, job: &Job, records: u64) -> Result<Job, ImportsError> {
        let error = match self.try_finish(job, records).await {
            Ok((job, Started::Leased(token))) => {
                self.over = true;
                self.core.live.lock().uploading.remove(&self.id);
                self.core.enqueue_leased(&job, token);
                return Ok(job);
            }
            Ok((job, Started::Unleased)) => {
                self.over = true;
                self.core.live.lock().uploading.remove(&self.id);
                self.core.enqueue(&job);
                return Ok(job);
            }
            Ok((_, Started::Not)) => {
                // Cancelled in its last moment.
                let core = self.core.clone();
                self.give_up().await;
                return core.registry.job(&job.id).await;
            }
            Err(error) => error,
        };
        if !self.is_kept || matches!(error, ImportsError::Unreadable(_)) {
            self.reason = base::report(&error);
            self.give_up().await;
        }
        Err(error)
    }

    /// The job as it is when it runs, and whether it does.
    async fn try_finish(&self, job: &Job, records: u64) -> Result<(Job, Started), ImportsError> {
        let core = &self.core;
        let producer = if job.sink.has_topic() {
            let topic = core.store.topic_or_create(&job.topic).await?;
            JobProducer {
                id: core.store.producer_id().await?,
                partition: partition_of(&job.tenant, topic.partitions),
            }
        } else {
            JobProducer {
                id: -1,
                partition: 0,
            }
        };
        let bytes = self.state.bytes.load(Ordering::Relaxed);
        let header = header(self.path.clone(), bytes, job.clone()).await?;
        let job = Job {
            state: JobState::Running,
            bytes_total: bytes,
            records_total: records,
            producer,
            owner: Some(core.node.clone()),
            updated: core.clock.now(),
            error: None,
            ..job.clone()
        };
        let started = core.registry.start(&job, header, &core.node).await?;
        Ok((job, started))
    }

    async fn give_up(mut self) {
        self.over = true;
        fail(
            self.core.clone(),
            self.number,
            self.id.clone(),
            std::mem::take(&mut self.reason),
        )
        .await;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if self.is_kept {
            self.core.live.lock().uploading.remove(&self.id);
        } else {
            let (core, number) = (self.core.clone(), self.number);
            let (id, reason) = (
                std::mem::take(&mut self.id),
                std::mem::take(&mut self.reason),
            );
            tokio::spawn(fail(core, number, id, reason));
        }
    }
}

impl Core {
    /// Fetches the file of a job from its URL, in the background; then the job runs. `place` is held
    /// meanwhile.
    pub fn fetch(self: &Arc<Self>, job: &Job, place: Option<Place>) {
        let (core, job) = (self.clone(), job.clone());
        // At most one per unfinished job; it ends with the file, the job or the process.
        tokio::spawn(async move {
            let _place = place;
            let begun = Upload::begin(core.clone(), job.number, &job.id, &job.tenant, 0);
            let Ok(mut upload) = begun else {
                return;
            };
            let mut estimate = Estimate::new(job.format);
            let fetched = match core
                .urls
                .check(job.source.as_deref().unwrap_or_default(), None)
            {
                Ok(url) => {
                    let most = core.config.upload_bytes_max.0;
                    let file = fetch::fetch(url, core.urls.clone(), most);
                    upload.write(&mut estimate, Body::new(file)).await
                }
                Err(error) => Err(error),
            };
            match fetched {
                Ok(()) => {
                    if let Err(error) = upload.finish(&job, estimate.records()).await {
                        let error = base::report(&error);
                        tracing::warn!(id = job.id, error, "a fetched file's import did not begin");
                    }
                }
                // The next start fetches it again.
                Err(ImportsError::Closed) => upload.is_kept = true,
                Err(error) => {
                    upload.reason = base::report(&error);
                    upload.give_up().await;
                }
            }
        });
    }
}

/// Why a body broke off: its own reason where we made it.
fn broken(error: axum::Error, bytes: u64) -> ImportsError {
    match error.into_inner().downcast::<ImportsError>() {
        Ok(own) => *own,
        Err(_) => ImportsError::Broken(bytes),
    }
}

async fn fail(core: Arc<Core>, number: JobNumber, id: String, reason: String) {
    core.live.lock().uploading.remove(&id);
    core.remove_file(&id);
    // A job that was cancelled stays cancelled.
    let ended = core
        .registry
        .end(number, JobState::Failed, Some(&reason), core.clock.now())
        .await;
    if let Err(error) = ended {
        tracing::warn!(
            id,
            error = base::report(&error),
            "a broken upload was not recorded"
        );
    }
}

/// What stands before the records of a file of `bytes` bytes.
async fn header(path: PathBuf, bytes: u64, job: Job) -> Result<Vec<u8>, ImportsError> {
    let read = move || {
        let on_error = ImportsError::file("read", &path);
        let file = std::fs::File::open(&path).map_err(on_error)?;
        slice::header(&file, bytes, job.format, &job.profile)
    };
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|_| ImportsError::Read(std::io::Error::other("the reader broke off")))
        .flatten()
}

/// How many records a file seems to hold.
async fn counted(path: PathBuf, format: Format) -> Result<u64, ImportsError> {
    let count = move || {
        let mut estimate = Estimate::new(format);
        let mut file = std::fs::File::open(&path)?;
        let mut buffer = vec![0; limits::UPLOAD_BUFFER_BYTES];
        loop {
            let read = std::io::Read::read(&mut file, &mut buffer)?;
            if read == 0 {
                return Ok(estimate.records());
            }
            estimate.add(&buffer[..read]);
        }
    };
    tokio::task::spawn_blocking(count)
        .await
        .map_err(|_| std::io::Error::other("the reader broke off"))
        .flatten()
        .map_err(ImportsError::Read)
}

/// Syncs the folder of `path`, without which the file's name may not survive the machine.
async fn sync_folder(path: &Path) -> Result<(), ImportsError> {
    let Some(folder) = path.parent().map(Path::to_owned) else {
        return Ok(());
    };
    let on_error = ImportsError::file("sync the folder", &folder);
    let sync = move || std::fs::File::open(&folder).and_then(|folder| folder.sync_all());
    tokio::task::spawn_blocking(sync)
        .await
        .map_err(|_| std::io::Error::other("the sync broke off"))
        .flatten()
        .map_err(on_error)
}

/// Reads a body to its end for nothing, so that the caller reads the answer.
async fn drain(mut body: Body) {
    let mut bytes = 0_u64;
    while bytes < limits::DRAIN_BYTES_MAX {
        match tokio::time::timeout(limits::UPLOAD_IDLE_MAX, body.frame()).await {
            Ok(Some(Ok(frame))) => bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => return,
        }
    }
}
