//! What SQLite, PostgreSQL and MySQL spell differently; all of it, and only here.
//!
//! Statements are written with `?` for values and in words that all three know. Migrations are
//! written in SQLite's types; names (`VARCHAR`) compare byte by byte everywhere, as in SQLite, so
//! that `Edge` and `edge` are two classes on every database and a list has one order.

use crate::json_rows::JsonInsert;
use crate::statement::{Conflict, Insert, Statement, Value, tuple};

/// A text as every database can store it: PostgreSQL's hold all characters but this one.
pub(crate) fn storable(text: String) -> String {
    if text.contains('\0') {
        return text.replace('\0', "\u{fffd}");
    }
    text
}

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// A file in the data folder.
    Sqlite,
    /// PostgreSQL 12 and newer.
    Postgres,
    /// MySQL 8 and MariaDB 10.5, and newer.
    MySql,
}

impl Dialect {
    /// The word in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::Sqlite => "sqlite",
            Dialect::Postgres => "postgres",
            Dialect::MySql => "mysql",
        }
    }

    /// Whether several processes may use one database at a time.
    pub fn is_shared(self) -> bool {
        self != Dialect::Sqlite
    }

    /// Whether an INSERT may say what it has put in; MySQL's may not.
    pub fn has_returning(self) -> bool {
        self != Dialect::MySql
    }

    /// A statement with `?` in this dialect's words. No statement has a `?` in a literal.
    pub(crate) fn statement(self, text: &str) -> String {
        if self != Dialect::Postgres {
            return text.to_owned();
        }
        let mut spelled = String::with_capacity(text.len() + 16);
        for (number, part) in text.split('?').enumerate() {
            if number > 0 {
                spelled.push_str(&format!("${number}"));
            }
            spelled.push_str(part);
        }
        spelled
    }

    /// A migration, written in SQLite's types, in this dialect's.
    pub(crate) fn schema(self, text: &str) -> String {
        match self {
            Dialect::Sqlite => text.to_owned(),
            Dialect::Postgres => {
                let text = collate(text).replace(" BLOB", " BYTEA");
                text.replace(" TEXT", " TEXT COLLATE \"C\"")
            }
            Dialect::MySql => text
                .replace(" VARCHAR(", " VARBINARY(")
                .replace(" BLOB", " LONGBLOB")
                .replace(" TEXT", " LONGTEXT CHARACTER SET utf8mb4"),
        }
    }

    /// Writes rows, as many as a statement may hold.
    pub fn insert(self, into: &Insert, rows: Vec<Vec<Value>>) -> Statement {
        let width = into.columns.len();
        debug_assert!(rows.iter().all(|row| row.len() == width), "{}", into.table);
        let text = format!(
            "INSERT INTO {} ({}) VALUES {}{}",
            into.table,
            into.columns.join(", "),
            vec![tuple(width).as_str(); rows.len()].join(", "),
            self.on_conflict(&into.conflict)
        );
        let values = rows.into_iter().flatten().collect();
        Statement { text, values }
    }

    /// What follows an INSERT's values, for rows whose key is there already.
    pub(crate) fn on_conflict(self, conflict: &Conflict) -> String {
        let (key, columns) = match conflict {
            Conflict::Fail => return String::new(),
            Conflict::Keep { key } => (*key, &[][..]),
            Conflict::Replace { key, columns } => (*key, *columns),
        };
        let set = |spell: &dyn Fn(&str) -> String| -> String {
            let assignments: Vec<String> = columns.iter().map(|column| spell(column)).collect();
            assignments.join(", ")
        };
        match (self, columns.is_empty()) {
            (Dialect::MySql, true) => format!(" ON DUPLICATE KEY UPDATE {0} = {0}", key[0]),
            (Dialect::MySql, false) => {
                let set = set(&|column| format!("{column} = VALUES({column})"));
                format!(" ON DUPLICATE KEY UPDATE {set}")
            }
            (_, true) => format!(" ON CONFLICT ({}) DO NOTHING", key.join(", ")),
            (_, false) => {
                let set = set(&|column| format!("{column} = excluded.{column}"));
                format!(" ON CONFLICT ({}) DO UPDATE SET {set}", key.join(", "))
            }
        }
    }

    /// Puts JSON rows into a table: with one value, the array of all, or on MySQL with each field of
    /// `rows` rows.
    pub(crate) fn insert_json(self, into: &JsonInsert, rows: usize) -> String {
        let quote = |name: &String| match self {
            Dialect::MySql => format!("`{name}`"),
            _ => format!("\"{name}\""),
        };
        let list = |names: &[String]| names.iter().map(quote).collect::<Vec<_>>().join(", ");
        let table: Vec<String> = into.table.iter().map(quote).collect();
        let (table, columns) = (table.join("."), list(&into.columns));
        let source = match self {
            Dialect::Postgres => format!(
                "SELECT {columns} FROM json_populate_recordset(NULL::{table}, CAST(? AS json))"
            ),
            Dialect::Sqlite => {
                let field = |name: &String| format!("json_extract(value, '$.\"{name}\"')");
                let fields: Vec<String> = into.columns.iter().map(field).collect();
                // A condition tells the conflict's ON from a join's.
                format!("SELECT {} FROM json_each(?) WHERE true", fields.join(", "))
            }
            Dialect::MySql => {
                let row = tuple(into.columns.len());
                format!("VALUES {}", vec![row; rows].join(", "))
            }
        };
        let others = into.columns.iter().filter(|name| !into.key.contains(name));
        let set = |spell: &dyn Fn(String) -> String| -> String {
            let set = others.clone().map(|name| spell(quote(name)));
            set.collect::<Vec<_>>().join(", ")
        };
        let conflict = match (self, into.key.is_empty(), others.clone().next().is_none()) {
            (_, true, _) => String::new(),
            (Dialect::MySql, _, true) => {
                format!(" ON DUPLICATE KEY UPDATE {0} = {0}", quote(&into.key[0]))
            }
            (Dialect::MySql, _, false) => format!(
                " ON DUPLICATE KEY UPDATE {}",
                set(&|name| format!("{name} = VALUES({name})"))
            ),
            (_, _, true) => format!(" ON CONFLICT ({}) DO NOTHING", list(&into.key)),
            (_, _, false) => format!(
                " ON CONFLICT ({}) DO UPDATE SET {}",
                list(&into.key),
                set(&|name| format!("{name} = excluded.{name}"))
            ),
        };
        format!("INSERT INTO {table} ({columns}) {source}{conflict}")
    }

    /// The database's own clock, in milliseconds since 1970: the one that all nodes share.
    pub(crate) fn now_ms(self) -> &'static str {
        match self {
            Dialect::Sqlite => {
                "SELECT CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"
            }
            Dialect::Postgres => {
                "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
            }
            Dialect::MySql => "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
        }
    }

    /// How a transaction that migrates waits for a table's lock a moment only.
    pub(crate) fn limit_lock_waits(self) -> Option<String> {
        let wait = crate::limits::MIGRATION_LOCK_WAIT.as_secs();
        match self {
            Dialect::Sqlite => None,
            Dialect::Postgres => Some(format!("SET LOCAL lock_timeout = '{wait}s'")),
            Dialect::MySql => Some(format!("SET SESSION lock_wait_timeout = {wait}")),
        }
    }

    /// Tells as `taken` whether this transaction has the lock now under which migrations run; held
    /// until the transaction's end on PostgreSQL, until [`Dialect::unlock_migrations`] on MySQL. A
    /// SQLite transaction has its file's lock.
    pub(crate) fn lock_migrations(self) -> Option<String> {
        match self {
            Dialect::Sqlite => None,
            Dialect::Postgres => Some(format!(
                "SELECT CAST(CASE WHEN pg_try_advisory_xact_lock({MIGRATIONS_LOCK}) THEN 1 ELSE 0 \
                 END AS BIGINT) AS taken"
            )),
            Dialect::MySql => Some(
                "SELECT CAST(COALESCE(GET_LOCK('thalweg_migrations', 0), 0) AS SIGNED) AS taken"
                    .to_owned(),
            ),
        }
    }

    /// Gives back what outlives its transaction, one statement after the other.
    pub(crate) fn unlock_migrations(self) -> &'static [&'static str] {
        match self {
            Dialect::Sqlite | Dialect::Postgres => &[],
            Dialect::MySql => &[
                "SET SESSION lock_wait_timeout = DEFAULT",
                "DO RELEASE_LOCK('thalweg_migrations')",
            ],
        }
    }

    /// Whether a failed migration takes its tables back. MySQL commits each as it is made, so a
    /// migration is taken up where it broke off.
    pub(crate) fn has_transactional_ddl(self) -> bool {
        self != Dialect::MySql
    }
}

