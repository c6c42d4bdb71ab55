//! Jobs as a whole: over HTTP, on the embedded store, through crashes.

mod callers;
mod damage;
mod fetch;
mod files;
mod healing;
mod keys;
mod opensearch;
mod purge;
mod sinks;
mod steering;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use base::{ByteSize, SystemClock};
use http_body_util::BodyExt;
use serde_json::Value;
use sqlx::{ConnectOptions, Row};
use streams::{ConsumerConfig, EventStore, Streams, StreamsConfig, TopicName};
use tower::ServiceExt;

use crate::limits;
use crate::marc::tests::book;
use crate::{Class, Imports, ImportsConfig, http};

struct Service {
    streams: Arc<Streams>,
    store: Arc<dyn EventStore>,
    imports: Arc<Imports>,
    router: Router,
}

impl Service {
    async fn open(folder: &Path, config: ImportsConfig) -> Service {
        Service::open_on(folder, config, |store| store).await
    }

    /// A service that sees the store as `seen` makes it.
    async fn open_on(
        folder: &Path,
        config: ImportsConfig,
        seen: impl FnOnce(Arc<dyn EventStore>) -> Arc<dyn EventStore>,
    ) -> Service {
        let clock = Arc::new(SystemClock);
        let settings = StreamsConfig::default();
        let (streams, _) = Streams::open(&folder.join("streams"), settings, clock.clone()).unwrap();
        let store = streams.store();
        let dir = folder.join("imports");
        let imports = Imports::open(&dir, config, seen(store.clone()), clock)
            .await
            .unwrap();
        let router = http::routes(imports.clone());
        Service {
            streams,
            store,
            imports,
            router,
        }
    }

    async fn close(self) {
        self.imports.close().await;
        self.streams.close().await;
    }

