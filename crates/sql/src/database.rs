//! An open database of any kind: statements, transactions, and the one seam to sqlx.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use base::{Clock, SystemClock};
use futures_util::TryStreamExt;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, MySql, Postgres};

use crate::arrays;
use crate::dialect::{Dialect, storable};
use crate::error::SqlError;
use crate::limits;
use crate::migration::{self, Schema};
use crate::place::Place;
use crate::sqlite::{Options, Sqlite, SqliteTransaction};
use crate::statement::{Insert, Lookup, Row, Statement, Value};

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

/// A transaction. Dropping it rolls it back.
pub struct Transaction {
    place: Arc<str>,
    open: Open,
}

#[derive(Clone)]
enum Pools {
    Sqlite(Sqlite),
    Postgres(PgPool),
    MySql(MySqlPool),
}

enum Open {
    Sqlite(SqliteTransaction),
    Postgres(sqlx::Transaction<'static, Postgres>),
    MySql(Lent),
}

/// A connection of a MySQL pool, which is closed unless what it was lent for came to its end. A call that
/// is given up half-way leaves answers under way: whoever gets the connection next would take them for
/// its own, or wait for ever for others.
struct Lent {
    connection: PoolConnection<MySql>,
    is_done: bool,
}

impl Lent {
    async fn of(pool: &MySqlPool) -> Result<Lent, sqlx::Error> {
        Ok(Lent {
            connection: pool.acquire().await?,
            is_done: false,
        })
    }

    async fn say(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(text).execute(&mut *self.connection).await?;
        Ok(())
    }

    /// Gives it back after its last call.
    fn done<T>(mut self, outcome: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
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
        let mut query = sqlx::query(AssertSqlSafe($dialect.statement(&$statement.text)));
        for value in &$statement.values {
            query = match value.clone() {
                Value::Number(number) => query.bind(number),
                Value::Text(text) => query.bind(text.map(storable)),
                Value::Bytes(bytes) => query.bind(bytes),
            };
        }
        query
    }};
}

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

impl Transaction {
    /// Which database it is.
    pub fn dialect(&self) -> Dialect {
        match &self.open {
            Open::Sqlite(_) => Dialect::Sqlite,
            Open::Postgres(_) => Dialect::Postgres,
            Open::MySql(_) => Dialect::MySql,
        }
    }

    /// Reads rows as this transaction sees them.
    pub async fn rows(
        &mut self,
        what: &'static str,
        statement: &Statement,
    ) -> Result<Vec<Row>, SqlError> {
        let rows = async {
            Ok(match &mut self.open {
                Open::Sqlite(tx) => {
                    let rows = query!(Dialect::Sqlite, statement).fetch_all(&mut **tx);
                    rows.await?.into_iter().map(Row::Sqlite).collect()
                }
                Open::Postgres(tx) => {
                    let rows = query!(Dialect::Postgres, statement).fetch_all(&mut **tx);
                    rows.await?.into_iter().map(Row::Postgres).collect()
                }
                Open::MySql(tx) => {
                    let rows = query!(Dialect::MySql, statement).fetch_all(&mut *tx.connection);
                    rows.await?.into_iter().map(Row::MySql).collect()
                }
            })
        };
        timely(&self.place, what, rows).await
    }

    /// Reads the first row, if there is one.
    pub async fn row(
        &mut self,
        what: &'static str,
        statement: &Statement,
    ) -> Result<Option<Row>, SqlError> {
        Ok(self.rows(what, statement).await?.into_iter().next())
    }

    /// Reads the rows that have any of `among`, as many texts as a statement may hold; those of
    /// `of` where the lookup asks for that.
    pub async fn look_up(
        &mut self,
        what: &'static str,
        wanted: &Lookup,
        of: &str,
        among: Vec<String>,
    ) -> Result<Vec<Row>, SqlError> {
        if let Open::Postgres(tx) = &mut self.open {
            let among: Vec<String> = among.into_iter().map(storable).collect();
            let mut query = sqlx::query(AssertSqlSafe(arrays::lookup(wanted))).bind(among);
            if wanted.of.is_some() {
                query = query.bind(of);
            }
            let rows = timely(&self.place, what, query.fetch_all(&mut **tx)).await?;
            return Ok(rows.into_iter().map(Row::Postgres).collect());
        }
        let (columns, table) = (wanted.columns.join(", "), wanted.table);
        let select = Statement::new(format!("SELECT {columns} FROM {table} WHERE "));
        let select = match wanted.of {
            Some(one) => select.push(&format!("{one} = ? AND ")).bind(of),
            None => select,
        };
        let select = select.push(wanted.among).push(" IN ").list(among);
        self.rows(what, &select).await
    }

