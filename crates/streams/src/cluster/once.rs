//! The thread that writes numbered batches: each stored once, whatever is retried or crashes.
//!
//! A round is one transaction of the cluster: its records, and the numbers of their batches
//! ([`super::ledger`]). The transactional id belongs to the data folder, so that a restart first
//! ends what the crash left open; what was committed is then recognized by its numbers. After any
//! failure the numbers are read again before the next round, so that nothing here is believed that
//! the cluster may see otherwise.
//!
//! Who reads uncommitted records may see those of a round that was aborted, as with every
//! transactional producer of Kafka's; who reads committed ones sees each once.

use std::collections::HashMap;
use std::time::Duration;

use base::{Clock, SystemClock};
use rdkafka::TopicPartitionList;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerGroupMetadata};
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer;
use rdkafka::topic_partition_list::Offset;

use super::calls::{Calls, Context};
use super::enqueue::flush;
use super::error::{self, About};
use super::fenced::{self, Introduced};
use super::ledger::{self, Entry, Verdict};
use super::round::Job;
use super::waiting::{Lane, Next};
use super::writer::Outcome;
use crate::error::StreamsError;
use crate::event_store::{Placed, ProduceBatch, ProducerSequence};
use crate::limits::CLUSTER_LEDGERS_MAX;
use crate::topic::TopicName;

/// The writer's state.
pub(super) struct OnceWriter {
    calls: Calls,
    partition_bytes_max: u64,
    transactional_id: String,
    lane: Lane,
    producer: Option<Introduced>,
    ledgers: HashMap<i64, Ledger>,
}

/// A producer's numbers as the cluster has them.
struct Ledger {
    /// What the cluster wants to know of a group whose offsets a transaction commits.
    group: ConsumerGroupMetadata,
    entries: HashMap<(TopicName, i32), Entry>,
}

impl OnceWriter {
    pub(super) fn new(
        calls: Calls,
        partition_bytes_max: u64,
        transactional_id: String,
        lane: Lane,
    ) -> Self {
        OnceWriter {
            calls,
            partition_bytes_max,
            transactional_id,
            lane,
            producer: None,
            ledgers: HashMap::new(),
        }
    }

    /// Writes until nobody can send any more.
    pub(super) fn run(mut self) {
        loop {
            match self.lane.next(self.partition_bytes_max) {
                Next::Round(round) => self.write(round.jobs),
                // Its producer is made when it is first needed, and stays.
                Next::Connect | Next::Idle => {}
                Next::Over => return,
            }
        }
    }

    fn write(&mut self, jobs: Vec<Job>) {
        let batches: Vec<&ProduceBatch> = jobs.iter().map(|job| &job.batch).collect();
        let outcomes = match self.store(&batches) {
            Ok(outcomes) => outcomes,
            // One batch must not fail those that came with it.
            Err(_) if batches.len() > 1 => batches
                .iter()
                .map(|batch| self.store_alone(batch))
                .collect(),
            Err(error) => vec![Err(error)],
        };
        let outcomes: Vec<Outcome> = outcomes
            .into_iter()
            .zip(&batches)
            .map(|(outcome, batch)| match outcome {
                // It follows one of its own producer, which is stored by now.
                Err(StreamsError::Busy) => self.store_alone(batch),
                outcome => outcome,
            })
            .collect();
        for (job, outcome) in jobs.into_iter().zip(outcomes) {
            let _ = job.answer.send(outcome);
            drop(job.room);
        }
    }

    fn store_alone(&mut self, batch: &ProduceBatch) -> Outcome {
        let outcomes = self.store(&[batch])?;
        outcomes
            .into_iter()
            .next()
            .unwrap_or(Err(StreamsError::Closed))
    }

    /// Stores what is new of these, all or nothing.
    fn store(&mut self, batches: &[&ProduceBatch]) -> Result<Vec<Outcome>, StreamsError> {
        let stored = self.try_store(batches);
        if let Err(error) = &stored {
            tracing::warn!(
                error = base::report(error),
                "a numbered round was not stored"
            );
            self.ledgers.clear();
            self.abort();
        }
        stored
    }

    fn try_store(&mut self, batches: &[&ProduceBatch]) -> Result<Vec<Outcome>, StreamsError> {
        // First of all: it ends what an earlier process left open.
        self.ensure_producer()?;
        if self.ledgers.len() + batches.len() > CLUSTER_LEDGERS_MAX {
            // They are read again when they are needed.
            self.ledgers.clear();
        }
        let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(batches.len());
        let mut touched: HashMap<(i64, TopicName, i32), Entry> = HashMap::new();
        let mut fresh: Vec<(usize, &ProduceBatch, ProducerSequence)> = Vec::new();
        for (index, &batch) in batches.iter().enumerate() {
            let Some(sequence) = batch.sequence else {
                outcomes.push(Some(Err(StreamsError::InvalidRecord("it has no sequence"))));
                continue;
            };
            let place = (sequence.producer_id, batch.topic.clone(), batch.partition);
            // Two batches of one producer and partition never go together: the offset of the first
            // is not known yet when the second is judged.
            if touched.contains_key(&place) {
                outcomes.push(Some(Err(StreamsError::Busy)));
                continue;
            }
            let entry = self.entry(sequence.producer_id, &batch.topic, batch.partition)?;
            let count = i32::try_from(batch.records.len()).unwrap_or(i32::MAX);
            match entry.judge(sequence, count) {
                Ok(Verdict::Stored(base_offset)) => outcomes.push(Some(Ok(Placed {
                    partition: batch.partition,
                    base_offset,
                }))),
                Ok(Verdict::New) => {
                    touched.insert(place, entry);
                    fresh.push((index, batch, sequence));
                    outcomes.push(None);
                }
                Err(error) => outcomes.push(Some(Err(error))),
            }
        }
        if !fresh.is_empty() {
            for ((index, ..), placed) in fresh.iter().zip(self.transact(&fresh, touched)?) {
                outcomes[*index] = Some(Ok(placed));
            }
        }
        let outcomes = outcomes.into_iter();
        Ok(outcomes
            .map(|outcome| outcome.unwrap_or(Err(StreamsError::Closed)))
            .collect())
    }

