//! Queries by their plans: what enters, what leaves, and when.

mod hops;
mod joins;
mod outputs;
mod patterns;
mod recognize;
mod state;
mod windows;

use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use crate::expression::{Comparison, Event, Expression};
use crate::json::{FieldPath, Scanner};
use crate::machine::{Machine, MachineOptions};
use crate::output::Output;
use crate::plan::{
    Aggregate, AggregateFunction, Column, Input, Pick, Plan, Query, Shape, Slot, SlotField, Source,
    Stage, StreamSelect, View,
};
use crate::query::kept::KeptByName;
use crate::value::{OwnedValue, Value};

/// A plan of the inputs `t0`, `t1`, …, each with the fields k, v and ts: slot 3 * input + field.
pub struct Builder {
    pub query: Query,
    pub columns: Vec<(String, Expression)>,
    pub filter: Option<Expression>,
}

pub const K: u16 = 0;
pub const V: u16 = 1;
pub const TS: u16 = 2;

pub fn of(input: u16, field: u16) -> Expression {
    Expression::Field(3 * input + field)
}

pub fn int(number: i64) -> Expression {
    Expression::Literal(OwnedValue::Int(number))
}

pub fn text(text: &str) -> Expression {
    Expression::Literal(OwnedValue::Text(text.to_owned()))
}

pub fn compare(comparison: Comparison, a: Expression, b: Expression) -> Expression {
    Expression::Compare(comparison, Box::new([a, b]))
}

pub fn equal(a: Expression, b: Expression) -> Expression {
    compare(Comparison::Equal, a, b)
}

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One input per list of views.
pub fn from(views: &[&[View]]) -> Builder {
    let inputs = views.iter().enumerate().map(|(place, views)| Input {
        asks: false,
        source: Source::Mqtt(format!("t{place}")),
        filter: None,
        views: views.to_vec(),
        is_union: false,
        is_unidirectional: false,
    });
    let aliases = u16::try_from(views.len()).unwrap();
    Builder {
        query: Query::of(
            inputs.collect(),
            slots(aliases),
            Shape::Events { joins: Vec::new() },
        ),
        columns: Vec::new(),
        filter: None,
    }
}

/// Slots of so many aliases.
pub fn slots(aliases: u16) -> Vec<Slot> {
    (0..aliases)
        .flat_map(|alias| {
            (0..3).map(move |field| Slot::Event {
                alias,
                pick: Pick::Last,
                field: SlotField::Payload(field),
            })
        })
        .collect()
}

impl Builder {
    pub fn column(mut self, name: &str, expression: Expression) -> Self {
        self.columns.push((name.to_owned(), expression));
        self
    }

    pub fn aggregate(self, name: &str, function: AggregateFunction, argument: Expression) -> Self {
        self.aggregate_of(name, function, Some(argument), None, false)
    }

    pub fn aggregate_of(
        mut self,
        name: &str,
        function: AggregateFunction,
        argument: Option<Expression>,
        parameter: Option<Expression>,
        is_distinct: bool,
    ) -> Self {
        self.query.aggregates.push(Aggregate {
            function,
            argument,
            parameter,
            is_distinct,
            filter: None,
        });
        let place = u16::try_from(self.query.aggregates.len() - 1).unwrap();
        self.column(name, Expression::Aggregate(place))
    }

    pub fn group_by(mut self, key: Expression) -> Self {
        self.query.group_by.push(key);
        self
    }

    pub fn both(mut self) -> Self {
        self.query.stream = StreamSelect::Both;
        self
    }

    pub fn with(mut self, change: impl FnOnce(&mut Query)) -> Self {
        change(&mut self.query);
        self
    }

    pub fn filter(mut self, filter: Expression) -> Self {
        self.filter = Some(filter);
        self
    }

    pub fn plan(self) -> Plan {
        let field = |name: &str| FieldPath(vec![name.to_owned()]);
        let columns = self.columns.into_iter();
        Plan {
            source: self.query.inputs[0].source.clone(),
            sink: None,
            fields: vec![field("k"), field("v"), field("ts")],
            filter: self.filter,
            calls: None,
            stage: Stage::Query(Box::new(self.query)),
            columns: columns
                .map(|(name, expression)| Column::Named { name, expression })
                .collect(),
        }
    }

    /// Runs a script and gives the rows, see [`run`].
    pub fn rows(self, script: &str) -> String {
        run(&mut machine(self.plan(), 0), script)
    }
}

/// A fresh machine.
pub fn machine(plan: Plan, lateness_ms: i64) -> Machine {
    let options = MachineOptions {
        lateness_ms,
        close_delay_ms: 0,
        ..super::house::options()
    };
    crate::query::compiled::check(&plan, &KeptByName::default()).unwrap();
    Machine::new(Arc::new(plan), options)
}

/// Runs lines `TIME[@INPUT] K V [TS]` (a `-` is a field that is missing) and `TIME` alone for the
/// clock; gives `TIME ROW` per row, old ones with a `-` before the row, and the books' sum is
/// checked after each line.
pub fn run(machine: &mut Machine, script: &str) -> String {
    let mut text = String::new();
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let mut out = Output::default();
        give(machine, line, &mut out);
        for (row, json) in out.rows.iter().zip(out.texts()) {
            let json = std::str::from_utf8(json).unwrap();
            serde_json::from_str::<serde_json::Value>(json).unwrap();
            let sign = if row.is_old { "-" } else { "" };
            text.push_str(&format!("{} {sign}{json}\n", row.timestamp.0));
        }
        machine.delivered(out.rows.len() as u64, out.events());
    }
    text
}

/// Gives one line of a script to a machine.
pub fn give(machine: &mut Machine, line: &str, out: &mut Output) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (time, input) = words[0].split_once('@').unwrap_or((words[0], "0"));
    let time = UnixMillis(time.parse().unwrap());
    if words.len() == 1 {
        return machine.on_clock(time, out);
    }
    let names = ["k", "v", "ts"];
    let fields: Vec<String> = names
        .iter()
        .zip(&words[1..])
        .filter(|(_, value)| **value != "-")
        .map(|(name, value)| match value.parse::<f64>() {
            Ok(_) => format!("\"{name}\":{value}"),
            Err(_) => format!("\"{name}\":\"{value}\""),
        })
        .collect();
    let payload = format!("{{{}}}", fields.join(","));
    let paths: Vec<FieldPath> = names
        .iter()
        .map(|name| FieldPath(vec![(*name).to_owned()]))
        .collect();
    let scanner = Scanner::new(&paths);
    let number: usize = input.parse().unwrap();
    machine.bind_source(number, vec![0, 1, 2]);
    let mut values: Vec<Value<'_>> = Vec::new();
    let event = Event {
        topic: "t",
        payload: Some(payload.as_bytes()),
        key: None,
        partition: 0,
        offset: None,
        timestamp: time,
    };
    let scanned = scanner.scan(payload.as_bytes(), &mut values);
    let scanned = scanned.as_ref().map(|()| values.as_slice());
    machine.on_source_event(number, &event, scanned, out);
}

/// Compares, line by line without indentation.
#[track_caller]
pub fn check(rows: &str, expected: &str) {
    let lines = |text: &str| {
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(lines(rows), lines(expected));
}
