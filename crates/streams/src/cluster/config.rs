//! Which Kafka cluster holds the records, and what librdkafka is told of it.
//!
//! One key, `bootstrap_servers`, moves the event store to the cluster. Everything about reaching it
//! (TLS, logins, time-outs) is librdkafka's own table of properties, under its own names. What makes
//! an acknowledgement true (acknowledged by all replicas, stored once) is set here and nowhere else.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base::HumanDuration;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use serde::{Deserialize, Serialize};

use crate::config::{Durability, StreamsConfig};
use crate::limits::MESSAGE_BYTES_MAX;

/// The cluster's part of the event store's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Brokers to begin with, as `host:port` with commas in between; none keeps records here.
    pub bootstrap_servers: Option<String>,
    /// Replicas of a topic that is created here; -1 takes the cluster's default.
    pub replication_factor: i32,
    /// How long a batch is tried before its producer is told that the cluster did not take it.
    pub delivery_timeout: HumanDuration,
    /// How long any other call waits for the cluster.
    pub request_timeout: HumanDuration,
    /// Properties for librdkafka, by its names.
    pub properties: Properties,
}

/// Properties by name; values of those that hold secrets are never shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, Written>")]
pub struct Properties(BTreeMap<String, String>);

/// A property as a file may have it: `a.b = 1` in TOML is a table `a`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Truth(bool),
    Number(i64),
    Fraction(f64),
    Text(String),
    Table(BTreeMap<String, Written>),
}

impl ClusterConfig {
    /// The brokers to begin with, when records are kept in a cluster.
    pub fn servers(&self) -> Option<&str> {
        self.bootstrap_servers
            .as_deref()
            .map(str::trim)
            .filter(|servers| !servers.is_empty())
    }

    /// All that is wrong, one line each; `streams` is the configuration that this one is part of.
    pub(crate) fn problems(&self, streams: &StreamsConfig) -> Vec<String> {
        let mut problems = Vec::new();
        if self.servers().is_none() {
            if !self.properties.0.is_empty() {
                problems.push("kafka.properties needs kafka.bootstrap_servers".to_owned());
            }
            return problems;
        }
        for name in self.properties.0.keys() {
            if let Some((_, why)) = OURS.iter().find(|(ours, _)| ours == name) {
                problems.push(format!("kafka.properties.{name} cannot be set: {why}"));
            }
        }
        if self.delivery_timeout.0 < DELIVERY_TIMEOUT_MIN {
            problems.push(format!(
                "kafka.delivery_timeout is {}: write 2s or more",
                self.delivery_timeout
            ));
        }
        if self.request_timeout.0 < REQUEST_TIMEOUT_MIN {
            problems.push(format!(
                "kafka.request_timeout is {}: write 1s or more",
                self.request_timeout
            ));
        }
        if self.replication_factor != -1
            && !(1..=REPLICATION_MAX).contains(&self.replication_factor)
        {
            problems.push(format!(
                "kafka.replication_factor is {}: write 1 to {REPLICATION_MAX}, or -1 for the \
                 cluster's default",
                self.replication_factor
            ));
        }
        problems.extend(without_a_listener(streams));
        if let Err(error) = self.check_properties() {
            problems.push(error);
        }
        problems
    }

