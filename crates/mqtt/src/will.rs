//! Wills: what a client leaves to be published when its link ends without a goodbye.

use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use crate::codec;
use crate::core::Core;
use crate::error::MqttError;
use crate::message::Message;
use crate::stored::Stored;

/// A client's will.
#[derive(Clone, Debug)]
pub(crate) struct Will {
    message: Arc<Stored>,
    retain: bool,
    /// Seconds from the end of the link to its publishing.
    pub(crate) delay_s: u32,
    /// Its life, which begins when it is published.
    expiry_s: Option<u32>,
}

impl Will {
    pub(crate) fn of(will: &codec::Will<'_>, received: UnixMillis) -> Self {
        let message = Message {
            topic: will.topic,
            payload: will.payload,
            qos: will.qos,
            received,
            properties: will.properties,
            ..Message::default()
        };
        Will {
            message: Stored::of(&message),
            retain: will.retain,
            delay_s: will.delay_s,
            expiry_s: will.properties.message_expiry_s(),
        }
    }

    /// Publishes it; one that finds a subscriber behind waits as a publisher would.
    pub(crate) async fn publish(self, core: &Core) {
        let received = core.clock.now();
        let life = |s: u32| received + Duration::from_secs(u64::from(s));
        let message = Message {
            received,
            expires: self.expiry_s.map(life),
            ..self.message.message(false)
        };
        loop {
            match core.publish(&message, self.retain) {
                Ok(()) => return,
                Err(MqttError::Busy) => core.room(message.topic).await,
                Err(error) => {
                    let topic = message.topic;
                    tracing::warn!(topic, error = %base::report(&error), "will lost");
                    return;
                }
            }
        }
    }
}
