//! What slices did, as one transaction: records, journal, progress, and the job's end with its last
//! slice. So a job that is complete is complete, and its counts can be counted again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base::{TenantId, UnixMillis};
use sql::{Conflict, Insert, Statement, Transaction, Value};
use streams::Placed;

use crate::error::ImportsError;
use crate::job::{Job, JobState};
use crate::keys::Selectors;
use crate::limits;
use crate::policy::{BY_ID, Decided, Keys, decide, replaces, replacing, there};
use crate::registry::{Registry, signed};
use crate::slice::{Remark, RemarkKind, Slice, SliceRecord};

/// What came of a slice's commit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Committed {
    /// It is in, and this is the job now.
    Job(Arc<Job>),
    /// Nothing was written: the job was stopped, or another process has taken it over.
    Fenced,
    /// Nothing was written: the tenant's records are found by more selectors than the slices were
    /// read for.
    Outdated,
    /// Nothing was written, as the topic took longer than the database is held for. The slices are in
    /// the topic; when they come again it recognizes them.
    Late,
}

/// Who commits: the lease's token, and how long the lease lasts from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub token: i64,
    pub lasts: Duration,
}

/// How a slice is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing<'w> {
    pub lease: Lease,
    /// Those that the slice was read for.
    pub selectors: &'w Selectors,
    /// Records in one statement.
    pub rows: usize,
}

/// Slices that are committed together: their records in the file's order, and what else is of each.
struct Turn {
    records: Vec<SliceRecord>,
    /// Where each slice's records begin among these.
    slices: Vec<(usize, Slice)>,
}

impl Turn {
    fn of(slices: Vec<Slice>) -> Turn {
        let mut turn = Turn {
            records: Vec::new(),
            slices: Vec::with_capacity(slices.len()),
        };
        for mut slice in slices {
            let begin = turn.records.len();
            turn.records.append(&mut slice.records);
            turn.slices.push((begin, slice));
        }
        turn
    }

    /// The slice of a record.
    fn slice_of(&self, record: usize) -> Option<&Slice> {
        let after = self.slices.partition_point(|(begin, _)| *begin <= record);
        let (_, slice) = self.slices.get(after.checked_sub(1)?)?;
        Some(slice)
    }

    /// What is to be journaled.
    fn remarks(&self, decided: &Decided) -> Vec<Remark> {
        let of_policy = decided.remarks.iter().filter_map(|(index, kind, reason)| {
            let (record, slice) = (self.records.get(*index)?, self.slice_of(*index)?);
            Some(slice.remark_on(record, *kind, reason.clone()))
        });
        let of_slices = self.slices.iter().map(|(_, slice)| &slice.remarks);
        of_slices.flatten().cloned().chain(of_policy).collect()
    }

    /// Each slice's row, but for where its records went in the topic, which comes last.
    fn places(&self, job: &Job, remarks: &[Remark], now: UnixMillis) -> Vec<Vec<Value>> {
        let mut first = job.next_ordinal;
        let row = |(number, (begin, slice)): (usize, &(usize, Slice))| {
            let end = self
                .slices
                .get(number + 1)
                .map_or(self.records.len(), |(next, _)| *next);
            let ordinals = first..slice.next_ordinal;
            first = slice.next_ordinal;
            let is_rejected = |remark: &&Remark| {
                remark.kind == RemarkKind::Rejected && ordinals.contains(&remark.ordinal)
            };
            let rejected = remarks.iter().filter(is_rejected).count();
            let before = slice.remarks.iter().filter(is_rejected).count();
            let done = end - begin - (rejected - before);
            vec![
                Value::from(job.number.0),
                signed(slice.start).into(),
                signed(slice.end).into(),
                ordinals.start.into(),
                signed(done as u64).into(),
                signed(rejected as u64).into(),
                now.0.into(),
            ]
        };
        self.slices.iter().enumerate().map(row).collect()
    }
}

