//! How fast one import is, into which database, and what it costs in time and memory.

use std::time::{Duration, Instant};

use super::bench::Bench;
use super::{MIB, PUBLISHED};
use crate::database::{Kind, used};
use crate::experiment::{Experiment, LabError, Measure, Outcome, Series, Setting, runtime};

/// `thalweg lab run import-rates`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "import-rates",
    about: "one import with journal, progress and search index, into SQLite and PostgreSQL",
    method: "Thalweg (up, embedded defaults but for the database) imports a file of MARC records of about \
        900 bytes of one tenant into topic and table: 25,000 records into its own SQLite file and into \
        PostgreSQL, and 250,000 into PostgreSQL. A rate is over the job's time by the server's clock, \
        from the request with the file to the last commit; searchable is when the index has all of \
        them. Times of the processor and memory are of the server and of PostgreSQL apart; memory is \
        looked at twenty times a second, and its growth is from a quarter of the records to the end. \
        The records are a library's, if THALWEG_LAB_MARC names a file of them, or else generated.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    let mut measures = Vec::new();
    for (load, _, _) in LOADS {
        let rate = Measure::new(rate(load), "records/s").at_least(2_200.0);
        measures.extend([
            rate.reference(PUBLISHED, 44.0),
            Measure::new(searchable(load), "records/s"),
            Measure::new(server_cpu(load), "µs"),
            Measure::new(database_cpu(load), "µs"),
            Measure::new(memory(load), "MiB").at_most(256.0),
            Measure::new(growth(load), "×").detail(),
        ]);
    }
    measures
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    runtime()?.block_on(measure(setting))
}

async fn measure(setting: &Setting) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::default();
    for (load, records, on) in LOADS {
        if !setting.wants(load) {
            continue;
        }
        let records = if setting.quick { records / 10 } else { records };
        let bench = Bench::start_on(setting, &load.replace([' ', ','], "-"), on)?;
        let server = bench.up.process.id();
        let before = (
            bench.up.process.usage()?.cpu,
            bench.database.as_ref().map(|database| database.used().cpu),
        );
        let started = Instant::now();
        let job = bench.import("t1", "imports-t1", 0, records).await?;
        let mut memory_points = Vec::new();
        let watch = async {
            loop {
                let now = used(server).resident_bytes as f64 / MIB;
                memory_points.push((started.elapsed().as_secs_f64(), now));
                tokio::time::sleep(LOOK).await;
            }
        };
        let ended = tokio::select! {
            ended = bench.ended(&job, started) => ended?,
            never = watch => never,
        };
        outcome.add(rate(load), records as f64 / ended.seconds);
        bench.indexed().await?;
        let seconds = started.elapsed().as_secs_f64();
        outcome.add(searchable(load), records as f64 / seconds);
        let per_record = |cpu: Duration| cpu.as_secs_f64() * 1e6 / records as f64;
        let usage = bench.up.process.usage()?;
        outcome.add(
            server_cpu(load),
            per_record(usage.cpu.saturating_sub(before.0)),
        );
        if let (Some(database), Some(before)) = (&bench.database, before.1) {
            let cpu = database.used().cpu.saturating_sub(before);
            outcome.add(database_cpu(load), per_record(cpu));
        }
        outcome.add(memory(load), usage.resident_bytes_max as f64 / MIB);
        if let Some(early) = at_quarter(&ended.points, &memory_points, records) {
            let late = memory_points.last().map_or(early, |(_, mib)| *mib);
            outcome.add(growth(load), late / early);
        }
        let series = |unit: &str, name: &str, points| Series::new(load, "s", unit, name, points);
        outcome
            .series
            .push(series("records", "imported", ended.points));
        let plot = format!("{load}, memory of the server");
        outcome
            .series
            .push(Series::new(&plot, "s", "MiB", "resident", memory_points));
        bench.up.process.stop()?;
    }
    Ok(outcome)
}

/// The memory when a quarter of the records was in.
fn at_quarter(done: &[(f64, f64)], memory: &[(f64, f64)], records: usize) -> Option<f64> {
    let (when, _) = done.iter().find(|(_, n)| *n >= records as f64 / 4.0)?;
    let (_, mib) = memory.iter().find(|(at, _)| at >= when)?;
    Some(*mib)
}

fn rate(load: &str) -> String {
    format!("{load}: rate")
}

fn searchable(load: &str) -> String {
    format!("{load}: rate until all are searchable")
}

fn server_cpu(load: &str) -> String {
    format!("{load}: server CPU per record")
}

fn database_cpu(load: &str) -> String {
    format!("{load}: PostgreSQL CPU per record")
}

fn memory(load: &str) -> String {
    format!("{load}: most memory of the server")
}

fn growth(load: &str) -> String {
    format!("{load}: memory at the end over that at a quarter")
}

const LOADS: [(&str, usize, Option<Kind>); 3] = [
    ("25,000 into SQLite", 25_000, None),
    ("25,000 into PostgreSQL", 25_000, Some(Kind::Postgres)),
    ("250,000 into PostgreSQL", 250_000, Some(Kind::Postgres)),
];
const LOOK: Duration = Duration::from_millis(50);
