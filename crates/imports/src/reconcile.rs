//! Looks every other second whether each job that should run does, whatever broke off: what the
//! registry says and what this process works on are compared, and put right. On a shared database it
//! lengthens this process' leases too, and takes over the jobs of processes that are gone, where
//! their files are at hand.
//!
//! A job that nobody takes over for minutes says so: no process that is there has its file. After a day
//! it fails, and its idempotency key is free. Whether a process is there that takes a file in is told
//! by its row in `import_nodes`; one that runs a job keeps the job's lease.
//!
//! Every hour it sweeps: uploads that nobody goes on with, files of jobs that failed a day ago, and
//! jobs that ended so long ago that nobody asks for them.

use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use sql::{Conflict, Insert, Statement, Value};

use crate::error::ImportsError;
use crate::imports::Core;
use crate::job::{Job, JobState};
use crate::limits;
use crate::registry::{COLUMNS, Registry};
use crate::schedule::JobNumber;

/// Compares until the service stops.
pub(crate) async fn reconcile(core: Arc<Core>) {
    let mut looks: u32 = 0;
    loop {
        let sleep = tokio::time::sleep(limits::LEASE / 3);
        if core.shutdown.run_until_cancelled(sleep).await.is_none() {
            return;
        }
        if let Err(error) = core.compare().await {
            let error = base::report(&error);
            tracing::warn!(error, "imports were not looked after; it is tried again");
        }
        looks += 1;
        if looks < SWEEP_LOOKS {
            continue;
        }
        looks = 0;
        if core.is_aside() {
            continue;
        }
        match core
            .shutdown
            .run_until_cancelled(Box::pin(core.sweep()))
            .await
        {
            None => return,
            // There are more: leases are kept in between.
            Some(Ok(true)) => looks = SWEEP_LOOKS - 1,
            Some(Ok(false)) => {}
            Some(Err(error)) => {
                let error = base::report(&error);
                tracing::warn!(error, "old imports were not swept; it is tried again");
            }
        }
    }
}

impl Core {
    /// Has every running job run that is this process' or nobody's.
    pub async fn compare(&self) -> Result<(), ImportsError> {
        if self.stands_aside().await {
            return Ok(());
        }
        let now = self.clock.now();
        let registry = &self.registry;
        if registry.is_shared() {
            registry.note_node(&self.node, now).await?;
            registry.keep_leases(&self.node, limits::LEASE, now).await?;
            self.look_after_lost(now).await?;
        }
        let own = registry.running_of(&self.node).await?;
        let orphans = match registry.is_shared() {
            true => registry.orphans(now).await?,
            false => Vec::new(),
        };
        let at_hand = |job: &&Job| self.file_path(job).exists();
        for job in own.iter().chain(orphans.iter().filter(at_hand)) {
            self.unless_steered(job.number, || {
                self.enqueue(job);
                self.go_on(job.number);
            });
        }
        Ok(())
    }

    /// Has the jobs of processes that are gone say so, and fails them when they have waited long
    /// enough.
    async fn look_after_lost(&self, now: UnixMillis) -> Result<(), ImportsError> {
        let told = before(now, limits::LOST_AFTER);
        for job in self.registry.lost_jobs(told, Some(LOST)).await? {
            if job.state == JobState::Running && self.file_path(&job).exists() {
                continue;
            }
            if job.state == JobState::Uploading && !job.is_resumable && !job.is_fetched() {
                let reason = "the process that took its file in is gone; send the file again";
                self.registry.fail_lost(&job, reason, now, told).await?;
            } else {
                self.registry.note_lost(&job).await?;
            }
        }
        let ended = before(now, limits::LOST_KEPT);
        for job in self.registry.lost_jobs(ended, None).await? {
            let reason = "the process that had its file did not come back; send the file again";
            self.registry.fail_lost(&job, reason, now, ended).await?;
        }
        Ok(())
    }