/// A transaction with the records. What is to go with them waits for where they went in the topic.
struct Written<'w> {
    tx: Transaction,
    job: &'w Job,
    /// The job's counts and the tenant's, and what else is of the turn.
    counts: Vec<Statement>,
    places: Vec<Vec<Value>>,
    keys: Keys,
    remarks: Vec<Remark>,
    /// The job as it is afterwards.
    after: Job,
}

impl Written<'_> {
    async fn commit(mut self, placed: Vec<Option<Placed>>) -> Result<Committed, ImportsError> {
        for (row, placed) in self.places.iter_mut().zip(placed) {
            row.push(placed.map(|placed| i64::from(placed.partition)).into());
            row.push(placed.map(|placed| placed.base_offset).into());
        }
        let (mut tx, mut statements) = (self.tx, self.counts);
        // Whoever was fenced off finds rows of another there.
        statements.push(tx.dialect().insert(&INSERT_SLICE, self.places));
        let found = tx.run_together("count a slice", statements).await?;
        match found.as_slice() {
            [0, ..] => return Ok(Committed::Fenced),
            [_, 0, ..] => return Ok(Committed::Outdated),
            _ => {}
        }
        self.keys.write(&mut tx, &self.job.tenant).await?;
        let remarks = self.remarks.into_iter();
        let remarks = remarks.map(|remark| remark_row(self.job, remark)).collect();
        tx.insert("write the journal", &INSERT_REMARK, remarks)
            .await?;
        tx.commit("commit a slice").await?;
        Ok(Committed::Job(Arc::new(self.after)))
    }
}

impl Registry {
    /// Commits what slices of a running job did that follow each other, once `sending` has answered
    /// where each one's records went in the topic. What is to be committed is written meanwhile, and
    /// taken back where that takes long: others wait for it.
    pub async fn commit_slices(
        &self,
        job: &Job,
        slices: Vec<Slice>,
        sending: impl Future<Output = Result<Vec<Option<Placed>>, ImportsError>>,
        writing: Writing<'_>,
        now: UnixMillis,
    ) -> Result<Committed, ImportsError> {
        let mut sending = pin!(sending);
        let (placed, written) = tokio::join!(
            tokio::time::timeout(limits::HELD_FOR_TOPIC_MAX, sending.as_mut()),
            self.write(job, slices, writing, now)
        );
        let Ok(placed) = placed else {
            drop(written);
            sending.await?;
            return Ok(Committed::Late);
        };
        let placed = placed?;
        match written? {
            Some(written) => written.commit(placed).await,
            None => Ok(Committed::Job(Arc::new(job.clone()))),
        }
    }

