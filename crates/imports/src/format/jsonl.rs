//! JSON Lines: one JSON value per line, taken as it stands.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{BYTE_ORDER_MARK, Framed};

/// Finds the first line of `buffer`; an empty one is no record, but has a number, as in an editor.
/// Files that were put together of others have byte order marks in between.
pub(super) fn frame(buffer: &[u8], last: bool) -> Framed<'_> {
    let end = match memchr::memchr(b'\n', buffer) {
        Some(end) => end + 1,
        None if last && buffer.is_empty() => return Framed::End,
        None if last => buffer.len(),
        None => return Framed::Incomplete,
    };
    let line = &buffer[..end];
    let before = match line.starts_with(BYTE_ORDER_MARK) {
        true => BYTE_ORDER_MARK.len(),
        false => 0,
    };
    if line[before..].trim_ascii().is_empty() {
        return Framed::Blank {
            len: end,
            counts: true,
        };
    }
    Framed::Record {
        before,
        bytes: &line[before..],
        note: None,
    }
}

/// A line's text without the blanks around it.
///
/// # Errors
/// A sentence that says where it is not UTF-8.
pub(super) fn text(line: &[u8]) -> Result<&str, Cow<'static, str>> {
    let line = line.trim_ascii();
    str::from_utf8(line).map_err(|error| {
        let at = error.valid_up_to();
        format!("the line is not UTF-8 from its byte {at}").into()
    })
}

/// What a line says that the sink needs.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct LineFacts {
    /// The value of the key field, when one was asked for.
    pub key: Option<String>,
    /// The value of a top-level `title` that is text.
    pub title: Option<String>,
}

/// Reads one line: checks that it is JSON and takes the key field's value.
///
/// # Errors
/// A sentence that says why the line is no record.
pub(crate) fn facts(text: &str, key_field: Option<&str>) -> Result<LineFacts, String> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let facts = Line { key_field }
        .deserialize(&mut deserializer)
        .and_then(|facts| deserializer.end().map(|()| facts))
        .map_err(|error| format!("the line is not JSON: {error}"))?;
    match key_field {
        Some(field) if facts.key.as_deref().is_none_or(str::is_empty) => Err(format!(
            "the line has no field '{field}' with text or a number in it"
        )),
        _ => Ok(facts),
    }
}

struct Line<'k> {
    key_field: Option<&'k str>,
}

impl<'de> DeserializeSeed<'de> for Line<'_> {
    type Value = LineFacts;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<LineFacts, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Line<'_> {
    type Value = LineFacts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LineFacts, A::Error> {
        let mut facts = LineFacts::default();
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let is_key = self.key_field == Some(&*name);
            let is_title = name == "title";
            if !is_key && !is_title {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let Scalar(text) = map.next_value()?;
            if is_key {
                facts.key.clone_from(&text);
            }
            if is_title {
                facts.title = text;
            }
        }
        Ok(facts)
    }
}

/// Text, or a number's or truth value's text; nothing for other values.
struct Scalar(Option<String>);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The raw text keeps a number as it was written, however many digits it has.
        let raw = <&serde_json::value::RawValue>::deserialize(deserializer)?.get();
        Ok(Scalar(match raw.as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw).ok(),
            Some(b'{' | b'[' | b'n') | None => None,
            Some(_) => Some(raw.to_owned()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_as_they_are_written() {
        let of = |line: &str| facts(line, Some("id")).map(|facts| facts.key.unwrap());
        assert_eq!(of(r#"{"a":{"id":1},"id":"x\u0041","b":[]}"#).unwrap(), "xA");
        assert_eq!(
            of(r#"{"id":123456789012345678901234567890}"#).unwrap(),
            "123456789012345678901234567890"
        );
        assert_eq!(of(r#"{"id":true}"#).unwrap(), "true");
        for bad in [
            r#"{"id":null}"#,
            r#"{"id":[1]}"#,
            r#"{"id":""}"#,
            r#"{"x":1}"#,
        ] {
            assert!(of(bad).unwrap_err().contains("no field 'id'"), "{bad}");
        }
    }

    #[test]
    fn lines_that_are_no_object_are_refused_with_the_reason() {
        let reason = |line: &str| facts(line, None).unwrap_err();
        assert!(reason("{\"a\":").contains("EOF"), "{}", reason("{\"a\":"));
        assert!(reason("{} {}").contains("trailing"));
        assert!(reason("[1]").contains("object"));
        assert!(text(b"{\"a\":\"\xff\"}").unwrap_err().contains("byte 6"));
        // Deep nesting is walked without recursion.
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(facts(&deep, None).unwrap(), LineFacts::default());
    }

    #[test]
    fn a_byte_order_mark_before_a_line_is_no_part_of_it() {
        let file = b"\xef\xbb\xbf{}\r\n\xef\xbb\xbf{\"a\":1}\n";
        let found = |at: usize| match frame(&file[at..], true) {
            Framed::Record { before, bytes, .. } => (before, text(bytes).unwrap()),
            other => panic!("{other:?}"),
        };
        assert_eq!(found(0), (3, "{}"));
        assert_eq!(found(7), (3, "{\"a\":1}"));
        let mark = Framed::Blank {
            len: 4,
            counts: true,
        };
        assert_eq!(frame(b"\xef\xbb\xbf\n", true), mark);
    }

    #[test]
    fn a_title_is_kept() {
        let found = facts(r#"{"title":"T","n":1}"#, None).unwrap();
        assert_eq!(
            found,
            LineFacts {
                key: None,
                title: Some("T".to_owned())
            }
        );
    }
}
