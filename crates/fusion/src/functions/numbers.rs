//! Functions of numbers. What JSON cannot write (an infinity, no number) is null.

use std::cmp::Ordering;

use crate::value::Value;

pub(super) fn abs<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match &arguments[0] {
        Value::Int(number) if *number < 0 => arguments[0].negate(),
        Value::Int(number) => Value::Int(*number),
        Value::Float(number) => Value::Float(number.abs()),
        _ => Value::Null,
    }
}

pub(super) fn ceil<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_float(&arguments[0], f64::ceil)
}

pub(super) fn floor<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_float(&arguments[0], f64::floor)
}

pub(super) fn power<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match (arguments[0].as_f64(), arguments[1].as_f64()) {
        (Some(base), Some(exponent)) => Value::float(base.powf(exponent)),
        _ => Value::Null,
    }
}

/// Half goes away from zero; an integer stays one.
pub(super) fn round<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    let decimals = match arguments.get(1) {
        None => 0,
        Some(Value::Int(decimals)) => *decimals,
        Some(_) => return Value::Null,
    };
    match &arguments[0] {
        Value::Int(number) if decimals >= 0 => Value::Int(*number),
        Value::Int(number) => round_float(*number as f64, decimals),
        Value::Float(number) => round_float(*number, decimals),
        _ => Value::Null,
    }
}

pub(super) fn sqrt<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match arguments[0].as_f64() {
        Some(number) => Value::float(number.sqrt()),
        None => Value::Null,
    }
}

pub(super) fn sign<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match &arguments[0] {
        Value::Int(number) => Value::Int(number.signum()),
        Value::Float(number) if *number == 0.0 => Value::Int(0),
        Value::Float(number) => Value::Int(if *number > 0.0 { 1 } else { -1 }),
        _ => Value::Null,
    }
}

pub(super) fn trunc<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_float(&arguments[0], f64::trunc)
}

pub(super) fn exp<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_double(&arguments[0], f64::exp)
}

pub(super) fn ln<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_double(&arguments[0], f64::ln)
}

pub(super) fn log10<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_double(&arguments[0], f64::log10)
}

pub(super) fn sin<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_double(&arguments[0], f64::sin)
}

pub(super) fn cos<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_double(&arguments[0], f64::cos)
}

pub(super) fn tan<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_double(&arguments[0], f64::tan)
}

pub(super) fn asin<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_double(&arguments[0], f64::asin)
}

pub(super) fn acos<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_double(&arguments[0], f64::acos)
}

pub(super) fn atan<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_double(&arguments[0], f64::atan)
}

pub(super) fn atan2<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match (arguments[0].as_f64(), arguments[1].as_f64()) {
        (Some(y), Some(x)) => Value::float(y.atan2(x)),
        _ => Value::Null,
    }
}

/// Null when a value is null or they cannot be compared.
pub(super) fn greatest<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    extreme(arguments, Ordering::Greater)
}

/// As [`greatest`].
pub(super) fn least<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    extreme(arguments, Ordering::Less)
}

fn extreme<'a>(arguments: &mut [Value<'a>], wanted: Ordering) -> Value<'a> {
    let mut best = 0;
    for index in 1..arguments.len() {
        match arguments[index].compare(&arguments[best]) {
            None => return Value::Null,
            Some(ordering) if ordering == wanted => best = index,
            Some(_) => {}
        }
    }
    std::mem::replace(&mut arguments[best], Value::Null)
}

fn round_float(number: f64, decimals: i64) -> Value<'static> {
    if decimals > ROUND_DECIMALS_MAX {
        return Value::Float(number);
    }
    let scale = 10f64.powi(i32::try_from(decimals.max(-ROUND_DECIMALS_MAX)).unwrap_or(0));
    let scaled = number * scale;
    if scaled.is_finite() {
        Value::float(scaled.round() / scale)
    } else {
        Value::Float(number)
    }
}

fn of_double<'a>(value: &Value<'a>, of: fn(f64) -> f64) -> Value<'a> {
    value
        .as_f64()
        .map_or(Value::Null, |number| Value::float(of(number)))
}

/// Integers pass unchanged.
fn of_float<'a>(value: &Value<'a>, of: fn(f64) -> f64) -> Value<'a> {
    match value {
        Value::Int(number) => Value::Int(*number),
        Value::Float(number) => Value::float(of(*number)),
        _ => Value::Null,
    }
}

/// Beyond a double's decimals, rounding changes nothing.
const ROUND_DECIMALS_MAX: i64 = 300;
