//! A job: what is imported, for whom, and how far it is.

use base::{TenantId, UnixMillis};
use serde::{Deserialize, Serialize};
use streams::TopicName;

use crate::schedule::JobNumber;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON Lines: one JSON object per line.
    Jsonl,
    /// MARC 21 in ISO 2709.
    Marc,
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Its file is coming in.
    Uploading,
    /// Its slices are being imported, or wait for their turn.
    Running,
    /// Every record is in topic and sink.
    Completed,
    /// Every record is in topic and sink but those that the journal names.
    CompletedWithRejects,
    /// It ended with the error that it shows.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

/// A job as its registry has it; the counts are those of committed rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub(crate) number: JobNumber,
    /// Its id, which others use.
    pub id: String,
    /// For whom.
    pub tenant: TenantId,
    /// What people call it.
    pub name: String,
    /// The file's format.
    pub format: Format,
    /// The topic that gets the records.
    pub topic: TopicName,
    /// The JSONL field that holds the id.
    pub key_field: Option<String>,
    pub(crate) slice_records: u32,
    /// Where it is in its life.
    pub state: JobState,
    pub(crate) producer: JobProducer,
    /// Records that the file seems to hold; exact once the job has ended.
    pub records_total: u64,
    /// Records in topic and sink.
    pub records_done: u64,
    /// Records that the journal names as rejected.
    pub records_rejected: u64,
    /// The file's size; while it is uploading, the bytes so far.
    pub bytes_total: u64,
    /// How far into the file the committed slices go.
    pub bytes_done: u64,
    pub(crate) next_ordinal: i64,
    /// Slices committed.
    pub slices_done: u64,
    /// When it was created.
    pub created: UnixMillis,
    /// When it last got on.
    pub updated: UnixMillis,
    /// Why it failed, or does not get on for the moment.
    pub error: Option<String>,
}

/// Under which name and where a job's records go into its topic: fixed for the job's life, so that
/// a slice that comes again after a crash is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobProducer {
    pub id: i64,
    pub partition: i32,
}

/// What a new job is to be.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub(crate) id: String,
    pub(crate) tenant: TenantId,
    pub(crate) name: String,
    pub(crate) format: Format,
    pub(crate) topic: TopicName,
    pub(crate) key_field: Option<String>,
    pub(crate) slice_records: u32,
    pub(crate) idempotency_key: Option<String>,
}

/// An entry of a job's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalEntry {
    /// The record's or line's number in the file, from one.
    pub ordinal: i64,
    /// Bytes from the file's start.
    pub offset: u64,
    /// `rejected`, or `repaired` for a damaged record that was taken nevertheless.
    pub kind: String,
    /// What is wrong.
    pub reason: String,
}

/// What a tenant has imported, over all its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenantUse {
    /// The tenant.
    pub tenant: String,
    /// Its jobs, ended ones too.
    pub jobs: u64,
    /// Those that upload or run now.
    pub jobs_active: u64,
    /// Records that went into topic and sink.
    pub records_done: u64,
    /// Records that were journaled instead.
    pub records_rejected: u64,
    /// Bytes of files that are done with.
    pub bytes_done: u64,
    /// When one of its jobs last got on, in milliseconds since 1970.
    pub updated_ms: i64,
}

impl Format {
    /// The name in parameters and rows.
    pub fn name(self) -> &'static str {
        match self {
            Format::Jsonl => "jsonl",
            Format::Marc => "marc",
        }
    }

    /// The format of that name.
    pub fn named(name: &str) -> Option<Format> {
        [Format::Jsonl, Format::Marc]
            .into_iter()
            .find(|format| format.name() == name)
    }
}

impl JobState {
    /// The name in answers and rows.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Uploading => "uploading",
            JobState::Running => "running",
            JobState::Completed => "completed",
            JobState::CompletedWithRejects => "completed_with_rejects",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        }
    }

    /// The state of that name.
    pub fn named(name: &str) -> Option<JobState> {
        [
            JobState::Uploading,
            JobState::Running,
            JobState::Completed,
            JobState::CompletedWithRejects,
            JobState::Failed,
            JobState::Cancelled,
        ]
        .into_iter()
        .find(|state| state.name() == name)
    }

    /// Whether nothing more happens to the job.
    pub fn has_ended(self) -> bool {
        !matches!(self, JobState::Uploading | JobState::Running)
    }
}

impl Job {
    /// The job as the HTTP API shows it.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "id": self.id,
            "tenant": self.tenant.as_str(),
            "name": self.name,
            "format": self.format.name(),
            "topic": self.topic.display(),
            "key": self.key_field,
            "state": self.state.name(),
            "records_total": self.records_total,
            "records_done": self.records_done,
            "records_rejected": self.records_rejected,
            "bytes_total": self.bytes_total,
            "bytes_done": self.bytes_done,
            "slices_done": self.slices_done,
            "created_ms": self.created.0,
            "updated_ms": self.updated.0,
            "error": self.error,
        })
    }
}
