//! One group: its aggregates, and the rows that it gives.

use std::mem::size_of;
use std::sync::Arc;

use super::{Faults, GroupKey, Made, Step};
use crate::aggregate::{Given, Windowed};
use crate::expression::Scope;
use crate::limits::KEPT_VALUE_BYTES_MAX;
use crate::plan::{Aggregate, Query};
use crate::query::compiled::Compiled;
use crate::query::layout::owned;
use crate::query::tuple::Row;
use crate::row::write_row;
use crate::value::Value;

/// One group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its place in the order in which groups came.
    pub place: u64,
    pub accumulators: Box<[Windowed]>,
    /// Events that entered and have not left.
    pub events: i64,
    /// Its latest row, where outputs come without an event.
    pub latest: Option<Row>,
}

impl Group {
    /// The group of rows that nothing is aggregated for.
    pub fn nothing() -> Self {
        Group {
            place: 0,
            accumulators: Box::default(),
            events: 0,
            latest: None,
        }
    }

    /// A group without events.
    pub fn empty(compiled: &Compiled, place: u64) -> Self {
        let aggregates = compiled.query().aggregates.iter();
        Group {
            place,
            accumulators: aggregates
                .map(|aggregate| compiled.accumulator(aggregate))
                .collect(),
            events: 0,
            latest: None,
        }
    }

    /// Makes the row of this group, or of one of its events, where HAVING lets it pass.
    pub fn make(
        &self,
        step: Step<'_>,
        row: Option<&Row>,
        is_old: bool,
        group: Option<&GroupKey>,
        made: &mut Vec<Made>,
        faults: &mut Faults,
    ) {
        let compiled = step.compiled;
        let query = compiled.query();
        let calls = compiled.plan.calls.as_deref();
        faults.note(calls);
        self.with_scope(step, row, |scope| {
            let mut text = Vec::new();
            if !has(query, scope) {
                faults.note(calls);
                return;
            }
            if !write_row(&compiled.plan.columns, &compiled.prefixes, scope, &mut text) {
                faults.too_large += 1;
                return;
            }
            let order = query
                .order_by
                .iter()
                .map(|key| owned(&key.expression.evaluate(scope)))
                .collect();
            if faults.note(calls) {
                return;
            }
            made.push(Made {
                text,
                order,
                is_old,
                group: group.cloned(),
            });
        });
    }

    /// Whether HAVING lets the row of this group, or of one of its events, pass.
    pub fn has(&self, step: Step<'_>, row: Option<&Row>) -> bool {
        self.with_scope(step, row, |scope| has(step.compiled.query(), scope))
    }

    fn with_scope<T>(
        &self,
        step: Step<'_>,
        row: Option<&Row>,
        then: impl FnOnce(&Scope<'_>) -> T,
    ) -> T {
        let layout = &step.compiled.layout;
        let empty = Row::Parts(Arc::new([]));
        let mut values = Vec::new();
        layout.of_row(row.unwrap_or(&empty), &step.around, &mut values);
        let aggregates: Vec<Value<'_>> = self.accumulators.iter().map(Windowed::value).collect();
        then(&Scope {
            aggregates: &aggregates,
            ..layout.scope(&values)
        })
    }
}

fn has(query: &Query, scope: &Scope<'_>) -> bool {
    let having = query.having.as_ref();
    having.is_none_or(|having| having.truth(scope) == Some(true))
}

/// Adds an event's values to an aggregate, or takes them away, at a time and by its number.
pub fn change(
    accumulator: &mut Windowed,
    aggregate: &Aggregate,
    scope: &Scope<'_>,
    (now, number): (i64, u64),
    is_add: bool,
) {
    if aggregate
        .filter
        .as_ref()
        .is_some_and(|filter| filter.truth(scope) != Some(true))
    {
        return;
    }
    let too_long = |value: &Value<'_>| matches!(value, Value::Text(text) | Value::Json(text) if text.len() > KEPT_VALUE_BYTES_MAX);
    let value = aggregate
        .argument
        .as_ref()
        .map(|argument| argument.evaluate(scope));
    if value.as_ref().is_some_and(too_long) {
        return;
    }
    let parameter = aggregate
        .parameter
        .as_ref()
        .map_or(Value::Null, |parameter| parameter.evaluate(scope));
    let given = Given {
        value,
        parameter,
        now,
        number,
    };
    if is_add {
        accumulator.add(&given);
    } else {
        accumulator.remove(&given);
    }
}

/// Bytes of a group without what its aggregates hold, about.
pub fn group_bytes(key: &[u8], aggregates: usize) -> usize {
    GROUP_OVERHEAD_BYTES + key.len() + aggregates * size_of::<Windowed>()
}

/// A group's share of the table, its record and its allocations, estimated.
const GROUP_OVERHEAD_BYTES: usize = 160;
