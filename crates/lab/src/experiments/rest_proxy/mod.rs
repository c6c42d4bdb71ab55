//! The REST proxy: the published experiments on proxies of its kind, each beside its figure.
//!
//! Server and load share the machine, as they did where the figures come from. The load generator is
//! our own, since it must cost less than what it measures ([`crate::http`]).

mod loads;
mod reads;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::experiment::{Experiment, LabError, Measure, Outcome, Series, Setting, runtime};
use crate::host::{Host, disk_sync_us};
use crate::http::{Answered, Call, Calls, Link};
use crate::kafka::Kafka;
use crate::limits::{POLL, READY_MAX};
use crate::load::{Produce, Sending, Tool};
use crate::process::Measured;
use crate::store::{Store, free_address};
use crate::wire::{NewTopic, Wire};
use loads::{Behind, Figure, LOADS, Load};

/// `thalweg lab run rest-proxy`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "rest-proxy",
    about: "REST proxy: lone calls, sessions, arrays, sizes, reads; its own store and Kafka behind",
    method: "Thalweg (up --role streams,rest, embedded defaults), alone on loopback with the load \
        generator, which sends POSTs of version 2 in JSON over kept sessions, one call of each in \
        flight, to a topic of 8 partitions without keys; values are text. Durability os unless the \
        row says disk. A lone POST has 20 ms of rest before it, and is held against a sync of the disk \
        with the same rest; without rest against one without. Before a store: the event store in a \
        process of its own and one or two proxies (up --role rest) that reach it over Kafka's \
        protocol. Before Kafka: one proxy before Apache Kafka 4.3.1 (one node in KRaft mode, its \
        defaults, warmed up), beside librdkafka's producer alone on the same Kafka in the same run \
        (acks=all, linger 5 ms, batches), which is the native client. Reads: a topic of 100 B \
        records, read whole by one session; before Kafka beside librdkafka's consumer. CPU is user \
        and system time of proxies and of our store, not of Kafka. Published figures: the MapR article \
        on its REST proxy; of Strimzi and Karapace, measured once on two busy cores.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    let mut measures = vec![
        Measure::new(IDLE, "% of a core").at_most(0.5),
        Measure::new(DISK_SYNC, "ms"),
        Measure::new(DISK_RESTED_SYNC, "ms"),
        Measure::new(DISK_WRITE, "MB/s"),
    ];
    measures.extend(LOADS.iter().flat_map(Load::measures));
    measures.extend(reads::measures(&reads::EMBEDDED));
    measures.extend(reads::measures(&reads::BEFORE_KAFKA));
    measures.push(Measure::new(MEMORY, "MiB"));
    measures.extend([
        Measure::new(NATIVE_SMALL, "records/s").detail(),
        Measure::new(NATIVE_LARGE, "MB/s").detail(),
    ]);
    measures
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let host = Host::measure(setting.folder())?;
    let mut bench = Bench {
        setting,
        runtime: runtime()?,
        sync_ms: host.disk_sync_us / 1e3,
        rested_sync_ms: disk_sync_us(setting.folder(), LONE_PAUSE)
            .map_err(LabError::system("cannot time the disk"))?
            / 1e3,
        write_bytes_per_s: host.disk_write_bytes_per_s,
        native: Native::default(),
        outcome: Outcome::default(),
    };
    bench.add(DISK_SYNC, bench.sync_ms);
    bench.add(DISK_RESTED_SYNC, bench.rested_sync_ms);
    bench.add(DISK_WRITE, bench.write_bytes_per_s / 1e6);
    bench.embedded()?;
    if !setting.quick {
        for proxies in [1, 2] {
            bench.before_a_store(proxies)?;
        }
    }
    bench.before_kafka()?;
    bench.plots();
    Ok(bench.outcome)
}

/// What every part of the experiment is measured with.
struct Bench<'a> {
    setting: &'a Setting,
    runtime: tokio::runtime::Runtime,
    sync_ms: f64,
    rested_sync_ms: f64,
    write_bytes_per_s: f64,
    native: Native,
    outcome: Outcome,
}

/// What a native client reached, in bytes of values a second.
#[derive(Default)]
struct Native {
    small_bytes_per_s: f64,
    large_bytes_per_s: f64,
}

/// A proxy, or several before one store.
struct Front<'a> {
    proxies: Vec<Proxy>,
    /// Our store, when it is a process of its own or the proxy's.
    store: Option<&'a Store>,
    /// Where topics are created.
    kafka: String,
}

/// A proxy's process, when it is one of its own, and its port.
struct Proxy {
    process: Option<Measured>,
    address: SocketAddr,
}

