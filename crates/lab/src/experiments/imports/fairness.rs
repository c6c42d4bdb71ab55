//! How the sink is shared: among tenants with much to do, by weight, and with quiet ones who come
//! beside somebody's backlog.

use std::time::{Duration, Instant};

use serde_json::json;

use super::SINK;
use super::bench::{Bench, LOOK, all};
use crate::experiment::{Experiment, LabError, Measure, Outcome, Series, Setting, runtime};
use crate::stats::{quantile, sorted};

/// `thalweg lab run import-fairness`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "import-fairness",
    about: "tenants' shares of the sink: equal, by weight, and quiet ones beside a backlog",
    method: "Thalweg (up, embedded defaults but for the database, which is PostgreSQL) imports MARC records of \
        about 900 bytes. Three tenants with 160,000 records each start together; Jain's index is that of \
        the records done in each 5 seconds while all are busy, and the least of these counts. Then three tenants of weights 1, 2 and 4; \
        a share is that of the records done while all were busy, against the weight's part. Then fifty \
        tenants import 100 records four times each, one after the other on an idle system, and again at scattered \
        times within 20 seconds beside a tenant with a backlog of 1,000,000 records, into a server that is set up for \
        large imports (min_wal_size=2GB, max_wal_size=8GB) and has the files of its log; durations are by \
        the server's clock, from the request to the last commit. The total rate in these 20 seconds \
        is set against the backlog's in the 10 seconds before and after.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    vec![
        Measure::new(JAIN, "").at_least(0.99),
        Measure::new(WEIGHTS, "%").at_most(5.0),
        Measure::new(QUIET_ALONE, "ms"),
        Measure::new(QUIET_WAIT, "ms"),
        Measure::new(QUIET_BESIDE, "×").at_most(3.0),
        Measure::new(TOTAL, "×").at_least(0.97),
    ]
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    runtime()?.block_on(measure(setting))
}

async fn measure(setting: &Setting) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::default();
    let many = |records: usize| if setting.quick { records / 10 } else { records };
    if setting.wants("equal") {
        let bench = Bench::start_on(setting, "equal", SINK)?;
        let points = bench.together([1, 1, 1], many(160_000)).await?;
        outcome.add(JAIN, least_jain(&points));
        plot(&mut outcome, "three tenants of one weight", &points);
        bench.up.process.stop()?;
    }
    if setting.wants("weights") {
        let bench = Bench::start_on(setting, "weights", SINK)?;
        let weights = [1, 2, 4];
        let points = bench.together(weights, many(90_000)).await?;
        outcome.add(WEIGHTS, share_error(&points, weights) * 100.0);
        plot(&mut outcome, "three tenants of weights 1, 2 and 4", &points);
        bench.up.process.stop()?;
    }
    if setting.wants("quiet") {
        let bench = Bench::start_in_use(setting, "quiet", SINK)?;
        let (tenants, length) = if setting.quick { (10, 4.0) } else { (50, 20.0) };
        let imports = tenants * IMPORTS_OF_QUIET;
        let mut alone = Vec::new();
        for number in 0..imports {
            alone.push(bench.small(number % tenants, number).await?);
        }
        let alone = p95(&alone)?;
        outcome.add(QUIET_ALONE, alone * 1e3);
        for part in 0..4 {
            let records = many(250_000);
            bench
                .import("a", "imports-a", part * records, records)
                .await?;
        }
        let before = bench
            .rate_of("a", Duration::from_secs_f64(length / 2.0))
            .await?;
        let began = Instant::now();
        let from = bench.done_of(None).await?;
        let here = &bench;
        let waits = (0..imports).map(|number| async move {
            // The golden ratio's multiples scatter evenly and alike in each run.
            let at = (number as f64 * 0.618_033_988_7).fract() * length;
            tokio::time::sleep_until((began + Duration::from_secs_f64(at)).into()).await;
            here.small(number % tenants, number).await
        });
        let beside = all(waits).await?;
        let rate = (bench.done_of(None).await? - from) / began.elapsed().as_secs_f64();
        // The database slows down as it fills, so that both sides count.
        let after = bench
            .rate_of("a", Duration::from_secs_f64(length / 2.0))
            .await?;
        outcome.add(QUIET_WAIT, p95(&beside)? * 1e3);
        outcome.add(QUIET_BESIDE, p95(&beside)? / alone);
        outcome.add(TOTAL, rate / before.midpoint(after));
        bench.up.process.stop()?;
    }
    Ok(outcome)
}

/// Records done of three tenants, at seconds since they began, while all are busy.
type Points = Vec<(f64, [f64; 3])>;

