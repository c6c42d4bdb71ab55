//! Agents that nobody knows, all at once, with a manifest that nobody knows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::server::{Forwards, Keeps, Plan, Server};
use super::{EFM, MIB};
use crate::agents::message::{Kind, manifest};
use crate::agents::{Beat, Crowd, CrowdBuild};
use crate::experiment::{Experiment, LabError, Measure, Outcome, Series, Setting, runtime};
use crate::process::raise_handles;
use crate::stats;
use crate::store::Watch;

/// `thalweg lab run fleet-register`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fleet-register",
    about: "20,000 agents with an unknown 0.8 MB manifest register within 10 s; databases, gzip, Kafka",
    method: "One Thalweg (up --role fleet), its database with the settings it comes with and the load \
        generator share one machine. Nothing is prewarmed: no agent, class or manifest is known when \
        the agents make their first call, at even moments over ten seconds; who is asked to describe \
        itself answers at once with a manifest of 0.8 MB. Latency counts from a call's own moment. \
        CPU is user and system time of server and database until everything is written, over the \
        agents. The published experiment registers 120 agents a second over 833 s, prewarmed: an \
        unknown manifest brought by hundreds of agents at once can hang it; each agent describes \
        itself, and answers come mostly under 100 ms with peaks of 5 s at about two cores a node.",
    peer: None,
    measures,
    run,
};

/// One storm.
struct Storm {
    name: &'static str,
    agents: u32,
    /// Registrations in a second.
    rate: f64,
    manifests: u32,
    keeps: Keeps,
    is_gzip: bool,
    forwards: Forwards,
    keeps_connections: bool,
    has_goals: bool,
    is_quick: bool,
}

const STORM: Storm = Storm {
    name: "",
    agents: 20_000,
    rate: 2_000.0,
    manifests: 1,
    keeps: Keeps::Postgres,
    is_gzip: false,
    forwards: Forwards::No,
    keeps_connections: true,
    has_goals: true,
    is_quick: false,
};

const STORMS: &[Storm] = &[
    Storm {
        name: "SQLite",
        keeps: Keeps::Sqlite,
        is_quick: true,
        ..STORM
    },
    Storm {
        name: PLAIN,
        is_quick: true,
        ..STORM
    },
    Storm {
        name: "MariaDB",
        keeps: Keeps::MariaDb,
        ..STORM
    },
    Storm {
        name: "PostgreSQL, gzip",
        is_gzip: true,
        is_quick: true,
        ..STORM
    },
    Storm {
        name: "PostgreSQL, forwarded to Kafka",
        forwards: Forwards::Kafka,
        ..STORM
    },
    Storm {
        name: "PostgreSQL, a new connection per call",
        keeps_connections: false,
        ..STORM
    },
    Storm {
        name: "PostgreSQL, 50 manifests",
        manifests: 50,
        ..STORM
    },
    Storm {
        name: "PostgreSQL, 120 agents/s",
        rate: 120.0,
        agents: 2_400,
        has_goals: false,
        ..STORM
    },
];

impl Storm {
    fn row(&self, figure: &str) -> String {
        format!("{}: {figure}", self.name)
    }

    fn measures(&self) -> Vec<Measure> {
        let new = |figure: &str, unit| Measure::new(self.row(figure), unit);
        let p99 = new(P99, "ms").reference("EFM sizing guide, mostly", 100.0);
        // A description that is late is asked of another agent.
        let describes = f64::from(self.manifests * 4);
        let mut measures = vec![
            new(RATE, "agents/s").reference(EFM, 120.0),
            new(ERRORS, "").at_most(0.0),
            new(P50, "ms").detail(),
            match self.has_goals {
                true => p99.at_most(250.0),
                false => p99,
            },
            new(MAX, "ms").reference("EFM sizing guide, peaks", 5_000.0),
            new(DESCRIBES, "").at_most(describes),
            new(MANIFESTS_MISSING, "").at_most(0.0).detail(),
            new(MANIFESTS, "").at_most(f64::from(self.manifests)),
            new(LOST, "").at_most(0.0),
            // Two cores on each of three nodes, at 1,900 requests a second.
            new(CPU, "µs").reference("EFM sizing guide, a request, without its database", 3_150.0),
            new(MEMORY, "MiB"),
            new(WRITTEN, "bytes/s")
                .reference("EFM sizing guide, database", 5e6)
                .detail(),
        ];
        if let Some(published) = self.dearer() {
            measures.push(new(OVER, "%").reference("EFM sizing guide, up to", published));
        }
        measures
    }

    /// By how much the published product takes more CPU so than the plain storm, percent.
    fn dearer(&self) -> Option<f64> {
        match (self.is_gzip, self.forwards) {
            (true, _) => Some(15.0),
            (false, Forwards::Kafka) => Some(50.0),
            (false, _) => None,
        }
    }
}

