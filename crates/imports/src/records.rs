//! The record service: look up, check out, check in. The work at the counter that imports must not
//! slow down; its latencies steer the guard.
//!
//! A check-out is one row more in the record's history, and the last row says who holds it: nothing
//! else is written, and nothing that an import writes. A row's number is one more than that of the
//! row that was last when it was decided; of two who decide at once, the second finds its number
//! taken and decides again. The history is in a file of its own, or on a server in the same database
//! as the records, so that nobody at the counter waits for the commit of a slice.

use std::time::Instant;

use base::{TenantId, UnixMillis};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use sql::{Conflict, Database, Insert, Migration, Options, Place, Row, Schema, Statement, Value};

use crate::error::ImportsError;
use crate::imports::Imports;
use crate::limits;
use crate::registry::{Registry, unsigned};

/// A record of the sink.
#[derive(Clone, Debug, Serialize)]
pub struct StoredRecord {
    /// Its tenant.
    pub tenant: String,
    /// Its id within the tenant.
    pub id: String,
    /// The format that it came in.
    pub format: String,
    /// Its title.
    pub title: Option<String>,
    /// The profile's fields, as JSON.
    pub fields: Option<Box<RawValue>>,
    /// The record, as it was written.
    pub body: Box<RawValue>,
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
        let registry = &self.core.registry;
        let select = Statement::new(
            "SELECT tenant, id, format, title, fields, body FROM import_records
             WHERE tenant = ? AND id = ?",
        )
        .bind(tenant.as_str())
        .bind(id);
        let row = registry.database.row(what, &select).await?;
        let last = registry.last_entry(tenant, id).await?;
        self.core.observe_foreground(started.elapsed());
        let Some(row) = row else {
            return Err(no_record(id));
        };
        let json = |text: String| {
            let json = serde_json::from_str(&text).or_else(|_| to_raw_value(&text));
            json.map_err(|error| sqlx::Error::Decode(Box::new(error)))
        };
        let read = || -> Result<StoredRecord, sqlx::Error> {
            Ok(StoredRecord {
                tenant: row.text("tenant")?,
                id: row.text("id")?,
                format: row.text("format")?,
                title: row.maybe_text("title")?,
                fields: row.maybe_text("fields")?.map(json).transpose()?,
                body: json(row.text("body")?)?,
                version: unsigned(last.as_ref().map_or(FIRST_VERSION, |last| last.version)),
                holder: last.and_then(|last| last.holder),
            })
        };
        Ok(read().map_err(|e| registry.error(what, e))?)
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
        let change = Change {
            tenant,
            id,
            action,
            holder,
            now: self.core.clock.now(),
        };
        let mut tries = 0;
        loop {
            match self.core.registry.change_holder(&change).await {
                // Somebody else was first.
                Err(ImportsError::Sql(error))
                    if error.is_unique_violation() && tries < limits::COUNTER_TRIES =>
                {
                    tries += 1;
                }
                changed => return Ok(unsigned(changed?)),
            }
        }
    }

    /// What was done to a record, newest first; what was done before the version `after`.
    pub async fn history(
        &self,
        tenant: &TenantId,
        id: &str,
        after: Option<i64>,
        count: u32,
    ) -> Result<Vec<HistoryEntry>, ImportsError> {
        let what = "read a record's history";
        let database = &self.core.registry.counter;
        let select = Statement::new(
            "SELECT version, action, holder, at_ms FROM import_history
             WHERE tenant = ? AND id = ? AND version < ? ORDER BY version DESC LIMIT ?",
        )
        .bind(tenant.as_str())
        .bind(id)
        .bind(after.unwrap_or(i64::MAX))
        .bind(i64::from(count.min(limits::LISTED_HISTORY_MAX)));
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

/// What is to be done to a record.
struct Change<'c> {
    tenant: &'c TenantId,
    id: &'c str,
    action: Action,
    holder: Option<&'c str>,
    now: UnixMillis,
}

/// The last of a record's history.
struct LastEntry {
    version: i64,
    is_out: bool,
    holder: Option<String>,
}

