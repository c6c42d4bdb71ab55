//! A job: what is imported, for whom, and how far it is.

use base::{TenantId, UnixMillis};
use serde::{Deserialize, Serialize};
use streams::TopicName;

use crate::error::ImportsError;
use crate::fetch;
use crate::profile::Profile;
use crate::schedule::JobNumber;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON Lines: one JSON object per line.
    Jsonl,
    /// MARC 21 in ISO 2709.
    Marc,
    /// MARC 21 in XML.
    MarcXml,
    /// MARC 21 in JSON.
    MarcJson,
    /// Rows behind a header line.
    Csv,
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Its file is coming in.
    Uploading,
    /// Its slices are being imported, or wait for their turn.
    Running,
    /// Somebody stopped it for a while.
    Paused,
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
    /// What the job has to do with other work.
    pub class: Class,
    /// What gets the records.
    pub sink: Sink,
    /// The topic that gets the records, where one does.
    pub topic: TopicName,
    /// How its records are read and stored.
    pub profile: Profile,
    /// The job whose rejected records these are.
    pub retry_of: Option<String>,
    /// The file of the server's own that it reads, or the URL; none for an upload.
    pub source: Option<String>,
    /// Its file comes in pieces.
    pub is_resumable: bool,
    pub(crate) slice_records: u32,
    /// Where it is in its life.
    pub state: JobState,
    pub(crate) producer: JobProducer,
    /// Records that the file seems to hold; exact once the job has ended.
    pub records_total: u64,
    /// Records that are through: created, updated or skipped, as committed.
    pub records_done: u64,
    /// Of these, those that were not in the sink before.
    pub records_created: u64,
    /// Those that replaced one in the sink.
    pub records_updated: u64,
    /// Those that the profile's policy left out of the sink.
    pub records_skipped: u64,
    /// Records that went to the topic.
    pub(crate) records_sent: u64,
    /// Records that the journal names as rejected.
    pub records_rejected: u64,
    /// The file's size; while it is uploading, the bytes so far.
    pub bytes_total: u64,
    /// How far into the file the committed slices go.
    pub bytes_done: u64,
    pub(crate) next_ordinal: i64,
    /// Slices committed.
    pub slices_done: u64,
    /// The process that has its lease, or takes its file in.
    pub(crate) owner: Option<String>,
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
    pub(crate) class: Class,
    pub(crate) sink: Sink,
    pub(crate) topic: TopicName,
    pub(crate) profile: Profile,
    pub(crate) retry_of: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) is_resumable: bool,
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
    /// `rejected`, `skipped` by the profile's policy, or `repaired` for a damaged record that was
    /// taken nevertheless.
    pub kind: String,
    /// What is wrong.
    pub reason: String,
}

/// Which work goes first while the sink has no room for all.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Somebody waits for it.
    Interactive,
    /// It runs beside the rest.
    #[default]
    Bulk,
}

/// What gets a job's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sink {
    /// The topic gets every intact record, the table what the profile's policy makes of them.
    #[default]
    Both,
    /// The table alone.
    Records,
    /// The topic alone; policies need the table.
    Topic,
}

impl Class {
    /// The name in parameters and rows.
    pub fn name(self) -> &'static str {
        match self {
            Class::Interactive => "interactive",
            Class::Bulk => "bulk",
        }
    }

    /// The class of that name.
    pub fn named(name: &str) -> Option<Class> {
        [Class::Interactive, Class::Bulk]
            .into_iter()
            .find(|class| class.name() == name)
    }
}

impl Sink {
    /// The name in parameters and rows.
    pub fn name(self) -> &'static str {
        match self {
            Sink::Both => "both",
            Sink::Records => "records",
            Sink::Topic => "topic",
        }
    }

    /// The sink of that name.
    pub fn named(name: &str) -> Option<Sink> {
        [Sink::Both, Sink::Records, Sink::Topic]
            .into_iter()
            .find(|sink| sink.name() == name)
    }

    /// Whether the topic gets the records.
    pub fn has_topic(self) -> bool {
        self != Sink::Records
    }

    /// Whether the table gets them.
    pub fn has_records(self) -> bool {
        self != Sink::Topic
    }
}

/// What a tenant has imported, over all its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenantUse {
    /// The tenant.
    pub tenant: String,
    /// How much of the sink it gets beside others, as a number from 1 to 1000.
    pub weight: u32,
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
    /// Every format.
    pub const ALL: [Format; 5] = [
        Format::Jsonl,
        Format::Marc,
        Format::MarcXml,
        Format::MarcJson,
        Format::Csv,
    ];

    /// The name in parameters and rows.
    pub fn name(self) -> &'static str {
        match self {
            Format::Jsonl => "jsonl",
            Format::Marc => "marc",
            Format::MarcXml => "marcxml",
            Format::MarcJson => "marcjson",
            Format::Csv => "csv",
        }
    }

    /// Whether its records are MARC 21.
    pub fn is_marc(self) -> bool {
        matches!(self, Format::Marc | Format::MarcXml | Format::MarcJson)
    }

    /// The format of that name.
    pub fn named(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }
}

impl JobState {
    /// The name in answers and rows.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Uploading => "uploading",
            JobState::Running => "running",
            JobState::Paused => "paused",
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
            JobState::Paused,
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
        !matches!(
            self,
            JobState::Uploading | JobState::Running | JobState::Paused
        )
    }
}

impl NewJob {
    /// Whether a job was made by the same wish, as far as its row tells.
    pub(crate) fn is_like(&self, job: &Job) -> bool {
        let of_file = (self.format, &self.source, self.is_resumable)
            == (job.format, &job.source, job.is_resumable);
        of_file
            && self.sink == job.sink
            && (!self.sink.has_topic() || self.topic == job.topic)
            && self.retry_of == job.retry_of
    }
}

impl Job {
    /// The error of a wish that its state does not allow.
    pub(crate) fn cannot_be(&self, wanted: &'static str) -> ImportsError {
        ImportsError::State {
            id: self.id.clone(),
            state: self.state.name(),
            wanted,
        }
    }

    /// Whether its file comes from a URL.
    pub(crate) fn is_fetched(&self) -> bool {
        self.source.as_deref().is_some_and(fetch::is_url)
    }

    /// The job as the HTTP API shows it.
    pub fn to_json(&self) -> serde_json::Value {
        let source = self.source.as_deref();
        serde_json::json!({
            "id": self.id,
            "tenant": self.tenant.as_str(),
            "name": self.name,
            "format": self.format.name(),
            "class": self.class.name(),
            "sink": self.sink.name(),
            "topic": self.sink.has_topic().then(|| self.topic.display().to_string()),
            "key": self.profile.id,
            "profile": self.profile,
            "retry_of": self.retry_of,
            "path": source.filter(|_| !self.is_fetched()),
            "url": source.filter(|_| self.is_fetched()).map(fetch::shown),
            "resumable": self.is_resumable,
            "state": self.state.name(),
            "records_total": self.records_total,
            "records_done": self.records_done,
            "records_created": self.records_created,
            "records_updated": self.records_updated,
            "records_skipped": self.records_skipped,
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
