//! Jobs steered from outside: paused, retried, uploaded in pieces, taken over.

use super::*;
use crate::commit::{Committed, Lease, Writing};
use crate::job::Job;
use crate::keys::Selectors;
use crate::registry::Registry;

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_job_stands_still_and_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(5)).await;
    let id = service
        .import("format=marc&tenant=t&topic=t", books(0..5_000))
        .await;
    let path = format!("/api/v1/imports/{id}");
    for _ in 0..10 {
        let (status, paused) = service.post(&format!("{path}/pause")).await;
        if status == 409 {
            assert_eq!(paused["error_code"], 409, "{paused}");
            break;
        }
        assert_eq!(paused["state"], "paused", "{paused}");
        let done = paused["records_done"].as_u64().unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(service.get(&path).await["records_done"], done);
        let rows = sink(folder.path(), "t").await.len();
        assert_eq!(rows as u64, done, "the count is that of the rows");
        let (status, job) = service.post(&format!("{path}/resume")).await;
        assert_eq!((status, &job["state"]), (200, &"running".into()), "{job}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(service.ended(&id).await["records_done"], 5_000);
    let topic = service.topic("t").await;
    assert!(topic.len() == 5_000 && topic.values().all(|n| *n == 1));
    let (status, error) = service.post(&format!("{path}/resume")).await;
    assert_eq!(status, 409, "{error}");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_lasts_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(5)).await;
    let id = service.import("format=marc", books(0..3_000)).await;
    let path = format!("/api/v1/imports/{id}");
    let (status, paused) = service.post(&format!("{path}/pause")).await;
    assert_eq!(status, 200, "{paused}");
    service.close().await;
    let service = Service::open(folder.path(), small_slices(5)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let job = service.get(&path).await;
    assert_eq!(
        (&job["state"], &job["records_done"]),
        (&"paused".into(), &paused["records_done"])
    );
    service.post(&format!("{path}/resume")).await;
    assert_eq!(service.ended(&id).await["records_done"], 3_000);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_are_downloaded_repaired_and_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(2)).await;
    let lines = "{\"id\":1}\n{\"id\":2\n{\"id\":3}\nnothing\n{\"id\":4}";
    let id = service
        .import("format=jsonl&key=id&topic=r&tenant=t", lines)
        .await;
    let job = service.ended(&id).await;
    assert_eq!(job["records_rejected"], 2, "{job}");
    let path = format!("/api/v1/imports/{id}");
    let rejects = service.text(&format!("{path}/rejects")).await;
    assert_eq!(rejects, "{\"id\":2\nnothing\n");
    // As they are they are rejected again, and the first job stays as it was.
    let (status, again) = service.post(&format!("{path}/retry")).await;
    assert_eq!(
        (status, &again["retry_of"]),
        (201, &id.as_str().into()),
        "{again}"
    );
    let again = service.ended(again["id"].as_str().unwrap()).await;
    assert_eq!(
        (&again["records_done"], &again["records_rejected"]),
        (&0.into(), &2.into())
    );
    let repaired = rejects
        .replace("2\n", "2}\n")
        .replace("nothing", "{\"id\":9}");
    let retry = format!("{path}/retry?idempotency_key=k");
    let (status, job) = service.call("POST", &retry, repaired.clone()).await;
    assert_eq!(status, 201, "{job}");
    let (status, same) = service.call("POST", &retry, repaired).await;
    assert_eq!((status, &same["id"]), (200, &job["id"]), "{same}");
    let job = service.ended(job["id"].as_str().unwrap()).await;
    assert_eq!(job["state"], "completed", "{job}");
    let ids: Vec<String> = sink(folder.path(), "t").await.into_keys().collect();
    assert_eq!(ids, ["1", "2", "3", "4", "9"]);
    let whole = service.import("format=jsonl", "{}\n").await;
    service.ended(&whole).await;
    let (status, error) = service
        .post(&format!("/api/v1/imports/{whole}/retry"))
        .await;
    assert_eq!(status, 409, "{error}");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_that_are_too_large_to_keep_are_told_and_not_retried_silently() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(2)).await;
    let large = format!("nothing{}\n", "x".repeat(200 << 10));
    for (lines, kept, status) in [
        (format!("{large}no\n{{\"id\":1}}\n"), "no\n", 201),
        (format!("{large}{{\"id\":2}}\n"), "", 409),
    ] {
        let id = service.import("format=jsonl&key=id&tenant=t", lines).await;
        service.ended(&id).await;
        let path = format!("/api/v1/imports/{id}");
        let job = service.get(&path).await;
        assert_eq!(job["rejects_left_out"], 1, "{job}");
        assert_eq!(service.text(&format!("{path}/rejects")).await, kept);
        let (found, answer) = service.post(&format!("{path}/retry")).await;
        assert_eq!(found, status, "{answer}");
        // What is repaired is taken in any case.
        let repaired = "{\"id\":3}\n";
        let (found, answer) = service
            .call("POST", &format!("{path}/retry"), repaired)
            .await;
        assert_eq!(found, 201, "{answer}");
    }
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reject_file_of_every_format_is_of_that_format() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(2)).await;
    let csv = "id,title\n1,One\n2\n3,Three\n4,Four,more\n";
    let id = service.import("format=csv&key=id&tenant=c", csv).await;
    let job = service.ended(&id).await;
    assert_eq!(
        (&job["records_done"], &job["records_rejected"]),
        (&2.into(), &2.into())
    );
    let rejects = service.text(&format!("/api/v1/imports/{id}/rejects")).await;
    assert_eq!(rejects, "id,title\n2\n4,Four,more\n");
    let bytes = book(1);
    let xml = crate::marc::tests::to_xml(&crate::marc::parse(&bytes).unwrap(), "");
    let bad = xml.replace("tag=\"245\"", "tag=\"2\"");
    let file = format!("<collection>{bad}{xml}</collection>");
    let id = service.import("format=marcxml&tenant=x", file).await;
    assert_eq!(service.ended(&id).await["records_rejected"], 1);
    let rejects = service.text(&format!("/api/v1/imports/{id}/rejects")).await;
    let (status, job) = service
        .call(
            "POST",
            &format!("/api/v1/imports/{id}/retry"),
            rejects.replace("tag=\"2\"", "tag=\"245\""),
        )
        .await;
    assert_eq!(status, 201, "{job}");
    let job = service.ended(job["id"].as_str().unwrap()).await;
    assert_eq!(
        (&job["state"], &job["records_updated"]),
        (&"completed".into(), &1.into())
    );
    let mut damaged = book(3);
    damaged.remove(30);
    let id = service
        .import("format=marc&tenant=m", damaged.clone())
        .await;
    assert_eq!(service.ended(&id).await["records_rejected"], 1);
    let rejects = service
        .bytes(&format!("/api/v1/imports/{id}/rejects"))
        .await;
    assert_eq!(rejects, damaged);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_in_pieces_goes_on_where_it_broke_off_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let file = books(0..300);
    let id = service
        .import("format=marc&tenant=t&resumable=true&idempotency_key=u", "")
        .await;
    let path = format!("/api/v1/imports/{id}");
    let piece = |offset: usize, last: bool| format!("{path}/file?offset={offset}&last={last}");
    let (status, job) = service
        .call("PATCH", &piece(0, false), file[..1_000].to_vec())
        .await;
    assert_eq!((status, &job["bytes_total"]), (200, &1_000.into()), "{job}");
    let (status, error) = service.call("PATCH", &piece(900, false), "x").await;
    assert_eq!(status, 409, "{error}");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("goes on at byte 1000"),
        "{error}"
    );
    // A piece that breaks off leaves what arrived of it.
    let broken = Body::new(http_body_util::StreamBody::new(Breaking(false)));
    let (status, _) = service.call("PATCH", &piece(1_000, false), broken).await;
    assert_eq!(status, 400);
    assert_eq!(service.get(&path).await["bytes_total"], 1_003);
    service.close().await;
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let job = service.get(&path).await;
    assert_eq!(
        (&job["state"], &job["bytes_total"]),
        (&"uploading".into(), &1_003.into())
    );
    // What the broken piece brought is no part of the file: begin anew under another key.
    let (status, _) = service.call("DELETE", &path, Body::empty()).await;
    assert_eq!(status, 200);
    let id = service
        .import("format=marc&tenant=t&resumable=true", "")
        .await;
    let path = format!("/api/v1/imports/{id}");
    let piece = |offset: usize, last: bool| format!("{path}/file?offset={offset}&last={last}");
    let half = file.len() / 2;
    service
        .call("PATCH", &piece(0, false), file[..half].to_vec())
        .await;
    let (status, job) = service
        .call("PATCH", &piece(half, true), file[half..].to_vec())
        .await;
    assert_eq!((status, &job["state"]), (200, &"running".into()), "{job}");
    assert_eq!(job["records_total"], 300);
    assert_eq!(service.ended(&id).await["records_done"], 300);
    let (status, error) = service.call("PATCH", &piece(file.len(), true), "x").await;
    assert_eq!(status, 409, "{error}");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_lost_its_lease_commits_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (service, id) = paused(folder.path()).await;
    service.post(&format!("/api/v1/imports/{id}/resume")).await;
    let registry = service.imports.core.registry.clone();
    let job = registry.job(&id).await.unwrap();
    let committed = commit_by_a_lost_lease(registry, job, async {}).await;
    assert_eq!(committed, Committed::Fenced);
    assert_eq!(service.ended(&id).await["records_done"], 3_000);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_the_database_while_a_topic_takes_long() {
    let folder = tempfile::tempdir().unwrap();
    let (service, id) = paused(folder.path()).await;
    let registry = service.imports.core.registry.clone();
    let job = registry.job(&id).await.unwrap();
    let (stored, is_stored) = tokio::sync::oneshot::channel();
    let commit = tokio::spawn(commit_by_a_lost_lease(registry, job, async {
        is_stored.await.unwrap();
    }));
    // It is written by a file's one writer, and ends while the topic has not answered.
    service.post(&format!("/api/v1/imports/{id}/resume")).await;
    assert_eq!(service.ended(&id).await["records_done"], 3_000);
    stored.send(()).unwrap();
    assert_eq!(commit.await.unwrap(), Committed::Late);
    service.close().await;
}

