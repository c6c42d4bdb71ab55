//! Dates: milliseconds since 1970 to texts and back, by Java's patterns or C's.

use super::{Function, Given, number, on};
use crate::dates::{self, Pattern};
use crate::expression::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    on("format", 1, 2, |mut given| {
        if given.subject == Value::Null {
            return Ok(Value::Null);
        }
        let (pattern, zone) = given.pattern_and_zone()?;
        let millis = number(&given.subject)?.whole()?;
        let time = jiff::Timestamp::from_millisecond(millis)
            .map_err(|_| format!("{millis} is no time that has a date"))?;
        pattern.format(time, &zone).map(Value::Text)
    }),
    on("toDate", 0, 2, |mut given| {
        if given.subject == Value::Null {
            return Ok(Value::Null);
        }
        if given.arguments.is_empty() {
            // A date of RFC 3339, whose parts an underscore may stand between.
            let text = given.text();
            let time = text.replacen('_', " ", 1).parse::<jiff::Timestamp>();
            let time = time.map_err(|error| format!("'{text}' is no date: {error}"))?;
            return Ok(Value::Whole(time.as_millisecond()));
        }
        let (pattern, zone) = given.pattern_and_zone()?;
        let now = given.frame.scope.now.0;
        pattern.parse(&given.text(), &zone, now).map(Value::Whole)
    }),
];

impl Given<'_> {
    /// The pattern, and the time zone: the host's own when none is named.
    fn pattern_and_zone(&mut self) -> Result<(Pattern, jiff::tz::TimeZone), String> {
        let pattern = Pattern::new(&self.argument(0))?;
        let zone = match self.optional(1) {
            Some(name) => dates::zone(&name)?,
            None => jiff::tz::TimeZone::system(),
        };
        Ok((pattern, zone))
    }
}
