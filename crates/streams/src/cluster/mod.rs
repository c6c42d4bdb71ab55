//! The event store in a Kafka cluster, by librdkafka.
//!
//! [`Cluster`] is to a cluster what [`crate::Streams`] is to a folder: behind [`EventStore`] the
//! other crates cannot tell which one they have. What a cluster does otherwise stands in
//! `docs/kafka-cluster.md`; what was chosen and why in `docs/decisions/`.
//!
//! Invariants: an acknowledgement leaves only after the cluster's own (of all in-sync replicas); a
//! numbered batch is stored once; no worker of the runtime waits for the cluster; what waits to be
//! written is bounded, and who would exceed the bound waits.
//!
//! Left out: quotas, users, ACLs and TLS of the cluster's own clients. Whom this process acts for is
//! judged before it comes here (`caller.rs`); the cluster knows this process alone.

mod administration;
mod alter;
mod calls;
mod config;
mod consumer;
#[cfg(test)]
mod consumer_tests;
mod enqueue;
mod error;
mod fenced;
mod groups;
mod keyed;
mod ledger;
mod memory;
mod once;
mod readers;
mod retention;
mod round;
mod settings;
#[cfg(test)]
mod tests;
mod topics;
mod waiting;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use access::Snapshot;
use async_trait::async_trait;
use base::{TenantId, UnixMillis};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use uuid::Uuid;

use self::calls::{Calls, Trouble};
use self::consumer::ClusterConsumer;
use self::error::About;
use self::fenced::ClusterWriter;
use self::keyed::{KeyedJob, KeyedWriter, Slots};
use self::once::OnceWriter;
use self::readers::Readers;
use self::round::{Job, batch_bytes};
use self::topics::Topics;
use self::waiting::Queue;
use self::writer::Writer;
use crate::config::StreamsConfig;
use crate::error::StreamsError;
use crate::event_store::{
    BrokerInfo, ClusterInfo, CommittedOffset, Consumer, ConsumerConfig, EventStore, GroupDetail,
    GroupInfo, HeldSetting, Placed, ProduceBatch, TopicInfo, TopicSpec,
};
use crate::fenced::FencedWriter;
use crate::limits::{CLUSTER_JOBS_MAX, CLUSTER_LANES_MAX, CLUSTER_PENDING_BYTES};
use crate::once::{ProduceOnce, StoredOnce};
use crate::topic::TopicName;
use crate::topic_config::ConfigChange;

pub use self::config::{ClusterConfig, Properties};
pub use self::retention::RetentionChange;

/// The event store in a Kafka cluster.
pub struct Cluster {
    calls: Calls,
    topics: Topics,
    batch_bytes_max: u64,
    /// Batches without a sequence.
    plain: Queue,
    /// Batches with one.
    numbered: Queue,
    room: Arc<Semaphore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    slots: Arc<Slots>,
    readers: Readers,
}

impl Cluster {
    /// Opens the event store that `config.kafka` names. `dir` keeps the name under which this
    /// installation writes transactions. Does not wait for the cluster, which may come later.
    ///
    /// # Errors
    /// `Refused` when librdkafka does not take the configuration, `Storage` when `dir` cannot be
    /// written; the operator's fault, no retry helps.
    pub fn open(dir: &Path, config: StreamsConfig) -> Result<Arc<Self>, StreamsError> {
        memory::keep_freed();
        let transactional_id = format!("thalweg.{}", installation(dir)?);
        let batch_bytes_max = config.max_message_bytes.0;
        let calls = Calls::new(config.kafka.clone(), Trouble::default())?;
        let topics = Topics::new(calls.clone(), Arc::new(config));
        let (plain, lanes) = waiting::queue(CLUSTER_LANES_MAX, IDLE);
        // Transactions follow each other.
        let (numbered, numbered_lanes) = waiting::queue(1, IDLE);
        let mut threads = Vec::new();
        for lane in lanes {
            let writer = Writer::new(calls.clone(), batch_bytes_max, lane);
            threads.push(thread("kafka-write", move || writer.run())?);
        }
        for lane in numbered_lanes {
            let id = transactional_id.clone();
            let once = OnceWriter::new(calls.clone(), batch_bytes_max, id, lane);
            threads.push(thread("kafka-write-once", move || once.run())?);
        }
        Ok(Arc::new(Cluster {
            calls,
            topics,
            batch_bytes_max,
            plain,
            numbered,
            room: Arc::new(Semaphore::new(CLUSTER_PENDING_BYTES)),
            threads: Mutex::new(threads),
            slots: Slots::new(),
            readers: Readers::default(),
        }))
    }

