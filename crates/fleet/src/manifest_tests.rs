//! Checks of what two manifests have to share to be one.

use serde_json::json;

use super::*;

/// A manifest as a C++ agent of 1.26 writes it, with two of its flow's components.
fn cpp(agent: &str, components: [&str; 2]) -> Value {
    let property = |name: &str, value: Value| match value {
        Value::Null => json!({"propertyName": name, "validator": "VALID"}),
        value => json!({"propertyName": name, "validator": "VALID", "propertyValue": value}),
    };
    let starts = json!({"c2": {}, components[0]: {}, components[1]: {}});
    json!({"identifier": "build-1", "agentType": "cpp",
        "buildInfo": {"version": "1.26.02", "timestamp": 1_700_000_000, "flags": "-O2"},
        "bundles": [{"group": "org.apache.nifi.minifi", "artifact": "minifi-system",
            "version": "1.26.02", "componentManifest": {"processors": [
                {"type": "org.apache.nifi.minifi.processors.TailFile"}]}}],
        "supportedOperations": [
            {"type": "describe", "properties": {"manifest": {}, "metrics": {}}},
            {"type": "start", "properties": starts},
            {"type": "stop", "properties": starts},
            {"type": "update", "properties": {"configuration": {}, "properties": {
                "availableProperties": [
                    property("nifi.c2.agent.identifier", json!(agent)),
                    property("nifi.c2.agent.heartbeat.period", json!("30 sec")),
                    property("nifi.c2.flow.url", Value::Null)]}}}]})
}

const UUIDS: [&str; 4] = [
    "5ab1c0a2-0186-1000-8e4b-0242ac110002",
    "5ab1c0a2-0186-1000-8e4b-0242ac110003",
    "0f3c6a5e-6a53-4a08-9d2f-3a5a3c0c7f11",
    "0f3c6a5e-6a53-4a08-9d2f-3a5a3c0c7f12",
];

fn come(manifest: &Value) -> Option<Brought> {
    let info = AgentInfo {
        identifier: Some("a".to_owned()),
        agent_manifest: Some(RawJson::of(manifest).unwrap()),
        ..AgentInfo::default()
    };
    brought(Some(&info), |_| None)
}

fn key(manifest: &Value) -> String {
    come(manifest).unwrap().key.to_string()
}

#[test]
fn what_is_one_agents_own_makes_no_other_manifest() {
    let one = cpp("agent-1", [UUIDS[0], UUIDS[1]]);
    let other = cpp("agent-2", [UUIDS[2], UUIDS[3]]);
    assert_eq!(key(&one), key(&other));
    // Java agents write their sets in another order after each start.
    let mut turned = one.clone();
    let operations = turned["supportedOperations"].as_array_mut().unwrap();
    operations.reverse();
    assert_eq!(key(&one), key(&turned));
}

#[test]
fn what_an_agent_can_do_makes_another_manifest() {
    let one = cpp("agent-1", [UUIDS[0], UUIDS[1]]);
    let changes: [(&str, Value); 5] = [
        ("/buildInfo/version", json!("1.26.03")),
        (
            "/bundles/0/componentManifest/processors/0/type",
            json!("org.Other"),
        ),
        ("/supportedOperations/0/properties", json!({"manifest": {}})),
        (
            "/supportedOperations/3/properties/properties/availableProperties/0/propertyName",
            json!("other"),
        ),
        ("/supportedOperations/1/type", json!("restart")),
    ];
    for (place, value) in changes {
        let mut other = one.clone();
        *other.pointer_mut(place).unwrap() = value;
        assert_ne!(key(&one), key(&other), "{place}");
    }
}

#[test]
fn what_is_kept_tells_nothing_of_the_agent_that_brought_it() {
    // A list of one element comes as that element.
    let mut lone = cpp("agent-1", [UUIDS[0], UUIDS[1]]);
    let properties = &mut lone["supportedOperations"][3]["properties"]["properties"];
    properties["availableProperties"] = properties["availableProperties"][0].clone();
    for manifest in [cpp("agent-1", [UUIDS[0], UUIDS[1]]), lone] {
        let new = come(&manifest).unwrap().new.unwrap();
        let mut text = String::new();
        let mut packed = flate2::read::GzDecoder::new(&*new.content);
        std::io::Read::read_to_string(&mut packed, &mut text).unwrap();
        assert_eq!(new.bytes, text.len());
        for own in ["agent-1", "30 sec", UUIDS[0]] {
            assert!(!text.contains(own), "{own} in {text}");
        }
        assert!(text.contains("TailFile") && text.contains("nifi.c2.agent.identifier"));
        let profile = crate::capability::Profile::of(Some(&new.head));
        assert!(
            profile
                .properties()
                .contains(&"nifi.c2.agent.identifier".to_owned())
        );
        assert!(profile.lists_operand(&OperationKind::Start, "c2"));
    }
}

#[test]
fn what_is_too_large_or_no_manifest_is_not_kept() {
    for (manifest, fits) in [
        (json!([]), false),
        (json!({}), true),
        (
            json!({"supportedOperations": {"type": "update", "properties":
            {"x".repeat(limits::MANIFEST_HEAD_BYTES_MAX): {}}}}),
            false,
        ),
    ] {
        let brought = come(&manifest);
        assert_eq!(brought.is_some(), fits);
    }
    // What does not pack stays as large as it is.
    let mut rng = base::Rng::from_seed(1);
    let noise: String = (0..limits::MANIFEST_BYTES_MAX / 8)
        .map(|_| format!("{:016x}", rng.below(u64::MAX)))
        .collect();
    assert!(come(&json!({"agentType": "cpp", "noise": noise})).is_none());
    // Names are cut to what a column takes.
    let long = "ü".repeat(300);
    let new = come(&json!({"agentType": long, "version": long, "buildInfo": {"version": long}}));
    let head = new.unwrap().new.unwrap().head;
    assert!(head.agent_version().unwrap().len() <= limits::NAME_BYTES_MAX);
    assert!(head.agent_type.as_ref().unwrap().len() <= limits::NAME_BYTES_MAX);
}
