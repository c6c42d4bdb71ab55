//! schemathesis against the OpenAPI documents of a running proxy, registry, fleet, imports and access: data
//! that a document allows and data that it does not, and what is answered to each.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Up, curl, eventually, folder, interop, post, succeed, test_env};

#[test]
fn schemathesis_finds_nothing() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let rest = up.url("rest", "");
    furnish(&rest);
    register(&up);
    let clusters = curl(&[&format!("{rest}/v3/clusters")]).json();
    let cluster = clusters["data"][0]["cluster_id"].as_str().unwrap();
    let config = std::fs::read_to_string(interop("schemathesis.toml")).unwrap();
    let document = format!("{rest}/openapi.json");
    let generated = run(dir.path(), &document, &config.replace("{cluster}", cluster));
    assert!(generated > 1_000, "{generated}");
    // It still serves.
    let topics = curl(&[&format!("{rest}/topics")]);
    assert_eq!(topics.status, 200, "{}", topics.body);
}

#[test]
fn schemathesis_finds_nothing_in_the_registry() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    register(&up);
    let config = std::fs::read_to_string(interop("schemathesis-schemas.toml")).unwrap();
    let generated = run(dir.path(), &up.url("schemas", "/openapi.json"), &config);
    assert!(generated > 500, "{generated}");
    let types = curl(&[&up.url("schemas", "/subjects?deleted=true")]);
    assert_eq!(types.status, 200, "{}", types.body);
}

#[test]
fn schemathesis_finds_nothing_in_the_fleet() {
    let dir = folder();
    let up = Up::start_with(&dir.path().join("data"), &["--role", "fleet"]);
    let mut config = std::fs::read_to_string(interop("schemathesis-fleet.toml")).unwrap();
    for (mark, id) in furnish_fleet(&up) {
        config = config.replace(&format!("{{{mark}}}"), &id);
    }
    let document = up.url("management", "/api/v1/openapi.json");
    // Agents go on calling, so that those that are removed come back.
    let is_over = AtomicBool::new(false);
    let generated = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                beat(&up);
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        // However it ends, the agents stop.
        let run = || run(dir.path(), &document, &config);
        let generated = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        is_over.store(true, Ordering::Relaxed);
        generated.unwrap_or_else(|failed| std::panic::resume_unwind(failed))
    });
    assert!(generated > 1_000, "{generated}");
    beat(&up);
    let agents = up.get("/api/v1/agents");
    assert!(!agents["agents"].as_array().unwrap().is_empty(), "{agents}");
}

#[test]
fn schemathesis_finds_nothing_in_the_imports() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut config = std::fs::read_to_string(interop("schemathesis-imports.toml")).unwrap();
    for (mark, id) in furnish_imports(&up) {
        config = config.replace(&format!("{{{mark}}}"), &id);
    }
    let document = up.url("management", "/api/v1/imports/openapi.json");
    let generated = run(dir.path(), &document, &config);
    assert!(generated > 500, "{generated}");
    assert!(up.get("/api/v1/search?tenant=diku&q=one")["total"].is_u64());
}

#[test]
fn schemathesis_finds_nothing_in_the_access() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let call = |method: &str, path: &str, body: Value| {
        let url = up.url("management", path);
        let answer = curl(&["--request", method, "--json", &body.to_string(), &url]);
        assert!(answer.status < 300, "{path}: {}", answer.body);
        answer
    };
    call(
        "PUT",
        "/api/v1/users/ann",
        json!({"password": "one-of-hers"}),
    );
    let role = json!({"principal": "User:ann", "role": "operator", "class": "edge"});
    call("POST", "/api/v1/roles", role);
    let acl = json!({"principal": "User:ann", "operation": "READ", "resource_type": "TOPIC",
        "resource_name": "orders"});
    call("POST", "/api/v1/acls", acl);
    let token = call("POST", "/api/v1/tokens", json!({"user": "ann"})).json();
    let config = std::fs::read_to_string(interop("schemathesis-access.toml")).unwrap();
    let config = config.replace("{token}", token["id"].as_str().unwrap());
    let document = up.url("management", "/api/v1/access/openapi.json");
    let generated = run(dir.path(), &document, &config);
    assert!(generated > 300, "{generated}");
    assert_eq!(up.get("/api/v1/me")["principal"], Value::Null);
}

/// Makes a profile, a job that has ended with a rejected record, and one that waits for its file;
/// answers the jobs' ids by what stands for them in the configuration.
fn furnish_imports(up: &Up) -> Vec<(&'static str, String)> {
    let call = |method: &str, path: &str, body: &str| {
        let url = up.url("management", path);
        let answer = curl(&["--request", method, "--data-binary", body, &url]);
        assert!(answer.status < 300, "{path}: {}", answer.body);
        answer.json()
    };
    call(
        "PUT",
        "/api/v1/profiles/by-isbn?tenant=diku",
        r#"{"match": "isbn"}"#,
    );
    let jobs = "/api/v1/imports?format=jsonl&tenant=diku&key=id&topic=books";
    let lines = "{\"id\":\"r1\",\"title\":\"One\"}\n{broken\n{\"id\":\"r2\"}\n";
    let id = |job: &Value| job["id"].as_str().unwrap().to_owned();
    let ended = id(&call("POST", jobs, lines));
    let waiting = id(&call("POST", &format!("{jobs}&resumable=true"), ""));
    eventually("the job ends", || {
        let job = up.get(&format!("/api/v1/imports/{ended}"));
        (job["state"] == "completed_with_rejects").then_some(())
    });
    vec![("ended", ended), ("waiting", waiting)]
}

