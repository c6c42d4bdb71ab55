//! One round of the writers: what waits is enqueued whole, flushed once, and answered.
//!
//! Between its first record and its flush a round is held together by the producer's linger, and it
//! holds no more for one partition than one batch may. So each [`ProduceBatch`] becomes part of one
//! record batch of Kafka's: stored whole or not at all, its records at consecutive offsets. A producer
//! that does not know a topic yet asks for it first: what it takes before it knows the partitions it
//! would spread later, record by record, while the flush sends.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::UnixMillis;
use bytes::Bytes;
use parking_lot::Mutex;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer, ProducerContext, PurgeConfig};
use rdkafka::{ClientConfig, ClientContext, Message};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::calls::{self, Trouble};
use super::config::FLUSH_GRACE;
use super::enqueue::{Lent, enqueue, flush};
use super::error::{self, About};
use crate::error::StreamsError;
use crate::event_store::{Placed, ProduceBatch};
use crate::limits::{CLUSTER_ROUND_BATCHES_MAX, CLUSTER_ROUND_BYTES_MAX, CLUSTER_TOPICS_KNOWN_MAX};
use crate::record::Record;
use crate::topic::TopicName;

/// A batch that waits to be sent, and who waits for it.
pub(super) struct Job {
    pub(super) batch: ProduceBatch,
    /// About what it takes on the wire.
    pub(super) bytes: u64,
    pub(super) answer: oneshot::Sender<Result<Placed, StreamsError>>,
    /// Its room among what waits; given back with the job.
    pub(super) room: OwnedSemaphorePermit,
}

/// Jobs that go together.
#[derive(Default)]
pub(super) struct Round {
    pub(super) jobs: Vec<Job>,
    pub(super) bytes: u64,
    by_partition: HashMap<(TopicName, i32), Share>,
}

/// What a round holds for one partition.
#[derive(Clone, Copy, Default)]
struct Share {
    bytes: u64,
    /// Something has to wait for the next round, so what comes behind it does too.
    is_full: bool,
}

/// What became of the records of the round under way; the producer's callbacks fill it in.
#[derive(Clone)]
pub(super) struct Deliveries {
    jobs: Arc<Mutex<Vec<Delivery>>>,
    trouble: Trouble,
}

/// What became of a batch. Of those of its records that were stored only the first and the last
/// count: the answers to all of them are there when the flush ends.
#[derive(Clone, Debug, Default)]
struct Delivery {
    first_offset: Option<i64>,
    last_offset: Option<i64>,
    failed: Option<Code>,
}

/// Where a record stands, as its delivery tells it again: which batch of the round, and whether it is
/// the first or the last of it.
struct Place {
    index: usize,
    is_first: bool,
    is_last: bool,
}

/// A producer whose deliveries are read round by round; a thread of its own runs the callbacks.
///
/// The wrapper's producer with a thread asks ten times a second, and spins for the last millisecond
/// of each time: half a percent of a core for each producer that does nothing.
///
/// Its own thread and this each hold the producer and, to be dropped behind it, what was lent to it:
/// so that outlives the producer, whoever of the two is the last.
pub(super) struct RoundProducer {
    producer: Arc<BaseProducer<Deliveries>>,
    lent: Lent,
    is_over: Arc<AtomicBool>,
    /// Topics whose partitions it knows.
    known: Mutex<HashSet<TopicName>>,
}

impl Round {
    /// Takes a job in, or gives it back when it has to wait for another round: where its partition's
    /// share is full, or the round is.
    pub(super) fn take(&mut self, job: Job, partition_bytes_max: u64) -> Option<Job> {
        let place = (job.batch.topic.clone(), job.batch.partition);
        let share = self.by_partition.entry(place).or_default();
        let bytes = share.bytes.saturating_add(job.bytes);
        let fits = self.jobs.len() < CLUSTER_ROUND_BATCHES_MAX
            && self.bytes.saturating_add(job.bytes) <= CLUSTER_ROUND_BYTES_MAX
            && bytes <= partition_bytes_max
            && !share.is_full;
        if !fits && !self.jobs.is_empty() {
            share.is_full = true;
            return Some(job);
        }
        share.bytes = bytes;
        self.bytes += job.bytes;
        self.jobs.push(job);
        None
    }
}

