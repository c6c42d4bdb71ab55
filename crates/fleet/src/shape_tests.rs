//! Checks of what agents of each kind and version are sent, word by word.

use c2::{AgentManifest, RawJson};

use super::*;
use crate::resource::{Resource, ResourceKind};

const CPP: &str = r#"{"agentType":"cpp","supportedOperations":[
    {"type":"describe","properties":{"manifest":{},"metrics":{},"configuration":{}}},
    {"type":"update","properties":{"configuration":{},"asset":{},"properties":{
        "availableProperties":[{"propertyName":"nifi.c2.agent.class"}]}}},
    {"type":"start","properties":{"c2":{},"11-22":{}}},
    {"type":"stop","properties":{"flow":{},"processor":{}}},
    {"type":"sync","properties":{"resource":{}}},
    {"type":"transfer","properties":{"debug":{}}},
    {"type":"restart"},
    {"type":"clear","properties":{"connection":{},"repositories":{},"corecomponentstate":{}}}]}"#;

fn java(version: &str) -> String {
    format!(
        r#"{{"agentType":"minifi-java","buildInfo":{{"version":"{version}"}},"supportedOperations":[
        {{"type":"UPDATE","properties":{{"CONFIGURATION":{{}},"ASSET":{{}},"PROPERTIES":{{}}}}}},
        {{"type":"START","properties":{{"FLOW":{{}},"PROCESSOR":{{}}}}}},
        {{"type":"SYNC","properties":{{"RESOURCE":{{}}}}}},
        {{"type":"TRANSFER","properties":{{"DEBUG":{{}}}}}}]}}"#
    )
}

fn check(manifest: &str, operation: &str, args: Value, expected: Result<Value, &str>) {
    let manifest = AgentManifest::parse(&RawJson::parse(manifest.to_owned()).unwrap()).unwrap();
    let (kind, operand) = operation.split_once(' ').unwrap_or((operation, ""));
    let (kind, operand) = (OperationKind::from(kind), Operand::from(operand));
    let args = args.as_object().unwrap().clone().into_iter().collect();
    let resource = |id: &str, kind| Resource {
        id: id.into(),
        name: "m.bin".to_owned(),
        kind,
        path: "models".to_owned(),
        notes: String::new(),
        bytes: 1,
        sha512: "d".to_owned(),
        created: base::UnixMillis(0),
    };
    let set = ResourceSet {
        digest: "set".into(),
        items: vec![
            resource("r1", ResourceKind::Asset).into(),
            resource("r2", ResourceKind::Extension).into(),
        ],
        at_once: 0,
    };
    let place = Place {
        origin: "http://h:1",
        prefix: "/c2",
        agent: "a b/c",
    };
    let beat = r#"{"agentInfo":{"status":{"components":{"P":{"uuid":"11-22"}}}}}"#.as_bytes();
    let heartbeat = c2::Heartbeat::parse(beat).unwrap();
    let runs = Kept::after(None, heartbeat, beat, |_| std::sync::Arc::default()).unwrap();
    let wanted = Wanted {
        id: "op-1",
        kind: &kind,
        operand: &operand,
        args: Some(&args),
        flow: Some("f-1"),
        resources: Some(&set),
        runs: Some(&runs),
    };
    let shaped = shape(Profile::of(Some(&manifest)), place, wanted);
    match (shaped, expected) {
        (Ok(shaped), Ok(wanted)) => {
            let mut sent = serde_json::to_value(shaped).unwrap();
            assert_eq!(sent["identifier"], "op-1");
            sent.as_object_mut().unwrap().remove("identifier");
            assert_eq!(sent, wanted, "{operation}");
        }
        (Err(reason), Err(says)) => assert!(reason.contains(says), "{operation}: {reason}"),
        (shaped, expected) => panic!("{operation}: {shaped:?}, not {expected:?}"),
    }
}

#[test]
fn a_flow_update_has_every_address_and_only_strings() {
    let url = "http://h:1/c2/flows/f-1?aid=a%20b%2Fc";
    let sent = json!({"operation": "UPDATE", "operand": "configuration", "args": {
        "flowId": "f-1", "location": url, "flowUrl": url, "persist": "true",
        "relativeFlowUrl": "/flows/f-1?aid=a%20b%2Fc"}});
    let old = r#"{"agentType":"nifi","version":"1.18.0"}"#;
    for manifest in [old, CPP, &java("2.3.0")] {
        check(
            manifest,
            "UPDATE configuration",
            json!({}),
            Ok(sent.clone()),
        );
    }
}

#[test]
fn properties_are_texts_and_objects_only_for_agents_that_read_them() {
    let args = json!({"nifi.c2.agent.class": {"value": "x", "persist": false}});
    let update = |value: Value| {
        Ok(json!({"operation": "UPDATE", "operand": "properties",
            "args": {"nifi.c2.agent.class": value}}))
    };
    let own = json!({"value": "x", "persist": false});
    check(CPP, "UPDATE properties", args.clone(), update(own));
    check(
        &java("2.3.0"),
        "UPDATE properties",
        args,
        Err("without persist"),
    );
    let plain = json!({"nifi.c2.agent.class": 7});
    for manifest in [CPP, &java("1.20.0")] {
        check(
            manifest,
            "UPDATE properties",
            plain.clone(),
            update(json!("7")),
        );
    }
    check(
        &java("1.19.0"),
        "UPDATE properties",
        plain,
        Err("from 1.20 on"),
    );
    check(
        CPP,
        "UPDATE properties",
        json!({"x": "y"}),
        Err("no property 'x'"),
    );
}

