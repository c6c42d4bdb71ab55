//! Checks of the C2 routes and the management API over sockets.

use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn;
use base::{ManualClock, UnixMillis};
use c2::{AckState, Acknowledge, HeartbeatResponse};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::{Fleet, FleetConfig};

#[path = "http_classes_tests.rs"]
mod classes;
#[path = "http_efm_tests.rs"]
mod efm;
#[path = "http_giving_tests.rs"]
mod giving;
#[path = "http_manifest_tests.rs"]
mod manifests;
#[path = "http_operator_tests.rs"]
mod operators;
#[path = "http_registry_tests.rs"]
mod registry;
#[path = "http_roles_tests.rs"]
mod roles;

const START: UnixMillis = UnixMillis(1_800_000_000_000);
const YAML: &str = "MiNiFi Config Version: 3\nProcessors:\n- {id: p, name: P, class: org.P}\n";
const EFM: &str = "/efm/api/c2-protocol";

struct World {
    folder: tempfile::TempDir,
    clock: ManualClock,
    fleet: Arc<Fleet>,
    address: String,
    server: JoinHandle<()>,
}

impl World {
    async fn new() -> World {
        World::at(tempfile::tempdir().unwrap(), ManualClock::at(START)).await
    }

    async fn at(folder: tempfile::TempDir, clock: ManualClock) -> World {
        let config = FleetConfig::default();
        let fleet = Fleet::open(folder.path(), config, Arc::new(clock.clone()))
            .await
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let routes = super::audited(super::routes(fleet.clone()), fleet.clone());
        let routes = routes.layer(from_fn(registry::shows_certificate));
        let routes = routes.layer(from_fn(roles::named));
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        World {
            folder,
            clock,
            fleet,
            address,
            server,
        }
    }

    async fn restart(self) -> World {
        self.server.abort();
        self.fleet.close().await;
        World::at(self.folder, self.clock).await
    }

    /// The process dies: nothing that is not written is written.
    async fn die(self) -> World {
        self.server.abort();
        let _ = self.server.await;
        self.fleet.stop_writing().await;
        World::at(self.folder, self.clock).await
    }

    /// One request on a connection of its own: status and body.
    async fn call(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut link = TcpStream::connect(&self.address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\
             {headers}\r\n",
            self.address,
            body.len()
        );
        link.write_all(head.as_bytes()).await.unwrap();
        // The server may answer before it has read all of a body that it refuses.
        let _ = link.write_all(body).await;
        let mut answer = Vec::new();
        let _ = link.read_to_end(&mut answer).await;
        let (head, body) = parted(&answer);
        (status_of(&head), body)
    }

    /// The head of the answer to a request without a body.
    async fn head_of(&self, method: &str, path: &str) -> (u16, String) {
        let mut link = TcpStream::connect(&self.address).await.unwrap();
        let host = &self.address;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        link.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        link.read_to_end(&mut answer).await.unwrap();
        let (head, _) = parted(&answer);
        (status_of(&head), head)
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, "", b"").await;
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    /// The key of the manifest for which an agent says this hash.
    fn key(&self, hash: &str) -> String {
        let registry = self.fleet.inner.registry.lock();
        registry.manifest_named(hash).unwrap().to_string()
    }