    /// The cluster as an event store.
    pub fn store(self: &Arc<Self>) -> Arc<dyn EventStore> {
        Arc::new(ClusterStore(Arc::clone(self)))
    }

    /// Asks the cluster for its id; an error says why it does not answer.
    pub async fn ping(&self) -> Result<usize, StreamsError> {
        let brokers = self.calls.blocking(About::Cluster, |asker, timeout| {
            use rdkafka::consumer::Consumer as _;
            let metadata = asker.fetch_metadata(Some(NO_TOPIC), timeout)?;
            Ok(metadata.brokers().len())
        });
        brokers.await
    }

    async fn info(&self) -> Result<ClusterInfo, StreamsError> {
        let info = self.calls.blocking(About::Cluster, |asker, timeout| {
            use rdkafka::consumer::Consumer as _;
            let metadata = asker.fetch_metadata(Some(NO_TOPIC), timeout)?;
            let mut brokers: Vec<BrokerInfo> = metadata
                .brokers()
                .iter()
                .map(|broker| BrokerInfo {
                    id: broker.id(),
                    address: u16::try_from(broker.port())
                        .ok()
                        .map(|port| (broker.host().to_owned(), port)),
                })
                .collect();
            brokers.sort_by_key(|broker| broker.id);
            Ok(ClusterInfo {
                id: asker.client().fetch_cluster_id(timeout).unwrap_or_default(),
                // The wrapper of librdkafka does not tell it.
                controller: None,
                brokers,
            })
        });
        info.await
    }

    /// Ends the writers after what waits is written.
    pub async fn close(&self) {
        self.plain.close();
        self.numbered.close();
        self.slots.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        let readers = self.readers.clone();
        let joined = tokio::task::spawn_blocking(move || {
            readers.close();
            for thread in threads {
                // A writer that panicked has said so; there is nothing left to wait for.
                let _ = thread.join();
            }
        });
        let _ = joined.await;
    }

    async fn produce(&self, batch: ProduceBatch) -> Result<Placed, StreamsError> {
        if batch.records.is_empty() {
            return Err(StreamsError::InvalidRecord("it has no records"));
        }
        if batch.topic.is_internal() {
            return Err(StreamsError::InternalTopic(batch.topic));
        }
        let bytes = batch_bytes(&batch.records);
        let max = self.batch_bytes_max;
        if bytes > max {
            return Err(StreamsError::MessageTooLarge { bytes, max });
        }
        self.topics.check(&batch.topic, batch.partition).await?;
        let room = self.room(bytes).await?;
        let queue = match batch.sequence {
            Some(_) => &self.numbered,
            None => &self.plain,
        };
        let (answer, answered) = oneshot::channel();
        let topic = batch.topic.clone();
        let job = Job {
            batch,
            bytes,
            answer,
            room,
        };
        queue.send(job)?;
        let outcome = answered.await.unwrap_or(Err(StreamsError::Closed));
        if let Err(StreamsError::UnknownTopic(_) | StreamsError::UnknownPartition { .. }) = outcome
        {
            self.topics.forget(&topic);
        }
        outcome
    }

