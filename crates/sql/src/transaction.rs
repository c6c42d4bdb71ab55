//! A transaction on a database of any kind: its statements, what it writes in each database's own way,
//! and its end.

use std::fmt;
use std::sync::Arc;

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, Executor, Postgres};

use crate::arrays;
use crate::database::{Lent, query, timely};
use crate::dialect::{Dialect, storable};
use crate::error::SqlError;
use crate::limits;
use crate::sqlite::SqliteTransaction;
use crate::statement::{Insert, Lookup, Row, Statement, Value};

/// A transaction. Dropping it rolls it back.
pub struct Transaction {
    pub(crate) place: Arc<str>,
    pub(crate) open: Open,
}

pub(crate) enum Open {
    Sqlite(SqliteTransaction),
    Postgres(sqlx::Transaction<'static, Postgres>),
    MySql(Lent),
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
