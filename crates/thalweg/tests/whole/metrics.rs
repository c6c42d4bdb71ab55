//! The metrics: each is documented, Prometheus' own checker has nothing against them, and they
//! count what clients did.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::{Up, curl, folder, post, repository, whole_topic};

fn scrape(up: &Up) -> String {
    let answer = curl(&[&up.url("management", "/metrics")]);
    assert_eq!(answer.status, 200);
    answer.body
}

/// Whether a metric is one of those that `docs/metrics.md` has to tell.
fn is_documented(name: &str) -> bool {
    let ours = [
        "thalweg_streams_",
        "thalweg_fleet_",
        "thalweg_mqtt_",
        "efm_",
    ];
    ours.iter().any(|head| name.starts_with(head))
}

/// The value of the only series that begins so.
fn value(metrics: &str, series: &str) -> f64 {
    let mut lines = metrics.lines().filter(|line| line.starts_with(series));
    let line = lines
        .next()
        .unwrap_or_else(|| panic!("no {series} in:\n{metrics}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn metrics_count_what_clients_did() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "counted", "--partitions", "2"]);
    let json = "application/vnd.kafka.json.v2+json";
    let records = r#"{"records":[{"partition":0,"value":1},{"partition":1,"value":2}]}"#;
    assert_eq!(
        post(&up.url("rest", "/topics/counted"), json, records).status,
        200
    );
    let reset = ["groups", "reset-offsets", "behind", "--topic", "counted"];
    up.cli_json(&[&reset[..], &["--to-earliest", "--execute"]].concat());
    let streams = up.address("streams");
    let kcat = Command::new("kcat")
        .args(["-b", &streams])
        .args(whole_topic("counted"))
        .output()
        .unwrap();
    assert!(kcat.status.success());

    let metrics = scrape(&up);
    for (series, wanted) in [
        ("thalweg_streams_appended_records_total ", 2.0),
        ("thalweg_streams_topics ", 1.0),
        ("thalweg_streams_partitions ", 2.0),
        (
            "thalweg_streams_topic_appended_records_total{topic=\"counted\"} ",
            2.0,
        ),
        (
            "thalweg_streams_partition_end_offset{topic=\"counted\",partition=\"1\"} ",
            1.0,
        ),
        (
            "thalweg_streams_group_lag_records{group=\"behind\",topic=\"counted\"} ",
            2.0,
        ),
        (
            "thalweg_streams_group_partition_lag_records{group=\"behind\",topic=\"counted\",\
             partition=\"0\"} ",
            1.0,
        ),
        ("thalweg_streams_groups{state=\"Empty\"} ", 1.0),
        ("thalweg_streams_journal_poisoned ", 0.0),
    ] {
        assert_eq!(value(&metrics, series), wanted, "{series}");
    }
    for series in [
        "thalweg_streams_fetched_bytes_total ",
        "thalweg_streams_kafka_request_seconds_count{api=\"Fetch\"} ",
        "thalweg_streams_kafka_received_bytes_total{listener=\"streams\"} ",
        "thalweg_streams_journal_sync_seconds_count ",
        "thalweg_streams_disk_free_bytes ",
    ] {
        assert!(value(&metrics, series) > 0.0, "{series}");
    }
}

#[test]
fn agents_and_their_numbers_are_told_where_collectors_of_efm_look() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let heartbeat = r#"{"agentInfo": {"identifier": "one", "agentClass": "edge"},
        "flowInfo": {"queues": {"q": {"size": 4, "dataSize": 40}}}}"#;
    let path = up.url("fleet", "/efm/api/c2-protocol/heartbeat");
    assert_eq!(post(&path, "application/json", heartbeat).status, 200);
    let answer = curl(&[&up.url("management", "/efm/actuator/prometheus")]);
    assert_eq!(answer.status, 200);
    for (series, wanted) in [
        (
            "efm_heartbeat_count_total{agentClass=\"edge\",agentId=\"one\"} ",
            1.0,
        ),
        (
            "thalweg_fleet_agent_queue_bytes{class=\"edge\",agent=\"one\",connection=\"q\"} ",
            40.0,
        ),
        ("thalweg_fleet_heartbeats_total{result=\"ok\"} ", 1.0),
        ("thalweg_fleet_heartbeats_total{result=\"error\"} ", 0.0),
    ] {
        assert_eq!(value(&answer.body, series), wanted, "{series}");
    }
}

#[test]
fn every_metric_of_the_store_and_the_fleet_is_documented_and_well_formed() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "counted"]);
    let metrics = scrape(&up);
    let documented = std::fs::read_to_string(repository().join("docs/metrics.md")).unwrap();
    let heads = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP "));
    let names = heads.filter_map(|head| head.split(' ').next());
    let names: Vec<&str> = names.filter(|name| is_documented(name)).collect();
    assert!(names.len() > 80, "{names:?}");
    for name in &names {
        assert!(
            documented.contains(&format!("`{name}`")),
            "{name} is not in docs/metrics.md"
        );
    }
    let rows = documented
        .lines()
        .filter_map(|line| line.strip_prefix("| `"));
    for row in rows {
        let name = row.split('`').next().unwrap();
        // Agents tell their own.
        if !is_documented(name) {
            continue;
        }
        assert!(
            names.contains(&name),
            "docs/metrics.md names {name}, which is not told"
        );
    }
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    // Where Prometheus is not installed, its checker's opinion is not to be had.
    let Ok(mut promtool) = promtool else { return };
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(metrics.as_bytes())
        .unwrap();
    let checked = promtool.wait_with_output().unwrap();
    let said = crate::harness::text(&checked.stderr) + &crate::harness::text(&checked.stdout);
    let ours: Vec<&str> = said
        .lines()
        .filter(|line| line.split(' ').any(is_documented))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
}