    /// Takes away what nobody needs any more, of old jobs some; true where there may be more.
    pub async fn sweep(&self) -> Result<bool, ImportsError> {
        let now = self.clock.now();
        for job in self.registry.unfinished().await? {
            let is_own = job.owner.as_deref() == Some(&self.node) || !self.registry.is_shared();
            let waits = match job.is_resumable {
                true => limits::UPLOAD_RESUMED_WITHIN,
                // A moment may pass between the row and the file's first byte.
                false => limits::UPLOAD_IDLE_MAX * 2,
            };
            let is_left = job.state == JobState::Uploading
                && is_own
                && now.since(job.updated) >= waits
                && !self.live.lock().uploading.contains_key(&job.id);
            if is_left {
                let reason = "nobody went on with the upload; send the file again";
                let state = JobState::Failed;
                self.registry
                    .end(job.number, state, Some(reason), now)
                    .await?;
                self.remove_file(&job.id);
            }
        }
        self.remove_old_files(now).await?;
        let lost = before(now, limits::LOST_KEPT);
        self.registry.forget_nodes(lost).await?;
        let before = before(now, self.config.keep_jobs.0);
        Ok(self.registry.forget_jobs(before).await? > 0)
    }

    /// Removes the files of the folder that no job needs.
    pub async fn remove_old_files(&self, now: UnixMillis) -> Result<(), ImportsError> {
        let kept = before(now, limits::FAILED_KEPT);
        for id in self.files()? {
            let job = match self.registry.job(&id).await {
                Ok(job) => Some(job),
                Err(ImportsError::NotFound(_)) => None,
                Err(error) => return Err(error),
            };
            let is_needed = job.is_some_and(|job| match job.state {
                JobState::Failed => job.bytes_total > 0 && job.updated.0 >= kept.0,
                state => !state.has_ended(),
            });
            if !is_needed && !self.live.lock().uploading.contains_key(&id) {
                self.remove_file(&id);
            }
        }
        Ok(())
    }
}

impl Registry {
    /// The running jobs that a process has, oldest first; in a file, all that run.
    async fn running_of(&self, owner: &str) -> Result<Vec<Job>, ImportsError> {
        let mut select = Statement::new(format!(
            "SELECT {COLUMNS} FROM import_jobs WHERE state = 'running'"
        ));
        if self.is_shared() {
            select = select.push(" AND owner = ?").bind(owner);
        }
        self.listed(select.push(" ORDER BY number")).await
    }

    /// Notes that a process is there.
    async fn note_node(&self, node: &str, now: UnixMillis) -> Result<(), ImportsError> {
        let what = "note that this process is there";
        let mut tx = self.database.begin().await?;
        let row = vec![Value::from(node), now.0.into()];
        tx.insert(what, &INSERT_NODE, vec![row]).await?;
        Ok(tx.commit(what).await?)
    }

    /// Forgets processes that were last there before a time.
    async fn forget_nodes(&self, before: UnixMillis) -> Result<(), ImportsError> {
        let forget = Statement::new("DELETE FROM import_nodes WHERE seen_ms < ?").bind(before.0);
        self.database.run("forget processes", &forget).await?;
        Ok(())
    }

    /// Some jobs that should get on and did not since a time, as nobody has had them since; those that
    /// say something else than `told`.
    async fn lost_jobs(
        &self,
        since: UnixMillis,
        told: Option<&str>,
    ) -> Result<Vec<Job>, ImportsError> {
        let select = Statement::new(format!(
            "SELECT {COLUMNS} FROM import_jobs WHERE state IN ('running', 'uploading')
             AND updated_ms < ? AND lease_until_ms < ? AND (state = 'running' OR NOT EXISTS
                 (SELECT 1 FROM import_nodes n WHERE n.node = import_jobs.owner AND n.seen_ms >= ?))"
        ));
        let select = select.bind(since.0).bind(since.0).bind(since.0);
        let select = match told {
            Some(told) => select.push(" AND COALESCE(error, '') <> ?").bind(told),
            None => select,
        };
        self.listed(select.push(" ORDER BY number LIMIT 100")).await
    }

