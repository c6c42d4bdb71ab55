//! The database: jobs, the sink's records, the journal of what was wrong, and slices.
//!
//! What a slice did (records, journal entries, progress, and the job's end with its last slice) is
//! one transaction. So the counts are those of committed rows at every instant, and a job that is
//! complete is complete.

use std::path::Path;

use base::{TenantId, UnixMillis};
use sql::{Migration, Options, Schema, SqlError, Sqlite as Database};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite};
use streams::{Placed, TopicName};

use crate::error::ImportsError;
use crate::job::{Format, Job, JobProducer, JobState, JournalEntry, NewJob, TenantUse};
use crate::schedule::JobNumber;
use crate::slice::Slice;

/// The registry and sink of one installation.
pub(crate) struct Registry {
    database: Database,
}

impl Registry {
    pub async fn open(path: &Path) -> Result<Self, ImportsError> {
        Ok(Registry {
            database: Database::open(path, Options::default(), &SCHEMA).await?,
        })
    }

    pub async fn close(&self) {
        self.database.close().await;
    }

    /// Writes a new job in state `uploading`; answers the older job when its tenant used the
    /// idempotency key before.
    pub async fn create(&self, new: &NewJob, now: UnixMillis) -> Result<Created, ImportsError> {
        let mut tx = self.database.begin().await?;
        if let Some(key) = &new.idempotency_key {
            let text = format!(
                "SELECT {COLUMNS} FROM import_jobs WHERE tenant = ? AND idempotency_key = ?"
            );
            let found = sqlx::query(sqlx::AssertSqlSafe(text))
                .bind(new.tenant.as_str())
                .bind(key)
                .fetch_optional(&mut *tx)
                .await
                .map_err(|e| self.error("look for the idempotency key", e))?;
            if let Some(row) = found {
                let job = self.job_of(&row)?;
                // A job whose upload never arrived did nothing; the retry is the first try.
                if job.state != JobState::Failed || job.bytes_total > 0 {
                    return Ok(Created::Before(Box::new(job)));
                }
                sqlx::query("UPDATE import_jobs SET idempotency_key = NULL WHERE number = ?")
                    .bind(job.number.0)
                    .execute(&mut *tx)
                    .await
                    .map_err(|e| self.error("free the idempotency key", e))?;
            }
        }
        let done = sqlx::query(
            "INSERT INTO import_jobs (id, tenant, name, format, topic, key_field, slice_records,
             idempotency_key, state, created_ms, updated_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'uploading', ?, ?)",
        )
        .bind(&new.id)
        .bind(new.tenant.as_str())
        .bind(&new.name)
        .bind(new.format.name())
        .bind(new.topic.display())
        .bind(&new.key_field)
        .bind(new.slice_records)
        .bind(&new.idempotency_key)
        .bind(now.0)
        .bind(now.0)
        .execute(&mut *tx)
        .await
        .map_err(|e| self.error("add a job", e))?;
        self.database.commit(tx, "add a job").await?;
        Ok(Created::New(JobNumber(done.last_insert_rowid())))
    }

    /// The upload is on disk: the job can run.
    pub async fn start(
        &self,
        job: JobNumber,
        bytes_total: u64,
        records_total: u64,
        producer: JobProducer,
        now: UnixMillis,
    ) -> Result<bool, ImportsError> {
        let done = sqlx::query(
            "UPDATE import_jobs SET state = 'running', bytes_total = ?, records_total = ?,
             producer_id = ?, partition_number = ?, updated_ms = ? WHERE number = ? AND state = 'uploading'",
        )
        .bind(signed(bytes_total))
        .bind(signed(records_total))
        .bind(producer.id)
        .bind(producer.partition)
        .bind(now.0)
        .bind(job.0)
        .execute(self.database.writer())
        .await
        .map_err(|e| self.error("start a job", e))?;
        Ok(done.rows_affected() == 1)
    }

    /// Ends a job that has not ended; false when it had.
    pub async fn end(
        &self,
        job: JobNumber,
        state: JobState,
        error: Option<&str>,
        now: UnixMillis,
    ) -> Result<bool, ImportsError> {
        let done = sqlx::query(
            "UPDATE import_jobs SET state = ?, error = ?, updated_ms = ?
             WHERE number = ? AND state IN ('uploading', 'running')",
        )
        .bind(state.name())
        .bind(error)
        .bind(now.0)
        .bind(job.0)
        .execute(self.database.writer())
        .await
        .map_err(|e| self.error("end a job", e))?;
        Ok(done.rows_affected() == 1)
    }

    /// Commits what a slice of a running job did; answers the job's state after it, or none when
    /// the job was ended meanwhile and nothing was written.
    pub async fn commit_slice(
        &self,
        job: &Job,
        slice: &Slice,
        placed: Option<Placed>,
        now: UnixMillis,
    ) -> Result<Option<JobState>, ImportsError> {
        let mut tx = self.database.begin().await?;
        let rejected = slice.rejected();
        let rejects_before = job.records_rejected > 0;
        let state = match (slice.last, rejected > 0 || rejects_before) {
            (false, _) => JobState::Running,
            (true, false) => JobState::Completed,
            (true, true) => JobState::CompletedWithRejects,
        };
        let progressed = sqlx::query(
            "UPDATE import_jobs SET records_done = records_done + ?1,
             records_rejected = records_rejected + ?2, bytes_done = ?3, next_ordinal = ?4,
             slices_done = slices_done + 1, state = ?5, updated_ms = ?6, error = NULL,
             records_total = CASE WHEN ?7 THEN records_done + records_rejected + ?1 + ?2
                 ELSE max(records_total, records_done + records_rejected + ?1 + ?2) END
             WHERE number = ?8 AND state = 'running' AND bytes_done = ?9",
        )
        .bind(signed(slice.records.len() as u64))
        .bind(signed(rejected as u64))
        .bind(signed(slice.end))
        .bind(slice.next_ordinal)
        .bind(state.name())
        .bind(now.0)
        .bind(slice.last)
        .bind(job.number.0)
        .bind(signed(job.bytes_done))
        .execute(&mut *tx)
        .await
        .map_err(|e| self.error("count a slice", e))?;
        if progressed.rows_affected() == 0 {
            return Ok(None);
        }
        for chunk in slice.records.chunks(ROWS_PER_INSERT) {
            let mut insert = QueryBuilder::<Sqlite>::new(
                "INSERT INTO import_records (tenant, id, format, title, body, job, ordinal) ",
            );
            insert.push_values(chunk, |mut row, record| {
                row.push_bind(job.tenant.as_str())
                    .push_bind(&record.id)
                    .push_bind(job.format.name())
                    .push_bind(&record.title)
                    .push_bind(&record.body)
                    .push_bind(job.number.0)
                    .push_bind(record.ordinal);
            });
            insert.push(
                " ON CONFLICT (tenant, id) DO UPDATE SET format = excluded.format,
                 title = excluded.title, body = excluded.body, job = excluded.job,
                 ordinal = excluded.ordinal",
            );
            insert
                .build()
                .execute(&mut *tx)
                .await
                .map_err(|e| self.error("store records", e))?;
        }
        for chunk in slice.remarks.chunks(ROWS_PER_INSERT) {
            let mut insert = QueryBuilder::<Sqlite>::new(
                "INSERT INTO import_journal (job, ordinal, position, kind, reason) ",
            );
            insert.push_values(chunk, |mut row, remark| {
                row.push_bind(job.number.0)
                    .push_bind(remark.ordinal)
                    .push_bind(signed(remark.offset))
                    .push_bind(if remark.repaired {
                        "repaired"
                    } else {
                        "rejected"
                    })
                    .push_bind(&remark.reason);
            });
            insert
                .build()
                .execute(&mut *tx)
                .await
                .map_err(|e| self.error("write the journal", e))?;
        }
        sqlx::query(
            "INSERT INTO import_slices (job, start, finish, first_ordinal, records, rejected,
             partition_number, base_offset, committed_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(job.number.0)
        .bind(signed(job.bytes_done))
        .bind(signed(slice.end))
        .bind(job.next_ordinal)
        .bind(signed(slice.records.len() as u64))
        .bind(signed(rejected as u64))
        .bind(placed.map(|placed| placed.partition))
        .bind(placed.map(|placed| placed.base_offset))
        .bind(now.0)
        .execute(&mut *tx)
        .await
        .map_err(|e| self.error("write the slice", e))?;
        self.database.commit(tx, "commit a slice").await?;
        Ok(Some(state))
    }

    /// Notes why a running job does not get on for the moment.
    pub async fn note(
        &self,
        job: JobNumber,
        error: &str,
        now: UnixMillis,
    ) -> Result<(), ImportsError> {
        sqlx::query(
            "UPDATE import_jobs SET error = ?, updated_ms = ?
             WHERE number = ? AND state = 'running'",
        )
        .bind(error)
        .bind(now.0)
        .bind(job.0)
        .execute(self.database.writer())
        .await
        .map_err(|e| self.error("note a job's trouble", e))?;
        Ok(())
    }

    pub async fn job(&self, id: &str) -> Result<Job, ImportsError> {
        let text = format!("SELECT {COLUMNS} FROM import_jobs WHERE id = ?");
        let row = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(id)
            .fetch_optional(self.database.readers())
            .await
            .map_err(|e| self.error("read a job", e))?;
        match row {
            Some(row) => self.job_of(&row),
            None => Err(ImportsError::NotFound(id.chars().take(ID_SHOWN).collect())),
        }
    }

    pub async fn job_numbered(&self, number: JobNumber) -> Result<Job, ImportsError> {
        let text = format!("SELECT {COLUMNS} FROM import_jobs WHERE number = ?");
        let row = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(number.0)
            .fetch_one(self.database.readers())
            .await
            .map_err(|e| self.error("read a job", e))?;
        self.job_of(&row)
    }

    /// The jobs of one tenant or all, newest first.
    pub async fn jobs(
        &self,
        tenant: Option<&TenantId>,
        count: u32,
    ) -> Result<Vec<Job>, ImportsError> {
        let text = format!(
            "SELECT {COLUMNS} FROM import_jobs WHERE ?1 IS NULL OR tenant = ?1
             ORDER BY number DESC LIMIT ?2"
        );
        self.listed(text, tenant.map(TenantId::as_str), count).await
    }

    /// What each tenant has imported, by name after `after`.
    pub async fn tenants(&self, after: &str, count: u32) -> Result<Vec<TenantUse>, ImportsError> {
        let rows = sqlx::query(
            "SELECT tenant, count(*) AS jobs,
             sum(state IN ('uploading', 'running')) AS jobs_active,
             sum(records_done) AS records_done, sum(records_rejected) AS records_rejected,
             sum(bytes_done) AS bytes_done, max(updated_ms) AS updated_ms
             FROM import_jobs WHERE tenant > ? GROUP BY tenant ORDER BY tenant LIMIT ?",
        )
        .bind(after)
        .bind(count)
        .fetch_all(self.database.readers())
        .await
        .map_err(|e| self.error("list tenants", e))?;
        let tenant = |row: &SqliteRow| {
            Ok(TenantUse {
                tenant: row.try_get("tenant")?,
                jobs: unsigned(row.try_get("jobs")?),
                jobs_active: unsigned(row.try_get("jobs_active")?),
                records_done: unsigned(row.try_get("records_done")?),
                records_rejected: unsigned(row.try_get("records_rejected")?),
                bytes_done: unsigned(row.try_get("bytes_done")?),
                updated_ms: row.try_get("updated_ms")?,
            })
        };
        rows.iter()
            .map(|row| tenant(row).map_err(|e| self.error("list tenants", e).into()))
            .collect()
    }

    /// The jobs that have not ended, oldest first.
    pub async fn unfinished(&self) -> Result<Vec<Job>, ImportsError> {
        let text = format!(
            "SELECT {COLUMNS} FROM import_jobs
             WHERE (?1 IS NULL) AND state IN ('uploading', 'running') ORDER BY number LIMIT ?2"
        );
        self.listed(text, None, u32::MAX).await
    }

    /// The journal of a job after an ordinal.
    pub async fn journal(
        &self,
        job: JobNumber,
        after: i64,
        count: u32,
    ) -> Result<Vec<JournalEntry>, ImportsError> {
        let rows = sqlx::query(
            "SELECT ordinal, position, kind, reason FROM import_journal
             WHERE job = ? AND ordinal > ? ORDER BY ordinal LIMIT ?",
        )
        .bind(job.0)
        .bind(after)
        .bind(count)
        .fetch_all(self.database.readers())
        .await
        .map_err(|e| self.error("read the journal", e))?;
        let entry = |row: &SqliteRow| {
            Ok(JournalEntry {
                ordinal: row.try_get("ordinal")?,
                offset: unsigned(row.try_get("position")?),
                kind: row.try_get("kind")?,
                reason: row.try_get("reason")?,
            })
        };
        rows.iter()
            .map(|row| entry(row).map_err(|e| self.error("read the journal", e).into()))
            .collect()
    }

    async fn listed(
        &self,
        text: String,
        tenant: Option<&str>,
        count: u32,
    ) -> Result<Vec<Job>, ImportsError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(tenant)
            .bind(count)
            .fetch_all(self.database.readers())
            .await
            .map_err(|e| self.error("list jobs", e))?;
        rows.iter().map(|row| self.job_of(row)).collect()
    }

    fn job_of(&self, row: &SqliteRow) -> Result<Job, ImportsError> {
        let read = || -> Result<Job, sqlx::Error> {
            let decode = |what: &str| sqlx::Error::Decode(what.to_owned().into());
            let topic: String = row.try_get("topic")?;
            let tenant: String = row.try_get("tenant")?;
            let format: String = row.try_get("format")?;
            let state: String = row.try_get("state")?;
            Ok(Job {
                number: JobNumber(row.try_get("number")?),
                id: row.try_get("id")?,
                tenant: tenant.parse().map_err(|_| decode("not a tenant"))?,
                name: row.try_get("name")?,
                format: Format::named(&format).ok_or_else(|| decode("not a format"))?,
                topic: topic
                    .parse::<TopicName>()
                    .map_err(|_| decode("not a topic"))?,
                key_field: row.try_get("key_field")?,
                slice_records: row.try_get("slice_records")?,
                state: JobState::named(&state).ok_or_else(|| decode("not a state"))?,
                producer: JobProducer {
                    id: row.try_get("producer_id")?,
                    partition: row.try_get("partition_number")?,
                },
                records_total: unsigned(row.try_get("records_total")?),
                records_done: unsigned(row.try_get("records_done")?),
                records_rejected: unsigned(row.try_get("records_rejected")?),
                bytes_total: unsigned(row.try_get("bytes_total")?),
                bytes_done: unsigned(row.try_get("bytes_done")?),
                next_ordinal: row.try_get("next_ordinal")?,
                slices_done: unsigned(row.try_get("slices_done")?),
                created: UnixMillis(row.try_get("created_ms")?),
                updated: UnixMillis(row.try_get("updated_ms")?),
                error: row.try_get("error")?,
            })
        };
        read().map_err(|e| self.error("read a job", e).into())
    }

    fn error(&self, what: &'static str, source: sqlx::Error) -> SqlError {
        self.database.error(what, source)
    }
}

