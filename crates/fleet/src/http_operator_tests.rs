//! Checks of what operators ask, assign, upload and set, over sockets.

use sha2::{Digest, Sha512};

use super::*;
use crate::limits;

/// A heartbeat of an agent that says what it is, and that it has resources of this hash.
fn beat_of(agent: &str, manifest: &Value, hash: Option<&str>) -> Value {
    let mut beat = heartbeat(agent, None);
    beat["agentInfo"]["agentManifestHash"] = json!(format!("{manifest}").len().to_string());
    beat["agentInfo"]["agentManifest"] = manifest.clone();
    beat["resourceInfo"] = match hash {
        Some(hash) => json!({"hash": hash}),
        None => json!({}),
    };
    beat
}

fn java() -> Value {
    json!({"agentType": "minifi-java", "buildInfo": {"version": "2.3.0"}, "supportedOperations": [
        {"type": "UPDATE", "properties": {"CONFIGURATION": {}, "ASSET": {}, "PROPERTIES": {}}},
        {"type": "START", "properties": {"FLOW": {}}},
        {"type": "SYNC", "properties": {"RESOURCE": {}}},
        {"type": "TRANSFER", "properties": {"DEBUG": {}}}]})
}

fn cpp() -> Value {
    json!({"agentType": "cpp", "buildInfo": {"version": "1.26.02"}, "supportedOperations": [
        {"type": "describe", "properties": {"manifest": {}, "configuration": {}}},
        {"type": "update", "properties": {"configuration": {}}},
        {"type": "restart"}, {"type": "pause"}]})
}

impl World {
    async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let (status, answer) = self.call(method, path, "", body.as_bytes()).await;
        (status, serde_json::from_slice(&answer).unwrap())
    }

    async fn ask(&self, target: &str, body: Value) -> Value {
        let path = format!("/api/v1/{target}/operations");
        let (status, answer) = self.send("POST", &path, &body).await;
        assert_eq!(status, 201, "{answer}");
        answer
    }

    async fn states(&self, agent: &str) -> Vec<String> {
        let path = format!("/api/v1/operations?agent={agent}");
        let all = self.get(&path).await;
        let all = all["operations"].as_array().unwrap().iter();
        let words = all.map(|op| {
            let text = |key: &str| op[key].as_str().unwrap().to_owned();
            format!(
                "{} {} {}",
                text("operation"),
                text("operand"),
                text("state")
            )
        });
        words.collect()
    }

    async fn upload(&self, name: &str, content: &[u8]) -> Value {
        let path = format!("/api/v1/resources?name={name}&path=models");
        let (status, answer) = self.call("POST", &path, "", content).await;
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&answer));
        serde_json::from_slice(&answer).unwrap()
    }

    async fn assign(&self, class: &str, body: Value) -> Value {
        let path = format!("/api/v1/classes/{class}/resources");
        let (status, answer) = self.send("PUT", &path, &body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }
}

fn sha512(bytes: &[u8]) -> String {
    crate::manifest::hex(&Sha512::digest(bytes))
}

