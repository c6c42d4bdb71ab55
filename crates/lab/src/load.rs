//! The load tool on librdkafka: a C program, compiled when an experiment needs it.
//!
//! Building librdkafka into the lab would cost every build of it minutes and a C++ compiler; the
//! library that the system has is the one that people's own clients use.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::experiment::LabError;
use crate::limits::LOAD_MAX;
use crate::process::Measured;
use crate::tools::need;

/// The compiled tool.
pub struct Tool {
    program: PathBuf,
}

/// What a load came to.
#[derive(Debug, Deserialize)]
pub struct Done {
    /// Records acknowledged or read.
    pub records: u64,
    /// From the first to the last of them.
    pub seconds: f64,
    /// CPU time of the tool itself.
    pub client_cpu_seconds: f64,
    /// Rising latencies at each thousandth of the records; empty where none was taken.
    pub latency_ms: Vec<f64>,
}

impl Done {
    /// Adds a load that was done after it and took no latencies.
    pub fn add(&mut self, next: &Done) {
        self.records += next.records;
        self.seconds += next.seconds;
        self.client_cpu_seconds += next.client_cpu_seconds;
    }

    /// The latency that `percent` of the records do not exceed.
    pub fn latency(&self, percent: f64) -> Option<f64> {
        crate::stats::quantile(&self.latency_ms, percent / 100.0)
    }
}

/// How records are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// In batches, as fast as they are taken.
    Batches,
    /// Each record in a request of its own, as fast as they are taken.
    Alone,
    /// One record in flight per producer, without linger.
    Single,
    /// One producer at so many records a second, without linger.
    Paced(u32),
    /// The same four times a second, all that is due by then.
    Lazy(u32),
}

/// What to produce.
pub struct Produce<'a> {
    /// The server.
    pub address: &'a str,
    /// The topic.
    pub topic: &'a str,
    /// How.
    pub sending: Sending,
    /// Bytes of a record's value.
    pub bytes: usize,
    /// Kafka's `acks`.
    pub acks: &'a str,
    /// Producers with connections of their own.
    pub producers: usize,
    /// Ends after this time, or
    pub length: Duration,
    /// after so many bytes of all producers together.
    pub bytes_max: u64,
}

impl Tool {
    /// Compiles the tool into `folder`.
    pub fn compile(folder: &Path) -> Result<Tool, LabError> {
        let program = compile(
            "load",
            SOURCE,
            &["-lrdkafka", "-lpthread", "-lm"],
            "librdkafka's header (Debian: apt-get install librdkafka-dev)",
            folder,
        )?;
        Ok(Tool { program })
    }

    /// Produces and waits for the last acknowledgement.
    pub fn produce(&self, load: &Produce<'_>, folder: &Path) -> Result<Done, LabError> {
        done(self.start(load, folder)?)
    }

    /// Begins to produce, and leaves it to go on beside.
    pub fn start(&self, load: &Produce<'_>, folder: &Path) -> Result<Measured, LabError> {
        let (way, count) = match load.sending {
            Sending::Batches => ("produce", load.producers.to_string()),
            Sending::Alone => ("alone", load.producers.to_string()),
            Sending::Single => ("single", load.producers.to_string()),
            Sending::Paced(rate) => ("paced", rate.to_string()),
            Sending::Lazy(rate) => ("lazy", rate.to_string()),
        };
        let mut command = Command::new(&self.program);
        command
            .args([way, load.address, load.topic])
            .args([&load.bytes.to_string(), load.acks, &count])
            .arg(load.length.as_secs_f64().to_string())
            .arg(load.bytes_max.to_string());
        Measured::start("load", &mut command, folder)
    }

    /// Consumes so many records of a topic from the beginning of its partitions.
    pub fn consume(
        &self,
        address: &str,
        topic: &str,
        partitions: i32,
        records: u64,
        folder: &Path,
    ) -> Result<Done, LabError> {
        let mut command = Command::new(&self.program);
        command
            .args(["consume", address, topic])
            .args([partitions.to_string(), records.to_string()]);
        done(Measured::start("load", &mut command, folder)?)
    }
}

/// Compiles a C program into `folder`; `needs` says which header it wants, and how to get it.
pub fn compile(
    name: &str,
    source: &str,
    libraries: &[&str],
    needs: &str,
    folder: &Path,
) -> Result<PathBuf, LabError> {
    need("cc", "--version", "gcc")?;
    let (file, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&file, source).map_err(LabError::system(format!(
        "cannot write the source of {name}"
    )))?;
    let mut command = Command::new("cc");
    command
        .args(["-std=gnu11", "-O2", "-o"])
        .arg(&program)
        .arg(&file);
    command.args(libraries);
    let compiled = Measured::start("cc", &mut command, folder)?.finish(LOAD_MAX);
    compiled.map_err(|error| {
        LabError::Usage(format!(
            "cannot compile the tool {name}; it needs {needs}: {error}"
        ))
    })?;
    Ok(program)
}

/// Waits for the tool's end and reads its line.
fn done(load: Measured) -> Result<Done, LabError> {
    let text = load.finish(LOAD_MAX)?;
    text.lines()
        .find_map(|line| serde_json::from_str(line).ok())
        .ok_or_else(|| LabError::Failed(format!("the load tool gave no result:\n{text}")))
}

const SOURCE: &str = include_str!("load/load.c");
