//! What breaks off in the middle is brought to its end, or put right: steering, uploads, failures.

use std::task::Poll;

use base::Clock;
use sql::test_servers::postgres;
use sqlx::{Connection, SqliteConnection};

use super::*;
use crate::job::JobState;

/// Another connection to a service's database.
async fn beside(folder: &Path) -> SqliteConnection {
    let path = folder.join("imports/imports.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    options.connect().await.unwrap()
}

async fn run(folder: &Path, statement: &str) {
    let mut connection = beside(folder).await;
    let statement = sqlx::AssertSqlSafe(statement.to_owned());
    sqlx::query(statement)
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

/// Has the database refuse what a trigger's words say.
async fn refuse(folder: &Path, when: &str) {
    let trigger = format!("CREATE TRIGGER broken {when} BEGIN SELECT RAISE(ABORT, 'broken'); END");
    run(folder, &trigger).await;
}

async fn mend(folder: &Path) {
    run(folder, "DROP TRIGGER broken").await;
}

async fn state_is(service: &Service, id: &str, state: &str) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let job = service.get(&format!("/api/v1/imports/{id}")).await;
        if job["state"] == state {
            return job;
        }
        assert!(Instant::now() < deadline, "the job is not {state}: {job}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_steered_by_somebody_who_is_gone_is_steered_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(1)).await;
    let id = service.import("format=marc&topic=t", books(0..2_000)).await;
    let path = format!("/api/v1/imports/{id}/pause");
    {
        // Whoever asks is gone after the first look.
        let mut call = Box::pin(service.post(&path));
        let once = std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context)));
        assert!(once.await.is_pending());
    }
    state_is(&service, &id, "paused").await;
    let (status, job) = service.post(&format!("/api/v1/imports/{id}/resume")).await;
    assert_eq!(status, 200, "{job}");
    assert_eq!(service.ended(&id).await["records_done"], 2_000);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_could_not_be_paused_or_cancelled_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(2)).await;
    let id = service.import("format=marc&topic=t", books(0..2_000)).await;
    let path = format!("/api/v1/imports/{id}");
    refuse(
        folder.path(),
        "BEFORE UPDATE ON import_jobs WHEN NEW.state IN ('paused', 'cancelled')",
    )
    .await;
    let (status, error) = service.post(&format!("{path}/pause")).await;
    assert_eq!(status, 500, "{error}");
    let (status, error) = service.call("DELETE", &path, Body::empty()).await;
    assert_eq!(status, 500, "{error}");
    let job = service.ended(&id).await;
    assert_eq!(
        (&job["state"], &job["records_done"]),
        (&"completed".into(), &2_000.into()),
        "{job}"
    );
    let topic = service.topic("t").await;
    assert!(topic.len() == 2_000 && topic.values().all(|n| *n == 1));
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_and_resumes_of_many_at_once_leave_no_job_behind() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(2)).await;
    let id = service.import("format=marc&topic=t", books(0..3_000)).await;
    let path = format!("/api/v1/imports/{id}");
    for _ in 0..20 {
        let (pause, resume) = (format!("{path}/pause"), format!("{path}/resume"));
        let (one, two, three, four) = tokio::join!(
            service.post(&pause),
            service.post(&resume),
            service.post(&pause),
            service.post(&resume)
        );
        for (status, told) in [one, two, three, four] {
            assert!([200, 409].contains(&status), "{status} {told}");
        }
    }
    if service.get(&path).await["state"] == "paused" {
        let (status, job) = service.post(&format!("{path}/resume")).await;
        assert_eq!(status, 200, "{job}");
    }
    assert_eq!(service.ended(&id).await["records_done"], 3_000);
    let topic = service.topic("t").await;
    assert!(topic.len() == 3_000 && topic.values().all(|n| *n == 1));
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_which_this_process_lost_sight_is_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(2)).await;
    let id = service.import("format=marc&topic=t", books(0..1_000)).await;
    let core = &service.imports.core;
    let job = core.registry.job(&id).await.unwrap();
    // As where a failure was not recorded, or an upload ended before the job was let run.
    let over = core
        .live
        .lock()
        .jobs
        .get_mut(&job.number)
        .and_then(|live| live.stop());
    if let Some(over) = over {
        let _ = tokio::time::timeout(Duration::from_millis(200), over.notified()).await;
    }
    core.live.lock().jobs.remove(&job.number);
    // It looks by itself.
    assert_eq!(service.ended(&id).await["records_done"], 1_000);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_is_resumed_where_it_failed() {
    let folder = tempfile::tempdir().unwrap();
    // A turn is five slices.
    let service = Service::open(folder.path(), small_slices(10)).await;
    let when = "BEFORE INSERT ON import_records WHEN NEW.id = '00000077'";
    refuse(folder.path(), when).await;
    let id = service
        .import("format=marc&topic=t&tenant=t", books(0..200))
        .await;
    let path = format!("/api/v1/imports/{id}");
    let job = service.ended(&id).await;
    assert_eq!(
        (&job["state"], &job["records_done"]),
        (&"failed".into(), &50.into()),
        "{job}"
    );
    mend(folder.path()).await;
    // Over a restart too.
    service.close().await;
    let service = Service::open(folder.path(), small_slices(10)).await;
    let (status, job) = service.post(&format!("{path}/resume")).await;
    assert_eq!((status, &job["state"]), (200, &"running".into()), "{job}");
    let job = service.ended(&id).await;
    assert_eq!(
        (&job["state"], &job["records_done"], &job["error"]),
        (&"completed".into(), &200.into(), &Value::Null),
        "{job}"
    );
    let topic = service.topic("t").await;
    assert!(topic.len() == 200 && topic.values().all(|n| *n == 1));
    let files = std::fs::read_dir(folder.path().join("imports/uploads"));
    assert_eq!(files.unwrap().count(), 0);
    // One whose file never arrived has nothing to go on with.
    let broken = Body::new(http_body_util::StreamBody::new(Breaking(false)));
    let broken = service
        .call("POST", "/api/v1/imports?format=jsonl", broken)
        .await;
    assert_eq!(broken.0, 400);
    let jobs = service.get("/api/v1/imports").await;
    let failed = jobs["jobs"][0]["id"].as_str().unwrap();
    let (status, error) = service
        .post(&format!("/api/v1/imports/{failed}/resume"))
        .await;
    assert_eq!(status, 409, "{error}");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_topic_was_deleted_goes_on_when_there_is_one_again() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(5)).await;
    let id = service
        .import("format=marc&tenant=t&topic=gone", books(0..5_000))
        .await;
    let path = format!("/api/v1/imports/{id}");
    let (status, job) = service.post(&format!("{path}/pause")).await;
    assert_eq!(status, 200, "{job}");
    let before = job["records_done"].as_u64().unwrap();
    let topic: TopicName = "gone".parse().unwrap();
    service.store.delete_topic(&topic).await.unwrap();
    let (status, job) = service.post(&format!("{path}/resume")).await;
    assert_eq!(status, 200, "{job}");
    let job = service.ended(&id).await;
    assert_eq!(job["state"], "failed", "{job}");
    let reason = job["error"].as_str().unwrap();
    assert!(reason.contains("topic 'gone' does not exist"), "{reason}");
    service.store.topic_or_create(&topic).await.unwrap();
    let (status, job) = service.post(&format!("{path}/resume")).await;
    assert_eq!(status, 200, "{job}");
    let job = service.ended(&id).await;
    assert_eq!(
        (&job["state"], &job["records_done"]),
        (&"completed".into(), &5_000.into()),
        "{job}"
    );
    let found = service.topic("gone").await;
    assert_eq!(found.len() as u64, 5_000 - before);
    assert_eq!(sink(folder.path(), "t").await.len(), 5_000);
    service.close().await;
}

