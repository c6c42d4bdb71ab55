//! The registry: jobs, profiles, tenants and the journal, on any kind of database.
//!
//! A job's counts are changed by commits of slices alone (`commit.rs`), so they are those of
//! committed rows at every instant.
//!
//! Several processes may share a server. A job is worked on by the one that has its lease: `owner`
//! says who, `token` grows whenever the lease changes hands, and a commit asks for the token that
//! the worker was given. So a worker that slept through the end of its lease commits nothing.

use std::time::Duration;

use base::{TenantId, UnixMillis};
use sql::{
    Conflict, Database, Insert, Options, Place, Row, SqlError, Statement, Transaction, Value,
};
use streams::TopicName;

use crate::error::ImportsError;
use crate::job::{Class, Format, Job, JobProducer, JobState, JournalEntry, NewJob, Sink};
use crate::limits;
use crate::profile::Profile;
use crate::records::open_counter;
use crate::schedule::JobNumber;
use crate::schema::schema;
use crate::tenants::{INSERT_TENANT, tenant_row};

/// The registry and sink of one installation: cheap to clone.
#[derive(Clone)]
pub(crate) struct Registry {
    pub(super) database: Database,
    /// What is done to records at the counter (`records.rs`).
    pub(super) counter: Database,
}

/// What became of a wish for a new job.
pub(crate) enum Created {
    New(JobNumber),
    /// The idempotency key was used before, for this job.
    Before(Box<Job>),
}

/// What came of the start of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// It runs, by a lease of this token.
    Leased(i64),
    /// It runs, and its lease is to be taken.
    Unleased,
    /// It was cancelled.
    Not,
}

/// A job's rejected record, as it stood in its file.
pub(crate) struct Reject {
    pub ordinal: i64,
    pub raw: Vec<u8>,
}

impl Registry {
    pub async fn open(place: &Place) -> Result<Self, ImportsError> {
        Registry::of(place, Registry::open_records(place).await?).await
    }

    /// Opens the database of jobs and records.
    pub async fn open_records(place: &Place) -> Result<Database, ImportsError> {
        let options = Options {
            readers: limits::CONNECTIONS,
            ..Options::default()
        };
        Ok(Database::open(place, options, schema(place.dialect())).await?)
    }

    /// The registry in a database that is open.
    pub async fn of(place: &Place, database: Database) -> Result<Self, ImportsError> {
        let counter = open_counter(place, &database).await?;
        Ok(Registry { database, counter })
    }

    pub async fn close(&self) {
        self.counter.close().await;
        self.database.close().await;
    }

    /// Whether other processes may work on the same jobs.
    pub fn is_shared(&self) -> bool {
        self.database.dialect().is_shared()
    }

    /// Writes a new job in state `uploading`; answers the older job when its tenant used the
    /// idempotency key before.
    pub async fn create(
        &self,
        new: &NewJob,
        owner: &str,
        now: UnixMillis,
    ) -> Result<Created, ImportsError> {
        let what = "add a job";
        let mut tx = self.database.begin().await?;
        // Whoever adds a job of any tenant waits here, so that a key is looked for and taken at once.
        let number = JobNumber(next_number(&mut tx, "job").await?);
        if let Some(key) = &new.idempotency_key {
            let found = Statement::new(format!(
                "SELECT {COLUMNS} FROM import_jobs WHERE tenant = ? AND idempotency_key = ?"
            ))
            .bind(new.tenant.as_str())
            .bind(key.as_str());
            if let Some(row) = tx.row("look for the idempotency key", &found).await? {
                let job = self.job_of(&row)?;
                // A job whose upload never arrived did nothing; the retry is the first try.
                if job.state != JobState::Failed || job.bytes_total > 0 {
                    if !new.is_like(&job) {
                        return Err(ImportsError::KeyReused(job.id));
                    }
                    return Ok(Created::Before(Box::new(job)));
                }
                let free = "UPDATE import_jobs SET idempotency_key = NULL WHERE number = ?";
                tx.run(
                    "free the idempotency key",
                    &Statement::new(free).bind(job.number.0),
                )
                .await?;
            }
        }
        let row = vec![
            Value::from(number.0),
            new.id.as_str().into(),
            new.tenant.as_str().into(),
            new.name.as_str().into(),
            new.format.name().into(),
            new.class.name().into(),
            new.sink.name().into(),
            new.topic.display().into(),
            profile_text(&new.profile).into(),
            i64::from(new.slice_records).into(),
            new.idempotency_key.as_deref().into(),
            new.retry_of.as_deref().into(),
            new.source.as_deref().into(),
            i64::from(new.is_resumable).into(),
            JobState::Uploading.name().into(),
            (-1).into(),
            now.0.into(),
            now.0.into(),
            owner.into(),
        ];
        let zeros = std::iter::repeat_n(Value::from(0), ZEROS);
        let row = row
            .into_iter()
            .chain(zeros)
            .chain([Value::from(1)])
            .collect();
        let tenant = tenant_row(&new.tenant, 1, now);
        let dialect = tx.dialect();
        let rows = vec![
            dialect.insert(&INSERT_JOB, vec![row]),
            dialect.insert(&INSERT_TENANT, vec![tenant]),
        ];
        tx.run_together(what, rows).await?;
        tx.commit(what).await?;
        Ok(Created::New(number))
    }

