//! The tables that operators' requests, resources, debug bundles and parameters lie in.
//!
//! Statements keep to what SQLite, PostgreSQL and MySQL share: a row that may be there is deleted
//! and inserted in one transaction.

use sql::{Database, Migration, Row, Schema, SqlError};

pub use sql::Value;

/// A statement with the values for its marks.
pub type Statement = (&'static str, Vec<Value>);

/// Runs statements.
#[derive(Clone, Debug)]
pub struct Tables {
    database: Database,
}

/// A row that was read.
#[derive(Debug)]
pub struct Found<'t> {
    tables: &'t Tables,
    row: Row,
}

impl Tables {
    /// Brings the tables up to date.
    pub async fn open(database: Database) -> Result<Tables, SqlError> {
        database.migrate(&SCHEMA).await?;
        Ok(Tables { database })
    }

    /// Reads rows.
    pub async fn rows(
        &self,
        what: &'static str,
        statement: Statement,
    ) -> Result<Vec<Found<'_>>, SqlError> {
        let rows = self.database.rows(what, &bound(statement)).await?;
        let found = |row| Found { tables: self, row };
        Ok(rows.into_iter().map(found).collect())
    }

    /// Runs statements in one transaction, durable when this returns; tells how many rows the last
    /// one changed.
    pub async fn write(
        &self,
        what: &'static str,
        statements: Vec<Statement>,
    ) -> Result<u64, SqlError> {
        let mut tx = self.database.begin().await?;
        let mut changed = 0;
        for statement in statements {
            changed = tx.run(what, &bound(statement)).await?;
        }
        tx.commit(what).await?;
        Ok(changed)
    }
}

impl Found<'_> {
    pub fn text(&self, column: &str) -> Result<String, SqlError> {
        self.sorted(self.row.text(column))
    }

    pub fn number(&self, column: &str) -> Result<i64, SqlError> {
        self.sorted(self.row.number(column))
    }

    pub fn bytes(&self, column: &str) -> Result<Vec<u8>, SqlError> {
        self.sorted(self.row.bytes(column))
    }

    fn sorted<T>(&self, read: Result<T, sqlx::Error>) -> Result<T, SqlError> {
        read.map_err(|error| self.tables.database.error("read a column", error))
    }
}

fn bound((text, values): Statement) -> sql::Statement {
    let statement = sql::Statement::new(text);
    values.into_iter().fold(statement, sql::Statement::bind)
}

pub const SCHEMA: Schema = Schema {
    name: "fleet_operations",
    oldest: 1,
    migrations: &[
        Migration {
            number: 1,
            name: "requests, resources, bundles, parameters",
            text: FIRST,
        },
        Migration {
            number: 2,
            name: "how many agents may be at an operation at once",
            text: SECOND,
        },
    ],
};

// Below 0: as usual for what is asked.
const SECOND: &str = "
ALTER TABLE operation_requests ADD COLUMN at_once BIGINT NOT NULL DEFAULT -1;
ALTER TABLE resource_sets ADD COLUMN at_once BIGINT NOT NULL DEFAULT -1;
CREATE INDEX operations_request ON operations (request_id, state);
CREATE INDEX operations_goal ON operations (goal, state);
CREATE INDEX operation_results_created ON operation_results (created_ms);
";

const FIRST: &str = "
ALTER TABLE operations ADD COLUMN request_id VARCHAR(36);
ALTER TABLE operations ADD COLUMN goal VARCHAR(64);
CREATE TABLE operation_requests (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    scope VARCHAR(8) NOT NULL,
    target VARCHAR(255) NOT NULL,
    operation VARCHAR(32) NOT NULL,
    operand VARCHAR(64) NOT NULL,
    args BLOB NOT NULL,
    created_ms BIGINT NOT NULL
);
CREATE TABLE operation_results (
    operation_id VARCHAR(36) NOT NULL PRIMARY KEY,
    content BLOB NOT NULL,
    created_ms BIGINT NOT NULL
);
CREATE TABLE resources (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    name VARCHAR(255) NOT NULL,
    type VARCHAR(16) NOT NULL,
    path VARCHAR(255) NOT NULL,
    notes TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    sha512 VARCHAR(128) NOT NULL,
    created_ms BIGINT NOT NULL
);
CREATE TABLE resource_sets (
    class VARCHAR(255) NOT NULL PRIMARY KEY,
    digest VARCHAR(64) NOT NULL,
    changed_ms BIGINT NOT NULL
);
CREATE TABLE class_resources (
    class VARCHAR(255) NOT NULL,
    resource_id VARCHAR(36) NOT NULL,
    PRIMARY KEY (class, resource_id)
);
CREATE TABLE file_chunks (
    file_id VARCHAR(36) NOT NULL,
    number BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (file_id, number)
);
CREATE TABLE debug_bundles (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    agent_id VARCHAR(255) NOT NULL,
    name VARCHAR(255) NOT NULL,
    bytes BIGINT NOT NULL,
    sha512 VARCHAR(128) NOT NULL,
    created_ms BIGINT NOT NULL
);
CREATE TABLE parameters (
    level VARCHAR(8) NOT NULL,
    owner VARCHAR(255) NOT NULL,
    name VARCHAR(255) NOT NULL,
    is_secret BIGINT NOT NULL,
    value BLOB NOT NULL,
    changed_ms BIGINT NOT NULL,
    PRIMARY KEY (level, owner, name)
);
";