/// Two processes on one server: whoever is asked, the one that has the file goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_resumed_at_the_process_that_has_not_its_file() {
    let address = postgres().new_database().await;
    let folder = tempfile::tempdir().unwrap();
    let config = ImportsConfig {
        database: Some(address.into()),
        ..small_slices(5)
    };
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let first = Service::open(&one, config.clone()).await;
    let second = Service::open(&two, config).await;
    let id = first
        .import("format=marc&tenant=t&sink=records", books(0..2_000))
        .await;
    let path = format!("/api/v1/imports/{id}");
    let (status, job) = second.post(&format!("{path}/pause")).await;
    assert_eq!(status, 200, "{job}");
    let (status, job) = second.post(&format!("{path}/resume")).await;
    assert_eq!(status, 200, "{job}");
    // What a process cannot do that the job does not belong to is no end of it.
    let registry = &second.imports.core.registry;
    let job = registry.job(&id).await.unwrap();
    let now = base::UnixMillis(0);
    registry
        .lease(job.number, "first", Duration::from_secs(1), now)
        .await
        .unwrap();
    let failed = registry.fail(job.number, "second", "asleep", now).await;
    assert!(!failed.unwrap(), "another process' job was ended");
    let job = second.ended(&id).await;
    assert_eq!(
        (&job["state"], &job["records_done"]),
        (&"completed".into(), &2_000.into()),
        "{job}"
    );
    let upload = first.import("format=marc&resumable=true", "").await;
    let piece = format!("/api/v1/imports/{upload}/file?offset=0");
    let (status, error) = second.call("PATCH", &piece, "x").await;
    assert_eq!(status, 409, "{error}");
    second.close().await;
    first.close().await;
}

