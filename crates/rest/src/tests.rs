//! REST exchanges: files of requests with the answers they get, run against the embedded store.
//!
//! A line `> METHOD path` begins a request, further `>` lines are its headers, then its body; `<`
//! lines are the answer: status, media type and body. `! topic NAME PARTITIONS` creates a topic, `! compacted NAME` one
//! that is compacted,
//! `! raw TOPIC PARTITION KEY VALUE` stores bytes (`-` is no key), `! show TOPIC PARTITION` prints
//! what is stored, `! base64 TOPIC PARTITION VALUE` stores bytes that are no text, files
//! `schemas-*.txt` and paths that begin with `/registry:` are of the schema registry,
//! `! advance SECONDS` moves the clock, `! join GROUP TOPIC` has a consumer read a topic and commit,
//! `! as NAME` has that user call from now on (`nobody`: nobody in particular); a file that has it
//! runs with access control, and begins as a super user. `CLUSTER` stands for the cluster's id.
//! `UPDATE_EXPECT=1` rewrites the answers.

mod double;
mod exchanges;
mod instances;
mod leaving;
mod live;
mod load;
mod looking;
mod reading;
mod storing;
mod tenants;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::{Access, Credential, Policy, Principal, ScramHash, UserChange};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use base::{ByteSize, Clock, ManualClock, SystemClock, UnixMillis};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use streams::{
    ConsumerConfig, EventStore, ProduceBatch, Record, Streams, StreamsConfig, TopicConfig,
    TopicName, TopicSpec,
};
use tower::ServiceExt;

use self::double::Double;
use crate::{
    Logins, RestConfig, RestHandle, SchemaRegistry, SchemasConfig, management, records_management,
    routes, schema_management, schema_routes,
};

pub(crate) struct Proxy {
    pub(crate) router: Router,
    pub(crate) schemas: Router,
    handle: RestHandle,
    store: Arc<dyn EventStore>,
    streams: Arc<Streams>,
    clock: ManualClock,
    /// What callers log in with, where they are asked.
    credentials: Option<String>,
    _folder: tempfile::TempDir,
}

impl Proxy {
    pub(crate) fn open(config: RestConfig) -> Proxy {
        Proxy::open_for(config, |store| store, |_, _| None)
    }

    /// One before a store that does as the test likes.
    fn open_before(config: RestConfig, is_shared: bool) -> (Proxy, Arc<Double>) {
        let mut double = None;
        let proxy = Proxy::open_for(
            config,
            |store| double.insert(Double::of(store, is_shared)).clone(),
            |_, _| None,
        );
        (proxy, double.unwrap())
    }

    /// One that asks its callers who they are: root, who may do everything, or ann.
    fn open_secured(config: RestConfig) -> Proxy {
        let logins = |folder: &Path, clock: Arc<dyn Clock>| {
            let access = Arc::new(Access::open(&folder.join("access")).unwrap());
            for name in ["ann", "root"] {
                let credential = Credential::of_password(ScramHash::Sha256, name, 4_096).unwrap();
                let change = UserChange::Set(name.to_owned(), credential);
                access.alter_users(&[change]).unwrap();
            }
            let policy = Policy {
                super_users: vec![Principal::user("root")],
                allow_if_no_acl: false,
            };
            Some(Logins::new(access, policy, None, clock))
        };
        let mut proxy = Proxy::open_for(config, |store| store, logins);
        proxy.call_as("root");
        proxy
    }

    /// Has a user call from now on, whose password is the name.
    fn call_as(&mut self, name: &str) {
        let text = STANDARD.encode(format!("{name}:{name}"));
        self.credentials = (name != "nobody").then(|| format!("Basic {text}"));
    }

