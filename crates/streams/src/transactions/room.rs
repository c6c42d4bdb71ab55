//! What transactions take in memory while they are open, and the bounds on it.
//!
//! Partitions, groups and offsets wait in memory until their transaction ends, which is a client's
//! to decide for as long as its time-out lets it. So they are counted, as they come and as they go,
//! and what would exceed the bound is refused until others have ended.

use super::frames::TransactionChange;
use super::transaction::Transaction;
use super::{Phase, TransactionError};
use crate::error::StreamsError;
use crate::limits::TRANSACTION_GROUPS_MAX;
use crate::offsets::bytes_of;

impl Transaction {
    /// About what its partitions, groups and offsets take.
    pub(super) fn count_bytes(&self) -> usize {
        let partitions = self.standing.partitions.len() * PARTITION_BYTES;
        let groups = self.offsets.iter().map(|(group, offsets)| {
            let offsets = offsets.values().map(bytes_of);
            group_bytes(group) + offsets.sum::<usize>()
        });
        partitions + groups.sum::<usize>()
    }

    /// How many bytes more than now it takes after this change, at most.
    pub(super) fn growth(&self, change: &TransactionChange) -> usize {
        match change {
            TransactionChange::Joins { numbers, .. } => numbers.len() * PARTITION_BYTES,
            TransactionChange::Offsets { group, offsets, .. } => {
                let known = self.offsets.get(group);
                let coming: usize = offsets.iter().map(|(_, offset)| bytes_of(offset)).sum();
                let replaced = offsets.iter().filter_map(|(number, _)| known?.get(number));
                let going: usize = replaced.map(bytes_of).sum();
                let new_group = known.map_or_else(|| group_bytes(group), |_| 0);
                new_group + coming.saturating_sub(going)
            }
            TransactionChange::Stands(_)
            | TransactionChange::Decided { .. }
            | TransactionChange::Completed { .. }
            | TransactionChange::Forgotten => 0,
        }
    }

    /// Refuses a group more than a transaction may have.
    pub(super) fn check_groups(&self, change: &TransactionChange) -> Result<(), StreamsError> {
        let TransactionChange::Offsets { group, .. } = change else {
            return Ok(());
        };
        let is_open = self.standing.phase == Phase::Ongoing;
        let is_full = is_open && self.offsets.len() >= TRANSACTION_GROUPS_MAX;
        if is_full && !self.offsets.contains_key(group) {
            return Err(StreamsError::Limit {
                what: "groups in one transaction",
                max: TRANSACTION_GROUPS_MAX as u64,
            });
        }
        Ok(())
    }
}

/// Checks that `growth` more bytes fit beside the `held` ones.
pub(super) fn check(held: usize, growth: usize, max: usize) -> Result<(), TransactionError> {
    if growth > 0 && held.saturating_add(growth) > max {
        return Err(TransactionError::NoRoom);
    }
    Ok(())
}

/// What a group without offsets takes.
pub(super) fn group_bytes(group: &str) -> usize {
    GROUP_BYTES + group.len()
}

/// What a partition takes in the set of them, in bytes.
pub(super) const PARTITION_BYTES: usize = 8;

/// What a group takes beside its name and its offsets, in bytes: its places in three maps, and a map
/// of its own.
const GROUP_BYTES: usize = 768;