    async fn call(&self, method: &str, path: &str, body: impl Into<Body>) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(body.into())
            .unwrap();
        self.send(request).await
    }

    async fn send(&self, request: Request<Body>) -> (u16, Value) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, answer) = self.call("GET", path, Body::empty()).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    async fn post(&self, path: &str) -> (u16, Value) {
        self.call("POST", path, Body::empty()).await
    }

    async fn bytes(&self, path: &str) -> Vec<u8> {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .to_vec()
    }

    async fn text(&self, path: &str) -> String {
        String::from_utf8(self.bytes(path).await).unwrap()
    }

    /// Waits until the search index has seen everything.
    async fn indexed(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.imports.core.registry.queued_count().await.unwrap() > 0 {
            assert!(Instant::now() < deadline, "the index is not filled");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Creates a job and answers its id.
    async fn import(&self, query: &str, body: impl Into<Body>) -> String {
        let (status, job) = self
            .call("POST", &format!("/api/v1/imports?{query}"), body)
            .await;
        assert_eq!(status, 201, "{job}");
        job["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a job has ended; checks on the way that its counts only grow.
    async fn ended(&self, id: &str) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut before = 0;
        loop {
            let (_, job) = self
                .call("GET", &format!("/api/v1/imports/{id}"), Body::empty())
                .await;
            let done = job["records_done"].as_u64().unwrap();
            assert!(
                done >= before && done <= job["records_total"].as_u64().unwrap(),
                "{job}"
            );
            before = done;
            if !["uploading", "running"].contains(&job["state"].as_str().unwrap()) {
                return job;
            }
            assert!(Instant::now() < deadline, "the job does not end: {job}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn journal(&self, id: &str) -> Vec<Value> {
        let path = format!("/api/v1/imports/{id}/journal");
        let (_, journal) = self.call("GET", &path, Body::empty()).await;
        journal["entries"].as_array().unwrap().clone()
    }

    /// The topic's records by key, each with how often it is there.
    async fn topic(&self, name: &str) -> BTreeMap<String, usize> {
        let topic: TopicName = name.parse().unwrap();
        let mut reader = self
            .store
            .consumer(ConsumerConfig::alone("test"))
            .await
            .unwrap();
        reader.assign(vec![(topic, 0)]).await.unwrap();
        let mut found = BTreeMap::new();
        loop {
            let records = reader
                .poll(Duration::from_millis(20), 8 << 20)
                .await
                .unwrap();
            if records.is_empty() {
                return found;
            }
            for record in records {
                let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
                serde_json::from_slice::<Value>(&record.value.unwrap()).unwrap();
                *found.entry(key).or_default() += 1;
            }
        }
    }
}

/// The sink's ids of a tenant with their titles, read by another connection.
async fn sink(folder: &Path, tenant: &str) -> BTreeMap<String, Option<String>> {
    let path = folder.join("imports/imports.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut connection = options.connect().await.unwrap();
    let rows = sqlx::query("SELECT id, title FROM import_records WHERE tenant = ?")
        .bind(tenant)
        .fetch_all(&mut connection)
        .await
        .unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

fn books(numbers: std::ops::Range<usize>) -> Vec<u8> {
    numbers.flat_map(book).collect()
}

fn small_slices(records: u32) -> ImportsConfig {
    ImportsConfig {
        slice_records: Some(records),
        ..ImportsConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_marc_file_reaches_topic_and_sink() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let file = books(0..700);
    let bytes = file.len();
    let id = service
        .import("tenant=diku&format=marc&topic=books&name=LC", file)
        .await;
    let job = service.ended(&id).await;
    assert_eq!(job["state"], "completed", "{job}");
    assert_eq!(
        (&job["records_total"], &job["records_done"]),
        (&700.into(), &700.into())
    );
    assert_eq!(
        (&job["bytes_total"], &job["bytes_done"]),
        (&bytes.into(), &bytes.into())
    );
    assert_eq!(
        (&job["tenant"], &job["name"]),
        (&"diku".into(), &"LC".into())
    );
    let rows = sink(folder.path(), "diku").await;
    assert_eq!(rows.len(), 700);
    assert!(
        rows["00000007"]
            .as_deref()
            .unwrap()
            .starts_with("The book number 7 :")
    );
    let records = service.topic("books").await;
    assert!(records.keys().eq(rows.keys()) && records.values().all(|n| *n == 1));
    assert_eq!(
        std::fs::read_dir(folder.path().join("imports/uploads"))
            .unwrap()
            .count(),
        0
    );
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lines_are_journaled_with_place_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(2)).await;
    let good = "{\"id\":1,\"title\":\"One\"}\n\n{\"id\":\"two\"}\r\n";
    let lines = format!("\u{feff}{good}{{\"id\":3\n{{\"x\":4}}\n  {{\"id\":5}}");
    let id = service
        .import("format=jsonl&key=id&topic=lines", lines)
        .await;
    let job = service.ended(&id).await;
    assert_eq!(job["state"], "completed_with_rejects", "{job}");
    let counts = ["records_total", "records_done", "records_rejected"].map(|c| job[c].as_u64());
    assert_eq!(counts, [Some(5), Some(3), Some(2)]);
    let rows = sink(folder.path(), "default").await;
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["1", "5", "two"]);
    assert_eq!(rows["1"].as_deref(), Some("One"));
    assert_eq!(service.topic("lines").await.len(), 3);
    let journal = service.journal(&id).await;
    let places: Vec<(u64, u64)> = journal
        .iter()
        .map(|e| {
            (
                e["ordinal"].as_u64().unwrap(),
                e["offset"].as_u64().unwrap(),
            )
        })
        .collect();
    let first = 3 + good.len() as u64;
    assert_eq!(places, [(4, first), (5, first + 8)]);
    assert!(journal[0]["reason"].as_str().unwrap().contains("not JSON"));
    assert!(
        journal[1]["reason"]
            .as_str()
            .unwrap()
            .contains("no field 'id'")
    );
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_without_a_key_field_get_ids_that_two_files_do_not_share() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    for _ in 0..2 {
        let id = service
            .import("format=jsonl", "{\"a\":1}\n{\"a\":2}\n")
            .await;
        assert_eq!(service.ended(&id).await["records_done"], 2);
        assert!(
            sink(folder.path(), "default")
                .await
                .contains_key(&format!("{id}:2"))
        );
    }
    assert_eq!(sink(folder.path(), "default").await.len(), 4);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_and_oversized_records_never_cost_their_neighbors() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(3)).await;
    let mut file = books(1..4);
    let damaged_at = file.len();
    let mut damaged = book(4);
    damaged.pop();
    file.extend(damaged);
    file.extend(books(5..8));
    // More than any window, without a terminator of its own until its end.
    let oversized_at = file.len();
    file.extend(vec![b'x'; 3 << 20]);
    file.push(0x1d);
    file.extend(books(8..10));
    let id = service.import("format=marc&tenant=t", file).await;
    let job = service.ended(&id).await;
    let counts = ["records_total", "records_done", "records_rejected"].map(|c| job[c].as_u64());
    assert_eq!(counts, [Some(10), Some(8), Some(2)], "{job}");
    let journal = service.journal(&id).await;
    let places: Vec<u64> = journal
        .iter()
        .map(|e| e["offset"].as_u64().unwrap())
        .collect();
    assert_eq!(
        places,
        [damaged_at as u64, oversized_at as u64],
        "{journal:?}"
    );
    assert!(
        journal[1]["reason"]
            .as_str()
            .unwrap()
            .contains("3145729 bytes"),
        "{journal:?}"
    );
    let wide = format!(
        "{{\"id\":1,\"x\":\"{}\"}}\n{{\"id\":2}}\n",
        "y".repeat(2 << 20)
    );
    let id = service.import("format=jsonl&key=id&tenant=u", wide).await;
    let job = service.ended(&id).await;
    assert_eq!(
        (&job["records_done"], &job["records_rejected"]),
        (&1.into(), &1.into()),
        "{job}"
    );
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_is_a_complete_import_of_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    for (format, body) in [
        ("marc", ""),
        ("jsonl", ""),
        ("jsonl", "\n \n"),
        ("marc", "\n"),
    ] {
        let id = service.import(&format!("format={format}"), body).await;
        let job = service.ended(&id).await;
        assert_eq!(
            (&job["state"], &job["records_total"]),
            (&"completed".into(), &0.into())
        );
    }
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_makes_one_job_of_two_requests() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let request = || {
        Request::post("/api/v1/imports?format=jsonl&tenant=t&key=id")
            .header("Idempotency-Key", "night 1")
            .body(Body::from("{\"id\":1}\n"))
            .unwrap()
    };
    let (one, two) = tokio::join!(service.send(request()), service.send(request()));
    assert_eq!(one.1["id"], two.1["id"]);
    let mut statuses = [one.0, two.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 201]);
    service.ended(one.1["id"].as_str().unwrap()).await;
    // The key belongs to its tenant.
    let path = "/api/v1/imports?format=jsonl&tenant=u&key=id&idempotency_key=night%201";
    assert_eq!(service.call("POST", path, "{\"id\":1}\n").await.0, 201);
    assert_eq!(service.topic("imports-t").await.len(), 1);
    let (_, page) = service
        .call("GET", "/api/v1/imports/tenants?limit=1", Body::empty())
        .await;
    assert_eq!(page["next"], "t", "{page}");
    let (t, used) = (&page["tenants"][0], ["jobs", "jobs_active", "records_done"]);
    assert_eq!(used.map(|figure| t[figure].as_u64()), [1, 0, 1].map(Some));
    let (_, page) = service
        .call("GET", "/api/v1/imports/tenants?after=t", Body::empty())
        .await;
    let tenants = page["tenants"].as_array().unwrap();
    assert_eq!((tenants.len(), &tenants[0]["tenant"]), (1, &"u".into()));
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_of_another_job_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let path = |rest: &str| format!("/api/v1/imports?idempotency_key=k&{rest}");
    let (status, job) = service
        .call("POST", &path("format=jsonl&topic=a"), "{}\n")
        .await;
    assert_eq!(status, 201, "{job}");
    for other in ["format=csv&topic=a", "format=jsonl&topic=b"] {
        let (status, error) = service.call("POST", &path(other), "{}\n").await;
        assert_eq!(
            (status, &error["error_code"]),
            (422, &422.into()),
            "{other}: {error}"
        );
    }
    let (status, same) = service
        .call("POST", &path("format=jsonl&topic=a"), "{}\n")
        .await;
    assert_eq!((status, &same["id"]), (200, &job["id"]), "{same}");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_the_journal_ends_with_a_whole_record() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let profile = r#"{"on_match": "skip"}"#;
    let (status, told) = service
        .call("PUT", "/api/v1/profiles/once?tenant=t", profile)
        .await;
    assert_eq!(status, 200, "{told}");
    // Each is repaired, and the second time skipped too.
    let mut record = book(1);
    record.splice(0..5, *b"00000");
    let file = record.repeat(3);
    let id = service
        .import("format=marc&tenant=t&profile=once", file)
        .await;
    service.ended(&id).await;
    let whole = service.journal(&id).await;
    assert_eq!(whole.len(), 5, "{whole:?}");
    let mut paged = Vec::new();
    let mut after = Value::from(0);
    while !after.is_null() {
        let path = format!("/api/v1/imports/{id}/journal?limit=2&after={after}");
        let mut page = service.get(&path).await;
        paged.append(page["entries"].as_array_mut().unwrap());
        after = page["next"].take();
    }
    assert_eq!(paged, whole);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quote_that_never_closes_costs_its_own_row_alone() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let rows: String = (0..60_000)
        .map(|n| format!("{n},the title number {n}\n"))
        .collect();
    let file = format!("id,title\n-1,\"a quote\n{rows}");
    assert!(file.len() > limits::WINDOW_BYTES_MAX + (64 << 10));
    let id = service
        .import("format=csv&key=id&tenant=c&sink=records", file)
        .await;
    let job = service.ended(&id).await;
    assert_eq!(
        (&job["records_done"], &job["records_rejected"]),
        (&60_000.into(), &1.into()),
        "{job}"
    );
    let journal = service.journal(&id).await;
    assert_eq!(journal[0]["reason"], "a quoted field does not end");
    let rejects = service.text(&format!("/api/v1/imports/{id}/rejects")).await;
    assert_eq!(rejects, "id,title\n-1,\"a quote\n");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_upload_fails_its_job_and_frees_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let path = "/api/v1/imports?format=jsonl&idempotency_key=k";
    let broken = Body::new(http_body_util::StreamBody::new(Breaking(false)));
    let (status, error) = service.call("POST", path, broken).await;
    assert_eq!(
        (status, &error["error_code"]),
        (400, &400.into()),
        "{error}"
    );
    let (_, jobs) = service.call("GET", "/api/v1/imports", Body::empty()).await;
    assert_eq!(jobs["jobs"][0]["state"], "failed");
    assert_eq!(
        std::fs::read_dir(folder.path().join("imports/uploads"))
            .unwrap()
            .count(),
        0
    );
    let (status, job) = service.call("POST", path, "{}\n").await;
    assert_eq!(status, 201, "{job}");
    service.close().await;
}

/// A body that breaks after its first piece.
struct Breaking(bool);

impl futures_core::Stream for Breaking {
    type Item = Result<http_body::Frame<bytes::Bytes>, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let first = !std::mem::replace(&mut self.0, true);
        std::task::Poll::Ready(Some(if first {
            Ok(http_body::Frame::data(bytes::Bytes::from_static(b"{}\n")))
        } else {
            Err(std::io::Error::other("gone"))
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cannot_be_are_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let config = ImportsConfig {
        upload_bytes_max: ByteSize(10),
        ..ImportsConfig::default()
    };
    let service = Service::open(folder.path(), config).await;
    let cases = [
        (
            "POST",
            "/api/v1/imports?format=odt",
            400,
            "use one of jsonl, marc, marcxml, marcjson, csv",
        ),
        (
            "POST",
            "/api/v1/imports?format=marc&tenant=UPPER",
            400,
            "no tenant name",
        ),
        (
            "POST",
            "/api/v1/imports?format=marc&key=id",
            400,
            "has its own ids",
        ),
        (
            "POST",
            "/api/v1/imports?format=marc&topic=a%20b",
            400,
            "no topic name",
        ),
        ("POST", "/api/v1/imports?formt=marc", 400, "formt"),
        (
            "POST",
            "/api/v1/imports?format=jsonl",
            413,
            "larger than 10 bytes",
        ),
        ("GET", "/api/v1/imports/%ff", 400, "UTF-8"),
        ("GET", "/api/v1/records/t/%ff/history", 400, "UTF-8"),
        ("PUT", "/api/v1/profiles/p", 400, "cannot be read"),
        ("GET", "/api/v1/imports/none", 404, "not found"),
        ("GET", "/api/v1/imports/none/journal", 404, "not found"),
        ("DELETE", "/api/v1/imports/none", 404, "not found"),
    ];
    for (method, path, status, part) in cases {
        let (found, error) = service
            .call(method, path, "{\"more\":\"than 10 bytes\"}")
            .await;
        assert_eq!(found, status, "{path}: {error}");
        assert!(
            error["message"].as_str().unwrap().contains(part),
            "{path}: {error}"
        );
    }
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_stops_with_topic_and_sink_alike() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(5)).await;
    let id = service
        .import("format=marc&tenant=t&topic=t", books(0..20_000))
        .await;
    let path = format!("/api/v1/imports/{id}");
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let (_, job) = service.call("GET", &path, Body::empty()).await;
        if job["records_done"].as_u64().unwrap() > 0 {
            break;
        }
        assert!(Instant::now() < deadline, "the job does not begin: {job}");
    }
    let (status, job) = service.call("DELETE", &path, Body::empty()).await;
    assert_eq!((status, &job["state"]), (200, &"cancelled".into()), "{job}");
    let done = usize::try_from(job["records_done"].as_u64().unwrap()).unwrap();
    assert!(done < 20_000);
    assert_eq!(sink(folder.path(), "t").await.len(), done);
    assert_eq!(service.topic("t").await.len(), done);
    let (status, error) = service.call("DELETE", &path, Body::empty()).await;
    assert_eq!(status, 409, "{error}");
    // The tenant's next job goes at once.
    let id = service
        .import("format=marc&tenant=t&topic=t", books(30_000..30_010))
        .await;
    assert_eq!(service.ended(&id).await["records_done"], 10);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_job_does_not_wait_behind_another_tenants_large_one() {
    let folder = tempfile::tempdir().unwrap();
    let config = ImportsConfig {
        workers: 1,
        ..small_slices(20)
    };
    let service = Service::open(folder.path(), config).await;
    let large = service
        .import("format=marc&tenant=large", books(0..8_000))
        .await;
    let small = service
        .import("format=marc&tenant=small", books(0..40))
        .await;
    service.ended(&small).await;
    let path = format!("/api/v1/imports/{large}");
    let (_, job) = service.call("GET", &path, Body::empty()).await;
    assert_eq!(
        job["state"], "running",
        "the small job waited for the large one: {job}"
    );
    assert_eq!(service.ended(&large).await["records_done"], 8_000);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(10)).await;
    let id = service
        .import("format=marc&tenant=t&topic=t", books(0..3_000))
        .await;
    service.close().await;
    let service = Service::open(folder.path(), small_slices(250)).await;
    let job = service.ended(&id).await;
    assert_eq!(job["records_done"], 3_000, "{job}");
    assert_eq!(sink(folder.path(), "t").await.len(), 3_000);
    let topic = service.topic("t").await;
    assert!(topic.len() == 3_000 && topic.values().all(|n| *n == 1));
    service.close().await;
}

/// Killed in the middle ten times, the import ends with exactly the file's records.
#[test]
fn an_import_survives_being_killed_again_and_again() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return run_until_killed(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut file = books(0..RECORDS);
    file.extend_from_slice(b"damage\x1d");
    std::fs::write(folder.path().join("file.mrc"), file).unwrap();
    let mut rng = base::Rng::from_seed(7);
    let mut kills = 0;
    for round in 0..60 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "tests::an_import_survives_being_killed_again_and_again",
            ])
            .env(CHILD, folder.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let patience = if round < 10 {
            Duration::from_millis(60 + rng.below(150))
        } else {
            Duration::from_secs(60)
        };
        let deadline = Instant::now() + patience;
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "round {round}");
                break true;
            }
            if Instant::now() > deadline {
                break false;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        if ended {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(
        kills >= 3,
        "the import was over after {kills} kills: make the file larger"
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let service = Service::open(folder.path(), small_slices(20)).await;
        let (_, jobs) = service.call("GET", "/api/v1/imports", Body::empty()).await;
        let jobs = jobs["jobs"].as_array().unwrap();
        let good: Vec<&Value> = jobs.iter().filter(|job| job["state"] != "failed").collect();
        assert_eq!(good.len(), 1, "{jobs:?}");
        assert_eq!(good[0]["state"], "completed_with_rejects", "{}", good[0]);
        assert_eq!(good[0]["records_done"], RECORDS);
        assert_eq!(good[0]["records_total"], RECORDS + 1);
        let rows = sink(folder.path(), "t").await;
        assert_eq!(rows.len(), RECORDS);
        let topic = service.topic("t").await;
        let wrong: Vec<_> = topic.iter().filter(|(_, n)| **n != 1).take(5).collect();
        assert!(
            wrong.is_empty() && topic.keys().eq(rows.keys()),
            "{wrong:?} after {kills} kills"
        );
        service.close().await;
    });
}

/// The child of the kill test: goes on with the job, or begins it, until it is over.
fn run_until_killed(folder: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let service = Service::open(folder, small_slices(20)).await;
        let file = std::fs::read(folder.join("file.mrc")).unwrap();
        let path = "/api/v1/imports?format=marc&tenant=t&topic=t&idempotency_key=once";
        let (_, job) = service.call("POST", path, file).await;
        service.ended(job["id"].as_str().unwrap()).await;
        service.close().await;
    });
}

const CHILD: &str = "IMPORTS_KILL_TEST_FOLDER";
const RECORDS: usize = 10_000;
