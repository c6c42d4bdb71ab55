//! The search index: SQLite's full-text index in a file of its own, beside any sink.
//!
//! It is filled behind the commit of slices (`indexer.rs`) from the queue that these leave in the
//! sink's database, and can be built again from the sink at any time: what it holds is a copy. So
//! its own commits need not wait for the disk. Every entry has its tenant as an indexed word, and a
//! search is for one tenant's entries only.
//!
//! `search.db`: `entries` (number, tenant, id, title) and `words`, a contentless index whose row
//! numbers are those of the entries.

use std::path::Path;

use base::TenantId;
use serde::Serialize;
use serde_json::Value;
use sql::{Migration, Options, Schema, SqlError, Sqlite};
use sqlx::Row;
use tokio::sync::{Mutex, Notify};

use crate::error::ImportsError;
use crate::limits;
use crate::registry::Registry;

/// The index of one process.
pub(crate) struct Search {
    file: Sqlite,
    woken: Notify,
    /// Held from the look at the queue until what it named is out of it, and while the index is
    /// emptied: else an entry of the new queue could go for what the old index had.
    pub turn: Mutex<()>,
}

/// A record as the index takes it in.
pub(crate) struct Document {
    pub id: String,
    pub title: Option<String>,
    pub text: String,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// All records that have the words.
    pub total: u64,
    /// The best of them.
    pub records: Vec<Hit>,
}

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: Option<String>,
}

impl Search {
    /// Opens the index in `dir`; a new one is filled with what is in the sink already.
    pub async fn open(dir: &Path, registry: &Registry) -> Result<Search, ImportsError> {
        let path = dir.join(DATABASE);
        let is_new = !path.exists();
        let options = Options {
            durable: false,
            ..Options::default()
        };
        let file = Sqlite::open(&path, options, &SCHEMA).await?;
        if is_new {
            registry.queue_all().await?;
        }
        Ok(Search {
            file,
            woken: Notify::new(),
            turn: Mutex::new(()),
        })
    }

    /// Says that there is something to index.
    pub fn wake(&self) {
        self.woken.notify_one();
    }

    /// Waits for [`Search::wake`].
    pub async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Takes records of a tenant in, in the place of what the index had of them.
    pub async fn put(&self, tenant: &str, documents: &[Document]) -> Result<(), ImportsError> {
        let what = "index records";
        let failed = |e| self.error(what, e);
        let word = tenant_word(tenant);
        let mut tx = self.file.begin().await?;
        for document in documents {
            let number: i64 = sqlx::query(
                "INSERT INTO entries (tenant, id, title) VALUES (?1, ?2, ?3)
                 ON CONFLICT (tenant, id) DO UPDATE SET title = excluded.title RETURNING number",
            )
            .bind(tenant)
            .bind(&document.id)
            .bind(&document.title)
            .fetch_one(&mut *tx)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(failed)?;
            sqlx::query("DELETE FROM words WHERE rowid = ?")
                .bind(number)
                .execute(&mut *tx)
                .await
                .map_err(failed)?;
            sqlx::query("INSERT INTO words (rowid, tenant, title, text) VALUES (?, ?, ?, ?)")
                .bind(number)
                .bind(&word)
                .bind(&document.title)
                .bind(&document.text)
                .execute(&mut *tx)
                .await
                .map_err(failed)?;
        }
        Ok(self.file.commit(tx, what).await?)
    }

    /// Forgets everything.
    pub async fn clear(&self) -> Result<(), ImportsError> {
        let what = "empty the search index";
        let mut tx = self.file.begin().await?;
        for statement in [
            "INSERT INTO words (words) VALUES ('delete-all')",
            "DELETE FROM entries",
        ] {
            sqlx::query(statement)
                .execute(&mut *tx)
                .await
                .map_err(|e| self.error(what, e))?;
        }
        Ok(self.file.commit(tx, what).await?)
    }

