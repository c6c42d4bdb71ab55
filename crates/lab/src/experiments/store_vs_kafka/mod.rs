//! Thalweg's event store beside Apache Kafka: the same load tools on each in turn, in one run.
//!
//! Figures mean something on a machine that does nothing else; the ratios bear a little noise, a
//! build beside them they do not. The short form shows that everything works and little more.

mod loads;

use std::path::PathBuf;
use std::time::Duration;

use crate::experiment::{Experiment, Goal, LabError, Measure, Outcome, Series, Setting, runtime};
use crate::host::{self, Host};
use crate::kafka::{KAFKA, Kafka, ToolLoad};
use crate::load::{Done, Produce, Sending, Tool};
use crate::process::Usage;
use crate::store::{Seen, Store, Watch};
use crate::wire::{NewTopic, Wire};
use loads::{LOADS, Load, Safety, Work};

/// `thalweg lab run store-vs-kafka`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "store-vs-kafka",
    about: "event store beside Apache Kafka 4.3: rate, server CPU, memory, latency, start, idle",
    method: "Thalweg (up --role streams, embedded defaults) and Apache Kafka 4.3.1 (one node in \
        KRaft mode, heap and options of its own start script) in turn in one run, alone on loopback, \
        each warmed up before the first load. The load tools are the same for both: a small one on \
        the system's librdkafka (linger 5 ms, else its defaults) and Kafka's own producer and \
        consumer tools (linger 5 ms, batches of 64 KiB). Its share consumer acknowledges all that it \
        polled before it polls again. Every load has a topic of 10 partitions of \
        its own and no compression. As shipped, Thalweg's acks=all waits for the sync and Kafka's \
        does not; both synced: Kafka's topic has flush.messages=1; neither synced: Thalweg's topic \
        has the durability os. A record a request: no batches, as many requests on their way as \
        librdkafka likes, at most 1,000 a producer. One in flight: each producer sends one record and waits for it. At a \
        fixed rate latency counts from when a record was due, without linger; its distance to the \
        disk's sync is to the same percentile of 4 KiB appended and synced at the same rate. A share \
        of the disk's rate is of what the disk takes of as many bytes just before and just after: a \
        few go to a cache of its own, at a rate that it does not keep. Hot: read \
        once before. Cold: the server's files are dropped from the page cache first. What was sent is \
        read six times over in the full form. CPU is user and system time of the server's process from \
        before the tool starts until it has ended; memory at the end of a load is resident; ready \
        means that it named itself as a node in an answer; idle is taken after the warm-up. The full \
        form writes up to 80 GB and needs room for 30.",
    peer: Some(KAFKA),
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    let mut measures = vec![
        Measure::new(READY, "s").at_most(0.3),
        Measure::new(IDLE, "% of a core").at_most(0.1),
        Measure::new(MEMORY_MOST, "MiB").goal(Goal::TimesPeerAtMost(0.1)),
        Measure::new(DISK_SYNC, "ms"),
        Measure::new(DISK_PACED, "ms"),
        Measure::new(DISK_WRITE, "MB/s"),
    ];
    measures.extend(LOADS.iter().flat_map(Load::measures));
    measures
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let runtime = runtime()?;
    let kafka = Kafka::fetch(setting.folder())?;
    let tool = Tool::compile(setting.folder())?;
    let host = Host::measure(setting.folder())?;
    let length = Duration::from_secs(if setting.quick { 1 } else { 5 });
    let disk_paced_p99_ms =
        host::disk_sync_paced_p99_ms(setting.folder(), loads::PACE_PER_S, length)
            .map_err(LabError::system("cannot time the disk"))?;
    let bench = Bench {
        setting,
        runtime,
        tool,
        kafka,
        host,
        disk_paced_p99_ms,
    };
    let ours = bench.measure("Thalweg", || {
        Store::thalweg(&setting.thalweg, &setting.path("thalweg"), setting.folder())
    })?;
    let theirs = bench.measure(KAFKA, || bench.kafka.start(setting.folder()))?;
    let mut outcome = Outcome {
        values: ours.values,
        peers: theirs.values,
        ..Outcome::default()
    };
    outcome.values.extend([
        (DISK_SYNC.to_owned(), bench.host.disk_sync_us / 1e3),
        (DISK_PACED.to_owned(), bench.disk_paced_p99_ms),
        (
            DISK_WRITE.to_owned(),
            bench.host.disk_write_bytes_per_s / 1e6,
        ),
    ]);
    for (name, seen, curve) in [
        ("Thalweg", ours.seen, ours.latency),
        (KAFKA, theirs.seen, theirs.latency),
    ] {
        outcome.series.extend([
            Series::new(
                "Latency at 1,000 records/s, acks=all, both synced",
                "percent of the records",
                "ms",
                name,
                curve,
            ),
            Series::new("Resident memory", "seconds", "MiB", name, seen.memory_mib),
            Series::new(
                "Server CPU",
                "seconds",
                "% of a core",
                name,
                seen.cpu_percent,
            ),
        ]);
    }
    Ok(outcome)
}

