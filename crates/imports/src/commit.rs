//! What slices did, as one transaction: records, journal, progress, and the job's end with its last
//! slice. So a job that is complete is complete, and its counts can be counted again.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use base::UnixMillis;
use sql::{Conflict, Insert, Lookup, Statement, Transaction, Value};
use streams::Placed;

use crate::error::ImportsError;
use crate::job::{Job, JobState};
use crate::limits;
use crate::profile::{OnMatch, OnNoMatch, Profile};
use crate::registry::{Registry, signed};
use crate::slice::{Remark, RemarkKind, Slice, SliceRecord};

/// What came of a slice's commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// It is in, and this is the job's state now.
    State(JobState),
    /// Nothing was written: the job was stopped, or another process has taken it over.
    Fenced,
}

/// Who commits: the lease's token, and how long the lease lasts from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub token: i64,
    pub lasts: Duration,
}

/// How a slice is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    pub lease: Lease,
    /// Records in one statement.
    pub rows: usize,
}

/// A slice, and where its records went in the topic.
#[derive(Debug)]
pub(crate) struct Sent {
    pub slice: Slice,
    pub placed: Option<Placed>,
}

/// Slices that are committed together: their records in the file's order, and what else is of each.
struct Turn {
    records: Vec<SliceRecord>,
    /// Where each slice's records begin among these.
    slices: Vec<(usize, Sent)>,
    /// Records that went to the topic.
    sent: u64,
}

impl Turn {
    fn of(slices: Vec<Sent>) -> Turn {
        let mut turn = Turn {
            records: Vec::new(),
            slices: Vec::with_capacity(slices.len()),
            sent: 0,
        };
        for mut sent in slices {
            let begin = turn.records.len();
            turn.records.append(&mut sent.slice.records);
            turn.sent += sent
                .placed
                .map_or(0, |_| (turn.records.len() - begin) as u64);
            turn.slices.push((begin, sent));
        }
        turn
    }

    /// The slice of a record.
    fn slice_of(&self, record: usize) -> Option<&Slice> {
        let after = self.slices.partition_point(|(begin, _)| *begin <= record);
        let (_, sent) = self.slices.get(after.checked_sub(1)?)?;
        Some(&sent.slice)
    }

    /// What is to be journaled.
    fn remarks(&self, decided: &Decided) -> Vec<Remark> {
        let of_policy = decided.remarks.iter().filter_map(|(index, kind, reason)| {
            let (record, slice) = (self.records.get(*index)?, self.slice_of(*index)?);
            Some(slice.remark_on(record, *kind, reason.clone()))
        });
        let of_slices = self.slices.iter().map(|(_, sent)| &sent.slice.remarks);
        of_slices.flatten().cloned().chain(of_policy).collect()
    }

    /// Each slice's row.
    fn places(&self, job: &Job, remarks: &[Remark], now: UnixMillis) -> Vec<Vec<Value>> {
        let mut first = job.next_ordinal;
        let row = |(number, (begin, sent)): (usize, &(usize, Sent))| {
            let Sent { slice, placed } = sent;
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
                placed.map(|placed| i64::from(placed.partition)).into(),
                placed.map(|placed| placed.base_offset).into(),
                now.0.into(),
            ]
        };
        self.slices.iter().enumerate().map(row).collect()
    }
}

/// What the profile's policy made of a slice's records.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decided {
    /// Rows to write: the index of the record, and the id under which it is stored.
    rows: Vec<(usize, String)>,
    created: u64,
    updated: u64,
    remarks: Vec<(usize, RemarkKind, String)>,
}

