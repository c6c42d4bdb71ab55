//! How a batch gets its place: checked, given its offsets, queued, acknowledged.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::UnixMillis;
use bytes::Bytes;
use journal::{Checksum, Done, Frame, JournalError, Position};
use tokio::sync::oneshot;

use super::{Partition, State, located, storage, times};
use crate::batch::{BatchHeader, PLACED_HEAD_BYTES, known_part, placed_head, repacked, stamped};
use crate::compaction;
use crate::config::Durability;
use crate::error::StreamsError;
use crate::frames::{VERSION, kind};
use crate::marker::Marker;
use crate::producers::{Sequenced, Verdict};
use crate::topic_config::TopicSettings;

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

impl Partition {
    /// Takes one record batch v2: checks size, checksum and sequence, gives it its offsets and
    /// queues it, in the order of calls. After `Busy` wait for [`crate::Streams::room`] and call
    /// again; nothing was stored then, as after every other error. A batch of a transaction goes
    /// through the transactions' coordinator instead.
    pub fn append(self: &Arc<Self>, batch: Bytes, ack: Ack) -> Result<Append, StreamsError> {
        self.check(&batch)?;
        self.append_built(batch, ack)
    }

    /// Checks what [`Partition::append`] does of a batch by itself: for who tries one several
    /// times, since the checksum is most of what appending costs.
    pub(crate) fn check(&self, batch: &Bytes) -> Result<(), StreamsError> {
        if BatchHeader::read(batch)?.is_transactional() {
            return Err(StreamsError::InvalidRecord(
                "a batch of a transaction needs the transaction's id",
            ));
        }
        self.check_size(batch)?;
        BatchHeader::check(batch).map(drop)
    }

    /// As [`Partition::append`], for batches of transactions too; the caller has seen to it that
    /// the transaction is open and knows this partition.
    pub(crate) fn append_any(
        self: &Arc<Self>,
        batch: Bytes,
        ack: Ack,
    ) -> Result<Append, StreamsError> {
        let settings = self.live.settings();
        within(&batch, settings.message_bytes_max)?;
        let header = BatchHeader::check(&batch)?;
        self.append_checked(batch, header, settings, ack)
    }

    /// As [`Partition::append`], for a batch that this process has built or checked.
    pub(crate) fn append_built(
        self: &Arc<Self>,
        batch: Bytes,
        ack: Ack,
    ) -> Result<Append, StreamsError> {
        let bytes_max = self.live.settings().message_bytes_max;
        self.append_measured(batch, bytes_max, ack)
    }

    /// As [`Partition::append_built`], for a batch that was measured before it became another one:
    /// its bytes are bounded by what any topic of the store may be set to take.
    pub(crate) fn append_measured(
        self: &Arc<Self>,
        batch: Bytes,
        bytes_max: u64,
        ack: Ack,
    ) -> Result<Append, StreamsError> {
        within(&batch, bytes_max)?;
        let header = BatchHeader::read(&batch)?;
        let settings = TopicSettings {
            message_bytes_max: bytes_max,
            ..self.live.settings()
        };
        self.append_checked(batch, header, settings, ack)
    }

    /// Checks a batch's bytes against what the topic takes.
    pub(crate) fn check_size(&self, batch: &Bytes) -> Result<(), StreamsError> {
        within(batch, self.live.settings().message_bytes_max)
    }

    fn append_checked(
        self: &Arc<Self>,
        batch: Bytes,
        header: BatchHeader,
        settings: TopicSettings,
        ack: Ack,
    ) -> Result<Append, StreamsError> {
        if settings.is_compacting {
            compaction::check_keyed(&batch, &header)?;
        }
        if !settings.is_append_time {
            times::check(&batch, &header, &settings, self.shared.clock.now())?;
        }
        let (mut batch, mut header, mut log_append_time) = (batch, header, -1);
        if let Some(codec) = settings.compression.codec()
            && codec != header.codec()
        {
            batch = repacked(&batch, codec)?;
            within(&batch, settings.message_bytes_max)?;
            header = BatchHeader::read(&batch)?;
        }
        let bytes = batch.len() as u64;
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
        if header.producer_id >= 0 {
            let now = self.shared.clock.now();
            state.producers.remember(&header, base_offset, now.0);
        }
        state.transactions.note_batch(&header, base_offset);
        state.records_in += u64::from(header.record_count.unsigned_abs());
        let log_start_offset = state.start;
        let is_over = settings.has_room_to_trim(state.index.bytes()) && !state.is_over;
        state.is_over |= is_over;
        // Behind the first batch since the last pass a clock begins to run.
        let is_first = state.dirty_bytes == bytes && settings.lag_bound().is_some();
        let is_dirty = settings.is_compacting && (state.is_due_for_compaction() || is_first);
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
        state.producers.note_marker(marker, now.0);
        state.transactions.note_marker(marker, offset);
        drop(state);
        self.shared.keeper.note_end(end);
        Ok(())
    }

    /// Gives a batch the next offsets and queues it; the caller notes what it means. Answers where
    /// the journal ends then.
    pub(super) fn place(
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
        // What the batch says of itself was checked, or counted here.
        let (counted, known, sum) = known_part(&batch[PLACED_HEAD_BYTES..]);
        let checksum = Checksum::default()
            .then(&number)
            .then(&head)
            .then(counted)
            .then_known(known, sum);
        let journal = &self.shared.journal;
        let placed = match journal.append_summed(frame, checksum, need(durability), done) {
            Err(error @ JournalError::Full { .. }) => {
                self.shared.keeper.note_full();
                return Err(storage(error));
            }
            placed => placed.map_err(storage)?,
        };
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

fn within(batch: &Bytes, max: u64) -> Result<(), StreamsError> {
    let bytes = batch.len() as u64;
    match bytes > max {
        true => Err(StreamsError::MessageTooLarge { bytes, max }),
        false => Ok(()),
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
