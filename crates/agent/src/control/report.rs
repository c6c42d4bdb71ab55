//! What the agent tells of itself: the parts of heartbeats, and what DESCRIBE asks for.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use c2::{
    Acknowledge, AgentInfo, AgentStatus, ComponentStatus, DeviceInfo, FlowInfo, Heartbeat,
    NetworkInfo, ProcessorBulletin, ProcessorStatus, QueueStatus, RawJson, RepositoryStatus,
    ResourceConsumption, ResourceInfo, SystemInfo,
};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::config::{ControlConfig, Root};
use super::link::control_error;
use crate::AgentError;
use crate::assets::{Assets, hex};
use crate::host::{self, CpuMeter};
use crate::manifest::Manifest;
use crate::properties::Told;
use crate::supervisor::{CONTROLLER, Supervisor};

/// Writes what the agent tells.
pub(super) struct Reporter {
    config: ControlConfig,
    supervisor: Arc<Supervisor>,
    assets: Arc<Assets>,
    manifest: Manifest,
    told: Arc<Told>,
    process: CpuMeter,
    system: CpuMeter,
    /// Digests of the sections as they were last heard.
    heard: BTreeMap<&'static str, u64>,
}

impl Reporter {
    pub(super) fn new(
        config: ControlConfig,
        supervisor: Arc<Supervisor>,
        assets: Arc<Assets>,
        told: Arc<Told>,
    ) -> Result<Reporter, AgentError> {
        Ok(Reporter {
            config,
            supervisor,
            assets,
            manifest: Manifest::of_this_build()?,
            told,
            process: CpuMeter::default(),
            system: CpuMeter::default(),
            heard: BTreeMap::new(),
        })
    }

    /// A heartbeat of the parts that the settings name.
    pub(super) fn heartbeat(&mut self, has_manifest: bool) -> Result<Heartbeat, AgentError> {
        let has = |root: Root| self.config.roots.contains(&root);
        let (device, flow) = (has(Root::Device), has(Root::Flow));
        let (assets, checksums) = (has(Root::Assets), has(Root::Checksums));
        let mut agent = self.agent_info();
        if has_manifest {
            agent.agent_manifest = Some(self.manifest.json.clone());
        }
        agent.status = Some(self.status());
        let mut heartbeat = Heartbeat {
            created: Some(self.supervisor.clock().now().0),
            operation: Some("heartbeat".to_owned()),
            device_info: device.then(|| self.device_info()),
            agent_info: Some(agent),
            flow_info: flow.then(|| self.flow_info()),
            resource_info: assets.then(|| self.resource_info()),
            agent_id: Some(self.config.identifier.clone()),
            agent_class: self.config.class.clone(),
            ..Heartbeat::default()
        };
        if checksums {
            let sums = raw(&self.checksums())?;
            heartbeat
                .other
                .insert("configurationChecksums".to_owned(), sums);
        }
        Ok(heartbeat)
    }

    /// Leaves out what the control plane heard last time, where the settings say so; `is_heard`
    /// says whether the last heartbeat arrived.
    pub(super) fn minimize(&mut self, heartbeat: &mut Heartbeat, is_heard: bool) {
        if !self.config.is_minimized {
            return;
        }
        if !is_heard {
            self.heard.clear();
        }
        leave_out(&mut self.heard, "deviceInfo", &mut heartbeat.device_info);
        leave_out(&mut self.heard, "flowInfo", &mut heartbeat.flow_info);
        leave_out(
            &mut self.heard,
            "resourceInfo",
            &mut heartbeat.resource_info,
        );
    }

