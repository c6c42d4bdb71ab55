//! The heartbeat: what an agent says of itself every few seconds.
//!
//! Units are the agents': bytes, milliseconds, nanoseconds where the name says so. Absent values
//! stay absent, and `-1` (the C++ agent's "unknown") stays `-1`.

use std::collections::BTreeMap;

use crate::error::C2Error;
use crate::wire::{self, RawJson, message};

message! {
    /// A heartbeat as either agent sends it.
    pub struct Heartbeat {
        /// When it was made, milliseconds since 1970 by the agent's clock (Java only).
        pub created: Option<i64> = "created",
        /// `heartbeat` (C++ only).
        pub operation: Option<String> = "operation",
        /// An identifier beside the sections, which some third-party agents send.
        pub identifier: Option<String> = "identifier",
        /// The machine.
        pub device_info: Option<DeviceInfo> = "deviceInfo",
        /// The agent.
        pub agent_info: Option<AgentInfo> = "agentInfo",
        /// The flow that it runs.
        pub flow_info: Option<FlowInfo> = "flowInfo",
        /// Its assets and extensions.
        pub resource_info: Option<ResourceInfo> = "resourceInfo",
        /// Java's repetition of `agentInfo.identifier`; of use only where the section is missing.
        pub agent_id: Option<String> = "agentId",
        /// Java's repetition of `agentInfo.agentClass`; of use only where the section is missing.
        pub agent_class: Option<String> = "agentClass",
    }
    drops "deviceId", "flowId", "agentManifestId"
}

message! {
    /// The machine on which an agent runs.
    pub struct DeviceInfo {
        /// The machine's own identifier.
        pub identifier: Option<String> = "identifier",
        /// Processor and memory.
        pub system_info: Option<SystemInfo> = "systemInfo",
        /// Name and address.
        pub network_info: Option<NetworkInfo> = "networkInfo",
    }
}

message! {
    /// Processor and memory of a machine.
    pub struct SystemInfo {
        /// Such as `x86_64` or `amd64`.
        pub machine_arch: Option<String> = "machineArch",
        /// Such as `Linux`.
        pub operating_system: Option<String> = "operatingSystem",
        /// Memory in all, bytes.
        pub physical_mem: Option<i64> = "physicalMem",
        /// Logical processors.
        pub v_cores: Option<i64> = "vCores",
        /// Memory in use, bytes.
        pub memory_usage: Option<i64> = "memoryUsage",
        /// Share of the processors in use; -1 where the agent could not tell.
        pub cpu_utilization: Option<f64> = "cpuUtilization",
        /// The load average of the last minute.
        pub cpu_load_average: Option<f64> = "cpuLoadAverage",
    }
}

message! {
    /// Name and address of a machine.
    pub struct NetworkInfo {
        /// The interface's name.
        pub device_id: Option<String> = "deviceId",
        /// The host's name, or its address where it has none.
        pub hostname: Option<String> = "hostname",
        /// The address.
        pub ip_address: Option<String> = "ipAddress",
    }
}

message! {
    /// An agent.
    pub struct AgentInfo {
        /// Who it is: stable over restarts.
        pub identifier: Option<String> = "identifier",
        /// Its class; a C++ agent may have none.
        pub agent_class: Option<String> = "agentClass",
        /// An opaque key of the manifest: each agent type hashes in its own way.
        pub agent_manifest_hash: Option<String> = "agentManifestHash",
        /// The manifest as it came, up to a megabyte; read it with `AgentManifest::parse`.
        pub agent_manifest: Option<RawJson> = "agentManifest",
        /// How it is doing.
        pub status: Option<AgentStatus> = "status",
    }
}

message! {
    /// How an agent is doing.
    pub struct AgentStatus {
        /// Milliseconds since it started.
        pub uptime: Option<i64> = "uptime",
        /// Its repositories under names of its own choice.
        pub repositories: BTreeMap<String, RepositoryStatus> = "repositories",
        /// Its components by name (C++ only); of components with one name the last one stays.
        pub components: BTreeMap<String, ComponentStatus> = "components",
        /// Memory and processor that the agent's process uses.
        pub resource_consumption: Option<ResourceConsumption> = "resourceConsumption",
    }
}

