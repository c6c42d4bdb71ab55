//! What a message takes in memory, told before it is read: a field of two bytes may take hundreds.
//!
//! What is no Protobuf weighs what stands before it breaks off; reading it says the rest.

use prost_reflect::{Kind, MessageDescriptor};

use super::super::tree::Counted;
use crate::limits::PROTOBUF_HELD_BYTES_MAX;

/// Refuses a payload that would take more than a message may.
///
/// # Errors
/// It would.
pub(super) fn check(descriptor: &MessageDescriptor, payload: &[u8]) -> Result<(), &'static str> {
    let mut scale = Scale {
        left: PROTOBUF_HELD_BYTES_MAX,
    };
    let mut rest = payload;
    match scale.message(Some(descriptor), &mut rest, 0) {
        Err(Stop::TooHeavy) => Err(TOO_HEAVY),
        Ok(()) | Err(Stop::Broken) => Ok(()),
    }
}

/// Whether the message of a JSON text of so many bytes takes no more than one may.
pub(super) fn is_light(counted: Counted, bytes: usize) -> bool {
    let objects = counted.objects.saturating_mul(MESSAGE_BYTES);
    let values = counted.values.saturating_mul(VALUE_BYTES);
    objects.saturating_add(values).saturating_add(bytes) <= PROTOBUF_HELD_BYTES_MAX
}

struct Scale {
    left: usize,
}

enum Stop {
    TooHeavy,
    Broken,
}

impl Scale {
    fn add(&mut self, bytes: usize) -> Result<(), Stop> {
        self.left = self.left.checked_sub(bytes).ok_or(Stop::TooHeavy)?;
        Ok(())
    }

    /// Weighs fields until the bytes or the group ends.
    fn message(
        &mut self,
        descriptor: Option<&MessageDescriptor>,
        rest: &mut &[u8],
        depth: usize,
    ) -> Result<(), Stop> {
        if depth > DEPTH_MAX {
            // Reading ends here, too.
            return Err(Stop::Broken);
        }
        let is_entry = descriptor.is_some_and(MessageDescriptor::is_map_entry);
        self.add(if is_entry { ENTRY_BYTES } else { MESSAGE_BYTES })?;
        while !rest.is_empty() {
            let key = varint(rest)?;
            let number = u32::try_from(key >> 3).map_err(|_| Stop::Broken)?;
            let field = descriptor.and_then(|it| it.get_field(number));
            let kind = field.as_ref().map(prost_reflect::FieldDescriptor::kind);
            let child = kind.as_ref().and_then(Kind::as_message);
            match key & 7 {
                0 => {
                    varint(rest)?;
                    self.add(VALUE_BYTES)?;
                }
                1 => {
                    take(rest, 8)?;
                    self.add(VALUE_BYTES)?;
                }
                5 => {
                    take(rest, 4)?;
                    self.add(VALUE_BYTES)?;
                }
                2 => {
                    let bytes = usize::try_from(varint(rest)?).map_err(|_| Stop::Broken)?;
                    let mut inner = take(rest, bytes)?;
                    self.add(VALUE_BYTES)?;
                    match (child, kind.as_ref().and_then(|kind| packed(kind, inner))) {
                        (Some(_), _) => self.message(child, &mut inner, depth + 1)?,
                        (None, Some(count)) => self.add(count.saturating_mul(VALUE_BYTES))?,
                        (None, None) => self.add(bytes)?,
                    }
                }
                3 => {
                    self.add(VALUE_BYTES)?;
                    self.message(child, rest, depth + 1)?;
                }
                // The end of a group.
                4 => return Ok(()),
                _ => return Err(Stop::Broken),
            }
        }
        Ok(())
    }
}

