//! SQL pools, migrations and dialects: the ground on which registries of agents, jobs and tenants
//! stand.
//!
//! A [`Database`] is a SQLite file, or a PostgreSQL or MySQL (MariaDB) server by its URL. Callers
//! write [`Statement`]s once, with `?` for values and in words that all three know; what they spell
//! differently stands in `dialect.rs` alone.
//!
//! A SQLite file is in WAL mode with one writing connection, so that writers queue in the process
//! and never meet SQLite's busy error, and a few reading ones, which writers never hold up. A
//! commit is on the disk when it returns (`synchronous = FULL`). Servers are reached over TLS by
//! rustls where their URL asks for it (`sslmode`, `ssl-mode`); passwords are never shown.
//!
//! Each user of a database brings a [`Schema`]: its name and its ordered migrations, embedded in
//! the binary, applied once under a lock, so that several nodes may start at once. Several
//! schemas may share one database.
//!
//! Leaves out business rules.

mod arrays;
mod database;
mod dialect;
mod error;
mod json_rows;
mod limits;
mod migration;
mod place;
mod secret_url;
mod sqlite;
mod statement;
#[cfg(any(test, feature = "test-servers"))]
pub mod test_servers;
mod transaction;
#[cfg(any(test, feature = "test-servers"))]
pub mod upgrade_rules;

pub use database::Database;
pub use dialect::Dialect;
pub use error::SqlError;
pub use json_rows::JsonInsert;
pub use limits::ROWS_PER_STATEMENT_MAX;
pub use migration::{Migration, Schema};
pub use place::{Place, without_password};
pub use secret_url::SecretUrl;
pub use sqlite::{Options, Sqlite, SqliteTransaction};
pub use statement::{Conflict, Insert, Lookup, Row, Statement, Value};
pub use transaction::Transaction;
