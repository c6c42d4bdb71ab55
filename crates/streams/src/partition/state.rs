//! What a partition holds in memory.

use std::sync::Arc;

use journal::Position;

use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::event_store::Isolation;
use crate::frames::PartitionStanding;
use crate::index::{BatchIndex, Located};
use crate::limits::COMPACTION_BYTES_MIN;
use crate::marker::Marker;
use crate::producers::Producers;
use crate::signal::Signal;
use crate::unsettled::Transactions;

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
    pub(super) dirty_bytes: u64,
    /// Bytes at which compaction is to be looked after.
    pub(super) compact_at_bytes: u64,
    pub(super) deleted: bool,
    /// The keeper was told that it holds more than it is to keep.
    pub(super) is_over: bool,
    pub(super) watchers: Vec<Arc<Signal>>,
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
                self.producers.note_marker(marker, header.max_timestamp);
                self.transactions.note_marker(marker, header.base_offset);
            }
            return Ok(());
        }
        self.producers
            .remember(header, header.base_offset, NOT_HEARD);
        self.transactions.note_batch(header, header.base_offset);
        self.records_in += u64::from(header.record_count.unsigned_abs());
        Ok(())
    }

    pub(super) fn tell_watchers(&self) {
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
    pub(super) fn is_due_for_compaction(&mut self) -> bool {
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

    /// Takes in the index of a snapshot, which may have been told a while before the front went.
    pub(crate) fn set_index(&mut self, index: BatchIndex) {
        self.index = index;
        self.index.forget_before(self.start, self.next);
    }

    pub(super) fn standing(&self, number: u32) -> PartitionStanding {
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
    pub(super) fn end(&self, isolation: Isolation) -> i64 {
        match isolation {
            Isolation::Uncommitted => self.high,
            Isolation::Committed => self.transactions.stable(self.high).max(self.start),
        }
    }

    pub(super) fn check_range(&self, offset: i64) -> Result<(), StreamsError> {
        if (self.start..=self.high).contains(&offset) {
            return Ok(());
        }
        Err(self.out_of_range(offset))
    }

    pub(super) fn out_of_range(&self, offset: i64) -> StreamsError {
        StreamsError::OffsetOutOfRange {
            offset,
            start: self.start,
            end: self.high,
        }
    }
}

pub(super) fn located(frame: Position, base_offset: i64, header: &BatchHeader) -> Located {
    Located {
        base_offset,
        position: Position(frame.0 + BATCH_IN_FRAME),
        bytes: u32::try_from(header.bytes).expect("a batch's length is an i32"),
        max_timestamp: header.max_timestamp,
    }
}

/// Where the batch starts in its frame: after the frame's header and the partition's number.
pub(crate) const BATCH_IN_FRAME: u64 = journal::FRAME_OVERHEAD_BYTES + 4;

/// When a producer was heard of that was found in the journal.
const NOT_HEARD: i64 = 0;
