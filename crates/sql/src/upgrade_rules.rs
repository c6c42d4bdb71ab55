//! What tests hold schemas to, so that nodes of two versions can share a database.
//!
//! A migration comes under processes of the version before, which go on reading and writing: so it
//! makes tables and indexes and adds columns that may be left out, and nothing else. Once released,
//! its text is what databases out there were made with, and stays.

use crate::migration::{Schema, checksum};

/// What in a migration's text old processes would stumble over; none where it only adds.
pub fn objections(text: &str) -> Vec<String> {
    let mut own_tables: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for statement in statements(text) {
        let words: Vec<&str> = statement.split(' ').collect();
        let reason = match words.as_slice() {
            ["CREATE", "TABLE", table, ..] => {
                own_tables.push((*table).to_owned());
                None
            }
            ["CREATE", "INDEX", _, "ON", ..] => None,
            ["CREATE", "UNIQUE", "INDEX", _, "ON", table, ..]
            | ["INSERT", "INTO", table, ..]
            | ["UPDATE", table, ..]
                if own_tables.iter().any(|own| own == table) =>
            {
                None
            }
            ["ALTER", "TABLE", table, ..] if own_tables.iter().any(|own| own == table) => None,
            ["ALTER", "TABLE", _, "ADD", "COLUMN", _, rest @ ..] => objection_to_column(rest),
            _ => Some("does more than add a table, an index or a column"),
        };
        if let Some(reason) = reason {
            found.push(format!("{reason}: {statement}"));
        }
    }
    found
}

/// The tables that a schema makes, in capitals.
pub fn tables(schema: &Schema) -> Vec<String> {
    let mut tables = Vec::new();
    for migration in schema.migrations {
        for statement in statements(migration.text) {
            if let ["CREATE", "TABLE", table, ..] = *statement.split(' ').collect::<Vec<_>>() {
                tables.push(table.to_owned());
            }
        }
    }
    tables
}

/// A line for each migration of a schema: its name, the number, and the SHA-256 of the text.
pub fn digests(schema: &Schema) -> Vec<String> {
    let line = |migration: &crate::migration::Migration| {
        let digest = checksum(migration.text);
        format!("{} {} {digest}", schema.name, migration.number)
    };
    schema.migrations.iter().map(line).collect()
}

/// Whether rows that are written without the column can be.
fn objection_to_column(definition: &[&str]) -> Option<&'static str> {
    let has = |word: &str| definition.contains(&word);
    if has("PRIMARY") || has("UNIQUE") || has("REFERENCES") || has("CHECK") {
        return Some("asks of the column what old processes do not know");
    }
    let default = definition.iter().position(|word| *word == "DEFAULT");
    let default = default.and_then(|at| definition.get(at + 1));
    (has("NOT") && default.is_none_or(|default| *default == "NULL"))
        .then_some("adds a column that old processes leave out, and that has no default")
}

/// The statements in capitals with single spaces, parentheses apart, without comments.
fn statements(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .map(|line| line.split("--").next().unwrap_or(""));
    let text = lines.collect::<Vec<_>>().join(" ").to_uppercase();
    let text = text.replace('(', " ( ").replace(')', " ) ");
    text.split(';')
        .map(|statement| statement.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|statement| !statement.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_adds_is_taken() {
        let text = "
            CREATE TABLE t (id VARCHAR(9) NOT NULL PRIMARY KEY, n BIGINT NOT NULL); -- new
            CREATE UNIQUE INDEX t_n ON t(n);
            INSERT INTO t (id, n) VALUES ('a', 1);
            CREATE INDEX old_a ON old (a);
            ALTER TABLE old ADD COLUMN b BIGINT;
            ALTER TABLE old ADD COLUMN c VARCHAR(9) NOT NULL DEFAULT '';
        ";
        assert_eq!(objections(text), Vec::<String>::new());
    }

    #[test]
    fn what_old_processes_would_stumble_over_is_refused() {
        for text in [
            "DROP TABLE old",
            "drop index old_a",
            "ALTER TABLE old DROP COLUMN a",
            "ALTER TABLE old RENAME TO new",
            "ALTER TABLE old RENAME COLUMN a TO b",
            "ALTER TABLE old ADD COLUMN b BIGINT NOT NULL",
            "ALTER TABLE old ADD COLUMN b BIGINT NOT NULL DEFAULT NULL",
            "ALTER TABLE old ADD COLUMN b BIGINT UNIQUE",
            "ALTER TABLE old ADD COLUMN b BIGINT CHECK (b > 0)",
            "ALTER TABLE old ALTER COLUMN a TYPE TEXT",
            "ALTER TABLE old ADD CONSTRAINT one UNIQUE (a)",
            "CREATE UNIQUE INDEX old_a ON old (a)",
            "UPDATE old SET a = 1",
            "DELETE FROM old",
            "INSERT INTO old (a) VALUES (1)",
            "CREATE TABLE t (a BIGINT); ALTER TABLE\n old\n ADD COLUMN b BIGINT NOT NULL;",
        ] {
            assert_eq!(objections(text).len(), 1, "{text}");
        }
    }
}
