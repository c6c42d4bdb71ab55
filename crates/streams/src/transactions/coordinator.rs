//! The thin store around the transactions: lets calls at the state machines, writes what they
//! decide into the journal, and carries it out.
//!
//! A change is appended and applied under the table's lock. That lock comes before all others of
//! the store.

use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;
use journal::{Done, Frame, JournalError, OnDone};
use parking_lot::Mutex;

use super::frames::TransactionChange;
use super::sweeper::Sweeper;
use super::table::Table;
use super::transaction::{End, Init, Transaction};
use super::{Outcome, Phase, ProducerIdentity, TransactionError, TransactionProtocol, check_init};
use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::event_store::CommittedOffset;
use crate::frames::{Change, VERSION};
use crate::limits::{SNAPSHOT_FRAME_BYTES, TRANSACTIONAL_IDS_MAX};
use crate::marker::Marker;
use crate::offsets::{OffsetChange, OffsetCommit};
use crate::partition::{Ack, Append, Partition, storage};
use crate::store::{CHANGE_ROOM_BYTES, DurableWait, Streams};
use crate::topic::TopicName;

/// All transactions of a store.
#[derive(Debug)]
pub(crate) struct Transactions {
    pub(crate) table: Mutex<Table>,
    pub(crate) sweeper: Arc<Sweeper>,
}

/// A transactional id as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDescription {
    /// The transactional id.
    pub id: String,
    /// Its producer.
    pub producer: ProducerIdentity,
    /// Where its transaction stands.
    pub phase: Phase,
    /// How long it may stay open.
    pub timeout: Duration,
    /// When it was opened, while it is open.
    pub started: Option<UnixMillis>,
    /// The partitions that it has written to, or may have.
    pub partitions: Vec<(TopicName, i32)>,
}

impl Transactions {
    pub(crate) fn of(table: Table) -> Self {
        Transactions {
            table: Mutex::new(table),
            sweeper: Arc::new(Sweeper::default()),
        }
    }
}

