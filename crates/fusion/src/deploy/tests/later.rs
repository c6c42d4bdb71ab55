//! Desired state that cannot be followed at the moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value as Json, json};
use tokio::task::JoinHandle;

use super::{Yard, wait};
use crate::deploy::Node;

/// A server that takes rows, or says that it is busy.
struct Door {
    is_open: Arc<AtomicBool>,
    url: String,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Door {
    async fn shut() -> Door {
        let is_open = Arc::new(AtomicBool::new(false));
        let take = |State(is_open): State<Arc<AtomicBool>>| async move {
            match is_open.load(Ordering::SeqCst) {
                true => StatusCode::OK,
                false => StatusCode::SERVICE_UNAVAILABLE,
            }
        };
        let routes = Router::new()
            .route("/rows", post(take))
            .with_state(is_open.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/rows", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await });
        Door {
            is_open,
            url,
            serving,
        }
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }

    fn form(&self, columns: &str) -> Option<Json> {
        let text = format!("SELECT {columns} FROM mqtt.\"in\"");
        Some(json!({"text": text, "targets": [self.url]}))
    }
}

fn text_of(node: &Node) -> String {
    node.fusion().statement("desired.a").unwrap().text
}

#[tokio::test(flavor = "multi_thread")]
async fn desired_state_that_finds_a_sink_behind_is_followed_when_it_is_not() {
    let door = Door::shut().await;
    let yard = Yard::open(1, false).await;
    let answers = yard.hear("thalweg/answers/a/+");
    yard.desire("a", 1, json!({}), door.form("v"));
    wait("the first answer", || answers.count() == 1).await;
    yard.publish("in", b"{\"v\":1}", false);
    let node = &yard.nodes[0];
    wait("the row", || {
        node.fusion().statement("desired.a").unwrap().received_total == 1
    })
    .await;
    yard.desire("a", 2, json!({}), door.form("v + 2 AS v"));
    wait("the second answer", || answers.count() == 2).await;
    let (_, answer) = answers.last();
    assert_eq!(
        (&answer["generation"], &answer["status"]),
        (&json!(2), &json!(503)),
        "{answer}"
    );
    assert!(!text_of(node).contains("v + 2"), "the old form goes on");
    door.open();
    wait("the new form", || answers.count() == 3).await;
    let (_, answer) = answers.last();
    assert_eq!(
        (&answer["generation"], &answer["status"]),
        (&json!(2), &json!(200)),
        "{answer}"
    );
    assert!(text_of(node).contains("v + 2"));
    door.serving.abort();
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn desired_state_that_could_not_be_followed_counts_at_the_next_start() {
    let door = Door::shut().await;
    let mut yard = Yard::open(1, false).await;
    let answers = yard.hear("thalweg/answers/a/+");
    yard.desire("a", 1, json!({}), door.form("v"));
    wait("the first answer", || answers.count() == 1).await;
    yard.publish("in", b"{\"v\":1}", false);
    let row = || {
        let info = yard.nodes[0].fusion().statement("desired.a").unwrap();
        info.received_total == 1
    };
    wait("the row", row).await;
    yard.desire("a", 2, json!({}), door.form("v + 2 AS v"));
    wait("the second answer", || answers.count() == 2).await;
    assert_eq!(answers.last().1["status"], 503);
    let node = yard.nodes.remove(0);
    node.close().await;
    door.open();
    node.fusion().close().await;
    drop(node);
    let node = yard.node(0, false).await;
    yard.nodes.push(node);
    wait("the late answer", || answers.last().1["status"] == 200).await;
    assert_eq!(answers.last().1["generation"], 2);
    assert!(text_of(&yard.nodes[0]).contains("v + 2"));
    door.serving.abort();
    yard.close().await;
}
