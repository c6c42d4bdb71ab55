//! The same on SQLite, PostgreSQL and MariaDB.

use std::time::Duration;

use base::report;

use super::*;
use crate::arrays;
use crate::migration::Migration;
use crate::statement::{Conflict, Insert, Lookup, Value};
use crate::test_servers::{mariadb, postgres};

const SCHEMA: Schema = Schema {
    name: "test",
    oldest: 1,
    migrations: &[Migration {
        number: 1,
        name: "people",
        text: "
CREATE TABLE people (
    name VARCHAR(255) NOT NULL PRIMARY KEY,
    age BIGINT,
    motto TEXT,
    face BLOB
);
CREATE INDEX people_age ON people (age);
",
    }],
};

const PEOPLE: Insert = Insert {
    table: "people",
    columns: &["name", "age", "motto", "face"],
    conflict: Conflict::Replace {
        key: &["name"],
        columns: &["age"],
    },
};

/// A place for each kind of database.
async fn places(folder: &Path) -> Vec<Place> {
    let file = folder.join("test.db");
    let (postgres, mariadb) = (postgres().new_database(), mariadb().new_database());
    vec![
        Place::File(file.clone()),
        Place::read(Some(&postgres.await), &file).unwrap(),
        Place::read(Some(&mariadb.await), &file).unwrap(),
    ]
}

fn person(name: &str, age: Option<i64>) -> Vec<Value> {
    let face: &[u8] = &[0, 255, 128];
    vec![name.into(), age.into(), "per aspera…".into(), face.into()]
}

#[tokio::test]
async fn rows_go_in_and_come_back_alike_on_every_database() {
    let folder = tempfile::tempdir().unwrap();
    for place in places(folder.path()).await {
        let database = Database::open(&place, Options::default(), &SCHEMA)
            .await
            .unwrap_or_else(|error| panic!("{place}: {}", report(&error)));
        let mut tx = database.begin().await.unwrap();
        let people: Vec<_> = (0..1_000)
            .map(|n| person(&format!("p{n:04}"), Some(n)))
            .collect();
        tx.insert("add people", &PEOPLE, people).await.unwrap();
        let alike = ["Edge", "edge", "edge ", "é", "日本"].map(|name| person(name, None));
        tx.insert("add people", &PEOPLE, alike.to_vec())
            .await
            .unwrap();
        tx.insert("age", &PEOPLE, vec![person("edge", Some(7))])
            .await
            .unwrap();
        tx.commit("add people").await.unwrap();

        let all = Statement::new("SELECT name, age, motto, face FROM people ORDER BY name");
        let rows = database.rows("read", &all).await.unwrap();
        let names: Vec<String> = rows.iter().map(|row| row.text("name").unwrap()).collect();
        let mut sorted = names.clone();
        sorted.sort();
        assert_eq!((names.len(), &names), (1_005, &sorted), "{place}");
        let row = &rows[names.iter().position(|name| name == "edge").unwrap()];
        assert_eq!(row.maybe_number("age").unwrap(), Some(7), "{place}");
        assert_eq!(row.text("motto").unwrap(), "per aspera…");
        assert_eq!(row.bytes("face").unwrap(), [0, 255, 128]);
        let other = &rows[names.iter().position(|name| name == "Edge").unwrap()];
        assert_eq!(other.maybe_number("age").unwrap(), None, "{place}");

        let change = Statement::new("UPDATE people SET motto = ? WHERE name IN ")
            .bind(None::<&str>)
            .list(["edge", "edge ", "nobody"]);
        assert_eq!(database.run("change", &change).await.unwrap(), 2, "{place}");
        let sum = Statement::new("SELECT COUNT(*) AS n, MAX(age) AS oldest FROM people");
        let row = database.row("count", &sum).await.unwrap().unwrap();
        assert_eq!(
            (row.number("n").unwrap(), row.number("oldest").unwrap()),
            (1_005, 999)
        );
        let off = SystemClock.now().0 - database.now_ms().await.unwrap();
        assert!(off.abs() < 60_000, "{place}: {off}");
        database.close().await;
    }
}