message! {
    /// What the agent's process uses.
    pub struct ResourceConsumption {
        /// Resident memory, bytes.
        pub memory_usage: Option<i64> = "memoryUsage",
        /// Share of the processors; -1 where the agent could not tell.
        pub cpu_utilization: Option<f64> = "cpuUtilization",
    }
}

message! {
    /// A repository: Java counts size and data size, C++ entries.
    pub struct RepositoryStatus {
        /// FlowFiles or entries.
        pub size: Option<i64> = "size",
        /// Bound of `size`.
        pub size_max: Option<i64> = "sizeMax" | "maxSize",
        /// Bytes.
        pub data_size: Option<i64> = "dataSize",
        /// Bound of `data_size`, bytes.
        pub data_size_max: Option<i64> = "dataSizeMax",
        /// `size` over its bound.
        pub size_utilization: Option<f64> = "sizeUtilization",
        /// `data_size` over its bound.
        pub data_size_utilization: Option<f64> = "dataSizeUtilization",
        /// Whether it runs (C++ only).
        pub running: Option<bool> = "running",
        /// Whether it is full (C++ only).
        pub full: Option<bool> = "full",
        /// Entries (C++ only).
        pub entry_count: Option<i64> = "entryCount",
    }
}

message! {
    /// A component of the agent (C++ only).
    pub struct ComponentStatus {
        /// Whether it runs.
        pub running: Option<bool> = "running",
        /// Its id in the flow.
        pub uuid: Option<String> = "uuid",
    }
}

message! {
    /// The flow that an agent runs.
    pub struct FlowInfo {
        /// The flow's id: the one that the last update named.
        pub flow_id: Option<String> = "flowId",
        /// Where the agent had it from.
        pub flow_uri: Option<String> = "flowUri",
        /// The registry's address of the flow, where it has one.
        pub versioned_flow_snapshot_uri: Option<RawJson> =
            "versionedFlowSnapshotURI" | "versionedFlowSnapshotUri",
        /// Queues by connection id.
        pub queues: BTreeMap<String, QueueStatus> = "queues",
        /// Components by name (C++ only).
        pub components: BTreeMap<String, ComponentStatus> = "components",
        /// Recent bulletins; the C++ agent repeats those of the last five minutes each time.
        pub processor_bulletins: Vec<ProcessorBulletin> = "processorBulletins",
        /// Counters of each processor.
        pub processor_statuses: Vec<ProcessorStatus> = "processorStatuses",
        /// `RUNNING` or `STOPPED`.
        pub run_status: Option<String> = "runStatus",
    }
}

message! {
    /// A connection's queue.
    pub struct QueueStatus {
        /// The connection's name (C++ only).
        pub name: Option<String> = "name",
        /// The connection's id (C++ only; for Java it is the key).
        pub uuid: Option<String> = "uuid",
        /// FlowFiles.
        pub size: Option<i64> = "size",
        /// Bound of `size`; 0 means none.
        pub size_max: Option<i64> = "sizeMax",
        /// Bytes.
        pub data_size: Option<i64> = "dataSize" | "datasize",
        /// Bound of `data_size`, bytes; 0 means none.
        pub data_size_max: Option<i64> = "dataSizeMax",
        /// `size` over its bound.
        pub size_utilization: Option<f64> = "sizeUtilization",
        /// `data_size` over its bound.
        pub data_size_utilization: Option<f64> = "dataSizeUtilization",
    }
}

