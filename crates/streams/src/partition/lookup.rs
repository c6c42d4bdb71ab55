//! Finding batches of a partition: by offset, by time, for a snapshot.
//!
//! The index is looked at under the partition's lock and chunks that were put away are fetched
//! without it. What was found may have been moved by then and its old place freed; a reader looks
//! once more, and at last while nothing can be freed. So it is told that an offset is out of range
//! only when that is so.

use base::UnixMillis;
use bytes::Bytes;
use journal::{JournalError, Position};

use super::{Partition, State, storage};
use crate::batch::{BatchHeader, HEADER_BYTES, LAST_DELTA_AT};
use crate::decode::BatchRecords;
use crate::error::StreamsError;
use crate::event_store::Isolation;
use crate::index::{Away, Located, Run};

/// A producer as a partition remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActiveProducer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    /// -1 when nothing of its epoch is remembered.
    pub(crate) last_sequence: i32,
    /// The time of its last batch in ms, -1 when that is not known.
    pub(crate) last_timestamp: i64,
    /// Where its open transaction begins, -1 for none.
    pub(crate) open_since: i64,
}

/// Whether a transaction's marker answers a lookup, as a record does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Markers {
    Count,
    Pass,
}

impl Partition {
    /// The first visible record or marker at or after `at`: its offset and time. One that lies
    /// before it where very many batches claim greater times than their records have; none only
    /// when there is none.
    pub fn offset_for_time(
        &self,
        isolation: Isolation,
        at: UnixMillis,
    ) -> Result<Option<(i64, UnixMillis)>, StreamsError> {
        let mut left = TIME_CANDIDATES;
        self.first_since(isolation, at, Markers::Count, &mut left)
    }

    /// As [`Partition::offset_for_time`], reading at most `left` batches, of which it takes those
    /// that it reads. The last of them answers when there is none left.
    fn first_since(
        &self,
        isolation: Isolation,
        at: UnixMillis,
        markers: Markers,
        left: &mut usize,
    ) -> Result<Option<(i64, UnixMillis)>, StreamsError> {
        let mut from = self.log_start_offset();
        loop {
            let found = self.while_moving(|| {
                let (start, end, found) = {
                    let state = self.state.lock();
                    let found = state.index.run_since_time(from, at.0);
                    (state.start, state.end(isolation), found)
                };
                let Some((run, next)) = found else {
                    return Ok(None);
                };
                let batches = self.batches_of(run, from)?;
                let batches: Vec<Located> = batches
                    .into_iter()
                    .filter(|batch| batch.max_timestamp >= at.0 && batch.base_offset < end)
                    .collect();
                Ok(Some((start, batches, next)))
            })?;
            let Some((start, batches, next)) = found else {
                return Ok(None);
            };
            for batch in batches {
                let found =
                    self.find_record(batch, markers, |offset, time| offset >= start && time >= at)?;
                *left = left.saturating_sub(1);
                let found = found.or((*left == 0).then(|| whole(batch)));
                if let Some((offset, time)) = found {
                    return Ok(Some((offset.max(start), time)));
                }
            }
            match next {
                Some(next) => from = next,
                None => return Ok(None),
            }
        }
    }

    /// The visible record with the greatest time (the first of them): its offset and time.
    pub fn offset_of_max_time(
        &self,
        isolation: Isolation,
    ) -> Result<Option<(i64, UnixMillis)>, StreamsError> {
        let found = self.while_moving(|| {
            let (start, found) = {
                let state = self.state.lock();
                self.check_alive(&state)?;
                let found = state.index.greatest_time(state.end(isolation));
                let found = found.and_then(|(time, offset)| {
                    let (run, _) = state.index.run_at(offset.max(state.start), usize::MAX)?;
                    Some((time, offset.max(state.start), run))
                });
                (state.start, found)
            };
            let Some((time, offset, run)) = found else {
                return Ok(None);
            };
            // This chunk alone: what comes behind it may be very much.
            let batches = self.batches_of(run, offset)?.into_iter();
            let batch = batches
                .into_iter()
                .find(|batch| batch.max_timestamp == time);
            Ok(Some((start, UnixMillis(time), batch)))
        })?;
        let Some((start, time, batch)) = found else {
            return Ok(None);
        };
        let record = match batch {
            Some(batch) => self.find_record(batch, Markers::Pass, |offset, at| {
                offset >= start && at >= time
            })?,
            None => None,
        };
        match record {
            // A marker is the newest of all and has no record; or the batch has expired, whose time
            // its chunk still tells.
            None => self.newest_before(isolation, time),
            found => Ok(found),
        }
    }

