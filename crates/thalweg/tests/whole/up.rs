//! `thalweg up` itself: ready at once, health and metrics, a clean stop, a subset of roles.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Running, Up, curl, folder, signal, text, thalweg_command};

#[test]
fn up_is_ready_well_within_a_second_and_says_where() {
    let dir = folder();
    let began = Instant::now();
    let up = Up::start(&dir.path().join("data"));
    eprintln!("ready after {:?}", began.elapsed());
    for role in ["streams", "rest", "schemas", "mqtt", "fleet"] {
        assert!(
            up.address(role).starts_with("127.0.0.1:"),
            "{role} listens beyond loopback"
        );
    }
    let health = curl(&[&up.url("fleet", "/health")]);
    assert_eq!(
        (health.status, health.json()["status"].as_str()),
        (200, Some("UP"))
    );
    up.cli_json(&["topics", "create", "counted"]);
    let metrics = curl(&[&up.url("fleet", "/metrics")]);
    assert_eq!(metrics.status, 200);
    for name in ["process_resident_memory_bytes", "thalweg_streams_"] {
        assert!(
            metrics.body.contains(name),
            "no {name} in:\n{}",
            metrics.body
        );
    }
}

#[test]
fn ctrl_c_stops_cleanly_and_everything_is_there_again() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "kept", "--partitions", "2"]);
    let data = up.data().to_owned();
    signal(up.pid(), Signal::INT);
    let status = up.stop();
    assert!(status.success(), "{status}");
    assert!(
        !data.join("endpoints.json").exists(),
        "a stopped process still names its ports"
    );
    let up = Up::start(&data);
    assert_eq!(up.get("/api/v1/topics")["topics"][0]["name"], "kept");
}

#[test]
fn systemd_hears_that_it_is_ready_lives_and_stops() {
    let dir = folder();
    let socket = dir.path().join("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    systemd
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let hear = || {
        let mut buffer = [0; 64];
        let len = systemd.recv(&mut buffer).expect("systemd hears nothing");
        text(&buffer[..len])
    };
    let mut up = thalweg_command();
    up.args([
        "up",
        "--role",
        "fleet",
        "--set",
        "fleet.listen=127.0.0.1:0",
        "--data",
    ])
    .arg(dir.path().join("data"))
    .env("NOTIFY_SOCKET", &socket)
    .env("WATCHDOG_USEC", "200000")
    .env_remove("WATCHDOG_PID");
    let up = Running::start(&mut up, &dir.path().join("up.log"));
    assert_eq!(hear(), "READY=1");
    assert_eq!((hear(), hear()), ("WATCHDOG=1".into(), "WATCHDOG=1".into()));
    up.stop();
    while hear() != "STOPPING=1" {}
}

#[test]
fn a_data_folder_is_its_owners_alone_and_one_that_is_open_to_all_is_told() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let data = up.data().to_owned();
    let mode = || data.metadata().unwrap().permissions().mode() & 0o777;
    let is_told =
        || text(&std::fs::read(data.with_extension("up.log")).unwrap()).contains("chmod 700");
    assert_eq!(mode(), 0o700);
    up.stop();
    std::fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
    assert!(!is_told());
    drop(Up::start(&data));
    assert_eq!(mode(), 0o755, "an operator's choice is left alone");
    assert!(is_told());
}

#[test]
fn an_idle_process_rests() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", up.pid())).unwrap();
        let fields: Vec<String> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    // Start-up work ends; then three seconds may cost at most two ticks (20 ms) of CPU.
    std::thread::sleep(Duration::from_secs(1));
    let before = ticks();
    std::thread::sleep(Duration::from_secs(3));
    let used = ticks() - before;
    assert!(
        used <= 2,
        "an idle process used {used} ticks in three seconds"
    );
}

#[test]
fn roles_that_need_a_store_say_so() {
    let dir = folder();
    let data = dir.path().join("data");
    let output = thalweg_command()
        .args([
            "up",
            "--data",
            data.to_str().unwrap(),
            "--role",
            "rest,fleet",
        ])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = crate::harness::text(&output.stderr);
    assert!(said.contains("add the role streams"), "{said}");
}

#[test]
fn only_the_chosen_roles_run() {
    let dir = folder();
    let up = Up::start_with(&dir.path().join("data"), &["--role", "fleet"]);
    assert_eq!(curl(&[&up.url("fleet", "/api/v1/agents")]).status, 200);
    assert_eq!(curl(&[&up.url("fleet", "/api/v1/topics")]).status, 404);
    assert_eq!(listed(&up), ["fleet", "management"]);
    assert_eq!(up.address("fleet"), up.address("management"));
}

#[test]
fn without_the_role_fleet_its_port_serves_management_and_no_agents() {
    let dir = folder();
    let up = Up::start_with(&dir.path().join("data"), &["--role", "streams"]);
    assert_eq!(listed(&up), ["management", "streams"]);
    let status = |path: &str| curl(&[&up.url("management", path)]).status;
    assert_eq!(status("/health"), 200);
    assert_eq!(status("/metrics"), 200);
    assert_eq!(status("/api/v1/topics"), 200);
    for path in [
        "/api/v1/agents",
        "/api/v1/classes",
        "/api/v1/flows",
        "/efm/api/c2-protocol/heartbeat",
        "/c2-protocol/heartbeat",
        "/api/v1/imports",
        "/api/v1/statements",
    ] {
        assert_eq!(status(path), 404, "{path} is served");
    }
    let log = std::fs::read_to_string(up.data().with_extension("up.log")).unwrap();
    assert!(log.contains("  management http://"), "{log}");
    assert!(!log.contains("C2"), "{log}");
}

/// What the process says listens.
fn listed(up: &Up) -> Vec<String> {
    let status = curl(&[&up.url("management", "/api/v1/status")]).json();
    let endpoints = status["endpoints"].as_object().unwrap();
    endpoints.keys().cloned().collect()
}