    /// The upload is on disk: the job can run, and is what it is given as. It belongs to `owner` by a
    /// lease from then on, whose token is told where the database tells it at once.
    pub async fn start(
        &self,
        job: &Job,
        header: Vec<u8>,
        owner: &str,
    ) -> Result<Started, ImportsError> {
        let (what, now) = ("start a job", job.updated);
        let start = Statement::new(
            "UPDATE import_jobs SET state = 'running', bytes_total = ?, records_total = ?,
             header = ?, producer_id = ?, partition_number = ?, updated_ms = ?, error = NULL,
             owner = ?, token = token + 1, lease_until_ms = ?
             WHERE number = ? AND state = 'uploading'",
        )
        .bind(signed(job.bytes_total))
        .bind(signed(job.records_total))
        .bind(header)
        .bind(job.producer.id)
        .bind(i64::from(job.producer.partition))
        .bind(now.0)
        .bind(owner)
        .bind(until(now, limits::LEASE))
        .bind(job.number.0);
        if !self.database.dialect().has_returning() {
            let is_started = self.database.run(what, &start).await? == 1;
            return Ok(match is_started {
                true => Started::Unleased,
                false => Started::Not,
            });
        }
        let token = self.token_of(what, start).await?;
        Ok(token.map_or(Started::Not, Started::Leased))
    }

    /// Takes a running job's lease: the token that its commits ask for, or none when another
    /// process has it, the job does not run, or this process is too old for the database.
    pub async fn lease(
        &self,
        job: JobNumber,
        owner: &str,
        lasts: Duration,
        now: UnixMillis,
    ) -> Result<Option<i64>, ImportsError> {
        let what = "take a job's lease";
        let take = Statement::new(
            "UPDATE import_jobs SET owner = ?, token = token + 1, lease_until_ms = ?
             WHERE number = ? AND state = 'running'
             AND (owner IS NULL OR owner = ? OR lease_until_ms < ?)",
        )
        .bind(owner)
        .bind(until(now, lasts))
        .bind(job.0)
        .bind(owner)
        .bind(now.0);
        let take = self.while_it_fits(take);
        if self.database.dialect().has_returning() {
            return self.token_of(what, take).await;
        }
        let mut tx = self.database.begin().await?;
        if tx.run(what, &take).await? == 0 {
            return Ok(None);
        }
        let token = Statement::new("SELECT token FROM import_jobs WHERE number = ?").bind(job.0);
        let row = tx.row(what, &token).await?;
        let token = row.map(|row| row.number("token")).transpose();
        let token = token.map_err(|e| self.error(what, e))?;
        tx.commit(what).await?;
        Ok(token)
    }

