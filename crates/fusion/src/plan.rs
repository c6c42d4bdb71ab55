//! The compiled form of a statement, independent of the language it was written in.
//!
//! A front end ([`crate::epl`], [`crate::sql`]) turns text into a [`Plan`]; everything behind it
//! knows plans only. A plan names its source and sink, lists the payload fields it reads (so that
//! the scanner fills just those), and holds its expressions as trees over those fields.

mod pattern;
mod policies;
mod query;
mod timed;

use std::sync::Arc;
use std::time::Duration;

pub use pattern::{Pattern, PatternNode, Recognize, RecognizeInterval, RowPattern, Skip};
pub use policies::{Align, Backpressure, EmptyWindows, InputPolicy, OnError, Policies};
pub use query::{
    Assignment, Boundary, Context, Create, History, Input, Join, JoinKind, Limit, MergeAction,
    MergeBranch, OUTPUT_COUNT_FIRST, OnAction, OrderKey, OutputAfter, OutputCount, OutputEvery,
    OutputKind, OutputRate, Pick, Query, QueryTime, Schedule, Shape, Slot, SlotField, StreamSelect,
    Subquery, SubqueryKind, TableColumn, View, Within,
};

use crate::expression::Expression;
use crate::functions::user::Calls;
use crate::json::FieldPath;
use crate::polls::Polled;
use crate::sinks::Table;

/// What one statement does with each event.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Where events come from.
    pub source: Source,
    /// Where rows go; none means the statement's own MQTT topic.
    pub sink: Option<Sink>,
    /// The payload fields that the expressions read; [`Expression::Field`] indexes this list.
    pub fields: Vec<FieldPath>,
    /// Events for which this is not true are filtered.
    pub filter: Option<Expression>,
    /// What happens to the events that pass.
    pub stage: Stage,
    /// The columns of a row, in order.
    pub columns: Vec<Column>,
    /// The modules whose functions it calls; none where it calls none.
    pub calls: Option<Arc<Calls>>,
}

/// Where events come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The messages that match an MQTT topic filter.
    Mqtt(String),
    /// The records of a Kafka topic.
    Kafka(String),
    /// The rows that statements insert into an internal stream, a named window or a table.
    Stream(String),
}

/// Where rows go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Sink {
    /// One message per row on an MQTT topic.
    Mqtt(String),
    /// One record per row in a Kafka topic.
    Kafka(String),
    /// One message per row to another broker: the bridge that leads there, and the topic there.
    Bridge(String, String),
    /// One POST per row to a URL.
    Http(String),
    /// One row per row in a table of a SQL database.
    Table(Table),
    /// One event per row on an internal stream, named window or table: every statement on it has
    /// seen the row before the next event of a source is taken.
    Stream(String),
    /// Nowhere: a row asks HTTP servers for events.
    Poll(Polled),
}

/// How events become rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// A row per event; a length gives each row the bounds of its tumbling window.
    PerEvent {
        /// The window whose bounds the row may name.
        window: Option<Tumbling>,
    },
    /// A row per group and window.
    Windowed {
        /// The windows.
        window: Tumbling,
        /// Keys of a group.
        group_by: Vec<Expression>,
        /// What each group accumulates; [`Expression::Aggregate`] indexes this list.
        aggregates: Vec<Aggregate>,
        /// Groups for which this is not true give no row.
        having: Option<Expression>,
    },
    /// Rows of windows that slide, joins, patterns, tables.
    Query(Box<Query>),
    /// No rows: a named window or a table for others.
    Create(Box<Create>),
}

/// Windows over time that are aligned to the epoch, with a row per group when one closes.
#[derive(Clone, Debug, PartialEq)]
pub struct Tumbling {
    /// The windows' length; a session's longest pause.
    pub length: Duration,
    /// How windows lie to each other.
    pub shape: WindowShape,
    /// What time an event belongs to.
    pub time: EventTime,
}

/// How windows lie to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowShape {
    /// They touch and do not overlap.
    #[default]
    Tumble,
    /// One starts with every step, so that an event may be in several, or between two in none.
    Hop {
        /// From one start to the next.
        step: Duration,
    },
    /// Each group has its own: events with pauses of less than the length between them.
    Session,
}

/// What time an event belongs to.
#[derive(Clone, Debug, PartialEq)]
pub enum EventTime {
    /// The record's timestamp (Kafka) or the arrival (MQTT).
    Source,
    /// A column: milliseconds since the epoch, or a text by RFC 3339.
    Column(Expression),
}

/// One aggregate of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// What is computed.
    pub function: AggregateFunction,
    /// Of what; none for `count(*)`.
    pub argument: Option<Expression>,
    /// The function's second argument: the fraction of `percentile` (0 to 1), the place of `nth`,
    /// the order of `maxby` and `minby`, the milliseconds of `rate`.
    pub parameter: Option<Expression>,
    /// Each value once.
    pub is_distinct: bool,
    /// Only of events for which this is true.
    pub filter: Option<Expression>,
}

