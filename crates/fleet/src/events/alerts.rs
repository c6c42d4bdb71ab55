//! Alerts: what somebody is to be told at once goes to the log and, where one is set, to a webhook.
//!
//! The webhook gets `{"alerts": [{"id", "at_ms", "level", "kind", "class", "agent_id", "message"}]}` by
//! POST and answers with 2xx; otherwise it is tried again, with growing waits. Alerts wait in the
//! database (`store::alerts`), where any node may take them: so they outlast the node that saw what
//! they tell, and each is told by one. What there is no room for, or is not taken for a day, is dropped
//! and counted.
//!
//! A refusal may be for one alert alone, or the webhook is away. So what was refused is put off by how
//! often it was, and goes alone from then on; new ones go one by one, and more at once again as they are
//! taken ([`Pace`]). Two refusals in a row make a pause, which grows until something is taken. New
//! alerts cut it short unless such were refused as well: one that is never taken holds up no others,
//! and a webhook that is away is not called for each alert.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use serde_json::{Value, json};
use sql::SqlError;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::EventView;
use crate::fleet::Inner;
use crate::limits;
use crate::store::{ClaimedAlerts, Noted};

/// Where alerts go, and what wakes who sends them.
#[derive(Debug)]
pub struct Alerts {
    webhook: Option<String>,
    wanted: Notify,
}

impl Alerts {
    /// Alerts for `webhook`.
    pub fn new(webhook: Option<String>) -> Alerts {
        Alerts {
            webhook,
            wanted: Notify::new(),
        }
    }

    /// Tells of alerts in the log, and has those sent that there was room for.
    pub fn noted(&self, noted: &Noted) {
        for event in noted.new.iter().chain(&noted.over) {
            log(&event.view());
        }
        count("dropped", noted.over.len() as u64);
        if !noted.new.is_empty() {
            self.wanted.notify_one();
        }
    }

    /// Counts those that waited for too long.
    pub fn gave_up(&self, alerts: u64) {
        count("expired", alerts);
    }
}

/// Runs until `stop`.
pub async fn run(fleet: Arc<Inner>, stop: CancellationToken) {
    let client = fleet.alerts.webhook.is_some().then(client);
    let webhook = match (&fleet.alerts.webhook, &client) {
        (Some(address), Some(client)) => Some((address.as_str(), client)),
        _ => None,
    };
    let mut pace = Pace::new();
    while !stop.is_cancelled() {
        let (wait, may_be_cut_short) = match fleet.send_alerts(webhook, pace.most, &stop).await {
            Ok(Sent::Some) => {
                pace.taken();
                continue;
            }
            Ok(Sent::Refused { tries }) => (pace.refused(), tries > 0),
            Ok(Sent::Nothing) => (pace.look(), true),
            Err(error) => {
                tracing::debug!(error = %base::report(&error), "alerts wait for the database");
                (limits::ALERTS_INTERVAL, false)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = fleet.alerts.wanted.notified(), if may_be_cut_short => {}
            () = stop.cancelled() => {}
        }
    }
}

/// How many new alerts are sent at once, and how long after a refusal.
#[derive(Debug, PartialEq, Eq)]
struct Pace {
    most: usize,
    /// The wait after the next refusal; none before the first one since something was taken.
    pause: Duration,
}

impl Pace {
    fn new() -> Pace {
        Pace {
            most: limits::ALERTS_AT_ONCE,
            pause: Duration::ZERO,
        }
    }

    fn taken(&mut self) {
        self.most = (self.most * 2).min(limits::ALERTS_AT_ONCE);
        self.pause = Duration::ZERO;
    }

    /// Answers how long to wait now.
    fn refused(&mut self) -> Duration {
        self.most = 1;
        let wait = self.pause;
        self.pause = (wait * 2).clamp(limits::WEBHOOK_RETRY, limits::WEBHOOK_RETRY_MAX);
        wait
    }

    /// How long to wait when nothing is due: for what was refused, or what other nodes left.
    fn look(&self) -> Duration {
        match self.pause.is_zero() {
            true => limits::ALERTS_INTERVAL,
            false => self.pause.min(limits::ALERTS_INTERVAL),
        }
    }
}

/// How long an alert waits that was refused so many times before.
fn put_off(tries: i64) -> Duration {
    let doubled = 1_u32 << tries.clamp(0, 6);
    (limits::WEBHOOK_RETRY * doubled).min(limits::WEBHOOK_RETRY_MAX)
}

/// What became of alerts that were due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// There were none.
    Nothing,
    /// They are told; there may be more.
    Some,
    /// They wait for the webhook to take them, which refused them so many times before.
    Refused { tries: i64 },
}

