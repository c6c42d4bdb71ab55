//! The formats of files: where a record begins and ends, and what is in it.
//!
//! Framing is apart from reading: whatever is wrong with a record, the next one is found. Both are
//! functions of bytes alone.

mod csv;
mod encoding;
mod jsonl;

use std::borrow::Cow;

pub(crate) use encoding::Encoding;
pub(crate) use jsonl::facts;

use crate::job::Format;
use crate::marc::{self, MarcRecord};

/// What lies at the start of a buffer.
#[derive(Debug, PartialEq)]
pub(crate) enum Framed<'a> {
    /// A record, and how many stray bytes stand before it.
    Record {
        before: usize,
        bytes: &'a [u8],
        note: Option<&'static str>,
    },
    /// Bytes that are no record: where the damaged one starts, and how far it goes.
    Damaged {
        before: usize,
        len: usize,
        reason: &'static str,
    },
    /// No record and no damage; `counts` says that it has a number, as an empty line has.
    Blank { len: usize, counts: bool },
    /// The record may go on behind the buffer.
    Incomplete,
    /// Nothing but filler up to the end of the file.
    End,
}

/// How a file is laid out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Layout {
    Marc,
    MarcXml {
        encoding: Encoding,
        /// Bytes up to the end of the declaration, where that says another one than UTF-8.
        declaration: usize,
    },
    MarcJson,
    Jsonl,
    Csv(csv::Header),
}

/// What is in a record.
#[derive(Debug)]
pub(crate) enum Content<'a> {
    Marc(MarcRecord<'a>),
    /// A JSON object's text, not looked into yet.
    Object(Cow<'a, str>),
}

impl Content<'_> {
    /// What was not quite right with the record.
    pub fn take_note(&mut self) -> Option<Cow<'static, str>> {
        match self {
            Content::Marc(record) => record.note.take(),
            Content::Object(_) => None,
        }
    }
}

impl Layout {
    /// How a file is laid out that begins with `head`; `last` says that this is all of it. `told` is
    /// its encoding, where somebody said it.
    ///
    /// # Errors
    /// When the file is compressed, a text is UTF-16, an encoding is not read, or a CSV file has no
    /// header line within `head`.
    pub fn of(
        format: Format,
        told: Option<&str>,
        head: &[u8],
        last: bool,
    ) -> Result<Layout, &'static str> {
        if is_packed(head) {
            return Err("the file is compressed; unpack it first");
        }
        if format != Format::Marc && is_utf_16(head) {
            return Err("the file is UTF-16, and UTF-8 is read; convert it, as by iconv -t UTF-8");
        }
        let told = match told {
            Some(name) => Some(Encoding::told(name).ok_or("the encoding is not known")?),
            None => None,
        };
        Ok(match format {
            Format::Marc => Layout::Marc,
            Format::MarcXml => {
                let (encoding, declaration) = match told {
                    Some(encoding) => (encoding, 0),
                    None => Encoding::declared(head)?,
                };
                Layout::MarcXml {
                    encoding,
                    declaration,
                }
            }
            Format::MarcJson => Layout::MarcJson,
            Format::Jsonl => Layout::Jsonl,
            Format::Csv => {
                let encoding = told.unwrap_or(Encoding::DEFAULT);
                Layout::Csv(csv::Header::read(head, encoding, last)?)
            }
        })
    }

    /// Bytes before the first record.
    pub fn header_bytes(&self) -> usize {
        match self {
            Layout::Csv(header) => header.len,
            Layout::MarcXml { declaration, .. } => *declaration,
            _ => 0,
        }
    }

    /// Finds the first record of `buffer`, which begins at byte `offset` of the file; `last` says
    /// that the file ends with the buffer.
    pub fn frame<'a>(&self, buffer: &'a [u8], offset: u64, last: bool) -> Framed<'a> {
        match self {
            Layout::Marc => marc::frame(buffer, last),
            Layout::MarcXml { .. } => marc::frame_xml(buffer, last),
            Layout::MarcJson => marc::frame_json(buffer, last),
            Layout::Jsonl => jsonl::frame(buffer, last),
            Layout::Csv(_) if buffer.is_empty() && last => Framed::End,
            Layout::Csv(header) if offset == 0 => match buffer.len() < header.len {
                true if !last => Framed::Incomplete,
                true => Framed::End,
                false => Framed::Blank {
                    len: header.len,
                    counts: true,
                },
            },
            Layout::Csv(header) => header.frame(buffer, last),
        }
    }

    /// Reads a framed record; answers a note where it was not quite right.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn read<'a>(&self, bytes: &'a [u8]) -> Result<Content<'a>, Cow<'static, str>> {
        Ok(match self {
            Layout::Marc => Content::Marc(marc::parse(bytes).map_err(Cow::Borrowed)?),
            Layout::MarcXml { encoding, .. } => {
                Content::Marc(marc::parse_xml(&encoding.text(bytes, "the record")?)?)
            }
            Layout::MarcJson => Content::Marc(marc::parse_json(bytes)?),
            Layout::Jsonl => Content::Object(Cow::Borrowed(jsonl::text(bytes)?)),
            Layout::Csv(header) => Content::Object(Cow::Owned(header.object(bytes)?)),
        })
    }

    /// How far the first line of a buffer goes that no record begins with, as what it opens does not
    /// end within any buffer; for formats whose lines are looked at one by one then.
    pub fn given_up(&self, buffer: &[u8]) -> Option<usize> {
        match self {
            Layout::Csv(header) => header.line(buffer),
            _ => None,
        }
    }

    /// What is wrong with a file that begins with `head` and in which no record was found.
    pub fn unlike(&self, head: &[u8]) -> Option<&'static str> {
        let is_other = matches!(self, Layout::MarcXml { .. })
            && !head.trim_ascii().is_empty()
            && !marc::has_collection(head);
        is_other.then_some("no record is in the file: no element in it is called record")
    }

    /// Where the next record may begin in a buffer that begins inside of one; for records that are
    /// larger than any buffer.
    pub fn next(&self, buffer: &[u8]) -> Option<usize> {
        let behind = |mark| memchr::memchr(mark, buffer).map(|at| at + 1);
        match self {
            Layout::Marc => behind(0x1d),
            Layout::Jsonl => behind(b'\n'),
            Layout::Csv(header) => header.line(buffer),
            Layout::MarcXml { .. } => marc::next_xml(buffer),
            Layout::MarcJson => marc::next_json(buffer),
        }
    }
}

