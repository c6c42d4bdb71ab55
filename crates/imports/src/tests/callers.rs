//! What callers of tenants may have imported, and what their tenants' quotas do to it.

use access::{Access, Policy, Principal, Spent, TenantBound};
use axum::Extension;
use base::{Clock, TenantId};
use streams::{Caller, as_caller};

use super::*;

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// Two tenants, each with a member of its name.
fn two_tenants(folder: &Path) -> (Arc<Access>, Arc<Policy>) {
    let access = Arc::new(Access::open(&folder.join("access")).unwrap());
    for name in ["acme", "beta"] {
        let change = serde_json::json!({"members": [format!("User:of-{name}")]});
        let change = serde_json::from_value(change).unwrap();
        access.set_tenant(&tenant(name), &change).unwrap();
    }
    let policy = Policy {
        super_users: Vec::new(),
        allow_if_no_acl: true,
    };
    (access, Arc::new(policy))
}

/// A service whose calls are those of a user, and whose store knows the tenants.
async fn service_for(
    folder: &Path,
    config: ImportsConfig,
    (access, policy): &(Arc<Access>, Arc<Policy>),
    user: &str,
) -> Service {
    let service = Caller::service(access.clone(), policy.clone(), "imports");
    let mut opened = Service::open_on(folder, config, |store| as_caller(store, service)).await;
    let caller = Principal::user(user);
    let caller = Caller::new(access.clone(), policy.clone(), caller, "::1");
    opened.router = opened.router.layer(Extension(caller));
    opened
}