/// What both servers are measured with.
struct Bench<'a> {
    setting: &'a Setting,
    runtime: tokio::runtime::Runtime,
    tool: Tool,
    kafka: Kafka,
    host: Host,
    disk_paced_p99_ms: f64,
}

/// What one server came to.
#[derive(Default)]
struct Side {
    name: &'static str,
    values: Vec<(String, f64)>,
    seen: Seen,
    latency: Vec<(f64, f64)>,
    /// Records by the name of the load that sent them.
    sent: Vec<(&'static str, String, u64)>,
}

impl Bench<'_> {
    /// Starts a server, gives it every load and stops it.
    fn measure(
        &self,
        name: &'static str,
        start: impl Fn() -> Result<Store, LabError>,
    ) -> Result<Side, LabError> {
        let mut side = Side {
            name,
            ..Side::default()
        };
        let mut store = start()?;
        let watch = Watch::begin(store.process.id());
        side.add(READY, store.ready.as_secs_f64());
        self.warm_up(&store)?;
        std::thread::sleep(self.quick_or(300, 10_000));
        side.add(IDLE, store.idle_percent(self.quick_or(1_000, 30_000))?);
        for load in loads::chosen(self.setting) {
            store.process.still_runs()?;
            eprintln!("store-vs-kafka: {name}: {}", load.name);
            self.give(load, &store, &mut side)?;
        }
        side.add(MEMORY_MOST, mib(store.process.usage()?.resident_bytes_max));
        side.seen = watch.end();
        let data: PathBuf = store.data.clone();
        store.process.stop()?;
        std::fs::remove_dir_all(data).map_err(LabError::system("cannot clear a server's data"))?;
        Ok(side)
    }

    /// Lets a server compile its hot paths and fill its pools, so that no load pays for it.
    fn warm_up(&self, store: &Store) -> Result<(), LabError> {
        for (topic, bytes) in [("warm-small", 100), ("warm-large", 100_000)] {
            self.create(store, topic, Safety::AsShipped)?;
            let load = Produce {
                address: &store.address,
                topic,
                sending: Sending::Batches,
                bytes,
                acks: "1",
                producers: 1,
                length: self.quick_or(400, 5_000),
                bytes_max: WARM_BYTES_MAX,
            };
            let sent = self.tool.produce(&load, self.setting.folder())?.records;
            self.read(store, topic, sent)?;
        }
        Ok(())
    }

