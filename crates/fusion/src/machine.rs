//! One statement at work: events in, rows out, and books that balance. Pure state, no IO.
//!
//! Every event is accounted for exactly once: received = filtered + emitted from + late + errored +
//! dropped + in flight, where in flight are the events of open windows and of rows that the sink
//! has not taken yet.

mod checkpoint;
mod groups;
mod kept;
mod queries;

use std::sync::Arc;

use base::UnixMillis;

use crate::aggregate::Form;
use crate::expression::{Event, Expression, Scope};
use crate::json::BadPayload;
use crate::limits::{ERROR_TEXT_BYTES_MAX, KEPT_VALUE_BYTES_MAX};
use crate::machine::groups::{forms, new_windows};
use crate::machine::queries::Queried;
use crate::output::{Output, Row};
use crate::plan::{
    AggregateFunction, EventTime, OnError, Plan, Source, Stage, Tumbling, WindowShape,
};
use crate::query::QueryState;
use crate::query::kept::{Kept, KeptByName};
use crate::row::{prefixes, write_row};
use crate::time::event_time;
use crate::value::Value;
use crate::window::{Choices, Windows, starts};

/// What became of a statement's events, counted since the statement was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Events taken from the source.
    pub received: u64,
    /// Events (and events of groups) that a WHERE or HAVING did not let pass.
    pub filtered: u64,
    /// Events that rows which the sink has taken stand for.
    pub emitted_from: u64,
    /// Rows that the sink has taken.
    pub emitted: u64,
    /// Events that could not be computed with: no JSON, no time, too large.
    pub errored: u64,
    /// Events of windows that were closed already.
    pub late: u64,
    /// Events given up while or because the statement was suspended.
    pub dropped: u64,
}

impl Books {
    /// Events that are neither settled nor lost.
    pub fn in_flight(&self) -> u64 {
        let settled = self.filtered + self.emitted_from + self.errored + self.late + self.dropped;
        self.received.saturating_sub(settled)
    }
}

/// Choices that are no part of the statement's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineOptions {
    /// How long after the watermark a window stays open, milliseconds.
    pub lateness_ms: i64,
    /// Most open groups.
    pub groups_max: usize,
    /// Most bytes that open groups take, about.
    pub state_bytes_max: usize,
    /// Partitions of the source; 1 for MQTT.
    pub partitions: usize,
    /// How long after its end a window without new events is closed, milliseconds.
    pub close_delay_ms: i64,
    /// After so long without an event nothing waits for its time any more, milliseconds; 0 never.
    pub idle_ms: i64,
    /// What becomes of events that cannot be computed with.
    pub on_error: OnError,
    /// Where windows of the SQL forms start, and whether empty ones are told.
    pub choices: Choices,
}

/// The state of one statement.
#[derive(Clone, Debug)]
pub struct Machine {
    plan: Arc<Plan>,
    options: MachineOptions,
    /// Where each field of the plan stands among the source's scanned values.
    slots: Vec<usize>,
    /// The same for the plan's further sources.
    more_slots: Vec<Vec<usize>>,
    /// What stands in a row before each column's value.
    prefixes: Vec<Vec<u8>>,
    forms: Vec<Form>,
    windows: Option<Windows>,
    query: Option<Queried>,
    /// The named window or table that it creates.
    created: Option<Arc<Kept>>,
    books: Books,
    last_error: Option<String>,
    suspended: Option<String>,
    key: Vec<u8>,
}

impl Machine {
    /// As [`Machine::beside`], without any named window or table.
    #[cfg(test)]
    pub fn new(plan: Arc<Plan>, options: MachineOptions) -> Self {
        Machine::beside(plan, options, &KeptByName::default())
    }

    /// A fresh statement whose fields stand in the slots of their own order, beside the named
    /// windows and tables that there are.
    pub fn beside(plan: Arc<Plan>, options: MachineOptions, kept: &KeptByName) -> Self {
        if let Some(calls) = &plan.calls {
            calls.give_null(options.on_error == OnError::Null);
        }
        let (forms, windows) = match &plan.stage {
            Stage::PerEvent { .. } | Stage::Query(_) | Stage::Create(_) => (Vec::new(), None),
            Stage::Windowed {
                window, aggregates, ..
            } => (
                forms(&plan, (window, aggregates), &options),
                Some(new_windows(window, &options)),
            ),
        };
        let mut query =
            QueryState::new(plan.clone(), options.lateness_ms, options.groups_max, kept);
        let is_records = |source: &&Source| matches!(source, Source::Kafka(_));
        if let (Some(query), Some(records)) =
            (&mut query, plan.sources().iter().position(is_records))
        {
            query.expect(records, options.partitions);
        }
        Machine {
            slots: (0..plan.fields.len()).collect(),
            more_slots: Vec::new(),
            prefixes: prefixes(&plan.columns),
            forms,
            windows,
            query: query.map(Queried::new),
            created: Kept::new(&plan),
            books: Books::default(),
            last_error: None,
            suspended: None,
            key: Vec::new(),
            plan,
            options,
        }
    }

