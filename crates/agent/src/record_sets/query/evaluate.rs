//! Evaluating expressions over a row: nothing (null) makes most of them nothing.

use std::cmp::Ordering;

use super::functions;
use super::plan::{Expr, Kind, Operator};
use crate::json::{self, Fields, Json};
use crate::record_sets::infer;

/// What an expression sees.
#[derive(Clone, Copy)]
pub(super) struct Row<'r> {
    pub(super) record: &'r Fields,
    pub(super) aggregates: &'r [Json],
    /// The values of the result's row, for what is sorted by them.
    pub(super) outputs: &'r [Json],
}

impl<'r> Row<'r> {
    /// A record by itself.
    pub(super) fn of(record: &'r Fields) -> Self {
        Row {
            record,
            aggregates: &[],
            outputs: &[],
        }
    }
}

impl Expr {
    /// Its value; the error says what it cannot be made of.
    pub(super) fn evaluate(&self, row: Row<'_>) -> Result<Json, String> {
        match self {
            Expr::Literal(value) => Ok(value.clone()),
            Expr::Field(path) => Ok(field(row.record, path).cloned().unwrap_or_default()),
            Expr::Aggregate(index) => Ok(row.aggregates.get(*index).cloned().unwrap_or_default()),
            Expr::Output(index) => Ok(row.outputs.get(*index).cloned().unwrap_or_default()),
            Expr::Not(inner) => Ok(match inner.evaluate(row)? {
                Json::Flag(flag) => Json::Flag(!flag),
                _ => Json::Null,
            }),
            Expr::Negate(inner) => {
                let inner = inner.evaluate(row)?;
                arithmetic(&Json::Whole(0), Operator::Minus, &inner)
            }
            Expr::Binary(left, operator, right) => binary(left, *operator, right, row),
            Expr::IsNull(inner, is_negated) => {
                let is_null = inner.evaluate(row)? == Json::Null;
                Ok(Json::Flag(is_null != *is_negated))
            }
            Expr::IsFlag(inner, flag, is_negated) => {
                let is_so = inner.evaluate(row)? == Json::Flag(*flag);
                Ok(Json::Flag(is_so != *is_negated))
            }
            Expr::In(inner, list, is_negated) => {
                let value = inner.evaluate(row)?;
                let mut has_null = value == Json::Null;
                for item in list {
                    match compare(&value, &item.evaluate(row)?) {
                        Some(Ordering::Equal) => return Ok(Json::Flag(!is_negated)),
                        Some(_) => {}
                        None => has_null = true,
                    }
                }
                Ok(if has_null {
                    Json::Null
                } else {
                    Json::Flag(*is_negated)
                })
            }
            Expr::Like(inner, pattern, is_negated) => {
                let (value, pattern) = (inner.evaluate(row)?, pattern.evaluate(row)?);
                if value == Json::Null || pattern == Json::Null {
                    return Ok(Json::Null);
                }
                let is_like = functions::like(&value.to_plain(), &pattern.to_plain());
                Ok(Json::Flag(is_like != *is_negated))
            }
            Expr::Case(conditions, otherwise) => {
                for (condition, result) in conditions {
                    if is_true(&condition.evaluate(row)?) {
                        return result.evaluate(row);
                    }
                }
                match otherwise {
                    Some(otherwise) => otherwise.evaluate(row),
                    None => Ok(Json::Null),
                }
            }
            Expr::Cast(inner, kind) => cast(inner.evaluate(row)?, *kind),
            Expr::Call(function, arguments) => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(argument.evaluate(row)?);
                }
                (function.run)(values).map_err(|why| format!("{}: {why}", function.name))
            }
        }
    }
}

/// Whether a condition holds.
pub(super) fn is_true(value: &Json) -> bool {
    *value == Json::Flag(true)
}

/// How values stand when they are sorted: numbers, texts, true and false, the rest.
pub(super) fn total_order(left: &Json, right: &Json) -> Ordering {
    let rank = |value: &Json| match value {
        Json::Null => 0,
        Json::Whole(_) | Json::Large(_) | Json::Fraction(_) => 1,
        Json::Text(_) => 2,
        Json::Flag(_) => 3,
        Json::List(_) | Json::Object(_) => 4,
    };
    json::order(left, right)
        .unwrap_or_else(|| rank(left).cmp(&rank(right)))
        .then_with(|| match rank(left) {
            4 if rank(right) == 4 => left.to_text().cmp(&right.to_text()),
            _ => Ordering::Equal,
        })
}

/// The number that a value is or writes.
pub(super) fn number_of(value: &Json) -> Result<Json, String> {
    match value {
        Json::Whole(_) | Json::Large(_) | Json::Fraction(_) => Ok(value.clone()),
        Json::Text(text) => match infer::value(text.trim().to_owned()) {
            number @ (Json::Whole(_) | Json::Large(_) | Json::Fraction(_)) => Ok(number),
            _ => Err(format!("'{text}' is no number")),
        },
        other => Err(format!("{} is no number", other.to_text())),
    }
}

