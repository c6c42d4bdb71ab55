//! Values out of bytes.

use super::schema::{AvroSchema, Node, NodeId};
use crate::json::{Fields, Json};
use crate::limits::{AVRO_DEPTH_MAX, AVRO_VALUES_MAX};

/// Reads values of one block, or of what is no file, from the front of `rest`.
pub(super) struct Decoder<'b> {
    rest: &'b [u8],
    /// Values that the record at hand may still have: what is nothing in bytes takes memory.
    values_left: usize,
}

impl<'b> Decoder<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Decoder {
            rest: bytes,
            values_left: 0,
        }
    }

    /// Bytes that were not read yet.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Reads one record; the error says what is wrong, without a place.
    pub(super) fn record(&mut self, schema: &AvroSchema) -> Result<Fields, String> {
        self.values_left = AVRO_VALUES_MAX;
        match self.value(schema, schema.root(), 0)? {
            Json::Object(fields) => Ok(fields),
            _ => Err("it is no record".to_owned()),
        }
    }

    fn value(&mut self, schema: &AvroSchema, id: NodeId, depth: usize) -> Result<Json, String> {
        if depth > AVRO_DEPTH_MAX {
            return Err(format!("it is nested deeper than {AVRO_DEPTH_MAX} levels"));
        }
        let left = self.values_left.checked_sub(1);
        self.values_left =
            left.ok_or_else(|| format!("it has more than {AVRO_VALUES_MAX} values"))?;
        Ok(match schema.node(id) {
            Node::Null => Json::Null,
            Node::Boolean => match self.take(1)? {
                [0] => Json::Flag(false),
                [1] => Json::Flag(true),
                _ => return Err("a boolean is neither 0 nor 1".to_owned()),
            },
            Node::Int => {
                let number = self.long()?;
                i32::try_from(number).map_err(|_| "an int is beyond 32 bits")?;
                Json::Whole(number)
            }
            Node::Long => Json::Whole(self.long()?),
            Node::Float => {
                let number = f32::from_le_bytes(self.array()?);
                // The digits that the number was written with, not those that it grows to.
                Json::Fraction(number.to_string().parse().unwrap_or(f64::from(number)))
            }
            Node::Double => Json::Fraction(f64::from_le_bytes(self.array()?)),
            Node::Bytes => Json::Text(latin(self.sized()?)),
            Node::Text => Json::Text(self.text()?),
            Node::Fixed(size) => Json::Text(latin(self.take(*size)?)),
            Node::Decimal { scale, size } => {
                let bytes = match size {
                    Some(size) => self.take(*size)?,
                    None => self.sized()?,
                };
                decimal(bytes, *scale)?
            }
            Node::Enum(symbols) => {
                let index = usize::try_from(self.long()?).ok();
                let symbol = index.and_then(|index| symbols.get(index));
                Json::Text(symbol.ok_or("an enum has no such symbol")?.clone())
            }
            Node::List(items) => {
                let mut all = Vec::new();
                self.blocks(|decoder| {
                    all.push(decoder.value(schema, *items, depth + 1)?);
                    Ok(())
                })?;
                Json::List(all)
            }
            Node::Map(values) => {
                let mut all: Vec<(String, Json)> = Vec::new();
                self.blocks(|decoder| {
                    let name = decoder.text()?;
                    all.push((name, decoder.value(schema, *values, depth + 1)?));
                    Ok(())
                })?;
                Json::Object(distinct(all))
            }
            Node::Record(fields) => {
                let mut all = Fields::default();
                for field in fields {
                    let value = self.value(schema, field.node, depth + 1)?;
                    all.push(field.name.clone(), value);
                }
                Json::Object(all)
            }
            Node::Union(branches) => {
                let index = usize::try_from(self.long()?).ok();
                let branch = index.and_then(|index| branches.get(index));
                let branch = *branch.ok_or("a union has no such branch")?;
                self.value(schema, branch, depth + 1)?
            }
        })
    }

    /// Reads the blocks of an array or a map.
    fn blocks(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let mut count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                // The block's bytes, for who wants to skip it.
                self.long()?;
                count = count.checked_neg().ok_or("a block has no end")?;
            }
            for _ in 0..count {
                item(self)?;
            }
        }
    }

    /// A number of variable length, in zigzag.
    pub(super) fn long(&mut self) -> Result<i64, String> {
        let mut zigzag = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.array::<1>()?[0];
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            zigzag |= bits << shift;
            if byte < 0x80 {
                return Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed());
            }
        }
        Err("a number is beyond 64 bits".to_owned())
    }

    /// Bytes behind their length.
    pub(super) fn sized(&mut self) -> Result<&'b [u8], String> {
        let len = usize::try_from(self.long()?).map_err(|_| "a length is negative")?;
        self.take(len)
    }

    /// A text behind its length.
    pub(super) fn text(&mut self) -> Result<String, String> {
        let bytes = self.sized()?;
        let text = std::str::from_utf8(bytes).map_err(|_| "a text is no UTF-8")?;
        Ok(text.to_owned())
    }

    fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], String> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn take(&mut self, len: usize) -> Result<&'b [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(SHORT)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// One character for each byte.
fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Of equal names the last value.
fn distinct(entries: Vec<(String, Json)>) -> Fields {
    let mut places = std::collections::HashMap::new();
    let mut all: Vec<(String, Json)> = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        match places.get(&name) {
            Some(at) => {
                let at: usize = *at;
                all[at].1 = value;
            }
            None => {
                places.insert(name.clone(), all.len());
                all.push((name, value));
            }
        }
    }
    all.into_iter().collect()
}

/// A number where that is exact, else a text of its digits.
fn decimal(bytes: &[u8], scale: u32) -> Result<Json, String> {
    if bytes.len() > 16 {
        return Err("a decimal has more than 128 bits".to_owned());
    }
    let is_negative = bytes.first().is_some_and(|byte| *byte >= 0x80);
    let mut filled = [if is_negative { 0xff } else { 0 }; 16];
    filled[16 - bytes.len()..].copy_from_slice(bytes);
    let unscaled = i128::from_be_bytes(filled);
    if scale == 0
        && let Ok(whole) = i64::try_from(unscaled)
    {
        return Ok(Json::Whole(whole));
    }
    let digits = unscaled.unsigned_abs().to_string();
    let scale = scale as usize;
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, behind) = digits.split_at(digits.len() - scale);
    let sign = if is_negative { "-" } else { "" };
    let point = if scale > 0 { "." } else { "" };
    let text = format!("{sign}{whole}{point}{behind}");
    // Fifteen digits are told apart by every f64.
    if scale > 0
        && digits.len() <= 15
        && let Ok(number) = text.parse()
    {
        return Ok(Json::Fraction(number));
    }
    Ok(Json::Text(text))
}

const SHORT: &str = "it ends too soon";
