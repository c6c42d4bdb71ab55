//! Tenants' bulk imports: a file of records, as a job, into a topic and a sink.
//!
//! Invariants: a job's counts are those of committed rows; a record reaches topic and sink once
//! whatever crashes; a damaged record is journaled with its place and reason and never costs its
//! neighbours; jobs of several tenants share the workers fairly; memory does not grow with files.
//!
//! Left out: MARCXML, MARC-in-JSON and CSV files, MARC-8 text, pause and retry of single records,
//! search.

mod config;
mod error;
pub mod http;
mod imports;
mod job;
mod jsonl;
mod limits;
mod marc;
mod registry;
mod schedule;
mod slice;
#[cfg(test)]
mod tests;
mod upload;

pub use config::ImportsConfig;
pub use error::ImportsError;
pub use imports::Imports;
pub use job::{Format, Job, JobState, JournalEntry, NewJob, TenantUse};
