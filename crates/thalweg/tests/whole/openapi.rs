//! schemathesis against the OpenAPI document of a running proxy: data that the document allows and
//! data that it does not, and what the proxy answers to each.

use std::process::Command;

use serde_json::json;

use crate::harness::{Up, curl, folder, interop, post, succeed, test_env};

#[test]
fn schemathesis_finds_nothing() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let rest = up.url("rest", "");
    furnish(&rest);
    let clusters = curl(&[&format!("{rest}/v3/clusters")]).json();
    let cluster = clusters["data"][0]["cluster_id"].as_str().unwrap();
    let config = std::fs::read_to_string(interop("schemathesis.toml")).unwrap();
    let file = dir.path().join("schemathesis.toml");
    std::fs::write(&file, config.replace("{cluster}", cluster)).unwrap();
    let mut command = Command::new(test_env().join("venv/bin/schemathesis"));
    command.current_dir(dir.path());
    command.arg("--config-file").arg(&file);
    command.args(["run", &format!("{rest}/openapi.json"), "--no-color"]);
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
    assert!(generated.parse::<usize>().unwrap() > 1_000, "{told}");
    // It still serves.
    let topics = curl(&[&format!("{rest}/topics")]);
    assert_eq!(topics.status, 200, "{}", topics.body);
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
