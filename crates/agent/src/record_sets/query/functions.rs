//! Functions of one row, as data in one table.

use super::evaluate::{fraction, number_of, whole};
use crate::json::{Json, Path};

/// A function of SQL.
#[derive(Debug)]
pub(super) struct Function {
    /// In lower case.
    pub(super) name: &'static str,
    /// Least and most arguments.
    pub(super) arguments: (usize, usize),
    pub(super) run: fn(Vec<Json>) -> Result<Json, String>,
}

/// The function of this name, in lower case.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

const FUNCTIONS: &[Function] = &[
    of("upper", 1, 1, |values| {
        text(values, |text| text.to_uppercase())
    }),
    of("lower", 1, 1, |values| {
        text(values, |text| text.to_lowercase())
    }),
    of("trim", 1, 1, |values| {
        text(values, |text| text.trim().to_owned())
    }),
    of("ltrim", 1, 1, |values| {
        text(values, |text| text.trim_start().to_owned())
    }),
    of("rtrim", 1, 1, |values| {
        text(values, |text| text.trim_end().to_owned())
    }),
    of("reverse", 1, 1, |values| {
        text(values, |text| text.chars().rev().collect())
    }),
    of("length", 1, 1, length),
    of("char_length", 1, 1, length),
    of("character_length", 1, 1, length),
    of("concat", 1, 100, |values| {
        Ok(Json::Text(values.iter().map(Json::to_plain).collect()))
    }),
    of("substring", 2, 3, substring),
    of("substr", 2, 3, substring),
    of("position", 2, 2, |values| match values.as_slice() {
        [Json::Null, _] | [_, Json::Null] => Ok(Json::Null),
        [part, all] => {
            let (part, all) = (part.to_plain(), all.to_plain());
            let at = all.find(&part).map(|at| all[..at].chars().count() + 1);
            Ok(count(at.unwrap_or(0)))
        }
        _ => Ok(Json::Null),
    }),
    of("replace", 3, 3, |values| {
        if values.contains(&Json::Null) {
            return Ok(Json::Null);
        }
        let (all, from) = (values[0].to_plain(), values[1].to_plain());
        if from.is_empty() {
            return Ok(Json::Text(all));
        }
        Ok(Json::Text(all.replace(&from, &values[2].to_plain())))
    }),
    of("coalesce", 1, 100, |values| {
        let mut values = values.into_iter();
        Ok(values
            .find(|value| *value != Json::Null)
            .unwrap_or_default())
    }),
    of("nullif", 2, 2, |mut values| {
        let is_equal = values[0] == values[1];
        Ok(if is_equal {
            Json::Null
        } else {
            values.swap_remove(0)
        })
    }),
    of("abs", 1, 1, |values| match number(&values[0])? {
        Json::Whole(number) => number
            .checked_abs()
            .map(Json::Whole)
            .ok_or_else(|| format!("{number} has no absolute value in 64 bits")),
        Json::Fraction(number) => Ok(Json::Fraction(number.abs())),
        other => Ok(other),
    }),
    of("floor", 1, 1, |values| rounded(&values[0], f64::floor)),
    of("ceil", 1, 1, |values| rounded(&values[0], f64::ceil)),
    of("ceiling", 1, 1, |values| rounded(&values[0], f64::ceil)),
    of("round", 1, 2, |values| {
        let Some(digits) = values.get(1) else {
            return rounded(&values[0], f64::round);
        };
        let (value, digits) = (number(&values[0])?, number(digits)?);
        if value == Json::Null || digits == Json::Null {
            return Ok(Json::Null);
        }
        let factor = 10_f64.powf(fraction(&digits).clamp(-300.0, 300.0));
        Ok(Json::Fraction((fraction(&value) * factor).round() / factor))
    }),
    of("sqrt", 1, 1, |values| match number(&values[0])? {
        Json::Null => Ok(Json::Null),
        value if fraction(&value) < 0.0 => Err("the number is below zero".to_owned()),
        value => Ok(Json::Fraction(fraction(&value).sqrt())),
    }),
    of("power", 2, 2, |values| {
        let (base, exponent) = (number(&values[0])?, number(&values[1])?);
        if base == Json::Null || exponent == Json::Null {
            return Ok(Json::Null);
        }
        let result = fraction(&base).powf(fraction(&exponent));
        if result.is_finite() {
            return Ok(Json::Fraction(result));
        }
        Err("there is no result".to_owned())
    }),
    of("json_value", 2, 2, |values| {
        let path = Path::parse(&values[1].to_plain())?;
        let document = match &values[0] {
            Json::Text(text) => &Json::parse(text)?,
            value => value,
        };
        Ok(path.values(document).into_iter().next().unwrap_or_default())
    }),
];

/// Whether `text` is like `pattern`: `%` is any text, `_` any character.
pub(super) fn like(text: &str, pattern: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let pattern: Vec<char> = pattern.chars().collect();
    let (mut at, mut of) = (0, 0);
    // Where the last `%` stands, and how far the text went with it.
    let mut last: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(of) {
            Some('%') => {
                last = Some((of, at));
                of += 1;
            }
            Some(c) if *c == '_' || *c == text[at] => {
                at += 1;
                of += 1;
            }
            _ => match last {
                Some((any, from)) => {
                    last = Some((any, from + 1));
                    at = from + 1;
                    of = any + 1;
                }
                None => return false,
            },
        }
    }
    pattern[of..].iter().all(|c| *c == '%')
}

const fn of(
    name: &'static str,
    least: usize,
    most: usize,
    run: fn(Vec<Json>) -> Result<Json, String>,
) -> Function {
    Function {
        name,
        arguments: (least, most),
        run,
    }
}

fn text(values: Vec<Json>, change: fn(&str) -> String) -> Result<Json, String> {
    Ok(match &values[0] {
        Json::Null => Json::Null,
        value => Json::Text(change(&value.to_plain())),
    })
}

fn length(values: Vec<Json>) -> Result<Json, String> {
    Ok(match &values[0] {
        Json::Null => Json::Null,
        value => count(value.to_plain().chars().count()),
    })
}

fn substring(values: Vec<Json>) -> Result<Json, String> {
    if values.contains(&Json::Null) {
        return Ok(Json::Null);
    }
    let start = fraction(&number(&values[1])?).trunc();
    let end = match values.get(2) {
        Some(len) => start + fraction(&number(len)?).trunc(),
        None => f64::INFINITY,
    };
    // Characters count from one, and what lies before the first is no part of the text.
    let all = values[0].to_plain();
    let kept = all.chars().enumerate().filter(|(index, _)| {
        let number = (*index + 1) as f64;
        number >= start && number < end
    });
    Ok(Json::Text(kept.map(|(_, c)| c).collect()))
}

fn rounded(value: &Json, round: fn(f64) -> f64) -> Result<Json, String> {
    match number(value)? {
        Json::Fraction(value) => whole(round(value)),
        other => Ok(other),
    }
}

fn number(value: &Json) -> Result<Json, String> {
    match value {
        Json::Null => Ok(Json::Null),
        value => number_of(value),
    }
}

fn count(number: usize) -> Json {
    Json::Whole(i64::try_from(number).unwrap_or(i64::MAX))
}
