//! The search index beside PostgreSQL's own: the same counts for the same words, and a neighbour's
//! edit found soon while somebody imports much.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sql::test_servers::postgres;
use sql::{Database, Options, Place, Schema, Statement};

use crate::harness::{Up, folder, number_of, post};
use crate::imports_marc::part;

/// Records that are searched; more by hand with `THALWEG_TEST_IMPORT_RECORDS=25000`.
const RECORDS: u64 = 5_000;

/// Edits of the neighbour's.
const EDITS: usize = 40;

/// How soon an edit must be found, at the 95th percentile.
const SOON: Duration = Duration::from_secs(2);

const QUERIES: [&str; 20] = [
    "history",
    "history england",
    "bibliographical references",
    "children",
    "law",
    "music",
    "women",
    "new york",
    "philosophy",
    "france",
    "art exhibitions",
    "chemistry",
    "the",
    "war 1939",
    "economic conditions",
    "juvenile literature",
    "bible",
    "poetry",
    "computer",
    "university press",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_are_found_as_often_as_postgres_finds_them() {
    let dir = folder();
    let records = number_of("THALWEG_TEST_IMPORT_RECORDS", RECORDS) as usize;
    let file = part(dir.path(), 0, records);
    let address = postgres().new_database().await;
    let setting = format!("imports.database={address}");
    let up = Up::start_with(&dir.path().join("data"), &["--set", &setting]);
    up.cli_json(&["import", file.to_str().unwrap(), "--tenant", "one"]);
    // Another tenant's records are not counted.
    let other = part(dir.path(), 0, 500);
    up.cli_json(&["import", other.to_str().unwrap(), "--tenant", "two"]);
    let until = Instant::now() + Duration::from_secs(120);
    while up.get("/api/v1/search?tenant=one&q=a")["slices_waiting"] != 0 {
        assert!(Instant::now() < until, "the index is not filled");
        std::thread::sleep(Duration::from_millis(50));
    }
    let place = Place::read(Some(&address), dir.path()).unwrap();
    let schema = Schema {
        name: "looks",
        oldest: 0,
        migrations: &[],
    };
    let database = Database::open(&place, Options::default(), &schema).await;
    let database = database.unwrap();
    let make = Statement::new(WORDS);
    database.run("take the words out", &make).await.unwrap();
    let mut found = 0;
    for query in QUERIES {
        let count = "SELECT count(*) AS n FROM words WHERE vector @@ plainto_tsquery('simple', ?)";
        let count = Statement::new(count).bind(query);
        let row = database.row("count", &count).await;
        let expected = row.unwrap().unwrap().number("n").unwrap();
        let asked = query.replace(' ', "%20");
        let told = up.get(&format!("/api/v1/search?tenant=one&q={asked}"));
        assert_eq!(told["total"], expected, "{query}: {told}");
        found += expected;
    }
    assert!(found > 500, "the words are in hardly any record");
}

/// The words of each record as PostgreSQL reads them: letters without their marks, and digits.
const WORDS: &str = "CREATE TABLE words AS
    SELECT id, to_tsvector('simple', regexp_replace(regexp_replace(normalize((
        coalesce(title, '') || ' ' || (SELECT coalesce(string_agg(value #>> '{}', ' '), '')
            FROM jsonb_path_query(body::jsonb, '$.fields[*].*.subfields[*].*') AS value)
        ) COLLATE \"default\", NFD),
        '[\u{300}-\u{36f}\u{fe20}-\u{fe2f}]', '', 'g'), '[^[:alnum:]]+', ' ', 'g')) AS vector
    FROM import_records WHERE tenant = 'one'";

#[test]
fn a_neighbors_edit_is_found_soon_beside_a_large_import() {
    let edits = edit_beside_an_import(false);
    let mut took: Vec<Duration> = edits.into_iter().map(|edit| edit.took).collect();
    took.sort_unstable();
    let p95 = took[(took.len() - 1) * 95 / 100];
    println!(
        "{} edits, found within {p95:?} at the 95th percentile",
        took.len()
    );
    assert!(p95 < SOON, "{took:?}");
}

#[test]
fn a_neighbors_edit_passes_what_waits_for_the_index_while_people_are_served() {
    let edits = edit_beside_an_import(true);
    // The index has a small share of the time meanwhile, so that the import's records wait for it.
    let passed = edits.iter().filter(|edit| edit.waiting > 0).count();
    assert!(passed >= 10, "{edits:?}");
}

/// An edit that was found.
#[derive(Debug)]
struct Edit {
    took: Duration,
    /// What waited for the index then.
    waiting: u64,
}

/// Edits a record again and again while another tenant imports much, and if so asked, while somebody
/// takes a third tenant's record and brings it back all the time.
fn edit_beside_an_import(is_served: bool) -> Vec<Edit> {
    let dir = folder();
    let records = number_of("THALWEG_TEST_IMPORT_RECORDS", 4 * RECORDS) as usize;
    let file = part(dir.path(), 0, records);
    let up = Up::start(&dir.path().join("data"));
    let large = file.to_str().unwrap();
    let large = up.cli_json(&["import", large, "--tenant", "large", "--no-wait"]);
    let large = format!("/api/v1/imports/{}", large["id"].as_str().unwrap());
    let is_over = AtomicBool::new(!is_served);
    let edits = std::thread::scope(|scope| {
        scope.spawn(|| serve(&up, &is_over));
        let _over = Over(&is_over);
        let waiting = || up.get("/api/v1/search?tenant=large&q=a")["slices_waiting"] != 0;
        let goes_on = || up.get(&large)["state"] == "running" || is_served && waiting();
        edits_while(&up, goes_on)
    });
    let count = edits.len();
    assert!(count >= 10, "the import was over after {count} edits");
    // What was edited over is not found any more.
    assert_eq!(up.get("/api/v1/search?tenant=small&q=edition0")["total"], 0);
    edits
}

/// Says that it is over when it is dropped, after a failed test too.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes a record and brings it back until it is over.
fn serve(up: &Up, is_over: &AtomicBool) {
    if is_over.load(Ordering::Relaxed) {
        return;
    }
    let url = up.url(
        "management",
        "/api/v1/imports?format=jsonl&tenant=desk&key=id",
    );
    let made = post(&url, "application/jsonl", "{\"id\":\"b\"}\n");
    assert_eq!(made.status, 201, "{}", made.body);
    let mut served = 0;
    while !is_over.load(Ordering::Relaxed) {
        for (action, body) in [("check-out", "{\"holder\":\"ada\"}"), ("check-in", "")] {
            let url = up.url("management", &format!("/api/v1/records/desk/b/{action}"));
            let answer = post(&url, "application/json", body);
            // Until the record is imported, maybe between the two.
            let is_early = served == 0 && [404, 409].contains(&answer.status);
            assert!(answer.status == 200 || is_early, "{}", answer.body);
            served += usize::from(answer.status == 200);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert!(served > 0, "nobody was served");
}

/// Edits a record again and again for as long.
fn edits_while(up: &Up, goes_on: impl Fn() -> bool) -> Vec<Edit> {
    let mut edits = Vec::new();
    for edit in 0..EDITS {
        if !goes_on() {
            break;
        }
        let url = up.url(
            "management",
            "/api/v1/imports?format=jsonl&tenant=small&key=id",
        );
        let line = format!("{{\"id\":\"same\",\"title\":\"edition{edit}\"}}\n");
        let edited = Instant::now();
        let answer = post(&url, "application/jsonl", &line);
        assert_eq!(answer.status, 201, "{}", answer.body);
        let query = format!("/api/v1/search?tenant=small&q=edition{edit}");
        let found = loop {
            let found = up.get(&query);
            if found["total"] == 1 {
                break found;
            }
            assert!(
                edited.elapsed() < Duration::from_secs(30),
                "edit {edit} is not found"
            );
            std::thread::sleep(Duration::from_millis(10));
        };
        edits.push(Edit {
            took: edited.elapsed(),
            waiting: found["slices_waiting"].as_u64().unwrap(),
        });
    }
    edits
}