    /// Runs a statement that gives a job another token, if it finds the job.
    async fn token_of(
        &self,
        what: &'static str,
        update: Statement,
    ) -> Result<Option<i64>, ImportsError> {
        let update = update.push(" RETURNING token");
        let row = self.database.run_returning(what, &update).await?;
        let token = row.map(|row| row.number("token")).transpose();
        Ok(token.map_err(|e| self.error(what, e))?)
    }

    /// Lengthens all leases of `owner`.
    pub async fn keep_leases(
        &self,
        owner: &str,
        lasts: Duration,
        now: UnixMillis,
    ) -> Result<(), ImportsError> {
        let keep = Statement::new(
            "UPDATE import_jobs SET lease_until_ms = ? WHERE owner = ? AND state = 'running'",
        )
        .bind(until(now, lasts))
        .bind(owner);
        self.database.run("keep leases", &keep).await?;
        Ok(())
    }

    /// Moves a job from one of `from` to another state; false when it is in none of them. Its lease
    /// ends with that.
    pub async fn change(
        &self,
        job: JobNumber,
        from: &[JobState],
        to: JobState,
        error: Option<&str>,
        now: UnixMillis,
    ) -> Result<bool, ImportsError> {
        let change = Statement::new(
            "UPDATE import_jobs SET state = ?, error = ?, updated_ms = ?, owner = NULL,
             token = token + 1 WHERE number = ? AND state IN ",
        )
        .bind(to.name())
        .bind(error)
        .bind(now.0)
        .bind(job.0)
        .list(from.iter().map(|state| state.name()));
        Ok(self.database.run("change a job's state", &change).await? == 1)
    }

    /// Ends a job that has not ended; false when it had.
    pub async fn end(
        &self,
        job: JobNumber,
        state: JobState,
        error: Option<&str>,
        now: UnixMillis,
    ) -> Result<bool, ImportsError> {
        self.change(job, &UNFINISHED, state, error, now).await
    }

    /// Ends a running job that `owner` cannot get on with; false when another process has it, or
    /// nobody runs it any more.
    pub async fn fail(
        &self,
        job: JobNumber,
        owner: &str,
        error: &str,
        now: UnixMillis,
    ) -> Result<bool, ImportsError> {
        let fail = Statement::new(
            "UPDATE import_jobs SET state = 'failed', error = ?, updated_ms = ?, owner = NULL,
             token = token + 1
             WHERE number = ? AND state = 'running' AND (owner IS NULL OR owner = ?)",
        )
        .bind(error)
        .bind(now.0)
        .bind(job.0)
        .bind(owner);
        Ok(self.database.run("end a job that fails", &fail).await? == 1)
    }

    /// Notes why a running job of `owner` does not get on for the moment.
    pub async fn note(
        &self,
        job: JobNumber,
        owner: &str,
        error: &str,
        now: UnixMillis,
    ) -> Result<(), ImportsError> {
        let note = Statement::new(
            "UPDATE import_jobs SET error = ?, updated_ms = ?
             WHERE number = ? AND state = 'running' AND (owner IS NULL OR owner = ?)",
        )
        .bind(error)
        .bind(now.0)
        .bind(job.0)
        .bind(owner);
        self.database.run("note a job's trouble", &note).await?;
        Ok(())
    }

    pub async fn job(&self, id: &str) -> Result<Job, ImportsError> {
        let select = format!("SELECT {COLUMNS} FROM import_jobs WHERE id = ?");
        let row = self
            .database
            .row("read a job", &Statement::new(select).bind(id))
            .await?;
        match row {
            Some(row) => self.job_of(&row),
            None => Err(ImportsError::NotFound(shown(id))),
        }
    }

    pub async fn job_numbered(&self, number: JobNumber) -> Result<Job, ImportsError> {
        let select = format!("SELECT {COLUMNS} FROM import_jobs WHERE number = ?");
        let select = Statement::new(select).bind(number.0);
        match self.database.row("read a job", &select).await? {
            Some(row) => self.job_of(&row),
            None => Err(ImportsError::NotFound(number.0.to_string())),
        }
    }

