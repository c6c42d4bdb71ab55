//! The C2 client against a control plane of the tests' own.

mod assets;
mod plane;
mod read_only;
mod updates;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use c2::{AgentManifest, Operand, OperationKind};
use serde_json::{Value, json};

use self::plane::{Plane, operation};
use super::Root;
use crate::properties::{Check, Told};
use crate::supervisor::{StopTimes, Supervisor};
use crate::testing::{ground, make_and_log, runtime, wait_until};

fn supervisor(dir: &Path, runtime: &tokio::runtime::Runtime) -> Arc<Supervisor> {
    let supervisor = Supervisor::new(ground(dir, runtime), dir, StopTimes::default());
    Arc::new(supervisor)
}

#[test]
fn an_agent_introduces_itself_once_and_tells_how_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    let client = plane.client(&supervisor, &runtime);
    let third = plane.next_heartbeat();
    let first = plane.with(|state| state.heartbeats[0].clone());
    let (first, third) = (first.agent_info.unwrap(), third);
    let manifest = AgentManifest::parse(&first.agent_manifest.unwrap()).unwrap();
    assert_eq!(manifest.agent_type.as_deref(), Some("thalweg"));
    let takes = |kind, operand| manifest.supports(&kind, operand);
    assert_eq!(
        takes(OperationKind::Sync, Some(&Operand::Resource)),
        Some(true)
    );
    assert_eq!(takes(OperationKind::Restart, None), Some(true));
    let agent = third.agent_info.as_ref().unwrap();
    assert!(agent.agent_manifest.is_none());
    assert_eq!(agent.agent_manifest_hash, first.agent_manifest_hash);
    assert_eq!(
        (third.sender(), third.class()),
        (Some("agent-1"), Some("edge"))
    );
    let status = agent.status.as_ref().unwrap();
    assert!(status.uptime.unwrap() >= 0);
    assert!(status.repositories.contains_key("flowFile"));
    assert_eq!(status.components["FlowController"].running, Some(false));
    let used = status.resource_consumption.as_ref().unwrap();
    assert!(used.memory_usage.unwrap() > 1 << 20);
    assert!((0.0..=1.0).contains(&used.cpu_utilization.unwrap()));
    let system = third.device_info.unwrap().system_info.unwrap();
    assert!(system.physical_mem.unwrap() > 0);
    assert_eq!(
        third.flow_info.unwrap().run_status.as_deref(),
        Some("STOPPED")
    );
    assert_eq!(third.resource_info.unwrap().digest(), None);
    client.end();
}

#[test]
fn heartbeats_hold_what_the_settings_say() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    supervisor
        .update(Some("f1".to_owned()), &make_and_log("first"))
        .unwrap();
    let mut config = plane.config();
    config.is_full = true;
    config.is_gzip = true;
    config.roots = vec![Root::Agent, Root::Checksums];
    let client = plane.client_with(config, Told::default(), &supervisor, &runtime);
    let beat = plane.next_heartbeat();
    assert!(beat.agent_info.unwrap().agent_manifest.is_some());
    assert!(beat.device_info.is_none() && beat.flow_info.is_none() && beat.resource_info.is_none());
    let sums = beat.other["configurationChecksums"].as_str();
    assert!(
        sums.contains("SHA256") && sums.contains("applied-flow.json"),
        "{sums}"
    );
    let packed = plane.with(|state| {
        let head = state.heads.last().unwrap().to_ascii_lowercase();
        head.contains("content-encoding: gzip") && head.contains("content-length:")
    });
    assert!(packed);
    client.end();
    supervisor.stop();
}

#[test]
fn what_did_not_change_is_left_out_until_a_call_fails() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    let mut config = plane.config();
    config.is_minimized = true;
    let client = plane.client_with(config, Told::default(), &supervisor, &runtime);
    let beat = plane.next_heartbeat();
    assert!(beat.flow_info.is_none() && beat.resource_info.is_none());
    assert!(beat.agent_info.is_some());
    plane.with(|state| {
        (state.is_away, state.heartbeats) = (true, Vec::new());
        state.heads.clear();
    });
    wait_until("a call failed", || {
        plane.with(|state| !state.heads.is_empty())
    });
    plane.with(|state| state.is_away = false);
    wait_until("it calls again", || {
        plane.with(|state| !state.heartbeats.is_empty())
    });
    let first = plane.with(|state| state.heartbeats[0].clone());
    assert!(first.flow_info.is_some() && first.resource_info.is_some());
    client.end();
}

