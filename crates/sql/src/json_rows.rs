//! Rows that come as JSON objects, for tables that are known at run time only.
//!
//! PostgreSQL and SQLite take all rows as one JSON text and turn each field into its column's type;
//! MySQL takes values, of which it makes the column's types by itself.

use serde_json::{Map, Value as Json};

use crate::dialect::Dialect;
use crate::error::SqlError;
use crate::limits;
use crate::statement::{Statement, Value};
use crate::transaction::Transaction;

/// Where rows go, by names that [`JsonInsert::new`] has checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonInsert {
    pub(crate) table: Vec<String>,
    pub(crate) columns: Vec<String>,
    pub(crate) key: Vec<String>,
}

impl JsonInsert {
    /// Rows with these columns into a table (`table`, or `schema.table`); where a `key` is given, a
    /// row replaces the one with the same key, else it is added.
    ///
    /// # Errors
    /// Says which name is none, or that the key is no column.
    pub fn new(table: &str, columns: &[String], key: &[String]) -> Result<JsonInsert, String> {
        let table: Vec<String> = table.split('.').map(str::to_owned).collect();
        let names = table.iter().chain(columns).chain(key);
        if let Some(wrong) = names.into_iter().find(|name| !is_name(name)) {
            return Err(format!(
                "'{wrong}' is no name of a table or column: write up to 63 letters, digits and _"
            ));
        }
        if table.len() > 2 {
            return Err("write table or schema.table".to_owned());
        }
        if let Some(missing) = key.iter().find(|name| !columns.contains(name)) {
            return Err(format!("the key '{missing}' is no column of the rows"));
        }
        let mut sorted: Vec<&String> = columns.iter().collect();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("the column '{}' is there twice", twice[0]));
        }
        Ok(JsonInsert {
            table,
            columns: columns.to_vec(),
            key: key.to_vec(),
        })
    }
}

impl Transaction {
    /// Writes rows; a column that a row does not have is null. With a key, no two rows of one call
    /// may have the same.
    ///
    /// # Errors
    /// The database refuses them, or is not there.
    pub async fn insert_json(
        &mut self,
        what: &'static str,
        into: &JsonInsert,
        rows: Vec<Map<String, Json>>,
    ) -> Result<(), SqlError> {
        let dialect = self.dialect();
        if dialect != Dialect::MySql {
            let rows = Json::from(rows).to_string();
            let text = dialect.insert_json(into, 1);
            return self
                .run(what, &Statement::new(text).bind(rows))
                .await
                .map(|_| ());
        }
        let width = into.columns.len().max(1);
        let rows_max = limits::ROWS_PER_STATEMENT_MAX.min(limits::VALUES_PER_STATEMENT_MAX / width);
        for rows in rows.chunks(rows_max) {
            let values = rows.iter().flat_map(|row| {
                let columns = into.columns.iter();
                columns.map(|column| value(row.get(column)))
            });
            let statement = Statement {
                text: dialect.insert_json(into, rows.len()),
                values: values.collect(),
            };
            self.run(what, &statement).await?;
        }
        Ok(())
    }
}

/// A field as MySQL reads it.
fn value(field: Option<&Json>) -> Value {
    match field {
        None | Some(Json::Null) => Value::Text(None),
        Some(Json::Bool(truth)) => Value::Number(Some(i64::from(*truth))),
        Some(Json::Number(number)) => match number.as_i64() {
            Some(number) => Value::Number(Some(number)),
            None => Value::Text(Some(number.to_string())),
        },
        Some(Json::String(text)) => Value::Text(Some(text.clone())),
        Some(other) => Value::Text(Some(other.to_string())),
    }
}

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=63).contains(&name.len()) && name.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_none_are_refused() {
        let columns = ["a".to_owned(), "b".to_owned()];
        for (table, columns, key) in [
            ("t\"; drop", &columns[..], &[][..]),
            ("a.b.c", &columns, &[]),
            ("", &columns, &[]),
            ("t", &["a?".to_owned()], &[]),
            ("t", &columns, &["c".to_owned()]),
            ("t", &["a".to_owned(), "a".to_owned()], &[]),
        ] {
            JsonInsert::new(table, columns, key).unwrap_err();
        }
        JsonInsert::new("s.t", &columns, &columns[..1]).unwrap();
    }

    #[test]
    fn each_dialect_takes_rows_in_its_own_way() {
        let columns = ["a".to_owned(), "b".to_owned()];
        let upsert = JsonInsert::new("s.t", &columns, &columns[..1]).unwrap();
        assert_eq!(
            Dialect::Postgres.insert_json(&upsert, 1),
            "INSERT INTO \"s\".\"t\" (\"a\", \"b\") SELECT \"a\", \"b\" FROM \
             json_populate_recordset(NULL::\"s\".\"t\", CAST(? AS json)) \
             ON CONFLICT (\"a\") DO UPDATE SET \"b\" = excluded.\"b\""
        );
        let add = JsonInsert::new("t", &columns, &[]).unwrap();
        assert_eq!(
            Dialect::Sqlite.insert_json(&add, 1),
            "INSERT INTO \"t\" (\"a\", \"b\") SELECT json_extract(value, '$.\"a\"'), \
             json_extract(value, '$.\"b\"') FROM json_each(?) WHERE true"
        );
        assert_eq!(
            Dialect::MySql.insert_json(&upsert, 2),
            "INSERT INTO `s`.`t` (`a`, `b`) VALUES (?, ?), (?, ?) \
             ON DUPLICATE KEY UPDATE `b` = VALUES(`b`)"
        );
    }
}
