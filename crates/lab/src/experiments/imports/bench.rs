//! A fresh system whose jobs are started and watched over its HTTP API.

use std::task::Poll;
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::Value;

use super::books;
use crate::database::{Database, Kind};
use crate::experiment::{LabError, Setting};
use crate::process::Up;

/// A fresh system and a client of it.
pub struct Bench {
    pub up: Up,
    /// The database server that it imports into, where that is not its own file.
    pub database: Option<Database>,
    pub client: Client,
    pub url: String,
}

/// What came of a job.
pub struct Ended {
    /// From the request that began it to its last commit, by the server's clock.
    pub seconds: f64,
    /// Seconds since `started`, and records that were done by then.
    pub points: Vec<(f64, f64)>,
}

impl Bench {
    /// Starts a system that imports into a server of this kind, or into its own file.
    pub fn start_on(setting: &Setting, name: &str, on: Option<Kind>) -> Result<Bench, LabError> {
        let folder = setting.path(name);
        std::fs::create_dir_all(&folder).map_err(LabError::system("cannot make a folder"))?;
        let database = on.map(|kind| Database::start(kind, &folder)).transpose()?;
        let set = database
            .as_ref()
            .map(|database| format!("imports.database={}", database.url));
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let up = Up::start_with(&setting.thalweg, &folder, &set)?;
        let url = format!("http://{}/api/v1", up.address("management")?);
        Ok(Bench {
            up,
            database,
            client: client()?,
            url,
        })
    }

    /// The same, with a server that has been in use.
    pub fn start_in_use(
        setting: &Setting,
        name: &str,
        on: Option<Kind>,
    ) -> Result<Bench, LabError> {
        let bench = Bench::start_on(setting, name, on)?;
        if let Some(database) = &bench.database {
            database.fill_log()?;
        }
        Ok(bench)
    }

    /// Starts an import of `records` generated books from number `first` on; answers the job's id.
    pub async fn import(
        &self,
        tenant: &str,
        topic: &str,
        first: usize,
        records: usize,
    ) -> Result<String, LabError> {
        let query = format!("tenant={tenant}&topic={topic}");
        self.send(&query, books::file(first, records)).await
    }

    /// Starts an import of a MARC file; answers the job's id.
    pub async fn send(&self, query: &str, file: Vec<u8>) -> Result<String, LabError> {
        let url = format!("{}/imports?format=marc&{query}", self.url);
        let request = self.client.post(url).body(file);
        let job = self.answer("start an import", request).await?;
        text(&job, "id")
    }

    pub async fn job(&self, id: &str) -> Result<Value, LabError> {
        let url = format!("{}/imports/{id}", self.url);
        self.answer("look at a job", self.client.get(url)).await
    }

    /// Waits for a job's end, and watches it meanwhile.
    pub async fn ended(&self, id: &str, started: Instant) -> Result<Ended, LabError> {
        let mut points = Vec::new();
        loop {
            let job = self.job(id).await?;
            let done = job["records_done"].as_f64().unwrap_or(0.0);
            points.push((started.elapsed().as_secs_f64(), done));
            match job["state"].as_str() {
                Some("running" | "uploading") => tokio::time::sleep(LOOK).await,
                Some("completed") => {
                    let millis = |name: &str| job[name].as_f64().unwrap_or(0.0);
                    let seconds = (millis("updated_ms") - millis("created_ms")) / 1e3;
                    return Ok(Ended { seconds, points });
                }
                state => {
                    return Err(LabError::Failed(format!(
                        "an import ended as {state:?}: {job}"
                    )));
                }
            }
        }
    }

    /// Waits until a job has this many records, or has ended.
    pub async fn reaches(&self, id: &str, records: usize) -> Result<(), LabError> {
        loop {
            let job = self.job(id).await?;
            let is_running = matches!(job["state"].as_str(), Some("running" | "uploading"));
            if !is_running || job["records_done"].as_u64() >= Some(records as u64) {
                return Ok(());
            }
            tokio::time::sleep(LOOK / 5).await;
        }
    }

    /// Waits until the search index has everything.
    pub async fn indexed(&self) -> Result<(), LabError> {
        loop {
            let url = format!("{}/search?q=history&tenant=t1&limit=0", self.url);
            let found = self.answer("search", self.client.get(url)).await?;
            if found["slices_waiting"] == 0 {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub async fn answer(
        &self,
        what: &str,
        request: reqwest::RequestBuilder,
    ) -> Result<Value, LabError> {
        answer(what, request).await
    }
}

/// Sends a request; its answer, or what it was refused for.
pub async fn answer(what: &str, request: reqwest::RequestBuilder) -> Result<Value, LabError> {
    let answer = request.send().await.map_err(LabError::request(what))?;
    let status = answer.status();
    let body: Value = answer.json().await.map_err(LabError::request(what))?;
    if status.is_success() {
        Ok(body)
    } else {
        Err(LabError::Failed(format!("cannot {what}: {status} {body}")))
    }
}

pub fn client() -> Result<Client, LabError> {
    // Whoever did it before did the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = Client::builder().no_proxy().build();
    made.map_err(LabError::request("make an HTTP client"))
}

/// Waits for all calls at once; the first failure ends it. Answers come in the order of their ends.
pub async fn all<T, F>(calls: impl IntoIterator<Item = F>) -> Result<Vec<T>, LabError>
where
    F: Future<Output = Result<T, LabError>>,
{
    let mut waiting: Vec<_> = calls.into_iter().map(Box::pin).collect();
    let mut ended = Vec::with_capacity(waiting.len());
    std::future::poll_fn(|context| {
        let mut at = 0;
        while let Some(call) = waiting.get_mut(at) {
            match call.as_mut().poll(context) {
                Poll::Ready(Ok(value)) => {
                    ended.push(value);
                    drop(waiting.swap_remove(at));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => at += 1,
            }
        }
        if waiting.is_empty() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    })
    .await?;
    Ok(ended)
}

fn text(value: &Value, name: &str) -> Result<String, LabError> {
    let text = value[name].as_str().map(str::to_owned);
    text.ok_or_else(|| LabError::Failed(format!("there is no {name} in {value}")))
}

/// Between two looks at a job.
pub const LOOK: Duration = Duration::from_millis(50);
