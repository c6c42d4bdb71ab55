//! The small form: every mix of repositories in 64 MB of memory on a disk of 256 MB with 512 inodes.

use std::time::{Duration, Instant};

use super::{
    CONTENT, ContentKind, MIXES, Mix, SINK, SOURCE, batch_of, counts_of, flow_of, properties_of,
};
use crate::bounds::{Memory, SmallDisk};
use crate::edge::{Beat, Bulletin, Edge, Start};
use crate::experiment::{Experiment, LabError, Measure, Outcome, Setting};
use crate::limits::POLL;

/// `thalweg lab run repositories-small`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "repositories-small",
    about: "every mix of repositories in 64 MB of memory, on a disk of 256 MB with 512 inodes",
    method: "The flow of `repositories` at 10 KB, for ten minutes a mix (quick: 2 s), each on a fresh \
        file system of 256 MB and 512 inodes, with 64 MB of memory by a control group; what was used \
        of both is in the notes. The agent's watchdog over free space is off: its 100 MB are half of the disk. A failure is an agent that ends, stops moving for five seconds, or puts \
        up a bulletin of an error. Lost are FlowFiles made that are neither queued nor through, beyond \
        those of the two sessions that one look may fall between.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    let mut all = Vec::new();
    for content in CONTENT {
        for mix in MIXES {
            let name = name(content, mix);
            all.push(Measure::new(format!("{name}: rate"), "MB/s"));
            all.push(Measure::new(format!("{name}: failures"), "").at_most(0.0));
            all.push(
                Measure::new(format!("{name}: lost"), "FlowFiles")
                    .at_most(0.0)
                    .detail(),
            );
            all.push(
                Measure::new(format!("{name}: memory"), "MiB")
                    .at_most(64.0)
                    .detail(),
            );
        }
    }
    all
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::default();
    let length = Duration::from_secs(if setting.quick { 2 } else { 600 });
    for content in CONTENT {
        for mix in MIXES {
            if setting.wants(&name(content, mix)) {
                one(setting, content, mix, length, &mut outcome)?;
            }
        }
    }
    Ok(outcome)
}

fn one(
    setting: &Setting,
    content: ContentKind,
    mix: Mix,
    length: Duration,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    let name = name(content, mix);
    let memory = Memory::bound(MEMORY_BYTES);
    let disk = match SmallDisk::mount(setting.folder(), DISK_BYTES, INODES) {
        Ok(disk) => disk,
        Err(error) => {
            outcome.note(format!("left out: {}", base::report(&error)));
            return Ok(());
        }
    };
    outcome.note(format!(
        "memory bounded by {}; disk: {}",
        memory.name(),
        disk.name
    ));
    let data = disk.folder.join("agent");
    let flow = flow_of(BYTES);
    let properties = properties_of(content, mix, &data, "16 MB");
    let mut properties: Vec<(&str, &str)> = properties
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    properties.push(("minifi.disk.space.watchdog.enable", "false"));
    let start = Start {
        name: "agent",
        flow: &flow,
        properties: &properties,
        data,
    };
    let mut edge = Edge::start_as(setting, &start, |command| memory.wrap(&command))?;
    let watched = watch(&mut edge, length);
    let failures = watched.failures.len();
    for failure in watched.failures.into_iter().take(NOTES_MAX) {
        outcome.note(format!("{name}: {failure}"));
    }
    for warning in watched.warnings.into_iter().take(NOTES_MAX) {
        outcome.note(format!("{name}, no failure: {warning}"));
    }
    if let Some(last) = watched.last {
        let (made, through) = (counts_of(&last, SOURCE), counts_of(&last, SINK));
        let seconds = last.at.duration_since(edge.began).as_secs_f64();
        outcome.add(
            format!("{name}: rate"),
            through.bytes as f64 / 1e6 / seconds,
        );
        let between = 2 * batch_of(BYTES).max(SINK_SESSION);
        let found = through.flow_files + last.queued + between;
        outcome.add(
            format!("{name}: lost"),
            made.flow_files.saturating_sub(found) as f64,
        );
    }
    if let Ok(usage) = edge.usage() {
        let mib = usage.resident_bytes_max as f64 / f64::from(1 << 20);
        outcome.add(format!("{name}: memory"), mib);
    }
    outcome.add(format!("{name}: failures"), failures as f64);
    // One that failed may be gone already.
    let _ = edge.process.stop();
    Ok(())
}

struct Watched {
    last: Option<Beat>,
    failures: Vec<String>,
    warnings: Vec<String>,
}

/// Looks at an agent for so long.
fn watch(edge: &mut Edge, length: Duration) -> Watched {
    let (mut failures, mut warnings): (Vec<String>, Vec<String>) = Default::default();
    let (mut last, mut moved) = (0, Instant::now());
    while edge.began.elapsed() < length {
        if let Err(error) = edge.process.still_runs() {
            failures.push(base::report(&error));
            break;
        }
        if let Some(beat) = edge.beat() {
            for Bulletin { is_error, text } in &beat.bulletins {
                let told = match is_error {
                    true => &mut failures,
                    false => &mut warnings,
                };
                if !told.contains(text) {
                    told.push(text.clone());
                }
            }
            let through = counts_of(&beat, SINK).flow_files;
            if through != last {
                (last, moved) = (through, Instant::now());
            }
        }
        if moved.elapsed() > STANDS_STILL {
            failures.push(format!("it stood still at {last} FlowFiles"));
            moved = Instant::now();
        }
        std::thread::sleep(POLL);
    }
    Watched {
        last: edge.beat(),
        failures,
        warnings,
    }
}

fn name(content: ContentKind, mix: Mix) -> String {
    format!("{} content, {}", content.name, mix.name)
}

const BYTES: u64 = 10_000;
const MEMORY_BYTES: u64 = 64 << 20;
const DISK_BYTES: u64 = 256 << 20;
const INODES: u64 = 512;
const STANDS_STILL: Duration = Duration::from_secs(5);
/// FlowFiles that the sink takes in one session.
const SINK_SESSION: u64 = 5_000;
/// Failures of one mix, and warnings, that are told in words.
const NOTES_MAX: usize = 3;
