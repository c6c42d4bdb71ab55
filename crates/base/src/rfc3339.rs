//! Times as people and payloads write them, by RFC 3339.

use crate::clock::UnixMillis;

/// Reads `2026-01-31T12:00:00.25Z` or with `+01:00`; a blank may stand for the `T`. Digits of the
/// second past the third are cut off, and second 60 counts as the next minute's first.
///
/// Source: RFC 3339, section 5.6.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits.iter().try_fold(0i64, |value, byte| {
            byte.is_ascii_digit()
                .then(|| value * 10 + i64::from(byte - b'0'))
        })
    };
    let is = |at: usize, wanted: &[u8]| bytes.get(at).is_some_and(|byte| wanted.contains(byte));
    let shape = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    if !shape {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || day < 1 || day > days_of_month(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut at = 19;
    let mut ms = 0;
    if is(at, b".") {
        let start = at + 1;
        at = start
            + bytes[start..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
        if at == start {
            return None;
        }
        let kept = (at - start).min(3);
        ms = number(start, start + kept)? * [1_000, 100, 10, 1][kept];
    }
    let offset_minutes = match &bytes[at..] {
        b"Z" | b"z" => 0,
        zone if zone.len() == 6 && is(at, b"+-") && is(at + 3, b":") => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = hours * 60 + minutes;
            if zone[0] == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    let minutes = (days_since_epoch(year, month, day) * 24 + hour) * 60 + minute - offset_minutes;
    Some((minutes * 60 + second) * 1_000 + ms)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar; years start in March here, so that
/// the leap day is the last of its year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + leap_days + day_of_year - DAYS_TO_EPOCH
}

/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: i64 = 719_468;

/// Writes `2026-01-31T12:00:00.250Z`.
pub fn format_rfc3339(at: UnixMillis) -> String {
    let (days, ms) = (at.0.div_euclid(DAY_MS), at.0.rem_euclid(DAY_MS));
    // Years begin in March here, as above, and come in rounds of 400.
    let shifted = days + DAYS_TO_EPOCH;
    let (era, day) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA_DAYS - 1)) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        ..10 => (year + 400 * era, month + 3),
        _ => (year + 400 * era + 1, month - 9),
    };
    let (second, ms) = (ms / 1_000, ms % 1_000);
    format!(
        "{year:04}-{month:02}-{day_of_month:02}T{:02}:{:02}:{:02}.{ms:03}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60,
    )
}

const DAY_MS: i64 = 86_400_000;

/// Days in 400 years.
const ERA_DAYS: i64 = 146_097;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_rfc_3339_are_read() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1985-04-12T23:20:50.52Z", 482_196_050_520),
            ("1996-12-19T16:39:57-08:00", 851_042_397_000),
            ("1990-12-31T23:59:60Z", 662_688_000_000),
            ("2000-02-29 12:00:00.1239+00:00", 951_825_600_123),
            ("1969-12-31T23:59:59.999Z", -1),
        ] {
            assert_eq!(parse_rfc3339(text), Some(ms), "{text}");
        }
        for bad in [
            "",
            "2026-01-31",
            "2026-02-30T00:00:00Z",
            "2026-01-31T24:00:00Z",
            "1700000000",
            "2026-01-31T00:00:00",
            "2026-01-31T00:00:00.Z",
            "2026-01-31T00:00:00+1:00",
            "2026-01-31T00:00:00é",
            "2026-13-01T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_825_600_123, "2000-02-29T12:00:00.123Z"),
            (1_767_225_599_999, "2025-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(format_rfc3339(UnixMillis(ms)), text);
        }
        let mut rng = crate::Rng::from_seed(1);
        for _ in 0..10_000 {
            let ms = rng.below(8_000_000_000_000) as i64 - 2_000_000_000_000;
            assert_eq!(parse_rfc3339(&format_rfc3339(UnixMillis(ms))), Some(ms));
        }
    }
}