impl Registry {
    /// Commits what slices of a running job did that follow each other.
    pub async fn commit_slices(
        &self,
        job: &Job,
        slices: Vec<Sent>,
        Writing {
            lease,
            rows: rows_at_once,
        }: Writing,
        now: UnixMillis,
    ) -> Result<Committed, ImportsError> {
        let Some(Sent { slice: latest, .. }) = slices.last() else {
            return Ok(Committed::State(job.state));
        };
        let (next, last) = (latest.next(), latest.last);
        let turn = Turn::of(slices);
        let mut tx = self.database.begin().await?;
        if self.is_shared() {
            // One slice of a tenant at a time, so that what is found below stays so.
            let lock = "UPDATE import_tenants SET slices = slices + 1 WHERE tenant = ?";
            let lock = Statement::new(lock).bind(job.tenant.as_str());
            tx.run("lock the tenant", &lock).await?;
        }
        let decided = if job.sink.has_records() {
            let there = there(&mut tx, job, &turn.records).await?;
            decide(&job.profile, &turn.records, &there)
        } else {
            let created = turn.records.len() as u64;
            Decided {
                created,
                ..Decided::default()
            }
        };
        let remarks = turn.remarks(&decided);
        let count = |kind| remarks.iter().filter(|remark| remark.kind == kind).count() as u64;
        let (rejected, skipped) = (count(RemarkKind::Rejected), count(RemarkKind::Skipped));
        let done = decided.created + decided.updated + skipped;
        let state = match (last, job.records_rejected + rejected) {
            (false, _) => JobState::Running,
            (true, 0) => JobState::Completed,
            (true, _) => JobState::CompletedWithRejects,
        };
        let seen = job.records_done + job.records_rejected + done + rejected;
        let total = if last {
            seen
        } else {
            job.records_total.max(seen)
        };
        let progress = Statement::new(
            "UPDATE import_jobs SET records_done = records_done + ?,
             records_created = records_created + ?, records_updated = records_updated + ?,
             records_skipped = records_skipped + ?, records_rejected = records_rejected + ?,
             records_sent = records_sent + ?, records_total = ?, bytes_done = ?, next_ordinal = ?,
             slices_done = slices_done + ?, state = ?, updated_ms = ?, lease_until_ms = ?,
             error = NULL
             WHERE number = ? AND state = 'running' AND bytes_done = ? AND token = ?",
        );
        let counts = [
            done,
            decided.created,
            decided.updated,
            skipped,
            rejected,
            turn.sent,
            total,
        ];
        let progress = counts
            .into_iter()
            .fold(progress, |statement, count| statement.bind(signed(count)))
            .bind(signed(next.offset))
            .bind(next.ordinal)
            .bind(signed(turn.slices.len() as u64))
            .bind(state.name())
            .bind(now.0)
            .bind(now.0 + i64::try_from(lease.lasts.as_millis()).unwrap_or(0))
            .bind(job.number.0)
            .bind(signed(job.bytes_done))
            .bind(lease.token);
        if tx.run("count a slice", &progress).await? == 0 {
            return Ok(Committed::Fenced);
        }
        let tenant = Statement::new(
            "UPDATE import_tenants SET records_done = records_done + ?,
             records_rejected = records_rejected + ?, bytes_done = bytes_done + ?, updated_ms = ?
             WHERE tenant = ?",
        )
        .bind(signed(done))
        .bind(signed(rejected))
        .bind(signed(next.offset - job.bytes_done))
        .bind(now.0)
        .bind(job.tenant.as_str());
        tx.run("count for the tenant", &tenant).await?;
        let places = turn.places(job, &remarks, now);
        let remarks = remarks.into_iter().map(|r| remark_row(job, r)).collect();
        if !decided.rows.is_empty() {
            let queued = vec![
                Value::from(job.tenant.as_str()),
                job.number.0.into(),
                job.next_ordinal.into(),
                (next.ordinal - 1).into(),
                now.0.into(),
            ];
            tx.insert(
                "queue a slice for the search index",
                &INSERT_QUEUED,
                vec![queued],
            )
            .await?;
        }
        let mut rows = rows(job, turn.records, decided.rows);
        while !rows.is_empty() {
            let rest = rows.split_off(rows.len().min(rows_at_once.max(1)));
            let some = std::mem::replace(&mut rows, rest);
            tx.insert("store records", &INSERT_RECORD, some).await?;
        }
        tx.insert("write the journal", &INSERT_REMARK, remarks)
            .await?;
        tx.insert("write the slices", &INSERT_SLICE, places).await?;
        tx.commit("commit a slice").await?;
        Ok(Committed::State(state))
    }
}