message! {
    /// A warning or an error that a processor gave.
    pub struct ProcessorBulletin {
        /// Grows with every bulletin of the agent.
        pub id: Option<i64> = "id",
        /// Milliseconds since 1970.
        pub timestamp: Option<i64> = "timestamp",
        /// `DEBUG`, `INFO`, `WARN` or `ERROR`.
        pub level: Option<String> = "level",
        /// Such as `Log Message`.
        pub category: Option<String> = "category",
        /// The text.
        pub message: Option<String> = "message",
        /// The process group's id.
        pub group_id: Option<String> = "groupId",
        /// The process group's name.
        pub group_name: Option<String> = "groupName",
        /// The process group's path.
        pub group_path: Option<String> = "groupPath",
        /// The processor's id.
        pub source_id: Option<String> = "sourceId",
        /// The processor's name.
        pub source_name: Option<String> = "sourceName",
        /// The FlowFile that it is about.
        pub flow_file_uuid: Option<String> = "flowFileUuid",
        /// The node of a NiFi cluster.
        pub node_address: Option<String> = "nodeAddress",
    }
}

message! {
    /// Counters of a processor since its last report.
    pub struct ProcessorStatus {
        /// The processor's id.
        pub id: Option<String> = "id",
        /// Its process group's id.
        pub group_id: Option<String> = "groupId",
        /// Content bytes read.
        pub bytes_read: Option<i64> = "bytesRead",
        /// Content bytes written.
        pub bytes_written: Option<i64> = "bytesWritten",
        /// FlowFiles taken.
        pub flow_files_in: Option<i64> = "flowFilesIn",
        /// FlowFiles passed on.
        pub flow_files_out: Option<i64> = "flowFilesOut",
        /// Bytes of the FlowFiles taken.
        pub bytes_in: Option<i64> = "bytesIn",
        /// Bytes of the FlowFiles passed on.
        pub bytes_out: Option<i64> = "bytesOut",
        /// Runs.
        pub invocations: Option<i64> = "invocations",
        /// Time spent, nanoseconds.
        pub processing_nanos: Option<i64> = "processingNanos",
        /// Threads at work; -1 from C++.
        pub active_thread_count: Option<i64> = "activeThreadCount",
        /// Threads given up; -1 from C++.
        pub terminated_thread_count: Option<i64> = "terminatedThreadCount",
        /// `RUNNING` or `STOPPED`, from agents that can stop single processors.
        pub run_status: Option<String> = "runStatus",
    }
}

message! {
    /// An agent's assets and extensions.
    pub struct ResourceInfo {
        /// The digest that the fleet gave with the last sync; see [`ResourceInfo::digest`].
        pub hash: Option<String> = "hash",
    }
}

impl Heartbeat {
    /// Reads a heartbeat from a request's body.
    pub fn parse(bytes: &[u8]) -> Result<Heartbeat, C2Error> {
        wire::from_slice("heartbeat", bytes)
    }

    /// Writes the heartbeat as a request's body.
    pub fn to_vec(&self) -> Result<Vec<u8>, C2Error> {
        wire::to_vec("heartbeat", self)
    }

    /// Who sends: the agent section's identifier, or what stands in its place at the top.
    pub fn sender(&self) -> Option<&str> {
        let section = self
            .agent_info
            .as_ref()
            .and_then(|agent| filled(&agent.identifier));
        section
            .or_else(|| filled(&self.agent_id))
            .or_else(|| filled(&self.identifier))
    }

    /// The class that the agent says it belongs to.
    pub fn class(&self) -> Option<&str> {
        let section = self
            .agent_info
            .as_ref()
            .and_then(|agent| filled(&agent.agent_class));
        section.or_else(|| filled(&self.agent_class))
    }

    /// The flow that the agent says it runs.
    pub fn flow_id(&self) -> Option<&str> {
        self.flow_info
            .as_ref()
            .and_then(|flow| filled(&flow.flow_id))
    }
}

impl ResourceInfo {
    /// The digest of the last sync; the C++ agent writes the word `null` before its first.
    pub fn digest(&self) -> Option<&str> {
        filled(&self.hash).filter(|hash| *hash != "null")
    }
}

/// The text, unless it is empty: an empty name names nothing.
pub(crate) fn filled(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}
