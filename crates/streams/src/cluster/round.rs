//! One round of the writers: what waits is enqueued whole, flushed once, and answered.
//!
//! Between its first record and its flush a round is held together by the producer's linger, and it
//! holds no more for one partition than one batch may. So each [`ProduceBatch`] becomes part of one
//! record batch of Kafka's: stored whole or not at all, its records at consecutive offsets.
//!
//! Batches of a single record need no holding together. A round takes as many of them for a partition
//! as it has room for, where its writer has a producer that cuts between them and keeps several
//! requests under way ([`Cut`]).

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;
use parking_lot::Mutex;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext, PurgeConfig,
};
use rdkafka::{ClientConfig, ClientContext, Message};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::calls::{self, Trouble};
use super::error::{self, About};
use crate::error::StreamsError;
use crate::event_store::{Placed, ProduceBatch};
use crate::limits::{CLUSTER_ROUND_BATCHES_MAX, CLUSTER_ROUND_BYTES_MAX};
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
    bytes: u64,
    by_partition: HashMap<(TopicName, i32), Share>,
    /// Some share is more than one record batch takes.
    has_cut: bool,
}

/// What a round holds for one partition.
#[derive(Clone, Copy, Default)]
struct Share {
    bytes: u64,
    /// Some batch of it has several records.
    has_several: bool,
}

/// Whether a round may hold more for a partition than one record batch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Never.
    Nowhere,
    /// Where every batch has a single record: there is no wrong place to cut.
    BetweenSingles,
}

/// What became of the records of the round under way; the producer's callbacks fill it in.
#[derive(Clone)]
pub(super) struct Deliveries {
    jobs: Arc<Mutex<Vec<Delivery>>>,
    trouble: Trouble,
}

#[derive(Clone, Default)]
struct Delivery {
    expected: usize,
    delivered: usize,
    base_offset: Option<i64>,
    is_torn: bool,
    failed: Option<Code>,
}

/// A producer whose deliveries are read round by round; a thread of its own runs the callbacks.
///
/// The wrapper's producer with a thread asks ten times a second, and spins for the last millisecond
/// of each time: half a percent of a core for each producer that does nothing.
pub(super) struct RoundProducer {
    producer: Arc<BaseProducer<Deliveries>>,
    is_over: Arc<AtomicBool>,
}

impl Round {
    /// Takes a job in, or gives it back when it has to wait for the next round.
    pub(super) fn take(&mut self, job: Job, partition_bytes_max: u64, cut: Cut) -> Option<Job> {
        let place = (job.batch.topic.clone(), job.batch.partition);
        let share = self.by_partition.entry(place).or_default();
        let bytes = share.bytes.saturating_add(job.bytes);
        let has_several = share.has_several || job.batch.records.len() > 1;
        let may_be_cut = cut == Cut::BetweenSingles && !has_several;
        let fits = self.jobs.len() < CLUSTER_ROUND_BATCHES_MAX
            && self.bytes.saturating_add(job.bytes) <= CLUSTER_ROUND_BYTES_MAX
            && (bytes <= partition_bytes_max || may_be_cut);
        if !fits && !self.jobs.is_empty() {
            return Some(job);
        }
        *share = Share { bytes, has_several };
        self.has_cut |= bytes > partition_bytes_max;
        self.bytes += job.bytes;
        self.jobs.push(job);
        None
    }

    /// Whether what the round holds for this batch's partition does not go into one record batch.
    pub(super) fn is_cut(&self, batch: &ProduceBatch, partition_bytes_max: u64) -> bool {
        if !self.has_cut {
            return false;
        }
        let place = (batch.topic.clone(), batch.partition);
        let share = self.by_partition.get(&place);
        share.is_some_and(|share| share.bytes > partition_bytes_max && !share.has_several)
    }
}

impl RoundProducer {
    /// Makes the producer and starts its thread, which ends some time after the producer is dropped.
    pub(super) fn new(client: &ClientConfig, deliveries: Deliveries) -> Result<Self, KafkaError> {
        let producer = BaseProducer::from_config_and_context(client, deliveries)?;
        let producer = Arc::new(producer);
        let is_over = Arc::new(AtomicBool::new(false));
        let (polled, ends) = (producer.clone(), is_over.clone());
        let polls = move || {
            while !ends.load(Ordering::Acquire) {
                polled.poll(POLL);
            }
        };
        let started = std::thread::Builder::new().name("kafka-deliveries".to_owned());
        let started = started.spawn(polls).map_err(|error| {
            KafkaError::ClientCreation(format!("no thread for its deliveries: {error}"))
        });
        started.map(|_| RoundProducer { producer, is_over })
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
        let batches: Vec<_> = batches.iter().map(|batch| (producer, *batch)).collect();
        self.send_by(&[producer], &batches, now, timeout)
    }

