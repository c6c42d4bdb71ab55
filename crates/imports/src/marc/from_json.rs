//! MARC in JSON read: objects in an array, one a line, or one after the other.
//!
//! Two shapes are known: MARC-in-JSON, as `json.rs` writes it, and MARC-JSON, with lists
//! `controlfield` of `{"tag", "data"}` and `datafield` of `{"tag", "ind", "subfield": [{"code",
//! "data"}]}`, as OCLC's draft of 2010 has it.
//!
//! A record begins with `{"leader":` or `{"fields":`. Inside of a record's texts quotes are escaped,
//! so these bytes stand nowhere else, and a record that never closes ends where the next begins.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::{Field, INDICATORS, MarcRecord, SUBFIELD, bytes_between};
use crate::format::Framed;

/// Finds the first record of `buffer`; `last` says that the file ends with the buffer.
pub(crate) fn frame_json(buffer: &[u8], last: bool) -> Framed<'_> {
    let before = filler(buffer);
    let rest = &buffer[before..];
    if rest.is_empty() {
        return match (last, before) {
            (true, _) => Framed::End,
            (false, 0) => Framed::Incomplete,
            (false, len) => Framed::Blank { len, counts: false },
        };
    }
    let next = next_json(rest);
    let damaged = |reason| match (next, last) {
        (Some(len), _) => Framed::Damaged {
            before,
            len,
            reason,
        },
        (None, true) => {
            let len = rest.len();
            Framed::Damaged {
                before,
                len,
                reason,
            }
        }
        (None, false) => Framed::Incomplete,
    };
    if rest[0] != b'{' {
        return damaged("what stands here is no record");
    }
    let Some(end) = end_of_object(&rest[..next.unwrap_or(rest.len())]) else {
        return damaged("its braces or quotes do not close");
    };
    // A lost quote may end it early: then what follows belongs to it.
    let behind = &rest[end..next.unwrap_or(rest.len())];
    let is_cut = filler(behind) < behind.len();
    if is_cut && serde_json::from_slice::<IgnoredAny>(&rest[..end]).is_err() {
        return damaged("it is not JSON");
    }
    Framed::Record {
        before,
        bytes: &rest[..end],
        note: None,
    }
}

/// Where the next record begins, from the buffer's second byte on.
pub(crate) fn next_json(buffer: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'{', buffer)
        .skip_while(|at| *at == 0)
        .find(|at| {
            let inner = buffer[at + 1..].trim_ascii_start();
            let inner = inner
                .strip_prefix(b"\"leader\"")
                .or_else(|| inner.strip_prefix(b"\"fields\""));
            inner.is_some_and(|after| after.trim_ascii_start().starts_with(b":"))
        })
}

/// Takes a framed record apart.
///
/// # Errors
/// A sentence that says what is damaged.
pub(crate) fn parse_json(bytes: &[u8]) -> Result<MarcRecord<'static>, Cow<'static, str>> {
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| format!("it is not JSON: {error}"))?;
    let leader = value["leader"].as_str().ok_or("the record has no leader")?;
    let fields = match value["fields"].as_array() {
        Some(entries) => named_fields(entries)?,
        None => listed_fields(&value)?,
    };
    let record = MarcRecord {
        leader: Cow::Owned(leader.to_owned()),
        fields,
        note: None,
    };
    record.check()?;
    Ok(record)
}

/// The fields of MARC-in-JSON.
fn named_fields(entries: &[Value]) -> Result<Vec<Field<'static>>, &'static str> {
    let mut fields = Vec::with_capacity(entries.len());
    for entry in entries {
        let entry = entry.as_object().ok_or("a field is not an object")?;
        for (tag, content) in entry {
            fields.push(Field {
                tag: Cow::Owned(tag.clone()),
                data: Cow::Owned(data_of(content)?),
            });
        }
    }
    Ok(fields)
}

/// The fields of MARC-JSON.
fn listed_fields(record: &Value) -> Result<Vec<Field<'static>>, &'static str> {
    let lists = ["controlfield", "datafield"].map(|name| record[name].as_array());
    if lists.iter().all(Option::is_none) {
        return Err("the record has no fields");
    }
    let mut fields = Vec::new();
    for entry in lists.into_iter().flatten().flatten() {
        let tag = entry["tag"].as_str().ok_or("a field has no tag")?;
        let data = match entry["data"].as_str() {
            Some(text) => undelimited(text)?.to_owned(),
            None => listed_data(entry)?,
        };
        fields.push(Field {
            tag: Cow::Owned(tag.to_owned()),
            data: Cow::Owned(data),
        });
    }
    Ok(fields)
}

