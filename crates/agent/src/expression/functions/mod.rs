//! The functions, as data in one table.

mod conditions;
mod dates;
mod documents;
mod encodings;
mod entities;
mod hosts;
mod numbers;
mod several;
mod text;

use std::borrow::Cow;

use super::{Frame, Value};
use crate::limits::EXPRESSION_RESULT_BYTES_MAX;
use crate::patterns::Pattern;

pub(super) use several::{End, Kind, Source, end, source};

/// A function of the expression language.
#[derive(Debug)]
pub struct Function {
    /// As flows write it.
    pub name: &'static str,
    /// Whether it stands after a colon.
    pub subject: Subject,
    /// Least and most arguments.
    pub arguments: (usize, usize),
    /// Whether equal input always gives equal output.
    pub pure: bool,
    /// Whether its first argument is a regular expression.
    pub has_pattern: bool,
    pub(super) run: fn(Given<'_>) -> Result<Value, String>,
}

/// Whether a function works on what stands before its colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// It does.
    Needed,
    /// It stands alone.
    None,
    /// Both are allowed.
    Allowed,
}

/// What a function is given.
pub(super) struct Given<'a> {
    pub(super) subject: Value,
    pub(super) arguments: Vec<Value>,
    pub(super) pattern: Option<&'a Pattern>,
    pub(super) frame: Frame<'a>,
}

/// Every function that takes one value at a time, by kind.
pub const FUNCTIONS: &[&[Function]] = &[
    conditions::FUNCTIONS,
    text::FUNCTIONS,
    numbers::FUNCTIONS,
    dates::FUNCTIONS,
    encodings::FUNCTIONS,
    documents::FUNCTIONS,
    hosts::FUNCTIONS,
];

/// The function of this name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS
        .iter()
        .copied()
        .flatten()
        .find(|function| function.name == name)
}

/// The number that `word` writes without quotes.
pub(super) fn literal(word: &str) -> Option<Value> {
    written(word).map(|number| match number {
        Number::Whole(value) => Value::Whole(value),
        Number::Fraction(value) => Value::Fraction(value),
    })
}

/// Compiles the pattern of `function`; `matches` is about the whole text.
pub(super) fn pattern(function: &str, text: &str) -> Result<Pattern, String> {
    match function {
        "matches" => Pattern::whole(text),
        _ => Pattern::new(text),
    }
}

impl Given<'_> {
    fn text(&self) -> String {
        self.subject.clone().into_text()
    }

    fn argument(&mut self, index: usize) -> String {
        std::mem::replace(&mut self.arguments[index], Value::Null).into_text()
    }

    /// An argument that may be left out.
    fn optional(&mut self, index: usize) -> Option<String> {
        (index < self.arguments.len()).then(|| self.argument(index))
    }

    /// The pattern: compiled at load where it is a literal, now where it is computed.
    fn pattern(&mut self, function: &str) -> Result<Cow<'_, Pattern>, String> {
        match self.pattern {
            Some(compiled) => Ok(Cow::Borrowed(compiled)),
            None => pattern(function, &self.argument(0)).map(Cow::Owned),
        }
    }

    fn index(&self, argument: usize) -> Result<usize, String> {
        match number(&self.arguments[argument])? {
            Number::Whole(value) => {
                usize::try_from(value).map_err(|_| format!("{value} is below zero"))
            }
            Number::Fraction(value) => Err(format!("{value} is no whole number")),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Number {
    Whole(i64),
    Fraction(f64),
}

impl Number {
    fn fraction(self) -> f64 {
        match self {
            Number::Whole(value) => value as f64,
            Number::Fraction(value) => value,
        }
    }

    /// Cut at the point.
    fn whole(self) -> Result<i64, String> {
        match self {
            Number::Whole(value) => Ok(value),
            // Both bounds are exact in 64-bit floating point; the upper one is out of range.
            Number::Fraction(value)
                if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) =>
            {
                Ok(value as i64)
            }
            Number::Fraction(value) => Err(format!("{value} is out of range")),
        }
    }
}

fn number(value: &Value) -> Result<Number, String> {
    match value {
        Value::Whole(whole) => Ok(Number::Whole(*whole)),
        Value::Fraction(fraction) => Ok(Number::Fraction(*fraction)),
        Value::Null => Err("a missing attribute is no number".to_owned()),
        Value::Flag(flag) => Err(format!("'{flag}' is no number")),
        Value::Text(text) => written(text).ok_or_else(|| format!("'{text}' is no number")),
    }
}

/// The number that a text writes: decimal, or hexadecimal after `0x`.
fn written(text: &str) -> Option<Number> {
    let text = text.trim();
    if let Ok(whole) = text.parse() {
        return Some(Number::Whole(whole));
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    if let Some(hex) = digits.strip_prefix("0x").or(digits.strip_prefix("0X"))
        && hex.bytes().all(|digit| digit.is_ascii_hexdigit())
    {
        return i64::from_str_radix(&format!("{sign}{hex}"), 16)
            .ok()
            .map(Number::Whole);
    }
    // Rust would also take "inf" and "nan".
    let is_decimal = digits.bytes().any(|byte| byte.is_ascii_digit())
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    let value: f64 = text.parse().ok().filter(|_| is_decimal)?;
    value.is_finite().then_some(Number::Fraction(value))
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Flag(flag) => *flag,
        Value::Text(text) => text.eq_ignore_ascii_case("true"),
        _ => false,
    }
}

fn whole(count: usize) -> Value {
    Value::Whole(i64::try_from(count).unwrap_or(i64::MAX))
}

fn bounded(bytes: usize) -> Result<(), String> {
    if bytes > EXPRESSION_RESULT_BYTES_MAX {
        return Err(format!(
            "the result is longer than {EXPRESSION_RESULT_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

const fn on(
    name: &'static str,
    least: usize,
    most: usize,
    run: fn(Given<'_>) -> Result<Value, String>,
) -> Function {
    let arguments = (least, most);
    Function {
        name,
        subject: Subject::Needed,
        arguments,
        pure: true,
        has_pattern: false,
        run,
    }
}

const fn alone(
    name: &'static str,
    least: usize,
    most: usize,
    run: fn(Given<'_>) -> Result<Value, String>,
) -> Function {
    let arguments = (least, most);
    Function {
        name,
        subject: Subject::None,
        arguments,
        pure: false,
        has_pattern: false,
        run,
    }
}

const fn with_pattern(
    name: &'static str,
    count: usize,
    run: fn(Given<'_>) -> Result<Value, String>,
) -> Function {
    Function {
        has_pattern: true,
        ..on(name, count, count, run)
    }
}

/// More arguments than anyone writes.
const ARGUMENTS_MAX: usize = 100;
