//! Access control over HTTP: who is let in, and what they may do then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use access::{
    Access, Acl, Credential, EVERY_HOST, Operation, PasswordForm, PatternType, Permission, Policy,
    Principal, ResourceType, ScramHash, Token, UserChange,
};
use axum::body::Body;
use axum::http::{Request, header};
use axum::routing::get;
use axum::{Extension, Router};
use base::SystemClock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use streams::{EventStore, ProduceBatch, Record, Streams, StreamsConfig, StreamsError};
use tokio::io::AsyncWriteExt;
use tower::ServiceExt;

use crate::{
    Logins, Openings, Peer, RestConfig, RestHandle, SchemaRegistry, SchemasConfig,
    access_management, callers_known, management, records_management, rights_asked, routes,
    schema_management,
};

struct Doors {
    proxy: Router,
    management: Router,
    access: Arc<Access>,
    store: Arc<dyn EventStore>,
    logins: Arc<Logins>,
    _handle: RestHandle,
    streams: Arc<Streams>,
    _folder: tempfile::TempDir,
}

struct Told {
    status: u16,
    body: String,
    asks: bool,
}

impl Doors {
    /// Ann, bob and root, who may do everything; every password is the name twice.
    fn open() -> Doors {
        let folder = tempfile::tempdir().unwrap();
        let access = Arc::new(Access::open(&folder.path().join("access")).unwrap());
        for name in ["ann", "bob", "root"] {
            let password = format!("{name}{name}");
            let credential = Credential::of_password(ScramHash::Sha256, &password, 4_096);
            let change = UserChange::Set(name.to_owned(), credential.unwrap());
            access.alter_users(&[change]).unwrap();
        }
        let clock = Arc::new(SystemClock);
        let opened = Streams::open(folder.path(), StreamsConfig::default(), clock.clone());
        let (streams, _) = opened.unwrap();
        let store = streams.store();
        let policy = Policy {
            super_users: vec![Principal::user("root")],
            allow_if_no_acl: false,
        };
        let logins = Logins::new(Arc::clone(&access), policy, None, clock.clone());
        let config = RestConfig::default();
        let (proxy, handle) = routes(
            store.clone(),
            config,
            clock,
            Some(logins.clone()),
            None,
            None,
        );
        let openings = Openings {
            paths: vec!["/health"],
            prefixes: vec!["/c2/"],
            pages: vec!["/page"],
            judges: |path| path.starts_with("/own/"),
            owner_of_job: None,
        };
        let open = Router::new().route("/health", get(async || "UP"));
        let open = open.route("/c2/heartbeat", get(async || "UP"));
        let open = open.route("/page", get(async || "page"));
        let judged = async |Extension(granted): Extension<Arc<access::Granted>>| {
            format!("judged by {}", granted.roles)
        };
        let open = open.route("/own/things", get(judged));
        let open = open.route("/own/openapi.json", get(judged));
        let registry = SchemaRegistry::new(store.clone(), SchemasConfig::default()).unwrap();
        let all = management(store.clone())
            .merge(records_management(store.clone(), None, Some(&logins)))
            .merge(schema_management(registry, Some(&logins)))
            .merge(open);
        Doors {
            proxy,
            management: callers_known(
                rights_asked(all, logins.clone(), openings.clone()),
                logins.clone(),
                openings,
            ),
            access,
            store,
            logins,
            _handle: handle,
            streams,
            _folder: folder,
        }
    }

    fn allow(&self, name: &str, operation: Operation, kind: ResourceType, resource: &str) {
        self.rule(Permission::Allow, name, operation, kind, resource);
    }

    fn rule(
        &self,
        permission: Permission,
        name: &str,
        operation: Operation,
        resource_type: ResourceType,
        resource: &str,
    ) {
        let acl = Acl {
            resource_type,
            resource_name: resource.to_owned(),
            pattern_type: PatternType::Literal,
            principal: Principal::user(name),
            host: EVERY_HOST.to_owned(),
            operation,
            permission,
        };
        self.access.add_acls(vec![acl]).unwrap();
    }
}

