//! One SQLite file with its connections: one that writes, a few that read.
//!
//! Writers queue in the process and never meet SQLite's busy error; readers are never held up.
//! Leaves out everything that other databases have too: see `database.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection};

use crate::Database;
use crate::error::SqlError;
use crate::limits;
use crate::migration::Schema;

/// An open transaction on the writing connection; dropping it rolls it back.
pub type SqliteTransaction = sqlx::Transaction<'static, sqlx::Sqlite>;

/// How to open a database.
#[derive(Clone, Debug)]
pub struct Options {
    /// Reading connections of a file, all connections to a server.
    pub readers: u32,
    /// Whether a commit waits for the disk, where that is ours to say: of a SQLite file. Without,
    /// a commit survives the death of the process but not that of the machine.
    pub durable: bool,
}

/// An open SQLite file: cheap to clone.
#[derive(Clone, Debug)]
pub struct Sqlite {
    path: Arc<Path>,
    writer: SqlitePool,
    readers: SqlitePool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            readers: limits::READERS_DEFAULT,
            durable: true,
        }
    }
}

impl Sqlite {
    /// Opens the file at `path` (made with its folder where missing) and brings `schema` up to
    /// date; for users that have nothing but files.
    pub async fn open(path: &Path, options: Options, schema: &Schema) -> Result<Sqlite, SqlError> {
        let file = Sqlite::connect(path, &options).await?;
        match Database::from(file.clone()).migrate(schema).await {
            Ok(_) => Ok(file),
            Err(error) => {
                file.close().await;
                Err(error)
            }
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The connections for reading.
    pub fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    /// The one connection for single writing statements; for more than one use
    /// [`Sqlite::begin`].
    pub fn writer(&self) -> &SqlitePool {
        &self.writer
    }

    /// Begins a transaction on the writing connection, with the write lock taken at once.
    pub async fn begin(&self) -> Result<SqliteTransaction, SqlError> {
        self.writer
            .begin_with("BEGIN IMMEDIATE")
            .await
            .map_err(|e| self.error("begin a transaction", e))
    }

    /// Commits: what was written is durable when this returns.
    pub async fn commit(&self, tx: SqliteTransaction, what: &'static str) -> Result<(), SqlError> {
        tx.commit().await.map_err(|e| self.error(what, e))
    }

    /// Sorts an error of sqlx into this crate's words; `what` is what was to be done.
    pub fn error(&self, what: &'static str, source: sqlx::Error) -> SqlError {
        SqlError::sort(&self.path.to_string_lossy(), what, source)
    }

    /// Waits for what is under way and closes the file.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Opens the file; its folder is made where missing.
    pub(crate) async fn connect(path: &Path, options: &Options) -> Result<Sqlite, SqlError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|source| SqlError::Open {
                place: path.to_string_lossy().into_owned(),
                source: Box::new(source),
            })?;
        }
        let synchronous = if options.durable {
            SqliteSynchronous::Full
        } else {
            SqliteSynchronous::Normal
        };
        let connect = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(synchronous)
            .foreign_keys(true)
            .busy_timeout(limits::LOCK_WAIT)
            .pragma("wal_autocheckpoint", limits::CHECKPOINT_PAGES.to_string())
            .disable_statement_logging();
        let sort = |e| SqlError::sort(&path.to_string_lossy(), "open the database", e);
        // The writer first: it makes the file and sets WAL mode, which readers then find.
        let writer = first(&connect, sort).await?;
        let readers = pool(options.readers.max(1))
            .connect_lazy_with(connect.create_if_missing(false).pragma("query_only", "1"));
        Ok(Sqlite {
            path: Arc::from(PathBuf::from(path)),
            writer,
            readers,
        })
    }
}

