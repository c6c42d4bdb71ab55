//! What can be configured of the event store, with its defaults.

use std::time::Duration;

use access::{ClientAuth, Mechanism, Policy, Principal, TlsConfig};
use base::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

use crate::cluster::ClusterConfig;
use crate::fenced;
use crate::groups::GroupsConfig;
use crate::limits::{
    CONNECTIONS_DEFAULT, MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX, PARTITIONS_PER_TOPIC_MAX,
    SYNC_INTERVAL_MAX, TRANSACTION_TIMEOUT_DEFAULT, TRANSACTION_TIMEOUT_MAX,
};
use crate::observe::MetricsConfig;
use crate::topic::TopicName;

/// What an acknowledgement promises to survive, and when a record becomes visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing: acknowledged when taken, lost with the process.
    Memory,
    /// The end of the process: acknowledged when the operating system has it.
    Os,
    /// The end of the machine: acknowledged after the sync.
    #[default]
    Disk,
}

impl Durability {
    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Memory => "memory",
            Durability::Os => "os",
            Durability::Disk => "disk",
        }
    }
}

/// How a topic's batches are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// As their producer compressed them.
    #[default]
    Producer,
    /// Not at all.
    Uncompressed,
    /// By gzip.
    Gzip,
    /// By snappy.
    Snappy,
    /// By lz4.
    Lz4,
    /// By zstd.
    Zstd,
}

impl Compression {
    const ALL: [Compression; 6] = [
        Compression::Producer,
        Compression::Uncompressed,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    /// Its name, as Kafka's `compression.type` has it.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Producer => "producer",
            Compression::Uncompressed => "uncompressed",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Kafka's number of the codec that batches are to have; none when any will do.
    pub(crate) fn codec(self) -> Option<i16> {
        match self {
            Compression::Producer => None,
            Compression::Uncompressed => Some(0),
            Compression::Gzip => Some(1),
            Compression::Snappy => Some(2),
            Compression::Lz4 => Some(3),
            Compression::Zstd => Some(4),
        }
    }
}

/// The event store's part of the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamsConfig {
    /// Address of the Kafka listener; port 0 picks a free one.
    pub listen: String,
    /// Address of a second listener without TLS and logins, for this machine; none when absent.
    pub local_listen: Option<String>,
    /// TLS of the listener.
    pub tls: TlsConfig,
    /// How clients log in.
    pub sasl: SaslConfig,
    /// Whether ACLs are followed.
    pub authorization: Authorization,
    /// Who may do everything, whatever the ACLs say.
    pub super_users: Vec<Principal>,
    /// Whether everybody may do everything to what no ACL names.
    pub allow_if_no_acl: bool,
    /// Host that clients are told to connect to; the address they came to when absent.
    pub advertised: Option<String>,
    /// Likewise for the clients of the second listener.
    pub local_advertised: Option<String>,
    /// Most connections of each Kafka listener.
    pub connections_max: usize,
    /// Most connections that one address may have at the Kafka listeners; zero is no bound.
    pub max_connections_per_ip: usize,
    /// This node's id in metadata answers.
    pub node_id: i32,
    /// Whether plain topics are created when first asked for.
    pub auto_create_topics: bool,
    /// Partitions of a plain topic when none are asked for.
    pub default_partitions: i32,
    /// Durability of a topic when none is asked for.
    pub durability: Durability,
    /// Largest record batch taken, in bytes.
    pub max_message_bytes: ByteSize,
    /// Age at which records of plain topics expire unless the topic says otherwise; zero keeps
    /// them.
    pub retention: HumanDuration,
    /// Size of a journal segment, in bytes.
    pub segment_bytes: ByteSize,
    /// Policies of single streams, by path.
    pub streams: Vec<StreamPolicy>,
    /// Policy of every stream path that is not listed.
    pub default_stream: StreamDefaults,
    /// Least time from one sync to the next while most of what arrives was sent by clients that wait
    /// for no answer before they send the next; at most a second, and zero lets none wait.
    pub sync_interval: HumanDuration,
    /// The longest time-out that a transaction may ask for.
    pub transaction_timeout_max: HumanDuration,
    /// How long a transactional id is kept that nobody uses; zero keeps it for ever.
    pub transactional_id_expiration: HumanDuration,
    /// How long a partition knows a producer that writes nothing to it; zero is for ever.
    pub producer_id_expiration: HumanDuration,
    /// Consumer groups.
    pub groups: GroupsConfig,
    /// The Kafka cluster that holds the records, when it is not this process.
    pub kafka: ClusterConfig,
    /// How much the metrics tell.
    pub metrics: MetricsConfig,
}

