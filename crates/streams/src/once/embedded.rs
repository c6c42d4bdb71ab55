//! Keys over the store in this process.
//!
//! A key's batches are numbered by a producer id that follows from the key and the request, and the
//! outcome is queued right behind them, so one sync makes all true. A crash that keeps a part of it
//! is mended by whoever sends the request again: partitions recognize what they have by its numbers
//! and take what they lack. Whoever sends a key that is under way waits for it.
//!
//! What is queued is waited for by a task of its own, whether or not its caller stays.

use std::collections::HashMap;
use std::sync::Arc;

use base::UnixMillis;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::{KeyBook, OnceKey, Outcome, ProduceOnce, Run, StoredOnce};
use crate::batch;
use crate::error::StreamsError;
use crate::event_store::{ConsumerConfig, Isolation, OffsetReset, ProduceBatch, ProducerSequence};
use crate::partition::{Ack, AckWait, Partition};
use crate::producers::ONE_SHOT_ID_MIN;
use crate::store::Streams;
use crate::topics::Topic;

/// The keys of one store; reads what is stored of them when the first one comes.
#[derive(Default)]
pub(crate) struct Keys {
    loaded: tokio::sync::OnceCell<()>,
    book: Mutex<KeyBook>,
    /// A turn for each key that somebody asks for now.
    turns: Mutex<HashMap<OnceKey, Turn>>,
}

#[derive(Default)]
struct Turn {
    lock: Arc<tokio::sync::Mutex<()>>,
    askers: usize,
}

impl Streams {
    /// Stores records under a key, or tells where they were stored under it before; see
    /// [`crate::EventStore::produce_once`]. Those who call one after another are stored in that
    /// order, whatever they wait for afterwards.
    pub(crate) async fn produce_once(
        self: &Arc<Self>,
        asked: ProduceOnce,
    ) -> Result<StoredOnce, StreamsError> {
        super::check(&asked)?;
        let keys = self.keys();
        keys.loaded.get_or_try_init(|| self.load_keys()).await?;
        let turn = HeldTurn::wait(Arc::clone(self), asked.key).await;
        let now = self.clock().now();
        let known = keys.book.lock().find(now, &asked.key);
        if let Some(outcome) = known {
            return outcome.recalled(&asked);
        }
        let mut runs = Vec::with_capacity(asked.batches.len());
        let mut acks = Vec::with_capacity(asked.batches.len() + 1);
        let mut sequences: HashMap<i32, i32> = HashMap::new();
        for produced in &asked.batches {
            let next = sequences.entry(produced.partition).or_insert(0);
            let (run, ack) = self.append_numbered(now, &asked, produced, *next).await?;
            *next = next.saturating_add(i32::try_from(run.count).unwrap_or(i32::MAX));
            runs.push(run);
            acks.push(ack);
        }
        let outcome = Outcome::of(&asked, runs);
        let record = batch::build(&[outcome.record(&asked.key)], now, None)?;
        let topic = self.keys_topic().await?;
        let slot = topic.partition(super::slot_of(&asked.key)).cloned();
        let slot = slot.ok_or(StreamsError::Closed)?;
        acks.push(self.append_waiting(&slot, record).await?.1);
        let stored = tokio::spawn(async move {
            for ack in acks {
                ack.await?;
            }
            let stored = outcome.stored();
            let keys = turn.streams.keys();
            keys.book.lock().insert(now, turn.key, outcome);
            Ok(stored)
        });
        // Otherwise the runtime is going down: what was stored is recognized next time.
        stored.await.unwrap_or(Err(StreamsError::Closed))
    }

    async fn append_numbered(
        &self,
        now: UnixMillis,
        asked: &ProduceOnce,
        produced: &ProduceBatch,
        first_sequence: i32,
    ) -> Result<(Run, AckWait), StreamsError> {
        let (topic, partition) = (&produced.topic, produced.partition);
        let found = self.topic_by_name(topic);
        let found = found.ok_or_else(|| StreamsError::UnknownTopic(topic.clone()))?;
        let Some(found) = found.partition(partition).cloned() else {
            let topic = topic.clone();
            return Err(StreamsError::UnknownPartition { topic, partition });
        };
        let sequence = ProducerSequence {
            producer_id: producer_id(asked),
            producer_epoch: 0,
            first_sequence,
        };
        let batch = batch::build(&produced.records, now, Some(sequence))?;
        let (base_offset, ack) = self.append_waiting(&found, batch).await?;
        let run = Run {
            partition,
            base_offset,
            count: u32::try_from(produced.records.len()).unwrap_or(u32::MAX),
        };
        Ok((run, ack))
    }

