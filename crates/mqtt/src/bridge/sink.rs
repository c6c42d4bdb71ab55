//! The way out: what matches is put into the bridge's queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::bridge::Bridge;
use crate::bridge::config::BridgeTopic;
use crate::bridge::properties::{self, Way};
use crate::bridge::queue::{Offered, Parcel};
use crate::message::{Delivery, Message, MessageSink, Qos, Room, Settled};

/// Takes the messages of one topic of a bridge.
pub(super) struct Outlet {
    bridge: Arc<Bridge>,
    topic: BridgeTopic,
    qos: Qos,
}

impl Outlet {
    pub(super) fn new(bridge: Arc<Bridge>, topic: BridgeTopic) -> Self {
        let qos = match topic.qos {
            0 => Qos::AtMostOnce,
            _ => Qos::AtLeastOnce,
        };
        Outlet { bridge, topic, qos }
    }

    /// The message as it goes; none when it came by this bridge, or has no topic there.
    fn parcel(&self, message: &Message<'_>) -> Option<Parcel> {
        let bridge = &self.bridge;
        match properties::way_out(&message.properties, &bridge.id, &bridge.config.name) {
            Way::Free => {}
            Way::Back => return None,
            Way::Loop => {
                bridge.looped.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        let Some(topic) = self.topic.to_remote(message.topic) else {
            bridge.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        Some(Parcel {
            qos: message.qos.min(self.qos),
            retain: message.retain || message.retain_asked,
            expires: message.expires,
            topic,
            properties: Bytes::copy_from_slice(message.properties.bytes()),
            payload: Bytes::copy_from_slice(message.payload),
        })
    }
}

impl MessageSink for Outlet {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        let (bridge, now) = (&self.bridge, self.bridge.clock.now());
        for (taken, message) in batch.iter().enumerate() {
            let Some(parcel) = self.parcel(message) else {
                continue;
            };
            let error = match bridge.queue.offer(now, &parcel) {
                Ok(Offered::Taken(_)) => continue,
                Ok(Offered::Full) => return Delivery::HoldBack { taken },
                Err(error) => error,
            };
            let (held, has_failed) = (bridge.queue.hold(now), bridge.queue.is_poisoned());
            if held.is_new {
                let what = match has_failed {
                    true => "a bridge's journal has failed: what would go out is dropped",
                    false => "a bridge's journal takes no messages; their publishers are held back",
                };
                let error = base::report(&error);
                tracing::error!(bridge = bridge.config.name, error, "{what}");
            }
            // On a full disk what is acknowledged has to be there, so its publisher waits. One that has
            // failed nobody can wait for.
            let may_drop = has_failed || held.is_over && parcel.qos == Qos::AtMostOnce;
            if !may_drop {
                return Delivery::HoldBack { taken };
            }
            bridge.queue.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Delivery::Taken
    }

    fn room(&self) -> Room<'_> {
        Box::pin(self.bridge.queue.wait_for_room())
    }

    fn settled(&self) -> Option<Settled> {
        self.bridge.queue.settled()
    }
}
