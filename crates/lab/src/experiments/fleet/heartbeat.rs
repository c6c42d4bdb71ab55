//! A fleet in steady state: agents that are known, run their flow and beat once a minute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::server::{Cost, Forwards, Keeps, Plan, Server};
use super::{EFM, MIB};
use crate::agents::{self, Answered, Beat, Crowd};
use crate::experiment::{Experiment, LabError, Measure, Outcome, Series, Setting, runtime};
use crate::http::{Call, Link};
use crate::process::{raise_handles, usage_of};
use crate::stats;
use crate::store::Watch;

/// `thalweg lab run fleet-heartbeat`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fleet-heartbeat",
    about: "the fleet with 20,000 to 1,000,000 agents that beat once a minute; databases, forwarding",
    method: "One Thalweg (up --role fleet), its database with the settings it comes with (commits \
        wait for the disk) and the load generator share one machine. The agents of one class, MiNiFi \
        Java and MiNiFi C++ by turns (heartbeats of 1.5 and 2.2 KB, every figure in them different \
        each time), register first and all run the class's flow; then each beats once a minute. The \
        generator is open: every beat has its moment, and latency counts from then, the wait for a \
        connection of the generator included. Connections are kept and shared by the agents unless a \
        row says otherwise; a new connection is one per call, with a full handshake where it is TLS \
        (P-256, both sides with certificates). CPU is user and system time of the server, and of the \
        database's processes, over the heartbeats answered. Kafka shares the processors too, so that its \
        work takes from everybody's caches: a row in which a tool feeds it as many messages in the \
        fleet's place, in as many batches, tells that from the cost of forwarding. Bytes written are those of both, as the \
        kernel counts them. Lists are asked for after that while heartbeats go on: a page of 100, by class and \
        state, by a part of the name, and classes. The published figures are of 1,800 heartbeats/s at \
        3 to 4.5 cores in all, without the database's 4.",
    peer: None,
    measures,
    run,
};

/// One load.
#[derive(Debug)]
struct Load {
    name: &'static str,
    agents: u32,
    plan: Plan,
    keeps: bool,
    is_gzip: bool,
    connections: u32,
    /// The loads whose CPU this one's is set against, each with the figure's name and the most that
    /// this one may cost more, percent.
    over: &'static [(&'static str, &'static str, f64)],
    /// p99 and max in ms, memory in MiB, CPU in µs; 0 for none.
    goals: Goals,
    lists: bool,
    is_quick: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Goals {
    p99_ms: f64,
    max_ms: f64,
    memory_mib: f64,
    cpu_us: f64,
    bytes_per_s: f64,
}

const PLAIN: Plan = Plan {
    keeps: Keeps::Sqlite,
    forwards: Forwards::No,
    is_tls: false,
};

const POSTGRES: Plan = Plan {
    keeps: Keeps::Postgres,
    ..PLAIN
};

const HUNDRED_THOUSAND: Goals = Goals {
    p99_ms: 50.0,
    max_ms: 1_000.0,
    memory_mib: 500.0,
    cpu_us: 100.0,
    bytes_per_s: 2e6,
};

const MILLION: Goals = Goals {
    p99_ms: 250.0,
    max_ms: 0.0,
    memory_mib: 2_048.0,
    cpu_us: 0.0,
    bytes_per_s: 0.0,
};

const NO_GOALS: Goals = Goals {
    p99_ms: 0.0,
    max_ms: 0.0,
    memory_mib: 0.0,
    cpu_us: 0.0,
    bytes_per_s: 0.0,
};

impl Load {
    const fn new(name: &'static str, agents: u32, plan: Plan) -> Load {
        Load {
            name,
            agents,
            plan,
            keeps: true,
            is_gzip: false,
            connections: 256,
            over: &[],
            goals: NO_GOALS,
            lists: false,
            is_quick: false,
        }
    }

    const fn goals(self, goals: Goals) -> Load {
        Load { goals, ..self }
    }

    const fn quick(self) -> Load {
        Load {
            is_quick: true,
            ..self
        }
    }

    fn row(&self, figure: &str) -> String {
        format!("{}: {figure}", self.name)
    }

