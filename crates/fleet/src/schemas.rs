//! All schemas of the fleet's, which nodes of several versions share.
//!
//! What a new version brings, it brings as a new migration, and `released_migrations.txt` gets a line
//! for it. Nodes of the version before go on reading and writing beneath it, so it adds tables, indexes
//! and columns that may be left out, and nothing else. A word in a row that older nodes cannot read is
//! no addition either. What has to go is left alone by one version and removed by a later one, which
//! then raises `oldest`; a node that is too old for that is not started, and one that runs writes
//! nothing more ([`sql::Database::still_fits`]).

use sql::Schema;

use crate::{audit, operators, store, tables};

/// Every schema.
pub const ALL: [Schema; 7] = [
    store::SCHEMAS[0],
    store::SCHEMAS[1],
    store::SCHEMAS[2],
    store::SCHEMAS[3],
    tables::SCHEMA,
    audit::SCHEMA,
    operators::SCHEMA,
];

#[cfg(test)]
mod tests {
    use sql::upgrade_rules::{digests, objections};

    use super::*;

    #[test]
    fn migrations_only_add_so_that_nodes_of_the_version_before_go_on() {
        for schema in ALL {
            for migration in schema.migrations {
                let found = objections(migration.text);
                assert!(
                    found.is_empty(),
                    "{} {}: {found:#?}",
                    schema.name,
                    migration.number
                );
            }
            let numbers = 1..=schema.migrations.len() as i64;
            assert!(numbers.contains(&schema.oldest), "{}", schema.name);
        }
    }

    /// The list grows with each migration; a line of it never changes, as there are databases that
    /// were made with its text.
    #[test]
    fn migrations_are_the_texts_that_databases_were_made_with() {
        let noted: Vec<&str> = include_str!("released_migrations.txt").lines().collect();
        let known: Vec<String> = ALL.iter().flat_map(digests).collect();
        assert_eq!(
            known, noted,
            "a change of the schema is a migration of its own, with its line"
        );
    }
}