const INDEXED: Schema = Schema {
    name: "indexed",
    oldest: 1,
    migrations: &[Migration {
        number: 1,
        name: "records",
        text: "
CREATE TABLE records (
    tenant VARCHAR(63) NOT NULL,
    id VARCHAR(255) NOT NULL,
    other VARCHAR(255),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX records_other ON records (other);
",
    }],
};

const RECORDS: Insert = Insert {
    table: "records",
    columns: &["tenant", "id", "other"],
    conflict: Conflict::Fail,
};

const BY_ID: Lookup = Lookup {
    table: "records",
    columns: &["id", "other"],
    among: "id",
    of: Some("tenant"),
};

const BY_OTHER: Lookup = Lookup {
    among: "other",
    of: None,
    ..BY_ID
};

#[tokio::test]
async fn a_lookup_finds_the_same_on_every_database() {
    let folder = tempfile::tempdir().unwrap();
    for place in places(folder.path()).await {
        let database = Database::open(&place, Options::default(), &INDEXED)
            .await
            .unwrap();
        let mut tx = database.begin().await.unwrap();
        let record = |tenant: &str, n: i64| {
            let (id, other) = (format!("{n:05}"), format!("{}", n % 1_000));
            vec![Value::from(tenant), id.into(), other.into()]
        };
        let records = (0..5_000).map(|n| record("t", n));
        let records = records.chain((0..10).map(|n| record("u", n)));
        tx.insert("add", &RECORDS, records.collect()).await.unwrap();
        let wanted = ["00003", "04999", "0000", "5", "T", "\0", "00007"];
        let wanted = wanted.map(str::to_owned).to_vec();
        let mut found = async |by: &Lookup, of: &str| {
            let found = tx.look_up("find", by, of, wanted.clone()).await.unwrap();
            let mut found: Vec<_> = found.iter().map(|row| row.text("id").unwrap()).collect();
            found.sort();
            found
        };
        assert_eq!(
            found(&BY_ID, "t").await,
            ["00003", "00007", "04999"],
            "{place}"
        );
        assert_eq!(found(&BY_ID, "u").await, ["00003", "00007"], "{place}");
        let fives = ["00005", "00005", "01005", "02005", "03005", "04005"];
        assert_eq!(found(&BY_OTHER, "").await, fives, "{place}");
        if tx.dialect() == Dialect::Postgres {
            is_by_the_index(&mut tx, &BY_ID, "l ('{a,b}', 't')").await;
            is_by_the_index(&mut tx, &BY_OTHER, "l ('{a,b}')").await;
        }
        drop(tx);
        database.close().await;
    }
}

/// The server knows nothing of the table yet, and plans once for all values.
async fn is_by_the_index(tx: &mut Transaction, by: &Lookup, call: &str) {
    let prepare = format!("PREPARE l AS {}", arrays::lookup(by));
    for text in ["SET LOCAL plan_cache_mode = force_generic_plan", &prepare] {
        tx.run("plan", &Statement::new(text)).await.unwrap();
    }
    let explain = Statement::new(format!("EXPLAIN EXECUTE {call}"));
    let plan = tx.rows("plan", &explain).await.unwrap();
    let plan: Vec<String> = plan
        .iter()
        .map(|row| row.text("QUERY PLAN").unwrap())
        .collect();
    let index = plan.iter().find(|line| line.contains("Index Cond"));
    assert!(index.is_some_and(|line| line.contains("value")), "{plan:?}");
    assert!(!plan.join(" ").contains("Filter"), "{plan:?}");
    tx.run("plan", &Statement::new("DEALLOCATE l"))
        .await
        .unwrap();
}

#[tokio::test]
async fn many_nodes_start_on_one_empty_database_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for place in places(folder.path()).await {
        let open = (0..6).map(|_| {
            let place = place.clone();
            tokio::spawn(async move { Database::open(&place, Options::default(), &SCHEMA).await })
        });
        for opened in open.collect::<Vec<_>>() {
            let opened = opened.await.unwrap();
            let database = opened.unwrap_or_else(|e| panic!("{place}: {}", report(&e)));
            database.close().await;
        }
    }
}

#[tokio::test]
async fn statements_that_run_together_tell_what_each_found_on_every_database() {
    let folder = tempfile::tempdir().unwrap();
    for place in places(folder.path()).await {
        let database = Database::open(&place, Options::default(), &SCHEMA)
            .await
            .unwrap();
        let mut tx = database.begin().await.unwrap();
        let all = [("Ada", 36), ("Bob", 7), ("Eve", 9)];
        let all = all.map(|(name, age)| person(name, Some(age)));
        tx.insert("add people", &PEOPLE, all.to_vec())
            .await
            .unwrap();
        let older = Statement::new("UPDATE people SET age = age + ? WHERE name <> ?");
        let nobody = Statement::new("DELETE FROM people WHERE name = ?").bind("nobody");
        let statements = vec![
            older.bind(1).bind("Eve"),
            nobody,
            tx.dialect()
                .insert(&PEOPLE, vec![person("Mia", None), person("Zoe", Some(1))]),
        ];
        let found = tx.run_together("change people", statements).await.unwrap();
        assert_eq!(found, [2, 0, 2], "{place}");
        tx.commit("change people").await.unwrap();
        let all = Statement::new("SELECT name, age FROM people ORDER BY name");
        let rows = database.rows("read", &all).await.unwrap();
        let ages: Vec<_> = rows
            .iter()
            .map(|row| row.maybe_number("age").unwrap())
            .collect();
        assert_eq!(ages, [Some(37), Some(8), Some(9), None, Some(1)], "{place}");
    }
}

