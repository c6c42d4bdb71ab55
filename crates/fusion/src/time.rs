//! Times as payloads write them: milliseconds, or a text by RFC 3339.

use base::parse_rfc3339;

use crate::limits::TIME_MS_MAX;
use crate::value::Value;

/// The time that a column's value names, milliseconds since the epoch; none when it names none.
pub fn event_time(value: &Value<'_>) -> Option<i64> {
    let time = match value {
        Value::Int(ms) => *ms,
        Value::Float(ms) if ms.abs() <= TIME_MS_MAX as f64 => ms.floor() as i64,
        Value::Text(text) => parse_rfc3339(text)?,
        _ => return None,
    };
    (-TIME_MS_MAX..=TIME_MS_MAX).contains(&time).then_some(time)
}