#[test]
fn everything_that_can_be_described_is() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    supervisor
        .update(Some("f1".to_owned()), &make_and_log("first"))
        .unwrap();
    let told = Told {
        values: [("nifi.c2.agent.class", "edge"), ("a.password", "hunter2")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        ..Told::default()
    };
    let client = plane.client_with(plane.config(), told, &supervisor, &runtime);
    let describe = |id: &str, what: &str, args: Value| plane.ask(id, "DESCRIBE", what, args);
    let (state, ack) = describe("d1", "manifest", json!({}));
    assert_eq!(state, "FULLY_APPLIED");
    assert!(ack.agent_info.unwrap().agent_manifest.is_some());
    assert!(ack.device_info.is_some() && ack.flow_info.is_some());
    let (state, ack) = describe("d2", "configuration", json!({}));
    assert_eq!(state, "FULLY_APPLIED");
    let options = ack.configuration_options.unwrap();
    assert!(
        options
            .as_str()
            .contains("\"nifi.c2.agent.class\":\"edge\"")
    );
    assert!(!options.as_str().contains("hunter2"), "{options:?}");
    let (state, ack) = describe("d3", "jstack", json!({}));
    assert_eq!(state, "FULLY_APPLIED");
    assert!(
        ack.other.iter().any(|(name, lines)| {
            name.starts_with("make ") && lines.as_str().contains("state ")
        })
    );
    let (state, ack) = describe("d4", "metrics", json!({ "metricsClass": "QueueMetrics" }));
    assert_eq!(state, "FULLY_APPLIED");
    let metrics = &ack.other["QueueMetrics"];
    assert!(metrics.as_str().contains("\"sizeMax\":2000"), "{metrics:?}");
    let (state, ack) = describe("d5", "metrics", json!({ "metricsClass": "Nonsense" }));
    assert_eq!(state, "NOT_APPLIED");
    assert!(
        ack.details()
            .contains("there is no metrics class 'Nonsense'")
    );
    let (state, ack) = describe("d6", "metrics", json!({}));
    assert_eq!(state, "FULLY_APPLIED");
    assert!(ack.other["metrics"].as_str().contains("ProcessorMetrics"));
    let id = supervisor.nodes()[0].id.clone();
    let repository = supervisor.repository();
    repository
        .save_state(&id, bytes::Bytes::from_static(b"{\"at\":7}"))
        .unwrap();
    let (state, ack) = describe("d7", "corecomponentstate", json!({}));
    assert_eq!(state, "FULLY_APPLIED");
    let states = &ack.other["corecomponentstate"];
    assert!(
        states.as_str().contains(&id) && states.as_str().contains("at"),
        "{states:?}"
    );
    let (state, _) = describe("d8", "weather", json!({}));
    assert_eq!(state, "OPERATION_NOT_UNDERSTOOD");
    client.end();
    supervisor.stop();
}

