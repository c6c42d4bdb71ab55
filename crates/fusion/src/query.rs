//! Statements with state of their own (see [`crate::plan::Query`]): pure state, no clock, no IO.
//!
//! Time first advances, stopping at every instant at which something is due, then the event is
//! applied; at one instant windows let go first, then patterns, then outputs come. The same events
//! and times in the same order give the same rows.

pub mod chain;
pub mod compiled;
mod contexts;
mod join;
pub mod kept;
pub mod layout;
mod lookup;
mod on;
pub mod order;
mod part;
mod pattern;
mod rate;
mod recognize;
pub mod select;
mod subquery;
pub mod tuple;
pub mod window;
mod within;

use std::cell::Cell;
use std::sync::Arc;

use crate::codec::{Decoder, Encoder};
use crate::expression::{Event, Pseudo, Scope};
use crate::limits::{
    PATTERN_STATES_MAX, STATE_BYTES_MAX, TIME_AHEAD_MS_MAX, TIME_MS_MAX, TIME_STEPS_MAX,
    WAITING_EVENTS_MAX,
};
use crate::output::Output;
use crate::plan::{Plan, QueryTime, Shape, SlotField};
use crate::query::compiled::Compiled;
use crate::query::contexts::Parts;
use crate::query::kept::{Change, KeptByName};
use crate::query::order::Order;
use crate::query::part::Work;
use crate::query::select::Faults;
use crate::query::tuple::{Meter, TupleReader, TupleWriter};
use crate::time::event_time;
use crate::value::{OwnedValue, Value};

/// The state of a query.
#[derive(Debug)]
pub struct QueryState {
    compiled: Arc<Compiled>,
    meter: Arc<Meter>,
    groups_max: usize,
    /// The query's time; none before it started.
    now: Option<i64>,
    number: u64,
    parts: Parts,
    order: Option<Order>,
    faults: Faults,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// No filter let it pass.
    Filtered,
    /// It is in the state, or in the rows that were made.
    Kept,
    /// It waits for its time.
    Waits,
    /// Its time has passed.
    Late,
    /// It has no time.
    NoTime,
    /// A function of a module failed on it.
    Failed,
}

/// What became of events that waited for their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Events that no filter let pass.
    pub filtered: u64,
    /// Events that are in the state or in rows.
    pub kept: u64,
    /// Events on which a function of a module failed.
    pub failed: u64,
}

/// Why a statement cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryFull {
    /// Too much state.
    #[error(
        "more than {STATE_BYTES_MAX} bytes of state: keep fewer or shorter events, or group by \
         fewer keys"
    )]
    Bytes,
    /// Too many groups.
    #[error(
        "more than {0} groups or keys: use fewer keys, let windows forget them, or raise \
         fusion.groups_max"
    )]
    Groups(usize),
    /// Too many waiting parts of a pattern.
    #[error(
        "more than {PATTERN_STATES_MAX} parts of the pattern wait: bound them by timer:within or \
         by a narrower filter"
    )]
    Pattern,
    /// Too many events wait for their time.
    #[error("more than {WAITING_EVENTS_MAX} events wait for their time: lessen the lateness")]
    Waiting,
}

impl Clone for QueryState {
    /// A copy by way of a checkpoint: kept events are counted by a meter of their own.
    fn clone(&self) -> Self {
        let mut out = Encoder::default();
        self.encode(&mut out);
        let mut copy = QueryState::empty(self.compiled.clone(), 0, self.groups_max);
        copy.order = self.order.as_ref().map(Order::fresh);
        copy.decode(&mut Decoder::new(&out.0))
            .expect("what was just written can be read")
    }
}

impl QueryState {
    /// A query that has not started.
    pub fn new(
        plan: Arc<Plan>,
        lateness_ms: i64,
        groups_max: usize,
        kept: &KeptByName,
    ) -> Option<Self> {
        let compiled = Arc::new(Compiled::new(plan, kept)?);
        Some(QueryState::empty(compiled, lateness_ms, groups_max))
    }