fn field<'r>(record: &'r Fields, path: &[String]) -> Option<&'r Json> {
    let (first, rest) = path.split_first()?;
    let found = record.get(first).or_else(|| {
        let mut all = record.iter();
        all.find(|(name, _)| name.eq_ignore_ascii_case(first))
            .map(|(_, value)| value)
    })?;
    match (rest, found) {
        ([], _) => Some(found),
        (_, Json::Object(fields)) => field(fields, rest),
        _ => None,
    }
}

fn binary(left: &Expr, operator: Operator, right: &Expr, row: Row<'_>) -> Result<Json, String> {
    let left = left.evaluate(row)?;
    // What decides alone does so whatever the other side is.
    match (operator, &left) {
        (Operator::And, Json::Flag(false)) | (Operator::Or, Json::Flag(true)) => return Ok(left),
        _ => {}
    }
    let right = right.evaluate(row)?;
    let ordered = |holds: fn(Ordering) -> bool| {
        let order = compare(&left, &right);
        Ok(order.map_or(Json::Null, |order| Json::Flag(holds(order))))
    };
    match operator {
        Operator::And | Operator::Or => Ok(match (&left, &right) {
            (Json::Flag(_), Json::Flag(flag)) => Json::Flag(*flag),
            (_, Json::Flag(flag)) if *flag == (operator == Operator::Or) => Json::Flag(*flag),
            _ => Json::Null,
        }),
        Operator::Equal => ordered(Ordering::is_eq),
        Operator::Unequal => ordered(Ordering::is_ne),
        Operator::Less => ordered(Ordering::is_lt),
        Operator::LessOrEqual => ordered(Ordering::is_le),
        Operator::Greater => ordered(Ordering::is_gt),
        Operator::GreaterOrEqual => ordered(Ordering::is_ge),
        Operator::Concat if left == Json::Null || right == Json::Null => Ok(Json::Null),
        Operator::Concat => Ok(Json::Text(left.to_plain() + &right.to_plain())),
        _ => arithmetic(&left, operator, &right),
    }
}

/// How two values compare; a text beside a number is read as one.
fn compare(left: &Json, right: &Json) -> Option<Ordering> {
    if *left == Json::Null || *right == Json::Null {
        return None;
    }
    json::order(left, right).or_else(|| match (left, right) {
        (Json::Text(_), _) if !right.is_scalar() => Some(Ordering::Less),
        (Json::Text(_), Json::Flag(_)) | (Json::Flag(_), Json::Text(_)) => {
            Some(left.to_plain().cmp(&right.to_plain()))
        }
        (Json::Text(_), _) => json::order(&number_of(left).ok()?, right),
        (_, Json::Text(_)) => json::order(left, &number_of(right).ok()?),
        _ => Some(total_order(left, right)),
    })
}

fn arithmetic(left: &Json, operator: Operator, right: &Json) -> Result<Json, String> {
    if *left == Json::Null || *right == Json::Null {
        return Ok(Json::Null);
    }
    let (left, right) = (number_of(left)?, number_of(right)?);
    let is_zero = matches!(&right, Json::Whole(0)) || fraction(&right) == 0.0;
    if is_zero && matches!(operator, Operator::Divide | Operator::Modulo) {
        return Err("division by zero".to_owned());
    }
    if let (Json::Whole(a), Json::Whole(b)) = (&left, &right) {
        let result = match operator {
            Operator::Plus => a.checked_add(*b),
            Operator::Minus => a.checked_sub(*b),
            Operator::Multiply => a.checked_mul(*b),
            Operator::Divide => a.checked_div(*b),
            _ => a.checked_rem(*b),
        };
        let beyond = || format!("{a} and {b} have no result in 64 bits");
        return result.map(Json::Whole).ok_or_else(beyond);
    }
    let (a, b) = (fraction(&left), fraction(&right));
    let result = match operator {
        Operator::Plus => a + b,
        Operator::Minus => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        _ => a % b,
    };
    if result.is_finite() {
        return Ok(Json::Fraction(result));
    }
    Err(format!("{a} and {b} have no result"))
}

/// A number as a fraction; what is none has been refused before.
pub(super) fn fraction(value: &Json) -> f64 {
    value.fraction().unwrap_or(f64::NAN)
}

/// A fraction as a whole number, cut at its point.
pub(super) fn whole(value: f64) -> Result<Json, String> {
    // Both bounds are exact in 64-bit floating point; the upper one is out of range.
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) {
        return Ok(Json::Whole(value as i64));
    }
    Err(format!("{value} is beyond 64 bits"))
}

fn cast(value: Json, kind: Kind) -> Result<Json, String> {
    if value == Json::Null {
        return Ok(Json::Null);
    }
    match kind {
        Kind::Text => Ok(Json::Text(value.to_plain())),
        Kind::Whole => match number_of(&value)? {
            Json::Fraction(number) => whole(number),
            number => Ok(number),
        },
        Kind::Fraction => Ok(Json::Fraction(fraction(&number_of(&value)?))),
        Kind::Flag => match value.to_plain().to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(Json::Flag(true)),
            "false" | "0" => Ok(Json::Flag(false)),
            other => Err(format!("'{other}' is neither true nor false")),
        },
    }
}
