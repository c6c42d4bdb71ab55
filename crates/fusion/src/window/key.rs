//! Keys of groups as bytes.

use crate::codec::Decoder;
use crate::value::Value;

/// Appends one value to an encoded key. Numbers that are equal are one key, so a whole double is
/// written as the integer it is.
pub fn encode_key(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0),
        Value::Bool(truth) => out.extend_from_slice(&[1, u8::from(*truth)]),
        Value::Int(number) => {
            out.push(2);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Float(number) if number.trunc() == *number && number.abs() < 9e15 => {
            encode_key(&Value::Int(*number as i64), out);
        }
        Value::Float(number) => {
            out.push(3);
            out.extend_from_slice(&number.to_bits().to_le_bytes());
        }
        Value::Text(text) | Value::Json(text) => {
            out.push(if matches!(value, Value::Text(_)) {
                4
            } else {
                5
            });
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// The values of an encoded key.
pub fn decode_key(key: &[u8]) -> Vec<Value<'_>> {
    let mut from = Decoder::new(key);
    let mut values = Vec::new();
    while let Some(kind) = from.u8() {
        let value = match kind {
            1 => from.u8().map(|truth| Value::Bool(truth != 0)),
            2 => from.i64().map(Value::Int),
            3 => from.f64().map(Value::Float),
            4 => from
                .bytes()
                .and_then(|text| std::str::from_utf8(text).ok())
                .map(Value::text),
            5 => from
                .bytes()
                .and_then(|text| std::str::from_utf8(text).ok())
                .map(|text| Value::Json(text.into())),
            _ => Some(Value::Null),
        };
        values.push(value.unwrap_or(Value::Null));
    }
    values
}
