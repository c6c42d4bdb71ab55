//! Functions of texts. Places and lengths count characters, not bytes.

use std::borrow::Cow;

use crate::limits::ROW_BYTES_MAX;
use crate::value::Value;

/// Characters, not bytes.
pub(super) fn length<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match &arguments[0] {
        Value::Text(text) => i64::try_from(text.chars().count()).map_or(Value::Null, Value::Int),
        _ => Value::Null,
    }
}

pub(super) fn lower<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
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

pub(super) fn upper<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
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

pub(super) fn trim<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    part_of(&mut arguments[0], |text| text.trim())
}

pub(super) fn ltrim<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    part_of(&mut arguments[0], |text| text.trim_start())
}

pub(super) fn rtrim<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    part_of(&mut arguments[0], |text| text.trim_end())
}

pub(super) fn contains<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_two(arguments, |text, part| Value::Bool(text.contains(part)))
}

pub(super) fn starts_with<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_two(arguments, |text, part| Value::Bool(text.starts_with(part)))
}

pub(super) fn ends_with<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_two(arguments, |text, part| Value::Bool(text.ends_with(part)))
}

/// From 0; -1 when the text does not have the part.
pub(super) fn index_of<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    of_two(arguments, |text, part| match text.find(part) {
        Some(bytes) => Value::Int(text[..bytes].chars().count() as i64),
        None => Value::Int(-1),
    })
}

pub(super) fn replace<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    let [Value::Text(text), Value::Text(part), Value::Text(by)] = arguments else {
        return Value::Null;
    };
    // What cannot be a row is not built.
    let count = text.matches(part.as_ref()).count();
    if text.len().saturating_add(count.saturating_mul(by.len())) > ROW_BYTES_MAX {
        return Value::Null;
    }
    Value::Text(Cow::Owned(text.replace(part.as_ref(), by)))
}

/// Places from 0, the end not included; null where they lie outside.
pub(super) fn slice<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    let Value::Int(from) = arguments[1] else {
        return Value::Null;
    };
    let length = match &arguments[0] {
        Value::Text(text) => text.chars().count() as i64,
        _ => return Value::Null,
    };
    let to = match arguments.get(2) {
        None => length,
        Some(Value::Int(to)) => *to,
        Some(_) => return Value::Null,
    };
    if from < 0 || from > to || to > length {
        return Value::Null;
    }
    part_of(&mut arguments[0], |text| {
        characters(text, from as usize, (to - from) as usize)
    })
}

/// Places from 1; what lies outside the text is left out.
pub(super) fn substring<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    let Value::Int(from) = arguments[1] else {
        return Value::Null;
    };
    let end = match arguments.get(2) {
        None => i64::MAX,
        Some(Value::Int(count)) if *count >= 0 => from.saturating_add(*count),
        Some(_) => return Value::Null,
    };
    let start = from.max(1);
    let count = end.saturating_sub(start).max(0);
    part_of(&mut arguments[0], |text| {
        characters(text, (start - 1) as usize, count as usize)
    })
}

pub(super) fn left<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match arguments[1] {
        Value::Int(count) if count >= 0 => part_of(&mut arguments[0], |text| {
            characters(text, 0, count as usize)
        }),
        _ => Value::Null,
    }
}

pub(super) fn right<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    match arguments[1] {
        Value::Int(count) if count >= 0 => part_of(&mut arguments[0], |text| {
            let skipped = text.chars().count().saturating_sub(count as usize);
            characters(text, skipped, count as usize)
        }),
        _ => Value::Null,
    }
}

/// Parts from 1; an empty text where there is no such part.
pub(super) fn split_part<'a>(arguments: &mut [Value<'a>]) -> Value<'a> {
    let (Value::Text(sign), Value::Int(number)) = (arguments[1].clone(), &arguments[2]) else {
        return Value::Null;
    };
    let number = *number;
    if number < 1 || sign.is_empty() {
        return Value::Null;
    }
    part_of(&mut arguments[0], |text| {
        text.split(sign.as_ref())
            .nth((number - 1) as usize)
            .unwrap_or("")
    })
}

/// So many characters from a place on.
fn characters(text: &str, from: usize, count: usize) -> &str {
    let mut places = text.char_indices().map(|(place, _)| place);
    let Some(start) = places.nth(from) else {
        return "";
    };
    if count == 0 {
        return "";
    }
    let end = places.nth(count - 1).unwrap_or(text.len());
    &text[start..end]
}

/// A part of a text: borrowed where the text is.
fn part_of<'a>(value: &mut Value<'a>, of: impl for<'t> FnOnce(&'t str) -> &'t str) -> Value<'a> {
    match std::mem::replace(value, Value::Null) {
        Value::Text(Cow::Borrowed(text)) => Value::text(of(text)),
        Value::Text(Cow::Owned(text)) => Value::Text(Cow::Owned(of(&text).to_owned())),
        _ => Value::Null,
    }
}

fn of_two<'a>(arguments: &[Value<'a>], of: fn(&str, &str) -> Value<'a>) -> Value<'a> {
    match arguments {
        [Value::Text(text), Value::Text(part)] => of(text, part),
        _ => Value::Null,
    }
}