    async fn publish(&self, class: &str, flow: &str) -> Value {
        let path = format!("/api/v1/classes/{class}/flows");
        let (status, body) = self.call("POST", &path, "", flow.as_bytes()).await;
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    async fn beat(&self, prefix: &str, body: &Value) -> HeartbeatResponse {
        let body = body.to_string();
        let path = format!("{prefix}/heartbeat");
        let (status, answer) = self.call("POST", &path, "", body.as_bytes()).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
        let text: Value = serde_json::from_slice(&answer).unwrap();
        assert!(text["requestedOperations"].is_array(), "{text}");
        HeartbeatResponse::parse(&answer).unwrap()
    }

    async fn ack(&self, ack: &Acknowledge) {
        let path = format!("{EFM}/acknowledge");
        let (status, answer) = self.call("POST", &path, "", &ack.to_vec().unwrap()).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    }
}

fn parted(answer: &[u8]) -> (String, Vec<u8>) {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    (head, answer[end + 4..].to_vec())
}

fn status_of(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn heartbeat(agent: &str, flow: Option<&str>) -> Value {
    json!({
        "deviceInfo": {"identifier": "d", "networkInfo": {"hostname": "edge-1"}},
        "agentInfo": {"identifier": agent, "agentClass": "edge", "agentManifestHash": "h",
            "agentManifest": {"agentType": "minifi-java", "buildInfo": {"version": "1.18.0"}}},
        "flowInfo": {"flowId": flow},
        "custom": {"kept": [1, 2]},
    })
}

#[tokio::test]
async fn an_agent_registers_gets_its_flow_and_acknowledges() {
    let world = World::new().await;
    assert!(
        world
            .beat(EFM, &heartbeat("a 1", None))
            .await
            .requested_operations
            .is_empty()
    );
    let published = world.publish("edge", YAML).await;
    assert_eq!(
        (&published["version"], &published["class"]),
        (&json!(1), &json!("edge"))
    );
    let flow = published["flow_id"].as_str().unwrap().to_owned();

    let asked = world
        .beat(EFM, &heartbeat("a 1", None))
        .await
        .requested_operations
        .remove(0);
    let location = asked.arg("location").unwrap();
    let wanted = format!("http://{}{EFM}/flows/{flow}?aid=a%201", world.address);
    assert_eq!(location, wanted);
    assert_eq!(asked.arg("flowId").as_deref(), Some(&*flow));
    let path = location
        .strip_prefix(&format!("http://{}", world.address))
        .unwrap();
    assert_eq!(
        world.call("GET", path, "", b"").await,
        (200, YAML.as_bytes().to_vec())
    );
    let efm = format!("{EFM}/flows/{flow}/?aid=x");
    assert_eq!(world.call("GET", &efm, "", b"").await.0, 200);

    world
        .ack(&Acknowledge::new(&asked.identifier, AckState::FullyApplied))
        .await;
    world.beat(EFM, &heartbeat("a 1", Some(&flow))).await;
    let operations = world.get("/api/v1/operations?agent=a%201").await;
    assert_eq!(operations["operations"][0]["state"], "done");
    assert_eq!(operations["operations"][0]["acknowledged"], true);
    let agent = world.get("/api/v1/agents/a%201").await;
    for (key, value) in [
        ("id", json!("a 1")),
        ("class", json!("edge")),
        ("agent_type", json!("minifi-java")),
        ("state", json!("online")),
        ("hostname", json!("edge-1")),
        ("flow_id", json!(flow)),
        ("desired_flow_id", json!(flow)),
        ("flow_state", json!("deployed")),
        ("heartbeats_total", json!(3)),
        ("last_seen_ms", json!(START.0)),
    ] {
        assert_eq!(agent[key], value, "{key}");
    }
    assert_eq!(agent["heartbeat"]["custom"], json!({"kept": [1, 2]}));
    let classes = world.get("/api/v1/classes").await;
    let class = &classes["classes"][0];
    assert_eq!(
        (&class["agents"], &class["agents_online"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        (&class["flow_id"], &class["flow_version"]),
        (&json!(flow), &json!(1))
    );
}

#[tokio::test]
async fn plain_paths_lead_to_plain_addresses() {
    let world = World::new().await;
    world.publish("edge", YAML).await;
    let asked = world
        .beat("/c2", &heartbeat("a", None))
        .await
        .requested_operations
        .remove(0);
    let location = asked.arg("location").unwrap();
    assert!(
        location.starts_with(&format!("http://{}/c2/flows/", world.address)),
        "{location}"
    );
}

#[tokio::test]
async fn a_restart_forgets_nothing_that_lasts() {
    let world = World::new().await;
    let flow = world.publish("edge", YAML).await["flow_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let asked = world
        .beat(EFM, &heartbeat("a", None))
        .await
        .requested_operations
        .remove(0);
    world.clock.advance(Duration::from_secs(5));
    world.beat(EFM, &heartbeat("a", None)).await;
    let before = world.get("/api/v1/agents").await;
    let world = world.restart().await;
    assert_eq!(world.get("/api/v1/agents").await, before);
    let manifest = world.get("/api/v1/manifests/h").await;
    assert_eq!(manifest["agentType"], "minifi-java");
    assert_eq!(world.publish("edge", YAML).await["version"], 2);
    assert_eq!(
        world.get("/api/v1/classes/edge/flows").await["flows"][1]["flow_id"],
        flow
    );
    world
        .ack(&Acknowledge::new(&asked.identifier, AckState::FullyApplied))
        .await;
    let operations = world.get("/api/v1/operations?agent=a").await;
    assert_eq!(operations["operations"][0]["id"], asked.identifier);
    assert_eq!(operations["operations"][0]["state"], "done");
}

#[tokio::test]
async fn an_operation_that_was_handed_out_is_known_after_a_crash() {
    let world = World::new().await;
    world.publish("edge", YAML).await;
    let asked = world
        .beat(EFM, &heartbeat("a", None))
        .await
        .requested_operations
        .remove(0);
    let world = world.die().await;
    // The response may have been lost with the process: the same operation comes again.
    world.clock.advance(Duration::from_secs(100));
    let again = world
        .beat(EFM, &heartbeat("a", None))
        .await
        .requested_operations;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].identifier, asked.identifier);
}

#[tokio::test]
async fn an_acknowledge_that_was_answered_is_known_after_a_crash() {
    let world = World::new().await;
    world.publish("edge", YAML).await;
    let asked = world
        .beat(EFM, &heartbeat("a", None))
        .await
        .requested_operations
        .remove(0);
    world
        .ack(&Acknowledge::new(&asked.identifier, AckState::NotApplied))
        .await;
    let world = world.die().await;
    let operations = world.get("/api/v1/operations?agent=a").await;
    assert_eq!(operations["operations"][0]["state"], "failed");
}

#[tokio::test]
async fn a_silent_agent_is_missing_until_it_calls() {
    let world = World::new().await;
    world.beat(EFM, &heartbeat("a", None)).await;
    world.clock.advance(Duration::from_secs(90));
    assert_eq!(
        world.get("/api/v1/agents").await["agents"][0]["state"],
        "online"
    );
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(
        world.get("/api/v1/agents?state=missing").await["agents"][0]["id"],
        "a"
    );
    world.beat(EFM, &heartbeat("a", None)).await;
    assert_eq!(world.get("/api/v1/agents/a").await["state"], "online");
}

#[tokio::test]
async fn wrong_requests_are_refused_with_a_reason_and_without_operations() {
    let world = World::new().await;
    world.publish("edge", YAML).await;
    let deep = "[".repeat(200_000);
    let heartbeat = format!("{EFM}/heartbeat");
    for (method, path, headers, body, status, says) in [
        ("POST", &*heartbeat, "", "", 400, "not a JSON object"),
        ("POST", &*heartbeat, "", "[]", 400, "not a JSON object"),
        ("POST", &*heartbeat, "", "{}", 400, "agentInfo.identifier"),
        ("POST", &*heartbeat, "", &*deep, 400, "not a JSON object"),
        ("POST", "/c2/acknowledge", "", "{}", 400, "operationId"),
        ("GET", "/c2/flows/none", "", "", 404, "no flow 'none'"),
        ("GET", "/api/v1/agents/none", "", "", 404, "no agent 'none'"),
        (
            "GET",
            "/api/v1/classes/none",
            "",
            "",
            404,
            "no class 'none'",
        ),
        (
            "GET",
            "/api/v1/manifests/none",
            "",
            "",
            404,
            "no manifest 'none'",
        ),
        ("GET", "/api/v1/agents?stat=x", "", "", 400, "stat"),
        (
            "GET",
            "/api/v1/agents?state=x",
            "",
            "",
            400,
            "one of online, missing",
        ),
        (
            "GET",
            "/api/v1/agents?flow_state=x",
            "",
            "",
            400,
            "one of none, pending, deployed, failed",
        ),
        (
            "POST",
            "/api/v1/classes/edge/flows",
            "",
            "Processors:\n- {}",
            400,
            "Processors[0].name",
        ),
    ] {
        let (got, answer) = world.call(method, path, headers, body.as_bytes()).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(got, status, "{path}: {answer}");
        assert_eq!(answer["error_code"], status, "{path}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(says), "{path}: {message}");
        assert!(answer.get("requestedOperations").is_none());
    }
}

#[tokio::test]
async fn a_body_above_the_bound_is_refused_before_it_is_read() {
    let world = World::new().await;
    let mut link = TcpStream::connect(&world.address).await.unwrap();
    let head = "POST /c2/heartbeat HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n{";
    link.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    link.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[tokio::test]
async fn the_summary_counts_what_the_lists_show() {
    let world = World::new().await;
    world.beat(EFM, &heartbeat("first", None)).await;
    let published = world.publish("edge", YAML).await;
    let flow = published["flow_id"].as_str().unwrap();
    world.beat(EFM, &heartbeat("second", Some(flow))).await;
    world.beat(EFM, &heartbeat("third", None)).await;
    let mut stray = heartbeat("stray", None);
    stray["agentInfo"]["agentClass"] = Value::Null;
    world.clock.advance(Duration::from_secs(3_600));
    world.beat(EFM, &stray).await;
    let summary = world.get("/api/v1/fleet").await;
    assert_eq!(
        summary,
        json!({"agents": 4, "online": 1, "missing": 3, "parked": 1, "flows_deployed": 1,
            "flows_pending": 2, "flows_failed": 0, "classes": 1, "heartbeats_total": 4})
    );
}

#[tokio::test]
async fn lists_come_in_pages() {
    let world = World::new().await;
    for n in 0..5 {
        world.beat(EFM, &heartbeat(&format!("a{n}"), None)).await;
    }
    let first = world.get("/api/v1/agents?limit=3").await;
    assert_eq!(first["agents"].as_array().unwrap().len(), 3);
    assert_eq!(first["next"], "a2");
    let second = world.get("/api/v1/agents?limit=3&after=a2").await;
    assert_eq!(second["agents"][0]["id"], "a3");
    assert_eq!(second["next"], Value::Null);
}
