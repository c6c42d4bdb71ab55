//! JSON: a list of objects, or objects with blanks in between; written as one list or by lines.

use std::io::{self, BufReader, Read, Write};

use serde::Serialize;
use serde_json::de::{IoRead, StreamDeserializer};
use serde_json::ser::PrettyFormatter;

use super::{Create, Open, RecordError, RecordReader, RecordWriter};
use crate::json::{Fields, Json};

/// Opens readers of JSON.
pub(super) struct JsonReaders;

/// Opens writers of JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonWriters {
    /// One object in each line, and no list around them.
    pub(super) by_lines: bool,
    /// Indented; not by lines.
    pub(super) is_pretty: bool,
}

type Input<'r> = IoRead<Unwrapped<BufReader<Box<dyn Read + 'r>>>>;

struct JsonReader<'r> {
    items: StreamDeserializer<'r, Input<'r>, Json>,
    number: u64,
}

struct JsonWriter<'w> {
    output: Box<dyn Write + 'w>,
    how: JsonWriters,
    count: u64,
}

impl Open for JsonReaders {
    fn open<'r>(&self, input: Box<dyn Read + 'r>) -> Box<dyn RecordReader + 'r> {
        let unwrapped = Unwrapped::new(BufReader::with_capacity(READ_BYTES, input));
        Box::new(JsonReader {
            items: serde_json::Deserializer::from_reader(unwrapped).into_iter(),
            number: 0,
        })
    }
}

impl RecordReader for JsonReader<'_> {
    fn next(&mut self) -> Result<Option<Fields>, RecordError> {
        let number = self.number;
        self.number += 1;
        match self.items.next() {
            None => Ok(None),
            Some(Ok(Json::Object(fields))) => Ok(Some(fields)),
            Some(Ok(_)) => Err(RecordError::Format(format!(
                "record {number}, counted from 0, is no JSON object"
            ))),
            Some(Err(error)) if error.is_io() => Err(io::Error::from(error).into()),
            Some(Err(error)) => Err(RecordError::Format(format!(
                "record {number}, counted from 0, is no JSON: {error}"
            ))),
        }
    }
}

impl Create for JsonWriters {
    fn create<'w>(&self, output: Box<dyn Write + 'w>) -> Box<dyn RecordWriter + 'w> {
        Box::new(JsonWriter {
            output,
            how: *self,
            count: 0,
        })
    }

    fn mime_type(&self) -> &'static str {
        "application/json"
    }
}

impl RecordWriter for JsonWriter<'_> {
    fn write(&mut self, record: &Fields) -> Result<(), RecordError> {
        let before: &[u8] = match (self.count, self.how.by_lines, self.how.is_pretty) {
            (0, true, _) => b"",
            (_, true, _) => b"\n",
            (0, _, true) => b"[\n",
            (_, _, true) => b",\n",
            (0, ..) => b"[",
            _ => b",",
        };
        self.output.write_all(before)?;
        self.count += 1;
        let written = if self.how.is_pretty && !self.how.by_lines {
            let formatter = PrettyFormatter::with_indent(b"    ");
            let mut serializer =
                serde_json::Serializer::with_formatter(&mut self.output, formatter);
            record.serialize(&mut serializer)
        } else {
            serde_json::to_writer(&mut self.output, record)
        };
        written.map_err(|error| io::Error::from(error).into())
    }

    fn finish(&mut self) -> Result<(), RecordError> {
        let after: &[u8] = match (self.count, self.how.by_lines, self.how.is_pretty) {
            (0, true, _) => b"",
            (_, true, _) => b"\n",
            (0, ..) => b"[]",
            (_, _, true) => b"\n]",
            _ => b"]",
        };
        self.output.write_all(after)?;
        Ok(self.output.flush()?)
    }
}

/// Bytes of JSON without the brackets and commas of lists that are not inside of anything, so
/// that what remains is values one after the other.
struct Unwrapped<R> {
    input: R,
    /// Objects and lists that are open, outer lists not counted.
    depth: u64,
    /// Outer lists that are open.
    outer: u64,
    in_text: bool,
    is_escaped: bool,
}

impl<R: Read> Unwrapped<R> {
    fn new(input: R) -> Self {
        Unwrapped {
            input,
            depth: 0,
            outer: 0,
            in_text: false,
            is_escaped: false,
        }
    }

    /// What stands for `byte`.
    fn pass(&mut self, byte: u8) -> io::Result<u8> {
        if self.in_text {
            self.in_text = self.is_escaped || byte != b'"';
            self.is_escaped = !self.is_escaped && byte == b'\\';
            return Ok(byte);
        }
        match byte {
            b'"' => self.in_text = true,
            // A list in an outer list is a record that is no object, and is told as such.
            b'[' if self.depth == 0 && self.outer == 0 => {
                self.outer += 1;
                return Ok(b' ');
            }
            b']' if self.depth == 0 && self.outer > 0 => {
                self.outer -= 1;
                return Ok(b' ');
            }
            b',' if self.depth == 0 && self.outer > 0 => return Ok(b' '),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.checked_sub(1).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::InvalidData, "a bracket closes nothing")
                })?;
            }
            _ => {}
        }
        Ok(byte)
    }
}

impl<R: Read> Read for Unwrapped<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(into)?;
        if len == 0 && !into.is_empty() && self.outer > 0 {
            let reason = "the list of records does not end";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        for byte in &mut into[..len] {
            *byte = self.pass(*byte)?;
        }
        Ok(len)
    }
}

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
