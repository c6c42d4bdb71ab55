//! The embedded search index: SQLite's full-text index in a file of its own, beside any sink.
//!
//! What it holds is a copy, so its own commits need not wait for the disk. Every entry has its tenant
//! as an indexed word, and a search is for one tenant's entries only.
//!
//! `search.db`: `entries` (number, tenant, id, title), `words`, a contentless index whose row numbers
//! are those of the entries, and `followed`, one row with the number of the last purge that was followed.

use std::collections::HashMap;
use std::path::Path;

use base::TenantId;
use sql::{Migration, Options, Schema, SqlError, Sqlite, SqliteTransaction};
use sqlx::{QueryBuilder, Row};

use super::query::Term;
use super::{Document, Found, Hit, Page};
use crate::error::ImportsError;
use crate::limits;

/// The index in a file.
pub(super) struct FileIndex(Sqlite);

impl FileIndex {
    /// Opens the index in `dir`, made where missing.
    pub async fn open(dir: &Path) -> Result<FileIndex, ImportsError> {
        let options = Options {
            durable: false,
            ..Options::default()
        };
        let file = Sqlite::open(&dir.join(DATABASE), options, &SCHEMA).await?;
        Ok(FileIndex(file))
    }

    /// Whether nothing is in it.
    pub async fn is_empty(&self) -> Result<bool, ImportsError> {
        let what = "look into the search index";
        let first = sqlx::query("SELECT number FROM entries LIMIT 1");
        let row = first.fetch_optional(self.0.readers()).await;
        Ok(row.map_err(|e| self.error(what, e))?.is_none())
    }

    /// Takes records of a tenant in, in the place of what the index had of them.
    pub async fn put(&self, tenant: &str, documents: &[Document]) -> Result<(), ImportsError> {
        let what = "index records";
        let failed = |e| self.error(what, e);
        let word = tenant_word(tenant);
        let mut tx = self.0.begin().await?;
        // A few statements for many records: each is a way to SQLite's own thread and back.
        for documents in documents.chunks(limits::INDEX_ROWS) {
            let known: i64 = sqlx::query("SELECT coalesce(max(number), 0) FROM entries")
                .fetch_one(&mut *tx)
                .await
                .and_then(|row| row.try_get(0))
                .map_err(failed)?;
            let numbers = number(&mut tx, tenant, documents).await.map_err(failed)?;
            let old = numbers.values().copied().filter(|number| *number <= known);
            let old: Vec<i64> = old.collect();
            if !old.is_empty() {
                let text = "DELETE FROM words WHERE rowid IN (";
                remove(&mut tx, text, &old).await.map_err(failed)?;
            }
            let mut add = QueryBuilder::new("INSERT INTO words (rowid, tenant, title, text) ");
            add.push_values(documents, |mut row, document| {
                row.push_bind(numbers.get(document.id.as_str()).copied());
                row.push_bind(word.as_str());
                row.push_bind(document.title.as_deref());
                row.push_bind(document.text.as_str());
            });
            let add = add.build().persistent(is_usual(documents));
            add.execute(&mut *tx).await.map_err(failed)?;
        }
        Ok(self.0.commit(tx, what).await?)
    }

    /// Forgets some records of a tenant; false when it had none.
    pub async fn forget_some(&self, tenant: &TenantId) -> Result<bool, ImportsError> {
        let what = "forget a tenant's records in the search index";
        let failed = |e| self.error(what, e);
        let mut tx = self.0.begin().await?;
        let rows = sqlx::query("SELECT number FROM entries WHERE tenant = ? LIMIT ?")
            .bind(tenant.as_str())
            .bind(limits::INDEX_ROWS as i64)
            .fetch_all(&mut *tx)
            .await
            .map_err(failed)?;
        let numbers = rows.iter().map(|row| row.try_get(0));
        let numbers: Vec<i64> = numbers.collect::<Result<_, _>>().map_err(failed)?;
        if numbers.is_empty() {
            return Ok(false);
        }
        for text in [
            "DELETE FROM words WHERE rowid IN (",
            "DELETE FROM entries WHERE number IN (",
        ] {
            remove(&mut tx, text, &numbers).await.map_err(failed)?;
        }
        self.0.commit(tx, what).await?;
        Ok(true)
    }

    /// The number of the last purge that was followed.
    pub async fn followed(&self) -> Result<i64, ImportsError> {
        let read = sqlx::query("SELECT number FROM followed");
        let row = read.fetch_one(self.0.readers()).await;
        let number = row.and_then(|row| row.try_get(0));
        Ok(number.map_err(|e| self.error("look for followed purges", e))?)
    }

    /// Notes that purges were followed up to one.
    pub async fn note_followed(&self, number: i64) -> Result<(), ImportsError> {
        let what = "note a followed purge";
        let mut tx = self.0.begin().await?;
        let note = sqlx::query("UPDATE followed SET number = ?").bind(number);
        note.execute(&mut *tx)
            .await
            .map_err(|e| self.error(what, e))?;
        Ok(self.0.commit(tx, what).await?)
    }

    /// Forgets everything.
    pub async fn clear(&self) -> Result<(), ImportsError> {
        let what = "empty the search index";
        let mut tx = self.0.begin().await?;
        for statement in [
            "INSERT INTO words (words) VALUES ('delete-all')",
            "DELETE FROM entries",
        ] {
            sqlx::query(statement)
                .execute(&mut *tx)
                .await
                .map_err(|e| self.error(what, e))?;
        }
        Ok(self.0.commit(tx, what).await?)
    }

