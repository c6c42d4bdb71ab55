//! The edge agent: flows of processors on one durable repository, led by a control plane or not.
//!
//! An agent reads a flow definition ([`definition`]), checks it against its table of processors
//! ([`processors`]), and runs it ([`engine`]) on connections with back pressure. What a processor
//! does in one session ([`session`]) becomes true in one commit of the repository
//! ([`repository`]): FlowFiles, content and the processor's own state, so that after a crash each
//! FlowFile is where it was and no source is ahead of it.
//!
//! Leaves out every server: agents call in (C2), nobody calls them.

mod assets;
mod bulletins;
mod bundle;
pub mod cli;
pub mod configuration;
mod connection;
pub mod content;
mod control;
pub mod cron;
#[cfg(feature = "sql")]
mod database;
mod dates;
pub mod definition;
pub mod engine;
mod error;
pub mod expression;
mod extensions;
pub mod fail_point;
pub mod flowfile;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod json;
mod kafka;
mod life;
pub mod limits;
mod local;
mod logs;
mod manifest;
mod memory;
mod metrics;
mod modbus;
mod mqtt;
mod net;
mod object_storage;
mod opcua;
pub mod parameters;
mod patterns;
mod prioritizer;
pub mod processors;
mod properties;
pub mod provenance;
mod read_only;
mod record_sets;
mod records;
pub mod repository;
mod reverse_dns;
pub mod s2s;
pub mod sealing;
mod secrets;
mod service;
pub mod services;
pub mod session;
mod signal;
mod supervisor;
mod syslog;
mod units;
mod watch;
mod watchdog;
mod whole_file;

#[cfg(test)]
mod cut_tests;
#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod large_tests;
#[cfg(test)]
mod measure;
#[cfg(test)]
mod repository_tests;
#[cfg(test)]
mod rot_tests;
#[cfg(test)]
mod sealing_tests;
#[cfg(test)]
mod sim_tests;
#[cfg(test)]
mod testing;

pub use bulletins::{Bulletin, Bulletins, Level};
pub use error::AgentError;
pub use logs::{Logs, RollingFile, mistaken_level};
pub use service::Service;
