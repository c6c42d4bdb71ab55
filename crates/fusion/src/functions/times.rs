//! Functions of times: milliseconds since 1970, or texts by RFC 3339. All are of UTC.

use std::borrow::Cow;

use base::{UnixMillis, format_rfc3339};

use crate::time::event_time;
use crate::value::Value;

pub(super) fn year<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_date(&arguments[0], |(year, _, _)| year)
}

/// From 1.
pub(super) fn month<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_date(&arguments[0], |(_, month, _)| month)
}

/// Of the month, from 1.
pub(super) fn day<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_date(&arguments[0], |(_, _, day)| day)
}

/// 1 is Sunday, 7 Saturday.
pub(super) fn day_of_week<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    // 1970 began with a Thursday.
    of_millis(&arguments[0], |millis| {
        (millis.div_euclid(DAY_MS) + 4).rem_euclid(7) + 1
    })
}

pub(super) fn hour<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_millis(&arguments[0], |millis| {
        millis.rem_euclid(DAY_MS) / 3_600_000
    })
}

pub(super) fn minute<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_millis(&arguments[0], |millis| {
        millis.rem_euclid(3_600_000) / 60_000
    })
}

pub(super) fn second<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_millis(&arguments[0], |millis| millis.rem_euclid(60_000) / 1_000)
}

/// Milliseconds since 1970; null for what is no time.
pub(super) fn parse_time<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_millis(&arguments[0], |millis| millis)
}

/// A text by RFC 3339.
pub(super) fn format_time<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match event_time(&arguments[0]) {
        Some(millis) => Value::Text(Cow::Owned(format_rfc3339(UnixMillis(millis)))),
        None => Value::Null,
    }
}

fn of_millis<'a>(value: &Value<'a>, of: fn(i64) -> i64) -> Value<'a> {
    event_time(value).map_or(Value::Null, |millis| Value::Int(of(millis)))
}

fn of_date<'a>(value: &Value<'a>, of: fn((i64, i64, i64)) -> i64) -> Value<'a> {
    event_time(value).map_or(Value::Null, |millis| Value::Int(of(date(millis))))
}

/// Year, month and day by the Gregorian calendar: years counted from March make the leap day the
/// last of its year, and 400 years are one cycle of days.
fn date(millis: i64) -> (i64, i64, i64) {
    let days = millis.div_euclid(DAY_MS) + DAYS_FROM_YEAR_0_TO_1970;
    let cycle = days.div_euclid(DAYS_PER_400_YEARS);
    let day = days.rem_euclid(DAYS_PER_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (cycle * 400 + year + i64::from(month <= 2), month, day)
}

const DAY_MS: i64 = 86_400_000;
const DAYS_PER_400_YEARS: i64 = 146_097;
const DAYS_FROM_YEAR_0_TO_1970: i64 = 719_468;
