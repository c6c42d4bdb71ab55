//! `thalweg up --demo`: feeds the line with what this machine really does.
//!
//! An agent in its own process tails a log of this machine and samples its processor, memory, disk
//! and network every second. Everything goes through the public APIs, as a user would do it: the
//! statement by HTTP, the flow by publishing it to the agent's class, and, a little later, a second
//! version of the flow, so that it can be seen to change while it runs.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::cli::Failure;
use crate::endpoints::Endpoints;
use crate::telemetry::LOG_FILE;

/// The running demo: an agent process and the task that watches over it.
pub struct Demo {
    agent: Child,
    watch: JoinHandle<()>,
}

/// Adds the statement, publishes the flow and starts the agent.
pub async fn start(folder: &Path, endpoints: &Endpoints) -> Result<Demo, Failure> {
    let address = |role: &str| {
        endpoints
            .get(role)
            .map(|address| address.to_string())
            .ok_or_else(|| {
                Failure(format!(
                    "the demo needs the role {role}; start without --role"
                ))
            })
    };
    let base = format!("http://{}", address("fleet")?);
    let api = Api {
        http: crate::cli::http_client(&crate::cli::Trust::default(), Some(&base))?,
        base,
    };
    let log = machine_log().unwrap_or_else(|| absolute(&folder.join(LOG_FILE)));
    let flow = Flow {
        brokers: address("streams")?,
        mqtt: address("mqtt")?,
        log: log.display().to_string(),
    };
    api.add_statement().await?;
    api.publish(&flow.first()).await?;
    let agent = spawn_agent(folder, &address("fleet")?)?;
    tracing::info!(
        log = %log.display(),
        "the demo's agent tails this log and samples this machine"
    );
    let watch = tokio::spawn(watch(api, flow));
    Ok(Demo { agent, watch })
}

impl Demo {
    /// Stops the agent and waits for it; one that hangs is killed.
    pub async fn stop(mut self) {
        self.watch.abort();
        let pid = self
            .agent
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        if let Some(Err(error)) = pid.map(|pid| kill_process(pid, Signal::TERM)) {
            tracing::debug!(%error, "the demo's agent is gone already");
        }
        if tokio::time::timeout(STOP_MAX, self.agent.wait())
            .await
            .is_err()
        {
            tracing::warn!("the demo's agent did not stop in time and is killed");
            if let Err(error) = self.agent.kill().await {
                tracing::warn!(%error, "the demo's agent cannot be killed");
            }
        }
    }
}

/// Lets the demo's agent end when its `up` ends, even by SIGKILL; other agents are not touched.
pub fn end_with_parent() {
    if std::env::var_os(WITH_PARENT).is_none() {
        return;
    }
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::TERM)) {
        tracing::warn!(%error, "this agent may outlive the demo");
    }
}

/// Publishes the second version of the flow, and says now and then what flows.
async fn watch(api: Api, flow: Flow) {
    tokio::time::sleep(SECOND_FLOW_AFTER).await;
    match api.publish(&flow.second()).await {
        Ok(()) => tracing::info!("published the flow's second version: log lines go to MQTT too"),
        Err(failure) => tracing::warn!("the flow's second version was not published: {failure}"),
    }
    loop {
        match api.flowing().await {
            Ok(text) => tracing::info!("{text}"),
            Err(failure) => tracing::warn!("cannot read what flows: {failure}"),
        }
        tokio::time::sleep(REPORT_EVERY).await;
    }
}

/// The management API, as any program would use it.
struct Api {
    http: reqwest::Client,
    base: String,
}

