//! What a tenant has here goes, part by part, each a transaction of its own.
//!
//! All of it: jobs with their journals and files, records with their keys and what was done to them
//! at the counter, profiles, and what the search index has of these. Jobs that have not ended are
//! cancelled first. What comes in meanwhile is of later jobs, and stays. Before a time go the jobs
//! alone that ended before it: a record is as old as its last import, and has no time of its own.
//!
//! A purge that broke off is asked for again: it finds what is left. The index lets go of a tenant's
//! records after the sink, and at each purge, so that nothing is left there either. An index that other
//! processes have for themselves follows the mark that the purge leaves in the database, as this one's own
//! does (`indexer.rs`).

use base::{TenantId, TenantIdError, UnixMillis};
use serde::Serialize;
use sql::{Conflict, Insert, Row, Statement, Transaction, Value};

use crate::commit::lock_tenant;
use crate::error::ImportsError;
use crate::imports::{Core, Imports};
use crate::indexer::follow_purges;
use crate::job::Job;
use crate::reconcile::ENDED;
use crate::registry::{COLUMNS, Registry, UNFINISHED, next_number};
use crate::schedule::JobNumber;
use crate::steering::to_its_end;

/// What of a tenant is gone, each as a number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Purged {
    /// Jobs.
    pub jobs: u64,
    /// Entries of their journals.
    pub entries: u64,
    /// Records.
    pub records: u64,
    /// What was done to records at the counter.
    pub history: u64,
    /// Profiles.
    pub profiles: u64,
}

impl Imports {
    /// Takes away what a tenant has here, or of it the jobs that ended before a time. Goes on when
    /// whoever asked is gone; asked again, it goes on where it broke off.
    ///
    /// # Errors
    /// The database's and the search index'; what was taken away by then stays away.
    pub async fn purge(
        &self,
        tenant: &TenantId,
        before: Option<UnixMillis>,
    ) -> Result<Purged, ImportsError> {
        let (core, tenant) = (self.core.clone(), tenant.clone());
        to_its_end(async move { core.purge(&tenant, before).await }).await
    }
}

impl Core {
    async fn purge(
        &self,
        tenant: &TenantId,
        before: Option<UnixMillis>,
    ) -> Result<Purged, ImportsError> {
        let (registry, now) = (&self.registry, self.clock.now());
        let latest = registry.latest_job().await?;
        let mut purged = Purged::default();
        if before.is_none() {
            self.cancel_all(tenant, latest).await?;
            purged.records = registry.purge_records(tenant, latest).await?;
            purged.history = registry.purge_history(tenant, now).await?;
            purged.profiles = registry.purge_profiles(tenant).await?;
            self.forget_found(tenant).await?;
        }
        loop {
            let jobs = registry.ended_jobs(tenant, latest, before).await?;
            if jobs.is_empty() {
                return Ok(purged);
            }
            for job in jobs {
                purged.entries += registry.purge_journal(job.number).await?;
                // One that was resumed meanwhile has not ended.
                if registry.forget_job(job.number).await? {
                    purged.jobs += 1;
                    self.remove_file(&job.id);
                }
            }
        }
    }

    /// Cancels what a tenant has not ended, whatever process has it.
    async fn cancel_all(&self, tenant: &TenantId, latest: JobNumber) -> Result<(), ImportsError> {
        loop {
            let jobs = self.registry.unfinished_jobs(tenant, latest).await?;
            if jobs.is_empty() {
                return Ok(());
            }
            for job in jobs {
                match self.cancel(&job.id).await {
                    // It ended by itself.
                    Err(ImportsError::State { .. } | ImportsError::NotFound(_)) => {}
                    cancelled => drop(cancelled?),
                }
            }
        }
    }

    /// Has the search index forget a purged tenant's records, but for those that the sink has still.
    async fn forget_found(&self, tenant: &TenantId) -> Result<(), ImportsError> {
        loop {
            // Others' records are indexed in between.
            let _turn = self.search.turn.lock().await;
            if self.search.forget_some(tenant).await? {
                continue;
            }
            if self.search.is_own() {
                return follow_purges(self, &self.registry).await;
            }
            self.registry.queue_again(Some(tenant)).await?;
            self.search.wake();
            return Ok(());
        }
    }
}

impl Registry {
    /// The number of the latest purge of any tenant.
    pub async fn latest_purge(&self) -> Result<i64, ImportsError> {
        self.latest(PURGES).await
    }

