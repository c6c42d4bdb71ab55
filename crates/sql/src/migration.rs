//! Migrations: a schema's history as ordered texts, each applied once, by one node at a time.
//!
//! What was applied stands in `schema_migrations` with the SHA-256 of its text. A binary refuses a
//! database with other migrations than it knows. It takes one with more of them while the newest
//! says, in `schema_floors`, that binaries of its age still work with it: so an upgrade rolls from
//! node to node, and a node of the old version that restarts meanwhile finds its way back.
//!
//! A migration waits for a table's lock a moment only and then tries again: whoever else wants the
//! table queues behind who waits for it, so that one long look at it would stop everybody.

use std::time::{Duration, Instant};

use base::UnixMillis;
use sha2::{Digest, Sha256};

use crate::database::{Database, Outgrown};
use crate::error::{SqlError, mysql_number};
use crate::limits;
use crate::statement::{Conflict, Insert, Statement};
use crate::transaction::Transaction;

/// The history of one schema, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// The schema's name, unique in its database.
    pub name: &'static str,
    /// The oldest of its migrations whose binaries still work after the newest one.
    pub oldest: i64,
    /// Its migrations, numbered 1, 2, 3…
    pub migrations: &'static [Migration],
}

/// One step of a schema. Once released its text must not change.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// One more than the number of the one before.
    pub number: i64,
    /// A few words for people.
    pub name: &'static str,
    /// The statements, in SQLite's types, each ended by `;` at its line's end.
    pub text: &'static str,
}

