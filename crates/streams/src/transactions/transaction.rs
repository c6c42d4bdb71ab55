//! One transactional id as a state machine: calls and the time go in, changes come out.
//!
//! A call decides and changes nothing; what it decides is a [`TransactionChange`], which is written
//! to the journal and then applied, the same way whether it happens now or is replayed.
//!
//! Source: Kafka's transaction protocol (KIP-98, KIP-360 for producers that come back with their
//! identity, KIP-890 for the second version).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use super::frames::{Standing, TransactionChange};
use super::room::{PARTITION_BYTES, group_bytes};
use super::{
    Outcome, Phase, ProducerIdentity, TransactionError, TransactionProtocol as Protocol, deadline,
};
use crate::event_store::CommittedOffset;
use crate::offsets::bytes_of;

/// The offsets of a transaction's groups, by group and partition number.
pub(crate) type PendingOffsets = BTreeMap<Arc<str>, BTreeMap<u32, CommittedOffset>>;

/// A producer's transaction, or its pause between two.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) standing: Standing,
    pub(crate) offsets: PendingOffsets,
    /// About what its partitions, groups and offsets take.
    pub(super) bytes: usize,
}

/// What an introduction comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Init {
    /// The producer's epochs are used up: ask again with a fresh producer id.
    NeedsId,
    /// The open transaction is aborted first; then ask again.
    Abort(TransactionChange),
    /// The producer gets this identity.
    Begin(TransactionChange),
    /// The same call was answered before; the answer may have been lost.
    Again(ProducerIdentity),
}

/// What a wish to end comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The producer's epochs are used up: ask again with a fresh producer id.
    NeedsId,
    /// The decision.
    Decide(TransactionChange),
    /// It ended this way before; the answer may have been lost.
    Again(ProducerIdentity),
}

impl Transaction {
    /// As a frame tells it.
    pub(crate) fn of(standing: Standing) -> Self {
        let groups = standing.groups.iter();
        let mut transaction = Transaction {
            offsets: groups.map(|g| (Arc::clone(g), BTreeMap::new())).collect(),
            standing,
            bytes: 0,
        };
        transaction.bytes = transaction.count_bytes();
        transaction
    }

    /// A producer that nobody knows introduces itself.
    pub(crate) fn first(now: UnixMillis, timeout: Duration, fresh_id: i64) -> TransactionChange {
        let producer = ProducerIdentity {
            id: fresh_id,
            epoch: 0,
        };
        TransactionChange::Stands(Standing::fresh(now, timeout, producer, None))
    }

    /// A producer introduces itself again, perhaps with the identity that it had.
    pub(crate) fn init(
        &self,
        now: UnixMillis,
        timeout: Duration,
        given: Option<ProducerIdentity>,
        fresh_id: Option<i64>,
    ) -> Result<Init, TransactionError> {
        let standing = &self.standing;
        let is_current = given.is_none_or(|given| given == standing.producer);
        if !is_current && !given.is_some_and(|given| self.was(given)) {
            return Err(TransactionError::Fenced);
        }
        match standing.phase {
            Phase::Ending(_) => Err(TransactionError::Concurrent),
            // Who comes with an older identity while a newer one is writing is a zombie.
            Phase::Ongoing if !is_current => Err(TransactionError::Fenced),
            Phase::Ongoing => Ok(Init::Abort(self.abort_and_fence(now))),
            Phase::Empty | Phase::Ended(_) if !is_current => Ok(Init::Again(standing.producer)),
            Phase::Empty | Phase::Ended(_) => {
                let Some(producer) = bumped(standing.producer, fresh_id) else {
                    return Ok(Init::NeedsId);
                };
                let last = match given {
                    Some(given) => given,
                    // Whoever was the producer before may not go on as the new instance.
                    None => ProducerIdentity {
                        epoch: NO_EPOCH,
                        ..standing.producer
                    },
                };
                let standing = Standing::fresh(now, timeout, producer, Some(last));
                Ok(Init::Begin(TransactionChange::Stands(standing)))
            }
        }
    }

    /// Adds partitions; none when all are there.
    pub(crate) fn join(
        &self,
        now: UnixMillis,
        who: ProducerIdentity,
        numbers: &[u32],
    ) -> Result<Option<TransactionChange>, TransactionError> {
        self.check_open(who)?;
        let is_known = |number: &u32| self.standing.partitions.contains(number);
        if self.standing.phase == Phase::Ongoing && numbers.iter().all(is_known) {
            return Ok(None);
        }
        let numbers = numbers.iter().copied();
        let numbers = numbers.filter(|number| !is_known(number)).collect();
        Ok(Some(TransactionChange::Joins { at: now, numbers }))
    }

    /// Lets a batch into a partition, which joins when the protocol says so.
    pub(crate) fn write(
        &self,
        now: UnixMillis,
        protocol: Protocol,
        who: ProducerIdentity,
        number: u32,
    ) -> Result<Option<TransactionChange>, TransactionError> {
        self.check_open(who)?;
        let is_ongoing = self.standing.phase == Phase::Ongoing;
        if is_ongoing && self.standing.partitions.contains(&number) {
            return Ok(None);
        }
        match protocol {
            Protocol::Explicit => Err(TransactionError::NotJoined),
            Protocol::Implicit => self.join(now, who, &[number]),
        }
    }

