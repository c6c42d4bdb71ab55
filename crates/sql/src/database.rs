//! An open database of any kind: its connections and single statements. With `transaction.rs` the one
//! seam to sqlx.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use base::{Clock, SystemClock};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor, MySql};

use crate::dialect::Dialect;
use crate::error::SqlError;
use crate::limits;
use crate::migration::{self, Schema};
use crate::place::Place;
use crate::sqlite::{Options, Sqlite};
use crate::statement::{Row, Statement};
use crate::transaction::{Open, Transaction};

/// An open database: cheap to clone.
#[derive(Clone)]
pub struct Database {
    place: Arc<str>,
    pools: Pools,
    outgrown: Arc<OnceLock<Outgrown>>,
}

/// The schema for which this binary is too old by now: its name, the oldest version that fits, and the
/// newest that this binary knows.
pub(crate) type Outgrown = (&'static str, i64, i64);

#[derive(Clone)]
enum Pools {
    Sqlite(Sqlite),
    Postgres(PgPool),
    MySql(MySqlPool),
}

/// A connection of a MySQL pool, which is closed unless what it was lent for came to its end. A call that
/// is given up half-way leaves answers under way: whoever gets the connection next would take them for
/// its own, or wait for ever for others.
pub(crate) struct Lent {
    pub(crate) connection: PoolConnection<MySql>,
    is_done: bool,
}

impl Lent {
    async fn of(pool: &MySqlPool) -> Result<Lent, sqlx::Error> {
        Ok(Lent {
            connection: pool.acquire().await?,
            is_done: false,
        })
    }

    pub(crate) async fn say(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(text).execute(&mut *self.connection).await?;
        Ok(())
    }

    /// Gives it back after its last call.
    pub(crate) fn done<T>(mut self, outcome: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.is_done = true;
        outcome
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.is_done {
            self.connection.close_on_drop();
        }
    }
}

/// A statement as sqlx wants it; a macro, since each database's query is a type of its own.
macro_rules! query {
    ($dialect:expr, $statement:expr) => {{
        let mut query = sqlx::query(sqlx::AssertSqlSafe($dialect.statement(&$statement.text)));
        for value in &$statement.values {
            query = match value.clone() {
                $crate::statement::Value::Number(number) => query.bind(number),
                $crate::statement::Value::Text(text) => {
                    query.bind(text.map($crate::dialect::storable))
                }
                $crate::statement::Value::Bytes(bytes) => query.bind(bytes),
            };
        }
        query
    }};
}
pub(crate) use query;

impl Database {
    /// Opens the database at `place` and brings `schema` up to date.
    pub async fn open(
        place: &Place,
        options: Options,
        schema: &Schema,
    ) -> Result<Database, SqlError> {
        let shown: Arc<str> = Arc::from(place.to_string());
        let failed = |e| SqlError::sort(&shown, "connect", e);
        let database = match place {
            Place::File(path) => Database::from(Sqlite::connect(path, &options).await?),
            Place::Postgres(connect, _) => {
                let settings = [
                    // A node that vanishes in the middle of a transaction holds up the others no
                    // longer.
                    ("idle_in_transaction_session_timeout", "60000"),
                    // That a table is there already is not worth a line at each start.
                    ("client_min_messages", "warning"),
                ];
                let connect = connect
                    .as_ref()
                    .clone()
                    .options(settings)
                    .disable_statement_logging();
                let pool = PgPoolOptions::new()
                    .min_connections(0)
                    .max_connections(options.readers.max(2))
                    .acquire_timeout(limits::SERVER_WAIT)
                    .test_before_acquire(false)
                    .before_acquire(|connection, of| {
                        Box::pin(async move {
                            if of.idle_for > limits::TRUSTED_IDLE {
                                connection.ping().await?;
                            }
                            Ok(true)
                        })
                    })
                    .connect_with(connect)
                    .await
                    .map_err(failed)?;
                Database {
                    place: shown.clone(),
                    pools: Pools::Postgres(pool),
                    outgrown: Arc::default(),
                }
            }
            Place::MySql(connect, _) => {
                let connect = connect.as_ref().clone().disable_statement_logging();
                let pool = MySqlPoolOptions::new()
                    .min_connections(0)
                    .max_connections(options.readers.max(2))
                    .acquire_timeout(limits::SERVER_WAIT)
                    .test_before_acquire(false)
                    .before_acquire(|connection, of| {
                        Box::pin(async move {
                            if of.idle_for > limits::TRUSTED_IDLE {
                                connection.ping().await?;
                            }
                            Ok(true)
                        })
                    })
                    .after_connect(|connection, _| {
                        // As PostgreSQL by default: a statement sees what is committed before it.
                        Box::pin(
                            async move { connection.execute(MYSQL_ISOLATION).await.map(|_| ()) },
                        )
                    })
                    .connect_with(connect)
                    .await
                    .map_err(failed)?;
                Database {
                    place: shown.clone(),
                    pools: Pools::MySql(pool),
                    outgrown: Arc::default(),
                }
            }
        };
        match database.migrate(schema).await {
            Ok(_) => Ok(database),
            Err(error) => {
                database.close().await;
                Err(error)
            }
        }
    }

    /// Opens the SQLite file at `path`, made with its folder where missing.
    pub async fn open_file(
        path: &Path,
        options: Options,
        schema: &Schema,
    ) -> Result<Database, SqlError> {
        Database::open(&Place::File(path.to_owned()), options, schema).await
    }

    /// Brings one more schema of this database up to date; returns how many migrations it took.
    pub async fn migrate(&self, schema: &Schema) -> Result<u32, SqlError> {
        migration::migrate(self, schema, SystemClock.now()).await
    }

    /// Looks whether a newer binary has made one of `schemas` into what this one does not fit any
    /// more; from then on nothing is written. For processes that share a database.
    ///
    /// # Errors
    /// [`SqlError::NewerSchema`], and whatever keeps the floors from being read.
    pub async fn still_fits(&self, schemas: &[Schema]) -> Result<(), SqlError> {
        if let Some(outgrown) = migration::outgrown(self, schemas).await? {
            // It is known already, or is now.
            let _ = self.outgrown.set(outgrown);
        }
        self.check_outgrown()
    }

    fn check_outgrown(&self) -> Result<(), SqlError> {
        let Some((schema, found, known)) = self.outgrown.get() else {
            return Ok(());
        };
        Err(SqlError::NewerSchema {
            place: self.place.to_string(),
            schema,
            found: *found,
            known: *known,
        })
    }

    /// Which database it is.
    pub fn dialect(&self) -> Dialect {
        match &self.pools {
            Pools::Sqlite(_) => Dialect::Sqlite,
            Pools::Postgres(_) => Dialect::Postgres,
            Pools::MySql(_) => Dialect::MySql,
        }
    }

    /// The file or the server, without its password.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Reads rows; `what` is what is to be done, such as `read the flow`.
    pub async fn rows(
        &self,
        what: &'static str,
        statement: &Statement,
    ) -> Result<Vec<Row>, SqlError> {
        let rows = async {
            Ok(match &self.pools {
                Pools::Sqlite(file) => {
                    let rows = query!(Dialect::Sqlite, statement).fetch_all(file.readers());
                    rows.await?.into_iter().map(Row::Sqlite).collect()
                }
                Pools::Postgres(pool) => {
                    let rows = query!(Dialect::Postgres, statement).fetch_all(pool);
                    rows.await?.into_iter().map(Row::Postgres).collect()
                }
                Pools::MySql(pool) => {
                    let mut lent = Lent::of(pool).await?;
                    let rows = query!(Dialect::MySql, statement).fetch_all(&mut *lent.connection);
                    let rows = rows.await;
                    lent.done(rows)?.into_iter().map(Row::MySql).collect()
                }
            })
        };
        timely(&self.place, what, rows).await
    }

    /// Reads the first row, if there is one.
    pub async fn row(
        &self,
        what: &'static str,
        statement: &Statement,
    ) -> Result<Option<Row>, SqlError> {
        Ok(self.rows(what, statement).await?.into_iter().next())
    }

    /// Runs one statement by itself, which commits it; returns how many rows it found.
    pub async fn run(&self, what: &'static str, statement: &Statement) -> Result<u64, SqlError> {
        let done = async {
            Ok(match &self.pools {
                Pools::Sqlite(file) => {
                    let done = query!(Dialect::Sqlite, statement).execute(file.writer());
                    done.await?.rows_affected()
                }
                Pools::Postgres(pool) => {
                    let done = query!(Dialect::Postgres, statement).execute(pool);
                    done.await?.rows_affected()
                }
                Pools::MySql(pool) => {
                    let mut lent = Lent::of(pool).await?;
                    let done = query!(Dialect::MySql, statement).execute(&mut *lent.connection);
                    let done = done.await;
                    lent.done(done)?.rows_affected()
                }
            })
        };
        timely(&self.place, what, done).await
    }

    /// Runs one statement by itself that has a `RETURNING`, which commits it; its first row, if there
    /// is one. Only where [`Dialect::has_returning`].
    pub async fn run_returning(
        &self,
        what: &'static str,
        statement: &Statement,
    ) -> Result<Option<Row>, SqlError> {
        match &self.pools {
            Pools::Sqlite(file) => {
                let rows = async {
                    let rows = query!(Dialect::Sqlite, statement).fetch_all(file.writer());
                    Ok(rows.await?.into_iter().next().map(Row::Sqlite))
                };
                timely(&self.place, what, rows).await
            }
            // A server reads and writes over the same connections.
            Pools::Postgres(_) | Pools::MySql(_) => self.row(what, statement).await,
        }
    }

    /// Begins a transaction; on a file with its write lock. None begins once
    /// [`Database::still_fits`] has found that this binary is too old.
    pub async fn begin(&self) -> Result<Transaction, SqlError> {
        self.check_outgrown()?;
        let open = async {
            Ok(match &self.pools {
                Pools::Sqlite(file) => {
                    Open::Sqlite(file.writer().begin_with("BEGIN IMMEDIATE").await?)
                }
                Pools::Postgres(pool) => Open::Postgres(pool.begin().await?),
                Pools::MySql(pool) => {
                    let mut lent = Lent::of(pool).await?;
                    lent.say("BEGIN").await?;
                    Open::MySql(lent)
                }
            })
        };
        Ok(Transaction {
            place: self.place.clone(),
            open: timely(&self.place, "begin a transaction", open).await?,
        })
    }

    /// The database's own clock, milliseconds since 1970: the one that all nodes share.
    pub async fn now_ms(&self) -> Result<i64, SqlError> {
        let now = Statement::new(format!("{} AS now_ms", self.dialect().now_ms()));
        let what = "read the database's clock";
        match self.row(what, &now).await? {
            Some(row) => row.number("now_ms").map_err(|e| self.error(what, e)),
            None => Ok(0),
        }
    }

    /// Sorts an error of sqlx into this crate's words; `what` is what was to be done.
    pub fn error(&self, what: &'static str, source: sqlx::Error) -> SqlError {
        SqlError::sort(&self.place, what, source)
    }

    /// Waits for what is under way and closes the database.
    pub async fn close(&self) {
        match &self.pools {
            Pools::Sqlite(file) => file.close().await,
            Pools::Postgres(pool) => pool.close().await,
            Pools::MySql(pool) => pool.close().await,
        }
    }
}

impl Database {
    /// The file, where it is one.
    pub fn sqlite(&self) -> Option<&Sqlite> {
        match &self.pools {
            Pools::Sqlite(file) => Some(file),
            Pools::Postgres(_) | Pools::MySql(_) => None,
        }
    }
}

impl From<Sqlite> for Database {
    fn from(file: Sqlite) -> Database {
        Database {
            place: Arc::from(file.path().to_string_lossy()),
            pools: Pools::Sqlite(file),
            outgrown: Arc::default(),
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.place)
    }
}

/// Gives up a call that takes too long: a packet that is lost for good shows in nothing else.
pub(crate) async fn timely<T>(
    place: &str,
    what: &'static str,
    call: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, SqlError> {
    match tokio::time::timeout(limits::STATEMENT_WAIT, call).await {
        Ok(done) => done.map_err(|e| SqlError::sort(place, what, e)),
        Err(_) => Err(SqlError::TooSlow {
            place: place.to_owned(),
            what,
            wait: limits::STATEMENT_WAIT,
        }),
    }
}

const MYSQL_ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET SESSION wait_timeout = 120";

#[cfg(test)]
#[path = "database_tests.rs"]
mod tests;
