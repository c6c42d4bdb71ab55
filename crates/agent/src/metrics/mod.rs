//! The agent's metrics: for Prometheus to fetch, or written to the log. Off unless a publisher is
//! set.
//!
//! Keys and the names that begin with `minifi_` are MiNiFi C++'s; those that begin with
//! `thalweg_agent_` are ours and have no class.

mod exposition;
mod publisher;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use regex::Regex;

use crate::AgentError;
use crate::control::wrong;
use crate::host;
use crate::units;

pub(crate) use self::publisher::Publisher;

/// Where metrics go and which ones.
#[derive(Clone, Debug)]
pub(crate) struct MetricsConfig {
    /// Where Prometheus fetches them.
    pub(crate) listen: Option<SocketAddr>,
    /// How often they are written to the log.
    pub(crate) log_every: Option<Duration>,
    pub(crate) classes: Classes,
    /// The label `agent_identifier`.
    pub(crate) identifier: String,
}

/// Classes of metrics that are told; all, when empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes(Vec<Class>);

#[derive(Clone, Debug)]
enum Class {
    Named(String),
    /// Processors' classes by a pattern, `processorMetrics/PATTERN`.
    Processors(Regex),
}

impl MetricsConfig {
    /// Reads the settings; `None` without a publisher.
    ///
    /// Errors: a value that cannot be; the text names the key.
    pub(crate) fn of(
        property: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<MetricsConfig>, AgentError> {
        let Some(publishers) = property(CLASS) else {
            return Ok(None);
        };
        let mut config = MetricsConfig {
            listen: None,
            log_every: None,
            classes: Classes::of(property(METRICS).as_deref().unwrap_or_default())?,
            identifier: property(IDENTIFIER).unwrap_or_else(host::hostname),
        };
        for publisher in publishers.split(',').map(str::trim) {
            match publisher {
                "PrometheusMetricsPublisher" => config.listen = Some(listen(property)?),
                "LogMetricsPublisher" => {
                    let text = property(LOG_EVERY).unwrap_or_else(|| LOG_EVERY_DEFAULT.to_owned());
                    let every = units::duration(&text)
                        .filter(|every| !every.is_zero())
                        .ok_or_else(|| wrong(LOG_EVERY, &text, "a duration such as 30 sec"))?;
                    config.log_every = Some(every);
                }
                other => {
                    let known = "PrometheusMetricsPublisher or LogMetricsPublisher";
                    return Err(wrong(CLASS, other, known));
                }
            }
        }
        Ok(Some(config))
    }
}

impl Classes {
    fn of(text: &str) -> Result<Classes, AgentError> {
        let mut classes = Vec::new();
        for word in text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            if let Some(pattern) = word.strip_prefix("processorMetrics/") {
                let whole = format!("^(?:{pattern})$");
                let pattern = Regex::new(&whole)
                    .map_err(|_| wrong(METRICS, word, "a pattern of processors' classes"))?;
                classes.push(Class::Processors(pattern));
            } else if word.ends_with("Metrics") || SYSTEM.contains(&word) {
                classes.push(Class::Named(word.to_owned()));
            } else {
                let known = SYSTEM.join(", ");
                let right = format!("{known}, PROCESSORMetrics or processorMetrics/PATTERN");
                return Err(wrong(METRICS, word, &right));
            }
        }
        Ok(Classes(classes))
    }

    /// Whether metrics of this class are told.
    fn has(&self, name: &str) -> bool {
        let is_processor = !SYSTEM.contains(&name);
        self.0.is_empty()
            || self.0.iter().any(|class| match class {
                Class::Named(known) => known == name,
                Class::Processors(pattern) => is_processor && pattern.is_match(name),
            })
    }
}

fn listen(property: &dyn Fn(&str) -> Option<String>) -> Result<SocketAddr, AgentError> {
    let port = match property(PORT) {
        None => PORT_DEFAULT,
        Some(text) => text.parse().map_err(|_| wrong(PORT, &text, "a port"))?,
    };
    let host = match property(HOST) {
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(text) => text
            .parse()
            .map_err(|_| wrong(HOST, &text, "an IP address"))?,
    };
    Ok(SocketAddr::new(host, port))
}

const CLASS: &str = "nifi.metrics.publisher.class";
const METRICS: &str = "nifi.metrics.publisher.metrics";
const IDENTIFIER: &str = "nifi.metrics.publisher.agent.identifier";
const PORT: &str = "nifi.metrics.publisher.PrometheusMetricsPublisher.port";
/// Ours: the address to listen on.
const HOST: &str = "nifi.metrics.publisher.PrometheusMetricsPublisher.host";
const LOG_EVERY: &str = "nifi.metrics.publisher.LogMetricsPublisher.logging.interval";

/// Classes that are no processor's.
const SYSTEM: &[&str] = &[
    "QueueMetrics",
    "RepositoryMetrics",
    "DeviceInfoNode",
    "FlowInformation",
    "AgentStatus",
];

/// What MiNiFi C++'s own settings file has.
const PORT_DEFAULT: u16 = 9936;

const LOG_EVERY_DEFAULT: &str = "30 sec";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<MetricsConfig>, String> {
        let property = |key: &str| {
            let found = pairs.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| (*value).to_owned())
        };
        MetricsConfig::of(&property).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_is_published_unless_it_is_set_and_then_on_this_machine() {
        assert!(read(&[(PORT, "9936")]).unwrap().is_none());
        let set = [(CLASS, "PrometheusMetricsPublisher")];
        let config = read(&set).unwrap().unwrap();
        assert_eq!(config.listen.unwrap().to_string(), "127.0.0.1:9936");
        assert!(config.log_every.is_none());
        let both = [
            (CLASS, "PrometheusMetricsPublisher,LogMetricsPublisher"),
            (HOST, "::"),
        ];
        let config = read(&both).unwrap().unwrap();
        assert_eq!(config.listen.unwrap().to_string(), "[::]:9936");
        assert_eq!(config.log_every, Some(Duration::from_secs(30)));
        for (key, value) in [
            (CLASS, "Carrier"),
            (PORT, "many"),
            (METRICS, "Q"),
            (LOG_EVERY, "0"),
        ] {
            let error = read(
                &[
                    (CLASS, "LogMetricsPublisher,PrometheusMetricsPublisher"),
                    (key, value),
                ][usize::from(key == CLASS)..],
            )
            .unwrap_err();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn classes_are_chosen_by_name_and_processors_by_pattern() {
        let all = Classes::of("").unwrap();
        assert!(all.has("QueueMetrics") && all.has("TailFileMetrics"));
        let some = Classes::of("QueueMetrics, processorMetrics/Tail.*Metrics").unwrap();
        assert!(some.has("QueueMetrics") && some.has("TailFileMetrics"));
        assert!(!some.has("RepositoryMetrics") && !some.has("PutFileMetrics"));
    }
}