    /// The tenant's records that have all terms, best first.
    pub async fn find(
        &self,
        tenant: &TenantId,
        terms: &[Term<'_>],
        page: Page,
    ) -> Result<Found, ImportsError> {
        let words = expression(terms);
        let wanted = format!(
            "tenant : \"{}\" AND {{title text}} : ({words})",
            tenant_word(tenant.as_str())
        );
        let what = "search";
        let total: i64 = sqlx::query("SELECT count(*) FROM words WHERE words MATCH ?")
            .bind(&wanted)
            .fetch_one(self.0.readers())
            .await
            .and_then(|row| row.try_get(0))
            .map_err(|e| self.error(what, e))?;
        let rows = sqlx::query(
            "SELECT e.id, e.title FROM words w JOIN entries e ON e.number = w.rowid
             WHERE words MATCH ? ORDER BY w.rank, e.id LIMIT ? OFFSET ?",
        )
        .bind(&wanted)
        .bind(page.count)
        .bind(page.offset)
        .fetch_all(self.0.readers())
        .await
        .map_err(|e| self.error(what, e))?;
        let hit = |row: &sqlx::sqlite::SqliteRow| {
            Ok(Hit {
                id: row.try_get(0)?,
                title: row.try_get(1)?,
            })
        };
        let records: Result<Vec<Hit>, sqlx::Error> = rows.iter().map(hit).collect();
        Ok(Found {
            total: u64::try_from(total).unwrap_or(0),
            records: records.map_err(|e| self.error(what, e))?,
        })
    }

    pub async fn close(&self) {
        self.0.close().await;
    }

    fn error(&self, what: &'static str, source: sqlx::Error) -> SqlError {
        self.0.error(what, source)
    }
}

/// Enters records of different ids, or finds their entries; answers each id's number.
async fn number(
    tx: &mut SqliteTransaction,
    tenant: &str,
    documents: &[Document],
) -> Result<HashMap<String, i64>, sqlx::Error> {
    let mut enter = QueryBuilder::new("INSERT INTO entries (tenant, id, title) ");
    enter.push_values(documents, |mut row, document| {
        row.push_bind(tenant);
        row.push_bind(document.id.as_str());
        row.push_bind(document.title.as_deref());
    });
    enter.push(" ON CONFLICT (tenant, id) DO UPDATE SET title = excluded.title");
    enter.push(" RETURNING id, number");
    let enter = enter.build().persistent(is_usual(documents));
    let rows = enter.fetch_all(&mut **tx).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// Removes rows by their numbers, of which there is one at least.
async fn remove(
    tx: &mut SqliteTransaction,
    text: &'static str,
    numbers: &[i64],
) -> Result<(), sqlx::Error> {
    let mut remove = QueryBuilder::new(text);
    let mut listed = remove.separated(", ");
    for number in numbers {
        listed.push_bind(*number);
    }
    let remove = remove.push(")").build().persistent(false);
    remove.execute(&mut **tx).await?;
    Ok(())
}

/// Whether there are as many as most commits bring, so that the statement is worth keeping.
fn is_usual(documents: &[Document]) -> bool {
    documents.len() == limits::INDEX_ROWS
}

/// The terms in the index's words.
fn expression(terms: &[Term<'_>]) -> String {
    let quoted = terms.iter().map(|term| {
        let star = if term.is_prefix { " *" } else { "" };
        format!("\"{}\"{star}", term.text.replace('\0', " "))
    });
    quoted.collect::<Vec<_>>().join(" AND ")
}

/// A tenant's name as one word of letters and digits, whatever is in it.
fn tenant_word(tenant: &str) -> String {
    let hex = tenant.bytes().map(|byte| format!("{byte:02x}"));
    format!("x{}", hex.collect::<String>())
}

const DATABASE: &str = "search.db";

const SCHEMA: Schema = Schema {
    name: "search",
    oldest: 1,
    migrations: &[
        Migration {
            number: 1,
            name: "entries and words",
            text: "
CREATE TABLE entries (
    number INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    title TEXT,
    UNIQUE (tenant, id)
);
CREATE VIRTUAL TABLE words USING fts5(
    tenant, title, text, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2'
);
",
        },
        Migration {
            number: 2,
            name: "parts are merged later, and more of them at once",
            text: "
INSERT INTO words (words, rank) VALUES ('automerge', 8);
",
        },
        Migration {
            number: 3,
            name: "which purges were followed",
            text: "
CREATE TABLE followed (number INTEGER NOT NULL);
INSERT INTO followed VALUES (0);
",
        },
    ],
};

#[cfg(test)]
mod tests {
    use super::super::query::terms;
    use super::*;

    #[test]
    fn terms_must_all_be_there_and_none_is_an_operator() {
        let is = |query: &str, expected: &str| {
            assert_eq!(expression(&terms(query)), expected, "{query}");
        };
        is("history England", "\"history\" AND \"England\"");
        is(
            "hist* \"New York\" AND",
            "\"hist\" * AND \"New York\" AND \"AND\"",
        );
        is("a -b NEAR(c", "\"a\" AND \"-b\" AND \"NEAR(c\"");
    }
}
