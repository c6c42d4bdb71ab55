//! Values over the records of a group.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::evaluate::{Row, fraction, number_of, total_order};
use super::plan::Expr;
use crate::json::Json;

/// An aggregate of a query.
#[derive(Debug)]
pub(super) struct Aggregate {
    pub(super) kind: Kind,
    /// What is aggregated; none in `COUNT(*)`.
    pub(super) argument: Option<Expr>,
    pub(super) is_distinct: bool,
}

/// Which aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Count,
    Sum,
    Average,
    Least,
    Most,
}

/// An aggregate on its way over a group.
pub(super) struct Total {
    kind: Kind,
    count: i64,
    value: Json,
    seen: Option<HashSet<String>>,
}

impl Kind {
    /// The aggregate of this name, in lower case.
    pub(super) fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "count" => Kind::Count,
            "sum" => Kind::Sum,
            "avg" => Kind::Average,
            "min" => Kind::Least,
            "max" => Kind::Most,
            _ => return None,
        })
    }
}

impl Aggregate {
    /// What a row brings in; none where it does not count.
    pub(super) fn input(&self, row: Row<'_>) -> Result<Option<Json>, String> {
        match &self.argument {
            None => Ok(Some(Json::Flag(true))),
            Some(argument) => {
                let value = argument.evaluate(row)?;
                Ok((value != Json::Null).then_some(value))
            }
        }
    }
}

impl Total {
    /// Nothing yet.
    pub(super) fn new(aggregate: &Aggregate) -> Self {
        Total {
            kind: aggregate.kind,
            count: 0,
            value: Json::Null,
            seen: aggregate.is_distinct.then(HashSet::new),
        }
    }

    /// Takes one more in.
    pub(super) fn add(&mut self, input: Option<Json>) -> Result<(), String> {
        let Some(input) = input else {
            return Ok(());
        };
        if let Some(seen) = &mut self.seen
            && !seen.insert(input.to_text())
        {
            return Ok(());
        }
        self.count += 1;
        match self.kind {
            Kind::Count => {}
            Kind::Sum | Kind::Average => {
                let input = number_of(&input)?;
                self.value = match (&self.value, input) {
                    (Json::Null, input) => input,
                    (Json::Whole(a), Json::Whole(b)) => Json::Whole(
                        a.checked_add(b)
                            .ok_or_else(|| "a sum is beyond 64 bits".to_owned())?,
                    ),
                    (a, b) => Json::Fraction(fraction(a) + fraction(&b)),
                };
            }
            Kind::Least | Kind::Most => {
                let wanted = match self.kind {
                    Kind::Least => Ordering::Less,
                    _ => Ordering::Greater,
                };
                let is_first = self.value == Json::Null;
                if is_first || total_order(&input, &self.value) == wanted {
                    self.value = input;
                }
            }
        }
        Ok(())
    }

    /// What came of it.
    pub(super) fn value(self) -> Json {
        match self.kind {
            Kind::Count => Json::Whole(self.count),
            Kind::Average if self.count > 0 => {
                Json::Fraction(fraction(&self.value) / self.count as f64)
            }
            _ => self.value,
        }
    }
}
