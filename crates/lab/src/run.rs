//! The frame of every experiment: warm-up, repeated runs, host facts, medians, report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use base::{Clock, SystemClock, UnixMillis};
use serde::Serialize;

use crate::bounds::DiskRate;
use crate::experiment::{Experiment, LabError, Outcome, Setting};
use crate::host::Host;
use crate::process::OUTPUT;
use crate::stats::Summary;
use crate::{Output, RunArgs, experiments, report};

/// What a run of an experiment came to; written as JSON and drawn as HTML.
#[derive(Serialize)]
pub struct Finding {
    /// Version of this shape.
    pub format: u32,
    /// The experiment's name.
    pub experiment: &'static str,
    /// How it was done.
    pub method: &'static str,
    /// Whom the rows compare with.
    pub peer: Option<&'static str>,
    /// Version of the binary under test.
    pub version: String,
    /// When it began.
    pub began_ms: UnixMillis,
    /// True for the short form.
    pub quick: bool,
    /// The machine.
    pub host: Host,
    /// What its disk was held to, reading and writing each; none where it was as fast as it is.
    pub disk_rate_mb_per_s: Option<u64>,
    /// A row per measure.
    pub rows: Vec<Row>,
    /// What each run measured.
    pub runs: Vec<Outcome>,
}

/// One measured figure beside its goal and its published reference.
#[derive(Serialize)]
pub struct Row {
    /// The measure's name.
    pub name: String,
    /// Unit of value, reference and goal.
    pub unit: &'static str,
    /// Median of the runs.
    pub value: f64,
    /// All runs.
    pub summary: Summary,
    /// What the peer came to in the same runs.
    pub peer: Option<Peer>,
    /// A published figure and its source.
    pub reference: Option<Reference>,
    /// What must hold, in words.
    pub goal: Option<String>,
    /// Whether it holds; none where there is no goal, or nothing to compare with.
    pub holds: Option<bool>,
    /// True for what the terminal's table leaves out.
    pub is_detail: bool,
}

/// The peer's side of a row.
#[derive(Serialize)]
pub struct Peer {
    /// Median of the runs.
    pub value: f64,
    /// All runs.
    pub summary: Summary,
    /// Our value over the peer's, run by run; the median of these.
    pub ratio: f64,
}

/// A figure that others published.
#[derive(Serialize)]
pub struct Reference {
    /// Who measured what.
    pub source: &'static str,
    /// Their figure, in the row's unit.
    pub value: f64,
}

/// Runs an experiment and writes its result; fails the exit code when a goal does not hold.
pub fn run(args: &RunArgs) -> Result<ExitCode, LabError> {
    let experiment = experiments::ALL
        .iter()
        .find(|experiment| experiment.name == args.name)
        .ok_or_else(|| {
            LabError::Usage(format!(
                "there is no experiment '{}'; `thalweg lab list` prints them",
                args.name
            ))
        })?;
    let thalweg = binary(args.thalweg.as_deref())?;
    let work = args.results.join("work");
    clear(&work)?;
    std::fs::create_dir_all(&work)
        .map_err(LabError::system(format!("cannot make {}", work.display())))?;
    let began_ms = SystemClock.now();
    let held = args
        .disk_rate
        .map(|rate| DiskRate::hold(&work, rate * 1_000_000))
        .transpose()?;
    let host = Host::measure(&work)?;
    let runs = repeat(experiment, args, &thalweg, &work).inspect_err(|_| keep_output(&work))?;
    drop(held);
    let result = Finding {
        format: 2,
        experiment: experiment.name,
        method: experiment.method,
        peer: experiment.peer,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began_ms,
        quick: args.quick,
        host,
        disk_rate_mb_per_s: args.disk_rate,
        rows: rows(experiment, &runs),
        runs,
    };
    clear(&work)?;
    let html = report::write(&result, &args.results)?;
    match args.output {
        Output::Json => println!("{}", serde_json::to_string(&result).unwrap_or_default()),
        Output::Table => print!("{}\nreport: {}\n", report::table(&result), html.display()),
    }
    let all_hold = result.rows.iter().all(|row| row.holds != Some(false));
    Ok(if all_hold {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(GOAL_MISSED)
    })
}