    fn give(&self, load: &Load, store: &Store, side: &mut Side) -> Result<(), LabError> {
        match load.work {
            Work::ReadCold(_) => store.forget_files()?,
            Work::Read(of) => {
                let (topic, records) = side.sent_by(of)?;
                self.read(store, topic, records)?;
            }
            _ => {}
        }
        let topic = format!("load-{}", side.values.len());
        if matches!(load.work, Work::Send(_) | Work::ToolSends) {
            self.create(store, &topic, load.safety)?;
        }
        let disk_first = self.disk_bytes_per_s(load)?;
        let (before, disk_before) = (store.process.usage()?, store.disk_bytes_read());
        let done = self.work(load, store, &topic, side)?;
        let after = store.process.usage()?;
        if let (Some(first), Some(then)) = (disk_first, self.disk_bytes_per_s(load)?) {
            // Of the time that both took.
            let disk = 2.0 / (1.0 / first + 1.0 / then);
            let sent = done.records as f64 * load.bytes as f64 / done.seconds;
            side.add(load.row(loads::DISK), disk / 1e6);
            side.add(load.row(loads::OF_DISK), sent / disk * 100.0);
        }
        if matches!(load.work, Work::Send(_) | Work::ToolSends) {
            side.sent.push((load.name, topic, done.records));
        }
        self.add(load, &done, (&before, &after), side);
        if matches!(load.work, Work::ReadCold(_)) {
            let read = (store.disk_bytes_read() - disk_before) as f64;
            let share = read / (done.records as f64 * load.bytes as f64) * 100.0;
            side.add(load.row(loads::FROM_DISK), share);
        }
        Ok(())
    }

    /// Does a load; what is read is read several times over, or the kernel's ticks of ten milliseconds
    /// would be too coarse for the processor time that it takes.
    fn work(&self, load: &Load, store: &Store, topic: &str, side: &Side) -> Result<Done, LabError> {
        let mut done = self.once(load, store, topic, side)?;
        let times = match load.work {
            Work::Read(_) | Work::ReadCold(_) | Work::ToolReads(_) if !self.setting.quick => READS,
            _ => 1,
        };
        for _ in 1..times {
            if matches!(load.work, Work::ReadCold(_)) {
                store.forget_files()?;
            }
            done.add(&self.once(load, store, topic, side)?);
        }
        Ok(done)
    }

    fn once(&self, load: &Load, store: &Store, topic: &str, side: &Side) -> Result<Done, LabError> {
        let folder = self.setting.folder();
        let tool_load = |topic, records| ToolLoad {
            address: &store.address,
            topic,
            records,
            bytes: load.bytes,
            acks: load.acks,
        };
        match load.work {
            Work::Send(sending) => {
                let produce = Produce {
                    address: &store.address,
                    topic,
                    sending,
                    bytes: load.bytes,
                    acks: load.acks,
                    producers: load.producers,
                    length: match sending {
                        Sending::Paced(_) => self.quick_or(1_500, 20_000),
                        _ => self.quick_or(500, 6_000),
                    },
                    bytes_max: self.bytes_max(load),
                };
                self.tool.produce(&produce, folder)
            }
            Work::Read(of) | Work::ReadCold(of) => {
                let (topic, records) = side.sent_by(of)?;
                self.read(store, topic, records)
            }
            Work::ToolSends => {
                let bytes = if self.setting.quick {
                    20_000_000
                } else {
                    500_000_000
                };
                let load = tool_load(topic, bytes / load.bytes as u64);
                self.kafka.produce(&load, folder).map(Done::from)
            }
            Work::ToolReads(of) => {
                let (topic, records) = side.sent_by(of)?;
                self.kafka
                    .consume(&tool_load(topic, records), folder)
                    .map(Done::from)
            }
            Work::ToolShares(of) => {
                let (topic, records) = side.sent_by(of)?;
                let group = format!("share-{topic}");
                self.share_from_the_beginning(store, &group)?;
                self.kafka
                    .share(&tool_load(topic, records), &group, folder)
                    .map(Done::from)
            }
        }
    }

    fn read(&self, store: &Store, topic: &str, records: u64) -> Result<Done, LabError> {
        let folder = self.setting.folder();
        self.tool
            .consume(&store.address, topic, PARTITIONS, records, folder)
    }

    fn share_from_the_beginning(&self, store: &Store, group: &str) -> Result<(), LabError> {
        self.runtime.block_on(async {
            let mut wire = Wire::connect(&store.address).await?;
            wire.set_group_config(group, "share.auto.offset.reset", "earliest")
                .await
        })
    }

    fn create(&self, store: &Store, name: &str, safety: Safety) -> Result<(), LabError> {
        let configs = match (safety, store.is_thalweg()) {
            (Safety::BothSynced, false) => vec![("flush.messages", "1")],
            (Safety::NeitherSynced, true) => vec![("thalweg.durability", "os")],
            _ => Vec::new(),
        };
        let topic = NewTopic {
            name: name.to_owned(),
            partitions: PARTITIONS,
            configs,
        };
        self.runtime.block_on(async {
            let mut wire = Wire::connect(&store.address).await?;
            wire.create_topics(&[topic]).await
        })
    }

