//! Tenants' bulk imports: a file of records, as a job, into a topic and a sink.
//!
//! Invariants: a job's counts are those of committed rows; a record reaches topic and sink once
//! whatever crashes; a damaged record is journaled with its place and reason and never costs its
//! neighbours; jobs of several tenants share the workers fairly; memory does not grow with files.
//!
//! Left out: several indexes on one shared database but for OpenSearch, EDIFACT.

mod admission;
mod after;
mod ahead;
mod aside;
mod behind;
mod commit;
mod config;
mod error;
mod fetch;
mod format;
pub mod fuzzing;
mod guard;
pub mod http;
mod imports;
mod indexer;
mod job;
mod keys;
mod limits;
mod live;
mod marc;
mod pieces;
mod policy;
mod profile;
mod purge;
mod reconcile;
mod records;
mod registry;
mod rejects;
mod schedule;
mod schema;
mod search;
mod slice;
mod steering;
mod tenants;
#[cfg(test)]
mod tests;
mod upload;
mod worker;

pub use config::ImportsConfig;
pub use error::ImportsError;
pub use imports::Imports;
pub use job::{Class, Format, Job, JobState, JournalEntry, NewJob, Sink, TenantUse};
pub use profile::{OnMatch, OnNoMatch, Profile};
pub use purge::Purged;
pub use records::{Action, HistoryEntry, StoredRecord};
pub use search::{Found, Hit};
