//! Three tenants' imports started one into the other, on topics of their own and on a shared one.

use std::time::{Duration, Instant};

use super::bench::Bench;
use super::counter::Served;
use super::{PUBLISHED, SINK, books};
use crate::database::Kind;
use crate::experiment::{Experiment, LabError, Measure, Outcome, Series, Setting, runtime};
use crate::stats::sorted;

/// `thalweg lab run shared-topics`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-topics",
    about: "three tenants' imports, started at 0, 30 and 60 % of the first, per topic mode",
    method: "Thalweg (up, embedded defaults but for the database, which is PostgreSQL) imports files of MARC \
        records of about 900 bytes from three tenants, each of its own ids. First one alone, which gives T. Then the second \
        tenant's import starts when the first one's progress is 30 %, the third one's at 60 %: once \
        with a topic for each tenant and once with one topic for all, which of them first changing with each run. Three imports of 25,000 records are \
        also started together (loads: counter, PostgreSQL and counter, SQLite) \
        beside 20 users who check records out and in, four times a second each, since five seconds before, latency from the \
        intended moment, in a PostgreSQL that has the files of its log already, as one in use has; their rate is set against that of one import alone. Durations are from the request to the job's end, over T; ideal sharing gives \
        2.10, 2.40 and 2.10. What the published experiments with FOLIO took stands beside it.",
    peer: None,
    measures,
    run,
};

/// How topics are named.
const MODES: [&str; 2] = ["own topics", "shared topic"];

fn measures() -> Vec<Measure> {
    let mut measures = vec![
        Measure::new(RATE, "records/s")
            .at_least(2_200.0)
            .reference(PUBLISHED, 44.0),
    ];
    for size in SIZES {
        measures.push(Measure::new(alone(size), "s"));
        for tenant in 0..IDEAL.len() {
            let name = between(size, tenant);
            let not_less = Measure::new(format!("{name}, not less"), "×");
            measures.push(Measure::new(name, "×").at_most(1.05).detail());
            measures.push(not_less.at_least(0.95).detail());
        }
        for (mode, ratio) in MODES.iter().zip(published(size)) {
            for (tenant, (least, most)) in IDEAL.iter().map(|t| (t * 0.9, t * 1.1)).enumerate() {
                let name = duration(size, mode, tenant);
                measures.push(Measure::new(name.clone(), "T").at_most(most));
                measures.push(
                    Measure::new(format!("{name}, not less"), "T")
                        .at_least(least)
                        .detail(),
                );
            }
            let spread = Measure::new(spread(size, mode), "×").at_most(1.25);
            measures.push(match ratio {
                Some(ratio) => spread.reference(PUBLISHED, ratio),
                None => spread,
            });
        }
    }
    for (sink, _) in SINKS {
        measures.push(Measure::new(check_alone(sink), "ms"));
        for (mode, ratio) in MODES.iter().zip([2.80, 3.32]) {
            let slower = Measure::new(slower(sink, mode), "×").at_most(1.25);
            measures.push(slower.reference(PUBLISHED, ratio));
            measures.push(Measure::new(kept(sink, mode), "×").at_least(0.7));
        }
    }
    measures
}

/// Of the published runs: slowest to fastest, by size and mode.
fn published(size: usize) -> [Option<f64>; 2] {
    match size {
        25_000 => [Some(2.03), Some(1.39)],
        50_000 => [None, Some(1.34)],
        _ => [None, None],
    }
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    runtime()?.block_on(measure(setting))
}

async fn measure(setting: &Setting) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::default();
    for size in SIZES {
        if !setting.wants(&size.to_string()) {
            continue;
        }
        let records = if setting.quick { size / 10 } else { size };
        let bench = Bench::start_on(setting, &format!("alone-{size}"), SINK)?;
        let job = bench.import("t1", "imports-t1", 0, records).await?;
        let alone_s = bench.ended(&job, Instant::now()).await?.seconds;
        let rate = records as f64 / alone_s;
        outcome.add(alone(size), alone_s);
        if size == SIZES[0] {
            outcome.add(RATE, rate);
        }
        bench.up.process.stop()?;
        let mut of_modes = [[0.0; 3]; 2];
        // Which goes first changes, so that neither has the younger disk in all runs.
        let first = setting.repeat % MODES.len();
        for index in [first, 1 - first] {
            let mode = MODES[index];
            let bench =
                Bench::start_on(setting, &format!("{}-{size}", mode.replace(' ', "-")), SINK)?;
            let times = bench.staggered(mode, records, &mut outcome).await?;
            for (tenant, seconds) in times.iter().enumerate() {
                let name = duration(size, mode, tenant);
                outcome.add(name.clone(), seconds / alone_s);
                outcome.add(format!("{name}, not less"), seconds / alone_s);
            }
            let order = sorted(&times);
            outcome.add(spread(size, mode), order[2] / order[0]);
            bench.up.process.stop()?;
            of_modes[index] = times;
        }
        let [own, shared] = of_modes;
        for (tenant, (own, shared)) in own.iter().zip(shared).enumerate() {
            let name = between(size, tenant);
            outcome.add(name.clone(), own / shared);
            outcome.add(format!("{name}, not less"), own / shared);
        }
    }
    for (sink, on) in SINKS {
        if setting.wants(&format!("counter, {sink}")) {
            counter(setting, sink, on, &mut outcome).await?;
        }
    }
    Ok(outcome)
}