/// How many numbers stand packed in these bytes, if it is numbers that stand there.
fn packed(kind: &Kind, bytes: &[u8]) -> Option<usize> {
    match kind {
        Kind::String | Kind::Bytes | Kind::Message(_) => None,
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => Some(bytes.len() / 8),
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => Some(bytes.len() / 4),
        _ => Some(bytes.iter().filter(|byte| **byte < 0x80).count()),
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], Stop> {
    let (taken, after) = rest.split_at_checked(bytes).ok_or(Stop::Broken)?;
    *rest = after;
    Ok(taken)
}

fn varint(rest: &mut &[u8]) -> Result<u64, Stop> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(Stop::Broken)?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Stop::Broken)
}

/// Why a message is not read.
pub(super) const TOO_HEAVY: &str = "it has too many fields: it would take more memory than it may";

/// What a message with a field takes: a node of a tree with room for eleven.
const MESSAGE_BYTES: usize = 900;
/// What an entry of a map takes.
const ENTRY_BYTES: usize = 160;
/// What a value takes in a list, or in its message where that has many.
const VALUE_BYTES: usize = 80;
/// Levels at which reading ends.
const DEPTH_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas::format::{ParsedSchema, SchemaSource, SchemaType, Work};

    const TEXT: &str = r#"syntax = "proto3"; message M { repeated M m = 1; repeated int32 n = 2;
        map<int32, int32> e = 3; bytes b = 4; repeated double d = 5; }"#;

    fn schema() -> ParsedSchema {
        let source = SchemaSource {
            kind: SchemaType::Protobuf,
            text: TEXT.into(),
            references: Vec::new(),
        };
        ParsedSchema::parse(&source).unwrap()
    }

    fn field(number: u8, inner: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        let mut length = inner.len();
        while length >= 0x80 {
            bytes.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend_from_slice(inner);
        bytes
    }

    #[test]
    fn a_value_takes_no_more_than_is_counted() {
        let value = std::mem::size_of::<prost_reflect::Value>();
        assert!(value <= VALUE_BYTES, "{value}");
        // A node has eleven keys and values, and some of its own.
        let message = value + 11 * (value + 8) + 32;
        assert!(message <= MESSAGE_BYTES, "{message}");
    }

    #[test]
    fn payloads_that_grow_beyond_the_bound_are_not_read() {
        let schema = schema();
        let framed = |fields: Vec<u8>| [vec![0], fields].concat();
        let count = PROTOBUF_HELD_BYTES_MAX / VALUE_BYTES + 1;
        let empty = PROTOBUF_HELD_BYTES_MAX / (MESSAGE_BYTES + VALUE_BYTES) + 1;
        let entries = PROTOBUF_HELD_BYTES_MAX / (ENTRY_BYTES + VALUE_BYTES) + 1;
        for fields in [
            field(2, &vec![1; count]),
            field(1, &[2 << 3, 1]).repeat(empty),
            field(3, &[8, 1, 16, 1]).repeat(entries),
            // Fields that the schema does not know.
            [15 << 3, 1].repeat(count),
        ] {
            let refused = schema.decode(&framed(fields)).unwrap_err();
            assert!(refused.to_string().contains("too many fields"), "{refused}");
        }
        let json = format!("{{\"m\":[{}{{}}]}}", "{},".repeat(200_000));
        let mut work = Work::of(u64::MAX, usize::MAX);
        let refused = schema.encode(json.as_bytes(), &mut work).unwrap_err();
        assert!(refused.to_string().contains("too many fields"), "{refused}");
    }

    #[test]
    fn large_payloads_of_few_fields_are_read() {
        let schema = schema();
        for fields in [
            field(4, &vec![7; 8 << 20]),
            field(5, &vec![0; 1 << 20]),
            field(1, &field(1, &field(2, &[1, 2, 3]))).repeat(1_000),
        ] {
            let payload = [vec![0], fields].concat();
            schema.decode(&payload).unwrap();
        }
        // What is broken is told as such.
        let broken = [0, 1 << 3 | 2, 200, 1];
        let refused = schema.decode(&broken).unwrap_err().to_string();
        assert!(!refused.contains("too many"), "{refused}");
    }
}
