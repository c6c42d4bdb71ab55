//! Reading a time by a Java pattern, field by field.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

use super::{DAYS, Item, MONTHS};

/// Reads `text` by the items of a pattern; gives milliseconds since 1970.
pub(super) fn java(items: &[Item], text: &str, zone: &TimeZone, now: i64) -> Result<i64, String> {
    let mut fields = Fields::new(now);
    let mut rest = text;
    for (index, item) in items.iter().enumerate() {
        let read = match item {
            Item::Plain(plain) => rest.strip_prefix(plain.as_str()),
            Item::Field(letter, count) => {
                // Digits of one field end where the pattern has the next: `yyyyMMdd`.
                let is_tight = matches!(
                    items.get(index + 1),
                    Some(Item::Field(next, count)) if is_number(*next, *count)
                );
                fields.read(*letter, *count, is_tight, rest)
            }
        };
        rest = read.ok_or_else(|| {
            let at = text.len() - rest.len();
            format!("'{text}' does not fit the date pattern at character {at}")
        })?;
    }
    fields
        .resolve(zone)
        .map_err(|why| format!("'{text}' is no date: {why}"))
}

/// Reads `text` by a pattern of C.
pub(super) fn c(pattern: &str, text: &str, zone: &TimeZone) -> Result<i64, String> {
    let refused = |error: jiff::Error| format!("'{text}' does not fit '{pattern}': {error}");
    let broken = jiff::fmt::strtime::BrokenDownTime::parse(pattern, text).map_err(refused)?;
    if broken.offset().is_some() {
        return Ok(broken.to_timestamp().map_err(refused)?.as_millisecond());
    }
    let date = broken.to_date().map_err(refused)?;
    let time = broken.to_time().unwrap_or(Time::midnight());
    let zoned = date.to_datetime(time).to_zoned(zone.clone());
    Ok(zoned.map_err(refused)?.timestamp().as_millisecond())
}

/// What was read so far.
struct Fields {
    now: i64,
    year: Option<i64>,
    is_before_christ: bool,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: i64,
    /// Hour of half a day, and which half.
    half: Option<i64>,
    is_afternoon: bool,
    minute: i64,
    second: i64,
    milli: i64,
    zone: Option<TimeZone>,
}

impl Fields {
    fn new(now: i64) -> Self {
        Fields {
            now,
            year: None,
            is_before_christ: false,
            month: None,
            day: None,
            day_of_year: None,
            hour: 0,
            half: None,
            is_afternoon: false,
            minute: 0,
            second: 0,
            milli: 0,
            zone: None,
        }
    }