impl Bench<'_> {
    fn embedded(&mut self) -> Result<(), LabError> {
        let address = free_address()?;
        let sets = [format!("rest.listen={address}")];
        let (binary, data) = (&self.setting.thalweg, self.setting.path("embedded"));
        let folder = self.setting.folder();
        let store = Store::thalweg_with(binary, &data, folder, "streams,rest", &sets)?;
        self.runtime.block_on(answers(address))?;
        let front = Front {
            proxies: vec![Proxy {
                process: None,
                address,
            }],
            store: Some(&store),
            kafka: store.address.clone(),
        };
        self.loads(Behind::Embedded, &front)?;
        self.reads(&reads::EMBEDDED, &front, |_| Ok(None))?;
        // A server that has worked, not one that just began: its pools and timers are there.
        let rest = if self.setting.quick { 1_000 } else { 20_000 };
        std::thread::sleep(Duration::from_millis(rest));
        let idle = store.idle_percent(Duration::from_millis(rest))?;
        self.add(IDLE, idle);
        let most = store.process.usage()?.resident_bytes_max as f64;
        self.add(MEMORY, most / f64::from(1 << 20));
        store.process.stop()?;
        clear(&data)
    }

    fn before_a_store(&mut self, count: usize) -> Result<(), LabError> {
        let behind = Behind::Store { proxies: count };
        if self.chosen(behind).is_empty() {
            return Ok(());
        }
        let data = self.setting.path(&format!("store-{count}"));
        let store = Store::thalweg(&self.setting.thalweg, &data, self.setting.folder())?;
        let proxies: Result<Vec<Proxy>, LabError> =
            (0..count).map(|_| self.proxy(&store.address)).collect();
        let front = Front {
            proxies: proxies?,
            store: Some(&store),
            kafka: store.address.clone(),
        };
        self.loads(behind, &front)?;
        front.stop()?;
        store.process.stop()?;
        clear(&data)
    }

    fn before_kafka(&mut self) -> Result<(), LabError> {
        let reads = &reads::BEFORE_KAFKA;
        let has_reads = !self.setting.quick && self.setting.wants(reads.name);
        if self.chosen(Behind::Kafka).is_empty() && !has_reads {
            return Ok(());
        }
        let folder = self.setting.folder();
        let (tool, kafka) = (Tool::compile(folder)?, Kafka::fetch(folder)?);
        let store = kafka.start(folder)?;
        for (name, bytes) in [("native-small", 100), ("native-large", LARGE_BYTES)] {
            self.topic(&store.address, name, "", bytes)?;
            // The first compiles the hot paths, the second counts.
            for length in [self.seconds(3.0, 0.5), self.seconds(5.0, 1.0)] {
                let load = Produce {
                    address: &store.address,
                    topic: name,
                    sending: Sending::Batches,
                    bytes,
                    acks: "all",
                    producers: 1,
                    length,
                    bytes_max: 2 << 30,
                };
                let done = tool.produce(&load, folder)?;
                let rate = done.records as f64 * bytes as f64 / done.seconds;
                match bytes {
                    LARGE_BYTES => self.native.large_bytes_per_s = rate,
                    _ => self.native.small_bytes_per_s = rate,
                }
            }
        }
        self.add(NATIVE_SMALL, self.native.small_bytes_per_s / 100.0);
        self.add(NATIVE_LARGE, self.native.large_bytes_per_s / 1e6);
        let front = Front {
            proxies: vec![self.proxy(&store.address)?],
            store: None,
            kafka: store.address.clone(),
        };
        self.loads(Behind::Kafka, &front)?;
        if has_reads {
            self.reads(reads, &front, |records| {
                let read = || tool.consume(&front.kafka, reads::TOPIC, 1, records, folder);
                // The first compiles the hot paths, the second counts.
                read()?;
                let done = read()?;
                Ok(Some(done.records as f64 / done.seconds))
            })?;
        }
        front.stop()?;
        let data = store.data.clone();
        store.process.stop()?;
        clear(&data)
    }

    /// Starts a proxy before what speaks Kafka's protocol at `kafka`.
    fn proxy(&self, kafka: &str) -> Result<Proxy, LabError> {
        let address = free_address()?;
        let data = self.setting.path(&format!("proxy-{}", address.port()));
        let mut command = Command::new(&self.setting.thalweg);
        command
            .args(["up", "--role", "rest", "--data"])
            .arg(&data)
            .args(["--set", "fleet.listen=127.0.0.1:0", "--set"])
            .arg(format!("rest.listen={address}"))
            .arg("--set")
            .arg(format!("streams.kafka.bootstrap_servers={kafka}"));
        let process = Measured::start("proxy", &mut command, self.setting.folder())?;
        self.runtime.block_on(answers(address))?;
        Ok(Proxy {
            process: Some(process),
            address,
        })
    }

    fn loads(&mut self, behind: Behind, front: &Front<'_>) -> Result<(), LabError> {
        for load in self.chosen(behind) {
            eprintln!("rest-proxy: {}", load.name);
            let topic = load.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            self.topic(&front.kafka, &topic, load.durability, load.bytes)?;
            // What fills pools and creates the topic's files is not measured.
            self.send(load, &topic, front, self.seconds(0.5, 0.1))?;
            let before = front.cpu()?;
            let answered = self.send(load, &topic, front, self.seconds(5.0, 0.5))?;
            let cpu = front.cpu()?.saturating_sub(before);
            self.note(load, &answered, cpu);
            // All loads together would fill a disk.
            self.runtime.block_on(async {
                let mut wire = Wire::connect(&front.kafka).await?;
                wire.delete_topic(&topic).await
            })?;
        }
        Ok(())
    }

    /// Fills a topic and reads it; `native` is another client that does, and says at what rate.
    fn reads(
        &mut self,
        rows: &reads::Rows,
        front: &Front<'_>,
        native: impl FnOnce(u64) -> Result<Option<f64>, LabError>,
    ) -> Result<(), LabError> {
        if !self.setting.wants(rows.name) {
            return Ok(());
        }
        eprintln!("rest-proxy: {}", rows.name);
        let records = reads::records(self.setting.quick);
        self.runtime.block_on(reads::fill(front, records))?;
        let native_rate = native(records as u64)?;
        let reading = reads::run(rows, front, records, native_rate);
        let values = self.runtime.block_on(reading)?;
        self.outcome.values.extend(values);
        Ok(())
    }

    /// The loads of one kind of proxy that this run sends.
    fn chosen(&self, behind: Behind) -> Vec<&'static Load> {
        let is_chosen = |load: &&Load| {
            let is_in_form = load.is_quick || !self.setting.quick;
            load.behind == behind && is_in_form && self.setting.wants(load.name)
        };
        LOADS.iter().filter(is_chosen).collect()
    }

    fn send(
        &self,
        load: &Load,
        topic: &str,
        front: &Front<'_>,
        length: Duration,
    ) -> Result<Answered, LabError> {
        let call = Call::new(
            "POST",
            &format!("/topics/{topic}"),
            "application/vnd.kafka.json.v2+json",
            &body(load.records, load.bytes),
        );
        let bytes = (load.records * load.bytes) as u64;
        let calls = Calls {
            addresses: front.proxies.iter().map(|proxy| proxy.address).collect(),
            calls: vec![call; load.sessions],
            keep: load.keep,
            pause: match load.is_lone {
                true => LONE_PAUSE,
                false => Duration::ZERO,
            },
            length,
            // So that a fast disk is not filled.
            calls_max: (6 << 30) / bytes,
        };
        self.runtime.block_on(calls.run())
    }

    fn note(&mut self, load: &Load, answered: &Answered, cpu: Duration) {
        let records = answered.calls as f64 * load.records as f64;
        let bytes = records * load.bytes as f64;
        let bytes_per_s = bytes / answered.seconds;
        let sync_ms = match load.is_lone {
            true => self.rested_sync_ms,
            false => self.sync_ms,
        };
        let native = match load.is_large() {
            true => self.native.large_bytes_per_s,
            false => self.native.small_bytes_per_s,
        };
        for figure in load.figures() {
            let value = match figure {
                Figure::Rate => records / answered.seconds,
                Figure::Bytes => bytes_per_s / 1e6,
                Figure::Cpu => cpu.as_secs_f64() * 1e6 / records,
                Figure::CpuPerGb => cpu.as_secs_f64() / (bytes / 1e9),
                Figure::P50 => answered.latency(0.5),
                Figure::P99 => answered.latency(0.99),
                Figure::OverSyncs => answered.latency(0.5) - 2.0 * sync_ms,
                Figure::OfDisk => bytes_per_s / self.write_bytes_per_s * 100.0,
                Figure::OfNative => bytes_per_s / native * 100.0,
            };
            self.add(&load.row(figure), value);
        }
        if load.is_lone {
            let curve = crate::stats::curve(&answered.latency_ms);
            let plot = Series::new(
                "Latency of a lone POST",
                "percent of the calls",
                "ms",
                load.name,
                curve,
            );
            self.outcome.series.push(plot);
        }
    }

    /// Rate over array size and bytes over record size, as lines.
    fn plots(&mut self) {
        let line = |of: &dyn Fn(&Load) -> Option<(f64, Figure)>| -> Vec<(f64, f64)> {
            LOADS
                .iter()
                .filter(|load| load.behind == Behind::Embedded && load.durability == "os")
                .filter_map(|load| {
                    let (at, figure) = of(load)?;
                    let row = load.row(figure);
                    let found = self.outcome.values.iter().find(|(name, _)| *name == row)?;
                    Some((at, found.1))
                })
                .collect()
        };
        let arrays = line(&|load| {
            let is_array = load.records > 1 || load.name.starts_with("8 sessions, single");
            is_array.then(|| ((load.records as f64).log10(), Figure::Rate))
        });
        let sizes = line(&|load| {
            let is_size = load.name.starts_with("values of") && load.is_large();
            is_size.then(|| ((load.bytes as f64).log10(), Figure::Bytes))
        });
        self.outcome.series.extend([
            Series::new(
                "Records of 100 B in arrays",
                "power of ten of the records in a call",
                "records/s",
                "8 sessions",
                arrays,
            ),
            Series::new(
                "Large records",
                "power of ten of the bytes in a record",
                "MB/s",
                "8 sessions",
                sizes,
            ),
        ]);
    }

    fn topic(
        &self,
        kafka: &str,
        name: &str,
        durability: &'static str,
        bytes: usize,
    ) -> Result<(), LabError> {
        let mut configs = Vec::new();
        if self.setting.path("kafka").is_dir() || durability.is_empty() {
            // Kafka knows no durability of a topic.
        } else {
            configs.push(("thalweg.durability", durability));
        }
        if bytes > 900_000 {
            configs.push(("max.message.bytes", "8388608"));
        }
        let topic = NewTopic {
            name: name.to_owned(),
            partitions: PARTITIONS,
            configs,
        };
        self.runtime.block_on(async {
            let mut wire = Wire::connect(kafka).await?;
            wire.create_topics(&[topic]).await
        })
    }

    fn seconds(&self, full: f64, quick: f64) -> Duration {
        Duration::from_secs_f64(if self.setting.quick { quick } else { full })
    }

    fn add(&mut self, name: &str, value: f64) {
        self.outcome.values.push((name.to_owned(), value));
    }
}