impl Bench {
    /// Lets three tenants of these weights import `records` times their weight each.
    async fn together(&self, weights: [usize; 3], records: usize) -> Result<Points, LabError> {
        let mut ids = Vec::new();
        for (number, weight) in weights.into_iter().enumerate() {
            let url = format!("{}/tenants/t{number}", self.url);
            let request = self.client.put(url).json(&json!({"weight": weight}));
            self.answer("set a weight", request).await?;
            let (tenant, topic) = (format!("t{number}"), format!("imports-t{number}"));
            let first = number * weights.iter().sum::<usize>() * records;
            ids.push(
                self.import(&tenant, &topic, first, records * weight)
                    .await?,
            );
        }
        let started = Instant::now();
        let mut points = Vec::new();
        loop {
            let mut done = [0.0; 3];
            for (id, done) in ids.iter().zip(&mut done) {
                let job = self.job(id).await?;
                if job["state"] != "running" {
                    return Ok(points);
                }
                *done = job["records_done"].as_f64().unwrap_or(0.0);
            }
            points.push((started.elapsed().as_secs_f64(), done));
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A quiet tenant's import, with this number of all; answers its seconds.
    async fn small(&self, tenant: usize, number: usize) -> Result<f64, LabError> {
        let (tenant, topic) = (format!("q{tenant}"), format!("imports-q{tenant}"));
        let id = self.import(&tenant, &topic, number * 100, 100).await?;
        Ok(self.ended(&id, Instant::now()).await?.seconds)
    }

    /// Records that a tenant, or all together, have done.
    async fn done_of(&self, tenant: Option<&str>) -> Result<f64, LabError> {
        let url = format!("{}/imports/tenants", self.url);
        let told = self.answer("read tenants", self.client.get(url)).await?;
        let tenants = told["tenants"].as_array().into_iter().flatten();
        let wanted = tenants.filter(|one| tenant.is_none_or(|name| one["tenant"] == name));
        Ok(wanted.filter_map(|one| one["records_done"].as_f64()).sum())
    }

    async fn rate_of(&self, tenant: &str, length: Duration) -> Result<f64, LabError> {
        let (from, started) = (self.done_of(Some(tenant)).await?, Instant::now());
        tokio::time::sleep(length).await;
        Ok((self.done_of(Some(tenant)).await? - from) / started.elapsed().as_secs_f64())
    }
}

/// The least of Jain's indices of all windows, (Σx)² / (n Σx²); of the whole where it is shorter.
fn least_jain(points: &Points) -> f64 {
    let mut least = f64::NAN;
    for (at, from) in points {
        let end = points.iter().find(|(later, _)| *later >= at + WINDOW_S);
        let Some((_, to)) = end.or(points.last().filter(|_| least.is_nan())) else {
            break;
        };
        let done: Vec<f64> = from.iter().zip(to).map(|(from, to)| to - from).collect();
        let sum: f64 = done.iter().sum();
        let squares: f64 = done.iter().map(|one| one * one).sum();
        least = least.min(sum * sum / (done.len() as f64 * squares));
    }
    least
}

/// How far a share is from the weight's part at most, as a part of that.
fn share_error(points: &Points, weights: [usize; 3]) -> f64 {
    let (Some((_, from)), Some((_, to))) = (points.first(), points.last()) else {
        return f64::NAN;
    };
    // The first had the sink for itself until the last one's file was there.
    let done: Vec<f64> = from.iter().zip(to).map(|(from, to)| to - from).collect();
    let all: f64 = done.iter().sum();
    let weight: usize = weights.iter().sum();
    let errors = done.iter().zip(weights).map(|(done, of)| {
        let wanted = of as f64 / weight as f64;
        (done / all / wanted - 1.0).abs()
    });
    errors.fold(0.0, f64::max)
}

fn plot(outcome: &mut Outcome, name: &str, points: &Points) {
    for tenant in 0..3 {
        let line = points.iter().map(|(at, done)| (*at, done[tenant]));
        let label = format!("t{tenant}");
        let series = Series::new(name, "s", "records", &label, line.collect());
        outcome.series.push(series);
    }
}

fn p95(seconds: &[f64]) -> Result<f64, LabError> {
    quantile(&sorted(seconds), 0.95)
        .ok_or_else(|| LabError::Failed("nobody imported anything".to_owned()))
}

const JAIN: &str = "equal: least Jain's index of 5 seconds";
const WEIGHTS: &str = "weights 1:2:4: largest error of a share";
const QUIET_ALONE: &str = "quiet: 100 records alone, p95";
const QUIET_WAIT: &str = "quiet: beside a backlog of 1,000,000, p95";
const QUIET_BESIDE: &str = "quiet: beside a backlog of 1,000,000, p95 over alone";
const TOTAL: &str = "quiet: total rate of fifty and the backlog over the backlog's";
const WINDOW_S: f64 = 5.0;
/// So that a percentile is more than the bad luck of two or three.
const IMPORTS_OF_QUIET: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_fair_window_counts() {
        let fair = |at: f64| (at, [at * 10.0, at * 10.0, at * 10.0]);
        let mut points: Points = (0..20).map(|at| fair(f64::from(at))).collect();
        assert!((least_jain(&points) - 1.0).abs() < 1e-9);
        // One stands still for five seconds.
        for (at, done) in &mut points {
            done[0] = if *at < 10.0 {
                *at * 10.0
            } else {
                (*at - 5.0).max(10.0) * 10.0
            };
        }
        assert!((least_jain(&points) - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_share_is_compared_with_the_weights_part() {
        let points = vec![(0.0, [0.0; 3]), (9.0, [10.0, 20.0, 40.0])];
        assert!(share_error(&points, [1, 2, 4]) < 1e-9);
        let points = vec![(1.0, [5.0, 0.0, 0.0]), (9.0, [16.0, 20.0, 39.0])];
        assert!((share_error(&points, [1, 2, 4]) - 0.1).abs() < 1e-9);
    }
}
