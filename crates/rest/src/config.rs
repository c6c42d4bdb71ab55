//! What an operator may set for the REST proxy (the configuration's `rest` table).

use std::time::Duration;

use base::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

use crate::limits;

/// The REST proxy's settings; every key has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RestConfig {
    /// Address and port to listen on; port 0 picks a free one.
    pub listen: String,
    /// Scheme, host and port written into a consumer instance's `base_uri`; without it the
    /// request's own `Host` header is used, which is right behind most load balancers.
    pub advertised: Option<String>,
    /// The most bytes of one request body; a larger one is answered 413.
    pub body_bytes_max: ByteSize,
    /// How long a read waits for its first record when the request has no `timeout`
    /// (kafka-rest's `consumer.request.timeout.ms`). An upper bound: data answers at once.
    pub consumer_request_timeout: HumanDuration,
    /// Whether a read waits until its time is over or `fetch.min.bytes` are there, as kafka-rest's
    /// reads do, instead of answering as soon as there is something.
    pub read_waits_for_timeout: bool,
    /// How long a consumer instance may be idle before it is closed
    /// (kafka-rest's `consumer.instance.timeout.ms`).
    pub consumer_instance_timeout: HumanDuration,
    /// The most consumer instances at a time; creating more is answered 429.
    pub consumer_instances_max: usize,
}

impl Default for RestConfig {
    fn default() -> Self {
        RestConfig {
            listen: "127.0.0.1:8082".to_owned(),
            advertised: None,
            body_bytes_max: ByteSize(limits::BODY_BYTES_MAX),
            consumer_request_timeout: HumanDuration(Duration::from_secs(1)),
            read_waits_for_timeout: false,
            consumer_instance_timeout: HumanDuration(Duration::from_secs(300)),
            consumer_instances_max: limits::CONSUMER_INSTANCES_MAX,
        }
    }
}