#[test]
fn assets_lead_to_the_fleet_or_elsewhere() {
    let args = json!({"file": "m.bin", "resourceId": "r1", "forceDownload": true});
    let own = json!({"operation": "UPDATE", "operand": "asset", "args": {
        "file": "m.bin", "url": "http://h:1/c2/resources/r1", "relativeUrl": "/resources/r1",
        "forceDownload": "true"}});
    check(CPP, "UPDATE asset", args.clone(), Ok(own.clone()));
    check(
        &java("2.3.0"),
        "UPDATE asset",
        args.clone(),
        Ok(own.clone()),
    );
    check(
        &java("2.11.0"),
        "UPDATE asset",
        args.clone(),
        Err("refuse asset names with '.'"),
    );
    check(
        &java("1.21.0"),
        "UPDATE asset",
        args.clone(),
        Err("from 1.22 on"),
    );
    // Cloudera's, of August 2024.
    check(&java("2.24.08.0-19"), "UPDATE asset", args, Ok(own));
    let elsewhere = json!({"operation": "UPDATE", "operand": "asset", "args": {
        "file": "m", "url": "https://x/m", "forceDownload": "false"}});
    let args = json!({"file": "m", "url": "https://x/m"});
    check(&java("2.11.0"), "UPDATE asset", args, Ok(elsewhere));
}

#[test]
fn resources_come_whole_to_java_and_without_extensions_to_cpp() {
    let item = |id: &str, kind: &str| {
        json!({"resourceId": id, "resourceName": "m.bin", "resourceType": kind,
            "resourcePath": "models", "digest": "d", "hashType": "SHA-512",
            "url": format!("http://h:1/c2/resources/{id}")})
    };
    let sent = |items: Vec<Value>| {
        Ok(json!({"operation": "SYNC", "operand": "resource", "args": {
            "globalHash": {"digest": "set", "hashType": "SHA-256"}, "resourceList": items}}))
    };
    let (asset, extension) = (item("r1", "ASSET"), item("r2", "EXTENSION"));
    let both = sent(vec![asset.clone(), extension]);
    check(&java("2.3.0"), "SYNC resource", json!({}), both);
    check(CPP, "SYNC resource", json!({}), sent(vec![asset]));
    check(
        &java("1.28.1"),
        "SYNC resource",
        json!({}),
        Err("from 2.0 on"),
    );
}

#[test]
fn older_cpp_agents_take_the_component_as_the_operand() {
    let processor = json!({"processorId": "11-22"});
    check(
        CPP,
        "START processor",
        processor.clone(),
        Ok(json!({"operation": "START", "operand": "11-22"})),
    );
    check(
        CPP,
        "START processor",
        json!({"processorId": "no"}),
        Err("no component 'no'"),
    );
    check(
        CPP,
        "START flow",
        json!({}),
        Ok(json!({"operation": "START", "operand": "FlowController"})),
    );
    check(
        CPP,
        "STOP flow",
        json!({}),
        Ok(json!({"operation": "STOP", "operand": "flow"})),
    );
    let newer = json!({"operation": "STOP", "operand": "processor", "args": processor});
    check(CPP, "STOP processor", processor.clone(), Ok(newer));
    let newer = json!({"operation": "START", "operand": "processor", "args": processor});
    check(
        &java("2.7.0"),
        "START processor",
        processor.clone(),
        Ok(newer),
    );
    check(
        &java("2.6.0"),
        "START processor",
        processor,
        Err("from 2.7 on"),
    );
}

#[test]
fn the_rest_is_as_the_protocol_has_it() {
    let url = "http://h:1/c2/bundles/op-1";
    for manifest in [CPP, &java("2.3.0")] {
        check(
            manifest,
            "TRANSFER debug",
            json!({}),
            Ok(json!({"operation": "TRANSFER", "operand": "debug",
                "args": {"target": url, "relativeTarget": "/bundles/op-1"}})),
        );
    }
    check(
        CPP,
        "RESTART",
        json!({}),
        Ok(json!({"operation": "RESTART"})),
    );
    check(
        &java("2.3.0"),
        "RESTART",
        json!({}),
        Err("Java agents do not take RESTART"),
    );
    check(
        CPP,
        "DESCRIBE metrics",
        json!({"metricsClass": "1"}),
        Ok(json!({"operation": "DESCRIBE", "operand": "metrics", "args": {"metricsClass": "1"}})),
    );
    check(
        CPP,
        "CLEAR connection",
        json!({"connections": ["a", "b"]}),
        Ok(
            json!({"operation": "CLEAR", "operand": "connection", "args": {"name1": "a", "name2": "b"}}),
        ),
    );
    check(
        CPP,
        "DESCRIBE jstack",
        json!({}),
        Err("does not list DESCRIBE jstack"),
    );
}