    fn add(&self, load: &Load, done: &Done, (before, after): (&Usage, &Usage), side: &mut Side) {
        let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
        let millions = done.records as f64 / 1e6;
        let bytes = done.records as f64 * load.bytes as f64;
        let bytes_per_s = bytes / done.seconds;
        side.add(load.row(loads::RATE), done.records as f64 / done.seconds);
        side.add(load.row(loads::BYTES), bytes_per_s / 1e6);
        side.add(load.row(loads::CPU_PER_MILLION), cpu / millions);
        side.add(load.row(loads::CPU_PER_GB), cpu / (bytes / 1e9));
        side.add(load.row(loads::MEMORY), mib(after.resident_bytes));
        if done.client_cpu_seconds > 0.0 {
            side.add(
                load.row(loads::CLIENT_CPU),
                done.client_cpu_seconds / millions,
            );
        }
        for (figure, percent) in [(loads::P50, 50.0), (loads::P99, 99.0), (loads::P999, 99.9)] {
            if let Some(latency) = done.latency(percent) {
                side.add(load.row(figure), latency);
            }
        }
        if let (true, Some(p99)) = (load.is_timed(), done.latency(99.0)) {
            side.add(load.row(loads::ABOVE_SYNC), p99 - self.disk_paced_p99_ms);
        }
        if load
            .measures()
            .iter()
            .any(|measure| measure.name == load.row(loads::ABOVE_SYNC))
        {
            side.latency = crate::stats::curve(&done.latency_ms);
        }
    }

    fn quick_or(&self, quick_ms: u64, full_ms: u64) -> Duration {
        Duration::from_millis(if self.setting.quick {
            quick_ms
        } else {
            full_ms
        })
    }

    /// Most bytes of one load, so that a fast disk is not filled.
    fn bytes_max(&self, load: &Load) -> u64 {
        match (load.is_beside_disk(), self.setting.quick) {
            // What the disk itself takes this long is beyond what a cache of its own keeps.
            (true, false) => 4 << 30,
            (false, false) => 1 << 30,
            (true, true) => 512 << 20,
            (false, true) => 100 << 20,
        }
    }

    /// What the disk takes of as many bytes, for the loads that are set beside it.
    fn disk_bytes_per_s(&self, load: &Load) -> Result<Option<f64>, LabError> {
        let rate = || host::disk_write_bytes_per_s(self.setting.folder(), self.bytes_max(load));
        load.is_beside_disk()
            .then(rate)
            .transpose()
            .map_err(LabError::system("cannot measure the disk"))
    }
}

impl Side {
    fn add(&mut self, name: impl Into<String>, value: f64) {
        self.values.push((name.into(), value));
    }

    fn sent_by(&self, load: &str) -> Result<(&str, u64), LabError> {
        let found = self.sent.iter().find(|(name, _, _)| *name == load);
        found
            .map(|(_, topic, records)| (topic.as_str(), *records))
            .ok_or_else(|| LabError::Failed(format!("{}: nothing was sent by '{load}'", self.name)))
    }
}

impl From<crate::kafka::ToolResult> for Done {
    fn from(result: crate::kafka::ToolResult) -> Done {
        Done {
            records: result.records,
            seconds: result.seconds,
            client_cpu_seconds: 0.0,
            latency_ms: Vec::new(),
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

const READY: &str = "ready after its start";
const IDLE: &str = "idle";
const MEMORY_MOST: &str = "resident memory at most";
/// How often what was sent is read by one load of the full form.
const READS: usize = 6;
const DISK_SYNC: &str = "the disk: 4 KiB appended and synced";
const DISK_PACED: &str = "the disk: the same 1,000 times a second, p99";
const DISK_WRITE: &str = "the disk: written in sequence";
const PARTITIONS: i32 = 10;
const WARM_BYTES_MAX: u64 = 1 << 30;
