//! kill -9 of fleet nodes and of their database while flows are rolled out: every agent gets every
//! flow under one id, whichever node it reaches, and nothing is done that nobody saw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::Rng;
use serde_json::{Value, json};
use sql::Dialect;
use sql::test_servers::Server;
use tokio::task::JoinSet;

use crate::harness::{Up, folder, http_client, number_of};

/// Agents; more by hand with `THALWEG_TEST_FLEET_AGENTS=5000`.
const AGENTS: u64 = 300;

/// Kills; more by hand with `THALWEG_TEST_FLEET_KILLS=50`.
const KILLS: u64 = 6;

/// How often an agent calls, milliseconds; slower by hand, for many agents, with
/// `THALWEG_TEST_FLEET_BEAT_MS=8000`.
const BEAT_MS: u64 = 400;

/// How long a roll-out may take once nobody is killed any more: some time, and some beats for each of
/// its batches.
fn patience() -> Duration {
    let beat_ms = number_of("THALWEG_TEST_FLEET_BEAT_MS", BEAT_MS);
    Duration::from_secs(120) + Duration::from_millis(60 * beat_ms)
}

/// What all agents of a test look at, and what they tell.
struct Fleet {
    /// Where the nodes are.
    nodes: Vec<String>,
    client: reqwest::Client,
    stop: AtomicBool,
    /// The flow that each agent runs.
    running: Mutex<BTreeMap<u64, String>>,
    /// The ids under which each agent was given each flow.
    ids: Mutex<BTreeMap<(u64, String), BTreeSet<String>>>,
    beats: AtomicU64,
    refused: AtomicU64,
}

impl Fleet {
    fn any_node(&self, rng: &mut Rng) -> &str {
        &self.nodes[rng.below(self.nodes.len() as u64) as usize]
    }

    async fn post(&self, url: String, body: &Value) -> Option<Value> {
        let sent = self
            .client
            .post(url)
            .json(body)
            .timeout(Duration::from_secs(5));
        let answer = sent.send().await.ok()?;
        let is_ok = answer.status().is_success();
        let body: Value = answer.json().await.ok()?;
        // A Java agent obeys a body whatever its status is.
        assert!(is_ok || body.get("requestedOperations").is_none(), "{body}");
        is_ok.then_some(body)
    }

    /// An agent: calls any node, does what it is told, and answers to any node; some answers are
    /// lost for good.
    async fn agent(self: Arc<Self>, number: u64) {
        let mut rng = Rng::from_seed(number);
        let id = format!("agent-{number:05}");
        let mut flow: Option<String> = None;
        let beat_ms = number_of("THALWEG_TEST_FLEET_BEAT_MS", BEAT_MS);
        let info = json!({"identifier": id, "agentClass": "edge", "agentManifestHash": "h"});
        while !self.stop.load(Ordering::Relaxed) {
            let spread = rng.below(beat_ms) / 2;
            tokio::time::sleep(Duration::from_millis(beat_ms - spread)).await;
            let beat = json!({"agentInfo": info, "flowInfo": {"flowId": flow}});
            let url = format!("{}/heartbeat", self.any_node(&mut rng));
            let Some(answer) = self.post(url, &beat).await else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            self.beats.fetch_add(1, Ordering::Relaxed);
            for operation in answer["requestedOperations"].as_array().unwrap() {
                let given = operation["identifier"].as_str().unwrap().to_owned();
                let mut ack = json!({"operationId": given,
                    "operationState": {"state": "FULLY_APPLIED"}});
                if operation["operation"] == "DESCRIBE" {
                    ack["agentInfo"] = info.clone();
                    ack["agentInfo"]["agentManifest"] = json!({"agentType": "minifi-java",
                        "version": "1.18.0", "bundles": []});
                } else {
                    let wanted = operation["args"]["flowId"].as_str().unwrap().to_owned();
                    let key = (number, wanted.clone());
                    self.ids
                        .lock()
                        .unwrap()
                        .entry(key)
                        .or_default()
                        .insert(given);
                    self.running.lock().unwrap().insert(number, wanted.clone());
                    flow = Some(wanted);
                }
                if !rng.one_in(10) {
                    let url = format!("{}/acknowledge", self.any_node(&mut rng));
                    self.post(url, &ack).await;
                }
            }
        }
    }

