//! kill -9 of the server and of its PostgreSQL at random instants while tenants import: the jobs go
//! on by themselves, progress is what SQL counts at every look, and in the end table and topic have
//! what the file has, once.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::Rng;
use serde_json::Value;
use sql::test_servers::Server;
use sql::{Database, Dialect, Options, Place, Schema, Statement};

use crate::harness::{Up, folder, http_client, number_of};
use crate::imports_marc::part;

/// Records of each tenant; more by hand with `THALWEG_TEST_IMPORT_RECORDS=20000`.
const RECORDS: u64 = 3_000;

/// Kills, of the server and of PostgreSQL in turn; more by hand with `THALWEG_TEST_IMPORT_KILLS=50`.
const KILLS: u64 = 6;

/// How soon the jobs go on by themselves.
const SOON: Duration = Duration::from_secs(10);

const TENANTS: [&str; 2] = ["one", "two"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_instants_server_and_postgres_end_with_the_files_records() {
    let records = number_of("THALWEG_TEST_IMPORT_RECORDS", RECORDS) as usize;
    let kills = number_of("THALWEG_TEST_IMPORT_KILLS", KILLS);
    let seed = number_of("THALWEG_TEST_IMPORT_SEED", std::process::id().into());
    println!("seed {seed}");
    let mut rng = Rng::from_seed(seed);
    let dir = folder();
    let file = part(dir.path(), 0, records);
    let mut server = Server::start(Dialect::Postgres);
    let address = server.new_database().await;
    // Small slices: more instants between one commit and the next.
    let settings = [
        "--set".to_owned(),
        format!("imports.database={address}"),
        "--set".to_owned(),
        "imports.slice_records=25".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut up = Up::start_with(&dir.path().join("data"), &settings);
    let sql = Arc::new(Sql::open(&address, dir.path()).await);
    let over = Arc::new(AtomicBool::new(false));
    let watching = tokio::spawn(watch(sql.clone(), up.url("management", ""), over.clone()));
    let mut round = 0;
    let mut topics = Vec::new();
    let mut kill = 0;
    while kill < kills {
        // Once more with other tenants, as long as there is to be killed.
        round += 1;
        for tenant in TENANTS {
            let tenant = format!("{tenant}-{round}");
            let file = file.to_str().unwrap();
            up.cli_json(&["import", file, "--tenant", &tenant, "--no-wait"]);
            topics.push(format!("imports-{tenant}"));
        }
        while kill < kills && sql.running().await > 0 {
            tokio::time::sleep(Duration::from_millis(rng.below(400))).await;
            if sql.running().await == 0 {
                break;
            }
            let before = sql.done().await;
            if kill % 2 == 0 {
                up.kill();
                up = up.start_again(&settings);
            } else {
                server.kill();
                server.start_again();
            }
            kill += 1;
            let since = Instant::now();
            while sql.running().await > 0 && sql.done().await <= before {
                assert!(since.elapsed() < SOON, "kill {kill}: the jobs do not go on");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let until = Instant::now() + Duration::from_secs(120);
        while sql.running().await > 0 {
            assert!(Instant::now() < until, "the jobs do not end");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    over.store(true, Ordering::Relaxed);
    let looks = watching.await.unwrap();
    assert!(looks > kills, "{looks} looks");
    for job in up.get("/api/v1/imports")["jobs"].as_array().unwrap() {
        assert_eq!(job["state"], "completed", "{job}");
        assert_eq!(job["records_done"], records, "{job}");
    }
    let wanted = ids_of(&file);
    assert_eq!(wanted.len(), records);
    for topic in topics {
        let tenant = topic.strip_prefix("imports-").unwrap();
        assert_eq!(sql.ids(tenant).await, wanted, "{tenant}");
        assert_eq!(up.records_in(&topic), records as u64, "{topic}");
    }
}

/// Compares what the API tells with what SQL counts, until it is over; answers how often.
async fn watch(sql: Arc<Sql>, server: String, over: Arc<AtomicBool>) -> u64 {
    let client = http_client();
    let (mut looks, mut seen) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let before = sql.done().await;
        assert!(before >= seen, "progress fell from {seen} to {before}");
        let told = told(&client, &server).await;
        seen = sql.done().await;
        // While one of the two is down nothing is told.
        if let Some(told) = told {
            assert!(
                (before..=seen).contains(&told),
                "{told} is not {before} to {seen}"
            );
            looks += 1;
        }
    }
    looks
}

/// The records that all jobs have done by the API's word; none while it has no word.
async fn told(client: &reqwest::Client, server: &str) -> Option<i64> {
    let asked = client.get(format!("{server}/api/v1/imports"));
    let answer = asked.timeout(Duration::from_secs(5)).send().await.ok()?;
    let told: Value = answer.json().await.ok()?;
    let jobs = told["jobs"].as_array()?.iter();
    jobs.map(|job| job["records_done"].as_i64()).sum()
}

/// A look at the database that is not the server's own.
struct Sql(Database);

impl Sql {
    async fn open(address: &str, folder: &Path) -> Sql {
        let place = Place::read(Some(address), folder).unwrap();
        let schema = Schema {
            name: "looks",
            oldest: 0,
            migrations: &[],
        };
        let opened = Database::open(&place, Options::default(), &schema).await;
        Sql(opened.unwrap())
    }

    /// Reads until PostgreSQL answers.
    async fn rows(&self, text: &str) -> Vec<sql::Row> {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            match self.0.rows("look", &Statement::new(text)).await {
                Ok(rows) => return rows,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn running(&self) -> i64 {
        let text = "SELECT count(*) AS n FROM import_jobs WHERE state IN ('uploading', 'running')";
        self.rows(text).await[0].number("n").unwrap()
    }

    /// What all jobs have done, after a look whether that is what is there: one statement, one
    /// instant.
    async fn done(&self) -> i64 {
        let text = "SELECT j.id, j.records_done AS done, j.records_total AS total,
            (SELECT count(*) FROM import_records r WHERE r.job = j.number) AS found
            FROM import_jobs j";
        let mut sum = 0;
        for row in self.rows(text).await {
            let n = |name| row.number(name).unwrap();
            let id = row.text("id").unwrap();
            assert_eq!(n("done"), n("found"), "job {id}");
            assert!(
                n("done") <= n("total"),
                "job {id}: {} of {}",
                n("done"),
                n("total")
            );
            sum += n("done");
        }
        sum
    }

    async fn ids(&self, tenant: &str) -> BTreeSet<String> {
        let text = format!("SELECT id FROM import_records WHERE tenant = '{tenant}'");
        let rows = self.rows(&text).await;
        rows.iter().map(|row| row.text("id").unwrap()).collect()
    }
}

/// The file's ids, each record's field 001, read by its directory.
fn ids_of(file: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(file).unwrap();
    let records = bytes
        .split(|byte| *byte == 0x1d)
        .filter(|one| !one.is_empty());
    let id = |record: &[u8]| {
        let number = |at: std::ops::Range<usize>| -> usize {
            std::str::from_utf8(&record[at]).unwrap().parse().unwrap()
        };
        let data = number(12..17);
        assert_eq!(&record[24..27], b"001");
        let (length, start) = (number(27..31), number(31..36));
        let text = &record[data + start..data + start + length - 1];
        std::str::from_utf8(text).unwrap().trim().to_owned()
    };
    records.map(id).collect()
}
