//! What can go wrong with a database, and what to do about it.

/// A failure of a database.
///
/// [`SqlError::may_retry`] tells whether the same call can succeed later without a change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// The folder of the file cannot be made, or the file cannot be opened; the operator's fault.
    #[error(
        "cannot open the database {place}: check that its folder exists and that this user may \
         write there"
    )]
    Open {
        /// The file, or the server without its password.
        place: String,
        /// The reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another process holds the database; the operator's fault, a retry may help.
    #[error(
        "the database {place} is locked by another process: stop the other instance, or give this \
         one a folder of its own"
    )]
    Locked {
        /// The file, or the server without its password.
        place: String,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// The server cannot be reached, or went away; a retry may help.
    #[error(
        "the database {place} cannot be reached: check that it runs and that this machine may \
         connect; calls are tried again"
    )]
    Unreachable {
        /// The server without its password.
        place: String,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// The server did not answer in time; whether the change was made is not known.
    #[error("the database {place} did not answer within {wait:?}, to: {what}")]
    TooSlow {
        /// The server without its password.
        place: String,
        /// What was to be done.
        what: &'static str,
        /// The wait.
        wait: std::time::Duration,
    },
    /// Another transaction was in the way and this one was rolled back; a retry may help.
    #[error("another transaction on {place} was in the way; nothing was changed")]
    Conflict {
        /// The server without its password.
        place: String,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// The address of a database cannot be read; the operator's fault.
    #[error("'{place}' is no address of a database: {reason}")]
    BadAddress {
        /// The address without its password.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The disk has no room; nothing was changed.
    #[error(
        "no room to write the database {place}: free space on its disk; nothing was changed and \
         the next call tries again"
    )]
    DiskFull {
        /// The file, or the server without its password.
        place: String,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// The file may only be read; the operator's fault.
    #[error("the database {place} is read-only: give this user the right to write it")]
    ReadOnly {
        /// The file, or the server without its password.
        place: String,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// The file is damaged or is no database.
    #[error(
        "{place} is damaged or no database: restore it from a backup, or move it away to start \
         with an empty one"
    )]
    Damaged {
        /// The file, or the server without its password.
        place: String,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// A newer binary has been here.
    #[error(
        "the schema '{schema}' in {place} is at version {found} but this binary knows up to \
         {known}: run the newer binary, or restore a backup from before the upgrade"
    )]
    NewerSchema {
        /// The file, or the server without its password.
        place: String,
        /// The schema's name.
        schema: &'static str,
        /// The version in the database.
        found: i64,
        /// The newest version in the binary.
        known: i64,
    },
    /// The text of an applied migration is not the one in this binary; the builder's fault.
    #[error(
        "migration {number} of the schema '{schema}' in {place} was applied with another text \
         than this binary has: run the binary that made it, changes belong into a new migration"
    )]
    EditedMigration {
        /// The file, or the server without its password.
        place: String,
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
    pub fn sort(place: &str, what: &'static str, source: sqlx::Error) -> SqlError {
        let place = place.to_owned();
        if is_away(&source) {
            return SqlError::Unreachable { place, source };
        }
        let Some(error) = source.as_database_error() else {
            return SqlError::Statement { what, source };
        };
        let code = error.code().unwrap_or_default().into_owned();
        if error
            .try_downcast_ref::<sqlx::sqlite::SqliteError>()
            .is_none()
        {
            return match code.as_str() {
                _ if is_conflict(error, &code) => SqlError::Conflict { place, source },
                PG_DISK_FULL => SqlError::DiskFull { place, source },
                PG_READ_ONLY => SqlError::ReadOnly { place, source },
                _ => SqlError::Statement { what, source },
            };
        }
        // SQLite's primary result code is the low byte of the extended one.
        match code.parse::<u32>().map(|code| code & 0xff) {
            Ok(SQLITE_BUSY | SQLITE_LOCKED) => SqlError::Locked { place, source },
            Ok(SQLITE_FULL) => SqlError::DiskFull { place, source },
            Ok(SQLITE_READONLY) => SqlError::ReadOnly { place, source },
            Ok(SQLITE_CORRUPT | SQLITE_NOTADB) => SqlError::Damaged { place, source },
            Ok(SQLITE_CANTOPEN) => SqlError::Open {
                place,
                source: Box::new(source),
            },
            _ => SqlError::Statement { what, source },
        }
    }

    /// Whether the same call may succeed later without anything else being changed.
    pub fn may_retry(&self) -> bool {
        matches!(
            self,
            SqlError::Locked { .. }
                | SqlError::DiskFull { .. }
                | SqlError::Unreachable { .. }
                | SqlError::Conflict { .. }
                | SqlError::TooSlow { .. }
        )
    }

    /// Whether the database's own state is in the way rather than the statement: it is read-only for
    /// the moment, as after a failover, lacks something, or somebody stopped the statement (SQLSTATE
    /// classes 53, 57 and 58). Worth a retry after a while.
    pub fn is_of_server(&self) -> bool {
        match self {
            SqlError::ReadOnly { .. } => true,
            SqlError::Statement {
                source: sqlx::Error::Database(error),
                ..
            } => {
                let is_file = error.try_downcast_ref::<sqlx::sqlite::SqliteError>();
                let code = error.code().unwrap_or_default();
                is_file.is_none()
                    && ["53", "57", "58"]
                        .iter()
                        .any(|class| code.starts_with(class))
            }
            _ => false,
        }
    }

    /// Whether a value is at fault that was to be written: it is too long, or no text to the database
    /// (SQLSTATE class 22, and what MySQL says in its place). No later try makes it better.
    pub fn is_of_values(&self) -> bool {
        match self {
            SqlError::Statement {
                source: sqlx::Error::Database(error),
                ..
            } => {
                let is_file = error.try_downcast_ref::<sqlx::sqlite::SqliteError>();
                let code = error.code().unwrap_or_default();
                is_file.is_none() && code.starts_with("22")
                    || mysql_number(&**error).is_some_and(|number| MYSQL_VALUES.contains(&number))
            }
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

/// Whether the connection is gone or cannot be made, or the server is not ready yet or any more.
fn is_away(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Protocol(_) => true,
        // A server that goes down or comes up says so; SQLSTATE classes 08 and 57P.
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| {
                error
                    .try_downcast_ref::<sqlx::sqlite::SqliteError>()
                    .is_none()
                    && (code.starts_with("08") || code.starts_with("57P") || code == PG_CROWDED)
            }) || mysql_number(&**error).is_some_and(|number| MYSQL_AWAY.contains(&number))
        }
        _ => false,
    }
}