    /// Reads one field off the start of `text` and gives the rest.
    fn read<'t>(
        &mut self,
        letter: char,
        count: usize,
        is_tight: bool,
        text: &'t str,
    ) -> Option<&'t str> {
        match letter {
            'G' => {
                let (index, rest) = named(text, &["AD", "BC"], 2)?;
                self.is_before_christ = index == 1;
                return Some(rest);
            }
            'a' => {
                let (index, rest) = named(text, &["AM", "PM"], 2)?;
                self.is_afternoon = index == 1;
                return Some(rest);
            }
            'E' => return named(text, &DAYS, 3).map(|(_, rest)| rest),
            'M' | 'L' if count > 2 => {
                let (index, rest) = named(text, &MONTHS, 3)?;
                self.month = Some(index as i64 + 1);
                return Some(rest);
            }
            'z' | 'Z' | 'X' => {
                let (zone, rest) = zone(text)?;
                self.zone = Some(zone);
                return Some(rest);
            }
            _ => {}
        }
        let text = text.trim_start_matches(' ');
        let digits_max = if is_tight { count } else { DIGITS_MAX };
        let len = text
            .bytes()
            .take(digits_max)
            .take_while(u8::is_ascii_digit)
            .count();
        let (digits, rest) = text.split_at(len);
        let number: i64 = digits.parse().ok()?;
        match letter {
            'y' | 'Y' if count == 2 && len == 2 => self.year = Some(self.century(number)),
            'y' | 'Y' => self.year = Some(number),
            'M' | 'L' => self.month = Some(number),
            'd' => self.day = Some(number),
            'D' => self.day_of_year = Some(number),
            'H' => self.hour = number,
            'k' => self.hour = number % 24,
            'K' => self.half = Some(number),
            'h' => self.half = Some(number % 12),
            'm' => self.minute = number,
            's' => self.second = number,
            'S' => self.milli = number,
            // Weeks and days of weeks say nothing that the date does not.
            _ => {}
        }
        Some(rest)
    }

    /// Two digits mean a year from eighty before now to nineteen after, as in Java.
    fn century(&self, two: i64) -> i64 {
        let now = Timestamp::from_millisecond(self.now).unwrap_or(Timestamp::UNIX_EPOCH);
        let first = i64::from(now.to_zoned(TimeZone::UTC).year()) - 80;
        first + (two - first).rem_euclid(100)
    }

    fn resolve(self, zone: &TimeZone) -> Result<i64, String> {
        let year = match (self.year.unwrap_or(1970), self.is_before_christ) {
            (year, true) => 1 - year,
            (year, false) => year,
        };
        let date = match self.day_of_year {
            Some(day) if self.month.is_none() => day_of(year, day),
            _ => date_of(year, self.month.unwrap_or(1), self.day.unwrap_or(1)),
        };
        let date = date.ok_or_else(|| {
            let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
            format!("{year}-{month}-{day} does not exist")
        })?;
        let hour = match self.half {
            Some(hour) => hour + if self.is_afternoon { 12 } else { 0 },
            None => self.hour,
        };
        let time = time_of(hour, self.minute, self.second, self.milli)
            .ok_or_else(|| format!("{hour}:{}:{} does not exist", self.minute, self.second))?;
        let zone = self.zone.unwrap_or_else(|| zone.clone());
        let zoned = DateTime::from_parts(date, time).to_zoned(zone);
        zoned
            .map(|zoned| zoned.timestamp().as_millisecond())
            .map_err(|error| error.to_string())
    }
}

fn date_of(year: i64, month: i64, day: i64) -> Option<Date> {
    let (year, month) = (i16::try_from(year).ok()?, i8::try_from(month).ok()?);
    Date::new(year, month, i8::try_from(day).ok()?).ok()
}

fn day_of(year: i64, day: i64) -> Option<Date> {
    let first = date_of(year, 1, 1)?;
    first
        .with()
        .day_of_year(i16::try_from(day).ok()?)
        .build()
        .ok()
}

fn time_of(hour: i64, minute: i64, second: i64, milli: i64) -> Option<Time> {
    let (hour, minute) = (i8::try_from(hour).ok()?, i8::try_from(minute).ok()?);
    let nanos = i32::try_from(milli.checked_mul(1_000_000)?).ok()?;
    Time::new(hour, minute, i8::try_from(second).ok()?, nanos).ok()
}

/// One of `names` at the start of `text`, whole or its first `short` letters, in any case.
fn named<'t>(text: &'t str, names: &[&str], short: usize) -> Option<(usize, &'t str)> {
    let starts_with = |name: &str| {
        text.get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    names.iter().enumerate().find_map(|(index, name)| {
        if starts_with(name) {
            Some((index, &text[name.len()..]))
        } else if starts_with(&name[..short]) {
            Some((index, &text[short..]))
        } else {
            None
        }
    })
}

/// A zone at the start of `text`: `Z`, `+0100`, `GMT+1`, `PST`, `Europe/Paris`.
fn zone(text: &str) -> Option<(TimeZone, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | ':' | '/' | '_');
    let len = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(len);
    super::zone(name).ok().map(|zone| (zone, rest))
}

fn is_number(letter: char, count: usize) -> bool {
    match letter {
        'G' | 'E' | 'a' | 'z' | 'Z' | 'X' => false,
        'M' | 'L' => count < 3,
        _ => true,
    }
}

/// Digits of one number at most: no field needs more.
const DIGITS_MAX: usize = 9;
