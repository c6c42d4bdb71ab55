//! The golden corpus: messages in the shapes that C++ and third-party agents are known for, each with
//! what it is read as. `UPDATE_EXPECT=1` writes what messages are read as anew.
//!
//! And the fuzzer's corpus, which has to stay harmless.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fuzzing::c2_message;
use crate::{Acknowledge, AgentManifest, Heartbeat, HeartbeatResponse, RawJson};

/// The message as it is written again: one form, whatever came.
fn normalized(name: &str, bytes: &[u8]) -> Value {
    let written = match name.split('-').next().unwrap() {
        "heartbeat" => {
            let heartbeat = Heartbeat::parse(bytes).unwrap();
            let manifest = heartbeat
                .agent_info
                .as_ref()
                .and_then(|a| a.agent_manifest.clone());
            let manifest = manifest.map(|raw| head(&raw));
            let mut value = json_of(&heartbeat.to_vec().unwrap());
            if let Some(manifest) = manifest {
                value["agentInfo"]["agentManifest"] = manifest;
            }
            value["="] = serde_json::json!({
                "sender": heartbeat.sender(), "class": heartbeat.class(), "flow": heartbeat.flow_id(),
                "resources": heartbeat.resource_info.as_ref().and_then(|info| info.digest())});
            return value;
        }
        "acknowledge" => {
            let ack = Acknowledge::parse(bytes).unwrap();
            let mut value = json_of(&ack.to_vec().unwrap());
            value["="] = serde_json::json!({
                "operation": ack.operation(), "state": ack.state().as_str(), "details": ack.details()});
            return value;
        }
        "response" => HeartbeatResponse::parse(bytes).unwrap().to_vec().unwrap(),
        "manifest" => {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            return head(&RawJson::parse(text).unwrap());
        }
        other => panic!("no kind of message: {other}"),
    };
    json_of(&written)
}

/// A manifest's head, and how many bundles it has.
fn head(raw: &RawJson) -> Value {
    let manifest = AgentManifest::parse(raw).unwrap();
    let mut value = serde_json::to_value(&manifest).unwrap();
    let bundles = manifest
        .bundles
        .as_ref()
        .map_or(0, |bundles| bundles.items().len());
    value["="] = serde_json::json!({"bundles": bundles, "version": manifest.agent_version()});
    value
}

fn json_of(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_shape_is_read_as_it_is_meant() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus");
    let mut seen = 0;
    for path in files(&folder) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(name) = name.strip_suffix(".in.json") else {
            continue;
        };
        let read = normalized(name, &std::fs::read(&path).unwrap());
        let golden = folder.join(format!("{name}.out.json"));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let text = serde_json::to_string_pretty(&read).unwrap();
            std::fs::write(&golden, text + "\n").unwrap();
        }
        let wanted = json_of(&std::fs::read(&golden).unwrap());
        assert_eq!(read, wanted, "{name}");
        seen += 1;
    }
    assert!(seen >= 17, "only {seen} messages were read");
}

#[test]
fn a_manifest_of_a_megabyte_printed_for_people_is_read() {
    let bundle = serde_json::json!({"group": "g", "artifact": "a", "componentManifest": {
        "processors": [{"type": "org.apache.nifi.minifi.processors.TailFile",
            "propertyDescriptors": {"File to Tail": {"name": "File to Tail", "required": true}}}]}});
    let manifest = serde_json::json!({"agentType": "cpp", "bundles": vec![bundle; 2_600]});
    let beat = serde_json::json!({"agentInfo": {"identifier": "a", "agentManifest": manifest}});
    let text = serde_json::to_string_pretty(&beat).unwrap();
    assert!(text.len() > 1 << 20, "{}", text.len());
    let beat = Heartbeat::parse(text.as_bytes()).unwrap();
    let raw = beat.agent_info.unwrap().agent_manifest.unwrap();
    let manifest = AgentManifest::parse(&raw).unwrap();
    assert_eq!(manifest.bundles.unwrap().items().len(), 2_600);
}

#[test]
fn what_fuzzing_found_stays_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/c2_message");
    let files = files(&folder);
    assert!(files.len() >= 17, "the corpus is gone");
    for path in files {
        c2_message(&std::fs::read(path).unwrap());
    }
}
