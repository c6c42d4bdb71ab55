//! A partition: takes batches in order, shows them once they are durable enough.
//!
//! Appending gives offsets and queues bytes under one short lock, so that the order in the journal
//! is the order of offsets. What is visible (`high`) moves only from the journal's completions,
//! which come in that order too.

mod append;
mod compacting;
mod expiry;
mod lookup;
mod restoring;
mod state;
mod times;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Clock;
use bytes::Bytes;
use journal::{Journal, JournalError};
use parking_lot::Mutex;

use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::event_store::{Isolation, OffsetRange};
use crate::index::{BatchIndex, Located};
use crate::keeper::Keeper;
use crate::limits::{READ_BYTES_MAX, WATCHERS_PER_PARTITION_MAX};
use crate::producers::{Producer, Producers};
use crate::signal::Signal;
use crate::telemetry::Telemetry;
use crate::topic::TopicName;
use crate::topic_config::{Live, TopicSettings};
use crate::unsettled::Transactions;
use state::located;

pub use append::{Ack, AckWait, Append};
pub(crate) use lookup::ActiveProducer;
pub(crate) use state::{BATCH_IN_FRAME, State};

/// A partition of a topic.
pub struct Partition {
    number: u32,
    index: i32,
    topic: TopicName,
    live: Arc<Live>,
    shared: Arc<Shared>,
    /// Bytes that Kafka clients fetched from it since the start.
    fetched_bytes: AtomicU64,
    state: Mutex<State>,
}

/// What all partitions of a store share.
pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) telemetry: Telemetry,
    /// Held while segments are freed; a reader that holds it finds what the indexes tell of.
    pub(crate) freeing: Mutex<()>,
}

/// Has a [`Signal`] told of a partition's changes until dropped.
pub struct Watch {
    partition: Arc<Partition>,
    signal: Arc<Signal>,
}

/// Figures of a partition for its topic's description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) offsets: OffsetRange,
    pub(crate) records_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_stored: u64,
}