    /// As [`Deliveries::send`], each batch by the producer beside it, one of `producers`.
    pub(super) fn send_by(
        &self,
        producers: &[&RoundProducer],
        batches: &[(&RoundProducer, &ProduceBatch)],
        now: UnixMillis,
        timeout: Duration,
    ) -> Result<Vec<Result<Placed, StreamsError>>, KafkaError> {
        let fresh = |(_, batch): &(&RoundProducer, &ProduceBatch)| Delivery {
            expected: batch.records.len(),
            ..Delivery::default()
        };
        *self.jobs.lock() = batches.iter().map(fresh).collect();
        for (index, (producer, batch)) in batches.iter().enumerate() {
            for (nth, record) in batch.records.iter().enumerate() {
                if let Err(error) = enqueue(producer, batch, record, (index, nth), now) {
                    let code = error::code_of(&error).unwrap_or(Code::Fail);
                    self.failed(index, code);
                }
            }
        }
        for producer in producers {
            flush(producer, timeout)?;
        }
        let jobs = std::mem::take(&mut *self.jobs.lock());
        let trouble = self.trouble.told();
        let outcomes: Vec<_> = jobs
            .into_iter()
            .zip(batches)
            .map(|(job, (_, batch))| job.outcome(batch, trouble.as_deref()))
            .collect();
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

/// Has everything that is enqueued sent now, linger or not, and waits until it is answered and the
/// callbacks have run.
///
/// The wrapper's own flush waits in steps of 100 ms; librdkafka's ends with the last answer, as long
/// as another thread runs the callbacks.
#[allow(unsafe_code)]
fn flush(producer: &RoundProducer, timeout: Duration) -> Result<(), KafkaError> {
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let client = producer.client().native_ptr();
    // SAFETY: the pointer is that of a producer which lives; the call takes nothing over.
    let outcome = unsafe { rdkafka::bindings::rd_kafka_flush(client, timeout_ms) };
    match outcome {
        rdkafka::bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        outcome => Err(KafkaError::Flush(outcome.into())),
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
        if self.is_torn {
            tracing::warn!(
                topic = batch.topic.display(),
                partition = batch.partition,
                "the cluster stored a batch in parts: offsets answered for it may be wrong"
            );
        }
        match self.base_offset {
            Some(base_offset) if self.delivered == self.expected => Ok(Placed {
                partition: batch.partition,
                base_offset,
            }),
            _ => Err(StreamsError::Unavailable(
                "the cluster did not say what became of the batch".to_owned(),
            )),
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
    type DeliveryOpaque = Box<(usize, usize)>;

    fn delivery(&self, result: &DeliveryResult<'_>, place: Self::DeliveryOpaque) {
        let (index, nth) = *place;
        let mut jobs = self.jobs.lock();
        let Some(job) = jobs.get_mut(index) else {
            return;
        };
        match result {
            Ok(message) => {
                job.delivered += 1;
                let base = message.offset() - i64::try_from(nth).unwrap_or(i64::MAX);
                let known = *job.base_offset.get_or_insert(base);
                job.is_torn |= known != base;
                if nth == 0 {
                    job.base_offset = Some(base);
                }
            }
            Err((error, _)) => {
                let code = error::code_of(error).unwrap_or(Code::Fail);
                job.failed.get_or_insert(code);
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

fn enqueue(
    producer: &RoundProducer,
    batch: &ProduceBatch,
    record: &Record,
    place: (usize, usize),
    now: UnixMillis,
) -> Result<(), KafkaError> {
    let mut sent = BaseRecord::with_opaque_to(batch.topic.wire_name(), Box::new(place))
        .partition(batch.partition)
        .timestamp(record.timestamp.unwrap_or(now).0);
    if let Some(key) = &record.key {
        sent = sent.key(&key[..]);
    }
    if let Some(value) = &record.value {
        sent = sent.payload(&value[..]);
    }
    if !record.headers.is_empty() {
        let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
        for (name, value) in &record.headers {
            headers = headers.insert(Header {
                key: name,
                value: value.as_deref(),
            });
        }
        sent = sent.headers(headers);
    }
    loop {
        match producer.send(sent) {
            Ok(()) => return Ok(()),
            Err((error, back)) if error::code_of(&error) == Some(Code::QueueFull) => {
                std::thread::sleep(QUEUE_WAIT);
                sent = back;
            }
            Err((error, _)) => return Err(error),
        }
    }
}

/// What a batch takes without records, in bytes.
const BATCH_OVERHEAD_BYTES: u64 = 61;

/// What a record takes beside key, value and headers, in bytes: lengths and deltas at their usual
/// sizes.
const RECORD_OVERHEAD_BYTES: usize = 12;

/// What a header takes beside name and value, in bytes.
const HEADER_OVERHEAD_BYTES: usize = 4;

/// How long to let librdkafka's queue drain before another try.
const QUEUE_WAIT: Duration = Duration::from_millis(10);
