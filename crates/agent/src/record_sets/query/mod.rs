//! SQL over the records of one FlowFile: `SELECT … FROM FLOWFILE`.
//!
//! Projections, `WHERE`, functions, `GROUP BY` with aggregates, `HAVING`, `DISTINCT`, `ORDER BY`,
//! `LIMIT` and `OFFSET`. Records pass one at a time; groups, and rows that are sorted, are held in
//! memory, bounded in number. Nulls sort as the highest, as in NiFi; comparisons with one are neither
//! true nor false. Left out: joins, subqueries, windows.

mod aggregate;
mod evaluate;
mod functions;
mod plan;
mod words;

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::{RecordError, RecordReader};
use crate::json::{Fields, Json};
use crate::limits::{QUERY_GROUPS_MAX, QUERY_ROWS_MAX};

use aggregate::{Aggregate, Total};
use evaluate::{Row, is_true};
use plan::Expr;

/// A query that was read and checked.
#[derive(Debug)]
pub(crate) struct Query {
    items: Vec<Item>,
    filter: Option<Expr>,
    /// What rows are grouped by; aggregates without it make one group of all.
    groups: Option<Vec<Expr>>,
    aggregates: Vec<Aggregate>,
    having: Option<Expr>,
    is_distinct: bool,
    order: Vec<Order>,
    limit: Option<u64>,
    offset: u64,
}

/// What a row of the result is made of.
#[derive(Debug)]
enum Item {
    /// Every field of the record.
    All,
    /// One value.
    Value(String, Expr),
}

/// What rows are sorted by.
#[derive(Debug)]
struct Order {
    key: Expr,
    is_descending: bool,
    nulls_first: bool,
}

/// A group of records.
struct Group {
    /// Its first record, for what is not aggregated.
    record: Fields,
    totals: Vec<Total>,
}

/// Takes the rows of a result on their way out.
struct Output<'q, F> {
    query: &'q Query,
    send: F,
    seen: HashSet<String>,
    sorted: Vec<(Vec<Json>, Fields)>,
    skipped: u64,
    sent: u64,
}

impl Query {
    /// Reads a query; the error says what is wrong or not supported.
    pub(crate) fn parse(text: &str) -> Result<Query, String> {
        plan::parse(text)
    }

    /// Answers the query over `records`; each row of the result goes to `send`.
    pub(crate) fn run(
        &self,
        records: &mut dyn RecordReader,
        send: impl FnMut(Fields) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let mut output = Output {
            query: self,
            send,
            seen: HashSet::new(),
            sorted: Vec::new(),
            skipped: 0,
            sent: 0,
        };
        match &self.groups {
            None => {
                while !output.is_full()
                    && let Some(record) = records.next()?
                {
                    if self.passes(&self.filter, Row::of(&record))? {
                        output.take(Row::of(&record))?;
                    }
                }
            }
            Some(keys) => {
                for group in self.group(keys, records)? {
                    let aggregates: Vec<Json> =
                        group.totals.into_iter().map(Total::value).collect();
                    let row = Row {
                        record: &group.record,
                        aggregates: &aggregates,
                        outputs: &[],
                    };
                    if self.passes(&self.having, row)? {
                        output.take(row)?;
                    }
                }
            }
        }
        output.finish()
    }

