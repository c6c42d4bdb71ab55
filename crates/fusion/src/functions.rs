//! The scalar functions, in one table that the front ends look up.
//!
//! A null argument gives null, and so does one of a type that the function does not take.
//! `coalesce`, `concat` and `case` are no functions but operators: they evaluate lazily.

use std::borrow::Cow;

use crate::value::Value;

/// One function.
#[derive(Debug)]
pub struct ScalarFunction {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Fewest and most arguments.
    pub arguments: (usize, usize),
    /// What to write, for error texts.
    pub usage: &'static str,
    /// Computes the value; the arguments may be taken out of the slice.
    pub run: for<'a> fn(&mut [Value<'a>]) -> Value<'a>,
}

impl PartialEq for ScalarFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// The function of that name, in any case.
pub fn scalar_function(name: &str) -> Option<&'static ScalarFunction> {
    SCALAR_FUNCTIONS
        .iter()
        .find(|function| function.name.eq_ignore_ascii_case(name))
}

/// Most arguments of any function of the table.
pub const ARGUMENTS_MAX: usize = 3;

/// Every scalar function.
pub const SCALAR_FUNCTIONS: &[ScalarFunction] = &[
    ScalarFunction {
        name: "abs",
        arguments: (1, 1),
        usage: "abs(number)",
        run: abs,
    },
    ScalarFunction {
        name: "ceil",
        arguments: (1, 1),
        usage: "ceil(number)",
        run: ceil,
    },
    ScalarFunction {
        name: "floor",
        arguments: (1, 1),
        usage: "floor(number)",
        run: floor,
    },
    ScalarFunction {
        name: "length",
        arguments: (1, 1),
        usage: "length(text)",
        run: length,
    },
    ScalarFunction {
        name: "lower",
        arguments: (1, 1),
        usage: "lower(text)",
        run: lower,
    },
    ScalarFunction {
        name: "nullif",
        arguments: (2, 2),
        usage: "nullif(value, other)",
        run: nullif,
    },
    ScalarFunction {
        name: "power",
        arguments: (2, 2),
        usage: "power(base, exponent)",
        run: power,
    },
    ScalarFunction {
        name: "round",
        arguments: (1, 2),
        usage: "round(number) or round(number, decimals)",
        run: round,
    },
    ScalarFunction {
        name: "sqrt",
        arguments: (1, 1),
        usage: "sqrt(number)",
        run: sqrt,
    },
    ScalarFunction {
        name: "upper",
        arguments: (1, 1),
        usage: "upper(text)",
        run: upper,
    },
];

fn abs<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match &arguments[0] {
        Value::Int(number) if *number < 0 => arguments[0].negate(),
        Value::Int(number) => Value::Int(*number),
        Value::Float(number) => Value::Float(number.abs()),
        _ => Value::Null,
    }
}

fn ceil<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_float(&arguments[0], f64::ceil)
}

fn floor<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_float(&arguments[0], f64::floor)
}

/// Characters, not bytes.
fn length<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match &arguments[0] {
        Value::Text(text) => i64::try_from(text.chars().count()).map_or(Value::Null, Value::Int),
        _ => Value::Null,
    }
}

fn lower<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match std::mem::replace(&mut arguments[0], Value::Null) {
        // Nothing to change: keep borrowing.
        Value::Text(text)
            if text
                .bytes()
                .all(|b| b.is_ascii() && !b.is_ascii_uppercase()) =>
        {
            Value::Text(text)
        }
        Value::Text(text) => Value::Text(Cow::Owned(text.to_lowercase())),
        _ => Value::Null,
    }
}

fn upper<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match std::mem::replace(&mut arguments[0], Value::Null) {
        Value::Text(text)
            if text
                .bytes()
                .all(|b| b.is_ascii() && !b.is_ascii_lowercase()) =>
        {
            Value::Text(text)
        }
        Value::Text(text) => Value::Text(Cow::Owned(text.to_uppercase())),
        _ => Value::Null,
    }
}

fn nullif<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    if arguments[0]
        .compare(&arguments[1])
        .is_some_and(std::cmp::Ordering::is_eq)
    {
        return Value::Null;
    }
    std::mem::replace(&mut arguments[0], Value::Null)
}

fn power<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match (arguments[0].as_f64(), arguments[1].as_f64()) {
        (Some(base), Some(exponent)) => Value::float(base.powf(exponent)),
        _ => Value::Null,
    }
}

/// Half goes away from zero; an integer stays one.
fn round<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
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

fn sqrt<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match arguments[0].as_f64() {
        Some(number) => Value::float(number.sqrt()),
        None => Value::Null,
    }
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