/// A service with an import of 3,000 records into the sink, which is paused unless it has ended already.
async fn paused(folder: &Path) -> (Service, String) {
    let service = Service::open(folder, small_slices(10)).await;
    let id = service
        .import("format=marc&sink=records", books(0..3_000))
        .await;
    service.post(&format!("/api/v1/imports/{id}/pause")).await;
    (service, id)
}

/// Commits a slice as a worker would that knows the job from before a pause, by a token that is of no use
/// any more, once the topic has it.
async fn commit_by_a_lost_lease(
    registry: Registry,
    job: Job,
    stored: impl Future<Output = ()>,
) -> Committed {
    let mut slice = crate::slice::Slice::default();
    slice.start = job.bytes_done;
    slice.end = job.bytes_done + 1;
    let lease = Lease {
        token: 1,
        lasts: Duration::from_secs(1),
    };
    let writing = Writing {
        lease,
        selectors: &Selectors::default(),
        rows: 1,
    };
    let sending = async {
        stored.await;
        Ok(vec![None])
    };
    let now = base::UnixMillis(0);
    let committed = registry.commit_slices(&job, vec![slice], sending, writing, now);
    committed.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_server_is_read_where_it_lies_if_its_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (open, closed) = (folder.path().join("open"), folder.path().join("closed"));
    for folder in [&open, &closed] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("books.mrc"), books(0..300)).unwrap();
    }
    std::os::unix::fs::symlink(closed.join("books.mrc"), open.join("link.mrc")).unwrap();
    let config = ImportsConfig {
        paths: vec![open.clone()],
        ..small_slices(20)
    };
    let service = Service::open(folder.path(), config).await;
    let query = |path: &Path| format!("/api/v1/imports?format=marc&path={}", path.display());
    for path in [
        closed.join("books.mrc"),
        open.join("link.mrc"),
        open.join("../closed/books.mrc"),
        open.join("none.mrc"),
        open.clone(),
    ] {
        let (status, error) = service.post(&query(&path)).await;
        assert_eq!(status, 400, "{}: {error}", path.display());
    }
    let (status, job) = service.post(&query(&open.join("books.mrc"))).await;
    assert_eq!((status, &job["records_total"]), (201, &300.into()), "{job}");
    let job = service.ended(job["id"].as_str().unwrap()).await;
    assert_eq!(job["records_done"], 300, "{job}");
    assert!(
        open.join("books.mrc").exists(),
        "the file is the operator's"
    );
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_of_weight_four_gets_on_four_times_as_fast() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(10)).await;
    let heavy_one = "heavy".parse().unwrap();
    service.imports.set_weight(&heavy_one, 4).await.unwrap();
    let query = |tenant: &str| format!("format=marc&sink=records&tenant={tenant}");
    // The light one first, so that both wait from the heavy one's first slice on.
    let light = service.import(&query("light"), books(0..6_000)).await;
    let heavy = service.import(&query("heavy"), books(0..3_000)).await;
    let path = format!("/api/v1/imports/{light}");
    let before = service.get(&path).await["records_done"].as_f64().unwrap();
    service.ended(&heavy).await;
    let done = service.get(&path).await["records_done"].as_f64().unwrap() - before;
    let ratio = 3_000.0 / done;
    assert!((2.8..6.0).contains(&ratio), "{ratio}");
    let tenants = service.get("/api/v1/imports/tenants").await;
    assert_eq!(tenants["tenants"][0]["weight"], 4, "{tenants}");
    service.call("DELETE", &path, Body::empty()).await;
    service.close().await;
    // The weight is still there after a restart.
    let service = Service::open(folder.path(), small_slices(10)).await;
    assert_eq!(
        service.get("/api/v1/imports/tenants").await["tenants"][0]["weight"],
        4
    );
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_class_is_that_of_its_jobs_that_name_none() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(10)).await;
    let class = async |query: &str| {
        let id = service
            .import(&format!("format=marc&tenant=t{query}"), books(0..1))
            .await;
        service.ended(&id).await["class"].clone()
    };
    assert_eq!(class("").await, "bulk");
    let tenant = "t".parse().unwrap();
    service.imports.set_class(&tenant, Class::Interactive);
    assert_eq!(class("").await, "interactive");
    assert_eq!(class("&class=bulk").await, "bulk");
    service.imports.set_class(&tenant, Class::Bulk);
    assert_eq!(class("").await, "bulk");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interactive_work_passes_a_backlog_of_the_same_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(10)).await;
    let load = service
        .import("format=marc&tenant=t", books(0..6_000))
        .await;
    let edit = service
        .import("format=marc&tenant=t&class=interactive", books(0..50))
        .await;
    assert_eq!(service.ended(&edit).await["class"], "interactive");
    let path = format!("/api/v1/imports/{load}");
    let job = service.get(&path).await;
    assert_eq!(job["state"], "running", "it waited for the load: {job}");
    service.call("DELETE", &path, Body::empty()).await;
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_interactive_import_starves_no_neighbour() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(10)).await;
    let bulk = service
        .import("format=marc&tenant=one", books(0..6_000))
        .await;
    let grand = service
        .import("format=marc&tenant=two&class=interactive", books(0..6_000))
        .await;
    assert_eq!(service.ended(&grand).await["class"], "interactive");
    let job = service.get(&format!("/api/v1/imports/{bulk}")).await;
    // Nine parts of ten of all would leave it some 700.
    assert!(job["records_done"].as_u64() > Some(2_500), "{job}");
    service.close().await;
}

