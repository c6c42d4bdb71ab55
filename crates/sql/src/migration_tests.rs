//! Processes of several versions on one database, on SQLite, PostgreSQL and MariaDB.

use std::path::Path;

use base::report;

use super::*;
use crate::dialect::Dialect;
use crate::place::Place;
use crate::sqlite::Options;
use crate::test_servers::{mariadb, postgres};

const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "people",
        text: "
CREATE TABLE people (name VARCHAR(255) NOT NULL PRIMARY KEY, age BIGINT);
INSERT INTO people (name, age) VALUES ('Ada', 36);
CREATE INDEX people_age ON people (age);
",
    },
    Migration {
        number: 2,
        name: "a column and a table",
        text: "
ALTER TABLE people ADD COLUMN motto VARCHAR(255) NOT NULL DEFAULT '';
CREATE TABLE pets (name VARCHAR(255) NOT NULL PRIMARY KEY);
INSERT INTO pets (name) VALUES ('Rex');
CREATE INDEX people_motto ON people (motto);
",
    },
    Migration {
        number: 3,
        name: "what older ones cannot bear",
        text: "ALTER TABLE people RENAME TO persons;",
    },
];

/// The schema as the version `number` has it.
fn version(number: usize, oldest: i64) -> Schema {
    Schema {
        name: "test",
        oldest,
        migrations: &MIGRATIONS[..number],
    }
}

async fn places(folder: &Path) -> Vec<Place> {
    let mut places = vec![Place::File(folder.join("test.db"))];
    places.extend(server_places().await);
    places
}

async fn server_places() -> [Place; 2] {
    let (postgres, mariadb) = (postgres().new_database(), mariadb().new_database());
    let read = |url: String| Place::read(Some(&url), Path::new("unused")).unwrap();
    [read(postgres.await), read(mariadb.await)]
}

async fn open(place: &Place, schema: &Schema) -> Result<Database, SqlError> {
    Database::open(place, Options::default(), schema).await
}

#[tokio::test]
async fn a_binary_takes_a_newer_schema_that_is_declared_fit_for_it() {
    let folder = tempfile::tempdir().unwrap();
    for place in places(folder.path()).await {
        let [old, new, newest] = [version(1, 1), version(2, 1), version(3, 3)];
        let told = |error: SqlError| format!("{place}: {}", report(&error));
        open(&place, &old)
            .await
            .map_err(told)
            .unwrap()
            .close()
            .await;
        open(&place, &new)
            .await
            .map_err(told)
            .unwrap()
            .close()
            .await;
        let again = open(&place, &old).await.map_err(told).unwrap();
        let add = Statement::new("INSERT INTO people (name, age) VALUES (?, ?)");
        again
            .run("add", &add.bind("Bob").bind(7_i64))
            .await
            .unwrap();
        again.close().await;

        open(&place, &newest)
            .await
            .map_err(told)
            .unwrap()
            .close()
            .await;
        for (known, schema) in [(1, old), (2, new)] {
            let refused = open(&place, &schema).await.err();
            assert!(
                matches!(&refused, Some(SqlError::NewerSchema { found: 3, known: k, .. }) if *k == known),
                "{place}: {refused:?}"
            );
        }
        open(&place, &newest)
            .await
            .map_err(told)
            .unwrap()
            .close()
            .await;
    }
}

/// MySQL commits each statement of a migration, so that a process that was killed leaves half of one.
#[tokio::test]
async fn a_migration_that_broke_off_anywhere_is_taken_up_there() {
    let text = Dialect::MySql.schema(MIGRATIONS[1].text);
    let statements: Vec<&str> = text
        .split(";\n")
        .filter(|text| !text.trim().is_empty())
        .collect();
    for done in 0..=statements.len() {
        let url = mariadb().new_database().await;
        let place = Place::read(Some(&url), Path::new("unused")).unwrap();
        let database = open(&place, &version(1, 1)).await.unwrap();
        for statement in &statements[..done] {
            let statement = Statement::new(*statement);
            database.run("half a migration", &statement).await.unwrap();
        }
        let applied = database.migrate(&version(2, 1)).await;
        let applied = applied.unwrap_or_else(|e| panic!("after {done}: {}", report(&e)));
        assert_eq!(applied, 1, "after {done}");
        let count = Statement::new("SELECT COUNT(*) AS n FROM pets");
        let row = database.row("count", &count).await.unwrap().unwrap();
        assert_eq!(row.number("n").unwrap(), 1, "after {done}");
        database.close().await;
    }
}

/// One transaction has looked at the table and stays; the migration waits for it, and others pass.
#[tokio::test]
async fn who_uses_a_table_is_not_held_up_by_a_migration_that_waits_for_it() {
    for place in server_places().await {
        let database = open(&place, &version(1, 1)).await.unwrap();
        let look = Statement::new("SELECT COUNT(*) AS n FROM people");
        let mut holder = database.begin().await.unwrap();
        holder.rows("look", &look).await.unwrap();
        let other = database.clone();
        let migrating = tokio::spawn(async move { other.migrate(&version(2, 1)).await });
        // Each look ends while the first one goes on.
        for _ in 0..5 {
            let rows = database.rows("look", &look).await;
            rows.unwrap_or_else(|error| panic!("{place}: {}", report(&error)));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(!migrating.is_finished(), "{place}: the table was not held");
        holder.commit("end the look").await.unwrap();
        assert_eq!(migrating.await.unwrap().unwrap(), 1, "{place}");
        database.close().await;
    }
}

/// While one process is in the middle of a migration, another one waits for its turn.
#[tokio::test]
async fn one_process_migrates_at_a_time() {
    for place in server_places().await {
        let database = open(&place, &version(1, 1)).await.unwrap();
        let mut first = database.begin().await.unwrap();
        assert!(first.lock_migrations().await.unwrap(), "{place}");
        let mut second = database.begin().await.unwrap();
        assert!(!second.lock_migrations().await.unwrap(), "{place}");
        second.unlock().await;
        let other = database.clone();
        let waiting = tokio::spawn(async move { other.migrate(&version(2, 1)).await });
        for _ in 0..10 {
            tokio::time::sleep(PAUSE).await;
            assert!(!waiting.is_finished(), "{place}");
        }
        first.unlock().await;
        assert_eq!(waiting.await.unwrap().unwrap(), 1, "{place}");
        database.close().await;
    }
}

/// A process that runs while its schema goes out of its reach writes nothing more, and says why.
#[tokio::test]
async fn who_is_left_behind_while_running_writes_no_more() {
    for place in server_places().await {
        let [old, new, newest] = [version(1, 1), version(2, 1), version(3, 3)];
        let running = open(&place, &old).await.unwrap();
        open(&place, &new).await.unwrap().close().await;
        running.still_fits(&[old]).await.unwrap();
        running
            .begin()
            .await
            .unwrap()
            .commit("nothing")
            .await
            .unwrap();
        open(&place, &newest).await.unwrap().close().await;
        let told = running.still_fits(&[old]).await.unwrap_err();
        assert!(
            matches!(told, SqlError::NewerSchema { .. }),
            "{place}: {told}"
        );
        let refused = running.begin().await.err();
        assert!(
            matches!(&refused, Some(error) if error.to_string() == told.to_string()),
            "{place}: {refused:?}"
        );
        running.close().await;
    }
}