    async fn produce_once(&self, asked: ProduceOnce) -> Result<StoredOnce, StreamsError> {
        crate::once::check(&asked)?;
        let max = self.batch_bytes_max;
        for batch in &asked.batches {
            if batch.topic.is_internal() {
                return Err(StreamsError::InternalTopic(batch.topic.clone()));
            }
            let bytes = batch_bytes(&batch.records);
            if bytes > max {
                return Err(StreamsError::MessageTooLarge { bytes, max });
            }
            self.topics.check(&batch.topic, batch.partition).await?;
        }
        self.slots.ready(&self.topics).await?;
        // A request larger than all room waits for all of it.
        let bytes = keyed::bytes_of(&asked).min(CLUSTER_PENDING_BYTES as u64);
        let room = self.room(bytes).await?;
        let (answer, answered) = oneshot::channel();
        let job = KeyedJob {
            asked,
            answer,
            room,
        };
        self.slots.send(job, |slot| {
            let (queue, jobs) = sync_channel(CLUSTER_JOBS_MAX);
            let writer = KeyedWriter::new(self.calls.clone(), max, slot);
            let started = thread("kafka-write-keyed", move || writer.run(jobs))?;
            self.threads.lock().push(started);
            Ok(queue)
        })?;
        answered.await.unwrap_or(Err(StreamsError::Closed))
    }

    /// Waits for room among what waits to be written.
    async fn room(&self, bytes: u64) -> Result<OwnedSemaphorePermit, StreamsError> {
        // Small ones take the room of a share each, so that their number is bounded too.
        let units = bytes.max((CLUSTER_PENDING_BYTES / CLUSTER_JOBS_MAX) as u64);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(units).await;
        room.map_err(|_| StreamsError::Closed)
    }
}

/// [`Cluster`] as an [`EventStore`].
struct ClusterStore(Arc<Cluster>);

#[async_trait]
impl EventStore for ClusterStore {
    async fn cluster(&self) -> Result<ClusterInfo, StreamsError> {
        self.0.info().await
    }

