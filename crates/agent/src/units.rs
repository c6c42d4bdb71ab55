//! Sizes and durations as MiNiFi's flows and properties write them: `10 MB`, `30 sec`.
//!
//! Sizes are binary (1 KB is 1,024 B) and those without a B decimal (1 K is 1,000 B), as MiNiFi
//! counts them. A bare duration is refused unless it is zero, since it does not say its unit;
//! sizes may be bare bytes. Upper and lower case are the same everywhere.

use std::time::Duration;

/// Reads a duration: a whole number and `ns`, `us`, `ms`, `sec`, `min`, `hour`, `day`, `week`,
/// `month`, `year` or a spelling of them; the last two are the Gregorian calendar's means.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let nanos: u64 = match unit.to_ascii_lowercase().as_str() {
        "" if number == 0 => 0,
        "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => 1,
        "us" | "micro" | "micros" | "microsecond" | "microseconds" => 1_000,
        "ms" | "msec" | "msecs" | "milli" | "millis" | "millisecond" | "milliseconds" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => NANOS_PER_SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * NANOS_PER_SECOND,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600 * NANOS_PER_SECOND,
        "d" | "day" | "days" => 86_400 * NANOS_PER_SECOND,
        "w" | "wk" | "wks" | "week" | "weeks" => 604_800 * NANOS_PER_SECOND,
        "month" | "months" => 2_629_746 * NANOS_PER_SECOND,
        "y" | "year" | "years" => 31_556_952 * NANOS_PER_SECOND,
        _ => return None,
    };
    number.checked_mul(nanos).map(Duration::from_nanos)
}

/// Reads a size in bytes: a whole number and `B`, `KB`, `MB`, `GB`, `TB`, `PB`, the same without
/// their B, or a bare number.
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        "p" => 1_000_000_000_000_000,
        "kb" | "kib" => 1 << 10,
        "mb" | "mib" => 1 << 20,
        "gb" | "gib" => 1 << 30,
        "tb" | "tib" => 1 << 40,
        "pb" | "pib" => 1 << 50,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Reads a speed in bytes a second: a size, and `/s`, which may be left out.
pub fn speed(text: &str) -> Option<u64> {
    let text = text.trim();
    size(text.strip_suffix("/s").unwrap_or(text))
}

/// Reads `true` or `false`.
pub fn flag(text: &str) -> Option<bool> {
    text.to_ascii_lowercase().parse().ok()
}

fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_flows_write_them() {
        assert_eq!(duration("30 sec"), Some(Duration::from_secs(30)));
        assert_eq!(duration("5 millis"), Some(Duration::from_millis(5)));
        assert_eq!(duration("10min"), Some(Duration::from_secs(600)));
        assert_eq!(duration("0"), Some(Duration::ZERO));
        assert_eq!(duration("1 month"), Some(Duration::from_secs(2_629_746)));
        assert_eq!(duration("2 Years"), Some(Duration::from_secs(63_113_904)));
        for bad in [
            "30",
            "sec",
            "-1 sec",
            "1.5 sec",
            "3 parsecs",
            "99999999999999 days",
        ] {
            assert_eq!(duration(bad), None, "{bad} was taken");
        }
    }

    #[test]
    fn sizes_are_binary_and_decimal_without_a_b() {
        assert_eq!(size("1 KB"), Some(1024));
        for (text, bytes) in [("1 K", 1_000), ("1M", 1_000_000), ("2 g", 2_000_000_000)] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        assert_eq!(size("1 PiB"), Some(1 << 50));
        assert_eq!(size("100 MB"), Some(100 << 20));
        assert_eq!(size("7"), Some(7));
        assert_eq!(size("7 bananas"), None);
        assert_eq!(speed("500 KB/s"), Some(500 << 10));
        assert_eq!(speed("7"), Some(7));
        assert_eq!(speed("500 KB/min"), None);
    }
}
