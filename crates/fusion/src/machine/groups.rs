//! Statements over windows of SQL: events into groups, groups into rows.

use base::UnixMillis;

use super::{
    KEY_TOO_LARGE, Machine, MachineOptions, NO_TIME, ROW_TOO_LARGE, failed_call, is_too_long,
    millis, passes, step, time_of,
};
use crate::aggregate::{Accumulator, Form};
use crate::expression::{Event, Expression, Scope};
use crate::limits::{CLOCK_STEP_MS, KEPT_VALUE_BYTES_MAX};
use crate::output::{Output, Row};
use crate::plan::{Aggregate, EventTime, Plan, Source, Stage, Tumbling, WindowShape};
use crate::row::write_row;
use crate::value::{OwnedValue, Value};
use crate::window::{Bounds, Group, Window, Windows, decode_key, encode_key};

impl Machine {
    /// Counts one event in the group of its window, after the windows that its time closes.
    pub(super) fn on_grouped(
        &mut self,
        plan: &Plan,
        window: &Tumbling,
        group_by: &[Expression],
        event: &Event<'_>,
        values: &[Value<'_>],
        out: &mut Output,
    ) {
        let slots = std::mem::take(&mut self.slots);
        let mut scope = Scope::of_event(values, &slots, event);
        // What fails here is no fault of the windows that the event closes.
        match (time_of(&window.time, &scope, event), failed_call(plan)) {
            (_, Some(why)) => self.errored(event, &why),
            (None, None) => self.errored(event, &NO_TIME),
            (Some(time), None) => {
                let time = self.advance(window, event, time, out);
                if let Some(windows) = &mut self.windows {
                    windows.see(time);
                    scope.window = windows.bounds(time);
                }
                let passes = passes(plan.filter.as_ref(), &scope);
                if let Some(why) = failed_call(plan) {
                    self.errored(event, &why);
                } else if !passes {
                    self.books.filtered += 1;
                } else if self
                    .windows
                    .as_ref()
                    .is_some_and(|windows| !windows.are_sessions() && windows.is_late(time))
                {
                    self.books.late += 1;
                } else {
                    self.accumulate(plan, group_by, event, time, &scope);
                }
            }
        }
        self.slots = slots;
    }

    /// Moves the watermark, emits what that closes, and gives the event's own time.
    fn advance(
        &mut self,
        window: &Tumbling,
        event: &Event<'_>,
        time: i64,
        out: &mut Output,
    ) -> i64 {
        let Some(windows) = &mut self.windows else {
            return time;
        };
        let mut time = time;
        if window.time == EventTime::Source && !matches!(self.plan.source, Source::Kafka(_)) {
            if time.saturating_add(CLOCK_STEP_MS) < windows.arrival_mark() {
                for closed in windows.restart_time() {
                    self.emit(closed, out);
                }
            }
            let Some(windows) = &self.windows else {
                return time;
            };
            time = windows.not_before_watermark(time);
        }
        let partition = usize::try_from(event.partition).unwrap_or(0);
        if let Some(windows) = &mut self.windows {
            windows.advance(partition, time);
        }
        self.emit_closed(out);
        time
    }

    fn accumulate(
        &mut self,
        plan: &Plan,
        group_by: &[Expression],
        event: &Event<'_>,
        time: i64,
        scope: &Scope<'_>,
    ) {
        let (Stage::Windowed { aggregates, .. }, Some(windows)) = (&plan.stage, &mut self.windows)
        else {
            return;
        };
        self.key.clear();
        for expression in group_by {
            encode_key(&expression.evaluate(scope), &mut self.key);
        }
        // What cannot be computed is known before anything is changed.
        let computed = plan.calls.is_some().then(|| computed(aggregates, scope));
        let aggregates = computed.as_ref().unwrap_or(aggregates);
        if let Some(why) = failed_call(plan) {
            return self.errored(event, &why);
        }
        if self.key.len() > KEPT_VALUE_BYTES_MAX {
            return self.errored(event, &KEY_TOO_LARGE);
        }
        if windows.are_sessions() {
            match windows.session(time, &self.key, &self.forms) {
                Ok(None) => self.books.late += 1,
                Ok(Some(group)) => {
                    let (before, after) = add(group, aggregates, time, scope);
                    if let Err(full) = windows.add_state_bytes(before, after) {
                        self.suspend(full.to_string());
                    }
                }
                Err(full) => {
                    self.books.dropped += 1;
                    self.suspend(full.to_string());
                }
            }
            return;
        }
        let starts = windows.starts(time);
        let mut is_counted = false;
        for start in starts {
            if windows.is_closed(start) {
                continue;
            }
            let group = match windows.group(start, &self.key, &self.forms, !is_counted) {
                Ok(group) => group,
                Err(full) => {
                    self.books.dropped += u64::from(!is_counted);
                    return self.suspend(full.to_string());
                }
            };
            is_counted = true;
            let (before, after) = add(group, aggregates, time, scope);
            if before != after
                && let Err(full) = windows.add_state_bytes(before, after)
            {
                return self.suspend(full.to_string());
            }
        }
        if !is_counted {
            // It lies between two windows.
            self.books.filtered += 1;
        }
    }

    /// Writes rows of the windows that time has closed.
    pub(super) fn emit_closed(&mut self, out: &mut Output) {
        while let Some(window) = self.windows.as_mut().and_then(Windows::pop_closed) {
            self.emit(window, out);
        }
    }

    fn emit(&mut self, mut window: Window, out: &mut Output) {
        let plan = self.plan.clone();
        if self.options.lateness_ms > 0 {
            // Which group was seen first is chance where events may come late.
            window.groups.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        }
        let Stage::Windowed {
            having, group_by, ..
        } = &plan.stage
        else {
            return;
        };
        if window.groups.is_empty() && group_by.is_empty() {
            return self.emit_empty(&window, out);
        }
        for group in &window.groups {
            let keys = decode_key(&group.key);
            let aggregates: Vec<Value<'_>> = group
                .accumulators
                .iter()
                .map(|accumulator| accumulator.value())
                .collect();
            let scope = Scope {
                values: &[],
                slots: &[],
                event: None,
                window: Some((window.start, window.end)),
                group: &keys,
                aggregates: &aggregates,
            };
            let start = out.bytes.len();
            let row = passes(having.as_ref(), &scope)
                .then(|| write_row(&plan.columns, &self.prefixes, &scope, &mut out.bytes));
            if let Some(why) = failed_call(&plan) {
                out.bytes.truncate(start);
                self.books.errored += group.events;
                self.last_error = Some(why);
            } else if row.is_none() {
                self.books.filtered += group.events;
            } else if row == Some(true) {
                let timestamp = UnixMillis(window.end - 1);
                let (end, events) = (out.bytes.len(), group.events);
                out.rows.push(Row {
                    end,
                    timestamp,
                    key: None,
                    events,
                    is_old: false,
                });
            } else {
                self.books.errored += group.events;
                self.last_error = Some(ROW_TOO_LARGE.0.to_owned());
            }
        }
    }

    /// A row for a window without events: counts are 0, everything else is null.
    fn emit_empty(&mut self, window: &Window, out: &mut Output) {
        let plan = self.plan.clone();
        let Stage::Windowed { having, .. } = &plan.stage else {
            return;
        };
        let forms = self.forms.iter();
        let empty: Vec<Accumulator> = forms.map(|form| Accumulator::of(*form)).collect();
        let aggregates: Vec<Value<'_>> = empty.iter().map(Accumulator::value).collect();
        let scope = Scope {
            window: Some((window.start, window.end)),
            aggregates: &aggregates,
            ..Scope::empty()
        };
        let start = out.bytes.len();
        let is_row = passes(having.as_ref(), &scope)
            && write_row(&plan.columns, &self.prefixes, &scope, &mut out.bytes);
        if let Some(why) = failed_call(&plan) {
            out.bytes.truncate(start);
            self.last_error = Some(why);
        } else if is_row {
            out.rows.push(Row {
                end: out.bytes.len(),
                timestamp: UnixMillis(window.end - 1),
                key: None,
                events: 0,
                is_old: false,
            });
        }
    }
}

/// What groups accumulate. Where events may come in another order than that of their times, the
/// order must not count; where they come as they happen it costs nothing.
pub(super) fn forms(
    plan: &Plan,
    (window, aggregates): (&Tumbling, &[Aggregate]),
    options: &MachineOptions,
) -> Vec<Form> {
    let is_records = matches!(plan.source, Source::Kafka(_));
    let is_settled = window.time != EventTime::Source || (is_records && options.lateness_ms > 0);
    let of = |aggregate: &Aggregate| Form {
        function: aggregate.function,
        is_settled,
    };
    aggregates.iter().map(of).collect()
}

/// The windows that a plan asks for, without any group.
pub(super) fn new_windows(window: &Tumbling, options: &MachineOptions) -> Windows {
    let windows = Windows::new(
        (millis(window), step(window)),
        options.lateness_ms,
        Bounds {
            groups: options.groups_max,
            state_bytes: options.state_bytes_max,
        },
        options.partitions,
    );
    match window.shape {
        WindowShape::Session => windows.into_sessions(),
        WindowShape::Tumble | WindowShape::Hop { .. } => windows.with(options.choices),
    }
}

/// The aggregates with what an event gives them in the place of how it is computed, so that calls of
/// functions are made once, whatever number of windows the event is in.
fn computed(aggregates: &[Aggregate], scope: &Scope<'_>) -> Vec<Aggregate> {
    let literal = |value: Value<'_>| {
        let mut kept = OwnedValue::Null;
        kept.assign(&value);
        Expression::Literal(kept)
    };
    let mut computed = aggregates.to_vec();
    for aggregate in &mut computed {
        let counts = passes(aggregate.filter.as_ref(), scope);
        aggregate.filter = Some(literal(Value::Bool(counts)));
        for part in [&mut aggregate.argument, &mut aggregate.parameter] {
            if let Some(part) = part.as_mut().filter(|_| counts) {
                *part = literal(part.evaluate(scope));
            }
        }
    }
    computed
}

/// Adds an event to a group; the bytes of texts that its accumulators kept before, and keep now.
fn add(
    group: &mut Group,
    aggregates: &[Aggregate],
    time: i64,
    scope: &Scope<'_>,
) -> (usize, usize) {
    let (mut before, mut after) = (0, 0);
    for (accumulator, aggregate) in group.accumulators.iter_mut().zip(aggregates) {
        if !passes(aggregate.filter.as_ref(), scope) {
            continue;
        }
        let Some(argument) = &aggregate.argument else {
            accumulator.add_event();
            continue;
        };
        let value = argument.evaluate(scope);
        before += accumulator.text_bytes();
        if !is_too_long(&value, aggregate.function) {
            let parameter = aggregate.parameter.as_ref();
            accumulator.add_with(time, &value, || {
                parameter.map_or(Value::Null, |p| p.evaluate(scope))
            });
        }
        after += accumulator.text_bytes();
    }
    (before, after)
}
