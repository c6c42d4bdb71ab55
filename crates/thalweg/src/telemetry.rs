//! Logs and metrics of the process: calm text on standard error, a copy in the data folder, and
//! Prometheus text on request.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::writer::MakeWriterExt;

/// Section `[log]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Least level that is written: `error`, `warn`, `info`, `debug`, `trace`, or a filter such
    /// as `info,streams=debug`.
    pub level: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            level: "info".to_owned(),
        }
    }
}

/// Starts logging to standard error and to `DIR/thalweg.log`.
///
/// # Errors
/// A level that is no filter, or a log file that cannot be opened.
pub fn start_logs(config: &LogConfig, folder: &Path) -> Result<(), std::io::Error> {
    let filter = EnvFilter::try_new(&config.level).map_err(std::io::Error::other)?;
    let file: File = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join(LOG_FILE))?;
    let colors = std::io::IsTerminal::is_terminal(&std::io::stderr())
        && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colors)
        .with_target(false)
        .with_writer(std::io::stderr.and(file))
        .try_init()
        .map_err(std::io::Error::other)
}

/// Starts counting; the handle renders what was counted.
///
/// # Errors
/// A recorder is installed already.
pub fn start_metrics() -> Result<PrometheusHandle, std::io::Error> {
    PrometheusBuilder::new()
        .install_recorder()
        .map_err(std::io::Error::other)
}

/// Adds up what histograms were told, every few seconds for as long as the process lives: until then
/// each value takes memory, and nobody may ever ask for the metrics.
pub async fn keep_small(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(ADD_UP).await;
        metrics.run_upkeep();
    }
}

/// The metrics of the process itself, under the names that Prometheus' own clients use.
pub fn process_metrics() -> String {
    let Some(usage) = ProcessUsage::read() else {
        return String::new();
    };
    format!(
        "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total {:.2}\n\
         # TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes {}\n\
         # TYPE process_open_fds gauge\nprocess_open_fds {}\n",
        usage.cpu_seconds, usage.resident_bytes, usage.open_files,
    )
}

struct ProcessUsage {
    cpu_seconds: f64,
    resident_bytes: u64,
    open_files: usize,
}

impl ProcessUsage {
    fn read() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The command's name stands in parentheses and may hold spaces; fields count after it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: u64 =
            fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        let pages: u64 = fields.get(21)?.parse().ok()?;
        Some(ProcessUsage {
            cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
            resident_bytes: pages * rustix::param::page_size() as u64,
            open_files: std::fs::read_dir("/proc/self/fd").ok()?.count(),
        })
    }
}

const ADD_UP: Duration = Duration::from_secs(5);

/// The log's copy in the data folder; the demo's agent may tail it.
pub const LOG_FILE: &str = "thalweg.log";
