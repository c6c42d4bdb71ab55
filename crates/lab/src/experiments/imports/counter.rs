//! People at the counter: twenty users who check records out and in, four times a second each, at
//! fixed moments whatever came of the ones before. Latencies are from the intended moment.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::json;
use tokio::sync::oneshot;

use super::bench::{Bench, all, answer, client};
use super::books;
use crate::experiment::{LabError, runtime};
use crate::stats::{quantile, sorted};

impl Bench {
    /// Imports what is checked out; without it nobody can be served.
    pub async fn stock(&self) -> Result<(), LabError> {
        let file = books::generated(0, USERS * RECORDS_EACH);
        let id = self.send("tenant=t1&topic=first", file).await?;
        self.ended(&id, Instant::now()).await?;
        // What the index still had to do would be others' work beside the counter.
        self.indexed().await
    }

    /// Serves the counter for a while.
    pub async fn circulate(&self, length: Duration) -> Result<Served, LabError> {
        self.circulate_beside(async {
            tokio::time::sleep(length).await;
            Ok(())
        })
        .await
    }

    /// Serves the counter as long as `work` goes on.
    pub async fn circulate_beside(
        &self,
        work: impl Future<Output = Result<(), LabError>>,
    ) -> Result<Served, LabError> {
        let url = self.url.clone();
        let (over, is_over) = oneshot::channel();
        // On a thread of its own, so that nobody waits for what the lab does beside.
        let counter = std::thread::spawn(move || runtime()?.block_on(serve(&url, is_over)));
        let worked = work.await;
        drop(over);
        let served = counter.join();
        worked?;
        let broke = |_| LabError::Failed("the counter broke off".to_owned());
        Ok(Served(served.map_err(broke)??))
    }
}

/// Operations at the counter: when each was meant to begin, and what it took, in seconds.
pub struct Served(Vec<(f64, f64)>);

impl Served {
    /// The 95th percentile in seconds.
    pub fn p95(&self) -> Result<f64, LabError> {
        let taken: Vec<f64> = self.0.iter().map(|(_, taken)| *taken).collect();
        quantile(&sorted(&taken), 0.95)
            .ok_or_else(|| LabError::Failed("nobody was served".to_owned()))
    }

    /// Those that were meant to begin after this time.
    pub fn since(mut self, from: Duration) -> Served {
        self.0.retain(|(meant, _)| *meant >= from.as_secs_f64());
        self
    }

    /// What each took in milliseconds, over the time.
    pub fn points(self) -> Vec<(f64, f64)> {
        let points = self.0.into_iter();
        points.map(|(at, taken)| (at, taken * 1e3)).collect()
    }
}

/// Checks records out and in until it is over; answers as [`Served`].
async fn serve(url: &str, is_over: oneshot::Receiver<()>) -> Result<Vec<(f64, f64)>, LabError> {
    let client = client()?;
    let begun = Instant::now();
    let latencies = Mutex::new(Vec::new());
    let users = all((0..USERS).map(|number| {
        let user = User {
            number,
            url,
            client: &client,
            latencies: &latencies,
        };
        user.come(begun)
    }));
    tokio::select! {
        _ = is_over => {}
        failed = users => drop(failed?),
    }
    Ok(latencies.into_inner().unwrap_or_default())
}

/// Somebody at the counter.
struct User<'a> {
    number: usize,
    url: &'a str,
    client: &'a Client,
    latencies: &'a Mutex<Vec<(f64, f64)>>,
}

impl User<'_> {
    /// Takes a record and brings it back, for ever.
    async fn come(self, begun: Instant) -> Result<(), LabError> {
        for turn in 0_usize.. {
            let at = begun + PACE.mul_f64(turn as f64 + self.number as f64 / USERS as f64);
            tokio::time::sleep_until(at.into()).await;
            let record = books::id(self.number * RECORDS_EACH + turn / 2 % RECORDS_EACH);
            let url = format!("{}/records/t1/{record}", self.url);
            let request = if turn % 2 == 0 {
                let holder = json!({"holder": format!("user {}", self.number)});
                self.client.post(format!("{url}/check-out")).json(&holder)
            } else {
                self.client.post(format!("{url}/check-in"))
            };
            let served = answer("check a record out or in", request).await;
            // Somebody who began in an earlier round may have it: that is an answer too.
            if let Err(error) = served
                && !error.to_string().contains("409")
            {
                return Err(error);
            }
            if let Ok(mut latencies) = self.latencies.lock() {
                let meant = at.duration_since(begun).as_secs_f64();
                latencies.push((meant, at.elapsed().as_secs_f64()));
            }
        }
        Ok(())
    }
}

const USERS: usize = 20;
const RECORDS_EACH: usize = 50;
const PACE: Duration = Duration::from_millis(250);
