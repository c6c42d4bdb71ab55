//! A glance at heartbeats beside their whole reading.

use std::path::Path;

use crate::fuzzing::agree;
use crate::{Glance, Heartbeat};

const JAVA: &str = r#"{"created":1800000000000,"deviceInfo":{"identifier":"02FC","systemInfo":{"vCores":2},
    "networkInfo":{"deviceId":"eth0","hostname":"host-1"}},"agentInfo":{"identifier":"a","agentClass":"edge",
    "agentManifestHash":"h","status":{"uptime":"51000","repositories":{"flowFile":{"size":1}}}},
    "flowInfo":{"flowId":"f","queues":{"q":{"size":-1}},"processorBulletins":[]},"resourceInfo":{},
    "zone":[1,{"x":null}],"flowId":"f","agentId":"a"}"#;

#[test]
fn a_glance_says_what_the_whole_reading_says() {
    let glance = Glance::at(JAVA.as_bytes()).unwrap();
    agree(&glance, &Heartbeat::parse(JAVA.as_bytes()).unwrap());
    assert_eq!((glance.sender(), glance.class()), (Some("a"), Some("edge")));
    let agent = glance.agent.as_ref().unwrap();
    assert_eq!(agent.manifest_hash.as_deref(), Some("h"));
    assert_eq!(agent.uptime, Some(51_000), "numbers may be texts");
    let device = glance.device.as_ref().unwrap();
    assert_eq!(device.hostname.as_deref(), Some("host-1"));
    assert_eq!(glance.flow.as_ref().unwrap().as_deref(), Some("f"));
    assert_eq!((&glance.resources, glance.digest()), (&Some(None), None));
    assert_eq!(glance.others, ["zone"]);
}

#[test]
fn odd_shapes_are_read_alike_or_left_to_the_whole_reading() {
    let deep = format!("{{\"x\":{}1{}}}", "[".repeat(130), "]".repeat(130));
    for (text, is_accepted) in [
        (r#"{}"#, true),
        (r#"{"agentInfo":{"identifier":"a"},"agentInfo":{}}"#, true),
        (r#"{"agentInfo":{"identifier":"a"},"agentInfo":[1]}"#, true),
        (r#"{"agentInfo":null,"agentId":"b","agentClass":""}"#, true),
        (r#"{"agentInfo":{"identifier":"\u00e4"}}"#, true),
        (r#"{"resourceInfo":{"hash":"null"}}"#, true),
        (r#"{"flowInfo":{"processorBulletins":null}}"#, true),
        (r#"{"\u0061gentId":"a","z":1,"b":2,"z":3}"#, true),
        (r#"{"agentInfo":{"identifier":5}}"#, false),
        (r#"{"agentInfo":{"agentManifest":{}}}"#, false),
        (r#"{"flowInfo":{"processorBulletins":[{"id":1}]}}"#, false),
        (r#"{"flowInfo":{"processorBulletins":{"id":1}}}"#, false),
        (r#"{"queue":1e999}"#, false),
        (r#"{"queue":"\ud800"}"#, false),
        (r#"{"agentId":"a"} more"#, false),
        (r#"{"agentId":"a""#, false),
        (r#"[]"#, false),
        (&deep, false),
    ] {
        let glance = Glance::at(text.as_bytes());
        assert_eq!(glance.is_some(), is_accepted, "{text}");
        if let Some(glance) = glance {
            agree(&glance, &Heartbeat::parse(text.as_bytes()).unwrap());
        }
    }
    assert!(Glance::at(b"{\"agentId\":\"\xff\"}").is_none());
}

#[test]
fn light_heartbeats_of_the_corpus_are_taken_at_a_glance() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus");
    let mut accepted = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("heartbeat") && name.ends_with(".in.json") {
            let bytes = std::fs::read(&path).unwrap();
            if let Some(glance) = Glance::at(&bytes) {
                agree(&glance, &Heartbeat::parse(&bytes).unwrap());
                accepted += 1;
            }
        }
    }
    assert!(accepted >= 5, "only {accepted}");
}
