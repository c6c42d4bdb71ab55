//! Fills the search index behind the commits: what slices left in the queue, tenant by tenant in
//! turn, so that one tenant's import does not hide another's edit.
//!
//! An entry is taken out of the queue after the index has committed what it names. So a crash
//! repeats work and loses none, and taking a record in twice changes nothing.
//!
//! An index that is this process' alone knows what purges of tenants it has followed, whoever made
//! them: it lets go of all that it had of a purged tenant, and takes in what the sink has of it. It does
//! not ask the queue for that, which belongs to whoever looks first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::TenantId;
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
    /// Where the last of its entries begins.
    last_entry: i64,
}

/// Records on their way into the index, and the last ordinal that was looked at for them.
struct Batch {
    queued: Queued,
    documents: Vec<Document>,
    reached: i64,
}

/// A record of the sink, whose words are not read yet.
struct Stored {
    id: String,
    title: Option<String>,
    body: String,
    is_marc: bool,
}

impl Stored {
    fn document(self) -> Document {
        Document {
            text: text_of(&self.body, self.is_marc),
            id: self.id,
            title: self.title,
        }
    }
}

/// Indexes what is queued until the service stops.
pub(crate) async fn index(core: Arc<Core>) {
    let mut after = String::new();
    loop {
        let turn = Box::pin(turn(&core, &mut after));
        let turn = core.shutdown.run_until_cancelled(turn);
        let pause = match turn.await {
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

/// Indexes for a while, tenant by tenant from the one after `after` on; false when nothing is queued.
async fn turn(core: &Core, after: &mut String) -> Result<bool, ImportsError> {
    if core.is_aside() {
        return Ok(false);
    }
    let _turn = core.search.turn.lock().await;
    core.search.prepare(&core.behind).await?;
    follow_purges(core, &core.behind).await?;
    let until = Instant::now() + limits::INDEX_TURN;
    let Some(mut batch) = next(core, after, None).await? else {
        return Ok(false);
    };
    while Instant::now() < until {
        // While the index takes some in, the next ones are read.
        let started = Instant::now();
        let taken = take(core, &batch);
        let (taken, ahead) = tokio::join!(taken, next(core, after, Some(&batch.queued)));
        taken?;
        rest(core, started).await;
        match ahead? {
            Some(ahead) => batch = ahead,
            None => return Ok(true),
        }
    }
    let started = Instant::now();
    take(core, &batch).await?;
    rest(core, started).await;
    Ok(true)
}

/// Has an index of this process' own follow the purges that it has not. For who has the turn.
pub(crate) async fn follow_purges(core: &Core, registry: &Registry) -> Result<(), ImportsError> {
    let Some(mut followed) = core.search.followed().await? else {
        return Ok(());
    };
    loop {
        let purges = registry.purges_after(followed).await?;
        if purges.is_empty() {
            return Ok(());
        }
        for (tenant, number) in purges {
            take_anew(core, registry, &tenant).await?;
            core.search.note_followed(number).await?;
            followed = number;
        }
    }
}

/// Has the index let go of all that it has of a tenant, and take in what the sink has.
async fn take_anew(
    core: &Core,
    registry: &Registry,
    tenant: &TenantId,
) -> Result<(), ImportsError> {
    while core.search.forget_some(tenant).await? {}
    let mut after = String::new();
    loop {
        let started = Instant::now();
        let most = core.guard.lock().records_of_index(core.opened.elapsed());
        let documents = registry.documents_of(tenant, &after, most).await?;
        let Some(last) = documents.last() else {
            return Ok(());
        };
        after.clone_from(&last.id);
        core.search.put(tenant.as_str(), &documents).await?;
        rest(core, started).await;
    }
}

/// Rests after what began at `started`, where somebody is served.
async fn rest(core: &Core, started: Instant) {
    let rest = core.rest_of_index(started.elapsed());
    if !rest.is_zero() {
        tokio::time::sleep(rest).await;
    }
}

/// Reads what comes next: of the tenant after `after`, or else of the first one, beside what is
/// `in_hand`.
async fn next(
    core: &Core,
    after: &mut String,
    in_hand: Option<&Queued>,
) -> Result<Option<Batch>, ImportsError> {
    let registry = &core.behind;
    let mut queued = registry.queued_after(after, in_hand).await?;
    if queued.is_none() && !after.is_empty() {
        queued = registry.queued_after("", in_hand).await?;
    }
    let Some(queued) = queued else {
        after.clear();
        return Ok(None);
    };
    after.clone_from(&queued.tenant);
    let most = core.guard.lock().records_of_index(core.opened.elapsed());
    let (documents, reached) = registry.documents(&queued, most).await?;
    Ok(Some(Batch {
        queued,
        documents,
        reached,
    }))
}

/// Has the index take a batch in, and takes it out of the queue.
async fn take(core: &Core, batch: &Batch) -> Result<(), ImportsError> {
    let documents = &batch.documents;
    core.search.put(&batch.queued.tenant, documents).await?;
    metrics::counter!("thalweg_imports_indexed_records_total").increment(documents.len() as u64);
    core.behind.indexed(&batch.queued, batch.reached).await
}

impl Imports {
    /// Empties the search index and fills it from the sink again.
    pub async fn rebuild_search(&self) -> Result<(), ImportsError> {
        let core = &self.core;
        let turn = core.search.turn.lock().await;
        let refilled = core.search.refill(&core.registry).await;
        drop(turn);
        // Where it broke off it is done again behind.
        core.search.wake();
        refilled
    }
}

impl Registry {
    /// Queues every record of the sink anew, or of a tenant's.
    pub async fn queue_again(&self, tenant: Option<&TenantId>) -> Result<(), ImportsError> {
        for _ in 1..QUEUE_TRIES {
            match self.try_queue_again(tenant).await {
                // A slice was committed meanwhile, whose entry is the same.
                Err(ImportsError::Sql(error)) if error.is_unique_violation() => {}
                done => return done,
            }
        }
        self.try_queue_again(tenant).await
    }

    async fn try_queue_again(&self, tenant: Option<&TenantId>) -> Result<(), ImportsError> {
        let what = "queue all records for the search index";
        let of = |text: &str| match tenant {
            Some(tenant) => Statement::new(text)
                .push(" WHERE tenant = ?")
                .bind(tenant.as_str()),
            None => Statement::new(text),
        };
        let mut tx = self.database.begin().await?;
        tx.run(what, &of("DELETE FROM import_index_queue")).await?;
        let all =
            "INSERT INTO import_index_queue (tenant, job, first_ordinal, last_ordinal, queued_ms)
             SELECT tenant, job, min(ordinal), max(ordinal), 0 FROM import_records";
        tx.run(what, &of(all).push(" GROUP BY tenant, job")).await?;
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

    /// The oldest entries of one job of the first tenant by name after `after`, but for what is
    /// `in_hand`.
    async fn queued_after(
        &self,
        after: &str,
        in_hand: Option<&Queued>,
    ) -> Result<Option<Queued>, ImportsError> {
        let what = "read what waits for the search index";
        let mut select = Statement::new(
            "SELECT tenant, job, first_ordinal, last_ordinal FROM import_index_queue
             WHERE tenant > ?",
        )
        .bind(after);
        if let Some(held) = in_hand {
            select = select
                .push(" AND NOT (tenant = ? AND job = ? AND first_ordinal <= ?)")
                .bind(held.tenant.as_str())
                .bind(held.job)
                .bind(held.last_entry);
        }
        let select = select
            .push(" ORDER BY tenant, job, first_ordinal LIMIT ?")
            .bind(i64::from(limits::INDEX_ENTRIES_AT_ONCE));
        let entry = |row: &Row| -> Result<Queued, sqlx::Error> {
            let first = row.number("first_ordinal")?;
            Ok(Queued {
                tenant: row.text("tenant")?,
                job: row.number("job")?,
                first,
                last: row.number("last_ordinal")?,
                last_entry: first,
            })
        };
        let mut queued: Option<Queued> = None;
        for row in self.database.rows(what, &select).await? {
            let entry = entry(&row).map_err(|e| self.error(what, e))?;
            match &mut queued {
                None => queued = Some(entry),
                Some(of)
                    if of.tenant == entry.tenant
                        && of.job == entry.job
                        && entry.last - of.first < RECORDS_OF_ENTRIES =>
                {
                    of.last = of.last.max(entry.last);
                    of.last_entry = entry.first;
                }
                Some(_) => break,
            }
        }
        Ok(queued)
    }

    /// Some records of an entry, and the last ordinal that was looked at. Records that a later job
    /// replaced are in that one's entries.
    async fn documents(
        &self,
        queued: &Queued,
        most: usize,
    ) -> Result<(Vec<Document>, i64), ImportsError> {
        let mut found = Vec::new();
        let mut after = queued.first - 1;
        while found.len() < most {
            let count = limits::INDEX_READ_AT_ONCE.min(most - found.len());
            let rows = self.some_documents(queued, after, count).await?;
            let is_last = rows.len() < count;
            after = match rows.last() {
                Some((ordinal, _)) if !is_last => *ordinal,
                _ => queued.last,
            };
            found.append(&mut read_words(rows).await?);
            if is_last {
                break;
            }
        }
        Ok((found, after))
    }

    /// The first records of an entry after an ordinal, each with its own.
    async fn some_documents(
        &self,
        queued: &Queued,
        after: i64,
        count: usize,
    ) -> Result<Vec<(i64, Stored)>, ImportsError> {
        let select = Statement::new(
            "SELECT id, title, format, body, ordinal FROM import_records
             WHERE job = ? AND ordinal > ? AND ordinal <= ?
             ORDER BY ordinal LIMIT ?",
        )
        .bind(queued.job)
        .bind(after)
        .bind(queued.last)
        .bind(i64::try_from(count).unwrap_or(i64::MAX));
        self.stored(&select).await
    }

    /// The records that a statement selects, each with its ordinal.
    async fn stored(&self, select: &Statement) -> Result<Vec<(i64, Stored)>, ImportsError> {
        let what = "read records for the search index";
        let stored = |row: &Row| -> Result<(i64, Stored), sqlx::Error> {
            let stored = Stored {
                id: row.text("id")?,
                title: row.maybe_text("title")?,
                body: row.text("body")?,
                is_marc: Format::named(&row.text("format")?).is_some_and(Format::is_marc),
            };
            Ok((row.number("ordinal")?, stored))
        };
        let rows = self.database.rows(what, select).await?;
        let rows = rows.iter().map(stored).collect::<Result<Vec<_>, _>>();
        Ok(rows.map_err(|e| self.error(what, e))?)
    }

    /// Some records of a tenant, by id from the one after `after` on.
    async fn documents_of(
        &self,
        tenant: &TenantId,
        after: &str,
        most: usize,
    ) -> Result<Vec<Document>, ImportsError> {
        let select = Statement::new(
            "SELECT id, title, format, body, ordinal FROM import_records
             WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?",
        )
        .bind(tenant.as_str())
        .bind(after)
        .bind(i64::try_from(most.min(limits::INDEX_READ_AT_ONCE)).unwrap_or(i64::MAX));
        let rows = self.stored(&select).await?;
        read_words(rows).await
    }

    /// Takes what was indexed out of the queue.
    async fn indexed(&self, queued: &Queued, reached: i64) -> Result<(), ImportsError> {
        let what = "note what is indexed";
        let of = |statement: Statement| {
            let of = " WHERE tenant = ? AND job = ? AND first_ordinal BETWEEN ? AND ?";
            statement
                .push(of)
                .bind(queued.tenant.as_str())
                .bind(queued.job)
                .bind(queued.first)
                .bind(queued.last_entry.min(reached))
        };
        let mut tx = self.database.begin().await?;
        let whole = of(Statement::new("DELETE FROM import_index_queue"));
        let whole = whole.push(" AND last_ordinal <= ?").bind(reached);
        tx.run(what, &whole).await?;
        if reached < queued.last {
            let part = "UPDATE import_index_queue SET first_ordinal = ?";
            tx.run(what, &of(Statement::new(part).bind(reached + 1)))
                .await?;
        }
        Ok(tx.commit(what).await?)
    }
}

/// Reads the words of records: some work, which must not keep whoever is served from a thread.
async fn read_words(rows: Vec<(i64, Stored)>) -> Result<Vec<Document>, ImportsError> {
    let read = tokio::task::spawn_blocking(move || {
        let documents = rows.into_iter().map(|(_, row)| row.document());
        documents.collect::<Vec<_>>()
    });
    let broke = |_| ImportsError::Read(std::io::Error::other("the reader broke off"));
    read.await.map_err(broke)
}

/// Records from the first of the entries that are taken together to the last.
const RECORDS_OF_ENTRIES: i64 = limits::INDEXED_AT_ONCE as i64;
/// How often all records are queued anew because a slice came between.
const QUEUE_TRIES: u32 = 8;
/// How often a shared queue is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
