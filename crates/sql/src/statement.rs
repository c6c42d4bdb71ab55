//! Statements with their values, and rows, in a form that all databases share.

use sqlx::mysql::MySqlRow;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, ValueRef as _};

/// A statement with `?` for each of its values.
#[derive(Clone, Debug)]
pub struct Statement {
    pub(crate) text: String,
    pub(crate) values: Vec<Value>,
}

/// A value; an absent one has a type too, which PostgreSQL asks for.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number.
    Number(Option<i64>),
    /// A text.
    Text(Option<String>),
    /// Bytes.
    Bytes(Option<Vec<u8>>),
}

/// Where rows go.
#[derive(Clone, Copy, Debug)]
pub struct Insert {
    /// The table.
    pub table: &'static str,
    /// The columns, in the order of each row's values.
    pub columns: &'static [&'static str],
    /// What happens to a row whose key is there already.
    pub conflict: Conflict,
}

impl Insert {
    /// Reads these columns; `rest` follows the table's name. Columns are named one by one: with `*`,
    /// a column that a newer binary adds changes what was prepared, and PostgreSQL refuses that.
    pub fn select(&self, rest: &str) -> Statement {
        let columns = self.columns.join(", ");
        Statement::new(format!("SELECT {columns} FROM {}{rest}", self.table))
    }
}

/// What happens to a row whose key is there already.
#[derive(Clone, Copy, Debug)]
pub enum Conflict {
    /// The statement fails.
    Fail,
    /// What is there stays.
    Keep {
        /// The key's columns.
        key: &'static [&'static str],
    },
    /// These columns are replaced.
    Replace {
        /// The key's columns.
        key: &'static [&'static str],
        /// The columns.
        columns: &'static [&'static str],
    },
}

/// Rows that have any of many values in a column.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// The table.
    pub table: &'static str,
    /// The columns that are read.
    pub columns: &'static [&'static str],
    /// The column, of texts. An index begins with it, or with `of` and it; none of the others
    /// begins with `of`, or PostgreSQL may take that one.
    pub among: &'static str,
    /// A column that has to have one value.
    pub of: Option<&'static str>,
}

/// A row of an answer.
#[derive(Debug)]
pub enum Row {
    /// SQLite's.
    Sqlite(SqliteRow),
    /// PostgreSQL's.
    Postgres(PgRow),
    /// MySQL's.
    MySql(MySqlRow),
}

impl Statement {
    /// A statement. `text` holds no value of a caller: those are bound.
    pub fn new(text: impl Into<String>) -> Statement {
        Statement {
            text: text.into(),
            values: Vec::new(),
        }
    }

    /// Binds the next `?`.
    pub fn bind(mut self, value: impl Into<Value>) -> Statement {
        self.values.push(value.into());
        self
    }

    /// Appends `(?, ?, …)` with these values, for `IN`.
    pub fn list<V: Into<Value>>(mut self, values: impl IntoIterator<Item = V>) -> Statement {
        let before = self.values.len();
        self.values.extend(values.into_iter().map(Into::into));
        self.text.push_str(&tuple(self.values.len() - before));
        self
    }

    /// Appends further text.
    pub fn push(mut self, text: &str) -> Statement {
        self.text.push_str(text);
        self
    }
}

/// `(?, ?, …)`.
pub(crate) fn tuple(count: usize) -> String {
    format!("({})", vec!["?"; count].join(", "))
}

impl Row {
    /// A number that is there.
    pub fn number(&self, column: &str) -> Result<i64, sqlx::Error> {
        self.maybe_number(column)?.ok_or_else(|| absent(column))
    }

    /// A number that may be absent.
    pub fn maybe_number(&self, column: &str) -> Result<Option<i64>, sqlx::Error> {
        match self {
            Row::Sqlite(row) => row.try_get(column),
            Row::Postgres(row) => row.try_get(column),
            Row::MySql(row) => row.try_get(column),
        }
    }

    /// A text that is there.
    pub fn text(&self, column: &str) -> Result<String, sqlx::Error> {
        self.maybe_text(column)?.ok_or_else(|| absent(column))
    }

    /// A text that may be absent.
    pub fn maybe_text(&self, column: &str) -> Result<Option<String>, sqlx::Error> {
        match self {
            Row::Sqlite(row) => row.try_get(column),
            Row::Postgres(row) => row.try_get(column),
            // Names are bytes there, so that they compare as such.
            Row::MySql(row) => match maybe_bytes(row, column)? {
                Some(bytes) => String::from_utf8(bytes)
                    .map(Some)
                    .map_err(|error| decode(column, error)),
                None => Ok(None),
            },
        }
    }

    /// Bytes that are there.
    pub fn bytes(&self, column: &str) -> Result<Vec<u8>, sqlx::Error> {
        let bytes = match self {
            Row::Sqlite(row) => row.try_get(column),
            Row::Postgres(row) => row.try_get(column),
            Row::MySql(row) => maybe_bytes(row, column),
        };
        bytes?.ok_or_else(|| absent(column))
    }
}

fn maybe_bytes(row: &MySqlRow, column: &str) -> Result<Option<Vec<u8>>, sqlx::Error> {
    if row.try_get_raw(column)?.is_null() {
        return Ok(None);
    }
    // Texts and bytes come the same way; their types differ in the column's collation only.
    row.try_get_unchecked::<Vec<u8>, _>(column).map(Some)
}

fn absent(column: &str) -> sqlx::Error {
    decode(column, "there is no value")
}

fn decode(
    column: &str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: source.into(),
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Number(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Value {
        Value::Number(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(Some(value))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(Some(value.to_owned()))
    }
}

impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Value {
        Value::Text(value.map(str::to_owned))
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Value {
        Value::Bytes(Some(value.to_vec()))
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Value {
        Value::Bytes(Some(value))
    }
}
