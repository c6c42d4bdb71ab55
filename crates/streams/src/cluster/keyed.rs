//! The threads that write records under keys ([`crate::once`]), each key's at most once over all
//! processes on the cluster.
//!
//! Keys are spread over slots. A slot is a partition of the topic of keys, and a transactional id
//! that all processes share: whoever writes by it fences the one before, so at any moment one
//! process may write to a slot, and what it has read of the slot stays true until it is fenced
//! itself. A round is one transaction: the records, and what became of their keys. After any
//! failure the slot is taken anew and read on before anything is tried again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use base::{Clock, Rng, SystemClock, UnixMillis};
use bytes::Bytes;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message;
use rdkafka::producer::Producer;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::calls::{Calls, Context};
use super::error::{self, About};
use super::fenced::{self, Introduced};
use super::round::batch_bytes;
use crate::error::StreamsError;
use crate::event_store::{Placed, ProduceBatch};
use crate::limits::{CLUSTER_ROUND_BATCHES_MAX, CLUSTER_ROUND_BYTES_MAX};
use crate::once::{self, KeyBook, Outcome, ProduceOnce, Run, StoredOnce};

/// Records under a key that wait to be written, and who waits for them.
pub(super) struct KeyedJob {
    pub(super) asked: ProduceOnce,
    pub(super) answer: oneshot::Sender<Result<StoredOnce, StreamsError>>,
    /// Its room among what waits; given back with the job.
    pub(super) room: OwnedSemaphorePermit,
}

/// The writer of one slot.
pub(super) struct KeyedWriter {
    calls: Calls,
    partition_bytes_max: u64,
    slot: i32,
    /// The slot is ours while there is one, or was until it notices.
    producer: Option<Introduced>,
    book: KeyBook,
    /// Where reading the slot goes on.
    read_until: Offset,
    rng: Rng,
}

type Answer = Result<StoredOnce, StreamsError>;

impl KeyedWriter {
    pub(super) fn new(calls: Calls, partition_bytes_max: u64, slot: i32) -> Self {
        KeyedWriter {
            calls,
            partition_bytes_max,
            slot,
            producer: None,
            book: KeyBook::default(),
            read_until: Offset::Beginning,
            rng: Rng::from_entropy(),
        }
    }

    /// Writes until nobody can send any more.
    pub(super) fn run(mut self, jobs: Receiver<KeyedJob>) {
        let mut left: Option<KeyedJob> = None;
        loop {
            let first = match left.take() {
                Some(job) => job,
                None => match jobs.recv() {
                    Ok(job) => job,
                    Err(_) => return,
                },
            };
            let (mut keys, mut bytes) = (HashSet::from([first.asked.key]), bytes_of(&first.asked));
            let mut round = vec![first];
            while round.len() < CLUSTER_ROUND_BATCHES_MAX && bytes < CLUSTER_ROUND_BYTES_MAX {
                let Ok(job) = jobs.try_recv() else { break };
                if !keys.insert(job.asked.key) {
                    // It waits for what becomes of its key in this round.
                    left = Some(job);
                    break;
                }
                bytes += bytes_of(&job.asked);
                round.push(job);
            }
            self.write(round);
        }
    }

    fn write(&mut self, jobs: Vec<KeyedJob>) {
        let asked: Vec<&ProduceOnce> = jobs.iter().map(|job| &job.asked).collect();
        let answers = match self.store(&asked) {
            Ok(answers) => answers,
            // One must not fail those that came with it.
            Err(_) if asked.len() > 1 => asked.iter().map(|one| self.store_alone(one)).collect(),
            Err(error) => vec![Err(error)],
        };
        for (job, answer) in jobs.into_iter().zip(answers) {
            // Who asked may have gone away; the key is remembered all the same.
            let _ = job.answer.send(answer);
            drop(job.room);
        }
    }

    fn store_alone(&mut self, asked: &ProduceOnce) -> Answer {
        let answers = self.store(&[asked])?;
        answers
            .into_iter()
            .next()
            .unwrap_or(Err(StreamsError::Closed))
    }

