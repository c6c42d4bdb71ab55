//! What `nifi.log.*` says: where log lines go and which ones.
//!
//! The keys stand in `minifi-log.properties` beside the properties file, without `nifi.log.` in
//! front of them, or in the properties file with it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::AgentError;
use crate::units;

/// Where log lines go and which ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogConfig {
    /// A filter of tracing's kind; empty when nothing was said.
    pub(crate) filter: String,
    /// Whether they go to standard error (or output).
    pub(crate) is_shown: bool,
    /// The file that they go to.
    pub(crate) file: Option<LogFile>,
}

/// A log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes_max: u64,
    pub(crate) files_max: usize,
}

impl LogConfig {
    /// Reads the settings, `nifi.log.` in front; `None` when there are none.
    ///
    /// Errors: a key or value that cannot be; the text names it.
    pub(crate) fn of(
        properties: &BTreeMap<String, String>,
    ) -> Result<Option<LogConfig>, AgentError> {
        let settings: Vec<(&str, &str)> = properties
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value.as_str())))
            .collect();
        if settings.is_empty() {
            return Ok(None);
        }
        let mut config = LogConfig::default();
        let mut loggers = Vec::new();
        let mut appenders: Vec<String> = Vec::new();
        for (key, value) in &settings {
            if IDLE.contains(key) {
                continue;
            }
            if let Some(name) = key.strip_prefix("logger.") {
                let mut parts = value.split(',').map(str::trim);
                let level = level(key, parts.next().unwrap_or_default())?;
                loggers.push((target(name), level));
                appenders.extend(parts.filter(|name| !name.is_empty()).map(str::to_owned));
            } else if !key.starts_with("appender.") {
                return Err(wrong(key, "is not supported"));
            }
        }
        appenders.sort_unstable();
        appenders.dedup();
        for name in &appenders {
            append(&settings, name, &mut config)?;
        }
        if appenders.is_empty() {
            config.is_shown = true;
        }
        let filters = loggers.iter().map(|(target, level)| match target {
            Some(target) => format!("{target}={level}"),
            None => (*level).to_owned(),
        });
        config.filter = filters.collect::<Vec<_>>().join(",");
        Ok(Some(config))
    }
}

/// Adds one appender.
fn append(settings: &[(&str, &str)], name: &str, config: &mut LogConfig) -> Result<(), AgentError> {
    let setting = |field: &str| {
        let key = format!("appender.{name}{field}");
        let found = settings.iter().find(|(known, _)| *known == key);
        found.map(|(_, value)| (*value).to_owned())
    };
    match setting("").as_deref().unwrap_or(name) {
        "stdout" | "stderr" => config.is_shown = true,
        "null" | "nullappender" => {}
        "rolling" | "rollingappender" | "rolling appender" => {
            let folder = setting(".directory").unwrap_or_else(|| "logs".to_owned());
            let file = setting(".file_name").unwrap_or_else(|| FILE_DEFAULT.to_owned());
            let number = |field: &str, text: Option<String>, default: u64| match text {
                None => Ok(default),
                Some(text) => units::size(&text).filter(|n| *n > 0).ok_or_else(|| {
                    let key = format!("appender.{name}{field}");
                    wrong(&key, &format!("'{text}' is no number above 0"))
                }),
            };
            let files_max = number(".max_files", setting(".max_files"), FILES_DEFAULT)?;
            let bytes = setting(".max_file_size");
            config.file = Some(LogFile {
                path: PathBuf::from(folder).join(file),
                bytes_max: number(".max_file_size", bytes, BYTES_DEFAULT)?,
                files_max: usize::try_from(files_max)
                    .unwrap_or(usize::MAX)
                    .min(FILES_MAX),
            });
        }
        other => {
            let reason = format!("'{other}' is not supported: rolling, stderr and null are");
            return Err(wrong(&format!("appender.{name}"), &reason));
        }
    }
    Ok(())
}

fn level(key: &str, word: &str) -> Result<&'static str, AgentError> {
    match word.to_ascii_lowercase().as_str() {
        "trace" => Ok("trace"),
        "debug" => Ok("debug"),
        "info" => Ok("info"),
        "warn" | "warning" => Ok("warn"),
        "error" | "err" | "critical" => Ok("error"),
        "off" => Ok("off"),
        _ => Err(wrong(
            key,
            &format!("'{word}' is no level: trace, debug, info, warn, error or off"),
        )),
    }
}

/// What a logger's name means here: C++'s own classes are the agent.
fn target(name: &str) -> Option<String> {
    match name {
        "root" => None,
        name if name.starts_with("org::apache::nifi::minifi") => Some("agent".to_owned()),
        name => Some(name.replace('.', "::")),
    }
}

fn wrong(key: &str, reason: &str) -> AgentError {
    AgentError::Setting(format!("{PREFIX}{key}: {reason}"))
}

/// What every key of logs begins with in the properties file.
pub(super) const PREFIX: &str = "nifi.log.";

/// Keys about how a line looks; ours always has time, level and origin.
const IDLE: &[&str] = &[
    "spdlog.pattern",
    "spdlog.shorten_names",
    "shorten_names",
    "logger.include.uuid",
    "max.log.entry.length",
    "compression.cached.log.max.size",
    "compression.compressed.log.max.size",
    "alert.url",
];

const FILE_DEFAULT: &str = "thalweg-agent.log";

/// MiNiFi C++'s own values.
const FILES_DEFAULT: u64 = 3;
const BYTES_DEFAULT: u64 = 5 << 20;

/// More would be a folder to search in.
const FILES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(settings: &[(&str, &str)]) -> Result<Option<LogConfig>, String> {
        let pairs = settings
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        LogConfig::of(&pairs.collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn rolling_files_are_read_as_minifi_writes_them() {
        let config = read(&[
            ("nifi.log.appender.rolling", "rolling"),
            ("nifi.log.appender.rolling.directory", "/var/log/x"),
            ("nifi.log.appender.rolling.file_name", "app.log"),
            ("nifi.log.appender.rolling.max_files", "4"),
            ("nifi.log.appender.rolling.max_file_size", "1 MB"),
            ("nifi.log.logger.root", "INFO,rolling"),
            ("nifi.log.logger.org::apache::nifi::minifi", "DEBUG"),
            ("nifi.log.spdlog.pattern", "%v"),
            ("nifi.log.logger.include.uuid", "false"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(config.filter, "agent=debug,info");
        assert!(!config.is_shown);
        let file = config.file.unwrap();
        assert_eq!(file.path, PathBuf::from("/var/log/x/app.log"));
        assert_eq!((file.bytes_max, file.files_max), (1 << 20, 4));
        assert_eq!(read(&[("nifi.c2.enable", "true")]).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        for (key, value) in [
            ("nifi.log.logger.root", "LOUD,stderr"),
            ("nifi.log.logger.root", "INFO,syslog"),
            ("nifi.log.colour", "red"),
        ] {
            let error = read(&[(key, value)]).unwrap_err();
            assert!(error.contains("nifi.log."), "{error}");
        }
    }
}
