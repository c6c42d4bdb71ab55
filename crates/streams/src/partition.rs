//! A partition: takes batches in order, shows them once they are durable enough.
//!
//! Appending gives offsets and queues bytes under one short lock, so that the order in the journal
//! is the order of offsets. What is visible (`high`) moves only from the journal's completions,
//! which come in that order too.

mod compacting;
mod expiry;
mod lookup;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::{Clock, UnixMillis};
use bytes::Bytes;
use journal::{Done, Frame, Journal, JournalError, Position};
use metrics::{Counter, counter};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::batch::{BatchHeader, PLACED_HEAD_BYTES, placed_head, stamped};
use crate::compaction;
use crate::config::Durability;
use crate::error::StreamsError;
use crate::event_store::{Isolation, OffsetRange};
use crate::frames::{PartitionStanding, VERSION, kind};
use crate::index::{BatchIndex, Located};
use crate::keeper::Keeper;
use crate::limits::{COMPACTION_BYTES_MIN, READ_BYTES_MAX, WATCHERS_PER_PARTITION_MAX};
use crate::marker::Marker;
use crate::producers::{Producers, Sequenced, Verdict};
use crate::signal::Signal;
use crate::topic::TopicName;
use crate::topic_config::{Live, TopicSettings};
use crate::unsettled::Transactions;

pub(crate) use lookup::ActiveProducer;

/// A partition of a topic.
pub struct Partition {
    number: u32,
    index: i32,
    topic: TopicName,
    live: Arc<Live>,
    shared: Arc<Shared>,
    state: Mutex<State>,
}

/// What all partitions of a store share.
pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) telemetry: Telemetry,
}

/// Counters of all partitions together; made once, since looking one up costs more than adding.
pub(crate) struct Telemetry {
    records: Counter,
    bytes: Counter,
    duplicates: Counter,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry {
            records: counter!("thalweg_streams_appended_records_total"),
            bytes: counter!("thalweg_streams_appended_bytes_total"),
            duplicates: counter!("thalweg_streams_duplicate_batches_total"),
        }
    }
}

/// What an append's acknowledgement waits for, as Kafka's `acks`: 0, 1 and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// Nothing.
    None,
    /// The operating system has it (or the topic's durability, where that is weaker).
    Leader,
    /// The topic's durability.
    All,
}

/// A batch that has its place; await `ack` before acknowledging it.
#[derive(Debug)]
pub struct Append {
    /// The offset of its first record.
    pub base_offset: i64,
    /// The first offset that can be read.
    pub log_start_offset: i64,
    /// When it was stored, where the topic wants that for its records' time; else -1.
    pub log_append_time: i64,
    /// Whether the batch was stored before and this is its old offset.
    pub duplicate: bool,
    /// Resolves when the acknowledgement may leave.
    pub ack: AckWait,
}

/// Resolves when an append may be acknowledged.
#[derive(Debug)]
pub struct AckWait(Option<oneshot::Receiver<Result<(), StreamsError>>>);

/// Has a [`Signal`] told of a partition's changes until dropped.
pub struct Watch {
    partition: Arc<Partition>,
    signal: Arc<Signal>,
}

