//! What can go wrong with a database, and what to do about it.

use std::path::{Path, PathBuf};

/// A failure of a database.
///
/// [`SqlError::may_retry`] tells whether the same call can succeed later without a change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// The folder of the file cannot be made, or the file cannot be opened; the operator's fault.
    #[error(
        "cannot open the database {path}: check that its folder exists and that this user may \
         write there"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another process holds the database; the operator's fault, a retry may help.
    #[error(
        "the database {path} is locked by another process: stop the other instance, or give this \
         one a folder of its own"
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// The disk has no room; nothing was changed.
    #[error(
        "no room to write the database {path}: free space on its disk; nothing was changed and \
         the next call tries again"
    )]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// The file may only be read; the operator's fault.
    #[error("the database {path} is read-only: give this user the right to write it")]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// The file is damaged or is no database.
    #[error(
        "{path} is damaged or no database: restore it from a backup, or move it away to start \
         with an empty one"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// A newer binary has been here.
    #[error(
        "the schema '{schema}' in {path} is at version {found} but this binary knows up to \
         {known}: run the newer binary, or restore a backup from before the upgrade"
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// The schema's name.
        schema: &'static str,
        /// The version in the database.
        found: i64,
        /// The newest version in the binary.
        known: i64,
    },
    /// The text of an applied migration is not the one in this binary; the builder's fault.
    #[error(
        "migration {number} of the schema '{schema}' in {path} was applied with another text \
         than this binary has: run the binary that made it, changes belong into a new migration"
    )]
    EditedMigration {
        /// The file.
        path: PathBuf,
        /// The schema's name.
        schema: &'static str,
        /// The migration's number.
        number: i64,
    },
    /// The migrations of a schema are not numbered 1, 2, 3…; the builder's fault.
    #[error("migration {number} of the schema '{schema}' is out of order")]
    Disordered {
        /// The schema's name.
        schema: &'static str,
        /// The first number that is not the next one.
        number: i64,
    },
    /// A migration failed; the database is as it was before it.
    #[error("migration {number} of the schema '{schema}' failed, nothing of it was kept")]
    Migration {
        /// The schema's name.
        schema: &'static str,
        /// The migration's number.
        number: i64,
        /// The reason.
        #[source]
        source: Box<SqlError>,
    },
    /// A statement failed for a reason of its own.
    #[error("cannot {what}")]
    Statement {
        /// What was to be done, as a verb and its object.
        what: &'static str,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
}

impl SqlError {
    /// Sorts an error of sqlx: `what` is what was to be done, such as `store the flow`.
    pub fn sort(path: &Path, what: &'static str, source: sqlx::Error) -> SqlError {
        let path = path.to_owned();
        match primary_code(&source) {
            Some(SQLITE_BUSY | SQLITE_LOCKED) => SqlError::Locked { path, source },
            Some(SQLITE_FULL) => SqlError::DiskFull { path, source },
            Some(SQLITE_READONLY) => SqlError::ReadOnly { path, source },
            Some(SQLITE_CORRUPT | SQLITE_NOTADB) => SqlError::Damaged { path, source },
            Some(SQLITE_CANTOPEN) => SqlError::Open {
                path,
                source: Box::new(source),
            },
            _ => SqlError::Statement { what, source },
        }
    }

    /// Whether the same call may succeed later without anything else being changed.
    pub fn may_retry(&self) -> bool {
        match self {
            SqlError::Locked { .. } | SqlError::DiskFull { .. } => true,
            SqlError::Statement { source, .. } => matches!(source, sqlx::Error::PoolTimedOut),
            _ => false,
        }
    }

    /// Whether a row with this key is there already.
    pub fn is_unique_violation(&self) -> bool {
        match self {
            SqlError::Statement {
                source: sqlx::Error::Database(error),
                ..
            } => error.is_unique_violation(),
            _ => false,
        }
    }
}

/// SQLite's primary result code: the low byte of the extended one.
fn primary_code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<u32>().ok().map(|code| code & 0xff)
}

// https://www.sqlite.org/rescode.html
const SQLITE_BUSY: u32 = 5;
const SQLITE_LOCKED: u32 = 6;
const SQLITE_READONLY: u32 = 8;
const SQLITE_CORRUPT: u32 = 11;
const SQLITE_FULL: u32 = 13;
const SQLITE_CANTOPEN: u32 = 14;
const SQLITE_NOTADB: u32 = 26;
