//! Takes some records out of a partition where others stay around them.
//!
//! As compaction does it: batches are rewritten, the index follows, and the next snapshot makes that
//! durable. The partition's last batch stays without records where none of its records does, as it
//! tells where the partition ends. What a transaction has not decided yet stays.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use journal::Position;

use super::rewrite::{Rewritten, emptied};
use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::index::Located;
use crate::partition::Partition;

/// What was taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Purged {
    /// Batches that are other ones now, or none.
    pub(crate) batches: u64,
    pub(crate) bytes_before: u64,
    pub(crate) bytes_after: u64,
}

impl Partition {
    /// Has `sift` say what becomes of each batch with offsets in `within`. Blocks on the journal.
    pub(crate) fn purge(
        &self,
        within: Range<i64>,
        mut sift: impl FnMut(&Bytes) -> Result<Rewritten, StreamsError>,
    ) -> Result<Purged, StreamsError> {
        self.bring_chunks_back(Position(u64::MAX))?;
        let (_, _, _, end) = self.compactable();
        let mut purged = Purged::default();
        let (mut from, until) = (0, end.min(within.end));
        while from < until {
            let (batches, next) = self.batches_between(from, until);
            let mut edits = HashMap::new();
            let mut uncovered = None;
            for (at, batch) in batches.iter().enumerate() {
                let behind = batches.get(at + 1).map(|batch| batch.base_offset);
                if behind.or(next).is_some_and(|end| end <= within.start) {
                    continue;
                }
                let before = uncovered.take();
                let bytes = self.fetch(*batch)?;
                // The index may have it begin where those before it did that are gone.
                if BatchHeader::read(&bytes)?.base_offset >= until {
                    continue;
                }
                let left = match sift(&bytes)? {
                    Rewritten::Unchanged => continue,
                    Rewritten::Batch(left) => Some(left),
                    Rewritten::Gone if behind.or(next).is_none() => Some(emptied(&bytes)?),
                    Rewritten::Gone => {
                        uncovered = before.or(Some(batch.base_offset));
                        None
                    }
                };
                if left.as_ref() == Some(&bytes) {
                    continue;
                }
                purged.batches += 1;
                purged.bytes_before += u64::from(batch.bytes);
                let edit: Option<Located> = match left {
                    Some(left) => self.moved(*batch, &left)?.flatten(),
                    None => None,
                };
                purged.bytes_after += edit.map_or(0, |batch| u64::from(batch.bytes));
                edits.insert((batch.base_offset, batch.position), edit);
            }
            self.settle(&edits)?;
            // The index has the batch behind those that are gone begin where they did.
            match next {
                Some(next) => from = uncovered.unwrap_or(next),
                None => break,
            }
        }
        Ok(purged)
    }
}
