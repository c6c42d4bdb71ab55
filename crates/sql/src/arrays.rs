//! Rows as one array for each column, which is how PostgreSQL takes many rows in one statement: its
//! text has a value for each column, not for each field, so it is read and planned once for any
//! number of rows.

use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;

use crate::dialect::{Dialect, storable};
use crate::statement::{Insert, Lookup, Value};

/// The fields of one column.
pub(crate) enum Array {
    Numbers(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl Array {
    fn of(first: &Value, count: usize) -> Array {
        match first {
            Value::Number(_) => Array::Numbers(Vec::with_capacity(count)),
            Value::Text(_) => Array::Texts(Vec::with_capacity(count)),
            Value::Bytes(_) => Array::Bytes(Vec::with_capacity(count)),
        }
    }

    /// Takes one more field; false when it is of another type than those before.
    fn push(&mut self, value: Value) -> bool {
        match (self, value) {
            (Array::Numbers(all), Value::Number(one)) => all.push(one),
            (Array::Texts(all), Value::Text(one)) => all.push(one.map(storable)),
            (Array::Bytes(all), Value::Bytes(one)) => all.push(one),
            _ => return false,
        }
        true
    }

    fn type_name(&self) -> &'static str {
        match self {
            Array::Numbers(_) => "bigint[]",
            Array::Texts(_) => "text[]",
            Array::Bytes(_) => "bytea[]",
        }
    }

    /// Binds the column to the next place of a statement.
    pub fn bind(self, query: Query<'_, Postgres, PgArguments>) -> Query<'_, Postgres, PgArguments> {
        match self {
            Array::Numbers(all) => query.bind(all),
            Array::Texts(all) => query.bind(all),
            Array::Bytes(all) => query.bind(all),
        }
    }
}

/// Turns rows into columns; none when there are no rows, or when a column's fields differ in type.
pub(crate) fn columns(rows: Vec<Vec<Value>>) -> Option<Vec<Array>> {
    let count = rows.len();
    let mut columns: Vec<Array> = rows
        .first()?
        .iter()
        .map(|value| Array::of(value, count))
        .collect();
    for row in rows {
        let is_whole = row.len() == columns.len();
        let mut fields = columns.iter_mut().zip(row);
        if !is_whole || !fields.all(|(column, value)| column.push(value)) {
            return None;
        }
    }
    Some(columns)
}

/// The statement that writes `columns`.
pub(crate) fn insert(into: &Insert, columns: &[Array]) -> String {
    let arrays: Vec<String> = (1..)
        .zip(columns)
        .map(|(number, column)| format!("${number}::{}", column.type_name()))
        .collect();
    format!(
        "INSERT INTO {} ({}) SELECT * FROM unnest({}){}",
        into.table,
        into.columns.join(", "),
        arrays.join(", "),
        Dialect::Postgres.on_conflict(&into.conflict)
    )
}

/// The statement that finds a lookup's rows, of an array of the many values and the one.
///
/// Each of the many is looked for by itself: a list of values would be tried on every row of the one
/// value, as long as the server believes that these are few.
pub(crate) fn lookup(wanted: &Lookup) -> String {
    let Lookup { table, among, .. } = wanted;
    let columns = wanted.columns.join(", ");
    let of = wanted
        .of
        .map_or(String::new(), |of| format!("{of} = $2 AND "));
    format!(
        "SELECT found.* FROM unnest($1::text[]) AS wanted (value) CROSS JOIN LATERAL \
         (SELECT {columns} FROM {table} WHERE {of}{among} = wanted.value OFFSET 0) AS found"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::Conflict;

    const INTO: Insert = Insert {
        table: "t",
        columns: &["a", "b", "c"],
        conflict: Conflict::Keep { key: &["a"] },
    };

    #[test]
    fn the_statement_is_the_same_for_any_number_of_rows() {
        let row = |a: i64| vec![Value::from(a), Value::Text(None), Value::Bytes(None)];
        let text = |rows| insert(&INTO, &columns(rows).unwrap());
        let expected = "INSERT INTO t (a, b, c) SELECT * FROM \
            unnest($1::bigint[], $2::text[], $3::bytea[]) ON CONFLICT (a) DO NOTHING";
        assert_eq!(text(vec![row(1)]), expected);
        assert_eq!(text(vec![row(1), row(2), row(3)]), expected);
    }

    #[test]
    fn rows_that_do_not_fit_each_other_are_no_columns() {
        let number = || vec![Value::from(1)];
        assert!(columns(vec![number(), vec!["x".into()]]).is_none());
        assert!(columns(vec![number(), Vec::new()]).is_none());
        assert!(columns(Vec::new()).is_none());
    }
}
