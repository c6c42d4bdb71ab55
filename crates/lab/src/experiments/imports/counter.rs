//! People at the counter: twenty users who check records out and in, four times a second each, at
//! fixed moments whatever came of the ones before. Latencies are from the intended moment.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::json;

use super::bench::{Bench, all};
use super::books;
use crate::experiment::LabError;
use crate::stats::{quantile, sorted};

impl Bench {
    /// Imports what is checked out; without it nobody can be served.
    pub async fn stock(&self) -> Result<(), LabError> {
        let file = books::generated(0, USERS * RECORDS_EACH);
        let id = self.send("tenant=t1&topic=first", file).await?;
        self.ended(&id, Instant::now()).await?;
        Ok(())
    }

    /// Serves the counter for a while; answers the 95th percentile in seconds.
    pub async fn circulate(&self, length: Duration) -> Result<f64, LabError> {
        self.circulate_beside(async {
            tokio::time::sleep(length).await;
            Ok(())
        })
        .await
    }

    /// Serves the counter as long as `work` goes on; answers the 95th percentile in seconds.
    pub async fn circulate_beside(
        &self,
        work: impl Future<Output = Result<(), LabError>>,
    ) -> Result<f64, LabError> {
        let latencies = Mutex::new(Vec::new());
        let counter = self.serve(&latencies);
        tokio::select! {
            done = work => done?,
            never = counter => never?,
        }
        let latencies = latencies.into_inner().unwrap_or_default();
        quantile(&sorted(&latencies), 0.95)
            .ok_or_else(|| LabError::Failed("nobody was served".to_owned()))
    }

    /// Checks records out and in for ever.
    async fn serve(&self, latencies: &Mutex<Vec<f64>>) -> Result<(), LabError> {
        let begun = Instant::now();
        all((0..USERS).map(|user| self.user(user, begun, latencies))).await?;
        Ok(())
    }

    async fn user(
        &self,
        user: usize,
        begun: Instant,
        latencies: &Mutex<Vec<f64>>,
    ) -> Result<(), LabError> {
        for turn in 0_usize.. {
            let at = begun + PACE.mul_f64(turn as f64 + user as f64 / USERS as f64);
            tokio::time::sleep_until(at.into()).await;
            let record = books::id(user * RECORDS_EACH + turn / 2 % RECORDS_EACH);
            let url = format!("{}/records/t1/{record}", self.url);
            let request = if turn % 2 == 0 {
                let holder = json!({"holder": format!("user {user}")});
                self.client.post(format!("{url}/check-out")).json(&holder)
            } else {
                self.client.post(format!("{url}/check-in"))
            };
            let served = self.answer("check a record out or in", request).await;
            // Somebody who began in an earlier round may have it: that is an answer too.
            if let Err(error) = served
                && !error.to_string().contains("409")
            {
                return Err(error);
            }
            if let Ok(mut latencies) = latencies.lock() {
                latencies.push(at.elapsed().as_secs_f64());
            }
        }
        Ok(())
    }
}

const USERS: usize = 20;
const RECORDS_EACH: usize = 50;
const PACE: Duration = Duration::from_millis(250);
