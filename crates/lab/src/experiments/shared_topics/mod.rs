//! Three tenants' imports started one into the other, on topics of their own and on a shared one.

mod books;

use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};

use crate::experiment::{Experiment, LabError, Measure, Outcome, Series, Setting, runtime};
use crate::process::Up;
use crate::stats::{quantile, sorted};

/// `thalweg lab run shared-topics`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-topics",
    about: "three tenants' imports, started at 0, 30 and 60 % of the first, per topic mode",
    method: "Thalweg (up, embedded defaults) imports files of generated MARC records of about 900 bytes \
        from three tenants, each of its own ids. First one alone, which gives T. Then the second \
        tenant's import starts when the first one's progress is 30 %, the third one's at 60 %: once \
        with a topic for each tenant and once with one topic for all, and for 25,000 records also \
        beside 20 users who check records out and in, four times a second each, latency from the \
        intended moment. Durations are from the request to the job's end, over T; ideal sharing gives \
        2.10, 2.40 and 2.10. What the published experiments with FOLIO took stands beside it.",
    peer: None,
    measures,
    run,
};

/// How topics are named.
const MODES: [&str; 2] = ["own topics", "shared topic"];

/// Of the published runs: slowest to fastest, by size and mode.
const PUBLISHED: &str = "FOLIO, published shared-topic tests";

fn measures() -> Vec<Measure> {
    let mut measures = vec![
        Measure::new(RATE, "records/s")
            .at_least(2_200.0)
            .reference(PUBLISHED, 44.0),
        Measure::new(CHECK_ALONE, "ms"),
    ];
    for size in SIZES {
        measures.push(Measure::new(alone(size), "s"));
        for (mode, ratio) in MODES.iter().zip(published(size)) {
            for (tenant, (least, most)) in IDEAL.iter().map(|t| (t * 0.9, t * 1.1)).enumerate() {
                let name = duration(size, mode, tenant);
                measures.push(Measure::new(name.clone(), "T").at_most(most));
                measures.push(
                    Measure::new(format!("{name}, not less"), "T")
                        .at_least(least)
                        .detail(),
                );
            }
            let spread = Measure::new(spread(size, mode), "×").at_most(1.25);
            measures.push(match ratio {
                Some(ratio) => spread.reference(PUBLISHED, ratio),
                None => spread,
            });
        }
    }
    for (mode, ratio) in MODES.iter().zip([2.80, 3.32]) {
        let slower = Measure::new(slower(mode), "×").at_most(1.25);
        measures.push(slower.reference(PUBLISHED, ratio));
    }
    measures
}

fn published(size: usize) -> [Option<f64>; 2] {
    match size {
        25_000 => [Some(2.03), Some(1.39)],
        50_000 => [None, Some(1.34)],
        _ => [None, None],
    }
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    runtime()?.block_on(measure(setting))
}

async fn measure(setting: &Setting) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::default();
    for size in SIZES {
        if !setting.wants(&size.to_string()) {
            continue;
        }
        let records = if setting.quick { size / 10 } else { size };
        let bench = Bench::start(setting, &format!("alone-{size}"))?;
        let started = Instant::now();
        let job = bench.import("t1", "imports-t1", 0, records).await?;
        let (alone_s, _) = bench.ended(&job, started).await?;
        outcome.add(alone(size), alone_s);
        if size == SIZES[0] {
            outcome.add(RATE, records as f64 / alone_s);
        }
        let quiet = if size == SIZES[0] {
            let p95 = bench.circulate(QUIET).await?;
            outcome.add(CHECK_ALONE, p95 * 1e3);
            Some(p95)
        } else {
            None
        };
        bench.up.process.stop()?;
        for mode in MODES {
            let bench = Bench::start(setting, &format!("{}-{size}", mode.replace(' ', "-")))?;
            let times = bench.staggered(mode, records, &mut outcome).await?;
            for (tenant, seconds) in times.iter().enumerate() {
                let name = duration(size, mode, tenant);
                outcome.add(name.clone(), seconds / alone_s);
                outcome.add(format!("{name}, not less"), seconds / alone_s);
            }
            let order = sorted(&times);
            outcome.add(spread(size, mode), order[2] / order[0]);
            bench.up.process.stop()?;
            if let Some(quiet) = quiet {
                let bench = Bench::start(setting, &format!("{}-cico", mode.replace(' ', "-")))?;
                outcome.add(slower(mode), bench.beside(mode, records).await? / quiet);
                bench.up.process.stop()?;
            }
        }
    }
    Ok(outcome)
}

