//! Many statements: what they cost at rest, at the start, beside those that match, and while they
//! come and go under load.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::experiment::{Experiment, LabError, Measure, Outcome, Setting};
use crate::experiments::fusion::{Api, PUBLISHERS, address};
use crate::http::{Call, Link};
use crate::limits::STALL_MAX;
use crate::mqtt::{Pace, Publishers};
use crate::process::Up;
use crate::stats;

/// `thalweg lab run fusion-statements`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fusion-statements",
    about: "10,000 statements on 1,000 topics: memory, start, throughput; 1,000 come and go under load",
    method: "One thalweg up on embedded defaults but for room for 11,000 statements. Ten statements on ten flooded topics are measured \
        alone; then 9,990 more on 990 other topics are added and the flood is measured again: the \
        loss is what statements that do not match cost. Memory is resident memory beyond that of the \
        same server before. Then the server is stopped and started: until it serves. Life: at 200,000 \
        messages a second each of 1,000 statements (100 in the short form) is added, paused, resumed, \
        replaced and removed, one call after another; latency is that of the calls, and the flooded \
        statement's books must hold every message.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    vec![
        Measure::new("memory per statement", "KiB")
            .at_most(10.0)
            .reference("eKuiper, per rule", 400.0),
        Measure::new("start with all", "s").at_most(2.0),
        Measure::new("throughput alone", "messages/s").detail(),
        Measure::new("throughput beside all", "messages/s").detail(),
        Measure::new("throughput lost to others", "%").at_most(10.0),
        Measure::new("rate meanwhile", "messages/s").at_least(0.95 * PACED as f64),
        Measure::new("life calls p50", "ms"),
        Measure::new("life calls p99", "ms").at_most(100.0),
        Measure::new("messages missed meanwhile", "messages").at_most(0.0),
        Measure::new("memory after", "% of before").at_most(105.0),
    ]
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let (others, lives) = if setting.quick {
        (9_990, 100)
    } else {
        (9_990, 1_000)
    };
    let flood = Duration::from_secs(if setting.quick { 5 } else { 20 });
    let mut outcome = Outcome::default();
    let up = Up::start_with(&setting.thalweg, setting.folder(), &[ROOM])?;
    let mut api = Api::open(&up)?;
    for n in 0..PUBLISHERS {
        api.add(&format!("hot{n}"), &statement(&format!("hot/{n:02}")))?;
    }
    let alone = flooded(&up, &mut api, flood)?;
    let before = up.process.usage()?.resident_bytes;
    add_all(&up, others)?;
    let after = up.process.usage()?.resident_bytes;
    let beside = flooded(&up, &mut api, flood)?;
    outcome.add(
        "memory per statement",
        after.saturating_sub(before) as f64 / 1_024.0 / others as f64,
    );
    outcome.add("throughput alone", alone);
    outcome.add("throughput beside all", beside);
    outcome.add(
        "throughput lost to others",
        (alone - beside) / alone * 100.0,
    );
    up.process.stop()?;
    // What the last run left says nothing of this one's ports.
    let endpoints = setting.path("up").join("endpoints.json");
    let _ = std::fs::remove_file(endpoints);
    let began = Instant::now();
    let up = Up::start_with(&setting.thalweg, setting.folder(), &[ROOM])?;
    outcome.add("start with all", began.elapsed().as_secs_f64());
    let mut api = Api::open(&up)?;
    lives_under_load(&up, &mut api, lives, &mut outcome)?;
    up.process.stop()?;
    Ok(outcome)
}

/// Floods the hot topics; answers messages a second that the statements took.
fn flooded(up: &Up, api: &mut Api, length: Duration) -> Result<f64, LabError> {
    let taken = |api: &mut Api| -> Result<u64, LabError> {
        let counts = (0..PUBLISHERS).map(|n| api.count(&format!("hot{n}"), "received_total"));
        counts.sum()
    };
    let before = taken(api)?;
    let began = Instant::now();
    let publishers = Publishers::start(up.address("mqtt")?, "hot", PUBLISHERS, Pace::Flood)?;
    std::thread::sleep(length);
    let sent = publishers.stop()?;
    let deadline = Instant::now() + STALL_MAX;
    while taken(api)? < before + sent {
        if Instant::now() > deadline {
            return Err(LabError::Failed("statements missed messages".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(sent as f64 / began.elapsed().as_secs_f64())
}

/// Adds so many statements on topics that nobody publishes to, over several connections at once.
fn add_all(up: &Up, count: usize) -> Result<(), LabError> {
    let (address, runtime) = (address(up)?, crate::experiment::runtime()?);
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for first in 0..CONNECTIONS {
            tasks.spawn(async move {
                let mut link = Link::open(address).await?;
                for n in (first..count).step_by(CONNECTIONS) {
                    let text = statement(&format!("cold/{}", n % 990));
                    let body = json!({"name": format!("cold{n}"), "text": text}).to_string();
                    let call = Call::new(
                        "POST",
                        "/api/v1/statements",
                        "application/json",
                        body.as_bytes(),
                    );
                    link.ask(&call).await?;
                }
                Ok::<(), LabError>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|_| LabError::Failed("adding statements failed".to_owned()))??;
        }
        Ok(())
    })
}

fn lives_under_load(
    up: &Up,
    api: &mut Api,
    lives: usize,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    api.add("all", &statement("life/+"))?;
    let publishers = Publishers::start(up.address("mqtt")?, "life", PUBLISHERS, Pace::Rate(PACED))?;
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    let before = up.process.usage()?.resident_bytes;
    let mut times = Vec::new();
    for n in 0..lives {
        let name = format!("life{n}");
        let path = format!("/api/v1/statements/{name}");
        let text = statement(&format!("life/{:02}", n % PUBLISHERS));
        let form = json!({"name": name, "text": text});
        let other = json!({"text": text.replace("1.8", "2.5")});
        for (method, path, body) in [
            ("POST", "/api/v1/statements".to_owned(), Some(form)),
            ("POST", format!("{path}/pause"), None),
            ("POST", format!("{path}/resume"), None),
            ("PUT", path.clone(), Some(other)),
            ("DELETE", path, None),
        ] {
            let began = Instant::now();
            api.call(method, &path, body.as_ref())?;
            times.push(began.elapsed().as_secs_f64() * 1_000.0);
        }
    }
    let after = up.process.usage()?.resident_bytes;
    let (sent, length) = (publishers.stop()?, began.elapsed());
    outcome.add("rate meanwhile", sent as f64 / length.as_secs_f64());
    let received = api.until("all", "received_total", sent)?;
    let sorted = stats::sorted(&times);
    for (name, q) in [("life calls p50", 0.5), ("life calls p99", 0.99)] {
        outcome.add(name, stats::quantile(&sorted, q).unwrap_or(f64::NAN));
    }
    outcome.add("messages missed meanwhile", sent.abs_diff(received) as f64);
    outcome.add("memory after", after as f64 / before as f64 * 100.0);
    api.remove("all")
}

/// A statement that no row of these loads passes.
fn statement(filter: &str) -> String {
    format!(
        "INSERT INTO mqtt.\"never\" SELECT id, a * 1.8 + 32 AS f FROM mqtt.\"{filter}\" \
         WHERE a * 1.8 + 32 > 1000"
    )
}

/// Those that come and go stand beside the others.
const ROOM: &str = "fusion.statements_max=11000";
/// Connections that add statements at once: they share the journal's syncs.
const CONNECTIONS: usize = 16;
/// The load under which statements come and go, messages a second.
const PACED: u64 = 200_000;
