//! Windows: `#length(5)` and the others.

use std::time::Duration;

use super::Checked;
use super::expressions::Lower;
use crate::epl::ast::{Expr, ExprKind, View as ViewText};
use crate::epl::token::Place;
use crate::plan::{OrderKey, View};
use crate::suggest::did_you_mean;
use crate::value::Value;

/// Lowers the windows of one source, whose fields `lower` reads as its own.
///
/// # Errors
/// There is no such window, or it takes other arguments.
pub fn views(texts: &[ViewText], lower: &mut Lower<'_>) -> Checked<Vec<View>> {
    let mut views = Vec::with_capacity(texts.len());
    for text in texts {
        let view = view(text, lower)?;
        if matches!(view, View::Group(_)) && views.iter().any(|view| matches!(view, View::Group(_)))
        {
            return Err(text
                .place
                .error("one groupwin per source: give it all the keys"));
        }
        views.push(view);
    }
    if matches!(views.last(), Some(View::Group(_))) {
        let place = texts.last().map_or(Place::default(), |text| text.place);
        return Err(place.error("after groupwin a window follows, such as #groupwin(k)#length(2)"));
    }
    Ok(views)
}

fn view(text: &ViewText, lower: &mut Lower<'_>) -> Checked<View> {
    let arguments = text.arguments.as_slice();
    let usage = |usage: &str| text.place.error(format!("write #{usage}"));
    let name = text.name.as_str();
    Ok(match (name, arguments) {
        ("keepall", []) => View::KeepAll,
        ("lastevent", []) => View::LastEvent,
        ("firstevent", []) => View::FirstEvent,
        ("length", [count]) => View::Length(events(lower, count)?),
        ("length_batch", [count]) => View::LengthBatch(events(lower, count)?),
        ("firstlength", [count]) => View::FirstLength(events(lower, count)?),
        ("time", [time]) => View::Time(length(lower, time)?),
        ("firsttime", [time]) => View::FirstTime(length(lower, time)?),
        ("time_accum", [time]) => View::TimeAccum(length(lower, time)?),
        ("time_batch", [time, rest @ ..]) => {
            let (reference_ms, rest) = reference(lower, rest)?;
            let (force_update, start_eager) = flags(rest, text.place)?;
            let length = length(lower, time)?;
            View::TimeBatch {
                length,
                reference_ms,
                force_update,
                start_eager,
            }
        }
        ("time_length_batch", [time, count, rest @ ..]) => {
            let (force_update, start_eager) = flags(rest, text.place)?;
            let (length, count) = (length(lower, time)?, events(lower, count)?);
            View::TimeLengthBatch {
                length,
                count,
                force_update,
                start_eager,
            }
        }
        ("ext_timed", [time, span]) => View::ExtTimed {
            time: lower.expr(time)?,
            length: length(lower, span)?,
        },
        ("ext_timed_batch", [time, span, rest @ ..]) => {
            let (reference_ms, rest) = reference(lower, rest)?;
            if !rest.is_empty() {
                return Err(usage(
                    "ext_timed_batch(time, 10 sec) or #ext_timed_batch(time, 10 sec, 0L)",
                ));
            }
            let (time, length) = (lower.expr(time)?, length(lower, span)?);
            View::ExtTimedBatch {
                time,
                length,
                reference_ms,
            }
        }
        ("time_order", [time, span]) => View::TimeOrder {
            time: lower.expr(time)?,
            length: length(lower, span)?,
        },
        ("unique", [_, ..]) => View::Unique(lower.all(arguments)?),
        ("firstunique", [_, ..]) => View::FirstUnique(lower.all(arguments)?),
        ("groupwin", [_, ..]) => View::Group(lower.all(arguments)?),
        ("sort", [count, _, ..]) => {
            let count = events(lower, count)?;
            View::Sort {
                count,
                keys: keys(text, 1, lower)?,
            }
        }
        ("rank", [_, _, _, ..]) => rank(text, lower)?,
        _ => {
            let Some((_, example)) = USAGE.iter().find(|(known, _)| *known == name) else {
                let hint = did_you_mean(name, USAGE.iter().map(|(known, _)| *known));
                return Err(text.place.error(format!("there is no window {name}{hint}")));
            };
            return Err(usage(example));
        }
    })
}

