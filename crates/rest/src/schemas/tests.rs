//! The registry as several processes share it, over restarts, and what callers may do.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::{
    Access, Acl, Credential, EVERY_HOST, Operation, PatternType, Permission, Policy, Principal,
    ResourceType, ScramHash, UserChange,
};
use axum::body::Body;
use axum::http::{Request, header};
use base::SystemClock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use streams::{Streams, StreamsConfig};
use tower::ServiceExt;

use super::format::SchemaType;
use super::record::{Mode, Reference};
use super::registering::NewSchema;
use super::settings::ConfigChange;
use super::state::Content;
use super::subject::DEFAULT_CONTEXT;
use super::{AskedVersion, SchemaError, SchemaRegistry, SchemasConfig, Sight, routes};
use crate::Logins;

struct Store {
    streams: Arc<Streams>,
    _folder: tempfile::TempDir,
}

impl Store {
    fn open() -> Store {
        let folder = tempfile::tempdir().unwrap();
        let (config, clock) = (StreamsConfig::default(), Arc::new(SystemClock));
        let (streams, _) = Streams::open(folder.path(), config, clock).unwrap();
        Store {
            streams,
            _folder: folder,
        }
    }

    /// A registry as another process would have it.
    fn registry(&self) -> Arc<SchemaRegistry> {
        let config = SchemasConfig {
            compatibility: super::Level::None,
            ..SchemasConfig::default()
        };
        SchemaRegistry::new(self.streams.store(), config).unwrap()
    }
}

/// What a caller sees from whom nothing is kept.
fn everybodys() -> Sight {
    Sight::of(None, Operation::Write)
}

/// An Avro schema that differs by a number.
fn fixed(size: usize) -> String {
    format!("{{\"type\":\"fixed\",\"name\":\"F\",\"size\":{size}}}")
}

