//! Databases as processors of SQL use them: SQLite, PostgreSQL, MySQL and MariaDB.
//!
//! A controller service holds where the database is ([`Place`]); each processor has a connection of
//! its own ([`Link`]). Statements go as text and their values come as text, so that every type of
//! every database has a form; arguments are put into the text in a form in which no byte of them
//! can mean anything ([`arguments`]).

mod arguments;
mod link;
mod place;
mod rows;

pub(crate) use link::{DatabaseError, Link, Rows};
pub(crate) use place::{Kind, Place};

use crate::flowfile::Attributes;

/// Finds the places for arguments in any text, for the fuzz targets.
pub(crate) fn read_anything(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let attributes = Attributes::new([("sql.args.1.value", text), ("sql.args.2.type", "12")]);
    for kind in [Kind::Sqlite, Kind::Postgres, Kind::MySql] {
        // A place without an argument is told.
        let _ = arguments::filled(kind, text, &attributes);
    }
    let _ = Place::read(text);
}

impl Place {
    /// A statement with the arguments `sql.args.1.value` and so on of `attributes` in the places of
    /// its `?`; a place whose argument has a type alone is null.
    ///
    /// Errors: a place has no argument; names the attribute.
    pub(crate) fn statement(&self, sql: &str, attributes: &Attributes) -> Result<String, String> {
        arguments::filled(self.kind(), sql, attributes)
    }

    /// A text as a value within a statement.
    pub(crate) fn literal(&self, text: &str) -> String {
        arguments::literal(self.kind(), text)
    }
}