#[tokio::test]
async fn each_agent_of_a_class_gets_what_it_can_do_and_the_rest_is_told_at_once() {
    let world = World::new().await;
    world.beat(EFM, &beat_of("j", &java(), None)).await;
    world.beat(EFM, &beat_of("c", &cpp(), None)).await;
    let asked = world
        .ask(
            "classes/edge",
            json!({"operation": "start", "operand": "flow"}),
        )
        .await;
    assert_eq!(asked["operation_ids"].as_array().unwrap().len(), 1);
    assert_eq!(asked["refused_total"], 1);
    assert_eq!(asked["refused"][0]["agent_id"], "c");
    let reason = asked["refused"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("does not list START flow"), "{reason}");
    assert!(
        world
            .beat(EFM, &beat_of("c", &cpp(), None))
            .await
            .requested_operations
            .is_empty()
    );
    let got = world
        .beat(EFM, &beat_of("j", &java(), None))
        .await
        .requested_operations;
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].identifier, asked["operation_ids"][0]);
    // A single agent that cannot is the request's failure.
    let (status, answer) = world
        .send(
            "POST",
            "/api/v1/agents/j/operations",
            &json!({"operation": "RESTART"}),
        )
        .await;
    assert_eq!(status, 422, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("Java agents do not take RESTART")
    );
    for (target, body, status) in [
        ("agents/none", json!({"operation": "RESTART"}), 404),
        ("classes/none", json!({"operation": "RESTART"}), 404),
        ("agents/c", json!({"operation": "LEVITATE"}), 400),
        (
            "agents/c",
            json!({"operation": "RESTART", "args": {"x": 1}}),
            400,
        ),
        (
            "agents/j",
            json!({"operation": "UPDATE", "operand": "asset",
            "args": {"file": "x", "resourceId": "none"}}),
            404,
        ),
        (
            "agents/j",
            json!({"operation": "UPDATE", "operand": "configuration"}),
            422,
        ),
        (
            "agents/j",
            json!({"operation": "SYNC", "operand": "resource"}),
            422,
        ),
    ] {
        let path = format!("/api/v1/{target}/operations");
        assert_eq!(
            world.send("POST", &path, &body).await.0,
            status,
            "{target} {body}"
        );
    }
}

#[tokio::test]
async fn arguments_outlive_a_restart_and_lie_sealed() {
    let world = World::new().await;
    world.beat(EFM, &beat_of("j", &java(), None)).await;
    let args = json!({"nifi.some.password": "hunter2", "a": 1});
    let asked = world
        .ask(
            "agents/j",
            json!({"operation": "UPDATE", "operand": "properties", "args": args}),
        )
        .await;
    let id = asked["operation_ids"][0].as_str().unwrap().to_owned();
    let shown = world.get(&format!("/api/v1/operations/{id}")).await;
    assert_eq!(shown["args"]["nifi.some.password"], "********");
    assert_eq!(shown["request_id"], asked["request_id"]);
    let world = world.die().await;
    for name in ["fleet.db", "fleet.db-wal"] {
        let bytes = std::fs::read(world.folder.path().join(name)).unwrap_or_default();
        assert!(!bytes.windows(7).any(|seven| seven == b"hunter2"), "{name}");
    }
    let got = world
        .beat(EFM, &beat_of("j", &java(), None))
        .await
        .requested_operations;
    assert_eq!(got[0].identifier, id);
    assert_eq!(got[0].arg("nifi.some.password").as_deref(), Some("hunter2"));
    assert_eq!(got[0].args["a"], "1", "numbers go out as texts");
}

#[tokio::test]
async fn what_restarts_an_agent_is_handed_out_once_at_most() {
    let world = World::new().await;
    world.beat(EFM, &beat_of("c", &cpp(), None)).await;
    world.ask("agents/c", json!({"operation": "RESTART"})).await;
    let got = world
        .beat(EFM, &beat_of("c", &cpp(), None))
        .await
        .requested_operations;
    assert_eq!(got.len(), 1);
    // The process dies after the response: what went out is known.
    let world = world.die().await;
    world.clock.advance(Duration::from_secs(200));
    assert!(
        world
            .beat(EFM, &beat_of("c", &cpp(), None))
            .await
            .requested_operations
            .is_empty()
    );
    assert_eq!(world.states("c").await, ["RESTART  deployed"]);
    world.clock.advance(Duration::from_secs(200));
    world.fleet.inner.sweep(None);
    assert_eq!(world.states("c").await, ["RESTART  timed_out"]);
}

