//! Statements that write to tables of SQL databases, on each kind of database.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sql::test_servers::Server;
use sql::{Database, Dialect, Options, Place, Schema, Statement};

use crate::harness::{Up, eventually, folder, post};

const NOTHING: Schema = Schema {
    name: "test",
    oldest: 0,
    migrations: &[],
};

const RECORDS: u64 = 3_000;

async fn open(address: &str, data: &Path) -> Database {
    let options = Options {
        readers: 2,
        durable: false,
    };
    let place = match address.strip_prefix("sqlite:") {
        Some(file) => Place::File(data.join(file)),
        None => Place::read(Some(address), data).unwrap(),
    };
    Database::open(&place, options, &NOTHING).await.unwrap()
}

async fn count(database: &Database, query: &str) -> i64 {
    let row = database.row("count", &Statement::new(query)).await.unwrap();
    row.unwrap().number("n").unwrap()
}

fn produce(up: &Up, from: u64, to: u64) {
    let records: Vec<Value> = (from..to)
        .map(|n| json!({"value": {"id": n, "k": n % 100, "v": n as f64 / 4.0, "text": format!("é{n}"), "ok": n % 2 == 0, "none": null}}))
        .collect();
    let body = json!({"records": records}).to_string();
    let json = "application/vnd.kafka.json.v2+json";
    let answer = post(&up.url("rest", "/topics/raw"), json, &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
}

async fn rows_stand_once_in_tables_over_kills(dialect: Dialect) {
    let dir = folder();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let server = (dialect != Dialect::Sqlite).then(|| Server::start(dialect));
    let address = match &server {
        Some(server) => server.new_database().await,
        None => "sqlite:tables.db".to_owned(),
    };
    let database = open(&address, &data).await;
    for table in [
        "CREATE TABLE added (id BIGINT, v DOUBLE PRECISION, text VARCHAR(20), ok BOOLEAN, none BIGINT)",
        "CREATE TABLE latest (k BIGINT PRIMARY KEY, id BIGINT)",
        "CREATE TABLE narrow (id BIGINT CHECK (id < 10))",
    ] {
        database
            .run("make a table", &Statement::new(table))
            .await
            .unwrap();
    }
    let setting = format!("databases.main={address}");
    let set = [
        "--set",
        setting.as_str(),
        "--set",
        "fusion.checkpoint_interval=50ms",
    ];
    let mut up = Up::start_with(&data, &set);
    produce(&up, 0, 1);
    for (name, target, text) in [
        (
            "added",
            "sql@main:added",
            "SELECT id, v, text, ok, none FROM kafka.raw",
        ),
        (
            "latest",
            "sql@main:latest?key=k",
            "SELECT k, id FROM kafka.raw",
        ),
        ("narrow", "sql@main:narrow", "SELECT id FROM kafka.raw"),
    ] {
        let added = up.cli_json(&[
            "statements",
            "add",
            "--name",
            name,
            "--start",
            "earliest",
            "--target",
            target,
            text,
        ]);
        assert_eq!(added["status"], "running", "{added}");
    }
    let missing = up.cli(&[
        "statements",
        "add",
        "--target",
        "sql@other:t",
        "SELECT id FROM kafka.raw",
    ]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains("[databases] names main"), "{said}");
    let wrong = up.cli(&[
        "statements",
        "add",
        "--target",
        "sql@main:t?key=x",
        "SELECT id FROM kafka.raw",
    ]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("the key 'x' is no column"), "{said}");
    let mut next = 1;
    for kill in 0..6 {
        let to = if kill == 5 { RECORDS } else { next + 300 };
        for from in (next..to).step_by(100) {
            produce(&up, from, to.min(from + 100));
        }
        next = to;
        if kill < 5 {
            // In the middle of what it writes, at another place each time.
            tokio::time::sleep(Duration::from_millis(15 * kill)).await;
            up.kill();
            up = up.start_again(&set);
        }
    }
    eventually("all rows are emitted", || {
        let statement = up.get("/api/v1/statements/added");
        (statement["emitted_total"] == RECORDS).then_some(())
    });
    eventually("all keys are written", || {
        (up.get("/api/v1/statements/latest")["emitted_total"] == RECORDS).then_some(())
    });
    for (query, expected) in [
        ("SELECT COUNT(*) AS n FROM added", RECORDS as i64),
        ("SELECT COUNT(DISTINCT id) AS n FROM added", RECORDS as i64),
        (
            "SELECT COUNT(*) AS n FROM added WHERE none IS NULL AND v * 4 = id",
            RECORDS as i64,
        ),
        (
            "SELECT COUNT(*) AS n FROM added WHERE ok",
            RECORDS as i64 / 2,
        ),
        (
            "SELECT COUNT(*) AS n FROM added WHERE id = 7 AND text = 'é7'",
            1,
        ),
        ("SELECT COUNT(*) AS n FROM latest", 100),
        ("SELECT COUNT(*) AS n FROM latest WHERE id >= 2900", 100),
        ("SELECT COUNT(*) AS n FROM narrow", 10),
    ] {
        assert_eq!(count(&database, query).await, expected, "{query}");
    }
    // What the table refuses is given up, and said.
    let narrow = eventually("all rows are settled", || {
        let narrow = up.get("/api/v1/statements/narrow");
        (narrow["dropped_total"] == RECORDS - 10).then_some(narrow)
    });
    assert_eq!(narrow["emitted_total"], 10, "{narrow}");
    let error = narrow["error"].as_str().unwrap_or_default();
    assert!(
        error.contains("cannot write a row to sql@main:narrow"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_stand_once_in_tables_of_sqlite() {
    rows_stand_once_in_tables_over_kills(Dialect::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_stand_once_in_tables_of_postgresql() {
    rows_stand_once_in_tables_over_kills(Dialect::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_stand_once_in_tables_of_mariadb() {
    rows_stand_once_in_tables_over_kills(Dialect::MySql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_holds_its_statement_back() {
    let dir = folder();
    let data = dir.path().join("data");
    let mut server = Server::start(Dialect::Postgres);
    let address = server.new_database().await;
    let database = open(&address, &data).await;
    let table = Statement::new("CREATE TABLE t (id BIGINT)");
    database.run("make a table", &table).await.unwrap();
    let setting = format!("databases.main={address}");
    let up = Up::start_with(&data, &["--set", &setting]);
    produce(&up, 0, 10);
    let text = "SELECT id FROM kafka.raw";
    up.cli_json(&[
        "statements",
        "add",
        "--name",
        "s",
        "--start",
        "earliest",
        "--target",
        "sql@main:t",
        text,
    ]);
    eventually("the first are there", || {
        (up.get("/api/v1/statements/s")["emitted_total"] == 10).then_some(())
    });
    server.kill();
    produce(&up, 10, 20);
    let error = eventually("the statement says what it waits for", || {
        let statement = up.get("/api/v1/statements/s");
        let error = statement["error"].as_str()?.to_owned();
        error
            .contains("cannot write to sql@main:t")
            .then_some(error)
    });
    assert!(!error.contains("fleet:"), "no password in {error}");
    server.start_again();
    eventually("the others are there", || {
        (up.get("/api/v1/statements/s")["emitted_total"] == 20).then_some(())
    });
    assert_eq!(count(&database, "SELECT COUNT(*) AS n FROM t").await, 20);
}
