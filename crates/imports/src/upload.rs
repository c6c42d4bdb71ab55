//! Taking a file in: from the request's body to the disk, in bounded memory.
//!
//! The job's row is there before the first byte, so that a second request with the same
//! idempotency key finds it. The file is synced before the row says that the job can run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use http_body_util::BodyExt;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::error::ImportsError;
use crate::imports::{Core, Imports, Uploading, partition_of};
use crate::job::{Format, Job, JobProducer, JobState, NewJob};
use crate::limits;
use crate::registry::Created;
use crate::schedule::JobNumber;

impl Imports {
    /// Takes the file of a new job in and lets the job run. Answers the job, and whether it is new:
    /// with an idempotency key that the tenant used before, the answer is that earlier job.
    ///
    /// # Errors
    /// When the topic is not there and is not created by itself, when the upload breaks off or is
    /// too large (the job is then `failed`), or when the disk has no room.
    pub async fn create(&self, new: NewJob, body: Body) -> Result<(Job, bool), ImportsError> {
        let core = &self.core;
        let _place = core
            .uploads
            .clone()
            .try_acquire_owned()
            .map_err(|_| ImportsError::Busy {
                what: "uploads",
                max: limits::UPLOADS_MAX,
            })?;
        core.check_room()?;
        let topic = core.store.topic_or_create(&new.topic).await?;
        let number = match core.registry.create(&new, core.clock.now()).await? {
            Created::New(number) => number,
            Created::Before(job) => {
                drain(body).await;
                return Ok((*job, false));
            }
        };
        let mut upload = Upload::begin(core.clone(), number, new.id.clone());
        let written = upload.write(new.format, body).await;
        let records = match written {
            Ok(records) => records,
            Err(error) => {
                upload.reason = base::report(&error);
                upload.give_up().await;
                return Err(error);
            }
        };
        let producer = JobProducer {
            id: core.store.producer_id().await?,
            partition: partition_of(&new.tenant, topic.partitions),
        };
        let bytes = upload.state.bytes.load(Ordering::Relaxed);
        let now = core.clock.now();
        if !core
            .registry
            .start(number, bytes, records, producer, now)
            .await?
        {
            // Cancelled in its last moment.
            upload.give_up().await;
            return Ok((core.registry.job(&new.id).await?, true));
        }
        upload.end();
        core.enqueue(number, &new.tenant);
        Ok((core.registry.job(&new.id).await?, true))
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
    over: bool,
}

impl Upload {
    fn begin(core: Arc<Core>, number: JobNumber, id: String) -> Self {
        let state = Arc::new(Uploading {
            bytes: AtomicU64::new(0),
            cancelled: core.shutdown.child_token(),
        });
        core.live.lock().uploading.insert(id.clone(), state.clone());
        let path = core.upload_path(&id);
        let reason = "the upload broke off; send the file again".to_owned();
        Upload {
            core,
            number,
            id,
            state,
            path,
            reason,
            over: false,
        }
    }

    /// Writes the body to the file and syncs it; answers how many records it seems to hold.
    async fn write(&self, format: Format, body: Body) -> Result<u64, ImportsError> {
        let on_write = || ImportsError::file("write", &self.path);
        let file = File::create(&self.path).await.map_err(on_write())?;
        let mut file = tokio::io::BufWriter::with_capacity(limits::UPLOAD_BUFFER_BYTES, file);
        let cancelled = self.state.cancelled.clone();
        let receiving = self.receive(format, body, &mut file);
        let records = match cancelled.run_until_cancelled(receiving).await {
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
        };
        file.flush().await.map_err(on_write())?;
        file.get_ref().sync_all().await.map_err(on_write())?;
        sync_folder(&self.path).await?;
        Ok(records)
    }

    async fn receive(
        &self,
        format: Format,
        mut body: Body,
        file: &mut (impl AsyncWriteExt + Unpin),
    ) -> Result<u64, ImportsError> {
        let max = self.core.config.upload_bytes_max.0;
        let mark = match format {
            Format::Marc => 0x1d,
            Format::Jsonl => b'\n',
        };
        let (mut marks, mut bytes, mut ends_with_mark) = (0_u64, 0_u64, true);
        loop {
            let frame = match tokio::time::timeout(limits::UPLOAD_IDLE_MAX, body.frame()).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(_))) | Err(_) => return Err(ImportsError::Broken(bytes)),
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            bytes += data.len() as u64;
            if bytes > max {
                return Err(ImportsError::TooLarge(max));
            }
            marks += memchr::memchr_iter(mark, &data).count() as u64;
            if let Some(last) = data.last() {
                ends_with_mark = *last == mark;
            }
            file.write_all(&data)
                .await
                .map_err(ImportsError::file("write", &self.path))?;
            self.state.bytes.store(bytes, Ordering::Relaxed);
        }
        // A last line may lack its newline; what follows the last MARC record is mostly filler.
        Ok(marks + u64::from(format == Format::Jsonl && !ends_with_mark))
    }

    /// The file is in; whatever happens now is the job's.
    fn end(mut self) {
        self.over = true;
        self.core.live.lock().uploading.remove(&self.id);
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
        if !self.over {
            let (core, number) = (self.core.clone(), self.number);
            let (id, reason) = (
                std::mem::take(&mut self.id),
                std::mem::take(&mut self.reason),
            );
            tokio::spawn(fail(core, number, id, reason));
        }
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
