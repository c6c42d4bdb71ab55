//! The published burst test: ten publishers flood one server and one arithmetic statement.

use std::time::{Duration, Instant};

use crate::esper::Esper;
use crate::experiment::{Experiment, Goal, LabError, Measure, Outcome, Series, Setting};
use crate::experiments::fusion::{Api, PUBLISHERS, mib};
use crate::limits::{POLL, STALL_MAX};
use crate::mosquitto::Mosquitto;
use crate::mqtt::{Pace, Publishers, Subscriber};
use crate::process::Up;
use crate::stats;

/// `thalweg lab run fusion-burst`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fusion-burst",
    about: "ten MQTT publishers flood one statement: rate, CPU per message, loss, memory, latency",
    method: "One thalweg up on embedded defaults; publishers and the subscriber are threads of the lab \
        on raw sockets, on the same machine. Messages are JSON of about 100 bytes, QoS 0. Flood: ten \
        publishers send as fast as they are taken, the statement computes two expressions and filters \
        by one; processed is what its books took until the last message, CPU is user and system time \
        of the server over the same span. An output each: the same with a row per message on another \
        topic, which one subscriber reads, checking that each publisher's numbers have no gap. \
        Latency: 50,000 messages a second, the age of every 64th row when the subscriber has it. \
        Mosquitto and Esper: the same flood to Mosquitto, which Esper in a process of its own subscribes \
        to with Paho, reads and computes on, a minute after its first messages (5 s in the short form), \
        with the CPU time of both. Behind Mosquitto: the same with a bridge of ours in Esper's place. \
        15 minutes of flood; 10 s in the short form.",
    peer: Some("Mosquitto and Esper 9.0.0"),
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    vec![
        Measure::new("processed", "messages/s")
            .at_least(500_000.0)
            .reference("LinkSmart DFM, one statement, 2 cores", 82_821.0)
            .reference("Mosquitto and Esper 9, quiet", 76_000.0),
        Measure::new("CPU per message", "µs").at_most(2.5),
        Measure::new(PER_CORE, "messages").goal(Goal::TimesPeerAtLeast(10.0)),
        Measure::new("lost", "messages").at_most(0.0),
        Measure::new("memory growth", "MiB/min")
            .at_most(2.4)
            .reference("LinkSmart DFM with its broker", 5.9),
        Measure::new("processed, an output each", "messages/s").at_least(250_000.0),
        Measure::new("CPU per message, an output each", "µs"),
        Measure::new("lost, an output each", "messages").at_most(0.0),
        Measure::new("processed behind Mosquitto", "messages/s"),
        Measure::new("CPU beside Mosquitto's own", "%").at_most(25.0),
        Measure::new("latency p50 at 50,000/s", "ms"),
        Measure::new("latency p99 at 50,000/s", "ms").at_most(5.0),
    ]
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let flood = Duration::from_secs(if setting.quick { 10 } else { 900 });
    let outputs = Duration::from_secs(if setting.quick { 8 } else { 60 });
    let mut up = Up::start(&setting.thalweg, setting.folder())?;
    let mut api = Api::open(&up)?;
    let mut outcome = Outcome::default();
    if setting.wants("flood") {
        flood_one(&mut up, &mut api, flood, &mut outcome)?;
    }
    if setting.wants("output") {
        output_each(&up, &mut api, outputs, &mut outcome)?;
    }
    if setting.wants("latency") {
        latency(&up, &mut api, outputs, &mut outcome)?;
    }
    let behind = Duration::from_secs(if setting.quick { 5 } else { 60 });
    if setting.wants("behind") {
        behind_mosquitto(setting, &up, &mut api, behind, &mut outcome)?;
    }
    up.process.stop()?;
    if setting.wants("esper") {
        esper(setting, behind, &mut outcome)?;
    }
    Ok(outcome)
}

fn flood_one(
    up: &mut Up,
    api: &mut Api,
    length: Duration,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    api.add("flood", ARITHMETIC)?;
    let (before, began) = (up.process.usage()?, Instant::now());
    let publishers = Publishers::start(up.address("mqtt")?, "flood", PUBLISHERS, Pace::Flood)?;
    let mut memory = Vec::new();
    while began.elapsed() < length {
        std::thread::sleep(length / 50);
        up.process.still_runs()?;
        let resident = up.process.usage()?.resident_bytes;
        memory.push((began.elapsed().as_secs_f64(), mib(resident)));
    }
    let sent = publishers.stop()?;
    let received = api.until("flood", "received_total", sent)?;
    let (seconds, after) = (began.elapsed().as_secs_f64(), up.process.usage()?);
    api.remove("flood")?;
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    outcome.add("processed", received as f64 / seconds);
    outcome.add("CPU per message", cpu * 1e6 / received as f64);
    outcome.add(PER_CORE, received as f64 / cpu);
    outcome.add("lost", sent.abs_diff(received) as f64);
    // After the first tenth, buffers have their size.
    let settled = &memory[memory.len() / 10..];
    if let (Some(first), Some(last)) = (settled.first(), settled.last())
        && last.0 > first.0
    {
        let growth = (last.1 - first.1) / ((last.0 - first.0) / 60.0);
        outcome.add("memory growth", growth);
    }
    let series = Series::new("Resident memory", "seconds", "MiB", "thalweg up", memory);
    outcome.series.push(series);
    Ok(())
}

