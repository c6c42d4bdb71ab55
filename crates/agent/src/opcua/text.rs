//! Values as content: how one is written and read.
//!
//! | value | content |
//! | --- | --- |
//! | number | its shortest digits that read back to it |
//! | Boolean | `True` or `False` |
//! | text | itself; of a LocalizedText the text without its language, of a QualifiedName the name alone |
//! | ByteString | its bytes |
//! | DateTime | `2026-01-31T12:00:00.250Z` |
//! | a list | a JSON list of such, with `true`, `false` and bytes in Base64 |

use std::str::FromStr;

use base::{UnixMillis, format_rfc3339};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::wire::{Data, Kind, Scalar, Variant};

/// The content for a value; none for types that have no text.
pub(crate) fn text(variant: &Variant) -> Option<Vec<u8>> {
    match &variant.data {
        Data::One(Scalar::Bytes(bytes)) => Some(bytes.clone()),
        Data::One(Scalar::Flag(flag)) => Some(if *flag { "True" } else { "False" }.into()),
        Data::One(value) => plain(value).map(String::into_bytes),
        Data::Many(values) => {
            let items: Option<Vec<String>> = values.iter().map(json).collect();
            Some(format!("[{}]", items?.join(",")).into_bytes())
        }
    }
}

/// The bytes of a value: of numbers their type's, of others those of their texts.
pub(crate) fn size(variant: &Variant) -> usize {
    let of = |value: &Scalar| match value {
        Scalar::Bytes(bytes) => bytes.len(),
        Scalar::Text(text) => variant.kind.width().unwrap_or(text.len()),
        _ => variant.kind.width().unwrap_or_default(),
    };
    match &variant.data {
        Data::One(value) => of(value),
        Data::Many(values) => values.iter().map(of).sum(),
    }
}

/// Reads content as a value of this type.
pub(crate) fn parse(kind: Kind, content: &str) -> Option<Variant> {
    let trimmed = content.trim();
    let value = match kind {
        Kind::BOOLEAN if trimmed.eq_ignore_ascii_case("true") => Scalar::Flag(true),
        Kind::BOOLEAN if trimmed.eq_ignore_ascii_case("false") => Scalar::Flag(false),
        Kind::INT32 => Scalar::Signed(number::<i32>(trimmed)?.into()),
        Kind::UINT32 => Scalar::Unsigned(number::<u32>(trimmed)?.into()),
        Kind::INT64 => Scalar::Signed(number(trimmed)?),
        Kind::UINT64 => Scalar::Unsigned(number(trimmed)?),
        Kind::FLOAT => Scalar::Float(number(trimmed)?),
        Kind::DOUBLE => Scalar::Double(number(trimmed)?),
        Kind::STRING => Scalar::Text(content.to_owned()),
        _ => return None,
    };
    let data = Data::One(value);
    Some(Variant { kind, data })
}

/// Writes a time as `2026-01-31T12:00:00.250Z`.
pub(crate) fn time(steps: i64) -> String {
    format_rfc3339(UnixMillis(steps.div_euclid(STEPS_PER_MS) - EPOCH_MS))
}

/// The steps of 100 ns since 1601 at a time.
pub(super) fn steps(at: UnixMillis) -> i64 {
    (at.0 + EPOCH_MS).saturating_mul(STEPS_PER_MS)
}

fn plain(value: &Scalar) -> Option<String> {
    Some(match value {
        Scalar::Flag(flag) => flag.to_string(),
        Scalar::Signed(number) => number.to_string(),
        Scalar::Unsigned(number) => number.to_string(),
        Scalar::Float(number) => number.to_string(),
        Scalar::Double(number) => number.to_string(),
        Scalar::Text(text) => text.clone(),
        Scalar::Bytes(bytes) => STANDARD.encode(bytes),
        Scalar::Time(steps) => time(*steps),
        Scalar::Opaque => return None,
    })
}

fn json(value: &Scalar) -> Option<String> {
    let text = plain(value)?;
    let is_bare = match value {
        Scalar::Float(number) => number.is_finite(),
        Scalar::Double(number) => number.is_finite(),
        Scalar::Text(_) | Scalar::Bytes(_) | Scalar::Time(_) => false,
        _ => true,
    };
    Some(match is_bare {
        true => text,
        false => serde_json::Value::from(text).to_string(),
    })
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

const STEPS_PER_MS: i64 = 10_000;

/// Milliseconds from 1601 to 1970.
const EPOCH_MS: i64 = 11_644_473_600_000;