    fn open_for(
        config: RestConfig,
        before: impl FnOnce(Arc<dyn EventStore>) -> Arc<dyn EventStore>,
        logins: impl Fn(&Path, Arc<dyn Clock>) -> Option<Arc<Logins>>,
    ) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(UnixMillis(1_700_000_000_000));
        let settings: StreamsConfig = serde_json::from_str(
            r#"{"auto_create_topics": false, "streams": [
                {"path": "/streams/wide", "default_partitions": 3},
                {"path": "/streams/closed", "autocreate": false}]}"#,
        )
        .unwrap();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        // The store keeps real time: its groups form by time, while instances expire by the test's.
        let real = Arc::new(SystemClock);
        let (streams, _) = Streams::open(folder.path(), settings, real).unwrap();
        let store = before(streams.store());
        let logins = logins(folder.path(), Arc::clone(&shared));
        let registry = SchemaRegistry::new(store.clone(), SchemasConfig::default()).unwrap();
        let (router, handle) = routes(
            store.clone(),
            config,
            shared,
            logins,
            Some(Arc::clone(&registry)),
            None,
        );
        let looked_by = Some(Arc::clone(&registry));
        let router = router
            .merge(management(store.clone()))
            .merge(records_management(store.clone(), looked_by, None))
            .merge(schema_management(Arc::clone(&registry), None));
        Proxy {
            router,
            schemas: schema_routes(registry, None, None),
            handle,
            store,
            streams,
            clock,
            credentials: None,
            _folder: folder,
        }
    }

    /// Sends a request and answers status, media type and body.
    pub(crate) async fn send(&self, request: Request<Body>) -> (u16, String, String) {
        self.ask(&self.router, request).await
    }

    async fn ask(&self, router: &Router, mut request: Request<Body>) -> (u16, String, String) {
        if let Some(credentials) = &self.credentials {
            let credentials = credentials.parse().unwrap();
            let headers = request.headers_mut();
            headers.insert(header::AUTHORIZATION, credentials);
        }
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let media = response.headers().get(header::CONTENT_TYPE);
        let media = media
            .map_or("-", |value| value.to_str().unwrap())
            .to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, media, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn post(&self, path: &str, body: impl Into<Body>) -> (u16, String) {
        let request = Request::post(path)
            .header("Content-Type", "application/vnd.kafka.json.v2+json")
            .body(body.into())
            .unwrap();
        let (status, _, body) = self.send(request).await;
        (status, body)
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self
            .send(Request::get(path).body(Body::empty()).unwrap())
            .await;
        (status, body)
    }

    async fn create(&self, topic: &str, partitions: i32) {
        // Records of a fixed time are to stay, and the store keeps real time.
        let late = [("message.timestamp.after.max.ms", "9223372036854775807")];
        let config = TopicConfig::of(late).unwrap();
        let spec = TopicSpec::of(topic.parse().unwrap()).with_partitions(partitions);
        let spec = TopicSpec { config, ..spec };
        self.store.create_topic(spec).await.unwrap();
    }

    async fn store_raw(&self, topic: &str, partition: i32, key: Option<&str>, value: &str) {
        let mut record = Record::of_value(value.as_bytes().to_vec());
        if let Some(key) = key {
            record = record.with_key(key.as_bytes().to_vec());
        }
        let topic = topic.parse().unwrap();
        let batch = ProduceBatch {
            topic,
            partition,
            records: vec![record],
            sequence: None,
        };
        self.store.produce(batch).await.unwrap();
    }

    async fn store_bytes(&self, topic: &str, partition: i32, value: Vec<u8>) {
        let batch = ProduceBatch {
            topic: topic.parse().unwrap(),
            partition,
            records: vec![Record::of_value(value)],
            sequence: None,
        };
        self.store.produce(batch).await.unwrap();
    }

    /// Has a consumer of a group read a topic, commit and leave.
    async fn read_in_group(&self, group: &str, topic: &str) {
        let config = ConsumerConfig::in_group(group, "reader");
        let mut reader = self.store.consumer(config).await.unwrap();
        let topic = topic.parse().unwrap();
        reader.subscribe(vec![topic]).await.unwrap();
        while reader
            .poll(Duration::from_secs(10), 1 << 20)
            .await
            .unwrap()
            .is_empty()
        {}
        reader.commit(None).await.unwrap();
        reader.close().await.unwrap();
    }

    async fn show(&self, topic: &str, partition: i32) -> String {
        let topic: TopicName = topic.parse().unwrap();
        let mut reader = self
            .store
            .consumer(ConsumerConfig::alone("show"))
            .await
            .unwrap();
        reader.assign(vec![(topic, partition)]).await.unwrap();
        let mut shown = String::new();
        loop {
            let records = reader
                .poll(Duration::from_millis(50), 1 << 20)
                .await
                .unwrap();
            if records.is_empty() {
                return shown;
            }
            for record in records {
                let text = |bytes: Option<bytes::Bytes>| match bytes {
                    Some(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                    None => "null".to_owned(),
                };
                let (key, value) = (text(record.key), text(record.value));
                writeln!(shown, "< {}: {key} = {value}", record.offset).unwrap();
            }
        }
    }
}

/// Runs a file of exchanges and compares it with what it should be.
async fn check(name: &str) {
    check_with(name, RestConfig::default()).await;
}

/// As [`check`] with another configuration.
async fn check_with(name: &str, config: RestConfig) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("exchanges")
        .join(name);
    let expected = std::fs::read_to_string(&path).unwrap();
    let config = RestConfig {
        consumer_instances_max: 4,
        ..config
    };
    let mut proxy = match expected.contains("\n! as ") {
        true => Proxy::open_secured(config),
        false => Proxy::open(config),
    };
    let lines: Vec<&str> = expected
        .lines()
        .filter(|line| !line.starts_with('<') && !line.is_empty())
        .collect();
    let mut actual = String::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if line.starts_with('#') {
            writeln!(actual, "\n{line}").unwrap();
        } else if let Some(order) = line.strip_prefix("! ") {
            writeln!(actual, "{line}").unwrap();
            actual.push_str(&obey(&mut proxy, order).await);
        } else {
            let mut request = vec![line.strip_prefix("> ").unwrap()];
            while let Some(more) = lines.get(at).and_then(|line| line.strip_prefix('>'))
                && !is_request_line(more)
            {
                request.push(more.strip_prefix(' ').unwrap_or(more));
                at += 1;
            }
            for line in &request {
                writeln!(actual, "> {line}").unwrap();
            }
            let cluster = proxy.streams.cluster_id();
            let path = request[0].replace("CLUSTER", cluster);
            request[0] = &path;
            let to_registry = request[0].replace(" /registry:", " ");
            let router = match name.starts_with("schemas-") || request[0] != to_registry {
                true => &proxy.schemas,
                false => &proxy.router,
            };
            request[0] = &to_registry;
            let (status, media, body) = proxy.ask(router, parsed(&request)).await;
            writeln!(actual, "< {status} {media}").unwrap();
            let body = body.replace(cluster, "CLUSTER");
            for line in body.split("\r\n").filter(|line| !line.is_empty()) {
                writeln!(actual, "< {line}").unwrap();
            }
        }
    }
    let actual = actual.trim_start().to_owned();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, actual).unwrap();
    } else {
        assert_eq!(actual, expected, "{name}");
    }
}

