//! Values of an event's fields and the rules of arithmetic, comparison and text over them.
//!
//! The rules, once for every language (the crate's head lists them for readers):
//! * An operand that is null, or of a type the operation does not take, gives null.
//! * `+ - *` of integers give an integer; past 64 bits the result becomes a double.
//! * `/` always gives a double. A result that JSON cannot write (x/0, overflow) is null.
//! * A comparison of values of different kinds is unknown; integers and doubles compare exactly.

use std::borrow::Cow;
use std::cmp::Ordering;

/// One value; texts borrow from the payload wherever they can.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Missing, JSON null, or unknown.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number that fits 64 bits.
    Int(i64),
    /// A finite double.
    Float(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// A JSON array or object as it was written.
    Json(Cow<'a, str>),
}

impl<'a> Value<'a> {
    /// A double, or null where it is not finite.
    pub fn float(number: f64) -> Self {
        if number.is_finite() {
            Value::Float(number)
        } else {
            Value::Null
        }
    }

    /// A text that borrows.
    pub fn text(text: &'a str) -> Self {
        Value::Text(Cow::Borrowed(text))
    }

    /// The same value borrowing from this one: never copies a text.
    pub fn reborrow(&'a self) -> Value<'a> {
        match self {
            Value::Null => Value::Null,
            Value::Bool(truth) => Value::Bool(*truth),
            Value::Int(number) => Value::Int(*number),
            Value::Float(number) => Value::Float(*number),
            Value::Text(text) => Value::Text(Cow::Borrowed(text)),
            Value::Json(text) => Value::Json(Cow::Borrowed(text)),
        }
    }

    /// True for null.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The truth value; unknown for null and for everything that is no truth value.
    pub fn truth(&self) -> Option<bool> {
        match self {
            Value::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The number as a double, where it is a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// Appends the value as JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Int(number) => write_number(out, number),
            Value::Float(number) => write_number(out, number),
            Value::Text(text) => write_text(out, text),
            Value::Json(text) => out.extend_from_slice(text.as_bytes()),
        }
    }

    /// The value as text: numbers and truth values as JSON writes them; none for null.
    pub fn to_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Value::Null => None,
            Value::Text(text) | Value::Json(text) => Some(Cow::Borrowed(text)),
            Value::Bool(truth) => Some(Cow::Borrowed(if *truth { "true" } else { "false" })),
            Value::Int(number) => Some(Cow::Owned(number.to_string())),
            Value::Float(_) => {
                let mut out = Vec::with_capacity(24);
                self.write_json(&mut out);
                Some(Cow::Owned(String::from_utf8_lossy(&out).into_owned()))
            }
        }
    }

    /// The order of two values; none where either is null or they are of different kinds.
    pub fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
            (Value::Int(a), Value::Float(b)) => compare_int_float(*a, *b),
            (Value::Float(a), Value::Int(b)) => compare_int_float(*b, *a).map(Ordering::reverse),
            (Value::Text(a), Value::Text(b)) => Some(a.as_ref().cmp(b.as_ref())),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// `self + other`.
    pub fn add(&self, other: &Value<'_>) -> Value<'static> {
        arithmetic(self, other, i64::checked_add, |a, b| a + b)
    }

    /// `self - other`.
    pub fn subtract(&self, other: &Value<'_>) -> Value<'static> {
        arithmetic(self, other, i64::checked_sub, |a, b| a - b)
    }

    /// `self * other`.
    pub fn multiply(&self, other: &Value<'_>) -> Value<'static> {
        arithmetic(self, other, i64::checked_mul, |a, b| a * b)
    }

    /// `self / other`, always a double; null for a zero divisor.
    pub fn divide(&self, other: &Value<'_>) -> Value<'static> {
        match (self.as_f64(), other.as_f64()) {
            (Some(a), Some(b)) => Value::float(a / b),
            _ => Value::Null,
        }
    }

    /// `self % other` with the sign of `self`; null for a zero divisor.
    pub fn remainder(&self, other: &Value<'_>) -> Value<'static> {
        match (self, other) {
            (Value::Int(_), Value::Int(0)) => Value::Null,
            // The one overflow of integer division; its remainder is zero.
            (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_rem(*b).unwrap_or(0)),
            _ => match (self.as_f64(), other.as_f64()) {
                (Some(a), Some(b)) => Value::float(a % b),
                _ => Value::Null,
            },
        }
    }

    /// `-self`.
    pub fn negate(&self) -> Value<'static> {
        match self {
            Value::Int(number) => number
                .checked_neg()
                .map_or(Value::float(-(*number as f64)), Value::Int),
            Value::Float(number) => Value::Float(-number),
            _ => Value::Null,
        }
    }
}

/// A value that owns its text: what state keeps between events.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum OwnedValue {
    /// See [`Value::Null`].
    #[default]
    Null,
    /// See [`Value::Bool`].
    Bool(bool),
    /// See [`Value::Int`].
    Int(i64),
    /// See [`Value::Float`].
    Float(f64),
    /// See [`Value::Text`].
    Text(String),
    /// See [`Value::Json`].
    Json(String),
}

impl OwnedValue {
    /// The value, borrowing.
    pub fn as_value(&self) -> Value<'_> {
        match self {
            OwnedValue::Null => Value::Null,
            OwnedValue::Bool(truth) => Value::Bool(*truth),
            OwnedValue::Int(number) => Value::Int(*number),
            OwnedValue::Float(number) => Value::Float(*number),
            OwnedValue::Text(text) => Value::Text(Cow::Borrowed(text)),
            OwnedValue::Json(text) => Value::Json(Cow::Borrowed(text)),
        }
    }

    /// Takes `value`, reusing the text buffer that is there.
    pub fn assign(&mut self, value: &Value<'_>) {
        match value {
            Value::Text(text) => match self {
                OwnedValue::Text(own) => {
                    own.clear();
                    own.push_str(text);
                }
                _ => *self = OwnedValue::Text(text.as_ref().to_owned()),
            },
            Value::Json(text) => *self = OwnedValue::Json(text.as_ref().to_owned()),
            Value::Null => *self = OwnedValue::Null,
            Value::Bool(truth) => *self = OwnedValue::Bool(*truth),
            Value::Int(number) => *self = OwnedValue::Int(*number),
            Value::Float(number) => *self = OwnedValue::Float(*number),
        }
    }

    /// Bytes of text that the value keeps beside itself.
    pub fn text_bytes(&self) -> usize {
        match self {
            OwnedValue::Text(text) | OwnedValue::Json(text) => text.capacity(),
            _ => 0,
        }
    }
}

/// Reads a number as JSON writes it: an integer where it is one and fits 64 bits, else a double;
/// null past a double's range. The text must already be a number by JSON's grammar.
pub fn parse_number(text: &str) -> Value<'static> {
    if let Ok(number) = text.parse::<i64>() {
        return Value::Int(number);
    }
    text.parse::<f64>().map_or(Value::Null, Value::float)
}

/// Appends `text` as a JSON string.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing to memory does not fail");
}