    /// Rows of what the inputs hold now, once: all that a query on demand gives, or an act of it
    /// that no event asks for.
    pub fn once(&mut self, now: i64, out: &mut Output) {
        self.advance(now, out);
        let compiled = self.compiled.clone();
        let numbers = Cell::new(self.number);
        let mut work = Work {
            compiled: &compiled,
            now: self.now.unwrap_or(now),
            meter: &self.meter,
            number: &numbers,
            out,
            faults: &mut self.faults,
        };
        self.parts.once(&mut work);
    }

    /// True when the source with that number is a named window whose changes are taken as they are.
    pub fn takes_changes(&self, number: usize) -> bool {
        let compiled = &self.compiled;
        let mut readers = compiled.readers.get(number).into_iter().flatten();
        match compiled.query().shape {
            Shape::Pattern(_) | Shape::Recognize(_) => false,
            // What triggers is an event.
            Shape::On(_) => readers.all(|input| *input != 0),
            Shape::Events { .. } => readers.any(|input| compiled.kept[*input].is_some()),
        }
    }

    /// Rows entered and left the named window that is the plan's source with that number; true when
    /// the query's rows depend on it.
    pub fn on_change(&mut self, number: usize, change: &Change, out: &mut Output) -> bool {
        self.advance(change.now, out);
        let compiled = self.compiled.clone();
        let readers = compiled.readers.get(number).map_or(&[][..], Vec::as_slice);
        let numbers = Cell::new(self.number);
        let mut work = Work {
            compiled: &compiled,
            now: self.now.unwrap_or(change.now),
            meter: &self.meter,
            number: &numbers,
            out,
            faults: &mut self.faults,
        };
        self.parts.on_change(&mut work, readers, change);
        self.number = numbers.get();
        let is_looked_into = matches!(compiled.query().shape, Shape::On(_));
        !is_looked_into && readers.iter().any(|input| *input < compiled.own_inputs)
    }

    fn empty(compiled: Arc<Compiled>, lateness_ms: i64, groups_max: usize) -> Self {
        let order = match compiled.query().time {
            QueryTime::Arrival => None,
            QueryTime::Event(_) => Some(Order::new(lateness_ms)),
        };
        QueryState {
            compiled,
            meter: Arc::default(),
            groups_max,
            now: None,
            number: 0,
            parts: Parts::default(),
            order,
            faults: Faults::default(),
        }
    }

    /// In event time: the source with that number has so many partitions, and none of them may be
    /// ahead of another that has not been read yet.
    pub fn expect(&mut self, source: usize, partitions: usize) {
        if let Some(order) = &mut self.order {
            order.expect(source, partitions);
        }
    }

    /// True when the events' own time counts.
    pub fn is_event_time(&self) -> bool {
        self.order.is_some()
    }

    /// The query's time.
    pub fn now(&self) -> Option<i64> {
        self.now
    }

    /// Takes one event of the plan's source with that number; `source` reads the plan's fields.
    /// `now` is the time of arrival; the query's time never goes back.
    pub fn on_event(
        &mut self,
        number: usize,
        event: &Event<'_>,
        source: &Scope<'_>,
        out: &mut Output,
    ) -> Taken {
        if self.order.is_some() {
            return self.on_timed(number, event, source);
        }
        self.advance(event.timestamp.0, out);
        self.apply(number, source, out)
    }

    /// Moves time on, doing what is due on the way. In event time nothing happens: only events and
    /// [`QueryState::release`] move it.
    pub fn on_clock(&mut self, now: i64, out: &mut Output) {
        if self.order.is_none() {
            self.advance(now, out);
        }
    }

    /// When something is due by the clock.
    pub fn deadline(&self) -> Option<i64> {
        match &self.order {
            Some(_) => None,
            None => self.parts.deadline(),
        }
    }