async fn obey(proxy: &mut Proxy, order: &str) -> String {
    let words: Vec<&str> = order.splitn(5, ' ').collect();
    match words[..] {
        ["topic", name, partitions] => {
            proxy.create(name, partitions.parse().unwrap()).await;
            String::new()
        }
        ["compacted", name] => {
            let config = TopicConfig::of([("cleanup.policy", "compact")]).unwrap();
            let spec = TopicSpec::of(name.parse().unwrap()).with_partitions(1);
            let spec = TopicSpec { config, ..spec };
            proxy.store.create_topic(spec).await.unwrap();
            String::new()
        }
        ["base64", topic, partition, value] => {
            let value = STANDARD.decode(value).unwrap();
            proxy
                .store_bytes(topic, partition.parse().unwrap(), value)
                .await;
            String::new()
        }
        ["raw", topic, partition, key, value] => {
            let key = (key != "-").then_some(key);
            proxy
                .store_raw(topic, partition.parse().unwrap(), key, value)
                .await;
            String::new()
        }
        ["show", topic, partition] => proxy.show(topic, partition.parse().unwrap()).await,
        ["advance", seconds] => {
            proxy
                .clock
                .advance(Duration::from_secs(seconds.parse().unwrap()));
            proxy.handle.expire(proxy.clock.now()).await;
            String::new()
        }
        ["join", group, topic] => {
            proxy.read_in_group(group, topic).await;
            String::new()
        }
        ["as", name] => {
            proxy.call_as(name);
            String::new()
        }
        _ => panic!("no such order: {order}"),
    }
}

