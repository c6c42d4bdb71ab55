//! The fast pass: one walk over the bytes that checks the grammar and fills slots.
//!
//! Declines (answers `None`) rather than judging: the full parser then decides. So everything that
//! is taken here must be exactly right, and nothing needs an error text.

use super::tree::{FieldTree, Node, ROOT};
use crate::limits::SCAN_DEPTH_MAX;
use crate::value::{Value, parse_number};

/// Fills the slots from `text`; `None` when the full parser has to look.
pub fn scan<'a>(tree: &FieldTree, text: &'a str, values: &mut [Value<'a>]) -> Option<()> {
    let mut cursor = Cursor {
        tree,
        text,
        bytes: text.as_bytes(),
        at: 0,
    };
    cursor.space();
    cursor.value(Some(ROOT), 0, values)?;
    cursor.space();
    (cursor.at == cursor.bytes.len()).then_some(())
}

struct Cursor<'t, 'a> {
    tree: &'t FieldTree,
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'_, 'a> {
    /// Reads one value, which is that of `node` when it is wanted.
    fn value(&mut self, node: Option<Node>, depth: usize, values: &mut [Value<'a>]) -> Option<()> {
        let start = self.at;
        let slot = node.and_then(|node| self.tree.slot(node));
        // The payload itself comes once, and its fields are null already.
        if let Some(node) = node
            && depth > 0
            && self.tree.has_children(node)
        {
            self.tree.clear_below(node, values);
        }
        let value = match self.peek()? {
            b'"' => {
                let text = self.string()?;
                slot.map(|_| Value::text(text))
            }
            b'{' => {
                self.object(node, depth + 1, values)?;
                slot.map(|_| Value::Json(self.text[start..self.at].into()))
            }
            b'[' => {
                self.array(depth + 1, values)?;
                slot.map(|_| Value::Json(self.text[start..self.at].into()))
            }
            b't' => self.word(b"true").map(|()| Some(Value::Bool(true)))?,
            b'f' => self.word(b"false").map(|()| Some(Value::Bool(false)))?,
            b'n' => self.word(b"null").map(|()| Some(Value::Null))?,
            _ => {
                let number = self.number(slot.is_some())?;
                Some(number)
            }
        };
        if let (Some(slot), Some(value)) = (slot, value) {
            values[slot] = value;
        }
        Some(())
    }

    fn object(&mut self, node: Option<Node>, depth: usize, values: &mut [Value<'a>]) -> Option<()> {
        if depth > SCAN_DEPTH_MAX {
            return None;
        }
        self.at += 1;
        self.space();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            let key = self.string()?;
            self.space();
            self.take(b':')?;
            self.space();
            let child = node.and_then(|node| self.tree.child(node, key.as_bytes()));
            self.value(child, depth, values)?;
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
            self.space();
        }
    }

    fn array(&mut self, depth: usize, values: &mut [Value<'a>]) -> Option<()> {
        if depth > SCAN_DEPTH_MAX {
            return None;
        }
        self.at += 1;
        self.space();
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.value(None, depth, values)?;
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
            self.space();
        }
    }

    /// A text without escapes, from its opening quote.
    fn string(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let start = self.at;
        // Most names and texts are short: a plain loop beats a vector search there.
        for (index, byte) in self.bytes[start..].iter().take(SHORT_TEXT).enumerate() {
            match byte {
                b'"' => {
                    self.at = start + index + 1;
                    return Some(&self.text[start..start + index]);
                }
                b'\\' | 0..=0x1f => return None,
                _ => {}
            }
        }
        let rest = self.bytes.get(start + SHORT_TEXT..)?;
        let length = SHORT_TEXT + memchr::memchr2(b'"', b'\\', rest)?;
        let text = &self.bytes[start..start + length];
        if self.bytes[start + length] == b'\\' || text.iter().any(|byte| *byte < 0x20) {
            return None;
        }
        self.at = start + length + 1;
        Some(&self.text[start..start + length])
    }

    /// A number by JSON's grammar; its value only when it is wanted.
    fn number(&mut self, wanted: bool) -> Option<Value<'static>> {
        let start = self.at;
        let negative = self.peek()? == b'-';
        self.at += usize::from(negative);
        let whole = self.digits()?;
        if whole.count > 1 && self.bytes[whole.start] == b'0' {
            return None;
        }
        let mut mantissa = whole.value;
        let mut digits = whole.count;
        let mut decimals = 0;
        let mut is_float = false;
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            is_float = true;
            let fraction = self.digits()?;
            decimals = fraction.count;
            digits += fraction.count;
            if digits <= EXACT_DIGITS {
                mantissa = mantissa * POWERS_OF_TEN_INT[fraction.count] + fraction.value;
            }
        }
        let mut has_exponent = false;
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            has_exponent = true;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        if !wanted {
            return Some(Value::Null);
        }
        // Up to 15 digits the mantissa and the power of ten are exact doubles, and so the one
        // division rounds correctly; everything longer goes through the library.
        if has_exponent || digits > EXACT_DIGITS {
            return Some(parse_number(&self.text[start..self.at]));
        }
        let mantissa = mantissa as i64;
        if is_float {
            let number = mantissa as f64 / POWERS_OF_TEN[decimals];
            return Some(Value::Float(if negative { -number } else { number }));
        }
        Some(Value::Int(if negative { -mantissa } else { mantissa }))
    }

    /// At least one digit; the value is meaningful up to 15 digits.
    fn digits(&mut self) -> Option<Digits> {
        let start = self.at;
        let mut value = 0u64;
        while let Some(byte @ b'0'..=b'9') = self.bytes.get(self.at) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            self.at += 1;
        }
        let count = self.at - start;
        (count > 0).then_some(Digits {
            start,
            count,
            value,
        })
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        if self.bytes[self.at..].starts_with(word) {
            self.at += word.len();
            return Some(());
        }
        None
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        if self.peek()? == byte {
            self.at += 1;
            return Some(());
        }
        None
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }
}

struct Digits {
    start: usize,
    count: usize,
    value: u64,
}

/// Texts up to this length are searched byte by byte.
const SHORT_TEXT: usize = 24;

/// Decimal digits that a double and a 64-bit integer hold exactly.
const EXACT_DIGITS: usize = 15;

const POWERS_OF_TEN: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

const POWERS_OF_TEN_INT: [u64; 16] = {
    let mut powers = [1; 16];
    let mut index = 1;
    while index < 16 {
        powers[index] = powers[index - 1] * 10;
        index += 1;
    }
    powers
};