    /// Notes that nobody has a job, which it has got on no further with.
    async fn note_lost(&self, job: &Job) -> Result<(), ImportsError> {
        let note =
            "UPDATE import_jobs SET error = ? WHERE number = ? AND state = ? AND updated_ms = ?";
        let note = Statement::new(note)
            .bind(LOST)
            .bind(job.number.0)
            .bind(job.state.name())
            .bind(job.updated.0);
        self.database.run("note that a job waits", &note).await?;
        Ok(())
    }

    /// Ends a job that nobody has had since a time, and frees its idempotency key.
    async fn fail_lost(
        &self,
        job: &Job,
        reason: &str,
        now: UnixMillis,
        since: UnixMillis,
    ) -> Result<(), ImportsError> {
        let fail = Statement::new(
            "UPDATE import_jobs SET state = 'failed', error = ?, updated_ms = ?, owner = NULL,
             token = token + 1, idempotency_key = NULL
             WHERE number = ? AND state = ? AND updated_ms = ? AND lease_until_ms < ?",
        )
        .bind(reason)
        .bind(now.0)
        .bind(job.number.0)
        .bind(job.state.name())
        .bind(job.updated.0)
        .bind(since.0);
        self.database
            .run("end a job that nobody has", &fail)
            .await?;
        Ok(())
    }

    /// Forgets some jobs that ended before a time, with all that is told of them; their records
    /// stay. Answers how many.
    async fn forget_jobs(&self, before: UnixMillis) -> Result<usize, ImportsError> {
        let what = "look for old jobs";
        let ended = ENDED.iter().map(|state| state.name());
        let select = Statement::new("SELECT number FROM import_jobs WHERE state IN ")
            .list(ended)
            .push(
                " AND updated_ms < ? AND NOT EXISTS (SELECT 1 FROM import_index_queue q
                 WHERE q.job = import_jobs.number) ORDER BY number LIMIT ?",
            )
            .bind(before.0)
            .bind(FORGOTTEN_AT_ONCE);
        let rows = self.database.rows(what, &select).await?;
        for row in &rows {
            let number = row.number("number").map_err(|e| self.error(what, e))?;
            self.forget_job(JobNumber(number)).await?;
        }
        Ok(rows.len())
    }

    /// Forgets a job that has ended; false when it has not.
    pub async fn forget_job(&self, job: JobNumber) -> Result<bool, ImportsError> {
        let what = "forget a job";
        let mut tx = self.database.begin().await?;
        let remove = Statement::new("DELETE FROM import_jobs WHERE number = ?")
            .bind(job.0)
            .push(" AND state IN ")
            .list(ENDED.iter().map(|state| state.name()));
        if tx.run(what, &remove).await? == 0 {
            return Ok(false);
        }
        for table in ["import_journal", "import_slices"] {
            let remove = Statement::new(format!("DELETE FROM {table} WHERE job = ?"));
            tx.run(what, &remove.bind(job.0)).await?;
        }
        tx.commit(what).await?;
        Ok(true)
    }
}

fn before(now: UnixMillis, age: Duration) -> UnixMillis {
    let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    UnixMillis(now.0.saturating_sub(age))
}

pub(crate) const ENDED: [JobState; 4] = [
    JobState::Completed,
    JobState::CompletedWithRejects,
    JobState::Failed,
    JobState::Cancelled,
];

/// What a job says that nobody has.
const LOST: &str = "no process that is there has its file; it goes on when the one that has it is \
    back, and fails after a day";

const INSERT_NODE: Insert = Insert {
    table: "import_nodes",
    columns: &["node", "seen_ms"],
    conflict: Conflict::Replace {
        key: &["node"],
        columns: &["seen_ms"],
    },
};

/// Looks between two sweeps: an hour of them.
const SWEEP_LOOKS: u32 = 1_800;
/// Jobs that are forgotten before it is looked for more.
const FORGOTTEN_AT_ONCE: i64 = 100;