/// On a file and on PostgreSQL: what is cancelled commits nothing any more, and the tenant's next job
/// begins at once.
#[tokio::test(flavor = "multi_thread")]
async fn cancelling_takes_less_than_a_second_and_frees_the_tenants_next_job() {
    for address in [
        None,
        Some(sql::test_servers::postgres().new_database().await),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = ImportsConfig {
            database: address.map(Into::into),
            ..ImportsConfig::default()
        };
        let service = Service::open(folder.path(), config).await;
        let query = |topic: &str| format!("format=marc&tenant=t&topic={topic}");
        let large = service.import(&query("large"), books(0..40_000)).await;
        let next = service.import(&query("next"), books(50_000..50_500)).await;
        let job = |id: &str| format!("/api/v1/imports/{id}");
        while service.get(&job(&large)).await["records_done"] == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(
            service.get(&job(&next)).await["records_done"],
            0,
            "oldest job first"
        );
        let asked = Instant::now();
        let (status, cancelled) = service.call("DELETE", &job(&large), Body::empty()).await;
        assert_eq!(
            (status, &cancelled["state"]),
            (200, &"cancelled".into()),
            "{cancelled}"
        );
        assert!(
            asked.elapsed() < Duration::from_secs(1),
            "{:?}",
            asked.elapsed()
        );
        assert!(
            cancelled["records_done"].as_u64().unwrap() < 40_000,
            "{cancelled}"
        );
        while service.get(&job(&next)).await["records_done"] == 0 {
            assert!(
                asked.elapsed() < Duration::from_secs(1),
                "the next job waits"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(service.ended(&next).await["records_done"], 500);
        // No commit of it came later, and its count is that of its rows.
        let after = service.get(&job(&large)).await;
        assert_eq!(after["records_done"], cancelled["records_done"]);
        let count =
            "SELECT count(*) AS found FROM import_records WHERE tenant = 't' AND id < '00050000'";
        let database = &service.imports.core.registry.database;
        let row = database.row("count", &sql::Statement::new(count)).await;
        let found = row.unwrap().unwrap().number("found").unwrap();
        assert_eq!(after["records_done"], found);
        service.close().await;
    }
}