#[tokio::test]
async fn an_operation_without_answers_ends_with_the_next_call() {
    let world = World::new().await;
    world.beat(EFM, &beat_of("c", &cpp(), None)).await;
    world.ask("agents/c", json!({"operation": "PAUSE"})).await;
    world.beat(EFM, &beat_of("c", &cpp(), None)).await;
    assert_eq!(world.states("c").await, ["PAUSE  deployed"]);
    world.clock.advance(Duration::from_secs(30));
    assert!(
        world
            .beat(EFM, &beat_of("c", &cpp(), None))
            .await
            .requested_operations
            .is_empty()
    );
    assert_eq!(world.states("c").await, ["PAUSE  done"]);
}

#[tokio::test]
async fn operations_can_be_cancelled_until_they_are_over() {
    let world = World::new().await;
    world.beat(EFM, &beat_of("c", &cpp(), None)).await;
    world.beat(EFM, &beat_of("c2", &cpp(), None)).await;
    let asked = world
        .ask("classes/edge", json!({"operation": "RESTART"}))
        .await;
    let one = asked["operation_ids"][0].as_str().unwrap();
    let path = format!("/api/v1/operations/{one}/cancel");
    assert_eq!(
        world.send("POST", &path, &json!({})).await.1["state"],
        "cancelled"
    );
    assert_eq!(world.send("POST", &path, &json!({})).await.0, 409);
    let request = asked["request_id"].as_str().unwrap();
    let path = format!("/api/v1/requests/{request}/cancel");
    assert_eq!(
        world.send("POST", &path, &json!({})).await.1,
        json!({"cancelled": 1})
    );
    assert!(
        world
            .beat(EFM, &beat_of("c", &cpp(), None))
            .await
            .requested_operations
            .is_empty()
    );
    let of_request = format!("/api/v1/operations?request={request}&state=cancelled");
    assert_eq!(
        world.get(&of_request).await["operations"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn what_an_agent_describes_can_be_read() {
    let world = World::new().await;
    world.beat(EFM, &beat_of("c", &cpp(), None)).await;
    let body = json!({"operation": "DESCRIBE", "operand": "configuration"});
    let asked = world.ask("agents/c", body).await;
    let id = asked["operation_ids"][0].as_str().unwrap();
    let path = format!("/api/v1/operations/{id}/result");
    assert_eq!(world.call("GET", &path, "", b"").await.0, 404);
    world.beat(EFM, &beat_of("c", &cpp(), None)).await;
    let ack = json!({"operationId": id, "operation": "acknowledge",
        "operationState": {"state": "FULLY_APPLIED", "details": ""},
        "configuration_options": {"nifi.c2.agent.class": "edge"}, "more": [1]});
    let ack = Acknowledge::parse(ack.to_string().as_bytes()).unwrap();
    world.ack(&ack).await;
    let world = world.restart().await;
    let result = world.get(&path).await;
    assert_eq!(
        result["configuration_options"]["nifi.c2.agent.class"],
        "edge"
    );
    assert_eq!(result["more"], json!([1]));

    // It goes after its operation, and nothing else does.
    let rows = async |world: &World| {
        let count = sql::Statement::new("SELECT COUNT(*) AS n FROM operation_results");
        let row = world.fleet.inner.store.database().row("count", &count);
        row.await.unwrap().unwrap().number("n").unwrap()
    };
    world.beat(EFM, &beat_of("d", &cpp(), None)).await;
    let (status, _) = world.call("DELETE", "/api/v1/agents/c", "", b"").await;
    assert_eq!(status, 200);
    let body = json!({"operation": "DESCRIBE", "operand": "configuration"});
    let asked = world.ask("agents/d", body).await;
    world.beat(EFM, &beat_of("d", &cpp(), None)).await;
    let id = asked["operation_ids"][0].as_str().unwrap();
    let ack = Acknowledge::new(id, AckState::FullyApplied);
    world.ack(&ack).await;
    world.fleet.inner.prune_results().await.unwrap();
    assert_eq!(rows(&world).await, 1);
    let path = format!("/api/v1/operations/{id}/result");
    assert_eq!(world.call("GET", &path, "", b"").await.0, 200);
}

#[tokio::test]
async fn resources_reach_agents_until_they_echo_the_digest() {
    let world = World::new().await;
    world.beat(EFM, &beat_of("j", &java(), None)).await;
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let made = world.upload("m.bin", &content).await;
    assert_eq!(made["sha512"], sha512(&content));
    let id = made["id"].as_str().unwrap();
    let set = world.assign("edge", json!({"assign": [id]})).await;
    assert_eq!(
        (&set["agents_pending"], &set["agents_synced"]),
        (&json!(1), &json!(0))
    );
    let got = world
        .beat(EFM, &beat_of("j", &java(), None))
        .await
        .requested_operations;
    assert_eq!(got.len(), 1);
    let item = &got[0].args["resourceList"][0];
    assert_eq!(
        (&item["resourceName"], &item["resourcePath"]),
        (&json!("m.bin"), &json!("models"))
    );
    let url = item["url"].as_str().unwrap();
    let path = url
        .strip_prefix(&format!("http://{}", world.address))
        .unwrap();
    assert_eq!(
        world.call("GET", path, "", b"").await,
        (200, content.clone())
    );
    for (range, status, wanted) in [
        ("bytes=0-9", 206, &content[..10]),
        ("bytes=262100-262200", 206, &content[262_100..262_201]),
        ("bytes=-5", 206, &content[content.len() - 5..]),
    ] {
        let headers = format!("Range: {range}\r\n");
        assert_eq!(
            world.call("GET", path, &headers, b"").await,
            (status, wanted.to_vec()),
            "{range}"
        );
    }
    let beyond = world
        .call("GET", path, "Range: bytes=3000000-\r\n", b"")
        .await;
    assert_eq!(beyond.0, 416);
    let digest = got[0].args["globalHash"]["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(set["digest"], digest);
    // The acknowledge is lost; the echo says as much.
    world.beat(EFM, &beat_of("j", &java(), Some(&digest))).await;
    assert_eq!(world.states("j").await, ["SYNC resource done"]);
    assert_eq!(
        world.get("/api/v1/agents/j").await["resource_state"],
        "synced"
    );
    let world = world.restart().await;
    assert_eq!(
        world.get("/api/v1/classes/edge/resources").await["digest"],
        digest
    );
    let beat = beat_of("j", &java(), Some(&digest));
    assert!(world.beat(EFM, &beat).await.requested_operations.is_empty());
    // Un-assigned, it goes with the next heartbeat.
    let (status, answer) = world
        .send("DELETE", &format!("/api/v1/resources/{id}"), &json!({}))
        .await;
    assert_eq!(status, 409, "{answer}");
    world.assign("edge", json!({"unassign": [id]})).await;
    let got = world.beat(EFM, &beat).await.requested_operations;
    assert_eq!(got[0].args["resourceList"], json!([]));
    assert_eq!(
        world
            .send("DELETE", &format!("/api/v1/resources/{id}"), &json!({}))
            .await
            .0,
        200
    );
    assert_eq!(world.call("GET", path, "", b"").await.0, 404);
}

#[tokio::test]
async fn a_sync_that_fails_is_seen_and_tried_again_after_longer_and_longer_waits() {
    let world = World::new().await;
    world.beat(EFM, &beat_of("j", &java(), None)).await;
    let made = world.upload("m.bin", b"x").await;
    world.assign("edge", json!({"assign": [made["id"]]})).await;
    let mut tries = Vec::new();
    for minute in 0..30 {
        let got = world
            .beat(EFM, &beat_of("j", &java(), None))
            .await
            .requested_operations;
        if let Some(sync) = got.first() {
            tries.push(minute);
            let mut ack = Acknowledge::new(&sync.identifier, AckState::NotApplied);
            ack.operation_state.as_mut().unwrap().details = Some("no room".to_owned());
            world.ack(&ack).await;
        }
        world.clock.advance(Duration::from_secs(60));
    }
    // After 90 s, 180 s, 360 s and 720 s.
    assert_eq!(tries, [0, 2, 5, 11, 23]);
    assert_eq!(
        world.get("/api/v1/agents/j").await["resource_state"],
        "failed"
    );
    let all = world.get("/api/v1/operations?agent=j").await;
    assert_eq!(all["operations"][0]["details"], "NOT_APPLIED: no room");
    // Another set is another matter.
    let other = world.upload("m.bin", b"y").await;
    let set = world.assign("edge", json!({"assign": [other["id"]]})).await;
    assert_eq!(
        set["resources"].as_array().unwrap().len(),
        1,
        "the same name is replaced"
    );
    let got = world
        .beat(EFM, &beat_of("j", &java(), None))
        .await
        .requested_operations;
    assert_eq!(got.len(), 1);
}

#[tokio::test]
async fn an_agent_without_resources_is_refused_once_and_visibly() {
    let world = World::new().await;
    let made = world.upload("m.bin", b"x").await;
    world.assign("edge", json!({"assign": [made["id"]]})).await;
    for _ in 0..20 {
        let mut beat = heartbeat("old", None);
        beat["agentInfo"]["agentManifest"]["buildInfo"]["version"] = json!("1.18.0");
        assert!(world.beat(EFM, &beat).await.requested_operations.is_empty());
        world.clock.advance(Duration::from_secs(1_000));
    }
    assert_eq!(world.states("old").await, ["SYNC resource failed"]);
    assert_eq!(
        world.get("/api/v1/agents/old").await["resource_state"],
        "failed"
    );
}

#[tokio::test]
async fn a_bundle_comes_from_whom_it_was_asked_of_only() {
    let world = World::new().await;
    world.beat(EFM, &beat_of("j", &java(), None)).await;
    let body = json!({"operation": "TRANSFER", "operand": "debug"});
    let asked = world.ask("agents/j", body).await;
    let id = asked["operation_ids"][0].as_str().unwrap().to_owned();
    let content: Vec<u8> = (0..700_000_u32).map(|n| (n % 13) as u8).collect();
    let head = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"debug.tar.gz\"\r\n\
                Content-Type: application/gzip\r\n\r\n";
    let form = [head.as_bytes(), &content, b"\r\n--x--\r\n"].concat();
    let headers = "Content-Type: multipart/form-data; boundary=x\r\n";
    let path = format!("{EFM}/bundles/{id}");
    assert_eq!(
        world.call("POST", &path, headers, &form).await.0,
        404,
        "not handed out yet"
    );
    let got = world
        .beat(EFM, &beat_of("j", &java(), None))
        .await
        .requested_operations;
    assert!(got[0].arg("target").unwrap().ends_with(&path));
    assert_eq!(
        world
            .call("POST", "/c2/bundles/other", headers, &form)
            .await
            .0,
        404
    );
    let (status, answer) = world
        .call("POST", &path, headers, &form[..form.len() / 2])
        .await;
    assert_eq!(status, 400, "{}", String::from_utf8_lossy(&answer));
    // The answer to the first one may have been lost; Java agents of EFM send it below their base.
    let below_base = format!("/efm/api/bundles/{id}");
    for path in [&path, &path, &below_base] {
        let (status, answer) = world.call("POST", path, headers, &form).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    }
    let listed = world.get("/api/v1/bundles?agent=j").await;
    assert_eq!(listed["bundles"].as_array().unwrap().len(), 1);
    assert_eq!(listed["bundles"][0]["sha512"], sha512(&content));
    let content_path = format!("/api/v1/bundles/{id}/content");
    assert_eq!(
        world.call("GET", &content_path, "", b"").await,
        (200, content)
    );
}

#[tokio::test]
async fn parameters_are_put_in_at_fetch_and_secrets_are_never_shown() {
    let world = World::new().await;
    let yaml = "MiNiFi Config Version: 3\nProcessors:\n- {id: p, name: P, class: org.P, Properties: \
                {Host: '#{host}', Pass: '#{pass}', Own: '#{own}'}}\nParameter Contexts:\n- name: c\n  \
                Parameters:\n  - {name: own, sensitive: true, value: in-the-flow}\n";
    world.beat(EFM, &beat_of("j", &java(), None)).await;
    world.beat(EFM, &beat_of("k", &java(), None)).await;
    let published = world.publish("edge", yaml).await;
    let flow = published["flow_id"].as_str().unwrap();
    let set = |path: &str, body: Value| {
        let path = format!("/api/v1/{path}/parameters");
        let world = &world;
        async move { world.send("PATCH", &path, &body).await }
    };
    let secret = json!({"host": {"value": "all"}, "pass": {"value": "hunter2", "sensitive": true}});
    let (status, shown) = set("classes/edge", secret).await;
    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["parameters"][1]["value"], Value::Null);
    assert_eq!(
        set("agents/j", json!({"host": {"value": "mine"}})).await.0,
        200
    );
    assert_eq!(set("agents/none", json!({})).await.0, 404);
    assert_eq!(set("agents/j", json!({"host": 7})).await.0, 400);
    let fetch = async |agent: &str| {
        let path = format!("{EFM}/flows/{flow}?aid={agent}");
        let (status, text) = world.call("GET", &path, "", b"").await;
        assert_eq!(status, 200);
        String::from_utf8(text).unwrap()
    };
    // An agent of a new version reads NiFi's JSON, and who is not known gets what was published.
    for (agent, host) in [("j", "mine"), ("k", "all"), ("unknown", "all")] {
        let text = fetch(agent).await;
        for (name, value) in [("Host", host), ("Pass", "hunter2"), ("Own", "in-the-flow")] {
            let part = match text.starts_with('{') {
                true => format!("\"{name}\":\"{value}\""),
                false => format!("{name}: {value}"),
            };
            assert!(text.contains(&part), "{agent}: {text}");
        }
        assert_eq!(text.starts_with('{'), agent != "unknown", "{agent}");
    }
    let shown = world
        .call("GET", &format!("/api/v1/flows/{flow}"), "", b"")
        .await
        .1;
    let shown = String::from_utf8(shown).unwrap();
    assert!(
        shown.contains("#{pass}") && !shown.contains("in-the-flow"),
        "{shown}"
    );
    let (status, again) = world
        .send("POST", &format!("/api/v1/flows/{flow}/publish"), &json!({}))
        .await;
    assert_eq!((status, &again["version"]), (201, &json!(2)));
    let own = format!(
        "/api/v1/flows/{}/parameters",
        again["flow_id"].as_str().unwrap()
    );
    assert_eq!(world.get(&own).await["parameters"][0]["name"], "own");
    assert_eq!(
        set("classes/edge", json!({"pass": null})).await.1["parameters"][0]["name"],
        "host"
    );
    for name in ["fleet.db", "fleet.db-wal"] {
        let bytes = std::fs::read(world.folder.path().join(name)).unwrap_or_default();
        for secret in [&b"hunter2"[..], b"in-the-flow"] {
            assert!(
                !bytes.windows(secret.len()).any(|part| part == secret),
                "{name}"
            );
        }
    }
}

#[tokio::test]
async fn a_flow_is_checked_against_the_manifest_of_the_class() {
    let world = World::new().await;
    let mut manifest = java();
    manifest["bundles"] = json!([{"componentManifest": {"processors": [
        {"type": "org.P", "propertyDescriptors": {"Dir": {"name": "Dir", "required": true}}}]}}]);
    let mut beat = beat_of("j", &manifest, None);
    beat["agentInfo"]["agentManifestHash"] = json!("components");
    world.beat(EFM, &beat).await;
    let path = "/api/v1/classes/edge/flows";
    let (status, answer) = world.call("POST", path, "", YAML.as_bytes()).await;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(status, 400, "{answer}");
    assert_eq!(
        answer["problems"],
        json!([{"component": "P", "component_id": "p", "property": "Dir",
            "reason": "it is required and has no value"}])
    );
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("P, property 'Dir'")
    );
    let check = format!("{path}/check");
    let (status, checked) = world.call("POST", &check, "", YAML.as_bytes()).await;
    let checked: Value = serde_json::from_slice(&checked).unwrap();
    assert_eq!(
        (status, &checked["manifest_hash"]),
        (200, &json!(world.key("components")))
    );
    let forced = format!("{path}?force=true");
    let (status, first) = world.call("POST", &forced, "", YAML.as_bytes()).await;
    assert_eq!(status, 201);
    let first: Value = serde_json::from_slice(&first).unwrap();
    let good = YAML.replace("org.P}", "org.P, Properties: {Dir: /x}}");
    let second = world.publish("edge", &good).await;
    assert_eq!(second["checked_against"], world.key("components"));
    let diff = format!("/api/v1/flows/{}/diff", second["flow_id"].as_str().unwrap());
    let diff = world.get(&diff).await;
    assert_eq!(diff["against"], first["flow_id"]);
    assert_eq!(
        diff["differences"],
        json!([{"place": "Processors[\"p\"].Properties.Dir", "change": "added",
            "from": null, "to": "/x"}])
    );
}

#[tokio::test]
async fn a_class_uploads_so_many_bundles_at_once_over_restarts_and_an_operator_says_how_many() {
    let world = World::new().await;
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        world.beat(EFM, &beat_of(name, &java(), None)).await;
    }
    let body = json!({"operation": "TRANSFER", "operand": "debug", "at_once": 2});
    let asked = world.ask("classes/edge", body).await;
    assert_eq!(asked["at_once"], 2);
    let served = async |world: &World| {
        let mut served = Vec::new();
        for name in names {
            let got = world.beat(EFM, &beat_of(name, &java(), None)).await;
            let got = got.requested_operations.into_iter();
            served.extend(got.map(|operation| (name, operation.identifier)));
        }
        served
    };
    let first = served(&world).await;
    assert_eq!(first.len(), 2, "{first:?}");
    assert!(served(&world).await.is_empty());
    let request = asked["request_id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/operations?request={request}&state=queued");
    let listed = world.get(&path).await;
    assert_eq!(listed["operations"].as_array().unwrap().len(), 3);
    assert_eq!(listed["operations"][0]["at_once"], 2);

    // What is out is known after a crash, too.
    let world = world.die().await;
    assert!(served(&world).await.is_empty());
    let done = Acknowledge::new(&first[0].1, AckState::FullyApplied);
    world.ack(&done).await;
    assert_eq!(served(&world).await.len(), 1);

    let path = format!("/api/v1/requests/{request}");
    let view = world.get(&path).await;
    let counts = ["queued", "deployed", "done"].map(|state| view[state].as_i64().unwrap());
    assert_eq!((counts, &view["class"]), ([2, 2, 1], &json!("edge")));
    let (status, view) = world.send("PATCH", &path, &json!({"at_once": 3})).await;
    assert_eq!((status, &view["at_once"]), (200, &json!(3)), "{view}");
    let world = world.die().await;
    assert_eq!(served(&world).await.len(), 1);
    let listed = world.get("/api/v1/requests?class=edge").await;
    assert_eq!(listed["requests"][0]["at_once"], 3, "{listed}");
    assert_eq!(
        world.get("/api/v1/requests?class=north").await["requests"],
        json!([])
    );
    let other = "X-As: ann operator:north\r\n";
    assert_eq!(world.call("PATCH", &path, other, b"{}").await.0, 404);
    let viewer = "X-As: ann viewer:edge\r\n";
    assert_eq!(world.call("PATCH", &path, viewer, b"{}").await.0, 403);
    let seen = world.call("GET", "/api/v1/requests", other, b"").await.1;
    assert_eq!(
        serde_json::from_slice::<Value>(&seen).unwrap()["requests"],
        json!([])
    );
    let (status, answer) = world.send("PATCH", &path, &json!({"at_once": -1})).await;
    assert_eq!(status, 400, "{answer}");
    let unknown = "/api/v1/requests/none";
    let (status, _) = world.send("PATCH", unknown, &json!({"at_once": 1})).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn one_agent_alone_has_no_bound_and_is_not_given_one() {
    let world = World::new().await;
    world.beat(EFM, &beat_of("j", &java(), None)).await;
    let body = json!({"operation": "TRANSFER", "operand": "debug"});
    let asked = world.ask("agents/j", body.clone()).await;
    assert_eq!(asked["at_once"], 0);
    let mut bound = body;
    bound["at_once"] = json!(1);
    let path = "/api/v1/agents/j/operations";
    let (status, answer) = world.send("POST", path, &bound).await;
    assert_eq!(status, 400, "{answer}");
    let request = asked["request_id"].as_str().unwrap();
    let path = format!("/api/v1/requests/{request}");
    assert_eq!(world.get(&path).await["agent_id"], "j");
    let (status, _) = world.send("PATCH", &path, &json!({"at_once": 1})).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_class_fetches_its_resources_with_the_bound_that_it_was_given() {
    let world = World::new().await;
    let names = ["a", "b", "c"];
    let fetching = async |world: &World| {
        let mut count = 0;
        for name in names {
            let beat = beat_of(name, &java(), Some("other"));
            count += world.beat(EFM, &beat).await.requested_operations.len();
        }
        count
    };
    assert_eq!(fetching(&world).await, 0);
    let path = "/api/v1/classes/edge/resources";
    assert_eq!(world.get(path).await["at_once"], Value::Null);
    let one = world.upload("m.bin", b"one").await;
    let assigned = world.assign("edge", json!({"assign": [one["id"]]})).await;
    assert_eq!(assigned["at_once"], limits::FETCHES_AT_ONCE_DEFAULT);
    let assigned = world.assign("edge", json!({"at_once": 1})).await;
    assert_eq!(assigned["resources"].as_array().unwrap().len(), 1);
    assert_eq!(fetching(&world).await, 1);
    let world = world.die().await;
    assert_eq!(world.get(path).await["at_once"], 1);
    assert_eq!(fetching(&world).await, 0);
    let listed = world.get("/api/v1/operations?agent=b").await;
    assert_eq!(listed["operations"][0]["at_once"], 1, "{listed}");
    // Who is still to fetch them, and of which build that is.
    let count = async |wanted: &str| {
        let listed = world.get(&format!("/api/v1/agents?{wanted}")).await;
        listed["agents"].as_array().unwrap().len()
    };
    assert_eq!(count("resource_state=pending").await, 3);
    assert_eq!(count("resource_state=synced").await, 0);
    let hash = format!("{}", java()).len();
    assert_eq!(
        count(&format!("manifest={}", world.key(&hash.to_string()))).await,
        3
    );
    assert_eq!(
        count(&format!("manifest={hash}&resource_state=pending")).await,
        3
    );
    assert_eq!(count("manifest=another").await, 0);
    let bad = world
        .call("GET", "/api/v1/agents?resource_state=lost", "", b"")
        .await;
    assert_eq!(bad.0, 400);
    // It stays when other resources come; 0 lets all others at it.
    let two = world.upload("n.bin", b"two").await;
    let assigned = world.assign("edge", json!({"assign": [two["id"]]})).await;
    assert_eq!(assigned["at_once"], 1);
    world.assign("edge", json!({"at_once": 0})).await;
    assert_eq!(fetching(&world).await, 3);
}
