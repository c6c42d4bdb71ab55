//! Assets, resources and debug bundles.

use std::io::Read;

use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};

use super::plane::{Plane, operation};
use super::supervisor;
use crate::assets::hex;
use crate::logs::Logs;
use crate::properties::Told;
use crate::testing::{make_and_log, runtime, wait_until};

#[test]
fn an_asset_is_fetched_once_and_again_by_force_and_only_if_it_is_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    let client = plane.client(&supervisor, &runtime);
    let give = |bytes: &[u8]| {
        plane.with(|state| state.files.insert("m".to_owned(), bytes.to_vec()));
    };
    give(b"one");
    let file = dir.path().join("asset/models/m.bin");
    let ask = |id: &str, more: Value| {
        let mut args = json!({ "file": "models/m.bin", "url": "/files/m" });
        args.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        plane.ask(id, "UPDATE", "asset", args)
    };
    assert_eq!(ask("a1", json!({})).0, "FULLY_APPLIED");
    assert_eq!(std::fs::read(&file).unwrap(), b"one");
    give(b"two");
    assert_eq!(ask("a2", json!({})).0, "NO_OPERATION");
    let sum = hex(&Sha256::digest(b"other"));
    let force = |digest: &str| json!({ "forceDownload": "true", "digest": digest });
    let (state, ack) = ask("a3", force(&sum));
    assert_eq!(state, "NOT_APPLIED");
    assert!(ack.details().contains("digest"), "{}", ack.details());
    assert_eq!(std::fs::read(&file).unwrap(), b"one");
    assert_eq!(
        ask("a4", force(&hex(&Sha256::digest(b"two")))).0,
        "FULLY_APPLIED"
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"two");
    for (id, name) in [("a5", "../m"), ("a6", "/etc/m"), ("a7", "")] {
        let args = json!({ "file": name, "url": "/files/m" });
        assert_eq!(
            plane.ask(id, "UPDATE", "asset", args).0,
            "NOT_APPLIED",
            "{name}"
        );
    }
    let missing = json!({ "url": "/files/none", "forceDownload": true });
    assert_eq!(ask("a8", missing).0, "NOT_APPLIED");
    let left: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    client.end();
}

#[test]
fn a_set_of_resources_is_brought_echoed_changed_and_kept_over_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let first = supervisor(dir.path(), &runtime);
    let client = plane.client(&first, &runtime);
    plane.with(|state| {
        state.files.insert("a".to_owned(), b"aaa".to_vec());
        state.files.insert("b".to_owned(), b"bbb".to_vec());
    });
    let item = |id: &str, content: &[u8]| {
        json!({
            "resourceId": id, "resourceName": format!("{id}.txt"), "resourceType": "ASSET",
            "resourcePath": "data", "digest": hex(&Sha512::digest(content)),
            "hashType": "SHA-512", "url": plane.url(&format!("/files/{id}")),
        })
    };
    let sync = |id: &str, digest: &str, items: Vec<Value>| {
        let hash = json!({ "digest": digest, "hashType": "SHA-256" });
        let args = json!({ "globalHash": hash, "resourceList": items });
        plane.ask(id, "SYNC", "resource", args)
    };
    let digest = || plane.next_heartbeat().resource_info.unwrap().hash;
    let both = vec![item("a", b"aaa"), item("b", b"bbb")];
    let at = |name: &str| dir.path().join("asset/data").join(name);
    assert_eq!(sync("y1", "set-1", both.clone()).0, "FULLY_APPLIED");
    assert_eq!(digest().as_deref(), Some("set-1"));
    assert_eq!(std::fs::read(at("b.txt")).unwrap(), b"bbb");
    assert_eq!(sync("y2", "set-1", both.clone()).0, "NO_OPERATION");
    // A file that somebody removed is brought again; files of nobody's stay.
    std::fs::remove_file(at("a.txt")).unwrap();
    std::fs::write(at("mine.txt"), "mine").unwrap();
    assert_eq!(sync("y3", "set-1", both).0, "FULLY_APPLIED");
    assert!(at("a.txt").exists());
    // One that is not what it says leaves the digest unset, and says so.
    let (state, ack) = sync("y4", "set-2", vec![item("a", b"aaa"), item("b", b"wrong")]);
    assert_eq!(state, "NOT_APPLIED");
    assert!(ack.details().contains("b.txt"), "{}", ack.details());
    assert_eq!(digest(), None);
    let extension = json!({
        "resourceId": "x", "resourceName": "x.nar", "resourceType": "EXTENSION",
        "url": plane.url("/files/a"),
    });
    let (state, ack) = sync("y5", "set-3", vec![extension]);
    assert_eq!(state, "PARTIALLY_APPLIED");
    assert!(
        ack.details()
            .contains("EXTENSION resources are not supported")
    );
    assert!(!at("a.txt").exists() && at("mine.txt").exists());
    assert_eq!(
        sync("y6", "set-4", vec![item("a", b"aaa")]).0,
        "FULLY_APPLIED"
    );
    client.end();
    first.repository().close().unwrap();
    drop(first);
    let second = supervisor(dir.path(), &runtime);
    let client = plane.client(&second, &runtime);
    assert_eq!(digest().as_deref(), Some("set-4"));
    client.end();
}

