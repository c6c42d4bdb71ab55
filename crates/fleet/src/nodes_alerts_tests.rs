//! Alerts of a fleet of several nodes: each is told to the webhook once, by one node, and again while
//! the webhook does not take it, whichever node is there then.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::Value;

use super::*;
use crate::events::{Event, Kind};

/// A webhook that fails at first.
#[derive(Default)]
struct Webhook {
    fails: AtomicU32,
    refused: AtomicU32,
    /// It takes nothing with this message in it.
    never: Option<&'static str>,
    taken: Mutex<Vec<Value>>,
}

impl Webhook {
    async fn start(fails: u32) -> (Arc<Webhook>, String) {
        Webhook::serve(Webhook {
            fails: AtomicU32::new(fails),
            ..Webhook::default()
        })
        .await
    }

    async fn serve(webhook: Webhook) -> (Arc<Webhook>, String) {
        let webhook = Arc::new(webhook);
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
    let is_never = |alert: &Value| webhook.never.is_some_and(|never| alert["message"] == never);
    if told.iter().any(is_never) {
        webhook.refused.fetch_add(1, Ordering::Relaxed);
        return StatusCode::BAD_REQUEST;
    }
    webhook.taken.lock().unwrap().extend(told);
    StatusCode::NO_CONTENT
}

/// The id of the operation that an alert tells of.
fn operation_of(message: &str) -> String {
    let words = message.split([' ', ':']);
    let mut ids = words.filter(|word| uuid::Uuid::parse_str(word).is_ok());
    ids.next().unwrap().to_owned()
}

async fn alerting(folder: &Path, database: Option<&str>, webhook: &str) -> Arc<Fleet> {
    let config = FleetConfig {
        database: database.map(|url| url.to_owned().into()),
        alerts_webhook: Some(webhook.to_owned().into()),
        ..FleetConfig::default()
    };
    let opened = Fleet::open(folder, config, Arc::new(SystemClock)).await;
    opened.unwrap_or_else(|error| panic!("{}", report(&error)))
}

/// What a webhook refused while one node was there, the next node tells, and nobody tells it again.
async fn alerts_outlast_their_node(url: Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let (webhook, address) = Webhook::start(u32::MAX).await;
    let first = alerting(folder.path(), url.as_deref(), &address).await;
    let now = base::Clock::now(&SystemClock);
    let halted = Event::new(Kind::RolloutHalted, None, "too many failed".to_owned(), now);
    first.inner.registry.lock().tell(halted.clone());
    first.inner.flush().await.unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while webhook.refused.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < until, "the webhook is called");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // What is written after the last look waits as well.
    let missing = Event::new(Kind::AgentMissing, None, "silent for 90 s".to_owned(), now);
    first.inner.registry.lock().tell(missing);
    first.close().await;
    assert!(webhook.taken.lock().unwrap().is_empty());
    webhook.fails.store(0, Ordering::Relaxed);

    let second = alerting(folder.path(), url.as_deref(), &address).await;
    let all = || {
        let told = ["rollout-halted", "agent-missing"].map(|kind| webhook.told(kind).len());
        told.iter().sum::<usize>()
    };
    let until = Instant::now() + Duration::from_secs(60);
    while all() < 2 {
        assert!(Instant::now() < until, "the next node tells what waits");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // It is seen again, by a node that does not know.
    second.inner.registry.lock().tell(halted);
    second.inner.flush().await.unwrap();
    let claimed = second.inner.store.claim_alerts(Duration::ZERO, 1).await;
    assert_eq!(claimed.unwrap().alerts.len(), 0, "nothing waits");
    second.close().await;
    let told = webhook.taken.lock().unwrap().clone();
    let ids: BTreeSet<&str> = told.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!((told.len(), ids.len()), (2, 2), "{told:?}");
}

#[tokio::test]
async fn alerts_outlast_their_node_on_sqlite() {
    alerts_outlast_their_node(None).await;
}

#[tokio::test]
async fn alerts_outlast_their_node_on_postgres() {
    alerts_outlast_their_node(Some(postgres().new_database().await)).await;
}

#[tokio::test]
async fn alerts_outlast_their_node_on_mariadb() {
    alerts_outlast_their_node(Some(mariadb().new_database().await)).await;
}

#[tokio::test]
async fn an_alert_that_is_never_taken_holds_up_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let (webhook, address) = Webhook::serve(Webhook {
        never: Some("roll-out 50"),
        ..Webhook::default()
    })
    .await;
    let node = alerting(folder.path(), None, &address).await;
    let mut due = 0;
    let mut tell = async |numbers: std::ops::Range<usize>| {
        let now = base::Clock::now(&SystemClock);
        for number in numbers.clone() {
            let message = format!("roll-out {number}");
            let halted = Event::new(Kind::RolloutHalted, None, message, now);
            node.inner.registry.lock().tell(halted);
        }
        node.inner.flush().await.unwrap();
        due += numbers.len();
        let until = Instant::now() + Duration::from_secs(60);
        while webhook.told("rollout-halted").len() + 1 < due {
            assert!(Instant::now() < until, "all others are told");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // It is refused with others that are sent together.
    tell(0..250).await;
    let refused = webhook.refused.load(Ordering::Relaxed);
    let until = Instant::now() + Duration::from_secs(60);
    while webhook.refused.load(Ordering::Relaxed) < refused + 2 {
        assert!(Instant::now() < until, "it is tried again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tell(250..260).await;
    let told = webhook.told("rollout-halted");
    let each: BTreeSet<_> = told.iter().collect();
    assert_eq!((told.len(), each.len()), (259, 259), "each once");
    node.close().await;
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
    // Acknowledgements reach both nodes, some at one moment.
    let failed = webhook.told("operation-failed");
    let which: BTreeSet<_> = failed
        .iter()
        .map(|(_, message)| operation_of(message))
        .collect();
    assert!(
        !which.is_empty() && failed.len() == which.len(),
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
