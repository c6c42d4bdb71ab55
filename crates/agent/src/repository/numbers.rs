//! The numbers of FlowFiles: reserved on the disk before any is given out, many at a time.
//!
//! A number can get outside, as a file's name or a message's key, before anything durable says that
//! it was given out: the commit that made its FlowFile may be lost with the power, and in a volatile
//! repository there is none. So each start begins above all that was reserved before it.
//!
//! A disk without room at the start does not keep the agent from starting: the numbers are
//! reserved by the next commit that finds room.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::{Book, Repository};
use crate::AgentError;
use crate::engine::is_passing;

/// The first number that may be given out.
pub(super) fn next(book: &Book, replayed: u64) -> u64 {
    let reserved = book.states.get(NUMBERS_STATE);
    let reserved = reserved.and_then(|bytes| bytes.as_ref().try_into().ok());
    reserved.map_or(0, u64::from_be_bytes).max(replayed)
}

impl Repository {
    /// Reserves the next numbers; when this returns, the disk knows.
    ///
    /// Errors: as any commit, but for a disk without room.
    pub(super) fn reserve_numbers(&self) -> Result<(), AgentError> {
        // A commit meanwhile reserves none, and the one of this state is such a commit.
        self.reserve_due.store(u64::MAX, Ordering::Relaxed);
        let next = self.next_id.load(Ordering::Relaxed);
        let end = next.saturating_add(RESERVED);
        let saved = self.save_state(NUMBERS_STATE, Bytes::copy_from_slice(&end.to_be_bytes()));
        let due = match &saved {
            Ok(()) => next.saturating_add(RESERVED / 2),
            Err(_) => next,
        };
        self.reserve_due.store(due, Ordering::Relaxed);
        match saved {
            Err(error) if is_passing(&error) => {
                tracing::warn!(
                    error = base::report(&error),
                    "numbers of FlowFiles are reserved when there is room"
                );
                Ok(())
            }
            saved => saved,
        }
    }

    /// Reserves more when half of what is reserved was given out, and the disk is not full.
    pub(super) fn reserve_more(&self) -> Result<(), AgentError> {
        let due = self.reserve_due.load(Ordering::Relaxed);
        if self.next_id.load(Ordering::Relaxed) < due || self.journal.is_full() {
            return Ok(());
        }
        let claimed =
            self.reserve_due
                .compare_exchange(due, u64::MAX, Ordering::Relaxed, Ordering::Relaxed);
        match claimed {
            Ok(_) => self.reserve_numbers(),
            // Somebody else does.
            Err(_) => Ok(()),
        }
    }
}

/// States whose key is no processor id begin with a dollar sign.
const NUMBERS_STATE: &str = "$numbers";

/// Numbers reserved at once: a start takes no more of the 2^62 that a uuid has room for.
const RESERVED: u64 = 1 << 32;
