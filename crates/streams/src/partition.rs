//! A partition: takes batches in order, shows them once they are durable enough.
//!
//! Appending gives offsets and queues bytes under one short lock, so that the order in the journal
//! is the order of offsets. What is visible (`high`) moves only from the journal's completions,
//! which come in that order too.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::UnixMillis;
use bytes::Bytes;
use journal::{Done, Frame, Journal, JournalError, Position};
use metrics::{Counter, counter};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::batch::{BatchHeader, PLACED_HEAD_BYTES, placed_head};
use crate::config::Durability;
use crate::decode::BatchRecords;
use crate::error::StreamsError;
use crate::event_store::OffsetRange;
use crate::frames::{PartitionStanding, VERSION, kind};
use crate::index::{BatchIndex, Located};
use crate::keeper::Keeper;
use crate::limits::{READ_BYTES_MAX, WATCHERS_PER_PARTITION_MAX};
use crate::producers::{Producers, Sequenced, Verdict};
use crate::topic::TopicName;

/// A partition of a topic.
pub struct Partition {
    number: u32,
    index: i32,
    topic: TopicName,
    durability: Durability,
    shared: Arc<Shared>,
    state: Mutex<State>,
}

/// What all partitions of a store share.
pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) message_bytes_max: u64,
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
    /// Kafka's LogAppendTime; -1 since batches keep the producer's time.
    pub log_append_time: i64,
    /// Whether the batch was stored before and this is its old offset.
    pub duplicate: bool,
    /// Resolves when the acknowledgement may leave.
    pub ack: AckWait,
}

/// Resolves when an append may be acknowledged.
#[derive(Debug)]
pub struct AckWait(Option<oneshot::Receiver<Result<(), StreamsError>>>);

