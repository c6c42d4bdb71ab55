//! All transactional ids, with what has to be found by time and by group.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use super::frames::TransactionChange;
use super::transaction::PendingOffsets;
use super::{Phase, Transaction};

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
            transaction.forget_partitions(ranges);
        }
    }

    fn list(&mut self, id: &Arc<str>, transaction: &Transaction) {
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
