//! A status as Prometheus reads it.

use base::{Exposition, MetricKind};

use super::{Classes, MetricsConfig};
use crate::host::{self, CpuMeter};
use crate::local::{ProcessorView, QueueView, StatusView};

/// A family of metrics: its name without `minifi_`, its meaning.
type Told = (&'static str, &'static str);

/// A family and how its values are read from what it is about.
type Read<T> = (Told, fn(&T) -> f64);

/// One value with its own labels.
type Value = (Vec<(&'static str, String)>, f64);

/// Writes families, each once and whole.
struct Writer<'w> {
    out: Exposition,
    config: &'w MetricsConfig,
}

/// All metrics that the settings name, as text.
pub(super) fn write(status: &StatusView, config: &MetricsConfig, cpu: &mut CpuMeter) -> String {
    let mut writer = Writer {
        out: Exposition::default(),
        config,
    };
    queues(&mut writer, status);
    repositories(&mut writer, status);
    processors(&mut writer, status);
    components(&mut writer, status);
    machine(&mut writer, status, cpu);
    own(&mut writer.out, status);
    writer.out.into_text()
}

fn queues(writer: &mut Writer<'_>, status: &StatusView) {
    let families: [Read<QueueView>; 4] = [
        (("queue_size", "Current queue size"), |q| {
            q.flow_files as f64
        }),
        (
            ("queue_size_max", "Max queue size to apply back pressure"),
            |q| q.flow_files_max as f64,
        ),
        (("queue_data_size", "Current queue data size"), |q| {
            q.bytes as f64
        }),
        (
            (
                "queue_data_size_max",
                "Max queue data size to apply back pressure",
            ),
            |q| q.bytes_max as f64,
        ),
    ];
    for (told, value) in families {
        let of = |class: &'static str| {
            status.queues.iter().map(move |queue| {
                let labels = vec![
                    ("metric_class", class.to_owned()),
                    ("connection_uuid", queue.id.clone()),
                    ("connection_name", queue.name.clone()),
                ];
                (labels, value(queue))
            })
        };
        writer.gauges(
            told,
            of("QueueMetrics").chain(of("FlowInformation")).collect(),
        );
    }
}

fn repositories(writer: &mut Writer<'_>, status: &StatusView) {
    let repository = &status.repository;
    let full = f64::from(u8::from(repository.is_full));
    let sizes = [
        ("flowFile", repository.bytes_on_disk),
        ("content", repository.content_bytes),
        ("provenance", repository.provenance_bytes),
    ];
    let all = |value: &dyn Fn(u64) -> f64| -> Vec<Value> {
        let values = sizes
            .iter()
            .map(|(name, bytes)| (repository_labels(name), value(*bytes)));
        values.collect()
    };
    writer.gauges(
        ("is_full", "Is the repository full (1 or 0)"),
        all(&|_| full),
    );
    writer.gauges(
        ("repository_size", "Current size of the repository"),
        all(&|bytes| bytes as f64),
    );
}

fn repository_labels(name: &str) -> Vec<(&'static str, String)> {
    vec![
        ("metric_class", "RepositoryMetrics".to_owned()),
        ("repository_name", name.to_owned()),
    ]
}

fn processors(writer: &mut Writer<'_>, status: &StatusView) {
    let families: [Read<ProcessorView>; 9] = [
        (
            (
                "onTrigger_invocations",
                "Number of times the processor was triggered",
            ),
            |p| p.invocations as f64,
        ),
        (
            (
                "average_onTrigger_runtime_milliseconds",
                "Average time of one trigger",
            ),
            |p| p.processing_ns as f64 / 1e6 / p.invocations.max(1) as f64,
        ),
        (("processing_nanos", "Time spent in triggers"), |p| {
            p.processing_ns as f64
        }),
        (("incoming_flow_files", "FlowFiles taken"), |p| {
            p.flow_files_in as f64
        }),
        (("incoming_bytes", "Bytes of the FlowFiles taken"), |p| {
            p.bytes_in as f64
        }),
        (("transferred_flow_files", "FlowFiles passed on"), |p| {
            p.flow_files_out as f64
        }),
        (
            ("transferred_bytes", "Bytes of the FlowFiles passed on"),
            |p| p.bytes_out as f64,
        ),
        (("bytes_read", "Content bytes read"), |p| {
            p.bytes_read as f64
        }),
        (("bytes_written", "Content bytes written"), |p| {
            p.bytes_written as f64
        }),
    ];
    for (told, value) in families {
        let values = status.processors.iter().map(|processor| {
            let labels = vec![
                ("metric_class", format!("{}Metrics", processor.kind)),
                ("processor_name", processor.name.clone()),
                ("processor_uuid", processor.id.clone()),
            ];
            (labels, value(processor))
        });
        writer.gauges(told, values.collect());
    }
}

