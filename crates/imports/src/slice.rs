//! One slice of a file: from a byte offset to as many records as a slice may hold.
//!
//! A slice is a function of the file, where it starts and the job's bounds. So the slice that is
//! repeated after a crash is the same slice with the same records, which is what lets the store
//! recognize it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::limits;
use crate::marc::{self, Framed};
use crate::{Format, jsonl};

/// Where a slice starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Bytes from the file's start.
    pub offset: u64,
    /// The ordinal of the first record or line, from one.
    pub ordinal: i64,
}

/// How a job's file is read.
#[derive(Clone, Debug)]
pub(crate) struct Reading<'a> {
    pub format: Format,
    /// The JSONL field that holds the id; none gives each line an id of its own.
    pub key_field: Option<&'a str>,
    /// The prefix of such ids: the job's id, so that two files never share one.
    pub job: &'a str,
    pub records_max: u32,
}

/// The records of a slice and what was wrong with others.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    pub records: Vec<SliceRecord>,
    pub remarks: Vec<Remark>,
    /// Where the next slice starts.
    pub end: u64,
    pub next_ordinal: i64,
    /// Nothing follows.
    pub last: bool,
}

/// A record on its way into topic and sink.
#[derive(Debug, PartialEq)]
pub(crate) struct SliceRecord {
    pub ordinal: i64,
    pub id: String,
    pub title: Option<String>,
    /// JSON text.
    pub body: String,
}

/// A journal entry about a place in the file.
#[derive(Debug, PartialEq)]
pub(crate) struct Remark {
    pub ordinal: i64,
    pub offset: u64,
    /// The record was taken nevertheless.
    pub repaired: bool,
    pub reason: String,
}

impl Slice {
    pub fn rejected(&self) -> usize {
        self.remarks
            .iter()
            .filter(|remark| !remark.repaired)
            .count()
    }
}

/// Reads the slice of `file`, which has `file_len` bytes, that begins at `start`.
pub(crate) fn read(
    file: &File,
    file_len: u64,
    start: Start,
    reading: &Reading<'_>,
) -> std::io::Result<Slice> {
    let mut window = limits::WINDOW_BYTES;
    loop {
        let left = file_len.saturating_sub(start.offset);
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(window);
        let mut buffer = vec![0; want];
        file.read_exact_at(&mut buffer, start.offset)?;
        let last = want as u64 == left;
        let mut cutter = Cutter::new(start, reading);
        let whole = match reading.format {
            Format::Marc => cutter.marc(&buffer, last),
            Format::Jsonl => cutter.jsonl(&buffer, last),
        };
        let nothing = cutter.consumed == 0 && !whole;
        if nothing && window < limits::WINDOW_BYTES_MAX {
            window = limits::WINDOW_BYTES_MAX;
            continue;
        }
        if nothing {
            let len = skip_oversized(file, start.offset, file_len, reading.format)?;
            cutter.reject(
                0,
                format!(
                    "the record takes {len} bytes, more than {}",
                    limits::RECORD_BYTES_MAX
                ),
            );
            cutter.consumed_far = Some(len);
        }
        return Ok(cutter.finish(file_len));
    }
}

/// Finds where a record that is longer than the largest window ends.
fn skip_oversized(file: &File, start: u64, file_len: u64, format: Format) -> std::io::Result<u64> {
    let mark = match format {
        Format::Marc => 0x1d,
        Format::Jsonl => b'\n',
    };
    let mut buffer = vec![0; limits::WINDOW_BYTES];
    let mut at = start;
    while at < file_len {
        let want = usize::try_from(file_len - at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        file.read_exact_at(&mut buffer[..want], at)?;
        if let Some(found) = memchr::memchr(mark, &buffer[..want]) {
            return Ok(at + found as u64 + 1 - start);
        }
        at += want as u64;
    }
    Ok(file_len - start)
}

struct Cutter<'a> {
    start: Start,
    reading: &'a Reading<'a>,
    slice: Slice,
    ordinal: i64,
    consumed: usize,
    consumed_far: Option<u64>,
    bytes: usize,
}

impl<'a> Cutter<'a> {
    fn new(start: Start, reading: &'a Reading<'a>) -> Self {
        Cutter {
            start,
            reading,
            slice: Slice::default(),
            ordinal: start.ordinal,
            consumed: 0,
            consumed_far: None,
            bytes: 0,
        }
    }