    /// Adds a group; none when it is there.
    pub(crate) fn join_group(
        &self,
        now: UnixMillis,
        who: ProducerIdentity,
        group: &str,
    ) -> Result<Option<TransactionChange>, TransactionError> {
        self.check_open(who)?;
        if self.standing.phase == Phase::Ongoing && self.offsets.contains_key(group) {
            return Ok(None);
        }
        Ok(Some(offsets_change(now, group, Vec::new())))
    }

    /// Takes offsets of a group, which joins when the protocol says so.
    pub(crate) fn commit_offsets(
        &self,
        now: UnixMillis,
        protocol: Protocol,
        who: ProducerIdentity,
        group: &str,
        offsets: Vec<(u32, CommittedOffset)>,
    ) -> Result<TransactionChange, TransactionError> {
        self.check_open(who)?;
        let is_joined = self.standing.phase == Phase::Ongoing && self.offsets.contains_key(group);
        if !is_joined && protocol == Protocol::Explicit {
            return Err(TransactionError::NotJoined);
        }
        Ok(offsets_change(now, group, offsets))
    }

    /// Ends it at its producer's wish.
    pub(crate) fn end(
        &self,
        now: UnixMillis,
        protocol: Protocol,
        who: ProducerIdentity,
        outcome: Outcome,
        fresh_id: Option<i64>,
    ) -> Result<End, TransactionError> {
        let standing = &self.standing;
        let bumps = protocol == Protocol::Implicit;
        if bumps && self.was(who) && standing.producer != who {
            return match standing.phase {
                Phase::Ended(ended) if ended == outcome => Ok(End::Again(standing.producer)),
                Phase::Ending(ending) if ending == outcome => Err(TransactionError::Concurrent),
                _ => Err(TransactionError::Fenced),
            };
        }
        self.check_producer(who)?;
        match standing.phase {
            Phase::Ending(ending) if ending == outcome => Err(TransactionError::Concurrent),
            Phase::Ending(_) => Err(TransactionError::InvalidState("being ended the other way")),
            Phase::Ended(ended) if !bumps && ended == outcome => Ok(End::Again(standing.producer)),
            // The second protocol may abort without knowing whether anything was written.
            Phase::Empty | Phase::Ended(_) if !bumps || outcome == Outcome::Commit => {
                Err(TransactionError::InvalidState("not open"))
            }
            Phase::Empty | Phase::Ended(_) | Phase::Ongoing => {
                Ok(self.decide(now, bumps, outcome, fresh_id))
            }
        }
    }

    /// The abort that is due, when its time is over.
    pub(crate) fn expire(&self, now: UnixMillis) -> Option<TransactionChange> {
        let due = self.deadline()? <= now;
        due.then(|| self.abort_and_fence(now))
    }

    /// When it is aborted, while it is open.
    pub(crate) fn deadline(&self) -> Option<UnixMillis> {
        let is_open = self.standing.phase == Phase::Ongoing;
        is_open.then(|| deadline(self.standing.started, self.standing.timeout))
    }

    /// Since when nobody uses it, while nothing of it is open or being ended.
    pub(crate) fn idle_since(&self) -> Option<UnixMillis> {
        match self.standing.phase {
            Phase::Empty | Phase::Ended(_) => Some(self.standing.touched),
            Phase::Ongoing | Phase::Ending(_) => None,
        }
    }

    /// Takes in a change; answers the offsets that count from now on.
    pub(crate) fn apply(&mut self, change: TransactionChange) -> PendingOffsets {
        let goes_on = self.standing.phase == Phase::Ongoing;
        let adds = matches!(
            &change,
            TransactionChange::Joins { .. } | TransactionChange::Offsets { .. }
        );
        let counts = self.take_in(change);
        // Counting all of it at each addition would make many of them dear.
        if !(goes_on && adds) {
            self.bytes = self.count_bytes();
        }
        counts
    }