    /// What every client of the cluster is told.
    pub(super) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client
            .set("bootstrap.servers", self.servers().unwrap_or_default())
            .set("client.id", CLIENT_ID)
            // Topics come by our policy and not by the broker's.
            .set("allow.auto.create.topics", "false")
            .set("metadata.max.age.ms", "60000")
            .set("reconnect.backoff.max.ms", "2000")
            // How large a message may be is the topic's to say.
            .set("message.max.bytes", MESSAGE_BYTES_MAX.to_string())
            .set("log.connection.close", "false")
            .set_log_level(RDKafkaLogLevel::Warning);
        for (name, value) in &self.properties.0 {
            client.set(name, value);
        }
        client
    }

    /// What producers are told beside that: acknowledged by all replicas, stored once, in order.
    pub(super) fn producer(&self) -> ClientConfig {
        let delivery_ms = self.delivery_timeout.0.as_millis().to_string();
        let mut producer = self.client();
        producer
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("message.timeout.ms", delivery_ms)
            // A round is sent by its flush, whole; the wait only keeps it together until then.
            .set("linger.ms", "1000")
            .set("batch.num.messages", "1000000")
            .set("queue.buffering.max.messages", "0")
            .set("queue.buffering.max.kbytes", "2097151");
        producer
    }

    /// How long a flush may take: a little longer than what it waits for.
    pub(super) fn flush_timeout(&self) -> Duration {
        self.delivery_timeout.0 + FLUSH_GRACE
    }

    /// How long a call waits for the cluster.
    pub(super) fn call_timeout(&self) -> Duration {
        self.request_timeout.0
    }

    /// Has librdkafka read the properties, so that a wrong one is told before anything starts.
    fn check_properties(&self) -> Result<(), String> {
        use rdkafka::error::KafkaError;
        match self.producer().create_native_config() {
            Ok(_) => Ok(()),
            Err(KafkaError::ClientConfig(_, why, name, _)) if !is_secret(&name) => {
                Err(format!("kafka.properties.{name}: {why}"))
            }
            Err(KafkaError::ClientConfig(_, _, name, _)) => {
                Err(format!("kafka.properties.{name} cannot be used"))
            }
            Err(error) => Err(format!("kafka.properties cannot be used: {error}")),
        }
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        ClusterConfig {
            bootstrap_servers: None,
            replication_factor: -1,
            delivery_timeout: HumanDuration(Duration::from_secs(30)),
            request_timeout: HumanDuration(Duration::from_secs(10)),
            properties: Properties::default(),
        }
    }
}

impl Properties {
    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl From<BTreeMap<String, Written>> for Properties {
    fn from(written: BTreeMap<String, Written>) -> Self {
        let mut flat = BTreeMap::new();
        flatten("", written, &mut flat);
        Properties(flat)
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value): (&String, &String)| match is_secret(name) {
            true => (name.clone(), "***".to_owned()),
            false => (name.clone(), value.clone()),
        };
        f.debug_map().entries(self.0.iter().map(shown)).finish()
    }
}

fn flatten(at: &str, written: BTreeMap<String, Written>, flat: &mut BTreeMap<String, String>) {
    for (name, value) in written {
        let name = match at {
            "" => name,
            at => format!("{at}.{name}"),
        };
        match value {
            Written::Table(table) => flatten(&name, table, flat),
            Written::Text(text) => drop(flat.insert(name, text)),
            Written::Truth(truth) => drop(flat.insert(name, truth.to_string())),
            Written::Number(number) => drop(flat.insert(name, number.to_string())),
            Written::Fraction(number) => drop(flat.insert(name, number.to_string())),
        }
    }
}

/// Keys that mean the listener or the store in this process, which there are none of. Users and ACLs
/// are not among them: those who come by HTTP are held to them here.
fn without_a_listener(streams: &StreamsConfig) -> Vec<String> {
    let theirs = "the cluster's own brokers decide that; leave it as it is by default";
    let mut problems = Vec::new();
    let mut refuse = |is_set: bool, key: &str| {
        if is_set {
            problems.push(format!(
                "{key} has no meaning with kafka.bootstrap_servers: {theirs}"
            ));
        }
    };
    refuse(streams.local_listen.is_some(), "local_listen");
    refuse(streams.advertised.is_some(), "advertised");
    refuse(streams.tls.is_on(), "tls");
    refuse(!streams.sasl.mechanisms.is_empty(), "sasl.mechanisms");
    if streams.durability == Durability::Memory {
        problems.push(
            "durability = \"memory\" cannot be had of a Kafka cluster, which writes every record; \
             write \"os\" or \"disk\""
                .to_owned(),
        );
    }
    problems
}

/// Whether a property's value is a secret, by what its name says.
fn is_secret(name: &str) -> bool {
    SECRETS.iter().any(|part| name.contains(part))
}

/// Properties that are decided here, with the reason.
const OURS: &[(&str, &str)] = &[
    ("acks", "every acknowledgement is one of all replicas"),
    ("allow.auto.create.topics", "auto_create_topics decides"),
    ("auto.offset.reset", "each consumer says its own"),
    ("bootstrap.servers", "write kafka.bootstrap_servers"),
    ("metadata.broker.list", "write kafka.bootstrap_servers"),
    ("delivery.timeout.ms", "write kafka.delivery_timeout"),
    ("message.timeout.ms", "write kafka.delivery_timeout"),
    ("enable.auto.commit", "each consumer commits for itself"),
    (
        "enable.auto.offset.store",
        "each consumer commits for itself",
    ),
    ("enable.idempotence", "nothing is stored twice by a retry"),
    ("enable.partition.eof", "each consumer says its own"),
    ("group.id", "each consumer says its own"),
    ("isolation.level", "each consumer says its own"),
    (
        "linger.ms",
        "what waits is sent together, without lingering",
    ),
    (
        "plugin.library.paths",
        "no code is loaded into this process",
    ),
    (
        "request.required.acks",
        "every acknowledgement is one of all replicas",
    ),
    ("transactional.id", "it belongs to the data folder"),
];

