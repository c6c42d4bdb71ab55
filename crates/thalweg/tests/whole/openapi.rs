//! schemathesis against the OpenAPI documents of a running proxy and registry: data that a document
//! allows and data that it does not, and what is answered to each.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::harness::{Up, curl, folder, interop, post, succeed, test_env};

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
    let generated = run(dir.path(), &rest, &config.replace("{cluster}", cluster));
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
    let generated = run(dir.path(), &up.url("schemas", ""), &config);
    assert!(generated > 500, "{generated}");
    let types = curl(&[&up.url("schemas", "/subjects?deleted=true")]);
    assert_eq!(types.status, 200, "{}", types.body);
}

/// Tests what stands at `url`; answers how many calls were made.
fn run(dir: &Path, url: &str, config: &str) -> usize {
    let file = dir.join("schemathesis.toml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(test_env().join("venv/bin/schemathesis"));
    command.current_dir(dir);
    command.arg("--config-file").arg(&file);
    command.args(["run", &format!("{url}/openapi.json"), "--no-color"]);
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