    /// Writes the records of slices, if there are any slices, and does not commit them.
    async fn write<'w>(
        &self,
        job: &'w Job,
        slices: Vec<Slice>,
        Writing {
            lease,
            selectors,
            rows: rows_at_once,
        }: Writing<'_>,
        now: UnixMillis,
    ) -> Result<Option<Written<'w>>, ImportsError> {
        let Some(latest) = slices.last() else {
            return Ok(None);
        };
        let (next, last) = (latest.next(), latest.last);
        let turn = Turn::of(slices);
        let mut tx = self.database.begin().await?;
        // One slice of a tenant at a time, so that what is found below stays so.
        lock_tenant(&mut tx, &job.tenant).await?;
        let is_told = job.sink.has_records() && replaces(&job.profile, selectors);
        let (mut decided, keys) = if is_told {
            (replacing(&turn.records), Keys::default())
        } else if job.sink.has_records() {
            let there = there(&mut tx, job, &turn.records).await?;
            let own = selectors.prefix_of(&job.profile);
            let decided = decide(&job.profile, own, &turn.records, &there);
            let keys = Keys::of(&job.tenant, &decided, &turn.records, &there, selectors);
            (decided, keys)
        } else {
            let created = turn.records.len() as u64;
            let decided = Decided {
                created,
                ..Decided::default()
            };
            (decided, Keys::default())
        };
        let remarks = turn.remarks(&decided);
        let places = turn.places(job, &remarks, now);
        let sent = match job.sink.has_topic() {
            true => turn.records.len() as u64,
            false => 0,
        };
        let has_rows = !decided.rows.is_empty();
        let rows = rows(job, turn.records, std::mem::take(&mut decided.rows));
        let there = store(&mut tx, rows, rows_at_once, is_told).await?;
        decided.created -= there;
        decided.updated += there;
        let count = |kind| remarks.iter().filter(|remark| remark.kind == kind).count() as u64;
        let (rejected, skipped) = (count(RemarkKind::Rejected), count(RemarkKind::Skipped));
        let done = decided.created + decided.updated + skipped;
        let state = match (last, job.records_rejected + rejected) {
            (false, _) => JobState::Running,
            (true, 0) => JobState::Completed,
            (true, _) => JobState::CompletedWithRejects,
        };
        let seen = job.records_done + job.records_rejected + done + rejected;
        let after = Job {
            records_done: job.records_done + done,
            records_created: job.records_created + decided.created,
            records_updated: job.records_updated + decided.updated,
            records_skipped: job.records_skipped + skipped,
            records_rejected: job.records_rejected + rejected,
            records_sent: job.records_sent + sent,
            records_total: if last {
                seen
            } else {
                job.records_total.max(seen)
            },
            bytes_done: next.offset,
            next_ordinal: next.ordinal,
            slices_done: job.slices_done + turn.slices.len() as u64,
            state,
            updated: now,
            error: None,
            ..job.clone()
        };
        let progress = self.while_it_fits(progress(job, &after, lease, now));
        let mut counts = vec![progress, count_of_tenant(job, &after, selectors, now)];
        if has_rows {
            let queued = vec![
                Value::from(job.tenant.as_str()),
                job.number.0.into(),
                job.next_ordinal.into(),
                (next.ordinal - 1).into(),
                now.0.into(),
            ];
            counts.push(tx.dialect().insert(&INSERT_QUEUED, vec![queued]));
        }
        Ok(Some(Written {
            tx,
            job,
            counts,
            places,
            keys,
            remarks,
            after,
        }))
    }
}

/// Writes the job as it is `after` slices, where it is still as it was `before` and still whose lease
/// it is.
fn progress(before: &Job, after: &Job, lease: Lease, now: UnixMillis) -> Statement {
    let progress = Statement::new(
        "UPDATE import_jobs SET records_done = ?, records_created = ?, records_updated = ?,
         records_skipped = ?, records_rejected = ?, records_sent = ?, records_total = ?,
         bytes_done = ?, next_ordinal = ?, slices_done = ?, state = ?, updated_ms = ?, lease_until_ms = ?,
         error = NULL
         WHERE number = ? AND state = 'running' AND bytes_done = ? AND token = ?",
    );
    let counted = [
        after.records_done,
        after.records_created,
        after.records_updated,
        after.records_skipped,
        after.records_rejected,
        after.records_sent,
        after.records_total,
    ];
    counted
        .into_iter()
        .fold(progress, |statement, count| statement.bind(signed(count)))
        .bind(signed(after.bytes_done))
        .bind(after.next_ordinal)
        .bind(signed(after.slices_done))
        .bind(after.state.name())
        .bind(now.0)
        .bind(now.0 + i64::try_from(lease.lasts.as_millis()).unwrap_or(0))
        .bind(before.number.0)
        .bind(signed(before.bytes_done))
        .bind(lease.token)
}

