//! All transactional ids, with what has to be found by time and by group.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use super::frames::TransactionChange;
use super::transaction::PendingOffsets;
use super::{Phase, Transaction, TransactionError, room};
use crate::error::StreamsError;
use crate::limits::TRANSACTIONS_BYTES_MAX;

/// All transactional ids.
#[derive(Debug, Default)]
pub(crate) struct Table {
    by_id: HashMap<Arc<str>, Transaction>,
    /// Open ones, by when they are aborted.
    deadlines: BTreeSet<(UnixMillis, Arc<str>)>,
    /// Decided ones whose markers are not all written.
    ending: BTreeSet<Arc<str>>,
    /// Those that nobody uses now, by since when.
    idle: BTreeSet<(UnixMillis, Arc<str>)>,
    /// Open ones, by the groups whose offsets they hold.
    by_group: BTreeSet<(Arc<str>, Arc<str>)>,
    /// About what the partitions, groups and offsets of all take.
    bytes: usize,
}

/// How many transactions stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) ids: usize,
    pub(crate) open: usize,
    pub(crate) ending: usize,
    /// Open ones that should have been aborted by now.
    pub(crate) overdue: usize,
}

impl Table {
    /// The transaction of this id.
    pub(crate) fn find(&self, id: &str) -> Option<&Transaction> {
        self.by_id.get(id)
    }

    /// Checks that there is room for what the change of an id's transaction brings.
    pub(crate) fn check_room(
        &self,
        id: &str,
        transaction: &Transaction,
        change: &TransactionChange,
    ) -> Result<(), StreamsError> {
        transaction.check_groups(change)?;
        let growth = transaction.growth(change);
        let checked = room::check(self.bytes, growth, TRANSACTIONS_BYTES_MAX);
        checked.map_err(|reason: TransactionError| StreamsError::Transaction {
            id: id.to_owned(),
            reason,
        })
    }

    /// How many ids there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All ids, in order.
    pub(crate) fn ids(&self) -> Vec<Arc<str>> {
        let mut ids: Vec<Arc<str>> = self.by_id.keys().cloned().collect();
        ids.sort();
        ids
    }

    /// Takes in a change that has its place in the journal; answers the offsets that count from
    /// now on. A change of an id that is not known is told again later, by a snapshot.
    pub(crate) fn apply(&mut self, id: &Arc<str>, change: TransactionChange) -> PendingOffsets {
        let before = self.by_id.remove(id);
        if let Some(before) = &before {
            self.unlist(id, before);
        }
        let (mut transaction, change) = match (before, change) {
            (Some(before), change) => (before, Some(change)),
            (None, TransactionChange::Stands(standing)) => (Transaction::of(standing), None),
            (None, _) => return PendingOffsets::new(),
        };
        if change == Some(TransactionChange::Forgotten) {
            return PendingOffsets::new();
        }
        let offsets = change.map(|change| transaction.apply(change));
        self.list(id, &transaction);
        self.by_id.insert(Arc::clone(id), transaction);
        offsets.unwrap_or_default()
    }

    /// The id that nobody has used for the longest time, and since when.
    pub(crate) fn longest_idle(&self) -> Option<(UnixMillis, Arc<str>)> {
        self.idle.first().cloned()
    }

    /// How many transactions stand where.
    pub(crate) fn counts(&self, now: UnixMillis) -> Counts {
        Counts {
            ids: self.by_id.len(),
            open: self.deadlines.len(),
            ending: self.ending.len(),
            overdue: self
                .deadlines
                .iter()
                .take_while(|(at, _)| *at + OVERDUE_AFTER <= now)
                .count(),
        }
    }

    /// When the first open transaction is aborted.
    pub(crate) fn first_deadline(&self) -> Option<UnixMillis> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Open transactions whose time is over.
    pub(crate) fn due(&self, now: UnixMillis) -> Vec<Arc<str>> {
        let due = self.deadlines.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, id)| Arc::clone(id)).collect()
    }

    /// Decided transactions whose markers are not all written.
    pub(crate) fn ending(&self) -> Vec<Arc<str>> {
        self.ending.iter().cloned().collect()
    }

    /// Whether an open transaction holds an offset of the group for this partition.
    pub(crate) fn holds_offset(&self, group: &str, number: u32) -> bool {
        let first = (Arc::from(group), Arc::from(""));
        let of_group = self.by_group.range(first..);
        let mut of_group = of_group.take_while(|(name, _)| name.as_ref() == group);
        of_group.any(|(name, id)| {
            let offsets = self.by_id.get(id).and_then(|t| t.offsets.get(name));
            offsets.is_some_and(|offsets| offsets.contains_key(&number))
        })
    }

    /// These partitions are gone.
    pub(crate) fn forget_partitions(&mut self, ranges: &[(u32, u32)]) {
        for transaction in self.by_id.values_mut() {
            self.bytes -= transaction.bytes;
            transaction.forget_partitions(ranges);
            self.bytes += transaction.bytes;
        }
    }

    fn list(&mut self, id: &Arc<str>, transaction: &Transaction) {
        self.bytes += transaction.bytes;
        if let Some(at) = transaction.deadline() {
            self.deadlines.insert((at, Arc::clone(id)));
        }
        if let Some(since) = transaction.idle_since() {
            self.idle.insert((since, Arc::clone(id)));
        }
        if matches!(transaction.standing.phase, Phase::Ending(_)) {
            self.ending.insert(Arc::clone(id));
        }
        for group in transaction.offsets.keys() {
            let key = (Arc::clone(group), Arc::clone(id));
            self.by_group.insert(key);
        }
    }

    fn unlist(&mut self, id: &Arc<str>, transaction: &Transaction) {
        self.bytes -= transaction.bytes;
        if let Some(at) = transaction.deadline() {
            self.deadlines.remove(&(at, Arc::clone(id)));
        }
        if let Some(since) = transaction.idle_since() {
            self.idle.remove(&(since, Arc::clone(id)));
        }
        self.ending.remove(id);
        for group in transaction.offsets.keys() {
            self.by_group.remove(&(Arc::clone(group), Arc::clone(id)));
        }
    }
}

