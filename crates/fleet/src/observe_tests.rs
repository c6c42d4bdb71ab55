//! Checks of what the metrics tell of classes and agents.

use std::sync::Arc;

use base::{Exposition, ManualClock, UnixMillis};
use c2::Heartbeat;
use serde_json::{Value, json};

use crate::config::{FleetConfig, MetricsConfig};
use crate::fleet::{Fleet, Reached};

const START: UnixMillis = UnixMillis(1_800_000_000_000);

struct World {
    _folder: tempfile::TempDir,
    clock: ManualClock,
    fleet: Arc<Fleet>,
}

impl World {
    async fn new(config: FleetConfig) -> World {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(START);
        let fleet = Fleet::open(folder.path(), config, Arc::new(clock.clone()));
        World {
            fleet: fleet.await.unwrap(),
            clock,
            _folder: folder,
        }
    }

    async fn beat(&self, agent: &str, class: Option<&str>, status: Value) {
        let heartbeat = json!({
            "agentInfo": {"identifier": agent, "agentClass": class, "agentManifestHash": "h",
                "status": status["status"]},
            "flowInfo": status["flow"],
        });
        let text = heartbeat.to_string();
        let heartbeat = Heartbeat::parse(text.as_bytes()).unwrap();
        let reached = Reached {
            origin: "http://fleet".to_owned(),
            prefix: "/c2".to_owned(),
            certificate: None,
        };
        let taken = self.fleet.heartbeat(heartbeat, text.as_bytes(), &reached);
        taken.await.unwrap();
    }

    fn metrics(&self) -> String {
        let mut out = Exposition::default();
        self.fleet.observe(&mut out);
        out.into_text()
    }
}

fn bounded(classes_max: usize, agents_max: usize, agent_values_max: usize) -> FleetConfig {
    FleetConfig {
        metrics: MetricsConfig {
            classes_max,
            agents_max,
            agent_values_max,
        },
        ..FleetConfig::default()
    }
}

/// The series that begin so, with their values.
fn series<'a>(metrics: &'a str, head: &str) -> Vec<&'a str> {
    let lines = metrics.lines().filter(|line| line.starts_with(head));
    lines.collect()
}

#[tokio::test]
async fn classes_are_told_by_their_agents_and_the_small_ones_together() {
    let world = World::new(bounded(2, 10, 100)).await;
    for (agent, class) in [
        ("a", Some("one")),
        ("b", Some("two")),
        ("c", Some("two")),
        ("d", None),
        ("e", Some("three")),
    ] {
        world.beat(agent, class, Value::Null).await;
    }
    world.clock.advance(std::time::Duration::from_secs(3_600));
    world.beat("b", Some("two"), Value::Null).await;
    let metrics = world.metrics();
    assert_eq!(
        series(&metrics, "thalweg_fleet_agents{"),
        [
            "thalweg_fleet_agents{state=\"online\"} 1",
            "thalweg_fleet_agents{state=\"missing\"} 4"
        ]
    );
    assert_eq!(
        series(&metrics, "thalweg_fleet_class_agents{"),
        [
            "thalweg_fleet_class_agents{class=\"\",state=\"online\"} 0",
            "thalweg_fleet_class_agents{class=\"\",state=\"missing\"} 1",
            "thalweg_fleet_class_agents{class=\"other\",state=\"online\"} 0",
            "thalweg_fleet_class_agents{class=\"other\",state=\"missing\"} 2",
            "thalweg_fleet_class_agents{class=\"two\",state=\"online\"} 1",
            "thalweg_fleet_class_agents{class=\"two\",state=\"missing\"} 1",
        ]
    );
    world.fleet.close().await;
}