    fn transact(
        &mut self,
        fresh: &[(usize, &ProduceBatch, ProducerSequence)],
        mut touched: HashMap<(i64, TopicName, i32), Entry>,
    ) -> Result<Vec<Placed>, StreamsError> {
        let Some((producer, deliveries)) = &self.producer else {
            return Err(StreamsError::Closed);
        };
        let told = |error| self.told(&error);
        let timeout = self.calls.config().flush_timeout();
        producer.begin_transaction().map_err(told)?;
        let batches: Vec<&ProduceBatch> = fresh.iter().map(|(_, batch, _)| *batch).collect();
        let sent = deliveries
            .send(producer, &batches, SystemClock.now(), timeout)
            .map_err(told)?;
        let placed = sent
            .into_iter()
            .collect::<Result<Vec<Placed>, StreamsError>>()?;
        let mut commits: HashMap<i64, TopicPartitionList> = HashMap::new();
        for ((_, batch, sequence), placed) in fresh.iter().zip(&placed) {
            let place = (sequence.producer_id, batch.topic.clone(), batch.partition);
            let Some(entry) = touched.get_mut(&place) else {
                continue;
            };
            let count = i32::try_from(batch.records.len()).unwrap_or(i32::MAX);
            entry.remember(*sequence, count, placed.base_offset);
            let list = commits.entry(sequence.producer_id).or_default();
            let mut element = list.add_partition(batch.topic.wire_name(), batch.partition);
            element
                .set_offset(Offset::Offset(entry.offset()))
                .map_err(told)?;
            element.set_metadata(entry.encoded());
        }
        for (producer_id, list) in &commits {
            // Each was judged by its ledger; records without their numbers are not committed.
            let ledger = self.ledgers.get(producer_id).ok_or(StreamsError::Closed)?;
            producer
                .send_offsets_to_transaction(list, &ledger.group, timeout)
                .map_err(told)?;
        }
        producer.commit_transaction(timeout).map_err(told)?;
        for ((producer_id, topic, partition), entry) in touched {
            if let Some(ledger) = self.ledgers.get_mut(&producer_id) {
                ledger.entries.insert((topic, partition), entry);
            }
        }
        Ok(placed)
    }

    /// A producer's numbers in a partition, read from the cluster unless they are known.
    fn entry(
        &mut self,
        producer_id: i64,
        topic: &TopicName,
        partition: i32,
    ) -> Result<Entry, StreamsError> {
        let place = (topic.clone(), partition);
        let known = self.ledgers.get(&producer_id);
        if let Some(entry) = known.and_then(|ledger| ledger.entries.get(&place)) {
            return Ok(entry.clone());
        }
        let told = |error| self.told(&error);
        let group = ledger::group_of(producer_id);
        let mut client = self.calls.config().client();
        client
            .set("group.id", &group)
            // Waits for a transaction that commits an offset, rather than answer the one before.
            .set("isolation.level", "read_committed");
        let context = Context {
            trouble: self.calls.trouble().clone(),
        };
        let asker = BaseConsumer::from_config_and_context(&client, context).map_err(told)?;
        let mut asked = TopicPartitionList::new();
        asked.add_partition(topic.wire_name(), partition);
        let committed = asker
            .committed_offsets(asked, self.calls.config().call_timeout())
            .map_err(told)?;
        let mut entry = Entry::default();
        for element in committed.elements() {
            element.error().map_err(told)?;
            if let Offset::Offset(_) = element.offset() {
                entry = Entry::decoded(element.metadata())?;
            }
        }
        let group = asker.group_metadata();
        let Some(group) = group else {
            return Err(StreamsError::Refused(
                "no group for a producer's numbers".to_owned(),
            ));
        };
        let ledger = self.ledgers.entry(producer_id).or_insert_with(|| Ledger {
            group,
            entries: HashMap::new(),
        });
        ledger.entries.insert(place, entry.clone());
        Ok(entry)
    }

    fn ensure_producer(&mut self) -> Result<(), StreamsError> {
        if self.producer.is_some() {
            return Ok(());
        }
        let id = &self.transactional_id;
        let made = fenced::introduce(&self.calls, id, self.partition_bytes_max);
        let producer = made.map_err(|error| self.told(&error))?;
        self.ledgers.clear();
        self.producer = Some(producer);
        Ok(())
    }

    /// Takes an open transaction back; a producer that cannot is replaced, which does the same.
    fn abort(&mut self) {
        let Some((producer, _)) = &self.producer else {
            return;
        };
        let aborted = producer.abort_transaction(self.calls.config().flush_timeout());
        match aborted {
            // It holds nothing any more: what was lent to it comes back now, not with the next round.
            Ok(()) => drop(flush(producer, Duration::ZERO)),
            // Without a transaction under way there is nothing to abort, which is told as an error too.
            Err(error) => {
                tracing::debug!(%error, "a transaction was not aborted: its producer is replaced");
                self.producer = None;
            }
        }
    }

    fn told(&self, error: &KafkaError) -> StreamsError {
        let trouble = self.calls.trouble().told();
        error::of_call(error, About::Cluster, trouble.as_deref())
    }
}