    /// Stores what is new of these, all or nothing; tries again when another process took the slot.
    fn store(&mut self, asked: &[&ProduceOnce]) -> Result<Vec<Answer>, StreamsError> {
        let mut tries = 1;
        loop {
            let error = match self.try_store(asked) {
                Ok(answers) => return Ok(answers),
                Err(error) => error,
            };
            // It may hold a transaction open, which the next one to take the slot ends.
            if let Some((producer, _)) = self.producer.take() {
                let timeout = self.calls.config().flush_timeout();
                if let Err(error) = producer.abort_transaction(timeout) {
                    tracing::debug!(%error, "a transaction was not aborted: its slot is taken anew");
                }
            }
            let is_final = matches!(
                error,
                StreamsError::MessageTooLarge { .. }
                    | StreamsError::UnknownTopic(_)
                    | StreamsError::UnknownPartition { .. }
                    | StreamsError::InvalidRecord(_)
                    | StreamsError::Denied(_)
            );
            if is_final || tries >= TRIES_MAX {
                tracing::warn!(
                    error = base::report(&error),
                    "records under keys were not stored"
                );
                return Err(error);
            }
            // Two processes that want one slot must not keep taking it from each other.
            let pause_ms = self.rng.below(50 * tries);
            std::thread::sleep(Duration::from_millis(pause_ms));
            tries += 1;
        }
    }

    fn try_store(&mut self, asked: &[&ProduceOnce]) -> Result<Vec<Answer>, StreamsError> {
        if self.producer.is_none() {
            self.take_slot()?;
        }
        let now = SystemClock.now();
        let mut answers: Vec<Option<Answer>> = Vec::with_capacity(asked.len());
        let mut fresh = Vec::new();
        for (index, &one) in asked.iter().enumerate() {
            match self.book.find(now, &one.key) {
                Some(outcome) => answers.push(Some(outcome.recalled(one))),
                None => {
                    fresh.push((index, one));
                    answers.push(None);
                }
            }
        }
        if !fresh.is_empty() {
            for ((index, one), outcome) in fresh.iter().zip(self.transact(&fresh)?) {
                answers[*index] = Some(Ok(outcome.stored()));
                self.book.insert(now, one.key, outcome);
            }
        }
        let answers = answers.into_iter();
        Ok(answers
            .map(|answer| answer.unwrap_or(Err(StreamsError::Closed)))
            .collect())
    }

    fn transact(&self, fresh: &[(usize, &ProduceOnce)]) -> Result<Vec<Outcome>, StreamsError> {
        let Some(held) = &self.producer else {
            return Err(StreamsError::Closed);
        };
        let producer = &held.0;
        let told = |error| self.told(&error);
        let timeout = self.calls.config().flush_timeout();
        producer.begin_transaction().map_err(told)?;
        let batches: Vec<&ProduceBatch> = fresh.iter().flat_map(|(_, one)| &one.batches).collect();
        let placed = self.send(held, &batches)?;
        let mut placed = batches.iter().zip(placed).map(|(batch, placed)| Run {
            partition: placed.partition,
            base_offset: placed.base_offset,
            count: u32::try_from(batch.records.len()).unwrap_or(u32::MAX),
        });
        let outcomes: Vec<Outcome> = fresh
            .iter()
            .map(|(_, one)| Outcome::of(one, placed.by_ref().take(one.batches.len()).collect()))
            .collect();
        let records = fresh.iter().zip(&outcomes);
        let told_of = ProduceBatch {
            topic: once::topic()?,
            partition: self.slot,
            records: records
                .map(|((_, one), outcome)| outcome.record(&one.key))
                .collect(),
            sequence: None,
        };
        self.send(held, &[&told_of])?;
        producer.commit_transaction(timeout).map_err(told)?;
        Ok(outcomes)
    }

    fn send(
        &self,
        held: &Introduced,
        batches: &[&ProduceBatch],
    ) -> Result<Vec<Placed>, StreamsError> {
        let timeout = self.calls.config().flush_timeout();
        let sent = fenced::send(held, batches, self.partition_bytes_max, timeout);
        let sent = sent.map_err(|error| self.told(&error))?;
        sent.into_iter().collect()
    }

    /// Fences whoever had the slot, and reads what it has written there.
    fn take_slot(&mut self) -> Result<(), StreamsError> {
        let id = format!("thalweg.keys.{}", self.slot);
        let taken = fenced::introduce(&self.calls, &id, self.partition_bytes_max);
        let producer = taken.map_err(|error| self.told(&error))?;
        self.read_on()?;
        self.producer = Some(producer);
        Ok(())
    }