/// How clients of the Kafka listener log in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SaslConfig {
    /// The mechanisms that may be used; nobody has to log in when there is none.
    pub mechanisms: Vec<Mechanism>,
    /// How long a login holds before the client has to log in again; zero is for ever.
    pub session_lifetime: HumanDuration,
}

/// Whether ACLs are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Authorization {
    /// Everybody may do everything.
    #[default]
    Off,
    /// The ACLs decide.
    Acl,
}

/// The policy of the topics under one stream path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamPolicy {
    /// The stream's path, such as `/streams/test`.
    pub path: String,
    /// Whether its topics are created when first asked for.
    #[serde(default = "yes")]
    pub autocreate: bool,
    /// Partitions of its topics when none are asked for.
    #[serde(default = "one")]
    pub default_partitions: i32,
    /// Age at which its records expire; zero keeps them.
    #[serde(default = "seven_days")]
    pub ttl: HumanDuration,
    /// How its records are compressed.
    #[serde(default)]
    pub compression: Compression,
}

/// The policy of stream paths that have none of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamDefaults {
    /// Whether topics are created when first asked for.
    pub autocreate: bool,
    /// Partitions of a topic when none are asked for.
    pub default_partitions: i32,
    /// Age at which records expire; zero keeps them.
    pub ttl: HumanDuration,
    /// How records are compressed.
    pub compression: Compression,
}

/// How a topic that nobody described comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreationPolicy {
    /// Whether it is created when first asked for.
    pub autocreate: bool,
    /// Its number of partitions.
    pub partitions: i32,
}

