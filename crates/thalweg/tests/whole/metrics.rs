//! The metrics: each is documented, Prometheus' own checker has nothing against them, and they
//! count what clients did.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::{Up, curl, files_below, folder, post, repository, whole_topic};

fn scrape(up: &Up) -> String {
    let answer = curl(&[&up.url("management", "/metrics")]);
    assert_eq!(answer.status, 200);
    answer.body
}

/// Whether a metric is one of those that `docs/metrics.md` has to tell.
fn is_documented(name: &str) -> bool {
    ["thalweg_", "efm_", "process_"]
        .iter()
        .any(|head| name.starts_with(head))
}

/// Whether a metric is told by every process, whatever was done there; agents tell their own.
fn is_always_told(name: &str) -> bool {
    let ours = [
        "thalweg_streams_",
        "thalweg_fleet_",
        "thalweg_http_",
        "thalweg_mqtt_",
        "efm_",
        "process_",
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
        "thalweg_http_connections_total{port=\"rest\"} ",
        "thalweg_http_connections{port=\"fleet\"} ",
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

/// The metrics of `docs/metrics.md` with their kinds.
fn documented() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(repository().join("docs/metrics.md")).unwrap();
    let mut metrics = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (names, kind) = (cells.next().unwrap(), cells.next().unwrap());
        let names = names.split('`').filter(|name| is_documented(name));
        metrics.extend(names.map(|name| (name.to_owned(), kind.to_owned())));
    }
    metrics
}

#[test]
fn every_metric_is_documented_with_its_kind_and_well_formed() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "counted"]);
    // What is told from its first call on.
    let json = "application/vnd.kafka.json.v2+json";
    let produced = post(
        &up.url("rest", "/topics/counted"),
        json,
        r#"{"records":[{"value":1}]}"#,
    );
    assert_eq!(produced.status, 200);
    assert_eq!(curl(&[&up.url("schemas", "/subjects")]).status, 200);
    let metrics = scrape(&up);
    let documented = documented();
    let heads = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let told: Vec<(&str, &str)> = heads
        .map(|head| head.split_once(' ').unwrap())
        .filter(|(name, _)| is_documented(name))
        .collect();
    assert!(told.len() > 100, "{told:?}");
    for (name, kind) in &told {
        let row = documented.iter().find(|(named, _)| named == name);
        let (_, written) = row.unwrap_or_else(|| panic!("{name} is not in docs/metrics.md"));
        assert_eq!(
            written, kind,
            "the kind of {name}, first in docs/metrics.md"
        );
    }
    for (name, _) in documented.iter().filter(|(name, _)| is_always_told(name)) {
        assert!(
            told.iter().any(|(told, _)| told == name),
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

#[test]
fn every_metric_that_a_source_counts_is_documented() {
    let documented = documented();
    let mut seen = 0;
    for path in files_below(&repository().join("crates")) {
        let text = match path.extension() {
            Some(ending) if ending == "rs" => std::fs::read_to_string(&path).unwrap(),
            _ => continue,
        };
        for of in ["counter!(\"", "gauge!(\"", "histogram!(\""] {
            let calls = text.split(of).skip(1);
            let names = calls.filter_map(|call| call.split('"').next());
            for name in names.filter(|name| is_documented(name)) {
                assert!(
                    documented.iter().any(|(named, _)| named == name),
                    "{name} of {} is not in docs/metrics.md",
                    path.display()
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "only {seen} were found");
}
