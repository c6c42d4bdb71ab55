//! Ten million FlowFiles in one connection.

use std::time::Duration;

use super::MIB;
use crate::edge::{Beat, Edge, Start};
use crate::experiment::{LabError, Measure, Outcome, Setting};

pub fn measures() -> Vec<Measure> {
    vec![
        Measure::new(format!("{IN_MEMORY}: {MEMORY}"), "MiB").at_most(1_536.0),
        Measure::new(format!("{IN_MEMORY}: {FIRST}"), "s").at_most(5.0),
        Measure::new(format!("{SWAPPED}: {MEMORY}"), "MiB").at_most(200.0),
        Measure::new(format!("{SWAPPED}: {FIRST}"), "s").at_most(5.0),
        Measure::new(COUNT, "FlowFiles").detail(),
    ]
}

pub fn run(setting: &Setting, outcome: &mut Outcome) -> Result<(), LabError> {
    let count = if setting.quick { QUICK } else { FULL };
    outcome.add(COUNT, count as f64);
    for (name, swap) in [(IN_MEMORY, 0), (SWAPPED, SWAP_THRESHOLD)] {
        one(setting, name, swap, count, outcome)?;
    }
    Ok(())
}

fn one(
    setting: &Setting,
    name: &str,
    swap: u64,
    count: u64,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    let data = setting.path("queued-data");
    let flow = |scheduling: &str| {
        FLOW.replace("{count}", &count.to_string())
            .replace("{swap}", &swap.to_string())
            .replace("{scheduling}", scheduling)
    };
    let start = |flow: &str| {
        let start = Start {
            name: "agent",
            flow,
            properties: &[],
            data: data.clone(),
        };
        Edge::start(setting, &start)
    };
    let mut edge = start(&flow(NEVER))?;
    let queued = |beat: &Beat| beat.queued;
    edge.until("filling the queue", queued, |beat| beat.queued >= count)?;
    std::thread::sleep(AT_REST);
    let resident = edge.usage()?.resident_bytes;
    outcome.add(format!("{name}: {MEMORY}"), resident as f64 / MIB);
    edge.process.kill();
    let mut edge = start(&flow(AT_ONCE))?;
    let passed = |beat: &Beat| {
        beat.processors
            .get("sink")
            .map_or(0, |counts| counts.flow_files)
    };
    let first = edge.until("the first output", passed, |beat| passed(beat) > 0)?;
    let seconds = first.at.duration_since(edge.began).as_secs_f64();
    outcome.add(format!("{name}: {FIRST}"), seconds);
    edge.process.kill();
    std::fs::remove_dir_all(&data).map_err(LabError::system("cannot clear the agent's folder"))
}

const IN_MEMORY: &str = "queued, all in memory";
const SWAPPED: &str = "queued, swapped";
const MEMORY: &str = "memory";
const FIRST: &str = "first output after kill -9";
const COUNT: &str = "queued";
const FULL: u64 = 10_000_000;
const QUICK: u64 = 200_000;
const SWAP_THRESHOLD: u64 = 20_000;
/// After the last one, so that what was only for making them has gone.
const AT_REST: Duration = Duration::from_secs(1);

const NEVER: &str = "scheduling strategy: CRON_DRIVEN\n  scheduling period: '0 0 0 29 2 ?'";
const AT_ONCE: &str = "scheduling strategy: EVENT_DRIVEN";

const FLOW: &str = r#"
MiNiFi Config Version: 3
Flow Controller: {name: queued}
Processors:
- id: source
  name: source
  class: GenerateFlowFile
  scheduling strategy: TIMER_DRIVEN
  scheduling period: 0 ms
  Properties: {File Size: 100 B, Batch Size: "10000", Unique FlowFiles: "true", Data Format: Binary}
- id: sink
  name: sink
  class: MeasureThroughput
  {scheduling}
  auto-terminated relationships list: [success]
Connections:
- {id: way, source id: source, source relationship names: [success], destination id: sink, max work queue size: {count}, max work queue data size: 0 B, swap threshold: {swap}}
"#;