impl StreamsConfig {
    /// All that is wrong with the values, one line each, in the keys' names.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check_partitions = |key: &str, partitions: i32| {
            if !(1..=PARTITIONS_PER_TOPIC_MAX).contains(&partitions) {
                problems.push(format!(
                    "{key} is {partitions}: write 1 to {PARTITIONS_PER_TOPIC_MAX}"
                ));
            }
        };
        check_partitions("default_partitions", self.default_partitions);
        check_partitions(
            "default_stream.default_partitions",
            self.default_stream.default_partitions,
        );
        for policy in &self.streams {
            let key = format!("streams[{}].default_partitions", policy.path);
            check_partitions(&key, policy.default_partitions);
        }
        for policy in &self.streams {
            if format!("{}:t", policy.path).parse::<TopicName>().is_err() {
                problems.push(format!(
                    "streams.path '{}' is no stream's path: write '/path/stream'",
                    policy.path
                ));
            }
        }
        if self.max_message_bytes.0 == 0 || self.max_message_bytes.0 > MESSAGE_BYTES_MAX {
            problems.push(format!(
                "max_message_bytes is {}: write 1 to {}",
                self.max_message_bytes,
                ByteSize(MESSAGE_BYTES_MAX)
            ));
        }
        if self.segment_bytes.0 < 4 * self.max_message_bytes.0 {
            problems.push("segment_bytes must be at least four times max_message_bytes".into());
        }
        if self.sync_interval.0 > SYNC_INTERVAL_MAX {
            problems.push(format!(
                "sync_interval is {}: write at most {}",
                self.sync_interval,
                HumanDuration(SYNC_INTERVAL_MAX)
            ));
        }
        if self.connections_max == 0 {
            problems.push("connections_max is 0: write at least 1".to_owned());
        }
        // Those who write here by themselves ask for a minute.
        let timeouts = fenced::TIMEOUT..=TRANSACTION_TIMEOUT_MAX;
        if !timeouts.contains(&self.transaction_timeout_max.0) {
            problems.push(format!(
                "transaction_timeout_max is {}: write {} to {}",
                self.transaction_timeout_max,
                HumanDuration(*timeouts.start()),
                HumanDuration(*timeouts.end())
            ));
        }
        problems.extend(self.tls.problems());
        if self.authorization == Authorization::Off && !self.super_users.is_empty() {
            problems.push("super_users needs authorization = \"acl\"".to_owned());
        }
        if self.node_id < 0 {
            problems.push(format!("node_id is {}: write zero or more", self.node_id));
        }
        problems.extend(self.groups.problems());
        problems.extend(self.kafka.problems(self));
        problems
    }

    /// Whether every client of the listener shows who it is, and no password travels in the clear.
    pub fn knows_every_client(&self) -> bool {
        let has_tls = self.tls.is_on();
        let has_login = !self.sasl.mechanisms.is_empty();
        let is_clear = !has_tls && self.sasl.mechanisms.contains(&Mechanism::Plain);
        (has_login && !is_clear) || (has_tls && self.tls.client_auth == ClientAuth::Required)
    }

    /// What holds beside the ACLs; none when they are not followed.
    pub fn access_policy(&self) -> Option<Policy> {
        (self.authorization == Authorization::Acl).then(|| Policy {
            super_users: self.super_users.clone(),
            allow_if_no_acl: self.allow_if_no_acl,
        })
    }

    /// The age at which records of `topic` expire when nothing else was set for it; none when they
    /// are kept.
    pub fn ttl(&self, topic: &TopicName) -> Option<Duration> {
        let Some(path) = topic.stream() else {
            return self.plain_retention();
        };
        let ttl = self
            .policy(path)
            .map_or(self.default_stream.ttl, |policy| policy.ttl);
        Some(ttl.0).filter(|ttl| !ttl.is_zero())
    }

    /// How records of `topic` are compressed when nothing else was set for it.
    pub fn compression(&self, topic: &TopicName) -> Compression {
        let Some(path) = topic.stream() else {
            return Compression::Producer;
        };
        let policy = self.policy(path);
        policy.map_or(self.default_stream.compression, |policy| policy.compression)
    }

    /// The age at which records of plain topics expire; none when they are kept.
    pub fn plain_retention(&self) -> Option<Duration> {
        Some(self.retention.0).filter(|age| !age.is_zero())
    }

    /// The largest batch that a topic may be set to take, in bytes: a segment holds four of them.
    pub fn message_bytes_ceiling(&self) -> u64 {
        (self.segment_bytes.0 / 4).min(MESSAGE_BYTES_MAX)
    }

    /// How `topic` is created when nobody says how.
    pub fn creation_policy(&self, topic: &TopicName) -> CreationPolicy {
        let Some(path) = topic.stream() else {
            return CreationPolicy {
                autocreate: self.auto_create_topics,
                partitions: self.default_partitions,
            };
        };
        match self.policy(path) {
            Some(policy) => CreationPolicy {
                autocreate: policy.autocreate,
                partitions: policy.default_partitions,
            },
            None => CreationPolicy {
                autocreate: self.default_stream.autocreate,
                partitions: self.default_stream.default_partitions,
            },
        }
    }

    fn policy(&self, path: &str) -> Option<&StreamPolicy> {
        self.streams.iter().find(|policy| policy.path == path)
    }
}

impl Default for StreamsConfig {
    fn default() -> Self {
        StreamsConfig {
            listen: "127.0.0.1:9092".to_owned(),
            local_listen: None,
            tls: TlsConfig::default(),
            sasl: SaslConfig::default(),
            authorization: Authorization::Off,
            super_users: Vec::new(),
            allow_if_no_acl: false,
            advertised: None,
            local_advertised: None,
            connections_max: CONNECTIONS_DEFAULT,
            max_connections_per_ip: 0,
            node_id: 1,
            auto_create_topics: true,
            default_partitions: 1,
            durability: Durability::Disk,
            max_message_bytes: ByteSize(MESSAGE_BYTES_DEFAULT),
            retention: seven_days(),
            segment_bytes: ByteSize::mib(64),
            sync_interval: HumanDuration(Duration::from_millis(3)),
            streams: Vec::new(),
            default_stream: StreamDefaults::default(),
            transaction_timeout_max: HumanDuration(TRANSACTION_TIMEOUT_DEFAULT),
            transactional_id_expiration: seven_days(),
            producer_id_expiration: HumanDuration(Duration::from_secs(24 * 3_600)),
            groups: GroupsConfig::default(),
            kafka: ClusterConfig::default(),
            metrics: MetricsConfig::default(),
        }
    }
}