    /// Runs a statement; returns how many rows it found.
    pub async fn run(
        &mut self,
        what: &'static str,
        statement: &Statement,
    ) -> Result<u64, SqlError> {
        let done = async {
            Ok(match &mut self.open {
                Open::Sqlite(tx) => {
                    let done = query!(Dialect::Sqlite, statement).execute(&mut **tx);
                    done.await?.rows_affected()
                }
                Open::Postgres(tx) => {
                    let done = query!(Dialect::Postgres, statement).execute(&mut **tx);
                    done.await?.rows_affected()
                }
                Open::MySql(tx) => {
                    let done = query!(Dialect::MySql, statement).execute(&mut *tx.connection);
                    done.await?.rows_affected()
                }
            })
        };
        timely(&self.place, what, done).await
    }

    /// Runs statements of which none needs what another does: as one on PostgreSQL, which so answers
    /// once for all, and as one call on SQLite. Returns how many rows each found. None may have a
    /// `RETURNING`, and no two may write the same row.
    pub async fn run_together(
        &mut self,
        what: &'static str,
        statements: Vec<Statement>,
    ) -> Result<Vec<u64>, SqlError> {
        if let Open::Sqlite(tx) = &mut self.open {
            let all = in_turn(statements);
            let found = (&mut **tx)
                .fetch_many(query!(Dialect::Sqlite, all))
                .try_filter_map(async |done| Ok(done.left().map(|done| done.rows_affected())));
            return timely(&self.place, what, found.try_collect()).await;
        }
        if self.dialect() != Dialect::Postgres {
            let mut found = Vec::with_capacity(statements.len());
            for statement in &statements {
                found.push(self.run(what, statement).await?);
            }
            return Ok(found);
        }
        let names: Vec<String> = (0..statements.len())
            .map(|n| format!("found_{n}"))
            .collect();
        let row = self.row(what, &together(&names, statements)).await?;
        let Some(row) = row else {
            return Ok(Vec::new());
        };
        let count = |name: &String| row.number(name).map(i64::unsigned_abs);
        let counts: Result<Vec<u64>, sqlx::Error> = names.iter().map(count).collect();
        counts.map_err(|e| self.error(what, e))
    }

    /// Runs `texts` as they are, without values: a migration.
    pub(crate) async fn run_raw(
        &mut self,
        what: &'static str,
        text: String,
    ) -> Result<(), SqlError> {
        let raw = sqlx::raw_sql(AssertSqlSafe(text));
        let done = match &mut self.open {
            Open::Sqlite(tx) => raw.execute(&mut **tx).await.map(|_| ()),
            Open::Postgres(tx) => raw.execute(&mut **tx).await.map(|_| ()),
            Open::MySql(tx) => raw.execute(&mut *tx.connection).await.map(|_| ()),
        };
        done.map_err(|e| SqlError::sort(&self.place, what, e))
    }