/// Every version with its id and text.
fn all(registry: &SchemaRegistry) -> BTreeMap<(String, i32), (i32, String)> {
    let state = registry.log.state();
    let versions = state.subjects().flat_map(|(name, versions)| {
        versions.iter().map(move |(number, version)| {
            let schema = &version.schema;
            let told = (schema.id, schema.content.text.to_string());
            ((name.to_owned(), *number), told)
        })
    });
    versions.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_register_at_once_never_share_an_id_between_schemas() {
    let store = Store::open();
    let registries = [store.registry(), store.registry(), store.registry()];
    let mut tasks = tokio::task::JoinSet::new();
    for (process, registry) in registries.iter().enumerate() {
        for n in 0..20 {
            let registry = registry.clone();
            tasks.spawn(async move {
                // Schemas of its own, schemas that all have, and subjects that all write to.
                let own = fixed(1_000 * (process + 1) + n);
                let subject = format!("own-{process}-{}", n % 5);
                let first = registry
                    .register(&everybodys(), &subject, SchemaType::Avro, &own)
                    .await;
                let (subject, common) = (format!("common-{}", n % 3), fixed(10 + n));
                let second = registry
                    .register(&everybodys(), &subject, SchemaType::Avro, &common)
                    .await;
                [(own, first.unwrap().0), (common, second.unwrap().0)]
            });
        }
    }
    let mut ids: BTreeMap<i32, String> = BTreeMap::new();
    let mut texts: BTreeMap<String, i32> = BTreeMap::new();
    while let Some(answered) = tasks.join_next().await {
        for (text, id) in answered.unwrap() {
            assert_eq!(
                ids.entry(id).or_insert_with(|| text.clone()),
                &text,
                "id {id}"
            );
            assert_eq!(*texts.entry(text.clone()).or_insert(id), id, "{text}");
        }
    }
    assert_eq!(texts.len(), 3 * 20 + 20);
    // Everybody comes to the same, and so does one who reads it from the beginning.
    let late = store.registry();
    late.log.ready().await.unwrap();
    let expected = all(&late);
    assert_eq!(expected.len(), 3 * 20 + 20);
    for registry in &registries {
        registry.log.catch_up().await.unwrap();
        assert_eq!(all(registry), expected);
    }
    for (id, text) in ids {
        assert_eq!(
            late.by_id(&everybodys(), id).await.unwrap().canonical(),
            text
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_process_registered_is_found_at_once() {
    let store = Store::open();
    let (one, other) = (store.registry(), store.registry());
    other.log.ready().await.unwrap();
    for n in 1..50 {
        let (id, _) = one
            .register(&everybodys(), "s", SchemaType::Avro, &fixed(n))
            .await
            .unwrap();
        assert_eq!(
            other.by_id(&everybodys(), id).await.unwrap().canonical(),
            fixed(n)
        );
        let version = i32::try_from(n).unwrap();
        let (found, _) = other.version(&everybodys(), "s", version).await.unwrap();
        assert_eq!(found, id);
    }
    let (last, _) = other.latest(&everybodys(), "s").await.unwrap();
    assert_eq!(last, 49);
    let missing = other.by_id(&everybodys(), 50).await.unwrap_err();
    assert_eq!(missing.code(), 40403);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_process_wrote_just_now_is_not_passed_over() {
    let store = Store::open();
    let (one, other) = (store.registry(), store.registry());
    other.log.ready().await.unwrap();
    let json = r#"{"type": "record", "name": "R", "fields": [{"name": "f", "type": "F"}]}"#;
    for n in 1..50 {
        let subject = format!("s{n}");
        let (id, _) = one
            .register(&everybodys(), &subject, SchemaType::Avro, &fixed(n))
            .await
            .unwrap();
        // A schema that names it, though only the other process knows it yet.
        let naming = NewSchema {
            references: vec![Reference {
                name: "F".to_owned(),
                subject: subject.clone(),
                version: 1,
            }],
            ..NewSchema::of(SchemaType::Avro, json)
        };
        let named = other.register_new("naming", naming, false).await.unwrap();
        assert_eq!(named.id, id + 1);
        // Settings stay beside each other, and a mode holds.
        let normalize = ConfigChange {
            normalize: Some(Some(true)),
            ..ConfigChange::default()
        };
        let group = ConfigChange {
            compatibility_group: Some(Some("g".to_owned())),
            ..ConfigChange::default()
        };
        one.set_config(Some(&subject), normalize).await.unwrap();
        other.set_config(Some(&subject), group).await.unwrap();
        let set = other.log.state().config(Some(&subject)).cloned().unwrap();
        assert_eq!(
            (set.normalize, set.compatibility_group.as_deref()),
            (Some(true), Some("g"))
        );
        let mode = Mode::Readonly;
        one.set_mode(Some(&subject), mode, false).await.unwrap();
        let later = fixed(100 + n);
        let refused = other
            .register(&everybodys(), &subject, SchemaType::Avro, &later)
            .await;
        assert_eq!(refused.unwrap_err().code(), 42205);
        assert_eq!(other.unset_mode(Some(&subject), false).await.unwrap(), mode);
        one.register(&everybodys(), &subject, SchemaType::Avro, &fixed(100 + n))
            .await
            .unwrap();
        let deleted = other.delete_subject(&subject, false).await;
        assert_eq!(deleted.unwrap_err().code(), 42206, "version 1 is named");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_go_on_after_what_was_deleted_for_good() {
    let store = Store::open();
    let registry = store.registry();
    for n in 1..=3 {
        registry
            .register(&everybodys(), "s", SchemaType::Avro, &fixed(n))
            .await
            .unwrap();
    }
    registry.delete_subject("s", false).await.unwrap();
    registry.delete_subject("s", true).await.unwrap();
    assert!(all(&registry).is_empty());
    // A compacted topic has lost the schemas; what is left tells of their ids.
    let kept = registry.log.state().id_maxima();
    assert_eq!(kept.id_max[DEFAULT_CONTEXT], 3);
    let again = store.registry();
    let (id, _) = again
        .register(&everybodys(), "s", SchemaType::Avro, &fixed(9))
        .await
        .unwrap();
    assert_eq!(id, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_deleted_is_made_anew() {
    let store = Store::open();
    let registry = store.registry();
    registry
        .register(&everybodys(), "s", SchemaType::Avro, &fixed(1))
        .await
        .unwrap();
    let topic = "_schemas".parse().unwrap();
    store.streams.store().delete_topic(&topic).await.unwrap();
    // Whatever the first call is answered, the registry comes back.
    let mut answered = registry
        .register(&everybodys(), "s", SchemaType::Avro, &fixed(2))
        .await;
    for _ in 0..3 {
        if answered.is_err() {
            answered = registry
                .register(&everybodys(), "s", SchemaType::Avro, &fixed(2))
                .await;
        }
    }
    answered.unwrap();
    assert_eq!(all(&registry).len(), 1);
    let found = registry.version(&everybodys(), "s", 1).await.unwrap();
    assert_eq!(found.1.canonical(), fixed(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_registry_says_so() {
    let store = Store::open();
    let registry = store.registry();
    registry.close();
    let refused = registry
        .register(&everybodys(), "s", SchemaType::Avro, &fixed(1))
        .await;
    assert!(matches!(refused, Err(SchemaError::Closed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_deleted_by_two_processes_at_once_are_deleted() {
    let store = Store::open();
    let (one, other) = (store.registry(), store.registry());
    for n in 1..=10 {
        one.register(&everybodys(), "s", SchemaType::Avro, &fixed(n))
            .await
            .unwrap();
    }
    other.log.ready().await.unwrap();
    for version in 1..=10 {
        let asked = AskedVersion::Number(version);
        let (first, second) = tokio::join!(
            one.delete_version("s", asked, false),
            other.delete_version("s", asked, false)
        );
        // Both may have deleted it, or one was told that it was deleted already.
        let is_told = |outcome: &Result<i32, SchemaError>| {
            outcome
                .as_ref()
                .map_or_else(|error| error.code() == 40406, |n| *n == version)
        };
        assert!(is_told(&first) && is_told(&second), "{first:?} {second:?}");
        assert!(first.is_ok() || second.is_ok());
    }
    let state = one.log.state();
    assert!(
        state
            .versions("s")
            .unwrap()
            .values()
            .all(|version| version.is_deleted)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_and_schemas_have_bounds() {
    let store = Store::open();
    let config = SchemasConfig {
        body_bytes_max: base::ByteSize::mib(2),
        ..SchemasConfig::default()
    };
    let registry = SchemaRegistry::new(store.streams.store(), config).unwrap();
    let router = routes(registry, None, None);
    let register = async |bytes: usize| {
        let text = format!("\"int\"{}", " ".repeat(bytes));
        let body = serde_json::json!({"schema": text}).to_string();
        let request = Request::post("/subjects/s/versions").body(Body::from(body));
        let response = router.clone().oneshot(request.unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        (status, body["error_code"].as_u64())
    };
    assert_eq!(register(999_000).await, (200, None));
    assert_eq!(register(1_000_000).await, (422, Some(42209)));
    assert_eq!(register(2 << 20).await, (413, Some(413)));
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_need_rights_on_the_topic_of_schemas() {
    let store = Store::open();
    let folder = tempfile::tempdir().unwrap();
    let access = Arc::new(Access::open(folder.path()).unwrap());
    for name in ["reader", "writer", "keeper", "nobody"] {
        let credential = Credential::of_password(ScramHash::Sha256, name, 4_096).unwrap();
        let change = UserChange::Set(name.to_owned(), credential);
        access.alter_users(&[change]).unwrap();
    }
    let rights = [
        ("reader", Operation::Read),
        ("writer", Operation::Read),
        ("writer", Operation::Write),
        ("keeper", Operation::Delete),
        ("keeper", Operation::AlterConfigs),
    ];
    for (name, operation) in rights {
        let acl = Acl {
            resource_type: ResourceType::Topic,
            resource_name: "_schemas".to_owned(),
            pattern_type: PatternType::Literal,
            principal: Principal::user(name),
            host: EVERY_HOST.to_owned(),
            operation,
            permission: Permission::Allow,
        };
        access.add_acls(vec![acl]).unwrap();
    }
    let policy = Policy {
        super_users: Vec::new(),
        allow_if_no_acl: false,
    };
    let logins = Logins::new(access, policy, None, Arc::new(SystemClock));
    let router = routes(store.registry(), Some(logins), None);
    let ask = async |user: &str, method: &str, path: &str, body: &str| {
        let credentials = STANDARD.encode(format!("{user}:{user}"));
        let request = Request::builder().method(method).uri(path);
        let request = match user {
            "" => request,
            _ => request.header(header::AUTHORIZATION, format!("Basic {credentials}")),
        };
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        response.status().as_u16()
    };
    let (versions, schema) = ("/subjects/s/versions", r#"{"schema": "\"int\""}"#);
    let level = r#"{"compatibility": "NONE"}"#;
    assert_eq!(ask("", "GET", "/subjects", "").await, 401);
    assert_eq!(ask("nobody", "GET", "/subjects", "").await, 403);
    assert_eq!(ask("reader", "GET", "/subjects", "").await, 200);
    assert_eq!(ask("reader", "POST", versions, schema).await, 403);
    assert_eq!(ask("writer", "POST", versions, schema).await, 200);
    assert_eq!(ask("reader", "POST", "/subjects/s", schema).await, 200);
    let compare = "/compatibility/subjects/s/versions/latest";
    assert_eq!(ask("reader", "POST", compare, schema).await, 200);
    assert_eq!(ask("writer", "PUT", "/config", level).await, 403);
    assert_eq!(ask("keeper", "PUT", "/config", level).await, 200);
    assert_eq!(ask("writer", "DELETE", "/subjects/s", "").await, 403);
    assert_eq!(ask("keeper", "DELETE", "/subjects/s", "").await, 200);
    assert_eq!(
        ask("keeper", "PUT", "/mode", r#"{"mode": "READONLY"}"#).await,
        200
    );
    assert_eq!(ask("writer", "DELETE", "/mode", "").await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_subjects_are_there_for_nobody_of_another_one() {
    let store = Store::open();
    let folder = tempfile::tempdir().unwrap();
    let access = Arc::new(Access::open(folder.path()).unwrap());
    for name in ["ann", "bob", "root"] {
        let credential = Credential::of_password(ScramHash::Sha256, name, 4_096).unwrap();
        let change = UserChange::Set(name.to_owned(), credential);
        access.alter_users(&[change]).unwrap();
    }
    for (tenant, member) in [("acme", "User:ann"), ("beta", "User:bob")] {
        let change = serde_json::json!({"members": [member]});
        let change = serde_json::from_value(change).unwrap();
        access
            .set_tenant(&tenant.parse().unwrap(), &change)
            .unwrap();
    }
    // The topic itself is none of theirs, and what they may do in the registry goes by it all the same.
    access.close_to_members(["_schemas".to_owned()]);
    let policy = Policy {
        super_users: Vec::new(),
        allow_if_no_acl: true,
    };
    let logins = Logins::new(access.clone(), policy, None, Arc::new(SystemClock));
    let router = routes(store.registry(), Some(logins), None);
    let ask = async |user: &str, method: &str, path: &str, body: &str| {
        let credentials = STANDARD.encode(format!("{user}:{user}"));
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::AUTHORIZATION, format!("Basic {credentials}"));
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let schema = |name: &str| {
        let schema = format!(r#"{{"type":"record","name":"{name}","fields":[]}}"#);
        serde_json::json!({ "schema": schema }).to_string()
    };
    let register = async |user: &str, subject: &str, body: &str| {
        let path = format!("/subjects/{subject}/versions");
        let (status, body) = ask(user, "POST", &path, body).await;
        let id = serde_json::from_str::<serde_json::Value>(&body).unwrap()["id"].as_u64();
        (status, id.unwrap_or_default())
    };
    let (of_beta, of_acme) = ("env.ns.beta.ORDERS-value", "env.ns.acme.ORDERS-value");
    let (status, secret) = register("bob", of_beta, &schema("Secret")).await;
    assert_eq!(status, 200);
    assert_eq!(register("bob", ":.beta:x", &schema("Hidden")).await.0, 200);
    assert_eq!(register("ann", of_acme, &schema("Own")).await.0, 200);
    assert_eq!(register("root", "plain", &schema("Plain")).await.0, 200);
    let hidden = Content {
        kind: SchemaType::Avro,
        text: r#"{"type":"record","name":"Hidden","fields":[]}"#.into(),
        references: Vec::new(),
        metadata: None,
        rule_set: None,
    };
    let guid = hidden.guid();
    let path = format!("/schemas/guids/{guid}/ids");
    let told = r#"[{"context":".beta","id":1}]"#.to_owned();
    assert_eq!(ask("bob", "GET", &path, "").await, (200, told));
    let own = format!(r#"["{of_acme}","plain"]"#);
    assert_eq!(ask("ann", "GET", "/subjects", "").await, (200, own));
    assert_eq!(ask("ann", "GET", "/contexts", "").await.1, r#"["."]"#);
    assert_eq!(
        ask("bob", "GET", "/contexts", "").await.1,
        r#"[".",".beta"]"#
    );
    let (_, all) = ask("ann", "GET", "/schemas", "").await;
    assert!(all.contains("Own") && !all.contains("Secret"), "{all}");
    assert!(!all.contains("Hidden"), "{all}");
    for (method, path, body, expected) in [
        ("GET", format!("/subjects/{of_beta}/versions"), "", 403),
        ("GET", format!("/subjects/{of_beta}/versions/1"), "", 403),
        ("GET", "/subjects/:.beta:x/versions/1".to_owned(), "", 403),
        (
            "GET",
            "/contexts/.beta/subjects/x/versions/1".to_owned(),
            "",
            403,
        ),
        ("DELETE", format!("/subjects/{of_beta}"), "", 403),
        ("GET", format!("/config/{of_beta}"), "", 403),
        ("GET", format!("/schemas/ids/{secret}"), "", 404),
        ("GET", format!("/schemas/ids/{secret}/schema"), "", 404),
        ("GET", format!("/schemas/ids/{secret}/subjects"), "", 404),
        ("GET", "/schemas/ids/1?subject=x".to_owned(), "", 404),
        ("GET", format!("/schemas/guids/{guid}"), "", 404),
        ("GET", format!("/schemas/guids/{guid}/ids"), "", 404),
        ("DELETE", "/contexts/.beta".to_owned(), "", 403),
        (
            "PUT",
            "/config".to_owned(),
            r#"{"compatibility": "NONE"}"#,
            403,
        ),
        ("DELETE", "/mode".to_owned(), "", 403),
        ("GET", "/config".to_owned(), "", 200),
        (
            "PUT",
            format!("/config/{of_acme}"),
            r#"{"compatibility": "NONE"}"#,
            200,
        ),
        ("GET", "/subjects/plain/versions/1".to_owned(), "", 200),
        (
            "PUT",
            format!("/config/{of_acme}"),
            r#"{"alias": "env.ns.beta.ORDERS-value"}"#,
            403,
        ),
    ] {
        let (status, told) = ask("ann", method, &path, body).await;
        assert_eq!(status, expected, "{method} {path}: {told}");
        assert!(!told.contains("Secret"), "{method} {path}: {told}");
    }
    // An alias that another one sets leads nobody to what is not theirs.
    let (to_beta, path) = (
        format!(r#"{{"alias": "{of_beta}"}}"#),
        "/config/leads-there",
    );
    assert_eq!(ask("root", "PUT", path, &to_beta).await.0, 200);
    for (user, expected) in [("ann", 403), ("bob", 200)] {
        let (status, told) = ask(user, "GET", "/subjects/leads-there/versions/1", "").await;
        assert_eq!(status, expected, "{user}: {told}");
    }
    let resting = serde_json::json!({
        "schema": r#"{"type":"record","name":"Peeks","fields":[{"name":"s","type":"Secret"}]}"#,
        "references": [{"name": "Secret", "subject": of_beta, "version": 1}],
    });
    assert_eq!(register("ann", of_acme, &resting.to_string()).await.0, 403);
    // Who has the same schema knows its id.
    assert_eq!(
        register("ann", "same", &schema("Secret")).await,
        (200, secret)
    );
    let (_, uses) = ask("ann", "GET", &format!("/schemas/ids/{secret}/subjects"), "").await;
    assert_eq!(uses, r#"["same"]"#);
    // Nothing is kept off a caller of no tenant.
    let (_, all) = ask("root", "GET", "/subjects", "").await;
    assert!(all.contains(of_beta) && all.contains(":.beta:x"), "{all}");
    let kept = access.tenants().of(&"acme".parse().unwrap()).refusals();
    assert!(
        kept.iter().any(|it| it.claimed == "env.ns.beta.ORDERS"),
        "{kept:?}"
    );
}
