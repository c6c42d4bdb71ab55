//! Writing a time by a Java pattern.

use std::fmt::Write;

use jiff::Zoned;
use jiff::civil::Date;

use super::{DAYS, Item, MONTHS};

/// Writes `at` by the items of a pattern.
pub(super) fn java(items: &[Item], at: &Zoned) -> String {
    let mut out = String::new();
    for item in items {
        match item {
            Item::Plain(text) => out.push_str(text),
            Item::Field(letter, count) => field(&mut out, *letter, *count, at),
        }
    }
    out
}

fn field(out: &mut String, letter: char, count: usize, at: &Zoned) {
    let (date, time) = (at.date(), at.time());
    let hour = i64::from(time.hour());
    let day = usize::try_from(date.weekday().to_sunday_zero_offset()).unwrap_or(0);
    let month = usize::try_from(date.month() - 1).unwrap_or(0);
    let number = match letter {
        'G' => return out.push_str(if date.year() > 0 { "AD" } else { "BC" }),
        'E' => return name(out, DAYS[day], count > 3),
        'M' | 'L' if count > 2 => return name(out, MONTHS[month], count > 3),
        'a' => return out.push_str(if hour < 12 { "AM" } else { "PM" }),
        'z' => {
            let info = at.time_zone().to_offset_info(at.timestamp());
            return out.push_str(info.abbreviation());
        }
        'Z' | 'X' => return offset(out, letter, count, at.offset().seconds()),
        'y' => return year(out, era_year(date.year()), count),
        'Y' => return year(out, week_year(date).0, count),
        'M' | 'L' => i64::from(date.month()),
        'w' => week_year(date).1,
        'W' => week(i64::from(date.day()), date.first_of_month()),
        'D' => i64::from(date.day_of_year()),
        'd' => i64::from(date.day()),
        'F' => (i64::from(date.day()) - 1) / 7 + 1,
        'u' => i64::from(date.weekday().to_monday_one_offset()),
        'H' => hour,
        'k' => (hour + 23) % 24 + 1,
        'K' => hour % 12,
        'h' => (hour + 11) % 12 + 1,
        'm' => i64::from(time.minute()),
        's' => i64::from(time.second()),
        _ => i64::from(time.millisecond()),
    };
    padded(out, number, count);
}

fn name(out: &mut String, name: &str, is_full: bool) {
    out.push_str(if is_full { name } else { &name[..3] });
}

fn padded(out: &mut String, number: i64, count: usize) {
    write!(out, "{number:0count$}").expect("writing into a String cannot fail");
}

fn year(out: &mut String, year: i64, count: usize) {
    if count == 2 {
        padded(out, year % 100, 2);
    } else {
        padded(out, year, count);
    }
}

/// Years count from one in both directions.
fn era_year(year: i16) -> i64 {
    match i64::from(year) {
        year if year > 0 => year,
        year => 1 - year,
    }
}

/// The week's year and its number, as in the United States: weeks begin on Sunday, and the first
/// one is that of the first of January.
fn week_year(date: Date) -> (i64, i64) {
    let sunday = i64::from(date.weekday().to_sunday_zero_offset());
    let left = i64::from(date.days_in_year()) - i64::from(date.day_of_year());
    if left < 6 - sunday {
        return (i64::from(date.year()) + 1, 1);
    }
    let number = week(i64::from(date.day_of_year()), date.first_of_year());
    (i64::from(date.year()), number)
}

/// The number of the week of the `day`th after a `first`, both counted from one.
fn week(day: i64, first: Date) -> i64 {
    (day - 1 + i64::from(first.weekday().to_sunday_zero_offset())) / 7 + 1
}

fn offset(out: &mut String, letter: char, count: usize, seconds: i32) {
    if letter == 'X' && seconds == 0 {
        return out.push('Z');
    }
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.abs() / 60;
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let written = match (letter, count) {
        ('X', 1) if minutes == 0 => write!(out, "{sign}{hours:02}"),
        ('X', 3) => write!(out, "{sign}{hours:02}:{minutes:02}"),
        _ => write!(out, "{sign}{hours:02}{minutes:02}"),
    };
    written.expect("writing into a String cannot fail");
}
