//! What is left of a tenant after a purge, on every kind of database.

use base::{Clock, UnixMillis};

use super::sinks::on_every_database;
use super::*;
use crate::Purged;

const TABLES: [&str; 9] = [
    "import_jobs",
    "import_records",
    "import_keys",
    "import_selectors",
    "import_profiles",
    "import_index_queue",
    "import_history",
    "import_journal",
    "import_slices",
];

/// Rows of a tenant in each table, as far as these have its name, and else of all.
async fn rows(service: &Service, tenant: &str) -> Vec<i64> {
    let mut found = Vec::new();
    let registry = &service.imports.core.registry;
    for table in TABLES {
        let text = format!("SELECT count(*) AS n FROM {table}");
        let count = match table {
            "import_journal" | "import_slices" => sql::Statement::new(text),
            _ => sql::Statement::new(text)
                .push(" WHERE tenant = ?")
                .bind(tenant),
        };
        let database = match table {
            "import_history" => &registry.counter,
            _ => &registry.database,
        };
        let row = database.row("count", &count).await.unwrap().unwrap();
        found.push(row.number("n").unwrap());
    }
    found
}

/// A job that ended with a reject, a record that is out, and a profile that matched.
async fn fill(service: &Service, tenant: &str) {
    let path = format!("/api/v1/profiles/p?tenant={tenant}");
    let profile = "{\"id\":\"id\",\"match\":\"isbn\"}";
    assert_eq!(service.call("PUT", &path, profile).await.0, 200);
    let line = |n: usize| format!("{{\"id\":\"r{n}\",\"isbn\":{n},\"title\":\"a word\"}}\n");
    let lines: String = (0..600).map(line).chain(["{\n".to_owned()]).collect();
    let query = format!("format=jsonl&tenant={tenant}&profile=p&sink=records");
    let job = service.import(&query, lines).await;
    let job = service.ended(&job).await;
    assert_eq!(
        (&job["records_created"], &job["records_rejected"]),
        (&600.into(), &1.into())
    );
    let out = format!("/api/v1/records/{tenant}/r7/check-out");
    assert_eq!(
        service.call("POST", &out, "{\"holder\":\"ada\"}").await.0,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_tenant_is_left_and_nothing_of_another_one_is_touched() {
    on_every_database(|service| async move {
        for tenant in ["gone", "stays"] {
            fill(&service, tenant).await;
        }
        // One that runs, and one whose file is coming.
        let long = service
            .import("format=marc&tenant=gone&topic=t", books(0..20_000))
            .await;
        let coming = service
            .import("format=marc&tenant=gone&resumable=true", Body::empty())
            .await;
        let before = rows(&service, "stays").await;
        let gone = "gone".parse().unwrap();
        let purged = service.imports.purge(&gone, None).await.unwrap();
        assert_eq!(
            (purged.jobs, purged.entries, purged.profiles),
            (3, 1, 1),
            "{purged:?}"
        );
        assert!(purged.records >= 600 && purged.history == 1, "{purged:?}");
        for id in [&long, &coming] {
            let path = format!("/api/v1/imports/{id}");
            assert_eq!(service.call("GET", &path, Body::empty()).await.0, 404);
            let file = service.imports.core.upload_path(id);
            assert!(!file.exists(), "{}", file.display());
        }
        let left = rows(&service, "gone").await;
        // The journal and the slices are the other's.
        assert_eq!(left[..7], [0; 7], "{left:?}");
        assert_eq!(rows(&service, "stays").await[..5], before[..5]);
        assert_eq!((before[7], left[7]), (2, 1));
        service.indexed().await;
        let found = service.get("/api/v1/search?tenant=gone&q=word").await;
        assert_eq!(found["total"], 0, "{found}");
        let found = service.get("/api/v1/search?tenant=stays&q=word").await;
        assert_eq!(found["total"], 600, "{found}");
        // Nothing is left for a second one, nor for who has the name next.
        let again = service.imports.purge(&gone, None).await.unwrap();
        assert_eq!(again, Purged::default());
        fill(&service, "gone").await;
        let record = service.get("/api/v1/records/gone/r7").await;
        assert_eq!(record["version"], 2, "{record}");
        service.close().await;
    })
    .await;
}

/// Two processes on one server, each with an index of its own; and one that was away meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn the_indexes_of_other_processes_forget_a_purged_tenant_by_themselves() {
    let address = sql::test_servers::postgres().new_database().await;
    let folder = tempfile::tempdir().unwrap();
    let config = ImportsConfig {
        database: Some(address.into()),
        ..small_slices(50)
    };
    let at = |name: &str| folder.path().join(name);
    let first = Service::open(&at("first"), config.clone()).await;
    for tenant in ["gone", "stays"] {
        fill(&first, tenant).await;
    }
    first.indexed().await;
    let tenants = ["gone", "stays"];
    let found = async |service: &Service| {
        let mut totals = Vec::new();
        for tenant in tenants {
            let path = format!("/api/v1/search?tenant={tenant}&q=word");
            totals.push(service.get(&path).await["total"].as_i64().unwrap());
        }
        totals
    };
    let known = |id: &str| crate::search::Document {
        id: id.to_owned(),
        title: Some("a word".to_owned()),
        text: String::new(),
    };
    for name in ["second", "third"] {
        let service = Service::open(&at(name), config.clone()).await;
        // What the queue gave to whoever asked first is not what the test is about.
        service.indexed().await;
        let core = &service.imports.core;
        for tenant in tenants {
            let _turn = core.search.turn.lock().await;
            let documents = [known("r7"), known("r8")];
            core.search.put(tenant, &documents).await.unwrap();
        }
        assert!(found(&service).await.iter().all(|total| *total >= 2));
        service.close().await;
    }
    let second = Service::open(&at("second"), config.clone()).await;
    let before = found(&second).await;
    let gone = "gone".parse().unwrap();
    first.imports.purge(&gone, None).await.unwrap();
    assert_eq!(found(&first).await[0], 0);
    let third = Service::open(&at("third"), config).await;
    for service in [&second, &third] {
        let deadline = Instant::now() + Duration::from_secs(60);
        while found(service).await[0] > 0 {
            assert!(Instant::now() < deadline, "the index keeps what is gone");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(found(&second).await, [0, before[1]]);
    // What the tenant has after it is found again: a mark is followed once.
    fill(&first, "gone").await;
    first.indexed().await;
    let all: i64 = found(&first).await[0] + found(&second).await[0] + found(&third).await[0];
    assert!(all >= 600, "{all}");
    for service in [first, second, third] {
        service.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn before_a_time_jobs_go_and_records_stay() {
    on_every_database(|service| async move {
        fill(&service, "t").await;
        let tenant = "t".parse().unwrap();
        let early = service.imports.purge(&tenant, Some(UnixMillis(1))).await;
        assert_eq!(early.unwrap(), Purged::default());
        let paused = service
            .import("format=marc&tenant=t&topic=t", books(0..20_000))
            .await;
        service
            .post(&format!("/api/v1/imports/{paused}/pause"))
            .await;
        let now = UnixMillis(SystemClock.now().0 + 1);
        let purged = service.imports.purge(&tenant, Some(now)).await.unwrap();
        let expected = Purged {
            jobs: 1,
            entries: 1,
            ..Purged::default()
        };
        assert_eq!(purged, expected);
        let job = service.get(&format!("/api/v1/imports/{paused}")).await;
        assert_eq!(job["state"], "paused", "{job}");
        let record = service.get("/api/v1/records/t/r7").await;
        assert_eq!(record["holder"], "ada", "{record}");
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_in_opensearch_forgets_a_tenant_too() {
    let (double, address) = super::opensearch::double().await;
    let folder = tempfile::tempdir().unwrap();
    let config = ImportsConfig {
        opensearch: Some(address.into()),
        ..small_slices(50)
    };
    let service = Service::open(folder.path(), config).await;
    for tenant in ["gone", "stays"] {
        fill(&service, tenant).await;
    }
    service.indexed().await;
    let purged = service.imports.purge(&"gone".parse().unwrap(), None).await;
    assert_eq!(purged.unwrap().records, 600);
    let double = double.lock();
    let left = double.documents.as_ref().unwrap();
    assert_eq!(left.len(), 600);
    assert!(left.values().all(|document| document["tenant"] == "stays"));
}
