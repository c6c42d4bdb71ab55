//! Transactions: one producer's records in many partitions, and its groups' offsets, count
//! together or not at all.
//!
//! [`transaction`] decides as a state machine without IO, [`table`] holds all of them with their
//! deadlines and [`room`] bounds what they take, [`coordinator`] lets calls at it and writes the journal, [`sweeper`] aborts what has
//! timed out and forgets ids that nobody uses. Everything that a transaction goes through is one
//! frame, and since one journal has one order, the order does what other systems need a protocol
//! for:
//!
//! - A partition joins before its first batch of the transaction, so whatever a crash keeps of the
//!   batches, it keeps the knowledge that they belong to an open transaction.
//! - Offsets are on the disk before their producer hears that they were taken: it may outlive the
//!   process, and ends the transaction without sending them again.
//! - The decision is one frame; the offsets of its groups count from that very frame on.
//! - Markers stand behind the decision. A crash between them leaves a decided transaction, and
//!   opening the store appends the markers that are missing. What has no decision stays open, and
//!   its time goes on.
//!
//! A write is checked against the transaction under the same lock that decides its end, so no
//! batch slips in behind its marker and none is left hanging.

mod coordinator;
pub(crate) mod frames;
mod room;
mod sweeper;
pub(crate) mod table;
mod transaction;

use std::time::Duration;

use base::{HumanDuration, UnixMillis};

pub use coordinator::TransactionDescription;
pub(crate) use coordinator::Transactions;
pub(crate) use sweeper::start;
pub(crate) use transaction::Transaction;

/// A producer in one of its lives; a newer epoch fences the older ones off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProducerIdentity {
    /// Its id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it counts.
    Commit,
    /// None of it counts.
    Abort,
}

/// Which of Kafka's transaction protocols a call speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionProtocol {
    /// Partitions and groups are added before they are used; the epoch stays.
    Explicit,
    /// Use adds them, and each end gives the producer a new epoch (KIP-890).
    Implicit,
}

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was written since the producer was introduced.
    Empty,
    /// It is open.
    Ongoing,
    /// It is decided; markers are still to be written.
    Ending(Outcome),
    /// It is over.
    Ended(Outcome),
}

/// Why a call on a transaction was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The id is empty or too long; the caller's fault.
    #[error("a transactional id has 1 to {TRANSACTIONAL_ID_BYTES_MAX} bytes")]
    InvalidId,
    /// The time-out is not positive, or longer than allowed; the caller's fault.
    #[error("a transaction's time-out is 1 ms to {}", HumanDuration(*max))]
    InvalidTimeout {
        /// The longest that is allowed.
        max: Duration,
    },
    /// Nobody has this transactional id.
    #[error("no producer has this transactional id")]
    UnknownId,
    /// The transactional id belongs to another producer id.
    #[error("the transactional id belongs to another producer")]
    OtherProducer,
    /// A newer instance of the producer has taken over; the caller must stop.
    #[error("a newer instance of the producer has taken over")]
    Fenced,
    /// The transaction is being ended; worth a retry in a moment.
    #[error("the transaction is being ended: retry in a moment")]
    Concurrent,
    /// The call does not fit where the transaction stands.
    #[error("the transaction is {0}")]
    InvalidState(&'static str),
    /// All open transactions together take as much memory as they may; worth a retry in a moment,
    /// once others have ended.
    #[error("open transactions take as much memory as they may: retry when some have ended")]
    NoRoom,
    /// The partition or group is not part of the transaction.
    #[error("it was not added to the transaction")]
    NotJoined,
}

impl Phase {
    /// Kafka's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Empty => "Empty",
            Phase::Ongoing => "Ongoing",
            Phase::Ending(Outcome::Commit) => "PrepareCommit",
            Phase::Ending(Outcome::Abort) => "PrepareAbort",
            Phase::Ended(Outcome::Commit) => "CompleteCommit",
            Phase::Ended(Outcome::Abort) => "CompleteAbort",
        }
    }
}

/// Checks what a producer asks for when it introduces itself.
pub(crate) fn check_init(
    id: &str,
    timeout: Duration,
    max: Duration,
) -> Result<(), TransactionError> {
    if id.is_empty() || id.len() > TRANSACTIONAL_ID_BYTES_MAX {
        return Err(TransactionError::InvalidId);
    }
    if timeout.is_zero() || timeout > max {
        return Err(TransactionError::InvalidTimeout { max });
    }
    Ok(())
}

/// When a transaction that began at `started` is aborted.
fn deadline(started: UnixMillis, timeout: Duration) -> UnixMillis {
    started + timeout
}

/// Longest transactional id, in bytes: above any sane name, below what would bloat a frame.
const TRANSACTIONAL_ID_BYTES_MAX: usize = 1_024;
