//! Dates and times as flows write them: Java's `SimpleDateFormat` patterns (`yyyy-MM-dd`), or,
//! where a pattern has a percent sign, C's (`%Y-%m-%d`), whose seconds have their fraction, as in
//! MiNiFi C++.
//!
//! Time zones are the host's (`/usr/share/zoneinfo`); names are English. A date that does not
//! exist is an error, where Java rolls it over; as in Java, text behind what the pattern names is
//! not looked at. `z` gives a zone's short name however often it is written.

mod read;
mod write;

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

/// A pattern, taken apart.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    /// Java's.
    Java(Vec<Item>),
    /// C's, as jiff writes it.
    C(String),
}

/// A part of a Java pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Characters that stand for themselves.
    Plain(String),
    /// A letter and how often it is written.
    Field(char, usize),
}

impl Pattern {
    /// Takes `text` apart; the error names the letter that means nothing. Seconds of C have
    /// three digits behind the point.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        Pattern::with_digits(text, 3)
    }

    /// The same, with as many `digits` behind the point of C's seconds.
    pub(crate) fn with_digits(text: &str, digits: u8) -> Result<Self, String> {
        if text.contains('%') {
            return Ok(Pattern::C(of_minifi(text, digits)));
        }
        let mut items: Vec<Item> = Vec::new();
        let mut characters = text.chars().peekable();
        while let Some(c) = characters.next() {
            match c {
                '\'' if characters.peek() == Some(&'\'') => {
                    characters.next();
                    push_plain(&mut items, '\'');
                }
                '\'' => loop {
                    match characters.next() {
                        Some('\'') if characters.peek() == Some(&'\'') => {
                            characters.next();
                            push_plain(&mut items, '\'');
                        }
                        Some('\'') => break,
                        Some(quoted) => push_plain(&mut items, quoted),
                        None => return Err(format!("the date pattern '{text}' ends in a quote")),
                    }
                },
                _ if LETTERS.contains(c) => match items.last_mut() {
                    Some(Item::Field(letter, count)) if *letter == c => *count += 1,
                    _ => items.push(Item::Field(c, 1)),
                },
                _ if c.is_ascii_alphabetic() => {
                    return Err(format!("'{c}' means nothing in the date pattern '{text}'"));
                }
                _ => push_plain(&mut items, c),
            }
        }
        Ok(Pattern::Java(items))
    }

    /// Writes a time as it is in `zone`.
    pub(crate) fn format(&self, time: Timestamp, zone: &TimeZone) -> Result<String, String> {
        let at = time.to_zoned(zone.clone());
        match self {
            Pattern::Java(items) => Ok(write::java(items, &at)),
            Pattern::C(text) => jiff::fmt::strtime::format(text, &at)
                .map_err(|error| format!("'{text}' cannot be written: {error}")),
        }
    }

    /// Reads `text`, in `zone` unless it names its own; gives milliseconds since 1970. `now`
    /// decides the century of years with two digits.
    pub(crate) fn parse(&self, text: &str, zone: &TimeZone, now: i64) -> Result<i64, String> {
        match self {
            Pattern::Java(items) => read::java(items, text, zone, now),
            Pattern::C(pattern) => read::c(pattern, text, zone),
        }
    }
}

/// The time zone of this name: of the zone database, an offset like `GMT+2`, or one of Java's
/// short names.
pub(crate) fn zone(name: &str) -> Result<TimeZone, String> {
    let name = name.trim();
    if let Some(zone) = offset_zone(name) {
        return Ok(zone);
    }
    let long = SHORT_NAMES.iter().find(|(short, _)| *short == name);
    TimeZone::get(long.map_or(name, |(_, long)| long)).map_err(|_| {
        format!("there is no time zone '{name}' on this host: mend the name, or install tzdata")
    })
}

/// `Z`, `UTC`, `GMT+2`, `UTC-03:30`, `+0100`, `+01:00`.
fn offset_zone(text: &str) -> Option<TimeZone> {
    if matches!(text, "Z" | "UTC" | "GMT" | "UT") {
        return Some(TimeZone::UTC);
    }
    let offset = text.strip_prefix("GMT").or(text.strip_prefix("UTC"));
    let (sign, digits) = match offset.unwrap_or(text).split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() > 2 => digits.split_at_checked(digits.len() - 2)?,
        None => (digits, "0"),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(hours) || !is_number(minutes) || hours.len() > 2 {
        return None;
    }
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let offset = Offset::from_seconds(sign * (hours * 3_600 + minutes * 60)).ok()?;
    Some(TimeZone::fixed(offset))
}

/// A pattern of C as jiff has it: `%S` is `03.264` in MiNiFi C++, `%Ez` has a colon, and the rest
/// is as in the C locale.
fn of_minifi(text: &str, digits: u8) -> String {
    let seconds = format!("%S%.{digits}f");
    let part = |part: &str| {
        let part = part.replace("%T", "%H:%M:%S").replace("%S", &seconds);
        let part = part.replace("%Ez", "%:z").replace("%x", "%m/%d/%y");
        part.replace("%X", "%H:%M:%S")
    };
    let parts: Vec<String> = text.split("%%").map(part).collect();
    parts.join("%%")
}

fn push_plain(items: &mut Vec<Item>, c: char) {
    match items.last_mut() {
        Some(Item::Plain(text)) => text.push(c),
        _ => items.push(Item::Plain(c.to_string())),
    }
}

/// Letters that mean something.
const LETTERS: &str = "GyYMLwWDdFEuaHkKhmsSzZX";