    /// As [`Partition::offset_of_max_time`], by bisecting: "there is a record at or after t" turns
    /// false once as t grows. What it has by the time it has read its share is near enough.
    fn newest_before(
        &self,
        isolation: Isolation,
        before: UnixMillis,
    ) -> Result<Option<(i64, UnixMillis)>, StreamsError> {
        let mut left = 2 * TIME_CANDIDATES;
        let mut best = self.first_since(isolation, UnixMillis(0), Markers::Pass, &mut left)?;
        let mut above = before.0.saturating_add(1);
        while let Some((_, time)) = best.filter(|(_, time)| time.0 < above - 1) {
            let middle = time.0 + (above - time.0) / 2;
            match self.first_since(isolation, UnixMillis(middle), Markers::Pass, &mut left)? {
                _ if left == 0 => break,
                None => above = middle,
                found => best = found,
            }
        }
        Ok(best)
    }

    /// The producers that are remembered, by id.
    pub(crate) fn active_producers(&self) -> Vec<ActiveProducer> {
        let state = self.state.lock();
        let producers = state.producers.all().into_iter();
        let told = producers.map(|(id, producer)| ActiveProducer {
            id,
            epoch: producer.epoch,
            last_sequence: producer.batches.back().map_or(-1, |batch| batch.last),
            last_timestamp: producer.last_timestamp,
            open_since: state.transactions.first_of(id).unwrap_or(-1),
        });
        told.collect()
    }

    /// Position of the oldest frame that holds something of this partition.
    pub(crate) fn first_position(&self) -> Option<Position> {
        let lowest = self.state.lock().index.lowest();
        // The frame begins a little before its batch; nothing else can lie in between.
        lowest.map(|lowest| Position(lowest.0 - super::BATCH_IN_FRAME))
    }