#[test]
fn flow_and_processors_are_stopped_started_and_paused() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    supervisor
        .update(Some("f1".to_owned()), &make_and_log("first"))
        .unwrap();
    let client = plane.client(&supervisor, &runtime);
    let state =
        |id: &str, kind: &str, operand: &str, args: Value| plane.ask(id, kind, operand, args).0;
    let made = || supervisor.nodes()[0].flow_files_out;
    let moves = || {
        let before = made();
        wait_until("it works", || made() > before + 1);
    };
    let stands = || {
        let before = made();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(made(), before);
    };
    moves();
    let log = supervisor.nodes()[1].id.clone();
    let log = json!({ "processorId": log });
    assert_eq!(
        state("s1", "STOP", "processor", log.clone()),
        "FULLY_APPLIED"
    );
    assert_eq!(
        state("s2", "STOP", "processor", log.clone()),
        "NO_OPERATION"
    );
    wait_until("input piles up", || supervisor.queues()[0].flow_files > 2);
    let beat = plane.next_heartbeat().flow_info.unwrap();
    let statuses = &beat.processor_statuses;
    assert_eq!(statuses[0].run_status.as_deref(), Some("RUNNING"));
    assert_eq!(statuses[1].run_status.as_deref(), Some("STOPPED"));
    assert_eq!(beat.components["log"].running, Some(false));
    // A pause holds all, and its end only those that were not stopped by themselves.
    assert_eq!(state("s3", "PAUSE", "", json!({})), "FULLY_APPLIED");
    stands();
    assert_eq!(state("s4", "RESUME", "", json!({})), "FULLY_APPLIED");
    moves();
    assert!(!supervisor.nodes()[1].is_running);
    assert_eq!(state("s5", "START", "processor", log), "FULLY_APPLIED");
    wait_until("the pile goes", || supervisor.queues()[0].flow_files < 2);
    let missing = json!({ "processorId": "nobody" });
    assert_eq!(state("s6", "STOP", "processor", missing), "NOT_APPLIED");
    assert_eq!(
        state("s7", "STOP", "FlowController", json!({})),
        "FULLY_APPLIED"
    );
    assert!(!supervisor.is_running());
    assert_eq!(state("s8", "STOP", "flow", json!({})), "NO_OPERATION");
    assert_eq!(plane.next_heartbeat().flow_id(), Some("f1"));
    assert_eq!(state("s9", "START", "flow", json!({})), "FULLY_APPLIED");
    moves();
    assert_eq!(state("s10", "START", "flow", json!({})), "NO_OPERATION");
    client.end();
    supervisor.stop();
}

#[test]
fn queues_repositories_and_states_are_cleared() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    supervisor.update(None, &make_and_log("first")).unwrap();
    let client = plane.client(&supervisor, &runtime);
    supervisor.set_processor("log", false).unwrap();
    let queued = || supervisor.queues()[0].flow_files;
    wait_until("something is queued", || queued() > 5);
    supervisor.set_processor("make", false).unwrap();
    let before = queued();
    let clear = |id: &str, what: &str, args: Value| plane.ask(id, "CLEAR", what, args);
    let (state, ack) = clear("c1", "connection", json!({ "name1": "q" }));
    assert_eq!(state, "FULLY_APPLIED");
    assert_eq!(ack.details(), format!("{before} FlowFiles were dropped"));
    assert_eq!(queued(), 0);
    assert_eq!(
        clear("c2", "connection", json!({ "a": "q" })).0,
        "NO_OPERATION"
    );
    assert_eq!(
        clear("c3", "connection", json!({ "a": "nowhere" })).0,
        "NOT_APPLIED"
    );
    supervisor.set_processor("make", true).unwrap();
    wait_until("something is queued again", || queued() > 5);
    supervisor.set_processor("make", false).unwrap();
    let dropped = queued();
    let (state, ack) = clear("c4", "repositories", json!({}));
    assert_eq!(state, "FULLY_APPLIED");
    assert_eq!(ack.details(), format!("{dropped} FlowFiles were dropped"));
    // What was held stays held over it, and nothing comes back with the next start.
    assert_eq!((queued(), supervisor.nodes()[0].is_running), (0, false));
    let id = supervisor.nodes()[0].id.clone();
    let state_of = || supervisor.repository().state(&id).unwrap_or_default();
    let repository = supervisor.repository();
    repository
        .save_state(&id, bytes::Bytes::from_static(b"position"))
        .unwrap();
    assert_eq!(
        clear("c5", "corecomponentstate", json!({ "a": id })).0,
        "FULLY_APPLIED"
    );
    assert!(state_of().is_empty());
    client.end();
    supervisor.stop();
    supervisor.repository().close().unwrap();
    drop(supervisor);
    let again = self::supervisor(dir.path(), &runtime);
    assert_eq!(again.repository().status().parked, 0);
}