/// `is_running` is a family of repositories and of components.
fn components(writer: &mut Writer<'_>, status: &StatusView) {
    let component = |name: &str, id: &str, runs: bool| -> Value {
        let labels = vec![
            ("metric_class", "FlowInformation".to_owned()),
            ("component_uuid", id.to_owned()),
            ("component_name", name.to_owned()),
        ];
        (labels, f64::from(u8::from(runs)))
    };
    let flow_id = status.flow_id.as_deref().unwrap_or_default();
    let repositories = ["flowFile", "content", "provenance"];
    let mut values: Vec<Value> = repositories
        .map(|name| (repository_labels(name), 1.0))
        .into();
    let controller = crate::supervisor::CONTROLLER;
    values.push(component(controller, flow_id, status.is_running));
    let all = status.processors.iter();
    values.extend(all.map(|p| component(&p.name, &p.id, p.is_running)));
    writer.gauges(("is_running", "Is it running (1 or 0)"), values);
}

fn machine(writer: &mut Writer<'_>, status: &StatusView, cpu: &mut CpuMeter) {
    let of = |class: &str, value: Option<f64>| -> Vec<Value> {
        let labels = vec![("metric_class", class.to_owned())];
        value.map(|value| (labels, value)).into_iter().collect()
    };
    let total = host::memory("MemTotal").map(|bytes| bytes as f64);
    let own = status.resident_bytes.map(|bytes| bytes as f64);
    writer.gauges(
        ("physical_mem", "Physical memory available"),
        of("DeviceInfoNode", total),
    );
    writer.gauges(
        ("memory_usage", "Memory used by the agent"),
        of("DeviceInfoNode", own),
    );
    let share = cpu.process();
    writer.gauges(
        ("cpu_utilization", "CPU utilized by the agent"),
        of("DeviceInfoNode", share),
    );
    let uptime = Some(status.uptime_ms as f64);
    writer.gauges(
        ("uptime_milliseconds", "Agent uptime"),
        of("AgentStatus", uptime),
    );
}

/// What has no name at MiNiFi C++.
fn own(out: &mut Exposition, status: &StatusView) {
    let repository = &status.repository;
    out.gauge(
        "thalweg_agent_repository_disk_bytes",
        "Bytes of the repository on the disk",
        repository.bytes_on_disk as f64,
    );
    out.gauge(
        "thalweg_agent_content_bytes",
        "Bytes of content that FlowFiles still need",
        repository.content_bytes as f64,
    );
    out.gauge(
        "thalweg_agent_parked_flow_files",
        "FlowFiles of connections that the flow does not have",
        repository.parked as f64,
    );
    if let Some(ms) = status.cpu_ms {
        let seconds = ms as f64 / 1e3;
        out.family(
            MetricKind::Counter,
            "thalweg_agent_cpu_seconds_total",
            "Processor time that the agent used",
        )
        .value(&[], seconds);
    }
}

impl Writer<'_> {
    /// A family with those of its values whose class is told.
    fn gauges(&mut self, (name, help): Told, mut values: Vec<Value>) {
        let classes: &Classes = &self.config.classes;
        values.retain(|(labels, _)| {
            let class = labels.iter().find(|(name, _)| *name == "metric_class");
            class.is_none_or(|(_, class)| classes.has(class))
        });
        if values.is_empty() {
            return;
        }
        let name = format!("minifi_{name}");
        let mut family = self.out.family(MetricKind::Gauge, &name, help);
        for (labels, value) in &values {
            let own = labels.iter().map(|(name, value)| (*name, value.as_str()));
            let all: Vec<(&str, &str)> = own
                .chain([("agent_identifier", self.config.identifier.as_str())])
                .collect();
            family.value(&all, *value);
        }
    }
}
