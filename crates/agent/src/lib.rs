//! The edge agent: flows of processors on one durable repository, led by a control plane or not.
//!
//! An agent reads a flow definition ([`definition`]), checks it against its table of processors
//! ([`processors`]), and runs it ([`engine`]) on connections with back pressure. What a processor
//! does in one session ([`session`]) becomes true in one commit of the repository
//! ([`repository`]): FlowFiles, content and the processor's own state, so that after a crash each
//! FlowFile is where it was and no source is ahead of it.
//!
//! Leaves out every server: agents call in (C2), nobody calls them.

mod bulletins;
pub mod cli;
mod connection;
pub mod content;
mod control;
pub mod cron;
mod dates;
pub mod definition;
pub mod engine;
mod error;
pub mod expression;
mod fail_point;
pub mod flowfile;
mod host;
mod json;
mod kafka;
pub mod limits;
mod manifest;
mod mqtt;
mod net;
pub mod parameters;
mod patterns;
pub mod processors;
pub mod provenance;
mod records;
pub mod repository;
mod reverse_dns;
pub mod s2s;
mod s3;
pub mod services;
pub mod session;
mod signal;
mod supervisor;
mod syslog;
mod units;
mod watch;

#[cfg(test)]
mod control_tests;
#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod repository_tests;
#[cfg(test)]
mod testing;

pub use bulletins::{Bulletin, Bulletins, Level};
pub use error::AgentError;