/// Has a [`Notify`] told of a partition's changes until dropped.
pub struct Watch {
    partition: Arc<Partition>,
    notify: Arc<Notify>,
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
    pub(crate) records_in: u64,
    pub(crate) bytes_in: u64,
    deleted: bool,
    watchers: Vec<Arc<Notify>>,
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
        durability: Durability,
        shared: Arc<Shared>,
        state: State,
    ) -> Self {
        Partition {
            number,
            index,
            topic,
            durability,
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
    /// again; nothing was stored then, as after every other error.
    pub fn append(self: &Arc<Self>, batch: Bytes, ack: Ack) -> Result<Append, StreamsError> {
        let (bytes, max) = (batch.len() as u64, self.shared.message_bytes_max);
        if bytes > max {
            return Err(StreamsError::MessageTooLarge { bytes, max });
        }
        let header = BatchHeader::check(&batch)?;
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        if let Verdict::Duplicate(stored) = state.producers.judge(&header)? {
            self.shared.telemetry.duplicates.increment(1);
            return self.answer_duplicate(&state, stored, ack);
        }
        let base_offset = state.next;
        let end = base_offset.checked_add(header.offsets());
        let end = end.ok_or(StreamsError::InvalidRecord(
            "the partition's offsets are used up",
        ))?;
        let (done, wait) = self.completions(end, ack);
        let number = self.number.to_le_bytes();
        let head = placed_head(&batch, base_offset);
        let parts: [&[u8]; 3] = [&number, &head, &batch[PLACED_HEAD_BYTES..]];
        let frame = Frame {
            kind: kind::BATCH,
            version: VERSION,
            parts: &parts,
        };
        let placed = self
            .shared
            .journal
            .append(&[frame], self.need(), done)
            .map_err(storage)?;
        state
            .index
            .push(located(placed.first, base_offset, &header));
        state.producers.remember(&header, base_offset);
        state.next = end;
        state.records_in += u64::from(header.record_count.unsigned_abs());
        state.bytes_in += bytes;
        let log_start_offset = state.start;
        drop(state);
        self.shared.keeper.note_end(placed.end);
        self.shared
            .telemetry
            .records
            .increment(u64::from(header.record_count.unsigned_abs()));
        self.shared.telemetry.bytes.increment(bytes);
        Ok(Append {
            base_offset,
            log_start_offset,
            log_append_time: -1,
            duplicate: false,
            ack: wait,
        })
    }

    /// Whole batches from the one that holds `offset`, visible ones only, up to `max_bytes`; with
    /// `at_least_one` the first comes even when it is larger. Nothing at the end.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Vec<Bytes>, StreamsError> {
        let max_bytes = max_bytes.min(READ_BYTES_MAX);
        let mut wanted: Vec<Located> = Vec::new();
        {
            let state = self.state.lock();
            self.check_alive(&state)?;
            state.check_range(offset)?;
            let mut total = 0_usize;
            for batch in state.visible_from(offset) {
                total = total.saturating_add(batch.bytes as usize);
                if total > max_bytes && !(at_least_one && wanted.is_empty()) {
                    break;
                }
                wanted.push(batch);
            }
        }
        wanted
            .into_iter()
            .map(|batch| self.read_batch(batch))
            .collect()
    }

    /// Visible bytes from the batch that holds `offset` on; stops counting at `enough`.
    pub fn readable_bytes(&self, offset: i64, enough: usize) -> Result<usize, StreamsError> {
        let state = self.state.lock();
        self.check_alive(&state)?;
        state.check_range(offset)?;
        let mut total = 0_usize;
        for batch in state.visible_from(offset) {
            total = total.saturating_add(batch.bytes as usize);
            if total >= enough {
                break;
            }
        }
        Ok(total)
    }

    /// The offset that the next visible record will have.
    pub fn high_watermark(&self) -> i64 {
        self.state.lock().high
    }

    /// The first offset that can be read.
    pub fn log_start_offset(&self) -> i64 {
        self.state.lock().start
    }

    /// The first visible record at or after `at`: its offset and time.
    pub fn offset_for_time(
        &self,
        at: UnixMillis,
    ) -> Result<Option<(i64, UnixMillis)>, StreamsError> {
        let (start, candidates) = {
            let state = self.state.lock();
            let visible = state.index.since_time(at.0);
            let visible = visible.take_while(|batch| batch.base_offset < state.high);
            (
                state.start,
                visible.take(TIME_CANDIDATES).collect::<Vec<_>>(),
            )
        };
        for batch in candidates {
            let found = self.find_record(batch, |offset, time| offset >= start && time >= at)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The visible record with the greatest time (the first of them): its offset and time.
    pub fn offset_of_max_time(&self) -> Result<Option<(i64, UnixMillis)>, StreamsError> {
        let (start, newest) = {
            let state = self.state.lock();
            let visible = state.visible_from(state.start);
            // `max_by_key` takes the last of equals, hence the reversed tie-break.
            let newest = visible.max_by_key(|batch| (batch.max_timestamp, -batch.base_offset));
            (state.start, newest)
        };
        let Some(batch) = newest else { return Ok(None) };
        let time = UnixMillis(batch.max_timestamp);
        self.find_record(batch, |offset, at| offset >= start && at >= time)
    }

    /// Has `notify.notify_one()` called whenever more becomes visible (or the topic is deleted),
    /// until the watch is dropped. Watch first, then read, then wait: nothing is missed.
    pub fn watch(self: &Arc<Self>, notify: &Arc<Notify>) -> Result<Watch, StreamsError> {
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        if state.watchers.len() >= WATCHERS_PER_PARTITION_MAX {
            return Err(StreamsError::Limit {
                what: "readers waiting on one partition",
                max: WATCHERS_PER_PARTITION_MAX as u64,
            });
        }
        state.watchers.push(Arc::clone(notify));
        drop(state);
        Ok(Watch {
            partition: Arc::clone(self),
            notify: Arc::clone(notify),
        })
    }

    /// The store's own number of the partition.
    pub(crate) fn number(&self) -> u32 {
        self.number
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

    /// Position of the oldest frame that holds something of this partition.
    pub(crate) fn first_position(&self) -> Option<Position> {
        self.state
            .lock()
            .index
            .first()
            .map(|batch| Position(batch.position.0 - BATCH_IN_FRAME))
    }

    /// Calls `write` with the partition's standing while nothing can change it; none when there
    /// is nothing to tell.
    pub(crate) fn with_standing<R>(&self, write: impl FnOnce(PartitionStanding) -> R) -> Option<R> {
        let state = self.state.lock();
        if state.deleted || state.next == 0 {
            return None;
        }
        let producers = state.producers.all().into_iter();
        Some(write(PartitionStanding {
            number: self.number,
            start: state.start,
            next: state.next,
            records_in: state.records_in,
            bytes_in: state.bytes_in,
            producers: producers
                .map(|(id, producer)| (id, producer.clone()))
                .collect(),
        }))
    }

    /// Hides the records that are older than `before`, oldest first up to the first batch that is
    /// not; `write` tells the journal where the partition starts then. Answers when the oldest
    /// batch that is left was made.
    pub(crate) fn expire(
        &self,
        before: UnixMillis,
        write: impl FnOnce(PartitionStanding) -> Result<(), StreamsError>,
    ) -> Result<Option<UnixMillis>, StreamsError> {
        let mut state = self.state.lock();
        let mut young = state.visible_from(state.start).skip_while(|batch| {
            // A batch without a time never grows old.
            batch.max_timestamp >= 0 && batch.max_timestamp < before.0
        });
        let oldest = young.next();
        let start = oldest.map_or(state.high, |batch| batch.base_offset.max(state.start));
        let made = oldest.map(|batch| UnixMillis(batch.max_timestamp));
        drop(young);
        if start > state.start && !state.deleted {
            write(PartitionStanding {
                start,
                ..state.standing(self.number)
            })?;
            state.start = start;
            let next = state.next;
            state.index.forget_before(start, next);
        }
        Ok(made)
    }

    /// The topic is gone: refuses from now on and wakes who waits.
    pub(crate) fn delete(&self) {
        let mut state = self.state.lock();
        state.deleted = true;
        state.index = BatchIndex::default();
        state.producers = Producers::default();
        state
            .watchers
            .iter()
            .for_each(|watcher| watcher.notify_one());
    }

    /// Everything up to `end` has the topic's durability.
    fn advance(&self, end: i64) {
        let mut state = self.state.lock();
        if end <= state.high {
            return;
        }
        state.high = end;
        state
            .watchers
            .iter()
            .for_each(|watcher| watcher.notify_one());
    }

    /// How far the journal carries a batch, so that it becomes visible whatever its acks are.
    fn need(&self) -> journal::Durability {
        match self.durability {
            Durability::Disk => journal::Durability::Disk,
            // A batch can be read only when it is with the operating system.
            Durability::Os | Durability::Memory => journal::Durability::Os,
        }
    }

    fn completions(self: &Arc<Self>, end: i64, ack: Ack) -> (Done, AckWait) {
        let partition = Arc::clone(self);
        let is_memory = self.durability == Durability::Memory;
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
        let done = if self.durability == Durability::Disk {
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
            let need = self.need();
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

    fn read_batch(&self, batch: Located) -> Result<Bytes, StreamsError> {
        match self
            .shared
            .journal
            .read(batch.position, batch.bytes as usize)
        {
            Ok(bytes) => Ok(bytes),
            // Reclaimed since it was looked up: deleted, or expired.
            Err(JournalError::Reclaimed { .. }) => {
                let state = self.state.lock();
                self.check_alive(&state)?;
                Err(state.out_of_range(batch.base_offset))
            }
            Err(error) => Err(storage(error)),
        }
    }

    fn find_record(
        &self,
        batch: Located,
        wanted: impl Fn(i64, UnixMillis) -> bool,
    ) -> Result<Option<(i64, UnixMillis)>, StreamsError> {
        let bytes = self.read_batch(batch)?;
        let whole_batch = Some((batch.base_offset, UnixMillis(batch.max_timestamp)));
        let Ok(records) = BatchRecords::of(&bytes) else {
            return Ok(whole_batch);
        };
        for record in records {
            // Records that do not decode are a matter between their producer and its consumers.
            let Ok(record) = record else {
                return Ok(whole_batch);
            };
            if wanted(record.offset, record.timestamp) {
                return Ok(Some((record.offset, record.timestamp)));
            }
        }
        Ok(None)
    }

    fn check_alive(&self, state: &State) -> Result<(), StreamsError> {
        if state.deleted {
            return Err(StreamsError::UnknownTopic(self.topic.clone()));
        }
        Ok(())
    }

    fn unwatch(&self, notify: &Arc<Notify>) {
        let mut state = self.state.lock();
        if let Some(at) = state
            .watchers
            .iter()
            .position(|watcher| Arc::ptr_eq(watcher, notify))
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
    pub(crate) fn replay(&mut self, frame: Position, header: &BatchHeader) {
        self.index.push(located(frame, header.base_offset, header));
        self.producers.remember(header, header.base_offset);
        self.next = header.base_offset.saturating_add(header.offsets());
        self.records_in += u64::from(header.record_count.unsigned_abs());
        self.bytes_in += header.bytes as u64;
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

    fn visible_from(&self, offset: i64) -> impl Iterator<Item = Located> + '_ {
        let batches = self.index.since_offset(offset);
        batches
            .skip_while(move |_| offset >= self.high)
            .take_while(|batch| batch.base_offset < self.high)
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

impl Drop for Watch {
    fn drop(&mut self) {
        self.partition.unwatch(&self.notify);
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
const BATCH_IN_FRAME: u64 = journal::FRAME_OVERHEAD_BYTES + 4;

/// Batches that a lookup by time may read: the first one nearly always holds the answer, and a
/// batch that claims a greater time than its records have must not cost a whole scan.
const TIME_CANDIDATES: usize = 16;
