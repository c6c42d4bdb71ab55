//! What a transaction writes into the journal; integers as in the store's other frames.
//!
//! | kind | version 1 payload, behind the transactional id's text |
//! | --- | --- |
//! | 10 stands | producer, last producer, time-out ms `u32`, phase `u8`, marker, started `i64`, touched `i64`, partition numbers, groups |
//! | 11 joins | at `i64`, partition numbers |
//! | 12 offsets | at `i64`, group text, entries as in a group's offsets |
//! | 13 decided | at `i64`, outcome `u8`, marker, next producer |
//! | 14 completed | at `i64` |
//! | 51 forgotten | |
//!
//! A producer is its id `i64` and epoch `i16`; -1 and -1 for none, an epoch of -1 for a last one
//! that nobody may come back as. Frame 10 replaces what is known
//! of the id, its offsets included, which a snapshot repeats in frames 12.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use super::{Outcome, Phase, ProducerIdentity};
use crate::error::StreamsError;
use crate::event_store::CommittedOffset;
use crate::frames::{DAMAGED, Payload, kind, put_committed, put_count, put_i64, put_text, put_u32};

/// A change of one transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransactionChange {
    /// How it stands, but for its offsets.
    Stands(Standing),
    /// Partitions join; the transaction is open from `at` on if it was not.
    Joins { at: UnixMillis, numbers: Vec<u32> },
    /// A group joins, with these offsets.
    Offsets {
        at: UnixMillis,
        group: Arc<str>,
        offsets: Vec<(u32, CommittedOffset)>,
    },
    /// It ends; its offsets count from here on.
    Decided {
        at: UnixMillis,
        outcome: Outcome,
        /// Who the markers speak of.
        marker: ProducerIdentity,
        /// Who the producer is from now on.
        next: ProducerIdentity,
    },
    /// All markers are written.
    Completed { at: UnixMillis },
    /// Nobody has used the id for long: it is as if it had never been.
    Forgotten,
}

/// A transactional id but for its offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) producer: ProducerIdentity,
    /// Who the producer was before; without an epoch when that was an older instance.
    pub(crate) last: Option<ProducerIdentity>,
    pub(crate) timeout: Duration,
    pub(crate) phase: Phase,
    /// Who the markers speak of while it is ending.
    pub(crate) marker: ProducerIdentity,
    /// When the transaction was opened.
    pub(crate) started: UnixMillis,
    /// When something last changed.
    pub(crate) touched: UnixMillis,
    pub(crate) partitions: BTreeSet<u32>,
    pub(crate) groups: BTreeSet<Arc<str>>,
}

impl Standing {
    /// A producer that has written nothing yet.
    pub(crate) fn fresh(
        now: UnixMillis,
        timeout: Duration,
        producer: ProducerIdentity,
        last: Option<ProducerIdentity>,
    ) -> Self {
        Standing {
            producer,
            last,
            timeout,
            phase: Phase::Empty,
            marker: producer,
            started: now,
            touched: now,
            partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
        }
    }

    /// Opens the transaction if it is not.
    pub(crate) fn open(&mut self, at: UnixMillis) {
        if self.phase != Phase::Ongoing {
            self.phase = Phase::Ongoing;
            self.started = at;
            self.partitions = BTreeSet::new();
        }
        self.touched = at;
    }
}

impl TransactionChange {
    /// Writes the payload; answers the frame's kind.
    pub(crate) fn encode(&self, id: &str, out: &mut Vec<u8>) -> u8 {
        put_text(out, id);
        match self {
            TransactionChange::Stands(standing) => {
                put_standing(out, standing);
                kind::TRANSACTION
            }
            TransactionChange::Joins { at, numbers } => {
                put_i64(out, at.0);
                put_count(out, numbers.len());
                numbers.iter().for_each(|number| put_u32(out, *number));
                kind::TRANSACTION_JOINS
            }
            TransactionChange::Offsets { at, group, offsets } => {
                put_i64(out, at.0);
                put_text(out, group);
                put_count(out, offsets.len());
                for (number, committed) in offsets {
                    put_u32(out, *number);
                    put_committed(out, committed);
                }
                kind::TRANSACTION_OFFSETS
            }
            TransactionChange::Decided {
                at,
                outcome,
                marker,
                next,
            } => {
                put_i64(out, at.0);
                out.push(u8::from(*outcome == Outcome::Commit));
                put_producer(out, Some(*marker));
                put_producer(out, Some(*next));
                kind::TRANSACTION_DECIDED
            }
            TransactionChange::Completed { at } => {
                put_i64(out, at.0);
                kind::TRANSACTION_COMPLETED
            }
            TransactionChange::Forgotten => kind::TRANSACTION_FORGOTTEN,
        }
    }

