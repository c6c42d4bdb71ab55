//! CSV, RFC 4180 with other separators and quotes.
//!
//! Columns are those of the header, or of the first record that is written; a later record with a
//! field beyond them is an error, since its value would be lost. Lists and objects are written as
//! JSON.

use std::io::{Read, Write};

use super::{Create, Open, RecordError, RecordReader, RecordWriter, infer};
use crate::json::{Fields, Json};
use crate::limits::RECORD_FIELDS_MAX;

/// Opens readers of CSV.
#[derive(Clone, Debug)]
pub(super) struct CsvReaders {
    pub(super) separator: u8,
    pub(super) quote: Option<u8>,
    pub(super) escape: Option<u8>,
    pub(super) comment: Option<u8>,
    /// What stands for nothing.
    pub(super) null: Option<String>,
    pub(super) trims: bool,
    pub(super) has_header: bool,
    /// Whether texts that write numbers, true or false become these.
    pub(super) infers: bool,
}

/// Opens writers of CSV.
#[derive(Clone, Debug)]
pub(super) struct CsvWriters {
    pub(super) separator: u8,
    pub(super) quote: u8,
    pub(super) quotes: csv::QuoteStyle,
    pub(super) terminator: csv::Terminator,
    pub(super) has_header: bool,
    pub(super) null: String,
}

struct CsvReader<'r> {
    input: csv::Reader<WithoutMark<Box<dyn Read + 'r>>>,
    how: CsvReaders,
    columns: Vec<String>,
    row: csv::StringRecord,
    is_started: bool,
}

struct CsvWriter<'w> {
    output: csv::Writer<Box<dyn Write + 'w>>,
    how: CsvWriters,
    columns: Option<Vec<String>>,
    number: u64,
}

impl Open for CsvReaders {
    fn open<'r>(&self, input: Box<dyn Read + 'r>) -> Box<dyn RecordReader + 'r> {
        let mut builder = csv::ReaderBuilder::new();
        builder
            .has_headers(false)
            .flexible(true)
            .delimiter(self.separator)
            .escape(self.escape)
            .comment(self.comment)
            .trim(if self.trims {
                csv::Trim::All
            } else {
                csv::Trim::None
            });
        match self.quote {
            Some(quote) => builder.quote(quote),
            None => builder.quoting(false),
        };
        Box::new(CsvReader {
            input: builder.from_reader(WithoutMark { input, head: None }),
            how: self.clone(),
            columns: Vec::new(),
            row: csv::StringRecord::new(),
            is_started: false,
        })
    }
}

impl CsvReader<'_> {
    fn read_row(&mut self) -> Result<bool, RecordError> {
        let is_there = self.input.read_record(&mut self.row).map_err(refused)?;
        if self.row.len() > RECORD_FIELDS_MAX {
            return Err(RecordError::Format(format!(
                "a line has {} fields; {RECORD_FIELDS_MAX} are the most",
                self.row.len()
            )));
        }
        Ok(is_there)
    }

    fn value(&self, text: &str) -> Json {
        if self.how.null.as_deref() == Some(text) {
            Json::Null
        } else if self.how.infers {
            infer::value(text.to_owned())
        } else {
            Json::Text(text.to_owned())
        }
    }
}

impl RecordReader for CsvReader<'_> {
    fn next(&mut self) -> Result<Option<Fields>, RecordError> {
        if !self.is_started && self.how.has_header {
            if !self.read_row()? {
                return Ok(None);
            }
            self.columns = self.row.iter().map(str::to_owned).collect();
            for (index, name) in self.columns.iter().enumerate() {
                if self.columns[..index].contains(name) {
                    return Err(RecordError::Format(format!(
                        "the header names '{name}' twice"
                    )));
                }
            }
        }
        self.is_started = true;
        if !self.read_row()? {
            return Ok(None);
        }
        if self.how.has_header && self.row.len() > self.columns.len() {
            let line = self.row.position().map_or(0, csv::Position::line);
            return Err(RecordError::Format(format!(
                "line {line} has {} fields, the header has {}",
                self.row.len(),
                self.columns.len()
            )));
        }
        let mut record = Fields::default();
        for index in 0..self.row.len().max(self.columns.len()) {
            let name = match self.columns.get(index) {
                Some(name) => name.clone(),
                None => format!("column_{index}"),
            };
            let value = self.row.get(index).map(|text| self.value(text));
            record.push(name, value.unwrap_or_default());
        }
        Ok(Some(record))
    }
}

impl Create for CsvWriters {
    fn create<'w>(&self, output: Box<dyn Write + 'w>) -> Box<dyn RecordWriter + 'w> {
        Box::new(CsvWriter {
            output: csv::WriterBuilder::new()
                .flexible(true)
                .delimiter(self.separator)
                .quote(self.quote)
                .quote_style(self.quotes)
                .terminator(self.terminator)
                .from_writer(output),
            how: self.clone(),
            columns: None,
            number: 0,
        })
    }

    fn mime_type(&self) -> &'static str {
        "text/csv"
    }
}

impl RecordWriter for CsvWriter<'_> {
    fn write(&mut self, record: &Fields) -> Result<(), RecordError> {
        let number = self.number;
        self.number += 1;
        let columns = match &self.columns {
            Some(columns) => columns,
            None => {
                let names: Vec<String> = record.iter().map(|(name, _)| name.to_owned()).collect();
                if self.how.has_header {
                    self.output.write_record(&names).map_err(refused)?;
                }
                self.columns.insert(names)
            }
        };
        let unknown = record
            .iter()
            .find(|(name, _)| !columns.iter().any(|column| column == name));
        if let Some((name, _)) = unknown {
            return Err(RecordError::Format(format!(
                "record {number}, counted from 0, has a field '{name}' that the first has not"
            )));
        }
        let row = columns.iter().map(|column| match record.get(column) {
            None | Some(Json::Null) => self.how.null.clone(),
            Some(value) => value.to_plain(),
        });
        self.output.write_record(row).map_err(refused)
    }

    fn finish(&mut self) -> Result<(), RecordError> {
        Ok(self.output.flush()?)
    }
}

/// Leaves out the mark that editors of some systems begin files with. The library does so too, but
/// takes a first piece that is nothing else for the end.
struct WithoutMark<R> {
    input: R,
    /// What is left of the first bytes, once they were read.
    head: Option<Vec<u8>>,
}

impl<R: Read> Read for WithoutMark<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.head.is_none() {
            let mut head = Vec::new();
            let mut first = self.input.by_ref().take(MARK.len() as u64);
            first.read_to_end(&mut head)?;
            self.head = Some(if head == MARK { Vec::new() } else { head });
        }
        match &mut self.head {
            Some(head) if !head.is_empty() => {
                let len = head.len().min(into.len());
                into[..len].copy_from_slice(&head[..len]);
                head.drain(..len);
                Ok(len)
            }
            _ => self.input.read(into),
        }
    }
}

/// U+FEFF in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

fn refused(error: csv::Error) -> RecordError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error.into(),
        csv::ErrorKind::Utf8 { pos, .. } => RecordError::Format(format!(
            "line {} is no UTF-8",
            pos.map_or(0, |pos| pos.line())
        )),
        other => RecordError::Format(format!("no CSV: {other:?}")),
    }
}