/// What names of secrets have in them.
const SECRETS: &[&str] = &[
    "password",
    "secret",
    "key.pem",
    "token",
    "jaas",
    "sasl.oauthbearer.config",
];

/// What this process calls itself.
const CLIENT_ID: &str = "thalweg";

/// The shortest time to deliver in: a round lingers up to a second at worst.
const DELIVERY_TIMEOUT_MIN: Duration = Duration::from_secs(2);

const REQUEST_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// What a flush may take beyond the delivery's time: librdkafka looks for time-outs once a second.
pub(super) const FLUSH_GRACE: Duration = Duration::from_secs(10);

/// Kafka's own bound.
const REPLICATION_MAX: i32 = 32_767;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> StreamsConfig {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn one_key_is_enough_and_tables_are_flattened() {
        let config = of(r#"{"kafka":{"bootstrap_servers":"a:1"}}"#);
        assert_eq!(config.problems(), Vec::<String>::new());
        assert_eq!(config.kafka.servers(), Some("a:1"));
        assert_eq!(StreamsConfig::default().kafka.servers(), None);
        // Who comes by HTTP is asked here, whatever holds the records.
        let asks = of(
            r#"{"kafka":{"bootstrap_servers":"a:1"},"authorization":"acl",
            "super_users":["User:root"]}"#,
        );
        assert_eq!(asks.problems(), Vec::<String>::new());
        let config = of(r#"{"kafka":{"bootstrap_servers":"a:1","properties":
            {"security":{"protocol":"SASL_SSL"},"sasl.password":"hush","socket.timeout.ms":7000}}}"#);
        let client = config.kafka.client();
        assert_eq!(client.get("security.protocol"), Some("SASL_SSL"));
        assert_eq!(client.get("socket.timeout.ms"), Some("7000"));
        let shown = format!("{config:?}");
        assert!(
            !shown.contains("hush") && shown.contains("SASL_SSL"),
            "{shown}"
        );
    }

    #[test]
    fn what_is_decided_here_or_has_no_meaning_is_refused_by_name() {
        for (json, named) in [
            (r#""properties":{"acks":"1"}"#, "acks"),
            (r#""properties":{"no.such":"1"}"#, "no.such"),
            (
                r#""properties":{"security.protocol":"MAGIC"}"#,
                "security.protocol",
            ),
            (r#""delivery_timeout":"1s""#, "delivery_timeout"),
            (r#""replication_factor":0"#, "replication_factor"),
        ] {
            let problems = of(&format!(
                r#"{{"kafka":{{"bootstrap_servers":"a:1",{json}}}}}"#
            ))
            .problems();
            assert!(
                problems.len() == 1 && problems[0].contains(named),
                "{problems:?}"
            );
        }
        for (json, named) in [
            (r#""durability":"memory""#, "durability"),
            (r#""advertised":"a""#, "advertised"),
            (r#""sasl":{"mechanisms":["PLAIN"]}"#, "sasl.mechanisms"),
        ] {
            let problems = of(&format!(
                r#"{{"kafka":{{"bootstrap_servers":"a:1"}},{json}}}"#
            ))
            .problems();
            assert!(
                problems.len() == 1 && problems[0].contains(named),
                "{problems:?}"
            );
        }
        let problems = of(r#"{"kafka":{"properties":{"debug":"all"}}}"#).problems();
        assert!(problems[0].contains("bootstrap_servers"), "{problems:?}");
    }

    #[test]
    fn a_wrong_secret_is_not_repeated() {
        let problems = of(r#"{"kafka":{"bootstrap_servers":"a:1",
            "properties":{"ssl.key.pem.nosuch":"hush"}}}"#)
        .problems();
        assert!(!format!("{problems:?}").contains("hush"), "{problems:?}");
    }
}