impl Partition {
    pub(crate) fn new(
        number: u32,
        index: i32,
        topic: TopicName,
        live: Arc<Live>,
        shared: Arc<Shared>,
        state: State,
    ) -> Self {
        Partition {
            number,
            index,
            topic,
            live,
            shared,
            fetched_bytes: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// Its number in its topic, from zero.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// Its topic's name.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// Whole batches from the one that holds `offset`, visible ones only, up to `max_bytes`; with
    /// `at_least_one` the first comes even when it is larger. Nothing at the end.
    pub fn read(
        &self,
        isolation: Isolation,
        offset: i64,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Vec<Bytes>, StreamsError> {
        let max_bytes = max_bytes.min(READ_BYTES_MAX);
        self.while_moving(|| {
            let wanted = self.locate(isolation, offset, max_bytes, at_least_one)?;
            let batches = wanted.into_iter().map(|batch| self.fetch(batch));
            batches.collect()
        })
    }

    /// As [`Partition::read`], at most `batches_max` batches: answers where they lie.
    pub(crate) fn find(
        &self,
        isolation: Isolation,
        offset: i64,
        max_bytes: usize,
        batches_max: usize,
        at_least_one: bool,
    ) -> Result<Vec<Located>, StreamsError> {
        let max_bytes = max_bytes.min(READ_BYTES_MAX);
        self.while_moving(|| {
            let mut found = self.locate(isolation, offset, max_bytes, at_least_one)?;
            found.truncate(batches_max);
            Ok(found)
        })
    }

    /// As [`Partition::find`], with the batches' headers.
    pub(crate) fn find_headed(
        &self,
        isolation: Isolation,
        offset: i64,
        max_bytes: usize,
        batches_max: usize,
        at_least_one: bool,
    ) -> Result<Vec<(Located, BatchHeader)>, StreamsError> {
        let max_bytes = max_bytes.min(READ_BYTES_MAX);
        self.while_moving(|| {
            let mut found = self.locate(isolation, offset, max_bytes, at_least_one)?;
            found.truncate(batches_max);
            let headed = found.into_iter();
            headed
                .map(|batch| Ok((batch, self.header_of(&batch)?)))
                .collect()
        })
    }

    /// Visible bytes from the batch that holds `offset` on; stops counting once they are `enough`.
    pub fn readable_bytes(
        &self,
        isolation: Isolation,
        offset: i64,
        enough: usize,
    ) -> Result<usize, StreamsError> {
        self.while_moving(|| self.count_readable(isolation, offset, enough))
    }

    /// The offset that the next visible record will have.
    pub fn high_watermark(&self) -> i64 {
        self.state.lock().high
    }

    /// The end of what a reader of this isolation is shown: the high watermark, or the last stable
    /// offset.
    pub fn end_offset(&self, isolation: Isolation) -> i64 {
        self.state.lock().end(isolation)
    }

    /// Producer and first offset of the aborted transactions that may have records within
    /// `from..to`.
    pub fn aborted_transactions(&self, from: i64, to: i64) -> Vec<(i64, i64)> {
        self.state.lock().transactions.aborted(from, to)
    }

    /// As [`Partition::aborted_transactions`] up to the end of the batch at `last`, which is only
    /// asked for when it matters.
    pub(crate) fn aborted_transactions_until(
        &self,
        from: i64,
        last: i64,
        end: impl FnOnce() -> Result<i64, StreamsError>,
    ) -> Vec<(i64, i64)> {
        if self.aborted_transactions(from, i64::MAX).is_empty() {
            return Vec::new();
        }
        // Naming too many does no harm, one too few would.
        let end = end().unwrap_or(i64::MAX).max(last);
        self.aborted_transactions(from, end)
    }

    /// Whether a batch that was read belongs to an aborted transaction.
    pub(crate) fn is_aborted(&self, header: &BatchHeader) -> bool {
        header.is_transactional()
            && !header.is_control()
            && self
                .state
                .lock()
                .transactions
                .is_aborted(header.producer_id, header.base_offset)
    }

    /// The first offset that can be read.
    pub fn log_start_offset(&self) -> i64 {
        self.state.lock().start
    }

    /// Has `signal` told whenever what can be read changes (or the topic is deleted), until the
    /// watch is dropped. Watch first, then read, then wait: nothing is missed.
    pub fn watch(self: &Arc<Self>, signal: &Arc<Signal>) -> Result<Watch, StreamsError> {
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        if state.watchers.len() >= WATCHERS_PER_PARTITION_MAX {
            return Err(StreamsError::Limit {
                what: "readers waiting on one partition",
                max: WATCHERS_PER_PARTITION_MAX as u64,
            });
        }
        state.watchers.push(Arc::clone(signal));
        drop(state);
        Ok(Watch {
            partition: Arc::clone(self),
            signal: Arc::clone(signal),
        })
    }

    /// The offset that the next batch gets.
    pub(crate) fn next_offset(&self) -> i64 {
        self.state.lock().next
    }

    /// What is remembered of a producer.
    pub(crate) fn producer(&self, id: i64) -> Option<Producer> {
        self.state.lock().producers.of(id).cloned()
    }

    /// Takes in what another partition remembers of a producer.
    pub(crate) fn adopt(&self, id: i64, producer: Producer) {
        self.state.lock().producers.adopt(id, producer);
    }

    /// Bytes of record batches that it holds.
    pub fn bytes_stored(&self) -> u64 {
        self.state.lock().index.bytes()
    }

    /// Bytes that Kafka clients fetched from it since the start.
    pub(crate) fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes.load(Ordering::Relaxed)
    }

    /// Counts what a Kafka client was answered with.
    pub(crate) fn note_fetched(&self, bytes: usize) {
        self.fetched_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What holds for its topic.
    pub(crate) fn settings(&self) -> TopicSettings {
        self.live.settings()
    }

    /// The store's own number of the partition.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    pub(crate) fn figures(&self) -> Figures {
        let state = self.state.lock();
        Figures {
            offsets: OffsetRange {
                start: state.start,
                end: state.high,
            },
            records_in: state.records_in,
            bytes_in: state.bytes_in,
            bytes_stored: state.index.bytes(),
        }
    }

    /// The topic is gone: refuses from now on and wakes who waits.
    pub(crate) fn delete(&self) {
        let mut state = self.state.lock();
        state.deleted = true;
        state.index = BatchIndex::default();
        state.producers = Producers::default();
        state.transactions = Transactions::default();
        state.tell_watchers();
    }

    /// Everything up to `end` has the topic's durability.
    fn advance(&self, end: i64) {
        let mut state = self.state.lock();
        if end <= state.high {
            return;
        }
        state.high = end;
        state.transactions.settle(end);
        state.tell_watchers();
    }

    fn check_alive(&self, state: &State) -> Result<(), StreamsError> {
        if state.deleted {
            return Err(StreamsError::UnknownTopic(self.topic.clone()));
        }
        Ok(())
    }

    fn unwatch(&self, signal: &Arc<Signal>) {
        let mut state = self.state.lock();
        if let Some(at) = state
            .watchers
            .iter()
            .position(|watcher| Arc::ptr_eq(watcher, signal))
        {
            state.watchers.swap_remove(at);
        }
        if state.watchers.is_empty() {
            state.watchers = Vec::new();
        }
    }
}

impl Watch {
    /// The partition.
    pub(crate) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.partition.unwatch(&self.signal);
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watch").field(&self.partition).finish()
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.topic, self.index)
    }
}

/// The journal's errors in the store's words.
pub(crate) fn storage(error: JournalError) -> StreamsError {
    match error {
        JournalError::Busy => StreamsError::Busy,
        JournalError::Full { .. } => StreamsError::Full,
        JournalError::Closed => StreamsError::Closed,
        error => StreamsError::Storage(Arc::new(error)),
    }
}
