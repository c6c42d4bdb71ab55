//! Agents' own numbers, as their last heartbeats told them.
//!
//! What an agent could not tell (it says -1) or left out has no value. The number of values is
//! bounded in all; what is over is left out and counted.

use std::sync::Arc;

use base::{Exposition, MetricKind};
use c2::{Heartbeat, ProcessorStatus, QueueStatus, RepositoryStatus};

/// An agent's last heartbeat, with whose it is.
pub struct Told {
    pub agent: Arc<str>,
    pub class: String,
    pub heartbeat: Box<Heartbeat>,
}

/// A thing that has numbers: its labels, and where the numbers are.
struct Row<'a, T> {
    agent: &'a Told,
    item: Option<(&'static str, String)>,
    of: &'a T,
}

/// A family: name, meaning, value.
type Column<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

/// Writes all values of these agents, `max` at the most; tells how many were left out.
pub fn write(out: &mut Exposition, told: &[Told], max: usize) -> usize {
    let mut room = Room { max, left_out: 0 };
    let agents = told.iter().map(|agent| Row {
        agent,
        item: None,
        of: &*agent.heartbeat,
    });
    room.write(out, &agents.collect::<Vec<_>>(), &AGENT);
    room.write(out, &queues(told), &QUEUE);
    room.write(out, &repositories(told), &REPOSITORY);
    room.write(out, &processors(told), &PROCESSOR);
    room.left_out
}

struct Room {
    max: usize,
    left_out: usize,
}

impl Room {
    fn write<T>(&mut self, out: &mut Exposition, rows: &[Row<'_, T>], columns: &[Column<T>]) {
        for (name, help, value) in columns {
            let mut family = out.family(MetricKind::Gauge, name, help);
            for row in rows {
                let Some(value) = value(row.of) else { continue };
                if self.max == 0 {
                    self.left_out += 1;
                    continue;
                }
                self.max -= 1;
                let mut labels = vec![("class", &*row.agent.class), ("agent", &*row.agent.agent)];
                if let Some((name, item)) = &row.item {
                    labels.push((name, item));
                }
                family.value(&labels, value);
            }
        }
    }
}

fn queues(told: &[Told]) -> Vec<Row<'_, QueueStatus>> {
    let each = told.iter().filter_map(|agent| {
        let queues = &agent.heartbeat.flow_info.as_ref()?.queues;
        Some(queues.iter().map(move |(id, of)| Row {
            agent,
            item: Some(("connection", label(of.uuid.as_deref().unwrap_or(id)))),
            of,
        }))
    });
    each.flatten().collect()
}

fn repositories(told: &[Told]) -> Vec<Row<'_, RepositoryStatus>> {
    let each = told.iter().filter_map(|agent| {
        let status = agent.heartbeat.agent_info.as_ref()?.status.as_ref()?;
        Some(status.repositories.iter().map(move |(name, of)| Row {
            agent,
            item: Some(("repository", label(name))),
            of,
        }))
    });
    each.flatten().collect()
}

fn processors(told: &[Told]) -> Vec<Row<'_, ProcessorStatus>> {
    let each = told.iter().filter_map(|agent| {
        let statuses = &agent.heartbeat.flow_info.as_ref()?.processor_statuses;
        let named = statuses.iter().filter_map(move |of| {
            Some(Row {
                agent,
                item: Some(("processor", label(of.id.as_deref()?))),
                of,
            })
        });
        Some(named)
    });
    each.flatten().collect()
}

fn label(text: &str) -> String {
    text.chars().take(LABEL_CHARS_MAX).collect()
}

/// A number, unless it is the agent's word for not knowing.
fn count(value: Option<i64>) -> Option<f64> {
    value.filter(|value| *value >= 0).map(|value| value as f64)
}

fn ratio(value: Option<f64>) -> Option<f64> {
    value.filter(|value| *value >= 0.0)
}

/// Letters of a name that an agent gave.
const LABEL_CHARS_MAX: usize = 128;