#[test]
fn properties_are_checked_kept_and_applied_by_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    let check: Check = Arc::new(|values| match values.get("bad") {
        Some(_) => Err(crate::AgentError::Setting(
            "'bad' is not supported".to_owned(),
        )),
        None => Ok(()),
    });
    let told = Told {
        values: [("same".to_owned(), "1".to_owned())].into(),
        decided: vec!["decided"],
        dir: dir.path().to_owned(),
        check: Some(check),
        ..Told::default()
    };
    let client = plane.client_with(plane.config(), told, &supervisor, &runtime);
    let update = |id: &str, args: Value| plane.ask(id, "UPDATE", "properties", args);
    assert_eq!(update("p1", json!({ "same": "1" })).0, "NO_OPERATION");
    let (state, ack) = update("p2", json!({ "bad": "1" }));
    assert_eq!(
        (state.as_str(), ack.details().as_str()),
        ("NOT_APPLIED", "'bad' is not supported")
    );
    let (state, ack) = update("p3", json!({ "decided": "1" }));
    assert_eq!(state, "NOT_APPLIED");
    assert!(ack.details().contains("command line"), "{}", ack.details());
    let args = json!({ "same": "2", "once": {"value": "3", "persist": false}, "bad": "1" });
    let (state, _) = update("p4", args);
    assert_eq!(state, "PARTIALLY_APPLIED");
    // The start comes after the acknowledgement.
    runtime.block_on(client.restart.notified());
    let overlay = crate::properties::begin(dir.path()).unwrap().overlay;
    assert_eq!(
        (overlay["same"].as_str(), overlay["once"].as_str()),
        ("2", "3")
    );
    assert!(!overlay.contains_key("bad"));
    client.end();
    // Asked again after the start, it is told again and not done again.
    let client = plane.client(&supervisor, &runtime);
    plane.with(|state| state.acknowledgements.clear());
    assert_eq!(update("p4", json!({ "same": "9" })).0, "PARTIALLY_APPLIED");
    assert_eq!(
        crate::properties::begin(dir.path()).unwrap().overlay["same"],
        "2"
    );
    client.end();
}

#[test]
fn a_flow_says_which_properties_may_be_changed() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    let policy = "Controller Services:
- name: C2UpdatePolicy
  class: UpdatePolicyControllerService
  Properties:
    Allowed Properties: [{value: a}, {value: b}]
    Disallowed Properties: [{value: b}]
";
    let flow = format!("{}{policy}", make_and_log("guarded"));
    supervisor.update(None, &flow).unwrap();
    let told = Told {
        dir: dir.path().to_owned(),
        ..Told::default()
    };
    let client = plane.client_with(plane.config(), told, &supervisor, &runtime);
    let args = json!({ "a": "1", "b": "1", "c": "1" });
    let (state, ack) = plane.ask("p1", "UPDATE", "properties", args);
    assert_eq!(state, "PARTIALLY_APPLIED");
    let details = ack.details();
    assert!(details.contains("not let b be") && details.contains("not let c be"));
    runtime.block_on(client.restart.notified());
    // It holds for one start, since the flow does not say that it is to last.
    for expected in [1, 0] {
        let overlay = crate::properties::begin(dir.path()).unwrap().overlay;
        assert_eq!(overlay.len(), expected);
    }
    client.end();
    supervisor.stop();
}

#[test]
fn a_restart_comes_after_its_acknowledgement_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    let client = plane.client(&supervisor, &runtime);
    assert_eq!(plane.ask("r1", "RESTART", "", json!({})).0, "FULLY_APPLIED");
    runtime.block_on(client.restart.notified());
    client.end();
    let client = plane.client(&supervisor, &runtime);
    plane.with(|state| state.acknowledgements.clear());
    assert_eq!(plane.ask("r1", "RESTART", "", json!({})).0, "FULLY_APPLIED");
    let before = plane.with(|state| state.heartbeats.len());
    wait_until("it goes on calling", || {
        plane.with(|state| state.heartbeats.len() > before + 2)
    });
    client.end();
}

