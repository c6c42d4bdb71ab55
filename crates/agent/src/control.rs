//! The agent's side of C2: heartbeats out, operations in, acknowledgements back.
//!
//! The agent never needs the control plane: when it is away, heartbeats back off, the flow goes
//! on, and acknowledgements wait in the repository until they are delivered. Acknowledgements
//! leave before the heartbeat, so the control plane never asks twice for what was done.
//!
//! The first heartbeat after a start brings the manifest; later ones bring its hash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::HumanDuration;
use bytes::Bytes;
use c2::{
    AckState, Acknowledge, AgentInfo, AgentStatus, ComponentStatus, DeviceInfo, FlowInfo,
    Heartbeat, HeartbeatResponse, NetworkInfo, Operand, Operation, OperationKind,
    ProcessorBulletin, ProcessorStatus, QueueStatus, RepositoryStatus, ResourceConsumption,
    SystemInfo,
};
use serde::{Deserialize, Serialize};

use crate::AgentError;
use crate::host;
use crate::limits::{
    CONTROL_ANSWER_BYTES_MAX, CONTROL_BACK_OFF_MAX, FLOW_TEXT_BYTES_MAX,
    PENDING_ACKNOWLEDGEMENTS_MAX,
};
use crate::manifest::Manifest;
use crate::supervisor::{Supervisor, Updated};

/// Where the control plane is and who the agent is to it.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// Where heartbeats go.
    pub heartbeat_url: String,
    /// Where acknowledgements go.
    pub acknowledge_url: String,
    /// What relative addresses of flows are taken from.
    pub flow_base_url: String,
    /// The agent's identifier, the same for its whole life.
    pub identifier: String,
    /// The agent's class.
    pub class: Option<String>,
    /// Time between two heartbeats.
    pub period: HumanDuration,
}

/// The agent's side of C2.
pub(crate) struct Control {
    config: ControlConfig,
    client: reqwest::Client,
    supervisor: Arc<Supervisor>,
    manifest: Manifest,
    is_introduced: bool,
    started: Instant,
    cpu: Option<(Instant, Duration)>,
    pending: Vec<PendingAck>,
}

/// An acknowledgement that is not delivered yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PendingAck {
    operation: String,
    state: String,
    details: String,
    /// Whether the manifest goes with it.
    describes: bool,
}