/// What a partition holds, but for its batches' bytes.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The first offset that can be read.
    pub(crate) start: i64,
    /// The offset that the next batch gets.
    pub(crate) next: i64,
    /// The end of what is visible.
    pub(crate) high: i64,
    pub(crate) index: BatchIndex,
    pub(crate) producers: Producers,
    pub(crate) transactions: Transactions,
    pub(crate) records_in: u64,
    pub(crate) bytes_in: u64,
    /// Everything before it is compacted, where the topic is.
    pub(crate) clean_end: i64,
    /// Bytes that came in since.
    dirty_bytes: u64,
    /// Bytes at which compaction is to be looked after.
    compact_at_bytes: u64,
    deleted: bool,
    /// The keeper was told that it holds more than it is to keep.
    is_over: bool,
    watchers: Vec<Arc<Signal>>,
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

    /// Takes one record batch v2: checks size, checksum and sequence, gives it its offsets and
    /// queues it, in the order of calls. After `Busy` wait for [`crate::Streams::room`] and call
    /// again; nothing was stored then, as after every other error. A batch of a transaction goes
    /// through the transactions' coordinator instead.
    pub fn append(self: &Arc<Self>, batch: Bytes, ack: Ack) -> Result<Append, StreamsError> {
        if BatchHeader::read(&batch)?.is_transactional() {
            return Err(StreamsError::InvalidRecord(
                "a batch of a transaction needs the transaction's id",
            ));
        }
        self.append_any(batch, ack)
    }

    /// As [`Partition::append`], for batches of transactions too; the caller has seen to it that
    /// the transaction is open and knows this partition.
    pub(crate) fn append_any(
        self: &Arc<Self>,
        batch: Bytes,
        ack: Ack,
    ) -> Result<Append, StreamsError> {
        let settings = self.live.settings();
        let (bytes, max) = (batch.len() as u64, settings.message_bytes_max);
        if bytes > max {
            return Err(StreamsError::MessageTooLarge { bytes, max });
        }
        let mut header = BatchHeader::check(&batch)?;
        if settings.is_compacting {
            compaction::check_keyed(&batch, &header)?;
        }
        let (mut batch, mut log_append_time) = (batch, -1);
        if settings.is_append_time {
            let now = self.shared.clock.now();
            batch = stamped(&batch, now);
            header = BatchHeader::read(&batch)?;
            log_append_time = now.0;
        }
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        state.transactions.check(&header)?;
        if let Verdict::Duplicate(stored) = state.producers.judge(&header)? {
            self.shared.telemetry.duplicates.increment(1);
            return self.answer_duplicate(&state, stored, ack);
        }
        let base_offset = state.next;
        let (end, wait) = self.place(&mut state, &batch, &header, ack, settings.durability)?;
        state.producers.remember(&header, base_offset);
        state.transactions.note_batch(&header, base_offset);
        state.records_in += u64::from(header.record_count.unsigned_abs());
        let log_start_offset = state.start;
        let is_over = settings.has_room_to_trim(state.index.bytes()) && !state.is_over;
        state.is_over |= is_over;
        let is_dirty = settings.is_compacting && state.is_due_for_compaction();
        drop(state);
        if is_dirty {
            self.shared.keeper.look();
        }
        if is_over {
            self.shared.keeper.trim(self);
        }
        self.shared.keeper.note_end(end);
        self.shared
            .telemetry
            .records
            .increment(u64::from(header.record_count.unsigned_abs()));
        self.shared.telemetry.bytes.increment(bytes);
        Ok(Append {
            base_offset,
            log_start_offset,
            log_append_time,
            duplicate: false,
            ack: wait,
        })
    }

    /// Ends the producer's open transaction here; does nothing when it has none, so that asking
    /// twice is as good as once.
    pub(crate) fn append_marker(
        self: &Arc<Self>,
        now: UnixMillis,
        marker: Marker,
    ) -> Result<(), StreamsError> {
        let mut state = self.state.lock();
        if state.deleted || state.transactions.first_of(marker.producer_id).is_none() {
            return Ok(());
        }
        let batch = marker.build(now);
        let header = BatchHeader::read(&batch)?;
        let offset = state.next;
        let durability = self.live.settings().durability;
        let (end, _) = self.place(&mut state, &batch, &header, Ack::None, durability)?;
        state.producers.note_marker(marker);
        state.transactions.note_marker(marker, offset);
        drop(state);
        self.shared.keeper.note_end(end);
        Ok(())
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
        self.while_moving(offset, || {
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
        self.while_moving(offset, || {
            let mut found = self.locate(isolation, offset, max_bytes, at_least_one)?;
            found.truncate(batches_max);
            Ok(found)
        })
    }

    /// Visible bytes from the batch that holds `offset` on; stops counting at `enough`.
    pub fn readable_bytes(
        &self,
        isolation: Isolation,
        offset: i64,
        enough: usize,
    ) -> Result<usize, StreamsError> {
        let batches = self.while_moving(offset, || self.locate(isolation, offset, enough, true))?;
        let sizes = batches.iter().map(|batch| batch.bytes as usize);
        Ok(sizes.fold(0, usize::saturating_add))
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

    /// Bytes of record batches that it holds.
    pub fn bytes_stored(&self) -> u64 {
        self.state.lock().index.bytes()
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

    /// Gives a batch the next offsets and queues it; the caller notes what it means. Answers where
    /// the journal ends then.
    fn place(
        self: &Arc<Self>,
        state: &mut State,
        batch: &[u8],
        header: &BatchHeader,
        ack: Ack,
        durability: Durability,
    ) -> Result<(Position, AckWait), StreamsError> {
        let base_offset = state.next;
        let end = base_offset.checked_add(header.offsets());
        let end = end.ok_or(StreamsError::InvalidRecord(
            "the partition's offsets are used up",
        ))?;
        let (done, wait) = self.completions(end, ack, durability);
        let number = self.number.to_le_bytes();
        let head = placed_head(batch, base_offset);
        let parts: [&[u8]; 3] = [&number, &head, &batch[PLACED_HEAD_BYTES..]];
        let frame = Frame {
            kind: kind::BATCH,
            version: VERSION,
            parts: &parts,
        };
        let placed = self
            .shared
            .journal
            .append(&[frame], need(durability), done)
            .map_err(storage)?;
        state.index.push(located(placed.first, base_offset, header));
        state.next = end;
        state.bytes_in += batch.len() as u64;
        state.dirty_bytes += batch.len() as u64;
        Ok((placed.end, wait))
    }

    fn completions(
        self: &Arc<Self>,
        end: i64,
        ack: Ack,
        durability: Durability,
    ) -> (Done, AckWait) {
        let partition = Arc::clone(self);
        let is_memory = durability == Durability::Memory;
        let (sender, wait) = match ack {
            Ack::None => (None, AckWait(None)),
            Ack::Leader | Ack::All if is_memory => (None, AckWait(None)),
            Ack::Leader | Ack::All => {
                let (sender, receiver) = oneshot::channel();
                (Some(sender), AckWait(Some(receiver)))
            }
        };
        let (early, late) = match ack {
            Ack::Leader => (sender, None),
            Ack::None | Ack::All => (None, sender),
        };
        let finish: journal::OnDone = Box::new(move |outcome| {
            if outcome.is_ok() {
                partition.advance(end);
            }
            answer(late, outcome);
        });
        let done = if durability == Durability::Disk {
            let os = early.map(|early| -> journal::OnDone {
                Box::new(move |outcome| answer(Some(early), outcome))
            });
            Done {
                os,
                disk: Some(finish),
            }
        } else {
            let finish: journal::OnDone = match early {
                None => finish,
                Some(early) => Box::new(move |outcome: Result<(), JournalError>| {
                    finish(outcome.clone());
                    answer(Some(early), outcome);
                }),
            };
            Done {
                os: Some(finish),
                disk: None,
            }
        };
        (done, wait)
    }

    /// Answers the old place of a batch that was sent again, once that is durable.
    fn answer_duplicate(
        &self,
        state: &State,
        stored: Sequenced,
        ack: Ack,
    ) -> Result<Append, StreamsError> {
        let end = stored.base_offset + i64::from(stored.last_delta) + 1;
        let ack = if ack == Ack::None || end <= state.high {
            AckWait(None)
        } else {
            // No frames are a barrier: it is reached when all that stands before it is.
            let (sender, receiver) = oneshot::channel();
            let reached: journal::OnDone = Box::new(move |outcome| answer(Some(sender), outcome));
            let need = need(self.live.settings().durability);
            let done = match need {
                journal::Durability::Disk => Done {
                    os: None,
                    disk: Some(reached),
                },
                _ => Done {
                    os: Some(reached),
                    disk: None,
                },
            };
            self.shared
                .journal
                .append(&[], need, done)
                .map_err(storage)?;
            AckWait(Some(receiver))
        };
        Ok(Append {
            base_offset: stored.base_offset,
            log_start_offset: state.start,
            log_append_time: -1,
            duplicate: true,
            ack,
        })
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

impl State {
    /// Takes in a batch that stands in the journal already.
    pub(crate) fn replay(
        &mut self,
        frame: Position,
        header: &BatchHeader,
        batch: &[u8],
    ) -> Result<(), StreamsError> {
        self.index.push(located(frame, header.base_offset, header));
        self.next = header.base_offset.saturating_add(header.offsets());
        self.bytes_in += header.bytes as u64;
        if header.is_control() {
            if let Some(marker) = Marker::read(header, batch)? {
                self.producers.note_marker(marker);
                self.transactions.note_marker(marker, header.base_offset);
            }
            return Ok(());
        }
        self.producers.remember(header, header.base_offset);
        self.transactions.note_batch(header, header.base_offset);
        self.records_in += u64::from(header.record_count.unsigned_abs());
        Ok(())
    }

    fn tell_watchers(&self) {
        self.watchers.iter().for_each(|watcher| watcher.tell());
    }

    /// All that was found is on the disk, so that it is visible.
    pub(crate) fn show_all(&mut self) {
        self.high = self.next;
        self.transactions.settle(self.high);
        self.transactions.forget_before(self.start);
        self.dirty_bytes = self.index.bytes_from(self.clean_end);
    }

    /// Whether compaction is to be looked after; if that does nothing, the next time is when twice
    /// as much has come in.
    fn is_due_for_compaction(&mut self) -> bool {
        let at = self.compact_at_bytes.max(COMPACTION_BYTES_MIN);
        if self.dirty_bytes < at {
            return false;
        }
        self.compact_at_bytes = self.dirty_bytes.saturating_mul(2);
        true
    }

    /// Takes in what a snapshot says.
    pub(crate) fn restore(&mut self, standing: PartitionStanding) {
        self.start = standing.start;
        self.next = standing.next;
        self.records_in = standing.records_in;
        self.bytes_in = standing.bytes_in;
        self.producers = Producers::restored(standing.producers);
        self.index.forget_before(standing.start, standing.next);
    }

    fn standing(&self, number: u32) -> PartitionStanding {
        let producers = self.producers.all().into_iter();
        PartitionStanding {
            number,
            start: self.start,
            next: self.next,
            records_in: self.records_in,
            bytes_in: self.bytes_in,
            producers: producers
                .map(|(id, producer)| (id, producer.clone()))
                .collect(),
        }
    }

    /// The end of what a reader of this isolation is shown.
    fn end(&self, isolation: Isolation) -> i64 {
        match isolation {
            Isolation::Uncommitted => self.high,
            Isolation::Committed => self.transactions.stable(self.high).max(self.start),
        }
    }

    fn check_range(&self, offset: i64) -> Result<(), StreamsError> {
        if (self.start..=self.high).contains(&offset) {
            return Ok(());
        }
        Err(self.out_of_range(offset))
    }

    fn out_of_range(&self, offset: i64) -> StreamsError {
        StreamsError::OffsetOutOfRange {
            offset,
            start: self.start,
            end: self.high,
        }
    }
}

impl Future for AckWait {
    type Output = Result<(), StreamsError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(receiver) = self.0.as_mut() else {
            return Poll::Ready(Ok(()));
        };
        let outcome = std::task::ready!(Pin::new(receiver).poll(cx));
        self.0 = None;
        // The journal drops the completions of what it could not write.
        Poll::Ready(outcome.unwrap_or_else(|_| Err(storage(JournalError::Closed))))
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

/// How far the journal carries a batch, so that it becomes visible whatever its acks are.
fn need(durability: Durability) -> journal::Durability {
    match durability {
        Durability::Disk => journal::Durability::Disk,
        // A batch can be read only when it is with the operating system.
        Durability::Os | Durability::Memory => journal::Durability::Os,
    }
}

fn answer(
    waiting: Option<oneshot::Sender<Result<(), StreamsError>>>,
    outcome: Result<(), JournalError>,
) {
    if let Some(waiting) = waiting {
        // Whoever waited may have gone; nobody is left to be told then.
        drop(waiting.send(outcome.map_err(storage)));
    }
}

fn located(frame: Position, base_offset: i64, header: &BatchHeader) -> Located {
    Located {
        base_offset,
        position: Position(frame.0 + BATCH_IN_FRAME),
        bytes: u32::try_from(header.bytes).expect("a batch's length is an i32"),
        max_timestamp: header.max_timestamp,
    }
}

/// Where the batch starts in its frame: after the frame's header and the partition's number.
pub(crate) const BATCH_IN_FRAME: u64 = journal::FRAME_OVERHEAD_BYTES + 4;