/// Whether text is UTF-16 or UTF-32, by its mark or by what no text in UTF-8 begins with.
fn is_utf_16(head: &[u8]) -> bool {
    match head {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => true,
        [first, second, ..] => (*first == 0) != (*second == 0),
        _ => false,
    }
}

/// Whether a file is compressed, by what those of gzip, zip, zstd, xz and bzip2 begin with.
fn is_packed(head: &[u8]) -> bool {
    let marks: [&[u8]; 4] = [b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ"];
    let is_bzip2 = matches!(head, [b'B', b'Z', b'h', _, b'1', b'A', b'Y', b'&', ..]);
    is_bzip2 || marks.iter().any(|mark| head.starts_with(mark))
}

/// What some programs write before UTF-8 text.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// About how many records a file has, told from bytes that come in pieces.
#[derive(Debug)]
pub(crate) struct Estimate {
    format: Format,
    marks: u64,
    last: Option<u8>,
}

impl Estimate {
    pub fn new(format: Format) -> Self {
        Estimate {
            format,
            marks: 0,
            last: None,
        }
    }

    /// Takes the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.marks += match self.format {
            Format::Marc => memchr::memchr_iter(0x1d, bytes).count() as u64,
            Format::Jsonl | Format::Csv => memchr::memchr_iter(b'\n', bytes).count() as u64,
            // A tag that two pieces share is missed; the number is exact when the job has ended.
            Format::MarcXml => {
                memchr::memmem::find_iter(bytes, b"<leader").count() as u64
                    + memchr::memmem::find_iter(bytes, b":leader>").count() as u64 / 2
            }
            Format::MarcJson => memchr::memmem::find_iter(bytes, b"\"leader\"").count() as u64,
        };
        self.last = bytes.last().copied().or(self.last);
    }

    /// Records that the bytes so far seem to hold.
    pub fn records(&self) -> u64 {
        // A last line may lack its newline; what follows the last MARC record is mostly filler.
        let open_line = self.last.is_some_and(|last| last != b'\n');
        match self.format {
            Format::Jsonl => self.marks + u64::from(open_line),
            Format::Csv => (self.marks + u64::from(open_line)).saturating_sub(1),
            _ => self.marks,
        }
    }
}