    /// Writes rows, as many in a statement as it may hold.
    pub async fn insert(
        &mut self,
        what: &'static str,
        into: &Insert,
        rows: Vec<Vec<Value>>,
    ) -> Result<(), SqlError> {
        if self.dialect() == Dialect::Postgres {
            self.write_columns(what, into, rows, None).await?;
            return Ok(());
        }
        let width = into.columns.len().max(1);
        let rows_max = limits::ROWS_PER_STATEMENT_MAX.min(limits::VALUES_PER_STATEMENT_MAX / width);
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let some = rows.by_ref().take(rows_max).collect();
            self.run(what, &self.dialect().insert(into, some)).await?;
        }
        Ok(())
    }

    /// Writes rows, of which no two have the same key, and tells how many of their keys were there
    /// before. `by` finds a row by its key: its column `of` has the same value in all rows. That is one
    /// statement on PostgreSQL.
    pub async fn replace(
        &mut self,
        what: &'static str,
        into: &Insert,
        by: &Lookup,
        rows: Vec<Vec<Value>>,
    ) -> Result<u64, SqlError> {
        if self.dialect() == Dialect::Postgres {
            return self.write_columns(what, into, rows, Some(by)).await;
        }
        if rows.is_empty() {
            return Ok(0);
        }
        let texts = |name: &str| {
            let place = into.columns.iter().position(|column| *column == name);
            let text = move |row: &Vec<Value>| match row.get(place?) {
                Some(Value::Text(text)) => text.clone(),
                _ => None,
            };
            rows.iter().filter_map(text)
        };
        let of = by.of.and_then(|of| texts(of).next()).unwrap_or_default();
        let among = texts(by.among).collect();
        let there = self.look_up(what, by, &of, among).await?.len();
        self.insert(what, into, rows).await?;
        Ok(there as u64)
    }

    /// Writes rows as columns, in PostgreSQL's own way; of those that `by` finds it tells how many were
    /// there before.
    async fn write_columns(
        &mut self,
        what: &'static str,
        into: &Insert,
        mut rows: Vec<Vec<Value>>,
        by: Option<&Lookup>,
    ) -> Result<u64, SqlError> {
        let rows_max = limits::VALUES_PER_STATEMENT_MAX / into.columns.len().max(1);
        let mut there = 0;
        while !rows.is_empty() {
            let later = rows.split_off(rows.len().min(rows_max));
            let Some(columns) = arrays::columns(std::mem::replace(&mut rows, later)) else {
                let mixed = sqlx::Error::Encode("a column's fields differ in type".into());
                return Err(SqlError::sort(&self.place, what, mixed));
            };
            let Open::Postgres(tx) = &mut self.open else {
                return Ok(there);
            };
            let text = match by {
                Some(by) => arrays::replace(into, by, &columns),
                None => arrays::insert(into, &columns),
            };
            let query = sqlx::query(AssertSqlSafe(text));
            let query = columns
                .into_iter()
                .fold(query, |query, column| column.bind(query));
            // To its end: what a part of the statement writes comes after the row that it answers.
            let rows = timely(&self.place, what, query.fetch_all(&mut **tx)).await?;
            for row in rows {
                let found = Row::Postgres(row).number("there");
                there += found.map_err(|e| self.error(what, e))?.unsigned_abs();
            }
        }
        Ok(there)
    }

    /// Commits: what was written is durable when this returns.
    pub async fn commit(self, what: &'static str) -> Result<(), SqlError> {
        let place = self.place;
        let done = async {
            match self.open {
                Open::Sqlite(tx) => tx.commit().await,
                Open::Postgres(tx) => tx.commit().await,
                Open::MySql(mut tx) => {
                    tx.say("COMMIT").await?;
                    tx.done(Ok(()))
                }
            }
        };
        timely(&place, what, done).await
    }

    /// Rolls back, and keeps the connection for others.
    async fn roll_back(self, what: &'static str) -> Result<(), SqlError> {
        let place = self.place;
        let done = async {
            match self.open {
                Open::Sqlite(tx) => tx.rollback().await,
                Open::Postgres(tx) => tx.rollback().await,
                Open::MySql(mut tx) => {
                    tx.say("ROLLBACK").await?;
                    tx.done(Ok(()))
                }
            }
        };
        timely(&place, what, done).await
    }

    /// Takes the lock of migrations, unless another node has it.
    pub(crate) async fn lock_migrations(&mut self) -> Result<bool, SqlError> {
        let what = "ask for the lock of migrations";
        if let Some(limit) = self.dialect().limit_lock_waits() {
            self.run_raw(what, limit).await?;
        }
        let Some(lock) = self.dialect().lock_migrations() else {
            return Ok(true);
        };
        let rows = self.rows(what, &Statement::new(lock)).await?;
        let taken = rows.first().map(|row| row.number("taken")).transpose();
        let taken = taken.map_err(|e| self.error(what, e))?;
        Ok(taken == Some(1))
    }

    /// Commits and gives the lock of migrations back.
    pub(crate) async fn commit_unlocked(mut self) -> Result<(), SqlError> {
        self.unlock_after("COMMIT").await?;
        self.commit("commit the migration").await
    }

    /// Rolls back and gives the lock of migrations back.
    pub(crate) async fn unlock(mut self) {
        let what = "give the lock of migrations back";
        let unlocked = match self.unlock_after("ROLLBACK").await {
            Ok(()) => self.roll_back(what).await,
            Err(error) => Err(error),
        };
        if let Err(error) = unlocked {
            tracing::debug!(error = %base::report(&error), "the lock goes with its connection");
        }
    }

    /// MySQL's lock belongs to the connection, and must not be given back before the commit.
    async fn unlock_after(&mut self, end: &str) -> Result<(), SqlError> {
        let unlock = self.dialect().unlock_migrations();
        if !unlock.is_empty() {
            self.run_raw("end the migration", end.to_owned()).await?;
        }
        for text in unlock {
            let text = (*text).to_owned();
            self.run_raw("let other nodes migrate", text).await?;
        }
        Ok(())
    }

    /// Sorts an error of sqlx into this crate's words; `what` is what was to be done.
    pub fn error(&self, what: &'static str, source: sqlx::Error) -> SqlError {
        SqlError::sort(&self.place, what, source)
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

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transaction({})", self.place)
    }
}

/// PostgreSQL's way to run statements as one, which answers how many rows each found under its name.
fn together(names: &[String], statements: Vec<Statement>) -> Statement {
    let (mut parts, mut values) = (Vec::with_capacity(names.len()), Vec::new());
    for (name, statement) in names.iter().zip(statements) {
        parts.push(format!("{name} AS ({} RETURNING 1)", statement.text));
        values.extend(statement.values);
    }
    let count = |name: &String| format!("(SELECT count(*) FROM {name}) AS {name}");
    let counts: Vec<String> = names.iter().map(count).collect();
    let text = format!("WITH {} SELECT {}", parts.join(", "), counts.join(", "));
    Statement { text, values }
}

/// SQLite's way to run statements with one call, one after the other.
fn in_turn(statements: Vec<Statement>) -> Statement {
    let (mut texts, mut values) = (Vec::with_capacity(statements.len()), Vec::new());
    for statement in statements {
        texts.push(statement.text);
        values.extend(statement.values);
    }
    let text = texts.join("; ");
    Statement { text, values }
}

/// Gives up a call that takes too long: a packet that is lost for good shows in nothing else.
async fn timely<T>(
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
