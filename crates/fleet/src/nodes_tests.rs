//! Several nodes on one database, on PostgreSQL and MariaDB; one node on SQLite.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Rng, SystemClock, report};
use bytes::Bytes;
use c2::{
    AckState, Acknowledge, AgentInfo, DeviceInfo, FlowInfo, Heartbeat, OperationKind, RawJson,
};
use sql::test_servers::{Server, mariadb, postgres};

use crate::events::EventFilter;
use crate::fleet::{AgentFilter, Reached};
use crate::rollout::{Plan, Wish};
use crate::{Fleet, FleetConfig, FleetError};

#[path = "nodes_alerts_tests.rs"]
mod alerts;
#[path = "nodes_classes_tests.rs"]
mod classes;
#[path = "nodes_fetching_tests.rs"]
mod fetching;
#[path = "nodes_giving_tests.rs"]
mod giving;
#[path = "nodes_manifests_tests.rs"]
mod manifests;
#[path = "nodes_places_tests.rs"]
mod places;
#[path = "nodes_upgrade_tests.rs"]
mod upgrade;

const MANIFEST: &str = r#"{"agentType":"minifi-java","version":"1.18.0","bundles":[]}"#;
const FLOW: &str = "MiNiFi Config Version: 3\nProcessors:\n- {id: p, name: P, class: org.P}\n";

/// An agent as its fleet sees it.
#[derive(Default)]
struct Simulated {
    id: String,
    flow: Option<String>,
    describes: bool,
    /// Whether it does not say that it is of the class `edge`.
    names_no_class: bool,
    /// Flows that it cannot take.
    cannot: BTreeSet<String>,
    /// The ids under which each flow was handed to it.
    ids: BTreeMap<String, BTreeSet<String>>,
    /// Answers that it still has to send: its network may lose the link in between.
    answers: Vec<Acknowledge>,
}

impl Simulated {
    fn new(number: usize) -> Simulated {
        Simulated {
            id: format!("agent-{number:04}"),
            ..Simulated::default()
        }
    }

    fn info(&self, manifest: bool) -> AgentInfo {
        let text = || RawJson::parse(MANIFEST.to_owned()).unwrap();
        AgentInfo {
            identifier: Some(self.id.clone()),
            agent_class: (!self.names_no_class).then(|| "edge".to_owned()),
            agent_manifest_hash: Some("one-hash".to_owned()),
            agent_manifest: manifest.then(text),
            ..AgentInfo::default()
        }
    }

    /// One beat at `node`, and one answer at `other` for each operation: tells whether both
    /// nodes took it.
    async fn beat(&mut self, node: &Fleet, other: &Fleet) -> Result<(), FleetError> {
        while let Some(answer) = self.answers.last() {
            other.acknowledge(answer.clone()).await?;
            self.answers.pop();
        }
        let heartbeat = Heartbeat {
            agent_info: Some(self.info(false)),
            device_info: Some(DeviceInfo {
                identifier: Some(format!("device-of-{}", self.id)),
                ..DeviceInfo::default()
            }),
            flow_info: Some(FlowInfo {
                flow_id: self.flow.clone(),
                ..FlowInfo::default()
            }),
            ..Heartbeat::default()
        };
        let text = heartbeat.to_vec().unwrap();
        let response = node.heartbeat(heartbeat, &text, &reached()).await?;
        for operation in response.requested_operations {
            let mut answer = Acknowledge::new(&operation.identifier, AckState::FullyApplied);
            if operation.kind == OperationKind::Describe {
                self.describes = true;
                answer.agent_info = Some(self.info(true));
            } else {
                let flow = operation.args["flowId"].as_str().unwrap().to_owned();
                let ids = self.ids.entry(flow.clone()).or_default();
                ids.insert(operation.identifier.clone());
                if self.cannot.contains(&flow) {
                    answer = Acknowledge::new(&operation.identifier, AckState::NotApplied);
                } else {
                    self.flow = Some(flow);
                }
            }
            self.answers.push(answer);
        }
        Ok(())
    }
}

fn reached() -> Reached {
    Reached {
        origin: "http://fleet".to_owned(),
        prefix: "/c2".to_owned(),
        certificate: None,
    }
}

async fn node(folder: &Path, database: Option<&str>) -> Arc<Fleet> {
    let config = FleetConfig {
        database: database.map(|url| url.to_owned().into()),
        write_behind: base::HumanDuration(Duration::from_millis(100)),
        ..FleetConfig::default()
    };
    let opened = Fleet::open(folder, config, Arc::new(SystemClock)).await;
    opened.unwrap_or_else(|error| panic!("{}", report(&error)))
}

