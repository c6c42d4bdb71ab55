//! Flow updates: validated first, queues kept, rolled back.

use serde_json::json;

use super::plane::Plane;
use super::supervisor;
use crate::testing::{make_and_log, runtime, wait_until};

#[test]
fn a_flow_is_taken_named_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    let client = plane.client(&supervisor, &runtime);
    plane.with(|state| state.flow = make_and_log("first"));
    let args = json!({ "flowId": "f1", "relativeFlowUrl": "/flows/f1", "persist": "true" });
    assert_eq!(
        plane.ask("o1", "UPDATE", "configuration", args.clone()).0,
        "FULLY_APPLIED"
    );
    assert_eq!(
        plane.ask("o2", "UPDATE", "configuration", args).0,
        "NO_OPERATION"
    );
    wait_until("its figures are shown", || {
        let flow = plane.next_heartbeat().flow_info.unwrap();
        flow.flow_id.as_deref() == Some("f1")
            && flow.run_status.as_deref() == Some("RUNNING")
            && flow.queues["q"].size_max == Some(2_000)
            && flow.processor_statuses[0].flow_files_out > Some(0)
    });
    // Inline, as C++ agents take it too.
    let inline = json!({ "flowId": "f2", "configuration_data": make_and_log("second") });
    assert_eq!(
        plane.ask("o3", "UPDATE", "configuration", inline).0,
        "FULLY_APPLIED"
    );
    assert_eq!(supervisor.flow_name().as_deref(), Some("second"));
    let nowhere = json!({ "flowId": "f3" });
    let (state, ack) = plane.ask("o4", "UPDATE", "configuration", nowhere);
    assert_eq!(state, "NOT_APPLIED");
    assert!(ack.details().contains("flowUrl"), "{}", ack.details());
    client.end();
    supervisor.stop();
}

#[test]
fn a_bad_flow_is_refused_with_its_mistakes_and_the_good_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    supervisor
        .update(Some("f1".to_owned()), &make_and_log("first"))
        .unwrap();
    let client = plane.client(&supervisor, &runtime);
    plane
        .with(|state| state.flow = make_and_log("bad").replace("GenerateFlowFile", "GenerateFowl"));
    let args = json!({ "flowId": "f2", "location": "/flows/f2" });
    let (state, ack) = plane.ask("o1", "UPDATE", "configuration", args);
    assert_eq!(state, "NOT_APPLIED");
    let details = ack.details();
    assert!(
        details.contains("there is no processor 'GenerateFowl'"),
        "{details}"
    );
    assert!(supervisor.is_running());
    assert_eq!(plane.next_heartbeat().flow_id(), Some("f1"));
    client.end();
    supervisor.stop();
}

#[test]
fn a_flow_that_does_not_start_gives_way_to_the_old_one_with_its_queue() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    supervisor
        .update(Some("f1".to_owned()), &make_and_log("first"))
        .unwrap();
    let client = plane.client(&supervisor, &runtime);
    supervisor.set_processor("log", false).unwrap();
    let queued = || supervisor.queues()[0].flow_files;
    wait_until("something is queued", || queued() > 10);
    supervisor.set_processor("make", false).unwrap();
    let before = queued();
    // The new flow runs for a moment, but cannot be put on record.
    let fault = dir.path().join("applied-flow.json.part");
    std::fs::create_dir(&fault).unwrap();
    plane.with(|state| state.flow = make_and_log("second").replace("id: q", "id: other"));
    let args = json!({ "flowId": "f2", "location": "/flows/f2" });
    let (state, ack) = plane.ask("o1", "UPDATE", "configuration", args.clone());
    assert_eq!(state, "NOT_APPLIED");
    assert!(
        ack.details().contains("applied-flow.json"),
        "{}",
        ack.details()
    );
    assert!(supervisor.is_running());
    assert_eq!(supervisor.flow_id().as_deref(), Some("f1"));
    assert_eq!(supervisor.flow_name().as_deref(), Some("first"));
    assert_eq!(queued(), before);
    // Without the fault the same flow is taken; the old queue is kept aside for its id.
    std::fs::remove_dir(&fault).unwrap();
    assert_eq!(
        plane.ask("o2", "UPDATE", "configuration", args).0,
        "FULLY_APPLIED"
    );
    assert_eq!(supervisor.repository().status().parked, before);
    // A later flow that has the connection again goes on with it.
    plane.with(|state| state.flow = make_and_log("third"));
    let args = json!({ "flowId": "f3", "location": "/flows/f3" });
    assert_eq!(
        plane.ask("o3", "UPDATE", "configuration", args).0,
        "FULLY_APPLIED"
    );
    assert!(supervisor.repository().status().parked < before);
    wait_until("the old queue is worked off", || {
        supervisor.nodes()[1].flow_files_in >= before
    });
    client.end();
    supervisor.stop();
}