fn repeat(
    experiment: &Experiment,
    args: &RunArgs,
    thalweg: &Path,
    work: &Path,
) -> Result<Vec<Outcome>, LabError> {
    let count = args
        .runs
        .unwrap_or(if args.quick { QUICK_RUNS } else { RUNS })
        .max(1);
    // The first run of the full form warms the page cache and is not counted.
    let warm_ups = usize::from(!args.quick && args.runs != Some(1));
    let mut outcomes = Vec::with_capacity(count);
    for index in 0..warm_ups + count {
        let folder = work.join(format!("run-{index}"));
        std::fs::create_dir_all(&folder).map_err(LabError::system(format!(
            "cannot make {}",
            folder.display()
        )))?;
        let began = Instant::now();
        let setting = Setting {
            thalweg: thalweg.to_owned(),
            quick: args.quick,
            only: args.only.clone(),
            seed: args.seed,
            count: args.count,
            repeat: index,
            folder,
        };
        let outcome = (experiment.run)(&setting)?;
        std::fs::remove_dir_all(&setting.folder)
            .map_err(LabError::system("cannot clear the run's folder"))?;
        let counted = index >= warm_ups;
        let kind = if counted { "run" } else { "warm-up" };
        eprintln!(
            "{}: {kind} took {:.1} s",
            experiment.name,
            began.elapsed().as_secs_f64()
        );
        if counted {
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

/// Removes what a run leaves; one that was broken off may have left a server's data.
fn clear(work: &Path) -> Result<(), LabError> {
    match std::fs::remove_dir_all(work) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::system(format!("cannot clear {}", work.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Leaves of a failed run what its processes wrote, and nothing of what they stored.
fn keep_output(work: &Path) {
    match remove_all_but_output(work) {
        Ok(()) => eprintln!("what its processes wrote is in {}", work.display()),
        Err(error) => eprintln!("cannot clear {}: {error}", work.display()),
    }
}

fn remove_all_but_output(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if !entry.file_type()?.is_dir() {
            std::fs::remove_file(&path)?;
        } else if entry.file_name() != OUTPUT {
            remove_all_but_output(&path)?;
            match std::fs::remove_dir(&path) {
                // There is output in it.
                Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
                outcome => outcome?,
            }
        }
    }
    Ok(())
}

fn rows(experiment: &Experiment, runs: &[Outcome]) -> Vec<Row> {
    (experiment.measures)()
        .into_iter()
        .filter_map(|measure| {
            let summary = Summary::of(named(&measure.name, runs, |run| &run.values))?;
            let peer = peer(&summary, named(&measure.name, runs, |run| &run.peers));
            let ratio = peer.as_ref().map(|peer| peer.ratio);
            Some(Row {
                unit: measure.unit,
                value: summary.median,
                reference: measure
                    .reference
                    .map(|(source, value)| Reference { source, value }),
                goal: measure.goal.map(|goal| goal.to_string()),
                holds: measure
                    .goal
                    .and_then(|goal| goal.holds(summary.median, ratio)),
                is_detail: measure.is_detail,
                name: measure.name,
                summary,
                peer,
            })
        })
        .collect()
}

fn named(name: &str, runs: &[Outcome], side: fn(&Outcome) -> &Vec<(String, f64)>) -> Vec<f64> {
    runs.iter()
        .flat_map(side)
        .filter(|(measured, _)| measured == name)
        .map(|(_, value)| *value)
        .collect()
}

fn peer(ours: &Summary, theirs: Vec<f64>) -> Option<Peer> {
    let ratios = ours
        .runs
        .iter()
        .zip(&theirs)
        .map(|(ours, theirs)| ours / theirs);
    let ratio = Summary::of(ratios.collect())?.median;
    let summary = Summary::of(theirs)?;
    Some(Peer {
        value: summary.median,
        summary,
        ratio,
    })
}

fn binary(named: Option<&Path>) -> Result<PathBuf, LabError> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()
            .map_err(LabError::system("cannot tell where this binary lies"))?
            .with_file_name("thalweg"),
    };
    if path.is_file() {
        Ok(path)
    } else {
        Err(LabError::Usage(format!(
            "{} is not there; build it with `cargo build --release`, or name it with --thalweg",
            path.display()
        )))
    }
}

const RUNS: usize = 5;
const QUICK_RUNS: usize = 1;
/// Exit code when everything ran and a goal was missed.
const GOAL_MISSED: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_run_keeps_what_its_processes_wrote_and_nothing_else() {
        let work = tempfile::tempdir().unwrap();
        let files = [
            "run-0/output/up.log",
            "run-0/up/streams/0.journal",
            "run-0/up/thalweg.log",
            "run-0/tailed.log",
            "run-0/second/output/load.log",
            "run-0/second/load.c",
        ];
        for file in files {
            let path = work.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        keep_output(work.path());
        for file in files {
            let is_output = file.contains("/output/");
            assert_eq!(work.path().join(file).exists(), is_output, "{file}");
        }
        assert!(!work.path().join("run-0/up").exists());
    }
}