    /// Takes in what was written to the slot since it was read last.
    fn read_on(&mut self) -> Result<(), StreamsError> {
        let (topic, timeout) = (once::topic()?, self.calls.config().call_timeout());
        let mut client = self.calls.config().client();
        client
            .set("group.id", "thalweg.none")
            .set("isolation.level", "read_committed")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .set("enable.partition.eof", "true");
        let context = Context {
            trouble: self.calls.trouble().clone(),
        };
        let reader: BaseConsumer<Context> = BaseConsumer::from_config_and_context(&client, context)
            .map_err(|error| self.told(&error))?;
        let mut list = TopicPartitionList::new();
        let added = list.add_partition_offset(topic.wire_name(), self.slot, self.read_until);
        added.map_err(|error| self.told(&error))?;
        reader.assign(&list).map_err(|error| self.told(&error))?;
        let mut deadline = Instant::now() + timeout;
        loop {
            match reader.poll(LOOK) {
                Some(Ok(message)) => {
                    let bytes = |part: Option<&[u8]>| part.map(Bytes::copy_from_slice);
                    let (key, value) = (bytes(message.key()), bytes(message.payload()));
                    let at = message.timestamp().to_millis().unwrap_or(0);
                    if let Some((key, outcome)) = Outcome::of_record(key.as_ref(), value.as_ref()) {
                        self.book.insert(UnixMillis(at), key, outcome);
                    }
                    self.read_until = Offset::Offset(message.offset().saturating_add(1));
                    deadline = Instant::now() + timeout;
                }
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(()),
                Some(Err(error)) if error::code_of(&error).is_some_and(error::is_away) => {}
                Some(Err(error))
                    if error::code_of(&error) == Some(Code::UnknownTopicOrPartition) =>
                {
                    // It is young, and not every broker knows of it yet.
                }
                Some(Err(error)) => return Err(self.told(&error)),
                None => {}
            }
            if Instant::now() > deadline {
                let late = "the keys that were used before could not be read in time";
                return Err(StreamsError::Unavailable(late.to_owned()));
            }
        }
    }

    fn told(&self, error: &KafkaError) -> StreamsError {
        let trouble = self.calls.trouble().told();
        match error::of_call(error, About::Cluster, trouble.as_deref()) {
            // Another process has the slot, or the transaction's end is not known: another try may
            // find it stored.
            StreamsError::Refused(reason) => StreamsError::Unavailable(reason),
            other => other,
        }
    }
}

/// What a job takes on the wire, about.
pub(super) fn bytes_of(asked: &ProduceOnce) -> u64 {
    let batches = asked.batches.iter();
    batches.map(|batch| batch_bytes(&batch.records)).sum()
}

/// The senders to the writers of the slots; a writer starts when its first job comes.
#[derive(Default)]
pub(super) struct Slots {
    /// None once it is closed.
    queues: parking_lot::Mutex<Option<HashMap<i32, std::sync::mpsc::SyncSender<KeyedJob>>>>,
    topic: tokio::sync::OnceCell<()>,
}

impl Slots {
    /// None of them runs yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Slots {
            queues: parking_lot::Mutex::new(Some(HashMap::new())),
            topic: tokio::sync::OnceCell::new(),
        })
    }

    /// Has the topic of keys made, once.
    pub(super) async fn ready(&self, topics: &super::topics::Topics) -> Result<(), StreamsError> {
        let made =
            self.topic
                .get_or_try_init(async || match topics.create(once::topic_spec()?).await {
                    Ok(_) | Err(StreamsError::TopicExists(_)) => Ok(()),
                    Err(error) => Err(error),
                });
        made.await.copied()
    }

    /// Hands a job to its slot's writer, which `start` makes when there is none.
    pub(super) fn send(
        &self,
        job: KeyedJob,
        start: impl FnOnce(i32) -> Result<std::sync::mpsc::SyncSender<KeyedJob>, StreamsError>,
    ) -> Result<(), StreamsError> {
        let slot = once::slot_of(&job.asked.key);
        let mut queues = self.queues.lock();
        let queues = queues.as_mut().ok_or(StreamsError::Closed)?;
        let queue = match queues.get(&slot) {
            Some(queue) => queue,
            None => queues.entry(slot).or_insert(start(slot)?),
        };
        // There is a place in the queue for every share of the room.
        queue.try_send(job).map_err(|_| StreamsError::Closed)
    }

    /// Lets the writers end.
    pub(super) fn close(&self) {
        *self.queues.lock() = None;
    }
}

/// How long one look into the slot waits.
const LOOK: Duration = Duration::from_millis(200);

/// How often a round is tried while others take its slot.
const TRIES_MAX: u64 = 6;
