//! Retained messages: the last one of each topic that asked for it, in memory and journaled.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use base::UnixMillis;
use journal::JournalError;

use crate::config::MqttConfig;
use crate::error::MqttError;
use crate::message::Message;
use crate::records::Change;
use crate::store::Store;
use crate::stored::Stored;
use crate::topic::TopicFilter;

/// The retained messages, in the order of their topics: a filter's literal front is a range.
pub(crate) struct RetainedMessages {
    by_topic: BTreeMap<Box<str>, Arc<Stored>>,
    /// Those that expire, in the order in which they do.
    expiring: BTreeSet<(UnixMillis, Box<str>)>,
    bytes: usize,
}

impl RetainedMessages {
    pub(crate) fn new(by_topic: BTreeMap<Box<str>, Arc<Stored>>) -> Self {
        let bytes = by_topic.values().map(|message| message.bytes()).sum();
        let expiring = by_topic
            .iter()
            .filter_map(|(topic, message)| Some((message.expires?, topic.clone())))
            .collect();
        RetainedMessages {
            by_topic,
            expiring,
            bytes,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_topic.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this is its topic's message still.
    pub(crate) fn is_current(&self, message: &Arc<Stored>) -> bool {
        let current = self.by_topic.get(&message.topic);
        current.is_some_and(|current| Arc::ptr_eq(current, message))
    }

    /// Stores the message for its topic; an empty payload clears the topic.
    ///
    /// # Errors
    /// [`MqttError::Busy`]: nothing changed, wait for room in the journal.
    pub(crate) fn set(
        &mut self,
        config: &MqttConfig,
        store: &Store,
        message: &Message<'_>,
    ) -> Result<(), MqttError> {
        let journal = |source| match source {
            JournalError::Busy => MqttError::Busy,
            source => MqttError::Journal {
                doing: "write",
                source,
            },
        };
        self.sweep(store, message.received);
        let old_bytes = self.by_topic.get(message.topic).map(|m| m.bytes());
        if message.payload.is_empty() {
            if old_bytes.is_some() {
                store
                    .put(Change::RetainedCleared(message.topic))
                    .map_err(journal)?;
                self.remove(message.topic);
            }
            return Ok(());
        }
        let stored = Stored::of(message);
        let bytes = self.bytes - old_bytes.unwrap_or(0) + stored.bytes();
        if bytes as u64 > config.retained_bytes_max.0 {
            return Err(MqttError::RetainedFull {
                key: "retained_bytes_max",
            });
        }
        if old_bytes.is_none() && self.by_topic.len() >= config.retained_messages_max {
            return Err(MqttError::RetainedFull {
                key: "retained_messages_max",
            });
        }
        store.put(Change::Retained(&stored)).map_err(journal)?;
        self.remove(message.topic);
        if let Some(expires) = stored.expires {
            self.expiring.insert((expires, message.topic.into()));
        }
        self.by_topic.insert(message.topic.into(), stored);
        self.bytes = bytes;
        Ok(())
    }

    /// The messages of the topics that a filter matches, in the order of their topics.
    pub(crate) fn matching(
        &mut self,
        store: &Store,
        filter: &TopicFilter,
        now: UnixMillis,
    ) -> Vec<Arc<Stored>> {
        self.sweep(store, now);
        if !filter.has_wildcard() {
            return self
                .by_topic
                .get(filter.as_str())
                .cloned()
                .into_iter()
                .collect();
        }
        let prefix = filter.literal_prefix();
        self.by_topic
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(topic, _)| topic.starts_with(prefix))
            .filter(|(topic, _)| filter.matches(topic))
            .map(|(_, message)| message.clone())
            .collect()
    }

    /// Forgets what has expired.
    fn sweep(&mut self, store: &Store, now: UnixMillis) {
        while let Some((at, topic)) = self.expiring.first() {
            if *at > now {
                return;
            }
            let topic = topic.clone();
            self.remove(&topic);
            if let Err(error) = store.put(Change::RetainedCleared(&topic)) {
                // It has expired after a restart as well.
                tracing::debug!(%error, "an expired retained message is not cleared in the journal");
            }
        }
    }

    fn remove(&mut self, topic: &str) {
        let Some(old) = self.by_topic.remove(topic) else {
            return;
        };
        self.bytes -= old.bytes();
        if let Some(expires) = old.expires {
            self.expiring.remove(&(expires, topic.into()));
        }
    }

    /// Puts a few messages behind `after` again; gives the last topic put, `None` at the end.
    #[allow(clippy::type_complexity)]
    pub(crate) fn put_again(
        &self,
        store: &Store,
        after: Option<&str>,
    ) -> Result<Option<Box<str>>, (Option<Box<str>>, JournalError)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        let range = self.by_topic.range::<str, _>((from, Bound::Unbounded));
        for (topic, message) in range.take(SNAPSHOT_STEP) {
            store
                .put_again(&[Change::Retained(message)])
                .map_err(|error| (last.clone(), error))?;
            last = Some(topic.clone());
        }
        Ok(last)
    }
}

/// Retained messages put again under one lock.
const SNAPSHOT_STEP: usize = 256;