/// What is in the sink already of a slice's records.
#[derive(Debug, Default)]
struct There {
    ids: HashSet<String>,
    /// The id of the record that has a match value.
    matches: HashMap<String, String>,
}

async fn there(
    tx: &mut Transaction,
    job: &Job,
    records: &[SliceRecord],
) -> Result<There, ImportsError> {
    let what = "look for records that are there";
    let mut there = There::default();
    let tenant = job.tenant.as_str();
    for chunk in records.chunks(limits::IDS_PER_STATEMENT) {
        let ids = chunk.iter().map(|record| record.id.clone()).collect();
        for row in tx.look_up(what, &BY_ID, tenant, ids).await? {
            there
                .ids
                .insert(row.text("id").map_err(|e| tx.error(what, e))?);
        }
    }
    let keys = records.iter().filter_map(|record| match_key(job, record));
    let keys: Vec<String> = keys.collect();
    for chunk in keys.chunks(limits::IDS_PER_STATEMENT) {
        for row in tx.look_up(what, &BY_MATCH, tenant, chunk.to_vec()).await? {
            let read = || Ok((row.text("match_key")?, row.text("id")?));
            let (key, id): (String, String) = read().map_err(|e| tx.error(what, e))?;
            let Some((_, value)) = key.split_once('/') else {
                continue;
            };
            // Of several that have the value the least is found, every time.
            match there.matches.get_mut(value) {
                Some(found) => *found = id.min(std::mem::take(found)),
                None => drop(there.matches.insert(value.to_owned(), id)),
            }
        }
    }
    Ok(there)
}

/// Under which a record with a match value is found; no tenant's name has a `/`.
fn match_key(job: &Job, record: &SliceRecord) -> Option<String> {
    let value = record.match_value.as_deref()?;
    Some(format!("{}/{value}", job.tenant.as_str()))
}

/// Applies the policy to a slice's records in the file's order; one record may match another one
/// before it.
fn decide(profile: &Profile, records: &[SliceRecord], there: &There) -> Decided {
    let mut decided = Decided::default();
    // By the id under which it is stored: its place in `rows`.
    let mut row_of: HashMap<String, usize> = HashMap::new();
    let mut matched: HashMap<&str, String> = HashMap::new();
    for (index, record) in records.iter().enumerate() {
        let by_id = |id: &str| there.ids.contains(id) || row_of.contains_key(id);
        let found = match (&profile.match_on, &record.match_value) {
            (None, _) => by_id(&record.id).then(|| record.id.clone()),
            (Some(_), None) => None,
            (Some(_), Some(value)) => matched
                .get(value.as_str())
                .or_else(|| there.matches.get(value))
                .cloned(),
        };
        let by = profile.match_on.as_deref().unwrap_or("its id");
        let mut remark = |kind, reason| decided.remarks.push((index, kind, reason));
        let id = match (found, profile.on_match, profile.on_no_match) {
            (Some(id), OnMatch::Update, _) => {
                decided.updated += 1;
                id
            }
            (Some(id), OnMatch::Skip, _) => {
                remark(
                    RemarkKind::Skipped,
                    format!("'{id}' is there already, by {by}"),
                );
                continue;
            }
            (Some(id), OnMatch::Fail, _) => {
                remark(
                    RemarkKind::Rejected,
                    format!("'{id}' is there already, by {by}"),
                );
                continue;
            }
            (None, _, OnNoMatch::Skip) => {
                remark(RemarkKind::Skipped, format!("no record is there, by {by}"));
                continue;
            }
            (None, _, OnNoMatch::Fail) => {
                remark(RemarkKind::Rejected, format!("no record is there, by {by}"));
                continue;
            }
            (None, _, OnNoMatch::Create) if by_id(&record.id) => {
                let reason = format!("'{}' is there already, but not by {by}", record.id);
                remark(RemarkKind::Rejected, reason);
                continue;
            }
            (None, _, OnNoMatch::Create) => {
                decided.created += 1;
                record.id.clone()
            }
        };
        if let Some(value) = &record.match_value {
            matched.insert(value, id.clone());
        }
        // Of several of one id the last one stays.
        match row_of.get(&id) {
            Some(row) => decided.rows[*row].0 = index,
            None => {
                row_of.insert(id.clone(), decided.rows.len());
                decided.rows.push((index, id));
            }
        }
    }
    decided
}

