//! Moves what still lives in the journal's oldest segments to its end, so that those can go.
//!
//! All partitions share one journal, so one record that is kept for ever would keep everything
//! that was written after it. When more than half of the journal is dead, the living batches of
//! its first segments are appended once more and the indexes follow. What was moved is on the
//! disk, and a snapshot knows where, before a segment is freed; until then the old place is as
//! good, so an opening need not look at moved batches at all.
//!
//! On a full disk only as much moves as the journal's reserve holds, whole segments at a time.

use std::collections::HashMap;

use journal::{Durability, Position};

use crate::error::StreamsError;
use crate::index::Located;
use crate::limits::MOVED_BYTES_MAX;
use crate::partition::{BATCH_IN_FRAME, Partition, storage};
use crate::store::Streams;

impl Streams {
    /// Moves as much as pays now and answers how many bytes; the caller frees the segments. Beyond
    /// the half, `spare_segments` segments may be dead.
    pub(crate) fn move_living(&self, spare_segments: u64) -> Result<u64, StreamsError> {
        let _alone = self.reclaiming().lock();
        let journal = &self.shared().journal;
        // On a full disk the reserve is taken, but for the snapshot that has to follow.
        let mut vital = None;
        let spare_segments = if journal.is_full() {
            let room = journal.room_ahead();
            vital = Some(room.saturating_sub(self.snapshot_estimate()?));
            0
        } else {
            spare_segments
        };
        let topics = self.topics_snapshot();
        let partitions = || topics.iter().flat_map(|topic| topic.partitions());
        let living: u64 = partitions().map(|p| p.figures().bytes_stored).sum();
        let segments = journal.segments();
        if let (Some(room), Some(first)) = (vital, segments.first())
            && !first.sealed
        {
            // What is dead in it goes with the whole of it only, and only when it is sealed.
            let mut needed = ROLLED_BYTES;
            for partition in partitions() {
                needed += partition.framed_before(first.end)?;
            }
            if needed <= room && first.end.0 - first.base.0 > 2 * living {
                journal.seal_early();
            }
            return Ok(0);
        }
        let mut taken: u64 = segments.iter().map(|s| s.end.0 - s.base.0).sum();
        let worth = 2 * living + spare_segments * self.config().segment_bytes.0;
        let mut moved = 0;
        for segment in segments.iter().take_while(|segment| segment.sealed) {
            if taken <= worth || moved >= MOVED_BYTES_MAX {
                break;
            }
            if let Some(left) = &mut vital {
                let mut needed = 0;
                for partition in partitions() {
                    needed += partition.framed_before(segment.end)?;
                }
                let Some(rest) = left.checked_sub(needed) else {
                    break;
                };
                *left = rest;
            }
            for partition in partitions() {
                let outcome = partition.move_from_before(segment.end, vital.is_some());
                // Also after a failure: some may have been moved before it.
                if !matches!(outcome, Ok(0)) {
                    self.note_moved(journal.end());
                }
                let bytes = outcome?;
                (moved, taken) = (moved + bytes, taken + bytes);
            }
            taken -= segment.end.0 - segment.base.0;
        }
        Ok(moved)
    }
}

impl Partition {
    /// Moves the batches that lie before `limit` to the journal's end; answers their bytes.
    /// Blocks on the journal.
    fn move_from_before(&self, limit: Position, is_vital: bool) -> Result<u64, StreamsError> {
        let mut moved = 0;
        loop {
            self.bring_chunks_back(limit)?;
            let batches = self.batches_before(limit, STEP_BYTES);
            if batches.is_empty() {
                return Ok(moved);
            }
            let mut edits = HashMap::new();
            for batch in batches {
                let position = self.append_moved_as(is_vital, &self.fetch(batch)?)?;
                let edited = Located { position, ..batch };
                edits.insert((batch.base_offset, batch.position), Some(edited));
                moved += u64::from(batch.bytes);
            }
            // Nobody may be sent to where the bytes are not yet.
            self.journal()
                .append_blocking(&[], Durability::Os)
                .map_err(storage)?;
            self.edit_index(&edits);
        }
    }

    /// Bytes that [`Partition::move_from_before`] appends.
    fn framed_before(&self, limit: Position) -> Result<u64, StreamsError> {
        self.bring_chunks_back(limit)?;
        let batches = self.batches_before(limit, usize::MAX);
        let framed = batches
            .iter()
            .map(|batch| u64::from(batch.bytes) + BATCH_IN_FRAME);
        Ok(framed.sum())
    }
}

/// Segments that may be dead beyond the half: a small store is not worth the trouble.
pub(crate) const SPARE_SEGMENTS: u64 = 4;

/// Room that is lost to the blocks and headers of a segment that is sealed early.
const ROLLED_BYTES: u64 = 13 << 10;

/// Bytes that are moved before the index follows.
const STEP_BYTES: usize = 1 << 20;
