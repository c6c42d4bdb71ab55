//! Cron expressions of flows, and when they are due next.
//!
//! # Fields
//!
//! | fields | meaning |
//! | --- | --- |
//! | 6 or 7 | Quartz: second, minute, hour, day of month, month, day of week, year; Sunday is 1 |
//! | 5 | Unix: minute, hour, day of month, month, day of week; Sunday is 0 or 7 |
//!
//! Each is `*` or `?`, a value, a range `a-b`, a step `*/n`, `a/n` or `a-b/n`, or a list of them
//! with commas; months and days of the week may be names. Days of the month also take `L` (the
//! last), `L-n`, `nW` (the weekday nearest to the nth) and `LW`; days of the week `nL` (the last
//! of its kind) and `n#k` (the kth). A day must be of both kinds; in Unix's five fields, of either
//! where both are given.
//!
//! Due times are of the host's time zone: one that a change of clocks leaves out comes as much
//! later, one that comes twice comes the first time.
//!
//! Source: Quartz Scheduler's cron trigger tutorial; crontab(5).

use jiff::civil::{Date, DateTime, Weekday, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use base::UnixMillis;

/// A parsed cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cron {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    special_day: Option<SpecialDay>,
    months: u64,
    weekdays: u64,
    special_weekday: Option<SpecialWeekday>,
    /// Whether a day of either kind will do.
    either: bool,
    /// Bits from [`YEAR_MIN`] on; all years when `None`.
    years: Option<u128>,
}

/// A day of the month that depends on the month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpecialDay {
    /// So many days before the last.
    Last(i8),
    /// The weekday nearest to this day.
    NearestWeekday(i8),
    /// The last weekday.
    LastWeekday,
}

/// A day of the week of a certain week; Sunday is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpecialWeekday {
    /// The last of its kind.
    Last(i8),
    /// The kth of its kind, from 1.
    Nth(i8, i8),
}

/// The values that a field may have.
struct Range {
    what: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

impl Cron {
    /// Reads an expression; the error names the field and what it could be.
    pub fn parse(text: &str) -> Result<Cron, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let (is_unix, fields) = match fields.as_slice() {
            [m, h, d, mo, w] => (true, ["0", m, h, d, mo, w, "*"]),
            [s, m, h, d, mo, w] => (false, [*s, m, h, d, mo, w, "*"]),
            [s, m, h, d, mo, w, y] => (false, [*s, m, h, d, mo, w, y]),
            _ => {
                return Err(format!(
                    "'{text}' is no cron expression: it has {} fields and needs 5, 6 or 7 \
                     (second minute hour day month weekday year)",
                    fields.len()
                ));
            }
        };
        let [second, minute, hour, day, month, weekday, year] = fields;
        let special_day = special_day(day)?;
        let special_weekday = special_weekday(weekday, is_unix)?;
        let years = if year == "*" || year == "?" {
            None
        } else {
            Some(set(year, &YEARS)?)
        };
        let narrow = |bits: u128| u64::try_from(bits).unwrap_or(u64::MAX);
        let days = match special_day {
            Some(_) => 0,
            None => narrow(set(day, &DAYS)?),
        };
        let weekdays = match special_weekday {
            Some(_) => 0,
            None => weekdays(weekday, is_unix)?,
        };
        let is_given = |field: &str| !field.starts_with(['*', '?']);
        let cron = Cron {
            seconds: narrow(set(second, &SECONDS)?),
            minutes: narrow(set(minute, &MINUTES)?),
            hours: narrow(set(hour, &HOURS)?),
            days,
            special_day,
            months: narrow(set(month, &MONTHS)?),
            weekdays,
            special_weekday,
            either: is_unix && is_given(day) && is_given(weekday),
            years,
        };
        match cron.next(date(YEAR_MIN as i16, 1, 1).at(0, 0, 0, 0)) {
            Some(_) => Ok(cron),
            None => Err(format!("'{text}' is never due")),
        }
    }

    /// The first due time after `now` in `zone`; none when there is none any more.
    pub fn next_in(&self, now: UnixMillis, zone: &TimeZone) -> Option<UnixMillis> {
        let now = Timestamp::from_millisecond(now.0).ok()?;
        let mut civil = zone.to_datetime(now);
        // An hour that comes twice may give a time that is over already.
        for _ in 0..=DAY_SECONDS {
            civil = self.next(civil)?;
            let due = zone.to_timestamp(civil).ok()?;
            if due > now {
                return Some(UnixMillis(due.as_millisecond()));
            }
        }
        None
    }