/// Sends a request as `who`, or as nobody when that is empty.
async fn send(to: &Router, who: &str, method: &str, path: &str, body: &str) -> Told {
    let mut request = Request::builder().method(method).uri(path);
    if !who.is_empty() {
        let text = STANDARD.encode(format!("{who}:{who}{who}"));
        request = request.header(header::AUTHORIZATION, format!("Basic {text}"));
    }
    request = match path.starts_with("/api/") {
        true => request.header(header::CONTENT_TYPE, "application/json"),
        false => request.header(header::CONTENT_TYPE, "application/vnd.kafka.json.v2+json"),
    };
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = to.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let asks = response.headers().contains_key(header::WWW_AUTHENTICATE);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Told {
        status,
        body: String::from_utf8(body.to_vec()).unwrap(),
        asks,
    }
}

/// Sends a request with an `Authorization` header and from somebody with a certificate.
async fn send_shown(to: &Router, shown: &str, certificate: Option<&str>, path: &str) -> u16 {
    send_from(to, "10.0.0.1", shown, certificate, path).await
}

/// The same from an address.
async fn send_from(
    to: &Router,
    ip: &str,
    shown: &str,
    certificate: Option<&str>,
    path: &str,
) -> u16 {
    let peer = Peer {
        ip: ip.parse().unwrap(),
        certificate: certificate.map(Principal::user),
    };
    let mut request = Request::get(path).extension(peer);
    if !shown.is_empty() {
        request = request.header(header::AUTHORIZATION, shown);
    }
    let request = request.body(Body::empty()).unwrap();
    let response = to.clone().oneshot(request).await.unwrap();
    response.status().as_u16()
}

