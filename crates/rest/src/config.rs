//! What an operator may set for the REST proxy (the configuration's `rest` table).

use std::path::PathBuf;
use std::time::Duration;

use access::Principal;
use base::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};
use streams::{Isolation, Properties, TopicName, TopicNameError};

use crate::answer;
use crate::error::RestError;
use crate::limits;
use crate::properties;

/// The REST proxy's settings; every key has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RestConfig {
    /// Address and port to listen on; port 0 picks a free one.
    pub listen: String,
    /// Scheme, host and port written into a consumer instance's `base_uri`; without it the
    /// request's own `Host` header is used, which is right behind most load balancers.
    pub advertised: Option<String>,
    /// Where other proxies on the same Kafka cluster reach this one, as `host:port`; without it, by
    /// what it listens on.
    pub peer_address: Option<String>,
    /// File with the certificates of those who sign other proxies' certificates, where they speak
    /// TLS; without it, whom this machine believes.
    pub peer_ca: Option<PathBuf>,
    /// Whom the certificates of the other proxies name: they may speak for the callers whose calls
    /// they send on. Without any, whom this proxy's own certificate names.
    pub peer_names: Vec<Principal>,
    /// The most bytes of one request body; a larger one is answered 413.
    pub body_bytes_max: ByteSize,
    /// How long a read waits for its first record when the request has no `timeout`
    /// (kafka-rest's `consumer.request.timeout.ms`). An upper bound: data answers at once.
    pub consumer_request_timeout: HumanDuration,
    /// Whether a read waits until its time is over or `fetch.min.bytes` are there, as kafka-rest's
    /// reads do, instead of answering as soon as there is something.
    pub read_waits_for_timeout: bool,
    /// Which records reads and consumer instances are shown that do not say it themselves.
    pub isolation: Isolation,
    /// How long a consumer instance may be idle before it is closed
    /// (kafka-rest's `consumer.instance.timeout.ms`).
    pub consumer_instance_timeout: HumanDuration,
    /// The stream that topics without a path belong to (MapR's `streams.default.stream`): with
    /// `/streams/test` the topic `t` is `/streams/test:t`. Names that begin with two underscores
    /// stay as they are.
    pub default_stream: Option<String>,
    /// Settings by the names that MapR's and Confluent's proxies give them.
    pub properties: Properties,
    /// The most consumer instances at a time; creating more is answered 429.
    pub consumer_instances_max: usize,
    /// The most of one caller, or of all who do not log in; 0 is no bound.
    pub consumer_instances_max_per_caller: usize,
    /// How long a stream of records may be open, for ever when zero (kafka-rest's
    /// `streaming.connection.max.duration.ms`).
    pub streaming_connection_max_duration: HumanDuration,
    /// How long a stream of records may be silent, for ever when zero.
    pub streaming_connection_idle_timeout: HumanDuration,
    /// The port speaks TLS: whoever serves it says so, for the URLs in answers.
    #[serde(skip)]
    pub is_tls: bool,
    /// The port's own certificate and its key, which other proxies that ask for one are shown.
    #[serde(skip)]
    pub peer_identity: Option<(PathBuf, PathBuf)>,
    /// Whom that certificate names.
    #[serde(skip)]
    pub own_name: Option<Principal>,
}

impl Default for RestConfig {
    fn default() -> Self {
        RestConfig {
            listen: "127.0.0.1:8082".to_owned(),
            advertised: None,
            peer_address: None,
            peer_ca: None,
            peer_names: Vec::new(),
            body_bytes_max: ByteSize(limits::BODY_BYTES_MAX),
            consumer_request_timeout: HumanDuration(Duration::from_secs(1)),
            read_waits_for_timeout: false,
            isolation: Isolation::default(),
            consumer_instance_timeout: HumanDuration(Duration::from_secs(300)),
            default_stream: None,
            properties: Properties::default(),
            consumer_instances_max: limits::CONSUMER_INSTANCES_MAX,
            consumer_instances_max_per_caller: 0,
            streaming_connection_max_duration: HumanDuration(limits::STREAM_OPEN_MAX),
            streaming_connection_idle_timeout: HumanDuration(limits::STREAM_IDLE_MAX),
            is_tls: false,
            peer_identity: None,
            own_name: None,
        }
    }
}

impl RestConfig {
    /// The same with what its properties say, in the keys that they stand for.
    ///
    /// # Errors
    /// All that is wrong, one line each; the operator's fault.
    pub fn settled(self) -> Result<Self, Vec<String>> {
        properties::settled(self)
    }

    /// Who may speak for callers whose calls they send on.
    pub(crate) fn peers(&self) -> Vec<Principal> {
        match self.peer_names.is_empty() {
            true => self.own_name.iter().cloned().collect(),
            false => self.peer_names.clone(),
        }
    }

    /// A topic's name as a request writes it, which may leave the default stream out.
    pub(crate) fn name_of(&self, text: &str) -> Result<TopicName, TopicNameError> {
        let plain: TopicName = text.parse()?;
        match &self.default_stream {
            Some(stream) if plain.stream().is_none() && !text.starts_with("__") => {
                format!("{stream}:{text}").parse()
            }
            _ => Ok(plain),
        }
    }

    /// As [`RestConfig::name_of`] for a name in a path: one that no topic can have is a topic that is
    /// not there.
    pub(crate) fn topic_name(&self, text: &str) -> Result<TopicName, RestError> {
        self.name_of(text).map_err(|_| answer::no_topic(text))
    }

    /// A topic's name without the default stream, if it is in that.
    pub(crate) fn short<'n>(&self, name: &'n TopicName) -> Option<&'n str> {
        let stream = self.default_stream.as_deref()?;
        name.display().strip_prefix(stream)?.strip_prefix(':')
    }
}
