//! Access control over HTTP: who is let in, and what they may do then.

use std::sync::Arc;

use access::{
    Access, Acl, Credential, EVERY_HOST, Operation, PatternType, Permission, Policy, Principal,
    ResourceType, ScramHash, UserChange,
};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use axum::routing::get;
use base::SystemClock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use streams::{EventStore, Streams, StreamsConfig};
use tower::ServiceExt;

use crate::{Logins, Openings, RestConfig, RestHandle, cluster_rights_asked, management, routes};

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
        let logins = Logins::new(Arc::clone(&access), policy, clock.clone());
        let config = RestConfig::default();
        let (proxy, handle) = routes(store.clone(), config, clock, Some(logins.clone()), None);
        let openings = Openings {
            paths: vec!["/health"],
            prefixes: vec!["/c2/"],
        };
        let open = Router::new().route("/health", get(async || "UP"));
        let open = open.route("/c2/heartbeat", get(async || "UP"));
        let all = management(store.clone()).merge(open);
        Doors {
            proxy,
            management: cluster_rights_asked(all, logins.clone(), openings),
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
    doors.streams.close().await;
}