#[test]
fn a_debug_bundle_is_uploaded_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    let flow = make_and_log("first").replace("{name: first}", "{name: first, comment: x}");
    supervisor.update(Some("f1".to_owned()), &flow).unwrap();
    let values = [("nifi.c2.agent.class", "edge"), ("x.password", "hunter2")];
    let told = Told {
        values: values.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        logs: Some(Logs::silent()),
        ..Told::default()
    };
    let client = plane.client_with(plane.config(), told, &supervisor, &runtime);
    let args = json!({ "target": plane.url("/bundles/t1") });
    assert_eq!(
        plane.ask("t1", "TRANSFER", "debug", args).0,
        "FULLY_APPLIED"
    );
    let form = plane.with(|state| state.uploads[0].clone());
    let packed = form.windows(2).position(|two| two == [0x1f, 0x8b]).unwrap();
    let head = String::from_utf8_lossy(&form[..packed]).into_owned();
    assert!(
        head.contains("name=\"file\"; filename=\"debug.tar.gz\""),
        "{head}"
    );
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(&form[packed..])
        .read_to_end(&mut tar)
        .unwrap();
    let text = String::from_utf8_lossy(&tar);
    for part in [
        "config/minifi.properties",
        "nifi.c2.agent.class=edge",
        "x.password=********",
        "config/flow.json",
        "manifest.json",
        "status.json",
        "threads.txt",
        "logs/recent.log",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("hunter2"));
    // Somebody else's tar reads it.
    let path = dir.path().join("debug.tar");
    std::fs::write(&path, &tar).unwrap();
    let listed = std::process::Command::new("tar")
        .arg("tf")
        .arg(&path)
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 6);
    // Nowhere to send it to is said.
    let nowhere = json!({ "target": plane.url("/nowhere") });
    assert_eq!(
        plane.ask("t2", "TRANSFER", "debug", nowhere).0,
        "NOT_APPLIED"
    );
    client.end();
    supervisor.stop();
}

#[test]
fn heartbeats_go_on_beside_a_slow_operation_and_the_next_one_waits_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    plane.with(|state| {
        state.files.insert("m".to_owned(), b"one".to_vec());
        state.holds_files = true;
    });
    let client = plane.client(&supervisor, &runtime);
    let slow = json!({ "file": "m.bin", "url": "/files/m" });
    let slow = || operation("slow", "UPDATE", "asset", slow.clone());
    let asked = |operations: Vec<Value>| {
        plane.with(|state| state.operations = operations);
        wait_until("they are asked", || {
            plane.with(|state| state.operations.is_empty())
        });
        plane.next_heartbeat();
    };
    asked(vec![
        slow(),
        operation("next", "DESCRIBE", "manifest", json!({})),
    ]);
    // What is not acknowledged is asked for again, and not done twice.
    asked(vec![slow()]);
    assert_eq!(plane.with(|state| state.acknowledgements.len()), 0);
    plane.with(|state| state.holds_files = false);
    assert_eq!(plane.acknowledged("slow").0, "FULLY_APPLIED");
    assert_eq!(plane.acknowledged("next").0, "FULLY_APPLIED");
    plane.next_heartbeat();
    let order: Vec<String> = plane.with(|state| {
        let acks = state.acknowledgements.iter();
        acks.map(|ack| ack.operation().unwrap().to_owned())
            .collect()
    });
    assert_eq!(order, ["slow", "next"]);
    let fetched = |head: &&String| head.contains("/files/m");
    assert_eq!(
        plane.with(|state| state.heads.iter().filter(fetched).count()),
        1
    );
    client.end();
}