/// What became of a wish for a new job.
pub(crate) enum Created {
    New(JobNumber),
    /// The idempotency key was used before, for this job.
    Before(Box<Job>),
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Seven parameters a row: far below SQLite's bound, and one prepared statement for most chunks.
const ROWS_PER_INSERT: usize = 50;

/// How much of an unknown id is repeated to the caller, in characters.
const ID_SHOWN: usize = 64;

const COLUMNS: &str = "number, id, tenant, name, format, topic, key_field, slice_records, state,
    producer_id, partition_number, records_total, records_done, records_rejected, bytes_total, bytes_done,
    next_ordinal, slices_done, created_ms, updated_ms, error";

const SCHEMA: Schema = Schema {
    name: "imports",
    oldest: 1,
    migrations: &[Migration {
        number: 1,
        name: "jobs, records, journal and slices",
        text: "
CREATE TABLE import_jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    format TEXT NOT NULL,
    topic TEXT NOT NULL,
    key_field TEXT,
    slice_records BIGINT NOT NULL,
    idempotency_key TEXT,
    state TEXT NOT NULL,
    producer_id BIGINT NOT NULL DEFAULT -1,
    partition_number INTEGER NOT NULL DEFAULT 0,
    records_total BIGINT NOT NULL DEFAULT 0,
    records_done BIGINT NOT NULL DEFAULT 0,
    records_rejected BIGINT NOT NULL DEFAULT 0,
    bytes_total BIGINT NOT NULL DEFAULT 0,
    bytes_done BIGINT NOT NULL DEFAULT 0,
    next_ordinal BIGINT NOT NULL DEFAULT 1,
    slices_done BIGINT NOT NULL DEFAULT 0,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    error TEXT
);
CREATE UNIQUE INDEX import_jobs_by_key ON import_jobs (tenant, idempotency_key);
CREATE INDEX import_jobs_unfinished ON import_jobs (state) WHERE state IN ('uploading', 'running');
CREATE TABLE import_records (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    format TEXT NOT NULL,
    title TEXT,
    body TEXT NOT NULL,
    job BIGINT NOT NULL,
    ordinal BIGINT NOT NULL
);
CREATE UNIQUE INDEX import_records_by_id ON import_records (tenant, id);
CREATE TABLE import_journal (
    job BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    position BIGINT NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (job, ordinal)
) WITHOUT ROWID;
CREATE TABLE import_slices (
    job BIGINT NOT NULL,
    start BIGINT NOT NULL,
    finish BIGINT NOT NULL,
    first_ordinal BIGINT NOT NULL,
    records BIGINT NOT NULL,
    rejected BIGINT NOT NULL,
    partition_number BIGINT,
    base_offset BIGINT,
    committed_ms BIGINT NOT NULL,
    PRIMARY KEY (job, start)
) WITHOUT ROWID;
",
    }],
};