type Client = Result<reqwest::Client, reqwest::Error>;

impl Inner {
    /// Sends alerts that are due, `most` in one call; has each wait for its time when they are not taken.
    async fn send_alerts(
        &self,
        webhook: Option<(&str, &Client)>,
        most: usize,
        stop: &CancellationToken,
    ) -> Result<Sent, SqlError> {
        let claimed = self.store.claim_alerts(limits::ALERT_CLAIM, most).await?;
        if claimed.alerts.is_empty() {
            return Ok(Sent::Nothing);
        }
        let Some((address, client)) = webhook else {
            self.store.told_alerts(&claimed).await?;
            return Ok(Sent::Some);
        };
        let tries = claimed.alerts.iter().map(|alert| alert.tries).max();
        let tries = tries.unwrap_or_default();
        let events: Vec<&EventView> = claimed.alerts.iter().map(|alert| &alert.event).collect();
        let body = json!({ "alerts": events });
        let sent = tokio::select! {
            sent = send(client, address, &body) => sent,
            // Whether it was taken is not known: the claim stands, and ends by itself.
            () = stopped_for(stop, limits::WEBHOOK_STOP_WAIT) => return Ok(Sent::Refused { tries }),
        };
        let alerts = events.len() as u64;
        if let Err(why) = sent {
            tracing::warn!(
                why,
                alerts,
                "the alerts' webhook did not take what it was told"
            );
            count("refused", alerts);
            let wait = put_off(tries);
            self.store.put_alerts_off(&claimed, wait).await?;
            return Ok(Sent::Refused { tries });
        }
        count("sent", alerts);
        self.note_told(&claimed, stop).await?;
        Ok(Sent::Some)
    }

    /// Notes that alerts are told, if it can be before others take them for not told.
    async fn note_told(
        &self,
        claimed: &ClaimedAlerts,
        stop: &CancellationToken,
    ) -> Result<(), SqlError> {
        let until = tokio::time::Instant::now() + limits::ALERT_CLAIM - limits::WEBHOOK_WAIT;
        loop {
            match self.store.told_alerts(claimed).await {
                Err(_) if tokio::time::Instant::now() < until && !stop.is_cancelled() => {
                    tokio::time::sleep(limits::WRITE_RETRY).await;
                }
                done => return done,
            }
        }
    }
}

/// Sends once; why not, where it is not taken.
async fn send(client: &Client, webhook: &str, body: &Value) -> Result<(), String> {
    let client = client.as_ref().map_err(|error| base::report(error))?;
    match client.post(webhook).json(body).send().await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(format!("it answers {}", answer.status())),
        // The address may hold a token.
        Err(error) => Err(base::report(&error.without_url())),
    }
}

async fn stopped_for(stop: &CancellationToken, wait: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(wait).await;
}

fn client() -> Client {
    // The client asks for a provider; who came first has set the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(limits::WEBHOOK_WAIT);
    client.connect_timeout(Duration::from_secs(5)).build()
}

fn log(event: &EventView) {
    tracing::warn!(
        kind = event.kind,
        agent = event.agent_id,
        class = event.class,
        "alert: {}",
        event.message
    );
}

fn count(result: &'static str, alerts: u64) {
    counter!("thalweg_fleet_alerts_total", "result" => result).increment(alerts);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_in_a_row_make_growing_pauses_until_something_is_taken() {
        let seconds = Duration::from_secs;
        let mut pace = Pace::new();
        assert_eq!(pace.look(), limits::ALERTS_INTERVAL);
        let waits: Vec<Duration> = (0..9).map(|_| pace.refused()).collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60].map(seconds));
        assert_eq!((pace.most, pace.look()), (1, limits::ALERTS_INTERVAL));
        let mut sizes = Vec::new();
        for _ in 0..8 {
            sizes.push(pace.most);
            pace.taken();
        }
        assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64, limits::ALERTS_AT_ONCE]);
        assert_eq!(pace, Pace::new());
        pace.refused();
        assert_eq!(pace.look(), seconds(1), "what was refused is due soon");
    }

    #[test]
    fn an_alert_is_put_off_by_how_often_it_was_refused() {
        let waits = [0, 1, 2, 5, 6, 7, i64::MAX].map(|tries| put_off(tries).as_secs());
        assert_eq!(waits, [1, 2, 4, 32, 60, 60, 60]);
    }
}
