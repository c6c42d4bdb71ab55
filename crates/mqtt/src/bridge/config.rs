//! What a bridge is made with, and how it turns topics into each other.

use std::path::PathBuf;
use std::time::Duration;

use base::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

use crate::bridge::BridgeError;
use crate::limits::{BRIDGE_NAME_BYTES_MAX, BRIDGE_TOPICS_MAX};
use crate::topic::{TopicFilter, TopicName};

/// A connection to another MQTT server (5.0) that carries messages there and back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BridgeConfig {
    /// Its name here, of letters, digits, `-` and `_`; also the folder of what waits.
    pub name: String,
    /// The other server: `mqtt://host:port`, or `mqtts://host:port` for TLS.
    pub address: String,
    /// The client id there; made of this installation and the name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The user name there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// File with the password in its first line, read at each connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// File with the certificates of those who may sign the server's; the system's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// File with the certificate that is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// File with the key of the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Silence after which either side counts as gone.
    #[serde(default = "keep_alive_default")]
    pub keep_alive: HumanDuration,
    /// How long the other server keeps what is for us while we are away.
    #[serde(default = "session_expiry_default")]
    pub session_expiry: HumanDuration,
    /// Messages that may wait for the other server.
    #[serde(default = "queue_messages_default")]
    pub queue_messages_max: usize,
    /// Bytes that may wait for the other server, on the disk.
    #[serde(default = "queue_bytes_default")]
    pub queue_bytes_max: ByteSize,
    /// What goes over.
    pub topics: Vec<BridgeTopic>,
}

/// Topics that go over a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BridgeTopic {
    /// The filter, without the prefixes of either side.
    pub filter: String,
    /// Whither.
    #[serde(default)]
    pub direction: Direction,
    /// The quality, 0 or 1: the smaller of it and a message's own holds.
    #[serde(default = "qos_default")]
    pub qos: u8,
    /// What stands before the filter here.
    #[serde(default)]
    pub local_prefix: String,
    /// What stands before the filter there.
    #[serde(default)]
    pub remote_prefix: String,
    /// Group of a shared subscription there, for what comes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
}

/// Whither messages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the other server.
    #[default]
    Out,
    /// From the other server.
    In,
    /// Both ways.
    Both,
}

/// Where the other server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) is_tls: bool,
}

