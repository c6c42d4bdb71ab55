//! Logs and metrics of the process: calm text on standard error, a copy in the data folder, and
//! Prometheus text on request.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use agent::RollingFile;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};
use tracing::Subscriber;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

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

impl LogConfig {
    /// What is wrong with the level, if anything.
    pub fn problem(&self) -> Option<String> {
        let why = match (
            agent::mistaken_level(&self.level),
            EnvFilter::try_new(&self.level),
        ) {
            (Some(word), _) => format!("'{word}' is no level"),
            (None, Err(error)) => format!("'{}' is no filter: {error}", self.level),
            (None, Ok(_)) => return None,
        };
        Some(format!(
            "{why}; write error, warn, info, debug or trace, or a filter such as info,streams=debug"
        ))
    }
}

/// Starts logging to standard error and to `DIR/thalweg.log`, which begins anew when it is full, the
/// older ones numbered.
///
/// # Errors
/// A level that is no filter, or a log file that cannot be opened.
pub fn start_logs(config: &LogConfig, folder: &Path) -> Result<(), std::io::Error> {
    let filter = EnvFilter::try_new(&config.level).map_err(std::io::Error::other)?;
    let path = folder.join(LOG_FILE);
    let file = RollingFile::open(&path, LOG_FILE_BYTES_MAX, LOG_FILES_MAX)?;
    let colors = std::io::IsTerminal::is_terminal(&std::io::stderr())
        && std::env::var_os("NO_COLOR").is_none();
    logs(filter, colors, std::io::stderr, Mutex::new(file))
        .try_init()
        .map_err(std::io::Error::other)
}

/// Logs to a screen, with colors or without, and to a file, always without.
fn logs<W, F>(filter: EnvFilter, colors: bool, screen: W, file: F) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
    F: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    // The file's comes first: what spans hold is written once for both, as the first one does it.
    let kept = fmt::layer().with_ansi(false).with_target(false);
    let shown = fmt::layer().with_ansi(colors).with_target(false);
    tracing_subscriber::registry()
        .with(filter)
        .with(kept.with_writer(file))
        .with(shown.with_writer(screen))
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
/// Bytes of one log file, and of how many there are.
const LOG_FILE_BYTES_MAX: u64 = 16 << 20;
/// See [`LOG_FILE_BYTES_MAX`].
const LOG_FILES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn colors_are_for_the_screen_and_not_for_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (screen, file) = (dir.path().join("screen"), dir.path().join("file"));
        let create = |path: &Path| File::create(path).unwrap();
        let logs = logs(EnvFilter::new("info"), true, create(&screen), create(&file));
        tracing::subscriber::with_default(logs, || {
            let _span = tracing::info_span!("outer", number = 7).entered();
            tracing::info!(amount = 1, "told");
        });
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let (shown, kept) = (read(&screen), read(&file));
        assert!(
            shown.contains('\u{1b}') && shown.contains("told"),
            "{shown:?}"
        );
        assert!(!kept.contains('\u{1b}'), "{kept:?}");
        assert!(kept.contains("outer{number=7}: told amount=1"), "{kept:?}");
    }
}