fn measures() -> Vec<Measure> {
    STORMS.iter().flat_map(Storm::measures).collect()
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    raise_handles()?;
    let mut outcome = Outcome::default();
    let storms = STORMS
        .iter()
        .filter(|storm| storm.is_quick || !setting.quick);
    for storm in storms.filter(|storm| setting.wants(storm.name)) {
        eprintln!("fleet-register: {}", storm.name);
        one(setting, storm, &mut outcome)?;
    }
    Ok(outcome)
}

fn one(setting: &Setting, storm: &Storm, outcome: &mut Outcome) -> Result<(), LabError> {
    // The short form is as fierce, and shorter.
    let agents = if setting.quick {
        storm.agents / 10
    } else {
        storm.agents
    };
    let plan = Plan {
        keeps: storm.keeps,
        forwards: storm.forwards,
        is_tls: false,
    };
    let server = Server::start(setting, &plan, "fleet-data")?;
    let build = |number: u32| CrowdBuild {
        kind: Kind::Java,
        class: format!("class-{}", number % 5),
        manifest_hash: format!("{number:02}{}", "a7".repeat(63)),
        manifest: manifest(Kind::Java, 800_000).into(),
        flow: String::new(),
    };
    let crowd = Arc::new(Crowd {
        address: server.address,
        tls: None,
        keeps: storm.keeps_connections,
        connections: 512,
        is_gzip: storm.is_gzip,
        builds: (0..storm.manifests).map(build).collect(),
    });
    let runtime = runtime()?;
    let watch = Watch::begin(server.id());
    let (before, began) = (server.cost(), Instant::now());
    let answered = runtime.block_on(crowd.call(Beat {
        agents,
        rate: storm.rate,
        count: u64::from(agents),
    }));
    // What is written behind belongs to what it costs.
    std::thread::sleep(Duration::from_secs(2));
    let (cost, length) = (server.cost().since(before), began.elapsed().as_secs_f64());
    let seen = watch.end();
    if let Some(error) = &answered.first_error {
        eprintln!("fleet-register: {} calls failed: {error}", answered.errors);
    }
    let known = runtime.block_on(server.metric("thalweg_fleet_agents"))?;
    let manifests = runtime.block_on(server.metric("thalweg_fleet_manifests"))?;
    let cpu = cost.server_cpu + cost.database_cpu;
    let figures = [
        (RATE, answered.beats as f64 / answered.seconds),
        (ERRORS, answered.errors as f64),
        (P50, answered.latency(0.5)),
        (P99, answered.latency(0.99)),
        (MAX, answered.latency(1.0)),
        (DESCRIBES, answered.describes as f64),
        (MANIFESTS, manifests),
        (MANIFESTS_MISSING, f64::from(storm.manifests) - manifests),
        (LOST, f64::from(agents) - known),
        (CPU, cpu.as_secs_f64() * 1e6 / f64::from(agents)),
        (MEMORY, server.resident_bytes()? as f64 / MIB),
        (WRITTEN, cost.bytes_written as f64 / length),
    ];
    let rows = figures
        .into_iter()
        .map(|(figure, value)| (storm.row(figure), value));
    outcome.values.extend(rows);
    let plain = format!("{PLAIN}: {CPU}");
    let plain = outcome.values.iter().find(|(name, _)| *name == plain);
    if let (Some(_), Some((_, plain))) = (storm.dearer(), plain) {
        let over = (cpu.as_secs_f64() * 1e6 / f64::from(agents) / plain - 1.0) * 100.0;
        outcome.values.push((storm.row(OVER), over));
    }
    let series = |plot: &str, along: &str, unit: &str, points| {
        Series::new(plot, along, unit, storm.name, points)
    };
    outcome.series.extend([
        series(
            "Latency of first calls",
            "percent of the calls",
            "ms",
            stats::curve(&answered.latency_ms),
        ),
        series("Memory of the server", "seconds", "MiB", seen.memory_mib),
        series(
            "CPU of the server",
            "seconds",
            "% of a core",
            seen.cpu_percent,
        ),
    ]);
    server.end()
}

/// The storm that others are set against.
const PLAIN: &str = "PostgreSQL";
const RATE: &str = "rate";
const ERRORS: &str = "errors";
const P50: &str = "p50";
const P99: &str = "p99";
const MAX: &str = "max";
const DESCRIBES: &str = "agents asked to describe themselves";
const MANIFESTS: &str = "manifests stored";
const MANIFESTS_MISSING: &str = "manifests missing";
const LOST: &str = "agents lost";
const CPU: &str = "CPU per agent";
const MEMORY: &str = "memory of the server";
const WRITTEN: &str = "bytes written";
const OVER: &str = "CPU above the plain one";
