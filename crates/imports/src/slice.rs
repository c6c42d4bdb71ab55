//! One slice of a file: from a byte offset to as many records as a slice may hold.
//!
//! A slice is a function of the file, where it starts and the job's bounds. So the slice that is
//! repeated after a crash is the same slice with the same records, which is what lets the store
//! recognize it.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::error::ImportsError;
use crate::format::{Framed, Layout};
use crate::job::Format;
use crate::keys::{Key, Selectors};
use crate::limits;
use crate::profile::Profile;

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
    pub profile: &'a Profile,
    /// By which the records are found again.
    pub selectors: &'a Selectors,
    /// The prefix of ids that are made up where neither format nor profile has one: the job's id,
    /// so that two files never share one.
    pub job: &'a str,
    pub records_max: u32,
}

/// The records of a slice and what was wrong with others.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    pub records: Vec<SliceRecord>,
    pub remarks: Vec<Remark>,
    /// Where the slice starts.
    pub start: u64,
    /// Where the next slice starts.
    pub end: u64,
    pub next_ordinal: i64,
    /// Nothing follows.
    pub last: bool,
    /// The file's bytes from the slice's start.
    bytes: Vec<u8>,
}

/// A record on its way into topic and sink.
#[derive(Debug, PartialEq)]
pub(crate) struct SliceRecord {
    pub ordinal: i64,
    pub id: String,
    pub title: Option<String>,
    /// JSON text.
    pub body: String,
    /// By which it is found again.
    pub keys: Vec<Key>,
    /// A JSON object of the profile's fields.
    pub fields: Option<String>,
    /// Where it stands in the slice's bytes.
    span: Range<usize>,
}

/// A journal entry about a place in the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Remark {
    pub ordinal: i64,
    pub offset: u64,
    pub kind: RemarkKind,
    pub reason: String,
    /// A rejected record's bytes, unless they are too many to keep.
    pub raw: Option<Vec<u8>>,
}

/// What a remark says of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemarkKind {
    /// It is in neither topic nor sink.
    Rejected,
    /// It was taken though something was wrong.
    Repaired,
    /// The profile's policy left it out of the sink.
    Skipped,
}

impl RemarkKind {
    /// The name in answers and rows.
    pub fn name(self) -> &'static str {
        match self {
            RemarkKind::Rejected => "rejected",
            RemarkKind::Repaired => "repaired",
            RemarkKind::Skipped => "skipped",
        }
    }
}

impl Slice {
    /// Where the one after it starts.
    pub fn next(&self) -> Start {
        Start {
            offset: self.end,
            ordinal: self.next_ordinal,
        }
    }

    /// A remark about one of the slice's records.
    pub fn remark_on(&self, record: &SliceRecord, kind: RemarkKind, reason: String) -> Remark {
        let raw = self.bytes.get(record.span.clone());
        let is_kept = kind == RemarkKind::Rejected;
        Remark {
            ordinal: record.ordinal,
            offset: self.start + record.span.start as u64,
            kind,
            reason,
            raw: raw.filter(|_| is_kept).and_then(kept),
        }
    }
}

/// The layout of a file of `file_len` bytes, told from its first ones.
pub(crate) fn layout(
    file: &File,
    file_len: u64,
    format: Format,
    profile: &Profile,
) -> Result<Layout, ImportsError> {
    let head = match format {
        Format::Csv => head(file, file_len, limits::CSV_HEADER_BYTES_MAX)?,
        Format::MarcXml => head(file, file_len, XML_DECLARATION_BYTES)?,
        _ => head(file, file_len, MARK_OF_FILE_BYTES)?,
    };
    let last = head.len() as u64 == file_len;
    let told = profile.encoding.as_deref();
    Layout::of(format, told, &head, last).map_err(ImportsError::Unreadable)
}

/// A file's first bytes.
fn head(file: &File, file_len: u64, most: usize) -> Result<Vec<u8>, ImportsError> {
    let len = usize::try_from(file_len).unwrap_or(usize::MAX).min(most);
    let mut head = vec![0; len];
    file.read_exact_at(&mut head, 0)
        .map_err(ImportsError::Read)?;
    Ok(head)
}

