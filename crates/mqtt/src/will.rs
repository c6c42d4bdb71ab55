//! Wills: what a client leaves to be published when its link ends without a goodbye.
//!
//! A will is judged as a PUBLISH is, when its client leaves it and once more when it is published:
//! days may lie between, and a client that is away may lose the right to it.

use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use crate::codec;
use crate::core::Core;
use crate::error::MqttError;
use crate::gate::{Owner, Pass};
use crate::message::Message;
use crate::reason::ReasonCode;
use crate::stored::Stored;

/// A client's will.
#[derive(Clone, Debug)]
pub(crate) struct Will {
    client_id: Box<str>,
    owner: Owner,
    message: Arc<Stored>,
    retain: bool,
    /// Seconds from the end of the link to its publishing.
    pub(crate) delay_s: u32,
    /// Its life, which begins when it is published.
    expiry_s: Option<u32>,
}

impl Will {
    pub(crate) fn of(
        will: &codec::Will<'_>,
        received: UnixMillis,
        client_id: &str,
        owner: &Owner,
    ) -> Self {
        let message = Message {
            topic: will.topic,
            payload: will.payload,
            qos: will.qos,
            received,
            properties: will.properties,
            ..Message::default()
        };
        Will {
            client_id: client_id.into(),
            owner: owner.clone(),
            message: Stored::of(&message),
            retain: will.retain,
            delay_s: will.delay_s,
            expiry_s: will.properties.message_expiry_s(),
        }
    }

    /// Whether a client with this pass may have it published.
    pub(crate) fn judge(&self, pass: &dyn Pass) -> Result<(), ReasonCode> {
        let message = self.message.message(false);
        if message.topic.starts_with("$SYS") {
            return Err(ReasonCode::NotAuthorized);
        }
        let mut said = message.properties.user();
        match said.find_map(|(name, value)| pass.may_say(name, value).err()) {
            Some(refused) => Err(refused),
            None => pass.may_publish(message.topic, message.qos, self.retain),
        }
    }

    /// Publishes it; one that finds a subscriber behind waits as a publisher would.
    pub(crate) async fn publish(self, core: &Core) {
        let away = core.gate.away(&self.client_id, &self.owner);
        let received = core.clock.now();
        let life = |s: u32| received + Duration::from_secs(u64::from(s));
        let message = Message {
            received,
            expires: self.expiry_s.map(life),
            ..self.message.message(false)
        };
        let topic = message.topic;
        loop {
            if away
                .as_ref()
                .is_some_and(|pass| self.judge(&**pass).is_err())
            {
                core.counters.refused.add(1);
                tracing::debug!(
                    client = &*self.client_id,
                    topic,
                    "a will is not allowed any more"
                );
                return;
            }
            match core.publish(&message, self.retain) {
                Ok(()) => return,
                Err(MqttError::Busy) => core.room(topic).await,
                Err(error) => {
                    tracing::warn!(topic, error = %base::report(&error), "will lost");
                    return;
                }
            }
        }
    }
}
