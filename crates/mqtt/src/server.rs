//! The server as the process sees it: open, serve, subscribe, publish, close.

use std::path::Path;
use std::sync::Arc;

use base::Clock;
use journal::{Disk, RealDisk};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::accept;
use crate::codec::publish_bytes;
use crate::config::MqttConfig;
use crate::core::Core;
use crate::door::Door;
use crate::error::MqttError;
use crate::gate::{Gate, OpenGate};
use crate::message::{Message, MessageSink, Qos, RetainedMessage};
use crate::stats::{ClientStats, ServerStats};
use crate::store::Store;
use crate::topic::{TopicFilter, TopicName, check_name};
use crate::upkeep;

/// The MQTT server; clones are the same server.
#[derive(Clone)]
pub struct Server {
    core: Arc<Core>,
}

/// Names an in-process subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubscriptionId(u64);

impl Server {
    /// Opens the server on its folder: retained messages and persistent sessions are there again.
    ///
    /// Call it within a tokio runtime, or call [`Server::serve`] before the first publish that
    /// has to reach a sink indirectly.
    ///
    /// # Errors
    /// [`MqttError::Config`] for settings that cannot work, [`MqttError::Journal`] when the
    /// folder cannot be read, is damaged or is in use by another process.
    pub fn open(
        dir: &Path,
        config: MqttConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Server, MqttError> {
        Server::open_on(Arc::new(RealDisk), dir, config, clock, Arc::new(OpenGate))
    }

    /// As [`Server::open`], with a gate that decides about clients.
    ///
    /// # Errors
    /// As [`Server::open`].
    pub fn open_guarded(
        dir: &Path,
        config: MqttConfig,
        clock: Arc<dyn Clock>,
        gate: Arc<dyn Gate>,
    ) -> Result<Server, MqttError> {
        Server::open_on(Arc::new(RealDisk), dir, config, clock, gate)
    }

    /// As [`Server::open_guarded`], on a disk of the caller's choice.
    ///
    /// # Errors
    /// As [`Server::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: MqttConfig,
        clock: Arc<dyn Clock>,
        gate: Arc<dyn Gate>,
    ) -> Result<Server, MqttError> {
        config.check()?;
        let (store, recovered) = Store::open(disk, dir, &config)?;
        Ok(Server {
            core: Arc::new(Core::new(config, clock, gate, store, recovered)),
        })
    }

    /// Serves clients on `listener` that speak MQTT over plain TCP, see [`Server::serve_behind`].
    pub async fn serve(&self, listener: TcpListener, shutdown: CancellationToken) {
        self.serve_behind(Door::default(), listener, shutdown).await;
    }

    /// Serves clients that come to `listener` through `door` until `shutdown` or
    /// [`Server::close`]; returns when the last of its links is closed. May be called for several
    /// listeners.
    pub async fn serve_behind(
        &self,
        door: Door,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) {
        let core = &self.core;
        core.note_runtime();
        if core.claim_upkeep() {
            tokio::spawn(upkeep::run(core.clone()));
        }
        accept::serve(core, door, listener, shutdown).await;
    }

    /// Resolves when the server is closed.
    pub async fn closed(&self) {
        self.core.closed.cancelled().await;
    }

    /// Adds an in-process subscriber. It gets the retained messages that match (with
    /// [`Message::retain`] set, from another task) and every message that flows from now on. One
    /// sink under several subscriptions gets a message once for each that matches.
    pub fn subscribe(&self, filter: TopicFilter, sink: Arc<dyn MessageSink>) -> SubscriptionId {
        SubscriptionId(self.core.subscribe_sink(filter, sink))
    }

    /// Removes an in-process subscriber. A call that is under way ends as it would; a publisher
    /// that it holds back is released. Unknown ids are ignored.
    pub fn unsubscribe(&self, id: SubscriptionId) {
        self.core.unsubscribe_sink(id.0);
    }

    /// Publishes from within the process, to clients and sinks alike.
    ///
    /// # Errors
    /// [`MqttError::Busy`] when a subscriber is behind: nothing was delivered, wait for
    /// [`Server::room`] and publish again. [`MqttError::TooLarge`], [`MqttError::RetainedFull`]
    /// and [`MqttError::Closed`] will not pass by waiting.
    pub fn publish(
        &self,
        topic: &TopicName,
        payload: &[u8],
        qos: Qos,
        retain: bool,
    ) -> Result<(), MqttError> {
        let received = self.core.clock.now();
        let message = Message {
            topic: topic.as_str(),
            payload,
            qos,
            received,
            ..Message::default()
        };
        self.publish_message(&message, retain)
    }