/// Whether another transaction was in the way, so that the same one may be tried again.
fn is_conflict(error: &dyn sqlx::error::DatabaseError, code: &str) -> bool {
    matches!(code, PG_SERIALIZATION | PG_DEADLOCK | PG_LOCK_WAIT)
        || mysql_number(error).is_some_and(|number| MYSQL_CONFLICTS.contains(&number))
}

/// MySQL's own number of an error, which says more than its SQLSTATE.
pub(crate) fn mysql_number(error: &dyn sqlx::error::DatabaseError) -> Option<u16> {
    error
        .try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()
        .map(sqlx::mysql::MySqlDatabaseError::number)
}

// https://www.sqlite.org/rescode.html
const SQLITE_BUSY: u32 = 5;
const SQLITE_LOCKED: u32 = 6;
const SQLITE_READONLY: u32 = 8;
const SQLITE_CORRUPT: u32 = 11;
const SQLITE_FULL: u32 = 13;
const SQLITE_CANTOPEN: u32 = 14;
const SQLITE_NOTADB: u32 = 26;

// https://www.postgresql.org/docs/current/errcodes-appendix.html
const PG_SERIALIZATION: &str = "40001";
const PG_DEADLOCK: &str = "40P01";
const PG_LOCK_WAIT: &str = "55P03";
const PG_DISK_FULL: &str = "53100";
const PG_CROWDED: &str = "53300";
const PG_READ_ONLY: &str = "25006";

// https://mariadb.com/kb/en/mariadb-error-code-reference/: too many connections, shutdown under
// way, connection killed; lock wait timed out, deadlock.
const MYSQL_AWAY: [u16; 3] = [1040, 1053, 1927];
const MYSQL_CONFLICTS: [u16; 2] = [1205, 1213];

// A value that is out of range, of a wrong encoding, or too long.
const MYSQL_VALUES: [u16; 3] = [1264, 1366, 1406];