/// The schema of a version that is to come: with one migration more, and the oldest that it lets work.
fn newer(schema: &sql::Schema, text: &'static str, oldest: i64) -> &'static sql::Schema {
    let number = schema.migrations.len() as i64 + 1;
    let more = sql::Migration {
        number,
        name: "what a newer version brings",
        text,
    };
    let migrations = [schema.migrations, &[more]].concat();
    Box::leak(Box::new(sql::Schema {
        name: schema.name,
        oldest,
        migrations: Box::leak(migrations.into_boxed_slice()),
    }))
}

/// While a job runs the database is upgraded twice: to what the process fits, and to what it does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_older_than_its_database_stands_aside_and_fails_no_job() {
    let address = postgres().new_database().await;
    let place = sql::Place::read(Some(&address), Path::new("unused")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = ImportsConfig {
        database: Some(address.into()),
        ..small_slices(5)
    };
    let service = Service::open(folder.path(), config).await;
    let core = &service.imports.core;
    let id = service
        .import("format=marc&tenant=t&sink=records", books(0..40_000))
        .await;
    let path = format!("/api/v1/imports/{id}");
    let gets_beyond = async |count: i64| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let job = service.get(&path).await;
            assert_eq!(job["state"], "running", "{job}");
            let done = job["records_done"].as_i64().unwrap();
            if done > count {
                return done;
            }
            assert!(Instant::now() < deadline, "the job stands at {done}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    gets_beyond(0).await;
    let schema = crate::schema::schema(sql::Dialect::Postgres);
    let text = "CREATE TABLE import_more (number BIGINT NOT NULL PRIMARY KEY);\n";
    let fits = newer(schema, text, schema.oldest);
    let database = sql::Database::open(&place, sql::Options::default(), fits)
        .await
        .unwrap();
    let done = gets_beyond(0).await;
    gets_beyond(done).await;
    assert!(!core.stands_aside().await);
    let text = "ALTER TABLE import_jobs DROP COLUMN slices_done;\n";
    let outgrown = newer(fits, text, fits.migrations.len() as i64 + 1);
    database.migrate(outgrown).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !core.is_aside() || !core.live.lock().jobs.is_empty() {
        assert!(Instant::now() < deadline, "the process goes on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Looked after, the job is neither failed nor begun again.
    core.compare().await.unwrap();
    let read = sql::Statement::new(
        "SELECT state, number, records_done, (SELECT count(*) FROM import_records) AS stored
         FROM import_jobs",
    );
    let row = database.row("look", &read).await.unwrap().unwrap();
    let number = |name: &str| row.number(name).unwrap();
    assert_eq!(row.text("state").unwrap(), "running");
    assert_eq!(number("records_done"), number("stored"));
    assert!(core.live.lock().jobs.is_empty());
    let (status, told) = service
        .call("POST", "/api/v1/imports?format=marc&tenant=t", "x")
        .await;
    assert_eq!(status, 503, "{told}");
    // Nor does one that has not noticed yet take a slice.
    let job = crate::schedule::JobNumber(number("number"));
    let unaware = crate::registry::Registry::of(&place, database.clone()).await;
    let lease = unaware
        .unwrap()
        .lease(job, &core.node, Duration::from_secs(1), SystemClock.now())
        .await;
    assert_eq!(lease.unwrap(), None);
    database.close().await;
    service.close().await;
}

/// A process that is gone for good leaves a job that ran, and two whose files were coming in.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_process_that_is_gone_say_so_and_fail_in_the_end() {
    let address = postgres().new_database().await;
    let folder = tempfile::tempdir().unwrap();
    let config = ImportsConfig {
        database: Some(address.into()),
        ..small_slices(5)
    };
    let gone = Service::open(&folder.path().join("gone"), config.clone()).await;
    let path = "/api/v1/imports?format=marc&tenant=t&sink=records&idempotency_key=night";
    let (status, ran) = gone.call("POST", path, books(0..4_000)).await;
    assert_eq!(status, 201, "{ran}");
    let pieces = gone.import("format=marc&resumable=true", "").await;
    let whole = gone.import("format=marc&resumable=true", "").await;
    gone.close().await;
    let service = Service::open(&folder.path().join("left"), config).await;
    let core = &service.imports.core;
    let database = &core.registry.database;
    let run = async |text: String| {
        database
            .run("age", &sql::Statement::new(text))
            .await
            .unwrap()
    };
    run(format!(
        "UPDATE import_jobs SET is_resumable = 0 WHERE id = '{whole}'"
    ))
    .await;
    let aged = async |age: Duration| {
        let at = SystemClock.now().0 - age.as_millis() as i64;
        run(format!(
            "UPDATE import_jobs SET updated_ms = {at}, lease_until_ms = {at} WHERE state <> 'failed'"
        ))
        .await;
        run(format!(
            "UPDATE import_nodes SET seen_ms = {at} WHERE node <> '{}'",
            core.node
        ))
        .await;
        core.compare().await.unwrap();
    };
    let told = async |id: &str| {
        let job = service.get(&format!("/api/v1/imports/{id}")).await;
        let error = job["error"].as_str().unwrap_or_default().to_owned();
        (job["state"].as_str().unwrap().to_owned(), error)
    };
    let ran = ran["id"].as_str().unwrap();
    aged(limits::LOST_AFTER / 2).await;
    assert_eq!(told(ran).await, ("running".to_owned(), String::new()));
    aged(limits::LOST_AFTER * 2).await;
    // However many others wait before it, which were told so already.
    run(format!(
        "CREATE TABLE copies AS SELECT * FROM import_jobs WHERE id = '{ran}'"
    ))
    .await;
    for number in 1..=100 {
        run(format!(
            "UPDATE copies SET number = -{number}, id = 'copy {number}', idempotency_key = NULL"
        ))
        .await;
        run("INSERT INTO import_jobs SELECT * FROM copies".to_owned()).await;
    }
    let forget = "UPDATE import_jobs SET error = NULL WHERE id";
    run(format!("{forget} = '{pieces}'")).await;
    aged(limits::LOST_AFTER * 2).await;
    run("DELETE FROM import_jobs WHERE number < 0".to_owned()).await;
    for (id, expected) in [(ran, "running"), (&pieces, "uploading")] {
        let (state, error) = told(id).await;
        assert_eq!(state, expected);
        assert!(
            error.contains("no process that is there has its file"),
            "{error}"
        );
    }
    let (state, error) = told(&whole).await;
    assert!(
        state == "failed" && error.contains("send the file again"),
        "{error}"
    );
    aged(limits::LOST_KEPT * 2).await;
    for id in [ran, &pieces] {
        let (state, error) = told(id).await;
        assert!(
            state == "failed" && error.contains("did not come back"),
            "{error}"
        );
    }
    let (status, job) = service.call("POST", path, books(0..3)).await;
    assert_eq!(status, 201, "{job}");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_piece_that_is_sent_twice_at_once_is_taken_once() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    for _ in 0..20 {
        let id = service.import("format=jsonl&resumable=true", "").await;
        let path = format!("/api/v1/imports/{id}/file?offset=0");
        let lines = "{\"id\":1}\n".repeat(1_000);
        let (one, two) = tokio::join!(
            service.call("PATCH", &path, lines.clone()),
            service.call("PATCH", &path, lines.clone())
        );
        let mut statuses = [one.0, two.0];
        statuses.sort_unstable();
        assert_eq!(statuses[0], 200, "{one:?} {two:?}");
        assert!([409, 429].contains(&statuses[1]), "{one:?} {two:?}");
        let upload = folder.path().join("imports/uploads").join(&id);
        let found = std::fs::read_to_string(upload).unwrap();
        assert!(found == lines, "{} bytes", found.len());
    }
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_are_paused_count_among_the_unfinished() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let id = service.import("format=jsonl&tenant=t", "{}\n").await;
    service.ended(&id).await;
    let columns = crate::registry::COLUMNS;
    let copied = columns
        .replace("number, id,", "number + 9000 + i, id || i,")
        .replace(" state,", " 'paused',");
    let paused = crate::limits::JOBS_ACTIVE.tenant_max;
    let fill = format!(
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {paused})
         INSERT INTO import_jobs ({columns}, token, lease_until_ms)
         SELECT {copied}, 0, 0 FROM import_jobs, n"
    );
    run(folder.path(), &fill).await;
    let (status, error) = service.post("/api/v1/imports?format=jsonl&tenant=t").await;
    assert_eq!(status, 429, "{error}");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("unfinished imports"),
        "{error}"
    );
    service.import("format=jsonl&tenant=u", "").await;
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_uploads_and_jobs_are_swept_and_others_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let uploads = folder.path().join("imports/uploads");
    let (left, resumed) = (
        service.import("format=jsonl&resumable=true", "").await,
        service.import("format=jsonl&resumable=true", "").await,
    );
    let (old, new) = (
        service.import("format=jsonl", "{}\nnothing\n").await,
        service.import("format=jsonl", "{}\nnothing\n").await,
    );
    for id in [&old, &new] {
        service.ended(id).await;
    }
    service.indexed().await;
    let never = format!("UPDATE import_jobs SET updated_ms = 1 WHERE id <> '{new}'");
    run(folder.path(), &never).await;
    let piece = format!("/api/v1/imports/{resumed}/file?offset=0");
    assert_eq!(service.call("PATCH", &piece, "{}\n").await.0, 200);
    service.imports.core.sweep().await.unwrap();
    let job = service.get(&format!("/api/v1/imports/{left}")).await;
    assert_eq!(job["state"], "failed", "{job}");
    assert!(!uploads.join(&left).exists() && uploads.join(&resumed).exists());
    let job = service.get(&format!("/api/v1/imports/{resumed}")).await;
    assert_eq!(job["state"], JobState::Uploading.name(), "{job}");
    let (status, _) = service
        .call("GET", &format!("/api/v1/imports/{old}"), Body::empty())
        .await;
    assert_eq!(status, 404);
    assert_eq!(service.journal(&new).await.len(), 1);
    let mut connection = beside(folder.path()).await;
    for table in ["import_journal", "import_slices"] {
        let count = format!("SELECT count(DISTINCT job) FROM {table}");
        let count = sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(count));
        assert_eq!(
            count.fetch_one(&mut connection).await.unwrap(),
            1,
            "{table}"
        );
    }
    // Its records stay.
    assert_eq!(sink(folder.path(), "default").await.len(), 2);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_listed_in_pages_and_forgotten_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let id = service.import("format=jsonl&tenant=t", "{}\n").await;
        service.ended(&id).await;
        ids.push(id);
    }
    let path = "/api/v1/imports?tenant=t&limit=2";
    let page = service.get(path).await;
    assert_eq!(page["next"], ids[1].as_str(), "{page}");
    let page = service.get(&format!("{path}&after={}", ids[1])).await;
    let jobs = page["jobs"].as_array().unwrap();
    assert_eq!(
        (jobs.len(), &jobs[0]["id"], &page["next"]),
        (1, &ids[0].as_str().into(), &Value::Null),
        "{page}"
    );
    let forget = |id: &str| format!("/api/v1/imports/{id}?forget=true");
    let (status, job) = service
        .call("DELETE", &forget(&ids[0]), Body::empty())
        .await;
    assert_eq!(
        (status, &job["id"]),
        (200, &ids[0].as_str().into()),
        "{job}"
    );
    let (status, _) = service
        .call("DELETE", &forget(&ids[0]), Body::empty())
        .await;
    assert_eq!(status, 404);
    let id = service.import("format=jsonl&resumable=true", "").await;
    let (status, error) = service.call("DELETE", &forget(&id), Body::empty()).await;
    assert_eq!(status, 409, "{error}");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_whose_rebuilding_broke_off_is_filled_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let lines = "{\"id\":1,\"title\":\"history\"}\n";
    let id = service.import("format=jsonl&key=id", lines).await;
    service.ended(&id).await;
    service.indexed().await;
    refuse(folder.path(), "BEFORE INSERT ON import_index_queue").await;
    let (status, error) = service.post("/api/v1/search/rebuild").await;
    assert_eq!(status, 500, "{error}");
    mend(folder.path()).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while service.get("/api/v1/search?q=history").await["total"] != 1 {
        assert!(Instant::now() < deadline, "the index stays empty");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    service.close().await;
}