    /// Adds to an acknowledgement what was asked for: `manifest`, `configuration`, `jstack`,
    /// `corecomponentstate`, `metrics`, or `metrics CLASS`.
    pub(super) fn describe(&mut self, what: &str, ack: &mut Acknowledge) -> Result<(), AgentError> {
        match what {
            "manifest" => {
                let mut agent = self.agent_info();
                agent.agent_manifest = Some(self.manifest.json.clone());
                ack.agent_info = Some(agent);
                ack.device_info = Some(self.device_info());
                ack.flow_info = Some(self.flow_info());
                ack.resource_info = Some(self.resource_info());
                ack.configuration_options = Some(raw(&self.told.shown())?);
            }
            "configuration" => ack.configuration_options = Some(raw(&self.told.shown())?),
            "jstack" => {
                for thread in host::threads() {
                    let lines = thread.lines.into_iter().map(|line| (line.clone(), line));
                    let lines: BTreeMap<String, String> = lines.collect();
                    ack.other.insert(thread.name, raw(&lines)?);
                }
            }
            "corecomponentstate" => {
                let states = raw(&self.component_states())?;
                ack.other.insert("corecomponentstate".to_owned(), states);
            }
            metrics => {
                let class = metrics.strip_prefix("metrics").unwrap_or_default().trim();
                let label = if class.is_empty() { "metrics" } else { class };
                let all = self.metrics(class)?;
                ack.other.insert(label.to_owned(), raw(&all)?);
            }
        }
        Ok(())
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
        AgentStatus {
            uptime: Some(i64::try_from(self.supervisor.uptime().as_millis()).unwrap_or(i64::MAX)),
            repositories: repositories(&self.supervisor),
            components: components(&self.supervisor),
            resource_consumption: Some(ResourceConsumption {
                memory_usage: host::resident_bytes().map(signed),
                cpu_utilization: self.process.process(),
                ..ResourceConsumption::default()
            }),
            ..AgentStatus::default()
        }
    }

    fn device_info(&mut self) -> DeviceInfo {
        let total = host::memory("MemTotal");
        let available = host::memory("MemAvailable");
        let peer = self
            .config
            .heartbeat_url
            .split("://")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
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
                cpu_utilization: self.system.system(),
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
        FlowInfo {
            flow_id: supervisor.flow_id(),
            queues: queues(supervisor),
            components: components(supervisor),
            processor_bulletins: bulletins(supervisor, self.config.bulletins_max),
            processor_statuses: processors(supervisor),
            run_status: Some(run_status(supervisor.is_running()).to_owned()),
            ..FlowInfo::default()
        }
    }

    fn resource_info(&self) -> ResourceInfo {
        ResourceInfo {
            hash: self.assets.digest(),
            ..ResourceInfo::default()
        }
    }

    /// SHA-256 of what configures the agent, by file.
    fn checksums(&self) -> BTreeMap<&'static str, BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        if let Some((path, text)) = self.supervisor.flow_text() {
            let digest = hex(&Sha256::digest(text.as_bytes()));
            files.insert(path.display().to_string(), digest);
        }
        for path in self.told.files() {
            if let Ok(bytes) = std::fs::read(path) {
                files.insert(path.display().to_string(), hex(&Sha256::digest(&bytes)));
            }
        }
        BTreeMap::from([("SHA256", files)])
    }

    /// What processors remember: as text where it is one, else how much.
    fn component_states(&self) -> BTreeMap<String, BTreeMap<&'static str, String>> {
        let repository = self.supervisor.repository();
        let states = self.supervisor.nodes().into_iter().filter_map(|node| {
            let state = repository
                .state(&node.id)
                .filter(|state| !state.is_empty())?;
            let shown = match std::str::from_utf8(&state) {
                Ok(text) if !text.contains(char::is_control) => text.to_owned(),
                _ => format!("{} bytes", state.len()),
            };
            Some((
                node.id,
                BTreeMap::from([("name", node.name), ("state", shown)]),
            ))
        });
        states.collect()
    }

    fn metrics(&mut self, class: &str) -> Result<BTreeMap<&'static str, RawJson>, AgentError> {
        let mut all = BTreeMap::new();
        let wants = |name: &str| class.is_empty() || class == name;
        if wants("QueueMetrics") {
            all.insert("QueueMetrics", raw(&queues(&self.supervisor))?);
        }
        if wants("RepositoryMetrics") {
            all.insert("RepositoryMetrics", raw(&repositories(&self.supervisor))?);
        }
        if wants("ProcessorMetrics") {
            all.insert("ProcessorMetrics", raw(&processors(&self.supervisor))?);
        }
        if wants("DeviceInfoNode") {
            all.insert("DeviceInfoNode", raw(&self.device_info())?);
        }
        if wants("FlowInformation") {
            all.insert("FlowInformation", raw(&self.flow_info())?);
        }
        if wants("AgentStatus") {
            all.insert("AgentStatus", raw(&self.status())?);
        }
        Ok(all)
    }
}