    /// Says where among the source's scanned values each field of the plan stands.
    pub fn bind(&mut self, slots: Vec<usize>) {
        assert_eq!(
            slots.len(),
            self.plan.fields.len(),
            "every field has one slot"
        );
        self.slots = slots;
    }

    /// The same for one of the plan's sources, by number.
    pub fn bind_source(&mut self, number: usize, slots: Vec<usize>) {
        let Some(more) = number.checked_sub(1) else {
            return self.bind(slots);
        };
        if self.more_slots.len() <= more {
            self.more_slots.resize(more + 1, Vec::new());
        }
        self.more_slots[more] = slots;
    }

    /// What became of the events.
    pub fn books(&self) -> Books {
        self.books
    }

    /// How many events could not be computed with, and how many were late.
    pub fn unused_events(&self) -> (u64, u64) {
        (self.books.errored, self.books.late)
    }

    /// Goes on with another's books, whose open windows are given up.
    pub fn take_books(&mut self, books: Books) {
        self.books = books;
        self.books.dropped += books.in_flight();
    }

    /// The latest error of an event, or why the statement is suspended.
    pub fn error(&self) -> Option<&str> {
        self.suspended.as_deref().or(self.last_error.as_deref())
    }

    /// True when the statement has given up until it is started anew.
    pub fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// Bytes of keyed state.
    pub fn state_bytes(&self) -> usize {
        let query = self.query.as_ref().map_or(0, |query| query.state.bytes());
        let created = self.created.as_ref().map_or(0, |kept| kept.bytes());
        query + created + self.windows.as_ref().map_or(0, Windows::state_bytes)
    }