/// Beats until every agent runs `flow` and answered for it, each at any node.
async fn converge(agents: &mut [Simulated], nodes: &[Arc<Fleet>], flow: &str, rng: &mut Rng) {
    let until = Instant::now() + Duration::from_secs(90);
    loop {
        for agent in &mut *agents {
            let one = rng.below(nodes.len() as u64) as usize;
            let other = rng.below(nodes.len() as u64) as usize;
            // Who is told to come again does so.
            match agent.beat(&nodes[one], &nodes[other]).await {
                Ok(()) | Err(FleetError::NotStored) => {}
                Err(error) => panic!("{}", report(&error)),
            }
        }
        let open =
            |agent: &&Simulated| agent.flow.as_deref() != Some(flow) || !agent.answers.is_empty();
        let behind = agents.iter().filter(open).count();
        if behind == 0 {
            return;
        }
        assert!(Instant::now() < until, "{behind} agents do not run {flow}");
    }
}

/// What every node shows in the end, however it heard of it.
async fn agree(nodes: &[Arc<Fleet>], agents: usize) {
    for node in nodes {
        let until = Instant::now() + Duration::from_secs(15);
        loop {
            let filter = AgentFilter {
                limit: 10_000,
                ..AgentFilter::default()
            };
            let page = node.agents(&filter);
            let deployed = page.agents.iter().filter(|a| a.flow_state == "deployed");
            let now = base::Clock::now(&SystemClock).0;
            let heard = page.agents.iter().filter(|a| now - a.last_seen_ms < 60_000);
            let heard = heard.filter(|a| a.heartbeats_total > 1).count();
            let all = crate::history::OperationFilter {
                limit: 10_000,
                ..Default::default()
            };
            let operations = node.operations(&all).unwrap().operations;
            let done = operations
                .iter()
                .filter(|op| op.state == "done" && op.acknowledged);
            let (deployed, done) = (deployed.count(), done.count());
            // An operation for each agent and flow, and one description.
            if (page.agents.len(), deployed, heard, done, operations.len())
                == (agents, agents, agents, 2 * agents + 1, 2 * agents + 1)
            {
                break;
            }
            assert!(
                Instant::now() < until,
                "{} agents, {deployed} deployed, {heard} heard, {done} of {} operations done",
                page.agents.len(),
                operations.len()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn two_rollouts(database: Option<String>, count: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(node(folder.path(), database.as_deref()).await);
    }
    let mut rng = Rng::from_seed(11);
    let mut agents: Vec<Simulated> = (0..60).map(Simulated::new).collect();
    for turn in 0..2 {
        let text = Bytes::from(format!("{FLOW}# {turn}\n"));
        let published = nodes[turn % count]
            .publish("edge", text, true)
            .await
            .unwrap();
        assert_eq!(published.version, turn as i64 + 1);
        converge(&mut agents, &nodes, &published.flow_id, &mut rng).await;
    }
    for agent in &agents {
        for (flow, ids) in &agent.ids {
            assert_eq!(ids.len(), 1, "{} got {flow} under {ids:?}", agent.id);
        }
    }
    let asked = agents.iter().filter(|agent| agent.describes).count();
    assert_eq!(
        asked, 1,
        "one agent of all is asked to describe the manifest"
    );
    agree(&nodes, agents.len()).await;
    for node in &nodes {
        node.close().await;
    }
    // Whoever comes later knows it all.
    let later = node(folder.path(), database.as_deref()).await;
    agree(std::slice::from_ref(&later), agents.len()).await;
    later.close().await;
}

#[tokio::test]
async fn one_node_on_sqlite_rolls_flows_out() {
    two_rollouts(None, 1).await;
}

#[tokio::test]
async fn three_nodes_on_postgres_roll_flows_out_under_one_id_each() {
    two_rollouts(Some(postgres().new_database().await), 3).await;
}

#[tokio::test]
async fn three_nodes_on_mariadb_roll_flows_out_under_one_id_each() {
    two_rollouts(Some(mariadb().new_database().await), 3).await;
}

#[tokio::test]
async fn without_its_database_a_node_answers_what_needs_nothing_durable() {
    for dialect in [sql::Dialect::Postgres, sql::Dialect::MySql] {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start(dialect);
        let url = server.new_database().await;
        let node = node(folder.path(), Some(&url)).await;
        let mut agent = Simulated::new(1);
        let mut rng = Rng::from_seed(1);
        let flow = node
            .publish("edge", Bytes::from(FLOW), true)
            .await
            .unwrap()
            .flow_id;
        let nodes = std::slice::from_ref(&node);
        converge(std::slice::from_mut(&mut agent), nodes, &flow, &mut rng).await;
        server.kill();
        agent.beat(&node, &node).await.unwrap();
        let mut new = Simulated::new(2);
        let refused = new.beat(&node, &node).await;
        assert!(
            matches!(refused, Err(FleetError::NotStored)),
            "{dialect:?}: a new agent needs an operation: {refused:?}"
        );
        let asked = Instant::now();
        let _ = new.beat(&node, &node).await;
        assert!(
            asked.elapsed() < Duration::from_secs(2),
            "nobody waits for what is known"
        );
        agent.beat(&node, &node).await.unwrap();
        server.start_again();
        let until = Instant::now() + Duration::from_secs(30);
        while new.flow.as_deref() != Some(&flow) || !new.answers.is_empty() {
            let _ = new.beat(&node, &node).await;
            assert!(Instant::now() < until, "{dialect:?}: the agent got no flow");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(new.ids[&flow].len(), 1, "{dialect:?}: {:?}", new.ids);
        node.close().await;
    }
}

#[tokio::test]
async fn silent_agents_are_removed_by_one_node_and_gone_on_all() {
    for url in [
        postgres().new_database().await,
        mariadb().new_database().await,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let open = async || {
            let config = FleetConfig {
                database: Some(url.clone().into()),
                write_behind: base::HumanDuration(Duration::from_millis(50)),
                agent_cleanup_after: base::HumanDuration(Duration::from_secs(2)),
                ..FleetConfig::default()
            };
            let clock = Arc::new(SystemClock);
            Fleet::open(folder.path(), config, clock).await.unwrap()
        };
        let nodes = [open().await, open().await];
        let mut agent = Simulated::new(1);
        agent.beat(&nodes[0], &nodes[1]).await.unwrap();
        let mut seen = [false; 2];
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let counts =
                [0, 1].map(|n: usize| nodes[n].agents(&AgentFilter::default()).agents.len());
            seen = [seen[0] || counts[0] == 1, seen[1] || counts[1] == 1];
            if seen == [true; 2] && counts == [0; 2] {
                break;
            }
            assert!(Instant::now() < until, "{seen:?} {counts:?}");
            // It is there until both know it, and silent then.
            if seen != [true; 2] {
                let _ = agent.beat(&nodes[0], &nodes[1]).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for node in &nodes {
            node.close().await;
        }
    }
}

/// Beats of all agents, each at any node, until `done`.
async fn beat_until(
    agents: &mut [Simulated],
    nodes: &[Arc<Fleet>],
    what: &str,
    mut done: impl FnMut(&[Simulated]) -> bool,
) {
    let mut rng = Rng::from_seed(5);
    let until = Instant::now() + Duration::from_secs(60);
    while !done(agents) {
        for agent in &mut *agents {
            let mut any = || rng.below(nodes.len() as u64) as usize;
            let (one, other) = (any(), any());
            // Who is told to come again does so.
            match agent.beat(&nodes[one], &nodes[other]).await {
                Ok(()) | Err(FleetError::NotStored) => {}
                Err(error) => panic!("{}", report(&error)),
            }
        }
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn steered_rollout(url: Option<String>, count: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(node(folder.path(), url.as_deref()).await);
    }
    let (first, last) = (nodes[0].clone(), nodes[count - 1].clone());
    let mut rng = Rng::from_seed(3);
    let mut agents: Vec<Simulated> = (0..40).map(Simulated::new).collect();
    let publish = async |turn: u32, deploys: bool| {
        let text = Bytes::from(format!("{FLOW}# {turn}\n"));
        first.publish("edge", text, deploys).await.unwrap().flow_id
    };
    let old = publish(0, true).await;
    converge(&mut agents, &nodes, &old, &mut rng).await;

    // A flow that most cannot take halts, and goes back everywhere by one call.
    let bad = publish(1, false).await;
    for agent in agents.iter_mut().step_by(2) {
        agent.cannot.insert(bad.clone());
    }
    let plan = Plan {
        batch_agents: 8,
        batch_interval: Duration::ZERO,
        canary_percent: 10,
        failures_percent: 20,
    };
    let rollout = first.begin_rollout("edge", &bad, plan).await.unwrap();
    let state = |id: &str| {
        last.rollout(id)
            .map(|rollout| rollout.state)
            .unwrap_or("unknown")
    };
    beat_until(&mut agents, &nodes, "it halts", |_| {
        state(&rollout.id) == "halted"
    })
    .await;
    let shown = last.rollout(&rollout.id).unwrap();
    let running = agents
        .iter()
        .filter(|agent| agent.flow.as_ref() == Some(&bad))
        .count();
    assert!(running < 30 && shown.progress.failed > 0, "{shown:?}");
    let back = last
        .steer_rollout(&rollout.id, Wish::RollBack)
        .await
        .unwrap();
    assert_eq!(back.state, "rolled_back");
    let all_run = |flow: String| {
        move |agents: &[Simulated]| {
            agents
                .iter()
                .all(|agent| agent.flow.as_ref() == Some(&flow) && agent.answers.is_empty())
        }
    };
    beat_until(&mut agents, &nodes, "all go back", all_run(old.clone())).await;

    // A good one goes on to its end, by itself, paused once on the way.
    let good = publish(2, false).await;
    let plan = Plan {
        canary_percent: 0,
        ..plan
    };
    let rollout = last.begin_rollout("edge", &good, plan).await.unwrap();
    let second = last.begin_rollout("edge", &bad, plan).await;
    assert!(second.is_err(), "one at a time");
    last.steer_rollout(&rollout.id, Wish::Pause).await.unwrap();
    assert!(
        last.steer_rollout(&rollout.id, Wish::Pause).await.is_err(),
        "it is paused"
    );
    last.steer_rollout(&rollout.id, Wish::Resume).await.unwrap();
    beat_until(&mut agents, &nodes, "all get it", all_run(good.clone())).await;
    beat_until(&mut agents, &nodes, "it is done", |_| {
        state(&rollout.id) == "done"
    })
    .await;
    for agent in &agents {
        for (flow, ids) in &agent.ids {
            let times = if *flow == old { 2 } else { 1 };
            assert!(ids.len() <= times, "{}: {flow} under {ids:?}", agent.id);
        }
    }
    let filter = EventFilter {
        limit: 1_000,
        ..EventFilter::default()
    };
    // Events are written behind.
    let until = Instant::now() + Duration::from_secs(15);
    let events = loop {
        let events = first.events(&filter).await.unwrap();
        if events.iter().any(|event| event.kind == "rollout-done") || Instant::now() > until {
            break events;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let count_of = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!(
        count_of("agent-registered"),
        40,
        "each once, on whatever nodes"
    );
    assert_eq!(
        (count_of("rollout-halted"), count_of("rollout-done")),
        (1, 1)
    );
    assert!(count_of("operation-failed") > 0);

    // A flow that is published while another one is rolled out ends that.
    let plan = Plan {
        batch_agents: 1,
        batch_interval: Duration::from_secs(3_600),
        ..plan
    };
    let slow = publish(3, false).await;
    let rollout = first.begin_rollout("edge", &slow, plan).await.unwrap();
    publish(4, true).await;
    beat_until(&mut agents, &nodes, "it has ended", |_| {
        state(&rollout.id) == "aborted"
    })
    .await;
    let shown = last.rollout(&rollout.id).unwrap();
    assert_eq!(shown.reason, "its class got another flow");
    for node in &nodes {
        node.close().await;
    }
}

#[tokio::test]
async fn a_rollout_is_steered_on_sqlite() {
    Box::pin(steered_rollout(None, 1)).await;
}

#[tokio::test]
async fn a_rollout_is_steered_from_any_node_on_postgres() {
    Box::pin(steered_rollout(Some(postgres().new_database().await), 3)).await;
}

#[tokio::test]
async fn a_rollout_is_steered_from_any_node_on_mariadb() {
    Box::pin(steered_rollout(Some(mariadb().new_database().await), 3)).await;
}

/// A certificate that all nodes show is one, and so is one that an agent shows to each of them.
async fn certificates_are_told_by_one_node(url: String) {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        let own = folder.path().join(name);
        std::fs::create_dir(&own).unwrap();
        nodes.push(node(&own, Some(&url)).await);
    }
    let until = base::Clock::now(&SystemClock) + Duration::from_secs(5 * 24 * 3600);
    let facts = access::CertificateFacts {
        not_after: Some(until),
        mark: 7,
    };
    let mut written = Vec::new();
    for node in &nodes {
        node.watch_certificates(Box::new(move || vec![("fleet", facts)]));
        let reached = Reached {
            certificate: Some(crate::expiry::ShownCertificate {
                mark: 9,
                until: Some(until),
            }),
            ..reached()
        };
        let heartbeat = Heartbeat {
            agent_info: Some(Simulated::new(1).info(false)),
            ..Heartbeat::default()
        };
        let text = heartbeat.to_vec().unwrap();
        node.heartbeat(heartbeat, &text, &reached).await.unwrap();
        node.inner.look_at_certificates();
        node.inner.flush().await.unwrap();
        let filter = EventFilter {
            kind: Some("certificate-ending".to_owned()),
            limit: 100,
            ..EventFilter::default()
        };
        written.push(node.events(&filter).await.unwrap().len());
    }
    assert_eq!(written, [2, 2], "the agent's and our own, once");
    for node in nodes {
        node.close().await;
    }
}

#[tokio::test]
async fn certificates_are_told_by_one_node_on_postgres() {
    certificates_are_told_by_one_node(postgres().new_database().await).await;
}

#[tokio::test]
async fn certificates_are_told_by_one_node_on_mariadb() {
    certificates_are_told_by_one_node(mariadb().new_database().await).await;
}
