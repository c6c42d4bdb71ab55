//! Due times by hand, and properties over random expressions.

use base::Rng;

use super::*;

fn next(cron: &str, after: &str) -> String {
    let cron = Cron::parse(cron).unwrap_or_else(|error| panic!("{error}"));
    let next = cron.next(after.parse().unwrap()).expect("it is due");
    next.to_string()
}

#[test]
fn due_times_are_those_of_the_calendar() {
    for (cron, after, due) in [
        ("* * * * * ?", "2026-01-01T00:00:00", "2026-01-01T00:00:01"),
        (
            "*/5 * * * * ?",
            "2026-01-01T00:00:59",
            "2026-01-01T00:01:00",
        ),
        ("0 0 12 * * ?", "2026-01-01T12:00:00", "2026-01-02T12:00:00"),
        (
            "0 15 10 ? * MON-FRI",
            "2026-01-02T10:15:00",
            "2026-01-05T10:15:00",
        ),
        (
            "0 15 10 ? * 2-6",
            "2026-01-02T10:15:00",
            "2026-01-05T10:15:00",
        ),
        (
            "0 0/5 14,18 * * ?",
            "2026-01-01T14:57:00",
            "2026-01-01T18:00:00",
        ),
        (
            "0 0-5 14 * * ?",
            "2026-01-01T14:05:00",
            "2026-01-02T14:00:00",
        ),
        (
            "0 10,44 14 ? 3 WED",
            "2026-01-01T00:00:00",
            "2026-03-04T14:10:00",
        ),
        (
            "0 15 10 L * ?",
            "2026-02-01T00:00:00",
            "2026-02-28T10:15:00",
        ),
        (
            "0 15 10 L-2 * ?",
            "2026-02-01T00:00:00",
            "2026-02-26T10:15:00",
        ),
        (
            "0 15 10 ? * 6L",
            "2026-01-01T00:00:00",
            "2026-01-30T10:15:00",
        ),
        (
            "0 15 10 ? * FRI#3",
            "2026-01-01T00:00:00",
            "2026-01-16T10:15:00",
        ),
        (
            "0 0 0 15W * ?",
            "2026-02-01T00:00:00",
            "2026-02-16T00:00:00",
        ),
        ("0 0 0 1W * ?", "2026-07-31T00:00:00", "2026-08-03T00:00:00"),
        ("0 0 0 LW * ?", "2026-05-01T00:00:00", "2026-05-29T00:00:00"),
        ("0 0 0 29 2 ?", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        (
            "0 0 0 1 1 ? 2030-2032",
            "2026-01-01T00:00:00",
            "2030-01-01T00:00:00",
        ),
        (
            "0 0 0 ? * FRI-MON",
            "2026-01-05T00:00:00",
            "2026-01-09T00:00:00",
        ),
        // Five fields are Unix's: Sunday is 0 and 7, and either kind of day will do.
        (
            "30 4 1,15 * 5",
            "2026-01-01T04:30:00",
            "2026-01-02T04:30:00",
        ),
        ("0 0 * * 0", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
        ("0 0 * * 7", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
        ("*/15 * * * *", "2026-01-01T00:46:00", "2026-01-01T01:00:00"),
    ] {
        assert_eq!(next(cron, after), due, "{cron} after {after}");
    }
}

#[test]
fn what_is_no_expression_is_named_with_its_field() {
    for (cron, message) in [
        ("", "needs 5, 6 or 7"),
        ("* * *", "it has 3 fields"),
        ("60 * * * * ?", "'60' is no second"),
        ("0 0 24 * * ?", "'24' is no hour"),
        ("0 0 0 32 * ?", "'32' is no day of month"),
        ("0 0 0 ? * 8", "'8' is no day of week"),
        ("0 0 0 ? * 0", "'0' is no day of week"),
        ("0 0 0 ? * FRI#6", "'FRI#6' is no day of week"),
        ("0 */0 * * * ?", "'*/0' is no minute"),
        ("0 x * * * ?", "'x' is no minute"),
        ("0 0 0 30 2 ?", "is never due"),
        ("0 0 0 1 1 ? 1969", "'1969' is no year"),
        ("0 0 0 0W * ?", "is no day of month"),
    ] {
        let error = Cron::parse(cron).unwrap_err();
        assert!(error.contains(message), "{cron}: {error}");
    }
}

#[test]
fn hours_that_clocks_skip_or_repeat_come_once() {
    let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
    let millis = |text: &str| UnixMillis(text.parse::<Timestamp>().unwrap().as_millisecond());
    let daily = Cron::parse("0 30 2 * * ?").unwrap();
    // On 2026-03-29 there is no 02:30; it comes as 03:30, which is 01:30 UTC.
    let due = daily.next_in(millis("2026-03-28T12:00:00Z"), &zone);
    assert_eq!(due, Some(millis("2026-03-29T01:30:00Z")));
    // On 2026-10-25 there are two.
    let first = daily.next_in(millis("2026-10-24T12:00:00Z"), &zone);
    assert_eq!(first, Some(millis("2026-10-25T00:30:00Z")));
    let second = daily.next_in(millis("2026-10-25T00:30:00Z"), &zone);
    assert_eq!(second, Some(millis("2026-10-26T01:30:00Z")));
}

/// The next due time by looking at every second, for expressions that are due every few days.
fn slow_next(cron: &Cron, after: DateTime) -> Option<DateTime> {
    let mut at = after;
    for _ in 0..4 * DAY_SECONDS {
        at = at.checked_add(1.second()).ok()?;
        let has = |bits: u64, value: i8| bits & (1 << value) != 0;
        if has(cron.seconds, at.second())
            && has(cron.minutes, at.minute())
            && has(cron.hours, at.hour())
            && cron.has_day(at.date())
        {
            return Some(at);
        }
    }
    None
}

#[test]
fn the_next_due_time_is_the_first_second_that_fits() {
    let mut random = Rng::from_entropy();
    for _ in 0..60 {
        let mut field = |most: u64| match random.below(4) {
            0 => "*".to_owned(),
            1 => format!("{}", random.below(most)),
            2 => format!("{}/{}", random.below(most), 1 + random.below(most)),
            _ => format!(
                "{}-{}",
                random.below(most / 2),
                most / 2 + random.below(most / 2)
            ),
        };
        let text = format!("{} {} {} * * ?", field(60), field(60), field(24));
        let cron = Cron::parse(&text).unwrap();
        let start = date(2026, 2, 27).at(0, 0, 0, 0);
        let after = start
            .checked_add(i64::try_from(random.below(200_000)).unwrap().seconds())
            .unwrap();
        assert_eq!(
            cron.next(after),
            slow_next(&cron, after),
            "{text} after {after}"
        );
    }
}
