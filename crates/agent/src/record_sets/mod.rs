//! Records as JSON, CSV, XML and Avro: readers and writers that hold one record at a time, and the
//! controller services that flows configure them by.
//!
//! A record is named values in order; only Avro has schemas. What a format says of types is kept:
//! JSON's kinds are as they are, texts of CSV and XML that write numbers, true or false become
//! these unless the reader is told to leave them texts.

mod avro;
mod csv;
mod infer;
mod json;
mod query;
mod services;
mod xml;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read, Write};

use crate::json::Fields;

pub(crate) use query::Query;
pub(crate) use services::{
    AVRO_READER, AVRO_WRITER, CSV_READER, CSV_WRITER, JSON_READER, JSON_WRITER, READER_ROLE,
    WRITER_ROLE, XML_READER, XML_WRITER,
};

/// Reads records one after the other.
pub(crate) trait RecordReader {
    /// The next record, none at the end.
    fn next(&mut self) -> Result<Option<Fields>, RecordError>;
}

/// Writes records one after the other.
pub(crate) trait RecordWriter {
    /// Writes one more.
    fn write(&mut self, record: &Fields) -> Result<(), RecordError>;

    /// Writes what ends the set.
    fn finish(&mut self) -> Result<(), RecordError>;
}

/// What the role `RecordReader` is: opens readers of one format.
pub(crate) struct Readers(Box<dyn Open>);

/// What the role `RecordSetWriter` is: opens writers of one format.
pub(crate) struct Writers(Box<dyn Create>);

trait Open: Send + Sync {
    fn open<'r>(&self, input: Box<dyn Read + 'r>) -> Box<dyn RecordReader + 'r>;
}

trait Create: Send + Sync {
    fn create<'w>(&self, output: Box<dyn Write + 'w>) -> Box<dyn RecordWriter + 'w>;

    fn mime_type(&self) -> &'static str;
}

/// Why records cannot be read or written.
#[derive(Debug)]
pub(crate) enum RecordError {
    /// The data is not of the format, or does not fit into it; says where.
    Format(String),
    /// Reading or writing the content failed.
    Content(io::Error),
}

impl Readers {
    /// Reads the records of `input`.
    pub(crate) fn open<'r>(&self, input: impl Read + 'r) -> Box<dyn RecordReader + 'r> {
        self.0.open(Box::new(input))
    }
}

impl Writers {
    /// Those of JSON: a list of objects, indented where `is_pretty`.
    pub(crate) fn json(is_pretty: bool) -> Self {
        Writers(Box::new(json::JsonWriters {
            by_lines: false,
            is_pretty,
        }))
    }

    /// Writes records to `output`.
    pub(crate) fn create<'w>(&self, output: impl Write + 'w) -> Box<dyn RecordWriter + 'w> {
        self.0.create(Box::new(output))
    }

    /// What the content is then: the attribute `mime.type`.
    pub(crate) fn mime_type(&self) -> &'static str {
        self.0.mime_type()
    }
}

/// Reads bytes as records of one format, for the fuzz targets: an answer or an error, and no more.
pub(crate) fn read_anything(kind: u8, bytes: &[u8]) {
    let readers: Box<dyn Open> = match kind {
        0 => Box::new(avro::AvroReaders { schema: None }),
        1 => {
            let split = bytes.iter().position(|byte| *byte == 0);
            let (text, datums) = bytes.split_at(split.unwrap_or(bytes.len()));
            let schema = std::str::from_utf8(text).ok().map(avro::AvroSchema::parse);
            let Some(Ok(schema)) = schema else {
                return;
            };
            let readers = avro::AvroReaders {
                schema: Some(std::sync::Arc::new(schema)),
            };
            drain(&readers, datums.get(1..).unwrap_or_default());
            return;
        }
        2 => Box::new(json::JsonReaders),
        3 => Box::new(csv::CsvReaders {
            separator: b',',
            quote: Some(b'"'),
            escape: Some(b'\\'),
            comment: None,
            null: None,
            trims: true,
            has_header: true,
            infers: true,
        }),
        _ => Box::new(xml::XmlReaders {
            content_field: "value".to_owned(),
            attribute_prefix: Some(String::new()),
            is_wrapped: true,
        }),
    };
    drain(readers.as_ref(), bytes);
}

fn drain(readers: &dyn Open, bytes: &[u8]) {
    let mut reader = readers.open(Box::new(bytes));
    for _ in 0..RECORDS_FUZZED_MAX {
        if !matches!(reader.next(), Ok(Some(_))) {
            return;
        }
    }
}

/// Records that one input of a fuzz target is read to.
const RECORDS_FUZZED_MAX: usize = 1_000;

impl RecordError {
    fn format(reason: impl fmt::Display) -> Self {
        RecordError::Format(reason.to_string())
    }
}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                RecordError::Format(error.to_string())
            }
            _ => RecordError::Content(error),
        }
    }
}
