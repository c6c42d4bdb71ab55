//! The databases that statements write to (`[databases]`): opened when first written to, and again
//! when they were away.
//!
//! Each has a table `thalweg_statement_rows` beside the statements' own: which rows of which statement
//! it has, kept in the same transaction as the rows.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use fusion::sinks::tables::Writing;
use fusion::sinks::{NotWritten, Rows, Table, Tables};
use serde_json::{Map, Value};
use sql::{
    Conflict, Database, Insert, JsonInsert, Migration, Options, Place, Schema, SecretUrl, SqlError,
    Statement,
};
use tokio::sync::OnceCell;

/// The databases by their names.
pub struct SqlTables(BTreeMap<String, Site>);

struct Site {
    place: Place,
    open: OnceCell<Database>,
}

impl SqlTables {
    /// Reads the addresses; files stand in `folder`. None where there is none.
    ///
    /// # Errors
    /// An address is none.
    pub fn open(
        databases: &BTreeMap<String, SecretUrl>,
        folder: &Path,
    ) -> Result<Option<Arc<dyn Tables>>, SqlError> {
        let mut sites = BTreeMap::new();
        for (name, address) in databases {
            let address = address.reveal();
            let place = match address.strip_prefix("sqlite:") {
                Some(file) => Place::File(folder.join(file)),
                None => Place::read(Some(address), folder)?,
            };
            let open = OnceCell::new();
            sites.insert(name.clone(), Site { place, open });
        }
        Ok(match sites.is_empty() {
            true => None,
            false => Some(Arc::new(SqlTables(sites))),
        })
    }

    async fn write_now(&self, table: &Table, rows: &Rows<'_>) -> Result<(), NotWritten> {
        let never = |why: String| NotWritten::Never(why);
        let into = JsonInsert::new(&table.table, rows.columns, &table.key).map_err(never)?;
        let read: Result<Vec<Map<String, Value>>, _> = rows
            .rows
            .iter()
            .map(|row| serde_json::from_slice(row))
            .collect();
        let objects = read.map_err(|error| never(format!("a row is no JSON object: {error}")))?;
        let site = self.0.get(&table.database);
        let site = site.ok_or_else(|| never(unknown(&table.database, self)))?;
        site.write(&into, last_of_each(&table.key, objects), rows)
            .await
            .map_err(|error| {
                let why = base::report(&error);
                match error.may_retry() {
                    true => NotWritten::Later(why),
                    false => NotWritten::Never(why),
                }
            })
    }
}

impl Tables for SqlTables {
    fn check(&self, table: &Table, columns: &[String]) -> Result<(), String> {
        if !self.0.contains_key(&table.database) {
            return Err(unknown(&table.database, self));
        }
        JsonInsert::new(&table.table, columns, &table.key).map(|_| ())
    }

    fn write<'a>(&'a self, table: &'a Table, rows: Rows<'a>) -> Writing<'a> {
        Box::pin(async move { self.write_now(table, &rows).await })
    }
}

impl Site {
    async fn write(
        &self,
        into: &JsonInsert,
        objects: Vec<Map<String, Value>>,
        rows: &Rows<'_>,
    ) -> Result<(), SqlError> {
        let options = Options {
            readers: CONNECTIONS,
            durable: true,
        };
        let open = || Database::open(&self.place, options, &SCHEMA);
        let database = self.open.get_or_try_init(open).await?;
        let mut tx = database.begin().await?;
        if let Some((counter, _)) = rows.first {
            let stored = Statement::new(
                "SELECT counter, next FROM thalweg_statement_rows WHERE statement = ?",
            )
            .bind(rows.statement);
            let read = tx.row("read which rows there are", &stored).await?;
            let number = |column: &str| {
                let row = read.as_ref()?;
                row.number(column).ok()
            };
            if let (Some(counter), Some(next)) = (number("counter"), number("next"))
                && rows.are_stored((counter, i32::try_from(next).unwrap_or(0)))
            {
                return Ok(());
            }
            let now = vec![
                rows.statement.into(),
                counter.into(),
                i64::from(rows.next).into(),
            ];
            tx.insert("note which rows there are", &NOTED, vec![now])
                .await?;
        }
        tx.insert_json("write a statement's rows", into, objects)
            .await?;
        tx.commit("write a statement's rows").await
    }
}

/// Of rows with the same key the last: one statement of SQL cannot replace what it wrote itself.
fn last_of_each(key: &[String], rows: Vec<Map<String, Value>>) -> Vec<Map<String, Value>> {
    if key.is_empty() {
        return rows;
    }
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut last: Vec<Map<String, Value>> = Vec::new();
    for row in rows {
        let key: Vec<&Value> = key
            .iter()
            .map(|name| row.get(name).unwrap_or(&Value::Null))
            .collect();
        let key = serde_json::to_string(&key).unwrap_or_default();
        match places.get(&key) {
            Some(place) => last[*place] = row,
            None => {
                places.insert(key, last.len());
                last.push(row);
            }
        }
    }
    last
}

fn unknown(name: &str, tables: &SqlTables) -> String {
    let names: Vec<&str> = tables.0.keys().map(String::as_str).collect();
    format!(
        "there is no database '{name}': [databases] names {}",
        names.join(", ")
    )
}

/// Statements write one after another, each in a transaction of its own.
const CONNECTIONS: u32 = 4;

const NOTED: Insert = Insert {
    table: "thalweg_statement_rows",
    columns: &["statement", "counter", "next"],
    conflict: Conflict::Replace {
        key: &["statement"],
        columns: &["counter", "next"],
    },
};

const SCHEMA: Schema = Schema {
    name: "statement_rows",
    oldest: 1,
    migrations: &[Migration {
        number: 1,
        name: "which rows of which statement there are",
        text: "
CREATE TABLE thalweg_statement_rows (
    statement VARCHAR(128) NOT NULL PRIMARY KEY,
    counter BIGINT NOT NULL,
    next BIGINT NOT NULL
);
",
    }],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_rows_with_one_key_the_last_stands() {
        let rows: Vec<Map<String, Value>> = serde_json::from_str(
            r#"[{"k":"a","v":1},{"k":"b","v":2},{"k":"a","v":3},{"v":4},{"v":5}]"#,
        )
        .unwrap();
        assert_eq!(last_of_each(&[], rows.clone()), rows);
        let last = last_of_each(&["k".to_owned()], rows);
        let values: Vec<&Value> = last.iter().map(|row| &row["v"]).collect();
        assert_eq!(values, [3, 2, 5]);
    }
}