    /// In event time: applies the events whose time has passed, and moves time to the watermark.
    pub fn release(&mut self, out: &mut Output) -> Released {
        let mut released = Released::default();
        while let Some(waiting) = self.order.as_mut().and_then(Order::pop) {
            self.advance(waiting.time, out);
            let values: Vec<Value<'_>> = waiting.values.iter().map(OwnedValue::as_value).collect();
            let slots: Vec<usize> = (0..values.len()).collect();
            let event = waiting.event();
            let source = Scope::of_event(&values, &slots, &event);
            match self.apply(waiting.source, &source, out) {
                Taken::Kept => released.kept += 1,
                Taken::Failed => released.failed += 1,
                _ => released.filtered += 1,
            }
        }
        if let Some(floor) = self.order.as_ref().and_then(Order::floor)
            && self.now.is_some()
        {
            self.advance(floor, out);
        }
        released
    }

    /// In event time: says which partitions of a source still have events waiting.
    pub fn set_waiting(&mut self, source: usize, is_waiting: impl Fn(usize) -> bool) {
        if let Some(order) = &mut self.order {
            order.set_waiting(source, is_waiting);
        }
    }

    /// In event time: expects nothing more soon, so that everything that waits is applied by the
    /// next [`QueryState::release`].
    pub fn flush(&mut self) {
        if let Some(order) = &mut self.order {
            order.flush();
        }
    }

    /// In event time that is the sources' own: what happened before `until` passes, and what is due
    /// by then is done by the next [`QueryState::release`].
    pub fn close_by_clock(&mut self, until: i64) {
        if self.follows_clock()
            && let Some(order) = &mut self.order
        {
            order.pass(until, self.parts.deadline());
        }
    }

    /// When [`QueryState::close_by_clock`] has something to do.
    pub fn next_close(&self) -> Option<i64> {
        let order = self.order.as_ref().filter(|_| self.follows_clock())?;
        let first = order.first().map(|time| time + 1);
        first.into_iter().chain(self.parts.deadline()).min()
    }

    /// True of a join whose events have the times that their sources know.
    fn follows_clock(&self) -> bool {
        let query = self.compiled.query();
        let is_own = |field: &SlotField| *field == SlotField::Pseudo(Pseudo::Timestamp);
        query.within().is_some()
            && matches!(&query.time, QueryTime::Event(fields) if fields.iter().all(is_own))
    }

    /// Events that wait for their time.
    pub fn waiting(&self) -> usize {
        self.order.as_ref().map_or(0, Order::len)
    }

    /// Rows that could not be made since the last call.
    pub fn take_faults(&mut self) -> Faults {
        self.note_failure();
        std::mem::take(&mut self.faults)
    }

    /// Why a function of a module failed last, since faults were last taken.
    pub fn take_failure(&mut self) -> Option<String> {
        self.faults.failed.take()
    }

    /// Whether a function of a module has failed since this was last asked.
    fn note_failure(&mut self) -> bool {
        self.faults.note(self.compiled.plan.calls.as_deref());
        std::mem::take(&mut self.faults.has_failed)
    }

    /// True when events are held that rows may stand for later.
    pub fn holds_any(&self) -> bool {
        self.meter.bytes() > 0 || self.parts.holds_any()
    }

    /// Bytes of state, about.
    pub fn bytes(&self) -> usize {
        self.meter.bytes() + self.parts.bytes() + self.order.as_ref().map_or(0, Order::bytes)
    }

    /// Whether the state is within its bounds.
    ///
    /// # Errors
    /// The bound that was passed.
    pub fn check(&self) -> Result<(), QueryFull> {
        if self.meter.bytes() > STATE_BYTES_MAX || self.bytes() > STATE_BYTES_MAX {
            return Err(QueryFull::Bytes);
        }
        if self.parts.groups() > self.groups_max {
            return Err(QueryFull::Groups(self.groups_max));
        }
        if self.parts.pattern_states() > PATTERN_STATES_MAX {
            return Err(QueryFull::Pattern);
        }
        if self.waiting() > WAITING_EVENTS_MAX {
            return Err(QueryFull::Waiting);
        }
        Ok(())
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.parts = Parts::default();
        if let Some(order) = &mut self.order {
            *order = order.fresh();
        }
        self.now = None;
    }