    /// The latest purges of some tenants that came after one, in their order, each with its number.
    pub async fn purges_after(&self, number: i64) -> Result<Vec<(TenantId, i64)>, ImportsError> {
        let what = "look for purges";
        let select = Statement::new(
            "SELECT tenant, number FROM import_purges WHERE number > ? ORDER BY number LIMIT ?",
        );
        let rows = self
            .database
            .rows(what, &select.bind(number).bind(AT_ONCE))
            .await?;
        let purge = |row: &Row| -> Result<(TenantId, i64), sqlx::Error> {
            let tenant = row.text("tenant")?.parse();
            let tenant = tenant.map_err(|e: TenantIdError| sqlx::Error::Decode(Box::new(e)))?;
            Ok((tenant, row.number("number")?))
        };
        let purges = rows.iter().map(purge).collect::<Result<Vec<_>, _>>();
        Ok(purges.map_err(|e| self.error(what, e))?)
    }

    /// The number of the job that was made last.
    async fn latest_job(&self) -> Result<JobNumber, ImportsError> {
        Ok(JobNumber(self.latest("job").await?))
    }

    /// The number that a counter gave last.
    async fn latest(&self, counter: &'static str) -> Result<i64, ImportsError> {
        let what = "look for the latest number";
        let select = Statement::new("SELECT value FROM import_counters WHERE name = ?");
        let row = self.database.row(what, &select.bind(counter)).await?;
        let number = row.map_or(Ok(0), |row| row.number("value"));
        Ok(number.map_err(|e| self.error(what, e))?)
    }

    async fn unfinished_jobs(
        &self,
        tenant: &TenantId,
        latest: JobNumber,
    ) -> Result<Vec<Job>, ImportsError> {
        let states = UNFINISHED.iter().map(|state| state.name());
        let select = jobs_of(tenant, latest).push(" AND state IN ").list(states);
        self.listed(some(select)).await
    }

    async fn ended_jobs(
        &self,
        tenant: &TenantId,
        latest: JobNumber,
        before: Option<UnixMillis>,
    ) -> Result<Vec<Job>, ImportsError> {
        let states = ENDED.iter().map(|state| state.name());
        let select = jobs_of(tenant, latest).push(" AND state IN ").list(states);
        let select = match before {
            Some(before) => select.push(" AND updated_ms < ?").bind(before.0),
            None => select,
        };
        self.listed(some(select)).await
    }

    /// Removes a job's journal; answers how many entries it had.
    async fn purge_journal(&self, job: JobNumber) -> Result<u64, ImportsError> {
        let what = "remove a journal";
        let mut count = 0;
        loop {
            let select =
                "SELECT ordinal FROM import_journal WHERE job = ? ORDER BY ordinal LIMIT ?";
            let select = Statement::new(select).bind(job.0).bind(AT_ONCE);
            let rows = self.database.rows(what, &select).await?;
            let Some(last) = rows.last() else {
                return Ok(count);
            };
            let last = last.number("ordinal").map_err(|e| self.error(what, e))?;
            let remove = "DELETE FROM import_journal WHERE job = ? AND ordinal <= ?";
            let remove = Statement::new(remove).bind(job.0).bind(last);
            count += self.database.run(what, &remove).await?;
        }
    }

    /// Removes a tenant's records of jobs up to one, with their keys; with the last of them, what they
    /// are found by, and leaves the mark that indexes follow. Answers how many there were.
    async fn purge_records(
        &self,
        tenant: &TenantId,
        latest: JobNumber,
    ) -> Result<u64, ImportsError> {
        let what = "remove a tenant's records";
        let mut count = 0;
        loop {
            let mut tx = self.database.begin().await?;
            lock_tenant(&mut tx, tenant).await?;
            let select = Statement::new(
                "SELECT id FROM import_records WHERE tenant = ? AND job <= ? ORDER BY id LIMIT ?",
            )
            .bind(tenant.as_str())
            .bind(latest.0)
            .bind(AT_ONCE);
            let rows = tx.rows(what, &select).await?;
            let ids = rows.iter().map(|row| row.text("id"));
            let ids = ids.collect::<Result<Vec<_>, _>>();
            let ids = ids.map_err(|e| tx.error(what, e))?;
            if ids.is_empty() {
                forget_selectors(&mut tx, tenant).await?;
                let queued = "DELETE FROM import_index_queue WHERE tenant = ? AND job <= ?";
                let queued = Statement::new(queued).bind(tenant.as_str()).bind(latest.0);
                tx.run(what, &queued).await?;
                let number = next_number(&mut tx, PURGES).await?;
                let mark = vec![Value::from(tenant.as_str()), number.into()];
                tx.insert(what, &INSERT_PURGE, vec![mark]).await?;
                tx.commit(what).await?;
                return Ok(count);
            }
            for table in ["import_keys", "import_records"] {
                let text = format!("DELETE FROM {table} WHERE tenant = ? AND id IN ");
                let remove = Statement::new(text).bind(tenant.as_str());
                tx.run(what, &remove.list(ids.iter().map(String::as_str)))
                    .await?;
            }
            tx.commit(what).await?;
            count += ids.len() as u64;
        }
    }

