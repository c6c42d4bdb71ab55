//! Apache Kafka from its Maven artefacts: one broker in KRaft mode, and its own load tools.
//!
//! The jars are fetched once into the lab's cache folder; the broker runs with the options of Kafka's
//! own start script and with the defaults of its configuration, but for what one node needs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::experiment::LabError;
use crate::limits::LOAD_MAX;
use crate::process::Measured;
use crate::store::{Store, free_address};
use crate::tools::{self, Jars};

/// The version compared with, as the reports name it.
pub const KAFKA: &str = "Kafka 4.3.1";

/// Kafka's jars.
pub struct Kafka {
    jars: PathBuf,
}

/// What a load tool of Kafka's came to.
pub struct ToolResult {
    /// Records sent or read.
    pub records: u64,
    /// Seconds that it counted itself, without the start of its JVM.
    pub seconds: f64,
}

impl Kafka {
    /// Finds the jars, or fetches them with Maven.
    pub fn fetch(folder: &Path) -> Result<Kafka, LabError> {
        let jars = tools::jars(folder, &JARS)?;
        Ok(Kafka { jars })
    }

    /// Formats a folder and starts a broker on it.
    pub fn start(&self, folder: &Path) -> Result<Store, LabError> {
        let data = folder.join("kafka");
        let (address, controller) = (free_address()?, free_address()?);
        let properties = PROPERTIES
            .replace("{address}", &address.to_string())
            .replace("{controller}", &controller.to_string())
            .replace("{data}", &data.display().to_string());
        let file = folder.join("server.properties");
        std::fs::write(&file, properties)
            .map_err(LabError::system("cannot write Kafka's configuration"))?;
        let mut format = self.java(&["-XX:TieredStopAtLevel=1"]);
        format
            .args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"])
            .arg(&file);
        Measured::start("kafka-format", &mut format, folder)?.finish(LOAD_MAX)?;
        let mut command = self.java(BROKER_OPTIONS);
        command.arg("kafka.Kafka").arg(&file);
        Store::start("kafka", &mut command, address, &data, folder)
    }

    /// Kafka's own producer, as fast as it may.
    pub fn produce(&self, load: &ToolLoad<'_>, folder: &Path) -> Result<ToolResult, LabError> {
        let mut command = self.java(TOOL_OPTIONS);
        command
            .arg("org.apache.kafka.tools.ProducerPerformance")
            .args(["--bootstrap-server", load.address, "--topic", load.topic])
            .args(["--num-records", &load.records.to_string()])
            .args(["--record-size", &load.bytes.to_string()])
            .args(["--throughput", "-1", "--command-property"])
            .arg(format!("acks={}", load.acks))
            .args(["linger.ms=5", "batch.size=65536", "buffer.memory=67108864"]);
        let text = Measured::start("kafka-producer", &mut command, folder)?.finish(LOAD_MAX)?;
        produced(&text).ok_or_else(|| unread("producer", &text))
    }

    /// Kafka's own consumer: `records` of a topic from its beginning, in a group.
    pub fn consume(&self, load: &ToolLoad<'_>, folder: &Path) -> Result<ToolResult, LabError> {
        let mut command = self.java(TOOL_OPTIONS);
        command
            .arg("org.apache.kafka.tools.ConsumerPerformance")
            .args(["--bootstrap-server", load.address, "--topic", load.topic])
            .args(["--num-records", &load.records.to_string()])
            .args(["--timeout", "20000", "--hide-header"]);
        let text = Measured::start("kafka-consumer", &mut command, folder)?.finish(LOAD_MAX)?;
        consumed(&text).ok_or_else(|| unread("consumer", &text))
    }

    /// Kafka's own share consumer: `records` of a topic, each acknowledged, in the share group `group`.
    pub fn share(
        &self,
        load: &ToolLoad<'_>,
        group: &str,
        folder: &Path,
    ) -> Result<ToolResult, LabError> {
        let mut command = self.java(TOOL_OPTIONS);
        command
            .arg("org.apache.kafka.tools.ShareConsumerPerformance")
            .args(["--bootstrap-server", load.address, "--topic", load.topic])
            .args(["--group", group])
            .args(["--num-records", &load.records.to_string()])
            // Of all that it does, whatever its help says.
            .args(["--timeout", &LOAD_MAX.as_millis().to_string()])
            .arg("--hide-header");
        let text =
            Measured::start("kafka-share-consumer", &mut command, folder)?.finish(LOAD_MAX)?;
        shared(&text).ok_or_else(|| unread("share consumer", &text))
    }