    /// Resolves when a publish to `topic` that was [`MqttError::Busy`] is worth another try.
    pub async fn room(&self, topic: &TopicName) {
        self.core.room(topic.as_str()).await;
    }

    /// Publishes a message with all that MQTT 5.0 says of one, as [`Server::publish`] does.
    ///
    /// # Errors
    /// As [`Server::publish`], and [`MqttError::Topic`] for a topic that is no name.
    pub fn publish_message(&self, message: &Message<'_>, retain: bool) -> Result<(), MqttError> {
        check_name(message.topic)?;
        let properties = message.properties.bytes().len();
        let bytes = publish_bytes(message.topic.len(), message.payload.len(), properties);
        let bytes_max = usize::try_from(self.core.config.packet_bytes_max.0).unwrap_or(usize::MAX);
        if bytes > bytes_max {
            return Err(MqttError::TooLarge { bytes, bytes_max });
        }
        self.core.publish(message, retain)
    }

    /// What acknowledgements promise of what the server keeps.
    pub fn durability(&self) -> journal::Durability {
        self.core.store.need()
    }

    /// The most bytes that one packet may have.
    pub fn packet_bytes_max(&self) -> u64 {
        self.core.config.packet_bytes_max.0
    }

    /// Makes passes be asked again who may receive what; call it when they may answer otherwise.
    pub fn permissions_changed(&self) {
        self.core.permissions_changed();
    }

    /// The server's figures now.
    pub fn stats(&self) -> ServerStats {
        self.core.stats()
    }

    /// Whether a failed write or sync has stopped its journal until the server is opened again.
    pub fn is_poisoned(&self) -> bool {
        self.core.store.is_poisoned()
    }

    /// The retained messages of a filter, in the order of their topics, at most `count`.
    pub fn retained(&self, filter: &TopicFilter, count: usize) -> Vec<RetainedMessage> {
        self.core.retained_messages(filter, count)
    }

    /// Waits until all that was published so far and has to be kept has the configured durability,
    /// and is where sinks promise to bring it.
    ///
    /// # Errors
    /// [`MqttError::Journal`] when the journal does not work.
    pub async fn all_stored(&self) -> Result<(), MqttError> {
        let journal = |source| MqttError::Journal {
            doing: "write",
            source,
        };
        for settled in self.core.unsettled() {
            settled.await;
        }
        self.core.store.durable().await.map_err(journal)
    }

    /// The figures of every session, in the order of client ids.
    pub fn clients(&self) -> Vec<ClientStats> {
        let mut clients: Vec<_> = self.core.sessions().iter().map(|s| s.stats()).collect();
        clients.sort_by(|a, b| a.client_id.cmp(&b.client_id));
        clients
    }

    /// Ends a client's connection, which is told of an administrative action (0x98 in 5.0), and with
    /// `forget` its session too, with what waits for it. Nothing keeps the client from coming again.
    /// Says whether it was connected; none when there is no such session.
    ///
    /// # Errors
    /// [`MqttError::Journal`] when the end of the session cannot be kept.
    pub fn disconnect(&self, client_id: &str, forget: bool) -> Result<Option<bool>, MqttError> {
        let journal = |source| MqttError::Journal {
            doing: "write",
            source,
        };
        self.core.send_away(client_id, forget).map_err(journal)
    }

    /// Condenses the journal now: puts all that lives again and gives back what lies before.
    /// It happens by itself as the journal grows.
    ///
    /// # Errors
    /// [`MqttError::Journal`] when the journal does not work.
    pub async fn condense(&self) -> Result<(), MqttError> {
        let journal = |source| MqttError::Journal {
            doing: "condense",
            source,
        };
        self.core.snapshot().await.map(|_| ()).map_err(journal)
    }

    /// Closes every link, writes what is pending to the journal and closes it.
    pub async fn close(&self) {
        let core = self.core.clone();
        core.closed.cancel();
        let closed = tokio::task::spawn_blocking(move || core.store.close()).await;
        match closed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(error = %base::report(&error), "MQTT journal not closed cleanly");
            }
            Err(error) => tracing::error!(%error, "closing the MQTT journal failed"),
        }
    }
}

#[cfg(test)]
mod tests;
