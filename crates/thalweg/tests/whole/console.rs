//! The console in a real browser: the page is opened, read and followed while data flows.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Running, Up, eventually, folder, number_of, repository, text};

#[test]
fn the_console_shows_live_what_the_demo_carries() {
    let dir = folder();
    let data = dir.path().join("data");
    let mut up = Up::start_with(&data, &["--demo"]);
    eventually("the demo's agent calls in", || {
        (up.get("/api/v1/agents")["agents"].as_array()?.len() == 1).then_some(())
    });
    let lines: String = (0..300).map(|n| format!("{{\"id\":\"r{n}\"}}\n")).collect();
    let file = dir.path().join("records.jsonl");
    std::fs::write(&file, lines).unwrap();
    up.cli_json(&[
        "import",
        file.to_str().unwrap(),
        "--tenant",
        "diku",
        "--key",
        "id",
    ]);
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/page.mjs"))
        .arg(up.url("fleet", "/"));
    node.arg(dir.path().join("console.png"));
    let browser = Running::start(&mut node, &dir.path().join("browser.log"));
    browser.finish("the page is as expected");
    assert!(
        std::fs::metadata(dir.path().join("console.png"))
            .unwrap()
            .len()
            > 0
    );
    // The demo's agent does not outlive its `up`, even when that is killed.
    let agents = || {
        let mut pgrep = Command::new("pgrep");
        pgrep.arg("-f").arg(data.join("demo-agent"));
        text(&pgrep.output().unwrap().stdout)
    };
    assert_ne!(agents(), "");
    up.kill();
    eventually("the demo's agent is gone too", || {
        agents().is_empty().then_some(())
    });
}

#[test]
fn the_fleets_pages_find_an_agent_publish_a_flow_and_show_its_way() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/fleet.mjs"))
        .arg(up.url("fleet", "/"))
        .arg(dir.path().join("fleet.png"));
    let browser = Running::start(&mut node, &dir.path().join("browser.log"));
    browser.finish("the fleet's pages are as expected");
}

/// As many agents as `THALWEG_TEST_CONSOLE_AGENTS` says, 20,000 unless told.
#[test]
fn the_fleets_page_finds_one_of_very_many_agents() {
    let dir = folder();
    // Each of them calls once.
    let patient = "--set=fleet.heartbeat_interval=1h";
    let up = Up::start_with(&dir.path().join("data"), &["--role=fleet", patient]);
    let agents = number_of("THALWEG_TEST_CONSOLE_AGENTS", 20_000);
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/fleet_many.mjs"))
        .arg(up.url("fleet", "/"))
        .arg(agents.to_string())
        .arg(dir.path().join("many.png"));
    let log = dir.path().join("browser.log");
    let mut browser = Running::start(&mut node, &log);
    let until = Instant::now() + Duration::from_secs(60 + agents / 200);
    while !browser.has_ended() {
        assert!(Instant::now() < until, "the browser is not done");
        std::thread::sleep(Duration::from_millis(50));
    }
    browser.finish("the fleet's page is as expected");
    print!("{}", std::fs::read_to_string(log).unwrap());
}

#[test]
fn the_statements_pages_add_watch_pause_replace_and_remove_one() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/statements.mjs"))
        .arg(up.url("fleet", "/"))
        .arg(dir.path().join("statements.png"));
    let browser = Running::start(&mut node, &dir.path().join("browser.log"));
    browser.finish("the statements' pages are as expected");
}

#[test]
fn the_pages_of_topics_and_groups_find_order_and_show_them() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/streams.mjs"))
        .arg(up.url("fleet", "/"))
        .arg(up.url("rest", "/"))
        .arg(dir.path().join("topics.png"));
    let browser = Running::start(&mut node, &dir.path().join("browser.log"));
    browser.finish("the pages of topics and groups are as expected");
}

#[test]
fn a_topics_page_shows_who_reads_it_and_its_records() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/records.mjs"))
        .arg(up.url("fleet", "/"))
        .arg(up.url("rest", "/"))
        .arg(dir.path().join("records.png"));
    let browser = Running::start(&mut node, &dir.path().join("browser.log"));
    browser.finish("the topic's page is as expected");
}

#[test]
fn a_groups_page_resets_its_offsets_while_it_has_no_members() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/reset.mjs"))
        .arg(up.url("fleet", "/"))
        .arg(up.url("rest", "/"))
        .arg(dir.path().join("reset.png"));
    let browser = Running::start(&mut node, &dir.path().join("browser.log"));
    browser.finish("the group's page is as expected");
}

#[test]
fn the_pages_of_schemas_find_show_and_check_them() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/schemas.mjs"))
        .arg(up.url("fleet", "/"))
        .arg(up.url("schemas", "/"))
        .arg(dir.path().join("schemas.png"));
    let browser = Running::start(&mut node, &dir.path().join("browser.log"));
    browser.finish("the pages of schemas are as expected");
}

#[test]
fn a_tenants_page_switches_its_topics_and_purges_its_records() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/tenants.mjs"))
        .arg(up.url("fleet", "/"))
        .arg(up.url("rest", "/"))
        .arg(dir.path().join("tenants.png"));
    let browser = Running::start(&mut node, &dir.path().join("browser.log"));
    browser.finish("the tenant's page is as expected");
}

#[test]
fn the_imports_pages_send_files_show_shares_steer_jobs_and_set_weights() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/imports.mjs"))
        .arg(up.url("fleet", "/"))
        .arg(dir.path().join("imports.png"));
    let browser = Running::start(&mut node, &dir.path().join("browser.log"));
    browser.finish("the imports' pages are as expected");
}
