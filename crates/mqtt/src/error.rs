//! What can go wrong between the server and the code that embeds it.

use journal::JournalError;

use crate::topic::TopicError;

/// A failure of the server, in the words of whoever embeds it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MqttError {
    /// A name or filter that MQTT does not allow; the caller's fault, not worth a retry.
    #[error("the topic is not valid")]
    Topic(#[source] TopicError),
    /// A subscriber's queue or the journal is full for the moment. Nothing was delivered: wait
    /// for [`Server::room`](crate::Server::room) and publish again.
    #[error("a subscriber is behind: wait for room and publish again")]
    Busy,
    /// The payload is larger than a packet may be; the caller's fault.
    #[error("a payload of {bytes} bytes is over the limit of {bytes_max} (mqtt.packet_bytes_max)")]
    TooLarge {
        /// Bytes of the packet that would be needed.
        bytes: usize,
        /// The configured limit.
        bytes_max: usize,
    },
    /// The configured number of retained messages or bytes is reached.
    #[error("no room for another retained message: raise mqtt.{key} or clear some")]
    RetainedFull {
        /// The configuration key of the bound that was met.
        key: &'static str,
    },
    /// The journal does not work; the server must be reopened on a disk that does.
    #[error("cannot {doing} the MQTT journal")]
    Journal {
        /// What the server was doing.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: JournalError,
    },
    /// The configuration contradicts itself.
    #[error("mqtt.{key} {problem}")]
    Config {
        /// The key at fault.
        key: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// The server was closed.
    #[error("the MQTT server is closed")]
    Closed,
}

impl From<TopicError> for MqttError {
    fn from(error: TopicError) -> Self {
        MqttError::Topic(error)
    }
}