    /// Cuts MARC records; true when the file ended or the slice is full.
    fn marc(&mut self, buffer: &[u8], last: bool) -> bool {
        while !self.full() {
            match marc::frame(&buffer[self.consumed..], last) {
                Framed::End => {
                    self.consumed = buffer.len();
                    return true;
                }
                Framed::Incomplete => return false,
                Framed::Damaged {
                    before,
                    len,
                    reason,
                } => {
                    self.reject(self.consumed + before, reason.to_owned());
                    self.consumed += before + len;
                    self.ordinal += 1;
                }
                Framed::Record {
                    before,
                    bytes,
                    note,
                } => {
                    let at = self.consumed + before;
                    match marc_record(bytes, self.ordinal) {
                        Ok((record, repaired)) => {
                            if !self.take(record) {
                                return true;
                            }
                            if let Some(reason) = note.or(repaired) {
                                self.remark(at, true, reason.to_owned());
                            }
                        }
                        Err(reason) => self.reject(at, reason.to_owned()),
                    }
                    self.consumed = at + bytes.len();
                    self.ordinal += 1;
                }
            }
        }
        true
    }

    /// Cuts lines; true when the file ended or the slice is full.
    fn jsonl(&mut self, buffer: &[u8], last: bool) -> bool {
        while !self.full() {
            let rest = &buffer[self.consumed..];
            let end = match memchr::memchr(b'\n', rest) {
                Some(end) => end,
                None if last && rest.is_empty() => return true,
                None if last => rest.len(),
                None => return false,
            };
            let at = self.consumed;
            let mut line = &rest[..end];
            if self.start.offset == 0 && at == 0 {
                line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
            }
            let line = line.trim_ascii();
            // An empty line is no record, but it counts as a line, so that the ordinal is the
            // line's number in an editor.
            if !line.is_empty() {
                match self.line_record(line) {
                    Ok(record) => {
                        if !self.take(record) {
                            return true;
                        }
                    }
                    Err(reason) => self.reject(at, reason),
                }
            }
            self.consumed = (at + end + 1).min(buffer.len());
            self.ordinal += 1;
        }
        true
    }

    fn line_record(&self, line: &[u8]) -> Result<SliceRecord, String> {
        let facts = jsonl::facts(line, self.reading.key_field)?;
        let id = facts
            .key
            .unwrap_or_else(|| format!("{}:{}", self.reading.job, self.ordinal));
        let body = str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_owned())?;
        checked(SliceRecord {
            ordinal: self.ordinal,
            id,
            title: facts.title.map(cut_title),
            body: body.to_owned(),
        })
        .map_err(str::to_owned)
    }

    /// Takes a record if the slice has room for it; an empty slice has room for any.
    fn take(&mut self, record: SliceRecord) -> bool {
        let bytes = record.id.len() + record.body.len();
        if !self.slice.records.is_empty() && self.bytes + bytes > limits::SLICE_BYTES_MAX {
            return false;
        }
        self.bytes += bytes;
        self.slice.records.push(record);
        true
    }

    fn full(&self) -> bool {
        let seen = self.slice.records.len() + self.slice.remarks.len();
        seen >= usize::try_from(self.reading.records_max).unwrap_or(usize::MAX)
    }

    fn reject(&mut self, at: usize, reason: String) {
        self.remark(at, false, reason);
    }

    fn remark(&mut self, at: usize, repaired: bool, reason: String) {
        let offset = self.start.offset + at as u64;
        self.slice.remarks.push(Remark {
            ordinal: self.ordinal,
            offset,
            repaired,
            reason,
        });
    }

    fn finish(mut self, file_len: u64) -> Slice {
        let consumed = match self.consumed_far {
            Some(len) => {
                self.ordinal += 1;
                len
            }
            None => self.consumed as u64,
        };
        self.slice.end = self.start.offset + consumed;
        self.slice.next_ordinal = self.ordinal;
        self.slice.last = self.slice.end >= file_len;
        self.slice
    }
}

fn marc_record(
    bytes: &[u8],
    ordinal: i64,
) -> Result<(SliceRecord, Option<&'static str>), &'static str> {
    let record = marc::parse(bytes)?;
    let id = record
        .id()
        .ok_or("the record has no id: neither 001 nor 010 $a")?
        .to_owned();
    let mut body = String::with_capacity(bytes.len() * 2);
    marc::write_json(&record, &mut body);
    let title = record.title().map(cut_title);
    Ok((
        checked(SliceRecord {
            ordinal,
            id,
            title,
            body,
        })?,
        record.note,
    ))
}

fn checked(record: SliceRecord) -> Result<SliceRecord, &'static str> {
    if record.id.len() > limits::ID_BYTES_MAX {
        return Err("the id is longer than 1024 bytes");
    }
    if record.body.len() + record.id.len() > limits::RECORD_BYTES_MAX {
        return Err("the record is larger than 768 KiB as JSON");
    }
    Ok(record)
}

fn cut_title(mut title: String) -> String {
    let mut end = title.len().min(limits::TITLE_BYTES_MAX);
    while !title.is_char_boundary(end) {
        end -= 1;
    }
    title.truncate(end);
    title
}

/// What some editors write before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