impl Front<'_> {
    /// CPU time of the proxies and of our store so far.
    fn cpu(&self) -> Result<Duration, LabError> {
        let own = self.proxies.iter().filter_map(|it| it.process.as_ref());
        let all = own.chain(self.store.map(|store| &store.process));
        all.map(|process| process.usage().map(|usage| usage.cpu))
            .sum()
    }

    fn stop(self) -> Result<(), LabError> {
        for proxy in self.proxies {
            if let Some(process) = proxy.process {
                process.stop()?;
            }
        }
        Ok(())
    }
}

/// Waits until a proxy answers.
async fn answers(address: SocketAddr) -> Result<(), LabError> {
    let call = Call::new("GET", "/", "application/json", b"");
    let began = Instant::now();
    loop {
        let asked = match Link::open(address).await {
            Ok(mut link) => link.ask(&call).await,
            Err(error) => Err(error),
        };
        match asked {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() > READY_MAX => return Err(error),
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// A body of version 2 with so many records of a text of so many characters.
fn body(records: usize, bytes: usize) -> Vec<u8> {
    let value: String = ('a'..='z').cycle().take(bytes.saturating_sub(2)).collect();
    let record = format!("{{\"value\":\"{value}\"}}");
    format!("{{\"records\":[{}]}}", vec![record; records].join(",")).into_bytes()
}

fn clear(data: &Path) -> Result<(), LabError> {
    std::fs::remove_dir_all(data).map_err(LabError::system("cannot clear a server's data"))
}

const IDLE: &str = "idle";
const MEMORY: &str = "resident memory at most";
const DISK_SYNC: &str = "the disk: 4 KiB appended and synced";
const DISK_RESTED_SYNC: &str = "the disk: the same after 20 ms of rest";
const DISK_WRITE: &str = "the disk: written in sequence";
const NATIVE_SMALL: &str = "librdkafka to Kafka, 100 B";
const NATIVE_LARGE: &str = "librdkafka to Kafka, 100 KB";

const PARTITIONS: i32 = 8;
const LARGE_BYTES: usize = 100_000;
/// Between two lone calls: long enough that nothing of the one is left when the other comes.
const LONE_PAUSE: Duration = Duration::from_millis(20);