/// `rank(unique, …, count, key, …)`: the count is the first constant.
fn rank(text: &ViewText, lower: &mut Lower<'_>) -> Checked<View> {
    let place = text
        .arguments
        .iter()
        .position(|expr| matches!(expr.kind, ExprKind::Int(_)));
    let Some(place) = place.filter(|place| *place > 0 && place + 1 < text.arguments.len()) else {
        return Err(text.place.error("write #rank(key, 3, order desc)"));
    };
    Ok(View::Rank {
        unique: lower.all(&text.arguments[..place])?,
        count: events(lower, &text.arguments[place])?,
        keys: keys(text, place + 1, lower)?,
    })
}

fn keys(text: &ViewText, from: usize, lower: &mut Lower<'_>) -> Checked<Vec<OrderKey>> {
    let pairs = text.arguments.iter().zip(&text.descending).skip(from);
    pairs
        .map(|(expr, is_descending)| {
            Ok(OrderKey {
                expression: lower.expr(expr)?,
                is_descending: *is_descending,
            })
        })
        .collect()
}

fn events(lower: &mut Lower<'_>, expr: &Expr) -> Checked<u32> {
    lower.count(expr, "how many events a window keeps")
}

fn length(lower: &mut Lower<'_>, expr: &Expr) -> Checked<Duration> {
    match lower.millis(expr)? {
        0 => Err(expr.place.error("a window is at least 1 msec long")),
        millis => Ok(Duration::from_millis(millis)),
    }
}

/// The time, in milliseconds, from which batches count.
fn reference<'a>(
    lower: &mut Lower<'_>,
    arguments: &'a [Expr],
) -> Checked<(Option<i64>, &'a [Expr])> {
    match arguments {
        [first, rest @ ..] if !matches!(first.kind, ExprKind::Text(_)) => {
            let lowered = lower.constant(first, "the reference point")?;
            match lowered.as_value() {
                Value::Int(millis) => Ok((Some(millis), rest)),
                _ => Err(first
                    .place
                    .error("the reference point is a number of milliseconds")),
            }
        }
        rest => Ok((None, rest)),
    }
}

/// `"FORCE_UPDATE, START_EAGER"`.
fn flags(arguments: &[Expr], place: Place) -> Checked<(bool, bool)> {
    let (mut force_update, mut start_eager) = (false, false);
    for argument in arguments {
        let ExprKind::Text(text) = &argument.kind else {
            return Err(place.error("after the length come flags in quotes: \"FORCE_UPDATE\""));
        };
        for word in text.split(',').map(str::trim) {
            match word.to_ascii_lowercase().as_str() {
                "force_update" => force_update = true,
                "start_eager" => start_eager = true,
                _ => {
                    return Err(argument.place.error(format!(
                        "{word} is no flag: there are FORCE_UPDATE and START_EAGER"
                    )));
                }
            }
        }
    }
    Ok((force_update, start_eager))
}

const USAGE: &[(&str, &str)] = &[
    ("keepall", "keepall()"),
    ("length", "length(5)"),
    ("length_batch", "length_batch(5)"),
    ("firstlength", "firstlength(5)"),
    ("time", "time(10 sec)"),
    ("time_batch", "time_batch(10 sec)"),
    ("time_length_batch", "time_length_batch(10 sec, 5)"),
    ("firsttime", "firsttime(10 sec)"),
    ("time_accum", "time_accum(10 sec)"),
    ("ext_timed", "ext_timed(time, 10 sec)"),
    ("ext_timed_batch", "ext_timed_batch(time, 10 sec)"),
    ("time_order", "time_order(time, 10 sec)"),
    ("unique", "unique(key)"),
    ("firstunique", "firstunique(key)"),
    ("lastevent", "lastevent()"),
    ("firstevent", "firstevent()"),
    ("groupwin", "groupwin(key)#length(5)"),
    ("sort", "sort(5, key desc)"),
    ("rank", "rank(key, 3, order desc)"),
];