/// Brings `schema` up to date and returns how many migrations were applied.
pub(crate) async fn migrate(
    database: &Database,
    schema: &Schema,
    now: UnixMillis,
) -> Result<u32, SqlError> {
    check_order(schema)?;
    let mut count = 0;
    let until = Instant::now() + limits::MIGRATION_WAIT;
    loop {
        match locked_step(database, schema, now).await {
            Ok(Some(true)) => count += 1,
            Ok(Some(false)) => return Ok(count),
            // Another node migrates.
            Ok(None) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
            Ok(None) => {
                return Err(SqlError::TooSlow {
                    place: database.place().to_owned(),
                    what: "wait for other nodes' migrations",
                    wait: limits::MIGRATION_WAIT,
                });
            }
            Err(error) if is_in_the_way(&error) && Instant::now() < until => {
                tracing::info!(error = %base::report(&error), "a migration is tried again");
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The first of the schemas whose floor lies above what this binary knows.
pub(crate) async fn outgrown(
    database: &Database,
    schemas: &[Schema],
) -> Result<Option<Outgrown>, SqlError> {
    let what = "see whether this binary still fits";
    let select = Statement::new("SELECT schema_name, oldest FROM schema_floors");
    for row in database.rows(what, &select).await? {
        let read = || Ok((row.text("schema_name")?, row.number("oldest")?));
        let (name, floor) = read().map_err(|e| database.error(what, e))?;
        let schema = schemas.iter().find(|schema| schema.name == name);
        if let Some(schema) = schema
            && floor > newest(schema)
        {
            return Ok(Some((schema.name, floor, newest(schema))));
        }
    }
    Ok(None)
}

/// The number of the newest migration that this binary knows.
fn newest(schema: &Schema) -> i64 {
    schema.migrations.last().map_or(0, |last| last.number)
}

/// Applies the next migration, if there is one, under the lock; none while another node has it.
async fn locked_step(
    database: &Database,
    schema: &Schema,
    now: UnixMillis,
) -> Result<Option<bool>, SqlError> {
    let mut tx = database.begin().await?;
    let step = match tx.lock_migrations().await {
        Ok(true) => step(&mut tx, database.place(), schema, now).await,
        Ok(false) => {
            tx.unlock().await;
            return Ok(None);
        }
        Err(error) => Err(error),
    };
    match step {
        Ok(step) => tx.commit_unlocked().await.map(|()| Some(step)),
        Err(error) => {
            tx.unlock().await;
            Err(error)
        }
    }
}

/// Whether others held what the migration needs.
fn is_in_the_way(error: &SqlError) -> bool {
    match error {
        SqlError::Conflict { .. } => true,
        SqlError::Migration { source, .. } => is_in_the_way(source),
        _ => false,
    }
}

/// Applies the next migration, if there is one.
async fn step(
    tx: &mut Transaction,
    place: &str,
    schema: &Schema,
    now: UnixMillis,
) -> Result<bool, SqlError> {
    for table in [CREATE_TABLE, CREATE_FLOORS] {
        let table = tx.dialect().schema(table);
        tx.run("create the tables of migrations", &Statement::new(table))
            .await?;
    }
    let what = "read the table of migrations";
    let select = Statement::new(SELECT_APPLIED).bind(schema.name);
    let mut applied = Vec::new();
    for row in tx.rows(what, &select).await? {
        let read = || Ok((row.number("number")?, row.text("checksum")?));
        applied.push(read().map_err(|e| tx.error(what, e))?);
    }
    let select = Statement::new(SELECT_FLOOR).bind(schema.name);
    let floor = match tx.row(what, &select).await? {
        Some(row) => row.number("oldest").map_err(|e| tx.error(what, e))?,
        None => i64::MAX,
    };
    check_applied(place, schema, &applied, floor)?;
    let Some(migration) = schema.migrations.get(applied.len()) else {
        return Ok(false);
    };
    apply(tx, schema, migration, now)
        .await
        .map_err(|source| SqlError::Migration {
            schema: schema.name,
            number: migration.number,
            source: Box::new(source),
        })?;
    tracing::debug!(
        schema = schema.name,
        number = migration.number,
        name = migration.name,
        "applied a migration"
    );
    Ok(true)
}

fn check_order(schema: &Schema) -> Result<(), SqlError> {
    for (expected, migration) in (1..).zip(schema.migrations) {
        if migration.number != expected {
            return Err(SqlError::Disordered {
                schema: schema.name,
                number: migration.number,
            });
        }
    }
    Ok(())
}

fn check_applied(
    place: &str,
    schema: &Schema,
    applied: &[(i64, String)],
    floor: i64,
) -> Result<(), SqlError> {
    let known = newest(schema);
    if let Some((found, _)) = applied.last().filter(|(found, _)| *found > known)
        && floor > known
    {
        return Err(SqlError::NewerSchema {
            place: place.to_owned(),
            schema: schema.name,
            found: *found,
            known,
        });
    }
    for ((number, stored), migration) in applied.iter().zip(schema.migrations) {
        if *number != migration.number || *stored != checksum(migration.text) {
            return Err(SqlError::EditedMigration {
                place: place.to_owned(),
                schema: schema.name,
                number: *number,
            });
        }
    }
    Ok(())
}

async fn apply(
    tx: &mut Transaction,
    schema: &Schema,
    migration: &Migration,
    now: UnixMillis,
) -> Result<(), SqlError> {
    let text = tx.dialect().schema(migration.text);
    if tx.dialect().has_transactional_ddl() {
        tx.run_raw("run the migration", text).await?;
    } else {
        // A first attempt that broke off left some of these behind.
        for statement in text.split(";\n").filter(|text| !text.trim().is_empty()) {
            match tx.run_raw("run the migration", statement.to_owned()).await {
                Err(error) if is_there_already(&error, statement) => {}
                done => done?,
            }
        }
    }
    let row = vec![
        schema.name.into(),
        migration.number.into(),
        migration.name.into(),
        checksum(migration.text).into(),
        now.0.into(),
    ];
    tx.insert("note the migration", &INSERT_APPLIED, vec![row])
        .await?;
    let floor = vec![schema.name.into(), schema.oldest.into()];
    tx.insert("note the oldest binary", &INSERT_FLOOR, vec![floor])
        .await
}

fn is_there_already(error: &SqlError, statement: &str) -> bool {
    let SqlError::Statement {
        source: sqlx::Error::Database(error),
        ..
    } = error
    else {
        return false;
    };
    match mysql_number(&**error) {
        Some(MYSQL_DOUBLE) => statement.trim_start().starts_with("INSERT"),
        number => number.is_some_and(|number| MYSQL_THERE.contains(&number)),
    }
}

/// The SHA-256 of a migration's text, in hexadecimal digits.
pub(crate) fn checksum(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    schema_name VARCHAR(64) NOT NULL,
    number BIGINT NOT NULL,
    name VARCHAR(255) NOT NULL,
    checksum VARCHAR(64) NOT NULL,
    applied_ms BIGINT NOT NULL,
    PRIMARY KEY (schema_name, number)
)";

const CREATE_FLOORS: &str = "CREATE TABLE IF NOT EXISTS schema_floors (
    schema_name VARCHAR(64) NOT NULL PRIMARY KEY,
    oldest BIGINT NOT NULL
)";

const SELECT_APPLIED: &str =
    "SELECT number, checksum FROM schema_migrations WHERE schema_name = ? ORDER BY number";

const SELECT_FLOOR: &str = "SELECT oldest FROM schema_floors WHERE schema_name = ?";

const INSERT_APPLIED: Insert = Insert {
    table: "schema_migrations",
    columns: &["schema_name", "number", "name", "checksum", "applied_ms"],
    conflict: Conflict::Fail,
};

const INSERT_FLOOR: Insert = Insert {
    table: "schema_floors",
    columns: &["schema_name", "oldest"],
    conflict: Conflict::Replace {
        key: &["schema_name"],
        columns: &["oldest"],
    },
};

/// MySQL's numbers of errors: the table, column or index is there already.
const MYSQL_THERE: [u16; 3] = [1050, 1060, 1061];

/// MySQL's number of the error that a row with this key is there.
const MYSQL_DOUBLE: u16 = 1062;

/// Between two tries to get a lock: long enough for those who queued behind the last one.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
#[path = "migration_tests.rs"]
mod tests;
