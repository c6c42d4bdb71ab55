//! One log file, tailed durably: lines a second, CPU a gigabyte, memory; beside two known agents.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::edge::{Edge, Start};
use crate::experiment::{Experiment, LabError, Measure, Outcome, Series, Setting};
use crate::limits::{POLL, STALL_MAX};
use crate::peers::{COLLECTOR, Peer, TELEGRAF};
use crate::process::{Measured, Usage};

/// `thalweg lab run tail`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "tail",
    about: "one file of 200 B lines, tailed durably with a checkpoint, beside Telegraf and OpenTelemetry",
    method: "One file of lines of 200 bytes (1 GB; quick: 100 MB), written and synced before. Our agent \
        (thalweg-agent, repositories on disk, each commit with its checkpoint in one synced group) runs \
        TailFile into a sink that ends the FlowFiles, one FlowFile a line; the time is from the start of \
        the process until the sink's counter says that all are through. Then it is killed (SIGKILL), \
        started again and watched for two seconds: what it reads again is counted. The peers read \
        the same file into nothing: Telegraf (tail, value parser, discard; its memory buffer, since its \
        disk buffer syncs each line) with 100,000 lines allowed undelivered, and the OpenTelemetry \
        collector (filelog, nop exporter, file storage for the checkpoint, with fsync). Their time is \
        until their position in the file, as the kernel tells it, is its end. CPU is user and system \
        time of the process from its start; memory is the most that was resident.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    let mut all = vec![
        Measure::new(RATE, "lines/s")
            .at_least(1_000_000.0)
            .reference("Fluent Bit 5.1, file system buffer, sync full", 392_000.0),
        Measure::new(CPU, "CPU-s/GB")
            .at_most(4.0)
            .reference("Fluent Bit 5.1, file system buffer, sync full", 10.5),
        Measure::new(MEMORY, "MiB")
            .at_most(50.0)
            .reference("Fluent Bit 5.1, file system buffer, sync full", 41.0),
        Measure::new(LOST, "lines").at_most(0.0),
        Measure::new(AGAIN, "lines"),
    ];
    for peer in [&TELEGRAF, &COLLECTOR] {
        for (figure, unit) in [("rate", "lines/s"), ("CPU", "CPU-s/GB"), ("memory", "MiB")] {
            all.push(Measure::new(format!("{}: {figure}", peer.name), unit));
        }
    }
    all
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let lines = if setting.quick { QUICK } else { FULL };
    let log = setting.path("tailed.log");
    write_lines(&log, lines).map_err(LabError::system("cannot write the log"))?;
    // As the kernel names it where a process has it open.
    let log = std::fs::canonicalize(log).map_err(LabError::system("cannot find the log"))?;
    let mut outcome = Outcome::default();
    ours(setting, &log, lines, &mut outcome)?;
    for (peer, command) in [
        (
            &TELEGRAF,
            telegraf as fn(&Setting, &Path, &Path) -> Result<Command, LabError>,
        ),
        (&COLLECTOR, collector),
    ] {
        match peer_run(setting, peer, command, &log, lines) {
            Ok((seconds, usage)) => {
                add(
                    &mut outcome,
                    &format!("{}: ", peer.name),
                    lines,
                    seconds,
                    &usage,
                );
            }
            Err(error) => outcome.note(format!("{} left out: {}", peer.name, base::report(&error))),
        }
    }
    Ok(outcome)
}

fn ours(setting: &Setting, log: &Path, lines: u64, outcome: &mut Outcome) -> Result<(), LabError> {
    let flow = FLOW.replace("{log}", &log.display().to_string());
    let start = Start {
        name: "agent",
        flow: &flow,
        properties: &[],
        data: setting.path("agent-data"),
    };
    let mut edge = Edge::start(setting, &start)?;
    let passed = |beat: &crate::edge::Beat| {
        beat.processors
            .get(SINK)
            .map_or(0, |counts| counts.flow_files)
    };
    let mut through = Vec::new();
    let last = loop {
        // In steps, so that the way there can be drawn.
        let next = through
            .last()
            .map_or(0, |(_, count): &(f64, f64)| *count as u64)
            + 1;
        let beat = edge.until("tailing", passed, |beat| passed(beat) >= next)?;
        through.push((
            beat.at.duration_since(edge.began).as_secs_f64(),
            passed(&beat) as f64,
        ));
        if passed(&beat) >= lines {
            break beat;
        }
    };
    let seconds = last.at.duration_since(edge.began).as_secs_f64();
    let usage = edge.usage()?;
    add(outcome, "", lines, seconds, &usage);
    edge.process.kill();
    let again = Edge::start(setting, &start)?;
    std::thread::sleep(AFTER_KILL);
    let again = again.counts(SOURCE).flow_files;
    outcome.add(AGAIN, again as f64);
    outcome.add(LOST, lines.saturating_sub(passed(&last)) as f64);
    outcome.series.push(Series::new(
        "Lines through",
        "seconds",
        "lines",
        "Thalweg",
        through,
    ));
    Ok(())
}

fn add(outcome: &mut Outcome, whose: &str, lines: u64, seconds: f64, usage: &Usage) {
    let gigabytes = lines as f64 * LINE_BYTES as f64 / 1e9;
    for (name, value) in [
        (RATE, lines as f64 / seconds),
        (CPU, usage.cpu.as_secs_f64() / gigabytes),
        (MEMORY, usage.resident_bytes_max as f64 / f64::from(1 << 20)),
    ] {
        outcome.add(format!("{whose}{name}"), value);
    }
}