impl Api {
    async fn add_statement(&self) -> Result<(), Failure> {
        let statements = self.get("/api/v1/statements").await?;
        let there = |name: &str| {
            statements["statements"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["name"] == name))
        };
        if there(STATEMENT_NAME) {
            return Ok(());
        }
        let body = json!({"name": STATEMENT_NAME, "text": STATEMENT, "language": "sql"});
        self.post("/api/v1/statements", body.to_string()).await
    }

    async fn publish(&self, flow: &str) -> Result<(), Failure> {
        self.post(&format!("/api/v1/classes/{CLASS}/flows"), flow.to_owned())
            .await
    }

    async fn flowing(&self) -> Result<String, Failure> {
        let topics = self.get("/api/v1/topics").await?;
        let records: u64 = topics["topics"].as_array().map_or(0, |all| {
            all.iter()
                .filter_map(|t| t["records_in_total"].as_u64())
                .sum()
        });
        let statements = self.get("/api/v1/statements").await?;
        let computed: u64 = statements["statements"].as_array().map_or(0, |all| {
            all.iter()
                .filter_map(|s| s["received_total"].as_u64())
                .sum()
        });
        Ok(format!(
            "{records} records in topics, {computed} events through statements"
        ))
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        let failed = |error: reqwest::Error| Failure::because(&format!("{path} failed"), &error);
        let answer = self
            .http
            .get(format!("{}{path}", self.base))
            .send()
            .await
            .map_err(failed)?;
        answer
            .error_for_status()
            .map_err(failed)?
            .json()
            .await
            .map_err(failed)
    }

    async fn post(&self, path: &str, body: String) -> Result<(), Failure> {
        let failed = |error: reqwest::Error| Failure::because(&format!("{path} failed"), &error);
        let request = self.http.post(format!("{}{path}", self.base));
        let request = request
            .header("Content-Type", "application/json")
            .body(body);
        let answer = request.send().await.map_err(failed)?;
        if answer.status().is_success() {
            return Ok(());
        }
        let status = answer.status();
        let text = answer.text().await.unwrap_or_default();
        Err(Failure(format!("{path} answered {status}: {text}")))
    }
}

/// The flow with this installation's addresses filled in.
struct Flow {
    brokers: String,
    mqtt: String,
    log: String,
}

impl Flow {
    fn first(&self) -> String {
        self.fill(&format!("{PROCESSORS}{CONNECTIONS}"))
    }

    fn second(&self) -> String {
        self.fill(&format!(
            "{PROCESSORS}{MORE_PROCESSORS}{CONNECTIONS}{MORE_CONNECTIONS}"
        ))
    }

    fn fill(&self, text: &str) -> String {
        text.replace("{brokers}", &self.brokers)
            .replace("{mqtt}", &self.mqtt)
            .replace("{log}", &self.log)
    }
}

fn spawn_agent(folder: &Path, fleet: &str) -> Result<Child, Failure> {
    let binary = std::env::current_exe()
        .map_err(|error| Failure::because("cannot tell where this binary lies", &error))?;
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("demo-agent.log"))
        .map_err(|error| Failure::because("cannot write the agent's log", &error))?;
    let err = log
        .try_clone()
        .map_err(|error| Failure::because("cannot write the agent's log", &error))?;
    Command::new(binary)
        .arg("agent")
        .args(["--class", CLASS, "--id", AGENT, "--heartbeat", "1s"])
        .arg("--data")
        .arg(folder.join("demo-agent"))
        .arg("--c2-url")
        .arg(format!("http://{fleet}"))
        .env(WITH_PARENT, "1")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(err)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Failure::because("cannot start the demo's agent", &error))
}

/// A log of this machine that this user may read and that still grows.
fn machine_log() -> Option<PathBuf> {
    MACHINE_LOGS.iter().map(PathBuf::from).find(|path| {
        let readable = std::fs::File::open(path).is_ok();
        let age = std::fs::metadata(path)
            .and_then(|metadata| metadata.modified())
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        readable && age.is_some_and(|age| age < STILL_GROWS)
    })
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Set for the demo's own agent only.
const WITH_PARENT: &str = "THALWEG_AGENT_WITH_PARENT";
const CLASS: &str = "demo";
const AGENT: &str = "demo-agent";
const STATEMENT_NAME: &str = "cpu-10s";
const STATEMENT: &str = "INSERT INTO kafka.\"cpu-10s\"
SELECT hostname, avg(cpu_percent) AS cpu_percent, max(memory_percent) AS memory_percent,
       sum(network_receive_bytes) AS received_bytes, count(*) AS samples, window_start
FROM TUMBLE(mqtt.\"hosts/+/metrics\", INTERVAL '10 seconds')
GROUP BY hostname";
const PROCESSORS: &str = include_str!("processors.yml");
const MORE_PROCESSORS: &str = include_str!("more-processors.yml");
const CONNECTIONS: &str = include_str!("connections.yml");
const MORE_CONNECTIONS: &str = include_str!("more-connections.yml");
const MACHINE_LOGS: [&str; 3] = [
    "/var/log/syslog",
    "/var/log/messages",
    "/var/log/daemon.log",
];
/// A log that was written within this time counts as growing; otherwise our own log is tailed.
const STILL_GROWS: Duration = Duration::from_secs(600);
const SECOND_FLOW_AFTER: Duration = Duration::from_secs(20);
const REPORT_EVERY: Duration = Duration::from_secs(5);
const STOP_MAX: Duration = Duration::from_secs(5);