/// The classes that DESCRIBE metrics can name.
pub(super) const METRICS: &[&str] = &[
    "QueueMetrics",
    "RepositoryMetrics",
    "ProcessorMetrics",
    "DeviceInfoNode",
    "FlowInformation",
    "AgentStatus",
];

fn leave_out<T: Serialize>(
    heard: &mut BTreeMap<&'static str, u64>,
    name: &'static str,
    section: &mut Option<T>,
) {
    let Some(Ok(bytes)) = section.as_ref().map(serde_json::to_vec) else {
        return;
    };
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let digest = hasher.finish();
    if heard.insert(name, digest) == Some(digest) {
        *section = None;
    }
}

fn queues(supervisor: &Supervisor) -> BTreeMap<String, QueueStatus> {
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
    queues.collect()
}

fn repositories(supervisor: &Supervisor) -> BTreeMap<String, RepositoryStatus> {
    let repository = supervisor.repository().status();
    let queued: u64 = supervisor
        .queues()
        .iter()
        .map(|queue| queue.flow_files)
        .sum();
    let waiting = queued + repository.parked;
    let status = |entries: Option<u64>, bytes: u64| RepositoryStatus {
        size: entries.map(signed),
        entry_count: entries.map(signed),
        data_size: Some(signed(bytes)),
        running: Some(true),
        full: Some(repository.is_full),
        ..RepositoryStatus::default()
    };
    let mut content = status(None, repository.content_bytes);
    content.data_size_max = repository.content_bytes_max.map(signed);
    let provenance = &repository.provenance;
    BTreeMap::from([
        (
            "flowFile".to_owned(),
            status(Some(waiting), repository.bytes_on_disk),
        ),
        ("content".to_owned(), content),
        (
            "provenance".to_owned(),
            status(Some(provenance.blocks), provenance.bytes),
        ),
    ])
}

fn components(supervisor: &Supervisor) -> BTreeMap<String, ComponentStatus> {
    let status = |running: bool, uuid: Option<String>| ComponentStatus {
        running: Some(running),
        uuid,
        ..ComponentStatus::default()
    };
    let nodes = supervisor
        .nodes()
        .into_iter()
        .map(|node| (node.name, status(node.is_running, Some(node.id))));
    let mut all: BTreeMap<String, ComponentStatus> = nodes.collect();
    let controller = status(supervisor.is_running(), None);
    all.insert(CONTROLLER.to_owned(), controller);
    all
}

fn processors(supervisor: &Supervisor) -> Vec<ProcessorStatus> {
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
        run_status: Some(run_status(node.is_running).to_owned()),
        ..ProcessorStatus::default()
    });
    processors.collect()
}

fn bulletins(supervisor: &Supervisor, count_max: usize) -> Vec<ProcessorBulletin> {
    let now = supervisor.clock().now();
    let mut newest = supervisor.bulletins().since(now, BULLETIN_AGE);
    let newest = newest.split_off(newest.len().saturating_sub(count_max));
    let bulletins = newest.into_iter();
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
    bulletins.collect()
}

fn run_status(is_running: bool) -> &'static str {
    if is_running { "RUNNING" } else { "STOPPED" }
}

fn raw(value: &impl Serialize) -> Result<RawJson, AgentError> {
    RawJson::of(value).map_err(|error| control_error("describe the agent", error))
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Bulletins younger than this are in each heartbeat, as C++ agents send them.
const BULLETIN_AGE: Duration = Duration::from_secs(300);
