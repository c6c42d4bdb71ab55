//! Messages as real agents and servers write them, from files under `tests/data`.
//!
//! The Java ones were recorded from NiFi 1.18.0 and from the C2 client library 2.3.0. The C++ ones
//! are made by hand in the shapes that its serializer is known for.

use std::io::Read;

use crate::{
    AckState, Acknowledge, AgentManifest, Heartbeat, HeartbeatResponse, Operand, Operation,
    OperationKind,
};
use serde_json::{Value, json};

const FULL: &[u8] = include_bytes!("../tests/data/c2lib-2.3.0-heartbeat-full.json");
const LIGHT: &[u8] = include_bytes!("../tests/data/c2lib-2.3.0-heartbeat-light.json");
const NIFI: &[u8] = include_bytes!("../tests/data/nifi-1.18-heartbeat-light.json");
const CPP: &[u8] = include_bytes!("../tests/data/cpp-heartbeat-first.json");
const CPP_MINIMAL: &[u8] = include_bytes!("../tests/data/cpp-heartbeat-minimal.json");

fn describe_ack() -> Vec<u8> {
    let packed = include_bytes!("../tests/data/nifi-1.18-describe-ack.json.gz").as_slice();
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_end(&mut text)
        .unwrap();
    text
}

fn without_copies(bytes: &[u8]) -> Value {
    let mut value: Value = serde_json::from_slice(bytes).unwrap();
    for copy in ["deviceId", "flowId", "agentManifestId"] {
        value.as_object_mut().unwrap().remove(copy);
    }
    value
}

#[test]
fn java_heartbeats_read_and_write_back_whole() {
    for bytes in [FULL, LIGHT, NIFI] {
        let heartbeat = Heartbeat::parse(bytes).unwrap();
        let written: Value = serde_json::from_slice(&heartbeat.to_vec().unwrap()).unwrap();
        let mut wanted = without_copies(bytes);
        // An empty map or object says nothing and is not written.
        prune(&mut wanted);
        let mut written = written;
        prune(&mut written);
        assert_eq!(written, wanted);
        assert!(heartbeat.other.is_empty(), "{:?}", heartbeat.other);
    }
}

fn prune(value: &mut Value) {
    if let Value::Object(map) = value {
        for (_, child) in map.iter_mut() {
            prune(child);
        }
        // The manifest is kept as text and keeps its empty parts.
        map.retain(|key, child| key == "agentManifest" || *child != json!({}));
    }
}

#[test]
fn a_java_heartbeat_says_who_and_how() {
    let full = Heartbeat::parse(FULL).unwrap();
    assert_eq!(
        (full.sender(), full.class()),
        (Some("agent-j-1"), Some("classA"))
    );
    assert_eq!(full.created, Some(1_795_217_488_708));
    let agent = full.agent_info.as_ref().unwrap();
    let status = agent.status.as_ref().unwrap();
    assert_eq!(status.repositories["flowFile"].data_size_max, Some(456));
    assert!(status.repositories.contains_key("provenance"));
    let flow = full.flow_info.as_ref().unwrap();
    assert_eq!(flow.queues["conn-uuid-1"].size_utilization, Some(3.0e-4));
    assert_eq!(flow.processor_bulletins[0].message.as_deref(), Some("boom"));
    assert_eq!(flow.processor_statuses[0].flow_files_out, Some(5));
    assert_eq!(full.resource_info.as_ref().unwrap().digest(), None);

    let manifest = AgentManifest::parse(agent.agent_manifest.as_ref().unwrap()).unwrap();
    assert_eq!(manifest.agent_type.as_deref(), Some("minifi-java"));
    assert_eq!(
        manifest.agent_version(),
        Some("2.3.0"),
        "the build's version, not '1'"
    );
    assert_eq!(manifest.bundles.as_ref().unwrap().items().len(), 1);
    for (kind, operand, supported) in [
        (OperationKind::Update, Operand::Configuration, true),
        (OperationKind::Sync, Operand::Resource, true),
        (OperationKind::Sync, Operand::Asset, false),
        (OperationKind::Clear, Operand::Connection, false),
    ] {
        assert_eq!(
            manifest.supports(&kind, Some(&operand)),
            Some(supported),
            "{kind} {operand}"
        );
    }
    assert_eq!(Heartbeat::parse(NIFI).unwrap().flow_id(), Some("flow-1"));
}