/// How long after its time-out an open transaction counts as overdue: the sweeper takes moments.
const OVERDUE_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_store::CommittedOffset;
    use crate::limits::TRANSACTION_GROUPS_MAX;
    use crate::transactions::frames::Standing;
    use crate::transactions::{Outcome, ProducerIdentity};

    const NOW: UnixMillis = UnixMillis(1_000);
    const WHO: ProducerIdentity = ProducerIdentity { id: 7, epoch: 0 };

    fn offsets_of(group: &str, numbers: &[u32], metadata: usize) -> TransactionChange {
        let offset = CommittedOffset {
            offset: 1,
            leader_epoch: -1,
            metadata: "m".repeat(metadata),
            at: NOW,
        };
        let offsets = numbers.iter().map(|number| (*number, offset.clone()));
        TransactionChange::Offsets {
            at: NOW,
            group: Arc::from(group),
            offsets: offsets.collect(),
        }
    }

    fn joins(numbers: &[u32]) -> TransactionChange {
        TransactionChange::Joins {
            at: NOW,
            numbers: numbers.to_vec(),
        }
    }

    fn decided(outcome: Outcome) -> TransactionChange {
        TransactionChange::Decided {
            at: NOW,
            outcome,
            marker: WHO,
            next: WHO,
        }
    }

    fn with(ids: &[Arc<str>]) -> Table {
        let mut table = Table::default();
        for id in ids {
            let fresh = Standing::fresh(NOW, Duration::from_secs(60), WHO, None);
            table.apply(id, TransactionChange::Stands(fresh));
        }
        table
    }

    #[test]
    fn what_transactions_take_is_counted_as_it_comes_and_as_it_goes() {
        let ids: Vec<Arc<str>> = ["a", "b"].map(Arc::from).to_vec();
        let mut table = with(&ids);
        assert_eq!(table.bytes, 0);
        let whole = |table: &Table| -> usize {
            let of = |id| table.find(id).map_or(0, Transaction::count_bytes);
            ids.iter().map(|id| of(id)).sum()
        };
        let steps = [
            joins(&[1, 2, 3]),
            joins(&[4]),
            offsets_of("g", &[1, 2], 100),
            // These take the places of others, one of them twice.
            offsets_of("g", &[2, 2, 3], 200),
            offsets_of("h", &[], 0),
        ];
        for step in steps {
            let before = table.bytes;
            for id in &ids {
                table.apply(id, step.clone());
            }
            assert_eq!(table.bytes, whole(&table), "{step:?}");
            assert!(table.bytes > before, "{step:?}");
        }
        table.forget_partitions(&[(2, 1)]);
        assert_eq!(table.bytes, whole(&table));
        table.apply(&ids[1], TransactionChange::Forgotten);
        let counted = table.apply(&ids[0], decided(Outcome::Commit));
        assert_eq!(counted.len(), 1, "nothing was committed of the other group");
        assert_eq!(table.bytes, whole(&table));
        table.apply(&ids[0], TransactionChange::Completed { at: NOW });
        assert_eq!(table.bytes, 0);
    }

    #[test]
    fn open_transactions_take_a_bounded_part_of_the_memory_together() {
        let ids: Vec<Arc<str>> = ["a", "b"].map(Arc::from).to_vec();
        let mut table = with(&ids);
        let check = |table: &Table, change: &TransactionChange| {
            let transaction = table.find("b").unwrap();
            table.check_room("b", transaction, change)
        };
        table.apply(&ids[1], offsets_of("g", &[1], 100));
        let other = offsets_of("g", &[1], 4_000);
        while check(&table, &offsets_of("h", &[1], 4_000)).is_ok() {
            let many: Vec<u32> = (0..10_000).collect();
            let group = table.bytes.to_string();
            let change = offsets_of(&group, &many, 0);
            table.apply(&ids[0], change);
        }
        assert!(table.bytes <= TRANSACTIONS_BYTES_MAX + 10_000 * 64 + 2_000);
        // Whatever would take more waits for others to end.
        let full: Vec<u32> = (2..1_000_000).collect();
        for change in [&other, &joins(&full), &offsets_of("h", &[9], 4_000)] {
            let refused = check(&table, change);
            let is_no_room = matches!(
                refused,
                Err(StreamsError::Transaction {
                    reason: TransactionError::NoRoom,
                    ..
                })
            );
            assert!(is_no_room, "{refused:?}");
        }
        assert!(check(&table, &offsets_of("g", &[1], 100)).is_ok());
        table.apply(&ids[0], decided(Outcome::Abort));
        assert!(check(&table, &other).is_ok());
    }

    #[test]
    fn a_transaction_has_a_bounded_number_of_groups() {
        let ids: Vec<Arc<str>> = vec![Arc::from("a")];
        let mut table = with(&ids);
        for nth in 0..TRANSACTION_GROUPS_MAX {
            table.apply(&ids[0], offsets_of(&nth.to_string(), &[], 0));
        }
        let transaction = table.find("a").unwrap();
        let check = |group| table.check_room("a", transaction, &offsets_of(group, &[], 0));
        assert!(check("0").is_ok());
        assert!(matches!(check("new"), Err(StreamsError::Limit { .. })));
    }
}
