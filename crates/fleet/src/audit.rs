//! The audit: who changed what by the management API, in which class, and how it ended.
//!
//! An entry is written when the call's answer is known and before it is sent; one that cannot be
//! written is in the log all the same. Entries lie in the fleet's database, so that every node shows
//! those of all; what is older than `fleet.audit_max_age`, or more than the bound, is removed.

use std::time::Duration;

use base::UnixMillis;
use serde::Serialize;
use sql::{Conflict, Database, Insert, Migration, Row, Schema, SqlError, Statement};

use crate::error::FleetError;
use crate::{limits, newest};

/// One call that was to change something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// A UUID.
    pub id: String,
    /// When, milliseconds since 1970.
    pub at_ms: i64,
    /// Who called.
    pub principal: String,
    /// From which address; empty where nobody is asked who they are.
    pub host: String,
    /// Such as `POST`.
    pub method: String,
    /// The address without its parameters.
    pub path: String,
    /// The class; null where it is about none, or about several.
    pub class: Option<String>,
    /// The answer's status.
    pub status: i64,
    /// More about it, such as the operation that was asked for.
    pub details: String,
}

impl Entry {
    /// Writes it to the log.
    pub fn log(&self) {
        let Entry {
            principal,
            host,
            method,
            path,
            class,
            status,
            details,
            ..
        } = self;
        tracing::info!(
            principal, host, method, path, class, status, details, "audit"
        );
    }
}

/// Which entries a list wants, newest first.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Of this caller.
    pub principal: Option<String>,
    /// Of this class.
    pub class: Option<String>,
    /// Of these classes only.
    pub only_classes: Option<Vec<String>>,
    /// Before this time and id: where the page before ended.
    pub before: Option<(i64, String)>,
    /// At most so many.
    pub limit: usize,
}

/// The audit's table.
#[derive(Clone, Debug)]
pub struct Audit {
    database: Database,
}

impl Audit {
    /// Brings the table up to date.
    ///
    /// # Errors
    /// The database's.
    pub async fn open(database: Database) -> Result<Audit, SqlError> {
        database.migrate(&SCHEMA).await?;
        Ok(Audit { database })
    }

    /// Writes an entry: durable when this returns.
    ///
    /// # Errors
    /// The database's.
    pub async fn add(&self, entry: &Entry) -> Result<(), SqlError> {
        let what = "write the audit";
        let row = vec![
            entry.id.as_str().into(),
            entry.at_ms.into(),
            entry.principal.as_str().into(),
            entry.host.as_str().into(),
            entry.method.as_str().into(),
            entry.path.as_str().into(),
            entry.class.as_deref().into(),
            entry.status.into(),
            entry.details.as_str().into(),
        ];
        let mut tx = self.database.begin().await?;
        tx.insert(what, &ENTRIES, vec![row]).await?;
        tx.commit(what).await
    }

    /// One page, newest first.
    ///
    /// # Errors
    /// The database's.
    pub async fn list(&self, filter: &Filter) -> Result<Vec<Entry>, FleetError> {
        let what = "read the audit";
        let select = ENTRIES.select(" WHERE at_ms >= ?").bind(0_i64);
        let wanted = newest::Wanted {
            having: &[("principal", &filter.principal), ("class", &filter.class)],
            only_classes: filter.only_classes.as_deref(),
            before: filter.before.as_ref(),
            limit: filter.limit,
        };
        let Some(select) = newest::page(select, &wanted) else {
            return Ok(Vec::new());
        };
        let rows = self.database.rows(what, &select).await?;
        let entries: Result<Vec<Entry>, sqlx::Error> = rows.iter().map(entry).collect();
        Ok(entries.map_err(|error| self.database.error(what, error))?)
    }

    /// Removes entries older than `age`, or more than there may be; an age of nothing keeps them.
    ///
    /// # Errors
    /// The database's.
    pub async fn prune(&self, age: Duration, now: UnixMillis) -> Result<(), SqlError> {
        let what = "remove old entries of the audit";
        if !age.is_zero() {
            let delete = Statement::new("DELETE FROM audit WHERE at_ms < ?").bind((now - age).0);
            self.database.run(what, &delete).await?;
        }
        let rows = newest::Rows::of("audit", "at_ms");
        let kept = newest::keep(&self.database, what, rows, limits::AUDIT_ENTRIES_MAX);
        kept.await.map(drop)
    }
}

fn entry(row: &Row) -> Result<Entry, sqlx::Error> {
    Ok(Entry {
        id: row.text("id")?,
        at_ms: row.number("at_ms")?,
        principal: row.text("principal")?,
        host: row.text("host")?,
        method: row.text("method")?,
        path: row.text("path")?,
        class: row.maybe_text("class")?,
        status: row.number("status")?,
        details: row.text("details")?,
    })
}

pub const SCHEMA: Schema = Schema {
    name: "fleet_audit",
    oldest: 1,
    migrations: &[Migration {
        number: 1,
        name: "the audit",
        text: FIRST,
    }],
};

const FIRST: &str = "
CREATE TABLE audit (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    principal TEXT NOT NULL,
    host VARCHAR(64) NOT NULL,
    method VARCHAR(16) NOT NULL,
    path TEXT NOT NULL,
    class VARCHAR(255),
    status BIGINT NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX audit_at ON audit (at_ms, id);
CREATE INDEX audit_class ON audit (class, at_ms);
";

const ENTRIES: Insert = Insert {
    table: "audit",
    columns: &[
        "id",
        "at_ms",
        "principal",
        "host",
        "method",
        "path",
        "class",
        "status",
        "details",
    ],
    conflict: Conflict::Keep { key: &["id"] },
};