    fn take_in(&mut self, change: TransactionChange) -> PendingOffsets {
        let standing = &mut self.standing;
        match change {
            TransactionChange::Stands(stands) => {
                // A snapshot tells an open transaction in several frames; where a crash cut them
                // off, the offsets that were told before are still right.
                let is_same = stands.phase == Phase::Ongoing
                    && standing.phase == Phase::Ongoing
                    && (stands.producer, stands.started) == (standing.producer, standing.started);
                let known = std::mem::take(&mut self.offsets);
                *self = Transaction::of(stands);
                if is_same {
                    self.offsets.extend(known);
                }
            }
            TransactionChange::Joins { at, numbers } => {
                standing.open(at);
                let before = standing.partitions.len();
                standing.partitions.extend(numbers);
                self.bytes += (standing.partitions.len() - before) * PARTITION_BYTES;
            }
            TransactionChange::Offsets { at, group, offsets } => {
                standing.open(at);
                standing.groups.insert(Arc::clone(&group));
                self.hold(group, offsets);
            }
            TransactionChange::Decided {
                at,
                outcome,
                marker,
                next,
            } => {
                if standing.producer != next {
                    standing.last = Some(standing.producer);
                    standing.producer = next;
                }
                standing.phase = Phase::Ending(outcome);
                standing.marker = marker;
                standing.touched = at;
                standing.groups = BTreeSet::new();
                let mut offsets = std::mem::take(&mut self.offsets);
                if outcome == Outcome::Commit {
                    // A group that was only added has committed nothing.
                    offsets.retain(|_, offsets| !offsets.is_empty());
                    return offsets;
                }
            }
            TransactionChange::Completed { at } => {
                if let Phase::Ending(outcome) = standing.phase {
                    standing.phase = Phase::Ended(outcome);
                }
                standing.partitions = BTreeSet::new();
                standing.touched = at;
            }
            // The table's matter.
            TransactionChange::Forgotten => {}
        }
        PendingOffsets::new()
    }

    /// These partitions are gone.
    pub(crate) fn forget_partitions(&mut self, ranges: &[(u32, u32)]) {
        let is_gone = |number: u32| {
            let mut ranges = ranges.iter();
            ranges.any(|(first, count)| number.wrapping_sub(*first) < *count)
        };
        self.standing.partitions.retain(|number| !is_gone(*number));
        for offsets in self.offsets.values_mut() {
            offsets.retain(|number, _| !is_gone(*number));
        }
        self.bytes = self.count_bytes();
    }

    fn decide(&self, now: UnixMillis, bumps: bool, outcome: Outcome, fresh_id: Option<i64>) -> End {
        let producer = self.standing.producer;
        if !bumps {
            return End::Decide(TransactionChange::Decided {
                at: now,
                outcome,
                marker: producer,
                next: producer,
            });
        }
        let Some(next) = bumped(producer, fresh_id) else {
            return End::NeedsId;
        };
        End::Decide(TransactionChange::Decided {
            at: now,
            outcome,
            marker: fencing(producer),
            next,
        })
    }

    /// Aborts without the producer, which is fenced off by it.
    fn abort_and_fence(&self, now: UnixMillis) -> TransactionChange {
        let fencing = fencing(self.standing.producer);
        TransactionChange::Decided {
            at: now,
            outcome: Outcome::Abort,
            marker: fencing,
            next: fencing,
        }
    }

    fn hold(&mut self, group: Arc<str>, offsets: Vec<(u32, CommittedOffset)>) {
        if !self.offsets.contains_key(&group) {
            self.bytes += group_bytes(&group);
        }
        let held = self.offsets.entry(group).or_default();
        for (number, offset) in offsets {
            self.bytes += bytes_of(&offset);
            self.bytes -= held.insert(number, offset).as_ref().map_or(0, bytes_of);
        }
    }

    /// Whether `who` is the producer's own identity before the one that it has.
    fn was(&self, who: ProducerIdentity) -> bool {
        who.epoch >= 0 && self.standing.last == Some(who)
    }

    fn check_open(&self, who: ProducerIdentity) -> Result<(), TransactionError> {
        self.check_producer(who)?;
        match self.standing.phase {
            Phase::Ending(_) => Err(TransactionError::Concurrent),
            Phase::Empty | Phase::Ongoing | Phase::Ended(_) => Ok(()),
        }
    }

    fn check_producer(&self, who: ProducerIdentity) -> Result<(), TransactionError> {
        let ProducerIdentity { id, epoch } = self.standing.producer;
        if who.id == id {
            return match who.epoch == epoch {
                true => Ok(()),
                false => Err(TransactionError::Fenced),
            };
        }
        match self.standing.last {
            Some(last) if last.id == who.id => Err(TransactionError::Fenced),
            _ => Err(TransactionError::OtherProducer),
        }
    }
}

fn offsets_change(
    at: UnixMillis,
    group: &str,
    offsets: Vec<(u32, CommittedOffset)>,
) -> TransactionChange {
    TransactionChange::Offsets {
        at,
        group: Arc::from(group),
        offsets,
    }
}

/// The next identity: the next epoch, or the first of a fresh id when epochs are used up.
fn bumped(producer: ProducerIdentity, fresh_id: Option<i64>) -> Option<ProducerIdentity> {
    let epoch = producer.epoch.saturating_add(1);
    if epoch < EPOCH_MAX {
        return Some(ProducerIdentity { epoch, ..producer });
    }
    fresh_id.map(|id| ProducerIdentity { id, epoch: 0 })
}

/// The identity whose marker fences `producer` off.
fn fencing(producer: ProducerIdentity) -> ProducerIdentity {
    ProducerIdentity {
        epoch: producer.epoch.saturating_add(1),
        ..producer
    }
}

/// Stands for the epoch of a last producer that nobody may come back as.
const NO_EPOCH: i16 = -1;

/// No producer gets this epoch, so that there is always one left to fence the last with.
const EPOCH_MAX: i16 = i16::MAX - 1;

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