/// The aggregate functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateFunction {
    /// How many values are not null; of `*`, how many events.
    Count,
    /// The sum; an integer while all values are.
    Sum,
    /// The mean, a double.
    Avg,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The first that is not null.
    First,
    /// The last that is not null.
    Last,
    /// The sample's standard deviation; null below two values.
    Stddev,
    /// The whole's standard deviation; null for no value.
    StddevPop,
    /// The mean of the distances to the mean.
    Avedev,
    /// The middle value; of an even number of values the mean of the two in the middle.
    Median,
    /// The value below which a fraction lies, interpolated between neighbours.
    Percentile,
    /// The value of the first event that is kept, also a null.
    FirstValue,
    /// The value of the last event that is kept, also a null.
    LastValue,
    /// The values of all events that are kept, a JSON array.
    Window,
    /// The n-th last value, from 0.
    Nth,
    /// The argument where the parameter is greatest.
    MaxBy,
    /// The argument where the parameter is least.
    MinBy,
    /// How many values there ever were.
    CountEver,
    /// The first value that there ever was.
    FirstEver,
    /// The last value that there ever was.
    LastEver,
    /// The least value that there ever was.
    MinEver,
    /// The greatest value that there ever was.
    MaxEver,
    /// Events per second over the parameter's milliseconds; null before they have passed.
    Rate,
}

/// One column of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Every field of the payload, as it came.
    All {
        /// The field that is the whole payload.
        payload: u16,
    },
    /// A named expression.
    Named {
        /// The column's name.
        name: String,
        /// Its value.
        expression: Expression,
    },
}

/// The aggregate functions by name, with what a reader has to know.
pub const AGGREGATE_FUNCTIONS: &[(&str, AggregateFunction)] = &[
    ("count", AggregateFunction::Count),
    ("sum", AggregateFunction::Sum),
    ("avg", AggregateFunction::Avg),
    ("min", AggregateFunction::Min),
    ("max", AggregateFunction::Max),
    ("first", AggregateFunction::First),
    ("last", AggregateFunction::Last),
    ("stddev", AggregateFunction::Stddev),
];

impl Plan {
    /// The names of the columns; none where a row is whatever came.
    pub fn column_names(&self) -> Option<Vec<String>> {
        let name = |column: &Column| match column {
            Column::All { .. } => None,
            Column::Named { name, .. } => Some(name.clone()),
        };
        self.columns.iter().map(name).collect()
    }

    /// The Kafka topics among its sources.
    pub fn kafka_topics(&self) -> impl Iterator<Item = &str> {
        self.sources()
            .into_iter()
            .filter_map(|source| match source {
                Source::Kafka(topic) => Some(topic.as_str()),
                _ => None,
            })
    }

    /// The join that time bounds, and its bounds.
    pub fn within(&self) -> Option<(&Join, &Within)> {
        match &self.stage {
            Stage::Query(query) => query.within(),
            _ => None,
        }
    }

    /// The named window or table that it changes.
    pub fn changes(&self) -> Option<&str> {
        let Stage::Query(query) = &self.stage else {
            return None;
        };
        match (&query.shape, query.inputs.get(1).map(|input| &input.source)) {
            (Shape::On(OnAction::Select { delete: false }), _) => None,
            (Shape::On(_), Some(Source::Stream(name))) => Some(name),
            _ => None,
        }
    }

    /// The sources whose events make it do something: not those that are only looked into.
    pub fn triggers(&self) -> Vec<&Source> {
        let Stage::Query(query) = &self.stage else {
            return vec![&self.source];
        };
        let looked_into = match query.shape {
            Shape::On(_) => query.inputs.len() - 1,
            _ => query.subqueries.len(),
        };
        let inputs = &query.inputs[..query.inputs.len().saturating_sub(looked_into).max(1)];
        inputs.iter().map(|input| &input.source).collect()
    }

    /// Every source that the statement reads, each once, in the order of the inputs.
    pub fn sources(&self) -> Vec<&Source> {
        let mut sources = vec![&self.source];
        if let Stage::Query(query) = &self.stage {
            for input in &query.inputs {
                if !sources.contains(&&input.source) {
                    sources.push(&input.source);
                }
            }
        }
        sources
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Mqtt(filter) => write!(f, "mqtt.\"{filter}\""),
            Source::Kafka(topic) => write!(f, "kafka.\"{topic}\""),
            Source::Stream(name) => write!(f, "stream.\"{name}\""),
        }
    }
}

impl std::fmt::Display for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Sink::Mqtt(topic) => write!(f, "mqtt.\"{topic}\""),
            Sink::Kafka(topic) => write!(f, "kafka.\"{topic}\""),
            Sink::Bridge(bridge, topic) => write!(f, "mqtt@{bridge}.\"{topic}\""),
            Sink::Http(url) => f.write_str(url),
            Sink::Table(table) => table.fmt(f),
            Sink::Stream(name) => write!(f, "stream.\"{name}\""),
            Sink::Poll(polled) => polled.fmt(f),
        }
    }
}