#[tokio::test]
async fn a_token_stands_for_its_user_until_it_is_removed() {
    let doors = Doors::open();
    let tokens = access_management(Arc::clone(&doors.access));
    let asked = r#"{"user": "ann", "description": "nightly"}"#;
    let issued = send(&tokens, "", "POST", "/api/v1/tokens", asked).await;
    assert_eq!(issued.status, 201, "{}", issued.body);
    let issued: serde_json::Value = serde_json::from_str(&issued.body).unwrap();
    let (id, text) = (
        issued["id"].as_str().unwrap(),
        issued["token"].as_str().unwrap(),
    );
    let good_for = issued["expires_ms"].as_i64().unwrap() - issued["created_ms"].as_i64().unwrap();
    assert_eq!(good_for, 90 * 24 * 3_600_000);
    let bearer = format!("Bearer {text}");
    doors.allow("ann", Operation::Describe, ResourceType::Topic, "t");
    assert_eq!(
        send_shown(&doors.proxy, &bearer, None, "/topics").await,
        200
    );
    // The list tells everything but the token.
    let listed = send(&tokens, "", "GET", "/api/v1/tokens?user=ann", "").await;
    assert!(
        listed.body.contains(id) && listed.body.contains("nightly"),
        "{}",
        listed.body
    );
    assert!(!listed.body.contains(text));
    let none = send(&tokens, "", "GET", "/api/v1/tokens?user=bob", "").await;
    assert_eq!(none.body, r#"{"tokens":[]}"#);
    for wrong in [
        &bearer[..bearer.len() - 1],
        "Bearer thalweg_",
        "Bearer a.b.c",
        "Bearer x",
    ] {
        assert_eq!(
            send_shown(&doors.proxy, wrong, None, "/topics").await,
            401,
            "{wrong}"
        );
    }
    let path = format!("/api/v1/tokens/{id}");
    assert_eq!(send(&tokens, "", "DELETE", &path, "").await.status, 204);
    assert_eq!(send(&tokens, "", "DELETE", &path, "").await.status, 404);
    assert_eq!(
        send_shown(&doors.proxy, &bearer, None, "/topics").await,
        401
    );
    let unknown = send(&tokens, "", "POST", "/api/v1/tokens", r#"{"user": "eve"}"#).await;
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    doors.streams.close().await;
}

#[tokio::test]
async fn a_token_expires() {
    let doors = Doors::open();
    let [second, hour] = [1, 3_600].map(std::time::Duration::from_secs);
    let now = base::Clock::now(&SystemClock);
    let (old, old_text) = Token::issue("root", "", now - second, Some(second)).unwrap();
    let (fresh, fresh_text) = Token::issue("root", "", now, Some(hour)).unwrap();
    for token in [old, fresh] {
        doors.access.add_token(token).unwrap();
    }
    for (text, status) in [(old_text, 401), (fresh_text, 200)] {
        let shown = format!("Bearer {text}");
        assert_eq!(
            send_shown(&doors.proxy, &shown, None, "/topics").await,
            status
        );
        assert_eq!(
            send_shown(&doors.management, &shown, None, "/api/v1/topics").await,
            status
        );
    }
    doors.streams.close().await;
}

#[tokio::test]
async fn a_certificate_says_who_calls_unless_the_request_does() {
    let doors = Doors::open();
    let (management, path) = (&doors.management, "/api/v1/topics");
    assert_eq!(send_shown(management, "", Some("root"), path).await, 200);
    assert_eq!(send_shown(management, "", Some("ann"), path).await, 403);
    let as_ann = format!("Basic {}", STANDARD.encode("ann:annann"));
    assert_eq!(
        send_shown(management, &as_ann, Some("root"), path).await,
        403
    );
    assert_eq!(
        send_shown(management, "Basic x", Some("root"), path).await,
        401
    );
    doors.streams.close().await;
}

/// Wrong passwords from one address neither hold up those who log in from another one nor stop
/// the runtime, whatever they cost.
#[tokio::test]
async fn a_flood_of_wrong_passwords_holds_nobody_else_up() {
    let doors = Doors::open();
    let forms = [PasswordForm::Argon2id];
    let changes = PasswordForm::changes(&forms, "bob", "bobbob", 4_096).unwrap();
    doors.access.alter_users(&changes).unwrap();
    doors.allow("bob", Operation::Describe, ResourceType::Topic, "t");
    let answered = Arc::new(AtomicUsize::new(0));
    let flood: Vec<_> = (0..FLOOD)
        .map(|n| {
            let (proxy, answered) = (doors.proxy.clone(), Arc::clone(&answered));
            tokio::spawn(async move {
                let wrong = format!("Basic {}", STANDARD.encode(format!("bob:{n}")));
                let status = send_from(&proxy, "10.0.0.66", &wrong, None, "/topics").await;
                answered.fetch_add(1, Ordering::SeqCst);
                status
            })
        })
        .collect();
    // All of them stand in the queue when the runtime comes here again.
    tokio::task::yield_now().await;
    let mut longest = Duration::ZERO;
    let right = format!("Basic {}", STANDARD.encode("bob:bobbob"));
    let login = send_from(&doors.proxy, "10.0.0.7", &right, None, "/topics");
    let mut login = std::pin::pin!(login);
    let status = loop {
        let began = Instant::now();
        tokio::select! {
            status = &mut login => break status,
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                longest = longest.max(began.elapsed());
            }
        }
    };
    assert_eq!(status, 200);
    let answered = answered.load(Ordering::SeqCst);
    assert!(answered < FLOOD / 2, "{answered} were answered before");
    assert!(longest < Duration::from_millis(500), "{longest:?}");
    for status in flood {
        assert_eq!(status.await.unwrap(), 401);
    }
    doors.streams.close().await;
}

const FLOOD: usize = 50;

#[tokio::test]
async fn a_user_may_be_made_for_logins_that_show_the_password_alone() {
    let doors = Doors::open();
    let users = access_management(Arc::clone(&doors.access));
    let asked = r#"{"password": "caracara", "mechanisms": ["ARGON2ID"]}"#;
    let made = send(&users, "", "PUT", "/api/v1/users/cara", asked).await;
    assert_eq!(made.status, 204, "{}", made.body);
    let unknown = r#"{"password": "x", "mechanisms": ["MD5"]}"#;
    let refused = send(&users, "", "PUT", "/api/v1/users/cara", unknown).await;
    assert_eq!(refused.status, 422);
    assert!(refused.body.contains("ARGON2ID"), "{}", refused.body);
    let listed = send(&users, "", "GET", "/api/v1/users", "").await;
    let cara = r#"{"credentials":[{"mechanism":"ARGON2ID"}],"name":"cara"}"#;
    assert!(listed.body.contains(cara), "{}", listed.body);
    assert!(!listed.body.contains("$argon2id"), "{}", listed.body);
    doors.allow("cara", Operation::Describe, ResourceType::Topic, "t");
    let told = send(&doors.proxy, "cara", "GET", "/topics", "").await;
    assert_eq!(told.status, 200, "{}", told.body);
    // Without mechanisms a password is kept in every form.
    let all = send(
        &users,
        "",
        "PUT",
        "/api/v1/users/dan",
        r#"{"password": "d"}"#,
    )
    .await;
    assert_eq!(all.status, 204);
    let listed = send(&users, "", "GET", "/api/v1/users", "").await;
    let dan = &listed.body[..listed.body.find(r#""name":"dan""#).unwrap()];
    let dan = &dan[dan.rfind("credentials").unwrap()..];
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512", "ARGON2ID"] {
        assert!(dan.contains(mechanism), "{dan}");
    }
    assert_eq!(
        send(&users, "", "DELETE", "/api/v1/users/cara", "")
            .await
            .status,
        204
    );
    assert_eq!(
        send(&doors.proxy, "cara", "GET", "/topics", "")
            .await
            .status,
        401
    );
    doors.streams.close().await;
}

const RECORD: &str = r#"{"records": [{"value": 1}]}"#;

#[tokio::test]
async fn who_does_not_log_in_is_asked_to() {
    let doors = Doors::open();
    for who in ["", "eve"] {
        let told = send(&doors.proxy, who, "GET", "/topics", "").await;
        assert_eq!((told.status, told.asks), (401, true), "{}", told.body);
        assert!(told.body.contains("40101"), "{}", told.body);
    }
    for _ in 0..2 {
        let told = send(&doors.proxy, "ann", "GET", "/topics", "").await;
        assert_eq!((told.status, told.body.as_str()), (200, "[]"));
    }
    doors.streams.close().await;
}

#[tokio::test]
async fn the_proxy_follows_the_acls_of_topics_and_groups() {
    use Operation::{Create, Read, Write};
    let doors = Doors::open();
    let proxy = &doors.proxy;
    let refused = async |who, method, path, body| {
        let told = send(proxy, who, method, path, body).await;
        assert_eq!(told.status, 403, "{method} {path}: {}", told.body);
        assert!(told.body.contains("40301"), "{}", told.body);
    };
    let served = async |who, method, path, body| {
        let told = send(proxy, who, method, path, body).await;
        let is_fine = (200..300).contains(&told.status);
        assert!(is_fine, "{method} {path}: {} {}", told.status, told.body);
        told.body
    };
    served("root", "POST", "/topics/t", RECORD).await;
    refused("ann", "POST", "/topics/t", RECORD).await;
    refused("ann", "GET", "/topics/t", "").await;
    assert_eq!(served("ann", "GET", "/topics", "").await, "[]");
    doors.allow("ann", Write, ResourceType::Topic, "t");
    served("ann", "POST", "/topics/t", RECORD).await;
    assert_eq!(served("ann", "GET", "/topics", "").await, r#"["t"]"#);
    // Writing does not let her create, nor read.
    doors.allow("ann", Write, ResourceType::Topic, "new");
    refused("ann", "POST", "/topics/new", RECORD).await;
    doors.allow("ann", Create, ResourceType::Topic, "new");
    served("ann", "POST", "/topics/new", RECORD).await;
    let instance = r#"{"name": "i", "format": "json", "auto.offset.reset": "earliest"}"#;
    refused("ann", "POST", "/consumers/g", instance).await;
    doors.allow("ann", Read, ResourceType::Group, "g");
    served("ann", "POST", "/consumers/g", instance).await;
    let subscription = "/consumers/g/instances/i/subscription";
    refused("ann", "POST", subscription, r#"{"topics": ["t"]}"#).await;
    doors.allow("ann", Read, ResourceType::Topic, "t");
    served("ann", "POST", subscription, r#"{"topics": ["t"]}"#).await;
    // Whoever may be in the group need not use somebody else's instance.
    doors.allow("bob", Read, ResourceType::Group, "g");
    let told = send(proxy, "bob", "GET", subscription, "").await;
    assert_eq!(told.status, 404, "{}", told.body);
    served("ann", "DELETE", "/consumers/g/instances/i", "").await;
    doors.streams.close().await;
}

#[tokio::test]
async fn who_may_see_a_topic_and_not_write_to_it_is_told_with_each_record() {
    let doors = Doors::open();
    send(&doors.proxy, "root", "POST", "/topics/t", RECORD).await;
    doors.allow("ann", Operation::Describe, ResourceType::Topic, "t");
    let told = send(&doors.proxy, "ann", "POST", "/topics/t", RECORD).await;
    assert_eq!(told.status, 403);
    assert!(told.body.contains(r#""error_code":40301"#), "{}", told.body);
    doors.streams.close().await;
}

#[tokio::test]
async fn the_management_api_asks_for_rights_on_the_cluster() {
    let doors = Doors::open();
    let management = &doors.management;
    let status = async |who, method, path| {
        let body = r#"{"name": "m"}"#;
        send(management, who, method, path, body).await.status
    };
    for path in ["/health", "/c2/heartbeat"] {
        assert_eq!(status("", "GET", path).await, 200);
    }
    assert_eq!(status("", "GET", "/api/v1/topics").await, 401);
    assert_eq!(status("", "GET", "/api/v1/../../health").await, 401);
    assert_eq!(status("ann", "GET", "/api/v1/topics").await, 403);
    let (cluster, name) = (ResourceType::Cluster, access::CLUSTER);
    doors.allow("ann", Operation::Describe, cluster, name);
    assert_eq!(status("ann", "GET", "/api/v1/topics").await, 200);
    assert_eq!(status("ann", "POST", "/api/v1/topics").await, 403);
    doors.allow("ann", Operation::Alter, cluster, name);
    assert_eq!(status("ann", "POST", "/api/v1/topics").await, 201);
    doors.streams.close().await;
}

#[tokio::test]
async fn who_looks_at_records_and_schemas_needs_the_right_to_read_their_topics_too() {
    let doors = Doors::open();
    send(&doors.proxy, "root", "POST", "/topics/t", RECORD).await;
    let (cluster, name) = (ResourceType::Cluster, access::CLUSTER);
    doors.allow("ann", Operation::Describe, cluster, name);
    let get = async |path: &str| send(&doors.management, "ann", "GET", path, "").await;
    let records = "/api/v1/topics/t/records";
    assert_eq!(get("/api/v1/topics/t").await.status, 200);
    let refused = get(records).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    doors.allow("ann", Operation::Read, ResourceType::Topic, "t");
    let seen = get(records).await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    assert!(seen.body.contains(r#""offset":0"#), "{}", seen.body);
    let denied = Permission::Deny;
    doors.rule(denied, "ann", Operation::Read, ResourceType::Topic, "t");
    assert_eq!(get(records).await.status, 403);

    let subjects = "/api/v1/registry/subjects";
    let refused = get(subjects).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    doors.allow("ann", Operation::Read, ResourceType::Topic, "_schemas");
    let seen = get(subjects).await;
    assert_eq!((seen.status, &*seen.body), (200, "[]"));
    // A viewer changes nothing there, whatever the topic's rights are.
    doors.allow("ann", Operation::Write, ResourceType::Topic, "_schemas");
    let schema = r#"{"schema": "\"string\""}"#;
    let register = async |who| {
        let path = "/api/v1/registry/subjects/s/versions";
        send(&doors.management, who, "POST", path, schema)
            .await
            .status
    };
    assert_eq!(register("ann").await, 403);
    assert_eq!(register("root").await, 200);
    // And an administrator needs them beside the role.
    doors.rule(
        denied,
        "ann",
        Operation::Write,
        ResourceType::Topic,
        "_schemas",
    );
    let role = "administrator".parse().unwrap();
    doors.access.grant(Principal::user("ann"), role).unwrap();
    assert_eq!(register("ann").await, 403);
    doors.streams.close().await;
}

#[tokio::test]
async fn a_part_of_the_process_may_do_what_no_acl_denies_it() {
    let doors = Doors::open();
    send(&doors.proxy, "root", "POST", "/topics/t", RECORD).await;
    let caller = doors.logins.service("statements");
    assert_eq!(caller.principal().as_str(), "User:thalweg.statements");
    let store = streams::as_caller(doors.store.clone(), caller);
    assert_eq!(store.topics().await.unwrap().len(), 1);
    let (kind, read) = (ResourceType::Topic, Operation::Describe);
    doors.rule(Permission::Deny, "thalweg.statements", read, kind, "t");
    assert_eq!(store.topics().await.unwrap().len(), 0);
    // Names too, under which it writes alone, and each topic that it writes to.
    let batch = || ProduceBatch {
        topic: "t".parse().unwrap(),
        partition: 0,
        records: vec![Record::of_value("v".to_owned())],
        sequence: None,
    };
    let is_refused = |error: &StreamsError| matches!(error, StreamsError::NotAllowed { .. });
    let mut writer = store.fenced_writer("n").await.unwrap();
    writer.store(vec![batch()]).await.unwrap();
    let write = Operation::Write;
    doors.rule(Permission::Deny, "thalweg.statements", write, kind, "t");
    let refused = writer.store(vec![batch()]).await;
    assert!(refused.as_ref().is_err_and(is_refused), "{refused:?}");
    let kind = ResourceType::TransactionalId;
    doors.rule(Permission::Deny, "thalweg.statements", write, kind, "n");
    let refused = store.fenced_writer("n").await.err();
    assert!(refused.as_ref().is_some_and(is_refused), "{refused:?}");
    doors.streams.close().await;
}

#[tokio::test]
async fn a_tenants_caller_is_judged_elsewhere_by_roles_for_single_classes_alone() {
    let doors = Doors::open();
    let ask = async |who: &str, path: &str| {
        let told = send(&doors.management, who, "GET", path, "").await;
        (told.status, told.body)
    };
    let things = "/own/things";
    for who in ["ann", "bob"] {
        let viewer = "viewer".parse().unwrap();
        doors.access.grant(Principal::user(who), viewer).unwrap();
        let told = (200, "judged by viewer".to_owned());
        assert_eq!(ask(who, things).await, told);
    }
    let acme = "acme".parse().unwrap();
    let change = serde_json::json!({"members": ["User:ann", "User:root"]});
    let change = serde_json::from_value(change).unwrap();
    doors.access.set_tenant(&acme, &change).unwrap();
    let (status, told) = ask("ann", things).await;
    assert_eq!(status, 403, "{told}");
    assert!(told.contains("a caller of tenant 'acme'"), "{told}");
    assert_eq!(ask("ann", "/own/openapi.json").await.0, 200);
    let kept = doors.access.tenants().of(&acme).refusals();
    assert_eq!(kept[0].claimed, things);
    let edge = "operator:edge".parse().unwrap();
    doors.access.grant(Principal::user("ann"), edge).unwrap();
    let of_class = (200, "judged by operator:edge".to_owned());
    assert_eq!(ask("ann", things).await, of_class);
    assert_eq!(
        ask("bob", things).await,
        (200, "judged by viewer".to_owned())
    );
    let everything = (200, "judged by administrator".to_owned());
    assert_eq!(ask("root", things).await, everything);
    doors.access.remove_tenant(&acme).unwrap();
    let (status, told) = ask("ann", things).await;
    assert_eq!(status, 403, "{told}");
    assert!(told.contains("there is no tenant 'acme'"), "{told}");
    doors.streams.close().await;
}

#[tokio::test]
async fn a_tenants_caller_neither_sees_nor_changes_acls() {
    let doors = Doors::open();
    for operation in [Operation::Describe, Operation::Alter, Operation::Create] {
        let (kind, name) = (ResourceType::Cluster, access::CLUSTER);
        doors.allow("ann", operation, kind, name);
    }
    let (access, policy) = (Arc::clone(&doors.access), Arc::default());
    let ann = streams::Caller::new(access, policy, Principal::user("ann"), "::1");
    let ann = streams::as_caller(doors.store.clone(), ann);
    let any = access::AclFilter::default();
    assert_eq!(ann.acls(&any).await.unwrap().len(), 3);
    for (tenant, member) in [("acme", "User:ann"), ("beta", "User:bob")] {
        let change = serde_json::json!({"members": [member]});
        let change = serde_json::from_value(change).unwrap();
        let tenant = tenant.parse().unwrap();
        doors.access.set_tenant(&tenant, &change).unwrap();
    }
    let is_refused = |error: StreamsError| matches!(error, StreamsError::NotAllowed { .. });
    assert!(ann.acls(&any).await.is_err_and(is_refused));
    assert!(ann.add_acls(Vec::new()).await.is_err_and(is_refused));
    assert!(ann.remove_acls(&any).await.is_err_and(is_refused));
    assert_eq!(doors.access.snapshot().acls(&any).count(), 3);
    for (topic, may) in [
        ("env.ns.acme.E", true),
        ("orders", true),
        ("env.ns.beta.E", false),
    ] {
        let spec = streams::TopicSpec::of(topic.parse().unwrap());
        let made = ann.create_topic(spec).await;
        assert_eq!(made.is_ok(), may, "{topic}");
    }
    doors.streams.close().await;
}

#[tokio::test]
async fn roles_let_in_where_no_acl_does() {
    let doors = Doors::open();
    let management = &doors.management;
    let status = async |who: &str, method: &str, path: &str| {
        send(management, who, method, path, "").await.status
    };
    let grant = |who: &str, grant: &str| {
        let granted = doors
            .access
            .grant(Principal::user(who), grant.parse().unwrap());
        granted.unwrap();
    };
    for path in ["/page", "/api/v1/topics"] {
        assert_eq!(status("ann", "GET", path).await, 403, "{path}");
    }
    // Who has no role at all is known all the same, and judged by whoever answers.
    let me = send(management, "ann", "GET", "/api/v1/me", "").await;
    assert_eq!(
        (me.status, &*me.body),
        (200, r#"{"principal":"User:ann","roles":[]}"#)
    );
    assert_eq!(status("ann", "GET", "/own/things").await, 200);
    assert_eq!(
        send(management, "", "GET", "/own/things", "").await.status,
        401
    );
    // So does an importer see pages, and nothing that is of all.
    grant("bob", "importer:acme");
    assert_eq!(status("bob", "GET", "/page").await, 200);
    assert_eq!(status("bob", "GET", "/api/v1/topics").await, 403);
    // A role for one class opens the pages, not what is of all.
    grant("ann", "operator:edge");
    assert_eq!(status("ann", "GET", "/page").await, 200);
    assert_eq!(status("ann", "GET", "/api/v1/topics").await, 403);
    grant("ann", "viewer");
    assert_eq!(status("ann", "GET", "/api/v1/topics").await, 200);
    assert_eq!(status("ann", "DELETE", "/api/v1/topics/none").await, 403);
    grant("ann", "administrator");
    assert_eq!(status("ann", "DELETE", "/api/v1/topics/none").await, 404);
    // Whoever may change the cluster by ACLs is an administrator.
    let me = send(management, "root", "GET", "/api/v1/me", "").await;
    assert_eq!(
        me.body,
        r#"{"principal":"User:root","roles":["administrator"]}"#
    );
}

#[tokio::test]
async fn roles_are_granted_listed_and_taken_back() {
    let doors = Doors::open();
    let roles = access_management(Arc::clone(&doors.access));
    let send =
        async |method: &str, path: &str, body: &str| send(&roles, "", method, path, body).await;
    let ann = r#"{"principal":"User:ann","role":"operator","class":"edge"}"#;
    assert_eq!(send("POST", "/api/v1/roles", ann).await.status, 201);
    let listed = send("GET", "/api/v1/roles", "").await.body;
    assert_eq!(listed, format!(r#"{{"roles":[{}]}}"#, sorted(ann)));
    for bad in [
        r#"{"principal":"ann","role":"operator"}"#,
        r#"{"principal":"User:ann","role":"king"}"#,
        r#"{"principal":"User:ann","role":"administrator","class":"edge"}"#,
        r#"{"principal":"User:ann","role":"viewer","klass":"edge"}"#,
        r#"{"principal":"User:ann","role":"viewer","tenant":"acme"}"#,
        r#"{"principal":"User:ann","role":"importer","class":"acme"}"#,
        r#"{"principal":"User:ann","role":"importer","tenant":"Ac me"}"#,
    ] {
        let refused = send("POST", "/api/v1/roles", bad).await;
        assert_eq!(refused.status, 422, "{bad}: {}", refused.body);
    }
    let gone = "/api/v1/roles?principal=User:ann&role=operator&class=edge";
    assert_eq!(send("DELETE", gone, "").await.status, 204);
    let again = send("DELETE", gone, "").await;
    assert_eq!(again.status, 404);
    assert!(again.body.contains("operator:edge"), "{}", again.body);
    let eve = r#"{"principal":"User:eve","role":"importer","tenant":"acme"}"#;
    assert_eq!(send("POST", "/api/v1/roles", eve).await.status, 201);
    let listed = send("GET", "/api/v1/roles", "").await.body;
    assert_eq!(listed, format!(r#"{{"roles":[{}]}}"#, sorted(eve)));
    let all = "/api/v1/roles?principal=User:eve&role=importer";
    assert_eq!(send("DELETE", all, "").await.status, 404);
    let gone = format!("{all}&tenant=acme");
    assert_eq!(send("DELETE", &gone, "").await.status, 204);
}

/// JSON with its keys in order.
fn sorted(text: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    value.to_string()
}

/// What comes of an answer until it holds `end`, or ends.
async fn read_to(body: &mut Body, end: &str) -> String {
    let mut text = String::new();
    while !text.contains(end)
        && let Some(frame) = body.frame().await
    {
        let frame = frame.unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_what_let_their_callers_in() {
    let doors = Doors::open();
    doors.allow("ann", Operation::All, ResourceType::Topic, "t");
    let spec = streams::TopicSpec::of("t".parse().unwrap()).with_partitions(1);
    doors.store.create_topic(spec).await.unwrap();
    let produce = async |value: &str| {
        let batch = ProduceBatch {
            topic: "t".parse().unwrap(),
            partition: 0,
            records: vec![Record::of_value(value.as_bytes().to_vec())],
            sequence: None,
        };
        doors.store.produce(batch).await.unwrap();
    };
    let path = format!(
        "/v3/clusters/{}/topics/t/records",
        doors.streams.cluster_id()
    );
    let by_token = || {
        let (token, text) = Token::issue("ann", "", base::UnixMillis(0), None).unwrap();
        let id = token.id.clone();
        doors.access.add_token(token).unwrap();
        (id, format!("Bearer {text}"))
    };
    let by_password = format!("Basic {}", STANDARD.encode("ann:annann"));
    for way in ["token", "password"] {
        let (id, by_token) = by_token();
        let login = match way {
            "token" => &by_token,
            _ => &by_password,
        };
        let take_back = || match way {
            "token" => doors.access.remove_token(&id).unwrap(),
            _ => {
                let credential = Credential::of_password(ScramHash::Sha256, "another", 4_096);
                let change = UserChange::Set("ann".to_owned(), credential.unwrap());
                doors.access.alter_users(&[change]).unwrap();
            }
        };
        let open = async |request: axum::http::request::Builder, body: Body| {
            let request = request.header(header::AUTHORIZATION, login);
            let response = doors.proxy.clone().oneshot(request.body(body).unwrap());
            let response = response.await.unwrap();
            assert_eq!(response.status(), 200);
            response.into_body()
        };
        let at = format!("{path}?from=latest");
        let request = Request::get(at).header("accept", "text/event-stream");
        let mut events = open(request, Body::empty()).await;
        let request = Request::post(&path).header("content-type", "application/json");
        let (mut records, body) = tokio::io::duplex(1 << 10);
        let body = Body::from_stream(tokio_util::io::ReaderStream::new(body));
        let mut receipts = open(request, body).await;
        let one = |value: &str| format!(r#"{{"value":{{"type":"STRING","data":"{value}"}}}}"#);
        records.write_all(one("before").as_bytes()).await.unwrap();
        let told = read_to(&mut receipts, "offset").await;
        assert!(told.contains("offset"), "{way}: {told}");
        let told = read_to(&mut events, "before").await;
        assert!(told.contains("before"), "{way}: {told}");

        take_back();
        records.write_all(one("after").as_bytes()).await.unwrap();
        let told = read_to(&mut receipts, "never").await;
        assert!(
            told.contains("40101") && !told.contains("offset"),
            "{way}: {told}"
        );
        produce("secret").await;
        let told = read_to(&mut events, "never").await;
        assert!(
            told.contains("40101") && !told.contains("secret"),
            "{way}: {told}"
        );
        assert!(!told.contains("after"), "{way}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_backed_up_by_who_may_read_it_and_by_administrators() {
    let doors = Doors::open();
    let spec = streams::TopicSpec::of("t".parse().unwrap()).with_partitions(1);
    doors.store.create_topic(spec).await.unwrap();
    let path = "/api/v1/topics/t/backup";
    let ask = async |who: &str, path: &str| {
        let text = STANDARD.encode(format!("{who}:{who}{who}"));
        let request = Request::get(path).header(header::AUTHORIZATION, format!("Basic {text}"));
        let request = request.body(Body::empty()).unwrap();
        let answer = doors.management.clone().oneshot(request).await.unwrap();
        answer.status().as_u16()
    };
    // As the command line needs it.
    doors.allow(
        "ann",
        Operation::Describe,
        ResourceType::Cluster,
        access::CLUSTER,
    );
    assert_eq!(ask("ann", "/api/v1/topics/t").await, 200);
    assert_eq!(ask("ann", path).await, 403);
    doors.allow("ann", Operation::Read, ResourceType::Topic, "t");
    doors.allow("ann", Operation::DescribeConfigs, ResourceType::Topic, "t");
    assert_eq!(ask("ann", path).await, 200);
    assert_eq!(ask("ann", "/api/v1/topics/u/backup").await, 403);
    doors.allow(
        "bob",
        Operation::Alter,
        ResourceType::Cluster,
        access::CLUSTER,
    );
    for who in ["bob", "root"] {
        assert_eq!(ask(who, path).await, 200, "{who}");
    }
    let viewer = access::Grant::everywhere(access::Role::Viewer);
    doors
        .access
        .remove_acls(&[access::AclFilter::default()])
        .unwrap();
    doors.access.grant(Principal::user("ann"), viewer).unwrap();
    assert_eq!(ask("ann", "/api/v1/topics/t").await, 200);
    assert_eq!(ask("ann", path).await, 403);
}
