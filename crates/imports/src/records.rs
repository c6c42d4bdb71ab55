//! The record service: look up, check out, check in. The work at the counter that imports must not
//! slow down; its latencies steer the guard.
//!
//! A check-out is one transaction: who holds the record, its version, and its history. It shares no
//! row with an import's progress.

use std::time::Instant;

use base::TenantId;
use serde::Serialize;
use serde_json::Value as Json;
use sql::{Conflict, Insert, Row, Statement, Value};

use crate::error::ImportsError;
use crate::imports::Imports;
use crate::limits;
use crate::registry::unsigned;

/// A record of the sink.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredRecord {
    /// Its tenant.
    pub tenant: String,
    /// Its id within the tenant.
    pub id: String,
    /// The format that it came in.
    pub format: String,
    /// Its title.
    pub title: Option<String>,
    /// The profile's fields.
    pub fields: Option<Json>,
    /// The record.
    pub body: Json,
    /// Who has checked it out.
    pub holder: Option<String>,
    /// Grows with each check-out and check-in.
    pub version: u64,
}

/// What was done to a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryEntry {
    /// The record's version after it.
    pub version: u64,
    /// `check_out` or `check_in`.
    pub action: String,
    /// Who.
    pub holder: Option<String>,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
}

/// What is done at the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Somebody takes the record.
    CheckOut,
    /// It comes back.
    CheckIn,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::CheckOut => "check_out",
            Action::CheckIn => "check_in",
        }
    }
}

impl Imports {
    /// One record of a tenant.
    pub async fn record(&self, tenant: &TenantId, id: &str) -> Result<StoredRecord, ImportsError> {
        let started = Instant::now();
        let what = "read a record";
        let database = &self.core.registry.database;
        let select = Statement::new(
            "SELECT tenant, id, format, title, fields, body, holder, version FROM import_records
             WHERE tenant = ? AND id = ?",
        )
        .bind(tenant.as_str())
        .bind(id);
        let row = database.row(what, &select).await?;
        self.core.observe_foreground(started.elapsed());
        let Some(row) = row else {
            return Err(ImportsError::NoRecord(id.chars().take(64).collect()));
        };
        let json = |text: String| serde_json::from_str(&text).unwrap_or(Json::String(text));
        let read = || -> Result<StoredRecord, sqlx::Error> {
            Ok(StoredRecord {
                tenant: row.text("tenant")?,
                id: row.text("id")?,
                format: row.text("format")?,
                title: row.maybe_text("title")?,
                fields: row.maybe_text("fields")?.map(json),
                body: json(row.text("body")?),
                holder: row.maybe_text("holder")?,
                version: unsigned(row.number("version")?),
            })
        };
        Ok(read().map_err(|e| database.error(what, e))?)
    }

    /// Checks a record out to `holder`, or in; answers its new version.
    ///
    /// # Errors
    /// When somebody has it already, or nobody has; when there is no such record.
    pub async fn circulate(
        &self,
        tenant: &TenantId,
        id: &str,
        action: Action,
        holder: Option<&str>,
    ) -> Result<u64, ImportsError> {
        let started = Instant::now();
        let done = self.change_holder(tenant, id, action, holder).await;
        self.core.observe_foreground(started.elapsed());
        done
    }

    async fn change_holder(
        &self,
        tenant: &TenantId,
        id: &str,
        action: Action,
        holder: Option<&str>,
    ) -> Result<u64, ImportsError> {
        let what = "check a record out or in";
        let mut tx = self.core.registry.database.begin().await?;
        let change = match action {
            Action::CheckOut => Statement::new(
                "UPDATE import_records SET holder = ?, version = version + 1
                 WHERE tenant = ? AND id = ? AND holder IS NULL",
            )
            .bind(holder),
            Action::CheckIn => Statement::new(
                "UPDATE import_records SET holder = NULL, version = version + 1
                 WHERE tenant = ? AND id = ? AND holder IS NOT NULL",
            ),
        };
        let changed = tx.run(what, &change.bind(tenant.as_str()).bind(id)).await?;
        let select = "SELECT version FROM import_records WHERE tenant = ? AND id = ?";
        let select = Statement::new(select).bind(tenant.as_str()).bind(id);
        let Some(row) = tx.row(what, &select).await? else {
            return Err(ImportsError::NoRecord(id.chars().take(64).collect()));
        };
        if changed == 0 {
            let id = id.chars().take(64).collect();
            return Err(match action {
                Action::CheckOut => ImportsError::CheckedOut(id),
                Action::CheckIn => ImportsError::NotCheckedOut(id),
            });
        }
        let version = row.number("version").map_err(|e| tx.error(what, e))?;
        let entry = vec![
            Value::from(tenant.as_str()),
            id.into(),
            version.into(),
            action.name().into(),
            holder.into(),
            self.core.clock.now().0.into(),
        ];
        tx.insert(what, &INSERT_HISTORY, vec![entry]).await?;
        tx.commit(what).await?;
        Ok(unsigned(version))
    }

    /// What was done to a record, newest first.
    pub async fn history(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<Vec<HistoryEntry>, ImportsError> {
        let what = "read a record's history";
        let database = &self.core.registry.database;
        let select = Statement::new(
            "SELECT version, action, holder, at_ms FROM import_history
             WHERE tenant = ? AND id = ? ORDER BY version DESC LIMIT ?",
        )
        .bind(tenant.as_str())
        .bind(id)
        .bind(i64::from(limits::LISTED_HISTORY_MAX));
        let entry = |row: &Row| -> Result<HistoryEntry, sqlx::Error> {
            Ok(HistoryEntry {
                version: unsigned(row.number("version")?),
                action: row.text("action")?,
                holder: row.maybe_text("holder")?,
                at_ms: row.number("at_ms")?,
            })
        };
        let rows = database.rows(what, &select).await?;
        rows.iter()
            .map(|row| entry(row).map_err(|e| database.error(what, e).into()))
            .collect()
    }
}

const INSERT_HISTORY: Insert = Insert {
    table: "import_history",
    columns: &["tenant", "id", "version", "action", "holder", "at_ms"],
    conflict: Conflict::Fail,
};
