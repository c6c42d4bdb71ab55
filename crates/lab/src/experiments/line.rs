//! The line under load: a growing log, an agent, the event store, a statement, a REST consumer.
//!
//! Two phases on one `thalweg up` and one agent, each a process of its own. First a backlog: the
//! log holds all its lines when the agent starts, and we time how long until every line is
//! acknowledged, counted by the statement and read back by a consumer. Then a steady trickle: lines
//! with their own time in them, and the age at which a consumer on the other end gets each.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use base::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::experiment::{Experiment, LabError, Measure, Outcome, Series, Setting, runtime};
use crate::limits::{POLL, STALL_MAX};
use crate::process::{Measured, Up, Usage};
use crate::stats;

/// `thalweg lab run line`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "line",
    about: "log file → agent → topic → statement → consumer: rate, CPU per record, loss, latency",
    method: "One thalweg up and one thalweg-agent, each its own process, on embedded defaults \
        (acknowledged means synced). The agent tails a log of JSON lines of 200 bytes into a topic; \
        a statement counts and averages them per second and site; a REST consumer reads the topic \
        and the results. The agent looks at the log every 10 ms. Backlog phase: the log is complete when the agent starts. Trickle phase: \
        500 lines a second, each with the time of its writing; latency is the age at which the REST \
        consumer has it. CPU is user and system time of each process over the backlog phase.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    vec![
        Measure::new("line rate", "lines/s")
            .at_least(393_000.0)
            .reference(
                "Fluent Bit 5.1, file system buffer, tail to file",
                393_000.0,
            ),
        Measure::new("server CPU per record", "µs").at_most(3.0),
        Measure::new("agent CPU per record", "µs")
            .at_most(3.0)
            .reference("Telegraf 1.37, memory buffer, 30 CPU-s/GB at 200 B", 6.0),
        Measure::new("lines lost", "lines").at_most(0.0),
        Measure::new("lines doubled", "lines").at_most(0.0),
        Measure::new("statement miscount", "lines").at_most(0.0),
        Measure::new("latency p50", "ms").at_most(50.0),
        Measure::new("latency p99", "ms").at_most(250.0),
        Measure::new("server memory", "MiB"),
        Measure::new("agent memory", "MiB"),
        Measure::new("share of the disk's write rate", "%"),
    ]
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let runtime = runtime()?;
    runtime.block_on(measure(setting))
}

async fn measure(setting: &Setting) -> Result<Outcome, LabError> {
    let lines = if setting.quick { 100_000 } else { 1_000_000 };
    let trickle = Duration::from_secs(if setting.quick { 4 } else { 15 });
    let log = setting.path("the.log");
    write_backlog(&log, lines)?;
    let disk = crate::host::Host::measure(setting.folder())?;

    let mut up = Up::start(&setting.thalweg, setting.folder())?;
    let client = Client::new(&up)?;
    client.add_statement().await?;
    let flow = setting.path("flow.yml");
    std::fs::write(&flow, flow_text(&log, up.address("streams")?))
        .map_err(LabError::system("cannot write the flow"))?;

    let server_before = up.process.usage()?;
    let began = Instant::now();
    let mut agent = start_agent(setting, &flow)?;
    let mut watch = Watch::new(began);
    watch
        .until_stored(&client, &mut up, &mut agent, lines)
        .await?;
    let seconds = began.elapsed().as_secs_f64();
    let server = used(&up.process.usage()?, &server_before);
    let agent_used = agent.usage()?;

    let (lost, doubled) = client.read_back(lines).await?;
    let counted = client.counted_by_statement(lines).await?;
    let ages = trickle_through(&client, &log, lines, trickle).await?;
    let sorted = stats::sorted(&ages);

    agent.stop()?;
    let memory = up.process.usage()?.resident_bytes_max;
    up.process.stop()?;

    let per_record = |usage: &Usage| usage.cpu.as_secs_f64() * 1e6 / lines as f64;
    let bytes_per_s = lines as f64 * LINE_BYTES as f64 / seconds;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let values = [
        ("line rate", lines as f64 / seconds),
        ("server CPU per record", per_record(&server)),
        ("agent CPU per record", per_record(&agent_used)),
        ("lines lost", lost as f64),
        ("lines doubled", doubled as f64),
        ("statement miscount", counted.abs_diff(lines) as f64),
        (
            "latency p50",
            stats::quantile(&sorted, 0.5).unwrap_or(f64::NAN),
        ),
        (
            "latency p99",
            stats::quantile(&sorted, 0.99).unwrap_or(f64::NAN),
        ),
        ("server memory", mib(memory)),
        ("agent memory", mib(agent_used.resident_bytes_max)),
        (
            "share of the disk's write rate",
            bytes_per_s / disk.disk_write_bytes_per_s * 100.0,
        ),
    ];
    Ok(Outcome {
        values: values
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        peers: Vec::new(),
        series: watch.series(stats::curve(&sorted)),
        ..Outcome::default()
    })
}

