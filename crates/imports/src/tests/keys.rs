//! Records found again by what profiles match by, whatever imported them, on every kind of database.

use super::sinks::on_every_database;
use super::*;

/// Imports lines for the tenant `t`, with a profile where one is named; answers the job that ended.
async fn lines(service: &Service, profile: &str, lines: &str) -> Value {
    let query = match profile {
        "" => "format=jsonl&tenant=t&key=id&sink=records".to_owned(),
        name => format!("format=jsonl&tenant=t&sink=records&profile={name}"),
    };
    let id = service.import(&query, lines.to_owned()).await;
    service.ended(&id).await
}

/// How many records a job created, updated, skipped and rejected.
fn counts(job: &Value) -> [u64; 4] {
    ["created", "updated", "skipped", "rejected"]
        .map(|count| job[format!("records_{count}")].as_u64().unwrap())
}

/// Makes profiles that match by a field of their name, and replace what they find.
async fn profiles(service: &Service, names: &[&str]) {
    for name in names {
        let path = format!("/api/v1/profiles/{name}?tenant=t");
        let text = format!("{{\"id\":\"id\",\"match\":\"{name}\"}}");
        let (status, answer) = service.call("PUT", &path, text).await;
        assert_eq!(status, 200, "{answer}");
    }
}

async fn number(service: &Service, select: &str) -> i64 {
    let database = &service.imports.core.registry.database;
    let row = database.row("count", &sql::Statement::new(select)).await;
    row.unwrap().unwrap().number("n").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_imported_without_a_match_is_found_by_one() {
    on_every_database(|service| async move {
        profiles(&service, &["isbn"]).await;
        let own = |n: usize| format!("{{\"id\":\"r{n}\",\"isbn\":[\"a{n}\",\"b{n}\"]}}\n");
        lines(&service, "", &(0..330).map(own).collect::<String>()).await;
        // Its second value counts as its first.
        let other = |n: usize| format!("{{\"id\":\"x{n}\",\"isbn\":\"b{n}\",\"title\":\"x\"}}\n");
        let job = lines(&service, "isbn", &(325..335).map(other).collect::<String>()).await;
        assert_eq!(counts(&job), [5, 5, 0, 0], "{job}");
        let record = service.get("/api/v1/records/t/r329").await;
        assert_eq!(record["title"], "x", "{record}");
        // An import without a match takes no keys away, and brings those of what it writes.
        let new = own(1) + "{\"id\":\"r2\",\"isbn\":\"c\"}\n" + &own(900);
        assert_eq!(counts(&lines(&service, "", &new).await), [1, 2, 0, 0]);
        let found = "{\"id\":1,\"isbn\":\"b1\"}\n{\"id\":2,\"isbn\":\"c\"}\n{\"id\":3,\"isbn\":\"a900\"}\n";
        let job = lines(&service, "isbn", found).await;
        assert_eq!(counts(&job), [0, 3, 0, 0], "{job}");
        // What the records do not have any more is nobody's.
        let gone = "{\"id\":4,\"isbn\":\"a2\"}\n{\"id\":5,\"isbn\":\"a1\"}\n{\"id\":6,\"isbn\":\"a329\"}\n";
        let job = lines(&service, "isbn", gone).await;
        assert_eq!(counts(&job), [3, 0, 0, 0], "{job}");
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_another_selector_is_no_match() {
    on_every_database(|service| async move {
        profiles(&service, &["isbn", "ean"]).await;
        let first = "{\"id\":\"a\",\"isbn\":\"1\",\"title\":\"A\"}\n{\"id\":\"b\",\"ean\":\"2\"}\n";
        assert_eq!(counts(&lines(&service, "isbn", first).await), [2, 0, 0, 0]);
        let second = "{\"id\":\"c\",\"ean\":\"1\"}\n{\"id\":\"d\",\"ean\":\"2\",\"isbn\":\"3\"}\n";
        let job = lines(&service, "ean", second).await;
        assert_eq!(counts(&job), [1, 1, 0, 0], "{job}");
        assert_eq!(service.get("/api/v1/records/t/a").await["title"], "A");
        // What matched by one is found by the other, and what was found by one is so still.
        let third = "{\"id\":\"e\",\"isbn\":\"3\"}\n{\"id\":\"f\",\"isbn\":\"1\"}\n";
        let job = lines(&service, "isbn", third).await;
        assert_eq!(counts(&job), [0, 2, 0, 0], "{job}");
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_several_records_replaces_none() {
    on_every_database(|service| async move {
        profiles(&service, &["isbn"]).await;
        let both = "{\"id\":\"a\",\"isbn\":[1,2]}\n{\"id\":\"b\",\"isbn\":[2,3]}\n";
        lines(&service, "", both).await;
        let job = lines(&service, "isbn", "{\"id\":\"c\",\"isbn\":2}\n").await;
        assert_eq!(counts(&job), [0, 0, 0, 1], "{job}");
        let journal = service.journal(job["id"].as_str().unwrap()).await;
        let reason = "'a', 'b' are there already, by isbn; it can replace one alone";
        assert_eq!(journal[0]["reason"], reason);
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_runs_writes_the_keys_that_a_later_one_asks_for() {
    on_every_database(|service| async move {
        profiles(&service, &["isbn"]).await;
        let own = |n: usize| format!("{{\"id\":\"r{n}\",\"isbn\":\"a{n}\"}}\n");
        let query = "format=jsonl&tenant=t&key=id&sink=records";
        let long: String = (0..3_000).map(own).collect();
        let long = service.import(query, long).await;
        let job = lines(&service, "isbn", "{\"id\":1,\"isbn\":\"z\"}\n").await;
        assert_eq!(counts(&job), [1, 0, 0, 0], "{job}");
        let job = service.ended(&long).await;
        assert_eq!(counts(&job), [3_000, 0, 0, 0], "{job}");
        let keys = "SELECT count(DISTINCT id) AS n FROM import_keys";
        assert_eq!(number(&service, keys).await, 3_001);
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_were_begun_to_be_entered_are_brought_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let id = service
        .import("format=marc&tenant=t&sink=records", books(0..300))
        .await;
    service.ended(&id).await;
    let tenant = "t".parse().unwrap();
    let registry = &service.imports.core.registry;
    for _ in 0..3 {
        let is_done = registry.prepare_selector(&tenant, "245$a").await.unwrap();
        assert!(!is_done);
    }
    assert_eq!(
        number(&service, "SELECT count(*) AS n FROM import_keys").await,
        2 * limits::FILLED_AT_ONCE as i64
    );
    service.close().await;
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let profile = "{\"match\": \"245$a\", \"on_match\": \"skip\"}";
    let path = "/api/v1/profiles/title?tenant=t";
    assert_eq!(service.call("PUT", path, profile).await.0, 200);
    let id = service
        .import(
            "format=marc&tenant=t&profile=title&sink=records",
            books(0..310),
        )
        .await;
    let job = service.ended(&id).await;
    assert_eq!(counts(&job), [10, 0, 300, 0], "{job}");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_so_many_selectors_and_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    lines(&service, "", "{\"id\":1}\n").await;
    let tenant = "t".parse().unwrap();
    for number in 0..limits::SELECTORS_MAX {
        let text = format!("s{number}");
        let registry = &service.imports.core.registry;
        while !registry.prepare_selector(&tenant, &text).await.unwrap() {}
    }
    profiles(&service, &["isbn", "s3"]).await;
    let job = lines(&service, "isbn", "{\"id\":2}\n").await;
    assert_eq!(job["state"], "failed", "{job}");
    assert!(
        job["error"].as_str().unwrap().contains("32 selectors"),
        "{job}"
    );
    assert_eq!(
        lines(&service, "s3", "{\"id\":2}\n").await["state"],
        "completed"
    );
    service.close().await;
}
