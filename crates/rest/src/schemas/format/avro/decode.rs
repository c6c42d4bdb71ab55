//! Avro's binary encoding to JSON, by the JSON encoding of the specification.
//!
//! The text is written while the payload is read, without a tree between. Its length is bounded by
//! the payload's, so that an array of a million million nulls ends at once.

use std::fmt::Write;

use super::{AvroSchema, NodeId, Shape};
use crate::limits::{AVRO_DEPTH_MAX, DECODED_BYTES_FREE, DECODED_GROWTH_MAX};
use crate::schemas::format::SchemaFault;
use crate::schemas::format::tree::quote;

impl AvroSchema {
    pub fn decode(&self, payload: &[u8]) -> Result<Vec<u8>, SchemaFault> {
        let bytes_max = payload.len().saturating_mul(DECODED_GROWTH_MAX);
        let mut decoder = Decoder {
            schema: self,
            rest: payload,
            out: String::with_capacity(2 * payload.len()),
            bytes_max: bytes_max.saturating_add(DECODED_BYTES_FREE),
            steps_left: bytes_max.saturating_add(DECODED_BYTES_FREE),
        };
        if matches!(self.shape(self.root), Shape::Bytes) {
            // Alone, bytes stand without their length.
            decoder.latin(payload);
            return Ok(decoder.out.into_bytes());
        }
        let read = decoder.value(self.root, 0).and_then(|()| {
            let left = decoder.rest.len();
            match left {
                0 => Ok(()),
                _ => Err(format!("{left} bytes are left over")),
            }
        });
        match read {
            Ok(()) => Ok(decoder.out.into_bytes()),
            Err(reason) => Err(SchemaFault::Payload(format!(
                "not Avro of this schema: {reason}"
            ))),
        }
    }
}

struct Decoder<'a> {
    schema: &'a AvroSchema,
    rest: &'a [u8],
    out: String,
    bytes_max: usize,
    /// What is nothing in both encodings costs time all the same.
    steps_left: usize,
}

impl<'a> Decoder<'a> {
    fn value(&mut self, id: NodeId, depth: usize) -> Result<(), String> {
        if depth > AVRO_DEPTH_MAX {
            return Err(format!("nested deeper than {AVRO_DEPTH_MAX} levels"));
        }
        self.steps_left = self.steps_left.saturating_sub(1);
        if self.out.len() > self.bytes_max || self.steps_left == 0 {
            return Err("its JSON would be too large".to_owned());
        }
        let schema = self.schema;
        match schema.shape(id) {
            Shape::Null => self.out.push_str("null"),
            Shape::Boolean => match self.take(1)? {
                [0] => self.out.push_str("false"),
                [1] => self.out.push_str("true"),
                _ => return Err("a boolean that is neither 0 nor 1".to_owned()),
            },
            Shape::Int => {
                let number = self.long()?;
                i32::try_from(number).map_err(|_| "an int beyond 32 bits")?;
                self.number(number);
            }
            Shape::Long => {
                let number = self.long()?;
                self.number(number);
            }
            Shape::Float => {
                let bytes = self.take(4)?.try_into().map_err(|_| SHORT)?;
                let number = f32::from_le_bytes(bytes);
                match number.is_finite() {
                    true => self.number(Float(number)),
                    false => self.word(f64::from(number)),
                }
            }
            Shape::Double => {
                let bytes = self.take(8)?.try_into().map_err(|_| SHORT)?;
                let number = f64::from_le_bytes(bytes);
                match number.is_finite() {
                    true => self.number(Float(number)),
                    false => self.word(number),
                }
            }
            Shape::Bytes => {
                let bytes = self.sized()?;
                self.latin(bytes);
            }
            Shape::String => self.string()?,
            Shape::Fixed(fixed) => {
                let bytes = self.take(fixed.size)?;
                self.latin(bytes);
            }
            Shape::Enum(it) => {
                let index = usize::try_from(self.long()?).ok();
                let symbol = index.and_then(|index| it.symbols.get(index));
                let symbol = symbol.ok_or("an enum's symbol that is not there")?;
                quote(&mut self.out, symbol);
            }
            Shape::Array(items) => {
                self.out.push('[');
                self.blocks(|decoder| decoder.value(*items, depth + 1))?;
                self.out.push(']');
            }
            Shape::Map(values) => {
                self.out.push('{');
                self.blocks(|decoder| {
                    decoder.string()?;
                    decoder.out.push(':');
                    decoder.value(*values, depth + 1)
                })?;
                self.out.push('}');
            }
            Shape::Record(record) => {
                self.out.push('{');
                for (index, field) in record.fields.iter().enumerate() {
                    if index > 0 {
                        self.out.push(',');
                    }
                    quote(&mut self.out, &field.name);
                    self.out.push(':');
                    self.value(field.node, depth + 1)?;
                }
                self.out.push('}');
            }
            Shape::Union(branches) => {
                let index = usize::try_from(self.long()?).ok();
                let branch = index.and_then(|index| branches.get(index));
                let branch = *branch.ok_or("a union's branch that is not there")?;
                if matches!(schema.shape(branch), Shape::Null) {
                    self.out.push_str("null");
                    return Ok(());
                }
                self.out.push('{');
                quote(&mut self.out, schema.branch_name(branch));
                self.out.push(':');
                self.value(branch, depth + 1)?;
                self.out.push('}');
            }
        }
        Ok(())
    }

    /// Reads the blocks of an array or a map, with commas between the items.
    fn blocks(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut is_first = true;
        loop {
            let mut count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                // The block's bytes follow, for who wants to skip it.
                self.long()?;
                count = count.checked_neg().ok_or("a block without end")?;
            }
            for _ in 0..count {
                if !std::mem::replace(&mut is_first, false) {
                    self.out.push(',');
                }
                item(self)?;
            }
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    fn long(&mut self) -> Result<i64, String> {
        let mut zigzag = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            zigzag |= bits << shift;
            if byte < 0x80 {
                return Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed());
            }
        }
        Err("a number beyond 64 bits".to_owned())
    }

    fn sized(&mut self) -> Result<&'a [u8], String> {
        let length = usize::try_from(self.long()?).map_err(|_| "a length below zero")?;
        self.take(length)
    }

    fn string(&mut self) -> Result<(), String> {
        let text = std::str::from_utf8(self.sized()?).map_err(|_| "a string that is not UTF-8")?;
        quote(&mut self.out, text);
        Ok(())
    }

    /// Writes bytes as text of ISO-8859-1.
    fn latin(&mut self, bytes: &[u8]) {
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        quote(&mut self.out, &text);
    }

    fn number(&mut self, number: impl std::fmt::Display) {
        // Writing to a String does not fail.
        let _ = write!(self.out, "{number}");
    }

    /// What JSON has no number for.
    fn word(&mut self, number: f64) {
        self.out.push_str(match number {
            it if it.is_nan() => "\"NaN\"",
            it if it > 0.0 => "\"Infinity\"",
            _ => "\"-Infinity\"",
        });
    }
}

/// A finite number, as short as its digits allow: `{}` alone would write 1e300 in 301 of them.
struct Float<T>(T);

impl<T: std::fmt::Debug> std::fmt::Display for Float<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

const SHORT: &str = "it ends too early";
