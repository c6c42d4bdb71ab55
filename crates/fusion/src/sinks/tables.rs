//! Tables of SQL databases as targets: `sql@DATABASE:table`, or `sql@DATABASE:table?key=a,b` where
//! a row replaces the one with the same key.
//!
//! What stands behind is another's: [`Tables`] is all that statements know of databases. Rows that
//! are counted (see [`Rows::first`]) are written once, whatever crashes: their numbers are kept in
//! the same transaction.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

/// A table of a database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    /// The database, by its name in the configuration.
    pub database: String,
    /// The table, or `schema.table`.
    pub table: String,
    /// Columns of the key; empty where rows are only added.
    pub key: Vec<String>,
}

/// Rows for a table.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    /// Whose they are: the statement's id.
    pub statement: &'a str,
    /// Names of the columns.
    pub columns: &'a [String],
    /// A JSON object each.
    pub rows: &'a [Bytes],
    /// Who counts them and the number of the first; none where they are not counted.
    pub first: Option<(i64, i32)>,
    /// The number that comes after the last.
    pub next: i32,
}

/// Why rows were not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWritten {
    /// The database is not there at the moment.
    Later(String),
    /// It does not take these rows.
    Never(String),
}

/// What a call gives in time.
pub type Writing<'a> = Pin<Box<dyn Future<Output = Result<(), NotWritten>> + Send + 'a>>;

/// The databases that statements may write to.
pub trait Tables: Send + Sync {
    /// Whether rows with these columns can go to that table, as far as that can be known without
    /// asking the database.
    ///
    /// # Errors
    /// Says what to change.
    fn check(&self, table: &Table, columns: &[String]) -> Result<(), String>;

    /// Writes all of the rows in one transaction, or none; those that it has by their numbers are
    /// not written again.
    fn write<'a>(&'a self, table: &'a Table, rows: Rows<'a>) -> Writing<'a>;
}

impl Rows<'_> {
    /// True when a table has them, by who counted last what it has and the number that comes next.
    pub fn are_stored(&self, stored: (i64, i32)) -> bool {
        let (counter, next) = stored;
        self.first.is_some_and(|(by, first)| {
            by == counter && crate::writer::is_stored(first, self.rows.len(), next)
        })
    }
}

impl Table {
    /// Reads `DATABASE:table?key=a,b`.
    pub fn parse(text: &str) -> Option<Table> {
        let (database, rest) = text.split_once(':')?;
        let (table, key): (&str, Vec<String>) = match rest.split_once("?key=") {
            Some((table, key)) => (table, key.split(',').map(str::to_owned).collect()),
            None => (rest, Vec::new()),
        };
        let is_name = |name: &str| !name.is_empty() && !name.contains(['?', '"', ' ']);
        let are_names = is_name(database) && is_name(table) && key.iter().all(|name| is_name(name));
        are_names.then(|| Table {
            database: database.to_owned(),
            table: table.to_owned(),
            key,
        })
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sql@{}:{}", self.database, self.table)?;
        match self.key.is_empty() {
            true => Ok(()),
            false => write!(f, "?key={}", self.key.join(",")),
        }
    }
}
