//! What enters and leaves a part into rows: groups, output rates, order and bounds.

use std::collections::HashSet;

use base::UnixMillis;

use super::{Part, Work, around};
use crate::output;
use crate::plan::{OutputKind, Shape, StreamSelect};
use crate::query::compiled::RowKind;
use crate::query::join;
use crate::query::rate::Now;
use crate::query::select::{Made, Step};
use crate::query::tuple::Row;

impl Part {
    /// Gives rows that enter and leave to the groups and the output.
    pub(super) fn select(
        &mut self,
        work: &mut Work<'_>,
        new: Vec<Row>,
        old: Vec<Row>,
        is_forced: bool,
    ) {
        let compiled = work.compiled;
        let condition = compiled.plan.filter.as_ref();
        let keep = |rows: Vec<Row>| -> Vec<Row> {
            match condition {
                None => rows,
                Some(_) => {
                    let step = self.step(work);
                    rows.into_iter()
                        .filter(|row| step.passes(condition, row))
                        .collect()
                }
            }
        };
        let (new, old) = (keep(new), keep(old));
        if new.is_empty() && old.is_empty() && !is_forced {
            return;
        }
        self.tell(work, &new, &old);
    }

    /// Gives rows that WHERE let pass to the groups and the output.
    pub(in crate::query) fn tell(&mut self, work: &mut Work<'_>, new: &[Row], old: &[Row]) {
        let compiled = work.compiled;
        let query = compiled.query();
        let mut made = Vec::new();
        let step = Step {
            compiled,
            now: work.now,
            around: around(&self.keys, (self.span, work.now), compiled, &self.chains),
        };
        let first = match &query.output {
            Some(rate) if rate.kind == OutputKind::First => Some((&mut self.rate, rate)),
            _ => None,
        };
        let faults = &mut *work.faults;
        self.groups
            .apply(step, [new, old], first, &mut made, faults);
        let now = match &query.output {
            None => Now::Pass,
            Some(rate) => self.rate.take(step, rate, new.len(), old.len(), &mut made),
        };
        match now {
            Now::Wait => {}
            Now::Pass => leave(work, made),
            Now::Output => self.output(work),
        }
    }

    /// Lets what waits leave.
    pub(super) fn output(&mut self, work: &mut Work<'_>) {
        let compiled = work.compiled;
        let query = compiled.query();
        let Some(rate) = &query.output else {
            return;
        };
        let mut made = self.rate.take_held(work.now);
        let rows = match rate.kind {
            OutputKind::Snapshot => self.held_rows(work),
            _ => Vec::new(),
        };
        let step = Step {
            compiled,
            now: work.now,
            around: around(&self.keys, (self.span, work.now), compiled, &self.chains),
        };
        match (rate.kind, compiled.kind) {
            (OutputKind::Snapshot, _) => {
                self.groups.snapshot(step, &rows, &mut made, work.faults);
            }
            // A total is told at each output, also when nothing came.
            (OutputKind::Each | OutputKind::All | OutputKind::Last, RowKind::All)
                if made.is_empty() =>
            {
                self.groups.snapshot(step, &[], &mut made, work.faults);
                if query.stream == StreamSelect::Both {
                    // It was the same before.
                    let old = made.iter().cloned().map(|row| Made {
                        is_old: true,
                        ..row
                    });
                    let old: Vec<Made> = old.collect();
                    made.extend(old);
                }
            }
            (OutputKind::All, RowKind::Group) => {
                let last = std::mem::take(&mut made);
                self.groups.all(step, &mut made, work.faults);
                if query.stream == StreamSelect::Both {
                    self.rate.hold(&mut made.clone());
                    self.groups.all_before(step, &last, &mut made, work.faults);
                }
            }
            (OutputKind::All, RowKind::EventOfGroup) => {
                let told: HashSet<_> = made.iter().filter_map(|row| row.group.clone()).collect();
                let mut all = Vec::new();
                self.groups.all(step, &mut all, work.faults);
                all.retain(|row| {
                    row.group
                        .as_ref()
                        .is_some_and(|group| !told.contains(group))
                });
                made.append(&mut all);
            }
            _ => {}
        }
        leave(work, made);
    }

    /// The rows of everything that is held.
    pub(in crate::query) fn held_rows(&self, work: &Work<'_>) -> Vec<Row> {
        let query = work.compiled.query();
        let step = self.step(work);
        let contents = self.contents(work);
        let mut rows = match (&query.shape, contents.as_slice()) {
            (_, [contents]) => contents.iter().cloned().map(Row::One).collect(),
            (Shape::Events { joins }, contents) => join::all(step, joins, contents),
            _ => Vec::new(),
        };
        let condition = work.compiled.plan.filter.as_ref();
        rows.retain(|row| step.passes(condition, row));
        rows
    }
}

/// Orders, bounds and writes the rows that leave together: what stands for what left comes last.
pub(in crate::query) fn leave(work: &mut Work<'_>, mut made: Vec<Made>) {
    let query = work.compiled.query();
    if !query.order_by.is_empty() {
        made.sort_by(|a, b| {
            let keys = query.order_by.iter().zip(a.order.iter().zip(&b.order));
            for (key, (a, b)) in keys {
                let order = crate::aggregate::kept::rank_order(&a.as_value(), &b.as_value());
                let order = if key.is_descending {
                    order.reverse()
                } else {
                    order
                };
                if order.is_ne() {
                    return order;
                }
            }
            std::cmp::Ordering::Equal
        });
    }
    made.sort_by_key(|row| row.is_old);
    if query.distinct {
        let mut seen: HashSet<(bool, Vec<u8>)> = HashSet::new();
        made.retain(|row| seen.insert((row.is_old, row.text.clone())));
    }
    if let Some(limit) = query.limit {
        for is_old in [false, true] {
            let mut place = 0;
            made.retain(|row| {
                if row.is_old != is_old {
                    return true;
                }
                place += 1;
                place > limit.offset && place - limit.offset <= limit.rows
            });
        }
    }
    for row in made {
        work.out.bytes.extend_from_slice(&row.text);
        work.out.rows.push(output::Row {
            end: work.out.bytes.len(),
            timestamp: UnixMillis(work.now),
            key: None,
            events: 0,
            is_old: row.is_old,
        });
    }
}