    async fn append_waiting(
        &self,
        partition: &Arc<Partition>,
        batch: bytes::Bytes,
    ) -> Result<(i64, AckWait), StreamsError> {
        loop {
            match partition.append(batch.clone(), Ack::All) {
                Err(StreamsError::Busy) => self.room(batch.len() as u64).await,
                outcome => return outcome.map(|append| (append.base_offset, append.ack)),
            }
        }
    }

    /// The topic of the keys, created when it is not there.
    async fn keys_topic(&self) -> Result<Arc<Topic>, StreamsError> {
        let name = super::topic()?;
        loop {
            if let Some(topic) = self.topic_by_name(&name) {
                return Ok(topic);
            }
            match self.create_topic(super::topic_spec()?).await {
                // Somebody else was faster: theirs will do.
                Err(StreamsError::TopicExists(_)) => {}
                created => return created,
            }
        }
    }

    /// Takes in what is stored of keys.
    async fn load_keys(self: &Arc<Self>) -> Result<(), StreamsError> {
        let (name, topic) = (super::topic()?, self.keys_topic().await?);
        let mut reader = self.store().consumer(reader_config()).await?;
        let partitions = (0..)
            .zip(topic.partitions())
            .map(|(index, _)| (name.clone(), index));
        reader.assign(partitions.collect()).await?;
        let mut found = Vec::new();
        loop {
            let records = reader.poll(std::time::Duration::ZERO, LOAD_BYTES).await?;
            if records.is_empty() {
                break;
            }
            for record in records {
                let outcome = Outcome::of_record(record.key.as_ref(), record.value.as_ref());
                found.extend(outcome.map(|(key, outcome)| (record.timestamp, key, outcome)));
            }
        }
        // Each partition tells them by age; all together must too.
        found.sort_by_key(|(at, ..)| *at);
        let mut book = self.keys().book.lock();
        for (at, key, outcome) in found {
            book.insert(at, key, outcome);
        }
        Ok(())
    }
}

/// Somebody whose turn it is with a key; the turn itself goes with the last who asks for it.
struct HeldTurn {
    // Given back before the turn is looked at.
    guard: Option<OwnedMutexGuard<()>>,
    streams: Arc<Streams>,
    key: OnceKey,
}

impl HeldTurn {
    async fn wait(streams: Arc<Streams>, key: OnceKey) -> Self {
        let lock = {
            let mut turns = streams.keys().turns.lock();
            let turn = turns.entry(key).or_default();
            turn.askers += 1;
            Arc::clone(&turn.lock)
        };
        let mut turn = HeldTurn {
            guard: None,
            streams,
            key,
        };
        turn.guard = Some(lock.lock_owned().await);
        turn
    }
}

impl Drop for HeldTurn {
    fn drop(&mut self) {
        self.guard = None;
        let mut turns = self.streams.keys().turns.lock();
        if let Some(turn) = turns.get_mut(&self.key) {
            turn.askers -= 1;
            if turn.askers == 0 {
                turns.remove(&self.key);
            }
        }
    }
}

/// The producer that numbers a key's batches: nobody else's, and the same for the same request.
/// Another request under the key is another producer, so that it is never taken for the first.
fn producer_id(asked: &ProduceOnce) -> i64 {
    let half = |hash: &[u8; 32]| {
        let [a, b, c, d] = [hash[8], hash[9], hash[10], hash[11]];
        i64::from(u32::from_le_bytes([a, b, c, d]) >> 1)
    };
    ONE_SHOT_ID_MIN | half(&asked.key) << 31 | half(&asked.fingerprint)
}

fn reader_config() -> ConsumerConfig {
    ConsumerConfig {
        auto_offset_reset: OffsetReset::Earliest,
        isolation: Isolation::Committed,
        ..ConsumerConfig::alone("thalweg.keys")
    }
}

/// Bytes of outcomes that are read at once.
const LOAD_BYTES: usize = 1 << 20;