/// What stands before the records of a file: a CSV file's header line, an XML file's declaration of
/// another encoding than UTF-8.
pub(crate) fn header(
    file: &File,
    file_len: u64,
    format: Format,
    profile: &Profile,
) -> Result<Vec<u8>, ImportsError> {
    let mut header = vec![0; layout(file, file_len, format, profile)?.header_bytes()];
    file.read_exact_at(&mut header, 0)
        .map_err(ImportsError::Read)?;
    Ok(header)
}

/// Reads the slice of `file`, which has `file_len` bytes, that begins at `start`.
pub(crate) fn read(
    file: &File,
    file_len: u64,
    start: Start,
    reading: &Reading<'_>,
) -> Result<Slice, ImportsError> {
    let layout = layout(file, file_len, reading.format, reading.profile)?;
    let mut window = limits::WINDOW_BYTES;
    loop {
        let left = file_len.saturating_sub(start.offset);
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(window);
        let mut buffer = vec![0; want];
        file.read_exact_at(&mut buffer, start.offset)
            .map_err(ImportsError::Read)?;
        let last = want as u64 == left;
        let mut cutter = Cutter::new(start, reading);
        let whole = cutter.cut(&layout, &buffer, last);
        let nothing = cutter.consumed == 0 && !whole;
        if nothing && window < limits::WINDOW_BYTES_MAX {
            window = limits::WINDOW_BYTES_MAX;
            continue;
        }
        if nothing && let Some(line) = layout.given_up(&buffer) {
            let raw = kept(&buffer[..line]);
            let reason = "a quoted field does not end".to_owned();
            cutter.remark(0..line, RemarkKind::Rejected, reason, raw);
            cutter.consumed_far = Some(line as u64);
        } else if nothing {
            let len = oversized(file, start.offset, file_len, &layout)?;
            let most = limits::RECORD_BYTES_MAX;
            let reason = format!("the record takes {len} bytes, more than {most}");
            cutter.remark(0..0, RemarkKind::Rejected, reason, None);
            cutter.consumed_far = Some(len);
        } else if cutter.has_found_nothing() && last && cutter.consumed == want {
            let head = head(file, file_len, limits::WINDOW_BYTES)?;
            if let Some(reason) = layout.unlike(&head) {
                cutter.remark(0..0, RemarkKind::Rejected, reason.to_owned(), None);
                cutter.ordinal += 1;
            }
        }
        return Ok(cutter.finish(file_len, buffer));
    }
}

