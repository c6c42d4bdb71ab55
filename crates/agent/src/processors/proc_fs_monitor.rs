//! ProcFsMonitor: the host's processors, memory, disks and network as one JSON object.
//!
//! Flat totals stand beside the figures of each device, so that a statement can name them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde_json::{Map, Number, Value, json};

use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::host;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ProcFsMonitor",
    description: "Samples the host: one JSON object with processor, memory, disk and network \
                  figures each time.",
    properties: &[
        PropertyKind::new(
            "Output Format",
            "JSON, or OpenTelemetry: the object as the body of a log record, beside Name, \
             Timestamp and Resource (the host's name, not its addresses).",
        )
        .default("JSON")
        .allowed(&["JSON", "OpenTelemetry"]),
        PropertyKind::new("Output Compactness", "Whether the object is on one line.")
            .default("Pretty")
            .allowed(&["Compact", "Pretty"]),
        PropertyKind::new(
            "Round to decimal places",
            "Digits after the point; empty means all.",
        )
        .also(&"Decimal Places")
        .shape(Shape::Integer(0)),
        PropertyKind::new(
            "Result Type",
            "Whether disk and network bytes count since the last sample or since the host \
             started. Processor percentages are always since the last sample.",
        )
        .also(&"Result Relativeness")
        .default("Absolute")
        .allowed(&["Relative", "Absolute"]),
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "Each sample.",
    }],
    writes: &[AttributeKind::new("mime.type", "application/json.")],
    input: Input::Forbidden,
    make: |settings| ProcFsMonitor::new(settings).map(|made| Box::new(made) as _),
};

struct ProcFsMonitor {
    is_record: bool,
    is_pretty: bool,
    is_relative: bool,
    digits: Option<u32>,
    last: Option<Sample>,
    attributes: Arc<Attributes>,
}

/// Counters at one instant.
#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    /// Jiffies: user, nice, system, idle, iowait, irq, softirq, steal.
    cpu: [u64; 8],
    /// Bytes read and written by device.
    disks: BTreeMap<String, [u64; 2]>,
    /// Bytes received and transmitted by interface.
    networks: BTreeMap<String, [u64; 2]>,
}