/// A heartbeat of each agent.
fn beat(up: &Up) {
    for agent in ["a", "removable"] {
        let beat = json!({"agentInfo": {"identifier": agent, "agentClass": "edge",
            "agentManifestHash": "h", "agentManifest": {"agentType": "minifi-java",
                "buildInfo": {"version": "2.3.0"}, "supportedOperations": [
                    {"type": "TRANSFER", "properties": {"DEBUG": {}}}]}}});
        let url = up.url("management", "/c2/heartbeat");
        let answer = curl(&["--json", &beat.to_string(), &url]);
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

/// Makes an agent, flows, an operation, a resource and a roll-out, so that not all calls end with a
/// 404; answers their ids by what stands for them in the configuration.
fn furnish_fleet(up: &Up) -> Vec<(&'static str, String)> {
    let call = |method: &str, path: &str, kind: &str, body: &str| {
        let kind = format!("Content-Type: {kind}");
        let url = up.url("management", path);
        let answer = curl(&[
            "--request",
            method,
            "--header",
            &kind,
            "--data-binary",
            body,
            &url,
        ]);
        assert!(answer.status < 300, "{path}: {}", answer.body);
        answer.json()
    };
    let made = |path: &str, kind: &str, body: &str, key: &str| {
        let told = call("POST", path, kind, body);
        let id = match &told[key] {
            Value::Array(ids) => ids[0].as_str(),
            id => id.as_str(),
        };
        id.unwrap().to_owned()
    };
    let json = "application/json";
    beat(up);
    let flow = "MiNiFi Config Version: 3\nProcessors:\n- {id: p, name: P, class: org.P}\n";
    let flows = "/api/v1/classes/edge/flows?deploy=false";
    let (one, two) = (
        made(flows, "application/yaml", flow, "flow_id"),
        made(flows, "application/yaml", flow, "flow_id"),
    );
    let ask = r#"{"operation": "TRANSFER", "operand": "debug"}"#;
    let ids = vec![
        (
            "operation",
            made("/api/v1/agents/a/operations", json, ask, "operation_ids"),
        ),
        (
            "request",
            made("/api/v1/agents/a/operations", json, ask, "request_id"),
        ),
        (
            "resource",
            made(
                "/api/v1/resources?name=x",
                "application/octet-stream",
                "x",
                "id",
            ),
        ),
        (
            "rollout",
            made(
                "/api/v1/classes/edge/rollouts",
                json,
                &json!({"flow_id": two}).to_string(),
                "id",
            ),
        ),
        ("flow", one),
        ("flow_two", two),
    ];
    call(
        "PUT",
        "/api/v1/classes/edge/resources",
        json,
        &json!({"assign": [ids[2].1]}).to_string(),
    );
    ids
}

/// Tests what the document at `url` tells; answers how many calls were made.
fn run(dir: &Path, url: &str, config: &str) -> usize {
    let file = dir.join("schemathesis.toml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(test_env().join("venv/bin/schemathesis"));
    command.current_dir(dir);
    command.arg("--config-file").arg(&file);
    command.args(["run", url, "--no-color"]);
    // A longer run is for those who ask for it, as it finds by chance.
    if let Ok(count) = std::env::var("THALWEG_SCHEMATHESIS_EXAMPLES") {
        command.args(["--max-examples", &count]);
    } else {
        command.args(["--max-examples", "10", "--generation-deterministic"]);
    }
    let told = succeed(&mut command);
    // It ends well with nothing done as well, so what it did is counted.
    let counts = told.lines().find(|line| line.contains(" generated, "));
    let counts: Vec<&str> = counts.unwrap_or(&told).split_whitespace().collect();
    let [generated, "generated,", passed, "passed"] = counts[..] else {
        panic!("{told}");
    };
    assert_eq!(generated, passed, "{told}");
    generated.parse().unwrap()
}

/// Makes what the calls are about, so that not all of them end with a 404.
fn furnish(rest: &str) {
    let v2 = "application/vnd.kafka.v2+json";
    let records = r#"{"records":[{"key":"k","value":{"a":1}},{"value":null},{"value":"x"}]}"#;
    for topic in ["orders", "events"] {
        let answer = post(
            &format!("{rest}/topics/{topic}"),
            "application/vnd.kafka.json.v2+json",
            records,
        );
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    for (name, version) in [("one", "v1"), ("two", "v2")] {
        let body = json!({"name": name, "format": "json"}).to_string();
        let media = format!("application/vnd.kafka.{version}+json");
        let answer = post(&format!("{rest}/consumers/readers"), &media, &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let subscription = format!("{rest}/consumers/readers/instances/two/subscription");
    let answer = post(&subscription, v2, r#"{"topics":["orders"]}"#);
    assert_eq!(answer.status, 204, "{}", answer.body);
}

/// Registers schemas, so that not all calls of the registry end with a 404, and records can have one.
fn register(up: &Up) {
    let order = r#"{"type":"record","name":"Order","fields":[{"name":"n","type":"int"}]}"#;
    let message = r#"syntax = "proto3"; message Order { int32 n = 1; }"#;
    let object = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#;
    for (subject, kind, schema) in [
        ("orders-value", "AVRO", order),
        ("events-value", "PROTOBUF", message),
        ("events-key", "JSON", object),
        ("old-value", "AVRO", order),
    ] {
        let url = up.url("schemas", &format!("/subjects/{subject}/versions"));
        let body = json!({"schemaType": kind, "schema": schema}).to_string();
        let answer = post(&url, "application/vnd.schemaregistry.v1+json", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let old = up.url("schemas", "/subjects/old-value");
    let answer = curl(&["--request", "DELETE", &old]);
    assert_eq!(answer.status, 200, "{}", answer.body);
}