    /// The first due time after `after`, by the calendar alone.
    pub fn next(&self, after: DateTime) -> Option<DateTime> {
        let start = after.with().subsec_nanosecond(0).build().ok()?;
        let start = start.checked_add(1.second()).ok()?;
        let mut day = start.date();
        if self.has_day(day)
            && let Some(due) = self.first_in(day, (start.hour(), start.minute(), start.second()))
        {
            return Some(due);
        }
        loop {
            day = if self.months & (1 << day.month()) == 0 {
                // The rest of a month that is not meant is passed over at once.
                day.last_of_month().tomorrow().ok()?
            } else {
                day.tomorrow().ok()?
            };
            if i32::from(day.year()) > YEAR_MAX as i32 {
                return None;
            }
            if self.has_day(day) {
                return self.first_in(day, (0, 0, 0));
            }
        }
    }

    fn has_day(&self, day: Date) -> bool {
        let is_year = self.years.is_none_or(|years| {
            u32::try_from(day.year())
                .ok()
                .and_then(|year| year.checked_sub(YEAR_MIN))
                .is_some_and(|year| year < u128::BITS && years & (1 << year) != 0)
        });
        if !is_year || self.months & (1 << day.month()) == 0 {
            return false;
        }
        let is_day = match self.special_day {
            None => self.days & (1 << day.day()) != 0,
            Some(special) => special.is_on(day),
        };
        let weekday = day.weekday().to_sunday_zero_offset();
        let is_weekday = match self.special_weekday {
            None => self.weekdays & (1 << weekday) != 0,
            Some(SpecialWeekday::Last(wanted)) => {
                weekday == wanted && day.day() + 7 > day.days_in_month()
            }
            Some(SpecialWeekday::Nth(wanted, nth)) => {
                weekday == wanted && (day.day() - 1) / 7 + 1 == nth
            }
        };
        if self.either {
            is_day || is_weekday
        } else {
            is_day && is_weekday
        }
    }

    /// The first due time of a day from a time of it on.
    fn first_in(&self, day: Date, (hour, minute, second): (i8, i8, i8)) -> Option<DateTime> {
        let (h, m) = (from(self.hours, hour)?, from(self.minutes, 0)?);
        let first_second = from(self.seconds, 0)?;
        if h > hour {
            return Some(day.at(h, m, first_second, 0));
        }
        match from(self.minutes, minute) {
            Some(m) if m > minute => return Some(day.at(h, m, first_second, 0)),
            Some(m) => {
                if let Some(s) = from(self.seconds, second) {
                    return Some(day.at(h, m, s, 0));
                }
                if let Some(m) = from(self.minutes, minute + 1) {
                    return Some(day.at(h, m, first_second, 0));
                }
            }
            None => {}
        }
        let h = from(self.hours, hour + 1)?;
        Some(day.at(h, m, first_second, 0))
    }
}

impl SpecialDay {
    fn is_on(self, day: Date) -> bool {
        let last = day.days_in_month();
        let wanted = match self {
            SpecialDay::Last(before) => last - before,
            SpecialDay::LastWeekday => nearest_weekday(day, last),
            SpecialDay::NearestWeekday(wanted) => nearest_weekday(day, wanted.min(last)),
        };
        day.day() == wanted
    }
}

/// The day of `month`'s month that is no Saturday or Sunday and nearest to `wanted`.
fn nearest_weekday(month: Date, wanted: i8) -> i8 {
    let last = month.days_in_month();
    let at = month.first_of_month().with().day(wanted).build();
    match at.map(Date::weekday) {
        Ok(Weekday::Saturday) if wanted == 1 => 3,
        Ok(Weekday::Saturday) => wanted - 1,
        Ok(Weekday::Sunday) if wanted == last => wanted - 2,
        Ok(Weekday::Sunday) => wanted + 1,
        _ => wanted,
    }
}

/// The lowest bit of `bits` from `least` on.
fn from(bits: u64, least: i8) -> Option<i8> {
    let least = u32::try_from(least).ok().filter(|least| *least < 64)?;
    let rest = bits & (u64::MAX << least);
    (rest != 0).then(|| rest.trailing_zeros() as i8)
}

fn special_day(field: &str) -> Result<Option<SpecialDay>, String> {
    let upper = field.to_ascii_uppercase();
    let of = |number: &str, most: u32| {
        let number = number.parse::<u32>().ok().filter(|n| *n <= most);
        number
            .map(|number| number as i8)
            .ok_or_else(|| DAYS.wrong(field))
    };
    Ok(Some(match upper.as_str() {
        "L" => SpecialDay::Last(0),
        "LW" | "WL" => SpecialDay::LastWeekday,
        _ => {
            if let Some(before) = upper.strip_prefix("L-") {
                SpecialDay::Last(of(before, 27)?)
            } else if let Some(day) = upper.strip_suffix('W') {
                match of(day, 31)? {
                    0 => return Err(DAYS.wrong(field)),
                    day => SpecialDay::NearestWeekday(day),
                }
            } else {
                return Ok(None);
            }
        }
    }))
}