impl Control {
    pub(crate) fn new(
        config: ControlConfig,
        supervisor: Arc<Supervisor>,
    ) -> Result<Self, AgentError> {
        // Whoever did it before did the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            reqwest::Client::builder()
                .connect_timeout(CONNECT_WAIT)
                .timeout(CALL_WAIT)
                .user_agent(concat!("thalweg-agent/", env!("CARGO_PKG_VERSION")))
        };
        // A machine that believes nobody can still call a fleet without TLS.
        let client = builder()
            .build()
            .or_else(|_| builder().tls_certs_only([]).build())
            .map_err(|error| control_error("start", error))?;
        let kept = supervisor.repository().state(PENDING_STATE);
        let pending = kept.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok(Control {
            config,
            client,
            supervisor,
            manifest: Manifest::of_this_build()?,
            is_introduced: false,
            started: Instant::now(),
            cpu: None,
            pending: pending.unwrap_or_default(),
        })
    }

    /// Heartbeats until it is dropped.
    pub(crate) async fn run(mut self) {
        let period = self.config.period.0;
        let mut failures = 0u32;
        loop {
            match self.beat().await {
                Ok(()) => {
                    if failures > 0 {
                        tracing::info!(url = self.config.heartbeat_url, "control plane is back");
                    }
                    failures = 0;
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    if failures == 1 {
                        tracing::warn!(
                            error = base::report(&error),
                            "the control plane is away; the flow goes on"
                        );
                    }
                }
            }
            let pause = back_off(period, failures);
            tokio::time::sleep(pause).await;
        }
    }

    /// One exchange: what waits to be acknowledged, then the heartbeat and what it brings.
    async fn beat(&mut self) -> Result<(), AgentError> {
        self.deliver().await?;
        let heartbeat = self.heartbeat();
        let body = heartbeat
            .to_vec()
            .map_err(|error| control_error("heartbeat", error))?;
        let answer = self.post(&self.config.heartbeat_url.clone(), body).await?;
        self.is_introduced = true;
        if answer.is_empty() {
            return Ok(());
        }
        let response = HeartbeatResponse::parse(&answer)
            .map_err(|error| control_error("understand the answer", error))?;
        for operation in response.requested_operations {
            let is_known = self
                .pending
                .iter()
                .any(|ack| ack.operation == operation.identifier);
            if !is_known {
                let ack = self.perform(&operation).await;
                self.keep(ack);
            }
        }
        self.deliver().await
    }

    async fn perform(&mut self, operation: &Operation) -> PendingAck {
        let (state, details) = match (&operation.kind, &operation.operand) {
            (OperationKind::Describe, Some(Operand::Manifest)) => {
                (AckState::FullyApplied, String::new())
            }
            (OperationKind::Update, Some(Operand::Configuration)) => {
                match self.update(operation).await {
                    Ok(Updated::Applied) => (AckState::FullyApplied, String::new()),
                    Ok(Updated::Same) => {
                        (AckState::NoOperation, "the flow runs already".to_owned())
                    }
                    Err(error) => (AckState::NotApplied, base::report(&error)),
                }
            }
            (kind, operand) => {
                let operand = operand.as_ref().map_or("", Operand::as_str);
                let what = format!("{} {operand} is not supported", kind.as_str());
                (AckState::OperationNotUnderstood, what)
            }
        };
        tracing::info!(
            operation = operation.kind.as_str(),
            id = operation.identifier,
            state = state.as_str(),
            details,
            "operation of the control plane"
        );
        PendingAck {
            operation: operation.identifier.clone(),
            describes: operation.kind == OperationKind::Describe && state == AckState::FullyApplied,
            state: state.as_str().to_owned(),
            details,
        }
    }

    /// Fetches a flow and has it run.
    async fn update(&mut self, operation: &Operation) -> Result<Updated, AgentError> {
        let flow_id = operation.arg("flowId");
        let text = match operation.arg("configuration_data") {
            Some(inline) => inline,
            None => {
                let url = self.flow_url(operation)?;
                self.fetch(&url).await?
            }
        };
        let supervisor = Arc::clone(&self.supervisor);
        // Stopping a flow waits for its processors.
        tokio::task::spawn_blocking(move || supervisor.update(flow_id, &text))
            .await
            .map_err(|error| control_error("update the flow", error))?
    }

    fn flow_url(&self, operation: &Operation) -> Result<String, AgentError> {
        let found = ["flowUrl", "location", "relativeFlowUrl"].iter();
        let url = found
            .filter_map(|name| operation.arg(name))
            .find(|url| !url.is_empty());
        let Some(url) = url else {
            return Err(AgentError::Setting(
                "the operation names no flowUrl and no location".to_owned(),
            ));
        };
        if url.starts_with("http://") || url.starts_with("https://") {
            return Ok(url);
        }
        Ok(format!(
            "{}/{}",
            self.config.flow_base_url.trim_end_matches('/'),
            url.trim_start_matches('/')
        ))
    }

    async fn fetch(&self, url: &str) -> Result<String, AgentError> {
        let request = self.client.get(url).header("Accept", FLOW_FORMATS);
        let body = bounded(request, FLOW_TEXT_BYTES_MAX).await?;
        String::from_utf8(body).map_err(|error| control_error("read the flow", error))
    }

    /// Puts an acknowledgement on record before it is sent.
    fn keep(&mut self, ack: PendingAck) {
        if self.pending.len() == PENDING_ACKNOWLEDGEMENTS_MAX {
            self.pending.remove(0);
        }
        self.pending.push(ack);
        self.save();
    }

    fn save(&self) {
        let bytes = serde_json::to_vec(&self.pending).expect("texts are always JSON");
        if let Err(error) = self
            .supervisor
            .repository()
            .save_state(PENDING_STATE, Bytes::from(bytes))
        {
            tracing::error!(
                error = base::report(&error),
                "acknowledgements are not on record"
            );
        }
    }

    async fn deliver(&mut self) -> Result<(), AgentError> {
        while let Some(ack) = self.pending.first() {
            let body = self
                .acknowledge(ack)
                .to_vec()
                .map_err(|error| control_error("acknowledge", error))?;
            self.post(&self.config.acknowledge_url.clone(), body)
                .await?;
            self.pending.remove(0);
            self.save();
        }
        Ok(())
    }

    fn acknowledge(&self, pending: &PendingAck) -> Acknowledge {
        let state = AckState::from(pending.state.as_str());
        let mut ack = Acknowledge::new(&pending.operation, state);
        if let Some(state) = &mut ack.operation_state
            && !pending.details.is_empty()
        {
            state.details = Some(pending.details.clone());
        }
        if pending.describes {
            let mut agent = self.agent_info();
            agent.agent_manifest = Some(self.manifest.json.clone());
            ack.agent_info = Some(agent);
            ack.device_info = Some(self.device_info());
            ack.flow_info = Some(self.flow_info());
        }
        ack
    }

    async fn post(&self, url: &str, body: Vec<u8>) -> Result<Vec<u8>, AgentError> {
        let request = self
            .client
            .post(url)
            .header("Content-Type", "application/json")
            .body(body);
        bounded(request, CONTROL_ANSWER_BYTES_MAX).await
    }

    fn heartbeat(&mut self) -> Heartbeat {
        let mut agent = self.agent_info();
        if !self.is_introduced {
            agent.agent_manifest = Some(self.manifest.json.clone());
        }
        agent.status = Some(self.status());
        Heartbeat {
            created: Some(self.supervisor.clock().now().0),
            operation: Some("heartbeat".to_owned()),
            device_info: Some(self.device_info()),
            agent_info: Some(agent),
            flow_info: Some(self.flow_info()),
            agent_id: Some(self.config.identifier.clone()),
            agent_class: self.config.class.clone(),
            ..Heartbeat::default()
        }
    }

    fn agent_info(&self) -> AgentInfo {
        AgentInfo {
            identifier: Some(self.config.identifier.clone()),
            agent_class: self.config.class.clone(),
            agent_manifest_hash: Some(self.manifest.hash.clone()),
            ..AgentInfo::default()
        }
    }

    fn status(&mut self) -> AgentStatus {
        let repository = self.supervisor.repository().status();
        let queued = self
            .supervisor
            .queues()
            .iter()
            .map(|queue| queue.flow_files)
            .sum::<u64>();
        let flow_files = RepositoryStatus {
            size: Some(signed(queued + repository.parked)),
            data_size: Some(signed(repository.bytes_on_disk)),
            running: Some(true),
            ..RepositoryStatus::default()
        };
        let controller = ComponentStatus {
            running: Some(self.supervisor.is_running()),
            ..Default::default()
        };
        let now = Instant::now();
        let used = host::cpu_time();
        let cpu = match (self.cpu, used) {
            (Some((since, before)), Some(used)) => {
                let wall = (now - since).as_secs_f64().max(0.001);
                Some(used.saturating_sub(before).as_secs_f64() / wall / host::cores() as f64)
            }
            _ => None,
        };
        self.cpu = used.map(|used| (now, used));
        AgentStatus {
            uptime: Some(i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)),
            repositories: BTreeMap::from([("flowFile".to_owned(), flow_files)]),
            components: BTreeMap::from([("FlowController".to_owned(), controller)]),
            resource_consumption: Some(ResourceConsumption {
                memory_usage: host::resident_bytes().map(signed),
                cpu_utilization: cpu,
                ..ResourceConsumption::default()
            }),
            ..AgentStatus::default()
        }
    }

    fn device_info(&self) -> DeviceInfo {
        let total = host::memory("MemTotal");
        let available = host::memory("MemAvailable");
        let peer = self
            .config
            .heartbeat_url
            .split("://")
            .nth(1)
            .and_then(|r| r.split('/').next());
        let hostname = host::hostname();
        DeviceInfo {
            identifier: Some(hostname.clone()),
            system_info: Some(SystemInfo {
                machine_arch: Some(host::architecture()),
                operating_system: Some("Linux".to_owned()),
                physical_mem: total.map(signed),
                v_cores: i64::try_from(host::cores()).ok(),
                memory_usage: total
                    .zip(available)
                    .map(|(t, a)| signed(t.saturating_sub(a))),
                cpu_load_average: host::load(),
                ..SystemInfo::default()
            }),
            network_info: Some(NetworkInfo {
                hostname: Some(hostname),
                ip_address: peer.and_then(host::address_towards),
                ..NetworkInfo::default()
            }),
            ..DeviceInfo::default()
        }
    }

    fn flow_info(&self) -> FlowInfo {
        let supervisor = &self.supervisor;
        let queues = supervisor.queues().into_iter().map(|queue| {
            let status = QueueStatus {
                name: Some(queue.name),
                uuid: Some(queue.id.clone()),
                size: Some(signed(queue.flow_files)),
                size_max: Some(signed(queue.flow_files_max)),
                data_size: Some(signed(queue.bytes)),
                data_size_max: Some(signed(queue.bytes_max)),
                ..QueueStatus::default()
            };
            (queue.id, status)
        });
        let is_running = supervisor.is_running();
        let run_status = if is_running { "RUNNING" } else { "STOPPED" };
        let processors = supervisor.nodes().into_iter().map(|node| ProcessorStatus {
            id: Some(node.id),
            group_id: Some(node.group_id),
            bytes_read: Some(signed(node.bytes_read)),
            bytes_written: Some(signed(node.bytes_written)),
            flow_files_in: Some(signed(node.flow_files_in)),
            flow_files_out: Some(signed(node.flow_files_out)),
            bytes_in: Some(signed(node.bytes_in)),
            bytes_out: Some(signed(node.bytes_out)),
            invocations: Some(signed(node.invocations)),
            processing_nanos: Some(signed(node.nanos)),
            active_thread_count: Some(i64::from(node.is_active)),
            terminated_thread_count: Some(0),
            run_status: Some(run_status.to_owned()),
            ..ProcessorStatus::default()
        });
        let now = supervisor.clock().now();
        let bulletins = supervisor.bulletins().since(now, BULLETIN_AGE).into_iter();
        let bulletins = bulletins.map(|bulletin| ProcessorBulletin {
            id: Some(bulletin.id),
            timestamp: Some(bulletin.timestamp.0),
            level: Some(bulletin.level.as_str().to_owned()),
            category: Some("Log Message".to_owned()),
            message: Some(bulletin.message),
            group_id: Some(bulletin.group_id),
            source_id: Some(bulletin.source_id),
            source_name: Some(bulletin.source_name),
            ..ProcessorBulletin::default()
        });
        FlowInfo {
            flow_id: supervisor.flow_id(),
            queues: queues.collect(),
            processor_bulletins: bulletins.collect(),
            processor_statuses: processors.collect(),
            run_status: Some(run_status.to_owned()),
            ..FlowInfo::default()
        }
    }
}

