//! A processor's place in a running flow: its connections, what it did, and whether it may run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use base::UnixMillis;

use super::Wake;
use crate::connection::{Available, Connection};
use crate::definition::{ProcessorDefinition, Scheduling};
use crate::processors::Input;

/// A processor's place in a running flow.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) group_id: String,
    pub(crate) inputs: Vec<Arc<Connection>>,
    /// Connections by the index of the relationship.
    pub(crate) outputs: Vec<Vec<Arc<Connection>>>,
    /// Names of relationships, by their index, that nothing takes and that are not auto-terminated.
    pub(crate) loose: Vec<Option<String>>,
    pub(crate) penalization: Duration,
    pub(crate) stats: NodeStats,
    pub(super) definition: ProcessorDefinition,
    pub(super) wake: Arc<Wake>,
    /// Tasks that are at work.
    pub(super) active: AtomicU32,
}

/// What a processor did since the flow started.
#[derive(Debug, Default)]
pub(crate) struct NodeStats {
    pub(crate) flow_files_in: AtomicU64,
    pub(crate) flow_files_out: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) invocations: AtomicU64,
    pub(crate) nanos: AtomicU64,
}

/// A processor's numbers, for the control plane.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are C2's own")]
pub struct NodeStatus {
    pub id: String,
    pub name: String,
    pub kind: &'static str,
    pub group_id: String,
    pub flow_files_in: u64,
    pub flow_files_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub invocations: u64,
    pub nanos: u64,
    pub is_active: bool,
    pub is_running: bool,
}

/// A connection's numbers, for the control plane.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are C2's own")]
pub struct QueueStatus {
    pub id: String,
    pub name: String,
    pub flow_files: u64,
    pub flow_files_max: u64,
    pub bytes: u64,
    pub bytes_max: u64,
}

impl Node {
    pub(super) fn new(p: &ProcessorDefinition, all: &[Arc<Connection>], wake: Arc<Wake>) -> Self {
        let is_input = |c: &&Arc<Connection>| c.definition.destination == p.id;
        let (mut outputs, mut loose) = (Vec::new(), Vec::new());
        for relationship in p.relationships() {
            let is_output = |c: &&Arc<Connection>| {
                c.definition.source == p.id && c.definition.relationships.contains(&relationship)
            };
            let connections: Vec<_> = all.iter().filter(is_output).cloned().collect();
            let ends = !connections.is_empty() || p.auto_terminated.contains(&relationship);
            outputs.push(connections);
            loose.push((!ends).then_some(relationship));
        }
        Node {
            id: p.id.clone(),
            name: p.name.clone(),
            group_id: p.group_id.clone(),
            inputs: all.iter().filter(is_input).cloned().collect(),
            outputs,
            loose,
            penalization: p.penalization,
            stats: NodeStats::default(),
            definition: p.clone(),
            wake,
            active: AtomicU32::new(0),
        }
    }

    /// What kind of processor it is.
    pub(crate) fn kind_name(&self) -> &'static str {
        self.definition.kind.name
    }

    /// Whether it runs on input only.
    pub(super) fn has_input(&self) -> bool {
        match self.definition.kind.input {
            Input::Required => true,
            Input::Forbidden => false,
            // A funnel that nothing leads to has nothing to do, ever.
            Input::Allowed => {
                !self.inputs.is_empty() || self.definition.scheduling == Scheduling::EventDriven
            }
        }
    }

    /// Whether the flow sets a period that passes between two sessions.
    pub(super) fn is_throttled(&self) -> bool {
        match self.definition.scheduling {
            Scheduling::TimerDriven { period, is_set } => is_set && !period.is_zero(),
            _ => false,
        }
    }

    pub(super) fn input(&self, now: UnixMillis) -> Available {
        let mut best = Available::Nothing;
        for input in &self.inputs {
            match (input.available(now), best) {
                (Available::Now, _) => return Available::Now,
                (Available::At(at), Available::At(before)) if at >= before => {}
                (Available::At(at), _) => best = Available::At(at),
                (Available::Nothing, _) => {}
            }
        }
        best
    }

    /// Whether an outgoing connection is full, and no full loop must be let out.
    pub(super) fn has_no_room(&self) -> bool {
        let is_full = |connection: &Arc<Connection>| connection.is_full();
        self.outputs.iter().flatten().any(is_full)
            && !self
                .inputs
                .iter()
                .any(|input| input.in_cycle && input.is_full())
    }

    pub(super) fn status(&self) -> NodeStatus {
        let stats = &self.stats;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NodeStatus {
            id: self.id.clone(),
            name: self.name.clone(),
            kind: self.definition.kind.name,
            group_id: self.group_id.clone(),
            flow_files_in: load(&stats.flow_files_in),
            flow_files_out: load(&stats.flow_files_out),
            bytes_in: load(&stats.bytes_in),
            bytes_out: load(&stats.bytes_out),
            bytes_read: load(&stats.bytes_read),
            bytes_written: load(&stats.bytes_written),
            invocations: load(&stats.invocations),
            nanos: load(&stats.nanos),
            is_active: self.active.load(Ordering::Relaxed) > 0,
            is_running: !self.wake.is_held.load(Ordering::Relaxed),
        }
    }
}