impl BridgeConfig {
    /// Checks what was written.
    ///
    /// # Errors
    /// [`BridgeError::Invalid`] says what is wrong and what would be right.
    pub fn check(&self) -> Result<(), BridgeError> {
        let wrong = |problem: String| {
            Err(BridgeError::Invalid {
                name: self.name.chars().take(BRIDGE_NAME_BYTES_MAX).collect(),
                problem,
            })
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty()
            || self.name.len() > BRIDGE_NAME_BYTES_MAX
            || !self.name.chars().all(is_name)
        {
            return wrong(format!(
                "name it with 1 to {BRIDGE_NAME_BYTES_MAX} letters, digits, - and _"
            ));
        }
        if let Err(problem) = self.address() {
            return wrong(problem.to_owned());
        }
        if self.certificate.is_some() != self.key.is_some() {
            return wrong("certificate and key belong together: write both".to_owned());
        }
        if self.password_file.is_some() && self.username.is_none() {
            return wrong("password_file needs username".to_owned());
        }
        if self.topics.is_empty() || self.topics.len() > BRIDGE_TOPICS_MAX {
            return wrong(format!("write 1 to {BRIDGE_TOPICS_MAX} topics"));
        }
        if self.queue_messages_max == 0 || self.queue_bytes_max.0 < QUEUE_BYTES_MIN {
            return wrong(format!(
                "queue_messages_max must be at least 1, queue_bytes_max at least {}",
                ByteSize(QUEUE_BYTES_MIN)
            ));
        }
        if self.keep_alive.0 < KEEP_ALIVE_MIN {
            return wrong("keep_alive must be at least 5s".to_owned());
        }
        for topic in &self.topics {
            if let Err(problem) = topic.check() {
                return wrong(format!("topic '{}': {problem}", topic.filter));
            }
        }
        Ok(())
    }

    /// Checks that every file that is named lies in one of these folders, links followed: whoever may add
    /// a bridge could else have any file of the machine sent to a server of their own.
    ///
    /// # Errors
    /// [`BridgeError::Invalid`] names the first that does not.
    pub(super) fn check_files(&self, folders: &[PathBuf]) -> Result<(), BridgeError> {
        let folders: Vec<PathBuf> = folders
            .iter()
            .filter_map(|folder| std::fs::canonicalize(folder).ok())
            .collect();
        let files = [&self.password_file, &self.ca, &self.certificate, &self.key];
        for file in files.into_iter().flatten() {
            let found = std::fs::canonicalize(file).ok();
            let is_within = found.is_some_and(|file| folders.iter().any(|it| file.starts_with(it)));
            if !is_within {
                return Err(BridgeError::Invalid {
                    name: self.name.chars().take(BRIDGE_NAME_BYTES_MAX).collect(),
                    problem: format!(
                        "'{}' is no file of a folder that bridges added at run time may name; the \
                         operator names these in mqtt.bridge_files",
                        file.display()
                    ),
                });
            }
        }
        Ok(())
    }

    pub(super) fn address(&self) -> Result<Address, &'static str> {
        let form = "write address as mqtt://host:port, or mqtts://host:port for TLS";
        let (scheme, rest) = self.address.split_once("://").ok_or(form)?;
        let (is_tls, port) = match scheme {
            "mqtt" => (false, 1883),
            "mqtts" => (true, 8883),
            _ => return Err(form),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, text)) if !text.ends_with(']') => (host, text.parse().map_err(|_| form)?),
            _ => (rest, port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(['/', '@']) {
            return Err(form);
        }
        Ok(Address {
            host: host.to_owned(),
            port,
            is_tls,
        })
    }
}

impl BridgeTopic {
    fn check(&self) -> Result<(), String> {
        for (what, text) in [
            ("here", self.local_filter()),
            ("there", self.remote_filter()),
        ] {
            if let Err(error) = text.parse::<TopicFilter>() {
                return Err(format!("'{text}' is no filter {what}: {error}"));
            }
        }
        if self.qos > 1 {
            return Err("qos is 0 or 1".to_owned());
        }
        let is_share = |share: &String| !share.is_empty() && !share.contains(['/', '+', '#']);
        if self.share.as_ref().is_some_and(|share| !is_share(share)) {
            return Err("share is a name without /, + and #".to_owned());
        }
        if self.share.is_some() && self.direction == Direction::Out {
            return Err("share is for what comes in".to_owned());
        }
        Ok(())
    }

    pub(super) fn goes_out(&self) -> bool {
        self.direction != Direction::In
    }

    pub(super) fn comes_in(&self) -> bool {
        self.direction != Direction::Out
    }

    /// The filter here.
    pub(super) fn local_filter(&self) -> String {
        format!("{}{}", self.local_prefix, self.filter)
    }

    /// The filter there, without the group of a shared subscription.
    pub(super) fn remote_filter(&self) -> String {
        format!("{}{}", self.remote_prefix, self.filter)
    }

    /// The topic there of one here; none when it is too long or was not meant.
    pub(super) fn to_remote(&self, topic: &str) -> Option<String> {
        let rest = topic.strip_prefix(&*self.local_prefix)?;
        let topic = format!("{}{rest}", self.remote_prefix);
        topic.parse::<TopicName>().is_ok().then_some(topic)
    }

    /// The topic here of one there; none when it is not of this filter.
    pub(super) fn to_local(&self, topic: &str) -> Option<String> {
        let filter: TopicFilter = self.remote_filter().parse().ok()?;
        if !filter.matches(topic) {
            return None;
        }
        let rest = topic.strip_prefix(&*self.remote_prefix)?;
        let topic = format!("{}{rest}", self.local_prefix);
        topic.parse::<TopicName>().is_ok().then_some(topic)
    }
}

