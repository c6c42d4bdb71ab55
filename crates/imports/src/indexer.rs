//! Fills the search index behind the commits: what slices left in the queue, tenant by tenant in
//! turn, so that one tenant's import does not hide another's edit.
//!
//! An entry is taken out of the queue after the index has committed what it names. So a crash
//! repeats work and loses none, and taking a record in twice changes nothing.

use std::sync::Arc;
use std::time::Duration;

use sql::{Row, Statement};

use crate::error::ImportsError;
use crate::imports::{Core, Imports};
use crate::job::Format;
use crate::limits;
use crate::registry::Registry;
use crate::search::{Document, text_of};

/// Records of a tenant that the index has not seen: those of a job from one ordinal to another.
struct Queued {
    tenant: String,
    job: i64,
    first: i64,
    last: i64,
}

/// Indexes what is queued until the service stops.
pub(crate) async fn index(core: Arc<Core>) {
    let mut after = String::new();
    loop {
        let step = Box::pin(step(&core, &mut after));
        let step = core.shutdown.run_until_cancelled(step);
        let pause = match step.await {
            None => return,
            Some(Ok(true)) => continue,
            Some(Ok(false)) => None,
            Some(Err(error)) => {
                let error = base::report(&error);
                tracing::warn!(error, "the search index is behind; it is tried again");
                Some(limits::RETRY_PAUSE_MAX)
            }
        };
        let woken = core.search.woken();
        // On a shared database others fill the queue too.
        let wait = pause.or(core.registry.is_shared().then_some(LOOK_AGAIN));
        let wait = async {
            match wait {
                Some(wait) => {
                    let _ = tokio::time::timeout(wait, woken).await;
                }
                None => woken.await,
            }
        };
        if core.shutdown.run_until_cancelled(wait).await.is_none() {
            return;
        }
    }
}

/// Indexes some records of the tenant after `after`; false when nothing is queued.
async fn step(core: &Core, after: &mut String) -> Result<bool, ImportsError> {
    let registry = &core.registry;
    let _turn = core.search.turn.lock().await;
    let queued = match registry.queued_after(after).await? {
        Some(queued) => queued,
        None if after.is_empty() => return Ok(false),
        None => {
            after.clear();
            return Ok(true);
        }
    };
    after.clone_from(&queued.tenant);
    let (documents, reached) = registry.documents(&queued).await?;
    core.search.put(&queued.tenant, &documents).await?;
    metrics::counter!("thalweg_imports_indexed_records_total").increment(documents.len() as u64);
    registry.indexed(&queued, reached).await?;
    Ok(true)
}

impl Imports {
    /// Empties the search index and fills it from the sink again.
    pub async fn rebuild_search(&self) -> Result<(), ImportsError> {
        let core = &self.core;
        let turn = core.search.turn.lock().await;
        core.search.clear().await?;
        core.registry.queue_all().await?;
        drop(turn);
        core.search.wake();
        Ok(())
    }
}

impl Registry {
    /// Queues every record of the sink anew.
    pub async fn queue_all(&self) -> Result<(), ImportsError> {
        let what = "queue all records for the search index";
        let mut tx = self.database.begin().await?;
        tx.run(what, &Statement::new("DELETE FROM import_index_queue"))
            .await?;
        let all =
            "INSERT INTO import_index_queue (tenant, job, first_ordinal, last_ordinal, queued_ms)
             SELECT tenant, job, min(ordinal), max(ordinal), 0 FROM import_records
             GROUP BY tenant, job";
        tx.run(what, &Statement::new(all)).await?;
        Ok(tx.commit(what).await?)
    }

    /// How many entries wait for the index.
    pub async fn queued_count(&self) -> Result<i64, ImportsError> {
        let what = "count what waits for the search index";
        let count = Statement::new("SELECT count(*) AS waiting FROM import_index_queue");
        let row = self.database.row(what, &count).await?;
        let waiting = row.map_or(Ok(0), |row| row.number("waiting"));
        Ok(waiting.map_err(|e| self.error(what, e))?)
    }

    /// The oldest entry of the first tenant by name after `after`.
    async fn queued_after(&self, after: &str) -> Result<Option<Queued>, ImportsError> {
        let what = "read what waits for the search index";
        let select = Statement::new(
            "SELECT tenant, job, first_ordinal, last_ordinal FROM import_index_queue
             WHERE tenant > ? ORDER BY tenant, job, first_ordinal LIMIT 1",
        )
        .bind(after);
        let queued = |row: &Row| -> Result<Queued, sqlx::Error> {
            Ok(Queued {
                tenant: row.text("tenant")?,
                job: row.number("job")?,
                first: row.number("first_ordinal")?,
                last: row.number("last_ordinal")?,
            })
        };
        let row = self.database.row(what, &select).await?;
        let row = row.as_ref().map(queued).transpose();
        Ok(row.map_err(|e| self.error(what, e))?)
    }

    /// Some records of an entry, and the last ordinal that was looked at. Records that a later job
    /// replaced are in that one's entries.
    async fn documents(&self, queued: &Queued) -> Result<(Vec<Document>, i64), ImportsError> {
        let what = "read records for the search index";
        let select = Statement::new(
            "SELECT id, title, format, body, ordinal FROM import_records
             WHERE job = ? AND ordinal BETWEEN ? AND ? AND tenant = ?
             ORDER BY ordinal LIMIT ?",
        )
        .bind(queued.job)
        .bind(queued.first)
        .bind(queued.last)
        .bind(queued.tenant.as_str())
        .bind(i64::from(limits::INDEXED_AT_ONCE));
        let mut reached = queued.last;
        let mut documents = Vec::new();
        let rows = self.database.rows(what, &select).await?;
        let is_full = rows.len() >= usize::try_from(limits::INDEXED_AT_ONCE).unwrap_or(usize::MAX);
        for row in &rows {
            let mut read = || -> Result<Document, sqlx::Error> {
                let is_marc = Format::named(&row.text("format")?).is_some_and(Format::is_marc);
                if is_full {
                    reached = row.number("ordinal")?;
                }
                Ok(Document {
                    id: row.text("id")?,
                    title: row.maybe_text("title")?,
                    text: text_of(&row.text("body")?, is_marc),
                })
            };
            documents.push(read().map_err(|e| self.error(what, e))?);
        }
        Ok((documents, reached))
    }

    /// Takes what was indexed out of the queue.
    async fn indexed(&self, queued: &Queued, reached: i64) -> Result<(), ImportsError> {
        let done = if reached >= queued.last {
            Statement::new("DELETE FROM import_index_queue")
        } else {
            Statement::new("UPDATE import_index_queue SET first_ordinal = ?").bind(reached + 1)
        };
        let done = done
            .push(" WHERE tenant = ? AND job = ? AND first_ordinal = ?")
            .bind(queued.tenant.as_str())
            .bind(queued.job)
            .bind(queued.first);
        self.database.run("note what is indexed", &done).await?;
        Ok(())
    }
}

/// How often a shared queue is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
