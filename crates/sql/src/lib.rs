//! SQL pools and migrations: the ground on which registries of agents, jobs and tenants stand.
//!
//! A [`Database`] is one SQLite file in WAL mode with one writing connection, so that writers
//! queue in the process and never meet SQLite's busy error, and a few reading ones, which writers
//! never hold up. A commit is on the disk when it returns (`synchronous = FULL`).
//!
//! Each user of a database brings a [`Schema`]: its name and its ordered migrations, embedded in
//! the binary. Several schemas may share one database.
//!
//! Leaves out business rules and query building: callers write SQL and bind values with `sqlx`.

mod database;
mod error;
mod limits;
mod migration;

pub use database::{Database, Options, Transaction};
pub use error::SqlError;
pub use migration::{Migration, Schema};
