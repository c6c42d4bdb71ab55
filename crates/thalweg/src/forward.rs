//! The event store as the fleet sees it: topics that take agents' messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use fleet::{Message, Topics, TopicsError};
use parking_lot::Mutex;
use streams::{EventStore, ProduceBatch, Record, StreamsError, TopicConfig, TopicName, TopicSpec};
use tokio::task::JoinSet;

/// Topics of an event store.
pub struct StoreTopics {
    store: Arc<dyn EventStore>,
    /// The topics that are there: at most the two of the configuration.
    known: Mutex<Vec<TopicName>>,
}

impl StoreTopics {
    /// Topics of this store.
    pub fn new(store: Arc<dyn EventStore>) -> StoreTopics {
        StoreTopics {
            store,
            known: Mutex::default(),
        }
    }

    /// How many partitions the topic has, which is made where it is not there.
    async fn partitions(&self, topic: &TopicName) -> Result<i32, StreamsError> {
        let is_known = self.known.lock().contains(topic);
        if !is_known {
            self.make(topic).await?;
            self.known.lock().push(topic.clone());
        }
        let found = self.store.partitions_or_create(topic).await;
        if found.is_err() {
            // It may have been deleted.
            self.known.lock().retain(|known| known != topic);
        }
        found
    }

    /// Makes the topic, unless it is there, with room for what agents send.
    async fn make(&self, topic: &TopicName) -> Result<(), StreamsError> {
        match self.store.topic(topic).await {
            Err(StreamsError::UnknownTopic(_)) => {}
            found => return found.map(|_| ()),
        }
        let spec = TopicSpec {
            config: TopicConfig::of([("max.message.bytes", MESSAGE_BYTES_MAX)])?,
            ..TopicSpec::of(topic.clone())
        };
        match self.store.create_topic(spec).await {
            // Another node was first.
            Ok(_) | Err(StreamsError::TopicExists(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Topics for StoreTopics {
    async fn store(&self, topic: &str, messages: Vec<Message>) -> Result<(), TopicsError> {
        let topic: TopicName = topic.parse().map_err(|error| refused(&error))?;
        let partitions = self.partitions(&topic).await.map_err(sorted)?;
        let mut by_partition: BTreeMap<i32, Vec<Record>> = BTreeMap::new();
        for message in messages {
            let partition = streams::partition_of_key(message.key.as_bytes(), partitions);
            let mut record = Record::of_value(message.value);
            record.key = Some(message.key.as_bytes().to_vec().into());
            record.timestamp = Some(message.at);
            by_partition.entry(partition).or_default().push(record);
        }
        // All at once: they share a round of the store.
        let mut storing = JoinSet::new();
        for (partition, records) in by_partition {
            let batch = ProduceBatch {
                topic: topic.clone(),
                partition,
                records,
                sequence: None,
            };
            let store = Arc::clone(&self.store);
            storing.spawn(async move { store.produce(batch).await });
        }
        // To the end even if one fails, so that what is tried again comes after what was stored.
        let mut outcome = Ok(());
        while let Some(stored) = storing.join_next().await {
            let stored = stored.map_err(|error| TopicsError::Later(base::report(&error)));
            outcome = outcome.and(stored.and_then(|stored| stored.map(drop).map_err(sorted)));
        }
        outcome
    }
}

/// Whether there is any point in trying again: everything but the message's size may change, by the
/// store itself or by whoever runs it.
fn sorted(error: StreamsError) -> TopicsError {
    match error {
        StreamsError::MessageTooLarge { .. } => refused(&error),
        error => TopicsError::Later(base::report(&error)),
    }
}

/// A description of an agent with all its components has up to 1.2 MB.
const MESSAGE_BYTES_MAX: &str = "8388608";

fn refused(error: &(dyn std::error::Error + 'static)) -> TopicsError {
    TopicsError::Never(base::report(error))
}