impl Registry {
    /// The last that was done to a record, if anything was.
    async fn last_entry(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<Option<LastEntry>, ImportsError> {
        let what = "look who holds a record";
        let select = Statement::new(
            "SELECT version, action, holder FROM import_history
             WHERE tenant = ? AND id = ? ORDER BY version DESC LIMIT 1",
        )
        .bind(tenant.as_str())
        .bind(id);
        let Some(row) = self.counter.row(what, &select).await? else {
            return Ok(None);
        };
        let read = || -> Result<LastEntry, sqlx::Error> {
            Ok(LastEntry {
                version: row.number("version")?,
                is_out: row.text("action")? == Action::CheckOut.name(),
                holder: row.maybe_text("holder")?,
            })
        };
        Ok(Some(read().map_err(|e| self.error(what, e))?))
    }

    /// Checks a record out or in; answers its new version.
    async fn change_holder(&self, change: &Change<'_>) -> Result<i64, ImportsError> {
        if self.counter.dialect().has_returning()
            && let Some(version) = self.change_at_once(change).await?
        {
            return Ok(version);
        }
        let Change { tenant, id, .. } = *change;
        let last = self.last_entry(tenant, id).await?;
        let version = match &last {
            Some(last) => last.version,
            None if self.has_record(tenant, id).await? => FIRST_VERSION,
            None => return Err(no_record(id)),
        };
        let is_out = last.is_some_and(|last| last.is_out);
        match change.action {
            Action::CheckOut if is_out => return Err(ImportsError::CheckedOut(shortened(id))),
            Action::CheckIn if !is_out => return Err(ImportsError::NotCheckedOut(shortened(id))),
            Action::CheckOut | Action::CheckIn => {}
        }
        let insert = Statement::new(
            "INSERT INTO import_history (tenant, id, version, action, holder, at_ms)
             VALUES (?, ?, ?, ?, ?, ?)",
        )
        .bind(tenant.as_str())
        .bind(id)
        .bind(version + 1)
        .bind(change.action.name())
        .bind(change.holder)
        .bind(change.now.0);
        self.counter.run(CHANGE, &insert).await?;
        Ok(version + 1)
    }

    /// The same with one statement, as each answer of a database is waited for; nothing where the
    /// record's history does not have it so, or where it has none and the records lie elsewhere.
    async fn change_at_once(&self, change: &Change<'_>) -> Result<Option<i64>, ImportsError> {
        let Change { tenant, id, .. } = *change;
        let mut insert = Statement::new(
            "INSERT INTO import_history (tenant, id, version, action, holder, at_ms)
             SELECT ?, ?, version + 1, ?, ?, ? FROM (
                 SELECT version, action FROM (
                     SELECT version, action FROM import_history
                     WHERE tenant = ? AND id = ? ORDER BY version DESC LIMIT 1) AS history",
        )
        .bind(tenant.as_str())
        .bind(id)
        .bind(change.action.name())
        .bind(change.holder)
        .bind(change.now.0)
        .bind(tenant.as_str())
        .bind(id);
        if self.is_shared() {
            // What is in its history has a greater version than a record without one.
            insert = insert
                .push(
                    " UNION ALL
                 SELECT ?, ? FROM import_records WHERE tenant = ? AND id = ?
                 ORDER BY version DESC LIMIT 1",
                )
                .bind(FIRST_VERSION)
                .bind(Action::CheckIn.name())
                .bind(tenant.as_str())
                .bind(id);
        }
        let before = match change.action {
            Action::CheckOut => Action::CheckIn,
            Action::CheckIn => Action::CheckOut,
        };
        let insert = insert
            .push(") AS last WHERE action = ? RETURNING version")
            .bind(before.name());
        let row = self.counter.run_returning(CHANGE, &insert).await?;
        let version = row.map(|row| row.number("version"));
        Ok(version.transpose().map_err(|e| self.error(CHANGE, e))?)
    }

    async fn has_record(&self, tenant: &TenantId, id: &str) -> Result<bool, ImportsError> {
        let select = Statement::new("SELECT job FROM import_records WHERE tenant = ? AND id = ?")
            .bind(tenant.as_str())
            .bind(id);
        let row = self.database.row("look for a record", &select).await?;
        Ok(row.is_some())
    }
}

/// Opens what the counter writes: beside the records on a server, else in a file of its own, which
/// takes over what an older version kept with them.
pub(crate) async fn open_counter(
    place: &Place,
    records: &Database,
) -> Result<Database, ImportsError> {
    let Place::File(path) = place else {
        return Ok(records.clone());
    };
    let options = Options::default();
    let counter =
        Database::open_file(&path.with_file_name(COUNTER), options, &COUNTER_SCHEMA).await?;
    take_history_over(records, &counter).await?;
    Ok(counter)
}

/// Copies what is in the records' file, and empties it there; begun again after a crash.
async fn take_history_over(records: &Database, counter: &Database) -> Result<(), ImportsError> {
    let what = "take the records' history over";
    let mut after = (String::new(), String::new(), 0);
    loop {
        let select = Statement::new(
            "SELECT tenant, id, version, action, holder, at_ms FROM import_history
             WHERE (tenant, id, version) > (?, ?, ?) ORDER BY tenant, id, version LIMIT ?",
        )
        .bind(after.0.as_str())
        .bind(after.1.as_str())
        .bind(after.2)
        .bind(i64::from(limits::LISTED_HISTORY_MAX));
        let rows = records.rows(what, &select).await?;
        let Some(last) = rows.last() else {
            break;
        };
        let read = |row: &Row| -> Result<(String, String, i64), sqlx::Error> {
            Ok((row.text("tenant")?, row.text("id")?, row.number("version")?))
        };
        after = read(last).map_err(|e| records.error(what, e))?;
        let entry = |row: &Row| -> Result<Vec<Value>, sqlx::Error> {
            let (tenant, id, version) = read(row)?;
            Ok(vec![
                tenant.into(),
                id.into(),
                version.into(),
                row.text("action")?.into(),
                Value::Text(row.maybe_text("holder")?),
                row.number("at_ms")?.into(),
            ])
        };
        let entries: Result<Vec<_>, _> = rows.iter().map(entry).collect();
        let entries = entries.map_err(|e| records.error(what, e))?;
        let mut tx = counter.begin().await?;
        tx.insert(what, &INSERT_HISTORY, entries).await?;
        tx.commit(what).await?;
    }
    if after.2 > 0 {
        let empty = Statement::new("DELETE FROM import_history");
        records.run(what, &empty).await?;
    }
    Ok(())
}

fn no_record(id: &str) -> ImportsError {
    ImportsError::NoRecord(shortened(id))
}

fn shortened(id: &str) -> String {
    id.chars().take(64).collect()
}

/// What is done at the counter, in messages.
const CHANGE: &str = "check a record out or in";

/// The version of a record to which nothing was done yet.
const FIRST_VERSION: i64 = 1;

/// The file of the counter, beside that of the records.
const COUNTER: &str = "counter.db";

const COUNTER_SCHEMA: Schema = Schema {
    name: "counter",
    oldest: 1,
    migrations: &[Migration {
        number: 1,
        name: "what was done to records",
        text: "
CREATE TABLE import_history (
    tenant VARCHAR(63) NOT NULL,
    id VARCHAR(1024) NOT NULL,
    version BIGINT NOT NULL,
    action VARCHAR(16) NOT NULL,
    holder VARCHAR(255),
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (tenant, id, version)
) WITHOUT ROWID;
",
    }],
};

const INSERT_HISTORY: Insert = Insert {
    table: "import_history",
    columns: &["tenant", "id", "version", "action", "holder", "at_ms"],
    conflict: Conflict::Keep {
        key: &["tenant", "id", "version"],
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_history_that_was_kept_with_the_records_goes_on_in_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::File(folder.path().join("imports.db"));
        let (tenant, what) = ("t".parse::<TenantId>().unwrap(), "fill");
        let registry = Registry::open(&place).await.unwrap();
        for (id, version, action, holder) in [
            ("a", 2, "check_out", "'ada'"),
            ("a", 3, "check_in", "NULL"),
            ("b", 2, "check_out", "'bob'"),
        ] {
            let text = format!(
                "INSERT INTO import_history VALUES ('t', '{id}', {version}, '{action}', {holder}, 5)"
            );
            let insert = Statement::new(text);
            registry.database.run(what, &insert).await.unwrap();
            if id == "a" {
                // As after a crash half-way.
                registry.counter.run(what, &insert).await.unwrap();
            }
        }
        registry.close().await;
        for _ in 0..2 {
            let registry = Registry::open(&place).await.unwrap();
            let a = registry.last_entry(&tenant, "a").await.unwrap().unwrap();
            assert_eq!((a.version, a.is_out, a.holder), (3, false, None));
            let b = registry.last_entry(&tenant, "b").await.unwrap().unwrap();
            assert_eq!((b.version, b.is_out), (2, true));
            assert_eq!(b.holder.as_deref(), Some("bob"));
            let count = Statement::new("SELECT count(*) AS n FROM import_history");
            let rows = registry.database.row(what, &count).await.unwrap().unwrap();
            assert_eq!(rows.number("n").unwrap(), 0);
            registry.close().await;
        }
    }
}
