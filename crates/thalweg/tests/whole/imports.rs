//! Bulk imports through the command line: the count is right, rejects are named, a job survives.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use serde_json::json;

use crate::harness::{Up, eventually, folder, post, succeed, test_env, text};

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

#[test]
fn a_check_out_on_a_full_disk_is_refused_whole_and_taken_when_there_is_room() {
    let dir = folder();
    let up = Up::start_on_small_disk(&dir.path().join("data"), 160);
    let file = dir.path().join("books.jsonl");
    let books: String = (0..BOOKS)
        .map(|n| format!("{{\"id\":\"b{n}\"}}\n"))
        .collect();
    std::fs::write(&file, books).unwrap();
    let file = file.to_str().unwrap();
    up.cli_json(&["import", file, "--tenant", "t", "--key", "id"]);
    let path = |n: usize, what: &str| format!("/api/v1/records/t/b{n}{what}");
    let ask = |n: usize, action: &str| {
        let url = up.url("management", &path(n, action));
        post(&url, "application/json", "{\"holder\":\"ada\"}")
    };
    let stands = |n: usize, holder: Option<&str>, entries: usize| {
        assert_eq!(up.get(&path(n, ""))["holder"], json!(holder), "b{n}");
        let history = up.get(&path(n, "/history"));
        assert_eq!(history["entries"].as_array().unwrap().len(), entries);
    };
    assert_eq!(ask(0, "/check-out").status, 200);
    let ballast = up.inside("ballast");
    let mut weights = File::create(&ballast).unwrap();
    while weights.write_all(&[b'x'; 4096]).is_ok() {}
    // An open file would keep its room.
    drop(weights);
    // The page that a file has begun may still take one.
    let refused = (1..BOOKS).find(|n| ask(*n, "/check-out").status != 200);
    let refused = refused.expect("the disk is full");
    let tries = (refused..BOOKS).map(|n| ask(n, "/check-out"));
    let bulk = up.url("management", "/api/v1/imports?tenant=t&format=jsonl&key=id");
    for _ in 0..2 {
        let answer = post(&bulk, "text/plain", "{\"id\":1}");
        assert_eq!(answer.status, 507, "{}", answer.body);
    }
    for answer in tries.chain([ask(0, "/check-in")]) {
        assert_eq!(answer.status, 507, "{}", answer.body);
        for part in ["counter.db", "free space", "nothing was changed"] {
            assert!(answer.body.contains(part), "{}", answer.body);
        }
    }
    (0..refused).for_each(|n| stands(n, Some("ada"), 1));
    (refused..BOOKS).for_each(|n| stands(n, None, 0));
    std::fs::remove_file(&ballast).unwrap();
    for n in refused..BOOKS {
        let answer = ask(n, "/check-out");
        assert_eq!(answer.status, 200, "{}", answer.body);
        stands(n, Some("ada"), 1);
    }
    assert_eq!(ask(0, "/check-in").status, 200);
    stands(0, None, 2);
    // What is written by transactions is written again, too: the audit, and jobs. The counter is not
    // in the audit: histories have it.
    let weight = up.cli(&["tenants", "set", "t", "--weight", "2"]);
    assert!(weight.status.success(), "{}", text(&weight.stderr));
    let audit = up.get("/api/v1/audit");
    let last = &audit["entries"][0];
    assert_eq!(last["path"], "/api/v1/tenants/t", "{audit}");
    assert_eq!(last["status"], 200, "{audit}");
    assert!(!audit.to_string().contains("/api/v1/records/"), "{audit}");
    let job = up.cli_json(&["import", file, "--tenant", "t", "--key", "id"]);
    assert_eq!(job["records_done"], BOOKS, "{job}");
    up.stop();
}

const BOOKS: usize = 12;

/// Counts the sink's rows with SQLite itself.
const COUNT: &str = "import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute('select count(*) from import_records').fetchone()[0])";