fn write_number<N: serde::Serialize>(out: &mut Vec<u8>, number: &N) {
    serde_json::to_writer(out, number).expect("writing to memory does not fail");
}

fn arithmetic(
    a: &Value<'_>,
    b: &Value<'_>,
    of_ints: fn(i64, i64) -> Option<i64>,
    of_floats: fn(f64, f64) -> f64,
) -> Value<'static> {
    if let (Value::Int(a), Value::Int(b)) = (a, b)
        && let Some(result) = of_ints(*a, *b)
    {
        return Value::Int(result);
    }
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => Value::float(of_floats(a, b)),
        _ => Value::Null,
    }
}

/// Exact, also where the integer has more digits than a double holds.
fn compare_int_float(int: i64, float: f64) -> Option<Ordering> {
    if float >= TWO_TO_63 {
        return Some(Ordering::Less);
    }
    if float < -TWO_TO_63 {
        return Some(Ordering::Greater);
    }
    let whole = float.trunc();
    match int.cmp(&(whole as i64)) {
        Ordering::Equal => 0.0.partial_cmp(&(float - whole)),
        unequal => Some(unequal),
    }
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_doubles_compare_exactly() {
        let big = i64::MAX;
        assert_eq!(
            Value::Int(big).compare(&Value::Float(TWO_TO_63)),
            Some(Ordering::Less)
        );
        assert_eq!(
            Value::Float(-1e300).compare(&Value::Int(i64::MIN)),
            Some(Ordering::Less)
        );
        assert_eq!(
            Value::Int(-1).compare(&Value::Float(-1.5)),
            Some(Ordering::Greater)
        );
        assert_eq!(
            Value::Int(2).compare(&Value::Float(2.0)),
            Some(Ordering::Equal)
        );
        assert_eq!(Value::Int(2).compare(&Value::text("2")), None);
    }

    #[test]
    fn what_json_cannot_write_is_null() {
        assert_eq!(Value::Int(1).divide(&Value::Int(0)), Value::Null);
        assert_eq!(Value::Float(1e308).multiply(&Value::Int(10)), Value::Null);
        assert_eq!(
            Value::Int(i64::MAX).add(&Value::Int(1)),
            Value::Float(TWO_TO_63)
        );
        assert_eq!(
            Value::Int(i64::MIN).remainder(&Value::Int(-1)),
            Value::Int(0)
        );
        assert_eq!(parse_number("1e999"), Value::Null);
    }
}