/// The imports beside the counter, and each of them alone. As many records in the short form too:
/// with fewer the counter would hardly be seen.
async fn counter(
    setting: &Setting,
    sink: &str,
    on: Option<Kind>,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    let records = SIZES[0];
    let bench = Bench::start_in_use(setting, &format!("alone-{sink}"), on)?;
    let job = bench.import("t1", "imports-t1", 0, records).await?;
    let rate = records as f64 / bench.ended(&job, Instant::now()).await?.seconds;
    bench.stock().await?;
    let length = if setting.quick { QUIET / 3 } else { QUIET };
    let quiet = bench.circulate(SETTLING + length).await?;
    let quiet = quiet.since(SETTLING).p95()?;
    outcome.add(check_alone(sink), quiet * 1e3);
    bench.up.process.stop()?;
    let first = setting.repeat % MODES.len();
    for mode in [MODES[first], MODES[1 - first]] {
        let name = format!("{}-{sink}", mode.replace(' ', "-"));
        let bench = Bench::start_in_use(setting, &name, on)?;
        let (served, beside) = bench.beside(mode, records).await?;
        outcome.add(slower(sink, mode), served.p95()? / quiet);
        let plot = format!("check-out or check-in beside imports, {sink}");
        let points = served.points();
        let line = Series::new(&plot, "s", "ms", mode, points);
        outcome.series.push(line);
        outcome.add(kept(sink, mode), beside / rate);
        bench.up.process.stop()?;
    }
    Ok(())
}

impl Bench {
    /// The three imports after the published rule; answers each one's seconds.
    async fn staggered(
        &self,
        mode: &str,
        records: usize,
        outcome: &mut Outcome,
    ) -> Result<[f64; 3], LabError> {
        let [one, two, three] = [0, 1, 2].map(|part| books::file(part * records, records));
        let query = |tenant| format!("tenant={tenant}&topic={}", topic(mode, tenant));
        let begun = Instant::now();
        let first = self.send(&query("t1"), one).await?;
        let second = async {
            self.reaches(&first, records * 3 / 10).await?;
            let (from, started) = (begun.elapsed().as_secs_f64(), Instant::now());
            let id = self.send(&query("t2"), two).await?;
            Ok::<_, LabError>((from, self.ended(&id, started).await?))
        };
        let third = async {
            self.reaches(&first, records * 6 / 10).await?;
            let (from, started) = (begun.elapsed().as_secs_f64(), Instant::now());
            let id = self.send(&query("t3"), three).await?;
            Ok::<_, LabError>((from, self.ended(&id, started).await?))
        };
        let (one, two, three) = tokio::join!(self.ended(&first, begun), second, third);
        let (two, three) = (two?, three?);
        let lines = [("t1", (0.0, one?)), ("t2", two), ("t3", three)];
        let plot = format!("records imported, {records} each, {mode}");
        let times = lines.each_ref().map(|(_, (_, ended))| ended.seconds);
        for (name, (from, ended)) in lines {
            let points = ended.points;
            let points = points
                .into_iter()
                .map(|(at, done)| (at + from, done))
                .collect();
            outcome
                .series
                .push(Series::new(&plot, "s", "records", name, points));
        }
        Ok(times)
    }

    /// Three imports at once beside the counter; answers who was served there, and the imports' records
    /// a second.
    async fn beside(&self, mode: &str, records: usize) -> Result<(Served, f64), LabError> {
        self.stock().await?;
        let files = [1, 2, 3].map(|part| books::file(part * records, records));
        let mut rate = 0.0;
        let imports = async {
            // So that the floor is known of a counter without imports.
            tokio::time::sleep(SETTLING).await;
            let started = Instant::now();
            let mut ids = Vec::new();
            for (file, tenant) in files.into_iter().zip(["t1", "t2", "t3"]) {
                let query = format!("tenant={tenant}&topic={}", topic(mode, tenant));
                ids.push(self.send(&query, file).await?);
            }
            for id in &ids {
                self.ended(id, Instant::now()).await?;
            }
            rate = (ids.len() * records) as f64 / started.elapsed().as_secs_f64();
            Ok(())
        };
        let served = self.circulate_beside(imports).await?;
        Ok((served.since(SETTLING), rate))
    }
}

fn topic<'t>(mode: &str, tenant: &'t str) -> &'t str {
    match (mode == MODES[1], tenant) {
        (true, _) => "imports-ALL",
        (false, "t1") => "imports-t1",
        (false, "t2") => "imports-t2",
        (false, _) => "imports-t3",
    }
}

fn alone(size: usize) -> String {
    format!("{size} records alone (T)")
}

fn duration(size: usize, mode: &str, tenant: usize) -> String {
    format!("{size} records, {mode}, tenant {}", tenant + 1)
}

fn spread(size: usize, mode: &str) -> String {
    format!("{size} records, {mode}, slowest to fastest")
}

fn between(size: usize, tenant: usize) -> String {
    format!(
        "{size} records, tenant {}, own topics over the shared one",
        tenant + 1
    )
}

fn check_alone(sink: &str) -> String {
    format!("check-out and check-in alone, {sink}, p95")
}

fn kept(sink: &str, mode: &str) -> String {
    format!("imports beside check-out and check-in, {sink}, {mode}, of their rate")
}

fn slower(sink: &str, mode: &str) -> String {
    format!("check-out and check-in beside imports, {sink}, {mode}, p95 over alone")
}

/// Where the counter and the imports beside it write.
const SINKS: [(&str, Option<Kind>); 2] = [("PostgreSQL", SINK), ("SQLite", None)];
const RATE: &str = "one import alone";
const SIZES: [usize; 3] = [25_000, 50_000, 100_000];
const IDEAL: [f64; 3] = [2.10, 2.40, 2.10];
const QUIET: Duration = Duration::from_secs(20);
const SETTLING: Duration = Duration::from_secs(5);
