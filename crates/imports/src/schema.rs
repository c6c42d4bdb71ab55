//! The tables of jobs and sink, on every kind of database.
//!
//! - `import_jobs`: one row a job, with its progress and its lease;
//! - `import_tenants`: one row a tenant, with its weight and what it has imported; whoever commits a
//!   slice of the tenant holds its lock;
//! - `import_records`: the sink, one row a record; `holder` and `version` are not used any more;
//! - `import_history`: what was done to a record at the counter, on servers; in files `records.rs`
//!   has it in another one;
//! - `import_journal`: records that were not simply taken, with a rejected one's bytes;
//! - `import_slices`: what each commit brought;
//! - `import_index_queue`: what the search index has not seen yet;
//! - `import_selectors`: what tenants' profiles have matched by, and how far records that lay there
//!   before have keys of it (`keys.rs`);
//! - `import_keys`: one row for each value of a record that such a selector selects;
//! - `import_nodes`: when each process that shares the database was last there;
//! - `import_purges`: the latest purge of each tenant, by its number, which search indexes follow;
//! - `import_profiles`, `import_counters`.
//!
//! A `match_key` is the tenant, the selector's number and the value, with a `/` between each: one
//! column, so that PostgreSQL, which knows nothing of a table that was just filled, has one way to it
//! only. A third version's column of that name, one value of whatever selector, is not read any more.
//!
//! A SQLite file of the first version had tables that only SQLite knows; the second one takes their
//! rows over. Servers begin with the second, so that from there on all share one history.

use sql::{Dialect, Migration, Schema};

/// The schema for a kind of database.
pub(crate) fn schema(dialect: Dialect) -> &'static Schema {
    match dialect {
        Dialect::Sqlite => &FILE,
        Dialect::Postgres => &POSTGRES,
        Dialect::MySql => &MYSQL,
    }
}