    /// Reads a payload back.
    pub(crate) fn decode(
        kind: u8,
        from: &mut Payload<'_>,
    ) -> Result<(Arc<str>, Self), StreamsError> {
        let id = Arc::from(from.text()?);
        let change = match kind {
            kind::TRANSACTION => TransactionChange::Stands(standing(from)?),
            kind::TRANSACTION_JOINS => TransactionChange::Joins {
                at: UnixMillis(from.i64()?),
                numbers: numbers(from)?,
            },
            kind::TRANSACTION_OFFSETS => {
                let at = UnixMillis(from.i64()?);
                let group = Arc::from(from.text()?);
                let mut offsets = Vec::new();
                for _ in 0..from.count()? {
                    offsets.push((from.u32()?, from.committed()?));
                }
                TransactionChange::Offsets { at, group, offsets }
            }
            kind::TRANSACTION_DECIDED => TransactionChange::Decided {
                at: UnixMillis(from.i64()?),
                outcome: outcome(from.flag()?),
                marker: producer(from)?.ok_or(DAMAGED)?,
                next: producer(from)?.ok_or(DAMAGED)?,
            },
            kind::TRANSACTION_FORGOTTEN => TransactionChange::Forgotten,
            _ => TransactionChange::Completed {
                at: UnixMillis(from.i64()?),
            },
        };
        Ok((id, change))
    }
}

fn put_standing(out: &mut Vec<u8>, standing: &Standing) {
    put_producer(out, Some(standing.producer));
    put_producer(out, standing.last);
    let timeout = standing.timeout.as_millis();
    put_u32(out, u32::try_from(timeout).unwrap_or(u32::MAX));
    out.push(match standing.phase {
        Phase::Empty => 0,
        Phase::Ongoing => 1,
        Phase::Ending(Outcome::Commit) => 2,
        Phase::Ending(Outcome::Abort) => 3,
        Phase::Ended(Outcome::Commit) => 4,
        Phase::Ended(Outcome::Abort) => 5,
    });
    put_producer(out, Some(standing.marker));
    put_i64(out, standing.started.0);
    put_i64(out, standing.touched.0);
    put_count(out, standing.partitions.len());
    for number in &standing.partitions {
        put_u32(out, *number);
    }
    put_count(out, standing.groups.len());
    for group in &standing.groups {
        put_text(out, group);
    }
}

fn standing(from: &mut Payload<'_>) -> Result<Standing, StreamsError> {
    Ok(Standing {
        producer: producer(from)?.ok_or(DAMAGED)?,
        last: producer(from)?,
        timeout: Duration::from_millis(from.u32()?.into()),
        phase: match from.array()? {
            [0] => Phase::Empty,
            [1] => Phase::Ongoing,
            [2] => Phase::Ending(Outcome::Commit),
            [3] => Phase::Ending(Outcome::Abort),
            [4] => Phase::Ended(Outcome::Commit),
            [5] => Phase::Ended(Outcome::Abort),
            _ => return Err(DAMAGED),
        },
        marker: producer(from)?.ok_or(DAMAGED)?,
        started: UnixMillis(from.i64()?),
        touched: UnixMillis(from.i64()?),
        partitions: numbers(from)?.into_iter().collect(),
        groups: {
            let mut groups = BTreeSet::new();
            for _ in 0..from.count()? {
                groups.insert(Arc::from(from.text()?));
            }
            groups
        },
    })
}

fn put_producer(out: &mut Vec<u8>, producer: Option<ProducerIdentity>) {
    let (id, epoch) = producer.map_or((-1, -1), |producer| (producer.id, producer.epoch));
    put_i64(out, id);
    out.extend_from_slice(&epoch.to_le_bytes());
}

fn producer(from: &mut Payload<'_>) -> Result<Option<ProducerIdentity>, StreamsError> {
    let id = from.i64()?;
    let epoch = i16::from_le_bytes(from.array()?);
    Ok((id >= 0).then_some(ProducerIdentity { id, epoch }))
}

fn numbers(from: &mut Payload<'_>) -> Result<Vec<u32>, StreamsError> {
    let mut numbers = Vec::new();
    for _ in 0..from.count()? {
        numbers.push(from.u32()?);
    }
    Ok(numbers)
}

fn outcome(is_commit: bool) -> Outcome {
    if is_commit {
        Outcome::Commit
    } else {
        Outcome::Abort
    }
}