    /// Writes the state.
    pub fn encode(&self, out: &mut Encoder) {
        window::encode_time(self.now, out);
        out.u64(self.number);
        let tuples = &mut TupleWriter::default();
        self.parts.encode(&self.compiled, tuples, out);
        if let Some(order) = &self.order {
            order.encode(out);
        }
    }

    /// Reads it back into one that has not started; `None` when it does not fit.
    pub fn decode(mut self, from: &mut Decoder<'_>) -> Option<Self> {
        self.now = window::decode_time(from)?;
        self.number = from.u64()?;
        let mut tuples = TupleReader::new(self.meter.clone());
        self.parts = Parts::decode(&self.compiled, &mut tuples, from)?;
        // Whoever wrote this had done all that was due, and nothing is due in a far future.
        let due = self.parts.deadline();
        let is_likely = |due: i64| {
            let now = self.now.unwrap_or(due - 1);
            (1..=TIME_AHEAD_MS_MAX).contains(&due.saturating_sub(now))
        };
        if !due.is_none_or(is_likely) {
            return None;
        }
        if let Some(order) = self.order {
            self.order = Some(order.decode(from)?);
        }
        Some(self)
    }

    fn on_timed(&mut self, number: usize, event: &Event<'_>, source: &Scope<'_>) -> Taken {
        let compiled = self.compiled.clone();
        let query = compiled.query();
        let QueryTime::Event(fields) = &query.time else {
            return Taken::NoTime;
        };
        let field = fields.get(number).or(fields.first());
        let time = field.and_then(|field| event_time(&layout::field_of(field, source)));
        let (Some(time), Some(order)) = (time, &mut self.order) else {
            return Taken::NoTime;
        };
        let fields = compiled.plan.fields.len();
        let values = (0..fields).map(|field| {
            let field = u16::try_from(field).unwrap_or(u16::MAX);
            layout::owned(&source.field(field))
        });
        if order.take(number, time, event, values) {
            Taken::Waits
        } else {
            Taken::Late
        }
    }

    fn advance(&mut self, to: i64, out: &mut Output) {
        let compiled = self.compiled.clone();
        let to = to.clamp(-TIME_MS_MAX, TIME_MS_MAX);
        let mut now = match self.now {
            Some(now) => now,
            None => {
                let numbers = Cell::new(self.number);
                let mut work = Work {
                    compiled: &compiled,
                    now: to,
                    meter: &self.meter,
                    number: &numbers,
                    out,
                    faults: &mut self.faults,
                };
                self.parts = Parts::start(&mut work);
                self.number = numbers.get();
                to
            }
        };
        let mut steps = 0;
        while let Some(due) = self.parts.deadline()
            && due <= to
        {
            steps += 1;
            // After so many instants the rest of the way is one step: what is due, is due now.
            let due = if steps > TIME_STEPS_MAX { to } else { due };
            now = now.max(due);
            let numbers = Cell::new(self.number);
            let mut work = Work {
                compiled: &compiled,
                now,
                meter: &self.meter,
                number: &numbers,
                out,
                faults: &mut self.faults,
            };
            self.parts.advance(&mut work, due);
            self.number = numbers.get();
        }
        self.now = Some(now.max(to));
        // What time brings is no fault of the event that comes next.
        self.note_failure();
    }

    fn apply(&mut self, number: usize, source: &Scope<'_>, out: &mut Output) -> Taken {
        let compiled = self.compiled.clone();
        let readers = compiled.readers.get(number).map_or(&[][..], Vec::as_slice);
        let numbers = Cell::new(self.number);
        let mut work = Work {
            compiled: &compiled,
            now: self.now.unwrap_or(0),
            meter: &self.meter,
            number: &numbers,
            out,
            faults: &mut self.faults,
        };
        let is_taken = self.parts.on_event(&mut work, readers, source);
        self.number = numbers.get();
        if self.note_failure() {
            Taken::Failed
        } else if is_taken {
            Taken::Kept
        } else {
            Taken::Filtered
        }
    }
}