fn special_weekday(field: &str, is_unix: bool) -> Result<Option<SpecialWeekday>, String> {
    let upper = field.to_ascii_uppercase();
    let of = |text: &str| -> Result<i8, String> {
        let bits = weekdays(text, is_unix)?;
        if bits.count_ones() != 1 {
            return Err(WEEKDAYS.wrong(field));
        }
        Ok(bits.trailing_zeros() as i8)
    };
    if upper == "L" {
        // Quartz's own reading: the last day of the week.
        return Ok(None);
    }
    if let Some((day, nth)) = upper.split_once('#') {
        let nth = nth.parse::<i8>().ok().filter(|nth| (1..=5).contains(nth));
        let nth = nth.ok_or_else(|| WEEKDAYS.wrong(field))?;
        return Ok(Some(SpecialWeekday::Nth(of(day)?, nth)));
    }
    match upper.strip_suffix('L') {
        Some(day) => Ok(Some(SpecialWeekday::Last(of(day)?))),
        None => Ok(None),
    }
}

/// Days of the week as bits, Sunday first.
fn weekdays(field: &str, is_unix: bool) -> Result<u64, String> {
    let range = if is_unix { &UNIX_WEEKDAYS } else { &WEEKDAYS };
    let upper = field.to_ascii_uppercase();
    if upper == "L" {
        return Ok(1 << 6);
    }
    let bits = set(&upper, range)? as u64;
    Ok(if is_unix {
        (bits | (bits >> 7)) & 0x7f
    } else {
        bits >> 1
    })
}

/// The values of a field as bits; years from [`YEAR_MIN`] on.
fn set(field: &str, range: &Range) -> Result<u128, String> {
    let mut bits = 0u128;
    let shift = |value: u32| {
        if range.most > u128::BITS {
            value - YEAR_MIN
        } else {
            value
        }
    };
    for part in field.split(',') {
        let (span, step) = match part.split_once('/') {
            Some((span, step)) => {
                let step = step.parse::<u32>().ok().filter(|step| *step > 0);
                (span, Some(step.ok_or_else(|| range.wrong(field))?))
            }
            None => (part, None),
        };
        let (first, last) = match span {
            "*" | "?" => (range.least, range.most),
            _ => match span.split_once('-') {
                Some((first, last)) => (range.value(first, field)?, range.value(last, field)?),
                None => {
                    let value = range.value(span, field)?;
                    (value, if step.is_some() { range.most } else { value })
                }
            },
        };
        // `FRI-MON` goes over the end.
        let over = if first > last { range.most } else { last };
        for value in (first..=over).step_by(step.unwrap_or(1) as usize) {
            bits |= 1 << shift(value);
        }
        if first > last {
            for value in range.least..=last {
                bits |= 1 << shift(value);
            }
        }
    }
    Ok(bits)
}

impl Range {
    fn value(&self, text: &str, field: &str) -> Result<u32, String> {
        let upper = text.to_ascii_uppercase();
        if let Some(index) = self.names.iter().position(|name| *name == upper) {
            let index = u32::try_from(index).unwrap_or_default();
            return Ok(index + self.least);
        }
        let value = text.parse::<u32>().ok();
        value
            .filter(|value| (self.least..=self.most).contains(value))
            .ok_or_else(|| self.wrong(field))
    }

    fn wrong(&self, field: &str) -> String {
        format!(
            "'{field}' is no {} of a cron expression: {} to {}, '*', '?', lists, ranges and steps",
            self.what, self.least, self.most
        )
    }
}

const SECONDS: Range = Range {
    what: "second",
    least: 0,
    most: 59,
    names: &[],
};

const MINUTES: Range = Range {
    what: "minute",
    least: 0,
    most: 59,
    names: &[],
};

const HOURS: Range = Range {
    what: "hour",
    least: 0,
    most: 23,
    names: &[],
};

const DAYS: Range = Range {
    what: "day of month",
    least: 1,
    most: 31,
    names: &[],
};

const MONTHS: Range = Range {
    what: "month",
    least: 1,
    most: 12,
    names: &[
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
    ],
};

const WEEKDAYS: Range = Range {
    what: "day of week",
    least: 1,
    most: 7,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
};

const UNIX_WEEKDAYS: Range = Range {
    what: "day of week",
    least: 0,
    most: 7,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
};

const YEARS: Range = Range {
    what: "year",
    least: YEAR_MIN,
    most: YEAR_MAX,
    names: &[],
};

const YEAR_MIN: u32 = 1970;

/// Quartz's own bound is two years later; a year is a bit of 128.
const YEAR_MAX: u32 = 2097;

const DAY_SECONDS: u32 = 86_400;

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