async fn bounded(
    request: reqwest::RequestBuilder,
    bytes_max: usize,
) -> Result<Vec<u8>, AgentError> {
    let mut answer = request
        .send()
        .await
        .map_err(|error| control_error("send a request", error))?;
    let status = answer.status();
    if !status.is_success() {
        let url = answer.url().clone();
        let reason = format!("{url} answered {status}");
        return Err(control_error("get an answer", reason));
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer
        .chunk()
        .await
        .map_err(|error| control_error("read an answer", error))?
    {
        if body.len() + chunk.len() > bytes_max {
            let reason = format!("it is longer than {bytes_max} bytes");
            return Err(control_error("read an answer", reason));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The pause after so many failures in a row: doubled each time, with up to a quarter more, so
/// that a fleet does not come back as one.
fn back_off(period: Duration, failures: u32) -> Duration {
    if failures == 0 {
        return period;
    }
    let doubled = period
        .saturating_mul(1 << failures.min(16))
        .min(CONTROL_BACK_OFF_MAX);
    let pause = doubled.max(period);
    let jitter = base::Rng::from_entropy().below(1 + pause.as_millis() as u64 / 4);
    pause + Duration::from_millis(jitter)
}

fn control_error(
    action: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> AgentError {
    AgentError::Control {
        action,
        source: source.into(),
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The repository's key of acknowledgements that wait.
const PENDING_STATE: &str = "$acknowledgements";

/// What a flow may come as.
const FLOW_FORMATS: &str = "application/json, text/yml, application/vnd.minifi-c2+yaml;version=2";

/// Longest wait for a connection, as Java agents have it.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Longest wait for a whole exchange.
const CALL_WAIT: Duration = Duration::from_secs(30);

/// Bulletins younger than this are in each heartbeat, as C++ agents send them.
const BULLETIN_AGE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_with_failures_and_is_bounded() {
        let period = Duration::from_secs(5);
        assert_eq!(back_off(period, 0), period);
        assert!(back_off(period, 1) >= Duration::from_secs(10));
        assert!(back_off(period, 60) <= CONTROL_BACK_OFF_MAX * 5 / 4);
    }
}