    /// Applies one event of the plan's source with that number; rows go to `out`.
    pub fn on_source_event(
        &mut self,
        number: usize,
        event: &Event<'_>,
        scanned: Result<&[Value<'_>], &BadPayload>,
        out: &mut Output,
    ) {
        self.books.received += 1;
        if self.suspended.is_some() {
            self.books.dropped += 1;
            return;
        }
        let values = match scanned {
            Ok(values) => values,
            // A statement that reads no field of the payload works with any payload.
            Err(_) if self.plan.fields.is_empty() => &[],
            Err(_) if self.options.on_error == OnError::Null => &[],
            Err(bad) => return self.errored(event, bad),
        };
        let plan = self.plan.clone();
        match &plan.stage {
            Stage::PerEvent { window } => {
                self.on_single(&plan, window.as_ref(), event, values, out);
            }
            Stage::Windowed {
                window, group_by, ..
            } => {
                self.on_grouped(&plan, window, group_by, event, values, out);
            }
            Stage::Query(_) => self.on_query(number, event, values, out),
            Stage::Create(_) => self.on_insert(event, values),
        }
    }

    /// Closes windows by the wall clock, where the statement's time follows it and nothing more
    /// waits at the source.
    pub fn on_clock(&mut self, now: UnixMillis, out: &mut Output) {
        if self.query.is_some() {
            return self.on_query_clock(now, out);
        }
        if let Some(created) = self.created.as_ref().filter(|_| self.suspended.is_none()) {
            created.start(now.0);
            return created.advance(now.0);
        }
        if self.follows_clock()
            && let Some(windows) = &mut self.windows
        {
            windows.close_by_clock(now.0, self.options.close_delay_ms);
            self.emit_closed(out);
        }
    }

    /// When [`Machine::on_clock`] has something to do next.
    pub fn next_clock(&self) -> Option<UnixMillis> {
        if self.query.is_some() {
            return self.next_query_clock();
        }
        if let Some(created) = self.created.as_ref().filter(|_| self.suspended.is_none()) {
            return match created.has_begun() {
                true => created.deadline().map(UnixMillis),
                false => Some(UnixMillis(0)),
            };
        }
        if !self.follows_clock() {
            return None;
        }
        let close = self
            .windows
            .as_ref()?
            .next_clock_close(self.options.close_delay_ms)?;
        Some(UnixMillis(close))
    }

    /// Says of every partition of the source with that number whether records wait there.
    pub fn set_source_waiting(
        &mut self,
        number: usize,
        is_waiting: impl Fn(usize) -> bool,
        out: &mut Output,
    ) {
        if self.query.is_some() {
            return self.set_query_waiting(number, is_waiting, out);
        }
        if let Some(windows) = &mut self.windows {
            windows.set_waiting(is_waiting);
            self.emit_closed(out);
        }
    }

    /// The sink has taken so many rows that stand for so many events.
    pub fn delivered(&mut self, rows: u64, events: u64) {
        self.books.emitted += rows;
        self.books.emitted_from += events;
    }

    /// So many events' rows were given up.
    pub fn given_up(&mut self, events: u64, why: &str) {
        self.books.dropped += events;
        self.last_error = Some(why.to_owned());
    }

    /// So many events' rows were dropped, since the sinks take fewer than the statement gives.
    pub fn shed(&mut self, events: u64) {
        self.books.dropped += events;
        if self.last_error.as_deref() != Some(SHED) {
            self.last_error = Some(SHED.to_owned());
        }
    }

    fn on_single(
        &mut self,
        plan: &Plan,
        window: Option<&Tumbling>,
        event: &Event<'_>,
        values: &[Value<'_>],
        out: &mut Output,
    ) {
        let slots = std::mem::take(&mut self.slots);
        let mut scope = Scope::of_event(values, &slots, event);
        let before = (out.bytes.len(), out.rows.len(), self.books);
        let time = match window {
            None => Some(event.timestamp.0),
            Some(window) => time_of(&window.time, &scope, event),
        };
        match time {
            None => self.errored(event, &NO_TIME),
            Some(time) => {
                scope.window = window.and_then(|window| bounds(window, time));
                if !passes(plan.filter.as_ref(), &scope) {
                    self.books.filtered += 1;
                } else if write_row(&plan.columns, &self.prefixes, &scope, &mut out.bytes) {
                    let key = event.key.cloned();
                    let (end, timestamp) = (out.bytes.len(), UnixMillis(time));
                    out.rows.push(Row {
                        end,
                        timestamp,
                        key,
                        events: 1,
                        is_old: false,
                    });
                } else {
                    self.errored(event, &ROW_TOO_LARGE);
                }
            }
        }
        self.slots = slots;
        if let Some(why) = failed_call(plan) {
            out.bytes.truncate(before.0);
            out.rows.truncate(before.1);
            self.books = before.2;
            self.errored(event, &why);
        }
    }

    fn errored(&mut self, event: &Event<'_>, error: &dyn std::fmt::Display) {
        self.books.errored += 1;
        let mut text = match event.offset {
            None => format!("{error} (topic {})", event.topic),
            Some(offset) => format!(
                "{error} (topic {}, partition {}, offset {offset})",
                event.topic, event.partition
            ),
        };
        let end = (0..=ERROR_TEXT_BYTES_MAX)
            .rev()
            .find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        self.last_error = Some(text);
    }

    fn suspend(&mut self, reason: String) {
        if let Some(windows) = &mut self.windows {
            self.books.dropped += windows.events();
            windows.restart_time();
        }
        self.suspended = Some(suspended(&reason));
    }

    /// A named time column moves with events only; the source's own time follows the wall clock.
    fn follows_clock(&self) -> bool {
        match &self.plan.stage {
            Stage::Windowed { window, .. } => window.time == EventTime::Source,
            Stage::PerEvent { .. } | Stage::Query(_) | Stage::Create(_) => false,
        }
    }
}

/// From one window's start to the next one's, ms.
fn step(window: &Tumbling) -> i64 {
    match window.shape {
        WindowShape::Hop { step } => crate::query::window::millis(step),
        WindowShape::Tumble | WindowShape::Session => millis(window),
    }
}

/// Start and end of the first window that `time` lies in.
fn bounds(window: &Tumbling, time: i64) -> Option<(i64, i64)> {
    let length = millis(window);
    let start = starts(length, step(window), time).next()?;
    Some((start, start.saturating_add(length)))
}

fn millis(window: &Tumbling) -> i64 {
    i64::try_from(window.length.as_millis())
        .unwrap_or(i64::MAX)
        .max(1)
}

fn time_of(time: &EventTime, scope: &Scope<'_>, event: &Event<'_>) -> Option<i64> {
    match time {
        EventTime::Source => event_time(&Value::Int(event.timestamp.0)),
        EventTime::Column(column) => event_time(&column.evaluate(scope)),
    }
}

fn passes(condition: Option<&Expression>, scope: &Scope<'_>) -> bool {
    condition.is_none_or(|condition| condition.truth(scope) == Some(true))
}

/// Texts are kept by these only; one that is too long to keep is skipped.
fn is_too_long(value: &Value<'_>, function: AggregateFunction) -> bool {
    use AggregateFunction::{First, Last, Max, Min};
    match value {
        Value::Text(text) | Value::Json(text) => {
            matches!(function, Min | Max | First | Last) && text.len() > KEPT_VALUE_BYTES_MAX
        }
        _ => false,
    }
}

fn suspended(reason: &str) -> String {
    format!("suspended: {reason}; then remove and add the statement")
}

/// Why a function of a module failed since this was last asked, where the statement calls any.
fn failed_call(plan: &Plan) -> Option<String> {
    plan.calls.as_ref()?.take()
}

/// An error with a fixed text.
struct Fixed(&'static str);

impl std::fmt::Display for Fixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

const NO_TIME: Fixed = Fixed(
    "the time column is no time: it takes milliseconds since 1970 or a text by RFC 3339 such as \
     2026-01-31T12:00:00Z",
);
/// Says why rows are missing.
const SHED: &str = "rows were dropped: the targets take fewer than the statement gives \
                    (policies.backpressure)";
const ROW_TOO_LARGE: Fixed = Fixed("the row is larger than a record may be: select fewer columns");
const KEY_TOO_LARGE: Fixed = Fixed("the group's key is too long: group by a shorter value");