fn listed_data(field: &Value) -> Result<String, &'static str> {
    let subfields = field["subfield"].as_array();
    let subfields = subfields.ok_or("a field has neither data nor subfields")?;
    let mut data = field["ind"].as_str().unwrap_or("  ").to_owned();
    if data.chars().count() != INDICATORS {
        return Err("the indicators are not two characters");
    }
    for subfield in subfields {
        let code = subfield["code"].as_str().unwrap_or_default();
        let text = subfield["data"].as_str();
        push_subfield(code, text.ok_or("a subfield is not text")?, &mut data)?;
    }
    Ok(data)
}

fn push_subfield(code: &str, text: &str, data: &mut String) -> Result<(), &'static str> {
    let mut letters = code.chars();
    let (Some(code), None) = (letters.next(), letters.next()) else {
        return Err("a subfield's code is not one character");
    };
    data.extend([SUBFIELD, code]);
    data.push_str(undelimited(text)?);
    Ok(())
}

fn data_of(content: &Value) -> Result<String, &'static str> {
    if let Some(text) = content.as_str() {
        return undelimited(text).map(str::to_owned);
    }
    let subfields = content["subfields"].as_array();
    let subfields = subfields.ok_or("a field has neither text nor subfields")?;
    let mut data = String::new();
    for name in ["ind1", "ind2"] {
        // Some writers leave blanks out, and some write digits as numbers.
        let indicator = match &content[name] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut letters = indicator.chars();
        data.push(letters.next().unwrap_or(' '));
        if letters.next().is_some() {
            return Err("an indicator is not one character");
        }
    }
    for subfield in subfields {
        let subfield = subfield.as_object().ok_or("a subfield is not an object")?;
        for (code, text) in subfield {
            let text = text.as_str().ok_or("a subfield is not text")?;
            push_subfield(code, text, &mut data)?;
        }
    }
    Ok(data)
}

fn undelimited(text: &str) -> Result<&str, &'static str> {
    if text.bytes().any(|byte| matches!(byte, 0x1d..=0x1f)) {
        return Err("a delimiter of ISO 2709 is in its text");
    }
    Ok(text)
}