/// Connects the writer. Of processes that set a new file's WAL mode at the same moment SQLite refuses
/// all but one at once, since each has what the others wait for: those try again.
async fn first(
    connect: &SqliteConnectOptions,
    sort: impl Fn(sqlx::Error) -> SqlError,
) -> Result<SqlitePool, SqlError> {
    let until = Instant::now() + limits::LOCK_WAIT;
    loop {
        match pool(1).connect_with(connect.clone()).await.map_err(&sort) {
            Err(SqlError::Locked { .. }) if Instant::now() < until => {
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            connected => return connected,
        }
    }
}

/// Between two tries to set a file's WAL mode, which takes a sync of the disk.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .min_connections(0)
        .max_connections(connections)
        .acquire_timeout(limits::CONNECTION_WAIT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        // SQLite ends a transaction by itself when the disk is full or fails. sqlx still takes it for
        // open, since its own rollback then finds none, and would begin no other one here.
        .before_acquire(|connection, _| {
            let is_free = !connection.is_in_transaction();
            Box::pin(async move { Ok(is_free) })
        })
}

#[cfg(test)]
mod tests {
    use base::report;
    use sqlx::Row;

    use super::*;
    use crate::migration::Migration;

    const FIRST: Migration = Migration {
        number: 1,
        name: "people",
        text: "CREATE TABLE people (name TEXT NOT NULL);",
    };
    const SECOND: Migration = Migration {
        number: 2,
        name: "ages",
        text: "ALTER TABLE people ADD COLUMN age BIGINT; INSERT INTO people VALUES ('Ada', 36);",
    };
    const ONE: Schema = Schema {
        name: "test",
        oldest: 1,
        migrations: &[FIRST],
    };
    const TWO: Schema = Schema {
        name: "test",
        oldest: 2,
        migrations: &[FIRST, SECOND],
    };

    async fn open(path: &Path, schema: &Schema) -> Result<Sqlite, SqlError> {
        Sqlite::open(path, Options::default(), schema).await
    }

    async fn count(database: &Sqlite) -> i64 {
        let row = sqlx::query("SELECT COUNT(*) FROM people")
            .fetch_one(database.readers())
            .await
            .unwrap();
        row.get(0)
    }

    #[tokio::test]
    async fn each_migration_is_applied_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder/test.db");
        open(&path, &ONE).await.unwrap().close().await;
        for _ in 0..2 {
            let database = open(&path, &TWO).await.unwrap();
            assert_eq!(count(&database).await, 1);
            database.close().await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 6)]
    async fn who_makes_a_file_at_the_same_moment_opens_it() {
        for _ in 0..30 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("test.db");
            let all: Vec<_> = (0..6)
                .map(|_| {
                    let path = path.clone();
                    tokio::spawn(async move { open(&path, &ONE).await })
                })
                .collect();
            for opened in all {
                let opened = opened.await.unwrap();
                opened
                    .unwrap_or_else(|e| panic!("{}", report(&e)))
                    .close()
                    .await;
            }
        }
    }

    #[tokio::test]
    async fn a_database_from_a_newer_binary_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        open(&path, &TWO).await.unwrap().close().await;
        let error = open(&path, &ONE).await.unwrap_err();
        assert!(
            matches!(
                error,
                SqlError::NewerSchema {
                    found: 2,
                    known: 1,
                    ..
                }
            ),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_binary_works_on_with_what_a_newer_one_only_added() {
        const ADDED: Schema = Schema { oldest: 1, ..TWO };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        open(&path, &ADDED).await.unwrap().close().await;
        let database = open(&path, &ONE).await.unwrap();
        assert_eq!(count(&database).await, 1);
    }

    #[tokio::test]
    async fn an_edited_migration_is_refused() {
        const EDITED: Schema = Schema {
            name: "test",
            oldest: 1,
            migrations: &[Migration {
                number: 1,
                name: "people",
                text: "CREATE TABLE people (x);",
            }],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        open(&path, &ONE).await.unwrap().close().await;
        let error = open(&path, &EDITED).await.unwrap_err();
        assert!(
            matches!(error, SqlError::EditedMigration { number: 1, .. }),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_failed_migration_leaves_nothing_behind() {
        const BROKEN: Schema = Schema {
            name: "test",
            oldest: 1,
            migrations: &[
                FIRST,
                Migration {
                    number: 2,
                    name: "broken",
                    text: "INSERT INTO people VALUES ('Eve'); INSERT INTO nowhere VALUES (1);",
                },
            ],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        let error = open(&path, &BROKEN).await.unwrap_err();
        assert!(
            report(&error).contains("no such table: nowhere"),
            "{}",
            report(&error)
        );
        let database = open(&path, &ONE).await.unwrap();
        assert_eq!(count(&database).await, 0);
    }

    #[tokio::test]
    async fn two_schemas_share_a_database() {
        const OTHER: Schema = Schema {
            name: "other",
            oldest: 1,
            migrations: &[Migration {
                number: 1,
                name: "t",
                text: "CREATE TABLE t (x BIGINT);",
            }],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        let database = Database::open_file(&path, Options::default(), &TWO)
            .await
            .unwrap();
        assert_eq!(database.migrate(&OTHER).await.unwrap(), 1);
        assert_eq!(database.migrate(&OTHER).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_commit_is_durable_and_readers_see_it() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(&folder.path().join("test.db"), &TWO).await.unwrap();
        let mut tx = database.begin().await.unwrap();
        sqlx::query("INSERT INTO people VALUES ('Bob', 7)")
            .execute(&mut *tx)
            .await
            .unwrap();
        assert_eq!(
            count(&database).await,
            1,
            "a reader saw what was not committed"
        );
        database.commit(tx, "add a person").await.unwrap();
        assert_eq!(count(&database).await, 2);
        for (pragma, value) in [
            ("PRAGMA synchronous", 2_i64),
            ("PRAGMA wal_autocheckpoint", 1000),
        ] {
            let row = sqlx::query(pragma)
                .fetch_one(database.writer())
                .await
                .unwrap();
            assert_eq!(row.get::<i64, _>(0), value, "{pragma}");
        }
        let mode: String = sqlx::query("PRAGMA journal_mode")
            .fetch_one(database.readers())
            .await
            .unwrap()
            .get(0);
        assert_eq!(mode, "wal");
    }

    #[tokio::test]
    async fn readers_cannot_write() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(&folder.path().join("test.db"), &TWO).await.unwrap();
        let error = sqlx::query("DELETE FROM people")
            .execute(database.readers())
            .await
            .unwrap_err();
        let error = database.error("delete people", error);
        assert!(matches!(error, SqlError::ReadOnly { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_lock_of_another_process_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        let database = open(&path, &TWO).await.unwrap();
        let _held = database.begin().await.unwrap();
        let other = SqliteConnectOptions::new()
            .filename(&path)
            .busy_timeout(std::time::Duration::from_millis(20));
        let mut other = other.connect().await.unwrap();
        let error = sqlx::query("DELETE FROM people")
            .execute(&mut other)
            .await
            .unwrap_err();
        let error = database.error("delete people", error);
        assert!(
            matches!(error, SqlError::Locked { .. }) && error.may_retry(),
            "{error}"
        );
        assert!(
            error.to_string().contains("stop the other instance"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_full_disk_is_named_and_harms_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(&folder.path().join("test.db"), &TWO).await.unwrap();
        sqlx::query("PRAGMA max_page_count = 8")
            .execute(database.writer())
            .await
            .unwrap();
        let big = "x".repeat(1 << 20);
        let error = sqlx::query("INSERT INTO people VALUES (?, 1)")
            .bind(big)
            .execute(database.writer())
            .await
            .unwrap_err();
        let error = database.error("add a person", error);
        assert!(
            matches!(error, SqlError::DiskFull { .. }) && error.may_retry(),
            "{error}"
        );
        assert_eq!(count(&database).await, 1);
    }

    #[tokio::test]
    async fn a_transaction_that_a_full_disk_ends_is_not_in_the_way_of_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(&folder.path().join("test.db"), &TWO).await.unwrap();
        sqlx::query("PRAGMA max_page_count = 8")
            .execute(database.writer())
            .await
            .unwrap();
        let mut tx = database.begin().await.unwrap();
        let error = sqlx::query("INSERT INTO people VALUES (?, 1)")
            .bind("x".repeat(1 << 20))
            .execute(&mut *tx)
            .await
            .unwrap_err();
        let error = database.error("add a person", error);
        assert!(matches!(error, SqlError::DiskFull { .. }), "{error}");
        drop(tx);
        let mut tx = database.begin().await.unwrap();
        sqlx::query("INSERT INTO people VALUES ('Bob', 7)")
            .execute(&mut *tx)
            .await
            .unwrap();
        database.commit(tx, "add a person").await.unwrap();
        assert_eq!(count(&database).await, 2);
    }

    #[tokio::test]
    async fn a_file_that_is_no_database_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        std::fs::write(&path, vec![b'x'; 8192]).unwrap();
        let error = open(&path, &ONE).await.unwrap_err();
        assert!(
            matches!(error, SqlError::Damaged { .. }),
            "{}",
            report(&error)
        );
    }

    #[tokio::test]
    async fn a_double_key_is_told_apart() {
        const KEYED: Schema = Schema {
            name: "keyed",
            oldest: 1,
            migrations: &[Migration {
                number: 1,
                name: "k",
                text: "CREATE TABLE k (x BIGINT PRIMARY KEY); INSERT INTO k VALUES (1);",
            }],
        };
        let folder = tempfile::tempdir().unwrap();
        let database = open(&folder.path().join("test.db"), &KEYED).await.unwrap();
        let error = sqlx::query("INSERT INTO k VALUES (1)")
            .execute(database.writer())
            .await
            .unwrap_err();
        assert!(database.error("add a key", error).is_unique_violation());
    }
}