    async fn create_topic(&self, spec: TopicSpec) -> Result<TopicInfo, StreamsError> {
        self.0.topics.create(spec).await
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<(), StreamsError> {
        self.0.topics.delete(topic).await?;
        self.0.readers.forget(topic);
        Ok(())
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>, StreamsError> {
        self.0.topics.all().await
    }

    async fn topic_names(&self) -> Result<Vec<TopicName>, StreamsError> {
        let found = self.0.topics.partitions_of_all().await?;
        Ok(found.into_keys().collect())
    }

    async fn topic(&self, topic: &TopicName) -> Result<TopicInfo, StreamsError> {
        self.0.topics.info(topic).await
    }

    async fn topic_or_create(&self, topic: &TopicName) -> Result<TopicInfo, StreamsError> {
        self.0.topics.found_or_created(topic).await
    }

    async fn partitions(&self, topic: &TopicName) -> Result<i32, StreamsError> {
        self.0.topics.partitions(topic).await
    }

    async fn partitions_or_create(&self, topic: &TopicName) -> Result<i32, StreamsError> {
        self.0.topics.partitions_or_create(topic).await
    }

    async fn topic_settings(&self, topic: &TopicName) -> Result<Vec<HeldSetting>, StreamsError> {
        settings::of_topic(&self.0.calls, topic).await
    }

    async fn alter_topic(
        &self,
        topic: &TopicName,
        changes: Vec<ConfigChange>,
    ) -> Result<(), StreamsError> {
        // A call sets all settings that a topic has: two at once would take each other back.
        let _alone = self.0.topics.setting_changes().lock().await;
        let tenant_keeps = self.0.topics.tenant_keeps(topic);
        settings::alter(&self.0.calls, topic, &changes, tenant_keeps).await
    }

    async fn create_partitions(&self, topic: &TopicName, count: i32) -> Result<(), StreamsError> {
        self.0.topics.create_partitions(topic, count).await
    }

    async fn delete_records(
        &self,
        topic: &TopicName,
        partition: i32,
        offset: Option<i64>,
    ) -> Result<i64, StreamsError> {
        self.0.topics.delete_records(topic, partition, offset).await
    }

    async fn produce(&self, batch: ProduceBatch) -> Result<Placed, StreamsError> {
        self.0.produce(batch).await
    }

    async fn fenced_writer(&self, name: &str) -> Result<Box<dyn FencedWriter>, StreamsError> {
        let (calls, max) = (self.0.calls.clone(), self.0.batch_bytes_max);
        Ok(Box::new(ClusterWriter::take(calls, name, max).await?))
    }

    async fn produce_once(&self, asked: ProduceOnce) -> Result<StoredOnce, StreamsError> {
        self.0.produce_once(asked).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn producer_id(&self) -> Result<i64, StreamsError> {
        // The cluster gives its own ids only to its own clients. Of 2^62 numbers drawn at random
        // no two are ever the same.
        let (high, _) = Uuid::new_v4().as_u64_pair();
        Ok(i64::try_from(high >> 2).unwrap_or(i64::MAX))
    }

    async fn consumer(&self, config: ConsumerConfig) -> Result<Box<dyn Consumer>, StreamsError> {
        let (topics, calls) = (self.0.topics.clone(), self.0.calls.clone());
        let readers = self.0.readers.clone();
        let consumer = ClusterConsumer::new(topics, calls, config, readers).await?;
        Ok(Box::new(consumer))
    }

    async fn committed(
        &self,
        group: &str,
        partitions: &[(TopicName, i32)],
    ) -> Result<Vec<Option<CommittedOffset>>, StreamsError> {
        self.0.committed(group, partitions).await
    }

    async fn groups(&self) -> Result<Vec<GroupInfo>, StreamsError> {
        self.0.groups().await
    }

    async fn group(&self, group: &str) -> Result<Option<GroupDetail>, StreamsError> {
        self.0.group(group).await
    }

    async fn set_group_offsets(
        &self,
        group: &str,
        offsets: Vec<(TopicName, i32, i64)>,
    ) -> Result<(), StreamsError> {
        self.0.set_group_offsets(group, offsets).await
    }

    async fn delete_group(&self, group: &str) -> Result<(), StreamsError> {
        self.0.delete_group(group).await
    }

    async fn follow_retention(
        &self,
        snapshot: &Snapshot,
        tenant: &TenantId,
        change: RetentionChange,
    ) -> Result<(), StreamsError> {
        let topics = &self.0.topics;
        topics.follow_retention(snapshot, tenant, change).await
    }

    async fn offset_for_time(
        &self,
        topic: &TopicName,
        partition: i32,
        at: UnixMillis,
    ) -> Result<Option<i64>, StreamsError> {
        self.0.topics.offset_for_time(topic, partition, at).await
    }
}

fn thread(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StreamsError> {
    let named = std::thread::Builder::new().name(name.to_owned());
    named.spawn(work).map_err(storage)
}

/// The name of this installation, made at its first start and kept in its folder.
fn installation(dir: &Path) -> Result<Uuid, StreamsError> {
    let file = dir.join("installation");
    if let Ok(text) = std::fs::read_to_string(&file) {
        return text.trim().parse().map_err(|_| {
            StreamsError::Unreadable("the file 'installation' in the folder 'streams': no UUID")
        });
    }
    let id = Uuid::new_v4();
    std::fs::create_dir_all(dir).map_err(storage)?;
    let fresh = dir.join("installation.new");
    std::fs::write(&fresh, id.to_string()).map_err(storage)?;
    std::fs::File::open(&fresh)
        .and_then(|written| written.sync_all())
        .and_then(|()| std::fs::rename(&fresh, &file))
        .and_then(|()| std::fs::File::open(dir)?.sync_all())
        .map_err(storage)?;
    Ok(id)
}

fn storage(error: std::io::Error) -> StreamsError {
    StreamsError::Storage(Arc::new(error))
}

/// How long a writer has nothing to do before it rests, and how often the first takes up what its
/// clients complain of.
const IDLE: Duration = Duration::from_secs(30);

/// Asked for when only the brokers are of interest: nobody has it, and nobody creates it.
const NO_TOPIC: &str = "thalweg.no-such-topic";