    fn measures(&self) -> Vec<Measure> {
        let goals = self.goals;
        let bound = |measure: Measure, most: f64| match most > 0.0 {
            true => measure.at_most(most),
            false => measure,
        };
        let new = |figure: &str, unit| Measure::new(self.row(figure), unit);
        let mut measures = vec![
            new(RATE, "heartbeats/s").reference(EFM, 1_800.0).detail(),
            new(ERRORS, "").at_most(0.0),
            new(P50, "ms").detail(),
            bound(new(P99, "ms"), goals.p99_ms).reference("EFM sizing guide, mostly", 100.0),
            bound(new(MAX, "ms"), goals.max_ms).reference("EFM sizing guide, peaks", 2_000.0),
            bound(new(CPU, "µs"), goals.cpu_us)
                .reference("EFM sizing guide, without its database", 2_000.0),
            new(SERVER_CPU, "µs").detail(),
            new(DATABASE_CPU, "µs").detail(),
            new(GENERATOR_CPU, "µs").detail(),
            bound(new(MEMORY, "MiB"), goals.memory_mib),
            new(AGENT_MEMORY, "KB").reference("EFM sizing guide, its cache alone", 8.0),
            bound(new(WRITTEN, "bytes/s"), goals.bytes_per_s)
                .reference("EFM sizing guide, database", 1e6),
        ];
        for (_, figure, most) in self.over {
            measures.push(new(figure, "%").at_most(*most));
        }
        if self.plan.forwards.has_broker() {
            measures.push(new(BROKER_CPU, "µs").detail());
        }
        if self.lists {
            measures.push(new(LISTS, "ms").at_most(100.0));
        }
        measures
    }
}

/// Every load. Those that are set against another one come after it.
const LOADS: &[Load] = &[
    Load {
        lists: true,
        ..Load::new("100,000 agents, SQLite", 100_000, PLAIN)
            .goals(HUNDRED_THOUSAND)
            .quick()
    },
    Load::new("20,000 agents, PostgreSQL", 20_000, POSTGRES).quick(),
    Load {
        lists: true,
        ..Load::new(BASE, 100_000, POSTGRES)
            .goals(HUNDRED_THOUSAND)
            .quick()
    },
    Load {
        lists: true,
        ..Load::new(
            "100,000 agents, MariaDB",
            100_000,
            Plan {
                keeps: Keeps::MariaDb,
                ..PLAIN
            },
        )
        .goals(HUNDRED_THOUSAND)
    },
    Load {
        is_gzip: true,
        over: &[(BASE, OVER, 15.0)],
        ..Load::new("100,000 agents, gzip", 100_000, POSTGRES).quick()
    },
    Load {
        over: &[(BASE, OVER, 10.0)],
        ..Load::new(
            "100,000 agents, forwarded to the store in the same process",
            100_000,
            Plan {
                forwards: Forwards::Embedded,
                ..POSTGRES
            },
        )
        .quick()
    },
    Load::new(
        BESIDE,
        100_000,
        Plan {
            forwards: Forwards::BesideKafka,
            ..POSTGRES
        },
    ),
    Load {
        over: &[(BASE, OVER, 10.0), (BESIDE, OVER_BESIDE, 10.0)],
        ..Load::new(
            "100,000 agents, forwarded to Kafka",
            100_000,
            Plan {
                forwards: Forwards::Kafka,
                ..POSTGRES
            },
        )
    },
    Load {
        connections: 9_000,
        ..Load::new("9,000 agents, a kept connection each", 9_000, POSTGRES)
    },
    Load {
        keeps: false,
        ..Load::new(
            "100,000 agents, a new connection per call",
            100_000,
            POSTGRES,
        )
    },
    Load {
        connections: 2_000,
        ..Load::new(
            "100,000 agents, kept TLS",
            100_000,
            Plan {
                is_tls: true,
                ..POSTGRES
            },
        )
    },
    Load {
        keeps: false,
        goals: Goals {
            p99_ms: 500.0,
            ..NO_GOALS
        },
        ..Load::new(
            "30,000 agents, a new TLS connection per call",
            30_000,
            Plan {
                is_tls: true,
                ..POSTGRES
            },
        )
        .quick()
    },
    Load::new("1,000,000 agents, SQLite", 1_000_000, PLAIN)
        .goals(MILLION)
        .quick(),
    Load::new(WHOLE, 1_000_000, POSTGRES).goals(MILLION),
];

fn measures() -> Vec<Measure> {
    let mut measures: Vec<Measure> = LOADS.iter().flat_map(Load::measures).collect();
    measures.push(Measure::new(LINEAR, "%").at_most(20.0));
    measures
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    raise_handles()?;
    let mut outcome = Outcome::default();
    let loads = LOADS.iter().filter(|load| load.is_quick || !setting.quick);
    for load in loads.filter(|load| setting.wants(load.name)) {
        eprintln!("fleet-heartbeat: {}", load.name);
        one(setting, load, &mut outcome)?;
    }
    let per_agent = |outcome: &Outcome, agents: u32| {
        let load = LOADS
            .iter()
            .find(|load| load.agents == agents && load.plan.keeps == Keeps::Postgres);
        load.and_then(|load| value(outcome, &load.row(AGENT_MEMORY)))
    };
    if let (Some(few), Some(many)) = (per_agent(&outcome, 20_000), per_agent(&outcome, 1_000_000)) {
        outcome
            .values
            .push((LINEAR.to_owned(), (many / few - 1.0) * 100.0));
    }
    Ok(outcome)
}

fn one(setting: &Setting, load: &Load, outcome: &mut Outcome) -> Result<(), LabError> {
    // The short form has a tenth of the agents, as many calls a second, and so a shorter minute.
    let agents = if setting.quick {
        load.agents / 10
    } else {
        load.agents
    };
    let rate = f64::from(load.agents) / 60.0;
    let length = if setting.quick { 5.0 } else { 60.0 };
    let server = Server::start(setting, &load.plan, "fleet-data")?;
    let runtime = runtime()?;
    let flow = match load.plan.is_tls {
        // Whoever publishes has no certificate.
        true => String::new(),
        false => runtime.block_on(server.publish(CLASS))?,
    };
    let crowd = Arc::new(Crowd {
        address: server.address,
        tls: load
            .plan
            .is_tls
            .then(|| agents::tls(setting.folder()))
            .transpose()?,
        keeps: load.keeps,
        connections: load.connections.min(agents),
        is_gzip: load.is_gzip,
        builds: agents::both_kinds(CLASS, &flow),
    });
    let arrive = |rate: f64| Beat {
        agents,
        rate,
        count: u64::from(agents),
    };
    let arriving = if load.keeps { ARRIVING } else { CONNECTING };
    good(&runtime.block_on(crowd.call(arrive(arriving))))?;
    // A second beat each, so that nobody is new; then the write-behind comes to rest.
    if load.agents <= 100_000 && load.keeps {
        good(&runtime.block_on(crowd.call(arrive(arriving))))?;
    }
    server.rests();
    let watch = Watch::begin(server.id());
    let (before, own) = (server.cost(), own_cpu());
    let beat = Beat {
        agents,
        rate,
        count: (rate * length) as u64,
    };
    let answered = runtime.block_on(crowd.call(beat));
    let (cost, own) = (server.cost().since(before), own_cpu().saturating_sub(own));
    let seen = watch.end();
    let memory = server.resident_bytes()?;
    note(load, agents, &answered, cost, own, outcome);
    let mut add = |figure: &str, value| outcome.values.push((load.row(figure), value));
    add(MEMORY, memory as f64 / MIB);
    let grown = memory.saturating_sub(server.bytes_at_rest) as f64;
    add(AGENT_MEMORY, grown / f64::from(agents) / 1e3);
    if load.lists {
        let length = length / 3.0;
        let beat = Beat {
            count: (rate * length) as u64,
            ..beat
        };
        let lists = lists(&server, Duration::from_secs_f64(length));
        let (_, lists) = runtime.block_on(async { tokio::join!(crowd.call(beat), lists) });
        let slow = stats::quantile(&stats::sorted(&lists?), 0.99);
        add(LISTS, slow.unwrap_or(f64::NAN));
    }
    outcome.series.push(Series::new(
        "Latency of heartbeats",
        "percent of the heartbeats",
        "ms",
        load.name,
        stats::curve(&answered.latency_ms),
    ));
    outcome.series.push(Series::new(
        "Memory of the server",
        "seconds",
        "MiB",
        load.name,
        seen.memory_mib,
    ));
    server.end()
}

fn note(
    load: &Load,
    agents: u32,
    answered: &Answered,
    cost: Cost,
    own: Duration,
    outcome: &mut Outcome,
) {
    if let Some(error) = &answered.first_error {
        eprintln!(
            "fleet-heartbeat: {} of {agents} agents: {error}",
            answered.errors
        );
    }
    let beats = answered.beats.max(1) as f64;
    let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / beats;
    let cpu = each(cost.server_cpu) + each(cost.database_cpu);
    let mut figures = vec![
        (RATE, beats / answered.seconds),
        (ERRORS, answered.errors as f64),
        (P50, answered.latency(0.5)),
        (P99, answered.latency(0.99)),
        (MAX, answered.latency(1.0)),
        (CPU, cpu),
        (SERVER_CPU, each(cost.server_cpu)),
        (DATABASE_CPU, each(cost.database_cpu)),
        (GENERATOR_CPU, each(own)),
        (WRITTEN, cost.bytes_written as f64 / answered.seconds),
    ];
    for (base, figure, _) in load.over {
        let base = value(outcome, &format!("{base}: {CPU}"));
        figures.extend(base.map(|base| (*figure, (cpu / base - 1.0) * 100.0)));
    }
    if load.plan.forwards.has_broker() {
        figures.push((BROKER_CPU, each(cost.broker_cpu)));
    }
    let rows = figures
        .into_iter()
        .map(|(figure, value)| (load.row(figure), value));
    outcome.values.extend(rows);
}

/// Asks for lists until `length` is over; milliseconds of each answer.
async fn lists(server: &Server, length: Duration) -> Result<Vec<f64>, LabError> {
    let paths = [
        "/api/v1/agents?limit=100".to_owned(),
        format!("/api/v1/agents?limit=100&class={CLASS}&state=missing"),
        "/api/v1/agents?limit=100&search=999".to_owned(),
        "/api/v1/agents?limit=100&flow_state=failed".to_owned(),
        "/api/v1/classes".to_owned(),
    ];
    let calls = paths.map(|path| Call::new("GET", &path, "application/json", b""));
    let began = Instant::now();
    let mut link = Link::open(server.address).await?;
    let mut times = Vec::new();
    for call in calls.iter().cycle() {
        if began.elapsed() > length {
            break;
        }
        let asked = Instant::now();
        link.ask(call).await?;
        times.push(asked.elapsed().as_secs_f64() * 1e3);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(times)
}

/// Fails when a crowd could not even arrive.
fn good(answered: &Answered) -> Result<(), LabError> {
    match &answered.first_error {
        Some(error) if answered.errors > answered.beats / 100 => Err(LabError::Failed(format!(
            "{} of the agents' first calls failed: {error}",
            answered.errors
        ))),
        _ => Ok(()),
    }
}

fn own_cpu() -> Duration {
    usage_of(std::process::id())
        .map(|usage| usage.cpu)
        .unwrap_or_default()
}

fn value(outcome: &Outcome, row: &str) -> Option<f64> {
    let found = outcome.values.iter().find(|(name, _)| name == row);
    found.map(|(_, value)| *value)
}

/// First calls a second, before anything is measured.
const ARRIVING: f64 = 10_000.0;
/// The same where each needs a connection of its own.
const CONNECTING: f64 = 1_000.0;

const BASE: &str = "100,000 agents, PostgreSQL";
const BESIDE: &str = "100,000 agents, beside Kafka fed by others";
const WHOLE: &str = "1,000,000 agents, PostgreSQL";
const CLASS: &str = "edge";

const RATE: &str = "rate";
const ERRORS: &str = "errors";
const P50: &str = "p50";
const P99: &str = "p99";
const MAX: &str = "max";
const CPU: &str = "CPU per heartbeat";
const SERVER_CPU: &str = "CPU of the server";
const DATABASE_CPU: &str = "CPU of the database";
const GENERATOR_CPU: &str = "CPU of the generator";
const MEMORY: &str = "memory of the server";
const AGENT_MEMORY: &str = "memory per agent";
const WRITTEN: &str = "bytes written";
const OVER: &str = "CPU above that without";
const OVER_BESIDE: &str = "CPU above that beside Kafka fed by others";
const BROKER_CPU: &str = "CPU of the broker";
const LISTS: &str = "lists, filters and searches meanwhile, p99";
const LINEAR: &str = "memory per agent, 1,000,000 over 20,000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compared_is_measured_before() {
        for (index, load) in LOADS.iter().enumerate() {
            for (base, ..) in load.over {
                let at = LOADS.iter().position(|load| load.name == *base);
                assert!(at.is_some_and(|at| at < index), "{}", load.name);
                let quick = LOADS
                    .iter()
                    .find(|load| load.name == *base)
                    .map(|it| it.is_quick);
                assert!(!load.is_quick || quick == Some(true), "{}", load.name);
            }
        }
    }

    #[test]
    fn names_of_rows_are_unique() {
        let mut names: Vec<String> = measures().into_iter().map(|measure| measure.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