    fn group(
        &self,
        keys: &[Expr],
        records: &mut dyn RecordReader,
    ) -> Result<Vec<Group>, RecordError> {
        let mut groups: Vec<Group> = Vec::new();
        let mut index: HashMap<String, usize> = HashMap::new();
        let new = |record: Fields| Group {
            record,
            totals: self.aggregates.iter().map(Total::new).collect(),
        };
        while let Some(record) = records.next()? {
            let row = Row::of(&record);
            if !self.passes(&self.filter, row)? {
                continue;
            }
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(key.evaluate(row).map_err(RecordError::Format)?);
            }
            let mut inputs = Vec::with_capacity(self.aggregates.len());
            for aggregate in &self.aggregates {
                inputs.push(aggregate.input(row).map_err(RecordError::Format)?);
            }
            let key = Json::List(values).to_text();
            let at = match index.get(&key) {
                Some(at) => *at,
                None => {
                    if groups.len() >= QUERY_GROUPS_MAX {
                        return Err(RecordError::Format(format!(
                            "the query makes more than {QUERY_GROUPS_MAX} groups"
                        )));
                    }
                    index.insert(key, groups.len());
                    groups.push(new(record));
                    groups.len() - 1
                }
            };
            for (total, input) in groups[at].totals.iter_mut().zip(inputs) {
                total.add(input).map_err(RecordError::Format)?;
            }
        }
        if groups.is_empty() && keys.is_empty() {
            groups.push(new(Fields::default()));
        }
        Ok(groups)
    }

    fn passes(&self, condition: &Option<Expr>, row: Row<'_>) -> Result<bool, RecordError> {
        match condition {
            None => Ok(true),
            Some(condition) => {
                let value = condition.evaluate(row).map_err(RecordError::Format)?;
                Ok(is_true(&value))
            }
        }
    }

    /// The row of the result, and its values by item for what is sorted by them.
    fn project(&self, row: Row<'_>) -> Result<(Fields, Vec<Json>), String> {
        let mut fields = Fields::default();
        let mut outputs = Vec::with_capacity(self.items.len());
        for item in &self.items {
            match item {
                Item::All => {
                    for (name, value) in row.record.iter() {
                        fields.set(name, value.clone());
                    }
                    outputs.push(Json::Null);
                }
                Item::Value(name, value) => {
                    let value = value.evaluate(row)?;
                    fields.set(name, value.clone());
                    outputs.push(value);
                }
            }
        }
        Ok((fields, outputs))
    }
}

impl<F: FnMut(Fields) -> Result<(), RecordError>> Output<'_, F> {
    /// Whether nothing more is wanted.
    fn is_full(&self) -> bool {
        self.query.order.is_empty() && self.query.limit.is_some_and(|limit| self.sent >= limit)
    }

    fn take(&mut self, row: Row<'_>) -> Result<(), RecordError> {
        let (fields, outputs) = self.query.project(row).map_err(RecordError::Format)?;
        if self.seen.len().max(self.sorted.len()) >= QUERY_ROWS_MAX {
            return Err(RecordError::Format(format!(
                "the query sorts or compares more than {QUERY_ROWS_MAX} rows"
            )));
        }
        if self.query.is_distinct {
            let values = fields.iter().map(|(_, value)| value.clone());
            if !self.seen.insert(Json::List(values.collect()).to_text()) {
                return Ok(());
            }
        }
        if self.query.order.is_empty() {
            return self.pass(fields);
        }
        let row = Row {
            outputs: &outputs,
            ..row
        };
        let mut keys = Vec::with_capacity(self.query.order.len());
        for order in &self.query.order {
            keys.push(order.key.evaluate(row).map_err(RecordError::Format)?);
        }
        self.sorted.push((keys, fields));
        Ok(())
    }

    fn finish(mut self) -> Result<(), RecordError> {
        let mut sorted = std::mem::take(&mut self.sorted);
        let order = &self.query.order;
        sorted.sort_by(|(left, _), (right, _)| {
            let pairs = left.iter().zip(right).zip(order);
            pairs.fold(Ordering::Equal, |so_far, ((left, right), order)| {
                so_far.then_with(|| order.compare(left, right))
            })
        });
        for (_, fields) in sorted {
            self.pass(fields)?;
        }
        Ok(())
    }

    fn pass(&mut self, fields: Fields) -> Result<(), RecordError> {
        if self.skipped < self.query.offset {
            self.skipped += 1;
            return Ok(());
        }
        if self.query.limit.is_some_and(|limit| self.sent >= limit) {
            return Ok(());
        }
        self.sent += 1;
        (self.send)(fields)
    }
}

impl Order {
    fn compare(&self, left: &Json, right: &Json) -> Ordering {
        let (no_left, no_right) = (*left == Json::Null, *right == Json::Null);
        if no_left || no_right {
            let nulls_last = no_left.cmp(&no_right);
            return if self.nulls_first {
                nulls_last.reverse()
            } else {
                nulls_last
            };
        }
        let order = evaluate::total_order(left, right);
        if self.is_descending {
            order.reverse()
        } else {
            order
        }
    }
}