    /// The tenant's records that have all words of `query`, best first. A word may end with `*`;
    /// words in quotes must stand together.
    ///
    /// # Errors
    /// When the query has no word in it.
    pub async fn find(
        &self,
        tenant: &TenantId,
        query: &str,
        count: u32,
    ) -> Result<Found, ImportsError> {
        let words = expression(query).ok_or_else(|| {
            ImportsError::Invalid("the query has no word in it; give one or more".to_owned())
        })?;
        let wanted = format!(
            "tenant : \"{}\" AND {{title text}} : ({words})",
            tenant_word(tenant.as_str())
        );
        let what = "search";
        let total: i64 = sqlx::query("SELECT count(*) FROM words WHERE words MATCH ?")
            .bind(&wanted)
            .fetch_one(self.file.readers())
            .await
            .and_then(|row| row.try_get(0))
            .map_err(|e| self.error(what, e))?;
        let rows = sqlx::query(
            "SELECT e.id, e.title FROM words w JOIN entries e ON e.number = w.rowid
             WHERE words MATCH ? ORDER BY w.rank, e.id LIMIT ?",
        )
        .bind(&wanted)
        .bind(count.min(limits::FOUND_MAX))
        .fetch_all(self.file.readers())
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
        self.file.close().await;
    }

    fn error(&self, what: &'static str, source: sqlx::Error) -> SqlError {
        self.file.error(what, source)
    }
}

/// The words of a stored record: the subfields of MARC, every text and number of other objects.
pub(crate) fn text_of(body: &str, is_marc: bool) -> String {
    let mut text = String::with_capacity(body.len() / 2);
    let Ok(value) = serde_json::from_str::<Value>(body) else {
        return text;
    };
    if is_marc {
        let fields = value["fields"].as_array().into_iter().flatten();
        for subfields in fields
            .filter_map(Value::as_object)
            .flat_map(|field| field.values())
        {
            collect(&subfields["subfields"], &mut text);
        }
    } else {
        collect(&value, &mut text);
    }
    text
}

fn collect(value: &Value, text: &mut String) {
    match value {
        Value::String(word) => {
            text.push_str(word);
            text.push(' ');
        }
        Value::Number(number) => {
            text.push_str(&number.to_string());
            text.push(' ');
        }
        // As deep as the parser lets it be.
        Value::Array(items) => items.iter().for_each(|item| collect(item, text)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, text)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// A query in the index's words: quoted terms, all of which must be there.
fn expression(query: &str) -> Option<String> {
    let mut terms = Vec::new();
    for (index, part) in query.split('"').enumerate() {
        if index % 2 == 1 {
            terms.push((part.trim(), ""));
            continue;
        }
        for word in part.split_whitespace() {
            terms.push(match word.strip_suffix('*') {
                Some(stem) => (stem, " *"),
                None => (word, ""),
            });
        }
    }
    let has_word = |term: &&(&str, &str)| term.0.chars().any(char::is_alphanumeric);
    let terms: Vec<String> = terms
        .iter()
        .filter(has_word)
        .take(limits::QUERY_WORDS_MAX)
        .map(|(word, star)| format!("\"{}\"{star}", word.replace('\0', " ")))
        .collect();
    (!terms.is_empty()).then(|| terms.join(" AND "))
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
    migrations: &[Migration {
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
    }],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_become_terms_that_must_all_be_there() {
        let is = |query: &str, expected: &str| {
            assert_eq!(expression(query).as_deref(), Some(expected), "{query}");
        };
        is("history England", "\"history\" AND \"England\"");
        is(
            "hist* \"New York\" AND",
            "\"hist\" * AND \"New York\" AND \"AND\"",
        );
        is("a -b NEAR(c", "\"a\" AND \"-b\" AND \"NEAR(c\"");
        assert_eq!(expression(" - \" \" * "), None);
    }

    #[test]
    fn a_records_words_are_its_subfields_or_its_values() {
        let marc = r#"{"leader":"x","fields":[{"001":"no"},{"245":{"subfields":[{"a":"One"},{"b":"two"}],"ind1":"9"}}]}"#;
        assert_eq!(text_of(marc, true), "One two ");
        assert_eq!(text_of(r#"{"a":{"b":["x",3]},"c":true}"#, false), "x 3 ");
    }
}