#[test]
fn a_heartbeat_that_is_asked_for_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    let client = plane.client(&supervisor, &runtime);
    let is_whole =
        |beat: &c2::Heartbeat| beat.agent_info.as_ref().unwrap().agent_manifest.is_some();
    assert!(!is_whole(&plane.next_heartbeat()));
    plane.with(|state| state.heartbeats.clear());
    assert_eq!(
        plane.ask("h1", "HEARTBEAT", "", json!({})).0,
        "FULLY_APPLIED"
    );
    wait_until("a whole one comes", || {
        plane.with(|state| state.heartbeats.iter().any(is_whole))
    });
    assert_eq!(
        plane.ask("h2", "ACKNOWLEDGE", "", json!({})).0,
        "NO_OPERATION"
    );
    assert_eq!(
        plane.ask("h3", "JUMP", "high", json!({})).0,
        "OPERATION_NOT_UNDERSTOOD"
    );
    client.end();
}

#[test]
fn acknowledgements_outlive_the_agent_and_a_plane_that_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    plane.with(|state| {
        state.refuses_acknowledgements = Some("500 Internal Server Error");
        state.flow = make_and_log("first");
        let args = json!({ "flowId": "f1", "flowUrl": "/flows/f1" });
        state.operations = vec![operation("o1", "UPDATE", "configuration", args)];
    });
    let first = supervisor(dir.path(), &runtime);
    let client = plane.client(&first, &runtime);
    wait_until("the flow runs", || first.is_running());
    let out = || first.nodes()[0].flow_files_out;
    plane.with(|state| state.is_away = true);
    let before = out();
    wait_until("the flow goes on alone", || out() > before + 3);
    client.end();
    first.stop();
    first.repository().close().unwrap();
    drop(first);
    plane.with(|state| (state.is_away, state.refuses_acknowledgements) = (false, None));
    let second = supervisor(dir.path(), &runtime);
    second.start(None).unwrap();
    let client = plane.client(&second, &runtime);
    assert_eq!(plane.acknowledged("o1").0, "FULLY_APPLIED");
    assert_eq!(second.flow_id().as_deref(), Some("f1"));
    client.end();
    second.stop();
}

#[test]
fn an_operation_that_a_crash_broke_off_is_answered_truthfully() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    supervisor
        .update(Some("f1".to_owned()), &make_and_log("first"))
        .unwrap();
    let begun = |operation: &str, flow: Option<&str>| {
        let doing =
            json!({ "operation": operation, "words": "UPDATE configuration", "flow_id": flow });
        let book = json!({ "doing": doing, "pending": [], "known": [] });
        let bytes = bytes::Bytes::from(book.to_string());
        supervisor
            .repository()
            .save_state("$operations", bytes)
            .unwrap();
    };
    for (id, flow, state) in [
        ("b1", Some("f1"), "FULLY_APPLIED"),
        ("b2", Some("f2"), "NOT_APPLIED"),
        ("b3", None, "NOT_APPLIED"),
    ] {
        begun(id, flow);
        let client = plane.client(&supervisor, &runtime);
        assert_eq!(plane.acknowledged(id).0, state, "{id}");
        client.end();
    }
    supervisor.stop();
}

#[test]
fn an_acknowledgement_that_nobody_wants_does_not_stop_the_calls() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    plane.with(|state| state.refuses_acknowledgements = Some("404 Not Found"));
    let supervisor = supervisor(dir.path(), &runtime);
    let client = plane.client(&supervisor, &runtime);
    plane.with(|state| {
        state
            .operations
            .push(operation("o1", "PAUSE", "", json!({})))
    });
    wait_until("it is refused", || {
        plane.with(|state| state.heads.iter().any(|head| head.contains("/acknowledge")))
    });
    plane.next_heartbeat();
    plane.with(|state| state.refuses_acknowledgements = None);
    assert_eq!(plane.ask("o2", "RESUME", "", json!({})).0, "FULLY_APPLIED");
    client.end();
}