fn rows(job: &Job, records: Vec<SliceRecord>, wanted: Vec<(usize, String)>) -> Vec<Vec<Value>> {
    let mut records: Vec<Option<SliceRecord>> = records.into_iter().map(Some).collect();
    let row = |(index, id): (usize, String)| {
        let record = records.get_mut(index)?.take()?;
        Some(vec![
            Value::from(job.tenant.as_str()),
            id.into(),
            Value::Text(match_key(job, &record)),
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

const BY_ID: Lookup = Lookup {
    table: "import_records",
    columns: &["id"],
    among: "id",
    of: Some("tenant"),
};

const BY_MATCH: Lookup = Lookup {
    table: "import_records",
    columns: &["id", "match_key"],
    among: "match_key",
    of: None,
};

const INSERT_RECORD: Insert = Insert {
    table: "import_records",
    columns: &[
        "tenant",
        "id",
        "match_key",
        "format",
        "title",
        "fields",
        "body",
        "job",
        "ordinal",
        "version",
    ],
    conflict: Conflict::Replace {
        key: &["tenant", "id"],
        columns: &[
            "match_key",
            "format",
            "title",
            "fields",
            "body",
            "job",
            "ordinal",
        ],
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
        "partition_number",
        "base_offset",
        "committed_ms",
    ],
    conflict: Conflict::Fail,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, value: Option<&str>) -> SliceRecord {
        SliceRecord::plain(id, value)
    }

    fn profile(text: &str) -> Profile {
        serde_json::from_str(text).unwrap()
    }

    fn there(ids: &[&str], matches: &[(&str, &str)]) -> There {
        There {
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            matches: matches
                .iter()
                .map(|(value, id)| ((*value).to_owned(), (*id).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn the_last_of_one_id_stays_and_all_are_counted() {
        let records = [record("a", None), record("b", None), record("a", None)];
        let decided = decide(&Profile::default(), &records, &there(&["b"], &[]));
        assert_eq!(decided.rows, [(2, "a".to_owned()), (1, "b".to_owned())]);
        assert_eq!((decided.created, decided.updated), (1, 2));
    }

    #[test]
    fn a_match_updates_the_record_that_has_the_value() {
        let by_isbn = profile(r#"{"match": "isbn"}"#);
        let records = [
            record("new", Some("1")),
            record("own", Some("2")),
            record("again", Some("2")),
            record("bare", None),
            record("taken", Some("3")),
        ];
        let decided = decide(
            &by_isbn,
            &records,
            &there(&["old", "taken"], &[("1", "old")]),
        );
        let rows = [(0, "old"), (2, "own"), (3, "bare")].map(|(n, id)| (n, id.to_owned()));
        assert_eq!(decided.rows, rows);
        assert_eq!((decided.created, decided.updated), (2, 2));
        assert_eq!(decided.remarks.len(), 1, "{:?}", decided.remarks);
        assert_eq!(decided.remarks[0].1, RemarkKind::Rejected);
    }

    #[test]
    fn each_policy_does_what_its_name_says() {
        let records = [record("old", None), record("new", None)];
        let there = there(&["old"], &[]);
        let kinds = |text: &str| {
            let decided = decide(&profile(text), &records, &there);
            let kinds: Vec<_> = decided
                .remarks
                .iter()
                .map(|(n, kind, _)| (*n, *kind))
                .collect();
            (decided.created, decided.updated, kinds)
        };
        let (skipped, rejected) = (RemarkKind::Skipped, RemarkKind::Rejected);
        assert_eq!(kinds(r#"{"on_match": "skip"}"#), (1, 0, vec![(0, skipped)]));
        assert_eq!(
            kinds(r#"{"on_match": "fail"}"#),
            (1, 0, vec![(0, rejected)])
        );
        assert_eq!(
            kinds(r#"{"on_no_match": "skip"}"#),
            (0, 1, vec![(1, skipped)])
        );
        assert_eq!(
            kinds(r#"{"on_no_match": "fail"}"#),
            (0, 1, vec![(1, rejected)])
        );
    }
}
