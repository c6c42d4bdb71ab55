//! Values of texts: what CSV and XML have no kinds for.

use crate::json::Json;

/// A number, true or false, where `text` writes one as JSON would; else the text.
pub(super) fn value(text: String) -> Json {
    match text.as_str() {
        "true" => return Json::Flag(true),
        "false" => return Json::Flag(false),
        _ => {}
    }
    let digits = text.strip_prefix('-').unwrap_or(&text);
    // "007" is a name and no number.
    let is_padded = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    let starts = digits
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_digit());
    if !starts || is_padded || text.len() > NUMBER_BYTES_MAX {
        return Json::Text(text);
    }
    if let Ok(number) = text.parse() {
        return Json::Whole(number);
    }
    match serde_json::from_str(&text) {
        Ok(number @ (Json::Large(_) | Json::Fraction(_))) => number,
        _ => Json::Text(text),
    }
}

/// Longer texts of digits are kept as they are, since a number would lose some.
const NUMBER_BYTES_MAX: usize = 24;
