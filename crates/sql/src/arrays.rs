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

/// The statement that writes `columns`, and tells as `there` how many rows of these keys, by which `by`
/// finds them, were there before: each part of a statement sees the table as it was.
pub(crate) fn replace(into: &Insert, by: &Lookup, columns: &[Array]) -> String {
    let array = |name: &str| {
        let mut places = (1..).zip(into.columns).zip(columns);
        let found = places.find(|((_, column), _)| **column == name);
        found.map_or(String::new(), |((number, _), column)| {
            format!("${number}::{}", column.type_name())
        })
    };
    let of = by.of.map(|of| format!("({})[1]", array(of)));
    format!(
        "WITH written AS ({}) SELECT count(*) AS there FROM {}",
        insert(into, columns),
        found(by, "1", &array(by.among), of.as_deref())
    )
}

/// The statement that finds a lookup's rows, of an array of the many values and the one.
pub(crate) fn lookup(wanted: &Lookup) -> String {
    let columns = wanted.columns.join(", ");
    let found = found(wanted, &columns, "$1::text[]", wanted.of.map(|_| "$2"));
    format!("SELECT found.* FROM {found}")
}

/// What a lookup finds, as a part of a statement.
///
/// Each of the many is looked for by itself: a list of values would be tried on every row of the one
/// value, as long as the server believes that these are few.
fn found(wanted: &Lookup, columns: &str, many: &str, one: Option<&str>) -> String {
    let Lookup { table, among, .. } = wanted;
    let of = wanted.of.zip(one);
    let of = of.map_or(String::new(), |(of, one)| format!("{of} = {one} AND "));
    format!(
        "unnest({many}) AS wanted (value) CROSS JOIN LATERAL \
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