/// Names compare by their bytes whatever the server's locale is.
fn collate(text: &str) -> String {
    let mut collated = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(start) = rest.find(" VARCHAR(") {
        let Some(length) = rest[start..].find(')') else {
            break;
        };
        let end = start + length + 1;
        collated.push_str(&rest[..end]);
        collated.push_str(" COLLATE \"C\"");
        rest = &rest[end..];
    }
    collated.push_str(rest);
    collated
}

/// Any number will do as long as nobody else on the database takes it: the letters `thalweg`.
const MIGRATIONS_LOCK: i64 = 0x0074_6861_6c77_6567;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_numbered_for_postgres_only() {
        let text = "UPDATE t SET a = ? WHERE b IN (?, ?)";
        assert_eq!(Dialect::Sqlite.statement(text), text);
        assert_eq!(Dialect::MySql.statement(text), text);
        let numbered = "UPDATE t SET a = $1 WHERE b IN ($2, $3)";
        assert_eq!(Dialect::Postgres.statement(text), numbered);
    }

    #[test]
    fn types_are_spelled_by_dialect() {
        let text = "CREATE TABLE t (a VARCHAR(9) NOT NULL, b BLOB, c TEXT NOT NULL)";
        assert_eq!(Dialect::Sqlite.schema(text), text);
        assert_eq!(
            Dialect::Postgres.schema(text),
            "CREATE TABLE t (a VARCHAR(9) COLLATE \"C\" NOT NULL, b BYTEA, \
             c TEXT COLLATE \"C\" NOT NULL)"
        );
        assert_eq!(
            Dialect::MySql.schema(text),
            "CREATE TABLE t (a VARBINARY(9) NOT NULL, b LONGBLOB, \
             c LONGTEXT CHARACTER SET utf8mb4 NOT NULL)"
        );
    }

    #[test]
    fn what_is_there_is_kept_or_replaced() {
        let keep = Conflict::Keep { key: &["a"] };
        assert_eq!(
            Dialect::Sqlite.on_conflict(&keep),
            " ON CONFLICT (a) DO NOTHING"
        );
        assert_eq!(
            Dialect::MySql.on_conflict(&keep),
            " ON DUPLICATE KEY UPDATE a = a"
        );
        let replace = Conflict::Replace {
            key: &["a", "b"],
            columns: &["c", "d"],
        };
        assert_eq!(
            Dialect::Postgres.on_conflict(&replace),
            " ON CONFLICT (a, b) DO UPDATE SET c = excluded.c, d = excluded.d"
        );
        assert_eq!(
            Dialect::MySql.on_conflict(&replace),
            " ON DUPLICATE KEY UPDATE c = VALUES(c), d = VALUES(d)"
        );
    }
}