/// Adds to the tenant's counts what was done between two states of a job, where its records are still
/// found by what the slices were read for.
fn count_of_tenant(before: &Job, after: &Job, selectors: &Selectors, now: UnixMillis) -> Statement {
    let more = |of: fn(&Job) -> u64| signed(of(after) - of(before));
    let tenant = Statement::new(
        "UPDATE import_tenants SET records_done = records_done + ?,
         records_rejected = records_rejected + ?, bytes_done = bytes_done + ?, updated_ms = ?
         WHERE tenant = ?",
    )
    .bind(more(|job| job.records_done))
    .bind(more(|job| job.records_rejected))
    .bind(more(|job| job.bytes_done))
    .bind(now.0)
    .bind(before.tenant.as_str());
    match before.sink.has_records() {
        true => tenant.push(" AND selectors = ?").bind(selectors.revision),
        false => tenant,
    }
}

/// Takes the tenant's lock until the transaction's end; a file has one lock for all.
pub(crate) async fn lock_tenant(
    tx: &mut Transaction,
    tenant: &TenantId,
) -> Result<(), ImportsError> {
    if tx.dialect().is_shared() {
        let lock = "UPDATE import_tenants SET slices = slices + 1 WHERE tenant = ?";
        let lock = Statement::new(lock).bind(tenant.as_str());
        tx.run("lock the tenant", &lock).await?;
    }
    Ok(())
}

/// Writes records' rows, so many with a statement; tells how many were there before, where that
/// `is_told` by the statements themselves.
async fn store(
    tx: &mut Transaction,
    mut rows: Vec<Vec<Value>>,
    at_once: usize,
    is_told: bool,
) -> Result<u64, ImportsError> {
    let (what, mut there) = ("store records", 0);
    while !rows.is_empty() {
        let rest = rows.split_off(rows.len().min(at_once.max(1)));
        let some = std::mem::replace(&mut rows, rest);
        match is_told {
            true => there += tx.replace(what, &INSERT_RECORD, &BY_ID, some).await?,
            false => tx.insert(what, &INSERT_RECORD, some).await?,
        }
    }
    Ok(there)
}

fn rows(job: &Job, records: Vec<SliceRecord>, wanted: Vec<(usize, String)>) -> Vec<Vec<Value>> {
    let mut records: Vec<Option<SliceRecord>> = records.into_iter().map(Some).collect();
    let row = |(index, id): (usize, String)| {
        let record = records.get_mut(index)?.take()?;
        Some(vec![
            Value::from(job.tenant.as_str()),
            id.into(),
            job.format.name().into(),
            Value::Text(record.title),
            Value::Text(record.fields),
            record.body.into(),
            job.number.0.into(),
            record.ordinal.into(),
            1.into(),
        ])
    };
    wanted.into_iter().filter_map(row).collect()
}

fn remark_row(job: &Job, remark: Remark) -> Vec<Value> {
    vec![
        Value::from(job.number.0),
        remark.ordinal.into(),
        remark.kind.name().into(),
        signed(remark.offset).into(),
        remark.reason.into(),
        Value::Bytes(remark.raw),
    ]
}

const INSERT_RECORD: Insert = Insert {
    table: "import_records",
    columns: &[
        "tenant", "id", "format", "title", "fields", "body", "job", "ordinal", "version",
    ],
    conflict: Conflict::Replace {
        key: &["tenant", "id"],
        columns: &["format", "title", "fields", "body", "job", "ordinal"],
    },
};

const INSERT_REMARK: Insert = Insert {
    table: "import_journal",
    columns: &["job", "ordinal", "kind", "position", "reason", "raw"],
    conflict: Conflict::Fail,
};

const INSERT_SLICE: Insert = Insert {
    table: "import_slices",
    columns: &[
        "job",
        "start",
        "finish",
        "first_ordinal",
        "records",
        "rejected",
        "committed_ms",
        "partition_number",
        "base_offset",
    ],
    conflict: Conflict::Keep {
        key: &["job", "start"],
    },
};

const INSERT_QUEUED: Insert = Insert {
    table: "import_index_queue",
    columns: &[
        "tenant",
        "job",
        "first_ordinal",
        "last_ordinal",
        "queued_ms",
    ],
    conflict: Conflict::Keep {
        key: &["tenant", "job", "first_ordinal"],
    },
};