#[test]
fn a_real_describe_acknowledge_brings_its_manifest() {
    let bytes = describe_ack();
    assert_eq!(bytes.len(), 827_409);
    let ack = Acknowledge::parse(&bytes).unwrap();
    assert_eq!(
        (ack.operation(), ack.state()),
        (Some("d1"), AckState::FullyApplied)
    );
    let raw = ack
        .agent_info
        .as_ref()
        .unwrap()
        .agent_manifest
        .clone()
        .unwrap();
    let manifest = AgentManifest::parse(&raw).unwrap();
    assert_eq!(manifest.agent_type.as_deref(), Some("nifi"));
    assert_eq!(manifest.agent_version(), Some("1.18.0"));
    assert_eq!(
        manifest.supports(&OperationKind::Update, None),
        None,
        "1.18 lists no operations"
    );
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    let kept: Value = serde_json::from_str(raw.as_str()).unwrap();
    assert_eq!(kept, value["agentInfo"]["agentManifest"]);
}

#[test]
fn a_cpp_heartbeat_is_read_in_all_its_shapes() {
    let beat = Heartbeat::parse(CPP).unwrap();
    assert_eq!(beat.sender(), Some("c9d3b1b4-edge-cpp"));
    let agent = beat.agent_info.as_ref().unwrap();
    let status = agent.status.as_ref().unwrap();
    assert_eq!(status.uptime, Some(4711), "a number as a string");
    let repository = &status.repositories["org::apache::nifi::minifi::core::Repository"];
    assert_eq!(
        (repository.size, repository.size_max),
        (Some(40), Some(100))
    );
    assert_eq!(
        (repository.running, repository.full),
        (Some(false), Some(true))
    );
    assert_eq!(status.components.len(), 2);
    assert_eq!(
        status.components["LogFile"].uuid.as_deref(),
        Some("p-2"),
        "the last one stays"
    );
    assert_eq!(
        status
            .resource_consumption
            .as_ref()
            .unwrap()
            .cpu_utilization,
        Some(-1.0)
    );
    let flow = beat.flow_info.as_ref().unwrap();
    assert_eq!(flow.queues["q-1"].data_size, Some(40));
    assert_eq!(
        flow.processor_bulletins.len(),
        1,
        "a list of one without the list"
    );
    assert_eq!(flow.processor_statuses[0].active_thread_count, Some(-1));
    assert_eq!(flow.processor_statuses[0].invocations, Some(12));
    assert_eq!(
        beat.resource_info.as_ref().unwrap().digest(),
        None,
        "the word null"
    );
    assert!(
        beat.other["configurationChecksums"]
            .as_str()
            .contains("minifi.properties")
    );
    assert!(
        beat.other["metrics"]
            .as_str()
            .contains("\"datasize\": \"40\"")
    );

    let manifest = AgentManifest::parse(agent.agent_manifest.as_ref().unwrap()).unwrap();
    assert_eq!(
        manifest.bundles.as_ref().unwrap().items().len(),
        1,
        "an object for a list"
    );
    let jstack = manifest.supports(&OperationKind::Describe, Some(&Operand::Jstack));
    assert_eq!(jstack, Some(true));
    assert_eq!(
        manifest.build_info.unwrap().compiler_flags.as_deref(),
        Some("-O2")
    );
}

#[test]
fn what_is_left_out_stays_absent() {
    let beat = Heartbeat::parse(CPP_MINIMAL).unwrap();
    assert!(beat.device_info.is_none() && beat.flow_info.is_none() && beat.class().is_none());
    let written = String::from_utf8(beat.to_vec().unwrap()).unwrap();
    assert_eq!(written, String::from_utf8_lossy(CPP_MINIMAL).trim());
}