    /// Visible batches from the one that holds `offset`, up to `max_bytes` bytes; with
    /// `at_least_one` the first is among them even when it is larger.
    pub(super) fn locate(
        &self,
        isolation: Isolation,
        offset: i64,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Vec<Located>, StreamsError> {
        let (mut wanted, mut total) = (Vec::new(), 0_usize);
        let mut from = offset;
        loop {
            let (run, next, end) = {
                let state = self.state.lock();
                self.check_alive(&state)?;
                if from == offset {
                    state.check_range(offset)?;
                }
                let found = state.index.run_at(from, max_bytes.saturating_sub(total));
                let Some((run, next)) = found.filter(|_| from < state.end(isolation)) else {
                    return Ok(wanted);
                };
                (run, next, state.end(isolation))
            };
            for batch in self.batches_of(run, from)? {
                total = total.saturating_add(batch.bytes as usize);
                let fits = total <= max_bytes || (at_least_one && wanted.is_empty());
                if batch.base_offset >= end || !fits {
                    return Ok(wanted);
                }
                wanted.push(batch);
            }
            match next {
                Some(next) => from = next,
                None => return Ok(wanted),
            }
        }
    }

    /// Visible bytes from the batch that holds `offset` on, until they are `enough`. What chunks
    /// tell by themselves is not looked up batch by batch: this is asked at each append for which
    /// somebody waits.
    pub(crate) fn count_readable(
        &self,
        isolation: Isolation,
        offset: i64,
        enough: usize,
    ) -> Result<usize, StreamsError> {
        let (mut from, mut total) = (offset, 0_usize);
        loop {
            let (run, next, end) = {
                let state = self.state.lock();
                self.check_alive(&state)?;
                if from == offset {
                    state.check_range(offset)?;
                }
                let end = state.end(isolation);
                let left = enough.saturating_sub(total);
                let (bytes, at) = state.index.whole_chunks(from, end, left);
                total = total.saturating_add(bytes);
                let found = state.index.run_at(at, enough.saturating_sub(total));
                let Some((run, next)) = found.filter(|_| at < end && total < enough) else {
                    return Ok(total);
                };
                from = at;
                (run, next, end)
            };
            for batch in self.batches_of(run, from)? {
                if batch.base_offset >= end || total >= enough {
                    return Ok(total);
                }
                total = total.saturating_add(batch.bytes as usize);
            }
            match next {
                Some(next) => from = next,
                None => return Ok(total),
            }
        }
    }

    /// Where the chunk lies that holds `offset`, when it was put away.
    #[cfg(test)]
    pub(crate) fn chunk_away(&self, offset: i64) -> Option<Away> {
        match self.state.lock().index.run_at(offset, 0) {
            Some((Run::Away(away), _)) => Some(away),
            _ => None,
        }
    }

    /// The batch's bytes.
    pub(crate) fn fetch(&self, batch: Located) -> Result<Bytes, StreamsError> {
        let journal = &self.shared.journal;
        let bytes = journal.read(batch.position, batch.bytes as usize);
        bytes.map_err(storage)
    }

    /// The offset after the batch's last one.
    pub(crate) fn end_of(&self, batch: &Located) -> Result<i64, StreamsError> {
        let mut delta = [0; size_of::<i32>()];
        let at = Position(batch.position.0 + LAST_DELTA_AT);
        let journal = &self.shared.journal;
        journal.read_into(at, &mut delta).map_err(storage)?;
        Ok(batch.base_offset + i64::from(i32::from_be_bytes(delta)) + 1)
    }

    /// The batch's header, without its records.
    pub(crate) fn header_of(&self, batch: &Located) -> Result<BatchHeader, StreamsError> {
        let mut head = [0; HEADER_BYTES];
        let journal = &self.shared.journal;
        let read = journal.read_into(batch.position, &mut head);
        read.map_err(storage)?;
        Ok(BatchHeader::of_stored(&head, batch.bytes))
    }

    /// The bytes of a chunk that was put away.
    pub(super) fn fetch_chunk(&self, away: Away) -> Result<Bytes, StreamsError> {
        let payload = self.shared.journal.read_frame(away.position);
        let payload = payload.map_err(storage)?;
        match payload.len().checked_sub(away.bytes as usize) {
            Some(head) => Ok(payload.slice(head..)),
            None => Err(StreamsError::Unreadable(
                "a chunk of the index is cut short",
            )),
        }
    }

    /// Calls `read` again when what it found has moved in the journal meanwhile; `read` itself says
    /// so when what it looks for is not there any more.
    pub(crate) fn while_moving<T>(
        &self,
        mut read: impl FnMut() -> Result<T, StreamsError>,
    ) -> Result<T, StreamsError> {
        for _ in 0..MOVES_FOLLOWED {
            match read() {
                Err(StreamsError::Storage(error)) if is_reclaimed(&*error) => {}
                outcome => return outcome,
            }
        }
        let _nothing_goes = self.shared.freeing.lock();
        read()
    }

    fn batches_of(&self, run: Run, from: i64) -> Result<Vec<Located>, StreamsError> {
        match run {
            Run::Here(batches) => Ok(batches),
            Run::Away(away) => Run::fetched(&self.fetch_chunk(away)?, from).ok_or(
                StreamsError::Unreadable("a chunk of the index is not of its shape"),
            ),
        }
    }

    /// The bytes of a batch that was located a while ago; none when it has expired since.
    fn fetch_again(&self, batch: Located) -> Result<Option<Bytes>, StreamsError> {
        match self.fetch(batch) {
            Err(StreamsError::Storage(error)) if is_reclaimed(&*error) => {}
            bytes => return bytes.map(Some),
        }
        match self.read(Isolation::Uncommitted, batch.base_offset, 1, true) {
            Ok(batches) => Ok(batches.into_iter().next()),
            Err(StreamsError::OffsetOutOfRange { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn find_record(
        &self,
        batch: Located,
        markers: Markers,
        wanted: impl Fn(i64, UnixMillis) -> bool,
    ) -> Result<Option<(i64, UnixMillis)>, StreamsError> {
        let Some(bytes) = self.fetch_again(batch)? else {
            return Ok(None);
        };
        let whole_batch = Some(whole(batch));
        if markers == Markers::Count && BatchHeader::read(&bytes)?.is_control() {
            return Ok(whole_batch);
        }
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
}

impl State {
    /// The offset up to which the oldest records are older than `before`, whole batches only, by
    /// the batches of the first chunk; and when the first batch that is younger was made.
    pub(super) fn old_until(
        &self,
        batches: &[Located],
        before: UnixMillis,
        next: Option<i64>,
    ) -> (i64, Option<UnixMillis>) {
        let young = batches.iter().find(|batch| {
            // A batch without a time never grows old.
            batch.base_offset >= self.high
                || batch.max_timestamp < 0
                || batch.max_timestamp >= before.0
        });
        match young {
            Some(batch) if batch.base_offset < self.high => (
                batch.base_offset.max(self.start),
                Some(UnixMillis(batch.max_timestamp)),
            ),
            Some(_) => (self.high, None),
            None => (next.unwrap_or(self.high).min(self.high), None),
        }
    }
}

impl State {
    /// The offset up to which the oldest batches can go while `keep_bytes` stay, by the batches of
    /// the first chunk.
    pub(super) fn surplus_until(
        &self,
        batches: &[Located],
        keep_bytes: u64,
        next: Option<i64>,
    ) -> i64 {
        let mut left = self.index.bytes();
        for batch in batches {
            let after = left.saturating_sub(u64::from(batch.bytes));
            if after < keep_bytes || batch.base_offset >= self.high {
                return batch
                    .base_offset
                    .clamp(self.start, self.high.max(self.start));
            }
            left = after;
        }
        next.unwrap_or(self.high).min(self.high)
    }
}

/// A batch's first offset and greatest time.
fn whole(batch: Located) -> (i64, UnixMillis) {
    (batch.base_offset, UnixMillis(batch.max_timestamp))
}

pub(super) fn is_reclaimed(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(
        error.downcast_ref::<JournalError>(),
        Some(JournalError::Reclaimed { .. })
    )
}

/// Batches that a lookup by time may read: the first one nearly always holds the answer, and
/// batches that claim a greater time than their records have must not cost a whole scan.
const TIME_CANDIDATES: usize = 256;

/// How often a reader looks when what it looks for is moved under its hands, before it has the
/// freeing wait: moving the same batch takes a whole round through the journal, so that once more
/// is nearly always enough.
const MOVES_FOLLOWED: usize = 3;
