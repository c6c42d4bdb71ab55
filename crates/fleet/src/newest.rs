//! Tables that are read from their newest row on and of which the newest rows are kept: events, the
//! audit. Their rows have `at_ms` and `id`.

use sql::{Database, SqlError, Statement};

use crate::limits;

/// Which rows of such a table are wanted.
pub struct Wanted<'w> {
    /// Columns that are to have these values, where one is given.
    pub having: &'w [(&'static str, &'w Option<String>)],
    /// Of these classes only.
    pub only_classes: Option<&'w [String]>,
    /// Before this time and id: where the page before ended.
    pub before: Option<&'w (i64, String)>,
    /// At most so many.
    pub limit: usize,
}

/// Ends `select`, which has a condition already, so that it reads a page, the newest row first; none
/// when nothing can be in it.
pub fn page(mut select: Statement, wanted: &Wanted<'_>) -> Option<Statement> {
    for (column, value) in wanted.having {
        if let Some(value) = value {
            select = select
                .push(&format!(" AND {column} = ?"))
                .bind(value.as_str());
        }
    }
    if let Some(classes) = wanted.only_classes {
        if classes.is_empty() {
            return None;
        }
        select = select.push(" AND class IN ");
        select = select.list(classes.iter().map(String::as_str));
    }
    if let Some((at, id)) = wanted.before {
        select = select.push(" AND (at_ms < ? OR (at_ms = ? AND id < ?))");
        select = select.bind(*at).bind(*at).bind(id.as_str());
    }
    let limit = wanted.limit.clamp(1, limits::PAGE_ITEMS_MAX) as i64;
    let select = select.push(" ORDER BY at_ms DESC, id DESC LIMIT ?");
    Some(select.bind(limit))
}

/// Which rows the newest are kept of.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The table.
    pub table: &'static str,
    /// The column with the time.
    pub column: &'static str,
    /// The rows that count, and go; a condition.
    pub only: &'static str,
}

impl Rows {
    /// All rows of a table.
    pub const fn of(table: &'static str, column: &'static str) -> Rows {
        Rows {
            table,
            column,
            only: "1 = 1",
        }
    }
}

/// Removes what is behind the `max` newest of these rows; those of one time go together. Tells how
/// many went.
///
/// # Errors
/// The database's.
pub async fn keep(
    database: &Database,
    what: &'static str,
    rows: Rows,
    max: i64,
) -> Result<u64, SqlError> {
    let Rows {
        table,
        column,
        only,
    } = rows;
    let newest = format!(
        "SELECT {column} FROM {table} WHERE {only} ORDER BY {column} DESC LIMIT 1 OFFSET ?"
    );
    let newest = Statement::new(newest).bind(max);
    let Some(row) = database.row(what, &newest).await? else {
        return Ok(0);
    };
    let at = row
        .number(column)
        .map_err(|error| database.error(what, error))?;
    let delete = Statement::new(format!(
        "DELETE FROM {table} WHERE {only} AND {column} <= ?"
    ));
    database.run(what, &delete.bind(at)).await
}