impl ProcFsMonitor {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let digits = match settings.text("Round to decimal places")? {
            Some(_) => {
                let digits: u32 = settings.integer("Round to decimal places")?;
                Some(digits.min(DIGITS_MAX))
            }
            None => None,
        };
        Ok(ProcFsMonitor {
            is_record: settings.needed("Output Format")? == "OpenTelemetry",
            is_pretty: settings.needed("Output Compactness")? == "Pretty",
            is_relative: settings.needed("Result Type")? == "Relative",
            digits,
            last: None,
            attributes: Arc::new(Attributes::new([("mime.type", "application/json")])),
        })
    }

    fn report(&self, now: &Sample, timestamp: i64) -> Value {
        let last = self.last.as_ref();
        let mut out = Map::new();
        out.insert("timestamp".into(), json!(timestamp));
        out.insert("hostname".into(), json!(host::hostname()));
        let interval = last.map(|last| (now.at - last.at).as_millis() as u64);
        out.insert("interval_ms".into(), json!(interval));
        if let Some(last) = last {
            self.cpu(&mut out, &now.cpu, &last.cpu);
        }
        out.insert("cpu_count".into(), json!(host::cores()));
        out.insert("load_average".into(), json!(host::load()));
        let total = host::memory("MemTotal").unwrap_or(0);
        let available = host::memory("MemAvailable").unwrap_or(0);
        let used = total.saturating_sub(available);
        out.insert("memory_total_bytes".into(), json!(total));
        out.insert("memory_available_bytes".into(), json!(available));
        out.insert("memory_used_bytes".into(), json!(used));
        out.insert("memory_percent".into(), self.percent(used, total));
        out.insert("swap_total_bytes".into(), json!(host::memory("SwapTotal")));
        out.insert("swap_free_bytes".into(), json!(host::memory("SwapFree")));
        let before = last.map(|last| &last.disks);
        self.devices(
            &mut out,
            "disk",
            ["read_bytes", "write_bytes"],
            &now.disks,
            before,
        );
        let before = last.map(|last| &last.networks);
        let names = ["receive_bytes", "transmit_bytes"];
        self.devices(&mut out, "network", names, &now.networks, before);
        Value::Object(out)
    }

    fn cpu(&self, out: &mut Map<String, Value>, now: &[u64; 8], last: &[u64; 8]) {
        let delta: Vec<u64> = now
            .iter()
            .zip(last)
            .map(|(now, last)| now.saturating_sub(*last))
            .collect();
        let total: u64 = delta.iter().sum();
        let idle = delta[3] + delta[4];
        out.insert("cpu_percent".into(), self.percent(total - idle, total));
        out.insert(
            "cpu_user_percent".into(),
            self.percent(delta[0] + delta[1], total),
        );
        out.insert(
            "cpu_system_percent".into(),
            self.percent(delta[2] + delta[5] + delta[6], total),
        );
        out.insert("cpu_iowait_percent".into(), self.percent(delta[4], total));
        out.insert("cpu_steal_percent".into(), self.percent(delta[7], total));
    }

    /// Totals under `kind_name`, devices under `kind`.
    fn devices(
        &self,
        out: &mut Map<String, Value>,
        kind: &str,
        names: [&str; 2],
        now: &BTreeMap<String, [u64; 2]>,
        last: Option<&BTreeMap<String, [u64; 2]>>,
    ) {
        let mut totals = [0; 2];
        let mut devices = Map::new();
        for (device, counters) in now {
            let before = match (self.is_relative, last) {
                (true, Some(last)) => last.get(device).copied().unwrap_or(*counters),
                (true, None) => *counters,
                (false, _) => [0; 2],
            };
            let mut figures = Map::new();
            for index in 0..2 {
                let value = counters[index].saturating_sub(before[index]);
                totals[index] += value;
                figures.insert(names[index].to_owned(), json!(value));
            }
            devices.insert(device.clone(), Value::Object(figures));
        }
        for index in 0..2 {
            out.insert(format!("{kind}_{}", names[index]), json!(totals[index]));
        }
        out.insert(kind.to_owned(), Value::Object(devices));
    }

    fn percent(&self, part: u64, whole: u64) -> Value {
        if whole == 0 {
            return Value::Null;
        }
        let percent = 100.0 * part as f64 / whole as f64;
        let rounded = match self.digits {
            Some(digits) => {
                let factor = 10f64.powi(digits as i32);
                (percent * factor).round() / factor
            }
            None => percent,
        };
        Number::from_f64(rounded).map_or(Value::Null, Value::Number)
    }
}

impl Processor for ProcFsMonitor {
    fn trigger(
        &mut self,
        _context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let now = Sample::take().map_err(|error| {
            ProcessorError::Failed(format!("cannot read the host's figures: {error}"))
        })?;
        let time = session.now().0;
        let mut report = self.report(&now, time);
        if self.is_record {
            report = json!({
                "Name": "PerformanceData",
                "Timestamp": time / 1_000,
                "Resource": { "host.hostname": host::hostname() },
                "Body": report,
            });
        }
        let text = if self.is_pretty {
            serde_json::to_vec_pretty(&report)
        } else {
            serde_json::to_vec(&report)
        };
        let text = text.map_err(|error| ProcessorError::Failed(error.to_string()))?;
        let mut flow_file = session.create(Arc::clone(&self.attributes));
        session.write(&mut flow_file, Bytes::from(text))?;
        session.transfer(flow_file, 0);
        self.last = Some(now);
        Ok(Next::Scheduled)
    }
}

impl Sample {
    fn take() -> std::io::Result<Sample> {
        let read = |path: &str| std::fs::read_to_string(path);
        Ok(Sample {
            at: Instant::now(),
            cpu: cpu(&read("/proc/stat")?),
            disks: disks(&read("/proc/diskstats")?),
            networks: networks(&read("/proc/net/dev")?),
        })
    }
}