macro_rules! tables {
    () => {
        "
CREATE TABLE import_counters (
    name VARCHAR(32) NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);
CREATE TABLE import_tenants (
    tenant VARCHAR(63) NOT NULL PRIMARY KEY,
    weight BIGINT NOT NULL,
    slices BIGINT NOT NULL,
    records_done BIGINT NOT NULL,
    records_rejected BIGINT NOT NULL,
    bytes_done BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL
);
CREATE TABLE import_profiles (
    tenant VARCHAR(63) NOT NULL,
    name VARCHAR(255) NOT NULL,
    profile TEXT NOT NULL,
    updated_ms BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE TABLE import_jobs (
    number BIGINT NOT NULL PRIMARY KEY,
    id VARCHAR(64) NOT NULL,
    tenant VARCHAR(63) NOT NULL,
    name VARCHAR(255) NOT NULL,
    format VARCHAR(16) NOT NULL,
    class VARCHAR(16) NOT NULL,
    sink VARCHAR(16) NOT NULL,
    topic VARCHAR(255) NOT NULL,
    profile TEXT NOT NULL,
    slice_records BIGINT NOT NULL,
    idempotency_key VARCHAR(255),
    retry_of VARCHAR(64),
    source TEXT,
    header BLOB,
    is_resumable BIGINT NOT NULL,
    state VARCHAR(32) NOT NULL,
    producer_id BIGINT NOT NULL,
    partition_number BIGINT NOT NULL,
    records_total BIGINT NOT NULL,
    records_done BIGINT NOT NULL,
    records_created BIGINT NOT NULL,
    records_updated BIGINT NOT NULL,
    records_skipped BIGINT NOT NULL,
    records_rejected BIGINT NOT NULL,
    records_sent BIGINT NOT NULL,
    bytes_total BIGINT NOT NULL,
    bytes_done BIGINT NOT NULL,
    next_ordinal BIGINT NOT NULL,
    slices_done BIGINT NOT NULL,
    owner VARCHAR(64),
    token BIGINT NOT NULL,
    lease_until_ms BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    error TEXT
);
CREATE UNIQUE INDEX import_jobs_by_id ON import_jobs (id);
CREATE UNIQUE INDEX import_jobs_by_key ON import_jobs (tenant, idempotency_key);
CREATE INDEX import_jobs_by_state ON import_jobs (state);
CREATE TABLE import_records (
    tenant VARCHAR(63) NOT NULL,
    id VARCHAR(1024) NOT NULL,
    match_value VARCHAR(1024),
    format VARCHAR(16) NOT NULL,
    title TEXT,
    fields TEXT,
    body TEXT NOT NULL,
    job BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    holder VARCHAR(255),
    version BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX import_records_by_match ON import_records (tenant, match_value);
CREATE INDEX import_records_by_job ON import_records (job, ordinal);
CREATE TABLE import_history (
    tenant VARCHAR(63) NOT NULL,
    id VARCHAR(1024) NOT NULL,
    version BIGINT NOT NULL,
    action VARCHAR(16) NOT NULL,
    holder VARCHAR(255),
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (tenant, id, version)
);
CREATE TABLE import_journal (
    job BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    kind VARCHAR(16) NOT NULL,
    position BIGINT NOT NULL,
    reason TEXT NOT NULL,
    raw BLOB,
    PRIMARY KEY (job, ordinal, kind)
);
CREATE TABLE import_slices (
    job BIGINT NOT NULL,
    start BIGINT NOT NULL,
    finish BIGINT NOT NULL,
    first_ordinal BIGINT NOT NULL,
    records BIGINT NOT NULL,
    rejected BIGINT NOT NULL,
    partition_number BIGINT,
    base_offset BIGINT,
    committed_ms BIGINT NOT NULL,
    PRIMARY KEY (job, start)
);
CREATE TABLE import_index_queue (
    tenant VARCHAR(63) NOT NULL,
    job BIGINT NOT NULL,
    first_ordinal BIGINT NOT NULL,
    last_ordinal BIGINT NOT NULL,
    queued_ms BIGINT NOT NULL,
    PRIMARY KEY (tenant, job, first_ordinal)
);
"
    };
}

/// What SQLite and PostgreSQL spell alike of the third version.
macro_rules! match_keys {
    () => {
        "
ALTER TABLE import_records ADD COLUMN match_key VARCHAR(1100);
UPDATE import_records SET match_key = tenant || '/' || match_value WHERE match_value IS NOT NULL;
DROP INDEX import_records_by_match;
ALTER TABLE import_records DROP COLUMN match_value;
CREATE INDEX import_records_by_match_key ON import_records (match_key)
    WHERE match_key IS NOT NULL;
"
    };
}

/// The fourth version: `$kind` is of a file's tables, whose keys are rows.
macro_rules! selectors_and_keys {
    ($kind:literal) => {
        concat!(
            "
ALTER TABLE import_tenants ADD COLUMN selectors BIGINT NOT NULL DEFAULT 0;
CREATE TABLE import_selectors (
    tenant VARCHAR(63) NOT NULL,
    selector VARCHAR(255) NOT NULL,
    number BIGINT NOT NULL,
    filled_to VARCHAR(1024) NOT NULL,
    is_filled BIGINT NOT NULL,
    PRIMARY KEY (tenant, selector)
);
CREATE TABLE import_keys (
    match_key VARCHAR(1120) NOT NULL,
    id VARCHAR(1024) NOT NULL,
    tenant VARCHAR(63) NOT NULL,
    alike BIGINT NOT NULL,
    PRIMARY KEY (match_key, id)
)",
            $kind,
            ";
CREATE INDEX import_keys_by_record ON import_keys (tenant, id);
"
        )
    };
}

macro_rules! no_match_key {
    () => {
        "
DROP INDEX import_records_by_match_key;
ALTER TABLE import_records DROP COLUMN match_key;
"
    };
}

const FILE: Schema = Schema {
    name: "imports",
    oldest: 4,
    migrations: &[
        Migration {
            number: 1,
            name: "jobs, records, journal and slices",
            text: "
CREATE TABLE import_jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    format TEXT NOT NULL,
    topic TEXT NOT NULL,
    key_field TEXT,
    slice_records BIGINT NOT NULL,
    idempotency_key TEXT,
    state TEXT NOT NULL,
    producer_id BIGINT NOT NULL DEFAULT -1,
    partition_number INTEGER NOT NULL DEFAULT 0,
    records_total BIGINT NOT NULL DEFAULT 0,
    records_done BIGINT NOT NULL DEFAULT 0,
    records_rejected BIGINT NOT NULL DEFAULT 0,
    bytes_total BIGINT NOT NULL DEFAULT 0,
    bytes_done BIGINT NOT NULL DEFAULT 0,
    next_ordinal BIGINT NOT NULL DEFAULT 1,
    slices_done BIGINT NOT NULL DEFAULT 0,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    error TEXT
);
CREATE UNIQUE INDEX import_jobs_by_key ON import_jobs (tenant, idempotency_key);
CREATE INDEX import_jobs_unfinished ON import_jobs (state) WHERE state IN ('uploading', 'running');
CREATE TABLE import_records (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    format TEXT NOT NULL,
    title TEXT,
    body TEXT NOT NULL,
    job BIGINT NOT NULL,
    ordinal BIGINT NOT NULL
);
CREATE UNIQUE INDEX import_records_by_id ON import_records (tenant, id);
CREATE TABLE import_journal (
    job BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    position BIGINT NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (job, ordinal)
) WITHOUT ROWID;
CREATE TABLE import_slices (
    job BIGINT NOT NULL,
    start BIGINT NOT NULL,
    finish BIGINT NOT NULL,
    first_ordinal BIGINT NOT NULL,
    records BIGINT NOT NULL,
    rejected BIGINT NOT NULL,
    partition_number BIGINT,
    base_offset BIGINT,
    committed_ms BIGINT NOT NULL,
    PRIMARY KEY (job, start)
) WITHOUT ROWID;
",
        },
        Migration {
            number: 2,
            name: "tables that all databases have",
            text: concat!(
                "
ALTER TABLE import_jobs RENAME TO old_jobs;
ALTER TABLE import_records RENAME TO old_records;
ALTER TABLE import_journal RENAME TO old_journal;
ALTER TABLE import_slices RENAME TO old_slices;
DROP INDEX import_jobs_by_key;
DROP INDEX import_jobs_unfinished;
DROP INDEX import_records_by_id;
",
                tables!(),
                "
INSERT INTO import_counters SELECT 'job', coalesce(max(number), 0) FROM old_jobs;
INSERT INTO import_tenants SELECT tenant, 1, 0, sum(records_done), sum(records_rejected),
    sum(bytes_done), max(updated_ms) FROM old_jobs GROUP BY tenant;
INSERT INTO import_jobs SELECT number, id, tenant, name, format, 'bulk', 'both', topic,
    CASE WHEN key_field IS NULL THEN '{}' ELSE json_object('id', key_field) END,
    slice_records, idempotency_key, NULL, NULL, NULL, 0, state, producer_id, partition_number,
    records_total, records_done, records_done, 0, 0, records_rejected, records_done, bytes_total,
    bytes_done, next_ordinal, slices_done, NULL, 0, 0, created_ms, updated_ms, error FROM old_jobs;
INSERT INTO import_records SELECT tenant, id, NULL, format, title, NULL, body, job, ordinal, NULL, 1
    FROM old_records;
INSERT INTO import_journal SELECT job, ordinal, kind, position, reason, NULL FROM old_journal;
INSERT INTO import_slices SELECT job, start, finish, first_ordinal, records, rejected,
    partition_number, base_offset, committed_ms FROM old_slices;
INSERT INTO import_index_queue SELECT tenant, job, min(ordinal), max(ordinal), 0 FROM old_records
    GROUP BY tenant, job;
DROP TABLE old_jobs;
DROP TABLE old_records;
DROP TABLE old_journal;
DROP TABLE old_slices;
"
            ),
        },
        Migration {
            number: 3,
            name: "one column to match by",
            text: match_keys!(),
        },
        Migration {
            number: 4,
            name: "keys of every selector",
            text: concat!(selectors_and_keys!(" WITHOUT ROWID"), no_match_key!()),
        },
        NODES,
        PURGES,
    ],
};

const POSTGRES: Schema = Schema {
    name: "imports",
    oldest: 4,
    migrations: &[
        NOTHING,
        TABLES,
        Migration {
            number: 3,
            name: "one column to match by, and texts that take less time to store",
            text: concat!(
                match_keys!(),
                "
DO $$ BEGIN EXECUTE 'ALTER TABLE import_records ALTER COLUMN body SET COMPRESSION lz4';
EXCEPTION WHEN OTHERS THEN NULL; END $$;
"
            ),
        },
        Migration {
            number: 4,
            name: "keys of every selector",
            text: concat!(selectors_and_keys!(""), no_match_key!()),
        },
        NODES,
        PURGES,
    ],
};

/// A column that is not read any more stays there: a migration that broke off is begun again, and
/// dropping it twice fails.
const MYSQL: Schema = Schema {
    name: "imports",
    oldest: 4,
    migrations: &[
        NOTHING,
        TABLES,
        Migration {
            number: 3,
            name: "one column to match by",
            text: "
ALTER TABLE import_records ADD COLUMN match_key VARCHAR(1100);
UPDATE import_records SET match_key = CONCAT(tenant, '/', match_value)
    WHERE match_value IS NOT NULL;
CREATE INDEX import_records_by_match_key ON import_records (match_key);
",
        },
        Migration {
            number: 4,
            name: "keys of every selector",
            text: selectors_and_keys!(""),
        },
        NODES,
        PURGES,
    ],
};

const PURGES: Migration = Migration {
    number: 6,
    name: "purges that search indexes follow",
    text: "
CREATE TABLE import_purges (
    tenant VARCHAR(63) NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL
);
",
};

const NODES: Migration = Migration {
    number: 5,
    name: "when each process was last there",
    text: "
CREATE TABLE import_nodes (
    node VARCHAR(64) NOT NULL PRIMARY KEY,
    seen_ms BIGINT NOT NULL
);
",
};

const NOTHING: Migration = Migration {
    number: 1,
    name: "nothing: the first version was on files alone",
    text: "SELECT 1;\n",
};

const TABLES: Migration = Migration {
    number: 2,
    name: "tables that all databases have",
    text: tables!(),
};

#[cfg(test)]
mod tests {
    use sql::{Database, Options, Place, Statement};

    use super::*;
    use crate::registry::Registry;

    const FIRST: Schema = Schema {
        oldest: 1,
        migrations: FILE.migrations.split_at(1).0,
        ..FILE
    };

    #[tokio::test]
    async fn a_file_of_the_first_version_keeps_its_jobs_and_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imports.db");
        let old = Database::open_file(&path, Options::default(), &FIRST)
            .await
            .unwrap();
        for text in [
            "INSERT INTO import_jobs (id, tenant, name, format, topic, key_field, slice_records,
             idempotency_key, state, producer_id, records_total, records_done, records_rejected,
             bytes_total, bytes_done, next_ordinal, slices_done, created_ms, updated_ms)
             VALUES ('j', 't', 'n', 'jsonl', 'x', 'id', 250, 'k', 'running', 7, 9, 2, 1, 90, 30, 4, 1, 5, 6)",
            "INSERT INTO import_records VALUES ('t', 'a', 'jsonl', 'A', '{}', 1, 1)",
            "INSERT INTO import_records VALUES ('t', 'b', 'jsonl', NULL, '{}', 1, 2)",
            "INSERT INTO import_journal VALUES (1, 3, 20, 'rejected', 'not JSON')",
            "INSERT INTO import_slices VALUES (1, 0, 30, 1, 2, 1, 0, 0, 6)",
        ] {
            old.run("fill", &Statement::new(text)).await.unwrap();
        }
        old.close().await;
        let registry = Registry::open(&Place::File(path)).await.unwrap();
        let job = registry.job("j").await.unwrap();
        assert_eq!(job.profile.id.as_deref(), Some("id"));
        assert_eq!(
            (job.records_done, job.records_sent, job.bytes_done),
            (2, 2, 30)
        );
        assert_eq!(job.producer.id, 7);
        let journal = registry.journal(job.number, 0, 10).await.unwrap();
        assert_eq!((journal.len(), journal[0].offset), (1, 20));
        assert_eq!(registry.queued_count().await.unwrap(), 1);
        let tenants = registry.tenants("", 10).await.unwrap();
        assert_eq!((tenants[0].records_done, tenants[0].weight), (2, 1));
        registry.close().await;
    }

    const THIRD: Schema = Schema {
        oldest: 3,
        migrations: FILE.migrations.split_at(3).0,
        ..FILE
    };

    #[tokio::test]
    async fn records_of_the_third_version_are_found_by_what_their_bodies_have() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imports.db");
        let old = Database::open_file(&path, Options::default(), &THIRD)
            .await
            .unwrap();
        let tenant = "INSERT INTO import_tenants VALUES ('t', 1, 0, 0, 0, 0, 0)";
        old.run("fill", &Statement::new(tenant)).await.unwrap();
        // Of a profile that matched by ISBN, of one that matched by something else, and of none.
        for (id, key) in [("a", "'t/1'"), ("b", "'t/x'"), ("c", "NULL")] {
            let text = format!(
                "INSERT INTO import_records (tenant, id, match_key, format, body, job, ordinal,
                 version) VALUES ('t', '{id}', {key}, 'jsonl', '{{\"isbn\":[1,\"{id}\"]}}', 1, 1, 1)"
            );
            old.run("fill", &Statement::new(text)).await.unwrap();
        }
        old.close().await;
        let registry = Registry::open(&Place::File(path)).await.unwrap();
        let tenant = "t".parse().unwrap();
        assert!(registry.selectors(&tenant).await.unwrap().is_empty());
        while !registry.prepare_selector(&tenant, "isbn").await.unwrap() {}
        let read = Statement::new("SELECT match_key, id FROM import_keys ORDER BY match_key, id");
        let rows = registry.database.rows("read", &read).await.unwrap();
        let key = |row: &sql::Row| (row.text("match_key").unwrap(), row.text("id").unwrap());
        let keys: Vec<_> = rows.iter().map(key).collect();
        let of = |value: &str, id: &str| (format!("t/1/{value}"), id.to_owned());
        let alike = ["a", "b", "c"];
        let expected = alike.map(|id| of("1", id)).into_iter();
        let expected = expected.chain(alike.map(|id| of(id, id)));
        assert_eq!(keys, expected.collect::<Vec<_>>());
        registry.close().await;
    }
}
