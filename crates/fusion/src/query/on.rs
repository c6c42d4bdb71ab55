//! `on E select | delete | update | merge`: what an event does with a named window or table.
//!
//! Rows are looked for where they stand, changed there, and told by the statement too: a new row
//! for what was inserted or changed, an old one for what it was; what is deleted is told as new by
//! `on delete`, as Esper does.

use std::sync::Arc;

use crate::expression::{Expression, Scope};
use crate::plan::{Assignment, MergeAction, OnAction, Shape};
use crate::query::compiled::RowKind;
use crate::query::kept::{Kept, Replaced};
use crate::query::part::{Part, Work, enters, leave, new_tuple};
use crate::query::select::{Groups, Made};
use crate::query::tuple::{Captured, Row, Tuple};
use crate::value::OwnedValue;

/// A row that is to be changed, and the values that it gets.
type Changed = (Arc<Tuple>, Box<[OwnedValue]>);

impl Part {
    /// Does what an event of input 0 asks of the window or table that is input 1; false when the
    /// input's filter does not let the event pass.
    pub(super) fn on_trigger(
        &mut self,
        work: &mut Work<'_>,
        action: &OnAction,
        source: &Scope<'_>,
    ) -> bool {
        if !enters(work, 0, source) {
            return false;
        }
        let values = work.compiled.layout.keep(0, source, |_| None);
        let trigger = new_tuple(work, values);
        self.act(work, action, Captured::One(trigger));
        true
    }

    /// Gives the rows of what the inputs hold now, or does what the query does to a named window or
    /// table without a trigger.
    pub(super) fn once(&mut self, work: &mut Work<'_>) {
        if let Shape::On(action) = &work.compiled.query().shape {
            return self.act(work, action, Captured::None);
        }
        let rows = self.held_rows(work);
        if !rows.is_empty() || work.compiled.kind == RowKind::All {
            self.tell(work, &rows, &[]);
        }
    }

    /// Does it for a trigger, or for nobody's asking.
    pub(super) fn act(&mut self, work: &mut Work<'_>, action: &OnAction, trigger: Captured) {
        let Some(Some(kept)) = work.compiled.kept.get(1).cloned() else {
            return;
        };
        let found = self.found(work, &kept, &trigger);
        let rows = |found: &[(Arc<Tuple>, Row)]| -> Vec<Arc<Tuple>> {
            found.iter().map(|(tuple, _)| tuple.clone()).collect()
        };
        match action {
            OnAction::Select { delete } => {
                let all: Vec<Row> = found.iter().map(|(_, row)| row.clone()).collect();
                // Aggregates are of what this event found alone.
                self.groups = Groups::default();
                if !all.is_empty() || work.compiled.kind == RowKind::All {
                    self.tell(work, &all, &[]);
                }
                self.groups = Groups::default();
                if *delete {
                    kept.delete(work.now, &rows(&found));
                }
            }
            OnAction::Delete => {
                let gone = rows(&found);
                kept.delete(work.now, &gone);
                tell(work, &kept, &gone, &[]);
            }
            OnAction::Update(assignments) => {
                let changed: Vec<Changed> = found
                    .iter()
                    .map(|(tuple, row)| {
                        let values = self.assigned(work, &kept, assignments, tuple, row);
                        (tuple.clone(), values)
                    })
                    .collect();
                let new = kept.update(work.now, changed);
                tell(work, &kept, &new, &rows(&found));
            }
            OnAction::Merge(branches) => {
                let mut merged = Merged::default();
                if found.is_empty() {
                    let row = Row::Parts(vec![trigger.clone(), Captured::None].into());
                    let branch = branches.iter().filter(|branch| !branch.is_matched);
                    for branch in branch {
                        if self.passes(work, branch.condition.as_ref(), &row) {
                            for action in &branch.actions {
                                self.merge(work, &kept, action, None, &row, &mut merged);
                            }
                            break;
                        }
                    }
                }
                for (tuple, row) in &found {
                    let branch = branches.iter().filter(|branch| branch.is_matched);
                    for branch in branch {
                        if self.passes(work, branch.condition.as_ref(), row) {
                            for action in &branch.actions {
                                let tuple = Some(tuple);
                                self.merge(work, &kept, action, tuple, row, &mut merged);
                            }
                            break;
                        }
                    }
                }
                merged.replace(work.now, &kept);
                tell(work, &kept, &merged.new, &merged.old);
            }
        }
    }