fn keep_alive_default() -> HumanDuration {
    HumanDuration(Duration::from_secs(60))
}

fn session_expiry_default() -> HumanDuration {
    HumanDuration(Duration::from_secs(7 * 24 * 3_600))
}

fn queue_messages_default() -> usize {
    1_000_000
}

fn queue_bytes_default() -> ByteSize {
    ByteSize::mib(256)
}

fn qos_default() -> u8 {
    1
}

/// A queue smaller than some segments of its journal could not give space back.
const QUEUE_BYTES_MIN: u64 = 1 << 20;
/// The client library takes no shorter one.
const KEEP_ALIVE_MIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn bridge(text: &str) -> BridgeConfig {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn topics_are_turned_by_their_prefixes() {
        let text = r#"{"filter": "+/t", "direction": "both", "local_prefix": "plant/", "remote_prefix": "site1/"}"#;
        let topic: BridgeTopic = serde_json::from_str(text).unwrap();
        topic.check().unwrap();
        assert_eq!(topic.local_filter(), "plant/+/t");
        assert_eq!(topic.to_remote("plant/a/t").as_deref(), Some("site1/a/t"));
        assert_eq!(topic.to_local("site1/a/t").as_deref(), Some("plant/a/t"));
        assert_eq!(topic.to_local("site1/a/u"), None);
        assert_eq!(topic.to_local("plant/a/t"), None);
        let plain: BridgeTopic = serde_json::from_str(r##"{"filter": "#"}"##).unwrap();
        assert_eq!(plain.to_remote("a/b").as_deref(), Some("a/b"));
        assert!(plain.goes_out() && !plain.comes_in());
    }

    #[test]
    fn addresses_are_read() {
        let of = |address: &str| {
            let text = format!(
                r##"{{"name": "a", "address": "{address}", "topics": [{{"filter": "#"}}]}}"##
            );
            let address = bridge(&text).address().ok()?;
            Some((address.host, address.port, address.is_tls))
        };
        let is = |host: &str, port, tls| Some((host.to_owned(), port, tls));
        assert_eq!(of("mqtt://b.example"), is("b.example", 1883, false));
        assert_eq!(of("mqtts://b.example"), is("b.example", 8883, true));
        assert_eq!(of("mqtt://127.0.0.1:1/"), is("127.0.0.1", 1, false));
        assert_eq!(of("mqtt://[::1]:7"), is("::1", 7, false));
        assert_eq!(of("mqtt://[::1]"), is("::1", 1883, false));
        for wrong in [
            "b.example",
            "http://b",
            "mqtt://",
            "mqtt://b:x",
            "mqtt://u:p@b",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_cannot_work_is_told() {
        let told = |change: &str| {
            let mut value: serde_json::Value = serde_json::from_str(
                r##"{"name": "a", "address": "mqtt://b", "topics": [{"filter": "#"}]}"##,
            )
            .unwrap();
            let change: serde_json::Value = serde_json::from_str(change).unwrap();
            for (key, changed) in change.as_object().unwrap() {
                value[key] = changed.clone();
            }
            let config: BridgeConfig = serde_json::from_value(value).unwrap();
            config.check().map_err(|error| error.to_string())
        };
        assert_eq!(told("{}"), Ok(()));
        for wrong in [
            r#"{"name": "../a"}"#,
            r#"{"name": ""}"#,
            r#"{"password_file": "p"}"#,
            r#"{"key": "k"}"#,
            r#"{"topics": []}"#,
            r##"{"topics": [{"filter": "a#"}]}"##,
            r##"{"topics": [{"filter": "#", "qos": 2}]}"##,
            r##"{"topics": [{"filter": "#", "share": "g"}]}"##,
            r##"{"topics": [{"filter": "#", "direction": "in", "share": "g/h"}]}"##,
            r#"{"queue_bytes_max": "1KiB"}"#,
            r#"{"keep_alive": "1s"}"#,
        ] {
            assert!(told(wrong).is_err(), "{wrong}");
        }
    }
}
