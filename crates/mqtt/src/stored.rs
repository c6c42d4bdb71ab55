//! A message that the server owns: retained, queued, or a will.

use std::sync::Arc;

use base::UnixMillis;

use crate::codec::Properties;
use crate::message::{Message, Qos};

/// A message that the server owns.
#[derive(Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) topic: Box<str>,
    pub(crate) payload: Box<[u8]>,
    pub(crate) qos: Qos,
    pub(crate) received: UnixMillis,
    pub(crate) expires: Option<UnixMillis>,
    /// The properties that travel with it, as they came.
    pub(crate) properties: Box<[u8]>,
}

impl Stored {
    pub(crate) fn of(message: &Message<'_>) -> Arc<Stored> {
        let mut properties = Vec::new();
        for raw in message.properties.travelling() {
            properties.extend_from_slice(raw);
        }
        Arc::new(Stored {
            topic: message.topic.into(),
            payload: message.payload.into(),
            qos: message.qos,
            received: message.received,
            expires: message.expires,
            properties: properties.into(),
        })
    }

    /// The message as subscribers see it.
    pub(crate) fn message(&self, retain: bool) -> Message<'_> {
        Message {
            topic: &self.topic,
            payload: &self.payload,
            qos: self.qos,
            retain,
            retain_asked: false,
            received: self.received,
            expires: self.expires,
            properties: Properties::stored(&self.properties),
        }
    }

    /// Bytes that it counts for in queues.
    pub(crate) fn bytes(&self) -> usize {
        self.topic.len() + self.payload.len() + self.properties.len() + STORED_OVERHEAD_BYTES
    }
}

/// Bytes that a message in memory costs beside its topic, payload and properties, about.
const STORED_OVERHEAD_BYTES: usize = 80;