    /// Removes what was done to a tenant's records at the counter until now; answers how much.
    async fn purge_history(&self, tenant: &TenantId, now: UnixMillis) -> Result<u64, ImportsError> {
        let (what, counter) = ("remove records' histories", &self.counter);
        let mut count = 0;
        loop {
            let select = Statement::new(
                "SELECT id, version FROM import_history WHERE tenant = ? AND at_ms <= ?
                 ORDER BY id, version LIMIT ?",
            )
            .bind(tenant.as_str())
            .bind(now.0)
            .bind(AT_ONCE);
            let rows = counter.rows(what, &select).await?;
            let Some(last) = rows.last() else {
                return Ok(count);
            };
            let read = || Ok((last.text("id")?, last.number("version")?));
            let (id, version): (String, i64) = read().map_err(|e| counter.error(what, e))?;
            let remove = Statement::new(
                "DELETE FROM import_history WHERE tenant = ? AND at_ms <= ?
                 AND (id < ? OR (id = ? AND version <= ?))",
            )
            .bind(tenant.as_str())
            .bind(now.0)
            .bind(id.as_str())
            .bind(id.as_str())
            .bind(version);
            count += counter.run(what, &remove).await?;
        }
    }

    /// Removes a tenant's profiles, and what was counted of it; answers how many profiles.
    async fn purge_profiles(&self, tenant: &TenantId) -> Result<u64, ImportsError> {
        let what = "remove a tenant's profiles";
        let counts = "UPDATE import_tenants SET records_done = 0, records_rejected = 0,
             bytes_done = 0 WHERE tenant = ?";
        let counts = Statement::new(counts).bind(tenant.as_str());
        self.database.run(what, &counts).await?;
        let remove = "DELETE FROM import_profiles WHERE tenant = ?";
        let remove = Statement::new(remove).bind(tenant.as_str());
        Ok(self.database.run(what, &remove).await?)
    }
}

/// Forgets what a tenant's records are found by, when none is left.
async fn forget_selectors(tx: &mut Transaction, tenant: &TenantId) -> Result<(), ImportsError> {
    let what = "forget what a tenant's records are found by";
    let left = Statement::new("SELECT id FROM import_records WHERE tenant = ? LIMIT 1");
    if tx.row(what, &left.bind(tenant.as_str())).await?.is_some() {
        return Ok(());
    }
    for text in [
        "DELETE FROM import_selectors WHERE tenant = ?",
        "UPDATE import_tenants SET selectors = selectors + 1 WHERE tenant = ?",
    ] {
        tx.run(what, &Statement::new(text).bind(tenant.as_str()))
            .await?;
    }
    Ok(())
}

fn jobs_of(tenant: &TenantId, latest: JobNumber) -> Statement {
    let text = format!("SELECT {COLUMNS} FROM import_jobs WHERE tenant = ? AND number <= ?");
    Statement::new(text).bind(tenant.as_str()).bind(latest.0)
}

fn some(select: Statement) -> Statement {
    select.push(" ORDER BY number LIMIT ?").bind(AT_ONCE)
}

/// The counter of purges.
const PURGES: &str = "purge";

const INSERT_PURGE: Insert = Insert {
    table: "import_purges",
    columns: &["tenant", "number"],
    conflict: Conflict::Replace {
        key: &["tenant"],
        columns: &["number"],
    },
};

/// Rows that go with one statement: somebody else's slice waits for some milliseconds.
const AT_ONCE: i64 = 250;