#[tokio::test(flavor = "multi_thread")]
async fn an_importer_needs_no_other_right_for_its_tenants_topics_and_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let drop = folder.path().join("drop");
    for name in ["acme", "beta"] {
        std::fs::create_dir_all(drop.join(name)).unwrap();
        std::fs::write(drop.join(name).join("f.jsonl"), "{}\n").unwrap();
    }
    let (access, _) = two_tenants(folder.path());
    // Nobody is allowed anything by an ACL.
    let (policy, acme) = (Arc::new(Policy::default()), tenant("acme"));
    for (user, place) in [("of-acme", "one"), ("eve", "two")] {
        let config = ImportsConfig {
            paths: vec![drop.clone()],
            ..ImportsConfig::default()
        };
        let at = folder.path().join(place);
        let own = Caller::service(access.clone(), policy.clone(), "imports");
        let mut service = Service::open_on(&at, config, |store| as_caller(store, own)).await;
        let caller = Caller::new(access.clone(), policy.clone(), Principal::user(user), "::1");
        let caller = caller.importing_for(acme.clone());
        service.router = service.router.layer(Extension(caller));
        let file = |name: &str| format!("path={}", drop.join(name).join("f.jsonl").display());
        for (more, status) in [
            ("", 201),
            ("topic=env.ns.acme.BOOKS", 201),
            ("topic=plain", 403),
            ("topic=imports-beta", 403),
            ("topic=env.ns.beta.BOOKS", 403),
            (&file("acme"), 201),
            (&file("beta"), 400),
        ] {
            let path = format!("/api/v1/imports?tenant=acme&format=jsonl&{more}");
            let (told, answer) = service.call("POST", &path, "{}\n").await;
            assert_eq!(told, status, "{user} {more}: {answer}");
        }
        service.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_imports_into_its_own_topics_and_from_its_own_folder_alone() {
    let folder = tempfile::tempdir().unwrap();
    let drop = folder.path().join("drop");
    for name in ["acme", "beta"] {
        std::fs::create_dir_all(drop.join(name)).unwrap();
        std::fs::write(drop.join(name).join("f.jsonl"), "{}\n").unwrap();
    }
    std::fs::write(drop.join("f.jsonl"), "{}\n").unwrap();
    let config = ImportsConfig {
        paths: vec![drop.clone()],
        urls: vec!["http://localhost:9/exports/".to_owned()],
        ..ImportsConfig::default()
    };
    let house = two_tenants(folder.path());
    let service = service_for(folder.path(), config, &house, "of-acme").await;
    let new = |more: &str| format!("/api/v1/imports?tenant=acme&format=jsonl&{more}");
    for topic in ["env.ns.beta.ORDERS", "imports-beta", "env.beta.BOOKS"] {
        let asked = new(&format!("topic={topic}"));
        let (status, error) = service.call("POST", &asked, "{}\n").await;
        assert_eq!(status, 403, "{topic}: {error}");
        let found = service.store.topic(&topic.parse().unwrap()).await;
        assert!(found.is_err(), "{topic} was made");
    }
    let refused = house.0.tenants().of(&tenant("acme")).refusals();
    assert_eq!(refused.len(), 3, "{refused:?}");
    let (status, error) = service
        .call("POST", &new("topic=__consumer_offsets"), "{}\n")
        .await;
    assert_eq!(status, 400, "{error}");
    for own in [
        "topic=env.ns.acme.ORDERS",
        "topic=imports-acme",
        "topic=plain",
    ] {
        let (status, job) = service.call("POST", &new(own), "{}\n").await;
        assert_eq!(status, 201, "{own}: {job}");
    }
    for (file, status) in [
        ("acme/f.jsonl", 201),
        ("beta/f.jsonl", 400),
        ("f.jsonl", 400),
    ] {
        let asked = new(&format!("path={}", drop.join(file).display()));
        let (found, told) = service.post(&asked).await;
        assert_eq!(found, status, "{file}: {told}");
    }
    for (address, status) in [
        ("beta/f", 400),
        ("f", 400),
        ("acme/../beta/f", 400),
        ("acme/f", 201),
    ] {
        let asked = new(&format!("url=http://localhost:9/exports/{address}"));
        let (found, told) = service.post(&asked).await;
        assert_eq!(found, status, "{address}: {told}");
    }
    // Nor does an older job of its tenant bring anything there.
    service.close().await;
    let config = ImportsConfig::default();
    let root = service_for(folder.path(), config.clone(), &house, "root").await;
    let (status, job) = root
        .call("POST", &new("topic=env.ns.beta.ORDERS"), "{}\nnothing\n")
        .await;
    assert_eq!(status, 201, "{job}");
    let id = job["id"].as_str().unwrap();
    root.ended(id).await;
    root.close().await;
    let service = service_for(folder.path(), config, &house, "of-acme").await;
    let (status, error) = service
        .call("POST", &format!("/api/v1/imports/{id}/retry"), "{}\n")
        .await;
    assert_eq!(status, 403, "{error}");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_records_name_their_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let id = service
        .import("format=jsonl&tenant=acme&topic=shared", "{}\n{}\n")
        .await;
    service.ended(&id).await;
    let config = ConsumerConfig::alone("test");
    let mut reader = service.store.consumer(config).await.unwrap();
    let topic: TopicName = "shared".parse().unwrap();
    reader.assign(vec![(topic, 0)]).await.unwrap();
    let records = reader.poll(Duration::from_secs(5), 1 << 20).await.unwrap();
    assert_eq!(records.len(), 2);
    for record in records {
        let named = (
            "thalweg.tenant".to_owned(),
            Some(bytes::Bytes::from("acme")),
        );
        assert_eq!(record.headers, [named]);
    }
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_waits_while_its_tenant_is_over_its_quotas_and_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let house = two_tenants(folder.path());
    let service = service_for(folder.path(), small_slices(10), &house, "root").await;
    let set = |quotas: Value| {
        let change = serde_json::from_value(serde_json::json!({"quotas": quotas})).unwrap();
        house.0.set_tenant(&tenant("acme"), &change).unwrap()
    };
    let kept = set(serde_json::json!({"records_per_second": 1_000}));
    assert_eq!(kept.quotas[&TenantBound::RecordsPerSecond], 1_000);
    // An hour's worth is spent.
    let account = house.0.tenants().of(&tenant("acme"));
    let now = SystemClock.now();
    account.charge(now, &kept.quotas, Spent::sent(1, 3_600_000));
    let lines = "{}\n".repeat(100);
    let held = service
        .import("format=jsonl&tenant=acme", lines.clone())
        .await;
    let other = service
        .import("format=jsonl&tenant=beta", lines.clone())
        .await;
    assert_eq!(service.ended(&other).await["records_done"], 100);
    let job = service.get(&format!("/api/v1/imports/{held}")).await;
    assert_eq!(
        (&job["state"], &job["records_done"]),
        (&"running".into(), &0.into()),
        "{job}"
    );
    set(serde_json::json!({"records_per_second": null}));
    assert_eq!(service.ended(&held).await["records_done"], 100);
    // Its records were counted, also in a topic that is nobody's by its name.
    let before = account.figures(SystemClock.now()).total.records;
    let id = service
        .import("format=jsonl&tenant=acme&topic=plain", lines.clone())
        .await;
    service.ended(&id).await;
    let after = account.figures(SystemClock.now()).total.records;
    assert_eq!(after - before, 100);
    // Who keeps as much as it may is paused, and goes on when there is room.
    set(serde_json::json!({"stored_bytes": 1_000}));
    account.note_stored(2_000);
    let id = service.import("format=jsonl&tenant=acme", lines).await;
    let job = service.ended(&id).await;
    assert_eq!(
        (&job["state"], &job["records_done"]),
        (&"paused".into(), &0.into()),
        "{job}"
    );
    assert!(
        job["error"].as_str().unwrap().contains("stored_bytes"),
        "{job}"
    );
    set(serde_json::json!({"stored_bytes": null}));
    let (status, job) = service.post(&format!("/api/v1/imports/{id}/resume")).await;
    assert_eq!(status, 200, "{job}");
    assert_eq!(service.ended(&id).await["records_done"], 100);
    service.close().await;
}

/// A body that begins, and goes on when it is let.
fn held() -> (tokio::sync::oneshot::Sender<()>, Body) {
    let (go_on, waits) = tokio::sync::oneshot::channel::<()>();
    (
        go_on,
        Body::new(http_body_util::StreamBody::new(Waiting(waits))),
    )
}

struct Waiting(tokio::sync::oneshot::Receiver<()>);

impl futures_core::Stream for Waiting {
    type Item = Result<http_body::Frame<bytes::Bytes>, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::pin::Pin::new(&mut self.0).poll(context).map(|_| None)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_uploads_of_one_tenant_keep_no_other_one_out() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let (mut senders, mut uploads) = (Vec::new(), Vec::new());
    for _ in 0..limits::UPLOADS.tenant_max {
        let (go_on, body) = held();
        let request = Request::post("/api/v1/imports?tenant=slow&format=jsonl");
        let request = request.body(body).unwrap();
        uploads.push(tokio::spawn(service.router.clone().oneshot(request)));
        senders.push(go_on);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while service.imports.core.live.lock().uploading.len() < uploads.len() {
        assert!(Instant::now() < deadline, "the uploads do not begin");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let path = |tenant: &str| format!("/api/v1/imports?tenant={tenant}&format=jsonl");
    let (status, error) = service.call("POST", &path("slow"), "{}\n").await;
    let reason = "uploads: the tenant has 16, as many as one may have; retry when one is done";
    assert_eq!(
        (status, &error["message"]),
        (429, &reason.into()),
        "{error}"
    );
    let (status, job) = service.call("POST", &path("other"), "{}\n").await;
    assert_eq!(status, 201, "{job}");
    for sender in senders {
        sender.send(()).unwrap();
    }
    for upload in uploads {
        assert_eq!(upload.await.unwrap().unwrap().status(), 201);
    }
    let (status, job) = service.call("POST", &path("slow"), "{}\n").await;
    assert_eq!(status, 201, "{job}");
    service.close().await;
}
