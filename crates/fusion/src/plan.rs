//! The compiled form of a statement, independent of the language it was written in.
//!
//! A front end (today SQL, see [`crate::sql`]) turns text into a [`Plan`]; everything behind it
//! knows plans only. A plan names its source and sink, lists the payload fields it reads (so that
//! the scanner fills just those), and holds its expressions as trees over those fields.

use std::time::Duration;

use crate::expression::Expression;
use crate::json::FieldPath;

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
}

/// Where events come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The messages that match an MQTT topic filter.
    Mqtt(String),
    /// The records of a Kafka topic.
    Kafka(String),
}

/// Where rows go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Sink {
    /// One message per row on an MQTT topic.
    Mqtt(String),
    /// One record per row in a Kafka topic.
    Kafka(String),
    /// One POST per row to a URL.
    Http(String),
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
}

/// Windows of one length that touch and do not overlap, aligned to the epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Tumbling {
    /// The windows' length.
    pub length: Duration,
    /// What time an event belongs to.
    pub time: EventTime,
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

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Mqtt(filter) => write!(f, "mqtt.\"{filter}\""),
            Source::Kafka(topic) => write!(f, "kafka.\"{topic}\""),
        }
    }
}

impl std::fmt::Display for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Sink::Mqtt(topic) => write!(f, "mqtt.\"{topic}\""),
            Sink::Kafka(topic) => write!(f, "kafka.\"{topic}\""),
            Sink::Http(url) => f.write_str(url),
        }
    }
}