/// How long a record is that is longer than the largest window; of one that no slice could look to
/// the end of, as far as one does.
fn oversized(file: &File, start: u64, file_len: u64, layout: &Layout) -> Result<u64, ImportsError> {
    let mut buffer = vec![0; limits::WINDOW_BYTES];
    let mut at = start;
    let file_len = file_len.min(start.saturating_add(limits::SKIPPED_BYTES_MAX));
    while at < file_len {
        let want = usize::try_from(file_len - at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        file.read_exact_at(&mut buffer[..want], at)
            .map_err(ImportsError::Read)?;
        if let Some(found) = layout.next(&buffer[..want]) {
            return Ok(at + found as u64 - start);
        }
        if at + want as u64 == file_len {
            break;
        }
        // What marks the next one may be cut by the buffer's end.
        at += (want.saturating_sub(MARK_BYTES_MAX).max(1)) as u64;
    }
    Ok(file_len - start)
}

#[cfg(test)]
impl SliceRecord {
    /// A record of an id and keys, for tests.
    pub fn plain(id: &str, keys: Vec<Key>) -> SliceRecord {
        SliceRecord {
            ordinal: 1,
            id: id.to_owned(),
            title: None,
            body: "{}".to_owned(),
            keys,
            fields: None,
            span: 0..0,
        }
    }
}

/// Reads up to `count` slices, one after the other, from `start` on; fewer where they are large, or
/// where one cannot be read.
pub(crate) fn read_some(
    file: &File,
    file_len: u64,
    start: Start,
    reading: &Reading<'_>,
    count: usize,
) -> Result<Vec<Slice>, ImportsError> {
    let mut slices = vec![read(file, file_len, start, reading)?];
    while slices.len() < count {
        let Some(latest) = slices.last() else {
            break;
        };
        if latest.last || latest.end - start.offset >= limits::TURN_BYTES {
            break;
        }
        match read(file, file_len, latest.next(), reading) {
            Ok(slice) => slices.push(slice),
            // What was read has its turn; this one's comes next.
            Err(_) => break,
        }
    }
    Ok(slices)
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

    /// Cuts records; true when the file ended or the slice is full.
    fn cut(&mut self, layout: &Layout, buffer: &[u8], last: bool) -> bool {
        while !self.full() {
            let at = self.consumed;
            match layout.frame(&buffer[at..], self.start.offset + at as u64, last) {
                Framed::End => {
                    self.consumed = buffer.len();
                    return true;
                }
                Framed::Incomplete => return false,
                Framed::Blank { len, counts } => {
                    self.consumed = at + len;
                    self.ordinal += i64::from(counts);
                }
                Framed::Damaged {
                    before,
                    len,
                    reason,
                } => {
                    let span = at + before..at + before + len;
                    let raw = kept(&buffer[span.clone()]);
                    self.consumed = span.end;
                    self.remark(span, RemarkKind::Rejected, reason.to_owned(), raw);
                    self.ordinal += 1;
                }
                Framed::Record {
                    before,
                    bytes,
                    note,
                } => {
                    let span = at + before..at + before + bytes.len();
                    match self.record(layout, bytes, span.clone()) {
                        Ok((record, repaired)) => {
                            if !self.take(record) {
                                return true;
                            }
                            if let Some(reason) = note.map(Cow::Borrowed).or(repaired) {
                                let reason = reason.into_owned();
                                self.remark(span.clone(), RemarkKind::Repaired, reason, None);
                            }
                        }
                        Err(reason) => {
                            let reason = reason.into_owned();
                            self.remark(span.clone(), RemarkKind::Rejected, reason, kept(bytes));
                        }
                    }
                    self.consumed = span.end;
                    self.ordinal += 1;
                }
            }
        }
        true
    }

    /// Reads a framed record; answers a note where it was not quite right.
    fn record(
        &self,
        layout: &Layout,
        bytes: &[u8],
        span: Range<usize>,
    ) -> Result<(SliceRecord, Option<Cow<'static, str>>), Cow<'static, str>> {
        let mut content = layout.read(bytes)?;
        let note = content.take_note();
        let Reading {
            profile, selectors, ..
        } = self.reading;
        let mapped = profile.map(&content, selectors)?;
        let id = match mapped.id {
            Some(id) => storable(id),
            None => format!("{}:{}", self.reading.job, self.ordinal),
        };
        if id.len() > limits::ID_BYTES_MAX {
            return Err("the id is longer than 1024 bytes".into());
        }
        let fields = mapped.fields.as_ref().map_or(0, String::len);
        if mapped.body.len() + id.len() + fields > limits::RECORD_BYTES_MAX {
            return Err("the record is larger than 768 KiB as JSON".into());
        }
        let record = SliceRecord {
            ordinal: self.ordinal,
            id,
            title: mapped.title.map(cut_title),
            body: mapped.body,
            keys: mapped.keys,
            fields: mapped.fields,
            span,
        };
        Ok((record, note))
    }

    /// Takes a record if the slice has room for it; an empty slice has room for any.
    fn take(&mut self, record: SliceRecord) -> bool {
        // A usual slice's headers have room beside it; those of more records count.
        let usual = usize::try_from(limits::SLICE_RECORDS_MAX).unwrap_or(usize::MAX);
        let headers = match self.slice.records.len() < usual {
            true => 0,
            false => limits::RECORD_HEADERS_BYTES,
        };
        let bytes = record.id.len() + record.body.len() + headers;
        if !self.slice.records.is_empty() && self.bytes + bytes > limits::SLICE_BYTES_MAX {
            return false;
        }
        self.bytes += bytes;
        self.slice.records.push(record);
        true
    }

    /// Whether neither it nor a slice before it had anything in it.
    fn has_found_nothing(&self) -> bool {
        self.ordinal == 1 && self.slice.records.is_empty() && self.slice.remarks.is_empty()
    }

    fn full(&self) -> bool {
        let seen = self.slice.records.len() + self.slice.remarks.len();
        seen >= usize::try_from(self.reading.records_max).unwrap_or(usize::MAX)
    }

    fn remark(
        &mut self,
        span: Range<usize>,
        kind: RemarkKind,
        reason: String,
        raw: Option<Vec<u8>>,
    ) {
        self.slice.remarks.push(Remark {
            ordinal: self.ordinal,
            offset: self.start.offset + span.start as u64,
            kind,
            reason,
            raw,
        });
    }

    fn finish(mut self, file_len: u64, mut bytes: Vec<u8>) -> Slice {
        bytes.truncate(self.consumed);
        bytes.shrink_to_fit();
        let consumed = match self.consumed_far {
            Some(len) => {
                self.ordinal += 1;
                len
            }
            None => self.consumed as u64,
        };
        self.slice.start = self.start.offset;
        self.slice.end = self.start.offset + consumed;
        self.slice.next_ordinal = self.ordinal;
        self.slice.last = self.slice.end >= file_len;
        self.slice.bytes = bytes;
        self.slice
    }
}

/// A rejected record's bytes, when they are few enough to keep.
fn kept(bytes: &[u8]) -> Option<Vec<u8>> {
    (bytes.len() <= limits::REJECT_BYTES_MAX).then(|| bytes.to_owned())
}

/// A text as every database stores it, so that what is one there is one here.
pub(crate) fn storable(text: String) -> String {
    match text.contains('\0') {
        true => text.replace('\0', "\u{fffd}"),
        false => text,
    }
}

fn cut_title(mut title: String) -> String {
    let mut end = title.len().min(limits::TITLE_BYTES_MAX);
    while !title.is_char_boundary(end) {
        end -= 1;
    }
    title.truncate(end);
    title
}

/// More bytes than any mark has that begins or ends a record, blanks in it included.
const MARK_BYTES_MAX: usize = 256;

/// What tells that a file is compressed, or how its text is encoded.
const MARK_OF_FILE_BYTES: usize = 8;
/// Within so many bytes an XML file declares its encoding.
const XML_DECLARATION_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_no_record_in_it_is_passed_over_in_parts() {
        let file = tempfile::tempfile().unwrap();
        let file_len = limits::SKIPPED_BYTES_MAX + (1 << 20);
        // A hole: it takes no room.
        file.set_len(file_len).unwrap();
        let profile = Profile::default();
        let reading = Reading {
            format: Format::Marc,
            profile: &profile,
            selectors: &Selectors::default(),
            job: "j",
            records_max: 10,
        };
        let mut start = Start {
            offset: 0,
            ordinal: 1,
        };
        let mut ends = Vec::new();
        while start.offset < file_len {
            let slice = read(&file, file_len, start, &reading).unwrap();
            assert!(slice.records.is_empty());
            start.offset = slice.end;
            start.ordinal = slice.next_ordinal;
            ends.push(slice.end);
        }
        assert_eq!(ends, [limits::SKIPPED_BYTES_MAX, file_len]);
    }

    #[test]
    fn several_slices_are_the_same_as_one_after_the_other() {
        let mut file = tempfile::tempfile().unwrap();
        let line = |n: usize| {
            format!(
                "{{\"id\":{n},\"pad\":\"{}\"}}\n",
                "x".repeat(n % 90 * 1_000)
            )
        };
        let text: String = (0..400).map(line).collect();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        let profile = Profile::default();
        let reading = Reading {
            format: Format::Jsonl,
            profile: &profile,
            selectors: &Selectors::default(),
            job: "j",
            records_max: 10,
        };
        let file_len = text.len() as u64;
        let mut start = Start {
            offset: 0,
            ordinal: 1,
        };
        let (mut most, mut least) = (0, usize::MAX);
        while start.offset < file_len {
            let slices = read_some(&file, file_len, start, &reading, 5).unwrap();
            for slice in &slices {
                let alone = read(&file, file_len, start, &reading).unwrap();
                assert_eq!(slice.start, start.offset);
                assert_eq!((&slice.records, slice.end), (&alone.records, alone.end));
                start = slice.next();
            }
            let bytes = slices.last().unwrap().end - slices[0].start;
            assert!(bytes < 2 * limits::TURN_BYTES, "{bytes} bytes in a turn");
            (most, least) = (most.max(slices.len()), least.min(slices.len()));
        }
        assert_eq!(start.ordinal, 401);
        assert!(most == 5 && least < 5, "{least} to {most} slices");
    }
}
