//! Alerts: what somebody is to be told at once goes to the log and, where one is set, to a webhook.
//!
//! The webhook gets `{"alerts": [{"at_ms", "level", "kind", "class", "agent_id", "message"}]}` by POST
//! and answers with 2xx; otherwise it is tried again a few times, with growing waits. What is told
//! faster than it is taken waits in a bounded queue; what is over is dropped and counted.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Event;
use crate::limits;

/// Where alerts go.
#[derive(Debug)]
pub struct Alerts {
    queue: mpsc::Sender<Event>,
}

/// Takes alerts to the webhook.
#[derive(Debug)]
pub struct Courier {
    queue: mpsc::Receiver<Event>,
    webhook: Option<String>,
}

impl Alerts {
    /// Alerts, and what takes them to `webhook`.
    pub fn new(webhook: Option<String>) -> (Alerts, Courier) {
        let (sender, receiver) = mpsc::channel(limits::ALERTS_QUEUED_MAX);
        let courier = Courier {
            queue: receiver,
            webhook,
        };
        (Alerts { queue: sender }, courier)
    }

    /// Tells of an event.
    pub fn raise(&self, event: &Event) {
        tracing::warn!(
            kind = event.kind.as_str(),
            agent = event.agent.as_deref(),
            class = event.class.as_deref(),
            "alert: {}",
            event.message
        );
        if self.queue.try_send(event.clone()).is_err() {
            counter!("thalweg_fleet_alerts_total", "result" => "dropped").increment(1);
        }
    }
}

/// Runs until `stop`.
pub async fn run(mut courier: Courier, stop: CancellationToken) {
    let client = courier.webhook.is_some().then(client);
    let mut events = Vec::new();
    loop {
        tokio::select! {
            count = courier.queue.recv_many(&mut events, limits::ALERTS_AT_ONCE) => {
                if count == 0 {
                    return;
                }
            }
            () = stop.cancelled() => return,
        }
        let told = std::mem::take(&mut events);
        let (Some(webhook), Some(Ok(client))) = (&courier.webhook, &client) else {
            continue;
        };
        let count = told.len() as u64;
        let body = json!({"alerts": told.iter().map(shown).collect::<Vec<_>>()});
        let result = tokio::select! {
            sent = send(client, webhook, &body) => sent,
            () = stop.cancelled() => return,
        };
        counter!("thalweg_fleet_alerts_total", "result" => result).increment(count);
    }
}

/// Sends until it is taken or there is no point any more.
async fn send(client: &reqwest::Client, webhook: &str, body: &Value) -> &'static str {
    let mut wait = limits::WEBHOOK_RETRY;
    for _ in 0..limits::WEBHOOK_TRIES {
        let why = match client.post(webhook).json(body).send().await {
            Ok(answer) if answer.status().is_success() => return "sent",
            Ok(answer) => format!("it answers {}", answer.status()),
            // The address may hold a token.
            Err(error) => base::report(&error.without_url()),
        };
        tracing::warn!(why, "the alerts' webhook did not take what it was told");
        tokio::time::sleep(wait).await;
        wait *= 2;
    }
    "failed"
}

fn client() -> Result<reqwest::Client, reqwest::Error> {
    // The client asks for a provider; who came first has set the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(limits::WEBHOOK_WAIT);
    client.connect_timeout(Duration::from_secs(5)).build()
}

fn shown(event: &Event) -> Value {
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    json!({
        "at_ms": event.at.0,
        "level": event.level.as_str(),
        "kind": event.kind.as_str(),
        "class": text(&event.class),
        "agent_id": text(&event.agent),
        "message": event.message,
    })
}