/// Runs a peer until it stands at the end of the file; its time and what it used.
fn peer_run(
    setting: &Setting,
    peer: &Peer,
    command: fn(&Setting, &Path, &Path) -> Result<Command, LabError>,
    log: &Path,
    lines: u64,
) -> Result<(f64, Usage), LabError> {
    let program = peer.program(setting.folder(), !setting.quick)?;
    let mut command = command(setting, &program, log)?;
    let began = Instant::now();
    let mut process = Measured::start("peer", &mut command, setting.folder())?;
    let end = lines * LINE_BYTES as u64;
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        process.still_runs()?;
        let at = position_in(process.id(), log);
        if at >= end {
            break;
        }
        if at != last {
            (last, moved) = (at, Instant::now());
        } else if moved.elapsed() > STALL_MAX {
            return Err(LabError::Failed(format!(
                "it stands still at byte {at} of {end}; its last lines:\n{}",
                process.log_end()
            )));
        }
        std::thread::sleep(POLL);
    }
    let seconds = began.elapsed().as_secs_f64();
    let usage = process.usage()?;
    process.stop()?;
    Ok((seconds, usage))
}

/// How far the process `id` has read in the file, if it has it open; its furthest handle counts.
fn position_in(id: u32, file: &Path) -> u64 {
    let Ok(handles) = std::fs::read_dir(format!("/proc/{id}/fd")) else {
        return 0;
    };
    let positions = handles.flatten().filter_map(|handle| {
        let target = std::fs::read_link(handle.path()).ok()?;
        if target != file {
            return None;
        }
        let number = handle.file_name().into_string().ok()?;
        let info = std::fs::read_to_string(format!("/proc/{id}/fdinfo/{number}")).ok()?;
        let line = info.lines().find_map(|line| line.strip_prefix("pos:"))?;
        line.trim().parse().ok()
    });
    positions.max().unwrap_or(0)
}

fn telegraf(setting: &Setting, program: &Path, log: &Path) -> Result<Command, LabError> {
    let text = TELEGRAF_CONFIG.replace("{log}", &log.display().to_string());
    let config = written(setting, "telegraf.conf", &text)?;
    let mut command = Command::new(program);
    command.arg("--config").arg(config);
    Ok(command)
}

fn collector(setting: &Setting, program: &Path, log: &Path) -> Result<Command, LabError> {
    let storage = setting.path("otel-storage");
    std::fs::create_dir_all(&storage).map_err(LabError::system("cannot make a folder"))?;
    let text = COLLECTOR_CONFIG
        .replace("{log}", &log.display().to_string())
        .replace("{storage}", &storage.display().to_string());
    let config = written(setting, "otelcol.yml", &text)?;
    let mut command = Command::new(program);
    command.arg("--config").arg(config);
    Ok(command)
}

fn written(setting: &Setting, name: &str, text: &str) -> Result<PathBuf, LabError> {
    let path = setting.path(name);
    std::fs::write(&path, text)
        .map_err(LabError::system(format!("cannot write {}", path.display())))?;
    Ok(path)
}

fn write_lines(log: &Path, lines: u64) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(log)?);
    let padding = "x".repeat(LINE_BYTES);
    for number in 0..lines {
        let head = format!("{number:012} ");
        let rest = &padding[..LINE_BYTES - head.len() - 1];
        writeln!(file, "{head}{rest}")?;
    }
    file.into_inner()
        .map_err(|error| error.into_error())?
        .sync_data()
}

const RATE: &str = "rate";
const CPU: &str = "CPU";
const MEMORY: &str = "memory";
const LOST: &str = "lines lost";
const AGAIN: &str = "lines read again after kill -9";
const LINE_BYTES: usize = 200;
const FULL: u64 = 5_000_000;
const QUICK: u64 = 500_000;
/// Time for a restarted agent to read what it should not.
const AFTER_KILL: Duration = Duration::from_secs(2);
const SOURCE: &str = "source";
const SINK: &str = "sink";

const FLOW: &str = r#"
MiNiFi Config Version: 3
Flow Controller: {name: tail}
Processors:
- id: source
  name: tail
  class: TailFile
  scheduling strategy: TIMER_DRIVEN
  scheduling period: 10 ms
  Properties: {File to Tail: "{log}"}
- id: sink
  name: sink
  class: MeasureThroughput
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success]
Connections:
- {id: lines, source id: source, source relationship names: [success], destination id: sink, max work queue size: 100000}
"#;

const TELEGRAF_CONFIG: &str = r#"
[agent]
  flush_interval = "1s"
  metric_batch_size = 10000
  metric_buffer_limit = 200000
  omit_hostname = true
  quiet = true
[[inputs.tail]]
  files = ["{log}"]
  initial_read_offset = "beginning"
  watch_method = "inotify"
  max_undelivered_lines = 100000
  data_format = "value"
  data_type = "string"
[[outputs.discard]]
"#;

const COLLECTOR_CONFIG: &str = r#"
extensions:
  file_storage:
    directory: {storage}
    fsync: true
receivers:
  filelog:
    include: ["{log}"]
    start_at: beginning
    storage: file_storage
exporters:
  nop:
service:
  extensions: [file_storage]
  telemetry:
    metrics: {level: none}
  pipelines:
    logs:
      receivers: [filelog]
      exporters: [nop]
"#;