impl Default for SaslConfig {
    fn default() -> Self {
        SaslConfig {
            mechanisms: Vec::new(),
            session_lifetime: HumanDuration(Duration::ZERO),
        }
    }
}

impl Default for StreamDefaults {
    fn default() -> Self {
        StreamDefaults {
            autocreate: yes(),
            default_partitions: one(),
            ttl: seven_days(),
            compression: Compression::default(),
        }
    }
}

fn yes() -> bool {
    true
}

fn one() -> i32 {
    1
}

fn seven_days() -> HumanDuration {
    HumanDuration(Duration::from_secs(7 * 24 * 3_600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_have_no_problem_and_unknown_keys_are_refused() {
        assert_eq!(StreamsConfig::default().problems(), Vec::<String>::new());
        assert!(serde_json::from_str::<StreamsConfig>(r#"{"listne":"x"}"#).is_err());
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let config: StreamsConfig = serde_json::from_str(
            r#"{"default_partitions":0,"max_message_bytes":"1GiB","streams":[{"path":"x"}],
                "sync_interval":"2s","connections_max":0,"transaction_timeout_max":"1s"}"#,
        )
        .unwrap();
        assert_eq!(config.problems().len(), 7);
    }

    #[test]
    fn a_listener_knows_its_clients_by_login_or_certificate() {
        let knows = |text: &str| {
            let config: StreamsConfig = serde_json::from_str(text).unwrap();
            assert_eq!(config.problems(), Vec::<String>::new(), "{text}");
            config.knows_every_client()
        };
        let tls = r#""certificate":"c","key":"k","client_ca":"a""#;
        assert!(!knows("{}"));
        assert!(!knows(&format!(r#"{{"tls":{{{tls}}}}}"#)));
        assert!(!knows(&format!(
            r#"{{"tls":{{{tls},"client_auth":"requested"}}}}"#
        )));
        assert!(knows(&format!(
            r#"{{"tls":{{{tls},"client_auth":"required"}}}}"#
        )));
        assert!(knows(r#"{"sasl":{"mechanisms":["SCRAM-SHA-512"]}}"#));
        // Whoever listens reads the password.
        let plain = r#""sasl":{"mechanisms":["SCRAM-SHA-512","PLAIN"]}"#;
        assert!(!knows(&format!("{{{plain}}}")));
        assert!(knows(&format!(r#"{{{plain},"tls":{{{tls}}}}}"#)));
    }

    #[test]
    fn a_stream_topic_is_compressed_as_its_stream_is() {
        let config: StreamsConfig = serde_json::from_str(
            r#"{"default_stream":{"compression":"lz4"},
                "streams":[{"path":"/s/a","compression":"zstd"},{"path":"/s/b"}]}"#,
        )
        .unwrap();
        for (name, expected) in [
            ("plain", Compression::Producer),
            ("/s/a:t", Compression::Zstd),
            ("/s/b:t", Compression::Producer),
            ("/s/c:t", Compression::Lz4),
        ] {
            let of = config.compression(&name.parse().unwrap());
            assert_eq!(of, expected, "{name}");
            assert_eq!(Compression::named(of.name()), Some(of));
        }
    }

    #[test]
    fn a_stream_topic_follows_its_streams_policy() {
        let config: StreamsConfig = serde_json::from_str(
            r#"{"auto_create_topics":false,
                "streams":[{"path":"/s/a","default_partitions":3,"autocreate":false}]}"#,
        )
        .unwrap();
        let of = |name: &str| config.creation_policy(&name.parse().unwrap());
        assert_eq!(
            of("plain"),
            CreationPolicy {
                autocreate: false,
                partitions: 1
            }
        );
        assert_eq!(
            of("/s/a:t"),
            CreationPolicy {
                autocreate: false,
                partitions: 3
            }
        );
        assert_eq!(of(".s.a..t"), of("/s/a:t"));
        assert_eq!(
            of("/s/b:t"),
            CreationPolicy {
                autocreate: true,
                partitions: 1
            }
        );
    }
}