/// Looks at both processes and the topic while the backlog drains.
struct Watch {
    began: Instant,
    stored: Vec<(f64, f64)>,
    server_mib: Vec<(f64, f64)>,
    agent_mib: Vec<(f64, f64)>,
}

impl Watch {
    fn new(began: Instant) -> Self {
        Watch {
            began,
            stored: Vec::new(),
            server_mib: Vec::new(),
            agent_mib: Vec::new(),
        }
    }

    async fn until_stored(
        &mut self,
        client: &Client,
        up: &mut Up,
        agent: &mut Measured,
        lines: u64,
    ) -> Result<(), LabError> {
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            up.process.still_runs()?;
            agent.still_runs()?;
            let stored = client.stored().await?;
            let at = self.began.elapsed().as_secs_f64();
            let mib = |usage: Usage| usage.resident_bytes as f64 / f64::from(1 << 20);
            self.stored.push((at, stored as f64));
            self.server_mib.push((at, mib(up.process.usage()?)));
            self.agent_mib.push((at, mib(agent.usage()?)));
            if stored >= lines {
                return Ok(());
            }
            if stored != last {
                (last, moved) = (stored, Instant::now());
            } else if moved.elapsed() > STALL_MAX {
                return Err(LabError::Failed(format!(
                    "the line stands still at {stored} of {lines} lines"
                )));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn series(self, latency: Vec<(f64, f64)>) -> Vec<Series> {
        let over_time = |plot, unit, name, points| Series::new(plot, "seconds", unit, name, points);
        vec![
            over_time("Lines stored", "lines", "in the topic", self.stored),
            over_time("Resident memory", "MiB", "thalweg up", self.server_mib),
            over_time("Resident memory", "MiB", "thalweg-agent", self.agent_mib),
            Series::new(
                "Latency by share of lines",
                "percent of the lines",
                "ms",
                "written to consumed",
                latency,
            ),
        ]
    }
}

/// The HTTP client of this experiment.
struct Client {
    http: reqwest::Client,
    fleet: String,
    rest: String,
}

impl Client {
    fn new(up: &Up) -> Result<Self, LabError> {
        // The client asks for it, though nothing here is encrypted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .build()
            .map_err(LabError::request("cannot make an HTTP client"))?;
        let url = |role| up.address(role).map(|address| format!("http://{address}"));
        Ok(Client {
            http,
            fleet: url("fleet")?,
            rest: url("rest")?,
        })
    }

    async fn add_statement(&self) -> Result<(), LabError> {
        let topic = json!({"name": TOPIC, "partitions": 1});
        self.post(&format!("{}/api/v1/topics", self.fleet), JSON, &topic)
            .await?;
        let body = json!({"name": "line", "text": STATEMENT, "start": "earliest"});
        self.post(&format!("{}/api/v1/statements", self.fleet), JSON, &body)
            .await?;
        Ok(())
    }

    async fn stored(&self) -> Result<u64, LabError> {
        let topic = self
            .get(&format!("{}/api/v1/topics/{TOPIC}", self.fleet), JSON)
            .await?;
        Ok(topic["records_in_total"].as_u64().unwrap_or(0))
    }

    /// Reads the topic whole; returns how many lines are missing and how many came twice.
    async fn read_back(&self, lines: u64) -> Result<(u64, u64), LabError> {
        let consumer = self.consumer(TOPIC, "earliest").await?;
        let mut seen = vec![0_u8; usize::try_from(lines).unwrap_or(usize::MAX)];
        let mut read = 0;
        while read < lines {
            let records = self.records(&consumer, 5_000).await?;
            if records.is_empty() {
                break;
            }
            for record in &records {
                let number = record["value"]["n"]
                    .as_u64()
                    .and_then(|n| usize::try_from(n).ok());
                if let Some(count) = number.and_then(|number| seen.get_mut(number)) {
                    *count = count.saturating_add(1);
                }
            }
            read += records.len() as u64;
        }
        self.drop_consumer(&consumer).await?;
        let lost = seen.iter().filter(|count| **count == 0).count() as u64;
        let doubled = seen
            .iter()
            .map(|count| u64::from(count.saturating_sub(1)))
            .sum();
        Ok((lost, doubled))
    }

    /// Adds up the statement's results until they reach `lines` or stay away.
    async fn counted_by_statement(&self, lines: u64) -> Result<u64, LabError> {
        let consumer = self.consumer(RESULTS, "earliest").await?;
        let mut counted = 0;
        let mut empty = 0;
        while counted < lines && empty < RESULT_POLLS_MAX {
            let records = self.records(&consumer, 2_000).await?;
            empty = if records.is_empty() { empty + 1 } else { 0 };
            counted += records
                .iter()
                .filter_map(|r| r["value"]["n"].as_u64())
                .sum::<u64>();
        }
        self.drop_consumer(&consumer).await?;
        Ok(counted)
    }

    async fn consumer(&self, topic: &str, from: &str) -> Result<String, LabError> {
        let group = format!("lab-{topic}-{from}");
        let config = json!({"format": "json", "auto.offset.reset": from});
        let created = self
            .post(&format!("{}/consumers/{group}", self.rest), V2, &config)
            .await?;
        let Some(uri) = created["base_uri"].as_str().map(str::to_owned) else {
            return Err(LabError::Failed(
                "the proxy named no consumer instance".to_owned(),
            ));
        };
        self.post(
            &format!("{uri}/subscription"),
            V2,
            &json!({"topics": [topic]}),
        )
        .await?;
        Ok(uri)
    }

    async fn records(&self, consumer: &str, timeout_ms: u64) -> Result<Vec<Value>, LabError> {
        let url = format!("{consumer}/records?timeout={timeout_ms}&max_bytes=4000000");
        match self.get(&url, "application/vnd.kafka.json.v2+json").await? {
            Value::Array(records) => Ok(records),
            other => Err(LabError::Failed(format!(
                "the proxy answered no records: {other}"
            ))),
        }
    }

    async fn drop_consumer(&self, consumer: &str) -> Result<(), LabError> {
        let what = "cannot delete a consumer instance";
        let answer = self
            .http
            .delete(consumer)
            .send()
            .await
            .map_err(LabError::request(what))?;
        answer
            .error_for_status()
            .map(|_| ())
            .map_err(LabError::request(what))
    }

    async fn get(&self, url: &str, accept: &str) -> Result<Value, LabError> {
        self.answer(url, self.http.get(url).header("Accept", accept))
            .await
    }

    async fn post(&self, url: &str, kind: &str, body: &Value) -> Result<Value, LabError> {
        let request = self
            .http
            .post(url)
            .header("Content-Type", kind)
            .body(body.to_string());
        self.answer(url, request).await
    }

    async fn answer(&self, url: &str, request: reqwest::RequestBuilder) -> Result<Value, LabError> {
        let failed = || LabError::request(format!("{url} failed"));
        let answer = request.send().await.map_err(failed())?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(failed())?;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&body);
            return Err(LabError::Failed(format!("{url} answered {status}: {text}")));
        }
        Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}

/// Appends lines at a steady rate and returns each line's age in ms when the consumer has it.
async fn trickle_through(
    client: &Client,
    log: &Path,
    first: u64,
    length: Duration,
) -> Result<Vec<f64>, LabError> {
    let consumer = client.consumer(TOPIC, "latest").await?;
    // The first read joins the group and finds the end of the topic.
    client.records(&consumer, 500).await?;
    let log = log.to_owned();
    let writer = tokio::task::spawn_blocking(move || write_trickle(&log, first, length));
    let mut ages = Vec::new();
    let mut seen = HashSet::new();
    let expected = length.as_secs() * TRICKLE_PER_S;
    let deadline = Instant::now() + length + STALL_MAX;
    while (ages.len() as u64) < expected && Instant::now() < deadline {
        let records = client.records(&consumer, 1_000).await?;
        let now = SystemClock.now().0 as f64;
        for record in &records {
            let (Some(number), Some(written)) = (
                record["value"]["n"].as_u64(),
                record["value"]["ts"].as_f64(),
            ) else {
                continue;
            };
            if number >= first && seen.insert(number) {
                ages.push(now - written);
            }
        }
    }
    writer
        .await
        .map_err(|error| LabError::Failed(format!("the trickle's writer failed: {error}")))?
        .map_err(LabError::system("cannot append to the log"))?;
    client.drop_consumer(&consumer).await?;
    if (ages.len() as u64) < expected {
        return Err(LabError::Failed(format!(
            "only {} of {expected} trickled lines arrived",
            ages.len()
        )));
    }
    Ok(ages)
}

fn write_trickle(log: &Path, first: u64, length: Duration) -> std::io::Result<()> {
    let mut file = File::options().append(true).open(log)?;
    let (began, began_at) = (Instant::now(), SystemClock.now());
    let interval = Duration::from_secs(1) / u32::try_from(TRICKLE_PER_S).unwrap_or(1);
    for index in 0..length.as_secs() * TRICKLE_PER_S {
        let due = interval * u32::try_from(index).unwrap_or(u32::MAX);
        if let Some(wait) = due.checked_sub(began.elapsed()) {
            std::thread::sleep(wait);
        }
        // The intended time, so that a writer that falls behind does not flatter the result.
        file.write_all(line(first + index, (began_at + due).0).as_bytes())?;
    }
    Ok(())
}

fn write_backlog(log: &Path, lines: u64) -> Result<(), LabError> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(log)?);
        let now = SystemClock.now().0;
        for number in 0..lines {
            file.write_all(line(number, now).as_bytes())?;
        }
        file.into_inner()
            .map_err(|error| error.into_error())?
            .sync_data()
    };
    write().map_err(LabError::system("cannot write the log"))
}