impl RoundProducer {
    /// Makes the producer and starts its thread, which ends some time after the producer is dropped.
    pub(super) fn new(client: &ClientConfig, deliveries: Deliveries) -> Result<Self, KafkaError> {
        let producer = BaseProducer::from_config_and_context(client, deliveries)?;
        let producer = Arc::new(producer);
        let is_over = Arc::new(AtomicBool::new(false));
        let lent = Lent::default();
        let (polled, ends, held) = (producer.clone(), is_over.clone(), lent.clone());
        let polls = move || {
            // A panic drops what is declared last first, and the end does too.
            let held = held;
            let polled = polled;
            while !ends.load(Ordering::Acquire) {
                polled.poll(POLL);
            }
            drop(polled);
            drop(held);
        };
        let started = std::thread::Builder::new().name("kafka-deliveries".to_owned());
        let started = started.spawn(polls).map_err(|error| {
            KafkaError::ClientCreation(format!("no thread for its deliveries: {error}"))
        });
        started.map(|_| RoundProducer {
            producer,
            lent,
            is_over,
            known: Mutex::default(),
        })
    }

    /// What was lent to it.
    pub(super) fn lent(&self) -> &Lent {
        &self.lent
    }

    /// Has the producer know the partitions of the batches' topics, and asks the cluster for those of
    /// topics that it does not know; answers why not, by topic.
    fn know<'b>(
        &self,
        batches: &[&'b ProduceBatch],
        timeout: Duration,
    ) -> HashMap<&'b TopicName, Code> {
        let began = Instant::now();
        let mut unknown = HashMap::new();
        for &batch in batches {
            let topic = &batch.topic;
            if unknown.contains_key(topic) || self.known.lock().contains(topic) {
                continue;
            }
            let asked = self.ask_for(topic, began + timeout, began + NEW_TOPIC_WAIT);
            if let Err(error) = asked {
                unknown.insert(topic, error::code_of(&error).unwrap_or(Code::Fail));
                continue;
            }
            let mut known = self.known.lock();
            if known.len() >= CLUSTER_TOPICS_KNOWN_MAX {
                known.clear();
            }
            known.insert(topic.clone());
        }
        unknown
    }

    /// Asks the cluster for a topic: until it answers, and for a young topic until it knows it.
    fn ask_for(
        &self,
        topic: &TopicName,
        until: Instant,
        known_until: Instant,
    ) -> Result<(), KafkaError> {
        loop {
            let timeout = until.saturating_duration_since(Instant::now());
            let told = self
                .client()
                .fetch_metadata(Some(topic.wire_name()), timeout)?;
            let error = match told.topics().first() {
                Some(found) => found.error().map(Code::from),
                None => Some(Code::UnknownTopicOrPartition),
            };
            match error {
                None => return Ok(()),
                // It may be young, so that not every broker knows of it yet.
                Some(Code::UnknownTopicOrPartition | Code::LeaderNotAvailable)
                    if Instant::now() < known_until =>
                {
                    std::thread::sleep(NEW_TOPIC_PAUSE);
                }
                Some(code) => return Err(KafkaError::MetadataFetch(code)),
            }
        }
    }

    /// Has a topic asked for before it is written to again.
    fn forget(&self, topic: &TopicName) {
        self.known.lock().remove(topic);
    }
}

impl Deref for RoundProducer {
    type Target = BaseProducer<Deliveries>;

    fn deref(&self) -> &Self::Target {
        &self.producer
    }
}

impl Drop for RoundProducer {
    /// What it has not sent goes nowhere any more.
    fn drop(&mut self) {
        self.producer
            .purge(PurgeConfig::default().queue().inflight());
        self.is_over.store(true, Ordering::Release);
    }
}

impl Deliveries {
    pub(super) fn new(trouble: Trouble) -> Self {
        let jobs = Arc::default();
        Deliveries { jobs, trouble }
    }

    /// Sends the batches and waits for them; answers each one's outcome, in their order.
    pub(super) fn send(
        &self,
        producer: &RoundProducer,
        batches: &[&ProduceBatch],
        now: UnixMillis,
        timeout: Duration,
    ) -> Result<Vec<Result<Placed, StreamsError>>, KafkaError> {
        // Before anything is enqueued, since it may take a while.
        let unknown = producer.know(batches, timeout.saturating_sub(FLUSH_GRACE));
        *self.jobs.lock() = vec![Delivery::default(); batches.len()];
        for (index, batch) in batches.iter().enumerate() {
            if let Some(code) = unknown.get(&batch.topic) {
                self.failed(index, *code);
                continue;
            }
            let last = batch.records.len().saturating_sub(1);
            let place_of = |nth: usize| {
                Place {
                    index,
                    is_first: nth == 0,
                    is_last: nth == last,
                }
                .packed()
            };
            if let Err(error) = enqueue(producer, batch, place_of, now) {
                self.failed(index, error::code_of(&error).unwrap_or(Code::Fail));
            }
        }
        flush(producer, timeout)?;
        let jobs = std::mem::take(&mut *self.jobs.lock());
        let trouble = self.trouble.told();
        let outcomes: Vec<_> = jobs
            .into_iter()
            .zip(batches)
            .map(|(job, batch)| job.outcome(batch, trouble.as_deref()))
            .collect();
        for (outcome, batch) in outcomes.iter().zip(batches) {
            if let Err(StreamsError::UnknownTopic(_) | StreamsError::UnknownPartition { .. }) =
                outcome
            {
                producer.forget(&batch.topic);
            }
        }
        if outcomes.iter().any(Result::is_ok) {
            self.trouble.clear();
        }
        Ok(outcomes)
    }

