//! Until when a certificate is valid, and a short mark to tell certificates apart.
//!
//! Reads just as much of DER as leads there (RFC 5280, sections 4.1 and 4.1.2.5). The certificate
//! was verified before, yet nothing here trusts its lengths.

use base::UnixMillis;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;

use crate::subject::{SEQUENCE, VERSION, element};

/// What is known of a certificate beside its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The end of its validity; none where it cannot be read.
    pub not_after: Option<UnixMillis>,
    /// The first eight bytes of its SHA-256.
    pub mark: u64,
}

impl CertificateFacts {
    /// Of this certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> CertificateFacts {
        let digest = digest(&SHA256, certificate);
        let mut mark = [0; 8];
        mark.copy_from_slice(&digest.as_ref()[..8]);
        CertificateFacts {
            not_after: not_after(certificate),
            mark: u64::from_be_bytes(mark),
        }
    }
}

fn not_after(certificate: &[u8]) -> Option<UnixMillis> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    let (tag, _, rest) = element(fields)?;
    if tag == VERSION {
        fields = rest;
    }
    // Serial, algorithm and issuer stand before the validity.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (tag, validity, _) = element(fields)?;
    if tag != SEQUENCE {
        return None;
    }
    let (_, _, end) = element(validity)?;
    let (tag, time, _) = element(end)?;
    match tag {
        UTC_TIME => {
            let year = two(time, 0)?;
            // Section 4.1.2.5.1: the century that a year of two digits belongs to.
            let century = if year >= 50 { 1900 } else { 2000 };
            moment(century + year, time.get(2..)?)
        }
        GENERALIZED_TIME => moment(two(time, 0)? * 100 + two(time, 2)?, time.get(4..)?),
        _ => None,
    }
}

/// `MMDDhhmmssZ` in a year.
fn moment(year: i64, rest: &[u8]) -> Option<UnixMillis> {
    if rest.len() != 11 || rest[10] != b'Z' {
        return None;
    }
    let part = |index: usize, range: std::ops::RangeInclusive<i64>| {
        two(rest, index).filter(|value| range.contains(value))
    };
    let days = days_before(year, part(0, 1..=12)?, part(2, 1..=31)?);
    let (hour, minute, second) = (part(4, 0..=23)?, part(6, 0..=59)?, part(8, 0..=60)?);
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(UnixMillis(seconds * 1_000))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March here, so that
/// the day that comes every four years is the last.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - DAYS_TO_1970
}

/// Two digits.
fn two(text: &[u8], index: usize) -> Option<i64> {
    let digits = text.get(index..index + 2)?;
    let digit = |byte: u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
    Some(digit(digits[0])? * 10 + digit(digits[1])?)
}

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Days from the first of March of the year 0 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![tag, u8::try_from(content.len()).unwrap()];
        out.extend(content);
        out
    }

    fn ends(tag: u8, text: &str) -> Option<i64> {
        let validity = [der(UTC_TIME, b"200101000000Z"), der(tag, text.as_bytes())].concat();
        let fields = [
            der(VERSION, &der(2, &[2])),
            der(2, &[1]),
            der(SEQUENCE, &[]),
            der(SEQUENCE, &[]),
            der(SEQUENCE, &validity),
        ];
        let certificate = der(SEQUENCE, &der(SEQUENCE, &fields.concat()));
        not_after(&certificate).map(|at| at.0 / 1_000)
    }

    #[test]
    fn both_kinds_of_times_are_read() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (UTC_TIME, "500101000000Z", -631_152_000),
            (GENERALIZED_TIME, "20000229120000Z", 951_825_600),
            (GENERALIZED_TIME, "20270301000000Z", 1_803_859_200),
            (GENERALIZED_TIME, "21000301000000Z", 4_107_542_400),
        ] {
            assert_eq!(ends(tag, text), Some(seconds), "{text}");
        }
        for (tag, text) in [
            (UTC_TIME, "701301000000Z"),
            (UTC_TIME, "700101000000"),
            (GENERALIZED_TIME, "2027030100000Z"),
            (0x13, "20270301000000Z"),
        ] {
            assert_eq!(ends(tag, text), None, "{text}");
        }
    }

    #[test]
    fn no_bytes_are_too_odd() {
        let whole = der(
            SEQUENCE,
            &der(SEQUENCE, &[der(2, &[1]), vec![0x30, 0x85]].concat()),
        );
        for cut in 0..whole.len() {
            assert_eq!(not_after(&whole[..cut]), None);
        }
        assert_eq!(not_after(&whole), None);
    }
}
