//! Selects inside expressions: what they give for one row of the query around them.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::aggregate::Windowed;
use crate::expression::Scope;
use crate::plan::{Subquery, SubqueryKind};
use crate::query::compiled::Compiled;
use crate::query::layout::{Around, Layout, owned};
use crate::query::select::change;
use crate::query::tuple::{Row, Tuple};
use crate::value::{OwnedValue, Value};
use crate::window::encode_key;

/// What a query's subquery with that number gives for a row.
pub fn value<'a>(compiled: &Compiled, number: usize, row: &Row, around: &Around<'_>) -> Value<'a> {
    let query = compiled.query();
    let (Some(subquery), Some(layout), Some((_, chains))) = (
        query.subqueries.get(number),
        compiled.subqueries.get(number),
        around.history,
    ) else {
        return Value::Null;
    };
    let asked = Asked {
        subquery,
        layout,
        row,
        around,
    };
    let input = usize::from(subquery.input);
    let kept = compiled.kept.get(input).and_then(Option::as_ref);
    let keys = compiled.subqueries_found_by.get(number);
    let events = match (kept, keys.and_then(Option::as_ref)) {
        (Some(kept), Some(keys)) if !kept.has_untold() => {
            let key = asked.outside(|scope| {
                let mut key = Vec::new();
                for expression in keys {
                    encode_key(&expression.evaluate(scope), &mut key);
                }
                key
            });
            let filter = query.inputs[input].filter.as_ref();
            let reading = compiled.reading(input);
            let passes = |row: &Arc<Tuple>| filter.is_none_or(|filter| reading.passes(row, filter));
            kept.find(&key).into_iter().filter(passes).collect()
        }
        _ => compiled.contents(input, chains),
    };
    let value = match &subquery.kind {
        SubqueryKind::Exists => OwnedValue::Bool(asked.counting(&events).next().is_some()),
        SubqueryKind::Value(_) if !subquery.aggregates.is_empty() => asked.aggregated(&events),
        SubqueryKind::Value(expression) => {
            let mut counting = asked.counting(&events);
            match (counting.next(), counting.next()) {
                (Some(event), None) => {
                    asked.with(event, |scope| owned(&expression.evaluate(scope)))
                }
                _ => OwnedValue::Null,
            }
        }
        SubqueryKind::In { value, choice } => {
            let value = asked.outside(|scope| owned(&value.evaluate(scope)));
            let mut choices = asked
                .counting(&events)
                .map(|event| asked.with(event, |scope| owned(&choice.evaluate(scope))));
            is_among(&value, &mut choices)
        }
    };
    match value {
        OwnedValue::Null => Value::Null,
        OwnedValue::Bool(truth) => Value::Bool(truth),
        OwnedValue::Int(number) => Value::Int(number),
        OwnedValue::Float(number) => Value::Float(number),
        OwnedValue::Text(text) => Value::Text(text.into()),
        OwnedValue::Json(text) => Value::Json(text.into()),
    }
}

/// A subquery and the row that it is asked for.
struct Asked<'q> {
    subquery: &'q Subquery,
    layout: &'q Layout,
    row: &'q Row,
    around: &'q Around<'q>,
}

impl Asked<'_> {
    /// The events that its filter lets pass.
    fn counting<'e>(&'e self, events: &'e [Arc<Tuple>]) -> impl Iterator<Item = &'e Arc<Tuple>> {
        events.iter().filter(|event| {
            self.subquery
                .filter
                .as_ref()
                .is_none_or(|filter| self.with(event, |scope| filter.truth(scope) == Some(true)))
        })
    }

    fn with<R>(&self, event: &Tuple, ask: impl FnOnce(&Scope<'_>) -> R) -> R {
        let around = Around {
            inner: Some((usize::from(self.subquery.alias), event)),
            ..*self.around
        };
        let mut values = Vec::new();
        self.layout.of_row(self.row, &around, &mut values);
        ask(&self.layout.scope(&values))
    }

    fn outside<R>(&self, ask: impl FnOnce(&Scope<'_>) -> R) -> R {
        let mut values = Vec::new();
        self.layout.of_row(self.row, self.around, &mut values);
        ask(&self.layout.scope(&values))
    }

    fn aggregated(&self, events: &[Arc<Tuple>]) -> OwnedValue {
        let SubqueryKind::Value(expression) = &self.subquery.kind else {
            return OwnedValue::Null;
        };
        let aggregates = &self.subquery.aggregates;
        let mut accumulators: Vec<Windowed> = aggregates
            .iter()
            .map(|aggregate| Windowed::new(aggregate.function, aggregate.is_distinct, false))
            .collect();
        for event in self.counting(events) {
            self.with(event, |scope| {
                for (accumulator, aggregate) in accumulators.iter_mut().zip(aggregates) {
                    change(
                        accumulator,
                        aggregate,
                        scope,
                        (event.time, event.number),
                        true,
                    );
                }
            });
        }
        let aggregates: Vec<Value<'_>> = accumulators.iter().map(Windowed::value).collect();
        let mut values = Vec::new();
        self.layout.of_row(self.row, self.around, &mut values);
        let scope = Scope {
            aggregates: &aggregates,
            ..self.layout.scope(&values)
        };
        owned(&expression.evaluate(&scope))
    }
}

/// Whether a value is among others: unknown when it or, where none is equal, one of them is null.
fn is_among(value: &OwnedValue, choices: &mut dyn Iterator<Item = OwnedValue>) -> OwnedValue {
    let value = value.as_value();
    let mut is_unknown = false;
    for choice in choices {
        let choice = choice.as_value();
        if value.compare(&choice) == Some(Ordering::Equal) {
            return OwnedValue::Bool(true);
        }
        is_unknown |= value.is_null() || choice.is_null();
    }
    match is_unknown {
        true => OwnedValue::Null,
        false => OwnedValue::Bool(false),
    }
}
