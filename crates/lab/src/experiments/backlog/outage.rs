//! A broker that is away while input goes on.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use super::MIB;
use crate::edge::{Beat, Edge, Start};
use crate::experiment::{LabError, Measure, Outcome, Setting};
use crate::host;
use crate::limits::POLL;
use crate::store::{Store, free_address};

pub fn measures() -> Vec<Measure> {
    vec![
        Measure::new(GROWTH, "MiB").at_most(64.0),
        Measure::new(DRAINED, "MB/s"),
        Measure::new(SHARE, "%").at_least(80.0),
        Measure::new(READ, "MB/s").detail(),
        Measure::new(QUEUED, "FlowFiles").detail(),
    ]
}

pub fn run(setting: &Setting, outcome: &mut Outcome) -> Result<(), LabError> {
    let away = Duration::from_secs(if setting.quick { 20 } else { 600 });
    let read = host::read_bytes_per_s(setting.folder(), READ_BYTES)
        .map_err(LabError::system("cannot measure the disk"))?;
    let address = free_address()?;
    let store = start_store(setting, address)?;
    let flow = FLOW.replace("{brokers}", &address.to_string());
    let start = Start {
        name: "agent",
        flow: &flow,
        properties: &[],
        data: setting.path("away-data"),
    };
    let mut edge = Edge::start(setting, &start)?;
    let sent = |beat: &Beat| {
        beat.processors
            .get("publish")
            .map_or(0, |counts| counts.flow_files)
    };
    edge.until("sending", sent, |beat| sent(beat) > 5 * A_SECOND)?;
    let before = edge.usage()?.resident_bytes;
    store.process.kill();
    let mut most = before;
    let end = Instant::now() + away;
    while Instant::now() < end {
        edge.process.still_runs()?;
        most = most.max(edge.usage()?.resident_bytes);
        std::thread::sleep(POLL);
    }
    outcome.add(GROWTH, most.saturating_sub(before) as f64 / MIB);
    let store = start_store(setting, address)?;
    let (began, sent_before) = (Instant::now(), edge.counts("publish").flow_files);
    let queued = edge.beat().map_or(0, |beat| beat.queued);
    outcome.add(QUEUED, queued as f64);
    let last = edge.until("draining", sent, |beat| beat.queued < A_SECOND)?;
    let seconds = last.at.duration_since(began).as_secs_f64();
    let drained = (sent(&last) - sent_before) as f64 * BYTES as f64 / seconds;
    outcome.add(DRAINED, drained / 1e6);
    outcome.add(READ, read / 1e6);
    outcome.add(SHARE, drained / read * 100.0);
    edge.process.stop()?;
    store.process.stop()
}

fn start_store(setting: &Setting, address: SocketAddr) -> Result<Store, LabError> {
    let data = setting.path("away-store");
    let mut command = Command::new(&setting.thalweg);
    command
        .args(["up", "--role", "streams", "--data"])
        .arg(&data);
    command
        .arg("--set")
        .arg(format!("streams.listen={address}"));
    command.args(["--set", "fleet.listen=127.0.0.1:0"]);
    Store::start("store", &mut command, address, &data, setting.folder())
}

const GROWTH: &str = "away: memory more than before";
const DRAINED: &str = "away: drained";
const SHARE: &str = "away: drained, share of the disk's read speed";
const READ: &str = "away: the disk, read in sequence";
const QUEUED: &str = "away: queued at the end of it";
const BYTES: u64 = 1_000;
/// FlowFiles that come in a second.
const A_SECOND: u64 = 10_000;
const READ_BYTES: u64 = 512 << 20;

const FLOW: &str = r#"
MiNiFi Config Version: 3
Flow Controller: {name: away}
Processors:
- id: source
  name: source
  class: GenerateFlowFile
  scheduling strategy: TIMER_DRIVEN
  scheduling period: 100 ms
  Properties: {File Size: 1000 B, Batch Size: "1000", Unique FlowFiles: "true", Data Format: Text}
- id: publish
  name: publish
  class: PublishKafka
  scheduling strategy: EVENT_DRIVEN
  yield period: 100 ms
  auto-terminated relationships list: [success]
  Properties: {Known Brokers: "{brokers}", Topic Name: away, Client Name: away, Delivery Guarantee: all}
Connections:
- {id: way, source id: source, source relationship names: [success], destination id: publish, max work queue size: 0, max work queue data size: 0 B, swap threshold: 20000}
- {id: again, source id: publish, source relationship names: [failure], destination id: publish, max work queue size: 0, max work queue data size: 0 B}
"#;
