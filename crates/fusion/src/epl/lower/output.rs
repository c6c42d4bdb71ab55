//! `output` clauses and schedules.

use std::time::Duration;

use super::Checked;
use super::expressions::Lower;
use crate::epl::CLOCK;
use crate::epl::ast::{Amount, BinaryOperator, Expr, ExprKind, Output, OutputKind, OutputWhen};
use crate::epl::token::Place;
use crate::expression::Expression;
use crate::plan::{
    OUTPUT_COUNT_FIRST, OutputAfter, OutputEvery, OutputKind as Kind, OutputRate, Schedule,
};

/// Lowers an output clause.
///
/// # Errors
/// A time or count cannot be.
pub fn rate(output: &Output, lower: &mut Lower<'_>) -> Checked<OutputRate> {
    let after = match &output.after {
        None => None,
        Some(Amount::Events(count)) => Some(OutputAfter::Events(events(*count, output.place)?)),
        Some(Amount::Time(time)) => Some(OutputAfter::Time(length(lower, time)?)),
    };
    let every = match &output.when {
        None if output.at_end => OutputEvery::Never,
        None => OutputEvery::Always,
        Some(OutputWhen::Every(Amount::Events(count))) => {
            OutputEvery::Events(events(*count, output.place)?)
        }
        Some(OutputWhen::Every(Amount::Time(time))) => OutputEvery::Time(length(lower, time)?),
        Some(OutputWhen::At(parts)) => OutputEvery::At(schedule(parts, output.place)?),
        Some(OutputWhen::When(condition)) => {
            let counts = COUNTS.iter().enumerate().map(|(index, name)| {
                let slot = OUTPUT_COUNT_FIRST + index as u16;
                ((*name).to_owned(), Expression::Field(slot))
            });
            let own = lower.names.set_own(None);
            let known = lower.names.known().to_vec();
            lower.names.set_known(counts.collect());
            let condition = lower.expr(condition);
            lower.names.set_own(own);
            lower.names.set_known(known);
            OutputEvery::When(condition?)
        }
    };
    let kind = match output.kind {
        OutputKind::Default => Kind::Each,
        OutputKind::All => Kind::All,
        OutputKind::First => Kind::First,
        OutputKind::Last => Kind::Last,
        OutputKind::Snapshot => Kind::Snapshot,
    };
    if output.at_end && kind == Kind::First {
        return Err(output.place.error(
            "the first row leaves at once: with when terminated write all, last or snapshot",
        ));
    }
    Ok(OutputRate {
        kind,
        every,
        after,
        at_end: output.at_end,
    })
}

/// Lowers `(minutes, hours, days, months, weekdays [, seconds])`. A part that names all that there
/// is is as `*`.
///
/// # Errors
/// A part is out of its bounds.
pub fn schedule(parts: &[Expr], place: Place) -> Checked<Schedule> {
    if parts.len() != 5 && parts.len() != 6 {
        return Err(place.error(
            "a schedule is (minutes, hours, days, months, weekdays), with seconds perhaps",
        ));
    }
    let mut schedule = Schedule::default();
    let lists = [
        &mut schedule.minutes,
        &mut schedule.hours,
        &mut schedule.days,
        &mut schedule.months,
        &mut schedule.weekdays,
        &mut schedule.seconds,
    ];
    let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6), (0, 59)];
    for (index, (part, list)) in parts.iter().zip(lists).enumerate() {
        *list = values(part, bounds[index])?;
        // With seconds, `*` is each of them; without, the minute's start is meant.
        if index == 5 && list.is_empty() {
            *list = (0..=59).collect();
        }
    }
    Ok(schedule)
}

fn values(part: &Expr, (low, high): (i64, i64)) -> Checked<Vec<u8>> {
    let all = low..=high;
    let listed: Vec<i64> = match &part.kind {
        ExprKind::Star => return Ok(Vec::new()),
        ExprKind::Int(value) => vec![*value],
        ExprKind::Binary(BinaryOperator::Divide, sides) => match sides[1].kind {
            ExprKind::Int(step) if step > 0 => {
                all.clone().filter(|value| value % step == 0).collect()
            }
            _ => Vec::new(),
        },
        ExprKind::Between(range, _) => match (&range[1].kind, &range[2].kind) {
            (ExprKind::Int(from), ExprKind::Int(to)) if all.contains(from) && all.contains(to) => {
                (*from..=*to).collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    let fits: Option<Vec<u8>> = listed
        .iter()
        .map(|value| u8::try_from(*value).ok().filter(|_| all.contains(value)))
        .collect();
    let whole = usize::try_from(high - low + 1).unwrap_or(0);
    if fits.as_ref().is_some_and(|list| list.len() == whole) {
        return Ok(Vec::new());
    }
    fits.filter(|list| !list.is_empty()).ok_or_else(|| {
        part.place.error(format!(
            "this part of a schedule is *, a number from {low} to {high}, */n or from:to"
        ))
    })
}

fn events(count: u64, place: Place) -> Checked<u32> {
    u32::try_from(count).map_err(|_| place.error(format!("at most {} events", u32::MAX)))
}

fn length(lower: &mut Lower<'_>, time: &Expr) -> Checked<Duration> {
    match lower.millis(time)? {
        0 => Err(time.place.error("the time is at least 1 msec")),
        millis => Ok(Duration::from_millis(millis)),
    }
}

/// What OUTPUT WHEN may ask, in the order of the plan's slots.
const COUNTS: &[&str] = &[
    "count_insert",
    "count_remove",
    "count_insert_total",
    "count_remove_total",
    "last_output_timestamp",
    CLOCK,
];
