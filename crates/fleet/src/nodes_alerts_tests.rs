//! Alerts of a fleet of several nodes: each is told to the webhook once, by one node, and again while
//! the webhook does not take it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::Value;

use super::*;

/// A webhook that fails at first.
#[derive(Default)]
struct Webhook {
    fails: AtomicU32,
    refused: AtomicU32,
    taken: Mutex<Vec<Value>>,
}

impl Webhook {
    async fn start(fails: u32) -> (Arc<Webhook>, String) {
        let webhook = Arc::new(Webhook {
            fails: AtomicU32::new(fails),
            ..Webhook::default()
        });
        let routes = Router::new()
            .route("/hook", post(take))
            .with_state(webhook.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (webhook, url)
    }

    /// The alerts of a kind: agent and message.
    fn told(&self, kind: &str) -> Vec<(Option<String>, String)> {
        let taken = self.taken.lock().unwrap();
        let of_kind = taken.iter().filter(|alert| alert["kind"] == kind);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        of_kind
            .map(|alert| (text(&alert["agent_id"]), text(&alert["message"]).unwrap()))
            .collect()
    }
}

async fn take(State(webhook): State<Arc<Webhook>>, Json(body): Json<Value>) -> StatusCode {
    let fails = webhook.fails.load(Ordering::Relaxed);
    if webhook.refused.load(Ordering::Relaxed) < fails {
        webhook.refused.fetch_add(1, Ordering::Relaxed);
        return StatusCode::BAD_GATEWAY;
    }
    let told = body["alerts"].as_array().unwrap().clone();
    webhook.taken.lock().unwrap().extend(told);
    StatusCode::NO_CONTENT
}

async fn alerts_are_told_by_one_node(url: String) {
    let folder = tempfile::tempdir().unwrap();
    let (webhook, address) = Webhook::start(1).await;
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let beats = base::HumanDuration(Duration::from_secs(2));
        let config = FleetConfig {
            database: Some(url.clone().into()),
            write_behind: base::HumanDuration(Duration::from_millis(100)),
            class_heartbeat_intervals: BTreeMap::from([("edge".to_owned(), beats)]),
            alerts_webhook: Some(address.clone().into()),
            ..FleetConfig::default()
        };
        let clock = Arc::new(SystemClock);
        nodes.push(Fleet::open(folder.path(), config, clock).await.unwrap());
    }
    let mut agents: Vec<Simulated> = (0..10).map(Simulated::new).collect();
    let text = |turn: u32| Bytes::from(format!("{FLOW}# {turn}\n"));
    let old = nodes[0]
        .publish("edge", text(0), true)
        .await
        .unwrap()
        .flow_id;
    converge(&mut agents, &nodes, &old, &mut Rng::from_seed(31)).await;

    // A roll-out that halts, and the failures that it halts for.
    let bad = nodes[0]
        .publish("edge", text(1), false)
        .await
        .unwrap()
        .flow_id;
    for agent in &mut agents {
        agent.cannot.insert(bad.clone());
    }
    let plan = Plan {
        batch_agents: 2,
        batch_interval: Duration::ZERO,
        canary_percent: 20,
        failures_percent: 10,
    };
    let rollout = nodes[1].begin_rollout("edge", &bad, plan).await.unwrap();
    beat_until(&mut agents, &nodes, "the halt is told", |_| {
        !webhook.told("rollout-halted").is_empty()
    })
    .await;
    assert_eq!(nodes[0].rollout(&rollout.id).unwrap().state, "halted");
    nodes[0]
        .steer_rollout(&rollout.id, Wish::Abort)
        .await
        .unwrap();

    // One falls silent, while the others go on.
    let silent = agents.pop().unwrap();
    // Of the others nothing is said: they are missing, too, when this machine stands still.
    let missing = || {
        let told = webhook.told("agent-missing").into_iter();
        told.filter(|(agent, _)| agent.as_deref() == Some(&*silent.id))
            .count()
    };
    beat_until(&mut agents, &nodes, "the silent one is told", |_| {
        missing() > 0
    })
    .await;
    // What the other node would tell, it would have told a few rounds of its own later.
    for node in &nodes {
        for _ in 0..3 {
            node.inner.read_feed(false).await.unwrap();
            node.inner.look(node.inner.lease.held().is_some());
        }
        node.close().await;
    }
    assert_eq!(missing(), 1);
    assert_eq!(webhook.told("rollout-halted").len(), 1);
    // Acknowledgements that reach both nodes at one moment are told by both.
    let failed = webhook.told("operation-failed");
    let who: BTreeSet<_> = failed.iter().collect();
    assert!(
        !who.is_empty() && failed.len() <= who.len() * nodes.len(),
        "{failed:?}"
    );
    assert_eq!(
        webhook.refused.load(Ordering::Relaxed),
        1,
        "the first call failed"
    );
}

#[tokio::test]
async fn alerts_are_told_by_one_node_on_postgres() {
    let url = postgres().new_database().await;
    Box::pin(alerts_are_told_by_one_node(url)).await;
}

#[tokio::test]
async fn alerts_are_told_by_one_node_on_mariadb() {
    let url = mariadb().new_database().await;
    Box::pin(alerts_are_told_by_one_node(url)).await;
}
