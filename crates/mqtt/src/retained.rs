//! Retained messages: the last one of each topic that asked for it, in memory and journaled.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use journal::JournalError;

use crate::config::MqttConfig;
use crate::error::MqttError;
use crate::message::Message;
use crate::store::{Change, Store, Stored};
use crate::topic::TopicFilter;

/// The retained messages, in the order of their topics: a filter's literal front is a range.
pub(crate) struct RetainedMessages {
    by_topic: BTreeMap<Box<str>, Arc<Stored>>,
    bytes: usize,
}

impl RetainedMessages {
    pub(crate) fn new(by_topic: BTreeMap<Box<str>, Arc<Stored>>) -> Self {
        let bytes = by_topic.values().map(|message| message.bytes()).sum();
        RetainedMessages { by_topic, bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_topic.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
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
        let old_bytes = self.by_topic.get(message.topic).map(|m| m.bytes());
        if message.payload.is_empty() {
            if let Some(old_bytes) = old_bytes {
                store
                    .put(Change::RetainedCleared(message.topic))
                    .map_err(journal)?;
                self.by_topic.remove(message.topic);
                self.bytes -= old_bytes;
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
        self.by_topic.insert(message.topic.into(), stored);
        self.bytes = bytes;
        Ok(())
    }

    pub(crate) fn matching(&self, filter: &TopicFilter) -> Vec<Arc<Stored>> {
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
                .put(Change::Retained(message))
                .map_err(|error| (last.clone(), error))?;
            last = Some(topic.clone());
        }
        Ok(last)
    }
}

/// Retained messages put again under one lock.
const SNAPSHOT_STEP: usize = 256;
