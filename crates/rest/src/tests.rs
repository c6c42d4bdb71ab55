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

use crate::{
    Logins, RestConfig, RestHandle, SchemaRegistry, SchemasConfig, management, routes,
    schema_routes,
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
        Proxy::open_for(config, |_, _| None)
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
        let mut proxy = Proxy::open_for(config, logins);
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
        let store = streams.store();
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
        let router = router.merge(management(store.clone()));
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
        let spec = TopicSpec::of(topic.parse().unwrap()).with_partitions(partitions);
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
async fn metadata_is_answered_as_documented() {
    check("metadata.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn produced_records_are_stored_as_they_came() {
    check("produce.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_topics_are_created_by_their_streams_policy() {
    check("streams.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_again_under_its_key_is_stored_once() {
    check("idempotency.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_without_a_path_are_the_default_streams() {
    let config = RestConfig {
        default_stream: Some("/streams/test".to_owned()),
        ..RestConfig::default()
    };
    check_with("default-stream.txt", config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribed_instances_read_commit_and_seek() {
    check("consumer.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn assigned_instances_pass_what_they_cannot_read() {
    check("assigned.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consumer_calls_that_cannot_be_get_their_codes() {
    check("consumer-errors.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_1_reads_topic_by_topic() {
    check("v1.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_managed() {
    check("management.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_tells_of_the_cluster_and_changes_it() {
    check("v3-cluster.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_of_version_1_works() {
    check("quickstart-v1.txt").await;
    check("quickstart-v1-schemas.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_of_version_2_works() {
    check("quickstart-v2.txt").await;
    check("quickstart-v2-schemas.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_of_version_3_works() {
    check("quickstart-v3.txt").await;
    check("quickstart-v3-schemas.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_of_mapr_works() {
    check("quickstart-mapr.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_tells_of_brokers_and_where_partitions_lie() {
    check("v3-brokers.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_keeps_acls_and_follows_them() {
    check("v3-acls.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_takes_records_and_gives_receipts() {
    check("v3-records.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_reads_records_from_where_the_reader_stands() {
    check("v3-reading.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn formats_with_schemas_are_produced_and_read_in_versions_1_and_2() {
    check("formats-v2.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn formats_with_schemas_are_produced_and_read_in_version_3() {
    check("formats-v3.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_are_registered_found_and_kept_as_records() {
    check("schemas-subjects.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_are_held_against_those_before() {
    check("schemas-compatibility.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_are_deleted_softly_and_for_good() {
    check("schemas-deletion.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_are_of_three_types() {
    check("schemas-types.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_name_others() {
    check("schemas-references.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_and_contexts_of_schemas_hold() {
    check("schemas-modes.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_of_another_registry_is_taken_over() {
    check("schemas-taken-over.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_would_lose_schemas_is_refused() {
    check("schemas-unfit.txt").await;
}

/// The records of a stream of events from its beginning: ids and values.
async fn events(body: &mut Body, count: usize) -> Vec<(String, String)> {
    let mut text = String::new();
    while text.matches("\n\n").count() < count {
        let frame = body.frame().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    let line = |event: &str, name: &str| {
        let mut lines = event.lines();
        let found = lines.find_map(|line| line.strip_prefix(name));
        found.unwrap_or_default().to_owned()
    };
    text.split_terminator("\n\n")
        .map(|event| {
            let record: serde_json::Value = serde_json::from_str(&line(event, "data: ")).unwrap();
            (line(event, "id: "), record["value"]["data"].to_string())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_go_on_where_their_reader_left_and_end_with_the_proxy() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    proxy.store_raw("t", 0, None, "1").await;
    proxy.store_raw("t", 0, None, "2").await;
    let cluster = proxy.streams.cluster_id();
    let open = async |last: Option<&str>| {
        let path = format!("/v3/clusters/{cluster}/topics/t/records");
        let mut request = Request::get(path).header("Accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = proxy.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body()
    };
    let own = |id: &str, value: &str| (id.to_owned(), value.to_owned());
    let mut body = open(None).await;
    let first = events(&mut body, 2).await;
    assert_eq!(first, [own("0:1", "1"), own("0:2", "2")]);
    proxy.store_raw("t", 0, None, "3").await;
    assert_eq!(events(&mut body, 1).await, [own("0:3", "3")]);
    drop(body);
    let mut again = open(Some("0:2")).await;
    assert_eq!(events(&mut again, 1).await, [own("0:3", "3")]);
    proxy.handle.close().await;
    assert!(again.frame().await.is_none(), "the stream goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_tells_of_a_groups_members_and_what_they_read() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    proxy.store_raw("t", 0, None, "1").await;
    let consumer = r#"{"name":"c","format":"json","auto.offset.reset":"earliest"}"#;
    proxy.post("/consumers/g", consumer).await;
    let at = "/consumers/g/instances/c";
    let topics = r#"{"topics":["t"]}"#;
    proxy.post(&format!("{at}/subscription"), topics).await;
    // Whoever has read is a member.
    let (_, records) = proxy.get(&format!("{at}/records?timeout=10000")).await;
    assert!(records.contains("\"value\":1"), "{records}");
    let read = async |path: &str| -> serde_json::Value {
        let (status, body) = proxy.get(path).await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    };
    let group = format!(
        "/v3/clusters/{}/consumer-groups/g",
        proxy.streams.cluster_id()
    );
    assert_eq!(read(&group).await["state"], "STABLE");
    let consumers = read(&format!("{group}/consumers")).await;
    let id = consumers["data"][0]["consumer_id"].as_str().unwrap();
    let consumer = read(&format!("{group}/consumers/{id}")).await;
    assert_eq!(consumer["client_id"], "c");
    let assignments = format!("{group}/consumers/{id}/assignments");
    let all = read(&assignments).await;
    assert_eq!(all["data"].as_array().unwrap().len(), 1, "{all}");
    let one = read(&format!("{assignments}/t/partitions/0")).await;
    assert_eq!(one, all["data"][0]);
    assert_eq!(one["partition_id"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_exchange_file_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("exchanges");
    let source = include_str!("tests.rs");
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(
            source.contains(&format!("(\"{name}\"")),
            "{name} is not run"
        );
    }
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

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_records_read_in_bounded_answers_arrive_once_and_in_order() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    let record = |n: usize| {
        format!(
            "{{\"value\":{{\"n\":{n},\"pad\":\"{}\"}}}}",
            "x".repeat(1_000)
        )
    };
    let records: Vec<String> = (0..1_000).map(record).collect();
    let body = format!("{{\"records\":[{}]}}", records.join(","));
    let (status, receipts) = proxy.post("/topics/t", body).await;
    assert_eq!(
        (status, receipts.matches("\"error_code\":null").count()),
        (200, 1_000)
    );
    let consumer = r#"{"name":"c","format":"json","auto.offset.reset":"earliest"}"#;
    proxy.post("/consumers/g", consumer).await;
    proxy
        .post(
            "/consumers/g/instances/c/subscription",
            r#"{"topics":["t"]}"#,
        )
        .await;
    let mut seen = Vec::new();
    while seen.len() < 1_000 {
        let path = "/consumers/g/instances/c/records?timeout=5000&max_bytes=200000";
        let (status, body) = proxy.get(path).await;
        assert_eq!(status, 200, "{body}");
        let records: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
        assert!(
            !records.is_empty() && body.len() < 240_000,
            "{} bytes",
            body.len()
        );
        seen.extend(
            records
                .iter()
                .map(|record| record["value"]["n"].as_u64().unwrap()),
        );
    }
    assert_eq!(seen, (0..1_000).collect::<Vec<u64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_read_answers_when_a_record_comes() {
    let proxy = Arc::new(Proxy::open(RestConfig::default()));
    proxy.create("t", 1).await;
    proxy
        .post("/consumers/g", r#"{"name":"c","format":"json"}"#)
        .await;
    let assigned = r#"{"partitions":[{"topic":"t","partition":0}]}"#;
    proxy
        .post("/consumers/g/instances/c/assignments", assigned)
        .await;
    let path = "/consumers/g/instances/c/records?timeout=20000";
    // The default of auto.offset.reset is latest: the first read finds the end.
    proxy
        .get("/consumers/g/instances/c/records?timeout=0")
        .await;
    let started = Instant::now();
    let (read, _) = tokio::join!(proxy.get(path), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        proxy
            .post("/topics/t", r#"{"records":[{"value":"now"}]}"#)
            .await
    });
    assert!(read.1.contains("\"now\""), "{}", read.1);
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "waited out its time"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_wait_their_time_out_where_that_is_asked_for() {
    let proxy = Proxy::open(RestConfig {
        read_waits_for_timeout: true,
        ..RestConfig::default()
    });
    proxy.create("t", 1).await;
    proxy.store_raw("t", 0, None, "1").await;
    let read = async |name: &str, settings: &str, timeout: u64| {
        let body = format!("{{\"name\":\"{name}\",\"format\":\"json\"{settings}}}");
        proxy.post("/consumers/g", body).await;
        let at = format!("/consumers/g/instances/{name}");
        let assigned = r#"{"partitions":[{"topic":"t","partition":0}]}"#;
        proxy.post(&format!("{at}/assignments"), assigned).await;
        proxy
            .post(&format!("{at}/positions/beginning"), assigned)
            .await;
        let started = Instant::now();
        let (_, records) = proxy.get(&format!("{at}/records?timeout={timeout}")).await;
        assert!(records.contains("\"value\":1"), "{records}");
        started.elapsed()
    };
    let waited = read("old", "", 300).await;
    assert!(waited >= Duration::from_millis(300), "{waited:?}");
    let waited = read("bytes", ",\"fetch.min.bytes\":1", 20_000).await;
    assert!(waited < Duration::from_secs(10), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_a_partition_that_finds_no_place_is_50301() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    let places = u32::try_from(crate::limits::PARTITION_READS_MAX).unwrap();
    let all = proxy.handle.partition_reads.acquire_many(places).await;
    let path = "/topics/t/partitions/0/messages?offset=0";
    let (status, body) = proxy.get(path).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.starts_with("{\"error_code\":50301,"), "{body}");
    drop(all);
    assert_eq!(proxy.get(path).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_an_instance_interrupts_its_read() {
    let proxy = Arc::new(Proxy::open(RestConfig::default()));
    proxy.create("t", 1).await;
    proxy
        .post("/consumers/g", r#"{"name":"c","format":"json"}"#)
        .await;
    proxy
        .post(
            "/consumers/g/instances/c/subscription",
            r#"{"topics":["t"]}"#,
        )
        .await;
    let started = Instant::now();
    let (read, ()) = tokio::join!(
        proxy.get("/consumers/g/instances/c/records?timeout=30000"),
        async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let path = "/consumers/g/instances/c";
            proxy
                .send(Request::delete(path).body(Body::empty()).unwrap())
                .await;
        }
    );
    assert!(read.1.contains("40403"), "{}", read.1);
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "the read was waited out"
    );
    assert_eq!(proxy.handle.consumer_instances(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn as_many_instances_as_there_may_be_are_made_side_by_side() {
    const MOST: usize = 32;
    let proxy = Arc::new(Proxy::open(RestConfig {
        consumer_instances_max: MOST,
        ..RestConfig::default()
    }));
    for _ in 0..50 {
        let mut made = tokio::task::JoinSet::new();
        for n in 0..MOST {
            let proxy = proxy.clone();
            made.spawn(async move {
                let path = format!("/consumers/g{n}");
                proxy.post(&path, r#"{"name":"c"}"#).await
            });
        }
        for (status, body) in made.join_all().await {
            assert_eq!(status, 200, "{body}");
        }
        let (status, body) = proxy.post("/consumers/more", "{}").await;
        assert_eq!(status, 429, "{body}");
        for n in 0..MOST {
            let path = format!("/consumers/g{n}/instances/c");
            proxy
                .send(Request::delete(path).body(Body::empty()).unwrap())
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_commits_let_the_next_instance_go_on() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    let consumer = r#"{"name":"c","format":"json","auto.offset.reset":"earliest"}"#;
    for value in ["1", "2"] {
        proxy.store_raw("t", 0, None, value).await;
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
        let records: Vec<serde_json::Value> = serde_json::from_str(&read).unwrap();
        assert_eq!(records.len(), 1, "{read}");
        assert_eq!(records[0]["value"].to_string(), value);
        let path = "/consumers/g/instances/c";
        proxy
            .send(Request::delete(path).body(Body::empty()).unwrap())
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_store_answers_and_harms_nothing() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    proxy.handle.close().await;
    proxy.streams.close().await;
    let (status, body) = proxy
        .post("/topics/t", r#"{"records":[{"value":1}]}"#)
        .await;
    // As kafka-rest does it: the call is answered, the record is not.
    assert!(
        status >= 500 || body.contains("\"error_code\":5000"),
        "{status} {body}"
    );
}

/// Prints what one machine does over kept connections; run it with `--ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, not a check"]
async fn kept_connections_under_load() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = proxy.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    for (connections, records) in [(1, 1), (16, 1), (64, 1), (8, 100), (4, 1_000)] {
        let record = "{\"value\":{\"a\":\"0123456789012345678901234567890123456789\"}}";
        let body = format!("{{\"records\":[{}]}}", vec![record; records].join(","));
        let request = format!(
            "POST /topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: \
             application/vnd.kafka.json.v2+json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let until = Instant::now() + Duration::from_secs(3);
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..connections {
            let request = request.clone();
            clients.spawn(async move {
                let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (mut times, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
                while Instant::now() < until {
                    let started = Instant::now();
                    stream.write_all(request.as_bytes()).await.unwrap();
                    let mut got = 0;
                    while !buffer[..got].ends_with(b"\"value_schema_id\":null}") {
                        got += stream.read(&mut buffer[got..]).await.unwrap();
                    }
                    assert!(buffer.starts_with(b"HTTP/1.1 200"));
                    times.push(started.elapsed());
                }
                times
            });
        }
        let mut times = Vec::new();
        while let Some(done) = clients.join_next().await {
            times.extend(done.unwrap());
        }
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 100];
        println!(
            "{connections} connections, {records} records a call: {} calls/s, {} records/s, \
             p50 {:?}, p99 {:?}",
            times.len() / 3,
            times.len() * records / 3,
            at(50),
            at(99)
        );
    }
}
