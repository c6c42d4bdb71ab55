//! The rows of a join that an event is part of.

use std::collections::HashSet;
use std::sync::Arc;

use crate::plan::{Join, JoinKind};
use crate::query::select::Step;
use crate::query::tuple::{Captured, Row, Tuple};

/// The rows of `events` of input `driver` with what the other inputs hold; each row once, also
/// where several of its events are new. `seen` are the rows that were given before.
pub fn rows(
    step: Step<'_>,
    joins: &[Join],
    contents: &[Vec<Arc<Tuple>>],
    driver: usize,
    events: &[Arc<Tuple>],
    seen: &mut HashSet<Vec<u64>>,
    rows: &mut Vec<Row>,
) {
    for event in events {
        for parts in with(step, joins, contents, driver, event) {
            let numbers = parts
                .iter()
                .map(|part| part.last().map_or(u64::MAX, |tuple| tuple.number))
                .collect();
            if seen.insert(numbers) {
                rows.push(Row::Parts(parts.into()));
            }
        }
    }
}

/// All rows of what the inputs hold.
pub fn all(step: Step<'_>, joins: &[Join], contents: &[Vec<Arc<Tuple>>]) -> Vec<Row> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for driver in 0..contents.len() {
        rows(
            step,
            joins,
            contents,
            driver,
            &contents[driver],
            &mut seen,
            &mut found,
        );
    }
    found
}

type Parts = Vec<Captured>;

fn with(
    step: Step<'_>,
    joins: &[Join],
    contents: &[Vec<Arc<Tuple>>],
    driver: usize,
    event: &Arc<Tuple>,
) -> Vec<Parts> {
    let inputs = contents.len();
    let single = std::slice::from_ref(event);
    let of = |input: usize| -> &[Arc<Tuple>] {
        if input == driver {
            single
        } else {
            &contents[input]
        }
    };
    let mut left: Vec<Parts> = of(0)
        .iter()
        .map(|tuple| {
            let mut parts = vec![Captured::None; inputs];
            parts[0] = Captured::One(tuple.clone());
            parts
        })
        .collect();
    for (place, join) in joins.iter().enumerate() {
        let input = place + 1;
        // A row stands for the event that drives it: without that it is none of these.
        let keeps_left = matches!(join.kind, JoinKind::Left | JoinKind::Full) && driver != input;
        let keeps_right = matches!(join.kind, JoinKind::Right | JoinKind::Full) && driver >= input;
        let mut joined: Vec<Parts> = Vec::new();
        let mut right_matched = vec![false; of(input).len()];
        for parts in left {
            let mut is_matched = false;
            for (tuple, right_matched) in of(input).iter().zip(&mut right_matched) {
                let mut pair = parts.clone();
                pair[input] = Captured::One(tuple.clone());
                if join.on.is_none()
                    || step.passes(join.on.as_ref(), &Row::Parts(pair.clone().into()))
                {
                    is_matched = true;
                    *right_matched = true;
                    joined.push(pair);
                }
            }
            if !is_matched && keeps_left {
                joined.push(parts);
            }
        }
        if keeps_right {
            let alone = of(input).iter().zip(&right_matched);
            for (tuple, _) in alone.filter(|(_, is_matched)| !**is_matched) {
                let mut parts = vec![Captured::None; inputs];
                parts[input] = Captured::One(tuple.clone());
                joined.push(parts);
            }
        }
        left = joined;
    }
    left
}