const AGENT: [Column<Heartbeat>; 3] = [
    (
        "thalweg_fleet_agent_uptime_seconds",
        "Time since the agent started.",
        |of| {
            let status = of.agent_info.as_ref()?.status.as_ref()?;
            count(status.uptime).map(|ms| ms / 1e3)
        },
    ),
    (
        "thalweg_fleet_agent_memory_bytes",
        "Memory that the agent's process uses.",
        |of| {
            let status = of.agent_info.as_ref()?.status.as_ref()?;
            count(status.resource_consumption.as_ref()?.memory_usage)
        },
    ),
    (
        "thalweg_fleet_agent_cpu_ratio",
        "Share of its machine's processors that the agent's process uses.",
        |of| {
            let status = of.agent_info.as_ref()?.status.as_ref()?;
            ratio(status.resource_consumption.as_ref()?.cpu_utilization)
        },
    ),
];

const QUEUE: [Column<QueueStatus>; 4] = [
    (
        "thalweg_fleet_agent_queue_flowfiles",
        "FlowFiles in the connection's queue.",
        |of| count(of.size),
    ),
    (
        "thalweg_fleet_agent_queue_flowfiles_max",
        "FlowFiles from which on the queue holds its source back.",
        |of| count(of.size_max),
    ),
    (
        "thalweg_fleet_agent_queue_bytes",
        "Bytes in the connection's queue.",
        |of| count(of.data_size),
    ),
    (
        "thalweg_fleet_agent_queue_bytes_max",
        "Bytes from which on the queue holds its source back.",
        |of| count(of.data_size_max),
    ),
];

const REPOSITORY: [Column<RepositoryStatus>; 5] = [
    (
        "thalweg_fleet_agent_repository_entries",
        "Entries or FlowFiles in the agent's repository.",
        |of| count(of.entry_count.or(of.size.filter(|_| of.full.is_none()))),
    ),
    (
        "thalweg_fleet_agent_repository_bytes",
        "Bytes in the agent's repository.",
        // A C++ agent's `size` is in bytes; it says whether it is full, too.
        |of| count(of.data_size.or(of.size.filter(|_| of.full.is_some()))),
    ),
    (
        "thalweg_fleet_agent_repository_bytes_max",
        "Bytes that fit into the agent's repository.",
        |of| {
            count(
                of.data_size_max
                    .or(of.size_max.filter(|_| of.full.is_some())),
            )
        },
    ),
    (
        "thalweg_fleet_agent_repository_full",
        "1 while the agent's repository is full.",
        |of| of.full.map(|full| f64::from(u8::from(full))),
    ),
    (
        "thalweg_fleet_agent_repository_running",
        "1 while the agent's repository works.",
        |of| of.running.map(|running| f64::from(u8::from(running))),
    ),
];

const PROCESSOR: [Column<ProcessorStatus>; 9] = [
    (
        "thalweg_fleet_agent_processor_flowfiles_in",
        "FlowFiles that the processor took, as its agent counts.",
        |of| count(of.flow_files_in),
    ),
    (
        "thalweg_fleet_agent_processor_flowfiles_out",
        "FlowFiles that the processor passed on, as its agent counts.",
        |of| count(of.flow_files_out),
    ),
    (
        "thalweg_fleet_agent_processor_bytes_in",
        "Bytes of the FlowFiles that the processor took.",
        |of| count(of.bytes_in),
    ),
    (
        "thalweg_fleet_agent_processor_bytes_out",
        "Bytes of the FlowFiles that the processor passed on.",
        |of| count(of.bytes_out),
    ),
    (
        "thalweg_fleet_agent_processor_read_bytes",
        "Content bytes that the processor read.",
        |of| count(of.bytes_read),
    ),
    (
        "thalweg_fleet_agent_processor_written_bytes",
        "Content bytes that the processor wrote.",
        |of| count(of.bytes_written),
    ),
    (
        "thalweg_fleet_agent_processor_runs",
        "Runs of the processor, as its agent counts.",
        |of| count(of.invocations),
    ),
    (
        "thalweg_fleet_agent_processor_seconds",
        "Time that the processor's runs took.",
        |of| count(of.processing_nanos).map(|nanos| nanos / 1e9),
    ),
    (
        "thalweg_fleet_agent_processor_threads",
        "Threads at work in the processor.",
        |of| count(of.active_thread_count),
    ),
];
