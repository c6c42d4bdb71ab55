//! Migrations: a schema's history as ordered texts, each applied once.
//!
//! What was applied stands in `schema_migrations` with the SHA-256 of its text. A binary refuses a
//! database that has more migrations than it knows, or others; it never guesses.

use base::UnixMillis;
use sha2::{Digest, Sha256};
use sqlx::Row;

use crate::database::Database;
use crate::error::SqlError;

/// The history of one schema, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// The schema's name, unique in its database.
    pub name: &'static str,
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
    /// The statements, in the words of the database's dialect.
    pub text: &'static str,
}

/// Brings `schema` up to date and returns how many migrations were applied.
pub(crate) async fn migrate(
    database: &Database,
    schema: &Schema,
    now: UnixMillis,
) -> Result<u32, SqlError> {
    check_order(schema)?;
    let mut tx = database.begin().await?;
    sqlx::query(CREATE_TABLE)
        .execute(&mut *tx)
        .await
        .map_err(|e| database.error("create the table of migrations", e))?;
    let rows = sqlx::query(SELECT_APPLIED)
        .bind(schema.name)
        .fetch_all(&mut *tx)
        .await
        .map_err(|e| database.error("read the table of migrations", e))?;
    database
        .commit(tx, "commit the table of migrations")
        .await?;

    let read = |e| database.error("read the table of migrations", e);
    let mut applied = Vec::with_capacity(rows.len());
    for row in rows {
        applied.push((row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?));
    }
    check_applied(database, schema, &applied)?;

    let mut count = 0;
    for migration in schema.migrations.iter().skip(applied.len()) {
        apply(database, schema, migration, now)
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
        count += 1;
    }
    Ok(count)
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
    database: &Database,
    schema: &Schema,
    applied: &[(i64, String)],
) -> Result<(), SqlError> {
    let known = schema.migrations.last().map_or(0, |last| last.number);
    if let Some((found, _)) = applied.last().filter(|(found, _)| *found > known) {
        return Err(SqlError::NewerSchema {
            path: database.path().to_owned(),
            schema: schema.name,
            found: *found,
            known,
        });
    }
    for ((number, stored), migration) in applied.iter().zip(schema.migrations) {
        if *number != migration.number || *stored != checksum(migration.text) {
            return Err(SqlError::EditedMigration {
                path: database.path().to_owned(),
                schema: schema.name,
                number: *number,
            });
        }
    }
    Ok(())
}

async fn apply(
    database: &Database,
    schema: &Schema,
    migration: &Migration,
    now: UnixMillis,
) -> Result<(), SqlError> {
    let mut tx = database.begin().await?;
    sqlx::raw_sql(migration.text)
        .execute(&mut *tx)
        .await
        .map_err(|e| database.error("run the migration", e))?;
    sqlx::query(INSERT_APPLIED)
        .bind(schema.name)
        .bind(migration.number)
        .bind(migration.name)
        .bind(checksum(migration.text))
        .bind(now.0)
        .execute(&mut *tx)
        .await
        .map_err(|e| database.error("note the migration", e))?;
    database.commit(tx, "commit the migration").await
}

fn checksum(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

// Words and types that SQLite, PostgreSQL and MySQL all take.
const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    schema_name VARCHAR(64) NOT NULL,
    number BIGINT NOT NULL,
    name VARCHAR(255) NOT NULL,
    checksum VARCHAR(64) NOT NULL,
    applied_ms BIGINT NOT NULL,
    PRIMARY KEY (schema_name, number)
)";

const SELECT_APPLIED: &str =
    "SELECT number, checksum FROM schema_migrations WHERE schema_name = ? ORDER BY number";

const INSERT_APPLIED: &str = "INSERT INTO schema_migrations
    (schema_name, number, name, checksum, applied_ms) VALUES (?, ?, ?, ?, ?)";