/// Short names that the zone database lacks or means otherwise, as Java reads them.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("PST", "America/Los_Angeles"),
    ("PDT", "America/Los_Angeles"),
    ("MST", "America/Denver"),
    ("MDT", "America/Denver"),
    ("CST", "America/Chicago"),
    ("CDT", "America/Chicago"),
    ("EST", "America/New_York"),
    ("EDT", "America/New_York"),
    ("AKST", "America/Anchorage"),
    ("CET", "Europe/Paris"),
    ("CEST", "Europe/Paris"),
    ("EET", "Europe/Bucharest"),
    ("EEST", "Europe/Bucharest"),
    ("WET", "Europe/Lisbon"),
    ("BST", "Europe/London"),
    ("IST", "Asia/Kolkata"),
    ("JST", "Asia/Tokyo"),
    ("CTT", "Asia/Shanghai"),
    ("AEST", "Australia/Sydney"),
    ("AEDT", "Australia/Sydney"),
    ("AET", "Australia/Sydney"),
    ("NST", "Pacific/Auckland"),
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// 2014-12-31T20:36:03.264Z, the guide's example.
    const GUIDE: i64 = 1_420_058_163_264;

    fn written(pattern: &str, millis: i64, name: &str) -> String {
        let pattern = Pattern::new(pattern).unwrap();
        let time = Timestamp::from_millisecond(millis).unwrap();
        pattern.format(time, &zone(name).unwrap()).unwrap()
    }

    fn read(pattern: &str, text: &str, name: &str) -> Result<i64, String> {
        Pattern::new(pattern)?.parse(text, &zone(name)?, GUIDE)
    }

    #[test]
    fn every_letter_is_written() {
        for (pattern, expected) in [
            ("yyyy/MM/dd HH:mm:ss.SSS'Z'", "2014/12/31 20:36:03.264Z"),
            ("yy M MMM MMMM LLL d", "14 12 Dec December Dec 31"),
            ("E EEEE u", "Wed Wednesday 3"),
            ("G YYYY w W D F", "AD 2015 1 5 365 5"),
            ("a h hh K k H", "PM 8 08 8 20 20"),
            ("S SSSSSS", "264 000264"),
            ("z zzzz Z X XX XXX", "UTC UTC +0000 Z Z Z"),
            ("'o''clock' ''", "o'clock '"),
            ("2014", "2014"),
            ("%m-%d-%Y", "12-31-2014"),
            ("%FT%T%Ez", "2014-12-31T20:36:03.264+00:00"),
            ("%H:%M:%S %x %X %%S", "20:36:03.264 12/31/14 20:36:03 %S"),
        ] {
            assert_eq!(written(pattern, GUIDE, "GMT"), expected, "{pattern}");
        }
        assert_eq!(
            written("HH:mm z Z XXX", GUIDE, "Asia/Tokyo"),
            "05:36 JST +0900 +09:00"
        );
        assert_eq!(written("HH X", GUIDE, "GMT-03:30"), "17 -0330");
        assert_eq!(written("h a", 0, "UTC"), "12 AM");
        assert_eq!(written("k K", 0, "UTC"), "24 0");
    }

    #[test]
    fn what_is_written_is_read() {
        for (pattern, text, name, millis) in [
            (
                "yyyy/MM/dd HH:mm:ss.SSS'Z'",
                "2014/12/31 20:36:03.264Z",
                "GMT",
                GUIDE,
            ),
            ("yyyyMMddHHmmssSSS", "20141231203603264", "GMT", GUIDE),
            ("yyyy", "2014", "GMT", 1_388_534_400_000),
            ("yyyy", "2014/12/31", "GMT", 1_388_534_400_000),
            (
                "yyyy-MM-dd",
                "2014-07-01",
                "America/New_York",
                1_404_187_200_000,
            ),
            (
                "yyyy-MM-dd HH:mm Z",
                "2014-12-31 21:36 +0100",
                "Asia/Tokyo",
                1_420_058_160_000,
            ),
            (
                "yyyy-MM-dd'T'HH:mm:ssXXX",
                "2014-12-31T20:36:03Z",
                "PST",
                1_420_058_163_000,
            ),
            (
                "EEE MMM dd HH:mm:ss z yyyy",
                "Wed Dec 31 12:36:03 PST 2014",
                "GMT",
                1_420_058_163_000,
            ),
            (
                "d MMMM yy h:mm a",
                "1 march 70 1:05 pm",
                "UTC",
                5_144_700_000,
            ),
            ("D yyyy", "365 2014", "UTC", 1_419_984_000_000),
            ("K:mm a k", "0:30 PM 24", "UTC", 45_000_000),
            (
                "%Y/%m/%d",
                "2014/04/30",
                "America/Los_Angeles",
                1_398_841_200_000,
            ),
            ("%FT%T%Ez", "2014-12-31T21:36:03.264+01:00", "UTC", GUIDE),
            ("%Y%m%d%H%M%S", "20130917162643", "UTC", 1_379_435_203_000),
        ] {
            assert_eq!(read(pattern, text, name), Ok(millis), "{pattern} {text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (pattern, text, part) in [
            ("yyyy-MM-dd", "2014-13-01", "13"),
            ("yyyy-MM-dd", "2014-02-30", "2014-2-30"),
            ("yyyy-MM-dd", "yesterday", "'yesterday'"),
            ("yyyy-MM-dd", "2014", "'2014'"),
            ("yyyy b", "2014", "'b'"),
            ("yyyy 'T", "2014", "quote"),
            ("MMM", "Nivose", "'Nivose'"),
            ("%Y-%m-%d", "2014", "'2014'"),
        ] {
            let error = read(pattern, text, "UTC").unwrap_err();
            assert!(error.contains(part), "{pattern} {text}: {error}");
        }
        assert!(zone("Mars/Olympus").unwrap_err().contains("tzdata"));
    }
}