    fn failed(&self, index: usize, code: Code) {
        if let Some(job) = self.jobs.lock().get_mut(index) {
            job.failed.get_or_insert(code);
        }
    }
}

impl Delivery {
    fn outcome(self, batch: &ProduceBatch, trouble: Option<&str>) -> Result<Placed, StreamsError> {
        if let Some(code) = self.failed {
            return Err(match code {
                Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => {
                    let bytes = batch_bytes(&batch.records);
                    StreamsError::MessageTooLarge {
                        bytes,
                        // The topic's own bound, which lies below that.
                        max: bytes.saturating_sub(1),
                    }
                }
                code => error::of_code(
                    code,
                    About::Partition(&batch.topic, batch.partition),
                    trouble,
                ),
            });
        }
        let (Some(first), Some(last)) = (self.first_offset, self.last_offset) else {
            return Err(StreamsError::Unavailable(
                "the cluster did not say what became of the batch".to_owned(),
            ));
        };
        let count = i64::try_from(batch.records.len()).unwrap_or(i64::MAX);
        if last.saturating_sub(first) != count - 1 {
            tracing::warn!(
                topic = batch.topic.display(),
                partition = batch.partition,
                "the cluster stored a batch in parts: offsets answered for it may be wrong"
            );
        }
        Ok(Placed {
            partition: batch.partition,
            base_offset: first,
        })
    }
}

impl Place {
    /// As the number that librdkafka carries along.
    fn packed(&self) -> usize {
        self.index << 2 | usize::from(self.is_first) << 1 | usize::from(self.is_last)
    }

    fn unpacked(packed: usize) -> Place {
        Place {
            index: packed >> 2,
            is_first: packed & 2 != 0,
            is_last: packed & 1 != 0,
        }
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        calls::log(level, facility, message);
    }

    fn error(&self, _: KafkaError, reason: &str) {
        self.trouble.note(reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, packed: usize) {
        let place = Place::unpacked(packed);
        match result {
            Ok(message) if place.is_first || place.is_last => {
                if let Some(job) = self.jobs.lock().get_mut(place.index) {
                    let offset = Some(message.offset());
                    if place.is_first {
                        job.first_offset = offset;
                    }
                    if place.is_last {
                        job.last_offset = offset;
                    }
                }
            }
            Ok(_) => {}
            Err((error, _)) => {
                self.failed(place.index, error::code_of(error).unwrap_or(Code::Fail));
            }
        }
    }
}

/// About what records take in a batch on the wire, uncompressed.
pub(super) fn batch_bytes(records: &[Record]) -> u64 {
    let part = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    let record = |record: &Record| {
        let headers = record.headers.iter();
        let headers: usize = headers
            .map(|(name, value)| name.len() + part(value) + HEADER_OVERHEAD_BYTES)
            .sum();
        (part(&record.key) + part(&record.value) + headers + RECORD_OVERHEAD_BYTES) as u64
    };
    BATCH_OVERHEAD_BYTES + records.iter().map(record).sum::<u64>()
}

/// How long the thread of a producer waits for callbacks before it looks whether it is over.
const POLL: Duration = Duration::from_secs(1);

/// How long a topic that a broker does not know is asked for, and how often: brokers learn of new
/// ones within moments.
const NEW_TOPIC_WAIT: Duration = Duration::from_secs(1);
const NEW_TOPIC_PAUSE: Duration = Duration::from_millis(50);

/// What a batch takes without records, in bytes.
const BATCH_OVERHEAD_BYTES: u64 = 61;

/// What a record takes beside key, value and headers, in bytes: lengths and deltas at their usual
/// sizes.
const RECORD_OVERHEAD_BYTES: usize = 12;

/// What a header takes beside name and value, in bytes.
const HEADER_OVERHEAD_BYTES: usize = 4;
