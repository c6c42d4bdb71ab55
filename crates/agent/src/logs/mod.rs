//! Where the agent's log lines go: standard error, a file that begins anew when it is full, and
//! always the last ones in memory, for a debug bundle.

mod config;
mod rolling;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

pub(crate) use self::config::LogConfig;
use self::config::PREFIX;
pub use self::rolling::RollingFile;
use self::rolling::rolled_files;
use crate::AgentError;
use crate::limits::RECENT_LOG_BYTES_MAX;

/// The log of this process.
#[derive(Clone, Debug)]
pub struct Logs {
    sink: Sink,
    filter: Option<reload::Handle<Targets, tracing_subscriber::Registry>>,
}

#[derive(Clone, Debug)]
struct Sink(Arc<Mutex<Places>>);

#[derive(Debug)]
struct Places {
    is_shown: bool,
    file: Option<RollingFile>,
    file_config: Option<config::LogFile>,
    recent: VecDeque<u8>,
}

impl Logs {
    /// Begins to log to standard error, by the filter in `THALWEG_AGENT_LOG`. Once in a process.
    pub fn start() -> Logs {
        let logs = Logs::silent();
        let asked = std::env::var(FILTER).ok();
        let read = asked.as_deref().map(read_filter).transpose();
        let (asked, mistake) = match read {
            Ok(asked) => (asked, None),
            Err(mistake) => (None, Some(mistake)),
        };
        let filter = asked.unwrap_or_else(|| FILTER_DEFAULT.parse().expect("it is a filter"));
        let (filter, handle) = reload::Layer::new(filter);
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(logs.sink.clone());
        // Somebody else's log is as good.
        let _ = tracing_subscriber::registry()
            .with(filter)
            .with(lines)
            .try_init();
        logs.sink.0.lock().is_shown = true;
        if let Some(mistake) = mistake {
            tracing::warn!(
                "{FILTER}: {mistake}; write error, warn, info, debug or trace, or a filter such as \
                 info,agent::kafka=debug"
            );
        }
        Logs {
            filter: Some(handle),
            ..logs
        }
    }

    /// A log that nobody writes to, for tests.
    pub fn silent() -> Logs {
        let places = Places {
            is_shown: false,
            file: None,
            file_config: None,
            recent: VecDeque::new(),
        };
        Logs {
            sink: Sink(Arc::new(Mutex::new(places))),
            filter: None,
        }
    }

    /// Goes on as the settings say. The filter of the environment wins over theirs.
    ///
    /// Errors: the file cannot be opened, or the filter is none.
    pub(crate) fn configure(&self, config: &LogConfig) -> Result<(), AgentError> {
        let file = match &config.file {
            Some(file) => match RollingFile::open(&file.path, file.bytes_max, file.files_max) {
                Ok(opened) => Some(opened),
                // The agent has more to do than to log.
                Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                    tracing::warn!(path = %file.path.display(), %error, "nothing is logged there");
                    None
                }
                Err(source) => {
                    return Err(AgentError::File {
                        action: "open",
                        path: file.path.clone(),
                        source,
                    });
                }
            },
            None => None,
        };
        if std::env::var_os(FILTER).is_none()
            && !config.filter.is_empty()
            && let Some(handle) = &self.filter
        {
            let text = format!("{FILTER_QUIET},{}", config.filter);
            let wrong =
                |error: &dyn fmt::Display| AgentError::Setting(format!("{PREFIX}logger: {error}"));
            let filter = text.parse::<Targets>().map_err(|error| wrong(&error))?;
            handle.reload(filter).map_err(|error| wrong(&error))?;
        }
        let mut places = self.sink.0.lock();
        places.is_shown = config.is_shown;
        places.file = file;
        places.file_config.clone_from(&config.file);
        Ok(())
    }

    /// The last lines.
    pub(crate) fn recent(&self) -> Vec<u8> {
        self.sink.0.lock().recent.iter().copied().collect()
    }

    /// The log files that exist, newest first.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let config = self.sink.0.lock().file_config.clone();
        config.map_or_else(Vec::new, |file| rolled_files(&file.path, file.files_max))
    }
}

/// The first word of a filter that stands alone and is no level. It would be taken for the only part
/// of the program that logs at all: `warning` for one of that name.
pub fn mistaken_level(filter: &str) -> Option<&str> {
    let words = filter.split(',').map(str::trim);
    let mut alone = words.filter(|word| !word.contains(['=', '[']));
    alone.find(|word| word.parse::<LevelFilter>().is_err())
}

fn read_filter(text: &str) -> Result<Targets, String> {
    match mistaken_level(text) {
        Some(word) => Err(format!("'{word}' is no level")),
        None => text
            .parse::<Targets>()
            .map_err(|error| format!("'{text}' is no filter: {error}")),
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Sink;

    fn make_writer(&'a self) -> Sink {
        self.clone()
    }
}

/// Each call is one whole line: tracing's formatter writes so.
impl Write for Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut places = self.0.lock();
        places.remember(line);
        if let Some(file) = &mut places.file
            && file.write_all(line).is_err()
        {
            // A full disk must not silence the agent: people look at standard error then.
            places.is_shown = true;
        }
        if places.is_shown {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Places {
    fn remember(&mut self, line: &[u8]) {
        let line = &line[line.len().saturating_sub(RECENT_LOG_BYTES_MAX)..];
        let over = (self.recent.len() + line.len()).saturating_sub(RECENT_LOG_BYTES_MAX);
        self.recent.drain(..over.min(self.recent.len()));
        self.recent.extend(line);
    }
}

/// The environment's filter of log lines.
const FILTER: &str = "THALWEG_AGENT_LOG";

/// What others log too much of.
const FILTER_QUIET: &str = "rumqttc=warn,hyper=warn,reqwest=warn,rustls=warn";

const FILTER_DEFAULT: &str = "info,rumqttc=warn";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_would_silence_the_log_is_none() {
        for filter in ["warning", "info,agnt", "info,agent=debgu"] {
            assert!(read_filter(filter).is_err(), "{filter}");
        }
        for filter in ["WARN", "off", "info, agent::kafka=debug"] {
            assert!(read_filter(filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn lines_go_to_the_file_and_the_last_ones_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::silent();
        let config = LogConfig {
            file: Some(config::LogFile {
                path: dir.path().join("a.log"),
                bytes_max: 1 << 20,
                files_max: 2,
            }),
            ..LogConfig::default()
        };
        logs.configure(&config).unwrap();
        let line = format!("{}\n", "x".repeat(999));
        for _ in 0..RECENT_LOG_BYTES_MAX / 1_000 + 10 {
            logs.sink.clone().write_all(line.as_bytes()).unwrap();
        }
        assert!(logs.recent().len() <= RECENT_LOG_BYTES_MAX);
        assert!(logs.recent().ends_with(line.as_bytes()));
        let written = std::fs::metadata(&logs.files()[0]).unwrap().len();
        assert_eq!(written, 1_000 * (RECENT_LOG_BYTES_MAX as u64 / 1_000 + 10));
    }
}
