//! A connection: statements that give rows, and statements that change something.

use std::future::poll_fn;
use std::time::Duration;

use futures_core::stream::BoxStream;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, raw_sql};

use super::place::{Options, Place};
use super::rows;
use crate::engine::Context;
use crate::json::Fields;
use crate::limits::{SQL_ANSWER_WAIT, SQL_CONNECT_WAIT};

/// An open connection. One on which a statement failed for want of the database is to be dropped.
pub(crate) struct Link(Open);

enum Open {
    Sqlite(Box<SqliteConnection>),
    Postgres(Box<PgConnection>),
    MySql(Box<MySqlConnection>),
}

/// The answer to a statement, under way.
pub(crate) struct Rows<'l> {
    context: &'l Context,
    answer: Answer<'l>,
}

type Stream<'l, R> = BoxStream<'l, Result<R, sqlx::Error>>;

enum Answer<'l> {
    Sqlite(Stream<'l, SqliteRow>),
    Postgres(Stream<'l, PgRow>),
    MySql(Stream<'l, MySqlRow>),
}

/// Why a statement was not done.
#[derive(Debug)]
pub(crate) enum DatabaseError {
    /// The database refuses the statement: it is wrong, or its values are.
    Refused(String),
    /// The database is not there, has no room or is busy, or the processor is to stop; a retry on a
    /// new connection helps.
    Away(String),
}

impl Link {
    /// Connects; what is under way ends when the processor is to stop.
    pub(crate) fn open(context: &Context, place: &Place) -> Result<Link, DatabaseError> {
        let connecting = async {
            Ok::<_, sqlx::Error>(Link(match &place.0 {
                Options::Sqlite(options) => Open::Sqlite(Box::new(options.connect().await?)),
                Options::Postgres(options) => {
                    let mut link = options.connect().await?;
                    // Texts end where ours do.
                    link.execute("SET standard_conforming_strings = on").await?;
                    Open::Postgres(Box::new(link))
                }
                Options::MySql(options) => Open::MySql(Box::new(options.connect().await?)),
            }))
        };
        run(context, SQL_CONNECT_WAIT, connecting).map_err(|error| match error {
            // Whatever it is about the connection, a statement is not to blame.
            DatabaseError::Refused(reason) => DatabaseError::Away(reason),
            other => other,
        })
    }

    /// The rows of a statement's answer, one after the other.
    pub(crate) fn query<'l>(&'l mut self, context: &'l Context, sql: String) -> Rows<'l> {
        let sql = raw_sql(AssertSqlSafe(sql));
        let answer = match &mut self.0 {
            Open::Sqlite(link) => Answer::Sqlite(sql.fetch(link.as_mut())),
            Open::Postgres(link) => Answer::Postgres(sql.fetch(link.as_mut())),
            Open::MySql(link) => Answer::MySql(sql.fetch(link.as_mut())),
        };
        Rows { context, answer }
    }

    /// Has a statement done.
    pub(crate) fn execute(&mut self, context: &Context, sql: String) -> Result<(), DatabaseError> {
        let sql = raw_sql(AssertSqlSafe(sql));
        let executing = async {
            match &mut self.0 {
                Open::Sqlite(link) => sql.execute(link.as_mut()).await.map(drop),
                Open::Postgres(link) => sql.execute(link.as_mut()).await.map(drop),
                Open::MySql(link) => sql.execute(link.as_mut()).await.map(drop),
            }
        };
        run(context, SQL_ANSWER_WAIT, executing)
    }
}

impl Rows<'_> {
    /// The next row, none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Fields>, DatabaseError> {
        match &mut self.answer {
            Answer::Sqlite(rows) => next(self.context, rows, rows::of_sqlite),
            Answer::Postgres(rows) => next(self.context, rows, rows::of_postgres),
            Answer::MySql(rows) => next(self.context, rows, rows::of_mysql),
        }
    }
}

fn next<R>(
    context: &Context,
    rows: &mut Stream<'_, R>,
    fields: fn(&R) -> Result<Fields, sqlx::Error>,
) -> Result<Option<Fields>, DatabaseError> {
    let next = async {
        poll_fn(|task| rows.as_mut().poll_next(task))
            .await
            .transpose()
    };
    let row = run(context, SQL_ANSWER_WAIT, next)?;
    Ok(row.map(|row| fields(&row)).transpose()?)
}

/// Waits for what a database does, but not for ever and not beyond a stop.
fn run<T>(
    context: &Context,
    wait: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, DatabaseError> {
    let is_stopping = context.stop_look();
    let stop = async {
        while !is_stopping() {
            tokio::time::sleep(STOP_LOOK).await;
        }
    };
    context.runtime().block_on(async {
        tokio::select! {
            biased;
            outcome = work => outcome.map_err(DatabaseError::from),
            () = stop => Err(DatabaseError::Away("broken off by the stop".to_owned())),
            () = tokio::time::sleep(wait) => Err(DatabaseError::Away(format!(
                "the database did not answer within {} s", wait.as_secs()
            ))),
        }
    })
}

impl From<sqlx::Error> for DatabaseError {
    fn from(error: sqlx::Error) -> Self {
        let sqlx::Error::Database(told) = &error else {
            return DatabaseError::Away(base::report(&error));
        };
        let code = told.code().unwrap_or_default().into_owned();
        let passes = match told.kind() {
            // Connections, room, an operator's hand, and who has to try again.
            _ if told
                .try_downcast_ref::<sqlx::postgres::PgDatabaseError>()
                .is_some() =>
            {
                ["08", "53", "57", "58", "40"]
                    .iter()
                    .any(|class| code.starts_with(class))
            }
            _ if told
                .try_downcast_ref::<sqlx::sqlite::SqliteError>()
                .is_some() =>
            {
                // Busy, locked, no memory, read-only, I/O and full, in the lowest byte.
                let code: i32 = code.parse().unwrap_or_default();
                matches!(code & 0xff, 5 | 6 | 7 | 8 | 10 | 13)
            }
            _ => match told.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
                // Too many connections, a server that ends, lock waits, deadlocks, full disks.
                Some(mysql) => matches!(mysql.number(), 1021 | 1040 | 1053 | 1205 | 1213 | 1290),
                None => false,
            },
        };
        let reason = told.message().to_owned();
        match passes {
            true => DatabaseError::Away(reason),
            false => DatabaseError::Refused(reason),
        }
    }
}

/// How often a stop is looked for while a database works.
const STOP_LOOK: Duration = Duration::from_millis(100);