    /// The jobs of one tenant or all, newest first, from the one behind `after` on.
    pub async fn jobs(
        &self,
        tenant: Option<&TenantId>,
        after: Option<JobNumber>,
        count: u32,
    ) -> Result<Vec<Job>, ImportsError> {
        let mut select = Statement::new(format!(
            "SELECT {COLUMNS} FROM import_jobs WHERE number < ? "
        ))
        .bind(after.map_or(i64::MAX, |job| job.0));
        if let Some(tenant) = tenant {
            select = select.push("AND tenant = ? ").bind(tenant.as_str());
        }
        let select = select
            .push("ORDER BY number DESC LIMIT ?")
            .bind(i64::from(count));
        self.listed(select).await
    }

    /// Notes that a job's upload got on.
    pub async fn touch(&self, job: JobNumber, now: UnixMillis) -> Result<(), ImportsError> {
        let touch = "UPDATE import_jobs SET updated_ms = ?, error = NULL
             WHERE number = ? AND state = 'uploading'";
        let touch = Statement::new(touch).bind(now.0).bind(job.0);
        self.database
            .run("note that an upload got on", &touch)
            .await?;
        Ok(())
    }

    /// How many uploads in pieces a tenant has begun and not brought to an end.
    pub async fn uploads_of(&self, tenant: &TenantId) -> Result<u64, ImportsError> {
        let what = "count uploads";
        let count = "SELECT count(*) AS uploads FROM import_jobs
             WHERE state = 'uploading' AND is_resumable <> 0 AND tenant = ?";
        let row = self
            .database
            .row(what, &Statement::new(count).bind(tenant.as_str()))
            .await?;
        let count = row.map_or(Ok(0), |row| row.number("uploads"));
        Ok(unsigned(count.map_err(|e| self.error(what, e))?))
    }

    /// The jobs that have not ended, oldest first.
    pub async fn unfinished(&self) -> Result<Vec<Job>, ImportsError> {
        let select = format!("SELECT {COLUMNS} FROM import_jobs WHERE state IN ");
        let states = UNFINISHED.iter().map(|state| state.name());
        let select = Statement::new(select).list(states).push(" ORDER BY number");
        self.listed(select).await
    }

    /// The running jobs that no process has, oldest first.
    pub async fn orphans(&self, now: UnixMillis) -> Result<Vec<Job>, ImportsError> {
        let select = Statement::new(format!(
            "SELECT {COLUMNS} FROM import_jobs WHERE state = 'running'
             AND (owner IS NULL OR lease_until_ms < ?) ORDER BY number LIMIT 100"
        ));
        self.listed(select.bind(now.0)).await
    }

    /// The journal of a job after an ordinal: `count` entries, and those of the last one's record.
    pub async fn journal(
        &self,
        job: JobNumber,
        after: i64,
        count: u32,
    ) -> Result<Vec<JournalEntry>, ImportsError> {
        let what = "read the journal";
        let select = Statement::new(
            "SELECT ordinal, position, kind, reason FROM import_journal
             WHERE job = ? AND ordinal > ? ORDER BY ordinal, kind LIMIT ?",
        )
        .bind(job.0)
        .bind(after)
        .bind(i64::from(count.max(1)) + KINDS);
        let entry = |row: &Row| -> Result<JournalEntry, sqlx::Error> {
            Ok(JournalEntry {
                ordinal: row.number("ordinal")?,
                offset: unsigned(row.number("position")?),
                kind: row.text("kind")?,
                reason: row.text("reason")?,
            })
        };
        let rows = self.database.rows(what, &select).await?;
        let entries = rows.iter().map(entry).collect::<Result<Vec<_>, _>>();
        let mut entries = entries.map_err(|e| self.error(what, e))?;
        let at = usize::try_from(count.max(1)).unwrap_or(usize::MAX);
        if let Some(last) = entries.get(at - 1).map(|entry| entry.ordinal) {
            // The next page begins behind a record.
            entries.retain(|entry| entry.ordinal <= last);
        }
        Ok(entries)
    }