fn line(number: u64, now_ms: i64) -> String {
    let mut text = format!(
        "{{\"n\":{number},\"ts\":{now_ms},\"site\":\"site-{}\",\"a\":{}.{},\"text\":\"",
        number % 10,
        number % 97,
        number % 10
    );
    let padding = LINE_BYTES.saturating_sub(text.len() + 3);
    text.extend(std::iter::repeat_n('x', padding));
    text.push_str("\"}\n");
    text
}

fn start_agent(setting: &Setting, flow: &Path) -> Result<Measured, LabError> {
    let mut command = Command::new(setting.thalweg.with_file_name("thalweg-agent"));
    command
        .arg("--data")
        .arg(setting.path("agent"))
        .arg("--flow")
        .arg(flow);
    Measured::start("agent", &mut command, setting.folder())
}

fn flow_text(log: &Path, brokers: &str) -> String {
    FLOW.replace("{log}", &log.display().to_string())
        .replace("{brokers}", brokers)
}

fn used(after: &Usage, before: &Usage) -> Usage {
    Usage {
        cpu: after.cpu.saturating_sub(before.cpu),
        ..*after
    }
}

const TOPIC: &str = "line";
const RESULTS: &str = "line-per-second";
const STATEMENT: &str = "INSERT INTO kafka.\"line-per-second\" \
    SELECT site, count(*) AS n, avg(a) AS a, window_start \
    FROM TUMBLE(kafka.\"line\", INTERVAL '1 second') GROUP BY site";
const FLOW: &str = include_str!("line-flow.yml");
const JSON: &str = "application/json";
const V2: &str = "application/vnd.kafka.v2+json";
const LINE_BYTES: usize = 200;
const TRICKLE_PER_S: u64 = 500;
/// Empty polls of two seconds each before the statement's results count as complete.
const RESULT_POLLS_MAX: u32 = 3;