#[test]
fn a_key_that_comes_twice_takes_its_last_value() {
    let text = br#"{"agentInfo":{"identifier":"a","identifier":"b"},"x":1,"x":{"y":2}}"#;
    let beat = Heartbeat::parse(text).unwrap();
    assert_eq!(beat.sender(), Some("b"));
    assert_eq!(beat.other["x"].as_str(), r#"{"y":2}"#);
}

#[test]
fn a_value_of_a_wrong_shape_counts_as_absent() {
    let text = br#"{"created":{},"deviceInfo":[1,[2]],"flowInfo":7,"resourceInfo":"x",
        "agentInfo":{"identifier":12,"agentClass":[],"agentManifest":null,
            "status":{"uptime":"soon","repositories":[],"components":{"a":null,"b":3}}}}"#;
    let beat = Heartbeat::parse(text).unwrap();
    assert_eq!(
        (beat.sender(), beat.class(), beat.created),
        (Some("12"), None, None)
    );
    assert!(beat.device_info.is_none() && beat.flow_info.is_none());
    let agent = beat.agent_info.unwrap();
    assert!(agent.agent_manifest.is_none());
    let status = agent.status.unwrap();
    assert!(status.uptime.is_none() && status.components.is_empty());
}

#[test]
fn senders_are_found_where_third_parties_put_them() {
    for (text, sender) in [
        (r#"{"agentId":"a"}"#, Some("a")),
        (r#"{"identifier":"i"}"#, Some("i")),
        (
            r#"{"identifier":"i","agentInfo":{"identifier":"a"}}"#,
            Some("a"),
        ),
        (r#"{"agentInfo":{"identifier":""}}"#, None),
    ] {
        assert_eq!(
            Heartbeat::parse(text.as_bytes()).unwrap().sender(),
            sender,
            "{text}"
        );
    }
}

#[test]
fn acknowledges_come_as_words_and_numbers() {
    let ack = Acknowledge::parse(include_bytes!("../tests/data/cpp-acknowledge.json")).unwrap();
    assert_eq!(
        (ack.operation(), ack.state()),
        (Some("op-17"), AckState::NotApplied)
    );
    assert_eq!(ack.details(), "could not fetch the flow");
    let ack =
        Acknowledge::parse(include_bytes!("../tests/data/java-acknowledge-failed.json")).unwrap();
    assert_eq!(ack.state(), AckState::NotApplied);
    let validation = r#"[{"subject":"Batch Size","valid":false}]"#;
    assert_eq!(
        ack.details(),
        format!("flow is invalid; a; b; {validation}")
    );
    for (state, wanted) in [
        ("\"fully_applied\"", AckState::FullyApplied),
        ("3", AckState::NoOperation),
        ("\"1\"", AckState::PartiallyApplied),
        ("5", AckState::Unknown("5".to_owned())),
        ("-1", AckState::Unknown("-1".to_owned())),
        ("null", AckState::Unknown(String::new())),
        ("\"MAYBE\"", AckState::Unknown("MAYBE".to_owned())),
    ] {
        let text = format!(r#"{{"identifier":"i","operationState":{{"state":{state}}}}}"#);
        let ack = Acknowledge::parse(text.as_bytes()).unwrap();
        assert_eq!(
            (ack.operation(), ack.state()),
            (Some("i"), wanted),
            "{state}"
        );
    }
}

#[test]
fn responses_are_read_under_every_alias() {
    let bytes = include_bytes!("../tests/data/response-aliases.json");
    let operations = HeartbeatResponse::parse(bytes)
        .unwrap()
        .requested_operations;
    let [update, describe, unknown, restart] = operations.as_slice() else {
        panic!("{operations:?}");
    };
    assert_eq!(
        (update.identifier.as_str(), &update.kind),
        ("7", &OperationKind::Update)
    );
    assert_eq!(update.operand, Some(Operand::Configuration));
    assert_eq!(update.arg("location").as_deref(), Some("http://h/flows/f"));
    assert_eq!(update.arg("persist").as_deref(), Some("true"));
    assert_eq!(update.arg("retries").as_deref(), Some("3"));
    assert_eq!(describe.operand, Some(Operand::Manifest));
    assert_eq!(unknown.kind, OperationKind::Unknown("LEVITATE".to_owned()));
    assert_eq!(
        (&restart.kind, &restart.operand),
        (&OperationKind::Restart, &None)
    );
    for empty in [
        "{}",
        r#"{"requestedOperations":null}"#,
        r#"{"requestedOperations":[]}"#,
    ] {
        let response = HeartbeatResponse::parse(empty.as_bytes()).unwrap();
        assert!(response.requested_operations.is_empty(), "{empty}");
    }
}

#[test]
fn responses_are_written_as_java_needs_them() {
    let empty = HeartbeatResponse::default().to_vec().unwrap();
    assert_eq!(empty, br#"{"requestedOperations":[]}"#);
    let operation = Operation {
        identifier: "op-1".to_owned(),
        kind: OperationKind::Update,
        operand: Some(Operand::Configuration),
        ..Operation::default()
    };
    let response = HeartbeatResponse {
        requested_operations: vec![operation.with_arg("flowId", "f")],
    };
    let text = r#"{"requestedOperations":[{"identifier":"op-1","operation":"UPDATE","operand":"configuration","args":{"flowId":"f"}}]}"#;
    assert_eq!(String::from_utf8(response.to_vec().unwrap()).unwrap(), text);
    assert_eq!(HeartbeatResponse::parse(text.as_bytes()).unwrap(), response);
}

#[test]
fn what_is_kept_as_text_has_a_bound_of_levels() {
    let nested = |levels: usize| {
        // Brackets in a text are no levels.
        let text = r#""[[[\"[[[""#;
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!("{{\"custom\":{open}{text}{close}}}")
    };
    Heartbeat::parse(nested(127).as_bytes()).unwrap();
    for levels in [128, 100_000] {
        let error = Heartbeat::parse(nested(levels).as_bytes()).unwrap_err();
        let told = std::error::Error::source(&error).unwrap().to_string();
        assert!(told.contains("nested deeper than 127 levels"), "{told}");
        assert!(told.contains("column"), "{told}");
    }
}

#[test]
fn what_is_no_message_is_an_error() {
    let deep = [&b"{\"a\":"[..]].concat().repeat(100_000);
    for bytes in [&b""[..], b"[]", b"7", b"{", b"\xff\xfe", b"{}x", &deep] {
        assert!(Heartbeat::parse(bytes).is_err());
        assert!(Acknowledge::parse(bytes).is_err());
        assert!(HeartbeatResponse::parse(bytes).is_err());
    }
}

/// Every prefix and every flipped byte of every sample: an error or a message, never a panic.
#[test]
fn damaged_messages_do_not_panic() {
    for sample in [
        FULL,
        NIFI,
        CPP,
        include_bytes!("../tests/data/response-aliases.json"),
    ] {
        for index in 0..sample.len() {
            let _ = Heartbeat::parse(&sample[..index]);
            let mut damaged = sample.to_vec();
            damaged[index] = b"\"{]0\xff"[index % 5];
            let _ = Heartbeat::parse(&damaged);
            let _ = Acknowledge::parse(&damaged);
            let _ = HeartbeatResponse::parse(&damaged);
        }
    }
}

#[test]
fn fractions_stay_as_they_are_however_often_they_are_written() {
    let text = r#"{"agentInfo":{"status":{"resourceConsumption":{"cpuUtilization":0.26973684210526316}}}}"#;
    let read = Heartbeat::parse(text.as_bytes()).unwrap();
    assert_eq!(read.to_vec().unwrap(), text.as_bytes());
    let cpu = |value: &str| {
        let text = text.replace("0.26973684210526316", value);
        let read = Heartbeat::parse(text.as_bytes()).unwrap();
        let status = read.agent_info.unwrap().status.unwrap();
        status.resource_consumption.unwrap().cpu_utilization
    };
    assert_eq!(cpu("\" 0.5 \""), Some(0.5));
    assert_eq!(cpu("-1"), Some(-1.0));
    for odd in ["1e999", "\"inf\"", "\"NaN\"", "true", "null", "[1]", "{}"] {
        assert_eq!(cpu(odd), None, "{odd}");
    }
}
