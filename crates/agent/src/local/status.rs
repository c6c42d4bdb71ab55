//! How an agent is doing, as its socket tells it.

use serde::{Deserialize, Serialize};

use crate::host;
use crate::supervisor::{Stop, Supervisor};

/// How an agent is doing. Counters are since the flow started; sizes are bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StatusView {
    pub(crate) version: String,
    pub(crate) pid: u32,
    /// Milliseconds since 1970.
    pub(crate) time_ms: i64,
    /// Since the agent started.
    pub(crate) uptime_ms: u64,
    pub(crate) flow_id: Option<String>,
    pub(crate) flow_name: Option<String>,
    pub(crate) is_running: bool,
    pub(crate) is_paused: bool,
    /// Why the flow does not run: `operator`, `disk`.
    pub(crate) stopped_by: Vec<String>,
    pub(crate) processors: Vec<ProcessorView>,
    pub(crate) queues: Vec<QueueView>,
    pub(crate) repository: RepositoryView,
    /// The newest last.
    pub(crate) bulletins: Vec<BulletinView>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) cpu_ms: Option<u64>,
}

/// A processor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessorView {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) is_running: bool,
    pub(crate) is_active: bool,
    pub(crate) flow_files_in: u64,
    pub(crate) flow_files_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) invocations: u64,
    pub(crate) processing_ns: u64,
}

/// A connection. A bound of 0 is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct QueueView {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) flow_files: u64,
    pub(crate) flow_files_max: u64,
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
}

/// The repository.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RepositoryView {
    pub(crate) bytes_on_disk: u64,
    pub(crate) content_bytes: u64,
    pub(crate) provenance_bytes: u64,
    /// Whether the disk had no room when it was last wanted.
    pub(crate) is_full: bool,
    /// FlowFiles of connections that the flow does not have.
    pub(crate) parked: u64,
}

/// A bulletin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BulletinView {
    pub(crate) time_ms: i64,
    pub(crate) level: String,
    pub(crate) source: String,
    pub(crate) message: String,
}

impl StatusView {
    /// How it is now.
    pub(crate) fn of(supervisor: &Supervisor) -> StatusView {
        let now = supervisor.clock().now();
        let repository = supervisor.repository().status();
        let bulletins = supervisor.bulletins().since(now, BULLETIN_AGE);
        let newest = bulletins.len().saturating_sub(BULLETINS_SHOWN);
        StatusView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            time_ms: now.0,
            uptime_ms: u64::try_from(supervisor.uptime().as_millis()).unwrap_or(u64::MAX),
            flow_id: supervisor.flow_id(),
            flow_name: supervisor.flow_name(),
            is_running: supervisor.is_running(),
            is_paused: supervisor.is_paused(),
            stopped_by: supervisor.stops().into_iter().map(word).collect(),
            processors: supervisor.nodes().into_iter().map(processor).collect(),
            queues: supervisor.queues().into_iter().map(queue).collect(),
            repository: RepositoryView {
                bytes_on_disk: repository.bytes_on_disk,
                content_bytes: repository.content_bytes,
                provenance_bytes: repository.provenance.bytes,
                is_full: repository.is_full,
                parked: repository.parked,
            },
            bulletins: bulletins.into_iter().skip(newest).map(bulletin).collect(),
            resident_bytes: host::resident_bytes(),
            cpu_ms: host::cpu_time().and_then(|time| u64::try_from(time.as_millis()).ok()),
        }
    }
}

fn word(stop: Stop) -> String {
    let word = match stop {
        Stop::Operator => "operator",
        Stop::Disk => "disk",
        Stop::ReadOnly => "read-only disk",
    };
    word.to_owned()
}

fn processor(node: crate::engine::NodeStatus) -> ProcessorView {
    ProcessorView {
        id: node.id,
        name: node.name,
        kind: node.kind.to_owned(),
        is_running: node.is_running,
        is_active: node.is_active,
        flow_files_in: node.flow_files_in,
        flow_files_out: node.flow_files_out,
        bytes_in: node.bytes_in,
        bytes_out: node.bytes_out,
        bytes_read: node.bytes_read,
        bytes_written: node.bytes_written,
        invocations: node.invocations,
        processing_ns: node.nanos,
    }
}

fn queue(queue: crate::engine::QueueStatus) -> QueueView {
    QueueView {
        id: queue.id,
        name: queue.name,
        flow_files: queue.flow_files,
        flow_files_max: queue.flow_files_max,
        bytes: queue.bytes,
        bytes_max: queue.bytes_max,
    }
}

fn bulletin(bulletin: crate::bulletins::Bulletin) -> BulletinView {
    BulletinView {
        time_ms: bulletin.timestamp.0,
        level: bulletin.level.as_str().to_owned(),
        source: bulletin.source_name,
        message: bulletin.message,
    }
}

/// Bulletins that a status has at most: a screen's worth.
const BULLETINS_SHOWN: usize = 10;

/// And of this age at most.
const BULLETIN_AGE: std::time::Duration = std::time::Duration::from_secs(300);
