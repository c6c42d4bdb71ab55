//! What an operator may set for bulk imports (the configuration's `imports` table).

use std::path::PathBuf;

use base::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};
use sql::SecretUrl;

use crate::limits;

/// The settings of bulk imports; every key has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImportsConfig {
    /// The database of jobs and records, such as `postgres://user:password@host/imports` or
    /// `mysql://…`; by default a SQLite file.
    pub database: Option<SecretUrl>,
    /// The search index in OpenSearch, such as `https://user:password@search.example.org:9200/books`;
    /// by default a file in the data folder.
    pub opensearch: Option<SecretUrl>,
    /// Slices committed at the same time, 1 to 16. With one, tenants share exactly by their weights;
    /// with more, one job has at most the service of one of them.
    pub workers: usize,
    /// Folders of the server's own whose files may be imported where they lie; none by default.
    pub paths: Vec<PathBuf>,
    /// Addresses of files that the server may fetch: those that begin with one of these, such as
    /// `https://library.example.org/exports/`; none by default.
    pub urls: Vec<String>,
    /// The most bytes of one upload; a larger one is answered 413.
    pub upload_bytes_max: ByteSize,
    /// For how long a job is told of after its end, with its journal and its rejected records.
    pub keep_jobs: HumanDuration,
    /// The most records of one slice, a batch in the topic; up to 50 of whole slices are committed at
    /// once while people are served, 250 otherwise. If not set, 50, and 250 where the store is a Kafka cluster. A job keeps the
    /// value that it was created with.
    pub slice_records: Option<u32>,
}

impl Default for ImportsConfig {
    fn default() -> Self {
        ImportsConfig {
            database: None,
            opensearch: None,
            workers: limits::WORKERS,
            paths: Vec::new(),
            urls: Vec::new(),
            upload_bytes_max: ByteSize(limits::UPLOAD_BYTES_MAX),
            keep_jobs: HumanDuration(limits::JOBS_KEPT),
            slice_records: None,
        }
    }
}