#[tokio::test]
async fn heartbeats_stand_under_the_names_that_dashboards_have_until_their_agent_goes() {
    let world = World::new(bounded(20, 1, 100)).await;
    for agent in ["a", "a", "b", "c"] {
        world.beat(agent, Some("edge"), Value::Null).await;
    }
    let metrics = world.metrics();
    assert_eq!(
        series(&metrics, "efm_heartbeat_count_total{"),
        [
            "efm_heartbeat_count_total{agentClass=\"edge\",agentId=\"a\"} 2",
            "efm_heartbeat_count_total{agentClass=\"edge\",agentId=\"other\"} 2",
        ]
    );
    assert_eq!(
        series(&metrics, "efm_heartbeat_lastSeenTime_seconds{")[0],
        "efm_heartbeat_lastSeenTime_seconds{agentClass=\"edge\",agentId=\"a\"} 1800000000"
    );
    for name in [
        "contentLength_sum",
        "contentLength_count",
        "time_seconds_sum",
    ] {
        let head = format!("efm_heartbeat_{name}{{agentClass=\"edge\",agentId=\"a\"}} ");
        let line = series(&metrics, &head)[0];
        let value: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        assert!(value > 0.0, "{line}");
    }
    assert!(world.fleet.inner.registry.lock().remove("a"));
    let metrics = world.metrics();
    assert!(!metrics.contains("agentId=\"a\""), "{metrics}");
    world.fleet.close().await;
}

fn status() -> Value {
    json!({
        "status": {
            "uptime": 5_000,
            "repositories": {
                "flowFile": {"size": 3, "sizeMax": 10, "dataSize": 30, "dataSizeMax": 100},
                "content \"repo\"": {"size": 7, "maxSize": 70, "entryCount": "2", "full": false,
                    "running": true},
            },
            "resourceConsumption": {"memoryUsage": 1_000, "cpuUtilization": -1.0},
        },
        "flow": {
            "queues": {"q1": {"size": 4, "dataSize": 40, "sizeMax": 0, "dataSizeMax": 0}},
            "processorStatuses": [{"id": "p1", "flowFilesIn": 1, "processingNanos": 2_000_000_000,
                "activeThreadCount": -1}],
        },
    })
}

#[tokio::test]
async fn agents_own_numbers_are_told_but_for_those_that_they_do_not_know() {
    let world = World::new(FleetConfig::default()).await;
    world.beat("a", Some("edge"), status()).await;
    let metrics = world.metrics();
    let of = "class=\"edge\",agent=\"a\"";
    for line in [
        format!("thalweg_fleet_agent_uptime_seconds{{{of}}} 5"),
        format!("thalweg_fleet_agent_memory_bytes{{{of}}} 1000"),
        format!("thalweg_fleet_agent_queue_flowfiles{{{of},connection=\"q1\"}} 4"),
        format!("thalweg_fleet_agent_queue_bytes{{{of},connection=\"q1\"}} 40"),
        format!("thalweg_fleet_agent_repository_entries{{{of},repository=\"flowFile\"}} 3"),
        format!("thalweg_fleet_agent_repository_bytes{{{of},repository=\"flowFile\"}} 30"),
        format!(
            "thalweg_fleet_agent_repository_entries{{{of},repository=\"content \\\"repo\\\"\"}} 2"
        ),
        format!(
            "thalweg_fleet_agent_repository_bytes{{{of},repository=\"content \\\"repo\\\"\"}} 7"
        ),
        format!("thalweg_fleet_agent_processor_flowfiles_in{{{of},processor=\"p1\"}} 1"),
        format!("thalweg_fleet_agent_processor_seconds{{{of},processor=\"p1\"}} 2"),
    ] {
        assert!(
            metrics.lines().any(|told| told == line),
            "{line}\n{metrics}"
        );
    }
    for unknown in [
        "agent_cpu_ratio{",
        "processor_threads{",
        "processor_bytes_in{",
    ] {
        assert!(!metrics.contains(unknown), "{unknown}\n{metrics}");
    }
    world.fleet.close().await;
}

#[tokio::test]
async fn agents_own_numbers_are_bounded_and_what_is_left_out_is_told() {
    let world = World::new(bounded(20, 100, 5)).await;
    for agent in ["a", "b"] {
        world.beat(agent, Some("edge"), status()).await;
    }
    let metrics = world.metrics();
    let values = series(&metrics, "thalweg_fleet_agent_");
    let told = values
        .iter()
        .filter(|line| line.contains("agent=\""))
        .count();
    assert_eq!(told, 5, "{values:?}");
    let left_out = series(&metrics, "thalweg_fleet_agent_values_left_out ")[0];
    let left_out: usize = left_out.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(left_out > 20, "{left_out}");
    world.fleet.close().await;
}
