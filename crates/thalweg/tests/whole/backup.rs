//! A topic goes into a file and comes back elsewhere as it was, by the command line and read by
//! kcat.

use std::path::Path;
use std::process::Command;

use crate::harness::{Up, folder, succeed, text};

/// Produces numbered records with keys, compressed.
fn produce(up: &Up, topic: &str, numbers: std::ops::Range<u32>, folder: &Path) {
    let lines: String = numbers.map(|n| format!("key-{n}:value-{n}\n")).collect();
    let file = folder.join("lines");
    std::fs::write(&file, lines).unwrap();
    let mut kcat = Command::new("kcat");
    kcat.args(["-P", "-b", &up.address("streams"), "-t", topic, "-K", ":"]);
    kcat.args(["-z", "snappy", "-p", "1", "-l"]).arg(&file);
    succeed(&mut kcat);
}

/// Partition, offset, time, key and value of every record.
fn records(up: &Up, topic: &str) -> String {
    let mut kcat = Command::new("kcat");
    kcat.args(["-C", "-b", &up.address("streams"), "-t", topic, "-e", "-q"]);
    kcat.args(["-f", "%p %o %T %k %s\n"]);
    succeed(&mut kcat)
}

#[test]
fn a_topic_comes_back_with_its_offsets_times_settings_and_groups() {
    let dir = folder();
    let data = dir.path().join("data");
    let up = Up::start(&data);
    up.cli_json(&["topics", "create", "orders", "--partitions", "2"]);
    produce(&up, "orders", 0..500, dir.path());
    up.cli_json(&[
        "groups",
        "reset-offsets",
        "billing",
        "--topic",
        "orders:1",
        "--to-offset",
        "77",
        "--execute",
    ]);
    let before = records(&up, "orders");
    assert_eq!(before.lines().count(), 500);

    let file = dir.path().join("orders.backup");
    let path = file.to_str().unwrap();
    let taken = up.cli_json(&["topics", "backup", "orders", "--to", path, "--groups"]);
    assert_eq!(
        (&taken["records"], &taken["groups"]),
        (&500.into(), &1.into())
    );
    let again = up.cli(&["topics", "backup", "orders", "--to", path]);
    assert!(!again.status.success(), "a file was written over");

    // Over the topic itself it is refused, beside it and in another store it is the same.
    let refused = up.cli(&["topics", "restore", path]);
    assert!(text(&refused.stderr).contains("exists already"));
    up.cli_json(&["topics", "restore", path, "--as", "orders-2"]);
    assert_eq!(records(&up, "orders-2"), before);
    let other = Up::start(&dir.path().join("other"));
    other.cli_json(&["topics", "restore", path]);
    assert_eq!(records(&other, "orders"), before);
    let group = other.cli_json(&["groups", "describe", "billing"]);
    let current = group["offsets"].as_array().unwrap().iter();
    let current: Vec<_> = current.filter_map(|o| o["current"].as_i64()).collect();
    assert_eq!(current, [77]);
    // What comes after goes on where the records end.
    produce(&other, "orders", 500..501, dir.path());
    let after = records(&other, "orders");
    assert!(
        after.starts_with(&before) && after.contains("1 500 "),
        "{after}"
    );

    // Without a process, from the folder and into it.
    assert!(up.stop().success() && other.stop().success());
    let offline = dir.path().join("offline.backup");
    let thalweg = |arguments: &[&str], data: &Path| {
        let mut thalweg = crate::harness::thalweg_command();
        thalweg
            .arg("topics")
            .args(arguments)
            .arg("--data")
            .arg(data);
        thalweg
    };
    let offline = offline.to_str().unwrap();
    succeed(&mut thalweg(&["backup", "orders", "--to", offline], &data));
    succeed(&mut thalweg(
        &["restore", offline, "--as", "orders-3"],
        &data,
    ));
    let up = Up::start(&data);
    assert_eq!(records(&up, "orders-3"), before);
}

#[test]
fn a_damaged_or_cut_file_restores_nothing() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "orders", "--partitions", "2"]);
    produce(&up, "orders", 0..500, dir.path());
    let file = dir.path().join("orders.backup");
    let path = file.to_str().unwrap();
    up.cli_json(&["topics", "backup", "orders", "--to", path]);
    let whole = std::fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [
        &whole[..whole.len() - 1],
        &whole[..whole.len() / 2],
        &flipped,
        b"",
        b"x",
    ] {
        std::fs::write(&file, damaged).unwrap();
        let restored = up.cli(&["topics", "restore", path, "--as", "restored"]);
        let told = text(&restored.stderr);
        assert!(
            !restored.status.success() && told.contains("nothing was restored"),
            "{told}"
        );
        // Whoever sends it by hand gets no further.
        let url = up.url("management", "/api/v1/topics/restored/restore");
        let body = format!("@{path}");
        let octets = "Content-Type: application/octet-stream";
        let sent = crate::harness::curl(&["--header", octets, "--data-binary", &body, &url]);
        assert!(
            (400..500).contains(&sent.status),
            "{} {}",
            sent.status,
            sent.body
        );
        let topics = up.cli_json(&["topics", "list"]).to_string();
        assert!(!topics.contains("restored"), "{topics}");
    }
}
