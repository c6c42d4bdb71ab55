//! Functions of EPL that give what Java's of their names give, where SQL's differ. Statements reach
//! them by methods and operators only: their names are none of the table that statements look up.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::{ScalarFunction, entry, times};
use crate::value::Value;

/// The function of that name.
pub fn java_function(name: &str) -> Option<&'static ScalarFunction> {
    JAVA_FUNCTIONS.iter().find(|function| function.name == name)
}

/// Half goes up; what 64 bits do not hold is the nearest that they do.
fn round<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match arguments[0] {
        Value::Int(number) => Value::Int(number),
        Value::Float(number) => {
            let floor = number.floor();
            let is_up = number - floor >= 0.5;
            Value::Int((if is_up { floor + 1.0 } else { floor }) as i64)
        }
        _ => Value::Null,
    }
}

/// A calendar's month: 0 is January.
fn month<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match times::month(arguments) {
        Value::Int(month) => Value::Int(month - 1),
        other => other,
    }
}

/// Nothing equals null, and values of different kinds are not equal.
fn equals<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    if arguments[0].is_null() {
        return Value::Null;
    }
    Value::Bool(arguments[0].compare(&arguments[1]) == Some(Ordering::Equal))
}

/// As [`equals`], of texts, whose letters may be large or small.
fn equals_ignoring_case<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    let [Value::Text(text), other] = arguments else {
        return Value::Null;
    };
    let Value::Text(other) = other else {
        return Value::Bool(false);
    };
    let small = |text: &str| {
        text.chars()
            .flat_map(char::to_lowercase)
            .collect::<String>()
    };
    Value::Bool(small(text) == small(other))
}

/// From 0, of the last such part; -1 when the text does not have it.
fn last_index<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match arguments {
        [Value::Text(text), Value::Text(part)] => match text.rfind(part.as_ref()) {
            Some(bytes) => Value::Int(text[..bytes].chars().count() as i64),
            None => Value::Int(-1),
        },
        _ => Value::Null,
    }
}

/// Any value as a text.
fn to_text<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match std::mem::replace(&mut arguments[0], Value::Null) {
        value @ (Value::Null | Value::Text(_)) => value,
        Value::Float(number) => Value::Text(Cow::Owned(double_text(number))),
        Value::Json(text) => Value::Text(text),
        other => match other.to_text() {
            Some(text) => Value::Text(Cow::Owned(text.into_owned())),
            None => Value::Null,
        },
    }
}

/// A text or number as a text, for patterns.
fn pattern_text<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match arguments[0] {
        Value::Bool(_) | Value::Json(_) => Value::Null,
        _ => to_text(arguments),
    }
}

/// A double as Java writes it: with an exponent below a thousandth and from ten million on.
fn double_text(number: f64) -> String {
    let size = number.abs();
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned();
    }
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        return format!("{number:?}");
    }
    let text = format!("{number:E}");
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}

const JAVA_FUNCTIONS: &[ScalarFunction] = &[
    entry("java equals", 2, 2, "a.equals(b)", equals),
    entry(
        "java equals ignoring case",
        2,
        2,
        "a.equalsIgnoreCase(b)",
        equals_ignoring_case,
    ),
    entry("java last index", 2, 2, "a.lastIndexOf(b)", last_index),
    entry("java month", 1, 1, "time.getMonthOfYear()", month),
    entry(PATTERN_TEXT, 1, 1, "value like 'a%'", pattern_text),
    entry("java round", 1, 1, "Math.round(number)", round),
    entry(TO_TEXT, 1, 1, "value.toString()", to_text),
];

/// The function that makes any value a text.
pub const TO_TEXT: &str = "java text";
/// The function that makes what a pattern is held against a text.
pub const PATTERN_TEXT: &str = "java pattern text";