    /// The rows that WHERE finds, alone and beside the trigger.
    fn found(&self, work: &Work<'_>, kept: &Kept, trigger: &Captured) -> Vec<(Arc<Tuple>, Row)> {
        let condition = work.compiled.plan.filter.as_ref();
        let rows = match &work.compiled.found_by {
            Some(keys) => {
                let row = Row::Parts(vec![trigger.clone(), Captured::None].into());
                kept.find(&self.step(work).key(keys, &row))
                    .into_iter()
                    .collect()
            }
            None => kept.contents(),
        };
        let mut found = Vec::new();
        for tuple in rows {
            let parts = vec![trigger.clone(), Captured::One(tuple.clone())];
            let row = Row::Parts(parts.into());
            if self.passes(work, condition, &row) {
                found.push((tuple, row));
            }
        }
        found
    }

    fn merge(
        &self,
        work: &mut Work<'_>,
        kept: &Kept,
        action: &MergeAction,
        tuple: Option<&Arc<Tuple>>,
        row: &Row,
        merged: &mut Merged,
    ) {
        match (action, tuple) {
            (MergeAction::Insert(assignments), _) => {
                let mut values = kept.empty_row();
                let step = self.step(work);
                for assignment in assignments {
                    let value = step.value(&assignment.value, row);
                    values = kept.assigned(&values, &assignment.column, &value.as_value());
                }
                merged.replace(work.now, kept);
                merged.new.extend(insert(work, kept, values));
            }
            (MergeAction::Update(assignments), Some(tuple)) => {
                let values = self.assigned(work, kept, assignments, tuple, row);
                merged.waiting.push((tuple.clone(), Some(values)));
            }
            (MergeAction::Delete, Some(tuple)) => {
                merged.waiting.push((tuple.clone(), None));
            }
            (MergeAction::Update(_) | MergeAction::Delete, None) => {}
        }
    }

    /// A row's values after assignments, each of which sees what those before it did.
    fn assigned(
        &self,
        work: &Work<'_>,
        kept: &Kept,
        assignments: &[Assignment],
        tuple: &Arc<Tuple>,
        row: &Row,
    ) -> Box<[OwnedValue]> {
        let mut values = tuple.values.clone();
        let mut row = row.clone();
        for assignment in assignments {
            let value = self.step(work).value(&assignment.value, &row);
            values = kept.assigned(&values, &assignment.column, &value.as_value());
            let changed = Tuple::new(values.clone(), tuple.time, tuple.number, work.meter);
            let trigger = match &row {
                Row::Parts(parts) => parts.first().cloned().unwrap_or_default(),
                Row::One(_) => Captured::None,
            };
            row = Row::Parts(vec![trigger, Captured::One(changed)].into());
        }
        values
    }

    fn passes(&self, work: &Work<'_>, condition: Option<&Expression>, row: &Row) -> bool {
        self.step(work).passes(condition, row)
    }
}

/// What a merge did.
#[derive(Default)]
struct Merged {
    /// What is done to rows that were found, all at once.
    waiting: Vec<Replaced>,
    new: Vec<Arc<Tuple>>,
    old: Vec<Arc<Tuple>>,
}

impl Merged {
    fn replace(&mut self, now: i64, kept: &Kept) {
        let waiting = std::mem::take(&mut self.waiting);
        self.old.extend(waiting.iter().map(|(row, _)| row.clone()));
        self.new.extend(kept.replace(now, waiting));
    }
}

/// Inserts a row; none, and noted, when there is no room.
pub(super) fn insert(
    work: &mut Work<'_>,
    kept: &Kept,
    values: Box<[OwnedValue]>,
) -> Option<Arc<Tuple>> {
    let inserted = Tuple::new(values.clone(), work.now, 0, work.meter);
    match kept.insert(work.now, values) {
        Ok(()) => Some(inserted),
        Err(full) => {
            work.faults.full = Some(full);
            None
        }
    }
}

/// Tells what was done as rows of the window or table.
fn tell(work: &mut Work<'_>, kept: &Kept, new: &[Arc<Tuple>], old: &[Arc<Tuple>]) {
    let made = |row: &Arc<Tuple>, is_old| Made {
        text: kept.text(row),
        order: Vec::new(),
        is_old,
        group: None,
    };
    let new = new.iter().map(|row| made(row, false));
    let rows: Vec<Made> = new.chain(old.iter().map(|row| made(row, true))).collect();
    leave(work, rows);
}