fn cpu(stat: &str) -> [u64; 8] {
    let mut counters = [0; 8];
    let fields = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1);
    for (counter, field) in counters.iter_mut().zip(fields) {
        *counter = field.parse().unwrap_or(0);
    }
    counters
}

/// Whole disks only: partitions would count their disk's bytes twice.
fn disks(text: &str) -> BTreeMap<String, [u64; 2]> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(&name), Some(read), Some(written)) =
            (fields.get(2), fields.get(5), fields.get(9))
        else {
            continue;
        };
        let is_virtual = ["loop", "ram", "dm-", "md", "zram"]
            .iter()
            .any(|v| name.starts_with(v));
        let is_partition = found.keys().any(|disk: &String| is_part_of(name, disk));
        if is_virtual || is_partition {
            continue;
        }
        let bytes = |sectors: &str| sectors.parse::<u64>().unwrap_or(0) * SECTOR_BYTES;
        found.insert(name.to_owned(), [bytes(read), bytes(written)]);
    }
    found
}

fn is_part_of(name: &str, disk: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else {
        return false;
    };
    let number = rest.strip_prefix('p').unwrap_or(rest);
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

fn networks(text: &str) -> BTreeMap<String, [u64; 2]> {
    let mut found = BTreeMap::new();
    for line in text.lines().skip(2) {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let fields: Vec<u64> = rest
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        if let (Some(received), Some(transmitted)) = (fields.first(), fields.get(8)) {
            found.insert(name.trim().to_owned(), [*received, *transmitted]);
        }
    }
    found
}

/// The unit of `/proc/diskstats`, whatever the disk's own.
const SECTOR_BYTES: u64 = 512;

/// More digits than a percentage has.
const DIGITS_MAX: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rig;

    #[test]
    fn counters_are_read_from_the_kernels_texts() {
        assert_eq!(
            cpu("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1"),
            [1, 2, 3, 4, 5, 6, 7, 8]
        );
        let disks = disks(
            " 254 0 vda 10 0 4 0 20 0 6 0 0\n 254 1 vda1 10 0 4 0 20 0 6 0 0\n 7 0 loop0 1 0 9 0 1 0 9",
        );
        assert_eq!(
            disks.into_iter().collect::<Vec<_>>(),
            [("vda".to_owned(), [2048, 3072])]
        );
        let networks = networks("a\nb\n  eth0: 100 1 0 0 0 0 0 0 200 2 0\n");
        assert_eq!(networks["eth0"], [100, 200]);
    }

    #[test]
    fn a_sample_is_an_object_or_the_body_of_a_record() {
        let mut rig = Rig::new("ProcFsMonitor", &[("Decimal Places", "1")]);
        rig.trigger().unwrap();
        let out = rig.one("success");
        assert_eq!(out.attribute("mime.type"), "application/json");
        assert!(out.text().starts_with("{\n"), "{}", out.text());
        let sample: Value = serde_json::from_str(out.text()).unwrap();
        assert!(sample["memory_total_bytes"].as_u64() > Some(0));
        let properties = [
            ("Output Format", "OpenTelemetry"),
            ("Output Compactness", "Compact"),
            ("Result Type", "Relative"),
        ];
        let mut rig = Rig::new("ProcFsMonitor", &properties);
        rig.trigger().unwrap();
        let out = rig.one("success");
        let record: Value = serde_json::from_str(out.text()).unwrap();
        assert_eq!(out.text().lines().count(), 1);
        assert_eq!(record["Name"], "PerformanceData");
        assert_eq!(record["Body"]["network_receive_bytes"], 0);
    }

    #[test]
    fn the_host_has_figures() {
        let sample = Sample::take().unwrap();
        assert!(sample.cpu.iter().sum::<u64>() > 0);
        assert!(host::memory("MemTotal").unwrap() > 0);
    }
}
