//! Bulk imports through the command line: the count is right, rejects are named, a job survives.

use std::process::Command;

use serde_json::json;

use crate::harness::{Up, eventually, folder, succeed, test_env};

#[test]
fn a_jsonl_file_goes_into_topic_and_sink_with_the_right_count() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let file = dir.path().join("people.jsonl");
    let mut lines: Vec<String> = (0..2000)
        .map(|n| json!({"id": format!("p{n}"), "name": "x"}).to_string())
        .collect();
    lines[700] = "{broken".to_owned();
    std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    let job = up.cli_json(&[
        "import",
        file.to_str().unwrap(),
        "--tenant",
        "diku",
        "--key",
        "id",
        "--topic",
        "people",
    ]);
    assert_eq!(job["state"], "completed_with_rejects", "{job}");
    assert_eq!(
        (&job["records_done"], &job["records_rejected"]),
        (&1999.into(), &1.into())
    );
    let journal = up.cli_json(&["imports", "journal", job["id"].as_str().unwrap()]);
    assert_eq!(journal["entries"].as_array().unwrap().len(), 1, "{journal}");
    let offset: usize = lines[..700].iter().map(|line| line.len() + 1).sum();
    assert_eq!(
        journal["entries"][0]["offset"].as_u64(),
        Some(offset as u64),
        "{journal}"
    );
    let listed = up.cli_json(&["imports", "list", "--tenant", "diku"]);
    assert_eq!(listed["jobs"][0]["id"], job["id"], "{listed}");
    assert_eq!(listed["jobs"][0]["records_done"], 1999, "{listed}");
    let mut kcat = Command::new("kcat");
    kcat.args([
        "-b",
        &up.address("streams"),
        "-C",
        "-t",
        "people",
        "-e",
        "-q",
        "-f",
        "%k\n",
    ]);
    let mut keys: Vec<String> = succeed(&mut kcat).lines().map(str::to_owned).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 1999);
}

#[test]
fn a_killed_import_goes_on_after_the_restart_and_counts_each_record_once() {
    let dir = folder();
    let mut up = Up::start(&dir.path().join("data"));
    let file = dir.path().join("many.jsonl");
    let lines: String = (0..60_000)
        .map(|n| format!("{{\"id\":\"r{n}\"}}\n"))
        .collect();
    std::fs::write(&file, lines).unwrap();
    let job = up.cli_json(&[
        "import",
        file.to_str().unwrap(),
        "--tenant",
        "t1",
        "--key",
        "id",
        "--topic",
        "many",
        "--no-wait",
    ]);
    let id = job["id"].as_str().unwrap().to_owned();
    for part in [5_000, 20_000, 40_000] {
        eventually("the job gets on", || {
            let done = up.get(&format!("/api/v1/imports/{id}"))["records_done"].as_u64()?;
            (done >= part).then_some(())
        });
        up.kill();
        up = up.start_again(&[]);
    }
    let ended = eventually("the job ends", || {
        let job = up.get(&format!("/api/v1/imports/{id}"));
        (job["state"] == "completed").then_some(job)
    });
    assert_eq!(ended["records_done"], 60_000);
    assert_eq!(
        up.records_in("many"),
        60_000,
        "a record reached the topic twice or never"
    );
    let database = up.data().join("imports/imports.db");
    drop(up);
    let mut count = Command::new(test_env().join("venv/bin/python"));
    count.args(["-c", COUNT]).arg(database);
    assert_eq!(succeed(&mut count).trim(), "60000");
}

/// Counts the sink's rows with SQLite itself.
const COUNT: &str = "import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute('select count(*) from import_records').fetchone()[0])";