    /// What stands before the records of a job's file: a CSV file's header line.
    pub async fn header(&self, job: JobNumber) -> Result<Vec<u8>, ImportsError> {
        let what = "read a job's header";
        let select = Statement::new(
            "SELECT coalesce(header, ?) AS header FROM import_jobs WHERE number = ?",
        )
        .bind(Vec::<u8>::new())
        .bind(job.0);
        let row = self.database.row(what, &select).await?;
        let header = row.map_or(Ok(Vec::new()), |row| row.bytes("header"));
        Ok(header.map_err(|e| self.error(what, e))?)
    }

    /// The bytes of rejected records after an ordinal, at most [`limits::REJECTS_AT_ONCE`], but for those
    /// that were too large to keep.
    pub async fn rejects(&self, job: JobNumber, after: i64) -> Result<Vec<Reject>, ImportsError> {
        let what = "read rejected records";
        let select = Statement::new(
            "SELECT ordinal, raw FROM import_journal
             WHERE job = ? AND kind = 'rejected' AND raw IS NOT NULL AND ordinal > ?
             ORDER BY ordinal LIMIT ?",
        )
        .bind(job.0)
        .bind(after)
        .bind(i64::from(limits::REJECTS_AT_ONCE));
        let reject = |row: &Row| -> Result<Reject, sqlx::Error> {
            Ok(Reject {
                ordinal: row.number("ordinal")?,
                raw: row.bytes("raw")?,
            })
        };
        let rows = self.database.rows(what, &select).await?;
        rows.iter()
            .map(|row| reject(row).map_err(|e| self.error(what, e).into()))
            .collect()
    }

    /// How many rejected records were too large to keep.
    pub async fn rejects_left_out(&self, job: JobNumber) -> Result<u64, ImportsError> {
        let what = "count rejected records that are not kept";
        let count = Statement::new(
            "SELECT COUNT(*) AS entries FROM import_journal
             WHERE job = ? AND kind = 'rejected' AND raw IS NULL",
        );
        let row = self.database.row(what, &count.bind(job.0)).await?;
        let entries = row.map(|row| row.number("entries")).transpose();
        let entries = entries.map_err(|e| self.error(what, e))?;
        Ok(entries.unwrap_or(0).unsigned_abs())
    }

    pub(super) async fn listed(&self, select: Statement) -> Result<Vec<Job>, ImportsError> {
        let rows = self.database.rows("list jobs", &select).await?;
        rows.iter().map(|row| self.job_of(row)).collect()
    }

    fn job_of(&self, row: &Row) -> Result<Job, ImportsError> {
        let count = |column| row.number(column).map(unsigned);
        let read = || -> Result<Job, sqlx::Error> {
            let tenant = row.text("tenant")?;
            let topic = row.text("topic")?;
            Ok(Job {
                number: JobNumber(row.number("number")?),
                id: row.text("id")?,
                tenant: tenant.parse().map_err(|_| decode("not a tenant"))?,
                name: row.text("name")?,
                format: Format::named(&row.text("format")?)
                    .ok_or_else(|| decode("not a format"))?,
                class: Class::named(&row.text("class")?).ok_or_else(|| decode("not a class"))?,
                sink: Sink::named(&row.text("sink")?).ok_or_else(|| decode("not a sink"))?,
                topic: topic
                    .parse::<TopicName>()
                    .map_err(|_| decode("not a topic"))?,
                profile: profile_of(&row.text("profile")?)?,
                retry_of: row.maybe_text("retry_of")?,
                source: row.maybe_text("source")?,
                is_resumable: row.number("is_resumable")? != 0,
                slice_records: u32::try_from(row.number("slice_records")?).unwrap_or(1),
                state: JobState::named(&row.text("state")?).ok_or_else(|| decode("not a state"))?,
                producer: JobProducer {
                    id: row.number("producer_id")?,
                    partition: i32::try_from(row.number("partition_number")?).unwrap_or(0),
                },
                records_total: count("records_total")?,
                records_done: count("records_done")?,
                records_created: count("records_created")?,
                records_updated: count("records_updated")?,
                records_skipped: count("records_skipped")?,
                records_rejected: count("records_rejected")?,
                records_sent: count("records_sent")?,
                bytes_total: count("bytes_total")?,
                bytes_done: count("bytes_done")?,
                next_ordinal: row.number("next_ordinal")?,
                slices_done: count("slices_done")?,
                owner: row.maybe_text("owner")?,
                created: UnixMillis(row.number("created_ms")?),
                updated: UnixMillis(row.number("updated_ms")?),
                error: row.maybe_text("error")?,
            })
        };
        read().map_err(|e| self.error("read a job", e).into())
    }

