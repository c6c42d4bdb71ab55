//! The way out: what matches is put into the bridge's queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::bridge::Bridge;
use crate::bridge::config::BridgeTopic;
use crate::bridge::properties::{self, Way};
use crate::bridge::queue::{Offered, Parcel};
use crate::message::{Delivery, Message, MessageSink, Qos, Room};

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
        let (bridge, mut last) = (&self.bridge, None);
        let mut outcome = Delivery::Taken;
        let now = bridge.clock.now();
        for (taken, message) in batch.iter().enumerate() {
            let Some(parcel) = self.parcel(message) else {
                continue;
            };
            match bridge.queue.offer(now, &parcel) {
                Ok(Offered::Taken(wait)) => last = wait.or(last),
                Ok(Offered::Full) => {
                    outcome = Delivery::HoldBack { taken };
                    break;
                }
                Err(error) => {
                    // The disk does not take it: the others have it, so it is lost for this bridge.
                    tracing::error!(
                        bridge = bridge.config.name,
                        error = %base::report(&error),
                        "a message for a bridge is lost"
                    );
                    bridge.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        // What is acknowledged to its publisher has to be durable first; the journal's order makes
        // the last wait that of all. The runtime gives this thread's other tasks to another one.
        let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
        if let (Some(wait), Ok(RuntimeFlavor::MultiThread)) = (last, flavor)
            && let Err(error) = tokio::task::block_in_place(|| wait.wait_blocking())
        {
            let error = base::report(&error);
            tracing::error!(bridge = bridge.config.name, %error, "a bridge's journal failed");
        }
        outcome
    }

    fn room(&self) -> Room<'_> {
        Box::pin(async {
            let queue = &self.bridge.queue;
            let told = queue.room.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if queue.has_room() {
                return;
            }
            // The grace time may end while nothing goes.
            let _ = tokio::time::timeout(ASK_AGAIN, told).await;
        })
    }
}

/// How often a publisher that is held back asks whether its grace time is over.
pub(super) const ASK_AGAIN: std::time::Duration = std::time::Duration::from_millis(250);
