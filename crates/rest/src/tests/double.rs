//! A store that does as another, and tells, fails and looks shared as a test likes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use streams::{
    Administration, BrokerSetting, ClusterInfo, CommittedOffset, ConfigChange, ConsumedRecord,
    Consumer, GroupInfo, Isolation, PartitionReplicas, Placed, SeekTo, StreamsError, TopicInfo,
};

use super::*;

/// The roll's topic.
pub(super) const ROLL: &str = "__rest_instances";

/// The store.
pub(super) struct Double {
    inner: Arc<dyn EventStore>,
    pub is_shared: bool,
    /// Writes to the roll fail.
    pub is_away: AtomicBool,
    /// Writes to the roll wait for who has this.
    pub held: Arc<tokio::sync::Mutex<()>>,
    /// Writes to the roll.
    pub roll_writes: AtomicUsize,
    /// What consumers were asked for at most, in bytes.
    pub polled: Arc<Mutex<Vec<usize>>>,
    /// Which records consumers are shown, each by its name, in the order in which they were made.
    pub shown: Mutex<Vec<(String, Isolation)>>,
}

impl Double {
    pub fn of(inner: Arc<dyn EventStore>, is_shared: bool) -> Arc<Double> {
        Arc::new(Double {
            inner,
            is_shared,
            is_away: AtomicBool::new(false),
            held: Arc::default(),
            roll_writes: AtomicUsize::new(0),
            polled: Arc::default(),
            shown: Mutex::default(),
        })
    }
}

struct Polled {
    inner: Box<dyn Consumer>,
    polled: Arc<Mutex<Vec<usize>>>,
}

#[async_trait]
impl Consumer for Polled {
    async fn subscribe(&mut self, topics: Vec<TopicName>) -> Result<(), StreamsError> {
        self.inner.subscribe(topics).await
    }

    async fn assign(&mut self, partitions: Vec<(TopicName, i32)>) -> Result<(), StreamsError> {
        self.inner.assign(partitions).await
    }

    fn assignment(&self) -> Vec<(TopicName, i32)> {
        self.inner.assignment()
    }

    async fn poll(
        &mut self,
        max_wait: Duration,
        max_bytes: usize,
    ) -> Result<Vec<ConsumedRecord>, StreamsError> {
        self.polled.lock().push(max_bytes);
        self.inner.poll(max_wait, max_bytes).await
    }

    async fn commit(
        &mut self,
        offsets: Option<Vec<(TopicName, i32, i64, String)>>,
    ) -> Result<Vec<(TopicName, i32, i64)>, StreamsError> {
        self.inner.commit(offsets).await
    }

    fn position(&self, topic: &TopicName, partition: i32) -> Option<i64> {
        self.inner.position(topic, partition)
    }

    fn is_at_end(&self, topic: &TopicName, partition: i32) -> bool {
        self.inner.is_at_end(topic, partition)
    }

    async fn seek(
        &mut self,
        topic: &TopicName,
        partition: i32,
        to: SeekTo,
    ) -> Result<(), StreamsError> {
        self.inner.seek(topic, partition, to).await
    }

    async fn close(self: Box<Self>) -> Result<(), StreamsError> {
        self.inner.close().await
    }
}

#[async_trait]
impl Administration for Double {
    async fn replicas(
        &self,
        topic: Option<&TopicName>,
    ) -> Result<BTreeMap<TopicName, Vec<PartitionReplicas>>, StreamsError> {
        self.inner.replicas(topic).await
    }

    async fn expect_settled(&self) -> Result<(), StreamsError> {
        self.inner.expect_settled().await
    }

    async fn broker_settings(
        &self,
        broker: Option<i32>,
    ) -> Result<Vec<BrokerSetting>, StreamsError> {
        self.inner.broker_settings(broker).await
    }

    async fn alter_broker(
        &self,
        broker: Option<i32>,
        changes: Vec<ConfigChange>,
        validate_only: bool,
    ) -> Result<(), StreamsError> {
        self.inner
            .alter_broker(broker, changes, validate_only)
            .await
    }
}

#[async_trait]
impl EventStore for Double {
    async fn cluster(&self) -> Result<ClusterInfo, StreamsError> {
        self.inner.cluster().await
    }

    async fn create_topic(&self, spec: TopicSpec) -> Result<TopicInfo, StreamsError> {
        self.inner.create_topic(spec).await
    }

    async fn create_partitions(&self, topic: &TopicName, count: i32) -> Result<(), StreamsError> {
        self.inner.create_partitions(topic, count).await
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<(), StreamsError> {
        self.inner.delete_topic(topic).await
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>, StreamsError> {
        self.inner.topics().await
    }

    async fn topic(&self, topic: &TopicName) -> Result<TopicInfo, StreamsError> {
        self.inner.topic(topic).await
    }

    async fn topic_or_create(&self, topic: &TopicName) -> Result<TopicInfo, StreamsError> {
        self.inner.topic_or_create(topic).await
    }

    async fn produce(&self, batch: ProduceBatch) -> Result<Placed, StreamsError> {
        if batch.topic.display() == ROLL {
            self.roll_writes.fetch_add(1, Ordering::SeqCst);
            drop(self.held.lock().await);
            if self.is_away.load(Ordering::SeqCst) {
                return Err(StreamsError::Unavailable("a test has it so".to_owned()));
            }
        }
        self.inner.produce(batch).await
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    async fn producer_id(&self) -> Result<i64, StreamsError> {
        self.inner.producer_id().await
    }

    async fn consumer(&self, config: ConsumerConfig) -> Result<Box<dyn Consumer>, StreamsError> {
        let shown = (config.client_id.clone(), config.isolation);
        self.shown.lock().push(shown);
        Ok(Box::new(Polled {
            inner: self.inner.consumer(config).await?,
            polled: Arc::clone(&self.polled),
        }))
    }

    async fn committed(
        &self,
        group: &str,
        partitions: &[(TopicName, i32)],
    ) -> Result<Vec<Option<CommittedOffset>>, StreamsError> {
        self.inner.committed(group, partitions).await
    }

    async fn groups(&self) -> Result<Vec<GroupInfo>, StreamsError> {
        self.inner.groups().await
    }

    async fn offset_for_time(
        &self,
        topic: &TopicName,
        partition: i32,
        at: UnixMillis,
    ) -> Result<Option<i64>, StreamsError> {
        self.inner.offset_for_time(topic, partition, at).await
    }
}
