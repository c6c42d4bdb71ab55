//! JSON as a tree that keeps what the formats need: the order of attributes, and numbers as the text
//! that they were, so that a 64-bit integer or a long decimal stays exact.
//!
//! Reading is bounded in depth and in the number of values, so that neither the stack nor memory
//! depends on who wrote the text.

use std::borrow::Cow;
use std::fmt::Write;

use crate::limits::{JSON_DEPTH_MAX, JSON_VALUES_MAX};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree<'a> {
    Null,
    Bool(bool),
    /// As it was written.
    Number(Cow<'a, str>),
    Text(Cow<'a, str>),
    Array(Vec<Tree<'a>>),
    /// In the order of the text; of a name that comes twice, the last counts.
    Object(Vec<(Cow<'a, str>, Tree<'a>)>),
}

impl<'a> Tree<'a> {
    /// Reads a text that is one value.
    pub fn read(text: &'a [u8]) -> Result<Tree<'a>, String> {
        let text = std::str::from_utf8(text).map_err(|_| "the text is not UTF-8".to_owned())?;
        let mut reader = Reader {
            text,
            at: 0,
            values_left: JSON_VALUES_MAX,
        };
        let tree = reader.value(JSON_DEPTH_MAX)?;
        reader.blanks();
        match reader.at == text.len() {
            true => Ok(tree),
            false => Err(reader.wrong("the end")),
        }
    }

    /// An attribute of an object.
    pub fn get(&self, name: &str) -> Option<&Tree<'a>> {
        match self {
            Tree::Object(entries) => {
                let mut entries = entries.iter().rev();
                entries.find(|(key, _)| key == name).map(|(_, it)| it)
            }
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn array(&self) -> Option<&[Tree<'a>]> {
        match self {
            Tree::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn object(&self) -> Option<&[(Cow<'a, str>, Tree<'a>)]> {
        match self {
            Tree::Object(entries) => Some(entries),
            _ => None,
        }
    }

    /// What kind of value this is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Tree::Null => "null",
            Tree::Bool(_) => "a boolean",
            Tree::Number(_) => "a number",
            Tree::Text(_) => "a text",
            Tree::Array(_) => "an array",
            Tree::Object(_) => "an object",
        }
    }

    /// The tree without ties to the text that it was read from.
    pub fn into_owned(self) -> Tree<'static> {
        match self {
            Tree::Null => Tree::Null,
            Tree::Bool(it) => Tree::Bool(it),
            Tree::Number(it) => Tree::Number(Cow::Owned(it.into_owned())),
            Tree::Text(it) => Tree::Text(Cow::Owned(it.into_owned())),
            Tree::Array(items) => Tree::Array(items.into_iter().map(Tree::into_owned).collect()),
            Tree::Object(entries) => Tree::Object(
                entries
                    .into_iter()
                    .map(|(name, it)| (Cow::Owned(name.into_owned()), it.into_owned()))
                    .collect(),
            ),
        }
    }

    /// The compact text.
    pub fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    pub fn write(&self, out: &mut String) {
        match self {
            Tree::Null => out.push_str("null"),
            Tree::Bool(true) => out.push_str("true"),
            Tree::Bool(false) => out.push_str("false"),
            Tree::Number(text) => out.push_str(text),
            Tree::Text(text) => quote(out, text),
            Tree::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Tree::Object(entries) => {
                out.push('{');
                for (index, (name, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    quote(out, name);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// The same with the attributes of all objects by name, for comparing.
    pub fn sorted(&self) -> Tree<'a> {
        match self {
            Tree::Array(items) => Tree::Array(items.iter().map(Tree::sorted).collect()),
            Tree::Object(entries) => {
                let sorted = entries.iter().map(|(name, it)| (name.clone(), it.sorted()));
                let mut sorted: Vec<_> = sorted.collect();
                sorted.sort_by(|a, b| a.0.cmp(&b.0));
                Tree::Object(sorted)
            }
            other => other.clone(),
        }
    }
}

/// What a JSON text holds, told from its signs alone: never less than it has, if it is JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub values: usize,
    /// Those among them that are objects.
    pub objects: usize,
}

impl Counted {
    pub fn of(json: &[u8]) -> Counted {
        let mut counted = Counted {
            values: 1,
            objects: 0,
        };
        let (mut is_in_text, mut is_escaped) = (false, false);
        for byte in json {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_in_text => is_escaped = true,
                b'"' => is_in_text = !is_in_text,
                _ if is_in_text => {}
                // Each begins a value, or has begun one that is counted by its comma.
                b',' | b'[' => counted.values += 1,
                b'{' => {
                    counted.values += 1;
                    counted.objects += 1;
                }
                _ => {}
            }
        }
        counted
    }
}

/// Adds a text in quotes.
pub(super) fn quote(out: &mut String, text: &str) {
    out.push('"');
    let mut plain_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[plain_from..at]);
        plain_from = at + 1;
        match escape {
            // Writing to a String does not fail.
            "" => drop(write!(out, "\\u{byte:04x}")),
            escape => out.push_str(escape),
        }
    }
    out.push_str(&text[plain_from..]);
    out.push('"');
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    values_left: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn wrong(&self, expected: &str) -> String {
        format!("not JSON: expected {expected} at byte {}", self.at)
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn word(&mut self, word: &str, value: Tree<'a>) -> Result<Tree<'a>, String> {
        match self.text[self.at..].starts_with(word) {
            true => {
                self.at += word.len();
                Ok(value)
            }
            false => Err(self.wrong("a value")),
        }
    }

    fn value(&mut self, depth_left: usize) -> Result<Tree<'a>, String> {
        self.values_left = self
            .values_left
            .checked_sub(1)
            .ok_or_else(|| format!("more than {JSON_VALUES_MAX} values in one text"))?;
        self.blanks();
        match self.peek() {
            Some(b'n') => self.word("null", Tree::Null),
            Some(b't') => self.word("true", Tree::Bool(true)),
            Some(b'f') => self.word("false", Tree::Bool(false)),
            Some(b'"') => Ok(Tree::Text(self.quoted()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'[' | b'{') if depth_left == 0 => {
                Err(format!("nested deeper than {JSON_DEPTH_MAX} levels"))
            }
            Some(b'[') => self.array(depth_left - 1),
            Some(b'{') => self.object(depth_left - 1),
            _ => Err(self.wrong("a value")),
        }
    }

    fn array(&mut self, depth_left: usize) -> Result<Tree<'a>, String> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.take(b']') {
            return Ok(Tree::Array(items));
        }
        loop {
            items.push(self.value(depth_left)?);
            self.blanks();
            if self.take(b']') {
                return Ok(Tree::Array(items));
            }
            if !self.take(b',') {
                return Err(self.wrong("a comma or the array's end"));
            }
        }
    }

    fn object(&mut self, depth_left: usize) -> Result<Tree<'a>, String> {
        self.at += 1;
        let mut entries = Vec::new();
        self.blanks();
        if self.take(b'}') {
            return Ok(Tree::Object(entries));
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a name"));
            }
            let name = self.quoted()?;
            self.blanks();
            if !self.take(b':') {
                return Err(self.wrong("a colon"));
            }
            entries.push((name, self.value(depth_left)?));
            self.blanks();
            if self.take(b'}') {
                return Ok(Tree::Object(entries));
            }
            if !self.take(b',') {
                return Err(self.wrong("a comma or the object's end"));
            }
        }
    }

    fn digits(&mut self) -> bool {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        self.at > from
    }

    fn number(&mut self) -> Result<Tree<'a>, String> {
        let from = self.at;
        self.take(b'-');
        let is_zero = self.peek() == Some(b'0');
        let digits_from = self.at;
        if !self.digits() || (is_zero && self.at - digits_from > 1) {
            return Err(self.wrong("a number"));
        }
        if self.take(b'.') && !self.digits() {
            return Err(self.wrong("a digit"));
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            if !self.digits() {
                return Err(self.wrong("a digit"));
            }
        }
        Ok(Tree::Number(Cow::Borrowed(&self.text[from..self.at])))
    }

    /// A text in quotes, borrowed where it has no escapes.
    fn quoted(&mut self) -> Result<Cow<'a, str>, String> {
        self.at += 1;
        let from = self.at;
        let mut has_escapes = false;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.at += 2;
                }
                Some(0..0x20) | None => return Err(self.wrong("the text's end")),
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        if !has_escapes {
            return Ok(Cow::Borrowed(&self.text[from..self.at - 1]));
        }
        // Escapes are read by serde_json, quotes and all.
        let quoted = &self.text[from - 1..self.at];
        let plain = serde_json::from_str(quoted).map_err(|error| format!("not JSON: {error}"))?;
        Ok(Cow::Owned(plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were_without_blanks() {
        let text = br#" {"b": [1.50, -0, 12345678901234567890123, 1e5], "a":"\u00e9\"\\\n\u0001", "c":{} ,"d":[ ],"e":[null,true,false]} "#;
        let tree = Tree::read(text).unwrap();
        assert_eq!(
            tree.compact(),
            r#"{"b":[1.50,-0,12345678901234567890123,1e5],"a":"é\"\\\n\u0001","c":{},"d":[],"e":[null,true,false]}"#
        );
        assert_eq!(Tree::read(tree.compact().as_bytes()).unwrap(), tree);
    }

    #[test]
    fn what_is_no_json_is_refused_where_serde_json_refuses_it() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "-",
            "1.",
            "1e",
            "+1",
            "tru",
            "nulls",
            "\"",
            "\"\\",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\n\"",
            "1 2",
            "é",
            "\\",
            "\"\\é\"",
            "[\"\\\u{e9}",
        ] {
            assert!(Tree::read(text.as_bytes()).is_err(), "{text}");
            assert!(
                serde_json::from_str::<serde_json::Value>(text).is_err(),
                "{text}"
            );
        }
        assert!(Tree::read(b"\"\xff\"").is_err());
    }

    #[test]
    fn depth_and_number_of_values_are_bounded() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(Tree::read(deep(JSON_DEPTH_MAX).as_bytes()).is_ok());
        assert!(Tree::read(deep(JSON_DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(Tree::read("[".repeat(10_000_000).as_bytes()).is_err());
        let many = format!("[{}0]", "0,".repeat(JSON_VALUES_MAX));
        assert!(Tree::read(many.as_bytes()).is_err());
    }
}