#[tokio::test]
async fn rows_that_replace_others_tell_how_many_were_there_on_every_database() {
    let folder = tempfile::tempdir().unwrap();
    for place in places(folder.path()).await {
        let database = Database::open(&place, Options::default(), &INDEXED)
            .await
            .unwrap();
        let into = Insert {
            conflict: Conflict::Replace {
                key: &["tenant", "id"],
                columns: &["other"],
            },
            ..RECORDS
        };
        let record = |tenant: &str, id: &str, other: &str| {
            vec![Value::from(tenant), id.into(), other.into()]
        };
        let mut tx = database.begin().await.unwrap();
        for (rows, expected) in [
            (vec![record("t", "1", "a"), record("t", "2", "a")], 0),
            (vec![record("u", "1", "a")], 0),
            (
                vec![
                    record("t", "3", "b"),
                    record("t", "2", "b"),
                    record("t", "1", "b"),
                ],
                2,
            ),
            (Vec::new(), 0),
        ] {
            let there = tx.replace("put", &into, &BY_ID, rows).await.unwrap();
            assert_eq!(there, expected, "{place}");
        }
        let all = Statement::new("SELECT other FROM records ORDER BY tenant, id");
        let rows = tx.rows("read", &all).await.unwrap();
        let others: Vec<_> = rows.iter().map(|row| row.text("other").unwrap()).collect();
        assert_eq!(others, ["b", "b", "b", "a"], "{place}");
        drop(tx);
        database.close().await;
    }
}

#[tokio::test]
async fn a_double_key_is_told_apart_on_every_database() {
    let folder = tempfile::tempdir().unwrap();
    for place in places(folder.path()).await {
        let database = Database::open(&place, Options::default(), &SCHEMA)
            .await
            .unwrap();
        let add = Statement::new("INSERT INTO people (name) VALUES (?)").bind("Ada");
        database.run("add", &add).await.unwrap();
        let error = database.run("add", &add).await.unwrap_err();
        assert!(
            error.is_unique_violation() && !error.may_retry(),
            "{place}: {error}"
        );
    }
}

#[tokio::test]
async fn a_server_that_dies_is_named_and_found_again() {
    for dialect in [Dialect::Postgres, Dialect::MySql] {
        let mut server = crate::test_servers::Server::start(dialect);
        let place = Place::read(Some(&server.new_database().await), Path::new("x")).unwrap();
        let database = Database::open(&place, Options::default(), &SCHEMA)
            .await
            .unwrap();
        let add = |name: &str| Statement::new("INSERT INTO people (name) VALUES (?)").bind(name);
        database.run("add", &add("before")).await.unwrap();
        server.kill();
        let error = database.run("add", &add("away")).await.unwrap_err();
        assert!(error.may_retry(), "{place}: {}", report(&error));
        assert!(!report(&error).contains("not-a-secret"));
        server.start_again();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while let Err(error) = database.run("add", &add("after")).await {
            assert!(error.may_retry(), "{place}: {}", report(&error));
            assert!(
                std::time::Instant::now() < until,
                "{place}: {}",
                report(&error)
            );
        }
        let all = Statement::new("SELECT name FROM people ORDER BY name");
        let rows = database.rows("read", &all).await.unwrap();
        assert!(rows.len() >= 2, "{place}: what was committed is there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_given_up_leave_the_next_ones_alone() {
    let folder = tempfile::tempdir().unwrap();
    for place in places(folder.path()).await {
        let database = Database::open(&place, Options::default(), &SCHEMA)
            .await
            .unwrap();
        let lock = match database.dialect() {
            // A file's readers wait for nobody.
            Dialect::Sqlite => continue,
            Dialect::Postgres => "LOCK TABLE people IN ACCESS EXCLUSIVE MODE",
            Dialect::MySql => "LOCK TABLES people WRITE",
        };
        let mut holder = database.begin().await.unwrap();
        holder.run_raw("lock", lock.to_owned()).await.unwrap();
        // Each has a text of its own, so that the server is asked to prepare it, and waits there.
        for n in 0..4 {
            let select = Statement::new(format!("SELECT COUNT(*) + {n} AS n FROM people"));
            let call = async {
                let mut tx = database.begin().await.unwrap();
                tx.rows("look", &select).await
            };
            let given_up = tokio::time::timeout(Duration::from_millis(100), call).await;
            assert!(given_up.is_err(), "{place}: the table was not locked");
            let call = database.rows("look", &select);
            let given_up = tokio::time::timeout(Duration::from_millis(100), call).await;
            assert!(given_up.is_err(), "{place}: the table was not locked");
        }
        drop(holder);
        for n in 0..40 {
            let select = Statement::new(format!("SELECT COUNT(*) + {n} AS n FROM people"));
            let row = database.row("look again", &select).await;
            let row = row.unwrap_or_else(|error| panic!("{place}: {}", report(&error)));
            assert_eq!(row.unwrap().number("n").unwrap(), n, "{place}");
        }
    }
}