    /// Publishes a flow: one of odd number to all at once, one of even number by a roll-out in
    /// batches.
    async fn publish(&self, number: u64) -> String {
        let text = format!("MiNiFi Config Version: 3\nProcessors: []\n# {number}\n");
        let by_steps = number.is_multiple_of(2);
        let path = format!("classes/edge/flows?deploy={}", !by_steps);
        let mut flow = None;
        self.until(&format!("a flow is published, {path}"), async |node| {
            let answer = self.manage(node, &path, &text).await?;
            flow = Some(answer["flow_id"].as_str().unwrap().to_owned());
            Some(())
        })
        .await;
        let flow = flow.unwrap();
        if by_steps {
            let batch = number_of("THALWEG_TEST_FLEET_AGENTS", AGENTS) / 8;
            let plan = json!({"flow_id": flow, "batch_agents": batch, "batch_interval": "200ms",
                "canary_percent": 5, "failures_percent": 50})
            .to_string();
            self.until("a roll-out begins", async |node| {
                let rollouts = "classes/edge/rollouts";
                if self.manage(node, rollouts, &plan).await.is_some() {
                    return Some(());
                }
                // The answer of a node that was killed may be lost, and the roll-out is there.
                let url = format!("{node}/api/v1/{rollouts}");
                let shown = self.client.get(url).send().await.ok()?;
                let shown: Value = shown.json().await.ok()?;
                let mut all = shown["rollouts"].as_array()?.iter();
                all.any(|rollout| rollout["flow_id"] == flow).then_some(())
            })
            .await;
        }
        flow
    }

