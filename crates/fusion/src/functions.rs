//! The scalar functions, in one table that the front ends look up.
//!
//! A null argument gives null, and so does one of a type that the function does not take.
//! `coalesce`, `concat` and `case` are no functions but operators: they evaluate lazily.

mod java;
mod numbers;
mod texts;
mod times;
pub mod user;

pub use java::{PATTERN_TEXT, TO_TEXT, java_function};

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

/// Every scalar function, in the order of the alphabet.
pub const SCALAR_FUNCTIONS: &[ScalarFunction] = &[
    entry("abs", 1, 1, "abs(number)", numbers::abs),
    entry("acos", 1, 1, "acos(number)", numbers::acos),
    entry("asin", 1, 1, "asin(number)", numbers::asin),
    entry("atan", 1, 1, "atan(number)", numbers::atan),
    entry("atan2", 2, 2, "atan2(y, x)", numbers::atan2),
    entry("ceil", 1, 1, "ceil(number)", numbers::ceil),
    entry("contains", 2, 2, "contains(text, part)", texts::contains),
    entry("cos", 1, 1, "cos(radians)", numbers::cos),
    entry("day", 1, 1, "day(time)", times::day),
    entry(
        "day_of_week",
        1,
        1,
        "day_of_week(time): 1 is Sunday",
        times::day_of_week,
    ),
    entry("ends_with", 2, 2, "ends_with(text, end)", texts::ends_with),
    entry("exp", 1, 1, "exp(number)", numbers::exp),
    entry("floor", 1, 1, "floor(number)", numbers::floor),
    entry(
        "format_time",
        1,
        1,
        "format_time(milliseconds)",
        times::format_time,
    ),
    entry(
        "greatest",
        2,
        3,
        "greatest(a, b) or greatest(a, b, c)",
        numbers::greatest,
    ),
    entry("hour", 1, 1, "hour(time)", times::hour),
    entry(
        "index_of",
        2,
        2,
        "index_of(text, part): from 0, -1 for none",
        texts::index_of,
    ),
    entry(
        "least",
        2,
        3,
        "least(a, b) or least(a, b, c)",
        numbers::least,
    ),
    entry("left", 2, 2, "left(text, characters)", texts::left),
    entry("length", 1, 1, "length(text)", texts::length),
    entry("ln", 1, 1, "ln(number)", numbers::ln),
    entry("log10", 1, 1, "log10(number)", numbers::log10),
    entry("lower", 1, 1, "lower(text)", texts::lower),
    entry("ltrim", 1, 1, "ltrim(text)", texts::ltrim),
    entry("minute", 1, 1, "minute(time)", times::minute),
    entry("month", 1, 1, "month(time)", times::month),
    entry("nullif", 2, 2, "nullif(value, other)", nullif),
    entry(
        "parse_time",
        1,
        1,
        "parse_time(text by RFC 3339)",
        times::parse_time,
    ),
    entry("power", 2, 2, "power(base, exponent)", numbers::power),
    entry("replace", 3, 3, "replace(text, part, by)", texts::replace),
    entry("right", 2, 2, "right(text, characters)", texts::right),
    entry(
        "round",
        1,
        2,
        "round(number) or round(number, decimals)",
        numbers::round,
    ),
    entry("rtrim", 1, 1, "rtrim(text)", texts::rtrim),
    entry("second", 1, 1, "second(time)", times::second),
    entry("sign", 1, 1, "sign(number)", numbers::sign),
    entry("sin", 1, 1, "sin(radians)", numbers::sin),
    entry(
        "slice",
        2,
        3,
        "slice(text, from[, to]): places from 0",
        texts::slice,
    ),
    entry(
        "split_part",
        3,
        3,
        "split_part(text, sign, number from 1)",
        texts::split_part,
    ),
    entry("sqrt", 1, 1, "sqrt(number)", numbers::sqrt),
    entry(
        "starts_with",
        2,
        2,
        "starts_with(text, beginning)",
        texts::starts_with,
    ),
    entry(
        "substring",
        2,
        3,
        "substring(text, from[, characters]): places from 1",
        texts::substring,
    ),
    entry("tan", 1, 1, "tan(radians)", numbers::tan),
    entry("trim", 1, 1, "trim(text)", texts::trim),
    entry("trunc", 1, 1, "trunc(number)", numbers::trunc),
    entry("upper", 1, 1, "upper(text)", texts::upper),
    entry("year", 1, 1, "year(time)", times::year),
];

const fn entry(
    name: &'static str,
    least: usize,
    most: usize,
    usage: &'static str,
    run: for<'a> fn(&mut [Value<'a>]) -> Value<'a>,
) -> ScalarFunction {
    ScalarFunction {
        name,
        arguments: (least, most),
        usage,
        run,
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

#[cfg(test)]
mod tests;
