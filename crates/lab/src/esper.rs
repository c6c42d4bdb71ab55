//! Esper from its Maven artefacts: a process that runs scripts of statements and events, or one that
//! reads an MQTT broker's messages.
//!
//! Esper is under the GPL: it is fetched by who runs the experiment, and nothing of it is linked.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::experiment::LabError;
use crate::limits::{ANSWER_MAX, POLL, SCRIPTS_MAX};
use crate::process::Measured;
use crate::tools::{self, Jars};

/// The version compared with, as the reports name it.
pub const ESPER: &str = "Esper 9.0.0";

/// Esper's jars.
pub struct Esper {
    jars: PathBuf,
}

impl Esper {
    /// Finds the jars, or fetches them with Maven.
    pub fn fetch(folder: &Path) -> Result<Esper, LabError> {
        let jars = tools::jars(folder, &JARS)?;
        Ok(Esper { jars })
    }

    /// The same with an MQTT client and a JSON parser.
    pub fn fetch_with_mqtt(folder: &Path) -> Result<Esper, LabError> {
        let jars = tools::jars(folder, &MQTT_JARS)?;
        Ok(Esper { jars })
    }

    /// Runs a file of scripts; what comes of them is the answer.
    pub fn run(&self, scripts: &Path, folder: &Path) -> Result<String, LabError> {
        let mut command = self.java(("EsperScripts.java", SOURCE), folder)?;
        command.arg(scripts);
        Measured::start("esper", &mut command, folder)?.finish(SCRIPTS_MAX)
    }

    /// Starts one that reads a filter of the broker at `address`, and waits until it listens.
    pub fn behind(&self, address: &str, filter: &str, folder: &Path) -> Result<Behind, LabError> {
        let mut command = self.java(("EsperMqtt.java", MQTT_SOURCE), folder)?;
        command.arg(format!("tcp://{address}")).arg(filter);
        let mut behind = Behind {
            process: Measured::start("esper-mqtt", &mut command, folder)?,
        };
        let deadline = Instant::now() + ANSWER_MAX;
        while !behind.process.log().contains("ready") {
            behind.process.still_runs()?;
            if Instant::now() > deadline {
                return Err(LabError::Failed(format!(
                    "{ESPER} did not listen within {ANSWER_MAX:?}"
                )));
            }
            std::thread::sleep(POLL);
        }
        Ok(behind)
    }

    fn java(&self, (name, text): (&str, &str), folder: &Path) -> Result<Command, LabError> {
        let source = folder.join(name);
        std::fs::write(&source, text).map_err(LabError::system("cannot write Esper's runner"))?;
        let mut classes = self.jars.clone().into_os_string();
        classes.push("/*");
        let mut command = Command::new("java");
        command
            .args(["-Xmx1g", "-XX:+UseSerialGC", "-cp"])
            .arg(classes);
        command.arg(&source);
        Ok(command)
    }
}

/// Esper behind a broker.
pub struct Behind {
    /// Its process.
    pub process: Measured,
}

impl Behind {
    /// Messages that went through its statement, as it last said.
    pub fn count(&self) -> u64 {
        let log = self.process.log();
        let counts = log.lines().rev();
        let mut counts = counts.filter_map(|line| line.strip_prefix("count ")?.parse().ok());
        counts.next().unwrap_or(0)
    }
}

const JARS: Jars = Jars {
    name: ESPER,
    cache: "esper-9.0.0",
    megabytes: 12,
    java: "default-jdk-headless",
    pom: include_str!("esper/pom.xml"),
};
const MQTT_JARS: Jars = Jars {
    name: "Esper 9.0.0 and Paho 1.2.5",
    cache: "esper-9.0.0-paho-1.2.5",
    megabytes: 13,
    pom: include_str!("esper/mqtt.pom.xml"),
    ..JARS
};
const SOURCE: &str = include_str!("esper/EsperScripts.java");
const MQTT_SOURCE: &str = include_str!("esper/EsperMqtt.java");
