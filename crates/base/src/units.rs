//! Sizes and durations as people write them in configuration: `"64MiB"`, `"30s"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A count of bytes, written `512`, `"64KiB"`, `"64MiB"`, `"2GiB"`, or decimal `"10MB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct ByteSize(pub u64);

/// A length of time, written `"250ms"`, `"30s"`, `"5m"`, `"12h"`, `"7d"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct HumanDuration(pub Duration);

/// A text that is no size or no duration; the writer's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a size.
    #[error("'{0}' is no size: write a whole number and B, KiB, MiB, GiB, TiB, kB, MB, GB or TB")]
    Size(String),
    /// Not a duration.
    #[error("'{0}' is no duration: write a whole number and ms, s, m, h or d")]
    Duration(String),
}

impl ByteSize {
    /// `n` times 1,024 bytes.
    pub const fn kib(n: u64) -> Self {
        ByteSize(n << 10)
    }

    /// `n` times 1,048,576 bytes.
    pub const fn mib(n: u64) -> Self {
        ByteSize(n << 20)
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, &SIZES)
            .map(ByteSize)
            .ok_or_else(|| UnitError::Size(text.to_owned()))
    }
}

impl FromStr for HumanDuration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if !text.bytes().any(|b| b.is_ascii_alphabetic()) && text != "0" {
            // A bare number does not say its unit; only zero needs none.
            return Err(UnitError::Duration(text.to_owned()));
        }
        parse(text, &DURATIONS)
            .map(|ms| HumanDuration(Duration::from_millis(ms)))
            .ok_or_else(|| UnitError::Duration(text.to_owned()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = largest_exact(self.0, &SIZES[..5]);
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        let (unit, factor) = largest_exact(ms, &DURATIONS);
        write!(f, "{}{unit}", ms / factor)
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> String {
        size.to_string()
    }
}

impl From<HumanDuration> for String {
    fn from(duration: HumanDuration) -> String {
        duration.to_string()
    }
}

impl TryFrom<Written> for ByteSize {
    type Error = UnitError;

    fn try_from(written: Written) -> Result<Self, UnitError> {
        match written {
            Written::Number(n) => Ok(ByteSize(n)),
            Written::Text(text) => text.parse(),
        }
    }
}

impl TryFrom<Written> for HumanDuration {
    type Error = UnitError;

    fn try_from(written: Written) -> Result<Self, UnitError> {
        match written {
            Written::Number(n) => n.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..split].parse().ok()?;
    let unit = text[split..].trim_start();
    let factor = if unit.is_empty() {
        1
    } else {
        units
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))?
            .1
    };
    number.checked_mul(factor)
}

fn largest_exact<'u>(value: u64, units: &[(&'u str, u64)]) -> (&'u str, u64) {
    let mut best = units[0];
    for unit in units {
        if value != 0 && value.is_multiple_of(unit.1) {
            best = *unit;
        }
    }
    best
}

const SIZES: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

const DURATIONS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back_as_written() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("10MB", 10_000_000),
            ("512", 512),
            ("0", 0),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size, ByteSize(bytes));
            assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
        }
        assert_eq!(ByteSize::mib(64).to_string(), "64MiB");
        assert_eq!(
            "5 furlongs".parse::<ByteSize>(),
            Err(UnitError::Size("5 furlongs".into()))
        );
        assert!("99999999999TiB".parse::<ByteSize>().is_err());
    }

    #[test]
    fn durations_need_their_unit() {
        assert_eq!(
            "30s".parse::<HumanDuration>().unwrap().0,
            Duration::from_secs(30)
        );
        assert_eq!("90s".parse::<HumanDuration>().unwrap().to_string(), "90s");
        assert_eq!(HumanDuration(Duration::from_secs(120)).to_string(), "2m");
        assert_eq!("0".parse::<HumanDuration>().unwrap().0, Duration::ZERO);
        for bad in ["30", "s", "-1s", "1.5s"] {
            assert!(bad.parse::<HumanDuration>().is_err(), "{bad} was taken");
        }
    }
}