    pub(super) fn error(&self, what: &'static str, source: sqlx::Error) -> SqlError {
        self.database.error(what, source)
    }
}

/// The next number of a counter; holds the counter's lock until the transaction's end.
pub(crate) async fn next_number(
    tx: &mut Transaction,
    counter: &'static str,
) -> Result<i64, ImportsError> {
    let what = "take the next number";
    if tx.dialect().has_returning() {
        let next = Statement::new(
            "INSERT INTO import_counters (name, value) VALUES (?, 1)
             ON CONFLICT (name) DO UPDATE SET value = import_counters.value + 1 RETURNING value",
        );
        let row = tx.row(what, &next.bind(counter)).await?;
        let number = row.map_or(Ok(0), |row| row.number("value"));
        return Ok(number.map_err(|e| tx.error(what, e))?);
    }
    let first = vec![Value::from(counter), 0.into()];
    tx.insert(what, &INSERT_COUNTER, vec![first]).await?;
    let next = "UPDATE import_counters SET value = value + 1 WHERE name = ?";
    tx.run(what, &Statement::new(next).bind(counter)).await?;
    let read = Statement::new("SELECT value FROM import_counters WHERE name = ?");
    let row = tx.row(what, &read.bind(counter)).await?;
    let number = row.map_or(Ok(0), |row| row.number("value"));
    Ok(number.map_err(|e| tx.error(what, e))?)
}

fn until(now: UnixMillis, lasts: Duration) -> i64 {
    now.0
        .saturating_add(i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX))
}

pub(crate) fn profile_text(profile: &Profile) -> String {
    // Texts and lists of texts always have a JSON form.
    serde_json::to_string(profile).unwrap_or_else(|_| "{}".to_owned())
}

pub(crate) fn profile_of(text: &str) -> Result<Profile, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

fn decode(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(what.to_owned().into())
}

pub(crate) fn shown(name: &str) -> String {
    name.chars().take(NAME_SHOWN).collect()
}

pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Kinds of entries that one record may have.
const KINDS: i64 = 3;
/// How much of an unknown name is repeated to the caller, in characters.
const NAME_SHOWN: usize = 64;

pub(crate) const UNFINISHED: [JobState; 3] =
    [JobState::Uploading, JobState::Running, JobState::Paused];

pub(crate) const COLUMNS: &str = "number, id, tenant, name, format, class, sink, topic, profile, retry_of,
    source, is_resumable, slice_records, state, producer_id, partition_number, records_total, records_done,
    records_created, records_updated, records_skipped, records_rejected, records_sent, bytes_total,
    bytes_done, next_ordinal, slices_done, owner, created_ms, updated_ms, error";

const INSERT_JOB: Insert = Insert {
    table: "import_jobs",
    columns: &[
        "number",
        "id",
        "tenant",
        "name",
        "format",
        "class",
        "sink",
        "topic",
        "profile",
        "slice_records",
        "idempotency_key",
        "retry_of",
        "source",
        "is_resumable",
        "state",
        "producer_id",
        "created_ms",
        "updated_ms",
        "owner",
        // The zeros.
        "partition_number",
        "records_total",
        "records_done",
        "records_created",
        "records_updated",
        "records_skipped",
        "records_rejected",
        "records_sent",
        "bytes_total",
        "bytes_done",
        "slices_done",
        "token",
        "lease_until_ms",
        "next_ordinal",
    ],
    conflict: Conflict::Fail,
};

/// Columns of a new job that begin with zero.
const ZEROS: usize = 13;

const INSERT_COUNTER: Insert = Insert {
    table: "import_counters",
    columns: &["name", "value"],
    conflict: Conflict::Keep { key: &["name"] },
};
