//! Literals, operators and types of SQL in our words.

use sqlparser::ast::{BinaryOperator, DataType, Value};

use super::plan::{Kind, Operator};
use crate::json::Json;
use crate::record_sets::infer;

/// The value that a literal writes.
pub(super) fn literal(value: Value) -> Result<Json, String> {
    match value {
        Value::Number(text, _) => match infer::value(text) {
            Json::Text(text) => Err(format!("'{text}' is no number")),
            number => Ok(number),
        },
        Value::SingleQuotedString(text) => Ok(Json::Text(text)),
        Value::Boolean(flag) => Ok(Json::Flag(flag)),
        Value::Null => Ok(Json::Null),
        other => Err(unsupported(&other)),
    }
}

/// The operator that is meant.
pub(super) fn operator(operator: &BinaryOperator) -> Result<Operator, String> {
    Ok(match operator {
        BinaryOperator::And => Operator::And,
        BinaryOperator::Or => Operator::Or,
        BinaryOperator::Eq => Operator::Equal,
        BinaryOperator::NotEq => Operator::Unequal,
        BinaryOperator::Lt => Operator::Less,
        BinaryOperator::LtEq => Operator::LessOrEqual,
        BinaryOperator::Gt => Operator::Greater,
        BinaryOperator::GtEq => Operator::GreaterOrEqual,
        BinaryOperator::Plus => Operator::Plus,
        BinaryOperator::Minus => Operator::Minus,
        BinaryOperator::Multiply => Operator::Multiply,
        BinaryOperator::Divide => Operator::Divide,
        BinaryOperator::Modulo => Operator::Modulo,
        BinaryOperator::StringConcat => Operator::Concat,
        other => return Err(unsupported(other)),
    })
}

/// What a type of SQL is among the kinds that records have.
pub(super) fn kind(data_type: &DataType) -> Result<Kind, String> {
    let text = data_type.to_string().to_ascii_lowercase();
    let word = text.split(['(', ' ']).next().unwrap_or_default();
    match word {
        "varchar" | "char" | "character" | "text" | "string" | "nvarchar" => Ok(Kind::Text),
        "int" | "integer" | "bigint" | "smallint" | "tinyint" | "long" => Ok(Kind::Whole),
        "double" | "float" | "real" | "decimal" | "numeric" => Ok(Kind::Fraction),
        "boolean" | "bool" => Ok(Kind::Flag),
        _ => Err(format!("a cast to {text} is not supported")),
    }
}

/// Says that something is not supported, by its text.
pub(super) fn unsupported(what: &dyn std::fmt::Display) -> String {
    const SHOWN: usize = 100;
    let text: String = what.to_string().chars().take(SHOWN).collect();
    format!("'{text}' is not supported")
}