fn is_request_line(line: &str) -> bool {
    ["GET", "POST", "PUT", "PATCH", "DELETE"]
        .iter()
        .any(|method| {
            line.strip_prefix(' ')
                .is_some_and(|l| l.starts_with(&format!("{method} /")))
        })
}

fn parsed(lines: &[&str]) -> Request<Body> {
    let (method, path) = lines[0].split_once(' ').unwrap();
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("Host", "proxy:8082");
    let mut rest = lines[1..].iter();
    for line in rest.by_ref() {
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        request = request.header(name, value);
    }
    let body: Vec<&str> = rest.copied().collect();
    request.body(Body::from(body.join("\n"))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_above_the_bound_is_413_whether_its_length_is_told_or_not() {
    let config = RestConfig {
        body_bytes_max: ByteSize::kib(1),
        ..RestConfig::default()
    };
    let proxy = Proxy::open(config);
    proxy.create("t", 1).await;
    let large = format!("{{\"records\":[{{\"value\":\"{}\"}}]}}", "x".repeat(2_000));
    let request = Request::post("/topics/t").header("Content-Length", large.len());
    let (status, _, body) = proxy
        .send(request.body(Body::from(large.clone())).unwrap())
        .await;
    assert_eq!(status, 413);
    assert!(body.starts_with("{\"error_code\":413,"), "{body}");
    assert_eq!(proxy.post("/topics/t", large).await.0, 413);
    assert_eq!(
        proxy
            .post("/topics/t", r#"{"records":[{"value":1}]}"#)
            .await
            .0,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_topic_of_version_3_says_where_it_is() {
    let proxy = Proxy::open(RestConfig::default());
    let id = proxy.store.cluster().await.unwrap().id;
    let at = format!("/v3/clusters/{id}/topics");
    let request = Request::post(&at).header("Content-Type", "application/json");
    let request = request.header("Host", "proxy:8082");
    let body = Body::from(r#"{"topic_name":"t","partitions_count":1}"#);
    let request = request.body(body).unwrap();
    let response = proxy.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let location = response.headers()["location"].to_str().unwrap();
    assert_eq!(location, format!("http://proxy:8082{at}/t"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_json_is_refused_without_harm() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    // Deep nesting inside of a value is a value; it is stored and read back as it is.
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = format!("{{\"records\":[{{\"value\":{deep}}}]}}");
    assert_eq!(proxy.post("/topics/t", body).await.0, 200);
    for body in [
        &b"{\"records\":[{\"value\":\"\xff\"}]}"[..],
        b"\0",
        b"",
        b"{\"records\":1}",
    ] {
        let (status, answer) = proxy.post("/topics/t", body.to_vec()).await;
        assert_eq!(status, 422, "{answer}");
    }
    let many = format!(
        "{{\"records\":[{}{{}}]}}",
        "{},".repeat(crate::limits::RECORDS_MAX)
    );
    let (status, answer) = proxy.post("/topics/t", many).await;
    assert_eq!(status, 422);
    assert!(answer.contains("more than 200000 records"), "{answer}");
    let consumer = r#"{"name":"c","format":"json","auto.offset.reset":"earliest"}"#;
    proxy.post("/consumers/g", consumer).await;
    proxy
        .post(
            "/consumers/g/instances/c/subscription",
            r#"{"topics":["t"]}"#,
        )
        .await;
    let (_, read) = proxy
        .get("/consumers/g/instances/c/records?timeout=5000")
        .await;
    assert!(read.contains(&deep));
}