/// Where the object that begins the buffer ends; none where its brackets do not match.
fn end_of_object(buffer: &[u8]) -> Option<usize> {
    let (mut open, mut at, mut in_text) = (Vec::new(), 0, false);
    while at < buffer.len() {
        match (in_text, buffer[at]) {
            (true, b'\\') => at += 1,
            (_, b'"') => in_text = !in_text,
            (false, bracket @ (b'{' | b'[')) if open.len() < DEPTH_MAX => open.push(bracket),
            (false, b'{' | b'[') => return None,
            (false, bracket @ (b'}' | b']')) => {
                // In ASCII a bracket and its twin are two apart.
                if open.pop() != Some(bracket - 2) {
                    return None;
                }
                if open.is_empty() {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// How many bytes at the start stand between records.
fn filler(buffer: &[u8]) -> usize {
    bytes_between(buffer, |byte| {
        byte.is_ascii_whitespace() || matches!(byte, b',' | b'[' | b']' | 0x1e)
    })
}

/// A record's brackets are six deep.
const DEPTH_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marc::tests::{book, cut_by};
    use crate::marc::{parse, write_json};

    fn json(n: usize) -> String {
        let mut text = String::new();
        write_json(&parse(&book(n)).unwrap(), &mut text);
        text
    }

    fn cut(file: &str) -> Vec<Result<String, Cow<'static, str>>> {
        cut_by(file.as_bytes(), frame_json, parse_json)
    }

    #[test]
    fn arrays_lines_and_rows_of_records_are_all_read() {
        let ok = |n: usize| Ok(format!("{n:08}"));
        for (open, between, close) in [("[", ",\n", "]\n"), ("", "\n", "\n"), ("", "", "")] {
            let file = format!("{open}{}{between}{}{close}", json(1), json(2));
            assert_eq!(cut(&file), [ok(1), ok(2)], "{between:?}");
        }
        let mut again = String::new();
        write_json(&parse_json(json(5).as_bytes()).unwrap(), &mut again);
        assert_eq!(again, json(5));
    }

    #[test]
    fn damage_costs_one_record() {
        let damages: [fn(String) -> String; 7] = [
            |text| text.replacen("]}", "", 1),
            |text| text.replacen("\"},{", "\"}},{", 1),
            |text| text.replacen("\"001\"", "\"001", 1),
            |text| text.replace("{\"leader\"", "\"leader\""),
            |text| text[..text.len() - 9].to_owned(),
            |text| text.replacen("\"ind1\":\"1\"", "\"ind1\":\"12\"", 1),
            |text| text.replacen("\"fields\":[", "\"fields\":[7,", 1),
        ];
        for (index, damage) in damages.iter().enumerate() {
            let file = format!("[{},\n{},\n{}]", json(1), damage(json(2)), json(3));
            let found = cut(&file);
            assert_eq!(found.len(), 3, "{index}: {found:?}");
            assert!(
                found[0].is_ok() && found[1].is_err() && found[2].is_ok(),
                "{index}: {found:?}"
            );
        }
    }

    #[test]
    fn a_record_of_marc_json_is_the_same_as_of_marc_in_json() {
        let twin: Value = serde_json::from_str(&json(5)).unwrap();
        let (mut control, mut data) = (Vec::new(), Vec::new());
        for field in twin["fields"].as_array().unwrap() {
            let (tag, content) = field.as_object().unwrap().iter().next().unwrap();
            if content.is_string() {
                control.push(serde_json::json!({"tag": tag, "data": content}));
                continue;
            }
            let text = |name: &str| content[name].as_str().unwrap();
            let subfields = content["subfields"].as_array().unwrap().iter();
            let subfields: Vec<Value> = subfields
                .flat_map(|subfield| subfield.as_object().unwrap())
                .map(|(code, text)| serde_json::json!({"code": code, "data": text}))
                .collect();
            let ind = format!("{}{}", text("ind1"), text("ind2"));
            data.push(serde_json::json!({"tag": tag, "ind": ind, "subfield": subfields}));
        }
        let of = |data: &[Value]| {
            let leader = &twin["leader"];
            let lists = serde_json::json!({"controlfield": control, "datafield": data});
            format!("{{\"leader\":{leader},{}", &lists.to_string()[1..])
        };
        let mut again = String::new();
        write_json(&parse_json(of(&data).as_bytes()).unwrap(), &mut again);
        assert_eq!(again, json(5));
        let file = format!(
            "{}\n{}",
            of(&data),
            of(&[serde_json::json!({"tag": "245"})])
        );
        let found = cut(&file);
        assert_eq!(found[0], Ok("00000005".to_owned()));
        assert!(
            found[1].as_ref().unwrap_err().contains("neither"),
            "{found:?}"
        );
        let none = parse_json(of(&data).replace("\"controlfield\"", "\"x\"").as_bytes());
        assert_eq!(none.unwrap().id(), None);
        assert!(parse_json(b"{\"leader\":\"x\"}").is_err());
    }

    #[test]
    fn indicators_may_be_numbers_or_left_out() {
        let text = json(1).replace("\"ind1\":\"1\"", "\"ind1\":1");
        let mut again = String::new();
        write_json(&parse_json(text.as_bytes()).unwrap(), &mut again);
        assert!(text != json(1) && again == json(1), "{again}");
        let text = json(1).replace("\"ind1\":\"1\",", "");
        let record = parse_json(text.as_bytes()).unwrap();
        assert_eq!(record.fields[2].indicators(), [' ', '0']);
        let text = json(1).replace("\"ind1\":\"1\"", "\"ind1\":true");
        assert!(parse_json(text.as_bytes()).is_err());
    }

    #[test]
    fn byte_order_marks_between_records_are_no_records() {
        let ok = |n: usize| Ok(format!("{n:08}"));
        let file = format!("\u{feff}{}\n\u{feff}{}\n", json(1), json(2));
        assert_eq!(cut(&file), [ok(1), ok(2)]);
    }

    #[test]
    fn a_cut_buffer_waits_for_more() {
        let text = json(1);
        assert_eq!(
            frame_json(&text.as_bytes()[..50], false),
            Framed::Incomplete
        );
        assert_eq!(
            frame_json(b" ,\n", false),
            Framed::Blank {
                len: 3,
                counts: false
            }
        );
    }
}