fn output_each(
    up: &Up,
    api: &mut Api,
    length: Duration,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    api.add("each", EACH)?;
    let address = up.address("mqtt")?;
    let subscriber = Subscriber::start(address, "rows")?;
    let (before, began) = (up.process.usage()?, Instant::now());
    let publishers = Publishers::start(address, "each", PUBLISHERS, Pace::Flood)?;
    std::thread::sleep(length);
    let sent = publishers.stop()?;
    wait_for(&subscriber, sent);
    let (seconds, after) = (began.elapsed().as_secs_f64(), up.process.usage()?);
    let heard = subscriber.stop()?;
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    outcome.add("processed, an output each", heard.received as f64 / seconds);
    outcome.add("CPU per message, an output each", cpu * 1e6 / sent as f64);
    outcome.add(
        "lost, an output each",
        (sent.abs_diff(heard.received) + heard.gaps) as f64,
    );
    api.remove("each")
}

fn latency(
    up: &Up,
    api: &mut Api,
    length: Duration,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    api.add("each", EACH)?;
    let address = up.address("mqtt")?;
    let subscriber = Subscriber::start(address, "rows")?;
    let publishers = Publishers::start(address, "each", PUBLISHERS, Pace::Rate(PACED))?;
    std::thread::sleep(length);
    let sent = publishers.stop()?;
    wait_for(&subscriber, sent);
    let heard = subscriber.stop()?;
    if heard.received != sent || heard.gaps > 0 {
        outcome.note(format!("paced: {} of {sent} rows came", heard.received));
    }
    let sorted = stats::sorted(&heard.ages_ms);
    for (name, q) in [
        ("latency p50 at 50,000/s", 0.5),
        ("latency p99 at 50,000/s", 0.99),
    ] {
        outcome.add(name, stats::quantile(&sorted, q).unwrap_or(f64::NAN));
    }
    outcome.series.push(Series::new(
        "Latency by share of messages",
        "percent of the messages",
        "ms",
        "published to received",
        stats::curve(&sorted),
    ));
    api.remove("each")
}

/// The flood through Mosquitto and a bridge.
fn behind_mosquitto(
    setting: &Setting,
    up: &Up,
    api: &mut Api,
    length: Duration,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    let broker = Mosquitto::start(setting.folder())?;
    api.add("behind", ARITHMETIC)?;
    api.bridge("broker", &broker.address, ("flood/#", "in"))?;
    let publishers = Publishers::start(&broker.address, "flood", PUBLISHERS, Pace::Flood)?;
    std::thread::sleep(length / 5);
    let usages =
        || -> Result<_, LabError> { Ok((up.process.usage()?.cpu, broker.process.usage()?.cpu)) };
    let (began, before, received) = (
        Instant::now(),
        usages()?,
        api.count("behind", "received_total")?,
    );
    std::thread::sleep(length);
    let (after, taken) = (usages()?, api.count("behind", "received_total")?);
    let seconds = began.elapsed().as_secs_f64();
    publishers.stop()?;
    let ours = after.0.saturating_sub(before.0).as_secs_f64();
    let theirs = after.1.saturating_sub(before.1).as_secs_f64();
    let processed = (taken - received) as f64 / seconds;
    outcome.add("processed behind Mosquitto", processed);
    outcome.add("CPU beside Mosquitto's own", ours / theirs * 100.0);
    api.call("DELETE", "/api/v1/mqtt/bridges/broker", None)?;
    broker.process.stop()?;
    api.remove("behind")
}

/// The peer: the flood through Mosquitto into Esper.
fn esper(setting: &Setting, length: Duration, outcome: &mut Outcome) -> Result<(), LabError> {
    let jars = Esper::fetch_with_mqtt(setting.folder())?;
    let broker = Mosquitto::start(setting.folder())?;
    let esper = jars.behind(&broker.address, "flood/#", setting.folder())?;
    let publishers = Publishers::start(&broker.address, "flood", PUBLISHERS, Pace::Flood)?;
    // Until Java has compiled what is hot.
    std::thread::sleep(length);
    let cpu = || -> Result<Duration, LabError> {
        Ok(esper.process.usage()?.cpu + broker.process.usage()?.cpu)
    };
    let (began, before, count) = (Instant::now(), cpu()?, esper.count());
    std::thread::sleep(length);
    let (seconds, used) = (began.elapsed().as_secs_f64(), cpu()?.saturating_sub(before));
    let processed = (esper.count() - count) as f64;
    publishers.stop()?;
    esper.process.kill();
    broker.process.stop()?;
    for (name, value) in [
        ("processed", processed / seconds),
        ("CPU per message", used.as_secs_f64() * 1e6 / processed),
        (PER_CORE, processed / used.as_secs_f64()),
    ] {
        outcome.peers.push((name.to_owned(), value));
    }
    Ok(())
}

/// Waits until so many messages came, or nothing comes any more.
fn wait_for(subscriber: &Subscriber, wanted: u64) {
    let (mut last, mut moved) = (0, Instant::now());
    while last < wanted && moved.elapsed() < STALL_MAX / 4 {
        std::thread::sleep(POLL);
        let now = subscriber.received();
        if now != last {
            (last, moved) = (now, Instant::now());
        }
    }
}

const ARITHMETIC: &str = "INSERT INTO mqtt.\"never\" SELECT id, ts, a * 1.8 + 32 AS f, (a + b) / 2 AS m \
    FROM mqtt.\"flood/+\" WHERE a * 1.8 + 32 > 1000";
const EACH: &str = "INSERT INTO mqtt.\"rows\" SELECT id, ts, seq, a * 1.8 + 32 AS f, (a + b) / 2 AS m \
    FROM mqtt.\"each/+\"";
/// What one second of one core processes, server and broker together.
const PER_CORE: &str = "per core-second";
/// The paced load, messages a second.
const PACED: u64 = 50_000;