/// A fresh system and a client of it.
struct Bench {
    up: Up,
    client: Client,
    url: String,
}

impl Bench {
    fn start(setting: &Setting, name: &str) -> Result<Bench, LabError> {
        let folder = setting.path(name);
        std::fs::create_dir_all(&folder).map_err(LabError::system("cannot make a folder"))?;
        let up = Up::start(&setting.thalweg, &folder)?;
        let url = format!("http://{}/api/v1", up.address("management")?);
        Ok(Bench {
            up,
            client: Client::new(),
            url,
        })
    }

    /// Starts an import of `records` generated books from number `first` on; answers the job's id.
    async fn import(
        &self,
        tenant: &str,
        topic: &str,
        first: usize,
        records: usize,
    ) -> Result<String, LabError> {
        let url = format!(
            "{}/imports?tenant={tenant}&format=marc&topic={topic}",
            self.url
        );
        let request = self.client.post(url).body(books::file(first, records));
        let job = self.answer("start an import", request).await?;
        text(&job, "id")
    }

    async fn job(&self, id: &str) -> Result<Value, LabError> {
        let url = format!("{}/imports/{id}", self.url);
        self.answer("look at a job", self.client.get(url)).await
    }

    /// Waits for a job's end; answers the seconds since `started`, and its rate over time.
    async fn ended(&self, id: &str, started: Instant) -> Result<(f64, Vec<(f64, f64)>), LabError> {
        let mut points = Vec::new();
        loop {
            let job = self.job(id).await?;
            let seconds = started.elapsed().as_secs_f64();
            points.push((seconds, job["records_done"].as_f64().unwrap_or(0.0)));
            match job["state"].as_str() {
                Some("running" | "uploading") => tokio::time::sleep(LOOK).await,
                Some("completed") => return Ok((seconds, points)),
                state => {
                    return Err(LabError::Failed(format!(
                        "an import ended as {state:?}: {job}"
                    )));
                }
            }
        }
    }

    /// The three imports after the published rule; answers each one's seconds.
    async fn staggered(
        &self,
        mode: &str,
        records: usize,
        outcome: &mut Outcome,
    ) -> Result<Vec<f64>, LabError> {
        let begun = Instant::now();
        let first = self.import("t1", topic(mode, "t1"), 0, records).await?;
        let second = async {
            self.reaches(&first, records * 3 / 10).await?;
            let (from, started) = (begun.elapsed().as_secs_f64(), Instant::now());
            let id = self
                .import("t2", topic(mode, "t2"), records, records)
                .await?;
            Ok::<_, LabError>((from, self.ended(&id, started).await?))
        };
        let third = async {
            self.reaches(&first, records * 6 / 10).await?;
            let (from, started) = (begun.elapsed().as_secs_f64(), Instant::now());
            let id = self
                .import("t3", topic(mode, "t3"), 2 * records, records)
                .await?;
            Ok::<_, LabError>((from, self.ended(&id, started).await?))
        };
        let (one, two, three) = tokio::join!(self.ended(&first, begun), second, third);
        let (two, three) = (two?, three?);
        let lines = [("t1", (0.0, one?)), ("t2", two), ("t3", three)];
        let plot = format!("records imported, {records} each, {mode}");
        let mut times = Vec::new();
        for (name, (from, (seconds, points))) in lines {
            let points = points
                .into_iter()
                .map(|(at, done)| (at + from, done))
                .collect();
            outcome
                .series
                .push(Series::new(&plot, "s", "records", name, points));
            times.push(seconds);
        }
        Ok(times)
    }

