//! Rows as records.
//!
//! Numbers are numbers where these are exact, JSON is what it says, bytes are Base64, and everything
//! else is the text that the database writes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sqlx::mysql::MySqlRow;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Column, Row, TypeInfo, ValueRef};

use crate::json::{Fields, Json};

/// A row of PostgreSQL, whose values came as texts.
pub(super) fn of_postgres(row: &PgRow) -> Result<Fields, sqlx::Error> {
    let mut fields = Fields::default();
    for (index, column) in row.columns().iter().enumerate() {
        let text: Option<&str> = row.try_get_unchecked(index)?;
        let value = match (text, column.type_info().name()) {
            (None, _) => Json::Null,
            (Some("t"), "BOOL") => Json::Flag(true),
            (Some("f"), "BOOL") => Json::Flag(false),
            (Some(text), "INT2" | "INT4" | "INT8" | "OID" | "FLOAT4" | "FLOAT8" | "NUMERIC") => {
                number(text)
            }
            (Some(text), "JSON" | "JSONB") => document(text),
            (Some(text), "BYTEA") => bytea(text),
            (Some(text), _) => Json::Text(text.to_owned()),
        };
        fields.set(column.name(), value);
    }
    Ok(fields)
}

/// A row of MySQL, whose values came as texts.
pub(super) fn of_mysql(row: &MySqlRow) -> Result<Fields, sqlx::Error> {
    let mut fields = Fields::default();
    for (index, column) in row.columns().iter().enumerate() {
        let bytes: Option<&[u8]> = row.try_get_unchecked(index)?;
        let kind = column.type_info().name();
        let value = match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
            None => Json::Null,
            Some((bytes, _)) if kind.ends_with("BLOB") || kind.ends_with("BINARY") => {
                Json::Text(STANDARD.encode(bytes))
            }
            Some((bytes, Err(_))) => Json::Text(STANDARD.encode(bytes)),
            Some((_, Ok(text))) if is_mysql_number(kind) => number(text),
            Some((_, Ok(text))) if kind == "JSON" => document(text),
            Some((_, Ok(text))) => Json::Text(text.to_owned()),
        };
        fields.set(column.name(), value);
    }
    Ok(fields)
}

/// A row of SQLite, whose values have kinds of their own.
pub(super) fn of_sqlite(row: &SqliteRow) -> Result<Fields, sqlx::Error> {
    let mut fields = Fields::default();
    for (index, column) in row.columns().iter().enumerate() {
        let raw = row.try_get_raw(index)?;
        let value = if raw.is_null() {
            Json::Null
        } else {
            match raw.type_info().name() {
                "INTEGER" => Json::Whole(row.try_get_unchecked(index)?),
                "REAL" => Json::Fraction(row.try_get_unchecked(index)?),
                "BLOB" => {
                    let bytes: &[u8] = row.try_get_unchecked(index)?;
                    Json::Text(STANDARD.encode(bytes))
                }
                _ => {
                    let text: String = row.try_get_unchecked(index)?;
                    Json::Text(text)
                }
            }
        };
        fields.set(column.name(), value);
    }
    Ok(fields)
}

fn is_mysql_number(kind: &str) -> bool {
    let kind = kind.trim_end_matches(" UNSIGNED");
    matches!(
        kind,
        "BOOLEAN"
            | "TINYINT"
            | "SMALLINT"
            | "MEDIUMINT"
            | "INT"
            | "BIGINT"
            | "YEAR"
            | "FLOAT"
            | "DOUBLE"
            | "DECIMAL"
    )
}

/// A number where it is exact: a decimal with more digits than an f64 holds stays a text, and so
/// does what is no number of JSON.
fn number(text: &str) -> Json {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let is_whole = !text.contains(['.', 'e', 'E']);
    match Json::parse(text) {
        Ok(number @ (Json::Whole(_) | Json::Large(_))) if is_whole => number,
        Ok(number @ Json::Fraction(_)) if digits <= FRACTION_DIGITS_MAX && !is_whole => number,
        _ => Json::Text(text.to_owned()),
    }
}

fn document(text: &str) -> Json {
    Json::parse(text).unwrap_or_else(|_| Json::Text(text.to_owned()))
}

/// PostgreSQL's hexadecimal bytes as Base64.
fn bytea(text: &str) -> Json {
    let digits = text.strip_prefix("\\x").unwrap_or_default().as_bytes();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    match bytes.filter(|_| text.starts_with("\\x")) {
        Some(bytes) => Json::Text(STANDARD.encode(bytes)),
        None => Json::Text(text.to_owned()),
    }
}

/// Digits that PostgreSQL and MySQL write of a double, an exponent's counted in.
const FRACTION_DIGITS_MAX: usize = 20;
