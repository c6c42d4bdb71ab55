//! Moves what still lives in the journal's oldest segments to its end, so that those can go.
//!
//! All partitions share one journal, so one record that is kept for ever would keep everything
//! that was written after it. When more than half of the journal is dead, the living batches of
//! its first segments are appended once more and the indexes follow. What was moved is on the
//! disk, and a snapshot knows where, before a segment is freed; until then the old place is as
//! good, so an opening need not look at moved batches at all.

use std::collections::HashMap;

use journal::{Durability, Position};

use crate::error::StreamsError;
use crate::index::Located;
use crate::limits::MOVED_BYTES_MAX;
use crate::partition::{Partition, storage};
use crate::store::Streams;

impl Streams {
    /// Moves as much as pays now and answers how many bytes; the caller frees the segments. Beyond
    /// the half, `spare_segments` segments may be dead.
    pub(crate) fn move_living(&self, spare_segments: u64) -> Result<u64, StreamsError> {
        let _alone = self.reclaiming().lock();
        let topics = self.topics_snapshot();
        let partitions = || topics.iter().flat_map(|topic| topic.partitions());
        let living: u64 = partitions().map(|p| p.figures().bytes_stored).sum();
        let segments = self.shared().journal.segments();
        let mut taken: u64 = segments.iter().map(|s| s.end.0 - s.base.0).sum();
        let worth = 2 * living + spare_segments * self.config().segment_bytes.0;
        let mut moved = 0;
        for segment in segments.iter().take_while(|segment| segment.sealed) {
            if taken <= worth || moved >= MOVED_BYTES_MAX {
                break;
            }
            for partition in partitions() {
                let outcome = partition.move_from_before(segment.end);
                // Also after a failure: some may have been moved before it.
                self.note_moved(self.shared().journal.end());
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
    fn move_from_before(&self, limit: Position) -> Result<u64, StreamsError> {
        let mut moved = 0;
        loop {
            self.bring_chunks_back(limit)?;
            let batches = self.batches_before(limit, STEP_BYTES);
            if batches.is_empty() {
                return Ok(moved);
            }
            let mut edits = HashMap::new();
            for batch in batches {
                let position = self.append_moved(&self.fetch(batch)?)?;
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
}

/// Segments that may be dead beyond the half: a small store is not worth the trouble.
pub(crate) const SPARE_SEGMENTS: u64 = 4;

/// Bytes that are moved before the index follows.
const STEP_BYTES: usize = 1 << 20;