    /// Asks one node after another until one does it.
    async fn until(&self, what: &str, mut ask: impl AsyncFnMut(&str) -> Option<()>) {
        let until = Instant::now() + patience();
        for turn in 0.. {
            let node = self.nodes[turn % self.nodes.len()].replace("/c2", "");
            if ask(&node).await.is_some() {
                return;
            }
            assert!(
                Instant::now() < until,
                "not within {:?}: {what}",
                patience()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What a node answers to a request that it does.
    async fn manage(&self, node: &str, path: &str, body: &str) -> Option<Value> {
        let sent = self.client.post(format!("{node}/api/v1/{path}"));
        let sent = sent.body(body.to_owned()).send().await.ok()?;
        match sent.status().is_success() {
            true => sent.json().await.ok(),
            false => None,
        }
    }

    fn running_count(&self, flow: &str) -> u64 {
        let running = self.running.lock().unwrap();
        running.values().filter(|running| *running == flow).count() as u64
    }
}

fn arguments(database: Option<&str>) -> Vec<String> {
    let mut arguments = vec![
        "--role=fleet".to_owned(),
        "--set=fleet.resend_after=2s".to_owned(),
        "--set=fleet.describe_timeout=3s".to_owned(),
        "--set=fleet.write_behind=100ms".to_owned(),
    ];
    arguments.extend(database.map(|url| format!("--set=fleet.database={url}")));
    arguments
}

/// The whole experiment on `count` nodes.
async fn rollouts_under_kills(dialect: Dialect, count: usize) {
    let agents = number_of("THALWEG_TEST_FLEET_AGENTS", AGENTS);
    let kills = number_of("THALWEG_TEST_FLEET_KILLS", KILLS);
    let dir = folder();
    let mut server = dialect.is_shared().then(|| Server::start(dialect));
    let database = match &server {
        Some(server) => Some(server.new_database().await),
        None => None,
    };
    let arguments = arguments(database.as_deref());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut nodes: Vec<Up> = (0..count)
        .map(|n| Up::start_with(&dir.path().join(format!("node-{n}")), &arguments))
        .collect();
    let fleet = Arc::new(Fleet {
        nodes: nodes.iter().map(|up| up.url("fleet", "/c2")).collect(),
        client: http_client(),
        stop: AtomicBool::new(false),
        running: Mutex::default(),
        ids: Mutex::default(),
        beats: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    });
    let mut tasks: JoinSet<()> = (0..agents).map(|n| fleet.clone().agent(n)).collect();
    let mut rng = Rng::from_entropy();
    let mut flows = 1;
    let mut flow = fleet.publish(flows).await;
    until_all_run(&fleet, &nodes[0], agents, &flow).await;
    // The first kill meets a roll-out that has hardly begun.
    flows += 1;
    flow = fleet.publish(flows).await;
    for kill in 0..kills {
        tokio::time::sleep(Duration::from_millis(rng.below(1_200))).await;
        match &mut server {
            Some(server) if kill % 2 == 1 => {
                server.kill();
                tokio::time::sleep(Duration::from_millis(rng.below(800))).await;
                server.start_again();
            }
            _ => {
                let index = rng.below(count as u64) as usize;
                nodes[index].kill();
                tokio::time::sleep(Duration::from_millis(rng.below(300))).await;
                let again = nodes[index].start_again(&arguments);
                nodes[index] = again;
            }
        }
        if fleet.running_count(&flow) == agents {
            flows += 1;
            flow = fleet.publish(flows).await;
        }
    }
    until_all_run(&fleet, &nodes[0], agents, &flow).await;
    fleet.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    for ((agent, flow), ids) in &*fleet.ids.lock().unwrap() {
        assert_eq!(
            ids.len(),
            1,
            "agent {agent} was given flow {flow} under {ids:?}"
        );
    }
    // What is done was answered, or seen.
    for agent in (0..agents).step_by(17) {
        let shown = nodes[0].get(&format!("/api/v1/operations?agent=agent-{agent:05}"));
        for operation in shown["operations"].as_array().unwrap() {
            let seen = operation["details"]
                .as_str()
                .unwrap()
                .contains("was seen running");
            assert!(
                operation["state"] != "done" || operation["acknowledged"] == true || seen,
                "{operation}"
            );
        }
    }
    let (beats, refused) = (&fleet.beats, &fleet.refused);
    println!(
        "{dialect:?}: {kills} kills, {flows} flows, {} heartbeats answered, {} not",
        beats.load(Ordering::Relaxed),
        refused.load(Ordering::Relaxed)
    );
}

/// Waits until every agent runs a flow, and the node knows it.
async fn until_all_run(fleet: &Fleet, node: &Up, agents: u64, flow: &str) {
    let until = Instant::now() + patience();
    loop {
        let running = fleet.running_count(flow);
        let class = node.get("/api/v1/classes/edge");
        if running == agents && class["agents_deployed"] == agents && class["agents"] == agents {
            break;
        }
        assert!(
            Instant::now() < until,
            "{running} of {agents} agents run the flow; {class}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_agent_gets_its_flow_under_one_id_through_kills_on_sqlite() {
    rollouts_under_kills(Dialect::Sqlite, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_agent_gets_its_flow_under_one_id_through_kills_on_postgres() {
    rollouts_under_kills(Dialect::Postgres, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_agent_gets_its_flow_under_one_id_through_kills_on_mariadb() {
    rollouts_under_kills(Dialect::MySql, 2).await;
}

/// What a heartbeat of an agent with a flow brings; the first answer counts, there is no second try.
async fn beat(client: &reqwest::Client, node: &Up, id: &str, flow: Option<&str>) -> Vec<Value> {
    let beat = json!({
        "agentInfo": {"identifier": id, "agentClass": "edge", "agentManifestHash": "h",
            "agentManifest": {"agentType": "minifi-java", "version": "1.18.0", "bundles": []}},
        "flowInfo": {"flowId": flow},
    });
    let sent = client.post(node.url("fleet", "/c2/heartbeat")).json(&beat);
    let answer = sent.timeout(Duration::from_secs(5)).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{id}");
    let answer: Value = answer.json().await.unwrap();
    answer["requestedOperations"].as_array().unwrap().clone()
}

/// Agents reach one node until it is killed: whatever they were about, each one's next beat is
/// answered by the other, and what was handed out to them keeps its id.
async fn a_beat_is_missed_at_most(dialect: Dialect) {
    let (dir, client) = (folder(), http_client());
    let server = Server::start(dialect);
    let arguments = arguments(Some(&server.new_database().await));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [mut first, second] =
        ["first", "second"].map(|name| Up::start_with(&dir.path().join(name), &arguments));
    let agents: Vec<String> = (0..100).map(|n| format!("agent-{n:03}")).collect();
    for agent in &agents {
        beat(&client, &first, agent, None).await;
    }
    let text = "MiNiFi Config Version: 3\nProcessors: []\n";
    let url = first.url("fleet", "/api/v1/classes/edge/flows");
    let published = client.post(url).body(text).send().await.unwrap();
    assert!(published.status().is_success());
    // Half of them have their operation, and say nothing of it; the others have never called again.
    let mut ids = BTreeMap::new();
    let until = Instant::now() + patience();
    while ids.len() < agents.len() / 2 {
        for agent in &agents[..agents.len() / 2] {
            let operations = beat(&client, &first, agent, None).await;
            if let Some(operation) = operations.iter().find(|one| one["operation"] == "UPDATE") {
                ids.insert(agent.clone(), operation["identifier"].clone());
            }
        }
        assert!(Instant::now() < until, "{} were handed out", ids.len());
    }
    first.kill();
    for agent in &agents {
        beat(&client, &second, agent, None).await;
    }
    let mut done = BTreeSet::new();
    let until = Instant::now() + patience();
    while done.len() < agents.len() {
        for agent in agents
            .iter()
            .filter(|agent| !done.contains(*agent))
            .collect::<Vec<_>>()
        {
            for operation in beat(&client, &second, agent, None).await {
                assert_eq!(operation["operation"], "UPDATE", "{operation}");
                let id = ids
                    .entry(agent.clone())
                    .or_insert(operation["identifier"].clone());
                assert_eq!(*id, operation["identifier"], "{agent}");
                let flow = operation["args"]["flowId"].as_str().unwrap();
                beat(&client, &second, agent, Some(flow)).await;
                done.insert(agent.clone());
            }
        }
        assert!(Instant::now() < until, "{} have their flow", done.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reached_a_killed_node_misses_a_beat_at_most_on_postgres() {
    a_beat_is_missed_at_most(Dialect::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reached_a_killed_node_misses_a_beat_at_most_on_mariadb() {
    a_beat_is_missed_at_most(Dialect::MySql).await;
}