    async fn reaches(&self, id: &str, records: usize) -> Result<(), LabError> {
        loop {
            let job = self.job(id).await?;
            let is_running = matches!(job["state"].as_str(), Some("running" | "uploading"));
            if !is_running || job["records_done"].as_u64() >= Some(records as u64) {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Three imports at once beside the counter; answers the 95th percentile in seconds.
    async fn beside(&self, mode: &str, records: usize) -> Result<f64, LabError> {
        // Something to check out.
        let id = self.import("t1", "first", 0, USERS * 50).await?;
        self.ended(&id, Instant::now()).await?;
        let mut ids = Vec::new();
        for (index, tenant) in ["t1", "t2", "t3"].into_iter().enumerate() {
            let first = (index + 1) * records;
            ids.push(
                self.import(tenant, topic(mode, tenant), first, records)
                    .await?,
            );
        }
        let imported = async {
            for id in &ids {
                self.ended(id, Instant::now()).await?;
            }
            Ok::<(), LabError>(())
        };
        // The counter is asked as long as the imports run.
        let latencies = std::sync::Mutex::new(Vec::new());
        let counter = self.serve(&latencies);
        tokio::select! {
            done = imported => done?,
            never = counter => never?,
        }
        let latencies = latencies.into_inner().unwrap_or_default();
        quantile(&sorted(&latencies), 0.95)
            .ok_or_else(|| LabError::Failed("nobody was served".to_owned()))
    }

    /// Serves the counter for a while; answers the 95th percentile in seconds.
    async fn circulate(&self, length: Duration) -> Result<f64, LabError> {
        let latencies = std::sync::Mutex::new(Vec::new());
        if let Ok(ended) = tokio::time::timeout(length, self.serve(&latencies)).await {
            ended?;
        }
        let latencies = latencies.into_inner().unwrap_or_default();
        quantile(&sorted(&latencies), 0.95)
            .ok_or_else(|| LabError::Failed("nobody was served".to_owned()))
    }

    /// Checks records out and in for ever, at fixed moments; latencies are from these.
    async fn serve(&self, latencies: &std::sync::Mutex<Vec<f64>>) -> Result<(), LabError> {
        let begun = Instant::now();
        let mut users = Vec::new();
        for user in 0..USERS {
            users.push(self.user(user, begun, latencies));
        }
        let mut waiting: std::collections::VecDeque<_> = users.into_iter().map(Box::pin).collect();
        // Users are polled together: each is a future that never ends unless it fails.
        std::future::poll_fn(|context| {
            for user in &mut waiting {
                if let std::task::Poll::Ready(failed) = user.as_mut().poll(context) {
                    return std::task::Poll::Ready(failed);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    async fn user(
        &self,
        user: usize,
        begun: Instant,
        latencies: &std::sync::Mutex<Vec<f64>>,
    ) -> Result<(), LabError> {
        for turn in 0_usize.. {
            let at = begun + PACE.mul_f64(turn as f64 + user as f64 / USERS as f64);
            tokio::time::sleep_until(at.into()).await;
            let record = books::id(user * 50 + turn / 2 % 50);
            let url = format!("{}/records/t1/{record}", self.url);
            let request = if turn % 2 == 0 {
                let holder = json!({"holder": format!("user {user}")});
                self.client.post(format!("{url}/check-out")).json(&holder)
            } else {
                self.client.post(format!("{url}/check-in"))
            };
            self.answer("check a record out or in", request).await?;
            if let Ok(mut latencies) = latencies.lock() {
                latencies.push(at.elapsed().as_secs_f64());
            }
        }
        Ok(())
    }

    async fn answer(
        &self,
        what: &str,
        request: reqwest::RequestBuilder,
    ) -> Result<Value, LabError> {
        let answer = request.send().await.map_err(LabError::request(what))?;
        let status = answer.status();
        let body: Value = answer.json().await.map_err(LabError::request(what))?;
        if status.is_success() {
            Ok(body)
        } else {
            Err(LabError::Failed(format!("cannot {what}: {status} {body}")))
        }
    }
}

fn text(value: &Value, name: &str) -> Result<String, LabError> {
    let text = value[name].as_str().map(str::to_owned);
    text.ok_or_else(|| LabError::Failed(format!("there is no {name} in {value}")))
}

fn topic<'t>(mode: &str, tenant: &'t str) -> &'t str {
    match (mode == MODES[1], tenant) {
        (true, _) => "imports-ALL",
        (false, "t1") => "imports-t1",
        (false, "t2") => "imports-t2",
        (false, _) => "imports-t3",
    }
}

fn alone(size: usize) -> String {
    format!("{size} records alone (T)")
}

fn duration(size: usize, mode: &str, tenant: usize) -> String {
    format!("{size} records, {mode}, tenant {}", tenant + 1)
}

fn spread(size: usize, mode: &str) -> String {
    format!("{size} records, {mode}, slowest to fastest")
}

fn slower(mode: &str) -> String {
    format!("check-out and check-in beside imports, {mode}, p95 over alone")
}

const RATE: &str = "one import alone";
const CHECK_ALONE: &str = "check-out and check-in alone, p95";
const SIZES: [usize; 3] = [25_000, 50_000, 100_000];
const IDEAL: [f64; 3] = [2.10, 2.40, 2.10];
const USERS: usize = 20;
const PACE: Duration = Duration::from_millis(250);
const QUIET: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);
