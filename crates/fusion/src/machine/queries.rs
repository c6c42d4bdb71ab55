//! Statements with a [`QueryState`] among the machines: their books, their clock, their bounds.
//!
//! An event that a query keeps is in flight until rows leave: the first row that leaves stands for
//! every event kept since the last one. When nothing is kept any more and no row stands for an
//! event, it counts as filtered.

use base::UnixMillis;

use super::{Machine, NO_TIME, ROW_TOO_LARGE};
use crate::expression::{Event, Scope};
use crate::output::Output;
use crate::plan::Source;
use crate::query::kept::Change;
use crate::query::select::Faults;
use crate::query::{QueryState, Taken};
use crate::value::Value;

/// What a machine knows of its query beside the query's own state.
#[derive(Clone, Debug)]
pub struct Queried {
    /// The state.
    pub state: QueryState,
    /// Events kept that no row stands for yet.
    pub pending: u64,
    /// When the latest event arrived, ms.
    pub seen: Option<i64>,
}

impl Queried {
    /// A query that has not started.
    pub fn new(state: QueryState) -> Self {
        Queried {
            state,
            pending: 0,
            seen: None,
        }
    }
}

impl Machine {
    /// Applies one event of the plan's source with that number to the query.
    pub(super) fn on_query(
        &mut self,
        number: usize,
        event: &Event<'_>,
        values: &[Value<'_>],
        out: &mut Output,
    ) {
        let Some(mut query) = self.query.take() else {
            return;
        };
        let none = Vec::new();
        let slots = match number {
            0 => &self.slots,
            more => self.more_slots.get(more - 1).unwrap_or(&none),
        };
        let source = Scope::of_event(values, slots, event);
        let first = out.rows.len();
        query.seen = query.seen.max(Some(event.timestamp.0));
        let taken = query.state.on_event(number, event, &source, out);
        match taken {
            Taken::Filtered => self.books.filtered += 1,
            Taken::Kept => query.pending += 1,
            Taken::Late => self.books.late += 1,
            Taken::Waits => {}
            Taken::NoTime => self.errored(event, &NO_TIME),
            Taken::Failed => {
                let why = query.state.take_failure().unwrap_or_default();
                self.errored(event, &why);
            }
        }
        self.settle(&mut query, first, out);
        self.query = Some(query);
    }

    /// Does what is due by the clock.
    pub(super) fn on_query_clock(&mut self, now: UnixMillis, out: &mut Output) {
        if self.suspended.is_some() {
            return;
        }
        let delay = self.clock_delay();
        let idle = self.options.idle_ms;
        let Some(mut query) = self.query.take() else {
            return;
        };
        let first = out.rows.len();
        if query.state.is_event_time() {
            let is_idle = query.seen.is_some_and(|seen| seen + idle <= now.0);
            if idle > 0 && is_idle && query.state.waiting() > 0 {
                query.state.flush();
            }
            query.state.close_by_clock(now.0 - self.close_wait());
        } else {
            query.state.on_clock(now.0 - delay, out);
        }
        self.settle(&mut query, first, out);
        self.query = Some(query);
    }

    /// When something is due by the clock.
    pub(super) fn next_query_clock(&self) -> Option<UnixMillis> {
        let query = self.query.as_ref()?;
        if self.suspended.is_some() {
            return None;
        }
        if query.state.is_event_time() {
            let idle = self.options.idle_ms;
            let waits = idle > 0 && query.state.waiting() > 0;
            let idle = query.seen.filter(|_| waits).map(|seen| seen + idle);
            let close = query.state.next_close();
            let close = close.map(|due| due.saturating_add(self.close_wait()));
            return idle.into_iter().chain(close).min().map(UnixMillis);
        }
        if query.state.now().is_none() {
            // Where arrival is the clock, time begins with the statement; records bring their own.
            return self.reads_clock().then_some(UnixMillis(0));
        }
        let due = query.state.deadline()?;
        Some(UnixMillis(due.saturating_add(self.clock_delay())))
    }

    /// Says of every partition of a source whether records wait there.
    pub(super) fn set_query_waiting(
        &mut self,
        number: usize,
        is_waiting: impl Fn(usize) -> bool,
        out: &mut Output,
    ) {
        let Some(mut query) = self.query.take() else {
            return;
        };
        let first = out.rows.len();
        query.state.set_waiting(number, is_waiting);
        self.settle(&mut query, first, out);
        self.query = Some(query);
    }

    /// True when the source with that number is a named window whose changes it takes as they are.
    pub fn takes_changes(&self, number: usize) -> bool {
        let query = self.query.as_ref();
        query.is_some_and(|query| query.state.takes_changes(number))
    }

    /// Rows entered and left the named window that is the plan's source with that number; what
    /// enters counts as events.
    pub fn on_change(&mut self, number: usize, change: &Change, out: &mut Output) {
        let Some(mut query) = self.query.take() else {
            return;
        };
        if self.suspended.is_none() {
            let first = out.rows.len();
            if query.state.on_change(number, change, out) {
                let entered = change.new.len() as u64;
                self.books.received += entered;
                query.pending += entered;
            }
            self.settle(&mut query, first, out);
        }
        self.query = Some(query);
    }

    /// Releases what waited for its time and brings the books up to date.
    fn settle(&mut self, query: &mut Queried, first: usize, out: &mut Output) {
        if query.state.is_event_time() {
            let released = query.state.release(out);
            self.books.filtered += released.filtered;
            self.books.errored += released.failed;
            query.pending += released.kept;
        }
        let Faults {
            too_large,
            long_keys,
            full,
            failed,
            ..
        } = query.state.take_faults();
        if failed.is_some() {
            self.last_error = failed.or(self.last_error.take());
        }
        if let Some(full) = full {
            self.last_error = Some(format!("a row was not inserted: {full}"));
        }
        if too_large > 0 {
            self.last_error = Some(ROW_TOO_LARGE.0.to_owned());
        }
        if long_keys > 0 {
            self.last_error = Some(super::KEY_TOO_LARGE.0.to_owned());
        }
        if let Some(row) = out.rows.get_mut(first) {
            row.events += std::mem::take(&mut query.pending);
        } else if query.pending > 0 && !query.state.holds_any() {
            self.books.filtered += std::mem::take(&mut query.pending);
        }
        if let Err(full) = query.state.check() {
            self.books.dropped += query.pending + query.state.waiting() as u64;
            query.pending = 0;
            query.state.clear();
            self.suspended = Some(super::suspended(&full.to_string()));
        }
    }

    /// Records may wait between their time and their reading; messages come when they come.
    fn clock_delay(&self) -> i64 {
        if self.reads_clock() {
            0
        } else {
            self.options.close_delay_ms
        }
    }

    /// How long after their time records may still come.
    fn close_wait(&self) -> i64 {
        self.options
            .close_delay_ms
            .saturating_add(self.options.lateness_ms)
    }

    fn reads_clock(&self) -> bool {
        let sources = self.plan.sources();
        !sources
            .iter()
            .any(|source| matches!(source, Source::Kafka(_)))
    }
}