    fn java(&self, options: &[&str]) -> Command {
        let mut classes = self.jars.clone().into_os_string();
        classes.push("/*");
        let mut command = Command::new("java");
        command
            .args(options)
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .arg("-cp")
            .arg(classes);
        command
    }
}

/// What one of Kafka's tools is to do.
pub struct ToolLoad<'a> {
    /// The server.
    pub address: &'a str,
    /// The topic.
    pub topic: &'a str,
    /// How many records.
    pub records: u64,
    /// Bytes of a record's value.
    pub bytes: usize,
    /// Kafka's `acks`.
    pub acks: &'a str,
}

/// Reads the producer's last line, such as
/// `5000 records sent, 2500.0 records/sec (0.24 MB/sec), 1.2 ms avg latency, …`.
fn produced(text: &str) -> Option<ToolResult> {
    let line = text.lines().rfind(|line| line.contains(" 99.9th"))?;
    let (records, rest) = line.split_once(" records sent, ")?;
    let (rate, _) = rest.split_once(" records/sec")?;
    let records: u64 = records.trim().parse().ok()?;
    let rate: f64 = rate.replace(',', ".").parse().ok()?;
    Some(ToolResult {
        records,
        seconds: records as f64 / rate,
    })
}

/// Reads the consumer's line: begin, end, MB, MB/s, records, records/s, ms of joining the group, ms
/// of fetching, MB/s and records/s of fetching.
fn consumed(text: &str) -> Option<ToolResult> {
    let line = text
        .lines()
        .rfind(|line| line.matches(", ").count() == CONSUMER_COLUMNS - 1)?;
    let columns: Vec<&str> = line.split(", ").collect();
    Some(ToolResult {
        records: columns[4].parse().ok()?,
        seconds: columns[7].parse::<f64>().ok()? / 1e3,
    })
}

/// Reads the share consumer's line: begin, end, MB, MB/s, records/s, records, ms of fetching.
fn shared(text: &str) -> Option<ToolResult> {
    let line = text
        .lines()
        .rfind(|line| line.matches(", ").count() == SHARE_CONSUMER_COLUMNS - 1)?;
    let columns: Vec<&str> = line.split(", ").collect();
    Some(ToolResult {
        records: columns[5].parse().ok()?,
        seconds: columns[6].parse::<f64>().ok()? / 1e3,
    })
}

fn unread(tool: &str, text: &str) -> LabError {
    LabError::Failed(format!(
        "Kafka's {tool} wrote what the lab cannot read:\n{text}"
    ))
}

const JARS: Jars = Jars {
    name: KAFKA,
    cache: "kafka-4.3.1",
    megabytes: 54,
    java: "default-jre-headless",
    pom: include_str!("load/kafka.pom.xml"),
};
const CLUSTER: &str = "bGFiLWxhYi1sYWItbGFiLQ";
const CONSUMER_COLUMNS: usize = 10;
const SHARE_CONSUMER_COLUMNS: usize = 7;

/// What `kafka-server-start.sh` and `kafka-run-class.sh` give a broker.
const BROKER_OPTIONS: &[&str] = &[
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
];

/// The tools' memory, bounded like that of the other load tool.
const TOOL_OPTIONS: &[&str] = &["-Xmx512m", "-XX:+UseG1GC"];

/// One node that is broker and controller; every internal topic with one replica. Everything else
/// is as Kafka ships it.
const PROPERTIES: &str = "\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
listeners=PLAINTEXT://{address},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{address}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_last_lines_are_read() {
        let text = "100 records sent, 20.0 records/sec (0.00 MB/sec), 1.0 ms avg latency, 2.0 ms max latency.\n\
            5000 records sent, 2500.0 records/sec (0.24 MB/sec), 1.20 ms avg latency, 9.00 ms max \
            latency, 1 ms 50th, 2 ms 95th, 3 ms 99th, 9 ms 99.9th.\n";
        let result = produced(text).unwrap();
        assert_eq!((result.records, result.seconds), (5000, 2.0));
        let text = "WARN\n2026-01-01 00:00:00:000, 2026-01-01 00:00:05:000, 9.5367, 1.9073, \
            100000, 20000.0000, 3000, 2000, 4.7684, 50000.0000\n";
        let result = consumed(text).unwrap();
        assert_eq!((result.records, result.seconds), (100_000, 2.0));
        let text = "2026-01-01 00:00:00:000, 2026-01-01 00:00:05:000, 9.5367, 4.7684, 50000.0000, \
            100000, 2000\n";
        let result = shared(text).unwrap();
        assert_eq!((result.records, result.seconds), (100_000, 2.0));
        assert!(shared("nothing").is_none());
        assert!(produced("nothing").is_none() && consumed("nothing").is_none());
    }
}