impl Streams {
    /// Introduces the producer of a transactional id and answers its identity, durable on return:
    /// older instances are fenced off and what they left open is aborted. `given` is the identity
    /// of a producer that comes back. Errors: `Transaction`, `Limit`.
    pub async fn init_transactions(
        &self,
        id: &str,
        timeout: Duration,
        given: Option<ProducerIdentity>,
    ) -> Result<ProducerIdentity, StreamsError> {
        let max = self.config().transaction_timeout_max.0;
        check_init(id, timeout, max).map_err(|reason| refused(id, reason))?;
        let name: Arc<str> = Arc::from(id);
        let mut fresh_id = None;
        loop {
            match self.try_init(&name, timeout, given, fresh_id) {
                Ok(Introduction::Done(producer, wait)) => {
                    wait.await?;
                    return Ok(producer);
                }
                Ok(Introduction::NeedsId) => fresh_id = Some(self.next_producer_id().await?),
                Ok(Introduction::AskAgain) => {}
                Err(StreamsError::Busy) => self.room(CHANGE_ROOM_BYTES).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds partitions to the transaction, durable on return: its producer may outlive this process
    /// and then writes to them without adding them again. Errors: `Transaction`, `UnknownPartition`.
    pub async fn join_transaction(
        &self,
        id: &str,
        who: ProducerIdentity,
        partitions: &[(TopicName, i32)],
    ) -> Result<(), StreamsError> {
        self.join_from_within(id, who, partitions).await?;
        self.when_room(0, || self.barrier()).await?.await
    }

    /// As [`Streams::join_transaction`] for a producer that ends with this process. It needs no
    /// wait: whatever is written to the partitions lies behind this in the journal.
    pub(crate) async fn join_from_within(
        &self,
        id: &str,
        who: ProducerIdentity,
        partitions: &[(TopicName, i32)],
    ) -> Result<(), StreamsError> {
        self.when_room(size_of_val(partitions), || {
            let mut table = self.transactions().table.lock();
            let topics = self.topics().read();
            let numbers: Result<Vec<u32>, StreamsError> = partitions
                .iter()
                .map(|(topic, index)| topics.partition(topic, *index).map(|p| p.number()))
                .collect();
            let numbers = numbers?;
            self.change(&mut table, id, |transaction, now| {
                transaction.join(now, who, &numbers)
            })
        })
        .await
    }

    /// Adds a group, whose offsets may follow; durable on return.
    pub async fn join_transaction_group(
        &self,
        id: &str,
        who: ProducerIdentity,
        group: &str,
    ) -> Result<(), StreamsError> {
        let joined = self.when_room(group.len(), || {
            let mut table = self.transactions().table.lock();
            self.offsets().lock().check(group, &[])?;
            self.change(&mut table, id, |transaction, now| {
                transaction.join_group(now, who, group)
            })?;
            self.barrier()
        });
        joined.await?.await
    }

    /// Takes offsets of a group that count once the transaction commits. Fails as a whole when a
    /// topic or partition is unknown. They are durable on return: their producer may outlive this
    /// process, and then ends the transaction without sending them again.
    pub async fn commit_in_transaction(
        &self,
        protocol: TransactionProtocol,
        id: &str,
        who: ProducerIdentity,
        group: &str,
        commits: Vec<OffsetCommit>,
    ) -> Result<(), StreamsError> {
        let anybody = || Ok(());
        self.commit_checked(protocol, id, who, group, commits, anybody)
            .await
    }

    /// As [`Streams::commit_in_transaction`], for who `is_member` of the group at the very moment:
    /// while the store is busy, others may have taken over.
    pub(crate) async fn commit_checked(
        &self,
        protocol: TransactionProtocol,
        id: &str,
        who: ProducerIdentity,
        group: &str,
        commits: Vec<OffsetCommit>,
        is_member: impl Fn() -> Result<(), StreamsError>,
    ) -> Result<(), StreamsError> {
        let metadata: usize = commits.iter().map(|commit| commit.metadata.len()).sum();
        let taken = self.when_room(size_of_val(&commits[..]) + metadata, || {
            is_member()?;
            let mut table = self.transactions().table.lock();
            let topics = self.topics().read();
            self.offsets().lock().check(group, &commits)?;
            let mut offsets = Vec::with_capacity(commits.len());
            for commit in &commits {
                let partition = topics.partition(&commit.topic, commit.partition)?;
                offsets.push((partition.number(), committed(commit)));
            }
            self.offsets().lock().check_room(group, &offsets)?;
            self.change(&mut table, id, |transaction, now| {
                let change = transaction.commit_offsets(now, protocol, who, group, offsets);
                change.map(Some)
            })?;
            self.barrier()
        });
        taken.await?.await
    }

    /// Appends a batch; one of a transaction must come from the id's producer, into a partition
    /// that was added or that the protocol adds now. As [`Partition::append`] otherwise.
    pub fn append_in_transaction(
        &self,
        protocol: TransactionProtocol,
        id: &str,
        partition: &Arc<Partition>,
        batch: Bytes,
        ack: Ack,
    ) -> Result<Append, StreamsError> {
        let header = BatchHeader::read(&batch)?;
        if !header.is_transactional() {
            return partition.append(batch, ack);
        }
        let who = ProducerIdentity {
            id: header.producer_id,
            epoch: header.producer_epoch,
        };
        let mut table = self.transactions().table.lock();
        self.change(&mut table, id, |transaction, now| {
            transaction.write(now, protocol, who, partition.number())
        })?;
        // Still under the lock, so that the end cannot be decided in between.
        partition.append_any(batch, ack)
    }

    /// Ends the transaction and answers who the producer is from now on; what was decided is
    /// durable and all its markers are on the disk on return, but for a store that was too busy.
    pub async fn end_transaction(
        &self,
        protocol: TransactionProtocol,
        id: &str,
        who: ProducerIdentity,
        outcome: Outcome,
    ) -> Result<ProducerIdentity, StreamsError> {
        let mut fresh_id = None;
        loop {
            match self.try_end(protocol, id, who, outcome, fresh_id) {
                Ok(Introduction::Done(producer, wait)) => {
                    wait.await?;
                    return Ok(producer);
                }
                Ok(Introduction::NeedsId) => fresh_id = Some(self.next_producer_id().await?),
                Ok(Introduction::AskAgain) => {}
                Err(StreamsError::Busy) => self.room(CHANGE_ROOM_BYTES).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a transaction that is open, or decided but not durable, has an offset of the group
    /// for this partition.
    pub fn is_offset_unstable(&self, group: &str, topic: &TopicName, index: i32) -> bool {
        let number = self
            .topics()
            .read()
            .partition(topic, index)
            .map(|p| p.number());
        let Ok(number) = number else { return false };
        let table = self.transactions().table.lock();
        table.holds_offset(group, number) || self.offsets().lock().is_queued(group, number)
    }

    /// A transactional id as it stands.
    pub fn describe_transaction(&self, id: &str) -> Option<TransactionDescription> {
        let table = self.transactions().table.lock();
        let transaction = table.find(id)?;
        let topics = self.topics().read();
        let standing = &transaction.standing;
        let partitions = standing.partitions.iter().filter_map(|number| {
            let partition = topics.partition_by_number(*number)?;
            Some((partition.topic().clone(), partition.index()))
        });
        let is_open = matches!(standing.phase, Phase::Ongoing | Phase::Ending(_));
        Some(TransactionDescription {
            id: id.to_owned(),
            producer: standing.producer,
            phase: standing.phase,
            timeout: standing.timeout,
            started: is_open.then_some(standing.started),
            partitions: partitions.collect(),
        })
    }

    /// All transactional ids, in order.
    pub fn transactional_ids(&self) -> Vec<String> {
        let ids = self.transactions().table.lock().ids();
        ids.iter().map(|id| id.as_ref().to_owned()).collect()
    }

    /// Shows `append` how every transactional id stands.
    pub(crate) fn snapshot_transactions(
        &self,
        append: &mut dyn FnMut(&Change) -> Result<(), StreamsError>,
    ) -> Result<(), StreamsError> {
        let ids = self.transactions().table.lock().ids();
        for id in ids {
            self.until_not_busy(|| {
                let table = self.transactions().table.lock();
                match table.find(&id) {
                    None => Ok(()),
                    Some(transaction) => append_standing(&id, transaction, append),
                }
            })?;
        }
        Ok(())
    }

    fn try_init(
        &self,
        id: &Arc<str>,
        timeout: Duration,
        given: Option<ProducerIdentity>,
        fresh_id: Option<i64>,
    ) -> Result<Introduction, StreamsError> {
        let now = self.clock().now();
        let mut table = self.transactions().table.lock();
        let change = match table.find(id) {
            None if table.len() >= TRANSACTIONAL_IDS_MAX => {
                return Err(StreamsError::Limit {
                    what: "transactional ids",
                    max: TRANSACTIONAL_IDS_MAX as u64,
                });
            }
            None => match fresh_id {
                None => return Ok(Introduction::NeedsId),
                Some(fresh_id) => Transaction::first(now, timeout, fresh_id),
            },
            Some(transaction) => {
                let init = transaction.init(now, timeout, given, fresh_id);
                match init.map_err(|reason| refused(id, reason))? {
                    Init::NeedsId => return Ok(Introduction::NeedsId),
                    Init::Again(producer) => {
                        return Ok(Introduction::Done(producer, self.barrier()?));
                    }
                    Init::Abort(change) => {
                        self.decide(&mut table, id, change, now)?;
                        return Ok(Introduction::AskAgain);
                    }
                    Init::Begin(change) => change,
                }
            }
        };
        self.write(id, &change, journal::Durability::Memory, Done::none())?;
        table.apply(id, change);
        let expiration = self.config().transactional_id_expiration.0;
        if !expiration.is_zero() {
            self.transactions().sweeper.plan(now + expiration);
        }
        let transaction = table.find(id).expect("it was put there just now");
        Ok(Introduction::Done(
            transaction.standing.producer,
            self.barrier()?,
        ))
    }

    fn try_end(
        &self,
        protocol: TransactionProtocol,
        id: &str,
        who: ProducerIdentity,
        outcome: Outcome,
        fresh_id: Option<i64>,
    ) -> Result<Introduction, StreamsError> {
        let now = self.clock().now();
        let mut table = self.transactions().table.lock();
        let transaction = table.find(id);
        let transaction = transaction.ok_or_else(|| refused(id, TransactionError::UnknownId))?;
        let end = transaction.end(now, protocol, who, outcome, fresh_id);
        let producer = match end.map_err(|reason| refused(id, reason))? {
            End::NeedsId => return Ok(Introduction::NeedsId),
            End::Again(producer) => producer,
            End::Decide(change) => {
                self.decide(&mut table, &Arc::from(id), change, now)?;
                let transaction = table.find(id).expect("it was found above");
                transaction.standing.producer
            }
        };
        Ok(Introduction::Done(producer, self.barrier()?))
    }

    /// Records what `judge` wants to be changed, if anything.
    fn change(
        &self,
        table: &mut Table,
        id: &str,
        judge: impl FnOnce(
            &Transaction,
            UnixMillis,
        ) -> Result<Option<TransactionChange>, TransactionError>,
    ) -> Result<(), StreamsError> {
        let transaction = table.find(id);
        let transaction = transaction.ok_or_else(|| refused(id, TransactionError::UnknownId))?;
        let judged = judge(transaction, self.clock().now());
        let Some(change) = judged.map_err(|reason| refused(id, reason))? else {
            return Ok(());
        };
        table.check_room(id, transaction, &change)?;
        let id: Arc<str> = Arc::from(id);
        self.write(&id, &change, journal::Durability::Memory, Done::none())?;
        table.apply(&id, change);
        if let Some(at) = table.find(&id).and_then(Transaction::deadline) {
            self.transactions().sweeper.plan(at);
        }
        Ok(())
    }

    /// Records a decision and carries it out; what a busy store keeps back, the sweeper does.
    pub(super) fn decide(
        &self,
        table: &mut Table,
        id: &Arc<str>,
        change: TransactionChange,
        now: UnixMillis,
    ) -> Result<(), StreamsError> {
        let is_commit = matches!(
            change,
            TransactionChange::Decided {
                outcome: Outcome::Commit,
                ..
            }
        );
        let has_offsets = is_commit
            && table
                .find(id)
                .is_some_and(|t| t.offsets.values().any(|offsets| !offsets.is_empty()));
        {
            // The offsets count from the decision on, so it takes its place among their changes.
            let mut offsets = self.offsets().lock();
            let applied = Arc::clone(self.offsets());
            let apply = has_offsets.then(|| -> OnDone {
                Box::new(move |outcome: Result<(), JournalError>| {
                    if outcome.is_ok() {
                        applied.lock().apply_next();
                    }
                })
            });
            let done = Done {
                os: None,
                disk: apply,
            };
            self.write(id, &change, journal::Durability::Disk, done)?;
            let counted = table.apply(id, change);
            if has_offsets {
                counted
                    .keys()
                    .for_each(|group| offsets.note_commit(group, now));
                let groups = counted.into_iter();
                let groups = groups.map(|(group, offsets)| (group, offsets.into_iter().collect()));
                offsets.queue(OffsetChange::CommitAll(groups.collect()));
            }
        }
        match self.complete(table, id, now) {
            Err(StreamsError::Busy) => {
                self.transactions().sweeper.plan(now);
                Ok(())
            }
            Err(error) => {
                // A full disk, mostly. It is decided, so that somebody has to come back to it.
                self.transactions().sweeper.plan(now + MARKERS_RETRY);
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Writes the markers of a decided transaction that are missing.
    pub(super) fn complete(
        &self,
        table: &mut Table,
        id: &Arc<str>,
        now: UnixMillis,
    ) -> Result<(), StreamsError> {
        let Some(transaction) = table.find(id) else {
            return Ok(());
        };
        let standing = &transaction.standing;
        let Phase::Ending(outcome) = standing.phase else {
            return Ok(());
        };
        let marker = Marker {
            producer_id: standing.marker.id,
            producer_epoch: standing.marker.epoch,
            is_commit: outcome == Outcome::Commit,
        };
        {
            let topics = self.topics().read();
            for number in &standing.partitions {
                if let Some(partition) = topics.partition_by_number(*number) {
                    partition.append_marker(now, marker)?;
                }
            }
        }
        let change = TransactionChange::Completed { at: now };
        self.write(id, &change, journal::Durability::Memory, Done::none())?;
        table.apply(id, change);
        Ok(())
    }

    pub(super) fn write(
        &self,
        id: &Arc<str>,
        change: &TransactionChange,
        need: journal::Durability,
        done: Done,
    ) -> Result<(), StreamsError> {
        let mut payload = Vec::new();
        let kind = change.encode(id, &mut payload);
        let frame = Frame {
            kind,
            version: VERSION,
            parts: &[&payload],
        };
        let journal = &self.shared().journal;
        let placed = journal.append(&[frame], need, done).map_err(storage)?;
        self.shared().keeper.note_end(placed.end);
        Ok(())
    }

    /// Resolves when all that was appended so far is on the disk.
    pub(crate) fn barrier(&self) -> Result<DurableWait, StreamsError> {
        let (done, wait) = Done::channel(journal::Durability::Disk);
        let journal = &self.shared().journal;
        journal
            .append(&[], journal::Durability::Disk, done)
            .map_err(storage)?;
        Ok(DurableWait::of(wait))
    }

    /// Takes the step once there is room for the `bytes` that it writes, or a little more.
    async fn when_room<T>(
        &self,
        bytes: usize,
        mut step: impl FnMut() -> Result<T, StreamsError>,
    ) -> Result<T, StreamsError> {
        loop {
            match step() {
                Err(StreamsError::Busy) => self.room(CHANGE_ROOM_BYTES + bytes as u64).await,
                outcome => return outcome,
            }
        }
    }
}

/// How far a call came that may need a producer id or an abort first.
enum Introduction {
    Done(ProducerIdentity, DurableWait),
    NeedsId,
    AskAgain,
}

/// How an id stands, in several frames; a crash between them loses nothing, as replay keeps the
/// offsets of a transaction that is open.
fn append_standing(
    id: &Arc<str>,
    transaction: &Transaction,
    append: &mut dyn FnMut(&Change) -> Result<(), StreamsError>,
) -> Result<(), StreamsError> {
    let change = |change| Change::Transaction {
        id: Arc::clone(id),
        change,
    };
    let standing = &transaction.standing;
    append(&change(TransactionChange::Stands(standing.clone())))?;
    for (group, offsets) in &transaction.offsets {
        let offsets: Vec<(u32, CommittedOffset)> =
            offsets.iter().map(|(n, o)| (*n, o.clone())).collect();
        for piece in offsets.chunks(SNAPSHOT_FRAME_BYTES / OFFSET_BYTES) {
            append(&change(TransactionChange::Offsets {
                at: standing.touched,
                group: Arc::clone(group),
                offsets: piece.to_vec(),
            }))?;
        }
    }
    Ok(())
}

fn committed(commit: &OffsetCommit) -> CommittedOffset {
    CommittedOffset {
        offset: commit.offset,
        leader_epoch: commit.leader_epoch,
        metadata: commit.metadata.clone(),
        at: commit.at,
    }
}

fn refused(id: &str, reason: TransactionError) -> StreamsError {
    StreamsError::Transaction {
        id: id.to_owned(),
        reason,
    }
}

/// How long after a failure the markers of a decided transaction are written again.
pub(super) const MARKERS_RETRY: Duration = Duration::from_secs(5);

/// Bytes of an offset in its frame when its metadata is as usual; at worst a frame becomes as
/// large as the metadata's bound makes it, which a segment still holds.
const OFFSET_BYTES: usize = 64;
